//! Frames of every layout for the window program.
#![allow(dead_code, reason = "each test file uses its part")]

use sheaf_window::{Direction, Key};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub const OUTSIDE: [u8; 4] = [192, 0, 2, 1];
pub const INSIDE: [u8; 4] = [10, 0, 0, 2];
const OUTSIDE6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const INSIDE6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];

/// What lies around the TCP header.
#[derive(Clone, Copy, Debug, Default)]
pub struct Layout {
    pub v6: bool,
    pub tags: usize,
    /// Bytes.
    pub ip_options: usize,
    /// DSCP and ECN.
    pub class: u8,
}

impl Layout {
    /// Bytes in front of the IP header.
    pub fn link(&self) -> usize {
        14 + 4 * self.tags
    }
}

#[derive(Clone, Debug)]
pub struct Packet {
    pub layout: Layout,
    pub direction: Direction,
    /// The inside end's; the other one has 80, or 443 for UDP.
    pub port: u16,
    pub udp: bool,
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub window: u16,
    pub options: Vec<u8>,
    pub payload: usize,
    /// The checksum is only the pseudo header's.
    pub partial: bool,
    pub fragment: bool,
}

fn address(bytes: &[u8]) -> IpAddr {
    match <[u8; 4]>::try_from(bytes) {
        Ok(bytes) => IpAddr::V4(Ipv4Addr::from(bytes)),
        Err(_) => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).unwrap())),
    }
}

fn ends(v6: bool) -> (&'static [u8], &'static [u8]) {
    if v6 { (&OUTSIDE6, &INSIDE6) } else { (&OUTSIDE, &INSIDE) }
}

pub fn key(v6: bool, port: u16) -> Key {
    let (outside, inside) = ends(v6);
    Key::new((address(outside), 80), (address(inside), port))
}

impl Packet {
    /// A bare acknowledgement.
    pub fn ack(layout: Layout, direction: Direction) -> Packet {
        Packet {
            layout,
            direction,
            port: 1000,
            udp: false,
            seq: 1,
            ack: 1,
            flags: 16,
            window: 65535,
            options: Vec::new(),
            payload: 0,
            partial: false,
            fragment: false,
        }
    }

    pub fn frame(&self) -> Vec<u8> {
        let mut transport = self.transport();
        let (outside, inside) = ends(self.layout.v6);
        let (source, destination) = match self.direction {
            Direction::In => (outside, inside),
            Direction::Out => (inside, outside),
        };
        let protocol = if self.udp { 17 } else { 6 };
        let pseudo: Vec<u8> =
            [source, destination, &[0, protocol], &(transport.len() as u16).to_be_bytes()].concat();
        let field = if self.udp { 6 } else { 16 };
        let pseudo = sum(&pseudo);
        transport[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
        if !self.partial {
            let checksum = !sum(&transport);
            transport[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
        }
        let mut frame = vec![2; 12];
        for _ in 0..self.layout.tags {
            frame.extend_from_slice(&[0x81, 0, 0, 7]);
        }
        let mut header = Vec::new();
        if self.layout.v6 {
            frame.extend_from_slice(&[0x86, 0xdd]);
            header.extend_from_slice(&[
                0x60 | self.layout.class >> 4,
                self.layout.class << 4,
                0,
                0,
            ]);
            header.extend_from_slice(&(transport.len() as u16).to_be_bytes());
            header.extend_from_slice(&[if self.fragment { 44 } else { protocol }, 64]);
            header.extend_from_slice(source);
            header.extend_from_slice(destination);
        } else {
            frame.extend_from_slice(&[8, 0]);
            let length = 20 + self.layout.ip_options;
            header.extend_from_slice(&[0x40 | (length / 4) as u8, self.layout.class]);
            header.extend_from_slice(&((length + transport.len()) as u16).to_be_bytes());
            header.extend_from_slice(&[0, 1, if self.fragment { 0x20 } else { 0x40 }, 0]);
            header.extend_from_slice(&[64, protocol, 0, 0]);
            header.extend_from_slice(source);
            header.extend_from_slice(destination);
            header.resize(length, 1);
            let checksum = !sum(&header);
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        frame.extend_from_slice(&header);
        frame.extend_from_slice(&transport);
        frame
    }

    fn transport(&self) -> Vec<u8> {
        let far = if self.udp { 443 } else { 80u16 };
        let ports = match self.direction {
            Direction::In => [far, self.port],
            Direction::Out => [self.port, far],
        };
        let mut bytes: Vec<u8> = ports.into_iter().flat_map(u16::to_be_bytes).collect();
        if self.udp {
            bytes.extend_from_slice(&(8 + self.payload as u16).to_be_bytes());
            bytes.extend_from_slice(&[0, 0]);
        } else {
            bytes.extend_from_slice(&self.seq.to_be_bytes());
            bytes.extend_from_slice(&self.ack.to_be_bytes());
            bytes.extend_from_slice(&[((20 + self.options.len()) as u8 / 4) << 4, self.flags]);
            bytes.extend_from_slice(&self.window.to_be_bytes());
            bytes.extend_from_slice(&[0; 4]);
            bytes.extend_from_slice(&self.options);
        }
        bytes.extend((0..self.payload).map(|at| at as u8));
        bytes
    }
}

/// The folded sum of RFC 1071.
fn sum(bytes: &[u8]) -> u16 {
    sheaf_wire::checksum::fold(sheaf_wire::checksum::sum(bytes, 0))
}

/// SYN, SYN and ACK, ACK; sequence numbers begin with 0 at both ends.
pub fn handshake(
    layout: Layout,
    opener: Direction,
    options: &[Vec<u8>; 2],
    windows: [u16; 2],
) -> [Packet; 3] {
    let base = |direction| Packet { seq: 0, ack: 0, ..Packet::ack(layout, direction) };
    [
        Packet { flags: 2, window: windows[0], options: options[0].clone(), ..base(opener) },
        Packet {
            flags: 18,
            ack: 1,
            window: windows[1],
            options: options[1].clone(),
            ..base(opener.reverse())
        },
        Packet { seq: 1, ack: 1, ..base(opener) },
    ]
}
