//! Two hosts with a bottleneck between them, under a virtual clock.
#![allow(dead_code, reason = "each test file uses a part of it")]

use sheaf_stage::{Duration, Instant};
use sheaf_tcp::{Algorithm, Config, Flow, Host};
use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;

pub const MS: Duration = Duration::from_millis(1);
pub const SENDER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
pub const RECEIVER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
/// Bytes of data in a packet of 1500 bytes with time stamps.
pub const SEGMENT: u64 = 1448;

/// Fate of a packet on its way, beside the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Pass,
    Lose,
    Twice,
    Later(Duration),
}

/// One direction: a queue in front of a rate, then a delay.
pub struct Pipe {
    /// Bit/s; unlimited where it is `None`.
    pub rate: Option<u64>,
    pub delay: Duration,
    /// Packets that wait at most.
    pub limit: usize,
    free: Instant,
    departures: VecDeque<Instant>,
    under_way: BTreeMap<(Instant, u64), Vec<u8>>,
    number: u64,
    pub dropped: u64,
}

impl Pipe {
    pub fn new(rate: Option<u64>, delay: Duration, limit: usize) -> Pipe {
        Pipe {
            rate,
            delay,
            limit,
            free: Instant::ZERO,
            departures: VecDeque::new(),
            under_way: BTreeMap::new(),
            number: 0,
            dropped: 0,
        }
    }

    fn send(&mut self, packet: Vec<u8>, extra: Duration, now: Instant) {
        while self.departures.front().is_some_and(|at| *at <= now) {
            self.departures.pop_front();
        }
        let mut departure = now;
        if let Some(rate) = self.rate {
            if self.departures.len() >= self.limit {
                self.dropped += 1;
                return;
            }
            let time = Duration::from_nanos(packet.len() as u64 * 8_000_000_000 / rate);
            departure = self.free.max(now) + time;
            self.free = departure;
            self.departures.push_back(departure);
        }
        self.number += 1;
        self.under_way.insert((departure + self.delay + extra, self.number), packet);
    }
}

/// The direction from the sender, or back to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Out,
    Back,
}

/// Two hosts and the way between them.
pub struct World {
    pub now: Instant,
    pub sender: Host,
    pub receiver: Host,
    pub out: Pipe,
    pub back: Pipe,
    /// Packets that left each way.
    pub packets: [u64; 2],
}

impl World {
    pub fn new(config: Config, flows: u16, out: Pipe) -> World {
        let back = Pipe::new(None, out.delay, 0);
        World {
            now: Instant::ZERO,
            sender: Host::sender(config, SENDER, RECEIVER, flows, 1),
            receiver: Host::receiver(config, RECEIVER, flows, 2),
            out,
            back,
            packets: [0; 2],
        }
    }

    /// A path without a bottleneck.
    pub fn perfect(config: Config, delay: Duration) -> World {
        World::new(config, 1, Pipe::new(None, delay, 0))
    }

    pub fn sent(&self) -> Flow {
        self.sender.flows()[0]
    }

    pub fn got(&self) -> Flow {
        self.receiver.flows()[0]
    }

    /// Runs to `end`, or until nothing happens any more. `touch` sees each packet that leaves, and
    /// its number in that direction from 1 on; it may change it.
    pub fn run(&mut self, end: Instant, mut touch: impl FnMut(Way, u64, &mut Vec<u8>) -> Fate) {
        loop {
            self.drain(&mut touch);
            let pipes = [&self.out, &self.back];
            let arrivals = pipes.into_iter().filter_map(|pipe| pipe.under_way.keys().next());
            let deadlines = [self.sender.next_deadline(), self.receiver.next_deadline()];
            let all = arrivals.map(|(at, _)| *at).chain(deadlines.into_iter().flatten());
            let Some(next) = all.min().filter(|next| *next <= end) else { break };
            assert!(next > self.now, "after draining nothing is due");
            self.now = next;
            // Each packet is answered before the next one is looked at, as in a kernel.
            while self.deliver() {
                self.drain(&mut touch);
            }
        }
        self.now = end;
    }

    fn drain(&mut self, touch: &mut impl FnMut(Way, u64, &mut Vec<u8>) -> Fate) {
        for way in [Way::Out, Way::Back] {
            let (host, pipe) = match way {
                Way::Out => (&mut self.sender, &mut self.out),
                Way::Back => (&mut self.receiver, &mut self.back),
            };
            while let Some(mut packet) = host.dequeue(self.now) {
                self.packets[way as usize] += 1;
                match touch(way, self.packets[way as usize], &mut packet) {
                    Fate::Pass => pipe.send(packet, Duration::ZERO, self.now),
                    Fate::Lose => {}
                    Fate::Twice => {
                        pipe.send(packet.clone(), Duration::ZERO, self.now);
                        pipe.send(packet, Duration::ZERO, self.now);
                    }
                    Fate::Later(extra) => pipe.send(packet, extra, self.now),
                }
            }
        }
    }

    /// Hands over a packet that has arrived. Returns whether there was one.
    fn deliver(&mut self) -> bool {
        let first = |pipe: &Pipe| pipe.under_way.keys().next().copied();
        let (out, back) = (first(&self.out), first(&self.back));
        let due = out.into_iter().chain(back).min().filter(|(at, _)| *at <= self.now);
        let Some(due) = due else { return false };
        let (host, pipe) = if out == Some(due) {
            (&mut self.receiver, &mut self.out)
        } else {
            (&mut self.sender, &mut self.back)
        };
        let packet = pipe.under_way.remove(&due).expect("it is there");
        // Refused packets are counted by the host.
        let _ = host.enqueue(packet, self.now);
        true
    }
}

/// Nothing happens to packets.
pub fn untouched(_: Way, _: u64, _: &mut Vec<u8>) -> Fate {
    Fate::Pass
}

pub fn transfer_of(bytes: u64, control: Algorithm) -> Config {
    Config { bytes: Some(bytes), control, ..Config::default() }
}

pub fn endless(control: Algorithm) -> Config {
    Config { control, ..Config::default() }
}

/// Bytes of data in a packet, and the place of its first one as a sequence number.
pub fn data(packet: &[u8]) -> (usize, u32) {
    let header = 20 + usize::from(packet[32] >> 4) * 4;
    let number = u32::from_be_bytes(packet[24..28].try_into().unwrap());
    (packet.len() - header, number)
}
