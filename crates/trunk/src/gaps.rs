//! The frames that are missing on one link, to be asked for again.
//!
//! Principle: each link numbers its frames, so a number that is passed over is lost, or late where
//! the link's delay varies. As in RACK (RFC 8985) time decides which: a gap is asked for once it is
//! older than the *reordering window*, the longest lateness seen lately. A link that keeps its
//! order has a window of zero, so its losses are known with the next frame.
//!
//! Each gap is asked for three times, as requests can be lost, too; the sender sends a frame again
//! once for each transmission, however often it is asked.

use sheaf_stage::{Duration, Instant};
use sheaf_wire::trunk::MAX_RANGES;
use std::collections::VecDeque;

/// Gaps remembered. Where packets overtake each other within 50 ms, as on mobile networks, up to
/// half of what 300 Mbit/s carry in that time is missing for a moment: 625 frames. If these pushed
/// each other out, what is lost among them would not be asked for.
const GAPS: usize = 1024;
/// Frames of one gap that are asked for: about what 100 Mbit/s carry in a tenth of a second. More
/// are an outage of the link, or a count that starts anew.
const LONGEST: u32 = 1024;
/// Numbers by which a frame can be behind the highest: those of an eighth of a second at
/// 300 Mbit/s, as in `Inbound`.
const MOST_BEHIND: i32 = 4096;
/// Requests for a gap. With 2 % loss both of two are lost in one case of 2,500, with the frame, and
/// a flow takes that for its own loss.
const ASKS: u8 = 3;
/// Time between two requests for a gap, at least: a burst that hit the first has passed then.
const ASK_AGAIN: Duration = Duration::from_millis(10);
/// Time between two requests, at least: four a report period, so that many losses cost few frames.
pub(crate) const SPACING: Duration = Duration::from_millis(5);
/// The window is this many quarters of the lateness seen.
const WINDOW_QUARTERS: u32 = 5;
/// Longest reordering window: beyond it a frame is as good as lost.
const LONGEST_WINDOW: Duration = Duration::from_millis(100);
/// Time after which a missing frame is not late but lost, or held back by somebody: all requests
/// for it were made, the first after the longest window.
const LATEST: Duration = Duration::from_millis(200);
/// Time after which the window halves if nothing was late for half of it.
const FORGET: Duration = Duration::from_secs(2);
/// Lateness below this is the receiver's, which reads several frames together, and no reordering.
const NEGLIGIBLE: Duration = Duration::from_micros(200);

/// A row of missing frames.
#[derive(Clone, Copy, Debug)]
struct Gap {
    first: u32,
    count: u32,
    seen: Instant,
    asked: u8,
    ask_at: Instant,
}

/// The missing frames of a link.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gaps {
    highest: Option<u32>,
    gaps: VecDeque<Gap>,
    window: Duration,
    window_since: Instant,
    /// Longest lateness since then.
    late: Duration,
    asked_at: Option<Instant>,
    /// No gap has to be asked for before this time; see [`Gaps::next_ask`].
    next_ask: Option<Instant>,
}

impl Gaps {
    /// Notes that frame `number` arrived.
    pub fn arrived(&mut self, number: u32, now: Instant) {
        let Some(highest) = self.highest else {
            self.highest = Some(number);
            return;
        };
        let ahead = number.wrapping_sub(highest).cast_signed();
        if ahead < -MOST_BEHIND {
            // The highest number was forged, or the other end counts anew: nothing would be missing
            // until the numbers reach it.
            self.highest = Some(number);
            self.gaps.clear();
            return;
        }
        if ahead <= 0 {
            self.fill(number, now);
            return;
        }
        self.highest = Some(number);
        let count = ahead as u32 - 1;
        if count == 0 || count > LONGEST {
            return;
        }
        self.forget(now);
        if self.gaps.len() == GAPS {
            self.gaps.pop_front();
        }
        let (first, ask_at) = (highest.wrapping_add(1), now + self.window);
        self.next_ask = Some(self.next_ask().map_or(ask_at, |next| next.min(ask_at)));
        self.gaps.push_back(Gap { first, count, seen: now, asked: 0, ask_at });
    }

    /// Whether frame `number` was overtaken by others a moment ago and has not arrived since.
    pub fn is_late(&self, number: u32, now: Instant) -> bool {
        self.gap_of(number).is_some_and(|at| now - self.gaps[at].seen <= LATEST)
    }

    /// The place of the gap that has `number`.
    fn gap_of(&self, number: u32) -> Option<usize> {
        // Gaps are in the order of their numbers.
        let front = self.gaps.front()?.first;
        let place = number.wrapping_sub(front);
        let behind = self.gaps.partition_point(|gap| gap.first.wrapping_sub(front) <= place);
        let at = behind.checked_sub(1)?;
        let gap = self.gaps[at];
        (number.wrapping_sub(gap.first) < gap.count).then_some(at)
    }

    /// Longest time by which frames of this link were late lately, with some reserve.
    pub fn window(&self) -> Duration {
        self.window
    }

    /// The time of the next request, which finds nothing to ask for where gaps were filled
    /// meanwhile; `None` while nothing has to be asked.
    pub fn due(&self) -> Option<Instant> {
        let spaced = self.asked_at.map_or(Instant::ZERO, |at| at + SPACING);
        self.next_ask().map(|at| at.max(spaced))
    }

    /// The earliest time at which a gap has to be asked for, or one before it.
    fn next_ask(&self) -> Option<Instant> {
        self.next_ask.filter(|_| !self.gaps.is_empty())
    }

    /// Writes the gaps to ask for now over `ranges`. `round_trip`: of the request and its reply.
    pub fn ask(&mut self, round_trip: Duration, now: Instant, ranges: &mut Vec<(u32, u16)>) {
        ranges.clear();
        for gap in self.gaps.iter_mut().filter(|gap| gap.asked < ASKS) {
            // A request that leaves anyway takes along what would be due before the next.
            let early = if gap.asked > 0 { SPACING } else { Duration::ZERO };
            if gap.ask_at <= now + early && ranges.len() < MAX_RANGES {
                gap.asked += 1;
                gap.ask_at = now + ASK_AGAIN.max(round_trip / 4);
                ranges.push((gap.first, gap.count as u16));
            }
        }
        if !ranges.is_empty() {
            self.asked_at = Some(now);
        }
        let open = self.gaps.iter().filter(|gap| gap.asked < ASKS);
        self.next_ask = open.map(|gap| gap.ask_at).min();
    }

    /// A frame arrived behind others: takes it out of its gap, and learns how late frames can be.
    fn fill(&mut self, number: u32, now: Instant) {
        let Some(at) = self.gap_of(number) else { return };
        let gap = self.gaps[at];
        let before = number.wrapping_sub(gap.first);
        let after = gap.count - before - 1;
        match (before, after) {
            (0, 0) => drop(self.gaps.remove(at)),
            (0, _) => {
                self.gaps[at].first = number.wrapping_add(1);
                self.gaps[at].count = after;
            }
            _ => {
                self.gaps[at].count = before;
                if after > 0 && self.gaps.len() < GAPS {
                    let first = number.wrapping_add(1);
                    self.gaps.insert(at + 1, Gap { first, count: after, ..gap });
                }
            }
        }
        let late = now - gap.seen;
        if late > NEGLIGIBLE {
            self.late = self.late.max(late);
            self.window = self.window.max(late * WINDOW_QUARTERS / 4).min(LONGEST_WINDOW);
        }
    }

    /// Drops gaps that can no longer be filled, and lets the window follow the lateness down.
    fn forget(&mut self, now: Instant) {
        let old = |gap: &Gap| gap.asked == ASKS && now - gap.seen > LATEST;
        while self.gaps.front().is_some_and(old) {
            self.gaps.pop_front();
        }
        if now - self.window_since > FORGET {
            let needed = self.late * WINDOW_QUARTERS / 4;
            self.window = (self.window / 2).max(needed).min(LONGEST_WINDOW);
            (self.window_since, self.late) = (now, Duration::ZERO);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u64) -> Instant {
        Instant::from_millis(1_000 + ms)
    }

    /// The numbers that are asked for at `now`, if a request is due then.
    fn asked(gaps: &mut Gaps, now: Instant) -> Vec<(u32, u16)> {
        let mut ranges = Vec::new();
        if gaps.due().is_some_and(|due| due <= now) {
            gaps.ask(20 * MS, now, &mut ranges);
        }
        ranges
    }

    #[test]
    fn a_gap_on_a_link_that_keeps_its_order_is_asked_for_at_once_and_twice_more() {
        let mut gaps = Gaps::default();
        [u32::MAX - 1, u32::MAX, 3].into_iter().for_each(|number| gaps.arrived(number, at(0)));
        assert_eq!(asked(&mut gaps, at(0)), [(0, 3)]);
        assert_eq!(asked(&mut gaps, at(9)), []);
        assert_eq!(asked(&mut gaps, at(10)), [(0, 3)]);
        assert_eq!(asked(&mut gaps, at(20)), [(0, 3)]);
        assert_eq!(gaps.due(), None, "three times are enough");
    }

    #[test]
    fn on_a_link_whose_frames_overtake_gaps_wait_for_as_long_as_frames_were_late() {
        let mut gaps = Gaps::default();
        [1, 3].into_iter().for_each(|number| gaps.arrived(number, at(0)));
        gaps.arrived(2, at(8));
        assert_eq!((gaps.window(), gaps.due()), (10 * MS, None));
        gaps.arrived(6, at(20));
        assert_eq!(gaps.due(), Some(at(30)));
        gaps.arrived(4, at(25));
        assert_eq!(asked(&mut gaps, at(30)), [(5, 1)]);
        (0..10).for_each(|n| gaps.arrived(10 + 2 * n, at(10_000 + 3_000 * u64::from(n))));
        assert!(gaps.window() < MS, "and it is forgotten: {:?}", gaps.window());
    }

    #[test]
    fn what_is_lost_among_hundreds_of_frames_that_overtake_is_asked_for() {
        let mut gaps = Gaps::default();
        // Frames come up to 40 ms late; the link's 8 frames a millisecond are 320 in that time.
        [1, 3].into_iter().for_each(|number| gaps.arrived(number, at(0)));
        gaps.arrived(2, at(40));
        let lost = 100;
        (10..330).step_by(2).for_each(|number| gaps.arrived(number, at(40 + number as u64 / 8)));
        let late = (11..330).step_by(2).filter(|number| *number != lost + 1);
        late.for_each(|number| gaps.arrived(number, at(80 + number as u64 / 8)));
        let mut all = Vec::new();
        while let Some(due) = gaps.due().filter(|due| *due < at(200)) {
            all.extend(asked(&mut gaps, due));
        }
        let of_those = all.iter().filter(|range| **range == (lost + 1, 1)).count();
        assert_eq!(of_those, usize::from(ASKS), "{all:?}");
        assert!(all.iter().all(|(first, _)| [4, lost + 1].contains(first)), "{all:?}");
    }

    #[test]
    fn after_a_forged_number_far_ahead_what_is_lost_is_asked_for_again() {
        let mut gaps = Gaps::default();
        [1, 1 << 30, 2, 4].into_iter().for_each(|number| gaps.arrived(number, at(0)));
        assert_eq!(asked(&mut gaps, at(0)), [(3, 1)]);
    }

    #[test]
    fn an_outage_and_a_flood_of_gaps_stay_within_bounds() {
        let mut gaps = Gaps::default();
        gaps.arrived(0, at(0));
        gaps.arrived(LONGEST + 2, at(0));
        assert_eq!(gaps.due(), None, "an outage is not asked for");
        (0..1_000).for_each(|n| gaps.arrived(10_000 + 3 * n, at(1)));
        assert!(gaps.gaps.len() <= GAPS);
        assert_eq!(asked(&mut gaps, at(1)).len(), MAX_RANGES);
        (0..3_000).for_each(|n| gaps.arrived(10_000 + n, at(2)));
        assert!(gaps.gaps.len() <= GAPS);
    }
}
