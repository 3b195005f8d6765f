//! Segments of TCP by which a flow measures its round trip, and how those of a flow went (see
//! `steady`).

use sheaf_stage::{Duration, Instant};
use sheaf_wire::ethernet;
use sheaf_wire::ip::{Ip, Protocol};

/// Time for which BBR remembers the least round trip (`bbr_min_rtt_win_sec`).
const REMEMBERED: Duration = Duration::from_secs(10);

/// What a packet is to the round trip that TCP measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    /// No segment, or one that nobody acknowledges.
    Other,
    /// The second one of a handshake, SYN and ACK.
    Answer,
    /// With data.
    Data,
}

impl Segment {
    /// That of an IP packet, or (`ip` false) of an Ethernet frame.
    pub fn of(packet: &[u8], ip: bool) -> Segment {
        const SYN_ACK: u8 = 0x12;
        let packet = if ip { Some(packet) } else { packet.get(ethernet::HEADER_LEN..) };
        let view = packet.and_then(|packet| Ip::parse(packet).ok());
        let Some(view) = view.filter(|view| view.protocol() == Protocol::TCP) else {
            return Segment::Other;
        };
        let header = view.transport();
        let Some(&[length, flags]) = header.get(12..14).filter(|_| !view.is_fragment()) else {
            return Segment::Other;
        };
        if flags & SYN_ACK == SYN_ACK {
            return Segment::Answer;
        }
        match header.len() > 4 * usize::from(length >> 4) {
            true => Segment::Data,
            false => Segment::Other,
        }
    }
}

/// How the packets of a flow went.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Steady {
    /// Time until which they are kept to the main link.
    until: Instant,
    /// Time at which one was last free to take a quick link.
    quick_at: Option<Instant>,
}

impl Steady {
    /// Whether a segment is kept to the main link. `is_full`: it is as long as a frame can be.
    pub fn keeps(&mut self, segment: Segment, is_full: bool, now: Instant) -> bool {
        let is_unmeasured = self.quick_at.is_none_or(|at| now - at >= REMEMBERED);
        let keeps = match segment {
            Segment::Other => return false,
            Segment::Answer => true,
            Segment::Data => now < self.until || is_full && is_unmeasured,
        };
        match keeps {
            false => self.quick_at = Some(now),
            true if segment == Segment::Answer => {
                *self = Steady { until: now + REMEMBERED, quick_at: None };
            }
            true if is_full => self.until = now + REMEMBERED,
            true => {}
        }
        keeps
    }

    /// Notes a segment for which there was no main link.
    pub fn was_free(&mut self, now: Instant) {
        *self = Steady { until: Instant::ZERO, quick_at: Some(now) };
    }
}
