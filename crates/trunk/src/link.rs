//! The sender's side of one link: its queue, its pace, and the other end's reports about it.

mod departures;
mod history;
mod queue;
mod train;
mod unprotected;

pub(crate) use history::History;
pub(crate) use queue::{Precedence, PriorityQueues, Queued};

use crate::config::SenderConfig;
use crate::inbound::micros;
use crate::rate::{RateControl, Sample};
use departures::Departures;
use sheaf_stage::{Bitrate, Duration, Instant};
use sheaf_wire::trunk::Report;

use std::collections::VecDeque;
use train::Train;
use unprotected::Unprotected;

pub(crate) use train::{TRAIN, TRAIN_FRAME};

/// Time by which sending may run behind its pace and catch up: timers of a busy machine are late.
const CATCH_UP: Duration = Duration::from_millis(2);
/// Time beyond the round trip for which a link under load may be silent before packets avoid it:
/// four reports, and two where the other end meanwhile reports on other links, so that it is awake.
const SUSPECT: Duration = Duration::from_millis(80);
const SUSPECT_AWAKE: Duration = Duration::from_millis(40);
/// Reports on other links that show that the other end is awake.
const AWAKE_REPORTS: u8 = 2;
/// Pause after a suspicion that was wrong, in which what a link carried is not sent again due to
/// another one; it doubles up to the most. Where reports are lost and data is not, each suspicion
/// would double what was sent in a tenth of a second.
const FALSE_ALARM: Duration = Duration::from_secs(1);
const FALSE_ALARM_MOST: Duration = Duration::from_secs(60);
/// Share of frames lost that shows that a suspicion was right.
const LOST_IN_ALARM: f64 = 0.5;
/// Times the jitter that is added to that: nearly all delays are within four mean variations.
const JITTER_FACTOR: u32 = 4;
/// Delay that a lost packet causes: TCP repeats it after about this long (the least retransmission
/// timeout of Linux).
const REPAIR: Duration = Duration::from_millis(200);
/// Time over which the loss of a link is averaged before it counts, and frames that this takes at
/// least: of few frames a single lost one is a large share.
const LOSS_PERIOD: Duration = Duration::from_secs(1);
const LOSS_FRAMES: u32 = 20;
/// Periods in a row of high loss that leave a link out: one may be a burst.
const LOSS_PERIODS: u32 = 2;
/// Time for which a lost frame lets others be expected.
const LOSES_FOR: Duration = Duration::from_secs(10);
/// Time that a link had left and keeps for parities at most: with one for sixteen frames, that of a
/// burst of 160 ms. A flow that fills the link from then on has lost no more than this.
const MOST_SPARE: Duration = Duration::from_millis(10);
/// Frames of one report that replace the recent loss wholly; fewer weigh less.
const RECENT_FRAMES: f64 = 32.0;
/// No path delivers this many reports in a row out of order. When that many look stale, the one
/// believed before was damaged or forged, and the state starts over.
const STALE_REPORTS: u8 = 8;
/// Reports that are remembered for the numbers that they counted: those of 0.3 s, the spread of
/// delays that vary the most.
const COUNTED: usize = 16;
/// Round trip above which an echo is not ours but a damaged one, in µs.
const LONGEST_ROUND_TRIP: u32 = 60_000_000;
/// The queue is dealt out again when the rate has changed by more than one part in this many: less
/// changes the order of arrival little, and dealing costs a pass over all queues.
const DEALT_AGAIN: u64 = 5;

/// The fixed properties of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkConfig {
    /// Bytes that the carrier adds to each frame: 28 for UDP over IPv4 (and what lies below, where
    /// it counts against the rate). They count in rates.
    pub overhead: u16,
    /// It carries reports and probes alone while a link that is no backup takes packets.
    pub backup: bool,
    /// Data takes it only where it would wait for this long, at most [`LinkConfig::MOST_COST`], for
    /// each link that costs less.
    pub cost: Duration,
    /// The rate is never taken to be lower, headers included, unless [`LinkConfig::most`] is.
    pub least: Option<Bitrate>,
    /// No more is ever sent, headers included: what a tariff allows, or others are to have left.
    pub most: Option<Bitrate>,
}

impl LinkConfig {
    /// Most value of `cost`: packets wait no longer for any link.
    pub const MOST_COST: Duration = Duration::from_millis(100);

    /// Whether what the link carries is paid for.
    pub(crate) fn is_paid(&self) -> bool {
        self.backup || !self.cost.is_zero()
    }
}

/// Fill of the carrier's transmit queue, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    /// Bytes that wait, the frame on the wire included.
    pub waiting: u64,
    /// Bytes that can wait, above 0.
    pub limit: u64,
}

/// State of a link's sending direction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkStats {
    /// It is up.
    pub up: bool,
    /// It takes packets: up, not silent under load, not left out.
    pub used: bool,
    /// Frames sent, reports and hellos included.
    pub frames: u64,
    /// Their bytes, without carrier headers.
    pub bytes: u64,
    /// Packets that wait for it.
    pub waiting: usize,
    /// Learned rate in bit/s, carrier headers included.
    pub rate: u64,
    /// Share of frames lost in the last seconds, 0..=1.
    pub loss: f64,
    /// Round trip, smoothed.
    pub round_trip: Duration,
    /// One-way delay above the lowest: the queue in the link.
    pub queue: Duration,
    /// Variation of the one-way delay, as the other end reported it.
    pub jitter: Duration,
}

/// One link.
#[derive(Debug)]
pub(crate) struct Link {
    pub config: LinkConfig,
    pub up: bool,
    /// Left out because of its loss.
    pub lossy: bool,
    pub rate: RateControl,
    pub queue: PriorityQueues,
    pub history: History,
    pub unprotected: Unprotected,
    departures: Departures,
    /// Time at which a report last told of lost frames.
    lost_at: Option<Instant>,
    /// Fill of the carrier's queue; `None` when the carrier does not report it.
    carrier: Option<Fill>,
    /// The carrier reported an empty queue at least once since the last report.
    carrier_dry: bool,
    next_send: Instant,
    /// Time in which nothing was sent, less that of parities sent since before other frames.
    pub spare: Duration,
    /// The queue ran empty since the last report.
    dry: bool,
    next_number: u32,
    /// The global number of the last data frame that left, those apart that overtook others.
    pub last_sent: Option<u32>,
    frames: u64,
    bytes: u64,
    /// Time at which the oldest data was sent that was not followed by a report.
    report_due_since: Option<Instant>,
    /// Reports on other links since then.
    reports_elsewhere: u8,
    /// Frames that were sent again on suspicion, if no report has come since.
    alarm: u32,
    /// End of the pause after the last false alarm, and the length of the next.
    no_alarm_until: Instant,
    alarm_pause: Duration,
    round_trip: Duration,
    jitter: Duration,
    seen: Option<Seen>,
    /// Reports in a row that counted less than the one before them.
    stale: u8,
    train: Option<Train>,
    loss: Loss,
    /// The receiver's clock in µs and the highest number, of the last reports. The oldest is the
    /// newest whose frames have all arrived or are lost.
    counted: VecDeque<(u32, u32)>,
    /// Frames received beyond the numbers of which all must have arrived.
    early: i64,
    /// Share of the last frames that were lost, 0..=1, where the carrier reports its queue. Noisy,
    /// but known soon.
    recent_loss: f64,
    /// Bytes that arrived, carrier headers included.
    pub delivered: u64,
    /// The rate at which the queue was last dealt out.
    dealt_rate: u64,
}

/// Counters of the last report.
#[derive(Clone, Copy, Debug)]
struct Seen {
    highest: u32,
    frames: u32,
    bytes: u32,
    total: u64,
}

/// Loss in the current second, and averaged over the ones before; seconds in a row above the limit.
#[derive(Clone, Copy, Debug, Default)]
struct Loss {
    started: Instant,
    sent: u32,
    lost: u32,
    share: f64,
    high_periods: u32,
}

impl Link {
    pub fn new(config: LinkConfig, first_rate: Bitrate) -> Self {
        Link {
            config,
            up: false,
            lossy: false,
            rate: RateControl::bounded(first_rate, config.least, config.most),
            queue: PriorityQueues::new(config.overhead),
            history: History::default(),
            unprotected: Unprotected::default(),
            departures: Departures::default(),
            lost_at: None,
            carrier: None,
            carrier_dry: true,
            next_send: Instant::ZERO,
            spare: Duration::ZERO,
            dry: true,
            next_number: 0,
            last_sent: None,
            frames: 0,
            bytes: 0,
            report_due_since: None,
            reports_elsewhere: 0,
            alarm: 0,
            no_alarm_until: Instant::ZERO,
            alarm_pause: FALSE_ALARM,
            round_trip: Duration::ZERO,
            jitter: Duration::ZERO,
            seen: None,
            stale: 0,
            train: None,
            loss: Loss::default(),
            counted: VecDeque::with_capacity(COUNTED),
            early: 0,
            recent_loss: 0.0,
            delivered: 0,
            dealt_rate: first_rate.as_bps(),
        }
    }

    /// Bytes that `len` bytes of frame cost on this link.
    fn cost(&self, len: usize) -> u64 {
        len as u64 + u64::from(self.config.overhead)
    }

    /// Whether the next frame may leave at `now`.
    pub fn ready(&self, config: &SenderConfig, now: Instant) -> bool {
        match (self.queue.is_empty() || !self.up, self.carrier) {
            (true, _) => false,
            (false, Some(fill)) => !above(fill, config.busy_percent),
            (false, None) => self.next_send <= now,
        }
    }

    /// The time at which the next frame may leave, if only time has to pass.
    pub fn next_send(&self) -> Option<Instant> {
        (self.up && !self.queue.is_empty() && self.carrier.is_none()).then_some(self.next_send)
    }

    /// The time from which it has nothing to send.
    pub fn rests_from(&self) -> Option<Instant> {
        let rests = self.up && self.queue.is_empty() && self.carrier.is_none();
        rests.then_some(self.next_send)
    }

    /// Moves the pace on behind a frame of `len` bytes that was not in the queue.
    pub fn pace(&mut self, len: usize, now: Instant) {
        self.pause_after(self.cost(len), now);
    }

    /// Moves the pace on by the time that `cost` bytes take.
    fn pause_after(&mut self, cost: u64, now: Instant) {
        let from = now - CATCH_UP;
        self.spare = (self.spare + (from - self.next_send)).min(MOST_SPARE);
        self.next_send = self.next_send.max(from) + self.rate.pause_after(cost);
    }

    /// The spare time less that of a parity of `len` bytes, if that fits in and no urgent frame
    /// waits.
    pub fn spare_after(&self, len: usize) -> Option<Duration> {
        let may = self.carrier.is_none() && self.queue.len_of(Precedence::Urgent) == 0;
        let left = self.spare.checked_sub(self.rate.pause_after(self.cost(len)));
        left.filter(|_| may)
    }

    /// Whether frames were lost lately.
    pub fn loses(&self, now: Instant) -> bool {
        self.lost_at.is_some_and(|at| now - at < LOSES_FOR)
    }

    /// Takes the next frame, and moves the pace on. Returns, too, whether a frame with a lower
    /// number is still to take this link.
    pub fn pop(&mut self, now: Instant) -> Option<(Queued, bool)> {
        let (queued, cost) = self.queue.pop()?;
        self.dry |= self.queue.is_empty();
        self.pause_after(cost, now);
        if let Some(fill) = &mut self.carrier {
            fill.waiting += cost;
        }
        if self.report_due_since.is_none() {
            (self.report_due_since, self.reports_elsewhere) = (Some(now), 0);
        }
        let lower = |next: u32| next.wrapping_sub(queued.seq).cast_signed() < 0;
        let overtakes = queued.transmissions > 0 || self.queue.next_seq().is_some_and(lower);
        if queued.mark.is_none() && !overtakes {
            self.last_sent = Some(queued.seq);
        }
        Some((queued, overtakes))
    }

    /// Numbers a frame of `len` bytes that leaves.
    pub fn number(&mut self, len: usize) -> u32 {
        let number = self.next_number;
        self.next_number = number.wrapping_add(1);
        self.frames += 1;
        self.bytes += len as u64;
        number
    }

    /// Numbers a data frame of `len` bytes that leaves at `now`.
    pub fn number_data(&mut self, len: usize, now: Instant) -> u32 {
        let number = self.number(len);
        self.departures.note(number, micros(now));
        number
    }

    /// The number of the next frame.
    pub fn next_number(&self) -> u32 {
        self.next_number
    }

    /// Smoothed round trip.
    pub fn round_trip(&self) -> Duration {
        self.round_trip
    }

    /// Removes and returns the newest frame that the other end has not reported.
    pub fn take_unheard(&mut self) -> Option<Queued> {
        self.history.take_unheard(self.seen.map(|seen| seen.highest))
    }

    /// Notes that a train of frames is sent from now on, to learn the rate from.
    pub fn begin_train(&mut self, now: Instant) {
        self.train = Some(Train::new(self.next_number, now));
    }

    /// Notes the fill of the carrier's queue.
    pub fn set_carrier(&mut self, fill: Option<Fill>) {
        self.carrier = fill.filter(|fill| fill.limit > 0);
        self.carrier_dry |= self.carrier.is_some_and(|fill| fill.waiting == 0);
    }

    /// Whether the carrier reports how full its queue is.
    pub fn has_queue_report(&self) -> bool {
        self.carrier.is_some()
    }

    /// Whether there is room for one more packet, among those that leave before it. `spread`: time
    /// by which packets may wait longer, because another link is as much slower.
    pub fn has_room(
        &self,
        precedence: Precedence,
        spread: Duration,
        config: &SenderConfig,
    ) -> bool {
        let (waiting, bytes) = self.queue.before(precedence);
        // A rate that a busy machine measured may be far too low: a burst of small packets then
        // finds the room in bytes that full frames have.
        let least = config.queue_frames as u64 * self.cost(usize::from(config.frame));
        let fits = bytes < least || self.rate.time_for(bytes) < config.queue + spread;
        waiting < config.queue_frames_max && fits
    }

    /// Whether the queue is above the busy share: the carrier's where it is reported (then packets
    /// wait here because of it), else our own.
    pub fn is_busy(&self, config: &SenderConfig) -> bool {
        match self.carrier {
            Some(fill) => !self.queue.is_empty() || above(fill, config.busy_percent),
            None => self.wait() * 100 > config.queue * u32::from(config.busy_percent),
        }
    }

    /// Time that the packets that wait will take.
    pub fn wait(&self) -> Duration {
        self.rate.time_for(self.queue.bytes())
    }

    /// Time that the frames take that leave before one that is queued now.
    pub fn queued_time(&self, precedence: Precedence) -> Duration {
        self.rate.time_for(self.queue.before(precedence).1)
    }

    /// Time until a packet of `len` bytes would arrive, counted from the shortest delay of all
    /// links, whose base is `reference`. The repair of a loss is part of it, by the chance of one.
    pub fn arrival(
        &self,
        (len, precedence): (usize, Precedence),
        reference: Option<u32>,
        now: Instant,
    ) -> Duration {
        let repair = REPAIR.mul_f64(self.recent_loss);
        let before = self.wait_of(precedence, now);
        before.saturating_add(self.path_time(len, reference)) + repair
    }

    /// The same if nothing waited and nothing was lost.
    pub fn path_time(&self, len: usize, reference: Option<u32>) -> Duration {
        let path = match (self.rate.delay(), reference) {
            (Some(base), Some(reference)) => crate::rate::later(base, reference).max(0) as u64,
            _ => 0,
        };
        self.rate.time_for(self.cost(len)) + Duration::from_micros(path)
    }

    /// Time for which a packet would wait for the link, and for its turn behind what is in it.
    pub fn wait_of(&self, precedence: Precedence, now: Instant) -> Duration {
        let in_carrier = self.carrier.map_or(0, |fill| fill.waiting);
        let before = self.rate.time_for(self.queue.before(precedence).1 + in_carrier);
        let pause = if self.carrier.is_none() { self.next_send - now } else { Duration::ZERO };
        before.saturating_add(self.rate.queue().max(pause))
    }

    /// Notes a report on another link: the other end is awake.
    pub fn other_link_reported(&mut self) {
        self.reports_elsewhere = self.reports_elsewhere.saturating_add(1);
    }

    /// Whether the other end reported on other links meanwhile, so that it is awake.
    pub fn is_passed_over(&self) -> bool {
        self.reports_elsewhere >= AWAKE_REPORTS
    }

    /// Whether what it carried may be sent again because it is silent: not if that was needless a
    /// short while ago.
    pub fn may_alarm(&self, now: Instant) -> bool {
        !self.up || now >= self.no_alarm_until
    }

    /// Notes the frames that were sent again because it is silent.
    pub fn alarmed(&mut self, frames: u32) {
        self.alarm = self.alarm.saturating_add(frames);
        if !self.up {
            (self.alarm, self.alarm_pause) = (0, FALSE_ALARM);
        }
    }

    /// Takes the first report after an alarm, which was false if most frames arrived.
    fn judge_alarm(&mut self, lost_share: f64, now: Instant) {
        let frames = std::mem::take(&mut self.alarm);
        if frames > 0 && lost_share < LOST_IN_ALARM {
            self.no_alarm_until = now + self.alarm_pause;
            self.alarm_pause = (2 * self.alarm_pause).min(FALSE_ALARM_MOST);
        }
    }

    /// Whether data was sent that was not followed by a report.
    pub fn is_report_due(&self) -> bool {
        self.report_due_since.is_some()
    }

    /// Whether the link responds. One that carries data and is silent for longer than reports take
    /// does not, and is avoided.
    pub fn responds(&self, now: Instant) -> bool {
        self.suspect_at().is_none_or(|at| now < at)
    }

    /// The time from which the link is avoided if nothing is heard on it.
    pub fn suspect_at(&self) -> Option<Instant> {
        // Where the carrier reports its queue, reports of the other end are rare.
        let awake = self.is_passed_over() && self.carrier.is_none();
        let patience = if awake { SUSPECT_AWAKE } else { SUSPECT };
        Some(self.report_due_since? + self.round_trip + patience + self.varied())
    }

    /// Time by which nearly all delays are within each other.
    pub fn varied(&self) -> Duration {
        JITTER_FACTOR * self.jitter.min(SUSPECT)
    }

    /// Starts over, because the link or the other end did.
    pub fn restart(&mut self) {
        self.seen = None;
        self.report_due_since = None;
        self.rate.restart();
    }

    /// Learns from a report of the other end. Returns whether the rate has changed so much since
    /// the queue was dealt out that it should be dealt out again.
    pub fn report(
        &mut self,
        report: &Report,
        micros: u32,
        limit_percent: u8,
        now: Instant,
    ) -> bool {
        if !report.heard {
            return false;
        }
        self.note_round_trip(micros.wrapping_sub(report.echo).saturating_sub(report.held));
        self.jitter = Duration::from_micros(u64::from(report.jitter));
        let Some(seen) = self.seen else {
            let total = u64::from(report.bytes);
            let Report { highest, frames, bytes, .. } = *report;
            self.seen = Some(Seen { highest, frames, bytes, total });
            self.count_from(report);
            self.report_due_since = None;
            return false;
        };
        let frames = report.frames.wrapping_sub(seen.frames);
        let sent = report.highest.wrapping_sub(seen.highest);
        if sent > u32::MAX / 2 || frames > u32::MAX / 2 {
            // A report that was overtaken by a newer one, unless it is one of too many.
            self.stale += 1;
            if self.stale == STALE_REPORTS {
                self.stale = 0;
                let Report { highest, frames, bytes, .. } = *report;
                self.seen = Some(Seen { highest, frames, bytes, total: seen.total });
                self.count_from(report);
            }
            return false;
        }
        self.stale = 0;
        if sent > 0 {
            self.report_due_since = None;
        }
        let bytes = u64::from(report.bytes.wrapping_sub(seen.bytes));
        let carried = bytes + u64::from(frames) * u64::from(self.config.overhead);
        let total = seen.total + carried;
        self.delivered += carried;
        let mut one_way = Some(report.one_way);
        if let Some(train) = &mut self.train {
            if train.is_jumbled(sent, frames) {
                one_way = None;
            }
            if let Some((bytes, micros)) = train.note(report, total) {
                self.rate.set_first(bytes, micros);
            }
            if train.is_over(now) {
                self.train = None;
            }
        }
        self.seen = Some(Seen {
            highest: report.highest,
            frames: report.frames,
            bytes: report.bytes,
            total,
        });
        let missing = i64::from(sent) - i64::from(frames);
        if sent > 0 {
            self.judge_alarm(missing as f64 / f64::from(sent), now);
        }
        let (sent, lost) = self.note_missing(report, frames);
        if lost > 0 {
            self.lost_at = Some(now);
        }
        let share = f64::from(lost) / f64::from(sent.max(1));
        // Where the carrier does not report its queue, most losses are full queues on the path, and
        // the rate follows them.
        if self.carrier.is_some() {
            let weight = (f64::from(sent) / RECENT_FRAMES).min(1.0);
            self.recent_loss += (share - self.recent_loss) * weight;
        }
        let limit = f64::from(limit_percent) / 100.0;
        // Losses while the rate is searched for are caused by the search. Where the carrier reports
        // its queue nothing is searched.
        if self.carrier.is_some() || !self.rate.is_searched() {
            self.loss.note(sent, lost, limit, now);
        } else {
            self.loss.begin(now);
        }
        self.judge_loss(limit);
        let dry = std::mem::replace(&mut self.dry, self.queue.is_empty());
        let carrier_empty = self.carrier.is_some_and(|fill| fill.waiting == 0);
        let carrier_dry = std::mem::replace(&mut self.carrier_dry, carrier_empty);
        let limited = if self.carrier.is_some() { !carrier_dry } else { !dry };
        let least = report.prompt.and_then(|frame| {
            let sent_at = self.departures.at(frame.number)?;
            Some(frame.at.wrapping_sub(sent_at))
        });
        let at = report.last_at;
        let sample = Sample { bytes: total, at, one_way, least, limited, sent, lost };
        match self.carrier {
            Some(_) => self.rate.observe(sample, now),
            None => self.rate.report(sample, now),
        }
        let rate = self.rate.rate().as_bps();
        let changed = rate.abs_diff(self.dealt_rate) > self.dealt_rate / DEALT_AGAIN;
        if changed {
            self.dealt_rate = rate;
        }
        changed
    }

    /// Counts missing frames from this report on.
    fn count_from(&mut self, report: &Report) {
        self.counted.clear();
        self.counted.push_back((report.sent_at, report.highest));
        self.early = 0;
    }

    /// Takes the frames that a report counts beyond those of the one before it; returns how many
    /// more numbers must all have arrived by now, and how many of these did not.
    ///
    /// Where frames overtake, those just behind the highest are late, not lost.
    fn note_missing(&mut self, report: &Report, frames: u32) -> (u32, u32) {
        let spread = self.rate.spread();
        let age = |at: u32| Duration::from_micros(u64::from(report.sent_at.wrapping_sub(at)));
        let before = self.counted.front().map_or(report.highest, |(_, highest)| *highest);
        if self.counted.len() == COUNTED {
            self.counted.pop_front();
        }
        self.counted.push_back((report.sent_at, report.highest));
        while self.counted.get(1).is_some_and(|(at, _)| age(*at) >= spread) {
            self.counted.pop_front();
        }
        let due = self.counted.front().map_or(before, |(_, highest)| *highest);
        let sent = due.wrapping_sub(before);
        let missing = i64::from(sent) - i64::from(frames) - self.early;
        // No more can be early than are on their way.
        self.early = (-missing).clamp(0, i64::from(report.highest.wrapping_sub(due)));
        (sent, missing.max(0) as u32)
    }

    /// Share of frames lost, averaged.
    pub fn loss(&self) -> f64 {
        self.loss.share
    }

    pub fn stats(&self, used: bool) -> LinkStats {
        LinkStats {
            up: self.up,
            used,
            frames: self.frames,
            bytes: self.bytes,
            waiting: self.queue.len(),
            rate: self.rate.rate().as_bps(),
            loss: self.loss.share,
            round_trip: self.round_trip,
            queue: self.rate.queue(),
            jitter: self.jitter,
        }
    }

    fn note_round_trip(&mut self, micros: u32) {
        if micros > LONGEST_ROUND_TRIP {
            return;
        }
        let sample = Duration::from_micros(u64::from(micros));
        self.round_trip = match self.round_trip {
            Duration::ZERO => sample,
            // RFC 6298 section 2.
            smoothed => (7 * smoothed + sample) / 8,
        };
        self.rate.set_round_trip(self.round_trip);
    }

    /// Two seconds in a row of high loss leave a link out; half of that lets it back in.
    fn judge_loss(&mut self, limit: f64) {
        if self.loss.high_periods >= LOSS_PERIODS {
            if !std::mem::replace(&mut self.lossy, true) {
                self.rate.failed();
            }
        } else if self.loss.share < limit / 2.0 {
            self.lossy = false;
        }
    }
}

impl Loss {
    fn begin(&mut self, now: Instant) {
        (self.started, self.sent, self.lost) = (now, 0, 0);
    }

    fn note(&mut self, sent: u32, lost: u32, limit: f64, now: Instant) {
        self.sent = self.sent.saturating_add(sent);
        self.lost = self.lost.saturating_add(lost);
        if now - self.started >= LOSS_PERIOD && self.sent >= LOSS_FRAMES {
            let share = f64::from(self.lost) / f64::from(self.sent);
            self.share = (self.share + share) / 2.0;
            self.high_periods = if share > limit { self.high_periods.saturating_add(1) } else { 0 };
            self.begin(now);
        }
    }
}

fn above(fill: Fill, percent: u8) -> bool {
    fill.waiting.saturating_mul(100) > fill.limit.saturating_mul(u64::from(percent))
}
