//! An emulated link in memory: two seconds of packets, computed at once.
//!
//! `cargo run --package sheaf-emulator --example memory`

use sheaf_emulator::{Delay, Link, LinkConfig, Packet};
use sheaf_stage::{Bitrate, Duration, Instant, Stage};

/// Bytes of a packet.
const LEN: usize = 1000;
/// Time between two packets: 2 Mbit/s, twice the rate of the link.
const INTERVAL: Duration = Duration::from_millis(4);
/// Number of packets.
const PACKETS: u32 = 500;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config = LinkConfig {
        rate: Some(Bitrate::from_mbps(1)),
        delay: Delay::constant(Duration::from_millis(50)),
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, 1)?;
    let (mut sent, mut dropped, mut delays) = (0, 0, Vec::new());
    loop {
        // Time jumps to the next event: a packet that is sent, or one that arrives.
        let sending = (sent < PACKETS).then(|| Instant::ZERO + INTERVAL * sent);
        let Some(now) = sending.into_iter().chain(link.next_deadline()).min() else { break };
        if sending == Some(now) {
            let packet = Packet::new(vec![0; LEN], now, sent.into());
            dropped += u32::from(link.enqueue(packet, now).is_err());
            sent += 1;
        }
        while let Some(packet) = link.dequeue(now) {
            delays.push(packet.depart - packet.arrived);
            link.recycle(packet.bytes);
        }
    }
    let most = delays.iter().max().ok_or("every packet was dropped")?;
    println!("{sent} sent, {} arrived, {dropped} dropped, latest {most:?}", delays.len());
    // The rate takes 8 ms a packet, so the queue grows by 4 ms with each.
    assert!(dropped == 0 && *most > Duration::from_secs(2));
    Ok(())
}

#[test]
fn the_example_runs() {
    main().unwrap();
}
