//! Reads a hash map of the kernel with few system calls (BPF_MAP_LOOKUP_BATCH, Linux 5.6), where
//! walking it would take two per entry.

use aya::maps::MapData;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

const LOOKUP_BATCH: libc::c_long = 24;
/// Entries that one call asks for; must hold the fullest bucket.
const AT_ONCE: usize = 1024;

/// The part of `union bpf_attr` for batches.
#[repr(C)]
struct Attributes {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    elem_flags: u64,
    flags: u64,
}

/// Room for the entries of one map, used again from reading to reading.
#[derive(Debug)]
pub(crate) struct Buffer<K, V> {
    keys: Vec<K>,
    values: Vec<V>,
}

impl<K, V> Default for Buffer<K, V> {
    fn default() -> Self {
        Buffer { keys: Vec::new(), values: Vec::new() }
    }
}

impl<K: Copy + Default, V: Copy + Default> Buffer<K, V> {
    /// All entries of `map`, a hash map of plain `K` and `V` with the kernel's sizes.
    pub fn read(&mut self, map: &MapData) -> io::Result<impl Iterator<Item = (&K, &V)>> {
        let fd = map.fd().as_fd().as_raw_fd() as u32;
        let (mut filled, mut position, mut next) = (0, None, 0u32);
        loop {
            self.keys.resize(filled + AT_ONCE, K::default());
            self.values.resize(filled + AT_ONCE, V::default());
            let mut attributes = Attributes {
                in_batch: position
                    .as_ref()
                    .map_or(0, |position| std::ptr::from_ref::<u32>(position) as u64),
                out_batch: &raw mut next as u64,
                keys: self.keys[filled..].as_mut_ptr() as u64,
                values: self.values[filled..].as_mut_ptr() as u64,
                count: AT_ONCE as u32,
                map_fd: fd,
                elem_flags: 0,
                flags: 0,
            };
            let size = size_of::<Attributes>();
            // SAFETY: keys and values have room for `count` entries of the map's sizes (the loader
            // made the map with them), and all pointers live through the call.
            let result =
                unsafe { libc::syscall(libc::SYS_bpf, LOOKUP_BATCH, &raw mut attributes, size) };
            let error = io::Error::last_os_error();
            let over = result != 0 && error.raw_os_error() == Some(libc::ENOENT);
            if result != 0 && !over {
                return Err(error);
            }
            filled += attributes.count as usize;
            position = Some(next);
            if over {
                break;
            }
        }
        Ok(self.keys[..filled].iter().zip(&self.values[..filled]))
    }
}
