//! One flow as the controller sees it: the difference between two readings of its counters, and the
//! window that makes a share.

use crate::flow::{Connection, MAX_WINDOW, RTT_AGE};
use crate::key::Direction;
use crate::rewrite::OUTER;
use crate::rounding;
use sheaf_stage::{Duration, Instant};

/// Round trips over which a rate is averaged: within fewer, a burst looks like the rate.
const AVERAGED_RTTS: f64 = 3.0;
/// Seconds over which a rate is averaged, at least: three steps of the controller.
const AVERAGED_SECONDS: f64 = 0.3;
/// Time, and round trips, in which a flow that begins may reach its share: a sender that begins
/// with ten segments doubles them in each.
const YOUNG: Duration = Duration::from_millis(300);
const YOUNG_RTTS: u32 = 3;
/// Segments of a round that it counts for: with ten (RFC 6928) a page costs a download a tenth.
const FIRST_ROUND: f64 = 5.0;
/// Time after which a flow that goes on to fill its window counts for all of it: in two steps of
/// the controller most objects of pages have arrived.
const LONGER: Duration = Duration::from_millis(150);
/// Demand of a flow that its window does not limit, as a multiple of its rate: room to speed up
/// until the next step.
const ROOM: f64 = 1.05;
/// Bytes that time stamps take of each segment (RFC 7323, appendix A).
const TIMESTAMPS: u32 = 12;
/// Bytes on the wire for each byte of data before any were counted: headers of 66 in 1448 bytes.
const FIRST_OVERHEAD: f64 = 1.05;
/// Part of its window that a flow must have in flight to count as limited by it. Data in flight is
/// computed from averages, so even a limited flow seldom shows all of its window.
const HELD: f64 = 0.8;
/// Part of a window that still grows which must have been acknowledged in the last step for a flow
/// to count as filling it: in a round trip it doubles at most.
const FILLS: f64 = 0.5;

/// A flow between two steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    /// Counters at the last step.
    before: Counters,
    /// Counters now.
    after: Counters,
    /// Smallest round-trip time.
    pub rtt: Option<Duration>,
    /// Mean round-trip time of late.
    pub recent: Option<Duration>,
    /// Smallest round-trip time of the part beyond the interface, and by how much its mean of late
    /// is above that.
    outer_floor: Option<Duration>,
    outer_wait: Duration,
    /// Time stamps of its data.
    stamps: Stamps,
    /// Data of a full segment, bytes.
    segment: u32,
    scale: u8,
    /// Window that the program enforces, bytes; 0 for none.
    pub set: u32,
    /// Window that was advertised last, and the one that the receiver asked for, bytes.
    written: u32,
    asked: u32,
    /// The window that has been in force, bytes: follows a smaller one at once, and a larger one no
    /// faster than `rate` can.
    limit: f64,
    /// bit/s on the wire, averaged over a few round-trip times.
    pub rate: f64,
    /// Bytes of data that were acknowledged in the last step, or at that pace in a round trip where
    /// it is longer.
    acked: f64,
    /// Time at which its data passed last.
    pub last: Instant,
    /// Time of the first step with it, and of that with its first data; [`Instant::ZERO`] before.
    born: Instant,
    began: Instant,
    /// State of rounding its window to whole segments.
    pub rounding: rounding::State,
    /// The step in which it was seen last.
    pub seen: u64,
}

/// Delays of one way by the time stamps of a sender whose clock counts milliseconds, as Linux's
/// (RFC 7323 5.4: 1 ms to 1 s). The clocks differ by a constant, and drift by less than a
/// millisecond in ten seconds.
#[derive(Clone, Copy, Debug, Default)]
struct Stamps {
    /// Time stamp of the first sample, and when its packet passed.
    first: Option<(u32, Instant)>,
    /// Shortest way of this age and of the one before, ms with the difference of the clocks; and
    /// the beginning of this age.
    least: [Option<i32>; 2],
    since: Instant,
    /// Mean of late, and the last samples, ms with the difference of the clocks.
    mean: f64,
    latest: [i32; LATEST],
    /// Whether the clock counts milliseconds; `None` before that was compared.
    fits: Option<bool>,
}

/// Time after which a clock is compared with ours, and its ticks in a millisecond. A queue that
/// grows meanwhile makes it seem slow; other clocks tick every 10 ms or every microsecond.
const COMPARED: Duration = Duration::from_millis(200);
const TICKS: std::ops::RangeInclusive<f64> = 0.4..=2.5;
/// Part of a new sample in the mean: there is one in a step, of a queue that trembles.
const LATE_PART: f64 = 0.4;
/// Samples of which the least is a queue that stands. Bursts leave the link idle in between.
const LATEST: usize = 4;

impl Stamps {
    /// A packet with time stamp `value` passed at `now`.
    fn sample(&mut self, value: u32, now: Instant) {
        let millis = (now.as_nanos() / 1_000_000) as u32;
        let Some((first, at)) = self.first else {
            self.first = Some((value, now));
            return;
        };
        if now - at >= COMPARED {
            let ticks = f64::from(value.wrapping_sub(first));
            self.fits = Some(TICKS.contains(&(ticks / ((now - at).as_secs_f64() * 1e3))));
        }
        // Relative to the first one, so that it does not wrap around.
        let began = (at.as_nanos() / 1_000_000) as u32;
        let way = millis.wrapping_sub(began).wrapping_sub(value.wrapping_sub(first)) as i32;
        if self.least[0].is_none() || now - self.since >= RTT_AGE {
            self.least = [Some(way), self.least[0]];
            self.since = now;
            if self.least[1].is_none() {
                self.mean = f64::from(way);
            }
        }
        self.least[0] = self.least[0].map(|least| least.min(way));
        self.mean += (f64::from(way) - self.mean) * LATE_PART;
        self.latest.rotate_right(1);
        self.latest[0] = way;
    }

    /// The mean and the least of late above the shortest; zero before the clock was compared.
    fn late(&self) -> Option<[Duration; 2]> {
        let least = self.least.into_iter().flatten().min()?;
        let late = self.latest.into_iter().min().unwrap_or(least);
        let above = |way: f64| Duration::from_secs_f64((way - f64::from(least)).max(0.0) / 1e3);
        match self.fits {
            None => Some([Duration::ZERO; 2]),
            Some(true) => Some([above(self.mean), above(f64::from(late))]),
            Some(false) => None,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    bytes: u64,
    wire: u64,
    acked: u64,
    rtt: [(u64, u32); 2],
}

impl Flow {
    /// Whether its data passed within the last `idle`.
    pub fn is_active(&self, now: Instant, idle: Duration) -> bool {
        self.last != Instant::ZERO && now - self.last < idle
    }

    /// A flow that is seen first now.
    pub fn new(connection: &Connection, direction: Direction) -> Flow {
        let counters = Counters::of(connection, direction);
        Flow {
            before: counters,
            after: counters,
            rtt: None,
            recent: None,
            outer_floor: None,
            outer_wait: Duration::ZERO,
            stamps: Stamps::default(),
            segment: 1,
            scale: 0,
            set: 0,
            written: 0,
            asked: 0,
            limit: 0.0,
            rate: 0.0,
            acked: 0.0,
            last: Instant::ZERO,
            born: Instant::ZERO,
            began: Instant::ZERO,
            rounding: rounding::State::default(),
            seen: 0,
        }
    }

    /// Takes note of the counters.
    pub fn observe(&mut self, connection: &Connection, direction: Direction) {
        let half = connection.half(direction);
        let after = Counters::of(connection, direction);
        if after.wire < self.after.wire {
            // Another connection under the same key.
            self.before = Counters::default();
        }
        let floors = connection.half.map(|half| half.rtt.floor());
        self.after = after;
        self.outer_floor = floors[OUTER];
        self.rtt = floors[0].zip(floors[1]).map(|(one, other)| one + other);
        let options = if connection.timestamps { TIMESTAMPS } else { 0 };
        self.segment = u32::from(half.mss).saturating_sub(options).max(1);
        self.scale = half.scale;
        if connection.timestamps && half.last > self.last {
            self.stamps.sample(half.seen, half.last);
        }
        (self.set, self.last) = (half.window, half.last);
        (self.written, self.asked) = (half.written, half.asked);
    }

    /// Brings rate and recent RTT up to date, for `seconds` since the last time. Returns the bits
    /// on the wire that were acknowledged, and those that passed.
    pub fn measure(&mut self, seconds: f64, default_rtt: Duration) -> (f64, f64) {
        let (before, after) = (self.before, self.after);
        let acked = after.acked.saturating_sub(before.acked) as f64 * 8.0 * self.overhead();
        let passed = after.wire.saturating_sub(before.wire) as f64 * 8.0;
        let rtt = self.rtt.unwrap_or(default_rtt).as_secs_f64();
        let constant = (AVERAGED_RTTS * rtt).max(AVERAGED_SECONDS);
        self.rate += (acked / seconds - self.rate) * (1.0 - libm::exp(-seconds / constant));
        let set = f64::from(self.set);
        // Twice as slow as the rate, or the rate would seem too small for a window that just grew.
        let part = 1.0 - libm::exp(-seconds / (2.0 * constant));
        self.limit = set.min(self.limit + (set - self.limit) * part);
        let means = means(&before, &after);
        self.recent = means[0].zip(means[1]).map(|(one, other)| one + other).or(self.recent);
        let trip = self.recent.or(self.rtt).unwrap_or_default().as_secs_f64();
        self.acked =
            after.acked.saturating_sub(before.acked) as f64 * (trip / seconds.max(1e-3)).max(1.0);
        if let Some((mean, floor)) = means[OUTER].zip(self.outer_floor) {
            self.outer_wait = mean.saturating_sub(floor);
        }
        (acked, passed)
    }

    /// Time by which its round trips of late are longer than they could be. The bottleneck is
    /// beyond the interface. Of what the part inside adds, `inside` counts at most: a receiver
    /// there may hold back the acknowledgement of a single segment for 40 ms without any queue.
    pub fn wait(&self, inside: Duration) -> Option<Duration> {
        let all = self.recent?.saturating_sub(self.rtt?);
        Some(all.min(self.outer_wait + inside))
    }

    /// By how much its data came later than it could, in the mean and at least; `None` where time
    /// stamps do not show it.
    pub fn late(&self) -> Option<[Duration; 2]> {
        self.stamps.late()
    }

    /// Whether data passed since the last time.
    pub fn has_sent(&self) -> bool {
        self.after.bytes > self.before.bytes
    }

    /// Whether data was acknowledged since the last time.
    pub fn has_arrived(&self) -> bool {
        self.after.acked > self.before.acked
    }

    /// Ends a step: the present counters become those of the last step.
    pub fn settle(&mut self) {
        self.before = self.after;
    }

    /// Bytes on the wire for each byte of data.
    fn overhead(&self) -> f64 {
        match self.after.bytes {
            0 => FIRST_OVERHEAD,
            bytes => (self.after.wire as f64 / bytes as f64).clamp(1.0, 2.0),
        }
    }

    /// Whether its window limits it: it has most of it in flight. A window that has just become
    /// larger cannot be in use yet; taken at once for too large, it would be given to others, by
    /// all flows at the same time.
    pub fn is_held(&self) -> bool {
        let Some(rtt) = self.recent.or(self.rtt) else { return false };
        let flight = self.rate / self.overhead() * rtt.as_secs_f64() / 8.0;
        self.set > 0 && flight >= HELD * self.limit
    }

    /// Whether its window is still on its way to `window`, and it fills it or is about to begin.
    pub fn grows(&self, window: u32, now: Instant) -> bool {
        let begins = self.rate <= 0.0 && self.is_young(self.born, now);
        self.is_below(window) && (self.fills() || begins)
    }

    /// Whether it fills a window that is still on its way to the one that it was given.
    pub fn fills_growing(&self) -> bool {
        self.is_below(self.set) && self.fills()
    }

    /// Whether its window is still on its way to `window`, and not its receiver's own.
    fn is_below(&self, window: u32) -> bool {
        self.written.saturating_add(self.segment) <= window && self.written < self.asked
    }

    /// Whether much of the window that was written was acknowledged of late.
    fn fills(&self) -> bool {
        self.acked >= FILLS * f64::from(self.written)
    }

    /// Takes note of its beginning.
    pub fn grow_older(&mut self, now: Instant) {
        if self.born == Instant::ZERO {
            self.born = now;
        }
        if self.began == Instant::ZERO && self.last != Instant::ZERO {
            self.began = now;
        }
    }

    /// Whether it has sent nothing, and was not there long ago.
    pub fn is_beginner(&self, now: Instant) -> bool {
        self.last == Instant::ZERO && self.is_young(self.born, now)
    }

    /// Rate in bit/s that it counts for beside flows that their windows limit. One that has paused
    /// counts for nothing: what it left would be used by nobody. A rate is a mean, which a window
    /// that grows is ahead of: many flows that counted for that alone would all be given too much.
    pub fn demand(&self, now: Instant) -> f64 {
        if self.has_paused(now) {
            return 0.0;
        }
        let goes_on = self.fills() && now.saturating_since(self.began) >= LONGER;
        let written = if goes_on { f64::from(self.written) } else { 0.0 };
        (self.rate * ROOM).max(self.beginning(now)).max(self.rate_of(written))
    }

    /// Whether none of its data passed for longer than a round trip.
    fn has_paused(&self, now: Instant) -> bool {
        let trip = self.recent.or(self.rtt).unwrap_or_default();
        !self.has_sent() && now.saturating_since(self.last) > trip
    }

    /// Rate in bit/s on the wire with so many bytes of data in a round trip; 0 while that is not
    /// known.
    fn rate_of(&self, bytes: f64) -> f64 {
        let rtt = self.rtt.map_or(f64::INFINITY, |rtt| rtt.as_secs_f64().max(1e-3));
        bytes * self.overhead() * 8.0 / rtt
    }

    /// Rate in bit/s that it counts for at least because it has just begun: what a sender sends
    /// in its first round. If many that begin together counted for what they have so far, each
    /// would be given all that is free.
    fn beginning(&self, now: Instant) -> f64 {
        match self.began < now && self.is_young(self.began, now) {
            true => self.rate_of(FIRST_ROUND * f64::from(self.segment)),
            false => 0.0,
        }
    }

    fn is_young(&self, since: Instant, now: Instant) -> bool {
        now.saturating_since(since) < YOUNG.max(self.rtt.unwrap_or_default() * YOUNG_RTTS)
    }

    /// Whether its window is above what it was given and stays there while every segment is
    /// acknowledged alone. The right edge does not go back; where a segment is less than the unit
    /// of the field, rounding up to that takes the edge on by as much as each acknowledgement.
    pub fn needs_pairs(&self) -> bool {
        self.set > 0 && self.written > self.set && self.segment < 1 << self.scale
    }

    /// `share` bytes on the wire in segments.
    pub fn segments(&self, share: f64) -> f64 {
        (share / self.overhead()).min(f64::from(MAX_WINDOW)) / f64::from(self.segment)
    }

    /// The window in bytes of so many segments. The field counts in units of 2^scale and is rounded
    /// down to them.
    pub fn window(&self, segments: f64) -> u32 {
        let quantum = (1u32 << self.scale) - 1;
        let bytes = segments * f64::from(self.segment);
        (bytes as u32).saturating_add(quantum).min(MAX_WINDOW)
    }
}

impl Counters {
    fn of(connection: &Connection, direction: Direction) -> Counters {
        let half = connection.half(direction);
        Counters {
            bytes: half.bytes,
            wire: half.wire,
            acked: half.acked,
            rtt: connection.half.map(|half| (half.rtt.sum, half.rtt.count)),
        }
    }
}

/// The mean round-trip times of both halves between two readings; `None` where there was no sample.
fn means(before: &Counters, after: &Counters) -> [Option<Duration>; 2] {
    let mean = |way: usize| {
        let [(old, first), (new, last)] = [before.rtt[way], after.rtt[way]];
        let count = last.wrapping_sub(first);
        let sum = new.checked_sub(old).filter(|_| count > 0)?;
        Some(Duration::from_nanos(sum / u64::from(count)))
    };
    [mean(0), mean(1)]
}
