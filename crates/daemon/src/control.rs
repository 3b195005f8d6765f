//! Control sockets: how a running service is asked, changed and stopped.
//!
//! Each service has one Unix stream socket in the [run directory](crate::run_directory), named
//! after its kind and its interface. A request is one line of JSON, a response another
//! (`message`). Neither side trusts the other before the kernel has named its user: the server
//! takes requests from root and its own user only, and the client believes only them.
//!
//! * `server`: the socket of a service, for a loop that must not wait;
//! * `client`: requests with a deadline for the whole response;
//! * `message`: requests, responses and names.

mod client;
mod message;
mod server;

pub use client::{Watch, ask, ask_within, services, watch};
pub use message::{Kind, Request, ServiceName, escape};
pub use server::{Server, Ticket};

use sheaf_stage::Duration;
use std::io;

/// Longest request in bytes: words of a command line, which the kernel bounds by 128 KiB each.
pub const REQUEST_LIMIT: usize = 64 << 10;
/// Longest response in bytes: a report of window control with all its flows has 100 KiB.
pub const RESPONSE_LIMIT: usize = 1 << 20;
/// Time for a request and its whole response.
pub const DEADLINE: Duration = Duration::from_secs(5);
/// Shortest period of a watch: a report costs a service up to a millisecond.
pub const SHORTEST_PERIOD: Duration = Duration::from_millis(100);

/// Reason why a control socket could not be made, or a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No service of this name runs.
    #[error("{0} does not run here")]
    NotRunning(ServiceName),
    /// A service of this name runs already.
    #[error("{0} runs already; stop it first")]
    Taken(ServiceName),
    /// The service belongs to somebody else.
    #[error("the socket of {name} belongs to user {user}, not to root or to you; remove it")]
    Untrusted {
        /// Its name.
        name: ServiceName,
        /// The user that its process runs as.
        user: u32,
    },
    /// The response did not arrive in time.
    #[error("{0} did not respond in time; see whether it hangs, or restart it")]
    TimedOut(ServiceName),
    /// The response is not one.
    #[error("{0} sent a response that is not valid")]
    Malformed(ServiceName),
    /// The service refused, with its reason.
    #[error("{0}")]
    Refused(String),
    /// The name cannot be that of an interface.
    #[error("{0:?} is not the name of an interface")]
    Name(String),
    /// The socket or its directory cannot be used.
    #[error("{what}: {reason}")]
    Io {
        /// Step that failed.
        what: String,
        /// Error of the system. It is no source: who prints all causes would print it twice.
        reason: io::Error,
    },
}

impl Error {
    fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let what = what.into();
        move |reason| Error::Io { what, reason }
    }
}

#[cfg(test)]
mod tests;
