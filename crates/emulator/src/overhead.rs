//! `rate R [PACKETOVERHEAD [CELLSIZE [CELLOVERHEAD]]]`: bytes that a packet costs on the wire.

/// Bytes that a packet takes beyond its own, as tc-netem(8) counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overhead {
    /// Added to each packet; negative to leave out a header that the real link has not.
    pub packet: i32,
    /// Payload bytes of a cell, the last one padded (48 for ATM); 0 for no cells.
    pub cell: u32,
    /// Added to each cell (5 for ATM).
    pub per_cell: i32,
}

impl Overhead {
    /// Bytes on the wire of a packet of `len` bytes; no less than zero.
    pub fn wire_len(self, len: usize) -> u64 {
        let len = (len as i64).saturating_add(i64::from(self.packet)).max(0) as u64;
        if self.cell == 0 {
            return len;
        }
        let cell = (i64::from(self.cell) + i64::from(self.per_cell)).max(0) as u64;
        len.div_ceil(u64::from(self.cell)).saturating_mul(cell)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_atm_link_takes_whole_cells() {
        let atm = Overhead { packet: 8, cell: 48, per_cell: 5 };
        assert_eq!(atm.wire_len(40), 53, "40 + 8 fill one cell");
        assert_eq!(atm.wire_len(41), 106);
        assert_eq!(atm.wire_len(1500), 32 * 53);
    }

    #[test]
    fn a_negative_overhead_never_makes_a_negative_length() {
        let overhead = Overhead { packet: -14, ..Overhead::default() };
        assert_eq!(overhead.wire_len(100), 86);
        assert_eq!(overhead.wire_len(4), 0);
        assert_eq!(Overhead { packet: 0, cell: 10, per_cell: -20 }.wire_len(100), 0);
    }
}
