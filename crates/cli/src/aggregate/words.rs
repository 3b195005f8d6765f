//! The words of `sheaf aggregate` and `sheaf split`.

use crate::rule::{self, Criteria, Ruled};
use crate::words::{Entry, Form, Grammar, Section, Value, flag, form, literal, part, set};
use anyhow::{Context, ensure};
use sheaf_aggregate::{Config, Format, Policy, Rule, Rules, Threshold};
use sheaf_daemon::aggregate::settings::{Engine, FarEnd, Peers, Settings, Split};
use sheaf_wire::ip::Protocol;
use sheaf_wire::prefix::Prefix;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::path::PathBuf;

/// The settings as far as words have set them.
#[derive(Default)]
pub struct Draft {
    dev: String,
    peers: Peers,
    far_ends: Vec<FarEnd>,
    engine: Option<Engine>,
    unprobed: bool,
    min: Option<Threshold>,
    max: Option<u16>,
    follow: bool,
    format: Option<Format>,
    links: bool,
    groups: bool,
    rules: Vec<Rule>,
    key: Option<PathBuf>,
    config: Config,
}

impl Ruled for Draft {
    fn rule(&mut self) -> &mut Rule {
        // `match` puts a rule there before any criterion is read.
        if self.rules.is_empty() {
            self.rules.push(rule::everything());
        }
        let last = self.rules.len() - 1;
        &mut self.rules[last]
    }
}

/// Settings with the key of HELLOs.
trait Keyed: 'static {
    /// The file with the key.
    fn key(&mut self) -> &mut Option<PathBuf>;
}

impl Keyed for Draft {
    fn key(&mut self) -> &mut Option<PathBuf> {
        &mut self.key
    }
}

impl Keyed for SplitDraft {
    fn key(&mut self) -> &mut Option<PathBuf> {
        &mut self.key
    }
}

/// The word `key` of both commands.
struct HelloKey<D>(PhantomData<D>);

impl<D: Keyed> HelloKey<D> {
    const ENTRY: Entry<D> = Entry {
        name: "key",
        live: true,
        help: "the file with the key of HELLOs; only neighbours with the same key count",
        about: "The file with the key of HELLOs, the same at all neighbours; `sheaf trunk key` \
                makes one. Only its owner may read it. Only the HELLOs of holders of the key \
                count, and only their frames are taken apart. Frames are not encrypted. Goes with \
                `peer auto`.",
        forms: &[form(
            &[part(
                "FILE",
                "/etc/sheaf/mesh.key",
                Value::File(set!(|d, file| *d.key() = Some(PathBuf::from(file)))),
            )],
            "",
        )],
        ..Entry::ONCE
    };
}

/// The error about a key that nothing would use.
const KEY_WITHOUT_HELLO: &str = "key is for HELLOs, and peer auto is not given; add peer auto";

/// The error about a carriage that nobody would hear of.
const CARRIAGE_WITHOUT_HELLO: &str =
    "carriage ethernet needs HELLOs, and peer auto is not given; add it";

/// Examples for `--help`.
pub const EXAMPLES: &[&str] = &[
    "sheaf aggregate dev wlan0                 on all routers: they find each other",
    "sheaf aggregate dev wlan0 peer 10.0.0.2   towards one neighbour",
];

/// The command line of `sheaf aggregate`.
pub static GRAMMAR: Grammar<Draft, Settings> = Grammar {
    command: "aggregate",
    about: "gather small packets to the same next hop or far end into one frame",
    operands: &[],
    operand_help: "",
    operand_about: "",
    sections: &[&WORDS],
    tail: None,
    finish,
};

static WORDS: Section<Draft> = Section {
    title: "",
    about: "",
    name: "",
    entries: &[
        Entry {
            name: "dev",
            help: "the interface, an Ethernet one",
            about: "The interface, an Ethernet one.",
            forms: &[form(
                &[part("IF", "wlan0", Value::Interface(set!(|d, dev| d.dev = dev.to_owned())))],
                "",
            )],
            ..Entry::REQUIRED
        },
        Entry {
            name: "peer",
            live: true,
            help: "auto: neighbours that say HELLO (default); ADDR: this neighbour; any: all that \
                   reply to a probe",
            forms: &[
                form(
                    &[literal("auto", |d| d.peers.add_auto())],
                    "Neighbours that say in a HELLO that they split, and for as long as they do; \
                     see `Neighbours` below. This router says HELLO, too. The default, where no \
                     `peer` and no `to` is given.",
                ),
                form(
                    &[part("ADDR", "10.0.0.2", Value::Address(|d, peer| d.peers.add(peer)))],
                    "This neighbour runs `sheaf split`. <ADDR> must appear in the neighbour table \
                     (`ip neigh`), which is read twice a second; until then packets leave as they \
                     are. May be given several times.",
                ),
                form(
                    &[literal("any", |d| d.peers.add_any())],
                    "Every neighbour that replies to a probe. Of at most 1024; the packets of \
                     those beyond leave as they are.",
                ),
            ],
            ..Entry::MANY
        },
        HelloKey::ENTRY,
        Entry {
            name: "to",
            live: true,
            instead: true,
            help: "a splitter behind routers; via: what is reached through it",
            about: "A far end behind plain routers runs `sheaf split`: packets to <ADDR>, and to \
                    each <PREFIX> (such as 10.9.0.0/24) that is reached through it, share frames \
                    to <ADDR>. A route must lead there. Frames to it have at most 1280 bytes, or \
                    what the path takes where that is less: the kernel's path MTU and ICMP's \
                    \\(lqfragmentation needed\\(rq and \\(lqpacket too big\\(rq are heard, for 10 \
                    minutes and down to 576 bytes (IPv6: 1280). The longest prefix counts. May be \
                    given several times. The far end names this host, by the address that it \
                    sends from, with `from` or `to`.",
            forms: &[Form {
                parts: &[part(
                    "ADDR",
                    "10.9.0.1",
                    Value::Address(set!(|d, address| d
                        .far_ends
                        .push(FarEnd { address, prefixes: vec![Prefix::from(address)] }))),
                )],
                group: &[Entry {
                    name: "via",
                    help: "what is reached through it",
                    forms: &[form(&[part("PREFIX,...", "10.9.0.0/24", Value::Prefixes(via))], "")],
                    ..Entry::ONCE
                }],
                ..Form::EMPTY
            }],
            ..Entry::MANY
        },
        Entry {
            name: "policy",
            live: true,
            help: "busy: wait only while own frames are under way (default); forced: up to timeout",
            forms: &[
                form(
                    &[literal("busy", set!(|d| d.config.policy = Policy::Busy))],
                    "The default. Packets wait only while frames of this command are under way in \
                     the device, when they would wait anyway; an idle link delays nothing but a \
                     probe. What counts as under way is below, in `When the device is busy`. On a \
                     contended channel `backoff` adds to the wait.",
                ),
                form(
                    &[literal("forced", set!(|d| d.config.policy = Policy::Forced))],
                    "Packets wait until `min` bytes have come together, at most for `timeout`.",
                ),
            ],
            ..Entry::ONCE
        },
        Entry {
            name: "min",
            live: true,
            help: "bytes with which a queue leaves early under forced, or a share of max (500)",
            about: "Under `forced`, bytes with which a queue leaves before its timeout; or a share \
                    of `max`, 0% to 100%. Default 500, or `max` where that is less. At most `max`.",
            forms: &[
                form(
                    &[part(
                        "BYTES",
                        "500",
                        Value::Size(|d, bytes| {
                            let bytes = u32::try_from(bytes).ok();
                            let bytes = bytes.context("min is out of range; give at most max")?;
                            d.min = Some(Threshold::Bytes(bytes));
                            Ok(())
                        }),
                    )],
                    "",
                ),
                form(&[part("P%", "40%", Value::Like(|word| word.ends_with('%'), share))], ""),
            ],
            ..Entry::ONCE
        },
        Entry {
            name: "max",
            live: true,
            help: "bytes of the largest frame (1500); auto: as the link to each neighbour allows; \
                   mark: as the packets' marks say",
            forms: &[
                form(
                    &[part(
                        "BYTES",
                        "1500",
                        Value::Size(|d, bytes| {
                            d.max = Some(u16::try_from(bytes).ok().with_context(|| {
                                format!("max {bytes} is out of range; give 100 to 2048 bytes")
                            })?);
                            Ok(())
                        }),
                    )],
                    "Largest meta packet, its IP header included; 100 to 2048, at most the MTU of \
                     <IF>. Default 1500, or the MTU where that is less. When the MTU shrinks \
                     later, so does this.",
                ),
                form(
                    &[literal("auto", set!(|d| d.follow = true))],
                    "Frames to each neighbour follow its link: the size that brings most across, \
                     as long as at most 3 % are lost after all attempts of the radio; from 100 \
                     bytes to the default, by what the radio's driver measures and by what the \
                     neighbour asks for in its HELLOs. A share as `min` follows, too. Where \
                     nothing is measured it is the default. Goes with `peer auto`.",
                ),
                form(
                    &[literal("mark", set!(|d| d.config.by_mark = true))],
                    "The default, or less where a packet's firewall mark says so: bits 2 to 17 of \
                     the mark are the largest frame in bytes, its IP header included, that the \
                     packet may be in; 0 there says nothing. A frame goes by the mark of the \
                     packet that joins it: where the packet does not fit by that, the frame ends \
                     before it. A packet with which nothing fits leaves alone, but never before \
                     gathered packets of its own flow. A share as `min` is of the same size. \
                     Needs the kernel engine. With `match mark 3/3` and `policy forced` this is \
                     what Karlstad's `max 0` was.",
                ),
            ],
            ..Entry::ONCE
        },
        Entry {
            name: "format",
            live: true,
            help: "the richest wire format: meta, frames, compressed (default)",
            forms: &[
                form(
                    &[literal("compressed", set!(|d| d.format = Some(Format::Compressed)))],
                    "Frames of format 2 with the headers of UDP and RTP compressed, to hosts that \
                     reply to a probe in it; meta packets to all others. The default.",
                ),
                form(
                    &[literal("frames", set!(|d| d.format = Some(Format::Frames)))],
                    "The same without compression: packets continue in the next frame, so that \
                     frames are always full.",
                ),
                form(
                    &[literal("meta", set!(|d| d.format = Some(Format::Meta)))],
                    "Format 1 to everybody: meta packets.",
                ),
            ],
            ..Entry::ONCE
        },
        Entry {
            name: "carriage",
            live: true,
            help: "what frames of format 2 to neighbours travel in: ip (default), ethernet",
            forms: &[
                form(
                    &[literal("ip", set!(|d| d.links = false))],
                    "Packets of IP, protocol 253. The default. Where UDP alone passes, as through \
                     a NAT, let `dev` be a trunk of one link (`sheaf-trunk`(8)) or WireGuard, \
                     and give `to`.",
                ),
                form(
                    &[literal("ethernet", set!(|d| d.links = true))],
                    "Ethernet frames of EtherType 0x88b5 (local experimental 1), which have 20 or \
                     40 bytes more room, to neighbours with the same word that reply to a probe \
                     in one; IP to all others. Queues on the way see no class and no ECN field in \
                     them. What else is of this EtherType on the link goes on as it is, unless it \
                     begins with a byte of 0 or 2. Goes with `peer auto`; needs the kernel engine.",
                ),
            ],
            ..Entry::ONCE
        },
        Entry {
            name: "timeout",
            live: true,
            help: "longest wait under forced (5ms)",
            about: "Longest wait under `forced`. Default 5ms. At most `hold`.",
            forms: &[form(
                &[part("TIME", "5ms", Value::Time(set!(|d, time| d.config.timeout = time)))],
                "",
            )],
            ..Entry::ONCE
        },
        Entry {
            name: "hold",
            live: true,
            help: "longest wait under any policy (100ms)",
            about: "Longest wait under any policy, whatever the device does. Default 100ms. Above \
                    0.",
            forms: &[form(
                &[part("TIME", "100ms", Value::Time(set!(|d, time| d.config.hold = time)))],
                "",
            )],
            ..Entry::ONCE
        },
        Entry {
            name: "inflight",
            live: true,
            help: "frames that may be under way under busy, at least (1)",
            about: "Under `busy`, least number of frames that may be under way; from 1. Default 1. \
                    The kernel engine raises it on fast devices by itself. More fills the air \
                    better where the driver needs several frames at once, and gathers less.",
            forms: &[form(
                &[part("N", "1", Value::Number(MANY, set!(|d, n| d.config.inflight = n as u32)))],
                "",
            )],
            ..Entry::ONCE
        },
        Entry {
            name: "backoff",
            live: true,
            help: "factor: how long a station with full frames leaves a contended channel to \
                   others, under busy (24); 0 or off: not at all",
            about: "Under `busy`, how long a station leaves a contended channel to others: <N> \
                    times <F> times <C> after each frame. <F> is the share of a largest frame \
                    that frames fill, a quarter at most, and 0 for a packet alone. <C> is by how \
                    much frames took longer than twice the quickest of their length. Both are \
                    means over eight frames. Meanwhile only full frames leave, and nothing waits \
                    beyond `hold`. Default 24. With `0` or `off` there is no backoff; then \
                    sources with half-full frames take the channel from the router that carries \
                    everybody's packets. Where a discipline sets the rate (tbf, HTB, HFSC, cake, \
                    netem) there is none either.",
            forms: &[
                form(
                    &[part(
                        "N",
                        "24",
                        Value::Number(ANY, set!(|d, n| d.config.backoff = n as u32)),
                    )],
                    "",
                ),
                form(&[literal("off", set!(|d| d.config.backoff = 0))], ""),
            ],
            ..Entry::ONCE
        },
        Entry {
            name: "acks",
            live: true,
            help: "gather pure TCP acknowledgements, too (off)",
            forms: &[
                form(
                    &[literal("on", set!(|d| d.config.rules.acks = true))],
                    "Gather TCP segments without data whose only flag is ACK as well.",
                ),
                form(
                    &[literal("off", set!(|d| d.config.rules.acks = false))],
                    "Do not; the default.",
                ),
            ],
            ..Entry::ONCE
        },
        Entry {
            name: "group",
            live: true,
            help: "gather packets to groups, too, while all neighbours say that they take them \
                   apart (off); hosts without Sheaf lose those",
            forms: &[
                form(
                    &[literal("on", set!(|d| d.groups = true))],
                    "Gather UDP packets to multicast groups as well: those to one group share \
                     frames to that group. Goes with `peer auto`, without `key`, and with the \
                     kernel engine; see `Groups` below. A host on the link that says no HELLO, \
                     because it runs no Sheaf, does not understand these frames and loses what is \
                     in them, and nobody notices: do this only where all hosts that listen to \
                     groups run Sheaf.",
                ),
                form(
                    &[literal("off", set!(|d| d.groups = false))],
                    "Packets to groups leave as they are; the default.",
                ),
            ],
            ..Entry::ONCE
        },
        Entry {
            name: "match",
            live: true,
            help: "gather what matches; default: match proto udp length 256. RULE is:",
            about: "Gather what matches. Up to 16 rules are tried in order, and the first that \
                    matches decides; all criteria of a rule must hold. Any `match` takes the place \
                    of the default, `match proto udp length 256`. The criteria:",
            forms: &[rule::matching(
                Some(next_rule),
                &[],
                &[
                    Entry {
                        about: "The protocol: `udp`, `tcp`, `icmp`, `icmp6` (or `ipv6-icmp`), \
                                `sctp`, `any`, or a number but 0 and 253.",
                        ..Criteria::PROTO
                    },
                    Criteria::DSCP,
                    Criteria::SPORT,
                    Criteria::DPORT,
                    Criteria::MARK,
                    Entry {
                        about: "Longest packet that is gathered, in bytes of IP (65535). A longer \
                                one leaves alone, but never before gathered packets of its own \
                                flow.",
                        ..Criteria::LENGTH
                    },
                ],
                "proto udp length 256",
            )],
            ..Entry::MANY
        },
        Entry {
            name: "engine",
            live: true,
            help: "kernel: eBPF; user: a TAP interface; auto: kernel where it can be (default)",
            forms: &[
                form(
                    &[literal("auto", set!(|d| d.engine = Some(Engine::Auto)))],
                    "`kernel`; where the kernel refuses the programs, for whatever reason, `user`. \
                     The first line has the reason. The default.",
                ),
                form(
                    &[literal("kernel", set!(|d| d.engine = Some(Engine::Kernel)))],
                    "eBPF programs at the interface carry the packets. This process only keeps \
                     time, before every ordinary process (SCHED_RR) where that is allowed. Needs \
                     Linux 6.1 or newer, with tcx (Linux 6.6) or the clsact queue (modules \
                     sch_ingress and cls_bpf). Neither type information (BTF) nor a JIT is needed.",
                ),
                form(
                    &[literal("user", set!(|d| d.engine = Some(Engine::User)))],
                    "A TAP interface `sheaf`<N> (<N>: the number of <IF>) lies in front of <IF> by \
                     its routes, and this process carries the packets. A firewall sees them on the \
                     TAP interface. A gathered packet that leaves alone has a meta header, too, so \
                     that fair queues and a receiver that splits in user space keep its place.",
                ),
            ],
            ..Entry::ONCE
        },
        Entry {
            name: "probe",
            live: true,
            help: "ask each of them whether it splits (on); off: trust the command line",
            forms: &[
                form(
                    &[literal("on", set!(|d| d.unprobed = false))],
                    "Ask each neighbour and far end whether it splits; the default.",
                ),
                form(
                    &[literal("off", set!(|d| d.unprobed = true))],
                    "Trust the command line: for hosts that do not reply to ICMP echo. An error \
                     that says otherwise still ends frames to a host, for 10 seconds.",
                ),
            ],
            ..Entry::ONCE
        },
    ],
};

/// Options for every hop, an extension header of IPv6 (RFC 8200, section 4.3).
const HOP_BY_HOP: Protocol = Protocol(0);
/// Numbers of frames.
const MANY: std::ops::RangeInclusive<u64> = 1..=u32::MAX as u64;
/// Factors.
const ANY: std::ops::RangeInclusive<u64> = 0..=u32::MAX as u64;

fn via(draft: &mut Draft, prefixes: Vec<Prefix>) -> anyhow::Result<()> {
    let far_end = draft.far_ends.last_mut().context("via stands behind to")?;
    far_end.prefixes.extend(prefixes);
    Ok(())
}

/// Takes a share such as `40%`.
fn share(draft: &mut Draft, word: &str) -> anyhow::Result<()> {
    let percent = word.trim_end_matches('%').parse().ok().filter(|percent| *percent <= 100);
    let percent =
        percent.with_context(|| format!("min {word} is not a share; give 0% to 100% of max"))?;
    draft.min = Some(Threshold::Percent(percent));
    Ok(())
}

fn next_rule(draft: &mut Draft) -> anyhow::Result<()> {
    let limit = sheaf_bpf::layout::RULES;
    ensure!(draft.rules.len() < limit, "these are too many rules; give at most {limit}");
    draft.rules.push(rule::everything());
    Ok(())
}

fn finish(draft: Draft) -> anyhow::Result<Settings> {
    let Draft { dev, mut peers, far_ends, engine, unprobed, min, max, follow, rules, .. } = draft;
    let (key, links, groups, mut config) = (draft.key, draft.links, draft.groups, draft.config);
    let format = draft.format.unwrap_or(Format::Compressed);
    for protocol in rules.iter().filter_map(|rule| rule.protocol) {
        ensure!(
            !matches!(protocol, HOP_BY_HOP | Protocol::META),
            "proto {} is never gathered; give another one",
            protocol.0
        );
    }
    if !rules.is_empty() {
        config.rules = Rules { rules, ..config.rules };
    }
    peers.auto |= peers.is_empty() && far_ends.is_empty();
    ensure!(key.is_none() || peers.auto, KEY_WITHOUT_HELLO);
    let engine = engine.unwrap_or(Engine::Auto);
    ensure!(!follow || peers.auto, "max auto needs HELLOs, and peer auto is not given; add it");
    ensure!(
        !config.by_mark || engine != Engine::User,
        "max mark needs the kernel engine, as the TAP interface of the one in user space hides \
         marks; leave out engine user, or give max in bytes"
    );
    let probe = !unprobed;
    if links {
        ensure!(peers.auto, CARRIAGE_WITHOUT_HELLO);
        ensure!(
            engine != Engine::User,
            "carriage ethernet needs the kernel engine; leave out engine user, or carriage"
        );
        ensure!(
            probe,
            "carriage ethernet needs a reply to a probe, and probe is off; leave out either"
        );
        ensure!(
            format != Format::Meta,
            "carriage ethernet needs frames of format 2, and format is meta; leave out either"
        );
    }
    if groups {
        ensure!(peers.auto, "group on needs HELLOs, and peer auto is not given; add it");
        ensure!(
            key.is_none(),
            "group on goes without key, as nobody knows who accepts a frame to a group with one; \
             leave out either"
        );
        ensure!(
            format != Format::Meta,
            "group on needs frames of format 2, and format is meta; leave out either"
        );
    }
    Ok(Settings {
        dev,
        peers,
        far_ends,
        engine,
        probe,
        links,
        groups,
        key,
        min,
        max,
        follow,
        format,
        config,
    })
}

/// The settings of `sheaf split` as far as words have set them.
#[derive(Default)]
pub struct SplitDraft {
    dev: String,
    peers: Peers,
    key: Option<PathBuf>,
    links: bool,
    off: bool,
}

/// Examples for `sheaf split --help`.
pub const SPLIT_EXAMPLES: &[&str] = &[
    "sheaf split dev wlan0                     until Ctrl-C; neighbours find it",
    "sheaf split dev wlan0 peer 10.0.0.1       returns at once, and stays",
];

/// The command line of `sheaf split`.
pub static SPLIT: Grammar<SplitDraft, Split> = Grammar {
    command: "split",
    about: "take frames with several packets apart",
    operands: &[],
    operand_help: "",
    operand_about: "",
    sections: &[&SPLIT_WORDS],
    tail: None,
    finish: finish_split,
};

static SPLIT_WORDS: Section<SplitDraft> = Section {
    title: "",
    about: "",
    name: "",
    entries: &[
        Entry {
            name: "dev",
            help: "the interface that meta packets arrive on",
            about: "The interface, an Ethernet one. It may be down.",
            forms: &[form(
                &[part("IF", "wlan0", Value::Interface(set!(|d, dev| d.dev = dev.to_owned())))],
                "",
            )],
            ..Entry::REQUIRED
        },
        Entry {
            name: "peer",
            live: true,
            help: "auto: say HELLO, and take those of all neighbours apart (default); ADDR: those \
                   of this neighbour; any: all",
            forms: &[
                form(
                    &[literal("auto", |d| d.peers.add_auto())],
                    "Say HELLO until SIGINT or SIGTERM, so that neighbours with `peer auto` find \
                     this one, and accept meta packets from every neighbour; with `key`, from \
                     holders of the key. The default, where nobody is named.",
                ),
                form(
                    &[part("ADDR", "10.0.0.1", Value::Address(|d, peer| d.peers.add(peer)))],
                    "Accept meta packets of the neighbour <ADDR>, which is their outer source. \
                     Their outer hop limit or TTL must be 255, which nothing has that crossed a \
                     router (RFC 5082); others are dropped (`not-from-the-link`). May be given \
                     several times. Those of strangers are dropped (`unknown-peer`).",
                ),
                form(
                    &[literal("any", |d| d.peers.add_any())],
                    "Accept them from every neighbour, whatever its address. Who is on the link \
                     can then make packets appear here with any source address, as it can without; \
                     name the peers where a switch or access point filters.",
                ),
            ],
            ..Entry::MANY
        },
        Entry {
            name: "carriage",
            live: true,
            help: "ethernet: take frames without a header of IP, too, and say so; ip (default)",
            forms: &[
                form(
                    &[literal("ip", set!(|d| d.links = false))],
                    "Frames of format 2 are taken in packets of IP, protocol 253. The default.",
                ),
                form(
                    &[literal("ethernet", set!(|d| d.links = true))],
                    "Frames of format 2 without a header of IP (EtherType 0x88b5) are taken, too, \
                     and HELLOs say so, for neighbours with `carriage ethernet` in \
                     `sheaf-aggregate`(8). What else is of this EtherType on the link goes on as \
                     it is, unless it begins with a byte of 0 or 2. Goes with `peer auto`.",
                ),
            ],
            ..Entry::ONCE
        },
        HelloKey::ENTRY,
        Entry {
            name: "from",
            instead: true,
            help: "take those of this far end apart, which is behind routers",
            about: "Accept meta packets of the far end <ADDR>, which names this host with `to` in \
                    `sheaf-aggregate`(8), with any hop limit. As nothing proves where they come \
                    from, inner packets that only a neighbour may send are dropped one by one \
                    (`only-neighbours-say`): ICMPv6 types 133 to 137 (neighbour discovery), a hop \
                    limit or TTL of 255, and source or destination addresses that are link-local, \
                    multicast or broadcast. May be given several times, and beside `peer`.",
            forms: &[form(&[part("ADDR", "10.9.0.1", Value::Text(from))], "")],
            ..Entry::MANY
        },
        Entry {
            name: "off",
            instead: true,
            help: "take the splitter off",
            about: "Take the program off. An error where there is none.",
            forms: &[flag(set!(|d| d.off = true), "")],
            ..Entry::ONCE
        },
    ],
};

fn from(draft: &mut SplitDraft, word: &str) -> anyhow::Result<()> {
    ensure!(word != "any", "from any would trust everybody who can send here; name the far ends");
    let address: IpAddr = word
        .parse()
        .ok()
        .with_context(|| format!("from {word:?} is not an IP address; write it like 10.9.0.1"))?;
    ensure!(!draft.peers.far_ends.contains(&address), "from {word} is given twice; give it once");
    draft.peers.far_ends.push(address);
    Ok(())
}

fn finish_split(draft: SplitDraft) -> anyhow::Result<Split> {
    let SplitDraft { dev, mut peers, key, links, off } = draft;
    if off {
        ensure!(
            peers.is_empty() && key.is_none() && !links,
            "off takes no peers, no key and no carriage; leave these out, or off"
        );
        return Ok(Split { dev, peers: None, key, links });
    }
    peers.auto |= peers.is_empty();
    ensure!(key.is_none() || peers.auto, KEY_WITHOUT_HELLO);
    ensure!(!links || peers.auto, CARRIAGE_WITHOUT_HELLO);
    Ok(Split { dev, peers: Some(peers), key, links })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::WordError;
    use sheaf_aggregate::Senders;
    use std::time::Duration;

    fn parse(line: &str) -> Result<Settings, WordError> {
        let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        GRAMMAR.parse(&words)
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
    fn where_a_discipline_sets_the_rate_there_is_no_backoff() {
        let arguments = parse("dev x peer any backoff 6").unwrap();
        let backoff = |shaped| arguments.fitted(1500, shaped).unwrap().backoff;
        assert_eq!((backoff(false), backoff(true)), (6, 0));
    }

    #[test]
    fn what_was_given_fits_an_interface_whose_mtu_shrank() {
        let arguments = parse("dev x peer any max 1500 min 1400 probe off").unwrap();
        assert!(arguments.config(1280).is_err() && !arguments.probe);
        let config = arguments.fitted(1280, false).unwrap();
        assert_eq!((config.max, config.min), (1280, Threshold::Bytes(1280)));
        assert_eq!(arguments.fitted(9000, false).unwrap(), arguments.config(9000).unwrap());
    }

    #[test]
    fn sizes_by_mark_have_the_default_as_their_bound() {
        let config = parse("dev x max mark min 40%").unwrap().config(1400).unwrap();
        assert!(config.by_mark && !parse("dev x max 700").unwrap().config.by_mark);
        assert_eq!((config.max, config.min), (1400, Threshold::Percent(40)));
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
        assert_eq!(arguments.far_ends[1].prefixes, [sheaf_wire::prefix::parse("fd00::1").unwrap()]);
    }

    #[test]
    fn every_wrong_line_names_cause_and_remedy() {
        for (line, cause) in [
            ("", "dev is missing; write dev wlan0"),
            ("dev", "dev lacks its value"),
            ("dev x dev y peer any", "dev is given twice"),
            ("dev x peer auto peer auto", "peer auto is given twice"),
            ("dev x peer any max auto", "max auto needs HELLOs, and peer auto is not given"),
            ("dev x max auto max 500", "max is given twice"),
            ("dev x max mark max 500", "max is given twice"),
            ("dev x max mark engine user", "max mark needs the kernel engine"),
            ("dev x max marks", "write it like 1500, or auto, or mark"),
            ("dev x peer 10.0.0.2 key k", "key is for HELLOs, and peer auto is not given"),
            ("dev x peer any group on", "group on needs HELLOs, and peer auto is not given"),
            ("dev x group on key k", "group on goes without key"),
            ("dev x group on format meta", "group on needs frames of format 2"),
            ("dev x peer any carriage ethernet", "carriage ethernet needs HELLOs"),
            ("dev x carriage ethernet engine user", "carriage ethernet needs the kernel engine"),
            ("dev x carriage ethernet probe off", "carriage ethernet needs a reply to a probe"),
            ("dev x carriage ethernet format meta", "carriage ethernet needs frames of format 2"),
            ("dev x carriage udp", "give ip or ethernet"),
            ("dev x group maybe", "give on or off"),
            ("dev x peer any timout 5ms", "unknown keyword \"timout\"; did you mean \"timeout\"?"),
            ("dev x peer any timeout 5", "timeout 5 has no unit; write 5ms or 5us"),
            ("dev x peer any policy eager", "give busy or forced"),
            ("dev x peer any engine fast", "give auto, kernel or user"),
            ("dev x peer any acks maybe", "give on or off"),
            ("dev x peer any probe maybe", "give on or off"),
            ("dev x peer 10.0.0.300", "is not an IP address"),
            ("dev x peer 10.0.0.2 peer 10.0.0.2", "given twice"),
            ("dev x peer any peer any", "peer any is given twice"),
            ("dev x peer any inflight 0", "inflight 0 is too small; give 1 or more"),
            ("dev x peer any inflight x", "is not a number; write it like 1"),
            ("dev x peer any backoff", "backoff lacks its value; write backoff 24"),
            (
                "dev x peer any backoff on",
                "backoff \"on\" is not a number; write it like 24, or off",
            ),
            ("dev x peer any backoff -1", "write it like 24, or off"),
            ("dev x peer any backoff 5000000000", "give a smaller number, or off"),
            ("dev x peer any backoff 6 backoff off", "backoff is given twice"),
            ("dev x peer any bakoff 6", "did you mean \"backoff\"?"),
            ("dev x peer any match length 60 backoff", "backoff lacks its value"),
            ("dev x peer any max 99999", "max 99999 is out of range; give 100 to 2048 bytes"),
            ("dev x peer any match", "match says nothing"),
            ("dev x peer any match peer any", "match says nothing"),
            ("dev x peer any match prot udp", "did you mean \"proto\"?"),
            ("dev x peer any match proto 253", "never gathered"),
            ("dev x peer any match mark 4/3", "matches nothing"),
            ("dev x via 10.0.0.0/8", "via stands behind to; write to 10.9.0.1 via"),
            ("dev x to 10.0.0.1 via", "via lacks its value"),
        ] {
            let error = parse(line).unwrap_err().to_string();
            assert!(error.contains(cause) && !error.contains('\n'), "{line}: {error}");
        }
        let many = "match length 60 ".repeat(17);
        assert!(parse(&format!("dev x peer any {many}")).is_err());
    }

    #[test]
    fn neighbours_that_say_hello_are_the_peers_where_nobody_is_named() {
        let peers = |line: &str| parse(line).unwrap().peers;
        assert!(peers("dev x").auto && peers("dev x peer auto peer 10.0.0.2").auto);
        assert!(!peers("dev x peer any").auto && !peers("dev x to 10.9.0.1").auto);
        assert!(peers("dev x to 10.9.0.1 peer auto").auto);
        assert!(parse("dev x group on").unwrap().groups && !parse("dev x").unwrap().groups);
        assert!(!parse("dev x key mesh.key group off").unwrap().groups);
        let settings = parse("dev x key mesh.key").unwrap();
        assert_eq!(settings.key, Some("mesh.key".into()));
    }

    #[test]
    fn a_splitter_tells_neighbours_from_far_ends() {
        let parse = |line: &str| {
            let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
            SPLIT.parse(&words)
        };
        let split = parse("from 10.9.0.1 dev x peer 10.0.0.2 peer 10.9.0.1 from fd00::1").unwrap();
        let Senders { any, neighbours, far_ends } = split.peers.unwrap().senders();
        assert!(!any);
        assert_eq!(neighbours, ["10.0.0.2", "10.9.0.1"].map(|text| text.parse().unwrap()).into());
        assert_eq!(far_ends, ["10.9.0.1", "fd00::1"].map(|text| text.parse().unwrap()).into());
        assert_eq!(parse("dev x off").unwrap().peers, None);
        assert!(parse("dev x").unwrap().peers.unwrap().auto && !parse("dev x").unwrap().links);
        assert!(parse("dev x carriage ethernet").unwrap().links);
        assert!(parse("dev x from 10.9.0.1 peer auto").unwrap().peers.unwrap().auto);
        for (line, cause) in [
            ("dev x peer any key k", "key is for HELLOs, and peer auto is not given"),
            ("dev x off key k", "off takes no peers, no key and no carriage"),
            ("dev x off carriage ethernet", "off takes no peers, no key and no carriage"),
            ("dev x peer any carriage ethernet", "carriage ethernet needs HELLOs"),
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
        assert!(parse("dev x peer any min 101%").is_err());
        assert!(refused("dev x peer any max 4096").contains("out of range"));
        assert!(refused("dev x peer any timeout 200ms").contains("raise hold"));
    }
}
