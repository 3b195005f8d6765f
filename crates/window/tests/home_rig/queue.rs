//! The provider's queue: one for all, or one for each flow.

use sheaf_stage::Instant;
use std::collections::{BTreeMap, VecDeque};

/// Bytes that a flow sends in its turn: a full frame.
const QUANTUM: i64 = 1514;

/// Packets of type `P` in bytes on the wire, each with the time at which it came.
pub struct Queue<P> {
    /// Whether each flow has a queue of its own, which take turns.
    is_fair: bool,
    flows: BTreeMap<usize, Flow<P>>,
    /// Flows in the order of their turns: those that have just begun to send come first, so a flow
    /// that sends little waits for nobody (RFC 8290, 4.2).
    turns: [VecDeque<usize>; 2],
}

struct Flow<P> {
    packets: VecDeque<(P, usize, Instant)>,
    bytes: usize,
    /// Bytes that it may still send in this turn.
    credit: i64,
    /// Whether it waits for a turn.
    has_turn: bool,
}

impl<P> Queue<P> {
    /// An empty queue for all flows, or one for each.
    pub fn new(is_fair: bool) -> Queue<P> {
        Queue { is_fair, flows: BTreeMap::new(), turns: [VecDeque::new(), VecDeque::new()] }
    }

    /// Takes a packet of `flow` that comes at `now`.
    pub fn push(&mut self, flow: usize, packet: P, bytes: usize, now: Instant) {
        let number = if self.is_fair { flow } else { 0 };
        let empty = || Flow { packets: VecDeque::new(), bytes: 0, credit: 0, has_turn: false };
        let flow = self.flows.entry(number).or_insert_with(empty);
        flow.packets.push_back((packet, bytes, now));
        flow.bytes += bytes;
        if !flow.has_turn {
            (flow.credit, flow.has_turn) = (QUANTUM, true);
            self.turns[0].push_back(number);
        }
    }

    /// Drops the last packet of the flow that has most. Returns it with its bytes.
    pub fn drop(&mut self) -> Option<(P, usize)> {
        let longest = self.flows.values_mut().max_by_key(|flow| flow.bytes)?;
        let (packet, bytes, _) = longest.packets.pop_back()?;
        longest.bytes -= bytes;
        Some((packet, bytes))
    }

    /// The next packet, its bytes, and when it came (deficit round robin, as RFC 8290 has it).
    pub fn pop(&mut self) -> Option<(P, usize, Instant)> {
        loop {
            let which = usize::from(self.turns[0].is_empty());
            let number = *self.turns[which].front()?;
            let flow = self.flows.get_mut(&number)?;
            if flow.credit <= 0 {
                flow.credit += QUANTUM;
                self.turns[which].pop_front();
                self.turns[1].push_back(number);
                continue;
            }
            let Some((packet, bytes, since)) = flow.packets.pop_front() else {
                self.turns[which].pop_front();
                // Who was new has a turn among the others before it counts as new again.
                flow.has_turn = which == 0;
                if flow.has_turn {
                    self.turns[1].push_back(number);
                }
                continue;
            };
            flow.credit -= bytes as i64;
            flow.bytes -= bytes;
            return Some((packet, bytes, since));
        }
    }
}
