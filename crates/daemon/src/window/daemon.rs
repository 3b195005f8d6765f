//! `sheaf window` at work on one interface, until Ctrl-C: shows the controllers what the program
//! counted and hands back their windows.
//!
//! When this process ends, however it ends, the programs leave the interface and every connection
//! has its receiver's own windows again (sheaf_bpf::window).

use super::air::Air;
use super::back::Back;
use super::report::{self, Flow, LISTED, Report, Total};
use super::settings::{Capacity, Settings};
use crate::control::{self, Kind, ServiceName};
use crate::reactor::{Parse, Reactor};
use crate::service::{Next, Service};
use crate::{already, descriptors, say};
use anyhow::{Context, bail, ensure};
use serde_json::Value;
use sheaf_bpf::Window;
use sheaf_netio::monitor::Monitor;
use sheaf_netio::poller::Poller;
use sheaf_netio::sysfs::Interfaces;
use sheaf_netio::{capability, clock, ethtool, ip};
use sheaf_stage::{Bitrate, Duration, Instant};
use sheaf_window::{Controller, Direction, Push, Totals};

/// Period in which windows are set.
const STEP: Duration = Duration::from_millis(100);
/// The same after some steps without a packet. What begins meanwhile has the windows of new flows.
const SILENT_STEP: Duration = Duration::from_millis(200);
/// Steps without a packet after which the longer period holds: a second, several round trips of
/// what might be under way. An idle interface still has a packet of the kernel's own now and then.
const SILENT_STEPS: u32 = 10;
/// Period in which is looked whether the interface is still there, besides when the kernel reports
/// a change.
const LOOK: Duration = Duration::from_secs(1);

/// Least queue that may stand on a trunk. It deals packets to several links, and a link carries
/// something only while packets wait for others: windows for the shortest round trip alone leave
/// the slower links empty (20 + 10 Mbit/s: 21 with 1 ms, 27 with 5 as without window control).
const TRUNK_SLACK: Duration = Duration::from_millis(5);

struct Daemon {
    settings: Settings,
    /// Queue that may stand, where the interface is a trunk's.
    trunk_slack: Option<Duration>,
    ifindex: u32,
    air: Air,
    /// Time of the last look at it, and whether there was news since.
    air_looked_at: Instant,
    air_news: bool,
    window: Window,
    /// The way back of acknowledgements' copies, where there is one.
    back: Option<Back>,
    controllers: Vec<Controller>,
    started: Instant,
    /// Time at which windows are set next.
    next: Instant,
    /// Time of the last look whether the interface is there.
    looked_at: Instant,
    monitor: Monitor,
    /// Number of the monitor in the poller.
    news: usize,
    /// The last look at the interface failed.
    blind: bool,
}

/// Runs until it is stopped; returns the last report.
pub fn run(settings: Settings, parse: Parse<Settings>) -> anyhow::Result<Report> {
    descriptors::require()?;
    let dev = settings.dev.clone();
    let ifindex = ip::index(&dev)?;
    sheaf_bpf::support()?;
    let trunk_slack = trunk_slack(&settings);
    let controllers = controllers(&settings, trunk_slack)?;
    let name = ServiceName::new(Kind::Window, &dev)?;
    let mut reactor = Reactor::new(name, &[]).map_err(|error| {
        let other = "controlled already; stop the other `sheaf window` first";
        already(error, format!("windows on {dev} are {other}"))
    })?;
    let mut window =
        Window::attach(&dev).with_context(|| format!("cannot control windows on {dev}"))?;
    let back = back(&settings, ifindex, &mut window);
    let started = clock::now();
    let mut daemon = Daemon {
        settings,
        trunk_slack,
        ifindex,
        air: Air::look(&Interfaces::default(), &dev, ifindex),
        air_looked_at: started,
        air_news: false,
        window,
        back,
        controllers,
        started,
        next: started + STEP,
        looked_at: started,
        monitor: Monitor::open()?,
        news: 0,
        blind: false,
    };
    daemon.show_air();
    daemon.show_clock();
    daemon.window.step(&mut daemon.controllers, started)?;
    // The maps are read and written by bpf(2) as long as windows are controlled.
    capability::keep_only(&sheaf_bpf::support::CAPABILITIES)?;
    say(&format!("controlling windows on {dev}: {}", daemon.summary()));
    if daemon.air.is_fair() {
        say(&format!(
            "{dev} is a radio with fair queues of its own: there is nothing to win for what waits \
             in them, only for a slower link behind it and for what comes in"
        ));
    }
    reactor.run(&mut daemon, parse)?;
    daemon.full_report(clock::now())
}

/// The way back of acknowledgements' copies, where data of both directions is governed: it is
/// uploads beside downloads that need a clock.
fn back(settings: &Settings, ifindex: u32, window: &mut Window) -> Option<Back> {
    if settings.directions.len() < Direction::BOTH.len() {
        return None;
    }
    let back = Back::open(&settings.dev, ifindex).and_then(|back| {
        window.attach_back(&settings.dev, back.name())?;
        Ok(back)
    });
    back.inspect_err(|error| {
        tracing::warn!("downloads and uploads at once will hold each other up: {error:#}");
    })
    .ok()
}

/// A controller for each direction that is governed.
fn controllers(
    settings: &Settings,
    trunk_slack: Option<Duration>,
) -> anyhow::Result<Vec<Controller>> {
    let dev = &settings.dev;
    let speed = match settings.needs_speed() {
        true => Some(speed(dev)?),
        false => None,
    };
    let govern = |direction| {
        let mut config = settings.config(direction, speed);
        config.slack = trunk_slack.unwrap_or(config.slack);
        Controller::new(config, direction)
    };
    Ok(settings.directions.iter().copied().map(govern).collect::<Result<_, _>>()?)
}

/// Queue that may stand where the interface is that of a `sheaf trunk`.
fn trunk_slack(settings: &Settings) -> Option<Duration> {
    let dev = &settings.dev;
    // Who cannot look takes it for another interface.
    let name = ServiceName::new(Kind::Trunk, dev).ok()?;
    control::services().ok()?.contains(&name).then(|| {
        let finds =
            |direction: &Direction| matches!(settings.capacity(*direction), Capacity::Auto { .. });
        if settings.directions.iter().any(finds) {
            tracing::warn!(
                "{dev} is a trunk, of which capacity auto finds about four fifths; give a RATE"
            );
        }
        settings.config.slack.max(TRUNK_SLACK)
    })
}

/// Returns the speed that interface `dev` reports.
fn speed(dev: &str) -> anyhow::Result<Bitrate> {
    let speed = ethtool::speed(dev).map_err(|error| {
        anyhow::anyhow!("cannot ask {dev} for its speed: {error}; give capacity RATE")
    })?;
    speed.with_context(|| {
        format!("{dev} does not tell its speed; give capacity RATE, or capacity auto")
    })
}

impl Service for Daemon {
    type Change = Settings;

    /// Changes of interfaces, copies, and time: the program counts by itself.
    fn interest(&mut self, poller: &mut Poller) {
        self.news = poller.add(&self.monitor);
        if let Some(back) = &mut self.back {
            back.interest(poller);
        }
    }

    fn turn(&mut self, now: Instant, poller: &mut Poller) -> anyhow::Result<Next> {
        let news = poller.readable(self.news);
        if news {
            self.monitor.drain();
        }
        if news || now - self.looked_at >= LOOK {
            self.looked_at = now;
            self.look()?;
        }
        // A radio may have come or gone. Most news are of neighbours, so they are not followed at
        // once.
        self.air_news |= news;
        if self.air_news && now - self.air_looked_at >= LOOK {
            (self.air_news, self.air_looked_at) = (false, now);
            self.air = Air::look(&Interfaces::default(), &self.settings.dev, self.ifindex);
            self.show_air();
        }
        if now >= self.next {
            self.window.step(&mut self.controllers, now)?;
            // Rates are measured from step to step; two in a row would measure nothing.
            let silent = self.window.is_silent(SILENT_STEPS);
            let step = if silent { SILENT_STEP } else { STEP };
            self.next += step;
            if self.next <= now {
                self.next = now + step;
            }
        }
        let copies = match self.back.as_mut().map(|back| back.turn(now, poller)) {
            Some(Ok(due)) => due,
            Some(Err(error)) => {
                self.lose_clock(&error);
                return Ok(Next::Refresh);
            }
            None => None,
        };
        Ok(Next::Wait(copies.map_or(self.next, |due| due.min(self.next))))
    }

    fn report(&mut self, now: Instant) -> anyhow::Result<Value> {
        Ok(serde_json::to_value(self.full_report(now)?)?)
    }

    /// The program and its table of flows stay; what was learned of the bottleneck is learned anew.
    fn change(&mut self, settings: Settings, _now: Instant) -> anyhow::Result<()> {
        ensure!(settings.dev == self.settings.dev, "dev: cannot change while running; restart");
        let same = settings.directions == self.settings.directions;
        ensure!(same, "direction: cannot change while running; restart");
        let trunk_slack = trunk_slack(&settings);
        self.controllers = controllers(&settings, trunk_slack)?;
        self.show_air();
        self.show_clock();
        (self.settings, self.trunk_slack) = (settings, trunk_slack);
        tracing::info!("{}: {}", self.settings.dev, self.summary());
        Ok(())
    }
}

impl Daemon {
    /// Shows the controllers whether acknowledgements take the air of a radio.
    fn show_air(&mut self) {
        let is_shared = self.air.is_shared();
        self.controllers.iter_mut().for_each(|controller| controller.observe_air(is_shared));
    }

    /// Shows the controllers whether copies of acknowledgements come back.
    fn show_clock(&mut self) {
        let is_there = self.back.is_some();
        self.controllers.iter_mut().for_each(|controller| controller.observe_clock(is_there));
    }

    /// The interface of copies is gone: windows open as acknowledgements come.
    fn lose_clock(&mut self, error: &std::io::Error) {
        let name = self.back.take().map(|back| back.name().to_owned()).unwrap_or_default();
        tracing::warn!(
            "{name} is gone ({error}): downloads and uploads at once will hold each other up; \
             start `sheaf window` again"
        );
        self.show_clock();
    }

    fn look(&mut self) -> anyhow::Result<()> {
        let dev = &self.settings.dev;
        let ifindex = ip::index(dev);
        match ifindex {
            Ok(index) if index == self.ifindex => self.blind = false,
            // Without a descriptor it cannot be seen, which does not mean that it is gone.
            Err(error) if ip::is_exhausted(&error) => {
                if !std::mem::replace(&mut self.blind, true) {
                    tracing::warn!("cannot see whether {dev} is there: {error}");
                }
            }
            _ => bail!("{dev} is gone; start `sheaf window` again when it is back"),
        }
        Ok(())
    }

    /// Line about what is governed.
    fn summary(&self) -> String {
        let capacity = |controller: &Controller| {
            let direction = controller.direction();
            let (name, capacity) = (report::name(direction), self.settings.capacity(direction));
            match capacity.name() {
                "auto" => format!("{name} capacity auto"),
                source => format!("{name} capacity {} ({source})", controller.capacity()),
            }
        };
        let all: Vec<_> = self.controllers.iter().map(capacity).collect();
        let slack = self.trunk_slack.map(|slack| format!("slack {slack:?} on a trunk, "));
        let (formula, slack) = (self.settings.formula(), slack.unwrap_or_default());
        let is_left_out = self.settings.config.push == Push::Auto && self.air.is_shared();
        let push = if is_left_out { ", no push beside a radio" } else { "" };
        format!("formula {formula}, {slack}{}{push}", all.join(", "))
    }

    fn full_report(&mut self, now: Instant) -> anyhow::Result<Report> {
        let mut totals = Vec::new();
        for controller in &self.controllers {
            let passed = self.window.totals(controller.direction())?;
            let paced = match controller.direction() {
                Direction::Out => self.window.copies()?,
                Direction::In => 0,
            };
            totals.push(Total { paced, ..self.total(controller, passed) });
        }
        let mut flows = Vec::new();
        for (key, connection) in self.window.flows() {
            for (controller, total) in self.controllers.iter().zip(&mut totals) {
                let direction = controller.direction();
                let half = connection.half(direction);
                total.clamped += u64::from(half.clamped);
                // A flow of the last moments was in no step yet.
                let status = controller.flow(&key).unwrap_or_default();
                if half.bytes > 0 {
                    flows.push(Flow::new(&key, direction, half, status));
                }
            }
        }
        flows.sort_unstable_by(|a, b| b.rate.total_cmp(&a.rate).then_with(|| a.from.cmp(&b.from)));
        flows.truncate(LISTED);
        let seconds = (now - self.started).as_secs_f64();
        Ok(Report { formula: self.settings.formula(), seconds, totals, flows })
    }

    fn total(&self, controller: &Controller, passed: Totals) -> Total {
        let (status, direction): (_, Direction) = (controller.status(), controller.direction());
        Total {
            direction: report::name(direction).to_owned(),
            capacity: controller.capacity().as_bps() as f64,
            source: self.settings.capacity(direction).name().to_owned(),
            usage: status.usage,
            active: status.active,
            flows: status.flows,
            queue_ms: status.queue.as_secs_f64() * 1e3,
            rpm: status.responsiveness.rpm(),
            added_ms: status.responsiveness.added().map(|added| added.as_secs_f64() * 1e3),
            grade: status.responsiveness.grade().map(str::to_owned),
            packets: passed.packets,
            bytes: passed.wire,
            clamped: 0,
            paced: 0,
            rest: self.settings.config.rest.name().to_owned(),
            rest_share: status.rest_share,
            competes: status.competes,
            marked: passed.marked,
            policed: passed.dropped,
        }
    }
}
