//! What paths and strangers do to packets: never a panic, never a wrong count, never without end.

mod world;

use proptest::prelude::*;
use sheaf_fuzz::{Fuzzer, RngExt};
use sheaf_stage::{Duration, Instant};
use sheaf_tcp::{Algorithm, Host, Refusal};
use sheaf_wire::checksum;
use world::{Fate, MS, Pipe, RECEIVER, SENDER, Way, World, endless, transfer_of, untouched};

/// A path that harms packets in both directions.
#[derive(Clone, Copy, Debug)]
struct Harm {
    seed: u64,
    /// Percent of packets that are lost, arrive twice, or arrive up to `most` ms later.
    lose: u64,
    twice: u64,
    late: u64,
    most: u64,
    /// Packets that wait at most.
    limit: usize,
}

/// Sends `bytes` over a path, and asserts that they arrive.
fn transfer(bytes: u64, control: Algorithm, harm: Harm) {
    let pipe = Pipe::new(Some(8_000_000), 15 * MS, harm.limit);
    let mut world = World::new(transfer_of(bytes, control), 1, pipe);
    let mut state = harm.seed | 1;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 11
    };
    let Harm { lose, twice, late, most, .. } = harm;
    let mut touch = |_: Way, _: u64, _: &mut Vec<u8>| {
        let fate = random() % 100;
        if fate < lose {
            Fate::Lose
        } else if fate < lose + twice {
            Fate::Twice
        } else if fate < lose + twice + late {
            Fate::Later(Duration::from_millis(random() % most))
        } else {
            Fate::Pass
        }
    };
    let end = Instant::from_millis(3_600_000);
    while world.sent().finished.is_none() && world.now < end {
        world.run(world.now + Duration::from_secs(10), &mut touch);
        assert!(world.got().bytes <= bytes);
    }
    let (sent, got) = (world.sent(), world.got());
    assert_eq!((sent.bytes, got.bytes), (bytes, bytes), "{sent:?}");
    assert!(got.finished.is_some() && sent.finished.is_some());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_transfer_ends_with_every_byte(
        seed in any::<u64>(),
        bbr in any::<bool>(),
        [lose, twice, late] in prop::array::uniform3(0u64..25),
        most in 1u64..300,
        bytes in 1u64..400_000,
        limit in 5usize..60,
    ) {
        let control = if bbr { Algorithm::Bbr } else { Algorithm::Cubic };
        transfer(bytes, control, Harm { seed, lose, twice, late, most, limit });
    }
}

#[test]
fn a_probe_repeats_the_last_segment_that_is_missing_and_none_that_arrived() {
    // The last segment was there when the probe was due: found among random paths.
    let seed = 18_319_384_092_343_912_338;
    let harm = Harm { seed, lose: 22, twice: 6, late: 5, most: 107, limit: 7 };
    transfer(259_193, Algorithm::Bbr, harm);
}

/// Makes both checksums right, where there is room for them.
fn repair_checksums(packet: &mut [u8]) {
    if packet.len() < 40 || packet[0] != 0x45 {
        return;
    }
    let len = (packet.len() as u16).to_be_bytes();
    packet[2..4].copy_from_slice(&len);
    packet[10..12].fill(0);
    let header = checksum::ipv4_header(&packet[..20]);
    packet[10..12].copy_from_slice(&header.to_be_bytes());
    packet[36..38].fill(0);
    let pseudo = 6 + (packet.len() - 20) as u32;
    let sum = checksum::sum(&packet[20..], checksum::sum(&packet[12..20], pseudo));
    packet[36..38].copy_from_slice(&(!checksum::fold(sum)).to_be_bytes());
}

#[test]
fn damaged_and_forged_packets_are_refused_or_used_and_never_break_a_host() {
    for control in [Algorithm::Cubic, Algorithm::Bbr] {
        let mut fuzzer = Fuzzer::over(Vec::new(), 60);
        let mut refused = [0; Refusal::ALL.len()];
        for round in 0..fuzzer.rounds() {
            let pipe = Pipe::new(Some(10_000_000), 10 * MS, 30);
            let mut world = World::new(endless(control), 2, pipe);
            let share = 1 + round % 40;
            world.run(Instant::from_millis(1_500), |_, number, packet| {
                if number > 4 && fuzzer.rng.random_range(0..400u64) < share {
                    match fuzzer.rng.random_range(0..3u8) {
                        0 => fuzzer.damage(packet),
                        1 => {
                            fuzzer.damage(packet);
                            repair_checksums(packet);
                        }
                        _ => {
                            // A byte of the TCP header or its options.
                            let at = fuzzer.rng.random_range(20..72.min(packet.len()));
                            packet[at] ^= 1 << fuzzer.rng.random_range(0..8u8);
                            repair_checksums(packet);
                        }
                    }
                }
                Fate::Pass
            });
            for host in [&world.sender, &world.receiver] {
                for (reason, count) in Refusal::ALL.into_iter().zip(&mut refused) {
                    *count += host.refusals().of(reason);
                }
            }
            for flow in world.sender.flows() {
                assert!(flow.in_flight <= 5 << 20, "{flow:?}");
            }
        }
        for (reason, count) in Refusal::ALL.into_iter().zip(refused) {
            assert!(count > 0, "no packet was refused as {reason:?}: {refused:?}");
        }
    }
}

#[test]
fn packets_of_others_are_refused_with_their_reason_and_without_a_reply() {
    let at = Instant::ZERO;
    let config = transfer_of(1000, Algorithm::Cubic);
    let syn = |flows| {
        let mut host = Host::sender(config, SENDER, RECEIVER, flows, 1);
        std::iter::from_fn(move || host.dequeue(at)).last().unwrap()
    };
    let mut host = Host::receiver(config, RECEIVER, 2, 2);
    assert_eq!(host.enqueue(syn(3), at), Err(Refusal::NoConnection), "the third port");
    assert_eq!(host.enqueue(vec![0x45; 10], at), Err(Refusal::Truncated));
    let mut other = Host::receiver(config, SENDER, 2, 2);
    assert_eq!(other.enqueue(syn(1), at), Err(Refusal::NoConnection), "another address");
    let mut sender = Host::sender(config, RECEIVER, SENDER, 1, 1);
    assert_eq!(sender.enqueue(syn(1), at), Err(Refusal::NoConnection), "another port");
    assert_eq!((host.dequeue(at), other.dequeue(at)), (None, None));
    assert_eq!((host.refusals().total(), host.refusals().of(Refusal::Truncated)), (2, 1));
    assert_eq!(host.enqueue(syn(2), at), Ok(()));
    assert!(host.dequeue(at).is_some());
}

#[test]
fn a_handshake_whose_packets_are_lost_is_repeated() {
    for lost in 1..=3 {
        let mut world = World::perfect(transfer_of(10_000, Algorithm::Cubic), 10 * MS);
        let mut left = [lost, lost];
        world.run(Instant::from_millis(60_000), |way, _, _| {
            let left = &mut left[way as usize];
            if *left > 0 {
                *left -= 1;
                return Fate::Lose;
            }
            Fate::Pass
        });
        assert_eq!(world.got().bytes, 10_000, "{lost}");
    }
    // The first timeouts are a second each.
    let mut world = World::perfect(transfer_of(10_000, Algorithm::Cubic), 10 * MS);
    world.run(Instant::from_millis(3_500), |_, _, _| Fate::Lose);
    assert_eq!(world.packets, [4, 0]);
    world.run(Instant::from_millis(5_000), untouched);
    assert_eq!(world.got().bytes, 10_000);
}
