//! The rules that keep a lowered window harmless, packet by packet.

use etherparse::{PacketBuilder, TcpHeader, TcpHeaderSlice, TcpOptionElement as Opt};
use proptest::prelude::*;
use sheaf_stage::{Duration, Instant};
use sheaf_window::cost;
use sheaf_window::flow::RTT_AGE;
use sheaf_window::{Direction, FlowId, Growth, Key, Outcome, Passing, RestSetting, Rewriter};
use std::net::Ipv4Addr;

const SERVER: [u8; 4] = [192, 0, 2, 1];
const CLIENT: [u8; 4] = [10, 0, 0, 2];

/// A download: the client (inside) opened it, data comes in, acknowledgements go out.
struct Download {
    rewriter: Rewriter,
    now: Instant,
    scale: u8,
}

fn key() -> Key {
    Key::new((Ipv4Addr::from(SERVER).into(), 80), (Ipv4Addr::from(CLIENT).into(), 1000))
}

fn segment(
    direction: Direction,
    options: &[Opt],
    payload: usize,
    edit: impl FnOnce(&mut TcpHeader),
) -> Vec<u8> {
    let (from, to, ports) = match direction {
        Direction::In => (SERVER, CLIENT, (80, 1000)),
        Direction::Out => (CLIENT, SERVER, (1000, 80)),
    };
    let mut header = TcpHeader::new(ports.0, ports.1, 0, 0);
    header.set_options(options).unwrap();
    edit(&mut header);
    let mut packet = Vec::new();
    let builder = PacketBuilder::ipv4(from, to, 64).tcp_header(header);
    builder.write(&mut packet, &vec![7; payload]).unwrap();
    packet
}

fn window(packet: &[u8]) -> u16 {
    TcpHeaderSlice::from_slice(&packet[20..]).unwrap().window_size()
}

fn checksum_is_right(packet: &[u8]) -> bool {
    let ip = etherparse::Ipv4HeaderSlice::from_slice(packet).unwrap();
    let tcp = TcpHeaderSlice::from_slice(&packet[20..]).unwrap();
    let length = tcp.slice().len();
    tcp.calc_checksum_ipv4(&ip, &packet[20 + length..]).unwrap() == tcp.checksum()
}

impl Download {
    /// With window scale `scale` at both ends and `limit` bytes from the beginning.
    fn new(scale: u8, limit: u32) -> Download {
        let mut download = Download::half_open(scale, limit);
        download.ack(1, 1000);
        download
    }

    /// The same without the third packet of the handshake.
    fn half_open(scale: u8, limit: u32) -> Download {
        let mut rewriter = Rewriter::new();
        let now = Instant::from_millis(1);
        rewriter.beat(now);
        rewriter.set_initial(Direction::In, limit, u32::MAX);
        let mut download = Download { rewriter, now, scale };
        let options = [Opt::MaximumSegmentSize(1460), Opt::WindowScale(scale)];
        download.pass(
            Direction::Out,
            &mut segment(Direction::Out, &options, 0, |tcp| {
                (tcp.syn, tcp.window_size) = (true, 1000);
            }),
        );
        download.pass(
            Direction::In,
            &mut segment(Direction::In, &options, 0, |tcp| {
                (tcp.syn, tcp.ack, tcp.acknowledgment_number) = (true, true, 1);
                tcp.window_size = 1000;
            }),
        );
        download
    }

    fn pass(&mut self, direction: Direction, packet: &mut [u8]) -> Outcome {
        self.rewriter.rewrite(packet, Passing::plain(direction), self.now)
    }

    /// The client acknowledges `ack` and has room for `asked` bytes; the window that is written.
    fn ack(&mut self, ack: u32, asked: u32) -> u32 {
        let field = (asked >> self.scale) as u16;
        let mut packet = segment(Direction::Out, &[], 0, |tcp| {
            (tcp.ack, tcp.acknowledgment_number) = (true, ack);
            (tcp.sequence_number, tcp.window_size) = (1, field);
        });
        self.pass(Direction::Out, &mut packet);
        assert!(checksum_is_right(&packet));
        u32::from(window(&packet)) << self.scale
    }
}

#[test]
fn a_window_is_lowered_to_the_one_set_and_never_raised() {
    let mut flow = Download::new(7, 20_000);
    assert_eq!(flow.ack(100_000, 1_000_000), 20_000 / 128 * 128);
    assert_eq!(flow.ack(200_000, 12_800), 12_800, "the receiver has less room");
}

#[test]
fn a_zero_window_and_a_tiny_one_pass_as_they_are() {
    let mut flow = Download::new(0, 20_000);
    assert_eq!(flow.ack(100_000, 0), 0);
    assert_eq!(flow.ack(200_000, 300), 300);
}

#[test]
fn one_full_segment_always_fits() {
    let mut flow = Download::new(0, 10);
    assert_eq!(flow.ack(100_000, 60_000), 1460);
}

#[test]
fn a_coarse_scale_rounds_down_but_never_to_nothing() {
    let mut flow = Download::new(14, 40_000);
    assert_eq!(flow.ack(1_000_000, 1 << 24), 32_768, "two units of 16 KiB");
    flow.rewriter.set(FlowId { key: key(), direction: Direction::In }, 5_000);
    assert_eq!(flow.ack(2_000_000, 1 << 24), 16_384, "one unit, more than was set");
}

#[test]
fn a_smaller_share_is_reached_only_as_data_arrives() {
    let mut flow = Download::new(0, 60_000);
    assert_eq!(flow.ack(100_000, 65_000), 60_000);
    flow.rewriter.set(FlowId { key: key(), direction: Direction::In }, 10_000);
    assert_eq!(flow.ack(100_000, 65_000), 60_000, "nothing arrived");
    assert_eq!(flow.ack(120_000, 65_000), 40_000, "the same right edge");
    assert_eq!(flow.ack(155_000, 65_000), 10_000, "now the edge moves again");
}

#[test]
fn a_connection_whose_syns_did_not_pass_is_left_alone() {
    let mut flow = Download::new(7, 20_000);
    flow.rewriter = Rewriter::new();
    flow.rewriter.beat(flow.now);
    flow.rewriter.set_initial(Direction::In, 20_000, u32::MAX);
    assert_eq!(flow.ack(100_000, 1_000_000), 1_000_000 / 128 * 128);
    assert_eq!(flow.rewriter.flows().count(), 0);
}

#[test]
fn a_scale_counts_only_when_both_ends_offer_one() {
    let mut rewriter = Rewriter::new();
    let now = Instant::from_millis(1);
    let syn = [Opt::MaximumSegmentSize(1460), Opt::WindowScale(9)];
    let answer = [Opt::MaximumSegmentSize(1000)];
    let mut packets = [
        (Direction::Out, segment(Direction::Out, &syn, 0, |tcp| tcp.syn = true)),
        (
            Direction::In,
            segment(Direction::In, &answer, 0, |tcp| {
                (tcp.syn, tcp.ack, tcp.acknowledgment_number) = (true, true, 1);
            }),
        ),
        (
            Direction::Out,
            segment(Direction::Out, &[], 0, |tcp| {
                (tcp.ack, tcp.sequence_number, tcp.acknowledgment_number) = (true, 1, 1);
            }),
        ),
    ];
    for (direction, packet) in &mut packets {
        rewriter.rewrite(packet, Passing::plain(*direction), now);
    }
    let flow = rewriter.flow(&key()).unwrap();
    assert_eq!(flow.half.map(|half| half.scale), [0, 0]);
    assert_eq!(flow.half.map(|half| half.mss), [1000, 1000], "the smaller of both");
}

#[test]
fn resets_keep_their_bytes() {
    let mut flow = Download::new(0, 2_000);
    flow.ack(100_000, 60_000);
    for syn in [false, true] {
        let mut packet = segment(Direction::Out, &[], 0, |tcp| {
            (tcp.syn, tcp.rst, tcp.ack, tcp.window_size) = (syn, true, true, 65_000);
            tcp.acknowledgment_number = 150_000;
        });
        let before = packet.clone();
        assert_eq!(flow.pass(Direction::Out, &mut packet), Outcome::Kept);
        assert_eq!(packet, before);
    }
}

/// The window of a SYN (`ack` 0) or a SYN-ACK that passes in `direction`.
fn syn(flow: &mut Download, direction: Direction, ack: u32, mss: u16, asked: u16) -> u16 {
    let options = [Opt::MaximumSegmentSize(mss), Opt::WindowScale(7)];
    let mut packet = segment(direction, &options, 0, |tcp| {
        (tcp.syn, tcp.ack, tcp.window_size) = (true, ack > 0, asked);
        tcp.acknowledgment_number = ack;
    });
    flow.pass(direction, &mut packet);
    assert!(checksum_is_right(&packet));
    window(&packet)
}

/// With a window of `limit` bytes for new flows both ways.
fn fresh(limit: u32) -> Download {
    let mut rewriter = Rewriter::new();
    let now = Instant::from_millis(1);
    rewriter.beat(now);
    Direction::BOTH
        .into_iter()
        .for_each(|direction| rewriter.set_initial(direction, limit, u32::MAX));
    Download { rewriter, now, scale: 7 }
}

#[test]
fn the_window_of_a_syn_and_of_its_answer_is_lowered_for_the_first_flight() {
    let mut flow = fresh(12_000);
    assert_eq!(syn(&mut flow, Direction::Out, 0, 1460, 64_240), 12_000);
    assert_eq!(syn(&mut flow, Direction::In, 1, 1460, 65_160), 12_000);
    // The scale counts from the third packet on.
    assert_eq!(flow.ack(1, 64_256), 12_032, "the first edge is kept, in units of 128");
    let half = *flow.rewriter.flow(&key()).unwrap().half(Direction::In);
    assert_eq!((half.clamped, half.ack), (2, 1));
}

#[test]
fn a_syn_is_never_raised_and_has_room_for_two_segments() {
    assert_eq!(syn(&mut fresh(20_000), Direction::Out, 0, 1460, 9_000), 9_000);
    assert_eq!(syn(&mut fresh(20_000), Direction::Out, 0, 1460, 0), 0);
    assert_eq!(syn(&mut fresh(100), Direction::Out, 0, 1460, 64_240), 2920);
    assert_eq!(syn(&mut fresh(0), Direction::Out, 0, 1460, 64_240), 64_240, "hands off");
    let mut silent = fresh(20_000);
    silent.now += Duration::from_millis(2_001);
    assert_eq!(syn(&mut silent, Direction::Out, 0, 1460, 64_240), 64_240, "no controller");
}

#[test]
fn a_syn_that_is_sent_again_takes_nothing_back() {
    let mut flow = fresh(12_000);
    assert_eq!(syn(&mut flow, Direction::Out, 0, 1460, 64_240), 12_000);
    flow.rewriter.set_initial(Direction::In, 5_000, u32::MAX);
    assert_eq!(syn(&mut flow, Direction::Out, 0, 1460, 64_240), 12_000);
    flow.rewriter.set_initial(Direction::In, 13_000, u32::MAX);
    assert_eq!(syn(&mut flow, Direction::Out, 0, 1460, 64_240), 13_000, "more is no harm");
    assert_eq!(syn(&mut flow, Direction::In, 1, 1460, 64_240), 12_000);
    flow.rewriter.set_initial(Direction::Out, 5_000, u32::MAX);
    assert_eq!(syn(&mut flow, Direction::In, 1, 1460, 64_240), 12_000);
}

/// The window in the SYN of connection number `port`, whose client comes in by `way`.
fn syn_of(rewriter: &mut Rewriter, port: u16, now: Instant) -> u16 {
    let (client, server) = (([10, 0, 0, 1], port), ([192, 0, 2, 1], 80));
    let mut packet = Vec::new();
    PacketBuilder::ipv4(client.0, server.0, 64)
        .tcp(client.1, server.1, 0, 64_240)
        .syn()
        .options(&[Opt::MaximumSegmentSize(1460)])
        .unwrap()
        .write(&mut packet, &[])
        .unwrap();
    rewriter.rewrite(&mut packet, Passing::plain(Direction::Out), now);
    window(&packet)
}

#[test]
fn connections_that_begin_together_share_what_there_is_for_all_of_them() {
    let mut rewriter = Rewriter::new();
    let now = Instant::from_millis(1);
    rewriter.beat(now);
    rewriter.set_initial(Direction::In, 100_000, 100_000);
    let windows: Vec<u16> = (0..100).map(|port| syn_of(&mut rewriter, 2000 + port, now)).collect();
    assert_eq!(windows[..6], [14_600; 6], "as much as a sender begins with");
    assert_eq!(windows[6], 12_400, "what is left");
    assert!(windows[7..].iter().all(|window| *window == 2920), "two segments: {windows:?}");
    let late = now + Duration::from_millis(100);
    rewriter.beat(late);
    assert_eq!(syn_of(&mut rewriter, 3000, late), 2920, "those are still in their handshakes");
    rewriter.beat(late + Duration::from_millis(100));
    assert_eq!(syn_of(&mut rewriter, 3001, late), 14_600);
}

/// A download that began with 10,000 bytes and has a window of `share` bytes now; its windows grow
/// by `growth` bytes in a round trip.
fn growing(scale: u8, share: u32, growth: u32) -> Download {
    let mut flow = fresh(10_000);
    flow.scale = scale;
    let options = [Opt::MaximumSegmentSize(1460), Opt::WindowScale(scale)];
    for (direction, ack) in [(Direction::Out, 0), (Direction::In, 1)] {
        let mut packet = segment(direction, &options, 0, |tcp| {
            (tcp.syn, tcp.ack, tcp.window_size) = (true, ack > 0, 65_000);
            tcp.acknowledgment_number = ack;
        });
        flow.pass(direction, &mut packet);
    }
    flow.ack(1, 60_000);
    flow.rewriter.set(FlowId { key: key(), direction: Direction::In }, share);
    flow.rewriter.set_growth(Direction::In, Growth { bytes: growth, wait: 0 });
    flow
}

#[test]
fn windows_double_in_a_round_trip_until_they_grow_by_what_is_allowed() {
    // With units of a byte, 128 and 1024 bytes: what is less than one is not lost.
    for scale in [0, 7, 10] {
        let mut flow = growing(scale, 60_000, 15_000);
        let (mut ack, mut window, mut rounds) = (1, 10_000, vec![]);
        for _ in 0..5 {
            let end = ack + window;
            while ack < end {
                ack = (ack + 2_900).min(end);
                window = flow.ack(ack, 65_535 << scale);
            }
            rounds.push(window);
        }
        let unit = f64::from(1u32 << scale);
        // 5000 of the second round are those before it has 15,000.
        for (round, expected) in rounds.iter().zip([20e3, 33e3, 48e3, 60e3, 60e3]) {
            let off = (f64::from(*round) - expected).abs();
            assert!(off <= 0.1 * expected + 2.0 * unit, "scale {scale}: {rounds:?}");
        }
        assert!(rounds.iter().all(|round| *round <= 60_000), "{rounds:?}");
    }
}

#[test]
fn windows_that_may_not_grow_stay_what_they_are_and_others_grow_at_once() {
    for (growth, least, most) in [(1, 9_000, 12_000), (0, 59_000, 60_000)] {
        let mut flow = growing(7, 60_000, growth);
        let windows: Vec<u32> = (1..20).map(|one| flow.ack(one * 2_900, 65_535 << 7)).collect();
        let last = windows[windows.len() - 1];
        assert!((least..=most).contains(&last), "{growth}: {windows:?}");
    }
}

#[test]
fn a_receiver_that_held_its_sender_itself_goes_on_as_it_likes() {
    let mut flow = growing(7, 60_000, 1_000);
    assert_eq!(flow.ack(10_001, 1_280), 1_280, "a slow application");
    assert_eq!(flow.ack(11_281, 65_535 << 7), 60_000 / 128 * 128, "it has read all");
}

#[test]
fn old_and_absurd_acknowledgements_let_nothing_grow() {
    let mut flow = growing(7, 60_000, 15_000);
    let before = flow.ack(2_901, 65_535 << 7);
    for ack in [1, 2_000, 2_901] {
        let window = flow.ack(ack, 65_535 << 7);
        assert!(window <= before + 2_901 - ack + 128, "{ack}: {window}, {before}");
    }
}

/// Bytes of the window of an upload that is paced.
const SHARE: u32 = 10 * 1460;

/// An upload over the same connection, of which everything is acknowledged, and whose windows open
/// by 1000 bytes in a millisecond from a second on.
fn upload() -> Download {
    let mut flow = Download::new(0, 60_000);
    flow.rewriter.set(FlowId { key: key(), direction: Direction::Out }, SHARE);
    flow.pass(Direction::In, &mut upload_ack(1));
    flow.rewriter.set_pace(cost::of(8e6));
    flow.now = Instant::from_millis(1000);
    flow
}

/// The server acknowledges data up to `ack`.
fn upload_ack(ack: u32) -> Vec<u8> {
    segment(Direction::In, &[], 0, |tcp| {
        (tcp.ack, tcp.acknowledgment_number) = (true, ack);
        (tcp.sequence_number, tcp.window_size) = (1, 65_535);
    })
}

/// The same with data of its own.
fn upload_data(ack: u32) -> Vec<u8> {
    segment(Direction::In, &[], 100, |tcp| {
        (tcp.ack, tcp.acknowledgment_number, tcp.window_size) = (true, ack, 65_535);
    })
}

impl Download {
    /// A copy of the server's acknowledgement of `ack` comes back `millis` later.
    fn copy(&mut self, millis: u64, ack: u32) -> Outcome {
        self.now += Duration::from_millis(millis);
        let mut packet = upload_ack(ack);
        let outcome = self.rewriter.release(&mut packet, self.now);
        assert!(checksum_is_right(&packet));
        match outcome {
            Outcome::Withheld { to, .. } | Outcome::Clamped { to, .. } => {
                assert_eq!(window(&packet), to);
            }
            _ => {}
        }
        outcome
    }
}

fn withheld(to: u32) -> Outcome {
    Outcome::Withheld { from: 65_535, to: to as u16 }
}

fn given(to: u32) -> Outcome {
    Outcome::Clamped { from: 65_535, to: to as u16 }
}

#[test]
fn what_an_acknowledgement_may_not_let_go_at_once_copies_of_it_do_at_the_rate_of_the_link() {
    let (mut flow, all) = (upload(), 1 + SHARE);
    assert_eq!(flow.pass(Direction::In, &mut upload_ack(all)), withheld(2 * 1460));
    assert_eq!(flow.copy(2, all), withheld(2 * 1460 + 2000));
    assert_eq!(flow.copy(1, all), withheld(2 * 1460 + 3000));
    assert_eq!(flow.copy(50, all), withheld(4 * 1460 + 3000), "two segments after a pause");
    assert_eq!(flow.copy(50, all), withheld(6 * 1460 + 3000));
    assert_eq!(flow.copy(50, all), given(SHARE));
    assert_eq!(flow.copy(3, all), Outcome::Dropped, "all is given");
}

#[test]
fn a_copy_for_which_the_link_has_no_room_is_dropped() {
    let (mut flow, all) = (upload(), 1 + SHARE);
    flow.pass(Direction::In, &mut upload_ack(all));
    assert_eq!(flow.copy(0, all), Outcome::Dropped);
    // What the first one let go brings the next one.
    flow.now += Duration::from_millis(2);
    let next = flow.pass(Direction::In, &mut upload_ack(all + 1460));
    assert_eq!(next, withheld(1460 + 2000));
}

#[test]
fn an_acknowledgement_that_lets_nothing_go_leaves_one_segment() {
    let (mut flow, all) = (upload(), 1 + SHARE);
    flow.pass(Direction::In, &mut upload_ack(all));
    assert_eq!(flow.pass(Direction::In, &mut upload_ack(all + 2 * 1460)), withheld(1460));
}

#[test]
fn a_copy_of_an_acknowledgement_that_a_newer_one_has_overtaken_is_dropped() {
    let (mut flow, all) = (upload(), 1 + SHARE);
    flow.pass(Direction::In, &mut upload_ack(all));
    flow.pass(Direction::In, &mut upload_ack(all + 1460));
    assert_eq!(flow.copy(3, all), Outcome::Dropped);
    assert_eq!(flow.copy(0, all + 1460), withheld(3 * 1460));
    let mut data = upload_data(all + 1460);
    let outcome = flow.rewriter.release(&mut data, flow.now);
    assert_eq!(outcome, Outcome::Dropped, "data is nobody's copy");
}

#[test]
fn data_and_acknowledgements_of_nothing_new_are_not_withheld() {
    let (mut flow, all) = (upload(), 1 + SHARE);
    flow.pass(Direction::In, &mut upload_ack(all));
    let again = flow.pass(Direction::In, &mut upload_ack(all));
    assert_eq!(again, given(2 * 1460), "as a sign of loss it keeps its window");
    let outcome = flow.pass(Direction::In, &mut upload_data(all + 1460));
    assert_eq!(outcome, given(SHARE));
}

#[test]
fn a_copy_gives_all_at_once_where_windows_are_not_paced_any_more() {
    let (mut flow, all) = (upload(), 1 + SHARE);
    flow.pass(Direction::In, &mut upload_ack(all));
    flow.rewriter.set_pace(0);
    assert_eq!(flow.copy(3, all), given(SHARE));
    let (mut flow, all) = (upload(), 1 + SHARE);
    flow.pass(Direction::In, &mut upload_ack(all));
    // The controller was last seen three seconds before.
    assert_eq!(flow.copy(2_000, all), Outcome::Kept, "the receiver's own window");
}

#[test]
fn sack_blocks_and_all_other_options_keep_their_bytes() {
    let mut flow = Download::new(0, 2_000);
    let sack = [Opt::SelectiveAcknowledgement((5, 9), [Some((20, 30)), None, None])];
    flow.ack(100_000, 60_000);
    let mut packet = segment(Direction::Out, &sack, 0, |tcp| {
        (tcp.ack, tcp.acknowledgment_number, tcp.window_size) = (true, 150_000, 65_000);
    });
    let before = packet.clone();
    assert_eq!(
        flow.pass(Direction::Out, &mut packet),
        Outcome::Clamped { from: 65_000, to: 2_000 }
    );
    assert!(checksum_is_right(&packet));
    let changed: Vec<_> = (0..packet.len()).filter(|at| packet[*at] != before[*at]).collect();
    assert!(changed.iter().all(|at| (34..38).contains(at)), "window and checksum: {changed:?}");
}

#[test]
fn an_unfinished_checksum_has_no_part_of_the_window_and_stays() {
    let mut flow = Download::new(0, 2_000);
    flow.ack(100_000, 60_000);
    let mut packet = segment(Direction::Out, &[], 0, |tcp| {
        (tcp.ack, tcp.acknowledgment_number, tcp.window_size) = (true, 150_000, 65_000);
    });
    let checksum = packet[36..38].to_vec();
    let passing = Passing { partial: true, ..Passing::plain(Direction::Out) };
    flow.rewriter.rewrite(&mut packet, passing, flow.now);
    assert_eq!((window(&packet), &packet[36..38]), (2_000, &checksum[..]));
}

#[test]
fn windows_pass_when_the_controller_has_been_silent_for_two_seconds() {
    let mut flow = Download::new(0, 2_000);
    flow.now += Duration::from_millis(1_999);
    assert_eq!(flow.ack(100_000, 60_000), 2_000);
    flow.now += Duration::from_millis(2);
    assert_eq!(flow.ack(200_000, 60_000), 60_000);
    flow.rewriter.beat(flow.now);
    assert_eq!(flow.ack(300_000, 60_000), 2_000);
}

#[test]
fn a_flood_of_a_million_syns_pushes_out_beginnings_but_no_flow() {
    let mut flow = Download::new(0, 2_000);
    flow.ack(100_000, 60_000);
    let mut syn = segment(Direction::In, &[], 0, |tcp| tcp.syn = true);
    for number in 0..1_000_000u32 {
        syn[12..16].copy_from_slice(&(0x0b00_0000 + number).to_be_bytes());
        flow.pass(Direction::In, &mut syn);
    }
    assert_eq!(flow.rewriter.flows().count(), 1);
    assert_eq!(flow.rewriter.beginnings(), sheaf_window::rewrite::EMBRYOS, "and no more");
    assert_eq!(flow.ack(200_000, 60_000), 2_000);
}

#[test]
fn without_time_stamps_the_round_trip_time_comes_from_sequence_numbers_sent_once() {
    let mut flow = Download::half_open(0, 0);
    flow.now += Duration::from_millis(3);
    flow.ack(1, 60_000); // the third packet: 3 ms to the client
    let data = |seq: u32| {
        segment(Direction::In, &[], 1000, |tcp| {
            (tcp.ack, tcp.acknowledgment_number, tcp.sequence_number) = (true, 1, seq);
        })
    };
    flow.pass(Direction::In, &mut data(1));
    flow.now += Duration::from_millis(2);
    flow.ack(1001, 60_000);
    let half = flow.rewriter.flow(&key()).unwrap().half(Direction::In);
    assert_eq!((half.rtt.floor(), half.rtt.count), (Some(Duration::from_millis(2)), 2));
    assert_eq!((half.bytes, half.acked), (1000, 1000));
    // Sent twice: the acknowledgement may be for either one (Karn).
    flow.pass(Direction::In, &mut data(1001));
    flow.pass(Direction::In, &mut data(1001));
    flow.now += Duration::from_micros(1);
    flow.ack(2001, 60_000);
    assert_eq!(flow.rewriter.flow(&key()).unwrap().half(Direction::In).rtt.count, 2);
}

#[test]
fn with_time_stamps_a_retransmission_is_timed_by_its_echo() {
    let mut rewriter = Rewriter::new();
    let mut now = Instant::from_millis(1);
    let mut pass = |direction, stamps: (u32, u32), syn: bool, payload, seq, ack, now| {
        let options = [Opt::Timestamp(stamps.0, stamps.1)];
        let mut packet = segment(direction, &options, payload, |tcp| {
            (tcp.syn, tcp.ack) = (syn, ack > 0);
            (tcp.sequence_number, tcp.acknowledgment_number) = (seq, ack);
        });
        rewriter.rewrite(&mut packet, Passing::plain(direction), now);
        rewriter.flow(&key()).copied()
    };
    pass(Direction::Out, (10, 0), true, 0, 0, 0, now);
    now += Duration::from_millis(20);
    pass(Direction::In, (900, 10), true, 0, 0, 1, now);
    pass(Direction::Out, (30, 900), false, 0, 1, 1, now);
    now += Duration::from_millis(20);
    // Lost behind this place, and sent again with a newer stamp, to which the reply refers.
    pass(Direction::In, (940, 30), false, 1000, 1, 1, now);
    now += Duration::from_millis(300);
    pass(Direction::In, (1240, 30), false, 1000, 1, 1, now);
    now += Duration::from_millis(5);
    let flow = pass(Direction::Out, (350, 1240), false, 0, 1, 1001, now).unwrap();
    // From the handshake: 20 ms to the server, none to the client; no sample of 305 ms.
    assert_eq!(flow.half(Direction::Out).rtt.min, 20_000_000);
    assert_eq!(flow.half(Direction::In).rtt.count, 1);
}

#[test]
fn the_minimum_round_trip_time_is_forgotten_after_two_ages() {
    let mut rtt = sheaf_window::flow::Rtt::default();
    let mut now = Instant::from_millis(1);
    rtt.sample(10, now);
    now += RTT_AGE;
    rtt.sample(50, now);
    assert_eq!(rtt.floor(), Some(Duration::from_nanos(10)), "still the old path's");
    now += RTT_AGE;
    rtt.sample(60, now);
    assert_eq!(rtt.floor(), Some(Duration::from_nanos(50)));
}

#[derive(Clone, Debug)]
enum Step {
    Set(u32),
    Ack { forward: u32, back: u32, asked: u32 },
}

proptest! {
    #[test]
    fn the_right_edge_never_moves_back_and_the_window_is_never_raised_or_starved(
        scale in 0u8..=14,
        steps in proptest::collection::vec(
            prop_oneof![
                (0u32..300_000).prop_map(Step::Set),
                (0u32..40_000, 0u32..3, 0u32..3_000_000).prop_map(|(forward, back, asked)| {
                    Step::Ack { forward, back: back * 1000, asked }
                }),
            ],
            1..80,
        )
    ) {
        let mut flow = Download::new(scale, 30_000);
        let mut ack = 100_000;
        let mut edge = 0u32;
        for step in steps {
            match step {
                Step::Set(window) => {
                    flow.rewriter.set(FlowId { key: key(), direction: Direction::In }, window);
                }
                Step::Ack { forward, back, asked } => {
                    ack += forward;
                    let asked = asked.min(65_535 << scale) >> scale << scale;
                    // Some acknowledgements overtake others.
                    let written = flow.ack(ack - back, asked);
                    prop_assert!(written <= asked);
                    prop_assert!(written >= asked.min(1460) || asked == 0);
                    // Only the receiver itself can take back what it advertised.
                    let kept = edge.saturating_sub(ack - back).min(asked);
                    prop_assert!(written >= kept, "{written} takes back part of {kept}");
                    edge = edge.max(ack - back + written);
                }
            }
        }
    }

    #[test]
    fn no_bytes_panic_and_only_whole_tcp_packets_change(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..120), first in any::<bool>()
    ) {
        let mut flow = Download::new(3, 3_000);
        if let Some(byte) = bytes.first_mut() {
            *byte = if first { 0x45 } else { 0x60 };
        }
        let before = bytes.clone();
        flow.pass(Direction::In, &mut bytes);
        prop_assert_eq!(bytes, before);
    }
}

/// UDP of 1200 bytes of data with this traffic class.
fn datagram(class: u8) -> Vec<u8> {
    let mut packet = Vec::new();
    let builder = PacketBuilder::ipv4(SERVER, CLIENT, 64).udp(443, 2000);
    builder.write(&mut packet, &[7; 1200]).unwrap();
    packet[1] = class;
    packet
}

#[test]
fn voice_passes_untouched_where_it_may_and_its_bytes_are_counted() {
    const EF: u8 = 46 << 2;
    let passed = |class, voice| {
        let mut rewriter = Rewriter::new();
        let cost = cost::of(500e3);
        rewriter.set_rest(Direction::In, RestSetting { cost, drops: true, voice });
        let at = |number: u64| Instant::from_millis(1 + number);
        (0..1000).for_each(|number| {
            rewriter.beat(at(number));
            let passing = Passing::plain(Direction::In);
            rewriter.rewrite(&mut datagram(class), passing, at(number));
        });
        rewriter.totals(Direction::In)
    };
    let voice = passed(EF, true);
    assert_eq!((voice.dropped, voice.voice), (0, 1000 * 1242));
    assert!(passed(EF, false).dropped > 800, "too much of it is no voice");
    let other = passed(0, true);
    assert!(other.dropped > 800);
    assert_eq!(other.voice, 0);
}

#[test]
fn without_a_controller_the_rest_passes_as_it_is() {
    let mut rewriter = Rewriter::new();
    let setting = RestSetting { cost: u32::MAX, drops: true, voice: false };
    rewriter.set_rest(Direction::In, setting);
    rewriter.beat(Instant::from_millis(1));
    let mut pass = |millis| {
        let passing = Passing::plain(Direction::In);
        rewriter.rewrite(&mut datagram(0), passing, Instant::from_millis(millis))
    };
    let held: Vec<_> = (0..100).map(|number| pass(1000 + number)).collect();
    assert!(held.contains(&Outcome::Dropped));
    assert!((0..100).all(|number| pass(2002 + number) == Outcome::Kept));
}
