//! The program at tc egress that gathers.
//!
//! It hangs on a tcx link that nothing pins: when this value or its process goes, however it ends,
//! the kernel takes the program off the interface and packets flow as before. On a kernel without
//! tcx it is a filter of the clsact queue; when its process dies, it lets everything pass.

use crate::Error;
use crate::attach::{self, Hook, Link};
use crate::contexts::Contexts;
use crate::frames::CrcTable;
use crate::layout::{
    Device, Entry, GROUPS, Gate, Hop, Mac, MergeConfig, Plain, Queue, QueueKey, SLOTS, mapped,
};
use aya::maps::lpm_trie::{Key, LpmTrie};
use aya::maps::{Array, HashMap, Map, MapData, ProgramArray, RingBuf};
use sheaf_aggregate::Stats;
use sheaf_stage::{Duration, Instant};
use sheaf_wire::compress::feedback::Feedback;
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/merge.bpf.deflate"));
const NAME: &str = "sheaf_merge";
/// The second program, which takes packets on to format 2.
const PACK: &str = "sheaf_pack";
/// Places of both in the map by which they call each other.
const FIRST_PROGRAM: u32 = 0;
const SECOND_PROGRAM: u32 = 1;

/// Link addresses of the next hops of all groups of a family: those of the groups begin so
/// (RFC 1112, section 6.4; RFC 2464, section 7).
const GROUPS_V4: [u8; 6] = [0x01, 0x00, 0x5e, 0, 0, 0];
const GROUPS_V6: [u8; 6] = [0x33, 0x33, 0, 0, 0, 0];

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
    /// The device's queue refused a packet that left in place.
    Full,
    /// A frame became full at a gate that rests ([`Rule::rests`]).
    Filled,
}

/// The program on one interface.
pub struct Merge {
    settings: Array<MapData, Plain<MergeConfig>>,
    hops: HashMap<MapData, Plain<Mac>, Plain<Hop>>,
    far_ends: LpmTrie<MapData, [u8; 16], Plain<Hop>>,
    queues: Array<MapData, Plain<Queue>>,
    /// Which queue each next hop and class has.
    slots: HashMap<MapData, Plain<QueueKey>, u32>,
    events: RingBuf<MapData>,
    free: aya::maps::Queue<MapData, u32>,
    /// Counters of queues that went out of use, by hop id.
    retired: BTreeMap<u32, Stats>,
    contexts: Contexts,
    takes_frames: bool,
    /// Whether a next hop gets frames of format 2, or did.
    has_frames: bool,
    device: Page,
    gates: Gates,
    entries: Array<MapData, Plain<Entry>>,
    /// Without it the kernel takes the programs out of the map.
    _programs: ProgramArray<MapData>,
    link: Link,
}

impl Merge {
    /// Loads the program and puts it on `interface` of this thread's network namespace.
    pub fn attach(interface: &str, config: MergeConfig) -> Result<Merge, Error> {
        let mut ebpf = attach::open(OBJECT)?;
        let mut map = |name| ebpf.take_map(name).ok_or(Error::Missing(name));
        let mut settings: Array<_, Plain<MergeConfig>> = map("merge_config")?.try_into()?;
        settings.set(0, Plain(config), 0)?;
        let mut free: aya::maps::Queue<_, u32> = map("free_slots")?.try_into()?;
        for slot in 0..SLOTS {
            free.push(slot, 0)?;
        }
        let mut table: Array<_, Plain<CrcTable>> = map("crc_table")?.try_into()?;
        table.set(0, Plain(CrcTable::new()), 0)?;
        let contexts = Contexts::new(
            map("streams")?.try_into()?,
            map("contexts")?.try_into()?,
            map("numbers")?.try_into()?,
        );
        let retired = BTreeMap::new();
        let device = Page { memory: Memory::new(map("device").ok(), "device", 1)? };
        device.look_at(u64::MAX);
        let gates = Memory::new(map("gates").ok(), "gates", SLOTS as usize)?;
        let gates = Gates { memory: gates };
        let hops = map("hops")?.try_into()?;
        let far_ends = map("far_ends")?.try_into()?;
        let queues = map("queues")?.try_into()?;
        let slots = map("slots")?.try_into()?;
        let events = map("events")?.try_into()?;
        let entries = map("entries")?.try_into()?;

        let mut programs: ProgramArray<_> = map("programs")?.try_into()?;
        // Without it there are meta packets, as before there was another format.
        let takes_frames = match attach::load(&mut ebpf, PACK) {
            Ok(pack) => programs.set(SECOND_PROGRAM, pack.fd()?, 0).map(|()| true)?,
            Err(Error::Refused { .. }) => false,
            Err(error) => return Err(error),
        };
        let program = attach::load(&mut ebpf, NAME)?;
        programs.set(FIRST_PROGRAM, program.fd()?, 0)?;
        let link = attach::attach(program, NAME, interface, Hook::Egress)?;
        // The link keeps the program, and the program its maps.
        Ok(Merge {
            settings,
            hops,
            far_ends,
            queues,
            slots,
            events,
            free,
            retired,
            contexts,
            takes_frames,
            has_frames: false,
            device,
            gates,
            entries,
            _programs: programs,
            link,
        })
    }

    /// Sets what the program goes by; packets that wait keep their frames.
    pub fn set_config(&mut self, config: MergeConfig) -> Result<(), Error> {
        Ok(self.settings.set(0, Plain(config), 0)?)
    }

    /// All packets pass as they are from now on, until hops are set again.
    pub fn forget_hops(&mut self) -> Result<(), Error> {
        let macs: Vec<_> = self.hops.keys().collect::<Result<_, _>>()?;
        macs.iter().try_for_each(|mac| self.hops.remove(mac))?;
        let networks: Vec<_> = self.far_ends.keys().collect::<Result<_, _>>()?;
        Ok(networks.iter().try_for_each(|network| self.far_ends.remove(network))?)
    }

    /// Packets to link address `mac` share frames from now on, or, with a `max` of 0, no longer. Of
    /// the formats, a far end that does not know format 2 must get [`Format::Meta`] only.
    ///
    /// [`Format::Meta`]: sheaf_aggregate::Format::Meta
    pub fn set_hop(&mut self, mac: [u8; 6], hop: Hop) -> Result<(), Error> {
        self.has_frames |= hop.has_frames();
        Ok(self.hops.insert(Plain(mac.into()), Plain(hop), 0)?)
    }

    /// Packets of UDP to groups of the family of `source`, our address in the outer header, share
    /// frames of `min` bytes at least and `max` at most from now on; or, with a `max` of 0, no
    /// longer: then what is held of a flow leaves before its next packet. All who hear the frames
    /// have to take them apart.
    pub fn set_groups(&mut self, source: IpAddr, min: u32, max: u16) -> Result<(), Error> {
        let mac = if source.is_ipv4() { GROUPS_V4 } else { GROUPS_V6 };
        self.set_hop(mac, Hop::groups(source, min, max))
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
        self.has_frames |= hop.has_frames();
        let bits = if network.is_ipv4() { bits + 96 } else { bits };
        Ok(self.far_ends.insert(&Key::new(bits, mapped(network)), Plain(hop), 0)?)
    }

    /// Whether this kernel takes the program for format 2. Where it does not, every next hop gets
    /// meta packets.
    pub fn takes_frames(&self) -> bool {
        self.takes_frames
    }

    /// Takes note of what next hop `hop`, by its id, said at `now` of the contexts of packets sent
    /// there. The caller has made sure that the next hop said it.
    pub fn said(&mut self, hop: u32, feedback: &Feedback, now: Instant) -> Result<(), Error> {
        self.contexts.said(hop, feedback, now)
    }

    /// Forgets the contexts and streams that were not used for a minute, such as those of next hops
    /// that are gone. Called now and then, or there is no room for new ones.
    pub fn forget_idle(&mut self, now: Instant) -> Result<(), Error> {
        if self.has_frames { self.contexts.forget_idle(now) } else { Ok(()) }
    }

    /// How the program hangs on the interface: by tcx or clsact.
    pub fn how(&self) -> &'static str {
        self.link.how()
    }

    /// What the device's side and the program tell each other.
    pub fn device(&self) -> &Page {
        &self.device
    }

    /// Where frames under way are counted together.
    pub fn gates(&self) -> &Gates {
        &self.gates
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
            2 => Event::NoSlot,
            3 => Event::Full,
            _ => Event::Filled,
        })
    }

    /// The queue in `slot` as it is now.
    pub fn queue(&self, slot: u32) -> Result<Queue, Error> {
        Ok(self.queues.get(&slot, 0)?.0)
    }

    /// Counters by hop id: the id and the sum over its queues, in order of the ids. Those of groups
    /// are together under [`GROUPS`].
    pub fn stats(&self) -> Result<Vec<(u32, Stats)>, Error> {
        let mut sums = self.retired.clone();
        // Not by the slots: most are free, and this is asked every second.
        for entry in self.slots.iter() {
            let (Plain(key), slot) = entry?;
            sums.entry(key.hop.min(GROUPS)).or_default().add(&self.queue(slot)?.stats.into());
        }
        Ok(sums.into_iter().collect())
    }

    /// Frames that passed unseen, as the device was done at once with all that it got, and small
    /// ones that found a FIFO empty.
    pub fn unseen(&self) -> Result<u64, Error> {
        let count = |cpu| Ok(self.entries.get(&cpu, 0)?.0.unseen);
        (0..self.entries.len()).map(count).sum()
    }

    /// Gives the queue in `slot` back, which a [`Cause::Reclaim`](crate::ticker::Cause) tick took
    /// out of use, and keeps its counters. `hop` is whose it was.
    pub fn retire(&mut self, slot: u32, hop: u32) -> Result<(), Error> {
        let queue = self.queue(slot)?;
        self.retired.entry(hop.min(GROUPS)).or_default().add(&queue.stats.into());
        self.queues.set(slot, Plain(Queue::unused()), 0)?;
        Ok(self.free.push(slot, 0)?)
    }
}

impl AsFd for Merge {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring buffer keeps its descriptor open as long as `self` lives.
        unsafe { BorrowedFd::borrow_raw(self.events.as_raw_fd()) }
    }
}

/// A map that is memory.
#[derive(Debug)]
struct Memory<T> {
    data: MapData,
    start: NonNull<T>,
    len: usize,
}

// SAFETY: the memory is shared with the kernel, and read and written by atomic operations only.
unsafe impl<T> Send for Memory<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Memory<T> {}

impl<T> Memory<T> {
    /// The `count` values of an array map that has BPF_F_MMAPABLE.
    fn new(map: Option<Map>, name: &'static str, count: usize) -> Result<Memory<T>, Error> {
        let Some(Map::Array(data)) = map else { return Err(Error::Missing(name)) };
        let fd = data.fd().as_fd().as_raw_fd();
        let (read_write, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        let len = count * size_of::<T>();
        // SAFETY: a new mapping of a map that has BPF_F_MMAPABLE; nothing else is touched.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, read_write, shared, fd, 0) };
        let start = NonNull::new(start.cast()).filter(|_| start != libc::MAP_FAILED);
        Ok(Memory { data, start: start.ok_or_else(io::Error::last_os_error)?, len })
    }
}

impl<T> Drop for Memory<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, which nothing refers to any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// An atomic view of field `$field` of the structure at `$start`.
macro_rules! atomic {
    ($start:expr, $field:ident, $atomic:ident) => {
        // SAFETY: the field lies in the mapping, is aligned, and everyone uses it atomically.
        unsafe { $atomic::from_ptr(&raw mut (*$start).$field) }
    };
}

/// The map that the program and the device's side share.
#[derive(Debug)]
pub struct Page {
    memory: Memory<Device>,
}

impl Page {
    fn start(&self) -> *mut Device {
        self.memory.start.as_ptr()
    }

    /// The map's descriptor, for another process that maps it.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.memory.data.fd().as_fd()
    }

    /// All fields, each read on its own.
    pub fn read(&self) -> Device {
        let page = self.start();
        Device {
            done: atomic!(page, done, AtomicU64).load(Ordering::Acquire),
            sent: atomic!(page, sent, AtomicU64).load(Ordering::Acquire),
            handed: atomic!(page, handed, AtomicU64).load(Ordering::Relaxed),
            rest_until: atomic!(page, rest_until, AtomicU64).load(Ordering::Relaxed),
            look_at: atomic!(page, look_at, AtomicU64).load(Ordering::Relaxed),
            asked_at: atomic!(page, asked_at, AtomicU64).load(Ordering::Relaxed),
            holding: atomic!(page, holding, AtomicU64).load(Ordering::Relaxed),
            last: atomic!(page, last, AtomicU64).load(Ordering::Relaxed),
            limit: atomic!(page, limit, AtomicU32).load(Ordering::Relaxed),
            told: atomic!(page, told, AtomicU32).load(Ordering::Relaxed),
            held: atomic!(page, held, AtomicU32).load(Ordering::Relaxed),
            passed: atomic!(page, passed, AtomicU32).load(Ordering::Relaxed),
            fifo: atomic!(page, fifo, AtomicU32).load(Ordering::Relaxed),
            passed_bytes: atomic!(page, passed_bytes, AtomicU32).load(Ordering::Relaxed),
            clock: atomic!(page, clock, AtomicU64).load(Ordering::Relaxed),
            unseen_until: atomic!(page, unseen_until, AtomicU64).load(Ordering::Relaxed),
            refused: atomic!(page, refused, AtomicU64).load(Ordering::Relaxed),
            busy_until: atomic!(page, busy_until, AtomicU64).load(Ordering::Relaxed),
            filled: atomic!(page, filled, AtomicU64).load(Ordering::Relaxed),
        }
    }

    /// User space will read its events at `nanos` at the latest: what can wait so long wakes
    /// nobody.
    pub fn look_at(&self, nanos: u64) {
        // In this order with the system call that waits: what is told after it wakes.
        atomic!(self.start(), look_at, AtomicU64).store(nanos, Ordering::SeqCst);
    }

    /// User space reads the program's events now: no question is open. Returns since when one was.
    pub fn looks(&self) -> Option<Instant> {
        // Before the events are read: a question asked meanwhile stays open.
        let asked = atomic!(self.start(), asked_at, AtomicU64).swap(0, Ordering::SeqCst);
        (asked > 0).then(|| Instant::from_nanos(asked))
    }

    /// The device tells from now on: it has finished with `done` frames and can have `limit`.
    pub fn tell(&self, done: u64, limit: u32) {
        let page = self.start();
        atomic!(page, done, AtomicU64).store(done, Ordering::Release);
        atomic!(page, limit, AtomicU32).store(limit, Ordering::Relaxed);
        atomic!(page, told, AtomicU32).store(1, Ordering::Release);
    }

    /// Whether the device is a FIFO: what strangers send stays ahead of what comes later.
    pub fn set_fifo(&self, fifo: bool) {
        atomic!(self.start(), fifo, AtomicU32).store(u32::from(fifo), Ordering::Relaxed);
    }

    /// Contexts and tags are kept by the time `nanos` from now on, so that a test is not at the
    /// mercy of the clock; 0 for that of CLOCK_MONOTONIC.
    pub fn set_clock(&self, nanos: u64) {
        atomic!(self.start(), clock, AtomicU64).store(nanos, Ordering::Relaxed);
    }

    /// Packets pass unseen until `until`, where the device is done at once with all that it gets
    /// and nothing is held; [`Instant::ZERO`]: they do not.
    pub fn unseen_until(&self, until: Instant) {
        let page = self.start();
        let unseen = atomic!(page, unseen_until, AtomicU64);
        unseen.store(until.as_nanos(), Ordering::SeqCst);
        // What was gathered before the store did not end it.
        if atomic!(page, held, AtomicU32).load(Ordering::SeqCst) > 0 {
            unseen.store(0, Ordering::SeqCst);
        }
    }

    /// Only full frames leave until `nanos` of CLOCK_MONOTONIC.
    pub fn rest_until(&self, nanos: u64) {
        atomic!(self.start(), rest_until, AtomicU64).store(nanos, Ordering::Relaxed);
    }
}

/// What user space decides about a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Packets gather: frames are under way.
    pub closed: bool,
    /// Whether many strangers' frames are in fair queues, too: then sparse flows leave in place,
    /// and the process is woken by what is gathered first though frames are under way.
    pub hurried: bool,
    /// Full frames that may leave without a tick.
    pub credit: u32,
    /// The gate is closed because the station leaves the channel to others. A full frame may leave,
    /// and wakes the process.
    pub rests: bool,
    /// What a frame takes the device.
    pub service: Duration,
    /// What user space takes to look at a question.
    pub reaction: Duration,
    /// From then on a packet that follows another is a probe.
    pub probe_at: Instant,
    /// Packets that leave in place between two probes, at least.
    pub between: u32,
    /// Packets that are closer than this need none between two probes; at most 4 s.
    pub dense: Duration,
}

impl Rule {
    /// Before anything is known of the device.
    pub const OPEN: Rule = Rule {
        closed: false,
        hurried: false,
        credit: 0,
        rests: false,
        service: Duration::ZERO,
        reaction: Duration::ZERO,
        probe_at: Instant::ZERO,
        between: 0,
        dense: Duration::ZERO,
    };
}

/// The map of gates.
#[derive(Debug)]
pub struct Gates {
    memory: Memory<Gate>,
}

impl Gates {
    fn start(&self, slot: u32) -> *mut Gate {
        assert!(slot < SLOTS, "a gate for each slot");
        // SAFETY: within the mapping, which has SLOTS gates.
        unsafe { self.memory.start.as_ptr().add(slot as usize) }
    }

    /// Sets what the program does at gate `slot`.
    pub fn set(&self, slot: u32, rule: Rule) {
        let gate = self.start(slot);
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        atomic!(gate, service, AtomicU64).store(nanos(rule.service), Ordering::Relaxed);
        atomic!(gate, reaction, AtomicU64).store(nanos(rule.reaction), Ordering::Relaxed);
        atomic!(gate, probe_at, AtomicU64).store(rule.probe_at.as_nanos(), Ordering::Relaxed);
        atomic!(gate, between, AtomicU32).store(rule.between, Ordering::Relaxed);
        let dense = u32::try_from(rule.dense.as_nanos()).unwrap_or(u32::MAX);
        atomic!(gate, dense, AtomicU32).store(dense, Ordering::Relaxed);
        atomic!(gate, credit, AtomicU32).store(rule.credit, Ordering::Relaxed);
        atomic!(gate, rests, AtomicU32).store(u32::from(rule.rests), Ordering::Relaxed);
        atomic!(gate, hurried, AtomicU32).store(u32::from(rule.hurried), Ordering::Relaxed);
        atomic!(gate, closed, AtomicU32).store(u32::from(rule.closed), Ordering::Release);
    }

    /// When a packet last left in place at gate `slot`.
    pub fn last(&self, slot: u32) -> Instant {
        Instant::from_nanos(atomic!(self.start(slot), last, AtomicU64).load(Ordering::Relaxed))
    }

    /// All of gate `slot` that left with its hash and without a tick, so far.
    pub fn untracked(&self, slot: u32) -> u32 {
        atomic!(self.start(slot), untracked, AtomicU32).load(Ordering::Acquire)
    }

    /// The number of the last tick of gate `slot` that left.
    pub fn ticks(&self, slot: u32) -> u32 {
        atomic!(self.start(slot), ticks, AtomicU32).load(Ordering::Acquire)
    }

    /// The device has finished with the ticks of gate `slot` up to number `tick`, and with all that
    /// left without a tick and with its hash before that: packets up to number `gone`.
    pub fn ticks_left(&self, slot: u32, tick: u32, gone: u32) {
        atomic!(self.start(slot), gone, AtomicU32).store(gone, Ordering::Relaxed);
        atomic!(self.start(slot), left, AtomicU32).store(tick, Ordering::Release);
    }

    /// The strangers' frames up to number `passed` have left a FIFO.
    pub fn strangers_left(&self, slot: u32, passed: u32) {
        atomic!(self.start(slot), strangers, AtomicU32).store(passed, Ordering::Release);
    }

    /// The transmission of the last tick of queue `slot` is over: it has reached the device.
    pub fn tick_is_over(&self, slot: u32) {
        let ticks = self.ticks(slot);
        atomic!(self.start(slot), ticks_done, AtomicU32).store(ticks, Ordering::Release);
    }
}
