//! A bounded table that forgets the entry that was used the longest ago.

use std::collections::HashMap;
use std::hash::Hash;

const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Slot<K, V> {
    key: K,
    value: V,
    older: u32,
    newer: u32,
}

/// At most `capacity` entries in order of use. All operations cost O(1); storage grows to the
/// capacity once.
#[derive(Debug)]
pub struct Lru<K, V> {
    capacity: usize,
    index: HashMap<K, u32>,
    slots: Vec<Slot<K, V>>,
    free: Vec<u32>,
    oldest: u32,
    newest: u32,
}

impl<K: Copy + Eq + Hash, V> Lru<K, V> {
    /// An empty table of 1..2³²−1 entries.
    pub fn new(capacity: usize) -> Self {
        Lru {
            capacity: capacity.clamp(1, NONE as usize),
            index: HashMap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            oldest: NONE,
            newest: NONE,
        }
    }

    /// Entries in it.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether the map is empty.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// The value of `key`, which is now the newest.
    pub fn get(&mut self, key: &K) -> Option<&mut V> {
        let slot = *self.index.get(key)?;
        self.unlink(slot);
        self.link(slot);
        Some(&mut self.slots[slot as usize].value)
    }

    /// The value of `key`, without counting as use.
    pub fn peek(&self, key: &K) -> Option<&V> {
        self.index.get(key).map(|slot| &self.slots[*slot as usize].value)
    }

    /// The value of `key`, without counting as use.
    pub fn peek_mut(&mut self, key: &K) -> Option<&mut V> {
        let slot = *self.index.get(key)?;
        Some(&mut self.slots[slot as usize].value)
    }

    /// Puts `value` in as the newest, in the place of an old value of `key` or of the oldest entry
    /// of a full table. A value that left without being asked for is answered.
    pub fn insert(&mut self, key: K, value: V) -> Option<(K, V)> {
        if let Some(slot) = self.index.get(&key).copied() {
            self.unlink(slot);
            self.link(slot);
            let old = std::mem::replace(&mut self.slots[slot as usize].value, value);
            return Some((key, old));
        }
        let mut left = None;
        let slot = if self.index.len() == self.capacity {
            let slot = self.oldest;
            self.unlink(slot);
            let entry = &mut self.slots[slot as usize];
            self.index.remove(&entry.key);
            let old_key = std::mem::replace(&mut entry.key, key);
            left = Some((old_key, std::mem::replace(&mut entry.value, value)));
            slot
        } else if let Some(slot) = self.free.pop() {
            let entry = &mut self.slots[slot as usize];
            (entry.key, entry.value) = (key, value);
            slot
        } else {
            self.slots.push(Slot { key, value, older: NONE, newer: NONE });
            self.slots.len() as u32 - 1
        };
        self.index.insert(key, slot);
        self.link(slot);
        left
    }

    /// Forgets `key`; whether it was there.
    pub fn remove(&mut self, key: &K) -> bool {
        let Some(slot) = self.index.remove(key) else { return false };
        self.unlink(slot);
        self.free.push(slot);
        true
    }

    /// All entries, the newest first.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let mut at = self.newest;
        std::iter::from_fn(move || {
            let slot = self.slots.get(at as usize)?;
            at = slot.older;
            Some((&slot.key, &slot.value))
        })
    }

    fn unlink(&mut self, slot: u32) {
        let (older, newer) = (self.slots[slot as usize].older, self.slots[slot as usize].newer);
        match self.slots.get_mut(older as usize) {
            Some(entry) => entry.newer = newer,
            None => self.oldest = newer,
        }
        match self.slots.get_mut(newer as usize) {
            Some(entry) => entry.older = older,
            None => self.newest = older,
        }
    }

    fn link(&mut self, slot: u32) {
        let newest = self.newest;
        self.slots[slot as usize].older = newest;
        self.slots[slot as usize].newer = NONE;
        match self.slots.get_mut(newest as usize) {
            Some(entry) => entry.newer = slot,
            None => self.oldest = slot,
        }
        self.newest = slot;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_agrees_with_a_list_in_order_of_use(
            steps in proptest::collection::vec((0u8..4, 0u8..12), 1..300)
        ) {
            let mut table = Lru::new(5);
            let mut list: Vec<(u8, usize)> = Vec::new(); // newest first
            for (number, (what, key)) in steps.into_iter().enumerate() {
                let at = list.iter().position(|(other, _)| *other == key);
                match what {
                    0 => {
                        prop_assert_eq!(table.get(&key).copied(), at.map(|at| list[at].1));
                        if let Some(at) = at {
                            let entry = list.remove(at);
                            list.insert(0, entry);
                        }
                    }
                    1 => {
                        let removed = at.map(|at| list.remove(at));
                        prop_assert_eq!(table.remove(&key), removed.is_some());
                    }
                    _ => {
                        table.insert(key, number);
                        if let Some(at) = at {
                            list.remove(at);
                        }
                        list.insert(0, (key, number));
                        list.truncate(5);
                    }
                }
                prop_assert_eq!(table.len(), list.len());
                let entries: Vec<_> = table.iter().map(|(key, value)| (*key, *value)).collect();
                prop_assert_eq!(&entries, &list);
            }
        }
    }
}
