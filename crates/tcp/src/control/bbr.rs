//! BBR of version 1 (draft-cardwell-iccrg-bbr-congestion-control-00), as in Linux.
//!
//! It models the path by the largest delivery rate of the last ten round trips and the least round
//! trip of the last ten seconds, paces at a multiple of that rate, and keeps at most twice the
//! product of both in flight. The multiple goes through a cycle of eight phases: one above the
//! rate, to find out whether there is more, one below, to empty the queue that this made, and six
//! at the rate. When the least round trip is ten seconds old, the window is four segments for 200
//! ms. Losses do not lower the rate. Left out is Linux's detection of policers.

use super::contract::{
    Connection, Control, INITIAL_WINDOW, MOST_WINDOW, Pace, Phase, Sample, Window,
};
use crate::random;
use sheaf_stage::{Duration, Instant};
use std::collections::VecDeque;

/// Rates are in 2⁻²⁴ segments a microsecond, gains in 256ths.
const RATE: u32 = 24;
const GAIN: u32 = 8;
const ONE: u64 = 1 << GAIN;
/// 2 / ln 2: the least gain at which the rate doubles each round trip. And its inverse.
const HIGH: u64 = ONE * 2885 / 1000 + 1;
const DRAIN: u64 = ONE * 1000 / 2885;
/// The window, in products of rate and round trip.
const WINDOW: u64 = 2 * ONE;
/// Gains of the eight phases.
const CYCLE: [u64; 8] = [ONE * 5 / 4, ONE * 3 / 4, ONE, ONE, ONE, ONE, ONE, ONE];
/// Phases in which the cycle may begin: all but the one below the rate.
const RANDOM_PHASES: u64 = 7;
/// Round trips for which a rate counts.
const RATE_ROUNDS: u64 = 10;
/// Time for which a least round trip counts, and time at the least window to find it anew.
const LEAST_LASTS: Duration = Duration::from_secs(10);
const PROBE: Duration = Duration::from_millis(200);
/// Segments in flight at least.
const LEAST_WINDOW: u32 = 4;
/// The pipe is full when the rate grew by less than a quarter in three round trips.
const FULL_GROWTH: u64 = ONE * 5 / 4;
const FULL_ROUNDS: u32 = 3;
/// Share of the rate that is paced, in per cent: queues drain in the long run.
const MARGIN: u64 = 99;
/// Bursts in flight beside the window: at the sender, on the way, and at the receiver.
const BURSTS: u32 = 3;
/// Bits of a second that a burst lasts: 1/1024.
const BURST: u32 = 10;
/// Bytes a second below which a burst is one segment and not two: 1.2 Mbit/s.
const SLOW: u64 = 150_000;
/// Rounds of each of the two slots that count what arrived at once; time that it may stand for.
const AGGREGATION_ROUNDS: u32 = 5;
const AGGREGATION: Duration = Duration::from_millis(100);
/// Segments after which counting what arrived at once begins anew.
const AGGREGATION_RESET: u64 = 1 << 20;
/// Round trip assumed before one is measured.
const FIRST_TRIP: Duration = Duration::from_millis(1);
/// Bytes of a segment assumed until then: Ethernet's with time stamps.
const FIRST_SEGMENT: u32 = 1448;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    StartUp,
    Drain,
    /// Keeps to the rate and looks for more.
    Bandwidth,
    /// Looks for the least round trip.
    RoundTrip,
}

/// BBR's state.
#[derive(Clone, Debug)]
pub(super) struct Bbr {
    mode: Mode,
    /// Rates by round, the largest first: each is smaller and newer than the one before.
    rates: VecDeque<(u64, u64)>,
    round: u64,
    /// Segments delivered at which the round ends; whether this acknowledgement began one.
    round_end: u64,
    round_start: bool,
    /// Largest rate when it last grew, and rounds since.
    full: u64,
    full_rounds: u32,
    least: Option<(Duration, Instant)>,
    /// End of the time at the least window, once it began; whether a round has passed.
    probe_until: Option<Instant>,
    probe_round: bool,
    phase: usize,
    phase_since: Instant,
    random: u64,
    /// Window before losses or a probe.
    saved: u32,
    conserve: bool,
    before: Phase,
    aggregation: Aggregation,
    /// Bytes a second.
    pace: u64,
    measured: bool,
    /// Segments delivered up to which rates are the sender's, not the path's.
    limited_until: u64,
}

/// Segments that arrive beyond what the rate explains, because something holds acknowledgements
/// and lets them go together.
#[derive(Clone, Debug, Default)]
struct Aggregation {
    since: Instant,
    delivered: u64,
    /// The most of this slot and the one before.
    extra: [u32; 2],
    slot: usize,
    rounds: u32,
}

impl Bbr {
    pub fn new(seed: u64) -> Bbr {
        let mut bbr = Bbr {
            mode: Mode::StartUp,
            rates: VecDeque::new(),
            round: 0,
            round_end: 0,
            round_start: false,
            full: 0,
            full_rounds: 0,
            least: None,
            probe_until: None,
            probe_round: false,
            phase: 0,
            phase_since: Instant::ZERO,
            random: seed,
            saved: 0,
            conserve: false,
            before: Phase::Open,
            aggregation: Aggregation::default(),
            pace: 0,
            measured: false,
            limited_until: 0,
        };
        bbr.first_pace(INITIAL_WINDOW, FIRST_TRIP, FIRST_SEGMENT);
        bbr
    }

    /// The pace of a window that leaves in one round trip.
    fn first_pace(&mut self, window: u32, trip: Duration, mss: u32) {
        let micros = (trip.as_micros() as u64).max(1);
        self.pace = bytes(((u64::from(window)) << RATE) / micros, HIGH, mss);
    }

    fn rate(&self) -> u64 {
        self.rates.front().map_or(0, |(_, rate)| *rate)
    }

    fn is_full(&self) -> bool {
        self.full_rounds >= FULL_ROUNDS
    }

    /// Gains of pace and window.
    fn gains(&self) -> (u64, u64) {
        match self.mode {
            Mode::StartUp => (HIGH, HIGH),
            Mode::Drain => (DRAIN, HIGH),
            Mode::Bandwidth => (CYCLE[self.phase], WINDOW),
            Mode::RoundTrip => (ONE, ONE),
        }
    }

    /// The product of rate and least round trip, times `gain`.
    fn pipe(&self, gain: u64) -> u32 {
        let Some((least, _)) = self.least else { return INITIAL_WINDOW };
        let product = u128::from(self.rate()) * least.as_micros().max(1);
        let segments = ((product * u128::from(gain)) >> GAIN).div_ceil(1 << RATE);
        segments.min(u128::from(MOST_WINDOW)) as u32
    }

    /// A window with room for the bursts of sender and receiver.
    fn with_bursts(&self, window: u32, mss: u32) -> u32 {
        let window = (window + BURSTS * burst(self.pace, mss) + 1) & !1;
        // Without these, small pipes would never be probed.
        let probes = self.mode == Mode::Bandwidth && self.phase == 0;
        window + if probes { 2 } else { 0 }
    }

    fn inflight(&self, gain: u64, mss: u32) -> u32 {
        self.with_bursts(self.pipe(gain), mss)
    }

    fn update_rate(&mut self, sample: &Sample, connection: &Connection) {
        self.round_start = false;
        let Some(rate) = sample.rate else { return };
        if rate.before >= self.round_end {
            self.round_end = connection.delivered;
            self.round += 1;
            self.round_start = true;
            self.conserve = false;
        }
        let micros = (rate.interval.as_micros() as u64).max(1);
        let measured = (rate.segments << RATE) / micros;
        let limited = rate.limited || rate.before < self.limited_until;
        if !limited || measured >= self.rate() {
            while self.rates.back().is_some_and(|(_, rate)| *rate <= measured) {
                self.rates.pop_back();
            }
            self.rates.push_back((self.round, measured));
        }
        // The last rate stays, however old.
        while self.rates.len() > 1
            && self.rates.front().is_some_and(|(round, _)| self.round - round >= RATE_ROUNDS)
        {
            self.rates.pop_front();
        }
        if self.mode == Mode::StartUp && self.round_start && !limited && !self.is_full() {
            if self.rate() >= (self.full * FULL_GROWTH) >> GAIN {
                (self.full, self.full_rounds) = (self.rate(), 0);
            } else {
                self.full_rounds += 1;
            }
        }
    }

    fn update_aggregation(&mut self, sample: &Sample, window: u32, now: Instant) {
        if sample.delivered == 0 {
            return;
        }
        let rate = self.rate();
        let all = &mut self.aggregation;
        if self.round_start {
            all.rounds += 1;
            if all.rounds >= AGGREGATION_ROUNDS {
                (all.rounds, all.slot) = (0, 1 - all.slot);
                all.extra[all.slot] = 0;
            }
        }
        let micros = (now - all.since).as_micros() as u64;
        let mut expected = rate.saturating_mul(micros) >> RATE;
        if all.delivered <= expected || all.delivered > AGGREGATION_RESET {
            (all.delivered, all.since, expected) = (0, now, 0);
        }
        all.delivered += u64::from(sample.delivered);
        let extra = (all.delivered - expected).min(u64::from(window)) as u32;
        all.extra[all.slot] = all.extra[all.slot].max(extra);
    }

    /// Segments that the window needs beside the pipe while acknowledgements come together.
    fn aggregated(&self) -> u32 {
        if !self.is_full() {
            return 0;
        }
        let most = (self.rate() * AGGREGATION.as_micros() as u64) >> RATE;
        self.aggregation.extra.into_iter().max().unwrap_or(0).min(most as u32)
    }

    /// Segments that will be under way when the next burst leaves, with that burst where more are
    /// sent than arrive; `now` there are `in_flight`.
    fn at_next_burst(&self, in_flight: u32, connection: &Connection, now: Instant) -> u32 {
        let micros = (connection.release - now).as_micros() as u64;
        let delivered = self.rate().saturating_mul(micros) >> RATE;
        let sent = if self.gains().0 > ONE { burst(self.pace, connection.mss) } else { 0 };
        u64::from(in_flight + sent).saturating_sub(delivered) as u32
    }

    fn update_phase(&mut self, sample: &Sample, connection: &Connection, now: Instant) {
        let Some((least, _)) = self.least else { return };
        if self.mode != Mode::Bandwidth {
            return;
        }
        let long = connection.delivered_at - self.phase_since > least;
        let (gain, mss) = (CYCLE[self.phase], connection.mss);
        let under_way = self.at_next_burst(sample.in_flight_before, connection, now);
        let over = if gain > ONE {
            // Until the queue that this makes was seen.
            long && (sample.lost > 0 || under_way >= self.inflight(gain, mss))
        } else if gain < ONE {
            long || under_way <= self.inflight(ONE, mss)
        } else {
            long
        };
        if over {
            (self.phase, self.phase_since) = ((self.phase + 1) % CYCLE.len(), now);
        }
    }

    fn enter_bandwidth(&mut self, now: Instant) {
        self.mode = Mode::Bandwidth;
        self.random = random::next(self.random);
        let skip = 1 + (self.random % RANDOM_PHASES) as usize;
        (self.phase, self.phase_since) = ((CYCLE.len() - skip + 1) % CYCLE.len(), now);
    }

    fn check_drain(&mut self, window: &mut Window, connection: &Connection, now: Instant) {
        let pipe = self.inflight(ONE, connection.mss);
        if self.mode == Mode::StartUp && self.is_full() {
            self.mode = Mode::Drain;
            window.threshold = pipe;
        }
        if self.mode == Mode::Drain
            && self.at_next_burst(connection.in_flight, connection, now) <= pipe
        {
            self.enter_bandwidth(now);
        }
    }

    fn update_least(
        &mut self,
        window: &mut Window,
        sample: &Sample,
        connection: &Connection,
        now: Instant,
    ) {
        let expired = self.least.is_some_and(|(_, at)| now - at > LEAST_LASTS);
        if let Some(trip) = sample.trip
            && (expired || self.least.is_none_or(|(least, _)| trip < least))
        {
            self.least = Some((trip, now));
        }
        if expired && self.mode != Mode::RoundTrip {
            self.mode = Mode::RoundTrip;
            self.save(window);
            self.probe_until = None;
        }
        if self.mode != Mode::RoundTrip {
            return;
        }
        // Rates of this time say nothing of the path.
        self.limited_until = connection.delivered + u64::from(connection.in_flight);
        match self.probe_until {
            None if connection.in_flight <= LEAST_WINDOW => {
                (self.probe_until, self.probe_round) = (Some(now + PROBE), false);
                self.round_end = connection.delivered;
            }
            None => {}
            Some(until) => {
                self.probe_round |= self.round_start;
                if self.probe_round && now > until {
                    self.least = self.least.map(|(least, _)| (least, now));
                    window.size = window.size.max(self.saved);
                    if self.is_full() {
                        self.enter_bandwidth(now);
                    } else {
                        self.mode = Mode::StartUp;
                    }
                }
            }
        }
    }

    fn save(&mut self, window: &Window) {
        let calm = self.before == Phase::Open && self.mode != Mode::RoundTrip;
        self.saved = if calm { window.size } else { self.saved.max(window.size) };
    }

    fn set_pace(&mut self, window: &Window, connection: &Connection) {
        if !self.measured
            && let Some(trip) = connection.smoothed
        {
            self.measured = true;
            self.first_pace(window.size, trip, connection.mss);
        }
        let pace = bytes(self.rate(), self.gains().0, connection.mss);
        if self.is_full() || pace > self.pace {
            self.pace = pace;
        }
    }

    fn set_window(&mut self, window: &mut Window, sample: &Sample, connection: &Connection) {
        if sample.delivered > 0 {
            let mut size = window.size.saturating_sub(sample.lost).max(1);
            let floor = connection.in_flight + sample.delivered;
            if connection.phase == Phase::Recovery && self.before != Phase::Recovery {
                // For a round, one segment for each delivered.
                self.conserve = true;
                self.round_end = connection.delivered;
                size = floor;
            } else if connection.phase == Phase::Open && self.before != Phase::Open {
                size = size.max(self.saved);
                self.conserve = false;
            }
            self.before = connection.phase;
            window.size = if self.conserve {
                size.max(floor)
            } else {
                let target = self.pipe(self.gains().1) + self.aggregated();
                let target = self.with_bursts(target, connection.mss);
                let size = if self.is_full() {
                    (size + sample.delivered).min(target)
                } else if size < target || connection.delivered < u64::from(INITIAL_WINDOW) {
                    size + sample.delivered
                } else {
                    size
                };
                size.max(LEAST_WINDOW)
            };
        }
        window.size = window.size.min(MOST_WINDOW);
        if self.mode == Mode::RoundTrip {
            window.size = window.size.min(LEAST_WINDOW);
        }
    }
}

impl Control for Bbr {
    fn reduce(&mut self, window: &Window, _: &Connection) -> u32 {
        self.save(window);
        window.threshold
    }

    fn acknowledge(
        &mut self,
        window: &mut Window,
        sample: &Sample,
        connection: &Connection,
        _: bool,
        now: Instant,
    ) {
        self.update_rate(sample, connection);
        self.update_aggregation(sample, window.size, now);
        self.update_phase(sample, connection, now);
        self.check_drain(window, connection, now);
        self.update_least(window, sample, connection, now);
        self.set_pace(window, connection);
        self.set_window(window, sample, connection);
    }

    fn time_out(&mut self) {
        self.before = Phase::Loss;
        if !self.is_full() {
            self.full = 0;
        }
        self.round_start = true;
    }

    fn undo(&mut self) {
        if !self.is_full() {
            (self.full, self.full_rounds) = (0, 0);
        }
    }

    fn sets_window(&self) -> bool {
        true
    }

    fn pace(&self, mss: u32) -> Option<Pace> {
        Some(Pace { rate: self.pace, burst: burst(self.pace, mss) })
    }
}

/// Bytes a second of a rate with a gain.
fn bytes(rate: u64, gain: u64, mss: u32) -> u64 {
    let exact = u128::from(rate) * u128::from(mss) * u128::from(gain) * u128::from(MARGIN * 10_000);
    u64::try_from(exact >> (RATE + GAIN)).unwrap_or(u64::MAX).max(1)
}

/// Segments that leave together at `pace` bytes a second.
fn burst(pace: u64, mss: u32) -> u32 {
    let least = if pace < SLOW { 1 } else { 2 };
    // Linux's largest super-packet has 64 KiB.
    let bytes = (pace >> BURST).min(u64::from(u16::MAX));
    ((bytes / u64::from(mss.max(1))) as u32).max(least)
}
