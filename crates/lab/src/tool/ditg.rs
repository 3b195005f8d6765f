//! D-ITG: its command lines, and the summaries that ITGDec makes of its logs.

use super::figures::Figures;
use super::kind::Tool;
use super::process::{Running, Stop};
use super::text::{number, quoted, words};
use crate::link::plan::Point;
use anyhow::{Context, ensure};
use sheaf_netio::netns::Namespace;
use std::path::Path;

/// Line that the receiver prints when it can be sent to.
const READY: &str = "Press Ctrl-C to terminate";
/// Milliseconds of a second: ITGDec prints seconds.
const MILLIS: f64 = 1e3;

/// The sender's command line. It asks the receiver to write `received`.
pub fn sender(point: &Point, address: &str, sent: &Path, received: &Path) -> Vec<String> {
    let (rate, bytes) = (1.0 / point.interval().as_secs_f64(), point.bytes);
    let line = format!(
        "ITGSend -a {address} -T UDP -C {rate} -c {bytes} -t {}",
        point.duration.as_millis()
    );
    let files = ["-l".to_owned(), text(sent), "-x".to_owned(), text(received)];
    [words(&line), files.to_vec()].concat()
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// Reads the summaries that ITGDec prints of the sender's log and of the receiver's.
///
/// # Errors
/// Fails with one line when a number is missing or damaged.
pub fn parse(sent: &str, received: &str) -> anyhow::Result<Figures> {
    let sent = value(sent, "Total packets")?;
    let received = total(received)?;
    let arrived = value(received, "Total packets")?;
    let millis = |key| value(received, key).map(|seconds| seconds * MILLIS);
    let mut figures = Figures {
        sent,
        arrived,
        goodput: value(received, "Average bitrate")? / 1e3,
        ..Figures::UNKNOWN
    };
    // Of no packet there is no delay; ITGDec prints zeros.
    if arrived > 0.0 {
        figures.delay_min = millis("Minimum delay")?;
        figures.delay_mean = millis("Average delay")?;
        figures.delay_max = millis("Maximum delay")?;
        figures.delay_stdev = millis("Delay standard deviation")?;
        figures.delay_step = millis("Average jitter")?;
    }
    figures.checked(Tool::Ditg)
}

/// The part of a summary that is of all flows together.
fn total(summary: &str) -> anyhow::Result<&str> {
    let (_, total) = summary
        .split_once("TOTAL RESULTS")
        .with_context(|| format!("ITGDec printed no total, but {:?}", quoted(summary)))?;
    Ok(total)
}

/// Value of the line `key = …` in the total of a summary.
fn value(summary: &str, key: &str) -> anyhow::Result<f64> {
    let part = total(summary).unwrap_or(summary);
    let line = part.lines().find(|line| line.starts_with(key));
    let line = line.with_context(|| format!("ITGDec printed no {key:?}"))?;
    let (_, value) = line.split_once('=').with_context(|| format!("ITGDec's {key:?} has no ="))?;
    let number: f64 = number(value)?;
    ensure!(number.is_finite(), "ITGDec's {key:?} is not a number");
    Ok(number)
}

/// Sends from `near` to a receiver at `far`, and has their logs summed up.
pub(super) fn run(
    point: &Point,
    near: &Namespace,
    far: &Namespace,
    address: &str,
) -> anyhow::Result<Figures> {
    let folder = tempfile::tempdir().context("no temporary folder for D-ITG's logs")?;
    let [sent, received] = ["sent.log", "received.log"].map(|name| folder.path().join(name));
    let mut receiver = Running::start(far, &words("ITGRecv"))?;
    receiver.wait_for(READY)?;
    let sending = Running::start(near, &sender(point, address, &sent, &received))?;
    sending.output(point)?.succeeded()?;
    // It writes the rest of its log when it is interrupted.
    receiver.stop(Stop::Interrupt)?;
    let decode = |log: &Path| {
        let line = ["ITGDec".to_owned(), text(log)];
        Running::start(near, &line)?.output(point)
    };
    let (sent, received) = (decode(&sent)?, decode(&received)?);
    received.read(|received| parse(&sent.text, received))
}
