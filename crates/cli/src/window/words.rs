//! The words of `sheaf window`.

use crate::words::{Entry, Form, Grammar, Section, Value, form, literal, part, set};
use anyhow::{Context, ensure};
use sheaf_daemon::window::settings::{Capacity, Settings};
use sheaf_stage::Bitrate;
use sheaf_window::flow::MAX_WINDOW;
use sheaf_window::{Config, Direction, Formula, Policy, Push};

/// The settings as far as words have set them.
#[derive(Default)]
pub struct Draft {
    dev: String,
    directions: Option<&'static [Direction]>,
    download: Option<Capacity>,
    upload: Option<Capacity>,
    formula: Option<Formula>,
    config: Config,
}

/// Examples for `--help`.
pub const EXAMPLES: &[&str] = &["sheaf window dev eth0 capacity 20mbit upload 4mbit"];

/// The command line of `sheaf window`.
pub static GRAMMAR: Grammar<Draft, Settings> = Grammar {
    command: "window",
    about: "lower the TCP windows that pass an interface so that no queue builds",
    operands: &[],
    operand_help: "",
    operand_about: "",
    sections: &[&WORDS],
    tail: None,
    finish,
};

/// The bounds of the search for the capacity of one direction, with examples.
macro_rules! bounds {
    ($capacity:ident, $least:literal, $most:literal) => {
        &[
            bound!("min", $least, |d, rate| least(&mut d.$capacity, rate)),
            bound!("max", $most, |d, rate| most(&mut d.$capacity, rate)),
        ]
    };
}

macro_rules! bound {
    ($name:literal, $example:literal, $set:expr) => {
        Entry {
            name: $name,
            forms: &[form(&[part("R", $example, Value::Rate($set))], "")],
            ..Entry::ONCE
        }
    };
}

static WORDS: Section<Draft> = Section {
    title: "",
    about: "",
    name: "",
    entries: &[
        Entry {
            name: "dev",
            help: "the interface towards the bottleneck: download is what comes in by it",
            forms: &[form(
                &[part("IF", "eth0", Value::Interface(set!(|d, dev| d.dev = dev.to_owned())))],
                "The interface towards the bottleneck: what comes in by it is a download, what \
                 leaves by it an upload.",
            )],
            ..Entry::REQUIRED
        },
        Entry {
            name: "capacity",
            live: true,
            help: "what the bottleneck carries, link headers included (needed, save with fixed); \
                   auto: found by itself; link: as fast as the interface is",
            forms: &[
                form(
                    &[part(
                        "RATE",
                        "20mbit",
                        Value::Rate(set!(|d, rate| d.download = given(rate))),
                    )],
                    "What the bottleneck carries, link headers included, such as 20mbit; a unit is \
                     needed. Give a little less than is bought: what is promised beyond what there \
                     is stands in the queue.",
                ),
                Form {
                    parts: &[literal("auto", set!(|d| d.download = Some(Capacity::AUTO)))],
                    group: bounds!(download, "2mbit", "50mbit"),
                    about: "It is found: raised a little from time to time, until round-trip times \
                            leave their floor. The search starts at 10 Mbit/s, or at the nearest \
                            of the bounds `min` and `max`, sends no packets of its own, and costs \
                            some delay each time. Each direction has a capacity of its own, which \
                            is kept while there is no data.",
                    ..Form::EMPTY
                },
                form(
                    &[literal("link", set!(|d| d.download = Some(Capacity::Link)))],
                    "The speed that the interface says it has (`ethtool`(8)), read once at the \
                     start.",
                ),
            ],
            ..Entry::ONCE
        },
        Entry {
            name: "upload",
            live: true,
            help: "the same for what goes out by IF (default: as capacity)",
            about: "The same for uploads. Default: as `capacity`.",
            forms: &[
                form(
                    &[part("RATE", "4mbit", Value::Rate(set!(|d, rate| d.upload = given(rate))))],
                    "",
                ),
                Form {
                    parts: &[literal("auto", set!(|d| d.upload = Some(Capacity::AUTO)))],
                    group: bounds!(upload, "1mbit", "10mbit"),
                    ..Form::EMPTY
                },
                form(&[literal("link", set!(|d| d.upload = Some(Capacity::Link)))], ""),
            ],
            ..Entry::ONCE
        },
        Entry {
            name: "formula",
            live: true,
            help: "1: the same window for all; 2: the same rate for all; maxmin: the same rate for \
                   all who want it (default)",
            forms: &[
                form(
                    &[literal("maxmin", |d| d.formula(Formula::MaxMin))],
                    "The same rate for all who want it; what one leaves goes to the others. The \
                     default.",
                ),
                form(
                    &[literal("1", |d| d.formula(Formula::EqualWindow))],
                    "The same window for all; short round trips have more.",
                ),
                form(
                    &[literal("2", |d| d.formula(Formula::EqualRate))],
                    "The same rate for all, also where one does not use it.",
                ),
            ],
            ..Entry::ONCE
        },
        Entry {
            name: "fixed",
            live: true,
            instead: true,
            help: "this window for every connection; capacity may be left out then",
            forms: &[form(
                &[part("BYTES", "20000", Value::Size(fixed))],
                "This window for every connection, 1 to 1073725440. `capacity` may be left out \
                 then. Not together with `formula`.",
            )],
            ..Entry::ONCE
        },
        Entry {
            name: "direction",
            help: "which data is governed (both)",
            forms: &[
                form(
                    &[literal("download", set!(|d| d.directions = Some(&[Direction::In])))],
                    "Govern data that comes in by <IF>.",
                ),
                form(
                    &[literal("upload", set!(|d| d.directions = Some(&[Direction::Out])))],
                    "Govern data that leaves by it. `capacity` may be left out where `upload` is \
                     given.",
                ),
                form(
                    &[literal("both", set!(|d| d.directions = Some(&Direction::BOTH)))],
                    "The default.",
                ),
            ],
            ..Entry::ONCE
        },
        Entry {
            name: "rest",
            live: true,
            help: "bulk data that windows do not govern (QUIC, other UDP, TCP that began unseen): \
                   leave (default); mark: ECN marks above its share; police: and drops",
            forms: &[
                form(
                    &[literal("leave", set!(|d| d.config.rest = Policy::Leave))],
                    "What windows do not govern is left alone, and TCP has what it leaves; the \
                     default. Where it takes whatever TCP leaves, as QUIC downloads do, TCP \
                     competes with it as if nothing governed it.",
                ),
                form(
                    &[literal("mark", set!(|d| d.config.rest = Policy::Mark))],
                    "Bulk data that windows do not govern is held to a share like those of TCP: \
                     QUIC, other UDP, and TCP that began before `sheaf window` or past it. Each \
                     flow has a virtual queue that drains at its share, and CoDel (RFC 8289) marks \
                     packets by the wait in it, where they understand ECN (RFC 3168). A flow below \
                     its share, or below 500 kbit/s, is never touched; nor is voice (EF, CS6) up \
                     to a quarter of the capacity.",
                ),
                form(
                    &[literal("police", set!(|d| d.config.rest = Policy::Police))],
                    "The same, and packets that do not understand ECN are dropped, as are those \
                     of a flow that has 200 ms more than its share. What cannot slow down, such as \
                     television by UDP above its share, is damaged. All that is inside of a VPN is \
                     one flow. With `capacity auto` only while TCP shows what there is.",
                ),
            ],
            ..Entry::ONCE
        },
        Entry {
            name: "push",
            live: true,
            help: "whether segments are pushed (PSH), so that receivers acknowledge each at once \
                   and none come in pairs; auto: where a full one takes 1 ms or more (12 Mbit/s; \
                   default)",
            forms: &[
                form(
                    &[literal("auto", set!(|d| d.config.push = Push::Auto))],
                    "The default. Where a full segment takes 1 ms or more (12 Mbit/s and less), \
                     segments of the connections that are governed carry PSH, so that their \
                     receiver acknowledges each at once (Linux from 6.6) and no two come together: \
                     a game beside a download waits for one segment, not for two. That is twice \
                     the acknowledgements. It is left out while a window has to shrink that can \
                     only do so by acknowledgements of pairs, and where acknowledgements take the \
                     air of a radio: <IF> leads to one, or another one of this host has a \
                     carrier.",
                ),
                form(
                    &[literal("on", set!(|d| d.config.push = Push::On))],
                    "The same at any capacity.",
                ),
                form(
                    &[literal("off", set!(|d| d.config.push = Push::Off))],
                    "Segments keep the PSH flag that they came with.",
                ),
            ],
            ..Entry::ONCE
        },
        Entry {
            name: "slack",
            live: true,
            help: "queue that may stand so that the link never runs dry (1ms; at least one packet)",
            forms: &[form(
                &[part("TIME", "1ms", Value::Time(set!(|d, time| d.config.slack = time)))],
                "Queue that may stand so that the link never runs dry, up to 100ms. Default 1ms; \
                 at least the time of one full packet at `capacity`, and on a trunk 5ms. Not used \
                 with `auto` while it searches.",
            )],
            ..Entry::ONCE
        },
        Entry {
            name: "segments",
            live: true,
            help: "no window is smaller than so many full segments (2)",
            forms: &[form(
                &[part(
                    "N",
                    "2",
                    Value::Number(1..=10, set!(|d, n| d.config.min_segments = n as u32)),
                )],
                "No window is lowered below so many full segments, 1 to 10. Default 2, as a \
                 receiver holds back the acknowledgement of a single one.",
            )],
            ..Entry::ONCE
        },
    ],
};

/// The lower bound of a capacity that is found.
fn least(capacity: &mut Option<Capacity>, rate: Bitrate) -> anyhow::Result<()> {
    ensure!(rate.as_bps() > 0, "min 0 is not a bound; leave it out");
    if let Some(Capacity::Auto { least, .. }) = capacity {
        *least = Some(rate);
    }
    Ok(())
}

/// The upper bound of a capacity that is found.
fn most(capacity: &mut Option<Capacity>, rate: Bitrate) -> anyhow::Result<()> {
    ensure!(rate.as_bps() > 0, "max 0 leaves nothing; give a rate, such as 50mbit");
    if let Some(Capacity::Auto { most, .. }) = capacity {
        *most = Some(rate);
    }
    Ok(())
}

fn given(rate: Bitrate) -> Option<Capacity> {
    Some(Capacity::Given(rate))
}

fn fixed(draft: &mut Draft, bytes: u64) -> anyhow::Result<()> {
    let window = u32::try_from(bytes).ok().filter(|window| (1..=MAX_WINDOW).contains(window));
    let window = window
        .with_context(|| format!("fixed {bytes} is out of range; give 1 to {MAX_WINDOW} bytes"))?;
    draft.formula(Formula::Fixed(window))
}

impl Draft {
    fn formula(&mut self, formula: Formula) -> anyhow::Result<()> {
        ensure!(self.formula.is_none(), "formula and fixed exclude each other; leave out either");
        self.formula = Some(formula);
        Ok(())
    }
}

fn finish(draft: Draft) -> anyhow::Result<Settings> {
    let Draft { dev, directions, download, upload, formula, mut config } = draft;
    let directions = directions.unwrap_or(&Direction::BOTH);
    config.formula = formula.unwrap_or(config.formula);
    ensure!(
        upload.is_none() || directions.contains(&Direction::Out),
        "upload has a capacity, but only downloads are governed; leave out either"
    );
    let download = match (download, formula) {
        (Some(capacity), _) => capacity,
        (None, Some(Formula::Fixed(_))) => Capacity::AUTO,
        (None, _) => upload.filter(|_| directions == [Direction::Out]).context(
            "the bottleneck's capacity is missing; write capacity 20mbit, auto, or link",
        )?,
    };
    let arguments = Settings {
        dev,
        directions: directions.to_vec(),
        download,
        upload: upload.unwrap_or(download),
        config,
    };
    for direction in &arguments.directions {
        // Any speed will do to check the rest.
        arguments.config(*direction, Some(Bitrate::from_mbps(1))).check()?;
    }
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::WordError;
    use sheaf_window::Source;
    use std::time::Duration;

    fn parse(line: &str) -> Result<Settings, WordError> {
        let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        GRAMMAR.parse(&words)
    }

    #[test]
    fn a_capacity_that_is_found_has_bounds_of_its_own_in_each_direction() {
        let bounds = |line| {
            let settings: Settings = parse(line).unwrap();
            Direction::BOTH.map(|direction| match settings.config(direction, None).capacity {
                Source::Auto { least, most, .. } => (least.as_bps(), most.as_bps()),
                Source::Given(rate) => (rate.as_bps(), rate.as_bps()),
            })
        };
        let [down, up] =
            bounds("dev eth0 capacity auto min 2mbit max 50mbit upload auto max 9mbit");
        assert_eq!(down, (2_000_000, 50_000_000));
        assert_eq!(up, (100_000, 9_000_000));
        assert_eq!(bounds("dev eth0 capacity auto max 50mbit")[1].1, 50_000_000, "as downloads");
        let error = parse("dev eth0 capacity auto min 3mbit max 2mbit").unwrap_err().to_string();
        assert!(error.contains("min 3Mbit above max 2Mbit"), "{error}");
        let error = parse("dev eth0 capacity auto max 0").unwrap_err().to_string();
        assert!(error.contains("max 0 leaves nothing"), "{error}");
        assert!(parse("dev eth0 capacity 20mbit min 2mbit").is_err());
    }

    #[test]
    fn keywords_stand_in_any_order() {
        let a = parse(
            "dev eth0 capacity 20mbit upload 1.5mbit formula 2 direction both rest mark \
             slack 2ms push on segments 3",
        );
        let b = parse(
            "segments 3 slack 2000us push on rest mark direction both formula 2 upload 1500kbit \
             capacity 20000kbit dev eth0",
        );
        let (a, b) = (a.unwrap(), b.unwrap());
        assert_eq!(a, b);
        let [download, upload] = Direction::BOTH.map(|direction| a.config(direction, None));
        assert_eq!(download.capacity, Source::Given(Bitrate::from_mbps(20)));
        assert_eq!(upload.capacity, Source::Given(Bitrate::from_kbps(1500)));
        assert_eq!((upload.formula, upload.rest), (Formula::EqualRate, Policy::Mark));
        assert_eq!(upload.push, Push::On);
        assert_eq!((upload.slack, upload.min_segments), (Duration::from_millis(2), 3));
    }

    #[test]
    fn what_is_not_given_is_as_for_downloads_and_the_models_default() {
        let arguments = parse("dev x capacity link").unwrap();
        assert!(arguments.needs_speed());
        assert_eq!(arguments.directions, Direction::BOTH);
        let speed = Bitrate::from_mbps(100);
        let expected = Config { capacity: Source::Given(speed), ..Config::default() };
        for direction in Direction::BOTH {
            assert_eq!(arguments.config(direction, Some(speed)), expected);
        }
        let arguments = parse("dev x capacity auto upload 1mbit").unwrap();
        assert!(!arguments.needs_speed());
        assert_eq!(arguments.config(Direction::In, None), Config::default());
        assert_eq!(arguments.formula(), "maxmin");
    }

    #[test]
    fn a_fixed_window_and_an_upload_alone_need_no_capacity() {
        let fixed = parse("dev x fixed 20k").unwrap();
        assert_eq!(fixed.config(Direction::In, None).formula, Formula::Fixed(20 * 1024));
        assert_eq!(fixed.formula(), "fixed 20480");
        let upload = parse("dev x direction upload upload 4mbit").unwrap();
        let rate = Source::Given(Bitrate::from_mbps(4));
        assert_eq!(upload.config(Direction::Out, None).capacity, rate);
        assert_eq!(upload.directions, [Direction::Out]);
    }

    #[test]
    fn every_wrong_line_names_cause_and_remedy() {
        for (line, cause) in [
            ("", "dev is missing; write dev eth0"),
            ("dev", "dev lacks its value; write dev eth0"),
            ("dev x", "capacity is missing; write capacity 20mbit, auto, or link"),
            ("dev x upload 4mbit", "capacity is missing"),
            (
                "dev x capacity 20",
                "capacity 20 has no unit; write 20mbit or 20kbit, or auto, or link",
            ),
            ("dev x capacity fast", "is not a rate; write it like 20mbit, or auto, or link"),
            ("dev x capacity 0mbit", "a capacity of 0 leaves nothing to divide"),
            ("dev x capacity auto upload 0kbit", "a capacity of 0 leaves nothing to divide"),
            ("dev x capacity auto capacity auto", "capacity is given twice"),
            ("dev x capacity auto formula 3", "give maxmin, 1 or 2"),
            ("dev x capacity auto formula 1 fixed 9000", "exclude each other; leave out either"),
            ("dev x fixed 0", "fixed 0 is out of range; give 1 to"),
            ("dev x fixed 2000m", "out of range"),
            ("dev x capacity auto direction up", "give download, upload or both"),
            ("dev x capacity auto direction download upload 1mbit", "only downloads are governed"),
            ("dev x capacity auto rest drop", "give leave, mark or police"),
            ("dev x capacity auto quic limit", "quic is called rest now; write rest mark"),
            ("dev x capacity auto push now", "give auto, on or off"),
            ("dev x capacity auto slack 5", "write 5ms or 5us"),
            ("dev x capacity auto slack 200ms", "choose at most 100 ms"),
            ("dev x capacity auto segments 0", "give 1 to 10"),
            ("dev x capcity auto", "did you mean \"capacity\"?"),
        ] {
            let error = parse(line).unwrap_err().to_string();
            assert!(error.contains(cause) && error.lines().count() == 1, "{line}: {error}");
        }
    }
}
