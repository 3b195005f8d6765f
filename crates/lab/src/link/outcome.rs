//! What is made of arrivals, round trips and transfers: the same on both engines.

use super::plan::{ON_WIRE, PAYLOAD, Point};
use crate::measured::{Measured, Series};
use crate::view::Axis;
use sheaf_stage::{Duration, Instant};

/// The numbers of a row: key, name, unit.
pub const METRICS: [(&str, &str, &str); 21] = [
    ("received", "payload received", "Mbit/s"),
    ("wire", "received, headers and gaps counted", "Mbit/s"),
    ("ideal", "what an ideal link carries of what was sent", "Mbit/s"),
    ("error", "error of the rate", "%"),
    ("burst", "largest burst above the rate", "bytes"),
    ("rtt_mean", "mean RTT", "ms"),
    ("rtt_p50", "median RTT", "ms"),
    ("rtt_p99", "99th percentile of the RTT", "ms"),
    ("rtt_min", "least RTT", "ms"),
    ("over_p99", "99th percentile beyond the RTT set", "ms"),
    ("over_min", "least beyond the RTT set", "ms"),
    ("early", "round trips earlier than set", ""),
    ("goodput", "goodput", "Mbit/s"),
    ("in_flight", "most data on its way", "kB"),
    ("first_repeat", "first repeated segment after", "s"),
    ("repeats", "repeated segments", ""),
    ("sent", "packets sent", ""),
    ("loss", "loss", "%"),
    ("sender_late", "the sender late by at most", "ms"),
    ("late_p99", "packets late in the emulator, 99th percentile", "ms"),
    ("late_max", "the latest in the emulator", "ms"),
];

/// Points of a curve at most; longer ones are thinned out.
const CURVE: usize = 400;

/// UDP above the rate: when packets arrived, of `sent`. A real sender is late at times, for longer than a
/// short queue lasts, and then the link stands idle, which is no error of the link: `ideal`, when the
/// same packets arrive over a link without fault, is what its rate is held against; without it, the
/// rate set.
pub fn rate(point: &Point, arrivals: &[Instant], sent: u64, ideal: Option<&[Instant]>) -> Measured {
    let mut metrics = Vec::new();
    if let (Some(rate), Some(pace)) = (point.rate, pace(arrivals)) {
        let mbits = |pace: f64, bytes: usize| pace * bytes as f64 * 8.0 / 1e6;
        let (wire, set) = (mbits(pace, ON_WIRE), rate.as_bps() as f64 / 1e6);
        metrics = vec![number("received", mbits(pace, PAYLOAD)), number("wire", wire)];
        let ideal = ideal.and_then(self::pace).map(|pace| mbits(pace, ON_WIRE));
        metrics.extend(ideal.map(|ideal| number("ideal", ideal)));
        metrics.push(number("error", 100.0 * (wire / ideal.unwrap_or(set) - 1.0)));
        metrics.push(number("burst", largest_burst(arrivals, set * 1e6 / 8.0)));
    }
    metrics.push(number("sent", sent as f64));
    metrics.push(number("loss", lost(arrivals.len(), sent)));
    Measured { metrics, series: Vec::new() }
}

/// Packets a second; the first arrival begins the time, what it carried came before.
fn pace(arrivals: &[Instant]) -> Option<f64> {
    let [first, .., last] = arrivals else { return None };
    Some((arrivals.len() - 1) as f64 / (*last - *first).as_secs_f64())
}

/// The most bytes above `rate` (in bytes a second) in any window of two packets or more that
/// begins with an arrival: with `B` bytes up to each arrival, the largest rise of `B - rate × time`.
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
    // A fraction of a byte is of the arithmetic.
    largest.round()
}

/// Pings: the round trips that came back, of `sent`.
pub fn round_trips(point: &Point, mut trips: Vec<Duration>, sent: u64) -> Measured {
    trips.sort_unstable();
    let (ms, set) = (|time: Duration| time.as_secs_f64() * 1e3, point.rtt);
    let over = |time: Duration| ms(time) - ms(set);
    let mut metrics = Vec::new();
    let mut series = Vec::new();
    if let [least, ..] = *trips {
        let at = |share: f64| trips[((trips.len() - 1) as f64 * share).round() as usize];
        let mean = trips.iter().map(|trip| ms(*trip)).sum::<f64>() / trips.len() as f64;
        metrics = vec![
            number("rtt_mean", mean),
            number("rtt_p50", ms(at(0.5))),
            number("rtt_p99", ms(at(0.99))),
            number("rtt_min", ms(least)),
            number("over_p99", over(at(0.99))),
            number("over_min", over(least)),
            number("early", trips.iter().filter(|trip| **trip < set).count() as f64),
        ];
        let share = |place: usize| (place + 1) as f64 / trips.len() as f64;
        let curve = trips.iter().enumerate().map(|(place, trip)| (over(*trip), share(place)));
        series.push(Series {
            name: "Round trips later than set".to_owned(),
            x: Axis::new("beyond the RTT set", "ms"),
            y: Axis::new("share of the round trips", ""),
            points: thinned(curve.collect()),
        });
    }
    metrics.push(number("sent", sent as f64));
    metrics.push(number("loss", lost(trips.len(), sent)));
    Measured { metrics, series }
}

/// A bulk transfer.
#[derive(Clone, Debug, Default)]
pub struct Transfer {
    /// Bytes that the receiver got in order while it was measured.
    pub bytes: u64,
    /// Time and bytes in flight, from the start on.
    pub in_flight: Vec<(Duration, u64)>,
    /// When the first segment was repeated.
    pub first_repeat: Option<Duration>,
    /// Repeated segments, from the start on.
    pub repeats: u64,
}

impl Transfer {
    /// Its row and its curve.
    pub fn measured(&self, point: &Point) -> Measured {
        let most = self.in_flight.iter().map(|sample| sample.1).max().unwrap_or(0);
        let goodput = self.bytes as f64 * 8.0 / point.duration.as_secs_f64() / 1e6;
        let first = self.first_repeat.map_or(f64::NAN, |time| time.as_secs_f64());
        let curve =
            self.in_flight.iter().map(|(at, bytes)| (at.as_secs_f64(), *bytes as f64 / 1e3));
        Measured {
            metrics: vec![
                number("goodput", goodput),
                number("in_flight", most as f64 / 1e3),
                number("first_repeat", first),
                number("repeats", self.repeats as f64),
            ],
            series: vec![Series {
                name: "Data on its way".to_owned(),
                x: Axis::new("time", "s"),
                y: Axis::new("data on its way", "kB"),
                points: thinned(curve.collect()),
            }],
        }
    }
}

fn number(key: &str, value: f64) -> (String, f64) {
    (key.to_owned(), value)
}

fn lost(arrived: usize, sent: u64) -> f64 {
    100.0 * (1.0 - arrived as f64 / sent.max(1) as f64)
}

/// Every so-manieth point, and the last.
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
