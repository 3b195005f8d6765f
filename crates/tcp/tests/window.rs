//! The receiver's window: closed, lowered in transit, small from the start.

mod world;

use sheaf_stage::{Duration, Instant};
use sheaf_tcp::{Algorithm, Config};
use sheaf_wire::checksum;
use world::{Fate, MS, Way, World, data, endless, transfer_of, untouched};

/// Writes `window` to the window field of a segment, as window control does in transit.
fn set_window(packet: &mut [u8], window: u16) {
    let before = u16::from_be_bytes([packet[34], packet[35]]);
    packet[34..36].copy_from_slice(&window.to_be_bytes());
    checksum::adjust(&mut packet[36..38], before, window);
}

/// Lowers the window of all segments but SYNs to `bytes`.
fn lowered(bytes: u32) -> impl FnMut(Way, u64, &mut Vec<u8>) -> Fate {
    move |way, _, packet| {
        if way == Way::Back && packet[33] & 2 == 0 {
            set_window(packet, (bytes >> 7) as u16);
        }
        Fate::Pass
    }
}

#[test]
fn a_window_lowered_in_transit_bounds_what_is_under_way() {
    for control in [Algorithm::Cubic, Algorithm::Bbr] {
        let mut world = World::perfect(endless(control), 20 * MS);
        world.run(Instant::from_millis(2_000), lowered(65_536));
        let before = world.got().bytes;
        world.run(Instant::from_millis(12_000), lowered(65_536));
        assert!(world.sent().in_flight <= 65_536);
        // 45 full segments fit, in 40 ms.
        let rate = (world.got().bytes - before) as f64 * 8.0 / 10.0;
        let expected = 45.0 * 1448.0 * 8.0 / 0.04;
        // BBR paces at 99 %, and probes the round trip once.
        assert!((0.94..=1.01).contains(&(rate / expected)), "{control:?}: {rate} of {expected}");
        assert_eq!((world.sent().repeats, world.sent().timeouts), (0, 0), "{control:?}");
    }
}

#[test]
fn a_window_that_shrinks_below_what_is_under_way_stops_the_sender_until_it_fits() {
    for control in [Algorithm::Cubic, Algorithm::Bbr] {
        let mut world = World::perfect(endless(control), 20 * MS);
        world.run(Instant::from_millis(300), untouched);
        let large = world.sent().in_flight;
        assert!(large > 200_000, "{control:?} {large}");
        world.run(Instant::from_millis(1_000), lowered(20_000));
        assert!(world.sent().in_flight <= 20_000, "{control:?}");
        let before = world.got().bytes;
        world.run(Instant::from_millis(2_000), lowered(20_000));
        assert!(world.got().bytes > before + 200_000, "{control:?} {:?}", world.sent());
        world.run(Instant::from_millis(4_000), untouched);
        assert!(world.sent().in_flight > 20_000, "{control:?}: it grows again");
        assert_eq!(world.sent().timeouts, 0, "{control:?}");
    }
}

#[test]
fn a_closed_window_is_probed_ever_more_rarely_and_opens_again() {
    for control in [Algorithm::Cubic, Algorithm::Bbr] {
        let mut world = World::perfect(transfer_of(5_000_000, control), 20 * MS);
        world.run(Instant::from_millis(100), untouched);
        world.run(Instant::from_millis(10_000), lowered(0));
        let (closed, packets) = (world.sent(), world.packets[0]);
        let bytes = world.got().bytes;
        assert_eq!(closed.in_flight, 0, "{control:?} {closed:?}");
        assert!((3..=8).contains(&closed.probes), "{control:?} {closed:?}");
        world.run(Instant::from_millis(20_000), lowered(0));
        assert!(world.packets[0] <= packets + 2, "the next probes are far apart");
        assert_eq!(world.got().bytes, bytes, "probes carry no data");
        world.run(Instant::from_millis(60_000), untouched);
        assert_eq!(world.got().bytes, 5_000_000, "{control:?}");
    }
}

#[test]
fn a_window_below_a_segment_carries_what_it_has_room_for() {
    let mut world = World::perfect(endless(Algorithm::Cubic), 20 * MS);
    let mut largest = 0;
    let mut narrow = lowered(1_024);
    world.run(Instant::from_millis(200), &mut narrow);
    world.run(Instant::from_millis(20_000), |way, number, packet| {
        if way == Way::Out {
            largest = largest.max(data(packet).0);
        }
        narrow(way, number, packet)
    });
    assert!((1..=1_024).contains(&largest), "{largest}");
    assert!(world.got().bytes > 20_000, "{:?}", world.got());
}

#[test]
fn a_receiver_with_a_small_buffer_gets_everything() {
    for receive_window in [2048, 5000, 65_535, 65_536] {
        let config = Config { receive_window, ..transfer_of(300_000, Algorithm::Cubic) };
        let mut world = World::perfect(config, 5 * MS);
        let mut most = 0;
        while world.got().finished.is_none() && world.now < Instant::from_millis(60_000) {
            world.run(world.now + Duration::from_millis(1), untouched);
            most = most.max(world.sent().in_flight);
        }
        assert_eq!(world.got().bytes, 300_000, "{receive_window}");
        assert!(most <= u64::from(receive_window), "{most} of {receive_window}");
    }
}

#[test]
fn the_send_buffer_bounds_what_is_under_way() {
    let config = Config { send_buffer: 100_000, ..Config::default() };
    let mut world = World::perfect(config, 50 * MS);
    world.run(Instant::from_millis(3_000), untouched);
    let in_flight = world.sent().in_flight;
    assert!((98_000..=101_500).contains(&in_flight), "{in_flight}");
}
