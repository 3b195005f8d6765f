//! The file of many links: TOML. Keys before the first link hold for all links.
//!
//! ```toml
//! name = "testbed"                            # sheaf emulate show testbed; else that of the file
//! seed = 7
//! threads = 2                                 # that carry packets; else one for each processor
//! options = "rate 10mbit delay 20ms"          # LINK, as on the command line
//! reverse = "rate 2mbit delay 20ms"           # else as options
//!
//! [[link]]
//! between = ["a0", "a1"]
//!
//! [[link]]
//! dev = "eth0"
//! ways = "both"                               # or egress, the default, or ingress
//! options = "delay 5ms"                       # its own; reverse is then its own, too
//! ```

use super::files;
use super::words::{alone, drawn};
use anyhow::{Context, anyhow, bail, ensure};
use serde::Deserialize;
use sheaf_daemon::control::{Kind, ServiceName};
use sheaf_daemon::emulate::many::{Member, Settings};
use sheaf_daemon::emulate::settings::{Mode, Run, link_header};
use sheaf_emulator::LinkConfig;
use std::num::NonZero;
use std::ops::RangeInclusive;
use std::path::Path;

/// Threads that a file may ask for: beyond, the kernel moves them about more than they carry.
const THREADS: RangeInclusive<usize> = 1..=256;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: Option<String>,
    seed: Option<u64>,
    threads: Option<usize>,
    options: Option<String>,
    reverse: Option<String>,
    #[serde(default)]
    link: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    between: Option<[String; 2]>,
    dev: Option<String>,
    ways: Option<String>,
    options: Option<String>,
    reverse: Option<String>,
}

/// Both directions of a link, and its seed where it has one.
type Links = (Box<[LinkConfig; 2]>, Option<u64>);

/// Reads `file`, for a run with the settings `run`.
pub fn read(file: &str, run: Run) -> anyhow::Result<Settings> {
    let text = files::read(file)?;
    parse(&text, Path::new(file), run).with_context(|| file.to_owned())
}

fn parse(text: &str, path: &Path, run: Run) -> anyhow::Result<Settings> {
    let file: File = files::toml(text)?;
    let directory = path.parent().unwrap_or(Path::new(""));
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let name = file.name.or(stem).unwrap_or_default();
    ServiceName::new(Kind::Emulate, &name).map_err(|error| anyhow!("name: {error}"))?;
    let processors = || std::thread::available_parallelism().map_or(1, NonZero::get);
    let threads = file.threads.unwrap_or_else(|| processors().min(*THREADS.end()));
    ensure!(
        THREADS.contains(&threads),
        "threads: {threads} is not {} to {}",
        THREADS.start(),
        THREADS.end()
    );
    // Read once: recorded traces may be large, and links that are alike share them.
    let common = both(file.options.as_deref(), file.reverse.as_deref(), directory)?;
    let mut links = Vec::with_capacity(file.link.len());
    for (number, entry) in (1..).zip(&file.link) {
        let member = member(entry, &common, directory).with_context(|| format!("link {number}"))?;
        links.push(member);
    }
    let seed = file.seed.unwrap_or_else(drawn);
    let settings = Settings { name, links, threads, seed, run };
    settings.check()?;
    Ok(settings)
}

/// A LINK for both directions, from the words of each.
fn both(options: Option<&str>, reverse: Option<&str>, directory: &Path) -> anyhow::Result<Links> {
    // Shells, whose packets have no Ethernet header, are no members.
    let header = link_header(&Mode::Link([String::new(), String::new()]));
    let read = |key: &'static str, text: &str| {
        let words: Vec<&str> = text.split_whitespace().collect();
        alone::link(&words, header, directory).context(key)
    };
    let (forward, seed) = read("options", options.unwrap_or_default())?;
    let back = match reverse {
        None => forward.clone(),
        Some(text) => {
            let (back, seed) = read("reverse", text)?;
            ensure!(seed.is_none(), "reverse: a link has one seed; write it in options");
            back
        }
    };
    Ok((Box::new([forward, back]), seed))
}

fn member(entry: &Entry, common: &Links, directory: &Path) -> anyhow::Result<Member> {
    let mode = match (&entry.between, &entry.dev) {
        (Some([one, two]), None) => {
            ensure!(one != two, "{one} is named twice; a link has two ends");
            ensure!(entry.ways.is_none(), "ways is for dev; between has both ways; leave it out");
            Mode::Link([one.clone(), two.clone()])
        }
        (None, Some(dev)) => {
            let (egress, ingress) = match entry.ways.as_deref() {
                None | Some("egress") => (true, false),
                Some("ingress") => (false, true),
                Some("both") => (true, true),
                Some(other) => bail!("ways: {other} is not egress, ingress or both"),
            };
            Mode::Dev { dev: dev.clone(), egress, ingress }
        }
        _ => bail!("a link has between = [\"IF1\", \"IF2\"] or dev = \"IF\"; give one of them"),
    };
    let one_way = matches!(mode, Mode::Dev { egress, ingress, .. } if egress != ingress);
    ensure!(
        !one_way || entry.reverse.is_none(),
        "reverse is for the other direction, which is not emulated; write ways = \"both\", or \
         leave it out"
    );
    let (configs, seed) = match (&entry.options, &entry.reverse) {
        (None, None) => {
            // One seed for all would give all links the same losses.
            let (configs, _) = common;
            (configs.clone(), None)
        }
        (Some(options), reverse) => both(Some(options), reverse.as_deref(), directory)?,
        (None, Some(_)) => bail!("reverse goes with options of the same link; give both"),
    };
    Ok(Member { mode, configs, seed })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_netio::lead::Spin;
    use sheaf_stage::{Bitrate, Duration};

    fn read(text: &str) -> anyhow::Result<Settings> {
        let budget = std::time::Duration::from_millis(1);
        let spin = Spin::Frugal;
        let run =
            Run { audit: false, budget, spin, awake: false, fifo: None, pcap: None, gro: None };
        parse(text, Path::new("/etc/some-links.toml"), run)
    }

    #[test]
    fn the_example_is_read_as_it_says() {
        let settings = read(&files::example(include_str!("links.rs"))).unwrap();
        assert_eq!((settings.name.as_str(), settings.seed, settings.threads), ("testbed", 7, 2));
        let [first, second] = settings.links.as_slice() else { panic!("{settings:?}") };
        assert_eq!(first.mode, Mode::Link(["a0".into(), "a1".into()]));
        let rates = |member: &Member| member.configs.each_ref().map(|config| config.rate);
        let mbps = |mbps| Some(Bitrate::from_mbps(mbps));
        assert_eq!(rates(first), [mbps(10), mbps(2)]);
        assert_eq!(second.mode, Mode::Dev { dev: "eth0".into(), egress: true, ingress: true });
        assert_eq!(rates(second), [None, None]);
        assert_eq!(second.configs[1].delay.time, Duration::from_millis(5));
    }

    #[test]
    fn a_file_without_a_name_is_called_as_itself_and_each_link_may_have_a_seed() {
        let settings = read("[[link]]\ndev = \"a\"\noptions = \"loss 1% seed 5\"\n").unwrap();
        assert_eq!(settings.name, "some-links");
        assert_eq!(settings.links[0].seed, Some(5));
        assert!(settings.threads >= 1);
    }

    #[test]
    fn errors_name_the_link_and_say_what_to_do() {
        let wrong = |text: &str| format!("{:#}", read(text).unwrap_err());
        for (text, error) in [
            ("", "there is no link; add a table [[link]]"),
            ("threads = 0\n", "threads: 0 is not 1 to 256"),
            ("[[link]]\n", "link 1: a link has between"),
            ("[[link]]\nbetween = [\"a\", \"a\"]\n", "link 1: a is named twice"),
            ("[[link]]\ndev = \"a\"\n[[link]]\ndev = \"a\"\n", "a is named by two links"),
            ("name = \"a\"\n[[link]]\ndev = \"a\"\n", "a is an interface; give the file another"),
            ("[[link]]\ndev = \"a\"\nways = \"in\"\n", "link 1: ways: in is not egress"),
            ("[[link]]\ndev = \"a\"\nreverse = \"\"\noptions = \"\"\n", "link 1: reverse is for"),
            ("options = \"rate 5\"\n[[link]]\ndev = \"a\"\n", "options: "),
            ("[[link]]\nbetween = [\"a\", \"b\"]\nreverse = \"\"\n", "link 1: reverse goes with"),
        ] {
            let said = wrong(text);
            assert!(said.starts_with(error), "{text}: {said}");
        }
    }
}
