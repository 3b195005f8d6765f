//! The access point: window control, ours or the paper's, on the packets that pass.

use super::address::{direction, transfer};
use crate::home::control;
use crate::home::plan::{PolicyName, Scenario, Treatment};
use sheaf_baseline::slus::{self, AccessPoint};
use sheaf_stage::{Bitrate, Duration, Instant};
use sheaf_window::{Controller, Direction, Outcome, Passing, Rewriter};

/// Time between two steps of the controller, as `sheaf window` has it.
const STEP: Duration = Duration::from_millis(100);
/// Place of the flags of TCP in an IPv4 packet without options, and that of SYN.
const FLAGS: usize = 20 + 13;
const SYN: u8 = 2;
/// Bytes of data in a segment where the scenario gives none.
const SEGMENT: u32 = 1448;

/// Treatment of packets at the access point.
pub(super) enum Access {
    /// Nothing.
    Plain,
    /// `sheaf window`: the model of its program, and its controller.
    Window(Box<Window>),
    /// Formula 1 as published.
    Slus(Box<AccessPoint>),
}

/// Window control by ours.
pub(super) struct Window {
    rewriter: Rewriter,
    controller: Controller,
    next: Instant,
    /// The handshakes of so many transfers pass unseen.
    unseen: u32,
}

impl Access {
    /// The access point of `scenario` under `treatment`, for bulk data that goes in `bulk`.
    pub fn new(
        scenario: &Scenario,
        treatment: &Treatment,
        bulk: Direction,
    ) -> anyhow::Result<Access> {
        if treatment.policy == Some(PolicyName::Slus) {
            let mean = scenario.rtts.iter().sum::<f64>() / scenario.rtts.len() as f64;
            let config = slus::Config {
                capacity: Bitrate::from_kbps(scenario.kbps()),
                rtt: Duration::from_secs_f64(mean / 1e3),
                segment: scenario.segment.unwrap_or(SEGMENT),
            };
            return Ok(Access::Slus(Box::new(AccessPoint::new(config))));
        }
        let Some(words) = &treatment.window else { return Ok(Access::Plain) };
        let config = control::config(scenario, treatment, words)?;
        Ok(Access::Window(Box::new(Window {
            rewriter: Rewriter::new(),
            controller: Controller::new(config, bulk)?,
            next: Instant::ZERO + STEP,
            unseen: scenario.unseen.unwrap_or(0),
        })))
    }

    /// A packet passes. Returns whether it goes on.
    pub fn pass(&mut self, packet: &mut [u8], now: Instant) -> bool {
        match (self, direction(packet)) {
            (Access::Plain, _) => {}
            (Access::Window(window), direction) => return window.pass(packet, direction, now),
            (Access::Slus(access), Direction::In) => {
                access.pass(packet, slus::Direction::Down, now);
            }
            (Access::Slus(access), Direction::Out) => {
                access.pass(packet, slus::Direction::Up, now);
            }
        }
        true
    }

    /// Sets windows when it is time.
    pub fn wake(&mut self, now: Instant) {
        if let Access::Window(window) = self
            && window.next <= now
        {
            window.step(now);
            window.next = now + STEP;
        }
    }

    /// Next time to set windows.
    pub fn next_deadline(&self) -> Option<Instant> {
        match self {
            Access::Window(window) => Some(window.next),
            Access::Plain | Access::Slus(_) => None,
        }
    }

    /// The capacity that is assumed, bit/s; NaN where there is no window control of ours.
    pub fn capacity(&self) -> f64 {
        match self {
            Access::Window(window) => window.controller.capacity().as_bps() as f64,
            Access::Plain | Access::Slus(_) => f64::NAN,
        }
    }
}

impl Window {
    /// A packet passes. Returns whether it goes on.
    fn pass(&mut self, packet: &mut [u8], direction: Direction, now: Instant) -> bool {
        let is_unseen = transfer(packet).is_some_and(|number| number < self.unseen);
        // Without its handshake the scale of a connection's windows is not known.
        if is_unseen && packet[FLAGS] & SYN != 0 {
            return true;
        }
        let outcome = self.rewriter.rewrite(packet, Passing::plain(direction), now);
        outcome != Outcome::Dropped
    }

    /// As `sheaf_bpf::Window::step` does it with the program itself.
    fn step(&mut self, now: Instant) {
        let Window { rewriter, controller, .. } = self;
        let direction = controller.direction();
        for (key, connection) in rewriter.flows() {
            controller.observe(*key, connection);
        }
        for (key, both) in rewriter.rest() {
            controller.observe_rest(*key, both);
        }
        controller.observe_totals(rewriter.totals(direction));
        for decision in controller.step(now) {
            rewriter.set(decision.flow, decision.value);
        }
        rewriter.set_initial(direction, controller.initial(), controller.spare());
        rewriter.set_growth(direction, controller.growth());
        rewriter.set_push(direction, controller.push());
        rewriter.set_rest(direction, controller.rest());
        rewriter.beat(now);
    }
}
