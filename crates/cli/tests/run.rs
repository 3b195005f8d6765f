//! `sheaf run` and what belongs to it, in namespaces. Needs root.

mod patient;

use patient::patient;
use sheaf_daemon::control::{self, Kind, Request, ServiceName};
use sheaf_netio::ip;
use sheaf_netio::netns::Namespace;
use std::fs;
use std::io::{self, BufRead, BufReader, Lines, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tempfile::TempDir;

const SHEAF: &str = env!("CARGO_BIN_EXE_sheaf");
/// A receiver that waits this long will get nothing more.
const LONG: Duration = Duration::from_secs(10);
/// Packets that are under way at the same time.
const BATCH: u32 = 200;
/// Between two reports of a watch.
const LOOK: Duration = Duration::from_millis(100);

const AGGREGATE: &str =
    "[[aggregate]]\ndev = \"right\"\npolicy = \"forced\"\npeer = \"10.8.0.2\"\n";
const WINDOW: &str = "[[window]]\ndev = \"wan\"\ncapacity = \"20mbit\"\n";

/// Two hosts on a cable, with a splitter on the second one, and an interface `wan` on the first.
struct Testbed {
    hosts: [Namespace; 2],
    directory: TempDir,
}

impl Testbed {
    fn new() -> Testbed {
        let directory = TempDir::new().unwrap();
        let hosts = [Namespace::new().unwrap(), Namespace::new().unwrap()];
        let other = hosts[1].path();
        hosts[0]
            .run(|| {
                ip::run(&format!(
                    "link add right address 02:00:00:00:00:01 type veth \
                     peer name left address 02:00:00:00:00:02 netns {other}"
                ))?;
                ip::run("addr add 10.8.0.1/24 dev right")?;
                ip::run("link set right up")?;
                let neighbour = "neigh add 10.8.0.2 lladdr 02:00:00:00:00:02 dev right";
                ip::run(&format!("{neighbour} nud permanent"))?;
                make_wan()
            })
            .unwrap();
        hosts[1]
            .run(|| {
                ip::run("addr add 10.8.0.2/24 dev left")?;
                ip::run("link set left up")?;
                let neighbour = "neigh add 10.8.0.1 lladdr 02:00:00:00:00:01 dev left";
                ip::run(&format!("{neighbour} nud permanent"))
            })
            .unwrap();
        let bed = Testbed { hosts, directory };
        let split = bed.sheaf(1, "split dev left peer 10.8.0.1");
        assert!(split.status.success(), "{}", said(&split));
        bed
    }

    /// Writes the file.
    fn write(&self, text: &str) -> PathBuf {
        let file = self.directory.path().join("sheaf.toml");
        fs::write(&file, text).unwrap();
        file
    }

    /// Runs a command on a host.
    fn sheaf(&self, host: usize, line: &str) -> Output {
        let mut command = Command::new(SHEAF);
        command.args(line.split_whitespace());
        self.hosts[host].enter(&mut command);
        command.output().unwrap()
    }

    /// Asks a service of the first host.
    fn ask(&self, name: &ServiceName, request: &Request) -> serde_json::Value {
        let ask = || control::ask(name, request).map_err(io::Error::other);
        self.hosts[0].run(ask).unwrap()
    }

    /// Report of the supervisor on a section.
    fn section(&self, name: &str) -> serde_json::Value {
        let mut report = self.ask(&ServiceName::supervisor(), &Request::Report {});
        let sections = report["sections"].as_array_mut().unwrap().iter_mut();
        sections.map(serde_json::Value::take).find(|one| one["section"] == name).unwrap()
    }
}

fn make_wan() -> io::Result<()> {
    ip::run("link add wan type veth peer name far")?;
    ip::run("link set wan up")?;
    ip::run("link set far up")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// `sheaf run`, and its log.
struct Supervisor {
    child: Child,
    log: Lines<BufReader<ChildStderr>>,
}

impl Supervisor {
    fn start(bed: &Testbed, text: &str) -> Supervisor {
        let mut command = Command::new(SHEAF);
        command.args(["run", "--config"]).arg(bed.write(text)).stderr(Stdio::piped());
        bed.hosts[0].enter(&mut command);
        let mut child = command.spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap()).lines();
        Supervisor { child, log }
    }

    /// Waits until the log has a line that contains `text`.
    fn says(&mut self, text: &str) -> String {
        let found = self.log.by_ref().map(Result::unwrap).find(|line| line.contains(text));
        found.unwrap_or_else(|| panic!("it ended without a word of {text:?}"))
    }

    /// Waits until all of `texts` were said, in any order.
    fn says_all(&mut self, texts: &[&str]) {
        let mut left = texts.to_vec();
        while !left.is_empty() {
            let line = self.log.next().unwrap_or_else(|| panic!("ended without {left:?}")).unwrap();
            left.retain(|text| !line.contains(text));
        }
    }

    fn signal(&self, signal: nix::sys::signal::Signal) {
        let process = nix::unistd::Pid::from_raw(self.child.id() as i32);
        nix::sys::signal::kill(process, signal).unwrap();
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        // Its processes end with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn sockets(bed: &Testbed) -> (UdpSocket, UdpSocket) {
    let to = bed.hosts[1].run(|| UdpSocket::bind("10.8.0.2:5004")).unwrap();
    to.set_read_timeout(Some(LONG)).unwrap();
    nix::sys::socket::setsockopt(&to, nix::sys::socket::sockopt::RcvBufForce, &(8 << 20)).unwrap();
    let from = bed.hosts[0].run(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
    from.connect("10.8.0.2:5004").unwrap();
    (from, to)
}

fn send(socket: &UdpSocket, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let mut payload = [0; 32];
        payload[..4].copy_from_slice(&number.to_be_bytes());
        socket.send(&payload).unwrap();
    }
}

fn receive(socket: &UdpSocket, count: u32) -> Vec<u32> {
    let mut bytes = [0; 64];
    let mut number = || {
        patient(|| socket.recv(&mut bytes)).expect("packets are missing");
        u32::from_be_bytes(bytes[..4].try_into().unwrap())
    };
    (0..count).map(|_| number()).collect()
}

#[test]
fn a_process_that_is_killed_comes_back_and_the_other_section_goes_on() {
    let bed = Testbed::new();
    let mut run = Supervisor::start(&bed, &format!("{AGGREGATE}{WINDOW}"));
    run.says_all(&["aggregate right: at work", "window wan: at work"]);
    let (aggregate, window) = (bed.section("aggregate right"), bed.section("window wan"));
    let process = window["pid"].as_i64().unwrap();
    let killed = nix::sys::signal::Signal::SIGKILL;
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(process as i32), killed).unwrap();
    run.says("window wan: ended");
    run.says("window wan: at work");
    let again = bed.section("window wan");
    assert_ne!(again["pid"], window["pid"]);
    assert_eq!(again["restarts"], 1);
    assert_eq!(bed.section("aggregate right")["pid"], aggregate["pid"]);
    let (from, to) = sockets(&bed);
    send(&from, 0..200);
    assert_eq!(receive(&to, 200), (0..200).collect::<Vec<_>>());
}

#[test]
fn a_reload_of_one_section_under_traffic_loses_no_packet_of_the_other() {
    let bed = Testbed::new();
    let mut run = Supervisor::start(&bed, &format!("{AGGREGATE}{WINDOW}"));
    run.says_all(&["aggregate right: at work", "window wan: at work"]);
    let before = bed.section("aggregate right");
    // Packets share frames from now on: there is something to lose.
    let aggregate = ServiceName::new(Kind::Aggregate, "right").unwrap();
    let watch = || control::watch(&aggregate, LOOK).map_err(io::Error::other);
    let mut reports = bed.hosts[0].run(watch).unwrap();
    assert!(reports.any(|report| report.unwrap()["hops"]["10.8.0.2"]["splits"] == "yes"));
    let (from, to) = sockets(&bed);
    let reloads = [
        ("slack = \"2ms\"\n", "window wan: "),
        // A word less needs a new process.
        ("", "window wan: restarted"),
        ("push = \"off\"\n", "window wan: "),
    ];
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // A batch is received before the next is sent: the backlog of a host has 1000 packets, and
        // what a sender overruns would count as lost here.
        let traffic = scope.spawn(|| {
            let mut next = 0;
            while !over.load(Ordering::Relaxed) {
                send(&from, next..next + BATCH);
                assert_eq!(receive(&to, BATCH), (next..next + BATCH).collect::<Vec<_>>());
                next += BATCH;
            }
            next
        });
        // Judged when the traffic is over, which would go on for ever after a panic here.
        let reload = |(words, expected)| {
            bed.write(&format!("{AGGREGATE}{WINDOW}{words}"));
            (bed.sheaf(0, "reload"), expected)
        };
        let reloaded = reloads.map(reload);
        over.store(true, Ordering::Relaxed);
        assert!(traffic.join().unwrap() > BATCH, "there was traffic");
        for (reload, expected) in reloaded {
            let printed = String::from_utf8_lossy(&reload.stdout).into_owned();
            assert!(reload.status.success(), "{}", said(&reload));
            assert!(printed.starts_with(expected) && printed.lines().count() == 1, "{printed}");
        }
    });
    assert_eq!(bed.section("aggregate right")["pid"], before["pid"]);
    let report = bed.ask(&aggregate, &Request::Report {});
    assert!(report["total"]["meta_packets"].as_u64().unwrap() > 0, "{report}");
}

#[test]
fn a_file_with_a_fault_changes_nothing_and_the_reload_says_why() {
    let bed = Testbed::new();
    let mut run = Supervisor::start(&bed, WINDOW);
    run.says("window wan: at work");
    let before = bed.section("window wan");
    let file = bed.write(&format!("{WINDOW}pusch = \"off\"\n"));
    let reload = bed.sheaf(0, "reload");
    assert_eq!(reload.status.code(), Some(2));
    let expected =
        format!("{}:4: unknown keyword \"pusch\"; did you mean \"push\"?", file.display());
    assert_eq!(said(&reload).lines().next(), Some(expected.as_str()));
    // The same by signal.
    run.signal(nix::sys::signal::Signal::SIGHUP);
    run.says("reload changes nothing");
    assert_eq!(bed.section("window wan")["pid"], before["pid"]);
    bed.write(WINDOW);
    let reload = bed.sheaf(0, "reload");
    assert_eq!(String::from_utf8_lossy(&reload.stdout), "no section changed\n");
}

#[test]
fn an_interface_that_is_deleted_is_waited_for_and_taken_up_again() {
    let bed = Testbed::new();
    let late = "[[window]]\ndev = \"later\"\ncapacity = \"1mbit\"\n";
    let mut run = Supervisor::start(&bed, &format!("{WINDOW}{late}"));
    run.says_all(&["window later: waits for later", "window wan: at work"]);
    bed.hosts[0].run(|| ip::run("link del wan")).unwrap();
    run.says("window wan: waits for wan");
    let waiting = bed.section("window wan");
    assert_eq!((&waiting["state"], &waiting["waits_for"][0]), (&"waiting".into(), &"wan".into()));
    bed.hosts[0].run(make_wan).unwrap();
    run.says("window wan: at work");
    // Another one takes the name.
    let rename = || ip::run("link set far down").and_then(|()| ip::run("link set far name later"));
    bed.hosts[0].run(rename).unwrap();
    run.says("window later: at work");
}

#[test]
fn a_splitter_is_on_its_interface_again_when_that_was_made_anew() {
    let bed = Testbed::new();
    let text = "[[split]]\ndev = \"wan\"\npeer = \"any\"\n";
    let mut run = Supervisor::start(&bed, text);
    run.says("split wan: at work");
    bed.hosts[0].run(|| ip::run("link del wan").and_then(|()| make_wan())).unwrap();
    run.says("split wan: at work");
    assert!(bed.sheaf(0, "show dev wan").status.success());
    bed.write("");
    let reload = bed.sheaf(0, "reload");
    assert_eq!(String::from_utf8_lossy(&reload.stdout), "split wan: removed\n");
}

#[test]
fn the_processes_end_with_the_supervisor_however_it_ends() {
    let bed = Testbed::new();
    for signal in [nix::sys::signal::Signal::SIGTERM, nix::sys::signal::Signal::SIGKILL] {
        let mut run = Supervisor::start(&bed, WINDOW);
        run.says("window wan: at work");
        let window = ServiceName::new(Kind::Window, "wan").unwrap();
        // A watch ends with the process that it watches.
        let watch = || control::watch(&window, LONG).map_err(io::Error::other);
        let mut watch = bed.hosts[0].run(watch).unwrap();
        assert!(watch.next().unwrap().is_ok());
        run.signal(signal);
        let status = run.child.wait().unwrap();
        assert_eq!(status.success(), signal == nix::sys::signal::Signal::SIGTERM);
        assert!(watch.next().unwrap().is_err());
    }
}

#[test]
fn a_second_supervisor_is_refused_and_without_one_a_reload_says_so() {
    let bed = Testbed::new();
    let reload = bed.sheaf(0, "reload");
    assert_eq!(reload.status.code(), Some(2));
    assert!(said(&reload).contains("`sheaf run` does not run here"), "{}", said(&reload));
    let mut run = Supervisor::start(&bed, "");
    run.says("runs ");
    let file = bed.directory.path().join("sheaf.toml");
    let second = bed.sheaf(0, &format!("run -c {}", file.display()));
    assert!(said(&second).contains("another `sheaf run` runs here"), "{}", said(&second));
}

/// Gets `path` from the listener on the first host.
fn get(bed: &Testbed, path: &str, accept: &str) -> String {
    let stream = bed.hosts[0].run(|| TcpStream::connect("127.0.0.1:9477"));
    let mut stream = stream.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nAccept: {accept}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

#[test]
fn the_listener_serves_the_figures_of_all_services() {
    let bed = Testbed::new();
    let text = format!("{WINDOW}[metrics]\nlisten = \"127.0.0.1:9477\"\n");
    let mut run = Supervisor::start(&bed, &text);
    run.says_all(&["window wan: at work", "metrics 127.0.0.1:9477: at work"]);
    let response = get(&bed, "/metrics", "application/openmetrics-text");
    assert!(response.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text;"));
    for expected in [
        "\nsheaf_section_at_work{section=\"window wan\"} 1\n",
        "\nsheaf_window_passed_packets_total{interface=\"wan\",direction=\"download\"} ",
        "\nsheaf_service_responds{kind=\"window\",interface=\"wan\"} 1\n",
        "\n# EOF\n",
    ] {
        assert!(response.contains(expected), "{expected}{response}");
    }
    assert!(get(&bed, "/", "*/*").starts_with("HTTP/1.1 404 "));
    let metrics = bed.sheaf(0, "metrics prometheus");
    let text = String::from_utf8(metrics.stdout).unwrap();
    assert!(text.contains("# TYPE sheaf_window_passed_packets_total counter\n"), "{text}");
}

/// The sample with all its options switched on.
fn sample() -> String {
    let text = include_str!("../../../packaging/sheaf.toml");
    let option = |line: &str| match line.strip_prefix('#') {
        Some(rest) if !rest.is_empty() && !rest.starts_with(' ') => format!("{rest}\n"),
        _ => format!("{line}\n"),
    };
    text.lines().map(option).collect()
}

fn check(file: &Path) -> Output {
    Command::new(SHEAF).arg("check").arg(file).output().unwrap()
}

#[test]
fn every_option_of_the_sample_can_be_loaded_and_as_it_is_it_does_nothing() {
    let bed = Testbed::new();
    for (file, trace) in [("lte.trace", "1\n2\n3\n"), ("lte-light.trace", "0 20 0 1\n9 20 0\n")] {
        fs::write(bed.directory.path().join(file), trace).unwrap();
    }
    let rules = "[pipe.slow]\nlink = \"rate 1mbit\"\n[[rule]]\npipes = [\"slow\"]\n";
    fs::write(bed.directory.path().join("rules.toml"), rules).unwrap();
    let checked = check(&bed.write(&sample()));
    assert!(checked.status.success(), "{}", said(&checked));
    let printed = String::from_utf8_lossy(&checked.stdout);
    for section in [
        "aggregate wlan0: dev wlan0 peer auto peer 10.0.0.2 ",
        "split wlan1: ",
        "trunk trunk0: trunk0 path ",
        "trunk trunk1: trunk1 dev radio0 queue 1000 ",
        "window eth0: ",
        "window eth3: dev eth3 fixed 20000",
        "emulate eth1: link eth1 eth2 ",
        "emulate eth4: dev eth4 both --trace lte.trace --light lte-light.trace --once ",
        "emulate eth5: dev eth5 --rules rules.toml",
        "metrics 127.0.0.1:9477: ",
    ] {
        assert!(printed.lines().any(|line| line.starts_with(section)), "{section}\n{printed}");
    }
    let checked = check(&bed.write(include_str!("../../../packaging/sheaf.toml")));
    assert!(checked.status.success() && said(&checked).is_empty(), "{}", said(&checked));
    assert!(String::from_utf8_lossy(&checked.stdout).ends_with("nothing would run\n"));
}

#[test]
fn faults_are_told_by_file_and_line_before_anything_starts() {
    let bed = Testbed::new();
    let text = "[[aggregate]]\ndev = \"right\"\npeer = \"any\"\ntimeout = \"5\"\n[[trank]]\n";
    let file = bed.write(text);
    let line = format!("run -c {}", file.display());
    for output in [check(&file), bed.sheaf(0, &line)] {
        assert_eq!(output.status.code(), Some(2));
        let (said, name) = (said(&output), file.display());
        let lines: Vec<_> = said.lines().collect();
        assert_eq!(lines.len(), 2, "{said}");
        assert!(lines[0].starts_with(&format!("{name}:4: timeout")), "{said}");
        let expected = format!("{name}:5: unknown section \"trank\"; did you mean \"trunk\"?");
        assert_eq!(lines[1], expected);
    }
    let missing = bed.directory.path().join("missing.toml");
    let output = check(&missing);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("cannot read"), "{}", said(&output));
}
