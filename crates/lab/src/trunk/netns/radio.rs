//! A radio of a station: an interface whose frames stay the sender's until they are sent.
//!
//! Principle: a driver frees a frame when the hardware is done with it, and until then the frame
//! counts against the socket that sent it (`SIOCOUTQ`). By this a program, and TCP, measure the
//! queue in a device. A TAP takes the frame away from its socket immediately, so its queue would be
//! invisible. Here the station's side is a veth whose other side is received by a macvtap, which
//! keeps the owner: its ring is the radio's transmit queue, and a frame counts until it is read. So
//! frames are read no sooner than the channel can take them.

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use sheaf_netio::ip;
use sheaf_netio::tap::Tap;
use std::fs::{File, OpenOptions, read_dir, read_to_string};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Frames that the channel itself holds: the one on the air, and the next, which has to be there
/// when that ends, however late this process wakes.
pub const IN_HAND: u32 = 2;

/// The far side of a station's interface.
#[derive(Debug)]
pub struct Radio {
    tap: Tap,
}

impl Radio {
    /// Makes the interface `name` in this thread's network namespace, with a transmit queue of
    /// `queue` frames, at least three.
    pub fn open(name: &str, mac: &str, mtu: usize, queue: usize) -> io::Result<Radio> {
        let (side, tap) = (format!("{name}a"), format!("{name}t"));
        ip::run(&format!("link add {name} type veth peer name {side}"))?;
        ip::run(&format!("link set {name} address {mac} mtu {mtu}"))?;
        // No super-packets: a radio sends single frames.
        ip::run(&format!("link set {name} gso_max_segs 1"))?;
        ip::run(&format!("link set {side} mtu {mtu}"))?;
        let add = format!("link add link {side} name {tap} type macvtap mode passthru");
        ip::run(&add)
            .map_err(|error| io::Error::new(error.kind(), format!("{error}; {REMEDY}")))?;
        let ring = queue.saturating_sub(IN_HAND as usize).max(1);
        ip::run(&format!("link set {tap} mtu {mtu} txqueuelen {ring}"))?;
        for name in [name, &side, &tap] {
            std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1")?;
            ip::run(&format!("link set {name} up"))?;
        }
        Ok(Radio { tap: Tap::of_macvtap(open_device(&tap)?, &tap)? })
    }

    /// The next frame of the transmit queue, which the station takes for sent from then on;
    /// `None` when there is none.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        self.tap.receive(buffer)
    }

    /// Hands a frame to the station.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        self.tap.send(frame)
    }
}

impl AsFd for Radio {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tap.as_fd()
    }
}

const REMEDY: &str = "the netns engine's radios are macvtap interfaces; take a kernel with \
                      CONFIG_MACVTAP, or --engine virtual";

/// Opens the device of macvtap `name` of this thread's network namespace. The number of the device
/// stands in a sysfs of the namespace only, and a node for it has to stand somewhere: both are
/// mounted where only a short-lived thread sees them.
fn open_device(name: &str) -> io::Result<File> {
    let open = || -> io::Result<File> {
        unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_FS)?;
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(None::<&str>, "/", None::<&str>, private, None::<&str>)?;
        mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), None::<&str>)?;
        mount(Some("tmpfs"), "/mnt", Some("tmpfs"), MsFlags::empty(), None::<&str>)?;
        let (major, minor) = device_number(name)?;
        let node = Path::new("/mnt/radio");
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        mknod(node, SFlag::S_IFCHR, mode, makedev(major, minor))?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(nix::libc::O_NONBLOCK);
        options.open(node)
    };
    std::thread::scope(|scope| scope.spawn(open).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn device_number(name: &str) -> io::Result<(u64, u64)> {
    for kind in ["", "macvtap/"] {
        let Ok(folder) = read_dir(format!("/sys/class/net/{name}/{kind}")) else { continue };
        for entry in folder {
            let Ok(text) = read_to_string(entry?.path().join("dev")) else { continue };
            let number = text.trim().split_once(':');
            let parsed = number.and_then(|(a, b)| a.parse().ok().zip(b.parse().ok()));
            return parsed.ok_or(ErrorKind::InvalidData.into());
        }
    }
    Err(io::Error::new(ErrorKind::NotFound, format!("{name} has no device")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_netio::netns::Namespace;
    use sheaf_netio::packet::PacketSocket;
    use sheaf_netio::socket::unsent;

    #[test]
    fn a_frame_counts_against_its_sender_until_the_radio_takes_it_and_a_full_queue_drops() {
        let namespace = Namespace::new().unwrap();
        namespace
            .run(|| {
                let radio = Radio::open("radio0", "02:00:00:00:00:01", 1508, 10)?;
                let socket = PacketSocket::open(ip::index("radio0")?)?;
                let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb6];
                frame.resize(1522, 7);
                (0..3).for_each(|_| socket.send(&frame).unwrap());
                let three = unsent(&socket).unwrap();
                assert!(three >= 3 * 1522, "{three}");
                let mut buffer = [0; 2048];
                assert_eq!(radio.receive(&mut buffer)?, Some(1522));
                assert_eq!(buffer[..1522], frame[..]);
                assert_eq!(unsent(&socket).unwrap(), three / 3 * 2);
                (0..30).for_each(|_| socket.send(&frame).unwrap());
                let mut frames = 0;
                while radio.receive(&mut buffer)?.is_some() {
                    frames += 1;
                }
                assert_eq!(frames, 10 - IN_HAND as usize, "two more are with the channel");
                assert_eq!(unsent(&socket).unwrap(), 0);
                radio.send(&frame)?;
                assert_eq!(socket.receive(&mut buffer)?, Some(1522));
                Ok(())
            })
            .unwrap();
    }
}
