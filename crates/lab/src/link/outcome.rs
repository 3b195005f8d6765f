//! The outcome of one point, from arrivals, round trips or a transfer: the same on both engines.

use super::plan::{DATAGRAM, PAYLOAD, Point};
use crate::columns::{self, Column, column};
use crate::measured::{Measured, Series};
use crate::tool::figures::Figures;
use crate::view::{Axis, Metric};
use sheaf_stage::{Duration, Instant};
use std::collections::BTreeSet;

pub(super) const ERROR: Column<Udp> = column("error", "error of the rate", "%", |udp| {
    let reference = if udp.ideal_pace.is_nan() { udp.set } else { udp.ideal() };
    let error = 100.0 * (udp.counted() / reference - 1.0);
    // Less than a part in 10¹¹ is an error of the arithmetic; the sum takes the sign off a zero.
    (error * 1e9).round() / 1e9 + 0.0
});
pub(super) const BURST: Column<Udp> =
    column("burst", "largest burst above the rate", "bytes", |udp| udp.burst);
pub(super) const RTT_MEAN: Column<RoundTrips> =
    column("rtt_mean", "mean RTT", "ms", RoundTrips::mean);
pub(super) const RTT_MAX: Column<RoundTrips> =
    column("rtt_max", "longest RTT", "ms", |trips| trips.quantile(1.0));
pub(super) const OVER_P99: Column<RoundTrips> =
    column("over_p99", "99th percentile beyond an ideal link's RTT", "ms", |ping| {
        ping.quantile(0.99) - millis(ping.ideal)
    });
pub(super) const OVER_MIN: Column<RoundTrips> =
    column("over_min", "least beyond an ideal link's RTT", "ms", |ping| {
        ping.quantile(0.0) - millis(ping.ideal)
    });
pub(super) const IN_FLIGHT: Column<Transfer> =
    column("in_flight", "most data on its way", "kB", |tcp| {
        tcp.in_flight.iter().map(|sample| sample.1).max().unwrap_or(0) as f64 / 1e3
    });

/// The numbers of UDP above the rate.
const UDP: &[Column<Udp>] = &[
    column("received", "payload received", "Mbit/s", |udp| mbits(udp.pace, PAYLOAD)),
    column("datagrams", "received with UDP headers", "Mbit/s", |udp| mbits(udp.pace, DATAGRAM)),
    column("counted", "received, by the bytes that the rate counts", "Mbit/s", Udp::counted),
    column("ideal", "what an ideal link carries of what was sent", "Mbit/s", Udp::ideal),
    ERROR,
    BURST,
];

/// The numbers of round trips, of pings or of TCP.
const ROUND_TRIPS: &[Column<RoundTrips>] = &[
    column("rtt_min", "least RTT", "ms", |trips| trips.quantile(0.0)),
    RTT_MEAN,
    RTT_MAX,
    column("rtt_stdev", "standard deviation of the RTT", "ms", RoundTrips::deviation),
    column("rtt_p50", "median RTT", "ms", |trips| trips.quantile(0.5)),
    column("rtt_p99", "99th percentile of the RTT", "ms", |trips| trips.quantile(0.99)),
];

/// The numbers of pings alone.
const PING: &[Column<RoundTrips>] = &[
    OVER_P99,
    OVER_MIN,
    column("early", "round trips earlier than on an ideal link", "", |ping| {
        ping.trips.iter().filter(|trip| **trip < ping.ideal).count() as f64
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

pub(super) const DELAY_MEAN: Column<Figures> =
    column("delay_mean", "mean one-way delay", "ms", |figures| figures.delay_mean);
pub(super) const LOSS: Column<Figures> =
    column("loss", "loss", "%", |figures| 100.0 * (1.0 - figures.arrived / figures.sent));
pub(super) const GOODPUT: Column<Figures> =
    column("goodput", "goodput", "Mbit/s", |figures| figures.goodput);

/// The numbers of a stream, of the lab's own or of a program, and of programs' other tests.
const FIGURES: &[Column<Figures>] = &[
    column("delay_min", "least one-way delay", "ms", |figures| figures.delay_min),
    DELAY_MEAN,
    column("delay_max", "longest one-way delay", "ms", |figures| figures.delay_max),
    column("delay_stdev", "standard deviation of the one-way delay", "ms", |figures| {
        figures.delay_stdev
    }),
    column("jitter", "jitter of RFC 3550 after the last packet", "ms", |figures| figures.jitter),
    column(
        "delay_step",
        "mean difference between the delays of packets in a row",
        "ms",
        |figures| figures.delay_step,
    ),
    GOODPUT,
    column("sent", "packets sent", "", |figures| figures.sent),
    LOSS,
    column("rtt_min", "least RTT", "ms", |figures| figures.rtt_min),
    column("rtt_mean", "mean RTT", "ms", |figures| figures.rtt_mean),
    column("rtt_max", "longest RTT", "ms", |figures| figures.rtt_max),
    column("rtt_stdev", "standard deviation of the RTT", "ms", |figures| figures.rtt_stdev),
    column("rtt_p50", "median RTT", "ms", |figures| figures.rtt_p50),
    column("rtt_p99", "99th percentile of the RTT", "ms", |figures| figures.rtt_p99),
    column("repeats", "repeated segments", "", |figures| figures.repeats),
];

/// The row that `figures` make; what a source does not report is missing.
pub fn figures(figures: &Figures) -> Measured {
    let metrics = columns::values(FIGURES, figures);
    let metrics = metrics.into_iter().filter(|(_, value)| value.is_finite()).collect();
    Measured { metrics, series: Vec::new() }
}

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
    column("stood_still", "time that the emulator stood still", "ms", |machine| {
        machine.stood_still
    }),
];

/// The numbers of a row, in the order of the table. Each test has some of them.
pub fn metrics() -> Vec<Metric> {
    let mut metrics = [
        columns::metrics(UDP),
        columns::metrics(ROUND_TRIPS),
        columns::metrics(PING),
        columns::metrics(TCP),
        columns::metrics(PACKETS),
        columns::metrics(FIGURES),
        columns::metrics(MACHINE),
    ]
    .concat();
    // Tests share keys. The first names the column.
    let mut seen = BTreeSet::new();
    metrics.retain(|metric| seen.insert(metric.key.clone()));
    metrics
}

/// UDP as it arrived.
pub(super) struct Udp {
    /// Rate of the link, Mbit/s.
    set: f64,
    /// Bytes that the rate counts for each packet.
    bytes: usize,
    /// Packets a second that arrived.
    pace: f64,
    /// Packets a second that an ideal link would have delivered; NaN where it is not known.
    ideal_pace: f64,
    /// Most bytes above the rate in one window.
    burst: f64,
}

impl Udp {
    fn counted(&self) -> f64 {
        mbits(self.pace, self.bytes)
    }

    fn ideal(&self) -> f64 {
        mbits(self.ideal_pace, self.bytes)
    }
}

/// Round trips of pings that came back, or of TCP; there is at least one.
pub(super) struct RoundTrips {
    /// The round-trip time of an ideal link.
    ideal: Duration,
    /// Round trips, sorted.
    trips: Vec<Duration>,
}

impl RoundTrips {
    /// Round-trip time that `share` (0..1) of the pings do not exceed, in ms.
    fn quantile(&self, share: f64) -> f64 {
        let place = ((self.trips.len() - 1) as f64 * share).round() as usize;
        millis(self.trips[place])
    }

    /// Mean in ms.
    fn mean(&self) -> f64 {
        // Whole nanoseconds, so that equal round trips have no deviation.
        let sum: u128 = self.trips.iter().map(|trip| trip.as_nanos()).sum();
        sum as f64 / self.trips.len() as f64 / 1e6
    }

    /// Standard deviation in ms, of these round trips alone, as ping prints it.
    fn deviation(&self) -> f64 {
        let mean = self.mean();
        let off = self.trips.iter().map(|trip| trip.as_nanos() as f64 / 1e6 - mean);
        let squares = off.map(|off| off * off);
        (squares.sum::<f64>() / self.trips.len() as f64).sqrt()
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
    /// The time that the emulator lost to its bound on bursts, warm-up included.
    pub stood_still: f64,
}

impl Machine {
    /// Nothing was measured.
    pub const UNKNOWN: Machine = Machine {
        sender_late: f64::NAN,
        late_p99: f64::NAN,
        late_max: f64::NAN,
        stood_still: f64::NAN,
    };
}

/// Most points of a curve; longer ones are thinned out.
const CURVE: usize = 400;
/// Packets of one point in a curve that shows bursts: 5 ms at 100 Mbit/s.
const CLOSE: usize = 40;
/// Points of such a curve over time: a second at 100 Mbit/s.
const CLOSE_POINTS: usize = 200;

/// The row and the curves of UDP above the rate, from the times of arrival of `sent` packets.
///
/// A real sender is late at times, for longer than a short queue lasts. The link is idle then,
/// which is no error of the link. So its rate is compared with `ideal`, the arrivals of the same
/// packets over an ideal link, where these are given; otherwise with the rate set.
pub fn rate(point: &Point, arrivals: &[Instant], sent: u64, ideal: Option<&[Instant]>) -> Measured {
    let mut metrics = Vec::new();
    if let (Some(rate), Some(pace)) = (point.rate, pace(arrivals)) {
        let ideal_pace = ideal.and_then(self::pace).unwrap_or(f64::NAN);
        let bytes_per_second = rate.as_bps() as f64 / 8.0;
        let bytes = point.counted();
        let burst = largest_burst(arrivals, bytes_per_second, bytes);
        let set = rate.as_bps() as f64 / 1e6;
        metrics = columns::values(UDP, &Udp { set, bytes, pace, ideal_pace, burst });
    }
    metrics.extend(columns::values(PACKETS, &Packets { sent, arrived: arrivals.len() }));
    Measured { metrics, series: rates(arrivals) }
}

/// The rate over time, the same from close up, and its distribution (UiO, figures 4.1 to 4.4).
fn rates(arrivals: &[Instant]) -> Vec<Series> {
    let rate = || Axis::new("received with UDP headers", "Mbit/s");
    let time = || Axis::new("time since the first packet", "s");
    let whole = paces(arrivals, arrivals.len().div_ceil(CURVE).max(1));
    let close = paces(arrivals, CLOSE);
    let mut sorted: Vec<_> = close.iter().map(|(_, rate)| *rate).collect();
    sorted.sort_by(f64::total_cmp);
    let share = |place: usize| (place + 1) as f64 / sorted.len() as f64;
    let shares = sorted.iter().enumerate().map(|(place, rate)| (*rate, share(place)));
    let series = |name: &str, x, y, points| Series { name: name.to_owned(), x, y, points };
    let shares = thinned(shares.collect());
    let close = close.into_iter().take(CLOSE_POINTS).collect();
    vec![
        series("Rate received over time", time(), rate(), whole),
        series("Rate of each 40 packets over time", time(), rate(), close),
        series("Rate of each 40 packets", rate(), Axis::new("share of the time", ""), shares),
    ]
}

/// Seconds from the first arrival and Mbit/s of datagrams, of each `packets` packets in a row. So a
/// link that keeps its rate has a straight line, whatever number of packets fits into a time.
fn paces(arrivals: &[Instant], packets: usize) -> Vec<(f64, f64)> {
    let Some(start) = arrivals.first() else { return Vec::new() };
    let ends: Vec<_> = arrivals.iter().step_by(packets).collect();
    let pace = |ends: &[&Instant]| {
        let seconds = (*ends[1] - *ends[0]).as_secs_f64();
        ((*ends[1] - *start).as_secs_f64(), mbits(packets as f64 / seconds, DATAGRAM))
    };
    ends.windows(2).map(pace).collect()
}

/// Packets a second. Time begins with the first arrival, so that packet does not count.
fn pace(arrivals: &[Instant]) -> Option<f64> {
    let [first, .., last] = arrivals else { return None };
    Some((arrivals.len() - 1) as f64 / (*last - *first).as_secs_f64())
}

/// The most bytes above `rate` (in bytes a second) in any window of two packets or more that begins
/// with an arrival: with `B` bytes up to each arrival, the largest rise of `B - rate × time`. The
/// rate counts `bytes` for each packet.
fn largest_burst(arrivals: &[Instant], rate: f64, bytes: usize) -> f64 {
    let Some(start) = arrivals.first() else { return 0.0 };
    let above = |place: usize| {
        let time = (arrivals[place] - *start).as_secs_f64();
        (place * bytes) as f64 - rate * time
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
    let (ideal, arrived) = (point.echo(), trips.len());
    let mut metrics = Vec::new();
    let mut series = Vec::new();
    if arrived > 0 {
        let share = |place: usize| (place + 1) as f64 / arrived as f64;
        let over = |trip: &Duration| millis(*trip) - millis(ideal);
        let curve = trips.iter().enumerate().map(|(place, trip)| (over(trip), share(place)));
        series.push(Series {
            name: "Round trips later than ideal".to_owned(),
            x: Axis::new("beyond an ideal link's RTT", "ms"),
            y: Axis::new("share of the round trips", ""),
            points: thinned(curve.collect()),
        });
        let trips = RoundTrips { ideal, trips };
        metrics = columns::values(ROUND_TRIPS, &trips);
        metrics.extend(columns::values(PING, &trips));
    }
    metrics.extend(columns::values(PACKETS, &Packets { sent, arrived }));
    Measured { metrics, series }
}

/// A bulk transfer.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// The round-trip time of the link without a queue.
    rtt: Duration,
    /// Time over which the goodput was measured.
    pub duration: Duration,
    /// Bytes that the receiver got in order while it was measured.
    pub bytes: u64,
    /// Time and bytes in flight, from the start on.
    pub in_flight: Vec<(Duration, u64)>,
    /// Time and the round trip of segments as their sender smooths it, from the start on.
    pub trips: Vec<(Duration, Duration)>,
    /// Time of the first repeated segment.
    pub first_repeat: Option<Duration>,
    /// Repeated segments, from the start on.
    pub repeats: u64,
}

impl Transfer {
    /// A transfer over the link of `point` that has not begun.
    pub fn new(point: &Point) -> Transfer {
        Transfer {
            rtt: point.rtt,
            duration: point.duration,
            bytes: 0,
            in_flight: Vec::new(),
            trips: Vec::new(),
            first_repeat: None,
            repeats: 0,
        }
    }

    /// Its row and its curves.
    pub fn measured(&self) -> Measured {
        let in_flight = self.in_flight.iter().map(|(at, bytes)| (*at, *bytes as f64 / 1e3));
        let trips = self.trips.iter().map(|(at, trip)| (*at, millis(*trip)));
        let series = vec![
            over_time("Data on its way", Axis::new("data on its way", "kB"), in_flight),
            over_time("Round trips of TCP", Axis::new("round-trip time", "ms"), trips),
        ];
        let mut metrics = columns::values(TCP, self);
        let mut trips: Vec<_> = self.trips.iter().map(|(_, trip)| *trip).collect();
        trips.sort_unstable();
        if !trips.is_empty() {
            metrics.extend(columns::values(ROUND_TRIPS, &RoundTrips { ideal: self.rtt, trips }));
        }
        Measured { metrics, series }
    }
}

/// A curve of `points` over the time since the start.
fn over_time(name: &str, y: Axis, points: impl Iterator<Item = (Duration, f64)>) -> Series {
    let points = points.map(|(at, value)| (at.as_secs_f64(), value)).collect();
    Series { name: name.to_owned(), x: Axis::new("time", "s"), y, points: thinned(points) }
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

    /// Bytes of a packet.
    const PACKET: usize = 1500;

    fn at(millis: &[u64]) -> Vec<Instant> {
        millis.iter().map(|at| Instant::from_millis(*at)).collect()
    }

    /// Arrivals of a link that carries a packet a millisecond, at these milliseconds.
    fn burst(millis: &[u64]) -> f64 {
        largest_burst(&at(millis), PACKET as f64 * 1e3, PACKET)
    }

    #[test]
    fn a_burst_is_what_came_above_the_rate_in_its_worst_window() {
        let packet = PACKET as f64;
        assert_eq!(burst(&[0, 1, 2, 3, 4]), 0.0, "in time");
        assert_eq!(burst(&[0, 1, 4, 5, 6]), 0.0, "a pause is no burst");
        assert_eq!(burst(&[0, 5, 5, 6, 7]), packet, "one too many at 5");
        assert_eq!(burst(&[0, 9, 9, 9, 10, 10, 11]), 3.0 * packet, "two at 9, one at 10");
        assert_eq!(burst(&[0, 1]), 0.0, "one packet is no window");
    }

    #[test]
    fn the_rate_over_time_is_level_between_packets_and_rises_in_a_burst() {
        let rate = |packets: f64, millis: f64| mbits(packets / (millis / 1e3), DATAGRAM);
        let level = paces(&at(&[10, 11, 12, 13, 14, 15]), 2);
        assert_eq!(level, [(0.002, rate(2.0, 2.0)), (0.004, rate(2.0, 2.0))]);
        let burst = paces(&at(&[0, 3, 4, 4, 5]), 2);
        assert_eq!(burst, [(0.004, rate(2.0, 4.0)), (0.005, rate(2.0, 1.0))]);
        assert!(paces(&[], 1).is_empty() && paces(&at(&[1]), 1).is_empty());
    }

    #[test]
    fn round_trips_have_the_mean_and_the_deviation_that_ping_prints() {
        let trips = [18, 20, 20, 30].map(Duration::from_millis).to_vec();
        let trips = RoundTrips { ideal: Duration::from_millis(20), trips };
        let numbers = columns::values(ROUND_TRIPS, &trips);
        let of = |key: &str| numbers.iter().find(|(name, _)| name == key).unwrap().1;
        assert_eq!((of("rtt_min"), of("rtt_mean"), of("rtt_max")), (18.0, 22.0, 30.0));
        // Squares 16, 4, 4 and 64 of four.
        assert_eq!(of("rtt_stdev"), 22f64.sqrt());
    }
}
