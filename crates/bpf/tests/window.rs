//! The window program and its model: the same packets, the same bytes, the same counters. Needs
//! root, but no interface: the kernel runs the program on packets that the test gives it.

use proptest::prelude::*;
use sheaf_bpf::Window;
use sheaf_netio::clock;
use sheaf_stage::{Duration, Instant};
use sheaf_window::cost;
use sheaf_window::flow::Rtt;
use sheaf_window::{
    Connection, Direction, FlowId, Growth, Key, Outcome, Passing, RestSetting, Rewriter,
};

mod common;
use common::{Layout, Packet, handshake};

/// Both twins.
struct Twins {
    program: Window,
    model: Rewriter,
    /// Time of the model, and that by which both judge the rest.
    now: Instant,
    lowered: u32,
    pushed: u32,
    marked: u32,
    dropped: u32,
    /// Acknowledgements whose copies have not come back yet, and how many copies there were.
    withheld: Vec<Vec<u8>>,
    copies: u64,
}

impl Twins {
    fn new() -> Twins {
        let mut twins = Twins {
            program: Window::load(14).unwrap(),
            model: Rewriter::new(),
            now: clock::now(),
            lowered: 0,
            pushed: 0,
            marked: 0,
            dropped: 0,
            withheld: Vec::new(),
            copies: 0,
        };
        twins.beat(Duration::ZERO);
        twins
    }

    /// The controller's last sign of life was `age` ago.
    fn beat(&mut self, age: Duration) {
        self.program.set_clock(self.now);
        self.program.beat(clock::now() - age).unwrap();
        self.model.beat(self.now - age);
    }

    fn set_rest(&mut self, direction: Direction, setting: RestSetting) {
        self.program.set_rest(direction, setting);
        self.model.set_rest(direction, setting);
        self.beat(Duration::ZERO);
    }

    fn set_growth(&mut self, direction: Direction, growth: Growth) {
        self.program.set_growth(direction, growth);
        self.model.set_growth(direction, growth);
        self.beat(Duration::ZERO);
    }

    fn set_pace(&mut self, cost: u32) {
        self.program.set_pace(cost);
        self.model.set_pace(cost);
        self.beat(Duration::ZERO);
    }

    fn set(&mut self, flow: FlowId, window: u32) {
        assert_eq!(self.program.set(flow, window).unwrap(), self.model.set(flow, window));
    }

    /// Both see the frame; answers it as both left it.
    fn pass(&mut self, direction: Direction, frame: &[u8], link: usize, segments: u32) -> Vec<u8> {
        let mut out = vec![0; frame.len() + 64];
        let (len, _) = self.program.run(direction, frame, segments, &mut out, 1).unwrap();
        let mut expected = frame.to_vec();
        let passing = Passing { segments, link: link as u32, ..Passing::plain(direction) };
        let outcome = self.model.rewrite(&mut expected[link..], passing, self.now);
        let is_withheld = matches!(outcome, Outcome::Withheld { .. });
        self.lowered += u32::from(is_withheld || matches!(outcome, Outcome::Clamped { .. }));
        if is_withheld {
            self.withhold(frame);
        }
        self.pushed += u32::from(outcome == Outcome::Pushed);
        self.marked += u32::from(outcome == Outcome::Marked);
        self.dropped += u32::from(outcome == Outcome::Dropped);
        if outcome == Outcome::Dropped {
            expected.clear();
        }
        same(frame, &out[..len], &expected);
        expected
    }

    /// A copy of `frame` is to come back.
    fn withhold(&mut self, frame: &[u8]) {
        self.withheld.push(frame.to_vec());
        self.copies += 1;
    }

    /// Shows both a copy that comes back. Returns whether it goes on.
    fn come_back(&mut self, frame: &[u8], link: usize) -> bool {
        let mut out = vec![0; frame.len() + 64];
        let len = self.program.run_back(frame, &mut out).unwrap();
        let mut expected = frame.to_vec();
        let outcome = self.model.release(&mut expected[link..], self.now);
        match outcome {
            Outcome::Withheld { .. } => self.withhold(frame),
            Outcome::Dropped => expected.clear(),
            _ => {}
        }
        same(frame, &out[..len], &expected);
        outcome != Outcome::Dropped
    }

    fn send(&mut self, packet: &Packet) -> Vec<u8> {
        self.pass(packet.direction, &packet.frame(), packet.layout.link(), 1)
    }

    /// Both tables, without what depends on when exactly a twin saw a packet.
    fn compare(&mut self) {
        let mut program: Vec<_> =
            self.program.flows().map(|(key, flow)| (key, timeless(flow))).collect();
        let mut model: Vec<_> =
            self.model.flows().map(|(key, flow)| (*key, timeless(*flow))).collect();
        program.sort_by_key(|(key, _)| *key);
        model.sort_by_key(|(key, _)| *key);
        assert_eq!(program, model);
        let mut program: Vec<_> = self.program.rest().unwrap().collect();
        let mut model: Vec<_> = self.model.rest().map(|(key, pair)| (*key, *pair)).collect();
        program.sort_by_key(|(key, _)| *key);
        model.sort_by_key(|(key, _)| *key);
        assert_eq!(program, model);
        for direction in Direction::BOTH {
            let totals = self.program.totals(direction).unwrap();
            assert_eq!(totals, self.model.totals(direction));
        }
        assert_eq!(self.program.copies().unwrap(), self.copies);
    }
}

/// Asserts that the program and the model left the same bytes of `frame`.
fn same(frame: &[u8], program: &[u8], model: &[u8]) {
    assert_eq!(program.len(), model.len());
    let other = |at: &usize| program[*at] != model[*at];
    let values = |at: usize| (at, frame[at], program[at], model[at]);
    let differs: Vec<_> = (0..model.len()).filter(other).map(values).collect();
    assert!(differs.is_empty(), "(at, was, program, model): {differs:?}");
}

/// What is left when the clock is taken out; that a sample was taken stays.
fn timeless(mut connection: Connection) -> Connection {
    for half in &mut connection.half {
        half.last = Instant::from_nanos(u64::from(half.last != Instant::ZERO));
        half.watch_since = Instant::from_nanos(u64::from(half.watch_since != Instant::ZERO));
        half.rtt.since = Instant::from_nanos(u64::from(half.rtt.since != Instant::ZERO));
        half.rtt.latest = 0;
        (half.rtt.min, half.rtt.sum) = (u64::from(half.rtt.min > 0), u64::from(half.rtt.sum > 0));
    }
    connection
}

fn options() -> impl Strategy<Value = Vec<u8>> {
    let timestamps = (0u32..6, 0u32..6).prop_map(|(value, echo)| {
        let mut option = vec![8, 10];
        option.extend_from_slice(&value.to_be_bytes());
        option.extend_from_slice(&echo.to_be_bytes());
        option
    });
    let one = prop_oneof![
        2 => Just(vec![1]),
        3 => timestamps.clone(),
        2 => (0u8..16).prop_map(|shift| vec![3, 3, shift]),
        2 => prop_oneof![1 => Just(0u16), 9 => any::<u16>()]
            .prop_map(|mss| [&[2, 4][..], &mss.to_be_bytes()].concat()),
        1 => Just(vec![4, 2]),
        1 => proptest::collection::vec(any::<u8>(), 8)
            .prop_map(|edges| [&[5, 10], &edges[..]].concat()),
        1 => Just(vec![0]),
        1 => proptest::collection::vec(any::<u8>(), 1..8),
    ];
    let any_layout = proptest::collection::vec(one, 0..6).prop_map(|all| {
        let mut bytes = all.concat();
        bytes.truncate(40);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    });
    prop_oneof![
        1 => any_layout,
        1 => timestamps.prop_map(|option| [&[1, 1], &option[..]].concat()),
    ]
}

/// Classes of all kinds of ECN; voice among them.
fn class() -> impl Strategy<Value = u8> {
    prop_oneof![6 => 0u8..4, 1 => (46u8 << 2)..=(48 << 2 | 3), 1 => any::<u8>()]
}

fn rest_setting() -> impl Strategy<Value = RestSetting> {
    // At 125 kbit/s a byte takes 64 µs, and a packet up to 100 ms.
    let rate = prop_oneof![4 => 1.25e5..4e6f64, 1 => 4e6..1e9f64];
    let cost = prop_oneof![1 => Just(0), 6 => rate.prop_map(cost::of)];
    (cost, any::<bool>(), any::<bool>()).prop_map(|(cost, drops, voice)| RestSetting {
        cost,
        drops,
        voice,
    })
}

fn layout() -> impl Strategy<Value = Layout> {
    (any::<bool>(), 0usize..3, 0usize..=10, class()).prop_map(|(v6, tags, words, class)| Layout {
        v6,
        tags,
        ip_options: if v6 || words > 4 { 0 } else { words * 4 },
        class,
    })
}

#[derive(Clone, Debug)]
enum Step {
    Send(Packet),
    /// A packet with one byte behind the link header changed.
    Broken(Packet, usize, u8),
    Super(Packet, u32),
    Handshake {
        layout: Layout,
        opener: Direction,
        options: [Vec<u8>; 2],
        windows: [u16; 2],
    },
    Set(u16, Direction, u32),
    Initial(Direction, u32),
    Growth(Direction, u32),
    Rest(Direction, RestSetting),
    Beat(bool),
    Push(Direction, bool),
    Pace(u32),
    /// Any packet as if it were a copy that comes back.
    Back(Packet),
}

impl Step {
    /// All packets of a case have one IP version, so that they meet in the same flows.
    fn use_version(&mut self, v6: bool) {
        let layout = match self {
            Step::Send(packet)
            | Step::Broken(packet, ..)
            | Step::Super(packet, _)
            | Step::Back(packet) => &mut packet.layout,
            Step::Handshake { layout, .. } => layout,
            _ => return,
        };
        layout.v6 = v6;
        if v6 {
            layout.ip_options = 0;
        }
    }
}

fn packet() -> impl Strategy<Value = Packet> {
    let window = prop_oneof![Just(0u16), 1u16..100, any::<u16>()];
    let flags = prop_oneof![12 => Just(16u8), 2 => Just(24u8), 1 => any::<u8>()];
    let direction = prop_oneof![Just(Direction::In), Just(Direction::Out)];
    let numbers = (0u32..200_000, 0u32..200_000, window, 0usize..1500);
    let kind = (0u8..10, any::<bool>(), 0u16..2);
    (layout(), direction, numbers, flags, options(), kind).prop_map(
        |(
            layout,
            direction,
            (seq, ack, window, payload),
            flags,
            options,
            (kind, partial, port),
        )| {
            Packet {
                layout,
                direction,
                port: 1000 + port,
                udp: kind == 0,
                seq: seq.wrapping_sub(100_000),
                ack: ack.wrapping_sub(100_000),
                flags,
                window,
                options,
                payload: if payload < 700 { 0 } else { payload },
                partial,
                fragment: kind == 1,
            }
        },
    )
}

/// The time of a byte by which windows open.
fn pace() -> impl Strategy<Value = u32> {
    prop_oneof![1 => Just(0u32), 6 => (2e5..1e8f64).prop_map(cost::of)]
}

fn step() -> impl Strategy<Value = Step> {
    let direction = || prop_oneof![Just(Direction::In), Just(Direction::Out)];
    let bytes = prop_oneof![Just(0u32), 1u32..3000, 3000u32..300_000, any::<u32>()];
    let growth =
        prop_oneof![2 => Just(0u32), 1 => Just(1u32), 6 => 100u32..30_000, 1 => any::<u32>()];
    let both = (layout(), direction(), options(), options(), any::<[u16; 2]>());
    prop_oneof![
        12 => packet().prop_map(Step::Send),
        3 => (packet(), any::<usize>(), any::<u8>())
            .prop_map(|(packet, at, to)| Step::Broken(packet, at, to)),
        1 => (packet(), 2u32..40).prop_map(|(packet, segments)| Step::Super(packet, segments)),
        3 => both.prop_map(|(layout, opener, first, second, windows)| Step::Handshake {
            layout, opener, options: [first, second], windows,
        }),
        3 => (0u16..2, direction(), bytes.clone()).prop_map(|(p, d, w)| Step::Set(1000 + p, d, w)),
        1 => (direction(), bytes).prop_map(|(d, w)| Step::Initial(d, w)),
        2 => (direction(), rest_setting()).prop_map(|(d, setting)| Step::Rest(d, setting)),
        2 => (direction(), growth).prop_map(|(d, bytes)| Step::Growth(d, bytes)),
        1 => any::<bool>().prop_map(Step::Beat),
        2 => (direction(), any::<bool>()).prop_map(|(d, push)| Step::Push(d, push)),
        2 => pace().prop_map(Step::Pace),
        2 => packet().prop_map(Step::Back),
    ]
}

#[test]
fn the_program_and_the_model_leave_the_same_bytes_and_counters() {
    let (lowered, pushed) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    let config = ProptestConfig { cases: 120, failure_persistence: None, ..Default::default() };
    proptest!(config, |(v6 in any::<bool>(), steps in proptest::collection::vec(step(), 1..150))| {
        let mut twins = Twins::new();
        for direction in Direction::BOTH {
            twins.program.set_initial(direction, 5_000, 12_000);
            twins.model.set_initial(direction, 5_000, 12_000);
        }
        twins.beat(Duration::ZERO);
        for mut step in steps {
            step.use_version(v6);
            match step {
                Step::Send(packet) => {
                    twins.send(&packet);
                }
                Step::Broken(packet, at, to) => {
                    let mut frame = packet.frame();
                    let link = packet.layout.link();
                    // The version says nothing new: the EtherType already did.
                    let at = link + at % (frame.len() - link);
                    frame[at] = if at == link { frame[at] & 0xf0 | to & 0x0f } else { to };
                    twins.pass(packet.direction, &frame, link, 1);
                }
                Step::Super(packet, segments) if !packet.udp => {
                    let frame = packet.frame();
                    twins.pass(packet.direction, &frame, packet.layout.link(), segments);
                }
                Step::Super(..) => {}
                Step::Handshake { layout, opener, options, windows } => {
                    for packet in handshake(layout, opener, &options, windows) {
                        twins.send(&packet);
                    }
                }
                Step::Set(port, direction, window) => {
                    twins.set(FlowId { key: common::key(v6, port), direction }, window);
                }
                Step::Initial(direction, window) => {
                    twins.program.set_initial(direction, window, window.saturating_mul(2));
                    twins.model.set_initial(direction, window, window.saturating_mul(2));
                    twins.beat(Duration::ZERO);
                }
                Step::Growth(direction, bytes) => {
                    twins.set_growth(direction, Growth { bytes, wait: 0 });
                }
                Step::Rest(direction, setting) => twins.set_rest(direction, setting),
                Step::Push(direction, push) => {
                    twins.program.set_push(direction, push);
                    twins.model.set_push(direction, push);
                    twins.beat(Duration::ZERO);
                }
                Step::Pace(cost) => twins.set_pace(cost),
                // The kernel finishes checksums on the way out.
                Step::Back(packet) => {
                    let packet = Packet { partial: false, ..packet };
                    twins.come_back(&packet.frame(), packet.layout.link());
                }
                Step::Beat(alive) => {
                    let age = Duration::from_secs(if alive { 0 } else { 3 });
                    twins.beat(age);
                }
            }
        }
        twins.compare();
        lowered.set(lowered.get() + twins.lowered);
        pushed.set(pushed.get() + twins.pushed);
    });
    assert!(lowered.get() > 300, "the cases lower windows: {}", lowered.get());
    assert!(pushed.get() > 30, "the cases push segments: {}", pushed.get());
}

/// A packet of the rest after a gap: UDP, or TCP that began unseen, from one of two senders.
fn rest_packet() -> impl Strategy<Value = (Duration, Packet)> {
    let gap = prop_oneof![40 => 0u64..3_000, 10 => 0u64..15_000, 1 => 0u64..300_000];
    let direction = prop_oneof![8 => Just(Direction::In), 1 => Just(Direction::Out)];
    let udp = prop_oneof![8 => Just(true), 1 => Just(false)];
    let payload = prop_oneof![1 => Just(0usize), 6 => 700usize..1400];
    let port = prop_oneof![8 => Just(0u16), 1 => Just(1)];
    (gap, direction, class(), udp, port, payload).prop_map(
        |(gap, direction, class, udp, port, payload)| {
            let layout = Layout { class, ..Layout::default() };
            let packet =
                Packet { udp, port: 1000 + port, payload, ..Packet::ack(layout, direction) };
            (Duration::from_micros(gap), packet)
        },
    )
}

#[test]
fn the_program_and_the_model_mark_and_drop_the_same_packets_of_the_rest() {
    let (marked, dropped) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    let config = ProptestConfig { cases: 40, failure_persistence: None, ..Default::default() };
    let phase = || (rest_setting(), proptest::collection::vec(rest_packet(), 200..600));
    proptest!(config, |(phases in proptest::collection::vec(phase(), 1..5))| {
        let mut twins = Twins::new();
        for (setting, packets) in phases {
            for direction in Direction::BOTH {
                twins.set_rest(direction, setting);
            }
            for (gap, packet) in packets {
                twins.now += gap;
                twins.beat(Duration::ZERO);
                twins.send(&packet);
            }
            twins.compare();
        }
        marked.set(marked.get() + twins.marked);
        dropped.set(dropped.get() + twins.dropped);
    });
    assert!(marked.get() > 100, "the cases mark packets: {}", marked.get());
    assert!(dropped.get() > 100, "the cases drop packets: {}", dropped.get());
}

/// A flow with a window of `window` bytes for the data that comes in.
fn clamped(twins: &mut Twins, layout: Layout, scale: u8, window: u32) -> Key {
    let options = || vec![2, 4, 5, 180, 3, 3, scale, 1];
    // From the first packet on: a larger window that was advertised could not be taken back.
    twins.program.set_initial(Direction::In, window, u32::MAX);
    twins.model.set_initial(Direction::In, window, u32::MAX);
    twins.beat(Duration::ZERO);
    for packet in handshake(layout, Direction::Out, &[options(), options()], [65535; 2]) {
        twins.send(&packet);
    }
    common::key(layout.v6, 1000)
}

#[test]
fn windows_in_slow_start_grow_alike() {
    let grown = std::cell::Cell::new(0);
    let config = ProptestConfig { cases: 60, failure_persistence: None, ..Default::default() };
    let growth = prop_oneof![1 => Just(0u32), 1 => Just(1u32), 8 => 500u32..40_000];
    // How much each acknowledges of what was advertised: old ones, none, a part, all.
    let step = prop_oneof![1 => -3_000i64..0, 1 => Just(0i64), 12 => 1i64..6_000];
    let change = prop_oneof![10 => Just(None), 1 => (3_000u32..400_000).prop_map(Some)];
    let steps = proptest::collection::vec((step, change, growth.clone(), any::<bool>()), 50..200);
    let begin = (0u8..=10, 3_000u32..30_000, growth);
    proptest!(config, |((scale, first, growth) in begin, steps in steps)| {
        let mut twins = Twins::new();
        let layout = Layout::default();
        let grow = |twins: &mut Twins, bytes| {
            // No round trip is longer than the smallest one by so much.
            twins.set_growth(Direction::In, Growth { bytes, wait: u32::MAX });
        };
        grow(&mut twins, growth);
        let key = clamped(&mut twins, layout, scale, first);
        let flow = FlowId { key, direction: Direction::In };
        twins.set(flow, 200_000);
        let (mut ack, mut last) = (1, 0);
        for (step, change, bytes, is_open) in steps {
            if let Some(window) = change {
                twins.set(flow, window);
                grow(&mut twins, bytes);
            }
            let next = (ack + step).max(1);
            ack = ack.max(next);
            // A receiver with room for all, or for little.
            let window = if is_open { 65_535 } else { 20_000 };
            let packet = Packet { ack: next as u32, window, ..Packet::ack(layout, Direction::Out) };
            twins.send(&packet);
            let written = twins.model.flow(&key).unwrap().half(Direction::In).written;
            grown.set(grown.get() + u32::from(written > last));
            last = written;
        }
        twins.compare();
    });
    assert!(grown.get() > 2_000, "windows grow: {}", grown.get());
}

#[test]
fn windows_of_uploads_open_alike_by_a_clock() {
    let (withheld, given) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    let config = ProptestConfig { cases: 60, failure_persistence: None, ..Default::default() };
    let gap = prop_oneof![4 => 0u64..50, 2 => 0u64..5_000, 1 => 0u64..60_000];
    let step = prop_oneof![1 => -3_000i64..0, 1 => Just(0i64), 12 => 1i64..6_000];
    // Mostly nothing changes; windows, growth and the clock do at times.
    let change = prop_oneof![
        12 => Just(None),
        1 => (3_000u32..100_000, 500u32..40_000, pace()).prop_map(Some),
    ];
    let steps = proptest::collection::vec((gap, step, change, any::<bool>()), 50..200);
    proptest!(config, |(scale in 0u8..=10, cost in pace(), steps in steps)| {
        let mut twins = Twins::new();
        let layout = Layout::default();
        twins.program.set_initial(Direction::Out, 8_000, u32::MAX);
        twins.model.set_initial(Direction::Out, 8_000, u32::MAX);
        let set = |twins: &mut Twins, bytes, cost| {
            twins.set_growth(Direction::Out, Growth { bytes, wait: u32::MAX });
            twins.set_pace(cost);
        };
        set(&mut twins, 10_000, cost);
        let options = || vec![2, 4, 5, 180, 3, 3, scale, 1];
        for packet in handshake(layout, Direction::Out, &[options(), options()], [65535; 2]) {
            twins.send(&packet);
        }
        let key = common::key(layout.v6, 1000);
        let flow = FlowId { key, direction: Direction::Out };
        twins.set(flow, 30_000);
        let mut ack = 1;
        for (gap, step, change, comes_back) in steps {
            twins.now += Duration::from_micros(gap);
            twins.beat(Duration::ZERO);
            if let Some((window, bytes, cost)) = change {
                twins.set(flow, window);
                set(&mut twins, bytes, cost);
            }
            if comes_back && let Some(copy) = twins.withheld.pop() {
                given.set(given.get() + u32::from(twins.come_back(&copy, layout.link())));
            }
            let next = (ack + step).max(1);
            ack = ack.max(next);
            let packet = Packet::ack(layout, Direction::In);
            twins.send(&Packet { ack: next as u32, window: 65_535, ..packet });
        }
        twins.compare();
        withheld.set(withheld.get() + twins.copies);
    });
    assert!(withheld.get() > 500, "windows are withheld: {}", withheld.get());
    assert!(given.get() > 200, "copies give them: {}", given.get());
}

#[test]
fn a_window_stays_what_it_is_after_a_round_trip_that_waited() {
    let (layout, mut twins) = (Layout::default(), Twins::new());
    let key = clamped(&mut twins, layout, 7, 20_000);
    // The server's acknowledgement comes after many other packets.
    twins.send(&Packet { payload: 1000, ..Packet::ack(layout, Direction::Out) });
    (0..300).for_each(|_| _ = twins.send(&Packet::ack(layout, Direction::Out)));
    twins.now += Duration::from_millis(5);
    twins.send(&Packet { ack: 1001, ..Packet::ack(layout, Direction::In) });
    twins.set(FlowId { key, direction: Direction::In }, 2_000_000);

    let round_trips = |twins: &Twins| {
        let program = twins.program.flows().find(|(other, _)| *other == key).unwrap().1;
        [program, *twins.model.flow(&key).unwrap()].map(|flow| flow.half(Direction::Out).rtt)
    };
    let above = |rtt: Rtt| rtt.latest - (rtt.floor().unwrap().as_nanos() / 1000) as u32;
    let mut last = 0;
    for (number, is_longer) in [false, true, false, true, true, false].into_iter().enumerate() {
        // The longest wait that the latest round trip is longer than, and the next one.
        let waits = round_trips(&twins).map(|rtt| above(rtt) - u32::from(is_longer));
        assert!(waits.iter().all(|wait| *wait > 0), "the round trip waited: {waits:?} us");
        let [program, model] = waits.map(|wait| Growth { bytes: 10_000, wait });
        twins.program.set_growth(Direction::In, program);
        twins.model.set_growth(Direction::In, model);
        twins.beat(Duration::ZERO);
        let ack = 1 + 10_000 * (number as u32 + 1);
        twins.send(&Packet { ack, seq: 1001, ..Packet::ack(layout, Direction::Out) });
        let written = twins.model.flow(&key).unwrap().half(Direction::In).written;
        if number > 0 {
            let grown = written.saturating_sub(last);
            // A unit of the field is 128 bytes.
            assert_eq!(grown > 256, !is_longer, "{number}: {last} to {written}");
        }
        last = written;
    }
    twins.compare();
}

#[test]
fn connections_that_begin_share_alike_what_their_second_rounds_may_have() {
    for (spare, growth) in [(20_000, 20_000), (20_000, 0), (u32::MAX, 1), (0, 5_000)] {
        let mut twins = Twins::new();
        for direction in Direction::BOTH {
            twins.program.set_initial(direction, 40_000, spare);
            twins.model.set_initial(direction, 40_000, spare);
            twins.set_growth(direction, Growth { bytes: growth, wait: 0 });
        }
        let options = || vec![2, 4, 5, 180, 3, 3, 7, 1];
        for port in 1..8 {
            let layout = Layout::default();
            let all = handshake(layout, Direction::Out, &[options(), options()], [65535; 2]);
            all.into_iter().for_each(|packet| _ = twins.send(&Packet { port, ..packet }));
        }
        twins.compare();
    }
}

#[test]
fn without_a_heartbeat_for_two_seconds_windows_pass_as_they_are() {
    let mut twins = Twins::new();
    let layout = Layout::default();
    clamped(&mut twins, layout, 7, 20_000);
    let ack = Packet { ack: 300_000, window: 60_000, ..Packet::ack(layout, Direction::Out) };
    assert_ne!(twins.send(&ack), ack.frame(), "it is lowered while the controller lives");
    twins.beat(Duration::from_millis(2010));
    assert_eq!(twins.send(&ack), ack.frame());
    twins.beat(Duration::ZERO);
    let later = Packet { ack: 300_000 + (60_000 << 7), ..ack };
    assert_ne!(twins.send(&later), later.frame());
}

/// SYNs from a million addresses that nobody has, and the host behind answers each tenth.
#[test]
fn a_flood_of_a_million_syns_takes_nothing_from_established_flows() {
    const FLOWS: u16 = 500;
    const FLOOD: u32 = 1_000_000;
    let mut twins = Twins::new();
    let options = || vec![2, 4, 5, 180, 3, 3, 7, 1];
    for direction in Direction::BOTH {
        twins.program.set_initial(direction, 20_000, u32::MAX);
    }
    twins.beat(Duration::ZERO);
    let mut out = [0; 256];
    let mut send = |program: &Window, packet: Packet| {
        program.run(packet.direction, &packet.frame(), 1, &mut out, 1).unwrap();
    };
    for port in 1..=FLOWS {
        let all = handshake(Layout::default(), Direction::Out, &[options(), options()], [65535; 2]);
        all.into_iter().for_each(|packet| send(&twins.program, Packet { port, ..packet }));
    }
    let known = |program: &Window| {
        let mut all: Vec<_> = program.flows().collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        all
    };
    let before = known(&twins.program);
    assert_eq!(before.len(), usize::from(FLOWS));
    let base = |direction| Packet { port: 9, seq: 0, ..Packet::ack(Layout::default(), direction) };
    let mut syn = Packet { flags: 2, ack: 0, ..base(Direction::In) }.frame();
    let mut answer = Packet { flags: 18, ack: 1, ..base(Direction::Out) }.frame();
    let mut out = [0; 256];
    for number in 0..FLOOD {
        // Nobody looks at the checksum of what is forged.
        let address = (0x0b00_0000 + number).to_be_bytes();
        syn[14 + 12..14 + 16].copy_from_slice(&address);
        twins.program.run(Direction::In, &syn, 1, &mut out, 1).unwrap();
        if number % 10 == 0 {
            answer[14 + 16..14 + 20].copy_from_slice(&address);
            twins.program.run(Direction::Out, &answer, 1, &mut out, 1).unwrap();
        }
    }
    assert_eq!(known(&twins.program), before, "and no SYN alone made a flow");
    // They are governed as before, and new ones begin.
    twins.beat(Duration::ZERO);
    for port in 1..=FLOWS {
        let ack = Packet { port, ack: 300_000, window: 60_000, ..base(Direction::Out) };
        send(&twins.program, Packet { port, seq: 1, ..ack });
    }
    assert!(known(&twins.program).iter().all(|(_, flow)| {
        let half = flow.half(Direction::In);
        half.window == 20_000 && half.written <= 20_000 && half.clamped > 0
    }));
    let all = handshake(Layout::default(), Direction::Out, &[options(), options()], [65535; 2]);
    all.into_iter().for_each(|packet| send(&twins.program, Packet { port: 2_000, ..packet }));
    assert!(twins.program.flow(&common::key(false, 2_000)).is_some());
}

#[test]
fn ten_thousand_flows_stand_in_the_table_and_each_gets_its_window() {
    let mut program = Window::load(14).unwrap();
    let mut out = [0; 256];
    let options = || vec![2, 4, 5, 180, 3, 3, 7, 1];
    let key = |number: u32| {
        let address = std::net::Ipv4Addr::from(0x0b00_0000 + number);
        Key::new((address.into(), 80), (std::net::Ipv4Addr::from(common::INSIDE).into(), 1000))
    };
    for number in 0..10_000u32 {
        let packets =
            handshake(Layout::default(), Direction::Out, &[options(), options()], [65535; 2]);
        for packet in packets {
            let mut frame = packet.frame();
            let at = if packet.direction == Direction::In { 14 + 12 } else { 14 + 16 };
            frame[at..at + 4].copy_from_slice(&(0x0b00_0000 + number).to_be_bytes());
            program.run(packet.direction, &frame, 1, &mut out, 1).unwrap();
        }
    }
    let id = |number| FlowId { key: key(number), direction: Direction::In };
    let windows = (0..10_000).map(|number| (id(number), 10_000 + number));
    assert_eq!(program.set_all(windows).unwrap(), 10_000);
    let mut windows: Vec<_> =
        program.flows().map(|(_, flow)| flow.half(Direction::In).window).collect();
    windows.sort_unstable();
    assert_eq!(windows, (10_000..20_000).collect::<Vec<_>>());
}

/// No sender could send a byte into a window of none before it probed for one.
#[test]
fn the_window_of_a_syn_with_segments_of_no_bytes_is_not_closed() {
    let mut twins = Twins::new();
    twins.program.set_initial(Direction::In, 5_000, 0);
    twins.model.set_initial(Direction::In, 5_000, 0);
    twins.beat(Duration::ZERO);
    let layout = Layout::default();
    let options = || vec![2, 4, 0, 0, 3, 3, 7, 1];
    let all = handshake(layout, Direction::Out, &[options(), options()], [65535; 2]);
    // The third packet is no SYN, so its window counts in units of 128 bytes.
    for packet in &all[..2] {
        let passed = twins.send(packet);
        let window = u16::from_be_bytes([passed[14 + 34], passed[14 + 35]]);
        assert!(window >= 2 * 536, "two segments of the default size (RFC 9293 3.7.1): {window}");
    }
}

#[test]
fn a_checksum_that_only_looks_unfinished_is_mended() {
    // The field of a finished packet can equal the pseudo header's sum by chance: then the window
    // is part of it, and only the kernel knows. The model is told; the program asks the helper.
    let mut twins = Twins::new();
    let layout = Layout::default();
    clamped(&mut twins, layout, 7, 20_000);
    let ack = Packet {
        ack: 300_000,
        window: 60_000,
        partial: true,
        ..Packet::ack(layout, Direction::Out)
    };
    let mut model_only = ack.frame()[14..].to_vec();
    let passing = Passing { partial: true, ..Passing::plain(Direction::Out) };
    let left = twins.send(&ack);
    assert_ne!(left[14 + 36..14 + 38], ack.frame()[14 + 36..14 + 38]);
    let outcome = twins.model.rewrite(&mut model_only, passing, twins.now);
    assert!(matches!(outcome, Outcome::Clamped { .. }));
    assert_eq!(model_only[36..38], ack.frame()[14 + 36..14 + 38], "an unfinished one stays");
}
