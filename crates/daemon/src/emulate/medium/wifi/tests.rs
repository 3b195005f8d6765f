use super::*;
use crate::emulate::medium::settings::{Channel, Corner, Host, MOST_OF_RADIO, Rate, Station};
use sheaf_medium::{Config, air_time};
use sheaf_stage::DropReason;

const MBPS: fn(u64) -> Bitrate = Bitrate::from_mbps;
const DSSS: Phy = Phy::Dsss { short_preamble: false };
/// 2.4 GHz, channels 1 and 6.
const LOW: u32 = 2412;
const OTHER: u32 = 2437;
const ALL: [u8; 6] = [0xff; 6];

/// Address by which the driver knows a radio, and that of its interface.
const fn radio(index: u8) -> [u8; 6] {
    [0x42, 0, 0, 0, index, 0]
}
const fn mac(index: u8) -> [u8; 6] {
    [2, 0, 0, 0, index, 0]
}

/// Radios at `metres` along a line at 2 Mbit/s; 100 m are below what they hear.
fn row(metres: &[f64]) -> Settings {
    let station = |(index, metres): (u8, &f64)| Station {
        name: format!("s{index}"),
        host: Host::Radio(mac(index)),
        path: vec![Corner { at: 0.0, position: (*metres, 0.0) }],
        power: 15.0,
        rate: Rate::Fixed(MBPS(2)),
        queue: 100,
        channel: 0,
    };
    Settings {
        name: "row".to_owned(),
        seed: 1,
        channel: Channel::of_tests(),
        stations: (0..).zip(metres).map(station).collect(),
    }
}

fn wifi(settings: &Settings) -> (Wifi, Instant) {
    let start = Instant::from_millis(86_400_000);
    let addresses: Vec<_> = (0..settings.stations.len() as u8).map(radio).collect();
    (Wifi::new(settings, &addresses, start).unwrap(), start)
}

/// A frame of 802.11 of so many bytes: data where `is_data`, else a beacon.
fn bytes(from: u8, to: [u8; 6], is_data: bool, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    bytes[0] = if is_data { 0x08 } else { 0x80 };
    bytes[4..10].copy_from_slice(&to);
    bytes[10..16].copy_from_slice(&mac(from));
    bytes
}

/// A frame as the driver hands it over.
fn frame(from: u8, cookie: u64, bytes: &[u8]) -> Frame<'_> {
    let mut rates = [Attempt::NONE; RATES];
    rates[0] = Attempt { index: 3, count: 2 };
    let no_ack = is_group([bytes[4]; 6]);
    let radio = radio(from);
    Frame { radio, bytes, no_ack, frequency: Some(LOW), cookie, rates, is_mcs: false }
}

/// Lets all radios send a beacon, so that their addresses are known. Their cookies begin at 1.
fn introduce(wifi: &mut Wifi, start: Instant) -> Instant {
    for from in 0..wifi.radios.len() as u8 {
        let beacon = bytes(from, ALL, false, 60);
        assert_eq!(wifi.receive(&frame(from, 1, &beacon), start), Received::Taken);
    }
    let now = start + Duration::from_secs(1);
    while let Some(done) = wifi.next(now) {
        wifi.recycle(done);
    }
    now
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_data_frame_is_delivered_and_acknowledged_with_the_rate_that_the_air_gave_it() {
    let (mut wifi, start) = wifi(&row(&[0.0, 50.0, 60.0]));
    let now = introduce(&mut wifi, start);
    let data = bytes(0, mac(1), true, 100);
    assert_eq!(wifi.receive(&frame(0, 2, &data), now), Received::Taken);
    let done = wifi.next(now + SECOND).unwrap();
    assert_eq!(wifi.receivers(&done).collect::<Vec<_>>(), [(1, true)]);
    let delivery = wifi.delivery(&done, 1);
    assert_eq!((delivery.radio, delivery.bytes), (radio(1), &data[..]));
    // 2 Mbit/s is the second rate of the band; 50 m are -84.7 dBm.
    assert_eq!((delivery.rate, delivery.signal, delivery.frequency), (1, -85, Some(LOW)));
    let mut rates = [Attempt::NONE; RATES];
    rates[0] = Attempt { index: 1, count: 1 };
    let expected = TransmitStatus {
        radio: radio(0),
        cookie: 2,
        no_ack: false,
        acked: true,
        rates,
        signal: -85,
    };
    assert_eq!(wifi.status(&done), expected);
    // PLCP, the frame with its check sum at 2 Mbit/s, SIFS and the acknowledgement.
    let took = Duration::from_micros(192 + 4 * 104 + 10 + 248);
    assert_eq!(done.ended - done.started, took);
}

#[test]
fn a_frame_to_a_radio_out_of_reach_is_sent_up_to_the_limit_and_not_acknowledged() {
    let (mut wifi, start) = wifi(&row(&[0.0, 100.0]));
    let now = introduce(&mut wifi, start);
    let data = bytes(0, mac(1), true, 100);
    wifi.receive(&frame(0, 2, &data), now);
    let done = wifi.next(now + SECOND).unwrap();
    assert_eq!(wifi.receivers(&done).count(), 0);
    let status = wifi.status(&done);
    assert_eq!((status.acked, status.rates[0].count, status.signal), (false, 7, 0));
    let (_, report) = &wifi.report(now + SECOND)[0];
    assert_eq!((report.attempts, report.retries, report.unknown_frames), (8, 6, 0));
}

#[test]
fn a_beacon_comes_to_all_in_reach_at_the_lowest_rate_and_without_acknowledgement() {
    let (mut wifi, start) = wifi(&row(&[0.0, 50.0, 100.0]));
    let beacon = bytes(0, ALL, false, 60);
    wifi.receive(&frame(0, 1, &beacon), start);
    let done = wifi.next(start + SECOND).unwrap();
    assert_eq!(wifi.receivers(&done).collect::<Vec<_>>(), [(1, true)]);
    assert_eq!(wifi.delivery(&done, 1).rate, 0);
    let status = wifi.status(&done);
    assert_eq!((status.acked, status.no_ack), (false, true));
    assert_eq!(status.rates[0], Attempt { index: 0, count: 1 });
}

#[test]
fn management_leaves_before_data_that_came_earlier() {
    let (mut wifi, start) = wifi(&row(&[0.0, 50.0]));
    let now = introduce(&mut wifi, start);
    let data = bytes(0, mac(1), true, 1500);
    for cookie in 2..22 {
        assert_eq!(wifi.receive(&frame(0, cookie, &data), now), Received::Taken);
    }
    let beacon = bytes(0, ALL, false, 60);
    wifi.receive(&frame(0, 22, &beacon), now);
    let cookies: Vec<_> = std::iter::from_fn(|| wifi.next(now + SECOND))
        .map(|done| done.frame.payload.tag.cookie)
        .collect();
    // Two frames are in the hardware already.
    let expected: Vec<_> = [2, 3, 22].into_iter().chain(4..22).collect();
    assert_eq!(cookies, expected);
}

#[test]
fn what_finds_a_full_queue_is_counted_and_reported_without_an_attempt_in_its_turn() {
    let mut settings = row(&[0.0, 50.0]);
    settings.stations[0].queue = 5;
    let (mut wifi, start) = wifi(&settings);
    let now = introduce(&mut wifi, start);
    let data = bytes(0, mac(1), true, 1500);
    let received: Vec<_> =
        (2..10).map(|cookie| wifi.receive(&frame(0, cookie, &data), now)).collect();
    assert!(received[..5].iter().all(|one| *one == Received::Taken), "{received:?}");
    assert!(received[5..].iter().all(|one| *one == Received::TurnedAway), "{received:?}");
    let report = &wifi.report(now)[0].1;
    assert_eq!((report.queued_frames, report.queue_limit, report.dropped_frames), (5, 5, 3));
    let mut reported = Vec::new();
    while let Some(done) = wifi.next(now + SECOND) {
        reported.push((done.frame.payload.tag.cookie, true));
        while let Some(status) = wifi.turned_away(&done) {
            assert_eq!((status.acked, status.rates[0]), (false, Attempt { index: 3, count: 0 }));
            reported.push((status.cookie, false));
        }
    }
    let (sent, not) = (|cookie| (cookie, true), |cookie| (cookie, false));
    let expected: Vec<_> = (2..7).map(sent).chain((7..10).map(not)).collect();
    assert_eq!(reported, expected);
}

#[test]
fn beacons_have_room_of_their_own_and_the_driver_keeps_fewer_frames_than_it_can() {
    let mut settings = row(&[0.0, 50.0]);
    settings.stations[0].queue = MOST_OF_RADIO;
    let (mut wifi, start) = wifi(&settings);
    let now = introduce(&mut wifi, start);
    let (data, beacon) = (bytes(0, mac(1), true, 1500), bytes(0, ALL, false, 60));
    let (mut kept, mut beacons) = (0, 0);
    for cookie in 2..1000 {
        match wifi.receive(&frame(0, cookie, &data), now) {
            Received::Taken | Received::TurnedAway => kept += 1,
            // The oldest of those without room makes room.
            Received::Refused(status) => assert!(status.cookie < cookie),
            Received::Stranger(status) => panic!("{status:?}"),
        }
        assert!(kept + beacons < PENDING);
    }
    for cookie in 1000..1100 {
        beacons += u64::from(wifi.receive(&frame(0, cookie, &beacon), now) == Received::Taken);
    }
    assert_eq!(beacons, MANAGEMENT as u64);
    assert!(kept + beacons < PENDING);
}

#[test]
fn a_flood_that_is_handed_over_late_still_fills_the_air() {
    let (mut wifi, start) = wifi(&row(&[0.0, 50.0]));
    let now = introduce(&mut wifi, start);
    // A packet of 1500 bytes; header, LLC/SNAP are 32.
    let data = bytes(0, mac(1), true, 1532);
    let (mut cookie, mut at, mut delivered) = (2, now, 0);
    while at < now + 10 * SECOND {
        while let Some(done) = wifi.next(at) {
            delivered += u32::from(done.result.is_ok());
            wifi.recycle(done);
        }
        while wifi.radios[0].data.len() < 50 {
            wifi.receive(&frame(0, cookie, &data), at);
            cookie += 1;
        }
        // 30 frames or so.
        at += Duration::from_millis(200);
    }
    let lone = Config::new(DSSS, 2, MBPS(2));
    let exchange = air_time::exchange(&lone, MBPS(2), 1500).as_secs_f64();
    let expected = 9.8 / exchange;
    assert!((f64::from(delivered) / expected - 1.0).abs() < 0.01, "{delivered}, {expected}");
}

#[test]
fn addresses_are_those_that_the_driver_announces_or_that_frames_have() {
    let (mut wifi, start) = wifi(&row(&[0.0, 50.0, 60.0]));
    let now = introduce(&mut wifi, start);
    let mut cookie = 1;
    let mut acked = |wifi: &mut Wifi, to: [u8; 6]| {
        cookie += 1;
        let data = bytes(0, to, true, 100);
        wifi.receive(&frame(0, cookie, &data), now + SECOND * cookie as u32);
        let done = wifi.next(now + SECOND * (cookie as u32 + 1)).unwrap();
        wifi.status(&done).acked
    };
    assert!(acked(&mut wifi, mac(1)));
    assert!(!acked(&mut wifi, [6; 6]), "nobody has it");
    wifi.announce(radio(1), [6; 6]);
    assert!(acked(&mut wifi, [6; 6]));
    // Another radio forges a frame with it.
    let mut forged = bytes(2, ALL, false, 60);
    forged[10..16].copy_from_slice(&[6; 6]);
    wifi.receive(&frame(2, 2, &forged), now + 10 * SECOND);
    assert_eq!(wifi.stations[&radio(1)], 1);
    assert!(wifi.air.has([6; 6], 1) && !wifi.air.has([6; 6], 2));
    wifi.withdraw(radio(2), [6; 6]);
    assert!(wifi.air.has([6; 6], 1), "it is not that radio's");
    wifi.withdraw(radio(1), [6; 6]);
    assert!(!wifi.air.has([6; 6], 1));
}

#[test]
fn addresses_of_a_radio_are_bounded_and_the_oldest_goes() {
    let (mut wifi, start) = wifi(&row(&[0.0, 50.0]));
    for number in 0..1000u16 {
        let [high, low] = number.to_be_bytes();
        let mut scan = bytes(0, ALL, false, 60);
        scan[10..16].copy_from_slice(&[2, 9, 9, 9, high, low]);
        wifi.receive(&frame(0, u64::from(number) + 1, &scan), start);
    }
    assert_eq!(wifi.radios[0].addresses.len(), ADDRESSES);
    assert!(wifi.air.has([2, 9, 9, 9, 3, 231], 0) && !wifi.air.has([2, 9, 9, 9, 0, 0], 0));
}

#[test]
fn radios_on_other_frequencies_do_not_contend_and_a_silent_listener_hears_groups() {
    let (mut wifi, start) = wifi(&row(&[0.0, 50.0]));
    let now = introduce(&mut wifi, start);
    let beacon = bytes(1, ALL, false, 60);
    let tuned = Frame { frequency: Some(OTHER), ..frame(1, 2, &beacon) };
    wifi.receive(&tuned, now);
    while let Some(done) = wifi.next(now + SECOND) {
        assert_eq!(wifi.receivers(&done).collect::<Vec<_>>(), [(0, false)]);
    }
    let data = bytes(0, mac(1), true, 100);
    wifi.receive(&frame(0, 2, &data), now + SECOND);
    let done = wifi.next(now + 2 * SECOND).unwrap();
    assert_eq!(done.result, Err(DropReason::RetryLimit));
    assert_eq!(wifi.receivers(&done).count(), 0, "it is not for a group");
    // It comes back.
    wifi.receive(&frame(1, 3, &beacon), now + 2 * SECOND);
    wifi.receive(&frame(0, 3, &data), now + 3 * SECOND);
    let acked: Vec<_> = std::iter::from_fn(|| wifi.next(now + 4 * SECOND))
        .map(|done| done.result.is_ok())
        .collect();
    assert_eq!(acked, [true, true]);
}

#[test]
fn frames_that_the_driver_could_not_hand_over_are_counted_by_their_numbers() {
    let (mut wifi, start) = wifi(&row(&[0.0, 50.0]));
    let beacon = bytes(0, ALL, false, 60);
    let mut missed = |cookie: u64| {
        wifi.receive(&frame(0, cookie, &beacon), start);
        wifi.report(start)[0].1.missed_frames
    };
    assert_eq!(missed(1000), 0, "what was before is not ours");
    assert_eq!(missed(1001), 0);
    assert_eq!(missed(1005), 3);
    assert_eq!(missed(1003), 2, "two processors sent at once");
    assert_eq!(missed(1006), 2);
    assert_eq!(missed(1), 2, "the radio was made anew");
    assert_eq!(missed(2), 2);
    assert_eq!(missed(1 << 31), 2, "and again");
}

#[test]
fn what_a_killed_medium_left_is_ended_before_the_first_frame_of_a_radio() {
    let (mut wifi, start) = wifi(&row(&[0.0, 50.0]));
    let beacon = bytes(0, ALL, false, 60);
    let cookies = |wifi: &Wifi, from: u8, cookie: u64| {
        let ended: Vec<_> = wifi.leftovers(&frame(from, cookie, &beacon)).collect();
        assert!(ended.iter().all(|one| !one.acked && one.radio == radio(from)));
        ended.iter().map(|one| one.cookie).collect::<Vec<_>>()
    };
    assert_eq!(cookies(&wifi, 0, 1000), (800..1000).collect::<Vec<_>>());
    assert_eq!(cookies(&wifi, 0, 3), [1, 2]);
    assert!(cookies(&wifi, 9, 1000).is_empty(), "it is not a station");
    wifi.receive(&frame(0, 1000, &beacon), start);
    assert!(cookies(&wifi, 0, 1001).is_empty());
    assert_eq!(cookies(&wifi, 1, 2), [1], "the other has sent nothing so far");
}

#[test]
fn a_radio_that_is_not_a_station_is_refused_and_reported_once() {
    let (mut wifi, start) = wifi(&row(&[0.0, 50.0]));
    let beacon = bytes(9, ALL, false, 60);
    let first = wifi.receive(&frame(9, 1, &beacon), start);
    assert!(matches!(first, Received::Stranger(_)), "{first:?}");
    let second = wifi.receive(&frame(9, 2, &beacon), start);
    assert!(matches!(&second, Received::Refused(status) if status.cookie == 2), "{second:?}");
    for stranger in 10..200 {
        wifi.receive(&frame(stranger, 1, &beacon), start);
    }
    assert_eq!(wifi.strangers.len(), STRANGERS);
    assert!(!wifi.has_heard());
}

#[test]
fn frames_without_a_receiver_and_frames_that_the_driver_takes_from_nobody_are_refused() {
    let (mut wifi, start) = wifi(&row(&[0.0, 50.0]));
    for len in [0, 9, LARGEST_FRAME + 1] {
        let bytes = vec![0x08; len];
        let damaged = Frame { bytes: &bytes, ..frame(0, 1, &[0; 10]) };
        let received = wifi.receive(&damaged, start);
        assert!(matches!(received, Received::Refused(_)), "{len}: {received:?}");
    }
    assert_eq!(wifi.report(start)[0].1.oversized_frames, 3);
    // A clear-to-send has no sender.
    let clear = [&[0xc4, 0, 0, 0][..], &mac(1)].concat();
    assert_eq!(wifi.receive(&frame(0, 1, &clear), start), Received::Taken);
}

#[test]
fn rates_have_their_places_in_the_table_of_the_band() {
    assert_eq!(place(MBPS(1), Some(LOW)), 0);
    assert_eq!(place(Bitrate::from_kbps(5_500), None), 2);
    assert_eq!((place(MBPS(6), Some(LOW)), place(MBPS(6), Some(5180))), (4, 0));
    assert_eq!((place(MBPS(54), Some(LOW)), place(MBPS(54), Some(5180))), (11, 7));
    assert_eq!(place(MBPS(1), Some(5180)), 0, "the band has no such rate");
    assert_eq!(place(MBPS(65), Some(LOW)), 11);
    assert_eq!(place(Bitrate::from_kbps(6_500), Some(LOW)), 4, "6 Mbit/s is the one below");
}

#[test]
fn an_mcs_is_reported_where_mac80211_had_one_in_mind() {
    let mut settings = row(&[0.0, 10.0]);
    settings.channel.phy = Phy::Ht { short_guard: false };
    settings.stations.iter_mut().for_each(|station| station.rate = Rate::Auto);
    let (mut wifi, start) = wifi(&settings);
    let now = introduce(&mut wifi, start);
    let data = bytes(0, mac(1), true, 100);
    let mut index = |is_mcs, cookie: u32| {
        let asked = Frame { is_mcs, ..frame(0, u64::from(cookie), &data) };
        wifi.receive(&asked, now + SECOND * cookie);
        let done = wifi.next(now + SECOND * (cookie + 1)).unwrap();
        (wifi.status(&done).rates[0].index, wifi.delivery(&done, 1).rate)
    };
    assert_eq!(index(true, 2), (7, 11));
    assert_eq!(index(false, 3), (3, 11), "its own choice stands");
}
