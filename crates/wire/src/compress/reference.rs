//! What counters and time stamps are restored from.

/// Counters up to this many before the newest have an own place among 6 bits; the others are after.
const BEFORE_COMPACT: u16 = 15;
/// The same among the 8 bits of the long form.
const BEFORE_LONG: u16 = 63;
/// How many counters before and after its newest a compressor lets the compact form stand for. The
/// receiver may be as much behind as packets were lost, so most of the 48 after are kept for it.
const COMPACT: std::ops::RangeInclusive<i16> = -7..=8;
/// The same of the long form.
const LONG: std::ops::RangeInclusive<i16> = -31..=128;
/// A time stamp's base is moved once it is this far back, and by half of it: distances between
/// counters are right up to 32,767.
const FAR: u16 = 0x4000;

/// How many low bits of a counter stand for it.
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

    /// Low bits that stand for `counter`; `None`: it is too far from the newest.
    pub(super) fn width(&self, counter: u16) -> Option<Width> {
        let distance = distance(self.newest, counter);
        if COMPACT.contains(&distance) {
            Some(Width::Compact)
        } else {
            LONG.contains(&distance).then_some(Width::Long)
        }
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

/// How far `to` is after `from`; negative: before it.
fn distance(from: u16, to: u16) -> i16 {
    to.wrapping_sub(from) as i16
}
