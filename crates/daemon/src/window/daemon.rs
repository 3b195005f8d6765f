//! `sheaf window` at work on one interface, until Ctrl-C: ten times a second shows the controllers
//! what the program counted and hands back their windows, and answers `sheaf show`.
//!
//! When this process ends, however it ends, the programs leave the interface and every connection
//! has its receiver's own windows again (sheaf_bpf::window).

use super::report::{self, Flow, LISTED, Report, Total};
use super::settings::Settings;
use crate::teller::{Service, Teller};
use anyhow::{Context, bail};
use nix::sys::signalfd::SignalFd;
use sheaf_bpf::Window;
use sheaf_netio::poller::Poller;
use sheaf_netio::{clock, ethtool, ip};
use sheaf_stage::{Bitrate, Duration, Instant};
use sheaf_window::{Controller, Direction, Totals};

/// How often windows are set.
const STEP: Duration = Duration::from_millis(100);

struct Daemon<'a> {
    settings: &'a Settings,
    ifindex: u32,
    window: Window,
    controllers: Vec<Controller>,
    started: Instant,
}

/// Runs until SIGINT or SIGTERM; returns the last report.
pub fn run(settings: &Settings) -> anyhow::Result<Report> {
    let dev = &settings.dev;
    let ifindex = ip::index(dev)?;
    sheaf_bpf::support()?;
    let speed = if settings.needs_speed() { Some(speed(dev)?) } else { None };
    let govern = |direction| Controller::new(settings.config(direction, speed), direction);
    let controllers: Vec<_> =
        settings.directions.iter().copied().map(govern).collect::<Result<_, _>>()?;
    let control = Teller::bind(Service::Window, dev).map_err(|_| {
        anyhow::anyhow!(
            "windows on {dev} are controlled already; stop the other `sheaf window` first"
        )
    })?;
    let signals = crate::signals::signals()?;
    let window = Window::attach(dev).with_context(|| format!("cannot control windows on {dev}"))?;
    let started = clock::now();
    let mut daemon = Daemon { settings, ifindex, window, controllers, started };
    daemon.window.step(&mut daemon.controllers, started)?;
    println!("controlling windows on {dev}: {}", daemon.summary());
    daemon.serve(&control, &signals)?;
    daemon.report()
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

impl Daemon<'_> {
    fn serve(&mut self, control: &Teller, signals: &SignalFd) -> anyhow::Result<()> {
        let mut poller = Poller::default();
        let (asked, ended) = (poller.add(control), poller.add(signals));
        let mut next = self.started + STEP;
        loop {
            let now = clock::now();
            if now >= next {
                self.step(now)?;
                // Rates are measured from step to step; two in a row would measure nothing.
                next += STEP;
                if next <= now {
                    next = now + STEP;
                }
            }
            poller.wait(Some(next.saturating_since(clock::now())))?;
            if poller.readable(ended) {
                return Ok(());
            }
            if poller.readable(asked) {
                control.tell(|| self.report());
            }
        }
    }

    fn step(&mut self, now: Instant) -> anyhow::Result<()> {
        let dev = &self.settings.dev;
        if ip::index(dev).ok() != Some(self.ifindex) {
            bail!("{dev} is gone; start `sheaf window` again when it is back");
        }
        Ok(self.window.step(&mut self.controllers, now)?)
    }

    /// What is governed, in a line.
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
        format!("formula {}, {}", self.settings.formula(), all.join(", "))
    }

    fn report(&mut self) -> anyhow::Result<Report> {
        let mut totals = Vec::new();
        for controller in &self.controllers {
            let passed = self.window.totals(controller.direction())?;
            totals.push(self.total(controller, passed));
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
        for (_, both) in self.window.quic()? {
            for (controller, total) in self.controllers.iter().zip(&mut totals) {
                total.marked += u64::from(both[controller.direction().index()].marked);
            }
        }
        flows.sort_unstable_by(|a, b| b.rate.total_cmp(&a.rate).then_with(|| a.from.cmp(&b.from)));
        flows.truncate(LISTED);
        let seconds = (clock::now() - self.started).as_secs_f64();
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
            packets: passed.packets,
            bytes: passed.wire,
            clamped: 0,
            marked: 0,
        }
    }
}
