//! Settings of `sheaf aggregate` and `sheaf split`.

use anyhow::ensure;
use sheaf_aggregate::{Config, Format, Senders, Threshold};
use sheaf_wire::prefix::Prefix;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;

/// Implementation that carries the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// The kernel's where it can be, else the one in user space.
    Auto,
    /// eBPF programs.
    Kernel,
    /// A TAP interface and this process.
    User,
}

/// Hosts that share meta packets with this one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peers {
    /// Neighbours that say in a HELLO that they split.
    pub auto: bool,
    /// Every neighbour.
    pub any: bool,
    /// These neighbours.
    pub addresses: Vec<IpAddr>,
    /// These hosts behind routers.
    pub far_ends: Vec<IpAddr>,
}

impl Peers {
    /// Adds a neighbour; an error where it is one already.
    pub fn add(&mut self, address: IpAddr) -> anyhow::Result<()> {
        ensure!(!self.addresses.contains(&address), "peer {address} is given twice; give it once");
        self.addresses.push(address);
        Ok(())
    }

    /// Adds every neighbour; an error where that is so already.
    pub fn add_any(&mut self) -> anyhow::Result<()> {
        ensure!(!self.any, "peer any is given twice; give it once");
        self.any = true;
        Ok(())
    }

    /// Adds the neighbours that say HELLO; an error where that is so already.
    pub fn add_auto(&mut self) -> anyhow::Result<()> {
        ensure!(!self.auto, "peer auto is given twice; give it once");
        self.auto = true;
        Ok(())
    }

    /// Whether nobody is named.
    pub fn is_empty(&self) -> bool {
        !self.auto && !self.any && self.addresses.is_empty() && self.far_ends.is_empty()
    }

    /// The same with what HELLOs add: where they say who may send (`peer auto`), everybody on the
    /// link, or with a key the `accepted` alone. Without a key a HELLO proves nothing that the hop
    /// limit of a frame does not prove as well.
    pub fn with_hellos(&self, has_key: bool, accepted: &BTreeSet<IpAddr>) -> Peers {
        let mut peers = self.clone();
        peers.any |= peers.auto && !has_key;
        peers.addresses.extend(accepted);
        peers
    }

    /// Senders whose meta packets are taken apart.
    pub fn senders(&self) -> Senders {
        Senders {
            any: self.any,
            neighbours: self.addresses.iter().copied().collect(),
            far_ends: self.far_ends.iter().copied().collect(),
        }
    }

    /// Whether `address` is a neighbour among those that are named or any.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.any || self.addresses.contains(&address)
    }
}

impl std::fmt::Display for Peers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut names: Vec<_> = self.addresses.iter().map(IpAddr::to_string).collect();
        if self.any {
            names.insert(0, "any".to_owned());
        }
        if self.auto {
            names.insert(0, "auto".to_owned());
        }
        f.write_str(&names.join(" "))
    }
}

/// Where meta packets are split that travel over several hops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FarEnd {
    /// Address of the splitter.
    pub address: IpAddr,
    /// Destinations that are reached through it, itself included.
    pub prefixes: Vec<Prefix>,
}

/// Settings of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Name of the interface.
    pub dev: String,
    /// Neighbours that split.
    pub peers: Peers,
    /// Splitters behind routers.
    pub far_ends: Vec<FarEnd>,
    /// The engine.
    pub engine: Engine,
    /// Whether peers and far ends are asked if they split.
    pub probe: bool,
    /// Whether frames of format 2 leave and are taken without a header of IP, between neighbours
    /// that both say so.
    pub links: bool,
    /// Whether packets to groups share frames, while all neighbours take them.
    pub groups: bool,
    /// The file with the key of HELLOs.
    pub key: Option<PathBuf>,
    /// `min`, where given.
    pub min: Option<Threshold>,
    /// `max`, where given in bytes.
    pub max: Option<u16>,
    /// `max auto`: frames to each neighbour follow its link.
    pub follow: bool,
    /// The richest wire format that is sent, to neighbours that take it apart.
    pub format: Format,
    /// Everything else.
    pub config: Config,
}

impl Settings {
    /// The same where the MTU became `mtu` later: what was given is made to fit, too. A device that
    /// is `shaped` has no backoff: its discipline sets the rate, and no other station contends.
    pub fn fitted(&self, mtu: u32, shaped: bool) -> anyhow::Result<Config> {
        let limit = u16::try_from(mtu).unwrap_or(u16::MAX);
        let max = self.max.map(|max| max.min(limit));
        let largest = max.unwrap_or(limit);
        let min = self.min.map(|min| match min {
            Threshold::Bytes(bytes) => Threshold::Bytes(bytes.min(largest.into())),
            percent => percent,
        });
        let mut config = Settings { max, min, ..self.clone() }.config(mtu)?;
        if shaped {
            config.backoff = 0;
        }
        Ok(config)
    }

    /// The parameters on an interface that carries packets of `mtu` bytes. What was not given is
    /// made to fit.
    pub fn config(&self, mtu: u32) -> anyhow::Result<Config> {
        let mut config = self.config.clone();
        config.max =
            self.max.unwrap_or_else(|| config.max.min(u16::try_from(mtu).unwrap_or(u16::MAX)));
        config.min = self.min.unwrap_or(Threshold::Bytes(500.min(u32::from(config.max))));
        config.check()?;
        ensure!(
            u32::from(config.max) <= mtu,
            "max {} is above the MTU of {}, {mtu}; give a max of at most {mtu}",
            config.max,
            self.dev
        );
        Ok(config)
    }
}

/// Command line of `sheaf split`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// Name of the interface.
    pub dev: String,
    /// Whose meta packets are taken apart; `None` to take the splitter off.
    pub peers: Option<Peers>,
    /// The file with the key of HELLOs.
    pub key: Option<PathBuf>,
    /// Whether frames of format 2 are taken without a header of IP, too, and HELLOs say so.
    pub links: bool,
}
