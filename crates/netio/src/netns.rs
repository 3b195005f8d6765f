//! Network namespaces: anonymous ones, and those that others have given a name.
//!
//! A namespace without a name lives as long as a descriptor or a thread refers to it, so it
//! vanishes with the process, however that ends, and its interfaces with it.

use nix::sched::{CloneFlags, setns, unshare};
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// A network namespace.
#[derive(Debug)]
pub struct Namespace {
    file: File,
}

/// The folder of namespaces with names.
const NAMED: &str = "/var/run/netns";
const HERE: &str = "/proc/thread-self/ns/net";

impl Namespace {
    /// A new namespace with its loopback interface up. Needs root.
    pub fn new() -> io::Result<Namespace> {
        let make = || -> io::Result<File> {
            unshare(CloneFlags::CLONE_NEWNET)?;
            File::open(HERE)
        };
        let file = std::thread::scope(|scope| scope.spawn(make).join().expect("no panic inside"))?;
        let namespace = Namespace { file };
        namespace.run(|| crate::ip::run("link set lo up"))?;
        Ok(namespace)
    }

    /// The namespace that ip-netns(8) calls `name`; it stays when this value goes.
    pub fn named(name: &str) -> io::Result<Namespace> {
        Ok(Namespace { file: File::open(Path::new(NAMED).join(name))? })
    }

    /// Every namespace that has a name or a process, once, as far as this process may see them.
    pub fn all() -> Vec<Namespace> {
        let entries = |folder: &str| std::fs::read_dir(folder).into_iter().flatten().flatten();
        let named = entries(NAMED).map(|entry| entry.path());
        let of_processes = entries("/proc").map(|entry| entry.path().join("ns/net"));
        let mut seen = BTreeSet::new();
        let opened = named.chain(of_processes).filter_map(|path| {
            // A process may have gone meanwhile, and most entries of /proc are not one.
            let file = File::open(path).ok()?;
            let meta = file.metadata().ok()?;
            seen.insert((meta.dev(), meta.ino())).then_some(Namespace { file })
        });
        opened.collect()
    }

    /// The same namespace, for a thread that outlives this value.
    pub fn try_clone(&self) -> io::Result<Namespace> {
        Ok(Namespace { file: self.file.try_clone()? })
    }

    /// Runs `work` on a thread inside the namespace. What it opens there stays usable everywhere.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        let inside = || {
            setns(&self.file, CloneFlags::CLONE_NEWNET)?;
            work()
        };
        std::thread::scope(|scope| scope.spawn(inside).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Makes `command` start inside the namespace.
    pub fn enter(&self, command: &mut Command) {
        let fd = self.file.as_raw_fd();
        let enter = move || {
            // SAFETY: setns is a bare system call; the descriptor is open in the child, too.
            match unsafe { libc::setns(fd, libc::CLONE_NEWNET) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        };
        // SAFETY: the closure calls nothing but setns.
        unsafe { command.pre_exec(enter) };
    }

    /// A path that names the namespace to other programs while this process lives.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }
}
