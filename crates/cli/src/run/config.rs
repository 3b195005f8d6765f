//! The file of `sheaf run`: sections whose keys are the words of a command.
//!
//! A section becomes the words of its command, and the command's own parser checks them. So the
//! file has no grammar of its own, and a word that is new to a command is known here, too.

use super::section::{Entry, Key, Kind, Section};
use crate::words;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Where the file is unless another one is named.
pub const DEFAULT: &str = "/etc/sheaf/sheaf.toml";
/// Longest file that is read, in bytes: a thousand sections of a kilobyte.
const LONGEST: u64 = 1 << 20;
/// Most sections: each is a process.
const MOST_SECTIONS: usize = 256;

/// The table of the listener for metrics.
const METRICS: &str = "metrics";
/// The table of what concerns all sections.
const GLOBAL: &str = "global";

/// Least important level that the services write into the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// Warnings and errors.
    Quiet,
    /// Changes of state, too.
    #[default]
    Normal,
    /// Details, too.
    Verbose,
}

/// Form of a line of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// The table `[global]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Global {
    /// `level`.
    pub level: Level,
    /// `log`.
    pub log: Format,
}

/// A file without faults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Settings of all sections.
    pub global: Global,
    /// The sections, by kind and name.
    pub sections: BTreeMap<Key, Section>,
}

/// Something wrong in the file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// Number of the line, from 1; 0 for the file as a whole.
    pub line: usize,
    /// Fault and remedy, for people.
    pub message: String,
}

/// Everything wrong in a file. Each fault is one line: `FILE:LINE: message`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    /// The file.
    pub file: PathBuf,
    /// At least one fault, in the order of the lines.
    pub faults: Vec<Fault>,
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, fault) in self.faults.iter().enumerate() {
            let end = if at == 0 { "" } else { "\n" };
            match fault.line {
                0 => write!(f, "{end}{}: {}", self.file.display(), fault.message)?,
                line => write!(f, "{end}{}:{line}: {}", self.file.display(), fault.message)?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

/// Reads and checks `file`.
pub fn read(file: &Path) -> Result<Config, Faults> {
    let whole =
        |message| Faults { file: file.to_owned(), faults: vec![Fault { line: 0, message }] };
    let text = text(file).map_err(whole)?;
    parse(&text).map_err(|faults| Faults { file: file.to_owned(), faults })
}

fn text(file: &Path) -> Result<String, String> {
    use std::io::Read;
    let opened = std::fs::File::open(file)
        .map_err(|error| format!("cannot be read ({error}); name the file with -c FILE"))?;
    let mut bytes = Vec::new();
    let read = opened.take(LONGEST + 1).read_to_end(&mut bytes);
    read.map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.len() as u64 > LONGEST {
        return Err(format!("is longer than {LONGEST} bytes; split it"));
    }
    String::from_utf8(bytes).map_err(|_| "is not text (UTF-8); write it as text".to_owned())
}

/// Reads the text of a file.
pub fn parse(text: &str) -> Result<Config, Vec<Fault>> {
    let mut reader = Reader { text, config: Config::default(), faults: Vec::new() };
    match DeTable::parse(text) {
        Ok(table) => reader.document(table.get_ref()),
        Err(error) => {
            let message = error.message().replace('\n', " ");
            reader.fault(error.span().unwrap_or(0..0), message);
        }
    }
    if reader.faults.is_empty() {
        return Ok(reader.config);
    }
    reader.faults.sort();
    Err(reader.faults)
}

struct Reader<'a> {
    text: &'a str,
    config: Config,
    faults: Vec<Fault>,
}

impl Reader<'_> {
    fn line(&self, span: &Range<usize>) -> usize {
        let before = &self.text.as_bytes()[..span.start.min(self.text.len())];
        before.iter().filter(|byte| **byte == b'\n').count() + 1
    }

    fn fault(&mut self, span: Range<usize>, message: impl Into<String>) {
        let line = self.line(&span);
        self.faults.push(Fault { line, message: message.into() });
    }

    fn document(&mut self, document: &DeTable<'_>) {
        let mut count = 0;
        for (name, value) in document {
            let kind = Kind::SECTIONS.into_iter().find(|kind| kind.name() == name.get_ref());
            match (kind, name.get_ref().as_ref(), value.get_ref()) {
                (Some(kind), _, DeValue::Array(tables)) => {
                    for table in tables.iter() {
                        count += 1;
                        match table.get_ref() {
                            // The span of a table in an array begins with its header.
                            DeValue::Table(keys) => self.section(kind, table.span(), keys),
                            _ => self.fault(table.span(), format!("write [[{}]]", kind.name())),
                        }
                    }
                }
                (Some(kind), ..) => {
                    let name = kind.name();
                    self.fault(value.span(), format!("write [[{name}]]: there may be several"));
                }
                (None, GLOBAL, DeValue::Table(keys)) => self.global(keys),
                (None, METRICS, DeValue::Table(keys)) => self.metrics(value.span(), keys),
                (None, word @ (GLOBAL | METRICS), _) => {
                    self.fault(value.span(), format!("write [{word}]: there is one"));
                }
                (None, word, _) => {
                    let kinds = Kind::SECTIONS.map(Kind::name);
                    let known: Vec<_> = kinds.into_iter().chain([METRICS, GLOBAL]).collect();
                    self.unknown("section", name.span(), word, &known);
                }
            }
        }
        if count > MOST_SECTIONS {
            self.fault(
                0..0,
                format!("{count} sections are too many; give at most {MOST_SECTIONS}"),
            );
        }
    }

    fn unknown(&mut self, what: &str, span: Range<usize>, word: &str, known: &[&str]) {
        let message = words::unknown(word, known).replacen("keyword", what, 1);
        self.fault(span, message);
    }

    fn global(&mut self, keys: &DeTable<'_>) {
        for (key, value) in in_order(keys) {
            let text = value.get_ref().as_str().unwrap_or_default();
            let global = &mut self.config.global;
            match key.get_ref().as_ref() {
                "level" => match text {
                    "quiet" => global.level = Level::Quiet,
                    "normal" => global.level = Level::Normal,
                    "verbose" => global.level = Level::Verbose,
                    _ => self.fault(value.span(), "level: give quiet, normal or verbose"),
                },
                "log" => match text {
                    "text" => global.log = Format::Text,
                    "json" => global.log = Format::Json,
                    _ => self.fault(value.span(), "log: give text or json"),
                },
                word => self.unknown("key", key.span(), word, &["level", "log"]),
            }
        }
    }

    /// The listener is a process as any section: it parses what strangers send.
    fn metrics(&mut self, span: Range<usize>, keys: &DeTable<'_>) {
        let mut listen = None;
        for (key, value) in in_order(keys) {
            match key.get_ref().as_ref() {
                "listen" => {
                    let text = value.get_ref().as_str().unwrap_or_default();
                    match text.parse::<SocketAddr>() {
                        Ok(address) => listen = Some((address, self.line(&value.span()))),
                        Err(_) => {
                            let message = "listen needs an address and a port, e.g. 127.0.0.1:9477";
                            self.fault(value.span(), message);
                        }
                    }
                }
                word => self.unknown("key", key.span(), word, &["listen"]),
            }
        }
        let Some((address, line)) = listen else { return };
        let key = Key { kind: Kind::Metrics, name: address.to_string() };
        let words = vec!["listen".to_owned(), address.to_string()];
        let entry = Entry { key: "listen".to_owned(), lines: vec![line; words.len()], words };
        let line = self.line(&span);
        self.config.sections.insert(key.clone(), Section { key, entries: vec![entry], line });
    }

    fn section(&mut self, kind: Kind, span: Range<usize>, keys: &DeTable<'_>) {
        let before = self.faults.len();
        let mut entries = Vec::new();
        for (key, value) in in_order(keys) {
            entries.extend(self.entry(kind, key, value));
        }
        if self.faults.len() > before {
            return;
        }
        let line = self.line(&span);
        let section = match Section::new(kind, entries, line) {
            Ok(section) => section,
            Err(message) => return self.fault(span, message),
        };
        if let Err((line, message)) = section.check() {
            self.faults.push(Fault { line, message });
            return;
        }
        let taken = |other: &&Section| other.occupies(&section);
        if let Some(other) = self.config.sections.values().find(taken) {
            let message = format!(
                "{} is in line {} already; put both into one section",
                section.key, other.line
            );
            return self.fault(span, message);
        }
        self.config.sections.insert(section.key.clone(), section);
    }

    /// The words that a key and its value stand for; nothing where it says `false`.
    fn entry(
        &mut self,
        kind: Kind,
        key: &Spanned<std::borrow::Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<Entry> {
        let name = key.get_ref().as_ref();
        let mut entry = Entry { key: name.to_owned(), words: Vec::new(), lines: Vec::new() };
        let all = match value.get_ref() {
            DeValue::Array(values) => values.iter().collect(),
            _ => vec![value],
        };
        for one in all {
            let line = self.line(&one.span());
            if let DeValue::Boolean(is) = one.get_ref() {
                if *is {
                    entry.push(kind.word(name), line);
                }
                continue;
            }
            let Some(values) = self.values(kind, name, one) else { continue };
            if !kind.is_positional(name) {
                entry.push(kind.word(name), line);
            }
            values.into_iter().for_each(|word| entry.push(word, line));
        }
        (!entry.words.is_empty()).then_some(entry)
    }

    /// The words of one value.
    fn values(
        &mut self,
        kind: Kind,
        key: &str,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<Vec<String>> {
        let words: Vec<String> = match value.get_ref() {
            // Spaces may be part of a file's name.
            DeValue::String(text) if kind.is_file(key) => vec![text.as_ref().to_owned()],
            DeValue::String(text) => text.split_whitespace().map(str::to_owned).collect(),
            DeValue::Integer(number) => vec![number.to_string()],
            DeValue::Float(number) => vec![number.as_str().to_owned()],
            _ => {
                let message = format!("{key} needs a string, a number, true, or an array of these");
                self.fault(value.span(), message);
                return None;
            }
        };
        if words.iter().all(String::is_empty) {
            self.fault(value.span(), format!("{key} is empty; give it a value, or leave it out"));
            return None;
        }
        if words.iter().any(|word| word.contains(char::is_control)) {
            self.fault(value.span(), format!("{key} has a control character; leave it out"));
            return None;
        }
        Some(words)
    }
}

type Pair<'a, 'b> = (&'a Spanned<std::borrow::Cow<'b, str>>, &'a Spanned<DeValue<'b>>);

/// The keys of a table as they stand in the file. The order matters: both ends of a trunk number
/// their links by it.
fn in_order<'a, 'b>(table: &'a DeTable<'b>) -> Vec<Pair<'a, 'b>> {
    let mut pairs: Vec<_> = table.iter().collect();
    pairs.sort_by_key(|(key, _)| key.span().start);
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::Spelling;
    use std::collections::BTreeSet;

    fn words(text: &str) -> Vec<String> {
        let config = parse(text).unwrap_or_else(|faults| panic!("{faults:?}"));
        config
            .sections
            .values()
            .map(|one| format!("{}: {}", one.key, one.words().join(" ")))
            .collect()
    }

    fn faults(text: &str) -> Vec<(usize, String)> {
        let faults = parse(text).expect_err("it has a fault");
        faults.into_iter().map(|fault| (fault.line, fault.message)).collect()
    }

    #[test]
    fn keys_become_the_words_of_the_command_in_the_order_of_the_file() {
        let text = "\
            [[aggregate]]\n\
            dev = \"wlan0\"\n\
            peer = [\"10.0.0.2\", \"10.0.0.3\"]\n\
            match = \"proto udp length 256\"\n\
            inflight = 2\n\
            [[split]]\n\
            dev = \"eth9\"\n\
            peer = \"any\"\n\
            [[trunk]]\n\
            address = \"10.99.0.1/24\"\n\
            name = \"trunk0\"\n\
            dev = \"wan1 queue 100 peer 02:00:00:00:00:01\"\n\
            path = [\"192.0.2.7 198.51.100.1\", \"wwan0 198.51.100.1\"]\n\
            plain = true\n\
            [[window]]\n\
            dev = \"eth0\"\n\
            capacity = \"20mbit\"\n\
            formula = 1\n\
            [[emulate]]\n\
            queue = \"codel target 5ms\"\n\
            reverse = \"rate 2mbit\"\n\
            dev = \"eth2\"\n\
            delay = \"20ms 2ms\"\n\
            audit = true\n\
            awake = false\n\
            both = true\n\
            [metrics]\n\
            listen = \"127.0.0.1:9477\"\n";
        assert_eq!(
            words(text),
            [
                "aggregate wlan0: dev wlan0 peer 10.0.0.2 peer 10.0.0.3 \
                 match proto udp length 256 inflight 2",
                "split eth9: dev eth9 peer any",
                "trunk trunk0: trunk0 address 10.99.0.1/24 dev wan1 queue 100 peer \
                 02:00:00:00:00:01 path 192.0.2.7 198.51.100.1 path wwan0 \
                 198.51.100.1 plain",
                "window eth0: dev eth0 capacity 20mbit formula 1",
                "emulate eth2: dev eth2 both delay 20ms 2ms --audit queue codel target 5ms \
                 reverse rate 2mbit",
                "metrics 127.0.0.1:9477: listen 127.0.0.1:9477",
            ]
        );
    }

    #[test]
    fn every_fault_is_told_with_its_line_and_a_remedy() {
        let aggregate = "[[aggregate]]\ndev = \"wlan0\"\npeer = \"any\"\n";
        for (text, line, said) in [
            ("[[agregate]]\n", 1, "unknown section \"agregate\"; did you mean \"aggregate\"?"),
            ("\n[aggregate]\ndev = \"x\"\n", 2, "write [[aggregate]]"),
            ("[[metrics]]\n", 1, "write [metrics]"),
            ("[metrics]\n\nlisten = \"9477\"\n", 3, "127.0.0.1:9477"),
            ("[global]\nlevl = \"quiet\"\n", 2, "unknown key \"levl\"; did you mean \"level\"?"),
            ("[global]\nlevel = \"loud\"\n", 2, "quiet, normal or verbose"),
            ("[[aggregate]]\npeer = \"any\"\n", 1, "write dev = \"wlan0\""),
            ("[[trunk]]\npath = \"10.0.0.1\"\n", 1, "write name = \"trunk0\""),
            (&format!("{aggregate}timout = \"5ms\"\n"), 4, "did you mean \"timeout\"?"),
            (&format!("{aggregate}timeout = 5\n"), 4, "timeout 5 has no unit"),
            (&format!("{aggregate}timeout = \"\"\n"), 4, "timeout is empty"),
            (&format!("{aggregate}timeout = 1979-05-27\n"), 4, "needs a string, a number"),
            (&format!("{aggregate}timeout = \"5ms\\u0000\"\n"), 4, "control character"),
            (&format!("{aggregate}{aggregate}"), 4, "aggregate wlan0 is in line 1 already"),
            ("[[split]]\ndev = \"a\"\noff = true\n", 3, "leave the section out"),
            ("[[emulate]]\nlink = \"a b\"\n[[emulate]]\ndev = \"b\"\n", 3, "in line 1 already"),
            ("[[aggregate]\n", 1, ""),
            ("a = 1\n", 1, "unknown section \"a\""),
        ] {
            let found = faults(text);
            assert_eq!(found.len(), 1, "{text}: {found:?}");
            assert_eq!(found[0].0, line, "{text}: {found:?}");
            assert!(found[0].1.contains(said) && !found[0].1.contains('\n'), "{text}: {found:?}");
        }
    }

    #[test]
    fn all_faults_of_a_file_are_told_at_the_same_time() {
        let text =
            "[[aggregate]]\npeer = \"auto\"\n[[windw]]\n[[split]]\ndev = \"b\"\npeer = \"x\"\n";
        let lines: Vec<_> = faults(text).into_iter().map(|(line, _)| line).collect();
        assert_eq!(lines, [1, 3, 6]);
    }

    #[test]
    fn a_fault_begins_with_file_and_line() {
        let fault = |line, message: &str| Fault { line, message: message.to_owned() };
        let faults = vec![fault(0, "cannot be read"), fault(7, "wrong")];
        let faults = Faults { file: "a.toml".into(), faults };
        assert_eq!(faults.to_string(), "a.toml: cannot be read\na.toml:7: wrong");
    }

    #[test]
    fn whatever_a_file_contains_it_is_refused_or_read() {
        let text = include_str!("../../../../packaging/sheaf.toml");
        // Every prefix of a real file, and the file without each of its lines.
        for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
            let _ = parse(&text[..end]);
        }
        for skipped in 0..text.lines().count() {
            let lines = text.lines().enumerate().filter(|(at, _)| *at != skipped);
            let _ = parse(&lines.map(|(_, line)| format!("{line}\n")).collect::<String>());
        }
    }

    /// The value that `name` has in the examples of `grammar`, where it stands behind the operands.
    fn value(grammar: &dyn Spelling, name: &str) -> String {
        let operands = grammar.outline().operands;
        let before = operands.iter().filter(|operand| !operand.optional).count();
        let own = |line: &String| line.split_whitespace().nth(before) == Some(name);
        let line = grammar.examples().into_iter().find(own).unwrap();
        line.split_whitespace().skip(before + 1).collect::<Vec<_>>().join(" ")
    }

    /// `sample` with a line for each word of the commands that it does not show, and those words.
    fn completed(sample: &str) -> (String, Vec<String>) {
        let (mut text, mut missing) = (sample.to_owned(), Vec::new());
        for kind in Kind::SECTIONS {
            let header = format!("#[[{}]]", kind.name());
            let parts = sample.split("\n#[").map(|part| format!("#[{part}"));
            let own: String = parts.filter(|part| part.starts_with(&header)).collect();
            let shown: BTreeSet<_> =
                own.split(|c: char| !c.is_ascii_alphanumeric() && !"_+-".contains(c)).collect();
            for grammar in crate::tables::grammars(kind.name()) {
                let command = grammar.outline().command;
                // What is not a link that stays is not a section.
                if kind == Kind::Emulate && !["emulate link", "emulate dev"].contains(&command) {
                    continue;
                }
                let sections = grammar.outline().sections;
                for word in sections.iter().flat_map(|section| &section.words) {
                    let key = word.name.trim_start_matches("--");
                    // A splitter that is off has no section.
                    if shown.contains(key) || (kind, key) == (Kind::Split, "off") {
                        continue;
                    }
                    let value = match value(*grammar, word.name).as_str() {
                        "" => "true".to_owned(),
                        value => format!("\"{value}\""),
                    };
                    let line = format!("#{key} = {value}");
                    let line = format!("\n{line:<33} # {}", word.help);
                    let begin = text.find(&header).unwrap();
                    let end = text[begin..].find("\n\n").map_or(text.len(), |end| begin + end);
                    // The second of two commands that share a word finds it shown.
                    if !text[begin..end].contains(&format!("\n#{key} = ")) {
                        text.insert_str(end, &line);
                        missing.push(format!("{key} of {}", kind.name()));
                    }
                }
            }
        }
        (text, missing)
    }

    #[test]
    fn the_sample_shows_every_word_of_the_commands() {
        let (text, missing) = completed(include_str!("../../../../packaging/sheaf.toml"));
        if std::env::var_os("SHEAF_BLESS").is_some() {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/sheaf.toml");
            return std::fs::write(path, text).unwrap();
        }
        assert!(
            missing.is_empty(),
            "packaging/sheaf.toml does not show {missing:?}; run SHEAF_BLESS=1 cargo test -p sheaf \
             --bin sheaf sample"
        );
    }

    #[test]
    fn a_word_that_the_sample_lacks_is_put_into_its_section() {
        let (sample, _) = completed(include_str!("../../../../packaging/sheaf.toml"));
        let lacks = |line: &&str| !line.starts_with("#slack = ") && !line.starts_with("#audit = ");
        let lines: Vec<_> = sample.lines().filter(lacks).collect();
        let (text, missing) = completed(&format!("{}\n", lines.join("\n")));
        assert_eq!(missing, ["slack of window", "audit of emulate"]);
        let window = text.split("\n\n").find(|part| part.contains("#[[window]]")).unwrap();
        assert!(window.contains("\n#slack = \"1ms\""), "{window}");
        let emulate = text.split("\n\n").find(|part| part.contains("#[[emulate]]")).unwrap();
        assert!(emulate.contains("\n#audit = true"), "{emulate}");
    }
}
