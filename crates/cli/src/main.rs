//! `sheaf`: makes weak links carry more.

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod aggregate;
mod change;
mod completions;
mod emulate;
#[cfg(test)]
mod guides;
#[cfg(feature = "lab")]
mod lab;
mod log;
mod metrics;
mod output;
mod reports;
mod rule;
mod run;
mod show;
mod tables;
#[cfg(feature = "top")]
mod top;
mod trunk;
mod verbose;
mod window;
mod words;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use output::OutputError;
use std::path::PathBuf;
use std::process::ExitCode;
use tracing::Level;

/// Status of a command that did its work and could not print the result.
const UNPRINTED: u8 = 1;
/// Status of a command that could not do its work.
const REFUSED: u8 = 2;

/// Commands whose words are a grammar, as those of `ip` and `tc`, describe it themselves.
const GRAMMAR: &str = "{about}{after-help}";

const EXAMPLES: &str = "\
Examples: sheaf aggregate dev wlan0
          sheaf trunk trunk0 path 192.0.2.7 198.51.100.1 path wwan0 198.51.100.1 key k
          sheaf window dev eth0 capacity 20mbit upload 4mbit
          sheaf emulate shell rate 2mbit delay 50ms -- curl http://100.64.0.1/
          sheaf lab run voip-two-hop

`sheaf COMMAND --help` has the grammar of each, `man sheaf-COMMAND` says what it means.";

/// Makes weak links carry more: aggregation, trunks, window control, emulated links, a lab.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, after_help = EXAMPLES)]
struct Arguments {
    /// Log more, and why the kernel refuses a program, too; comes before the command
    #[arg(short, long)]
    verbose: bool,
    /// Log only what is wrong
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,
    /// Form of the log on standard error
    #[arg(long, value_name = "FORM", default_value = "text")]
    log: log::Form,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Gather small packets to the same next hop or far end into one frame, until Ctrl-C
    #[command(help_template = GRAMMAR, after_help = aggregate::help())]
    Aggregate {
        /// dev IF [peer ADDR …] …
        #[arg(trailing_var_arg = true, value_name = "WORDS")]
        words: Vec<String>,
    },
    /// Take meta packets apart on an interface
    #[command(help_template = GRAMMAR, after_help = aggregate::split_help())]
    Split {
        /// dev IF [peer ADDR …] | off
        #[arg(trailing_var_arg = true, value_name = "WORDS")]
        words: Vec<String>,
    },
    /// Make one interface of several links, until Ctrl-C
    #[command(help_template = GRAMMAR, after_help = trunk::help())]
    Trunk {
        /// NAME { dev IF peer MAC|ADDR | path LOCAL REMOTE } …
        #[arg(trailing_var_arg = true, value_name = "WORDS")]
        words: Vec<String>,
    },
    /// Lower the TCP windows that pass an interface so that no queue builds, until Ctrl-C
    #[command(help_template = GRAMMAR, after_help = window::help())]
    Window {
        /// dev IF capacity RATE …
        #[arg(trailing_var_arg = true, value_name = "WORDS")]
        words: Vec<String>,
    },
    /// Print statistics per interface, next hop, link and flow; or the neighbours that say HELLO
    Show {
        /// neighbours; this interface only
        #[arg(value_name = "neighbours | dev IF")]
        words: Vec<String>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Emulate a link between two interfaces, on one, or around a shell
    #[command(help_template = GRAMMAR, after_help = emulate::help())]
    Emulate {
        /// link | dev | shell | change | show | dist …
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        #[arg(value_name = "WORDS")]
        words: Vec<String>,
    },
    /// Run all that a file describes, until Ctrl-C or SIGTERM
    Run {
        /// The file; /etc/sheaf/sheaf.toml without it
        #[arg(short, long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Check the file of `sheaf run`, with file and line of each fault
    Check {
        /// The file; /etc/sheaf/sheaf.toml without it
        #[arg(value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Have `sheaf run` read its file again; what did not change is not touched
    Reload,
    /// Change words of a service while it runs
    Change {
        /// KIND NAME WORD …
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "WORDS")]
        words: Vec<String>,
    },
    /// Print the figures of all services for monitoring systems, or serve them over HTTP
    #[command(help_template = GRAMMAR, after_help = metrics::HELP)]
    Metrics {
        /// openmetrics | prometheus | listen ADDR:PORT
        #[arg(trailing_var_arg = true, value_name = "WORDS")]
        words: Vec<String>,
    },
    /// Show all services live, until q
    #[cfg(feature = "top")]
    Top,
    /// Run experiments: published testbeds, real traffic, reports
    #[cfg(feature = "lab")]
    #[command(subcommand)]
    Lab(lab::Command),
    /// Print the completions of a shell
    Completions {
        /// The shell
        shell: completions::Shell,
    },
    /// Print what may stand next; the completions ask it
    #[command(hide = true)]
    Complete {
        /// The words so far, behind `--`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return refuse(&error),
    };
    if arguments.verbose {
        verbose::switch_on();
    }
    let level = match (arguments.verbose, arguments.quiet) {
        (true, _) => Level::DEBUG,
        (_, true) => Level::WARN,
        _ => Level::INFO,
    };
    log::begin(level, arguments.log);
    let result = match arguments.command {
        Command::Aggregate { words } => aggregate::aggregate(&words),
        Command::Split { words } => aggregate::split(&words),
        Command::Trunk { words } => trunk::trunk(&words),
        Command::Window { words } => window::window(&words),
        Command::Show { words, json } => show::run(&words, json),
        Command::Emulate { words } => match emulate::run(&words) {
            Ok(status) => return status,
            Err(error) => Err(error),
        },
        Command::Run { config } => match run::run(config) {
            Ok(status) => return status,
            Err(error) => Err(error),
        },
        Command::Check { config } => match run::check(config) {
            Ok(status) => return status,
            Err(error) => Err(error),
        },
        Command::Reload => match run::reload() {
            Ok(status) => return status,
            Err(error) => Err(error),
        },
        Command::Change { words } => run::change(&words),
        Command::Metrics { words } => metrics::metrics(&words),
        #[cfg(feature = "top")]
        Command::Top => top::top(),
        #[cfg(feature = "lab")]
        Command::Lab(command) => match lab::run(command) {
            Ok(status) => return status,
            Err(error) => Err(error),
        },
        Command::Completions { shell } => output::print(shell.script()).map_err(Into::into),
        Command::Complete { words } => {
            let candidates = completions::complete(&Arguments::command(), &words);
            output::print(candidates).map_err(Into::into)
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

/// The exit status after `error`, which is printed in one line.
fn fail(error: &anyhow::Error) -> ExitCode {
    let unprinted = error.downcast_ref::<OutputError>();
    if unprinted.is_some_and(OutputError::is_closed) {
        // The reader had enough, and nothing went wrong: `sheaf show | head -1` succeeds.
        return ExitCode::SUCCESS;
    }
    verbose::print_reasons(error);
    output::warn(format_args!("sheaf: {error:#}"));
    ExitCode::from(if unprinted.is_some() { UNPRINTED } else { REFUSED })
}

/// Help and version as they are; what is wrong in one line, as everywhere else, and with the place
/// where the right words are.
fn refuse(error: &clap::Error) -> ExitCode {
    use ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
    let help = DisplayHelpOnMissingArgumentOrSubcommand;
    if error.kind() == help {
        error.exit();
    }
    if [DisplayHelp, DisplayVersion].contains(&error.kind()) {
        let printed = output::print(error.render());
        return printed.map_or_else(|error| fail(&error.into()), |()| ExitCode::SUCCESS);
    }
    let (said, mut command) = (error.to_string(), Arguments::command());
    let mut help = command.get_name().to_owned();
    for word in std::env::args().skip(1) {
        let Some(inner) = command.find_subcommand(&word) else { break };
        help = format!("{help} {word}");
        command = inner.clone();
    }
    // The message; hints in lines of their own, and the usage, which is longer there, come after
    // it.
    let cause: Vec<_> = said.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
    let cause = cause.join(" ");
    let cause = cause.strip_prefix("error: ").unwrap_or(&cause);
    let similar = said.lines().find_map(|line| line.trim().strip_prefix("tip: a similar "));
    let similar = similar.map_or_else(String::new, |hint| format!("; a similar {hint}"));
    output::warn(format_args!("sheaf: {cause}{similar}; see `{help} --help`"));
    ExitCode::from(REFUSED)
}
