//! Behaviour of NetEm's one queue.

use proptest::prelude::*;
use sheaf_baseline::netem::{BURST, Config, NetEm};
use sheaf_stage::{Bitrate, DropReason, Duration, Instant, Stage};

const MS: Duration = Duration::from_millis(1);

/// 1 byte is 1 µs.
fn config() -> Config {
    Config { delay: 10 * MS, rate: Bitrate::from_mbps(8), burst: BURST, limit: 20, link_header: 14 }
}

/// Departures up to `until`: time and bytes.
fn departures(link: &mut NetEm, until: Instant) -> Vec<(Instant, usize)> {
    let mut out = Vec::new();
    while let Some(at) = link.next_deadline().filter(|at| *at <= until) {
        out.extend(std::iter::from_fn(|| link.dequeue(at)).map(|packet| (at, packet.len())));
    }
    out
}

#[test]
fn a_packet_on_an_idle_link_comes_after_the_delay() {
    let mut link = NetEm::new(config());
    link.enqueue(vec![0; 1000], Instant::from_millis(3)).unwrap();
    assert_eq!(departures(&mut link, Instant::MAX), [(Instant::from_millis(13), 1000)]);
}

#[test]
fn packets_leave_at_the_rate_and_the_bucket_lets_a_burst_pass_after_a_pause() {
    let mut link = NetEm::new(Config { delay: Duration::ZERO, ..config() });
    let start = Instant::from_millis(100);
    for _ in 0..5 {
        link.enqueue(vec![0; 500 - 14], start).unwrap();
    }
    let times: Vec<_> = departures(&mut link, Instant::MAX).iter().map(|(at, _)| *at).collect();
    // 1540 bytes are there: three packets at once, the fourth waits for 460 bytes.
    let micros = [0, 0, 0, 460, 960].map(|micros| start + Duration::from_micros(micros));
    assert_eq!(times, micros);
}

#[test]
fn the_limit_counts_packets_in_flight() {
    let mut link = NetEm::new(Config { rate: Bitrate::from_mbps(1000), ..config() });
    for number in 0..21 {
        let result = link.enqueue(vec![0; 100], Instant::ZERO);
        assert_eq!(result.is_ok(), number < 20, "no packet waits for the rate");
        assert_eq!(link.dequeue(Instant::ZERO), None);
    }
    assert_eq!(departures(&mut link, Instant::ZERO + 11 * MS).len(), 20);
}

#[test]
fn a_packet_larger_than_the_bucket_is_dropped() {
    let mut link = NetEm::new(config());
    let largest = BURST as usize - 14;
    assert_eq!(link.enqueue(vec![0; largest], Instant::ZERO), Ok(()));
    assert_eq!(link.enqueue(vec![0; largest + 1], Instant::ZERO), Err(DropReason::TooBig));
}

proptest! {
    #[test]
    fn limit_delay_and_rate_hold(
        packets in proptest::collection::vec((20usize..1500, 0u64..3_000), 1..200),
        delay in 0u64..30_000,
    ) {
        let delay = Duration::from_micros(delay);
        let mut link = NetEm::new(Config { delay, ..config() });
        let (mut now, mut taken, mut out) = (Instant::ZERO, Vec::new(), Vec::new());
        for (len, gap) in packets {
            now += Duration::from_micros(gap);
            out.extend(departures(&mut link, now));
            if link.enqueue(vec![0; len], now).is_ok() {
                taken.push((now, len));
            }
            prop_assert!(link.held() <= 20);
            out.extend(departures(&mut link, now));
        }
        out.extend(departures(&mut link, Instant::MAX));
        prop_assert_eq!(out.len(), taken.len());
        for ((left, len), (came, bytes)) in out.iter().zip(&taken) {
            prop_assert_eq!(len, bytes);
            prop_assert!(*left >= *came + delay);
        }
        // The bucket fills again while the head waits for its time: one packet more than `burst`.
        for first in 0..out.len() {
            let mut bytes = 0;
            for (left, len) in &out[first..] {
                bytes += len + 14;
                let span = *left - out[first].0;
                let allowed = span.as_micros() as u64 + 2 * BURST;
                prop_assert!(bytes as u64 <= allowed, "{bytes} bytes in {span:?}");
            }
        }
    }
}
