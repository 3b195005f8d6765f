//! Compares the structures that C and Rust share with the types (BTF) that clang wrote into the
//! objects: the size of each, and name and place of every member.

use object::{Object, ObjectSection};
use std::collections::HashMap;

/// A structure: its size, and its members with their places, in bytes.
#[derive(Debug, PartialEq)]
pub(crate) struct Layout {
    pub size: usize,
    pub members: Vec<(String, usize)>,
}

/// Kinds of types in BTF (Documentation/bpf/btf.rst of Linux).
mod kind {
    pub const INT: u32 = 1;
    pub const ARRAY: u32 = 3;
    pub const STRUCT: u32 = 4;
    pub const UNION: u32 = 5;
    pub const ENUM: u32 = 6;
    pub const FUNC_PROTO: u32 = 13;
    pub const VAR: u32 = 14;
    pub const DATASEC: u32 = 15;
    pub const DECL_TAG: u32 = 17;
    pub const ENUM64: u32 = 19;
}

/// The named structures of an object file.
pub(crate) fn structures(object: &[u8]) -> HashMap<String, Layout> {
    let file = object::File::parse(object).expect("clang writes ELF");
    let section = file.section_by_name(".BTF").expect("the object has types");
    let btf = section.data().expect("its types are in it");
    let word = |at: usize| u32::from_le_bytes(btf[at..at + 4].try_into().unwrap());
    // struct btf_header: magic, version, flags, hdr_len, type_off, type_len, str_off, str_len.
    let header = word(4) as usize;
    let [types, length, strings] = [8, 12, 16].map(|at| word(at) as usize);
    let name = |at: u32| {
        let bytes = &btf[header + strings + at as usize..];
        let end = bytes.iter().position(|byte| *byte == 0).expect("names end");
        String::from_utf8(bytes[..end].to_vec()).expect("names of C are ASCII")
    };
    let mut found = HashMap::new();
    let mut at = header + types;
    while at < header + types + length {
        // struct btf_type: name_off, info, size or type; then what the kind has.
        let (title, info, size) = (word(at), word(at + 4), word(at + 8) as usize);
        let (kind, count) = (info >> 24 & 0x1f, info as usize & 0xffff);
        at += 12;
        let each = match kind {
            kind::STRUCT | kind::UNION | kind::DATASEC | kind::ENUM64 => 12,
            kind::ENUM | kind::FUNC_PROTO => 8,
            _ => 0,
        };
        if kind == kind::STRUCT && title != 0 {
            // The low 24 bits are the place in bits, whether or not the structure has bit fields.
            let member = |at: usize| (name(word(at)), (word(at + 8) & 0xff_ffff) as usize / 8);
            let members = (0..count).map(|number| member(at + number * each)).collect();
            found.insert(name(title), Layout { size, members });
        }
        at += count * each
            + match kind {
                kind::INT | kind::VAR | kind::DECL_TAG => 4,
                kind::ARRAY => 12,
                _ => 0,
            };
    }
    found
}

/// Asserts that a structure of Rust is laid out as the one of C. Every member has to be named.
macro_rules! same {
    ($types:expr, $c:literal, $rust:path { $($member:ident),* $(,)? }) => {{
        let _ = |value: $rust| { let $rust { $($member: _),* } = value; };
        let members = vec![
            $((stringify!($member).to_owned(), std::mem::offset_of!($rust, $member))),*
        ];
        let mirror = $crate::mirrors::Layout { size: size_of::<$rust>(), members };
        assert_eq!(mirror, *$types.get($c).expect($c), "struct {}", $c);
    }};
}

pub(crate) use same;
