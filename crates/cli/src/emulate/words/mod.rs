//! The words of `sheaf emulate`.
//!
//! * [`link`]: LINK, the options of tc-netem(8); [`queue`]: KIND, how the rate queue is managed;
//! * [`draft`], [`link_draft`], [`queue_draft`]: what words fill; [`alone`]: one LINK by itself;
//! * here: where the link is put, and how the program runs.

pub mod alone;
mod draft;
mod link;
mod link_draft;
mod queue;
mod queue_draft;

use super::rules;
use crate::words::{Entry, Form, Grammar, Section, Value, flag, form, optional, part, set};
use anyhow::{bail, ensure};
use draft::{Draft, RunDraft};
use link_draft::LinkDraft;
use sheaf_daemon::emulate::settings::{Mode, Plan, Run, link_header};
use sheaf_daemon::emulate::{Change, ClassChange, Settings, many};
use sheaf_daemon::reactor::{Parse, Parsed};
use sheaf_emulator::classes::LAST_PRIO;
use sheaf_netio::clock;
use sheaf_netio::lead::Spin;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Lateness that is allowed at the 99th percentile where `--budget` is not given.
const BUDGET: Duration = Duration::from_millis(1);

/// Longest time for `--gro`: more than a packet's own time on any link that joining helps.
const LONGEST_GRO: Duration = Duration::from_millis(1);

/// The error of `--gro` where nothing is received from an interface of somebody else's.
const NO_GRO: &str = "--gro is for packets between two interfaces; leave it out";

/// The least and the greatest priority of SCHED_FIFO (sched(7)).
const PRIORITIES: std::ops::RangeInclusive<u64> = 1..=99;

impl RunDraft {
    fn settings(self) -> Run {
        Run {
            audit: self.audit,
            budget: self.budget.unwrap_or(BUDGET),
            spin: self.spin.map_or(Spin::Frugal, Spin::UpTo),
            awake: self.awake,
            fifo: self.fifo,
            gro: self.gro,
            pcap: self.pcap,
        }
    }
}

impl Draft {
    fn settings(mut self, mode: Mode) -> anyhow::Result<Settings> {
        let run = std::mem::take(&mut self.run);
        let joins = matches!(mode, Mode::Link(_));
        ensure!(run.gro.is_none() || joins, "{NO_GRO}");
        let header = link_header(&mode);
        let (plan, seed) = match &self.rules {
            Some(file) => {
                let plain = !self.reverse && self.links.iter().all(LinkDraft::is_empty);
                ensure!(plain, "--rules and a LINK are two plans; give one");
                let rules = rules::read(file, header, &mode.interfaces())?;
                let seed = rules.seed.or(self.seed);
                (Plan::Rules(rules), seed)
            }
            None => {
                let seed = self.seed;
                (Plan::Links(Box::new(self.both(header, Path::new(""))?)), seed)
            }
        };
        let seed = seed.unwrap_or_else(drawn);
        Ok(Settings { mode, plan, seed, run: run.settings() })
    }
}

/// A seed that nobody chose, short enough to be typed again.
pub fn drawn() -> u64 {
    clock::now().as_nanos() % 1_000_000
}

/// Notes at the end of `--help`.
pub const NOTES: &[&str] = &[
    "LINK is what tc-netem(8) takes, but times and rates need a unit. It holds in both directions",
    "unless reverse gives another for IF2 to IF1, ingress, or downwards. A rules file (TOML) has",
    "pipes and, in order, rules; the first that matches decides:",
    "  [pipe.NAME]  link = \"LINK\"  per_flow = true | mask = \"src-ip 0xffffff00 …\"",
    "               flows = N  expire = \"60s\"  weights = [1, 3]  scheduler = \"drr\"|\"wf2q\"",
    "  [class.NAME] parent = \"NAME\"  rate = \"R\"  ceil = \"R\"  prio, quantum, burst, cburst,",
    "               link = \"LINK\": as of HTB, with a link as the leaf; a rule names it as a pipe",
    "  [[rule]]     protocol, source, destination, source_ports, destination_ports, dscp,",
    "               direction = \"out\"|\"in\"  interface = \"IF\"  probability = 0.5",
    "               pipes = [\"NAME\", \"NAME:QUEUE\"] | action = \"pass\"|\"deny\"",
    "The file of many links (TOML) has a table for each; keys before the first hold for all:",
    "  name, seed, threads = N; options = \"LINK\"  reverse = \"LINK\": of all links, or of one",
    "  [[link]]     between = [\"IF1\", \"IF2\"]",
    "               | dev = \"IF\"  ways = \"egress\"|\"ingress\"|\"both\"",
    "The file of a medium (TOML) has its channel, and stations with a TAP interface each:",
    "  phy = \"dsss-long\"|\"dsss-short\"|\"erp-dsss\"|\"erp-ofdm\"|\"ofdm\"|\"ht\"|\"ht-short\"",
    "  name, seed, exponent, first_metre, noise, sense, loss, attempts, ampdu, rts, capture;",
    "  rate = MBPS|\"auto\"  power, queue, txqueuelen, mtu: of all stations, or of one",
    "  [[station]]  name, interface, namespace, mac, address, channel, and where it is:",
    "               position = [X, Y] | path = [[SECONDS, X, Y], …]",
];

/// Examples for `--help`.
pub const EXAMPLES: &[&str] = &[
    "sheaf emulate link eth1 eth2 rate 10mbit delay 20ms limit 100",
    "sheaf emulate dev eth0 rate 2mbit sched wf2q+ queue 0 weight 1 queue 1 weight 4 dscp ef",
    "sheaf emulate shell rate 2mbit delay 50ms -- curl http://100.64.0.1/",
    "sheaf emulate links testbed.toml",
    "sheaf emulate medium air.toml --pcap air.pcapng",
];

/// `sheaf emulate link`.
pub static LINK: Grammar<Draft, Settings> = Grammar {
    command: "emulate link",
    about: "a cable with these properties",
    operands: &[
        part("IF1", "eth1", Value::Interface(interface)),
        part("IF2", "eth2", Value::Interface(interface)),
    ],
    operand_help: "",
    operand_about: "",
    sections: &[&link::SECTION, &queue::SECTION, &REVERSE, &RULES, &RUN],
    tail: None,
    finish: |draft| {
        let [one, two] = draft.interfaces.as_slice() else { bail!("link takes two interfaces") };
        ensure!(one != two, "{one} is named twice; a link has two ends");
        let ends = [one.clone(), two.clone()];
        draft.settings(Mode::Link(ends))
    },
};

/// `sheaf emulate dev`.
pub static DEV: Grammar<Draft, Settings> = Grammar {
    command: "emulate dev",
    about: "what one interface carries",
    operands: &[
        part("IF", "eth0", Value::Interface(interface)),
        optional(
            "egress|ingress|both",
            "egress",
            Value::Choice(&[
                ("egress", set!(|d| d.ways = Some((true, false)))),
                ("ingress", set!(|d| d.ways = Some((false, true)))),
                ("both", set!(|d| d.ways = Some((true, true)))),
            ]),
        ),
    ],
    operand_help: "",
    operand_about: "",
    sections: &[&link::SECTION, &queue::SECTION, &REVERSE, &RULES, &RUN],
    tail: None,
    finish: |mut draft| {
        let Some(dev) = draft.interfaces.pop() else { bail!("dev takes an interface") };
        let (egress, ingress) = draft.ways.unwrap_or((true, false));
        ensure!(
            !draft.reverse || (egress && ingress),
            "reverse is for the other direction, which is not emulated; write dev {dev} both, or \
             leave it out"
        );
        draft.settings(Mode::Dev { dev, egress, ingress })
    },
};

/// `sheaf emulate shell`.
pub static SHELL: Grammar<Draft, Settings> = Grammar {
    command: "emulate shell",
    about: "a shell behind the link",
    operands: &[],
    operand_help: "",
    operand_about: "",
    sections: &[&link::SECTION, &queue::SECTION, &REVERSE, &RULES, &RUN],
    tail: Some(set!(|d, command| d.command = command.to_vec())),
    finish: |mut draft| {
        let command = std::mem::take(&mut draft.command);
        draft.settings(Mode::Shell { command })
    },
};

/// `sheaf emulate medium`.
#[cfg(feature = "medium")]
pub static MEDIUM: Grammar<Draft, (sheaf_daemon::emulate::medium::Settings, Run)> = Grammar {
    command: "emulate medium",
    about: "stations on an 802.11 channel",
    operands: &[part("FILE", "air.toml", Value::File(set!(|d, file| d.file = file.to_owned())))],
    operand_help: "",
    operand_about: "",
    sections: &[&RUN],
    tail: None,
    finish: |draft| {
        ensure!(draft.run.gro.is_none(), "{NO_GRO}");
        Ok((super::medium::read(&draft.file)?, draft.run.settings()))
    },
};

/// `sheaf emulate links`.
pub static LINKS: Grammar<Draft, many::Settings> = Grammar {
    command: "emulate links",
    about: "many links, in one process",
    operands: &[part("FILE", "links.toml", Value::File(set!(|d, file| d.file = file.to_owned())))],
    operand_help: "",
    operand_about: "",
    sections: &[&RUN],
    tail: None,
    finish: |draft| {
        let run = draft.run.settings();
        ensure!(
            run.pcap.is_none(),
            "--pcap captures one link; leave it out, or write link IF1 IF2"
        );
        let joins = run.gro.is_some();
        let settings = super::links::read(&draft.file, run)?;
        let cable = settings.links.iter().any(|link| matches!(link.mode, Mode::Link(_)));
        ensure!(!joins || cable, "{NO_GRO}");
        Ok(settings)
    },
};

/// `sheaf emulate change`.
pub static CHANGE: Grammar<Draft, (String, Draft)> = Grammar {
    command: "emulate change",
    about: "another LINK, or terms of a class; nothing queued is lost",
    operands: &[
        part("dev|link", "dev", Value::Choice(&[("dev", |_| Ok(())), ("link", |_| Ok(()))])),
        part("IF", "eth0", Value::Interface(interface)),
    ],
    operand_help: "",
    operand_about: "",
    sections: &[&PIPE, &CLASS, &link::SECTION, &queue::SECTION, &REVERSE],
    tail: None,
    finish: |mut draft| {
        let Some(dev) = draft.interfaces.pop() else { bail!("change takes an interface") };
        ensure!(draft.seed.is_none(), "a seed cannot be changed; start again with another");
        Ok((dev, draft))
    },
};

/// Returns the reader of what the emulation of `settings` is asked to change to.
pub fn parse_change(settings: &Settings) -> Parse<Change> {
    let header = link_header(&settings.mode);
    let pipes = matches!(settings.plan, Plan::Rules(_));
    // Of `dev` in one way only the other LINK would change nothing.
    let both = !matches!(settings.mode, Mode::Dev { egress, ingress, .. } if egress != ingress);
    Arc::new(move |words, directory| {
        let mut draft = CHANGED.parse(words)?;
        ensure!(draft.seed.is_none(), "a seed cannot be changed; start again with another");
        if let Some((name, terms)) = draft.class.take() {
            ensure!(pipes, "there are no classes here; leave out class {name}");
            let plain = draft.links.iter().all(LinkDraft::is_empty);
            ensure!(
                plain && !draft.reverse && draft.pipe.is_none(),
                "class {name} and a LINK are two changes; write pipe {name} for its link"
            );
            return Ok(Parsed::new(Change::Class(name, terms)));
        }
        ensure!(
            both || !draft.reverse,
            "reverse is for the other direction, which is not emulated; leave it out"
        );
        let Some(name) = draft.pipe.clone() else {
            let links = Box::new(draft.both(header, directory)?);
            return Ok(Parsed::new(Change::Links(links)));
        };
        ensure!(pipes, "there are no pipes here; leave out pipe {name}");
        ensure!(!draft.reverse, "a pipe has one direction; leave out reverse");
        let [config, _] = draft.both(header, directory)?;
        Ok(Parsed::new(Change::Pipe(name, Box::new(config))))
    })
}

/// Returns the reader of what one of many links is asked to change to.
pub fn parse_change_of(settings: &many::Settings) -> Parse<many::ChangeOf> {
    let header = link_header(&settings.links[0].mode);
    let one_way = settings.links.iter().filter_map(|member| match &member.mode {
        Mode::Dev { dev, egress, ingress } if egress != ingress => Some(dev.clone()),
        _ => None,
    });
    let one_way: Vec<String> = one_way.collect();
    Arc::new(move |words, directory| {
        let mut draft = CHANGED.parse(words)?;
        ensure!(draft.seed.is_none(), "a seed cannot be changed; start again with another");
        ensure!(draft.pipe.is_none(), "there are no pipes here; leave out pipe");
        ensure!(draft.class.is_none(), "there are no classes here; leave out class");
        let Some(of) = draft.of.take() else {
            bail!("there are many links here; name an interface: change link IF")
        };
        ensure!(
            !draft.reverse || !one_way.contains(&of),
            "reverse is for the other direction, which is not emulated; leave it out"
        );
        let links = Box::new(draft.both(header, directory)?);
        Ok(Parsed::new((of, Change::Links(links))))
    })
}

/// The words of a change as the running emulation receives them: [`CHANGE`] with its interface in
/// the words, for whom has many.
static CHANGED: Grammar<Draft, Draft> = Grammar {
    command: "emulate change",
    about: "",
    operands: &[],
    operand_help: "",
    operand_about: "",
    sections: &[&OF, &PIPE, &CLASS, &link::SECTION, &queue::SECTION, &REVERSE],
    tail: None,
    finish: Ok,
};

/// Settings of `sheaf emulate show`.
#[derive(Default)]
pub struct Show {
    /// The interface.
    pub dev: String,
    /// As JSON.
    pub json: bool,
}

/// `sheaf emulate show`.
pub static SHOW: Grammar<Show, Show> = Grammar {
    command: "emulate show",
    about: "what it did so far",
    operands: &[part("IF|NAME", "eth0", Value::Interface(set!(|d, dev| d.dev = dev.to_owned())))],
    operand_help: "",
    operand_about: "",
    sections: &[&Section {
        title: "Others",
        about: "",
        name: "",
        entries: &[Entry {
            name: "--json",
            help: "with show: as JSON",
            about: "With `show`: as JSON.",
            forms: &[flag(set!(|d| d.json = true), "")],
            ..Entry::ONCE
        }],
    }],
    tail: None,
    finish: Ok,
};

/// `sheaf emulate stop`.
pub static STOP: Grammar<String, String> = Grammar {
    command: "emulate stop",
    about: "ends it as Ctrl-C does",
    operands: &[part(
        "IF|NAME",
        "eth0",
        Value::Interface(set!(|dev, word| *dev = word.to_owned())),
    )],
    operand_help: "",
    operand_about: "",
    sections: &[],
    tail: None,
    finish: Ok,
};

/// Settings of `sheaf emulate dist`.
#[derive(Default)]
pub struct Dist {
    /// The output of `ping`.
    pub log: String,
    /// The file that the distribution is written to.
    pub out: Option<String>,
}

/// `sheaf emulate dist`.
pub static DIST: Grammar<Dist, Dist> = Grammar {
    command: "emulate dist",
    about: "a distribution from `ping`",
    operands: &[part("PING-LOG", "ping.log", Value::File(set!(|d, log| d.log = log.to_owned())))],
    operand_help: "",
    operand_about: "",
    sections: &[&Section {
        title: "",
        about: "",
        name: "",
        entries: &[Entry {
            name: "--out",
            help: "with dist: where to, in place of the standard output",
            about: "With `dist`: where to, in place of the standard output.",
            forms: &[form(
                &[part(
                    "FILE",
                    "home.dist",
                    Value::File(set!(|d, out| d.out = Some(out.to_owned()))),
                )],
                "",
            )],
            ..Entry::ONCE
        }],
    }],
    tail: None,
    finish: Ok,
};

/// The word that `sheaf emulate change` puts before the others.
pub const OF_WORD: &str = "of";

static OF: Section<Draft> = Section {
    title: "",
    about: "",
    name: "",
    entries: &[Entry {
        name: OF_WORD,
        help: "of the link that has this interface",
        forms: &[form(
            &[part("IF", "eth0", Value::Text(set!(|d, name| d.of = Some(name.to_owned()))))],
            "",
        )],
        ..Entry::ONCE
    }],
};

static PIPE: Section<Draft> = Section {
    title: "",
    about: "",
    name: "",
    entries: &[Entry {
        name: "pipe",
        help: "with change: of this pipe of the --rules",
        forms: &[form(
            &[part("NAME", "slow", Value::Text(set!(|d, name| d.pipe = Some(name.to_owned()))))],
            "",
        )],
        ..Entry::ONCE
    }],
};

static CLASS: Section<Draft> = Section {
    title: "",
    about: "",
    name: "",
    entries: &[Entry {
        name: "class",
        help: "with change: of this class of the --rules, the terms that follow",
        forms: &[Form {
            parts: &[part(
                "NAME",
                "calls",
                Value::Text(set!(|d, name| {
                    d.class = Some((name.to_owned(), ClassChange::default()));
                })),
            )],
            group: TERMS,
            group_name: "TERMS",
            group_example: "rate 2mbit",
            ..Form::EMPTY
        }],
        ..Entry::ONCE
    }],
};

/// Terms of a class, in the words of tc-htb(8).
const TERMS: &[Entry<Draft>] = &[
    Entry {
        name: "rate",
        help: "what it gets whatever the others send",
        forms: &[form(
            &[part("R", "2mbit", Value::Rate(set!(|d, rate| d.class().rate = Some(rate))))],
            "",
        )],
        ..Entry::LAST
    },
    Entry {
        name: "ceil",
        help: "the most that it gets",
        forms: &[form(
            &[part("R", "20mbit", Value::Rate(set!(|d, rate| d.class().ceil = Some(rate))))],
            "",
        )],
        ..Entry::LAST
    },
    Entry {
        name: "prio",
        help: "whom others lend to first (0 to 7)",
        forms: &[form(
            &[part(
                "N",
                "0",
                Value::Number(
                    0..=LAST_PRIO as u64,
                    set!(|d, prio| d.class().prio = Some(prio as u8)),
                ),
            )],
            "",
        )],
        ..Entry::LAST
    },
    Entry {
        name: "quantum",
        help: "share of what is lent to several",
        forms: &[form(
            &[part("SIZE", "1514", Value::Size(set!(|d, n| d.class().quantum = Some(n))))],
            "",
        )],
        ..Entry::LAST
    },
    Entry {
        name: "burst",
        help: "bytes that it saves up of its rate while idle",
        forms: &[form(
            &[part("SIZE", "15k", Value::Size(set!(|d, n| d.class().burst = Some(n))))],
            "",
        )],
        ..Entry::LAST
    },
    Entry {
        name: "cburst",
        help: "the same of its ceil",
        forms: &[form(
            &[part("SIZE", "15k", Value::Size(set!(|d, n| d.class().cburst = Some(n))))],
            "",
        )],
        ..Entry::LAST
    },
];

static REVERSE: Section<Draft> = Section {
    title: "The other direction",
    about: "",
    name: "",
    entries: &[Entry {
        name: "reverse",
        help: "another LINK for IF2 to IF1, ingress, or downwards",
        about: "What follows is for the other direction, which is the same without it: <IF2> to \
                <IF1>, what arrives on <IF> (with `both`), down to a shell.",
        forms_name: "LINK",
        forms: &[flag(set!(|d| d.reverse = true), "")],
        ..Entry::ONCE
    }],
};

static RULES: Section<Draft> = Section {
    title: "Several links",
    about: "",
    name: "",
    entries: &[Entry {
        name: "--rules",
        help: "rules and pipes (TOML) in place of LINK",
        about: "Rules and pipes in place of <LINK> (RULES).",
        forms: &[form(
            &[part(
                "FILE",
                "rules.toml",
                Value::File(set!(|d, file| d.rules = Some(file.to_owned()))),
            )],
            "",
        )],
        ..Entry::ONCE
    }],
};

static RUN: Section<Draft> = Section {
    title: "The run",
    about: "",
    name: "RUN",
    entries: &[
        Entry {
            name: "--pcap",
            help: "a capture (pcapng); what happened to each packet is its comment",
            about: "Captures what leaves and what is dropped as pcapng; what happened to each \
                    packet, and how long it took, is its comment.",
            forms: &[form(
                &[part(
                    "FILE",
                    "link.pcapng",
                    Value::File(set!(|d, file| d.run.pcap = Some(file.to_owned()))),
                )],
                "",
            )],
            ..Entry::ONCE
        },
        Entry {
            name: "--audit",
            help: "print how late packets left; status 1 when p99 is over --budget",
            about: "Print how late packets left. The status is 1 when the 99th percentile is above \
                    `--budget`.",
            forms: &[flag(set!(|d| d.run.audit = true), "")],
            ..Entry::LAST
        },
        Entry {
            name: "--budget",
            help: "how late packets may leave for --audit (1ms)",
            about: "Default 1ms.",
            forms: &[form(
                &[part("TIME", "1ms", Value::Time(set!(|d, time| d.run.budget = Some(time))))],
                "",
            )],
            ..Entry::LAST
        },
        Entry {
            name: "--spin",
            help: "look, not sleep, before a departure, for as long as waking up takes here (which \
                   is learnt), up to this, whatever it costs; 0 for never (2% of a processor)",
            about: "Sleeps end late by what it takes to wake a processor, so they end sooner, and \
                    the rest of the time it looks in place of sleeping. How much sooner is learnt \
                    from how late the machine wakes it. Without this word looking takes 2% of a \
                    processor at most, and less where processors are busy: sparse departures get \
                    all that helps, dense ones what is cheap. With it, up to <TIME> before each \
                    departure, whatever it costs; 0 for never.",
            forms: &[form(
                &[part("TIME", "200us", Value::Time(set!(|d, time| d.run.spin = Some(time))))],
                "",
            )],
            ..Entry::LAST
        },
        Entry {
            name: "--awake",
            help: "keep idle processors from sleeping while it runs; costs power",
            about: "Keep idle processors from sleeping while it runs (/dev/cpu_dma_latency). Costs \
                    power.",
            forms: &[flag(set!(|d| d.run.awake = true), "")],
            ..Entry::LAST
        },
        Entry {
            name: "--fifo",
            help: "run before all ordinary processes, with this real-time priority (1 to 99)",
            about: "Run before all ordinary processes, with real-time priority <N> (SCHED_FIFO), 1 \
                    to 99.",
            forms: &[form(
                &[part(
                    "N",
                    "50",
                    Value::Number(PRIORITIES, set!(|d, n| d.run.fifo = Some(n as u8))),
                )],
                "",
            )],
            ..Entry::LAST
        },
        Entry {
            name: "--gro",
            help: "join packets of a flow that come to the interfaces within this (GRO), to carry \
                   more; up to 1ms",
            about: "Let both interfaces join packets of a flow, UDP's included, that come within \
                    <TIME> (GRO), so that more of them are carried. Each comes later by <TIME> at \
                    most, 1ms or less, and never earlier. A link that treats them all alike (no \
                    chances, no trace, no rate below 5gbit) lets them leave as they came; any \
                    other takes them apart. The interfaces are as before when it ends; killed, it \
                    leaves them joining (`ethtool -K IF rx-udp-gro-forwarding off`). Linux 6.2 or \
                    later.",
            forms: &[form(&[part("TIME", "100us", Value::Time(gro))], "")],
            ..Entry::LAST
        },
    ],
};

fn gro(draft: &mut Draft, time: Duration) -> anyhow::Result<()> {
    ensure!(
        !time.is_zero() && time <= LONGEST_GRO,
        "--gro takes more than 0 and at most 1ms; give 100us"
    );
    draft.run.gro = Some(time);
    Ok(())
}

fn interface(draft: &mut Draft, name: &str) -> anyhow::Result<()> {
    draft.interfaces.push(name.to_owned());
    Ok(())
}

#[cfg(test)]
mod tests;
