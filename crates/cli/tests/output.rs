//! Where output goes that nobody reads or no disk takes: no panic, no backtrace. Needs root.

use sheaf_netio::netns::Namespace;
use std::fs::File;
use std::io::pipe;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

const SHEAF: &str = env!("CARGO_BIN_EXE_sheaf");

/// Commands that print something and end.
const COMMANDS: [&str; 11] = [
    "lab list",
    "lab show emulator-rate",
    "lab points emulator-rate",
    "lab run emulator-rate --points 0 --duration 0.1 --only 10-mbit/sheaf/0 --out",
    "emulate dist /dev/stdin",
    "emulate --help",
    "show --json",
    "metrics",
    "completions bash",
    "--help",
    "--version",
];

/// Output of `ping`, for `dist`.
const PING_LOG: &str = "64 bytes from 10.0.0.1: icmp_seq=1 ttl=64 time=10.1 ms\n\
                        64 bytes from 10.0.0.1: icmp_seq=2 ttl=64 time=10.5 ms\n\
                        64 bytes from 10.0.0.1: icmp_seq=3 ttl=64 time=10.3 ms\n";

/// Runs `line` with these streams, in a namespace of its own.
fn run(folder: &TempDir, line: &str, stdout: Stdio, stderr: Stdio) -> Output {
    let log = folder.path().join("ping.log");
    std::fs::write(&log, PING_LOG).unwrap();
    let mut command = Command::new(SHEAF);
    command.args(line.split_whitespace()).stdin(File::open(log).unwrap());
    if line.ends_with("--out") {
        command.arg(folder.path());
    }
    command.stdout(stdout).stderr(stderr);
    let host = Namespace::new().unwrap();
    host.enter(&mut command);
    command.spawn().unwrap().wait_with_output().unwrap()
}

/// The writing end of a pipe whose reader has left.
fn closed() -> Stdio {
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    writer.into()
}

fn full() -> Stdio {
    File::options().write(true).open("/dev/full").unwrap().into()
}

#[test]
fn a_reader_that_has_enough_ends_every_command_quietly_with_success() {
    let folder = TempDir::new().unwrap();
    for line in COMMANDS {
        let output = run(&folder, line, closed(), Stdio::piped());
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{line}: {said}");
        assert!(said.is_empty(), "{line}: {said}");
    }
}

#[test]
fn a_full_disk_is_reported_in_one_line_with_status_1() {
    let folder = TempDir::new().unwrap();
    for line in COMMANDS {
        let output = run(&folder, line, full(), Stdio::piped());
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{line}: {said}");
        assert!(said.contains("No space left") && said.lines().count() == 1, "{line}: {said}");
    }
}

#[test]
fn an_error_keeps_its_status_when_its_message_cannot_be_written() {
    let folder = TempDir::new().unwrap();
    for line in ["lab show nothing-like-it", "show dev nothing-like-it", "emulate dist /nowhere"] {
        for stderr in [closed(), full()] {
            let output = run(&folder, line, Stdio::piped(), stderr);
            assert_eq!(output.status.code(), Some(2), "{line}");
        }
    }
}
