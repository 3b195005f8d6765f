use super::*;
use crate::ip::Version;
use etherparse::PacketBuilder;
use proptest::prelude::*;

const RULES: Rules = Rules { rtp: true, id: IdRule::Follows, stride: 160 };
const GENERATION: u16 = 0x5ea1;

/// An RTP packet of a voice flow, with right checksums.
fn rtp(version: Version, sequence: u16, timestamp: u32, marker: bool, len: usize) -> Vec<u8> {
    let mut datagram = vec![0x80, 18 | u8::from(marker) << 7];
    datagram.extend_from_slice(&sequence.to_be_bytes());
    datagram.extend_from_slice(&timestamp.to_be_bytes());
    datagram.extend_from_slice(&[0xca, 0xfe, 0, 1]);
    datagram.extend((0..len).map(|index| (index as u16 * 7).wrapping_add(sequence) as u8));
    let mut packet = Vec::new();
    let builder = match version {
        Version::V4 => PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64),
        Version::V6 => PacketBuilder::ipv6([1; 16], [2; 16], 64),
    };
    builder.udp(5004, 5006).write(&mut packet, &datagram).unwrap();
    if version == Version::V4 {
        packet[4..6].copy_from_slice(&sequence.wrapping_add(77).to_be_bytes());
        packet[10..12].fill(0);
        let checksum = crate::checksum::ipv4_header(&packet[..20]);
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
    packet
}

fn voice(sequence: u16) -> Vec<u8> {
    rtp(Version::V4, sequence, 9_000 + 160 * u32::from(sequence), false, 20)
}

/// Both ends of one context.
struct Ends {
    context: Context,
    sender: Reference,
    receiver: Reference,
}

impl Ends {
    fn new(first: &[u8], rules: Rules) -> Ends {
        let headers = Headers::read(first).expect("right checksums");
        let context = Context::of(&headers, rules).expect("the rules apply");
        let reference = context.reference(&headers);
        Ends { context, sender: reference, receiver: reference }
    }

    fn compress(&mut self, packet: &[u8]) -> Option<Vec<u8>> {
        let headers = Headers::read(packet)?;
        self.context.fits(&headers).then_some(())?;
        let known = (7, &self.context, GENERATION);
        let compressed =
            Compressed::of(&headers, known, &self.sender, (false, self.sender.newest()))?;
        self.sender.sent(&self.context, &headers);
        let mut block = Vec::new();
        compressed.emit(&mut block);
        block.extend_from_slice(&packet[self.context.headers_len()..]);
        Some(block)
    }

    fn restore(&mut self, block: &[u8], generation: u16) -> Option<Vec<u8>> {
        let (header, len) = Compressed::parse(block)?;
        let mut packet = Vec::new();
        let known = (&self.context, generation);
        restore(&header, &block[len..], known, &mut self.receiver, &mut packet).then_some(packet)
    }
}

#[test]
fn a_voice_packet_has_four_bytes_of_header_and_comes_out_as_it_was() {
    let no_id = Rules { id: IdRule::Constant, ..RULES };
    for (version, rules) in [(Version::V4, RULES), (Version::V6, no_id)] {
        let packet = |n: u16| rtp(version, n, 160 * u32::from(n), false, 20);
        let mut ends = Ends::new(&packet(65_530), rules);
        // Across the wrap of sequence number and identification; the time stamp does not wrap
        // there.
        for n in 65_531..=65_535u16 {
            let block = ends.compress(&packet(n)).unwrap();
            assert_eq!(block.len(), 4 + 20);
            assert_eq!(ends.restore(&block, GENERATION).unwrap(), packet(n));
        }
        let wrapped = rtp(version, 0, 160 * 65_536, false, 20);
        let block = ends.compress(&wrapped).unwrap();
        assert_eq!(block.len(), 4 + 20);
        assert_eq!(ends.restore(&block, GENERATION).unwrap(), wrapped);
    }
}

#[test]
fn forty_seven_losses_in_a_row_are_survived_and_the_next_is_found_out() {
    for (lost, restored) in [(47, true), (48, false)] {
        let mut ends = Ends::new(&voice(100), RULES);
        let mut last = Vec::new();
        for n in 101..=101 + lost {
            last = ends.compress(&voice(n)).unwrap();
        }
        let packet = ends.restore(&last, GENERATION);
        assert_eq!(packet, restored.then(|| voice(101 + lost)));
    }
}

#[test]
fn packets_up_to_fifteen_late_are_restored() {
    let mut ends = Ends::new(&voice(100), RULES);
    let blocks: Vec<_> = (101..=116).map(|n| ends.compress(&voice(n)).unwrap()).collect();
    for index in (0..blocks.len()).rev() {
        let packet = ends.restore(&blocks[index], GENERATION);
        assert_eq!(packet.unwrap(), voice(101 + index as u16));
    }
}

#[test]
fn a_silence_costs_an_explicit_time_stamp_once_and_late_packets_before_it_are_restored() {
    let mut ends = Ends::new(&voice(100), RULES);
    let late = ends.compress(&voice(101)).unwrap();
    let spurt = |n: u16, marker| rtp(Version::V4, n, 77_777 + 160 * u32::from(n), marker, 20);
    let first = ends.compress(&spurt(102, true)).unwrap();
    assert_eq!(first.len(), 5 + 4 + 20);
    assert_eq!(ends.restore(&first, GENERATION).unwrap(), spurt(102, true));
    let second = ends.compress(&spurt(103, false)).unwrap();
    assert_eq!(second.len(), 4 + 20);
    assert_eq!(ends.restore(&second, GENERATION).unwrap(), spurt(103, false));
    assert_eq!(ends.restore(&late, GENERATION).unwrap(), voice(101));
}

#[test]
fn a_call_of_hours_without_a_silence_keeps_its_time_stamps() {
    let mut ends = Ends::new(&rtp(Version::V4, 0, 0, false, 20), RULES);
    for n in 1..200_000u32 {
        let packet = rtp(Version::V4, n as u16, 160 * n, false, 20);
        let block = ends.compress(&packet).unwrap();
        assert_eq!(block.len(), 4 + 20, "packet {n}");
        assert_eq!(ends.restore(&block, GENERATION), Some(packet), "packet {n}");
    }
}

#[test]
fn a_damaged_payload_is_not_delivered_with_a_checksum_made_to_fit() {
    let mut ends = Ends::new(&voice(100), RULES);
    let block = ends.compress(&voice(101)).unwrap();
    for at in 4..block.len() {
        let mut damaged = block.clone();
        damaged[at] ^= 0x10;
        assert_eq!(ends.restore(&damaged, GENERATION), None, "byte {at}");
    }
    assert_eq!(ends.restore(&block, GENERATION).unwrap(), voice(101));
}

#[test]
fn another_generation_restores_nothing_but_one_packet_in_65536() {
    let mut passed = 0;
    for generation in (0..=u16::MAX).filter(|generation| *generation != GENERATION) {
        let mut ends = Ends::new(&voice(100), RULES);
        let block = ends.compress(&voice(101)).unwrap();
        passed += u32::from(ends.restore(&block, generation).is_some());
    }
    assert!(passed <= 8, "{passed} of 65,535 generations passed");
}

#[test]
fn a_forged_context_with_the_same_crc_does_not_turn_a_flow_into_another() {
    // Two words of the addresses change by what leaves both Internet checksums as they are, so the
    // CRCs of all packets differ by the same bits. Of all generations that the receiver may draw, a
    // few let single packets through; none lets a second one of the same flow through as well.
    let mut forged = voice(100);
    forged[15] += 1;
    forged[19] -= 1;
    assert!(Headers::read(&forged).is_some(), "the checksums are right");
    let mut passed = [0u32; 3];
    for generation in 0..=u16::MAX {
        let mut real = Ends::new(&voice(100), RULES);
        let blocks = [101, 102].map(|n| real.compress(&voice(n)).unwrap());
        let mut receiver = Ends::new(&forged, RULES);
        let through =
            blocks.iter().filter(|block| receiver.restore(block, generation).is_some()).count();
        passed[through] += 1;
    }
    assert!(passed[1] <= 8 && passed[2] == 0, "{passed:?}");
}

#[test]
fn packets_without_rtp_count_by_their_identification() {
    let rules = Rules { rtp: false, id: IdRule::Follows, stride: 0 };
    let mut ends = Ends::new(&voice(100), rules);
    let block = ends.compress(&voice(101)).unwrap();
    assert_eq!(block.len(), 4 + 12 + 20);
    assert_eq!(ends.restore(&block, GENERATION).unwrap(), voice(101));
    let explicit = Rules { id: IdRule::Explicit, ..rules };
    let mut ends = Ends::new(&voice(100), explicit);
    let block = ends.compress(&voice(60_000)).unwrap();
    assert_eq!(block.len(), 5 + 2 + 12 + 20);
    assert_eq!(ends.restore(&block, GENERATION).unwrap(), voice(60_000));
}

#[test]
fn what_cannot_be_restored_bit_by_bit_has_no_headers_to_compress() {
    let good = voice(1);
    assert!(Headers::read(&good).is_some());
    let changed = |at: usize, value: u8| {
        let mut packet = good.clone();
        packet[at] = value;
        packet[10..12].fill(0);
        let checksum = crate::checksum::ipv4_header(&packet[..20]);
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        packet
    };
    assert!(Headers::read(&changed(8, 63)).is_some(), "another hop limit is a packet, too");
    assert!(Headers::read(&changed(9, 6)).is_none(), "TCP");
    assert!(Headers::read(&changed(6, 0x20)).is_none(), "a fragment");
    assert!(Headers::read(&changed(25, 20)).is_none(), "another UDP length");
    assert!(Headers::read(&changed(40, good[40] ^ 1)).is_none(), "a wrong UDP checksum");
    let mut wrong = good.clone();
    wrong[10] ^= 1;
    assert!(Headers::read(&wrong).is_none(), "a wrong IP checksum");
    let mut absent = good.clone();
    absent[26..28].fill(0);
    assert!(Headers::read(&absent).is_some(), "no UDP checksum over IPv4");
}

#[test]
fn a_flow_without_checksums_stays_without_and_others_do_not_fit_it() {
    let absent = |n: u16| {
        let mut packet = voice(n);
        packet[26..28].fill(0);
        packet
    };
    let mut ends = Ends::new(&absent(1), RULES);
    let block = ends.compress(&absent(2)).unwrap();
    assert_eq!(ends.restore(&block, GENERATION).unwrap(), absent(2));
    assert_eq!(ends.compress(&voice(3)), None);
}

#[test]
fn feedback_comes_out_as_it_was_said() {
    let mut feedback = feedback::Feedback::default();
    let items = [
        feedback::Item::Known { tag: 3, number: 200, generation: 0xbeef, check: 0x1234_5678 },
        feedback::Item::Unknown { tag: 15, number: 0 },
        feedback::Item::Lost { tag: 1 },
    ];
    items.into_iter().chain(items).for_each(|item| feedback.push(item));
    let mut bytes = Vec::new();
    feedback.emit(&mut bytes);
    let parsed = feedback::Feedback::parse(&bytes).unwrap();
    assert_eq!(parsed.items(), items);
    for len in 0..bytes.len() {
        assert!(feedback::Feedback::parse(&bytes[..len]).is_err());
    }
}

fn lengths() -> impl Strategy<Value = usize> {
    prop_oneof![Just(20usize), 0..60usize]
}

proptest! {
    #[test]
    fn whatever_fits_a_context_comes_out_as_it_was_or_not_at_all(
        packets in proptest::collection::vec(
            (-40i16..200, any::<bool>(), lengths(), 0u32..5, any::<bool>()),
            1..60,
        ),
        v6 in any::<bool>(), id in 0u8..3,
    ) {
        let version = if v6 { Version::V6 } else { Version::V4 };
        let id = match id {
            _ if v6 => IdRule::Constant,
            0 => IdRule::Constant,
            1 => IdRule::Follows,
            _ => IdRule::Explicit,
        };
        let mut ends = Ends::new(&rtp(version, 0, 0, false, 20), Rules { id, ..RULES });
        let mut sequence = 0u16;
        for (step, marker, len, jump, lost) in packets {
            sequence = sequence.wrapping_add_signed(step);
            let timestamp = (160 * u32::from(sequence)).wrapping_add(jump * 1000);
            let packet = rtp(version, sequence, timestamp, marker, len);
            let Some(block) = ends.compress(&packet).filter(|_| !lost) else { continue };
            if let Some(restored) = ends.restore(&block, GENERATION) {
                prop_assert_eq!(restored, packet);
            }
        }
    }

    #[test]
    fn no_header_panics(bytes in proptest::collection::vec(any::<u8>(), 1..80)) {
        let mut ends = Ends::new(&voice(100), RULES);
        if bytes[0] >> 4 == 10 || bytes[0] >> 4 >= 12 {
            let _ = ends.restore(&bytes, GENERATION);
        }
        let _ = feedback::Feedback::parse(&bytes);
    }
}
