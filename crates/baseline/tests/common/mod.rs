//! Packets with numbers, and links that keep their order but not each other's pace.

use sheaf_baseline::Frame;
use sheaf_stage::{Duration, Instant, Stage};

/// A packet of `len` bytes, at least 5, that carries `number`.
pub fn packet(number: u32, len: usize) -> Vec<u8> {
    let mut packet = vec![0; len];
    packet[0] = 0x45;
    packet[1..5].copy_from_slice(&number.to_be_bytes());
    packet
}

pub fn number(packet: &[u8]) -> u32 {
    u32::from_be_bytes(*packet[1..].first_chunk().unwrap())
}

/// Whether a frame carries a packet, and not a message of the trunk's own.
pub fn is_packet(frame: &Frame) -> bool {
    frame.bytes[0] == 0x45
}

/// Frames that `sender` makes of packets with these lengths, one every `gap`; then the ones that
/// it makes by itself for a second.
pub fn striped<S>(sender: &mut S, lens: &[usize], gap: Duration) -> Vec<Frame>
where
    S: Stage<In = Vec<u8>, Out = Frame>,
{
    let (mut frames, mut now) = (Vec::new(), Instant::ZERO);
    for (number, len) in lens.iter().enumerate() {
        sender.enqueue(packet(number as u32, *len), now).unwrap();
        frames.extend(std::iter::from_fn(|| sender.dequeue(now)));
        now += gap;
    }
    let end = now + Duration::from_secs(1);
    while let Some(deadline) = sender.next_deadline().filter(|deadline| *deadline <= end) {
        frames.extend(std::iter::from_fn(|| sender.dequeue(deadline)));
    }
    frames
}

/// The frames in an order in which they can arrive over three links: each link keeps its own order,
/// `choices` decides which link is next.
pub fn arrivals(frames: Vec<Frame>, choices: &[usize]) -> Vec<Frame> {
    let mut links = [const { Vec::new() }; 3];
    frames.into_iter().for_each(|frame| links[frame.link].push(frame));
    let mut links = links.map(Vec::into_iter);
    let mut order = Vec::new();
    for choice in choices {
        order.extend(links[*choice].next());
    }
    order.extend(links.into_iter().flatten());
    order
}
