//! Cost of the splitting program for frames of compressed voice packets, by the kernel's own
//! statistics, beside meta packets of the same packets. Needs root.

#[path = "../tests/pair/mod.rs"]
mod pair;

use aya::programs::loaded_programs;
use aya::sys::{Stats, enable_stats};
use pair::wire::{V4, Wire, framed};
use sheaf_aggregate::{
    Aggregator, Config, Device, Format, Hop, Outbound, Senders, Split, Splitter, Threshold,
};
use sheaf_stage::{Instant, Stage};

const SECRET: u64 = 11;
/// Frames of each kind, after as many as let all contexts be known and the kernel's allocators have
/// what they need: the first 4,500 cost a quarter more, whatever is in them.
const FRAMES: u16 = 4000;
const WARM: u16 = 8000;
const BUSY: Device = Device::Reports { waiting: 2, limit: 50 };
const READY: Device = Device::Reports { waiting: 0, limit: 50 };

fn main() {
    for flows in [24, 8] {
        for (format, name) in [
            (Format::Meta, "meta packets"),
            (Format::Frames, "frames"),
            (Format::Compressed, "compressed"),
        ] {
            let (cost, packets) = measure(format, flows);
            println!("{name:12} of {flows:2}: {cost:5.0} ns a packet ({packets} packets)");
        }
    }
}

/// An RTP packet of G.729A.
fn voice(flow: u16, sequence: u16) -> Vec<u8> {
    let mut datagram = vec![0x80, 18];
    datagram.extend(sequence.to_be_bytes());
    datagram.extend((u32::from(sequence) * 160).to_be_bytes());
    datagram.extend([9, 9, 9, flow as u8]);
    datagram.extend((0..20).map(|byte| (byte * 7 + sequence) as u8));
    let mut packet = Vec::new();
    etherparse::PacketBuilder::ipv4([10, 66, 0, 1], [10, 77, 0, 2], 64)
        .udp(4000 + flow, 5004)
        .write(&mut packet, &datagram)
        .expect("a vector takes it");
    packet
}

/// Frames of one packet of each flow.
fn frames(format: Format, flows: u16) -> Vec<Vec<u8>> {
    let min = Threshold::Percent(0);
    let config = Config { min, max: 2000, queue_frames: 64, ..Config::default() };
    let mut aggregator = Aggregator::new(config).expect("a right configuration");
    let hop = aggregator.add_hop(Hop { format, ..Hop::neighbour(V4) });
    let mut splitter = Splitter::accepting_any().with_frames(SECRET);
    let (mut now, mut frames) = (Instant::ZERO, Vec::new());
    for sequence in 0..FRAMES + WARM {
        aggregator.set_device(BUSY, now);
        for flow in 0..flows {
            let packet = voice(flow, sequence);
            aggregator.enqueue(Outbound { hop, mark: 0, packet }, now).expect("there is room");
        }
        aggregator.set_device(READY, now);
        now += Config::default().hold;
        while let Some(mut frame) = aggregator.dequeue(now) {
            frames.push(framed(&frame.bytes));
            if let Ok(Split::Delivered(feedback)) = splitter.split(&mut frame.bytes, |_| {}) {
                aggregator.said(hop, &feedback, now);
            }
        }
    }
    frames
}

/// Nanoseconds a packet, and how many there were.
fn measure(format: Format, flows: u16) -> (f64, u64) {
    let wire = Wire::new();
    let split = wire.on_b(|ifindex| {
        sheaf_bpf::Split::load(&Senders::any(), Some(SECRET))?.replace("eth0", ifindex)
    });
    let frames = frames(format, flows);
    let (warm, measured) = frames.split_at(WARM.into());
    warm.iter().for_each(|frame| wire.from.send(frame).expect("the cable takes it"));
    let packets = || split.counters().expect("the map is there")["packets"];
    let _statistics = enable_stats(Stats::RunTime).expect("the kernel keeps run statistics");
    let before = (run_time(), packets());
    measured.iter().for_each(|frame| wire.from.send(frame).expect("the cable takes it"));
    let packets = packets() - before.1;
    ((run_time() - before.0) / packets as f64, packets)
}

/// Nanoseconds that the program has run.
fn run_time() -> f64 {
    let ours = loaded_programs().flatten().filter(|info| info.name_as_str() == Some("sheaf_split"));
    ours.map(|info| info.run_time().as_nanos() as f64).sum()
}
