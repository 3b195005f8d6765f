//! The forms in which results are written: `result.json`, `rows.csv`, `report.html`, and a table
//! for the terminal, and the page of published values. All are drawn from results alone, by their
//! views.

mod chart;
mod html;
mod number;
mod page;
mod terminal;

use crate::result::RunResult;
use crate::view::Metric;
use anyhow::Context;
use std::path::Path;

pub use page::page;
pub use terminal::{table, verdicts};

/// Name of the file that has the whole result.
pub const RESULT: &str = "result.json";

/// Writes result.json, rows.csv and report.html to `folder`, which is made where needed.
///
/// # Errors
/// Fails when the folder cannot be written.
pub fn write(result: &RunResult, folder: &Path) -> anyhow::Result<()> {
    let in_folder = || format!("cannot write to {}", folder.display());
    std::fs::create_dir_all(folder).with_context(in_folder)?;
    for (name, bytes) in files(result)? {
        std::fs::write(folder.join(name), bytes).with_context(in_folder)?;
    }
    Ok(())
}

/// The files of a result: their names and bytes.
///
/// # Errors
/// Fails when the report cannot be drawn.
pub fn files(result: &RunResult) -> anyhow::Result<[(&'static str, Vec<u8>); 3]> {
    let json = serde_json::to_string_pretty(result)? + "\n";
    Ok([
        (RESULT, json.into_bytes()),
        ("rows.csv", rows(result)?),
        ("report.html", html::page(result)?.into_bytes()),
    ])
}

/// Reads a result.json that [`write()`] wrote.
///
/// # Errors
/// Fails when there is no such file, or one of another version.
pub fn read(folder: &Path) -> anyhow::Result<RunResult> {
    let file = folder.join(RESULT);
    let text = std::fs::read_to_string(&file)
        .with_context(|| format!("no result in {}; run `sheaf lab run` first", folder.display()))?;
    serde_json::from_str(&text).with_context(|| {
        format!("{} is not a result of this version; run it again", file.display())
    })
}

fn rows(result: &RunResult) -> anyhow::Result<Vec<u8>> {
    let mut csv = csv::Writer::from_writer(Vec::new());
    // A median has its interval beside it; one seed has none.
    let ends: &[&str] = if result.seeds().1 > 1 { &["", "_low", "_high"] } else { &[""] };
    let of = |metric: &Metric| ends.iter().map(|end| format!("{}{end}", metric.key)).collect();
    let keys: Vec<String> = result.view.metrics.iter().flat_map::<Vec<_>, _>(of).collect();
    let place = ["scenario", "treatment", "x", "seeds"];
    csv.write_record(place.into_iter().chain(keys.iter().map(String::as_str)))?;
    for row in &result.rows {
        let numbers = keys.iter().map(|key| row.get(key).map_or(String::new(), |n| n.to_string()));
        let (x, seeds) = (row.x.to_string(), row.seeds.to_string());
        let place = [row.scenario.clone(), row.treatment.clone(), x, seeds];
        csv.write_record(place.into_iter().chain(numbers))?;
    }
    Ok(csv.into_inner()?)
}
