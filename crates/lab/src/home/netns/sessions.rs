//! Sessions over Linux TCP: a client that loads, and a server that answers.
//!
//! A request begins with the bytes of its own and of its answer, so the server needs to know no
//! more. Connections send at once what is written (no Nagle's algorithm), as browsers' do.

use super::testbed::{Testbed, server};
use crate::home::plan::{Scenario, Times};
use crate::home::sessions::{Kind, Loads, Session, note};
use crate::realtime::wait_until;
use anyhow::Context;
use sheaf_netio::clock;
use sheaf_netio::netns::Namespace;
use sheaf_stage::{Duration, Instant};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Port of the server.
const PORT: u16 = 8080;
/// Bytes at the beginning of a request: its length and that of its answer.
const PREFIX: usize = 8;
/// Bytes that are written or read at a time.
const CHUNK: usize = 16_384;
/// Time beyond the run for which a connection waits for its other end: more than the round trip and
/// the queue of any scenario, so that no thread holds a home that is gone.
const GRACE: Duration = Duration::from_secs(5);

/// Ends of a session's loads, and the times they took.
type Ended = Arc<Mutex<Vec<(Instant, Duration)>>>;

/// A session at work.
struct Client {
    kind: Kind,
    ended: Ended,
    thread: JoinHandle<io::Result<()>>,
}

/// All sessions of a scenario, until [`Sessions::stop`].
pub struct Sessions {
    listener: TcpListener,
    server: JoinHandle<()>,
    clients: Vec<Client>,
}

impl Sessions {
    /// Begins all sessions, at `times` and with the loads of `seed`.
    pub fn start(
        testbed: &Testbed,
        scenario: &Scenario,
        times: &Times,
        seed: u64,
    ) -> anyhow::Result<Sessions> {
        let listener = testbed.server.run(|| TcpListener::bind(("0.0.0.0", PORT)))?;
        // Connections inherit it.
        scenario.congestion.set(&listener)?;
        let accepting = listener.try_clone()?;
        let until = times.until;
        let server = std::thread::spawn(move || serve(&accepting, until));
        let mut clients = Vec::new();
        for session in Session::all(scenario, times, seed) {
            let (kind, ended) = (session.kind, Ended::default());
            let (home, noted) = (testbed.client.try_clone()?, ended.clone());
            let thread = std::thread::spawn(move || run(session, &home, until, &noted));
            clients.push(Client { kind, ended, thread });
        }
        Ok(Sessions { listener, server, clients })
    }

    /// Loads that ended so far; the server takes no more connections. One that has not ended is not
    /// waited for; its thread ends with its connections.
    ///
    /// # Errors
    /// That of a session that failed.
    pub fn stop(self) -> anyhow::Result<Loads> {
        // Wakes the server, which waits for a connection.
        nix::sys::socket::shutdown(self.listener.as_raw_fd(), nix::sys::socket::Shutdown::Both)?;
        self.server.join().ok().context("the server of pages panicked")?;
        let mut loads = Vec::new();
        for Client { kind, ended, thread } in self.clients {
            if thread.is_finished() {
                let result = thread.join().ok().context("a client of pages panicked")?;
                result.context("a client could not load a page or an answer")?;
            }
            loads.push((kind, ended.lock().expect("a push does not panic").clone()));
        }
        Ok(Loads::new(loads))
    }
}

/// Answers on all connections until the listener is shut down.
fn serve(listener: &TcpListener, until: Instant) {
    while let Ok((connection, _)) = listener.accept() {
        // It ends with its connection.
        std::thread::spawn(move || answer_all(ready(connection, until)?));
    }
}

/// The `connection`, which sends at once what is written, and waits in vain no longer than `until`
/// and a grace.
fn ready(connection: TcpStream, until: Instant) -> io::Result<TcpStream> {
    connection.set_nodelay(true)?;
    let patience = Some(until - clock::now() + GRACE);
    connection.set_read_timeout(patience)?;
    connection.set_write_timeout(patience)?;
    Ok(connection)
}

/// Answers all requests on `connection`, until the client closes it.
fn answer_all(mut connection: TcpStream) -> io::Result<()> {
    let mut prefix = [0; PREFIX];
    loop {
        connection.read_exact(&mut prefix)?;
        let [request, answer] = lengths(prefix);
        skip(&mut connection, (request as usize).saturating_sub(PREFIX))?;
        let mut left = answer as usize;
        while left > 0 {
            let part = left.min(CHUNK);
            connection.write_all(&[0; CHUNK][..part])?;
            left -= part;
        }
    }
}

/// Lengths of a request and of its answer, as its first bytes say them.
fn lengths(prefix: [u8; PREFIX]) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = prefix;
    [u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])]
}

/// A request of `request` bytes for `answer` bytes.
fn request(request: u32, answer: u32) -> Vec<u8> {
    let mut bytes = [request.to_be_bytes(), answer.to_be_bytes()].concat();
    bytes.resize((request as usize).max(PREFIX), 0);
    bytes
}

/// Reads `bytes` bytes.
fn skip(connection: &mut TcpStream, bytes: usize) -> io::Result<()> {
    let mut buffer = [0; CHUNK];
    let mut left = bytes;
    while left > 0 {
        let part = left.min(CHUNK);
        connection.read_exact(&mut buffer[..part])?;
        left -= part;
    }
    Ok(())
}

/// Loads until `until`, or until the home is gone.
fn run(mut session: Session, home: &Namespace, until: Instant, ended: &Ended) -> io::Result<()> {
    let mut kept = None;
    let mut next = session.start;
    while next < until {
        wait_until(next)?;
        let load = session.next_load();
        let begun = clock::now();
        if session.keeps_connection() {
            let connection = match &mut kept {
                Some(connection) => connection,
                none => none.insert(connect(home, until)?),
            };
            for answer in &load.answers {
                fetch(connection, session.request, *answer)?;
            }
        } else {
            page(home, until, &session, &load.answers)?;
        }
        let now = clock::now();
        note(&mut ended.lock().expect("a push does not panic"), begun, now);
        next = now + load.pause;
    }
    Ok(())
}

/// Loads a page: its first object, then the others on several connections, the first one's
/// included.
fn page(home: &Namespace, until: Instant, session: &Session, answers: &[u32]) -> io::Result<()> {
    let mut connection = connect(home, until)?;
    let Some((first, others)) = answers.split_first() else { return Ok(()) };
    fetch(&mut connection, session.request, *first)?;
    let next = AtomicUsize::new(0);
    let fetch_others = |connection: &mut TcpStream| -> io::Result<()> {
        while let Some(answer) = others.get(next.fetch_add(1, Ordering::Relaxed)) {
            fetch(connection, session.request, *answer)?;
        }
        Ok(())
    };
    let more = session.parallel.min(others.len()).saturating_sub(1);
    std::thread::scope(|scope| {
        let load =
            |_| scope.spawn(|| connect(home, until).and_then(|mut to| fetch_others(&mut to)));
        let loading: Vec<_> = (0..more).map(load).collect();
        let own = fetch_others(&mut connection);
        let all = loading.into_iter().map(|one| one.join().expect("it does not panic"));
        all.fold(own, |result, one| result.and(one))
    })
}

fn connect(home: &Namespace, until: Instant) -> io::Result<TcpStream> {
    ready(home.run(|| TcpStream::connect((server(0).as_str(), PORT)))?, until)
}

/// Sends a request and reads its answer.
fn fetch(connection: &mut TcpStream, bytes: u32, answer: u32) -> io::Result<()> {
    connection.write_all(&request(bytes, answer))?;
    skip(connection, answer as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_says_its_own_length_and_that_of_its_answer() {
        for (own, answer) in [(8, 1), (350, 2_000_000), (1400, 1 << 20)] {
            let bytes = request(own, answer);
            assert_eq!(bytes.len(), own as usize);
            assert_eq!(lengths(bytes[..PREFIX].try_into().unwrap()), [own, answer]);
        }
    }

    #[test]
    fn the_server_answers_request_after_request_with_as_many_bytes_as_were_asked_for() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let server = std::thread::spawn(move || answer_all(accepted));
        for answer in [1, 100_000, 7] {
            fetch(&mut client, 350, answer).unwrap();
        }
        drop(client);
        let end = server.join().unwrap().unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof, "not a byte was left over");
    }
}
