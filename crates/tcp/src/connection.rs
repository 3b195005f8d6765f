//! A connection: the handshake, and the two halves joined by segments.

use crate::config::Config;
use crate::random;
use crate::receiver::Receiver;
use crate::refusal::Refusal;
use crate::rtt::{RTO_INITIAL, RTO_MAX};
use crate::segment::{IP_HEADER, Path, STAMPS, Segment, TCP_HEADER};
use crate::sender::{Ack, Sender, Transmission};
use crate::sequence::Numbering;
use sheaf_stage::Instant;

/// SYNs of an opener before its timeout doubles (Linux's tcp_syn_linear_timeouts, and the first);
/// the other end's doubles at once.
const LINEAR: (u32, u32) = (5, 1);
/// Doublings after which it is at its largest.
const MOST_DOUBLINGS: u32 = 7;
/// Segment size of a peer that does not say one (RFC 9293, section 3.7.1).
const DEFAULT_MSS: u16 = 536;
/// Unscaled windows end here.
const MOST_UNSCALED: u32 = u16::MAX as u32;
/// Selective acknowledgements that a segment has room for.
const RANGES: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Listen,
    /// The SYN leaves at its time; it is the answer to another one in `SynReceived`.
    SynSent,
    SynReceived,
    Established,
}

/// A connection, from its first SYN.
#[derive(Debug)]
pub(crate) struct Connection {
    config: Config,
    state: State,
    /// From here to the peer.
    path: Path,
    /// Our numbers, and the peer's.
    own: Numbering,
    peer: Numbering,
    /// Value of the clock of time stamps at the start of time.
    epoch: u32,
    stamps: bool,
    sacks: bool,
    /// Shifts of the window that the peer advertises, and of ours.
    peer_scale: u8,
    scale: u8,
    syns: u32,
    syn_sent: Instant,
    syn_due: Instant,
    /// The answer to our SYN is still to be acknowledged: by a packet without data, as on Linux,
    /// whose application writes only then.
    opens: bool,
    pub sender: Sender,
    pub receiver: Receiver,
}

impl Connection {
    /// A connection that opens `path`.
    pub fn open(config: Config, path: Path, sends: bool, seed: u64) -> Connection {
        Connection { state: State::SynSent, ..Connection::listen(config, path, sends, seed) }
    }

    /// A connection that waits at `path`'s source for a peer.
    pub fn listen(config: Config, path: Path, sends: bool, seed: u64) -> Connection {
        let first = random::next(seed);
        let mut scale = 0;
        while config.receive_window >> scale > MOST_UNSCALED {
            scale += 1;
        }
        Connection {
            config,
            state: State::Listen,
            path,
            own: Numbering { first: first as u32 },
            peer: Numbering::default(),
            epoch: (first >> 32) as u32,
            stamps: true,
            sacks: true,
            peer_scale: 0,
            scale,
            syns: 0,
            syn_sent: Instant::ZERO,
            syn_due: Instant::ZERO,
            opens: false,
            sender: Sender::new(&config, sends, random::next(first)),
            receiver: Receiver::new(config.receive_window, 0),
        }
    }

    /// The clock of time stamps: milliseconds, as on Linux.
    fn stamp(&self, now: Instant) -> u32 {
        self.epoch.wrapping_add((now.as_nanos() / 1_000_000) as u32)
    }

    /// A segment from the peer arrived.
    ///
    /// # Errors
    /// The reason for which it is not used.
    pub fn arrive(&mut self, segment: &Segment, now: Instant) -> Result<(), Refusal> {
        if self.state != State::Listen && segment.path.source != self.path.destination {
            return Err(Refusal::NoConnection);
        }
        match self.state {
            State::Listen if segment.syn && segment.acknowledges.is_none() => {
                self.path.destination = segment.path.source;
                self.learn(segment);
                (self.state, self.syn_due) = (State::SynReceived, now);
                Ok(())
            }
            State::SynSent if segment.syn && segment.acknowledges == Some(self.own.number(1)) => {
                self.learn(segment);
                self.establish(u32::from(segment.window), now);
                self.opens = true;
                self.receiver.acknowledge_now();
                Ok(())
            }
            State::Listen | State::SynSent => Err(Refusal::Unexpected),
            State::SynReceived if segment.syn => {
                self.syn_due = now;
                Ok(())
            }
            State::SynReceived => {
                if segment.acknowledges != Some(self.own.number(1)) {
                    return Err(Refusal::Unexpected);
                }
                self.establish(u32::from(segment.window) << self.peer_scale, now);
                self.carry(segment, now)
            }
            State::Established if segment.syn => {
                // The peer does not know yet that the connection is established.
                self.receiver.acknowledge_now();
                Ok(())
            }
            State::Established => self.carry(segment, now),
        }
    }

    /// Takes over the options of the peer's SYN.
    fn learn(&mut self, syn: &Segment) {
        self.peer = Numbering { first: syn.sequence };
        let stamp = syn.stamps.map(|(stamp, _)| stamp);
        self.stamps = stamp.is_some();
        self.sacks = syn.sack_permitted;
        match syn.scale {
            Some(scale) => self.peer_scale = scale,
            None => self.scale = 0,
        }
        let window = self.config.receive_window.min(MOST_UNSCALED << self.scale);
        self.receiver = Receiver::new(window, stamp.unwrap_or(0));
        let mss = syn.mss.unwrap_or(DEFAULT_MSS).min(self.own_mss());
        self.config.mtu = mss.saturating_add((IP_HEADER + TCP_HEADER) as u16);
    }

    fn own_mss(&self) -> u16 {
        self.config.mtu - (IP_HEADER + TCP_HEADER) as u16
    }

    fn establish(&mut self, window: u32, now: Instant) {
        self.state = State::Established;
        // The answer to a repeated SYN may be of any of them (Karn).
        let trip = (self.syns == 1).then(|| now - self.syn_sent);
        self.receiver.establish(trip, now);
        let options = if self.stamps { STAMPS as u32 } else { 0 };
        let mss = u32::from(self.own_mss()).saturating_sub(options);
        self.sender.establish(mss, window, trip, self.syns, now);
    }

    /// A segment of an established connection.
    fn carry(&mut self, segment: &Segment, now: Instant) -> Result<(), Refusal> {
        let Some(acknowledges) = segment.acknowledges else { return Err(Refusal::Unexpected) };
        let near = self.receiver.next();
        let Some(start) = self.peer.offset(segment.sequence, near) else {
            self.receiver.acknowledge_now();
            return Err(Refusal::OutOfWindow);
        };
        let end = start + segment.payload as u64 + u64::from(segment.fin);
        let (stamp, echo) = segment.stamps.filter(|_| self.stamps).unzip();
        if let Some(echo) = echo {
            let millis = self.stamp(now).wrapping_sub(echo);
            self.receiver.note_echo(segment.payload as u64, echo, millis);
        }
        self.receiver.arrive((start, end), segment.fin, stamp, now)?;
        if segment.push && segment.payload > 0 {
            // As Linux from 6.6 on, where the application takes all data at once.
            self.receiver.acknowledge_now();
        }

        let near = self.sender.acknowledged();
        let offset = self.own.offset(acknowledges, near).ok_or(Refusal::Acknowledgement)?;
        let mut ranges = [(0, 0); RANGES];
        let mut count = 0;
        for (first, last) in segment.sacks.as_slice().iter().filter(|_| self.sacks) {
            // One before the SYN is none.
            if let Some(range) = self.own.offset(*first, near).zip(self.own.offset(*last, near)) {
                ranges[count] = range;
                count += 1;
            }
        }
        let ack = Ack {
            offset,
            window: u32::from(segment.window) << self.peer_scale,
            from: start,
            ranges: &ranges[..count],
            echo,
        };
        self.sender.acknowledge(&ack, now)
    }

    /// Writes the next packet that leaves at `now` to `packet`. Returns whether there is one.
    pub fn transmit(&mut self, packet: &mut Vec<u8>, now: Instant) -> bool {
        match self.state {
            State::Listen => return false,
            State::SynSent | State::SynReceived => {
                if self.syn_due > now {
                    return false;
                }
                self.syn(now).emit(packet);
            }
            State::Established => {
                let stamp = self.stamp(now);
                let Some(segment) = self.segment(stamp, now) else { return false };
                segment.emit(packet);
            }
        }
        true
    }

    fn syn(&mut self, now: Instant) -> Segment {
        let answers = self.state == State::SynReceived;
        self.syns += 1;
        let linear = if answers { LINEAR.1 } else { LINEAR.0 };
        let doublings = self.syns.saturating_sub(linear).min(MOST_DOUBLINGS);
        (self.syn_sent, self.syn_due) = (now, now + (RTO_INITIAL * (1 << doublings)).min(RTO_MAX));
        // As Linux: a whole number of segments.
        let mss = self.own_mss();
        let most = self.config.receive_window.min(MOST_UNSCALED);
        let window = most / u32::from(mss) * u32::from(mss);
        Segment {
            acknowledges: answers.then(|| self.peer.number(1)),
            syn: true,
            window: window as u16,
            mss: Some(mss),
            scale: Some(self.scale).filter(|_| !answers || self.scale > 0),
            sack_permitted: self.sacks,
            stamps: self.stamps.then(|| (self.stamp(now), self.receiver.echo())),
            ..Segment::new(self.path, self.own.first)
        }
    }

    /// The next segment of an established connection.
    fn segment(&mut self, stamp: u32, now: Instant) -> Option<Segment> {
        let opens = std::mem::take(&mut self.opens);
        let sent = if opens { None } else { self.sender.transmit(stamp, now) };
        let (start, end) = match sent {
            Some(Transmission::Data { start, end }) => (start, end),
            Some(Transmission::WindowProbe) => {
                let old = self.sender.acknowledged() - 1;
                (old, old)
            }
            None if self.receiver.due(now) => (self.sender.next(), self.sender.next()),
            None => return None,
        };
        let fin = end > start && end > self.sender.limit();
        let mut segment = Segment {
            acknowledges: Some(self.peer.number(self.receiver.next())),
            fin,
            window: (self.receiver.window() >> self.scale) as u16,
            stamps: self.stamps.then(|| (stamp, self.receiver.echo())),
            payload: (end - start) as usize - usize::from(fin),
            ..Segment::new(self.path, self.own.number(start))
        };
        // A full segment has no room for ranges: an acknowledgement of its own follows then.
        if segment.payload == 0 || !self.receiver.reports() {
            let (peer, sacks) = (self.peer, self.sacks);
            self.receiver.acknowledge(|first, last| {
                if sacks {
                    segment.sacks.push(peer.number(first), peer.number(last));
                }
            });
        }
        Some(segment)
    }

    /// Next time at which [`Connection::transmit`] may return something by the passing of time
    /// alone; `now` is that of the last call.
    pub fn next_deadline(&self, now: Instant) -> Option<Instant> {
        match self.state {
            State::Listen => None,
            State::SynSent | State::SynReceived => Some(self.syn_due),
            State::Established => {
                let acknowledgement = self.receiver.next_deadline();
                self.sender.next_deadline(now).into_iter().chain(acknowledgement).min()
            }
        }
    }
}
