//! The engine `virtual`: the testbed under a virtual clock.
//!
//! Hosts, the medium, the talkers and the listeners are nodes of one simulation. No root, no
//! clock: the same point gives the same outcome to the byte.

mod hello;
mod host;
mod message;
mod traffic;

use crate::voip::outcome::Outcome;
use crate::voip::point::Point;
use host::{Host, Neighbours};
use message::Message;
use sheaf_medium::{Frame, Medium, RadioId};
use sheaf_sim::{Node, NodeId, Outbox, Simulation};
use sheaf_stage::{Duration, Instant, Stage};
use traffic::{Listeners, Talkers};

/// Time for packets that are on their way when the measurement ends.
const DRAIN: Duration = Duration::from_secs(2);

/// A node of the simulation.
enum Actor {
    Host(Box<Host>),
    /// The medium, and the bytes that the mesh protocol adds to each packet on it.
    Air(Box<Medium<Vec<u8>>>, u32),
    Talkers(Talkers),
    Listeners(Listeners),
}

/// Runs one point to its end.
pub fn run(point: &Point) -> anyhow::Result<Outcome> {
    let hosts = point.nodes.len();
    let (air, talkers, sink) = (hosts, hosts + 1, hosts + 2);
    let mut actors = Vec::with_capacity(hosts + 3);
    for index in 0..hosts {
        let [air, talkers, sink] = [air, talkers, sink].map(|node| NodeId(node as u32));
        let host = Host::new(point, index, Neighbours { air, talkers, sink })?;
        actors.push(Actor::Host(Box::new(host)));
    }
    let medium = Box::new(Medium::new(point.medium.clone(), point.seed)?);
    actors.push(Actor::Air(medium, point.encapsulation));
    actors.push(Actor::Talkers(Talkers::new(point)));
    actors.push(Actor::Listeners(Listeners::new(point)));

    let mut simulation = Simulation::new(actors);
    simulation.run_until(point.measured().end + DRAIN);
    let actors = simulation.into_nodes();

    let mut outcome = Outcome::default();
    if let (Actor::Talkers(talkers), Actor::Listeners(listeners)) =
        (&actors[talkers], &actors[sink])
    {
        outcome.flows = listeners.reports(talkers);
        outcome.over_time = listeners.over_time();
    }
    for actor in &actors {
        match actor {
            Actor::Host(host) => {
                outcome.aggregation.add(&host.stats().unwrap_or_default());
                outcome.unrouted += host.unrouted();
                outcome.unsplit += host.unsplit();
            }
            Actor::Air(medium, _) => outcome.air = crate::voip::outcome::Air::of(medium),
            _ => {}
        }
    }
    Ok(outcome)
}

impl Node for Actor {
    type Message = Message;

    fn receive(&mut self, message: Message, now: Instant, out: &mut Outbox<Message>) {
        match (self, message) {
            (Actor::Host(host), message) => host.receive(message, now, out),
            (Actor::Air(medium, encapsulation), Message::Send { from, to, packet }) => {
                let radio = RadioId(from as u32);
                let bytes = packet.len() as u32 + *encapsulation;
                let frame = Frame { from: radio, to, bytes, payload: packet };
                if medium.enqueue(frame, now).is_err() {
                    out.send(NodeId(from as u32), Message::Finished);
                }
                transmitted(medium, now, out);
            }
            (Actor::Talkers(talkers), Message::Left(flow)) => talkers.left(flow, now, out),
            (Actor::Listeners(listeners), Message::Heard(packet)) => listeners.heard(&packet, now),
            _ => unreachable!("a message that this node never gets"),
        }
    }

    fn wake(&mut self, now: Instant, out: &mut Outbox<Message>) {
        match self {
            Actor::Host(host) => host.drain(now, out),
            Actor::Air(medium, _) => transmitted(medium, now, out),
            Actor::Talkers(talkers) => talkers.talk(now, out),
            Actor::Listeners(_) => {}
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        match self {
            Actor::Host(host) => host.next_deadline(),
            Actor::Air(medium, _) => medium.next_deadline(),
            Actor::Talkers(talkers) => talkers.next_deadline(),
            Actor::Listeners(_) => None,
        }
    }
}

/// Hands on the frames that the medium has finished with.
fn transmitted(medium: &mut Medium<Vec<u8>>, now: Instant, out: &mut Outbox<Message>) {
    while let Some(done) = medium.dequeue(now) {
        out.send(NodeId(done.frame.from.0), Message::Finished);
        for receiver in done.receivers.iter() {
            out.send(NodeId(receiver.0), Message::Packet(done.frame.payload.clone()));
        }
    }
}
