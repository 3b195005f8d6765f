//! `sheaf lab` as a program. The netns engine needs root.

use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

const SHEAF: &str = env!("CARGO_BIN_EXE_sheaf");

/// A folder that goes with the test.
struct Folder(TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(TempDir::new().unwrap())
    }

    fn path(&self) -> String {
        self.0.path().display().to_string()
    }

    fn result(&self) -> Value {
        let text = std::fs::read_to_string(self.0.path().join("result.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    }
}

fn lab(line: &str) -> Output {
    Command::new(SHEAF).arg("lab").args(line.split_whitespace()).output().unwrap()
}

fn worked(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn on_real_interfaces_no_round_trip_is_early_and_a_download_arrives() {
    let (pings, downloads) = (Folder::new(), Folder::new());
    for (plan, folder) in [("emulator-latency", &pings), ("emulator-tcp", &downloads)] {
        worked(lab(&format!("run {plan} --quick --engine netns --out {}", folder.path())));
    }
    let row = |folder: &Folder, scenario: &str, treatment: &str| {
        let result = folder.result();
        let rows = result["rows"].as_array().unwrap();
        let found = rows
            .iter()
            .find(|row| row["scenario"] == scenario && row["treatment"] == treatment)
            .unwrap_or_else(|| panic!("no {scenario}/{treatment} in {result}"));
        found.clone()
    };
    let ping = row(&pings, "ping", "sheaf");
    assert_eq!(ping["early"], 0, "{ping}");
    assert_eq!(ping["loss"], 0, "{ping}");
    assert_eq!(row(&pings, "ping", "tbf")["early"], 0);
    assert_eq!(row(&pings, "bare-path", "bare")["loss"], 0);
    for treatment in ["sheaf", "single"] {
        let download = row(&downloads, "tcp-10-mbit", treatment);
        let [goodput, least] = ["goodput", "rtt_min"].map(|key| download[key].as_f64().unwrap());
        // However late the link is, data arrives and no round trip is shorter than set.
        assert!(goodput > 0.0 && least >= 20.0, "{treatment}: {download}");
    }
    let report = std::fs::read_to_string(pings.0.path().join("report.html")).unwrap();
    assert!(report.contains("published"), "{report}");
}

#[test]
fn an_interrupted_run_takes_its_emulator_with_it_and_says_how_to_go_on() {
    let folder = Folder::new();
    let plan =
        format!("emulator-latency --engine netns --points 20 --duration 1 --out {}", folder.path());
    let points = worked(lab(&format!("points {plan}")));
    let only = points.lines().next().unwrap().rsplit(' ').next().unwrap();
    worked(lab(&format!("run {plan} --only {only}")));
    let mut command = Command::new(SHEAF);
    command.args(["lab", "run"]).args(plan.split(' '));
    let run = command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut run = run.spawn().unwrap();
    let emulator = loop {
        assert!(run.try_wait().unwrap().is_none(), "it ended before its emulator was seen");
        if let Some(emulator) = emulator_of(run.id()) {
            break emulator;
        }
    };
    kill(Pid::from_raw(run.id() as i32), Signal::SIGINT).unwrap();
    let ended = run.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(130), "{said}");
    let all = points.lines().count();
    let kept = format!("sheaf: interrupted; 1 of {all} points are kept in {}; ", folder.path());
    assert!(
        said.starts_with(&kept) && said.ends_with("the same command goes on from there\n"),
        "{said}"
    );
    // Readable when it has ended; its parent's death killed it.
    let mut poll = [nix::poll::PollFd::new(emulator.as_fd(), nix::poll::PollFlags::POLLIN)];
    let ended = nix::poll::poll(&mut poll, nix::poll::PollTimeout::from(10_000u16)).unwrap();
    assert_eq!(ended, 1, "the emulator outlives the lab");
}

/// A descriptor of the `sheaf emulate` that process `parent` started.
fn emulator_of(parent: u32) -> Option<OwnedFd> {
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let read =
            |file: &str| std::fs::read_to_string(entry.path().join(file)).unwrap_or_default();
        let child = read("status").lines().any(|line| line == format!("PPid:\t{parent}"));
        if child && read("cmdline").contains("emulate\0link") {
            // SAFETY: a bare system call.
            let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
            // SAFETY: the descriptor is new and nobody else's.
            return (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd as i32) });
        }
    }
    None
}

#[test]
fn points_that_were_run_one_by_one_are_gathered_to_what_one_run_gives() {
    let (apart, whole) = (Folder::new(), Folder::new());
    let some = "emulator-rate --points 0,20 --duration 1 --repetitions 2";
    let commands = worked(lab(&format!("points {some} --out {}", apart.path())));
    assert_eq!(commands.lines().count(), (2 + 3 + 3) * 2 * 2, "{commands}");
    let run = |command: &str| {
        let path = Path::new(SHEAF).parent().unwrap().display();
        let line = format!("PATH={path}:$PATH; {command}");
        worked(Command::new("sh").args(["-c", &line]).output().unwrap());
    };
    let mut commands: Vec<_> = commands.lines().collect();
    let last = commands.pop().unwrap();
    commands.into_iter().for_each(run);
    let refused = lab(&format!("gather {}", apart.path()));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!((refused.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    assert!(said.contains("1 of 32 points is missing: 100-mbit/interface/20#2; "), "{said}");
    let holed = worked(lab(&format!("gather {} --allow-missing", apart.path())));
    assert!(holed.contains("1 point of the plan is missing."), "{holed}");
    run(last);
    worked(lab(&format!("gather {}", apart.path())));
    worked(lab(&format!("run {some} --out {}", whole.path())));
    assert_eq!(apart.result(), whole.result());
}

/// A change of one file of an unpacked archive, in the shell.
fn repacked(archive: &Path, into: &Path, change: &str) {
    let script = r#"set -e; rm -rf "$2"; mkdir "$2"; tar -xzf "$1" -C "$2"; cd "$2/sheaf-run"
        eval "$3"; cd ..; tar --format=ustar -czf "$2.tar.gz" sheaf-run"#;
    let words = [archive.as_os_str(), into.as_os_str(), change.as_ref()];
    worked(Command::new("sh").args(["-c", script, "sh"]).args(words).output().unwrap());
}

#[test]
fn an_archive_is_checked_by_sha256sum_and_by_measuring_again_and_a_change_is_status_1() {
    let folder = Folder::new();
    let run = folder.0.path().join("run");
    let some = "emulator-rate --points 0,20 --duration 1";
    worked(lab(&format!("run {some} --out {}", run.display())));
    let packed = worked(lab(&format!("pack {}", run.display())));
    let archive = folder.0.path().join("run.tar.gz");
    assert!(packed.starts_with(&format!("{}: ", archive.display())), "{packed}");
    let bytes = std::fs::read(&archive).unwrap();
    worked(lab(&format!("pack {} --out {}", run.display(), archive.display())));
    assert_eq!(std::fs::read(&archive).unwrap(), bytes);
    let said = worked(lab(&format!("check {}", archive.display())));
    assert!(said.lines().all(|line| line.ends_with(": ok")), "{said}");
    assert!(said.contains("16 of 16 points measured again"), "{said}");
    let said = worked(lab(&format!("check {} --sample 2", archive.display())));
    assert!(said.contains("2 of 16 points measured again"), "{said}");
    let other = folder.0.path().join("other");
    let checked = || lab(&format!("check {}.tar.gz", other.display()));
    repacked(&archive, &other, "sha256sum -c --quiet SHA256SUMS");
    worked(checked());
    repacked(&archive, &other, "echo >>plan.toml");
    let output = checked();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("\n  plan.toml: its SHA-256 is "), "{said}");
    repacked(&archive, &other, "ln -sf /etc/passwd plan.toml");
    let output = checked();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    assert!(said.contains("its plan.toml is not a plain file; pack the run again"), "{said}");
}

#[test]
fn what_cannot_be_run_is_said_in_one_line_with_status_2() {
    let out = std::env::temp_dir().display().to_string();
    for (line, told) in [
        ("run no-such-plan".to_owned(), "give one of voip-two-hop"),
        (format!("run emulator-rate --only x/y/1 --out {out}"), "`sheaf lab points` prints all"),
        (format!("run voip-two-hop --points 0 --out {out}"), "whole numbers from 1 up"),
        (format!("run voip-two-hop --duration 0 --out {out}"), "give seconds above zero"),
        (format!("run voip-two-hop --repetitions 0 --out {out}"), "give 1 to 1000"),
        (format!("run voip-two-hop --only two-hop/busy/4#11 --out {out}"), "no point"),
        ("run voip-two-hop --out /proc/none".to_owned(), "give another --out"),
        ("report /nonexistent".to_owned(), "run `sheaf lab run` first"),
        ("gather /nonexistent".to_owned(), "run `sheaf lab run"),
        ("pack /nonexistent".to_owned(), "run `sheaf lab run` first"),
        ("check /nonexistent".to_owned(), "give an archive"),
        (format!("check {SHEAF}"), "fetch it again"),
    ] {
        let output = lab(&line);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{line}: {said}");
        assert!(said.contains(told) && said.lines().count() == 1, "{line}: {said}");
    }
}
