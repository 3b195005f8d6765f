//! The testbed: client, access point, provider and server in namespaces of their own.
//!
//! ```text
//! client eth0 ── lan  access point  wan ── near  provider  far ── eth0 server
//!                      sheaf window             sheaf emulate
//! ```
//!
//! The provider has the bottleneck and the distance: `sheaf emulate` carries every frame between
//! its two interfaces, through the pipe with the rate and then through that of the server's
//! address, which has the delay. The server has an address for each round-trip time.

use crate::experiment::Tools;
use crate::home::plan::{CapacityName, DirectionName, FULL_FRAME, QueueName, Scenario, Treatment};
use crate::program::{Schedule, Service};
use anyhow::{Context, ensure};
use sheaf_daemon::emulate::Status;
use sheaf_daemon::report::Interface;
use sheaf_netio::ip;
use sheaf_netio::netns::Namespace;
use std::process::Command;

/// Address of the client.
pub const CLIENT: &str = "10.8.0.1";

/// The hosts, connected; services on them end with this value.
pub struct Testbed {
    /// The host that requests data.
    pub client: Namespace,
    /// The host that has the data.
    pub server: Namespace,
    access: Namespace,
    provider: Namespace,
    emulate: Service,
    window: Option<Service>,
    tools: Tools,
}

/// The server's address for round-trip time number `class`.
pub fn server(class: usize) -> String {
    format!("10.8.1.{}", class + 2)
}

impl Testbed {
    /// Connects the hosts and starts the services.
    pub fn new(
        scenario: &Scenario,
        treatment: &Treatment,
        tools: &Tools,
    ) -> anyhow::Result<Testbed> {
        let [client, access, provider, server] =
            [Namespace::new()?, Namespace::new()?, Namespace::new()?, Namespace::new()?];
        let (inside, middle, outside) = (client.path(), provider.path(), server.path());
        access.run(|| {
            ip::run(&format!("link add lan type veth peer name eth0 netns {inside}"))?;
            ip::run(&format!("link add wan type veth peer name near netns {middle}"))?;
            up("lan", &["10.8.0.2/24".to_owned()])?;
            up("wan", &["10.8.1.1/24".to_owned()])?;
            std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")
        })?;
        // Time stamps take 12 bytes of a segment.
        let mss = scenario.segment.map_or(String::new(), |bytes| format!(" advmss {}", bytes + 12));
        client.run(|| {
            up("eth0", &[format!("{CLIENT}/24")])?;
            ip::run(&format!("route add default via 10.8.0.2{mss}"))
        })?;
        provider.run(|| {
            ip::run(&format!("link add far type veth peer name eth0 netns {outside}"))?;
            std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1")?;
            up("near", &[])?;
            up("far", &[])
        })?;
        server.run(|| {
            let classes = 0..scenario.rtts.len();
            up("eth0", &classes.map(|class| self::server(class) + "/24").collect::<Vec<_>>())?;
            ip::run(&format!("route add default via 10.8.1.1{mss}"))
        })?;
        if treatment.queue == QueueName::Tbf {
            token_bucket(&provider, "add", scenario, treatment)?;
        }
        let words = ["emulate", "link", "near", "far", "--rules", "/dev/stdin"].map(str::to_owned);
        let rules = rules(scenario, treatment);
        let emulate = tools.start(&provider, &words, &rules, Schedule::RealTime)?;
        let window = match &treatment.window {
            None => None,
            Some(words) => {
                let mut line = ["window", "dev", "wan"].map(str::to_owned).to_vec();
                line.extend(window(scenario, treatment, words));
                Some(tools.start(&access, &line, "", Schedule::RealTime)?)
            }
        };
        let tools = tools.clone();
        Ok(Testbed { client, server, access, provider, emulate, window, tools })
    }

    /// Gives the bottleneck `rate` Mbit/s; packets that wait in it stay.
    pub fn change(
        &self,
        scenario: &Scenario,
        treatment: &Treatment,
        rate: f64,
    ) -> anyhow::Result<()> {
        let scenario = scenario.with_rate(rate);
        if treatment.queue == QueueName::Tbf {
            return token_bucket(&self.provider, "change", &scenario, treatment);
        }
        let link = bottleneck(&scenario, treatment);
        let mut words = vec!["emulate", "change", "link", "near", "pipe", "bottleneck"];
        words.extend(link.split(' '));
        self.tools.run(&self.provider, &words).map(drop)
    }

    /// Whether `sheaf window` runs.
    pub fn is_controlled(&self) -> bool {
        self.window.is_some()
    }

    /// Packets that the bottleneck dropped, and packets that wait in it now.
    pub fn bottleneck(&self) -> anyhow::Result<(u64, u64)> {
        let words = ["emulate", "show", "near", "--json"];
        let report: Status = self.tools.report(&self.provider, &words)?;
        let link = report.links.get("pipe bottleneck").context("the bottleneck is not shown")?;
        let inside = link.rate_queue_packets + link.delay_line_packets;
        let dropped = link.offered_packets.saturating_sub(link.delivered_packets + inside);
        Ok((dropped, link.rate_queue_packets))
    }

    /// The capacity that `sheaf window` assumes, bit/s; NaN without window control.
    pub fn capacity(&self) -> anyhow::Result<f64> {
        if self.window.is_none() {
            return Ok(f64::NAN);
        }
        let words = ["show", "dev", "wan", "--json"];
        let shown: Vec<Interface> = self.tools.report(&self.access, &words)?;
        let window = shown.into_iter().find_map(|interface| interface.window);
        let totals = window.context("sheaf show lists no window control")?.totals;
        Ok(totals.first().map_or(f64::NAN, |total| total.capacity))
    }

    /// Checks that every service still runs.
    pub fn check(&mut self) -> anyhow::Result<()> {
        self.emulate.check()?;
        self.window.as_mut().map_or(Ok(()), Service::check)
    }
}

fn up(dev: &str, addresses: &[String]) -> std::io::Result<()> {
    for address in addresses {
        ip::run(&format!("addr add {address} dev {dev}"))?;
    }
    ip::run(&format!("link set {dev} up"))
}

/// The kernel's token bucket filter where bulk data leaves the provider: with a burst of two
/// packets. To `change` it is the same command as to `add` it.
fn token_bucket(
    provider: &Namespace,
    verb: &str,
    scenario: &Scenario,
    treatment: &Treatment,
) -> anyhow::Result<()> {
    let dev = if scenario.direction == DirectionName::Down { "near" } else { "far" };
    let limit = scenario.limit(treatment) * FULL_FRAME;
    let mut command = Command::new("tc");
    command.args(["qdisc", verb, "dev", dev, "root", "tbf", "rate"]);
    command.args([&kbit(scenario), "burst", "3200", "limit", &limit.to_string()]);
    provider.enter(&mut command);
    let output = command.output().context("tc is missing; install iproute2")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "tc takes no tbf: {}", said.trim());
    Ok(())
}

fn kbit(scenario: &Scenario) -> String {
    format!("{}kbit", scenario.kbps())
}

/// The bottleneck in the words of `sheaf emulate`.
fn bottleneck(scenario: &Scenario, treatment: &Treatment) -> String {
    let limit = scenario.limit(treatment);
    match treatment.queue {
        QueueName::Fifo => format!("rate {} limit {limit}", kbit(scenario)),
        QueueName::FqCodel => format!("rate {} queue fq_codel", kbit(scenario)),
        // The kernel's token bucket is the bottleneck.
        QueueName::Tbf => "limit 100000".to_owned(),
    }
}

/// Rules and pipes of the provider.
fn rules(scenario: &Scenario, treatment: &Treatment) -> String {
    let bottleneck = bottleneck(scenario, treatment);
    let mut text = format!("seed = 1\n[pipe.bottleneck]\nlink = \"{bottleneck}\"\n");
    for (class, rtt) in scenario.rtts.iter().enumerate() {
        for way in ["in", "out"] {
            text += &format!(
                "[pipe.{way}{class}]\nlink = \"delay {}us limit 100000\"\n",
                (rtt * 500.0).round()
            );
        }
    }
    let bulk = if scenario.direction == DirectionName::Down { "in" } else { "out" };
    for class in 0..scenario.rtts.len() {
        for (way, end) in [("in", "source"), ("out", "destination")] {
            let first = if way == bulk { "\"bottleneck\", " } else { "" };
            text += &format!(
                "[[rule]]\ndirection = \"{way}\"\n{end} = \"{}/32\"\n\
                 pipes = [{first}\"{way}{class}\"]\n",
                server(class)
            );
        }
    }
    text
}

/// The words for `sheaf window`.
fn window(scenario: &Scenario, treatment: &Treatment, words: &str) -> Vec<String> {
    let mut all: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    let (direction, keyword) = match scenario.direction {
        DirectionName::Down => ("download", "capacity"),
        DirectionName::Up => ("upload", "upload"),
    };
    let fixed = all.first().is_some_and(|word| word == "fixed");
    all.extend(["direction".to_owned(), direction.to_owned()]);
    match treatment.capacity {
        Some(CapacityName::Auto) => all.extend([keyword.to_owned(), "auto".to_owned()]),
        _ if fixed => {}
        _ => all.extend([keyword.to_owned(), kbit(scenario)]),
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;

    #[test]
    fn bulk_data_goes_through_the_bottleneck_and_every_address_has_its_delay() {
        let Plan::Home(plan) = Plan::find("home-ap").unwrap() else { panic!("a home") };
        let scenario = Scenario {
            rate: 4.0,
            rtts: vec![60.0, 20.0],
            direction: DirectionName::Down,
            ..plan.scenarios[0].clone()
        };
        let text = rules(&scenario, &plan.treatments[0]);
        let value: toml::Value = toml::from_str(&text).unwrap();
        assert_eq!(value["pipe"]["in1"]["link"].as_str(), Some("delay 10000us limit 100000"));
        assert!(value["pipe"]["bottleneck"]["link"].as_str().unwrap().starts_with("rate 4000kbit"));
        let rule = &value["rule"][2];
        assert_eq!(rule["source"].as_str(), Some("10.8.1.3/32"));
        let pipes: Vec<_> =
            rule["pipes"].as_array().unwrap().iter().map(|p| p.as_str().unwrap()).collect();
        assert_eq!(pipes, ["bottleneck", "in1"]);
    }

    #[test]
    fn the_words_for_window_control_are_those_of_its_treatment() {
        let Plan::Home(plan) = Plan::find("home-ap").unwrap() else { panic!("a home") };
        let words = |name: &str, direction| {
            let scenario = Scenario { rate: 4.0, direction, ..plan.scenarios[0].clone() };
            let treatment = plan.treatment(name).unwrap();
            window(&scenario, treatment, treatment.window.as_ref().unwrap()).join(" ")
        };
        assert_eq!(
            words("formula-2", DirectionName::Down),
            "formula 2 direction download capacity 4000kbit"
        );
        assert_eq!(words("auto", DirectionName::Up), "formula maxmin direction upload upload auto");
        assert!(!words("fixed", DirectionName::Down).contains("capacity"));
    }
}
