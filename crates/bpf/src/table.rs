//! The program's table of flows, read as memory that the kernel shares (BPF_F_MMAPABLE): no system
//! call for any flow, however many there are.
//!
//! The program writes meanwhile. A reading can meet a flow in the midst of an update: each counter
//! is right by itself, but two may be a packet apart.

use crate::window_layout::{BUCKETS, Bucket, Cold, Flow, Key, Side, WAYS};
use aya::maps::MapData;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;

/// The flows of one loaded program.
pub(crate) struct Table {
    buckets: Shared<Bucket>,
    sides: Shared<Side>,
    flows: Shared<Cold>,
}

impl Table {
    /// Of the maps `buckets`, `sides` and `flows`.
    pub fn new(buckets: &MapData, sides: &MapData, flows: &MapData) -> io::Result<Table> {
        Ok(Table {
            buckets: Shared::new(buckets, BUCKETS)?,
            sides: Shared::new(sides, 2 * BUCKETS * WAYS)?,
            flows: Shared::new(flows, BUCKETS * WAYS)?,
        })
    }

    /// All flows as they are now, in no order.
    pub fn iter(&self) -> impl Iterator<Item = Flow> + '_ {
        (0..BUCKETS).flat_map(move |place| {
            self.buckets.get(place).used().map(move |way| {
                let number = place * WAYS + way;
                let side = [self.sides.get(2 * number), self.sides.get(2 * number + 1)];
                Flow { cold: self.flows.get(number), side }
            })
        })
    }

    /// The flow `key` as it is now. It looks at all of them: the hash is the program's own.
    pub fn get(&self, key: &Key) -> Option<Flow> {
        self.iter().find(|flow| flow.cold.key == *key)
    }
}

/// An array map's values in memory.
struct Shared<T> {
    start: NonNull<T>,
    len: usize,
}

// SAFETY: the memory belongs to this value alone, is only read, and by volatile reads.
unsafe impl<T: Send> Send for Shared<T> {}

impl<T: Copy> Shared<T> {
    /// The `len` values of an array map of plain `T`.
    fn new(map: &MapData, len: usize) -> io::Result<Shared<T>> {
        let size = NonZeroUsize::new(len * size_of::<T>()).expect("a table has room");
        let fd = map.fd().as_fd();
        // SAFETY: a new mapping, which nothing else knows; it is taken away in drop alone.
        let start = unsafe { mmap(None, size, ProtFlags::PROT_READ, MapFlags::MAP_SHARED, fd, 0)? };
        Ok(Shared { start: start.cast(), len })
    }

    fn get(&self, index: usize) -> T {
        assert!(index < self.len, "within the map");
        // SAFETY: inside the mapping, aligned: an array of whole T from the start of a page on, and
        // every bit pattern is a T. Another CPU may write meanwhile, so the read is volatile.
        unsafe { self.start.as_ptr().add(index).read_volatile() }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: exactly what new() mapped.
        let _ = unsafe { munmap(self.start.cast(), self.len * size_of::<T>()) };
    }
}
