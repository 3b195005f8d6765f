//! A session over TCP: the client and the server of its connections, as one node.
//!
//! Each connection has a client address of its own, by which its two hosts are found. The server
//! answers a request once it has all of it; data is zeros, so what was asked for is kept here.

use super::address::{Map, direction, server, session_client};
use crate::home::sessions::{Kind, Load, Session, note};
use sheaf_sim::Outbox;
use sheaf_stage::{Duration, Instant};
use sheaf_tcp::{Config, Host};
use sheaf_window::Direction;
use sheaf_wire::flow::mix;

/// A session with both of its ends.
pub(super) struct Loader {
    session: Session,
    /// Number of the session.
    number: u8,
    config: Config,
    seed: u64,
    map: Map,
    /// No load begins from then on.
    end: Instant,
    /// Connections of this load, and of the last one until the next begins.
    connections: Vec<Connection>,
    /// Connections that were opened so far.
    opened: u16,
    state: State,
    /// Ends of loads, and the times they took.
    ended: Vec<(Instant, Duration)>,
}

/// The place in a session.
enum State {
    /// The next load begins at this time.
    Pause(Instant),
    /// A load that began then; so many of its answers were asked for, and are there.
    Loading { load: Load, begun: Instant, asked: usize, complete: usize },
}

/// A connection, and the request on it.
struct Connection {
    id: u16,
    client: Host,
    server: Host,
    /// Bytes that the server has when it has the last request, and the client with its answer.
    requested: u64,
    expected: u64,
    /// Answer that the server has not begun.
    owed: Option<u32>,
    /// The client waits for an answer.
    is_busy: bool,
}

impl Connection {
    /// Asks for `answer` bytes by a request of `request`.
    fn ask(&mut self, request: u32, answer: u32) {
        self.requested += u64::from(request);
        self.expected += u64::from(answer);
        self.owed = Some(answer);
        self.is_busy = true;
        self.client.write(0, u64::from(request));
    }

    /// Writes the answer where the request has arrived. Returns whether an answer is now complete.
    fn advance(&mut self) -> bool {
        if self.server.received(0) >= self.requested
            && let Some(answer) = self.owed.take()
        {
            self.server.write(0, u64::from(answer));
        }
        let is_complete = self.is_busy && self.client.received(0) >= self.expected;
        self.is_busy &= !is_complete;
        is_complete
    }

    fn next_deadline(&self) -> Option<Instant> {
        let hosts = [self.client.next_deadline(), self.server.next_deadline()];
        hosts.into_iter().flatten().min()
    }
}

impl Loader {
    /// Session `number`, whose hosts have the TCP of `config`, until `end`.
    pub fn new(
        session: Session,
        number: u8,
        config: Config,
        seed: u64,
        end: Instant,
        map: Map,
    ) -> Loader {
        Loader {
            state: State::Pause(session.start),
            session,
            number,
            config,
            seed: mix(mix(seed) ^ mix(u64::from(number))),
            map,
            end,
            connections: Vec::new(),
            opened: 0,
            ended: Vec::new(),
        }
    }

    /// The kind of the session, and its loads that ended.
    pub fn loads(&self) -> (Kind, Vec<(Instant, Duration)>) {
        (self.session.kind, self.ended.clone())
    }

    /// A packet for one of the hosts.
    pub fn receive(&mut self, packet: Vec<u8>, now: Instant, out: &mut Outbox<Vec<u8>>) {
        let is_for_client = direction(&packet) == Direction::In;
        let inside = if is_for_client { &packet[16..20] } else { &packet[12..16] };
        let id = u16::from_be_bytes([inside[2], inside[3]]);
        // Packets of an earlier page find no connection.
        let found = self.connections.iter_mut().find(|connection| connection.id == id);
        if let Some(connection) = found {
            let host = if is_for_client { &mut connection.client } else { &mut connection.server };
            // Links damage no packet, so none is refused but for what it repeats.
            let _ = host.enqueue(packet, now);
        }
        self.drain(now, out);
    }

    /// Does what is due at `now`, and sends what leaves.
    pub fn drain(&mut self, now: Instant, out: &mut Outbox<Vec<u8>>) {
        self.begin(now);
        self.advance(now);
        for connection in &mut self.connections {
            for host in [&mut connection.client, &mut connection.server] {
                while let Some(packet) = host.dequeue(now) {
                    out.send(self.map.leave(&packet), packet);
                }
            }
        }
    }

    /// Begins the next load where it is time.
    fn begin(&mut self, now: Instant) {
        if !matches!(self.state, State::Pause(at) if at <= now && at < self.end) {
            return;
        }
        if !self.session.keeps_connection() {
            self.connections.clear();
        }
        let load = self.session.next_load();
        self.state = State::Loading { load, begun: now, asked: 0, complete: 0 };
    }

    /// Takes answers that are complete, asks for what comes next, and ends the load.
    fn advance(&mut self, now: Instant) {
        let newly =
            self.connections.iter_mut().filter_map(|one| one.advance().then_some(())).count();
        let State::Loading { load, begun, asked, complete } = &mut self.state else { return };
        *complete += newly;
        if *complete == load.answers.len() {
            note(&mut self.ended, *begun, now);
            self.state = State::Pause(now + load.pause);
            if !self.session.keeps_connection() {
                for connection in &mut self.connections {
                    connection.client.close(0);
                    connection.server.close(0);
                }
            }
            return;
        }
        // The first object says which others there are.
        let most = if *complete == 0 { 1 } else { load.answers.len() };
        while *asked < most {
            let free = self.connections.iter().position(|connection| !connection.is_busy);
            let at = match free {
                Some(at) => at,
                None if self.connections.len() < self.session.parallel => {
                    let id = self.opened;
                    self.opened = self.opened.wrapping_add(1);
                    self.connections.push(open(self.number, id, self.config, self.seed));
                    self.connections.len() - 1
                }
                None => break,
            };
            self.connections[at].ask(self.session.request, load.answers[*asked]);
            *asked += 1;
        }
    }

    /// Next time at which something is due.
    pub fn next_deadline(&self) -> Option<Instant> {
        let begins = match &self.state {
            State::Pause(at) => Some(*at).filter(|at| *at < self.end),
            State::Loading { .. } => None,
        };
        self.connections.iter().filter_map(Connection::next_deadline).chain(begins).min()
    }
}

/// Connection `id` of session `number`, which the client opens now.
fn open(number: u8, id: u16, config: Config, seed: u64) -> Connection {
    let (inside, outside) = (session_client(number, id), server(0));
    let seed = mix(seed ^ u64::from(id));
    let mut one = Connection {
        id,
        client: Host::fetcher(config, inside, outside, 1, seed),
        server: Host::server(config, outside, 1, seed),
        requested: 0,
        expected: 0,
        owed: None,
        is_busy: false,
    };
    // The server has nothing until it is asked.
    one.server.write(0, 0);
    one
}
