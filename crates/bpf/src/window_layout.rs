//! The structures that the window program and user space share, byte for byte as in
//! `src/c/window/maps.h` (mirrors.rs compares them), and how they become the model's.

use bytemuck::{Pod, Zeroable};
use sheaf_stage::Instant;
use sheaf_window::flow::Rtt as ModelRtt;
use sheaf_window::{Connection as ModelConnection, Half as ModelHalf, Key as ModelKey};
use sheaf_window::{
    Direction, FlowId, Rest as ModelRest, RestKey as ModelRestKey, Totals as ModelTotals,
};

/// Settings that one run of `sheaf_set` takes.
pub const SETTINGS: usize = 64;
/// Buckets of the table of flows: 16,384 flows in 4 MiB. A build for size has 4096 in 1 MiB, as a
/// router has 64 MiB in all, and few of its homes have more connections that move data.
pub const BUCKETS: usize = if cfg!(small_tables) { SMALL_BUCKETS } else { 2048 };
/// build.rs has the same number.
const SMALL_BUCKETS: usize = 512;
/// Flows of a bucket.
pub const WAYS: usize = 8;

/// `struct control`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct Control {
    /// Last sign of life; ns of CLOCK_MONOTONIC, 0 for none.
    pub heartbeat: u64,
    /// Window of new flows in bytes, by direction of the data; 0 for hands off.
    pub initial: [u32; 2],
    /// Bytes of all flows together that begin before the next sign of life, likewise.
    pub spare: [u32; 2],
    /// Bytes by which windows grow in a round trip at most, likewise; 0 for any.
    pub growth: [u32; 2],
    /// Wait after which they do not grow, µs, likewise; 0 for any.
    pub wait: [u32; 2],
    /// Bytes of link header.
    pub link: u32,
    /// Signs of life so far.
    pub beats: u32,
    /// Time of a byte of the rest at its share, 2⁻¹⁶ ns, by direction; 0 for hands off.
    pub cost: [u32; 2],
    /// Whether data is pushed, by its direction.
    pub push: [u8; 2],
    /// Whether the rest is dropped where it cannot be marked, likewise.
    pub drops: [u8; 2],
    /// Whether voice among the rest is never touched, likewise.
    pub voice: [u8; 2],
    /// Padding.
    pub pad: [u8; 2],
    /// Time of a byte by which windows of uploads open, 2⁻¹⁶ ns; 0 for any.
    pub pace: u32,
    /// Interface that sends copies of acknowledgements back; 0 for none.
    pub back: u32,
    /// Interface that they arrive on.
    pub dev: u32,
    /// Padding.
    pub gap: u32,
    /// Time by which the rest is judged and windows are paced, ns; 0 for now.
    pub clock: u64,
    /// Of the table's hash.
    pub seed: [u64; 4],
}

/// `struct key`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Key {
    outside: [u8; 16],
    inside: [u8; 16],
    outside_port: u16,
    inside_port: u16,
}

impl From<ModelKey> for Key {
    fn from(key: ModelKey) -> Key {
        Key {
            outside: key.outside,
            inside: key.inside,
            outside_port: key.outside_port,
            inside_port: key.inside_port,
        }
    }
}

impl From<Key> for ModelKey {
    fn from(key: Key) -> ModelKey {
        ModelKey {
            outside: key.outside,
            inside: key.inside,
            outside_port: key.outside_port,
            inside_port: key.inside_port,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
struct Rtt {
    min: u64,
    old_min: u64,
    since: u64,
    sum: u64,
    count: u32,
    latest: u32,
}

/// `struct side`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C, align(64))]
pub struct Side {
    wire: u64,
    bytes: u64,
    ack: u64,
    window: u32,
    edge: u32,
    watch: u32,
    since: u32,
    seen: u32,
    last: u32,
    clamped: u32,
    asked: u16,
    written: u16,
    mss: u16,
    timed: u16,
    shift: u8,
    scale: u8,
    timestamps: u8,
    governed: u8,
}

/// ns of a tick of `since` and of `last`, as powers of two.
const SINCE_TICK: u32 = 10;
const LAST_TICK: u32 = 22;

impl Side {
    /// A reading of a clock that goes round, as close to `about` as it can be; 0 stays 0.
    fn instant(ticks: u32, power: u32, about: Instant) -> Instant {
        if ticks == 0 {
            return Instant::ZERO;
        }
        let about = about.as_nanos() >> power;
        let ahead = i64::from(ticks.wrapping_sub(about as u32) as i32);
        Instant::from_nanos(about.saturating_add_signed(ahead) << power)
    }
}

/// `struct bucket`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct Bucket {
    place: [u64; WAYS],
}

impl Bucket {
    /// Tags below this are none of a flow: the place is free, or being filled.
    const FIRST_TAG: u64 = 2 << 16;

    /// The places that have a flow.
    pub fn used(self) -> impl Iterator<Item = usize> {
        (0..WAYS).filter(move |way| self.place[*way] >= Bucket::FIRST_TAG)
    }
}

/// `struct flow`: what is seldom touched.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Cold {
    /// Whose it is.
    pub key: Key,
    first: [u32; 2],
    goal: u32,
    rtt: [Rtt; 2],
}

/// All of one flow.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// Its key, and what is seldom touched.
    pub cold: Cold,
    /// By direction of the packets.
    pub side: [Side; 2],
}

/// The direction whose windows a clock may hold back.
const UPLOAD: usize = Direction::Out.index();

impl Flow {
    /// As the model has it. The program's short clocks are read as being close to `about`.
    pub fn connection(&self, about: Instant) -> ModelConnection {
        ModelConnection {
            half: [self.half(0, about), self.half(1, about)],
            timestamps: self.side[0].timestamps != 0,
        }
    }

    /// The data of one direction is counted by its own packets, its windows by the others'.
    fn half(&self, direction: usize, about: Instant) -> ModelHalf {
        let (own, other) = (&self.side[direction], &self.side[1 - direction]);
        let rtt = &self.cold.rtt[direction];
        ModelHalf {
            bytes: own.bytes,
            wire: own.wire,
            acked: other.ack.wrapping_sub(self.cold.first[direction].into()),
            last: Side::instant(own.last, LAST_TICK, about),
            rtt: ModelRtt {
                min: rtt.min,
                old_min: rtt.old_min,
                since: Instant::from_nanos(rtt.since),
                sum: rtt.sum,
                count: rtt.count,
                latest: rtt.latest,
            },
            watch_since: Side::instant(other.since, SINCE_TICK, about),
            watch: other.watch,
            seen: own.seen,
            window: other.window,
            edge: other.edge,
            goal: if direction == UPLOAD { self.cold.goal } else { 0 },
            ack: other.ack as u32,
            asked: u32::from(other.asked) << (other.shift & 15),
            written: u32::from(other.written) << (other.shift & 15),
            clamped: other.clamped,
            mss: other.mss,
            scale: other.scale,
        }
    }
}

/// `struct pace`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct Pace {
    due: u64,
    /// Copies that were sent to come back.
    pub copies: u64,
}

/// `struct rest_key`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct RestKey {
    key: Key,
    protocol: u8,
    pad: [u8; 3],
}

impl From<RestKey> for ModelRestKey {
    fn from(key: RestKey) -> ModelRestKey {
        ModelRestKey { ends: key.key.into(), protocol: key.protocol }
    }
}

#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
struct Rest {
    wire: u64,
    due: u64,
    above: u64,
    next: u64,
    capable: u32,
    count: u32,
    first: u32,
    inverse: u16,
    signals: u8,
    pad: u8,
}

/// `struct rest_pair`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct RestPair {
    direction: [Rest; 2],
}

impl From<RestPair> for [ModelRest; 2] {
    fn from(pair: RestPair) -> [ModelRest; 2] {
        pair.direction.map(|rest| ModelRest {
            wire: rest.wire,
            capable: rest.capable,
            due: Instant::from_nanos(rest.due),
            above: Instant::from_nanos(rest.above),
            next: Instant::from_nanos(rest.next),
            count: rest.count,
            first: rest.first,
            inverse: rest.inverse,
            signals: rest.signals != 0,
        })
    }
}

/// `struct totals`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct Totals {
    wire: u64,
    packets: u64,
    voice: u64,
    marked: u64,
    dropped: u64,
}

impl Totals {
    /// The sum over all CPUs.
    pub fn sum<'a>(each: impl IntoIterator<Item = &'a Totals>) -> ModelTotals {
        each.into_iter().fold(ModelTotals::default(), |sum, one| ModelTotals {
            wire: sum.wire + one.wire,
            packets: sum.packets + one.packets,
            voice: sum.voice + one.voice,
            marked: sum.marked + one.marked,
            dropped: sum.dropped + one.dropped,
        })
    }
}

/// `struct setting`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Setting {
    key: Key,
    value: u32,
    direction: u8,
    pad: [u8; 3],
}

impl Setting {
    /// A flow's window, bytes.
    pub fn new(flow: FlowId, value: u32) -> Setting {
        let direction = flow.direction.index() as u8;
        Setting { key: flow.key.into(), value, direction, pad: [0; 3] }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        bytemuck::bytes_of(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirrors::{same, structures};
    use std::mem::offset_of;

    #[test]
    fn structures_are_laid_out_as_in_c() {
        let window = structures(include_bytes!(concat!(env!("OUT_DIR"), "/window.bpf.o")));
        same!(
            window,
            "control",
            Control {
                heartbeat,
                initial,
                spare,
                growth,
                wait,
                link,
                beats,
                cost,
                push,
                drops,
                voice,
                pad,
                pace,
                back,
                dev,
                gap,
                clock,
                seed,
            }
        );
        same!(window, "key", Key { outside, inside, outside_port, inside_port });
        same!(window, "rtt", Rtt { min, old_min, since, sum, count, latest });
        same!(
            window,
            "side",
            Side {
                wire,
                bytes,
                ack,
                window,
                edge,
                watch,
                since,
                seen,
                last,
                clamped,
                asked,
                written,
                mss,
                timed,
                shift,
                scale,
                timestamps,
                governed,
            }
        );
        same!(window, "bucket", Bucket { place });
        same!(window, "flow", Cold { key, first, goal, rtt });
        same!(window, "pace", Pace { due, copies });
        same!(window, "rest_key", RestKey { key, protocol, pad });
        same!(
            window,
            "rest",
            Rest { wire, due, above, next, capable, count, first, inverse, signals, pad }
        );
        same!(window, "rest_pair", RestPair { direction });
        same!(window, "totals", Totals { wire, packets, voice, marked, dropped });
        // Not in the object; settings.h asserts the same.
        assert_eq!(size_of::<Setting>(), 44);
        assert_eq!([offset_of!(Setting, value), offset_of!(Setting, direction)], [36, 40]);
    }

    #[test]
    fn a_short_clock_is_read_as_close_to_a_long_one() {
        let about = Instant::from_nanos(5 << 54 | 7 << 22);
        let tick = |number: u64| Instant::from_nanos(number << 22);
        let now = about.as_nanos() >> 22;
        for (ticks, expected) in [
            (0, Instant::ZERO),
            (now as u32, tick(now)),
            (now as u32 + 3, tick(now + 3)),
            (now as u32 - 3, tick(now - 3)),
            // Before the clock went round.
            ((now as u32).wrapping_sub(1000), tick(now - 1000)),
        ] {
            assert_eq!(Side::instant(ticks, LAST_TICK, about), expected, "{ticks}");
        }
        // A program that runs already before the first sign of life.
        assert_eq!(Side::instant(9, LAST_TICK, Instant::ZERO), tick(9));
    }
}
