//! The contract of a service: what one loop ([`crate::reactor`]) does with each of them.

use serde_json::Value;
use sheaf_netio::clock;
use sheaf_netio::poller::Poller;
use sheaf_stage::Instant;
use std::io;

/// A process that carries packets until it is stopped.
///
/// The reactor calls [`turn`](Service::turn), then [`wait`](Service::wait), and so on. A turn
/// never waits, and takes a bounded number of packets from each descriptor, so that signals and
/// requests get their turn too.
pub trait Service {
    /// Settings that can change while it runs, read from words.
    type Change: Send + 'static;

    /// Adds the descriptors that are waited for, in the order of their numbers in `poller`. Called
    /// once before the first turn, and again after each [`Next::Refresh`].
    fn interest(&mut self, poller: &mut Poller);

    /// Reads what `poller` found readable and does what is due at `now`.
    fn turn(&mut self, now: Instant, poller: &mut Poller) -> anyhow::Result<Next>;

    /// Waits until a descriptor is readable or `until` has come.
    fn wait(&mut self, poller: &mut Poller, until: Instant) -> io::Result<()> {
        poller.wait(Some(until.saturating_since(clock::now())))
    }

    /// Its report: the JSON that `sheaf show --json` prints.
    fn report(&mut self, now: Instant) -> anyhow::Result<Value>;

    /// Applies changed settings. Nothing that waits in the service is lost.
    fn change(&mut self, change: Self::Change, now: Instant) -> anyhow::Result<()>;

    /// Asks it to stop; returns whether the reactor ends. A service around a command goes on until
    /// the command has ended.
    fn stop(&mut self, _cause: Stop) -> bool {
        true
    }
}

/// Result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The next turn is due then, or when a descriptor is readable.
    Wait(Instant),
    /// Descriptors were opened or closed. The next turn follows without a wait.
    Refresh,
    /// The service has ended by itself.
    End,
}

/// Cause of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// SIGINT: Ctrl-C, which every process of the terminal receives.
    Interrupt,
    /// SIGTERM, or a request.
    Terminate,
}
