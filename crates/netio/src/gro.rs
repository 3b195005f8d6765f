//! Packets that an interface joins before they are received (GRO), for as long as somebody wants
//! that.
//!
//! Packets of one flow that arrive close to each other come as one super-packet, so that all that
//! follows is done once for up to 64 of them. Linux joins what is meant for the host itself, within
//! one poll. Settings of the interface make it join UDP for others, and across polls:
//!
//! * features `rx-gro` and `rx-udp-gro-forwarding`, by the ioctl of ethtool(8);
//! * `gro_flush_timeout`, how long a packet waits for others, and `napi_defer_hard_irqs`, so that
//!   packets gather meanwhile, both in /sys/class/net (Documentation/networking/napi.rst of the
//!   kernel). sysfs shows the interfaces of the network namespace that it was mounted in, so one is
//!   mounted for this thread's, where nobody sees it (fsmount(2)).

use crate::ethtool::{self, Feature};
use nix::libc;
use sheaf_stage::Duration;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// linux/mount.h; the libc crate has no names for these. The flags close a descriptor on exec.
const FSCONFIG_CMD_CREATE: libc::c_int = 6;
const FSOPEN_CLOEXEC: libc::c_int = 1;
const FSMOUNT_CLOEXEC: libc::c_int = 1;

/// Features that join packets, also those that go on to others.
const JOIN: [&str; 2] = ["rx-gro", "rx-udp-gro-forwarding"];
/// Polls without a packet after which an interface is woken by each packet again. Two, so that a
/// gap of one time does not end the gathering.
const DEFERRED: u64 = 2;

/// Where a kernel says its version, and the first one that hands a packet socket super-packets of
/// UDP: others drop them (VIRTIO_NET_HDR_GSO_UDP_L4).
const VERSION: &str = "/proc/sys/kernel/osrelease";
const FIRST: (u32, u32) = (6, 2);

/// Whether what is joined of UDP can be received: from Linux 6.2 on.
pub fn is_handed_over() -> io::Result<bool> {
    Ok(is_since(&std::fs::read_to_string(VERSION)?, FIRST))
}

/// Whether `release`, such as 6.1.0-31-amd64, is `first` or later.
fn is_since(release: &str, first: (u32, u32)) -> bool {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
    let mut next = || numbers.next().and_then(|number| number.parse().ok()).unwrap_or(0);
    (next(), next()) >= first
}

/// An interface that joins what it receives. Dropped, it is as it was before.
#[derive(Debug)]
pub struct Joining {
    dev: String,
    /// This one's namespace is the interface's, whichever thread drops it.
    socket: OwnedFd,
    /// Of [`JOIN`], those that were off.
    were_off: Vec<Feature>,
    /// Files with what they said before.
    files: Vec<(File, u64)>,
}

impl Joining {
    /// Joins packets that interface `dev` of this thread's network namespace receives within
    /// `longest`: the time by which a packet is later at most. Needs CAP_NET_ADMIN, and
    /// CAP_SYS_ADMIN to begin.
    ///
    /// # Errors
    /// EOPNOTSUPP where the kernel or the interface cannot (before Linux 5.12).
    pub fn begin(dev: &str, longest: Duration) -> io::Result<Joining> {
        let socket = ethtool::open()?;
        let features = JOIN.map(|name| Feature::find(&socket, dev, name));
        let folder = sysfs()?;
        let longest = u64::try_from(longest.as_nanos()).map_err(io::Error::other)?;
        let wanted = [("gro_flush_timeout", longest), ("napi_defer_hard_irqs", DEFERRED)];
        let mut joining = Joining { dev: dev.into(), socket, were_off: vec![], files: vec![] };
        // From here on what was changed is changed back with `joining`, also on an error.
        for feature in features {
            let feature = feature?;
            if !feature.is_on(&joining.socket, dev)? {
                feature.set(&joining.socket, dev, true)?;
                joining.were_off.push(feature);
            }
        }
        for (name, value) in wanted {
            let mut file = open_in(folder.as_fd(), &format!("class/net/{dev}/{name}"))?;
            let mut before = String::new();
            file.read_to_string(&mut before)?;
            let before = before.trim().parse().map_err(io::Error::other)?;
            write(&mut file, value)?;
            joining.files.push((file, before));
        }
        Ok(joining)
    }
}

impl Drop for Joining {
    fn drop(&mut self) {
        // An interface that has gone needs nothing any more.
        for (file, before) in &mut self.files {
            let _ = write(file, *before);
        }
        for feature in self.were_off.iter().rev() {
            let _ = feature.set(&self.socket, &self.dev, false);
        }
    }
}

fn write(file: &mut File, value: u64) -> io::Result<()> {
    file.rewind()?;
    file.write_all(value.to_string().as_bytes())
}

/// sysfs of this thread's network namespace, mounted nowhere.
fn sysfs() -> io::Result<OwnedFd> {
    let opened = |fd: libc::c_long| match fd {
        // SAFETY: the kernel has just made this descriptor for us.
        0.. => Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) }),
        _ => Err(io::Error::last_os_error()),
    };
    let none = std::ptr::null::<libc::c_char>();
    // SAFETY: the calls read a string that ends and numbers; each checks its descriptor.
    unsafe {
        let context = opened(libc::syscall(libc::SYS_fsopen, c"sysfs".as_ptr(), FSOPEN_CLOEXEC))?;
        let fd = context.as_raw_fd();
        if libc::syscall(libc::SYS_fsconfig, fd, FSCONFIG_CMD_CREATE, none, none, 0) != 0 {
            return Err(io::Error::last_os_error());
        }
        opened(libc::syscall(libc::SYS_fsmount, fd, FSMOUNT_CLOEXEC, 0))
    }
}

fn open_in(folder: BorrowedFd<'_>, path: &str) -> io::Result<File> {
    use nix::fcntl::{OFlag, openat};
    let flags = OFlag::O_RDWR | OFlag::O_CLOEXEC;
    Ok(openat(folder, path, flags, nix::sys::stat::Mode::empty())?.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip;
    use crate::netns::Namespace;

    /// The settings of both features, and of both files.
    fn state(dev: &str) -> io::Result<([bool; 2], [u64; 2])> {
        let socket = ethtool::open()?;
        let features = JOIN
            .map(|name| Feature::find(&socket, dev, name).unwrap().is_on(&socket, dev).unwrap());
        let folder = sysfs()?;
        let times = ["gro_flush_timeout", "napi_defer_hard_irqs"].map(|name| {
            let mut text = String::new();
            let path = format!("class/net/{dev}/{name}");
            open_in(folder.as_fd(), &path).unwrap().read_to_string(&mut text).unwrap();
            text.trim().parse().unwrap()
        });
        Ok((features, times))
    }

    #[test]
    fn an_interface_joins_packets_while_asked_and_is_then_as_it_was() {
        let namespace = Namespace::new().unwrap();
        namespace.run(|| ip::run("link add eth0 type veth peer name eth1")).unwrap();
        let state = || namespace.run(|| state("eth0")).unwrap();
        let before = state();
        let joining = namespace.run(|| Joining::begin("eth0", Duration::from_micros(70))).unwrap();
        assert_eq!(state(), ([true; 2], [70_000, DEFERRED]));
        // From a thread that is in another namespace.
        drop(joining);
        assert_eq!(state(), before);
        assert_ne!(before.1, [70_000, DEFERRED], "this test has seen a change");
    }

    #[test]
    fn versions_are_compared_number_by_number() {
        for (release, since) in [
            ("6.2.0", true),
            ("6.18.44-fc-v657\n", true),
            ("10.0-rc1", true),
            ("6.1.0-56-amd64", false),
            ("5.15.0", false),
            ("odd", false),
        ] {
            assert_eq!(is_since(release, FIRST), since, "{release}");
        }
    }

    #[test]
    fn an_interface_that_is_not_there_is_named_by_its_error() {
        let namespace = Namespace::new().unwrap();
        let began = namespace.run(|| Joining::begin("eth7", Duration::from_micros(70)));
        assert_eq!(began.unwrap_err().raw_os_error(), Some(libc::ENODEV));
    }
}
