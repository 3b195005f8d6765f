//! A host of the testbed in virtual time: forwards IP packets, aggregates and splits.
//!
//! It stands for a Linux node whose stack takes no time: a packet is forwarded at the instant it
//! arrives. Its packets go to its radio's transmit queue directly, or through an
//! [`Aggregator`] that learns when the radio has finished with a frame, as on the netns engine.

use super::message::Message;
use crate::voip::point::{self, Mode, Point};
use sheaf_aggregate::{Aggregator, Device, Frame, Hop, HopId, Outbound, Splitter, Stats};
use sheaf_sim::{NodeId, Outbox};
use sheaf_stage::{Instant, Stage};
use sheaf_wire::ip::{Ip, Protocol};
use sheaf_wire::meta::Outer;

/// A host.
pub(super) struct Host {
    index: usize,
    /// The next host towards each host.
    next_hop: Vec<usize>,
    merge: Option<Merge>,
    splitter: Splitter,
    air: NodeId,
    sink: NodeId,
}

/// The aggregating half of a host.
struct Merge {
    aggregator: Aggregator,
    mode: Mode,
    /// Frames that the radio can have.
    limit: u32,
}

impl Host {
    /// Host `index` of `point`; `air` and `sink` are the nodes of the medium and of the listeners.
    pub fn new(point: &Point, index: usize, air: NodeId, sink: NodeId) -> anyhow::Result<Host> {
        let merge = match &point.aggregation {
            None => None,
            Some(aggregation) => Some(Merge {
                aggregator: aggregator(point, index, &aggregation.config)?,
                mode: aggregation.mode,
                limit: point.medium.radios[index].queue_limit as u32,
            }),
        };
        let splitter = Splitter::accepting_any();
        Ok(Host { index, next_hop: point.next_hop[index].clone(), merge, splitter, air, sink })
    }

    /// Counters of its aggregator.
    pub fn stats(&self) -> Option<Stats> {
        self.merge.as_ref().map(|merge| merge.aggregator.total())
    }

    pub fn receive(&mut self, message: Message, now: Instant, out: &mut Outbox<Message>) {
        match message {
            Message::Packet(packet) => self.route(packet, now, out),
            Message::Finished => {
                if let Some(Merge { aggregator, limit, .. }) = &mut self.merge
                    && let Device::Reports { waiting, .. } = aggregator.device()
                {
                    let waiting = waiting.saturating_sub(1);
                    aggregator.set_device(Device::Reports { waiting, limit: *limit }, now);
                }
            }
            Message::Send { .. } | Message::Heard(_) => unreachable!("no message for a host"),
        }
        self.drain(now, out);
    }

    /// Sends the frames that are due.
    pub fn drain(&mut self, now: Instant, out: &mut Outbox<Message>) {
        while let Some(Frame { hop, bytes, .. }) =
            self.merge.as_mut().and_then(|merge| merge.aggregator.dequeue(now))
        {
            self.send(hop.0 as usize, bytes, out);
        }
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        self.merge.as_ref()?.aggregator.next_deadline()
    }

    /// Delivers a packet here, takes it apart, or sends it on.
    fn route(&mut self, mut packet: Vec<u8>, now: Instant, out: &mut Outbox<Message>) {
        let Some((to, protocol)) = destination(&packet) else { return };
        if to != self.index {
            self.forward(to, packet, now, out);
        } else if protocol != Protocol::META {
            out.send(self.sink, Message::Heard(packet));
        } else {
            let mut inner = Vec::new();
            // The splitter counts refusals; between our own hosts there are none.
            let _ = self.splitter.split(&mut packet, |packet| inner.push(packet.to_vec()));
            for packet in inner {
                self.route(packet, now, out);
            }
        }
    }

    fn forward(&mut self, to: usize, packet: Vec<u8>, now: Instant, out: &mut Outbox<Message>) {
        match &mut self.merge {
            None => self.send(to, packet, out),
            Some(merge) => {
                let hop = match merge.mode {
                    Mode::Hop => self.next_hop[to],
                    Mode::End => to,
                };
                let hop = HopId(hop as u32);
                // What cannot be sent is counted there by its reason.
                let _ = merge.aggregator.enqueue(Outbound { hop, mark: 0, packet }, now);
            }
        }
    }

    /// Hands a frame towards host `to` to the radio.
    fn send(&self, to: usize, packet: Vec<u8>, out: &mut Outbox<Message>) {
        out.send(self.air, Message::Send { from: self.index, to: self.next_hop[to], packet });
    }
}

/// An aggregator that has every other host, by its index, as a next hop or far end.
fn aggregator(
    point: &Point,
    index: usize,
    config: &sheaf_aggregate::Config,
) -> anyhow::Result<Aggregator> {
    let mut aggregator = Aggregator::new(config.clone())?;
    for other in 0..point.nodes.len() {
        let outer = Outer::V4 { src: point::address(index), dst: point::address(other) };
        aggregator.add_hop(Hop::neighbour(outer));
    }
    let limit = point.medium.radios[index].queue_limit as u32;
    aggregator.set_device(Device::Reports { waiting: 0, limit }, Instant::ZERO);
    Ok(aggregator)
}

/// The host a packet is for, and its protocol.
fn destination(packet: &[u8]) -> Option<(usize, Protocol)> {
    let view = Ip::parse(packet).ok()?;
    let address = view.addresses().get(4..8)?;
    Some((point::host(address.try_into().ok()?), view.protocol()))
}
