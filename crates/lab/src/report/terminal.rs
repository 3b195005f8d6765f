//! The result as tables for the terminal.

use super::number::shown;
use crate::claims::Verdict;
use crate::reproduced;
use crate::result::RunResult;
use std::fmt::Write;

/// The summary of every treatment, or the charted metrics of every point; below it the published
/// values beside ours.
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
        let published = published(result, scenario);
        if published.len() > 1 {
            text += &aligned(&published);
        }
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
    let mut cells = vec![head];
    for treatment in result.treatments(scenario) {
        let number = |key: &str| {
            let reading = result.summary(scenario, treatment, key);
            reading.map_or("-".into(), |reading| reading.text(shown))
        };
        let mut line = vec![treatment.to_owned()];
        line.extend(columns.iter().map(|column| number(&column.key)));
        cells.push(line);
    }
    cells
}

/// All points of a scenario.
fn points(result: &RunResult, scenario: &str) -> Cells {
    let view = &result.view;
    let rows: Vec<_> = result.rows.iter().filter(|row| row.scenario == scenario).collect();
    let keys = crate::measured::unique(view.charts.iter().map(|chart| chart.metric.as_str()));
    let is_measured = |key: &&str| rows.iter().any(|row| row.get(key).is_some());
    let keys: Vec<_> = keys.into_iter().filter(is_measured).collect();
    let mut head = vec!["treatment".to_owned(), view.axis.to_string()];
    let (least, most) = result.seeds();
    if least != most {
        head.push("seeds".to_owned());
    }
    head.extend(
        keys.iter().map(|key| {
            view.metric(key).map_or((*key).to_owned(), |metric| metric.axis().to_string())
        }),
    );
    let mut cells = vec![head];
    for row in rows {
        let mut line = vec![row.treatment.clone(), shown(row.x)];
        line.extend((least != most).then(|| row.seeds.to_string()));
        line.extend(
            keys.iter()
                .map(|key| row.reading(key).map_or("-".into(), |reading| reading.text(shown))),
        );
        cells.push(line);
    }
    cells
}

/// The published values of a scenario beside ours, under a head.
fn published(result: &RunResult, scenario: &str) -> Cells {
    let head = ["published", "value", "at", "theirs", "ours", "ratio"];
    let mut cells = vec![head.map(str::to_owned).to_vec()];
    let values = reproduced::values(result);
    for value in values.into_iter().filter(|value| value.published.scenario == scenario) {
        cells.push(vec![
            value.published.label.clone(),
            format!("{}, {}", value.published.treatment, value.axis),
            value.x.map_or("-".into(), shown),
            shown(value.theirs),
            value.ours.map_or("-".into(), |ours| ours.text(shown)),
            value.ratio().map_or("-".into(), |ratio| format!("{ratio:.2}")),
        ]);
    }
    cells
}

/// Outcome of the claims on one plan: a line for each that does not hold, and their number.
pub fn verdicts(plan: &str, verdicts: &[Verdict<'_>]) -> String {
    let fallen: Vec<_> = verdicts.iter().filter(|verdict| !verdict.holds()).collect();
    let mut text =
        format!("{plan}: {} of {} numbers hold", verdicts.len() - fallen.len(), verdicts.len());
    for Verdict { claim, number, band: (least, most), measured } in fallen {
        let measured = measured.map_or("nothing".to_owned(), |reading| reading.text(shown));
        let times = number.times.iter().map(|times| format!(", times that of {times},"));
        let at = number.at.iter().map(|at| format!(" at {}", shown(*at)));
        let _ = write!(
            text,
            "\n  {} says “{}”: {} of {}{} is {measured}, not {} to {}",
            claim.file,
            claim.says,
            number.key,
            number.of,
            times.chain(at).collect::<String>(),
            shown(*least),
            shown(*most),
        );
    }
    text
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
