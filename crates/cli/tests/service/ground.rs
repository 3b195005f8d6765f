//! Two hosts, programs on them, and streams of numbered packets between them.

use crate::patient::patient;
use aya::programs::{SchedClassifier, TcAttachType};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{setsockopt, sockopt};
use nix::unistd::Pid;
use serde_json::Value;
use sheaf_netio::ip;
use sheaf_netio::netns::Namespace;
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::net::UdpSocket;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use tempfile::TempDir;

pub const SHEAF: &str = env!("CARGO_BIN_EXE_sheaf");
/// Longest wait: nothing more comes after it.
pub const LONG: Duration = Duration::from_secs(20);
/// Packets of a stream that are under way at the same time: the backlog of a host has room for
/// 1000, and what a sender overruns would count as lost.
const BATCH: u32 = 100;
/// Bytes of a packet's payload.
const PAYLOAD: usize = 32;

/// Two hosts on two cables: `right` (10.8.0.1) to `left` (10.8.0.2), and `near` (10.9.0.1) to
/// `far` (10.9.0.2). They speak no IPv6, so that they send nothing of their own.
pub struct Ground {
    pub hosts: [Namespace; 2],
    /// Files of the test.
    pub directory: TempDir,
}

impl Ground {
    pub fn new() -> Ground {
        let directory = TempDir::new().unwrap();
        let hosts = [Namespace::new().unwrap(), Namespace::new().unwrap()];
        for host in &hosts {
            let without = "/proc/sys/net/ipv6/conf/default/disable_ipv6";
            host.run(|| fs::write(without, "1")).unwrap();
        }
        // The kernel reports late, by up to a second, that a veth end has a carrier when its index
        // is that of its other end (it takes it for a card then).
        let shift = || {
            ip::run("link add one type veth peer name two")?;
            ip::run("link del one")
        };
        hosts[1].run(shift).unwrap();
        let ground = Ground { hosts, directory };
        ground.lay_right();
        ground.lay("near", "far", 9);
        ground
    }

    /// Lays the cable between `right` and `left`.
    pub fn lay_right(&self) {
        self.lay("right", "left", 8);
    }

    /// Lays a cable whose ends have 10.NET.0.1 and 10.NET.0.2.
    pub fn lay(&self, here: &str, there: &str, net: u8) {
        let other = self.hosts[1].path();
        let add = format!(
            "link add {here} address 02:00:00:00:0{net}:01 type veth \
             peer name {there} address 02:00:00:00:0{net}:02 netns {other}"
        );
        self.hosts[0].run(|| ip::run(&add)).unwrap();
        self.set_up(0, here, net);
        self.set_up(1, there, net);
    }

    /// Gives an end of a cable its address and neighbour, and sets it up.
    pub fn set_up(&self, host: usize, dev: &str, net: u8) {
        let (ours, theirs) = if host == 0 { (1, 2) } else { (2, 1) };
        let link = format!("lladdr 02:00:00:00:0{net}:0{theirs} dev {dev} nud permanent");
        let up = || {
            ip::run(&format!("addr replace 10.{net}.0.{ours}/24 dev {dev}"))?;
            ip::run(&format!("link set {dev} up"))?;
            ip::run(&format!("neigh replace 10.{net}.0.{theirs} {link}"))
        };
        self.hosts[host].run(up).unwrap();
    }

    pub fn ip(&self, host: usize, line: &str) {
        self.hosts[host].run(|| ip::run(line)).unwrap();
    }

    /// Writes a file of the test; returns its path.
    pub fn write(&self, name: &str, text: &str) -> String {
        let path = self.directory.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// `sheaf` on a host with the words of `line`.
    pub fn command(&self, host: usize, line: &str) -> Command {
        self.under(host, &[], line)
    }

    /// The same as an argument of `prefix`.
    pub fn under(&self, host: usize, prefix: &[&str], line: &str) -> Command {
        let mut words = prefix.iter().copied().chain([SHEAF]).chain(line.split_whitespace());
        let mut command = Command::new(words.next().unwrap());
        command.args(words);
        self.hosts[host].enter(&mut command);
        command
    }

    /// Runs `sheaf` on the first host to its end.
    pub fn sheaf(&self, line: &str) -> Output {
        self.command(0, line).output().unwrap()
    }

    /// Runs a command that has to work; returns what it prints.
    pub fn works(&self, line: &str) -> String {
        let output = self.sheaf(line);
        assert!(output.status.success(), "sheaf {line}: {}", errors(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command that has to be refused in one line that contains `reason`.
    pub fn refuses(&self, line: &str, reason: &str) {
        let output = self.sheaf(line);
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(2), "sheaf {line}: {said}");
        assert!(said.contains(reason) && said.lines().count() == 1, "sheaf {line}: {said}");
    }

    /// Report of `sheaf show` on an interface of the first host.
    pub fn shown(&self, dev: &str) -> Value {
        let text = self.works(&format!("show dev {dev} --json"));
        serde_json::from_str::<Value>(&text).unwrap()[0].take()
    }

    /// The words of a trunk over both cables; t0 is 10.99.0.1 and 10.99.0.2.
    pub fn trunk(&self, host: usize) -> String {
        let (ours, theirs) = if host == 0 { (1, 2) } else { (2, 1) };
        let path = |net| format!("path 10.{net}.0.{ours} 10.{net}.0.{theirs}");
        format!("trunk t0 {} {} plain address 10.99.0.{ours}/24", path(8), path(9))
    }

    /// A trunk with both links up: its two ends.
    pub fn trunks(&self) -> [Service; 2] {
        let mut ends = [0, 1].map(|host| Service::start_on(self, host, &self.trunk(host)));
        for end in &mut ends {
            (0..2).for_each(|_| drop(end.says(" is up")));
        }
        ends
    }

    /// Puts a splitter on `left`.
    pub fn split(&self) {
        let output = self.command(1, "split dev left peer any").output().unwrap();
        assert!(output.status.success(), "{}", errors(&output));
    }

    /// Traces that a network program could leave on the first host: interfaces, addresses, routes,
    /// disciplines, programs, sockets.
    pub fn state(&self) -> Vec<String> {
        let mut state = self.hosts[0].run(network).unwrap();
        if let Ok(files) = fs::read_dir(self.run_directory()) {
            state.extend(files.map(|file| file.unwrap().path().display().to_string()));
        }
        state
    }

    /// The directory of the first host's control sockets.
    pub fn run_directory(&self) -> PathBuf {
        let inode = fs::metadata(self.hosts[0].path()).unwrap().ino();
        format!("/run/sheaf/net-{inode}").into()
    }

    /// A stream of packets from the first host to an address of the second.
    pub fn stream(&self, to: &str) -> Stream {
        // Any port: the last stream's may still be open in a process that another test starts.
        let receiver = self.hosts[1].run(|| UdpSocket::bind((to, 0))).unwrap();
        setsockopt(&receiver, sockopt::RcvBufForce, &(8 << 20)).unwrap();
        receiver.set_read_timeout(Some(LONG)).unwrap();
        let sender = self.hosts[0].run(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        Stream { sender, receiver, next: 0 }
    }
}

/// The network of this thread's namespace, in lines.
fn network() -> io::Result<Vec<String>> {
    let mut state = Vec::new();
    for line in ["-4 -o addr", "-4 route", "-6 route"] {
        // The kernel notes the state of a cable some time after it has changed.
        let text = ip::output(line)?.replace(" linkdown", "");
        state.extend(text.lines().map(|line| line.trim_end().to_owned()));
    }
    let disciplines = Command::new("tc").args(["qdisc", "show"]).output()?;
    state.extend(String::from_utf8_lossy(&disciplines.stdout).lines().map(str::to_owned));
    for name in ip::names()? {
        state.push(format!("{name} up {} mtu {}", ip::is_up(&name)?, ip::mtu(&name)?));
        for hook in [TcAttachType::Ingress, TcAttachType::Egress] {
            let programs = SchedClassifier::query_tcx(&name, hook);
            let count = programs.map_or(0, |(_, programs)| programs.len());
            state.push(format!("{name} {hook:?}: {count} programs"));
        }
    }
    Ok(state)
}

pub fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Numbered packets.
pub struct Stream {
    sender: UdpSocket,
    receiver: UdpSocket,
    next: u32,
}

impl Stream {
    /// Where it goes.
    pub fn port(&self) -> u16 {
        self.receiver.local_addr().unwrap().port()
    }

    /// Sends a batch and receives it, in any order.
    pub fn batch(&mut self) {
        let numbers = self.next..self.next + BATCH;
        self.next = numbers.end;
        for number in numbers.clone() {
            self.sender.send(&payload(number)).unwrap();
        }
        let mut missing: BTreeSet<u32> = numbers.collect();
        let mut bytes = [0; PAYLOAD];
        while !missing.is_empty() {
            let received = patient(|| self.receiver.recv(&mut bytes));
            assert!(received.is_ok(), "these packets are lost: {missing:?}");
            let number = u32::from_be_bytes(bytes[..4].try_into().unwrap());
            assert!(missing.remove(&number), "{number} came twice");
        }
    }

    /// Keeps packets under way while `work` runs; not one of them may be lost.
    pub fn during<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            self.batch();
            let traffic = scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    self.batch();
                }
                self.batch();
            });
            // A panic of the work ends the traffic, too.
            let ends = Ends(&over);
            let result = work();
            drop(ends);
            traffic.join().unwrap();
            result
        })
    }
}

struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub fn payload(number: u32) -> [u8; PAYLOAD] {
    let mut payload = [0; PAYLOAD];
    payload[..4].copy_from_slice(&number.to_be_bytes());
    payload
}

/// A running `sheaf`, and the lines that it prints and logs. It is killed with the test.
pub struct Service {
    child: Child,
    lines: Receiver<String>,
    said: Vec<String>,
}

impl Service {
    /// Starts `sheaf` with the words of `line` on the first host, and waits until it is at work.
    pub fn start(ground: &Ground, line: &str) -> Service {
        Service::start_on(ground, 0, line)
    }

    pub fn start_on(ground: &Ground, host: usize, line: &str) -> Service {
        let mut service = Service::spawn(ground.command(host, line));
        service.is_at_work();
        service
    }

    /// Starts `sheaf aggregate`, and waits until it has found that 10.8.0.2 splits.
    pub fn aggregate(ground: &Ground, line: &str) -> Service {
        let mut service = Service::spawn(ground.command(0, line));
        service.says_all(&["aggregating on right", "10.8.0.2 splits"]);
        service
    }

    /// Starts a command.
    pub fn spawn(mut command: Command) -> Service {
        let (reader, writer) = io::pipe().unwrap();
        command.stdin(Stdio::null()).stdout(writer.try_clone().unwrap()).stderr(writer);
        let child = command.spawn().unwrap();
        // The command has the ends that are written to, too.
        drop(command);
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(reader).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Service { child, lines, said: Vec::new() }
    }

    /// The next line; `None` when it has ended.
    pub fn line(&mut self) -> Option<String> {
        match self.lines.recv_timeout(LONG) {
            Ok(line) => {
                self.said.push(line.clone());
                Some(line)
            }
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => None,
            Err(_) => panic!("it says nothing more; it said {:#?}", self.said),
        }
    }

    /// Waits for a line that contains `text`, and returns it.
    pub fn says(&mut self, text: &str) -> String {
        loop {
            match self.line() {
                Some(line) if line.contains(text) => return line,
                Some(_) => {}
                None => panic!("it ended without {text:?}; it said {:#?}", self.said),
            }
        }
    }

    /// Waits until all of `texts` were said, in any order.
    pub fn says_all(&mut self, texts: &[&str]) {
        let mut left = texts.to_vec();
        while !left.is_empty() {
            let line = self.line();
            let line = line.unwrap_or_else(|| panic!("ended without {left:?}: {:#?}", self.said));
            left.retain(|text| !line.contains(text));
        }
    }

    /// Waits for the line with which services begin.
    pub fn is_at_work(&mut self) {
        while !begins(&self.line().unwrap_or_else(|| panic!("it ended: {:#?}", self.said))) {}
    }

    pub fn id(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.id(), signal).unwrap();
    }

    /// Waits for its end; returns its status and all that it said.
    pub fn end(mut self) -> (ExitStatus, Vec<String>) {
        while self.line().is_some() {}
        let status = self.child.wait().unwrap();
        (status, std::mem::take(&mut self.said))
    }

    /// Ends it in order.
    pub fn stop(self) {
        self.signal(Signal::SIGTERM);
        let (status, said) = self.end();
        assert!(status.success(), "{said:#?}");
    }
}

/// Whether a service begins with `line`.
fn begins(line: &str) -> bool {
    let begins = ["aggregating on ", "controlling windows on ", "emulating "];
    begins.iter().any(|one| line.starts_with(one)) || line.contains(" links, mtu ")
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
