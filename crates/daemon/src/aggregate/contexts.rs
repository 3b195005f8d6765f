//! What a splitter in the kernel and who sends to it say to each other of contexts.
//!
//! The program only finds out what is to be said; here it is sent, and what was heard is handed on.

use super::station::Station;
use anyhow::Context;
use sheaf_aggregate::Answers;
use sheaf_bpf::{Direction, Message, Messages, Split};
use sheaf_netio::poller::Poller;
use sheaf_netio::raw::{RawSocket, SEND_ONLY};
use sheaf_stage::{Duration, Instant};
use sheaf_wire::compress::feedback::Feedback;
use sheaf_wire::ecn::Ecn;
use sheaf_wire::meta::{HOP_LIMIT_NEIGHBOUR, Outer, Repr};
use std::net::IpAddr;

/// Time between two looks for what has been silent for long.
const SWEEP: Duration = Duration::from_secs(1);
/// Class of messages: that of frames without one.
const CLASS: u8 = 0;

/// The messages of one splitter.
pub struct Contexts {
    messages: Messages,
    /// IPv4, IPv6; where the kernel has the family.
    raw: [Option<RawSocket>; 2],
    station: Station,
    waited: Option<usize>,
    swept: Instant,
    answers: Answers,
}

impl Contexts {
    /// Those of `split` on interface `dev`.
    pub fn open(dev: &str, split: &Split, now: Instant) -> anyhow::Result<Contexts> {
        let messages = split.messages().context("cannot hear the splitter")?;
        let raw = [false, true].map(|v6| RawSocket::open(dev, v6, SEND_ONLY).ok());
        let (station, answers) = (Station::new(dev), Answers::default());
        Ok(Contexts { messages, raw, station, waited: None, swept: now, answers })
    }

    /// Adds what is to be waited for.
    pub fn wait_for(&mut self, poller: &mut Poller) {
        self.waited = Some(poller.add(&self.messages));
    }

    /// Sends what the splitter has to say, and hands each message that it heard to `heard`, with
    /// who sent it. Returns when it wants to be called again.
    pub fn run(
        &mut self,
        split: &mut Split,
        now: Instant,
        poller: &Poller,
        mut heard: impl FnMut(IpAddr, &Feedback) -> anyhow::Result<()>,
    ) -> anyhow::Result<Option<Instant>> {
        if now.saturating_since(self.swept) >= SWEEP {
            self.swept = now;
            split.sweep(now)?;
        }
        let Contexts { messages, raw, station, answers, .. } = self;
        let mut say = |to: &Repr, what: &Feedback| say(raw, station, to, what);
        if self.waited.is_some_and(|number| poller.readable(number)) {
            for Message { direction, peer, own, feedback } in messages.by_ref() {
                match direction {
                    Direction::Heard => heard(peer, &feedback)?,
                    Direction::ToSay => {
                        let Some(outer) = Outer::new(own, peer) else { continue };
                        // To a far end, too: routers may take what they want from it.
                        let hop_limit = HOP_LIMIT_NEIGHBOUR;
                        let repr = Repr { outer, dscp: CLASS, ecn: Ecn::NotEct, hop_limit };
                        answers.add(repr, &feedback, now, &mut say);
                    }
                }
            }
        }
        answers.run(now, say);
        Ok(answers.next_deadline())
    }
}

/// Sends a message. One that cannot be sent is made again by the next frame that needs it.
fn say(raw: &[Option<RawSocket>; 2], station: &mut Station, repr: &Repr, feedback: &Feedback) {
    let packet = feedback.packet(repr);
    if let Outer::Link { src, dst } = repr.outer {
        let _ = station.send(src, dst, &packet);
        return;
    }
    let to = repr.outer.destination();
    if let Some(raw) = &raw[usize::from(to.is_ipv6())] {
        let _ = raw.send(&packet, to);
    }
}
