//! Loads a program and puts it on an interface, by whatever way the kernel has.
//!
//! By tcx (Linux 6.6) the kernel takes the program off when its process ends, however that ends. By a
//! filter of the clsact queue it stays until the next start of the same command, or `tc filter del`;
//! the programs let everything pass by then, since nobody renews their heartbeat.

use crate::Error;
use aya::programs::SchedClassifier;
use aya::{Ebpf, EbpfLoader};
use sheaf_netio::ip;
use std::os::fd::AsFd;

pub use sheaf_netio::classifier::{Hook, Link};

/// Parses `object` and creates its maps.
pub fn open(object: &[u8]) -> Result<Ebpf, Error> {
    // The loader would parse the type information of the whole kernel, for relocations of which the
    // programs have none: that takes 35 MB, most of which the allocator then keeps.
    Ok(EbpfLoader::new().btf(None).load(object)?)
}

/// Loads program `name` of `ebpf` into the kernel. An error names the program, and carries what the
/// verifier had against it ([`Error::log`]).
pub fn load<'a>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut SchedClassifier, Error> {
    let program = ebpf.program_mut(name).ok_or(Error::Missing(name))?;
    let program: &mut SchedClassifier = program.try_into()?;
    program.load().map_err(|error| Error::refused(name, error))?;
    Ok(program)
}

/// Puts `program`, which is loaded and called `name`, on `hook` of `interface` in this thread's network
/// namespace, until the value is dropped. Programs of ours that are there already keep their place in
/// the order of [`sheaf_netio::classifier`].
///
/// # Errors
/// The interface does not exist, or the kernel has neither tcx nor clsact with bpf filters.
pub fn attach(
    program: &mut SchedClassifier,
    name: &str,
    interface: &str,
    hook: Hook,
) -> Result<Link, Error> {
    let ifindex = ip::index(interface)?;
    Ok(Link::attach(program.fd()?.as_fd(), name, ifindex, hook)?)
}
