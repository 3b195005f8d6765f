use super::*;
use crate::emulate::medium::settings::{Corner, Interface};
use sheaf_medium::{Phy, air_time};
use sheaf_stage::{Bitrate, DropReason};

const MBPS: fn(u64) -> Bitrate = Bitrate::from_mbps;
const DSSS: Phy = Phy::Dsss { short_preamble: false };

fn station(index: u8, metres: f64) -> Station {
    Station {
        name: format!("s{index}"),
        host: Host::Interface(Interface {
            name: format!("radio{index}"),
            namespace: None,
            mac: [2, 0, 0, 0, 0, index],
            addresses: Vec::new(),
            txqueuelen: 1000,
            mtu: 1500,
        }),
        path: vec![Corner { at: 0.0, position: (metres, 0.0) }],
        power: 15.0,
        rate: Rate::Fixed(MBPS(11)),
        queue: 50,
        channel: 1,
    }
}

/// Stations at `metres` along a line. 50 m are -84.7 dBm, 10.3 dB above the noise; 100 m are
/// -95.2 dBm, below what radios hear.
fn row(metres: &[f64]) -> Settings {
    Settings {
        name: "row".to_owned(),
        seed: 1,
        channel: Channel::of_tests(),
        stations: (0..).zip(metres).map(|(index, metres)| station(index, *metres)).collect(),
    }
}

/// The channel from a time on that a machine could have.
fn air(settings: &Settings) -> (Air, Instant) {
    let start = Instant::from_millis(86_400_000);
    (Air::new(settings, start).unwrap(), start)
}

/// An Ethernet frame around a packet of `bytes`.
fn frame(to: [u8; 6], bytes: usize) -> Vec<u8> {
    let mut frame = vec![0; HEADER_LEN + bytes];
    frame[..6].copy_from_slice(&to);
    frame
}

const fn mac(index: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, index]
}

/// Lets the channel work until `end`; each frame as who received it, and why it was lost.
fn until(air: &mut Air, end: Instant) -> Vec<(Vec<u32>, Option<DropReason>)> {
    let mut fates = Vec::new();
    while let Some(done) = air.next(end) {
        let receivers = done.receivers.iter().map(|radio| radio.0).collect();
        fates.push((receivers, done.result.err()));
        air.recycle(done);
    }
    fates
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn neighbours_hear_each_other_and_the_ends_of_a_row_do_not() {
    let (mut air, start) = air(&row(&[0.0, 50.0, 100.0]));
    let mut now = start;
    let mut fate = |from: u8, to: u8| {
        now += SECOND;
        air.send(usize::from(from), &frame(mac(to), 98), now);
        until(&mut air, now + SECOND / 2)
    };
    assert_eq!(fate(0, 1), [(vec![1], None)]);
    assert_eq!(fate(1, 2), [(vec![2], None)]);
    assert_eq!(fate(0, 2), [(vec![], Some(DropReason::RetryLimit))]);
    let now = start + 60 * SECOND;
    for (from, heard) in [(0, vec![1]), (1, vec![0, 2]), (2, vec![1])] {
        air.send(from, &frame([0xff; 6], 98), now + SECOND * from as u32);
        assert_eq!(until(&mut air, now + SECOND * (from as u32 + 1)), [(heard, None)]);
    }
    let status = air.status(now + 10 * SECOND);
    let (name, left) = &status[0];
    assert_eq!((name.as_str(), left.attempts, left.retries), ("s0", 9, 6));
    assert_eq!((left.offered_frames, left.delivered_frames, left.lost_frames), (3, 2, 1));
    assert_eq!((left.received_frames, left.unknown_frames), (1, 0));
    assert_eq!(left.heard.keys().collect::<Vec<_>>(), ["s1"]);
    assert!((left.heard["s1"].signal_dbm + 84.66).abs() < 0.01, "{:?}", left.heard);
    assert_eq!(status[1].1.heard.keys().collect::<Vec<_>>(), ["s0", "s2"]);
}

#[test]
fn a_frame_to_an_address_of_nobody_is_sent_up_to_the_limit_and_never_acknowledged() {
    let (mut air, start) = air(&row(&[0.0, 50.0]));
    air.send(0, &frame(mac(9), 98), start);
    // Its own address is nobody's, either.
    air.send(1, &frame(mac(1), 98), start + SECOND);
    let lost = (vec![], Some(DropReason::RetryLimit));
    assert_eq!(until(&mut air, start + 2 * SECOND), [lost.clone(), lost]);
    let status = air.status(start + 2 * SECOND);
    assert_eq!((status[0].1.unknown_frames, status[0].1.attempts), (1, 7));
}

#[test]
fn a_flood_over_one_hop_of_11_mbit_takes_the_time_of_its_exchanges() {
    let (mut air, start) = air(&row(&[0.0, 50.0]));
    let mut now = start;
    let mut sent = 0;
    while sent < 5000 {
        while sent < 5000 && air.has_room(0) {
            air.send(0, &frame(mac(1), 1500), now);
            sent += 1;
        }
        now = air.next_deadline();
        until(&mut air, now);
    }
    until(&mut air, now + SECOND);
    let station = &air.status(now + SECOND)[0].1;
    let lone = Config::new(DSSS, 2, MBPS(11));
    let exchange = air_time::exchange(&lone, MBPS(11), 1500).as_secs_f64() * 1e3;
    // Bit errors at this distance cost one frame in a hundred, an attempt more.
    let loss = station.heard["s1"].loss;
    let expected = exchange * f64::from(sent) / (1.0 - loss);
    let error = station.backlog_ms / expected - 1.0;
    assert!(error.abs() < 0.01, "{} ms, expected {expected}", station.backlog_ms);
    assert_eq!((station.delivered_frames, station.queued_frames), (5000, 0));
}

#[test]
fn a_device_queue_has_room_again_only_when_a_frame_has_left() {
    let mut settings = row(&[0.0, 50.0]);
    settings.stations[0].queue = 2;
    let (mut air, start) = air(&settings);
    air.send(0, &frame(mac(1), 1500), start);
    assert!(air.has_room(0));
    air.send(0, &frame(mac(1), 1500), start);
    assert!(!air.has_room(0) && air.has_room(1));
    // The first takes less than 2.3 ms, whatever the back-off; both take more than 2.6.
    assert_eq!(until(&mut air, start + Duration::from_micros(2_300)).len(), 1);
    assert!(air.has_room(0));
}

#[test]
fn the_fastest_rate_that_the_signal_allows_is_taken_for_each_neighbour() {
    let mut settings = row(&[0.0, 40.0, 66.0, 80.0]);
    settings.channel.sense = -99.0;
    settings.stations[0].rate = Rate::Auto;
    let (air, start) = air(&settings);
    let heard = &air.status(start)[0].1.heard;
    let rates: Vec<_> = heard.values().map(|heard| heard.rate_bps).collect();
    assert_eq!(rates, [11_000_000, 5_500_000, 2_000_000]);
    assert!(heard.values().all(|heard| heard.loss <= 0.1), "{heard:?}");
    let others = &air.status(start)[3].1.heard;
    assert_eq!(others["s0"].rate_bps, 11_000_000);
    assert!(others["s0"].loss > 0.99, "11 Mbit/s do not carry 80 m: {others:?}");
}

#[test]
fn a_station_that_walks_away_is_heard_until_it_is_out_of_range_however_late_the_caller_is() {
    let mut settings = row(&[0.0, 0.0]);
    let corner = |at, metres| Corner { at, position: (metres, 0.0) };
    // 71.02 m are -90 dBm, the weakest signal that is heard: that is after 8.1 s.
    settings.stations[1].path = vec![corner(1.0, 0.0), corner(11.0, 100.0)];
    let heard = |step: Duration| {
        let (mut air, start) = air(&settings);
        let (mut now, mut number, mut fates) = (start, 0, Vec::new());
        while number < 120 {
            now += step;
            while start + Duration::from_millis(100) * number < now {
                air.send(0, &frame([0xff; 6], 98), start + Duration::from_millis(100) * number);
                number += 1;
            }
            fates.extend(until(&mut air, now));
        }
        assert_eq!(air.next_deadline(), Instant::MAX, "it stands, and so does the channel");
        assert_eq!(air.status(now)[1].1.position, [100.0, 0.0]);
        fates.iter().filter(|(receivers, _)| !receivers.is_empty()).count()
    };
    assert_eq!(heard(Duration::from_millis(100)), 82);
    assert_eq!(heard(Duration::from_millis(700)), 82);
}

#[test]
fn stations_on_other_channels_do_not_hear_each_other() {
    let mut settings = row(&[0.0, 10.0]);
    settings.stations[1].channel = 6;
    let (mut air, start) = air(&settings);
    air.send(0, &frame([0xff; 6], 98), start);
    air.send(0, &frame(mac(1), 98), start);
    let fates = until(&mut air, start + SECOND);
    let reasons: Vec<_> = fates.iter().map(|(_, reason)| *reason).collect();
    assert_eq!(reasons, [Some(DropReason::Unreachable), Some(DropReason::RetryLimit)]);
}

#[test]
fn aggregates_of_ht_share_transmissions() {
    let mut settings = row(&[0.0, 10.0]);
    settings.channel.phy = Phy::Ht { short_guard: false };
    settings.channel.ampdu = true;
    settings.stations.iter_mut().for_each(|station| station.rate = Rate::Auto);
    let (mut air, start) = air(&settings);
    (0..50).for_each(|_| air.send(0, &frame(mac(1), 1500), start));
    assert_eq!(until(&mut air, start + SECOND).len(), 50);
    let station = &air.status(start + SECOND)[0].1;
    assert_eq!(station.heard["s1"].rate_bps, 65_000_000);
    assert!(station.transmissions <= 4, "{station:?}");
}

#[test]
fn attempts_announcements_losses_and_capture_are_those_of_the_settings() {
    let air_time = |change: fn(&mut Channel)| {
        let mut settings = row(&[0.0, 10.0]);
        change(&mut settings.channel);
        let (mut air, start) = air(&settings);
        air.send(0, &frame(mac(1), 1500), start);
        until(&mut air, start + SECOND);
        let station = air.status(start + SECOND).remove(0).1;
        (station.attempts, (station.air_time_ms * 1e3).round())
    };
    let data = 192.0 + 1118.0;
    assert_eq!(air_time(|_| {}), (1, data));
    // A request to send of 20 bytes at 2 Mbit/s.
    assert_eq!(air_time(|channel| channel.rts = Some(1000)), (1, data + 192.0 + 80.0));
    assert_eq!(air_time(|channel| channel.loss = 1.0), (7, 7.0 * data));
    let two = |channel: &mut Channel| (channel.loss, channel.attempts) = (1.0, 2);
    assert_eq!(air_time(two), (2, 2.0 * data));
    // The outer ones do not hear each other; at the middle one the nearer is 16.7 dB louder.
    let received = |capture| {
        let mut settings = row(&[0.0, 60.0, 80.0]);
        settings.channel.capture = capture;
        let (mut air, start) = air(&settings);
        air.send(0, &frame([0xff; 6], 1500), start);
        air.send(2, &frame([0xff; 6], 98), start + Duration::from_millis(2));
        let fates = until(&mut air, start + SECOND);
        fates.iter().filter(|(receivers, _)| receivers.contains(&1)).count()
    };
    assert_eq!((received(None), received(Some(10.0))), (0, 1));
}

#[test]
fn bytes_without_a_whole_header_are_ignored() {
    let (mut air, start) = air(&row(&[0.0, 50.0]));
    for len in [0, 5, 6, 13] {
        air.send(0, &vec![0xff; len], start);
    }
    assert_eq!(air.next_deadline(), Instant::MAX);
    assert_eq!(air.status(start)[0].1.offered_frames, 0);
}

#[test]
fn a_host_with_frames_that_no_radio_sends_does_not_keep_the_others_from_their_turn() {
    let (mut air, start) = air(&row(&[0.0, 50.0]));
    let (mut buffer, mut reads) = (vec![0; 9000], 0);
    let more = air.fill(0, &mut buffer, start, |_| {
        reads += 1;
        assert!(reads <= 1000, "its turn does not end");
        Ok::<_, ()>(Some(9000))
    });
    assert_eq!(more, Ok(true), "it is read again in the next turn");
    let status = air.status(start + SECOND);
    assert_eq!((status[0].1.oversized_frames, status[0].1.offered_frames), (reads, 0));
}

#[test]
fn a_frame_of_a_header_alone_is_sent_and_counted() {
    let (mut air, start) = air(&row(&[0.0, 50.0]));
    air.send(0, &frame(mac(1), 0), start);
    assert_eq!(until(&mut air, start + SECOND), [(vec![1], None)]);
    assert_eq!(air.status(start + SECOND)[0].1.offered_frames, 1);
}

#[test]
fn a_process_that_was_stopped_for_a_year_goes_on_where_the_stations_are() {
    const YEAR: u32 = 365 * 86_400;
    let mut settings = row(&[0.0, 0.0]);
    let corner = |at, metres| Corner { at, position: (metres, 0.0) };
    settings.stations[1].path = vec![corner(0.0, 0.0), corner(2.0 * f64::from(YEAR), 20.0)];
    let (mut air, start) = air(&settings);
    air.send(0, &frame(mac(1), 98), start);
    let now = start + SECOND * YEAR;
    // Each of 315 million steps by itself would take minutes.
    assert_eq!(until(&mut air, now), [(vec![1], None)]);
    assert_eq!(air.status(now)[1].1.position, [10.0, 0.0]);
    assert!(air.next_deadline() > now);
}
