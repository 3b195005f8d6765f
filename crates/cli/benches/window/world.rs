//! Client, access point and server in namespaces of their own; between the last two a bottleneck
//! made of our own emulator's links, each frame of which this process carries.

use sheaf_emulator::{Delay, Link, LinkConfig, Packet, QueueConfig};
use sheaf_netio::netns::Namespace;
use sheaf_netio::poller::Poller;
use sheaf_netio::tap::Tap;
use sheaf_netio::{clock, ip};
use sheaf_stage::{Bitrate, Duration, Instant, Stage};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

/// Frames that are taken from one side before the other has its turn.
const TURN: usize = 64;
/// Address of the client.
pub const CLIENT: &str = "10.8.0.1";

/// What the bottleneck is.
#[derive(Clone, Debug)]
pub struct Bottleneck {
    /// Its rate, link headers included.
    pub rate: Bitrate,
    /// Its queue.
    pub queue: QueueConfig,
    /// Time on the way from the server to the client; the rest of a round-trip time is on the way
    /// back.
    pub down: Duration,
    /// Round-trip times; the server has an address for each.
    pub rtts: Vec<Duration>,
}

/// The three hosts.
pub struct World {
    pub client: Namespace,
    pub ap: Namespace,
    pub server: Namespace,
    pub counts: Arc<Counts>,
    bridge: Option<JoinHandle<()>>,
}

/// What the bottleneck says, and is told.
#[derive(Debug, Default)]
pub struct Counts {
    /// Packets that its queue dropped.
    pub dropped: AtomicU64,
    /// Packets in its queue now.
    pub waiting: AtomicU64,
    /// The rate that it shall have, bit/s.
    pub rate: AtomicU64,
    is_over: AtomicBool,
}

impl World {
    /// Everything connected and running.
    pub fn new(bottleneck: &Bottleneck) -> io::Result<World> {
        let [client, ap, server] = [Namespace::new()?, Namespace::new()?, Namespace::new()?];
        let inside = client.path();
        let near = ap.run(|| {
            ip::run(&format!("link add lan type veth peer name eth0 netns {inside}"))?;
            let tap = Tap::open("wan")?;
            up("lan", &["10.8.0.2/24"])?;
            up("wan", &["10.8.1.1/24"])?;
            std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
            Ok(tap)
        })?;
        client.run(|| {
            up("eth0", &["10.8.0.1/24"])?;
            // Segments of 1 KB, as in the published experiment, and 12 bytes of time stamps.
            ip::run("route add default via 10.8.0.2 advmss 1012")
        })?;
        let far = server.run(|| {
            let tap = Tap::open("eth0")?;
            let addresses: Vec<_> = (0..bottleneck.rtts.len())
                .map(|class| format!("{}/24", server_of(class)))
                .collect();
            up("eth0", &addresses.iter().map(String::as_str).collect::<Vec<_>>())?;
            ip::run("route add default via 10.8.1.1")?;
            Ok(tap)
        })?;
        let counts = Arc::new(Counts::default());
        counts.rate.store(bottleneck.rate.as_bps(), Ordering::Relaxed);
        let bridge = Bridge::new(near, far, bottleneck, counts.clone());
        let bridge = std::thread::spawn(move || bridge.run());
        Ok(World { client, ap, server, counts, bridge: Some(bridge) })
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.counts.is_over.store(true, Ordering::Relaxed);
        if let Some(bridge) = self.bridge.take() {
            let _ = bridge.join();
        }
    }
}

fn up(dev: &str, addresses: &[&str]) -> io::Result<()> {
    for address in addresses {
        ip::run(&format!("addr add {address} dev {dev}"))?;
    }
    ip::run(&format!("link set {dev} up"))
}

/// The server's address for round-trip time number `class`.
pub fn server_of(class: usize) -> String {
    format!("10.8.1.{}", class + 2)
}

/// Lets the calling thread run before all ordinary ones, so that others' work on the machine is
/// not measured.
pub fn be_first() {
    let parameters = libc::sched_param { sched_priority: 10 };
    // SAFETY: the structure lives through the call; 0 is the calling thread.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
    assert_eq!(result, 0, "root may do this");
}

/// Carries frames between the access point's and the server's interface.
struct Bridge {
    near: Tap,
    far: Tap,
    down: Link,
    up: Vec<Link>,
    number: u64,
    counts: Arc<Counts>,
}

impl Bridge {
    fn new(near: Tap, far: Tap, bottleneck: &Bottleneck, counts: Arc<Counts>) -> Bridge {
        let base = LinkConfig { link_header: 14, ..LinkConfig::default() };
        let delayed = |time| LinkConfig { delay: Delay::constant(time), ..base.clone() };
        let down = LinkConfig {
            rate: Some(bottleneck.rate),
            queue: bottleneck.queue.clone(),
            ..delayed(bottleneck.down)
        };
        let link = |config| Link::new(config, 1).expect("it can be");
        let up = bottleneck.rtts.iter().map(|rtt| link(delayed(*rtt - bottleneck.down))).collect();
        Bridge { near, far, down: link(down), up, number: 0, counts }
    }

    fn run(mut self) {
        be_first();
        let mut poller = Poller::default();
        poller.add(&self.near);
        poller.add(&self.far);
        while !self.counts.is_over.load(Ordering::Relaxed) {
            let now = clock::now();
            self.set_rate(now);
            for _ in 0..TURN {
                let Some(packet) = receive(&self.far, &mut self.down, &mut self.number, now) else {
                    break;
                };
                self.down.enqueue(packet, now);
                drain(&mut self.down, &self.near, now);
            }
            for _ in 0..TURN {
                // Buffers come from the first; the class is known only when the frame is there.
                let Some(packet) = receive(&self.near, &mut self.up[0], &mut self.number, now)
                else {
                    break;
                };
                let class = class_of(&packet.bytes).min(self.up.len() - 1);
                self.up[class].enqueue(packet, now);
            }
            drain(&mut self.down, &self.near, now);
            self.up.iter_mut().for_each(|link| drain(link, &self.far, now));
            let dropped = self.down.counters().dropped_total();
            self.counts.dropped.store(dropped, Ordering::Relaxed);
            self.counts.waiting.store(self.down.stats().rate_queue.packets, Ordering::Relaxed);
            let links = self.up.iter().chain([&self.down]);
            let deadline = links.filter_map(Stage::next_deadline).min();
            let latest = clock::now() + Duration::from_millis(50);
            let until = deadline.unwrap_or(latest).min(latest);
            poller.wait(Some(until.saturating_since(clock::now()))).expect("it can wait");
        }
    }

    fn set_rate(&mut self, now: Instant) {
        let rate = Some(Bitrate::from_bps(self.counts.rate.load(Ordering::Relaxed)));
        if self.down.config().rate != rate {
            let config = LinkConfig { rate, ..self.down.config().clone() };
            self.down.change(config, now).expect("a rate alone is no error");
        }
    }
}

fn receive(tap: &Tap, link: &mut Link, number: &mut u64, now: Instant) -> Option<Packet> {
    let mut buffer = link.buffer();
    buffer.resize(2048, 0);
    let Ok(Some(length)) = tap.receive(&mut buffer) else {
        link.recycle(buffer);
        return None;
    };
    buffer.truncate(length);
    *number += 1;
    Some(Packet::new(buffer, now, *number))
}

fn drain(link: &mut Link, to: &Tap, now: Instant) {
    while let Some(packet) = link.dequeue(now) {
        // An interface that is not up yet takes nothing.
        let _ = to.send(&packet.bytes);
        link.recycle(packet.bytes);
    }
}

/// Which of the server's addresses an IPv4 frame goes to.
fn class_of(frame: &[u8]) -> usize {
    match frame.get(12..14) {
        Some([8, 0]) => usize::from(*frame.get(33).unwrap_or(&2)).saturating_sub(2),
        _ => 0,
    }
}
