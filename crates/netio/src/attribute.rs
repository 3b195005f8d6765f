//! Attributes of netlink messages (linux/netlink.h): a length, a kind and a value, at multiples of
//! four bytes. A value may be a list of attributes.

/// Bytes of length and kind.
const HEAD: usize = 4;
/// Bits of the kind; above it are NLA_F_NESTED and NLA_F_NET_BYTEORDER.
const KIND: u16 = 0x3fff;

/// The attributes in some bytes: kinds and values. The first damaged one ends them.
#[derive(Clone, Debug)]
pub struct Attributes<'a>(&'a [u8]);

impl<'a> Attributes<'a> {
    /// The attributes in `bytes`.
    pub fn of(bytes: &'a [u8]) -> Attributes<'a> {
        Attributes(bytes)
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<(u16, &'a [u8])> {
        let (head, _) = self.0.split_first_chunk::<HEAD>()?;
        let len = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let kind = u16::from_ne_bytes([head[2], head[3]]) & KIND;
        let value = self.0.get(HEAD..len)?;
        // The last one need not be padded.
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    }
}

/// Writes an attribute behind `bytes`, padded.
///
/// # Panics
/// Where the value has 64 KiB or more.
pub fn put(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let len = u16::try_from(HEAD + value.len()).expect("values of requests are short");
    bytes.extend(len.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// A value of fixed size, in the byte order of the machine.
pub trait Value: Sized {
    /// The value in `bytes`; `None` where these are too few or too many.
    fn of(bytes: &[u8]) -> Option<Self>;
}

impl Value for [u8; 6] {
    fn of(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok()
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Value for $number {
            fn of(bytes: &[u8]) -> Option<Self> {
                bytes.try_into().ok().map(<$number>::from_ne_bytes)
            }
        }
    )*};
}

numbers!(u8, i8, u16, u32, u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_that_were_written_are_read_and_damaged_ones_end_the_list() {
        let mut bytes = Vec::new();
        put(&mut bytes, 3, &7u32.to_ne_bytes());
        put(&mut bytes, 4, b"wlan0\0");
        put(&mut bytes, 22, b"");
        let all: Vec<_> = Attributes::of(&bytes).collect();
        let number: &[u8] = &7u32.to_ne_bytes();
        assert_eq!(all, [(3, number), (4, b"wlan0\0"), (22, b"")]);
        assert_eq!(u32::of(number), Some(7));
        assert_eq!(u16::of(number), None);
        // A length below that of the head, and one beyond the end.
        bytes[8] = 3;
        assert_eq!(Attributes::of(&bytes).count(), 1);
        bytes[8] = 200;
        assert_eq!(Attributes::of(&bytes).count(), 1);
    }

    #[test]
    fn flags_of_a_kind_are_no_part_of_it_and_the_last_value_needs_no_padding() {
        let mut bytes = Vec::new();
        put(&mut bytes, 0x8015, b"abcde");
        bytes.truncate(9);
        let value: &[u8] = b"abcde";
        assert_eq!(Attributes::of(&bytes).collect::<Vec<_>>(), [(0x15, value)]);
    }
}
