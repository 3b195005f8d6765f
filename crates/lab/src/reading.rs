//! A number read off a sweep, with all that is not certain about it.

use std::collections::BTreeMap;

/// Numbers by key.
pub type Numbers = BTreeMap<String, f64>;

/// A number, the bracket in which it lies where the points of the sweep are coarse, and the
/// interval in which it lies by chance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// The median that was measured. Where there is a bracket, its lower end.
    pub value: f64,
    /// Upper end of the bracket; the value where the points are dense, infinite where the sweep
    /// ends too early to tell.
    pub to: f64,
    /// The interval of the median over the seeds; `None` for a single seed.
    pub interval: Option<(f64, f64)>,
}

impl Reading {
    /// A number that is exact.
    pub fn exact(value: f64) -> Reading {
        Reading { value, to: value, interval: None }
    }

    /// The reading of `key`; `None` where it was not measured. `KEY_low` and `KEY_high` are the
    /// interval. A number with a place in the sweep, `KEY_at`, has a bracket up to `KEY_to`, or
    /// without end.
    pub fn of(numbers: &Numbers, key: &str) -> Option<Reading> {
        let get = |end: &str| numbers.get(&format!("{key}{end}")).copied();
        let value = get("")?;
        let to = get("_to").unwrap_or(if get("_at").is_some() { f64::INFINITY } else { value });
        Some(Reading { value, to, interval: get("_low").zip(get("_high")) })
    }

    /// Writes what [`of`](Self::of) reads, of a number at place `at` of the sweep.
    pub fn put(&self, numbers: &mut Numbers, key: &str, at: f64) {
        let mut put = |end: &str, value| numbers.insert(format!("{key}{end}"), value);
        put("", self.value);
        put("_at", at);
        if self.to.is_finite() {
            put("_to", self.to);
        }
        if let Some((low, high)) = self.interval {
            put("_low", low);
            put("_high", high);
        }
    }

    /// Whether the points of the sweep leave a bracket.
    pub fn is_coarse(&self) -> bool {
        self.to > self.value
    }

    /// The ratio to `base`; its bracket and its interval have all that those of both allow.
    pub fn over(&self, base: &Reading) -> Reading {
        let interval = self.interval.or(base.interval).map(|_| {
            let ((low, high), (base_low, base_high)) = (self.range(), base.range());
            (low / base_high, high / base_low)
        });
        Reading { value: self.value / base.to, to: self.to / base.value, interval }
    }

    /// Everything from the least to the most that bracket and interval allow.
    fn range(&self) -> (f64, f64) {
        let (low, high) = self.interval.unwrap_or((self.value, self.to));
        (low.min(self.value), high.max(self.to))
    }

    /// In words, with numbers as `shown` writes them: `7.5 (7.1 to 8.0)`, `76 to 79`, `80 or more`.
    /// An interval or a bracket that looks like a single number is left out.
    pub fn text(&self, shown: impl Fn(f64) -> String) -> String {
        let value = shown(self.value);
        let up_to = |end: f64| match end.is_finite() {
            true => format!(" to {}", shown(end)),
            false => " or more".to_owned(),
        };
        let alone = format!(" to {value}");
        let bracket = Some(up_to(self.to)).filter(|end| *end != alone);
        let interval = self.interval.map(|(low, high)| (shown(low), up_to(high)));
        let interval = interval.filter(|(low, high)| *low != value || *high != alone);
        let interval = interval.map(|(low, high)| format!(" ({low}{high})"));
        value + &bracket.unwrap_or_default() + &interval.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(reading: Reading) -> String {
        reading.text(|number| format!("{number:.1}"))
    }

    #[test]
    fn a_number_is_shown_with_its_bracket_and_its_interval_unless_they_say_nothing() {
        let exact = Reading::exact(7.5);
        assert_eq!(text(exact), "7.5");
        assert_eq!(text(Reading { interval: Some((7.1, 8.0)), ..exact }), "7.5 (7.1 to 8.0)");
        assert_eq!(text(Reading { interval: Some((7.5, 7.51)), ..exact }), "7.5");
        assert_eq!(text(Reading { to: 9.0, ..exact }), "7.5 to 9.0");
        assert_eq!(text(Reading { to: f64::INFINITY, ..exact }), "7.5 or more");
    }

    #[test]
    fn a_ratio_is_as_uncertain_as_both_of_its_numbers() {
        let busy = Reading { value: 76.0, to: 79.0, interval: None };
        let baseline = Reading { value: 16.0, to: 75.0, interval: None };
        assert_eq!(text(busy.over(&baseline)), "1.0 to 4.9");
        let busy = Reading { interval: Some((72.0, 76.0)), ..Reading::exact(76.0) };
        let baseline = Reading { interval: Some((18.0, 20.0)), ..Reading::exact(19.0) };
        assert_eq!(text(busy.over(&baseline)), "4.0 (3.6 to 4.2)");
        let open = Reading { to: f64::INFINITY, ..busy };
        assert_eq!(text(open.over(&Reading::exact(19.0))), "4.0 or more (3.8 or more)");
    }

    #[test]
    fn what_is_put_into_numbers_is_read_again() {
        let whole = Reading { value: 76.0, to: 79.0, interval: Some((72.0, 76.0)) };
        for reading in [whole, Reading { to: f64::INFINITY, interval: None, ..whole }] {
            let mut numbers = Numbers::new();
            reading.put(&mut numbers, "kau", 76.0);
            assert_eq!(Reading::of(&numbers, "kau"), Some(reading));
            assert!(numbers.values().all(|number| number.is_finite()), "JSON has no infinity");
        }
        assert_eq!(Reading::of(&Numbers::new(), "kau"), None);
    }
}
