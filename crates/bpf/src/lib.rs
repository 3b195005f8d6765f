//! The kernel engine: the eBPF programs, their loader and their maps.
//!
//! * [`merge`]: gathers small packets at tc egress; goes with its process;
//! * [`split`]: takes meta packets apart at tc ingress; stays;
//! * [`controller`]: keeps time for it;
//! * [`layout`]: the structures that both sides of the maps share;
//! * [`ticker`]: the frames on which due queues leave;
//! * [`window`]: lowers advertised windows; [`window_layout`] has its structures, `table` its flows;
//! * [`mod@support`]: whether this kernel can run them, and why not.
//!
//! The C sources are in `src/c`, compiled by `build.rs` with clang.

mod batch;
pub mod controller;
mod lane;
pub mod layout;
pub mod merge;
pub mod split;
pub mod support;
mod table;
pub mod ticker;
pub mod window;
pub mod window_layout;

pub use controller::Controller;
pub use merge::{Event, Merge};
pub use split::Split;
pub use support::{Unsupported, support};
pub use ticker::Ticker;
pub use window::Window;

use thiserror::Error;

/// Why a program could not be loaded, attached or talked to.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The object does not fit this kernel.
    #[error("the kernel does not take the program: {0}")]
    Load(#[from] aya::EbpfError),
    /// Loading or attaching failed.
    #[error("the kernel refuses the program: {0}")]
    Program(#[from] aya::programs::ProgramError),
    /// A map could not be read or written.
    #[error("a map of the program cannot be used: {0}")]
    Map(#[from] aya::maps::MapError),
    /// A classifier queue could not be made on the interface.
    #[error("the interface takes no classifier: {0}")]
    Classifier(#[from] aya::programs::tc::TcError),
    /// A system call.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// A program or map is not in the object.
    #[error("the object has no {0}")]
    Missing(&'static str),
}
