//! What the window program costs per packet, by the kernel's own run-time statistics, with 10,000
//! flows in the table and packets that go round them, so that caches are as cold as on a router.
//! An empty program sees the same packets on the same hook: what it costs is the statistics
//! themselves, and stands beside.
//! Needs root: `cargo bench -p sheaf-bpf --bench window`.

use aya::sys::{Stats, enable_stats};
use sheaf_bpf::Window;
use sheaf_netio::netns::Namespace;
use sheaf_netio::{clock, ip};
use sheaf_window::{Direction, FlowId, Key};
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;

#[path = "../tests/common/mod.rs"]
mod common;
use common::{Layout, Packet, handshake};
#[path = "empty/mod.rs"]
mod empty;
use empty::Empty;
#[path = "flood/mod.rs"]
mod flood;
use flood::{addressed, packet_socket, send_all};

const FLOWS: u32 = 10_000;
const ROUNDS: u32 = 40;

fn main() {
    if !nix::unistd::geteuid().is_root() {
        println!("the window benchmark needs root");
        return;
    }
    let _statistics = enable_stats(Stats::RunTime).expect("statistics since Linux 5.8");
    let mut window = Window::load(14).expect("the kernel takes the programs");
    begin(&mut window);
    let before = clock::now();
    let known = set(&mut window);
    let set = clock::now() - before;
    let before = clock::now();
    let read = window.flows().count();
    println!("{read} flows read in {:?}, {known} set in {set:?}", clock::now() - before);

    let ack = acknowledgement();
    let arp = not_ip();
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
        let packet =
            Packet { seq: 1448 * round, payload: 1448, direction: Direction::In, ..ack.clone() };
        (Direction::In, addressed(&packet, number))
    });
    measure(&mut window, "TCP of an unknown flow", |number, _| {
        (Direction::Out, addressed(&Packet { port: 9, ..ack.clone() }, number))
    });
    let again = |frame: &[u8]| {
        let mut out = [0; 2048];
        let mut run =
            |_: u32| window.run(Direction::Out, frame, 1, &mut out, 5_000).expect("it runs").1;
        (0..60).map(&mut run).min().expect("there are runs")
    };
    println!("{:<40} {:4} ns", "the same frame that is not IP", again(&arp).as_nanos());
    let frame = addressed(&Packet { ack: 5_000_000, ..ack.clone() }, 0);
    println!("{:<40} {:4} ns", "the same acknowledgement", again(&frame).as_nanos());
    through_an_interface();
}

/// All handshakes.
fn begin(window: &mut Window) {
    let options = || vec![2, 4, 5, 180, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 3, 3, 7, 1, 1, 1];
    let mut out = [0; 2048];
    for number in 0..FLOWS {
        let all = handshake(Layout::default(), Direction::Out, &[options(), options()], [65535; 2]);
        for packet in all {
            let stamps = if packet.flags & 2 == 0 { stamps() } else { packet.options.clone() };
            let direction = packet.direction;
            let frame = addressed(&Packet { options: stamps, ..packet }, number);
            window.run(direction, &frame, 1, &mut out, 1).expect("it runs");
        }
    }
}

/// All windows; how many of the flows are known.
fn set(window: &mut Window) -> u64 {
    let key = |number: u32| {
        let outside = Ipv4Addr::from(0x0b00_0000 + number);
        Key::new((outside.into(), 80), (Ipv4Addr::from(common::INSIDE).into(), 1000))
    };
    let id = |number| FlowId { key: key(number), direction: Direction::In };
    window.set_all((0..FLOWS).map(|number| (id(number), 20_000))).expect("it runs")
}

fn stamps() -> Vec<u8> {
    vec![1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 9]
}

fn acknowledgement() -> Packet {
    let base = Packet::ack(Layout::default(), Direction::Out);
    Packet { window: 60_000, options: stamps(), ..base }
}

/// Acknowledgements of all flows in turn through a veth pair, as a router forwards them: without a
/// system call for each.
fn through_an_interface() {
    let (a, b) = (Namespace::new().expect("root"), Namespace::new().expect("root"));
    let other = b.path();
    let make = || {
        ip::run(&format!("link add eth0 type veth peer name eth0 netns {other}"))?;
        ip::run("link set eth0 up")?;
        let window = Window::attach("eth0").map_err(std::io::Error::other)?;
        Ok((window, Empty::attach("eth0"), packet_socket(ip::index("eth0")?)?))
    };
    let (mut window, empty, socket) = a.run(make).expect("a veth pair");
    b.run(|| ip::run("link set eth0 up")).expect("its other end");
    begin(&mut window);
    set(&mut window);
    let base = acknowledgement();
    // Of 10,000 flows in the table all, or a hundred, are in the air.
    println!("{:<40} program  empty  difference", "through an interface, ns a packet");
    for (what, active) in
        [("one flow", 1), ("100 flows", 100), ("1,000 flows", 1000), ("10,000 flows", FLOWS)]
    {
        let mut best = [f64::INFINITY; 2];
        for round in 0..ROUNDS {
            window.beat(clock::now()).expect("the map is there");
            // What is acknowledged never goes back, or the right edge would keep windows open.
            let turns = FLOWS / active;
            let packet = |turn: u32| {
                let ack = 100_000u32.wrapping_mul(3 + round * turns + turn);
                Packet { ack, ..base.clone() }
            };
            let frames: Vec<_> = (0..FLOWS)
                .map(|number| addressed(&packet(number / active), number % active))
                .collect();
            best = least(best, pass(&window, &empty, &socket, &frames));
        }
        show(what, best);
    }
    let others = vec![not_ip(); FLOWS as usize];
    let best = (0..ROUNDS)
        .map(|_| pass(&window, &empty, &socket, &others))
        .fold([f64::INFINITY; 2], least);
    show("not IP", best);
    let lowered = window.flows().filter(|(_, flow)| flow.half[0].clamped > 0);
    assert_eq!(lowered.count(), FLOWS as usize);
}

fn show(what: &str, [program, empty]: [f64; 2]) {
    println!("{what:<40} {program:7.0} {empty:6.0} {:11.0}", program - empty);
}

fn least(a: [f64; 2], b: [f64; 2]) -> [f64; 2] {
    [a[0].min(b[0]), a[1].min(b[1])]
}

/// Sends all frames; the mean cost of the program and of the empty one.
fn pass(window: &Window, empty: &Empty, socket: &OwnedFd, frames: &[Vec<u8>]) -> [f64; 2] {
    let costs = || [window.cost(Direction::Out).expect("statistics"), empty.cost()];
    let before = costs();
    frames.chunks(50).for_each(|part| send_all(socket, part));
    let after = costs();
    std::array::from_fn(|which| {
        let runs = after[which].1 - before[which].1;
        assert!(runs >= frames.len() as u64);
        (after[which].0 - before[which].0).as_nanos() as f64 / runs as f64
    })
}

fn not_ip() -> Vec<u8> {
    [&[2; 12][..], &[8, 6], &[0; 46]].concat()
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
