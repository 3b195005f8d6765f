//! `sheaf metrics`: the figures of all services for monitoring systems.
//!
//! * [`table`]: which figure of a report is which metric; a new metric is one line there;
//! * [`text`]: the two forms of text: OpenMetrics, and Prometheus's older one;
//! * [`listener`]: a small HTTP server.

mod listener;
mod table;
mod text;

use crate::output;
use crate::reports;
use anyhow::{Context, bail};
use std::net::SocketAddr;
use text::Form;

/// The grammar, for `--help`.
pub const HELP: &str = "\
Usage: sheaf metrics [openmetrics|prometheus]    print the figures of all services once
       sheaf metrics listen ADDR:PORT            serve them over HTTP under /metrics

  openmetrics   OpenMetrics 1.0 (default)
  prometheus    Prometheus's text format 0.0.4: for promtool and node_exporter's textfiles
  listen        until Ctrl-C; in either form, as the client asks

Example: sheaf metrics listen 127.0.0.1:9477";

/// Request of a command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The figures once.
    Text(Form),
    /// A listener.
    Listener(SocketAddr),
}

/// Reads the words of a command line.
pub fn parse(words: &[String]) -> anyhow::Result<Wanted> {
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] | ["openmetrics"] => Ok(Wanted::Text(Form::OpenMetrics)),
        ["prometheus"] => Ok(Wanted::Text(Form::Prometheus)),
        ["listen", address] => {
            let address = address.parse().with_context(|| {
                format!("listen {address:?}: give an address and a port, e.g. 127.0.0.1:9477")
            })?;
            Ok(Wanted::Listener(address))
        }
        ["listen", ..] => bail!("listen takes one address; write listen 127.0.0.1:9477"),
        [word, ..] => {
            bail!(crate::words::unknown(word, &["openmetrics", "prometheus", "listen"]))
        }
    }
}

/// `sheaf metrics`.
pub fn metrics(words: &[String]) -> anyhow::Result<()> {
    match parse(words)? {
        Wanted::Text(form) => print(form),
        Wanted::Listener(address) => listener::listen(address),
    }
}

fn print(form: Form) -> anyhow::Result<()> {
    output::print(text::render(&reports::gather()?, form))?;
    Ok(())
}
