//! A play-out buffer that adapts while the call lasts.
//!
//! Principle: remember the delays of the latest packets and play each talk spurt so late that a
//! chosen share of them would have been in time; nobody hears that a silence is a little longer or
//! shorter. Delays that leap far above the buffer are a spike: they are kept out of the memory,
//! and a spurt that begins in one is played with the delay of its first packet. (S. Moon, J.
//! Kurose, D. Towsley, "Packet audio playout delay adjustment: performance bounds and algorithms",
//! Multimedia Systems 6, 1998, algorithm 2, with its thresholds for spikes; the spike itself after
//! R. Ramjee, J. Kurose, D. Towsley, H. Schulzrinne, "Adaptive playout mechanisms for packetized
//! audio applications in wide-area networks", INFOCOM 1994.)
//!
//! Two additions, since that paper knows only conversations: talk without a pause is adjusted once
//! a second too, as players do by stretching and squeezing the voice (Y. Liang, N. Färber, B.
//! Girod, IEEE Trans. Multimedia 5(4), 2003); and until one second of voice has come the buffer
//! is at least [`FIRST`].

use super::Heard;
use crate::emodel::Codec;
use crate::packet::Stamp;
use crate::source::INTERVAL;
use sheaf_stage::{Duration, Instant};

/// The buffer's delay until it knows the network.
pub const FIRST: Duration = Duration::from_millis(60);
/// Talk without a pause is adjusted after so many packets, one second.
const ADJUST: u32 = 50;
/// Packets remembered, 20 s of talk.
const MEMORY: usize = 1000;
/// The memory's resolution is one millisecond; delays above this count as this.
const LONGEST: usize = 2000;
/// A delay above this many times the buffer's begins a spike.
const SPIKE_HEAD: u32 = 4;
/// A delay below this many times the buffer's at its beginning ends it.
const SPIKE_TAIL: u32 = 2;

/// A listener with an adaptive buffer.
#[derive(Clone, Debug)]
pub struct Adaptive {
    target: f64,
    delays: Memory,
    buffer: Duration,
    /// The buffer's delay when a spike began; `None` outside of one.
    spike: Option<Duration>,
    /// The latest packet by number, and where the buffer was last adjusted.
    latest: Option<Stamp>,
    adjusted: u32,
    heard: u64,
    waited: Duration,
    gaps: Gaps,
}

impl Adaptive {
    /// A listener that gives up a share of `target` (0..1) of the packets as late; 0.01 is usual.
    pub fn new(target: f64) -> Adaptive {
        Adaptive {
            target: target.clamp(0.0, 1.0),
            delays: Memory::default(),
            buffer: Duration::ZERO,
            spike: None,
            latest: None,
            adjusted: 0,
            heard: 0,
            waited: Duration::ZERO,
            gaps: Gaps::default(),
        }
    }

    /// A packet has arrived at `now`; whether it came in time to be played. Duplicates must not
    /// come here (a [`Meter`](crate::meter::Meter) tells them).
    pub fn arrived(&mut self, stamp: Stamp, now: Instant) -> bool {
        let delay = now.saturating_since(stamp.sent);
        if self.begins_anew(stamp) {
            self.adjusted = stamp.number;
            self.buffer = self.decide(delay);
        }
        if self.latest.is_none_or(|latest| is_later(stamp.number, latest.number)) {
            self.latest = Some(stamp);
        }
        self.learn(delay);
        let in_time = delay <= self.buffer;
        if in_time {
            self.heard += 1;
            self.waited += self.buffer;
            self.gaps.heard(stamp.number);
        }
        in_time
    }

    /// Whether the buffer may change before this packet: it is the first after a silence, or the
    /// spurt has lasted a second since the last change.
    fn begins_anew(&self, stamp: Stamp) -> bool {
        let Some(latest) = self.latest else { return true };
        if !is_later(stamp.number, latest.number) {
            return false;
        }
        let talk = INTERVAL * stamp.number.wrapping_sub(latest.number);
        let silence = stamp.sent.saturating_since(latest.sent).saturating_sub(talk);
        silence > INTERVAL / 2 || stamp.number.wrapping_sub(self.adjusted) >= ADJUST
    }

    fn decide(&self, delay: Duration) -> Duration {
        if self.spike.is_some() {
            return delay;
        }
        let known = self.delays.quantile(1.0 - self.target);
        if self.delays.len < ADJUST as usize { known.max(FIRST) } else { known }
    }

    fn learn(&mut self, delay: Duration) {
        match self.spike {
            Some(before) if delay <= before * SPIKE_TAIL => self.spike = None,
            Some(_) => {}
            None if delay > self.buffer * SPIKE_HEAD => self.spike = Some(self.buffer),
            None => self.delays.add(delay),
        }
    }

    /// The buffer's present delay, from sending to playing.
    pub fn delay(&self) -> Duration {
        self.buffer
    }

    /// What the listener has heard of `sent` packets: the mean delay of what was played, the
    /// packets lost or late, and their rating, bursts of loss included.
    pub fn heard(&self, codec: Codec, sent: u64) -> Heard {
        let share = if sent == 0 { 1.0 } else { self.heard.min(sent) as f64 / sent as f64 };
        let mean = self.waited.checked_div(self.heard as u32).unwrap_or(self.buffer);
        Heard::new(codec, mean, 1.0 - share, self.gaps.burst_ratio(1.0 - share))
    }
}

/// Whether number `a` comes after `b`, wrapping.
fn is_later(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}

/// The delays of the latest packets, in milliseconds rounded up.
#[derive(Clone, Debug)]
struct Memory {
    /// A ring: the next place to write is the oldest when all are written.
    recent: Box<[u16; MEMORY]>,
    next: usize,
    len: usize,
    /// How many of `recent` have each delay.
    counts: Box<[u16; LONGEST + 1]>,
}

impl Default for Memory {
    fn default() -> Self {
        let (recent, counts) = (Box::new([0; MEMORY]), Box::new([0; LONGEST + 1]));
        Memory { recent, next: 0, len: 0, counts }
    }
}

impl Memory {
    fn add(&mut self, delay: Duration) {
        let millis = delay.as_micros().div_ceil(1000).min(LONGEST as u128) as u16;
        if self.len == MEMORY {
            self.counts[usize::from(self.recent[self.next])] -= 1;
        } else {
            self.len += 1;
        }
        self.recent[self.next] = millis;
        self.counts[usize::from(millis)] += 1;
        self.next = (self.next + 1) % MEMORY;
    }

    /// The shortest delay that at least a share of `quantile` of the packets did not exceed.
    fn quantile(&self, quantile: f64) -> Duration {
        let wanted = (quantile * self.len as f64).ceil() as usize;
        let mut seen = 0;
        let reaches = |count: &u16| {
            seen += usize::from(*count);
            seen >= wanted
        };
        let millis = self.counts.iter().position(reaches).unwrap_or(LONGEST);
        Duration::from_millis(millis as u64)
    }
}

/// Runs of packets that were not heard.
#[derive(Clone, Copy, Debug, Default)]
struct Gaps {
    last: Option<u32>,
    runs: u64,
    missed: u64,
}

impl Gaps {
    fn heard(&mut self, number: u32) {
        match self.last {
            // Came late into a gap, but in time: it was counted as missed.
            Some(last) if !is_later(number, last) => self.missed = self.missed.saturating_sub(1),
            last => {
                let missed = last.map_or(0, |last| number.wrapping_sub(last) - 1);
                self.runs += u64::from(missed > 0);
                self.missed += u64::from(missed);
                self.last = Some(number);
            }
        }
    }

    /// BurstR of G.107: the mean length of a run over what random loss of the same share would
    /// give, 1 / (1 − loss); at least 1.
    fn burst_ratio(&self, loss: f64) -> f64 {
        if self.runs == 0 {
            return 1.0;
        }
        (self.missed as f64 / self.runs as f64 * (1.0 - loss)).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A talker of spurts of one second and silences of half a second; the delay in ms of each
    /// packet by its number, `None` for lost ones.
    fn call(packets: u32, delay: impl Fn(u32) -> Option<u64>) -> (Adaptive, Vec<bool>) {
        let mut listener = Adaptive::new(0.01);
        let mut heard = Vec::new();
        for number in 0..packets {
            let sent = u64::from(number) * 20 + u64::from(number / 50) * 500;
            let stamp = Stamp { flow: 0, number, sent: Instant::from_millis(sent) };
            heard.extend(
                delay(number).map(|ms| listener.arrived(stamp, Instant::from_millis(sent + ms))),
            );
        }
        (listener, heard)
    }

    #[test]
    fn the_buffer_comes_down_to_what_the_network_needs() {
        let (listener, heard) = call(3000, |number| Some(10 + u64::from(number % 7)));
        assert!(heard.iter().all(|heard| *heard));
        assert_eq!(listener.delay(), Duration::from_millis(16));
        let quality = listener.heard(Codec::G729A, 3000);
        assert!(quality.delay < Duration::from_millis(18), "{quality:?}");
        assert_eq!(quality.loss, 0.0);
    }

    #[test]
    fn when_the_network_slows_down_the_next_spurts_wait_longer() {
        let slow = |number: u32| Some(if number < 1500 { 10 } else { 30 } + u64::from(number % 5));
        let (listener, heard) = call(3000, slow);
        let late = heard.iter().filter(|heard| !**heard).count();
        // One spurt is lost and a fifth of the next (the slowest of 50 among 1000 remembered are
        // the one in a hundred that is given up); then all are in time again.
        assert_eq!(late, 60);
        assert_eq!(listener.delay(), Duration::from_millis(34));
    }

    #[test]
    fn a_spike_is_given_up_and_does_not_raise_the_buffer() {
        let spike = |number: u32| Some(if (1520..1530).contains(&number) { 400 } else { 20 });
        let (listener, heard) = call(3000, spike);
        assert_eq!(heard.iter().filter(|heard| !**heard).count(), 10);
        assert_eq!(listener.delay(), Duration::from_millis(20));
    }

    #[test]
    fn a_spurt_that_begins_in_a_spike_is_played_with_it() {
        let spike = |number: u32| Some(if (1490..1550).contains(&number) { 400 } else { 20 });
        let (listener, heard) = call(3000, spike);
        // The end of one spurt is late, the whole next spurt is heard.
        assert_eq!(heard.iter().filter(|heard| !**heard).count(), 10);
        assert_eq!(listener.delay(), Duration::from_millis(20));
    }

    #[test]
    fn loss_in_bursts_is_worse_than_the_same_loss_one_by_one() {
        let single = |number: u32| (number % 25 != 24).then_some(20);
        let bursts = |number: u32| (number % 100 < 96).then_some(20);
        let (single, _) = call(3001, single);
        let (bursts, _) = call(3001, bursts);
        let (single, bursts) = (single.heard(Codec::G729A, 3001), bursts.heard(Codec::G729A, 3001));
        assert!((single.loss - bursts.loss).abs() < 1e-9);
        assert!(bursts.r < single.r - 1.0, "{bursts:?} {single:?}");
        // Runs of four at 4 %: BurstR = 4 · 0.96.
        let expected = Codec::G729A.r(25.0 + bursts.delay.as_secs_f64() * 1e3, bursts.loss, 3.84);
        assert!((bursts.r - expected).abs() < 0.01, "{} {expected}", bursts.r);
    }

    proptest! {
        #[test]
        fn whatever_comes_it_hears_no_more_than_came_and_waits_no_less_than_the_packet(
            packets in proptest::collection::vec((any::<u32>(), 0u64..4_000_000_000, 0u64..3_000_000_000), 0..400),
        ) {
            let mut listener = Adaptive::new(0.05);
            let mut in_time = 0;
            for (number, sent, delay) in &packets {
                let sent = Instant::from_nanos(*sent);
                let delay = Duration::from_nanos(*delay);
                let stamp = Stamp { flow: 0, number: *number, sent };
                let heard = listener.arrived(stamp, sent + delay);
                prop_assert_eq!(heard, delay <= listener.delay());
                in_time += u64::from(heard);
            }
            let sent = packets.len() as u64;
            let quality = listener.heard(Codec::G729A, sent);
            prop_assert!((quality.loss * sent as f64 + in_time as f64 - sent as f64).abs() < 1e-6);
            prop_assert!(quality.r.is_finite());
        }
    }
}
