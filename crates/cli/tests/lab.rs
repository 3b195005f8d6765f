//! `sheaf lab` as a program. The netns engine needs root.

use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use sheaf_lab::tool::kind::Tool;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
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

/// Whether the programs of a scenario's `tool` are there; says where they are not.
fn has_programs(scenario: &toml::Value) -> bool {
    let Some(tool) = scenario.get("tool") else { return true };
    let tool: Tool = tool.clone().try_into().unwrap();
    let absent = tool.absent(&std::env::var_os("PATH").unwrap_or_default());
    if let Some(program) = absent {
        eprintln!("without {program}: scripts/setup --tests installs it where there is a package");
    }
    absent.is_none()
}

#[test]
fn programs_of_others_measure_on_an_emulated_link_what_the_lab_measures() {
    let example = include_str!("../../../packaging/examples/emulator-tools.toml");
    let mut plan: toml::Table = example.parse().unwrap();
    plan["scenario"].as_array_mut().unwrap().retain(has_programs);
    let folder = Folder::new();
    let file = folder.0.path().join("plan.toml");
    std::fs::write(&file, plan.to_string()).unwrap();
    let line = format!("run {} --quick --engine netns --out {}", file.display(), folder.path());
    worked(lab(&line));
    let result = folder.result();
    for row in result["rows"].as_array().unwrap() {
        let number = |key: &str| row[key].as_f64();
        let near = |key: &str, expected: f64| {
            number(key).is_none_or(|value| (value / expected - 1.0).abs() < 0.02)
        };
        // 100 packets of 172 bytes in 2 s, each 10 ms and 0.17 ms of sending on its way.
        match row["scenario"].as_str().unwrap() {
            stream if stream.starts_with("stream") => {
                // A busy machine lets a program send fewer; what it sends arrives.
                let sent = number("sent").unwrap_or(100.0);
                assert!((90.0..=102.0).contains(&sent), "{row}");
                assert!(near("goodput", 0.0688 * sent / 100.0), "{row}");
                assert!(number("loss") == Some(0.0), "{row}");
                assert!(number("delay_min").is_none_or(|delay| delay >= 10.17), "{row}");
            }
            ping if ping.starts_with("ping") => {
                assert!(number("rtt_min").is_some_and(|least| least >= 20.1), "{row}");
                assert!(number("loss") == Some(0.0), "{row}");
            }
            _ => {
                let goodput = number("goodput");
                assert!(goodput.is_some_and(|goodput| (1.0..=9.6).contains(&goodput)), "{row}");
            }
        }
    }
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

/// A plan of two points that takes no time.
const SMALL: &str = r#"
kind = "link"
name = "small"
title = "Two points"
source = "nobody"
duration = 1
warm_up = 0
seed = 1

[quick]
points = [0]
netns_duration = 1
virtual_duration = 1

[[scenario]]
name = "10-mbit"
test = "udp"
rate = 10
sweep = [0, 20]
treatments = ["sheaf"]

[[treatment]]
name = "sheaf"
shaper = "two-queues"
"#;

/// A folder in which an example of `packaging/examples` works: `sheaf` in its PATH logs the
/// arguments of each call, the plan is `small.toml`, and results go to `out`.
struct Workspace(Folder);

impl Workspace {
    fn new() -> Workspace {
        let workspace = Workspace(Folder::new());
        std::fs::create_dir(workspace.path("bin")).unwrap();
        std::fs::write(workspace.path("small.toml"), SMALL).unwrap();
        let log = workspace.path("log");
        workspace
            .program("sheaf", &format!("echo \"$*\" >>{}; exec {SHEAF} \"$@\"", log.display()));
        workspace
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.0.path().join(name)
    }

    /// Puts a shell script into PATH.
    fn program(&self, name: &str, script: &str) {
        let file = self.path("bin").join(name);
        std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
    }

    /// Runs a line of shell in this folder, with the examples and Snakemake in PATH.
    fn shell(&self, line: &str) -> Output {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let folders = [self.path("bin"), root.join("packaging/examples"), snakemake()];
        let system = std::env::var_os("PATH").unwrap();
        let folders = folders.into_iter().chain(std::env::split_paths(&system));
        let mut shell = Command::new("sh");
        shell.args(["-ec", line]).current_dir(self.path("."));
        shell.env("PATH", std::env::join_paths(folders).unwrap()).env("HOME", self.path("."));
        shell.env_remove("XDG_CACHE_HOME").output().unwrap()
    }

    /// Points that were run, in any order, and how often they were gathered.
    fn log(&self) -> (Vec<String>, usize) {
        let text = std::fs::read_to_string(self.path("log")).unwrap();
        let runs = text.lines().filter(|line| line.starts_with("lab run "));
        let mut points: Vec<_> =
            runs.map(|line| line.rsplit(' ').next().unwrap().to_owned()).collect();
        points.sort();
        (points, text.lines().filter(|line| line.starts_with("lab gather ")).count())
    }

    fn result(&self) -> Value {
        serde_json::from_slice(&std::fs::read(self.path("out/result.json")).unwrap()).unwrap()
    }

    /// Result of `sheaf lab run` for the same.
    fn whole(&self) -> Value {
        let (plan, whole) = (self.path("small.toml"), Folder::new());
        worked(lab(&format!("run {} --repetitions 2 --out {}", plan.display(), whole.path())));
        whole.result()
    }
}

/// All points of the small plan with two repetitions.
const POINTS: [&str; 4] =
    ["10-mbit/sheaf/0", "10-mbit/sheaf/0#2", "10-mbit/sheaf/20", "10-mbit/sheaf/20#2"];

/// Folder of Snakemake, where `scripts/setup --tests` installs it.
fn snakemake() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/snakemake/bin")
}

#[test]
fn snakemake_runs_each_point_once_and_again_only_the_one_that_is_missing() {
    if !snakemake().join("snakemake").exists() {
        eprintln!("skipped: there is no snakemake in target; run scripts/setup --tests");
        return;
    }
    let workspace = Workspace::new();
    let run = "lab.smk --cores 2 --config plan=small.toml out=out options='--repetitions 2'";
    let (points, whole) = (POINTS.map(str::to_owned).to_vec(), workspace.whole());
    for time in ["first", "second"] {
        worked(workspace.shell(run));
        assert_eq!(
            (workspace.log(), workspace.result()),
            ((points.clone(), 1), whole.clone()),
            "{time}"
        );
    }
    let is_last = |file: &PathBuf| {
        let record: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        record["sweep_point"]["x"] == 20.0 && record["sweep_point"]["repetition"] == 2
    };
    let mut files =
        std::fs::read_dir(workspace.path("out/points")).unwrap().map(|file| file.unwrap().path());
    std::fs::remove_file(files.find(is_last).unwrap()).unwrap();
    std::fs::remove_file(workspace.path("out/done").join(POINTS[3])).unwrap();
    worked(workspace.shell(run));
    let again = [points, vec![POINTS[3].to_owned()]].concat();
    assert_eq!((workspace.log(), workspace.result()), ((again, 2), whole));

    let refused = workspace.shell("lab.smk --config plan=no-such-plan");
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && said.contains("give one of voip-two-hop"), "{said}");
}

/// `sbatch` of Slurm as far as the example needs it: runs the tasks of an array at once, one after
/// the other, or a job that waits for one that has succeeded, and prints the job's number.
const SBATCH: &str = r#"
for word; do
    case $word in
        --array=1-*) export SLURM_ARRAY_TASK_COUNT="${word#--array=1-}" ;;
        --dependency=afterok:*) [ -e "succeeded-${word#*:}" ] || exit 1 ;;
        --wrap) exec sh -c "$2" ;;
        --parsable) ;;
        *) break ;;
    esac
    shift
done
script=$(command -v "$1")
shift
for task in $(seq "$SLURM_ARRAY_TASK_COUNT"); do
    SLURM_ARRAY_TASK_ID=$task sh "$script" "$@" >&2 || failed=1
done
[ "${failed-}" ] || touch succeeded-42
echo 42"#;

#[test]
fn the_tasks_of_a_slurm_array_run_each_point_once_and_what_waits_for_them_gathers() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/examples/lab-slurm");
    let script = std::fs::read_to_string(script).unwrap();
    // Its head says how it is submitted.
    let lines: Vec<_> = script.lines().filter_map(|line| line.strip_prefix("#     ")).collect();
    assert_eq!(lines.len(), 3, "{script}");
    let lines = lines.join("\n").replace("PLAN", "small.toml --repetitions 2");
    let lines = lines.replace("FOLDER", "out");
    // As many tasks as points, fewer, and more.
    for tasks in [4, 3, 100] {
        let workspace = Workspace::new();
        workspace.program("sbatch", SBATCH);
        worked(workspace.shell(&lines.replace("1-100", &format!("1-{tasks}"))));
        assert_eq!(workspace.log(), (POINTS.map(str::to_owned).to_vec(), 1), "{tasks} tasks");
        assert_eq!(workspace.result(), workspace.whole());
    }

    for broken in ["sed -i 1ifalse LIST", "rm LIST"] {
        let workspace = Workspace::new();
        workspace.program("sbatch", SBATCH);
        let lines = lines.replace("ID=", &format!("{broken}; ID=")).replace("1-100", "1-2");
        let output = workspace.shell(&lines);
        assert!(!output.status.success() && workspace.log().1 == 0, "{broken}");
    }
}

/// A change of one file of an unpacked archive, in the shell.
fn repacked(archive: &Path, into: &Path, change: &str) {
    let script = r#"set -e; rm -rf "$2"; mkdir "$2"; tar -xzf "$1" -C "$2"; cd "$2/sheaf-run"
        eval "$3"; cd ..; tar --format=ustar -czf "$2.tar.gz" sheaf-run/*"#;
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
        (format!("check {SHEAF}"), "fetch or pack it again"),
    ] {
        let output = lab(&line);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{line}: {said}");
        assert!(said.contains(told) && said.lines().count() == 1, "{line}: {said}");
    }
}
