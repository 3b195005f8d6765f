//! The kernel engine: the eBPF programs, their loader and their maps.
//!
//! * [`merge`]: gathers small packets at tc egress; goes with its process;
//! * [`split`]: takes meta packets apart at tc ingress; stays; `streams` is its format 2,
//!   `split_layout` has its structures;
//! * [`controller`]: keeps time for it;
//! * [`redirect`]: leads packets of an interface to the emulator, and lets them come back;
//! * [`port`]: one UDP port for several trunks;
//! * [`layout`]: the structures that both sides of the maps share;
//! * [`ticker`]: the frames on which due queues leave;
//! * [`attach`]: puts programs on an interface, by tcx or clsact;
//! * [`window`]: lowers advertised windows; [`window_layout`] has its structures, `table` its
//!   flows;
//! * [`mod@support`]: whether programs can be loaded at all, and why not.
//!
//! The C sources are in `src/c`, compiled by `build.rs` with clang.

pub mod attach;
mod batch;
mod contexts;
pub mod controller;
mod frames;
mod lane;
pub mod layout;
pub mod merge;
#[cfg(test)]
mod mirrors;
pub mod port;
pub mod redirect;
mod rounds;
pub mod split;
mod split_layout;
mod strangers;
mod streams;
pub mod support;
mod table;
pub mod ticker;
pub mod window;
pub mod window_layout;

pub use controller::Controller;
pub use merge::{Event, Merge};
pub use port::{Port, Slot};
pub use split::{Loaded, Split};
pub use streams::{Direction, Message, Messages};
pub use support::{Unsupported, support};
pub use ticker::Ticker;
pub use window::Window;

use nix::errno::Errno;
use thiserror::Error;

/// Why a program could not be loaded, attached or talked to. Each reads as one line.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The object does not fit this kernel.
    #[error("the kernel refuses {}", object(.0))]
    Load(#[from] aya::EbpfError),
    /// The kernel does not take a program.
    #[error(
        "the kernel refuses the program {name} ({}); sheaf -v prints its reasons",
        errno(.reason)
    )]
    Refused {
        /// The program.
        name: &'static str,
        /// What the system call returned.
        reason: std::io::Error,
        /// What the verifier had against it.
        log: String,
    },
    /// The kernel has checked the program, but it cannot run it.
    #[error(
        "the kernel cannot compile the program {name}; sysctl net.core.bpf_jit_enable=1, or use a \
         kernel with CONFIG_BPF_JIT"
    )]
    NoJit {
        /// The program.
        name: &'static str,
    },
    /// Attaching or running failed.
    #[error("the kernel refuses the program: {}", program(.0))]
    Program(aya::programs::ProgramError),
    /// A map could not be read or written.
    #[error("a map of the program cannot be used: {0}")]
    Map(#[from] aya::maps::MapError),
    /// A classifier queue could not be made on the interface.
    #[error("the interface takes no classifier: {0}")]
    Classifier(#[from] aya::programs::tc::TcError),
    /// The kernel shows programs of other processes only to who has CAP_SYS_ADMIN.
    #[error("the splitter that is there cannot be read without CAP_SYS_ADMIN; run it with sudo")]
    Hidden,
    /// Trunks cannot find each other.
    #[error("there is no BPF file system at /sys/fs/bpf ({0}); mount -t bpf bpf /sys/fs/bpf")]
    NoFileSystem(std::io::Error),
    /// As many trunks share ports as can.
    #[error("{} trunks of this machine share ports already", sheaf_wire::trunk::sealed::SLOTS)]
    NoSlot,
    /// A system call.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// A program or map is not in the object.
    #[error("the object has no {0}")]
    Missing(&'static str),
}

impl Error {
    /// The refusal of program `name`, whose log is kept apart from what people read.
    fn refused(name: &'static str, error: aya::programs::ProgramError) -> Error {
        match error {
            aya::programs::ProgramError::LoadError { io_error: reason, verifier_log } => {
                Error::not_loaded(name, reason, verifier_log.to_string())
            }
            error => Error::Program(error),
        }
    }

    /// The same by the system call's error and the verifier's log.
    fn not_loaded(name: &'static str, reason: std::io::Error, log: String) -> Error {
        if reason.raw_os_error() == Some(ENOTSUPP) || log.contains(NON_JITED) {
            return Error::NoJit { name };
        }
        Error::Refused { name, reason, log }
    }

    /// What the kernel's verifier had against a program: many lines, for developers.
    pub fn log(&self) -> Option<&str> {
        match self {
            Error::Refused { log, .. } => Some(log),
            _ => None,
        }
    }
}

impl From<aya::programs::ProgramError> for Error {
    fn from(error: aya::programs::ProgramError) -> Error {
        Error::refused("of Sheaf", error)
    }
}

/// ENOTSUPP of linux/errno.h, which no manual page has: the kernel returns it where its verifier
/// has passed a program that the JIT then did not compile, and that no interpreter runs
/// (`bpf_prog_select_runtime`).
const ENOTSUPP: i32 = 524;
/// In the verifier's log where a program has what only the JIT can do (`fixup_call_args`).
const NON_JITED: &str = "non-JITed";

/// The name of an error number, as in manual pages.
fn errno(error: &std::io::Error) -> String {
    error.raw_os_error().map_or_else(|| error.to_string(), |n| format!("{:?}", Errno::from_raw(n)))
}

/// What of an object was refused.
fn object(error: &aya::EbpfError) -> String {
    use aya::EbpfError::{BtfError, MapError};
    match error {
        MapError(aya::maps::MapError::CreateError { name, io_error }) => {
            format!("the map {name} ({})", errno(io_error))
        }
        // Its text has the kernel's log of type information.
        BtfError(_) => "the type information of the program".to_owned(),
        error => format!("the object: {error}"),
    }
}

/// Reason of a program's error, with the error number of the system call.
fn program(error: &aya::programs::ProgramError) -> String {
    match error {
        aya::programs::ProgramError::SyscallError(call) => {
            format!("{} ({})", call.call, errno(&call.io_error))
        }
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_compiled_has_a_remedy_of_its_own() {
        let refused = |number, log: &str| {
            let reason = std::io::Error::from_raw_os_error(number);
            Error::not_loaded("sheaf_in", reason, log.to_owned()).to_string()
        };
        let remedy = "the kernel cannot compile the program sheaf_in; sysctl \
                      net.core.bpf_jit_enable=1, or use a kernel with CONFIG_BPF_JIT";
        assert_eq!(refused(524, ""), remedy);
        let log = "processed 9 insns\ncallbacks are not allowed in non-JITed programs\n";
        assert_eq!(refused(nix::libc::EINVAL, log), remedy);
        assert!(refused(nix::libc::EINVAL, "R1 invalid").contains("EINVAL"));
    }

    #[test]
    fn a_refused_program_is_one_line_and_its_log_is_kept() {
        let log = "0: R1=ctx()\n1: exit\n";
        let error = Error::Refused {
            name: "sheaf_window",
            reason: std::io::Error::from_raw_os_error(nix::libc::EINVAL),
            log: log.to_owned(),
        };
        assert_eq!(
            error.to_string(),
            "the kernel refuses the program sheaf_window (EINVAL); sheaf -v prints its reasons"
        );
        assert_eq!(error.log(), Some(log));
    }
}
