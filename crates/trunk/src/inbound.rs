//! Frames, bytes and times received on one link, as the reports carry them.

use crate::gaps::Gaps;
use sheaf_stage::Instant;
use sheaf_wire::trunk::{Control, Report, extend};

/// Change of the one-way delay that counts as variation at most, in µs: more is a clock that was
/// set, or the first report after a pause.
const MOST_JITTER: u32 = 1_000_000;

/// Frames by which one can be late without showing that the count of the others is wrong: those of
/// an eighth of a second at 300 Mbit/s.
const MOST_REORDERED: u32 = 4096;

/// The reception of a frame, besides its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Came {
    /// Its length in bytes.
    pub len: usize,
    /// Time at which the host received it, not after the time at which it is looked at.
    pub at: Instant,
}

/// The receiving side of a link.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inbound {
    highest: Option<u32>,
    /// Frames that are missing, to be asked for.
    pub gaps: Gaps,
    frames: u32,
    bytes: u32,
    last_at: u32,
    /// `sent_at` of the newest report, and the time of its reception.
    echo: Option<(u32, u32)>,
    one_way: u32,
    /// Sixteen times the jitter in µs.
    jitter16: u32,
}

impl Inbound {
    /// Counts a data frame or marker; `low`: the low bits of its link number.
    pub fn data(&mut self, low: u16, came: Came, now: Instant) {
        let number = extend(low, self.highest.map_or(0, |highest| highest.wrapping_add(1)));
        if self.highest.is_none_or(|highest| number.wrapping_sub(highest).cast_signed() > 0) {
            self.highest = Some(number);
        }
        self.gaps.arrived(number, now);
        self.count(came);
    }

    /// Counts a report or hello, which carries the whole number.
    pub fn control(&mut self, control: &Control, came: Came, now: Instant) {
        // A frame that came a little late does not move the count back; what is far from it is
        // right.
        let behind = |highest: u32| highest.wrapping_sub(control.link_seq);
        if self.highest.is_none_or(|highest| behind(highest) > MOST_REORDERED) {
            self.highest = Some(control.link_seq);
        }
        self.gaps.arrived(control.link_seq, now);
        self.count(came);
    }

    /// Notes the times of a report that came at `at`.
    pub fn report(&mut self, report: &Report, at: Instant) {
        let one_way = micros(at).wrapping_sub(report.sent_at);
        if self.echo.is_some() {
            let change = one_way.wrapping_sub(self.one_way).cast_signed().unsigned_abs();
            // RFC 3550, appendix A.8.
            let change = change.min(MOST_JITTER);
            self.jitter16 = self.jitter16 + change - (self.jitter16 + 8) / 16;
        }
        self.one_way = one_way;
        self.echo = Some((report.sent_at, micros(at)));
    }

    /// Fills in a report to send now.
    pub fn fill(&self, control: Control, late: u32, now: Instant) -> Report {
        let sent_at = micros(now);
        let (echo, heard_at) = self.echo.unwrap_or((0, sent_at));
        Report {
            control,
            sent_at,
            heard: self.echo.is_some(),
            echo,
            held: sent_at.wrapping_sub(heard_at),
            highest: self.highest.unwrap_or(0),
            frames: self.frames,
            bytes: self.bytes,
            last_at: self.last_at,
            one_way: self.one_way,
            jitter: self.jitter16 / 16,
            late,
        }
    }

    /// Frames delivered.
    pub fn frames(&self) -> u32 {
        self.frames
    }

    fn count(&mut self, came: Came) {
        let at = micros(came.at);
        // A stamp can be a little early; a rate over a time that runs back would mean nothing.
        let is_later = self.frames == 0 || at.wrapping_sub(self.last_at).cast_signed() > 0;
        self.last_at = if is_later { at } else { self.last_at };
        self.frames = self.frames.wrapping_add(1);
        self.bytes = self.bytes.wrapping_add(came.len as u32);
    }
}

/// A time on the wire: µs modulo 2³².
pub(crate) fn micros(now: Instant) -> u32 {
    (now.as_nanos() / 1_000) as u32
}
