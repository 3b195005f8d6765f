//! The rate of a link, learned while the link carries traffic.
//!
//! Principle: the receiver reports bytes received and the time of the last of them, so the
//! delivery rate is known exactly (as in BBR, "Congestion-Based Congestion Control", ACM Queue
//! 2016); and the reports of the other end carry the one-way delay, whose growth above its minimum
//! is the queue in the link (as in TCP Vegas and LEDBAT, RFC 6817). While there is a queue, the
//! delivery rate *is* the link's rate; without one, it is a lower bound.
//!
//! * *A packet train*, a few full frames in a row, gives a first guess when a link comes up: they
//!   arrive as far apart as the link's bottleneck makes them (Dovrolis, Ramanathan, Moore, "Packet
//!   Dispersion Techniques and a Capacity-Estimation Methodology", IEEE/ACM ToN 2004). Where they
//!   overtake each other their delays are the path's variation, and no queue ends start-up.
//! * *Start-up*: pace at twice the highest delivery rate until a queue shows or the rate no longer
//!   follows.
//! * *Cruise*: pace at the rate times 1 + (target − queue) / τ, which keeps a queue of a few
//!   milliseconds: always enough for the link to be busy, and so for the rate to be measured. A
//!   link that became slower shows as a queue and a lower delivery rate, one that became faster as
//!   no queue at all; after some reports without a queue, start-up begins again, at 1.25 times the
//!   rate.
//! * A link that drops where others queue is paced just below its rate, and probed ever more
//!   rarely. Losses that go on below the rate are by chance, and no reason to be slow.
//! * Where the delay varies, a queue counts as one beyond what the variation explains, and a
//!   queue with little traffic is not the link's. The other end then tells of a frame that took
//!   about the least time of those between two reports: the least of many delays varies far less
//!   than those of single reports.
//! * Where the carrier reports how full its transmit queue is ([`RateControl::observe`]), nothing
//!   is searched or paced: while that queue never ran empty, the delivery rate is the link's rate.
//!   On a radio the delay says little, because it varies by contention more than by queues.
//! * The minimum of the delay is forgotten after ten seconds; before that the standing queue is
//!   drained so that it is not taken for the path. While a queue drains, more is delivered than is
//!   sent; a delay that stays high without that is the path's own, and the minimum starts anew.
//!
//! Reports come every 20 ms under load (`EndpointConfig::report`), which is the grain of all
//! counts of reports below.

mod delays;

use delays::{Delays, MOST_QUEUE, SPREAD, VARIATION_STEP};
use sheaf_stage::{Bitrate, Duration, Instant};
use std::collections::VecDeque;

pub use delays::later;

/// Queue to keep in the link, in seconds: a few full frames at 10 Mbit/s, so that the link is never
/// idle between two of them, and no delay that a call notices.
const TARGET: f64 = 0.004;
/// Queueing delay above which the link counts as queued, in seconds: one full frame at 8 Mbit/s.
/// Less is within what late timers add.
const QUEUE: f64 = 0.0015;
/// Queueing delay that is not noise even in a single report, in seconds. It ends start-up, and
/// makes one report enough to lower the rate.
const FULL: f64 = 0.015;
/// Time behind the least delay by which a frame is expected, over the mean change of the delay. Two
/// thirds of an even spread arrive until then, the mean at 1.5. A packet that needs order waits for
/// the late ones.
const EXPECTED: f64 = 2.0;
/// Time constant of the pace's control, in seconds, to which twice the round trip is added: five
/// reports, so that the noise of one moves the pace little.
const TAU: f64 = 0.1;
/// Bounds of the pace over the rate in cruise. A quarter drains a full queue and still sends
/// enough to be measured; a tenth above the rate fills the target's queue in 40 ms.
const SLOWEST_PACE: f64 = 0.25;
const FASTEST_PACE: f64 = 1.1;
/// Upper bound on a link that drops instead of queueing: just below its rate, because what is sent
/// above it would be lost for as long as it lasts.
const FASTEST_PACE_DROPPING: f64 = 0.98;

/// Half of how long a minimum of the delay counts: ten seconds in all, as in BBR.
const BASE_PERIOD: Duration = Duration::from_secs(5);
/// The last part of that, in which the queue is drained: 20 reports, some of which see the path
/// without a queue.
const DRAIN: Duration = Duration::from_millis(400);
/// Target of the queue while it is drained, in seconds: below zero, so that the pace stays below
/// the rate when the queue is gone.
const DRAIN_TARGET: f64 = -TARGET / 2.0;

/// Pace over rate in start-up: doubles the rate with each round trip, as TCP's slow start.
const START_UP: f64 = 2.0;
/// Pace over rate when a link that was known shows no queue: BBR's gain for probing.
const PROBE: f64 = 1.25;
/// Growth of the rate that counts as growth, in start-up and of what start-up found: more than the
/// error of one delivery rate.
const GROWTH: f64 = 1.1;
/// Time without growth that ends start-up, in seconds, to which three round trips are added: six
/// reports. What is sent faster shows a round trip and a report later.
const NO_GROWTH: f64 = 0.12;
/// Round trips that a change of the pace has to show.
const ROUND_TRIPS_TO_SHOW: f64 = 3.0;
/// Reports in a row with a queue that are believed: one or two are a burst.
const QUEUED_REPORTS: u32 = 3;
/// The same in start-up where they are not in a row, while the rate does not grow.
const SHOWN_REPORTS: u32 = 3;
/// The same where the newest delivery rate alone is looked at, and where the carrier itself reports
/// its queue.
const QUEUED_REPORTS_LEAST: u32 = 2;

/// Weight of the newest report in the averaged loss: sixteen reports are a third of a second.
const LOSS_WEIGHT: f64 = 1.0 / 16.0;
/// Loss above which a link without a queue is taken to drop what is too much for it: one frame in
/// 200. Single frames are lost on any link.
const SHALLOW: f64 = 0.005;
/// Pace over rate below which losses are not caused by the pace: a little above
/// [`FASTEST_PACE_DROPPING`].
const BELOW_RATE: f64 = 0.99;
/// Loss in start-up above which a link can be at its rate although no packets waited for it.
const SHALLOW_IN_START_UP: f64 = 4.0 * SHALLOW;

/// Time without a queue that brings start-up again, in seconds: five reports.
const PATIENCE: f64 = 0.1;
/// Bound on that time when start-up keeps finding nothing: five seconds between probes that each
/// cost a link without buffers a few lost packets.
const MOST_PATIENCE: f64 = 50.0 * PATIENCE;
/// Queueing delay below which a link shows no queue, in seconds: half of what counts as one, so
/// that noise around the limit does neither.
const NO_QUEUE: f64 = QUEUE / 2.0;

/// Traffic over the rate below which a queue is not made by this traffic: jitter, or others. A
/// quarter is the slowest pace.
const LOADED: f64 = SLOWEST_PACE;
/// Delivery rate over the slowest pace, below which the link certainly became slower: then one
/// report is believed.
const MUCH_SLOWER: f64 = 0.8;
/// Delivery rate over the slowest and fastest pace at which it was sent: outside, the link and not
/// the sender decided it. The margin is for the error of a rate over few reports.
const BELOW_SENT: f64 = 0.98;
const ABOVE_SENT: f64 = 1.02;
/// Pace over rate above which the queue is not being drained.
const STEADY_PACE: f64 = 0.95;
/// Delivery rate over the fastest pace below which no queue drains: while one drains, more is
/// delivered than is sent.
const NO_DRAINING: f64 = 1.03;
/// Reports in a row without draining after which the delay is the path's own and not a queue.
const LONGER_PATH_REPORTS: u32 = 5;

/// Intervals between reports over which a delivery rate is averaged: few where the link may change,
/// more where noise would do harm. One in start-up.
const NEWEST: usize = 1;
const INTERVALS_FREE: usize = 3;
const INTERVALS_DRAINING: usize = 4;
const INTERVALS_QUEUED: usize = 5;
/// Least time (µs) and bytes of a delivery rate: three full frames, so that one more or less is
/// not all of it, and enough time that a frame's own duration is not.
const SPAN_MICROS: u32 = 5_000;
const SPAN_BYTES: u64 = 4_500;
/// Reports remembered: more than any average needs, a third of a second.
const HISTORY: usize = 16;
/// Of these the ones that are kept across an idle time: an interval needs two.
const KEPT_WHEN_IDLE: usize = 2;
/// Paces remembered: those of 1.3 s. That is how far back a report can reach (`PACE_AGE`) on a path
/// with a full queue and a round trip of 120 ms.
const PACES: usize = 64;
/// Age in seconds up to which a pace can be behind a report: five reports, for what is averaged, to
/// which one and a half round trips and the queue are added.
const PACE_AGE: f64 = 0.1;
const PACE_AGE_ROUND_TRIPS: f64 = 1.5;
/// Queue counted in that age at most, in seconds.
const PACE_AGE_QUEUE: f64 = 1.0;

/// The most that a packet train is believed to show, in bytes per second: 100 Mbit/s. A train that
/// passes in a millisecond measures timers and token buckets.
const MOST_BY_TRAIN: f64 = 12.5e6;

/// The least rate that is believed, in bytes per second: 16 kbit/s. Below it a full frame takes
/// longer than 0.75 s, and the rate could not be measured any more.
const FLOOR: f64 = 2_000.0;

/// The part of a report that concerns the rate of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Bytes received since the session began, carrier headers included.
    pub bytes: u64,
    /// Receiver's clock at the last of them, in µs modulo 2³².
    pub at: u32,
    /// One-way delay plus the difference of the clocks, in µs modulo 2³². `None` where it says
    /// nothing of a queue: in a packet train whose frames overtook each other.
    pub one_way: Option<u32>,
    /// The same delay of a prompt frame, if the report names one.
    pub least: Option<u32>,
    /// Whether packets waited for this link all the time since the report before.
    pub limited: bool,
    /// Frames that must have arrived by now and were not counted before.
    pub sent: u32,
    /// Frames among these that are lost.
    pub lost: u32,
}

/// Share of frames that are lost, averaged over some reports. Sent and lost frames are averaged
/// apart: of a report about two frames one loss is not a half.
#[derive(Clone, Copy, Debug, Default)]
struct Loss {
    sent: f64,
    lost: f64,
}

impl Loss {
    fn note(&mut self, sample: &Sample) {
        self.sent += (f64::from(sample.sent) - self.sent) * LOSS_WEIGHT;
        self.lost += (f64::from(sample.lost) - self.lost) * LOSS_WEIGHT;
    }

    /// 0..=1.
    fn share(&self) -> f64 {
        if self.sent > 0.0 { (self.lost / self.sent).min(1.0) } else { 0.0 }
    }
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
    /// Bounds of both.
    least: f64,
    most: f64,
    /// Pace over rate in start-up: `START_UP` for an unknown link, `PROBE` for a known one.
    gain: f64,
    /// Queue in the link, in seconds.
    queue: f64,
    loss: Loss,
    /// The part of it that does not come from the pace, as it was seen below the rate.
    chance_loss: Loss,
    /// Reports in a row before which packets waited all the time.
    limited: u32,
    /// Whether the last report showed as much traffic as can make a queue.
    loaded: bool,
    /// Seconds.
    round_trip: f64,
    /// One-way delays of the reports, and the least ones of the frames between two of them.
    reports: Delays,
    frames: Delays,
    /// Start of the period in which both look for their minimum.
    period: Option<Instant>,
    /// Mean change of the delays that `queue` was read from, in seconds.
    noise: f64,
    /// Bytes received and the receiver's clock, of the last reports.
    history: VecDeque<(u64, u32)>,
    /// The pace after each report.
    paces: VecDeque<(Instant, f64)>,
    /// Start of the time without a queue although packets waited.
    empty: Option<Instant>,
    /// In start-up: the time at which the rate last grew by a tenth, and that rate.
    grown: Option<(Instant, f64)>,
    /// Reports in a row with a queue.
    queued: u32,
    /// In start-up: reports with a queue since the rate last grew by a tenth.
    shown: u32,
    /// Reports in a row in which the delay looks like a queue but nothing drains.
    not_draining: u32,
    /// Seconds without a queue, on top of round trips, that bring start-up again; doubles when that
    /// found nothing.
    patience: f64,
    /// The rate when start-up last began.
    before: f64,
}

impl RateControl {
    /// A link taken to carry `first` until more is known.
    pub fn new(first: Bitrate) -> Self {
        RateControl::bounded(first, None, None)
    }

    /// The same, and never less than `least`, nor more than `most`.
    pub fn bounded(first: Bitrate, least: Option<Bitrate>, most: Option<Bitrate>) -> Self {
        let bytes = |rate: Bitrate| (rate.as_bps() as f64 / 8.0).max(FLOOR);
        let most = most.map_or(f64::INFINITY, bytes);
        let least = least.map_or(FLOOR, bytes).min(most);
        let rate = bytes(first).clamp(least, most);
        RateControl {
            phase: Phase::StartUp,
            rate,
            pace: rate,
            least,
            most,
            gain: START_UP,
            queue: 0.0,
            loss: Loss::default(),
            chance_loss: Loss::default(),
            limited: 0,
            loaded: false,
            round_trip: 0.0,
            reports: Delays::new(),
            frames: Delays::new(),
            period: None,
            noise: 0.0,
            history: VecDeque::with_capacity(HISTORY),
            paces: VecDeque::with_capacity(PACES),
            queued: 0,
            shown: 0,
            empty: None,
            grown: None,
            not_draining: 0,
            patience: PATIENCE,
            before: rate,
        }
    }

    /// The learned rate, carrier headers included.
    pub fn rate(&self) -> Bitrate {
        Bitrate::from_bps((self.rate * 8.0) as u64)
    }

    /// The rate at which to send now.
    pub fn pace(&self) -> Bitrate {
        Bitrate::from_bps((self.pace * 8.0) as u64)
    }

    /// The time that `bytes` bytes take at the learned rate.
    pub fn time_for(&self, bytes: u64) -> Duration {
        nanos(bytes as f64 / self.rate)
    }

    /// The bytes that the learned rate carries in `time`.
    pub fn bytes_in(&self, time: Duration) -> u64 {
        (self.rate * time.as_secs_f64()) as u64
    }

    /// The time until the pace lets more follow `bytes` bytes.
    pub fn pause_after(&self, bytes: u64) -> Duration {
        nanos(bytes as f64 / self.pace)
    }

    /// The queue in the link, in time.
    pub fn queue(&self) -> Duration {
        Duration::from_secs_f64(self.queue.clamp(0.0, MOST_QUEUE))
    }

    /// The one-way delay to expect without a queue plus the difference of the clocks, in µs modulo
    /// 2³²; to be compared among links.
    pub fn delay(&self) -> Option<u32> {
        // Less is noise, and packets of a flow without a queue would change links by it.
        let variation = (self.reports.variation() - VARIATION_STEP).max(0.0);
        let above = (EXPECTED * variation * 1e6) as u32;
        self.reports.lowest().map(|lowest| lowest.wrapping_add(above))
    }

    /// Time within which the delays of single frames are of each other.
    pub(crate) fn spread(&self) -> Duration {
        Duration::from_secs_f64(SPREAD * self.reports.variation())
    }

    /// The round trip without queues.
    pub fn set_round_trip(&mut self, round_trip: Duration) {
        self.round_trip = round_trip.as_secs_f64();
    }

    /// Starts anew, because the other end counts anew or the link was away: the counters of before
    /// mean nothing, and the rate is a guess to be checked.
    pub fn restart(&mut self) {
        self.history.clear();
        self.forget_delays();
        self.queue = 0.0;
        self.begin(START_UP);
    }

    /// Takes the rate at which a packet train arrived for a first guess.
    pub fn set_first(&mut self, bytes: u64, micros: u32) {
        if !self.is_known() && micros > 0 {
            let rate = bytes as f64 * 1e6 / f64::from(micros);
            self.rate = rate.min(MOST_BY_TRAIN);
            self.bound();
            self.begin(START_UP);
        }
    }

    /// Learns from a report about a link that is paced.
    pub fn report(&mut self, sample: Sample, now: Instant) {
        let draining = self.note_delays(&sample, now);
        let behind = self.paces_behind(now);
        self.note_loss(&sample, behind);
        self.loaded = sample.limited || self.is_loaded(&sample);
        self.limited = if sample.limited { self.limited.saturating_add(1) } else { 0 };
        self.remember(&sample);
        if !sample.limited && !self.is_queued() {
            // The link was idle for some of the time, so older intervals measure the sender.
            let excess = self.history.len().saturating_sub(KEPT_WHEN_IDLE);
            self.history.drain(..excess);
        }
        // A queue while nothing arrives and nothing is sent is an old measurement.
        let busy = self.is_queued() && self.loaded;
        self.queued = if busy { self.queued + 1 } else { 0 };
        match self.phase {
            Phase::StartUp => self.start_up(sample.limited, now),
            Phase::Cruise => self.cruise(&sample, behind, draining, now),
        }
        self.bound();
        if self.paces.len() == PACES {
            self.paces.pop_front();
        }
        self.paces.push_back((now, self.pace));
    }

    /// Learns from a report about a link whose carrier reports its queue; `sample.limited`: that
    /// queue has not been empty since the report before.
    pub fn observe(&mut self, sample: Sample, now: Instant) {
        self.note_delays(&sample, now);
        // Waiting packets are in the carrier's queue, which the caller counts by itself. It is what
        // varies the delay.
        self.queue = 0.0;
        self.reports.forget_variation();
        self.queued = if sample.limited { self.queued.saturating_add(1) } else { 0 };
        if !sample.limited {
            // Bytes over an idle time are the sender's rate, not the link's.
            self.history.clear();
        }
        self.remember(&sample);
        let intervals = self.history.len().saturating_sub(1);
        let limited = self.queued >= QUEUED_REPORTS_LEAST;
        if let Some(rate) = self.delivery_rate(intervals).filter(|_| limited) {
            // Contention varies, and over few reports it has not averaged out: they weigh less,
            // and no rate replaces more than half of what was learned before.
            let weight = intervals.min(HISTORY / 2) as f64 / HISTORY as f64;
            self.rate += (rate - self.rate) * if self.is_known() { weight } else { 1.0 };
            self.phase = Phase::Cruise;
        }
        self.pace = self.rate;
        self.bound();
    }

    /// Whether the rate is searched for by what is sent, which can cause losses.
    pub fn is_searched(&self) -> bool {
        !self.is_known() && self.loaded
    }

    fn is_known(&self) -> bool {
        self.phase == Phase::Cruise || self.gain < START_UP
    }

    /// Takes the delivery rate for the rate, because the link loses so much that it is left out:
    /// what is sent no longer shows what the link can carry.
    pub fn failed(&mut self) {
        if let Some(rate) = self.delivery_rate(INTERVALS_QUEUED) {
            self.rate = rate.min(self.rate).max(self.least);
            self.phase = Phase::Cruise;
            self.steer(TARGET);
            self.bound();
        }
    }

    fn bound(&mut self) {
        self.rate = self.rate.clamp(self.least, self.most);
        // A queue is drained below the least rate, too.
        self.pace = self.pace.clamp(FLOOR, self.most);
    }

    fn begin(&mut self, gain: f64) {
        self.grown = None;
        self.phase = Phase::StartUp;
        self.gain = gain;
        self.before = self.rate;
        (self.queued, self.shown) = (0, 0);
        self.pace = self.gain * self.rate;
        self.bound();
    }

    fn start_up(&mut self, limited: bool, now: Instant) {
        // Without a queue a delivery rate is a lower bound, so the highest one counts.
        if let Some(rate) = self.delivery_rate(NEWEST) {
            self.rate = self.rate.max(rate);
        }
        let (at, rate) = *self.grown.get_or_insert((now, self.rate));
        // A sender that has little to send does not show that the link carries no more.
        let unasked = !self.loaded || !limited && self.loss.share() < SHALLOW_IN_START_UP;
        let grows = self.rate > GROWTH * rate;
        if unasked || grows {
            self.grown = Some((now, self.rate));
        }
        // Traffic that comes in rounds leaves the link empty between two of them, so its reports
        // with a queue are not in a row.
        if grows {
            self.shown = 0;
        } else if self.is_queued() && self.loaded {
            self.shown += 1;
        }
        self.pace = self.gain * self.rate;
        let full = self.loaded && self.queue > self.full()
            || self.queued >= QUEUED_REPORTS
            || self.shown >= SHOWN_REPORTS;
        let no_growth = NO_GROWTH + ROUND_TRIPS_TO_SHOW * self.round_trip;
        if full || (now - at).as_secs_f64() > no_growth {
            self.phase = Phase::Cruise;
            // A probe that found nothing is repeated later: a link without buffers pays for it
            // with lost packets.
            self.patience = match self.rate > GROWTH * self.before {
                true => PATIENCE,
                false => (2.0 * self.patience).min(MOST_PATIENCE),
            };
            self.empty = None;
            self.steer(TARGET);
        }
    }

    fn cruise(
        &mut self,
        sample: &Sample,
        (slowest, fastest): (f64, f64),
        draining: bool,
        now: Instant,
    ) {
        let queued = self.queued >= QUEUED_REPORTS_LEAST;
        let newest = self.delivery_rate(NEWEST).filter(|_| queued).unwrap_or(f64::MAX);
        if self.queue > self.full() && newest < MUCH_SLOWER * slowest.min(self.rate) {
            // One delivery rate is rough, but to wait for a second report would add as much queue
            // again.
            self.rate = newest;
        } else if self.queued >= QUEUED_REPORTS {
            // Intervals before the queue stood would count what the link did not decide.
            let intervals = (self.queued as usize - 1).min(INTERVALS_QUEUED);
            if let Some(rate) = self.delivery_rate(intervals) {
                // Less is delivered than was sent: the queue grows. More: it drains. As much, while
                // a queue should drain: then the delay may be no queue, and the rate is only a
                // lower bound. So it is with a short queue that a burst left behind, and where
                // packets did not wait for the link all that time.
                let by_link = rate < BELOW_SENT * slowest || rate > ABOVE_SENT * fastest;
                let steady = self.pace > STEADY_PACE * self.rate;
                let bound = self.limited as usize > intervals || self.queue > self.full();
                self.rate = if bound && (by_link || steady) { rate } else { self.rate.max(rate) };
            }
        } else if let Some(rate) = self.delivery_rate(INTERVALS_FREE) {
            self.rate = self.rate.max(rate);
        }
        // While the queue is drained on purpose its absence says nothing of the rate. The lowest of
        // eight delays is above the least by the variation in one case of 26, and by twice as much
        // in one of 6,000; `queue` has the first taken off.
        let idle = self.queue < NO_QUEUE + self.noise;
        self.empty = match idle && !draining {
            true if sample.limited => Some(self.empty.unwrap_or(now)),
            // Where packets wait now for this link and now for another, it is short of rate, too.
            true if self.loaded => self.empty,
            _ => None,
        };
        // The pace's effect shows a round trip later at the earliest.
        let patience = self.patience + ROUND_TRIPS_TO_SHOW * self.round_trip;
        let is_over = self.empty.is_some_and(|since| (now - since).as_secs_f64() >= patience);
        if is_over && sample.limited {
            self.empty = None;
            return self.begin(PROBE);
        }
        // While a queue drains more is delivered than is sent. If not, the path became longer: its
        // delay is the new minimum, or the pace would stay low for ten seconds.
        let slow = sample.limited && fastest < STEADY_PACE * self.rate;
        let delivered = self.delivery_rate(INTERVALS_DRAINING);
        let no_more_than_sent = delivered.is_some_and(|rate| rate < NO_DRAINING * fastest);
        self.not_draining = if slow && no_more_than_sent { self.not_draining + 1 } else { 0 };
        if self.not_draining >= LONGER_PATH_REPORTS {
            self.not_draining = 0;
            self.reports.take_standing();
            self.frames.take_standing();
            self.period = Some(now);
            self.queue = 0.0;
        }
        self.steer(if draining { DRAIN_TARGET } else { TARGET });
    }

    /// Whether the link counts as queued.
    fn is_queued(&self) -> bool {
        self.queue > QUEUE
    }

    /// Queueing delay that is not noise even in a single report: more where the delay varies.
    fn full(&self) -> f64 {
        FULL + SPREAD * self.noise
    }

    /// The slowest and the fastest pace at which what was reported can have been sent.
    fn paces_behind(&self, now: Instant) -> (f64, f64) {
        let queue = self.queue.min(PACE_AGE_QUEUE);
        let since = now - nanos(PACE_AGE + PACE_AGE_ROUND_TRIPS * self.round_trip + queue);
        let paces = self.paces.iter().rev().take_while(|(at, _)| *at >= since);
        let all = paces.map(|(_, pace)| *pace).chain([self.pace]);
        all.fold((f64::MAX, 0.0), |(low, high), pace| (pace.min(low), pace.max(high)))
    }

    /// Sets the pace so that the queue approaches `target` seconds.
    fn steer(&mut self, target: f64) {
        let gain = 1.0 + (target - self.queue) / (TAU + 2.0 * self.round_trip);
        let drops = !self.is_queued() && self.loss.share() > SHALLOW + self.chance_loss.share();
        let fastest = if drops { FASTEST_PACE_DROPPING } else { FASTEST_PACE };
        self.pace = self.rate * gain.clamp(SLOWEST_PACE, fastest);
    }

    fn note_loss(&mut self, sample: &Sample, (_, fastest): (f64, f64)) {
        self.loss.note(sample);
        if fastest < BELOW_RATE * self.rate {
            self.chance_loss.note(sample);
        }
        if self.chance_loss.share() > self.loss.share() {
            self.chance_loss = self.loss;
        }
    }

    /// Whether a report shows as much traffic as can make a queue.
    fn is_loaded(&self, sample: &Sample) -> bool {
        let Some((bytes, at)) = self.history.back() else { return false };
        let more = sample.bytes.saturating_sub(*bytes);
        let micros = sample.at.wrapping_sub(*at);
        more > 0 && more as f64 * 1e6 >= LOADED * self.rate * f64::from(micros)
    }

    /// Adds a report to the history, where more bytes were delivered than before.
    fn remember(&mut self, sample: &Sample) {
        if self.history.back().is_some_and(|(bytes, _)| sample.bytes <= *bytes) {
            return;
        }
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back((sample.bytes, sample.at));
    }

    /// Bytes per second over the last `intervals` reports, or over more where these hold little.
    fn delivery_rate(&self, intervals: usize) -> Option<f64> {
        let (bytes, at) = self.history.back()?;
        let last = self.history.len() - 1;
        let first = last.checked_sub(intervals)?;
        let spans = self.history.range(..=first).rev();
        spans
            .map(|(from, since)| (bytes - from, at.wrapping_sub(*since)))
            .find(|(bytes, micros)| *micros >= SPAN_MICROS && *bytes >= SPAN_BYTES)
            .map(|(bytes, micros)| bytes as f64 * 1e6 / f64::from(micros))
    }

    fn forget_delays(&mut self) {
        (self.reports, self.frames) = (Delays::new(), Delays::new());
        (self.period, self.noise) = (None, 0.0);
    }

    /// Takes in the delays of a report; returns whether the queue should be drained now.
    fn note_delays(&mut self, sample: &Sample, now: Instant) -> bool {
        let Some(one_way) = sample.one_way else { return false };
        let started = *self.period.get_or_insert(now);
        if now - started >= BASE_PERIOD {
            // Two periods, so that the minimum of the last one is still known when a new begins.
            self.reports.begin_period();
            self.frames.begin_period();
            self.period = Some(now);
        }
        let drain = self.period.is_some_and(|since| now - since >= BASE_PERIOD - DRAIN);
        self.reports.note(one_way);
        if let Some(least) = sample.least {
            self.frames.note(least);
        }
        // Where single delays vary, the least of many shows a queue sooner and more exactly.
        let delays = match sample.least {
            Some(_) if self.reports.is_varied() => &self.frames,
            _ => &self.reports,
        };
        (self.queue, self.noise) = (delays.queue(), delays.variation());
        drain
    }
}

fn nanos(seconds: f64) -> Duration {
    Duration::from_nanos((seconds * 1e9).ceil() as u64)
}
