//! The structures that the programs and user space share, byte for byte as in `src/c`. A test
//! (mirrors.rs) compares them with the types that clang wrote into the objects.

use bytemuck::{Pod, Zeroable};
use sheaf_aggregate::{Config, Format, Policy, Rule, Threshold};
use sheaf_stage::Instant;
use sheaf_wire::ethernet;
use sheaf_wire::meta::Outer;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Queues that the program has.
pub const SLOTS: u32 = 64;
/// Rules that the program has room for.
pub const RULES: usize = 16;
/// EtherType of tick frames: that of frames without a header of IP, so that a tick has it when
/// it becomes one; the cookie tells both apart.
pub const TICK_ETHERTYPE: u16 = ethernet::FRAMES;

/// Not a percentage: `min` is a number of bytes, which [`Hop`] has.
const WHOLE_BYTES: u32 = 255;

/// Ids of next hops from here on are those of groups, which count together under this one.
pub const GROUPS: u32 = 1 << 31;

/// `struct rule`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct RuleEntry {
    mark: u32,
    mask: u32,
    sport_min: u16,
    sport_max: u16,
    dport_min: u16,
    dport_max: u16,
    max_len: u16,
    protocol: u8,
    dscp: u8,
}

impl From<&Rule> for RuleEntry {
    fn from(rule: &Rule) -> Self {
        let (source, destination) = (&rule.source_ports, &rule.destination_ports);
        RuleEntry {
            mark: rule.mark.0,
            mask: rule.mark.1,
            sport_min: *source.start(),
            sport_max: *source.end(),
            dport_min: *destination.start(),
            dport_max: *destination.end(),
            max_len: rule.max_len,
            protocol: rule.protocol.map_or(0, |protocol| protocol.0),
            dscp: rule.dscp.unwrap_or(255),
        }
    }
}

/// `struct merge_config`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct MergeConfig {
    cookie: u64,
    wait: u64,
    policy: u32,
    inflight: u32,
    queue_frames: u32,
    total_frames: u32,
    rules: u32,
    acks: u32,
    by_mark: u32,
    share: u32,
    rule: [RuleEntry; RULES],
}

impl MergeConfig {
    /// The program's form of `config`; rules beyond [`RULES`] are left out. `cookie` tells our tick
    /// frames from others.
    pub fn new(config: &Config, cookie: u64) -> MergeConfig {
        let mut rule = [RuleEntry::default(); RULES];
        for (entry, rule) in rule.iter_mut().zip(&config.rules.rules) {
            *entry = rule.into();
        }
        MergeConfig {
            cookie,
            wait: config.longest_wait().as_nanos() as u64,
            policy: match config.policy {
                Policy::Forced => 0,
                Policy::Busy => 1,
            },
            inflight: config.inflight,
            // The program's ring has 16 places, one of which stays free.
            queue_frames: config.queue_frames.min(15) as u32,
            total_frames: config.total_frames as u32,
            rules: config.rules.rules.len().min(RULES) as u32,
            acks: u32::from(config.rules.acks),
            by_mark: u32::from(config.by_mark),
            share: match config.min {
                Threshold::Percent(percent) => percent.into(),
                Threshold::Bytes(_) => WHOLE_BYTES,
            },
            rule,
        }
    }
}

/// `struct device`: the page in which the device's side and the program tell each other how many
/// frames went out and how many are done.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct Device {
    /// Frames that the device has finished with.
    pub done: u64,
    /// Frames handed to it since it began to tell.
    pub sent: u64,
    /// Since when it works, if it was idle before; ns of CLOCK_MONOTONIC.
    pub handed: u64,
    /// Until when only full frames leave; ns of CLOCK_MONOTONIC.
    pub rest_until: u64,
    /// When user space will read its events anyway; ns of CLOCK_MONOTONIC.
    pub look_at: u64,
    /// Since when a question to user space is open; ns of CLOCK_MONOTONIC, 0 for none.
    pub asked_at: u64,
    /// Slots of queues that hold something, as bits.
    pub holding: u64,
    /// The last frame: its packets, and below them 32 bits of its bytes of IP.
    pub last: u64,
    /// Frames that it can have.
    pub limit: u32,
    /// Whether it tells at all.
    pub told: u32,
    /// Frames that wait in all queues.
    pub held: u32,
    /// Frames that were not ours.
    pub passed: u32,
    /// Whether what strangers send stays ahead of what comes later.
    pub fifo: u32,
    /// Bytes of frames that were not ours.
    pub passed_bytes: u32,
    /// Time by which contexts and tags are kept, in ns; 0 for that of CLOCK_MONOTONIC.
    pub clock: u64,
    /// Until when packets pass unseen, as the device is done at once; ns of CLOCK_MONOTONIC.
    pub unseen_until: u64,
    /// Gathered frames that its queue refused, of those that leave as copies.
    pub refused: u64,
    /// Until when what left in place, at whichever gate, keeps the device busy, at least; ns of
    /// CLOCK_MONOTONIC.
    pub busy_until: u64,
    /// Slots of queues whose first frame is full, as bits.
    pub filled: u64,
}

impl Device {
    /// Whether the first frame of the queue in `slot` can take no further packet like its last.
    pub fn has_full_frame(&self, slot: usize) -> bool {
        self.filled >> slot & 1 != 0
    }
}

/// `struct coarse`: the time that a processor read last.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
struct Coarse {
    tick: u64,
    ns: u64,
}

/// `struct entry`: what a processor counts in the program, alone in its cache line.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct Entry {
    /// Runs.
    pub count: u64,
    /// Frames that passed unseen, or were too small to be ahead of anything.
    pub unseen: u64,
    clock: Coarse,
    asked: u64,
    asked_count: u64,
    pad: [u64; 2],
}

/// Words of a set of flows in [`Gate`].
const SEEN: usize = 8;

/// `struct gate`: frames under way that are counted together.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct Gate {
    /// When a packet last left in place; ns of CLOCK_MONOTONIC.
    pub last: u64,
    /// What a frame takes the device; ns.
    pub service: u64,
    /// What user space takes to look at a question; ns.
    pub reaction: u64,
    /// From then on a packet that follows another is a probe; ns of CLOCK_MONOTONIC.
    pub probe_at: u64,
    /// Whether frames are under way.
    pub closed: u32,
    /// Whether many strangers' frames are in fair queues, too.
    pub hurried: u32,
    /// Full frames that may leave without a tick.
    pub credit: u32,
    /// Strangers' frames that left before the last tick that is done.
    pub strangers: u32,
    /// Frames that left with the gate's hash and without a tick.
    pub untracked: u32,
    /// Ticks of this slot that left.
    pub ticks: u32,
    /// Ticks of this slot whose transmission is over.
    pub ticks_done: u32,
    /// The last tick of this slot that the device has finished with.
    pub left: u32,
    /// [`Gate::untracked`] when that was sent.
    pub gone: u32,
    /// Flow hash of what is gathered.
    pub hash: u32,
    turned: u32,
    /// Packets between two probes, at least.
    pub between: u32,
    in_place: u32,
    /// Packets closer than this need none between two probes; in ns.
    pub dense: u32,
    own_at: u32,
    /// Whether a full frame is all that may leave.
    pub rests: u32,
    seen: [u64; SEEN],
    before: [u64; SEEN],
}

/// `struct hop`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Hop {
    id: u32,
    min: u32,
    max: u16,
    family: u8,
    ttl: u8,
    src: [u8; 16],
    dst: [u8; 16],
    format: u8,
    mesh: u8,
    pad: [u8; 2],
}

impl Device {
    /// Packets and bytes of IP of the last frame.
    pub fn last_frame(&self) -> (u32, u32) {
        ((self.last >> 32) as u32, self.last as u32)
    }
}

impl Hop {
    /// Next hop `id`, reached under `outer`, with its least and largest bytes; `max` 0 when it
    /// cannot split.
    pub fn new(id: u32, outer: Outer, min: u32, max: u16) -> Hop {
        let (mut src, mut dst) = ([0; 16], [0; 16]);
        let family = match outer {
            Outer::V4 { src: from, dst: to } => {
                src[..4].copy_from_slice(&from.octets());
                dst[..4].copy_from_slice(&to.octets());
                4
            }
            Outer::V6 { src: from, dst: to } => {
                src = from.octets();
                dst = to.octets();
                6
            }
            // Its link address is that of the packets.
            Outer::Link { .. } => 0,
        };
        let (ttl, format, mesh, pad) = (NEIGHBOUR_TTL, 0, 0, [0; 2]);
        Hop { id, min, max, family, ttl, src, dst, format, mesh, pad }
    }

    /// The next hop of all groups of the family of `source`, our address: frames of format 2 to the
    /// group of their packets. `max` 0: packets to groups pass.
    pub(crate) fn groups(source: IpAddr, min: u32, max: u16) -> Hop {
        let outer = match source {
            IpAddr::V4(src) => Outer::V4 { src, dst: Ipv4Addr::UNSPECIFIED },
            IpAddr::V6(src) => Outer::V6 { src, dst: Ipv6Addr::UNSPECIFIED },
        };
        Hop::new(GROUPS, outer, min, max).with_format(Format::Frames)
    }

    /// The same for a far end, which is reached over routers.
    pub fn far(self) -> Hop {
        Hop { ttl: FAR_TTL, ..self }
    }

    /// The same with frames of this format; [`Hop::new`] has [`Format::Meta`].
    pub fn with_format(self, format: Format) -> Hop {
        let format = match format {
            Format::Meta => 0,
            Format::Frames => 1,
            Format::Compressed => 2,
        };
        Hop { format, ..self }
    }

    /// The same, whose frames of format 2 may have Ethernet payloads or not; [`Hop::new`] says that
    /// they may not.
    pub fn with_payloads(self, payloads: bool) -> Hop {
        Hop { mesh: payloads.into(), ..self }
    }

    /// Whether it gets frames of format 2.
    pub(crate) fn has_frames(&self) -> bool {
        self.format != 0
    }
}

/// Hop limit towards a neighbour: no router can have let it through (RFC 5082).
const NEIGHBOUR_TTL: u8 = 255;
/// Hop limit towards a far end (RFC 1700's recommendation, Linux's default).
const FAR_TTL: u8 = 64;

/// `struct mac`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Mac {
    bytes: [u8; 6],
    pad: [u8; 2],
}

impl From<[u8; 6]> for Mac {
    fn from(bytes: [u8; 6]) -> Self {
        Mac { bytes, pad: [0; 2] }
    }
}

/// `struct queue_key`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct QueueKey {
    /// Destination of the frames.
    pub mac: [u8; 6],
    /// Class.
    pub dscp: u8,
    /// Outer ECN field.
    pub ecn: u8,
    /// [`Hop`]'s id.
    pub hop: u32,
    pad: u32,
}

/// `struct stats`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct Stats {
    aggregated_packets: u64,
    aggregated_bytes: u64,
    meta_packets: u64,
    meta_bytes: u64,
    unaggregated_packets: u64,
    unaggregated_bytes: u64,
    by_timeout: u64,
    by_size: u64,
    by_ready: u64,
    over_bound: u64,
}

impl From<Stats> for sheaf_aggregate::Stats {
    fn from(stats: Stats) -> Self {
        sheaf_aggregate::Stats {
            aggregated_packets: stats.aggregated_packets,
            aggregated_bytes: stats.aggregated_bytes,
            meta_packets: stats.meta_packets,
            meta_bytes: stats.meta_bytes,
            unaggregated_packets: stats.unaggregated_packets,
            unaggregated_bytes: stats.unaggregated_bytes,
            by_timeout: stats.by_timeout,
            by_size: stats.by_size,
            by_ready: stats.by_ready,
            over_bound: stats.over_bound,
        }
    }
}

/// `struct pending`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Pending {
    oldest: u64,
    hash: u64,
    mark: u32,
    priority: u32,
    len: u32,
    count: u32,
    payload: u32,
    offset: u16,
    tag: u8,
    plain: u8,
    writers: u32,
    taken: u32,
}

/// `struct queue`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Queue {
    lock: u32,
    /// First waiting frame, free-running.
    pub head: u32,
    /// Behind the last.
    pub tail: u32,
    /// Inner bytes that wait.
    pub bytes: u32,
    /// Packets that wait.
    pub packets: u32,
    /// CPU whose tick carries its last frame; of none, where it left otherwise.
    pub owner_cpu: u32,
    owner_gen: u64,
    owner_time: u64,
    flows: u64,
    pairs: u64,
    /// Whose queue it is.
    pub key: QueueKey,
    hop: Hop,
    asked: u32,
    emitting: u32,
    /// A packet of a dense flow waits.
    pub dense: u32,
    tag: u16,
    begun: u16,
    /// What it counted.
    pub stats: Stats,
    pending: [Pending; 16],
}

impl Queue {
    /// One in nobody's use.
    pub fn unused() -> Queue {
        Queue::zeroed()
    }

    /// Whether a next hop and class has it.
    pub fn is_used(&self) -> bool {
        self.key.mac != [0; 6]
    }

    /// Whether nothing waits in it.
    pub fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// Bytes with which it leaves early.
    pub fn min(&self) -> u32 {
        self.hop.min
    }

    /// When the oldest waiting packet came.
    pub fn oldest(&self) -> Instant {
        Instant::from_nanos(self.pending[self.head as usize % self.pending.len()].oldest)
    }
}

/// An address as the programs keep it: IPv6, or IPv4 mapped into it.
pub fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// A wrapper that lets plain structures through aya's bound.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Plain<T>(pub T);

// SAFETY: what bytemuck derives `Pod` for is plain: `repr(C)`, integers only, no padding.
unsafe impl<T: Pod> aya::Pod for Plain<T> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirrors::{same, structures};

    #[test]
    fn structures_are_laid_out_as_in_c() {
        let merge = structures(include_bytes!(concat!(env!("OUT_DIR"), "/merge.bpf.o")));
        same!(
            merge,
            "rule",
            RuleEntry {
                mark,
                mask,
                sport_min,
                sport_max,
                dport_min,
                dport_max,
                max_len,
                protocol,
                dscp,
            }
        );
        same!(
            merge,
            "merge_config",
            MergeConfig {
                cookie,
                wait,
                policy,
                inflight,
                queue_frames,
                total_frames,
                rules,
                acks,
                by_mark,
                share,
                rule,
            }
        );
        same!(
            merge,
            "device",
            Device {
                done,
                sent,
                handed,
                rest_until,
                look_at,
                asked_at,
                holding,
                last,
                limit,
                told,
                held,
                passed,
                fifo,
                passed_bytes,
                clock,
                unseen_until,
                refused,
                busy_until,
                filled,
            }
        );
        same!(merge, "entry", Entry { count, unseen, clock, asked, asked_count, pad });
        same!(
            merge,
            "gate",
            Gate {
                last,
                service,
                reaction,
                probe_at,
                closed,
                hurried,
                credit,
                strangers,
                untracked,
                ticks,
                ticks_done,
                left,
                gone,
                hash,
                turned,
                between,
                in_place,
                dense,
                own_at,
                rests,
                seen,
                before,
            }
        );
        same!(merge, "hop", Hop { id, min, max, family, ttl, src, dst, format, mesh, pad });
        same!(merge, "mac", Mac { bytes, pad });
        same!(merge, "queue_key", QueueKey { mac, dscp, ecn, hop, pad });
        same!(
            merge,
            "stats",
            Stats {
                aggregated_packets,
                aggregated_bytes,
                meta_packets,
                meta_bytes,
                unaggregated_packets,
                unaggregated_bytes,
                by_timeout,
                by_size,
                by_ready,
                over_bound,
            }
        );
        same!(
            merge,
            "pending",
            Pending {
                oldest,
                hash,
                mark,
                priority,
                len,
                count,
                payload,
                offset,
                tag,
                plain,
                writers,
                taken,
            }
        );
        same!(
            merge,
            "queue",
            Queue {
                lock,
                head,
                tail,
                bytes,
                packets,
                owner_cpu,
                owner_gen,
                owner_time,
                flows,
                pairs,
                key,
                hop,
                asked,
                emitting,
                dense,
                tag,
                begun,
                stats,
                pending,
            }
        );
    }
}
