//! Recorded replies of kernels are read as another program decoded them; damaged ones end without
//! a panic. They are little-endian, as the machines were.
#![cfg(target_endian = "little")]

use netlink_packet_core::NetlinkSerializable;
use proptest::prelude::*;
use sheaf_fuzz::Fuzzer;
use sheaf_netio::attribute::{Attributes, put};
use sheaf_netio::batman::{Client, HardInterface, Neighbour, Originator};
use sheaf_netio::generic::{Message, family};
use sheaf_netio::netlink;
use sheaf_netio::nl80211::{Rate, Scheme, Station, Survey};
use sheaf_stage::{Bitrate, Duration};
use std::path::Path;

fn text(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings");
    std::fs::read_to_string(folder.join(format!("{name}.txt"))).expect("a recording")
}

fn bytes(hex: &str) -> Vec<u8> {
    let pair = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
    (0..hex.len()).step_by(2).map(pair).collect()
}

/// The request, and the reply as one datagram.
fn raw(name: &str) -> (Vec<u8>, Vec<u8>) {
    let text = text(name);
    let lines = |mark| text.lines().filter_map(move |line| line.strip_prefix(mark)).map(bytes);
    (lines("> ").flatten().collect(), lines("< ").flatten().collect())
}

/// Attributes of the messages of a reply, which is complete.
fn replies(name: &str) -> Vec<Vec<u8>> {
    let mut replies = Vec::new();
    let each = |message: Message| replies.push(message.attributes);
    assert!(netlink::read(&raw(name).1, each).expect("no error"), "{name} does not end");
    replies
}

/// A decoded message: the path of each attribute, and its value.
struct Decoded(Vec<(Vec<u16>, String)>);

impl Decoded {
    /// The messages of a recording.
    fn of(name: &str) -> Vec<Decoded> {
        let text = text(name);
        let tree = text.split("# decoded").nth(1).expect("a tree");
        tree.split("message type ").skip(1).map(Decoded::message).collect()
    }

    fn message(text: &str) -> Decoded {
        let (mut path, mut attributes) = (Vec::new(), Vec::new());
        for line in text.lines().skip(1) {
            let depth = (line.len() - line.trim_start().len()) / 2;
            let kind = line.split([' ', ':']).find(|word| !word.is_empty());
            // "tid index 1" is a level, too.
            let kind = kind.map(|word| word.parse().unwrap_or(0));
            let Some(kind) = kind.filter(|_| depth > 0) else { continue };
            path.truncate(depth - 1);
            path.push(kind);
            let value = line.split_once(": ").map_or("", |(_, value)| value);
            let hex = value.split(' ').next().expect("a first word").to_string();
            attributes.push((path.clone(), hex));
        }
        Decoded(attributes)
    }

    fn value(&self, path: &[u16]) -> Option<Vec<u8>> {
        let found = self.0.iter().find(|(other, _)| other == path);
        found.map(|(_, hex)| bytes(hex))
    }

    fn number(&self, path: &[u16]) -> Option<u64> {
        let little_endian = |value: Vec<u8>| {
            value.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        self.value(path).map(little_endian)
    }

    fn small(&self, path: &[u16]) -> Option<u32> {
        self.number(path).map(|number| number as u32)
    }

    fn millis(&self, path: &[u16]) -> Option<Duration> {
        self.number(path).map(Duration::from_millis)
    }

    fn kbps(&self, path: &[u16]) -> Option<Bitrate> {
        self.number(path).map(Bitrate::from_kbps)
    }

    fn mac(&self, path: &[u16]) -> [u8; 6] {
        self.value(path).and_then(|value| value.try_into().ok()).expect("an address")
    }
}

/// Entries read from the messages, each with its tree.
fn compared<T>(name: &str, parse: fn(&[u8]) -> Option<T>) -> Vec<(T, Decoded)> {
    let read: Vec<_> = replies(name).iter().map(|reply| parse(reply).expect("an entry")).collect();
    let decoded = Decoded::of(name);
    assert!(!read.is_empty());
    assert_eq!(read.len(), decoded.len());
    read.into_iter().zip(decoded).collect()
}

#[test]
fn stations_are_read_as_decoded() {
    for name in ["tcg-ibss-idle-station", "tcg-ibss-loaded-station", "uml-mesh-loaded-station"] {
        for (station, tree) in compared(name, Station::parse) {
            let level = |kind| tree.number(&[21, kind]).map(|level| level as u8 as i8);
            let count = |kind| tree.small(&[21, kind]);
            // The tree does not go into rates: both are 54 Mbit/s, in a 32-bit and a 16-bit form.
            assert_eq!(tree.value(&[21, 8]), Some(bytes("080005001c020000060001001c020000")));
            assert_eq!(tree.value(&[21, 14]), tree.value(&[21, 8]));
            let rate = Rate { bitrate: Bitrate::from_mbps(54), scheme: Scheme::Legacy };
            let expected = Station {
                mac: tree.mac(&[6]),
                signal_dbm: level(7),
                signal_average_dbm: level(13),
                transmit_rate: Some(rate),
                receive_rate: Some(rate),
                received_frames: count(9),
                transmitted_frames: count(10),
                transmitted_bytes: tree.number(&[21, 24]),
                retries: count(11),
                failed: count(12),
                expected_throughput: tree.kbps(&[21, 27]),
                connected: tree.number(&[21, 16]).map(Duration::from_secs),
                inactive: tree.millis(&[21, 1]),
            };
            assert_eq!(station, expected, "{name}");
        }
    }
}

#[test]
fn the_loaded_station_has_the_figures_that_it_had() {
    let [reply] = &replies("tcg-ibss-loaded-station")[..] else { panic!("one station") };
    let station = Station::parse(reply).unwrap();
    assert_eq!(station.mac, [2, 0, 0, 0, 1, 0]);
    assert_eq!((station.signal_dbm, station.signal_average_dbm), (Some(-30), Some(-30)));
    assert_eq!(station.transmitted_frames, Some(6400));
    assert_eq!(station.transmitted_bytes, Some(1_070_112));
    assert_eq!((station.retries, station.failed), (Some(0), Some(0)));
    assert_eq!(station.expected_throughput, Some(Bitrate::from_kbps(19_593)));
    assert_eq!(station.connected, Some(Duration::from_secs(79)));
}

#[test]
fn originators_of_both_protocols_are_read_as_decoded() {
    for name in ["BATMAN_IV-n2-batadv-originators", "BATMAN_V-n2-batadv-originators"] {
        for (originator, tree) in compared(name, Originator::parse) {
            let expected = Originator {
                address: tree.mac(&[9]),
                next_hop: tree.mac(&[24]),
                hard_ifindex: tree.small(&[6]),
                quality: tree.number(&[25]).map(|quality| quality as u8),
                throughput: tree.kbps(&[26]),
                last_seen: tree.millis(&[23]),
                best: tree.value(&[22]).is_some(),
            };
            assert_eq!(originator, expected);
            assert!(originator.best && originator.hard_ifindex == Some(7));
            let iv = name.starts_with("BATMAN_IV");
            assert_eq!(originator.quality.is_some(), iv);
            let mbps = originator.throughput.map(|rate| rate.as_bps() / 100_000);
            assert_eq!(mbps, if iv { None } else { Some(194) });
        }
    }
}

#[test]
fn neighbours_of_both_protocols_are_read_as_decoded() {
    for name in ["BATMAN_IV-n2-batadv-neighbors", "BATMAN_V-n2-batadv-neighbors"] {
        for (neighbour, tree) in compared(name, Neighbour::parse) {
            let expected = Neighbour {
                address: tree.mac(&[24]),
                hard_ifindex: tree.small(&[6]),
                throughput: tree.kbps(&[26]),
                last_seen: tree.millis(&[23]),
            };
            assert_eq!(neighbour, expected);
        }
    }
}

#[test]
fn hard_interfaces_are_read_as_decoded() {
    let [(interface, tree)] = &compared("BATMAN_IV-n2-batadv-hardif", HardInterface::parse)[..]
    else {
        panic!("one interface")
    };
    let expected = HardInterface {
        ifindex: tree.small(&[6]).unwrap(),
        name: "wlan0".into(),
        address: Some(tree.mac(&[8])),
        active: tree.value(&[15]).is_some(),
    };
    assert_eq!(*interface, expected);
    assert!(interface.active);
}

#[test]
fn clients_are_read_as_decoded_and_lead_to_their_originators() {
    let name = "BATMAN_V-n2-batadv-transtable-global";
    let clients = compared(name, Client::parse);
    assert_eq!(clients.len(), 8);
    for (client, tree) in &clients {
        let expected = Client {
            address: tree.mac(&[16]),
            originator: tree.mac(&[9]),
            vlan: None,
            best: tree.value(&[22]).is_some(),
        };
        assert_eq!(*client, expected);
        assert_eq!(tree.number(&[20]), Some(0));
    }
    let known = |(client, _): &(Client, Decoded)| client.originator;
    let originators = compared("BATMAN_V-n2-batadv-originators", Originator::parse);
    let reached: Vec<_> = originators.iter().map(|(originator, _)| originator.address).collect();
    assert!(clients.iter().map(known).all(|originator| reached.contains(&originator)));
    // Both nodes are in the group of all hosts; one of them is the way to it.
    let all_hosts = |(client, _): &&(Client, Decoded)| client.address == [1, 0, 0x5e, 0, 0, 1];
    let best: Vec<_> = clients.iter().filter(all_hosts).map(|(client, _)| client.best).collect();
    assert_eq!(best, [true, false]);
}

#[test]
fn families_have_the_numbers_that_were_decoded() {
    for name in ["BATMAN_IV-n2-batadv-getfamily", "tcg-ibss-loaded-getfamily"] {
        // The acknowledgement is a message of its own.
        let [reply] = &replies(name)[..] else { panic!("one reply") };
        let tree = &Decoded::of(name)[0];
        assert_eq!(family(reply).map(u64::from), tree.number(&[1]));
    }
}

#[test]
fn requests_are_the_recorded_ones() {
    let mut attributes = Vec::new();
    put(&mut attributes, 2, b"batadv\0");
    let lookup = Message { family: 16, command: 3, attributes };
    let mut attributes = Vec::new();
    put(&mut attributes, 3, &3u32.to_ne_bytes());
    let neighbours = Message { family: 29, command: 9, attributes };
    let recorded = ["BATMAN_IV-n2-batadv-getfamily", "BATMAN_IV-n2-batadv-neighbors"];
    for (request, name) in [lookup, neighbours].iter().zip(recorded) {
        let mut written = vec![0; request.buffer_len()];
        request.serialize(&mut written);
        // Behind the header, which has the number of the question.
        assert_eq!(written, raw(name).0[16..]);
        assert_eq!(request.message_type().to_ne_bytes(), raw(name).0[4..6]);
    }
}

fn nested(attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    attributes.iter().for_each(|(kind, value)| put(&mut bytes, *kind, value));
    bytes
}

/// mac80211_hwsim has no survey and no HT rates of its own: these messages are made here, with the
/// numbers of linux/nl80211.h.
#[test]
fn rates_by_index_are_read() {
    let rate = |attributes: &[(u16, &[u8])]| {
        let rate = nested(attributes);
        let info = nested(&[(14, &rate)]);
        Station::parse(&nested(&[(6, &[2, 0, 0, 0, 0, 1]), (21, &info)])).unwrap().receive_rate
    };
    let expect = |kbps, scheme| Some(Rate { bitrate: Bitrate::from_kbps(kbps), scheme });
    let short = 650u16.to_ne_bytes();
    assert_eq!(rate(&[(1, &short), (2, &[7])]), expect(65_000, Scheme::Ht(7)));
    // A 40 MHz channel and a short guard interval are flags.
    assert_eq!(
        rate(&[(1, &short), (2, &[15]), (3, &[]), (4, &[])]),
        expect(65_000, Scheme::Ht(15))
    );
    let long = 8_667u32.to_ne_bytes();
    let vht: &[(u16, &[u8])] = &[(5, &long), (6, &[9]), (7, &[2]), (8, &[])];
    assert_eq!(rate(vht), expect(866_700, Scheme::Vht(9)));
    assert_eq!(rate(&[(5, &long), (13, &[11]), (14, &[2])]), expect(866_700, Scheme::He(11)));
    assert_eq!(rate(&[(5, &long), (18, &[]), (19, &[13])]), expect(866_700, Scheme::Eht(13)));
    assert_eq!(rate(&[(2, &[7])]), None);
}

#[test]
fn surveys_give_the_noise_of_the_channel_in_use() {
    let noise = (-93i8).to_ne_bytes();
    let info = nested(&[(1, &2412u32.to_ne_bytes()), (2, &noise), (3, &[])]);
    let survey = Survey { frequency_mhz: Some(2412), noise_dbm: Some(-93), in_use: true };
    assert_eq!(Survey::parse(&nested(&[(3, &[0; 4]), (84, &info)])), Some(survey));
    let idle = nested(&[(1, &2417u32.to_ne_bytes())]);
    let survey = Survey { frequency_mhz: Some(2417), noise_dbm: None, in_use: false };
    assert_eq!(Survey::parse(&nested(&[(84, &idle)])), Some(survey));
    assert_eq!(Survey::parse(&[]), None);
}

#[test]
fn clients_in_a_vlan_have_its_number() {
    let vlan = (0x8000u16 | 42).to_ne_bytes();
    let entry: &[(u16, &[u8])] = &[(16, &[2; 6]), (9, &[4; 6]), (20, &vlan)];
    assert_eq!(Client::parse(&nested(entry)).unwrap().vlan, Some(42));
}

#[test]
fn the_error_of_a_dump_is_returned() {
    // NLMSG_DONE with -ENODEV, and NLMSG_ERROR with -EINVAL.
    let done = bytes("140000000300020001000000dc000000edffffff");
    let error = netlink::read(&done, |_: Message| {}).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(19));
    let error = "240000000200000001000000dc000000eaffffff1c0000001d0001030a00000000000000";
    let error = netlink::read(&bytes(error), |_: Message| {}).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(22));
}

/// Reads a datagram by all parsers; returns the number of entries.
fn read_all(datagram: &[u8]) -> usize {
    let mut entries = 0;
    let _ = netlink::read(datagram, |message: Message| {
        let reply = &message.attributes;
        entries += usize::from(family(reply).is_some());
        entries += usize::from(Station::parse(reply).is_some());
        entries += usize::from(Survey::parse(reply).is_some());
        entries += usize::from(Originator::parse(reply).is_some());
        entries += usize::from(Neighbour::parse(reply).is_some());
        entries += usize::from(HardInterface::parse(reply).is_some());
        entries += usize::from(Client::parse(reply).is_some());
        entries += Attributes::of(reply).count();
    });
    entries
}

#[test]
fn damaged_recordings_are_read_to_an_end() {
    let names = [
        "BATMAN_IV-n2-batadv-getfamily",
        "BATMAN_IV-n2-batadv-hardif",
        "BATMAN_IV-n2-batadv-originators",
        "BATMAN_V-n2-batadv-neighbors",
        "BATMAN_V-n2-batadv-transtable-global",
        "tcg-ibss-loaded-getfamily",
        "tcg-ibss-loaded-station",
        "uml-mesh-loaded-station",
    ];
    let datagrams = names.map(|name| raw(name).1).to_vec();
    assert!(datagrams.iter().all(|datagram| read_all(datagram) > 0));
    let mut fuzzer = Fuzzer::over(datagrams, 20_000);
    let (mut datagram, mut entries) = (Vec::new(), 0);
    for _ in 0..fuzzer.rounds() {
        fuzzer.take(&mut datagram);
        let read = read_all(&datagram);
        // An entry or an attribute has four bytes at least, and eight parsers see each message.
        assert!(read <= 2 * datagram.len());
        entries += read;
    }
    assert!(entries as u64 > fuzzer.rounds());
}

proptest! {
    #[test]
    fn any_bytes_are_read_to_an_end(datagram in prop::collection::vec(any::<u8>(), 0..600)) {
        read_all(&datagram);
        let _ = (Station::parse(&datagram), Survey::parse(&datagram), family(&datagram));
        let _ = (Originator::parse(&datagram), Neighbour::parse(&datagram));
        let _ = (HardInterface::parse(&datagram), Client::parse(&datagram));
    }

    #[test]
    fn a_station_of_any_attributes_is_read(
        info in prop::collection::vec((0u16..50, prop::collection::vec(any::<u8>(), 0..12)), 0..30),
    ) {
        let info: Vec<_> = info.iter().map(|(kind, value)| (*kind, value.as_slice())).collect();
        let reply = nested(&[(6, &[2, 0, 0, 0, 0, 1]), (21, &nested(&info)), (84, &nested(&info))]);
        prop_assert!(Station::parse(&reply).is_some());
        prop_assert!(Survey::parse(&reply).is_some());
    }
}
