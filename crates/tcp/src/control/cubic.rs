//! CUBIC (RFC 9438) with HyStart (Ha and Rhee, 2008), in whole numbers as in Linux.
//!
//! Behind a loss the window grows as a cubic function of the time since then: fast towards the
//! window at which the loss was, slowly near it, faster again beyond. Slow start ends before
//! losses where acknowledgements arrive in a train as long as half of the least round trip, or
//! where round trips have become longer. Linux has this HyStart and not HyStart++ (RFC 9406),
//! which would keep on growing for some round trips.

use super::contract::{Connection, Control, Sample, Window};
use sheaf_stage::{Duration, Instant};

/// Share of the window that remains after a loss, in 1024ths: 0.7.
const BETA: u64 = 717;
/// The function's steepness, in 1024ths: 0.4.
const STEEPNESS: u64 = 410;
/// Time is counted in 1024ths of a second, so its cube in 2³⁰ths.
const CUBE: u32 = 30;
const TICKS: u64 = 1024;
/// Eighths of a window whose delivery raises Reno's by one: 3 (1 - β) / (1 + β), inverted.
const RENO_EIGHTHS: u64 = 8 * (1024 + BETA) / 3 / (1024 - BETA);
/// Deliveries that raise the window by one where the function is flat, in windows.
const FLAT: u64 = 100;
/// The same before the first loss, in segments: by a twentieth each round trip.
const FIRST: u64 = 20;
/// Deliveries that raise the window by one at least: it grows by half each round trip at most.
const LEAST: u64 = 2;
/// Time for which the growth is not computed anew while the window stays the same.
const STALE: Duration = Duration::from_millis(31);

/// HyStart: windows below this grow in any case.
const LOW_WINDOW: u32 = 16;
/// Acknowledgements that follow each other within this time are a train.
const TRAIN: Duration = Duration::from_millis(2);
/// Time that the sender's own bursts add to a train.
const BURST: Duration = Duration::from_millis(1);
/// Round trips measured before a longer delay counts.
const TRIPS: u32 = 8;
/// Bounds of the increase of the delay that counts, which is an eighth of the least one.
const LONGER: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(16));
/// Time after an epoch's beginning in which delays are those of the recovery.
const SETTLE: Duration = Duration::from_secs(1);

/// CUBIC's state.
#[derive(Clone, Debug, Default)]
pub(super) struct Cubic {
    /// Window at the last loss.
    most: u32,
    epoch: Option<Epoch>,
    /// Deliveries that raise the window by one, when that was computed, and for which window.
    each: u64,
    computed: Option<(Instant, u32)>,
    least: Option<Duration>,
    start: HyStart,
}

/// Growth since the last loss.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    since: Instant,
    /// Ticks until the window is `origin`.
    until: u64,
    origin: u32,
    /// Window that Reno would have, and deliveries since it grew.
    reno: u32,
    delivered: u64,
}

/// End of slow start by delays.
#[derive(Clone, Debug, Default)]
struct HyStart {
    found: bool,
    /// The round ends when this is acknowledged.
    round_end: u64,
    round_start: Instant,
    last: Instant,
    least: Option<Duration>,
    trips: u32,
}

impl Control for Cubic {
    fn reduce(&mut self, window: &Window, _: &Connection) -> u32 {
        self.epoch = None;
        // Fast convergence (RFC 9438, section 4.7).
        self.most = if window.size < self.most {
            (u64::from(window.size) * (1024 + BETA) / 2048) as u32
        } else {
            window.size
        };
        ((u64::from(window.size) * BETA / 1024) as u32).max(2)
    }

    fn acknowledge(
        &mut self,
        window: &mut Window,
        sample: &Sample,
        _: &Connection,
        used: bool,
        now: Instant,
    ) {
        if !used {
            return;
        }
        let mut delivered = sample.delivered;
        if window.is_slow_start() {
            delivered = window.slow_start(delivered);
        }
        if delivered > 0 {
            self.update(window.size, delivered, now);
            window.avoid_congestion(self.each as u32, delivered);
        }
    }

    fn round_trip(
        &mut self,
        window: &mut Window,
        trip: Duration,
        connection: &Connection,
        now: Instant,
    ) {
        if self.epoch.is_some_and(|epoch| now - epoch.since < SETTLE) {
            return;
        }
        let least = self.least.map_or(trip, |least| least.min(trip));
        self.least = Some(least);
        if !self.start.found && window.is_slow_start() {
            self.start.step(trip, least, window, connection, now);
            if self.start.found {
                window.threshold = window.size;
            }
        }
    }

    fn time_out(&mut self) {
        *self = Cubic { least: self.least, ..Cubic::default() };
    }
}

impl Cubic {
    /// Computes how many deliveries raise a window of `size` by one.
    fn update(&mut self, size: u32, delivered: u32, now: Instant) {
        let most = self.most;
        let epoch = self.epoch.get_or_insert_with(|| {
            let missing = u64::from(most.saturating_sub(size));
            Epoch {
                since: now,
                until: cube_root((missing << (10 + CUBE)) / STEEPNESS),
                origin: most.max(size),
                reno: size,
                delivered: 0,
            }
        });
        epoch.delivered += u64::from(delivered);
        if self.computed.is_some_and(|(at, of)| of == size && now - at <= STALE) {
            return;
        }
        self.computed = Some((now, size));
        // The window should be right one round trip from now.
        let time = now - epoch.since + self.least.unwrap_or_default();
        let ticks = (time.as_nanos() as u64).saturating_mul(TICKS) / 1_000_000_000;
        let distance = ticks.abs_diff(epoch.until);
        let cube = u128::from(distance).pow(3) * u128::from(STEEPNESS);
        let change = u64::try_from(cube >> (10 + CUBE)).unwrap_or(u64::MAX);
        let origin = u64::from(epoch.origin);
        let target = if ticks < epoch.until {
            origin.saturating_sub(change)
        } else {
            origin.saturating_add(change)
        };
        let window = u64::from(size);
        let mut each = match target.checked_sub(window) {
            Some(above) if above > 0 => window / above,
            _ => FLAT * window,
        };
        if most == 0 {
            each = each.min(FIRST);
        }
        // Never slower than Reno (RFC 9438, section 4.3).
        let step = (window * RENO_EIGHTHS / 8).max(1);
        epoch.reno += (epoch.delivered / step) as u32;
        epoch.delivered %= step;
        if epoch.reno > size {
            each = each.min(window / u64::from(epoch.reno - size));
        }
        self.each = each.max(LEAST);
    }
}

impl HyStart {
    fn step(
        &mut self,
        trip: Duration,
        least: Duration,
        window: &Window,
        connection: &Connection,
        now: Instant,
    ) {
        if connection.acknowledged > self.round_end || self.round_end == 0 {
            *self = HyStart {
                round_end: connection.next,
                round_start: now,
                last: now,
                ..HyStart::default()
            };
        }
        // Rounds are counted from the first one, or a train would begin in the middle of one.
        if window.size < LOW_WINDOW {
            return;
        }
        if now - self.last <= TRAIN {
            self.last = now;
            self.found |= now - self.round_start > (least + BURST) / 2;
        }
        let round = self.least.map_or(trip, |least| least.min(trip));
        self.least = Some(round);
        if self.trips < TRIPS {
            self.trips += 1;
        } else if round > least + (least / 8).clamp(LONGER.0, LONGER.1) {
            self.found = true;
        }
    }
}

/// The largest whole number whose cube is not above `value`.
fn cube_root(value: u64) -> u64 {
    let mut root = 0u64;
    // The root of the largest value has 22 bits.
    for bit in (0..22).rev() {
        let larger = root | 1 << bit;
        if larger.checked_pow(3).is_some_and(|cube| cube <= value) {
            root = larger;
        }
    }
    root
}

#[cfg(test)]
mod tests {
    use super::super::contract::Phase;
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn connection() -> Connection {
        Connection {
            phase: Phase::Open,
            in_flight: 0,
            delivered: 0,
            delivered_at: Instant::ZERO,
            acknowledged: 0,
            next: 0,
            smoothed: None,
            release: Instant::ZERO,
            mss: 1448,
        }
    }

    #[test]
    fn roots_are_whole_and_exact() {
        for (value, root) in [(0, 0), (1, 1), (7, 1), (8, 2), (26, 2), (27, 3), (u64::MAX, 2642245)]
        {
            assert_eq!(cube_root(value), root, "{value}");
        }
    }

    /// The window at each second after a loss at `most`, with a round trip of 100 ms.
    fn growth(most: u32, seconds: u32) -> Vec<u32> {
        let (mut cubic, connection) = (Cubic::default(), connection());
        let mut window = Window { size: most, threshold: most, count: 0 };
        window.threshold = cubic.reduce(&window, &connection);
        window.size = window.threshold;
        cubic.round_trip(&mut window, 100 * MS, &connection, Instant::ZERO);
        let mut sizes = Vec::new();
        let mut now = Instant::ZERO;
        for _ in 0..seconds {
            for _ in 0..10 {
                for _ in 0..window.size {
                    let sample = Sample { delivered: 1, ..Sample::default() };
                    cubic.acknowledge(&mut window, &sample, &connection, true, now);
                    now += 100 * MS / window.size;
                }
            }
            sizes.push(window.size);
        }
        sizes
    }

    #[test]
    fn the_window_follows_the_cubic_function_of_rfc_9438() {
        let most = 1000.0f64;
        let until = libm::cbrt(most * 0.3 / 0.4);
        for (second, size) in (1u32..).zip(growth(1000, 15)) {
            let expected = 0.4 * libm::pow(f64::from(second) - until, 3.0) + most;
            let error = f64::from(size) / expected - 1.0;
            assert!(error.abs() < 0.03, "{second} s: {size} for {expected:.0}");
        }
    }

    #[test]
    fn a_small_window_grows_as_renos() {
        // 0.53 segments each round trip (RFC 9438, section 4.3): 7 + 0.53 × 20 after 20 of them.
        let size = growth(10, 2)[1];
        assert!((16..=18).contains(&size), "{size}");
    }

    #[test]
    fn a_second_loss_below_the_first_leaves_room_to_others() {
        let (mut cubic, connection) = (Cubic::default(), connection());
        let window = Window { size: 100, threshold: 100, count: 0 };
        assert_eq!(cubic.reduce(&window, &connection), 70);
        assert_eq!(cubic.most, 100);
        let window = Window { size: 90, ..window };
        assert_eq!(cubic.reduce(&window, &connection), 63);
        assert_eq!(cubic.most, 76, "90 × 0.85");
    }

    #[test]
    fn slow_start_ends_where_round_trips_grow_or_trains_are_long() {
        for (step, each, ends) in [
            // Spread acknowledgements of a constant delay do not end it.
            (Duration::ZERO, 3 * MS, false),
            (2 * MS, 3 * MS, true),
            (Duration::ZERO, MS, true),
        ] {
            let (mut cubic, mut connection) = (Cubic::default(), connection());
            let mut window = Window { size: 20, threshold: u32::MAX, count: 0 };
            let (mut now, mut trip) = (Instant::ZERO, 40 * MS);
            for round in 1..6 {
                (connection.acknowledged, connection.next) = (round * 10, round * 10 + 9);
                for _ in 0..25 {
                    cubic.round_trip(&mut window, trip, &connection, now);
                    now += each;
                }
                trip += step;
            }
            assert_eq!(window.threshold == 20, ends, "{step:?} {each:?}");
        }
    }
}
