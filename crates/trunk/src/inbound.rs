//! Frames, bytes and times received on one link, as the reports carry them.

use crate::gaps::Gaps;
use sheaf_stage::Instant;
use sheaf_wire::trunk::{Control, Prompt, Report, extend};

/// Change of the one-way delay that counts as variation at most, in µs: more is a clock that was
/// set, or the first report after a pause.
const MOST_JITTER: u32 = 1_000_000;

/// Least jitter with which a report names a prompt frame, in µs. Below it the delay of the reports
/// themselves shows a queue.
const PROMPT_JITTER: u32 = 1_000;
/// Least number of frames of which the most prompt one is named. The least of eight delays that
/// spread evenly is a ninth of the spread above the least of all; that of fewer looks like a queue.
const COMPARED: u32 = 8;
/// Weight of the newest report in the mean time between two numbers: frames that overtake make
/// that of one report rough.
const SPACING_WEIGHT: f32 = 1.0 / 8.0;

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
    /// The most prompt data frame since a report named one, and the number of frames since then.
    prompt: Option<Prompt>,
    compared: u32,
    /// Time between two numbers, in µs.
    spacing: f32,
    /// Highest number and its time, of the last report.
    reported: Option<(u32, u32)>,
}

impl Inbound {
    /// Counts a data frame or marker; `low`: the low bits of its link number.
    pub fn data(&mut self, low: u16, came: Came, now: Instant) {
        let number = extend(low, self.highest.map_or(0, |highest| highest.wrapping_add(1)));
        if self.highest.is_none_or(|highest| number.wrapping_sub(highest).cast_signed() > 0) {
            self.highest = Some(number);
            self.note_prompt(Prompt { number, at: micros(came.at) });
        }
        self.compared = self.compared.saturating_add(1);
        self.gaps.arrived(number, now);
        self.count(came);
    }

    /// Notes a frame that none with a higher number has overtaken: the least delay is one of
    /// theirs.
    fn note_prompt(&mut self, frame: Prompt) {
        let is_later = self.prompt.is_none_or(|prompt| {
            let numbers = frame.number.wrapping_sub(prompt.number) as f32;
            // Frames leave about evenly, so the one that gained on the others had less delay.
            numbers * self.spacing >= frame.at.wrapping_sub(prompt.at).cast_signed() as f32
        });
        if is_later {
            self.prompt = Some(frame);
        }
    }

    /// Returns true if the next report names a prompt frame.
    pub fn has_prompt(&self) -> bool {
        let varies = self.jitter16 / 16 > PROMPT_JITTER;
        varies && self.prompt.is_some() && self.compared >= COMPARED
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
    pub fn fill(&mut self, control: Control, late: u32, now: Instant) -> Report {
        let sent_at = micros(now);
        let (echo, heard_at) = self.echo.unwrap_or((0, sent_at));
        self.measure_spacing();
        let prompt = self.prompt.filter(|_| self.has_prompt());
        if self.compared >= COMPARED {
            (self.prompt, self.compared) = (None, 0);
        }
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
            prompt,
        }
    }

    /// Learns how far apart frames come from those since the last report.
    fn measure_spacing(&mut self) {
        let Some(highest) = self.highest else { return };
        let reported = self.reported.replace((highest, self.last_at));
        let Some((before, at)) = reported else { return };
        let numbers = highest.wrapping_sub(before).cast_signed();
        let micros = self.last_at.wrapping_sub(at).cast_signed();
        if numbers > 0 && micros > 0 {
            let spacing = micros as f32 / numbers as f32;
            let weight = if self.spacing > 0.0 { SPACING_WEIGHT } else { 1.0 };
            self.spacing += (spacing - self.spacing) * weight;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn control(link_seq: u32) -> Control {
        Control { link: 0, next_seq: 0, link_seq, session: 1, pause: 0 }
    }

    fn report(sent_at: u32) -> Report {
        Inbound::default().fill(control(0), 0, Instant::from_nanos(u64::from(sent_at) * 1_000))
    }

    /// A receiver that heard a frame every 600 µs for 0.2 s, each later by what `delay` says of its
    /// number; the reports that it sent every 20 ms.
    fn reports(delay: impl Fn(u32) -> u32) -> Vec<Report> {
        let mut inbound = Inbound::default();
        let mut arrivals: Vec<_> = (0..333).map(|n| (600 * n + delay(n), n)).collect();
        arrivals.sort_unstable();
        let mut told = Vec::new();
        let mut next = 20_000;
        for (at, number) in arrivals {
            let now = Instant::from_nanos(u64::from(at) * 1_000);
            while next <= at {
                inbound.report(&report(at - delay(next)), now);
                told.push(inbound.fill(control(0), 0, now));
                next += 20_000;
            }
            inbound.data(number as u16, Came { len: 1_000, at: now }, now);
        }
        told
    }

    #[test]
    fn where_delays_vary_a_report_tells_of_a_frame_that_took_about_the_least_time() {
        // 10 to 50 ms, in no order.
        let delay = |number: u32| 10_000 + number.wrapping_mul(2_654_435_761) % 40_000;
        let reports = reports(delay);
        let told: Vec<_> = reports.iter().filter_map(|report| report.prompt).collect();
        assert!(told.len() >= 6, "{told:?}");
        for prompt in told {
            assert_eq!(
                prompt.at,
                600 * prompt.number + delay(prompt.number),
                "it is one that came"
            );
            assert!(delay(prompt.number) < 20_000, "a quarter of the spread: {prompt:?}");
        }
    }

    #[test]
    fn where_all_take_the_same_time_no_report_tells_of_one() {
        assert!(reports(|_| 10_000).iter().all(|report| report.prompt.is_none()));
    }
}
