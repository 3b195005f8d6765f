//! The programs of the published works' authors as sources of traffic on real stacks: [`ping`],
//! [`iperf3`], MGEN ([`mgen`]) and D-ITG ([`ditg`]).
//!
//! Each module has the program's command lines as a function of the plan and a parser of its
//! output. [`process`] starts the programs in namespaces and waits for them. All sources, the lab's
//! own stream too, end in [`Figures`]; `text` is shared by the parsers.

pub mod ditg;
pub mod figures;
pub mod iperf3;
pub mod kind;
pub mod mgen;
pub mod ping;
pub mod process;
mod text;

use crate::link::plan::Point;
use figures::Figures;
use kind::Tool;

/// Runs the program of `tool` over a link from `near` to `far`, which has `address`, and returns
/// its figures.
///
/// # Errors
/// Fails with one line when a program cannot be started, does not end, or its output is refused.
pub fn run(
    tool: Tool,
    point: &Point,
    hosts: [&sheaf_netio::netns::Namespace; 2],
    address: &str,
) -> anyhow::Result<Figures> {
    let [near, far] = hosts;
    match tool {
        Tool::Ping => ping::run(point, near, address),
        Tool::Iperf3 => iperf3::run(point, near, far, address),
        Tool::Mgen => mgen::run(point, near, far, address),
        Tool::Ditg => ditg::run(point, near, far, address),
    }
}
