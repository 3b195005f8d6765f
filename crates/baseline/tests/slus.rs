//! Behaviour of formula 1.

use etherparse::{PacketBuilder, TcpOptionElement};
use proptest::prelude::*;
use sheaf_baseline::slus::{AccessPoint, Config, Direction, INTERVAL, rate, window};
use sheaf_stage::{Bitrate, Duration, Instant};

const CLIENT: [u8; 4] = [192, 0, 2, 1];
const SERVER: [u8; 4] = [198, 51, 100, 1];
/// Rate of the paper's UDP traffic.
const UDP: Bitrate = Bitrate::from_kbps(1_700);

/// The paper's bottleneck.
fn config() -> Config {
    Config { capacity: Bitrate::from_mbps(4), rtt: Duration::from_millis(60), segment: 1460 }
}

/// A segment of the connection with client port `port`.
fn segment(port: u16, direction: Direction, syn: Option<u8>, window: u16, data: usize) -> Vec<u8> {
    let mut options = Vec::new();
    options.extend(syn.map(|_| TcpOptionElement::MaximumSegmentSize(1460)));
    options.extend(syn.map(|_| TcpOptionElement::Noop));
    options.extend(syn.map(TcpOptionElement::WindowScale));
    let (ip, ports) = match direction {
        Direction::Up => (PacketBuilder::ipv4(CLIENT, SERVER, 64), (port, 80)),
        Direction::Down => (PacketBuilder::ipv4(SERVER, CLIENT, 64), (80, port)),
    };
    let mut tcp = ip.tcp(ports.0, ports.1, 1, window);
    tcp = if syn.is_some() { tcp.syn() } else { tcp.ack(1) };
    let mut packet = Vec::new();
    let tcp = tcp.options(&options).unwrap();
    tcp.write(&mut packet, &vec![0; data]).unwrap();
    packet
}

fn window_of(packet: &[u8]) -> u16 {
    u16::from_be_bytes([packet[34], packet[35]])
}

/// Lets the handshake of a connection pass.
fn connect(point: &mut AccessPoint, port: u16, scale: u8, now: Instant) {
    for direction in [Direction::Up, Direction::Down] {
        let mut syn = segment(port, direction, Some(scale), 65_535, 0);
        assert!(!point.pass(&mut syn, direction, now));
    }
}

/// The window field of an acknowledgement after it passed.
fn acknowledged(point: &mut AccessPoint, port: u16, field: u16, now: Instant) -> u16 {
    let mut ack = segment(port, Direction::Up, None, field, 0);
    let changed = point.pass(&mut ack, Direction::Up, now);
    assert_eq!(changed, window_of(&ack) != field);
    let right = segment(port, Direction::Up, None, window_of(&ack), 0);
    assert_eq!(ack, right, "the checksum covers the window");
    window_of(&ack)
}

#[test]
fn the_papers_download_gets_what_udp_leaves() {
    let rate = rate(config().capacity, UDP, 1);
    assert_eq!(rate, Bitrate::from_kbps(2_300));
    assert_eq!(window(rate, config().rtt, 1460), 17_250);
}

#[test]
fn a_window_is_at_least_one_segment() {
    let none = rate(config().capacity, Bitrate::from_mbps(9), 3);
    assert_eq!(none, Bitrate::from_bps(0));
    assert_eq!(window(none, config().rtt, 1460), 1460);
}

#[test]
fn acknowledgements_of_clients_are_lowered_and_never_raised() {
    let mut point = AccessPoint::new(config());
    connect(&mut point, 1000, 0, Instant::ZERO);
    // 4 Mbit/s over 60 ms.
    assert_eq!(acknowledged(&mut point, 1000, 65_535, Instant::ZERO), 30_000);
    assert_eq!(acknowledged(&mut point, 1000, 8_000, Instant::ZERO), 8_000);
    assert_eq!(acknowledged(&mut point, 1000, 0, Instant::ZERO), 0, "closed stays closed");
    let mut data = segment(1000, Direction::Down, None, 65_535, 1000);
    assert!(!point.pass(&mut data, Direction::Down, Instant::ZERO));
}

#[test]
fn the_scale_of_the_handshake_counts() {
    let mut point = AccessPoint::new(config());
    connect(&mut point, 1000, 7, Instant::ZERO);
    assert_eq!(acknowledged(&mut point, 1000, 65_535, Instant::ZERO), 30_000 >> 7);
    connect(&mut point, 1001, 14, Instant::ZERO);
    assert_eq!(acknowledged(&mut point, 1001, 9, Instant::ZERO), 1, "30000 is 1.8 times 2^14");
    // A server that does not scale makes the client's option void.
    let mut syn = segment(1002, Direction::Up, Some(7), 65_535, 0);
    point.pass(&mut syn, Direction::Up, Instant::ZERO);
    let mut reply = segment(1002, Direction::Down, Some(0), 65_535, 0);
    reply[43..46].fill(1);
    point.pass(&mut reply, Direction::Down, Instant::ZERO);
    assert_eq!(acknowledged(&mut point, 1002, 65_535, Instant::ZERO), 30_000);
}

#[test]
fn a_window_that_is_rounded_down_stays_open() {
    let rate = Bitrate::from_kbps(64);
    let mut point = AccessPoint::new(Config { capacity: rate, ..config() });
    connect(&mut point, 1000, 14, Instant::ZERO);
    assert_eq!(point.window(), 1460, "one segment, below the quantum of 2^14 bytes");
    assert_eq!(acknowledged(&mut point, 1000, 100, Instant::ZERO), 1);
}

#[test]
fn a_connection_whose_beginning_was_not_seen_is_left_alone() {
    let mut point = AccessPoint::new(config());
    assert_eq!(acknowledged(&mut point, 1000, 65_535, Instant::ZERO), 65_535);
}

#[test]
fn what_was_counted_before_a_pause_is_forgotten() {
    let mut point = AccessPoint::new(config());
    connect(&mut point, 1000, 0, Instant::ZERO);
    connect(&mut point, 1001, 0, Instant::ZERO);
    let later = Instant::ZERO + 2 * INTERVAL;
    assert_eq!(acknowledged(&mut point, 1000, 65_535, later), 30_000, "not half of it");
}

#[test]
fn windows_follow_udp_and_the_number_of_flows() {
    let mut point = AccessPoint::new(config());
    connect(&mut point, 1000, 0, Instant::ZERO);
    connect(&mut point, 1001, 0, Instant::ZERO);
    // The paper's constant traffic: 200 packets of 1000 bytes in a second.
    for _ in 0..200 {
        let mut udp = Vec::new();
        let builder = PacketBuilder::ipv4(SERVER, CLIENT, 64).udp(9, 9);
        builder.write(&mut udp, &[0; 1000 - 28]).unwrap();
        point.pass(&mut udp, Direction::Down, Instant::ZERO + INTERVAL / 2);
    }
    assert_eq!(acknowledged(&mut point, 1000, 65_535, Instant::ZERO + INTERVAL / 2), 30_000);
    // (4 − 1.6) / 2 Mbit/s over 60 ms.
    let later = Instant::ZERO + INTERVAL;
    assert_eq!(acknowledged(&mut point, 1000, 65_535, later), 9_000);
    // One flow alone was active in the second that followed, and no UDP.
    assert_eq!(acknowledged(&mut point, 1000, 65_535, later + INTERVAL), 30_000);
}

proptest! {
    #[test]
    fn the_windows_of_all_flows_sum_to_what_udp_leaves(
        capacity in 1_000_000u64..1_000_000_000,
        udp in 0u64..1_000_000,
        flows in 1usize..100,
        millis in 1u64..500,
    ) {
        let rtt = Duration::from_millis(millis);
        let each = rate(Bitrate::from_bps(capacity), Bitrate::from_bps(udp), flows);
        let sum = flows as f64 * f64::from(window(each, rtt, 0));
        let free = (capacity - udp) as f64 * rtt.as_secs_f64() / 8.0;
        // Each flow's rate and window are rounded down.
        let rounding = flows as f64 * (1.0 + rtt.as_secs_f64());
        prop_assert!(sum <= free && sum >= free - rounding, "{sum} of {free}");
    }

    #[test]
    fn no_packet_panics(mut bytes in proptest::collection::vec(any::<u8>(), 0..80), tcp: bool) {
        if let [first, .., _] = &mut bytes[..] {
            *first = 0x45;
        }
        if tcp && bytes.len() > 20 {
            let len = (bytes.len() as u16).to_be_bytes();
            (bytes[2], bytes[3], bytes[6], bytes[7], bytes[9]) = (len[0], len[1], 0, 0, 6);
        }
        let mut point = AccessPoint::new(config());
        for direction in [Direction::Up, Direction::Down, Direction::Up] {
            point.pass(&mut bytes, direction, Instant::ZERO);
        }
    }
}
