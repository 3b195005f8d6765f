//! Sessions, forged frames, and random operations on two ends.

mod world;

use proptest::prelude::*;
use sheaf_stage::{DropReason, Duration, Instant};
use sheaf_trunk::{
    ConfigError, DeliveryMode, Endpoint, EndpointConfig, Fill, FrameKind, LinkConfig, LinkId,
    LinkReceived, Received, Refusal, Remote, Scheduler, Transmit,
};
use sheaf_wire::ip::example_udp;
use sheaf_wire::trunk::{Control, Frame, Hello, Packing, Predecessor, Repr, push, tag};
use world::{MS, World, pipe};

const SECOND: Duration = Duration::from_secs(1);

fn end(session: u64, links: usize) -> Endpoint {
    let mut end = Endpoint::new(EndpointConfig::default(), session).unwrap();
    for _ in 0..links {
        end.add_link(LinkConfig::default()).unwrap();
    }
    end
}

/// Lets two ends talk over links that deliver at once, until both are silent.
fn talk(a: &mut Endpoint, b: &mut Endpoint, now: Instant) {
    let mut frame = Vec::new();
    for _ in 0..1_000 {
        let mut silent = true;
        while let Some(Transmit { link, .. }) = a.poll_transmit(now, &mut frame) {
            b.handle_frame(link, None, &frame, now);
            silent = false;
        }
        while let Some(Transmit { link, .. }) = b.poll_transmit(now, &mut frame) {
            a.handle_frame(link, None, &frame, now);
            silent = false;
        }
        if silent {
            return;
        }
    }
    panic!("the ends never fall silent");
}

fn data(session: u64, seq: u32) -> Vec<u8> {
    let repr = Repr {
        packing: Packing::One,
        overtakes: false,
        link: 0,
        tag: tag(session),
        link_seq: 9,
        predecessor: Predecessor::Free,
        seq,
    };
    let mut frame = vec![0; 8];
    repr.emit(&mut frame);
    push(Packing::One, &example_udp(&[0; 20]), &mut frame);
    frame
}

fn hello(session: u64, peer: u64) -> Vec<u8> {
    let control = Control { link: 0, next_seq: 500, link_seq: 0, session, pause: 0 };
    let mut frame = Vec::new();
    Hello { control, peer, challenge: 0, echo: 0, answer: false, restores: false, recovers: false }
        .emit(&mut frame);
    frame
}

/// The address of the other end.
const PEER: u16 = 7;

/// An end of a plain trunk whose other one is at [`PEER`], and the next reports of that, which
/// leave 100 ms apart.
fn end_and_reports() -> (Endpoint<u16>, [Vec<u8>; 3]) {
    let end = |session| {
        let mut end = Endpoint::new(EndpointConfig::default(), session).unwrap();
        let id = end.add_link(LinkConfig::default()).unwrap();
        end.set_remote(id, Remote::roaming(PEER));
        end
    };
    let mut ends: [Endpoint<u16>; 2] = [end(1), end(2)];
    let mut frame = Vec::new();
    for from in [0, 1].repeat(10) {
        while ends[from].poll_transmit(Instant::ZERO, &mut frame).is_some() {
            ends[1 - from].handle_frame(LinkId(0), Some(PEER), &frame, Instant::ZERO);
        }
    }
    let [here, mut there] = ends;
    let reports = [100, 200, 300].map(|ms| {
        assert!(there.poll_transmit(Instant::from_millis(ms), &mut frame).is_some());
        frame.clone()
    });
    (here, reports)
}

#[test]
fn a_report_that_a_newer_one_overtook_is_late_and_one_that_comes_again_is_refused() {
    let (mut end, [first, second, third]) = end_and_reports();
    let now = Instant::from_millis(310);
    let accepted =
        Received::Accepted { kind: FrameKind::Report, link: LinkId(0), new_address: None };
    for report in [&first, &third, &second] {
        assert_eq!(end.handle_frame(LinkId(0), Some(PEER), report, now), accepted);
    }
    assert_eq!(end.stats().bad_reports, 0);
    for report in [&first, &second] {
        let old = Received::Refused(Refusal::OldReport);
        assert_eq!(end.handle_frame(LinkId(0), Some(PEER), report, now), old);
    }
    assert_eq!(end.stats().bad_reports, 2);
}

#[test]
fn a_report_that_somebody_held_back_counts_nothing_and_moves_no_plain_trunk() {
    let old = Received::Refused(Refusal::OldReport);
    // For longer than frames are late, or sent on from another address.
    for (ms, from) in [(520, PEER), (310, PEER + 1)] {
        let (mut end, [first, second, third]) = end_and_reports();
        for report in [&first, &third] {
            end.handle_frame(LinkId(0), Some(PEER), report, Instant::from_millis(310));
        }
        let received = end.link_received(LinkId(0)).unwrap();
        let now = Instant::from_millis(ms);
        assert_eq!(end.handle_frame(LinkId(0), Some(from), &second, now), old);
        let LinkReceived { frames, moves, .. } = end.link_received(LinkId(0)).unwrap();
        assert_eq!((frames, moves), (received.frames, received.moves));
        assert_eq!(end.remote(LinkId(0)), Some(PEER));
    }
}

#[test]
fn two_ends_are_established_after_one_exchange_and_then_fall_silent() {
    let (mut a, mut b) = (end(1, 3), end(2, 3));
    talk(&mut a, &mut b, Instant::ZERO);
    assert!(a.is_established() && b.is_established());
    assert!(a.next_deadline().unwrap() > Instant::ZERO);
}

#[test]
fn an_idle_link_is_probed_ten_times_a_second() {
    let (mut a, mut b) = (end(1, 1), end(2, 1));
    let (mut now, mut frames, mut frame) = (Instant::ZERO, 0, Vec::new());
    while now < Instant::ZERO + 10 * SECOND {
        for _ in 0..4 {
            while let Some(Transmit { link, .. }) = a.poll_transmit(now, &mut frame) {
                frames += 1;
                b.handle_frame(link, None, &frame, now);
            }
            while let Some(Transmit { link, .. }) = b.poll_transmit(now, &mut frame) {
                a.handle_frame(link, None, &frame, now);
            }
        }
        let next = a.next_deadline().into_iter().chain(b.next_deadline()).min().unwrap();
        assert!(next > now);
        now = next;
    }
    // A packet train goes first, and is replied to.
    assert!((95..=125).contains(&frames), "{frames}");
}

#[test]
fn data_of_an_unknown_session_is_refused_and_counted() {
    let (mut a, mut b) = (end(1, 1), end(2, 1));
    let now = Instant::ZERO;
    let refused = Received::Refused(Refusal::UnknownSession);
    assert_eq!(b.handle_frame(LinkId(0), None, &data(1, 1), now), refused);
    talk(&mut a, &mut b, now);
    assert_eq!(b.handle_frame(LinkId(0), None, &data(77, 1), now), refused);
    assert_eq!(b.stats().unknown_session, 2);
    assert_eq!(b.poll_deliver(now), None);
    let accepted = Received::Accepted { kind: FrameKind::Data, link: LinkId(0), new_address: None };
    assert_eq!(b.handle_frame(LinkId(0), None, &data(1, 1), now), accepted);
    assert!(b.poll_deliver(now).is_some());
}

#[test]
fn the_result_says_what_became_of_each_frame() {
    let (mut a, mut b) = (end(1, 1), end(2, 1));
    let now = Instant::ZERO;
    talk(&mut a, &mut b, now);
    let mut take = |link, frame: &[u8]| b.handle_frame(LinkId(link), None, frame, now);
    let accepted = |kind| Received::Accepted { kind, link: LinkId(0), new_address: None };
    assert_eq!(take(0, &hello(1, 2)), accepted(FrameKind::Hello));
    assert_eq!(take(0, &data(1, 1)), accepted(FrameKind::Data));
    assert_eq!(take(0, &data(1, 1)), Received::Dropped(DropReason::Duplicate));
    assert_eq!(take(0, &data(1, 1 << 22)), Received::Dropped(DropReason::OutOfWindow));
    assert_eq!(take(0, &hello(666, 0)), Received::Refused(Refusal::UnprovenSession));
    assert_eq!(take(0, &hello(2, 2)), Received::Refused(Refusal::UnknownSession));
    assert_eq!(take(1, &data(1, 2)), Received::Refused(Refusal::UnknownLink));
    assert!(matches!(take(0, &[0x45; 3]), Received::Refused(Refusal::Malformed(_))));
}

#[test]
fn a_forged_hello_does_not_replace_a_session() {
    let (mut a, mut b) = (end(1, 1), end(2, 1));
    talk(&mut a, &mut b, Instant::ZERO);
    b.handle_frame(LinkId(0), None, &hello(666, 0), Instant::ZERO);
    b.handle_frame(LinkId(0), None, &hello(666, 2), Instant::ZERO);
    assert_eq!(b.stats().sessions, 1);
    b.handle_frame(LinkId(0), None, &data(1, 1), Instant::ZERO);
    assert!(b.poll_deliver(Instant::ZERO).is_some());
}

#[test]
fn a_replaced_session_does_not_come_back_by_frames_that_were_recorded() {
    let (mut a, mut b) = (end(1, 1), end(2, 1));
    talk(&mut a, &mut b, Instant::ZERO);
    let mut fresh = end(3, 1);
    let later = Instant::ZERO + SECOND;
    talk(&mut fresh, &mut b, later);
    assert_eq!(b.stats().sessions, 2);
    b.handle_frame(LinkId(0), None, &hello(1, 2), later + 10 * SECOND);
    b.handle_frame(LinkId(0), None, &data(1, 1), later + 10 * SECOND);
    assert_eq!((b.stats().sessions, b.stats().unknown_session), (2, 1));
}

#[test]
fn packets_that_cannot_go_are_dropped_with_a_reason() {
    let (mut a, mut b) = (end(1, 1), end(2, 1));
    let now = Instant::ZERO;
    let good = example_udp(&[0; 20]);
    assert_eq!(a.handle_packet(&good, DeliveryMode::Order, now), Err(DropReason::Unreachable));
    talk(&mut a, &mut b, now);
    assert_eq!(a.handle_packet(b"rubbish", DeliveryMode::Order, now), Err(DropReason::Malformed));
    let big = example_udp(&[0; 2_000]);
    assert_eq!(a.handle_packet(&big, DeliveryMode::Order, now), Err(DropReason::TooBig));
    let results: Vec<_> = (0..10_000)
        .map(|_| a.handle_packet(&example_udp(&[0; 1_400]), DeliveryMode::Order, now))
        .collect();
    assert!(results.contains(&Err(DropReason::QueueFull)));
    assert!(a.sender().held() < 200, "{}", a.sender().held());
}

#[test]
fn ethernet_frames_of_any_kind_pass_too() {
    let config = || {
        let mut config = EndpointConfig::default();
        config.sender.ip = false;
        config
    };
    let mut a = Endpoint::new(config(), 1).unwrap();
    let mut b = Endpoint::new(config(), 2).unwrap();
    a.add_link(LinkConfig::default()).unwrap();
    b.add_link(LinkConfig::default()).unwrap();
    let now = Instant::ZERO;
    talk(&mut a, &mut b, now);
    let sent: Vec<Vec<u8>> =
        [14, 20, 42, 60, 700, 800, 1_400].map(|len| vec![len as u8; len]).to_vec();
    for packet in &sent {
        a.handle_packet(packet, DeliveryMode::Order, now).unwrap();
    }
    let (mut frame, mut got, mut now) = (Vec::new(), Vec::new(), now);
    for _ in 0..50 {
        while let Some(Transmit { link, .. }) = a.poll_transmit(now, &mut frame) {
            frame.resize(frame.len().max(46), 0); // as Ethernet pads
            b.handle_frame(link, None, &frame, now);
            while let Some(packet) = b.poll_deliver(now) {
                got.push(packet.to_vec());
            }
        }
        now += MS;
    }
    assert_eq!(sent, got);
}

#[test]
fn a_trunk_has_at_most_sixteen_links_and_reuses_their_numbers() {
    let mut a = end(1, 16);
    assert_eq!(a.add_link(LinkConfig::default()), Err(ConfigError::TooManyLinks));
    a.remove_link(LinkId(5), Instant::ZERO);
    assert_eq!(a.add_link(LinkConfig::default()), Ok(LinkId(5)));
}

#[test]
fn flows_without_care_for_order_never_wait_for_a_lost_packet() {
    let mut bad = pipe(10, 5);
    bad.loss = 0.05;
    let mut world = World::new(EndpointConfig::default(), &[bad, pipe(10, 30)]);
    world.run(SECOND);
    world.mode = DeliveryMode::Loose;
    world.offer(8.0, 1_000, 1);
    world.run(2 * SECOND);
    assert_eq!(world.ends[1].stats().reorder.waited, 0);
}

/// A segment of TCP with `len` bytes of data.
fn segment(len: usize) -> Vec<u8> {
    let mut packet = vec![0u8; 40 + len];
    (packet[0], packet[8], packet[9]) = (0x45, 64, 6);
    packet[2..4].copy_from_slice(&(40 + len as u16).to_be_bytes());
    packet[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    packet[20..24].copy_from_slice(&[0x30, 0x39, 0, 80]);
    (packet[32], packet[33]) = (5 << 4, 0x10);
    packet
}

/// Sends `packets` of one flow, one a frame; the first frame is lost. The lengths of the packets
/// that are delivered at once.
fn delivered_behind_a_loss(packets: &[Vec<u8>]) -> Vec<usize> {
    let (mut a, mut b) = (end(1, 2), end(2, 2));
    let mut now = Instant::ZERO;
    talk(&mut a, &mut b, now);
    let (mut frame, mut is_lost) = (Vec::new(), false);
    for packet in packets {
        now += MS;
        a.handle_packet(packet, DeliveryMode::Order, now).unwrap();
        while let Some(Transmit { link, .. }) = a.poll_transmit(now, &mut frame) {
            if is_lost || !matches!(Frame::parse(&frame), Ok(Frame::Data(_))) {
                b.handle_frame(link, None, &frame, now);
            } else {
                is_lost = true;
            }
        }
    }
    let mut lengths = Vec::new();
    while let Some(packet) = b.poll_deliver(now) {
        lengths.push(packet.len());
    }
    lengths
}

#[test]
fn a_packet_of_a_call_waits_for_the_repair_of_no_other() {
    let mut voice = example_udp(&[0; 160]);
    (voice[1], voice[10], voice[11]) = (46 << 2, 0, 0);
    assert_eq!(delivered_behind_a_loss(&[voice.clone(), voice.clone(), voice]), [188, 188]);
    let other = example_udp(&[0; 160]);
    assert_eq!(delivered_behind_a_loss(&[other.clone(), other]), []);
}

#[test]
fn an_acknowledgement_waits_for_no_lost_one_and_what_has_data_keeps_its_order() {
    let (ack, data) = (segment(0), segment(1_000));
    assert_eq!(delivered_behind_a_loss(&[ack.clone(), ack.clone(), ack.clone()]), [40, 40]);
    assert_eq!(delivered_behind_a_loss(&[data.clone(), ack.clone(), data.clone()]), [40]);
    assert_eq!(delivered_behind_a_loss(&[ack, data.clone(), data]), [1_040, 1_040]);
}

#[test]
fn parameters_that_cannot_work_are_refused_with_a_remedy() {
    let refused = |change: fn(&mut EndpointConfig)| {
        let mut config = EndpointConfig::default();
        change(&mut config);
        config.check().unwrap_err().to_string()
    };
    assert!(refused(|c| c.sender.frame = 100).contains("128 to 65535"));
    assert!(refused(|c| c.sender.busy_percent = 0).contains("1% to 100%"));
    assert!(refused(|c| c.reorder.window = 1_000).contains("power of two"));
    assert!(refused(|c| c.reorder.min_timer = SECOND).contains("min_timer <="));
    assert!(refused(|c| c.silence = 150 * MS).contains("twice probe"));
    assert_eq!(EndpointConfig::default().check(), Ok(()));
    assert!(<Endpoint>::new(EndpointConfig::default(), 0).is_err());
}

#[derive(Clone, Debug)]
enum Op {
    Packet(u8, u16, u8),
    /// Brings the frame at this place of those under way, damaged or not, and maybe keeps it.
    Bring(prop::sample::Index, Option<(prop::sample::Index, u8)>, bool),
    Lose(prop::sample::Index),
    Advance(u32),
    Up(u8, bool),
    Fill(u8, Option<(u64, u64)>),
    Remove(u8),
    Add,
    Rubbish(u8, Vec<u8>),
    Restart(bool),
}

fn operations() -> impl Strategy<Value = Vec<Op>> {
    let index = any::<prop::sample::Index>;
    let damage = proptest::option::weighted(0.1, (index(), any::<u8>()));
    let fill = proptest::option::of((0u64..200, 0u64..200));
    let rubbish = proptest::collection::vec(any::<u8>(), 0..80);
    let op = prop_oneof![
        20 => (0u8..6, 20u16..1_500, 0u8..3).prop_map(|(f, len, mode)| Op::Packet(f, len, mode)),
        30 => (index(), damage, prop::bool::weighted(0.1)).prop_map(|(i, d, k)| Op::Bring(i, d, k)),
        3 => index().prop_map(Op::Lose),
        20 => (0u32..30_000).prop_map(Op::Advance),
        1 => (500_000u32..2_000_000).prop_map(Op::Advance),
        2 => (0u8..5, any::<bool>()).prop_map(|(link, up)| Op::Up(link, up)),
        1 => (0u8..5, fill).prop_map(|(link, fill)| Op::Fill(link, fill)),
        1 => (0u8..5).prop_map(Op::Remove),
        1 => Just(Op::Add),
        1 => (0u8..5, rubbish).prop_map(|(link, bytes)| Op::Rubbish(link, bytes)),
        1 => any::<bool>().prop_map(Op::Restart),
    ];
    proptest::collection::vec(op, 1..300)
}

/// Two ends, and the frames that each has sent and that have not arrived.
struct Pair {
    config: EndpointConfig,
    ends: [Endpoint; 2],
    wires: [Vec<(LinkId, Vec<u8>)>; 2],
    now: Instant,
    number: u32,
    session: u64,
    got: Vec<u32>,
}

impl Pair {
    fn apply(&mut self, op: Op) -> Result<(), TestCaseError> {
        match op {
            Op::Packet(flow, len, mode) => {
                let mut payload = vec![flow; usize::from(len).max(28) - 24];
                payload[..4].copy_from_slice(&self.number.to_be_bytes());
                let mut packet = example_udp(&payload);
                packet[20] = flow;
                self.number += 1;
                let mode = [DeliveryMode::Order, DeliveryMode::Loose, DeliveryMode::Copies]
                    [usize::from(mode)];
                let _ = self.ends[0].handle_packet(&packet, mode, self.now);
            }
            Op::Bring(index, damage, keep) => {
                for from in 0..2 {
                    if self.wires[from].is_empty() {
                        continue;
                    }
                    // Mostly in order, sometimes not.
                    let at = index
                        .index(self.wires[from].len() * 8)
                        .saturating_sub(self.wires[from].len() * 7);
                    let (link, mut frame) = self.wires[from][at].clone();
                    if !keep {
                        self.wires[from].remove(at);
                    }
                    if let Some((at, value)) = damage {
                        let at = at.index(frame.len());
                        frame[at] = value;
                    }
                    self.ends[1 - from].handle_frame(link, None, &frame, self.now);
                }
            }
            Op::Lose(index) => {
                for wire in self.wires.iter_mut().filter(|wire| !wire.is_empty()) {
                    wire.remove(index.index(wire.len()));
                }
            }
            Op::Advance(micros) => {
                let until = self.now + Duration::from_micros(micros.into());
                let mut left = 100_000u32;
                while let Some(at) = self.next_deadline().filter(|at| *at <= until) {
                    self.now = at;
                    self.drain()?;
                    left -= 1;
                    prop_assert!(left > 0, "the deadlines never end");
                }
                self.now = until;
            }
            Op::Up(link, true) => self.ends.iter_mut().for_each(|end| end.link_up(LinkId(link))),
            Op::Up(link, false) => self.ends[0].link_down(LinkId(link), self.now),
            Op::Fill(link, fill) => {
                let fill = fill.map(|(waiting, limit)| Fill { waiting, limit });
                self.ends[0].set_link_queue(LinkId(link), fill);
            }
            Op::Remove(link) => self.ends[0].remove_link(LinkId(link), self.now),
            Op::Add => drop(self.ends[0].add_link(LinkConfig::default())),
            Op::Rubbish(link, bytes) => {
                self.ends[1].handle_frame(LinkId(link), None, &bytes, self.now);
            }
            Op::Restart(which) => {
                self.session += 1;
                let mut fresh = Endpoint::new(self.config.clone(), self.session).unwrap();
                for _ in 0..3 {
                    fresh.add_link(LinkConfig::default()).unwrap();
                }
                self.ends[usize::from(which)] = fresh;
            }
        }
        self.drain()
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.ends.iter().filter_map(Endpoint::next_deadline).min()
    }

    fn drain(&mut self) -> Result<(), TestCaseError> {
        let mut frame = Vec::new();
        for (end, wire) in self.ends.iter_mut().zip(&mut self.wires) {
            while let Some(Transmit { link, .. }) = end.poll_transmit(self.now, &mut frame) {
                wire.push((link, frame.clone()));
                let excess = wire.len().saturating_sub(500);
                wire.drain(..excess);
            }
            while let Some(packet) = end.poll_deliver(self.now) {
                if packet.len() >= 32 {
                    self.got.push(u32::from_be_bytes(packet[28..32].try_into().unwrap()));
                }
            }
            prop_assert!(end.next_deadline().is_none_or(|at| at > self.now));
            let sent = end.sent();
            prop_assert_eq!(
                sent.packets_in,
                sent.packets_out + sent.dropped_total() + end.sender().held()
            );
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_operations_break_the_balance_or_the_deadlines(
        ops in operations(), scheduler in prop::sample::select(Scheduler::ALL.to_vec())
    ) {
        let mut config = EndpointConfig::default();
        config.sender.scheduler = scheduler;
        let make = |session| {
            let mut end = Endpoint::new(config.clone(), session).unwrap();
            for _ in 0..3 {
                    end.add_link(LinkConfig::default()).unwrap();
                }
            end
        };
        let ends = [make(1), make(2)];
        let wires = [Vec::new(), Vec::new()];
        let (now, number, session) = (Instant::ZERO, 0, 10);
        let (config, got) = (config.clone(), Vec::new());
        let mut pair = Pair { config, ends, wires, now, number, session, got };
        pair.drain()?;
        for op in ops {
            pair.apply(op)?;
        }
    }

    #[test]
    fn nothing_is_delivered_twice_however_often_it_comes(
        ops in operations().prop_map(|ops| {
            // Without damage and restarts: a damaged number is another number.
            ops.into_iter()
                .filter(|op| !matches!(op, Op::Restart(_) | Op::Rubbish(..)))
                .map(|op| match op {
                    Op::Bring(index, _, keep) => Op::Bring(index, None, keep),
                    op => op,
                })
                .collect::<Vec<_>>()
        })
    ) {
        let (ends, wires) = ([end(1, 3), end(2, 3)], [Vec::new(), Vec::new()]);
        let (now, number, session) = (Instant::ZERO, 0, 10);
        let config = EndpointConfig::default();
        let mut pair = Pair { config, ends, wires, now, number, session, got: vec![] };
        pair.drain()?;
        for op in ops {
            pair.apply(op)?;
        }
        let mut got = pair.got.clone();
        got.sort_unstable();
        got.dedup();
        prop_assert_eq!(got.len(), pair.got.len());
    }
}
