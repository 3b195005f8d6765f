//! What the window program costs per packet, by the kernel's own run-time statistics, with 10,000
//! flows in the table and packets that go round them, so that caches are as cold as on a router.
//! Needs root: `cargo bench -p sheaf-bpf --bench window`.

use aya::sys::{Stats, enable_stats};
use sheaf_bpf::Window;
use sheaf_netio::clock;
use sheaf_window::{Direction, FlowId, Key};
use std::net::Ipv4Addr;

#[path = "../tests/common/mod.rs"]
mod common;
use common::{Layout, Packet, handshake};

const FLOWS: u32 = 10_000;
const ROUNDS: u32 = 10;

fn main() {
    if !nix::unistd::geteuid().is_root() {
        println!("the window benchmark needs root");
        return;
    }
    let _statistics = enable_stats(Stats::RunTime).expect("statistics since Linux 5.8");
    let mut window = Window::load(14).expect("the kernel takes the programs");
    let mut out = [0; 2048];
    let options = || vec![2, 4, 5, 180, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 3, 3, 7, 1, 1, 1];
    for number in 0..FLOWS {
        let all = handshake(Layout::default(), Direction::Out, &[options(), options()], [65535; 2]);
        for packet in all {
            let frame = addressed(&packet, number);
            window.run(packet.direction, &frame, 1, &mut out, 1).expect("it runs");
        }
    }
    let key = |number: u32| {
        let outside = Ipv4Addr::from(0x0b00_0000 + number);
        Key::new((outside.into(), 80), (Ipv4Addr::from(common::INSIDE).into(), 1000))
    };
    let id = |number| FlowId { key: key(number), direction: Direction::In };
    let before = clock::now();
    let known = window.set_all((0..FLOWS).map(|number| (id(number), 20_000))).expect("it runs");
    let set = clock::now() - before;
    let before = clock::now();
    let read = window.flows().expect("the map is there").count();
    println!("{read} flows read in {:?}, {known} set in {set:?}", clock::now() - before);

    let stamps = || vec![1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 9];
    let base =
        |direction| Packet { options: stamps(), ..Packet::ack(Layout::default(), direction) };
    let ack = Packet { window: 60_000, ..base(Direction::Out) };
    let arp = [&[2; 12][..], &[8, 6], &[0; 46]].concat();
    measure(&mut window, "a frame that is not IP (the least)", |_, _| {
        (Direction::Out, arp.clone())
    });
    measure(&mut window, "an acknowledgement, window lowered", |number, round| {
        let packet = Packet { ack: 100_000 * (round + 3), ..ack.clone() };
        (Direction::Out, addressed(&packet, number))
    });
    measure(&mut window, "an acknowledgement, window kept", |number, round| {
        let small = Packet { ack: 100_000 * (round + 20), window: 50, ..ack.clone() };
        (Direction::Out, addressed(&small, number))
    });
    measure(&mut window, "1448 bytes of data", |number, round| {
        let packet = Packet { seq: 1448 * round, payload: 1448, ..base(Direction::In) };
        (Direction::In, addressed(&packet, number))
    });
    measure(&mut window, "TCP of an unknown flow", |number, _| {
        (Direction::Out, addressed(&Packet { port: 9, ..ack.clone() }, number))
    });
    let packet = Packet { ack: 5_000_000, ..ack.clone() };
    let frame = addressed(&packet, 0);
    let (_, time) = window.run(Direction::Out, &frame, 1, &mut out, 200_000).expect("it runs");
    println!("{:<40} {:4} ns", "the same acknowledgement again and again", time.as_nanos());
}

/// The frame of `packet` between the inside end and outside end `number`.
fn addressed(packet: &Packet, number: u32) -> Vec<u8> {
    let mut frame = packet.frame();
    let at = if packet.direction == Direction::In { 14 + 12 } else { 14 + 16 };
    frame[at..at + 4].copy_from_slice(&(0x0b00_0000 + number).to_be_bytes());
    frame
}

fn measure(window: &mut Window, what: &str, make: impl Fn(u32, u32) -> (Direction, Vec<u8>)) {
    let direction = make(0, 0).0;
    let mut out = [0; 2048];
    let mut best = f64::INFINITY;
    for round in 0..ROUNDS {
        window.beat(clock::now()).expect("the map is there");
        let before = window.cost(direction).expect("statistics");
        for number in 0..FLOWS {
            let (direction, frame) = make(number, round);
            window.run(direction, &frame, 1, &mut out, 1).expect("it runs");
        }
        let after = window.cost(direction).expect("statistics");
        let mean = (after.0 - before.0).as_nanos() as f64 / (after.1 - before.1) as f64;
        best = best.min(mean);
    }
    println!("{what:<40} {best:4.0} ns");
}
