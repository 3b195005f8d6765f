//! Explicit congestion notification through a meta packet: RFC 6040, normal mode.
//!
//! A router on the way marks the *outer* header; at the far side the mark must reach the inner
//! packets, or the senders never learn of the congestion. Packets with different capability never
//! share a frame, so that the outer field can say the truth about all of them.

/// The two ECN bits of an IP header (RFC 3168).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub enum Ecn {
    /// Not ECN-capable: congestion is signalled by a drop.
    #[default]
    NotEct = 0,
    /// ECN-capable, scalable senders (RFC 9331).
    Ect1 = 1,
    /// ECN-capable.
    Ect0 = 2,
    /// Congestion experienced.
    Ce = 3,
}

impl Ecn {
    /// From the two low bits of a TOS or traffic class byte.
    pub const fn from_bits(bits: u8) -> Ecn {
        match bits & 3 {
            0 => Ecn::NotEct,
            1 => Ecn::Ect1,
            2 => Ecn::Ect0,
            _ => Ecn::Ce,
        }
    }

    /// The outer field under which a packet with this field travels, and which packets may share
    /// a frame: those with the same answer.
    ///
    /// RFC 6040 copies the field. A packet that carries CE already travels under ECT(0): copied,
    /// its mark would reach every other packet of the frame, and its own is kept inside anyway.
    pub const fn outer(self) -> Ecn {
        match self {
            Ecn::Ce => Ecn::Ect0,
            other => other,
        }
    }

    /// The inner field after decapsulation (RFC 6040, figure 4). `None`: the packet is dropped,
    /// because it met congestion and its sender does not understand marks.
    pub const fn decapsulate(self, outer: Ecn) -> Option<Ecn> {
        match (self, outer) {
            (Ecn::NotEct, Ecn::Ce) => None,
            (Ecn::NotEct, _) => Some(Ecn::NotEct),
            (_, Ecn::Ce) => Some(Ecn::Ce),
            (Ecn::Ect0, Ecn::Ect1) => Some(Ecn::Ect1),
            (inner, _) => Some(inner),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Ecn::{self, Ce, Ect0, Ect1, NotEct};

    #[test]
    fn decapsulation_is_the_table_of_rfc_6040() {
        // Rows: arriving inner; columns: arriving outer Not-ECT, ECT(0), ECT(1), CE.
        let outers = [NotEct, Ect0, Ect1, Ce];
        let table = [
            (NotEct, [Some(NotEct), Some(NotEct), Some(NotEct), None]),
            (Ect0, [Some(Ect0), Some(Ect0), Some(Ect1), Some(Ce)]),
            (Ect1, [Some(Ect1), Some(Ect1), Some(Ect1), Some(Ce)]),
            (Ce, [Some(Ce), Some(Ce), Some(Ce), Some(Ce)]),
        ];
        for (inner, row) in table {
            for (outer, expected) in outers.into_iter().zip(row) {
                assert_eq!(inner.decapsulate(outer), expected, "{inner:?} in {outer:?}");
            }
        }
    }

    #[test]
    fn a_marked_packet_does_not_mark_those_it_travels_with() {
        assert_eq!(Ecn::Ce.outer(), Ect0);
        assert_eq!(Ect0.decapsulate(Ecn::Ce.outer()), Some(Ect0));
    }
}
