//! The speed of an interface, by the ioctl of ethtool(8).
//!
//! `/sys/class/net` shows the interfaces of the namespace that mounted it, which need not be this
//! one; the ioctl asks this thread's.

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use sheaf_stage::Bitrate;
use std::io;
use std::os::fd::AsRawFd;

const SIOCETHTOOL: libc::c_ulong = 0x8946;
/// ETHTOOL_GSET fills a `struct ethtool_cmd` (linux/ethtool.h).
const GET_SETTINGS: u32 = 1;
/// Size of a `struct ethtool_cmd`, in words.
const WORDS: usize = 11;
/// Offsets of `speed` and `speed_hi` in it: the two halves of the speed in Mbit/s.
const SPEED: usize = 12;
const SPEED_HIGH: usize = 28;

/// Returns the present speed of interface `dev`; `None` where its driver reports none.
pub fn speed(dev: &str) -> io::Result<Option<Bitrate>> {
    let mbps = match settings(dev) {
        Ok(bytes) => {
            let half = |at: usize| u32::from(u16::from_ne_bytes([bytes[at], bytes[at + 1]]));
            half(SPEED_HIGH) << 16 | half(SPEED)
        }
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => return Ok(None),
        Err(error) => return Err(error),
    };
    // SPEED_UNKNOWN is all ones; drivers that fill the low half alone set all ones there.
    let known = mbps != 0 && mbps != u32::MAX && mbps != u16::MAX.into();
    Ok(known.then(|| Bitrate::from_mbps(mbps.into())))
}

fn settings(dev: &str) -> io::Result<[u8; WORDS * 4]> {
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    let mut words = [0u32; WORDS];
    words[0] = GET_SETTINGS;
    let mut request = crate::socket::request(dev)?;
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    // SAFETY: the request points to a struct ethtool_cmd, 44 bytes; both live through the call.
    if unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut bytes = [0; WORDS * 4];
    for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::speed;
    use crate::ip;
    use crate::netns::Namespace;
    use sheaf_stage::Bitrate;

    #[test]
    fn a_virtual_cable_has_a_speed_and_a_loopback_interface_has_none() {
        let namespace = Namespace::new().unwrap();
        let speed_of = |dev: &str| namespace.run(|| speed(dev));
        namespace.run(|| ip::run("link add eth0 type veth peer name eth1")).unwrap();
        assert_eq!(speed_of("eth0").unwrap(), Some(Bitrate::from_mbps(10_000)));
        assert_eq!(speed_of("lo").unwrap(), None);
        assert_eq!(speed_of("wlan9").unwrap_err().raw_os_error(), Some(libc::ENODEV));
    }
}
