//! LINK: the options of tc-netem(8), so that a command line that works there works here. Times and
//! rates need a unit, though: for `tc` a bare number is microseconds and bits a second.

use super::draft::Draft;
use super::link_draft::Shape;
use crate::words::{Entry, Form, Section, Value, filler, flag, form, literal, optional, part, set};
use sheaf_emulator::{
    Chance, Delay, Distribution, FourState, Gemodel, Loss, Overhead, Reorder, Slot, SlotWait,
};
use sheaf_stage::Duration;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Any whole number.
const ANY: RangeInclusive<u64> = 0..=u64::MAX;
/// Numbers of 32 bits.
const SMALL: RangeInclusive<u64> = 0..=u32::MAX as u64;

/// The link itself.
pub static SECTION: Section<Draft> = Section {
    title: "The link",
    about: "Words are those of `tc-netem`(8), in any order, but times and rates need a unit: a \
            bare number is microseconds and bits a second for `tc`, which nobody expects. Bare \
            shares are percent. Of an option that is given twice the last counts, as for `tc`(8).",
    name: "LINK",
    entries: &[
        Entry {
            name: "limit",
            live: true,
            help: "packets that the rate queue holds (1000)",
            about: "Packets that the rate queue holds, the one that is being sent included; from \
                    1. Default 1000 (fq_codel 10240, dualpi2 10000). Without `rate` or a trace \
                    nothing waits there.",
            forms: &[form(
                &[part(
                    "N",
                    "100",
                    Value::Number(1..=u64::MAX, set!(|d, n| d.link().limit = Some(n))),
                )],
                "",
            )],
            ..Entry::LAST
        },
        Entry {
            name: "seed",
            help: "of all chances; drawn and printed where it is not given",
            about: "Of all chances: the same packets have the same fate. Drawn and printed where \
                    it is not given.",
            forms: &[form(
                &[part("N", "7", Value::Number(ANY, set!(|d, n| d.seed = Some(n))))],
                "",
            )],
            ..Entry::LAST
        },
        Entry {
            name: "ordered",
            live: true,
            help: "packets leave in the order they came, whatever their jitter",
            about: "Packets leave in the order they came, whatever their jitter. Not in NetEm.",
            forms: &[flag(set!(|d| d.link().config.ordered = true), "")],
            ..Entry::LAST
        },
        Entry {
            name: "single",
            live: true,
            help: "limit counts packets under way, too, as NetEm's one queue does",
            about: "`limit` counts packets under way on the delay line, too, as NetEm's one queue \
                    does; for `queue fifo` only. To show what that does to a link, or to repeat \
                    what was measured with NetEm.",
            forms: &[flag(set!(|d| d.link().config.single = true), "")],
            ..Entry::LAST
        },
        Entry {
            name: "delay",
            aliases: &["latency"],
            live: true,
            help: "length of the delay line: mean, standard deviation (0), and correlation with \
                   the packet before (0%)",
            about: "Length of the delay line: the mean; the standard deviation, whatever the \
                    distribution (0); and the correlation with the packet before (0% to below \
                    100%). A draw below 0 is 0. `latency` is the same word.",
            forms: &[form(
                &[
                    part("TIME", "20ms", Value::Time(delay)),
                    optional(
                        "JITTER",
                        "5ms",
                        Value::Time(set!(|d, jitter| d.link().config.delay.jitter = jitter)),
                    ),
                    optional(
                        "CORRELATION",
                        "25%",
                        Value::Percent(set!(|d, share| d.link().config.delay.correlation = share)),
                    ),
                ],
                "",
            )],
            ..Entry::LAST
        },
        Entry {
            name: "distribution",
            live: true,
            help: "shape of the jitter (uniform)",
            about: "Shape of the jitter: `uniform` (default), `normal`, `pareto`, `paretonormal`, \
                    a file such as `dist` writes, or one of /usr/lib/tc/<NAME>.dist.",
            forms: &[
                form(&[literal("uniform", set!(|d| d.shape("uniform")))], ""),
                form(&[literal("normal", set!(|d| d.shape("normal")))], ""),
                form(&[literal("pareto", set!(|d| d.shape("pareto")))], ""),
                form(&[literal("paretonormal", set!(|d| d.shape("paretonormal")))], ""),
                form(&[part("FILE", "normal", Value::File(set!(|d, name| d.shape(name))))], ""),
            ],
            ..Entry::LAST
        },
        Entry {
            name: "loss",
            aliases: &["drop"],
            live: true,
            help: "packets that are lost: at random, by four states, by Gilbert and Elliott, or \
                   those of a list",
            forms: &[
                form(
                    &[
                        filler("random"),
                        part("P", "1%", Value::Percent(loss)),
                        optional(
                            "CORR",
                            "25%",
                            Value::Percent(|d, share| {
                                if let Loss::Random(chance) = &mut d.link().config.loss {
                                    chance.correlation = share;
                                }
                                Ok(())
                            }),
                        ),
                    ],
                    "Lose this share of the packets, with a correlation. The word `random` may be \
                     left out, and `drop` is the same as `loss`. A lost packet has used the rate.",
                ),
                form(
                    &[
                        literal("state", |_| Ok(())),
                        part(
                            "P13",
                            "1%",
                            Value::Percent(set!(
                                |d, p| d.link().config.loss = Loss::State(FourState::new(p))
                            )),
                        ),
                        optional("P31", "30%", Value::Percent(set!(|d, p| d.state(|m| m.p31 = p)))),
                        optional("P32", "0%", Value::Percent(set!(|d, p| d.state(|m| m.p32 = p)))),
                        optional(
                            "P23",
                            "100%",
                            Value::Percent(set!(|d, p| d.state(|m| m.p23 = p))),
                        ),
                        optional("P14", "0%", Value::Percent(set!(|d, p| d.state(|m| m.p14 = p)))),
                    ],
                    "Four states: a burst begins (P13), ends (P31, default 1 - P13), a packet \
                     comes through within it (P32, 0), the next is lost again (P23, 100%), a \
                     single packet is lost (P14, 0).",
                ),
                form(
                    &[
                        literal("gemodel", |_| Ok(())),
                        part(
                            "P",
                            "1%",
                            Value::Percent(set!(
                                |d, p| d.link().config.loss = Loss::Gemodel(Gemodel::new(p))
                            )),
                        ),
                        optional("R", "10%", Value::Percent(set!(|d, p| d.gemodel(|m| m.r = p)))),
                        optional(
                            "1-H",
                            "100%",
                            Value::Percent(set!(|d, p| d.gemodel(|m| m.bad_loss = p))),
                        ),
                        optional(
                            "1-K",
                            "0%",
                            Value::Percent(set!(|d, p| d.gemodel(|m| m.good_loss = p))),
                        ),
                    ],
                    "Gilbert and Elliott: from the good state to the bad (P), back (R, default 1 - \
                     P), loss in the bad state (1-H, 100%) and in the good (1-K, 0).",
                ),
                form(
                    &[
                        literal("pattern", |_| Ok(())),
                        part("LIST|FILE", "3,7,100-110", Value::File(pattern)),
                        optional(
                            "PERIOD",
                            "1000",
                            Value::Number(
                                1..=u64::MAX,
                                set!(|d, packets| d.link().pattern.1 = Some(packets)),
                            ),
                        ),
                    ],
                    "These packets, numbered from 1 as they arrive in this direction: numbers and \
                     ranges between commas, or a file of them, `#` before comments. After PERIOD \
                     packets the pattern begins again.",
                ),
            ],
            ..Entry::LAST
        },
        Entry {
            name: "ecn",
            live: true,
            help: "mark packets that understand it in place of losing them",
            about: "Mark packets that understand it in place of losing them.",
            forms: &[flag(set!(|d| d.link().config.loss_ecn = true), "")],
            ..Entry::LAST
        },
        Entry {
            name: "duplicate",
            live: true,
            help: "packets that arrive twice",
            about: "Packets that arrive twice.",
            forms: &[form(
                &[
                    part(
                        "P",
                        "1%",
                        Value::Percent(set!(|d, p| d.link().config.duplicate = Chance::of(p))),
                    ),
                    optional(
                        "CORR",
                        "25%",
                        Value::Percent(set!(
                            |d, share| d.link().config.duplicate.correlation = share
                        )),
                    ),
                ],
                "",
            )],
            ..Entry::LAST
        },
        Entry {
            name: "corrupt",
            live: true,
            help: "packets with one bit flipped",
            about: "Packets with one bit flipped, behind the Ethernet header.",
            forms: &[form(
                &[
                    part(
                        "P",
                        "0.1%",
                        Value::Percent(set!(|d, p| d.link().config.corrupt = Chance::of(p))),
                    ),
                    optional(
                        "CORR",
                        "25%",
                        Value::Percent(
                            set!(|d, share| d.link().config.corrupt.correlation = share),
                        ),
                    ),
                ],
                "",
            )],
            ..Entry::LAST
        },
        Entry {
            name: "reorder",
            live: true,
            help: "packets that skip the delay, after each gap",
            about: "After N - 1 packets (N: `gap`, 1) the next ones skip the delay with this \
                    chance, until one does.",
            forms: &[form(
                &[
                    part("P", "25%", Value::Percent(reorder)),
                    optional(
                        "CORR",
                        "50%",
                        Value::Percent(|d, share| {
                            if let Some(reorder) = &mut d.link().config.reorder {
                                reorder.chance.correlation = share;
                            }
                            Ok(())
                        }),
                    ),
                ],
                "",
            )],
            ..Entry::LAST
        },
        Entry {
            name: "gap",
            live: true,
            help: "one more than the packets between two that skip the delay (1)",
            about: "The gap of `reorder`. Alone: every Nth packet skips the delay.",
            forms: &[form(
                &[part(
                    "N",
                    "5",
                    Value::Number(1..=u32::MAX as u64, set!(|d, n| d.link().gap = Some(n as u32))),
                )],
                "",
            )],
            ..Entry::LAST
        },
        Entry {
            name: "rate",
            live: true,
            help: "bits a second, and what each packet costs beyond its own bytes",
            about: "Bits a second. Counted are Ethernet frames without preamble and check sum (IP \
                    packets behind a shell), plus PACKETOVERHEAD bytes (may be negative; 24 for an \
                    Ethernet cable) in whole cells of CELLSIZE bytes of payload and CELLOVERHEAD \
                    of header (48 and 5 for ATM). A rate of 0 lets nothing leave.",
            forms: &[Form {
                parts: &[
                    part("R", "10mbit", Value::Rate(rate)),
                    optional(
                        "PACKETOVERHEAD",
                        "24",
                        Value::Signed(set!(|d, bytes| d.link().config.overhead.packet = bytes)),
                    ),
                    optional(
                        "CELLSIZE",
                        "48",
                        Value::Number(
                            SMALL,
                            set!(|d, bytes| d.link().config.overhead.cell = bytes as u32),
                        ),
                    ),
                    optional(
                        "CELLOVERHEAD",
                        "5",
                        Value::Signed(set!(|d, bytes| d.link().config.overhead.per_cell = bytes)),
                    ),
                ],
                group: BURST,
                ..Form::EMPTY
            }],
            ..Entry::LAST
        },
        Entry {
            name: "slot",
            live: true,
            help: "packets leave together in slots, so far apart",
            about: "Packets leave together in slots, so far apart; or, with `distribution`, as \
                    that says. `packets` <N> and `bytes` <N> bound a slot (0: no bound).",
            forms: &[
                Form {
                    parts: &[
                        part(
                            "MIN",
                            "800us",
                            Value::Time(|d, min| {
                                d.slot(SlotWait::Between(min, min));
                                Ok(())
                            }),
                        ),
                        optional(
                            "MAX",
                            "1ms",
                            Value::Time(|d, max| {
                                if let Some(SlotWait::Between(_, longest)) = d.wait() {
                                    *longest = max;
                                }
                                Ok(())
                            }),
                        ),
                    ],
                    group: BOUNDS,
                    ..Form::EMPTY
                },
                Form {
                    parts: &[
                        literal("distribution", |_| Ok(())),
                        part(
                            "NAME",
                            "pareto",
                            Value::File(|d, name| {
                                let none = Duration::ZERO;
                                let wait =
                                    SlotWait::Distributed(none, none, Distribution::default());
                                d.slot(wait);
                                d.link().slot_shape = Some(Shape::of(name));
                                Ok(())
                            }),
                        ),
                        part(
                            "DELAY",
                            "5ms",
                            Value::Time(|d, delay| {
                                if let Some(SlotWait::Distributed(mean, _, _)) = d.wait() {
                                    *mean = delay;
                                }
                                Ok(())
                            }),
                        ),
                        part(
                            "JITTER",
                            "1ms",
                            Value::Time(|d, jitter| {
                                if let Some(SlotWait::Distributed(_, deviation, _)) = d.wait() {
                                    *deviation = jitter;
                                }
                                Ok(())
                            }),
                        ),
                    ],
                    group: BOUNDS,
                    ..Form::EMPTY
                },
            ],
            ..Entry::LAST
        },
        Entry {
            name: "--trace",
            live: true,
            help: "Mahimahi's delivery opportunities, or CSV: time,rate,delay,loss and more",
            about: "A recorded link, which goes before `rate`. Mahimahi's form: a line for each \
                    millisecond at which 1504 bytes can leave. Counted are IP packets and 4 bytes \
                    for each, as there: a packet of 1500 bytes fills one line, whatever overhead \
                    `rate` has. Or CSV: a first line that names `time` and some of `rate`, \
                    `delay`, `jitter`, `loss`, `limit` (of the rate queue, in its unit), \
                    `duplicate` (share), `duplicate_delay` (by which the copy is later) and \
                    `route` (1 to 255: packets of the same one do not overtake each other; 0: \
                    all may), then rows at least 1 ms apart; bare numbers are seconds, bit/s, \
                    milliseconds and percent, and an empty field is what the other words say. \
                    Traces of all links begin together, and again at their end.",
            forms: &[form(
                &[part(
                    "FILE",
                    "lte.trace",
                    Value::File(set!(|d, file| d.link().trace = Some(file.to_owned()))),
                )],
                "",
            )],
            ..Entry::LAST
        },
        Entry {
            name: "--light",
            live: true,
            help: "the trains of a light load, beside a trace of the saturated link (CellReplay)",
            about: "How trains of packets fared while `--trace` was recorded, which then has the \
                    opportunities of a saturated link: CellReplay's second recording. A line for \
                    each train: its time, the one-way delay of its first packet, and for each \
                    packet the time after the first at which it came, all in milliseconds. The \
                    first packet of a train takes the delay of its time, those behind it the \
                    train's opportunities; what a train has beyond them waits, behind that delay, \
                    for the opportunities of the saturated link. A train ends when a packet would \
                    find none of it under way. `delay` comes in addition.",
            forms: &[form(
                &[part(
                    "FILE",
                    "lte-light.trace",
                    Value::File(set!(|d, file| d.link().light = Some(file.to_owned()))),
                )],
                "",
            )],
            ..Entry::LAST
        },
        Entry {
            name: "--once",
            live: true,
            help: "the trace ends; otherwise it begins again",
            about: "It does not. The last row of a CSV trace holds on; after the last line of \
                    Mahimahi's form nothing leaves.",
            forms: &[flag(set!(|d| d.link().once = true), "")],
            ..Entry::LAST
        },
        Entry {
            name: "--arm",
            live: true,
            help: "the trace begins with the first packet of any link, not at once",
            about: "The trace begins with the first packet that comes to any of the links, and \
                    those of all links with it. Until then they are as the other words say.",
            forms: &[flag(set!(|d| d.link().arm = true), "")],
            ..Entry::LAST
        },
    ],
};

/// The bound behind `rate`.
const BURST: &[Entry<Draft>] = &[Entry {
    name: "burst",
    live: true,
    help: "most bytes that leave at once after a late wake-up (no bound)",
    about: "Most bytes that leave at once when this program woke up late, as the rate counts \
            them; at least a frame. Without it, what became due meanwhile leaves at once, and \
            the rate is kept. With it, the link stands still for the rest of the time: the \
            packets leave at the rate, all later by that, and the time is lost, which `show` \
            counts. The smaller, the more is lost. A larger packet leaves alone. Jitter, slots \
            and duplicates make bursts of their own.",
    forms: &[form(
        &[part("SIZE", "3028", Value::Size(set!(|d, bytes| d.link().config.burst = Some(bytes))))],
        "",
    )],
    ..Entry::LAST
}];

/// The bounds of a slot.
const BOUNDS: &[Entry<Draft>] = &[
    Entry {
        name: "packets",
        help: "most packets of a slot (0: no bound)",
        forms: &[form(
            &[part(
                "N",
                "20",
                Value::Number(SMALL, |d, n| {
                    if let Some(slot) = &mut d.link().config.slot {
                        slot.packets = n as u32;
                    }
                    Ok(())
                }),
            )],
            "",
        )],
        ..Entry::LAST
    },
    Entry {
        name: "bytes",
        help: "most bytes of a slot (0: no bound)",
        forms: &[form(
            &[part(
                "N",
                "4000",
                Value::Size(|d, n| {
                    if let Some(slot) = &mut d.link().config.slot {
                        slot.bytes = n;
                    }
                    Ok(())
                }),
            )],
            "",
        )],
        ..Entry::LAST
    },
];

impl Draft {
    fn shape(&mut self, name: &str) {
        self.link().shape = Some(Shape::of(name));
    }

    fn state(&mut self, change: impl FnOnce(&mut FourState)) {
        if let Loss::State(model) = &mut self.link().config.loss {
            change(model);
        }
    }

    fn gemodel(&mut self, change: impl FnOnce(&mut Gemodel)) {
        if let Loss::Gemodel(model) = &mut self.link().config.loss {
            change(model);
        }
    }

    fn slot(&mut self, wait: SlotWait) {
        let link = self.link();
        link.slot_shape = None;
        link.config.slot = Some(Slot { wait, packets: 0, bytes: 0 });
    }

    fn wait(&mut self) -> Option<&mut SlotWait> {
        self.link().config.slot.as_mut().map(|slot| &mut slot.wait)
    }
}

fn delay(draft: &mut Draft, time: Duration) -> anyhow::Result<()> {
    // A second `delay` has a jitter of its own, or none.
    draft.link().config.delay = Delay::constant(time);
    Ok(())
}

fn loss(draft: &mut Draft, share: f64) -> anyhow::Result<()> {
    draft.link().config.loss = Loss::Random(Chance::of(share));
    Ok(())
}

fn pattern(draft: &mut Draft, list: &str) -> anyhow::Result<()> {
    let link = draft.link();
    // What it says is read when all words are known.
    link.config.loss = Loss::Pattern(Arc::default());
    link.pattern = (list.to_owned(), None);
    Ok(())
}

fn reorder(draft: &mut Draft, share: f64) -> anyhow::Result<()> {
    draft.link().config.reorder = Some(Reorder { chance: Chance::of(share), gap: 1 });
    Ok(())
}

fn rate(draft: &mut Draft, rate: sheaf_stage::Bitrate) -> anyhow::Result<()> {
    draft.link().config.rate = Some(rate);
    draft.link().config.overhead = Overhead::default();
    draft.link().config.burst = None;
    Ok(())
}
