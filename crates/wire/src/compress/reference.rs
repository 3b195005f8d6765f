//! The values from which counters and time stamps are restored.

/// Counters up to this many before the newest have an own place among 6 bits; the others are after.
const BEFORE_COMPACT: u16 = 15;
/// The same among the 8 bits of the long form.
const BEFORE_LONG: u16 = 63;
/// Steps that a compressor lets a counter in the compact form be before its newest, and after the
/// one that the receiver surely has. The receiver may be as much behind as packets were lost
/// besides, so half of the 48 after are kept for that.
const COMPACT: (i16, i16) = (-7, 24);
/// The same of the long form.
const LONG: (i16, i16) = (-31, 128);
/// A time stamp's base is moved once it is this far back, and by half of it: distances between
/// counters are right up to 32,767.
const FAR: u16 = 0x4000;

/// Low bits of a counter that stand for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    /// 6 bits.
    Compact,
    /// 8 bits.
    Long,
}

/// A counter, and the time stamp of the packet that had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Base {
    counter: u16,
    timestamp: u32,
}

/// The newest counter of a flow, and the lines on which its time stamps lie. Compressor and
/// decompressor keep one each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    newest: u16,
    /// Since the last jump, and before it: for packets that were overtaken by the jump.
    lines: [Base; 2],
}

impl Reference {
    /// The reference after one packet.
    pub fn new(counter: u16, timestamp: u32) -> Reference {
        Reference { newest: counter, lines: [Base { counter, timestamp }; 2] }
    }

    /// The time stamp of the packet with this counter, if none jumped.
    pub(super) fn timestamp(&self, counter: u16, stride: u16) -> u32 {
        let [line, before] = self.lines;
        let line = if distance(line.counter, counter) < 0 { before } else { line };
        let steps = i32::from(distance(line.counter, counter));
        line.timestamp.wrapping_add_signed(steps.wrapping_mul(i32::from(stride)))
    }

    /// Takes note of a packet that was sent or restored.
    pub(super) fn observe(&mut self, counter: u16, timestamp: u32, stride: u16) {
        let newer = distance(self.newest, counter) > 0;
        if newer && self.timestamp(counter, stride) != timestamp {
            self.lines = [Base { counter, timestamp }, self.lines[0]];
        }
        if newer {
            self.newest = counter;
        }
        let behind = self.newest.wrapping_sub(self.lines[0].counter);
        if (FAR..0x8000).contains(&behind) {
            let moved = self.lines[0].counter.wrapping_add(FAR / 2);
            let timestamp = self.timestamp(moved, stride);
            self.lines = [Base { counter: moved, timestamp }; 2];
        }
    }

    /// The newest counter.
    pub fn newest(&self) -> u16 {
        self.newest
    }

    /// Low bits that stand for `counter` at a receiver that has `sure`; `None`: it is too far away.
    pub(super) fn width(&self, counter: u16, sure: u16) -> Option<Width> {
        let (behind, ahead) = (distance(self.newest, counter), distance(sure, counter));
        let near = |(first, last): (i16, i16)| behind >= first && ahead <= last;
        if near(COMPACT) { Some(Width::Compact) } else { near(LONG).then_some(Width::Long) }
    }

    /// The counter that low bits stand for.
    pub(super) fn counter(&self, low: u8, width: Width) -> u16 {
        let (before, mask) = match width {
            Width::Compact => (BEFORE_COMPACT, 0x3f),
            Width::Long => (BEFORE_LONG, 0xff),
        };
        let first = self.newest.wrapping_sub(before);
        first.wrapping_add(u16::from(low).wrapping_sub(first) & mask)
    }
}

/// Steps from `from` to `to`; negative: `to` is before it.
fn distance(from: u16, to: u16) -> i16 {
    to.wrapping_sub(from) as i16
}
