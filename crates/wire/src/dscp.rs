//! Classes of packets: values of the DSCP (RFC 2474) and their names.

/// The greatest value: the field has six bits.
pub const MAX: u8 = 63;
/// Expedited forwarding (RFC 3246), which telephones use.
pub const EF: u8 = 46;
/// Class selector 6: network control (RFC 4594).
pub const CS6: u8 = 48;
/// Capacity-admitted voice traffic (RFC 5865).
const VA: u8 = 44;
/// Lower effort (RFC 8622).
const LE: u8 = 1;

/// The value of a name: `be` or `default`, `le`, `va`, `ef`, `cs0` to `cs7`, and `af11` to `af43`
/// (RFC 2597), in upper or lower case. `None` for another word.
pub fn named(name: &str) -> Option<u8> {
    match name.to_ascii_lowercase().as_bytes() {
        b"be" | b"default" => Some(0),
        b"le" => Some(LE),
        b"va" => Some(VA),
        b"ef" => Some(EF),
        [b'c', b's', class @ b'0'..=b'7'] => Some((class - b'0') << 3),
        [b'a', b'f', class @ b'1'..=b'4', drop @ b'1'..=b'3'] => {
            Some((class - b'0') << 3 | (drop - b'0') << 1)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_values_of_their_rfcs() {
        let values = [
            ("be", 0),
            ("default", 0),
            ("le", 1),
            ("va", 44),
            ("EF", 46),
            ("cs0", 0),
            ("CS6", 48),
            ("cs7", 56),
            ("af11", 10),
            ("af41", 34),
            ("af43", 38),
        ];
        for (name, value) in values {
            assert_eq!(named(name), Some(value), "{name}");
        }
        for other in ["", "cs", "cs8", "af", "af14", "af51", "voice", "46"] {
            assert_eq!(named(other), None, "{other}");
        }
    }
}
