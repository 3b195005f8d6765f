//! Which queue of a device with fair queues a packet takes, by its flow hash. Needs root.
//!
//! A cable with many transmit queues stands for fair queues: the kernel chooses one by the hash
//! that the program leaves behind, and `mq` counts what each has sent.

mod pair;

use pair::{A, B, COOKIE, MAC_A, MAC_B, Pair};
use sheaf_aggregate::{Config, Policy};
use sheaf_bpf::Controller;
use sheaf_bpf::layout::{Hop, SLOTS};
use sheaf_bpf::merge::Rule;
use sheaf_netio::poller::Poller;
use sheaf_netio::{clock, ip, timer};
use sheaf_stage::{Duration, Instant};
use sheaf_wire::meta::Outer;
use std::net::UdpSocket;
use std::process::Command;

/// So many that flows rarely share one. Where two do, a run shows less.
const QUEUES: usize = 128;
const FLOWS: usize = 6;
/// The flow whose packets are the ticks that only show that others have left.
const MARKER: usize = FLOWS - 1;
/// Packets of a flow that are so far apart count as sparse (`FLOWLET` in `order.h`, and its unit).
const FLOWLET: Duration = Duration::from_nanos(10 << 20);

struct Rig {
    pair: Pair,
    controller: Option<Controller>,
    /// Each flow's; not connected, or the kernel would remember a socket's first queue.
    sockets: Vec<UdpSocket>,
}

impl Rig {
    /// Without the program.
    fn new() -> Rig {
        let pair = Pair::with_queues(QUEUES);
        let socket = |port| pair.a.run(|| UdpSocket::bind((A, port))).unwrap();
        let sockets = (7000..).map(socket).take(FLOWS).collect();
        let rig = Rig { pair, controller: None, sockets };
        rig.tc("qdisc add dev eth0 root handle 1: mq");
        rig
    }

    /// With the program, which knows all flows and has nothing of them under way; and the queues
    /// that they had without it.
    fn known() -> (Rig, Vec<Option<usize>>) {
        let mut rig = Rig::new();
        let own = (0..FLOWS).map(|flow| rig.queue_of(flow)).collect();
        rig.attach();
        for flow in 0..FLOWS {
            rig.queue_of(flow);
        }
        rig.everything_leaves();
        (rig, own)
    }

    fn tc(&self, line: &str) -> String {
        let run = || Command::new("tc").args(line.split(' ')).output();
        let output = self.pair.a.run(run).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// With the program, whose gates are open.
    fn attach(&mut self) {
        let config = Config { policy: Policy::Busy, ..Config::default() };
        let attach = || {
            let ifindex = ip::index("eth0")?;
            let mut controller = Controller::attach("eth0", ifindex, MAC_A, &config, COOKIE)?;
            controller
                .merge
                .set_hop(MAC_B, Hop::new(0, Outer::V4 { src: A, dst: B }, 500, 1500))?;
            controller.track(false)?;
            Ok::<_, sheaf_bpf::Error>(controller)
        };
        self.controller =
            Some(self.pair.a.run(|| attach().map_err(std::io::Error::other)).unwrap());
        self.gates(false);
    }

    fn controller(&mut self) -> &mut Controller {
        self.controller.as_mut().unwrap()
    }

    /// From now on packets leave in place, or are gathered where the gates are `closed`.
    fn gates(&mut self, closed: bool) {
        self.rule(closed, false);
    }

    /// The same; `hurried` beside many strangers.
    fn rule(&mut self, closed: bool, hurried: bool) {
        let (reaction, probe_at) = (Duration::from_secs(1), Instant::MAX);
        let rule = Rule { closed, hurried, reaction, probe_at, ..Rule::OPEN };
        (0..SLOTS).for_each(|slot| self.controller().merge.gates().set(slot, rule));
    }

    /// The device has finished with the gate's ticks up to number `tick`.
    fn has_left(&mut self, tick: u32) {
        let gates = self.controller().merge.gates();
        gates.ticks_left(0, tick, gates.untracked(0));
    }

    /// The device still has the last `some` ticks; the number of the last one.
    fn has_left_all_but(&mut self, some: u32) -> u32 {
        let last = self.controller().merge.gates().ticks(0);
        self.has_left(last - some);
        last
    }

    /// All that was sent leaves, and a tick behind it shows that.
    fn everything_leaves(&mut self) {
        self.gates(true);
        for _ in 0..2 {
            self.later();
            assert_eq!(self.queue_of(MARKER), None);
            self.tick();
            self.has_left_all_but(0);
        }
        self.gates(false);
    }

    /// The next packet of each flow comes long after its last one.
    fn later(&self) {
        // A unit more, as the program counts whole ones.
        let then = clock::now() + FLOWLET + Duration::from_nanos(1 << 20);
        timer::wait(&mut Poller::default(), 0, then, Duration::ZERO).unwrap();
    }

    /// The queues that have sent what `work` brings about.
    fn queues(&mut self, work: impl FnOnce(&mut Rig)) -> Vec<usize> {
        let before = self.sent();
        work(self);
        let after = self.sent();
        (0..QUEUES).filter(|at| after[*at] != before[*at]).collect()
    }

    /// The one queue that has; `None`: nothing was sent.
    fn queue(&mut self, work: impl FnOnce(&mut Rig)) -> Option<usize> {
        let queues = self.queues(work);
        assert!(queues.len() < 2, "{queues:?}");
        queues.first().copied()
    }

    fn send(&self, flow: usize) {
        if let Some(controller) = &self.controller {
            controller.merge.device().looks();
        }
        self.sockets[flow].send_to(&[7; 32], (B, 5004)).unwrap();
    }

    /// The queue that a packet of flow number `flow` leaves through.
    fn queue_of(&mut self, flow: usize) -> Option<usize> {
        self.queue(|rig| rig.send(flow))
    }

    /// The queues that have sent what `work` sends; `None` where the machine did not let that be
    /// done in less time than sparse packets are apart.
    fn at_once(&mut self, work: impl FnOnce(&mut Rig)) -> Option<Vec<usize>> {
        let mut took = Duration::MAX;
        let queues = self.queues(|rig| {
            let began = clock::now();
            work(rig);
            took = clock::now() - began;
        });
        (took < FLOWLET).then_some(queues)
    }

    /// Packets that each queue has sent.
    fn sent(&self) -> Vec<u64> {
        let text = self.tc("-s class show dev eth0");
        // "Sent 42 bytes 1 pkt", a line for each queue.
        let sent = |line: &str| line.trim().strip_prefix("Sent ")?.split(' ').nth(2)?.parse().ok();
        let sent: Vec<_> = text.lines().filter_map(sent).collect();
        assert_eq!(sent.len(), QUEUES, "{text}");
        sent
    }

    /// Sends what is gathered in one tick; the queue that it takes.
    fn tick(&mut self) -> Option<usize> {
        self.queue(Rig::flush)
    }

    fn flush(&mut self) {
        let controller = self.controller.as_mut().unwrap();
        let flush = || controller.flush().map_err(std::io::Error::other);
        self.pair.a.run(flush).unwrap();
    }
}

#[test]
fn sparse_flows_whose_packets_leave_in_place_have_their_own_queues_as_without_the_program() {
    let (mut rig, without) = Rig::known();
    for _ in 0..3 {
        rig.later();
        let with: Vec<_> = (0..MARKER).map(|flow| rig.queue_of(flow)).collect();
        assert_eq!(with, without[..MARKER]);
    }
}

#[test]
fn dense_flows_share_a_queue_so_that_they_can_be_gathered_and_not_overtake_themselves() {
    let mut rig = loop {
        let mut rig = Rig::new();
        rig.attach();
        let burst = |rig: &mut Rig| (0..FLOWS).cycle().take(50).for_each(|flow| rig.send(flow));
        if rig.at_once(burst).is_some() {
            break rig;
        }
    };
    let shared = rig.queue_of(0);
    for flow in 0..FLOWS {
        assert_eq!(rig.queue_of(flow), shared, "flow {flow}");
    }
    rig.gates(true);
    for flow in 0..FLOWS {
        assert_eq!(rig.queue_of(flow), None, "flow {flow} is gathered");
    }
    assert_eq!(rig.tick(), shared);
}

#[test]
fn a_flow_with_large_packets_stays_in_its_own_queue_and_nobody_waits_behind_it() {
    let mut rig = Rig::new();
    let own = rig.queue_of(0);
    rig.attach();
    rig.queue_of(1);
    let flood = |rig: &mut Rig| {
        for _ in 0..20 {
            rig.send(0);
            rig.sockets[0].send_to(&[7; 1200], (B, 5004)).unwrap();
        }
    };
    let queues = loop {
        if let Some(queues) = rig.at_once(flood) {
            break queues;
        }
    };
    assert_eq!(queues, own.into_iter().collect::<Vec<_>>());
}

/// A rig whose flow 0 is sparse and has sent two packets at once, the second one to a closed gate;
/// the queues that they took, and the flow's own. `others`: a frame with the gate's hash is on its
/// way.
fn two_at_once(others: bool) -> (Rig, Vec<usize>, Option<usize>) {
    loop {
        let (mut rig, own) = Rig::known();
        for _ in 0..2 {
            rig.later();
            assert_eq!(rig.queue_of(0), own[0]);
        }
        rig.later();
        if others {
            rig.has_left_all_but(1);
        }
        let packets = |rig: &mut Rig| {
            rig.send(0);
            rig.gates(true);
            rig.send(0);
        };
        if let Some(queues) = rig.at_once(packets) {
            return (rig, queues, own[0]);
        }
    }
}

#[test]
fn a_packet_whose_flow_has_its_own_queue_is_gathered_only_when_the_one_before_it_has_left() {
    let (mut rig, queues, own) = two_at_once(true);
    assert_eq!(queues.first().copied(), own);
    assert_eq!((queues.len(), rig.controller().merge.device().read().held), (1, 0));
    rig.later();
    assert_eq!(rig.queue_of(0), None);
}

#[test]
fn where_nothing_has_the_gates_hash_a_flow_is_gathered_in_its_own_queue() {
    let (mut rig, queues, own) = two_at_once(false);
    assert_eq!(queues.first().copied(), own);
    assert_eq!((queues.len(), rig.controller().merge.device().read().held), (1, 1));
    assert_eq!(rig.tick(), own);
}

#[test]
fn the_first_frame_of_several_flows_goes_behind_all_packets_that_left_in_place() {
    // A new queue is one that packets are in already in one of some forty cases.
    let mut queues = Vec::new();
    for _ in 0..3 {
        let (mut rig, own) = Rig::known();
        rig.later();
        for flow in [1, 2, 0] {
            assert_eq!(rig.queue_of(flow), own[flow]);
        }
        rig.later();
        rig.gates(true);
        for flow in [1, 2, 0] {
            assert_eq!(rig.queue_of(flow), None, "flow {flow} is gathered");
        }
        let queue = rig.tick();
        queues.push((queue, own[..3].contains(&queue)));
    }
    assert!(queues.iter().any(|(_, shared)| !shared), "{queues:?}");
}

#[test]
fn while_a_probe_waits_packets_of_other_sparse_flows_leave_in_place() {
    let (mut rig, own) = Rig::known();
    rig.later();
    let probe = Rule { reaction: Duration::from_secs(1), probe_at: Instant::ZERO, ..Rule::OPEN };
    // Only what follows another packet soon is a probe, and `tc` takes its time between two looks.
    let queues = rig.queues(|rig| {
        rig.send(1);
        rig.controller().merge.gates().set(0, probe);
        rig.send(0);
    });
    assert_eq!(queues, [own[1].unwrap()], "the second one is a probe");
    assert_eq!(rig.queue_of(2), own[2]);
    assert_eq!(rig.queue_of(3), own[3]);
    rig.later();
    let queues = rig.queues(|rig| {
        rig.send(2);
        rig.send(0);
    });
    assert_eq!(queues, [own[2].unwrap()], "the second one would overtake the probe");
    assert_eq!(rig.queue_of(3), own[3]);
}

#[test]
fn many_sparse_flows_are_told_apart() {
    let mut rig = Rig::new();
    rig.attach();
    let socket = |port| rig.pair.a.run(|| UdpSocket::bind((A, port))).unwrap();
    let sockets: Vec<_> = (8000..8150).map(socket).collect();
    for _ in 0..2 {
        rig.later();
        for socket in &sockets {
            rig.controller().merge.device().looks();
            socket.send_to(&[7; 32], (B, 5004)).unwrap();
        }
    }
    let shared = rig.controller().merge.gates().untracked(0);
    assert_eq!(shared, 0, "so many packets went to the queue of dense flows");
}

#[test]
fn beside_many_strangers_a_sparse_flow_leaves_in_place_though_frames_are_under_way() {
    let (mut rig, own) = Rig::known();
    rig.later();
    rig.rule(true, true);
    assert_eq!(rig.queue_of(0), own[0]);
    rig.later();
    rig.rule(true, false);
    assert_eq!(rig.queue_of(0), None);
}

#[test]
fn only_packets_of_dense_flows_let_a_frame_follow_those_under_way() {
    let (mut rig, _) = Rig::known();
    rig.later();
    rig.gates(true);
    let dense = |rig: &mut Rig| rig.controller().merge.queue(0).unwrap().dense != 0;
    assert_eq!(rig.queue_of(0), None);
    assert!(!dense(&mut rig), "one packet of a sparse flow waits");
    // More than a flow stays sparse for, however often this thread does not get its turn.
    for _ in 0..40 {
        rig.send(1);
    }
    assert!(dense(&mut rig));
    rig.flush();
    assert!(!dense(&mut rig), "nothing waits");
}

#[test]
fn a_flow_of_gathered_packets_stays_in_their_frames_queue_until_that_has_left() {
    let (mut rig, own) = Rig::known();
    rig.later();
    rig.gates(true);
    for flow in [0, 1, 2] {
        assert_eq!(rig.queue_of(flow), None, "flow {flow} is gathered");
    }
    let before = rig.controller().merge.gates().untracked(0);
    let shared = rig.tick();
    // As a device that still has the frame.
    let tick = rig.has_left_all_but(1);
    rig.gates(false);
    rig.later();
    assert_eq!(rig.queue_of(1), shared);
    assert_eq!(rig.queue_of(3), own[3], "nothing of this flow is in the frame");
    rig.controller().merge.gates().ticks_left(0, tick, before);
    assert_eq!(rig.queue_of(2), own[2]);
    rig.later();
    assert_eq!(rig.queue_of(1), shared, "its last packet may still be in that queue");
    rig.has_left(tick);
    rig.later();
    assert_eq!(rig.queue_of(1), own[1]);
}
