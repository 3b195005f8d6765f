//! The merging program and its model give the same bytes for the same packets. Needs root.

mod pair;

use pair::cable::{Cable, MARKS, finished, framed, on_a};
use pair::{A, B, COOKIE, MAC_A, MAC_B, Pair};
use proptest::prelude::*;
use sheaf_aggregate::{Aggregator, Config, Device, Outbound, Policy, Rule, Rules, Threshold};
use sheaf_bpf::layout::{self, MergeConfig, SLOTS};
use sheaf_bpf::ticker::{Cause, Tick};
use sheaf_bpf::{Controller, Event, Merge, Ticker};
use sheaf_netio::ip;
use sheaf_netio::packet::PacketSocket;
use sheaf_stage::{Duration, Instant, Stage};
use sheaf_wire::checksum;
use sheaf_wire::meta::Outer;
use std::net::IpAddr;

/// Behind it are the far ends.
const FAR: [u8; 2] = [10, 77];
const STRANGER: [u8; 6] = [2, 0, 0, 0, 9, 9];

/// A packet that a host may send.
#[derive(Clone, Debug)]
struct Spec {
    v6: bool,
    tcp: bool,
    /// 0: the neighbour itself; 1: behind the far end; 2: behind a stranger.
    to: u8,
    port: u16,
    dscp: u8,
    ecn: u8,
    payload: usize,
    /// Its checksum is left to the device.
    unfinished: bool,
    ack: bool,
    mark: u32,
}

fn spec() -> impl Strategy<Value = Spec> {
    let payload = prop_oneof![6 => 0..120usize, 2 => 120..300usize, 1 => 300..1440usize];
    let kind = (any::<bool>(), prop::bool::weighted(0.2), 0..8u8, 0..4u16);
    let class = (prop::sample::select(vec![0, 46]), 0..4u8);
    let mark = prop::sample::select(MARKS.to_vec());
    (kind, class, payload, any::<bool>(), any::<bool>(), mark).prop_map(
        |((v6, tcp, to, port), (dscp, ecn), payload, unfinished, ack, mark)| {
            let to = to.saturating_sub(5);
            let payload = if ack && tcp { 0 } else { payload };
            let port = 5000 + port;
            Spec { v6, tcp, to, port, dscp, ecn, payload, unfinished, ack, mark }
        },
    )
}

impl Spec {
    fn packet(&self) -> Vec<u8> {
        let mut packet = Vec::new();
        let payload: Vec<u8> = (0..self.payload).map(|at| at as u8 ^ self.port as u8).collect();
        let far = if self.to == 1 { FAR } else { [10, 9] };
        let builder = if self.v6 {
            let mut to = [0xfd, far[1], 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
            to[2] = far[0];
            etherparse::PacketBuilder::ipv6([0xfd; 16], to, 63)
        } else {
            etherparse::PacketBuilder::ipv4([10, 1, 0, 1], [far[0], far[1], 0, 2], 63)
        };
        if self.tcp {
            let tcp = builder.tcp(self.port, 80, 7, 1000);
            let tcp = if self.ack { tcp.ack(9) } else { tcp.psh().ack(9) };
            tcp.write(&mut packet, &payload).unwrap();
        } else {
            builder.udp(self.port, 5004).write(&mut packet, &payload).unwrap();
        }
        let class = self.dscp << 2 | self.ecn;
        let transport = if self.v6 {
            packet[0] = 0x60 | class >> 4;
            packet[1] = class << 4;
            40
        } else {
            packet[1] = class;
            packet[10..12].fill(0);
            let checksum = checksum::ipv4_header(&packet[..20]);
            packet[10..12].copy_from_slice(&checksum.to_be_bytes());
            20
        };
        if self.unfinished {
            let addresses = if self.v6 { &packet[8..40] } else { &packet[12..20] };
            let len = packet.len() - transport;
            let protocol = if self.tcp { 6 } else { 17 };
            let pseudo = checksum::fold(checksum::sum(addresses, len as u32 + protocol));
            let field = transport + if self.tcp { 16 } else { 6 };
            packet[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
        }
        packet
    }

    fn mac(&self) -> [u8; 6] {
        if self.to == 2 { STRANGER } else { MAC_B }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Packet(Spec),
    /// The device is done with everything it has.
    Done,
    /// Every time is over.
    Late,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        20 => spec().prop_map(Op::Packet),
        2 => Just(Op::Done),
        1 => Just(Op::Late),
    ];
    prop::collection::vec(op, 1..250)
}

/// Both, with the neighbour as hop 0 and the far end as hop 1.
struct Twins<'a> {
    cable: &'a Cable,
    merge: Merge,
    ticker: Ticker,
    model: Aggregator,
    config: Config,
    now: Instant,
}

impl Twins<'_> {
    fn new(config: Config, cable: &Cable) -> Twins<'_> {
        let far: IpAddr = "fd09::99".parse().unwrap();
        let outers =
            [Outer::V4 { src: A, dst: B }, Outer::new("fd09::1".parse().unwrap(), far).unwrap()];
        let mut merge = Merge::attach("eth0", MergeConfig::new(&config, COOKIE)).unwrap();
        let mut model = Aggregator::new(config.clone()).unwrap();
        let hop = |id: u32| {
            layout::Hop::new(id, outers[id as usize], config.min.of(config.max), config.max)
        };
        merge.set_hop(MAC_B, hop(0)).unwrap();
        merge.set_far_end([FAR[0], FAR[1], 0, 0].into(), 16, hop(1).far()).unwrap();
        let v6 = [0xfd, FAR[1], FAR[0], 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        merge.set_far_end(v6.into(), 24, hop(1).far()).unwrap();
        model.add_hop(sheaf_aggregate::Hop::neighbour(outers[0]));
        model.add_hop(sheaf_aggregate::Hop::far(outers[1]));
        if config.policy == Policy::Busy {
            merge.device().tell(0, 50);
            model.set_device(Device::Reports { waiting: 0, limit: 50 }, Instant::ZERO);
        }
        let ticker = Ticker::new(ip::index("eth0").unwrap(), MAC_A, COOKIE).unwrap();
        Twins { cable, merge, ticker, model, config, now: Instant::ZERO }
    }

    fn program(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        // The program may drop it.
        let _ = self.cable.into.send(frame);
        self.cable.packets()
    }

    fn ticked(&mut self, slot: u32, cause: Cause) -> Vec<Vec<u8>> {
        self.ticker.tick(Tick::new(slot, cause)).unwrap();
        self.merge.gates().tick_is_over(slot);
        self.cable.packets()
    }

    /// The queue that waits longest.
    fn oldest(&self) -> Option<u32> {
        let waits = |slot: &u32| !self.merge.queue(*slot).unwrap().is_empty();
        let oldest = |slot: &u32| self.merge.queue(*slot).unwrap().oldest();
        (0..SLOTS).filter(waits).min_by_key(oldest)
    }

    /// Frames of the program and of the model upon `op`.
    fn apply(&mut self, op: &Op) -> [Vec<Vec<u8>>; 2] {
        self.now += Duration::from_micros(1);
        // Nobody hangs here, however long an operation takes.
        self.merge.device().looks();
        let mut sent = Vec::new();
        match op {
            Op::Packet(spec) => {
                let packet = spec.packet();
                self.cable.mark(spec.mark);
                sent.extend(self.program(&framed(spec.mac(), &packet)));
                while let Some(event) = self.merge.event() {
                    if let Event::WantsTick { slot } = event {
                        sent.extend(self.ticked(slot, Cause::Size));
                    }
                }
                if spec.to == 2 {
                    // No next hop of the model's: it passes, and the device has it.
                    if let Device::Reports { waiting, limit } = self.model.device() {
                        let waiting = waiting + 1;
                        self.model.set_device(Device::Reports { waiting, limit }, self.now);
                    }
                    return [sent, vec![packet]];
                }
                let hop = sheaf_aggregate::HopId(u32::from(spec.to));
                self.model.enqueue(Outbound { hop, mark: spec.mark, packet }, self.now).unwrap();
            }
            Op::Done if self.config.policy == Policy::Busy => {
                self.merge.device().tell(self.merge.device().read().sent, 50);
                if let Some(slot) = self.oldest() {
                    sent.extend(self.ticked(slot, Cause::Ready));
                }
                self.model.set_device(Device::Reports { waiting: 0, limit: 50 }, self.now);
            }
            Op::Done => {}
            Op::Late => {
                while let Some(slot) = self.oldest() {
                    let frames = self.ticked(slot, Cause::Timeout);
                    assert_eq!(frames.len(), 1, "a queue that waits leaves on a tick");
                    sent.extend(frames);
                }
                self.now += self.config.hold;
            }
        }
        let model = std::iter::from_fn(|| self.model.dequeue(self.now));
        let model = model.map(|frame| frame.bytes).collect();
        [sent, model]
    }
}

fn compare(cable: &Cable, config: Config, ops: &[Op]) -> Result<(), TestCaseError> {
    let mut twins = Twins::new(config, cable);
    for (index, op) in ops.iter().enumerate() {
        let [program, model] = twins.apply(op);
        let (program, model) = (finished(program), finished(model));
        let lengths = |frames: &[Vec<u8>]| frames.iter().map(Vec::len).collect::<Vec<_>>();
        prop_assert_eq!(lengths(&program), lengths(&model), "after operation {}", index);
        prop_assert_eq!(program, model, "after operation {}", index);
    }
    let sum = |mut sum: sheaf_aggregate::Stats, (_, stats): &(u32, sheaf_aggregate::Stats)| {
        sum.add(stats);
        sum
    };
    let program = twins.merge.stats().unwrap().iter().fold(sheaf_aggregate::Stats::default(), sum);
    prop_assert_eq!(program, twins.model.total());
    Ok(())
}

fn configs() -> impl Strategy<Value = Config> {
    let own = Rule { destination_ports: 5000..=5010, dscp: Some(46), ..Rule::default() };
    let rules = vec![
        Rules::default(),
        Rules { acks: true, ..Rules::default() },
        Rules { rules: vec![own, Rule { max_len: 100, ..Rule::default() }], acks: false },
    ];
    let policy = prop::sample::select(vec![Policy::Forced, Policy::Busy]);
    let max = prop::sample::select(vec![600u16, 1500, 2048]);
    let min = prop::sample::select(vec![Threshold::Bytes(500), Threshold::Percent(30)]);
    (policy, prop::sample::select(rules), max, min, any::<bool>()).prop_map(
        |(policy, rules, max, min, by_mark)| {
            let config = Config { policy, rules, max, min, by_mark, ..Config::default() };
            Config { backoff: 0, ..config }
        },
    )
}

#[test]
fn the_merging_program_sends_the_bytes_of_its_model() {
    let pair = Pair::new();
    let cable = Cable::new(&pair);
    on_a(&pair, || {
        let cases =
            ProptestConfig { cases: 20, failure_persistence: None, ..ProptestConfig::default() };
        proptest!(cases, |(config in configs(), ops in ops())| compare(&cable, config, &ops)?);
    });
}

#[test]
fn more_classes_than_queues_are_served_in_turn_and_keep_their_counters() {
    let pair = Pair::new();
    let ifindex = pair.a.run(|| ip::index("eth0")).unwrap();
    on_a(&pair, || {
        let config = Config { rules: Rules::default(), ..Config::forced() };
        let mut controller = Controller::attach("eth0", ifindex, MAC_A, &config, COOKIE).unwrap();
        let outer = Outer::V4 { src: A, dst: B };
        controller.merge.set_hop(MAC_B, layout::Hop::new(0, outer, 500, 1500)).unwrap();
        let raw = PacketSocket::open(ifindex).unwrap();
        let mut now = Instant::from_millis(1 << 40);
        let mut sent = 0;
        for dscp in 0..64 {
            for ecn in [0, 2] {
                let spec = Spec {
                    v6: false,
                    tcp: false,
                    to: 0,
                    port: 5000,
                    dscp,
                    ecn,
                    payload: 32,
                    unfinished: false,
                    ack: false,
                    mark: 0,
                };
                raw.send(&framed(MAC_B, &spec.packet())).unwrap();
                sent += 1;
                // Far in the future every packet is overdue.
                now += Duration::from_millis(200);
                controller.run(now).unwrap();
            }
        }
        let device = controller.merge.device().read();
        let stats = controller.merge.stats().unwrap()[0].1;
        assert_eq!(stats.unaggregated_packets + u64::from(device.passed), sent);
        assert!(device.passed <= 2, "at most the packet that found no queue passes: {device:?}");
    });
}
