//! The side that asks.

use super::message::{Response, escape, escape_all};
use super::{DEADLINE, Error, RESPONSE_LIMIT, Request, ServiceName};
use crate::run_directory;
use nix::errno::Errno;
use nix::sys::socket::sockopt::{PeerCredentials, SendTimeout};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, setsockopt, socket,
};
use nix::sys::time::{TimeVal, TimeValLike};
use serde_json::Value;
use sheaf_netio::clock;
use sheaf_stage::{Duration, Instant};
use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Time that a watch waits for a line beyond its period.
const WATCH_GRACE: Duration = DEADLINE;

/// Services that run in this thread's network namespace, in order of their kinds and names. What
/// killed services left in the run directory is removed.
pub fn services() -> io::Result<Vec<ServiceName>> {
    run_directory::sweep();
    let mut found = BTreeSet::new();
    for directory in run_directory::find()? {
        found.extend(services_in(&directory)?);
    }
    Ok(found.into_iter().collect())
}

pub(super) fn services_in(directory: &Path) -> io::Result<Vec<ServiceName>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        // A second name of a service is a symbolic link, and not another service.
        if !entry.file_type().is_ok_and(|kind| kind.is_socket()) {
            continue;
        }
        let name = entry.file_name().to_str().and_then(ServiceName::of_socket);
        if let Some(name) = name
            && is_alive(&entry.path())
        {
            found.push(name);
        }
    }
    found.sort();
    Ok(found)
}

/// Whether a process holds the socket: that of one that was killed is still there. A service that
/// hangs is alive, so this does not wait for it to accept.
fn is_alive(path: &Path) -> bool {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let tried = UnixAddr::new(path).and_then(|address| {
        let stream = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
        connect(stream.as_raw_fd(), &address)
    });
    !matches!(tried, Err(Errno::ECONNREFUSED | Errno::ENOENT))
}

/// Sends `request` to a service of this thread's network namespace; returns its response. Strings
/// in the response contain no control characters.
pub fn ask(name: &ServiceName, request: &Request) -> Result<Value, Error> {
    ask_within(name, request, DEADLINE)
}

/// As [`ask`], with another time for the whole response.
pub fn ask_within(name: &ServiceName, request: &Request, time: Duration) -> Result<Value, Error> {
    ask_until(open(name)?, name, request, clock::now() + time)
}

fn ask_until(
    directories: Directories,
    name: &ServiceName,
    request: &Request,
    deadline: Instant,
) -> Result<Value, Error> {
    let mut stream = connect_in(&directories, name, deadline)?;
    send(&mut stream, name, request, deadline)?;
    let mut lines = Lines { stream, buffer: Vec::new(), name: name.clone() };
    lines.next(deadline)
}

/// Asks in `directory` alone.
#[cfg(test)]
pub(super) fn ask_in(
    directory: &Path,
    name: &ServiceName,
    request: &Request,
    time: Duration,
) -> Result<Value, Error> {
    ask_until(vec![directory.to_owned()], name, request, clock::now() + time)
}

/// Begins a watch in `directory` alone.
#[cfg(test)]
pub(super) fn watch_in(
    directory: &Path,
    name: &ServiceName,
    every: Duration,
) -> Result<Watch, Error> {
    watch_from(vec![directory.to_owned()], name, every)
}

/// Asks a service for a report now and once a period.
pub fn watch(name: &ServiceName, every: Duration) -> Result<Watch, Error> {
    watch_from(open(name)?, name, every)
}

fn watch_from(
    directories: Directories,
    name: &ServiceName,
    every: Duration,
) -> Result<Watch, Error> {
    let deadline = clock::now() + DEADLINE;
    let mut stream = connect_in(&directories, name, deadline)?;
    let every_ms = u64::try_from(every.as_millis()).unwrap_or(u64::MAX);
    send(&mut stream, name, &Request::Watch { every_ms }, deadline)?;
    Ok(Watch { lines: Lines { stream, buffer: Vec::new(), name: name.clone() }, every })
}

/// Reports of a service, one a period. It ends with an error.
#[derive(Debug)]
pub struct Watch {
    lines: Lines,
    every: Duration,
}

impl Iterator for Watch {
    type Item = Result<Value, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.lines.next(clock::now() + self.every + WATCH_GRACE))
    }
}

type Directories = Vec<std::path::PathBuf>;

fn open(name: &ServiceName) -> Result<Directories, Error> {
    let what = format!("cannot look for {name}; run as root, or as the user who started it");
    run_directory::find().map_err(Error::io(what))
}

fn connect_in(
    directories: &Directories,
    name: &ServiceName,
    deadline: Instant,
) -> Result<UnixStream, Error> {
    for directory in directories {
        let stream = match dial(&directory.join(name.file("sock")), deadline) {
            Ok(stream) => stream,
            Err(error) => match error.kind() {
                // Never there, or left by a process that was killed.
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => continue,
                io::ErrorKind::WouldBlock => return Err(Error::TimedOut(name.clone())),
                _ => return Err(Error::io(format!("cannot reach {name}"))(error)),
            },
        };
        let credentials = getsockopt(&stream, PeerCredentials).map_err(io::Error::from);
        let user = credentials.map_err(Error::io(format!("cannot identify {name}")))?.uid();
        if user != 0 && user != nix::unistd::geteuid().as_raw() {
            return Err(Error::Untrusted { name: name.clone(), user });
        }
        return Ok(stream);
    }
    Err(Error::NotRunning(name.clone()))
}

/// Connects by `deadline`: a service that accepts nothing has a full backlog, and connect(2)
/// waits for it as long as SO_SNDTIMEO allows.
fn dial(path: &Path, deadline: Instant) -> io::Result<UnixStream> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let stream = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    let left = remaining(deadline)?;
    let micros = i64::try_from(left.as_micros()).unwrap_or(i64::MAX);
    setsockopt(&stream, SendTimeout, &TimeVal::microseconds(micros.max(1)))?;
    connect(stream.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(stream.into())
}

fn send(
    stream: &mut UnixStream,
    name: &ServiceName,
    request: &Request,
    deadline: Instant,
) -> Result<(), Error> {
    let mut line = serde_json::to_vec(request).expect("a request is valid JSON");
    line.push(b'\n');
    let sent = remaining(deadline)
        .and_then(|left| stream.set_write_timeout(Some(left)))
        .and_then(|()| stream.write_all(&line));
    sent.map_err(|error| failure(name, error))
}

fn failure(name: &ServiceName, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Error::TimedOut(name.clone()),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
            Error::Refused(format!("{name} ended the connection"))
        }
        _ => Error::io(format!("cannot ask {name}"))(error),
    }
}

/// Time until `deadline`; an error where none is left, because a timeout of zero means none.
fn remaining(deadline: Instant) -> io::Result<Duration> {
    match deadline.saturating_since(clock::now()) {
        left if left.is_zero() => Err(io::ErrorKind::TimedOut.into()),
        left => Ok(left),
    }
}

#[derive(Debug)]
struct Lines {
    stream: UnixStream,
    buffer: Vec<u8>,
    name: ServiceName,
}

impl Lines {
    /// The next response, whole by `deadline`: a timeout for each read would let a service that
    /// sends a byte now and then hold the client for ever.
    fn next(&mut self, deadline: Instant) -> Result<Value, Error> {
        let mut searched = 0;
        loop {
            if let Some(at) = self.buffer[searched..].iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=searched + at).collect();
                return self.parse(&line);
            }
            searched = self.buffer.len();
            if searched > RESPONSE_LIMIT {
                return Err(Error::Malformed(self.name.clone()));
            }
            let mut piece = [0; 16 << 10];
            let read = remaining(deadline)
                .and_then(|left| self.stream.set_read_timeout(Some(left)))
                .and_then(|()| self.stream.read(&mut piece));
            match read {
                Ok(0) => return Err(Error::Refused(format!("{} ended the connection", self.name))),
                Ok(len) => self.buffer.extend_from_slice(&piece[..len]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failure(&self.name, error)),
            }
        }
    }

    fn parse(&self, line: &[u8]) -> Result<Value, Error> {
        match serde_json::from_slice(line) {
            Ok(Response::Ok(mut value)) => {
                escape_all(&mut value);
                Ok(value)
            }
            Ok(Response::Error(message)) => Err(Error::Refused(escape(&message))),
            Err(_) => Err(Error::Malformed(self.name.clone())),
        }
    }
}
