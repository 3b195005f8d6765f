//! The services at work: processes that run until they are stopped, and how they are controlled.
//!
//! * [`control`]: the control sockets, server side and client side;
//! * [`run_directory`]: where these sockets are;
//! * [`service`]: the [`Service`] trait;
//! * [`reactor`]: runs one service with its signals, its control socket and its watchdog.

#![forbid(unsafe_code)]

pub mod aggregate;
pub mod control;
mod descriptors;
pub mod emulate;
pub mod reactor;
pub mod report;
pub mod run_directory;
pub mod service;
pub mod trunk;
pub mod window;

pub use control::{Kind, Request, ServiceName};
pub use service::{Next, Service, Stop};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io;
use std::os::fd::AsFd;

/// Bytes that a pipe takes without a wait once poll(2) has reported it writable: a page (PIPE_BUF,
/// pipe(7)).
const PIECE: usize = 4096;

/// Says something on standard output, to whoever reads it. Nobody has to: an output that is full
/// or closed, or a pipe that nobody empties, stops no service.
pub fn say(text: &str) {
    offer(io::stdout(), format!("{}\n", text.trim_end()).as_bytes());
}

/// Writes as much of `bytes` as `output` takes without a wait. The rest is lost.
pub fn offer(output: impl AsFd, bytes: &[u8]) {
    let mut left = bytes;
    while !left.is_empty() {
        let mut polled = [PollFd::new(output.as_fd(), PollFlags::POLLOUT)];
        if !poll(&mut polled, PollTimeout::ZERO).is_ok_and(|ready| ready > 0) {
            return;
        }
        let piece = &left[..left.len().min(PIECE)];
        match nix::unistd::write(&output, piece) {
            Ok(len) => left = &left[len..],
            Err(nix::errno::Errno::EINTR) => {}
            Err(_) => return,
        }
    }
}

/// Puts `advice` in the place of an error which says that the service runs already.
fn already(error: anyhow::Error, advice: String) -> anyhow::Error {
    match error.downcast_ref() {
        Some(control::Error::Taken(_)) => anyhow::Error::msg(advice),
        _ => error,
    }
}
