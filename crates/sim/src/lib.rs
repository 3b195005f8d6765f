//! Virtual time: a clock that jumps from deadline to deadline, and nodes that exchange messages.
//!
//! A [`Simulation`] owns nodes of one type (usually an enum around stages). Each node returns when
//! it next wants to be woken; the simulation advances the clock to the earliest of these, wakes
//! that node, and hands its messages to their receivers at the same instant, first sent, first
//! delivered. Ties are broken by node number, so a run depends on nothing but its input: the same
//! seed gives the same result to the byte.
//!
//! ```
//! use sheaf_sim::{Node, NodeId, Outbox, Simulation};
//! use sheaf_stage::{Duration, Instant};
//!
//! /// Says a number to its neighbour every second.
//! struct Ticker { next: Instant, to: NodeId, heard: u32 }
//!
//! impl Node for Ticker {
//!     type Message = u32;
//!     fn receive(&mut self, message: u32, _now: Instant, _out: &mut Outbox<u32>) {
//!         self.heard += message;
//!     }
//!     fn wake(&mut self, now: Instant, out: &mut Outbox<u32>) {
//!         self.next = now + Duration::from_secs(1);
//!         out.send(self.to, 7);
//!     }
//!     fn next_deadline(&self) -> Option<Instant> {
//!         Some(self.next)
//!     }
//! }
//!
//! let ticker = |to| Ticker { next: Instant::from_millis(500), to: NodeId(to), heard: 0 };
//! let mut simulation = Simulation::new(vec![ticker(1), ticker(0)]);
//! simulation.run_until(Instant::from_millis(2_600));
//! assert_eq!(simulation.nodes()[0].heard, 3 * 7);
//! ```

use sheaf_stage::{IndexedHeap, Instant};
use std::collections::VecDeque;

/// A node, by its place in the list that the simulation was made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// Something that lives in virtual time. The contract is that of a
/// [`Stage`](sheaf_stage::Stage): time is an argument, and after `receive` or `wake` the next
/// deadline is later than `now`.
pub trait Node {
    /// Message between nodes.
    type Message;

    /// Takes a message.
    fn receive(&mut self, message: Self::Message, now: Instant, out: &mut Outbox<Self::Message>);

    /// Acts at the time that it asked for.
    fn wake(&mut self, now: Instant, out: &mut Outbox<Self::Message>);

    /// Next time at which the node is to be woken.
    fn next_deadline(&self) -> Option<Instant>;
}

/// Messages on their way, delivered at the instant they were sent, in order.
#[derive(Debug)]
pub struct Outbox<M> {
    messages: VecDeque<(NodeId, M)>,
}

impl<M> Outbox<M> {
    /// Sends `message` to `to`; it arrives at the same instant, after those sent before.
    pub fn send(&mut self, to: NodeId, message: M) {
        self.messages.push_back((to, message));
    }
}

/// Nodes and their clock.
#[derive(Debug)]
pub struct Simulation<N: Node> {
    nodes: Vec<N>,
    deadlines: IndexedHeap<Instant>,
    outbox: Outbox<N::Message>,
    touched: Touched,
    now: Instant,
}

/// The nodes that acted at an instant, each once, however many messages it took.
#[derive(Debug)]
struct Touched {
    order: Vec<u32>,
    /// For each node, whether it is among them.
    is_in: Vec<bool>,
}

impl Touched {
    fn insert(&mut self, id: u32) {
        if !std::mem::replace(&mut self.is_in[id as usize], true) {
            self.order.push(id);
        }
    }

    fn pop(&mut self) -> Option<u32> {
        let id = self.order.pop()?;
        self.is_in[id as usize] = false;
        Some(id)
    }
}

impl<N: Node> Simulation<N> {
    /// A simulation at time zero.
    pub fn new(nodes: Vec<N>) -> Self {
        let mut deadlines = IndexedHeap::default();
        for (id, node) in nodes.iter().enumerate() {
            deadlines.set(id as u32, node.next_deadline());
        }
        let outbox = Outbox { messages: VecDeque::new() };
        let touched = Touched { order: Vec::new(), is_in: vec![false; nodes.len()] };
        Simulation { nodes, deadlines, outbox, touched, now: Instant::ZERO }
    }

    /// Lets everything happen that is due up to and including `end`, and sets the clock to it.
    ///
    /// # Panics
    /// Panics when a node's deadline does not move past the present, which would never end.
    pub fn run_until(&mut self, end: Instant) {
        while let Some((deadline, id)) = self.deadlines.first().filter(|(at, _)| *at <= end) {
            self.now = self.now.max(deadline);
            self.nodes[id as usize].wake(self.now, &mut self.outbox);
            self.touched.insert(id);
            self.deliver();
            self.settle(id);
        }
        self.now = end;
    }

    fn deliver(&mut self) {
        while let Some((to, message)) = self.outbox.messages.pop_front() {
            self.nodes[to.0 as usize].receive(message, self.now, &mut self.outbox);
            self.touched.insert(to.0);
        }
    }

    /// Asks the nodes that acted for their next deadline, after `woken` was woken. Nobody looks at
    /// deadlines while messages are on their way, so each is asked once.
    fn settle(&mut self, woken: u32) {
        while let Some(id) = self.touched.pop() {
            let (next, now) = (self.nodes[id as usize].next_deadline(), self.now);
            let moves_on = id != woken || next.is_none_or(|at| at > now);
            assert!(moves_on, "node {id} stays due at {now:?}");
            self.deadlines.set(id, next);
        }
    }

    /// The present.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The nodes, to read what they measured.
    pub fn nodes(&self) -> &[N] {
        &self.nodes
    }

    /// The nodes, to change something between two runs.
    pub fn into_nodes(self) -> Vec<N> {
        self.nodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_stage::Duration;

    /// Writes down everything it sees; sends `k - 1` to the other node on `k`.
    struct Log {
        alarms: Vec<u64>,
        seen: Vec<(u64, u32)>,
        other: NodeId,
    }

    impl Node for Log {
        type Message = u32;
        fn receive(&mut self, message: u32, now: Instant, out: &mut Outbox<u32>) {
            self.seen.push((now.as_nanos(), message));
            if message > 0 {
                out.send(self.other, message - 1);
            }
        }
        fn wake(&mut self, now: Instant, out: &mut Outbox<u32>) {
            assert_eq!(self.alarms.remove(0), now.as_nanos());
            out.send(self.other, 3);
        }
        fn next_deadline(&self) -> Option<Instant> {
            self.alarms.first().map(|at| Instant::from_nanos(*at))
        }
    }

    fn pair() -> Simulation<Log> {
        let log = |alarms: &[u64], other| Log {
            alarms: alarms.to_vec(),
            seen: Vec::new(),
            other: NodeId(other),
        };
        Simulation::new(vec![log(&[10, 30], 1), log(&[10, 20], 0)])
    }

    #[test]
    fn messages_arrive_at_the_instant_they_were_sent_in_order() {
        let mut simulation = pair();
        simulation.run_until(Instant::from_nanos(20));
        assert_eq!(simulation.now(), Instant::from_nanos(20));
        assert_eq!(
            simulation.nodes()[1].seen,
            [(10, 3), (10, 1), (10, 2), (10, 0), (20, 2), (20, 0)]
        );
    }

    /// Counts how often it is asked for its deadline; sends itself two messages when it is woken.
    struct Asked {
        next: Instant,
        asked: std::cell::Cell<u32>,
    }

    impl Node for Asked {
        type Message = ();
        fn receive(&mut self, (): (), _now: Instant, _out: &mut Outbox<()>) {}
        fn wake(&mut self, now: Instant, out: &mut Outbox<()>) {
            self.next = now + Duration::from_nanos(5);
            [(), ()].into_iter().for_each(|()| out.send(NodeId(0), ()));
        }
        fn next_deadline(&self) -> Option<Instant> {
            self.asked.set(self.asked.get() + 1);
            Some(self.next)
        }
    }

    #[test]
    fn a_node_is_asked_for_its_deadline_once_an_instant_and_only_when_it_acted() {
        let node = |next| Asked { next: Instant::from_nanos(next), asked: Default::default() };
        let mut simulation = Simulation::new(vec![node(10), node(1_000)]);
        simulation.run_until(Instant::from_nanos(24));
        let asked = simulation.nodes().iter().map(|node| node.asked.get()).collect::<Vec<_>>();
        assert_eq!(asked, [4, 1], "at the start, and at 10, 15 and 20");
    }

    #[test]
    #[should_panic(expected = "node 0 stays due")]
    fn a_node_that_stays_due_is_an_error_and_no_endless_loop() {
        struct Stuck;
        impl Node for Stuck {
            type Message = ();
            fn receive(&mut self, (): (), _now: Instant, _out: &mut Outbox<()>) {}
            fn wake(&mut self, _now: Instant, _out: &mut Outbox<()>) {}
            fn next_deadline(&self) -> Option<Instant> {
                Some(Instant::from_nanos(7))
            }
        }
        Simulation::new(vec![Stuck]).run_until(Instant::from_nanos(8));
    }

    #[test]
    fn stopping_on_the_way_changes_nothing() {
        let mut whole = pair();
        whole.run_until(Instant::from_nanos(100));
        let mut parts = pair();
        for at in [5, 10, 11, 29, 30, 100] {
            parts.run_until(Instant::ZERO + Duration::from_nanos(at));
        }
        assert_eq!(whole.nodes()[0].seen, parts.nodes()[0].seen);
        assert_eq!(whole.nodes()[1].seen, parts.nodes()[1].seen);
    }
}
