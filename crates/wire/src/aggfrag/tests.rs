use super::*;
use crate::compress::{Definition, IdRule, Rules};
use crate::ethernet;
use crate::ip::{example_udp, example_v4};
use proptest::prelude::*;

const PLAIN: Rules = Rules { rtp: false, id: IdRule::Constant, stride: 0 };
/// Length of the payload of every context, here.
const PAYLOAD: u16 = 20;

fn frame(tag: u8, sequence: u8, offset: u16, body: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Header { tag, sequence, offset }.emit().to_vec();
    body.iter().for_each(|part| bytes.extend_from_slice(part));
    bytes
}

fn parse(bytes: &[u8]) -> Result<Frame<'_>, Refusal> {
    Frame::parse(bytes, |number| (number < 200).then_some(PAYLOAD))
}

fn defined(packet: &[u8]) -> Vec<u8> {
    [&Definition::header(9, PLAIN), packet].concat()
}

#[test]
fn a_frame_has_the_layout_of_aggfrag_payload_without_congestion_control() {
    let packet = example_v4();
    let bytes = frame(0, 77, 3, &[&[1, 2, 3], &packet, &[0; 9]]);
    assert_eq!(bytes[..4], [0, 77, 0, 3], "sub-type, reserved, block offset (RFC 9347, 6.1.1)");
    let view = parse(&bytes).unwrap();
    assert_eq!(view.continuation(), [1, 2, 3]);
    assert!(matches!(view.blocks().next(), Some(Block::Packet(bytes)) if bytes == packet));
    assert_eq!((view.len(), view.cut(), view.unknown()), (1, None, None));
    assert_eq!(frame(5, 1, 0x123, &[])[2..], [0x51, 0x23], "the tag is above the offset");
}

#[test]
fn blocks_of_all_kinds_are_found_and_an_unknown_length_ends_the_view() {
    let udp = example_udp(&[3; 20]);
    let compact = [&[0xc0, 0x40, 1, 2][..], &[5; 20]].concat();
    let long = [&[0xa4, 9, 1, 2, 3, 0, 2][..], &[6; 2]].concat();
    let unknown = [0xfe, 0x40, 1, 2, 9, 9]; // context 249
    let bytes = frame(1, 0, 0, &[&udp, &defined(&udp), &compact, &long, &unknown]);
    let view = parse(&bytes).unwrap();
    assert_eq!((view.len(), view.unknown()), (4, Some(249)));
    let blocks: Vec<_> = view.blocks().collect();
    assert!(matches!(blocks[1], Block::Definition(one) if one.headers.packet() == udp));
    assert!(matches!(blocks[2], Block::Compressed(one, [5, ..]) if one.number == 1));
    assert!(matches!(blocks[3], Block::Compressed(one, [6, 6]) if one.number == 9));
}

fn payload(ethertype: u16, len: usize) -> Vec<u8> {
    [&Payload::header(ethertype, len)[..], &vec![4; len]].concat()
}

#[test]
fn an_ethernet_payload_has_its_length_and_type_and_is_never_of_ip() {
    let bytes = frame(0, 0, 0, &[&payload(ethernet::BATMAN, 5), &example_v4(), &[0; 3]]);
    assert_eq!(bytes[4..8], [0x20, 5, 0x43, 0x05]);
    let view = parse(&bytes).unwrap();
    let expected = Payload { ethertype: 0x4305, bytes: &[4; 5] };
    assert!(matches!(view.blocks().next(), Some(Block::Ethernet(found)) if found == expected));
    assert_eq!(view.len(), 2);
    for ethertype in [0x0800, 0x86dd, 0x05ff] {
        let bytes = frame(0, 0, 0, &[&payload(ethertype, 5)]);
        assert_eq!(parse(&bytes).unwrap_err(), Refusal::BadPacket, "{ethertype:x}");
    }
    assert_eq!(parse(&bytes[..12]).unwrap_err(), Refusal::Truncated);
}

#[test]
fn a_cut_block_ends_its_frame_and_says_how_long_it_is() {
    let udp = example_udp(&[3; 200]);
    let bytes = frame(0, 0, 0, &[&example_v4(), &Cut::header(&udp), &udp[..50]]);
    let cut = parse(&bytes).unwrap().cut().unwrap();
    assert_eq!((cut.len, cut.part), (228, &udp[..50]));
    assert_eq!(cut.check, crate::crc::crc32(&udp));
    // A frame that is the middle of a block has nothing else.
    let bytes = frame(0, 1, 178, &[&udp[50..70]]);
    let middle = parse(&bytes).unwrap();
    assert_eq!((middle.continuation(), middle.is_empty()), (&udp[50..70], true));
}

#[test]
fn each_fault_has_its_own_reason() {
    let udp = example_udp(&[1; 20]);
    let refusal = |body: &[&[u8]]| parse(&frame(0, 0, 0, body)).unwrap_err();
    assert_eq!(parse(&[1, 0, 0, 0, 9]).unwrap_err(), Refusal::SubType);
    assert_eq!(parse(&[0, 0, 0]).unwrap_err(), Refusal::Truncated);
    assert_eq!(parse(&[0; MAX_LEN + 1]).unwrap_err(), Refusal::Oversized);
    assert_eq!(refusal(&[]), Refusal::Empty);
    assert_eq!(refusal(&[&[0; 30]]), Refusal::Empty);
    assert_eq!(refusal(&[&udp, &udp[..47]]), Refusal::Truncated);
    assert_eq!(refusal(&[&[0xc0, 0x40, 0, 0], &[0; 19]]), Refusal::Truncated);
    assert_eq!(refusal(&[&udp, &[0, 0, 1]]), Refusal::Padding);
    for kind in [1u8, 3, 5, 7, 11] {
        assert_eq!(refusal(&[&udp, &[kind << 4; 40]]), Refusal::UnknownBlock);
    }
    assert_eq!(refusal(&[&[0x41; 40]]), Refusal::BadPacket);
    let mut meta = udp.clone();
    meta[9] = 253;
    assert_eq!(refusal(&[&meta]), Refusal::Nested);
    assert_eq!(refusal(&[&Cut::header(&udp), &udp]), Refusal::BadCut);
    let mut wrong = defined(&udp);
    wrong[40] ^= 1; // its payload: the checksum is wrong
    assert_eq!(refusal(&[&wrong]), Refusal::BadDefinition);
    let tiny = [0xc0, 0x40, 0, 0];
    let many = vec![&tiny[..]; MAX_BLOCKS + 1];
    let parsed = Frame::parse(&frame(0, 0, 0, &many), |_| Some(0)).map(|view| view.len());
    assert_eq!(parsed, Err(Refusal::TooMany));
}

#[test]
fn every_refusal_has_its_place_and_a_name_of_its_own() {
    let names: std::collections::BTreeSet<_> = Refusal::ALL.iter().map(|one| one.name()).collect();
    assert_eq!(names.len(), Refusal::ALL.len());
    for (index, refusal) in Refusal::ALL.into_iter().enumerate() {
        assert_eq!(refusal as usize, index);
    }
}

proptest! {
    #[test]
    fn damaged_frames_are_refused_or_their_blocks_tile_them(
        at in any::<prop::sample::Index>(), value in any::<u8>(), cut in 0usize..60,
    ) {
        let udp = example_udp(&[1; 20]);
        let compact = [&[0xc0, 0x40, 1, 2][..], &[5; 20]].concat();
        let mesh = payload(ethernet::BATMAN, 9);
        let mut bytes =
            frame(0, 0, 4, &[&[1; 4], &mesh, &udp, &compact, &defined(&udp), &Cut::header(&udp)]);
        let index = at.index(bytes.len());
        bytes[index] = value;
        bytes.truncate(bytes.len() - cut);
        if let Ok(view) = parse(&bytes) {
            let blocks: usize = view.blocks().map(|block| match block {
                Block::Packet(bytes) => bytes.len(),
                Block::Ethernet(payload) => ETHERNET_HEADER + payload.bytes.len(),
                Block::Definition(one) => 4 + one.headers.packet().len(),
                Block::Compressed(_, payload) => 4 + payload.len(),
            }).sum();
            prop_assert!(4 + view.continuation().len() + blocks <= bytes.len());
        }
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
        if let Ok(view) = parse(&[&[0, 0][..], &bytes].concat()) {
            prop_assert_eq!(view.blocks().count(), view.len());
        }
    }
}
