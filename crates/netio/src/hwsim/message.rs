//! The messages, read and written.

use crate::attribute::{Attributes, Value, put};
use netlink_packet_core::{NLM_F_REQUEST, NetlinkBuffer};
use nix::libc;

/// Commands (`enum hwsim_commands`).
pub(super) mod command {
    pub const REGISTER: u8 = 1;
    pub const FRAME: u8 = 2;
    pub const TX_INFO_FRAME: u8 = 3;
    pub const ADD_MAC_ADDR: u8 = 7;
    pub const DEL_MAC_ADDR: u8 = 8;
}

/// Attributes (`enum hwsim_attrs`).
mod attr {
    pub const ADDR_RECEIVER: u16 = 1;
    pub const ADDR_TRANSMITTER: u16 = 2;
    pub const FRAME: u16 = 3;
    pub const FLAGS: u16 = 4;
    pub const RX_RATE: u16 = 5;
    pub const SIGNAL: u16 = 6;
    pub const TX_INFO: u16 = 7;
    pub const COOKIE: u16 = 8;
    pub const FREQ: u16 = 19;
    pub const TX_INFO_FLAGS: u16 = 21;
}

/// `enum hwsim_tx_control_flags`: no acknowledgement is waited for; one was received.
const NO_ACK: u32 = 1 << 1;
const ACKED: u32 = 1 << 2;
/// `enum hwsim_tx_rate_flags`: the rate is an index of 802.11n, or of 802.11ac.
const MCS: u16 = 1 << 3;
const VHT_MCS: u16 = 1 << 8;

/// Rates that mac80211 gives a frame at most (IEEE80211_TX_MAX_RATES).
pub const RATES: usize = 4;
/// Longest frame that the driver takes from a medium, in bytes (IEEE80211_MAX_DATA_LEN).
pub const LARGEST_FRAME: usize = 2304;
/// Bytes of `struct hwsim_tx_rate` and of `struct hwsim_tx_rate_flag`, which are packed.
const RATE: usize = 2;
const RATE_FLAG: usize = 3;
/// Bytes of `struct nlmsghdr` and of `struct genlmsghdr`.
const NETLINK_HEAD: usize = 16;
const GENERIC_HEAD: usize = 4;
/// Version of the family.
const VERSION: u8 = 1;

/// Attempts with one rate (`struct hwsim_tx_rate`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Index of the rate: of the band's table, or an MCS; -1 where there is no further rate.
    pub index: i8,
    /// Attempts.
    pub count: u8,
}

impl Attempt {
    /// No further rate.
    pub const NONE: Attempt = Attempt { index: -1, count: 0 };
}

/// A frame that a radio sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Address by which the driver knows the radio; not one of its interfaces'.
    pub radio: [u8; 6],
    /// Frame of 802.11, without its check sum.
    pub bytes: &'a [u8],
    /// Whether the sender waits for no acknowledgement.
    pub no_ack: bool,
    /// Centre of the channel, in MHz.
    pub frequency: Option<u32>,
    /// Number of the frame; it follows that of the radio's frame before.
    pub cookie: u64,
    /// Rates that mac80211 would try, the first one first.
    pub rates: [Attempt; RATES],
    /// Whether the first rate is an index of 802.11n or later, not of the band's table.
    pub is_mcs: bool,
}

/// A message of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice<'a> {
    /// A radio sends a frame.
    Frame(Frame<'a>),
    /// An interface of a radio has this address from now on.
    AddressAdded {
        /// Address by which the driver knows the radio.
        radio: [u8; 6],
        /// Address of the interface.
        address: [u8; 6],
    },
    /// An interface of a radio has gone down.
    AddressRemoved {
        /// Address by which the driver knows the radio.
        radio: [u8; 6],
        /// Address of the interface.
        address: [u8; 6],
    },
    /// The driver refused what was sent.
    Refused {
        /// Number of the message, as it was given to [`encode_delivery`] or [`encode_status`].
        sequence: u32,
    },
}

impl<'a> Notice<'a> {
    /// A message of a command, from its attributes; `None` where the command is another, or an
    /// attribute is missing.
    fn parse(command: u8, attributes: &'a [u8]) -> Option<Notice<'a>> {
        match command {
            command::FRAME => Frame::parse(attributes).map(Notice::Frame),
            command::ADD_MAC_ADDR | command::DEL_MAC_ADDR => {
                let (mut radio, mut address) = (None, None);
                for (kind, value) in Attributes::of(attributes) {
                    match kind {
                        attr::ADDR_TRANSMITTER => radio = Value::of(value),
                        attr::ADDR_RECEIVER => address = Value::of(value),
                        _ => {}
                    }
                }
                let (radio, address) = (radio?, address?);
                Some(match command {
                    command::ADD_MAC_ADDR => Notice::AddressAdded { radio, address },
                    _ => Notice::AddressRemoved { radio, address },
                })
            }
            _ => None,
        }
    }
}

impl<'a> Frame<'a> {
    fn parse(attributes: &'a [u8]) -> Option<Frame<'a>> {
        let (mut radio, mut bytes, mut flags, mut cookie) = (None, None, None, None);
        let (mut frequency, mut rates, mut is_mcs) = (None, [Attempt::NONE; RATES], false);
        for (kind, value) in Attributes::of(attributes) {
            match kind {
                attr::ADDR_TRANSMITTER => radio = Value::of(value),
                attr::FRAME => bytes = Some(value),
                attr::FLAGS => flags = u32::of(value),
                attr::FREQ => frequency = u32::of(value),
                attr::COOKIE => cookie = u64::of(value),
                attr::TX_INFO => {
                    let given = value.chunks_exact(RATE);
                    for (rate, given) in rates.iter_mut().zip(given) {
                        *rate = Attempt { index: given[0] as i8, count: given[1] };
                    }
                }
                attr::TX_INFO_FLAGS => {
                    let first = value.first_chunk::<RATE_FLAG>();
                    let flags = first.map(|first| u16::from_ne_bytes([first[1], first[2]]));
                    is_mcs = flags.is_some_and(|flags| flags & (MCS | VHT_MCS) != 0);
                }
                _ => {}
            }
        }
        let no_ack = flags? & NO_ACK != 0;
        Some(Frame {
            radio: radio?,
            bytes: bytes?,
            no_ack,
            frequency,
            cookie: cookie?,
            rates,
            is_mcs,
        })
    }
}

/// The messages in one datagram. The first damaged one ends them; of those that are whole but not
/// known nothing is returned.
#[derive(Clone, Debug)]
pub struct Reports<'a> {
    family: u16,
    rest: &'a [u8],
}

impl<'a> Reports<'a> {
    /// The messages in `datagram`; `family` is the number of the family.
    pub fn of(family: u16, datagram: &'a [u8]) -> Reports<'a> {
        Reports { family, rest: datagram }
    }

    fn notice(&self, buffer: &NetlinkBuffer<&'a [u8]>) -> Option<Notice<'a>> {
        let payload = buffer.payload();
        if buffer.message_type() == self.family {
            let (head, attributes) = payload.split_first_chunk::<GENERIC_HEAD>()?;
            return Notice::parse(head[0], attributes);
        }
        let is_error = buffer.message_type() == libc::NLMSG_ERROR as u16;
        let code = payload.first_chunk().map(|code| i32::from_ne_bytes(*code));
        let refused = is_error && code.is_some_and(|code| code < 0);
        refused.then(|| Notice::Refused { sequence: buffer.sequence_number() })
    }
}

impl<'a> Iterator for Reports<'a> {
    type Item = Notice<'a>;

    fn next(&mut self) -> Option<Notice<'a>> {
        // A whole message takes at least its head, so this ends.
        while let Ok(buffer) = NetlinkBuffer::new_checked(self.rest) {
            let len = (buffer.length() as usize).next_multiple_of(4).max(NETLINK_HEAD);
            self.rest = self.rest.get(len..).unwrap_or_default();
            if let Some(notice) = self.notice(&buffer) {
                return Some(notice);
            }
        }
        None
    }
}

/// A frame that comes to a radio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery<'a> {
    /// Address by which the driver knows the receiving radio.
    pub radio: [u8; 6],
    /// Frame of 802.11, without its check sum; 24 to [`LARGEST_FRAME`] bytes, else the driver
    /// refuses it.
    pub bytes: &'a [u8],
    /// Index of its rate in the band's table.
    pub rate: u32,
    /// Signal, in dBm.
    pub signal: i32,
    /// Centre of the channel, in MHz. A radio that is on another one refuses it.
    pub frequency: Option<u32>,
}

/// The end of a frame's transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransmitStatus {
    /// Address by which the driver knows the radio that sent the frame.
    pub radio: [u8; 6],
    /// Number of the frame.
    pub cookie: u64,
    /// Whether no acknowledgement was waited for.
    pub no_ack: bool,
    /// Whether an acknowledgement was received.
    pub acked: bool,
    /// Rates, each with the attempts that were made.
    pub rates: [Attempt; RATES],
    /// Signal of the acknowledgement, in dBm.
    pub signal: i32,
}

/// Writes a message over `bytes`. Without an error the driver does not reply.
pub(super) fn encode(
    bytes: &mut Vec<u8>,
    family: u16,
    command: u8,
    sequence: u32,
    attributes: impl FnOnce(&mut Vec<u8>),
) {
    bytes.clear();
    bytes.extend([0; 4]);
    bytes.extend(family.to_ne_bytes());
    bytes.extend(NLM_F_REQUEST.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    // From any port: the kernel knows which socket it is.
    bytes.extend([0; 4]);
    bytes.extend([command, VERSION, 0, 0]);
    attributes(bytes);
    let len = bytes.len() as u32;
    bytes[..4].copy_from_slice(&len.to_ne_bytes());
}

/// Writes the message that hands a frame to a radio over `bytes`. It has number `sequence`, which
/// is in [`Notice::Refused`] where the radio is off or on another channel.
///
/// # Panics
/// Where the frame has 64 KiB or more.
pub fn encode_delivery(bytes: &mut Vec<u8>, family: u16, sequence: u32, delivery: &Delivery<'_>) {
    encode(bytes, family, command::FRAME, sequence, |bytes| {
        put(bytes, attr::ADDR_RECEIVER, &delivery.radio);
        put(bytes, attr::FRAME, delivery.bytes);
        put(bytes, attr::RX_RATE, &delivery.rate.to_ne_bytes());
        put(bytes, attr::SIGNAL, &delivery.signal.to_ne_bytes());
        if let Some(frequency) = delivery.frequency {
            put(bytes, attr::FREQ, &frequency.to_ne_bytes());
        }
    });
}

/// Writes the message that ends a frame's transmission over `bytes`, with number `sequence`.
pub fn encode_status(bytes: &mut Vec<u8>, family: u16, sequence: u32, status: &TransmitStatus) {
    let TransmitStatus { radio, cookie, no_ack, acked, rates, signal } = status;
    let flag = |set: bool, flag: u32| if set { flag } else { 0 };
    let flags = flag(*no_ack, NO_ACK) | flag(*acked, ACKED);
    let mut attempts = [0; RATES * RATE];
    for (place, rate) in attempts.chunks_exact_mut(RATE).zip(rates) {
        place.copy_from_slice(&[rate.index as u8, rate.count]);
    }
    encode(bytes, family, command::TX_INFO_FRAME, sequence, |bytes| {
        put(bytes, attr::ADDR_TRANSMITTER, radio);
        put(bytes, attr::FLAGS, &flags.to_ne_bytes());
        put(bytes, attr::SIGNAL, &signal.to_ne_bytes());
        put(bytes, attr::TX_INFO, &attempts);
        put(bytes, attr::COOKIE, &cookie.to_ne_bytes());
    });
}

#[cfg(test)]
mod tests;
