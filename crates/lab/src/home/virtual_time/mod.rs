//! The engine under a virtual clock: servers, the slow link, the access point and the home's hosts
//! as nodes of one simulation.
//!
//! What is Linux's on the other engine is `sheaf_tcp` here, `sheaf emulate` is its
//! [`Link`](sheaf_emulator::Link), and `sheaf window` is the model of its program with its
//! controller. Hosts and access point take no time, and no packets are joined to super-packets. A
//! token bucket filter is a queue of as many bytes in front of the rate, without a bucket.
//!
//! * `address`: addresses, and the way of a packet; `node`: links and hosts; `session`: loads over
//!   TCP; `access`: the access point.

mod access;
mod address;
mod node;
mod session;

use super::change::{self, Home, Known, LOOK};
use super::control;
use super::outcome::{self, Watched};
use super::plan::{
    CapacityName, DirectionName, Plan, SPACING, Scenario, Times, Treatment, written,
};
use super::sessions::{Loads, Session};
use super::streams::{Beat, Received};
use crate::measured::Measured;
use access::Access;
use address::{ACCESS, BOTTLENECK, Map, SOURCE, client, server};
use anyhow::ensure;
use node::{Actor, Bottleneck, Delay, Peer, Source};
use session::Loader;
use sheaf_sim::Simulation;
use sheaf_stage::{Duration, Instant};
use sheaf_tcp::{Config, Host};
use sheaf_wire::flow::mix;

/// Start of the run: by then window control has taken its first step, as `sheaf window` has on the
/// testbed, and the program's model needs times above zero.
const START: Instant = Instant::from_millis(1_000);
/// Bytes of headers of IP and TCP with time stamps.
const HEADERS: u32 = 52;
/// Least segment of the TCP here: a packet of 576 bytes, which every path carries (RFC 9293,
/// section 3.7.1).
const LEAST_SEGMENT: u32 = 576 - HEADERS;

/// Refuses what does not exist in virtual time.
pub(super) fn ready(scenario: &Scenario, treatment: &Treatment) -> anyhow::Result<()> {
    let segment = scenario.segment.unwrap_or(LEAST_SEGMENT);
    ensure!(
        segment >= LEAST_SEGMENT,
        "segments of {segment} bytes do not exist in virtual time; give {LEAST_SEGMENT} or more, \
         or --engine netns"
    );
    let Some(words) = &treatment.window else { return Ok(()) };
    control::config(scenario, treatment, words).map(drop)
}

/// Runs `flows` bulk transfers beside the streams of `scenario` for the plan's duration.
pub fn measure(
    plan: &Plan,
    scenario: &Scenario,
    treatment: &Treatment,
    flows: u32,
) -> anyhow::Result<Measured> {
    ready(scenario, treatment)?;
    let times = plan.times(scenario, START);
    let mut run = Run::new(plan.head.seed, scenario, treatment, flows as u16, times)?;
    let changes = !scenario.changes.is_empty() || treatment.capacity == Some(CapacityName::Auto);
    let mut known = Known::default();
    if changes {
        let mut steps = vec![(times.bulk, scenario.rate)];
        steps.extend(scenario.changes.iter().map(|change| (times.at(change.at), change.rate)));
        known = change::follow(&mut run, &steps, times.until)?;
    }
    run.wait(times.until)?;
    let watched = run.watched();
    run.wait(times.last)?;
    let (sent, received) = run.streams();
    let quality = received.quality(sent);
    Ok(outcome::measured(scenario, watched, quality, run.loads(), &known, &times))
}

/// A point at work, which is watched as time passes.
struct Run {
    simulation: Simulation<Actor>,
    times: Times,
    is_controlled: bool,
    /// The node of each transfer's receiver.
    receivers: Vec<usize>,
    next_look: Instant,
    /// Bytes of each transfer when counting began.
    before: Option<Vec<u64>>,
    /// Sum of the queues, and looks, since then.
    queues: (u64, u64),
    progress: Vec<(Instant, Vec<u64>)>,
}

impl Run {
    fn new(
        seed: u64,
        scenario: &Scenario,
        treatment: &Treatment,
        flows: u16,
        times: Times,
    ) -> anyhow::Result<Run> {
        let sessions = Session::all(scenario, &times, seed);
        let map = Map {
            bulk: scenario.direction,
            classes: scenario.rtts.len() as u32,
            sessions: sessions.len() as u32,
        };
        let access = Access::new(scenario, treatment, map.direction())?;
        let changes: Vec<_> =
            scenario.changes.iter().map(|change| (times.at(change.at), change.rate)).collect();
        let beats = Beat::all(scenario, &times, seed);
        let bottleneck = Bottleneck::new(scenario, treatment, &changes, seed, map)?;
        let mut nodes = vec![
            Actor::Access(access, map),
            Actor::Bottleneck(Box::new(bottleneck)),
            Actor::Source(Box::new(Source::new(beats.clone(), times.until, map))),
            Actor::Sink(Box::new(Received::new(beats, times.started))),
        ];
        for rtt in &scenario.rtts {
            let half = Duration::from_secs_f64(rtt / 2e3);
            nodes.extend([(); 2].map(|()| Actor::Delay(Delay::new(half, map))));
        }
        for (number, session) in (0..).zip(sessions) {
            let loader = Loader::new(session, number, config(scenario), seed, times.until, map);
            nodes.push(Actor::Session(Box::new(loader)));
        }
        let mut receivers = Vec::new();
        for number in 0..flows {
            let receiver = map.host(u32::from(number), scenario.direction == DirectionName::Up);
            receivers.push(receiver.0 as usize);
            let begins = times.bulk + SPACING * u32::from(number);
            let [client, server] = peers(scenario, number, seed, begins, map);
            nodes.extend([client, server].map(|peer| Actor::Peer(Box::new(peer))));
        }
        Ok(Run {
            simulation: Simulation::new(nodes),
            times,
            is_controlled: treatment.window.is_some(),
            receivers,
            next_look: times.started + LOOK,
            before: None,
            queues: (0, 0),
            progress: Vec::new(),
        })
    }

    /// Bytes that have arrived, by transfer.
    fn bytes(&self) -> Vec<u64> {
        let nodes = self.simulation.nodes();
        let bytes = |node: &usize| match &nodes[*node] {
            Actor::Peer(peer) => peer.host.flows()[0].bytes,
            _ => unreachable!("receivers are hosts"),
        };
        self.receivers.iter().map(bytes).collect()
    }

    fn bottleneck(&self) -> &Bottleneck {
        match &self.simulation.nodes()[BOTTLENECK.0 as usize] {
            Actor::Bottleneck(bottleneck) => bottleneck,
            _ => unreachable!("it is the bottleneck"),
        }
    }

    fn access(&self) -> &Access {
        match &self.simulation.nodes()[ACCESS.0 as usize] {
            Actor::Access(access, _) => access,
            _ => unreachable!("it is the access point"),
        }
    }

    /// Packets of each stream that were sent, and those that arrived.
    fn streams(&self) -> (&[u32], &Received) {
        match &self.simulation.nodes()[SOURCE.0 as usize..] {
            [Actor::Source(source), Actor::Sink(received), ..] => (&source.sent, received),
            _ => unreachable!("they are the ends of the streams"),
        }
    }

    /// Loads of all sessions that ended.
    fn loads(&self) -> Loads {
        Loads::new(self.simulation.nodes().iter().filter_map(|node| match node {
            Actor::Session(session) => Some(session.loads()),
            _ => None,
        }))
    }

    /// Looks at the queue, and once a second at the transfers.
    fn look(&mut self, now: Instant) {
        if now > self.times.counted && now < self.times.until {
            self.queues.0 += self.bottleneck().waiting();
            self.queues.1 += 1;
        }
        let is_second = (now - self.times.started).subsec_nanos() == 0;
        if is_second && now >= self.times.bulk && now <= self.times.until {
            self.progress.push((now, self.bytes()));
        }
    }

    /// Values that were watched, at the end of the measurement.
    fn watched(&mut self) -> Watched {
        let before = self.before.take().unwrap_or_default();
        let seconds = (self.times.until - self.times.counted).as_secs_f64();
        Watched {
            rates: Watched::rates(&before, &self.bytes(), seconds),
            queue: self.queues.0 as f64 / (self.queues.1 as f64).max(1.0),
            drops: self.bottleneck().dropped() as f64,
            capacity: self.access().capacity(),
            progress: std::mem::take(&mut self.progress),
        }
    }
}

impl Home for Run {
    fn wait(&mut self, until: Instant) -> anyhow::Result<()> {
        loop {
            let counted = self.before.is_none().then_some(self.times.counted);
            let stop = counted.map_or(self.next_look, |counted| counted.min(self.next_look));
            if stop > until {
                break;
            }
            self.simulation.run_until(stop);
            if counted == Some(stop) {
                self.before = Some(self.bytes());
            }
            if self.next_look == stop {
                self.look(stop);
                self.next_look = stop + LOOK;
            }
        }
        self.simulation.run_until(until);
        Ok(())
    }

    /// The simulated link has its rates from the start.
    fn change(&mut self, _rate: f64) -> anyhow::Result<()> {
        Ok(())
    }

    fn is_controlled(&self) -> bool {
        self.is_controlled
    }

    fn capacity(&self) -> anyhow::Result<f64> {
        Ok(self.access().capacity())
    }
}

/// TCP of the hosts of `scenario`.
fn config(scenario: &Scenario) -> Config {
    let usual = Config::default();
    Config {
        control: scenario.congestion.algorithm(),
        mtu: scenario.segment.map_or(usual.mtu, |segment| (segment + HEADERS) as u16),
        ..usual
    }
}

/// The client and the server of transfer `number`, which the client opens at `begins`.
fn peers(scenario: &Scenario, number: u16, seed: u64, begins: Instant, map: Map) -> [Peer; 2] {
    let config = config(scenario);
    let seed = mix(mix(seed) ^ u64::from(number));
    let (inside, outside) = (client(number), server(usize::from(number) % scenario.rtts.len()));
    let (client, server) = match scenario.direction {
        DirectionName::Down => (
            Host::fetcher(config, inside, outside, 1, seed),
            Host::server(config, outside, 1, seed),
        ),
        DirectionName::Up => (
            Host::sender(config, inside, outside, 1, seed),
            Host::receiver(config, outside, 1, seed),
        ),
    };
    let (client, server) = (Peer::new(client, Some(begins), map), Peer::new(server, None, map));
    match (scenario.limited.filter(|_| number == 0), scenario.direction) {
        (None, _) => [client, server],
        (Some(mbps), DirectionName::Down) => [client, server.writing(written(mbps), begins)],
        (Some(mbps), DirectionName::Up) => [client.writing(written(mbps), begins), server],
    }
}
