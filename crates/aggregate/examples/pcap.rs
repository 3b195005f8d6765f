//! Aggregation of a capture: how many frames its packets would need.
//!
//! `cargo run --package sheaf-aggregate --example pcap CAPTURE.pcap`; a capture of IP packets
//! (`tcpdump -i tun0 -w CAPTURE.pcap`).

use pcap_file::{DataLink, pcap::PcapReader};
use sheaf_aggregate::{Aggregator, Config, Hop, Outbound};
use sheaf_stage::{Instant, Stage};
use sheaf_wire::meta::Outer;
use std::error::Error;
use std::io::Read;

fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args().nth(1).ok_or("give a capture, e.g. CAPTURE.pcap")?;
    let (packets, frames) = aggregate(std::fs::File::open(file)?)?;
    println!("{packets} packets in {frames} frames");
    Ok(())
}

/// Number of packets in `capture`, and of the frames that carry them to one next hop.
fn aggregate(capture: impl Read) -> Result<(u32, u32), Box<dyn Error>> {
    let mut capture = PcapReader::new(capture)?;
    if capture.header().datalink != DataLink::RAW {
        return Err("the capture is not of IP packets; capture on a TUN".into());
    }
    let mut aggregator = Aggregator::new(Config::forced())?;
    let outer = Outer::V4 { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into() };
    let hop = aggregator.add_hop(Hop::neighbour(outer));
    let (mut packets, mut frames) = (0, 0);
    while let Some(packet) = capture.next_packet() {
        let packet = packet?;
        let now = Instant::from_nanos(packet.timestamp.as_nanos() as u64);
        // Frames whose time came before this packet.
        while let Some(due) = aggregator.next_deadline().filter(|due| *due < now) {
            frames += std::iter::from_fn(|| aggregator.dequeue(due)).count() as u32;
        }
        let packet = Outbound { hop, mark: 0, packet: packet.data.into_owned() };
        packets += u32::from(aggregator.enqueue(packet, now).is_ok());
        frames += std::iter::from_fn(|| aggregator.dequeue(now)).count() as u32;
    }
    while let Some(due) = aggregator.next_deadline() {
        frames += std::iter::from_fn(|| aggregator.dequeue(due)).count() as u32;
    }
    Ok((packets, frames))
}

#[test]
fn packets_that_follow_each_other_share_frames() {
    use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
    let header = PcapHeader { datalink: DataLink::RAW, ..PcapHeader::default() };
    let mut writer = PcapWriter::with_header(Vec::new(), header).unwrap();
    let packet = sheaf_wire::ip::example_udp(&[0; 32]);
    for micros in [0, 10, 20, 900_000] {
        let at = std::time::Duration::from_micros(micros);
        writer.write_packet(&PcapPacket::new(at, packet.len() as u32, &packet)).unwrap();
    }
    assert_eq!(aggregate(&writer.into_writer()[..]).unwrap(), (4, 2));
}
