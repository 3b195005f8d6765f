//! The command lines of `sheaf emulate`.

use super::rules;
use crate::grammar;
use anyhow::{Context, anyhow, bail, ensure};
use sheaf_daemon::emulate::settings::{Mode, Plan, link_header};
use sheaf_daemon::emulate::{Change, Settings};
use sheaf_daemon::reactor::{Parse, Parsed};
use sheaf_emulator::options::OptionError;
use sheaf_emulator::trace::{Opportunities, Steps};
use sheaf_emulator::{ConfigError, LinkConfig, Options, Trace, TraceConfig};
use sheaf_netio::{clock, scheduling, vnet};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The most bytes of a file that is read: a trace, a distribution, rules, a ping log.
const LONGEST: u64 = 256 << 20;
/// Packets on one delay line: at 10 Gbit/s and 1500 bytes, 300 ms.
const DELAY_LIMIT: usize = 250_000;
/// Longer before a departure nobody looks without sleeping: what covers 99 of 100 wake-ups of a
/// virtual machine's processor (decision 6).
const SPIN: Duration = Duration::from_micros(200);

/// Reads `words`, of which the first names the mode.
pub fn parse(words: &[String]) -> anyhow::Result<Settings> {
    let (words, command) = match words.iter().position(|word| word == "--") {
        Some(at) => (&words[..at], words[at + 1..].to_vec()),
        None => (words, Vec::new()),
    };
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (mode, rest) = mode(&words, command)?;
    let mut given = Flags::default();
    let links = given.take(rest)?;
    let (plan, seed) = match &given.rules {
        Some(file) => {
            ensure!(links.is_empty(), "--rules and {:?} are two plans; give one", links[0]);
            let rules = rules::read(file, link_header(&mode), &mode.interfaces())?;
            let seed = rules.seed;
            (Plan::Rules(rules), seed)
        }
        None => {
            let (configs, seed) = both(&links, link_header(&mode), Path::new(""))?;
            (Plan::Links(Box::new(configs)), seed)
        }
    };
    Ok(Settings {
        mode,
        plan,
        seed: seed.unwrap_or_else(drawn),
        audit: given.audit,
        budget: given.budget.unwrap_or(Duration::from_millis(1)),
        spin: given.spin.unwrap_or(SPIN),
        awake: given.awake,
        fifo: given.fifo,
        pcap: given.pcap,
    })
}
/// Reads the words of a change of what `settings` describe.
pub fn parse_change(settings: &Settings) -> Parse<Change> {
    let header = link_header(&settings.mode);
    let pipes = matches!(settings.plan, Plan::Rules(_));
    Arc::new(move |words, directory| Ok(Parsed::new(change(words, directory, header, pipes)?)))
}

fn change(
    words: &[String],
    directory: &Path,
    header: usize,
    pipes: bool,
) -> anyhow::Result<Change> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["pipe", name, rest @ ..] if pipes => {
            let (config, _) = link(rest, header, directory)?;
            Ok(Change::Pipe((*name).to_owned(), Box::new(config)))
        }
        ["pipe", ..] if pipes => bail!("pipe lacks its name; write pipe NAME LINK"),
        words => {
            let (configs, seed) = both(words, header, directory)?;
            ensure!(seed.is_none(), "a seed cannot be changed; start again with another");
            Ok(Change::Links(Box::new(configs)))
        }
    }
}

/// A seed that nobody chose, short enough to be typed again.
fn drawn() -> u64 {
    clock::now().as_nanos() % 1_000_000
}

fn mode<'a, 'b>(
    words: &'a [&'b str],
    command: Vec<String>,
) -> anyhow::Result<(Mode, &'a [&'b str])> {
    let no_command = |mode, rest| {
        ensure!(command.is_empty(), "only shell takes a command; leave out what follows --");
        Ok((mode, rest))
    };
    match words {
        ["link", one, two, rest @ ..] => {
            ensure!(one != two, "{one} is named twice; a link has two ends");
            no_command(Mode::Link([(*one).to_owned(), (*two).to_owned()]), rest)
        }
        ["link", ..] => bail!("link takes two interfaces; write link IF1 IF2"),
        ["dev", dev, rest @ ..] => {
            let (egress, ingress, rest) = match rest {
                ["egress", rest @ ..] => (true, false, rest),
                ["ingress", rest @ ..] => (false, true, rest),
                ["both", rest @ ..] => (true, true, rest),
                rest => (true, false, rest),
            };
            no_command(Mode::Dev { dev: (*dev).to_owned(), egress, ingress }, rest)
        }
        ["dev"] => bail!("dev takes an interface; write dev IF"),
        [_, rest @ ..] => Ok((Mode::Shell { command }, rest)),
        [] => bail!("nothing to do; write link IF1 IF2, dev IF, or shell"),
    }
}

/// The options that are not a link's.
#[derive(Default)]
struct Flags {
    audit: bool,
    budget: Option<Duration>,
    spin: Option<Duration>,
    awake: bool,
    fifo: Option<u8>,
    pcap: Option<String>,
    rules: Option<String>,
}

impl Flags {
    /// Takes them out of `words`; answers the rest.
    fn take<'a>(&mut self, words: &[&'a str]) -> anyhow::Result<Vec<&'a str>> {
        let (mut rest, mut words) = (Vec::new(), words.iter().copied());
        while let Some(word) = words.next() {
            let mut value = |example: &str| {
                words
                    .next()
                    .with_context(|| format!("{word} lacks its value; write {word} {example}"))
            };
            match word {
                "--audit" => self.audit = true,
                "--budget" => self.budget = Some(grammar::time(word, value("1ms")?)?),
                "--spin" => self.spin = Some(grammar::time(word, value("200us")?)?),
                "--awake" => self.awake = true,
                "--fifo" => {
                    let priority: u8 = grammar::number(word, value("50")?)?;
                    ensure!(
                        scheduling::PRIORITIES.contains(&priority),
                        "--fifo {priority} is no priority; give 1 to 99"
                    );
                    self.fifo = Some(priority);
                }
                "--pcap" => self.pcap = Some(value("link.pcapng")?.to_owned()),
                "--rules" => self.rules = Some(value("rules.toml")?.to_owned()),
                "--trace" | "--once" => rest.push(word),
                flag if flag.starts_with("--") => {
                    let known = [
                        "--audit", "--budget", "--spin", "--awake", "--fifo", "--pcap", "--rules",
                        "--trace", "--once",
                    ];
                    return Err(grammar::unknown(flag, &known));
                }
                word => rest.push(word),
            }
        }
        Ok(rest)
    }
}

/// Reads `LINK [reverse LINK]`: both directions, and a seed where one is given. Files are looked
/// for in `directory`.
pub fn both(
    words: &[&str],
    header: usize,
    directory: &Path,
) -> anyhow::Result<([LinkConfig; 2], Option<u64>)> {
    let (forward, reverse) = match words.iter().position(|word| *word == "reverse") {
        Some(at) => (&words[..at], Some(&words[at + 1..])),
        None => (words, None),
    };
    ensure!(
        reverse.is_none_or(|words| !words.contains(&"reverse")),
        "reverse is given twice; give it once"
    );
    let (forward, seed) = link(forward, header, directory)?;
    let (reverse, second) = match reverse {
        Some(words) => link(words, header, directory)?,
        None => (forward.clone(), None),
    };
    Ok(([forward, reverse], seed.or(second)))
}

/// Reads one LINK.
pub fn link(
    words: &[&str],
    header: usize,
    directory: &Path,
) -> anyhow::Result<(LinkConfig, Option<u64>)> {
    let (mut netem, mut file, mut looped) = (Vec::new(), None, true);
    let mut words = words.iter().copied();
    while let Some(word) = words.next() {
        match word {
            "--trace" => file = Some(words.next().context("--trace lacks its file")?),
            "--once" => looped = false,
            word => netem.push(word),
        }
    }
    ensure!(looped || file.is_some(), "--once without a trace; add --trace FILE");
    let load = |name: &str| distribution(name, directory);
    let Options { mut config, seed } = Options::parse(&netem, load).map_err(explain)?;
    if let Some(file) = file {
        config.trace =
            Some(TraceConfig { trace: trace(file, directory)?, start: clock::now(), looped });
    }
    config.link_header = header;
    config.delay_limit = DELAY_LIMIT;
    // The virtio header is not on any wire.
    config.overhead.packet = config.overhead.packet.saturating_sub(vnet::LEN as i32);
    Ok((config, seed))
}

/// What is wrong with options, and what to do about it.
fn explain(error: OptionError) -> anyhow::Error {
    const KNOWN: [&str; 22] = [
        "limit",
        "single",
        "seed",
        "ordered",
        "queue",
        "sched",
        "delay",
        "distribution",
        "loss",
        "ecn",
        "duplicate",
        "corrupt",
        "reorder",
        "gap",
        "rate",
        "slot",
        "packets",
        "bytes",
        "reverse",
        "egress",
        "ingress",
        "both",
    ];
    match error {
        OptionError::Unknown(word) if KNOWN.contains(&word.as_str()) => {
            anyhow!("{word} does not belong here; see `sheaf emulate --help` for where it stands")
        }
        OptionError::Unknown(word) => grammar::unknown(&word, &KNOWN),
        OptionError::Value { option, wanted, found } => {
            anyhow!(
                "{option}: {found} is no {wanted}; see `sheaf emulate --help` for how it is written"
            )
        }
        OptionError::Lacks { option, word } => {
            anyhow!("{option} lacks {word}; add it, or see `sheaf emulate --help`")
        }
        OptionError::NoDistribution(name) => anyhow!(
            "there is no distribution {name}; give uniform, normal, pareto, paretonormal, or a file"
        ),
        OptionError::Config(ConfigError::Single) => {
            anyhow!("single does not go with this kind of queue; leave out one of them")
        }
        other => anyhow!("{other}; give a value in its range"),
    }
}

/// The text of the distribution `name`: a file, or one of iproute2's.
fn distribution(name: &str, directory: &Path) -> Option<String> {
    let places = [
        directory.join(name),
        Path::new("/usr/lib/tc").join(format!("{name}.dist")),
        Path::new("/usr/share/tc").join(format!("{name}.dist")),
    ];
    places.iter().find_map(|path| read(&path.to_string_lossy()).ok())
}

fn trace(file: &str, directory: &Path) -> anyhow::Result<Trace> {
    let text = read(&directory.join(file).to_string_lossy())?;
    let numbers = |line: &&str| line.trim().bytes().all(|byte| byte.is_ascii_digit());
    let first = text.lines().find(|line| !line.trim().is_empty());
    let trace = match first.filter(numbers) {
        Some(_) => Opportunities::parse(&text).map(|trace| Trace::Opportunities(Arc::new(trace))),
        None => Steps::parse(&text).map(|trace| Trace::Steps(Arc::new(trace))),
    };
    trace.map_err(|error| anyhow!("{file}, {error}; give Mahimahi's form or CSV"))
}

/// The text of a file.
pub fn read(file: &str) -> anyhow::Result<String> {
    let mut text = String::new();
    let opened = std::fs::File::open(file)
        .with_context(|| format!("cannot read {file}; give a file that is there"))?;
    let len = opened.take(LONGEST).read_to_string(&mut text);
    let len = len.with_context(|| format!("cannot read {file}; give a file of text"))?;
    ensure!((len as u64) < LONGEST, "{file} is too large; give at most {} MB", LONGEST >> 20);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_stage::Bitrate;

    fn parse(line: &str) -> anyhow::Result<Settings> {
        super::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn a_link_holds_both_ways_unless_reverse_says_otherwise() {
        let links = |line: &str| match parse(line).unwrap().plan {
            Plan::Links(links) => links.map(|link| link.rate.map(Bitrate::as_bps)),
            Plan::Rules(_) => panic!("no rules were given"),
        };
        assert_eq!(links("link a b rate 1mbit"), [Some(1_000_000); 2]);
        assert_eq!(
            links("link a b rate 1mbit reverse rate 2mbit"),
            [Some(1_000_000), Some(2_000_000)]
        );
        assert_eq!(links("link a b reverse rate 2mbit"), [None, Some(2_000_000)]);
    }

    #[test]
    fn flags_stand_anywhere_and_a_command_keeps_its_own() {
        let arguments =
            parse("shell delay 1ms --audit rate 1mbit --budget 2ms seed 7 -- ls --audit").unwrap();
        assert_eq!(arguments.mode, Mode::Shell { command: vec!["ls".into(), "--audit".into()] });
        assert!(arguments.audit);
        assert_eq!((arguments.seed, arguments.budget), (7, Duration::from_millis(2)));
        let Plan::Links(links) = arguments.plan else { panic!("no rules were given") };
        assert_eq!(links[0].link_header, vnet::LEN);
        assert_eq!(links[0].overhead.packet, -(vnet::LEN as i32));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_remedy() {
        for (line, told) in [
            ("link a", "write link IF1 IF2"),
            ("link a a", "a link has two ends"),
            ("link a b dellay 1ms", "did you mean \"delay\"?"),
            ("link a b delay", "delay: nothing is no time"),
            ("link a b rate fast", "rate: \"fast\" is no rate"),
            ("link a b loss 200%", "no percentage"),
            ("link a b --adit", "did you mean \"--audit\"?"),
            ("link a b --budget", "--budget lacks its value"),
            ("link a b --trace /nonexistent", "cannot read /nonexistent"),
            ("link a b --once", "add --trace FILE"),
            ("link a b packets 3", "packets does not belong here"),
            ("link a b reverse reverse", "give it once"),
            ("link a b -- ls", "only shell takes a command"),
            ("link a b rate 1mbit --rules x", "two plans"),
            ("link a b delay 1ms 1ms distribution odd", "no distribution odd"),
            ("dev", "write dev IF"),
            ("link a b --fifo 100", "give 1 to 99"),
            ("link a b --spin", "write --spin 200us"),
            ("link a b queue red limit 60k", "queue red lacks avpkt SIZE; add it"),
            ("link a b limit 9 single queue codel", "leave out one of them"),
            ("link a b sched drr", "queue drr lacks queue N weight W"),
        ] {
            let error = format!("{:#}", parse(line).unwrap_err());
            assert!(error.contains(told), "{line}: {error}");
            assert!(!error.contains('\n'), "{line}: {error}");
        }
    }
}
