//! How full an ordinary device is: byte queue limits in sysfs.
//!
//! A driver with byte queue limits says how many bytes it has and has not sent yet. Drivers
//! without (and those of virtual interfaces) say nothing; `busy` cannot work on them.

use std::path::PathBuf;

/// The byte queue limits of one interface.
#[derive(Debug)]
pub struct Queues {
    inflight: Vec<PathBuf>,
}

impl Queues {
    /// Those of interface `dev`; `None` where its driver has none.
    pub fn find(dev: &str) -> Option<Queues> {
        let folder = std::fs::read_dir(format!("/sys/class/net/{dev}/queues")).ok()?;
        let file = |entry: std::fs::DirEntry| entry.path().join("byte_queue_limits/inflight");
        let mut inflight: Vec<_> = folder.flatten().map(file).collect();
        inflight.retain(|file| file.exists());
        (!inflight.is_empty()).then_some(Queues { inflight })
    }

    /// Bytes that the device has and has not sent.
    pub fn bytes(&self) -> u64 {
        let read = |file| std::fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
        self.inflight.iter().filter_map(read).sum()
    }
}
