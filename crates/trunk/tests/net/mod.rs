//! Hosts with addresses in virtual time, each with an end of a trunk or without one, and whoever
//! listens to the wire between them.

#![allow(dead_code, reason = "each test file uses its part")]

use sheaf_stage::{Duration, Instant};
use sheaf_trunk::{
    DeliveryMode, Endpoint, EndpointConfig, Key, LinkConfig, LinkId, Remote, Transmit,
};
use sheaf_wire::ip::example_udp;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

pub const MS: Duration = Duration::from_millis(1);
pub const SECOND: Duration = Duration::from_secs(1);
/// Links of each trunk.
pub const LINKS: u8 = 2;
/// Time between packets that each end of the trunk sends.
const PACE: Duration = Duration::from_millis(10);
/// Frames that the socket of a sleeping process holds.
const SOCKET: usize = 200;

pub type Address = u16;

/// A frame under way or seen on the wire.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Datagram {
    pub from: Address,
    pub to: Address,
    pub link: u8,
    pub bytes: Vec<u8>,
}

/// A host; hosts 0 and 1 send packets to each other.
pub struct Host {
    pub end: Option<Endpoint<Address>>,
    pub address: Address,
    pub asleep: bool,
    socket: Vec<Datagram>,
    /// Packets handed up, and when the last was.
    pub delivered: u64,
    pub delivered_at: Instant,
    /// The longest time without one since it was last forgotten.
    pub last: Vec<u8>,
}

pub struct Net {
    pub hosts: Vec<Host>,
    pub now: Instant,
    /// One way, on each link.
    pub delays: [Duration; LINKS as usize],
    pub talk: bool,
    /// Frames that were on the wire, where somebody listens.
    pub seen: Option<Vec<Datagram>>,
    wire: BinaryHeap<Reverse<(Instant, u64, Datagram)>>,
    count: u64,
    next_packet: Instant,
}

impl Net {
    pub fn new(addresses: &[Address]) -> Net {
        let host = |address: &Address| Host {
            end: None,
            address: *address,
            asleep: false,
            socket: Vec::new(),
            delivered: 0,
            delivered_at: Instant::ZERO,
            last: Vec::new(),
        };
        Net {
            hosts: addresses.iter().map(host).collect(),
            now: Instant::ZERO,
            delays: [10 * MS, 35 * MS],
            talk: true,
            seen: None,
            wire: BinaryHeap::new(),
            count: 0,
            next_packet: Instant::ZERO,
        }
    }

    /// Puts a datagram on the wire.
    pub fn send(&mut self, datagram: Datagram) {
        if let Some(seen) = &mut self.seen {
            seen.push(datagram.clone());
        }
        self.inject(datagram);
    }

    /// The same from somebody who does not record what it sends itself.
    pub fn inject(&mut self, datagram: Datagram) {
        self.count += 1;
        let at = self.now + self.delays[usize::from(datagram.link)];
        self.wire.push(Reverse((at, self.count, datagram)));
    }

    pub fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.drain();
            let awake = self.hosts.iter().filter(|host| !host.asleep);
            let due = awake.filter_map(|host| host.end.as_ref()?.next_deadline()).min();
            let wire = self.wire.peek().map(|Reverse((at, ..))| *at);
            let packet = self.talk.then_some(self.next_packet);
            let next = [due, wire, packet].into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= end) else { break };
            assert!(due.is_none_or(|due| due > self.now), "a deadline that has come");
            self.now = next.max(self.now);
            while let Some(Reverse((_, _, datagram))) =
                self.wire.peek().filter(|Reverse((at, ..))| *at <= self.now).cloned()
            {
                self.wire.pop();
                self.arrive(datagram);
            }
            if self.talk && self.next_packet <= self.now {
                self.next_packet = self.now + PACE;
                self.talk_once();
            }
        }
        self.now = end;
    }

    fn talk_once(&mut self) {
        for host in &mut self.hosts[..2] {
            if let Some(end) = host.end.as_mut().filter(|_| !host.asleep) {
                let packet = example_udp(&self.now.as_nanos().to_be_bytes().repeat(8));
                let _ = end.handle_packet(&packet, DeliveryMode::Order, self.now);
            }
        }
    }

    fn arrive(&mut self, datagram: Datagram) {
        let Some(host) = self.hosts.iter_mut().find(|host| host.address == datagram.to) else {
            return;
        };
        if host.asleep {
            if host.socket.len() < SOCKET {
                host.socket.push(datagram);
            }
            return;
        }
        if let Some(end) = &mut host.end {
            let Datagram { from, link, bytes, .. } = datagram;
            end.handle_frame(LinkId(link), Some(from), &bytes, self.now);
        }
    }

    pub fn drain(&mut self) {
        let mut bytes = Vec::new();
        for index in 0..self.hosts.len() {
            let host = &mut self.hosts[index];
            let from = host.address;
            if host.asleep {
                continue;
            }
            let Some(mut end) = host.end.take() else { continue };
            while let Some(Transmit { link, to }) = end.poll_transmit(self.now, &mut bytes) {
                let to = to.expect("every frame has an address");
                self.send(Datagram { from, to, link: link.0, bytes: bytes.clone() });
            }
            let host = &mut self.hosts[index];
            while let Some(packet) = end.poll_deliver(self.now) {
                host.delivered += 1;
                host.delivered_at = self.now;
                host.last = packet.to_vec();
            }
            host.end = Some(end);
        }
    }

    /// Stops a process for a while; what arrives meanwhile waits in its socket.
    pub fn sleep(&mut self, host: usize, time: Duration) {
        self.hosts[host].asleep = true;
        self.run(time);
        self.wake(host);
    }

    pub fn wake(&mut self, host: usize) {
        self.hosts[host].asleep = false;
        for datagram in std::mem::take(&mut self.hosts[host].socket) {
            self.arrive(datagram);
        }
    }

    /// Whether packets pass in both directions at every moment of the next `time`.
    pub fn flows(&mut self, time: Duration) -> bool {
        let end = self.now + time;
        let mut flows = true;
        while self.now < end {
            let before = [self.hosts[0].delivered, self.hosts[1].delivered];
            self.run(250 * MS);
            flows &= self.hosts[0].delivered > before[0] && self.hosts[1].delivered > before[1];
        }
        flows
    }

    pub fn end(&self, host: usize) -> &Endpoint<Address> {
        self.hosts[host].end.as_ref().expect("it runs")
    }
}

/// The key of every trunk that has one.
pub fn key() -> Key {
    Key::new([7; 32])
}

/// An end with these remotes, by link.
pub fn end(
    seed: u64,
    key: Option<Key>,
    remotes: [Remote<Address>; LINKS as usize],
) -> Endpoint<Address> {
    let config = EndpointConfig::default();
    let end = match key {
        Some(key) => Endpoint::with_key(config, seed, key),
        None => Endpoint::new(config, seed),
    };
    let mut end = end.unwrap();
    for remote in remotes {
        let id = end.add_link(LinkConfig::default()).unwrap();
        end.set_remote(id, remote);
    }
    end
}
