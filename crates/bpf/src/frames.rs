//! Format 2 as both programs need it: structures in their maps, byte for byte as in
//! `src/c/frames.h`.

use bytemuck::{Pod, Zeroable};
use sheaf_wire::crc::{crc16, crc32};

/// `struct crc_table`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct CrcTable {
    of: [[u32; 256]; 4],
}

impl CrcTable {
    /// The table of a check: what `register` becomes behind a byte and up to three zeros.
    fn new(register: impl Fn(&[u8]) -> u32) -> CrcTable {
        let after = |zeros: usize, byte: usize| register(&[byte as u8, 0, 0, 0][..=zeros]);
        let of = |zeros| std::array::from_fn(|byte| after(zeros, byte));
        CrcTable { of: std::array::from_fn(of) }
    }
}

/// `struct crc_tables`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct CrcTables {
    of16: CrcTable,
    of32: CrcTable,
}

impl CrcTables {
    /// The tables of both checks.
    pub fn new() -> CrcTables {
        // `crc32` starts with ones and inverts the result: zeros have that in common.
        let bare = |bytes: &[u8]| crc32(bytes) ^ crc32(&[0; 4][..bytes.len()]);
        CrcTables {
            of16: CrcTable::new(|bytes| u32::from(crc16(0, bytes)) << 16),
            of32: CrcTable::new(|bytes| bare(bytes).swap_bytes()),
        }
    }
}

/// `struct base`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Base {
    timestamp: u32,
    counter: u16,
    pad: u16,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirrors::{same, structures};

    #[test]
    fn structures_are_laid_out_as_in_c() {
        let objects = [
            &include_bytes!(concat!(env!("OUT_DIR"), "/merge.bpf.o"))[..],
            include_bytes!(concat!(env!("OUT_DIR"), "/split.bpf.o")),
        ];
        for types in objects.map(structures) {
            same!(types, "crc_table", CrcTable { of });
            same!(types, "crc_tables", CrcTables { of16, of32 });
            same!(types, "base", Base { timestamp, counter, pad });
        }
    }

    #[test]
    fn the_tables_step_by_four_bytes_as_the_checks_do_by_one() {
        let bytes = b"123456789abc";
        let CrcTables { of16, of32 } = CrcTables::new();
        let run = |table: &CrcTable, start: u32| {
            bytes.chunks(4).fold(start, |crc, word| {
                let word = u32::from_be_bytes(word.try_into().unwrap()) ^ crc;
                word.to_be_bytes()
                    .iter()
                    .zip([3, 2, 1, 0])
                    .fold(0, |crc, (byte, after)| crc ^ table.of[after][usize::from(*byte)])
            })
        };
        assert_eq!((run(&of16, 0xffff_0000) >> 16) as u16, crc16(u16::MAX, bytes));
        assert_eq!(!run(&of32, u32::MAX).swap_bytes(), crc32(bytes));
    }
}
