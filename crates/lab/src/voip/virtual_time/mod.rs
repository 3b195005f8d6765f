//! The engine `virtual`: the testbed under a virtual clock.
//!
//! Hosts, the medium, the talkers and the listeners are nodes of one simulation. No root, no
//! clock: the same point gives the same outcome to the byte.

mod hello;
mod host;
mod message;
mod sizes;
mod traffic;
mod windows;

use crate::voip::outcome::Outcome;
use crate::voip::point::Point;
use crate::voip::walk::{STEP, Walking};
use host::{Host, Neighbours};
use message::{Message, Sent};
use sheaf_medium::{Frame, Medium, RadioId, To};
use sheaf_sim::{Node, NodeId, Outbox, Simulation};
use sheaf_stage::{Duration, Instant, Stage};
use traffic::{Listeners, Talkers};

/// Time for packets that are on their way when the measurement ends.
const DRAIN: Duration = Duration::from_secs(2);

/// A node of the simulation.
enum Actor {
    Host(Box<Host>),
    /// The medium, the bytes that the mesh protocol adds to each packet on it, and who walks.
    Air(Box<Medium<Vec<u8>>>, u32, Option<Box<Steps>>),
    Talkers(Talkers),
    Listeners(Listeners),
}

/// The steps of a walk that the medium follows.
struct Steps {
    walking: Walking,
    hosts: usize,
    next: Instant,
}

impl Steps {
    /// Brings the medium to where the station is at `now`, where a step is due.
    fn take(&mut self, medium: &mut Medium<Vec<u8>>, now: Instant) {
        if now < self.next {
            return;
        }
        self.next = now + STEP;
        let hearing = self.walking.hearing(self.hosts, now);
        medium.set_hearing(hearing, now).expect("bit error rates are shares");
    }
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
    let steps = |walking: &Walking| {
        Box::new(Steps { walking: walking.clone(), hosts, next: Instant::ZERO })
    };
    let steps = point.walking.as_ref().map(steps);
    actors.push(Actor::Air(medium, point.encapsulation, steps));
    actors.push(Actor::Talkers(Talkers::new(point)));
    actors.push(Actor::Listeners(Listeners::new(point)));

    let mut simulation = Simulation::new(actors);
    simulation.run_until(point.measured().end + DRAIN);
    let mut actors = simulation.into_nodes();

    let mut outcome = Outcome::default();
    if let (Actor::Talkers(talkers), Actor::Listeners(listeners)) =
        (&actors[talkers], &actors[sink])
    {
        outcome.flows = listeners.reports(talkers);
        outcome.over_time = listeners.over_time();
    }
    if let Actor::Listeners(listeners) = &mut actors[sink] {
        outcome.walked.spans = listeners.spans();
    }
    if let Some(walking) = &point.walking {
        for (from, to, sizes) in
            [(walking.station, walking.router, 0), (walking.router, walking.station, 1)]
        {
            if let Actor::Host(host) = &actors[from] {
                outcome.walked.sizes[sizes] = host.sizes(to);
            }
        }
    }
    for actor in &actors {
        match actor {
            Actor::Host(host) => {
                outcome.aggregation.add(&host.stats().unwrap_or_default());
                outcome.unrouted += host.unrouted();
                outcome.unsplit += host.unsplit();
            }
            Actor::Air(medium, ..) => outcome.air = crate::voip::outcome::Air::of(medium),
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
            (Actor::Air(medium, encapsulation, _), Message::Send { from, to, packet }) => {
                let radio = RadioId(from as u32);
                let bytes = packet.len() as u32 + *encapsulation;
                let frame = Frame { from: radio, to, bytes, payload: packet };
                if medium.enqueue(frame, now).is_err() {
                    out.send(NodeId(from as u32), Message::Finished(None));
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
            Actor::Air(medium, _, steps) => {
                if let Some(steps) = steps {
                    steps.take(medium, now);
                }
                transmitted(medium, now, out);
            }
            Actor::Talkers(talkers) => talkers.talk(now, out),
            Actor::Listeners(_) => {}
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        match self {
            Actor::Host(host) => host.next_deadline(),
            Actor::Air(medium, _, steps) => {
                let step = steps.as_ref().map(|steps| steps.next);
                medium.next_deadline().into_iter().chain(step).min()
            }
            Actor::Talkers(talkers) => talkers.next_deadline(),
            Actor::Listeners(_) => None,
        }
    }
}

/// Hands on the frames that the medium has finished with.
fn transmitted(medium: &mut Medium<Vec<u8>>, now: Instant, out: &mut Outbox<Message>) {
    while let Some(done) = medium.dequeue(now) {
        let from = done.frame.from.0;
        let to = match done.frame.to {
            To::Radio(radio) => Some(radio.0 as usize),
            To::Broadcast => None,
        };
        let (bytes, retries) = (done.frame.bytes, done.retries);
        let sent = Sent { to, bytes, retries, failed: done.result.is_err() };
        out.send(NodeId(from), Message::Finished(Some(sent)));
        let mut send = |receiver: RadioId, packet| {
            let received = Message::Received { from: from as usize, packet };
            out.send(NodeId(receiver.0), received);
        };
        let mut receivers = done.receivers.iter().peekable();
        while let Some(receiver) = receivers.next() {
            // Most frames have one receiver, which gets the packet itself.
            if receivers.peek().is_none() {
                send(receiver, done.frame.payload);
                break;
            }
            send(receiver, done.frame.payload.clone());
        }
    }
}
