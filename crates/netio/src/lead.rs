//! The lead by which a sleep should end before a moment, and the looking that it may cost.
//!
//! The kernel wakes a sleeper late by what it takes to wake a processor and a thread: 15 µs and
//! more, different from machine to machine, from hour to hour, and from short sleeps to long ones.
//! A sleep that ends earlier by a *lead* makes up for that. A lead as short as the quickest
//! wake-up costs nothing. A longer one makes more departures punctual, but a thread that woke
//! sooner than it had to looks at the clock for the rest of the time.
//!
//! [`Lead`] keeps a histogram of how late recent sleeps ended, so it knows for each lead how many
//! departures would be punctual and how much looking that takes on average. It takes the longest
//! lead that it can afford, up to the one that covers all but a five hundredth of the sleeps. What
//! it can afford is a credit that grows by [`SHARE`] of the time. So sparse departures, where every
//! one counts, get all the looking that helps, and dense ones only what is cheap. Where sleeps wait
//! for a busy processor, looking does not free it: the credit grows more slowly there, and not at
//! all where one of twenty sleeps does.

use sheaf_stage::{Duration, Instant};

/// Looking takes no more than one part of so many of a processor's time.
pub const SHARE: u64 = 50;
/// Longer than this nobody looks before a moment, in nanoseconds: it covers 99 of 100 wake-ups of a
/// virtual machine's processor (decision 6).
const MOST: u64 = 200_000;
/// Where one sleep of so many ends later than any lead covers, processors are busy.
const CALM: u64 = 20;
/// One sleep of so many may end later than the lead, where that can be afforded. A round trip has
/// two sleeps, so that this is 0.4 % of round trips.
const MISSES: u64 = 500;
/// The credit lasts for so many of the longest looks, so that a burst of departures after a pause
/// gets what the pause left.
const LOOKS: u64 = 16;
/// Steps from no lead to the longest.
const BINS: usize = 64;
/// After so many sleeps the older ones count half: more than [`MISSES`] several times over.
const MEMORY: u32 = 4096;
/// From here on a sleep is a long one: the kernel's tick (at 250 Hz) has been stopped, and whatever
/// the processor remembered is gone.
const LONG: Duration = Duration::from_millis(4);
/// The least sleep: ppoll(2) does not sleep at all for zero.
const LEAST: Duration = Duration::from_nanos(1);

/// A person's word on looking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spin {
    /// As long as it helps, and for no more than [`SHARE`] of a processor.
    #[default]
    Frugal,
    /// As long as it helps, but for no more than this before a moment, whatever it costs; zero for
    /// never.
    UpTo(Duration),
}

/// Decides how long before a moment sleep ends.
#[derive(Debug)]
pub struct Lead {
    /// The longest lead, in nanoseconds.
    most: u64,
    /// Looking is bounded to [`SHARE`].
    frugal: bool,
    short: Latenesses,
    long: Latenesses,
    /// Sleeps that ended in time to be learnt from, and later ones.
    calm: u32,
    busy: u32,
    /// Looking that is paid for, in nanoseconds, at `paid`.
    credit: u64,
    paid: Instant,
}

impl Lead {
    /// Nothing is known yet, and the credit is full.
    pub fn new(spin: Spin) -> Lead {
        let (most, frugal) = match spin {
            Spin::Frugal => (MOST, true),
            Spin::UpTo(most) => (u64::try_from(most.as_nanos()).unwrap_or(u64::MAX), false),
        };
        Lead {
            most,
            frugal,
            short: Latenesses::new(),
            long: Latenesses::new(),
            calm: 0,
            busy: 0,
            credit: most.saturating_mul(LOOKS),
            paid: Instant::ZERO,
        }
    }

    /// Time to sleep at `now` for a moment that is `left` away. Zero: look at once.
    pub fn sleep(&mut self, left: Duration, now: Instant) -> Duration {
        self.pay(now);
        let each = if self.frugal { self.credit / LOOKS } else { u64::MAX };
        let latenesses = if left < LONG { &self.short } else { &self.long };
        let lead = latenesses.lead(each, self.width()).min(self.most);
        let sleep = left.saturating_sub(Duration::from_nanos(lead));
        // So short a time is slept through where looking at all of it is too dear.
        if sleep.is_zero() && left > Duration::from_nanos(each) { LEAST } else { sleep }
    }

    /// A sleep of `slept` that nothing ended sooner ended so `late`.
    ///
    /// Whoever was later than is ever looked waited for a processor, not for its waking up, and a
    /// longer lead would have taken even more from whoever had it.
    pub fn woke(&mut self, slept: Duration, late: Duration) {
        let late = u64::try_from(late.as_nanos()).unwrap_or(u64::MAX);
        if self.calm + self.busy >= MEMORY {
            (self.calm, self.busy) = (self.calm / 2, self.busy / 2);
        }
        if late > self.most {
            self.busy += 1;
            return;
        }
        self.calm += 1;
        let bin = (late / self.width()) as usize;
        let latenesses = if slept < LONG { &mut self.short } else { &mut self.long };
        latenesses.learn(bin.min(BINS - 1));
    }

    /// So much `time` went by with looking.
    pub fn looked(&mut self, time: Duration) {
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.credit = self.credit.saturating_sub(time);
    }

    /// Adds to the credit what the time since the last call is worth.
    fn pay(&mut self, now: Instant) {
        let elapsed = u64::try_from((now - self.paid).as_nanos()).unwrap_or(u64::MAX);
        self.paid = now;
        let (busy, all) = (u64::from(self.busy), u64::from(self.calm + self.busy).max(1));
        let worth = all.saturating_sub(busy * CALM);
        let full = self.most.saturating_mul(LOOKS);
        let pay = (elapsed / SHARE).min(full) / all * worth;
        self.credit = self.credit.saturating_add(pay).min(full);
    }

    /// Nanoseconds of a bin.
    fn width(&self) -> u64 {
        (self.most / BINS as u64).max(1)
    }
}

/// Lateness of recent sleeps, from zero to the longest lead.
#[derive(Debug)]
struct Latenesses {
    bins: [u32; BINS],
    count: u32,
}

impl Latenesses {
    /// One sleep that was as late as can be: on the safe side as long as nothing is known.
    fn new() -> Latenesses {
        let mut bins = [0; BINS];
        bins[BINS - 1] = 1;
        Latenesses { bins, count: 1 }
    }

    fn learn(&mut self, bin: usize) {
        if self.count >= MEMORY {
            self.bins.iter_mut().for_each(|bin| *bin /= 2);
            self.count = self.bins.iter().sum();
        }
        self.bins[bin] += 1;
        self.count += 1;
    }

    /// The longest lead, in nanoseconds, that helps and whose looking takes no more than `each` on
    /// average; a bin is as wide as `width`.
    ///
    /// A lead that is longer by a bin makes all those look for that long who were awake by then.
    fn lead(&self, each: u64, width: u64) -> u64 {
        let count = u64::from(self.count);
        let afford = u128::from(each) * u128::from(count);
        let (mut awake, mut looks, mut lead) = (0, 0_u128, 0);
        for bin in self.bins {
            if (count - awake) * MISSES <= count {
                break;
            }
            awake += u64::from(bin);
            looks += u128::from(awake) * u128::from(width);
            if looks > afford {
                break;
            }
            lead += width;
        }
        lead
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Draws that do not depend on the order of the tests.
    struct Draws(u64);

    impl Draws {
        /// From 0 to 1.
        fn unit(&mut self) -> f64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            (z >> 11) as f64 / (1_u64 << 53) as f64
        }

        /// Microseconds by which a sleep of a virtual machine ends late (decision 6): after a short
        /// one 26 at least, 34 at p50, 77 at p99; after a long one 34, 58 and 191.
        fn late(&mut self, slept: Duration) -> f64 {
            let (least, body, tail) =
                if slept < LONG { (26.0, 16.0, 38.0) } else { (34.0, 48.0, 118.0) };
            let unit = self.unit();
            let fourth = unit * unit * unit * unit;
            least + body * unit + tail * fourth * fourth
        }
    }

    /// Latenesses of departures in nanoseconds, in order of size, and the share of the time that
    /// went by with looking.
    struct Run {
        late: Vec<u64>,
        looked: f64,
    }

    impl Run {
        fn at(&self, share: f64) -> u64 {
            self.late[(self.late.len() as f64 * share) as usize]
        }
    }

    /// Departures `gap` apart, in virtual time; a share `busy` of sleeps waits for a processor.
    fn run(spin: Spin, gap: Duration, busy: f64) -> Run {
        const DEPARTURES: u64 = 20_000;
        let (mut lead, mut draws) = (Lead::new(spin), Draws(1));
        let (mut now, mut looked, mut late) = (Instant::ZERO, Duration::ZERO, Vec::new());
        for number in 1..=DEPARTURES {
            let due = Instant::ZERO + gap * number as u32;
            let sleep = lead.sleep(due - now, now);
            if now < due && !sleep.is_zero() {
                let waits = if draws.unit() < busy { 1000.0 + 4000.0 * draws.unit() } else { 0.0 };
                let behind = draws.late(sleep) + waits;
                let behind = Duration::from_nanos((behind * 1000.0) as u64);
                now += sleep + behind;
                lead.woke(sleep, behind);
            }
            if now < due {
                looked += due - now;
                lead.looked(due - now);
                now = due;
            }
            late.push((now - due).as_nanos() as u64);
        }
        // What was learnt until then is not what is asked.
        let mut late = late.split_off(late.len() / 4);
        late.sort_unstable();
        Run { late, looked: looked.as_secs_f64() / (now - Instant::ZERO).as_secs_f64() }
    }

    const NEVER: Spin = Spin::UpTo(Duration::ZERO);
    const WHATEVER: Spin = Spin::UpTo(Duration::from_nanos(MOST));

    #[test]
    fn sparse_departures_are_as_punctual_as_with_looking_at_any_price() {
        let gap = Duration::from_millis(10);
        let (frugal, whatever) = (run(Spin::Frugal, gap, 0.0), run(WHATEVER, gap, 0.0));
        assert_eq!((frugal.at(0.5), frugal.at(0.9)), (0, 0));
        assert!(frugal.at(0.99) <= whatever.at(0.99) + MOST / BINS as u64 * 2);
        assert!(frugal.looked < 0.02, "{}", frugal.looked);
        assert!(run(NEVER, gap, 0.0).at(0.5) > 50_000);
    }

    #[test]
    fn a_full_link_gets_the_looking_that_is_cheap_and_no_more() {
        // 1514 bytes at 10, 100 and 400 Mbit/s.
        for (gap, p50) in [(1_211_200, 0), (121_120, 15_000), (30_280, 60_000)] {
            let gap = Duration::from_nanos(gap);
            let (frugal, never) = (run(Spin::Frugal, gap, 0.0), run(NEVER, gap, 0.0));
            assert!(frugal.looked < 0.0205, "{gap:?}: {}", frugal.looked);
            assert!(frugal.at(0.5) <= p50, "{gap:?}: {}", frugal.at(0.5));
            assert!(frugal.at(0.5) < never.at(0.5) && frugal.at(0.99) <= never.at(0.99));
            // At any price it takes far more.
            assert!(run(WHATEVER, gap, 0.0).looked > 2.0 * frugal.looked, "{gap:?}");
        }
    }

    #[test]
    fn who_waited_for_a_busy_processor_looks_for_no_longer_and_pays_less() {
        let gap = Duration::from_millis(10);
        let (calm, busy) = (run(Spin::Frugal, gap, 0.0), run(Spin::Frugal, gap, 0.2));
        assert!(busy.looked < calm.looked / 10.0, "{} of {}", busy.looked, calm.looked);
        // The lead that costs nothing is left.
        assert!(busy.at(0.5) < run(NEVER, gap, 0.2).at(0.5));
    }

    /// The lead in microseconds after `count` sleeps that end late by `late(n)`, at any price.
    fn learnt(count: u64, late: impl Fn(u64) -> u64) -> u64 {
        let mut lead = Lead::new(WHATEVER);
        let slept = Duration::from_millis(1);
        (0..count).for_each(|n| lead.woke(slept, Duration::from_micros(late(n))));
        (slept - lead.sleep(slept, Instant::ZERO)).as_micros() as u64
    }

    #[test]
    fn at_any_price_the_lead_is_what_all_but_a_five_hundredth_of_the_sleeps_are_late() {
        assert_eq!(learnt(0, |_| 0), 200, "nothing is known");
        assert!((40..=44).contains(&learnt(9000, |_| 40)));
        // A fiftieth is late by 120 us, so that is what must be covered; one of 3000 is not.
        assert!((120..=124).contains(&learnt(9000, |n| if n % 50 == 0 { 120 } else { 30 })));
        assert!((30..=34).contains(&learnt(9000, |n| if n % 3000 == 0 { 120 } else { 30 })));
        // A machine that became slower is learnt again.
        assert!((90..=94).contains(&learnt(30_000, |n| if n < 9000 { 30 } else { 90 })));
        assert!((30..=34).contains(&learnt(9000, |n| if n % 3 == 0 { 5000 } else { 30 })));
    }

    #[test]
    fn a_spin_of_zero_never_looks_and_no_spin_sleeps_beyond_the_moment() {
        for spin in [NEVER, WHATEVER, Spin::Frugal, Spin::UpTo(Duration::MAX)] {
            let mut lead = Lead::new(spin);
            for n in 0..10_000 {
                let left = Duration::from_nanos(n * 977 % 10_000_000);
                let now = Instant::from_nanos(n * 1_000_000);
                let sleep = lead.sleep(left, now);
                assert!(sleep <= left.max(LEAST), "{spin:?} {left:?}: {sleep:?}");
                assert!(spin != NEVER || sleep == left.max(LEAST) || left.is_zero());
                lead.woke(sleep, Duration::from_nanos(n * 7919 % 400_000));
                lead.looked(Duration::from_nanos(n * 31));
            }
        }
    }
}
