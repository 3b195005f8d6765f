//! Numbers for people.

/// A number for people: about four digits.
pub(super) fn shown(value: f64) -> String {
    let digits = match value.abs() {
        _ if value.fract() == 0.0 => 0,
        size if size >= 1000.0 => 0,
        size if size >= 10.0 => 2,
        size if size >= 1.0 => 3,
        size if size >= 0.01 => 4,
        _ => return format!("{value:.2e}"),
    };
    format!("{value:.digits$}")
}
