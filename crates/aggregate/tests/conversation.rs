//! A fixed conversation in format 2, byte for byte as it is kept.
//!
//! Six calls with silences, silence descriptors, a flow without UDP checksums and one over IPv6,
//! through frames of 400 bytes. The payloads behind the outer headers are the corpus that the fuzz
//! tests damage and the dissector is shown. `SHEAF_BLESS=1` writes them anew after a change of the
//! format.

mod calls;

use calls::{CALLS, ROUNDS, SECRET, config, rtp};
use sheaf_aggregate::{Aggregator, Device, Format, Hop, Outbound, Split, Splitter};
use sheaf_stage::{Instant, Stage};
use sheaf_wire::compress::feedback::{Feedback, Item};
use sheaf_wire::meta::{Outer, Repr};
use std::collections::BTreeMap;
use std::path::Path;

/// The messages of the conversation, by the names of the files.
fn conversation() -> BTreeMap<String, Vec<u8>> {
    let mut said = BTreeMap::new();
    let outer = Outer::V4 { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into() };
    let config = config();
    let hold = config.hold;
    let mut aggregator = Aggregator::new(config).unwrap();
    let hop = aggregator.add_hop(Hop { format: Format::Compressed, ..Hop::neighbour(outer) });
    let mut splitter = Splitter::accepting_any().with_frames(SECRET);
    let (mut now, mut delivered) = (Instant::ZERO, Vec::new());
    for sequence in 0..ROUNDS {
        aggregator.set_device(Device::Reports { waiting: 2, limit: 50 }, now);
        for call in 0..CALLS {
            let packet = rtp(call, sequence);
            if sequence == 3 {
                said.insert(format!("packets/call-{call}"), packet.clone());
            }
            aggregator.enqueue(Outbound { hop, mark: 0, packet }, now).unwrap();
        }
        now += hold;
        while let Some(mut frame) = aggregator.dequeue(now) {
            let payload = Repr::with_payload(&frame.bytes).unwrap().1.to_vec();
            let number = said.keys().filter(|name| name.starts_with("frames/")).count();
            said.insert(format!("frames/{number:02}"), payload);
            let split =
                splitter.split(&mut frame.bytes, |inner| delivered.push(inner.bytes.to_vec()));
            let Split::Delivered(feedback) = split.unwrap() else { panic!("a frame") };
            if !feedback.items().is_empty() {
                said.insert(format!("feedback/after-{number:02}"), message(&feedback));
            }
            aggregator.said(hop, &feedback, now);
        }
    }
    let sent = (0..ROUNDS).flat_map(|sequence| (0..CALLS).map(move |call| rtp(call, sequence)));
    assert_eq!(delivered, sent.collect::<Vec<_>>());
    let mut unknown = Feedback::default();
    (0..2).for_each(|number| unknown.push(Item::Unknown { tag: 0, number }));
    unknown.push(Item::Lost { tag: 0 });
    said.insert("feedback/unknown-and-lost".into(), message(&unknown));
    said
}

fn message(feedback: &Feedback) -> Vec<u8> {
    let mut bytes = Vec::new();
    feedback.emit(&mut bytes);
    bytes
}

#[test]
fn the_same_packets_give_the_bytes_that_are_kept() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let bless = std::env::var_os("SHEAF_BLESS").is_some();
    for (name, bytes) in conversation() {
        let file = corpus.join(name);
        if bless {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, &bytes).unwrap();
        }
        let kept = std::fs::read(&file).unwrap_or_else(|error| panic!("{file:?}: {error}"));
        assert_eq!(bytes, kept, "{file:?}: SHEAF_BLESS=1 writes it");
    }
}
