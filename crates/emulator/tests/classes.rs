//! Classes that lend each other their rates, each with a link as its leaf.

use proptest::prelude::*;
use sheaf_emulator::queue::codel::CodelConfig;
use sheaf_emulator::queue::fifo::FifoConfig;
use sheaf_emulator::{
    Action, Chance, ClassConfig, ConfigError, Delay, Limit, LinkConfig, Loss, Mask, Overhead,
    Packet, PipeConfig, Pipes, QueueConfig, Rule, Target,
};
use sheaf_stage::conformance::{self, Op};
use sheaf_stage::{Bitrate, Duration, Instant, Stage};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_millis(1000);
/// The root is pipe 0 in every tree here.
const ROOT: usize = 0;

fn mbit(mbit: u64) -> Bitrate {
    Bitrate::from_mbps(mbit)
}

/// A link that holds whatever comes.
fn roomy() -> LinkConfig {
    let fifo = FifoConfig { limit: Limit::Packets(1_000_000), ..FifoConfig::default() };
    LinkConfig { queue: QueueConfig::Fifo(fifo), ..LinkConfig::default() }
}

fn class(parent: usize, rate: u64, ceil: u64) -> ClassConfig {
    ClassConfig::below(parent, mbit(rate), mbit(ceil))
}

fn through(pipe: usize) -> Action {
    Action::Pipes([Target { pipe, queue: None }].into())
}

/// Pipes of these classes, where packets of interface N take pipe N.
fn pipes(classes: &[(ClassConfig, LinkConfig)]) -> Pipes {
    let mut pipes = Pipes::new(0, 1);
    for (class, link) in classes {
        pipes.add(PipeConfig::class(class.clone(), link.clone())).unwrap();
    }
    let parents: Vec<_> = classes.iter().filter_map(|(class, _)| class.parent).collect();
    let leaves = (0..classes.len()).filter(|number| !parents.contains(number));
    let rule = |number| Rule {
        interface: Some(number as u16),
        action: through(number),
        ..Rule::default()
    };
    pipes.set_rules(leaves.map(rule).collect()).unwrap();
    pipes
}

/// Pipes of these classes below and a root of 10 Mbit/s, with roomy links.
fn tree(classes: &[ClassConfig]) -> Pipes {
    let root = std::iter::once(ClassConfig::root(mbit(10)));
    let all: Vec<_> = root.chain(classes.iter().cloned()).map(|class| (class, roomy())).collect();
    pipes(&all)
}

fn packet(class: usize, len: usize, at: Instant, number: u64) -> Packet {
    let mut packet = Packet::new(vec![0; len], at, number);
    packet.interface = class as u16;
    packet
}

/// A packet that left: its class, bytes, number, and when.
type Left = (usize, u64, u64, Instant);

fn left(packet: &Packet) -> Left {
    let class = usize::from(packet.interface);
    (class, packet.bytes.len() as u64, packet.number, packet.depart)
}

/// Lets time pass to `until`, and returns what left.
fn drain(pipes: &mut Pipes, until: Instant) -> Vec<Left> {
    let mut out = Vec::new();
    while let Some(at) = pipes.next_deadline().filter(|at| *at <= until) {
        out.extend(pipes.dequeue(at).as_ref().map(left));
    }
    out
}

/// Offers `count` packets of `len` bytes to each class at once, and returns what left in a second.
fn busy(pipes: &mut Pipes, offers: &[(usize, usize)]) -> Vec<Left> {
    offer(pipes, offers, Instant::ZERO);
    drain(pipes, Instant::ZERO + SECOND)
}

fn offer(pipes: &mut Pipes, offers: &[(usize, usize)], at: Instant) {
    for (class, len) in offers {
        // More than 10 Mbit/s carry in a second, and in ten of them where they are long.
        for number in 0..2_000_000 / *len as u64 {
            pipes.enqueue(packet(*class, *len, at, number), at).unwrap();
        }
    }
}

/// Mbit/s of a class in a second.
fn rate(left: &[Left], class: usize) -> f64 {
    let own = left.iter().filter(|(of, ..)| *of == class);
    own.map(|(_, len, ..)| len * 8).sum::<u64>() as f64 / 1e6
}

#[track_caller]
fn rates(left: &[Left], expected: &[(usize, f64)]) {
    for (class, expected) in expected {
        let got = rate(left, *class);
        // Three packets of 1500 bytes.
        assert!((got - expected).abs() < 0.036, "class {class}: {got} Mbit/s, not {expected}");
    }
}

#[test]
fn every_class_has_had_its_rate_at_every_moment_while_all_are_busy() {
    let mut pipes = tree(&[class(ROOT, 5, 10), class(ROOT, 3, 10), class(ROOT, 2, 10)]);
    let left = busy(&mut pipes, &[(1, 1500), (2, 300), (3, 64)]);
    let mut sent = [0u64; 4];
    for (class, len, _, at) in left {
        sent[class] += len * 8;
        for (class, mbit) in [(1, 5), (2, 3), (3, 2)] {
            let due = at.as_nanos() * mbit / 1000;
            // A packet of each: the one under way, and the largest of the others before it.
            let behind = due.saturating_sub(sent[class]);
            assert!(behind < 3 * 1500 * 8, "class {class} is {behind} bits behind at {at:?}");
        }
    }
}

#[test]
fn spare_rate_goes_to_the_first_priority_up_to_its_ceil_and_starves_nobody() {
    let prio = |class: ClassConfig, prio| ClassConfig { prio, ..class };
    let classes = [class(ROOT, 1, 4), class(ROOT, 1, 10), prio(class(ROOT, 1, 10), 2)];
    let [first, second, third] = classes;
    let mut pipes = tree(&[prio(second, 1), first, third]);
    let left = busy(&mut pipes, &[(1, 1500), (2, 1000), (3, 1500)]);
    rates(&left, &[(2, 4.0), (1, 5.0), (3, 1.0)]);
}

#[test]
fn spare_rate_of_one_priority_is_shared_by_quantum_else_by_rate() {
    let quantum = |quantum| ClassConfig { quantum, ..class(ROOT, 1, 10) };
    let mut pipes = tree(&[quantum(3000), quantum(1000)]);
    rates(&busy(&mut pipes, &[(1, 300), (2, 1500)]), &[(1, 7.0), (2, 3.0)]);
    let mut pipes = tree(&[class(ROOT, 3, 10), class(ROOT, 1, 10)]);
    rates(&busy(&mut pipes, &[(1, 1500), (2, 300)]), &[(1, 7.5), (2, 2.5)]);
}

#[test]
fn a_class_lends_to_those_below_it_before_anybody_else() {
    let below = |left_ceil| {
        let left = class(ROOT, 6, left_ceil);
        tree(&[left, class(ROOT, 4, 10), class(1, 1, 10), class(1, 1, 10), class(2, 1, 10)])
    };
    rates(&busy(&mut below(10), &[(3, 1500), (5, 1500)]), &[(3, 6.0), (5, 4.0)]);
    rates(
        &busy(&mut below(10), &[(3, 1500), (4, 300), (5, 1500)]),
        &[(3, 3.0), (4, 3.0), (5, 4.0)],
    );
    rates(&busy(&mut below(10), &[(3, 1500)]), &[(3, 10.0)]);
    // A ceil on the way bounds what all below it borrow together.
    rates(&busy(&mut below(7), &[(3, 1500), (4, 1500)]), &[(3, 3.5), (4, 3.5)]);
}

#[test]
fn a_class_alone_gets_its_ceil_to_the_bit_and_no_burst_beyond_what_it_says() {
    let mut pipes = tree(&[ClassConfig { cburst: 0, burst: 0, ..class(ROOT, 1, 4) }]);
    let left = busy(&mut pipes, &[(1, 1500)]);
    for (nth, (_, _, _, at)) in (0..).zip(&left) {
        // One every 3 ms; the line takes 1.2 for it.
        assert_eq!(at.as_nanos(), 1_200_000 + nth * 3_000_000);
    }
    assert_eq!(left.len(), 333);
}

#[test]
fn no_window_of_time_carries_more_than_the_root() {
    let mut pipes = tree(&[class(ROOT, 5, 10), class(1, 2, 9), class(1, 3, 10), class(ROOT, 5, 8)]);
    let left = busy(&mut pipes, &[(2, 1500), (3, 77), (4, 300)]);
    assert!(left.len() > 1000);
    let mut bits = 0;
    for (_, len, _, at) in &left {
        bits += len * 8;
        // Never idle, never early: the very nanosecond, rounded up once.
        assert_eq!(at.as_nanos(), bits * 100);
    }
}

#[test]
fn a_packet_read_after_the_line_became_free_begins_there_although_it_came_before() {
    let mut pipes = tree(&[class(ROOT, 5, 10), class(ROOT, 5, 10)]);
    let at = |micros| Instant::from_millis(1000) + Duration::from_micros(micros);
    // 1250 bytes at 10 Mbit/s take a millisecond.
    pipes.enqueue(packet(1, 1250, at(0), 0), at(0)).unwrap();
    assert_eq!(drain(&mut pipes, at(1500)), [(1, 1250, 0, at(1000))]);
    for (number, came) in [(1, 400), (2, 500)] {
        pipes.enqueue(packet(2, 1250, at(came), number), at(1500)).unwrap();
    }
    let left = drain(&mut pipes, at(9000));
    assert_eq!(left, [(2, 1250, 1, at(2000)), (2, 1250, 2, at(3000))]);
}

#[test]
fn the_overhead_of_the_root_counts_for_all_classes() {
    let overhead = Overhead { packet: 24, ..Overhead::default() };
    let root = ClassConfig { overhead, ..ClassConfig::root(mbit(10)) };
    let mut pipes = pipes(&[(root, roomy()), (class(ROOT, 1, 10), roomy())]);
    let left = busy(&mut pipes, &[(1, 101)]);
    assert_eq!(left[4].3, Instant::from_micros(500));
    assert_eq!(pipes.stats(1).unwrap().class.unwrap().sent_bytes, 125 * 10_000 + 125);
}

/// What another class sends in a second beside one with `link`, which has packets all the time.
fn beside(link: LinkConfig) -> (Pipes, Vec<Left>) {
    let mut pipes = pipes(&[
        (ClassConfig::root(mbit(10)), roomy()),
        (class(ROOT, 5, 10), link),
        (class(ROOT, 5, 10), roomy()),
    ]);
    let left = busy(&mut pipes, &[(1, 1500), (2, 1500)]);
    (pipes, left)
}

#[test]
fn a_leaf_that_is_slow_or_far_or_loses_keeps_no_other_class_waiting() {
    let far = LinkConfig { delay: Delay::constant(SECOND * 100), ..roomy() };
    let lossy = LinkConfig { loss: Loss::Random(Chance::of(1.0)), ..roomy() };
    for link in [far, lossy] {
        let (_, left) = beside(link);
        rates(&left, &[(1, 0.0), (2, 5.0)]);
    }
    // What a slow leaf leaves is lent.
    let (_, left) = beside(LinkConfig { rate: Some(mbit(2)), ..roomy() });
    rates(&left, &[(1, 2.0), (2, 8.0)]);
    let (mut pipes, left) = beside(LinkConfig { rate: Some(Bitrate::from_bps(0)), ..roomy() });
    rates(&left, &[(1, 0.0), (2, 10.0)]);
    // And when it is set free, it has all of its packets still, in order.
    let now = Instant::ZERO + SECOND;
    pipes.change(1, roomy(), now).unwrap();
    let left = drain(&mut pipes, now + SECOND * 100);
    let first = left.iter().filter(|(class, ..)| *class == 1);
    assert!(first.map(|(_, _, number, _)| *number).eq(0..2_000_000 / 1500));
}

#[test]
fn a_leaf_with_the_rate_of_its_class_gets_it_beside_busy_ones() {
    // It waits for packets of the other, which its own rate does not forget.
    let (_, left) = beside(LinkConfig { rate: Some(mbit(5)), ..roomy() });
    rates(&left, &[(1, 5.0), (2, 5.0)]);
}

#[test]
fn the_delay_and_the_rate_of_a_leaf_come_before_and_behind_the_line() {
    let link = LinkConfig {
        rate: Some(mbit(1)),
        delay: Delay::constant(MS * 50),
        ..LinkConfig::default()
    };
    let mut pipes = pipes(&[(ClassConfig::root(mbit(10)), roomy()), (class(ROOT, 1, 10), link)]);
    pipes.enqueue(packet(1, 1000, Instant::ZERO, 0), Instant::ZERO).unwrap();
    let left = drain(&mut pipes, Instant::MAX);
    // 8 ms at its own rate, 0.8 at that of the root, and 50 on the way.
    assert_eq!(left[0].3, Instant::from_micros(58_800));
}

#[test]
fn duplicates_are_made_behind_the_line_and_losses_are_counted_in_their_class() {
    let link =
        LinkConfig { duplicate: Chance::of(1.0), loss: Loss::Random(Chance::of(0.25)), ..roomy() };
    let (pipes, left) = beside(link);
    // The line carries each once, and the tree counts it once: NetEm as a leaf of HTB puts copies
    // into the classes, and their counts go wrong.
    rates(&left, &[(2, 5.0)]);
    let stats = pipes.stats(1).unwrap();
    let lost = stats.links.count(sheaf_emulator::Cause::LossRandom);
    let sent = stats.class.unwrap().sent_packets;
    assert!((416..=418).contains(&sent), "{sent}");
    assert!((60..=150).contains(&lost), "{lost}");
    assert!(stats.links.delivered.packets.abs_diff(2 * (sent - lost)) <= 2);
    assert_eq!(pipes.stats(2).unwrap().links.count(sheaf_emulator::Cause::LossRandom), 0);
}

#[test]
fn the_limit_and_the_discipline_of_a_leaf_are_those_of_its_class() {
    let link =
        LinkConfig { queue: QueueConfig::Codel(CodelConfig::default()), ..LinkConfig::default() };
    let short = FifoConfig { limit: Limit::Packets(5), ..FifoConfig::default() };
    let short = LinkConfig { queue: QueueConfig::Fifo(short), ..LinkConfig::default() };
    let mut pipes = pipes(&[
        (ClassConfig::root(mbit(10)), roomy()),
        (class(ROOT, 1, 1), link),
        (class(ROOT, 1, 1), short),
    ]);
    for number in 0..900 {
        for class in [1, 2] {
            let _ = pipes.enqueue(packet(class, 1500, Instant::ZERO, number), Instant::ZERO);
        }
    }
    drain(&mut pipes, Instant::ZERO + SECOND * 5);
    let count = |pipe, cause| pipes.stats(pipe).unwrap().links.count(cause);
    assert!(count(1, sheaf_emulator::Cause::Codel) > 100);
    assert_eq!(count(2, sheaf_emulator::Cause::RateQueueFull), 895);
    assert_eq!(count(1, sheaf_emulator::Cause::RateQueueFull), 0);
}

#[test]
fn who_lent_and_who_borrowed_is_counted() {
    let mut pipes = tree(&[class(ROOT, 5, 10), class(1, 1, 10)]);
    let left = busy(&mut pipes, &[(2, 1250)]);
    let stats = |pipe| pipes.stats(pipe).unwrap().class.unwrap();
    assert_eq!(left.len(), 1000);
    let (leaf, inner, root) = (stats(2), stats(1), stats(ROOT));
    // The one that is being sent is counted, too.
    assert_eq!([leaf, inner, root].map(|class| class.sent_packets), [1001; 3]);
    assert!(leaf.borrowed.abs_diff(900) <= 3, "{leaf:?}");
    assert!(inner.lent.abs_diff(400) <= 3, "{inner:?}");
    assert_eq!(inner.lent + root.lent, leaf.borrowed);
}

#[test]
fn terms_change_live_without_losing_a_packet() {
    let mut pipes = tree(&[class(ROOT, 5, 5), class(ROOT, 5, 5)]);
    offer(&mut pipes, &[(1, 1000), (2, 1000)], Instant::ZERO);
    let mut left = drain(&mut pipes, Instant::ZERO + SECOND / 2);
    rates(&left, &[(1, 2.5), (2, 2.5)]);
    let now = Instant::ZERO + SECOND / 2;
    pipes.change_class(1, class(ROOT, 1, 1), now).unwrap();
    pipes.change_class(2, class(ROOT, 8, 9), now).unwrap();
    let second = drain(&mut pipes, now + SECOND / 2);
    rates(&second, &[(1, 0.5), (2, 4.5)]);
    left.extend(second);
    let now = now + SECOND / 2;
    pipes.change_class(ROOT, ClassConfig::root(mbit(20)), now).unwrap();
    pipes.change_class(1, class(ROOT, 1, 20), now).unwrap();
    let third = drain(&mut pipes, now + SECOND / 10);
    rates(&third, &[(1, 1.1), (2, 0.9)]);
    left.extend(third);
    left.extend(drain(&mut pipes, Instant::MAX));
    assert_eq!(left.len(), 4000);
    assert_eq!((pipes.held(), pipes.counters().packets_out), (0, 4000));
    for class in [1, 2] {
        let own = left.iter().filter(|(of, ..)| *of == class);
        assert!(own.map(|(_, _, number, _)| *number).eq(0..2000));
    }
    // What cannot be is refused, and changes nothing.
    let refused = |pipe, config| pipes_error(&mut pipes, pipe, config);
    let mut refused = refused;
    assert!(matches!(refused(ROOT, ClassConfig::root(mbit(8))), ConfigError::RatesAbove { .. }));
    assert!(matches!(refused(1, class(ROOT, 13, 20)), ConfigError::RatesAbove { .. }));
    assert!(matches!(refused(1, class(ROOT, 3, 2)), ConfigError::CeilBelowRate { .. }));
    assert!(matches!(refused(7, class(ROOT, 1, 1)), ConfigError::Missing { .. }));
}

fn pipes_error(pipes: &mut Pipes, pipe: usize, config: ClassConfig) -> ConfigError {
    pipes.change_class(pipe, config, Instant::MAX).unwrap_err()
}

#[test]
fn classes_stand_in_a_row_with_pipes_and_other_trees() {
    let mut pipes = Pipes::new(0, 1);
    let ms_5 = LinkConfig { delay: Delay::constant(MS * 5), ..LinkConfig::default() };
    for class in [ClassConfig::root(mbit(8)), class(0, 1, 8), ClassConfig::root(mbit(1))] {
        pipes.add(PipeConfig::class(class, ms_5.clone())).unwrap();
    }
    pipes.add(PipeConfig::shared(ms_5)).unwrap();
    let row: Vec<_> = [3, 1, 2].map(|pipe| Target { pipe, queue: None }).into();
    pipes.set_rules(vec![Rule { action: Action::Pipes(row.into()), ..Rule::default() }]).unwrap();
    pipes.enqueue(packet(0, 1000, Instant::ZERO, 0), Instant::ZERO).unwrap();
    let left = drain(&mut pipes, Instant::MAX);
    // 5 on the pipe, 1 and 5 in the first tree, 8 and 5 in the second, whose root is a leaf.
    assert_eq!(left[0].3, Instant::from_millis(24));
}

#[test]
fn classes_that_cannot_be_are_refused() {
    let mut pipes = Pipes::new(0, 1);
    let mut add = |class, link| pipes.add(PipeConfig::class(class, link)).map(|_| ());
    let root = ClassConfig::root(mbit(10));
    assert!(matches!(
        add(ClassConfig { ceil: mbit(20), ..root.clone() }, roomy()),
        Err(ConfigError::RootCeil { .. })
    ));
    add(root, roomy()).unwrap();
    add(class(ROOT, 6, 10), roomy()).unwrap();
    for (class, error) in [
        (class(ROOT, 5, 10), "11mbit together, more than its rate 10mbit"),
        (class(ROOT, 2, 1), "ceil 1mbit is below rate 2mbit"),
        (class(ROOT, 0, 1), "rate of a class must not be zero"),
        (class(9, 1, 1), "there is no number 9"),
        (ClassConfig { prio: 8, ..class(ROOT, 1, 1) }, "prio: 8 is more than 7"),
        (ClassConfig { quantum: 0, ..class(ROOT, 1, 1) }, "quantum must not be zero"),
    ] {
        let said = add(class, roomy()).unwrap_err().to_string();
        assert!(said.contains(error), "{said}");
    }
    let burst = LinkConfig { rate: Some(mbit(1)), burst: Some(3000), ..roomy() };
    assert_eq!(add(class(ROOT, 1, 1), burst), Err(ConfigError::BurstInClass));
    for level in 1..7 {
        add(class(level, 1, 1), roomy()).unwrap();
    }
    assert!(matches!(add(class(7, 1, 1), roomy()), Err(ConfigError::TooMany { .. })));
    let flows = PipeConfig::per_flow(roomy(), Mask::FLOW);
    let flows = PipeConfig { class: Some(class(ROOT, 1, 1)), ..flows };
    assert_eq!(pipes.add(flows), Err(ConfigError::FlowsOfClass));
    pipes.add(PipeConfig::shared(roomy())).unwrap();
    let below_pipe = PipeConfig::class(class(8, 1, 1), roomy());
    assert_eq!(pipes.add(below_pipe.clone()), Err(ConfigError::NoClass { number: 8 }));
    // Packets of a class with others below it would wait for ever.
    let to = |pipe| vec![Rule { action: through(pipe), ..Rule::default() }];
    assert_eq!(pipes.set_rules(to(1)), Err(ConfigError::Inner { number: 1 }));
    assert_eq!(pipes.change(1, roomy(), Instant::ZERO), Err(ConfigError::Inner { number: 1 }));
    pipes.set_rules(to(7)).unwrap();
    let below_leaf = PipeConfig::class(class(7, 1, 1), roomy());
    assert_eq!(pipes.add(below_leaf), Err(ConfigError::LateClass));
}

#[test]
fn a_class_that_has_been_idle_for_an_hour_saves_up_its_burst_and_no_more() {
    let mut pipes = tree(&[class(ROOT, 5, 5), class(ROOT, 5, 5)]);
    let now = Instant::ZERO + SECOND * 3600;
    offer(&mut pipes, &[(1, 1500)], now);
    let left = drain(&mut pipes, now + SECOND);
    // 1600 bytes and the packet that may overdraw.
    assert!(rate(&left, 1) <= 5.0 + 3100.0 * 8.0 / 1e6, "{}", rate(&left, 1));
    rates(&left, &[(1, 5.0)]);
}

/// A random tree: for each class the class above, its rate as a share of what is left of that, its
/// ceil, priority and quantum.
fn random_tree() -> impl Strategy<Value = Vec<ClassConfig>> {
    let one = (any::<proptest::sample::Index>(), 1u64..60, 0u64..100, 0u8..3, 1u64..5);
    proptest::collection::vec(one, 1..9).prop_map(|classes| {
        const ROOT_BPS: u64 = 10_000_000;
        let mut tree = vec![ClassConfig::root(Bitrate::from_bps(ROOT_BPS))];
        let mut left = vec![ROOT_BPS];
        for (parent, share, more, prio, quantum) in classes {
            let parent = parent.index(tree.len());
            let depth = std::iter::successors(Some(parent), |at| tree[*at].parent).count();
            let rate = left[parent] * share / 100;
            if depth >= 4 || rate < 200_000 {
                continue;
            }
            left[parent] -= rate;
            let ceil = rate + (ROOT_BPS - rate) * more / 100;
            let [rate_of, ceil] = [rate, ceil].map(Bitrate::from_bps);
            let quantum = quantum * 1000;
            let class = ClassConfig::below(parent, rate_of, ceil);
            // One priority for all below a class of the root. Of several, a packet of the first
            // that comes while the class above it has used up its rate borrows further up at
            // once, and leaves that rate to the others, as in HTB: a fluid has no such moment.
            let prio = if parent == ROOT { prio } else { tree[parent].prio };
            tree.push(ClassConfig { prio, quantum, ..class });
            left.push(rate);
        }
        tree
    })
}

/// The fluid model of HTB: what each class gets in the long run while these leaves are busy.
struct Fluid<'a> {
    tree: &'a [ClassConfig],
    got: Vec<f64>,
}

impl Fluid<'_> {
    fn children(&self, of: usize) -> Vec<usize> {
        (0..self.tree.len()).filter(|class| self.tree[*class].parent == Some(of)).collect()
    }

    fn depth(&self, of: usize) -> usize {
        std::iter::successors(self.tree[of].parent, |at| self.tree[*at].parent).count()
    }

    /// Gives as much of `amount` as classes of `prio` in and below `class` take.
    fn give(&mut self, class: usize, amount: f64, prio: u8, busy: &[bool]) -> f64 {
        let room = self.tree[class].ceil.as_bps() as f64 - self.got[class];
        let amount = amount.min(room);
        if amount < 1e-3 {
            return 0.0;
        }
        let children = self.children(class);
        if children.is_empty() {
            let takes = busy[class] && self.tree[class].prio == prio;
            let taken = if takes { amount } else { 0.0 };
            self.got[class] += taken;
            return taken;
        }
        let taken = self.fill(&children, amount, prio, busy);
        self.got[class] += taken;
        taken
    }

    /// Shares `amount` by quantum, and what some do not take between the others.
    fn fill(&mut self, classes: &[usize], amount: f64, prio: u8, busy: &[bool]) -> f64 {
        let (mut taken, mut open) = (0.0, classes.to_vec());
        while amount - taken > 1e-3 && !open.is_empty() {
            let all: f64 = open.iter().map(|at| self.tree[*at].quantum as f64).sum();
            let rest = amount - taken;
            let mut still = Vec::new();
            for at in open {
                let part = rest * self.tree[at].quantum as f64 / all;
                let took = self.give(at, part, prio, busy);
                taken += took;
                if took > part - 1e-3 {
                    still.push(at);
                }
            }
            open = still;
        }
        taken
    }

    fn solve(tree: &[ClassConfig], busy: &[bool]) -> Vec<f64> {
        let mut fluid = Fluid { tree, got: vec![0.0; tree.len()] };
        let leaves: Vec<_> = (0..tree.len()).filter(|at| fluid.children(*at).is_empty()).collect();
        for leaf in leaves.iter().filter(|leaf| busy[**leaf]) {
            let rate = tree[*leaf].rate.as_bps() as f64;
            let path = std::iter::successors(Some(*leaf), |at| tree[*at].parent);
            path.for_each(|at| fluid.got[at] += rate);
        }
        let mut lenders: Vec<_> = (0..tree.len()).filter(|at| !leaves.contains(at)).collect();
        lenders.sort_by_key(|at| std::cmp::Reverse(fluid.depth(*at)));
        for lender in lenders {
            for prio in 0..3 {
                let spare = tree[lender].rate.as_bps() as f64 - fluid.got[lender];
                let children = fluid.children(lender);
                let taken = fluid.fill(&children, spare.max(0.0), prio, busy);
                let path = std::iter::successors(Some(lender), |at| tree[*at].parent);
                path.for_each(|at| fluid.got[at] += taken);
            }
        }
        fluid.got
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn in_the_long_run_classes_get_what_the_fluid_model_says(
        tree in random_tree(),
        busy in proptest::collection::vec(any::<bool>(), 10),
    ) {
        // A class at its ceil loses what comes beyond `cburst` while others send before it, which
        // a fluid never does. Room for four of the largest packets loses nothing, and what was in
        // it at the start is used up in the first second.
        let tree: Vec<_> =
            tree.into_iter().map(|class| ClassConfig { cburst: 4800, ..class }).collect();
        let linked: Vec<_> = tree.iter().map(|class| (class.clone(), roomy())).collect();
        let mut pipes = pipes(&linked);
        let is_leaf = |at: usize| tree.iter().all(|class| class.parent != Some(at));
        let busy: Vec<_> = (0..tree.len()).map(|at| busy[at] && is_leaf(at)).collect();
        let offers = busy.iter().enumerate().filter(|(_, busy)| **busy);
        let offers: Vec<_> = offers.map(|(class, _)| (class, 250 + 97 * class)).collect();
        let left = super_busy(&mut pipes, &offers);
        let fluid = Fluid::solve(&tree, &busy);
        for (class, _) in &offers {
            let (got, expected) = (rate(&left, *class), fluid[*class] / 1e6);
            // Three packets of the largest in a second.
            prop_assert!((got - expected).abs() < 0.03, "{class}: {got}, not {expected}");
        }
    }

    #[test]
    fn a_class_has_its_rate_at_every_moment_whoever_comes_and_goes_beside_it(
        tree in random_tree(),
        victim in any::<proptest::sample::Index>(),
        offers in proptest::collection::vec((0usize..10, 40usize..=1500, 0u64..4_000_000), 1..300),
    ) {
        let linked: Vec<_> = tree.iter().map(|class| (class.clone(), roomy())).collect();
        let mut pipes = pipes(&linked);
        let is_leaf = |at: &usize| tree.iter().all(|class| class.parent != Some(*at));
        let leaves: Vec<_> = (0..tree.len()).filter(is_leaf).collect();
        let victim = leaves[victim.index(leaves.len())];
        offer(&mut pipes, &[(victim, 500)], Instant::ZERO);
        let (mut out, mut now) = (Vec::new(), Instant::ZERO);
        for (number, (class, len, gap)) in (0..).zip(&offers) {
            let class = leaves[class % leaves.len()];
            // Bursts of several at once, and pauses.
            now += Duration::from_nanos(if gap % 3 == 0 { *gap } else { 0 });
            out.extend(drain(&mut pipes, now));
            if class != victim {
                pipes.enqueue(packet(class, *len, now, number), now).unwrap();
            }
        }
        out.extend(drain(&mut pipes, now));
        // What the others saved up, and a packet of each that overdraws.
        let bound = 1500 + (leaves.len() as u64 - 1) * (1600 + 1500);
        let mut sent = 0;
        for (_, len, _, at) in out.iter().filter(|(class, ..)| *class == victim) {
            let due = u128::from(tree[victim].rate.as_bps()) * u128::from(at.as_nanos());
            let due = u64::try_from(due / 8_000_000_000).unwrap();
            prop_assert!(sent + len + bound >= due, "{} of {} at {:?}", sent, due, at);
            sent += len;
        }
        let served = u128::from(tree[victim].rate.as_bps()) * u128::from(now.as_nanos());
        let served = u64::try_from(served / 8_000_000_000).unwrap().min(2_000_000);
        prop_assert!(sent + bound >= served, "{} of {}", sent, served);
    }

    #[test]
    fn packets_of_a_class_keep_their_order_and_late_calls_change_no_departure(
        tree in random_tree(),
        offers in proptest::collection::vec((0usize..10, 40usize..1500, 0u64..3_000_000), 1..120),
        paced in any::<[bool; 10]>(),
    ) {
        let link = |at: usize| match paced[at] {
            true => LinkConfig { rate: Some(mbit(3)), delay: Delay::constant(MS * 4), ..roomy() },
            false => roomy(),
        };
        let linked = tree.iter().cloned().enumerate().map(|(at, class)| (class, link(at)));
        let linked: Vec<_> = linked.collect();
        let leaves: Vec<_> =
            (0..tree.len()).filter(|at| tree.iter().all(|c| c.parent != Some(*at))).collect();
        let run = |late: bool| {
            let mut pipes = pipes(&linked);
            let (mut out, mut now) = (Vec::new(), Instant::ZERO);
            for (number, (class, len, gap)) in (0..).zip(&offers) {
                now += Duration::from_nanos(*gap);
                if !late {
                    out.extend(drain(&mut pipes, now));
                }
                let class = leaves[class % leaves.len()];
                pipes.enqueue(packet(class, *len, now, number), now).unwrap();
            }
            let end = now + SECOND * 1000;
            match late {
                true => out.extend(std::iter::from_fn(|| pipes.dequeue(end)).map(|p| left(&p))),
                false => out.extend(drain(&mut pipes, end)),
            }
            assert_eq!((pipes.held(), out.len()), (0, offers.len()));
            out
        };
        let (timely, late) = (run(false), run(true));
        for class in &leaves {
            let own: Vec<_> = timely.iter().filter(|(of, ..)| of == class).collect();
            prop_assert!(own.is_sorted_by_key(|(_, _, number, _)| *number));
        }
        prop_assert_eq!(timely, late);
    }

    #[test]
    fn classes_keep_the_contract_through_any_change(
        tree in random_tree(),
        ops in proptest::collection::vec(
            prop_oneof![
                8 => (0usize..10, 40usize..1500, any::<u64>()).prop_map(|(class, len, number)| {
                    Op::Enqueue(packet(class, len, Instant::MAX, number))
                }),
                4 => (0u64..20_000_000).prop_map(|ns| Op::Advance(Duration::from_nanos(ns))),
                1 => (0usize..10, any::<bool>(), 0u64..12_000).prop_map(Op::Control),
            ],
            1..100,
        ),
    ) {
        let chance = Chance { probability: 0.3, correlation: 0.2 };
        let codel = CodelConfig { limit: Limit::Packets(5), ..CodelConfig::default() };
        let random = LinkConfig {
            duplicate: chance,
            loss: Loss::Random(chance),
            queue: QueueConfig::Codel(codel),
            ..LinkConfig::default()
        };
        let slow = LinkConfig {
            rate: Some(mbit(1)),
            single: true,
            delay: Delay { jitter: MS, ..Delay::constant(MS * 3) },
            ..LinkConfig::default()
        };
        let link = |at: usize| if at.is_multiple_of(2) { random.clone() } else { slow.clone() };
        let linked = tree.iter().cloned().enumerate().map(|(at, class)| (class, link(at)));
        let linked: Vec<_> = linked.collect();
        conformance::check_displacing(
            || pipes(&linked),
            &ops,
            |pipes, (class, terms, kbit), now| {
                // What cannot be is refused, and changes nothing.
                let _ = match terms {
                    true => {
                        let class_now = linked.get(*class).map(|(class, _)| class.clone());
                        let rate = Bitrate::from_kbps(*kbit);
                        let class_now = class_now.unwrap_or(linked[0].0.clone());
                        let config = ClassConfig { rate, ..class_now };
                        let ceil = config.ceil.max(rate);
                        pipes.change_class(*class, ClassConfig { ceil, ..config }, now)
                    }
                    false => {
                        let rate = Some(Bitrate::from_kbps(*kbit));
                        pipes.change(*class, LinkConfig { rate, ..slow.clone() }, now)
                    }
                };
            },
            |packet| (packet.number, packet.depart, packet.causes),
        );
    }
}

/// As `busy`, of the second second: what classes saved up and who began first is over then.
fn super_busy(pipes: &mut Pipes, offers: &[(usize, usize)]) -> Vec<Left> {
    for (class, len) in offers {
        for number in 0..4_000_000 / *len as u64 {
            pipes.enqueue(packet(*class, *len, Instant::ZERO, number), Instant::ZERO).unwrap();
        }
    }
    drain(pipes, Instant::ZERO + SECOND);
    drain(pipes, Instant::ZERO + SECOND * 2)
}
