//! The times at which HELLOs leave.
//!
//! Principle: at work a HELLO leaves once a period; at rest as often as a rate in bytes a second
//! allows, so that longer ones leave more seldom. What changed is said within [`SOON`], at most
//! [`TOKENS`] times in a row and then once a period, so that a flood of strangers brings about a
//! trickle. Times are drawn at random
//! within the last fifth of a pause, because stations that speak at the same time collide
//! (RFC 5148).

use sheaf_stage::{Duration, Instant};
use sheaf_wire::flow::mix;

/// A change is said within this time: a quarter of what a person notices, and long enough for ten
/// neighbours that answer the same HELLO to find slots of their own.
pub const SOON: Duration = Duration::from_millis(100);
/// Least time between two HELLOs.
pub const GAP: Duration = Duration::from_millis(200);
/// HELLOs out of turn that may leave in a row; one more each period.
pub const TOKENS: u32 = 4;
/// Time after the last frame for which a router counts as at work: a pause in a call's talk is
/// shorter.
pub const AT_WORK: Duration = Duration::from_secs(5);
/// HELLOs that leave at the pace of work after a start, after work, or where a newcomer was heard,
/// in case the first ones are lost. They announce the pause of rest: whoever heard only that the
/// next one comes after a short pause would take the long one for silence.
pub const EAGER: u32 = 4;
/// Longest pause: 255 tenths of a second, as a HELLO can say.
const LONGEST: Duration = Duration::from_millis(25_500);
/// The share of a pause within which it may end earlier, as one in so many.
const SPREAD: u32 = 5;
const TENTH: Duration = Duration::from_millis(100);

/// The times of one router's HELLOs.
#[derive(Clone, Debug)]
pub struct Timetable {
    period: Duration,
    rest_rate: u32,
    next: Instant,
    last: Option<Instant>,
    /// Work ends then.
    at_work: Instant,
    eager: u32,
    /// Time at which all HELLOs out of turn so far are paid for, one each period (the theoretical
    /// arrival time of the generic cell rate algorithm, ITU-T I.371).
    paid: Instant,
    random: Random,
}

impl Timetable {
    /// For HELLOs every `period` at work, and of `rest_rate` bytes a second at rest.
    pub fn new(period: Duration, rest_rate: u32, seed: u64, now: Instant) -> Timetable {
        let mut random = Random(seed);
        Timetable {
            period: period.clamp(TENTH, LONGEST),
            rest_rate: rest_rate.max(1),
            next: now + random.up_to(SOON),
            last: None,
            at_work: now,
            eager: EAGER,
            paid: now,
            random,
        }
    }

    /// Time of the next HELLO.
    pub fn next(&self) -> Instant {
        self.next
    }

    /// Most bytes of a frame with a HELLO at `now`, so that the longest pause keeps the rate.
    pub fn longest_frame(&self, now: Instant) -> usize {
        match self.is_at_work(now) {
            true => usize::MAX,
            false => {
                let bytes = u64::from(self.rest_rate) * LONGEST.as_millis() as u64 / 1000;
                (bytes - bytes / u64::from(SPREAD)) as usize
            }
        }
    }

    /// A HELLO in a frame of `len` bytes leaves at `now`; returns the tenths of a second within
    /// which the next one leaves, and those behind it.
    pub fn sent(&mut self, len: usize, now: Instant) -> u8 {
        // The mean pause keeps the rate although some end earlier.
        let millis = len as u64 * 1000 / u64::from(self.rest_rate);
        let shortest = Duration::from_millis(millis + 1);
        let rest = (shortest + shortest / (SPREAD - 1)).clamp(self.period, LONGEST);
        let pause = if self.is_at_work(now) { self.period } else { rest };
        let announced = if now < self.at_work { self.period } else { rest };
        self.eager = if now < self.at_work { EAGER } else { self.eager.saturating_sub(1) };
        let tenths = announced.as_millis().div_ceil(TENTH.as_millis()).clamp(1, 255) as u8;
        self.last = Some(now);
        self.next = now + pause - self.random.up_to(pause / SPREAD);
        tenths
    }

    /// Something is to be said soon.
    pub fn trigger(&mut self, now: Instant) {
        let gap = self.last.map_or(now, |last| now.max(last + GAP)) + self.random.up_to(SOON);
        let credit = self.period * (TOKENS - 1);
        let affordable = Instant::ZERO + self.paid.saturating_since(Instant::ZERO + credit);
        let soon = gap.max(affordable);
        // A HELLO that is due by then says it, too.
        if self.next <= soon.max(now + SOON) {
            return;
        }
        self.next = soon;
        self.paid = self.paid.max(soon) + self.period;
    }

    /// A newcomer was heard, which may lose what is said soon.
    pub fn greet(&mut self, now: Instant) {
        self.trigger(now);
        self.eager = EAGER;
    }

    /// Frames are shared at `now`.
    pub fn used(&mut self, now: Instant) {
        let was = self.is_at_work(now);
        self.at_work = now + AT_WORK;
        if !was {
            let since = self.last.unwrap_or(now) + self.period;
            self.next = self.next.min(since.max(now + self.random.up_to(SOON)));
        }
    }

    fn is_at_work(&self, now: Instant) -> bool {
        now < self.at_work || self.eager > 0
    }
}

/// The generator splitmix64 (Steele, Lea, Flood 2014): chance for times and places, no secrets.
#[derive(Clone, Debug)]
pub(crate) struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn number(&mut self) -> u64 {
        /// 2⁶⁴ divided by the golden ratio.
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// A time from 0 up to `limit`.
    fn up_to(&mut self, limit: Duration) -> Duration {
        let nanos = limit.as_nanos() as u64;
        Duration::from_nanos(((u128::from(self.number()) * u128::from(nanos)) >> 64) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_wire::hello::SILENT_PERIODS;

    const PERIOD: Duration = Duration::from_secs(1);

    fn table() -> Timetable {
        Timetable::new(PERIOD, 20, 7, Instant::ZERO)
    }

    /// Times and lengths of HELLOs of `len` bytes until `end`.
    fn run(table: &mut Timetable, len: usize, end: Instant) -> Vec<Instant> {
        let mut times = Vec::new();
        while table.next() < end {
            let now = table.next();
            let tenths = table.sent(len, now);
            assert!(table.next() > now && table.next() <= now + TENTH * tenths.into());
            times.push(now);
        }
        times
    }

    #[test]
    fn hellos_at_rest_keep_their_rate_whatever_their_length() {
        for len in [63, 100, 300, 408] {
            let mut table = table();
            run(&mut table, len, Instant::from_millis(10_000));
            let end = Instant::from_millis(3_610_000);
            let bytes = run(&mut table, len, end).len() * len;
            assert!(bytes <= 20 * 3_600, "{len}: {bytes}");
            assert!(bytes * 4 >= 20 * 3_600 * 3, "{len}: {bytes}");
            assert!(len <= table.longest_frame(end));
        }
    }

    #[test]
    fn at_work_a_hello_leaves_every_period_and_sooner_after_a_start() {
        let mut table = table();
        assert!(table.next() <= Instant::ZERO + SOON);
        let times = run(&mut table, 63, Instant::from_millis(4_000));
        assert!(times.len() >= 4, "{times:?}");
        run(&mut table, 63, Instant::from_millis(100_000));
        table.used(Instant::from_millis(100_000));
        assert!(table.next() <= Instant::from_millis(101_000));
        let pairs = run(&mut table, 63, Instant::from_millis(105_000));
        assert!(pairs.windows(2).all(|pair| pair[1] - pair[0] <= PERIOD));
    }

    #[test]
    fn three_lost_hellos_are_not_five_silent_periods_when_work_begins_or_ends_either() {
        let mut table = table();
        let mut sent = Vec::new();
        while table.next() < Instant::from_millis(300_000) {
            let now = table.next();
            sent.push((now, TENTH * table.sent(300, now).into()));
            // A call of a minute, between rests.
            if (Instant::from_millis(100_000)..Instant::from_millis(160_000)).contains(&now) {
                table.used(now);
            }
        }
        assert!(sent.len() > 60 && sent.iter().any(|(_, period)| *period == PERIOD));
        for window in sent.windows(5) {
            let (heard, period) = window[0];
            assert!(window[4].0 < heard + period * SILENT_PERIODS, "{window:?}");
        }
    }

    #[test]
    fn a_change_is_said_soon_and_a_flood_of_changes_once_a_period() {
        let mut table = table();
        run(&mut table, 63, Instant::from_millis(100_000));
        let start = table.next() + GAP;
        table.sent(63, table.next());
        table.trigger(start);
        assert!(table.next() <= start + SOON);
        let (mut sent, mut now) = (0, start);
        while now < start + PERIOD * 100 {
            now += Duration::from_millis(1);
            table.trigger(now);
            if now >= table.next() {
                table.sent(63, now);
                sent += 1;
            }
        }
        assert!((95..=110).contains(&sent), "{sent}");
    }
}
