//! The learned rate of a link, over a fluid model of a link.

use proptest::prelude::*;
use sheaf_stage::{Bitrate, Duration, Instant};
use sheaf_trunk::rate::{RateControl, Sample};
use std::collections::VecDeque;

/// A link with a queue; packets always wait to be sent on it.
struct Link {
    control: RateControl,
    /// Bytes per second, and seconds.
    rate: f64,
    delay: f64,
    queue: f64,
    received: f64,
    last_at: f64,
    time: f64,
    limited: bool,
    /// Reports on their way back.
    reports: VecDeque<(f64, Sample)>,
    longest_queue: f64,
    carried: f64,
}

impl Link {
    fn new(mbps: f64, delay_ms: f64) -> Link {
        let mut control = RateControl::new(Bitrate::from_mbps(4));
        control.set_round_trip(Duration::from_secs_f64(2.0 * delay_ms / 1e3));
        Link {
            control,
            rate: mbps * 125_000.0,
            delay: delay_ms / 1e3,
            queue: 0.0,
            received: 0.0,
            last_at: 0.0,
            time: 0.0,
            limited: true,
            reports: VecDeque::new(),
            longest_queue: 0.0,
            carried: 0.0,
        }
    }

    fn run(&mut self, seconds: f64) {
        let (end, mut next_report) = (self.time + seconds, self.time);
        self.longest_queue = 0.0;
        self.carried = 0.0;
        let step = 0.001;
        while self.time < end {
            self.time += step;
            let offered =
                if self.limited { self.control.pace().as_bps() as f64 / 8.0 } else { 0.0 };
            self.queue += offered * step;
            let sent = self.queue.min(self.rate * step);
            self.queue -= sent;
            self.received += sent;
            self.carried += sent;
            if sent > 0.0 {
                self.last_at = self.time;
            }
            self.longest_queue = self.longest_queue.max(self.queue / self.rate);
            if self.time >= next_report {
                next_report += 0.02;
                let one_way = self.delay + self.queue / self.rate;
                let sample = Sample {
                    bytes: self.received as u64,
                    at: (self.last_at * 1e6) as u32,
                    one_way: Some(((one_way + 4_294.0) * 1e6) as u64 as u32), // clocks wrap apart
                    least: None,
                    limited: self.limited,
                    sent: 0,
                    lost: 0,
                };
                self.reports.push_back((self.time + one_way + self.delay, sample));
            }
            while let Some((at, sample)) = self.reports.front().copied()
                && at <= self.time
            {
                self.reports.pop_front();
                self.control.report(sample, Instant::from_nanos((self.time * 1e9) as u64));
            }
        }
    }

    fn share(&self) -> f64 {
        self.control.rate().as_bps() as f64 / 8.0 / self.rate
    }
}

#[test]
fn a_rate_far_above_the_guess_is_found_within_half_a_second() {
    let mut link = Link::new(200.0, 5.0);
    link.run(0.5);
    assert!((0.95..1.05).contains(&link.share()), "{}", link.share());
}

#[test]
fn a_link_that_slows_down_is_followed_and_its_queue_drained() {
    let mut link = Link::new(20.0, 5.0);
    link.run(3.0);
    link.rate /= 4.0;
    link.run(1.0);
    assert!((0.95..1.05).contains(&link.share()), "{}", link.share());
    link.run(2.0);
    assert!(link.longest_queue < 0.03, "{}", link.longest_queue);
    assert!(link.carried > 0.98 * 2.0 * link.rate);
}

#[test]
fn a_link_that_becomes_faster_is_followed() {
    let mut link = Link::new(5.0, 5.0);
    link.run(3.0);
    link.rate *= 4.0;
    link.run(2.0);
    assert!((0.95..1.05).contains(&link.share()), "{}", link.share());
}

#[test]
fn a_path_that_becomes_longer_is_not_taken_for_a_queue_for_long() {
    let mut link = Link::new(20.0, 5.0);
    link.run(3.0);
    link.delay += 0.030;
    link.run(2.0);
    link.run(3.0);
    assert!(link.carried > 0.9 * 3.0 * link.rate, "{}", link.carried / 3.0 / link.rate);
}

#[test]
fn what_is_not_asked_of_a_link_does_not_lower_its_rate() {
    let mut link = Link::new(20.0, 5.0);
    link.run(3.0);
    link.limited = false;
    link.run(30.0);
    assert!((0.95..1.05).contains(&link.share()), "{}", link.share());
}

#[test]
fn an_old_measurement_of_a_link_at_rest_does_not_end_its_search() {
    let mut control = RateControl::new(Bitrate::from_mbps(4));
    // The one frame that arrived waited for 40 ms, behind traffic of others. Nothing came after it.
    for report in 0..50 {
        let one_way = if report < 5 { 10_000 } else { 50_000 };
        let (bytes, at, one_way) = (100, 10_000, Some(one_way));
        let sample = Sample { bytes, at, one_way, least: None, limited: false, sent: 0, lost: 0 };
        control.report(sample, Instant::from_millis(20 * report));
    }
    assert_eq!(control.pace().as_bps(), 2 * control.rate().as_bps(), "it is searched");
}

#[test]
fn the_first_delays_of_a_link_whose_delay_varies_do_not_end_its_search() {
    let ended = |seed: u64| {
        let mut control = RateControl::new(Bitrate::from_mbps(4));
        let mut random = seed;
        (1..=20).any(|report: u32| {
            // Knuth's generator; its high bits are as good as a die.
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed | 1);
            let one_way = Some(30_000 + (random >> 33) as u32 % 16_000);
            // Half of what the link is taken to carry: no queue.
            let (bytes, at) = (u64::from(report) * 5_000, report * 20_000);
            let sample =
                Sample { bytes, at, one_way, least: None, limited: false, sent: 4, lost: 0 };
            control.report(sample, Instant::from_millis(20 * u64::from(report)));
            control.pace().as_bps() < 2 * control.rate().as_bps()
        })
    };
    let ended = (1..=100).filter(|seed| ended(*seed)).count();
    assert!(ended < 40, "{ended} of 100");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_link_is_filled_with_a_short_queue(mbps in 1.0f64..300.0, delay_ms in 1.0f64..80.0) {
        let mut link = Link::new(mbps, delay_ms);
        link.run(8.0);
        link.run(10.0);
        prop_assert!(link.carried > 0.97 * 10.0 * link.rate, "{}", link.carried / 10.0 / link.rate);
        prop_assert!(link.longest_queue < 0.03, "{}", link.longest_queue);
    }

    #[test]
    fn no_reports_make_the_rate_zero_or_endless(
        reports in proptest::collection::vec(any::<(u64, u32, u32, bool)>(), 1..200)
    ) {
        let mut control = RateControl::new(Bitrate::from_mbps(4));
        for (n, (bytes, at, one_way, limited)) in reports.into_iter().enumerate() {
            let one_way = (one_way % 5 != 0).then_some(one_way);
            let (sent, lost) = (at % 100, at % 200);
            let least = (at % 3 != 0).then_some(at);
            let sample = Sample { bytes, at, one_way, least, limited, sent, lost };
            if n % 50 == 49 {
                control.failed();
            }
            control.report(sample, Instant::from_millis(20 * n as u64));
            prop_assert!(control.pace().as_bps() >= 10_000);
            prop_assert!(control.time_for(1500) > Duration::ZERO);
        }
    }
}
