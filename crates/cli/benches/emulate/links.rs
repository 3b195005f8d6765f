//! Hundreds of links in one process: memory while they are idle, before and after traffic; and all
//! of them full at once, with the processor time that takes and how late packets leave.

use crate::many;
use serde_json::Value;
use sheaf_netio::netns::Namespace;
use sheaf_netio::poller::Poller;
use sheaf_netio::vnet_packet::{Receive, VnetSocket};
use sheaf_netio::{clock, ip, timer, vnet};
use sheaf_stage::Duration;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

const SHEAF: &str = env!("CARGO_BIN_EXE_sheaf");
/// Most links.
const LINKS: usize = 500;
/// A frame of Ethernet.
const FRAME: usize = 1514;
/// Offered to each link in bit/s, a little less than its 10 Mbit/s.
const OFFERED: u64 = 9_900_000;
const LONG: Duration = Duration::from_secs(5);

/// `LINKS` pairs of interfaces, and the links between them.
struct Testbed {
    middle: Namespace,
    emulator: Child,
    _file: tempfile::NamedTempFile,
}

impl Drop for Testbed {
    fn drop(&mut self) {
        let _ = self.emulator.kill();
        let _ = self.emulator.wait();
    }
}

impl Testbed {
    fn new(links: usize) -> Testbed {
        let middle = Namespace::new().unwrap();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "name = \"many\"\noptions = \"rate 10mbit delay 20ms\"").unwrap();
        middle.run(|| many::links(&mut file, links, &[])).unwrap();
        let mut command = Command::new(SHEAF);
        command.args(["emulate", "links"]).arg(file.path());
        middle.enter(&mut command);
        let mut emulator = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        BufReader::new(emulator.stdout.as_mut().unwrap()).read_line(&mut first).unwrap();
        Testbed { middle, emulator, _file: file }
    }

    fn show(&self) -> Value {
        let mut command = Command::new(SHEAF);
        command.args(["emulate", "show", "many", "--json"]);
        self.middle.enter(&mut command);
        serde_json::from_slice(&command.output().unwrap().stdout).unwrap()
    }

    /// Packets that have left the links.
    fn delivered(&self) -> u64 {
        let status = self.show();
        let links = status["links"].as_object().unwrap().values();
        links.map(|link| link["delivered_packets"].as_u64().unwrap()).sum()
    }

    /// Memory in kB for each of [`LINKS`].
    fn memory(&self) -> f64 {
        many::memory(self.emulator.id()) as f64 / 1024.0 / LINKS as f64
    }

    /// Processor time in seconds.
    fn processor(&self) -> f64 {
        let path = format!("/proc/{}/stat", self.emulator.id());
        let text = std::fs::read_to_string(path).unwrap();
        // Behind the name: state is field 3, user and system time are 14 and 15, in hundredths.
        let fields: Vec<&str> = text.rsplit(')').next().unwrap().split_whitespace().collect();
        let ticks = |field: usize| fields[field - 3].parse::<u64>().unwrap();
        (ticks(14) + ticks(15)) as f64 / 100.0
    }

    /// Offers each of `links` links [`OFFERED`] for [`LONG`]; returns frames sent.
    fn fill(&self, links: usize) -> u64 {
        let open = |number: usize| {
            let open = || VnetSocket::open(ip::index(&format!("pa{number}"))?, Receive::Nothing);
            self.middle.run(open).unwrap()
        };
        let mut sockets: Vec<VnetSocket> = (0..links).map(open).collect();
        let mut frame = vec![0; vnet::LEN + FRAME];
        frame[vnet::LEN..vnet::LEN + 6].fill(0xff);
        frame[vnet::LEN + 12..vnet::LEN + 14].copy_from_slice(&[0x88, 0xb5]);
        let gap = Duration::from_nanos(FRAME as u64 * 8 * 1_000_000_000 / OFFERED);
        let (begin, mut sent) = (clock::now(), 0);
        let mut next = begin;
        while next - begin < LONG {
            for (number, socket) in sockets.iter_mut().enumerate() {
                // Links are not in step: each has its own place in the gap.
                let at = next + gap * number as u32 / links as u32;
                while clock::now() < at {
                    let _ = timer::wait(&mut Poller::default(), 0, at, Duration::ZERO);
                }
                socket.send([frame.as_slice()]);
                sent += 1;
            }
            next += gap;
        }
        sent
    }
}

/// Prints the measurements.
pub fn run() {
    let testbed = Testbed::new(LINKS);
    println!("{LINKS} links: {:.1} kB a link when begun", testbed.memory());
    println!(
        "{:>6}{:>12}{:>12}{:>12}{:>10}{:>10}{:>12}{:>14}",
        "full",
        "Mbit/s each",
        "of offered",
        "processors",
        "p50 us",
        "p99 us",
        "max us",
        "kB a link"
    );
    for full in [10, 50, 100, 200, LINKS] {
        let (before, processor, begin) = (testbed.delivered(), testbed.processor(), clock::now());
        let sent = testbed.fill(full);
        let took = clock::now() - begin;
        let used = testbed.processor() - processor;
        // What is under way at the end is so for 20 ms.
        timer::wait(&mut Poller::default(), 0, clock::now() + LONG / 10, Duration::ZERO).unwrap();
        let left = testbed.delivered() - before;
        let status = testbed.show();
        let late = |name: &str| status["lateness"][name].as_f64().unwrap();
        println!(
            "{full:>6}{:>12.2}{:>12.3}{:>12.2}{:>10.0}{:>10.0}{:>12.0}{:>14.1}",
            left as f64 * FRAME as f64 * 8e-6 / took.as_secs_f64() / full as f64,
            left as f64 / sent as f64,
            used / took.as_secs_f64(),
            late("p50_us"),
            late("p99_us"),
            late("max_us"),
            testbed.memory(),
        );
    }
}
