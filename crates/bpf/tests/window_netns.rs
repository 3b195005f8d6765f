//! The window program between two namespaces, with Linux TCP at both ends. Needs root.

use aya::programs::{SchedClassifier, TcAttachType};
use nix::sys::socket::{MsgFlags, getsockopt, setsockopt, sockopt};
use sheaf_bpf::Window;
use sheaf_netio::socket::{bind_packet, request, set_option};
use sheaf_netio::{clock, ip};
use sheaf_stage::{Duration, Instant};
use sheaf_window::{
    Config, Connection, Controller, Direction, Formula, Half, Key, Passing, Rewriter,
};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};

mod common;
mod pair;
use common::{Layout, Packet, handshake};
use pair::{A, B, Pair};

const LIMIT: u32 = 20_000;

impl Pair {
    /// The program on A's interface; new flows of `direction` get [`LIMIT`].
    fn attach(&self, direction: Direction) -> Window {
        let attach = || Window::attach("eth0").map_err(io::Error::other);
        let mut window = self.a.run(attach).unwrap();
        window.set_initial(direction, LIMIT, u32::MAX);
        window.beat(clock::now()).unwrap();
        window
    }

    /// A connection that A opened: A's end, B's end, and what the program calls it.
    fn connect(&self) -> (TcpStream, TcpStream, Key) {
        let listener = self.b.run(|| TcpListener::bind((B, 80))).unwrap();
        let near = self.a.run(|| TcpStream::connect((B, 80))).unwrap();
        let (far, from) = listener.accept().unwrap();
        let SocketAddr::V4(from) = from else { panic!("an IPv4 connection") };
        for end in [&near, &far] {
            end.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            end.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
        }
        let key = Key::new((B.into(), 80), (A.into(), from.port()));
        (near, far, key)
    }

    /// The transmit checksums of both hosts are made by the CPU from now on, and verified.
    fn without_offload(&self) {
        for host in [&self.a, &self.b] {
            host.run(|| set_transmit_checksum("eth0", false)).unwrap();
        }
    }

    /// Segments that either host refused for their checksum.
    fn checksum_errors(&self) -> u64 {
        let errors = || {
            // The first line of "Tcp:" has the names, the second the numbers.
            let text = std::fs::read_to_string("/proc/thread-self/net/snmp")?;
            let mut lines = text.lines().filter(|line| line.starts_with("Tcp:"));
            let (names, numbers) = (lines.next().unwrap(), lines.next().unwrap());
            let mut pairs = names.split(' ').zip(numbers.split(' '));
            let (_, number) = pairs.find(|(name, _)| *name == "InCsumErrors").unwrap();
            Ok(number.parse::<u64>().unwrap())
        };
        self.a.run(errors).unwrap() + self.b.run(errors).unwrap()
    }
}

fn set_transmit_checksum(interface: &str, on: bool) -> io::Result<()> {
    const SIOCETHTOOL: libc::c_ulong = 0x8946;
    const ETHTOOL_STXCSUM: u32 = 0x17;
    let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
    let mut value = [ETHTOOL_STXCSUM, u32::from(on)];
    let mut request = request(interface)?;
    request.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
    // SAFETY: the request points to a struct ethtool_value; both live through the call.
    match unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sends `bytes` from one end to the other; calls `look` after each read.
fn transfer(mut from: &TcpStream, mut to: &TcpStream, bytes: usize, mut look: impl FnMut()) {
    std::thread::scope(|scope| {
        scope.spawn(move || from.write_all(&vec![7; bytes]).unwrap());
        let (mut buffer, mut left) = (vec![0; 65536], bytes);
        while left > 0 {
            let read = to.read(&mut buffer).unwrap();
            assert!(read > 0 && buffer[..read].iter().all(|byte| *byte == 7));
            left -= read;
            look();
        }
    });
}

fn flow(window: &Window, key: &Key) -> Connection {
    window.flow(key).expect("the program knows the connection")
}

/// Data of `direction` never has more than the limit in flight, and no checksum is wrong.
fn is_clamped(direction: Direction, offload: bool) {
    let pair = Pair::new();
    if !offload {
        pair.without_offload();
    }
    let mut window = pair.attach(direction);
    let (near, far, key) = pair.connect();
    let (from, to) = if direction == Direction::In { (&far, &near) } else { (&near, &far) };
    // What the other end may have in flight before the flow is known is used up first.
    transfer(from, to, 500_000, || window.beat(clock::now()).unwrap());
    let before = *flow(&window, &key).half(direction);
    // What may be in flight: an old acknowledgement that comes late has a larger window, but the
    // same right edge.
    let open = |half: &Half| half.edge.wrapping_sub(half.ack);
    let mut seen = Vec::new();
    transfer(from, to, 2_000_000, || {
        window.beat(clock::now()).unwrap();
        seen.push(open(flow(&window, &key).half(direction)));
    });
    let after = *flow(&window, &key).half(direction);
    assert!(after.clamped > before.clamped, "{after:?}");
    assert!(after.asked > LIMIT, "the receiver has room for more: {after:?}");
    // A reading in the midst of an update can have a new edge and an old acknowledgement.
    assert!(seen.iter().all(|open| *open <= 2 * LIMIT), "{seen:?}");
    assert!((1460..=LIMIT).contains(&open(&after)), "{after:?}");
    let sent = after.bytes - before.bytes;
    assert!((2_000_000..2_040_000).contains(&sent), "{sent}: hardly anything is sent twice");
    assert_eq!(pair.checksum_errors(), 0);
    let other = flow(&window, &key).half[direction.reverse().index()];
    assert_eq!(other.clamped, 0, "the other direction is not governed");
    assert!(after.rtt.count > 0 && other.rtt.count > 0, "both halves of the path are timed");
}

#[test]
fn a_download_is_held_to_its_window_with_checksums_left_to_the_device() {
    is_clamped(Direction::In, true);
}

#[test]
fn a_download_is_held_to_its_window_with_checksums_made_by_the_sender() {
    is_clamped(Direction::In, false);
}

#[test]
fn an_upload_is_held_to_its_window_with_checksums_left_to_the_device() {
    is_clamped(Direction::Out, true);
}

#[test]
fn an_upload_is_held_to_its_window_with_checksums_made_by_the_sender() {
    is_clamped(Direction::Out, false);
}

#[test]
fn a_receiver_that_stops_reading_closes_its_window_and_goes_on_when_it_reads_again() {
    let pair = Pair::new();
    let mut window = pair.attach(Direction::In);
    let (mut near, mut far, key) = pair.connect();
    std::thread::scope(|scope| {
        scope.spawn(move || far.write_all(&vec![7; 8_000_000]).unwrap());
        let give_up = clock::now() + Duration::from_secs(20);
        loop {
            window.beat(clock::now()).unwrap();
            let half = *flow(&window, &key).half(Direction::In);
            if half.bytes > 0 && half.asked == 0 {
                assert_eq!(half.written, 0, "a zero window stays one");
                break;
            }
            assert!(clock::now() < give_up, "the window never closed: {half:?}");
            std::thread::yield_now();
        }
        let mut buffer = vec![0; 65536];
        let mut left = 8_000_000;
        while left > 0 {
            window.beat(clock::now()).unwrap();
            left -= near.read(&mut buffer).unwrap();
        }
    });
}

/// Acknowledgements for each 100 full segments, each of which is read before the next is sent, as a
/// slow link delivers them.
fn acknowledgements(push: bool) -> usize {
    const SEGMENTS: usize = 200;
    let pair = Pair::new();
    let mut window = pair.attach(Direction::In);
    window.set_push(Direction::In, push);
    window.beat(clock::now()).unwrap();
    let (mut near, far, _) = pair.connect();
    // A receiver whose window grows acknowledges every segment meanwhile; this one's is grown.
    setsockopt(&near, sockopt::RcvBuf, &20_000).unwrap();
    let more = MsgFlags::from_bits_retain(libc::MSG_MORE);
    let mut segment = vec![7; getsockopt(&far, sockopt::TcpMaxSeg).unwrap() as usize];
    let before = window.totals(Direction::Out).unwrap().packets;
    for _ in 0..SEGMENTS {
        // With more to come the sender sets no push flag, and a full segment leaves all the same.
        let sent = nix::sys::socket::send(far.as_raw_fd(), &segment, more);
        assert_eq!(sent, Ok(segment.len()));
        near.read_exact(&mut segment).unwrap();
        window.beat(clock::now()).unwrap();
    }
    let acks = window.totals(Direction::Out).unwrap().packets - before;
    assert_eq!(pair.checksum_errors(), 0);
    acks as usize * 100 / SEGMENTS
}

#[test]
fn a_receiver_acknowledges_more_of_the_segments_when_they_are_pushed() {
    let (plain, pushed) = (acknowledgements(false), acknowledgements(true));
    // Every second one, after the first that a receiver acknowledges at once.
    assert!(plain < 75 && pushed > 95, "{plain} and, pushed, {pushed} for 100 segments");
}

#[test]
fn two_seconds_after_the_last_heartbeat_windows_are_the_receivers_again() {
    let pair = Pair::new();
    let mut window = pair.attach(Direction::In);
    let (near, far, key) = pair.connect();
    transfer(&far, &near, 500_000, || window.beat(clock::now()).unwrap());
    assert!(flow(&window, &key).half(Direction::In).clamped > 0);
    // As if the controller had been killed two seconds ago.
    window.beat(clock::now() - Duration::from_millis(2_010)).unwrap();
    let before = flow(&window, &key).half(Direction::In).clamped;
    transfer(&far, &near, 500_000, || {});
    let after = *flow(&window, &key).half(Direction::In);
    assert_eq!((after.clamped, after.written), (before, after.asked));
    assert!(after.written > LIMIT);
}

#[test]
fn when_the_loader_goes_the_programs_go() {
    let pair = Pair::new();
    let window = pair.attach(Direction::In);
    let attached = || {
        let hooks = [TcAttachType::Ingress, TcAttachType::Egress];
        let count = |hook| SchedClassifier::query_tcx("eth0", hook).map(|(_, all)| all.len());
        let counts = hooks.map(|hook| count(hook).unwrap());
        Ok(counts)
    };
    assert_eq!(pair.a.run(attached).unwrap(), [1, 1]);
    drop(window);
    assert_eq!(pair.a.run(attached).unwrap(), [0, 0]);
}

/// A packet socket that says of each frame whether its checksum is left to the device
/// (PACKET_VNET_HDR).
struct Offloading {
    socket: OwnedFd,
}

const VNET_HEADER: usize = 10;

impl Offloading {
    fn open() -> io::Result<Offloading> {
        use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
        let socket = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None)?;
        let on: libc::c_int = 1;
        set_option(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &on)?;
        nix::sys::socket::setsockopt(
            &socket,
            nix::sys::socket::sockopt::ReceiveTimeout,
            &nix::sys::time::TimeVal::new(20, 0),
        )?;
        bind_packet(&socket, ip::index("eth0")?, libc::ETH_P_ALL as u16)?;
        Ok(Offloading { socket })
    }

    fn send(&self, frame: &[u8], partial: bool, start: u16) {
        let mut bytes = vec![0; VNET_HEADER];
        if partial {
            bytes[0] = 1; // VIRTIO_NET_HDR_F_NEEDS_CSUM
            bytes[6..8].copy_from_slice(&start.to_ne_bytes());
            bytes[8..10].copy_from_slice(&16u16.to_ne_bytes());
        }
        bytes.extend_from_slice(frame);
        nix::unistd::write(&self.socket, &bytes).unwrap();
    }

    /// The next frame from `source`, and whether its checksum is unfinished.
    fn receive(&self) -> (Vec<u8>, bool) {
        let mut buffer = vec![0; 4096];
        loop {
            let len = nix::unistd::read(&self.socket, &mut buffer).unwrap();
            // Frames of the test come from an address that no host has.
            if len > VNET_HEADER + 12 && buffer[VNET_HEADER..][6..12] == [2; 6] {
                return (buffer[VNET_HEADER..len].to_vec(), buffer[0] & 1 != 0);
            }
        }
    }
}

#[test]
fn finished_and_unfinished_checksums_both_stay_right_as_in_the_model() {
    let pair = Pair::new();
    let mut window = pair.attach(Direction::In);
    let mut model = Rewriter::new();
    model.set_initial(Direction::In, LIMIT, u32::MAX);
    model.beat(clock::now());
    let (sender, receiver) =
        (pair.a.run(Offloading::open).unwrap(), pair.b.run(Offloading::open).unwrap());
    let mut out = [0; 256];
    for v6 in [false, true] {
        let layout = Layout { v6, ..Layout::default() };
        let options = || vec![2, 4, 5, 180, 3, 3, 7, 1];
        for packet in handshake(layout, Direction::Out, &[options(), options()], [65535; 2]) {
            let mut frame = packet.frame();
            window.run(packet.direction, &frame, 1, &mut out, 1).unwrap();
            model.rewrite(&mut frame[14..], Passing::plain(packet.direction), clock::now());
        }
        for (number, partial) in [true, false, true, false].into_iter().enumerate() {
            let ack = 300_000 + 1000 * number as u32;
            let base = Packet::ack(layout, Direction::Out);
            let packet = Packet { ack, window: 50_000, partial, ..base };
            let frame = packet.frame();
            window.beat(clock::now()).unwrap();
            sender.send(&frame, partial, if v6 { 54 } else { 34 });
            let mut expected = frame.clone();
            let passing = Passing { partial, ..Passing::plain(Direction::Out) };
            model.beat(clock::now());
            model.rewrite(&mut expected[14..], passing, clock::now());
            assert_ne!(expected, frame, "it is lowered");
            assert_eq!(receiver.receive(), (expected, partial), "v6 {v6}, packet {number}");
        }
    }
}

#[test]
fn the_heartbeat_of_another_clock_does_not_count() {
    // A heartbeat from before the machine was started is none.
    let pair = Pair::new();
    let mut window = pair.attach(Direction::In);
    window.beat(Instant::ZERO).unwrap();
    let (near, far, key) = pair.connect();
    transfer(&far, &near, 500_000, || {});
    assert_eq!(flow(&window, &key).half(Direction::In).clamped, 0);
}

#[test]
fn a_controller_gives_the_flow_its_window_and_new_flows_theirs() {
    let pair = Pair::new();
    let attach = || Window::attach("eth0").map_err(io::Error::other);
    let mut window = pair.a.run(attach).unwrap();
    let config = Config { formula: Formula::Fixed(30_000), ..Config::default() };
    let mut controllers = [Controller::new(config, Direction::In).unwrap()];
    let (near, far, key) = pair.connect();
    // The first packets pass as they are: the window that they opened must be used up first.
    let mut step = |window: &mut Window| window.step(&mut controllers, clock::now()).unwrap();
    transfer(&far, &near, 100_000, || step(&mut window));
    step(&mut window);
    step(&mut window);
    assert_eq!(flow(&window, &key).half(Direction::In).window, 30_000);
    let (_near, _far, later) = pair.connect();
    // The third packet of the handshake has passed when its answer is accepted.
    assert_eq!(flow(&window, &later).half(Direction::In).window, 30_000);
    assert_eq!(flow(&window, &later).half(Direction::Out).window, 0, "nobody governs it");
}

#[test]
fn a_new_flow_begins_with_the_windows_that_were_lowered_in_its_handshake() {
    let pair = Pair::new();
    let mut window = pair.attach(Direction::In);
    window.set_initial(Direction::In, 5_000, u32::MAX);
    window.beat(clock::now()).unwrap();
    let (near, far, key) = pair.connect();
    let half = *flow(&window, &key).half(Direction::In);
    assert_eq!(half.clamped, 2, "in the SYN, and behind it: {half:?}");
    // The field counts in units of 2^scale, and what the SYN said is not taken back.
    let most = 5_000 + (1 << half.scale);
    assert!(half.asked > most && half.written <= most, "{half:?}");
    assert!(half.edge.wrapping_sub(half.ack) <= most, "{half:?}");
    transfer(&far, &near, 100_000, || window.beat(clock::now()).unwrap());
    assert_eq!(pair.checksum_errors(), 0);
}
