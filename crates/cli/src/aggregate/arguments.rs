//! The command lines of `sheaf aggregate` and `sheaf split`.

use crate::grammar::{self, Prefix, Words};
use crate::rule::{self, Vocabulary};
use anyhow::{Context, anyhow, bail, ensure};
use sheaf_aggregate::{Config, Policy, Rule, Rules, Senders, Threshold};
use sheaf_wire::ip::Protocol;
use std::net::IpAddr;

/// Which implementation carries the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// The kernel's where it can be, else the one in user space.
    Auto,
    /// eBPF programs.
    Kernel,
    /// A TAP interface and this process.
    User,
}

/// Who shares meta packets with us.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peers {
    /// Every neighbour.
    pub any: bool,
    /// These neighbours.
    pub addresses: Vec<IpAddr>,
    /// These hosts behind routers.
    pub far_ends: Vec<IpAddr>,
}

impl Peers {
    /// Takes the value of `peer`.
    pub fn read(&mut self, words: &mut Words<'_>) -> anyhow::Result<()> {
        match words.value("peer", "10.0.0.2")? {
            "any" => {
                ensure!(!self.any, "peer any is given twice; give it once");
                self.any = true;
            }
            word => {
                let address = grammar::address("peer", word)?;
                ensure!(
                    !self.addresses.contains(&address),
                    "peer {word} is given twice; give it once"
                );
                self.addresses.push(address);
            }
        }
        Ok(())
    }

    /// Takes the value of `from`.
    pub fn read_far_end(&mut self, words: &mut Words<'_>) -> anyhow::Result<()> {
        let word = words.value("from", "10.9.0.1")?;
        ensure!(
            word != "any",
            "from any would trust everybody who can send here; name the far ends"
        );
        let address = grammar::address("from", word)?;
        ensure!(!self.far_ends.contains(&address), "from {word} is given twice; give it once");
        self.far_ends.push(address);
        Ok(())
    }

    /// Whether nobody is named.
    pub fn is_empty(&self) -> bool {
        !self.any && self.addresses.is_empty() && self.far_ends.is_empty()
    }

    /// Those whose meta packets are taken apart.
    pub fn senders(&self) -> Senders {
        Senders {
            any: self.any,
            neighbours: self.addresses.iter().copied().collect(),
            far_ends: self.far_ends.iter().copied().collect(),
        }
    }

    /// Whether `address` is a neighbour among them.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.any || self.addresses.contains(&address)
    }
}

impl std::fmt::Display for Peers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut names: Vec<_> = self.addresses.iter().map(IpAddr::to_string).collect();
        if self.any {
            names.insert(0, "any".to_owned());
        }
        f.write_str(&names.join(" "))
    }
}

/// Where meta packets are split that travel over several hops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FarEnd {
    /// Address of the splitter.
    pub address: IpAddr,
    /// What is reached through it, itself included.
    pub prefixes: Vec<Prefix>,
}

/// What the command line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    /// Name of the interface.
    pub dev: String,
    /// Neighbours that split.
    pub peers: Peers,
    /// Splitters behind routers.
    pub far_ends: Vec<FarEnd>,
    /// Which engine.
    pub engine: Engine,
    /// Whether peers and far ends are asked if they split.
    pub probe: bool,
    /// `min`, where given.
    min: Option<Threshold>,
    /// `max`, where given.
    max: Option<u16>,
    /// Everything else.
    config: Config,
}

const KEYWORDS: [&str; 15] = [
    "dev", "min", "max", "timeout", "hold", "policy", "inflight", "backoff", "peer", "to", "via",
    "match", "acks", "engine", "probe",
];
const CRITERIA: [&str; 6] = ["proto", "dscp", "sport", "dport", "mark", "length"];

impl Arguments {
    /// Reads `words`.
    pub fn parse(words: &[String]) -> anyhow::Result<Arguments> {
        let mut words = Words::new(words);
        let mut config = Config::default();
        let mut rules = Vec::new();
        let (mut dev, mut min, mut max) = (None, None, None);
        let (mut peers, mut far_ends, mut engine) = (Peers::default(), Vec::new(), Engine::Auto);
        let mut probe = true;
        while let Some(keyword) = words.next() {
            match keyword {
                "dev" => dev = Some(words.only(keyword, "wlan0")?.to_owned()),
                "min" => min = Some(threshold(words.only(keyword, "500")?)?),
                "max" => {
                    let bytes = grammar::size(keyword, words.only(keyword, "1500")?)?;
                    max = Some(u16::try_from(bytes).ok().with_context(|| {
                        format!("max {bytes} is out of range; give 100 to 2048 bytes")
                    })?);
                }
                "timeout" => config.timeout = grammar::time(keyword, words.only(keyword, "5ms")?)?,
                "hold" => config.hold = grammar::time(keyword, words.only(keyword, "100ms")?)?,
                "policy" => {
                    let policies = [("busy", Policy::Busy), ("forced", Policy::Forced)];
                    let word = words.only(keyword, "busy")?;
                    config.policy = grammar::choice(keyword, word, &policies)?;
                }
                "inflight" => {
                    config.inflight = grammar::number(keyword, words.only(keyword, "1")?)?;
                    ensure!(config.inflight > 0, "inflight 0 would never send; give 1 or more");
                }
                "backoff" => config.backoff = backoff(words.only(keyword, "24")?)?,
                "peer" => peers.read(&mut words)?,
                "to" => far_ends.push(far_end(&mut words)?),
                "via" => bail!("via stands behind to; write to ADDRESS via PREFIX,…"),
                "match" => rules.push(rule(&mut words)?),
                "acks" => {
                    let word = words.only(keyword, "on")?;
                    config.rules.acks =
                        grammar::choice(keyword, word, &[("on", true), ("off", false)])?;
                }
                "engine" => {
                    let (auto, kernel, user) = (Engine::Auto, Engine::Kernel, Engine::User);
                    let engines = [("auto", auto), ("kernel", kernel), ("user", user)];
                    engine = grammar::choice(keyword, words.only(keyword, "auto")?, &engines)?;
                }
                "probe" => {
                    let word = words.only(keyword, "off")?;
                    probe = grammar::choice(keyword, word, &[("on", true), ("off", false)])?;
                }
                word => return Err(grammar::unknown(word, &KEYWORDS)),
            }
        }
        let limit = sheaf_bpf::layout::RULES;
        ensure!(rules.len() <= limit, "{} rules are too many; give at most {limit}", rules.len());
        if !rules.is_empty() {
            config.rules = Rules { rules, ..config.rules };
        }
        let dev = dev.context("no interface is named; write dev wlan0")?;
        ensure!(
            !peers.is_empty() || !far_ends.is_empty(),
            "nobody is named who can split; give a neighbour (peer 10.0.0.2) or a far end \
             (to 10.9.0.1)"
        );
        Ok(Arguments { dev, peers, far_ends, engine, probe, min, max, config })
    }

    /// The same where the MTU became `mtu` later: what was given is made to fit, too.
    pub fn fitted(&self, mtu: u32) -> anyhow::Result<Config> {
        let limit = u16::try_from(mtu).unwrap_or(u16::MAX);
        let max = self.max.map(|max| max.min(limit));
        let largest = max.unwrap_or(limit);
        let min = self.min.map(|min| match min {
            Threshold::Bytes(bytes) => Threshold::Bytes(bytes.min(largest.into())),
            percent => percent,
        });
        Arguments { max, min, ..self.clone() }.config(mtu)
    }

    /// The parameters on an interface that carries packets of `mtu` bytes. What was not given is
    /// made to fit.
    pub fn config(&self, mtu: u32) -> anyhow::Result<Config> {
        let mut config = self.config.clone();
        config.max =
            self.max.unwrap_or_else(|| config.max.min(u16::try_from(mtu).unwrap_or(u16::MAX)));
        config.min = self.min.unwrap_or(Threshold::Bytes(500.min(u32::from(config.max))));
        config.check()?;
        ensure!(
            u32::from(config.max) <= mtu,
            "max {} is above the MTU of {}, {mtu}; give a max of at most {mtu}",
            config.max,
            self.dev
        );
        Ok(config)
    }
}

/// What the command line of `sheaf split` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// Name of the interface.
    pub dev: String,
    /// Whose meta packets are taken apart; `None` to take the splitter off.
    pub peers: Option<Peers>,
}

impl Split {
    /// Reads `words`.
    pub fn parse(words: &[String]) -> anyhow::Result<Split> {
        let mut words = Words::new(words);
        let (mut dev, mut peers, mut off) = (None, Peers::default(), false);
        while let Some(keyword) = words.next() {
            match keyword {
                "dev" => dev = Some(words.only(keyword, "wlan0")?.to_owned()),
                "peer" => peers.read(&mut words)?,
                "from" => peers.read_far_end(&mut words)?,
                "off" => {
                    ensure!(!off, "off is given twice; give it once");
                    off = true;
                }
                word => return Err(grammar::unknown(word, &["dev", "peer", "from", "off"])),
            }
        }
        let dev = dev.context("no interface is named; write dev wlan0")?;
        match (off, peers.is_empty()) {
            (true, true) => Ok(Split { dev, peers: None }),
            (true, false) => bail!("off takes no peers; leave out either"),
            (false, true) => {
                bail!("nobody is named who sends; give peer ADDRESS, from ADDRESS, or off")
            }
            (false, false) => Ok(Split { dev, peers: Some(peers) }),
        }
    }
}

/// `500` or `40%`.
fn threshold(word: &str) -> anyhow::Result<Threshold> {
    Ok(match word.strip_suffix('%') {
        Some(percent) => Threshold::Percent(grammar::number("min", percent)?),
        None => Threshold::Bytes(grammar::size("min", word)?),
    })
}

/// `24`, or `off` for none.
fn backoff(word: &str) -> anyhow::Result<u32> {
    match word {
        "off" => Ok(0),
        word => grammar::number("backoff", word)
            .map_err(|_| anyhow!("backoff {word:?}; give a number such as 24, or off")),
    }
}

/// What follows `to`: an address, and perhaps `via` and prefixes.
fn far_end(words: &mut Words<'_>) -> anyhow::Result<FarEnd> {
    let address = grammar::address("to", words.value("to", "10.9.0.1")?)?;
    let mut prefixes = vec![Prefix::host(address)];
    if words.peek() == Some("via") {
        words.next();
        for word in words.value("via", "10.9.0.0/24")?.split(',') {
            prefixes.push(Prefix::parse("via", word)?);
        }
    }
    Ok(FarEnd { address, prefixes })
}

/// What follows `match`, up to the next keyword of the command.
fn rule(words: &mut Words<'_>) -> anyhow::Result<Rule> {
    let vocabulary = Vocabulary { keywords: &KEYWORDS, criteria: &CRITERIA };
    let rule = vocabulary.read(words, |rule, word, words| {
        match word {
            "proto" => rule.protocol = protocol(words.value(word, "udp")?)?,
            "mark" => rule.mark = mark(words.value(word, "0x3/0x3")?)?,
            _ => return Ok(false),
        }
        Ok(true)
    });
    rule?.context("match says nothing; write e.g. match proto udp length 256")
}

fn protocol(word: &str) -> anyhow::Result<Option<Protocol>> {
    const NAMES: [(&str, u8); 6] =
        [("udp", 17), ("tcp", 6), ("icmp", 1), ("icmp6", 58), ("ipv6-icmp", 58), ("sctp", 132)];
    if word == "any" {
        return Ok(None);
    }
    let protocol = rule::protocol(word, &NAMES)?;
    let number = protocol.0;
    // 0 and 253 are never gathered: an extension header, and the meta packet itself.
    ensure!(number != 0 && number != 253, "proto {number} is never gathered; give another one");
    Ok(Some(protocol))
}

fn mark(word: &str) -> anyhow::Result<(u32, u32)> {
    let (value, mask) = word.split_once('/').unwrap_or((word, "0xffffffff"));
    let (value, mask): (u32, u32) =
        (grammar::number("mark", value)?, grammar::number("mark", mask)?);
    ensure!(value & !mask == 0, "mark {word} matches nothing; set only bits that the mask has");
    Ok((value, mask))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn parse(line: &str) -> anyhow::Result<Arguments> {
        let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        Arguments::parse(&words)
    }

    #[test]
    fn keywords_stand_in_any_order() {
        let a =
            parse("dev wlan0 min 40% max 1.4kb timeout 3ms hold 30ms policy forced peer 10.0.0.2");
        let b = parse(
            "peer 10.0.0.2 policy forced hold 0.03s timeout 3000us max 1.4kb min 40% dev wlan0",
        );
        // 1.4 kb are no whole number of bytes.
        assert!(a.is_err() && b.is_err());
        let a =
            parse("dev wlan0 min 40% max 1400 timeout 3ms hold 30ms policy forced peer 10.0.0.2");
        let b = parse(
            "peer 10.0.0.2 policy forced hold 0.03s timeout 3000us max 1400 min 40% dev wlan0",
        );
        let (a, b) = (a.unwrap(), b.unwrap());
        assert_eq!(a, b);
        let config = a.config(1500).unwrap();
        assert_eq!((config.min, config.max), (Threshold::Percent(40), 1400));
        assert_eq!(config.timeout, Duration::from_millis(3));
        assert_eq!(config.policy, Policy::Forced);
    }

    #[test]
    fn what_is_not_given_fits_the_interface() {
        let arguments = parse("dev x peer any").unwrap();
        let config = arguments.config(1280).unwrap();
        assert_eq!((config.max, config.min), (1280, Threshold::Bytes(500)));
        assert_eq!(arguments.config(9000).unwrap().max, 1500);
        let config = parse("dev x peer any max 400").unwrap().config(1500).unwrap();
        assert_eq!(config.min, Threshold::Bytes(400));
    }

    #[test]
    fn a_backoff_is_a_number_and_off_is_none() {
        for (line, backoff) in
            [("", 24), ("backoff 6", 6), ("backoff 0", 0), ("match dscp ef backoff off", 0)]
        {
            let config = parse(&format!("dev x peer any {line}")).unwrap().config(1500).unwrap();
            assert_eq!(config.backoff, backoff, "{line}");
        }
    }

    #[test]
    fn what_was_given_fits_an_interface_whose_mtu_shrank() {
        let arguments = parse("dev x peer any max 1500 min 1400 probe off").unwrap();
        assert!(arguments.config(1280).is_err() && !arguments.probe);
        let config = arguments.fitted(1280).unwrap();
        assert_eq!((config.max, config.min), (1280, Threshold::Bytes(1280)));
        assert_eq!(arguments.fitted(9000).unwrap(), arguments.config(9000).unwrap());
    }

    #[test]
    fn a_rule_ends_at_the_next_keyword_of_the_command() {
        let arguments = parse(
            "match proto udp dscp ef dport 5004-5100 length 200 peer 10.0.0.2 \
             match mark 3/3 sport 53 dev x acks on",
        )
        .unwrap();
        let Rules { rules, acks } = arguments.config(1500).unwrap().rules;
        assert!(acks);
        assert_eq!(rules.len(), 2);
        assert_eq!((rules[0].dscp, rules[0].max_len), (Some(46), 200));
        assert_eq!(rules[0].destination_ports, 5004..=5100);
        assert_eq!((rules[1].mark, rules[1].source_ports.clone()), ((3, 3), 53..=53));
        assert_eq!(rules[1].protocol, None);
        assert_eq!(arguments.peers.addresses.len(), 1);
    }

    #[test]
    fn a_far_end_has_what_lies_behind_it() {
        let arguments = parse("dev x to 10.9.0.1 via 10.9.0.0/24,fd00::/64 to fd00::1").unwrap();
        assert_eq!(arguments.far_ends.len(), 2);
        assert_eq!(arguments.far_ends[0].prefixes.len(), 3);
        assert_eq!(arguments.far_ends[0].prefixes[1].to_string(), "10.9.0.0/24");
        assert_eq!(arguments.far_ends[1].prefixes, [Prefix::host("fd00::1".parse().unwrap())]);
    }

    #[test]
    fn every_wrong_line_names_cause_and_remedy() {
        for (line, cause) in [
            ("", "no interface is named; write dev wlan0"),
            ("dev", "dev lacks its value"),
            ("dev x dev y peer any", "dev is given twice"),
            ("dev x", "nobody is named who can split; give a neighbour (peer"),
            ("dev x peer any timout 5ms", "unknown keyword \"timout\"; did you mean \"timeout\"?"),
            ("dev x peer any timeout 5", "write it like 5ms"),
            ("dev x peer any policy eager", "give busy or forced"),
            ("dev x peer any engine fast", "give auto or kernel or user"),
            ("dev x peer any acks maybe", "give on or off"),
            ("dev x peer any probe maybe", "give on or off"),
            ("dev x peer 10.0.0.300", "is no IP address"),
            ("dev x peer 10.0.0.2 peer 10.0.0.2", "given twice"),
            ("dev x peer any peer any", "peer any is given twice"),
            ("dev x peer any inflight 0", "inflight 0 would never send"),
            ("dev x peer any inflight x", "is no number; write it like 3"),
            ("dev x peer any backoff", "backoff lacks its value; write backoff 24"),
            ("dev x peer any backoff on", "backoff \"on\"; give a number such as 24, or off"),
            ("dev x peer any backoff -1", "give a number such as 24, or off"),
            ("dev x peer any backoff 5000000000", "give a number such as 24, or off"),
            ("dev x peer any backoff 6 backoff off", "backoff is given twice"),
            ("dev x peer any bakoff 6", "did you mean \"backoff\"?"),
            ("dev x peer any match length 60 backoff", "backoff lacks its value"),
            ("dev x peer any max 99999", "max 99999 is out of range; give 100 to 2048 bytes"),
            ("dev x peer any match", "match says nothing"),
            ("dev x peer any match peer any", "match says nothing"),
            ("dev x peer any match prot udp", "did you mean \"proto\"?"),
            ("dev x peer any match proto 253", "never gathered"),
            ("dev x peer any match mark 4/3", "matches nothing"),
            ("dev x via 10.0.0.0/8", "via stands behind to"),
            ("dev x to 10.0.0.1 via", "via lacks its value"),
        ] {
            let error = parse(line).unwrap_err().to_string();
            assert!(error.contains(cause) && !error.contains('\n'), "{line}: {error}");
        }
        let many = "match length 60 ".repeat(17);
        assert!(parse(&format!("dev x peer any {many}")).is_err());
    }

    #[test]
    fn a_splitter_tells_neighbours_from_far_ends() {
        let parse = |line: &str| {
            let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
            Split::parse(&words)
        };
        let split = parse("from 10.9.0.1 dev x peer 10.0.0.2 peer 10.9.0.1 from fd00::1").unwrap();
        let Senders { any, neighbours, far_ends } = split.peers.unwrap().senders();
        assert!(!any);
        assert_eq!(neighbours, ["10.0.0.2", "10.9.0.1"].map(|text| text.parse().unwrap()).into());
        assert_eq!(far_ends, ["10.9.0.1", "fd00::1"].map(|text| text.parse().unwrap()).into());
        assert_eq!(parse("dev x off").unwrap().peers, None);
        for (line, cause) in [
            ("dev x", "nobody is named who sends; give peer ADDRESS, from ADDRESS, or off"),
            ("dev x from", "from lacks its value"),
            ("dev x from any", "from any would trust everybody who can send here"),
            ("dev x from 10.9.0.1 from 10.9.0.1", "from 10.9.0.1 is given twice"),
            ("dev x from 10.9.0.1 off", "off takes no peers"),
            ("dev x fro 10.9.0.1", "did you mean \"from\"?"),
        ] {
            let error = parse(line).unwrap_err().to_string();
            assert!(error.contains(cause) && !error.contains('\n'), "{line}: {error}");
        }
    }

    #[test]
    fn limits_of_the_interface_are_checked() {
        let refused = |line: &str| parse(line).unwrap().config(1400).unwrap_err().to_string();
        let error = refused("dev wlan0 peer any max 1500");
        assert_eq!(error, "max 1500 is above the MTU of wlan0, 1400; give a max of at most 1400");
        assert!(refused("dev x peer any max 1000 min 1001").contains("min 1001 is above max 1000"));
        assert!(refused("dev x peer any min 101%").contains("above 100%"));
        assert!(refused("dev x peer any max 4096").contains("out of range"));
        assert!(refused("dev x peer any timeout 200ms").contains("raise hold"));
    }
}
