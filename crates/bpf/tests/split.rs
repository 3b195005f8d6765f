//! The splitting program on a veth pair: what it delivers, what it refuses, and how it is replaced.
//! Needs root.

mod pair;

use pair::wire::{A6, V4, V6, Wire, framed, run_on};
use pair::{A, Pair};
use proptest::prelude::*;
use sheaf_aggregate::{Senders, Splitter};
use sheaf_bpf::Split;
use sheaf_netio::{clock, ip};
use sheaf_stage::Duration;
use sheaf_wire::checksum;
use sheaf_wire::ecn::Ecn;
use sheaf_wire::meta::{HOP_LIMIT_FAR, HOP_LIMIT_NEIGHBOUR, MAX_PACKETS, Outer, Refusal, Repr};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, mpsc};

/// Of nobody here: what is split goes no further.
const NOBODY: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const NOBODY6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2);
const SENDER: Ipv4Addr = Ipv4Addr::new(10, 66, 0, 1);
const SENDER6: Ipv6Addr = Ipv6Addr::new(0xfd66, 0, 0, 0, 0, 0, 0, 1);
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
const MAX_FRAME: usize = 4096;
/// The longest tick of the kernel, at 100 Hz.
const TICK: Duration = Duration::from_millis(10);

fn meta(outer: Outer, hop_limit: u8, ecn: Ecn, inner: &[Vec<u8>]) -> Vec<u8> {
    let repr = Repr { outer, dscp: 0, ecn, hop_limit };
    let mut bytes = vec![0; repr.header_len()];
    inner.iter().for_each(|packet| bytes.extend_from_slice(packet));
    repr.emit(bytes.len(), &mut bytes);
    bytes
}

/// An inner packet with a header of its own choice.
#[derive(Clone, Debug)]
struct Inner {
    source: IpAddr,
    destination: IpAddr,
    hop_limit: u8,
    ecn: u8,
    protocol: u8,
    /// The first byte of it is an ICMPv6 packet's type.
    payload: Vec<u8>,
}

impl Inner {
    fn v4(payload: Vec<u8>) -> Inner {
        let (source, destination) = (SENDER.into(), NOBODY.into());
        Inner { source, destination, hop_limit: 63, ecn: 0, protocol: UDP, payload }
    }

    fn v6(payload: Vec<u8>) -> Inner {
        Inner { source: SENDER6.into(), destination: NOBODY6.into(), ..Inner::v4(payload) }
    }

    fn packet(&self) -> Vec<u8> {
        let len = self.payload.len() as u16;
        let mut packet = match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let mut header = vec![0x45, self.ecn];
                header.extend((20 + len).to_be_bytes());
                header.extend([0, 0, 0x40, 0, self.hop_limit, self.protocol, 0, 0]);
                header.extend(source.octets());
                header.extend(destination.octets());
                let checksum = checksum::ipv4_header(&header);
                header[10..12].copy_from_slice(&checksum.to_be_bytes());
                header
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let mut header = vec![0x60, self.ecn << 4, 0, 0];
                header.extend(len.to_be_bytes());
                header.extend([self.protocol, self.hop_limit]);
                header.extend(source.octets());
                header.extend(destination.octets());
                header
            }
            _ => unreachable!("addresses of one family"),
        };
        packet.extend_from_slice(&self.payload);
        packet
    }
}

/// Counters that differ between `before` and `after`, and by how much.
fn changes(
    before: &BTreeMap<&'static str, u64>,
    after: &BTreeMap<&'static str, u64>,
) -> Vec<(&'static str, u64)> {
    let change = |(name, count): (&&'static str, &u64)| (*name, count - before[name]);
    after.iter().map(change).filter(|(_, count)| *count > 0).collect()
}

fn address(v6: bool) -> impl Strategy<Value = IpAddr> {
    let v4 = ["10.66.0.1", "10.77.0.2", "169.254.1.1", "169.253.9.9", "224.0.0.251", "223.9.9.9"];
    let others = ["255.255.255.255", "240.0.0.1", "192.0.2.1"];
    let sixes = ["fd66::1", "fd77::2", "fe80::1", "febf::1", "fec0::1", "ff02::1", "2001:db8::1"];
    let texts = if v6 { sixes.to_vec() } else { [&v4[..], &others].concat() };
    prop_oneof![
        3 => Just(texts[0].parse().unwrap()),
        1 => prop::sample::select(texts).prop_map(|text| text.parse().unwrap()),
    ]
}

fn inner() -> impl Strategy<Value = Inner> {
    let len = prop_oneof![6 => 0..60usize, 2 => 60..300usize, 1 => 300..1400usize];
    let kind = prop_oneof![Just(9), 130..140u8, any::<u8>()];
    let protocol = prop::sample::select(vec![UDP, UDP, ICMPV6, 6, 0, 44]);
    let hop_limit = prop::sample::select(vec![64, 63, 1, 254, 255]);
    any::<bool>().prop_flat_map(move |v6| {
        let header = (address(v6), address(v6), hop_limit.clone(), 0..4u8, protocol.clone());
        (header, len.clone(), kind.clone()).prop_map(
            |((source, destination, hop_limit, ecn, protocol), len, kind)| {
                let mut payload: Vec<u8> = (0..len).map(|at| at as u8).collect();
                payload.iter_mut().take(1).for_each(|first| *first = kind);
                Inner { source, destination, hop_limit, ecn, protocol, payload }
            },
        )
    })
}

/// A meta packet, perhaps with a wrong byte, and whom the splitter accepts.
#[derive(Clone, Debug)]
struct Case {
    senders: Senders,
    packet: Vec<u8>,
}

fn senders() -> impl Strategy<Value = Senders> {
    let addresses = || prop::sample::subsequence(vec![A.into(), A6.into()], 0..=2);
    (prop::bool::weighted(0.3), addresses(), addresses()).prop_map(|(any, near, far)| Senders {
        any,
        neighbours: near.into_iter().collect(),
        far_ends: far.into_iter().collect(),
    })
}

fn case() -> impl Strategy<Value = Case> {
    let fault = prop::option::weighted(
        0.3,
        (prop_oneof![4 => 0..24usize, 1 => 0..64usize, 1 => 0..1400usize], 1..=255u8),
    );
    let hop_limit = prop::sample::select(vec![255, 255, 255, 254, 64, 1]);
    let inner = prop::collection::vec(inner(), 0..20);
    (senders(), inner, any::<bool>(), 0..4usize, hop_limit, fault).prop_map(
        |(senders, inner, v6, ecn, hop_limit, fault)| {
            let outer = if v6 { V6 } else { V4 };
            let mut room = 2000;
            let fits = |packet: &Vec<u8>| {
                room -= packet.len() as i32;
                room >= 0
            };
            let inner: Vec<_> = inner.iter().map(Inner::packet).take_while(fits).collect();
            let ecn = [Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce][ecn];
            let mut packet = meta(outer, hop_limit, ecn, &inner);
            if let Some((at, value)) = fault {
                // What makes it another protocol's packet or another host's is not the splitter's.
                let others = if v6 { [6..7, 24..40] } else { [9..10, 16..20] };
                if at < packet.len() && at != 0 && !others.iter().any(|one| one.contains(&at)) {
                    packet[at] ^= value;
                }
            }
            Case { senders, packet }
        },
    )
}

#[test]
fn the_splitting_program_delivers_and_refuses_what_its_model_does() {
    let wire = Wire::new();
    let split = Mutex::new(wire.pair.split(&Senders::default()));
    let sum = [const { AtomicU64::new(0) }; 3];
    let config = ProptestConfig { cases: 1000, failure_persistence: None, ..Default::default() };
    proptest!(config, |(case in case())| {
        let Case { senders, mut packet } = case;
        wire.on_b(|_| split.lock().unwrap().accept(&senders));
        let split = split.lock().unwrap();
        let mut model = Splitter::new(senders);
        let before = split.counters().unwrap();
        let heard = wire.split(&packet);
        let after = split.counters().unwrap();
        let mut expected = Vec::new();
        let _ = model.split(&mut packet, |inner| expected.push(inner.bytes.to_vec()));
        prop_assert_eq!(heard, expected);
        let refused = |refusal: &Refusal| (refusal.name(), model.refused(*refusal));
        let counts = [
            ("meta-packets", model.meta_packets()),
            ("packets", model.packets()),
            ("ecn-not-capable", model.not_capable()),
            ("only-neighbours-say", model.only_neighbours_say()),
        ];
        let counts: BTreeMap<_, _> =
            Refusal::ALL.iter().map(refused).chain(counts).filter(|(_, n)| *n > 0).collect();
        prop_assert_eq!(changes(&before, &after), counts.into_iter().collect::<Vec<_>>());
        let afar = model.refused(Refusal::NotFromTheLink);
        for (sum, count) in sum.iter().zip([model.packets(), model.only_neighbours_say(), afar]) {
            sum.fetch_add(count, Ordering::Relaxed);
        }
    });
    let sum = sum.map(AtomicU64::into_inner);
    assert!(sum.iter().all(|count| *count > 50), "too few were seen of each kind: {sum:?}");
}

#[test]
fn as_many_packets_as_fit_in_one_meta_packet_arrive_whole_and_in_order() {
    let wire = Wire::new();
    let split = wire.pair.split(&Senders::any());
    // Bare headers, told apart by their identification.
    let bare = |number: usize| {
        let mut packet = Inner::v4(Vec::new()).packet();
        packet[5] = number as u8;
        packet[10..12].fill(0);
        let checksum = checksum::ipv4_header(&packet);
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        packet
    };
    let packets: Vec<_> = (0..MAX_PACKETS).map(bare).collect();
    let heard = wire.split(&meta(V4, HOP_LIMIT_NEIGHBOUR, Ecn::NotEct, &packets));
    assert_eq!(heard, packets);
    assert_eq!(split.counters().unwrap()["packets"], MAX_PACKETS as u64);
}

#[test]
fn the_smallest_packets_of_either_family_arrive_whole_behind_either_outer_header() {
    let wire = Wire::new();
    let _split = wire.pair.split(&Senders::any());
    let (four, six) = (Inner::v4(Vec::new()).packet(), Inner::v6(Vec::new()).packet());
    // The last one decides how little the kernel must leave of the frame.
    for packets in [
        vec![four.clone()],
        vec![six.clone()],
        vec![six.clone(), four.clone()],
        vec![four.clone(), six.clone()],
        vec![six.clone(), four.clone(), six.clone(), four.clone(), four.clone()],
    ] {
        for outer in [V4, V6] {
            let packet = meta(outer, HOP_LIMIT_NEIGHBOUR, Ecn::NotEct, &packets);
            assert_eq!(wire.split(&packet), packets, "behind {outer:?}");
        }
    }
}

#[test]
fn of_hosts_that_are_watched_the_last_frame_is_noted_and_of_others_nothing() {
    let wire = Wire::new();
    let mut split = wire.pair.split(&Senders::any());
    let [four, six]: [IpAddr; 2] = [A.into(), A6.into()];
    let frame = |outer, hop_limit| {
        wire.split(&meta(outer, hop_limit, Ecn::NotEct, &[Inner::v4(Vec::new()).packet()]))
    };
    assert_eq!(frame(V4, HOP_LIMIT_NEIGHBOUR).len(), 1);
    assert_eq!(split.heard(four), None);
    split.watch(four).unwrap();
    assert_eq!(split.heard(four), None, "nothing has come since");
    assert!(frame(V4, HOP_LIMIT_FAR).is_empty(), "it is refused");
    assert_eq!(split.heard(four), None, "a frame that is refused shows nobody");

    let before = clock::now();
    assert_eq!(frame(V4, HOP_LIMIT_NEIGHBOUR).len(), 1);
    assert_eq!(frame(V6, HOP_LIMIT_NEIGHBOUR).len(), 1);
    let at = split.heard(four).unwrap();
    assert!((before - TICK..=clock::now()).contains(&at), "{at:?}");
    assert_eq!(split.heard(six), None);
    split.watch(four).unwrap();
    assert_eq!(split.heard(four), Some(at), "it is known who is watched already");
    split.watch_nobody().unwrap();
    assert_eq!(split.heard(four), None);
}

#[test]
fn who_finds_no_place_among_the_watched_is_not_noted() {
    let pair = Pair::new();
    let mut split = pair.split(&Senders::any());
    let host = |number: usize| IpAddr::from([10, 8, (number >> 8) as u8, number as u8]);
    for number in 0..sheaf_bpf::split::ROOM + 3 {
        split.watch(host(number)).unwrap();
    }
    split.watch_nobody().unwrap();
    split.watch(host(0)).unwrap();
}

#[test]
fn a_neighbours_meta_packet_that_crossed_a_router_is_refused() {
    let wire = Wire::new();
    let packets = [Inner::v4(vec![1; 30]).packet(), Inner::v6(vec![2; 30]).packet()];
    for senders in [Senders::any(), Senders::neighbours([A.into(), A6.into()])] {
        let split = wire.pair.split(&senders);
        for outer in [V4, V6] {
            for hop_limit in [254, HOP_LIMIT_FAR, 1] {
                let before = split.counters().unwrap();
                let heard = wire.split(&meta(outer, hop_limit, Ecn::NotEct, &packets));
                let after = split.counters().unwrap();
                assert_eq!(changes(&before, &after), [("not-from-the-link", 1)]);
                assert!(heard.is_empty());
            }
            assert_eq!(wire.split(&meta(outer, 255, Ecn::NotEct, &packets)), packets);
        }
    }
}

/// A router advertisement for the link, as a router on it sends it: with a lifetime, sound.
fn advertisement() -> Vec<u8> {
    let source = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0x666);
    let destination = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    // Type, code, checksum, hop limit, flags, lifetime 1800 s, reachable and retransmission times.
    let mut payload = vec![134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0];
    let pseudo = checksum::sum(&[source.octets(), destination.octets()].concat(), 16 + 58);
    let checksum = !checksum::fold(checksum::sum(&payload, pseudo));
    payload[2..4].copy_from_slice(&checksum.to_be_bytes());
    let (source, destination) = (source.into(), destination.into());
    Inner { source, destination, hop_limit: 255, ecn: 0, protocol: ICMPV6, payload }.packet()
}

#[test]
fn a_router_advertisement_from_afar_installs_no_route_and_is_counted() {
    let wire = Wire::new();
    let routes = || wire.pair.b.run(|| ip::output("-6 route show default")).unwrap();
    // Beside it travels a packet that anybody may send.
    let packets = [advertisement(), Inner::v4(vec![1; 30]).packet()];
    let split = wire.pair.split(&Senders::far_ends([A.into()]));
    for hop_limit in [HOP_LIMIT_FAR, 250, 255] {
        let before = split.counters().unwrap();
        let heard = wire.split(&meta(V4, hop_limit, Ecn::NotEct, &packets));
        assert_eq!(heard, packets[1..]);
        let expected = [("meta-packets", 1), ("only-neighbours-say", 1), ("packets", 1)];
        assert_eq!(changes(&before, &split.counters().unwrap()), expected);
        assert_eq!(routes(), "");
    }
    // The same from the link is a router's.
    let _split = wire.pair.split(&Senders::neighbours([A.into()]));
    assert_eq!(wire.split(&meta(V4, 255, Ecn::NotEct, &packets)), packets);
    assert!(routes().contains("fe80::666"), "{}", routes());
}

#[test]
fn a_host_splits_only_what_is_addressed_to_it_whether_it_forwards_or_not() {
    let wire = Wire::new();
    let inner = [Inner::v4(vec![1; 30]).packet()];
    let to = |dst: &str| {
        let dst: IpAddr = dst.parse().unwrap();
        let src: IpAddr = if dst.is_ipv6() { A6.into() } else { A.into() };
        meta(Outer::new(src, dst).unwrap(), 255, Ecn::NotEct, &inner)
    };
    let is_split = |split: &Split, dst: &str| {
        let before = split.counters().unwrap();
        let heard = wire.split(&to(dst));
        let expected = if heard.is_empty() {
            vec![("not-ours", 1)]
        } else {
            vec![("meta-packets", 1), ("packets", 1)]
        };
        assert_eq!(changes(&before, &split.counters().unwrap()), expected, "to {dst}");
        !heard.is_empty()
    };
    for forwarding in ["0", "1"] {
        wire.pair
            .b
            .run(|| {
                std::fs::write("/proc/sys/net/ipv4/conf/all/forwarding", forwarding)?;
                std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", forwarding)
            })
            .unwrap();
        let mut split = wire.pair.split(&Senders::any());
        for (ours, theirs) in [("10.9.0.2", "10.9.0.77"), ("fd09::2", "fd09::77")] {
            assert!(is_split(&split, ours), "forwarding {forwarding}: {ours} is B's");
            assert!(!is_split(&split, theirs), "forwarding {forwarding}: {theirs} is not B's");
            // Its address from now on; the host says so as soon as it looks.
            let change = |split: &mut Split, verb: &str| {
                let bits = if theirs.contains(':') { 64 } else { 24 };
                let nodad = if theirs.contains(':') && verb == "add" { "nodad" } else { "" };
                wire.on_b(|_| {
                    ip::run(&format!("addr {verb} {theirs}/{bits} dev eth0 {nodad}"))?;
                    split.note_addresses()
                });
                wire.until_routed(theirs, verb == "add");
            };
            change(&mut split, "add");
            assert!(is_split(&split, theirs), "forwarding {forwarding}: {theirs} is B's now");
            change(&mut split, "del");
            assert!(!is_split(&split, theirs), "forwarding {forwarding}: {theirs} was B's");
        }
    }
}

#[test]
fn a_frame_to_another_link_address_is_not_split_though_a_capture_brings_it_in() {
    let wire = Wire::new();
    let split = wire.pair.split(&Senders::any());
    wire.pair.b.run(|| ip::run("link set eth0 promisc on")).unwrap();
    let mut frame = framed(&meta(V4, 255, Ecn::NotEct, &[Inner::v4(vec![1; 30]).packet()]));
    frame[5] ^= 1;
    wire.from.send(&frame).unwrap();
    wire.split(&meta(V4, 64, Ecn::NotEct, &[]));
    let seen: Vec<_> =
        split.counters().unwrap().into_iter().filter(|(_, count)| *count > 0).collect();
    assert_eq!(seen, [("not-from-the-link", 1)], "only the second frame was B's");
}

/// Sends numbered meta packets of two packets each to B while another thread calls `replace` fifty
/// times, and checks that each packet arrives exactly once and in order.
fn nothing_is_lost_while(replace: impl Fn(&Wire, u32) + Send) -> (Wire, Split, u32) {
    let wire = Wire::new();
    let first = wire.pair.split(&Senders::any());
    let mut number = 0u32;
    std::thread::scope(|scope| {
        // One turn for each meta packet that arrived; gone when the sender is.
        let (turn, turns) = mpsc::sync_channel(1);
        let wire = &wire;
        let replacing = scope.spawn(move || {
            run_on(
                &(0..std::thread::available_parallelism().map_or(1, Into::into))
                    .collect::<Vec<_>>(),
            );
            for time in 0..50 {
                replace(wire, time);
                if turns.recv().is_err() {
                    return;
                }
            }
        });
        while !replacing.is_finished() {
            let packet = |half: u32| Inner::v4((number * 2 + half).to_be_bytes().to_vec()).packet();
            let packets = [packet(0), packet(1)];
            let heard = wire.split(&meta(V4, 255, Ecn::NotEct, &packets));
            assert_eq!(heard, packets, "meta packet {number}");
            number += 1;
            let _ = turn.try_send(());
        }
    });
    (wire, first, number)
}

#[test]
fn nothing_is_lost_or_doubled_while_a_splitter_is_replaced_fifty_times() {
    let (wire, first, sent) = nothing_is_lost_while(|wire, _| {
        wire.on_b(|ifindex| Split::load(&Senders::any(), None)?.replace("eth0", ifindex).map(drop));
    });
    assert!(first.counters().unwrap()["meta-packets"] < u64::from(sent), "others split, too");
    let list = || {
        let tc = ["filter", "show", "dev", "eth0", "ingress"];
        Ok(String::from_utf8(std::process::Command::new("tc").args(tc).output()?.stdout).unwrap())
    };
    let filters = wire.pair.b.run(list).unwrap();
    assert_eq!(filters.matches("handle 0x").count(), 1, "{filters}");
}

#[test]
fn nothing_is_lost_while_other_senders_are_named_and_the_counters_go_on() {
    let (_wire, first, sent) = nothing_is_lost_while(|wire, time| {
        let others = Senders::neighbours([A.into(), Ipv4Addr::from(time).into()]);
        let senders = if time % 2 == 0 { others } else { Senders::any() };
        wire.on_b(|ifindex| Split::attach("eth0", ifindex, &senders, None).map(drop));
    });
    assert_eq!(first.counters().unwrap()["meta-packets"], u64::from(sent));
}

#[test]
fn a_splitter_whose_interface_went_goes_on_counting_on_the_next_one() {
    let wire = Wire::new();
    let packets = [Inner::v4(vec![1; 30]).packet()];
    let packet = meta(V4, 255, Ecn::NotEct, &packets);
    let split = wire.on_b(|ifindex| {
        // Its interface ends with the namespace of this pair.
        let elsewhere = Wire::new();
        let split = elsewhere.pair.split(&Senders::any());
        assert_eq!(elsewhere.split(&packet), packets);
        drop(elsewhere);
        let nobody = Senders::neighbours([]);
        let loaded = split.reuse(&nobody, None)?.expect("this process loaded it");
        loaded.attach("eth0", ifindex, &nobody, None)
    });
    assert!(wire.split(&packet).is_empty(), "nobody is accepted");
    let counters = split.counters().unwrap();
    assert_eq!(counters["meta-packets"], 1, "of before: {counters:?}");
    assert_eq!(counters["unknown-peer"], 1, "of now: {counters:?}");

    // Where it is at work already, it gets other senders.
    let split = wire.on_b(|ifindex| {
        let loaded = split.reuse(&Senders::any(), None)?.expect("this process loaded it");
        loaded.attach("eth0", ifindex, &Senders::any(), None)
    });
    assert_eq!(wire.split(&packet), packets);
    assert_eq!(split.counters().unwrap()["meta-packets"], 2);

    // Who takes it over has the maps alone.
    let there = wire.on_b(|ifindex| Split::attach("eth0", ifindex, &Senders::any(), None));
    assert!(there.reuse(&Senders::any(), None).unwrap().is_none());
    assert_eq!(wire.split(&packet), packets);
}

#[test]
fn a_splitter_that_cannot_be_made_leaves_the_old_one_at_work() {
    let wire = Wire::new();
    let split = wire.pair.split(&Senders::any());
    let many = Senders::neighbours((0..2000).map(|number| Ipv4Addr::from(number).into()));
    let failed = wire.pair.b.run(|| {
        let attached = Split::attach("eth0", ip::index("eth0")?, &many, None);
        Ok(attached.map(drop).unwrap_err().to_string())
    });
    assert_eq!(failed.unwrap(), "2000 senders are too many; name at most 1024");
    let packets = [Inner::v4(vec![1; 30]).packet()];
    assert_eq!(wire.split(&meta(V4, 255, Ecn::NotEct, &packets)), packets);
    assert_eq!(split.counters().unwrap()["packets"], 1);
}

#[test]
fn in_a_flood_as_many_packets_reach_the_stack_as_were_counted() {
    let wire = Wire::new();
    let split = wire.pair.split(&Senders::any());
    let received = || {
        let text = wire.pair.b.run(|| std::fs::read_to_string("/proc/thread-self/net/snmp"));
        let text = text.unwrap();
        let line = text.lines().filter(|line| line.starts_with("Ip: ")).nth(1).unwrap();
        line.split_whitespace().nth(3).unwrap().parse::<u64>().unwrap()
    };
    let packets: Vec<_> = (0..60).map(|_| Inner::v4(vec![1; 12]).packet()).collect();
    let frame = framed(&meta(V4, 255, Ecn::NotEct, &packets));
    let before = received();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..2000).for_each(|_| wire.from.send(&frame).unwrap()));
        }
    });
    // The capture is full of the flood; then behind what is left in the backlog.
    while wire.to.receive(&mut [0; MAX_FRAME]).unwrap().is_some() {}
    wire.split(&frame[14..]);
    let counters = split.counters().unwrap();
    assert_eq!(counters["packets"], received() - before, "{counters:?}");
    let handled = counters["packets"] + counters["reinject-failed"];
    assert_eq!(handled, counters["meta-packets"] * 60, "{counters:?}");
}
