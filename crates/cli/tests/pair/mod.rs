//! Two hosts joined by cables, and a trunk between them.
#![allow(dead_code, reason = "the tests use all of it, the benchmark a part")]

use nix::sys::signal::Signal;
use sheaf_netio::child::end_with_parent;
use sheaf_netio::ip;
use sheaf_netio::netns::Namespace;
use std::io::{self, BufRead, BufReader, PipeReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread::JoinHandle;

const SHEAF: &str = env!("CARGO_BIN_EXE_sheaf");

/// Host 1 and host 2; cable i joins `if{i}` of both, with 10.1.{i}.{host}, fd01:{i+1}::{host} and
/// the link address 02:00:00:00:{i}:{host}.
pub struct Pair {
    pub hosts: [Namespace; 2],
    pub cables: usize,
    /// Whether trunks over UDP are given a key by the test; else they are plain.
    pub keyed: bool,
}

impl Pair {
    pub fn new(cables: usize) -> Pair {
        let hosts = [Namespace::new().unwrap(), Namespace::new().unwrap()];
        // The kernel tells late, by up to a second, that a veth end has a carrier when its index is
        // that of its other end (it takes it for a card then). One host uses up two.
        let shift = || {
            ip::run("link add one type veth peer name two")?;
            ip::run("link del one")
        };
        hosts[1].run(shift).unwrap();
        let pair = Pair { hosts, cables, keyed: false };
        (0..cables).for_each(|cable| pair.plug(cable));
        pair
    }

    /// Joins both hosts by cable number `cable`.
    pub fn plug(&self, cable: usize) {
        let other = self.hosts[1].path();
        let link = format!(
            "link add if{cable} address 02:00:00:00:{cable:02x}:01 type veth \
             peer name if{cable} address 02:00:00:00:{cable:02x}:02 netns {other}"
        );
        self.hosts[0].run(|| ip::run(&link)).unwrap();
        self.up(cable);
    }

    /// Gives both ends of cable number `cable` their addresses, and sets them up.
    pub fn up(&self, cable: usize) {
        for (host, number) in self.hosts.iter().zip(1..) {
            let up = || {
                let six = cable + 1;
                ip::run(&format!("addr add 10.1.{cable}.{number}/24 dev if{cable}"))?;
                ip::run(&format!("addr add fd01:{six}::{number}/64 dev if{cable} nodad"))?;
                ip::run(&format!("link set if{cable} up"))
            };
            host.run(up).unwrap();
        }
    }

    /// Gives every cable a rate in Mbit/s, both ways.
    pub fn shaped(self, rates: &[u32]) -> Pair {
        (0..).zip(rates).for_each(|(cable, rate)| self.shape(cable, *rate));
        self
    }

    /// Gives a cable a rate in Mbit/s, both ways.
    pub fn shape(&self, cable: usize, rate: u32) {
        for host in &self.hosts {
            let tbf = format!("tbf rate {rate}mbit burst 10k limit 100k");
            self.tc(host, &format!("qdisc replace dev if{cable} root {tbf}"));
        }
    }

    /// Runs `tc` on one host; what it says.
    pub fn tc(&self, host: &Namespace, line: &str) -> String {
        let output = host.run(|| Command::new("tc").args(line.split(' ')).output()).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Members that send Ethernet frames over every cable: the words of both hosts.
    pub fn frames(&self) -> Vec<[String; 2]> {
        let member =
            |cable: usize, host| format!("dev if{cable} peer 02:00:00:00:{cable:02x}:{host}");
        (0..self.cables).map(|cable| [member(cable, "02"), member(cable, "01")]).collect()
    }

    /// Members that send UDP over every cable.
    pub fn paths(&self) -> Vec<[String; 2]> {
        let member =
            |cable, ours, theirs| format!("path 10.1.{cable}.{ours} 10.1.{cable}.{theirs}");
        (0..self.cables).map(|cable| [member(cable, 1, 2), member(cable, 2, 1)]).collect()
    }

    /// The command line of one host (0 or 1).
    pub fn line(&self, host: usize, members: &[[String; 2]]) -> String {
        let members: Vec<_> = members.iter().map(|both| both[host].as_str()).collect();
        let number = host + 1;
        let addresses = format!("address 10.99.0.{number}/24 address fd99::{number}/64");
        // What a test says of keys comes behind it.
        let plain = members.iter().any(|member| member.starts_with("path")) && !self.keyed;
        let plain = if plain { " plain" } else { "" };
        format!("trunk t0 {} {addresses}{plain}", members.join(" "))
    }

    /// A trunk, with every link up: t0 is 10.99.0.{host} and fd99::{host}.
    pub fn trunks(&self, members: &[[String; 2]]) -> (Trunk<'_>, Trunk<'_>) {
        self.trunks_with(members, "")
    }

    /// The same with more words for both ends.
    pub fn trunks_with(&self, members: &[[String; 2]], more: &str) -> (Trunk<'_>, Trunk<'_>) {
        let line = |host| format!("{} {more}", self.line(host, members));
        let start = |host: usize| Trunk::start(&self.hosts[host], &line(host));
        let (mut here, mut there) = (start(0), start(1));
        for trunk in [&mut here, &mut there] {
            (0..members.len()).for_each(|_| trunk.wait_for(" is up"));
        }
        (here, there)
    }

    /// Sends `bytes` bytes by TCP from host 1 to `to` on host 2, and compares what arrives.
    pub fn transfer(&self, to: &str, bytes: usize) {
        self.flow(to, bytes).finish();
    }

    /// Begins to send `bytes` bytes by TCP from host 1 to `to` on host 2.
    pub fn flow(&self, to: &str, bytes: usize) -> Flow {
        let listener = self.hosts[1].run(|| TcpListener::bind(to)).unwrap();
        let mut sender = self.hosts[0].run(|| TcpStream::connect(to)).unwrap();
        let receiver = listener.accept().unwrap().0;
        let send = move || sender.write_all(&(0..bytes).map(pattern).collect::<Vec<_>>());
        Flow { receiver, sent: std::thread::spawn(send), bytes, received: Vec::new() }
    }
}

/// Bytes on their way by TCP.
pub struct Flow {
    receiver: TcpStream,
    sent: JoinHandle<io::Result<()>>,
    bytes: usize,
    received: Vec<u8>,
}

impl Flow {
    /// Takes the next `bytes` bytes.
    pub fn receive(&mut self, bytes: u64) {
        let taken = (&self.receiver).take(bytes).read_to_end(&mut self.received).unwrap();
        assert_eq!(taken as u64, bytes);
    }

    /// Takes the rest and compares all with what was sent.
    pub fn finish(mut self) {
        self.receiver.read_to_end(&mut self.received).unwrap();
        self.sent.join().unwrap().unwrap();
        assert_eq!(self.received.len(), self.bytes);
        let wrong = (0..self.bytes).find(|at| self.received[*at] != pattern(*at));
        assert_eq!(wrong, None, "the first byte that is wrong");
    }
}

/// Byte number `at` of what is sent.
fn pattern(at: usize) -> u8 {
    (at.wrapping_mul(2_654_435_761) >> 7) as u8
}

/// The number at `path` in what `sheaf show` said.
pub fn number(shown: &serde_json::Value, path: &[&str]) -> u64 {
    let pointer: String = path.iter().map(|word| format!("/{word}")).collect();
    let number = shown.pointer(&pointer).and_then(serde_json::Value::as_u64);
    number.unwrap_or_else(|| panic!("no number {pointer} in {shown}"))
}

/// `sheaf` with the words of `line`, to its end.
pub fn run(host: &Namespace, line: &str) -> Output {
    run_by(host, "", line)
}

/// The same, started by the command `by`.
pub fn run_by(host: &Namespace, by: &str, line: &str) -> Output {
    command(host, by, line).output().unwrap()
}

fn command(host: &Namespace, by: &str, line: &str) -> Command {
    let mut words = by.split_whitespace().chain([SHEAF]).chain(line.split_whitespace());
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    host.enter(&mut command);
    // Else what runs when somebody ends the test or the benchmark would stay, and its host with it.
    end_with_parent(&mut command, Signal::SIGKILL);
    command
}

/// `sheaf trunk`, killed at the latest when the test ends.
pub struct Trunk<'a> {
    host: &'a Namespace,
    child: Child,
    said: BufReader<PipeReader>,
}

impl<'a> Trunk<'a> {
    /// At work: it has said so.
    pub fn start(host: &'a Namespace, line: &str) -> Trunk<'a> {
        Trunk::start_by(host, "", line)
    }

    /// The same, started by the command `by`.
    pub fn start_by(host: &'a Namespace, by: &str, line: &str) -> Trunk<'a> {
        Trunk::run(host, command(host, by, line))
    }

    /// The same with the directory in which quotas are kept.
    pub fn start_keeping(host: &'a Namespace, line: &str, directory: &Path) -> Trunk<'a> {
        let mut command = command(host, "", line);
        command.env("STATE_DIRECTORY", directory);
        Trunk::run(host, command)
    }

    fn run(host: &'a Namespace, mut command: Command) -> Trunk<'a> {
        // The log says which links are up, on standard error.
        let (said, output) = io::pipe().unwrap();
        command.stdout(output.try_clone().unwrap()).stderr(output);
        let child = command.spawn().unwrap();
        // The command holds the ends that are written to, too.
        drop(command);
        let said = BufReader::new(said);
        let mut trunk = Trunk { host, child, said };
        trunk.wait_for(" links, mtu ");
        trunk
    }

    /// Reads what it says up to a line that contains `words`.
    pub fn wait_for(&mut self, words: &str) {
        let mut line = String::new();
        while !line.contains(words) {
            let before = std::mem::take(&mut line);
            let read = self.said.read_line(&mut line).unwrap();
            assert!(read > 0, "it ended without saying {words:?}; last it said: {before}");
        }
    }

    /// Report of `sheaf show`.
    pub fn shown(&self) -> serde_json::Value {
        self.shown_of("t0")
    }

    /// The same of a trunk with another name.
    pub fn shown_of(&self, name: &str) -> serde_json::Value {
        let output = run(self.host, &format!("show dev {name} --json"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let mut shown: serde_json::Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"));
        shown[0]["trunk"].take()
    }

    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end.
    pub fn end(mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Trunk<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Another service, ended at the latest when the test ends.
pub struct Service(Child);

impl Service {
    /// At work: its first line begins with `says`.
    pub fn start(host: &Namespace, line: &str, says: &str) -> Service {
        let mut child = command(host, "", line).stdout(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        assert!(first.starts_with(says), "{first}");
        Service(child)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Not by SIGKILL, after which its sockets stay until another one starts.
        let process = nix::unistd::Pid::from_raw(self.0.id() as i32);
        let _ = nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGTERM);
        let _ = self.0.wait();
    }
}
