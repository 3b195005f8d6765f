//! `sheaf metrics` of all services, held against the rules of both text formats: Prometheus's 0.0.4
//! and OpenMetrics 1.0; and against promtool where it is installed. Needs root.

use sheaf_netio::ip;
use sheaf_netio::netns::Namespace;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

const SHEAF: &str = env!("CARGO_BIN_EXE_sheaf");
/// One section of each kind that reports figures.
const FILE: &str = "\
[[aggregate]]
dev = \"wlan0\"
peer = \"10.0.0.2\"
[[trunk]]
name = \"trunk0\"
path = \"127.0.0.1:7500 127.0.0.1:7501\"
plain = true
[[window]]
dev = \"wan0\"
capacity = \"20mbit\"
[[emulate]]
dev = \"wan1\"
delay = \"20ms\"
loss = \"1%\"
";
const KINDS: [&str; 4] = ["aggregate", "trunk", "window", "emulate"];

/// `sheaf run` on a host of its own, with every section at work.
struct Router {
    host: Namespace,
    run: Child,
    _directory: TempDir,
}

impl Router {
    fn new() -> Router {
        let host = Namespace::new().unwrap();
        let make = || {
            for dev in ["wlan0", "wan0", "wan1"] {
                ip::run(&format!("link add {dev} type veth peer name {dev}-far"))?;
                ip::run(&format!("link set {dev} up"))?;
                ip::run(&format!("link set {dev}-far up"))?;
            }
            ip::run("link set lo up")?;
            ip::run("addr add 10.0.0.1/24 dev wlan0")
        };
        host.run(make).unwrap();
        let directory = TempDir::new().unwrap();
        let file = directory.path().join("sheaf.toml");
        std::fs::write(&file, FILE).unwrap();
        let mut command = Command::new(SHEAF);
        command.args(["run", "-c"]).arg(file).stderr(Stdio::piped());
        host.enter(&mut command);
        let mut run = command.spawn().unwrap();
        let mut log = BufReader::new(run.stderr.take().unwrap()).lines().map(Result::unwrap);
        let mut left: BTreeSet<_> = KINDS.into();
        while !left.is_empty() {
            let line = log.next().unwrap_or_else(|| panic!("it ended without {left:?} at work"));
            left.retain(|kind| !(line.contains(kind) && line.contains(": at work")));
        }
        // Who writes to a log that nobody reads would be ended.
        std::thread::spawn(move || log.for_each(drop));
        Router { host, run, _directory: directory }
    }

    fn metrics(&self, form: &str) -> String {
        let mut command = Command::new(SHEAF);
        command.args(["metrics", form]);
        self.host.enter(&mut command);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        let _ = self.run.kill();
        let _ = self.run.wait();
    }
}

/// A family of samples: what its comments said.
#[derive(Default)]
struct Family {
    kind: String,
    unit: Option<String>,
    helped: bool,
}

fn is_name(name: &str) -> bool {
    let inside = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.chars().all(inside) && name.starts_with(|c: char| !c.is_ascii_digit())
}

/// Names and values.
type Labels = Vec<(String, String)>;

/// Splits a sample into its name, its labels and its value.
fn sample(line: &str) -> Option<(&str, Labels, f64)> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, after) = rest.split_once("=\"")?;
            let (mut value, mut escaped, mut end) = (String::new(), false, None);
            for (at, c) in after.char_indices() {
                match (escaped, c) {
                    (true, '\\' | '"' | 'n') => (value.push(c), escaped = false).1,
                    (true, _) => return None,
                    (false, '\\') => escaped = true,
                    (false, '"') => {
                        end = Some(at);
                        break;
                    }
                    (false, c) => value.push(c),
                }
            }
            labels.push((label.to_owned(), value));
            rest = &after[end? + 1..];
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None => break,
            }
        }
        rest = rest.strip_prefix('}')?;
    }
    let value = rest.strip_prefix(' ')?.parse().ok()?;
    Some((name, labels, value))
}

/// Faults of `text`, which is OpenMetrics or Prometheus's.
fn faults(text: &str, open: bool) -> Vec<String> {
    let mut faults = Vec::new();
    let mut families = BTreeMap::<String, Family>::new();
    let mut samples = BTreeSet::new();
    // The samples of a family stand together, behind its comments.
    let mut current = String::new();
    let body = match text.strip_suffix("# EOF\n") {
        Some(body) if open => body,
        None if !open => text,
        _ => return vec!["# EOF ends OpenMetrics and nothing else".to_owned()],
    };
    if !body.is_empty() && !body.ends_with('\n') {
        faults.push("the last line does not end".to_owned());
    }
    for line in body.lines() {
        let mut fault = |what: &str| faults.push(format!("{what}: {line}"));
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (Some(key), Some(name), Some(rest)) = (words.next(), words.next(), words.next())
            else {
                fault("a comment without a text");
                continue;
            };
            if current != name && families.contains_key(name) {
                fault("a family in two places");
            }
            current = name.to_owned();
            let family = families.entry(name.to_owned()).or_default();
            match key {
                "TYPE" if family.kind.is_empty() => family.kind = rest.to_owned(),
                "UNIT" if open && family.unit.is_none() && name.ends_with(&format!("_{rest}")) => {
                    family.unit = Some(rest.to_owned());
                }
                "HELP" if !family.helped && !rest.is_empty() => family.helped = true,
                _ => fault("not a comment of this format, or a second one"),
            }
            continue;
        }
        let Some((name, labels, value)) = sample(line) else {
            fault("not a sample");
            continue;
        };
        let family = match name.strip_suffix("_total") {
            Some(base) if open => base,
            _ => name,
        };
        let Some(Family { kind, helped, .. }) = families.get(family).filter(|_| family == current)
        else {
            fault("not behind the comments of its family");
            continue;
        };
        if !helped || !["counter", "gauge"].contains(&kind.as_str()) {
            fault("no help or no type");
        }
        if (kind == "counter") != name.ends_with("_total") {
            fault("counters and no others end with _total");
        }
        if !value.is_finite() || kind == "counter" && value < 0.0 {
            fault("not a value");
        }
        // Base units, as promtool wants them.
        let units = ["ms", "us", "milliseconds", "microseconds", "bits", "kilobytes", "percent"];
        if !is_name(name) || name.split('_').any(|word| units.contains(&word)) {
            fault("not a name");
        }
        let names: BTreeSet<_> = labels.iter().map(|(label, _)| label).collect();
        if names.len() < labels.len() || names.into_iter().any(|label| !is_name(label)) {
            fault("not the names of labels");
        }
        if !samples.insert((name.to_owned(), labels)) {
            fault("twice");
        }
    }
    faults
}

#[test]
fn the_figures_of_all_services_follow_the_rules_of_both_formats() {
    let router = Router::new();
    for (form, open) in [("openmetrics", true), ("prometheus", false)] {
        let text = router.metrics(form);
        assert_eq!(faults(&text, open), [] as [String; 0], "{text}");
        for kind in KINDS {
            let family = format!("# TYPE sheaf_{kind}_");
            assert!(text.contains(&family), "{kind} has no figures:\n{text}");
            assert!(text.contains(&format!("sheaf_service_responds{{kind=\"{kind}\"")), "{text}");
        }
    }
    let promtool =
        Command::new("promtool").args(["check", "metrics"]).stdin(Stdio::piped()).spawn();
    let Ok(mut promtool) = promtool else {
        eprintln!("skipped: there is no promtool here; install prometheus");
        return;
    };
    let text = router.metrics("prometheus");
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(promtool.wait().unwrap().success(), "{text}");
}

#[test]
fn text_that_breaks_a_rule_is_found() {
    let good = "# TYPE a_total counter\n# HELP a_total It counts\na_total{b=\"c\\\"d\"} 1\n";
    assert_eq!(faults(good, false), [] as [String; 0]);
    let open = good.replace("a_total counter", "a counter").replace("a_total It", "a It");
    assert_eq!(faults(&format!("{open}# EOF\n"), true), [] as [String; 0]);
    for (old, new) in [
        ("counter\n", "gauge\n"),
        ("# HELP a_total It counts\n", ""),
        ("# TYPE a_total counter\n", ""),
        ("a_total{", "b_total{"),
        ("b=\"", "1b=\""),
        ("\\\"", "\\d"),
        ("} 1", "} -1"),
        ("} 1", "} NaN"),
        ("} 1\n", "} 1\na_total{b=\"c\\\"d\"} 2\n"),
        ("} 1\n", "} 1"),
    ] {
        let bad = good.replace(old, new);
        assert_ne!(bad, good);
        assert!(!faults(&bad, false).is_empty(), "{bad}");
    }
    assert!(!faults(good, true).is_empty() && !faults(&open, true).is_empty());
}
