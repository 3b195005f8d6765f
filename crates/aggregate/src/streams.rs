//! The streams of format 2 towards one next hop.

use crate::compressor::Compressor;
use sheaf_stage::{Duration, Instant};
use sheaf_wire::aggfrag::PROBES_TAG;
use sheaf_wire::compress::feedback::{Feedback, Item};
use sheaf_wire::ecn::Ecn;

/// A tag is used for another class once its stream sent nothing for this long beyond `hold`: no
/// frame of it waits or is on its way.
const REUSE: Duration = Duration::from_secs(2);

/// A stream: class and ECN capability of its packets.
#[derive(Debug)]
struct Stream {
    dscp: u8,
    ecn: Ecn,
    /// Number of its next frame to leave.
    sequence: u8,
    /// Frames that were begun.
    begun: u32,
    last_used: Instant,
    compressor: Option<Box<Compressor>>,
}

/// The streams towards one next hop, by their tags.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    streams: Vec<Stream>,
}

impl Streams {
    /// The tag of the stream with this class and ECN field, which has a packet at `now`. `None`:
    /// all tags are in use by others.
    pub fn tag(&mut self, dscp: u8, ecn: Ecn, hold: Duration, now: Instant) -> Option<u8> {
        let same = |stream: &Stream| (stream.dscp, stream.ecn) == (dscp, ecn);
        let place = self.streams.iter().position(same).or_else(|| {
            if self.streams.len() < usize::from(PROBES_TAG) {
                let stream =
                    Stream { dscp, ecn, sequence: 0, begun: 0, last_used: now, compressor: None };
                self.streams.push(stream);
                return Some(self.streams.len() - 1);
            }
            let idle = |stream: &Stream| now - stream.last_used >= hold + REUSE;
            let place = self.streams.iter().position(idle)?;
            // The sequence goes on, so that the receiver does not see a restart. Contexts have the
            // class among their constants, so none of the old ones fits.
            let stream = &mut self.streams[place];
            (stream.dscp, stream.ecn, stream.compressor) = (dscp, ecn, None);
            Some(place)
        })?;
        self.streams[place].last_used = now;
        Some(place as u8)
    }

    /// Writes the block of a packet of the stream with this tag over `block`, and returns whether
    /// that is the packet as it is.
    pub fn compress(&mut self, tag: u8, packet: &[u8], now: Instant, block: &mut Vec<u8>) -> bool {
        let Stream { compressor, begun, .. } = &mut self.streams[usize::from(tag)];
        compressor.get_or_insert_default().pack(packet, *begun, now, block)
    }

    /// Takes note of frames that were begun in the stream with this tag.
    pub fn begun(&mut self, tag: u8, frames: usize) {
        let begun = &mut self.streams[usize::from(tag)].begun;
        *begun = begun.wrapping_add(frames as u32);
    }

    /// The number of the next frame of the stream with this tag.
    pub fn next_sequence(&mut self, tag: u8) -> u8 {
        let sequence = &mut self.streams[usize::from(tag)].sequence;
        let number = *sequence;
        *sequence = number.wrapping_add(1);
        number
    }

    /// Takes note of what the splitter said.
    pub fn said(&mut self, feedback: &Feedback, now: Instant) {
        for item in feedback.items() {
            let (Item::Known { tag, .. } | Item::Unknown { tag, .. } | Item::Lost { tag }) = *item;
            let stream = self.streams.get_mut(usize::from(tag));
            if let Some(compressor) = stream.and_then(|stream| stream.compressor.as_mut()) {
                compressor.said(*item, now);
            }
        }
    }
}
