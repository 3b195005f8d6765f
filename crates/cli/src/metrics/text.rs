//! Metrics as text.
//!
//! OpenMetrics 1.0 names a family without `_total`, gives its unit, and ends with `# EOF`.
//! Prometheus's text format 0.0.4, which promtool checks and textfile collectors read, has none of
//! that.

use super::table::{METRICS, Metric, Moves};
use crate::reports::Report;
use serde_json::Value;
use std::fmt::Write;

/// The forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus's text format 0.0.4.
    Prometheus,
}

impl Form {
    /// The media type of HTTP.
    pub fn content_type(self) -> &'static str {
        match self {
            Form::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Form::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// All metrics of `reports`.
pub fn render(reports: &[Report], form: Form) -> String {
    let mut text = String::new();
    reached(&mut text, reports, form);
    for metric in METRICS {
        let mut samples = String::new();
        for report in reports.iter().filter(|report| report.kind == metric.kind) {
            let Ok(value) = &report.value else { continue };
            let mut labels = match report.kind {
                "run" => Vec::new(),
                _ => vec![("interface", report.name.clone())],
            };
            let segments: Vec<_> = metric.pointer.split('/').skip(1).collect();
            sample(&mut samples, metric, value, &segments, 0, &mut labels);
        }
        if !samples.is_empty() {
            let Metric { name, moves, unit, help, .. } = metric;
            family(&mut text, form, name, *moves, unit, help);
            text.push_str(&samples);
        }
    }
    if form == Form::OpenMetrics {
        text.push_str("# EOF\n");
    }
    text
}

/// Names of the services that responded: one that hangs is not just missing.
fn reached(text: &mut String, reports: &[Report], form: Form) {
    if reports.is_empty() {
        return;
    }
    let help = "Whether the service responded in time";
    family(text, form, "sheaf_service_responds", Moves::Gauge, "", help);
    for report in reports {
        let labels = [("kind", report.kind.to_owned()), ("interface", report.name.clone())];
        let value = if report.value.is_ok() { 1.0 } else { 0.0 };
        line(text, "sheaf_service_responds", &labels, value);
    }
}

/// The lines above the samples of a metric.
fn family(text: &mut String, form: Form, name: &str, moves: Moves, unit: &str, help: &str) {
    let total = form == Form::Prometheus && moves == Moves::Counter;
    let (end, kind) = match moves {
        Moves::Counter => (if total { "_total" } else { "" }, "counter"),
        Moves::Gauge => ("", "gauge"),
    };
    let _ = writeln!(text, "# TYPE {name}{end} {kind}");
    if form == Form::OpenMetrics && !unit.is_empty() {
        let _ = writeln!(text, "# UNIT {name} {unit}");
    }
    let _ = writeln!(text, "# HELP {name}{end} {help}");
}

/// Writes the samples of `metric` below `value`, to which the pointer's first `depth` stars led.
fn sample(
    text: &mut String,
    metric: &Metric,
    value: &Value,
    segments: &[&str],
    depth: usize,
    labels: &mut Vec<(&'static str, String)>,
) {
    let Some((first, rest)) = segments.split_first() else {
        let number = match value {
            Value::Bool(is) => Some(f64::from(u8::from(*is))),
            other => other.as_f64(),
        };
        if let Some(number) = number {
            let end = if metric.moves == Moves::Counter { "_total" } else { "" };
            line(text, &format!("{}{end}", metric.name), labels, number * metric.scale);
        }
        return;
    };
    if *first != "*" {
        if let Some(member) = value.get(first) {
            sample(text, metric, member, rest, depth, labels);
        }
        return;
    }
    let (label, field) = metric.labels[depth];
    let mut each = |name: &str, member: &Value| {
        labels.push((label, name.to_owned()));
        sample(text, metric, member, rest, depth + 1, labels);
        labels.pop();
    };
    match value {
        Value::Object(members) => members.iter().for_each(|(key, member)| each(key, member)),
        Value::Array(members) => {
            for member in members {
                if let Some(name) = member.get(field).and_then(Value::as_str) {
                    each(name, member);
                }
            }
        }
        _ => {}
    }
}

fn line(text: &mut String, name: &str, labels: &[(&'static str, String)], value: f64) {
    text.push_str(name);
    for (at, (label, value)) in labels.iter().enumerate() {
        let begin = if at == 0 { '{' } else { ',' };
        let _ = write!(text, "{begin}{label}=\"{}\"", escape(value));
    }
    if !labels.is_empty() {
        text.push('}');
    }
    let _ = writeln!(text, " {value}");
}

/// A label's value between quotation marks.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use sheaf_daemon::emulate::Status;
    use sheaf_daemon::report::Interface;
    use sheaf_daemon::trunk::report::{Link, Trunk};
    use sheaf_daemon::window;
    use std::collections::BTreeSet;

    fn report(kind: &'static str, name: &str, value: Value) -> Report {
        Report { kind, name: name.to_owned(), value: Ok(value) }
    }

    #[test]
    fn a_report_becomes_families_with_labels_in_base_units() {
        let links = json!([
            {"link": "dev a", "up": true, "rate_bps": 8000, "frames_sent": 3,
                "round_trip_ms": 20.0},
            {"link": "path \"b\"\\", "up": false, "rate_bps": 0, "frames_sent": 4},
        ]);
        let trunk = json!({"seconds": 2.5, "established": true, "links": links});
        let text = render(&[report("trunk", "t0", trunk)], Form::OpenMetrics);
        for expected in [
            "# TYPE sheaf_trunk_uptime_seconds gauge\n# UNIT sheaf_trunk_uptime_seconds seconds\n",
            "\nsheaf_trunk_uptime_seconds{interface=\"t0\"} 2.5\n",
            "\n# TYPE sheaf_trunk_link_sent_frames counter\n# HELP sheaf_trunk_link_sent_frames ",
            "\nsheaf_trunk_link_sent_frames_total{interface=\"t0\",link=\"dev a\"} 3\n",
            "\nsheaf_trunk_link_up{interface=\"t0\",link=\"path \\\"b\\\"\\\\\"} 0\n",
            "\nsheaf_trunk_link_rate_bytes_per_second{interface=\"t0\",link=\"dev a\"} 1000\n",
            "\nsheaf_trunk_link_round_trip_seconds{interface=\"t0\",link=\"dev a\"} 0.02\n",
            "\nsheaf_service_responds{kind=\"trunk\",interface=\"t0\"} 1\n",
        ] {
            assert!(text.contains(expected), "{expected}{text}");
        }
        assert!(text.ends_with("\n# EOF\n"));
    }

    #[test]
    fn prometheus_names_the_type_of_a_counter_with_its_whole_name() {
        let status = json!({"denied": 1, "links": {"egress": {"causes": {"loss": 2}}}});
        let text = render(&[report("emulate", "eth0", status)], Form::Prometheus);
        assert!(text.contains("# TYPE sheaf_emulate_denied_packets_total counter\n"), "{text}");
        let sample =
            "sheaf_emulate_events_total{interface=\"eth0\",link=\"egress\",cause=\"loss\"} 2";
        assert!(text.contains(sample), "{text}");
        assert!(!text.contains("# UNIT") && !text.contains("# EOF"));
    }

    #[test]
    fn a_service_that_does_not_respond_is_told_and_nothing_runs_is_valid_text() {
        let silent = Report { kind: "window", name: "a".to_owned(), value: Err("late".to_owned()) };
        let text = render(&[silent], Form::Prometheus);
        assert!(text.ends_with("sheaf_service_responds{kind=\"window\",interface=\"a\"} 0\n"));
        assert_eq!(render(&[], Form::OpenMetrics), "# EOF\n");
    }

    #[test]
    fn names_of_metrics_follow_the_rules() {
        let mut names = BTreeSet::new();
        for metric in METRICS {
            let Metric { name, unit, labels, pointer, help, .. } = metric;
            assert!(names.insert(*name), "{name} is there twice");
            assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit()));
            assert!(name.ends_with(unit) && !name.ends_with("_total"), "{name} in {unit}");
            assert_eq!(pointer.matches('*').count(), labels.len(), "{name}");
            assert!(!help.contains(['\\', '\n']) && !help.ends_with('.'), "{name}");
        }
    }

    #[test]
    fn every_pointer_leads_to_a_figure_of_its_report() {
        let neighbourhood = Some(Default::default());
        let interface = json!(Interface { neighbourhood, ..Interface::new("a") });
        let link = Link { quota: Some(Default::default()), ..Link::default() };
        let trunk = json!(Trunk { links: vec![link], ..Trunk::default() });
        let window = json!(window::report::Report {
            totals: vec![window::report::Total::default()],
            ..Default::default()
        });
        let status = json!(Status::default());
        for metric in METRICS {
            let report = match metric.kind {
                "aggregate" => &interface,
                "trunk" => &trunk,
                "window" => &window,
                "emulate" => &status,
                _ => continue,
            };
            // As far as the names are fixed: keys below a star are those of a network.
            let fixed = metric.pointer.split("/*").next().unwrap();
            assert!(report.pointer(fixed).is_some(), "{}", metric.pointer);
            let inner = metric.pointer.replacen("/*", "/0", 1);
            let in_array = report.pointer(fixed).is_some_and(Value::is_array);
            assert!(!in_array || report.pointer(&inner).is_some(), "{}", metric.pointer);
        }
    }

    #[test]
    fn the_manual_and_the_dashboard_have_the_names_of_the_metrics() {
        let page = include_str!("../../../../man/sheaf-metrics.8");
        let mut known = BTreeSet::from(["sheaf_service_responds".to_owned()]);
        for Metric { name, moves, help, .. } in METRICS {
            let end = if *moves == Moves::Counter { "_total" } else { "" };
            let listed = page.contains(&format!("\\fB{name}{end}\\fR"));
            assert!(listed && page.contains(help), "man/sheaf-metrics.8 does not explain {name}");
            known.insert(format!("{name}{end}"));
        }
        let dashboard = include_str!("../../../../packaging/grafana/sheaf.json");
        let names = dashboard.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for name in names.filter(|name| name.starts_with("sheaf_")) {
            assert!(known.contains(name), "the dashboard asks for {name}");
        }
    }
}
