//! The engine `virtual`: the testbed under a virtual clock.
//!
//! Hosts, the medium, the talkers and the listeners are nodes of one simulation. No root, no
//! clock: the same point gives the same outcome to the byte.

mod air;
mod hello;
mod host;
mod message;
mod sizes;
mod traffic;
mod windows;

use crate::voip::outcome::Outcome;
use crate::voip::point::Point;
use air::Air;
use host::{Host, Neighbours};
use message::Message;
use sheaf_sim::{Node, NodeId, Outbox, Simulation};
use sheaf_stage::{Duration, Instant};
use traffic::{Listeners, Talkers};

/// Time for packets that are on their way when the measurement ends.
const DRAIN: Duration = Duration::from_secs(2);

/// A node of the simulation.
enum Actor {
    Host(Box<Host>),
    Air(Box<Air>),
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
    actors.push(Actor::Air(Box::new(Air::new(point)?)));
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
            Actor::Air(air) => outcome.air = crate::voip::outcome::Air::of(air.medium()),
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
            (Actor::Air(air), Message::Send { from, to, packet }) => {
                air.send(from, to, packet, now, out);
            }
            (Actor::Talkers(talkers), Message::Left(flow)) => talkers.left(flow, now, out),
            (Actor::Listeners(listeners), Message::Heard(packet)) => listeners.heard(&packet, now),
            _ => unreachable!("a message that this node never gets"),
        }
    }

    fn wake(&mut self, now: Instant, out: &mut Outbox<Message>) {
        match self {
            Actor::Host(host) => host.drain(now, out),
            Actor::Air(air) => air.wake(now, out),
            Actor::Talkers(talkers) => talkers.talk(now, out),
            Actor::Listeners(_) => {}
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        match self {
            Actor::Host(host) => host.next_deadline(),
            Actor::Air(air) => air.next_deadline(),
            Actor::Talkers(talkers) => talkers.next_deadline(),
            Actor::Listeners(_) => None,
        }
    }
}
