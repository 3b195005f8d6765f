//! One UDP port for several trunks, each a process of its own.
//!
//! Principle: their sockets are a SO_REUSEPORT group, which the kernel lets sockets of one user
//! make, and a program in it finds the trunk that a datagram is for (port.bpf.c). Its maps are
//! pinned under the BPF file system, so that each trunk finds those of the others. A trunk has the
//! same slot on all ports, because the frames to it name the slot.
//!
//! Locks of folders there say who lives, and the kernel gives them back however a process ends: a
//! slot is its owner's alone, and whoever has the last share in a port's folder removes it.

use crate::{Error, attach};
use aya::Ebpf;
use aya::maps::{Array, MapData, ReusePortSockArray};
use aya::programs::SkReuseport;
use nix::sys::socket::{setsockopt, sockopt};
use sheaf_wire::trunk::sealed::SLOTS;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/port.bpf.deflate"));
const NAME: &str = "sheaf_port";
const SOCKETS: &str = "sockets";
const KEYS: &str = "keys";
/// The folder of all trunks in the BPF file system.
const ROOT: &str = "/sys/fs/bpf/sheaf";

/// The slot of a trunk, until the value is dropped.
#[derive(Debug)]
pub struct Slot {
    number: u32,
    place: PathBuf,
    /// Locked by this process alone.
    _claim: File,
}

impl Slot {
    /// Takes the first slot that no trunk of this machine has.
    ///
    /// # Errors
    /// There is no BPF file system, or all slots are taken.
    pub fn claim() -> Result<Slot, Error> {
        let _door = door()?;
        for number in 0..SLOTS {
            let place = Path::new(ROOT).join(format!("slot-{number}"));
            let claim = folder(&place)?;
            match claim.try_lock() {
                Ok(()) => return Ok(Slot { number, place, _claim: claim }),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(error.into()),
            }
        }
        Err(Error::NoSlot)
    }

    /// Its number, below [`SLOTS`].
    pub fn number(&self) -> u32 {
        self.number
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // Where that fails the next trunk takes the folder as it is.
        if let Ok(_door) = door() {
            let _ = fs::remove_dir(&self.place);
        }
    }
}

/// A port that can be shared, until the value is dropped.
pub struct Port {
    ebpf: Ebpf,
    sockets: ReusePortSockArray<MapData>,
    slot: u32,
    _folder: Shared,
}

/// A port's folder, locked together with the other trunks of the port.
struct Shared {
    place: PathBuf,
    lock: File,
}

impl Shared {
    fn enter(place: PathBuf) -> Result<Shared, Error> {
        let _door = door()?;
        let lock = folder(&place)?;
        lock.lock_shared()?;
        Ok(Shared { place, lock })
    }
}

impl Port {
    /// Loads the program for the port at `local`, and makes or finds the maps of its trunks. `dev`:
    /// the interface, where the address does not say it. `tags`: what the tags of this trunk's
    /// initiations are made with.
    ///
    /// # Errors
    /// There is no BPF file system, or the kernel refuses the program.
    pub fn open(
        local: SocketAddr,
        dev: Option<&str>,
        slot: &Slot,
        tags: [u64; 2],
    ) -> Result<Port, Error> {
        let folder = Shared::enter(Path::new(ROOT).join(name(local, dev)?))?;
        // Two that begin at once must not both make the maps.
        let _door = door()?;
        let place = &folder.place;
        let mut ebpf = attach::loader()
            .btf(None)
            .default_map_pin_directory(place)
            .load(&attach::unpack(OBJECT))?;
        let missing = |what| move || Error::Missing(what);
        let program = ebpf.program_mut(NAME).ok_or_else(missing(NAME))?;
        let program: &mut SkReuseport = program.try_into()?;
        attach::undisturbed(|| program.load()).map_err(|error| Error::refused(NAME, error))?;
        let keys = ebpf.take_map(KEYS).ok_or_else(missing(KEYS))?;
        Array::<_, [u64; 2]>::try_from(keys)?.set(slot.number, tags, 0)?;
        let sockets = ebpf.take_map(SOCKETS).ok_or_else(missing(SOCKETS))?.try_into()?;
        Ok(Port { ebpf, sockets, slot: slot.number, _folder: folder })
    }

    /// Lets a socket that is not bound yet share the port.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn prepare(&self, socket: impl AsFd) -> io::Result<()> {
        Ok(setsockopt(&socket, sockopt::ReusePort, &true)?)
    }

    /// Gives this trunk's datagrams to `socket`, which was prepared and is bound.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn take(&mut self, socket: impl AsFd) -> Result<(), Error> {
        let program = self.ebpf.program(NAME).ok_or(Error::Missing(NAME))?;
        let program: &SkReuseport = program.try_into()?;
        // Not before the socket is bound: one with a program is a group by itself, and cannot join
        // that of the others. Theirs has the same program.
        program.attach(&socket)?;
        // The kernel has taken out the socket before it when that was closed.
        Ok(self.sockets.set(self.slot, &socket.as_fd().as_raw_fd(), 0)?)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // What is left where that fails, the next trunk of the port finds.
        let Ok(_door) = door() else { return };
        if self.lock.try_lock().is_ok() {
            for map in [SOCKETS, KEYS] {
                let _ = fs::remove_file(self.place.join(map));
            }
            let _ = fs::remove_dir(&self.place);
        }
    }
}

/// Waits until no other process makes or removes folders here.
fn door() -> Result<File, Error> {
    let door = folder(Path::new(ROOT)).map_err(Error::NoFileSystem)?;
    door.lock()?;
    Ok(door)
}

/// Opens a folder of root's, and makes it where it is missing.
fn folder(place: &Path) -> io::Result<File> {
    match DirBuilder::new().mode(0o700).create(place) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => File::open(place),
    }
}

/// Name of a port's folder: that of one network namespace, of an address, and where that is any,
/// of an interface. The file system allows no dots, so the address is in hexadecimal digits.
fn name(local: SocketAddr, dev: Option<&str>) -> io::Result<String> {
    let namespace = fs::metadata("/proc/self/ns/net")?.ino();
    let address = match local.ip() {
        std::net::IpAddr::V4(address) => format!("{:08x}", address.to_bits()),
        std::net::IpAddr::V6(address) => format!("{:032x}", address.to_bits()),
    };
    let dev = dev.filter(|_| local.ip().is_unspecified()).unwrap_or_default();
    let dev: String = dev.bytes().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("port-{namespace}-{address}-{}-{dev}", local.port()))
}
