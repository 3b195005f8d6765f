//! The program at tc egress that gathers.
//!
//! It hangs on a tcx link that nothing pins: when this value or its process goes, however it ends,
//! the kernel takes the program off the interface and packets flow as before.

use crate::Error;
use crate::layout::{Device, Hop, Mac, MergeConfig, Plain, Queue, SLOTS, mapped};
use aya::maps::lpm_trie::{Key, LpmTrie};
use aya::maps::{Array, HashMap, Map, MapData, RingBuf};
use aya::programs::tc::{TcAttachOptions, TcAttachType};
use aya::programs::{LinkOrder, SchedClassifier, TestRun, TestRunOptions};
use aya::{Ebpf, include_bytes_aligned};
use sheaf_aggregate::Stats;
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/merge.bpf.o"));
const NAME: &str = "sheaf_merge";

/// What the program tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The oldest packet of queue `slot` waits since `oldest` ns of CLOCK_MONOTONIC.
    Waits {
        /// The queue.
        slot: u32,
        /// Since when.
        oldest: u64,
    },
    /// Queue `slot` may leave, but no packet in hand could carry it: it wants a tick.
    WantsTick {
        /// The queue.
        slot: u32,
    },
    /// A packet passed because every queue is in use: empty ones should be given back.
    NoSlot,
}

/// What the program did with a frame in hand ([`Merge::test_run`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// It sends a frame of this many bytes.
    Sends(usize),
    /// It keeps the packet.
    Keeps,
    /// It drops the frame.
    Drops,
}

/// The program on one interface.
pub struct Merge {
    hops: HashMap<MapData, Plain<Mac>, Plain<Hop>>,
    far_ends: LpmTrie<MapData, [u8; 16], Plain<Hop>>,
    queues: Array<MapData, Plain<Queue>>,
    events: RingBuf<MapData>,
    free: aya::maps::Queue<MapData, u32>,
    /// Counters of queues that went out of use, by hop id.
    retired: BTreeMap<u32, Stats>,
    device: Page,
    /// Keeps the program and its link.
    ebpf: Ebpf,
}

impl Merge {
    /// Loads the program and puts it on `interface` of this thread's network namespace.
    pub fn attach(interface: &str, config: MergeConfig) -> Result<Merge, Error> {
        let mut ebpf = Ebpf::load(OBJECT)?;
        let mut map = |name| ebpf.take_map(name).ok_or(Error::Missing(name));
        let mut settings: Array<_, Plain<MergeConfig>> = map("merge_config")?.try_into()?;
        settings.set(0, Plain(config), 0)?;
        let mut free: aya::maps::Queue<_, u32> = map("free_slots")?.try_into()?;
        for slot in 0..SLOTS {
            free.push(slot, 0)?;
        }
        let retired = BTreeMap::new();
        let device = match map("device")? {
            Map::Array(data) => Page::new(data)?,
            _ => return Err(Error::Missing("device")),
        };
        device.look_at(u64::MAX);
        let hops = map("hops")?.try_into()?;
        let far_ends = map("far_ends")?.try_into()?;
        let queues = map("queues")?.try_into()?;
        let events = map("events")?.try_into()?;

        let program = ebpf.program_mut(NAME).ok_or(Error::Missing(NAME))?;
        let program: &mut SchedClassifier = program.try_into()?;
        program.load()?;
        let options = TcAttachOptions::TcxOrder(LinkOrder::default());
        program.attach_with_options(interface, TcAttachType::Egress, options)?;
        Ok(Merge { hops, far_ends, queues, events, free, retired, device, ebpf })
    }

    /// Packets to link address `mac` share frames from now on, or, with a `max` of 0, no longer.
    pub fn set_hop(&mut self, mac: [u8; 6], hop: Hop) -> Result<(), Error> {
        Ok(self.hops.insert(Plain(mac.into()), Plain(hop), 0)?)
    }

    /// Packets to link address `mac` pass as they are from now on.
    pub fn remove_hop(&mut self, mac: [u8; 6]) -> Result<(), Error> {
        match self.hops.remove(&Plain(mac.into())) {
            Ok(()) | Err(aya::maps::MapError::KeyNotFound) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Packets to `network`/`bits` share frames to a far end.
    pub fn set_far_end(&mut self, network: IpAddr, bits: u32, hop: Hop) -> Result<(), Error> {
        let bits = if network.is_ipv4() { bits + 96 } else { bits };
        Ok(self.far_ends.insert(&Key::new(bits, mapped(network)), Plain(hop), 0)?)
    }

    /// What the device's side and the program tell each other.
    pub fn device(&self) -> &Page {
        &self.device
    }

    /// The next thing the program told; `None` when there is nothing. Readable when
    /// the value's descriptor is.
    pub fn event(&mut self) -> Option<Event> {
        let item = self.events.next()?;
        let word = |at: usize| item.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
        let slot = word(4)?;
        let oldest = item.get(8..16)?.try_into().ok().map(u64::from_ne_bytes)?;
        Some(match word(0)? {
            0 => Event::Waits { slot, oldest },
            1 => Event::WantsTick { slot },
            _ => Event::NoSlot,
        })
    }

    /// The queue in `slot` as it is now.
    pub fn queue(&self, slot: u32) -> Result<Queue, Error> {
        Ok(self.queues.get(&slot, 0)?.0)
    }

    /// Counters by hop id: the id and the sum over its queues, in order of the ids.
    pub fn stats(&self) -> Result<Vec<(u32, Stats)>, Error> {
        let mut sums = self.retired.clone();
        for slot in 0..SLOTS {
            let queue = self.queue(slot)?;
            if queue.is_used() {
                sums.entry(queue.key.hop).or_default().add(&queue.stats.into());
            }
        }
        Ok(sums.into_iter().collect())
    }

    /// Gives the queue in `slot` back, which a [`Cause::Reclaim`](crate::ticker::Cause) tick took
    /// out of use, and keeps its counters. `hop` is whose it was.
    pub fn retire(&mut self, slot: u32, hop: u32) -> Result<(), Error> {
        let queue = self.queue(slot)?;
        self.retired.entry(hop).or_default().add(&queue.stats.into());
        self.queues.set(slot, Plain(Queue::unused()), 0)?;
        Ok(self.free.push(slot, 0)?)
    }

    /// Runs the program on `frame` as the interface would, but keeps what leaves: it is written to
    /// `out` (BPF_PROG_TEST_RUN).
    pub fn test_run(&self, frame: &[u8], out: &mut [u8]) -> Result<Done, Error> {
        let program = self.ebpf.program(NAME).ok_or(Error::Missing(NAME))?;
        let program: &SchedClassifier = program.try_into()?;
        let result = program.test_run(TestRunOptions {
            data_in: Some(frame),
            data_out: Some(out),
            ..TestRunOptions::new()
        })?;
        // TCX_NEXT, TC_ACT_REDIRECT (to nowhere), TCX_DROP.
        Ok(match result.return_value.cast_signed() {
            -1 => Done::Sends(result.data_size_out as usize),
            7 => Done::Keeps,
            _ => Done::Drops,
        })
    }
}

impl AsFd for Merge {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring buffer keeps its descriptor open as long as `self` lives.
        unsafe { BorrowedFd::borrow_raw(self.events.as_raw_fd()) }
    }
}

/// The map that is a page of memory.
#[derive(Debug)]
pub struct Page {
    data: MapData,
    page: NonNull<Device>,
}

// SAFETY: the page is shared memory, read and written by atomic operations only.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

const PAGE: usize = 4096;

impl Page {
    fn new(data: MapData) -> io::Result<Page> {
        let fd = data.fd().as_fd().as_raw_fd();
        let (read_write, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping of a map that has BPF_F_MMAPABLE; nothing else is touched.
        let page = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, read_write, shared, fd, 0) };
        let page = NonNull::new(page.cast()).filter(|_| page != libc::MAP_FAILED);
        Ok(Page { data, page: page.ok_or_else(io::Error::last_os_error)? })
    }

    /// The map's descriptor, for another process that maps it.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.data.fd().as_fd()
    }

    fn long(&self, field: impl Fn(*mut Device) -> *mut u64) -> &AtomicU64 {
        // SAFETY: the field lies in the mapping, is aligned, and everyone uses it atomically.
        unsafe { AtomicU64::from_ptr(field(self.page.as_ptr())) }
    }

    fn word(&self, field: impl Fn(*mut Device) -> *mut u32) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { AtomicU32::from_ptr(field(self.page.as_ptr())) }
    }

    /// All fields, each read on its own.
    pub fn read(&self) -> Device {
        // SAFETY (all closures): only the place of a field is computed.
        Device {
            done: self.long(|d| unsafe { &raw mut (*d).done }).load(Ordering::Acquire),
            sent: self.long(|d| unsafe { &raw mut (*d).sent }).load(Ordering::Acquire),
            handed: self.long(|d| unsafe { &raw mut (*d).handed }).load(Ordering::Relaxed),
            look_at: self.long(|d| unsafe { &raw mut (*d).look_at }).load(Ordering::Relaxed),
            rest_until: self.long(|d| unsafe { &raw mut (*d).rest_until }).load(Ordering::Relaxed),
            limit: self.word(|d| unsafe { &raw mut (*d).limit }).load(Ordering::Relaxed),
            told: self.word(|d| unsafe { &raw mut (*d).told }).load(Ordering::Relaxed),
            held: self.word(|d| unsafe { &raw mut (*d).held }).load(Ordering::Relaxed),
            passed: self.word(|d| unsafe { &raw mut (*d).passed }).load(Ordering::Relaxed),
        }
    }

    /// User space will read its events at `nanos` at the latest: what can wait so long wakes nobody.
    pub fn look_at(&self, nanos: u64) {
        // In this order with the system call that waits: what is told after it wakes.
        self.long(|d| unsafe { &raw mut (*d).look_at }).store(nanos, Ordering::SeqCst);
    }

    /// The device tells from now on: it has finished with `done` frames and can have `limit`.
    pub fn tell(&self, done: u64, limit: u32) {
        self.long(|d| unsafe { &raw mut (*d).done }).store(done, Ordering::Release);
        self.word(|d| unsafe { &raw mut (*d).limit }).store(limit, Ordering::Relaxed);
        self.word(|d| unsafe { &raw mut (*d).told }).store(1, Ordering::Release);
    }

    /// Only full frames leave until `nanos` of CLOCK_MONOTONIC.
    pub fn rest_until(&self, nanos: u64) {
        self.long(|d| unsafe { &raw mut (*d).rest_until }).store(nanos, Ordering::Relaxed);
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, which nothing refers to any more.
        unsafe { libc::munmap(self.page.as_ptr().cast(), PAGE) };
    }
}
