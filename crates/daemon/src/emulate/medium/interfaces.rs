//! Moves frames between the interfaces and the channel, by the machine's clock.
//!
//! One thread. A turn hands over the frames that the channel has done with, then fills the device
//! queues of stations from their interfaces. An interface whose station has a full queue is neither
//! read nor waited for: its frames wait in the host, as above a driver that has stopped its queue.
//!
//! The channel computes every event at its own time, so that a late wake-up stretches no frame. It
//! does delay what hosts do next: they receive frames late, and a device queue may run empty
//! meanwhile. So lateness is measured at each frame, and a machine that falls behind says so.

use super::air::Air;
use super::interface;
use super::records::Records;
use super::settings::Settings;
use super::stations::Stations;
use crate::emulate::End;
use crate::emulate::pcapng::LinkType;
use crate::emulate::settings::Run;
use crate::emulate::status::Status;
use crate::service::{Next, Service};
use anyhow::Context;
use nix::libc;
use serde_json::Value;
use sheaf_netio::clock;
use sheaf_netio::poller::Poller;
use sheaf_netio::tap::Tap;
use sheaf_netio::timer::Alarm;
use sheaf_stage::Instant;
use std::convert::Infallible;
use std::io;
use std::ops::Range;

/// Bytes of the largest frame of an interface.
const LARGEST: usize = 1 << 16;

/// The stations at work.
pub struct Interfaces {
    air: Air,
    taps: Vec<Tap>,
    /// Names of the interfaces.
    names: Vec<String>,
    /// Whether an interface may have more frames.
    ready: Vec<bool>,
    /// Frames that an interface did not take.
    refused: Vec<u64>,
    /// Numbers of the interfaces' descriptors.
    numbers: Range<usize>,
    alarm: Alarm,
    records: Records,
    buffer: Vec<u8>,
    deleted: Option<String>,
}

impl Interfaces {
    /// Makes the interfaces; the stations begin their paths now.
    pub fn new(settings: &Settings, run: &Run) -> anyhow::Result<Interfaces> {
        let (mut taps, mut names) = (Vec::new(), Vec::new());
        for station in &settings.stations {
            let interface = station.interface().context("a station has no interface")?;
            taps.push(interface::open(&station.name, interface)?);
            names.push(interface.name.clone());
        }
        let records = Records::new(settings, run, LinkType::Ethernet)?;
        let air = Air::new(settings, records.started).context("the channel cannot exist")?;
        Ok(Interfaces {
            air,
            ready: vec![true; taps.len()],
            refused: vec![0; taps.len()],
            taps,
            names,
            numbers: 0..0,
            alarm: Alarm::new(run.spin),
            records,
            buffer: vec![0; LARGEST],
            deleted: None,
        })
    }

    /// Hands over what the channel has done with by `now`.
    fn deliver(&mut self, now: Instant) {
        while let Some(done) = self.air.next(now) {
            for receiver in done.receivers.iter() {
                let receiver = receiver.0 as usize;
                // An interface that is down takes nothing, as a radio that is off.
                if self.taps[receiver].send(&done.frame.payload.bytes).is_err() {
                    self.refused[receiver] += 1;
                }
            }
            self.records.take_note(&done);
            self.air.recycle(done);
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
                    let (interface, station) = (&self.names[index], &self.records.stations[index]);
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
        self.records.status(stations, self.air.busy(), now)
    }
}

impl Stations for Interfaces {
    fn title(&self) -> String {
        self.records.title()
    }

    fn finish(mut self) -> anyhow::Result<(Status, End)> {
        let status = self.status();
        self.records.end()?;
        Ok((status, self.deleted.map_or(End::Asked, End::Deleted)))
    }
}

impl Service for Interfaces {
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
