//! The reordering timer of each flow.
//!
//! Principle (NCTU): a packet that came too late raises the flow's timer by 1 ms; an adjusting
//! timer of 1 s, restarted by every late packet, halves it when it fires.
//!
//! Added: halving stops at what the flow needed lately. Where links differ by 45 ms in delay, a
//! timer that fell to 2 ms would let 43 packets pass out of order on its way up, again and again;
//! the waits that ended well say how long it pays to wait. The adjusting timer is evaluated when
//! the timer is asked for, so idle flows cost nothing.

use crate::config::ReorderConfig;
use crate::flow::{BUCKETS, Flow};
use sheaf_stage::{Duration, Instant};

#[derive(Clone, Copy, Debug)]
struct Entry {
    timer: Duration,
    /// Time at which the adjusting timer was last started; not before the flow first waits.
    started: Option<Instant>,
    /// The longest wait that ended well, in this period of the adjusting timer and before.
    needed: [Duration; 2],
}

/// Timers of all flows.
#[derive(Clone, Debug)]
pub struct Timers {
    entries: Vec<Entry>,
    /// The flows that ever waited: few of the many that entries are kept for.
    waited: Vec<Flow>,
    min: Duration,
    max: Duration,
    step: Duration,
    adjust: Duration,
}

impl Timers {
    /// Timers as `config` starts them.
    pub fn new(config: &ReorderConfig) -> Self {
        let first = config.first_timer;
        let entry = Entry { timer: first, started: None, needed: [Duration::ZERO; 2] };
        Timers {
            entries: vec![entry; BUCKETS],
            waited: Vec::new(),
            min: config.min_timer,
            max: config.max_timer,
            step: config.late_step,
            adjust: config.adjust,
        }
    }

    /// Time that a packet of `flow` may wait.
    pub fn get(&mut self, flow: Flow, now: Instant) -> Duration {
        let (min, max, adjust) = (self.min, self.max, self.adjust);
        let entry = &mut self.entries[flow.index()];
        if entry.started.is_none() {
            self.waited.push(flow);
        }
        let started = entry.started.get_or_insert(now);
        while now - *started >= adjust {
            *started += adjust;
            let needed = entry.needed[0].max(entry.needed[1]);
            let floor = (needed + needed / 4).clamp(min, max);
            entry.timer = (entry.timer / 2).max(floor);
            entry.needed = [Duration::ZERO, entry.needed[0]];
            if entry.timer == min && needed.is_zero() {
                // Nothing more would change in the periods that passed idle.
                *started = now;
            }
        }
        entry.timer
    }

    /// The timer of `flow` as it was last used.
    pub fn peek(&self, flow: Flow) -> Duration {
        self.entries[flow.index()].timer
    }

    /// The longest timer of the flows that ever waited, as they were last used.
    pub fn longest(&self) -> Duration {
        let timers = self.waited.iter().map(|flow| self.entries[flow.index()].timer);
        timers.max().unwrap_or_default()
    }

    /// A packet of `flow` came too late.
    pub fn late(&mut self, flow: Flow, now: Instant) {
        let timer = self.get(flow, now);
        let entry = &mut self.entries[flow.index()];
        entry.timer = (timer + self.step).min(self.max);
        entry.started = Some(now);
    }

    /// Notes that a packet of `flow` waited this long, and that the packet it waited for came.
    pub fn rewarded(&mut self, flow: Flow, waited: Duration) {
        let needed = &mut self.entries[flow.index()].needed[0];
        *needed = waited.max(*needed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn timers() -> (Timers, Flow) {
        let config = ReorderConfig { min_timer: 2 * MS, ..ReorderConfig::default() };
        (Timers::new(&config), Flow::of_hash(1))
    }

    #[test]
    fn a_late_packet_adds_a_millisecond_and_a_quiet_second_halves() {
        let (mut timers, flow) = timers();
        timers.late(flow, Instant::from_millis(900));
        assert_eq!(timers.get(flow, Instant::from_millis(1_899)), 81 * MS);
        assert_eq!(timers.get(flow, Instant::from_millis(1_900)), 81 * MS / 2);
        assert_eq!(timers.get(flow, Instant::from_millis(100_000)), 2 * MS);
        let other = Flow::of_hash(2);
        assert_eq!(timers.peek(other), 80 * MS, "each flow has its own");
    }

    #[test]
    fn every_late_packet_restarts_the_adjusting_timer() {
        let (mut timers, flow) = timers();
        for at in 0..10 {
            timers.late(flow, Instant::from_millis(900 * at));
        }
        assert_eq!(timers.get(flow, Instant::from_millis(9_000)), 90 * MS);
    }

    #[test]
    fn the_timer_does_not_halve_below_what_the_flow_needed_lately() {
        let (mut timers, flow) = timers();
        for second in 0..5 {
            timers.get(flow, Instant::from_millis(1_000 * second));
            timers.rewarded(flow, 20 * MS);
        }
        assert_eq!(timers.get(flow, Instant::from_millis(5_000)), 25 * MS);
        assert!(timers.get(flow, Instant::from_millis(60_000)) == 2 * MS, "and forgets it");
    }

    #[test]
    fn the_timer_is_bounded() {
        let (mut timers, flow) = timers();
        for _ in 0..1_000 {
            timers.late(flow, Instant::ZERO);
        }
        assert_eq!(timers.get(flow, Instant::ZERO), 500 * MS);
    }
}
