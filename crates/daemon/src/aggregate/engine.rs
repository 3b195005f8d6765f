//! What an engine does for the daemon.

use super::device::Order;
use super::settings::Peers;
use sheaf_aggregate::{Config, Format, Stats};
use sheaf_netio::neigh::Neighbour;
use sheaf_netio::poller::Poller;
use sheaf_stage::Instant;
use sheaf_wire::hello::Formats;
use sheaf_wire::meta::Outer;
use sheaf_wire::prefix::Prefix;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Shape of the frames to a next hop or far end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Addresses in the outer header; those of the stations, where it has none.
    pub outer: Outer,
    /// Largest frame, in bytes of IP; 0 where packets pass as they are.
    pub max: u16,
    /// Wire format.
    pub format: Format,
    /// Whether frames of format 2 may have Ethernet payloads.
    pub payloads: bool,
}

/// Carries packets: gathers towards the next hops it was told, splits what they send.
pub trait Engine {
    /// Its name, with how it works.
    fn name(&self) -> String;

    /// Wire formats that it takes apart.
    fn takes(&self) -> Formats;

    /// The richest wire format that it sends.
    fn sends(&self) -> Format;

    /// Packets to `neighbour` share frames of this shape from now on, as next hop number `hop`.
    /// Numbers come in order, beginning with 0. A number that comes again is another address of the
    /// same host; a neighbour that comes again has another shape.
    fn join(&mut self, hop: u32, neighbour: Neighbour, shape: Shape) -> anyhow::Result<()>;

    /// Packets to `neighbour` pass as they are from now on.
    fn leave(&mut self, neighbour: Neighbour) -> anyhow::Result<()>;

    /// Packets to `prefix` share frames of this shape to the far end number `hop`; as
    /// [`Engine::join`].
    fn far_end(&mut self, hop: u32, prefix: Prefix, shape: Shape) -> anyhow::Result<()>;

    /// Time of the last frame that the splitter took from `from`, the address of a host that has
    /// joined or of its station; early by a tick of the kernel at most.
    fn heard(&self, from: IpAddr) -> Option<Instant>;

    /// Whether packets to groups can share its frames.
    fn gathers_for_groups(&self) -> bool {
        false
    }

    /// Packets of UDP to groups of the family of `source`, our address, share frames of up to `max`
    /// bytes of IP from now on, which all who hear them have to take apart; or, with 0, pass as
    /// they are. Until the next [`Engine::forget`].
    fn set_groups(&mut self, _source: IpAddr, _max: u16) -> anyhow::Result<()> {
        Ok(())
    }

    /// Takes frames of format 2 without a header of IP, too, from `now` on; or no longer, once the
    /// neighbours have heard it.
    fn take_links(&mut self, _takes: bool, _now: Instant) -> anyhow::Result<()> {
        Ok(())
    }

    /// How the device orders frames; called again when that may have changed.
    fn order(&mut self, order: Order) -> anyhow::Result<()>;

    /// Does what is due at `now`, after `poller` has waited; returns when to call again at the
    /// latest.
    fn run(&mut self, now: Instant, poller: &mut Poller) -> anyhow::Result<Option<Instant>>;

    /// Adds what is to be waited for, besides time.
    fn wait_for(&mut self, poller: &mut Poller);

    /// Frames that wait.
    fn held(&self) -> u32;

    /// Frames that were not to be gathered, or passed unseen as the device was done at once.
    fn passed(&self) -> anyhow::Result<u64>;

    /// Counters by hop number.
    fn stats(&self) -> anyhow::Result<Vec<(u32, Stats)>>;

    /// Frames that nobody takes but a host that splits, by what [`Engine::stats`] counted for it. A
    /// packet that leaves alone leaves as it is.
    fn to_split(&self, stats: &Stats) -> u64 {
        stats.meta_packets
    }

    /// What the splitter counted, by name.
    fn split(&self) -> anyhow::Result<Option<BTreeMap<String, u64>>>;

    /// What somebody did to an interface of the engine's own, so that no packet passes it any more;
    /// `None` for nothing.
    fn fault(&self) -> anyhow::Result<Option<String>> {
        Ok(None)
    }

    /// Goes by `config` from now on. Packets that wait keep their frames.
    fn change(&mut self, config: &Config) -> anyhow::Result<()>;

    /// Splits what `peers` send from now on.
    fn accept(&mut self, peers: &Peers) -> anyhow::Result<()>;

    /// All packets pass as they are from now on, until hops join again. Numbers that were given are
    /// not used again.
    fn forget(&mut self) -> anyhow::Result<()>;

    /// Lets everything leave that is held.
    fn flush(&mut self) -> anyhow::Result<()>;

    /// Ends, and leaves the splitter that the next engine can have, if there is one.
    fn into_splitter(self: Box<Self>) -> Option<sheaf_bpf::Split> {
        None
    }
}
