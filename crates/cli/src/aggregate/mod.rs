//! `sheaf aggregate` and `sheaf split`.
//!
//! * [`arguments`]: the command line;
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

use arguments::{Arguments, Peers, Split};
use sheaf_netio::ip;

/// The grammar of `sheaf aggregate`, for `--help`.
pub const HELP: &str = "\
Usage: sheaf aggregate dev IF { peer ADDR|any | to ADDR [via PREFIX,...] }...
                       [policy busy|forced] [min BYTES|P%] [max BYTES] [timeout TIME] [hold TIME]
                       [inflight N] [backoff N|off] [acks on|off] [match RULE]...
                       [engine auto|kernel|user] [probe on|off]

  peer ADDR    this neighbour splits meta packets; any: every neighbour that does
  to ADDR      a splitter behind routers; via: what is reached through it
  policy busy  wait only while own frames are under way (default); forced: up to timeout
  min, max     bytes that let a queue leave early under forced (500), and of a frame (1500)
  timeout      longest wait under forced (5ms); hold: longest wait under any policy (100ms)
  inflight     frames that may be under way under busy, at least (1)
  backoff      factor: how long a station with full frames leaves a contended channel to
               others, under busy (24); 0 or off: not at all
  acks         gather pure TCP acknowledgements, too (off)
  match        gather what matches; default: match proto udp length 256
  RULE         { proto P | dscp D | sport A[-B] | dport A[-B] | mark M[/MASK] | length BYTES }...
  probe        ask each of them whether it splits (on); off: trust the command line
  engine       kernel: eBPF; user: a TAP interface; auto: kernel where it can be (default)

Example: sheaf split dev wlan0 peer 10.0.0.1       on the neighbour
         sheaf aggregate dev wlan0 peer 10.0.0.2   here, until Ctrl-C";

/// The grammar of `sheaf split`, for `--help`.
pub const SPLIT_HELP: &str = "\
Usage: sheaf split dev IF { peer ADDR|any | from ADDR }... | off

  dev IF       the interface that meta packets arrive on
  peer ADDR    take those of this neighbour apart; any: every neighbour's
  from ADDR    take those of this far end apart, which is behind routers
  off          take the splitter off

Example: sheaf split dev wlan0 peer 10.0.0.1";

/// `sheaf aggregate`: runs until it is interrupted.
pub fn aggregate(words: &[String]) -> anyhow::Result<()> {
    daemon::run(&Arguments::parse(words)?)
}

/// `sheaf split`: puts a splitter on an interface, or takes it off.
pub fn split(words: &[String]) -> anyhow::Result<()> {
    let Split { dev, peers } = Split::parse(words)?;
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
