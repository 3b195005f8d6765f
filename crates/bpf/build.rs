//! Compiles the eBPF programs with clang, and packs them: loops that are unrolled are large, and
//! much the same again and again.

use object::build::elf::{Builder, SectionData};
use object::elf::{SHT_STRTAB, STT_NOTYPE};
use std::path::PathBuf;
use std::process::Command;

/// Buckets of the window program's table of flows in a build for size (window_layout.rs).
const SMALL_BUCKETS: &str = "-DBUCKETS=512";

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
        let packed = lz4_flex::block::compress_prepend_size(&object);
        std::fs::write(&path, &object).expect("OUT_DIR is writable");
        std::fs::write(path.with_extension("lz4"), packed).expect("OUT_DIR is writable");
    }
}

/// Type information (BTF) whose table of texts has the names of types alone. clang also puts there
/// every line of source, to which .BTF.ext refers.
fn with_names_alone(btf: &[u8]) -> Vec<u8> {
    let word = |at: usize| u32::from_ne_bytes(btf[at..at + 4].try_into().expect("four bytes"));
    // struct btf_header: magic, version, flags, hdr_len, type_off, type_len, str_off, str_len.
    let header = word(4) as usize;
    let [types, types_len, texts] = [8, 12, 16].map(|at| word(at) as usize);
    let (start, end) = (header + types, header + types + types_len);
    let mut pruned = btf[..end].to_vec();
    // The first text is empty: of what has no name.
    let mut names = vec![0];
    let mut rename = |at: usize| {
        let text = &btf[header + texts + word(at) as usize..];
        let len = text.iter().position(|byte| *byte == 0).expect("texts end");
        if len > 0 {
            pruned[at..at + 4].copy_from_slice(&(names.len() as u32).to_ne_bytes());
            names.extend_from_slice(&text[..=len]);
        }
    };
    let mut at = start;
    while at < end {
        // struct btf_type: name_off, info, size or type; then what the kind has
        // (Documentation/bpf/btf.rst of Linux): bytes of each entry, and whether it has a name.
        let (kind, count) = (word(at + 4) >> 24 & 0x1f, word(at + 4) as usize & 0xffff);
        rename(at);
        at += 12;
        let (entries, len, named) = match kind {
            4 | 5 | 19 => (count, 12, true), // STRUCT, UNION, ENUM64
            6 | 13 => (count, 8, true),      // ENUM, FUNC_PROTO
            15 => (count, 12, false),        // DATASEC
            3 => (1, 12, false),             // ARRAY
            1 | 14 | 17 => (1, 4, false),    // INT, VAR, DECL_TAG
            _ => (0, 0, false),
        };
        (0..entries).filter(|_| named).for_each(|entry| rename(at + entry * len));
        at += entries * len;
    }
    // The texts now follow the types at once.
    for (at, value) in [(16, types + types_len), (20, names.len())] {
        pruned[at..at + 4].copy_from_slice(&(value as u32).to_ne_bytes());
    }
    pruned.extend_from_slice(&names);
    pruned
}

/// Whether cargo builds for size before speed, as `make router` does.
fn is_for_size() -> bool {
    std::env::var("OPT_LEVEL").is_ok_and(|level| ["s", "z"].contains(&&*level))
}

/// Removes DWARF from an object file. The map definitions need BTF, which clang writes only
/// together with DWARF, and DWARF would be half of the object in the binary and in memory.
///
/// A build for size also goes without the lines of source that the verifier quotes in its reasons,
/// more than half of what is left, and without the names of places to jump to, a seventh.
fn without_debug_information(object: &[u8]) -> Vec<u8> {
    let for_size = is_for_size();
    let mut builder = Builder::read(object).expect("clang writes ELF");
    for section in &mut builder.sections {
        let name: &[u8] = &section.name;
        let lines = [&b".BTF.ext"[..], b".rel.BTF.ext"].contains(&name);
        section.delete =
            name.starts_with(b".debug") || name.starts_with(b".rel.debug") || for_size && lines;
        if let (b".BTF", true, SectionData::Data(data)) = (name, for_size, &mut section.data) {
            *data = with_names_alone(data).into();
        }
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
