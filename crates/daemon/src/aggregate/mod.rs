//! Aggregation and splitting on one interface.
//!
//! * [`settings`]: what is to be done;
//! * `daemon`: who shares frames with whom, time, and the life of the interface;
//! * `engine`: what carries the packets: `kernel` (eBPF) or `user` (a TAP interface);
//! * `contexts`: what a splitter in the kernel and a sender say to each other of format 2;
//! * `device`: whether the interface keeps the order of frames or has fair queues;
//! * `hello`: who says that it splits, and what this router says; `place`: the interface;
//! * `group`: whether packets to groups may share frames;
//! * `radio`: what the driver measures of the neighbours, and the sizes that follow;
//! * `splitter`: `sheaf split` at work, where it says HELLO;
//! * `hops`: next hops and far ends; `life`: whether each splits, `offer`: whether it takes
//!   format 2, and that without a header of IP; `probe`: how they are asked; `station`: what leaves
//!   without that header.

mod contexts;
mod daemon;
mod device;
mod engine;
mod group;
mod hello;
mod hops;
mod kernel;
mod life;
mod offer;
mod place;
mod probe;
mod radio;
pub mod settings;
mod splitter;
mod station;
mod user;

pub use daemon::run;
pub use settings::{Settings, Split};
pub use splitter::run as run_splitter;

use crate::descriptors;
use place::Place;
use settings::Peers;
use sheaf_aggregate::Senders;
use sheaf_netio::capability::{self, Capability};
use sheaf_netio::{ip, random};
use sheaf_stage::Duration;
use sheaf_wire::hello::Formats;
use std::collections::BTreeMap;

/// Capabilities for beginning anew on an interface that comes back, with either engine.
/// CAP_SYS_ADMIN, where the process has it, finds the splitter that is there, with the senders that
/// other commands gave it.
const KEPT: [Capability; 5] = [
    Capability::CAP_NET_ADMIN,
    Capability::CAP_NET_RAW,
    Capability::CAP_BPF,
    Capability::CAP_PERFMON,
    Capability::CAP_SYS_ADMIN,
];
/// Period in which the neighbour table, the interface and the counters are read.
const LOOK: Duration = Duration::from_millis(500);
/// Frames without a header of IP are taken for so long after they are not wanted any more:
/// neighbours have to hear it, of one HELLO in several, and frames are under way.
const UNHEARD: Duration = Duration::from_secs(5);

/// Puts a splitter on an interface, or takes it off; [`run_splitter`] says HELLO beside.
pub fn split(settings: &Split) -> anyhow::Result<()> {
    descriptors::require()?;
    let Split { dev, peers, .. } = settings;
    let ifindex = ip::index(dev)?;
    match peers {
        None => {
            capability::require(&[Capability::CAP_NET_ADMIN])?;
            let was_there = sheaf_bpf::Split::detach(dev, ifindex)?;
            anyhow::ensure!(was_there, "no splitter on {dev}; nothing to take off");
        }
        Some(peers) => {
            Place::find(dev)?.link_address()?;
            sheaf_bpf::support()?;
            // Format 2 needs a process that answers for the splitter.
            attach_split(dev, ifindex, peers, false, None)?;
        }
    }
    Ok(())
}

/// The meta packets among the counters of a splitter.
fn meta_packets<Name: Ord + std::borrow::Borrow<str>>(counters: &BTreeMap<Name, u64>) -> u64 {
    counters.get("meta-packets").copied().unwrap_or(0)
}

/// Puts a splitter on the interface, or takes over the one that is there; see [`load_split`].
fn attach_split(
    dev: &str,
    ifindex: u32,
    peers: &Peers,
    frames: bool,
    kept: Option<sheaf_bpf::Split>,
) -> anyhow::Result<sheaf_bpf::Split> {
    load_split(peers, frames, kept)?.attach(dev, ifindex)
}

/// A splitter that is loaded, and is on no interface yet.
struct LoadedSplit {
    loaded: sheaf_bpf::Loaded,
    senders: Senders,
    secret: Option<u64>,
}

/// Loads a splitter, unless one is `kept` that was on an interface before; with `frames` it takes
/// format 2, where the kernel can.
fn load_split(
    peers: &Peers,
    frames: bool,
    kept: Option<sheaf_bpf::Split>,
) -> anyhow::Result<LoadedSplit> {
    let senders = peers.senders();
    let mut secret = frames.then(random::unguessable).transpose()?.map(u64::from_ne_bytes);
    if let Some(kept) = kept {
        let secret = secret.filter(|_| kept.takes_frames());
        if let Some(loaded) = kept.reuse(&senders, secret)? {
            return Ok(LoadedSplit { loaded, senders, secret });
        }
    }
    let loaded = match sheaf_bpf::Split::load(&senders, secret) {
        // An older kernel may not take what format 2 needs.
        Err(error @ (sheaf_bpf::Error::Refused { .. } | sheaf_bpf::Error::Load(_))) if frames => {
            tracing::debug!("{error}; without format 2");
            secret = None;
            sheaf_bpf::Split::load(&senders, None)?
        }
        loaded => loaded?,
    };
    Ok(LoadedSplit { loaded, senders, secret })
}

impl LoadedSplit {
    /// Puts it on the interface, or takes over the one that is there.
    fn attach(self, dev: &str, ifindex: u32) -> anyhow::Result<sheaf_bpf::Split> {
        let LoadedSplit { loaded, senders, secret } = self;
        Ok(loaded.attach(dev, ifindex, &senders, secret)?)
    }
}

/// Wire formats that `split` takes apart; with `links` without a header of IP, too.
fn formats(split: &sheaf_bpf::Split, links: bool) -> Formats {
    let frames = Formats::FRAMES.0 | Formats::PAYLOADS.0 | Formats::GROUPS.0;
    let frames = frames | if links { Formats::LINK.0 } else { 0 };
    Formats(Formats::META.0 | if split.takes_frames() { frames } else { 0 })
}
