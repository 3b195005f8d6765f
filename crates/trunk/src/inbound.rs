//! Frames, bytes and times received on one link, as the reports carry them.

use sheaf_stage::Instant;
use sheaf_wire::trunk::{Control, Report, extend};

/// Change of the one-way delay that counts as variation at most, in µs: more is a clock that was
/// set, or the first report after a pause.
const MOST_JITTER: u32 = 1_000_000;

/// No path delivers this many reports and hellos in a row after a frame sent later. When that many
/// have lower numbers, the highest one was forged or damaged.
const LOWER_NUMBERS: u8 = 8;

/// The receiving side of a link.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inbound {
    highest: Option<u32>,
    /// Reports and hellos in a row whose numbers were below the highest.
    lower: u8,
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
    pub fn data(&mut self, low: u8, len: usize, now: Instant) {
        let number = extend(low, self.highest.map_or(0, |highest| highest.wrapping_add(1)));
        if self.highest.is_none_or(|highest| number.wrapping_sub(highest).cast_signed() > 0) {
            self.highest = Some(number);
        }
        self.count(len, now);
    }

    /// Counts a report or hello, which carries the whole number.
    pub fn control(&mut self, control: &Control, len: usize, now: Instant) {
        let highest = *self.highest.get_or_insert(control.link_seq);
        let is_lower = control.link_seq.wrapping_sub(highest).cast_signed() < 0;
        self.lower = if is_lower { self.lower + 1 } else { 0 };
        if !is_lower || self.lower >= LOWER_NUMBERS {
            (self.highest, self.lower) = (Some(control.link_seq), 0);
        }
        self.count(len, now);
    }

    /// Notes the times of a report.
    pub fn report(&mut self, report: &Report, now: Instant) {
        let one_way = micros(now).wrapping_sub(report.sent_at);
        if self.echo.is_some() {
            let change = one_way.wrapping_sub(self.one_way).cast_signed().unsigned_abs();
            // RFC 3550, appendix A.8.
            let change = change.min(MOST_JITTER);
            self.jitter16 = self.jitter16 + change - (self.jitter16 + 8) / 16;
        }
        self.one_way = one_way;
        self.echo = Some((report.sent_at, micros(now)));
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

    fn count(&mut self, len: usize, now: Instant) {
        self.frames = self.frames.wrapping_add(1);
        self.bytes = self.bytes.wrapping_add(len as u32);
        self.last_at = micros(now);
    }
}

/// A time on the wire: µs modulo 2³².
pub(crate) fn micros(now: Instant) -> u32 {
    (now.as_nanos() / 1_000) as u32
}
