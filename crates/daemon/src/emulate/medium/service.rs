//! Moves frames between the interfaces and the channel, by the machine's clock.
//!
//! One thread. A turn hands over the frames that the channel has done with, then fills the device
//! queues of stations from their interfaces. An interface whose station has a full queue is neither
//! read nor waited for: its frames wait in the host, as above a driver that has stopped its queue.
//!
//! The channel computes every event at its own time, so that a late wake-up stretches no frame. It
//! does delay what hosts do next: they receive frames late, and a device queue may run empty
//! meanwhile. So lateness is measured at each frame, and a machine that falls behind says so.

use super::air::{Air, Done};
use super::radio;
use super::settings::Settings;
use crate::emulate::End;
use crate::emulate::capture::Capture;
use crate::emulate::settings::Run;
use crate::emulate::status::{LatenessMeter, Status};
use crate::service::{Next, Service};
use anyhow::Context;
use nix::libc;
use serde_json::Value;
use sheaf_netio::clock;
use sheaf_netio::poller::Poller;
use sheaf_netio::tap::Tap;
use sheaf_netio::timer::Alarm;
use sheaf_stage::{Duration, Instant};
use std::convert::Infallible;
use std::io;
use std::ops::Range;

/// Bytes of the largest frame of an interface.
const LARGEST: usize = 1 << 16;
/// A frame that is handed over so late was late for reasons of the machine: several times what an
/// idle one takes to wake up, and less than full device queues last at most rates.
const BEHIND: Duration = Duration::from_millis(10);

/// The stations at work.
pub struct Radios {
    air: Air,
    taps: Vec<Tap>,
    /// Names of the stations, and of their interfaces.
    stations: Vec<String>,
    interfaces: Vec<String>,
    /// Whether an interface may have more frames.
    ready: Vec<bool>,
    /// Frames that an interface did not take.
    refused: Vec<u64>,
    /// Numbers of the interfaces' descriptors.
    numbers: Range<usize>,
    alarm: Alarm,
    capture: Option<Capture>,
    lateness: LatenessMeter,
    behind: u64,
    place: String,
    seed: u64,
    started: Instant,
    buffer: Vec<u8>,
    deleted: Option<String>,
}

impl Radios {
    /// Makes the interfaces; the stations begin their paths now.
    pub fn new(settings: &Settings, run: &Run) -> anyhow::Result<Radios> {
        let mut taps = Vec::new();
        for station in &settings.stations {
            taps.push(radio::open(station)?);
        }
        let interfaces = settings.stations.iter().map(|one| one.interface.clone()).collect();
        let stations: Vec<_> = settings.stations.iter().map(|one| one.name.clone()).collect();
        let capture = match &run.pcap {
            None => None,
            Some(file) => {
                let names: Vec<_> = stations.iter().map(String::as_str).collect();
                Some(Capture::create(file, &names, true)?)
            }
        };
        let started = clock::now();
        let (phy, count) = (settings.channel.phy.name(), taps.len());
        Ok(Radios {
            air: Air::new(settings, started).context("the channel cannot exist")?,
            ready: vec![true; count],
            refused: vec![0; count],
            taps,
            stations,
            interfaces,
            numbers: 0..0,
            alarm: Alarm::new(run.spin),
            capture,
            lateness: LatenessMeter::new()?,
            behind: 0,
            place: format!("medium {} of {count} stations ({phy})", settings.name),
            seed: settings.seed,
            started,
            buffer: vec![0; LARGEST],
            deleted: None,
        })
    }

    /// The medium, for people.
    pub fn title(&self) -> String {
        format!("emulating {}", self.place)
    }

    /// Hands over what the channel has done with by `now`.
    fn deliver(&mut self, now: Instant) {
        while let Some(done) = self.air.next(now) {
            for receiver in done.receivers.iter() {
                let receiver = receiver.0 as usize;
                // An interface that is down takes nothing, as a radio that is off.
                if self.taps[receiver].send(&done.frame.payload).is_err() {
                    self.refused[receiver] += 1;
                }
            }
            self.take_note(&done);
            self.air.recycle(done);
        }
    }

    fn take_note(&mut self, done: &Done) {
        let late = clock::now().saturating_since(done.ended);
        self.lateness.record(late);
        if late > BEHIND {
            if self.behind == 0 {
                tracing::warn!(
                    "{} fell behind by {:.1} ms; let the machine do less beside it, or give \
                     --fifo 50",
                    self.place,
                    late.as_secs_f64() * 1e3
                );
            }
            self.behind += 1;
        }
        if let Some(capture) = &self.capture {
            let comment = comment(done, &self.stations);
            capture.transmitted(done.frame.from.0, done.ended, &done.frame.payload, comment);
        }
    }

    /// Fills the device queues.
    fn fill(&mut self, now: Instant) -> io::Result<()> {
        for (index, tap) in self.taps.iter().enumerate() {
            if !self.ready[index] {
                continue;
            }
            let receive = |buffer: &mut [u8]| tap.receive(buffer);
            let filled = self.air.fill(index, &mut self.buffer, now, receive);
            self.ready[index] = match filled {
                Ok(more) => more,
                Err(error) if error.raw_os_error() == Some(libc::EBADFD) => {
                    let (interface, station) = (&self.interfaces[index], &self.stations[index]);
                    self.deleted = Some(format!("{interface} of station {station}"));
                    return Ok(());
                }
                // The interface is down.
                Err(error) if error.raw_os_error() == Some(libc::EIO) => false,
                Err(error) => return Err(error),
            };
        }
        Ok(())
    }

    fn status(&mut self) -> Status {
        let now = clock::now();
        self.deliver(now);
        let mut stations: Vec<_> = self.air.status(now);
        for ((_, station), refused) in stations.iter_mut().zip(&self.refused) {
            station.refused_frames = *refused;
        }
        Status {
            place: self.title(),
            seed: self.seed,
            seconds: now.saturating_since(self.started).as_secs_f64(),
            stations: stations.into_iter().collect(),
            busy_ms: self.air.busy().as_secs_f64() * 1e3,
            behind: self.behind,
            uncaptured: self.capture.as_ref().map_or(0, Capture::missed),
            lateness: self.lateness.report(),
            ..Status::default()
        }
    }

    /// Ends the capture; returns what was done, and why it ended.
    pub fn finish(mut self) -> anyhow::Result<(Status, End)> {
        let status = self.status();
        if let Some(capture) = self.capture {
            capture.end()?;
        }
        Ok((status, self.deleted.map_or(End::Asked, End::Deleted)))
    }
}

/// Comment of a frame in a capture; `names` are those of the stations.
fn comment(done: &Done, names: &[String]) -> String {
    let took = done.ended.saturating_since(done.started).as_secs_f64() * 1e3;
    let fate = match done.result {
        Ok(()) => {
            let heard = done.receivers.iter().filter_map(|radio| names.get(radio.0 as usize));
            let heard: Vec<_> = heard.map(String::as_str).collect();
            format!("received by {}", heard.join(", "))
        }
        Err(reason) => format!("lost: {}", reason.name()),
    };
    format!("{fate}, {} retries ({took:.3} ms)", done.retries)
}

impl Service for Radios {
    type Change = Infallible;

    fn interest(&mut self, poller: &mut Poller) {
        let numbers: Vec<_> = self.taps.iter().map(|tap| poller.add(tap)).collect();
        let first = numbers.first().copied().unwrap_or_default();
        self.numbers = first..first + numbers.len();
    }

    fn turn(&mut self, now: Instant, _poller: &mut Poller) -> anyhow::Result<Next> {
        self.deliver(now);
        let now = clock::now();
        self.fill(now).context("cannot read an interface; start again")?;
        if self.deleted.is_some() {
            return Ok(Next::End);
        }
        // Frames that ended while the queues were filled have no deadline any more.
        self.deliver(now);
        Ok(Next::Wait(self.air.next_deadline()))
    }

    fn wait(&mut self, poller: &mut Poller, until: Instant) -> io::Result<()> {
        for index in 0..self.taps.len() {
            poller.pause(self.numbers.start + index, !self.air.has_room(index));
        }
        self.alarm.wait(poller, self.numbers.end, until)?;
        for index in 0..self.taps.len() {
            self.ready[index] |= poller.readable(self.numbers.start + index);
        }
        Ok(())
    }

    fn report(&mut self, _now: Instant) -> anyhow::Result<Value> {
        Ok(serde_json::to_value(self.status())?)
    }

    fn change(&mut self, change: Infallible, _now: Instant) -> anyhow::Result<()> {
        match change {}
    }
}
