//! The socket of a service.
//!
//! It belongs to a loop that carries packets, so it never waits, and what others can make it do in
//! one turn is bounded: one connection is accepted, at most sixteen are open, each has one request
//! and five seconds.

use super::ServiceName;
use super::message::Response;
use super::{DEADLINE, Error, REQUEST_LIMIT, RESPONSE_LIMIT, Request, SHORTEST_PERIOD};
use crate::run_directory::{self, LOCK, Reserved};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use serde_json::Value;
use sheaf_stage::{Duration, Instant};
use std::collections::VecDeque;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::symlink;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Most connections at a time.
const CONNECTIONS: usize = 16;
/// Time between two accepts: a process that connects in a loop gets at most a hundredth of this
/// thread's time, as an accept and a report cost about 20 µs.
const ACCEPT_PERIOD: Duration = Duration::from_millis(2);
/// Events taken in one turn.
const EVENTS: usize = CONNECTIONS + 1;
/// The listener's key among the events; connections count from 1.
const LISTENER: u64 = 0;

/// Names the connection that a request came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u64);

/// The control socket of one service.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    epoll: Epoll,
    connections: Vec<Connection>,
    requests: VecDeque<(Ticket, Request)>,
    last_key: u64,
    /// The next connection is not accepted before.
    accept_from: Instant,
    /// Whether the listener's events are switched on.
    listening: bool,
    /// Removed when the service ends: socket, links to it, locks.
    files: Vec<PathBuf>,
    locks: Vec<(PathBuf, File)>,
    directory: PathBuf,
}

#[derive(Debug)]
struct Connection {
    key: u64,
    stream: UnixStream,
    input: Vec<u8>,
    output: Vec<u8>,
    sent: usize,
    state: State,
    /// The present request or response is over by then.
    deadline: Instant,
    watch: Option<Period>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The request is not complete.
    Reading,
    /// The service has the request.
    Asked,
    /// The response is on its way.
    Writing,
    /// The next report of a watch is not due.
    Waiting,
    /// To be dropped.
    Done,
}

#[derive(Clone, Copy, Debug)]
struct Period {
    every: Duration,
    next: Instant,
}

impl Server {
    /// Makes the socket of service `name`, which also goes by the `aliases`. Returns
    /// [`Error::Taken`] where another process has one of the names.
    pub fn bind(name: &ServiceName, aliases: &[ServiceName]) -> Result<Server, Error> {
        let reserved = run_directory::reserve();
        Server::bind_in(reserved.map_err(Error::io("no control socket"))?, name, aliases)
    }

    pub(super) fn bind_in(
        reserved: Reserved,
        name: &ServiceName,
        aliases: &[ServiceName],
    ) -> Result<Server, Error> {
        let directory = reserved.path.clone();
        let mut locks = Vec::new();
        for name in [name].into_iter().chain(aliases) {
            let path = directory.join(name.file(LOCK));
            let what = format!("cannot lock {}", path.display());
            let file = File::options().create(true).truncate(false).write(true).open(&path);
            let file = file.map_err(Error::io(what.clone()))?;
            match file.try_lock() {
                Ok(()) => locks.push((path, file)),
                Err(TryLockError::WouldBlock) => return Err(Error::Taken(name.clone())),
                Err(TryLockError::Error(error)) => return Err(Error::io(what)(error)),
            }
        }
        let mut files = Vec::new();
        let what = format!("cannot make the control socket of {name}");
        let made = make_socket(&directory, name, aliases, &mut files);
        let (listener, epoll) = made.map_err(Error::io(what))?;
        Ok(Server {
            listener,
            epoll,
            connections: Vec::with_capacity(CONNECTIONS),
            requests: VecDeque::new(),
            last_key: LISTENER,
            accept_from: Instant::ZERO,
            listening: true,
            files,
            locks,
            directory,
        })
    }

    /// Time at which [`Server::turn`] is to be called though nothing is readable.
    pub fn next_deadline(&self) -> Option<Instant> {
        let accept =
            (!self.listening && self.connections.len() < CONNECTIONS).then_some(self.accept_from);
        let connections = self.connections.iter().map(Connection::next_deadline);
        connections.chain(accept).min()
    }

    /// Accepts at most one connection, reads and writes what is possible without waiting, and
    /// drops who is late. Call it when the server is readable or its deadline has come, and take
    /// the requests afterwards.
    pub fn turn(&mut self, now: Instant) {
        let mut events = [EpollEvent::empty(); EVENTS];
        let count = self.epoll.wait(&mut events, 0u8).unwrap_or(0);
        for event in &events[..count] {
            match event.data() {
                LISTENER => self.accept(now),
                key => self.advance(key, event.events()),
            }
        }
        for connection in &mut self.connections {
            connection.check_time(now);
            if connection.is_due(now) {
                self.requests.push_back((Ticket(connection.key), Request::Report {}));
                connection.state = State::Asked;
            }
        }
        self.settle(now);
    }

    /// The next request that is complete.
    pub fn next_request(&mut self) -> Option<(Ticket, Request)> {
        self.requests.pop_front()
    }

    /// Sends the response to a request; an `Err` is its refusal in words.
    pub fn respond(&mut self, ticket: Ticket, response: Result<Value, String>, now: Instant) {
        let Some(connection) = self.connections.iter_mut().find(|one| one.key == ticket.0) else {
            return;
        };
        connection.respond(response, now);
        self.settle(now);
    }

    /// Number of open connections.
    #[cfg(test)]
    pub(super) fn connections(&self) -> usize {
        self.connections.len()
    }

    fn accept(&mut self, now: Instant) {
        if now < self.accept_from || self.connections.len() >= CONNECTIONS {
            return;
        }
        self.accept_from = now + ACCEPT_PERIOD;
        let Ok((stream, _)) = self.listener.accept() else { return };
        let user = getsockopt(&stream, PeerCredentials).map(|credentials| credentials.uid());
        let allowed = |user| user == 0 || user == nix::unistd::geteuid().as_raw();
        if !user.is_ok_and(allowed) || stream.set_nonblocking(true).is_err() {
            return;
        }
        self.last_key += 1;
        let event = EpollEvent::new(EpollFlags::EPOLLIN, self.last_key);
        if self.epoll.add(&stream, event).is_ok() {
            let connection = Connection::new(self.last_key, stream, now + DEADLINE);
            self.connections.push(connection);
        }
    }

    fn advance(&mut self, key: u64, events: EpollFlags) {
        let Some(connection) = self.connections.iter_mut().find(|one| one.key == key) else {
            return;
        };
        if events.contains(EpollFlags::EPOLLOUT) {
            connection.write();
        } else if let Some(request) = connection.read() {
            self.requests.push_back((Ticket(key), request));
        }
    }

    /// Drops what is done, and waits for what the others need.
    fn settle(&mut self, now: Instant) {
        let epoll = &self.epoll;
        self.connections.retain_mut(|connection| {
            let done = connection.state == State::Done;
            if done {
                let _ = epoll.delete(&connection.stream);
            } else {
                let mut event = EpollEvent::new(connection.interest(), connection.key);
                let _ = epoll.modify(&connection.stream, &mut event);
            }
            !done
        });
        let listening = self.connections.len() < CONNECTIONS && now >= self.accept_from;
        if listening != self.listening {
            let events = if listening { EpollFlags::EPOLLIN } else { EpollFlags::empty() };
            let mut event = EpollEvent::new(events, LISTENER);
            if self.epoll.modify(&self.listener, &mut event).is_ok() {
                self.listening = listening;
            }
        }
    }
}

/// Makes the socket and the links of the aliases, replacing those of a process that was killed:
/// the caller holds the locks of all names.
fn make_socket(
    directory: &Path,
    name: &ServiceName,
    aliases: &[ServiceName],
    files: &mut Vec<PathBuf>,
) -> io::Result<(UnixListener, Epoll)> {
    let socket = name.file("sock");
    let path = directory.join(&socket);
    for name in [name].into_iter().chain(aliases) {
        let path = directory.join(name.file("sock"));
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => files.push(path),
        }
    }
    let listener = UnixListener::bind(&path)?;
    listener.set_nonblocking(true)?;
    for alias in aliases {
        symlink(&socket, directory.join(alias.file("sock")))?;
    }
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
    Ok((listener, epoll))
}

impl AsFd for Server {
    /// Readable when there is something to do.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The locks go last and while they are held: who opens one of these files later finds the
        // name free, and one that was removed is made anew under the lock of the base directory.
        let base = self.directory.parent().and_then(|base| File::open(base).ok());
        let _locked = base.inspect(|base| drop(base.lock()));
        for path in self.files.iter().chain(self.locks.iter().map(|(path, _)| path)) {
            let _ = fs::remove_file(path);
        }
        // Fails while other services of the namespace run.
        let _ = fs::remove_dir(&self.directory);
    }
}

impl Connection {
    fn new(key: u64, stream: UnixStream, deadline: Instant) -> Connection {
        Connection {
            key,
            stream,
            input: Vec::new(),
            output: Vec::new(),
            sent: 0,
            state: State::Reading,
            deadline,
            watch: None,
        }
    }

    fn interest(&self) -> EpollFlags {
        match self.state {
            State::Reading | State::Waiting => EpollFlags::EPOLLIN,
            State::Writing => EpollFlags::EPOLLOUT,
            // What a client sends meanwhile would be readable in every turn.
            State::Asked | State::Done => EpollFlags::empty(),
        }
    }

    fn next_deadline(&self) -> Instant {
        match (self.state, self.watch) {
            (State::Waiting, Some(watch)) => watch.next,
            _ => self.deadline,
        }
    }

    fn check_time(&mut self, now: Instant) {
        if self.state != State::Waiting && now >= self.deadline {
            self.state = State::Done;
        }
    }

    /// Whether the next report of a watch is due.
    fn is_due(&self, now: Instant) -> bool {
        self.state == State::Waiting && self.watch.is_some_and(|watch| now >= watch.next)
    }

    /// Reads once; returns the request where it is complete.
    fn read(&mut self) -> Option<Request> {
        let mut piece = [0; 4096];
        match self.stream.read(&mut piece) {
            Ok(len) if len > 0 && self.state == State::Reading => {
                self.input.extend_from_slice(&piece[..len]);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            // The end, an error, or more than one request.
            _ => {
                self.state = State::Done;
                return None;
            }
        }
        let Some(end) = self.input.iter().position(|byte| *byte == b'\n') else {
            if self.input.len() > REQUEST_LIMIT {
                self.send(&Response::Error("the request is too long".to_owned()));
            }
            return None;
        };
        match serde_json::from_slice(&self.input[..end]) {
            Ok(request) => {
                self.state = State::Asked;
                self.input = Vec::new();
                if let Request::Watch { every_ms } = request {
                    let every = Duration::from_millis(every_ms).max(SHORTEST_PERIOD);
                    self.watch = Some(Period { every, next: self.deadline - DEADLINE });
                }
                Some(request)
            }
            Err(error) => {
                self.send(&Response::Error(format!("the request is not valid: {error}")));
                None
            }
        }
    }

    fn respond(&mut self, response: Result<Value, String>, now: Instant) {
        if let Some(watch) = &mut self.watch {
            // A report that was late is followed by a whole period.
            watch.next = (watch.next + watch.every).max(now + watch.every / 2);
        }
        self.deadline = now + DEADLINE;
        let one_line = |message: String| message.replace('\n', "; ");
        self.send(&match response {
            Ok(value) => Response::Ok(value),
            Err(message) => Response::Error(one_line(message)),
        });
    }

    fn send(&mut self, response: &Response) {
        let mut line = serde_json::to_vec(response).expect("a value is valid JSON");
        if line.len() > RESPONSE_LIMIT {
            let error = Response::Error("the response is too long".to_owned());
            line = serde_json::to_vec(&error).expect("a text is valid JSON");
        }
        line.push(b'\n');
        (self.output, self.sent, self.state) = (line, 0, State::Writing);
        self.write();
    }

    /// Writes what the socket takes.
    fn write(&mut self) {
        while self.sent < self.output.len() {
            match self.stream.write(&self.output[self.sent..]) {
                Ok(len) => self.sent += len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.state = State::Done;
                    return;
                }
            }
        }
        self.output = Vec::new();
        self.state = if self.watch.is_some() { State::Waiting } else { State::Done };
    }
}
