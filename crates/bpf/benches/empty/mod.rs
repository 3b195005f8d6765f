//! A program that does nothing, on the hook of the real ones: what any program there costs.
#![allow(dead_code, reason = "each benchmark uses its part")]

use aya::Ebpf;
use aya::programs::SchedClassifier;
use aya::programs::tc::TcAttachType;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A program that does nothing.
pub struct Empty(Ebpf);

impl Empty {
    const SOURCE: &str = "
        __attribute__((section(\"classifier\"), used)) int empty(void *skb) { return -1; }
        __attribute__((section(\"license\"), used)) char LICENSE[] = \"GPL\";";

    /// At egress of `interface`.
    pub fn attach(interface: &str) -> Empty {
        let mut clang = Command::new("clang")
            .args(["-O2", "-target", "bpf", "-x", "c", "-c", "-", "-o", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("clang is there, as for the programs themselves");
        let mut source = clang.stdin.take().expect("it is piped");
        source.write_all(Empty::SOURCE.as_bytes()).expect("it reads");
        drop(source);
        let object = clang.wait_with_output().expect("it ends").stdout;
        let mut empty = Empty(Ebpf::load(&object).expect("the kernel takes it"));
        let program = empty.0.program_mut("empty").expect("it is in the object");
        let program: &mut SchedClassifier = program.try_into().expect("it is a classifier");
        program.load().expect("the kernel takes it");
        program.attach(interface, TcAttachType::Egress).expect("tcx");
        empty
    }

    /// Time that it took, and how often it ran, by the kernel's statistics.
    pub fn cost(&self) -> (Duration, u64) {
        let program = self.0.program("empty").expect("it is in the object");
        let program: &SchedClassifier = program.try_into().expect("it is a classifier");
        let info = program.info().expect("statistics");
        (info.run_time(), info.run_count())
    }
}
