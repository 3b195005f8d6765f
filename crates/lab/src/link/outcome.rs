//! The outcome of one point, from arrivals, round trips or a transfer: the same on both engines.

use super::plan::{ON_WIRE, PAYLOAD, Point};
use crate::columns::{self, Column, column};
use crate::measured::{Measured, Series};
use crate::view::{Axis, Metric};
use sheaf_stage::{Duration, Instant};

pub(super) const ERROR: Column<Udp> = column("error", "error of the rate", "%", |udp| {
    let reference = if udp.ideal_pace.is_nan() { udp.set } else { udp.ideal() };
    100.0 * (udp.wire() / reference - 1.0)
});
pub(super) const BURST: Column<Udp> =
    column("burst", "largest burst above the rate", "bytes", |udp| udp.burst);
pub(super) const OVER_P99: Column<RoundTrips> =
    column("over_p99", "99th percentile beyond the RTT set", "ms", |ping| {
        ping.quantile(0.99) - millis(ping.set)
    });
pub(super) const OVER_MIN: Column<RoundTrips> =
    column("over_min", "least beyond the RTT set", "ms", |ping| {
        ping.quantile(0.0) - millis(ping.set)
    });
pub(super) const IN_FLIGHT: Column<Transfer> =
    column("in_flight", "most data on its way", "kB", |tcp| {
        tcp.in_flight.iter().map(|sample| sample.1).max().unwrap_or(0) as f64 / 1e3
    });

/// The numbers of UDP above the rate.
const UDP: &[Column<Udp>] = &[
    column("received", "payload received", "Mbit/s", |udp| mbits(udp.pace, PAYLOAD)),
    column("wire", "received, headers and gaps counted", "Mbit/s", Udp::wire),
    column("ideal", "what an ideal link carries of what was sent", "Mbit/s", Udp::ideal),
    ERROR,
    BURST,
];

/// The numbers of pings.
const PING: &[Column<RoundTrips>] = &[
    column("rtt_mean", "mean RTT", "ms", |ping| {
        ping.trips.iter().map(|trip| millis(*trip)).sum::<f64>() / ping.trips.len() as f64
    }),
    column("rtt_p50", "median RTT", "ms", |ping| ping.quantile(0.5)),
    column("rtt_p99", "99th percentile of the RTT", "ms", |ping| ping.quantile(0.99)),
    column("rtt_min", "least RTT", "ms", |ping| ping.quantile(0.0)),
    OVER_P99,
    OVER_MIN,
    column("early", "round trips earlier than set", "", |ping| {
        ping.trips.iter().filter(|trip| **trip < ping.set).count() as f64
    }),
];

/// The numbers of a bulk transfer.
const TCP: &[Column<Transfer>] = &[
    column("goodput", "goodput", "Mbit/s", |tcp| {
        tcp.bytes as f64 * 8.0 / tcp.duration.as_secs_f64() / 1e6
    }),
    IN_FLIGHT,
    column("first_repeat", "first repeated segment after", "s", |tcp| {
        tcp.first_repeat.map_or(f64::NAN, |time| time.as_secs_f64())
    }),
    column("repeats", "repeated segments", "", |tcp| tcp.repeats as f64),
];

/// The numbers of all tests that send single packets.
const PACKETS: &[Column<Packets>] = &[
    column("sent", "packets sent", "", |packets| packets.sent as f64),
    column("loss", "loss", "%", |packets| {
        100.0 * (1.0 - packets.arrived as f64 / packets.sent.max(1) as f64)
    }),
];

/// The disturbance by the machine's load, on real stacks.
pub(super) const MACHINE: &[Column<Machine>] = &[
    column("sender_late", "the sender late by at most", "ms", |machine| machine.sender_late),
    column("late_p99", "packets late in the emulator, 99th percentile", "ms", |machine| {
        machine.late_p99
    }),
    column("late_max", "the latest in the emulator", "ms", |machine| machine.late_max),
];

/// The numbers of a row, in the order of the table. Each test has some of them.
pub fn metrics() -> Vec<Metric> {
    [
        columns::metrics(UDP),
        columns::metrics(PING),
        columns::metrics(TCP),
        columns::metrics(PACKETS),
        columns::metrics(MACHINE),
    ]
    .concat()
}

/// UDP as it arrived.
pub(super) struct Udp {
    /// Rate of the link, Mbit/s.
    set: f64,
    /// Packets a second that arrived.
    pace: f64,
    /// Packets a second that an ideal link would have delivered; NaN where it is not known.
    ideal_pace: f64,
    /// Most bytes above the rate in one window.
    burst: f64,
}

impl Udp {
    fn wire(&self) -> f64 {
        mbits(self.pace, ON_WIRE)
    }

    fn ideal(&self) -> f64 {
        mbits(self.ideal_pace, ON_WIRE)
    }
}

/// Pings that came back; there is at least one.
pub(super) struct RoundTrips {
    /// The round-trip time of the link.
    set: Duration,
    /// Round trips, sorted.
    trips: Vec<Duration>,
}

impl RoundTrips {
    /// Round-trip time that `share` (0..1) of the pings do not exceed, in ms.
    fn quantile(&self, share: f64) -> f64 {
        let place = ((self.trips.len() - 1) as f64 * share).round() as usize;
        millis(self.trips[place])
    }
}

/// Packets of one test.
struct Packets {
    sent: u64,
    arrived: usize,
}

/// Lateness on a machine with other load, in ms; NaN where it was not measured.
pub(super) struct Machine {
    /// The most by which the sender was late.
    pub sender_late: f64,
    /// The 99th percentile of departures from the emulator.
    pub late_p99: f64,
    /// The latest departure from the emulator.
    pub late_max: f64,
}

impl Machine {
    /// Nothing was measured.
    pub const UNKNOWN: Machine =
        Machine { sender_late: f64::NAN, late_p99: f64::NAN, late_max: f64::NAN };
}

/// Most points of a curve; longer ones are thinned out.
const CURVE: usize = 400;

/// The row of UDP above the rate, from the times of arrival of `sent` packets.
///
/// A real sender is late at times, for longer than a short queue lasts. The link is idle then,
/// which is no error of the link. So its rate is compared with `ideal`, the arrivals of the same
/// packets over an ideal link, where these are given; otherwise with the rate set.
pub fn rate(point: &Point, arrivals: &[Instant], sent: u64, ideal: Option<&[Instant]>) -> Measured {
    let mut metrics = Vec::new();
    if let (Some(rate), Some(pace)) = (point.rate, pace(arrivals)) {
        let ideal_pace = ideal.and_then(self::pace).unwrap_or(f64::NAN);
        let bytes_per_second = rate.as_bps() as f64 / 8.0;
        let burst = largest_burst(arrivals, bytes_per_second);
        let udp = Udp { set: rate.as_bps() as f64 / 1e6, pace, ideal_pace, burst };
        metrics = columns::values(UDP, &udp);
    }
    metrics.extend(columns::values(PACKETS, &Packets { sent, arrived: arrivals.len() }));
    Measured { metrics, series: Vec::new() }
}

/// Packets a second. Time begins with the first arrival, so that packet does not count.
fn pace(arrivals: &[Instant]) -> Option<f64> {
    let [first, .., last] = arrivals else { return None };
    Some((arrivals.len() - 1) as f64 / (*last - *first).as_secs_f64())
}

/// The most bytes above `rate` (in bytes a second) in any window of two packets or more that begins
/// with an arrival: with `B` bytes up to each arrival, the largest rise of `B - rate × time`.
fn largest_burst(arrivals: &[Instant], rate: f64) -> f64 {
    let Some(start) = arrivals.first() else { return 0.0 };
    let above = |place: usize| {
        let time = (arrivals[place] - *start).as_secs_f64();
        (place * ON_WIRE) as f64 - rate * time
    };
    let (mut lowest, mut largest) = (f64::INFINITY, 0.0f64);
    for place in 2..arrivals.len() {
        lowest = lowest.min(above(place - 2));
        largest = largest.max(above(place) - lowest);
    }
    // A fraction of a byte is an error of the arithmetic.
    largest.round()
}

/// The row and the curve of pings, from the round trips that came back of `sent`.
pub fn round_trips(point: &Point, mut trips: Vec<Duration>, sent: u64) -> Measured {
    trips.sort_unstable();
    let (set, arrived) = (point.rtt, trips.len());
    let mut metrics = Vec::new();
    let mut series = Vec::new();
    if arrived > 0 {
        let share = |place: usize| (place + 1) as f64 / arrived as f64;
        let over = |trip: &Duration| millis(*trip) - millis(set);
        let curve = trips.iter().enumerate().map(|(place, trip)| (over(trip), share(place)));
        series.push(Series {
            name: "Round trips later than set".to_owned(),
            x: Axis::new("beyond the RTT set", "ms"),
            y: Axis::new("share of the round trips", ""),
            points: thinned(curve.collect()),
        });
        metrics = columns::values(PING, &RoundTrips { set, trips });
    }
    metrics.extend(columns::values(PACKETS, &Packets { sent, arrived }));
    Measured { metrics, series }
}

/// A bulk transfer.
#[derive(Clone, Debug, Default)]
pub struct Transfer {
    /// Time over which the goodput was measured.
    pub duration: Duration,
    /// Bytes that the receiver got in order while it was measured.
    pub bytes: u64,
    /// Time and bytes in flight, from the start on.
    pub in_flight: Vec<(Duration, u64)>,
    /// Time of the first repeated segment.
    pub first_repeat: Option<Duration>,
    /// Repeated segments, from the start on.
    pub repeats: u64,
}

impl Transfer {
    /// Its row and its curve.
    pub fn measured(&self) -> Measured {
        let curve =
            self.in_flight.iter().map(|(at, bytes)| (at.as_secs_f64(), *bytes as f64 / 1e3));
        Measured {
            metrics: columns::values(TCP, self),
            series: vec![Series {
                name: "Data on its way".to_owned(),
                x: Axis::new("time", "s"),
                y: Axis::new("data on its way", "kB"),
                points: thinned(curve.collect()),
            }],
        }
    }
}

/// Mbit/s of `pace` packets a second with `bytes` each.
fn mbits(pace: f64, bytes: usize) -> f64 {
    pace * bytes as f64 * 8.0 / 1e6
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Every n-th point and the last, so that at most [`CURVE`] and one remain.
fn thinned(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let step = points.len().div_ceil(CURVE).max(1);
    let last = points.len().saturating_sub(1);
    let kept = points.into_iter().enumerate().filter(|(at, _)| at % step == 0 || *at == last);
    kept.map(|(_, point)| point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Arrivals of a link at 1536 bytes a millisecond, at these milliseconds.
    fn burst(millis: &[u64]) -> f64 {
        let arrivals: Vec<_> = millis.iter().map(|at| Instant::from_millis(*at)).collect();
        largest_burst(&arrivals, ON_WIRE as f64 * 1e3)
    }

    #[test]
    fn a_burst_is_what_came_above_the_rate_in_its_worst_window() {
        let packet = ON_WIRE as f64;
        assert_eq!(burst(&[0, 1, 2, 3, 4]), 0.0, "in time");
        assert_eq!(burst(&[0, 1, 4, 5, 6]), 0.0, "a pause is no burst");
        assert_eq!(burst(&[0, 5, 5, 6, 7]), packet, "one too many at 5");
        assert_eq!(burst(&[0, 9, 9, 9, 10, 10, 11]), 3.0 * packet, "two at 9, one at 10");
        assert_eq!(burst(&[0, 1]), 0.0, "one packet is no window");
    }
}
