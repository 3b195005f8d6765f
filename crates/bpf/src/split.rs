//! The program at tc ingress that splits.
//!
//! It is a classifier filter that stays on the interface when its process goes: peers keep sending
//! meta packets, and it needs no controller to take them apart.
//!
//! Principle of replacement: a new program is loaded and knows its senders before it takes the
//! place of the old one, and it takes that place in one step of the kernel. So every packet meets
//! exactly one splitter, and whatever fails leaves the old one at work.

use crate::layout::{Plain, SplitConfig, mapped};
use crate::{Error, attach};
use aya::Ebpf;
use aya::maps::{Array, HashMap, Map, MapData, PerCpuArray};
use aya::programs::tc::{self, NlOptions, SchedClassifierLink, TcAttachOptions, TcAttachType};
use aya::programs::{Link, ProgramError, ProgramInfo, SchedClassifier, loaded_programs};
use nix::ifaddrs::getifaddrs;
use nix::libc;
use sheaf_aggregate::Senders;
use sheaf_netio::classifier::{Attached, Hook, attached};
use sheaf_wire::meta::Refusal;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/split.bpf.deflate"));
const NAME: &str = "sheaf_split";

/// What the program counts, behind the refusals.
const OTHERS: [&str; 6] = [
    "meta-packets",
    "packets",
    "ecn-not-capable",
    "only-neighbours-say",
    "not-ours",
    "reinject-failed",
];

/// Senders, and addresses of the host, that a splitter has room for: `max_entries` of both maps.
pub const ROOM: usize = 1024;

/// Kinds of senders in the map `peers`; bits, as an address may be both.
const NEIGHBOUR: u8 = 1;
const FAR_END: u8 = 2;

/// Families in [`SplitConfig::own_known`].
const OWN_V4: u32 = 1;
const OWN_V6: u32 = 2;

/// Addresses in the kernel, each with a value, and what they are to be.
type Addresses = HashMap<MapData, [u8; 16], u8>;
type Values = BTreeMap<[u8; 16], u8>;

/// The splitter on one interface.
pub struct Split {
    config: Array<MapData, Plain<SplitConfig>>,
    peers: Addresses,
    own: Addresses,
    counts: PerCpuArray<MapData, u64>,
}

/// A splitter that the kernel has taken and that is on no interface yet.
pub struct Loaded {
    ebpf: Ebpf,
    split: Split,
}

impl Split {
    /// Puts a splitter for `senders` on `interface` (number `ifindex`) of this thread's network
    /// namespace. Where the same program is there already, it gets these senders and goes on
    /// counting; another version is replaced.
    pub fn attach(interface: &str, ifindex: u32, senders: &Senders) -> Result<Split, Error> {
        let mut loaded = Split::load(senders)?;
        let tag = loaded.program()?.info()?.tag();
        let old = match at_work(ifindex) {
            // Which program it is cannot be seen; the new one takes its place without loss.
            Err(Error::Hidden) => None,
            old => old?,
        };
        if let Some(info) = old
            && info.tag() == tag
        {
            let mut old = Split::from_program(&info)?;
            // Its map may be too small for old and new senders together; then the new one comes.
            if old.accept(senders).is_ok() {
                return Ok(old);
            }
        }
        loaded.replace(interface, ifindex)
    }

    /// Loads a splitter for `senders`.
    pub fn load(senders: &Senders) -> Result<Loaded, Error> {
        let mut ebpf = attach::open(OBJECT)?;
        let mut map = |name| ebpf.take_map(name).ok_or(Error::Missing(name));
        let mut split = Split {
            config: map("split_config")?.try_into()?,
            peers: map("peers")?.try_into()?,
            own: map("own")?.try_into()?,
            counts: map("counts")?.try_into()?,
        };
        split.accept(senders)?;
        let mut loaded = Loaded { ebpf, split };
        loaded.program()?.load()?;
        Ok(loaded)
    }

    /// Finds the splitter that is on interface `ifindex` of this thread's network namespace.
    pub fn find(ifindex: u32) -> Result<Option<Split>, Error> {
        at_work(ifindex)?.map(|info| Split::from_program(&info)).transpose()
    }

    fn from_program(info: &ProgramInfo) -> Result<Split, Error> {
        let mut maps = BTreeMap::new();
        for id in info.map_ids()?.unwrap_or_default() {
            let data = MapData::from_id(id)?;
            maps.insert(data.info()?.name_as_str().unwrap_or_default().to_owned(), data);
        }
        let mut map = |name| maps.remove(name).ok_or(Error::Missing(name));
        Ok(Split {
            config: Map::Array(map("split_config")?).try_into()?,
            peers: Map::HashMap(map("peers")?).try_into()?,
            own: Map::HashMap(map("own")?).try_into()?,
            counts: Map::PerCpuArray(map("counts")?).try_into()?,
        })
    }

    /// Takes the splitter off `interface` (number `ifindex`). Returns whether there was one.
    pub fn detach(interface: &str, ifindex: u32) -> Result<bool, Error> {
        let filters = attached(ifindex, Hook::Ingress, NAME)?;
        for filter in &filters {
            link(interface, *filter)?.detach()?;
        }
        Ok(!filters.is_empty())
    }

    /// Accepts meta packets from `senders`, and from nobody else. Who sends before and after is
    /// accepted all the while.
    pub fn accept(&mut self, senders: &Senders) -> Result<(), Error> {
        let mut kinds = Values::new();
        for (addresses, kind) in [(&senders.neighbours, NEIGHBOUR), (&senders.far_ends, FAR_END)] {
            for address in addresses {
                *kinds.entry(mapped(*address)).or_default() |= kind;
            }
        }
        if kinds.len() > ROOM {
            let text = format!("{} senders are too many; name at most {ROOM}", kinds.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text).into());
        }
        insert(&mut self.peers, &kinds)?;
        let any = u32::from(senders.any);
        self.configure(|config| config.any = any)?;
        keep_only(&mut self.peers, &kinds)?;
        self.note_addresses()
    }

    /// Notes the addresses that this thread's network namespace has now.
    ///
    /// The splitter compares the outer destination with them where the host does not forward, and
    /// the routing tables therefore do not say whether a packet is for it. A family without an
    /// address is not compared, nor are more addresses than there is [`ROOM`] for.
    pub fn note_addresses(&mut self) -> Result<(), Error> {
        let addresses = own_addresses()?;
        let mut known = 0;
        let mut noted = Values::new();
        if addresses.len() <= ROOM {
            for address in addresses {
                known |= if address.is_ipv6() { OWN_V6 } else { OWN_V4 };
                noted.insert(mapped(address), 1);
            }
            insert(&mut self.own, &noted)?;
        }
        self.configure(|config| config.own_known = known)?;
        keep_only(&mut self.own, &noted)
    }

    fn configure(&mut self, change: impl FnOnce(&mut SplitConfig)) -> Result<(), Error> {
        let Plain(mut config) = self.config.get(&0, 0)?;
        change(&mut config);
        Ok(self.config.set(0, Plain(config), 0)?)
    }

    /// Returns what it counted, by name: refusals by reason, meta packets, packets.
    pub fn counters(&self) -> Result<BTreeMap<&'static str, u64>, Error> {
        let names = Refusal::ALL.iter().map(|refusal| refusal.name()).chain(OTHERS);
        let count = |(index, name): (usize, &'static str)| {
            let values = self.counts.get(&(index as u32), 0)?;
            Ok((name, values.iter().sum()))
        };
        names.enumerate().map(count).collect()
    }
}

impl Loaded {
    /// Puts it on `interface` (number `ifindex`) of this thread's network namespace: in place of
    /// the splitter that is there, in one step, or as the first one.
    pub fn replace(mut self, interface: &str, ifindex: u32) -> Result<Split, Error> {
        let filters = attached(ifindex, Hook::Ingress, NAME)?;
        let program = self.program()?;
        let id = match filters.first() {
            Some(old) => program.attach_to_link(link(interface, *old)?)?,
            None => {
                add_clsact(interface)?;
                let options = TcAttachOptions::Netlink(NlOptions::default());
                program.attach_with_options(interface, TcAttachType::Ingress, options)?
            }
        };
        // Dropping the link would take the filter off.
        std::mem::forget(program.take_link(id)?);
        for behind in filters.iter().skip(1) {
            link(interface, *behind)?.detach()?;
        }
        Ok(self.split)
    }

    fn program(&mut self) -> Result<&mut SchedClassifier, Error> {
        let program = self.ebpf.program_mut(NAME).ok_or(Error::Missing(NAME))?;
        Ok(program.try_into()?)
    }
}

/// The program of the splitter on interface `ifindex`.
fn at_work(ifindex: u32) -> Result<Option<ProgramInfo>, Error> {
    let filters = attached(ifindex, Hook::Ingress, NAME)?;
    let Some(Attached { program, .. }) = filters.first() else { return Ok(None) };
    for info in loaded_programs() {
        match info {
            Ok(info) if info.id() == *program => return Ok(Some(info)),
            Err(ProgramError::SyscallError(call))
                if call.io_error.raw_os_error() == Some(libc::EPERM) =>
            {
                return Err(Error::Hidden);
            }
            // Another program, or one that went in the meantime.
            _ => {}
        }
    }
    Ok(None)
}

fn link(interface: &str, filter: Attached) -> io::Result<SchedClassifierLink> {
    let Attached { priority, handle, .. } = filter;
    let ingress = TcAttachType::Ingress;
    SchedClassifierLink::attached(interface, ingress, priority, handle.into(), None)
}

/// Adds the queueing discipline that filters hang on, unless it is there.
fn add_clsact(interface: &str) -> Result<(), Error> {
    match tc::qdisc_add_clsact(interface) {
        Err(tc::TcError::NetlinkError(error)) if error.raw_os_error() == Some(libc::EEXIST) => {
            Ok(())
        }
        added => Ok(added?),
    }
}

fn insert(map: &mut Addresses, values: &Values) -> Result<(), Error> {
    values.iter().try_for_each(|(address, value)| Ok(map.insert(address, value, 0)?))
}

fn keep_only(map: &mut Addresses, values: &Values) -> Result<(), Error> {
    let others = map.keys().filter(|key| !key.as_ref().is_ok_and(|key| values.contains_key(key)));
    for address in others.collect::<Result<Vec<_>, _>>()? {
        map.remove(&address)?;
    }
    Ok(())
}

/// The addresses of all interfaces. A packet for any of them is this host's, whichever interface it
/// arrives on (RFC 1122, section 3.3.4.2).
fn own_addresses() -> io::Result<BTreeSet<IpAddr>> {
    let address = |one: nix::ifaddrs::InterfaceAddress| {
        let address = one.address?;
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
    };
    Ok(getifaddrs()?.filter_map(address).filter(|address| !address.is_loopback()).collect())
}
