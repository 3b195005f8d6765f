//! A fixed conversation in format 2, byte for byte as it is kept.
//!
//! Six calls with silences, silence descriptors, a flow without UDP checksums and one over IPv6,
//! through frames of 400 bytes. The payloads behind the outer headers are the corpus that the fuzz
//! tests damage and the dissector is shown. `SHEAF_BLESS=1` writes them anew after a change of the
//! format.

use sheaf_aggregate::{
    Aggregator, Config, Device, Format, Hop, Outbound, Split, Splitter, Threshold,
};
use sheaf_stage::{Instant, Stage};
use sheaf_wire::checksum;
use sheaf_wire::compress::feedback::{Feedback, Item};
use sheaf_wire::meta::{Outer, Repr};
use std::collections::BTreeMap;
use std::path::Path;

/// The calls, of which one is over IPv6 and one has no UDP checksums.
const CALLS: u16 = 6;
const V6: u16 = 5;
const UNSUMMED: u16 = 4;
/// The sequence number at which all calls go on after a silence.
const SILENCE: u16 = 12;
/// Bytes of a voice frame of G.729, and of its silence descriptor.
const VOICE: usize = 20;
const DESCRIPTOR: usize = 2;

/// An RTP packet with right checksums.
fn rtp(call: u16, sequence: u16) -> Vec<u8> {
    let silent = call == 2 && sequence % 5 == 4;
    let jump = if sequence >= SILENCE { 7777 } else { 0 };
    let timestamp = jump + 160 * u32::from(sequence);
    let len = if silent { DESCRIPTOR } else { VOICE };
    let mut datagram = vec![0x80, 18 | u8::from(sequence == SILENCE) << 7];
    datagram.extend_from_slice(&sequence.to_be_bytes());
    datagram.extend_from_slice(&timestamp.to_be_bytes());
    datagram.extend_from_slice(&[1, 2, 3, call as u8]);
    datagram.extend((0..len as u16).map(|byte| (byte * 3 + sequence) as u8));
    let mut packet = Vec::new();
    if call == V6 {
        etherparse::PacketBuilder::ipv6([0xfd; 16], [0xfe; 16], 63)
            .udp(4000 + call, 5004)
            .write(&mut packet, &datagram)
            .unwrap();
        return packet;
    }
    etherparse::PacketBuilder::ipv4([10, 1, 0, 1], [10, 1, 0, 2], 63)
        .udp(4000 + call, 5004)
        .write(&mut packet, &datagram)
        .unwrap();
    packet[4..6].copy_from_slice(&(sequence + call).to_be_bytes());
    packet[10..12].fill(0);
    let checksum = checksum::ipv4_header(&packet[..20]);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    if call == UNSUMMED {
        packet[26..28].fill(0);
    }
    packet
}

/// The messages of the conversation, by the names of the files.
fn conversation() -> BTreeMap<String, Vec<u8>> {
    let mut said = BTreeMap::new();
    let outer = Outer::V4 { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into() };
    let config =
        Config { max: 400, min: Threshold::Percent(0), queue_frames: 64, ..Config::default() };
    let hold = config.hold;
    let mut aggregator = Aggregator::new(config).unwrap();
    let hop = aggregator.add_hop(Hop { format: Format::Compressed, ..Hop::neighbour(outer) });
    let mut splitter = Splitter::accepting_any().with_frames(11);
    let (mut now, mut delivered) = (Instant::ZERO, Vec::new());
    for sequence in 0..24 {
        aggregator.set_device(Device::Reports { waiting: 2, limit: 50 }, now);
        for call in 0..CALLS {
            let packet = rtp(call, sequence);
            if sequence == 3 {
                said.insert(format!("packets/call-{call}"), packet.clone());
            }
            aggregator.enqueue(Outbound { hop, mark: 0, packet }, now).unwrap();
        }
        now += hold;
        while let Some(mut frame) = aggregator.dequeue(now) {
            let payload = Repr::with_payload(&frame.bytes).unwrap().1.to_vec();
            let number = said.keys().filter(|name| name.starts_with("frames/")).count();
            said.insert(format!("frames/{number:02}"), payload);
            let split = splitter.split(&mut frame.bytes, |packet| delivered.push(packet.to_vec()));
            let Split::Delivered(feedback) = split.unwrap() else { panic!("a frame") };
            if !feedback.items().is_empty() {
                said.insert(format!("feedback/after-{number:02}"), message(&feedback));
            }
            aggregator.said(hop, &feedback, now);
        }
    }
    let sent = (0..24).flat_map(|sequence| (0..CALLS).map(move |call| rtp(call, sequence)));
    assert_eq!(delivered, sent.collect::<Vec<_>>());
    let mut unknown = Feedback::default();
    (0..2).for_each(|number| unknown.push(Item::Unknown { tag: 0, number }));
    unknown.push(Item::Lost { tag: 0 });
    said.insert("feedback/unknown-and-lost".into(), message(&unknown));
    said
}

fn message(feedback: &Feedback) -> Vec<u8> {
    let mut bytes = Vec::new();
    feedback.emit(&mut bytes);
    bytes
}

#[test]
fn the_same_packets_give_the_bytes_that_are_kept() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let bless = std::env::var_os("SHEAF_BLESS").is_some();
    for (name, bytes) in conversation() {
        let file = corpus.join(name);
        if bless {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, &bytes).unwrap();
        }
        let kept = std::fs::read(&file).unwrap_or_else(|error| panic!("{file:?}: {error}"));
        assert_eq!(bytes, kept, "{file:?}: SHEAF_BLESS=1 writes it");
    }
}
