//! Numbers of a source of traffic, whichever it is.

use super::kind::Tool;
use crate::link::plan::Point;
use anyhow::ensure;
use sheaf_stage::{Duration, Instant};

/// Denominator of the smoothing of RFC 3550, 6.4.1, which iperf3 uses, too.
const SMOOTHING: f64 = 16.0;

/// Numbers of one source of traffic; NaN where it does not report them. Times in ms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Packets sent.
    pub sent: f64,
    /// Packets that arrived, of pings the replies.
    pub arrived: f64,
    /// Payload that arrived, Mbit/s.
    pub goodput: f64,
    /// Least one-way delay.
    pub delay_min: f64,
    /// Mean one-way delay.
    pub delay_mean: f64,
    /// Longest one-way delay.
    pub delay_max: f64,
    /// Standard deviation of the one-way delay.
    pub delay_stdev: f64,
    /// Interarrival jitter of RFC 3550 after the last packet.
    pub jitter: f64,
    /// Mean difference between the delays of packets that follow each other.
    pub delay_step: f64,
    /// Least round-trip time.
    pub rtt_min: f64,
    /// Mean round-trip time.
    pub rtt_mean: f64,
    /// Longest round-trip time.
    pub rtt_max: f64,
    /// Standard deviation of the round-trip time.
    pub rtt_stdev: f64,
    /// Median round-trip time.
    pub rtt_p50: f64,
    /// 99th percentile of the round-trip time.
    pub rtt_p99: f64,
    /// Repeated segments of TCP.
    pub repeats: f64,
}

impl Figures {
    /// Nothing was reported.
    pub const UNKNOWN: Figures = Figures {
        sent: f64::NAN,
        arrived: f64::NAN,
        goodput: f64::NAN,
        delay_min: f64::NAN,
        delay_mean: f64::NAN,
        delay_max: f64::NAN,
        delay_stdev: f64::NAN,
        jitter: f64::NAN,
        delay_step: f64::NAN,
        rtt_min: f64::NAN,
        rtt_mean: f64::NAN,
        rtt_max: f64::NAN,
        rtt_stdev: f64::NAN,
        rtt_p50: f64::NAN,
        rtt_p99: f64::NAN,
        repeats: f64::NAN,
    };

    /// The figures of a stream of `sent` packets with `bytes` of payload each, sent within
    /// `duration`, from the one-way `delays` in ms of those that arrived, in their order.
    pub fn of_stream(sent: u64, bytes: usize, duration: Duration, delays: &[f64]) -> Figures {
        let count = delays.len() as f64;
        let mean = |values: &mut dyn Iterator<Item = f64>, of: f64| values.sum::<f64>() / of;
        let steps = || delays.windows(2).map(|pair| (pair[1] - pair[0]).abs());
        let delay_mean = mean(&mut delays.iter().copied(), count);
        let squares = &mut delays.iter().map(|delay| {
            let off = delay - delay_mean;
            off * off
        });
        Figures {
            sent: sent as f64,
            arrived: count,
            goodput: count * bytes as f64 * 8.0 / duration.as_secs_f64() / 1e6,
            delay_min: delays.iter().copied().fold(f64::NAN, f64::min),
            delay_mean,
            delay_max: delays.iter().copied().fold(f64::NAN, f64::max),
            delay_stdev: mean(squares, count).sqrt(),
            jitter: steps().fold(0.0, |jitter, step| jitter + (step - jitter) / SMOOTHING),
            delay_step: mean(&mut steps(), count - 1.0),
            ..Figures::UNKNOWN
        }
    }

    /// The same from the times at which packets were sent and arrived.
    pub fn of_times(point: &Point, sent: u64, times: &[(Instant, Instant)]) -> Figures {
        let delay = |(sent, arrived): &(Instant, Instant)| {
            arrived.saturating_since(*sent).as_secs_f64() * 1e3
        };
        let delays: Vec<_> = times.iter().map(delay).collect();
        Figures::of_stream(sent, point.bytes, point.duration, &delays)
    }

    /// Refuses figures that no run of the program can have.
    ///
    /// # Errors
    /// Names the program when more packets arrived than were sent, or a number is negative.
    pub(super) fn checked(self, tool: Tool) -> anyhow::Result<Figures> {
        let name = tool.name();
        ensure!(
            self.arrived.is_nan() || self.sent.is_nan() || self.arrived <= self.sent,
            "{name} reports {} packets of {} sent; its clock or its output is damaged",
            self.arrived,
            self.sent
        );
        let negative = [self.sent, self.arrived, self.goodput, self.rtt_min, self.repeats]
            .into_iter()
            .find(|number| *number < 0.0 || number.is_infinite());
        ensure!(
            negative.is_none(),
            "{name} reports {} of a count or time",
            negative.unwrap_or(0.0)
        );
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_has_the_jitter_of_rfc_3550_and_the_mean_step_of_its_delays() {
        let figures = Figures::of_stream(5, 125, Duration::from_secs(1), &[10.0, 12.0, 10.0, 10.0]);
        assert_eq!((figures.sent, figures.arrived, figures.goodput), (5.0, 4.0, 0.004));
        assert_eq!((figures.delay_min, figures.delay_mean, figures.delay_max), (10.0, 10.5, 12.0));
        assert_eq!(figures.delay_step, 4.0 / 3.0);
        let jitter =
            [2.0, 2.0, 0.0].iter().fold(0.0, |jitter, step| jitter + (step - jitter) / 16.0);
        assert_eq!(figures.jitter, jitter);
        let none = Figures::of_stream(5, 125, Duration::from_secs(1), &[]);
        assert!(none.delay_mean.is_nan() && none.delay_min.is_nan() && none.arrived == 0.0);
    }
}
