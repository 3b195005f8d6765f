//! The page of every published value beside ours, in Markdown.

use super::number::shown;
use crate::measured::unique;
use crate::reproduced::{self, TOLERANCE, Value};
use crate::result::RunResult;
use std::fmt::Write;

/// The page of all published values in `results`, plan by plan.
pub fn page(results: &[RunResult]) -> String {
    let all: Vec<_> = results.iter().flat_map(reproduced::values).collect();
    let percent = shown((TOLERANCE * 100.0).round());
    let mut text = format!(
        "# Reproduction\n\n\
         Every published value with a number, beside ours. The lab makes this page:\n\n    \
         make reproduction\n\n\
         Ours are medians of the seeds; in parentheses is the interval of the median at 95 %. \
         A value is\nreproduced when ours is within {percent} % of it, or rounds to it as the \
         source rounds: {} are.\nOthers are bold, and the reason stands below the table.\n",
        counted(&all)
    );
    for result in results {
        let values = reproduced::values(result);
        if values.is_empty() {
            continue;
        }
        let (least, most) = result.seeds();
        let seeds = if least == most { most.to_string() } else { format!("{least} to {most}") };
        let _ = write!(
            text,
            "\n## {}\n\n{}\n{}. Engine {}, seeds: {seeds}, {} s a point. Reproduced: {}.\n\n",
            result.plan,
            ended(&result.title),
            result.source,
            result.engine.name(),
            result.duration,
            counted(&values)
        );
        let axis = result.view.axis.to_string();
        let head = ["in the source", "scenario", "treatment", "value", &axis];
        let _ = writeln!(text, "| {} | published | ours | ratio |", head.join(" | "));
        text += "|---|---|---|---|--:|--:|--:|--:|\n";
        let reasons = unique(values.iter().map(|value| value.published.why.as_str()));
        let reasons: Vec<_> = reasons.into_iter().filter(|why| !why.is_empty()).collect();
        for value in &values {
            let number = reasons.iter().position(|why| *why == value.published.why);
            text += &line(value, number);
        }
        for (number, why) in reasons.iter().enumerate() {
            let _ = write!(text, "\n{}. {why}\n", number + 1);
        }
    }
    text
}

/// A value as a line of the table; `reason` is the place of its reason among those of the table.
fn line(value: &Value<'_>, reason: Option<usize>) -> String {
    let published = value.published;
    let place = if published.place.is_empty() { &published.label } else { &published.place };
    let ratio = match (value.ratio(), value.is_reproduced(), reason) {
        (None, ..) => "–".to_owned(),
        (Some(ratio), true, _) => format!("{ratio:.2}"),
        (Some(ratio), false, None) => format!("**{ratio:.2}**"),
        (Some(ratio), false, Some(reason)) => format!("**{ratio:.2}** ({})", reason + 1),
    };
    format!(
        "| {place} | {} | {} | {} | {} | {} | {} | {ratio} |\n",
        published.scenario,
        published.treatment,
        value.axis,
        value.x.map_or("–".to_owned(), shown),
        shown(value.theirs),
        value.ours.map_or("not measured".to_owned(), |ours| ours.text(shown)),
    )
}

/// The number of `values` that are reproduced, in words.
fn counted(values: &[Value<'_>]) -> String {
    let reproduced = values.iter().filter(|value| value.is_reproduced()).count();
    let share = 100.0 * reproduced as f64 / values.len().max(1) as f64;
    format!("{reproduced} of {} ({share:.0} %)", values.len())
}

/// A title as a sentence.
fn ended(title: &str) -> String {
    if title.ends_with(['.', '?', '!']) { title.to_owned() } else { format!("{title}.") }
}
