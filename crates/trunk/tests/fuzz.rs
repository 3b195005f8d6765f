//! Damaged frames against an end of a trunk, and a million sequences through the resequencer.
//!
//! The corpus (`tests/corpus/frames`) holds frames of two ends with the sessions 1 and 2: hellos,
//! reports, requests, markers, parities, and data in every packing, in order and overtaking.
//! Whatever is made of them, the end keeps its balance, its deadlines and its bounds, changes no
//! address for a frame that it refuses, and works with its peer as before when the noise is over.

use sheaf_fuzz::{Fuzzer, Rng, RngExt};
use sheaf_stage::{Duration, Instant, Stage};
use sheaf_trunk::{
    Arrival, DeliveryMode, Endpoint, EndpointConfig, Flow, FrameKind, LinkConfig, LinkId, Received,
    Remote, ReorderConfig, Resequencer, Scheduler, Transmit,
};
use sheaf_wire::ip::example_udp;
use sheaf_wire::trunk::{Packing, Predecessor};

const LINKS: u8 = 3;
const FRAMES: u64 = 1_000_000;
const SEQUENCES: u64 = 1_000_000;
/// Numbers that the resequencer of the second test keeps.
const WINDOW: u32 = 512;
const BYTES: usize = 65_536;
/// An address that is neither end's.
const STRANGER: u8 = 66;

/// An end at the address `session`; the first is given the other one's address, which learns the
/// first one's.
fn end(session: u8, scheduler: Scheduler) -> Endpoint<u8> {
    let mut config = EndpointConfig::default();
    config.sender.scheduler = scheduler;
    let mut end = Endpoint::new(config, u64::from(session)).unwrap();
    for _ in 0..LINKS {
        let id = end.add_link(LinkConfig::default()).unwrap();
        let remote = if session == 1 { Remote::Fixed(Some(2)) } else { Remote::Learned(None) };
        end.set_remote(id, remote);
    }
    end
}

/// Two ends whose links deliver at once; what goes to another address is lost.
struct Pair {
    ends: [Endpoint<u8>; 2],
    now: Instant,
    frame: Vec<u8>,
    delivered: u64,
}

impl Pair {
    fn new(scheduler: Scheduler) -> Pair {
        let ends = [end(1, scheduler), end(2, scheduler)];
        Pair { ends, now: Instant::ZERO, frame: Vec::new(), delivered: 0 }
    }

    /// Carries frames and hands up packets until both ends wait for the clock.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            let mut silent = true;
            for from in 0..2 {
                let end = &mut self.ends[from];
                if let Some(Transmit { link, to }) = end.poll_transmit(self.now, &mut self.frame) {
                    let (address, other) = (from as u8 + 1, 1 - from);
                    if to == Some(other as u8 + 1) {
                        let (end, frame) = (&mut self.ends[other], &self.frame);
                        end.handle_frame(link, Some(address), frame, self.now);
                    }
                    silent = false;
                }
                while self.ends[from].poll_deliver(self.now).is_some() {
                    self.delivered += u64::from(from == 1);
                }
            }
            if silent {
                return;
            }
        }
        panic!("the ends never fall silent");
    }

    fn wait(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            self.settle();
            let next = self.ends.iter().filter_map(Endpoint::next_deadline).min();
            let Some(next) = next.filter(|next| *next <= until) else { break };
            assert!(next > self.now, "a deadline stands still");
            self.now = next;
        }
        self.now = until;
        self.settle();
    }

    /// Number of 400 packets that pass a minute later, when enough others have passed: what was
    /// believed of rates is mended by traffic, and so are the rounds of SRR and TRR, which have no
    /// timers.
    fn passes_after_rest(&mut self) -> u64 {
        self.wait(Duration::from_secs(60));
        (0..2 * ReorderConfig::default().window).for_each(|_| self.pass(1_400));
        let before = self.delivered;
        (0..400).for_each(|_| self.pass(1_400));
        self.delivered - before
    }

    /// Sends a packet of so many bytes, and lets the ends talk for as long as it takes a link.
    fn pass(&mut self, len: usize) {
        let packet = example_udp(&vec![7; len]);
        let _ = self.ends[0].handle_packet(&packet, DeliveryMode::Order, self.now);
        self.wait(Duration::from_millis(2));
    }
}

#[test]
fn damaged_frames_are_refused_or_harmless_and_the_trunk_works_afterwards() {
    let mut fuzzer = Fuzzer::new(env!("CARGO_MANIFEST_DIR"), "frames", FRAMES);
    let mut bytes = Vec::new();
    let mut refused = 0;
    let mut left = fuzzer.rounds();
    for scheduler in Scheduler::ALL.into_iter().cycle() {
        if left == 0 {
            break;
        }
        let mut pair = Pair::new(scheduler);
        pair.wait(Duration::from_secs(1));
        assert!(pair.ends.iter().all(Endpoint::is_established), "{scheduler:?}");
        for file in fuzzer.corpus().to_vec() {
            pair.ends[1].handle_frame(LinkId(0), Some(1), &file, pair.now);
        }
        for _ in 0..left.min(20_000) {
            left -= 1;
            fuzzer.take(&mut bytes);
            let link = LinkId(fuzzer.rng.random_range(0..LINKS + 1));
            let from = [Some(1), Some(1), Some(STRANGER), None][fuzzer.rng.random_range(0..4)];
            let before = pair.ends[1].remote(link);
            match pair.ends[1].handle_frame(link, from, &bytes, pair.now) {
                Received::Accepted { kind, new_address: Some(address), .. } => {
                    assert_eq!(Some(address), from);
                    assert!(
                        matches!(kind, FrameKind::Hello | FrameKind::Report | FrameKind::Request),
                        "{kind:?}"
                    );
                }
                received => {
                    assert_eq!(pair.ends[1].remote(link), before, "{bytes:?}");
                    // What comes from a stranger is refused anyway.
                    let damaged = from == Some(1) && matches!(received, Received::Refused(_));
                    refused += u64::from(damaged);
                }
            }
            if fuzzer.rng.random_bool(0.05) {
                pair.pass(40);
                pair.wait(Duration::from_micros(fuzzer.rng.random_range(0..20_000)));
            }
            let sent = pair.ends[0].sent();
            let held = pair.ends[0].sender().held();
            assert_eq!(sent.packets_in, sent.packets_out + sent.dropped_total() + held);
        }
        let (passed, usual) = (pair.passes_after_rest(), Pair::new(scheduler).passes_after_rest());
        assert!(pair.ends.iter().all(Endpoint::is_established), "{scheduler:?}");
        assert!(passed * 4 >= usual * 3, "{scheduler:?}: {passed} packets pass, before {usual}");
    }
    assert!(refused > fuzzer.rounds() / 10, "hardly anything was damaged: {refused}");
}

/// Frames that are still to arrive over one link, in order.
type Wire = Vec<(u64, Arrival)>;

/// Frames of up to three flows as a sender numbers them, dealt out to links that keep their order
/// but not each other's pace; some are lost, some come twice, and now and then one is forged.
fn sequence(rng: &mut Rng, first: u32, forged: bool) -> Wire {
    let links = rng.random_range(1..=LINKS);
    let flows = rng.random_range(1..4u64);
    let mut last = [None; 3];
    let mut wire = Wire::new();
    for index in 0..rng.random_range(1..24u32) {
        let (flow, link) = (rng.random_range(0..flows), rng.random_range(0..links));
        let seq = first.wrapping_add(index);
        let predecessor = match last[flow as usize].replace(seq) {
            Some(last) => Predecessor::at(seq.wrapping_sub(last)),
            None => Predecessor::Free,
        };
        let at = u64::from(index) * 300 + u64::from(link) * 4_000;
        let mut arrival = arrival(link, seq, predecessor, flow);
        match rng.random_range(0..20u8) {
            0..2 => continue,
            2 => wire.push((at, arrival.clone())),
            3 if forged => arrival.seq = rng.random(),
            4 if forged => arrival.predecessor = Predecessor::Back(rng.random_range(1..=200)),
            _ => {}
        }
        wire.push((at, arrival));
    }
    wire.sort_by_key(|(at, _)| *at);
    wire
}

fn arrival(link: u8, seq: u32, predecessor: Predecessor, flow: u64) -> Arrival {
    let payload = vec![0; 100];
    let (flow, packing) = (Flow::of_hash(flow), Packing::One);
    Arrival { link, seq, predecessor, flow, urgent: false, hasty: false, packing, payload }
}

/// Takes out all that is ready; returns whether every flow kept its order.
fn drain(stage: &mut Resequencer, now: Instant, first: u32, last: &mut [Option<u32>; 3]) -> bool {
    let mut in_order = true;
    while let Some(delivery) = stage.dequeue(now) {
        let flow = (0..3).find(|flow| Flow::of_hash(*flow) == delivery.flow).unwrap();
        let place = delivery.seq.wrapping_sub(first);
        in_order &= last[flow as usize].replace(place).is_none_or(|before| before < place);
    }
    assert!(stage.held() <= u64::from(WINDOW), "{} frames wait", stage.held());
    assert!(stage.next_deadline().is_none_or(|at| at > now), "a deadline stands still");
    let counters = stage.counters();
    let gone = counters.packets_out + counters.dropped_total();
    assert_eq!(counters.packets_in, gone + stage.held());
    in_order
}

#[test]
fn a_million_sequences_keep_order_bounds_and_balance() {
    let mut fuzzer = Fuzzer::over(Vec::new(), SEQUENCES);
    let config = ReorderConfig { window: WINDOW, bytes: BYTES, ..ReorderConfig::default() };
    let mut stage = Resequencer::new(config, 0).unwrap();
    (0..LINKS).for_each(|link| stage.link_up(link));
    let mut now = Instant::ZERO;
    for round in 0..fuzzer.rounds() {
        let (first, forged) = (fuzzer.rng.random(), round % 4 == 0);
        stage.restart(first, now);
        while stage.dequeue(now).is_some() {}
        let (mut last, mut in_order, begin) = ([None; 3], true, now);
        for (at, arrival) in sequence(&mut fuzzer.rng, first, forged) {
            let at = begin + Duration::from_micros(at);
            while let Some(due) = stage.next_deadline().filter(|due| *due <= at) {
                now = due;
                in_order &= drain(&mut stage, now, first, &mut last);
            }
            now = at;
            // Forged and repeated numbers are dropped.
            let _ = stage.enqueue(arrival, now);
            in_order &= drain(&mut stage, now, first, &mut last);
        }
        now += Duration::from_secs(2);
        in_order &= drain(&mut stage, now, first, &mut last);
        assert_eq!(stage.held(), 0, "round {round}: something waits for ever");
        assert!(in_order || forged, "round {round}: a flow was reordered");
    }
}
