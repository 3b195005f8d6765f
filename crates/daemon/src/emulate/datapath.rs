//! The service around one place: a cable, an interface, or a shell.
//!
//! One thread. A turn takes what has come, with the kernel's time stamps, so that the links reckon
//! with when a packet came and not with when this thread had time for it; gives out what is due;
//! and waits for the next departure or arrival ([`Alarm`]). A late wake-up delays the packets
//! that were due, and no others.

use super::carrier::{Carrier, Look, MEMORY, Tools};
use super::machine::{Change, Machine};
use super::place::Place;
use super::settings::Settings;
use super::status::Status;
use crate::service::{Next, Service, Stop};
use anyhow::Context;
use serde_json::Value;
use sheaf_netio::child::{self, Child};
use sheaf_netio::clock;
use sheaf_netio::poller::Poller;
use sheaf_netio::timer::Alarm;
use sheaf_netio::vnet_packet::State;
use sheaf_stage::{Duration, Instant};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

/// Reason why an emulation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It was asked to.
    Asked,
    /// The command inside has ended with this status.
    Command(u8),
    /// This interface went away.
    Gone(String),
    /// Somebody deleted this interface, which the emulation had made.
    #[cfg(feature = "medium")]
    Deleted(String),
}

/// How often interfaces are looked for, in case nobody told that they went, and buffers given back
/// that were not needed.
pub const LOOK: Duration = Duration::from_secs(1);
/// Turns after which signals and questions are looked at even when packets keep coming.
const TURNS: u32 = 32;

/// The service.
pub struct Datapath {
    carrier: Carrier,
    tools: Tools,
    /// The command of a shell, and its number among what is waited for.
    child: Option<Child>,
    child_number: Option<usize>,
    /// Numbers of the first port and behind the last descriptor.
    numbers: Range<usize>,
    alarm: Alarm,
    seed: u64,
    started: Instant,
    /// Time at which interfaces are looked for.
    look: Instant,
    turns: u32,
    /// The interface that went away.
    gone: Option<String>,
    /// The last look at the interfaces failed.
    blind: bool,
}

impl Service for Datapath {
    type Change = Change;

    fn interest(&mut self, poller: &mut Poller) {
        let mut add = |fd: BorrowedFd<'_>| poller.add(&fd);
        let ports: Vec<usize> = self.carrier.ports().iter().map(|port| add(port.as_fd())).collect();
        self.child_number = self.child.as_ref().map(|child| add(child.as_fd()));
        let first = ports.first().copied().unwrap_or_default();
        self.numbers = first..first + ports.len() + usize::from(self.child.is_some());
    }

    fn turn(&mut self, now: Instant, poller: &mut Poller) -> anyhow::Result<Next> {
        if self.child_number.is_some_and(|number| poller.readable(number)) {
            return Ok(Next::End);
        }
        if now >= self.look {
            if let Some(gone) = self.gone() {
                self.gone = Some(gone);
                return Ok(Next::End);
            }
            self.carrier.raise_detours();
            self.tools.rest();
            self.look = now + LOOK;
        }
        if self.carrier.take_in(&mut self.tools, now)? == State::Down {
            // Either it is down, and packets may come again, or it is gone.
            self.look = now;
        }
        self.carrier.give_out(&mut self.tools, clock::now());
        Ok(Next::Wait(self.carrier.next_deadline().min(self.look)))
    }

    /// Sleeps, then looks without sleeping; and does neither while all ports have packets.
    fn wait(&mut self, poller: &mut Poller, until: Instant) -> io::Result<()> {
        self.turns = self.turns.wrapping_add(1);
        if self.carrier.has_more() || until <= clock::now() {
            if !self.turns.is_multiple_of(TURNS) && self.carrier.all_have_more() {
                return Ok(());
            }
            poller.wait(Some(Duration::ZERO))?;
        } else {
            self.alarm.wait(poller, self.numbers.end, until)?;
        }
        let first = self.numbers.start;
        self.carrier.look(|port| poller.readable(first + port));
        Ok(())
    }

    fn report(&mut self, _now: Instant) -> anyhow::Result<Value> {
        Ok(serde_json::to_value(self.status())?)
    }

    fn change(&mut self, change: Change, now: Instant) -> anyhow::Result<()> {
        self.carrier.change(&change, now)?;
        self.carrier.give_out(&mut self.tools, now);
        tracing::info!("{}", self.summary());
        Ok(())
    }

    /// A shell ends by itself: Ctrl-C reaches it without us.
    fn stop(&mut self, cause: Stop) -> bool {
        if let (Some(child), Stop::Terminate) = (&self.child, cause) {
            child.terminate();
        }
        self.child.is_none()
    }
}

impl Datapath {
    /// Between the ports of `place`.
    pub fn new(
        place: Place,
        machine: Machine,
        child: Option<Child>,
        settings: &Settings,
    ) -> anyhow::Result<Datapath> {
        let mut carrier = Carrier::new(place, machine);
        if let Some(file) = &settings.run.pcap {
            carrier.capture(file)?;
        }
        let now = clock::now();
        Ok(Datapath {
            carrier,
            tools: Tools::new(MEMORY)?,
            child,
            child_number: None,
            numbers: 0..0,
            alarm: Alarm::new(settings.run.spin),
            seed: settings.seed,
            started: now,
            look: now + LOOK,
            turns: 0,
            gone: None,
            blind: false,
        })
    }

    /// Where it emulates, and what each link is set to.
    pub fn summary(&self) -> String {
        self.carrier.summary()
    }

    /// An interface that does not exist any more.
    fn gone(&mut self) -> Option<String> {
        let mut look = Look::default();
        let gone = look.lost(self.carrier.interfaces()).map(str::to_owned);
        self.blind = look.end(self.blind);
        gone
    }

    fn status(&mut self) -> Status {
        let mut status = Status {
            place: self.carrier.title(),
            seed: self.seed,
            seconds: (clock::now() - self.started).as_secs_f64(),
            lateness: self.tools.lateness().report(),
            ..Status::default()
        };
        self.carrier.add_to(&mut status);
        status
    }

    /// Lets packets go their old way and ends the capture; returns what was done, and why it ended.
    pub fn finish(mut self) -> anyhow::Result<(Status, End)> {
        let status = self.status();
        self.carrier.finish(&mut self.tools)?;
        let end = match (self.gone, self.child) {
            (Some(dev), _) => End::Gone(dev),
            (None, Some(child)) => {
                let status = child.wait().context("the command is lost")?;
                End::Command(child::shell_status(status))
            }
            (None, None) => End::Asked,
        };
        Ok((status, end))
    }
}
