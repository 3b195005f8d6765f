//! A trunk over WireGuard: what the manual shows in docs/trunk.md. Needs root, Debian's
//! wireguard-tools, and WireGuard in the kernel or as wireguard-go; says so in a line where one is
//! missing.

mod pair;
mod patient;
mod wire;

use pair::Pair;
use patient::patient;
use sheaf_netio::ip;
use sheaf_netio::packet::PacketSocket;
use std::net::UdpSocket;
use wire::{Key, Wire};

/// Words that only the application knows.
const SECRET: &[u8] = b"nobody else may read this";

#[test]
fn nothing_can_be_read_on_the_cables_of_a_trunk_over_wireguard_and_its_mtu_fits() {
    if let Some(missing) = wire::missing() {
        eprintln!("skipped: {missing}");
        return;
    }
    let pair = Pair::new(2);
    let keys = [Key::new(), Key::new()];
    let wires: Vec<Wire> = (0..2).flat_map(|cable| Wire::both(&pair, cable, &keys)).collect();
    // Host 1 names both ends of each path, host 2 learns where the other is.
    let member = |cable: usize| {
        let [here, there] = [0, 1].map(|host| wires[2 * cable + host].name.as_str());
        let path = format!("path 10.9.{cable}.1@{here} 10.9.{cable}.2");
        [path, format!("path 10.9.{cable}.2@{there}")]
    };
    let members = [member(0), member(1)];
    let sniffers = [0, 1].map(|cable| {
        let open = || PacketSocket::open(ip::index(&format!("if{cable}"))?);
        pair.hosts[1].run(open).unwrap()
    });
    let (here, there) = pair.trunks(&members);
    // 1500 less 60 for WireGuard over IPv4, 28 for IPv4 and UDP inside, 8 for the trunk.
    assert_eq!(here.shown()["mtu"], 1404);
    pair.transfer("10.99.0.2:5001", 1 << 20);
    // How they share the file depends on how often this machine gives everybody a turn.
    let received = |link| pair::number(&there.shown(), &["links", link, "frames_received"]);
    let frames = received("0") + received("1");
    assert!(frames > 700, "{frames} frames for a megabyte");
    let to = pair.hosts[1].run(|| UdpSocket::bind("10.99.0.2:6000")).unwrap();
    let from = pair.hosts[0].run(|| UdpSocket::bind("10.99.0.1:0")).unwrap();
    let tell = || {
        from.send_to(SECRET, "10.99.0.2:6000").unwrap();
        let mut heard = [0; 64];
        let len = patient(|| to.recv(&mut heard)).unwrap();
        assert_eq!(&heard[..len], SECRET);
    };
    sniffers.iter().for_each(|sniffer| drop(seen(sniffer)));
    tell();
    let frames: Vec<_> = sniffers.iter().flat_map(seen).collect();
    assert!(!frames.is_empty(), "it went over one of the cables");
    assert!(!frames.iter().any(|frame| contains(frame, SECRET)), "in clear");
    drop((here, there));

    // Without WireGuard it stands in the frame: what the manual warns of, and the sniffer works.
    let _trunks = pair.trunks(&pair.paths());
    sniffers.iter().for_each(|sniffer| drop(seen(sniffer)));
    tell();
    assert!(sniffers.iter().flat_map(seen).any(|frame| contains(&frame, SECRET)));
}

/// All frames that a socket has.
fn seen(socket: &PacketSocket) -> Vec<Vec<u8>> {
    let mut buffer = vec![0; 1 << 16];
    let next = || socket.receive(&mut buffer).unwrap().map(|len| buffer[..len].to_vec());
    std::iter::from_fn(next).collect()
}

fn contains(frame: &[u8], words: &[u8]) -> bool {
    frame.windows(words.len()).any(|window| window == words)
}
