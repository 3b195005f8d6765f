//! Tables of columns: each number of a row with its name, label, unit and value in one place.

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

/// The numbers of `outcome`, by key.
pub fn values<T>(columns: &[Column<T>], outcome: &T) -> Vec<(String, f64)> {
    columns.iter().map(|one| (one.key.to_owned(), (one.value)(outcome))).collect()
}
