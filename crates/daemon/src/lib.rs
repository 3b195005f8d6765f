//! The services at work: processes that run until they are stopped, and how they are controlled.
//!
//! * [`control`]: the control sockets, server side and client side;
//! * [`run_directory`]: where these sockets are;
//! * [`service`]: the [`Service`] trait;
//! * [`reactor`]: runs one service with its signals, its control socket and its watchdog.

#![forbid(unsafe_code)]

pub mod aggregate;
pub mod control;
pub mod emulate;
pub mod reactor;
pub mod report;
pub mod run_directory;
pub mod service;
pub mod trunk;
pub mod window;

pub use control::{Kind, Request, ServiceName};
pub use service::{Next, Service, Stop};

use std::io::{self, Write};

/// Says something on standard output, to whoever reads it. Nobody has to: an output that is full
/// or closed stops no service.
pub fn say(text: &str) {
    let _ = writeln!(io::stdout(), "{}", text.trim_end());
}

/// Puts `advice` in the place of an error which says that the service runs already.
fn already(error: anyhow::Error, advice: String) -> anyhow::Error {
    match error.downcast_ref() {
        Some(control::Error::Taken(_)) => anyhow::Error::msg(advice),
        _ => error,
    }
}
