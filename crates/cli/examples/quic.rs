//! One QUIC flow between two named network namespaces, for `scripts/bench-mixes`.
//!
//!     quic FROM TO ADDRESS:PORT WARM SECONDS
//!
//! Prints the bytes that arrive in `SECONDS` seconds, from `WARM` seconds after the beginning on.

use sheaf_netio::netns::Namespace;
use sheaf_netio::{clock, poller::Poller, timer};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[path = "../benches/trunk/quic.rs"]
mod quic;

fn main() {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let [from, to, address, warm, seconds] = &words[..] else {
        eprintln!("quic: five words are needed: FROM TO ADDRESS:PORT WARM SECONDS");
        std::process::exit(2);
    };
    let address: SocketAddr = address.parse().expect("ADDRESS:PORT");
    let [warm, seconds] =
        [warm, seconds].map(|word| Duration::from_secs_f64(word.parse().expect("seconds")));
    let bound = |name: &str, address: SocketAddr| {
        let namespace = Namespace::named(name).expect("a namespace with this name");
        namespace.run(|| UdpSocket::bind(address)).expect("the port is free")
    };
    let began = clock::now();
    let any = SocketAddr::new(std::net::Ipv4Addr::UNSPECIFIED.into(), 0);
    let sockets = [bound(from, any), bound(to, address)];
    let received = Arc::new(AtomicU64::new(0));
    let (threads, end) = quic::start(sockets, received.clone());
    let count_at = |time: Duration| {
        timer::wait(&mut Poller::default(), 0, began + time, Duration::ZERO).expect("a timer");
        received.load(Ordering::Relaxed)
    };
    let before = count_at(warm);
    println!("{}", count_at(warm + seconds) - before);
    end();
    threads.into_iter().for_each(|thread| thread.join().expect("no end panics"));
}
