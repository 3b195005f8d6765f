//! The talkers and the listeners of the simulated testbed.

use super::message::Message;
use super::windows::Windows;
use crate::voip::outcome::FlowReport;
use crate::voip::point::{self, Point, Talk};
use crate::voip::walked::Spans;
use sheaf_sim::{NodeId, Outbox};
use sheaf_stage::{Duration, IndexedHeap, Instant};
use sheaf_voice::emodel::Codec;
use sheaf_voice::meter::Meter;
use sheaf_voice::packet::Stamp;
use sheaf_voice::source;
use sheaf_wire::ip::Ip;

/// Tick of RTP's time stamps: 8 kHz (RFC 3551).
const TICK: Duration = Duration::from_micros(125);
/// The marker in RTP's second byte: the first packet after a silence (RFC 3551, section 4.1).
const MARKER: u8 = 0x80;

/// All talkers.
pub(super) struct Talkers {
    flows: Vec<Talker>,
    due: IndexedHeap<Instant>,
    codec: Codec,
    /// Packets that the socket of each flow holds; `None` where senders never wait.
    socket: Option<u32>,
}

struct Talker {
    from: usize,
    to: usize,
    talk: Talk,
    number: u32,
    /// Time at which it sent last.
    last: Option<Instant>,
    /// Packets in its socket.
    held: u32,
    /// Start of the write that waits for room in the socket.
    waits_since: Option<Instant>,
    /// Packets sent while it was measured.
    measured: u64,
    measured_from: Instant,
}

impl Talkers {
    pub fn new(point: &Point) -> Talkers {
        let mut due = IndexedHeap::default();
        let mut flows = Vec::new();
        for (index, flow) in point.flows.iter().enumerate() {
            let mut talk = point.talk(index);
            due.set(index as u32, talk.next());
            let measured_from = point.measured().start;
            let (from, to) = (flow.from, flow.to);
            flows.push(Talker {
                from,
                to,
                talk,
                number: 0,
                last: None,
                held: 0,
                waits_since: None,
                measured: 0,
                measured_from,
            });
        }
        Talkers { flows, due, codec: point.codec, socket: point.socket }
    }

    /// Sends the packets that are due. A sender whose socket is full waits with the next one.
    pub fn talk(&mut self, now: Instant, out: &mut Outbox<Message>) {
        while let Some((_, flow)) = self.due.first().filter(|(at, _)| *at <= now) {
            let talker = &mut self.flows[flow as usize];
            if now >= talker.talk.end() {
                // Late senders stop with their turn, too.
                self.due.set(flow, None);
            } else if self.socket.is_some_and(|room| talker.held >= room) {
                talker.waits_since = Some(now);
                self.due.set(flow, None);
            } else {
                self.write(flow, now, out);
            }
        }
    }

    /// A packet of `flow` has left its socket. A sender that waits goes on when half of its socket
    /// is free, as under Linux (`sock_def_write_space`).
    pub fn left(&mut self, flow: u32, now: Instant, out: &mut Outbox<Message>) {
        let talker = &mut self.flows[flow as usize];
        talker.held -= 1;
        let has_room = self.socket.is_some_and(|room| talker.held <= room / 2);
        if let Some(since) = talker.waits_since.take_if(|_| has_room) {
            self.write(flow, since, out);
            self.talk(now, out);
        }
    }

    /// Sends a packet of `flow` that its sender began to write at `begun`.
    fn write(&mut self, flow: u32, begun: Instant, out: &mut Outbox<Message>) {
        let talker = &mut self.flows[flow as usize];
        talker.held += u32::from(self.socket.is_some());
        let packet = talker.packet(flow, begun, self.codec);
        out.send(NodeId(talker.from as u32), Message::Packet(packet));
        self.due.set(flow, talker.talk.next());
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| at)
    }
}

impl Talker {
    /// The packet that is sent at `at`: IP, UDP, RTP and the stamp.
    fn packet(&mut self, flow: u32, at: Instant, codec: Codec) -> Vec<u8> {
        let stamp = Stamp { flow, number: self.number, sent: at };
        let mut payload = vec![0; Stamp::len(codec)];
        stamp.emit(codec, &mut payload);
        // RTP's clock goes on in silences, which its sequence numbers do not show.
        let ticks = at.as_nanos() / TICK.as_nanos() as u64;
        payload[4..8].copy_from_slice(&(ticks as u32).to_be_bytes());
        if self.last.is_none_or(|last| at - last > source::INTERVAL) {
            payload[1] |= MARKER;
        }
        self.last = Some(at);
        // Each call has a port of its own.
        let port = point::RTP_PORT + 2 * flow as u16;
        let (from, to) = (point::address(self.from).octets(), point::address(self.to).octets());
        let mut packet = Vec::with_capacity(28 + payload.len());
        etherparse::PacketBuilder::ipv4(from, to, 64)
            .udp(port, point::RTP_PORT)
            .write(&mut packet, &payload)
            .expect("a voice packet fits");
        self.measured += u64::from(at >= self.measured_from);
        self.number += 1;
        packet
    }
}

/// All listeners.
pub(super) struct Listeners {
    meters: Vec<Meter>,
    measured_from: Instant,
    codec: Codec,
    /// For each second in which packets were sent, their number and the sum of their delays in ms;
    /// `None` where it is not kept.
    over_time: Option<Vec<(u32, f64)>>,
    /// `None` where nobody walks.
    windows: Option<Windows>,
}

impl Listeners {
    pub fn new(point: &Point) -> Listeners {
        let meters = vec![Meter::default(); point.flows.len()];
        let over_time = point.over_time.then(Vec::new);
        let windows = point.walking.is_some().then(|| Windows::new(point));
        let measured_from = point.measured().start;
        Listeners { meters, measured_from, codec: point.codec, over_time, windows }
    }

    /// A packet has reached its destination.
    pub fn heard(&mut self, packet: &[u8], now: Instant) {
        let stamp =
            Ip::parse(packet).ok().and_then(|view| Stamp::parse(view.transport().get(8..)?));
        let Some(stamp) = stamp.filter(|stamp| stamp.sent >= self.measured_from) else { return };
        if let Some(meter) = self.meters.get_mut(stamp.flow as usize) {
            meter.arrived(stamp, now);
        }
        if let Some(windows) = &mut self.windows {
            windows.heard(stamp, now);
        }
        if let Some(seconds) = &mut self.over_time {
            let second = (stamp.sent - self.measured_from).as_secs() as usize;
            if seconds.len() <= second {
                seconds.resize(second + 1, (0, 0.0));
            }
            seconds[second].0 += 1;
            seconds[second].1 += (now - stamp.sent).as_secs_f64() * 1e3;
        }
    }

    /// Mean delay in ms of the packets sent in each second; seconds without one are left out.
    pub fn over_time(&self) -> Vec<(f64, f64)> {
        let seconds = self.over_time.iter().flatten().enumerate();
        let heard = seconds.filter(|(_, (packets, _))| *packets > 0);
        heard.map(|(second, (packets, sum))| (second as f64, sum / f64::from(*packets))).collect()
    }

    /// The calls every five seconds; none where nobody walks.
    pub fn spans(&mut self) -> Spans {
        self.windows.take().map(Windows::finish).unwrap_or_default()
    }

    /// Report of each flow.
    pub fn reports(&self, talkers: &Talkers) -> Vec<FlowReport> {
        let flows = talkers.flows.iter().zip(&self.meters);
        flows.map(|(talker, meter)| FlowReport::new(self.codec, meter, talker.measured)).collect()
    }
}
