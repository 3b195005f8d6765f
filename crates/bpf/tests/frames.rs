//! Format 2 at the splitting program: it delivers, says and counts what its model does. Needs root.

mod pair;

use pair::wire::{A6, V4, V6, Wire};
use pair::{A, B};
use proptest::prelude::*;
use sheaf_aggregate::{
    Aggregator, Config, Device, Format, Hop, HopId, Outbound, Refused, Senders, Splitter, Threshold,
};
use sheaf_bpf::{Direction, Message, Messages, Split};
use sheaf_stage::{Instant, Stage};
use sheaf_wire::aggfrag;
use sheaf_wire::checksum;
use sheaf_wire::compress::feedback::Feedback;
use sheaf_wire::ecn::Ecn;
use sheaf_wire::meta::{HOP_LIMIT_FAR, HOP_LIMIT_NEIGHBOUR, Outer, Refusal, Repr};
use std::collections::BTreeMap;
use std::net::IpAddr;

const SECRET: u64 = 0x005e_c2e7;

/// The program on B and its model.
struct Twins<'a> {
    wire: &'a Wire,
    split: Split,
    messages: Messages,
    model: Splitter,
    before: BTreeMap<&'static str, u64>,
}

impl Twins<'_> {
    /// A program that has not seen anything yet, in place of the one before.
    fn new(wire: &Wire, senders: Senders) -> Twins<'_> {
        let split = wire
            .on_b(|ifindex| Split::load(&senders, Some(SECRET))?.replace("eth0", ifindex));
        let messages = split.messages().unwrap();
        let before = split.counters().unwrap();
        let model = Splitter::new(senders).with_frames(SECRET);
        Twins { wire, split, messages, model, before }
    }

    /// Passes a packet to both and returns what the model says, once they agree.
    fn pass(&mut self, packet: &[u8]) -> Result<Feedback, TestCaseError> {
        let mut expected = Vec::new();
        let result =
            self.model.split(&mut packet.to_vec(), |packet| expected.push(packet.to_vec()));
        let heard = self.wire.split(packet);
        prop_assert_eq!(hex(&heard), hex(&expected));
        let said: Vec<_> = self.messages.by_ref().collect();
        let (peer, own) = addresses(packet);
        let message = |direction, feedback| Message { direction, peer, own, feedback };
        let mut to_say = Feedback::default();
        let expected = match result {
            Ok(sheaf_aggregate::Split::Heard(feedback)) => {
                vec![message(Direction::Heard, feedback)]
            }
            Ok(sheaf_aggregate::Split::Delivered(feedback)) if !feedback.items().is_empty() => {
                to_say = feedback;
                vec![message(Direction::ToSay, feedback)]
            }
            _ => Vec::new(),
        };
        let items = |messages: &[Message]| -> Vec<_> {
            messages.iter().map(|one| (one.direction, one.feedback.items().to_vec())).collect()
        };
        prop_assert_eq!(items(&said), items(&expected));
        prop_assert_eq!(said, expected);
        prop_assert_eq!(self.counted(), counted(&self.model));
        Ok(to_say)
    }

    /// What the program counted, but for zeros.
    fn counted(&self) -> BTreeMap<String, u64> {
        let change = |(name, count): (&'static str, u64)| (name.to_owned(), count - self.before[name]);
        let counters = self.split.counters().unwrap().into_iter().map(change);
        counters.filter(|(_, count)| *count > 0).collect()
    }
}

fn hex(packets: &[Vec<u8>]) -> Vec<String> {
    let hex = |packet: &Vec<u8>| packet.iter().map(|byte| format!("{byte:02x}")).collect();
    packets.iter().map(hex).collect()
}

fn addresses(packet: &[u8]) -> (IpAddr, IpAddr) {
    let (repr, _) = Repr::with_payload(packet).expect("a right outer header");
    (repr.outer.source(), repr.outer.destination())
}

/// What the model counted, under the names of the program, but for zeros.
fn counted(model: &Splitter) -> BTreeMap<String, u64> {
    let refused = Refusal::ALL.map(|one| (one.name().to_owned(), model.refused(one)));
    let frames = aggfrag::Refusal::ALL
        .map(|one| (format!("frame-{}", one.name()), model.refused_frames(one)));
    let received = model.received().unwrap();
    let others = [
        ("meta-packets", model.meta_packets()),
        ("packets", model.packets()),
        ("ecn-not-capable", model.not_capable()),
        ("only-neighbours-say", model.only_neighbours_say()),
        ("frames", received.frames),
        ("missing", received.missing),
        ("late", received.late),
        ("unjoined", received.unjoined),
        ("unrestored", received.unrestored),
    ];
    let others = others.map(|(name, count)| (name.to_owned(), count));
    refused.into_iter().chain(frames).chain(others).filter(|(_, count)| *count > 0).collect()
}

/// The packet that carries `payload`.
fn carried(outer: Outer, hop_limit: u8, ecn: Ecn, payload: &[u8]) -> Vec<u8> {
    let repr = Repr { outer, dscp: 0, ecn, hop_limit };
    let mut packet = vec![0; repr.header_len()];
    packet.extend_from_slice(payload);
    repr.emit(packet.len(), &mut packet);
    packet
}

fn neighbours(payload: &[u8]) -> Vec<u8> {
    carried(V4, HOP_LIMIT_NEIGHBOUR, Ecn::NotEct, payload)
}

#[test]
fn the_program_needs_less_than_half_of_what_the_verifier_allows() {
    let wire = Wire::new();
    let _split = Twins::new(&wire, Senders::any());
    let ours = aya::programs::loaded_programs().flatten();
    let ours = ours.filter(|info| info.name_as_str() == Some("sheaf_split"));
    let counts: Vec<_> = ours.filter_map(|info| info.verified_instruction_count()).collect();
    println!("verified instructions: {counts:?}");
}

#[test]
fn the_kept_conversation_comes_out_as_the_packets_of_its_calls() {
    let wire = Wire::new();
    let mut twins = Twins::new(&wire, Senders::any());
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../aggregate/tests/corpus");
    let mut names: Vec<_> = std::fs::read_dir(format!("{corpus}/frames")).unwrap().collect();
    names.sort_by_key(|name| name.as_ref().unwrap().file_name());
    for name in names {
        let payload = std::fs::read(name.unwrap().path()).unwrap();
        twins.pass(&neighbours(&payload)).unwrap();
    }
    assert_eq!(twins.counted()["packets"], 144);
    for name in std::fs::read_dir(format!("{corpus}/feedback")).unwrap() {
        twins.pass(&neighbours(&std::fs::read(name.unwrap().path()).unwrap())).unwrap();
    }
}
