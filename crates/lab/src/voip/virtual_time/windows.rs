//! Calls judged every five seconds: over a walk the mean hides where they were good.

use crate::voip::outcome::FlowReport;
use crate::voip::point::{Point, Talk};
use crate::voip::walked::{Span, Spans, WINDOW};
use sheaf_stage::{Duration, Instant};
use sheaf_voice::emodel::Codec;
use sheaf_voice::meter::Meter;
use sheaf_voice::packet::Stamp;
use sheaf_voice::rules::Rule;
use std::collections::VecDeque;
use std::iter::Peekable;

/// Delay beyond which a packet counts as lost: thirty times what the rules allow. It bounds the
/// spans that are open.
const LATE: Duration = Duration::from_secs(5);

/// The spans of a run, in the order of the times at which packets were sent.
pub(super) struct Windows {
    start: Instant,
    codec: Codec,
    /// Times at which each flow sends, from the first open span on.
    talks: Vec<Peekable<Talk>>,
    /// For each open span, what arrived of each flow.
    open: VecDeque<Vec<Meter>>,
    /// Spans in all.
    count: u32,
    spans: Spans,
}

impl Windows {
    pub fn new(point: &Point) -> Windows {
        let start = point.measured().start;
        let mut talks: Vec<_> =
            (0..point.flows.len()).map(|flow| point.talk(flow).peekable()).collect();
        // What is sent before belongs to no span.
        talks.iter_mut().for_each(|talk| while talk.next_if(|at| *at < start).is_some() {});
        let length = point.measured().end - start;
        let count = (length.as_nanos() / WINDOW.as_nanos()) as u32;
        let spans = Spans::new(point.flows.len());
        Windows { start, codec: point.codec, talks, open: VecDeque::new(), count, spans }
    }

    /// A packet has reached its destination at `now`.
    pub fn heard(&mut self, stamp: Stamp, now: Instant) {
        while self.closed() < self.count && self.end(self.closed()) + LATE <= now {
            self.close();
        }
        if stamp.sent < self.start {
            return;
        }
        let span = ((stamp.sent - self.start).as_nanos() / WINDOW.as_nanos()) as u32;
        let Some(place) = span.checked_sub(self.closed()).filter(|_| span < self.count) else {
            return;
        };
        let flows = self.talks.len();
        while self.open.len() <= place as usize {
            self.open.push_back(vec![Meter::default(); flows]);
        }
        if let Some(meter) = self.open[place as usize].get_mut(stamp.flow as usize) {
            meter.arrived(stamp, now);
        }
    }

    /// All spans.
    pub fn finish(mut self) -> Spans {
        while self.closed() < self.count {
            self.close();
        }
        self.spans
    }

    fn closed(&self) -> u32 {
        self.spans.over.len() as u32
    }

    fn end(&self, span: u32) -> Instant {
        self.start + WINDOW * (span + 1)
    }

    /// Judges the flows in the first open span.
    fn close(&mut self) {
        let end = self.end(self.closed());
        let silent = vec![Meter::default(); self.talks.len()];
        let meters = self.open.pop_front().unwrap_or(silent);
        let mut span = Span { end: end - self.start, ..Span::default() };
        for (flow, (talk, meter)) in self.talks.iter_mut().zip(&meters).enumerate() {
            let sent = std::iter::from_fn(|| talk.next_if(|at| *at < end)).count() as u64;
            let report = FlowReport::new(self.codec, meter, sent);
            let (kau, r70) = (report.is_supported(Rule::Kau), report.is_supported(Rule::R70));
            self.spans.good(flow, kau, r70);
            span.kau += u32::from(kau);
            span.r70 += u32::from(r70);
            span.sent += sent;
            span.received += report.received;
        }
        self.spans.over.push(span);
    }
}
