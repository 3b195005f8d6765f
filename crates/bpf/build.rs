//! Compiles the eBPF programs with clang.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let include = format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    println!("cargo::rerun-if-changed=src/c");
    for program in ["merge", "redirect", "split", "window"] {
        let status = Command::new("clang")
            .args(["-g", "-O2", "-target", "bpf", "-mcpu=v3", "-Wall", "-Werror"])
            .args(["-I", &include, "-c"])
            .arg(format!("src/c/{program}.bpf.c"))
            .arg("-o")
            .arg(out.join(format!("{program}.bpf.o")))
            .status()
            .expect("clang compiles the eBPF programs; install it with scripts/setup");
        assert!(status.success(), "clang refused {program}.bpf.c");
    }
}
