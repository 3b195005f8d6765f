//! The forms in which results are written: `result.json`, `rows.csv`, `report.html`, and a table
//! for the terminal. All are drawn from the result alone, by its view.

mod chart;
mod html;
mod number;
mod terminal;

use crate::result::RunResult;
use anyhow::Context;
use std::path::Path;

pub use terminal::table;

/// Writes result.json, rows.csv and report.html to `folder`, which is made where needed.
///
/// # Errors
/// Fails when the folder cannot be written.
pub fn write(result: &RunResult, folder: &Path) -> anyhow::Result<()> {
    let in_folder = || format!("cannot write to {}", folder.display());
    std::fs::create_dir_all(folder).with_context(in_folder)?;
    let json = serde_json::to_string_pretty(result)?;
    std::fs::write(folder.join("result.json"), json + "\n").with_context(in_folder)?;
    write_rows(result, &folder.join("rows.csv")).with_context(in_folder)?;
    std::fs::write(folder.join("report.html"), html::page(result)?).with_context(in_folder)
}

/// Reads a result.json that [`write()`] wrote.
///
/// # Errors
/// Fails when there is no such file, or one of another version.
pub fn read(folder: &Path) -> anyhow::Result<RunResult> {
    let file = folder.join("result.json");
    let text = std::fs::read_to_string(&file)
        .with_context(|| format!("no result in {}; run `sheaf lab run` first", folder.display()))?;
    serde_json::from_str(&text).with_context(|| {
        format!("{} is not a result of this version; run it again", file.display())
    })
}

fn write_rows(result: &RunResult, file: &Path) -> anyhow::Result<()> {
    let mut csv = csv::Writer::from_path(file)?;
    let metrics = || result.view.metrics.iter().map(|metric| metric.key.as_str());
    csv.write_record(["scenario", "treatment", "x"].into_iter().chain(metrics()))?;
    for row in &result.rows {
        let numbers = metrics().map(|key| row.get(key).map_or(String::new(), |n| n.to_string()));
        let place = [row.scenario.clone(), row.treatment.clone(), row.x.to_string()];
        csv.write_record(place.into_iter().chain(numbers))?;
    }
    Ok(csv.flush()?)
}
