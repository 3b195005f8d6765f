//! `sheaf`: makes weak links carry more.

mod lab;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Makes weak links carry more: packet aggregation, and the lab that proves it.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run experiments: published testbeds, real traffic, reports
    #[command(subcommand)]
    Lab(lab::Command),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
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
