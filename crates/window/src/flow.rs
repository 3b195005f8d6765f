//! The state of one connection, and the window that its next acknowledgement may carry.
//!
//! Principle: a sender has at most the advertised window in flight, so lowering the window in the
//! acknowledgements lowers the rate to window / RTT. Five rules keep that harmless:
//! * only lowered, never raised, and a zero window stays what it is;
//! * the right edge `ack + window` that was written once is never taken back: a window shrinks
//!   only as data arrives (RFC 9293 3.8.6: "a receiver SHOULD NOT shrink the window"). So the
//!   window in a SYN counts most: up to 64 KB, whatever is decided later, if it is not lowered too;
//! * one full segment always fits, or the sender would wait for its persist timer;
//! * it grows as in limited slow start (RFC 3742): by what is acknowledged, and within a round trip
//!   by no more than the link takes. What a window grows by at once comes at twice the rate of the
//!   link, and stands in its queue. While nobody knows what the link takes, it does not grow after
//!   a round trip that shows a wait (RFC 9406);
//! * the field counts in units of 2^scale (RFC 7323 2.3): the share is rounded down to them, but
//!   up where rounding down would break one of the rules before.
//!
//! Round-trip times are passive. Each half of the path is timed on its own: from a packet that
//! passes towards an end to the first packet that comes back and proves its arrival, by the time
//! stamp's echo (RFC 7323 4.1) or, without time stamps, by its acknowledgement; a retransmission
//! proves nothing (Karn's rule, RFC 6298 3). The sum of both halves is the round-trip time.

use crate::pace::Pace;
use crate::segment::Segment;
use sheaf_stage::{Duration, Instant};

/// Time after which the minimum RTT of a half begins anew; the old minimum counts for as long
/// again.
pub const RTT_AGE: Duration = Duration::from_secs(30);
/// Time after which a packet without a reply is not timed any more.
pub const WATCH_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest window that can be advertised (RFC 7323 2.3).
pub const MAX_WINDOW: u32 = 65535 << 14;
/// Factor that makes numbers which come one after the other look like chance (Knuth's
/// multiplicative hash: 2^32 by the golden ratio).
const DITHER: u32 = 0x9e37_79b1;

/// Round-trip times between this place and one end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rtt {
    /// Smallest of this age; ns, 0 without a sample.
    pub min: u64,
    /// Smallest of the age before; ns, 0 without a sample.
    pub old_min: u64,
    /// Start of this age.
    pub since: Instant,
    /// Sum of all samples in ns, for means over any interval.
    pub sum: u64,
    /// Samples.
    pub count: u32,
    /// The latest sample, µs; at most what the field holds.
    pub latest: u32,
}

impl Rtt {
    /// Takes a sample of `nanos`.
    pub fn sample(&mut self, nanos: u64, now: Instant) {
        let nanos = nanos.max(1);
        if self.count == 0 || now - self.since >= RTT_AGE {
            self.old_min = self.min;
            self.min = nanos;
            self.since = now;
        } else if nanos < self.min {
            self.min = nanos;
        }
        self.sum += nanos;
        self.count = self.count.wrapping_add(1);
        self.latest = u32::try_from(nanos / 1000).unwrap_or(u32::MAX);
    }

    /// Whether the latest sample is longer than the smallest one by more than `wait` µs.
    pub fn waits(&self, wait: u32) -> bool {
        let longer =
            |floor: Duration| u64::from(self.latest) > floor.as_micros() as u64 + u64::from(wait);
        self.floor().is_some_and(longer)
    }

    /// The smallest of the last 30 to 60 s in which there were samples.
    pub fn floor(&self) -> Option<Duration> {
        let nanos = match (self.min, self.old_min) {
            (min, 0) => min,
            (min, old) => min.min(old),
        };
        (nanos > 0).then(|| Duration::from_nanos(nanos))
    }
}

/// The data of one direction, and the windows that govern it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Half {
    /// Bytes of data that passed, retransmissions included.
    pub bytes: u64,
    /// Bytes on the wire, link headers and acknowledgements of the other direction included.
    pub wire: u64,
    /// Bytes that were acknowledged.
    pub acked: u64,
    /// Time at which data passed last; [`Instant::ZERO`] for never.
    pub last: Instant,
    /// Round-trip time between this place and the receiver.
    pub rtt: Rtt,
    /// Time at which the packet passed that is timed now; [`Instant::ZERO`] for none.
    pub watch_since: Instant,
    /// Its time stamp, or the sequence number behind it.
    pub watch: u32,
    /// Newest time stamp or highest sequence number that passed.
    pub seen: u32,
    /// Window to hold the sender to, in bytes; 0 leaves it alone.
    pub window: u32,
    /// Right edge that was advertised.
    pub edge: u32,
    /// Right edge that would have been without a [clock](crate::pace); behind `edge` where none was
    /// withheld.
    pub goal: u32,
    /// Highest acknowledgement.
    pub ack: u32,
    /// Last window that the receiver asked for, bytes.
    pub asked: u32,
    /// Last window that was written, bytes.
    pub written: u32,
    /// Acknowledgements whose window was lowered.
    pub clamped: u32,
    /// Largest segment that both ends announced, bytes.
    pub mss: u16,
    /// Shift of the receiver's windows, 0..=14.
    pub scale: u8,
}

impl Half {
    /// Counts a packet of this direction and begins to time it, if none is timed.
    pub(crate) fn passes(
        &mut self,
        segment: &Segment<'_>,
        tsval: Option<u32>,
        wire: u32,
        now: Instant,
    ) {
        self.wire += u64::from(wire);
        if segment.payload > 0 {
            self.bytes += u64::from(segment.payload);
            self.last = now;
        }
        let stale = self.watch_since == Instant::ZERO || now - self.watch_since >= WATCH_TIMEOUT;
        let (mark, counts) = match tsval {
            Some(value) => (value, true),
            None => (segment.seq().wrapping_add(segment.payload), segment.payload > 0),
        };
        if counts && after(mark, self.seen) {
            self.seen = mark;
            if stale {
                (self.watch, self.watch_since) = (mark, now);
            }
        } else if counts && tsval.is_none() {
            // Sent again: its acknowledgement may be for either copy.
            self.watch_since = Instant::ZERO;
        }
    }

    /// Takes in a packet of the other direction: it acknowledges data of this one. Returns the
    /// bytes that it acknowledges.
    pub(crate) fn answered(&mut self, ack: u32, tsecr: Option<u32>, now: Instant) -> u32 {
        if self.watch_since != Instant::ZERO {
            let (proof, exact) = match tsecr {
                Some(value) => (value, value == self.watch),
                None => (ack, true),
            };
            if !after(self.watch, proof) {
                if exact {
                    self.rtt.sample((now - self.watch_since).as_nanos() as u64, now);
                }
                self.watch_since = Instant::ZERO;
            }
        }
        let step = ack.wrapping_sub(self.ack);
        if step > MAX_WINDOW {
            return 0;
        }
        self.acked += u64::from(step);
        self.ack = ack;
        step
    }

    /// Returns the window field for an acknowledgement of `ack`, of which `step` bytes are new,
    /// whose receiver wrote `field`, and records it; and whether the clock `pace` withholds some of
    /// it. The window grows by `growth` bytes in a round trip at most; 0 is any. `live` is whether
    /// the controller is alive: without it nothing is lowered.
    pub(crate) fn advertise(
        &mut self,
        ack: u32,
        step: u32,
        field: u16,
        growth: u32,
        live: bool,
        pace: Option<(&mut Pace, Instant)>,
    ) -> (u16, bool) {
        let (mut new, mut withheld) = (field, false);
        if live && self.window > 0 && field > 0 {
            let base = if pace.is_some() { self.goal() } else { self.edge };
            new = field.min(self.field_for(ack, step, growth, base));
            if let Some((pace, now)) = pace {
                let goal = ack.wrapping_add(u32::from(new) << self.scale);
                self.goal = if after(goal, base) { goal } else { base };
                let open = self.open(ack, new, pace, now);
                (new, withheld) = (open, open < new);
            }
        }
        self.asked = u32::from(field) << self.scale;
        if new < field {
            self.clamped = self.clamped.wrapping_add(1);
        }
        self.write(ack, new);
        (new, withheld)
    }

    /// Returns the window field for a copy of the last acknowledgement, which had `field`, and
    /// records it; and whether some of it is still withheld. `None` where it would give nothing.
    pub(crate) fn release(
        &mut self,
        ack: u32,
        field: u16,
        live: bool,
        pace: Option<(&mut Pace, Instant)>,
    ) -> Option<(u16, bool)> {
        let room = self.goal().wrapping_sub(ack);
        let whole = match live && self.window > 0 {
            true if room > MAX_WINDOW => return None,
            true => field.min(u16::try_from(room >> self.scale).unwrap_or(u16::MAX)),
            false => field,
        };
        let new = match pace {
            Some((pace, now)) => self.open(ack, whole, pace, now),
            None => whole,
        };
        let edge = ack.wrapping_add(u32::from(new) << self.scale);
        after(edge, self.edge).then(|| {
            self.write(ack, new);
            (new, new < whole)
        })
    }

    /// The window `field` is written into an acknowledgement of `ack`.
    fn write(&mut self, ack: u32, field: u16) {
        self.written = u32::from(field) << self.scale;
        let edge = ack.wrapping_add(self.written);
        if after(edge, self.edge) {
            self.edge = edge;
        }
    }

    /// Right edge without a clock. An old one is not near this one.
    fn goal(&self) -> u32 {
        let ahead = self.goal.wrapping_sub(self.edge);
        if ahead <= self.window { self.goal } else { self.edge }
    }

    /// So many units of `scale` that hold all `bytes`.
    fn round_up(&self, bytes: u32) -> u32 {
        (bytes + (1 << self.scale) - 1) >> self.scale
    }

    /// The smallest field that keeps the rules, at least 1. Windows grow from the edge `base` on.
    fn field_for(&self, ack: u32, step: u32, growth: u32, base: u32) -> u16 {
        let mss = u32::from(self.mss).max(1);
        // Bytes advertised beyond `ack`. More than any window means an old or damaged
        // acknowledgement.
        let room = base.wrapping_sub(ack);
        let mut window = self.window.min(MAX_WINDOW);
        // A receiver that held its sender itself goes on as it likes.
        if growth > 0 && room <= MAX_WINDOW && self.asked > self.written {
            window = window.min(self.grown(ack, room + step, step, growth));
        }
        let mut field = window.max(mss) >> self.scale;
        field = field.max(self.round_up(mss));
        if room <= MAX_WINDOW {
            field = field.max(self.round_up(room));
        }
        u16::try_from(field).unwrap_or(u16::MAX)
    }

    /// The part of the window field `whole` that may be written at `now`: one segment, or what was
    /// advertised already, and what the clock lets go.
    fn open(&self, ack: u32, whole: u16, pace: &mut Pace, now: Instant) -> u16 {
        let mss = u32::from(self.mss).max(1);
        // A sender that went beyond the edge has no room.
        let room = Some(self.edge.wrapping_sub(ack)).filter(|room| *room <= MAX_WINDOW);
        let room = room.unwrap_or(0);
        let open = room.saturating_add(pace.credit(mss, now)) >> self.scale;
        let least = self.round_up(room).max(self.round_up(mss));
        let field = u32::from(whole).min(open.max(least));
        pace.take((field << self.scale).saturating_sub(room));
        u16::try_from(field).unwrap_or(u16::MAX)
    }

    /// The largest window after `step` bytes of the `before` that were advertised have arrived.
    fn grown(&self, ack: u32, before: u32, step: u32, growth: u32) -> u32 {
        let more = match before > growth {
            true => (u64::from(step) * u64::from(growth) / u64::from(before)) as u32,
            false => step,
        };
        // The field would always round down less than its unit, so what is left over is at times
        // rounded up, by chance: by bits of the number that is acknowledged.
        let dither = (ack.wrapping_mul(DITHER) >> 16) & ((1 << self.scale) - 1);
        before + more + dither
    }
}

/// Whether sequence number (or time stamp) `a` comes after `b` (RFC 9293 3.4, RFC 7323 5.2).
fn after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) as i32 > 0
}

/// A connection whose handshake passed by here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connection {
    /// By [`Direction::index`](crate::Direction::index) of the data.
    pub half: [Half; 2],
    /// Whether both ends send time stamps.
    pub timestamps: bool,
}

/// The fields of one SYN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Syn {
    /// Time at which it passed; [`Instant::ZERO`] when it cannot be timed, because it was sent
    /// again.
    pub since: Instant,
    /// Sequence number of the first byte of data.
    pub first: u32,
    /// Bytes of data with it (RFC 7413).
    pub data: u32,
    /// Its window as it was written, which is never scaled (RFC 7323 2.2).
    pub window: u16,
    /// The window that its sender asked for.
    pub asked: u16,
    /// Largest segment its sender takes.
    pub mss: u16,
    /// Shift of its sender's windows.
    pub scale: Option<u8>,
    /// Its time stamp.
    pub timestamp: Option<u32>,
}

impl Syn {
    /// The fields of `segment`, a SYN over IPv4 or (`v6`) IPv6.
    pub(crate) fn read(segment: &Segment<'_>, v6: bool, now: Instant) -> Syn {
        let options = segment.options();
        Syn {
            since: now,
            first: segment.seq().wrapping_add(1),
            data: segment.payload,
            window: segment.window(),
            asked: segment.window(),
            // RFC 9293 3.7.1: the default without the option.
            mss: options.mss.unwrap_or(if v6 { 1220 } else { 536 }),
            scale: options.scale,
            timestamp: options.timestamps.map(|(value, _)| value),
        }
    }

    /// Lowers its window to `limit` bytes (0 leaves it alone), but not below one segment. Nothing
    /// is taken back: it is the first window that the other end hears of; and where it was sent
    /// `before` with a larger one, it keeps that.
    pub(crate) fn lower(&mut self, limit: u32, before: Option<u16>) {
        let limit = if limit == 0 { u32::from(u16::MAX) } else { limit };
        let limit = limit.max(self.mss.into()).max(before.unwrap_or(0).into());
        self.window = self.asked.min(u16::try_from(limit).unwrap_or(u16::MAX));
    }

    /// Whether `ack` acknowledges this SYN, and at most what came with it.
    pub(crate) fn is_acknowledged_by(&self, ack: u32) -> bool {
        ack.wrapping_sub(self.first) <= self.data
    }
}

/// A connection whose handshake is not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingFlow {
    /// The way that the first SYN went.
    pub initiator: crate::Direction,
    /// The first SYN.
    pub syn: Syn,
    /// The SYN-ACK.
    pub syn_ack: Option<Syn>,
}

impl PendingFlow {
    /// The window with which data of direction number `way` begins, bytes: in the SYN of its
    /// receiver.
    pub(crate) fn first_window(&self, way: usize) -> u32 {
        let receiver = match self.syn_ack {
            Some(syn_ack) if way == self.initiator.index() => syn_ack,
            _ => self.syn,
        };
        receiver.window.into()
    }

    /// The connection, when its third packet passes at `now`, with a window for each direction of
    /// data.
    pub(crate) fn grow(&self, windows: [u32; 2], now: Instant) -> Option<Connection> {
        let syn_ack = self.syn_ack?;
        let (i, r) = (self.initiator.index(), self.initiator.reverse().index());
        // Data of direction `i` was announced by the SYN of direction `i`, its windows by the
        // other.
        let mut syns = [self.syn; 2];
        syns[r] = syn_ack;
        let scaled = self.syn.scale.is_some() && syn_ack.scale.is_some();
        let timestamps = self.syn.timestamp.is_some() && syn_ack.timestamp.is_some();
        let half = |of: usize| {
            let (sender, receiver) = (syns[of], syns[1 - of]);
            Half {
                window: windows[of],
                edge: sender.first.wrapping_add(u32::from(receiver.window)),
                ack: sender.first,
                seen: match sender.timestamp {
                    Some(value) if timestamps => value,
                    _ => sender.first.wrapping_add(sender.data),
                },
                asked: u32::from(receiver.asked),
                written: u32::from(receiver.window),
                clamped: u32::from(receiver.window < receiver.asked),
                mss: sender.mss.min(receiver.mss),
                scale: if scaled { receiver.scale.unwrap_or(0) } else { 0 },
                ..Half::default()
            }
        };
        let mut connection = Connection { half: [half(0), half(1)], timestamps };
        let timed = |from: Instant, to: Instant| from != Instant::ZERO && to != Instant::ZERO;
        if timed(self.syn.since, syn_ack.since) {
            let nanos = (syn_ack.since - self.syn.since).as_nanos() as u64;
            connection.half[i].rtt.sample(nanos, now);
        }
        if timed(syn_ack.since, now) {
            connection.half[r].rtt.sample((now - syn_ack.since).as_nanos() as u64, now);
        }
        Some(connection)
    }
}
