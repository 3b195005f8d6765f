//! Backoff on a contended channel: a station whose frames are full, and wait long for the channel,
//! lets others go first until its next frame is full.
//!
//! Stations that contend by DCF (IEEE 802.11-2020, 10.3.4) get equal numbers of frames, however
//! much each has to say. Sources that send half-full frames as soon as they may then take the
//! channel from the router that carries everybody's packets, and its queue grows without end.
//! Aggregation alone does not help: what a source gathers while its frame waits is a few packets.
//!
//! Principle: after each frame the station waits `backoff · fill · contention`. While it waits,
//! only full frames leave.
//! * *Contention* is how much longer the frame took than twice the quickest of its length: by so
//!   much others were served first. Twice, because a contention window of its own costs a short
//!   frame nearly its own length again. A channel without others has none.
//! * *Fill* is the share of the largest frame that the frame took, up to `ENOUGH`, and 0 for a lone
//!   packet. Below saturation nearly all packets are alone, and nothing is added to the time for
//!   which they wait anyway. Beyond `ENOUGH` longer waits gain little, and would feed themselves:
//!   what waits longer fills its frame further.
//!
//! Both are averages over `MEMORY` frames: talk spurts last for tens of frames, and a single long
//! wait is chance. What was tried, and the measurements: docs/decisions/0008-backoff.md.

use crate::config::Config;
use sheaf_stage::{Duration, Instant};
use sheaf_wire::meta::MAX_LEN;

/// Frames over which fill and contention are averaged. From 4 to 16 the results are alike.
const MEMORY: u32 = 8;
/// Length classes are this many bytes wide: 1 ms of air time at 2 Mbit/s.
const CLASS: usize = 256;
const CLASSES: usize = MAX_LEN.div_ceil(CLASS);
/// The quickest service follows slower ones by 1/1024 of the difference a frame: a link that turned
/// slow counts as contended for some hundred frames, and chance does not move it.
const CREEP: u32 = 1024;
/// Share of the largest frame from which on a frame is full enough: six packets of 60 bytes at
/// 2 Mbit/s save 0.86 of the air time that 24 would save.
const ENOUGH: f64 = 0.25;
/// A station that sent nothing for this long has no valid estimate of the channel. A talk spurt's
/// pause lasts 1.5 s in the mean, and stations carry several calls.
const STALE: Duration = Duration::from_secs(1);

/// A frame that the device has finished with.
#[derive(Clone, Copy, Debug)]
pub struct Finished {
    /// Packets in it.
    pub packets: u32,
    /// Bytes of IP in it.
    pub bytes: u32,
    /// This frame and those noted after it that are seen to be done in the same look. They share
    /// the time since the frame before.
    pub sharing: u32,
    /// The frame has this time to itself. A driver that finishes several together may be seen to
    /// finish one right after another, and the second one's time says nothing of the channel.
    pub exact: bool,
}

impl Finished {
    /// A frame of a device that has one at a time.
    pub fn single(packets: u32, bytes: u32) -> Finished {
        Finished { packets, bytes, sharing: 1, exact: true }
    }
}

/// Time that the device takes for frames, their fill, and the time until which it leaves the
/// channel to others.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// Since when the device works on its present frame.
    started: Instant,
    /// The quickest service by length class; `None` before the first.
    quickest: [Option<Duration>; CLASSES],
    contention: Duration,
    /// 0..=`ENOUGH`.
    fill: f64,
    until: Instant,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff {
            started: Instant::ZERO,
            quickest: [None; CLASSES],
            contention: Duration::ZERO,
            fill: 0.0,
            until: Instant::ZERO,
        }
    }
}

impl Backoff {
    /// Notes that an idle device was given a frame at `now`.
    pub fn began(&mut self, now: Instant) {
        if now - self.started > STALE {
            (self.contention, self.fill) = (Duration::ZERO, 0.0);
        }
        self.started = self.started.max(now);
    }

    /// Until when only full frames leave.
    pub fn until(&self) -> Instant {
        self.until
    }

    /// Time for which others are served first: the average excess of recent frames over twice the
    /// quickest of their length. Zero at `now` where nothing was noted for a second.
    pub fn contention(&self, now: Instant) -> Duration {
        if now - self.started > STALE { Duration::ZERO } else { self.contention }
    }

    /// Notes that the device finished at `now` with `frame`.
    pub fn finished(&mut self, config: &Config, frame: Finished, now: Instant) {
        let Finished { packets, bytes, sharing, exact } = frame;
        let took = now.saturating_since(self.started) / sharing.max(1);
        self.started += took;
        let excess = self.excess(took, bytes, exact);
        self.contention = (self.contention * (MEMORY - 1) + excess) / MEMORY;
        let fill = match packets {
            0 | 1 => 0.0,
            _ => (f64::from(bytes) / f64::from(config.max)).min(ENOUGH),
        };
        self.fill += (fill - self.fill) / f64::from(MEMORY);
        // After the last of those that share the time this is `now`.
        let now = self.started;
        let backoff = self.contention.mul_f64(f64::from(config.backoff) * self.fill);
        self.until = now + backoff.min(config.hold);
    }

    /// By how much `took` is longer than twice the quickest service of a frame of `bytes` bytes,
    /// which follows it down only where `took` is `exact`.
    fn excess(&mut self, took: Duration, bytes: u32, exact: bool) -> Duration {
        let class = (bytes as usize / CLASS).min(CLASSES - 1);
        let quickest = self.quickest[class].get_or_insert(took);
        let excess = took.saturating_sub(*quickest * 2);
        let crept = *quickest + took.saturating_sub(*quickest) / CREEP;
        *quickest = if exact { took.min(crept) } else { crept };
        excess
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// The backoff after 100 frames that each took `took`, but for the first, which took
    /// `quickest`.
    fn after(packets: u32, bytes: u32, quickest: Duration, took: Duration) -> Duration {
        let config = Config::default();
        let mut backoff = Backoff::default();
        let mut now = Instant::from_millis(1);
        for frame in 0..100 {
            backoff.began(now);
            now += if frame == 0 { quickest } else { took };
            backoff.finished(&config, Finished::single(packets, bytes), now);
        }
        backoff.until() - now
    }

    #[test]
    fn lone_packets_back_off_from_nothing_however_long_they_waited() {
        assert_eq!(after(1, 60, MS, 50 * MS), Duration::ZERO);
    }

    #[test]
    fn a_frame_that_took_up_to_twice_the_quickest_met_no_contention() {
        assert_eq!(after(24, 1460, 7 * MS, 14 * MS), Duration::ZERO);
    }

    #[test]
    fn the_backoff_grows_with_the_share_of_a_full_frame() {
        // 8 ms beyond twice the quickest, which creeps, and 24 times 120 or 250 of 1500 bytes of
        // it.
        let (small, large) = (after(2, 120, MS, 10 * MS), after(4, 250, MS, 10 * MS));
        assert!((12 * MS..16 * MS).contains(&small), "{small:?}");
        assert!((25 * MS..32 * MS).contains(&large), "{large:?}");
    }

    #[test]
    fn a_full_frame_leaves_the_channel_to_others_no_longer_than_one_that_is_full_enough() {
        // Lengths of one class, so that the contention is the same.
        let enough = (f64::from(Config::default().max) * ENOUGH) as u32;
        assert_eq!(after(8, enough + 1, MS, 6 * MS), after(8, 511, MS, 6 * MS));
        assert!(after(6, enough - 60, MS, 6 * MS) < after(6, enough + 1, MS, 6 * MS));
    }

    #[test]
    fn no_backoff_is_longer_than_hold() {
        assert_eq!(after(24, 1460, 7 * MS, 60 * MS), Config::default().hold);
    }

    #[test]
    fn frames_that_are_seen_to_be_done_at_once_share_the_time() {
        let config = Config::default();
        let after = |at_once: u32| {
            let mut backoff = Backoff::default();
            let mut now = Instant::from_millis(1);
            for _ in 0..40 / at_once {
                backoff.began(now);
                now += 10 * MS * at_once;
                for sharing in (1..=at_once).rev() {
                    let exact = at_once == 1;
                    backoff.finished(
                        &config,
                        Finished { packets: 4, bytes: 250, sharing, exact },
                        now,
                    );
                }
            }
            now += MS;
            backoff.began(now);
            backoff.finished(&config, Finished::single(4, 250), now + 40 * MS);
            backoff.until() - now
        };
        assert_eq!(after(4), after(1));
    }

    #[test]
    fn a_frame_seen_right_after_another_does_not_count_as_the_quickest() {
        let config = Config::default();
        let mut backoff = Backoff::default();
        let mut now = Instant::from_millis(1);
        backoff.began(now);
        for frame in 0..100 {
            let exact = frame % 2 == 0;
            now += if exact { 10 * MS } else { MS / 100 };
            let frame = Finished { exact, ..Finished::single(4, 250) };
            backoff.finished(&config, frame, now);
        }
        assert_eq!(backoff.until(), now);
    }

    #[test]
    fn what_was_learned_of_the_channel_is_forgotten_after_a_pause() {
        let config = Config::default();
        let mut backoff = Backoff::default();
        let mut now = Instant::from_millis(1);
        for frame in 0..100u32 {
            now += if frame == 0 { 7 * MS } else { 60 * MS };
            backoff.finished(&config, Finished::single(24, 1460), now);
        }
        assert!(backoff.until() > now && backoff.contention(now) > 30 * MS);
        now += 1001 * MS;
        assert_eq!(backoff.contention(now), Duration::ZERO);
        backoff.began(now);
        backoff.finished(&config, Finished::single(24, 1460), now + 7 * MS);
        assert_eq!(backoff.until(), now + 7 * MS);
    }
}
