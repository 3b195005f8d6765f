//! The program at tc ingress that splits.
//!
//! It is a classifier filter that stays on the interface when its process goes: peers keep sending
//! meta packets, and it needs no controller to take them apart.
//!
//! Principle of replacement: a new program is loaded and knows its senders before it takes the
//! place of the old one, and it takes that place in one step of the kernel. So every packet meets
//! exactly one splitter, and whatever fails leaves the old one at work.

use crate::frames::CrcTable;
use crate::layout::{Plain, mapped};
use crate::split_layout::SplitConfig;
use crate::streams::{Messages, Streams, Swept};
use crate::{Error, attach};
use aya::Ebpf;
use aya::maps::{Array, HashMap, Map, MapData, MapType, PerCpuArray};
use aya::programs::tc::{self, NlOptions, SchedClassifierLink, TcAttachOptions, TcAttachType};
use aya::programs::{Link, ProgramError, ProgramInfo, SchedClassifier, loaded_programs};
use nix::ifaddrs::getifaddrs;
use nix::libc;
use nix::unistd::{SysconfVar, sysconf};
use sheaf_aggregate::Senders;
use sheaf_netio::classifier::{Attached, Hook, attached};
use sheaf_stage::Instant;
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

/// What it counts of format 2, behind those: refusals by reason, then what became of the others.
const FRAMES: [&str; 21] = [
    "frame-sub-type",
    "frame-truncated",
    "frame-oversized",
    "frame-empty",
    "frame-too-many-blocks",
    "frame-unknown-block",
    "frame-bad-packet",
    "frame-nested",
    "frame-padding",
    "frame-bad-cut",
    "frame-bad-definition",
    "frame-bad-feedback",
    "frame-duplicate",
    "frame-too-many-streams",
    "frame-group",
    "frames",
    "frames-missing",
    "frames-late",
    "unjoined",
    "unrestored",
    "no-context",
];

/// Maps that take memory only where format 2 is taken, with the entries that they have elsewhere.
const FRAME_MAPS: [&str; 2] = ["streams", "contexts"];

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
    heard: HashMap<MapData, [u8; 16], u64>,
    counts: PerCpuArray<MapData, u64>,
    streams: Streams,
    events: MapData,
    /// It was loaded to take format 2.
    takes_frames: bool,
    /// The program, where this process loaded it.
    program: Option<Ebpf>,
}

/// A splitter that the kernel has taken and that is on no interface.
pub struct Loaded {
    ebpf: Ebpf,
    split: Split,
}

impl Split {
    /// Puts a splitter for `senders` on `interface` (number `ifindex`) of this thread's network
    /// namespace. Where the same program is there already, it gets these senders and goes on
    /// counting; another version is replaced. `frames` is as in [`load`](Self::load).
    pub fn attach(
        interface: &str,
        ifindex: u32,
        senders: &Senders,
        frames: Option<u64>,
    ) -> Result<Split, Error> {
        Split::load(senders, frames)?.attach(interface, ifindex, senders, frames)
    }

    /// Loads a splitter for `senders`. With `frames` it takes format 2, too, and draws the
    /// generations of contexts from that secret: a random number that no sender can know.
    pub fn load(senders: &Senders, frames: Option<u64>) -> Result<Loaded, Error> {
        let mut loader = attach::loader();
        let takes_frames = u32::from(frames.is_some());
        loader.btf(None).override_global("takes_frames", &takes_frames, true);
        if frames.is_none() {
            for name in FRAME_MAPS {
                loader.map_max_entries(name, 1);
            }
            loader.map_max_entries("events", page_size());
        }
        let mut ebpf = loader.load(&attach::unpack(OBJECT))?;
        let map = |name| ebpf.take_map(name).ok_or(Error::Missing(name));
        let mut split = Split::of(map)?;
        let table = ebpf.map_mut("crc_table").ok_or(Error::Missing("crc_table"))?;
        let mut table: Array<_, Plain<CrcTable>> = table.try_into()?;
        table.set(0, Plain(CrcTable::new()), 0)?;
        split.admit(senders, frames)?;
        let mut loaded = Loaded { ebpf, split };
        attach::load(&mut loaded.ebpf, NAME)?;
        Ok(loaded)
    }

    /// Whether a splitter is on interface `ifindex` of this thread's network namespace, of whatever
    /// version.
    pub fn is_there(ifindex: u32) -> Result<bool, Error> {
        Ok(!attached(ifindex, Hook::Ingress, NAME)?.is_empty())
    }

    /// Whether it takes format 2.
    pub fn takes_frames(&self) -> bool {
        self.takes_frames
    }

    /// Finds the splitter that is on interface `ifindex` of this thread's network namespace.
    pub fn find(ifindex: u32) -> Result<Option<Split>, Error> {
        let filters = attached(ifindex, Hook::Ingress, NAME)?;
        program_of(&filters)?.map(|info| Split::from_program(&info)).transpose()
    }

    fn from_program(info: &ProgramInfo) -> Result<Split, Error> {
        let mut maps = BTreeMap::new();
        for id in info.map_ids()?.unwrap_or_default() {
            let data = MapData::from_id(id)?;
            let name = data.info()?.name_as_str().unwrap_or_default().to_owned();
            let map = match data.info()?.map_type()? {
                MapType::Hash => Map::HashMap(data),
                MapType::PerCpuArray => Map::PerCpuArray(data),
                MapType::RingBuf => Map::RingBuf(data),
                _ => Map::Array(data),
            };
            maps.insert(name, map);
        }
        Split::of(|name| maps.remove(name).ok_or(Error::Missing(name)))
    }

    /// The splitter with the maps that `map` returns by name.
    fn of(mut map: impl FnMut(&'static str) -> Result<Map, Error>) -> Result<Split, Error> {
        let Map::RingBuf(events) = map("events")? else { return Err(Error::Missing("events")) };
        let contexts = map("contexts")?;
        let Map::HashMap(data) = &contexts else { return Err(Error::Missing("contexts")) };
        let takes_frames = data.info()?.max_entries() > 1;
        Ok(Split {
            config: map("split_config")?.try_into()?,
            peers: map("peers")?.try_into()?,
            own: map("own")?.try_into()?,
            heard: map("heard")?.try_into()?,
            counts: map("counts")?.try_into()?,
            streams: Streams {
                streams: map("streams")?.try_into()?,
                contexts: contexts.try_into()?,
                made: map("made_so_far")?.try_into()?,
            },
            events,
            takes_frames,
            program: None,
        })
    }

    /// The splitter once more as [`load`](Self::load) returns it, with what it knows and counted:
    /// the kernel takes most of a second to look at a new one. Where it does not take format 2, it
    /// will not. `None` for one that another process loaded.
    pub fn reuse(
        mut self,
        senders: &Senders,
        frames: Option<u64>,
    ) -> Result<Option<Loaded>, Error> {
        let Some(ebpf) = self.program.take() else { return Ok(None) };
        self.admit(senders, frames.filter(|_| self.takes_frames))?;
        Ok(Some(Loaded { ebpf, split: self }))
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

    /// Notes from now on when a frame comes from `from`: an address of IP, or that of a station
    /// for frames without a header of IP. Where there are more than [`ROOM`], those beyond are not
    /// noted.
    pub fn watch(&mut self, from: IpAddr) -> Result<(), Error> {
        let key = mapped(from);
        if self.heard.get(&key, 0).is_err()
            && let Err(error) = self.heard.insert(key, 0, 0)
            && self.heard.keys().count() < ROOM
        {
            return Err(error.into());
        }
        Ok(())
    }

    /// Notes nobody's frames any more.
    pub fn watch_nobody(&mut self) -> Result<(), Error> {
        for key in self.heard.keys().collect::<Result<Vec<_>, _>>()? {
            self.heard.remove(&key)?;
        }
        Ok(())
    }

    /// Time of the last frame from `from`, on CLOCK_MONOTONIC; early by a tick of the kernel at
    /// most. `None` where none has come since it is noted.
    pub fn heard(&self, from: IpAddr) -> Option<Instant> {
        let at = self.heard.get(&mapped(from), 0).ok()?;
        (at > 0).then(|| Instant::from_nanos(at))
    }

    /// Accepts `senders` and, with `frames`, format 2.
    fn admit(&mut self, senders: &Senders, frames: Option<u64>) -> Result<(), Error> {
        self.set_frames(frames)?;
        self.accept(senders)
    }

    /// Takes format 2 from now on, if there is a secret as in [`load`](Self::load), or no longer. A
    /// splitter that takes it keeps its secret: no generation is to come twice.
    pub fn set_frames(&mut self, frames: Option<u64>) -> Result<(), Error> {
        self.configure(|config| {
            if config.frames == 0 {
                config.secret = frames.unwrap_or(0);
            }
            config.frames = u32::from(frames.is_some());
        })
    }

    /// Takes frames of format 2 without a header of IP, too, from now on, or no longer: then others
    /// may use their EtherType on the link.
    pub fn set_link(&mut self, takes: bool) -> Result<(), Error> {
        self.configure(|config| config.link = takes.into())
    }

    /// The messages about contexts from now on. One process at a time can read them.
    pub fn messages(&self) -> Result<Messages, Error> {
        Messages::new(&self.events)
    }

    /// Removes what is kept of senders that have been silent for long at `now` of CLOCK_MONOTONIC,
    /// or makes room. It is to be called about once a second where format 2 is taken.
    pub fn sweep(&mut self, now: Instant) -> Result<(), Error> {
        let Swept { streams, contexts } = self.streams.sweep(now)?;
        if streams == 0 && contexts == 0 {
            return Ok(());
        }
        self.configure(|config| {
            config.streams_swept = config.streams_swept.wrapping_add(streams);
            config.contexts_swept = config.contexts_swept.wrapping_add(contexts);
        })
    }

    fn configure(&mut self, change: impl FnOnce(&mut SplitConfig)) -> Result<(), Error> {
        let Plain(mut config) = self.config.get(&0, 0)?;
        change(&mut config);
        Ok(self.config.set(0, Plain(config), 0)?)
    }

    /// Returns what it counted, by name: refusals by reason, meta packets, packets.
    pub fn counters(&self) -> Result<BTreeMap<&'static str, u64>, Error> {
        let names = Refusal::ALL.iter().map(|refusal| refusal.name()).chain(OTHERS).chain(FRAMES);
        let count = |(index, name): (usize, &'static str)| {
            let values = self.counts.get(&(index as u32), 0)?;
            Ok((name, values.iter().sum()))
        };
        names.enumerate().map(count).collect()
    }
}

impl Loaded {
    /// Puts it on `interface`, or takes over the one that is there, as [`Split::attach`] does, for
    /// what it was loaded with.
    pub fn attach(
        mut self,
        interface: &str,
        ifindex: u32,
        senders: &Senders,
        frames: Option<u64>,
    ) -> Result<Split, Error> {
        let own = self.program()?.info()?;
        let filters = attached(ifindex, Hook::Ingress, NAME)?;
        if filters.first().is_some_and(|there| there.program == own.id()) {
            return Ok(self.at_work());
        }
        let old = match program_of(&filters) {
            // Which program it is cannot be seen; the new one takes its place without loss.
            Err(Error::Hidden) => None,
            old => old?,
        };
        if let Some(info) = old
            && info.tag() == own.tag()
        {
            let mut old = Split::from_program(&info)?;
            // Its maps may be too small for streams, or for old and new senders together; then the
            // new one comes.
            let takes = frames.is_none() || old.takes_frames;
            if takes && old.accept(senders).is_ok() {
                old.set_frames(frames)?;
                return Ok(old);
            }
        }
        self.replace(interface, ifindex)
    }

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
        Ok(self.at_work())
    }

    fn at_work(mut self) -> Split {
        self.split.program = Some(self.ebpf);
        self.split
    }

    fn program(&mut self) -> Result<&mut SchedClassifier, Error> {
        let program = self.ebpf.program_mut(NAME).ok_or(Error::Missing(NAME))?;
        Ok(program.try_into()?)
    }
}

/// The program of the splitter among `filters`.
fn program_of(filters: &[Attached]) -> Result<Option<ProgramInfo>, Error> {
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

/// Bytes of a page, of which a ring buffer has at least one.
fn page_size() -> u32 {
    let size = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
    size.and_then(|size| u32::try_from(size).ok()).unwrap_or(1 << 16)
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
