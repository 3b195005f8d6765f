//! The rate achieved, out of a full queue.

use crate::path::{FAR, HEADERS, PORT, Path, sheaf, tbf};
use sheaf_stage::Duration;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;

/// The rate at which frames of 1514 bytes come out of a full queue, in Mbit/s; no
/// number where not all came. They are offered at once, in super-packets of `burst`: a sender that
/// shares two processors with the emulator cannot be relied on to keep a queue full at 1 Gbit/s
/// frame by frame.
pub fn achieved(path: &Path, set: f64, burst: usize) -> f64 {
    const SIZE: usize = 1514;
    // A second of them, and no more than the receiver's buffer holds while nobody reads.
    let count = ((set * 1e6 / 8.0) as usize / SIZE).clamp(200, 20_000);
    let sent = count / burst * burst;
    let receiver = path.right.run(|| UdpSocket::bind((Ipv4Addr::from(FAR), PORT))).unwrap();
    receiver.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let buffer = nix::sys::socket::sockopt::RcvBufForce;
    nix::sys::socket::setsockopt(&receiver, buffer, &(64 << 20)).unwrap();
    let stamped = nix::sys::socket::sockopt::ReceiveTimestampns;
    nix::sys::socket::setsockopt(&receiver, stamped, &true).unwrap();
    let sender = path.left.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
    sender.connect((Ipv4Addr::from(FAR), PORT)).unwrap();
    let segment = nix::sys::socket::sockopt::UdpGsoSegment;
    nix::sys::socket::setsockopt(&sender, segment, &((SIZE - HEADERS) as i32)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let payload = vec![0; burst * (SIZE - HEADERS)];
            for _ in 0..count / burst {
                sender.send(&payload).unwrap();
            }
        });
        // When the kernel took each frame, not when this thread had time for it.
        let mut stamps = Vec::with_capacity(count);
        while let Some(stamp) = stamp(receiver.as_raw_fd()) {
            stamps.push(stamp as f64);
        }
        if stamps.len() != sent {
            return f64::NAN;
        }
        // From the most punctual frame of the first half to that of the second: what the link holds
        // to, whatever kept a processor from sending some of them on time.
        let each = SIZE as f64 * 8e3 / set;
        let late = |number: &usize| stamps[*number] - *number as f64 * each;
        let punctual = |frames: std::ops::Range<usize>| {
            frames.min_by(|a, b| late(a).total_cmp(&late(b))).unwrap_or(0)
        };
        let (one, two) = (punctual(0..sent / 2), punctual(sent / 2..sent));
        (two - one) as f64 * SIZE as f64 * 8e3 / (stamps[two] - stamps[one])
    })
}

/// Receives a datagram: when the kernel had it, in nanoseconds; `None` when none comes any more.
pub fn stamp(socket: i32) -> Option<u64> {
    use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
    let mut bytes = [0; 2048];
    let mut parts = [std::io::IoSliceMut::new(&mut bytes)];
    let mut space = nix::cmsg_space!(nix::sys::time::TimeSpec);
    let got = recvmsg::<()>(socket, &mut parts, Some(&mut space), MsgFlags::empty()).ok()?;
    got.cmsgs().ok()?.find_map(|message| match message {
        ControlMessageOwned::ScmTimestampns(time) => {
            Some(time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
        }
        _ => None,
    })
}

/// Prints what came of each rate set.
pub fn run() {
    const BURST: usize = 40;
    println!("{:<26}{:>12}{:>12}{:>12}", "Mbit/s on the wire", "tbf", "sheaf", "--fifo 50");
    for mbps in [1_u32, 10, 100, 1000] {
        let ours = |more| {
            achieved(&sheaf(&format!("rate {mbps}mbit limit 30000 {more}")), f64::from(mbps), BURST)
        };
        let filter = achieved(&tbf(&format!("{mbps}mbit")), f64::from(mbps), BURST);
        println!("{mbps:<26}{filter:>12.3}{:>12.3}{:>12.3}", ours(""), ours("--fifo 50"));
    }
}
