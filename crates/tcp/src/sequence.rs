//! Sequence numbers: 32 bits on the wire, 64 bits inside (RFC 9293, section 3.4).
//!
//! Inside, an *offset* counts from the SYN, which has offset 0; the first byte of data has 1. On
//! the wire it is the offset plus a random first number, modulo 2³².

/// The numbering of one direction of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Numbering {
    /// Number of the SYN.
    pub first: u32,
}

impl Numbering {
    /// Number of `offset` on the wire.
    pub fn number(self, offset: u64) -> u32 {
        self.first.wrapping_add(offset as u32)
    }

    /// The offset nearest to `near` that has `number`; `None` for a number before the SYN.
    pub fn offset(self, number: u32, near: u64) -> Option<u64> {
        let distance = number.wrapping_sub(self.number(near)) as i32;
        near.checked_add_signed(i64::from(distance))
    }
}

/// Whether `one` is before `other` modulo 2³²: sequence numbers and time stamps.
pub(crate) fn before(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) < 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_wrap_and_offsets_do_not() {
        let numbering = Numbering { first: u32::MAX - 1 };
        for offset in [0, 1, 2, 3, 1 << 31, u64::from(u32::MAX), 5 << 32] {
            for near in [offset, offset + 1_000_000, offset.saturating_sub(1_000_000)] {
                assert_eq!(numbering.offset(numbering.number(offset), near), Some(offset));
            }
        }
        assert_eq!(numbering.offset(numbering.number(0).wrapping_sub(1), 0), None);
        assert!(before(u32::MAX, 0) && !before(0, u32::MAX) && !before(7, 7));
    }
}
