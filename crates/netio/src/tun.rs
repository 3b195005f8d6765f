//! TUN interfaces with virtio headers: IP packets whose other end is a file descriptor.
//!
//! With a virtio header in front of every packet the host hands over TCP super-packets of up to
//! 64 KiB and leaves checksums to us, so one read does the work of forty; and it takes
//! super-packets back ([`crate::vnet`]).

use crate::tuntap::{self, TCP_OFFLOADS};
use crate::vnet::{self, Header};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// A TUN interface; it goes when this value does.
#[derive(Debug)]
pub struct Tun {
    file: File,
}

/// Work that is left for a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// Where the part that its checksum covers begins and, counted from there, where the checksum
    /// stands: it holds the sum of the pseudo header. `None`: nothing is left to do.
    pub checksum: Option<(u16, u16)>,
    /// Bytes of TCP payload that each segment carries; `None`: it is one packet.
    pub segment: Option<u16>,
}

mod ioctl {
    #![allow(missing_docs, reason = "the macro makes the item")]
    use nix::libc;
    nix::ioctl_write_ptr_bad!(
        tunsetvnethdrsz,
        nix::request_code_write!(b'T', 216, size_of::<libc::c_int>()),
        libc::c_int
    );
    nix::ioctl_write_ptr_bad!(
        tunsetcarrier,
        nix::request_code_write!(b'T', 226, size_of::<libc::c_int>()),
        libc::c_int
    );
}

impl Tun {
    /// Makes the interface `name` (1 to 15 bytes) in this thread's network namespace. Needs
    /// CAP_NET_ADMIN.
    pub fn open(name: &str) -> io::Result<Tun> {
        if name.is_empty() {
            let error = "an interface name has 1 to 15 bytes";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
        }
        let file = tuntap::open(name, libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR)?;
        let header = vnet::LEN as libc::c_int;
        // SAFETY: the call reads one int, which lives on.
        unsafe { ioctl::tunsetvnethdrsz(file.as_raw_fd(), &raw const header) }?;
        tuntap::set_offloads(&file, TCP_OFFLOADS)?;
        Ok(Tun { file })
    }

    /// Says whether the interface has a carrier; a new one has. Without one the host sends nothing
    /// on it, and may pass over its routes ([`crate::linkdown`]).
    pub fn set_carrier(&self, carrier: bool) -> io::Result<()> {
        let carrier = libc::c_int::from(carrier);
        // SAFETY: the call reads one int, which lives on.
        unsafe { ioctl::tunsetcarrier(self.file.as_raw_fd(), &raw const carrier) }?;
        Ok(())
    }

    /// A packet that the host sends, its length and what is left to do to it; `None` when there is
    /// none. A `buffer` of 64 KiB holds every packet.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<(usize, Offload)>> {
        let mut header = [0; vnet::LEN];
        let mut parts = [IoSliceMut::new(&mut header), IoSliceMut::new(buffer)];
        let len = tuntap::none_yet((&self.file).read_vectored(&mut parts))?;
        Ok(len.map(|len| (len.saturating_sub(vnet::LEN), Offload::read(&header))))
    }

    /// Hands a packet, whose first byte says IPv4 or IPv6, to the host. `headers`: bytes up to the
    /// end of the TCP header, for a packet of several segments.
    pub fn send(&self, packet: &[u8], offload: Offload, headers: u16) -> io::Result<()> {
        let v6 = packet.first().is_some_and(|first| first >> 4 == 6);
        let header = offload.write(v6, headers);
        let parts = [IoSlice::new(&header), IoSlice::new(packet)];
        (&self.file).write_vectored(&parts).map(drop)
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Offload {
    fn read(header: &[u8; vnet::LEN]) -> Offload {
        let header = Header::parse(header).expect("the array is as long as a header");
        let checksum = header.partial.then_some((header.csum_start, header.csum_offset));
        let segment = (header.gso_type & !Header::ECN != 0).then_some(header.gso_size);
        Offload { checksum, segment }
    }

    fn write(self, v6: bool, headers: u16) -> [u8; vnet::LEN] {
        let mut header = Header::default();
        if let Some(segment) = self.segment {
            header.gso_type = if v6 { Header::TCP_V6 } else { Header::TCP_V4 };
            (header.hdr_len, header.gso_size) = (headers, segment);
        }
        if let Some((start, offset)) = self.checksum {
            (header.partial, header.csum_start, header.csum_offset) = (true, start, offset);
        }
        let mut bytes = [0; vnet::LEN];
        header.emit(&mut bytes);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip;
    use crate::netns::Namespace;
    use crate::poller::Poller;
    use std::net::UdpSocket;

    #[test]
    fn what_a_header_says_survives_writing_and_reading() {
        for checksum in [None, Some((20, 16)), Some((40, 6))] {
            for segment in [None, Some(1448)] {
                let offload = Offload { checksum, segment };
                for v6 in [false, true] {
                    assert_eq!(Offload::read(&offload.write(v6, 52)), offload);
                }
            }
        }
        let ecn = [1, Header::TCP_V4 | Header::ECN, 0, 0, 0, 0, 0, 0, 0, 0];
        assert!(Offload::read(&ecn).segment.is_some(), "the ECN mark is no kind of its own");
    }

    #[test]
    fn packets_pass_both_ways_and_the_interface_goes_with_its_value() {
        let namespace = Namespace::new().unwrap();
        let passed = namespace.run(|| {
            let tun = Tun::open("tun7")?;
            ip::run("addr add 10.7.0.1/24 dev tun7")?;
            std::fs::write("/proc/sys/net/ipv6/conf/tun7/disable_ipv6", "1")?;
            ip::run("link set tun7 up")?;
            let socket = UdpSocket::bind("10.7.0.1:5000")?;
            socket.send_to(b"hello", "10.7.0.2:6000")?;
            let mut poller = Poller::default();
            poller.add(&tun);
            poller.wait(None)?;
            let mut buffer = vec![0; 1 << 16];
            let (len, offload) = tun.receive(&mut buffer)?.expect("the host sent one");
            assert_eq!((len, offload.segment), (33, None));
            assert_eq!(offload.checksum, Some((20, 6)), "left to us, as offered");
            assert_eq!(tun.receive(&mut buffer)?, None);
            // Back with addresses and ports exchanged, which no sum notices.
            let mut packet = buffer[..len].to_vec();
            let (from, to) = (buffer[12..16].to_vec(), buffer[16..20].to_vec());
            packet[12..16].copy_from_slice(&to);
            packet[16..20].copy_from_slice(&from);
            packet[20..22].copy_from_slice(&buffer[22..24]);
            packet[22..24].copy_from_slice(&buffer[20..22]);
            tun.send(&packet, offload, 0)?;
            let mut answer = [0; 16];
            let (len, from) = socket.recv_from(&mut answer)?;
            assert_eq!((&answer[..len], from.port()), (&b"hello"[..], 6000));
            drop(tun);
            assert!(!ip::names()?.contains(&"tun7".to_owned()));
            Ok(())
        });
        passed.unwrap();
    }

    #[test]
    fn a_name_that_no_interface_can_have_is_refused() {
        let namespace = Namespace::new().unwrap();
        for name in ["", "sixteen-letters-"] {
            let opened = namespace.run(|| Tun::open(name).map(drop));
            assert_eq!(opened.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }
}
