//! `sheaf aggregate` and `sheaf split`.
//!
//! * [`words`]: the command lines; [`arguments`]: what they say;
//! * [`daemon`]: who shares frames with whom, time, and questions from `sheaf show`;
//! * [`engine`]: what carries the packets: [`kernel`] (eBPF) or [`user`] (a TAP interface);
//! * [`device`]: whether the interface keeps the order of frames or has fair queues;
//! * [`hops`]: next hops and far ends; [`life`]: whether each splits; [`probe`]: how that is asked.

mod arguments;
mod daemon;
mod device;
mod engine;
mod hops;
mod kernel;
mod life;
mod probe;
mod user;
mod words;

use crate::words::{Spelling, help};
use arguments::{Peers, Split};
use sheaf_netio::ip;

/// Every form of the command line of `sheaf aggregate`.
pub const GRAMMARS: &[&dyn Spelling] = &[&words::GRAMMAR];

/// Every form of the command line of `sheaf split`.
pub const SPLIT_GRAMMARS: &[&dyn Spelling] = &[&words::SPLIT];

/// The text of `sheaf aggregate --help`.
pub fn help() -> String {
    help::help(GRAMMARS, &[], words::EXAMPLES)
}

/// The text of `sheaf split --help`.
pub fn split_help() -> String {
    help::help(SPLIT_GRAMMARS, &[], words::SPLIT_EXAMPLES)
}

/// `sheaf aggregate`: runs until it is interrupted.
pub fn aggregate(words: &[String]) -> anyhow::Result<()> {
    daemon::run(&words::GRAMMAR.parse(words)?)
}

/// `sheaf split`: puts a splitter on an interface, or takes it off.
pub fn split(words: &[String]) -> anyhow::Result<()> {
    let Split { dev, peers } = words::SPLIT.parse(words)?;
    let ifindex = ip::index(&dev)?;
    anyhow::ensure!(nix::unistd::geteuid().is_root(), sheaf_bpf::Unsupported::NotRoot);
    match peers {
        None => {
            let was_there = sheaf_bpf::Split::detach(&dev, ifindex)?;
            anyhow::ensure!(was_there, "no splitter on {dev}; nothing to take off");
        }
        Some(peers) => {
            ip::mac(&dev)?;
            attach_split(&dev, ifindex, &peers)?;
        }
    }
    Ok(())
}

fn attach_split(dev: &str, ifindex: u32, peers: &Peers) -> anyhow::Result<()> {
    sheaf_bpf::Split::attach(dev, ifindex, &peers.senders())?;
    Ok(())
}
