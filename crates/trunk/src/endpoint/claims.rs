//! Checks of a report against what this end sent. A report that was forged, damaged or recorded
//! must not say that more was delivered than was sent, or bring an old state back.

use super::outcome::Refusal;
use sheaf_wire::trunk::Report;

/// No path delivers this many reports in a row out of order. When that many look old, the one
/// believed before was forged or damaged.
const OLD_REPORTS: u8 = 8;

/// Age in µs up to which the echo in a report shows that it was not recorded. The longest round
/// trips, over a satellite with full buffers, are shorter.
const FRESH: u32 = 2_000_000;

/// Whether a report that came at `micros` on this end's clock was sent lately: it echoes a time
/// that only lately was sent to the other end.
pub(super) fn is_fresh(report: &Report, micros: u32) -> bool {
    report.heard && micros.wrapping_sub(report.echo) < FRESH
}

/// Totals of what was sent on a link, reports and hellos included.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sent {
    /// Number of the next frame.
    pub next_number: u32,
    /// Frames.
    pub frames: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Claims of the reports about one link so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Claims {
    /// The newest report as it came, and its totals as they were believed.
    newest: Option<Report>,
    frames: u32,
    bytes: u32,
    /// Frames and bytes sent that no report has claimed.
    sent: Sent,
    /// Old reports in a row.
    old: u8,
}

impl Claims {
    /// Forgets the reports, because the other end counts anew.
    pub fn restart(&mut self, sent: Sent) {
        *self = Claims { sent, ..Claims::default() };
    }

    /// Whether a report was sent before one that has been accepted.
    pub fn is_old(&self, report: &Report) -> bool {
        self.newest.as_ref().is_some_and(|newest| is_before(report.sent_at, newest.sent_at))
    }

    /// Checks a report that came at `micros` on this end's clock. Returns it with the totals that
    /// can be true.
    pub fn check(&mut self, report: &Report, sent: Sent, micros: u32) -> Result<Report, Refusal> {
        if self.is_old(report) {
            self.old = self.old.saturating_add(1);
            if self.old < OLD_REPORTS || !is_fresh(report, micros) {
                return Err(Refusal::OldReport);
            }
        }
        self.old = 0;
        // The highest number is below the next one, and what it echoes was sent before it came.
        let future = report.heard && is_before(micros, report.echo);
        let false_prompt = report.prompt.is_some_and(|frame| {
            is_before(report.sent_at, frame.at) || !is_before(frame.number, sent.next_number)
        });
        if future
            || false_prompt
            || !is_before(report.highest, sent.next_number) && report.frames > 0
        {
            return Err(Refusal::FalseReport);
        }
        let Some(newest) = self.newest.replace(*report) else {
            (self.frames, self.bytes) = (report.frames, report.bytes);
            return Ok(*report);
        };
        // Links can deliver a frame twice, so more than was sent is cut, not refused.
        let claim = |now: u32, before: u32, left: u64| {
            let more = now.wrapping_sub(before);
            // Totals never fall but where the other end began anew.
            if more > u32::MAX / 2 { 0 } else { u64::from(more).min(left) }
        };
        let left = (sent.frames - self.sent.frames, sent.bytes - self.sent.bytes);
        let frames = claim(report.frames, newest.frames, left.0);
        let bytes = claim(report.bytes, newest.bytes, left.1);
        self.sent.frames += frames;
        self.sent.bytes += bytes;
        self.frames = self.frames.wrapping_add(frames as u32);
        self.bytes = self.bytes.wrapping_add(bytes as u32);
        Ok(Report { frames: self.frames, bytes: self.bytes, ..*report })
    }
}

/// Whether `a` is before `b`, of times or numbers modulo 2³².
fn is_before(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() < 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_wire::trunk::{Control, Prompt};

    #[test]
    fn a_frame_that_was_not_sent_or_is_heard_later_is_no_prompt_one() {
        let sent = Sent { next_number: 100, frames: 100, bytes: 100_000 };
        let check = |number: u32, at: u32| {
            let report = Report {
                control: Control { link: 0, next_seq: 0, link_seq: 0, session: 1, pause: 0 },
                sent_at: 5_000,
                heard: true,
                echo: 6_000,
                held: 0,
                highest: 99,
                frames: 100,
                bytes: 100_000,
                last_at: 5_000,
                one_way: 0,
                jitter: 2_000,
                late: 0,
                prompt: Some(Prompt { number, at }),
            };
            Claims::default().check(&report, sent, 7_000).is_ok()
        };
        assert!(check(99, 5_000) && check(u32::MAX, u32::MAX));
        assert!(!check(100, 5_000) && !check(99, 5_001));
    }
}
