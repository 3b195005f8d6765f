//! `sheaf top`: all services, live.
//!
//! A thread asks the services once a second; what is shown are the figures of the last report, and
//! rates between the last two. [`rows`] and [`draw`] are functions of these reports alone.

use crate::reports::{self, Report};
use anyhow::{Context, ensure};
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use serde_json::Value;
use sheaf_netio::clock;
use sheaf_netio::poller::Poller;
use sheaf_stage::{Duration, Instant};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

/// Between two reports. A report costs a service up to a millisecond.
const PERIOD: Duration = Duration::from_secs(1);
/// Time that a key is waited for before new reports are looked for: what a user takes for instant.
const KEY: Duration = Duration::from_millis(100);
/// Lines that a page key moves, less than a small terminal has.
const PAGE: u16 = 10;

/// The reports of one moment.
struct Sample {
    at: Instant,
    reports: Result<Vec<Report>, String>,
}

/// `sheaf top`: until `q` or a signal.
pub fn top() -> anyhow::Result<()> {
    let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    ensure!(terminal, "top needs a terminal; use `sheaf show`");
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, ended.clone())?;
    }
    let (sender, receiver) = channel();
    std::thread::Builder::new()
        .name("reports".to_owned())
        .spawn(move || ask(&sender))
        .context("cannot ask the services")?;
    let mut terminal = ratatui::try_init().context("cannot use this terminal")?;
    let result = show(&mut terminal, &receiver, &ended);
    let restored = ratatui::try_restore().context("cannot give the terminal back");
    // With the signal a terminal may have gone: then neither drawing nor restoring works.
    if ended.load(Ordering::Relaxed) { Ok(()) } else { result.and(restored) }
}

/// Asks the services once a period, until nobody listens.
fn ask(sender: &Sender<Sample>) {
    loop {
        let at = clock::now();
        let reports = reports::gather().map_err(|error| format!("{error:#}"));
        if sender.send(Sample { at, reports }).is_err() {
            return;
        }
        let left = (at + PERIOD).saturating_since(clock::now());
        if Poller::default().wait(Some(left)).is_err() {
            return;
        }
    }
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    receiver: &Receiver<Sample>,
    ended: &AtomicBool,
) -> anyhow::Result<()> {
    let (mut last, mut scroll) = (None, 0_u16);
    let mut rows = vec![Row::plain("waits for the services …")];
    // An idle view sends nothing to the terminal, which may be at the end of a slow link.
    let mut changed = true;
    while !ended.load(Ordering::Relaxed) {
        while let Ok(sample) = receiver.try_recv() {
            rows = self::rows(last.as_ref(), &sample);
            (last, changed) = (Some(sample), true);
        }
        let most = u16::try_from(rows.len()).unwrap_or(u16::MAX).saturating_sub(1);
        scroll = scroll.min(most);
        if changed {
            terminal.draw(|frame| draw(frame, &rows, scroll)).context("cannot draw")?;
        }
        changed = event::poll(KEY).context("cannot read keys")?;
        if !changed {
            continue;
        }
        let Event::Key(key) = event::read().context("cannot read keys")? else { continue };
        if key.kind != KeyEventKind::Press {
            continue;
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Ok(()),
            KeyCode::Down | KeyCode::Char('j') => scroll = scroll.saturating_add(1),
            KeyCode::Up | KeyCode::Char('k') => scroll = scroll.saturating_sub(1),
            KeyCode::PageDown => scroll = scroll.saturating_add(PAGE),
            KeyCode::PageUp => scroll = scroll.saturating_sub(PAGE),
            KeyCode::Home => scroll = 0,
            KeyCode::End => scroll = most,
            _ => {}
        }
    }
    Ok(())
}

/// Style of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// The first line of a service.
    Head,
    /// A figure.
    Plain,
    /// Something is wrong.
    Alarm,
}

/// A line of the view.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    text: String,
    look: Look,
}

impl Row {
    fn head(text: String) -> Row {
        Row { text, look: Look::Head }
    }

    fn plain(text: impl Into<String>) -> Row {
        Row { text: text.into(), look: Look::Plain }
    }

    fn alarm_if(alarm: bool, text: String) -> Row {
        Row { text, look: if alarm { Look::Alarm } else { Look::Plain } }
    }
}

fn draw(frame: &mut Frame<'_>, rows: &[Row], scroll: u16) {
    let [title, body] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(frame.area());
    let hidden = rows.len().saturating_sub(usize::from(scroll) + usize::from(body.height));
    let more = if hidden > 0 { format!(", {hidden} more lines below") } else { String::new() };
    let reverse = Style::new().add_modifier(Modifier::REVERSED);
    let text = format!("sheaf top: q ends, arrows move{more}");
    frame.render_widget(Paragraph::new(text).style(reverse), title);
    let line = |row: &Row| {
        let style = match row.look {
            Look::Head => Style::new().add_modifier(Modifier::BOLD),
            Look::Plain => Style::new(),
            Look::Alarm => Style::new().add_modifier(Modifier::REVERSED),
        };
        Line::from(Span::styled(row.text.clone(), style))
    };
    let lines: Vec<_> = rows.iter().map(line).collect();
    frame.render_widget(Paragraph::new(lines).scroll((scroll, 0)), body);
}

/// A report, and the one before it.
struct Pair<'a> {
    new: &'a Value,
    old: Option<&'a Value>,
    seconds: f64,
}

impl<'a> Pair<'a> {
    fn number(&self, pointer: &str) -> f64 {
        self.new.pointer(pointer).and_then(Value::as_f64).unwrap_or(0.0)
    }

    fn text(&self, pointer: &str) -> &'a str {
        self.new.pointer(pointer).and_then(Value::as_str).unwrap_or("-")
    }

    fn is(&self, pointer: &str) -> bool {
        self.new.pointer(pointer).and_then(Value::as_bool).unwrap_or(false)
    }

    /// Growth of a counter, per second; 0 without an earlier report, or where the service began
    /// anew.
    fn rate(&self, pointer: &str) -> f64 {
        let old = self.old.and_then(|old| old.pointer(pointer)).and_then(Value::as_f64);
        let grown = old.map_or(0.0, |old| self.number(pointer) - old);
        if self.seconds > 0.0 { (grown / self.seconds).max(0.0) } else { 0.0 }
    }

    /// The part below each member of the array or object at `pointer`, with its key.
    fn members(&self, pointer: &str) -> Vec<(String, Pair<'a>)> {
        let old = |key: &str| self.old.and_then(|old| old.pointer(&format!("{pointer}/{key}")));
        let pair = |key: String, new: &'a Value| {
            // A key that is a pointer's special character is written as an escape (RFC 6901).
            let old = old(&key.replace('~', "~0").replace('/', "~1"));
            (key, Pair { new, old, seconds: self.seconds })
        };
        match self.new.pointer(pointer) {
            Some(Value::Array(list)) => {
                list.iter().enumerate().map(|(at, new)| pair(at.to_string(), new)).collect()
            }
            Some(Value::Object(map)) => {
                map.iter().map(|(key, new)| pair(key.clone(), new)).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// The lines of the view.
fn rows(previous: Option<&Sample>, last: &Sample) -> Vec<Row> {
    let reports = match &last.reports {
        Ok(reports) => reports,
        Err(error) => return vec![Row::alarm_if(true, error.clone())],
    };
    if reports.is_empty() {
        return vec![Row::plain("nothing runs here; start `sheaf run`, or a command")];
    }
    let seconds = previous.map_or(0.0, |old| last.at.saturating_since(old.at).as_secs_f64());
    let before = previous.and_then(|sample| sample.reports.as_ref().ok());
    let mut rows = Vec::new();
    for report in reports {
        let same = |old: &&Report| old.kind == report.kind && old.name == report.name;
        let old = before.and_then(|old| old.iter().find(same));
        let name = format!("{} {}", report.kind, report.name);
        match &report.value {
            Err(error) => {
                rows.push(Row::head(name));
                rows.push(Row::alarm_if(true, format!("  {error}")));
            }
            Ok(new) => {
                let pair = Pair { new, old: old.and_then(|old| old.value.as_ref().ok()), seconds };
                match report.kind {
                    "aggregate" => aggregate(&mut rows, &name, &pair),
                    "trunk" => trunk(&mut rows, &name, &pair),
                    "window" => window(&mut rows, &name, &pair),
                    "emulate" => emulate(&mut rows, &name, &pair),
                    "run" => sections(&mut rows, &pair),
                    _ => rows.push(Row::head(name)),
                }
            }
        }
    }
    rows
}

fn aggregate(rows: &mut Vec<Row>, name: &str, report: &Pair<'_>) {
    rows.push(Row::head(format!(
        "{name}: engine {} policy {} held {}",
        report.text("/engine"),
        report.text("/policy"),
        report.number("/held_frames")
    )));
    for (hop, pair) in report.members("/hops") {
        let (packets, frames) = (pair.rate("/aggregated_packets"), pair.rate("/meta_packets"));
        let ratio = if frames > 0.0 { packets / frames } else { 0.0 };
        rows.push(Row::alarm_if(
            pair.text("/splits") == "no",
            format!(
                "  to {hop}: splits {}  {packets:.0} pkt/s in {frames:.0} frames/s ({ratio:.1} \
                 each)  alone {:.0} pkt/s",
                pair.text("/splits"),
                pair.rate("/unaggregated_packets")
            ),
        ));
    }
    let split = report.rate("/split/packets");
    if report.new.pointer("/split/packets").is_some() {
        rows.push(Row::plain(format!("  split: {split:.0} pkt/s")));
    }
}

fn trunk(rows: &mut Vec<Row>, name: &str, report: &Pair<'_>) {
    let state = if report.is("/established") { "established" } else { "no other end" };
    rows.push(Row::head(format!(
        "{name}: {state}  sent {:.0} pkt/s  delivered {:.0} pkt/s  waiting {}",
        report.rate("/packets_sent"),
        report.rate("/packets_delivered"),
        report.number("/waiting")
    )));
    for (_, link) in report.members("/links") {
        let up = link.is("/carrier") && link.is("/up");
        let state = match (link.is("/carrier"), link.is("/up"), link.is("/used")) {
            (false, ..) => "no carrier",
            (_, false, _) => "down",
            (.., false) => "left out",
            _ => "up",
        };
        rows.push(Row::alarm_if(!up, format!("  {}: {state}", link.text("/link"))));
        rows.push(Row::plain(format!(
            "    rate {} loss {:.1}% rtt {:.1}ms queue {:.1}ms  sends {}",
            bits(link.number("/rate_bps")),
            link.number("/loss") * 100.0,
            link.number("/round_trip_ms"),
            link.number("/queue_ms"),
            bits(link.rate("/bytes_sent") * 8.0)
        )));
    }
}

fn window(rows: &mut Vec<Row>, name: &str, report: &Pair<'_>) {
    rows.push(Row::head(format!("{name}: formula {}", report.text("/formula"))));
    for (_, total) in report.members("/totals") {
        rows.push(Row::plain(format!(
            "  {}: {} of {} ({})  {} of {} flows active  queue {:.1}ms",
            total.text("/direction"),
            bits(total.rate("/bytes") * 8.0),
            bits(total.number("/capacity")),
            total.text("/source"),
            total.number("/active"),
            total.number("/flows"),
            total.number("/queue_ms")
        )));
    }
}

fn emulate(rows: &mut Vec<Row>, name: &str, report: &Pair<'_>) {
    rows.push(Row::head(format!("{name}: late by p99 {:.0}us", report.number("/lateness/p99_us"))));
    stations(rows, report);
    for (link, pair) in report.members("/links") {
        let dropped: f64 = ["offered", "delivered"]
            .map(|what| pair.number(&format!("/{what}_packets")))
            .into_iter()
            .reduce(|offered, delivered| offered - delivered)
            .unwrap_or(0.0);
        let held = pair.number("/rate_queue_packets") + pair.number("/delay_line_packets");
        rows.push(Row::plain(format!(
            "  {link}: in {} out {}  queued {} on the way {}  not delivered {:.0}",
            bits(pair.rate("/offered_bytes") * 8.0),
            bits(pair.rate("/delivered_bytes") * 8.0),
            pair.number("/rate_queue_packets"),
            pair.number("/delay_line_packets"),
            (dropped - held).max(0.0)
        )));
    }
}

/// The stations of a medium.
fn stations(rows: &mut Vec<Row>, report: &Pair<'_>) {
    for (name, station) in report.members("/stations") {
        let per_second = |what: &str| station.rate(&format!("/{what}"));
        rows.push(Row::plain(format!(
            "  {name}: sent {:.0}/s received {:.0}/s  repeated {:.0}/s lost {:.0}/s  air {:.0}%  \
             queue {}",
            per_second("offered_frames"),
            per_second("received_frames"),
            per_second("retries"),
            per_second("lost_frames"),
            per_second("air_time_ms") / 10.0,
            station.number("/queued_frames")
        )));
    }
}

/// The sections of `sheaf run` that are not at work; the others are seen by their services.
fn sections(rows: &mut Vec<Row>, report: &Pair<'_>) {
    rows.push(Row::head(format!("run: {}", report.text("/file"))));
    for (_, section) in report.members("/sections") {
        if section.is("/at_work") {
            continue;
        }
        let missing: Vec<_> =
            section.members("/waits_for").into_iter().map(|(_, one)| one.text("")).collect();
        let what = match missing.as_slice() {
            [] => String::new(),
            names => format!(" for {}", names.join(", ")),
        };
        let text = format!("  {}: {}{what}", section.text("/section"), section.text("/state"));
        rows.push(Row::alarm_if(true, text));
    }
}

/// A rate in bit/s, in at most ten columns.
fn bits(rate: f64) -> String {
    match rate {
        rate if rate >= 1e9 => format!("{:.2}Gbit/s", rate / 1e9),
        rate if rate >= 1e6 => format!("{:.2}Mbit/s", rate / 1e6),
        rate if rate >= 1e3 => format!("{:.1}kbit/s", rate / 1e3),
        rate => format!("{rate:.0}bit/s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde_json::json;

    fn sample(seconds: u64, reports: &[(&'static str, &str, Value)]) -> Sample {
        let report = |(kind, name, value): &(&'static str, &str, Value)| Report {
            kind,
            name: (*name).to_owned(),
            value: Ok(value.clone()),
        };
        let at = Instant::ZERO + Duration::from_secs(seconds);
        Sample { at, reports: Ok(reports.iter().map(report).collect()) }
    }

    fn texts(previous: Option<&Sample>, last: &Sample) -> Vec<String> {
        rows(previous, last).into_iter().map(|row| row.text).collect()
    }

    #[test]
    fn rates_are_those_between_two_reports_and_none_after_a_new_start() {
        let report = |sent: u64, bytes: u64| {
            let link = json!({"link": "dev a", "carrier": true, "up": true, "used": true,
                "rate_bps": 8_000_000, "loss": 0.01, "bytes_sent": bytes});
            json!({"established": true, "packets_sent": sent, "links": [link]})
        };
        let old = sample(10, &[("trunk", "t0", report(100, 1000))]);
        let new = sample(12, &[("trunk", "t0", report(300, 251_000))]);
        let shown = texts(Some(&old), &new);
        assert!(shown[0].starts_with("trunk t0: established  sent 100 pkt/s"), "{shown:?}");
        assert_eq!(shown[1], "  dev a: up");
        assert!(shown[2].contains("rate 8.00Mbit/s loss 1.0%"), "{shown:?}");
        assert!(shown[2].ends_with("sends 1.00Mbit/s"), "{shown:?}");
        assert!(texts(Some(&new), &old)[0].contains("sent 0 pkt/s"));
        assert!(texts(None, &new)[0].contains("sent 0 pkt/s"));
    }

    #[test]
    fn stations_of_a_medium_have_their_frames_a_second_and_their_share_of_the_air() {
        let report = |frames: u64, air: f64| {
            let left = json!({"offered_frames": frames, "air_time_ms": air, "queued_frames": 7});
            json!({"lateness": {"p99_us": 80.0}, "stations": {"left": left}})
        };
        let old = sample(10, &[("emulate", "row", report(100, 200.0))]);
        let new = sample(12, &[("emulate", "row", report(500, 1000.0))]);
        let shown = texts(Some(&old), &new);
        assert_eq!(shown[0], "emulate row: late by p99 80us");
        let station = "  left: sent 200/s received 0/s  repeated 0/s lost 0/s  air 40%  queue 7";
        assert_eq!(shown[1..], [station]);
    }

    #[test]
    fn what_is_not_at_work_stands_out() {
        let sections = json!([
            {"section": "window eth0", "at_work": true, "state": "running"},
            {"section": "trunk t0", "at_work": false, "state": "waiting", "waits_for": ["wwan0"]},
        ]);
        let run = json!({"file": "/etc/sheaf/sheaf.toml", "sections": sections});
        let shown = rows(None, &sample(1, &[("run", "sheaf", run)]));
        let alarm = Row { text: "  trunk t0: waiting for wwan0".to_owned(), look: Look::Alarm };
        assert_eq!(shown[1..], [alarm]);
        let lost = Sample { at: Instant::ZERO, reports: Err("no".to_owned()) };
        assert_eq!(rows(None, &lost), [Row { text: "no".to_owned(), look: Look::Alarm }]);
    }

    #[test]
    fn the_view_fits_80_by_24_and_says_what_is_below() {
        let hops: serde_json::Map<_, _> =
            (0..40).map(|hop| (format!("10.0.0.{hop}"), json!({"splits": "yes"}))).collect();
        let report = json!({"engine": "kernel", "policy": "busy", "held_frames": 0, "hops": hops});
        let rows = rows(None, &sample(1, &[("aggregate", "wlan0", report)]));
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| draw(frame, &rows, 0)).unwrap();
        let lines: Vec<String> = terminal
            .backend()
            .buffer()
            .content()
            .chunks(80)
            .map(|cells| cells.iter().map(|cell| cell.symbol()).collect())
            .collect();
        assert!(lines[0].starts_with("sheaf top: q ends, arrows move, 18 more lines below"));
        assert!(lines[1].starts_with("aggregate wlan0: engine kernel policy busy held 0"));
        assert_eq!(lines.len(), 24);
        let longest = rows.iter().map(|row| row.text.chars().count()).max().unwrap();
        assert!(longest <= 80, "{longest}");
    }
}
