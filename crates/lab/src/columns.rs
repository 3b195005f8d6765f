//! Tables of columns: each number of a row with its name, label, unit and value in one place.

use crate::measured::Row;
use crate::reading::Numbers;
use crate::view::Metric;

/// One number of a row, from an outcome `T`.
#[derive(Debug)]
pub struct Column<T> {
    /// Its name in JSON, CSV and plans.
    pub key: &'static str,
    /// Its label for people.
    pub label: &'static str,
    /// Its unit; empty for counts.
    pub unit: &'static str,
    /// Its value; NaN where it was not measured.
    pub value: fn(&T) -> f64,
}

impl<T> Column<T> {
    /// Its number in `row`; `None` where it was not measured.
    pub fn of(&self, row: &Row) -> Option<f64> {
        row.get(self.key)
    }
}

/// A column; the arguments are the fields of [`Column`].
pub const fn column<T>(
    key: &'static str,
    label: &'static str,
    unit: &'static str,
    value: fn(&T) -> f64,
) -> Column<T> {
    Column { key, label, unit, value }
}

/// The metrics that `columns` become in a view.
pub fn metrics<T>(columns: &[Column<T>]) -> Vec<Metric> {
    columns.iter().map(|one| Metric::new(one.key, one.label, one.unit)).collect()
}

/// The rows of one treatment of a scenario: the outcome from which a summary is worked out.
#[derive(Debug)]
pub struct Treated {
    /// Its rows.
    pub rows: Vec<Row>,
    /// Ratio of each row to the row of the treatment it is compared with, where both were measured.
    pub shares: Vec<f64>,
}

impl Treated {
    /// The rows of `treatment` among those of a scenario; `share` is that of a row.
    pub fn new(rows: &[&Row], treatment: &str, share: impl Fn(&Row) -> Option<f64>) -> Treated {
        let rows = rows.iter().copied().filter(|row| row.treatment == treatment);
        let rows: Vec<_> = rows.cloned().collect();
        Treated { shares: rows.iter().filter_map(share).collect(), rows }
    }

    /// The most of `column`; NaN where no row has it.
    pub fn most<T>(&self, column: &Column<T>) -> f64 {
        self.rows.iter().filter_map(|row| column.of(row)).fold(f64::NAN, f64::max)
    }

    /// The least of `column`; NaN where no row has it.
    pub fn least<T>(&self, column: &Column<T>) -> f64 {
        self.rows.iter().filter_map(|row| column.of(row)).fold(f64::NAN, f64::min)
    }

    /// The least share; NaN where there is no share.
    pub fn least_share(&self) -> f64 {
        self.shares.iter().copied().fold(f64::NAN, f64::min)
    }

    /// The summary that `columns` make, without what was not measured. The number of a row comes
    /// with that row's interval.
    pub fn summary(&self, columns: &[Column<Treated>]) -> Numbers {
        let values = values(columns, self).into_iter().filter(|(_, value)| value.is_finite());
        let mut summary: Numbers = values.collect();
        for column in columns {
            let Some(value) = summary.get(column.key).copied() else { continue };
            let mut of_rows = self.rows.iter().filter_map(|row| row.reading(column.key));
            let interval = of_rows.find(|one| one.value == value).and_then(|one| one.interval);
            if let Some((low, high)) = interval {
                summary.insert(format!("{}_low", column.key), low);
                summary.insert(format!("{}_high", column.key), high);
            }
        }
        summary
    }
}

/// The numbers of `outcome`, by key.
pub fn values<T>(columns: &[Column<T>], outcome: &T) -> Vec<(String, f64)> {
    columns.iter().map(|one| (one.key.to_owned(), (one.value)(outcome))).collect()
}
