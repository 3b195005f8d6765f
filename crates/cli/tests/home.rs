//! The scripts that send all traffic of a home through a server, in packaging/examples. Needs root
//! and nft, which scripts/setup --tests installs.

mod pair;

use pair::{Pair, Trunk};
use sheaf_netio::ip;
use sheaf_netio::netns::Namespace;
use sheaf_netio::packet::PacketSocket;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;

/// Bytes that go each way: many full segments.
const BYTES: usize = 1 << 20;

/// Runs a shell command on a host; what it says.
fn shell(host: &Namespace, line: &str) -> String {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/examples");
    let mut command = Command::new("sh");
    command.args(["-e", "-c", line]).current_dir(examples);
    host.enter(&mut command);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{line}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Routes of a host, its rules of nftables, and whether it forwards.
fn state(host: &Namespace) -> String {
    let forward = "cat /proc/sys/net/ipv4/ip_forward";
    shell(host, &format!("ip -4 route; ip -6 route show default; nft list ruleset; {forward}"))
}

/// Joins two hosts by a cable; `here` and `there` are the host, its interface and its address.
fn join(here: (&Namespace, &str, &str), there: (&Namespace, &str, &str)) {
    let (dev, other) = (here.1, there.1);
    let path = there.0.path();
    shell(here.0, &format!("ip link add {dev} type veth peer name {other} netns {path}"));
    for (host, dev, address) in [here, there] {
        shell(host, &format!("ip addr add {address} dev {dev}; ip link set {dev} up"));
    }
}

/// The flags of a SYN and of its acknowledgement, and the bits in which they differ.
const SYN: u8 = 0x02;
const SYN_ACK: u8 = 0x12;

/// The largest segment for which the first packet with these `flags` asks.
fn asked_in(flags: u8, socket: &PacketSocket) -> u16 {
    let mut frame = vec![0; 1 << 16];
    while let Some(len) = socket.receive(&mut frame).unwrap() {
        // Behind the Ethernet header, IPv4 without options.
        let Some(tcp) = frame[..len].get(34..).filter(|tcp| tcp.len() >= 24) else { continue };
        // The maximum segment size is the first option of Linux.
        if frame[23] == 6 && tcp[13] & SYN_ACK == flags && tcp[20] == 2 {
            return u16::from_be_bytes([tcp[22], tcp[23]]);
        }
    }
    panic!("none passed");
}

#[test]
fn a_home_behind_a_trunk_reaches_the_internet_under_the_servers_address_and_down_leaves_nothing() {
    let pair = Pair::new(2);
    let [home, server] = &pair.hosts;
    let (lan, far) = (Namespace::new().unwrap(), Namespace::new().unwrap());
    join((&lan, "eth0", "192.168.7.2/24"), (home, "lan0", "192.168.7.1/24"));
    join((server, "wan0", "203.0.113.1/24"), (&far, "eth0", "203.0.113.9/24"));
    shell(&lan, "ip route add default via 192.168.7.1");
    // The uplinks as dhclient and pppd leave them, and a router that forwards.
    shell(home, "ip route add default via 10.1.0.2 dev if0");
    shell(home, "ip route add default via 10.1.1.2 dev if1 metric 100");
    shell(home, "echo 1 >/proc/sys/net/ipv4/ip_forward");
    // The server is behind the default routes of the uplinks.
    shell(server, "ip addr add 198.51.100.1/32 dev if0; ip addr add 198.51.100.2/32 dev if1");
    // Hosts do not hear that a packet is too large, as on much of the internet.
    for host in [&lan, &far] {
        let hook = "type filter hook input priority 0";
        let rule = "icmp type destination-unreachable drop";
        shell(
            host,
            &format!("echo 'table ip deaf {{ chain in {{ {hook}; {rule}; }}; }}' | nft -f -"),
        );
    }
    let before = [home, server].map(state);

    let line = "trunk t0 path 198.51.100.1 path 198.51.100.2 plain address 10.99.0.2/24";
    let mut there = Trunk::start(server, line);
    let line = "trunk t0 path if0 198.51.100.1 path if1 198.51.100.2 plain address 10.99.0.1/24";
    let mut here = Trunk::start(home, line);
    for trunk in [&mut here, &mut there] {
        (0..2).for_each(|_| trunk.wait_for("is up"));
    }
    let between = [home, server].map(state);
    shell(server, "./trunk-server up t0");
    shell(home, "./trunk-home up t0");
    // Again is no error, and does nothing twice.
    shell(server, "./trunk-server up t0");
    shell(home, "./trunk-home up t0");

    let listener = far.run(|| TcpListener::bind("203.0.113.9:5001")).unwrap();
    let sniff = |host: &Namespace| host.run(|| PacketSocket::open(ip::index("eth0")?)).unwrap();
    let (at_far, at_lan) = (sniff(&far), sniff(&lan));
    let inside = lan.run(|| TcpStream::connect("203.0.113.9:5001")).unwrap();
    let (outside, peer) = listener.accept().unwrap();
    assert_eq!(peer.ip().to_string(), "203.0.113.1", "the far host sees the server");
    let fits = home.run(|| ip::mtu("t0")).unwrap() as u16 - 40;
    assert_eq!(asked_in(SYN, &at_far), fits, "what the far host may send");
    assert_eq!(asked_in(SYN_ACK, &at_lan), fits, "what the host at home may send");
    for (mut from, mut to) in [(&inside, &outside), (&outside, &inside)] {
        let mut received = vec![0; BYTES];
        std::thread::scope(|scope| {
            scope.spawn(|| from.write_all(&[7; BYTES]).unwrap());
            to.read_exact(&mut received).unwrap();
        });
        assert!(received.iter().all(|byte| *byte == 7));
    }
    let shown = here.shown();
    assert!(pair::number(&shown, &["packets_sent"]) > 500, "it took the trunk: {shown}");
    for link in [0, 1] {
        assert_eq!(shown["links"][link]["up"], true, "and the trunk the uplinks: {shown}");
    }

    shell(home, "./trunk-home down t0");
    shell(server, "./trunk-server down t0");
    assert_eq!([home, server].map(state), between);
    // Where the trunk went first, too.
    shell(server, "./trunk-server up t0");
    shell(home, "./trunk-home up t0");
    here.kill();
    there.kill();
    shell(home, "./trunk-home down t0");
    shell(server, "./trunk-server down t0");
    assert_eq!([home, server].map(state), before);
}

#[test]
fn ipv6_takes_the_uplinks_the_trunk_or_no_way_as_the_home_says() {
    let pair = Pair::new(1);
    let home = &pair.hosts[0];
    let _here = Trunk::start(home, "trunk t0 path 10.1.0.1 plain address fd99::1/64");
    shell(home, "ip -6 route add default via fd01:1::2 dev if0 metric 1024");
    let before = state(home);
    let way = || shell(home, "ip -6 route get 2001:db8::1 2>&1 || :");
    for (policy, dev) in [("leave", Some("if0")), ("trunk", Some("t0")), ("block", None)] {
        shell(home, &format!("IPV6={policy} ./trunk-home up t0"));
        let way = way();
        let over = ["if0", "t0"].into_iter().find(|dev| way.contains(&format!(" dev {dev} ")));
        assert_eq!(over, dev, "{policy}: {way}");
        shell(home, "./trunk-home down t0");
        assert_eq!(state(home), before, "{policy}");
    }
    let refused = shell(home, "IPV6=on ./trunk-home up t0 2>&1 || echo failed");
    assert!(refused.ends_with("give leave, trunk or block\nfailed\n"), "{refused}");
    assert_eq!(state(home), before, "and nothing is left");
}
