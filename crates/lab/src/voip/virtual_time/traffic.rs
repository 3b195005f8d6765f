//! The talkers and the listeners of the simulated testbed.

use super::message::Message;
use crate::voip::outcome::FlowReport;
use crate::voip::point::{self, Point};
use sheaf_sim::{NodeId, Outbox};
use sheaf_stage::{IndexedHeap, Instant};
use sheaf_voice::emodel::Codec;
use sheaf_voice::meter::Meter;
use sheaf_voice::packet::Stamp;
use sheaf_voice::source::Source;
use sheaf_wire::ip::Ip;

/// All talkers.
pub(super) struct Talkers {
    flows: Vec<Talker>,
    due: IndexedHeap<Instant>,
    codec: Codec,
    end: Instant,
}

struct Talker {
    from: usize,
    to: usize,
    source: Source,
    next: Instant,
    number: u32,
    /// Packets sent while it was measured.
    measured: u64,
    measured_from: Instant,
}

impl Talkers {
    pub fn new(point: &Point) -> Talkers {
        let mut due = IndexedHeap::default();
        let mut flows = Vec::new();
        for (index, flow) in point.flows.iter().enumerate() {
            let mut source = point.source(index);
            let next = source.next().expect("a talker never ends");
            due.set(index as u32, Some(next));
            let measured_from = point.measured().start;
            let (from, to) = (flow.from, flow.to);
            flows.push(Talker { from, to, source, next, number: 0, measured: 0, measured_from });
        }
        Talkers { flows, due, codec: point.codec, end: point.measured().end }
    }

    /// Sends the packets that are due.
    pub fn talk(&mut self, now: Instant, out: &mut Outbox<Message>) {
        while let Some((_, flow)) = self.due.first().filter(|(at, _)| *at <= now) {
            let talker = &mut self.flows[flow as usize];
            let packet = talker.packet(flow, self.codec);
            out.send(NodeId(talker.from as u32), Message::Packet(packet));
            self.due.set(flow, Some(talker.next).filter(|next| *next < self.end));
        }
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| at)
    }
}

impl Talker {
    /// The next packet: IP, UDP, RTP and the stamp.
    fn packet(&mut self, flow: u32, codec: Codec) -> Vec<u8> {
        let stamp = Stamp { flow, number: self.number, sent: self.next };
        let mut payload = vec![0; Stamp::len(codec)];
        stamp.emit(codec, &mut payload);
        let (from, to) = (point::address(self.from).octets(), point::address(self.to).octets());
        let mut packet = Vec::with_capacity(28 + payload.len());
        etherparse::PacketBuilder::ipv4(from, to, 64)
            .udp(point::RTP_PORT, point::RTP_PORT)
            .write(&mut packet, &payload)
            .expect("a voice packet fits");
        self.measured += u64::from(self.next >= self.measured_from);
        self.number += 1;
        self.next = self.source.next().expect("a talker never ends");
        packet
    }
}

/// All listeners.
pub(super) struct Listeners {
    meters: Vec<Meter>,
    measured_from: Instant,
    codec: Codec,
}

impl Listeners {
    pub fn new(point: &Point) -> Listeners {
        let meters = vec![Meter::default(); point.flows.len()];
        Listeners { meters, measured_from: point.measured().start, codec: point.codec }
    }

    /// A packet has reached its destination.
    pub fn heard(&mut self, packet: &[u8], now: Instant) {
        let stamp =
            Ip::parse(packet).ok().and_then(|view| Stamp::parse(view.transport().get(8..)?));
        let Some(stamp) = stamp.filter(|stamp| stamp.sent >= self.measured_from) else { return };
        if let Some(meter) = self.meters.get_mut(stamp.flow as usize) {
            meter.arrived(stamp, now);
        }
    }

    /// Report of each flow.
    pub fn reports(&self, talkers: &Talkers) -> Vec<FlowReport> {
        let flows = talkers.flows.iter().zip(&self.meters);
        flows.map(|(talker, meter)| FlowReport::new(self.codec, meter, talker.measured)).collect()
    }
}
