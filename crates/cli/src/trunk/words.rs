//! The words of `sheaf trunk`.

use crate::rule::{self, Criteria, Ruled};
use crate::words::{
    Entry, Form, Grammar, Section, Value, flag, form, literal, optional, part, set,
};
use anyhow::{Context, anyhow, bail, ensure};
use sheaf_aggregate::{Rule, Rules};
use sheaf_daemon::trunk::lookup::Name;
use sheaf_daemon::trunk::settings::{Far, Link, PORT, Peer, Priority, Settings, Spec};
use sheaf_netio::ip;
use sheaf_stage::Duration;
use sheaf_trunk::{EndpointConfig, LinkConfig, Quota, Scheduler, SenderConfig};
use sheaf_wire::prefix;
use sheaf_wire::trunk::MAX_LINKS;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

/// The least packets in the queue of an interface: with fewer a link runs idle.
const LEAST_QUEUE: u64 = 8;
/// The smallest MTU: every host can receive packets of so many bytes (RFC 791).
const LEAST_MTU: u16 = 576;

/// An interface whose other end is not known yet.
struct Dev {
    name: String,
    queue: Option<u32>,
}

/// The settings as far as words have set them.
#[derive(Default)]
pub struct Draft {
    name: String,
    members: Vec<Link>,
    /// Place of the first link that the last `path` or `peer` made.
    latest: usize,
    devs: Vec<Dev>,
    endpoint: EndpointConfig,
    mtu: Option<u16>,
    key: Option<PathBuf>,
    plain: bool,
    addresses: Vec<String>,
    priority: Option<Priority>,
    copies: Option<Vec<Rule>>,
    loose: Vec<Rule>,
    /// Whether criteria belong to the last rule of `loose`, not of `copies`.
    loosens: bool,
}

impl Draft {
    fn sender(&mut self) -> &mut SenderConfig {
        &mut self.endpoint.sender
    }

    fn add(&mut self, links: Vec<Spec>) {
        self.latest = self.members.len();
        let terms = LinkConfig::default();
        let link = |spec| Link { spec, terms, quota: None };
        self.members.extend(links.into_iter().map(link));
    }

    /// Sets a term of the links that the last `path` or `peer` made.
    fn agree(&mut self, set: impl Fn(&mut LinkConfig)) -> anyhow::Result<()> {
        self.members[self.latest..].iter_mut().for_each(|link| set(&mut link.terms));
        let crossed =
            |terms: &LinkConfig| terms.least.zip(terms.most).is_some_and(|(min, max)| min > max);
        match self.members.iter().find(|link| crossed(&link.terms)) {
            Some(link) => bail!("{link}: min is above max; lower it"),
            None => Ok(()),
        }
    }
}

impl Ruled for Draft {
    fn rule(&mut self) -> &mut Rule {
        let rules =
            if self.loosens { &mut self.loose } else { self.copies.get_or_insert_default() };
        // `match` puts a rule there before any criterion is read.
        if rules.is_empty() {
            rules.push(rule::everything());
        }
        let last = rules.len() - 1;
        &mut rules[last]
    }
}

/// Notes at the end of `--help`.
pub const NOTES: &[&str] = &[
    "Packets of class EF or CS6 leave before others, as long as those keep half.",
    "Make the key once, and copy the file to the other end: umask 077; sheaf trunk key > FILE",
];

/// Examples for `--help`.
pub const EXAMPLES: &[&str] = &[
    "sheaf trunk trunk0 path 192.0.2.7 198.51.100.1 path wwan0 198.51.100.1 \\",
    "            key /etc/sheaf/trunk0.key address 10.99.0.1/24",
    "sheaf trunk trunk0 path 198.51.100.1 path 198.51.100.1 \\",
    "            key /etc/sheaf/trunk0.key address 10.99.0.2/24",
];

/// The command line of `sheaf trunk`.
pub static GRAMMAR: Grammar<Draft, Settings> = Grammar {
    command: "trunk",
    about: "make one interface of several links",
    operands: &[part("NAME", "trunk0", Value::Text(name))],
    operand_help: "the interface to make; both ends run this command with the same members in the \
                   same order",
    operand_about: "The interface to make, 1 to 15 letters and digits.",
    sections: &[&WORDS],
    tail: None,
    finish,
};

/// The command line of `sheaf trunk key`.
pub static KEY: Grammar<(), ()> = Grammar {
    command: "trunk key",
    about: "print a new key, to be kept in a file at both ends",
    operands: &[],
    operand_help: "",
    operand_about: "",
    sections: &[],
    tail: None,
    finish: Ok,
};

/// The terms on which the links carry that the `path` or `peer` before them made.
const TERMS: &[Entry<Draft>] = &[
    Entry {
        name: "backup",
        help: "the link before it carries no data while another takes packets",
        about: "The link before it carries no data while a link without this word takes packets: \
                it is up, answers and does not lose too much. Where both ends have the word, it is \
                probed every ten seconds while it carries nothing, else ten times a second.",
        forms: &[flag(|d| d.agree(|terms| terms.backup = true), "")],
        ..Entry::ONCE
    },
    Entry {
        name: "cost",
        help: "data takes the link before it only where it would wait TIME for each cheaper one",
        about: "Data takes the link before it only where it would wait for <TIME>, 1 ms to 100 ms, \
                for each link that costs less: 10ms for an uplink that is paid by volume. Without \
                the word a link costs nothing. While it carries nothing it is probed as a \
                `backup`.",
        forms: &[form(
            &[part(
                "TIME",
                "10ms",
                Value::Time(|d, time| {
                    let range = Duration::from_millis(1)..=LinkConfig::MOST_COST;
                    ensure!(range.contains(&time), "cost is 1ms to 100ms, like 10ms");
                    d.agree(|terms| terms.cost = time)
                }),
            )],
            "",
        )],
        ..Entry::ONCE
    },
    Entry {
        name: "max",
        help: "no more than RATE is sent on the link before it, headers included",
        about: "No more than <RATE> is sent on the link before it, headers included: what a tariff \
                allows, or others are to have left.",
        forms: &[form(
            &[part(
                "RATE",
                "20mbit",
                Value::Rate(|d, rate| d.agree(|terms| terms.most = Some(rate))),
            )],
            "",
        )],
        ..Entry::ONCE
    },
    Entry {
        name: "min",
        help: "the link before it is never taken to carry less than RATE",
        about: "The link before it is never taken to carry less than <RATE>, headers included, \
                whatever is measured: for a link whose rate is known and whose delay is not.",
        forms: &[form(
            &[part(
                "RATE",
                "1mbit",
                Value::Rate(|d, rate| d.agree(|terms| terms.least = Some(rate))),
            )],
            "",
        )],
        ..Entry::ONCE
    },
    Entry {
        name: "quota",
        help: "the link before it is closed at this end when it has carried SIZE in this PERIOD",
        about: "The link before it is closed at this end when it has carried <SIZE> in this day, \
                week or month of the calendar (UTC), both ways together, headers included. What \
                was counted outlives a restart, see FILES. Decimal units: kB, MB, GB, TB. A `path` \
                with a quota shares its port with no other link.",
        forms: &[form(
            &[part(
                "SIZE/PERIOD",
                "50GB/month",
                Value::Like(
                    |word| Quota::parse(word).is_some(),
                    |d, word| {
                        let quota = Quota::parse(word);
                        let enough = quota.is_none_or(|quota| quota.bytes >= Quota::LEAST);
                        ensure!(enough, "quota {word} is too small; give 1MB or more");
                        d.members[d.latest..].iter_mut().for_each(|link| link.quota = quota);
                        Ok(())
                    },
                ),
            )],
            "",
        )],
        ..Entry::ONCE
    },
];

static WORDS: Section<Draft> = Section {
    title: "",
    about: "",
    name: "",
    entries: &[
        Entry {
            name: "dev",
            required: true,
            help: "a link: Ethernet frames (EtherType 0x88b6) on IF to the peer",
            about: "A link: Ethernet frames (EtherType 0x88b6) by <IF> to the `peer` that follows. \
                    Several in a row may share one `peer`. 8 bytes stand before the packet. 1 to \
                    16 links in all.",
            forms: &[Form {
                parts: &[part(
                    "IF",
                    "wlan0",
                    Value::Interface(|d, dev| {
                        d.devs.push(Dev { name: name_of_interface(dev)?, queue: None });
                        Ok(())
                    }),
                )],
                group: &[
                    Entry {
                        name: "queue",
                        help: "IF's own queue of N packets is where packets wait, not one behind \
                               it: keep it below a quarter; else the rate is learned",
                        about: "The queue of the <IF> before it, of <N> packets (at least 8), is \
                                where packets wait, and no queue behind it: keep it below a \
                                quarter. <IF> must have a queueing discipline. Without it the rate \
                                is learned from the reports of the other end.",
                        forms: &[form(
                            &[part(
                                "N",
                                "1000",
                                Value::Number(LEAST_QUEUE..=u32::MAX as u64, |d, packets| {
                                    let dev =
                                        d.devs.last_mut().context("queue stands behind dev")?;
                                    dev.queue = Some(packets as u32);
                                    Ok(())
                                }),
                            )],
                            "",
                        )],
                        ..Entry::ONCE
                    },
                    Entry {
                        name: "peer",
                        help: "the other end of the links before it: a link address, or an IP \
                               address that the neighbour table of each resolves",
                        about: "The other end of the links before it: a link address, or an IP \
                                address that the neighbour table of each resolves.",
                        forms: &[Form {
                            parts: &[part("MAC|ADDR", "02:00:00:00:00:01", Value::Text(peer))],
                            group: TERMS,
                            group_name: "TERMS",
                            ..Form::EMPTY
                        }],
                        ..Entry::ONCE
                    },
                ],
                ..Form::EMPTY
            }],
            ..Entry::MANY
        },
        Entry {
            name: "path",
            instead: true,
            help: "a link: UDP from LOCAL on the interface that has it, or on IF, whatever its \
                   address; REMOTE, a name or an address, may be left out on the side that is to \
                   learn it, where all links may name one LOCAL (port 7431); [ADDR]:PORT for \
                   IPv6",
            about: "A link: UDP from our address <LOCAL>, bound to the interface that has it or to \
                    <@IF>, to <REMOTE>. An <IF> alone stands for whatever address it has, and \
                    lives through another lease. <REMOTE> may be a name with a dot or a port in \
                    it, which is looked up while the link is down. The ports are 7431 where none \
                    is given; IPv6 with a port is written [<ADDR>]:<PORT>. One side may leave \
                    <REMOTE> out: it learns the address, also behind a NAT that changes it, and \
                    its links may share a port: `path 192.0.2.7 path 192.0.2.7`. `path 0.0.0.0` \
                    or `path ::` waits at all addresses, and replies from the one that was \
                    chosen. An end that was given <REMOTE> may move, too. 36 bytes (IPv4) or 56 \
                    (IPv6) stand before the packet, and 24 more with a key. A `path` needs `key` \
                    or `plain`.",
            forms: &[Form {
                parts: &[
                    part("LOCAL[:PORT][@IF]|IF[:PORT]", "192.0.2.7", Value::Text(local)),
                    optional(
                        "REMOTE[:PORT]",
                        "198.51.100.1",
                        Value::Like(
                            // A misspelt keyword is not taken for an address, so that the error
                            // names it.
                            |word| word.contains(['.', ':']),
                            remote,
                        ),
                    ),
                ],
                group: TERMS,
                group_name: "TERMS",
                ..Form::EMPTY
            }],
            ..Entry::MANY
        },
        Entry {
            name: "key",
            help: "the file with the key of both ends, made by sheaf trunk key: every frame is \
                   encrypted, and no other is taken",
            about: "The file with the key, the same at both ends; `sheaf trunk key` makes one. \
                    Every frame is encrypted and authenticated, and nothing is learned from any \
                    other. Only the owner may be able to read the file. 24 more bytes stand \
                    around the packet. A `path` needs a key, or `plain`.",
            forms: &[form(
                &[part(
                    "FILE",
                    "/etc/sheaf/trunk0.key",
                    Value::File(set!(|d, file| d.key = Some(PathBuf::from(file)))),
                )],
                "",
            )],
            ..Entry::ONCE
        },
        Entry {
            name: "plain",
            help: "nothing is encrypted: for links that WireGuard or a cable of one's own protects",
            about: "Nothing is encrypted or authenticated: for paths that are protected otherwise, \
                    inside WireGuard or on a cable of one's own. What others can do then is in \
                    docs/security.md. Links by `dev` alone may do without saying it.",
            forms: &[flag(set!(|d| d.plain = true), "")],
            ..Entry::ONCE
        },
        Entry {
            name: "address",
            help: "an address of NAME",
            about: "An address of <NAME>. May be given several times. IPv6 needs an MTU of 1280.",
            forms: &[form(&[part("ADDR/PLEN", "10.99.0.1/24", Value::Text(address))], "")],
            ..Entry::MANY
        },
        Entry {
            name: "mtu",
            help: "of NAME; auto: the largest that fits every member (default)",
            forms: &[
                form(
                    &[part("BYTES", "1400", Value::Size(mtu))],
                    "Of <NAME>; 576 to what fits the narrowest member.",
                ),
                form(
                    &[literal("auto", set!(|d| d.mtu = None))],
                    "The largest that fits every member; the default.",
                ),
            ],
            ..Entry::ONCE
        },
        Entry {
            name: "scheduler",
            help: "earliest: where a packet would arrive first (default); redundant: a copy on \
                   every link; rr: round robin; srr, trr: for comparison",
            forms: &[
                form(
                    &[literal("earliest", set!(|d| d.sender().scheduler = Scheduler::Earliest))],
                    "Each packet takes the link by which it would arrive first; the default. A TCP \
                     flow that sends full segments begins on a link that has more rate than all \
                     quicker ones together and is much farther; these then carry what is more.",
                ),
                form(
                    &[literal("redundant", set!(|d| d.sender().scheduler = Scheduler::Redundant))],
                    "A copy on every link; the first that arrives counts.",
                ),
                form(
                    &[literal("rr", set!(|d| d.sender().scheduler = Scheduler::RoundRobin))],
                    "Round robin. For comparison, as `srr` and `trr`.",
                ),
                form(
                    &[literal("srr", set!(|d| d.sender().scheduler = Scheduler::Srr))],
                    "Surplus round robin (Adiseshu 1996), with which one loss disturbs the order.",
                ),
                form(
                    &[literal("trr", set!(|d| d.sender().scheduler = Scheduler::Trr))],
                    "Trigger round robin (Chiao Tung 1998), with which one loss disturbs the \
                     order.",
                ),
            ],
            ..Entry::ONCE
        },
        Entry {
            name: "aggregate",
            help: "small packets that wait share a frame (on)",
            forms: &[
                form(
                    &[literal("on", set!(|d| d.sender().aggregate = true))],
                    "Small packets that wait for a link share a frame; the default.",
                ),
                form(&[literal("off", set!(|d| d.sender().aggregate = false))], "They do not."),
            ],
            ..Entry::ONCE
        },
        Entry {
            name: "compress",
            help: "headers of IP, TCP and UDP the other end knows are left out, with a key (on)",
            forms: &[
                form(
                    &[literal("on", set!(|d| d.sender().compress = true))],
                    "Headers of IP, TCP and UDP that the other end knows are left out, with a key; \
                     the default. A full segment of TCP over IPv4 takes some 36 bytes less, a \
                     call's packet 20. An end of an older version is sent all of them.",
                ),
                form(
                    &[literal("off", set!(|d| d.sender().compress = false))],
                    "This end leaves none out. It restores what the other end left out.",
                ),
            ],
            ..Entry::ONCE
        },
        Entry {
            name: "parity",
            help: "links that lose and have time left carry parities of what left (on)",
            forms: &[
                form(
                    &[literal("on", set!(|d| d.sender().parity = true))],
                    "Where frames are lost, links carry parities of those that left in the time \
                     that is left, so that most lost ones are known without a round trip; the \
                     default. Links with `backup` or `cost` carry none, nor do devices that \
                     report their queue (radios). An end of an older version is sent none.",
                ),
                form(
                    &[literal("off", set!(|d| d.sender().parity = false))],
                    "This end sends none. It uses those of the other end.",
                ),
            ],
            ..Entry::ONCE
        },
        Entry {
            name: "copies",
            live: true,
            help: "what goes out on every link; default: copies match dscp ef. RULE is:",
            about: "What goes out on every link in use, and is handed up once. Default: `copies \
                    match dscp ef`, what telephones use. `copies none`: nothing. May be given \
                    several times. All criteria of a rule must hold:",
            forms: &[
                rule::matching(
                    Some(set!(|d| d.loosens = false)),
                    &[literal(
                        "match",
                        set!(|d| d.copies.get_or_insert_default().push(rule::everything())),
                    )],
                    CRITERIA,
                    "dscp ef",
                ),
                form(&[literal("none", set!(|d| d.copies.get_or_insert_default()))], ""),
            ],
            ..Entry::MANY
        },
        Entry {
            name: "loose",
            live: true,
            help: "what needs no order, so that it never waits",
            about: "What needs no order and never waits for any. Default: nothing.",
            forms: &[
                rule::matching(
                    Some(set!(|d| d.loosens = true)),
                    &[literal("match", set!(|d| d.loose.push(rule::everything())))],
                    CRITERIA,
                    "dscp ef",
                ),
                form(&[literal("none", |_| Ok(()))], ""),
            ],
            ..Entry::MANY
        },
        Entry {
            name: "priority",
            help: "realtime: runs before every ordinary process (SCHED_RR), so that links stay \
                   busy on a busy machine (default where it is allowed); normal: as other \
                   processes",
            forms: &[
                form(
                    &[literal("realtime", set!(|d| d.priority = Some(Priority::Realtime)))],
                    "Run before every ordinary process (SCHED_RR, priority 1), so that links stay \
                     busy on a busy machine. It sleeps when there is nothing to do. The default \
                     where it is allowed; asked for where it is not, the command does not start.",
                ),
                form(
                    &[literal("normal", set!(|d| d.priority = Some(Priority::Normal)))],
                    "Run as started.",
                ),
            ],
            ..Entry::ONCE
        },
    ],
};

const CRITERIA: &[Entry<Draft>] =
    &[Criteria::PROTO, Criteria::DSCP, Criteria::SPORT, Criteria::DPORT, Criteria::LENGTH];

fn finish(draft: Draft) -> anyhow::Result<Settings> {
    if let Some(Dev { name, .. }) = draft.devs.first() {
        bail!("dev {name} has no peer; write dev {name} peer MAC");
    }
    let members = draft.members;
    ensure!(!members.is_empty(), "no link is named; write path LOCAL REMOTE, or dev IF peer MAC");
    let (links, most) = (members.len(), MAX_LINKS);
    ensure!(links <= most, "{links} links are too many; give at most {most}");
    // Links that learn where their other ends are may share a port: each frame names its link.
    let learns = |spec: &Spec| matches!(spec, Spec::Path { remote: None, .. });
    let again = |at: &usize| {
        let spec = &members[*at].spec;
        !learns(spec) && members[..*at].iter().any(|one| one.spec == *spec)
    };
    if let Some(twice) = (1..links).find(again) {
        bail!("{} is given twice; give it once, or another port", members[twice].spec);
    }
    // What is refused at a port that links share is no link's, so it could not be counted.
    let shares = |at: &usize| {
        let Link { spec, quota, .. } = &members[*at];
        let mut others = members.iter().enumerate().filter(|(other, _)| other != at);
        quota.is_some() && others.any(|(_, other)| other.spec.shares_socket(spec))
    };
    if let Some(shared) = (0..links).find(shares) {
        bail!(
            "{} has a quota, so it cannot share its port with another link; give it another port",
            members[shared].spec
        );
    }
    if members.iter().all(|link| link.terms.backup) {
        bail!("all links are backups; leave backup out at one");
    }
    let both = "give one of the two";
    ensure!(draft.key.is_none() || !draft.plain, "key and plain exclude each other; {both}");
    let path = members.iter().find(|link| matches!(link.spec, Spec::Path { .. }));
    if let Some(path) = path.filter(|_| draft.key.is_none() && !draft.plain) {
        bail!(
            "{} has no key: anybody on the way could read and forge; write key FILE (sheaf \
             trunk key makes one), or plain where WireGuard or a cable of your own protects it",
            path.spec
        );
    }
    draft.endpoint.check()?;
    let rules = |rules| Rules { rules, acks: false };
    Ok(Settings {
        name: draft.name,
        members,
        key: draft.key,
        endpoint: draft.endpoint,
        mtu: draft.mtu,
        addresses: draft.addresses,
        priority: draft.priority,
        copies: rules(draft.copies.unwrap_or_else(|| vec![voice()])),
        loose: rules(draft.loose),
    })
}

/// Packets of the class that telephones use (RFC 3246).
fn voice() -> Rule {
    Rule { dscp: Some(46), ..rule::everything() }
}

fn name(draft: &mut Draft, word: &str) -> anyhow::Result<()> {
    ensure!(
        WORDS.entries.iter().all(|entry| entry.name != word),
        "the interface to make comes first; write trunk0 {word} …"
    );
    draft.name = name_of_interface(word)?;
    Ok(())
}

/// `word`, if an interface can be called so.
fn name_of_interface(word: &str) -> anyhow::Result<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let good = (1..=15).contains(&word.len()) && word.chars().all(plain);
    ensure!(
        good && !matches!(word, "." | ".."),
        "{word:?} is not an interface name; give 1 to 15 letters and digits, like trunk0"
    );
    Ok(word.to_owned())
}

/// The other end of all interfaces that have none yet.
fn peer(draft: &mut Draft, word: &str) -> anyhow::Result<()> {
    let peer = match (ip::parse_mac(word), word.parse()) {
        (Some(mac), _) if mac[0] & 1 == 0 && mac != [0; 6] => Peer::Mac(mac),
        (Some(_), _) => {
            bail!("peer {word} is a multicast or zero address; give the link address of one host")
        }
        (None, Ok(address)) => Peer::Address(address),
        (None, Err(_)) => bail!(
            "peer {word:?} is not a link address or an IP address; write it like 02:00:00:00:00:01"
        ),
    };
    let member = |Dev { name: dev, queue }| Spec::Ethernet { dev, peer, queue };
    let links = draft.devs.drain(..).map(member).collect();
    draft.add(links);
    Ok(())
}

/// `LOCAL[:PORT][@IF]`.
fn local(draft: &mut Draft, word: &str) -> anyhow::Result<()> {
    let (local, dev) = local_end(word)?;
    single(local)?;
    draft.add(vec![Spec::Path { local, dev, remote: None }]);
    Ok(())
}

/// The interface that `LOCAL[:PORT][@IF]` or `IF[:PORT]` names.
pub fn interface_of(word: &str) -> Option<String> {
    local_end(word).ok()?.1
}

fn local_end(word: &str) -> anyhow::Result<(SocketAddr, Option<String>)> {
    let (local, dev) = match word.split_once('@') {
        Some((local, dev)) => (local, Some(name_of_interface(dev)?)),
        None => (word, None),
    };
    // An address that is misspelt is not taken for an interface.
    let like_address = |word: &str| word.starts_with(|c: char| c.is_ascii_digit() || c == '[');
    match socket_address(local) {
        Err(error) if dev.is_some() || like_address(word) || word.matches(':').count() > 1 => {
            Err(error)
        }
        Err(_) => {
            let (dev, port) = host_and_port(word)?;
            let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port);
            Ok((any, Some(name_of_interface(dev)?)))
        }
        Ok(local) => Ok((local, dev)),
    }
}

/// Splits `HOST[:PORT]`; HOST is no address.
fn host_and_port(word: &str) -> anyhow::Result<(&str, u16)> {
    let Some((host, port)) = word.rsplit_once(':') else { return Ok((word, PORT)) };
    let port = port.parse().ok().filter(|port| *port != 0);
    let port = port.with_context(|| format!("{word} has no port; write {host}:{PORT}"))?;
    Ok((host, port))
}

/// A name of the domain name system (RFC 1123, section 2.1).
fn is_name(host: &str) -> bool {
    let label = |label: &str| {
        let ends = label.starts_with('-') || label.ends_with('-');
        let letter = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        (1..=63).contains(&label.len()) && !ends && label.chars().all(letter)
    };
    let host = host.strip_suffix('.').unwrap_or(host);
    // What ends with digits is an address that is misspelt.
    let last = host.rsplit('.').next().unwrap_or_default();
    host.len() <= 253 && host.split('.').all(label) && last.contains(|c: char| !c.is_ascii_digit())
}

/// `REMOTE[:PORT]`.
fn remote(draft: &mut Draft, word: &str) -> anyhow::Result<()> {
    let last = draft.members.last_mut().map(|link| &mut link.spec);
    let Some(Spec::Path { local, dev, remote }) = last else { return Ok(()) };
    let end = match socket_address(word) {
        Ok(end) => end,
        Err(error) => {
            let name = host_and_port(word).ok().filter(|(host, _)| is_name(host));
            let (host, port) =
                name.with_context(|| format!("{error}, or a name like home.example.org"))?;
            *remote = Some(Far::Name(Name { host: host.to_owned(), port }));
            return Ok(());
        }
    };
    // An interface alone stands for its addresses of either family.
    if dev.is_some() && local.ip().is_unspecified() && end.is_ipv6() {
        local.set_ip(Ipv6Addr::UNSPECIFIED.into());
    }
    ensure!(
        end.is_ipv4() == local.is_ipv4(),
        "path {local} {end} mixes IPv4 and IPv6; give two of one family"
    );
    ensure!(
        !end.ip().is_unspecified(),
        "path … {end} is the unspecified address; leave it out, or name a host"
    );
    single(end)?;
    *remote = Some(Far::Address(end));
    Ok(())
}

/// Refuses addresses of many hosts.
fn single(end: SocketAddr) -> anyhow::Result<()> {
    let many = end.ip().is_multicast() || end.ip() == IpAddr::V4(Ipv4Addr::BROADCAST);
    ensure!(!many, "path … {end} is a multicast or broadcast address; give that of one host");
    Ok(())
}

fn socket_address(word: &str) -> anyhow::Result<SocketAddr> {
    let bare = word.strip_prefix('[').and_then(|word| word.strip_suffix(']')).unwrap_or(word);
    let address = bare.parse::<IpAddr>().map(|address| SocketAddr::new(address, PORT));
    address.or_else(|_| word.parse()).ok().filter(|address| address.port() != 0).with_context(
        || {
            format!(
                "path {word:?} is not an address; write it like 192.0.2.7:{PORT} or \
             [2001:db8::7]:{PORT}"
            )
        },
    )
}

fn mtu(draft: &mut Draft, bytes: u64) -> anyhow::Result<()> {
    let mtu = u16::try_from(bytes).ok().filter(|mtu| *mtu >= LEAST_MTU);
    let mtu = mtu.with_context(|| {
        format!("mtu {bytes} is out of range; give {LEAST_MTU} to 65535 bytes, or auto")
    })?;
    draft.mtu = Some(mtu);
    Ok(())
}

fn address(draft: &mut Draft, word: &str) -> anyhow::Result<()> {
    let prefix = prefix::parse(word).map_err(|error| anyhow!("address {word:?} is {error}"))?;
    ensure!(
        !prefix.addr().is_multicast(),
        "an interface cannot have address {word}; give that of one host"
    );
    let twice = draft.addresses.iter().any(|known| known == word);
    ensure!(!twice, "address {word} is given twice; give it once");
    draft.addresses.push(word.to_owned());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::WordError;
    use sheaf_trunk::DeliveryMode;
    use sheaf_wire::ip::example_udp;

    fn parse(line: &str) -> Result<Settings, WordError> {
        let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        GRAMMAR.parse(&words)
    }

    fn members(line: &str) -> Vec<String> {
        parse(line).unwrap().members.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn members_of_both_kinds_mix_and_keep_their_order() {
        let line = "t0 dev a queue 99 dev b peer 02:0:0:0:0:1 path 10.0.0.1 10.0.0.2:99 \
                    path [fd00::1]:5@c plain mtu auto dev d peer fe80::1 path 0.0.0.0@e";
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
        assert_eq!(
            members("t0 path fd00::1 [fd00::2] key k"),
            ["path [fd00::1]:7431 [fd00::2]:7431"]
        );
    }

    #[test]
    fn a_path_may_name_an_interface_alone_and_the_other_end_by_name() {
        let members = |line: &str| -> Vec<_> {
            parse(line).unwrap().members.iter().map(ToString::to_string).collect()
        };
        assert_eq!(
            members(
                "t0 plain path wwan0 path eth0.7:99 192.0.2.7 path wan fd00::1 path 10.0.0.1 \
                 home.example.org path 10.0.0.2 my-router:99 path [::]@wlan0 a.b.:5 address \
                 10.9.0.1/24"
            ),
            [
                "path 0.0.0.0:7431@wwan0",
                "path 0.0.0.0:99@eth0.7 192.0.2.7:7431",
                "path [::]:7431@wan [fd00::1]:7431",
                "path 10.0.0.1:7431 home.example.org:7431",
                "path 10.0.0.2:7431 my-router:99",
                "path [::]:7431@wlan0 a.b.:5",
            ]
        );
    }

    #[test]
    fn terms_belong_to_the_links_before_them() {
        let line = "t0 plain path 10.0.0.1 max 20mbit path wwan0 192.0.2.7 backup min 100kbit max \
                    1mbit dev a dev b peer 02:0:0:0:0:1 backup path 10.0.0.2 cost 10ms quota \
                    1.5gb/month mtu auto";
        let members: Vec<_> =
            parse(line).unwrap().members.iter().map(ToString::to_string).collect();
        assert_eq!(
            members,
            [
                "path 10.0.0.1:7431 max 20Mbit",
                "path 0.0.0.0:7431@wwan0 192.0.2.7:7431 backup min 100Kbit max 1Mbit",
                "dev a peer 02:00:00:00:00:01 backup",
                "dev b peer 02:00:00:00:00:01 backup",
                "path 10.0.0.2:7431 cost 10ms quota 1500MB/month",
            ]
        );
    }

    #[test]
    fn voice_is_copied_unless_something_else_is_asked_for() {
        let plain = example_udp(&[0; 20]);
        let mut voice = plain.clone();
        voice[1] = 46 << 2;
        let default = parse("t0 plain path 10.0.0.1").unwrap();
        assert_eq!(default.delivery_mode(&voice), DeliveryMode::Copies);
        assert_eq!(default.delivery_mode(&plain), DeliveryMode::Order);
        let none = parse("t0 plain path 10.0.0.1 copies none loose match dscp ef").unwrap();
        assert_eq!(none.delivery_mode(&voice), DeliveryMode::Loose);
        let port = u16::from_be_bytes([plain[22], plain[23]]);
        let other = format!("t0 plain path 10.0.0.1 copies match proto udp dport {port} length 48");
        assert_eq!(parse(&other).unwrap().delivery_mode(&plain), DeliveryMode::Copies);
        assert_eq!(
            parse(&other).unwrap().delivery_mode(&example_udp(&[0; 21])),
            DeliveryMode::Order
        );
        assert_eq!(default.delivery_mode(&[0xff; 3]), DeliveryMode::Order, "whatever it is");
    }

    #[test]
    fn what_cannot_be_is_refused_with_a_remedy() {
        for (line, remedy) in [
            ("", "trunk lacks NAME; write trunk trunk0"),
            ("path 10.0.0.1", "the interface to make comes first"),
            ("a-name-too-long-for-it path 10.0.0.1", "1 to 15"),
            ("t/0 path 10.0.0.1", "like trunk0"),
            ("t0", "no link is named"),
            ("t0 dev a", "write dev a peer MAC"),
            ("t0 queue 9 dev a peer 02:00:00:00:00:01", "queue stands behind dev"),
            ("t0 dev a queue 2 peer 02:00:00:00:00:01", "give 8 or more"),
            ("t0 peer 02:00:00:00:00:01", "peer stands behind dev; write dev wlan0 peer"),
            ("t0 dev a peer 01:00:5e:00:00:01", "link address of one host"),
            ("t0 dev a peer x", "02:00:00:00:00:01"),
            ("t0 path 10.0.0.1 fd00::1", "two of one family"),
            ("t0 path 10.0.0.1 0.0.0.0", "leave it out"),
            ("t0 path 10.0.0.1 224.0.0.1", "of one host"),
            ("t0 path ff02::1@eth0", "of one host"),
            ("t0 path 10.0.0.1:0", "192.0.2.7:7431"),
            ("t0 path 10.0.0.1:99999", "192.0.2.7:7431"),
            ("t0 path 10.0.0.1 10.0.0.2 path 10.0.0.1:7431 10.0.0.2", "another port"),
            ("t0 path 10.0.0.1 backup plain", "leave backup out at one"),
            ("t0 path 10.0.0.1 min 2mbit max 1mbit", "min is above max; lower it"),
            ("t0 path 10.0.0.1 cost 1s", "1ms to 100ms"),
            ("t0 path 10.0.0.1 cost 10", "has no unit"),
            ("t0 path 10.0.0.1 max 20", "has no unit"),
            ("t0 path 10.0.0.1 quota 50GB", "is not SIZE/PERIOD; write it like 50GB/month"),
            ("t0 path 10.0.0.1 quota 50GB/year", "write it like 50GB/month"),
            ("t0 path 10.0.0.1 quota 50kB/day", "give 1MB or more"),
            ("t0 quota 50GB/day path 10.0.0.1", "quota"),
            ("t0 plain path a path a quota 50GB/day", "another link; give it another port"),
            ("t0 plain path a 10.0.0.1 quota 5GB/day path a 10.0.0.2", "has a quota, so it cannot"),
            ("t0 path 10.0.0.256", "not an address"),
            ("t0 path wwan0:0", "write wwan0:7431"),
            ("t0 path much-too-long-for-one", "1 to 15"),
            ("t0 path 10.0.0.1 10.0.0.256", "not an address"),
            ("t0 path 10.0.0.1 home..org", "or a name like"),
            ("t0 path 10.0.0.1 home.org:99999", "or a name like"),
            ("t0 path 10.0.0.1", "write key FILE (sheaf trunk key makes one), or plain"),
            ("t0 dev a peer 02:00:00:00:00:01 path 10.0.0.1", "path 10.0.0.1:7431 has no key"),
            ("t0 path 10.0.0.1 plain key k", "give one of the two"),
            ("t0 path 10.0.0.1 key", "key"),
            ("key path 10.0.0.1", "the interface to make comes first"),
            ("t0 path 10.0.0.1 mtu 100", "576"),
            ("t0 path 10.0.0.1 mtu 70000", "65535"),
            ("t0 path 10.0.0.1 address 10.0.0.1/33", "0 to 32 bits"),
            ("t0 path 10.0.0.1 address 10.9.0.1/24 address 10.9.0.1/24", "give it once"),
            ("t0 path 10.0.0.1 scheduler best", "give earliest, redundant, rr, srr or trr"),
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
