//! Loads a program and puts it on an interface, by whatever way the kernel has.
//!
//! By tcx (Linux 6.6) the kernel takes the program off when its process ends, however that ends. By
//! a filter of the clsact queue it stays until the next start of the same command, or `tc filter
//! del`; the programs let everything pass by then, since nobody renews their heartbeat.

use crate::Error;
use aya::programs::{ProgramError, SchedClassifier};
use aya::{Ebpf, EbpfLoader};
use landlock::{AccessFs, RestrictionStatus, Ruleset, RulesetAttr, RulesetError};
use nix::sys::signal::{SigSet, SigmaskHow};
use sheaf_netio::ip;
use std::os::fd::AsFd;

pub use sheaf_netio::classifier::{Hook, Link};

/// Attempts at a load that signals cut short, as many as libbpf makes (`PROG_LOAD_ATTEMPTS`). Only
/// a SIGSTOP ends one here, so more would not help.
const ATTEMPTS: usize = 5;

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
    // It tries what the kernel has by loading programs, and takes any error for a no.
    let _quiet = Quiet::new();
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
    undisturbed(|| program.load()).map_err(|error| Error::refused(name, error))?;
    Ok(program)
}

/// Loads a program by `load`, whatever signals arrive.
///
/// The verifier gives up where a signal is pending (EAGAIN from `do_check`), and a large program
/// takes it half a second. That would look like a refusal, and end in another engine or format.
pub(crate) fn undisturbed(
    mut load: impl FnMut() -> Result<(), ProgramError>,
) -> Result<(), ProgramError> {
    let _quiet = Quiet::new();
    let mut result = load();
    for _ in 1..ATTEMPTS {
        match &result {
            Err(ProgramError::LoadError { io_error, .. })
                if io_error.raw_os_error() == Some(libc::EAGAIN) =>
            {
                result = load();
            }
            _ => break,
        }
    }
    result
}

/// Keeps signals from this thread, and from threads that it makes, until it is dropped.
struct Quiet(Option<SigSet>);

impl Quiet {
    fn new() -> Quiet {
        Quiet(SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK).ok())
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // What it fails by is a mask that the kernel does not take, and it gave this one.
        let _ = self.0.map(|before| before.thread_set_mask());
    }
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
