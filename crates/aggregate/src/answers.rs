//! Messages of a splitter about contexts, few of them, to the hosts that send to it.
//!
//! Principle: an acknowledgement is not urgent, because packets travel as they are until it comes,
//! and each message takes a frame on the air. So the first message leaves immediately, and the
//! items for the same host within [`PAUSE`] of it share the next. A packet that could not be
//! restored is lost to the host behind: the sender is told immediately, along with all items that
//! wait.

use sheaf_stage::{Duration, Instant};
use sheaf_wire::compress::feedback::{Feedback, Item};
use sheaf_wire::meta::Repr;

/// Time between two messages to one host that tell no loss: each flow of a call has sent one more
/// packet then, 28 bytes longer than it would be. When many calls begin at once, a message for each
/// frame would take as many frames as the calls do.
pub const PAUSE: Duration = Duration::from_millis(20);
/// Hosts whose messages are gathered; messages to others leave immediately. 64 hosts, with a
/// message each [`PAUSE`], fill a link of 2 Mbit/s.
const HOSTS: usize = 64;

/// Messages that wait.
#[derive(Debug, Default)]
pub struct Answers {
    hosts: Vec<Host>,
}

/// Items that wait for one host.
#[derive(Debug)]
struct Host {
    reply: Repr,
    feedback: Feedback,
    /// The time from which a message leaves immediately.
    next: Instant,
}

impl Host {
    fn send(&mut self, now: Instant, send: &mut impl FnMut(&Repr, &Feedback)) {
        if !self.feedback.items().is_empty() {
            send(&self.reply, &std::mem::take(&mut self.feedback));
            self.next = now + PAUSE;
        }
    }
}

impl Answers {
    /// Takes what is to be said behind the header `reply`. What leaves now is handed to `send`.
    pub fn add(
        &mut self,
        reply: Repr,
        feedback: &Feedback,
        now: Instant,
        mut send: impl FnMut(&Repr, &Feedback),
    ) {
        if feedback.items().is_empty() {
            return;
        }
        self.hosts.retain(|host| host.next > now || !host.feedback.items().is_empty());
        let host = self.hosts.iter_mut().find(|host| host.reply.outer == reply.outer);
        let Some(host) = host else {
            send(&reply, feedback);
            if self.hosts.len() < HOSTS {
                let feedback = Feedback::default();
                self.hosts.push(Host { reply, feedback, next: now + PAUSE });
            }
            return;
        };
        if !host.feedback.add(feedback) {
            host.send(now, &mut send);
            host.feedback = *feedback;
        }
        host.reply = reply;
        let tells_loss = feedback.items().iter().any(|item| !matches!(item, Item::Known { .. }));
        if tells_loss || host.next <= now {
            host.send(now, &mut send);
        }
    }

    /// Hands what is due to `send`.
    pub fn run(&mut self, now: Instant, mut send: impl FnMut(&Repr, &Feedback)) {
        for host in self.hosts.iter_mut().filter(|host| host.next <= now) {
            host.send(now, &mut send);
        }
    }

    /// Time at which the next message is due.
    pub fn next_deadline(&self) -> Option<Instant> {
        let waiting = self.hosts.iter().filter(|host| !host.feedback.items().is_empty());
        waiting.map(|host| host.next).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_wire::ecn::Ecn;
    use sheaf_wire::meta::Outer;

    const MS: Duration = Duration::from_millis(1);

    fn to(host: u8) -> Repr {
        let outer = Outer::V4 { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, host].into() };
        Repr { outer, dscp: 0, ecn: Ecn::NotEct, hop_limit: 255 }
    }

    fn known(number: u8) -> Item {
        Item::Known { tag: 1, number, generation: 7, check: u32::from(number) }
    }

    /// Adds one item, and returns the messages that leave.
    fn add(answers: &mut Answers, host: u8, item: Item, now: Instant) -> Vec<Vec<Item>> {
        let mut feedback = Feedback::default();
        feedback.push(item);
        let mut sent = Vec::new();
        answers.add(to(host), &feedback, now, |reply, feedback| {
            assert_eq!(reply.outer, to(host).outer);
            sent.push(feedback.items().to_vec());
        });
        sent
    }

    #[test]
    fn thirty_calls_that_begin_together_are_acknowledged_by_three_messages() {
        let (mut answers, mut sent) = (Answers::default(), Vec::new());
        // One definition each 0.7 ms, as thirty calls of 50 packets a second begin.
        let mut now = Instant::ZERO;
        for call in 0..30_u8 {
            now = Instant::ZERO + MS * u32::from(call) * 7 / 10;
            answers.run(now, |_, feedback| sent.push(feedback.items().to_vec()));
            sent.append(&mut add(&mut answers, 2, known(call), now));
        }
        let last = answers.next_deadline().expect("the last ones wait");
        assert_eq!(last, now + PAUSE);
        answers.run(last, |_, feedback| sent.push(feedback.items().to_vec()));
        assert_eq!(answers.next_deadline(), None);
        assert_eq!(sent.iter().map(Vec::len).collect::<Vec<_>>(), [1, 28, 1]);
        assert_eq!(sent.concat(), (0..30).map(known).collect::<Vec<_>>());
    }

    #[test]
    fn what_could_not_be_restored_is_said_at_once_with_all_that_waits() {
        let mut answers = Answers::default();
        assert_eq!(add(&mut answers, 2, known(1), Instant::ZERO).len(), 1);
        let now = Instant::ZERO + MS;
        assert!(add(&mut answers, 2, known(2), now).is_empty());
        for lost in [Item::Unknown { tag: 1, number: 3 }, Item::Lost { tag: 1 }] {
            let sent = add(&mut answers, 2, lost, now).concat();
            assert_eq!(sent.last(), Some(&lost));
        }
        assert_eq!(answers.next_deadline(), None);
    }

    #[test]
    fn of_one_context_the_last_statement_is_said_once() {
        let mut answers = Answers::default();
        add(&mut answers, 2, known(0), Instant::ZERO);
        add(&mut answers, 2, known(1), Instant::ZERO);
        let newer = Item::Known { tag: 1, number: 1, generation: 8, check: 1 };
        add(&mut answers, 2, newer, Instant::ZERO);
        let mut sent = Vec::new();
        answers.run(Instant::ZERO + PAUSE, |_, feedback| sent.extend_from_slice(feedback.items()));
        assert_eq!(sent, [newer]);
    }

    #[test]
    fn a_full_message_leaves_and_more_hosts_than_are_kept_get_theirs_at_once() {
        let mut answers = Answers::default();
        let mut sent = Vec::new();
        for number in 0..=100 {
            sent.append(&mut add(&mut answers, 2, known(number), Instant::ZERO));
        }
        answers.run(Instant::ZERO + PAUSE, |_, feedback| sent.push(feedback.items().to_vec()));
        assert_eq!(sent.concat(), (0..=100).map(known).collect::<Vec<_>>());
        for host in 3..=255 {
            assert_eq!(add(&mut answers, host, known(1), Instant::ZERO + PAUSE).len(), 1);
        }
        assert!(answers.hosts.len() <= HOSTS);
        // Who had nothing to hear for a pause gives its place to another.
        let later = Instant::ZERO + PAUSE * 3;
        assert_eq!(add(&mut answers, 200, known(1), later).len(), 1);
        assert_eq!(answers.hosts.len(), 1);
    }
}
