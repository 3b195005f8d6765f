//! Pipes: packets sorted by rules into links, each flow into its own where asked.
//!
//! Source: dummynet (L. Rizzo, "Dummynet: a simple approach to the evaluation of network
//! protocols", 1997; M. Carbone, L. Rizzo, "Dummynet revisited", 2010). A packet that leaves one
//! pipe of a row enters the next at its logical departure, and pipes are worked off in the order of
//! their deadlines, so a row of links behaves as if each were called at every moment. A link with a
//! bound on bursts stands still where the call comes late for its own deadline. The cost of a
//! packet grows with the logarithm of the number of pipes at most.
//!
//! A pipe may be a [class](crate::classes): then its link waits for the tree of classes to send
//! what has waited in it. A tree has deadlines as a link has.

use crate::accounting::{Accounting, Log, Stats};
use crate::cause::Cause;
use crate::classes::{ClassConfig, ClassStats, Tree};
use crate::classify::{Action, Rule, first};
use crate::config::LinkConfig;
use crate::error::ConfigError;
use crate::link::Link;
use crate::mask::{Key, Mask};
use crate::packet::{Packet, Route, Target};
use crate::random::{Dice, Purpose};
use sheaf_stage::{Counters, DropReason, Duration, IndexedHeap, Instant, Stage};
use sheaf_wire::flow::fold;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// A pipe, or one for each flow.
#[derive(Clone, Debug, PartialEq)]
pub struct PipeConfig {
    /// The link. Weighted schedulers are queues of it.
    pub link: LinkConfig,
    /// Bits by which flows differ; `None`: one link for all.
    pub mask: Option<Mask>,
    /// Most links made for flows, 1 or more. Beyond it a flow takes the link that has been idle
    /// longest; while none is idle, flows without a link share one more.
    pub max_flows: u32,
    /// A flow whose link has held nothing for so long loses it (dummynet's `expire`); when it comes
    /// back it gets a new one. `None`: never, until another flow needs it.
    pub expire: Option<Duration>,
    /// The class that the pipe is, if it is one. The link of a class with others below it has no
    /// packets.
    pub class: Option<ClassConfig>,
}

/// Links that are taken back at each packet, at most: two, so that they end faster than they come
/// and no packet pays for many.
const EXPIRED_AT_ONCE: u32 = 2;

impl PipeConfig {
    /// One link for all.
    pub fn shared(link: LinkConfig) -> Self {
        PipeConfig { link, mask: None, max_flows: 1, expire: None, class: None }
    }

    /// A link for each flow, up to 1024, and until it has been idle for a minute.
    pub fn per_flow(link: LinkConfig, mask: Mask) -> Self {
        let expire = Some(Duration::from_secs(60));
        PipeConfig { link, mask: Some(mask), max_flows: 1024, expire, class: None }
    }

    /// A class, with the link that its packets take. Pipes of the classes above come first.
    pub fn class(class: ClassConfig, link: LinkConfig) -> Self {
        PipeConfig { class: Some(class), ..PipeConfig::shared(link) }
    }

    fn check(&self) -> Result<(), ConfigError> {
        if self.max_flows == 0 {
            return Err(ConfigError::Zero { option: "flows of a pipe" });
        }
        let Some(class) = &self.class else { return Ok(()) };
        if self.mask.is_some() {
            return Err(ConfigError::FlowsOfClass);
        }
        check_leaf(&self.link)?;
        class.check()
    }
}

/// Refuses what the link of a class cannot have.
fn check_leaf(link: &LinkConfig) -> Result<(), ConfigError> {
    if link.burst.is_some() { Err(ConfigError::BurstInClass) } else { Ok(()) }
}

/// Counters of a pipe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PipeStats {
    /// The sum over its links, those that are gone included.
    pub links: Stats,
    /// Flows that have a link of their own now.
    pub flows: u32,
    /// Links that were given to another flow.
    pub reused: u64,
    /// Links that were taken back from flows that had gone.
    pub expired: u64,
    /// Packets that took the shared link because no other was free.
    pub crowded: u64,
    /// Of a class: what the tree did with it.
    pub class: Option<ClassStats>,
}

/// Rules and pipes.
#[derive(Debug)]
pub struct Pipes {
    /// Offset of the IP header.
    ip: usize,
    dice: Dice,
    rules: Vec<Rule>,
    pipes: Vec<Pipe>,
    /// Every link of every pipe.
    links: Vec<Entry>,
    deadlines: IndexedHeap<Instant>,
    /// Trees of classes, and the pipe of each class.
    trees: Vec<Classes>,
    events: IndexedHeap<Instant>,
    /// Packets on their way out.
    leaving: VecDeque<Packet>,
    accounting: Accounting,
    last_arrival: Instant,
    /// A trace of any link waits for the first packet that enters a link.
    armed: bool,
}

/// A tree of classes, and the link of each.
#[derive(Debug)]
struct Classes {
    tree: Tree,
    links: Vec<u32>,
}

/// A class: its tree, and its number there.
type Class = (u32, u32);

#[derive(Debug)]
struct Pipe {
    config: PipeConfig,
    seed: u64,
    /// The link for all, or for flows without one.
    shared: u32,
    by_flow: HashMap<Key, u32>,
    /// The links of flows, and of those the ones that hold nothing, by when they were used last.
    flows: Vec<u32>,
    idle: IndexedHeap<Instant>,
    /// Places among them whose link belongs to no flow.
    free: Vec<u32>,
    /// Counters of links that are gone.
    gone: Stats,
    gone_drops: Counters,
    reused: u64,
    expired: u64,
    crowded: u64,
}

#[derive(Debug)]
struct Entry {
    link: Link,
    pipe: usize,
    /// Its flow, and its place among the flows of its pipe.
    flow: Option<(Key, u32)>,
    /// The class whose leaf it is.
    class: Option<Class>,
    used: Instant,
}

impl Pipes {
    /// No pipes and no rules: everything passes. IP begins at byte `link_header` of each packet.
    pub fn new(link_header: usize, seed: u64) -> Self {
        Pipes {
            ip: link_header,
            dice: Dice::new(seed),
            rules: Vec::new(),
            pipes: Vec::new(),
            links: Vec::new(),
            deadlines: IndexedHeap::default(),
            trees: Vec::new(),
            events: IndexedHeap::default(),
            leaving: VecDeque::new(),
            accounting: Accounting::default(),
            last_arrival: Instant::ZERO,
            armed: false,
        }
    }

    /// Adds a pipe and returns its number.
    pub fn add(&mut self, config: PipeConfig) -> Result<usize, ConfigError> {
        config.check()?;
        let number = self.pipes.len();
        let seed = self.dice.word(Purpose::Pipe, number as u64);
        let mut link = Link::new(config.link.clone(), seed)?;
        link.set_log(self.accounting.log.clone());
        let shared = self.links.len() as u32;
        let class = config.class.as_ref().map(|class| self.plant(class, shared)).transpose()?;
        if class.is_some() {
            link.set_gated();
        }
        self.armed |= link.is_armed();
        self.links.push(Entry { link, pipe: number, flow: None, class, used: Instant::ZERO });
        self.pipes.push(Pipe {
            config,
            seed,
            shared,
            by_flow: HashMap::new(),
            flows: Vec::new(),
            idle: IndexedHeap::default(),
            free: Vec::new(),
            gone: Stats::default(),
            gone_drops: Counters::default(),
            reused: 0,
            expired: 0,
            crowded: 0,
        });
        Ok(number)
    }

    /// Puts a class whose leaf is link number `link` into its tree, or makes a new tree of it.
    fn plant(&mut self, config: &ClassConfig, link: u32) -> Result<Class, ConfigError> {
        let Some(parent) = config.parent else {
            self.trees.push(Classes { tree: Tree::new(config.clone()), links: vec![link] });
            return Ok((self.trees.len() as u32 - 1, 0));
        };
        // A packet in the class above would wait there for ever.
        if !self.rules.is_empty() {
            return Err(ConfigError::LateClass);
        }
        let (tree, above) = self.class_of(parent)?;
        let classes = &mut self.trees[tree as usize];
        let node = classes.tree.add(config.clone(), above)?;
        classes.links.push(link);
        Ok((tree, node))
    }

    /// The class that a pipe is.
    fn class_of(&self, pipe: usize) -> Result<Class, ConfigError> {
        let missing = ConfigError::Missing { option: "pipe", number: pipe };
        let pipe_of_number = self.pipes.get(pipe).ok_or(missing)?;
        let class = self.links[pipe_of_number.shared as usize].class;
        class.ok_or(ConfigError::NoClass { number: pipe })
    }

    /// Whether a pipe is a class with others below it.
    fn is_inner(&self, pipe: usize) -> bool {
        self.class_of(pipe)
            .is_ok_and(|(tree, node)| self.trees[tree as usize].tree.has_children(node))
    }

    /// Sets the rules. Packets that are in a row of pipes stay in it.
    pub fn set_rules(&mut self, rules: Vec<Rule>) -> Result<(), ConfigError> {
        for rule in &rules {
            rule.check(self.pipes.len())?;
            let Action::Pipes(targets) = &rule.action else { continue };
            let inner = targets.iter().find(|target| self.is_inner(target.pipe));
            if let Some(Target { pipe, .. }) = inner {
                return Err(ConfigError::Inner { number: *pipe });
            }
        }
        self.rules = rules;
        Ok(())
    }

    /// Makes the links of a pipe other ones at `now`, as [`Link::change`] does. Drain afterwards.
    pub fn change(
        &mut self,
        pipe: usize,
        config: LinkConfig,
        now: Instant,
    ) -> Result<(), ConfigError> {
        let option = "pipe";
        config.check()?;
        let changed = self.pipes.get(pipe).ok_or(ConfigError::Missing { option, number: pipe })?;
        if changed.config.class.is_some() {
            check_leaf(&config)?;
            if self.is_inner(pipe) {
                return Err(ConfigError::Inner { number: pipe });
            }
        }
        self.advance(now, now);
        let mut indices = self.pipes[pipe].flows.clone();
        indices.push(self.pipes[pipe].shared);
        let shared = Arc::new(config.clone());
        for index in indices {
            self.links[index as usize].link.adopt(shared.clone(), now);
            self.settle(index, now);
        }
        self.armed |= self.links[self.pipes[pipe].shared as usize].link.is_armed();
        self.pipes[pipe].config.link = config;
        Ok(())
    }

    /// Gives a class other terms at `now`; its parent stays. Nothing queued is lost. Drain
    /// afterwards.
    pub fn change_class(
        &mut self,
        pipe: usize,
        config: ClassConfig,
        now: Instant,
    ) -> Result<(), ConfigError> {
        let (tree, node) = self.class_of(pipe)?;
        self.advance(now, now);
        let parent = self.trees[tree as usize].tree.config(node).parent;
        let config = ClassConfig { parent, ..config };
        self.trees[tree as usize].tree.change(node, config.clone(), now)?;
        self.pipes[pipe].config.class = Some(config);
        self.decide(tree, now);
        Ok(())
    }

    /// The class that a pipe is, if it is one, and whether it is a leaf.
    pub fn class(&self, pipe: usize) -> Option<(&ClassConfig, bool)> {
        let config = self.pipes.get(pipe)?.config.class.as_ref()?;
        Some((config, !self.is_inner(pipe)))
    }

    /// Counters of a pipe; `None` when it does not exist. Adds up over all its links, so it is
    /// for reports, as the balance is.
    pub fn stats(&self, pipe: usize) -> Option<PipeStats> {
        let state = self.pipes.get(pipe)?;
        let mut links = state.gone;
        for index in state.flows.iter().chain([&state.shared]) {
            links.add(&self.links[*index as usize].link.stats());
        }
        let flows = state.by_flow.len() as u32;
        let Pipe { reused, expired, crowded, .. } = *state;
        let class = self.class_of(pipe).ok();
        let class = class.map(|(tree, node)| self.trees[tree as usize].tree.stats(node));
        Some(PipeStats { links, flows, reused, expired, crowded, class })
    }

    /// Calls `log` with every event in every pipe from now on.
    pub fn set_log(&mut self, log: Option<Log>) {
        for entry in &mut self.links {
            entry.link.set_log(log.clone());
        }
        self.accounting.log = log;
    }

    /// Works off all deadlines up to `until`, in their order, in a call at `now`.
    fn advance(&mut self, until: Instant, now: Instant) {
        while self.step(until, now) {}
    }

    /// Works off the next deadline unless it is later than `until`, in a call at `now`.
    fn step(&mut self, until: Instant, now: Instant) -> bool {
        let link = self.deadlines.first().filter(|(at, _)| *at <= until);
        let event = self.events.first().filter(|(at, _)| *at <= until);
        // Of the same time, what a tree has sent makes room first.
        if let Some((at, tree)) = event.filter(|(at, _)| link.is_none_or(|(due, _)| *at <= due)) {
            self.work_off(tree, at);
            return true;
        }
        let Some((at, index)) = link else { return false };
        let entry = &mut self.links[index as usize];
        // The link itself sees only its deadline, by which no call is late.
        if entry.link.stand_still(at, now) {
            self.settle(index, at);
            return true;
        }
        let packet = entry.link.dequeue(at);
        entry.used = at;
        self.settle(index, at);
        if let Some(packet) = packet {
            // A packet that the next pipe drops was taken long ago, and is counted there.
            let _ = self.forward(packet, at);
        }
        true
    }

    /// Ends with what a tree has sent by `at`, and lets it go on.
    fn work_off(&mut self, number: u32, at: Instant) {
        let Classes { tree, links } = &mut self.trees[number as usize];
        if let Some((leaf, sent)) = tree.finish(at) {
            let index = links[leaf as usize];
            self.links[index as usize].link.cross(sent);
            self.settle(index, sent);
        }
        self.decide(number, at);
    }

    /// Lets a tree send what it may at `at`.
    fn decide(&mut self, number: u32, at: Instant) {
        let Classes { tree, links } = &mut self.trees[number as usize];
        // A packet counts from the time it came at. It may be read after the line has finished what
        // that packet had to wait for, so the line begins with it when it is free.
        let at = at.max(tree.free_at());
        if let Some((leaf, lender)) = tree.next(at) {
            let index = links[leaf as usize];
            let link = &mut self.links[index as usize].link;
            tree.send(leaf, lender, link, at);
            self.deadlines.set(index, link.next_deadline());
        }
        self.events.set(number, tree.next_deadline());
    }

    /// Puts a packet into the next pipe of its row, or out.
    fn forward(&mut self, mut packet: Packet, at: Instant) -> Result<(), DropReason> {
        let Route { row, hop } = &mut packet.route;
        let target = row.as_ref().and_then(|row| row.get(*hop as usize)).copied();
        *hop += 1;
        let Some(Target { pipe, queue }) = target else {
            packet.route = Route::default();
            self.leaving.push_back(packet);
            return Ok(());
        };
        if self.armed {
            self.start_traces(at);
        }
        packet.arrived = packet.depart;
        packet.queue = queue.unwrap_or(packet.queue);
        self.expire(pipe, at);
        let index = self.link_for(&packet, pipe);
        let entry = &mut self.links[index as usize];
        entry.used = at;
        let result = entry.link.enqueue(packet, at);
        self.settle(index, at);
        result
    }

    /// Begins at `at` the traces of all links that wait for it.
    fn start_traces(&mut self, at: Instant) {
        for index in 0..self.links.len() {
            self.links[index].link.start_trace(at);
            self.settle(index as u32, at);
        }
        self.armed = false;
    }

    /// The link of the packet's flow, made or taken over where it has none.
    fn link_for(&mut self, packet: &Packet, number: usize) -> u32 {
        let pipe = &mut self.pipes[number];
        let Some(mask) = pipe.config.mask else { return pipe.shared };
        let key = mask.key(packet, self.ip);
        if let Some(index) = pipe.by_flow.get(&key) {
            return *index;
        }
        let index = if let Some(place) = pipe.free.pop() {
            let index = pipe.flows[place as usize];
            self.links[index as usize].flow = Some((key, place));
            index
        } else if pipe.flows.len() < pipe.config.max_flows as usize {
            let index = self.links.len() as u32;
            pipe.flows.push(index);
            index
        } else if let Some((_, place)) = pipe.idle.first() {
            pipe.flows[place as usize]
        } else {
            pipe.crowded += 1;
            return pipe.shared;
        };
        // The seed is the flow's, so its fate does not depend on the flows before it.
        let link = self.links[pipe.shared as usize].link.like(fold(pipe.seed, &key));
        if let Some(entry) = self.links.get_mut(index as usize) {
            let old = std::mem::replace(&mut entry.link, link);
            pipe.gone.add(&old.stats());
            add_drops(&mut pipe.gone_drops, &old.counters());
            if let Some((old_key, _)) = &mut entry.flow
                && *old_key != key
            {
                pipe.by_flow.remove(old_key);
                *old_key = key;
                pipe.reused += 1;
            }
        } else {
            let flow = Some((key, pipe.flows.len() as u32 - 1));
            let used = Instant::ZERO;
            self.links.push(Entry { link, pipe: number, flow, class: None, used });
        }
        pipe.by_flow.insert(key, index);
        index
    }

    /// Takes links back from flows that have been idle too long, the longest idle first.
    fn expire(&mut self, number: usize, now: Instant) {
        let pipe = &mut self.pipes[number];
        let Some(expire) = pipe.config.expire else { return };
        for _ in 0..EXPIRED_AT_ONCE {
            let Some((_, place)) = pipe.idle.first().filter(|(used, _)| now - *used >= expire)
            else {
                return;
            };
            pipe.idle.set(place, None);
            pipe.free.push(place);
            let index = pipe.flows[place as usize] as usize;
            // A new one in its place holds no storage.
            let link = self.links[pipe.shared as usize].link.like(pipe.seed);
            let entry = &mut self.links[index];
            let old = std::mem::replace(&mut entry.link, link);
            pipe.gone.add(&old.stats());
            add_drops(&mut pipe.gone_drops, &old.counters());
            if let Some((key, _)) = entry.flow.take() {
                pipe.by_flow.remove(&key);
            }
            pipe.expired += 1;
        }
    }

    /// Brings the orders in line with a link that changed at `at`.
    fn settle(&mut self, index: u32, at: Instant) {
        let entry = &self.links[index as usize];
        self.deadlines.set(index, entry.link.next_deadline());
        if let Some((tree, node)) = entry.class {
            self.trees[tree as usize].tree.look(node, &entry.link, at);
            return self.decide(tree, at);
        }
        if let Some((_, place)) = entry.flow {
            let idle = entry.link.is_empty().then_some(entry.used);
            self.pipes[entry.pipe].idle.set(place, idle);
        }
    }
}

fn add_drops(to: &mut Counters, from: &Counters) {
    for reason in DropReason::ALL {
        to.drop_many(reason, from.dropped(reason));
    }
}

impl Stage for Pipes {
    type In = Packet;
    type Out = Packet;

    fn enqueue(&mut self, mut packet: Packet, now: Instant) -> Result<(), DropReason> {
        let at = packet.arrived.min(now).max(self.last_arrival);
        self.last_arrival = at;
        self.advance(at, now);
        (packet.arrived, packet.depart) = (at, at);
        packet.route = Route::default();
        self.accounting.counters.packets_in += u64::from(!packet.is_copy());
        match first(&self.rules, &packet, self.ip, self.dice).map(|rule| &rule.action) {
            None | Some(Action::Pass) => {
                self.leaving.push_back(packet);
                Ok(())
            }
            Some(Action::Deny) => Err(self.accounting.turn_away(packet, Cause::Denied, at)),
            Some(Action::Pipes(row)) => {
                packet.route.row = Some(row.clone());
                self.forward(packet, at)
            }
        }
    }

    fn dequeue(&mut self, now: Instant) -> Option<Packet> {
        while self.leaving.is_empty() && self.step(now, now) {}
        let packet = self.leaving.pop_front()?;
        self.accounting.counters.packets_out += u64::from(!packet.is_copy());
        Some(packet)
    }

    fn next_deadline(&self) -> Option<Instant> {
        let leaving = self.leaving.front().map(|packet| packet.depart);
        leaving.or_else(|| {
            let due = [self.deadlines.first(), self.events.first()];
            due.into_iter().flatten().map(|(at, _)| at).min()
        })
    }

    fn counters(&self) -> Counters {
        let mut counters = self.accounting.counters;
        self.pipes.iter().for_each(|pipe| add_drops(&mut counters, &pipe.gone_drops));
        self.links.iter().for_each(|entry| add_drops(&mut counters, &entry.link.counters()));
        counters
    }

    fn held(&self) -> u64 {
        let leaving = self.leaving.iter().filter(|packet| !packet.is_copy()).count() as u64;
        leaving + self.links.iter().map(|entry| entry.link.held()).sum::<u64>()
    }

    /// A duplicate stands for no packet that went in.
    fn packets(out: &Packet) -> u64 {
        u64::from(!out.is_copy())
    }
}
