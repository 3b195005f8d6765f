//! A binary heap over small integers whose keys can change: finds the oldest queue, or the node
//! with the next deadline.
//!
//! The standard heap cannot change or remove an element in the middle; this one keeps the place of
//! each. All changes cost O(log n); storage grows to the largest number of elements once.

/// Elements `0..n` ordered by a key, smallest first.
#[derive(Clone, Debug)]
pub struct IndexedHeap<K> {
    heap: Vec<(K, u32)>,
    place: Vec<Option<u32>>,
}

impl<K> Default for IndexedHeap<K> {
    fn default() -> Self {
        IndexedHeap { heap: Vec::new(), place: Vec::new() }
    }
}

impl<K: Ord + Copy> IndexedHeap<K> {
    /// The element with the smallest key; of equal keys the smallest element.
    pub fn first(&self) -> Option<(K, u32)> {
        self.heap.first().copied()
    }

    /// Sets or changes the key of `element`; `None` removes it.
    pub fn set(&mut self, element: u32, key: Option<K>) {
        let index = element as usize;
        if self.place.len() <= index {
            self.place.resize(index + 1, None);
        }
        match (self.place[index], key) {
            (None, None) => {}
            (None, Some(key)) => {
                self.heap.push((key, element));
                self.rise(self.heap.len() - 1);
            }
            (Some(at), Some(key)) => {
                let at = at as usize;
                // Most changes of a deadline set it to what it is.
                if self.heap[at].0 != key {
                    self.heap[at].0 = key;
                    let at = self.rise(at);
                    self.sink(at);
                }
            }
            (Some(at), None) => {
                let at = at as usize;
                self.heap.swap_remove(at);
                self.place[index] = None;
                if at < self.heap.len() {
                    let at = self.rise(at);
                    self.sink(at);
                }
            }
        }
    }

    /// Moves the entry at `at` towards the root until its parent is smaller; returns its place.
    fn rise(&mut self, mut at: usize) -> usize {
        // The entry is written once, where it stays: on the way the others move into its hole.
        let entry = self.heap[at];
        while at > 0 {
            let parent = (at - 1) / 2;
            if self.heap[parent] <= entry {
                break;
            }
            self.put(at, self.heap[parent]);
            at = parent;
        }
        self.put(at, entry);
        at
    }

    /// Moves the entry at `at` away from the root until its children are larger.
    fn sink(&mut self, mut at: usize) {
        let entry = self.heap[at];
        loop {
            let mut child = 2 * at + 1;
            let Some(left) = self.heap.get(child) else { break };
            if self.heap.get(child + 1).is_some_and(|right| right < left) {
                child += 1;
            }
            if entry <= self.heap[child] {
                break;
            }
            self.put(at, self.heap[child]);
            at = child;
        }
        self.put(at, entry);
    }

    fn put(&mut self, at: usize, entry: (K, u32)) {
        self.heap[at] = entry;
        self.place[entry.1 as usize] = Some(at as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn the_first_is_what_a_sorted_map_says(
            changes in proptest::collection::vec((0u32..12, proptest::option::of(0u16..50)), 1..200)
        ) {
            let mut heap = IndexedHeap::default();
            let mut model = BTreeMap::new();
            for (element, key) in changes {
                heap.set(element, key);
                match key {
                    Some(key) => model.insert(element, key),
                    None => model.remove(&element),
                };
                let expected = model.iter().map(|(element, key)| (*key, *element)).min();
                prop_assert_eq!(heap.first(), expected);
            }
        }
    }
}
