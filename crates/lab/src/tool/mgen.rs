//! MGEN: its command lines, and the lines SEND and RECV of its logs.

use super::figures::Figures;
use super::kind::Tool;
use super::process::{Running, Stop};
use super::text::{number, quoted, words};
use crate::link::plan::Point;
use crate::realtime::wait_until;
use anyhow::{Context, ensure};
use sheaf_netio::clock;
use sheaf_netio::netns::Namespace;

/// Port of the receiver.
const PORT: u16 = 5001;
/// Line of the receiver's log that says it can be sent to.
const READY: &str = "LISTEN ";
/// Seconds of a day: time stamps are times of day.
const DAY: f64 = 86_400.0;

/// The receiver's command line.
pub fn receiver() -> Vec<String> {
    words(&format!("mgen flush port {PORT}"))
}

/// The sender's command line. An event is one word with spaces inside.
pub fn sender(point: &Point, address: &str) -> Vec<String> {
    let (rate, bytes) = (1.0 / point.interval().as_secs_f64(), point.bytes);
    let (on, off) = (
        format!("ON 1 UDP DST {address}/{PORT} PERIODIC [{rate:.6} {bytes}]"),
        format!("{:.6} OFF 1", point.duration.as_secs_f64()),
    );
    ["mgen", "flush", "txlog", "event", &on, "event", &off].map(str::to_owned).to_vec()
}

/// Reads the sender's log and the receiver's.
///
/// # Errors
/// Fails with one line when a line of either is damaged.
pub fn parse(point: &Point, sent: &str, received: &str) -> anyhow::Result<Figures> {
    let started = |log: &str| log.lines().any(|line| line.contains(" START "));
    ensure!(started(sent), "mgen's sender logged no START, but {:?}", quoted(sent));
    ensure!(started(received), "mgen's receiver logged no START, but {:?}", quoted(received));
    let count = sent.lines().filter(|line| line.contains(" SEND proto>UDP ")).count();
    let arrivals = received.lines().filter(|line| line.contains(" RECV proto>UDP "));
    let delays = arrivals.map(delay).collect::<Result<Vec<_>, _>>()?;
    Figures::of_stream(count as u64, point.bytes, point.duration, &delays).checked(Tool::Mgen)
}

/// One-way delay in ms of the packet that `line` reports.
fn delay(line: &str) -> anyhow::Result<f64> {
    let sent = line.split_once(" sent>").map(|(_, rest)| rest);
    let sent = sent.with_context(|| format!("mgen's line has no time sent: {:?}", quoted(line)))?;
    let seconds = time_of_day(line)? - time_of_day(sent)?;
    // A packet may be sent before midnight and arrive after.
    Ok(if seconds < -DAY / 2.0 { seconds + DAY } else { seconds } * 1e3)
}

/// Seconds since midnight of the time `HH:MM:SS.micros` that `text` begins with.
fn time_of_day(text: &str) -> anyhow::Result<f64> {
    let time = text.split_whitespace().next().unwrap_or_default();
    let mut parts = time.split(':');
    let mut next = || parts.next().with_context(|| format!("no time of day: {:?}", quoted(time)));
    let (hours, minutes) = (number::<u8>(next()?)?, number::<u8>(next()?)?);
    let seconds = number::<f64>(next()?)?;
    ensure!(hours < 24 && minutes < 60 && seconds < 61.0, "no time of day: {:?}", quoted(time));
    Ok(f64::from(hours) * 3600.0 + f64::from(minutes) * 60.0 + seconds)
}

/// Sends from `near` to a receiver at `far`.
pub(super) fn run(
    point: &Point,
    near: &Namespace,
    far: &Namespace,
    address: &str,
) -> anyhow::Result<Figures> {
    let mut receiver = Running::start(far, &receiver())?;
    receiver.wait_for(READY)?;
    let sent = Running::start(near, &sender(point, address))?.output(point)?;
    // Packets that are still on their way.
    wait_until(clock::now() + point.patience())?;
    let received = receiver.stop(Stop::Terminate)?;
    sent.read(|sent| parse(point, sent, &received.text))
}
