//! The engine `netns`: the testbed on real Linux stacks, in real time.
//!
//! Each host is an anonymous network namespace, its radio a TAP interface. Between the TAPs stands
//! the same [`Medium`] as on the virtual engine, here driven by the machine's clock; its fill is
//! reported to the merging program of each host, as a driver would. Talkers and listeners are UDP
//! sockets; the time stamp in the payload and one clock give the one-way delay.
//!
//! One thread does it all in turn, sleeping in `ppoll` until a frame, an event or the next
//! deadline. Namespaces, interfaces and programs go with their descriptors, however the process
//! ends.

mod host;

use crate::voip::outcome::{Air, FlowReport, Outcome};
use crate::voip::point::{self, Point, Talk};
use host::Host;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use sheaf_medium::{Frame, Medium, RadioId, To};
use sheaf_netio::clock;
use sheaf_stage::{Duration, IndexedHeap, Instant, Stage};
use sheaf_voice::meter::Meter;
use sheaf_voice::packet::Stamp;
use std::net::SocketAddrV4;
use std::os::fd::BorrowedFd;

/// Time for packets that are on their way when the measurement ends.
const DRAIN: Duration = Duration::from_secs(2);

/// A talker and its listener.
struct Call {
    from: usize,
    to: SocketAddrV4,
    talk: Talk,
    number: u32,
    measured: u64,
    meter: Meter,
}

/// Runs one point in real time. Needs root.
pub fn run(point: &Point) -> anyhow::Result<Outcome> {
    let mut hosts = Vec::new();
    for index in 0..point.nodes.len() {
        hosts.push(Host::new(point, index)?);
    }
    let mut bed = Testbed::new(point, hosts)?;
    let end = point.measured().end + DRAIN;
    loop {
        let now = bed.now();
        if now >= end {
            break;
        }
        let deadline = bed.turn(now)?.min(end);
        bed.sleep_until(deadline)?;
    }
    bed.outcome()
}

struct Testbed<'a> {
    point: &'a Point,
    hosts: Vec<Host>,
    medium: Medium<Vec<u8>>,
    calls: Vec<Call>,
    due: IndexedHeap<Instant>,
    /// The machine's time at the testbed's time zero.
    start: Instant,
    buffer: Vec<u8>,
}

impl<'a> Testbed<'a> {
    fn new(point: &'a Point, hosts: Vec<Host>) -> anyhow::Result<Testbed<'a>> {
        let mut due = IndexedHeap::default();
        let mut calls = Vec::new();
        for (index, flow) in point.flows.iter().enumerate() {
            let mut talk = point.talk(index);
            due.set(index as u32, talk.next());
            calls.push(Call {
                from: flow.from,
                to: SocketAddrV4::new(point::address(flow.to), point::RTP_PORT),
                talk,
                number: 0,
                measured: 0,
                meter: Meter::default(),
            });
        }
        let medium = Medium::new(point.medium.clone(), point.seed)?;
        let (start, buffer) = (clock::now(), vec![0; 4096]);
        Ok(Testbed { point, hosts, medium, calls, due, start, buffer })
    }

    fn now(&self) -> Instant {
        Instant::ZERO + (clock::now() - self.start)
    }

    /// Does everything that is due. Returns the next deadline.
    fn turn(&mut self, now: Instant) -> anyhow::Result<Instant> {
        self.talk(now)?;
        self.send()?;
        self.transmitted()?;
        let mut next = Instant::MAX;
        for host in &mut self.hosts {
            let deadline = host.keep_time(clock::now())?;
            // By the machine's clock, which the program and its deadlines use.
            if let Some(deadline) = deadline {
                next = next.min(Instant::ZERO + (deadline - self.start));
            }
        }
        self.send()?;
        self.transmitted()?;
        self.listen()?;
        let talk = self.due.first().map(|(at, _)| at);
        let medium = self.medium.next_deadline();
        Ok([talk, medium].into_iter().flatten().fold(next, Instant::min))
    }

    fn talk(&mut self, now: Instant) -> anyhow::Result<()> {
        let measured = self.point.measured();
        let mut payload = vec![0; Stamp::len(self.point.codec)];
        while let Some((at, flow)) = self.due.first().filter(|(at, _)| *at <= now) {
            let call = &mut self.calls[flow as usize];
            // Stamped with the time it should leave: a late wake-up counts as delay.
            let stamp = Stamp { flow, number: call.number, sent: at };
            stamp.emit(self.point.codec, &mut payload);
            self.hosts[call.from].socket.send_to(&payload, call.to)?;
            call.measured += u64::from(at >= measured.start);
            call.number += 1;
            self.due.set(flow, call.talk.next());
        }
        Ok(())
    }

    /// Moves packets from the hosts into their radios' transmit queues.
    fn send(&mut self) -> anyhow::Result<()> {
        for index in 0..self.hosts.len() {
            while let Some(len) = self.hosts[index].tap.receive(&mut self.buffer)? {
                let frame = &self.buffer[..len];
                let Some(to) = host::destination(frame, self.hosts.len()) else { continue };
                let now = Instant::ZERO + (clock::now() - self.start);
                let from = RadioId(index as u32);
                let frame = Frame {
                    from,
                    to: To::Radio(RadioId(to as u32)),
                    bytes: host::ip_len(frame),
                    payload: frame.to_vec(),
                };
                if self.medium.enqueue(frame, now).is_err() {
                    self.finished(index);
                }
            }
        }
        Ok(())
    }

    /// Hands the frames that the medium has finished with to the receivers, and reports to the
    /// senders.
    fn transmitted(&mut self) -> anyhow::Result<()> {
        let now = self.now();
        while let Some(done) = self.medium.dequeue(now) {
            for receiver in done.receivers.iter() {
                self.hosts[receiver.0 as usize].tap.send(&done.frame.payload)?;
            }
            self.finished(done.frame.from.0 as usize);
        }
        Ok(())
    }

    fn finished(&mut self, index: usize) {
        let limit = self.medium.limit(RadioId(index as u32));
        self.hosts[index].finished(limit, clock::now());
    }

    fn listen(&mut self) -> anyhow::Result<()> {
        let from = self.point.measured().start;
        for host in &self.hosts {
            let mut bytes = [0; 512];
            while let Some(len) = host.hear(&mut bytes)? {
                let Some(stamp) = Stamp::parse(&bytes[..len]) else { continue };
                let now = Instant::ZERO + (clock::now() - self.start);
                if let Some(call) = self.calls.get_mut(stamp.flow as usize)
                    && stamp.sent >= from
                {
                    call.meter.arrived(stamp, now);
                }
            }
        }
        Ok(())
    }

    fn sleep_until(&self, deadline: Instant) -> anyhow::Result<()> {
        let raw = self.hosts.iter().flat_map(Host::fds);
        // SAFETY: the hosts keep these descriptors open beyond the call.
        let borrowed = raw.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) });
        let mut fds: Vec<_> = borrowed.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        let timeout = TimeSpec::from_duration(deadline - self.now());
        match ppoll(&mut fds, Some(timeout), None) {
            Ok(_) | Err(nix::Error::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn outcome(self) -> anyhow::Result<Outcome> {
        let mut outcome = Outcome { air: Air::of(&self.medium), ..Outcome::default() };
        for call in &self.calls {
            outcome.flows.push(FlowReport::new(self.point.codec, &call.meter, call.measured));
        }
        for host in &self.hosts {
            outcome.aggregation.add(&host.stats()?);
        }
        Ok(outcome)
    }
}
