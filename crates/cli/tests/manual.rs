//! The manual says what the program says: every word of a grammar is in its page, every option of a
//! page is in its grammar, and the pages are well-formed. `--help` is the grammar itself.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

const SHEAF: &str = env!("CARGO_BIN_EXE_sheaf");

/// Commands with a page of their own, and its section.
const PAGES: [(&str, u8); 10] = [
    ("run", 8),
    ("top", 8),
    ("metrics", 8),
    ("aggregate", 8),
    ("split", 8),
    ("trunk", 8),
    ("window", 8),
    ("show", 8),
    ("emulate", 8),
    ("lab", 1),
];
/// Commands that share the page of `sheaf run`.
const WITH_RUN: [&str; 3] = ["check", "reload", "change"];
/// Every command has the first three, and sheaf(8) tells of them; the last joins parts of a
/// grammar.
const COMMON: [&str; 4] = ["-h", "--help", "help", "and"];

type Words = BTreeSet<String>;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../man")
}

fn page(name: &str) -> String {
    let path = folder().join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn pages() -> Vec<String> {
    let names = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name());
    names.map(|name| name.into_string().unwrap()).collect()
}

fn help(words: &[&str]) -> String {
    let output = Command::new(SHEAF).args(words).arg("--help").output().unwrap();
    assert!(output.status.success(), "{words:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Words that a user types as they stand: small letters, digits, flags. Placeholders have capitals.
fn literals(text: &str) -> Words {
    let inside = |c: char| c.is_ascii_alphanumeric() || "-_+.".contains(c);
    let word = |word: &&str| {
        let first = word.trim_start_matches('-').chars().next();
        let plain = first.is_some_and(|c| c.is_ascii_lowercase());
        plain && !word.contains(|c: char| c.is_ascii_uppercase())
    };
    let words = text.split(|c| !inside(c)).map(|word| word.trim_end_matches(['.', '-']));
    words.filter(word).map(str::to_owned).collect()
}

/// The words of a grammar as `--help` has it: of the usage; of the column of words, from two to six
/// deep, before their explanations; of braces and the word before; and flags.
fn grammar(help: &str) -> Words {
    /// The least column of explanations, which have no words of the grammar.
    const EXPLAINED: usize = 10;
    let mut words = Words::new();
    let (mut usage, mut section) = (false, String::new());
    for line in help.lines().take_while(|line| !line.starts_with("Example")) {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        usage = line.starts_with("Usage:") || usage && !line.is_empty();
        // clap's lists of flags and subcommands have rows, too.
        if indent == 0 && text.ends_with(':') {
            section = text.to_owned();
        }
        if usage {
            // A sentence below a form of the usage stands twelve deep.
            let text = text.strip_prefix("Usage:").unwrap_or(text).trim_start();
            if indent != 12 {
                words.extend(literals(text.split("   ").next().unwrap_or_default()));
            }
        } else if (2..EXPLAINED).contains(&indent) && section != "Commands:" {
            let (column, said) = text.split_once("  ").unwrap_or((text, ""));
            words.extend(literals(column));
            if let Some((before, _)) = said.split_once('{') {
                words.extend(literals(before.split_whitespace().last().unwrap_or_default()));
            }
            for braces in said.split('{').skip(1) {
                words.extend(literals(braces.split('}').next().unwrap_or_default()));
            }
        }
        words.extend(literals(text).into_iter().filter(|word| word.starts_with("--")));
    }
    let commands = help.split("Commands:\n").nth(1).unwrap_or_default();
    let first = |line: &str| line.split_whitespace().next().unwrap_or_default().to_owned();
    words.extend(commands.lines().take_while(|line| !line.is_empty()).map(first));
    words
}

/// A line of man(7) without its escapes, in pieces: the text of each, and whether it is bold.
fn pieces(line: &str) -> Vec<(String, bool)> {
    let (macro_name, rest) = match line.strip_prefix('.') {
        Some(request) => request.split_once(' ').unwrap_or((request, "")),
        None => ("", line),
    };
    let fonts: &[bool] = match macro_name {
        "B" => &[true],
        "I" => &[false],
        "BI" | "BR" => &[true, false],
        "IB" | "RB" => &[false, true],
        "" => &[],
        _ => return Vec::new(),
    };
    if fonts.is_empty() {
        let mut found = Vec::new();
        for (at, part) in rest.replace("\\-", "-").split("\\f").enumerate() {
            let (font, text) = if at == 0 { ("R", part) } else { part.split_at(1) };
            found.push((text.to_owned(), font == "B"));
        }
        return found;
    }
    let mut arguments = Vec::new();
    let mut rest = rest.trim_start();
    while !rest.is_empty() {
        let (argument, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => rest.split_once(' ').unwrap_or((rest, "")),
        };
        arguments.push(argument.replace("\\-", "-"));
        rest = after.trim_start();
    }
    arguments.into_iter().zip(fonts.iter().copied().cycle()).collect()
}

/// The words that are bold in a line.
fn bold(line: &str) -> Words {
    let bold = pieces(line).into_iter().filter(|(_, bold)| *bold);
    bold.flat_map(|(text, _)| literals(&text)).collect()
}

/// The words that the entries of a page's section OPTIONS are about.
fn options(page: &str) -> Words {
    let section = page.lines().skip_while(|line| *line != ".SH OPTIONS").skip(1);
    let lines: Vec<_> = section.take_while(|line| !line.starts_with(".SH ")).collect();
    lines.windows(2).filter(|two| two[0] == ".TP").flat_map(|two| bold(two[1])).collect()
}

#[test]
fn every_word_of_a_grammar_is_in_its_page() {
    for (command, section) in PAGES {
        let mut wanted = grammar(&help(&[command]));
        if command == "lab" {
            for sub in ["run", "gather", "pack", "check", "verify"] {
                wanted.extend(grammar(&help(&["lab", sub])));
            }
        }
        if command == "run" {
            wanted.extend(WITH_RUN.iter().flat_map(|command| grammar(&help(&[command]))));
        }
        let name = format!("sheaf-{command}.{section}");
        let written: Words = page(&name).lines().flat_map(bold).collect();
        wanted.retain(|word| !COMMON.contains(&word.as_str()) && word != "sheaf");
        let missing: Vec<_> = wanted.difference(&written).collect();
        assert!(!wanted.is_empty(), "nothing was read of `sheaf {command} --help`");
        assert!(missing.is_empty(), "man/{name} does not explain {missing:?}");
    }
    let written: Words = page("sheaf.8").lines().flat_map(bold).collect();
    let missing: Vec<_> =
        grammar(&help(&[])).into_iter().filter(|w| !written.contains(w)).collect();
    assert!(missing.is_empty(), "man/sheaf.8 does not explain {missing:?}");
}

#[test]
fn every_option_of_a_page_is_in_its_help() {
    for (command, section) in PAGES {
        let mut known = grammar(&help(&[command]));
        if command == "lab" {
            // The values of its flags are explained, not written in one line.
            for sub in ["run", "points", "gather", "pack", "check", "verify", "report"] {
                known.extend(literals(&help(&["lab", sub])));
            }
        }
        let name = format!("sheaf-{command}.{section}");
        let told = options(&page(&name));
        assert!(command == "top" || !told.is_empty(), "man/{name} has no options");
        let odd: Vec<_> = told.difference(&known).collect();
        assert!(odd.is_empty(), "`sheaf {command} --help` does not know {odd:?} of man/{name}");
    }
}

#[test]
fn every_command_has_a_page_that_the_others_lead_to() {
    let all = pages();
    for (command, section) in PAGES {
        let name = format!("sheaf-{command}.{section}");
        assert!(all.contains(&name), "there is no man/{name}");
        let reference = format!("\\fBsheaf\\-{command}\\fR({section})");
        assert!(page("sheaf.8").contains(&reference), "sheaf.8 does not name {name}");
    }
    let commands = help(&[]);
    let commands = commands.split("Commands:\n").nth(1).unwrap().lines();
    for line in commands.take_while(|line| !line.is_empty()) {
        let name = line.split_whitespace().next().unwrap();
        // sheaf(8) says all of these.
        let known = ["help", "completions"].contains(&name)
            || WITH_RUN.contains(&name)
            || PAGES.iter().any(|(command, _)| *command == name);
        assert!(known, "sheaf {name} has no page in this list");
    }
}

#[test]
fn pages_have_the_sections_of_a_manual_in_their_order() {
    const ORDER: [&str; 16] = [
        "NAME",
        "SYNOPSIS",
        "DESCRIPTION",
        "COMMANDS",
        "OPTIONS",
        "WORDS AND UNITS",
        "RULES",
        "LINKS",
        "STATIONS",
        "OUTPUT",
        "EXIT STATUS",
        "FILES",
        "CAPABILITIES",
        "REQUIREMENTS",
        "EXAMPLES",
        "BUGS",
    ];
    for name in pages() {
        let page = page(&name);
        let (title, section) = name.split_once('.').unwrap();
        let begin = format!(".TH {} {section} ", title.to_uppercase());
        assert!(page.starts_with(&begin), "{name} begins otherwise than {begin}");
        let sections: Vec<_> = page.lines().filter_map(|line| line.strip_prefix(".SH ")).collect();
        let mut expected: Vec<_> =
            ORDER.into_iter().filter(|section| sections.contains(section)).collect();
        expected.push("SEE ALSO");
        assert_eq!(sections, expected, "{name}");
        for needed in
            ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "EXAMPLES", "BUGS"]
        {
            assert!(sections.contains(&needed), "{name} has no {needed}");
        }
        let title = title.replace('-', "\\-");
        assert!(page.contains(&format!(".SH NAME\n{title} \\- ")), "{name}: whatis(1) reads NAME");
    }
}

#[test]
fn groff_has_nothing_to_say_about_the_pages() {
    for name in pages() {
        let path = folder().join(&name);
        let groff = Command::new("groff").args(["-ww", "-man", "-z", "-Tutf8"]).arg(path).output();
        let Ok(output) = groff else {
            eprintln!("skipped: there is no groff here; install groff-base");
            return;
        };
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{name}: {said}");
    }
}

#[test]
fn the_grammar_is_read_from_help_word_by_word() {
    let words = grammar(
        "About words\n\nUsage: sheaf x dev IF [policy busy|forced]\n            not these\n\n  \
         acks on|off     not these\n  hold LONG_ENOUGH_FOR_A_LINE\n            \
         \x20           not these\n  match RULE      these are:\n    \
         proto P       not these\n  --audit         print it\n\n\
         Example: sheaf x wrong",
    );
    let expected = ["acks", "busy", "dev", "forced", "hold", "match", "off", "on", "policy"];
    let others = ["proto", "--audit", "sheaf", "x"];
    assert_eq!(words, expected.into_iter().chain(others).map(str::to_owned).collect::<Words>());
    let tag = bold(".BI \"vq dscp\" \" CLASS,...\" gap");
    assert_eq!(tag, ["vq", "dscp", "gap"].map(str::to_owned).into());
    assert_eq!(
        bold("one \\fBtwo\\fR three \\fB\\-\\-four\\fR"),
        ["two", "--four"].map(str::to_owned).into()
    );
}

/// Returns the words that bash offers for the last of `line`, which is begun.
fn offered(line: &str) -> Vec<String> {
    let words: Vec<_> = line.split(' ').map(|word| format!("'{word}'")).collect();
    let script = format!(
        "source <('{SHEAF}' completions bash); COMP_WORDS=({}); COMP_CWORD={}; _sheaf '{SHEAF}'; \
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        words.join(" "),
        words.len() - 1
    );
    let output = Command::new("bash").args(["--norc", "-c", &script]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn bash_offers_what_may_stand_next() {
    assert_eq!(offered("sheaf win"), ["window"]);
    assert_eq!(offered("sheaf window dev lo capacity l"), ["link"]);
    assert_eq!(offered("sheaf split dev l"), ["lo"]);
    assert_eq!(offered("sheaf emulate dev lo --pcap Cargo.t"), ["Cargo.toml"]);
}

#[test]
fn the_scripts_of_other_shells_have_their_syntax() {
    for shell in ["zsh", "fish"] {
        let script = Command::new(SHEAF).args(["completions", shell]).output().unwrap();
        assert!(script.status.success() && !script.stdout.is_empty(), "{shell}");
        let path = std::env::temp_dir().join(format!("sheaf-{shell}-{}", std::process::id()));
        std::fs::write(&path, script.stdout).unwrap();
        let checked = Command::new(shell).arg("-n").arg(&path).output();
        std::fs::remove_file(&path).unwrap();
        match checked {
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success() && said.is_empty(), "{shell}: {said}");
            }
            Err(_) => eprintln!("skipped: there is no {shell} here; install it"),
        }
    }
}
