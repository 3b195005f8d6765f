//! One section of the file: a command, its name, and its words.

use crate::trunk::words;
use crate::words::WordError;
use sheaf_daemon::{ServiceName, control};
use std::fmt;

/// The commands that a section can stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `sheaf aggregate`.
    Aggregate,
    /// `sheaf split`, which ends when the splitter is on its interface, unless it says HELLO.
    Split,
    /// `sheaf trunk`.
    Trunk,
    /// `sheaf window`.
    Window,
    /// `sheaf emulate`.
    Emulate,
    /// `sheaf metrics listen`.
    Metrics,
}

impl Kind {
    /// Kinds with sections of their own.
    pub const SECTIONS: [Kind; 5] =
        [Kind::Aggregate, Kind::Split, Kind::Trunk, Kind::Window, Kind::Emulate];

    /// The command, and the name of the section.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Aggregate => "aggregate",
            Kind::Split => "split",
            Kind::Trunk => "trunk",
            Kind::Window => "window",
            Kind::Emulate => "emulate",
            Kind::Metrics => "metrics",
        }
    }

    /// Whether its command with these words ends by itself when its work is done, and the work
    /// stays.
    pub fn is_done_once(self, words: &[String]) -> bool {
        let named = words.iter().any(|word| ["peer", "from"].contains(&word.as_str()));
        self == Kind::Split && named && !words.iter().any(|word| word == "auto")
    }

    /// Whether the value of `key` stands without the key in front.
    pub fn is_positional(self, key: &str) -> bool {
        (self, key) == (Kind::Trunk, "name")
    }

    /// Whether the value of `key` names a file.
    pub fn is_file(self, key: &str) -> bool {
        let names: &[&str] = match self {
            Kind::Emulate => &["pcap", "rules", "trace"],
            Kind::Aggregate | Kind::Split => &["key"],
            _ => &[],
        };
        names.contains(&key)
    }

    /// The word of the command line that `key` stands for.
    pub fn word(self, key: &str) -> String {
        match self {
            Kind::Emulate if is_flag(key) => format!("--{key}"),
            _ => key.to_owned(),
        }
    }

    /// Where the words of `key` stand: smaller numbers first. Words of the same rank keep the order
    /// of the file.
    fn rank(self, key: &str) -> u8 {
        match (self, key) {
            (Kind::Trunk, "name") | (Kind::Emulate, "link" | "dev") => 0,
            (Kind::Emulate, "egress" | "ingress" | "both") => 1,
            // Words behind a kind of queue are the queue's.
            (Kind::Emulate, "queue" | "sched") => 3,
            // Words behind `reverse` are the other direction's.
            (Kind::Emulate, "reverse") => 4,
            _ => 2,
        }
    }

    /// The keys of which one gives the section its name, with an example.
    fn naming(self) -> (&'static [&'static str], &'static str) {
        match self {
            Kind::Aggregate | Kind::Split => (&["dev"], "dev = \"wlan0\""),
            Kind::Window => (&["dev"], "dev = \"eth0\""),
            Kind::Trunk => (&["name"], "name = \"trunk0\""),
            Kind::Emulate => (&["link", "dev"], "link = \"eth1 eth2\" or dev = \"eth0\""),
            Kind::Metrics => (&["listen"], "listen = \"127.0.0.1:9477\""),
        }
    }
}

/// Whether the word of `sheaf emulate` that `key` stands for begins with two dashes.
fn is_flag(key: &str) -> bool {
    let flag = format!("--{key}");
    ["emulate link", "emulate dev"].iter().any(|command| crate::tables::has(command, &flag))
}

/// The flags that are part of the link, and change with it.
const LINK_FLAGS: [&str; 4] = ["arm", "light", "once", "trace"];

/// Kind and name: what makes a section the same one after a reload.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The command.
    pub kind: Kind,
    /// The interface.
    pub name: String,
}

impl Key {
    /// The name of its control socket; `None` where it has none.
    pub fn service(&self) -> Option<ServiceName> {
        let kind = match self.kind {
            Kind::Aggregate => control::Kind::Aggregate,
            Kind::Trunk => control::Kind::Trunk,
            Kind::Window => control::Kind::Window,
            Kind::Emulate => control::Kind::Emulate,
            Kind::Split => control::Kind::Split,
            Kind::Metrics => return None,
        };
        ServiceName::new(kind, &self.name).ok()
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.name(), self.name)
    }
}

/// A key of a section, and the words that it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// As in the file.
    pub key: String,
    /// All words, the command's keyword included.
    pub words: Vec<String>,
    /// The line that each word stands in.
    pub lines: Vec<usize>,
}

impl Entry {
    /// Adds a word.
    pub fn push(&mut self, word: String, line: usize) {
        self.words.push(word);
        self.lines.push(line);
    }
}

/// One section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Kind and name.
    pub key: Key,
    /// Keys with their words, in the order of the command line.
    pub entries: Vec<Entry>,
    /// The line that it begins in.
    pub line: usize,
}

/// Difference of a section from the one before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The words are the same.
    None,
    /// These words make the old one the new one, if the service can change them while it runs.
    Words(Vec<String>),
    /// Only a new process can do it.
    Restart,
}

impl Section {
    /// A section of these keys.
    pub fn new(kind: Kind, mut entries: Vec<Entry>, line: usize) -> Result<Section, String> {
        entries.sort_by_key(|entry| kind.rank(&entry.key));
        let (naming, example) = kind.naming();
        let named = entries.iter().find(|entry| naming.contains(&entry.key.as_str()));
        let skipped = usize::from(!kind.is_positional(naming[0]));
        let name = named.and_then(|entry| entry.words.get(skipped));
        match name {
            Some(name) => {
                let key = Key { kind, name: name.clone() };
                Ok(Section { key, entries, line })
            }
            None => Err(format!("{} needs a name; write {example}", kind.name())),
        }
    }

    /// The words of the command line behind the command.
    pub fn words(&self) -> Vec<String> {
        self.entries.iter().flat_map(|entry| entry.words.iter().cloned()).collect()
    }

    /// Has the parser of the command check the words; an error has the line that it is about.
    pub fn check(&self) -> Result<(), (usize, String)> {
        let words = self.words();
        let lines: Vec<_> = self.entries.iter().flat_map(|entry| entry.lines.iter()).collect();
        if let (Kind::Split, Some(at)) = (self.key.kind, words.iter().position(|w| w == "off")) {
            let message = "off takes a splitter off; leave the section out instead".to_owned();
            return Err((*lines[at], message));
        }
        let result = match self.key.kind {
            // Its table is that of the first word.
            Kind::Emulate => {
                let later = |error: WordError| WordError { at: error.at + 1, ..error };
                crate::tables::check(&format!("emulate {}", words[0]), &words[1..]).map_err(later)
            }
            Kind::Metrics => Ok(()),
            kind => crate::tables::check(kind.name(), &words),
        };
        result.map_err(|WordError { at, message }| {
            // A word that is missing stands nowhere.
            (lines.get(at).map_or_else(|| self.line_of(&message), |line| **line), message)
        })
    }

    /// The line of the key that `message` is about, or else the section's.
    fn line_of(&self, message: &str) -> usize {
        let about = |entry: &&Entry| {
            let word = self.key.kind.word(&entry.key);
            let named = |rest: &str| rest.starts_with([' ', ':']);
            message.strip_prefix(word.as_str()).is_some_and(named)
                || message.starts_with(&format!("unknown keyword {word:?}"))
        };
        let entry = self.entries.iter().find(about);
        entry.and_then(|entry| entry.lines.first().copied()).unwrap_or(self.line)
    }

    /// The interfaces of `needs` that the command cannot begin without; `exists`: whether one is
    /// there. A trunk begins with the links that it has.
    pub fn waits_for(&self, exists: impl Fn(&str) -> bool) -> Vec<String> {
        let needs = self.needs();
        let needed = needs.len();
        let missing: Vec<_> = needs.into_iter().filter(|name| !exists(name)).collect();
        let links = |entry: &Entry| {
            entry.words.iter().filter(|word| ["dev", "path"].contains(&word.as_str())).count()
        };
        let some_are_there = self.key.kind == Kind::Trunk
            && (missing.len() < needed || needed < self.entries.iter().map(links).sum());
        if some_are_there { Vec::new() } else { missing }
    }

    /// The interfaces that the command names.
    pub fn needs(&self) -> Vec<String> {
        let mut needs = Vec::new();
        for entry in &self.entries {
            match (self.key.kind, entry.key.as_str()) {
                // Each `dev`, whatever stands behind it in the same string.
                (Kind::Trunk, "dev") => needs.extend(behind("dev", &entry.words)),
                (Kind::Trunk, "path") => {
                    let ends = behind("path", &entry.words);
                    needs.extend(ends.iter().filter_map(|end| words::interface_of(end)));
                }
                (Kind::Emulate, "link") => {
                    needs.extend(entry.words.iter().skip(1).take(2).cloned());
                }
                (_, "dev") => needs.extend(behind("dev", &entry.words)),
                _ => {}
            }
        }
        needs
    }

    /// The interfaces that no other section of the kind may have.
    fn places(&self) -> Vec<String> {
        match self.key.kind {
            Kind::Trunk | Kind::Metrics => vec![self.key.name.clone()],
            _ => self.needs(),
        }
    }

    /// Whether the two cannot run at the same time.
    pub fn occupies(&self, other: &Section) -> bool {
        let places = self.places();
        self.key.kind == other.key.kind && other.places().iter().any(|one| places.contains(one))
    }

    /// Returns the step that makes `self` the section `new`.
    pub fn difference(&self, new: &Section) -> Difference {
        if self.words() == new.words() {
            return Difference::None;
        }
        if self.key.kind == Kind::Emulate {
            return self.other_link(new);
        }
        let of = |section: &Section, key: &str| {
            section.entries.iter().find(|entry| entry.key == key).map(|entry| entry.words.clone())
        };
        // A service has no word for "as if this had never been said".
        if self.entries.iter().any(|entry| of(new, &entry.key).is_none()) {
            return Difference::Restart;
        }
        let changed =
            new.entries.iter().filter(|entry| of(self, &entry.key) != Some(entry.words.clone()));
        let words: Vec<_> = changed.flat_map(|entry| entry.words.iter().cloned()).collect();
        // The order alone can be new: that of a trunk's links has a meaning.
        if words.is_empty() { Difference::Restart } else { Difference::Words(words) }
    }

    /// An emulated link is changed as a whole; what is not the link's needs a new process.
    fn other_link(&self, new: &Section) -> Difference {
        let is_link = |entry: &&Entry| {
            let key = entry.key.as_str();
            let flag = is_flag(key) && !LINK_FLAGS.contains(&key);
            !flag && self.key.kind.rank(&entry.key) > 1 && entry.key != "seed"
        };
        let words = |section: &Section, link: bool| -> Vec<String> {
            let chosen = section.entries.iter().filter(|entry| is_link(entry) == link);
            chosen.flat_map(|entry| entry.words.iter().cloned()).collect()
        };
        let link = words(new, true);
        if words(self, false) != words(new, false) || link.is_empty() {
            return Difference::Restart;
        }
        Difference::Words(link)
    }
}

/// The words that follow `keyword`.
fn behind(keyword: &str, words: &[String]) -> Vec<String> {
    words.windows(2).filter(|two| two[0] == keyword).map(|two| two[1].clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(kind: Kind, keys: &[(&str, &str)]) -> Section {
        let entry = |(key, words): &(&str, &str)| {
            let mut entry = Entry { key: (*key).to_owned(), words: Vec::new(), lines: Vec::new() };
            words.split_whitespace().for_each(|word| entry.push(word.to_owned(), 1));
            entry
        };
        Section::new(kind, keys.iter().map(entry).collect(), 1).unwrap()
    }

    fn difference(kind: Kind, old: &[(&str, &str)], new: &[(&str, &str)]) -> Option<String> {
        match section(kind, old).difference(&section(kind, new)) {
            Difference::Words(words) => Some(words.join(" ")),
            Difference::None => Some(String::new()),
            Difference::Restart => None,
        }
    }

    #[test]
    fn a_service_is_asked_for_what_differs_and_for_nothing_that_does_not() {
        let dev = ("dev", "dev a");
        let busy = ("policy", "policy busy");
        let kind = Kind::Aggregate;
        assert_eq!(difference(kind, &[dev, busy], &[busy, dev]).as_deref(), None, "the order");
        assert_eq!(difference(kind, &[dev, busy], &[dev, busy]).as_deref(), Some(""));
        let forced = ("policy", "policy forced");
        let words = difference(kind, &[dev, busy], &[dev, forced, ("hold", "hold 9ms")]);
        assert_eq!(words.as_deref(), Some("policy forced hold 9ms"));
        assert_eq!(difference(kind, &[dev, busy], &[dev]), None, "back to what is usual");
    }

    #[test]
    fn an_emulated_link_is_changed_as_a_whole() {
        let (dev, flag) = (("dev", "dev a"), ("spin", "--spin 0"));
        let old = [dev, flag, ("rate", "rate 1mbit"), ("delay", "delay 5ms")];
        let new = [dev, flag, ("rate", "rate 2mbit")];
        assert_eq!(difference(Kind::Emulate, &old, &new).as_deref(), Some("rate 2mbit"));
        assert_eq!(difference(Kind::Emulate, &old, &[dev, ("rate", "rate 2mbit")]), None);
        let traced = [dev, flag, ("trace", "--trace a"), ("arm", "--arm")];
        let words = difference(Kind::Emulate, &old, &traced);
        assert_eq!(words.as_deref(), Some("--trace a --arm"));
        let both = [dev, ("both", "both"), flag, ("rate", "rate 1mbit"), ("delay", "delay 5ms")];
        assert_eq!(difference(Kind::Emulate, &old, &both), None, "another place");
    }

    #[test]
    fn a_section_waits_for_the_interfaces_that_its_words_name() {
        let trunk = section(
            Kind::Trunk,
            &[
                ("name", "t0"),
                ("dev", "dev a queue 9 dev b"),
                ("peer", "peer 02:0:0:0:0:1"),
                ("path", "path 10.0.0.1@c 10.0.0.2 path fd00::1"),
            ],
        );
        assert_eq!(trunk.needs(), ["a", "b", "c"]);
        let waits =
            |section: &Section, there: &[&str]| section.waits_for(|one| there.contains(&one));
        assert!(waits(&trunk, &[]).is_empty(), "fd00::1 may be anywhere");
        let uplinks = section(
            Kind::Trunk,
            &[("name", "t0"), ("path", "path wwan0 home.org path eth0:9 path 10.0.0.1@c")],
        );
        assert_eq!(waits(&uplinks, &[]), ["wwan0", "eth0", "c"]);
        assert!(waits(&uplinks, &["eth0"]).is_empty(), "it begins with what it has");
        let link = section(Kind::Emulate, &[("link", "link a b"), ("rate", "rate 1mbit")]);
        assert_eq!(waits(&link, &["a"]), ["b"]);
        assert_eq!((link.needs(), &*link.key.name), (vec!["a".to_owned(), "b".to_owned()], "a"));
    }
}
