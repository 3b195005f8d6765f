//! The program at tc ingress that splits.
//!
//! It is a classifier filter that stays on the interface when its process goes: peers keep sending
//! meta packets, and it needs no controller to take them apart.

use crate::Error;
use crate::layout::{Plain, SplitConfig, mapped};
use aya::maps::{Array, HashMap, MapData, PerCpuArray};
use aya::programs::tc::{self, TcAttachType};
use aya::programs::{SchedClassifier, loaded_programs};
use aya::{Ebpf, include_bytes_aligned};
use sheaf_wire::meta::Refusal;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/split.bpf.o"));
const NAME: &str = "sheaf_split";

/// What the program counted, behind the refusals.
const OTHERS: [&str; 4] = ["meta-packets", "packets", "ecn-not-capable", "reinject-failed"];

/// The splitter on one interface.
pub struct Split {
    config: Array<MapData, Plain<SplitConfig>>,
    peers: HashMap<MapData, [u8; 16], u8>,
    counts: PerCpuArray<MapData, u64>,
}

impl Split {
    /// Puts a splitter on `interface` (number `ifindex`) of this thread's network namespace, in
    /// the place of one that may be there; it accepts nobody's meta packets yet.
    pub fn attach(interface: &str, ifindex: u32) -> Result<Split, Error> {
        Split::detach(interface)?;
        let mut ebpf = Ebpf::load(OBJECT)?;
        let mut map = |name| ebpf.take_map(name).ok_or(Error::Missing(name));
        let mut config: Array<_, _> = map("split_config")?.try_into()?;
        config.set(0, Plain(SplitConfig { ifindex, any: 0, netns: netns()? }), 0)?;
        let (peers, counts) = (map("peers")?.try_into()?, map("counts")?.try_into()?);
        if let Err(error) = tc::qdisc_add_clsact(interface)
            && !is_there_already(&error)
        {
            return Err(error.into());
        }
        let program = ebpf.program_mut(NAME).ok_or(Error::Missing(NAME))?;
        let program: &mut SchedClassifier = program.try_into()?;
        program.load()?;
        let options = tc::TcAttachOptions::Netlink(tc::NlOptions::default());
        let link = program.attach_with_options(interface, TcAttachType::Ingress, options)?;
        // Dropping the link would take the filter off.
        std::mem::forget(program.take_link(link)?);
        Ok(Split { config, peers, counts })
    }

    /// The splitter that is on interface `ifindex` of this thread's network namespace.
    pub fn find(ifindex: u32) -> Result<Option<Split>, Error> {
        let netns = netns()?;
        for program in loaded_programs().filter_map(Result::ok) {
            if program.name_as_str() != Some(NAME) {
                continue;
            }
            let mut maps = BTreeMap::new();
            for id in program.map_ids()?.unwrap_or_default() {
                let data = MapData::from_id(id)?;
                maps.insert(data.info()?.name_as_str().unwrap_or_default().to_owned(), data);
            }
            let mut map = |name| maps.remove(name).ok_or(Error::Missing(name));
            let config: Array<_, Plain<SplitConfig>> =
                aya::maps::Map::Array(map("split_config")?).try_into()?;
            let found = config.get(&0, 0)?.0;
            if (found.ifindex, found.netns) == (ifindex, netns) {
                let peers = aya::maps::Map::HashMap(map("peers")?).try_into()?;
                let counts = aya::maps::Map::PerCpuArray(map("counts")?).try_into()?;
                return Ok(Some(Split { config, peers, counts }));
            }
        }
        Ok(None)
    }

    /// Takes the splitter off `interface`; whether there was one.
    pub fn detach(interface: &str) -> Result<bool, Error> {
        match tc::qdisc_detach_program(interface, TcAttachType::Ingress, NAME) {
            Ok(()) => Ok(true),
            Err(tc::TcError::IoError(error)) if error.kind() == std::io::ErrorKind::NotFound => {
                Ok(false)
            }
            Err(error) if is_not_there(&error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Accepts meta packets from `peer`.
    pub fn add_peer(&mut self, peer: IpAddr) -> Result<(), Error> {
        Ok(self.peers.insert(mapped(peer), 1, 0)?)
    }

    /// Accepts meta packets from anyone.
    pub fn accept_any(&mut self) -> Result<(), Error> {
        let Plain(config) = self.config.get(&0, 0)?;
        Ok(self.config.set(0, Plain(SplitConfig { any: 1, ..config }), 0)?)
    }

    /// What it counted, by name: refusals by reason, meta packets, packets.
    pub fn counters(&self) -> Result<BTreeMap<&'static str, u64>, Error> {
        let names = Refusal::ALL.iter().map(|refusal| refusal.name()).chain(OTHERS);
        let count = |(index, name): (usize, &'static str)| {
            let values = self.counts.get(&(index as u32), 0)?;
            Ok((name, values.iter().sum()))
        };
        names.enumerate().map(count).collect()
    }
}

/// Inode of this thread's network namespace.
fn netns() -> std::io::Result<u64> {
    Ok(std::fs::metadata("/proc/thread-self/ns/net")?.ino())
}

fn is_there_already(error: &tc::TcError) -> bool {
    format!("{error:?}").contains("EEXIST") || format!("{error:?}").contains("code: 17")
}

fn is_not_there(error: &tc::TcError) -> bool {
    let text = format!("{error:?}");
    text.contains("code: 2,") || text.contains("code: 22,") || text.contains("ENOENT")
}
