//! The structures that the window program and user space share, byte for byte as in
//! `src/c/window.bpf.c`, and how they become the model's.

use sheaf_stage::Instant;
use sheaf_window::flow::Rtt as ModelRtt;
use sheaf_window::{Connection as ModelConnection, Half as ModelHalf, Key as ModelKey};
use sheaf_window::{FlowId, Quic as ModelQuic, Totals as ModelTotals};

/// Settings that one run of `sheaf_set` takes.
pub const SETTINGS: usize = 64;
/// Buckets of the table of flows.
pub const BUCKETS: usize = 2048;
/// Flows of a bucket.
pub const WAYS: usize = 8;

/// `struct control`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Control {
    /// Last sign of life; ns of CLOCK_MONOTONIC, 0 for none.
    pub heartbeat: u64,
    /// Window of new flows in bytes, by direction of the data; 0 for hands off.
    pub initial: [u32; 2],
    /// Bytes of link header.
    pub link: u32,
    /// Padding.
    pub pad: u32,
    /// Of the table's hash.
    pub seed: u64,
}

/// `struct key`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Rtt {
    min: u64,
    old_min: u64,
    since: u64,
    sum: u64,
    count: u32,
    pad: u32,
}

/// `struct side`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Side {
    wire: u64,
    bytes: u64,
    last: u64,
    acked: u64,
    ack: u32,
    window: u32,
    edge: u32,
    asked: u32,
    written: u32,
    clamped: u32,
    seen: u32,
    mss: u16,
    scale: u8,
    timestamps: u8,
}

/// `struct bucket`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Bucket {
    /// Parts of hashes; 0 where a place is free, 1 where it is being filled.
    pub tag: [u32; WAYS],
    used: [u32; WAYS],
}

/// `struct flow`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Flow {
    /// Whose it is.
    pub key: Key,
    watch: [u32; 2],
    pad: u32,
    watch_since: [u64; 2],
    side: [Side; 2],
    rtt: [Rtt; 2],
    room: [u8; 48],
}

impl Flow {
    /// The data of one direction is counted by its own packets, its windows by the others'.
    fn half(&self, direction: usize) -> ModelHalf {
        let (own, other) = (&self.side[direction], &self.side[1 - direction]);
        let rtt = &self.rtt[direction];
        ModelHalf {
            bytes: own.bytes,
            wire: own.wire,
            acked: other.acked,
            last: Instant::from_nanos(own.last),
            rtt: ModelRtt {
                min: rtt.min,
                old_min: rtt.old_min,
                since: Instant::from_nanos(rtt.since),
                sum: rtt.sum,
                count: rtt.count,
            },
            watch_since: Instant::from_nanos(self.watch_since[direction]),
            watch: self.watch[direction],
            seen: own.seen,
            window: other.window,
            edge: other.edge,
            ack: other.ack,
            asked: other.asked,
            written: other.written,
            clamped: other.clamped,
            mss: other.mss,
            scale: other.scale,
        }
    }
}

impl From<Flow> for ModelConnection {
    fn from(flow: Flow) -> ModelConnection {
        ModelConnection {
            half: [flow.half(0), flow.half(1)],
            timestamps: flow.side[0].timestamps != 0,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Quic {
    wire: u64,
    capable: u32,
    marked: u32,
    every: u32,
    since: u32,
}

/// `struct quic_pair`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct QuicPair {
    direction: [Quic; 2],
}

impl From<QuicPair> for [ModelQuic; 2] {
    fn from(pair: QuicPair) -> [ModelQuic; 2] {
        pair.direction.map(|quic| ModelQuic {
            wire: quic.wire,
            capable: quic.capable,
            marked: quic.marked,
            every: quic.every,
            since: quic.since,
        })
    }
}

/// `struct totals`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Totals {
    wire: u64,
    packets: u64,
}

impl Totals {
    /// The sum over all CPUs.
    pub fn sum<'a>(each: impl IntoIterator<Item = &'a Totals>) -> ModelTotals {
        each.into_iter().fold(ModelTotals::default(), |sum, one| ModelTotals {
            wire: sum.wire + one.wire,
            packets: sum.packets + one.packets,
        })
    }
}

/// `struct setting`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Setting {
    key: Key,
    value: u32,
    direction: u8,
    quic: u8,
    pad: [u8; 2],
}

impl Setting {
    /// A flow's window in bytes, or (`quic`) how many packets share a mark.
    pub fn new(flow: FlowId, value: u32, quic: bool) -> Setting {
        let direction = flow.direction.index() as u8;
        Setting { key: flow.key.into(), value, direction, quic: quic.into(), pad: [0; 2] }
    }

    /// Its bytes.
    pub fn bytes(&self) -> [u8; 44] {
        // SAFETY: plain integers without padding, of exactly this size.
        unsafe { std::mem::transmute(*self) }
    }
}

const _: () = {
    assert!(size_of::<Control>() == 32);
    assert!(size_of::<Key>() == 36);
    assert!(size_of::<Rtt>() == 40);
    assert!(size_of::<Side>() == 64);
    assert!(size_of::<Bucket>() == 64);
    assert!(size_of::<Flow>() == 320);
    assert!(size_of::<QuicPair>() == 48);
    assert!(size_of::<Totals>() == 16);
    assert!(size_of::<Setting>() == 44);
};
