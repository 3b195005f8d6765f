//! iperf3: its command lines, and the report that its client prints as JSON.

use super::figures::Figures;
use super::kind::Tool;
use super::process::{Running, Stop};
use super::text::{quoted, words};
use crate::link::plan::{Point, Test};
use anyhow::{Context, bail, ensure};
use serde_json::Value;
use sheaf_netio::netns::Namespace;

/// Line that the server prints when it can be connected to.
const READY: &str = "Server listening";

/// The server's command line: one client, then the end.
pub fn server() -> Vec<String> {
    words("iperf3 -s -1 --forceflush")
}

/// The client's command line. iperf3 takes whole seconds alone, which the plan's check demands.
pub fn client(point: &Point, address: &str) -> Vec<String> {
    let seconds = point.duration.as_secs_f64().round() as u64;
    let traffic = match point.test {
        // Samples every 100 ms, the shortest interval that it has.
        Test::Tcp => format!("-i 0.1 -C {}", point.tcp.name()),
        _ => format!("-u -l {} -b {}", point.bytes, point.stream_rate().round()),
    };
    words(&format!("iperf3 -c {address} -t {seconds} -J {traffic}"))
}

/// Reads the client's report.
///
/// # Errors
/// Fails with iperf3's own error, or with one line when the text is not such a report.
pub fn parse(text: &str) -> anyhow::Result<Figures> {
    let report: Value = serde_json::from_str(text).ok().context("iperf3 printed no JSON report")?;
    if let Some(error) = report["error"].as_str() {
        bail!("iperf3: {}", quoted(error));
    }
    let number = |part: &Value, key: &str| {
        part[key].as_f64().with_context(|| format!("iperf3's report has no number {key:?}"))
    };
    let end = &report["end"];
    let is_udp = report["start"]["test_start"]["protocol"] == "UDP";
    let figures = if is_udp {
        let (sum, start) = (&end["sum"], &report["start"]["test_start"]);
        let (sent, lost) = (number(sum, "packets")?, number(sum, "lost_packets")?);
        let (bytes, seconds) = (number(start, "blksize")?, number(sum, "seconds")?);
        ensure!(seconds > 0.0, "iperf3's report is of no time");
        // Duplicates make the count of lost packets negative.
        let arrived = (sent - lost).min(sent);
        Figures {
            sent,
            arrived,
            goodput: arrived * bytes * 8.0 / seconds / 1e6,
            jitter: number(sum, "jitter_ms")?,
            ..Figures::UNKNOWN
        }
    } else {
        let sender = &end["streams"][0]["sender"];
        let trip = |key| number(sender, key).map(|micros| micros / 1e3);
        Figures {
            goodput: number(&end["sum_received"], "bits_per_second")? / 1e6,
            repeats: number(&end["sum_sent"], "retransmits")?,
            rtt_min: trip("min_rtt")?,
            rtt_mean: trip("mean_rtt")?,
            rtt_max: trip("max_rtt")?,
            ..Figures::UNKNOWN
        }
    };
    figures.checked(Tool::Iperf3)
}

/// Sends from `near` to a server at `far`.
pub(super) fn run(
    point: &Point,
    near: &Namespace,
    far: &Namespace,
    address: &str,
) -> anyhow::Result<Figures> {
    let mut server = Running::start(far, &server())?;
    server.wait_for(READY)?;
    let client = Running::start(near, &client(point, address))?;
    let figures = client.output(point)?.read(parse)?;
    server.stop(Stop::Terminate)?;
    Ok(figures)
}
