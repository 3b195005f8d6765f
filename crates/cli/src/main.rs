//! `sheaf`: makes weak links carry more.

mod aggregate;
mod control;
mod emulate;
mod grammar;
mod lab;
mod random;
mod rule;
mod show;
mod signals;
mod trunk;
mod window;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Makes weak links carry more: aggregation, trunks, window control, emulated links, a lab.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, after_help = aggregate::HELP)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Gather small packets to the same next hop or far end into one frame, until Ctrl-C
    #[command(after_help = aggregate::HELP)]
    Aggregate {
        /// dev IF peer ADDR …
        #[arg(trailing_var_arg = true, required = true, value_name = "WORDS")]
        words: Vec<String>,
    },
    /// Take meta packets apart on an interface; stays until `off`
    #[command(after_help = aggregate::HELP)]
    Split {
        /// dev IF peer ADDR … | off
        #[arg(trailing_var_arg = true, required = true, value_name = "WORDS")]
        words: Vec<String>,
    },
    /// Make one interface of several links, until Ctrl-C
    #[command(after_help = trunk::HELP)]
    Trunk {
        /// NAME { dev IF peer MAC|ADDR | path LOCAL REMOTE } …
        #[arg(trailing_var_arg = true, value_name = "WORDS")]
        words: Vec<String>,
    },
    /// Lower the TCP windows that pass an interface so that no queue builds, until Ctrl-C
    #[command(after_help = window::HELP)]
    Window {
        /// dev IF capacity RATE …
        #[arg(trailing_var_arg = true, required = true, value_name = "WORDS")]
        words: Vec<String>,
    },
    /// Print statistics per interface, next hop, link and flow
    Show {
        /// dev IF for one interface only
        words: Vec<String>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Emulate a link between two interfaces, on one, or around a shell
    #[command(after_help = emulate::HELP)]
    Emulate {
        /// link | dev | shell | change | show | dist …
        #[arg(trailing_var_arg = true, required = true, allow_hyphen_values = true)]
        #[arg(value_name = "WORDS")]
        words: Vec<String>,
    },
    /// Run experiments: published testbeds, real traffic, reports
    #[command(subcommand)]
    Lab(lab::Command),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Aggregate { words } => aggregate::aggregate(&words),
        Command::Split { words } => aggregate::split(&words),
        Command::Trunk { words } => trunk::trunk(&words),
        Command::Window { words } => window::window(&words),
        Command::Show { words, json } => match words.as_slice() {
            [] => show::show(None, json),
            [dev] => show::show(Some(dev), json),
            [keyword, dev] if keyword == "dev" => show::show(Some(dev), json),
            [word, ..] => Err(grammar::unknown(word, &["dev"])),
        },
        Command::Emulate { words } => match emulate::run(&words) {
            Ok(status) => return status,
            Err(error) => Err(error),
        },
        Command::Lab(command) => lab::run(command),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sheaf: {error:#}");
            ExitCode::from(2)
        }
    }
}
