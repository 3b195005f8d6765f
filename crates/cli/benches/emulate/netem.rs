//! Beside the real NetEm, on a kernel that has it.

use crate::path::{Path, cable, sheaf};
use crate::rate::achieved;
use crate::trips::{HEADING, measure, row};
use sheaf_stage::Duration;
use std::process::{Command, Stdio};

/// A cable with queueing disciplines of the kernel, one within the other, at both ends.
fn qdiscs(lines: &[String]) -> Option<Path> {
    let path = cable();
    for host in [&path.left, &path.right] {
        for (line, place) in lines.iter().zip(["root handle 1:", "parent 1:1 handle 10:"]) {
            let line = format!("qdisc add dev eth0 {place} {line}");
            let tc = || Command::new("tc").args(line.split(' ')).stderr(Stdio::null()).status();
            if !host.run(tc).unwrap().success() {
                return None;
            }
        }
    }
    Some(path)
}

/// NetEm beside ours, on a kernel that has it (`scripts/bench-netem` starts one). Packets that
/// one queue holds both for the rate and for the delay are why it has the larger limit.
/// Prints round trips and rates.
pub fn run() {
    let limit = "limit 30000";
    if qdiscs(&[format!("netem {limit}")]).is_none() {
        println!("netem: skipped, this kernel has none; try scripts/bench-netem");
        return;
    }
    println!("{HEADING}");
    for ms in [10_u32, 50, 200] {
        let set = Duration::from_millis(u64::from(ms) * 2);
        let (delay, rate) =
            (format!("netem delay {ms}ms {limit}"), "tbf rate 1gbit burst 64k limit 64m");
        let ways = [
            ("netem", qdiscs(std::slice::from_ref(&delay))),
            ("tbf, netem", qdiscs(&[rate.to_owned(), delay])),
            ("sheaf", Some(sheaf(&format!("delay {ms}ms")))),
            ("sheaf --fifo 50", Some(sheaf(&format!("delay {ms}ms --fifo 50")))),
        ];
        for (name, path) in ways {
            let trips = measure(&path.unwrap(), set, if ms < 200 { 60 } else { 20 });
            row(&format!("{} ms, {name}", ms * 2), &trips);
        }
    }
    // Frame by frame: before Linux 6.2 no packet socket could receive super-packets of UDP.
    println!("{:<18}{:>12}{:>12}{:>12}{:>12}", "Mbit/s set", "netem", "tbf", "tbf, netem", "sheaf");
    for mbps in ["1.5", "10", "100"] {
        let set: f64 = mbps.parse().unwrap();
        let filter = format!("tbf rate {mbps}mbit burst 16k limit 64m");
        let ways = [
            qdiscs(&[format!("netem rate {mbps}mbit {limit}")]),
            qdiscs(std::slice::from_ref(&filter)),
            qdiscs(&[filter, format!("netem delay 10ms {limit}")]),
            Some(sheaf(&format!("rate {mbps}mbit {limit}"))),
        ];
        let rates = ways.map(|path| format!("{:>12.3}", achieved(&path.unwrap(), set, 1)));
        println!("{mbps:<18}{}", rates.concat());
    }
}
