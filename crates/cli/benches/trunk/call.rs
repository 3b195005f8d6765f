//! A G.711 call beside a download over 3 × 20 Mbit/s, of which one link loses a tenth both ways:
//! with the copies that class EF gets by default, and without.

use crate::load::{Load, Target, wait};
use crate::pair::{Pair, Service, Trunk};
use crate::{FAR, WARM, Wanted};
use nix::sys::socket::{setsockopt, sockopt};
use sheaf_netio::{clock, scheduling};
use sheaf_stage::Duration;
use sheaf_voice::emodel::Codec;
use sheaf_voice::meter::Meter;
use sheaf_voice::packet::Stamp;
use sheaf_voice::playout::Heard;
use std::net::UdpSocket;

/// Time from a packet of a call to the next.
pub const BEAT: Duration = Duration::from_millis(20);
const PACKETS: u32 = 400;
/// Longer than any packet of a call is under way on any link here.
const UNDER_WAY: Duration = Duration::from_secs(1);
const PORT: u16 = 6000;
/// Expedited forwarding (RFC 3246) in the place of the type of service.
const EF: i32 = 46 << 2;

/// Prints both treatments.
pub fn both(wanted: &Wanted) {
    for (name, words) in [("copies", ""), ("no copies", "copies none")] {
        let name = format!("call: {name}");
        if wanted.case(&name) {
            println!("{name:16} {}", beside_a_download(words));
        }
    }
}

fn beside_a_download(words: &str) -> String {
    let pair = Pair::new(3).shaped(&[20; 3]);
    let loss = "emulate dev if1 egress loss 10% seed 7";
    let lossy = |host| Service::start(host, loss, "emulating ");
    let _lossy: Vec<_> = pair.hosts.iter().map(lossy).collect();
    let trunks: (Trunk<'_>, Trunk<'_>) = pair.trunks_with(&pair.paths(), words);
    let load = Load::start(&pair, &Target::Tcp(FAR), (1, "cubic"));
    load.measure(WARM);
    let (meter, rate) = hold(&pair, &load, PACKETS);
    drop(load);
    crate::show(&trunks);
    let sent = u64::from(PACKETS);
    format!(
        "R {:.1}; {:.2} % lost, {} twice, delay p99 {:.1} ms; download {rate:.2} Mbit/s",
        Heard::best(Codec::G711, &meter, sent).r,
        meter.loss(sent) * 100.0,
        meter.duplicates(),
        meter.delay_quantile(0.99).as_secs_f64() * 1e3
    )
}

/// A call of so many packets from host 1 to host 2 through the trunk: what its listener met with,
/// and the Mbit/s of the load beside it.
pub fn hold(pair: &Pair, load: &Load, packets: u32) -> (Meter, f64) {
    let to = pair.hosts[1].run(|| UdpSocket::bind((FAR, PORT))).expect("the port is free");
    let from = pair.hosts[0].run(|| UdpSocket::bind("10.99.0.1:0")).expect("it is ours");
    setsockopt(&from, sockopt::Ipv4Tos, &EF).expect("any class may be set");
    let own = to.try_clone().expect("a descriptor");
    let listener = std::thread::spawn(move || listen(&to));
    let talk = || std::thread::spawn(move || talk(&from, packets)).join();
    let (talked, rate) = load.meanwhile(talk);
    talked.expect("it does not panic");
    // What is under way arrives; then an empty packet to itself ends the listener.
    wait(UNDER_WAY);
    own.send_to(&[], (FAR, PORT)).expect("to itself");
    (listener.join().expect("it does not panic"), rate)
}

fn talk(socket: &UdpSocket, packets: u32) {
    scheduling::realtime_if_allowed();
    let started = clock::now();
    let mut bytes = [0; Stamp::len(Codec::G711)];
    for number in 0..packets {
        wait((started + BEAT * number).saturating_since(clock::now()));
        Stamp { flow: 0, number, sent: clock::now() }.emit(Codec::G711, &mut bytes);
        // A full queue is a loss like any other.
        let _ = socket.send_to(&bytes, (FAR, PORT));
    }
}

fn listen(socket: &UdpSocket) -> Meter {
    scheduling::realtime_if_allowed();
    let (mut meter, mut bytes) = (Meter::default(), [0; 2048]);
    while let Ok(len @ 1..) = socket.recv(&mut bytes) {
        if let Some(stamp) = Stamp::parse(&bytes[..len]) {
            meter.arrived(stamp, clock::now());
        }
    }
    meter
}
