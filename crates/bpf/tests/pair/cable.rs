//! The cable between two hosts: a way in that passes the merging program, and what comes out.

use super::{MAC_A, MAC_B, Pair};
use nix::sys::socket::{setsockopt, sockopt};
use sheaf_netio::ip;
use sheaf_netio::packet::PacketSocket;
use sheaf_netio::poller::Poller;
use sheaf_stage::Duration;
use sheaf_wire::{checksum, ethernet};

const MAX_FRAME: usize = 4096;

/// A way into host A's interface, and what is on the cable behind it.
pub struct Cable {
    pub into: PacketSocket,
    /// Its frames do not pass the hook.
    past: PacketSocket,
    behind: PacketSocket,
}

impl Cable {
    pub fn new(pair: &Pair) -> Cable {
        let open = || PacketSocket::open(ip::index("eth0")?);
        let [into, past] = [(); 2].map(|()| pair.a.run(open).unwrap());
        let bypass: libc::c_int = 1;
        sheaf_netio::socket::set_option(
            &past,
            libc::SOL_PACKET,
            libc::PACKET_QDISC_BYPASS,
            &bypass,
        )
        .unwrap();
        Cable { into, past, behind: pair.b.run(open).unwrap() }
    }

    /// Packets on the way in have this mark from now on.
    pub fn mark(&self, mark: u32) {
        setsockopt(&self.into, sockopt::Mark, &mark).unwrap();
    }

    /// All packets that are on the cable by now.
    pub fn packets(&self) -> Vec<Vec<u8>> {
        let marker = [&MAC_B[..], &MAC_A, &[0x88, 0xb6], &[0; 46]].concat();
        self.past.send(&marker).unwrap();
        let mut poller = Poller::default();
        poller.add(&self.behind);
        let (mut packets, mut buffer) = (Vec::new(), [0; MAX_FRAME]);
        loop {
            let Some(len) = self.behind.receive(&mut buffer).unwrap() else {
                poller.wait(Some(Duration::from_secs(10))).unwrap();
                assert!(poller.readable(0), "the marker arrives");
                continue;
            };
            if buffer[..14] == marker[..14] {
                return packets;
            }
            if buffer[6..12] == MAC_A {
                let bare = buffer[12..14] == ethernet::FRAMES.to_be_bytes();
                assert!(!bare || buffer[14] >> 4 == 0, "of its EtherType are frames of format 2");
                packets.push(buffer[14..len].to_vec());
            }
        }
    }
}

/// Marks for `max mark`: none, sizes that fit some packets, all or none, and bits that say nothing
/// of a size.
pub const MARKS: [u32; 12] = [
    0,
    0b11,
    1 << 2,
    20 << 2,
    100 << 2 | 0b11,
    150 << 2,
    300 << 2 | 0b01,
    700 << 2,
    0xfffc_0000 | 1000 << 2,
    2048 << 2,
    0xffff << 2,
    0xfffc_0003,
];

/// The frame of `packet` from A.
pub fn framed(to: [u8; 6], packet: &[u8]) -> Vec<u8> {
    let kind: [u8; 2] = if packet[0] >> 4 == 6 { [0x86, 0xdd] } else { [8, 0] };
    [&to[..], &MAC_A, &kind, packet].concat()
}

/// A lone packet that passes leaves its checksum to the device; nothing else may differ.
pub fn finished(mut frames: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    for frame in &mut frames {
        checksum::finish(frame);
    }
    frames.sort();
    frames
}

/// Runs `test` on a thread in host A of a new pair, on one CPU: there the program's order is that
/// of the calls.
pub fn on_a(pair: &Pair, test: impl FnOnce() + Send) {
    pair.a
        .run(|| {
            stay_on_one_cpu();
            test();
            Ok(())
        })
        .unwrap();
}

fn stay_on_one_cpu() {
    let mut cpus = nix::sched::CpuSet::new();
    cpus.set(0).unwrap();
    nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &cpus).unwrap();
}
