//! Loads a program and puts it on an interface, by whatever way the kernel has.
//!
//! By tcx (Linux 6.6) the kernel takes the program off when its process ends, however that ends. By
//! a filter of the clsact queue it stays until the next start of the same command, or `tc filter
//! del`; the programs let everything pass by then, since nobody renews their heartbeat.

use crate::Error;
use aya::programs::SchedClassifier;
use aya::{Ebpf, EbpfLoader};
use landlock::{AccessFs, RestrictionStatus, Ruleset, RulesetAttr, RulesetError};
use sheaf_netio::ip;
use std::os::fd::AsFd;

pub use sheaf_netio::classifier::{Hook, Link};

/// Parses a packed object and creates its maps.
pub fn open(packed: &[u8]) -> Result<Ebpf, Error> {
    Ok(loader().btf(None).load(&unpack(packed))?)
}

/// An object as the build packed it.
pub(crate) fn unpack(packed: &[u8]) -> Vec<u8> {
    miniz_oxide::inflate::decompress_to_vec(packed).expect("the build packed it")
}

/// A loader that has not read the type information of the kernel.
///
/// A new loader parses all of it, before it can be told not to: 20 to 35 MB of memory, for
/// relocations of which the programs have none. So it is made by a thread that may read no file
/// (Landlock). Where the kernel has no Landlock, only the memory is lost.
pub(crate) fn loader() -> EbpfLoader<'static> {
    let make = || {
        let _ = restrict();
        EbpfLoader::new()
    };
    std::thread::spawn(make).join().unwrap_or_else(|_| EbpfLoader::new())
}

/// Takes from this thread, for good, the right to read files.
fn restrict() -> Result<RestrictionStatus, RulesetError> {
    Ruleset::default().handle_access(AccessFs::ReadFile)?.create()?.restrict_self()
}

/// Loads program `name` of `ebpf` into the kernel. An error names the program, and carries what the
/// verifier had against it ([`Error::log`]).
pub fn load<'a>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut SchedClassifier, Error> {
    let program = ebpf.program_mut(name).ok_or(Error::Missing(name))?;
    let program: &mut SchedClassifier = program.try_into()?;
    program.load().map_err(|error| Error::refused(name, error))?;
    Ok(program)
}

/// Puts `program`, which is loaded and called `name`, on `hook` of `interface` in this thread's
/// network namespace, until the value is dropped. Programs of ours that are there already keep
/// their place in the order of [`sheaf_netio::classifier`].
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
