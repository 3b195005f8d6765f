//! Where a device is done at once with what it gets, packets pass without a look at them, until it
//! is not. Needs root.

mod pair;

use pair::{A, B, COOKIE, MAC_A, MAC_B, Pair, receive};
use sheaf_aggregate::{Config, Stats};
use sheaf_bpf::Controller;
use sheaf_bpf::layout::Hop;
use sheaf_netio::{clock, ip};
use sheaf_stage::Instant;
use sheaf_wire::meta::Outer;
use std::io;
use std::net::UdpSocket;
use std::process::Command;

/// Packets after which a state has come, or does not come: a probe is due after 64 ms, a device
/// that was slow counts as fast after some forty probes, and a packet takes some microseconds.
const MOST: u32 = 10_000_000;

/// A host with the program in a FIFO, which sends to the other one.
struct Rig {
    pair: Pair,
    controller: Controller,
    from: UdpSocket,
    to: UdpSocket,
    sent: u32,
}

impl Rig {
    fn new(config: &Config) -> Rig {
        let pair = Pair::new();
        let attach = || {
            let ifindex = ip::index("eth0").map_err(sheaf_bpf::Error::from)?;
            let mut controller = Controller::attach("eth0", ifindex, MAC_A, config, COOKIE)?;
            let hop = Hop::new(0, Outer::V4 { src: A, dst: B }, 500, 1500);
            controller.merge.set_hop(MAC_B, hop)?;
            controller.track(true)?;
            Ok(controller)
        };
        let attach = || attach().map_err(|error: sheaf_bpf::Error| io::Error::other(error));
        let controller = pair.a.run(attach).unwrap();
        let (from, to) = pair.sockets();
        to.set_nonblocking(true).unwrap();
        Rig { pair, controller, from, to, sent: 0 }
    }

    /// Puts a queue on the device, in the words of tc.
    fn queue(&self, words: &str) {
        let mut tc = Command::new("tc");
        tc.args("qdisc add dev eth0 root".split(' ')).args(words.split(' '));
        self.pair.a.enter(&mut tc);
        assert!(tc.status().unwrap().success());
    }

    /// Sends the next packet, and lets user space look.
    fn send(&mut self) {
        self.from.send(&self.sent.to_be_bytes()).unwrap();
        self.sent += 1;
        let look = || self.controller.run(clock::now()).map_err(io::Error::other);
        self.pair.a.run(look).unwrap();
    }

    /// The numbers of the packets that have arrived as they are.
    fn arrived(&self) -> Vec<u32> {
        let mut bytes = [0; 4];
        std::iter::from_fn(|| receive(&self.to, &mut bytes).ok().map(|_| u32::from_be_bytes(bytes)))
            .collect()
    }

    fn unseen(&self) -> u64 {
        self.controller.merge.unseen().unwrap()
    }

    fn stats(&self) -> Stats {
        self.controller.merge.stats().unwrap().first().map_or_else(Stats::default, |(_, one)| *one)
    }

    fn send_until(&mut self, reached: impl Fn(&Rig) -> bool, what: &str) {
        for _ in 0..MOST {
            self.send();
            let arrived = self.arrived();
            assert!(arrived.is_sorted() && arrived.last() < Some(&self.sent), "{arrived:?}");
            if reached(self) {
                return;
            }
        }
        panic!("{what}: {:?}, {} unseen", self.stats(), self.unseen());
    }
}

#[test]
fn packets_pass_unseen_while_the_device_is_done_at_once_and_gather_once_it_is_not() {
    let mut rig = Rig::new(&Config::default());
    rig.send_until(|rig| rig.unseen() > 0, "a cable is done at once");
    rig.queue("tbf rate 1mbit burst 2k limit 100k");
    let before = rig.stats().aggregated_packets;
    let gathers = |rig: &Rig| rig.stats().aggregated_packets > before + 100;
    rig.send_until(gathers, "a slow device has its packets gathered");
}

#[test]
fn a_full_queue_is_not_taken_for_a_device_that_is_done_at_once() {
    let mut rig = Rig::new(&Config::default());
    rig.send_until(|rig| rig.unseen() > 0, "a cable is done at once");
    // A frame that this queue refuses is free at once, and it refuses nearly all of them.
    rig.queue("tbf rate 8kbit burst 2k limit 2k");
    let before = rig.stats().aggregated_packets;
    let gathers = |rig: &Rig| rig.stats().aggregated_packets > before + 100;
    rig.send_until(gathers, "a full queue has packets gathered");
    let in_place = |rig: &Rig| rig.unseen() + rig.stats().unaggregated_packets;
    let before = in_place(&rig);
    const PACKETS: u64 = 20_000;
    (0..PACKETS).for_each(|_| rig.send());
    let in_place = in_place(&rig) - before;
    assert!(in_place < PACKETS / 100, "{in_place} of {PACKETS} packets left in place");
}

#[test]
fn nothing_passes_unseen_while_something_is_held() {
    let mut rig = Rig::new(&Config::forced());
    rig.from.send(&[1; 4]).unwrap();
    let device = rig.controller.merge.device();
    assert_eq!(device.read().held, 1);
    device.unseen_until(Instant::MAX);
    assert_eq!(device.read().unseen_until, 0, "user space does not begin it then");
    let flush = || rig.controller.flush().map_err(io::Error::other);
    rig.pair.a.run(flush).unwrap();

    rig.controller.merge.device().unseen_until(Instant::MAX);
    rig.from.send(&[2; 4]).unwrap();
    assert_eq!((rig.unseen(), rig.controller.merge.device().read().held), (1, 0));
    rig.controller.change(&Config::forced()).unwrap();
    rig.from.send(&[3; 4]).unwrap();
    let device = rig.controller.merge.device().read();
    assert_eq!((rig.unseen(), device.held), (1, 1), "settings that change end it");
}
