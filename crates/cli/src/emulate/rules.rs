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
//! [[rule]]                                    # the first that matches decides
//! protocol = "udp"
//! destination = "10.0.0.0/8"
//! destination_ports = "5000-5100"
//! dscp = "ef"
//! direction = "out"                           # IF1 to IF2, egress, upwards; or "in"
//! interface = "eth1"                          # where it comes from; of dev the interface itself
//! probability = 0.5
//! pipes = ["slow:1"]                          # one after the other; ":1" is queue 1
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
use sheaf_emulator::queue::weighted::WeightedConfig;
use sheaf_emulator::{Action, Direction, Mask, PipeConfig, Pipes, QueueConfig, Rule, Target};
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
    let mut rules = Vec::new();
    for (number, entry) in (1..).zip(&file.rule) {
        rules.push(rule(entry, &pipes, interfaces).with_context(|| format!("rule {number}"))?);
    }
    ensure!(!rules.is_empty(), "there is no rule; add a table [[rule]]");
    // What the parts cannot see: numbers that do not go together.
    let mut whole = Pipes::new(header, 0);
    for (name, pipe) in &pipes {
        whole.add(pipe.clone()).map_err(|error| anyhow!("pipe {name}: {error}; change it"))?;
    }
    whole.set_rules(rules.clone()).map_err(|error| anyhow!("{error}; change the rule"))?;
    Ok(RuleSet { seed: file.seed, pipes, rules })
}

fn pipe(entry: &Pipe, header: usize, directory: &Path) -> anyhow::Result<PipeConfig> {
    let words: Vec<&str> = entry.link.split_whitespace().collect();
    if words.contains(&"reverse") {
        bail!("a pipe has one direction; make another pipe, and a rule with direction = \"in\"");
    }
    let (mut link, seed) = alone::link(&words, header, directory)?;
    ensure!(seed.is_none(), "a seed is for all pipes; write seed = N at the top of the file");
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
    let pipe = pipe.with_context(|| format!("there is no pipe {name}; add [pipe.{name}]"))?;
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

    #[test]
    fn the_example_of_the_documentation_is_read() {
        let example = files::example(include_str!("rules.rs"));
        let rules = parse(&example, 24, &["eth1", "eth2"], Path::new("")).unwrap();
        assert_eq!(rules.seed, Some(7));
        assert_eq!(rules.pipes[0].0, "slow");
        assert!(matches!(rules.pipes[0].1.link.queue, QueueConfig::Drr(_)));
        let Action::Pipes(targets) = &rules.rules[0].action else { panic!("it has pipes") };
        assert_eq!(targets[..], [Target { pipe: 0, queue: Some(1) }]);
        assert_eq!(rules.rules[0].dscp, Some(46));
        assert_eq!(rules.rules[1].action, Action::Deny);
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
        ] {
            let error = format!("{:#}", parse(text, 24, &["eth1"], Path::new("")).unwrap_err());
            assert!(error.contains(told), "{text}: {error}");
            assert!(!error.contains('\n'), "{text}: {error}");
        }
    }
}
