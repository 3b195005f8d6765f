//! Outputs and disks that take nothing: services start all the same, and packets go on.

use crate::ground::{Ground, LONG, Service};
use crate::patient::patient;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::Signal;
use sheaf_daemon::control::{self, Kind, ServiceName};
use std::fs::File;
use std::io::{self, PipeReader, Write, pipe};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Between two reports of a watch.
const LOOK: Duration = Duration::from_millis(100);

/// An output, and the end of its pipe that nobody reads.
type Output = (Stdio, Option<PipeReader>);

fn full() -> Output {
    (File::options().write(true).open("/dev/full").unwrap().into(), None)
}

fn closed() -> Output {
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    (writer.into(), None)
}

/// A pipe that is full, and that nobody empties.
fn stuck() -> Output {
    let (reader, mut writer) = pipe().unwrap();
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    while writer.write(&[b'.'; 4096]).is_ok() {}
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
    (writer.into(), Some(reader))
}

/// A service of which nothing can be read; it says that it is at work as to systemd.
struct Mute {
    child: Child,
    socket: UnixDatagram,
    _unread: [Option<PipeReader>; 2],
}

impl Mute {
    fn start(ground: &Ground, mut command: Command, output: fn() -> Output) -> Mute {
        let path = ground.directory.path().join("notify");
        let _ = std::fs::remove_file(&path);
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(LONG)).unwrap();
        let ((out, unread), (error, not_read)) = (output(), output());
        command.env("NOTIFY_SOCKET", path).stdin(Stdio::null()).stdout(out).stderr(error);
        let mute = Mute { child: command.spawn().unwrap(), socket, _unread: [unread, not_read] };
        mute.notifies("READY=1");
        mute
    }

    fn notifies(&self, state: &str) {
        let mut bytes = [0; 4096];
        loop {
            let len = patient(|| self.socket.recv(&mut bytes)).expect("it says that it is at work");
            if String::from_utf8_lossy(&bytes[..len]).lines().any(|line| line == state) {
                return;
            }
        }
    }

    fn signal(&self, signal: Signal) {
        let id = nix::unistd::Pid::from_raw(self.child.id() as i32);
        nix::sys::signal::kill(id, signal).unwrap();
    }
}

impl Drop for Mute {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until both links of the first host's trunk are up.
fn is_up(ground: &Ground) {
    let name = ServiceName::new(Kind::Trunk, "t0").unwrap();
    let watch = || control::watch(&name, LOOK).map_err(io::Error::other);
    let mut reports = ground.hosts[0].run(watch).unwrap();
    let up = |report: &serde_json::Value| {
        report["links"].as_array().unwrap().iter().all(|link| link["up"] == true)
    };
    assert!(reports.any(|report| up(&report.unwrap())));
}

#[test]
fn services_whose_output_is_full_closed_or_stuck_start_and_carry() {
    let ground = Ground::new();
    ground.split();
    let _there = Service::start_on(&ground, 1, &ground.trunk(1));
    let trunk = ground.trunk(0);
    let emulate = "emulate dev right egress delay 1ms";
    let user = "aggregate dev right engine user peer 10.8.0.2";
    for output in [full, closed, stuck] {
        for (line, words, to) in [
            ("aggregate dev right peer 10.8.0.2", "aggregate right policy forced", "10.8.0.2"),
            (user, "aggregate right policy forced", "10.8.0.2"),
            ("window dev right capacity 20mbit", "window right slack 2ms", "10.8.0.2"),
            (emulate, "emulate right delay 2ms", "10.8.0.2"),
            (&trunk, "trunk t0 loose match proto udp dport 9", "10.99.0.2"),
        ] {
            let mut service = Mute::start(&ground, ground.command(0, line), output);
            if line.starts_with("trunk") {
                is_up(&ground);
            }
            let mut stream = ground.stream(to);
            stream.during(|| {
                // Each is a line of the log.
                ground.works(&format!("change {words}"));
                service.signal(Signal::SIGHUP);
                ground.works("show");
            });
            service.signal(Signal::SIGTERM);
            assert!(service.child.wait().unwrap().success(), "{line}");
        }
    }
}

#[test]
fn a_supervisor_whose_log_is_full_closed_or_stuck_runs_and_reloads() {
    let ground = Ground::new();
    let text = |slack| format!("[[window]]\ndev = \"right\"\ncapacity = \"20mbit\"\n{slack}\n");
    let file = ground.write("sheaf.toml", &text(""));
    for output in [full, closed, stuck] {
        ground.write("sheaf.toml", &text(""));
        let command = ground.command(0, &format!("run -c {file}"));
        let mut run = Mute::start(&ground, command, output);
        let mut stream = ground.stream("10.8.0.2");
        stream.during(|| {
            ground.write("sheaf.toml", &text("slack = \"2ms\""));
            assert_eq!(ground.works("reload"), "window right: changed\n");
            ground.works("show dev right");
        });
        run.signal(Signal::SIGTERM);
        assert!(run.child.wait().unwrap().success());
    }
}

#[test]
fn a_capture_whose_disk_is_full_ends_with_a_line_and_packets_go_on() {
    let ground = Ground::new();
    let disk = ground.directory.path().display();
    // Room for the beginning of a capture alone.
    let mount = format!("mount -t tmpfs -o size=64k none {disk} && exec \"$@\"");
    let small = ["unshare", "--mount", "sh", "-c", &mount, "sh"];
    let link = "emulate dev right egress delay 1ms --pcap";
    for command in [
        ground.under(0, &small, &format!("{link} {disk}/link.pcapng")),
        ground.command(0, &format!("{link} /dev/full")),
    ] {
        let mut service = Service::spawn(command);
        let mut stream = ground.stream("10.8.0.2");
        stream.during(|| service.says_all(&["emulating right egress", "No space left"]));
        stream.batch();
        let shown = ground.shown("right");
        assert!(shown["emulate"]["uncaptured"].as_u64() > Some(0), "{shown}");
        assert!(ground.works("show dev right").contains("not in the capture "));
        service.signal(Signal::SIGTERM);
        let (status, said) = service.end();
        assert!(status.success(), "{said:#?}");
        let told = said.iter().filter(|line| line.contains("ends here")).count();
        assert_eq!(told, 1, "{said:#?}");
    }
}
