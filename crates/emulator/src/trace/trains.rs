//! CellReplay's light recordings: how short trains of packets fared, one after the other, beside a
//! saturated link's delivery opportunities.
//!
//! Source: W. Sentosa et al., "CellReplay: towards accurate record-and-replay for cellular
//! networks", NSDI 2025; mm-cellular of its authors. A cellular network that is asked for little
//! gives other delays and rates than one that is saturated, so both are recorded at the same time.
//!
//! Principle: the first packet of a train takes the base delay of its time, those behind it the
//! opportunities that trains had then. What a train has beyond them waits, after its delay, for the
//! opportunities of the saturated link. A train ends when a packet would not find one before it
//! still under way. Recordings are in milliseconds, and packets of one millisecond count as sent
//! together, as in mm-cellular; its timer that prolongs a train is 0, its default.
//!
//! It differs from mm-cellular in two places: a train's rest comes no earlier than the last of its
//! opportunities, which mm-cellular reckons without the base delay and mends by keeping the order;
//! and delays between two lines are not rounded to milliseconds.

use super::mahimahi::MTU;
use super::{MOST, TraceError, TraceProblem, wrap};
use sheaf_stage::{Duration, Instant};

/// A recording: what trains met over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trains {
    records: Vec<Record>,
    /// Opportunities of all records, in milliseconds after their train's first packet.
    opportunities: Vec<u32>,
}

/// One train of the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    /// Time and base delay in milliseconds.
    time: u32,
    delay: u32,
    /// The end of its opportunities among those of all; they begin where the ones before end.
    end: usize,
}

impl Trains {
    /// Reads a recording: one line for each train, with its time, the one-way delay of its first
    /// packet, and for each packet the time after the first at which it came; all in whole
    /// milliseconds. Empty lines are skipped. Times never decrease, and there are two at least.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let mut trains = Trains { records: Vec::new(), opportunities: Vec::new() };
        let mut last = 1;
        for (line, fields) in (1..).zip(text.lines()) {
            last = line;
            let wrong = |problem| TraceError { line, problem };
            let mut fields = fields
                .split_whitespace()
                .map(|field| field.parse::<u32>().map_err(|_| wrong(TraceProblem::Milliseconds)));
            let Some(time) = fields.next().transpose()? else { continue };
            let delay = fields.next().ok_or(wrong(TraceProblem::Field("delay")))??;
            if trains.records.last().is_some_and(|before| time < before.time) {
                return Err(wrong(TraceProblem::Order));
            }
            let begin = trains.opportunities.len();
            for opportunity in fields {
                let opportunity = opportunity?;
                let before = trains.opportunities[begin..].last().copied().unwrap_or(0);
                if opportunity < before {
                    return Err(wrong(TraceProblem::Order));
                }
                trains.opportunities.push(opportunity);
            }
            let end = trains.opportunities.len();
            trains.records.push(Record { time, delay, end });
            if trains.records.len() > MOST || end > MOST {
                return Err(wrong(TraceProblem::TooMany));
            }
        }
        match &trains.records[..] {
            [first, .., end] if end.time > first.time => Ok(trains),
            _ => Err(TraceError { line: last, problem: TraceProblem::Empty }),
        }
    }

    /// Number of trains.
    pub fn count(&self) -> usize {
        self.records.len()
    }

    /// Duration of one pass.
    pub fn period(&self) -> Duration {
        ms(self.records[self.records.len() - 1].time)
    }

    /// The record in force `elapsed` after the beginning, and the base delay then; `None`: the
    /// recording is over.
    fn at(&self, elapsed: Duration, looped: bool) -> Option<(usize, Duration)> {
        let elapsed = if looped { wrap(elapsed, self.period()).1 } else { elapsed };
        let after = self.records.partition_point(|record| ms(record.time) <= elapsed);
        let next = self.records.get(after)?;
        // Before the first line the first holds.
        let Some(index) = after.checked_sub(1) else { return Some((0, ms(next.delay))) };
        let record = self.records[index];
        let part = elapsed.saturating_sub(ms(record.time)).as_nanos();
        let whole = u128::from(next.time - record.time) * MS;
        let change = u128::from(record.delay.abs_diff(next.delay)) * MS * part / whole;
        let change = Duration::from_nanos(change as u64);
        let delay = match next.delay < record.delay {
            true => ms(record.delay).saturating_sub(change),
            false => ms(record.delay) + change,
        };
        Some((index, delay))
    }

    /// The opportunities of a record.
    fn of(&self, record: usize) -> &[u32] {
        let begin = record.checked_sub(1).map_or(0, |before| self.records[before].end);
        &self.opportunities[begin..self.records[record].end]
    }
}

/// Nanoseconds of a millisecond.
const MS: u128 = 1_000_000;

fn ms(millis: u32) -> Duration {
    Duration::from_millis(u64::from(millis))
}

/// Fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Release {
    /// End of its delay; never before that of the packet before it.
    pub at: Instant,
    /// It needs no opportunity of the saturated link, unless others wait for these.
    pub light: bool,
}

/// A recording that is played.
#[derive(Debug, Default)]
pub(crate) struct Player {
    train: Option<Train>,
    /// Release of the last packet.
    last: Instant,
}

/// The train under way.
#[derive(Debug)]
struct Train {
    begun: Instant,
    delay: Duration,
    record: usize,
    /// The opportunity in use, and the bytes left of it.
    used: usize,
    left: u64,
}

impl Player {
    /// Takes a packet of `bytes` that comes at `at`, not before the one before it. The recording
    /// began at `start`.
    pub fn take(
        &mut self,
        trains: &Trains,
        start: Instant,
        looped: bool,
        at: Instant,
        bytes: u64,
    ) -> Release {
        let release = self.release(trains, start, looped, at, bytes);
        let in_order = release.at >= self.last;
        self.last = self.last.max(release.at);
        Release { at: self.last, light: release.light && in_order }
    }

    fn release(
        &mut self,
        trains: &Trains,
        start: Instant,
        looped: bool,
        at: Instant,
        bytes: u64,
    ) -> Release {
        let last = self.last;
        let goes_on =
            |train: &Train| whole(at - train.begun) <= whole(last - train.begun - train.delay);
        let train = match self.train.take().filter(goes_on) {
            Some(train) => self.train.insert(train),
            None => {
                let Some((record, delay)) = trains.at(at - start, looped) else {
                    // Nothing is known of trains any more; what is left is the saturated link.
                    return Release { at, light: false };
                };
                self.train.insert(Train { begun: at, delay, record, used: 0, left: MTU })
            }
        };
        let opportunities = trains.of(train.record);
        let since = whole(at - train.begun);
        while opportunities.get(train.used).is_some_and(|time| u64::from(*time) < since) {
            (train.used, train.left) = (train.used + 1, MTU);
        }
        // A packet does not begin with the rest of one opportunity, and a large one takes several.
        if train.left < bytes {
            let more = bytes.div_ceil(MTU).max(1);
            train.used += if train.left < MTU { more as usize } else { more as usize - 1 };
            train.left = more * MTU;
        }
        train.left -= bytes;
        let ready = at + train.delay;
        match opportunities.get(train.used) {
            Some(time) => {
                let opportunity = train.begun + train.delay + ms(*time);
                Release { at: ready.max(opportunity), light: true }
            }
            // Without any, the first packet had its delay all the same.
            None => {
                let time = opportunities.last().copied().unwrap_or(0);
                Release { at: ready.max(train.begun + train.delay + ms(time)), light: false }
            }
        }
    }
}

/// Whole milliseconds.
fn whole(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trains(text: &str) -> Trains {
        Trains::parse(text).unwrap()
    }

    /// Releases in milliseconds of packets of 1504 bytes that come at these microseconds.
    fn play(trains: &Trains, looped: bool, micros: &[u64]) -> Vec<(f64, bool)> {
        let (mut player, start) = (Player::default(), Instant::from_millis(0));
        let take = |at: &u64| {
            let at = start + Duration::from_micros(*at);
            let release = player.take(trains, start, looped, at, MTU);
            (release.at.as_nanos() as f64 / 1e6, release.light)
        };
        micros.iter().map(take).collect()
    }

    #[test]
    fn packets_of_a_train_take_its_opportunities_and_the_rest_is_the_saturated_links() {
        let trains = trains("0 20 0 2 5\n1000 20 0\n");
        let releases = play(&trains, true, &[0, 100, 200, 300, 1_500]);
        let expected = [(20.0, true), (22.0, true), (25.0, true), (25.0, false), (25.0, false)];
        assert_eq!(releases, expected);
    }

    #[test]
    fn a_packet_that_finds_none_under_way_begins_a_train() {
        let trains = trains("0 20 0 2\n1000 20 0\n");
        // The second waits for the opportunity 2 ms after the first, so the third still finds it
        // under way, and the fourth does not.
        let releases = play(&trains, true, &[0, 0, 2_999, 6_000, 6_000]);
        let expected = [(20.0, true), (22.0, true), (22.999, false), (26.0, true), (28.0, true)];
        assert_eq!(releases, expected);
    }

    #[test]
    fn the_base_delay_follows_the_recording_and_begins_again_with_it() {
        let trains = trains("0 10 0\n1000 30 0\n2000 10 0\n");
        let at = |ms: u64| ms * 1000;
        let releases = play(&trains, true, &[at(0), at(500), at(1500), at(2500)]);
        let expected = [(10.0, true), (520.0, true), (1520.0, true), (2520.0, true)];
        assert_eq!(releases, expected);
        // Played once, nothing is light behind its end.
        assert_eq!(play(&trains, false, &[at(2000)]), [(2000.0, false)]);
    }

    #[test]
    fn small_packets_share_an_opportunity_and_large_ones_take_several() {
        let trains = trains("0 20 0 1 2 3 4\n1000 20 0\n");
        let mut player = Player::default();
        let mut take = |bytes| {
            let release = player.take(&trains, Instant::ZERO, true, Instant::ZERO, bytes);
            release.at.as_nanos() / 1_000_000
        };
        assert_eq!([500, 1004, 500, 1005, 1505, 1].map(&mut take), [20, 20, 21, 22, 24, 24]);
    }
}
