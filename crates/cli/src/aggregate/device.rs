//! How full an ordinary device is: its queueing discipline and its byte queue limits.
//!
//! What waits is in the discipline (`tc -s qdisc`) or, where the driver has byte queue limits, on
//! the device itself. A virtual interface without a discipline has neither and tells nothing;
//! `busy` cannot work on it.

use sheaf_netio::netlink::Netlink;
use sheaf_netio::qdisc;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Bytes of a full frame: a driver that tells bytes has at least one frame for so many.
const FULL_FRAME: u64 = 1514;

/// The queues of one interface.
#[derive(Debug)]
pub struct Queues {
    netlink: Netlink,
    ifindex: u32,
    discipline: bool,
    /// Bytes that the driver has, by transmit queue.
    inflight: Vec<File>,
}

impl Queues {
    /// Those of interface `dev`, number `ifindex`; `None` where it tells nothing.
    pub fn find(dev: &str, ifindex: u32) -> anyhow::Result<Option<Queues>> {
        let mut netlink = Netlink::open()?;
        let discipline = qdisc::waiting(&mut netlink, ifindex)?.is_some();
        let inflight = byte_queue_limits(dev);
        let tells = discipline || !inflight.is_empty();
        Ok(tells.then_some(Queues { netlink, ifindex, discipline, inflight }))
    }

    /// What tells, in words.
    pub fn name(&self) -> &'static str {
        match (self.discipline, self.inflight.is_empty()) {
            (true, true) => "its queueing discipline",
            (true, false) => "its queueing discipline and byte queue limits",
            (false, _) => "byte queue limits",
        }
    }

    /// Frames that the device has and has not sent.
    pub fn frames(&mut self) -> anyhow::Result<u64> {
        let read = |file: &File| {
            let mut text = [0; 24];
            let len = file.read_at(&mut text, 0).ok()?;
            std::str::from_utf8(&text[..len]).ok()?.trim().parse::<u64>().ok()
        };
        let bytes: u64 = self.inflight.iter().filter_map(read).sum();
        let waiting = match self.discipline {
            true => qdisc::waiting(&mut self.netlink, self.ifindex)?.unwrap_or(0),
            false => 0,
        };
        Ok(u64::from(waiting) + bytes.div_ceil(FULL_FRAME))
    }
}

/// The counters of the driver's queues. A driver that does not take part has the files, but its
/// limit stays 0.
fn byte_queue_limits(dev: &str) -> Vec<File> {
    let Ok(folder) = std::fs::read_dir(format!("/sys/class/net/{dev}/queues")) else {
        return Vec::new();
    };
    let limits = |entry: std::fs::DirEntry| entry.path().join("byte_queue_limits");
    let folders: Vec<PathBuf> = folder.flatten().map(limits).collect();
    let limit = |folder: &PathBuf| std::fs::read_to_string(folder.join("limit"));
    if !folders.iter().any(|folder| limit(folder).is_ok_and(|limit| limit.trim() != "0")) {
        return Vec::new();
    }
    folders.iter().filter_map(|folder| File::open(folder.join("inflight")).ok()).collect()
}
