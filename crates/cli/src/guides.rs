//! Tests of what stands in the README, the guides and the decisions: commands and files are
//! understood.

use crate::{metrics, run, tables};
use clap::{CommandFactory, Parser};
use std::path::PathBuf;
use tempfile::TempDir;

/// Fewest commands that the guides have: fewer means that they were not found.
const COMMANDS: usize = 50;

/// Fewest names of commands in prose.
const NAMES: usize = 30;

/// Fewest plans, or parts of plans, that the guide of the lab has.
#[cfg(feature = "lab")]
const PLANS: usize = 3;

/// Most words behind `sheaf` that only name a command in prose, as `sheaf emulate stop IF` does.
const NAME: usize = 3;

/// The README, the guides and the decisions: paths and texts.
fn guides() -> Vec<(PathBuf, String)> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folders = ["docs", "docs/decisions"].map(|folder| std::fs::read_dir(root.join(folder)));
    let guides = folders.into_iter().flat_map(Result::unwrap).map(|file| file.unwrap().path());
    let guides = guides.filter(|file| file.extension().is_some_and(|ending| ending == "md"));
    let files = std::iter::once(root.join("README.md")).chain(guides);
    files.map(|file| (file.clone(), std::fs::read_to_string(file).unwrap())).collect()
}

/// The words of `line` behind `sheaf`, without the remarks and the programs that follow them;
/// `None` where it is another program's, or leaves something out.
fn command(line: &str) -> Option<String> {
    let line = line.strip_prefix("$ ").unwrap_or(line);
    let line = line.strip_prefix("sudo ").unwrap_or(line).strip_prefix("sheaf ")?;
    let ends = [" #", " | ", " >", "  "].map(|end| line.find(end).unwrap_or(line.len()));
    let words = line[..ends.into_iter().min()?].trim();
    let partial = ["…", "...", "<"].iter().any(|sign| words.contains(sign));
    (!partial).then(|| words.to_owned())
}

/// The command lines in `text`, and the names of commands in its prose. Lines stand in examples,
/// with the lines that continue them; what stands between backquotes is a line where it has no
/// placeholder and is longer than a name.
fn commands(text: &str) -> (Vec<String>, Vec<String>) {
    let text = text.split("\\\n").map(str::trim).collect::<Vec<_>>().join(" ");
    let (examples, prose): (Vec<_>, Vec<_>) =
        text.lines().partition(|line| line.starts_with("    "));
    let examples = examples.into_iter().filter_map(|line| command(line.trim_start()));
    let placeholder = |word: &str| word.len() > 1 && !word.contains(|c: char| !c.is_uppercase());
    let whole =
        |words: &String| words.split(' ').count() > NAME && !words.split(' ').any(placeholder);
    // A line of prose may end inside of a quotation.
    let prose = prose.join(" ");
    let (lines, names): (Vec<_>, Vec<_>) =
        prose.split('`').skip(1).step_by(2).filter_map(command).partition(whole);
    (examples.chain(lines).collect(), names)
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
                Err(error) if error.message.contains(".toml; give a file that is there") => Ok(()),
                result => result.map_err(|error| error.message),
            }
        }
        _ => Ok(()),
    }
}

/// Whether `line`, which may be the beginning of a command line, begins with the name of a command.
fn is_command(line: &str) -> bool {
    let words: Vec<_> = line.split_whitespace().collect();
    let program = crate::Arguments::command();
    let Some(command) = program.find_subcommand(words[0]) else { return false };
    let named = |name: &str| format!("{line} ").starts_with(&format!("{name} "));
    let begins = |name: &str| name == words[0] || words.len() > 1 && named(name);
    match (words.get(1).copied(), tables::grammars(words[0])) {
        (Some(word), _) if command.has_subcommands() => command.find_subcommand(word).is_some(),
        (Some(word), forms) if !forms.is_empty() && !word.starts_with('-') => {
            forms.iter().any(|form| begins(form.outline().command))
        }
        _ => true,
    }
}

#[test]
fn the_commands_of_the_guides_are_understood() {
    let (mut checked, mut named) = (0, 0);
    for (file, text) in guides() {
        let (lines, names) = commands(&text);
        for line in &lines {
            assert_eq!(check(line), Ok(()), "{}: sheaf {line}", file.display());
        }
        for name in names.iter().filter(|name| !name.starts_with(char::is_uppercase)) {
            assert!(is_command(name), "{}: there is no sheaf {name}", file.display());
        }
        checked += lines.len();
        named += names.len();
    }
    assert!(checked >= COMMANDS, "{checked} commands were found");
    assert!(named >= NAMES, "{named} names of commands were found");
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
    let (mut sections, mut rules, mut media, mut links) = (0, 0, 0, 0);
    for (file, text) in guides() {
        for example in files(&text) {
            if example.contains("[[rule]]") {
                let path = directory.path().join("rules.toml");
                std::fs::write(&path, &example).unwrap();
                let line = format!("emulate dev eth0 --rules {}", path.display());
                assert_eq!(check(&line), Ok(()), "{}: {example}", file.display());
                rules += 1;
            } else if example.contains("[[station]]") {
                let path = directory.path().join("air.toml");
                std::fs::write(&path, &example).unwrap();
                let line = format!("emulate medium {}", path.display());
                assert_eq!(check(&line), Ok(()), "{}: {example}", file.display());
                media += 1;
            } else if example.contains("[[link]]") {
                let path = directory.path().join("testbed.toml");
                std::fs::write(&path, &example).unwrap();
                let line = format!("emulate links {}", path.display());
                assert_eq!(check(&line), Ok(()), "{}: {example}", file.display());
                links += 1;
            } else if !is_plan(&example) {
                let read = run::config::parse(&example);
                assert!(read.is_ok(), "{}: {read:?}\n{example}", file.display());
                sections += 1;
            }
        }
    }
    assert!(sections >= 2 && rules >= 1, "{sections} files of sections, {rules} of rules");
    assert!(media >= 1 && links >= 1, "{media} files of a medium, {links} of many links");
}

/// Whether an example is a plan of the lab or a part of one.
fn is_plan(example: &str) -> bool {
    example.contains("[[scenario]]") || example.contains("[[treatment]]")
}

/// Reads `example` as a plan, and where it is a part of one, with the head of the plan `whole` and
/// the treatments that it leaves out.
#[cfg(feature = "lab")]
fn read_plan(example: &str, whole: &sheaf_lab::plan::Plan) -> Result<(), String> {
    let reason = |error: anyhow::Error| format!("{error:#}");
    let mut plan: toml::Table = whole.to_toml().map_err(reason)?.parse().unwrap();
    let mut part: toml::Table =
        example.parse().map_err(|error: toml::de::Error| error.to_string())?;
    let is_whole = part.contains_key("kind");
    if !is_whole {
        // Figures that were published belong to scenarios of their own.
        plan.remove("published");
        if let Some(own) = part.remove("treatment") {
            let all = plan["treatment"].as_array_mut().unwrap();
            let own = own.as_array().unwrap();
            all.retain(|one| own.iter().all(|other| other["name"] != one["name"]));
            all.extend_from_slice(own);
        }
        plan.extend(part);
    }
    let text = if is_whole { example.to_owned() } else { plan.to_string() };
    sheaf_lab::plan::Plan::parse(&text, "the guide").map(drop).map_err(reason)
}

#[cfg(feature = "lab")]
#[test]
fn the_plans_in_the_guides_are_plans_of_one_kind() {
    let wholes = sheaf_lab::plan::Plan::all();
    let mut plans = 0;
    for (file, text) in guides() {
        for example in files(&text).into_iter().filter(|example| is_plan(example)) {
            let read: Vec<_> = wholes.iter().map(|whole| read_plan(&example, whole)).collect();
            let understood = read.iter().any(Result::is_ok);
            assert!(understood, "{}: {read:#?}\n{example}", file.display());
            plans += 1;
        }
    }
    assert!(plans >= PLANS, "{plans} plans were found");
}
