//! Raw frames into a veth pair, and what comes out of them.

use super::{A, B, MAC_A, MAC_B, Pair};
use nix::sys::socket::{setsockopt, sockopt};
use sheaf_netio::packet::PacketSocket;
use sheaf_netio::poller::Poller;
use sheaf_netio::{clock, ip};
use sheaf_stage::Duration;
use sheaf_wire::ethernet;
use sheaf_wire::ip::Ip;
use sheaf_wire::meta::Outer;
use std::net::{IpAddr, Ipv6Addr};

pub const A6: Ipv6Addr = Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, 1);
pub const B6: Ipv6Addr = Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, 2);
pub const V4: Outer = Outer::V4 { src: A, dst: B };
pub const V6: Outer = Outer::V6 { src: A6, dst: B6 };
pub const LINK: Outer = Outer::Link { src: MAC_A, dst: MAC_B };
const MAX_FRAME: usize = 4096;
/// Bytes of memory for captured frames: a full backlog (1000) of the largest, with room to spare.
const CAPTURE: usize = 16 << 20;
/// Longer than any frame takes to arrive on a machine that does other things, too.
const LONG: Duration = Duration::from_secs(10);

/// A pair with IPv6, and a raw socket on either side.
pub struct Wire {
    pub pair: Pair,
    pub from: PacketSocket,
    pub to: PacketSocket,
}

impl Wire {
    pub fn new() -> Wire {
        let pair = Pair::new();
        for (host, ours, theirs) in [(&pair.a, 1, 2), (&pair.b, 2, 1)] {
            host.run(|| {
                std::fs::write("/proc/sys/net/ipv6/conf/eth0/disable_ipv6", "0")?;
                // The largest meta packet is larger than Ethernet's usual frame.
                ip::run("link set eth0 mtu 2100")?;
                ip::run(&format!("addr add fd09::{ours}/64 dev eth0 nodad"))?;
                let link = format!("lladdr 02:00:00:00:09:0{theirs}");
                ip::run(&format!("neigh add fd09::{theirs} {link} dev eth0"))
            })
            .unwrap();
        }
        let raw = |host: &sheaf_netio::netns::Namespace| {
            host.run(|| PacketSocket::open(ip::index("eth0")?)).unwrap()
        };
        let (from, to) = (raw(&pair.a), raw(&pair.b));
        setsockopt(&to, sockopt::RcvBufForce, &CAPTURE).unwrap();
        // Each CPU has a backlog of its own: from another one the marker could overtake.
        stay_on_one_cpu();
        Wire { pair, from, to }
    }

    /// Sends `packet` from A to B; returns what came out of it, in order: IP packets, and other
    /// payloads behind their EtherTypes.
    pub fn split(&self, packet: &[u8]) -> Vec<Vec<u8>> {
        let frame = framed(packet);
        self.from.send(&frame).unwrap();
        let mut heard = Vec::new();
        // Behind the first marker everything has been split, behind the second all has arrived.
        for number in 0..2 {
            let marker = [&MAC_B[..], &MAC_A, &[0x88, 0xb6, number], &[0; 45]].concat();
            self.from.send(&marker).unwrap();
            self.hear_until(&marker, |bytes| {
                // Not what the hosts' stacks send (neighbour discovery), and not the meta packet.
                if bytes[..6] == frame[..6] && bytes[6..12] == MAC_A && *bytes != frame[..] {
                    let ethertype = u16::from_be_bytes([bytes[12], bytes[13]]);
                    // The IP layer cuts off what follows the packet.
                    heard.push(match ethernet::is_ip(ethertype) {
                        true => Ip::parse(&bytes[14..]).unwrap().bytes().to_vec(),
                        false => bytes[12..].to_vec(),
                    });
                }
            });
        }
        heard
    }

    fn hear_until(&self, marker: &[u8], mut each: impl FnMut(&[u8])) {
        let mut poller = Poller::default();
        poller.add(&self.to);
        let mut buffer = [0; MAX_FRAME];
        loop {
            let Some(len) = self.to.receive(&mut buffer).unwrap() else {
                poller.wait(Some(LONG)).unwrap();
                assert!(poller.readable(0), "the marker arrives");
                continue;
            };
            if buffer[..15] == marker[..15] {
                return;
            }
            each(&buffer[..len]);
        }
    }

    /// Waits until B's local routing table has `address`, or no longer: the kernel changes it for
    /// IPv6 a moment after the command has returned.
    pub fn until_routed(&self, address: &str, present: bool) {
        let family = if address.contains(':') { "-6" } else { "-4" };
        let table = format!("{family} route show table local");
        let give_up = clock::now() + LONG;
        loop {
            let routes = self.pair.b.run(|| ip::output(&table)).unwrap();
            if routes.contains(&format!("local {address} ")) == present {
                return;
            }
            assert!(clock::now() < give_up, "{address} in the table ({present}): {routes}");
            std::thread::yield_now();
        }
    }

    /// Runs `work` in B with the number of its interface.
    pub fn on_b<T: Send>(&self, work: impl FnOnce(u32) -> Result<T, sheaf_bpf::Error> + Send) -> T {
        self.pair.b.run(|| work(ip::index("eth0")?).map_err(std::io::Error::other)).unwrap()
    }
}

pub fn stay_on_one_cpu() {
    run_on(&[0]);
}

pub fn run_on(numbers: &[usize]) {
    let mut cpus = nix::sched::CpuSet::new();
    numbers.iter().for_each(|number| cpus.set(*number).unwrap());
    nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &cpus).unwrap();
}

/// The frame of `packet` from A: to B, or to the group that the packet is for. What begins as
/// format 2 does has no header of IP.
pub fn framed(packet: &[u8]) -> Vec<u8> {
    let to = match Ip::parse(packet).map(|packet| packet.destination()) {
        Ok(IpAddr::V4(v4)) if v4.is_multicast() => {
            let [_, a, b, c] = v4.octets();
            [1, 0, 0x5e, a & 0x7f, b, c]
        }
        Ok(IpAddr::V6(v6)) if v6.is_multicast() => {
            let [.., a, b, c, d] = v6.octets();
            [0x33, 0x33, a, b, c, d]
        }
        _ => MAC_B,
    };
    let kind = match packet[0] >> 4 {
        0 => ethernet::FRAMES,
        _ => ethernet::of_ip(packet),
    };
    [&to[..], &MAC_A, &kind.to_be_bytes(), packet].concat()
}
