//! The replay window: a bitmap of the counters that were received (RFC 6479), one for all links.

/// Counters that are remembered behind the highest. A link may be behind another by as many frames:
/// 320 ms at 1 Gbit/s in frames of 1400 bytes are 28,600.
const WINDOW: u32 = 32_768;
/// Counters of one word. The word that the highest counter is in is never whole, so the ring has
/// one more than the window fills.
const WORD: u32 = 64;
const WORDS: usize = (WINDOW / WORD) as usize * 2;

/// The counters received under one key.
#[derive(Clone)]
pub(super) struct ReplayWindow {
    /// The highest counter that was received, plus one.
    next: u32,
    received: Box<[u64; WORDS]>,
}

impl ReplayWindow {
    pub fn new() -> ReplayWindow {
        ReplayWindow { next: 0, received: Box::new([0; WORDS]) }
    }

    /// Whether a frame with this counter may be new. Only one that is authentic is noted.
    pub fn is_new(&self, counter: u32) -> bool {
        if counter >= self.next {
            return true;
        }
        let (word, bit) = place(counter);
        self.next - counter <= WINDOW && self.received[word] & bit == 0
    }

    /// Notes an authentic frame whose counter is new.
    pub fn note(&mut self, counter: u32) {
        if counter >= self.next {
            // Words that are entered hold what was a ring ago. More than a ring is all of it.
            let first = self.next.div_ceil(WORD);
            let entered = (counter / WORD + 1).saturating_sub(first).min(WORDS as u32);
            for word in first..first + entered {
                self.received[word as usize % WORDS] = 0;
            }
            self.next = counter + 1;
        }
        let (word, bit) = place(counter);
        self.received[word] |= bit;
    }
}

fn place(counter: u32) -> (usize, u64) {
    ((counter / WORD) as usize % WORDS, 1 << (counter % WORD))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn take(window: &mut ReplayWindow, counter: u32) -> bool {
        let new = window.is_new(counter);
        if new {
            window.note(counter);
        }
        new
    }

    #[test]
    fn a_counter_counts_once_also_after_a_jump_of_many_rings() {
        let mut window = ReplayWindow::new();
        for counter in [0, 1, 5, 3, 70_000, 69_999, 3_000_000_000, 2_999_999_999, u32::MAX - 1] {
            assert!(take(&mut window, counter), "{counter}");
            assert!(!take(&mut window, counter), "{counter}");
        }
        assert!(!take(&mut window, 2), "it is older than the window");
        assert!(take(&mut window, u32::MAX - 1 - WINDOW + 1), "it is just within the window");
        assert!(!take(&mut window, u32::MAX - 1 - WINDOW));
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_set(
            steps in proptest::collection::vec((0u32..3, 0u32..100_000), 1..400),
        ) {
            let (mut window, mut seen, mut highest) = (ReplayWindow::new(), BTreeSet::new(), 0u32);
            for (kind, step) in steps {
                let counter = match kind {
                    0 => highest + step % 300,
                    1 => highest + step,
                    _ => highest.saturating_sub(step % 40_000),
                };
                let reach = seen.is_empty() || highest < WINDOW || counter > highest - WINDOW;
                prop_assert_eq!(take(&mut window, counter), reach && seen.insert(counter));
                highest = highest.max(counter);
            }
        }
    }
}
