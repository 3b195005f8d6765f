//! The file of rules and pipes, as dummynet has them: TOML.
//!
//! ```toml
//! seed = 7
//!
//! [pipe.slow]
//! link = "rate 1mbit delay 20ms limit 50"     # as on the command line
//! per_flow = true                             # each 5-tuple has a link of its own; or, as in
//!                                             # ipfw,
//! # mask = "src-ip 0xffffff00 dst-port 0xffff"  # each of what these bits tell apart
//! flows = 1024                                # links for flows at most
//! expire = "60s"                              # an idle flow's link goes after so long
//! weights = [1, 3]                            # shares of queue 0 and 1
//! scheduler = "drr"                           # or "wf2q"
//!
//! [class.home]                                # classes as of HTB; one without a parent is a root
//! rate = "20mbit 24"                          # the line; 24 bytes for each packet, as of a link
//!
//! [class.calls]
//! parent = "home"
//! rate = "2mbit"                              # whatever the others send
//! ceil = "20mbit"                             # the most, with what others leave; else rate
//! prio = 0                                    # whom others lend to first: 0 to 7
//! quantum = 1514                              # share of what is lent to several; else by rate
//! burst = "1600"                              # bytes that it saves up of its rate while idle
//! cburst = "1600"                             # the same of its ceil
//! link = "delay 20ms loss 1% limit 50"        # its leaf: a link as of a pipe
//!
//! [[rule]]                                    # the first that matches decides
//! protocol = "udp"
//! destination = "10.0.0.0/8"
//! destination_ports = "5000-5100"
//! dscp = "ef"
//! direction = "out"                           # IF1 to IF2, egress, upwards; or "in"
//! interface = "eth1"                          # where it comes from; of dev the interface itself
//! probability = 0.5
//! pipes = ["slow:1", "calls"]                 # one after the other; ":1" is queue 1
//!
//! [[rule]]
//! action = "deny"                             # or "pass", as what no rule matches
//! ```

use super::files;
use super::words::alone;
use crate::words::value;
use anyhow::{Context, anyhow, bail, ensure};
use serde::Deserialize;
use sheaf_daemon::emulate::settings::RuleSet;
use sheaf_emulator::classes::{BURST, quantum};
use sheaf_emulator::queue::weighted::WeightedConfig;
use sheaf_emulator::{
    Action, ClassConfig, ConfigError, Direction, LinkConfig, Mask, Overhead, PipeConfig, Pipes,
    QueueConfig, Rule, Target, units,
};
use sheaf_stage::Bitrate;
use sheaf_wire::ip::Protocol;
use sheaf_wire::prefix;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    seed: Option<u64>,
    #[serde(default)]
    pipe: BTreeMap<String, Pipe>,
    #[serde(default)]
    class: BTreeMap<String, Class>,
    #[serde(default)]
    rule: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pipe {
    link: String,
    #[serde(default)]
    per_flow: bool,
    mask: Option<String>,
    flows: Option<u32>,
    expire: Option<String>,
    weights: Option<Vec<u32>>,
    scheduler: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Class {
    parent: Option<String>,
    rate: String,
    ceil: Option<String>,
    prio: Option<u8>,
    quantum: Option<toml::Value>,
    burst: Option<toml::Value>,
    cburst: Option<toml::Value>,
    link: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    protocol: Option<String>,
    source: Option<String>,
    destination: Option<String>,
    source_ports: Option<String>,
    destination_ports: Option<String>,
    dscp: Option<String>,
    direction: Option<String>,
    interface: Option<String>,
    probability: Option<f64>,
    action: Option<String>,
    pipes: Option<Vec<String>>,
    /// A guess that deserves more than that the key is unknown.
    class: Option<String>,
}

/// The most links for the flows of one pipe.
const MOST_FLOWS: u32 = 65_536;

/// Reads `file` for packets whose IP header begins at byte `header` and that come by `interfaces`.
pub fn read(file: &str, header: usize, interfaces: &[&str]) -> anyhow::Result<RuleSet> {
    let text = files::read(file)?;
    let directory = Path::new(file).parent().unwrap_or(Path::new(""));
    parse(&text, header, interfaces, directory).with_context(|| file.to_owned())
}

fn parse(
    text: &str,
    header: usize,
    interfaces: &[&str],
    directory: &Path,
) -> anyhow::Result<RuleSet> {
    let file: File = files::toml(text)?;
    let mut pipes = Vec::new();
    for (name, entry) in &file.pipe {
        let pipe = pipe(entry, header, directory).with_context(|| format!("pipe {name}"))?;
        pipes.push((name.clone(), pipe));
    }
    for name in in_order(&file.class)? {
        ensure!(
            !file.pipe.contains_key(name),
            "{name} is a pipe and a class; give one of them another name"
        );
        let class = class(&file.class, name, &pipes, header, directory);
        let class = class.with_context(|| format!("class {name}"))?;
        pipes.push((name.to_owned(), class));
    }
    let mut rules = Vec::new();
    for (number, entry) in (1..).zip(&file.rule) {
        rules.push(rule(entry, &pipes, interfaces).with_context(|| format!("rule {number}"))?);
    }
    ensure!(!rules.is_empty(), "there is no rule; add a table [[rule]]");
    // What the parts cannot see: numbers that do not go together.
    let mut whole = Pipes::new(header, 0);
    for (name, pipe) in &pipes {
        let parent = pipe.class.as_ref().map(|class| class.parent);
        whole.add(pipe.clone()).map_err(|error| match (error, parent) {
            (ConfigError::RatesAbove { all, above }, Some(Some(parent))) => anyhow!(
                "class {name}: those below {} have {} together, more than its rate {}; lower \
                 one of them, or raise that of {}",
                pipes[parent].0,
                units::rate_text(all),
                units::rate_text(above),
                pipes[parent].0
            ),
            (error, Some(_)) => anyhow!("class {name}: {error}; change it"),
            (error, None) => anyhow!("pipe {name}: {error}; change it"),
        })?;
    }
    whole.set_rules(rules.clone()).map_err(|error| anyhow!("{error}; change the rule"))?;
    Ok(RuleSet { seed: file.seed, pipes, rules })
}

fn pipe(entry: &Pipe, header: usize, directory: &Path) -> anyhow::Result<PipeConfig> {
    let words: Vec<&str> = entry.link.split_whitespace().collect();
    let mut link = one_way("pipe", &words, header, directory)?;
    if let Some(weights) = &entry.weights {
        let config = WeightedConfig::new(weights.clone());
        let name = entry.scheduler.as_deref().unwrap_or("drr");
        let drr = value::choice("scheduler", name, &[("drr", true), ("wf2q", false)])?;
        link.queue = if drr { QueueConfig::Drr(config) } else { QueueConfig::Wf2q(config) };
    } else if entry.scheduler.is_some() {
        bail!("a scheduler without weights; add weights = [1, 3]");
    }
    let mask = match (&entry.mask, entry.per_flow) {
        (Some(_), true) => bail!("mask and per_flow say different things; give one of them"),
        (Some(words), false) => words.parse().map_err(|error| {
            anyhow!("mask: {error}; write it like mask = \"src-ip 0xffffff00\"")
        })?,
        (None, true) => Mask::FLOW,
        (None, false) => {
            let given = entry.flows.is_some() || entry.expire.is_some();
            ensure!(!given, "flows and expire are for pipes by flow; add mask or per_flow = true");
            return Ok(PipeConfig::shared(link));
        }
    };
    let mut pipe = PipeConfig::per_flow(link, mask);
    if let Some(flows) = entry.flows {
        ensure!((1..=MOST_FLOWS).contains(&flows), "flows {flows}; give 1 to {MOST_FLOWS}");
        pipe.max_flows = flows;
    }
    if let Some(word) = &entry.expire {
        let time = value::time(word);
        let expire =
            time.with_context(|| format!("expire {word:?} is not a time; write it like 60s"))?;
        pipe.expire = Some(expire);
    }
    Ok(pipe)
}

/// Names of the classes, those above others first.
fn in_order(classes: &BTreeMap<String, Class>) -> anyhow::Result<Vec<&str>> {
    let mut order: Vec<&str> = Vec::new();
    let mut left: Vec<&str> = classes.keys().map(String::as_str).collect();
    while !left.is_empty() {
        let before = left.len();
        left.retain(|name| {
            let parent = classes[*name].parent.as_deref();
            let placed = parent.is_none_or(|parent| order.contains(&parent));
            if placed {
                order.push(name);
            }
            !placed
        });
        if left.len() < before {
            continue;
        }
        for name in &left {
            let parent = classes[*name].parent.as_deref().unwrap_or_default();
            ensure!(
                classes.contains_key(parent),
                "class {name}: there is no class {parent}; add [class.{parent}], or give another \
                 parent"
            );
        }
        // Each of these has a parent among them: who follows it long enough goes in a circle.
        let above = |name: &&str| classes[*name].parent.as_deref();
        let in_circle = std::iter::successors(left.first().copied(), above).nth(left.len());
        let name = in_circle.unwrap_or_default();
        let parent = classes[name].parent.as_deref().unwrap_or_default();
        bail!("class {name} is below itself, by its parent {parent}; give it another parent");
    }
    Ok(order)
}

/// Reads class `name`, behind the `pipes` and the classes above it.
fn class(
    classes: &BTreeMap<String, Class>,
    name: &str,
    pipes: &[(String, PipeConfig)],
    header: usize,
    directory: &Path,
) -> anyhow::Result<PipeConfig> {
    let entry = &classes[name];
    let parent = entry.parent.as_ref();
    let parent = parent.and_then(|parent| pipes.iter().position(|(pipe, _)| pipe == parent));
    let below = classes.iter().find(|(_, other)| other.parent.as_deref() == Some(name));
    let (rate, overhead) = line_rate(&entry.rate, header)?;
    let plain = entry.rate.split_whitespace().count() == 1;
    ensure!(
        parent.is_none() || plain,
        "rate {:?}: what packets cost beyond their bytes is said by the root; leave it out here",
        entry.rate
    );
    let ceil = match &entry.ceil {
        None => rate,
        Some(word) => units::rate(word)
            .with_context(|| format!("ceil {word:?} is not a rate; write it like 10mbit"))?,
    };
    if let (true, Some(parent)) = (ceil < rate, &entry.parent) {
        bail!(
            "ceil {} is below rate {}; raise it, or leave it out to lend nothing of {parent}",
            units::rate_text(ceil),
            units::rate_text(rate)
        );
    }
    ensure!(
        parent.is_some() || ceil == rate,
        "a root has nobody to borrow from; leave out ceil, or give it a parent"
    );
    let size = |key: &str, given: &Option<toml::Value>, default| match given {
        None => Ok(default),
        Some(toml::Value::Integer(bytes)) if *bytes >= 0 => Ok(*bytes as u64),
        Some(value) => value.as_str().and_then(units::size).with_context(|| {
            format!("{key} {value} is not a number of bytes; write it like 1600 or \"15k\"")
        }),
    };
    let class = ClassConfig {
        parent,
        rate,
        ceil,
        prio: entry.prio.unwrap_or(0),
        quantum: size("quantum", &entry.quantum, quantum(rate))?,
        burst: size("burst", &entry.burst, BURST)?,
        cburst: size("cburst", &entry.cburst, BURST)?,
        overhead,
    };
    if let (Some((other, _)), true) = (below, entry.link.is_some() || entry.prio.is_some()) {
        bail!("class {other} is below it, so no packet takes its link; leave out link and prio");
    }
    let words: Vec<&str> = entry.link.as_deref().unwrap_or_default().split_whitespace().collect();
    Ok(PipeConfig::class(class, one_way("class", &words, header, directory)?))
}

/// Reads the rate of a class, with what a packet costs beyond its bytes, as of a link.
fn line_rate(text: &str, header: usize) -> anyhow::Result<(Bitrate, Overhead)> {
    let words: Vec<&str> = std::iter::once("rate").chain(text.split_whitespace()).collect();
    let (link, _) = alone::link(&words, header, Path::new(""))?;
    let plain = LinkConfig { rate: link.rate, overhead: link.overhead, ..plain(header)? };
    ensure!(link == plain, "rate {text:?} is a rate and no more; write it like \"10mbit 24\"");
    Ok((link.rate.context("rate lacks its value; write it like 10mbit")?, link.overhead))
}

/// A link of which nothing is said.
fn plain(header: usize) -> anyhow::Result<LinkConfig> {
    Ok(alone::link(&[], header, Path::new(""))?.0)
}

/// Reads the LINK of a `kind` that has one direction and the seed of all.
fn one_way(
    kind: &str,
    words: &[&str],
    header: usize,
    directory: &Path,
) -> anyhow::Result<LinkConfig> {
    if words.contains(&"reverse") {
        bail!(
            "a {kind} has one direction; make another {kind}, and a rule with direction = \"in\""
        );
    }
    let (link, seed) = alone::link(words, header, directory)?;
    ensure!(seed.is_none(), "a seed is for all pipes; write seed = N at the top of the file");
    Ok(link)
}

fn rule(
    entry: &Entry,
    pipes: &[(String, PipeConfig)],
    interfaces: &[&str],
) -> anyhow::Result<Rule> {
    let mut rule = Rule::default();
    if let Some(word) = &entry.protocol {
        rule.protocol = Some(Protocol(match word.as_str() {
            "tcp" => 6,
            "udp" => 17,
            "icmp" => 1,
            "icmpv6" => 58,
            word => {
                let number = value::number(word).and_then(|number| u8::try_from(number).ok());
                number.with_context(|| {
                    format!("protocol {word:?} is unknown; give tcp, udp, icmp, icmpv6 or a number")
                })?
            }
        }));
    }
    let prefix = |key: &str, word: &Option<String>| {
        let read = |word: &String| {
            prefix::parse(word).map_err(|error| anyhow!("{key} {word:?} is {error}"))
        };
        word.as_ref().map(read).transpose()
    };
    rule.source = prefix("source", &entry.source)?;
    rule.destination = prefix("destination", &entry.destination)?;
    if let Some(word) = &entry.source_ports {
        rule.source_ports = ports("source_ports", word)?;
    }
    if let Some(word) = &entry.destination_ports {
        rule.destination_ports = ports("destination_ports", word)?;
    }
    if let Some(word) = &entry.dscp {
        let class = value::class(word);
        rule.dscp = Some(class.with_context(|| {
            format!("dscp {word:?} is not a class; give 0 to 63, or a name like ef")
        })?);
    }
    if let Some(word) = &entry.direction {
        let directions = [("out", Direction::Out), ("in", Direction::In)];
        rule.direction = Some(value::choice("direction", word, &directions)?);
    }
    if let Some(name) = &entry.interface {
        let number = interfaces.iter().position(|interface| interface == name);
        rule.interface = Some(number.with_context(|| match interfaces {
            [] => format!("interface {name}; a shell has none, so leave it out"),
            known => format!("interface {name} is not emulated; give {}", known.join(" or ")),
        })? as u16);
    }
    if let Some(name) = &entry.class {
        bail!("class {name}: a rule names classes as pipes; write pipes = [\"{name}\"]");
    }
    rule.probability = entry.probability.unwrap_or(1.0);
    rule.action = match (entry.action.as_deref(), &entry.pipes) {
        (Some(word), None) => value::choice("action", word, &[("pass", true), ("deny", false)])
            .map(|pass| if pass { Action::Pass } else { Action::Deny })?,
        (None, Some(names)) => {
            let targets: anyhow::Result<Vec<_>> =
                names.iter().map(|name| target(name, pipes)).collect();
            Action::Pipes(targets?.into())
        }
        _ => bail!("it says nothing, or two things, to do; give either action or pipes"),
    };
    Ok(rule)
}

fn ports(key: &str, word: &str) -> anyhow::Result<RangeInclusive<u16>> {
    value::ports(word)
        .with_context(|| format!("{key} {word:?} is not a range of ports; write it like 5000-5100"))
}

/// `slow`, or `slow:1` for its queue 1.
fn target(word: &str, pipes: &[(String, PipeConfig)]) -> anyhow::Result<Target> {
    let (name, queue) = match word.split_once(':') {
        Some((name, queue)) => {
            let number = value::number(queue).and_then(|number| u16::try_from(number).ok());
            let number = number.with_context(|| {
                format!("queue {queue:?} is not a number; write it like {name}:1")
            })?;
            (name, Some(number))
        }
        None => (word, None),
    };
    let pipe = pipes.iter().position(|(pipe, _)| *pipe == name);
    let pipe = pipe
        .with_context(|| format!("there is no pipe {name}; add [pipe.{name}] or [class.{name}]"))?;
    let is_below = |(_, other): &&(String, PipeConfig)| {
        other.class.as_ref().is_some_and(|class| class.parent == Some(pipe))
    };
    if let Some((below, _)) = pipes.iter().find(is_below) {
        bail!("class {name} has others below it, which packets take; name one, such as {below}");
    }
    if let Some(queue) = queue {
        let queues = match &pipes[pipe].1.link.queue {
            QueueConfig::Drr(config) | QueueConfig::Wf2q(config) => config.weights.len(),
            _ => bail!("pipe {name} has one queue; give it weights, or write {name}"),
        };
        let last = queues - 1;
        ensure!(usize::from(queue) <= last, "pipe {name} has no queue {queue}; give 0 to {last}");
    }
    Ok(Target { pipe, queue })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_emulator::Packet;
    use sheaf_fuzz::{Fuzzer, NUMBERS, play};

    #[test]
    fn the_example_of_the_documentation_is_read() {
        let class = |name: &str, rules: &RuleSet| {
            let place = rules.pipes.iter().position(|(pipe, _)| pipe == name).unwrap();
            (place, rules.pipes[place].1.clone())
        };
        let example = files::example(include_str!("rules.rs"));
        let rules = parse(&example, 24, &["eth1", "eth2"], Path::new("")).unwrap();
        assert_eq!(rules.seed, Some(7));
        assert_eq!(rules.pipes[0].0, "slow");
        assert!(matches!(rules.pipes[0].1.link.queue, QueueConfig::Drr(_)));
        let Action::Pipes(targets) = &rules.rules[0].action else { panic!("it has pipes") };
        let (home, (calls, leaf)) = (class("home", &rules).0, class("calls", &rules));
        let second = Target { pipe: calls, queue: None };
        assert_eq!(targets[..], [Target { pipe: 0, queue: Some(1) }, second]);
        let terms = leaf.class.unwrap();
        assert_eq!((terms.parent, terms.rate), (Some(home), Bitrate::from_mbps(2)));
        assert_eq!((terms.ceil, terms.quantum), (Bitrate::from_mbps(20), 1514));
        assert_eq!(leaf.link.delay.time, sheaf_stage::Duration::from_millis(20));
        // 24 bytes, less the virtio header.
        let line = rules.pipes[home].1.class.clone().unwrap();
        assert_eq!(line.overhead.packet, 24 - sheaf_netio::vnet::LEN as i32);
        assert_eq!(rules.rules[0].dscp, Some(46));
        assert_eq!(rules.rules[1].action, Action::Deny);
    }

    #[test]
    fn the_example_that_packages_install_is_read() {
        let text = include_str!("../../../../packaging/examples/emulate-classes.toml");
        let rules = parse(text, 24, &["eth1", "eth2"], Path::new("")).unwrap();
        let names: Vec<_> = rules.pipes.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["uplink", "calls", "rest", "web", "backup"]);
    }

    /// Whatever is accepted is played: no number in a text may panic, hang, or lose a packet.
    #[test]
    fn damaged_classes_are_refused_in_one_line_or_carry_packets() {
        const ROUNDS: u64 = 5_000;
        let fuzzer = Fuzzer::new(env!("CARGO_MANIFEST_DIR"), "classes", ROUNDS);
        fuzzer.with_words(&NUMBERS).try_texts(|text, rng| {
            // Damage could name a file of this machine.
            if text.contains("--trace") {
                return false;
            }
            match parse(text, 0, &["a", "b"], Path::new("/nonexistent")) {
                Ok(rules) => {
                    let mut pipes = Pipes::new(0, 1);
                    for (_, pipe) in &rules.pipes {
                        pipes.add(pipe.clone()).unwrap();
                    }
                    pipes.set_rules(rules.rules).unwrap();
                    play(pipes, rng, Packet::new);
                    true
                }
                Err(error) => {
                    assert!(!format!("{error:#}").contains('\n'), "{error:#}");
                    false
                }
            }
        });
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        for (text, told) in [
            ("", "add a table [[rule]]"),
            ("[[rule]]\naction = \"pass\"\nport = 3", "line 3"),
            ("[[rule]]\npipes = [\"slow\"]", "rule 1: there is no pipe slow"),
            ("[[rule]]\naction = \"drop\"", "give pass or deny"),
            (
                "[[rule]]\nsource = \"10/8\"\naction = \"pass\"",
                "write it like 10.0.0.2 or 10.0.0.0/8",
            ),
            ("[[rule]]", "give either action or pipes"),
            ("[[rule]]\naction=\"pass\"\nprobability = 2.0", "probability"),
            ("[pipe.a]\nlink = \"rate x\"\n[[rule]]\naction=\"pass\"", "pipe a: rate"),
            ("[pipe.a]\nlink = \"\"\nweights = []\n[[rule]]\naction=\"pass\"", "pipe a"),
            ("[pipe.a]\nlink = \"\"\nmask = \"src 3\"", "not part of a mask"),
            ("[pipe.a]\nlink = \"\"\nmask = \"proto 300\"", "300 is not a mask for proto"),
            ("[pipe.a]\nlink = \"\"\nmask = \"all\"\nper_flow = true", "give one of them"),
            ("[pipe.a]\nlink = \"seed 3\"", "write seed = N at the top"),
            ("[pipe.a]\nlink = \"reverse\"", "make another pipe"),
            ("[pipe.a]\nlink = \"\"\n[[rule]]\npipes = [\"a:1\"]", "give it weights"),
            (
                "[pipe.a]\nlink = \"\"\nweights = [1, 2]\n[[rule]]\npipes = [\"a:2\"]",
                "pipe a has no queue 2; give 0 to 1",
            ),
            ("[pipe.a]\nlink = \"\"\nflows = 3", "add mask or per_flow"),
            ("[pipe.a]\nlink = \"\"\nper_flow = true\nflows = 0", "give 1 to 65536"),
            ("[pipe.a]\nlink = \"\"\nper_flow = true\nexpire = \"5\"", "write it like 60s"),
            ("[[rule]]\ninterface = \"eth7\"\naction = \"pass\"", "not emulated; give eth1"),
            ("[[rule]]\ndirection = \"up\"\naction = \"pass\"", "give out or in"),
            ("[[rule]]\nclass = \"a\"", "write pipes = [\"a\"]"),
            ("[class.a]\nceil = \"1mbit\"", "missing field `rate`"),
            ("[class.a]\nrate = \"10\"", "class a: rate 10 has no unit; write 10mbit"),
            (
                "[class.a]\nrate = \"0\"\n[[rule]]\naction = \"pass\"",
                "class a: rate of a class must not be zero; change it",
            ),
            ("[class.a]\nrate = \"1mbit delay 1ms\"", "is a rate and no more"),
            ("[class.a]\nrate = \"1mbit\"\nceil = \"2mbit\"", "a root has nobody to borrow from"),
            ("[class.a]\nrate = \"1mbit\"\nparent = \"b\"", "class a: there is no class b; add"),
            ("[class.a]\nrate = \"1mbit\"\nparent = \"a\"", "class a is below itself, by its"),
            (
                "[class.a]\nrate = \"1mbit\"\nparent = \"b\"\n[class.b]\nrate = \"1mbit\"\n\
                 parent = \"c\"\n[class.c]\nrate = \"1mbit\"\nparent = \"b\"",
                "is below itself, by its parent",
            ),
            (
                "[pipe.a]\nlink = \"\"\n[class.b]\nrate = \"1mbit\"\nparent = \"a\"",
                "class b: there is no class a",
            ),
            ("[pipe.a]\nlink = \"\"\n[class.a]\nrate = \"1mbit\"", "a is a pipe and a class"),
            (
                "[class.a]\nrate = \"4mbit\"\n[class.b]\nrate = \"3mbit\"\nceil = \"2mbit\"\n\
                 parent = \"a\"",
                "class b: ceil 2mbit is below rate 3mbit; raise it",
            ),
            (
                "[class.a]\nrate = \"4mbit\"\n[class.b]\nrate = \"3mbit\"\nparent = \"a\"\n\
                 [class.c]\nrate = \"2mbit\"\nparent = \"a\"\n[[rule]]\npipes = [\"b\"]",
                "class c: those below a have 5mbit together, more than its rate 4mbit; lower",
            ),
            (
                "[class.a]\nrate = \"4mbit\"\nlink = \"\"\n[class.b]\nrate = \"3mbit\"\n\
                 parent = \"a\"",
                "class a: class b is below it, so no packet takes its link; leave out link",
            ),
            (
                "[class.a]\nrate = \"4mbit\"\n[class.b]\nrate = \"3mbit\"\nparent = \"a\"\n\
                 [[rule]]\npipes = [\"a\"]",
                "class a has others below it, which packets take; name one, such as b",
            ),
            ("[class.a]\nrate = \"1mbit\"\nprio = 8\n[[rule]]\naction = \"pass\"", "more than 7"),
            ("[class.a]\nrate = \"1mbit\"\nburst = -1", "burst -1 is not a number of bytes"),
            ("[class.a]\nrate = \"1mbit\"\nlink = \"reverse\"", "make another class"),
            ("[class.a]\nrate = \"1mbit\"\nlink = \"seed 3\"", "write seed = N at the top"),
            (
                "[class.a]\nrate = \"1mbit\"\nlink = \"rate 1mbit burst 3k\"\n[[rule]]\n\
                 action = \"pass\"",
                "class a: burst is for a link alone",
            ),
        ] {
            let error = format!("{:#}", parse(text, 24, &["eth1"], Path::new("")).unwrap_err());
            assert!(error.contains(told), "{text}: {error}");
            assert!(!error.contains('\n'), "{text}: {error}");
        }
    }
}
