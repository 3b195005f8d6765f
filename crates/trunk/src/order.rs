//! The receiver that fits the sender's scheduler.

use crate::config::{ConfigError, ReorderConfig, Scheduler};
use crate::resequencer::{Arrival, Delivery, ReorderStats, Resequencer};
use crate::schedule::{srr, trr};
use sheaf_stage::{Counters, DropReason, Duration, Instant, Stage};
use sheaf_wire::trunk::Marker;

/// The receiver, by the way in which it keeps order.
#[derive(Debug)]
pub(crate) enum Order {
    /// By sequence numbers.
    Numbers(Box<Resequencer>),
    /// By simulating the sender's rounds.
    Srr(Box<srr::Receiver>),
    /// By triggers.
    Trr(Box<trr::Receiver>),
}

impl Order {
    pub fn new(scheduler: Scheduler, config: &ReorderConfig) -> Result<Self, ConfigError> {
        let limit = config.window as usize;
        Ok(match scheduler {
            Scheduler::Srr => Order::Srr(Box::new(srr::Receiver::new(limit))),
            Scheduler::Trr => Order::Trr(Box::new(trr::Receiver::new(limit))),
            _ => Order::Numbers(Box::new(Resequencer::new(config.clone(), 0)?)),
        })
    }

    pub fn restart(&mut self, first: u32, scheduler: Scheduler, limit: u32, now: Instant) {
        match (self, scheduler) {
            (Order::Numbers(order), _) => order.restart(first, now),
            (Order::Srr(order), _) => **order = srr::Receiver::new(limit as usize),
            (Order::Trr(order), _) => **order = trr::Receiver::new(limit as usize),
        }
    }

    pub fn set_link(&mut self, link: u8, up: bool, now: Instant) {
        match self {
            Order::Numbers(order) if up => order.link_up(link),
            Order::Numbers(order) => order.link_down(link, now),
            Order::Srr(order) => order.set_link(link, up),
            Order::Trr(order) => order.set_link(link, up),
        }
    }

    pub fn passed(&mut self, link: u8, next: u32, now: Instant) {
        if let Order::Numbers(order) = self {
            order.passed(link, next, now);
        }
    }

    pub fn set_repair_wait(&mut self, wait: Duration, lateness: Duration) {
        if let Order::Numbers(order) = self {
            order.set_repair_wait(wait, lateness);
        }
    }

    /// The number expected next.
    pub fn expected(&self) -> u32 {
        self.numbers().map_or(0, Resequencer::expected)
    }

    /// Whether a number is near enough to the expected one to be looked at. Under `srr` and `trr`
    /// numbers decide nothing.
    pub fn reaches(&self, seq: u32) -> bool {
        self.numbers().is_none_or(|order| order.reaches(seq))
    }

    /// Counts a frame that is dropped unseen.
    pub fn refuse(&mut self, reason: DropReason) -> DropReason {
        match self {
            Order::Numbers(order) => order.refuse(reason),
            Order::Srr(_) | Order::Trr(_) => reason,
        }
    }

    pub fn marker(&mut self, link: u8, marker: &Marker) {
        match self {
            Order::Numbers(_) => {}
            Order::Srr(order) => order.marker(link, marker.round, marker.deficit),
            Order::Trr(order) => order.trigger(link, marker.round),
        }
    }

    pub fn push(&mut self, arrival: Arrival, now: Instant) -> Result<(), DropReason> {
        match self {
            Order::Numbers(order) => order.enqueue(arrival, now),
            Order::Srr(order) => order.push(arrival),
            Order::Trr(order) => order.push(arrival),
        }
    }

    pub fn pop(&mut self, now: Instant) -> Option<Delivery> {
        match self {
            Order::Numbers(order) => order.dequeue(now),
            Order::Srr(order) => order.pop(now),
            Order::Trr(order) => order.pop(now),
        }
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        match self {
            Order::Numbers(order) => order.next_deadline(),
            Order::Srr(order) => order.next_deadline(),
            Order::Trr(order) => order.next_deadline(),
        }
    }

    pub fn counters(&self) -> Counters {
        match self {
            Order::Numbers(order) => order.counters(),
            Order::Srr(order) => order.counters(),
            Order::Trr(order) => order.counters(),
        }
    }

    pub fn numbers(&self) -> Option<&Resequencer> {
        match self {
            Order::Numbers(order) => Some(order),
            Order::Srr(_) | Order::Trr(_) => None,
        }
    }

    /// Frames that hosts see as lost or late.
    pub fn spoilt(&self) -> u64 {
        self.numbers().map_or(0, |order| {
            let ReorderStats { late, passed, timed_out, squeezed, .. } = order.stats();
            late + passed + timed_out + squeezed
        })
    }

    pub fn longest_timer(&self) -> Duration {
        self.numbers().map_or(Duration::ZERO, |order| order.longest_timer())
    }
}
