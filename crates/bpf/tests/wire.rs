//! What is on the cable: raw frames on the far side, whoever sends and however the interface
//! computes checksums. Needs root.

mod pair;

use pair::{A, B, COOKIE, MAC_A, MAC_B, Pair};
use sheaf_aggregate::{Config, Policy};
use sheaf_bpf::Controller;
use sheaf_bpf::layout::Hop;
use sheaf_netio::netns::Namespace;
use sheaf_netio::poller::Poller;
use sheaf_netio::vnet::{self, Header};
use sheaf_netio::vnet_packet::{Receive, VnetSocket};
use sheaf_netio::{clock, ip};
use sheaf_stage::{Duration, Instant};
use sheaf_wire::checksum;
use sheaf_wire::ip::Ip;
use sheaf_wire::meta::{Meta, Outer};
use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};

const FLOWS: u16 = 4;
/// Packets of a flow that are on their way at once: all flows' fit the queue of one next hop.
const WINDOW: u32 = 50;
const PACKETS: u32 = 3000;
const LONG: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug)]
struct Case {
    policy: Policy,
    offload: bool,
    forwarded: bool,
    cpus: usize,
}

fn pin(cpu: usize) -> std::io::Result<()> {
    let mut cpus = nix::sched::CpuSet::new();
    cpus.set(cpu)?;
    Ok(nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &cpus)?)
}

/// A host behind A, whose packets A forwards.
fn behind(pair: &Pair) -> Namespace {
    let host = Namespace::new().unwrap();
    let other = host.path();
    pair.a
        .run(|| {
            std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
            ip::run(&format!(
                "link add eth1 address 02:00:00:00:0a:01 type veth peer name eth0 \
                 address 02:00:00:00:0a:02 netns {other}"
            ))?;
            ip::run("addr add 10.10.0.1/24 dev eth1")?;
            ip::run("link set eth1 up")
        })
        .unwrap();
    host.run(|| {
        ip::run("addr add 10.10.0.2/24 dev eth0")?;
        ip::run("link set eth0 up")?;
        // Packets that wait for a link address are overtaken; that is not what is tested.
        ip::run("neigh add 10.10.0.1 lladdr 02:00:00:00:0a:01 dev eth0")?;
        ip::run("route add default via 10.10.0.1")
    })
    .unwrap();
    host
}

fn offload(host: &Namespace, on: bool) {
    let mut ethtool = std::process::Command::new("ethtool");
    ethtool.args(["-K", "eth0", "tx", if on { "on" } else { "off" }]);
    host.enter(&mut ethtool);
    assert!(ethtool.output().unwrap().status.success());
}

/// Lets one CPU of B take what comes, in the order in which it came: on a veth pair each frame is
/// otherwise received by the CPU that sent it, and two CPUs overtake each other there.
fn receive_on_one_cpu(host: &Namespace) {
    let script = "mount -t sysfs sysfs /sys && echo 1 > /sys/class/net/eth0/queues/rx-0/rps_cpus";
    let mut unshare = std::process::Command::new("unshare");
    unshare.args(["--mount", "sh", "-c", script]);
    host.enter(&mut unshare);
    assert!(unshare.status().unwrap().success());
}

/// Keeps time for the program on A until `done`.
fn keep_time(pair: &Pair, policy: Policy, ready: mpsc::Sender<()>, done: &AtomicBool) {
    let work = || {
        // Where this thread is kept from running, frames beyond `hold` leave although the device
        // has not told that it is done: it seems full, and what comes then is dropped, as it should
        // be.
        let config = Config { policy, hold: LONG, ..Config::default() };
        let mut controller = Controller::attach("eth0", ip::index("eth0")?, MAC_A, &config, COOKIE)
            .map_err(std::io::Error::other)?;
        let hop = Hop::new(0, Outer::V4 { src: A, dst: B }, 500, 1500);
        controller.merge.set_hop(MAC_B, hop).map_err(std::io::Error::other)?;
        ready.send(()).map_err(std::io::Error::other)?;
        let mut poller = Poller::default();
        poller.add(&controller.merge);
        while !done.load(Ordering::Relaxed) {
            let now = clock::now();
            if policy == Policy::Busy {
                // The cable is done with what it had as soon as it is asked.
                controller.device_done(controller.merge.device().read().sent, 1000, now);
            }
            let until = controller.run(now).map_err(std::io::Error::other)?;
            let wait = until.unwrap_or(Instant::MAX).saturating_since(clock::now());
            poller.wait(Some(wait.min(Duration::from_micros(300))))?;
        }
        Ok(())
    };
    pair.a.run(work).unwrap();
}

/// Sends numbered packets of two flows from `host`, at most [`WINDOW`] ahead of what `arrived`.
fn sender(host: &Namespace, cpu: usize, flows: [u16; 2], arrived: mpsc::Receiver<()>) {
    let work = move || {
        pin(cpu)?;
        let socket = |flow: u16| -> std::io::Result<UdpSocket> {
            let socket = UdpSocket::bind(SocketAddr::from(([0; 4], 7000 + flow)))?;
            socket.connect((B, 5004))?;
            Ok(socket)
        };
        let sockets = [socket(flows[0])?, socket(flows[1])?];
        for number in 0..PACKETS {
            for (socket, flow) in sockets.iter().zip(flows) {
                let mut payload = [flow as u8; 32];
                payload[..4].copy_from_slice(&number.to_be_bytes());
                socket.send(&payload[..(20 + number as usize % 13)])?;
            }
            if (number + 1) % WINDOW == 0 {
                arrived.recv().map_err(std::io::Error::other)?;
            }
        }
        Ok(())
    };
    host.run(work).unwrap();
}

/// Reads frames until every packet of every flow has come, in order and whole.
fn listen(socket: &mut VnetSocket, case: Case, windows: &[mpsc::Sender<()>]) -> u64 {
    let mut poller = Poller::default();
    poller.add(socket);
    let mut next = BTreeMap::<u16, u32>::new();
    let (mut bundled, mut told) = (0, [0; 2]);
    let total = |next: &BTreeMap<u16, u32>| next.values().map(|n| u64::from(*n)).sum::<u64>();
    while total(&next) < u64::from(FLOWS) * u64::from(PACKETS) {
        let heard = socket.receive(|bytes, _| {
            let header = Header::parse(bytes).unwrap();
            let frame = &bytes[vnet::LEN..];
            let packet = &frame[14..];
            if frame[..6] != MAC_B {
                return;
            }
            if let Ok(meta) = Meta::parse(packet) {
                assert!(!header.partial, "{case:?}: the device would write into a meta packet");
                for inner in meta.packets() {
                    count(&mut next, inner, true, case);
                    bundled += 1;
                }
            } else if let Ok(view) = Ip::parse(packet) {
                // With offload, the cable carries lone packets as the socket left them.
                count(&mut next, view, !header.partial, case);
            }
        });
        if heard.unwrap() == 0 {
            poller.wait(Some(LONG)).unwrap();
            assert!(poller.readable(0), "{case:?}: packets are missing, {next:?} came");
        }
        for (pair, window) in windows.iter().enumerate() {
            let flow = |index: u16| next.get(&(pair as u16 * 2 + index)).copied().unwrap_or(0);
            while flow(0).min(flow(1)) / WINDOW > told[pair] {
                told[pair] += 1;
                // After its last window a sender is gone.
                let _ = window.send(());
            }
        }
    }
    bundled
}

fn count(next: &mut BTreeMap<u16, u32>, view: Ip<'_>, finished: bool, case: Case) {
    let Some((source, 5004)) = view.ports() else { return };
    let payload = &view.transport()[8..];
    let number = u32::from_be_bytes(payload[..4].try_into().unwrap());
    let expected = next.entry(source - 7000).or_default();
    assert_eq!(number, *expected, "{case:?}: flow {source} is out of order or lacks packets");
    *expected += 1;
    if finished {
        let pseudo = checksum::sum(view.addresses(), view.transport().len() as u32 + 17);
        let sum = checksum::fold(checksum::sum(view.transport(), pseudo));
        assert_eq!(sum, 0xffff, "{case:?}: a wrong checksum on the cable");
    }
}

/// One case at a time: all share the processors' backlogs.
static ALONE: Mutex<()> = Mutex::new(());

fn run(case: Case) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let pair = Pair::new();
    offload(&pair.a, case.offload);
    receive_on_one_cpu(&pair.b);
    let behind = case.forwarded.then(|| behind(&pair));
    if let Some(host) = &behind {
        offload(host, case.offload);
    }
    let from = behind.as_ref().unwrap_or(&pair.a);
    let open = || VnetSocket::open(ip::index("eth0")?, Receive::Everything);
    let mut raw = pair.b.run(open).unwrap();
    // Lest B refuses the port.
    let _listener = pair.b.run(|| UdpSocket::bind((B, 5004))).unwrap();
    let done = AtomicBool::new(false);
    let (windows, arrived): (Vec<_>, Vec<_>) = (0..2).map(|_| mpsc::channel()).unzip();
    let bundled = std::thread::scope(|scope| {
        let (ready, is_ready) = mpsc::channel();
        let (pair, done) = (&pair, &done);
        scope.spawn(move || keep_time(pair, case.policy, ready, done));
        is_ready.recv().unwrap();
        for (index, arrived) in arrived.into_iter().enumerate() {
            let flows = [index as u16 * 2, index as u16 * 2 + 1];
            scope.spawn(move || sender(from, index % case.cpus, flows, arrived));
        }
        let result = catch_unwind(AssertUnwindSafe(|| listen(&mut raw, case, &windows)));
        done.store(true, Ordering::Relaxed);
        drop(windows);
        result.unwrap_or_else(|panic| resume_unwind(panic))
    });
    assert!(bundled > u64::from(PACKETS), "{case:?}: only {bundled} shared a frame");
}

#[test]
fn local_packets_share_frames_whole_and_in_order_from_one_cpu_and_from_two() {
    for offload in [true, false] {
        for cpus in [1, 2] {
            run(Case { policy: Policy::Forced, offload, forwarded: false, cpus });
            run(Case { policy: Policy::Busy, offload, forwarded: false, cpus });
        }
    }
}

#[test]
fn forwarded_packets_share_frames_whole_and_in_order_from_one_cpu_and_from_two() {
    for offload in [true, false] {
        for cpus in [1, 2] {
            run(Case { policy: Policy::Forced, offload, forwarded: true, cpus });
            run(Case { policy: Policy::Busy, offload, forwarded: true, cpus });
        }
    }
}
