//! Two ways to lower windows on a router: the program in the kernel, and the published one,
//! iptables' NFQUEUE with the same rewriting in user space. Packets a second that get through, and
//! what one costs the machine's processors on top of plain forwarding, in the same run. Needs root
//! and iptables: `cargo bench -p sheaf-bpf --bench window_ways`.

use nfq::{Queue, Verdict};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use sheaf_bpf::Window;
use sheaf_netio::netns::Namespace;
use sheaf_netio::{clock, ip};
use sheaf_window::{Direction, Passing, Rewriter};
use std::io;
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[path = "../tests/common/mod.rs"]
mod common;
use common::{Layout, Packet, handshake};
#[path = "flood/mod.rs"]
mod flood;
use flood::{packet_socket, send_all};

const PACKETS: u64 = 200_000;
/// Packets that go out with one call, and those that may be under way: more would not fit in the
/// queue's socket.
const BATCH: usize = 50;
const UNDER_WAY: u64 = 100;
const ROUNDS: usize = 5;
const LIMIT: u32 = 20_000;

fn main() {
    if !nix::unistd::geteuid().is_root() {
        println!("this benchmark needs root");
        return;
    }
    println!(
        "{:<24} {:>10} {:>14} {:>22}",
        "", "packets/s", "CPU ns/packet", "on top of forwarding"
    );
    let plain = best(&Router::new(), &|| None);
    show("forwarded", plain, plain);
    show("eBPF", in_kernel(), plain);
    match in_user_space() {
        Ok(run) => show("NFQUEUE, user space", run, plain),
        Err(error) => println!("NFQUEUE is not measured: {error}; install iptables"),
    }
}

/// Packets a second, and ns of CPU time for each.
#[derive(Clone, Copy)]
struct Run {
    rate: f64,
    cost: f64,
}

fn show(what: &str, run: Run, plain: Run) {
    let more = run.cost - plain.cost;
    println!("{what:<24} {:>10.0} {:>14.0} {more:>22.0}", run.rate, run.cost);
}

/// A router between two interfaces, and a socket that floods the first with one flow's
/// acknowledgements.
struct Router {
    router: Namespace,
    sink: Namespace,
    _source: Namespace,
    socket: OwnedFd,
    frames: Vec<Vec<u8>>,
}

impl Router {
    fn new() -> Router {
        let [source, router, sink] = std::array::from_fn(|_| Namespace::new().expect("root"));
        let (near, far) = (source.path(), sink.path());
        let make = || {
            // The address that the frames go to.
            let lan = "link add lan address 02:02:02:02:02:02 type veth peer name eth0 netns";
            ip::run(&format!("{lan} {near}"))?;
            ip::run(&format!("link add wan type veth peer name eth0 netns {far}"))?;
            ip::run("addr add 10.0.0.1/24 dev lan")?;
            ip::run("addr add 192.0.2.2/24 dev wan")?;
            ip::run("link set lan up")?;
            ip::run("link set wan up")?;
            ip::run("neigh add 192.0.2.1 lladdr 02:00:00:00:00:01 dev wan nud permanent")?;
            std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")
        };
        router.run(make).expect("two veth pairs");
        let open = || {
            ip::run("link set eth0 up")?;
            packet_socket(ip::index("eth0")?)
        };
        let socket = source.run(open).expect("a packet socket");
        sink.run(|| ip::run("link set eth0 up")).expect("its other end");
        let ack = |number: u32| Packet {
            ack: 100_000 * (number + 3),
            window: 60_000,
            options: vec![1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 9],
            ..Packet::ack(Layout::default(), Direction::Out)
        };
        let frames = (0..BATCH as u32).map(|number| ack(number).frame()).collect();
        Router { router, sink, _source: source, socket, frames }
    }

    /// Packets that the sink has received.
    fn received(&self) -> u64 {
        let read = || std::fs::read_to_string("/proc/thread-self/net/dev");
        let text = self.sink.run(read).expect("it is there");
        let line = text.lines().find_map(|line| line.trim().strip_prefix("eth0:"));
        let fields: Vec<_> = line.expect("the interface").split_whitespace().collect();
        fields[1].parse().expect("a number")
    }

    /// Sends everything; never too far ahead of what is `done`, where that is not in the same call.
    fn flood(&self, done: &dyn Fn() -> Option<u64>) -> Run {
        let (before, begun) = (self.received(), done().unwrap_or_default());
        let (cpu, started) = (cpu(), clock::now());
        let mut sent = 0;
        while sent < PACKETS {
            while done().is_some_and(|done| sent > done - begun + UNDER_WAY) {
                std::thread::yield_now();
            }
            send_all(&self.socket, &self.frames);
            sent += BATCH as u64;
        }
        while done().is_some_and(|done| done - begun < PACKETS) {
            std::thread::yield_now();
        }
        let seconds = (clock::now() - started).as_secs_f64();
        let cost = (self::cpu() - cpu) / PACKETS as f64;
        let lost = PACKETS - (self.received() - before).min(PACKETS);
        assert!(lost <= PACKETS / 100, "{lost} packets were lost");
        Run { rate: PACKETS as f64 / seconds, cost }
    }
}

/// CPU time of this process in ns: sending, forwarding in the same call, and rewriting.
fn cpu() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("it can be asked");
    (usage.user_time() + usage.system_time()).num_microseconds() as f64 * 1e3
}

fn best(router: &Router, done: &dyn Fn() -> Option<u64>) -> Run {
    let runs = (0..ROUNDS).map(|_| router.flood(done));
    runs.min_by(|a, b| a.cost.total_cmp(&b.cost)).expect("there are rounds")
}

fn opening() -> [Packet; 3] {
    let options = || vec![2, 4, 5, 180, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 3, 3, 7, 1, 1, 1];
    let mut all = handshake(Layout::default(), Direction::Out, &[options(), options()], [65535; 2]);
    all[2].options = vec![1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 9];
    all
}

fn in_kernel() -> Run {
    let router = Router::new();
    let attach = || Window::attach("wan").map_err(io::Error::other);
    let mut window = router.router.run(attach).expect("the kernel takes the programs");
    window.set_initial(Direction::In, LIMIT, u32::MAX);
    window.beat(clock::now()).expect("the map is there");
    let mut out = [0; 256];
    for packet in opening() {
        window.run(packet.direction, &packet.frame(), 1, &mut out, 1).expect("it runs");
    }
    let window = std::cell::RefCell::new((window, clock::now()));
    let run = best(&router, &|| {
        let (window, last) = &mut *window.borrow_mut();
        if clock::now() - *last > Duration::from_millis(100) {
            *last = clock::now();
            window.beat(*last).expect("the map is there");
        }
        None
    });
    let lowered: u32 = window.borrow().0.flows().map(|(_, flow)| flow.half[0].clamped).sum();
    assert!(u64::from(lowered) > PACKETS / 2, "windows are lowered: {lowered}");
    run
}

fn in_user_space() -> io::Result<Run> {
    let router = Router::new();
    let mut command = Command::new("iptables");
    command.args(["-A", "FORWARD", "-p", "tcp", "-j", "NFQUEUE", "--queue-num", "0"]);
    router.router.enter(&mut command);
    let output = command.output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    let mut queue = router.router.run(|| {
        let mut queue = Queue::open()?;
        queue.bind(0)?;
        queue.set_queue_max_len(0, 4096)?;
        Ok(queue)
    })?;
    let done = Arc::new(AtomicU64::new(0));
    let count = done.clone();
    std::thread::spawn(move || {
        let mut model = Rewriter::new();
        model.set_initial(Direction::In, LIMIT, u32::MAX);
        model.beat(clock::now());
        for packet in opening() {
            let mut frame = packet.frame();
            model.rewrite(&mut frame[14..], Passing::plain(packet.direction), clock::now());
        }
        while let Ok(mut message) = queue.recv() {
            let now = clock::now();
            model.beat(now);
            model.rewrite(message.get_payload_mut(), Passing::plain(Direction::Out), now);
            message.set_verdict(Verdict::Accept);
            if queue.verdict(message).is_err() {
                break;
            }
            count.fetch_add(1, Ordering::Release);
        }
        // Nobody waits for what will not come; what is missing is counted as lost.
        count.store(u64::MAX / 2, Ordering::Release);
    });
    Ok(best(&router, &|| Some(done.load(Ordering::Acquire))))
}
