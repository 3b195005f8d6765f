//! The order in which the classes of a tree send.
//!
//! Source: M. Devera, HTB (sch_htb.c, 2002): a class may send while its own rate allows (green);
//! beyond, of the rate of the nearest class above that is green, as long as neither it nor a class
//! between is at its ceil (yellow); else it waits (red). Leaves that are green go first, then what
//! the deepest classes lend, then by priority.
//!
//! Four things differ from HTB, each because of a promise that a qdisc cannot keep:
//! * The root is a line that sends one packet after the other, so that no window of time carries
//!   more than its rate.
//! * A class that is ready and waits for others keeps what its rate earns meanwhile, whatever
//!   `burst` says: so it gets its rate to the bit however many packets it had to wait for.
//! * Of the same priority the class goes first that has sent least for its quantum (start-time
//!   fair queueing: P. Goyal, H. Vin, H. Cheng, 1997). DRR would send a quantum at once.
//! * A leaf is asked for its head alone. One with a rate of its own, or whose packets travel, is
//!   not ready or has them no more; so no leaf keeps another class waiting, and none is asked for a
//!   packet that it then does not have.
//!
//! Classes that have nothing to send are in no order: a packet costs the logarithm of those that
//! have, at each class between leaf and root.

use super::bucket::Bucket;
use super::line::Line;
use super::{ClassConfig, ClassStats, LAST_PRIO, MAX_DEPTH, MOST_CLASSES};
use crate::error::ConfigError;
use crate::link::Link;
use sheaf_stage::{Bitrate, IndexedHeap, Instant};

/// Bytes sent for the quantum, with so many binary digits: fine enough for any quantum, and 128
/// bits never end.
const DIGITS: u32 = 64;
const PRIOS: usize = LAST_PRIO as usize + 1;

type Virtual = u128;
/// Virtual time of an order, for each priority: the start of the packet sent last.
type Times = [Virtual; PRIOS];

/// Use that a class may make of rates now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Send, or lend, of its own rate.
    Green,
    /// Borrow.
    Yellow,
    /// Nothing.
    Red,
}

#[derive(Debug)]
struct Node {
    config: ClassConfig,
    parent: Option<u32>,
    /// Place among the classes of its parent, and these by place.
    place: u32,
    children: Vec<u32>,
    /// Classes above it.
    depth: usize,
    rate: Bucket,
    ceil: Bucket,
    mode: Mode,
    /// Whether its link has a packet that may be sent.
    ready: bool,
    /// The classes below that want to borrow of it, or of whom it borrows, by place.
    wanting: IndexedHeap<(u8, Virtual)>,
    wanting_times: Times,
    /// Starts of its next packet of each priority, and the one at which it stands: among those
    /// that send of their own rate, and among those of its parent that want to borrow.
    own: (Times, Option<u8>),
    borrowed: (Times, Option<u8>),
    stats: ClassStats,
}

impl Node {
    /// The first priority of packets that wait in it or below.
    fn prio(&self) -> Option<u8> {
        match self.children.is_empty() {
            true => self.ready.then_some(self.config.prio),
            false => self.wanting.first().map(|((prio, _), _)| prio),
        }
    }

    /// Place of its rate in the order of rates that are used: leaves', then the deepest.
    fn level(&self) -> u8 {
        if self.children.is_empty() { 0 } else { (MAX_DEPTH - self.depth) as u8 }
    }

    /// Virtual time that `bytes` take.
    fn share(&self, bytes: u64) -> Virtual {
        (Virtual::from(bytes) << DIGITS) / Virtual::from(self.config.quantum)
    }

    /// Fills its buckets up to `now`.
    fn fill(&mut self, now: Instant) {
        // Whoever could send or lend, and waits for the line alone, keeps what it earns.
        let waits = self.ready || self.wanting.first().is_some();
        self.rate.fill(now, waits);
        self.ceil.fill(now, false);
    }
}

/// A tree of classes. Links stand with the caller, which names them by class.
#[derive(Debug)]
pub(crate) struct Tree {
    nodes: Vec<Node>,
    line: Line,
    /// Classes that send, or lend, of their own rate: by level, priority, and start.
    green: IndexedHeap<(u8, u8, Virtual)>,
    green_times: [Times; MAX_DEPTH + 1],
    /// Classes whose mode changes by time alone, and leaves whose next packet is not through the
    /// rate of its link.
    changes: IndexedHeap<Instant>,
    coming: IndexedHeap<Instant>,
    /// Leaves that are ready.
    ready: u32,
}

impl Tree {
    /// A root without classes below.
    pub fn new(config: ClassConfig) -> Tree {
        let mut tree = Tree {
            nodes: Vec::new(),
            line: Line::new(config.rate, config.overhead),
            green: IndexedHeap::default(),
            green_times: Default::default(),
            changes: IndexedHeap::default(),
            coming: IndexedHeap::default(),
            ready: 0,
        };
        tree.push(config, None, 0);
        tree
    }

    fn push(&mut self, config: ClassConfig, parent: Option<u32>, depth: usize) -> u32 {
        let index = self.nodes.len() as u32;
        let siblings = parent.map(|parent| &mut self.nodes[parent as usize].children);
        let place = siblings.map_or(0, |children| {
            children.push(index);
            children.len() as u32 - 1
        });
        self.nodes.push(Node {
            rate: Bucket::new(config.rate, config.burst),
            ceil: Bucket::new(config.ceil, config.cburst),
            config,
            parent,
            place,
            children: Vec::new(),
            depth,
            mode: Mode::Green,
            ready: false,
            wanting: IndexedHeap::default(),
            wanting_times: Times::default(),
            own: (Times::default(), None),
            borrowed: (Times::default(), None),
            stats: ClassStats::default(),
        });
        index
    }

    /// Adds a class below `parent`, and returns its number.
    pub fn add(&mut self, config: ClassConfig, parent: u32) -> Result<u32, ConfigError> {
        let depth = self.nodes[parent as usize].depth + 1;
        if depth >= MAX_DEPTH {
            let (value, most) = (depth as u64 + 1, MAX_DEPTH as u64);
            return Err(ConfigError::TooMany { option: "levels of classes", value, most });
        }
        if self.nodes.len() >= MOST_CLASSES {
            let (value, most) = (self.nodes.len() as u64 + 1, MOST_CLASSES as u64);
            return Err(ConfigError::TooMany { option: "classes", value, most });
        }
        let all = self.rates_below(parent, None) + u128::from(config.rate.as_bps());
        share(all, self.nodes[parent as usize].config.rate)?;
        Ok(self.push(config, Some(parent), depth))
    }

    /// Sum of the rates of the classes below `parent`, without `but`.
    fn rates_below(&self, parent: u32, but: Option<u32>) -> u128 {
        let children = self.nodes[parent as usize].children.iter();
        let counted = children.filter(|child| Some(**child) != but);
        let rate = |child: &u32| self.nodes[*child as usize].config.rate;
        counted.map(|child| u128::from(rate(child).as_bps())).sum()
    }

    /// Terms of a class.
    pub fn config(&self, node: u32) -> &ClassConfig {
        &self.nodes[node as usize].config
    }

    /// Counters of a class.
    pub fn stats(&self, node: u32) -> ClassStats {
        self.nodes[node as usize].stats
    }

    /// Whether there are classes below a class.
    pub fn has_children(&self, node: u32) -> bool {
        !self.nodes[node as usize].children.is_empty()
    }

    /// Gives a class other terms at `now`, up to which everything is worked out. Its parent stays.
    pub fn change(
        &mut self,
        node: u32,
        config: ClassConfig,
        now: Instant,
    ) -> Result<(), ConfigError> {
        config.check()?;
        share(self.rates_below(node, None), config.rate)?;
        let parent = self.nodes[node as usize].parent;
        if let Some(parent) = parent {
            let all = self.rates_below(parent, Some(node)) + u128::from(config.rate.as_bps());
            share(all, self.nodes[parent as usize].config.rate)?;
        } else {
            self.line.change(config.rate, config.overhead, now);
        }
        let state = &mut self.nodes[node as usize];
        state.fill(now);
        state.rate.set(config.rate, config.burst);
        state.ceil.set(config.ceil, config.cburst);
        state.config = config;
        self.judge(node, now);
        self.order(node, now);
        Ok(())
    }

    /// End of the last packet that the tree has finished with.
    pub fn free_at(&self) -> Instant {
        self.line.free_at()
    }

    /// Time at which something happens in the tree by itself.
    pub fn next_deadline(&self) -> Option<Instant> {
        if let Some(depart) = self.line.depart() {
            return Some(depart);
        }
        let coming = self.coming.first().map(|(at, _)| at);
        let changes = self.changes.first().filter(|_| self.ready > 0).map(|(at, _)| at);
        [coming, changes].into_iter().flatten().min()
    }

    /// Ends with the packet that has been sent by `now`, if one has: its class, and when that was.
    pub fn finish(&mut self, now: Instant) -> Option<(u32, Instant)> {
        self.line.depart().filter(|depart| *depart <= now)?;
        self.line.finish()
    }

    /// Looks at the link of a class again, at `now`: it may have got a packet to send, or have none
    /// any more.
    pub fn look(&mut self, node: u32, link: &Link, now: Instant) {
        let from = link.ready();
        let comes = from.filter(|from| *from > now);
        self.coming.set(node, comes);
        self.set_ready(node, from.is_some() && comes.is_none(), now);
    }

    fn set_ready(&mut self, node: u32, ready: bool, now: Instant) {
        let state = &mut self.nodes[node as usize];
        if state.ready != ready {
            // As it was until now: what an idle class earned beyond its burst is lost.
            state.fill(now);
            state.ready = ready;
            if ready {
                self.ready += 1
            } else {
                self.ready -= 1
            }
            self.judge(node, now);
            self.order(node, now);
        }
    }

    /// The class that begins to send at `now`, if the line is free and one may, and who lends it
    /// the rate: itself, or a class above.
    pub fn next(&mut self, now: Instant) -> Option<(u32, u32)> {
        if self.line.depart().is_some() {
            return None;
        }
        while let Some((at, node)) = self.coming.first().filter(|(at, _)| *at <= now) {
            self.coming.set(node, None);
            self.set_ready(node, true, at);
        }
        while let Some((_, node)) = self.changes.first().filter(|(at, _)| *at <= now) {
            self.nodes[node as usize].fill(now);
            self.judge(node, now);
            self.order(node, now);
        }
        let (_, lender) = self.green.first()?;
        let mut leaf = lender;
        while let Some((_, place)) = self.nodes[leaf as usize].wanting.first() {
            leaf = self.nodes[leaf as usize].children[place as usize];
        }
        Some((leaf, lender))
    }

    /// Bytes that the link of a class may catch up at its own rate after it had to wait.
    pub fn catches_up(&self, leaf: u32) -> u64 {
        self.nodes[leaf as usize].config.cburst
    }

    /// Sends the head of `link`, that of class `leaf`, from `now` on, of the rate of `lender`.
    pub fn send(&mut self, leaf: u32, lender: u32, link: &mut Link, now: Instant) {
        let catches_up = self.catches_up(leaf);
        let Some(bytes) = link.hand_over(now, catches_up, self.line.overhead) else { return };
        self.line.start(leaf, bytes, now);
        let mut of_own = false;
        let mut path = [0; MAX_DEPTH];
        let mut len = 0;
        let mut next = Some(leaf);
        while let Some(index) = next {
            (path[len], len) = (index, len + 1);
            let node = &mut self.nodes[index as usize];
            let share = node.share(bytes);
            let level = usize::from(node.level());
            of_own |= index == lender;
            node.fill(now);
            node.ceil.pay(bytes);
            node.stats.sent_packets += 1;
            node.stats.sent_bytes += bytes;
            if of_own {
                node.rate.pay(bytes);
            } else {
                node.stats.borrowed += u64::from(index == leaf);
            }
            let parent = node.parent;
            if index == lender {
                node.stats.lent += u64::from(index != leaf);
                if let (starts, Some(prio)) = &mut node.own {
                    let prio = usize::from(*prio);
                    let time = &mut self.green_times[level][prio];
                    *time = (*time).max(starts[prio]);
                    starts[prio] += share;
                }
            } else if !of_own
                && let ((starts, Some(prio)), Some(parent)) = (&mut node.borrowed, parent)
            {
                let prio = usize::from(*prio);
                let before = starts[prio];
                starts[prio] += share;
                let time = &mut self.nodes[parent as usize].wanting_times[prio];
                *time = (*time).max(before);
            }
            next = parent;
        }
        // What the link has next is known before orders change, lest a class that goes on loses
        // its place.
        let from = link.ready();
        let comes = from.filter(|from| *from > now);
        self.coming.set(leaf, comes);
        let ready = from.is_some() && comes.is_none();
        if !ready {
            self.nodes[leaf as usize].ready = false;
            self.ready -= 1;
        }
        for index in &path[..len] {
            self.judge(*index, now);
            self.order(*index, now);
        }
    }

    /// Finds the mode of a class whose buckets are filled up to `now`, and when it changes next.
    fn judge(&mut self, index: u32, now: Instant) {
        let node = &mut self.nodes[index as usize];
        let (mode, change) = match (node.rate.allows(), node.ceil.allows()) {
            // The line itself holds the rate of the root.
            _ if node.parent.is_none() => (Mode::Green, None),
            (true, _) => (Mode::Green, None),
            (false, true) => (Mode::Yellow, Some(node.rate.when())),
            (false, false) => (Mode::Red, Some(node.rate.when().min(node.ceil.when()))),
        };
        debug_assert!(change.is_none_or(|change| change > now));
        node.mode = mode;
        self.changes.set(index, change);
    }

    /// Brings the orders in line with a class whose mode, start, or packets changed, and with those
    /// above it.
    fn order(&mut self, mut index: u32, now: Instant) {
        loop {
            let node = &mut self.nodes[index as usize];
            let (prio, level, parent) = (node.prio(), node.level(), node.parent);
            let own = prio.filter(|_| node.mode == Mode::Green);
            if let Some(prio) = own.filter(|_| own != node.own.1) {
                let start = &mut node.own.0[usize::from(prio)];
                *start = (*start).max(self.green_times[usize::from(level)][usize::from(prio)]);
            }
            node.own.1 = own;
            let key = own.map(|prio| (level, prio, node.own.0[usize::from(prio)]));
            self.green.set(index, key);
            let Some(parent) = parent else { return };
            let wants = prio.filter(|_| node.mode == Mode::Yellow);
            let (mut borrowed, before, place) = (node.borrowed.0, node.borrowed.1, node.place);
            let above = &mut self.nodes[parent as usize];
            let first = above.wanting.first().map(|((prio, _), _)| prio);
            if let Some(prio) = wants.filter(|_| wants != before) {
                let start = &mut borrowed[usize::from(prio)];
                *start = (*start).max(above.wanting_times[usize::from(prio)]);
            }
            if first.is_none() && wants.is_some() {
                // Nobody wanted anything so far: what it earned beyond its burst is lost.
                above.fill(now);
            }
            above.wanting.set(place, wants.map(|prio| (prio, borrowed[usize::from(prio)])));
            let first_now = above.wanting.first().map(|((prio, _), _)| prio);
            self.nodes[index as usize].borrowed = (borrowed, wants);
            if first == first_now {
                return;
            }
            index = parent;
        }
    }
}

/// Refuses rates of classes that are `all` together and more than that of the class above.
fn share(all: u128, above: Bitrate) -> Result<(), ConfigError> {
    if all <= u128::from(above.as_bps()) {
        return Ok(());
    }
    let all = Bitrate::from_bps(u64::try_from(all).unwrap_or(u64::MAX));
    Err(ConfigError::RatesAbove { all, above })
}
