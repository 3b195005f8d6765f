//! The report: one HTML file that opens from disk and needs no network.

use super::chart::{Chart, Series};
use super::{Limit, Row, RunResult};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use plotters::style::RGBColor;
use sheaf_voice::rules::Rule;

const STYLE: &str = include_str!("style.css");

/// One colour for each treatment, the same in all charts (Okabe and Ito: told apart by most).
const COLOURS: [RGBColor; 6] = [
    RGBColor(0x80, 0x80, 0x80),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xd5, 0x5e, 0x00),
];

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
                    p.answer { (answer(result)) }
                }
                @for section in &scenarios { (section) }
                (provenance(result))
            }
        }
    };
    Ok(page.into_string())
}

/// The answer in one sentence.
fn answer(result: &RunResult) -> String {
    let mut sentences = Vec::new();
    for scenario in result.scenarios() {
        let supported = |treatment| result.supported(scenario, treatment, Rule::Kau);
        let Some(baseline) = supported("baseline").filter(|flows| *flows > 0) else { continue };
        let best = result.treatments(scenario).into_iter().filter(|name| *name != "baseline");
        let best = best.filter_map(|name| Some((supported(name)?, name))).max();
        if let Some((flows, name)) = best {
            let gain = f64::from(flows) / f64::from(baseline);
            let limit = result.limits.get(scenario).map_or(String::new(), |limit| {
                let share = 100.0 * f64::from(flows) / limit.flows_full;
                format!(", {share:.0} % of what the air time allows")
            });
            sentences.push(format!(
                "{scenario}: {baseline} supported flows without aggregation, {flows} with “{name}”: \
                 {gain:.1} times as many{limit}."
            ));
        }
    }
    sentences.join(" ")
}

fn section(result: &RunResult, scenario: &str) -> anyhow::Result<Markup> {
    let limit = result.limits.get(scenario);
    let charts = [
        ("Supported flows", supported(result, scenario, limit)),
        ("Mean one-way latency", latency(result, scenario)),
        ("Loss", loss(result, scenario)),
        ("Voice quality", simple(result, scenario, "mean R of the E-model", |row| row.r)),
        ("Packets a frame", simple(result, scenario, "packets", |row| row.packets_per_frame)),
        ("Channel in use", simple(result, scenario, "% of the time", |row| row.air_busy)),
    ];
    let mut figures = Vec::new();
    for (title, chart) in charts {
        figures.push((title, chart.svg()?));
    }
    Ok(html! {
        section {
            h2 { (scenario) }
            (summary(result, scenario, limit))
            (legend(result, scenario))
            div.charts {
                @for (title, svg) in &figures {
                    figure { figcaption { (title) } (PreEscaped(svg)) }
                }
            }
            (rows(result, scenario))
        }
    })
}

fn colour(result: &RunResult, scenario: &str, treatment: &str) -> RGBColor {
    let place = result.treatments(scenario).iter().position(|name| *name == treatment);
    COLOURS[place.unwrap_or(0) % COLOURS.len()]
}

/// Our sweeps as lines.
fn ours(result: &RunResult, scenario: &str, value: impl Fn(&Row) -> f64) -> Vec<Series> {
    let treatments = result.treatments(scenario).into_iter();
    treatments
        .map(|treatment| Series {
            colour: colour(result, scenario, treatment),
            points: result
                .sweep(scenario, treatment)
                .into_iter()
                .map(|row| (f64::from(row.flows), value(row)))
                .collect(),
            published: false,
        })
        .collect()
}

/// Published figures as crosses.
fn theirs(
    result: &RunResult,
    scenario: &str,
    points: impl Fn(&crate::plan::Published) -> Vec<(f64, f64)>,
) -> Vec<Series> {
    let here = result.published.iter().filter(|published| published.scenario == scenario);
    here.map(|published| Series {
        colour: colour(result, scenario, &published.treatment),
        points: points(published),
        published: true,
    })
    .filter(|series| !series.points.is_empty())
    .collect()
}

const INJECTED: &str = "flows injected";

fn supported<'a>(result: &RunResult, scenario: &str, limit: Option<&Limit>) -> Chart<'a> {
    let mut series = ours(result, scenario, |row| f64::from(row.kau));
    series.extend(theirs(result, scenario, |published| {
        published.supported.map(|flows| (flows, flows)).into_iter().collect()
    }));
    let marks = limit.map_or(Vec::new(), |limit| {
        vec![
            ("air-time limit, full frames".to_owned(), limit.flows_full),
            ("air-time limit, lone packets".to_owned(), limit.flows_lone),
        ]
    });
    Chart { x_axis: INJECTED, y_axis: "flows supported (rule kau)", series, y_max: None, marks }
}

fn latency<'a>(result: &RunResult, scenario: &str) -> Chart<'a> {
    let mut series = ours(result, scenario, |row| row.latency);
    series.extend(theirs(result, scenario, |published| published.latency.clone()));
    let marks = vec![("150 ms".to_owned(), 150.0)];
    Chart { x_axis: INJECTED, y_axis: "milliseconds", series, y_max: Some(250.0), marks }
}

fn loss<'a>(result: &RunResult, scenario: &str) -> Chart<'a> {
    let mut series = ours(result, scenario, |row| row.loss);
    series.extend(theirs(result, scenario, |published| published.loss.clone()));
    let marks = vec![("5 %".to_owned(), 5.0)];
    Chart { x_axis: INJECTED, y_axis: "% of the packets", series, y_max: Some(30.0), marks }
}

fn simple<'a>(
    result: &RunResult,
    scenario: &str,
    y_axis: &'a str,
    value: impl Fn(&Row) -> f64,
) -> Chart<'a> {
    let series = ours(result, scenario, value);
    Chart { x_axis: INJECTED, y_axis, series, y_max: None, marks: Vec::new() }
}

fn css(colour: RGBColor) -> String {
    format!("#{:02x}{:02x}{:02x}", colour.0, colour.1, colour.2)
}

fn legend(result: &RunResult, scenario: &str) -> Markup {
    let published = result.published.iter().filter(|published| published.scenario == scenario);
    html! {
        ul.legend {
            @for treatment in result.treatments(scenario) {
                li { span.line style={ "background:" (css(colour(result, scenario, treatment))) } {} (treatment) }
            }
            @for published in published {
                li {
                    span.cross style={ "color:" (css(colour(result, scenario, &published.treatment))) } { "✕" }
                    (published.label) " (published)"
                }
            }
        }
    }
}

fn summary(result: &RunResult, scenario: &str, limit: Option<&Limit>) -> Markup {
    html! {
        table {
            thead { tr {
                th { "treatment" }
                @for rule in Rule::ALL { th.number { "supported, " (rule.name()) } }
                th.number { "published" }
            } }
            tbody { @for treatment in result.treatments(scenario) { tr {
                td { (treatment) }
                @for rule in Rule::ALL {
                    td.number { (result.supported(scenario, treatment, rule).unwrap_or(0)) }
                }
                td.number {
                    @for published in result.published.iter()
                        .filter(|p| p.scenario == scenario && p.treatment == treatment) {
                        @if let Some(flows) = published.supported { (flows) " (" (published.label) ")" }
                    }
                }
            } } }
        }
        @if let Some(limit) = limit {
            p { "A lone packet costs " (format!("{:.0}", limit.lone)) " µs of air, one in a full meta packet "
                (format!("{:.0}", limit.full)) " µs; so the channel has time for "
                (format!("{:.1}", limit.flows_lone)) " flows of lone packets, or "
                (format!("{:.1}", limit.flows_full)) " in full frames." }
        }
    }
}

fn rows(result: &RunResult, scenario: &str) -> Markup {
    let here = result.rows.iter().filter(|row| row.scenario == scenario);
    html! {
        details {
            summary { "All points" }
            table.wide {
                thead { tr {
                    @for head in ["treatment", "flows", "kau", "uwc", "r70", "loss %", "latency ms",
                        "p99 ms", "jitter ms", "R", "worst R", "frames/s", "pkts/frame", "air %", "retries %"] {
                        th { (head) }
                    }
                } }
                tbody { @for row in here { tr {
                    td { (row.treatment) }
                    @for count in [row.flows, row.kau, row.uwc, row.r70] { td.number { (count) } }
                    @for value in [row.loss, row.latency, row.latency_p99, row.jitter, row.r, row.r_min,
                        row.frames_per_second, row.packets_per_frame, row.air_busy, row.retries] {
                        td.number { (format!("{value:.1}")) }
                    }
                } } }
            }
        }
    }
}

fn provenance(result: &RunResult) -> Markup {
    html! {
        footer {
            p { "Plan " b { (result.plan) } " after " i { (result.source) } ". Engine " (result.engine)
                ", seed " (result.seed) ", " (result.duration) " s a point. " (result.machine) "." }
            p { @for (name, version) in &result.versions { (name) " " (version) ". " }
                "A flow is supported by rule kau when its loss is below 5 % and its mean latency plus \
                 jitter below 150 ms; by uwc with 4 %; by r70 when the E-model rates it 70 or more with \
                 the best fixed play-out buffer." }
        }
    }
}
