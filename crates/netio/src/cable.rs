//! Two hosts on a cable, for the tests of this crate.

use crate::ip;
use crate::netns::Namespace;
use std::net::{IpAddr, UdpSocket};

/// Two namespaces joined by their `eth0`: 10.0.0.1 and fd00::1, 10.0.0.2 and fd00::2.
pub fn hosts() -> [Namespace; 2] {
    let (here, there) = (Namespace::new().unwrap(), Namespace::new().unwrap());
    let other = there.path();
    let set = |host: u8| {
        ip::run(&format!("addr add 10.0.0.{host}/24 dev eth0"))?;
        ip::run(&format!("addr add fd00::{host}/64 dev eth0 nodad"))?;
        ip::run("link set eth0 up")
    };
    here.run(|| {
        ip::run(&format!("link add eth0 type veth peer name eth0 netns {other}"))?;
        set(1)
    })
    .unwrap();
    there.run(|| set(2)).unwrap();
    for (host, address) in [(&here, "fd00::1"), (&there, "fd00::2")] {
        host.run(|| {
            wait_for(address.parse().unwrap());
            Ok(())
        })
        .unwrap();
    }
    [here, there]
}

/// Waits until what is sent to `address`, which this host has just been given, arrives.
///
/// The kernel makes the local route to an IPv6 address a little after the address and the route
/// of its prefix; what is sent in between is lost.
pub fn wait_for(address: IpAddr) {
    let is_delivered = || {
        let socket = UdpSocket::bind((address, 0))?;
        socket.set_nonblocking(true)?;
        socket.send_to(&[0], socket.local_addr()?)?;
        // On the loopback interface it is there when the call returns.
        socket.recv(&mut [0])
    };
    while is_delivered().is_err() {}
}
