//! A capture of every packet that leaves or is lost, with what happened to it as its comment.
//!
//! Source: draft-ietf-opsawg-pcapng, enhanced packet blocks and their `opt_comment`. A thread of
//! its own writes, so that a slow disk delays no packet; what it cannot keep up with is counted,
//! not waited for.

use super::pcapng::{LinkType, Writer};
use anyhow::{Context, anyhow};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;
use sheaf_emulator::cause::Kind;
use sheaf_emulator::{Cause, Causes, Direction, Event, Log, Packet};
use sheaf_netio::{clock, vnet};
use sheaf_stage::{Duration, Instant};
use std::fs::{File, OpenOptions};
use std::io::BufWriter;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;

/// Packets that wait to be written.
const WAITING: usize = 2048;

/// A packet and what happened to it.
struct Record {
    bytes: Vec<u8>,
    interface: u32,
    at: Instant,
    fate: Fate,
}

/// Event in the life of a packet.
enum Fate {
    /// On a link: when it came, and why it was held or dropped.
    Link { arrived: Instant, causes: Causes, dropped: Option<Cause> },
    /// On a medium: the comment.
    #[cfg(feature = "medium")]
    Medium(String),
}

/// Opens the file to be written. A named pipe that nobody reads would be waited for, and signals
/// would not end that.
fn open(file: &str) -> anyhow::Result<File> {
    let opened = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(file)
        .with_context(|| {
            match std::fs::metadata(file).map(|there| there.file_type().is_fifo()) {
                Ok(true) => format!("nobody reads the pipe {file}; start its reader before"),
                _ => format!("cannot write {file}; give another file to --pcap"),
            }
        })?;
    // From now on a slow reader is waited for, by the thread that writes.
    fcntl(&opened, FcntlArg::F_SETFL(OFlag::empty()))?;
    Ok(opened)
}

/// Writer of the file.
pub struct Capture {
    sender: Option<SyncSender<Record>>,
    spare: Receiver<Vec<u8>>,
    missed: Arc<AtomicU64>,
    writer: JoinHandle<()>,
}

impl Capture {
    /// Begins `file`, with an interface of this kind for each of `names`.
    pub fn create(file: &str, names: &[&str], kind: LinkType) -> anyhow::Result<Capture> {
        let opened = open(file)?;
        let mut writer = Writer::new(BufWriter::new(opened))?;
        for name in names {
            writer.interface(name, kind)?;
        }
        let (sender, records) = sync_channel(WAITING);
        let (back, spare) = sync_channel(WAITING);
        let epoch = Duration::from_nanos(clock::epoch());
        let missed = Arc::new(AtomicU64::new(0));
        let (lost, name) = (missed.clone(), file.to_owned());
        let work = move || match write(writer, &records, &back, epoch) {
            Ok(()) => {}
            Err(error) => {
                tracing::error!("the capture {name} ends here: {error:#}; packets go on");
                // What waits is not in the file, nor is the packet that the disk refused.
                lost.fetch_add(records.try_iter().count() as u64 + 1, Ordering::Relaxed);
            }
        };
        let writer = std::thread::Builder::new().name("capture".to_owned()).spawn(work)?;
        Ok(Capture { sender: Some(sender), spare, missed, writer })
    }

    /// Tells the capture of drops, for the links.
    pub fn log(&self) -> Log {
        let (sender, missed) = (self.sender.clone(), self.missed.clone());
        Arc::new(move |event: &Event<'_>| {
            if event.cause.kind() == Kind::Dropped
                && let Some(sender) = &sender
            {
                let record = record(event.packet, event.at, Some(event.cause), Vec::new());
                if sender.try_send(record).is_err() {
                    missed.fetch_add(1, Ordering::Relaxed);
                }
            }
        })
    }

    /// A packet that leaves.
    pub fn leaves(&self, packet: &Packet) {
        let buffer = self.spare.try_recv().unwrap_or_default();
        let record = record(packet, packet.depart, None, buffer);
        if let Some(sender) = &self.sender
            && sender.try_send(record).is_err()
        {
            self.missed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A frame of station number `interface` with which a medium was done `at` this time, and what
    /// stands beside it.
    #[cfg(feature = "medium")]
    pub fn transmitted(&self, interface: u32, at: Instant, frame: &[u8], comment: String) {
        let mut bytes = self.spare.try_recv().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(frame);
        let record = Record { bytes, interface, at, fate: Fate::Medium(comment) };
        if let Some(sender) = &self.sender
            && sender.try_send(record).is_err()
        {
            self.missed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Number of packets that are not in the file: the disk was full, or too slow.
    pub fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }

    /// Writes what waits, ends the file, and says how many packets are not in it. No link may
    /// report drops any more.
    pub fn end(mut self) -> anyhow::Result<()> {
        drop(self.sender.take());
        self.writer.join().map_err(|_| anyhow!("the capture's thread panicked"))?;
        let missed = self.missed.load(Ordering::Relaxed);
        if missed > 0 {
            tracing::warn!("{missed} packets are not in the capture; write it to a faster disk");
        }
        Ok(())
    }
}

fn record(packet: &Packet, at: Instant, dropped: Option<Cause>, mut bytes: Vec<u8>) -> Record {
    bytes.clear();
    bytes.extend_from_slice(packet.bytes.get(vnet::LEN..).unwrap_or_default());
    Record {
        bytes,
        interface: u32::from(packet.direction == Direction::In),
        at,
        fate: Fate::Link { arrived: packet.arrived, causes: packet.causes, dropped },
    }
}

/// Notes beside a packet.
fn comment(record: &Record) -> String {
    let since = |begin: Instant| record.at.saturating_since(begin).as_nanos() as f64 / 1e6;
    match &record.fate {
        Fate::Link { arrived, dropped: Some(cause), .. } => {
            format!("dropped: {cause} (after {:.3} ms)", since(*arrived))
        }
        Fate::Link { causes, .. } if causes.is_empty() => "passed".to_owned(),
        Fate::Link { arrived, causes, .. } => format!("{causes} ({:.3} ms)", since(*arrived)),
        #[cfg(feature = "medium")]
        Fate::Medium(comment) => comment.clone(),
    }
}

fn write(
    mut writer: Writer<BufWriter<File>>,
    records: &Receiver<Record>,
    back: &SyncSender<Vec<u8>>,
    epoch: Duration,
) -> anyhow::Result<()> {
    loop {
        let record = match records.try_recv() {
            Ok(record) => record,
            Err(TryRecvError::Disconnected) => break,
            Err(TryRecvError::Empty) => {
                // A disk that is full is to be noticed when it is, not at the end.
                writer.flush().context("cannot write the capture")?;
                match records.recv() {
                    Ok(record) => record,
                    Err(_) => break,
                }
            }
        };
        let comment = comment(&record);
        let time = epoch + Duration::from_nanos(record.at.as_nanos());
        writer
            .packet(record.interface, time.as_nanos() as u64, &record.bytes, &comment)
            .context("cannot write the capture")?;
        let _ = back.try_send(record.bytes);
    }
    writer.flush().context("cannot write the capture")
}
