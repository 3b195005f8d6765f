//! KIND: how the rate queue is managed, in the words of tc(8) and, for weighted queues, of ipfw(8).

use super::draft::Draft;
use super::queue_draft::{Kind, QueueDraft, Weighted};
use crate::words::{Done, Entry, Form, Section, Times, Value, flag, form, literal, part, set};
use anyhow::anyhow;
use sheaf_emulator::Limit;
use sheaf_emulator::queue::codel::CodelConfig;
use sheaf_emulator::queue::fq_codel::FqCodelConfig;
use sheaf_emulator::queue::red_parameters::RedParameters;
use std::ops::RangeInclusive;

/// Most queues of a weighted scheduler, so that a number in a command line takes no memory.
const MOST_QUEUES: u64 = 4096;
/// PIE marks up to this chance and drops above it (RFC 8033, section 5.1).
const PIE_ECN_BELOW: f64 = 0.1;
/// Numbers of 32 bits.
const SMALL: RangeInclusive<u64> = 0..=u32::MAX as u64;

/// The management of the rate queue.
pub static SECTION: Section<Draft> = Section {
    title: "The rate queue",
    about: "",
    name: "LINK",
    entries: &[Entry {
        name: "queue",
        aliases: &["sched"],
        times: Times::LastCounts,
        live: true,
        forms_name: "KIND",
        help: "how the rate queue is managed; the words of KIND follow at once",
        about: "How it is managed; its words follow at once, and the first word that is none of \
                them ends them. `sched` is the same word.",
        forms: &[
            form(
                &[literal("fifo", |d| d.kind(Kind::Fifo))],
                "Tail drop at `limit` packets; the default. `pfifo` is the same.",
            ),
            form(&[literal("pfifo", |d| d.kind(Kind::Fifo))], ""),
            Form {
                parts: &[literal("bfifo", |d| d.kind(Kind::ByteFifo))],
                group: &[Entry {
                    name: "limit",
                    required: true,
                    forms: &[form(&[part("SIZE", "30k", Value::Size(bytes))], "")],
                    ..Entry::LAST
                }],
                about: "Tail drop in bytes.",
                ..Form::EMPTY
            },
            form(
                &[literal("pfifo_head_drop", |d| d.kind(Kind::HeadDrop))],
                "The oldest packet makes room.",
            ),
            Form {
                parts: &[literal("codel", |d| d.kind(Kind::Codel))],
                group: &[TARGET, INTERVAL, ECN_CODEL],
                about: "RFC 8289; 5ms, 100ms. `ecn` marks.",
                ..Form::EMPTY
            },
            Form {
                parts: &[literal("pie", |d| d.kind(Kind::Pie))],
                group: &[
                    Entry {
                        name: "target",
                        forms: &[form(
                            &[part(
                                "TIME",
                                "15ms",
                                Value::Time(set!(|d, time| d.link().queue.pie.target = time)),
                            )],
                            "",
                        )],
                        ..Entry::LAST
                    },
                    Entry {
                        name: "tupdate",
                        forms: &[form(
                            &[part(
                                "TIME",
                                "15ms",
                                Value::Time(set!(|d, time| d.link().queue.pie.update = time)),
                            )],
                            "",
                        )],
                        ..Entry::LAST
                    },
                    Entry {
                        name: "ecn",
                        forms: &[flag(set!(|d| d.link().queue.pie.ecn_below = PIE_ECN_BELOW), "")],
                        ..Entry::LAST
                    },
                ],
                about: "RFC 8033; 15ms, 15ms. `ecn` marks up to a chance of 10 %.",
                ..Form::EMPTY
            },
            Form {
                parts: &[literal("fq_codel", |d| d.kind(Kind::FqCodel))],
                group: &[
                    Entry {
                        name: "flows",
                        forms: &[form(
                            &[part(
                                "N",
                                "1024",
                                Value::Number(
                                    SMALL,
                                    set!(|d, n| d.link().queue.fq_codel.flows = n as u32),
                                ),
                            )],
                            "",
                        )],
                        ..Entry::LAST
                    },
                    Entry {
                        name: "quantum",
                        forms: &[form(
                            &[part(
                                "SIZE",
                                "1514",
                                Value::Size(|d, bytes| {
                                    d.link().queue.fq_codel.quantum = small("quantum", bytes)?;
                                    Ok(())
                                }),
                            )],
                            "",
                        )],
                        ..Entry::LAST
                    },
                    TARGET,
                    INTERVAL,
                    ECN_CODEL,
                    Entry {
                        name: "noecn",
                        instead: true,
                        forms: &[flag(set!(|d| d.link().queue.codel.ecn = false), "")],
                        ..Entry::LAST
                    },
                ],
                about: "RFC 8290; 1024 (at most 65536), 1514, 5ms, 100ms. It marks; `noecn`: it \
                        drops.",
                ..Form::EMPTY
            },
            form(&[literal("dualpi2", |d| d.kind(Kind::DualPi2))], "RFC 9332, with its defaults."),
            Form {
                parts: &[literal("red", |d| {
                    d.kind(Kind::Red)?;
                    next_curve(d)
                })],
                group: RED,
                group_name: "RED",
                about: "As in `tc-red`(8). `max`: a quarter of limit; `min`: a third of max; \
                        `burst`: (2 min + max) / 3 avpkt; `probability`: 0.02; `bandwidth`: the \
                        link's rate, or 10mbit. `ecn` marks, `harddrop` drops beyond the curve \
                        nevertheless, `gentle` lets the chance rise to 1 at twice max, `adaptive` \
                        lets it follow the load.",
                ..Form::EMPTY
            },
            Form {
                parts: &[literal("gred", |d| d.kind(Kind::Gred))],
                group: &[
                    Entry {
                        name: "limit",
                        forms: &[form(&[part("SIZE", "100k", Value::Size(bytes))], "")],
                        ..Entry::LAST
                    },
                    ECN,
                    HARD_DROP,
                    Entry {
                        name: "vq",
                        required: true,
                        forms: &[Form {
                            begin: Some(next_curve),
                            group: RED,
                            group_name: "RED",
                            group_example: "limit 60k avpkt 1000",
                            ..Form::EMPTY
                        }],
                        ..Entry::MANY
                    },
                ],
                about: "Up to 16 such curves, for classes of one queue. `dscp`, behind `vq` only, \
                        names the classes: 0 to 63, a range, or a name such as ef. Those that none \
                        names take the curve without `dscp`, or the first. `limit`: the sum of \
                        all.",
                ..Form::EMPTY
            },
            Form {
                parts: &[literal("drr", |d| d.kind(Kind::Drr))],
                group: SHARES,
                group_name: "SHARES",
                about: "Shares between queues, numbered from 0 to 4095, by `weight` (1 to 65535; 1 \
                        where it is not named). `quantum`: bytes that a weight of 1 sends in its \
                        turn (1514; at least 64). `limit`: packets in each (1000). Classes that \
                        none names take queue 0.",
                ..Form::EMPTY
            },
            Form {
                parts: &[literal("wf2q+", |d| d.kind(Kind::Wf2q))],
                group: SHARES,
                group_name: "SHARES",
                about: "The same, packet by packet (no quantum). `wf2q` is the same word.",
                ..Form::EMPTY
            },
            Form {
                parts: &[literal("wf2q", |d| d.kind(Kind::Wf2q))],
                group: SHARES,
                group_name: "SHARES",
                ..Form::EMPTY
            },
        ],
        ..Entry::ONCE
    }],
};

const TARGET: Entry<Draft> = Entry {
    name: "target",
    forms: &[form(
        &[part("TIME", "5ms", Value::Time(set!(|d, time| d.link().queue.codel.target = time)))],
        "",
    )],
    ..Entry::LAST
};

const INTERVAL: Entry<Draft> = Entry {
    name: "interval",
    forms: &[form(
        &[part("TIME", "100ms", Value::Time(set!(|d, t| d.link().queue.codel.interval = t)))],
        "",
    )],
    ..Entry::LAST
};

const ECN_CODEL: Entry<Draft> = Entry {
    name: "ecn",
    forms: &[flag(set!(|d| d.link().queue.codel.ecn = true), "")],
    ..Entry::LAST
};

const ECN: Entry<Draft> = Entry {
    name: "ecn",
    help: "mark packets that understand it in place of dropping them",
    forms: &[flag(set!(|d| d.link().queue.ecn = true), "")],
    ..Entry::LAST
};

const HARD_DROP: Entry<Draft> = Entry {
    name: "harddrop",
    help: "drop beyond the curve nevertheless",
    forms: &[flag(set!(|d| d.link().queue.hard_drop = true), "")],
    ..Entry::LAST
};

/// The words of one RED curve.
const RED: &[Entry<Draft>] = &[
    Entry {
        name: "limit",
        required: true,
        help: "bytes that the queue holds",
        forms: &[form(&[part("SIZE", "60k", Value::Size(|d, n| d.red(|red| red.limit = n)))], "")],
        ..Entry::LAST
    },
    Entry {
        name: "avpkt",
        required: true,
        help: "bytes of a packet on average",
        forms: &[form(
            &[part("SIZE", "1000", Value::Size(|d, n| d.red(|red| red.mean_packet = n)))],
            "",
        )],
        ..Entry::LAST
    },
    Entry {
        name: "min",
        help: "bytes from which packets are dropped (a third of max)",
        forms: &[form(
            &[part("SIZE", "15k", Value::Size(|d, n| d.red(|red| red.min = Some(n))))],
            "",
        )],
        ..Entry::LAST
    },
    Entry {
        name: "max",
        help: "bytes from which all are (a quarter of limit)",
        forms: &[form(
            &[part("SIZE", "45k", Value::Size(|d, n| d.red(|red| red.max = Some(n))))],
            "",
        )],
        ..Entry::LAST
    },
    Entry {
        name: "burst",
        help: "packets that may come at once without a drop",
        forms: &[form(
            &[part("N", "20", Value::Number(SMALL, |d, n| d.red(|red| red.burst = Some(n))))],
            "",
        )],
        ..Entry::LAST
    },
    Entry {
        name: "probability",
        help: "the chance at max (0.02)",
        forms: &[form(
            &[part("P", "0.02", Value::Chance(|d, p| d.red(|red| red.probability = Some(p))))],
            "",
        )],
        ..Entry::LAST
    },
    Entry {
        name: "bandwidth",
        help: "rate by which an idle queue is reckoned (that of the link, or 10mbit)",
        forms: &[form(
            &[part("R", "10mbit", Value::Rate(|d, rate| d.red(|red| red.bandwidth = Some(rate))))],
            "",
        )],
        ..Entry::LAST
    },
    ECN,
    HARD_DROP,
    Entry {
        name: "adaptive",
        help: "the chance follows the load",
        forms: &[flag(|d| d.red(|red| red.adaptive = true), "")],
        ..Entry::LAST
    },
    Entry {
        name: "gentle",
        help: "the chance rises to 1 at twice max",
        forms: &[flag(|d| d.red(|red| red.gentle = true), "")],
        ..Entry::LAST
    },
    Entry {
        name: "dscp",
        help: "behind vq: the classes of this curve",
        forms: &[form(
            &[part(
                "CLASS,...",
                "ef",
                Value::Classes(|d, classes| {
                    if let Some((_, own)) = d.link().queue.curves.last_mut() {
                        *own = classes;
                    }
                    Ok(())
                }),
            )],
            "",
        )],
        ..Entry::LAST
    },
];

/// The words of queues with shares.
const SHARES: &[Entry<Draft>] = &[
    Entry {
        name: "quantum",
        help: "bytes that a weight of 1 sends in its turn (1514)",
        forms: &[form(
            &[part(
                "SIZE",
                "1514",
                Value::Size(|d, bytes| {
                    d.link().queue.weighted.config.quantum = small("quantum", bytes)?;
                    Ok(())
                }),
            )],
            "",
        )],
        ..Entry::LAST
    },
    Entry {
        name: "limit",
        help: "packets in each (1000)",
        forms: &[form(
            &[part(
                "N",
                "50",
                Value::Number(
                    1..=u64::MAX,
                    set!(|d, n| d.link().queue.weighted.config.limit = Limit::Packets(n)),
                ),
            )],
            "",
        )],
        ..Entry::LAST
    },
    Entry {
        name: "queue",
        required: true,
        help: "a queue, its share, and its classes",
        forms: &[Form {
            parts: &[part("N", "0 weight 1", Value::Number(0..=MOST_QUEUES - 1, queue))],
            group: &[
                Entry {
                    name: "weight",
                    forms: &[form(
                        &[part(
                            "W",
                            "4",
                            Value::Number(1..=65535, |d, weight| {
                                let Weighted { config, at } = &mut d.link().queue.weighted;
                                config.weights[*at] = weight as u32;
                                Ok(())
                            }),
                        )],
                        "",
                    )],
                    ..Entry::LAST
                },
                Entry {
                    name: "dscp",
                    forms: &[form(
                        &[part(
                            "CLASS,...",
                            "ef",
                            Value::Classes(|d, classes| {
                                let Weighted { config, at } = &mut d.link().queue.weighted;
                                let by_dscp = config.by_dscp.get_or_insert([0; 64]);
                                classes
                                    .iter()
                                    .for_each(|class| by_dscp[usize::from(*class)] = *at as u16);
                                Ok(())
                            }),
                        )],
                        "",
                    )],
                    ..Entry::LAST
                },
            ],
            ..Form::EMPTY
        }],
        ..Entry::MANY
    },
];

impl Draft {
    /// Begins a queue of `kind`; the last one counts.
    fn kind(&mut self, kind: Kind) -> Done {
        let codel = match kind {
            // It marks where the others drop.
            Kind::FqCodel => FqCodelConfig::default().codel,
            _ => CodelConfig::default().params,
        };
        self.link().queue = QueueDraft { kind, codel, ..QueueDraft::default() };
        Ok(())
    }

    /// Changes the curve that words are about.
    fn red(&mut self, change: impl FnOnce(&mut RedParameters)) -> Done {
        if let Some((red, _)) = self.link().queue.curves.last_mut() {
            change(red);
        }
        Ok(())
    }
}

fn next_curve(draft: &mut Draft) -> Done {
    draft.link().queue.curves.push((RedParameters::default(), Vec::new()));
    Ok(())
}

fn bytes(draft: &mut Draft, bytes: u64) -> Done {
    draft.link().queue.bytes = Some(bytes);
    Ok(())
}

fn small(word: &str, value: u64) -> anyhow::Result<u32> {
    u32::try_from(value).map_err(|_| anyhow!("{word} {value} is too large; give a smaller number"))
}

fn queue(draft: &mut Draft, number: u64) -> Done {
    let Weighted { config, at } = &mut draft.link().queue.weighted;
    // `Value::Number` bounds it, so that a number takes no memory.
    *at = usize::try_from(number)?;
    if config.weights.len() <= *at {
        // Queues between that are not named have the weight of dummynet's default.
        config.weights.resize(*at + 1, 1);
    }
    Ok(())
}
