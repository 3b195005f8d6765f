//! Compiles the eBPF programs with clang, and packs them: loops that are unrolled are large, and
//! much the same again and again.

use object::build::elf::{Builder, SectionData};
use object::elf::{SHT_STRTAB, STT_NOTYPE};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

/// Buckets of the window program's table of flows in a build for size (window_layout.rs).
const SMALL_BUCKETS: &str = "-DBUCKETS=512";

/// The level of DEFLATE (RFC 1951) that packs most: it takes a build a tenth of a second.
const BEST: u8 = 10;

fn main() {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let include = format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    println!("cargo::rerun-if-changed=src/c");
    println!("cargo::rustc-check-cfg=cfg(small_tables)");
    let mut small = None;
    if is_for_size() {
        println!("cargo::rustc-cfg=small_tables");
        small = Some(SMALL_BUCKETS);
    }
    for program in ["merge", "port", "redirect", "split", "window"] {
        let path = out.join(format!("{program}.bpf.o"));
        let status = Command::new("clang")
            .args(["-g", "-O2", "-target", "bpf", "-mcpu=v3", "-Wall", "-Werror"])
            // The table of addresses that a linker may fold, which nobody reads here.
            .arg("-fno-addrsig")
            .args(small)
            .args(["-I", &include, "-c"])
            .arg(format!("src/c/{program}.bpf.c"))
            .arg("-o")
            .arg(&path)
            .status()
            .expect("clang compiles the eBPF programs; install it with scripts/setup");
        assert!(status.success(), "clang refused {program}.bpf.c");
        let object = std::fs::read(&path).expect("clang wrote the object");
        let object = without_debug_information(&object);
        let packed = miniz_oxide::deflate::compress_to_vec(&object, BEST);
        std::fs::write(&path, &object).expect("OUT_DIR is writable");
        std::fs::write(path.with_extension("deflate"), packed).expect("OUT_DIR is writable");
    }
}

/// Whether cargo builds for size before speed, as `make router` does.
fn is_for_size() -> bool {
    std::env::var("OPT_LEVEL").is_ok_and(|level| ["s", "z"].contains(&&*level))
}

/// Kinds of types in BTF that have more than their first three words
/// (Documentation/bpf/btf.rst of Linux).
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

/// Removes from the types of an object the strings that no type has for a name: the lines of
/// source, most of them.
fn with_names_only(btf: &[u8]) -> Vec<u8> {
    let word = |at: usize| u32::from_le_bytes(btf[at..at + 4].try_into().expect("four bytes"));
    // struct btf_header: magic, version, flags, hdr_len, type_off, type_len, str_off, str_len.
    let header = word(4) as usize;
    let [types, types_len, strings] = [8, 12, 16].map(|at| word(at) as usize);
    let (mut at, end) = (header + types, header + types + types_len);
    // Where the offsets of names are.
    let mut places = Vec::new();
    while at < end {
        let (info, members) = (word(at + 4), at + 12);
        let (kind, count) = (info >> 24 & 0x1f, info as usize & 0xffff);
        let (each, named) = match kind {
            kind::STRUCT | kind::UNION | kind::ENUM64 => (12, true),
            kind::ENUM | kind::FUNC_PROTO => (8, true),
            kind::DATASEC => (12, false),
            _ => (0, false),
        };
        places.push(at);
        places.extend((0..count).filter(|_| named).map(|number| members + number * each));
        at = members + count * each;
        at += match kind {
            kind::INT | kind::VAR | kind::DECL_TAG => 4,
            kind::ARRAY => 12,
            _ => 0,
        };
    }
    // The string at 0 is empty.
    let (mut small, mut names) = (btf[..end].to_vec(), vec![0]);
    let mut moved = BTreeMap::from([(0, 0)]);
    for place in places {
        let name = word(place);
        let new = *moved.entry(name).or_insert_with(|| {
            let string = &btf[header + strings + name as usize..];
            let len = string.iter().position(|byte| *byte == 0).expect("names end");
            names.extend_from_slice(&string[..=len]);
            names.len() - len - 1
        });
        small[place..place + 4].copy_from_slice(&(new as u32).to_le_bytes());
    }
    small[16..20].copy_from_slice(&((types + types_len) as u32).to_le_bytes());
    small[20..24].copy_from_slice(&(names.len() as u32).to_le_bytes());
    small.extend_from_slice(&names);
    small
}

/// Removes DWARF from an object file. The map definitions need BTF, which clang writes only
/// together with DWARF, and DWARF would be half of the object in the binary and in memory.
///
/// A build for size also goes without the lines of source that the verifier quotes in its reasons,
/// two thirds of what is left, and without the names of places to jump to.
fn without_debug_information(object: &[u8]) -> Vec<u8> {
    let for_size = is_for_size();
    let mut builder = Builder::read(object).expect("clang writes ELF");
    for section in &mut builder.sections {
        let name: &[u8] = &section.name;
        let lines = [&b".BTF.ext"[..], b".rel.BTF.ext"].contains(&name);
        section.delete =
            name.starts_with(b".debug") || name.starts_with(b".rel.debug") || for_size && lines;
    }
    if for_size {
        let relocations = builder.sections.iter().filter_map(|section| match &section.data {
            SectionData::Relocation(relocations) if !section.delete => Some(relocations),
            _ => None,
        });
        let used: Vec<_> = relocations.flatten().filter_map(|one| one.symbol).collect();
        for symbol in &mut builder.symbols {
            symbol.delete = symbol.st_type() == STT_NOTYPE && !used.contains(&symbol.id());
        }
        for section in &mut builder.sections {
            if let (b".BTF", SectionData::Data(types)) = (&section.name[..], &mut section.data) {
                *types = with_names_only(types).into();
            }
        }
    }
    builder.delete_orphans();
    // clang keeps all names in one table; the writer wants one for the sections alone.
    let names = builder.sections.add();
    names.name = b".shstrtab"[..].into();
    names.sh_type = SHT_STRTAB;
    names.data = SectionData::SectionString;
    let mut stripped = Vec::new();
    builder.write(&mut stripped).expect("the sections that remain fit together");
    stripped
}
