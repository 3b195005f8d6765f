//! The command line of `sheaf trunk`.

use crate::grammar::{self, Words};
use crate::rule::{self, Vocabulary};
use anyhow::{Context, bail, ensure};
use sheaf_aggregate::{Rule, Rules, Verdict};
use sheaf_netio::carrier::Mac;
use sheaf_netio::ip;
use sheaf_trunk::{DeliveryMode, Scheduler};
use sheaf_wire::ip::Ip;
use sheaf_wire::trunk::MAX_LINKS;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The UDP port where none is given: no assigned one, and below Linux's ephemeral ports.
pub const PORT: u16 = 7431;

/// Where the other end of an Ethernet member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Its link address.
    Mac(Mac),
    /// An address that the neighbour table resolves.
    Address(IpAddr),
}

/// A link, as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spec {
    /// Ethernet frames of our own type.
    Ethernet {
        /// Interface.
        dev: String,
        /// The other end.
        peer: Peer,
        /// Packets that the interface's queue holds, where that is to rule instead of a learned
        /// rate.
        queue: Option<u32>,
    },
    /// UDP datagrams.
    Path {
        /// Our end.
        local: SocketAddr,
        /// The interface; without it, the one that has the address.
        dev: Option<String>,
        /// The other end; without it, it is learned.
        remote: Option<SocketAddr>,
    },
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spec::Ethernet { dev, peer, queue } => {
                write!(f, "dev {dev}")?;
                queue.iter().try_for_each(|queue| write!(f, " queue {queue}"))?;
                match peer {
                    Peer::Mac(mac) => {
                        let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
                        write!(f, " peer {mac}")
                    }
                    Peer::Address(peer) => write!(f, " peer {peer}"),
                }
            }
            Spec::Path { local, dev, remote } => {
                write!(f, "path {local}")?;
                dev.iter().try_for_each(|dev| write!(f, "@{dev}"))?;
                remote.iter().try_for_each(|remote| write!(f, " {remote}"))
            }
        }
    }
}

/// How the kernel schedules the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Before every ordinary process (SCHED_RR).
    Realtime,
    /// As it was started.
    Normal,
}

impl Priority {
    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Priority::Realtime => "realtime",
            Priority::Normal => "normal",
        }
    }
}

/// What the command line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    /// Name of the interface to make.
    pub name: String,
    /// Its links, in the order in which both ends number them.
    pub members: Vec<Spec>,
    /// Who decides which link a packet takes.
    pub scheduler: Scheduler,
    /// Bytes of the largest packet; `None`: whatever fits.
    pub mtu: Option<u16>,
    /// Addresses with their prefix lengths.
    pub addresses: Vec<String>,
    /// Whether small packets share frames.
    pub aggregate: bool,
    /// How it is to be scheduled; `None`: real time where that is allowed.
    pub priority: Option<Priority>,
    copies: Rules,
    loose: Rules,
}

const KEYWORDS: [&str; 11] = [
    "dev",
    "queue",
    "peer",
    "path",
    "scheduler",
    "copies",
    "loose",
    "mtu",
    "address",
    "aggregate",
    "priority",
];
const CRITERIA: [&str; 5] = ["proto", "dscp", "sport", "dport", "length"];

impl Arguments {
    /// Reads `words`.
    pub fn parse(words: &[String]) -> anyhow::Result<Arguments> {
        let mut words = Words::new(words);
        let name = name(words.next().unwrap_or_default())?;
        let (mut members, mut devs) = (Vec::new(), Vec::new());
        let (mut copies, mut loose): (Option<Vec<Rule>>, _) = (None, Vec::new());
        let mut arguments = Arguments {
            name,
            members: Vec::new(),
            scheduler: Scheduler::Earliest,
            mtu: None,
            addresses: Vec::new(),
            aggregate: true,
            priority: None,
            copies: Rules { rules: Vec::new(), acks: false },
            loose: Rules { rules: Vec::new(), acks: false },
        };
        while let Some(keyword) = words.next() {
            match keyword {
                "dev" => devs.push((words.value(keyword, "wlan0")?.to_owned(), None)),
                "queue" => {
                    let packets: u32 = grammar::number(keyword, words.value(keyword, "1000")?)?;
                    ensure!(packets >= 8, "queue {packets} leaves a link idle; give at least 8");
                    let dev = devs.last_mut();
                    dev.context("queue stands behind dev; write dev wlan0 queue 1000 peer MAC")?
                        .1 = Some(packets);
                }
                "peer" => {
                    let peer = peer(words.value(keyword, "02:00:00:00:00:01")?)?;
                    ensure!(!devs.is_empty(), "peer stands behind dev; write dev wlan0 peer MAC");
                    let member = |(dev, queue)| Spec::Ethernet { dev, peer, queue };
                    members.extend(devs.drain(..).map(member));
                }
                "path" => members.push(path(&mut words)?),
                "scheduler" => {
                    let choices = [
                        ("earliest", Scheduler::Earliest),
                        ("rr", Scheduler::RoundRobin),
                        ("srr", Scheduler::Srr),
                        ("trr", Scheduler::Trr),
                        ("redundant", Scheduler::Redundant),
                    ];
                    let word = words.only(keyword, "earliest")?;
                    arguments.scheduler = grammar::choice(keyword, word, &choices)?;
                }
                "copies" => copies.get_or_insert_default().extend(rule(keyword, &mut words)?),
                "loose" => loose.extend(rule(keyword, &mut words)?),
                "mtu" => match words.only(keyword, "auto")? {
                    "auto" => {}
                    word => {
                        let size = grammar::size(keyword, word)?;
                        let mtu = u16::try_from(size).ok().filter(|mtu| *mtu >= 576);
                        arguments.mtu = Some(mtu.with_context(|| {
                            format!("mtu {word} is out of range; give 576 to 65535 bytes, or auto")
                        })?);
                    }
                },
                "address" => {
                    let word = words.value(keyword, "10.99.0.1/24")?;
                    let network = grammar::Prefix::parse(keyword, word)?.network;
                    ensure!(
                        !network.is_multicast(),
                        "an interface cannot have address {word}; give that of one host"
                    );
                    let twice = arguments.addresses.iter().any(|known| known == word);
                    ensure!(!twice, "address {word} is given twice; give it once");
                    arguments.addresses.push(word.to_owned());
                }
                "aggregate" => {
                    let word = words.only(keyword, "on")?;
                    arguments.aggregate =
                        grammar::choice(keyword, word, &[("on", true), ("off", false)])?;
                }
                "priority" => {
                    let word = words.only(keyword, "realtime")?;
                    let choices = [Priority::Realtime, Priority::Normal].map(|it| (it.name(), it));
                    arguments.priority = Some(grammar::choice(keyword, word, &choices)?);
                }
                word => return Err(grammar::unknown(word, &KEYWORDS)),
            }
        }
        if let Some((dev, _)) = devs.first() {
            bail!("dev {dev} has no peer; write dev {dev} peer MAC");
        }
        ensure!(
            !members.is_empty(),
            "no link is named; write path LOCAL REMOTE, or dev IF peer MAC"
        );
        let limit = MAX_LINKS;
        ensure!(
            members.len() <= limit,
            "{} links are too many; give at most {limit}",
            members.len()
        );
        if let Some(twice) = (1..members.len()).find(|at| members[..*at].contains(&members[*at])) {
            bail!("{} is given twice; give it once, or another port", members[twice]);
        }
        arguments.members = members;
        arguments.copies.rules = copies.unwrap_or_else(|| vec![voice()]);
        arguments.loose.rules = loose;
        Ok(arguments)
    }

    /// What `packet` needs.
    pub fn care(&self, packet: &[u8]) -> DeliveryMode {
        let Ok(packet) = Ip::parse(packet) else { return DeliveryMode::Order };
        if self.copies.classify(&packet, 0) == Verdict::Gather {
            DeliveryMode::Copies
        } else if self.loose.classify(&packet, 0) == Verdict::Gather {
            DeliveryMode::Loose
        } else {
            DeliveryMode::Order
        }
    }
}

/// Packets of the class that telephones use (RFC 3246).
fn voice() -> Rule {
    Rule { protocol: None, dscp: Some(46), max_len: u16::MAX, ..Rule::default() }
}

fn name(word: &str) -> anyhow::Result<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let good = (1..=15).contains(&word.len()) && word.chars().all(plain);
    ensure!(
        good && !matches!(word, "." | ".."),
        "{word:?} is no interface name; give 1 to 15 letters and digits, like trunk0"
    );
    ensure!(!KEYWORDS.contains(&word), "the interface to make comes first; write trunk0 {word} …");
    Ok(word.to_owned())
}

fn peer(word: &str) -> anyhow::Result<Peer> {
    match (ip::parse_mac(word), word.parse()) {
        (Some(mac), _) if mac[0] & 1 == 0 && mac != [0; 6] => Ok(Peer::Mac(mac)),
        (Some(_), _) => bail!("peer {word} is no single host; give the link address of one"),
        (None, Ok(address)) => Ok(Peer::Address(address)),
        (None, Err(_)) => bail!(
            "peer {word:?} is no link address and no IP address; write it like 02:00:00:00:00:01"
        ),
    }
}

/// What follows `path`: `LOCAL[:PORT][@IF]` and perhaps `REMOTE[:PORT]`.
fn path(words: &mut Words<'_>) -> anyhow::Result<Spec> {
    let word = words.value("path", "192.0.2.7 198.51.100.1")?;
    let (local, dev) = match word.split_once('@') {
        Some((local, dev)) => (local, Some(name(dev)?)),
        None => (word, None),
    };
    let local = socket_address(local)?;
    let one = |end: SocketAddr| {
        let many = end.ip().is_multicast() || end.ip() == IpAddr::V4(Ipv4Addr::BROADCAST);
        ensure!(!many, "path … {end} is no single host; give the address of one");
        Ok(())
    };
    one(local)?;
    // A misspelt keyword is no address, so that it is answered as one.
    let remote = words.peek().filter(|word| word.contains(['.', ':']));
    let remote = remote.map(socket_address).transpose()?;
    if let Some(remote) = remote {
        words.next();
        ensure!(
            remote.is_ipv4() == local.is_ipv4(),
            "path {local} {remote} mixes IPv4 and IPv6; give two of one family"
        );
        ensure!(
            !remote.ip().is_unspecified(),
            "path … {remote} is no host; leave it out, or name one"
        );
        one(remote)?;
    }
    Ok(Spec::Path { local, dev, remote })
}

fn socket_address(word: &str) -> anyhow::Result<SocketAddr> {
    let bare = word.strip_prefix('[').and_then(|word| word.strip_suffix(']')).unwrap_or(word);
    let address = bare.parse::<IpAddr>().map(|address| SocketAddr::new(address, PORT));
    address.or_else(|_| word.parse()).ok().filter(|address| address.port() != 0).with_context(|| {
        format!("path {word:?} is no address; write it like 192.0.2.7:{PORT} or [2001:db8::7]:{PORT}")
    })
}

/// What follows `copies` or `loose`: `match` and criteria, or `none`.
fn rule(keyword: &str, words: &mut Words<'_>) -> anyhow::Result<Option<Rule>> {
    match words.value(keyword, "match dscp ef")? {
        "none" => return Ok(None),
        "match" => {}
        word => return Err(grammar::unknown(word, &["match", "none"])),
    }
    let vocabulary = Vocabulary { keywords: &KEYWORDS, criteria: &CRITERIA };
    let rule = vocabulary.read(words, |rule, word, words| {
        let known = word == "proto";
        if known {
            let protocol = rule::protocol(words.value(word, "udp")?, &[("udp", 17), ("tcp", 6)])?;
            rule.protocol = Some(protocol);
        }
        Ok(known)
    });
    let nothing = || format!("{keyword} match says nothing; write e.g. {keyword} match dscp ef");
    rule?.with_context(nothing).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_wire::ip::example_udp;

    fn parse(line: &str) -> anyhow::Result<Arguments> {
        let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        Arguments::parse(&words)
    }

    fn members(line: &str) -> Vec<String> {
        parse(line).unwrap().members.iter().map(Spec::to_string).collect()
    }

    #[test]
    fn members_of_both_kinds_mix_and_keep_their_order() {
        let line = "t0 dev a queue 99 dev b peer 02:0:0:0:0:1 path 10.0.0.1 10.0.0.2:99 \
                    path [fd00::1]:5@c mtu auto dev d peer fe80::1 path 0.0.0.0@e";
        assert_eq!(
            members(line),
            [
                "dev a queue 99 peer 02:00:00:00:00:01",
                "dev b peer 02:00:00:00:00:01",
                "path 10.0.0.1:7431 10.0.0.2:99",
                "path [fd00::1]:5@c",
                "dev d peer fe80::1",
                "path 0.0.0.0:7431@e",
            ]
        );
        assert_eq!(members("t0 path fd00::1 [fd00::2]"), ["path [fd00::1]:7431 [fd00::2]:7431"]);
    }

    #[test]
    fn voice_is_copied_unless_something_else_is_asked_for() {
        let plain = example_udp(&[0; 20]);
        let mut voice = plain.clone();
        voice[1] = 46 << 2;
        let default = parse("t0 path 10.0.0.1").unwrap();
        assert_eq!(default.care(&voice), DeliveryMode::Copies);
        assert_eq!(default.care(&plain), DeliveryMode::Order);
        let none = parse("t0 path 10.0.0.1 copies none loose match dscp ef").unwrap();
        assert_eq!(none.care(&voice), DeliveryMode::Loose);
        let port = u16::from_be_bytes([plain[22], plain[23]]);
        let other = format!("t0 path 10.0.0.1 copies match proto udp dport {port} length 48");
        assert_eq!(parse(&other).unwrap().care(&plain), DeliveryMode::Copies);
        assert_eq!(parse(&other).unwrap().care(&example_udp(&[0; 21])), DeliveryMode::Order);
        assert_eq!(default.care(&[0xff; 3]), DeliveryMode::Order, "whatever it is");
    }

    #[test]
    fn what_cannot_be_is_refused_with_a_remedy() {
        for (line, remedy) in [
            ("", "like trunk0"),
            ("path 10.0.0.1", "the interface to make comes first"),
            ("a-name-too-long-for-it path 10.0.0.1", "1 to 15"),
            ("t/0 path 10.0.0.1", "like trunk0"),
            ("t0", "no link is named"),
            ("t0 dev a", "write dev a peer MAC"),
            ("t0 queue 9 dev a peer 02:00:00:00:00:01", "queue stands behind dev"),
            ("t0 dev a queue 2 peer 02:00:00:00:00:01", "at least 8"),
            ("t0 peer 02:00:00:00:00:01", "dev wlan0 peer MAC"),
            ("t0 dev a peer 01:00:5e:00:00:01", "link address of one"),
            ("t0 dev a peer x", "02:00:00:00:00:01"),
            ("t0 path 10.0.0.1 fd00::1", "two of one family"),
            ("t0 path 10.0.0.1 0.0.0.0", "leave it out"),
            ("t0 path 10.0.0.1 224.0.0.1", "no single host"),
            ("t0 path ff02::1@eth0", "no single host"),
            ("t0 path 10.0.0.1:0", "192.0.2.7:7431"),
            ("t0 path 10.0.0.1:99999", "192.0.2.7:7431"),
            ("t0 path 10.0.0.1 path 10.0.0.1:7431", "another port"),
            ("t0 path 10.0.0.1 mtu 100", "576"),
            ("t0 path 10.0.0.1 mtu 70000", "65535"),
            ("t0 path 10.0.0.1 address 10.0.0.1/33", "0 to 32 bits"),
            ("t0 path 10.0.0.1 address 10.9.0.1/24 address 10.9.0.1/24", "give it once"),
            ("t0 path 10.0.0.1 scheduler best", "give earliest or rr"),
            ("t0 path 10.0.0.1 priority high", "give realtime or normal"),
            ("t0 path 10.0.0.1 shceduler rr", "did you mean \"scheduler\""),
            ("t0 path 10.0.0.1 copies match", "dscp ef"),
            ("t0 path 10.0.0.1 copies match dcsp ef", "did you mean \"dscp\""),
        ] {
            let error = format!("{:#}", parse(line).unwrap_err());
            assert!(error.contains(remedy), "{line}: {error}");
        }
        let many: String = (1..=17).map(|port| format!(" path 10.0.0.1:{port}")).collect();
        assert!(parse(&format!("t0{many}")).unwrap_err().to_string().contains("at most 16"));
    }
}
