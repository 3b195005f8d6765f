//! The contract of congestion control: what the sender says to an algorithm, and what that may
//! decide.

use sheaf_stage::{Duration, Instant};
use std::fmt::Debug;

/// Segments that may be under way at the start (RFC 6928).
pub(crate) const INITIAL_WINDOW: u32 = 10;
/// Segments of a window at most: far above what a send buffer has room for.
pub(super) const MOST_WINDOW: u32 = 1 << 20;

/// The congestion window, in segments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub size: u32,
    /// Below it the window doubles each round trip (slow start).
    pub threshold: u32,
    /// Segments delivered since the window last grew by one.
    pub count: u32,
}

impl Window {
    pub fn new() -> Window {
        Window { size: INITIAL_WINDOW, threshold: u32::MAX, count: 0 }
    }

    pub fn is_slow_start(&self) -> bool {
        self.size < self.threshold
    }

    /// Grows by `delivered` up to the threshold; returns what is left (RFC 5681, section 3.1).
    pub(super) fn slow_start(&mut self, delivered: u32) -> u32 {
        let size = self.size.saturating_add(delivered).min(self.threshold).min(MOST_WINDOW);
        let rest = delivered - (size - self.size).min(delivered);
        self.size = size;
        rest
    }

    /// Grows by one for every `each` segments delivered.
    pub(super) fn avoid_congestion(&mut self, each: u32, delivered: u32) {
        if self.count >= each {
            (self.count, self.size) = (0, self.size + 1);
        }
        self.count += delivered;
        self.size = (self.size + self.count / each).min(MOST_WINDOW);
        self.count %= each;
    }
}

/// State of the sender's loss recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    #[default]
    Open,
    /// Repairs losses that acknowledgements showed.
    Recovery,
    /// Repairs losses that the timeout showed.
    Loss,
}

/// State of the connection, for an algorithm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connection {
    pub phase: Phase,
    /// Segments in the network.
    pub in_flight: u32,
    /// Segments delivered so far, and the time of the last.
    pub delivered: u64,
    pub delivered_at: Instant,
    /// Offset up to which everything is acknowledged, and the next one to send.
    pub acknowledged: u64,
    pub next: u64,
    pub smoothed: Option<Duration>,
    /// Time at which the next paced burst may leave; past where one may now.
    pub release: Instant,
    /// Bytes of a full segment.
    pub mss: u32,
}

/// The news of an acknowledgement.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    /// Segments newly delivered, and newly lost.
    pub delivered: u32,
    pub lost: u32,
    /// Segments in the network before it.
    pub in_flight_before: u32,
    /// Delivery rate since the newest delivered segment was sent.
    pub rate: Option<Rate>,
    /// Round trip of the newest segment delivered that was not repeated.
    pub trip: Option<Duration>,
}

/// Segments delivered in a time (draft-cheng-iccrg-delivery-rate-estimation-00).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    pub segments: u64,
    /// Longer of the times in which they were sent and acknowledged.
    pub interval: Duration,
    /// Segments delivered when the newest of them was sent.
    pub before: u64,
    /// Whether the application held the sender back.
    pub limited: bool,
}

/// The pace of segments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Bytes a second.
    pub rate: u64,
    /// Segments that leave together, as one super-packet does on Linux.
    pub burst: u32,
}

/// An algorithm of congestion control.
pub(crate) trait Control: Debug + Send {
    /// A loss: returns the slow start threshold after it.
    fn reduce(&mut self, window: &Window, connection: &Connection) -> u32;

    /// Something was acknowledged, and the window may grow. An algorithm that sets the window
    /// itself is called at every acknowledgement, others not while losses lower the window;
    /// `used` says that the window held the sender back.
    fn acknowledge(
        &mut self,
        window: &mut Window,
        sample: &Sample,
        connection: &Connection,
        used: bool,
        now: Instant,
    );

    /// A round trip was measured.
    fn round_trip(&mut self, _: &mut Window, _: Duration, _: &Connection, _: Instant) {}

    /// The timeout passed.
    fn time_out(&mut self) {}

    /// A reduction was found needless.
    fn undo(&mut self) {}

    /// Whether it sets the window at every acknowledgement, with no reduction by the sender.
    fn sets_window(&self) -> bool {
        false
    }

    /// The pace of segments of `mss` bytes; `None` for as fast as the window permits.
    fn pace(&self, _mss: u32) -> Option<Pace> {
        None
    }
}
