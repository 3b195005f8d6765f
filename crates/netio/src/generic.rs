//! Questions to families of generic netlink (linux/genetlink.h), such as nl80211.
//!
//! A family has a name; its number is given by the kernel when its module is loaded, and asked for
//! here once.

use crate::attribute::{Attributes, Value, put};
use crate::netlink::{self, Netlink};
use netlink_packet_core::{DecodeError, NetlinkDeserializable, NetlinkHeader, NetlinkSerializable};
use netlink_sys::protocols::NETLINK_GENERIC;
use nix::libc;
use std::io;

/// Number of the family that has the numbers of the others (GENL_ID_CTRL).
const CONTROLLER: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
/// Bytes of `struct genlmsghdr`: command, version, and two that are reserved.
const HEAD: usize = 4;
/// Version of all families here; the kernel hardly looks at it.
const VERSION: u8 = 1;

/// A message of a family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Number of the family.
    pub family: u16,
    /// Command of the family.
    pub command: u8,
    /// Attributes, in the form of the kernel.
    pub attributes: Vec<u8>,
}

impl netlink::Message for Message {
    const PROTOCOL: isize = NETLINK_GENERIC;
}

impl NetlinkSerializable for Message {
    fn message_type(&self) -> u16 {
        self.family
    }

    fn buffer_len(&self) -> usize {
        HEAD + self.attributes.len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        let (head, attributes) = buffer.split_at_mut(HEAD);
        head.copy_from_slice(&[self.command, VERSION, 0, 0]);
        attributes.copy_from_slice(&self.attributes);
    }
}

impl NetlinkDeserializable for Message {
    type Error = DecodeError;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Message, DecodeError> {
        let short = || DecodeError::invalid_buffer("generic netlink", payload.len(), HEAD);
        let (head, attributes) = payload.split_first_chunk::<HEAD>().ok_or_else(short)?;
        let attributes = attributes.to_vec();
        Ok(Message { family: header.message_type, command: head[0], attributes })
    }
}

/// Number of a family, in the reply to CTRL_CMD_GETFAMILY.
pub fn family(reply: &[u8]) -> Option<u16> {
    let of_number = |(kind, value)| (kind == CTRL_ATTR_FAMILY_ID).then(|| u16::of(value));
    Attributes::of(reply).find_map(of_number).flatten()
}

/// A socket to families of generic netlink.
#[derive(Debug)]
pub struct Generic {
    netlink: Netlink<Message>,
    /// Families asked for before.
    known: Vec<(&'static str, u16)>,
}

impl Generic {
    /// A new one, in the network namespace of this thread.
    pub fn open() -> io::Result<Generic> {
        Ok(Generic { netlink: Netlink::to_family()?, known: Vec::new() })
    }

    /// Hands the attributes of every message of the reply to `each`.
    ///
    /// # Errors
    /// `NotFound` where the kernel has no such family, else the error of the family.
    pub(crate) fn dump(
        &mut self,
        name: &'static str,
        command: u8,
        attributes: Vec<u8>,
        mut each: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        let family = self.number(name)?;
        let message = Message { family, command, attributes };
        let result = self.netlink.dump(message, |message| each(&message.attributes));
        if result.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::ENOENT)) {
            // The module was unloaded; another number comes with it.
            self.known.retain(|(known, _)| *known != name);
        }
        result
    }

    /// Number of the family `name`.
    ///
    /// # Errors
    /// `NotFound` where the kernel has no such family.
    pub(crate) fn number(&mut self, name: &'static str) -> io::Result<u16> {
        if let Some((_, number)) = self.known.iter().find(|(known, _)| *known == name) {
            return Ok(*number);
        }
        let mut attributes = Vec::new();
        let value: Vec<u8> = name.bytes().chain([0]).collect();
        put(&mut attributes, CTRL_ATTR_FAMILY_NAME, &value);
        let message = Message { family: CONTROLLER, command: CTRL_CMD_GETFAMILY, attributes };
        let mut number = None;
        // The kernel loads the family's module where it can, and reports ENOENT where it cannot.
        self.netlink.ask(message, |message| number = family(&message.attributes))?;
        let number = number.ok_or(io::ErrorKind::NotFound)?;
        self.known.push((name, number));
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_controller_has_its_own_number_and_families_that_are_missing_are_not_found() {
        let mut generic = Generic::open().unwrap();
        assert_eq!(generic.number("nlctrl").unwrap(), CONTROLLER);
        for _ in 0..2 {
            let error = generic.number("no such family").unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound);
        }
        assert_eq!(generic.known, [("nlctrl", CONTROLLER)]);
    }

    #[test]
    fn an_error_of_a_family_is_returned_and_the_socket_stays_usable() {
        let mut generic = Generic::open().unwrap();
        let attributes = Vec::new();
        // Not a command of the controller.
        let error = generic.dump("nlctrl", 200, attributes, |_| {}).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP));
        let mut families = 0;
        generic
            .dump("nlctrl", CTRL_CMD_GETFAMILY, Vec::new(), |reply| {
                families += usize::from(family(reply).is_some());
            })
            .unwrap();
        assert!(families >= 1);
    }
}
