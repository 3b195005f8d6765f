//! The median of repeated measurements, and an interval that holds the true one.
//!
//! The interval needs no assumption about the distribution (David and Nagaraja, "Order Statistics",
//! 3rd edition, section 7.1). Each of `n` independent values lies below the true median with
//! probability 1/2, so the `j`-th least lies above it when fewer than `j` values are below: the
//! lower tail of the binomial distribution. Interval ends are the `j`-th least and the `j`-th most
//! value, for the largest `j` that keeps both tails together within 5 %.

/// Probability with which the true median may lie outside the interval: the field's convention.
const OUTSIDE: f64 = 0.05;

/// Fewest values that have an interval at 95 %: the least and the most of five miss the true median
/// in 6 % of all cases, those of six in 3 %.
pub const LEAST: usize = 6;

/// A median and its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Median {
    /// The value in the middle; of an even number the mean of the two in the middle.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl Median {
    /// The median of `values`, which are finite; `None` without one. The interval of fewer than
    /// [`LEAST`] values is their whole range.
    pub fn of(mut values: Vec<f64>) -> Option<Median> {
        values.sort_by(f64::total_cmp);
        let (last, middle) = (values.len().checked_sub(1)?, values.len() / 2);
        let value = match values.len() % 2 {
            0 => (values[middle - 1] + values[middle]) / 2.0,
            _ => values[middle],
        };
        let beyond = beyond(values.len());
        Some(Median { value, low: values[beyond], high: values[last - beyond] })
    }
}

/// Number of `count` sorted values that lie beyond the interval at each end.
fn beyond(count: usize) -> usize {
    // Probability that exactly `below` values lie below the true median, and that no more do.
    let mut exactly = libm::ldexp(1.0, -(count as i32));
    let mut at_most = exactly;
    let mut below = 0;
    while 2.0 * at_most <= OUTSIDE {
        below += 1;
        exactly *= (count + 1 - below) as f64 / below as f64;
        at_most += exactly;
    }
    // With `below` values beyond each end the tails are too large, with one fewer they are not. Of
    // few values even the whole range is too short, and has to do.
    below.saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(count: u32) -> Median {
        // Not in order, and 1 to `count`.
        let values = (0..count).map(|place| f64::from(place * 7 % count + 1)).collect();
        Median::of(values).unwrap()
    }

    #[test]
    fn the_interval_has_the_ranks_of_the_binomial_distribution() {
        // Published tables: n, rank of the lower end at 95 %.
        for (count, rank) in [(6, 1), (8, 1), (9, 2), (10, 2), (12, 3), (15, 4), (20, 6), (50, 18)]
        {
            let median = of(count);
            let high = f64::from(count + 1) - f64::from(rank);
            assert_eq!((median.low, median.high), (f64::from(rank), high), "{count} values");
        }
    }

    #[test]
    fn too_few_values_have_their_whole_range_and_an_even_number_the_mean_of_the_middle() {
        assert_eq!(Median::of(Vec::new()), None);
        assert_eq!(of(1), Median { value: 1.0, low: 1.0, high: 1.0 });
        assert_eq!(of(4), Median { value: 2.5, low: 1.0, high: 4.0 });
        assert_eq!(of(5), Median { value: 3.0, low: 1.0, high: 5.0 });
        assert_eq!(of(1000).value, 500.5);
    }
}
