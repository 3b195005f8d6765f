//! The packets of the kept conversation, and the aggregator's parameters in it: for the model, and
//! for the eBPF program that has to send the same bytes.

use sheaf_aggregate::{Config, Threshold};
use sheaf_wire::checksum;

/// The calls, of which one is over IPv6 and one has no UDP checksums.
pub const CALLS: u16 = 6;
const V6: u16 = 5;
const UNSUMMED: u16 = 4;
/// The splitter's secret, from which it draws generations.
pub const SECRET: u64 = 11;
/// Packets of each call.
pub const ROUNDS: u16 = 24;
/// The sequence number at which all calls go on after a silence.
const SILENCE: u16 = 12;
/// Bytes of a voice frame of G.729, and of its silence descriptor.
const VOICE: usize = 20;
const DESCRIPTOR: usize = 2;

/// An RTP packet with right checksums.
pub fn rtp(call: u16, sequence: u16) -> Vec<u8> {
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

/// The parameters.
pub fn config() -> Config {
    Config { max: 400, min: Threshold::Percent(0), queue_frames: 64, ..Config::default() }
}
