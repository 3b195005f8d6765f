//! The engine on real Linux stacks, in real time.
//!
//! Each station is an anonymous network namespace with one interface per radio (radio.rs). Between
//! them stand the same channels as on the virtual engine, driven by the machine's clock; in the
//! namespaces run `sheaf trunk` and Linux's own TCP. As on hardware, a frame counts against its
//! socket until it is on the air, so the trunk reads the fill of the radios.
//!
//! One thread moves frames, sleeping in `ppoll` until a frame or the next deadline; TCP runs on
//! threads of its own. Latency is that of small probes, because the kernel's TCP takes no stamps.
//! Namespaces, interfaces and services end with this process, however it ends.

mod bulk;
mod radio;
mod station;

use super::air::{self, Moving};
use super::outcome::{Meter, Outcome};
use super::point::{Point, Traffic, Treatment};
use crate::experiment::Tools;
use radio::IN_HAND;
use sheaf_medium::{Frame, Medium, RadioId, To};
use sheaf_netio::clock;
use sheaf_netio::poller::Poller;
use sheaf_stage::{Duration, Instant, Stage};
use sheaf_wire::ethernet::HEADER_LEN;
use station::Station;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Time between probes.
const PROBE: Duration = Duration::from_millis(50);

/// Runs one point in real time. Needs root.
///
/// # Errors
/// Fails when the testbed cannot be built, or when a service ends.
pub fn run(point: &Point, tools: &Tools) -> anyhow::Result<Outcome> {
    let Traffic::Tcp { flows } = point.traffic else {
        anyhow::bail!("UDP runs under the virtual clock only");
    };
    let mut bed = Bed::new(point, tools)?;
    let probes =
        bed.stations[..2].iter().map(Station::probe).collect::<anyhow::Result<Vec<_>>>()?;
    let probe = Probe::new(point, probes);
    let stop = AtomicBool::new(false);
    let (start, measured, control) = (bed.start, point.measured(), point.tcp);
    let pairs = bed.stations.chunks(2).enumerate();
    let pairs: Vec<_> =
        pairs.map(|(pair, ends)| (pair, ends[0].namespace(), ends[1].namespace())).collect();
    std::thread::scope(|scope| {
        let mut meters = Vec::new();
        for (pair, near, far) in pairs {
            let flows = if pair == 0 { flows } else { 1 };
            for flow in 0..flows {
                let (stop, measured) = (&stop, measured.clone());
                let (near, far) = (Arc::clone(&near), Arc::clone(&far));
                scope.spawn(move || bulk::send(&near, flow, control, stop));
                let meter = scope.spawn(move || bulk::receive(&far, flow, start, measured, stop));
                meters.push((pair, meter));
            }
        }
        let outcome = bed.run(probe);
        stop.store(true, Ordering::Relaxed);
        let mut outcome = outcome?;
        for (pair, meter) in meters {
            let meter = meter.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            if pair == 0 {
                outcome.add(&meter.finish());
            }
        }
        Ok(outcome)
    })
}

/// Channels, stations, and the clock of the testbed.
struct Bed {
    channels: Vec<Channel>,
    stations: Vec<Station>,
    /// The machine's time at the testbed's time zero.
    start: Instant,
    end: Instant,
    buffer: Vec<u8>,
}

struct Channel {
    medium: Medium<Vec<u8>>,
    moving: Option<Moving>,
    /// The station and the interface of each radio.
    owners: Vec<(usize, usize)>,
}

impl Bed {
    fn new(point: &Point, tools: &Tools) -> anyhow::Result<Bed> {
        let scheduler = match point.treatment {
            Treatment::Single => None,
            Treatment::Trunk(scheduler) => Some(scheduler),
            Treatment::Published(_) => anyhow::bail!("trunks of papers run in virtual time only"),
        };
        let mut stations = Vec::new();
        for end in 0..2 {
            stations.push(Station::new(point.links.len(), point.queue, end, scheduler, tools)?);
        }
        let mut channels = Vec::new();
        for (index, link) in point.links.iter().enumerate() {
            let mut owners = vec![(0, index), (1, index)];
            if link.neighbours.is_some() {
                for end in 0..2 {
                    owners.push((stations.len(), 0));
                    stations.push(Station::new(1, point.queue, end, None, tools)?);
                }
            }
            let moving = link.walk.map(|walk| Moving::new(walk, point.measured().start));
            channels.push(Channel { medium: air::medium(point, index)?, moving, owners });
        }
        let (start, end) = (clock::now(), point.measured().end);
        Ok(Bed { channels, stations, start, end, buffer: vec![0; 4096] })
    }

    fn now(&self) -> Instant {
        Instant::ZERO + (clock::now() - self.start)
    }

    /// Moves frames until the measurement is over.
    fn run(&mut self, mut probe: Probe) -> anyhow::Result<Outcome> {
        loop {
            let now = self.now();
            if now >= self.end {
                break;
            }
            // Frames that have left make room for those that wait.
            self.move_frames()?;
            self.take_frames()?;
            let next = self.move_frames()?;
            probe.turn(self.now())?;
            let until = next.min(probe.next).min(self.end);
            let mut poller = Poller::default();
            poller.add(&probe.sockets[1]);
            // A radio whose channel has enough frames is not read: its frames wait at the station.
            for Channel { medium, owners, .. } in &self.channels {
                for (radio, (station, interface)) in owners.iter().enumerate() {
                    if medium.waiting(RadioId(radio as u32)) < IN_HAND {
                        poller.add(&self.stations[*station].radios[*interface]);
                    }
                }
            }
            poller.wait(Some(until.saturating_since(self.now())))?;
        }
        let mut outcome = probe.meter.finish();
        (outcome.late, outcome.timer) = self.stations[1].trunk_stats()?.unwrap_or_default();
        Ok(outcome)
    }

    /// Takes frames from the hosts as far as the channels have room; the rest waits at the
    /// stations.
    fn take_frames(&mut self) -> anyhow::Result<()> {
        let start = self.start;
        for Channel { medium, owners, .. } in &mut self.channels {
            for (radio, (station, interface)) in owners.iter().enumerate() {
                let station = &self.stations[*station];
                let from = RadioId(radio as u32);
                while medium.waiting(from) < IN_HAND {
                    let received = station.radios[*interface].receive(&mut self.buffer)?;
                    let Some(len) = received else { break };
                    let frame = &self.buffer[..len];
                    if !station.is_for_peer(frame) {
                        continue;
                    }
                    let to = RadioId(radio as u32 ^ 1);
                    let bytes = (len - HEADER_LEN) as u32;
                    let now = Instant::ZERO + (clock::now() - start);
                    let payload = frame.to_vec();
                    let frame = Frame { from, to: To::Radio(to), bytes, payload };
                    // There is room: fewer than IN_HAND wait.
                    let _ = medium.enqueue(frame, now);
                }
            }
        }
        Ok(())
    }

    /// Hands over the frames that have arrived. Returns the next deadline.
    fn move_frames(&mut self) -> anyhow::Result<Instant> {
        let mut next = Instant::MAX;
        for Channel { medium, moving, owners } in &mut self.channels {
            let now = Instant::ZERO + (clock::now() - self.start);
            if let Some(moving) = moving {
                moving.step(medium, now);
                next = next.min(moving.next_deadline());
            }
            while let Some(done) = medium.dequeue(now) {
                if let Some(to) = done.receivers.iter().next() {
                    let (station, interface) = owners[to.0 as usize];
                    self.stations[station].radios[interface].send(&done.frame.payload)?;
                }
            }
            next = medium.next_deadline().map_or(next, |at| at.min(next));
        }
        Ok(next)
    }
}

/// Small packets that carry the time at which they were sent.
struct Probe {
    sockets: Vec<UdpSocket>,
    next: Instant,
    number: u32,
    from: Instant,
    meter: Meter,
}

impl Probe {
    fn new(point: &Point, sockets: Vec<UdpSocket>) -> Probe {
        let measured = point.measured();
        let from = measured.start;
        Probe { sockets, next: from, number: 0, from, meter: Meter::new(measured, 1) }
    }

    /// Sends the probes that are due, and reads those that arrived.
    fn turn(&mut self, now: Instant) -> anyhow::Result<()> {
        while self.next <= now {
            let mut bytes = [0; 12];
            bytes[..4].copy_from_slice(&self.number.to_be_bytes());
            bytes[4..].copy_from_slice(&now.as_nanos().to_be_bytes());
            // A full or missing interface loses the probe, which shows as one that did not arrive.
            if self.sockets[0].send_to(&bytes, station::probe_address()).is_ok() {
                self.meter.sent(now);
            }
            self.number += 1;
            self.next += PROBE;
        }
        let mut bytes = [0; 64];
        loop {
            match self.sockets[1].recv(&mut bytes) {
                Ok(12) => {
                    let number = u32::from_be_bytes(bytes[..4].try_into()?);
                    let sent = Instant::from_nanos(u64::from_be_bytes(bytes[4..12].try_into()?));
                    if sent >= self.from {
                        self.meter.packet(0, number, sent, now);
                    }
                }
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}
