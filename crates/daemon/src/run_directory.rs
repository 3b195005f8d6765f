//! The directory of the control sockets.
//!
//! Every network namespace has a directory of its own, `/run/sheaf/net-<inode>`: an interface name
//! is unique within one namespace only. The directory belongs to root (or to the user who runs the
//! service), and nobody else can enter it, so no other user can take a name, connect, or see which
//! services run.

use nix::unistd::geteuid;
use std::fs::{self, DirBuilder, File, Metadata, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Where the sockets are unless the environment names another place.
const DEFAULT: &str = "/run/sheaf";
/// Its owner reads and writes, its group enters, others do nothing.
const MODE: u32 = 0o750;
/// Permission bits with which somebody besides the owner could put a socket there.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// Prefix of the directory of one network namespace.
const NAMESPACE_PREFIX: &str = "net-";
/// Ending of the files that a running service holds locked.
pub(crate) const LOCK: &str = "lock";

/// Base directories in the order of preference: systemd's for this service or the system's, then
/// the user's own for a run without permission to write there.
fn bases() -> Vec<PathBuf> {
    // systemd separates several directories by colons (systemd.exec(5)).
    let given = std::env::var("RUNTIME_DIRECTORY").ok();
    let first = given.as_deref().and_then(|list| list.split(':').next());
    let system = first.filter(|path| path.starts_with('/')).unwrap_or(DEFAULT).into();
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(|path| Path::new(&path).join("sheaf"));
    [system].into_iter().chain(own).collect()
}

/// Name of the directory of this thread's network namespace.
fn namespace() -> io::Result<String> {
    let inode = fs::metadata("/proc/thread-self/ns/net")?.ino();
    Ok(format!("{NAMESPACE_PREFIX}{inode}"))
}

/// A directory in which a service is about to put its sockets. Until it is dropped, no other
/// process begins or removes anything in the same base directory.
#[derive(Debug)]
pub struct Reserved {
    /// Its path.
    pub path: PathBuf,
    /// The base directory, locked.
    _base: File,
}

/// Returns the directory for a service of this thread's network namespace, made where it is
/// missing.
pub fn reserve() -> io::Result<Reserved> {
    let namespace = namespace()?;
    let mut first_error = None;
    for base in bases() {
        match reserve_in(&base, &namespace) {
            Ok(reserved) => return Ok(reserved),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    Err(first_error.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
}

pub(crate) fn reserve_in(base: &Path, namespace: &str) -> io::Result<Reserved> {
    make(base)?;
    let locked = File::open(base)?;
    // Nobody else can open the directory, and those who can hold the lock for a moment only.
    locked.lock()?;
    remove_dead(base, Some(namespace));
    let path = base.join(namespace);
    make(&path)?;
    Ok(Reserved { path, _base: locked })
}

fn make(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(MODE).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = fs::symlink_metadata(path)?;
    check_owner(path, &found)?;
    // A umask that is too strict or systemd's default mode (0755) made it with another one.
    if found.mode() & 0o777 != MODE && found.uid() == geteuid().as_raw() {
        fs::set_permissions(path, Permissions::from_mode(MODE))?;
    }
    check_writers(path, &fs::symlink_metadata(path)?)
}

/// Returns the directories in which a client finds the services of this thread's network
/// namespace; an error where one exists that this user may not enter and there is no other.
pub fn find() -> io::Result<Vec<PathBuf>> {
    let namespace = namespace()?;
    let (mut found, mut denied) = (Vec::new(), None);
    for base in bases() {
        let directory = base.join(&namespace);
        match is_safe(&base).and_then(|()| is_safe(&directory)) {
            Ok(()) => found.push(directory),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => denied = denied.or(Some(error)),
        }
    }
    match denied {
        Some(error) if found.is_empty() => Err(error),
        _ => Ok(found),
    }
}

fn is_safe(path: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(path)?;
    check_owner(path, &found)?;
    check_writers(path, &found)?;
    fs::read_dir(path).map(drop)
}

fn check_owner(path: &Path, found: &Metadata) -> io::Result<()> {
    let ours = found.uid() == 0 || found.uid() == geteuid().as_raw();
    refuse_unless(found.is_dir() && ours, path, "is not a directory of root's or of this user's")
}

fn check_writers(path: &Path, found: &Metadata) -> io::Result<()> {
    let safe = found.mode() & WRITABLE_BY_OTHERS == 0;
    refuse_unless(safe, path, "can be written by other users; remove it")
}

fn refuse_unless(holds: bool, path: &Path, what: &str) -> io::Result<()> {
    let error =
        || io::Error::new(io::ErrorKind::PermissionDenied, format!("{} {what}", path.display()));
    if holds { Ok(()) } else { Err(error()) }
}

/// Removes the directories of all namespaces whose services were all killed. A client calls this
/// before it looks for services: where none starts any more, nobody else would remove them.
pub fn sweep() {
    for base in bases() {
        let Ok(locked) = is_safe(&base).and_then(|()| File::open(&base)) else { continue };
        // A service that starts right now removes them itself, and a client does not wait for it.
        if locked.try_lock().is_ok() {
            remove_dead(&base, None);
        }
    }
}

/// Removes the directories of namespaces whose services were all killed: their numbers would add
/// up otherwise. The directory named `kept` stays. The caller holds the lock of `base`.
pub(crate) fn remove_dead(base: &Path, kept: Option<&str>) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let dead = name
            .to_str()
            .is_some_and(|name| name.starts_with(NAMESPACE_PREFIX) && Some(name) != kept);
        if dead && !entry.path().is_symlink() {
            remove_if_dead(&entry.path());
        }
    }
}

fn remove_if_dead(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    let files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    let is_lock = |path: &&PathBuf| path.extension().is_some_and(|end| end == LOCK);
    let mut held = Vec::new();
    for path in files.iter().filter(is_lock) {
        match File::open(path).map(|file| file.try_lock().map(|()| file)) {
            Ok(Ok(file)) => held.push(file),
            Ok(Err(TryLockError::WouldBlock | TryLockError::Error(_))) => return,
            Err(_) => {}
        }
    }
    for path in files {
        let _ = fs::remove_file(path);
    }
    let _ = fs::remove_dir(directory);
}
