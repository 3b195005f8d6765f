//! The flows that a treatment supports, read off its sweep.
//!
//! Supported flows over injected flows rise, peak and fall. What a sweep shows of the peak is its
//! highest point and, where flow counts beside it were not swept, a bracket: as many flows as were
//! injected could be supported there, and no more.

use crate::measured::Row;
use crate::reading::{Numbers, Reading};

/// Writes the peak of `sweep` by `rule` to `summary`: the medians of one treatment, in the order of
/// their places.
pub fn read(sweep: &[&Row], rule: &str, summary: &mut Numbers) -> Option<Reading> {
    let curve: Vec<_> = sweep.iter().filter_map(|row| Some((row.x, row.reading(rule)?))).collect();
    let most = curve.iter().map(|(_, flows)| flows.value).fold(0.0, f64::max);
    let (at, peak) = *curve.iter().find(|(_, flows)| flows.value == most)?;
    let is_peak = |place: usize| curve[place].1.value == most;
    let to = match most > 0.0 {
        true => (0..curve.len()).filter(|place| is_peak(*place)).fold(most, |to, place| {
            let beside = place.checked_sub(1).map_or(0.0, |before| curve[before].0);
            let below = unswept(beside, curve[place].0);
            // After the last point, nobody knows.
            let above =
                curve.get(place + 1).map_or(f64::INFINITY, |next| unswept(curve[place].0, next.0));
            to.max(below).max(above)
        }),
        // Where not one flow was supported, too many were injected from the first point on.
        false => unswept(0.0, curve[0].0),
    };
    let reading = Reading { to, ..peak };
    reading.put(summary, rule, at);
    Some(reading)
}

/// The most flows between two places of the sweep; 0 where there are none between.
fn unswept(place: f64, next: f64) -> f64 {
    if next - place > 1.0 { next - 1.0 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::{Measured, SweepPoint};

    /// In words, from places and supported flows.
    fn supported(curve: &[(f64, f64)]) -> String {
        let row = |(x, flows): &(f64, f64)| {
            let measured =
                Measured { metrics: vec![("kau".to_owned(), *flows)], series: Vec::new() };
            Row::new(&SweepPoint::new("s", "t", *x, 1.0), &[&measured])
        };
        let rows: Vec<_> = curve.iter().map(row).collect();
        let mut summary = Numbers::new();
        let reading = read(&rows.iter().collect::<Vec<_>>(), "kau", &mut summary);
        assert_eq!(Reading::of(&summary, "kau"), reading);
        reading.map_or(String::new(), |reading| reading.text(|flows| flows.to_string()))
    }

    #[test]
    fn where_every_count_beside_the_peak_was_swept_it_is_one_number() {
        assert_eq!(supported(&[(18.0, 18.0), (19.0, 19.0), (20.0, 12.0), (40.0, 0.0)]), "19");
        assert_eq!(supported(&[(18.0, 18.0), (19.0, 15.0), (20.0, 18.0), (21.0, 0.0)]), "18");
    }

    #[test]
    fn where_counts_beside_the_peak_were_not_swept_it_is_a_bracket() {
        assert_eq!(supported(&[(72.0, 72.0), (76.0, 76.0), (80.0, 60.0)]), "76 to 79");
        // More than the 40 of 52 flows could be supported of 50, or of 55.
        assert_eq!(supported(&[(48.0, 38.0), (52.0, 40.0), (53.0, 0.0)]), "40 to 51");
        assert_eq!(supported(&[(51.0, 38.0), (52.0, 40.0), (56.0, 0.0)]), "40 to 55");
        assert_eq!(supported(&[(16.0, 16.0), (76.0, 0.0), (80.0, 0.0)]), "16 to 75");
        // Both peaks count.
        assert_eq!(supported(&[(4.0, 4.0), (5.0, 4.0), (9.0, 0.0)]), "4 to 8");
    }

    #[test]
    fn a_sweep_that_ends_or_begins_too_soon_says_so() {
        assert_eq!(supported(&[(76.0, 76.0), (80.0, 80.0)]), "80 or more");
        assert_eq!(supported(&[(40.0, 0.0), (80.0, 0.0)]), "0 to 39");
        assert_eq!(supported(&[(1.0, 0.0), (80.0, 0.0)]), "0");
        assert_eq!(supported(&[]), "");
    }
}
