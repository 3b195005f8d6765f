//! The air among the hosts: the medium, those who walk on it, and frames besides calls.

use super::message::{Message, Sent};
use crate::voip::point::Point;
use crate::voip::walk::{STEP, Walking};
use sheaf_medium::{Frame, Medium, RadioId, To};
use sheaf_sim::{NodeId, Outbox};
use sheaf_stage::{Duration, Instant, Stage};

/// The medium, and what happens on it besides the packets of hosts.
pub(super) struct Air {
    /// Frames without a byte of payload are [`Broadcast`]s.
    medium: Medium<Vec<u8>>,
    /// Bytes that the mesh protocol adds to each packet.
    encapsulation: u32,
    steps: Option<Steps>,
    broadcasts: Vec<Broadcast>,
}

/// The steps of a walk that the medium follows.
struct Steps {
    walking: Walking,
    hosts: usize,
    next: Instant,
}

/// A frame that one host sends to all at intervals, and that takes air alone.
struct Broadcast {
    from: RadioId,
    interval: Duration,
    bytes: u32,
    next: Instant,
    /// From then on it sends none: the measurement has ended.
    end: Instant,
}

impl Broadcast {
    /// The time of the next one, if there is one more.
    fn next(&self) -> Option<Instant> {
        Some(self.next).filter(|next| *next < self.end)
    }
}

impl Air {
    /// A silent medium.
    pub fn new(point: &Point) -> anyhow::Result<Air> {
        let (hosts, end) = (point.nodes.len(), point.measured().end);
        let steps =
            |walking: &Walking| Steps { walking: walking.clone(), hosts, next: Instant::ZERO };
        let broadcasts = point.broadcasts.iter().flat_map(|(interval, bytes)| {
            (0..hosts).map(|host| {
                // Hosts were not started at the same time.
                let next = Instant::ZERO + *interval * host as u32 / hosts as u32;
                Broadcast {
                    from: RadioId(host as u32),
                    interval: *interval,
                    bytes: *bytes,
                    next,
                    end,
                }
            })
        });
        Ok(Air {
            medium: Medium::new(point.medium.clone(), point.seed)?,
            encapsulation: point.encapsulation,
            steps: point.walking.as_ref().map(steps),
            broadcasts: broadcasts.collect(),
        })
    }

    pub fn medium(&self) -> &Medium<Vec<u8>> {
        &self.medium
    }

    /// Takes a packet for the radio of host `from`.
    pub fn send(
        &mut self,
        from: usize,
        to: To,
        packet: Vec<u8>,
        now: Instant,
        out: &mut Outbox<Message>,
    ) {
        let bytes = packet.len() as u32 + self.encapsulation;
        let frame = Frame { from: RadioId(from as u32), to, bytes, payload: packet };
        if self.medium.enqueue(frame, now).is_err() {
            out.send(NodeId(from as u32), Message::Finished(None));
        }
        self.hand_on(now, out);
    }

    /// Does what is due.
    pub fn wake(&mut self, now: Instant, out: &mut Outbox<Message>) {
        if let Some(steps) = &mut self.steps {
            steps.take(&mut self.medium, now);
        }
        let is_due = |broadcast: &&mut Broadcast| broadcast.next().is_some_and(|next| next <= now);
        for broadcast in self.broadcasts.iter_mut().filter(is_due) {
            broadcast.next += broadcast.interval;
            let Broadcast { from, bytes, .. } = *broadcast;
            let frame = Frame { from, to: To::Broadcast, bytes, payload: Vec::new() };
            // A full queue drops it as it would any other.
            let _ = self.medium.enqueue(frame, now);
        }
        self.hand_on(now, out);
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        let step = self.steps.as_ref().map(|steps| steps.next);
        let broadcasts = self.broadcasts.iter().filter_map(Broadcast::next);
        self.medium.next_deadline().into_iter().chain(step).chain(broadcasts).min()
    }

    /// Hands on the frames that the medium has finished with.
    fn hand_on(&mut self, now: Instant, out: &mut Outbox<Message>) {
        while let Some(done) = self.medium.dequeue(now) {
            if done.frame.payload.is_empty() {
                continue;
            }
            let from = done.frame.from.0;
            let to = match done.frame.to {
                To::Radio(radio) => Some(radio.0 as usize),
                To::Broadcast => None,
            };
            let (bytes, retries) = (done.frame.bytes, done.retries);
            let sent = Sent { to, bytes, retries, failed: done.result.is_err() };
            out.send(NodeId(from), Message::Finished(Some(sent)));
            let mut send = |receiver: RadioId, packet| {
                let received = Message::Received { from: from as usize, packet };
                out.send(NodeId(receiver.0), received);
            };
            let mut receivers = done.receivers.iter().peekable();
            while let Some(receiver) = receivers.next() {
                // Most frames have one receiver, which gets the packet itself.
                if receivers.peek().is_none() {
                    send(receiver, done.frame.payload);
                    break;
                }
                send(receiver, done.frame.payload.clone());
            }
        }
    }
}

impl Steps {
    /// Brings the medium to where the station is at `now`, where a step is due.
    fn take(&mut self, medium: &mut Medium<Vec<u8>>, now: Instant) {
        if now < self.next {
            return;
        }
        self.next = now + STEP;
        let hearing = self.walking.hearing(self.hosts, now);
        medium.set_hearing(hearing, now).expect("bit error rates are shares");
    }
}
