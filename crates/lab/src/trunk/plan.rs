//! Plans of trunks: links, disturbances of them, and the use made of them; worked out to points.

use super::point::{Link, Neighbours, Point, Room, System, Traffic, Treatment as Joined, Walk};
use crate::fault::Fault;
use crate::plan_file::PlanFile;
use crate::tcp::Congestion;
use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use sheaf_medium::PathLoss;
use sheaf_stage::{Bitrate, Duration};
use sheaf_trunk::Scheduler;

/// A plan of this kind.
pub type Plan = PlanFile<Scenario, Treatment>;

/// The rates of 802.11b in Mbit/s.
const RATES: [f64; 4] = [1.0, 2.0, 5.5, 11.0];
/// Bytes of UDP in a packet where the plan does not say: the most in an Ethernet frame.
const USUAL_PAYLOAD: u16 = 1472;
/// Bytes of UDP in a packet: the least that take a stamp, and the most.
const PAYLOADS: std::ops::RangeInclusive<u16> = 14..=USUAL_PAYLOAD;
/// Bytes of IPv4 and UDP headers.
const UDP_HEADERS: u16 = 28;
/// Bit error rates are given in millionths.
const MILLIONTH: f64 = 1e-6;

/// A testbed and its sweep.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// Links of the trunk, where the sweep is not over them.
    pub links: usize,
    /// 802.11b rate of the links in Mbit/s.
    pub rate: f64,
    /// Frames in a transmit queue.
    pub queue: usize,
    /// Traffic over the links.
    pub traffic: TrafficName,
    /// TCP flows at the same time; 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flows: Option<u16>,
    /// Congestion control of TCP, of the neighbours, too; cubic.
    #[serde(default, skip_serializing_if = "Congestion::is_default")]
    pub tcp: Congestion,
    /// Mbit/s of UDP for each link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered: Option<f64>,
    /// Bytes of UDP in a packet; 1472.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<u16>,
    /// Place for which greedy UDP waits; next.
    #[serde(default, skip_serializing_if = "Room::is_default")]
    pub room: Room,
    /// Bit error rate of each link in millionths; then this is the one point.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ber: Vec<f64>,
    /// Mbit/s of UDP that each pair of neighbours offers, in place of a TCP flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neighbour_offered: Option<f64>,
    /// Seconds from the start after which the neighbours of each link in turn are silent, in
    /// virtual time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub neighbours_leave: Vec<f64>,
    /// Movement of the stations, in a sweep over the distance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub walk: Option<WalkName>,
    /// Quantity that the sweep varies.
    pub over: Over,
    /// The sweep.
    pub sweep: Vec<f64>,
    /// Names of the treatments to compare.
    pub treatments: Vec<String>,
}

/// Traffic over the links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrafficName {
    /// Bulk TCP.
    Tcp,
    /// UDP at a constant rate.
    Udp,
    /// UDP of an application whose socket blocks: as many packets as find room.
    GreedyUdp,
}

/// The quantity that a sweep varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Over {
    /// Number of links.
    Links,
    /// Number of links that are shared with another pair.
    Shared,
    /// Number of links with a hidden station.
    Hidden,
    /// The bit error rate of all, in millionths.
    Ber,
    /// The distance in metres at which measuring begins.
    Distance,
}

impl Over {
    /// Label and unit of the axis.
    pub fn label(self) -> (&'static str, &'static str) {
        match self {
            Over::Links => ("links", ""),
            Over::Shared => ("links shared with another pair", ""),
            Over::Hidden => ("links with a hidden station", ""),
            Over::Ber => ("bit error rate", "10⁻⁶"),
            Over::Distance => ("distance", "m"),
        }
    }
}

/// The movement of two stations away from each other.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct WalkName {
    /// Metres a second.
    pub speed: f64,
    /// Range of the slowest rate, in metres.
    pub range: f64,
    /// Path loss exponent.
    pub exponent: f64,
}

/// The use that is made of several links.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Treatment {
    /// Its name.
    pub name: String,
    /// The carrier of packets.
    pub over: Carrier,
    /// The trunk's scheduler; earliest where it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<SchedulerName>,
}

/// The carrier of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Carrier {
    /// The first link, without a trunk.
    FirstLink,
    /// Each link alone, one after the other; their sum is the aim of the trunk.
    EachLink,
    /// A trunk over all.
    Trunk,
    /// The trunk of Chiao Tung 2004 as it was, in virtual time.
    Nctu,
    /// Surplus Round Robin with periodic markers, in virtual time.
    Srr,
    /// Trigger Round Robin, in virtual time.
    Trr,
}

/// A scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SchedulerName {
    /// The paper's, with the quarter rule.
    RoundRobin,
    /// Surplus Round Robin.
    Srr,
    /// Trigger Round Robin.
    Trr,
    /// Earliest delivery.
    Earliest,
}

impl Plan {
    /// Checks that the plan can be run.
    pub(super) fn check_trunks(&self) -> Result<(), Fault> {
        for treatment in &self.treatments {
            if treatment.scheduler.is_some() && treatment.over != Carrier::Trunk {
                let message = "only a trunk has a scheduler; remove it, or set over = \"trunk\"";
                return Err(Fault::treatment(&treatment.name, message).at("scheduler"));
            }
        }
        for scenario in &self.scenarios {
            for treatment in &scenario.treatments {
                let points = self.head.points.iter().flatten().copied();
                for x in scenario.points().into_iter().chain(points) {
                    self.jobs(scenario, treatment, x)
                        .map_err(|error| Fault::scenario(&scenario.name, error))?;
                }
            }
        }
        Ok(())
    }

    /// Whether a treatment is a published system, which the virtual engine alone has.
    pub(super) fn is_published(&self, treatment: &str) -> bool {
        let found = self.treatments.iter().find(|one| one.name == treatment);
        found.is_some_and(|one| matches!(one.joined(), Joined::Published(_)))
    }

    /// The points to run at `x`, each with the number of times that it counts.
    pub(super) fn jobs(
        &self,
        scenario: &Scenario,
        treatment: &str,
        x: f64,
    ) -> anyhow::Result<Vec<(Point, u32)>> {
        let found = self.treatments.iter().find(|one| one.name == treatment);
        let treatment = found.with_context(|| {
            let known: Vec<_> = self.treatments.iter().map(|one| one.name.as_str()).collect();
            format!("no treatment {treatment:?}; there are {}", known.join(", "))
        })?;
        let point = Point {
            links: scenario.links(x)?,
            treatment: treatment.joined(),
            traffic: scenario.traffic()?,
            tcp: scenario.tcp,
            queue: scenario.queue,
            warm_up: Duration::from_secs_f64(self.head.warm_up),
            duration: Duration::from_secs_f64(self.head.duration),
            seed: self.head.seed,
        };
        let mut jobs: Vec<(Point, u32)> = Vec::new();
        match treatment.over {
            Carrier::Trunk | Carrier::Nctu | Carrier::Srr | Carrier::Trr => jobs.push((point, 1)),
            Carrier::FirstLink => jobs.push((point.alone(0), 1)),
            Carrier::EachLink => {
                for (index, link) in point.links.iter().enumerate() {
                    // Equal links carry the same, so one of them is measured.
                    match jobs.iter_mut().find(|(point, _)| point.links[0] == *link) {
                        Some((_, times)) => *times += 1,
                        None => jobs.push((point.alone(index), 1)),
                    }
                }
            }
        }
        Ok(jobs)
    }
}

impl Treatment {
    /// The use of the links; with a carrier that is no trunk, of those that are joined.
    fn joined(&self) -> Joined {
        match self.over {
            Carrier::Nctu => Joined::Published(System::Nctu),
            Carrier::Srr => Joined::Published(System::Srr),
            Carrier::Trr => Joined::Published(System::Trr),
            Carrier::FirstLink | Carrier::EachLink | Carrier::Trunk => {
                Joined::Trunk(self.scheduler())
            }
        }
    }

    fn scheduler(&self) -> Scheduler {
        match self.scheduler {
            Some(SchedulerName::RoundRobin) => Scheduler::RoundRobin,
            Some(SchedulerName::Srr) => Scheduler::Srr,
            Some(SchedulerName::Trr) => Scheduler::Trr,
            Some(SchedulerName::Earliest) | None => Scheduler::Earliest,
        }
    }
}

impl Scenario {
    /// The points of the sweep.
    pub(super) fn points(&self) -> Vec<f64> {
        if self.ber.is_empty() {
            return self.sweep.clone();
        }
        let mean = self.ber.iter().sum::<f64>() / self.ber.len() as f64;
        vec![(mean * 10.0).round() / 10.0]
    }

    /// Whether the netns engine has it. A source of UDP that is faster than the links would not
    /// test a real stack, and its neighbours have TCP flows that stay.
    pub(super) fn runs_on_netns(&self) -> bool {
        let tcp_alone = self.traffic == TrafficName::Tcp && self.neighbour_offered.is_none();
        tcp_alone && self.neighbours_leave.is_empty()
    }

    fn links(&self, x: f64) -> anyhow::Result<Vec<Link>> {
        ensure!(
            RATES.contains(&self.rate),
            "rate {} Mbit/s is not one of 802.11b; give 1, 2, 5.5 or 11",
            self.rate
        );
        ensure!((1..=1000).contains(&self.queue), "queue {}; give 1 to 1000 frames", self.queue);
        let whole = x.fract() == 0.0;
        let (mut count, mut near, mut walk, mut ber) = (self.links, 0, None, 0.0);
        match self.over {
            Over::Links => count = x as usize,
            Over::Shared | Over::Hidden => near = x as usize,
            Over::Ber => ber = x,
            Over::Distance => {
                let given = self.walk.context("a sweep over the distance needs walk = { … }")?;
                let WalkName { speed, range, exponent } = given;
                let sound = range > 0.0 && exponent > 0.0 && (0.0..=1000.0).contains(&speed);
                ensure!(sound, "walk needs speed from 0, range and exponent above 0");
                let loss = PathLoss { range, exponent };
                ensure!(x < range, "nothing is read {x} m away; give points below {range} m");
                walk = Some(Walk { from: x, speed, loss });
            }
        }
        let counts = matches!(self.over, Over::Links | Over::Shared | Over::Hidden);
        ensure!(whole || !counts, "{x} is not a number of links");
        ensure!((1..=16).contains(&count), "{count} links; give 1 to 16");
        ensure!(near <= count, "{near} of {count} links; give at most {count}");
        let given = self.ber.len();
        ensure!(given == 0 || given == count, "{given} bit error rates for {count} links");
        let rates = self.ber.iter().chain([&ber]);
        ensure!(
            rates.into_iter().all(|ber| (0.0..1000.0).contains(ber)),
            "a bit error rate is not from 0 to 1000 millionths"
        );
        let offered = self.neighbour_offered.map(rate_of).transpose()?;
        let leave = &self.neighbours_leave;
        ensure!(leave.len() <= count, "{} pairs leave {count} links", leave.len());
        ensure!(leave.iter().all(|at| *at >= 0.0), "neighbours leave before the start");
        let neighbours = |index| Neighbours {
            hidden: self.over == Over::Hidden,
            rate: offered,
            leave: leave.get(index).map(|at| Duration::from_secs_f64(*at)),
        };
        let link = |index| Link {
            rate: Bitrate::from_bps((self.rate * 1e6) as u64),
            ber: self.ber.get(index).unwrap_or(&ber) * MILLIONTH,
            neighbours: (index < near).then(|| neighbours(index)),
            walk,
        };
        Ok((0..count).map(link).collect())
    }

    fn traffic(&self) -> anyhow::Result<Traffic> {
        let payload = self.payload.unwrap_or(USUAL_PAYLOAD);
        let bytes = payload.saturating_add(UDP_HEADERS);
        match (self.traffic, self.offered, self.payload) {
            (TrafficName::Tcp, None, None) => {
                let flows = self.flows.unwrap_or(1);
                ensure!((1..=64).contains(&flows), "{flows} flows; give 1 to 64");
                Ok(Traffic::Tcp { flows })
            }
            (TrafficName::Tcp, ..) => {
                anyhow::bail!("TCP offers what it can; remove offered and payload")
            }
            _ if !PAYLOADS.contains(&payload) => {
                anyhow::bail!("payload {payload}; give {PAYLOADS:?} bytes")
            }
            (TrafficName::Udp, Some(offered), _) => {
                Ok(Traffic::Udp { rate: Some(rate_of(offered)?), bytes, room: self.room })
            }
            (TrafficName::Udp, None, _) => {
                anyhow::bail!("UDP needs offered, in Mbit/s for each link; or give greedy-udp")
            }
            (TrafficName::GreedyUdp, None, _) => {
                Ok(Traffic::Udp { rate: None, bytes, room: self.room })
            }
            (TrafficName::GreedyUdp, Some(_), _) => {
                anyhow::bail!("greedy UDP offers what finds room; remove offered")
            }
        }
    }
}

/// The rate of UDP that a plan gives in Mbit/s.
fn rate_of(offered: f64) -> anyhow::Result<Bitrate> {
    ensure!((0.1..1000.0).contains(&offered), "offered {offered}; give 0.1 to 1000");
    Ok(Bitrate::from_bps((offered * 1e6) as u64))
}
