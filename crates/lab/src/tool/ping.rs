//! ping of iputils and of busybox: its command line, and its summary with the round trips above it.

use super::figures::Figures;
use super::kind::Tool;
use super::process::Running;
use super::text::{number, quoted, words};
use crate::link::plan::Point;
use crate::link::virtual_time::PING;
use anyhow::{Context, ensure};
use sheaf_netio::netns::Namespace;

/// Bytes of payload, which are ping's own default.
const PAYLOAD: usize = 56;

/// The command line: echo requests at the distance of the lab's own, for the measured time.
pub fn command(point: &Point, address: &str) -> Vec<String> {
    let count = (point.duration.as_nanos() / PING.as_nanos()).max(1);
    words(&format!("ping -n -i {} -c {count} -s {PAYLOAD} {address}", PING.as_secs_f64()))
}

/// Reads the output of ping. Least, mean, longest and deviation are those of its summary; the
/// quantiles are of the lines above, whose last digit iputils drops (three digits in all).
///
/// # Errors
/// Fails with one line when there is no summary, or a part of it is not a number.
pub fn parse(text: &str) -> anyhow::Result<Figures> {
    let counts = text.lines().find(|line| line.contains(" packets transmitted, "));
    let counts =
        counts.with_context(|| format!("ping printed no summary, but {:?}", quoted(text)))?;
    let arrived = counts.split(", ").nth(1).unwrap_or_default();
    ensure!(arrived.ends_with(" received"), "ping's summary is not one: {:?}", quoted(counts));
    let mut figures = Figures {
        sent: number::<u32>(counts)?.into(),
        arrived: number::<u32>(arrived)?.into(),
        ..Figures::UNKNOWN
    };
    let mut trips = Vec::new();
    // Replies that arrived twice do not count, as in the summary.
    for line in text.lines().filter(|line| !line.contains("(DUP!)")) {
        if let Some((_, time)) = line.split_once(" time=") {
            trips.push(number::<f64>(time)?);
        }
    }
    trips.sort_by(f64::total_cmp);
    if let Some(last) = trips.len().checked_sub(1) {
        let quantile = |share: f64| trips[(last as f64 * share).round() as usize];
        (figures.rtt_p50, figures.rtt_p99) = (quantile(0.5), quantile(0.99));
    }
    let times = text.lines().find(|line| line.contains(" min/avg/max"));
    ensure!(times.is_some() || figures.arrived == 0.0, "ping's summary has no round-trip times");
    if let Some(line) = times {
        let (_, values) = line.split_once(" = ").context("ping's summary has no times after =")?;
        let mut values = values.trim_end_matches(" ms").split('/');
        let mut next = || values.next().map(number::<f64>).transpose();
        let missing = || format!("ping's summary lacks a time: {:?}", quoted(line));
        figures.rtt_min = next()?.with_context(missing)?;
        figures.rtt_mean = next()?.with_context(missing)?;
        figures.rtt_max = next()?.with_context(missing)?;
        // busybox has no deviation.
        figures.rtt_stdev = next()?.unwrap_or(f64::NAN);
    }
    figures.checked(Tool::Ping)
}

/// Pings `address` from `near`.
pub(super) fn run(point: &Point, near: &Namespace, address: &str) -> anyhow::Result<Figures> {
    let pinging = Running::start(near, &command(point, address))?;
    pinging.output(point)?.read(parse)
}
