//! Format 2 as both programs need it: structures in their maps, byte for byte as in
//! `src/c/frames.h`.

use bytemuck::{Pod, Zeroable};
use sheaf_wire::crc::crc32;

/// `struct crc_table`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct CrcTable {
    of: [[u32; 256]; 4],
}

impl CrcTable {
    /// The table of CRC-32.
    pub fn new() -> CrcTable {
        // `crc32` starts with ones and inverts the result: zeros have that in common.
        let bare = |bytes: &[u8]| crc32(bytes) ^ crc32(&[0; 4][..bytes.len()]);
        let after = |zeros: usize, byte: usize| {
            let bytes = [byte as u8, 0, 0, 0];
            bare(&bytes[..=zeros]).swap_bytes()
        };
        CrcTable { of: std::array::from_fn(|zeros| std::array::from_fn(|byte| after(zeros, byte))) }
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
            same!(types, "base", Base { timestamp, counter, pad });
        }
    }

    #[test]
    fn the_table_steps_by_four_bytes_as_the_check_does_by_one() {
        let (bytes, table) = (b"123456789abc", CrcTable::new());
        let register = bytes.chunks(4).fold(u32::MAX, |crc, word| {
            let word = u32::from_be_bytes(word.try_into().unwrap()) ^ crc;
            let after = word.to_be_bytes().into_iter().zip([3, 2, 1, 0]);
            after.fold(0, |crc, (byte, after)| crc ^ table.of[after][usize::from(byte)])
        });
        assert_eq!(!register.swap_bytes(), crc32(bytes));
    }
}
