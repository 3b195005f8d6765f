//! What goes through: downloads, a constant stream, a game and a call.

use crate::world::{CLIENT, World, be_first, server_of};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::TcpCongestion;
use sheaf_netio::clock;
use sheaf_netio::poller::Poller;
use sheaf_stage::{Duration, Instant};
use sheaf_voice::emodel::Codec;
use sheaf_voice::meter::Meter;
use sheaf_voice::packet::Stamp;
use sheaf_voice::playout::Heard;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

/// Interval and bytes of each UDP flow: 200 packets of 1 KB a second, a game, a G.711 call.
const FLOWS: [(Duration, usize); 3] = [
    (Duration::from_millis(5), 1000),
    (Duration::from_millis(40), 200),
    (Duration::from_millis(20), Stamp::len(Codec::G711)),
];
const GAME: usize = 1;
const CALL: usize = 2;
const PORT: u16 = 5004;

/// Waits for `time`.
pub fn wait(time: Duration) {
    let until = clock::now() + time;
    loop {
        let left = until.saturating_since(clock::now());
        if left == Duration::ZERO {
            return;
        }
        Poller::default().wait(Some(left)).expect("it can wait");
    }
}

/// Downloads that run.
pub struct Downloads {
    ends: Vec<TcpStream>,
    bytes: Vec<Arc<AtomicU64>>,
}

impl Downloads {
    /// `count` downloads with `congestion` control, over the server's `classes` addresses in turn.
    pub fn start(world: &World, count: usize, classes: usize, congestion: &str) -> Downloads {
        let mut downloads = Downloads { ends: Vec::new(), bytes: Vec::new() };
        let listen = || TcpListener::bind("0.0.0.0:80");
        let listener = world.server.run(listen).expect("the port is free");
        for number in 0..count {
            let to = format!("{}:80", server_of(number % classes));
            let near = world.client.run(|| TcpStream::connect(&to)).expect("it connects");
            let (mut far, _) = listener.accept().expect("it connects");
            setsockopt(&far, TcpCongestion, &OsString::from(congestion)).expect("it is there");
            let bytes = Arc::new(AtomicU64::new(0));
            downloads.ends.push(near.try_clone().expect("a descriptor"));
            downloads.bytes.push(bytes.clone());
            std::thread::spawn(move || while far.write_all(&[0; 16384]).is_ok() {});
            std::thread::spawn(move || receive(near, &bytes));
        }
        downloads
    }

    /// Bytes that have arrived, by download.
    pub fn bytes(&self) -> Vec<u64> {
        self.bytes.iter().map(|bytes| bytes.load(Ordering::Relaxed)).collect()
    }
}

impl Drop for Downloads {
    fn drop(&mut self) {
        for end in &self.ends {
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

fn receive(mut from: TcpStream, bytes: &AtomicU64) {
    let mut buffer = vec![0; 65536];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        bytes.fetch_add(read as u64, Ordering::Relaxed);
    }
}

/// The UDP flows, from server to client.
pub struct Streams {
    is_over: Arc<AtomicBool>,
    sender: JoinHandle<[u32; 3]>,
    receiver: JoinHandle<Received>,
    socket: UdpSocket,
}

/// What arrived.
struct Received {
    meters: [Meter; 3],
    /// When game packets arrived, and their numbers.
    game: Vec<(u32, Instant)>,
}

/// How the game and the call fared.
pub struct Quality {
    /// Inter-arrival time of game packets that followed each other, ms: half and 99 % have less.
    pub gaps: [f64; 2],
    /// One-way delay that 99 % of the game's packets do not exceed, ms.
    pub delay: f64,
    /// Share of packets lost, by flow: stream, game, call.
    pub loss: [f64; 3],
    /// Rating of the call.
    pub r: f64,
}

impl Streams {
    /// They run until [`Streams::stop`].
    pub fn start(world: &World) -> Streams {
        let is_over = Arc::new(AtomicBool::new(false));
        let to = world.client.run(|| UdpSocket::bind((CLIENT, PORT))).expect("the port is free");
        let from = world
            .server
            .run(|| {
                let socket = UdpSocket::bind((server_of(0), 0))?;
                socket.connect((CLIENT, PORT))?;
                Ok(socket)
            })
            .expect("a route leads there");
        let over = is_over.clone();
        let sender = std::thread::spawn(move || send(&from, &over));
        let (socket, over) = (to.try_clone().expect("a descriptor"), is_over.clone());
        let receiver = std::thread::spawn(move || listen(&to, &over));
        Streams { is_over, sender, receiver, socket }
    }

    /// Ends them and looks at what arrived.
    pub fn stop(self) -> Quality {
        self.is_over.store(true, Ordering::Relaxed);
        let sent = self.sender.join().expect("it does not panic");
        // What is under way arrives; then an empty packet ends the receiver.
        wait(Duration::from_millis(1000));
        let own = self.socket.local_addr().expect("it is bound");
        self.socket.send_to(&[], own).expect("to itself");
        let Received { meters, game } = self.receiver.join().expect("it does not panic");
        let follow = |pair: &[(u32, Instant)]| {
            let (before, after) = (pair[0], pair[1]);
            (after.0 == before.0 + 1).then(|| (after.1 - before.1).as_secs_f64() * 1e3)
        };
        let mut gaps: Vec<f64> = game.windows(2).filter_map(follow).collect();
        gaps.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| gaps.get((gaps.len() as f64 * share) as usize).copied();
        let sent = sent.map(u64::from);
        Quality {
            gaps: [0.5, 0.99].map(|share| at(share).unwrap_or(f64::NAN)),
            delay: meters[GAME].delay_quantile(0.99).as_secs_f64() * 1e3,
            loss: std::array::from_fn(|flow| meters[flow].loss(sent[flow])),
            r: Heard::best(Codec::G711, &meters[CALL], sent[CALL]).r,
        }
    }
}

/// Sends each flow on its beat; answers how many packets.
fn send(socket: &UdpSocket, is_over: &AtomicBool) -> [u32; 3] {
    be_first();
    let started = clock::now();
    let mut sent = [0; 3];
    let mut payload = [0; 1000];
    while !is_over.load(Ordering::Relaxed) {
        let due = |flow: usize| started + FLOWS[flow].0 * sent[flow];
        let flow = (0..FLOWS.len()).min_by_key(|flow| due(*flow)).expect("there are flows");
        let left = due(flow).saturating_since(clock::now());
        if left > Duration::ZERO {
            wait(left);
        }
        let stamp = Stamp { flow: flow as u32, number: sent[flow], sent: clock::now() };
        stamp.emit(Codec::G711, &mut payload[..Stamp::len(Codec::G711)]);
        // A full device queue is a loss like any other.
        let _ = socket.send(&payload[..FLOWS[flow].1]);
        sent[flow] += 1;
    }
    sent
}

fn listen(socket: &UdpSocket, is_over: &AtomicBool) -> Received {
    be_first();
    let mut received = Received { meters: Default::default(), game: Vec::new() };
    let mut buffer = [0; 2048];
    while let Ok(read) = socket.recv(&mut buffer) {
        let now = clock::now();
        if read == 0 && is_over.load(Ordering::Relaxed) {
            break;
        }
        let Some(stamp) = Stamp::parse(&buffer[..read]) else { continue };
        let Some(meter) = received.meters.get_mut(stamp.flow as usize) else { continue };
        meter.arrived(stamp, now);
        if stamp.flow as usize == GAME {
            received.game.push((stamp.number, now));
        }
    }
    received
}
