//! Capabilities of the calling thread (capabilities(7)): a command checks at its start which it has,
//! and gives away after set-up those that it no longer needs.
//!
//! Both concern the calling thread and what it starts later, so they come before other threads.

pub use caps::Capability;

use caps::{CapSet, CapsHashSet, errors::CapsError};
use nix::unistd::geteuid;
use std::io;
use thiserror::Error;

/// The process lacks rights that a command needs.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "this needs {}, which the process lacks; run it with sudo, or see CAPABILITIES in sheaf(8)",
    listed(.capabilities)
)]
pub struct Missing {
    /// The capabilities that are not there, in the order in which they were asked for.
    pub capabilities: Vec<Capability>,
}

/// Checks that this thread has all of `needed`, and lets programs that it starts (`ip`) have them.
///
/// # Errors
/// Some are missing.
pub fn require(needed: &[Capability]) -> Result<(), Missing> {
    let effective = caps::read(None, CapSet::Effective).unwrap_or_default();
    let missing = |one: &&Capability| !effective.contains(*one);
    let capabilities: Vec<_> = needed.iter().filter(missing).copied().collect();
    if !capabilities.is_empty() {
        return Err(Missing { capabilities });
    }
    // Programs that root starts have its capabilities anyway. Others have those of the ambient set
    // only. A kernel that refuses them here refuses `ip` its work later, with the reason.
    if !geteuid().is_root() {
        let _ = hand_down(needed);
    }
    Ok(())
}

/// Gives away all capabilities but `kept`, for good: what this process starts cannot have them
/// either, and programs with more rights than it (setuid) run without them (no_new_privs).
///
/// # Errors
/// The kernel refuses; the capabilities may then still be there.
pub fn keep_only(kept: &[Capability]) -> io::Result<()> {
    let kept: CapsHashSet = kept.iter().copied().collect();
    let effective = caps::read(None, CapSet::Effective).map_err(refused)?;
    // Only who has CAP_SETPCAP can lower the bounding set. Without it, no_new_privs does the same.
    if effective.contains(&Capability::CAP_SETPCAP) {
        for one in caps::runtime::thread_all_supported().difference(&kept) {
            caps::drop(None, CapSet::Bounding, *one).map_err(refused)?;
        }
    }
    for set in [CapSet::Ambient, CapSet::Effective, CapSet::Permitted, CapSet::Inheritable] {
        let had = caps::read(None, set).map_err(refused)?;
        let left: CapsHashSet = had.intersection(&kept).copied().collect();
        if left != had {
            caps::set(None, set, &left).map_err(refused)?;
        }
    }
    Ok(nix::sys::prctl::set_no_new_privs()?)
}

/// Puts `needed` into the ambient set, which programs that this thread starts begin with.
fn hand_down(needed: &[Capability]) -> Result<(), CapsError> {
    for one in needed {
        caps::raise(None, CapSet::Inheritable, *one)?;
        caps::raise(None, CapSet::Ambient, *one)?;
    }
    Ok(())
}

/// "CAP_BPF", "CAP_BPF and CAP_PERFMON", "CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON".
fn listed(capabilities: &[Capability]) -> String {
    let names: Vec<_> = capabilities.iter().map(ToString::to_string).collect();
    match names.split_last() {
        Some((last, before)) if !before.is_empty() => format!("{} and {last}", before.join(", ")),
        _ => names.concat(),
    }
}

fn refused(error: CapsError) -> io::Error {
    io::Error::other(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use Capability::{CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_ADMIN};

    /// Runs `check` on a thread of its own, whose capabilities go with it.
    fn on_a_thread(check: impl FnOnce() + Send + 'static) {
        std::thread::spawn(check).join().unwrap();
    }

    #[test]
    fn an_error_names_what_is_missing_and_what_helps() {
        on_a_thread(|| {
            keep_only(&[CAP_NET_RAW]).unwrap();
            assert_eq!(require(&[CAP_NET_RAW]), Ok(()));
            let missing = require(&[CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF]).unwrap_err();
            assert_eq!(missing.capabilities, [CAP_NET_ADMIN, CAP_BPF]);
            assert_eq!(
                missing.to_string(),
                "this needs CAP_NET_ADMIN and CAP_BPF, which the process lacks; run it with sudo, \
                 or see CAPABILITIES in sheaf(8)"
            );
        });
    }

    #[test]
    fn what_was_given_away_does_not_come_back_in_a_program_that_root_starts() {
        on_a_thread(|| {
            keep_only(&[CAP_NET_RAW]).unwrap();
            let status = std::process::Command::new("cat").arg("/proc/self/status").output();
            let status = String::from_utf8(status.unwrap().stdout).unwrap();
            let of = |set: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(set)).unwrap();
                u64::from_str_radix(line.trim(), 16).unwrap()
            };
            assert_eq!(of("CapEff:") & !CAP_NET_RAW.bitmask(), 0);
            assert_eq!(of("CapPrm:") & CAP_SYS_ADMIN.bitmask(), 0);
            assert_eq!(of("CapBnd:"), CAP_NET_RAW.bitmask());
        });
    }

    #[test]
    fn what_is_kept_can_be_kept_again_without_the_right_to_lower_the_bounding_set() {
        on_a_thread(|| {
            keep_only(&[CAP_NET_ADMIN, CAP_NET_RAW]).unwrap();
            keep_only(&[CAP_NET_RAW]).unwrap();
            assert!(require(&[CAP_NET_ADMIN]).is_err());
        });
    }
}
