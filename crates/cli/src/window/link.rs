//! The speed that an interface says it has, by the ioctl of ethtool(8).
//!
//! `/sys/class/net` shows the interfaces of the namespace that mounted it, which need not be this
//! one; the ioctl asks this thread's.

use anyhow::{bail, ensure};
use nix::libc;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use sheaf_stage::Bitrate;
use std::io;
use std::os::fd::AsRawFd;

const SIOCETHTOOL: libc::c_ulong = 0x8946;
/// ETHTOOL_GSET fills a `struct ethtool_cmd`.
const GET_SETTINGS: u32 = 1;
/// Its size in words, and where the two halves of the speed in Mbit/s are, in bytes.
const WORDS: usize = 11;
const SPEED: usize = 12;
const SPEED_HIGH: usize = 28;

/// The speed of interface `dev` now.
pub fn speed(dev: &str) -> anyhow::Result<Bitrate> {
    let mbps = match settings(dev) {
        Ok(bytes) => {
            let half = |at: usize| u32::from(u16::from_ne_bytes([bytes[at], bytes[at + 1]]));
            half(SPEED_HIGH) << 16 | half(SPEED)
        }
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => 0,
        Err(error) => bail!("cannot ask {dev} for its speed: {error}; give capacity RATE"),
    };
    // SPEED_UNKNOWN is all ones, in a half alone with drivers that know no more.
    let known = mbps != 0 && mbps != u32::MAX && mbps != 0xffff;
    ensure!(known, "{dev} does not tell its speed; give capacity RATE, or capacity auto");
    Ok(Bitrate::from_mbps(mbps.into()))
}

fn settings(dev: &str) -> io::Result<[u8; WORDS * 4]> {
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    let mut words = [0u32; WORDS];
    words[0] = GET_SETTINGS;
    let mut request = sheaf_netio::socket::request(dev)?;
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
    use sheaf_netio::ip;
    use sheaf_netio::netns::Namespace;
    use sheaf_stage::Bitrate;
    use std::io;

    #[test]
    fn a_virtual_cable_tells_its_speed_and_a_loopback_interface_has_none() {
        let namespace = Namespace::new().unwrap();
        let ask = |dev: &str| {
            namespace.run(|| speed(dev).map_err(|error| io::Error::other(error.to_string())))
        };
        namespace.run(|| ip::run("link add eth0 type veth peer name eth1")).unwrap();
        assert_eq!(ask("eth0").unwrap(), Bitrate::from_mbps(10_000));
        assert!(ask("lo").unwrap_err().to_string().starts_with("lo does not tell its speed"));
        assert!(ask("wlan9").unwrap_err().to_string().starts_with("cannot ask wlan9"));
    }
}
