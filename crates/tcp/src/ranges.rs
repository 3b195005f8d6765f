//! A set of offsets, kept as ranges that neither touch nor overlap.

use std::collections::BTreeMap;

/// Offsets `start..end`, as many ranges as there are holes between them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges {
    /// Start and end.
    ranges: BTreeMap<u64, u64>,
}

impl Ranges {
    /// Number of ranges.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub fn clear(&mut self) {
        self.ranges.clear();
    }

    /// The first range.
    pub fn first(&self) -> Option<(u64, u64)> {
        self.ranges.first_key_value().map(|(start, end)| (*start, *end))
    }

    /// The range that holds `offset`.
    pub fn around(&self, offset: u64) -> Option<(u64, u64)> {
        let (start, end) = self.ranges.range(..=offset).next_back()?;
        (offset < *end).then_some((*start, *end))
    }

    /// Whether all of `start..end` is in the set.
    pub fn contains(&self, start: u64, end: u64) -> bool {
        self.around(start).is_some_and(|(_, last)| end <= last)
    }

    /// Adds `start..end`. Calls `new` with each part that was not in the set.
    pub fn insert(&mut self, start: u64, end: u64, mut new: impl FnMut(u64, u64)) {
        let (mut first, mut last, mut at) = (start, end, start);
        // Ranges that touch the new one become part of it.
        let before = self.ranges.range(..start).next_back().filter(|(_, end)| **end >= start);
        let from = before.map_or(start, |(start, _)| *start);
        while let Some((one, until)) = self.ranges.range(from..=end).next().map(|(a, b)| (*a, *b)) {
            self.ranges.remove(&one);
            (first, last) = (first.min(one), last.max(until));
            if at < one {
                new(at, one);
            }
            at = at.max(until);
        }
        if at < end {
            new(at, end);
        }
        self.ranges.insert(first, last);
    }

    /// Removes everything before `offset`.
    pub fn remove_before(&mut self, offset: u64) {
        while let Some((start, end)) = self.first().filter(|(start, _)| *start < offset) {
            self.ranges.remove(&start);
            if end > offset {
                self.ranges.insert(offset, end);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn ranges_hold_what_a_set_of_numbers_holds(
            inserts in prop::collection::vec((0u64..60, 1u64..12), 1..30),
            cut in 0u64..70,
        ) {
            let (mut ranges, mut set) = (Ranges::default(), BTreeSet::new());
            for (start, len) in inserts {
                let end = start + len;
                let mut new = BTreeSet::new();
                ranges.insert(start, end, |a, b| new.extend(a..b));
                let expected: BTreeSet<_> =
                    (start..end).filter(|at| !set.contains(at)).collect();
                prop_assert_eq!(&new, &expected);
                set.extend(new);
            }
            ranges.remove_before(cut);
            set.retain(|at| *at >= cut);
            for at in 0..80 {
                prop_assert_eq!(ranges.contains(at, at + 1), set.contains(&at));
                let held = ranges.around(at);
                prop_assert_eq!(held.is_some(), set.contains(&at));
                let whole = |(start, end): (u64, u64)| {
                    !set.contains(&end) && (start == 0 || !set.contains(&(start - 1)))
                };
                prop_assert!(held.is_none_or(whole));
            }
        }
    }
}
