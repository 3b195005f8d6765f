//! Shares of the free capacity: windows from capacity, flows and round-trip times.
//!
//! Source: "An OpenWRT solution for future wireless homes" (SAP-LAW), with C − U(t) as `free` and
//! n(t) as the number of claims that are active:
//! * formula 1, the same window for all: (C − U) / n, as a rate over the mean RTT. It favours short
//!   round-trip times, since rate is window / RTT;
//! * formula 2, weighted by round-trip time: (C − U) · RTT_i / Σ(RTT_i / mean RTT), the sum being
//!   n: the same rate for all;
//! * max-min (Bertsekas and Gallager, Data Networks, 6.5.2): what a flow leaves of its share goes
//!   to those that want more, in equal parts.

use sheaf_stage::Duration;

/// The division of the free capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Formula {
    /// Formula 1: one window for all flows.
    EqualWindow,
    /// Formula 2: one rate for all flows.
    EqualRate,
    /// One rate for all that want it, where nobody is counted for more than it uses.
    MaxMin,
    /// This window in bytes for every flow, whatever the capacity.
    Fixed(u32),
}

/// The demand of one flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim {
    /// Its round-trip time without queues.
    pub rtt: Duration,
    /// Rate in bit/s where something else than its share limits it; infinite where nothing
    /// does; 0 for a flow that is not active and does not count.
    pub demand: f64,
}

impl Claim {
    fn is_active(&self) -> bool {
        self.demand > 0.0
    }
}

/// Writes the window of each claim, in bytes as on the wire, to `windows`; `free` is in bit/s. A
/// flow that is not active gets what it would have.
pub fn divide(formula: Formula, free: f64, claims: &[Claim], windows: &mut Vec<f64>) {
    windows.clear();
    let active = || claims.iter().filter(|claim| claim.is_active());
    let count = active().count().max(1) as f64;
    match formula {
        Formula::EqualWindow => {
            let counted = active().count();
            let sum: f64 = active().map(|claim| claim.rtt.as_secs_f64()).sum();
            let mean = if counted > 0 { sum / counted as f64 } else { mean_rtt(claims) };
            windows.extend(claims.iter().map(|_| free / count * mean / 8.0));
        }
        Formula::EqualRate => {
            windows.extend(claims.iter().map(|claim| bytes(free / count, claim.rtt)));
        }
        Formula::MaxMin => {
            let level = level(free, claims);
            windows.extend(claims.iter().map(|claim| bytes(level, claim.rtt)));
        }
        Formula::Fixed(window) => windows.extend(claims.iter().map(|_| f64::from(window))),
    }
}

/// The rate in bit/s that no flow is held below: flows that want less get what they want, the
/// others get this. Where all together want less than `free`, the largest could have the rest as
/// well.
pub fn level(free: f64, claims: &[Claim]) -> f64 {
    let mut demands: Vec<f64> =
        claims.iter().filter(|claim| claim.is_active()).map(|claim| claim.demand).collect();
    demands.sort_unstable_by(f64::total_cmp);
    let mut left = free.max(0.0);
    for (index, demand) in demands.iter().enumerate() {
        let share = left / (demands.len() - index) as f64;
        if *demand >= share {
            return share;
        }
        left -= demand;
    }
    demands.last().copied().unwrap_or(0.0) + left
}

fn mean_rtt(claims: &[Claim]) -> f64 {
    let sum: f64 = claims.iter().map(|claim| claim.rtt.as_secs_f64()).sum();
    if claims.is_empty() { 0.0 } else { sum / claims.len() as f64 }
}

fn bytes(rate: f64, rtt: Duration) -> f64 {
    rate * rtt.as_secs_f64() / 8.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn claim(millis: u64, demand: f64) -> Claim {
        Claim { rtt: Duration::from_millis(millis), demand }
    }

    fn windows(formula: Formula, free: f64, claims: &[Claim]) -> Vec<f64> {
        let mut windows = Vec::new();
        divide(formula, free, claims, &mut windows);
        windows
    }

    #[test]
    fn formula_1_gives_one_window_and_formula_2_one_rate() {
        let claims = [claim(10, f64::INFINITY), claim(30, f64::INFINITY)];
        // 8 Mbit/s: 4 Mbit/s each; over the mean RTT of 20 ms that is 10 kB.
        assert_eq!(windows(Formula::EqualWindow, 8e6, &claims), [10_000.0, 10_000.0]);
        assert_eq!(windows(Formula::EqualRate, 8e6, &claims), [5_000.0, 15_000.0]);
        assert_eq!(windows(Formula::Fixed(7), 8e6, &claims), [7.0, 7.0]);
    }

    #[test]
    fn formula_2_as_printed_is_the_same_rate_for_all() {
        let rtts = [10.0, 35.0, 200.0];
        let claims = rtts.map(|millis| claim(millis as u64, f64::INFINITY));
        let mean = rtts.iter().sum::<f64>() / 3.0;
        let sum: f64 = rtts.iter().map(|rtt| rtt / mean).sum();
        for (window, rtt) in windows(Formula::EqualRate, 9e6, &claims).iter().zip(rtts) {
            let printed = 9e6 * (rtt / 1e3) / sum / 8.0;
            assert!((window - printed).abs() < 1e-6, "{window} is not {printed}");
        }
    }

    #[test]
    fn what_one_flow_leaves_goes_to_the_others() {
        let claims = [claim(80, 1e6), claim(80, f64::INFINITY), claim(80, f64::INFINITY)];
        assert_eq!(level(9e6, &claims), 4e6);
        assert_eq!(level(9e6, &[claim(80, 1e6), claim(80, 2e6)]), 8e6, "all content: the rest");
        assert_eq!(windows(Formula::MaxMin, 9e6, &claims), [40_000.0; 3]);
    }

    proptest! {
        #[test]
        fn the_level_uses_up_what_is_free_and_no_more(
            free in 1e5f64..1e9,
            demands in proptest::collection::vec(
                prop_oneof![1.0f64..1e8, Just(f64::INFINITY)],
                1..50
            ),
        ) {
            let claims: Vec<_> = demands.iter().map(|demand| claim(50, *demand)).collect();
            let level = level(free, &claims);
            let used: f64 = demands.iter().map(|demand| demand.min(level)).sum();
            let wanted: f64 = demands.iter().sum();
            prop_assert!((used - free.min(wanted)).abs() < free * 1e-9);
        }
    }
}
