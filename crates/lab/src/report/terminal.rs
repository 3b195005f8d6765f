//! The result as tables for the terminal.

use super::number::shown;
use crate::result::RunResult;
use std::fmt::Write;

/// The summary of every treatment, or the charted metrics of every point, beside what was
/// published.
pub fn table(result: &RunResult) -> String {
    let mut text = String::new();
    for scenario in result.scenarios() {
        let _ = writeln!(
            text,
            "{} / {scenario}, engine {}, seed {}, {} s a point",
            result.plan,
            result.engine.name(),
            result.seed,
            result.duration
        );
        let _ = result.spread().map_or(Ok(()), |spread| writeln!(text, "  {spread}"));
        let cells = match result.view.summary.is_empty() {
            true => points(result, scenario),
            false => summary(result, scenario),
        };
        text += &aligned(&cells);
        if let Some(remark) = result.remarks.get(scenario) {
            let _ = writeln!(text, "  {remark}");
        }
    }
    if let Some(holes) = result.holes() {
        let _ = writeln!(text, "{holes}");
    }
    if !result.answer.is_empty() {
        let _ = writeln!(text, "{}", result.answer);
    }
    text
}

type Cells = Vec<Vec<String>>;

fn summary(result: &RunResult, scenario: &str) -> Cells {
    let columns = &result.view.summary;
    let mut head = vec!["treatment".to_owned()];
    head.extend(columns.iter().map(|column| column.axis().to_string()));
    head.push("published".to_owned());
    let mut cells = vec![head];
    for treatment in result.treatments(scenario) {
        let number = |key: &str| {
            let reading = result.summary(scenario, treatment, key);
            reading.map_or("-".into(), |reading| reading.text(shown))
        };
        let mut line = vec![treatment.to_owned()];
        line.extend(columns.iter().map(|column| number(&column.key)));
        let published = result.published(scenario, treatment);
        let published = published.flat_map(|one| one.summary.values().copied().map(shown));
        line.push(or_dash(published.collect::<Vec<_>>().join(", ")));
        cells.push(line);
    }
    cells
}

/// All points of a scenario. A metric has a column of published figures where there are any.
fn points(result: &RunResult, scenario: &str) -> Cells {
    let view = &result.view;
    let rows: Vec<_> = result.rows.iter().filter(|row| row.scenario == scenario).collect();
    let keys = crate::measured::unique(view.charts.iter().map(|chart| chart.metric.as_str()));
    let mut head = vec!["treatment".to_owned(), view.axis.to_string()];
    let (least, most) = result.seeds();
    if least != most {
        head.push("seeds".to_owned());
    }
    // Keys; the flag marks the column of published values.
    let mut columns = Vec::new();
    for key in keys {
        if rows.iter().all(|row| row.get(key).is_none()) {
            continue;
        }
        head.push(view.metric(key).map_or(key.to_owned(), |metric| metric.axis().to_string()));
        columns.push((key, false));
        if rows.iter().any(|row| result.published_at(row, key).is_some()) {
            head.push("published".to_owned());
            columns.push((key, true));
        }
    }
    let mut cells = vec![head];
    for row in rows {
        let mut line = vec![row.treatment.clone(), shown(row.x)];
        line.extend((least != most).then(|| row.seeds.to_string()));
        line.extend(columns.iter().map(|(key, published)| {
            let text = match published {
                true => result.published_at(row, key).map(shown),
                false => row.reading(key).map(|reading| reading.text(shown)),
            };
            text.unwrap_or("-".into())
        }));
        cells.push(line);
    }
    cells
}

fn or_dash(text: String) -> String {
    if text.is_empty() { "-".to_owned() } else { text }
}

/// Columns as wide as their widest cell; the first to the left, numbers to the right.
fn aligned(cells: &Cells) -> String {
    let len = |cell: &String| cell.chars().count();
    let columns = cells.first().map_or(0, Vec::len);
    let widest = |column: usize| cells.iter().filter_map(|line| line.get(column)).map(len).max();
    let widths: Vec<_> = (0..columns).map(|column| widest(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for line in cells {
        for (column, cell) in line.iter().enumerate() {
            let pad = " ".repeat(widths[column].saturating_sub(len(cell)));
            text += &match column {
                0 => format!("  {cell}{pad}"),
                _ => format!("   {pad}{cell}"),
            };
        }
        text = text.trim_end().to_owned() + "\n";
    }
    text
}
