//! Frames under way that are counted together, and what follows from how long they take.
//!
//! A lane belongs to a gate of the program: one for a FIFO, one for each queue of a device with fair
//! queues. Its ticks are tracked until they are free ([`crate::ticker`]). From the time that takes
//! follow three things:
//! * how many may be under way: as many as fill [`WORK`], so that a fast device never runs dry while
//!   this process is on its way to the next tick, and a slow one has a single frame;
//! * which packets go by a tick: those that follow another within that time, because it may still be
//!   under way;
//! * how often a probe goes: where ticks are free at once the device is idle, and probes get rare.

use crate::merge::Rule;
use crate::ticker::{Tick, Ticker};
use sheaf_aggregate::{Backoff, Config};
use sheaf_stage::{Duration, Instant};
use std::collections::VecDeque;
use std::io;

/// Work that a lane gives its device ahead of time: some ten times what this process takes from a
/// frame's end to the next tick (50 to 100 µs, decision 9).
const WORK: Duration = Duration::from_millis(1);
/// The most frames under way.
const MOST: u32 = 64;
/// A tick that was free sooner met an idle device: it is about what this process takes to notice.
const IDLE: Duration = Duration::from_micros(200);
/// Packets that follow each other so closely gather even on an idle device: they come faster than a
/// processor passes them on one by one (250,000 a second), and a full frame takes 0.1 ms.
const BURST: Duration = Duration::from_micros(4);
/// The longest time for which a packet that follows another is taken to be behind it.
const BEHIND: Duration = Duration::from_millis(20);
/// Between probes on a device that was busy lately.
const PROBE_FIRST: Duration = Duration::from_millis(1);
/// Between probes on a device that has been idle for long.
const PROBE_LAST: Duration = Duration::from_millis(64);

/// A tick under way.
#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Instant,
    /// What the program had counted before: strangers' frames, and frames without a tick.
    strangers: u32,
    untracked: u32,
    /// What it carries: packets, and bytes of IP.
    packets: u32,
    bytes: u32,
}

/// Frames under way that are counted together.
#[derive(Debug)]
pub(crate) struct Lane {
    ticker: Ticker,
    sent: VecDeque<Sent>,
    /// Frames without a tick that are surely gone: all up to this number.
    gone: Option<u32>,
    /// Strangers' frames before the last tick that is done.
    strangers: Option<u32>,
    /// When the last tick was done.
    done: Instant,
    /// What a frame takes, averaged over the last few.
    service: Duration,
    /// How long the last tick was under way.
    sojourn: Duration,
    backoff: Backoff,
    probe: Duration,
    probe_at: Instant,
}

impl Lane {
    pub fn new(ticker: Ticker) -> Lane {
        Lane {
            ticker,
            sent: VecDeque::with_capacity(MOST as usize),
            gone: None,
            strangers: None,
            done: Instant::ZERO,
            service: Duration::ZERO,
            sojourn: Duration::ZERO,
            backoff: Backoff::default(),
            probe: PROBE_FIRST,
            probe_at: Instant::ZERO,
        }
    }

    /// Number up to which strangers' frames have left, where a tick was done.
    pub fn strangers(&self) -> Option<u32> {
        self.strangers
    }

    /// Until when only full frames leave.
    pub fn rests_until(&self) -> Instant {
        self.backoff.until()
    }

    /// Frames under way.
    pub fn under_way(&self) -> u32 {
        self.sent.len() as u32
    }

    /// Frames that may be under way, at least `least`.
    pub fn limit(&self, least: u32) -> u32 {
        let frames = WORK.as_nanos() / self.service.as_nanos().max(1);
        u32::try_from(frames).unwrap_or(MOST).clamp(1, MOST).max(least)
    }

    /// Sends `tick` at `now`; the program has counted `strangers` and `untracked` frames before.
    /// Returns whether a frame left. `on` names the CPU that must send it.
    pub fn send(
        &mut self,
        mut tick: Tick,
        on: Option<u32>,
        strangers: u32,
        untracked: u32,
        now: Instant,
    ) -> io::Result<bool> {
        tick.untracked = self.gone.filter(|gone| self.sent.is_empty() && *gone == untracked);
        let left = match on {
            None => self.ticker.tick(tick)?,
            Some(cpu) => self.ticker.tick_on(cpu, tick)?,
        };
        if left {
            let sent = Sent { at: now, strangers, untracked, packets: 1, bytes: 0 };
            self.sent.push_back(sent);
        }
        Ok(left)
    }

    /// The tick that was sent last carries so much.
    pub fn carries(&mut self, packets: u32, bytes: u32) {
        if let Some(last) = self.sent.back_mut() {
            (last.packets, last.bytes) = (packets, bytes);
        }
    }

    /// Learns at `now` which ticks are done.
    pub fn settle(&mut self, config: &Config, now: Instant) -> io::Result<()> {
        let left = self.ticker.under_way(self.under_way())?;
        let done = self.under_way().saturating_sub(left);
        for _ in 0..done {
            let Some(sent) = self.sent.pop_front() else { break };
            let began = sent.at.max(self.done);
            self.gone = Some(sent.untracked);
            self.strangers = Some(sent.strangers);
            self.sojourn = now.saturating_since(sent.at);
            // Several that are done in one look share the time.
            let took = now.saturating_since(began) / done;
            self.service = (self.service * 3 + took) / 4;
            // A fast device has many frames under way, which hide what one of them took.
            if self.limit(1) == 1 {
                self.backoff.began(began);
                self.backoff.finished(config, sent.packets, sent.bytes, now);
            }
        }
        if done > 0 {
            self.done = now;
            self.probe = match self.sojourn < IDLE {
                true => (self.probe * 2).min(PROBE_LAST),
                false => PROBE_FIRST,
            };
            self.probe_at = now + self.probe;
        }
        Ok(())
    }

    /// What the program does from `now` on.
    pub fn rule(&self, least: u32, now: Instant) -> Rule {
        let limit = self.limit(least);
        Rule {
            closed: !self.sent.is_empty() || self.rests_until() > now,
            // A slow device has its frames from ticks alone.
            credit: if limit > 1 { limit - self.under_way().min(limit) } else { 0 },
            within: self.sojourn.clamp(BURST, BEHIND),
            probe_at: self.probe_at,
        }
    }
}
