//! Whether others than Sheaf have so much in a device's fair queues that sparse flows are better
//! off alone.
//!
//! Beside a download a fair queue serves a packet of a sparse flow next, but a frame of several in
//! its turn. So sparse flows do not share frames there, unless alone they do not fit. Alone is as
//! without Sheaf, so it is what happens in doubt: at once where others begin, and until they were
//! silent for a while.

use sheaf_stage::{Duration, Instant};

/// Bytes and packets are counted over this time: longer than a download of one flow is silent
/// between two super-packets at 2 Mbit/s (64 KiB).
pub(crate) const WINDOW: Duration = Duration::from_millis(250);
/// The same while others were silent: what begins now is noticed before a call's next three
/// packets.
const NOTICE: Duration = Duration::from_millis(50);
/// After so long without a look nobody knows when in it others sent. While nothing of ours comes, a
/// look is every half a second.
const SILENCE: Duration = Duration::from_secs(1);
/// So many bytes of others count: three full frames, in a window 0.15 Mbit/s.
const MANY: u32 = 4_500;
/// So many are heard still: one full frame, where ours leave a download next to nothing.
const FRAME: u32 = 1_500;
/// For each packet of ours others must have so many bytes before our packets go alone. A full
/// frame takes a radio at 2 Mbit/s as long as seven small ones, so below this our packets alone
/// would take four fifths of the air.
const SHARE: u32 = 54;
/// Below this many bytes for each of ours, packets that go alone do not fit: fair queues leave a
/// download no more bytes than each of our flows has, so one beside ten calls has a tenth of their
/// hundred bytes for each packet. Where our packets fit, others have what is left, which is more.
const CROWD: u32 = 10;

/// In so many windows in a row others have next to nothing before they count as silent.
const SILENT: u32 = 2;
/// In so many windows in a row, a second, ours do not fit beside them before they share frames.
/// Downloads beside calls that just fit alone are silent for two windows now and then, as long as
/// TCP waits for a loss; with two, fifteen calls beside four downloads at 2 Mbit/s shared frames in
/// every fourth run, and lost twice as much as alone.
const CROWDED: u32 = 4;

/// Traffic of others on a device.
#[derive(Debug, Default)]
pub(crate) struct Strangers {
    /// Beginning of the window, and what had passed by then: bytes of others, packets of ours.
    since: Instant,
    start: (u32, u64),
    many: bool,
    /// They had something on the device in the last window, be it many or too few beside ours.
    heard: bool,
    /// In so many windows in a row they sent next to nothing, or too little beside ours. Once is
    /// chance: a download that meets a change, or that ours starve, is silent for a moment.
    doubt: u32,
    /// So many of our packets a second did not fit alone beside them.
    crowd: Option<u64>,
}

impl Strangers {
    /// Whether the window is over at `now`.
    pub fn is_due(&self, now: Instant) -> bool {
        now.saturating_since(self.since) >= self.window()
    }

    /// The window is over at `now`: by then `bytes` of others have passed, modulo 2^32, and
    /// `packets` of ours. Returns whether it shows that ours do not fit alone beside them.
    pub fn note(&mut self, bytes: u32, packets: u64, now: Instant) -> bool {
        let elapsed = now.saturating_since(self.since);
        let theirs = bytes.wrapping_sub(self.start.0);
        let ours = packets.saturating_sub(self.start.1);
        (self.since, self.start) = (now, (bytes, packets));
        // After a longer silence nobody knows when in it they passed.
        let enough = if self.many { FRAME } else { MANY };
        self.heard = elapsed < SILENCE && theirs >= enough;
        let rate = ours * 1_000 / (elapsed.as_millis() as u64).max(1);
        // With a fifth less they may fit.
        self.crowd = self.crowd.filter(|crowd| self.heard && rate * 5 >= crowd * 4);
        if !self.many {
            let share = u64::from(theirs) >= ours * u64::from(SHARE);
            (self.many, self.doubt) = (self.heard && share && self.crowd.is_none(), 0);
            return false;
        }
        let crowded = u64::from(theirs) < ours * u64::from(CROWD);
        self.doubt = if crowded || !self.heard { self.doubt + 1 } else { 0 };
        let is_crowded = crowded && self.heard && self.doubt >= CROWDED;
        if is_crowded || !self.heard && self.doubt >= SILENT {
            (self.many, self.doubt) = (false, 0);
            self.crowd = is_crowded.then_some(rate);
        }
        is_crowded
    }

    fn window(&self) -> Duration {
        if self.heard || self.many { WINDOW } else { NOTICE }
    }

    /// Whether their frames are in front of ours, and ours are few beside them.
    pub fn are_many(&self) -> bool {
        self.many
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether they are many after each of `windows`: bytes of others and packets of ours.
    fn many(windows: &[(u32, u64)]) -> Vec<bool> {
        let mut strangers = Strangers::default();
        let (mut bytes, mut packets, mut now) = (u32::MAX - 20_000, 0, Instant::ZERO + WINDOW * 4);
        strangers.note(bytes, packets, now);
        let after = |(theirs, ours): &(u32, u64)| {
            (bytes, packets, now) = (bytes.wrapping_add(*theirs), packets + ours, now + WINDOW);
            strangers.note(bytes, packets, now);
            strangers.are_many()
        };
        windows.iter().map(after).collect()
    }

    #[test]
    fn a_download_counts_until_it_was_silent_twice_and_single_frames_never_do() {
        let windows = [(1500, 1), (60_000, 100), (0, 100), (60_000, 100), (0, 100), (0, 100)];
        assert_eq!(many(&windows), [false, true, true, true, true, false]);
    }

    #[test]
    fn calls_go_alone_beside_a_download_where_they_fit_alone() {
        // 15 calls at 2 Mbit/s; the download starves for a moment.
        let windows = [(35_000, 188), (15_500, 188), (1_500, 188), (13_000, 188)];
        assert_eq!(many(&windows), [true; 4]);
    }

    #[test]
    fn calls_that_do_not_fit_alone_share_frames_until_they_are_fewer() {
        // 30 calls and then 15 beside a download at 2 Mbit/s.
        let crowded = [(1_600, 375); 4];
        let windows = [&[(100_000, 1)], &crowded[..], &[(37_000, 375), (35_000, 188)]].concat();
        assert_eq!(many(&windows), [true, true, true, true, false, false, true]);
    }

    #[test]
    fn calls_stay_alone_beside_a_download_that_waits_for_a_loss() {
        let windows = [(35_000, 188), (1_600, 188), (1_600, 188), (1_600, 188), (15_500, 188)];
        assert_eq!(many(&[windows, windows].concat()), [true; 10]);
    }

    #[test]
    fn calls_that_leave_next_to_nothing_of_a_link_share_frames() {
        assert_eq!(many(&[(10_000, 375), (10_000, 375)]), [false, false]);
    }

    #[test]
    fn what_passed_in_a_long_silence_does_not_count() {
        let mut strangers = Strangers::default();
        strangers.note(0, 0, Instant::ZERO + WINDOW);
        strangers.note(1 << 20, 0, Instant::ZERO + WINDOW + SILENCE);
        assert!(!strangers.are_many());
    }

    #[test]
    fn what_begins_after_a_silence_is_noticed_soon() {
        let mut strangers = Strangers::default();
        strangers.note(0, 0, Instant::ZERO + WINDOW);
        assert!(strangers.is_due(Instant::ZERO + WINDOW + NOTICE));
        strangers.note(20_000, 1, Instant::ZERO + WINDOW + NOTICE);
        assert!(strangers.are_many());
    }
}
