//! What a link carries, learned while it carries it.
//!
//! Principle: the receiver reports bytes received and the time of the last of them, so the
//! delivery rate is known exactly (as in BBR, "Congestion-Based Congestion Control", ACM Queue
//! 2016); and the reports of the other end carry the one-way delay, whose growth above its minimum
//! is the queue in the link (as in TCP Vegas and LEDBAT, RFC 6817). While there is a queue, the
//! delivery rate *is* the link's rate; while there is none, it is a lower bound.
//!
//! * *Start-up*: pace at twice the highest delivery rate until a queue shows or the rate no longer
//!   follows.
//! * *Cruise*: pace at the rate times 1 + (target − queue) / τ, which keeps a queue of a few
//!   milliseconds: always enough for the link to be busy, and so for the rate to be measured. A
//!   link that became slower shows as a queue and a lower delivery rate, one that became faster as
//!   no queue at all; after some reports without one, start-up again, at 1.25 times the rate.
//! * A link that drops where others queue is paced just below its rate, and probed ever more
//!   rarely.
//! * Where the carrier tells how full its transmit queue is ([`RateControl::observe`]), nothing is
//!   searched or paced: while that queue never ran empty, what was delivered is the rate. On a
//!   radio the delay says little, because it varies by contention more than by queues.
//! * The minimum of the delay is forgotten after ten seconds; before that the standing queue is
//!   drained so that it is not taken for the path. While a queue drains, more comes through than
//!   is sent; a delay that stays high without that is the path's own, and the minimum starts anew.

use sheaf_stage::{Bitrate, Duration, Instant};
use std::collections::VecDeque;

/// Queue to keep in the link, in seconds.
const TARGET: f64 = 0.004;
/// A queue above this is one, in seconds.
const QUEUE: f64 = 0.0015;
/// A queue above this ends start-up at once, in seconds.
const FULL: f64 = 0.015;
/// Time constant of the control, beside twice the round trip, in seconds.
const TAU: f64 = 0.1;
/// Half of how long a minimum of the delay counts.
const BASE_PERIOD: Duration = Duration::from_secs(5);
/// The last part of that, in which the queue is drained.
const DRAIN: Duration = Duration::from_millis(400);
/// Pace over rate in start-up, and when a link that was known shows no queue.
const START_UP: f64 = 2.0;
const PROBE: f64 = 1.25;
/// Loss above which a link without a queue is taken to drop what is too much for it.
const SHALLOW: f64 = 0.005;
/// Time without a queue that brings start-up again, in seconds.
const PATIENCE: f64 = 0.1;
/// Reports remembered.
const HISTORY: usize = 16;
const PACES: usize = 64;
/// The least rate that is believed, in bytes per second.
const FLOOR: f64 = 2_000.0;

/// What a report says about the rate of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Bytes received since the session began, carrier headers included.
    pub bytes: u64,
    /// Receiver's clock at the last of them, in µs modulo 2³².
    pub at: u32,
    /// One-way delay plus the difference of the clocks, in µs modulo 2³².
    pub one_way: u32,
    /// Whether packets waited for this link ever since the report before.
    pub limited: bool,
    /// Share of the frames sent since the report before that were lost, 0..=1.
    pub loss: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    StartUp,
    Cruise,
}

/// The learned rate of one link.
#[derive(Clone, Debug)]
pub struct RateControl {
    phase: Phase,
    /// Bytes per second.
    rate: f64,
    pace: f64,
    /// Pace over rate in start-up.
    gain: f64,
    /// Queue in the link, in seconds.
    queue: f64,
    /// Loss, averaged over some reports.
    loss: f64,
    round_trip: f64,
    base: Option<Base>,
    history: VecDeque<(u64, u32)>,
    /// The pace after each report.
    paces: VecDeque<(Instant, f64)>,
    /// Since when there has been no queue although packets waited.
    empty: Option<Instant>,
    /// In start-up: when the rate last grew by a tenth, and to what.
    grown: Option<(Instant, f64)>,
    /// Reports in a row with a queue; which say that what
    /// looks like a queue is none.
    queued: u32,
    low: u32,
    /// Time without a queue, beside round trips, that brings start-up again; doubles when that
    /// found nothing.
    patience: f64,
    /// The rate when start-up last began.
    before: f64,
}

/// The minimum of the one-way delay in this period and the one before.
#[derive(Clone, Copy, Debug)]
struct Base {
    current: u32,
    previous: u32,
    started: Instant,
}

impl RateControl {
    /// A link taken to carry `first` until more is known.
    pub fn new(first: Bitrate) -> Self {
        let rate = (first.as_bps() as f64 / 8.0).max(FLOOR);
        RateControl {
            phase: Phase::StartUp,
            rate,
            pace: rate,
            gain: START_UP,
            queue: 0.0,
            loss: 0.0,
            round_trip: 0.0,
            base: None,
            history: VecDeque::with_capacity(HISTORY),
            paces: VecDeque::with_capacity(PACES),
            queued: 0,
            empty: None,
            grown: None,
            low: 0,
            patience: PATIENCE,
            before: rate,
        }
    }

    /// The learned rate, carrier headers included.
    pub fn rate(&self) -> Bitrate {
        Bitrate::from_bps((self.rate * 8.0) as u64)
    }

    /// How fast to send now.
    pub fn pace(&self) -> Bitrate {
        Bitrate::from_bps((self.pace * 8.0) as u64)
    }

    /// The time that `bytes` bytes take at the learned rate.
    pub fn time_for(&self, bytes: u64) -> Duration {
        nanos(bytes as f64 / self.rate)
    }

    /// The time until the pace lets more follow `bytes` bytes.
    pub fn pause_after(&self, bytes: u64) -> Duration {
        nanos(bytes as f64 / self.pace)
    }

    /// The queue in the link, in time.
    pub fn queue(&self) -> Duration {
        Duration::from_secs_f64(self.queue.clamp(0.0, 60.0))
    }

    /// The lowest one-way delay of the last seconds plus the difference of the clocks, in µs
    /// modulo 2³²; to be compared among links.
    pub fn base(&self) -> Option<u32> {
        self.base.map(|base| base.lowest())
    }

    /// The round trip without queues.
    pub fn set_round_trip(&mut self, round_trip: Duration) {
        self.round_trip = round_trip.as_secs_f64();
    }

    /// The other end counts anew, or the link was away: what the counters said before means
    /// nothing, the rate is a guess to be checked.
    pub fn restart(&mut self) {
        self.history.clear();
        self.base = None;
        self.queue = 0.0;
        self.begin(START_UP);
    }

    /// A report came.
    pub fn report(&mut self, sample: Sample, now: Instant) {
        let draining = self.note_delay(sample.one_way, now);
        self.loss += (sample.loss.clamp(0.0, 1.0) - self.loss) / 16.0;
        let advanced = self.history.back().is_none_or(|(bytes, _)| sample.bytes > *bytes);
        if advanced {
            if self.history.len() == HISTORY {
                self.history.pop_front();
            }
            self.history.push_back((sample.bytes, sample.at));
        }
        if !sample.limited && self.queue <= QUEUE {
            // Bytes over an idle time say nothing.
            while self.history.len() > 2 {
                self.history.pop_front();
            }
        }
        let busy = self.queue > QUEUE && (advanced || sample.limited);
        self.queued = if busy { self.queued + 1 } else { 0 };
        match self.phase {
            Phase::StartUp => self.start_up(sample.limited, now),
            Phase::Cruise => self.cruise(&sample, draining, now),
        }
        self.rate = self.rate.max(FLOOR);
        self.pace = self.pace.max(FLOOR);
        if self.paces.len() == PACES {
            self.paces.pop_front();
        }
        self.paces.push_back((now, self.pace));
    }

    /// A report came about a link whose carrier tells its queue; `sample.limited`: that queue has
    /// not been empty since the report before.
    pub fn observe(&mut self, sample: Sample, now: Instant) {
        self.note_delay(sample.one_way, now);
        self.queue = 0.0; // it is in the carrier, which tells
        self.queued = if sample.limited { self.queued.saturating_add(1) } else { 0 };
        if !sample.limited {
            self.history.clear(); // bytes over an idle time say nothing
        }
        if self.history.back().is_none_or(|(bytes, _)| sample.bytes > *bytes) {
            if self.history.len() == HISTORY {
                self.history.pop_front();
            }
            self.history.push_back((sample.bytes, sample.at));
        }
        let intervals = self.history.len().saturating_sub(1);
        if let Some(rate) = self.delivery_rate(intervals).filter(|_| self.queued >= 2) {
            // Contention varies; over few reports it has not averaged out.
            let weight = intervals.min(HISTORY / 2) as f64 / HISTORY as f64;
            self.rate += (rate - self.rate) * if self.is_known() { weight } else { 1.0 };
            self.phase = Phase::Cruise;
        }
        self.rate = self.rate.max(FLOOR);
        self.pace = self.rate;
    }

    /// Whether the rate is known: before that, losses are the search's.
    pub fn is_known(&self) -> bool {
        self.phase == Phase::Cruise || self.gain < START_UP
    }

    /// The link loses so much that it is left out: what came through is all that is known of it.
    pub fn failed(&mut self) {
        if let Some(rate) = self.delivery_rate(5) {
            self.rate = rate.clamp(FLOOR, self.rate.max(FLOOR));
            self.phase = Phase::Cruise;
            self.steer(TARGET);
        }
    }

    fn begin(&mut self, gain: f64) {
        self.grown = None;
        self.phase = Phase::StartUp;
        self.gain = gain;
        self.before = self.rate;
        self.queued = 0;
        self.pace = self.gain * self.rate;
    }

    fn start_up(&mut self, limited: bool, now: Instant) {
        if let Some(rate) = self.delivery_rate(1) {
            self.rate = self.rate.max(rate);
        }
        let (at, rate) = *self.grown.get_or_insert((now, self.rate));
        let unasked = !limited && self.loss < 4.0 * SHALLOW;
        if unasked || self.rate > 1.1 * rate {
            self.grown = Some((now, self.rate));
        }
        self.pace = self.gain * self.rate;
        let full = self.queue > FULL || self.queued >= 3;
        if full || (now - at).as_secs_f64() > 0.12 + 3.0 * self.round_trip {
            self.phase = Phase::Cruise;
            self.patience = match self.rate > 1.1 * self.before {
                true => PATIENCE,
                false => (2.0 * self.patience).min(50.0 * PATIENCE),
            };
            self.empty = None;
            self.steer(TARGET);
        }
    }

    fn cruise(&mut self, sample: &Sample, draining: bool, now: Instant) {
        let (slowest, fastest) = self.paces_behind(now);
        let newest = self.delivery_rate(1).filter(|_| self.queued >= 2).unwrap_or(f64::MAX);
        if self.queue > FULL && newest < 0.8 * slowest.min(self.rate) {
            self.rate = newest; // roughly, but at once: every report costs as much queue
        } else if self.queued >= 3 {
            if let Some(rate) = self.delivery_rate((self.queued as usize - 1).min(5)) {
                // Less comes through than was sent: the queue grows. More: it drains. As much,
                // while a queue should drain: perhaps it is none.
                // Nor is a short queue that a burst left the link's limit.
                let told = rate < 0.98 * slowest || rate > 1.02 * fastest;
                let steady = self.pace > 0.95 * self.rate;
                let bound = sample.limited || self.queue > FULL;
                self.rate = if bound && (told || steady) { rate } else { self.rate.max(rate) };
            }
        } else if let Some(rate) = self.delivery_rate(3) {
            self.rate = self.rate.max(rate);
        }
        let idle = self.queue < QUEUE / 2.0;
        let empty = sample.limited && idle && !draining;
        self.empty = empty.then(|| self.empty.unwrap_or(now));
        // What the pace does shows a round trip later.
        let patience = self.patience + 3.0 * self.round_trip;
        if self.empty.is_some_and(|since| (now - since).as_secs_f64() >= patience) {
            self.empty = None;
            return self.begin(PROBE);
        }
        // More than was sent comes through while a queue drains. If not, it is no queue.
        let slow = sample.limited && fastest < 0.95 * self.rate;
        let sent_less = self.delivery_rate(4).is_some_and(|rate| rate < 1.03 * fastest);
        self.low = if slow && sent_less { self.low + 1 } else { 0 };
        if self.low >= 5 {
            self.low = 0;
            self.base = Some(Base::new(sample.one_way, now));
            self.queue = 0.0;
        }
        self.steer(if draining { -TARGET / 2.0 } else { TARGET });
    }

    /// The slowest and the fastest pace at which what was reported can have been sent.
    fn paces_behind(&self, now: Instant) -> (f64, f64) {
        let since = now - nanos(0.1 + 1.5 * self.round_trip + self.queue.min(1.0));
        let paces = self.paces.iter().rev().take_while(|(at, _)| *at >= since);
        let all = paces.map(|(_, pace)| *pace).chain([self.pace]);
        all.fold((f64::MAX, 0.0), |(low, high), pace| (pace.min(low), pace.max(high)))
    }

    fn steer(&mut self, target: f64) {
        let gain = 1.0 + (target - self.queue) / (TAU + 2.0 * self.round_trip);
        // A link that drops instead of queueing would drop for ever what is sent above its rate.
        let drops = self.queue < QUEUE && self.loss > SHALLOW;
        self.pace = self.rate * gain.clamp(0.25, if drops { 0.98 } else { 1.1 });
    }

    /// Bytes per second over the last `intervals` reports, or over more where these hold little.
    fn delivery_rate(&self, intervals: usize) -> Option<f64> {
        let (bytes, at) = self.history.back()?;
        let last = self.history.len() - 1;
        let first = last.checked_sub(intervals)?;
        let spans = self.history.range(..=first).rev();
        spans
            .map(|(from, since)| (bytes - from, at.wrapping_sub(*since)))
            .find(|(bytes, micros)| *micros >= 5_000 && *bytes >= 4_500)
            .map(|(bytes, micros)| bytes as f64 * 1e6 / f64::from(micros))
    }

    /// Takes in a one-way delay; answers whether the queue should be drained now.
    fn note_delay(&mut self, one_way: u32, now: Instant) -> bool {
        let base = self.base.get_or_insert(Base::new(one_way, now));
        if now - base.started >= BASE_PERIOD {
            *base = Base { current: one_way, previous: base.current, started: now };
        }
        if later(base.current, one_way) > 0 {
            base.current = one_way;
        }
        self.queue = f64::from(later(one_way, base.lowest()).max(0)) * 1e-6;
        now - base.started >= BASE_PERIOD - DRAIN
    }
}

impl Base {
    fn new(one_way: u32, started: Instant) -> Base {
        Base { current: one_way, previous: one_way, started }
    }

    fn lowest(&self) -> u32 {
        if later(self.current, self.previous) < 0 { self.current } else { self.previous }
    }
}

fn nanos(seconds: f64) -> Duration {
    Duration::from_nanos((seconds * 1e9).ceil() as u64)
}

/// `a − b` of two times modulo 2³² that are less than 2³¹ apart.
pub fn later(a: u32, b: u32) -> i32 {
    a.wrapping_sub(b).cast_signed()
}
