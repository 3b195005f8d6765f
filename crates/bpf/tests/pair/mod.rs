//! Two hosts and a cable, with the programs on both ends. Needs root.
#![allow(dead_code, reason = "each test file uses its part")]

pub mod cable;
pub mod wire;

use sheaf_aggregate::{Config, Senders};
use sheaf_bpf::layout::{Hop, MergeConfig};
use sheaf_bpf::{Merge, Split, Ticker};
use sheaf_netio::ip;
use sheaf_netio::netns::Namespace;
use sheaf_wire::meta::Outer;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

pub const A: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
pub const B: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
pub const MAC_A: [u8; 6] = [2, 0, 0, 0, 9, 1];
pub const MAC_B: [u8; 6] = [2, 0, 0, 0, 9, 2];
pub const COOKIE: u64 = 0x5348_4541_4600_0001;

/// The next packet's length. A socket with a timeout ends a call early where the process was
/// stopped and goes on (signal(7)).
pub fn receive(socket: &UdpSocket, bytes: &mut [u8]) -> io::Result<usize> {
    loop {
        match socket.recv(bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Two hosts and a cable, on which only what a test sends is: without IPv6 hosts say nothing by
/// themselves.
pub struct Pair {
    pub a: Namespace,
    pub b: Namespace,
}

impl Pair {
    pub fn new() -> Pair {
        Pair::with_queues(1)
    }

    /// A's interface has `queues` transmit queues, by the hash of flows.
    pub fn with_queues(queues: usize) -> Pair {
        let (a, b) = (Namespace::new().unwrap(), Namespace::new().unwrap());
        let other = b.path();
        for host in [&a, &b] {
            let silent = || std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
            host.run(silent).unwrap();
        }
        a.run(|| {
            ip::run(&format!(
                "link add eth0 numtxqueues {queues} address 02:00:00:00:09:01 type veth \
                 peer name eth0 address 02:00:00:00:09:02 netns {other}"
            ))?;
            ip::run("addr add 10.9.0.1/24 dev eth0")?;
            ip::run("neigh add 10.9.0.2 lladdr 02:00:00:00:09:02 dev eth0")?;
            ip::run("link set eth0 up")
        })
        .unwrap();
        b.run(|| {
            ip::run("addr add 10.9.0.2/24 dev eth0")?;
            ip::run("neigh add 10.9.0.1 lladdr 02:00:00:00:09:01 dev eth0")?;
            ip::run("link set eth0 up")
        })
        .unwrap();
        Pair { a, b }
    }

    /// The merging program and its ticker on A, towards B.
    pub fn merge(&self, config: &Config) -> (Merge, Ticker) {
        let config = MergeConfig::new(config, COOKIE);
        self.a
            .run(|| {
                let mut merge = Merge::attach("eth0", config).map_err(io::Error::other)?;
                let hop = Hop::new(0, Outer::V4 { src: A, dst: B }, 500, 1500);
                merge.set_hop(MAC_B, hop).map_err(io::Error::other)?;
                Ok((merge, Ticker::new(ip::index("eth0")?, MAC_A, COOKIE)?))
            })
            .unwrap()
    }

    /// The splitter on B.
    pub fn split(&self, senders: &Senders) -> Split {
        let attach =
            || Split::attach("eth0", ip::index("eth0")?, senders, None).map_err(io::Error::other);
        self.b.run(attach).unwrap()
    }

    /// A socket on A that sends to the returned one on B.
    pub fn sockets(&self) -> (UdpSocket, UdpSocket) {
        let b = self.b.run(|| UdpSocket::bind((B, 5004))).unwrap();
        b.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let a = self.a.run(|| UdpSocket::bind((A, 0))).unwrap();
        a.connect((B, 5004)).unwrap();
        (a, b)
    }
}

/// The packet in a unicast frame of batman-adv (struct batadv_unicast_packet), without the Ethernet
/// header in front.
pub fn in_mesh(packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x40, 15, 50, 1];
    frame.extend_from_slice(&MAC_B);
    frame.extend_from_slice(&[2, 0, 0, 0, 7, 2]);
    frame.extend_from_slice(&[2, 0, 0, 0, 7, 1]);
    frame.extend_from_slice(&if packet[0] >> 4 == 6 { [0x86, 0xdd] } else { [8, 0] });
    frame.extend_from_slice(packet);
    frame
}
