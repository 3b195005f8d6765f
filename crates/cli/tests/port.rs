//! Several trunks, each with a key of its own, on one UDP port of a server. Needs root.

mod pair;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pair::{Pair, Trunk, number, run};
use sheaf_netio::clock;
use sheaf_netio::netns::Namespace;
use sheaf_stage::Duration;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};

/// The mounts of a machine, of which /sys/fs/bpf is another one.
struct Mounts {
    holder: Child,
    _input: ChildStdin,
}

impl Mounts {
    fn new(mount: &str) -> Mounts {
        let script = format!("mount {mount} /sys/fs/bpf && echo mounted && read end");
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &script]);
        let mut holder = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "mounted\n");
        let _input = holder.stdin.take().unwrap();
        Mounts { holder, _input }
    }

    /// Words that make a command see them.
    fn enter(&self) -> String {
        format!("nsenter --mount --root --target {} ", self.holder.id())
    }

    /// Names in the folder of the trunks.
    fn names(&self) -> String {
        let process = self.holder.id().to_string();
        let list = ["--mount", "--root", "--target", &process, "ls", "/sys/fs/bpf/sheaf"];
        let output = Command::new("nsenter").args(list).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// A file with a key of this byte alone.
fn key(byte: u8) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(format!("{byte:02x}").repeat(32).as_bytes()).unwrap();
    file
}

fn counts(trunk: &Trunk<'_>, name: &str, what: &[&str]) -> u64 {
    let shown = trunk.shown_of(name);
    let pointer: String = what.iter().map(|word| format!("/{word}")).collect();
    shown.pointer(&pointer).and_then(serde_json::Value::as_u64).unwrap_or(0)
}

fn start<'a>(host: &'a Namespace, mounts: &Mounts, line: &str) -> Trunk<'a> {
    Trunk::start_by(host, &mounts.enter(), line)
}

#[test]
fn two_trunks_on_one_port_carry_each_its_own_and_one_survives_the_death_of_the_other() {
    let pair = Pair::new(2);
    let mounts = Mounts::new("-t bpf bpf");
    let (one, two, wrong) = (key(1), key(2), key(3));
    let [one, two, wrong] = [&one, &two, &wrong].map(|file| file.path().display().to_string());
    let servers = [
        format!("trunk t0 path 0.0.0.0 path 0.0.0.0 key {one} address 10.99.0.2/24"),
        format!("trunk t1 path 0.0.0.0 key {two} address 10.98.0.2/24"),
    ];
    let clients = [
        format!("trunk t0 path if0 10.1.0.2 path if1 10.1.1.2 key {one} address 10.99.0.1/24"),
        format!("trunk t1 path if0:2222 10.1.0.2 key {two} address 10.98.0.1/24"),
    ];
    let (near, far) = (&pair.hosts[0], &pair.hosts[1]);
    let mut first = start(far, &mounts, &servers[0]);
    let mut second = start(far, &mounts, &servers[1]);
    let mut ends = clients.map(|line| Trunk::start(near, &line));
    (0..2).for_each(|_| first.wait_for("is up"));
    second.wait_for("is up");
    (0..2).for_each(|_| ends[0].wait_for("is up"));
    ends[1].wait_for("is up");
    pair.transfer("10.99.0.2:5001", 4 << 20);
    pair.transfer("10.98.0.2:5001", 4 << 20);
    for (server, name) in [(&first, "t0"), (&second, "t1")] {
        let shown = server.shown_of(name);
        assert_eq!(shown["refused"], serde_json::json!({}), "{name}");
        assert!(number(&shown, &["packets_delivered"]) > 1000, "{shown}");
    }

    // Whoever has another key or none is counted and changes nothing.
    for (port, seal) in [(3333, format!("key {wrong}")), (4444, "plain".to_owned())] {
        let line = format!("trunk t2 path if0:{port} 10.1.0.2 {seal}");
        let mut stranger = Trunk::start(near, &line);
        let why = if seal == "plain" { "not-sealed" } else { "wrong-key" };
        let refused = || {
            let counted = |trunk, name| counts(trunk, name, &["refused", why]);
            counted(&first, "t0") + counted(&second, "t1")
        };
        let give_up = clock::now() + Duration::from_secs(30);
        while refused() == 0 {
            assert!(clock::now() < give_up, "{why}");
            std::thread::yield_now();
        }
        assert_eq!(stranger.shown_of("t2")["established"], false);
        kill(Pid::from_raw(stranger.process() as i32), Signal::SIGTERM).unwrap();
        stranger.wait_for("t2: trunk waiting");
    }
    for (server, name) in [(&first, "t0"), (&second, "t1")] {
        assert_eq!(counts(server, name, &["sessions"]), 1, "{name}");
    }

    // A trunk that cannot share is refused with the reason.
    let plain = run(far, "trunk t3 path 0.0.0.0 plain");
    let said = String::from_utf8_lossy(&plain.stderr).into_owned();
    assert!(said.contains("give it another port") && said.lines().count() == 1, "{said}");

    second.kill();
    ends[1].wait_for("is down");
    pair.transfer("10.99.0.2:5002", 4 << 20);
    let mut second = start(far, &mounts, &servers[1]);
    second.wait_for("is up");
    ends[1].wait_for("is up");
    pair.transfer("10.98.0.2:5003", 4 << 20);
    pair.transfer("10.99.0.2:5003", 4 << 20);
    assert_eq!(counts(&first, "t0", &["sessions"]), 1);

    for server in [first, second] {
        kill(Pid::from_raw(server.process() as i32), Signal::SIGTERM).unwrap();
        assert!(server.end().success());
    }
    assert_eq!(mounts.names(), "", "the last one leaves nothing behind");
}

#[test]
fn without_a_bpf_file_system_a_port_has_one_trunk_and_the_second_says_why() {
    let pair = Pair::new(1);
    let mounts = Mounts::new("-t tmpfs -o ro none");
    let key = key(1);
    let line = |name| format!("trunk {name} path 10.1.0.2 key {}", key.path().display());
    let host = &pair.hosts[1];
    let _first = start(host, &mounts, &line("t0"));
    let second = pair::run_by(host, &mounts.enter(), &line("t1"));
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(said.contains("trunks cannot share it, because there is no BPF file system"), "{said}");
    assert!(said.contains("give it another port") && said.lines().count() == 1, "{said}");
}
