//! Tests of what stands in the README and the guides: commands and files are understood.

use crate::{metrics, run, tables};
use clap::Parser;
use std::path::PathBuf;
use tempfile::TempDir;

/// Fewest commands that the guides have: fewer means that they were not found.
const COMMANDS: usize = 50;

/// Most words behind `sheaf` that only name a command in prose, as `sheaf emulate stop IF` does.
const NAME: usize = 3;

/// The README and the guides: paths and texts.
fn guides() -> Vec<(PathBuf, String)> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let guides = std::fs::read_dir(root.join("docs")).unwrap().map(|file| file.unwrap().path());
    let guides = guides.filter(|file| file.extension().is_some_and(|ending| ending == "md"));
    let files = std::iter::once(root.join("README.md")).chain(guides);
    files.map(|file| (file.clone(), std::fs::read_to_string(file).unwrap())).collect()
}

/// The words of `line` behind `sheaf`, without the remarks and the programs that follow them;
/// `None` where it is another program's, or leaves something out.
fn command(line: &str) -> Option<String> {
    let line = line.strip_prefix("$ ").unwrap_or(line);
    let line = line.strip_prefix("sudo ").unwrap_or(line).strip_prefix("sheaf ")?;
    let ends = [" #", " | ", "  "].map(|end| line.find(end).unwrap_or(line.len()));
    let words = line[..ends.into_iter().min()?].trim();
    let partial = ["…", "...", "<"].iter().any(|sign| words.contains(sign));
    (!partial).then(|| words.to_owned())
}

/// The command lines in `text`: of examples, with the lines that continue them, and between
/// backquotes where they are more than a name.
fn commands(text: &str) -> Vec<String> {
    let text = text.split("\\\n").map(str::trim).collect::<Vec<_>>().join(" ");
    let example = |line: &&str| line.starts_with("    ");
    let examples = text.lines().filter(example).filter_map(|line| command(line.trim_start()));
    let placeholder = |word: &str| word.len() > 1 && !word.contains(|c: char| !c.is_uppercase());
    let whole =
        |words: &String| words.split(' ').count() > NAME && !words.split(' ').any(placeholder);
    let quoted = text.lines().filter(|line| !example(line));
    let quoted = quoted.flat_map(|line| line.split('`').skip(1).step_by(2)).filter_map(command);
    examples.chain(quoted.filter(whole)).collect()
}

/// Checks a command line as the program does, without looking at interfaces.
fn check(line: &str) -> Result<(), String> {
    let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
    let whole = std::iter::once("sheaf".to_owned()).chain(words.iter().cloned());
    crate::Arguments::try_parse_from(whole).map_err(|error| error.to_string())?;
    let reason = |error: anyhow::Error| format!("{error:#}");
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["metrics", ..] => metrics::parse(&words[1..]).map(drop).map_err(reason),
        #[cfg(feature = "lab")]
        ["lab", "show" | "run" | "points", plan, ..] => {
            sheaf_lab::plan::Plan::find(plan).map(drop).map_err(reason)
        }
        [command, rest @ ..] if !tables::grammars(command).is_empty() => {
            let own = if *command == "emulate" { &rest[..1] } else { &[] };
            let name = [&[*command], own].concat().join(" ");
            match tables::check(&name, &words[1 + own.len()..]) {
                // The files of an example are not here.
                Err(error) if error.message.contains("there is no distribution") => Ok(()),
                result => result.map_err(|error| error.message),
            }
        }
        _ => Ok(()),
    }
}

#[test]
fn the_commands_of_the_guides_are_understood() {
    let mut checked = 0;
    for (file, text) in guides() {
        for line in commands(&text) {
            assert_eq!(check(&line), Ok(()), "{}: sheaf {line}", file.display());
            checked += 1;
        }
    }
    assert!(checked >= COMMANDS, "{checked} commands were found");
}

/// The examples of `text` that have a line like `[[trunk]]` or `[metrics]`.
fn files(text: &str) -> Vec<String> {
    let mut examples = vec![String::new()];
    for line in text.lines() {
        match line.strip_prefix("    ") {
            Some(rest) => {
                let last = examples.last_mut().expect("there is one");
                *last += &format!("{rest}\n");
            }
            None if line.is_empty() => {}
            None => examples.push(String::new()),
        }
    }
    examples.retain(|example| example.lines().any(|line| line.starts_with('[')));
    examples
}

#[test]
fn the_files_in_the_guides_have_no_fault() {
    let directory = TempDir::new().unwrap();
    let (mut sections, mut rules) = (0, 0);
    for (file, text) in guides() {
        for example in files(&text) {
            if example.contains("[[rule]]") {
                let path = directory.path().join("rules.toml");
                std::fs::write(&path, &example).unwrap();
                let line = format!("emulate dev eth0 --rules {}", path.display());
                assert_eq!(check(&line), Ok(()), "{}: {example}", file.display());
                rules += 1;
            // The guide of the lab has parts of plans.
            } else if !file.ends_with("lab.md") {
                let read = run::config::parse(&example);
                assert!(read.is_ok(), "{}: {read:?}\n{example}", file.display());
                sections += 1;
            }
        }
    }
    assert!(sections >= 2 && rules >= 1, "{sections} files of sections, {rules} of rules");
}
