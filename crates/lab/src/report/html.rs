//! The report: one HTML file that opens from disk and needs no network.

use super::chart::{Drawing, Line};
use super::number::shown;
use crate::measured::unique;
use crate::reading::Reading;
use crate::reproduced;
use crate::result::{Curve, RunResult};
use crate::view::Chart;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use plotters::style::RGBColor;

const STYLE: &str = include_str!("style.css");

/// One colour for each treatment, the same in all charts (Okabe and Ito: distinct also for the
/// colour-blind).
const COLOURS: [RGBColor; 6] = [
    RGBColor(0x80, 0x80, 0x80),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xd5, 0x5e, 0x00),
];

/// Curves of more points are drawn without dots.
const DOTTED: usize = 60;

/// The whole page.
pub(super) fn page(result: &RunResult) -> anyhow::Result<String> {
    let mut scenarios = Vec::new();
    for scenario in result.scenarios() {
        scenarios.push(section(result, scenario)?);
    }
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (result.plan) " – Sheaf" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { (result.title) }
                    p.answer { (result.answer) }
                    @if let Some(holes) = result.holes() { p { strong { (holes) } } }
                }
                @for section in &scenarios { (section) }
                (provenance(result))
            }
        }
    };
    Ok(page.into_string())
}

fn section(result: &RunResult, scenario: &str) -> anyhow::Result<Markup> {
    let mut figures = Vec::new();
    let here = || result.rows.iter().filter(|row| row.scenario == scenario);
    // A sweep of one point has no line; the table shows it.
    let is_sweep = here().any(|row| here().any(|other| other.x != row.x));
    for chart in result.view.charts.iter().filter(|_| is_sweep) {
        let drawing = drawing(result, scenario, chart);
        if drawing.lines.iter().any(|line| !line.published && !line.points.is_empty()) {
            figures.push((chart.title.clone(), drawing.svg()?));
        }
    }
    figures.extend(curves(result, scenario)?);
    let long = is_sweep && here().count() > 12;
    Ok(html! {
        section {
            h2 { (scenario) }
            @if !result.view.summary.is_empty() { (summary(result, scenario)) }
            (published(result, scenario))
            @if let Some(remark) = result.remarks.get(scenario) { p { (remark) } }
            @if let Some(spread) = result.spread() {
                p { "Tables have " (spread) "; in charts these are whiskers." }
            }
            (legend(result, scenario))
            div.charts {
                @for (title, svg) in &figures {
                    figure { figcaption { (title) } (PreEscaped(svg)) }
                }
            }
            details open[!long] { summary { "All points" } (rows(result, scenario)) }
        }
    })
}

fn colour(result: &RunResult, scenario: &str, treatment: &str) -> RGBColor {
    let place = result.treatments(scenario).iter().position(|name| *name == treatment);
    COLOURS[place.unwrap_or(0) % COLOURS.len()]
}

/// A metric over the sweep: measured values as lines, published figures as crosses.
fn drawing(result: &RunResult, scenario: &str, chart: &Chart) -> Drawing {
    let mut lines = Vec::new();
    for treatment in result.treatments(scenario) {
        let colour = colour(result, scenario, treatment);
        let sweep = result.sweep(scenario, treatment).into_iter();
        let readings = sweep.filter_map(|row| Some((row.x, row.reading(&chart.metric)?)));
        let readings: Vec<_> = readings.collect();
        let whisker = |(x, reading): &(f64, Reading)| {
            let (low, high) = reading.interval?;
            Some((*x, low, high))
        };
        let whiskers = readings.iter().filter_map(whisker).collect();
        let points = readings.iter().map(|(x, reading)| (*x, reading.value)).collect();
        lines.push(Line { colour, points, whiskers, published: false });
        for published in result.drawn(scenario, treatment) {
            let points = published.points.get(&chart.metric).cloned().unwrap_or_default();
            lines.push(Line { colour, points, whiskers: Vec::new(), published: true });
        }
    }
    let here =
        |mark: &&crate::view::Mark| mark.scenario.as_deref().is_none_or(|name| name == scenario);
    let marks = chart.marks.iter().filter(here).map(|mark| (mark.label.clone(), mark.value));
    let metric = result.view.metric(&chart.metric);
    Drawing {
        x_axis: result.view.axis.to_string(),
        y_axis: metric.map_or(String::new(), |metric| metric.axis().to_string()),
        lines,
        y_max: chart.most,
        y_min: chart.least,
        log: chart.log,
        marks: marks.collect(),
        dots: true,
    }
}

/// Curves of single points, of their first repetition: those of one name and place share a chart.
fn curves(result: &RunResult, scenario: &str) -> anyhow::Result<Vec<(String, String)>> {
    let here: Vec<_> = result.series.iter().filter(|curve| curve.scenario == scenario).collect();
    let mut places: Vec<f64> = here.iter().map(|curve| curve.at).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let mut figures = Vec::new();
    for name in unique(here.iter().map(|curve| curve.series.name.as_str())) {
        for place in &places {
            let same = |curve: &&&Curve| curve.series.name == name && curve.at == *place;
            let curves: Vec<_> = here.iter().filter(same).collect();
            let Some(first) = curves.first() else { continue };
            let line = |curve: &&&Curve| Line {
                colour: colour(result, scenario, &curve.treatment),
                points: curve.series.points.clone(),
                whiskers: Vec::new(),
                published: false,
            };
            let drawing = Drawing {
                x_axis: first.series.x.to_string(),
                y_axis: first.series.y.to_string(),
                lines: curves.iter().map(line).collect(),
                y_max: None,
                y_min: None,
                log: false,
                marks: Vec::new(),
                dots: curves.iter().all(|curve| curve.series.points.len() <= DOTTED),
            };
            let axis = &result.view.axis;
            let title = format!("{name}, {} {} {}", axis.label, shown(*place), axis.unit);
            let first = if result.seeds().1 > 1 { ", first seed" } else { "" };
            figures.push((title.trim_end().to_owned() + first, drawing.svg()?));
        }
    }
    Ok(figures)
}

fn css(colour: RGBColor) -> String {
    format!("#{:02x}{:02x}{:02x}", colour.0, colour.1, colour.2)
}

fn legend(result: &RunResult, scenario: &str) -> Markup {
    let treatments = result.treatments(scenario);
    let published = treatments.iter().flat_map(|treatment| result.drawn(scenario, treatment));
    html! {
        ul.legend {
            @for treatment in &treatments {
                @let colour = css(colour(result, scenario, treatment));
                li { span.line style={ "background:" (colour) } {} (treatment) }
            }
            @for published in published {
                @let colour = css(colour(result, scenario, &published.treatment));
                li {
                    span.cross style={ "color:" (colour) } { "✕" }
                    (published.label) " (published)"
                }
            }
        }
    }
}

fn summary(result: &RunResult, scenario: &str) -> Markup {
    let columns = &result.view.summary;
    html! {
        div.scroll { table {
            thead { tr {
                th { "treatment" }
                @for column in columns { th.number { (column.axis()) } }
            } }
            tbody { @for treatment in result.treatments(scenario) { tr {
                td { (treatment) }
                @for column in columns {
                    td.number {
                        (reading(result.summary(scenario, treatment, &column.key)))
                    }
                }
            } } }
        } }
    }
}

/// The published values beside ours; one that ours does not come near has its reason below.
fn published(result: &RunResult, scenario: &str) -> Markup {
    let values = reproduced::values(result).into_iter();
    let values: Vec<_> = values.filter(|value| value.published.scenario == scenario).collect();
    let why = unique(values.iter().map(|value| value.published.why.as_str()));
    html! {
        @if !values.is_empty() {
            div.scroll { table {
                thead { tr {
                    th { "published" }
                    th { "treatment" }
                    th { "value" }
                    th.number { (result.view.axis) }
                    th.number { "theirs" }
                    th.number { "ours" }
                    th.number { "ratio" }
                } }
                tbody { @for value in &values { tr {
                    td { (value.published.label) " " (value.published.place) }
                    td { (value.published.treatment) }
                    td { (value.axis) }
                    td.number { (value.x.map_or("-".into(), shown)) }
                    td.number { (shown(value.theirs)) }
                    td.number { (reading(value.ours)) }
                    td.number { (value.ratio().map_or("-".into(), |ratio| format!("{ratio:.2}"))) }
                } } }
            } }
            @for why in why.iter().filter(|why| !why.is_empty()) { p { (why) } }
        }
    }
}

/// All points.
fn rows(result: &RunResult, scenario: &str) -> Markup {
    let here = || result.rows.iter().filter(|row| row.scenario == scenario);
    let is_measured = |key: &str| here().any(|row| row.get(key).is_some());
    let columns: Vec<_> =
        result.view.metrics.iter().filter(|metric| is_measured(&metric.key)).collect();
    let several = result.seeds().1 > 1;
    html! {
        div.scroll { table.wide {
            thead { tr {
                th { "treatment" }
                th { (result.view.axis) }
                @if several { th { "seeds" } }
                @for metric in &columns { th { (metric.axis()) } }
            } }
            tbody { @for row in here() { tr {
                td { (row.treatment) }
                td.number { (shown(row.x)) }
                @if several { td.number { (row.seeds) } }
                @for metric in &columns { td.number { (reading(row.reading(&metric.key))) } }
            } } }
        } }
    }
}

/// A number with its bracket and its interval.
fn reading(reading: Option<Reading>) -> String {
    reading.map_or("-".into(), |reading| reading.text(shown))
}

fn provenance(result: &RunResult) -> Markup {
    html! {
        footer {
            p { "Plan " b { (result.plan) } " after " i { (result.source) } ". Engine "
                (result.engine.name()) ", seed " (result.seed) ", " (result.duration) " s a point. "
                (result.machine) "." }
            p {
                @for (name, version) in &result.versions { (name) " " (version) ". " }
                (result.view.notes)
            }
        }
    }
}
