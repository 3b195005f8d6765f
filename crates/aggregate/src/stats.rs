//! The statistics of the theses (KAU's `/proc/KauStat`) and ratios derived from them.

/// Cause for which a frame left its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The queue had `min` bytes (`forced`).
    Size,
    /// The device could take a frame (`busy`).
    Ready,
    /// The oldest packet was past `timeout` or `hold`.
    Timeout,
}

/// Counters of one next hop, or of an interface as their sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Packets that left inside meta packets or frames of format 2, both called meta packets here.
    pub aggregated_packets: u64,
    /// Their bytes.
    pub aggregated_bytes: u64,
    /// Meta packets sent.
    pub meta_packets: u64,
    /// Bytes of the meta packets, outer headers included ("aggregated bytes on the network").
    pub meta_bytes: u64,
    /// Gathered packets that left alone, unchanged.
    pub unaggregated_packets: u64,
    /// Their bytes.
    pub unaggregated_bytes: u64,
    /// Frames (meta packets and lone packets) that left because `timeout` or `hold` was over.
    pub by_timeout: u64,
    /// Frames that left because the queue had `min` bytes.
    pub by_size: u64,
    /// Frames that left because the device could take one.
    pub by_ready: u64,
    /// Frames that left although the device was busy, because the queue or all queues together were
    /// over their bound. They are also counted by size or ready.
    pub over_bound: u64,
}

impl Stats {
    /// (aggregated + unaggregated) / (meta + unaggregated): packets a frame, lone ones included.
    /// `None` before the first frame.
    pub fn aggregation_ratio(&self) -> Option<f64> {
        ratio(
            self.aggregated_packets + self.unaggregated_packets,
            self.meta_packets + self.unaggregated_packets,
        )
    }

    /// aggregated / meta: packets a meta packet. `None` before the first meta packet.
    pub fn average_aggregation(&self) -> Option<f64> {
        ratio(self.aggregated_packets, self.meta_packets)
    }

    /// Counts a frame with `packets` packets of `payload` bytes, which left as a meta packet or a
    /// frame of format 2 of so many bytes, or, with `None`, alone and unchanged.
    pub fn count(&mut self, packets: u32, payload: u64, frame: Option<u64>, cause: Cause) {
        if let Some(frame) = frame {
            self.aggregated_packets += u64::from(packets);
            self.aggregated_bytes += payload;
            self.meta_packets += 1;
            self.meta_bytes += frame;
        } else {
            self.unaggregated_packets += u64::from(packets);
            self.unaggregated_bytes += payload;
        }
        match cause {
            Cause::Size => self.by_size += 1,
            Cause::Ready => self.by_ready += 1,
            Cause::Timeout => self.by_timeout += 1,
        }
    }

    /// Adds the counters of another next hop.
    pub fn add(&mut self, other: &Stats) {
        self.aggregated_packets += other.aggregated_packets;
        self.aggregated_bytes += other.aggregated_bytes;
        self.meta_packets += other.meta_packets;
        self.meta_bytes += other.meta_bytes;
        self.unaggregated_packets += other.unaggregated_packets;
        self.unaggregated_bytes += other.unaggregated_bytes;
        self.by_timeout += other.by_timeout;
        self.by_size += other.by_size;
        self.by_ready += other.by_ready;
        self.over_bound += other.over_bound;
    }
}

fn ratio(a: u64, b: u64) -> Option<f64> {
    (b > 0).then(|| a as f64 / b as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_derived_ratios_are_those_of_the_thesis() {
        let mut stats = Stats::default();
        assert_eq!(stats.aggregation_ratio(), None);
        stats.count(24, 1440, Some(1460), Cause::Size);
        stats.count(1, 60, None, Cause::Timeout);
        stats.count(2, 120, Some(140), Cause::Timeout);
        assert_eq!(stats.aggregation_ratio(), Some(27.0 / 3.0));
        assert_eq!(stats.average_aggregation(), Some(26.0 / 2.0));
        // KAU: sent by size = meta − (timeout − unaggregated).
        let kau = stats.meta_packets - (stats.by_timeout - stats.unaggregated_packets);
        assert_eq!(kau, stats.by_size);
    }
}
