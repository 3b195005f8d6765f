//! `sheaf aggregate` and `sheaf split`.

mod arguments;
mod daemon;
mod device;

pub use arguments::HELP;
use arguments::Peers;
use sheaf_bpf::Split;
use sheaf_netio::ip;

/// `sheaf aggregate`: runs until it is interrupted.
pub fn aggregate(words: &[String]) -> anyhow::Result<()> {
    let arguments = arguments::Aggregate::parse(words)?;
    daemon::run(&arguments)
}

/// `sheaf split`: puts a splitter on an interface, or takes it off.
pub fn split(words: &[String]) -> anyhow::Result<()> {
    let arguments = arguments::Split::parse(words)?;
    let ifindex = ip::index(&arguments.dev)?;
    sheaf_bpf::support()?;
    if arguments.off {
        let was_there = Split::detach(&arguments.dev)?;
        anyhow::ensure!(was_there, "no splitter on {}; nothing to take off", arguments.dev);
        return Ok(());
    }
    ip::mac(&arguments.dev)?;
    attach_split(&arguments.dev, ifindex, &arguments.peers)
}

fn attach_split(dev: &str, ifindex: u32, peers: &Peers) -> anyhow::Result<()> {
    let mut split = Split::attach(dev, ifindex)?;
    match peers {
        Peers::Any => split.accept_any()?,
        Peers::These(peers) => peers.iter().try_for_each(|peer| split.add_peer(*peer))?,
    }
    Ok(())
}
