//! Buffers of packets that left, for packets to come.

use sheaf_netio::memory;

/// Buffers kept for packets to come.
const KEPT: usize = 4096;
/// Bytes of a buffer that is kept more sparingly: those of super-packets hold much more than their
/// share.
const LARGE: usize = 4096;
/// Number of those that are kept.
const KEPT_LARGE: usize = KEPT / 16;
/// So many buffers, 100 kB and more, are worth the time that giving their memory back takes.
const MANY: usize = 64;

/// A pool of buffers that gives back what a while has not needed.
#[derive(Debug, Default)]
pub struct Spare {
    buffers: Vec<Vec<u8>>,
    /// Fewest that were there since the last rest: so many were not needed.
    least: usize,
}

impl Spare {
    /// A buffer that was used before.
    pub fn take(&mut self) -> Option<Vec<u8>> {
        let buffer = self.buffers.pop();
        self.least = self.least.min(self.buffers.len());
        buffer
    }

    /// Keeps a buffer unless there are many.
    pub fn give(&mut self, buffer: Vec<u8>) {
        let most = if buffer.capacity() > LARGE { KEPT_LARGE } else { KEPT };
        if self.buffers.len() < most {
            self.buffers.push(buffer);
        }
    }

    /// Gives back to the system the buffers that were not needed since the last call.
    pub fn rest(&mut self) {
        if self.least > 0 {
            self.buffers.drain(..self.least);
            self.buffers.shrink_to_fit();
        }
        if self.least >= MANY {
            memory::give_back();
        }
        self.least = self.buffers.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_while_has_not_needed_is_given_back_and_the_rest_is_kept() {
        let mut spare = Spare::default();
        (0..100).for_each(|_| spare.give(vec![0; 1500]));
        spare.rest();
        assert_eq!(spare.buffers.len(), 100, "all came since the last rest");
        let used: Vec<_> = (0..30).map_while(|_| spare.take()).collect();
        used.into_iter().for_each(|buffer| spare.give(buffer));
        spare.rest();
        assert_eq!(spare.buffers.len(), 30);
        spare.rest();
        assert_eq!((spare.buffers.len(), spare.buffers.capacity()), (0, 0));
        assert_eq!(spare.take(), None);
    }

    #[test]
    fn few_large_buffers_are_kept() {
        let mut spare = Spare::default();
        (0..KEPT).for_each(|_| spare.give(vec![0; LARGE + 1]));
        assert_eq!(spare.buffers.len(), KEPT_LARGE);
        (0..2 * KEPT).for_each(|_| spare.give(vec![0; 1]));
        assert_eq!(spare.buffers.len(), KEPT);
    }
}
