//! Compressed headers: what is saved, and that every packet comes out as it was, or not at all.

use rand::{RngExt, SeedableRng};
use sheaf_fuzz::Rng;
use sheaf_stage::{Duration, Instant};
use sheaf_trunk::{DeliveryMode, Endpoint, EndpointConfig, Key, LinkConfig, LinkId, Transmit};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

const MS: Duration = Duration::from_millis(1);
const LINKS: usize = 2;

/// The packet number `number` of a flow: TCP over IPv4 or IPv6 in two of three, else UDP. Its
/// payload repeats the number.
fn packet(flow: u16, number: u32, payload: usize) -> Vec<u8> {
    let (is_tcp, is_v6) = (!flow.is_multiple_of(3), !flow.is_multiple_of(2));
    let mut transport = vec![0x40, 0, 0, 80];
    transport[1..3].copy_from_slice(&flow.to_be_bytes());
    if is_tcp {
        transport.extend((number.wrapping_mul(payload as u32)).to_be_bytes());
        transport.extend((7 + number / 3).to_be_bytes());
        let flags = if number.is_multiple_of(5) { 0x18 } else { 0x10 };
        transport.extend([0x80, flags, 1, (number / 50) as u8]);
        transport.extend([number as u8, flow as u8, 0, 0, 1, 1, 8, 10]);
        transport.extend((1000 + number * 2).to_be_bytes());
        transport.extend((9000 + number).to_be_bytes());
    } else {
        transport.extend(((payload + 8) as u16).to_be_bytes());
        transport.extend([number as u8, flow as u8]);
    }
    transport.extend((0..payload).map(|at| (number >> (at % 4 * 8)) as u8 ^ (at as u8 / 4)));
    let (protocol, len) = (if is_tcp { 6 } else { 17 }, transport.len() as u16);
    let mut packet = match is_v6 {
        true => [&[0x60, 0, 0, 0, 0, 0, protocol, 64][..], &[0xfd; 32]].concat(),
        false => vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2],
    };
    if is_v6 {
        packet[4..6].copy_from_slice(&len.to_be_bytes());
    } else {
        packet[2..4].copy_from_slice(&(len + 20).to_be_bytes());
        packet[4..6].copy_from_slice(&(number as u16).to_be_bytes());
        let checksum = sheaf_wire::checksum::ipv4_header(&packet);
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
    packet.extend(transport);
    packet
}

fn end(seed: u64, has_key: bool, compress: bool) -> Endpoint {
    let mut config = EndpointConfig::default();
    config.sender.compress = compress;
    let end = match has_key {
        true => Endpoint::with_key(config, seed, Key::new([7; 32])),
        false => Endpoint::new(config, seed),
    };
    let mut end = end.unwrap();
    for _ in 0..LINKS {
        end.add_link(LinkConfig::default()).unwrap();
    }
    end
}

/// A frame under way: when it arrives, to which end, by which link.
type UnderWay = Reverse<(Instant, u64, usize, u8, Vec<u8>)>;

/// Two ends and what is between them.
struct Wire {
    ends: [Endpoint; 2],
    now: Instant,
    wire: BinaryHeap<UnderWay>,
    count: u64,
    rng: Rng,
    /// Frames of a hundred that are lost, and that come twice; delay of a frame up to which chance
    /// adds to 10 ms.
    lost: u32,
    twice: u32,
    jitter: Duration,
    /// Bytes that end 0 sent.
    bytes: usize,
    delivered: [Vec<Vec<u8>>; 2],
}

impl Wire {
    fn new(ends: [Endpoint; 2]) -> Wire {
        let mut wire = Wire {
            ends,
            now: Instant::ZERO,
            wire: BinaryHeap::new(),
            count: 0,
            rng: Rng::seed_from_u64(1),
            lost: 0,
            twice: 0,
            jitter: Duration::ZERO,
            bytes: 0,
            delivered: [Vec::new(), Vec::new()],
        };
        wire.run(500 * MS);
        wire
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.drain();
            let due = self.ends.iter().filter_map(Endpoint::next_deadline).min();
            let arrival = self.wire.peek().map(|Reverse((at, ..))| *at);
            let next = due.into_iter().chain(arrival).min().filter(|next| *next <= end);
            let Some(next) = next else { break };
            assert!(due.is_none_or(|due| due > self.now), "a deadline that has come");
            self.now = next.max(self.now);
            while let Some(Reverse((_, _, to, link, bytes))) =
                self.wire.peek().filter(|Reverse((at, ..))| *at <= self.now).cloned()
            {
                self.wire.pop();
                self.ends[to].handle_frame(LinkId(link), None, &bytes, self.now);
            }
        }
        self.now = end;
    }

    fn drain(&mut self) {
        let mut bytes = Vec::new();
        for from in 0..2 {
            while let Some(Transmit { link, .. }) =
                self.ends[from].poll_transmit(self.now, &mut bytes)
            {
                self.bytes += if from == 0 { bytes.len() } else { 0 };
                let copies = 1 + u32::from(self.rng.random_range(0..100) < self.twice);
                for _ in 0..copies {
                    if self.rng.random_range(0..100) < self.lost {
                        continue;
                    }
                    let chance = self.rng.random_range(0..=self.jitter.as_micros() as u64);
                    let at = self.now + 10 * MS + Duration::from_micros(chance);
                    self.count += 1;
                    self.wire.push(Reverse((at, self.count, 1 - from, link.0, bytes.clone())));
                }
            }
            while let Some(packet) = self.ends[from].poll_deliver(self.now) {
                self.delivered[from].push(packet.to_vec());
            }
        }
    }

    /// Sends a packet of end 0's, and lets a millisecond pass.
    fn send(&mut self, packet: &[u8]) {
        let sent = self.ends[0].handle_packet(packet, DeliveryMode::Order, self.now);
        assert_eq!(sent, Ok(()));
        self.run(MS);
    }

    /// Bytes of frames that one more packet takes, without what is sent anyway.
    fn cost(&mut self, packet: &[u8]) -> usize {
        // Reports leave every 20 ms, and the frame of a packet within its millisecond.
        self.run(200 * MS);
        let before = self.bytes;
        self.send(packet);
        self.bytes - before
    }
}

#[test]
fn a_flow_takes_36_bytes_less_a_segment_once_the_other_end_knows_its_headers() {
    let mut wire = Wire::new([end(1, true, true), end(2, true, true)]);
    let sent = |number| packet(2, number, 1000);
    let first = wire.cost(&sent(0));
    (1..49).for_each(|number| wire.send(&sent(number)));
    let last = wire.cost(&sent(49));
    wire.run(100 * MS);
    assert_eq!(first - last, 36, "16 bytes in place of 52");
    assert_eq!(wire.delivered[1], (0..50).map(sent).collect::<Vec<_>>());
    let (here, there) = (wire.ends[0].stats(), wire.ends[1].stats());
    assert_eq!((here.compress.packets, there.not_restored), (there.restored, 0));
    assert!((20..=42).contains(&there.restored), "{there:?}");
    assert_eq!(here.compress.definitions, 1);
}

#[test]
fn packets_of_all_lengths_come_out_as_they_were_alone_and_where_they_share_a_frame() {
    let mut wire = Wire::new([end(1, true, true), end(2, true, true)]);
    let sent = |number: u32| packet(2, number, 4 + number as usize % 60);
    let frames = |wire: &Wire| {
        let of = |link| wire.ends[0].link_stats(LinkId(link as u8), wire.now).unwrap().frames;
        (0..LINKS).map(of).sum::<u64>()
    };
    (0..100).for_each(|number| wire.send(&sent(number)));
    let (now, before) = (wire.now, frames(&wire));
    for number in 100..300 {
        wire.ends[0].handle_packet(&sent(number), DeliveryMode::Order, now).unwrap();
    }
    wire.run(Duration::from_secs(1));
    // Those that wait for a link share frames.
    let left = frames(&wire) - before;
    assert!(left < 200, "{left} frames for 200 packets, reports included");
    assert_eq!(wire.delivered[1], (0..300).map(sent).collect::<Vec<_>>());
    assert_eq!(wire.ends[1].stats().not_restored, 0);
}

#[test]
fn without_a_key_or_where_either_end_wants_none_headers_are_whole() {
    for (has_key, compress, restored) in [(false, true, 0), (true, false, 0), (true, true, 32)] {
        let mut wire = Wire::new([end(1, has_key, compress), end(2, has_key, true)]);
        let sent = |number| packet(2, number, 1000);
        (0..40).for_each(|number| wire.send(&sent(number)));
        wire.run(100 * MS);
        assert_eq!(wire.delivered[1].len(), 40);
        assert!(wire.ends[1].stats().restored <= restored);
        assert_eq!(wire.ends[1].stats().restored > 0, restored > 0);
    }
}

#[test]
fn whatever_is_lost_late_or_twice_packets_come_out_as_they_were_or_not_at_all() {
    let mut wire = Wire::new([end(1, true, true), end(2, true, true)]);
    (wire.lost, wire.twice, wire.jitter) = (15, 10, 40 * MS);
    let mut sent = HashSet::new();
    let mut numbers = [0; 40];
    for _ in 0..20_000 {
        // Some flows rest for seconds, and others take their numbers.
        let flow = (wire.now.as_nanos() / 3_000_000_000 * 7) as usize % 30
            + wire.rng.random_range(0..10usize);
        numbers[flow] += 1 + u32::from(wire.rng.random_range(0..500) == 0) * (1 << 16);
        let len = wire.rng.random_range(4..300);
        let packet = packet(flow as u16, numbers[flow], len);
        assert!(sent.insert(packet.clone()));
        wire.send(&packet);
    }
    wire.run(3 * Duration::from_secs(1));
    let stats = wire.ends[1].stats();
    let delivered = std::mem::take(&mut wire.delivered[1]);
    for packet in &delivered {
        assert!(sent.remove(packet), "changed or twice: {packet:02x?}");
    }
    assert!(delivered.len() > 19_000, "{} of 20,000", delivered.len());
    assert!(stats.restored > 15_000, "{stats:?}");
    assert_eq!(stats.not_restored, 0, "a context was used before it was known");
}

#[test]
fn an_end_that_starts_anew_is_sent_whole_headers_until_it_knows_them() {
    for restarted in 0..2 {
        let mut wire = Wire::new([end(1, true, true), end(2, true, true)]);
        let sent = |number| packet(2, number, 500);
        (0..100).for_each(|number| wire.send(&sent(number)));
        wire.ends[restarted] = end(9, true, true);
        wire.run(2 * Duration::from_secs(1));
        wire.delivered[1].clear();
        (200..300).for_each(|number| wire.send(&sent(number)));
        wire.run(100 * MS);
        assert_eq!(wire.delivered[1], (200..300).map(sent).collect::<Vec<_>>());
        assert_eq!(wire.ends[1].stats().not_restored, 0);
        assert!(wire.ends[1].stats().restored > 60);
    }
}

#[test]
fn ten_thousand_flows_of_a_packet_each_cause_no_definition_and_a_busy_one_keeps_its_own() {
    let mut wire = Wire::new([end(1, true, true), end(2, true, true)]);
    (0..20).for_each(|number| wire.send(&packet(1, number, 100)));
    wire.run(50 * MS);
    let before = wire.ends[1].stats().restored;
    for flow in 0..10_000 {
        wire.send(&packet(2 + flow, 5, 20));
        if flow % 10 == 0 {
            wire.send(&packet(1, 20 + u32::from(flow) / 10, 100));
        }
    }
    wire.run(100 * MS);
    let (here, there) = (wire.ends[0].stats(), wire.ends[1].stats());
    assert_eq!(there.restored - before, 1000, "every packet of the busy flow");
    assert!(here.compress.definitions <= 2, "{here:?}");
    assert_eq!(wire.delivered[1].len(), 11_020);
}
