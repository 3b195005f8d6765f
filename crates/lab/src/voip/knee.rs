//! The places of a sweep at which a network is full: the throughput levels off, the latency climbs.

use crate::measured::Row;

/// Key of the place where the throughput levels off.
pub const LEVELS_OFF: &str = "levels_off";
/// Key of the place from which the latency climbs.
pub const CLIMBS: &str = "climbs";

/// Key of the place up to which the meta packets of a flow rise.
pub const META_RISE: &str = "meta_rise";

/// Share of the greatest value of a sweep at which a curve counts as level: talkers begin and end
/// at random, which moves single points by some per cent.
const LEVEL: f64 = 0.95;
/// Latency above that of the first place, in ms, that counts as climbing: a third of the 150 ms
/// that the rules allow.
const CLIMB: f64 = 50.0;

/// The flows injected at the first place of `sweep` with 95 % of the greatest throughput, the same
/// of the meta packets of a flow, and at the first place whose mean latency is 50 ms above that of
/// the first; the medians of one treatment, in the order of their places. What the sweep does not
/// reach is left out.
pub fn read(sweep: &[&Row]) -> Vec<(String, f64)> {
    let curve = |key: &str| -> Vec<(f64, f64)> {
        sweep.iter().filter_map(|row| Some((row.x, row.get(key)?))).collect()
    };
    let latency = curve("latency");
    let first = latency.first().map_or(0.0, |(_, value)| *value);
    let climb = latency.iter().find(|(_, value)| *value > first + CLIMB).map(|(x, _)| *x);
    let named = [
        (LEVELS_OFF, level(&curve("throughput"))),
        (META_RISE, level(&curve("net_aggregated"))),
        (CLIMBS, climb),
    ];
    named.into_iter().filter_map(|(key, at)| Some((key.to_owned(), at?))).collect()
}

/// The first place of `curve` near its greatest value; `None` where it still rises at the end.
fn level(curve: &[(f64, f64)]) -> Option<f64> {
    let most = curve.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    let (x, _) = curve.iter().find(|(_, value)| *value >= LEVEL * most)?;
    curve.last().is_some_and(|(last, _)| last != x).then_some(*x)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::{Measured, SweepPoint};

    fn places(curve: &[(f64, f64, f64)]) -> Vec<(String, f64)> {
        let row = |(x, throughput, latency): &(f64, f64, f64)| {
            let metrics =
                vec![("throughput".to_owned(), *throughput), ("latency".to_owned(), *latency)];
            Row::new(&SweepPoint::new("s", "t", *x, 1.0), &[&Measured { metrics, series: vec![] }])
        };
        let rows: Vec<_> = curve.iter().map(row).collect();
        read(&rows.iter().collect::<Vec<_>>())
    }

    #[test]
    fn a_full_network_is_read_where_throughput_is_level_and_latency_has_left_the_ground() {
        let curve =
            [(4.0, 100.0, 2.0), (8.0, 200.0, 30.0), (12.0, 290.0, 90.0), (16.0, 300.0, 80.0)];
        let read = |key: &str, at: f64| (key.to_owned(), at);
        assert_eq!(places(&curve), [read(LEVELS_OFF, 12.0), read(CLIMBS, 12.0)]);
        assert_eq!(places(&curve[..2]), [], "it still rises");
    }
}
