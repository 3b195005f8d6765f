//! Cyclic redundancy checks, a byte at a time with tables of 256 entries.

/// Generator of CRC-16 (ITU-T V.41), without its highest bit.
const POLYNOMIAL_16: u16 = 0x1021;
/// Generator of CRC-32 (IEEE 802.3), bits reversed.
const POLYNOMIAL_32: u32 = 0xedb8_8320;

static TABLE_16: [u16; 256] = table_16();
static TABLE_32: [u32; 256] = table_32();

/// CRC-16 of `bytes` after `before`: the register's start value, or the CRC of what stands before
/// them. Finds every error within 16 adjacent bits.
pub fn crc16(before: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(before, |crc, byte| crc << 8 ^ TABLE_16[usize::from((crc >> 8) as u8 ^ byte)])
}

/// CRC-32 of `bytes`, as in the frame check sequence of Ethernet.
pub fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| crc >> 8 ^ TABLE_32[usize::from(crc as u8 ^ byte)])
}

const fn table_16() -> [u16; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut crc = (index as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            let carry = crc >> 15;
            crc = (crc << 1) ^ (carry * POLYNOMIAL_16);
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
}

const fn table_32() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut crc = index as u32;
        let mut bit = 0;
        while bit < 8 {
            let carry = crc & 1;
            crc = (crc >> 1) ^ (carry * POLYNOMIAL_32);
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_values_are_those_of_the_catalogue() {
        // CRC-16/IBM-3740 and CRC-32/ISO-HDLC over the digits.
        assert_eq!(crc16(0xffff, b"123456789"), 0x29b1);
        assert_eq!(crc16(crc16(0xffff, b"1234"), b"56789"), 0x29b1);
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }
}
