//! Plans of one emulated link: tests, rates and delays, and the programs that shape it.

use super::reply::Replies;
use crate::experiment::Engine;
use crate::fault::Fault;
use crate::measured::SweepPoint;
use crate::plan_file::PlanFile;
use crate::tcp::Congestion;
use crate::tool::kind::Tool;
use serde::{Deserialize, Serialize};
use sheaf_baseline::{interface, netem};
use sheaf_emulator::config::ETHERNET_MTU;
use sheaf_stage::{Bitrate, Duration};
use sheaf_wire::ethernet::HEADER_LEN;

/// A plan of this kind.
pub type Plan = PlanFile<Scenario, Treatment>;

/// UDP payload of a test packet, as Iperf has it.
pub const PAYLOAD: usize = 1470;
/// The same with its UDP header. The thesis' rates "with headers" are of this length: its token
/// bucket counts 1512 bytes a packet, and 10 Mbit/s × 1478 / 1512 are the 9.78 of table 4.2.
pub const DATAGRAM: usize = PAYLOAD + 8;
/// The same with UDP and IP headers: UiO divides by it to get the length of a queue.
pub const PACKET: usize = PAYLOAD + 28;
/// An echo request with its IP header: 56 bytes of payload, as ping sends them.
pub const ECHO: usize = 84;
/// Packets of one point at most: the arrival of each is kept until the end.
const MOST: f64 = 1e8;
/// UDP is offered at this multiple of the rate, in payload as Iperf counts it.
pub const OFFERED: f64 = 1.2;
/// Round-trip time by which the length of a queue is reckoned where less is set (UiO).
const LEAST_RTT: Duration = Duration::from_millis(1);
/// Packets in the queue of a link without a rate, where none waits.
const UNBOUNDED_QUEUE: u64 = 1000;
/// Most overhead that leaves room in the bucket for a frame of 1514 bytes.
const MOST_OVERHEAD: u64 = netem::BURST - 1514;
/// The shortest queue: with one place, a packet would find none while the one before is being sent,
/// and the link would stand idle.
const LEAST_QUEUE: u64 = 2;
/// Time after its round-trip time from which a packet counts as lost.
const PATIENCE: Duration = Duration::from_secs(2);
/// Least payload of a stream's packets: MGEN's header has 28 bytes.
const LEAST_STREAM: usize = 32;
/// Most payload of a stream's packets, which leaves no fragments with an MTU of 1500.
const MOST_STREAM: usize = 1472;

/// A test and its sweep over round-trip times.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// The traffic over the link.
    pub test: Test,
    /// The program that makes the traffic, on real stacks alone; the lab itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<Tool>,
    /// Time in ms between two packets of a stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<f64>,
    /// Bytes of UDP payload in each packet of a stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<usize>,
    /// The link's rate in Mbit/s; unbounded where it is not given.
    pub rate: Option<f64>,
    /// Packets in the queue; rate × RTT / 1498 where it is not given.
    pub limit: Option<u64>,
    /// The same by point of the sweep: round-trip time in ms, and packets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<(f64, u64)>,
    /// Bytes that the rate counts beside the Ethernet frame of each packet; none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overhead: Option<u8>,
    /// Packets lost at random, each way, in per cent; none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// Congestion control of TCP; cubic.
    #[serde(default, skip_serializing_if = "Congestion::is_default")]
    pub tcp: Congestion,
    /// The time that the host takes which replies to pings, under the virtual clock; none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replies: Option<Replies>,
    /// Round-trip times in ms.
    pub sweep: Vec<f64>,
    /// Names of the treatments to compare.
    pub treatments: Vec<String>,
}

/// The traffic over the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Test {
    /// UDP at 120 % of the rate.
    Udp,
    /// Echo requests every 10 ms.
    Ping,
    /// One bulk transfer by TCP.
    Tcp,
    /// UDP packets of one size at equal distances, below the rate.
    Stream,
}

impl Test {
    /// Its name in plans.
    pub fn name(self) -> &'static str {
        match self {
            Test::Udp => "udp",
            Test::Ping => "ping",
            Test::Tcp => "tcp",
            Test::Stream => "stream",
        }
    }
}

/// Tests whose traffic `tool` makes.
fn tests_of(tool: Tool) -> &'static [Test] {
    match tool {
        Tool::Ping => &[Test::Ping],
        Tool::Iperf3 => &[Test::Tcp, Test::Stream],
        Tool::Mgen | Tool::Ditg => &[Test::Stream],
    }
}

/// A treatment: the program that makes the link.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Treatment {
    /// Its name.
    pub name: String,
    /// Program that makes the link.
    pub shaper: Shaper,
    /// Most bytes that `sheaf emulate` sends at once after a late wake-up (`burst`); no bound.
    /// Under the virtual clock no wake-up is late, so such a treatment is for real stacks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u64>,
}

impl Treatment {
    /// Whether it exists on `engine` for `scenario`.
    fn runs_on(&self, engine: Engine, scenario: &Scenario) -> bool {
        let late = self.burst.is_none() || engine == Engine::Netns;
        late && self.shaper.runs_on(engine, scenario)
    }

    /// Cause and remedy where its bound on bursts does not fit `scenario`.
    fn burst_fault(&self, scenario: &Scenario) -> Option<String> {
        let (name, burst) = (&self.name, self.burst?);
        let ours = matches!(self.shaper, Shaper::TwoQueues | Shaper::OneQueue);
        if !ours || scenario.rate.is_none() {
            return Some(format!(
                "burst of {name} is for shaper = \"two-queues\" or \"one-queue\", and for a rate; \
                 remove it, or add rate = 10"
            ));
        }
        let least = (ETHERNET_MTU + HEADER_LEN) as u64 + scenario.overhead.map_or(0, u64::from);
        let message = format!("burst of {name} is less than a frame; give burst = {least} or more");
        (burst < least).then_some(message)
    }
}

/// The program that makes a link of a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shaper {
    /// Our emulator: `sheaf emulate` on real interfaces, its stage in virtual time.
    TwoQueues,
    /// The same with packets under way counted against the limit, as NetEm does (`single`).
    OneQueue,
    /// NetEm of Linux 3.2 with a token bucket of 1540 bytes, in one queue: in virtual time. On real
    /// interfaces the kernel's token bucket with such a bucket, and `sheaf emulate` for the delay.
    Tbf,
    /// An interface at its line rate, in virtual time.
    Interface,
    /// Nothing: the bare path of real interfaces; in virtual time that of a host that takes its
    /// time.
    None,
}

impl Shaper {
    /// Whether it exists on `engine` for `scenario`.
    fn runs_on(self, engine: Engine, scenario: &Scenario) -> bool {
        match (self, engine) {
            (Shaper::TwoQueues | Shaper::OneQueue, _) => true,
            // A delay behind a real token bucket makes two queues of it, which TCP can tell.
            (Shaper::Tbf, Engine::Netns) => scenario.test != Test::Tcp,
            (Shaper::Tbf | Shaper::Interface, Engine::Virtual) => true,
            (Shaper::Interface, Engine::Netns) => false,
            (Shaper::None, Engine::Netns) => true,
            // A bare path without anything has nothing to measure.
            (Shaper::None, Engine::Virtual) => scenario.replies.is_some(),
        }
    }

    /// Whether it is a published system, which has a rate and loses nothing at random.
    fn is_published(self) -> bool {
        matches!(self, Shaper::Tbf | Shaper::Interface)
    }
}

/// One point, worked out.
#[derive(Clone, Debug)]
pub struct Point {
    /// The traffic.
    pub test: Test,
    /// The program that makes the traffic; the lab itself where it is `None`.
    pub tool: Option<Tool>,
    /// Time between two packets of a stream.
    pub stream_interval: Duration,
    /// Bytes of UDP payload in each packet of a stream.
    pub bytes: usize,
    /// Program that makes the link.
    pub shaper: Shaper,
    /// The link's rate.
    pub rate: Option<Bitrate>,
    /// The round-trip time set; half of it lies on each way.
    pub rtt: Duration,
    /// Packets in the queue.
    pub limit: u64,
    /// Most bytes that `sheaf emulate` sends at once after a late wake-up.
    pub burst: Option<u64>,
    /// Bytes that the rate counts beside the Ethernet frame of each packet.
    pub overhead: u8,
    /// Share of the packets that are lost at random, each way, 0..1.
    pub loss: f64,
    /// Time before anything is measured.
    pub warm_up: Duration,
    /// Time that is measured.
    pub duration: Duration,
    /// Congestion control of the bulk transfer.
    pub tcp: Congestion,
    /// The time that the host takes which replies to pings.
    pub replies: Replies,
    /// Seed of all randomness.
    pub seed: u64,
}

impl Point {
    /// The time between two packets: of a stream its own, of the UDP test that of 120 % of the
    /// rate, without a rate of 100 Mbit/s.
    pub fn interval(&self) -> Duration {
        if self.test == Test::Stream {
            return self.stream_interval;
        }
        let rate = self.rate.map_or(100e6, |rate| rate.as_bps() as f64);
        Duration::from_secs_f64(PAYLOAD as f64 * 8.0 / (rate * OFFERED))
    }

    /// Bytes that the rate counts for a test packet: its Ethernet frame and the overhead, or what
    /// it takes on the line of an interface.
    pub fn counted(&self) -> usize {
        match self.shaper {
            Shaper::Interface => PACKET + interface::LINE as usize,
            _ => PACKET + HEADER_LEN + usize::from(self.overhead),
        }
    }

    /// Round trip of a ping over an ideal link: the time set, and what sending takes both ways. A
    /// token bucket lets single packets pass at once.
    pub fn echo(&self) -> Duration {
        let bytes = (ECHO + HEADER_LEN) as u64 + u64::from(self.overhead);
        let sending = match (self.shaper, self.rate) {
            (Shaper::TwoQueues | Shaper::OneQueue, Some(rate)) => 2 * rate.time_for(bytes),
            (Shaper::Interface, Some(rate)) => 2 * rate.time_for(ECHO as u64 + interface::LINE),
            _ => Duration::ZERO,
        };
        self.rtt + sending
    }

    /// Payload of a stream, bit/s.
    pub fn stream_rate(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.stream_interval.as_secs_f64()
    }

    /// Time after which a packet that has not arrived counts as lost.
    pub fn patience(&self) -> Duration {
        self.rtt + PATIENCE
    }

    /// Warm-up and measurement.
    pub fn whole(&self) -> Duration {
        self.warm_up + self.duration
    }
}

impl Plan {
    /// The treatments of `scenario` that exist on `engine`.
    pub fn treatments_of(&self, scenario: &Scenario, engine: Engine) -> Vec<&Treatment> {
        let named =
            |name: &String| self.treatments.iter().find(|treatment| treatment.name == *name);
        let found = scenario.treatments.iter().filter_map(named);
        found.filter(|treatment| treatment.runs_on(engine, scenario)).collect()
    }

    /// The point to run at `sweep_point`; `None` where the plan has no such scenario or treatment.
    pub fn point(&self, sweep_point: &SweepPoint) -> Option<Point> {
        let scenario = self.scenarios.iter().find(|one| one.name == sweep_point.scenario)?;
        let treatment = self.treatments.iter().find(|one| one.name == sweep_point.treatment)?;
        let rtt = Duration::from_secs_f64(sweep_point.x / 1e3);
        Some(Point {
            test: scenario.test,
            tool: scenario.tool,
            stream_interval: Duration::from_secs_f64(scenario.interval.unwrap_or_default() / 1e3),
            bytes: scenario.bytes.unwrap_or(PAYLOAD),
            shaper: treatment.shaper,
            rate: scenario.rate.map(|rate| Bitrate::from_bps((rate * 1e6).round() as u64)),
            rtt,
            limit: scenario.queue(sweep_point.x),
            burst: treatment.burst,
            overhead: scenario.overhead.unwrap_or(0),
            loss: scenario.loss.unwrap_or(0.0) / 100.0,
            warm_up: Duration::from_secs_f64(self.head.warm_up),
            duration: Duration::from_secs_f64(self.head.duration),
            tcp: scenario.tcp,
            replies: scenario.replies.unwrap_or_default(),
            seed: self.head.seed,
        })
    }

    /// Checks that the plan can be run.
    pub(super) fn check_links(&self) -> Result<(), Fault> {
        for scenario in &self.scenarios {
            let fault = |key, message: &str| Err(Fault::scenario(&scenario.name, message).at(key));
            for name in &scenario.treatments {
                let treatment = self.treatments.iter().find(|treatment| treatment.name == *name);
                let Some(treatment) = treatment else {
                    let message =
                        format!("no treatment {name:?}; add [[treatment]] name = {name:?}");
                    return fault("treatments", &message);
                };
                let published = treatment.shaper.is_published();
                if published && (scenario.rate.is_none() || scenario.loss.is_some()) {
                    let message =
                        format!("{name} has a rate and no loss; add rate = 10, or remove loss");
                    return fault("treatments", &message);
                }
                let overhead = scenario.overhead.map_or(0, u64::from);
                if let Some(message) = treatment.burst_fault(scenario) {
                    return fault("treatments", &message);
                }
                if treatment.shaper == Shaper::Tbf && overhead > MOST_OVERHEAD {
                    let message = format!(
                        "the bucket of {name} holds {} bytes; give overhead = {MOST_OVERHEAD} at \
                         most",
                        netem::BURST
                    );
                    return fault("overhead", &message);
                }
            }
            match scenario.rate {
                Some(rate) if !(0.01..=10_000.0).contains(&rate) => {
                    return fault("rate", "rate is in Mbit/s; give 0.01 to 10000");
                }
                None if scenario.test == Test::Udp => {
                    return fault("test", "a test with UDP needs a rate; add rate = 10");
                }
                _ => {}
            }
            let mut limits = scenario.limits.iter().map(|(_, limit)| *limit).chain(scenario.limit);
            if limits.any(|limit| limit == 0) {
                return fault(
                    "limit",
                    "a queue of no packet carries nothing; give limit = 2 or more",
                );
            }
            if !(0.0..100.0).contains(&scenario.loss.unwrap_or(0.0)) {
                return fault("loss", "loss is in per cent; give 0 to below 100");
            }
            match scenario.replies {
                Some(replies) if !replies.is_possible() => {
                    let message = "replies take 0 to 10000 ms, and a share of 0 to 100 % is late; \
                                   give such numbers";
                    return fault("replies", message);
                }
                Some(_) if scenario.test != Test::Ping => {
                    return fault("replies", "replies are to pings; add test = \"ping\"");
                }
                _ => {}
            }
            if let Some((key, message)) = scenario.source_fault(self.head.duration) {
                return fault(key, &message);
            }
            if scenario.sweep.is_empty() {
                return fault("sweep", "the sweep is empty; give round-trip times in ms");
            }
            if !scenario.sweep.iter().all(is_rtt) {
                return fault("sweep", "the sweep is of round-trip times in ms; give 0 to 10000");
            }
            let seconds = self.head.warm_up + self.head.duration;
            let rate = match scenario.test {
                Test::Stream => 0.0,
                _ => scenario.rate.unwrap_or_default() * 1e6 * OFFERED,
            };
            if rate * seconds / 8.0 / PAYLOAD as f64 > MOST {
                let message = "these are over 100 million packets; lower its rate or the duration";
                return fault("rate", message);
            }
        }
        let points = self.head.points.iter().chain([&self.head.quick.points]).flatten();
        if let Some(wrong) = points.into_iter().find(|rtt| !is_rtt(rtt)) {
            let message = format!("{wrong} is not a round-trip time in ms; give 0 to 10000");
            return Err(Fault::quick("points", message));
        }
        Ok(())
    }
}

/// Whether a round-trip time in ms is in the range of the lab.
fn is_rtt(ms: &f64) -> bool {
    (0.0..=10_000.0).contains(ms)
}

impl Scenario {
    /// Key, cause and remedy where its stream or its tool cannot be had for `duration` seconds.
    fn source_fault(&self, duration: f64) -> Option<(&'static str, String)> {
        match (self.test, self.interval, self.bytes) {
            (Test::Stream, Some(interval), Some(bytes)) => {
                if !(0.1..=1e4).contains(&interval) {
                    return Some(("interval", "interval is in ms; give 0.1 to 10000".to_owned()));
                }
                if !(LEAST_STREAM..=MOST_STREAM).contains(&bytes) {
                    let message = format!("bytes = {bytes}; give {LEAST_STREAM} to {MOST_STREAM}");
                    return Some(("bytes", message));
                }
            }
            (Test::Stream, ..) => {
                let message = "a stream needs interval = 20 (ms) and bytes = 172".to_owned();
                return Some(("test", message));
            }
            (_, None, None) => {}
            _ => {
                let message =
                    "interval and bytes are of a stream; add test = \"stream\"".to_owned();
                return Some(("test", message));
            }
        }
        let tool = self.tool?;
        if !tests_of(tool).contains(&self.test) {
            let names: Vec<_> =
                tests_of(tool).iter().map(|test| format!("{:?}", test.name())).collect();
            let message = format!(
                "{} makes no such traffic; give test = {}",
                tool.name(),
                names.join(" or ")
            );
            return Some(("tool", message));
        }
        // Its option -t takes an integer.
        (tool == Tool::Iperf3 && duration.fract() != 0.0).then(|| {
            let message = "iperf3 sends for whole seconds; give such a duration".to_owned();
            ("tool", message)
        })
    }

    /// Packets in the queue at a round-trip time in ms. Where the plan does not give them, those
    /// that the link carries in one round trip (UiO: rate × RTT / 1498 bytes, rounded up).
    fn queue(&self, rtt: f64) -> u64 {
        let given = self.limits.iter().find(|(at, _)| *at == rtt).map(|(_, limit)| *limit);
        if let Some(limit) = given.or(self.limit) {
            return limit;
        }
        let Some(rate) = self.rate else { return UNBOUNDED_QUEUE };
        let seconds = (rtt / 1e3).max(LEAST_RTT.as_secs_f64());
        let packets = (rate * 1e6 * seconds / 8.0 / PACKET as f64).ceil();
        (packets as u64).max(LEAST_QUEUE)
    }
}

#[cfg(test)]
mod tests {
    use crate::plan::Plan;

    #[test]
    fn queues_are_as_long_as_the_thesis_has_them() {
        let queues = |name: &str| -> Vec<Vec<u64>> {
            let Plan::Link(plan) = Plan::find(name).unwrap() else { panic!("it is of a link") };
            let limited = plan.scenarios.iter().filter(|scenario| scenario.rate.is_some());
            limited.map(|one| one.sweep.iter().map(|rtt| one.queue(*rtt)).collect()).collect()
        };
        let rates = [vec![2, 3, 13], vec![2, 17, 84], vec![17, 167, 834]];
        assert_eq!(queues("emulator-rate"), rates);
        assert_eq!(queues("emulator-latency"), [[17, 84, 334]]);
        assert_eq!(queues("emulator-tcp"), [[17, 84, 334]]);
    }
}
