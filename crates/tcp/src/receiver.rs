//! The receiving half of a connection: order, acknowledgements, and their delay as on Linux.
//!
//! Data in order is acknowledged with every second full segment, or after 40 ms; the first
//! segments, those after a duplicate, those with PSH and those that would raise Linux's window get
//! theirs at once. Behind a gap the first three segments get theirs at once, and later ones one for
//! each millisecond. Acknowledgements name what arrived beyond a gap, the newest range first (RFC
//! 2018), and what arrived twice (RFC 2883). The application takes data as soon as it is in order.

use crate::growth::Growth;
use crate::ranges::Ranges;
use crate::refusal::Refusal;
use crate::segment::SACKS;
use crate::sequence::before;
use sheaf_stage::{Duration, Instant};

/// Longest time for which an acknowledgement waits: Linux's least (TCP_DELACK_MIN), which bulk
/// data never leaves.
const DELAY: Duration = Duration::from_millis(40);
/// Segments behind a gap that are acknowledged at once, which shows the sender the gap
/// (TCP_FASTRETRANS_THRESH); later ones share acknowledgements.
const DUPLICATES: u32 = 3;
/// Longest time for which a shared one waits, with the slack of its timer: `tcp_comp_sack_delay_ns`
/// and `tcp_comp_sack_slack_ns`.
const COMPRESSION: Duration = Duration::from_millis(1);
const SLACK: Duration = Duration::from_micros(10);
/// Share of the round trip, in per cent, that this is at most: `tcp_comp_sack_rtt_percent` of
/// Linux 6.18 and later.
const COMPRESSION_SHARE: u32 = 33;
/// Segments behind a gap after which one leaves in any case (`tcp_comp_sack_nr`).
const MOST_COMPRESSED: u32 = 44;
/// Ranges of an acknowledgement that Linux expects to arrive: before a third one is begun or
/// grows, what waits leaves (TCP_SACK_BLOCKS_EXPECTED).
const EXPECTED_SACKS: usize = 2;
/// Acknowledgements that do not wait, at the start and after a duplicate (TCP_MAX_QUICKACKS).
const QUICK: u32 = 16;
/// Ranges beyond a gap that are remembered: as many as a window of 6 MiB has in segments of 1448
/// bytes when every second one is missing, and enough for smaller ones. Bounds the memory.
const MOST_RANGES: usize = 8192;

/// The time at which an acknowledgement is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Never,
    At(Instant),
    Now,
}

/// The receiving half of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Receiver {
    /// Everything before this offset arrived.
    next: u64,
    /// The peer's last offset, once its FIN was seen.
    end: Option<u64>,
    /// Data beyond `next`.
    held: Ranges,
    /// Starts of segments that changed `held` last, the newest first: their ranges are reported.
    recent: [u64; SACKS],
    /// A range that arrived twice, to be reported.
    duplicate: Option<(u64, u64)>,
    window: u32,
    growth: Growth,
    /// `next` of the last acknowledgement.
    acknowledged: u64,
    /// The largest segment so far: a full one.
    full: u64,
    quick: u32,
    due: Due,
    /// Segments behind the gap at `gap` that were acknowledged at once.
    duplicates: u32,
    gap: u64,
    /// Segments for which one waits, and the longest time for which it may.
    compressed: u32,
    compression: Duration,
    /// The time stamp to echo.
    stamp: u32,
    /// Time at which `next` last moved.
    last: Option<Instant>,
}

impl Receiver {
    /// A receiver of data behind the SYN, with a window of `window` bytes; `stamp` is the SYN's.
    pub fn new(window: u32, stamp: u32) -> Receiver {
        Receiver {
            next: 1,
            end: None,
            held: Ranges::default(),
            recent: [0; SACKS],
            duplicate: None,
            window,
            growth: Growth::new(u64::from(window)),
            acknowledged: 1,
            full: 0,
            quick: QUICK,
            due: Due::Never,
            duplicates: 0,
            gap: 0,
            compressed: 0,
            compression: COMPRESSION,
            stamp,
            last: None,
        }
    }

    /// The handshake is done, and took `trip` where that is known.
    pub fn establish(&mut self, trip: Option<Duration>, now: Instant) {
        self.growth.begin(now);
        if let Some(trip) = trip {
            self.compression = COMPRESSION.min(trip * COMPRESSION_SHARE / 100);
        }
    }

    /// A segment of `len` bytes echoed the time stamp `echo`, `millis` after it was sent.
    pub fn note_echo(&mut self, len: u64, echo: u32, millis: u32) {
        if len > 0 && len >= self.full {
            self.growth.note_echo(echo, millis);
        }
    }

    /// Everything before this offset arrived.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Bytes of data that arrived in order.
    pub fn bytes(&self) -> u64 {
        let fin = self.end.is_some_and(|end| self.next >= end);
        self.next - 1 - u64::from(fin)
    }

    /// Time at which the last of them arrived.
    pub fn last(&self) -> Option<Instant> {
        self.last
    }

    /// Whether everything up to the peer's FIN arrived.
    pub fn finished(&self) -> bool {
        self.end.is_some_and(|end| self.next >= end)
    }

    /// Bytes beyond `next` that the peer may send.
    pub fn window(&self) -> u32 {
        self.window
    }

    /// The time stamp to echo.
    pub fn echo(&self) -> u32 {
        self.stamp
    }

    /// A segment with `start..end` arrived; `fin` says that `end` is the last offset.
    ///
    /// # Errors
    /// The reason for which its data is not used. An acknowledgement is then due, too.
    pub fn arrive(
        &mut self,
        (start, end): (u64, u64),
        fin: bool,
        stamp: Option<u32>,
        now: Instant,
    ) -> Result<(), Refusal> {
        let edge = self.next + u64::from(self.window);
        // Acknowledgements without data may overtake each other.
        if start < end && stamp.is_some_and(|stamp| before(stamp, self.stamp)) {
            // Most are late duplicates, which the sender should hear of. A late original behind a
            // repeat is refused, too (RFC 7323, section 5.3), and will be sent again.
            if end <= self.next {
                self.repeat((start, end));
                return Ok(());
            }
            self.due = Due::Now;
            return Err(Refusal::OldStamp);
        }
        if start > edge || end > edge || self.end.is_some_and(|last| end > last) {
            self.due = Due::Now;
            return Err(Refusal::OutOfWindow);
        }
        if fin && self.end.replace(end).is_some_and(|last| last != end) {
            return Err(Refusal::Unexpected);
        }
        // RFC 7323, section 4.3: the stamp of the segment that an acknowledgement begins with. Not
        // that of a needless repeat, beside which late originals would be taken for old.
        if start <= self.acknowledged
            && end >= self.next
            && let Some(stamp) = stamp
        {
            self.stamp = stamp;
        }
        if start == end {
            // A probe of the window, or a keep-alive: it lies before what is expected.
            if start < self.next {
                self.due = Due::Now;
            }
            return Ok(());
        }
        self.full = self.full.max(end - start);
        if end <= self.next || self.held.contains(start, end) {
            self.repeat((start, end));
            return Ok(());
        }
        if start > self.next {
            return self.hold(start, end, now);
        }
        if start < self.next {
            self.duplicate = Some((start, self.next));
        }
        self.grow(end - start);
        self.next = end;
        self.last = Some(now);
        let mut filled = false;
        if !self.held.is_empty() {
            self.held.remove_before(self.next);
            if let Some((_, last)) = self.held.first().filter(|(first, _)| *first == self.next) {
                self.next = last;
                self.held.remove_before(self.next);
            }
            // Nothing is missing any more: the sender waits for this (RFC 5681, section 4.2).
            filled = self.held.is_empty();
        }
        if fin || filled {
            self.due = Due::Now;
        }
        self.schedule(now);
        self.growth.taken(self.next, self.full, now);
        Ok(())
    }

    /// A segment of `len` bytes may raise Linux's window, which asks for an acknowledgement.
    fn grow(&mut self, len: u64) {
        if self.growth.raise(len, self.full) {
            // An odd number stays: Linux sets the lowest bit.
            self.quick |= 1;
        }
    }

    /// Data arrived that was there.
    fn repeat(&mut self, (start, end): (u64, u64)) {
        self.due = Due::Now;
        // The SYN has offset 0; a repeated one is acknowledged and not reported.
        if start < end && start > 0 {
            self.duplicate = Some((start, end));
            self.quick = QUICK;
        }
    }

    /// Data arrived beyond a gap.
    fn hold(&mut self, start: u64, end: u64, now: Instant) -> Result<(), Refusal> {
        if self.held.len() >= MOST_RANGES {
            self.due = Due::Now;
            return Err(Refusal::OutOfWindow);
        }
        self.grow(end - start);
        let mut new = 0;
        self.held.insert(start, end, |from, until| new += until - from);
        if new < end - start {
            // Parts of it had arrived; which ones does not matter to the sender.
            self.duplicate = Some((start, end - new));
        }
        // Each range is remembered once; 0 is in none.
        let (first, last) = self.held.around(start).unwrap_or((start, end));
        let others = self.recent.into_iter().filter(|at| !(first..last).contains(at));
        let mut recent = [start, 0, 0];
        recent[1..].iter_mut().zip(others).for_each(|(place, at)| *place = at);
        let known = self.recent.iter().filter(|at| **at > self.next);
        let place = known.clone().position(|at| (first..last).contains(at));
        let third = place.unwrap_or(known.count()) >= EXPECTED_SACKS;
        self.recent = recent;
        if self.duplicate.is_some() || third && self.compressed > 0 {
            self.due = Due::Now;
        }
        self.schedule(now);
        Ok(())
    }

    /// New data arrived: an acknowledgement becomes due, or waits for more (Linux's
    /// __tcp_ack_snd_check).
    fn schedule(&mut self, now: Instant) {
        if self.quick > 0 || self.next - self.acknowledged > self.full {
            self.due = Due::Now;
        }
        if self.due == Due::Now {
            return;
        }
        if self.held.is_empty() {
            if self.due == Due::Never {
                self.due = Due::At(now + DELAY);
            }
            return;
        }
        if self.gap != self.next {
            (self.gap, self.duplicates) = (self.next, 0);
        }
        if self.duplicates < DUPLICATES || self.compressed >= MOST_COMPRESSED {
            self.duplicates = (self.duplicates + 1).min(DUPLICATES);
            self.due = Due::Now;
            return;
        }
        if self.compressed == 0 {
            let at = now + self.compression + SLACK;
            self.due = Due::At(self.next_deadline().map_or(at, |due| due.min(at)));
        }
        self.compressed += 1;
    }

    /// Makes an acknowledgement due.
    pub fn acknowledge_now(&mut self) {
        self.due = Due::Now;
    }

    /// Whether an acknowledgement is due.
    pub fn due(&self, now: Instant) -> bool {
        match self.due {
            Due::Never => false,
            Due::At(at) => at <= now,
            Due::Now => true,
        }
    }

    /// The time at which one becomes due.
    pub fn next_deadline(&self) -> Option<Instant> {
        match self.due {
            Due::At(at) => Some(at),
            Due::Never | Due::Now => None,
        }
    }

    /// Whether an acknowledgement would report ranges.
    pub fn reports(&self) -> bool {
        self.duplicate.is_some() || !self.held.is_empty()
    }

    /// An acknowledgement leaves; calls `range` with what it reports beside it.
    pub fn acknowledge(&mut self, mut range: impl FnMut(u64, u64)) {
        self.due = Due::Never;
        self.compressed = 0;
        self.acknowledged = self.next;
        self.quick = self.quick.saturating_sub(1);
        let mut room = SACKS;
        if let Some((start, end)) = self.duplicate.take() {
            range(start, end);
            room -= 1;
        }
        for (start, end) in self.recent.iter().filter_map(|at| self.held.around(*at)).take(room) {
            range(start, end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const SEGMENT: u64 = 1000;

    struct World {
        receiver: Receiver,
        now: Instant,
    }

    impl World {
        /// A receiver past its quick acknowledgements.
        fn new() -> World {
            // A window that is not larger than Linux's first one does not grow.
            let mut world = World { receiver: Receiver::new(65_160, 0), now: Instant::ZERO };
            for number in 0..u64::from(QUICK) {
                assert_eq!(world.segment(number), Some(vec![]), "a quick acknowledgement");
            }
            world
        }

        /// Segment `number` arrives; returns the ranges of an acknowledgement.
        fn segment(&mut self, number: u64) -> Option<Vec<(u64, u64)>> {
            let start = 1 + number * SEGMENT;
            self.receiver.arrive((start, start + SEGMENT), false, None, self.now).unwrap();
            self.take()
        }

        fn take(&mut self) -> Option<Vec<(u64, u64)>> {
            self.receiver.due(self.now).then(|| {
                let mut ranges = Vec::new();
                self.receiver.acknowledge(|start, end| {
                    ranges.push(((start - 1) / SEGMENT, (end - 1) / SEGMENT));
                });
                ranges
            })
        }
    }

    #[test]
    fn every_second_segment_is_acknowledged_and_a_last_one_after_40_ms() {
        let mut world = World::new();
        for number in 16..40 {
            let due = world.segment(number);
            assert_eq!(due, (number % 2 == 1).then(Vec::new), "{number}");
        }
        assert_eq!(world.segment(40), None);
        assert_eq!(world.receiver.next_deadline(), Some(world.now + 40 * MS));
        world.now += 40 * MS;
        assert_eq!(world.take(), Some(vec![]));
        assert_eq!(world.receiver.next(), 1 + 41 * SEGMENT);
    }

    #[test]
    fn what_arrived_beyond_a_gap_is_reported_the_newest_first() {
        let mut world = World::new();
        assert_eq!(world.segment(17), Some(vec![(17, 18)]));
        assert_eq!(world.segment(19), Some(vec![(19, 20), (17, 18)]));
        assert_eq!(world.segment(21), Some(vec![(21, 22), (19, 20), (17, 18)]));
        assert_eq!(world.segment(23), None, "three let the sender see the gap");
        assert_eq!(world.segment(22), None);
        world.now += COMPRESSION + SLACK;
        assert_eq!(world.take(), Some(vec![(21, 24), (19, 20)]));
        assert_eq!(world.segment(16), Some(vec![(21, 24), (19, 20)]), "a new gap is behind it");
        assert_eq!(world.receiver.next(), 1 + 18 * SEGMENT);
    }

    #[test]
    fn acknowledgements_behind_a_gap_stand_for_a_millisecond_or_44_segments() {
        let mut world = World::new();
        (17..20).for_each(|number| assert!(world.segment(number).is_some(), "{number}"));
        assert_eq!(world.segment(20), None);
        let due = world.now + COMPRESSION + SLACK;
        world.now += MS / 2;
        assert_eq!(world.segment(21), None);
        assert_eq!(world.receiver.next_deadline(), Some(due), "the first one's time counts");
        world.now = due;
        assert_eq!(world.take(), Some(vec![(17, 22)]));
        let at_once = (22..80).find(|number| world.segment(*number).is_some());
        assert_eq!(at_once, Some(22 + u64::from(MOST_COMPRESSED)));
        assert_eq!(world.segment(68), None);
        assert!(world.segment(16).is_some(), "more than one segment in order");
        world.receiver.establish(Some(2 * MS), world.now);
        // A new gap.
        (69..72).for_each(|number| assert!(world.segment(number).is_some(), "{number}"));
        assert_eq!(world.segment(72), None);
        let due = world.now + Duration::from_micros(660) + SLACK;
        assert_eq!(world.receiver.next_deadline(), Some(due), "a third of a short round trip");
    }

    #[test]
    fn a_third_range_behind_a_gap_lets_what_waits_leave() {
        let mut world = World::new();
        (17..20).for_each(|number| assert!(world.segment(number).is_some(), "{number}"));
        assert_eq!(world.segment(22), None, "a second range");
        assert_eq!(world.segment(24), Some(vec![(24, 25), (22, 23), (17, 20)]), "a third one");
        // Ranges that are acknowledged by now do not count.
        for number in [16, 20, 21, 23] {
            world.segment(number);
        }
        (26..29).for_each(|number| assert!(world.segment(number).is_some(), "{number}"));
        assert_eq!(world.segment(29), None, "one waits");
        assert_eq!(world.segment(31), None, "a second range");
    }

    #[test]
    fn what_arrives_twice_is_reported_before_everything_else() {
        let mut world = World::new();
        assert_eq!(world.segment(3), Some(vec![(3, 4)]));
        world.segment(18);
        assert_eq!(world.segment(18), Some(vec![(18, 19), (18, 19)]));
        assert_eq!(world.segment(2), Some(vec![(2, 3), (18, 19)]));
    }

    #[test]
    fn data_outside_of_the_window_is_refused_and_acknowledged() {
        let mut receiver = Receiver::new(2048, 0);
        let far = receiver.arrive((1500, 2100), false, None, Instant::ZERO);
        assert_eq!(far, Err(Refusal::OutOfWindow));
        assert!(receiver.due(Instant::ZERO));
        assert_eq!(receiver.bytes(), 0);
        assert_eq!(receiver.arrive((1, 2049), true, None, Instant::ZERO), Ok(()));
        assert!(receiver.finished());
        assert_eq!(receiver.bytes(), 2047, "the FIN is no data");
    }

    #[test]
    fn pieces_beyond_a_gap_are_bounded() {
        let mut receiver = Receiver::new(1 << 30, 0);
        let refused = (0..20_000u64)
            .filter(|at| {
                let start = 10 + 2 * at;
                receiver.arrive((start, start + 1), false, None, Instant::ZERO).is_err()
            })
            .count();
        assert_eq!(refused, 20_000 - MOST_RANGES);
    }
}
