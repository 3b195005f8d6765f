//! UDP to all neighbours on a link, with the link address of who sends.
//!
//! Principle: packet sockets hear the group beside the kernel's own stack, as DHCP clients do. So a
//! firewall does not keep neighbours from each other, an interface needs no address, and the
//! sender's link address is that of the frame. A classic socket filter (bpf(4)) lets only whole
//! packets of the group, the port and hop limit 255 (RFC 5082) through, so that nothing else wakes
//! the process.
//!
//! Some links carry a group's packets only to who has joined it in the kernel's IP: batman-adv by
//! its tables, switches by IGMP and MLD. So the host is a member there, too, by sockets that
//! receive nothing.

use crate::socket::{attach_filter, bind_packet, instruction as code, set_option};
use nix::libc;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use sheaf_wire::checksum::{fold, ipv4_header, sum};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Memory of the kernel for packets that were not read yet: some 300 small ones.
const RECEIVE_BUFFER: libc::c_int = 256 << 10;
/// Packets that one call reads, so that a flood of them does not keep the caller from other work.
pub const TURN: usize = 64;
/// Bytes of a packet that are read: a multicast packet of 1500, which is more than any HELLO.
const LONGEST: usize = 1500;
const V4_HEADER: usize = 20;
const V6_HEADER: usize = 40;
const UDP_HEADER: usize = 8;
const UDP: u8 = 17;
const HOP_LIMIT: u8 = 255;
/// Link address of an IPv4 group: this, and the low 23 bits of the group (RFC 1112, section 6.4).
const V4_LINK: [u8; 3] = [0x01, 0x00, 0x5e];
/// Link address of an IPv6 group: this, and its last 32 bits (RFC 2464, section 7).
const V6_LINK: [u8; 2] = [0x33, 0x33];

/// A group in both families.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// In IPv4.
    pub v4: Ipv4Addr,
    /// In IPv6.
    pub v6: Ipv6Addr,
    /// UDP port of source and destination.
    pub port: u16,
}

/// A member of a group on one interface.
#[derive(Debug)]
pub struct LinkGroup {
    group: Group,
    ifindex: u32,
    v4: OwnedFd,
    v6: OwnedFd,
    /// Where the kernel has the family.
    _members: [Option<OwnedFd>; 2],
}

impl LinkGroup {
    /// Joins `group` on interface `ifindex` of this thread's network namespace.
    pub fn join(ifindex: u32, group: Group) -> io::Result<LinkGroup> {
        let v4 = open(ifindex, libc::ETH_P_IP as u16, &filter_v4(group), &link_v4(group.v4))?;
        let v6 = open(ifindex, libc::ETH_P_IPV6 as u16, &filter_v6(group), &link_v6(group.v6))?;
        // Most links carry the packets without it, so what a kernel lacks for it is no error.
        let members = [member_v4(ifindex, group.v4).ok(), member_v6(ifindex, group.v6).ok()];
        Ok(LinkGroup { group, ifindex, v4, v6, _members: members })
    }

    /// Sends `payload` to all, from `source`, whose family decides which packet it is.
    pub fn send(&self, source: IpAddr, payload: &[u8]) -> io::Result<()> {
        let Group { v4, v6, port } = self.group;
        let (fd, kind, link, packet) = match source {
            IpAddr::V4(source) => {
                let packet = packet_v4(source, v4, port, payload);
                (&self.v4, libc::ETH_P_IP, link_v4(v4), packet)
            }
            IpAddr::V6(source) => {
                let packet = packet_v6(source, v6, port, payload);
                (&self.v6, libc::ETH_P_IPV6, link_v6(v6), packet)
            }
        };
        // SAFETY: an all-zero sockaddr_ll is a valid one.
        let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        to.sll_family = libc::AF_PACKET as u16;
        to.sll_protocol = (kind as u16).to_be();
        to.sll_ifindex = self.ifindex as i32;
        to.sll_halen = link.len() as u8;
        to.sll_addr[..link.len()].copy_from_slice(&link);
        let (bytes, len) = (packet.as_ptr().cast(), packet.len());
        let (name, name_len) = ((&raw const to).cast(), size_of_val(&to) as u32);
        let flags = libc::MSG_DONTWAIT;
        // SAFETY: packet and address live through the call, with the lengths beside them.
        match unsafe { libc::sendto(fd.as_raw_fd(), bytes, len, flags, name, name_len) } {
            sent if sent >= 0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Hands what others sent to the group, up to [`TURN`] packets of each family, to `each` with
    /// the link and IP address of the sender; returns their number.
    pub fn receive(&self, mut each: impl FnMut(([u8; 6], IpAddr), &[u8])) -> io::Result<usize> {
        let mut count = 0;
        for (socket, payload) in
            [(&self.v4, payload_v4 as fn(&[u8]) -> Option<Datagram<'_>>), (&self.v6, payload_v6)]
        {
            for _ in 0..TURN {
                let mut bytes = [0; LONGEST];
                let Some((from, len)) = read(socket, &mut bytes)? else { break };
                count += 1;
                if let (Some(from), Some((source, payload))) = (from, payload(&bytes[..len])) {
                    each((from, source), payload);
                }
            }
        }
        Ok(count)
    }

    /// Packets that were dropped since the last call because nobody read them.
    pub fn dropped(&self) -> io::Result<u32> {
        let mut sum = 0;
        for socket in [&self.v4, &self.v6] {
            // SAFETY: an all-zero tpacket_stats is a valid one.
            let mut stats: libc::tpacket_stats = unsafe { std::mem::zeroed() };
            let mut len = size_of_val(&stats) as u32;
            let (fd, to) = (socket.as_raw_fd(), (&raw mut stats).cast());
            let (level, name) = (libc::SOL_PACKET, libc::PACKET_STATISTICS);
            // SAFETY: the option is one tpacket_stats, for which there is room.
            if unsafe { libc::getsockopt(fd, level, name, to, &raw mut len) } != 0 {
                return Err(io::Error::last_os_error());
            }
            sum += stats.tp_drops;
        }
        Ok(sum)
    }

    /// The descriptors that are readable when there is something to receive.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.v4.as_fd(), self.v6.as_fd()]
    }
}

/// A socket by which the host is a member of `group` on interface `ifindex`. Bound to no port, it
/// receives nothing.
fn member_v4(ifindex: u32, group: Ipv4Addr) -> io::Result<OwnedFd> {
    let socket = datagram(AddressFamily::Inet)?;
    let member = libc::ip_mreqn {
        imr_multiaddr: libc::in_addr { s_addr: u32::from(group).to_be() },
        imr_address: libc::in_addr { s_addr: libc::INADDR_ANY },
        imr_ifindex: ifindex as i32,
    };
    set_option(&socket, libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP, &member)?;
    Ok(socket)
}

/// The same in IPv6.
fn member_v6(ifindex: u32, group: Ipv6Addr) -> io::Result<OwnedFd> {
    let socket = datagram(AddressFamily::Inet6)?;
    let member = libc::ipv6_mreq {
        ipv6mr_multiaddr: libc::in6_addr { s6_addr: group.octets() },
        ipv6mr_interface: ifindex,
    };
    set_option(&socket, libc::IPPROTO_IPV6, libc::IPV6_ADD_MEMBERSHIP, &member)?;
    Ok(socket)
}

fn datagram(family: AddressFamily) -> io::Result<OwnedFd> {
    Ok(socket(family, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?)
}

/// A packet socket for packets of EtherType `kind` that pass `filter`, a member of `link`.
fn open(
    ifindex: u32,
    kind: u16,
    filter: &[libc::sock_filter],
    link: &[u8; 6],
) -> io::Result<OwnedFd> {
    // With no protocol it hears nothing before it is bound, when the filter is there already.
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Packet, SockType::Datagram, flags, None)?;
    attach_filter(&socket, filter)?;
    set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &RECEIVE_BUFFER)?;
    // SAFETY: an all-zero packet_mreq is a valid one.
    let mut member: libc::packet_mreq = unsafe { std::mem::zeroed() };
    member.mr_ifindex = ifindex as i32;
    member.mr_type = libc::PACKET_MR_MULTICAST as u16;
    member.mr_alen = link.len() as u16;
    member.mr_address[..link.len()].copy_from_slice(link);
    set_option(&socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &member)?;
    bind_packet(&socket, ifindex, kind)?;
    Ok(socket)
}

/// One packet from its IP header on, and the link address that it came from; `None` when there is
/// none.
fn read(socket: &OwnedFd, bytes: &mut [u8]) -> io::Result<Option<(Option<[u8; 6]>, usize)>> {
    // SAFETY: an all-zero sockaddr_ll is a valid one.
    let mut from: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    let mut from_len = size_of_val(&from) as u32;
    let (fd, to, len) = (socket.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len());
    let (flags, name) = (libc::MSG_DONTWAIT, (&raw mut from).cast());
    // SAFETY: both buffers live through the call, with the lengths beside them.
    let got = unsafe { libc::recvfrom(fd, to, len, flags, name, &raw mut from_len) };
    if got < 0 {
        let error = io::Error::last_os_error();
        return match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
            _ => Err(error),
        };
    }
    let is_ethernet = usize::from(from.sll_halen) == 6;
    let address = *from.sll_addr.first_chunk().expect("eight bytes");
    Ok(Some((is_ethernet.then_some(address), got as usize)))
}

fn link_v4(group: Ipv4Addr) -> [u8; 6] {
    let ([a, b, c], [_, d, e, f]) = (V4_LINK, group.octets());
    [a, b, c, d & 0x7f, e, f]
}

fn link_v6(group: Ipv6Addr) -> [u8; 6] {
    let ([a, b], [.., c, d, e, f]) = (V6_LINK, group.octets());
    [a, b, c, d, e, f]
}

/// A filter that accepts what passes all `checks`, each a load and what it has to bring, under a
/// mask.
fn filter(checks: &[(u32, u32, u32, u32)]) -> Vec<libc::sock_filter> {
    let mut program = Vec::with_capacity(checks.len() * 3 + 2);
    for (index, (size, at, mask, value)) in checks.iter().enumerate() {
        // To the last instruction, which refuses: three for each further check, and the accepting.
        let refuse = (3 * (checks.len() - 1 - index) + 1) as u8;
        program.push(code(libc::BPF_LD | size | libc::BPF_ABS, 0, 0, *at));
        program.push(code(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, 0, *mask));
        program.push(code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, refuse, *value));
    }
    program.push(code(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX));
    program.push(code(libc::BPF_RET | libc::BPF_K, 0, 0, 0));
    program
}

fn filter_v4(group: Group) -> Vec<libc::sock_filter> {
    let (byte, half, word) = (libc::BPF_B, libc::BPF_H, libc::BPF_W);
    filter(&[
        (word, 16, u32::MAX, group.v4.into()),
        (byte, 9, 0xff, UDP.into()),
        // Version 4 without options.
        (byte, 0, 0xff, 0x45),
        (byte, 8, 0xff, HOP_LIMIT.into()),
        // Not a fragment.
        (half, 6, 0x3fff, 0),
        (half, 22, 0xffff, group.port.into()),
    ])
}

fn filter_v6(group: Group) -> Vec<libc::sock_filter> {
    let (byte, half, word) = (libc::BPF_B, libc::BPF_H, libc::BPF_W);
    let part = |at: usize| {
        let octets = group.v6.octets();
        u32::from_be_bytes(*octets[at..].first_chunk().expect("16 bytes"))
    };
    filter(&[
        (word, 36, u32::MAX, part(12)),
        (byte, 6, 0xff, UDP.into()),
        (byte, 7, 0xff, HOP_LIMIT.into()),
        (word, 24, u32::MAX, part(0)),
        (word, 28, u32::MAX, part(4)),
        (word, 32, u32::MAX, part(8)),
        (half, 42, 0xffff, group.port.into()),
    ])
}

/// The payload of a packet that passed the filter; `None` where lengths or sums are wrong.
/// Source and payload of a UDP datagram.
type Datagram<'a> = (IpAddr, &'a [u8]);

fn payload_v4(packet: &[u8]) -> Option<Datagram<'_>> {
    let header = packet.get(..V4_HEADER)?;
    // Ethernet pads short frames.
    let packet = packet.get(..usize::from(u16::from_be_bytes([header[2], header[3]])))?;
    let pseudo = sum(&header[12..20], u32::from(UDP));
    let source = Ipv4Addr::from(*header[12..].first_chunk()?);
    let payload = udp(packet.get(V4_HEADER..)?, pseudo)?;
    ipv4_header_is_right(header).then_some((source.into(), payload))
}

fn payload_v6(packet: &[u8]) -> Option<Datagram<'_>> {
    let header = packet.get(..V6_HEADER)?;
    let len = V6_HEADER + usize::from(u16::from_be_bytes([header[4], header[5]]));
    let pseudo = sum(&header[8..40], u32::from(UDP));
    let source = Ipv6Addr::from(*header[8..].first_chunk()?);
    Some((source.into(), udp(packet.get(..len)?.get(V6_HEADER..)?, pseudo)?))
}

fn ipv4_header_is_right(header: &[u8]) -> bool {
    fold(sum(header, 0)) == 0xffff
}

/// The payload of a datagram whose length and checksum are right; `pseudo` is the sum of the
/// addresses and the protocol.
fn udp(datagram: &[u8], pseudo: u32) -> Option<&[u8]> {
    let (header, payload) = datagram.split_at_checked(UDP_HEADER)?;
    let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let is_right = fold(sum(datagram, pseudo + datagram.len() as u32)) == 0xffff;
    (len == datagram.len() && is_right).then_some(payload)
}

/// Writes a UDP datagram behind `packet`; `pseudo` as in [`udp`].
fn push_udp(port: u16, payload: &[u8], pseudo: u32, packet: &mut Vec<u8>) {
    let (start, len) = (packet.len(), UDP_HEADER + payload.len());
    let [port, len] = [port, len as u16].map(u16::to_be_bytes);
    packet.extend_from_slice(&[port, port, len, [0, 0]].concat());
    packet.extend_from_slice(payload);
    let datagram = &packet[start..];
    let checksum = match !fold(sum(datagram, pseudo + datagram.len() as u32)) {
        // 0 would mean that there is no checksum (RFC 768).
        0 => 0xffff,
        checksum => checksum,
    };
    packet[start + 6..start + 8].copy_from_slice(&checksum.to_be_bytes());
}

fn packet_v4(source: Ipv4Addr, group: Ipv4Addr, port: u16, payload: &[u8]) -> Vec<u8> {
    /// Class CS6, network control (RFC 4594), as routing protocols have.
    const CLASS: u8 = 0xc0;
    let len = ((V4_HEADER + UDP_HEADER + payload.len()) as u16).to_be_bytes();
    let mut packet = vec![0x45, CLASS, len[0], len[1], 0, 0, 0x40, 0, HOP_LIMIT, UDP, 0, 0];
    packet.extend_from_slice(&source.octets());
    packet.extend_from_slice(&group.octets());
    let checksum = ipv4_header(&packet);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    let pseudo = sum(&packet[12..20], u32::from(UDP));
    push_udp(port, payload, pseudo, &mut packet);
    packet
}

fn packet_v6(source: Ipv6Addr, group: Ipv6Addr, port: u16, payload: &[u8]) -> Vec<u8> {
    let len = ((UDP_HEADER + payload.len()) as u16).to_be_bytes();
    // Version 6, class CS6.
    let mut packet = vec![0x6c, 0, 0, 0, len[0], len[1], UDP, HOP_LIMIT];
    packet.extend_from_slice(&source.octets());
    packet.extend_from_slice(&group.octets());
    let pseudo = sum(&packet[8..40], u32::from(UDP));
    push_udp(port, payload, pseudo, &mut packet);
    packet
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cable;
    use crate::packet::PacketSocket;
    use crate::poller::Poller;
    use crate::{ip, netns};

    const GROUP: Group = Group {
        v4: Ipv4Addr::new(224, 0, 0, 254),
        v6: Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x114),
        port: 1021,
    };
    const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

    fn join(host: &netns::Namespace) -> LinkGroup {
        host.run(|| LinkGroup::join(ip::index("eth0")?, GROUP)).unwrap()
    }

    /// The next message that `member` hears.
    fn next(member: &LinkGroup) -> (([u8; 6], IpAddr), Vec<u8>) {
        let mut poller = Poller::default();
        member.descriptors().iter().for_each(|descriptor| {
            poller.add(descriptor);
        });
        let mut heard = Vec::new();
        while heard.is_empty() {
            poller.wait(None).unwrap();
            member.receive(|from, payload| heard.push((from, payload.to_vec()))).unwrap();
        }
        heard.swap_remove(0)
    }

    #[test]
    fn all_on_the_link_hear_what_is_sent_in_either_family_and_from_whom() {
        let [here, there] = cable::hosts();
        let (from, to) = (join(&here), join(&there));
        let mac = here.run(|| ip::mac("eth0")).unwrap();
        let sources: [IpAddr; 3] =
            [OURS.into(), Ipv4Addr::UNSPECIFIED.into(), "fe80::1".parse().unwrap()];
        for (number, source) in sources.into_iter().enumerate() {
            let payload = vec![number as u8; 3 + 100 * number];
            from.send(source, &payload).unwrap();
            assert_eq!(next(&to), ((mac, source), payload));
        }
        let mut own = 0;
        from.receive(|_, _| own += 1).unwrap();
        assert_eq!(own, 0, "a sender does not hear itself");
    }

    #[test]
    fn packets_from_behind_a_router_to_others_or_damaged_are_not_heard() {
        let [here, there] = cable::hosts();
        let to = join(&there);
        let (ours, theirs) = (here.run(|| ip::mac("eth0")).unwrap(), link_v4(GROUP.v4));
        let raw = here.run(|| PacketSocket::open(ip::index("eth0")?)).unwrap();
        let right = packet_v4(OURS, GROUP.v4, GROUP.port, b"hello");
        let send = |packet: &[u8]| {
            raw.send(&[&theirs, &ours, [8, 0].as_slice(), packet].concat()).unwrap();
        };
        let changed = |at: usize, value: u8| {
            let mut packet = right.clone();
            packet[at] = value;
            packet[10..12].fill(0);
            let checksum = ipv4_header(&packet[..V4_HEADER]);
            packet[10..12].copy_from_slice(&checksum.to_be_bytes());
            packet
        };
        let fragment = changed(6, 0x20);
        let (routed, other) = (changed(8, 254), changed(19, 251));
        let (port, length, byte) = (changed(23, 0), changed(25, 99), changed(29, b'E'));
        for packet in [&fragment, &routed, &other, &port, &length, &byte, &right[..20].to_vec()] {
            send(packet);
        }
        // A short frame is padded; its payload is not.
        send(&[right.as_slice(), &[0; 20]].concat());
        assert_eq!(next(&to), ((ours, OURS.into()), b"hello".to_vec()));
    }

    #[test]
    fn the_host_is_a_member_of_the_group_for_links_that_carry_it_only_to_members() {
        let [here, _there] = cable::hosts();
        let member = |file: &str, group: &str| {
            let text = here
                .run(|| std::fs::read_to_string(format!("/proc/thread-self/net/{file}")))
                .unwrap();
            text.lines().any(|line| line.contains(group))
        };
        let is_member = || {
            let v4 = format!("{:08X}", u32::from_ne_bytes(GROUP.v4.octets()));
            let v6: String = GROUP.v6.octets().iter().map(|byte| format!("{byte:02x}")).collect();
            (member("igmp", &v4), member("igmp6", &v6))
        };
        assert_eq!(is_member(), (false, false));
        let joined = join(&here);
        assert_eq!(is_member(), (true, true));
        drop(joined);
        assert_eq!(is_member(), (false, false));
    }

    #[test]
    fn packets_that_nobody_reads_are_dropped_and_counted() {
        let [here, there] = cable::hosts();
        let (from, to) = (join(&here), join(&there));
        for _ in 0..3_000 {
            from.send(OURS.into(), &[7; 1_000]).unwrap();
        }
        let mut heard = 0;
        while to.receive(|_, _| heard += 1).unwrap() > 0 {}
        let dropped = to.dropped().unwrap();
        assert!(heard > 10 && dropped > 0, "{heard} heard, {dropped} dropped");
        assert_eq!(to.dropped().unwrap(), 0);
    }
}
