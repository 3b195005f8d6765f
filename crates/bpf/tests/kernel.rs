//! The programs on a real veth pair between two namespaces. Needs root.

mod pair;

use nix::sys::socket::{setsockopt, sockopt};
use pair::{A, B, COOKIE, MAC_A, MAC_B, Pair};
use sheaf_aggregate::{Config, Policy, Senders};
use sheaf_bpf::layout::{Hop, SLOTS};
use sheaf_bpf::merge::Rule;
use sheaf_bpf::ticker::{Cause, Tick};
use sheaf_bpf::{Controller, Event, Split};
use sheaf_netio::packet::PacketSocket;
use sheaf_netio::poller::Poller;
use sheaf_netio::{clock, ip, timer};
use sheaf_stage::{Duration, Instant};
use sheaf_wire::ip::Ip;
use sheaf_wire::meta::{Meta, Outer};
use std::net::UdpSocket;

fn receive(socket: &UdpSocket, count: u32) -> Vec<u32> {
    let mut bytes = [0; 2048];
    let mut number = || {
        pair::receive(socket, &mut bytes).expect("every packet arrives");
        u32::from_be_bytes(bytes[..4].try_into().unwrap())
    };
    (0..count).map(|_| number()).collect()
}

fn payload(number: u32) -> [u8; 32] {
    let mut payload = [7; 32];
    payload[..4].copy_from_slice(&number.to_be_bytes());
    payload
}

/// Accepts what A sends with any hop limit.
fn anywhere() -> Senders {
    Senders::far_ends([A.into()])
}

#[test]
fn what_is_gathered_on_one_side_arrives_whole_and_in_order_on_the_other() {
    let pair = Pair::new();
    let (mut merge, mut ticker) = pair.merge(&Config::forced());
    let split = pair.split(&anywhere());
    let (from, to) = pair.sockets();
    let raw = pair.b.run(|| PacketSocket::open(ip::index("eth0")?)).unwrap();

    for number in 0..100 {
        // As a controller does, who would be taken to hang otherwise.
        merge.device().looks();
        from.send(&payload(number)).unwrap();
        while let Some(event) = merge.event() {
            if let Event::WantsTick { slot } = event {
                ticker.tick(Tick::new(slot, Cause::Size)).unwrap();
            }
        }
    }
    while ticker.tick(Tick::new(0, Cause::Timeout)).unwrap() || merge.queue(0).unwrap().packets > 0
    {
    }
    for slot in 0..64 {
        while ticker.tick(Tick::new(slot, Cause::Timeout)).unwrap() {}
    }
    assert_eq!(receive(&to, 100), (0..100).collect::<Vec<_>>());

    let stats = merge.stats().unwrap();
    assert_eq!(stats.len(), 1);
    assert_eq!(stats[0].1.aggregated_packets + stats[0].1.unaggregated_packets, 100);
    assert!(stats[0].1.average_aggregation().unwrap() >= 8.0, "{stats:?}");
    let counters = split.counters().unwrap();
    assert_eq!(counters["packets"] + stats[0].1.unaggregated_packets, 100, "{counters:?}");

    // On the wire every inner checksum is right, though the socket left them to the device.
    let mut buffer = [0; 4096];
    let mut seen = 0;
    while let Some(len) = raw.receive(&mut buffer).unwrap() {
        let Ok(meta) = Meta::parse(&buffer[14..len]) else { continue };
        for inner in meta.packets() {
            let (header, _) = etherparse::Ipv4Header::from_slice(inner.bytes()).unwrap();
            let (udp, rest) = etherparse::UdpHeader::from_slice(inner.transport()).unwrap();
            assert_eq!(udp.checksum, udp.calc_checksum_ipv4(&header, rest).unwrap());
            seen += 1;
        }
    }
    assert_eq!(seen, stats[0].1.aggregated_packets);
}

#[test]
fn filters_of_ip_see_the_class_of_a_frame_that_a_tick_brings() {
    let pair = Pair::new();
    let tc = |words: &str| {
        let mut tc = std::process::Command::new("tc");
        tc.args(words.split(' '));
        pair.a.enter(&mut tc);
        let output = tc.output().expect("tc is installed");
        assert!(output.status.success(), "{words}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    tc("qdisc add dev eth0 root handle 1: htb default 2");
    for class in [1, 2] {
        tc(&format!("class add dev eth0 parent 1: classid 1:{class} htb rate 1gbit"));
    }
    tc("filter add dev eth0 parent 1: protocol ip u32 match ip dsfield 0xb8 0xfc flowid 1:1");
    let (mut merge, mut ticker) = pair.merge(&Config::forced());
    let (from, _to) = pair.sockets();
    // Expedited Forwarding (RFC 3246).
    setsockopt(&from, sockopt::Ipv4Tos, &0xb8).unwrap();
    for number in 0..2 {
        from.send(&payload(number)).unwrap();
    }
    let Some(Event::Waits { slot, .. }) = merge.event() else { panic!("nothing waits") };
    assert!(ticker.tick(Tick::new(slot, Cause::Timeout)).unwrap());
    let shown = tc("-s class show dev eth0");
    let (_, class) = shown.split_once("class htb 1:1 ").unwrap();
    let (_, sent) = class.split_once("Sent ").unwrap();
    // Of Ethernet, the outer header, and both packets.
    assert!(sent.starts_with("154 bytes 1 pkt"), "{shown}");
}

#[test]
fn a_sender_never_learns_that_its_packet_was_held() {
    let pair = Pair::new();
    let (_merge, _ticker) = pair.merge(&Config::forced());
    let (from, _to) = pair.sockets();
    let on: libc::c_int = 1;
    use std::os::fd::AsRawFd;
    // SAFETY: the option is an int that lives through the call.
    unsafe {
        let value = (&raw const on).cast();
        libc::setsockopt(from.as_raw_fd(), libc::IPPROTO_IP, libc::IP_RECVERR, value, 4);
    }
    for number in 0..50 {
        from.send(&payload(number)).expect("no ENOBUFS");
    }
}

#[test]
fn when_the_program_goes_packets_flow_as_before_and_the_splitter_stays() {
    let pair = Pair::new();
    let (merge, ticker) = pair.merge(&Config::forced());
    drop(pair.split(&Senders::default()));
    let (from, to) = pair.sockets();
    from.send(&payload(0)).unwrap();
    drop((merge, ticker));
    from.send(&payload(1)).unwrap();
    assert_eq!(receive(&to, 1), [1], "what was held is lost, what comes after is not");
    // The kernel frees a filter's program a little later, so the filter itself is asked for.
    let filters = || {
        let tc = ["filter", "show", "dev", "eth0", "ingress"];
        Ok(String::from_utf8(std::process::Command::new("tc").args(tc).output()?.stdout).unwrap())
    };
    let find = || Split::find(ip::index("eth0")?).map_err(std::io::Error::other);
    assert!(pair.b.run(find).unwrap().is_some());
    assert!(pair.b.run(filters).unwrap().contains("sheaf_split"));
    pair.b
        .run(|| Split::detach("eth0", ip::index("eth0")?).map_err(std::io::Error::other))
        .unwrap();
    assert!(!pair.b.run(filters).unwrap().contains("sheaf_split"));
}

#[test]
fn an_idle_device_takes_packets_at_once_and_a_busy_one_makes_them_gather() {
    let pair = Pair::new();
    let config = Config { policy: Policy::Busy, ..Config::default() };
    let (mut merge, mut ticker) = pair.merge(&config);
    let _split = pair.split(&anywhere());
    let (from, to) = pair.sockets();
    merge.device().tell(merge.device().read().sent, 50);
    from.send(&payload(0)).unwrap();
    assert_eq!(receive(&to, 1), [0]);
    // The frame is not done yet: the next ones gather until a tick.
    for number in 1..11 {
        merge.device().looks();
        from.send(&payload(number)).unwrap();
    }
    let now = clock::now().as_nanos();
    let Some(Event::Waits { slot, oldest }) = merge.event() else { panic!("nothing waits") };
    assert!(oldest <= now);
    assert_eq!(merge.queue(slot).unwrap().packets, 10);
    assert!(ticker.tick(Tick::new(slot, Cause::Ready)).unwrap());
    assert_eq!(receive(&to, 10), (1..11).collect::<Vec<_>>());
    assert_eq!(merge.stats().unwrap()[0].1.meta_packets, 1);
}

#[test]
fn who_is_heard_late_when_asked_looks_for_probes_by_itself_while_packets_leave_in_place() {
    let pair = Pair::new();
    let config = Config { policy: Policy::Busy, ..Config::default() };
    let (from, _to) = pair.sockets();
    let open = || {
        let ifindex = ip::index("eth0")?;
        let mut controller = Controller::attach("eth0", ifindex, MAC_A, &config, COOKIE)?;
        controller.merge.set_hop(MAC_B, Hop::new(0, Outer::V4 { src: A, dst: B }, 500, 1500))?;
        controller.track(false)?;
        Ok(controller)
    };
    let open = || open().map_err(|error: sheaf_bpf::Error| std::io::Error::other(error));
    let mut controller = pair.a.run(open).unwrap();
    let run = |controller: &mut Controller, now: Instant| {
        pair.a.run(|| controller.run(now).map_err(std::io::Error::other)).unwrap()
    };
    // The first packets that follow each other closely hold a probe, which asks.
    let mut number = 0;
    let mut probe = |controller: &Controller| {
        while controller.merge.device().read().held == 0 {
            assert!(number < 1000, "a packet is a probe");
            from.send(&payload(number)).unwrap();
            number += 1;
        }
    };
    probe(&controller);
    let now = clock::now() + Duration::from_millis(10);
    run(&mut controller, now);
    let round = now + Duration::from_millis(64);
    assert_eq!(run(&mut controller, now + Duration::from_millis(5)), Some(round));
    // The machine may come later than the program bears.
    controller.merge.device().look_at(u64::MAX);
    timer::wait(&mut Poller::default(), 0, round, Duration::ZERO).unwrap();
    probe(&controller);
    run(&mut controller, round);
    assert_eq!(controller.merge.device().read().held, 0);
    // Long after the last packet nobody has to look.
    let late = clock::now() + Duration::from_secs(1);
    run(&mut controller, late);
    assert_eq!(run(&mut controller, late + Duration::from_secs(1)), None);
}

/// Packets that are sent one after the other until one is a probe, the first of at most `most`,
/// while all gates have a rule with an overdue probe, `between`, and `dense`; and how many of them
/// left alone.
fn sent_until_a_probe(between: u32, dense: Duration, most: u32) -> (u32, u64) {
    let pair = Pair::new();
    let config = Config { policy: Policy::Busy, ..Config::default() };
    let (merge, _ticker) = pair.merge(&config);
    let (from, _to) = pair.sockets();
    let rule = Rule { reaction: Duration::from_secs(1), between, dense, ..Rule::OPEN };
    (0..SLOTS).for_each(|slot| merge.gates().set(slot, rule));
    let mut sent = 0;
    while merge.device().read().held == 0 {
        assert!(sent < most, "no packet was a probe");
        from.send(&payload(sent)).unwrap();
        sent += 1;
    }
    (sent, merge.stats().unwrap()[0].1.unaggregated_packets)
}

#[test]
fn where_a_probe_waits_long_for_user_space_so_many_packets_leave_in_place_before_it() {
    let (sent, alone) = sent_until_a_probe(128, Duration::ZERO, 1000);
    // A machine that halts for longer than packets of a probe follow each other makes it later.
    assert!(sent > 128, "the packet number {sent} was a probe");
    assert_eq!(alone, u64::from(sent) - 1);
}

#[test]
fn where_little_is_known_packets_close_to_each_other_are_probes_at_once() {
    // A machine that halts for longer than packets of a probe follow each other makes it later.
    sent_until_a_probe(128, Duration::from_secs(4), 128);
}

#[test]
fn a_small_frame_of_a_stranger_is_ahead_of_nobody_in_an_empty_fifo() {
    let pair = Pair::new();
    let config = Config { policy: Policy::Busy, ..Config::default() };
    let (merge, _ticker) = pair.merge(&config);
    let raw = pair.a.run(|| PacketSocket::open(ip::index("eth0")?)).unwrap();
    let (device, gates) = (merge.device(), merge.gates());
    device.set_fifo(true);
    let pass = |len: usize| {
        let before = device.read().passed;
        let mut frame = vec![0; len];
        frame[..6].copy_from_slice(&MAC_B);
        raw.send(&frame).unwrap();
        device.read().passed - before
    };
    // What the interface said as it came up is gone.
    gates.strangers_left(0, device.read().passed);
    assert_eq!((pass(256), pass(60)), (0, 0));
    assert_eq!((pass(257), pass(60)), (1, 1), "behind a large one it may wait");
    gates.strangers_left(0, device.read().passed);
    gates.set(0, Rule { closed: true, probe_at: Instant::MAX, ..Rule::OPEN });
    assert_eq!(pass(60), 1, "behind frames of ours it may wait");
}

#[test]
fn on_an_idle_device_packets_of_two_processors_do_not_wait_for_each_other() {
    let pair = Pair::new();
    // As a device that is always free: nothing that is sent makes the next packet wait.
    let config = Config { policy: Policy::Busy, inflight: u32::MAX, ..Config::default() };
    let (merge, _ticker) = pair.merge(&config);
    let (from, _to) = pair.sockets();
    let sockets = [from.try_clone().unwrap(), from];
    merge.device().tell(0, u32::MAX);
    std::thread::scope(|scope| {
        for from in &sockets {
            let merge = &merge;
            scope.spawn(move || {
                for number in 0..20_000 {
                    merge.device().looks();
                    from.send(&payload(number)).unwrap();
                }
            });
        }
    });
    let [(_, stats)] = &merge.stats().unwrap()[..] else { panic!("one next hop") };
    assert_eq!((stats.unaggregated_packets, stats.aggregated_packets), (40_000, 0));
}

/// A frame to B around `packet`.
fn framed(packet: &[u8]) -> Vec<u8> {
    let mut frame = [MAC_B, MAC_A].concat();
    frame.extend_from_slice(&[8, 0]);
    frame.extend_from_slice(packet);
    frame
}

fn meta(inner: &[u8]) -> Vec<u8> {
    use sheaf_wire::ecn::Ecn;
    use sheaf_wire::meta::{HOP_LIMIT_NEIGHBOUR, Repr};
    let outer = Outer::V4 { src: A, dst: B };
    let repr = Repr { outer, dscp: 0, ecn: Ecn::NotEct, hop_limit: HOP_LIMIT_NEIGHBOUR };
    let mut bytes = vec![0; 20];
    bytes.extend_from_slice(inner);
    let len = bytes.len();
    repr.emit(len.min(2048), &mut bytes);
    bytes
}

fn reseal(bytes: &mut [u8]) {
    bytes[10..12].fill(0);
    let checksum = sheaf_wire::checksum::ipv4_header(&bytes[..20]);
    bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
}

#[test]
fn each_fault_of_a_meta_packet_is_counted_by_its_reason_and_nothing_of_it_delivered() {
    let pair = Pair::new();
    let split = pair.split(&Senders::neighbours([A.into()]));
    let (_from, to) = pair.sockets();
    to.set_nonblocking(true).unwrap();
    let raw = pair.a.run(|| PacketSocket::open(ip::index("eth0")?)).unwrap();
    let inner = {
        let mut packet = Vec::new();
        let builder = etherparse::PacketBuilder::ipv4(A.octets(), B.octets(), 64).udp(9, 5004);
        builder.write(&mut packet, &payload(1)).unwrap();
        packet
    };
    let two = [inner.clone(), inner.clone()].concat();
    let good = meta(&two);
    let change = |edit: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        edit(&mut bytes);
        bytes
    };
    let cases = [
        ("truncated", change(&|bytes| bytes.truncate(100))),
        ("truncated", meta(&two[..100])),
        ("truncated", meta(&[])),
        ("trailing", meta(&[&two[..], &[0; 9]].concat())),
        ("nested", meta(&good)),
        ("bad-version", meta(&[0x11; 60])),
        ("bad-checksum", change(&|bytes| bytes[10] ^= 1)),
        ("options", change(&|bytes| bytes[0] = 0x46)),
        (
            "fragment",
            change(&|bytes| {
                bytes[6] = 0x20;
                reseal(bytes);
            }),
        ),
        (
            "unknown-peer",
            change(&|bytes| {
                bytes[15] = 77;
                reseal(bytes);
            }),
        ),
    ];
    for (reason, bytes) in cases {
        let before = split.counters().unwrap();
        // The model refuses it for the same reason (but knows no peers).
        if reason != "unknown-peer" {
            assert_eq!(Meta::parse(&bytes).unwrap_err().name(), reason);
        }
        raw.send(&framed(&bytes)).unwrap();
        let after = split.counters().unwrap();
        assert_eq!(after[reason], before[reason] + 1, "{reason}: {after:?}");
        assert_eq!(after["packets"], before["packets"], "{reason}");
    }
    assert!(to.recv(&mut [0; 100]).is_err(), "nothing was delivered");
    raw.send(&framed(&good)).unwrap();
    to.set_nonblocking(false).unwrap();
    assert_eq!(receive(&to, 2), [1, 1], "a sound one is");
    assert!(Ip::parse(&inner).is_ok());
}
