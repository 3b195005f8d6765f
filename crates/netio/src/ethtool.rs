//! The speed of an interface and its features, by the ioctl of ethtool(8).
//!
//! `/sys/class/net` shows the interfaces of the namespace that mounted it, which need not be this
//! one; the ioctl asks this thread's.

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use sheaf_stage::Bitrate;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

const SIOCETHTOOL: libc::c_ulong = 0x8946;
/// ETHTOOL_GSET fills a `struct ethtool_cmd` (linux/ethtool.h).
const GET_SETTINGS: u32 = 1;
/// Size of a `struct ethtool_cmd`, in words.
const WORDS: usize = 11;
/// Offsets of `speed` and `speed_hi` in it: the two halves of the speed in Mbit/s.
const SPEED: usize = 12;
const SPEED_HIGH: usize = 28;
/// linux/ethtool.h: names of what is numbered, how many there are, and features.
const GET_STRINGS: u32 = 0x1b;
const GET_SET_INFO: u32 = 0x37;
const GET_FEATURES: u32 = 0x3a;
const SET_FEATURES: u32 = 0x3b;
/// The names of features (ETH_SS_FEATURES), and the bytes of each (ETH_GSTRING_LEN).
const FEATURES: u32 = 4;
const NAME: usize = 32;
/// Features in a word, and words of a word's block: available, requested, active, never changed.
const WORD: usize = 32;
const BLOCK: usize = 4;
/// Most features that are expected: Linux 6.18 has 60.
const MOST_FEATURES: usize = 16 * WORD;
/// Answer to a change that an interface cannot make, in part or at all (ETHTOOL_F_UNSUPPORTED) …
const UNSUPPORTED: libc::c_int = 1;
/// … and that was made with something else changed or left (ETHTOOL_F_WISH).
const WISH: libc::c_int = 2;

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
    let mut words = [0u32; WORDS];
    words[0] = GET_SETTINGS;
    ask(&open()?, dev, &mut words)?;
    let mut bytes = [0; WORDS * 4];
    for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    Ok(bytes)
}

/// A socket that asks about the interfaces of this thread's namespace, whoever uses it later.
pub fn open() -> io::Result<OwnedFd> {
    Ok(socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?)
}

/// A feature that an interface can have switched on, by its number.
#[derive(Clone, Copy, Debug)]
pub struct Feature {
    number: usize,
    /// Number of all.
    all: usize,
}

impl Feature {
    /// The feature that ethtool(8) calls `name`.
    ///
    /// # Errors
    /// EOPNOTSUPP where this kernel has none of this name.
    pub fn find(socket: &OwnedFd, dev: &str, name: &str) -> io::Result<Feature> {
        // struct ethtool_sset_info: one count follows, as one kind is asked for.
        let mut info = [0_u32; 5];
        (info[0], info[2]) = (GET_SET_INFO, 1 << FEATURES);
        ask(socket, dev, &mut info)?;
        let all = (info[4] as usize).min(MOST_FEATURES);
        // struct ethtool_gstrings.
        let mut strings = vec![0_u32; 3 + all * NAME / 4];
        strings[..3].copy_from_slice(&[GET_STRINGS, FEATURES, all as u32]);
        ask(socket, dev, &mut strings)?;
        let bytes: Vec<u8> = strings[3..].iter().flat_map(|word| word.to_ne_bytes()).collect();
        let is_it = |said: &[u8]| said.split(|byte| *byte == 0).next() == Some(name.as_bytes());
        let number = bytes.chunks_exact(NAME).position(is_it);
        let number = number.ok_or_else(|| io::Error::from_raw_os_error(libc::EOPNOTSUPP))?;
        Ok(Feature { number, all })
    }

    fn bit(self) -> u32 {
        1 << (self.number % WORD)
    }

    /// Whether interface `dev` has it switched on.
    pub fn is_on(self, socket: &OwnedFd, dev: &str) -> io::Result<bool> {
        let words = self.all.div_ceil(WORD);
        // struct ethtool_gfeatures.
        let mut features = vec![0_u32; 2 + words * BLOCK];
        (features[0], features[1]) = (GET_FEATURES, words as u32);
        ask(socket, dev, &mut features)?;
        let active = features[2 + self.number / WORD * BLOCK + 2];
        Ok(active & self.bit() != 0)
    }

    /// Switches it. Needs CAP_NET_ADMIN.
    ///
    /// # Errors
    /// EOPNOTSUPP where `dev` cannot.
    pub fn set(self, socket: &OwnedFd, dev: &str, on: bool) -> io::Result<()> {
        let words = self.all.div_ceil(WORD);
        // struct ethtool_sfeatures: of each word, what is meant and what is wanted.
        let mut features = vec![0_u32; 2 + 2 * words];
        (features[0], features[1]) = (SET_FEATURES, words as u32);
        let at = 2 + self.number / WORD * 2;
        (features[at], features[at + 1]) = (self.bit(), if on { self.bit() } else { 0 });
        match ask(socket, dev, &mut features)? & (UNSUPPORTED | WISH) {
            0 => Ok(()),
            _ => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
        }
    }
}

/// Asks the driver of `dev`; returns what the call returned.
fn ask(socket: &OwnedFd, dev: &str, words: &mut [u32]) -> io::Result<libc::c_int> {
    let mut request = crate::socket::request(dev)?;
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    let (fd, to) = (socket.as_raw_fd(), &raw mut request);
    // SAFETY: the request points to a structure of the kind and length that its first words say;
    // both live through the call.
    match unsafe { libc::ioctl(fd, SIOCETHTOOL as _, to) } {
        -1 => Err(io::Error::last_os_error()),
        answer => Ok(answer),
    }
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
