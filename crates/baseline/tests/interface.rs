//! Behaviour of an interface at its line rate.

use sheaf_baseline::interface::{Config, Interface, LINE};
use sheaf_stage::{Bitrate, DropReason, Duration, Instant, Stage};

/// 1 byte is 1 µs.
fn config() -> Config {
    Config { rate: Bitrate::from_mbps(8), delay: Duration::ZERO, limit: 3 }
}

/// Time on the line of a packet with `len` bytes.
fn cost(len: u64) -> Duration {
    Duration::from_micros(len + LINE)
}

fn departures(interface: &mut Interface) -> Vec<Instant> {
    let mut out = Vec::new();
    while let Some(at) = interface.next_deadline() {
        out.extend(std::iter::from_fn(|| interface.dequeue(at)).map(|_| at));
    }
    out
}

#[test]
fn frames_leave_one_after_the_other_and_nothing_is_saved_up_in_a_pause() {
    let mut interface = Interface::new(config());
    let start = Instant::from_millis(100);
    for len in [1000, 100, 500] {
        interface.enqueue(vec![0; len], start).unwrap();
    }
    let first = start + cost(1000);
    assert_eq!(
        departures(&mut interface),
        [first, first + cost(100), first + cost(100) + cost(500)]
    );
}

#[test]
fn packets_wait_for_the_line_and_those_that_were_sent_take_no_place() {
    let delay = Duration::from_millis(10);
    let mut interface = Interface::new(Config { delay, ..config() });
    let mut put = |at| interface.enqueue(vec![0; 962], Instant::from_millis(at));
    assert_eq!([put(0), put(0), put(0), put(0)].map(|put| put.is_ok()), [true, true, true, false]);
    // One is sent, and under way until 11 ms.
    assert_eq!((put(1), put(1)), (Ok(()), Err(DropReason::QueueFull)));
    let millis = [11, 12, 13, 14].map(Instant::from_millis);
    assert_eq!(departures(&mut interface), millis);
}
