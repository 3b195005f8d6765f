//! Settings of `sheaf emulate`.

use sheaf_emulator::{LinkConfig, PipeConfig, Rule};
use sheaf_netio::lead::Spin;
use sheaf_netio::vnet;
use sheaf_stage::Duration;

/// Length of an Ethernet header in bytes.
const ETHERNET: usize = 14;

/// Where the link is put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Between two interfaces.
    Link([String; 2]),
    /// On one interface.
    Dev {
        /// Its name.
        dev: String,
        /// Whether packets that leave by it are emulated.
        egress: bool,
        /// Whether packets that arrive on it are emulated.
        ingress: bool,
    },
    /// Around a command; none is a shell.
    Shell {
        /// Its words.
        command: Vec<String>,
    },
}

impl Mode {
    /// The interfaces that packets come by, in the order in which rules number them.
    pub fn interfaces(&self) -> Vec<&str> {
        match self {
            Mode::Link(ends) => ends.iter().map(String::as_str).collect(),
            Mode::Dev { dev, .. } => vec![dev],
            Mode::Shell { .. } => Vec::new(),
        }
    }

    /// Whether packets are Ethernet frames.
    pub fn ethernet(&self) -> bool {
        !matches!(self, Mode::Shell { .. })
    }
}

/// Kind of the links.
#[derive(Clone, Debug, PartialEq)]
pub enum Plan {
    /// One each way.
    Links(Box<[LinkConfig; 2]>),
    /// As rules say.
    Rules(RuleSet),
}

/// Settings of the service.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where.
    pub mode: Mode,
    /// What.
    pub plan: Plan,
    /// The seed of all chances, drawn where none was given.
    pub seed: u64,
    /// Settings of the run.
    pub run: Run,
}

/// Settings of the program, whatever it emulates.
#[derive(Clone, Debug)]
pub struct Run {
    /// `--audit`.
    pub audit: bool,
    /// `--budget`.
    pub budget: Duration,
    /// `--spin`.
    pub spin: Spin,
    /// `--awake`.
    pub awake: bool,
    /// `--fifo`.
    pub fifo: Option<u8>,
    /// `--pcap`.
    pub pcap: Option<String>,
    /// `--gro`.
    pub gro: Option<Duration>,
}

/// Rules and pipes, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleSet {
    /// `seed`.
    pub seed: Option<u64>,
    /// Pipes by number.
    pub pipes: Vec<(String, PipeConfig)>,
    /// Rules in order.
    pub rules: Vec<Rule>,
}

/// Where IP begins in a packet as the datapath has it: behind the virtio header and, where there
/// is one, Ethernet's.
pub fn link_header(mode: &Mode) -> usize {
    vnet::LEN + if mode.ethernet() { ETHERNET } else { 0 }
}
