//! `sheaf completions`: the candidates that a shell offers at TAB, made from the tables of words.
//!
//! The scripts of the shells ask `sheaf complete` each time, so that they know this version's words
//! and the interfaces that there are now.

use crate::tables;
use crate::words::Spelling;
use crate::words::complete::Candidate;
use clap::Command;
use std::fmt::Write;

/// Shells with a script.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Shell {
    /// source <(sheaf completions bash)
    Bash,
    /// sheaf completions zsh > ~/.zfunc/_sheaf
    Zsh,
    /// sheaf completions fish > ~/.config/fish/completions/sheaf.fish
    Fish,
}

impl Shell {
    /// The script that makes the shell ask.
    pub fn script(self) -> &'static str {
        match self {
            Shell::Bash => include_str!("sheaf.bash"),
            Shell::Zsh => include_str!("sheaf.zsh"),
            Shell::Fish => include_str!("sheaf.fish"),
        }
    }
}

/// Returns the candidates for the last of `words`, which is begun or empty: a line for each, with
/// its meaning behind a tab. `:file` stands for the names of files.
pub fn complete(command: &Command, words: &[String]) -> String {
    let (begun, before) = words.split_last().map_or(("", words), |(last, rest)| (last, rest));
    let mut text = String::new();
    for candidate in candidates(command, before) {
        match candidate {
            Candidate::Word(word, help) => line(&mut text, begun, &word, help),
            Candidate::Interface => {
                for name in sheaf_netio::ip::names().unwrap_or_default() {
                    line(&mut text, begun, &name, "interface");
                }
            }
            Candidate::File => text.push_str(":file\n"),
            // A value of one's own: there is nothing to offer.
            Candidate::Value(_) => {}
        }
    }
    text
}

fn line(text: &mut String, begun: &str, word: &str, help: &str) {
    // Flags are offered to who begins one.
    let wanted = word.starts_with(begun) && (!word.starts_with("--") || begun.starts_with('-'));
    if wanted {
        let help = help.split("; ").next().unwrap_or_default();
        let _ = writeln!(text, "{word}\t{help}");
    }
}

fn candidates(root: &Command, before: &[String]) -> Vec<Candidate> {
    let (mut command, mut rest) = (root, before);
    while let Some((word, others)) = rest.split_first() {
        let Some(inner) = command.find_subcommand(word) else { break };
        (command, rest) = (inner, others);
        let grammars = tables::grammars(command.get_name());
        if !grammars.is_empty() {
            return of_tables(grammars, rest);
        }
    }
    of_flags(command)
}

/// Returns the candidates for the word behind `words` in one of `grammars`.
fn of_tables(grammars: &[&dyn Spelling], words: &[String]) -> Vec<Candidate> {
    let form = |grammar: &&dyn Spelling| grammar.outline().command.split(' ').nth(1);
    // The form of a command that has no word of its own, as `trunk NAME` beside `trunk key`.
    let plain = grammars.iter().find(|grammar| form(grammar).is_none());
    if let Some((first, rest)) = words.split_first() {
        let found = grammars.iter().find(|grammar| form(grammar) == Some(first.as_str()));
        let found = found.map(|grammar| grammar.next(rest));
        return found.or(plain.map(|grammar| grammar.next(words))).unwrap_or_default();
    }
    let word = |grammar: &&dyn Spelling| {
        form(grammar).map(|form| Candidate::word(form, grammar.outline().about))
    };
    let forms = grammars.iter().filter_map(word);
    forms.chain(plain.map(|grammar| grammar.next(words)).unwrap_or_default()).collect()
}

/// The subcommands, flags and values of a command without a table.
fn of_flags(command: &Command) -> Vec<Candidate> {
    let inner = command.get_subcommands().filter(|inner| !inner.is_hide_set());
    let mut found: Vec<_> = inner.map(|inner| Candidate::word(inner.get_name(), "")).collect();
    for argument in command.get_arguments() {
        if let Some(long) = argument.get_long() {
            found.push(Candidate::word(&format!("--{long}"), ""));
            continue;
        }
        let values = argument.get_possible_values();
        found.extend(values.iter().map(|value| Candidate::word(value.get_name(), "")));
        let names = argument.get_value_names().unwrap_or_default();
        if names.iter().any(|name| name.ends_with("IF")) {
            found.push(Candidate::Interface);
        }
        if names.iter().any(|name| name.contains("FILE") || name.contains("FOLDER")) {
            found.push(Candidate::File);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// Returns the words that are offered for the last of `line`, which is begun.
    fn offered(line: &str) -> Vec<String> {
        let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
        let text = complete(&crate::Arguments::command(), &words);
        text.lines().map(|line| line.split('\t').next().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn commands_words_and_values_are_offered_where_they_may_stand() {
        assert_eq!(offered("agg"), ["aggregate"]);
        assert_eq!(offered("window dev eth0 cap"), ["capacity"]);
        assert_eq!(offered("window dev eth0 capacity "), ["auto", "link"]);
        assert_eq!(offered("window dev eth0 capacity auto cap"), [""; 0], "once only");
        assert_eq!(offered("emulate sh"), ["shell", "show"]);
        assert_eq!(offered("emulate dev eth0 in"), ["ingress"]);
        assert_eq!(offered("emulate dev eth0 queue fq"), ["fq_codel"]);
        assert_eq!(offered("emulate dev eth0 queue fq_codel no"), ["noecn"]);
        assert_eq!(offered("emulate dev eth0 loss "), ["random", "state", "gemodel", "pattern"]);
        assert_eq!(offered("emulate dev eth0 --pc"), ["--pcap"]);
        assert_eq!(offered("emulate dev eth0 --pcap "), [":file"]);
        assert_eq!(offered("aggregate dev wlan0 match proto ud"), ["udp"]);
        assert_eq!(offered("aggregate dev wlan0 match dscp ef dp"), ["dport"]);
        assert_eq!(offered("trunk trunk0 dev eth1 pe"), ["peer"]);
        assert_eq!(offered("trunk trunk0 path 10.0.0.1 key "), [":file"]);
        assert_eq!(offered("trunk ke"), ["key"]);
        assert_eq!(offered("lab run --eng"), ["--engine"]);
        assert_eq!(offered("window dev eth0 frob "), [""; 0], "behind a wrong word");
    }

    #[test]
    fn interfaces_are_those_that_there_are() {
        assert_eq!(offered("window dev l"), ["lo"]);
        assert_eq!(offered("split dev l"), ["lo"]);
    }
}
