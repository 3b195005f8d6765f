//! One data block.

use super::{MAX_LEN, Refusal};
use crate::compress::{Compressed, Definition, Headers};
use crate::ethernet;
use crate::ip::{Ip, IpError, Protocol};

/// Bytes before the part of a block that is cut.
pub const CUT_HEADER: usize = 6;

/// Bytes before an Ethernet payload.
pub const ETHERNET_HEADER: usize = 4;

/// First nibbles of the blocks that RFC 9347 does not have.
const ETHERNET: u8 = 2;
const CUT: u8 = 8;
const DEFINITION: u8 = 9;
const LONG: u8 = 10;
const COMPACT: u8 = 12;

/// A checked block.
#[derive(Clone, Copy, Debug)]
pub enum Block<'a> {
    /// A packet as it is.
    Packet(&'a [u8]),
    /// Payload of an Ethernet frame.
    Ethernet(Payload<'a>),
    /// A definition of a context, and the packet that defines it.
    Definition(Definition<'a>),
    /// A compressed packet: its header and its payload.
    Compressed(Compressed, &'a [u8]),
}

/// Payload of an Ethernet frame that is not of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload<'a> {
    /// Its EtherType.
    pub ethertype: u16,
    /// Its bytes.
    pub bytes: &'a [u8],
}

impl<'a> Payload<'a> {
    /// The header of a block with `len` bytes of payload.
    ///
    /// # Panics
    /// If that is more than a frame has room for.
    pub fn header(ethertype: u16, len: usize) -> [u8; ETHERNET_HEADER] {
        assert!(len <= MAX_LEN, "a payload of {len} bytes");
        let [high, low] = (u16::from(ETHERNET) << 12 | len as u16).to_be_bytes();
        let [a, b] = ethertype.to_be_bytes();
        [high, low, a, b]
    }

    /// Reads the block at the start of `bytes`, if it is of this kind.
    pub fn parse(bytes: &'a [u8]) -> Result<Payload<'a>, Refusal> {
        let (header, rest) =
            bytes.split_first_chunk::<ETHERNET_HEADER>().ok_or(Refusal::Truncated)?;
        let [high, low, a, b] = *header;
        if high >> 4 != ETHERNET {
            return Err(Refusal::UnknownBlock);
        }
        let ethertype = u16::from_be_bytes([a, b]);
        if ethertype < ethernet::LEAST_TYPE || ethernet::is_ip(ethertype) {
            return Err(Refusal::BadPacket);
        }
        let len = usize::from(u16::from_be_bytes([high, low]) & 0x0fff);
        Ok(Payload { ethertype, bytes: rest.get(..len).ok_or(Refusal::Truncated)? })
    }
}

/// Beginning of a block that continues in the next frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut<'a> {
    /// Bytes of the whole block, without this header.
    pub len: u16,
    /// CRC-32 of the whole block.
    pub check: u32,
    /// The part in this frame; may be empty.
    pub part: &'a [u8],
}

impl<'a> Cut<'a> {
    /// The header of a cut of `block`.
    ///
    /// # Panics
    /// If the block is longer than a frame.
    pub fn header(block: &[u8]) -> [u8; CUT_HEADER] {
        assert!(block.len() <= MAX_LEN, "a block of {} bytes", block.len());
        let [high, low] = (u16::from(CUT) << 12 | block.len() as u16).to_be_bytes();
        let [a, b, c, d] = crate::crc::crc32(block).to_be_bytes();
        [high, low, a, b, c, d]
    }

    fn parse(bytes: &'a [u8]) -> Result<Cut<'a>, Refusal> {
        let (header, part) = bytes.split_first_chunk::<CUT_HEADER>().ok_or(Refusal::Truncated)?;
        let [high, low, check @ ..] = *header;
        let len = u16::from_be_bytes([high, low]) & 0x0fff;
        if usize::from(len) > MAX_LEN || usize::from(len) <= part.len() {
            return Err(Refusal::BadCut);
        }
        Ok(Cut { len, check: u32::from_be_bytes(check), part })
    }
}

/// The next block of a frame.
pub(super) enum Next<'a> {
    /// A block of so many bytes.
    Block(usize),
    /// A cut block, which ends the frame.
    Cut(Cut<'a>),
    /// Zeros to the end.
    Pad,
    /// A compressed packet of this context, which the receiver does not know: its length is
    /// unknown, too, and what follows cannot be found.
    Unknown(u8),
}

/// Finds the end of the block at the start of `bytes`, which are not empty, and checks it.
pub(super) fn next<'a>(
    bytes: &'a [u8],
    payload_len: &impl Fn(u8) -> Option<u16>,
) -> Result<Next<'a>, Refusal> {
    match bytes[0] >> 4 {
        0 if bytes.iter().all(|byte| *byte == 0) => Ok(Next::Pad),
        0 => Err(Refusal::Padding),
        4 | 6 => Ok(Next::Block(packet_len(bytes)?)),
        ETHERNET => Ok(Next::Block(ETHERNET_HEADER + Payload::parse(bytes)?.bytes.len())),
        CUT => Cut::parse(bytes).map(Next::Cut),
        DEFINITION => {
            let (head, packet) =
                bytes.split_first_chunk::<{ Definition::HEADER }>().ok_or(Refusal::Truncated)?;
            let len = packet_len(packet)?;
            Definition::parse(head, &packet[..len]).ok_or(Refusal::BadDefinition)?;
            Ok(Next::Block(head.len() + len))
        }
        LONG | COMPACT.. => {
            let (head, len) = Compressed::parse(bytes).ok_or(Refusal::Truncated)?;
            let Some(payload) = head.length.or_else(|| payload_len(head.number)) else {
                return Ok(Next::Unknown(head.number));
            };
            let len = len + usize::from(payload);
            if len > bytes.len() { Err(Refusal::Truncated) } else { Ok(Next::Block(len)) }
        }
        _ => Err(Refusal::UnknownBlock),
    }
}

/// Whether the block at the start of `bytes` has the length of its context.
pub(super) fn has_implied_length(bytes: &[u8]) -> bool {
    let first = bytes[0] >> 4;
    (first == LONG || first >= COMPACT)
        && Compressed::parse(bytes).is_some_and(|(header, _)| header.length.is_none())
}

impl<'a> Block<'a> {
    /// Reads the block that is exactly `bytes`, as joined from parts of several frames. `Err`
    /// inside: it is compressed with the context of that number, which is unknown.
    pub fn parse(
        bytes: &'a [u8],
        payload_len: impl Fn(u8) -> Option<u16>,
    ) -> Result<Result<Block<'a>, u8>, Refusal> {
        if bytes.is_empty() {
            return Err(Refusal::Empty);
        }
        match next(bytes, &payload_len)? {
            Next::Block(len) if len == bytes.len() => Ok(Ok(Block::checked(bytes))),
            Next::Unknown(number) => Ok(Err(number)),
            Next::Block(_) | Next::Cut(_) | Next::Pad => Err(Refusal::BadCut),
        }
    }

    /// The block that is exactly `bytes`, of which [`next`] has found the end.
    pub(super) fn checked(bytes: &'a [u8]) -> Block<'a> {
        match bytes[0] >> 4 {
            ETHERNET => Block::Ethernet(Payload::parse(bytes).expect("seen to be whole")),
            DEFINITION => {
                let (head, packet) = bytes.split_first_chunk().expect("seen to be whole");
                Block::Definition(Definition::parse(head, packet).expect("seen to be right"))
            }
            LONG | COMPACT.. => {
                let (head, len) = Compressed::parse(bytes).expect("seen to be whole");
                Block::Compressed(head, &bytes[len..])
            }
            _ => Block::Packet(bytes),
        }
    }
}

/// Length of the packet at the start of `bytes`.
pub(crate) fn packet_len(bytes: &[u8]) -> Result<usize, Refusal> {
    let packet = Ip::parse(bytes).map_err(|error| match error {
        IpError::Truncated => Refusal::Truncated,
        IpError::Version | IpError::Header => Refusal::BadPacket,
    })?;
    if packet.protocol() == Protocol::META {
        Err(Refusal::Nested)
    } else {
        Ok(packet.bytes().len())
    }
}

impl<'a> Definition<'a> {
    /// Reads the header of a definition and the packet behind it. `None`: they define nothing.
    fn parse(head: &[u8; Definition::HEADER], packet: &'a [u8]) -> Option<Definition<'a>> {
        Definition::read(head, Headers::read(packet)?)
    }
}
