//! The report of window control.

use serde::{Deserialize, Serialize};
use sheaf_window::controller::FlowStatus;
use sheaf_window::key::unmapped;
use sheaf_window::{Direction, Half, Key};
use std::net::SocketAddr;

/// So many flows are listed, the fastest first: their report fits the buffer of a socket that
/// nobody reads yet. All are counted.
pub const LISTED: usize = 256;

/// Everything known of one interface.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct Report {
    /// Formula by which the capacity is divided.
    pub formula: String,
    /// Time since start.
    pub seconds: f64,
    /// All flows of a direction together.
    pub totals: Vec<Total>,
    /// The fastest flows.
    pub flows: Vec<Flow>,
}

/// One direction.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct Total {
    /// `download` or `upload`.
    pub direction: String,
    /// Capacity of the bottleneck, bit/s.
    pub capacity: f64,
    /// Where from: `given`, `auto` or `link`.
    pub source: String,
    /// Traffic that windows do not govern, bit/s.
    pub usage: f64,
    /// Flows that share the rest.
    pub active: usize,
    /// Flows in the table.
    pub flows: usize,
    /// By how much round-trip times are above their floor, ms.
    pub queue_ms: f64,
    /// Round trips per minute while bulk data was under way last; none before.
    pub rpm: Option<f64>,
    /// By how much round trips were longer then than without a queue, ms.
    pub added_ms: Option<f64>,
    /// The grade of that: `A+`, `A`, `B`, `C`, `D` or `F`.
    pub grade: Option<String>,
    /// Packets that passed since the start.
    pub packets: u64,
    /// Bytes on the wire since the start.
    pub bytes: u64,
    /// Acknowledgements whose window was lowered, of the flows in the table.
    pub clamped: u64,
    /// Copies of acknowledgements that were held back since the start, so that windows of uploads
    /// open at the rate of the link.
    #[serde(default)]
    pub paced: u64,
    /// Treatment of bulk data that windows do not govern: `leave`, `mark` or `police`.
    pub rest: String,
    /// Rate that each flow of it is held to, bit/s; none while it is left alone.
    pub rest_share: Option<f64>,
    /// Whether TCP has no windows, because it takes whatever TCP yields.
    #[serde(default)]
    pub competes: bool,
    /// Packets of it that were marked since the start.
    pub marked: u64,
    /// Packets of it that were dropped since the start.
    pub policed: u64,
}

/// The data of one direction of one connection.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct Flow {
    /// `download` or `upload`.
    pub direction: String,
    /// Where the data comes from.
    pub from: String,
    /// Where it goes to.
    pub to: String,
    /// Traffic that arrives, bit/s on the wire.
    pub rate: f64,
    /// Smallest round-trip time of late, ms; none before the first sample.
    pub rtt_ms: Option<f64>,
    /// Window that its share makes, bytes; 0 for hands off.
    pub share: u32,
    /// Window that the receiver asked for last, bytes.
    pub asked: u32,
    /// Window that was written last, bytes.
    pub written: u32,
    /// Acknowledgements whose window was lowered.
    pub clamped: u32,
    /// Bytes of data that were acknowledged.
    pub acked: u64,
}

impl Flow {
    /// The flow `key` in `direction`.
    pub fn new(key: &Key, direction: Direction, half: &Half, status: FlowStatus) -> Flow {
        let outside = SocketAddr::new(unmapped(key.outside), key.outside_port).to_string();
        let inside = SocketAddr::new(unmapped(key.inside), key.inside_port).to_string();
        let (from, to) = match direction {
            Direction::In => (outside, inside),
            Direction::Out => (inside, outside),
        };
        Flow {
            direction: name(direction).to_owned(),
            from,
            to,
            rate: status.rate,
            rtt_ms: status.rtt.map(|rtt| rtt.as_secs_f64() * 1e3),
            share: half.window,
            asked: half.asked,
            written: half.written,
            clamped: half.clamped,
            acked: half.acked,
        }
    }
}

/// Name of a direction.
pub fn name(direction: Direction) -> &'static str {
    match direction {
        Direction::In => "download",
        Direction::Out => "upload",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_stage::Duration;

    #[test]
    fn the_longest_report_fits_the_buffer_of_a_socket() {
        let address = "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff".parse().unwrap();
        let key = Key::new((address, 65535), (address, 65535));
        let most = u32::MAX;
        let half =
            Half { window: most, asked: most, written: most, clamped: most, ..Half::default() };
        let half = Half { acked: u64::MAX, ..half };
        let rtt = Some(Duration::from_secs_f64(100.0 / 3.0));
        let status = FlowStatus { rate: 1e10 / 3.0, rtt, ..FlowStatus::default() };
        let flow = || Flow::new(&key, Direction::In, &half, status);
        let flows = std::iter::repeat_with(flow).take(LISTED).collect();
        let report = Report { flows, ..Report::default() };
        // net.core.wmem_default is 212992, of which the kernel's own structures take a part.
        assert!(serde_json::to_vec(&report).unwrap().len() < 106_496);
    }
}
