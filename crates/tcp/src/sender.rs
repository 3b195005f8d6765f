//! The sending half of a connection: what leaves when, and what is done about losses.
//!
//! Losses are found by [`Rack`], by a probe of the tail when acknowledgements stay away for two
//! round trips (RFC 8985, section 7), and by the timeout (RFC 6298). While they are repaired the
//! window follows PRR (RFC 6937). A reduction is undone when time stamps (RFC 3522) or duplicates
//! (RFC 3708) show that nothing was lost.

use crate::config::{Algorithm, Config};
use crate::control::{self, Connection, Control, Pace, Phase, Rate, Sample, Window};
use crate::pacer::Pacer;
use crate::rack::{Found, Rack};
use crate::refusal::Refusal;
use crate::rtt::{RTO_MAX, RTO_MIN, RoundTrip};
use crate::scoreboard::{Fate, Mark, Scoreboard, Sent};
use crate::sequence::before;
use sheaf_stage::{Duration, Instant};

/// Time added to timers of probes and of reordering: two ticks of Linux's clock, which has one
/// each millisecond (TCP_TIMEOUT_MIN).
const TICKS: Duration = Duration::from_millis(2);
/// Doublings of the timeout after which it is at its largest in any case.
const MOST_BACKOFF: u32 = 16;
/// Windows of this size and below are the receiver's full buffer, not a part of it (RFC 9293,
/// section 3.7.1: the default segment size).
const SMALL_WINDOW: u32 = 536;
/// Handshakes that needed more SYNs than this start with a window of one segment, as on Linux.
const GOOD_HANDSHAKE: u32 = 2;

/// A segment that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transmission {
    /// The offsets `start..end`.
    Data { start: u64, end: u64 },
    /// An old number without data, which the receiver acknowledges with its window.
    WindowProbe,
}

/// Contents of an acknowledgement, in offsets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ack<'a> {
    /// Everything before it arrived.
    pub offset: u64,
    /// Bytes beyond it that the receiver has room for.
    pub window: u32,
    /// Offset of the segment that carried it, in the peer's numbers.
    pub from: u64,
    /// Ranges beyond it, and perhaps one that arrived twice before them.
    pub ranges: &'a [(u64, u64)],
    /// The time stamp that it echoes.
    pub echo: Option<u32>,
}

/// Events of a sender, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub repeats: u64,
    pub first_repeat: Option<Instant>,
    pub lost: u64,
    pub timeouts: u64,
    pub probes: u64,
    pub reductions: u64,
    pub undone: u64,
}

/// The receiver's window.
#[derive(Clone, Copy, Debug, Default)]
struct Room {
    size: u32,
    most: u32,
    /// Offset of the segment that last set it.
    from: u64,
}

/// State before a reduction, to return to.
#[derive(Clone, Copy, Debug)]
struct Undo {
    /// Repeats that are not known to be needless; `None` before the first.
    repeats: Option<u32>,
    /// First unacknowledged offset at the reduction.
    marker: u64,
    window: u32,
    threshold: Option<u32>,
}

/// Proportional rate reduction (RFC 6937).
#[derive(Clone, Copy, Debug, Default)]
struct Prr {
    window: u32,
    delivered: u32,
    sent: u32,
}

/// A probe of the tail that is under way.
#[derive(Clone, Copy, Debug)]
struct TailProbe {
    /// Everything that was sent before the probe was answered.
    end: u64,
    /// It repeated the last segment instead of sending a new one.
    repeat: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timer {
    None,
    Reorder(Instant),
    Probe(Instant),
    Timeout(Instant),
    /// The receiver's window is closed.
    Persist(Instant),
}

impl Timer {
    fn at(self) -> Option<Instant> {
        match self {
            Timer::None => None,
            Timer::Reorder(at) | Timer::Probe(at) | Timer::Timeout(at) | Timer::Persist(at) => {
                Some(at)
            }
        }
    }
}

/// Whether the window, or something else, holds the sender back.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    full: bool,
    /// Segments under way at most, until `until` is acknowledged.
    most: u32,
    until: u64,
}

/// Changes by one acknowledgement.
#[derive(Clone, Copy, Debug, Default)]
struct News {
    delivered: u32,
    lost: u32,
    /// It acknowledged something in order, or selectively.
    advanced: bool,
    sacked: bool,
    /// A segment that was sent once, before the last reduction, was delivered.
    original: bool,
    /// The range reported as arrived twice.
    duplicate: Option<(u64, u64)>,
    rate: Option<Rate>,
    trip: Option<Duration>,
}

/// The sending half of a connection.
#[derive(Debug)]
pub(crate) struct Sender {
    control: Box<dyn Control>,
    window: Window,
    board: Scoreboard,
    rack: Rack,
    trips: RoundTrip,
    pacer: Pacer,
    phase: Phase,
    /// First unacknowledged offset, and the next one to send.
    acknowledged: u64,
    next: u64,
    /// Behind the last byte that the application sends, and behind the FIN.
    limit: u64,
    end: u64,
    mss: u32,
    burst: u32,
    buffer: u64,
    room: Room,
    /// The recovery ends when this is acknowledged.
    high: u64,
    undo: Option<Undo>,
    /// Time stamp of the recovery's first repeat.
    first_repeat: Option<u32>,
    prr: Prr,
    tail_probe: Option<TailProbe>,
    /// The timeout may have been needless: nothing has shown yet that it was not (RFC 5682).
    doubtful: bool,
    timer: Timer,
    backoff: u32,
    /// Timeouts since something was acknowledged.
    silent: u32,
    used: Use,
    mark: Mark,
    /// Segments delivered at which the application no longer holds the sender back; 0 for now.
    limited_until: u64,
    counts: Counts,
    /// Storage of [`Sender::acknowledge`].
    news: Vec<Sent>,
}

impl Sender {
    /// A sender of `config.bytes` and a FIN where `sends`, of nothing where not.
    pub fn new(config: &Config, sends: bool, seed: u64) -> Sender {
        let limit = match config.bytes {
            _ if !sends => 1,
            Some(bytes) => bytes.saturating_add(1),
            None => u64::MAX,
        };
        let fin = u64::from(sends && limit < u64::MAX);
        let control: Algorithm = config.control;
        Sender {
            control: control::new(control, seed),
            window: Window::new(),
            board: Scoreboard::default(),
            rack: Rack::new(),
            trips: RoundTrip::new(),
            pacer: Pacer::default(),
            phase: Phase::Open,
            acknowledged: 1,
            next: 1,
            limit,
            end: limit + fin,
            mss: SMALL_WINDOW,
            burst: config.burst,
            buffer: u64::from(config.send_buffer),
            room: Room::default(),
            high: 0,
            undo: None,
            first_repeat: None,
            prr: Prr::default(),
            tail_probe: None,
            doubtful: false,
            timer: Timer::None,
            backoff: 0,
            silent: 0,
            used: Use::default(),
            mark: Mark::default(),
            limited_until: 0,
            counts: Counts::default(),
            news: Vec::new(),
        }
    }

    /// The handshake is done: the peer takes segments of `mss` bytes of data and has room for
    /// `window`. `trip` is the handshake's round trip, which took `syns` SYNs.
    pub fn establish(
        &mut self,
        mss: u32,
        window: u32,
        trip: Option<Duration>,
        syns: u32,
        now: Instant,
    ) {
        self.room = Room { size: window, most: window, from: 0 };
        // Half of a small window at most (RFC 9293, section 3.8.6.2.1), or each would wait.
        self.mss = if window > SMALL_WINDOW { mss.min(window / 2) } else { mss }.max(1);
        if let Some(trip) = trip {
            self.trips.sample(trip, 1, 1);
            self.trips.note_least(trip, now);
        }
        if syns > GOOD_HANDSHAKE {
            self.window.size = 1;
        }
        self.mark = Mark { delivered: 0, delivered_at: now, first_sent: now, limited: false };
    }

    /// The application writes `bytes` more, of which the send buffer takes what it has room for. It
    /// has no other data from then on, and does not end before [`Sender::close`].
    pub fn write(&mut self, bytes: u64) {
        if self.limit == u64::MAX {
            self.limit = self.next;
        }
        let edge = self.acknowledged.saturating_add(self.buffer);
        self.limit += bytes.min(edge.saturating_sub(self.limit));
        self.end = self.limit;
    }

    /// The application has no more data: a FIN follows what was written.
    pub fn close(&mut self) {
        if self.limit == u64::MAX {
            self.limit = self.next;
        }
        self.end = self.limit + 1;
    }

    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// The next offset to send.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Behind the last byte of data; what follows is the FIN.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Whether everything was acknowledged, the FIN too.
    pub fn finished(&self) -> bool {
        self.end > self.limit && self.acknowledged >= self.end
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    pub fn smoothed(&self) -> Option<Duration> {
        self.trips.smoothed()
    }

    /// The congestion window in segments.
    pub fn window(&self) -> u32 {
        self.window.size
    }

    /// Next time at which [`Sender::transmit`] may return something by the passing of time alone.
    pub fn next_deadline(&self, now: Instant) -> Option<Instant> {
        let paced = self.pacer.wait(now).filter(|_| {
            self.board.in_flight() < self.window.size
                && (self.repeatable().is_some() || self.fresh().is_some())
        });
        self.timer.at().into_iter().chain(paced).min()
    }

    /// The segment that leaves next at `now`; `stamp` is the time stamp that it will carry.
    pub fn transmit(&mut self, stamp: u32, now: Instant) -> Option<Transmission> {
        if self.timer.at().is_some_and(|at| at <= now)
            && let Some(forced) = self.expire(stamp, now)
        {
            return Some(forced);
        }
        if self.board.in_flight() >= self.window.size {
            self.pacer.stop();
            self.note_use(true);
            return None;
        }
        if self.pacer.wait(now).is_some() {
            return None;
        }
        if let Some(start) = self.repeatable() {
            return Some(self.repeat(start, stamp, now));
        }
        let fresh = if self.board.lost() == 0 { self.fresh() } else { None };
        let Some((start, end)) = fresh else {
            self.pacer.stop();
            self.note_use(false);
            if self.board.lost() == 0 && self.next >= self.limit {
                // Delivery rates from here on are the application's.
                let all = self.mark.delivered + u64::from(self.board.in_flight());
                self.limited_until = all.max(1);
            }
            if self.board.is_empty() && self.next < self.end && self.timer == Timer::None {
                self.timer = Timer::Persist(now + self.timeout());
            }
            return None;
        };
        Some(self.send(start, end, now))
    }

    /// Start of the segment that is to be sent again, if the receiver has room for it.
    fn repeatable(&self) -> Option<u64> {
        let one = self.board.first_lost()?;
        let first = self.board.first().is_some_and(|first| first.start == one.start);
        // The first one is sent whatever the window: it asks for a new one.
        (first || one.end <= self.acknowledged + u64::from(self.room.size)).then_some(one.start)
    }

    /// The new segment that may be sent.
    fn fresh(&self) -> Option<(u64, u64)> {
        let edge = self.acknowledged + u64::from(self.room.size);
        let room = edge.saturating_sub(self.next);
        let data = u64::from(self.mss).min(self.limit.saturating_sub(self.next));
        // The FIN goes with the last byte.
        let fin = self.next + data == self.limit && self.next < self.end && self.end > self.limit;
        let len = data + u64::from(fin);
        if len == 0 || self.next - self.acknowledged >= self.buffer {
            return None;
        }
        let len = if len <= room {
            len
        } else if room > 0 && room * 2 >= u64::from(self.room.most) {
            // Half of the largest window is worth a small segment (RFC 9293, 3.8.6.2.1).
            room
        } else {
            return None;
        };
        Some((self.next, self.next + len))
    }

    fn current_mark(&mut self, now: Instant) -> Mark {
        if self.board.is_empty() {
            (self.mark.first_sent, self.mark.delivered_at) = (now, now);
        }
        Mark { limited: self.limited_until > 0, ..self.mark }
    }

    fn send(&mut self, start: u64, end: u64, now: Instant) -> Transmission {
        let mark = self.current_mark(now);
        self.board.send(start, end, mark, now);
        self.next = end;
        self.note_sent(end - start, now);
        if matches!(self.timer, Timer::None | Timer::Probe(_) | Timer::Persist(_)) {
            self.arm(now);
        }
        Transmission::Data { start, end }
    }

    fn repeat(&mut self, start: u64, stamp: u32, now: Instant) -> Transmission {
        let mark = self.current_mark(now);
        self.board.repeat(start, mark, now);
        let one = self.board.get(start);
        let (end, first) = (one.end, self.board.first().is_some_and(|first| first.start == start));
        self.counts.repeats += 1;
        self.counts.first_repeat.get_or_insert(now);
        self.first_repeat.get_or_insert(stamp);
        if let Some(undo) = &mut self.undo {
            undo.repeats = Some(undo.repeats.unwrap_or(0) + 1);
        }
        self.note_sent(end - start, now);
        if first && !matches!(self.timer, Timer::Reorder(_)) {
            self.timer = Timer::Timeout(now + self.timeout());
        }
        Transmission::Data { start, end }
    }

    fn note_sent(&mut self, bytes: u64, now: Instant) {
        if self.phase == Phase::Recovery {
            self.prr.sent += 1;
        }
        if let Some(pace) = self.control.pace(self.mss) {
            let burst = pace.burst.min(self.burst);
            self.pacer.send(bytes, Pace { burst, ..pace }, now);
        }
    }

    /// Notes whether the window holds the sender back (RFC 7661; Linux's tcp_cwnd_validate).
    fn note_use(&mut self, full: bool) {
        let all = self.board.len();
        let used = &mut self.used;
        if self.acknowledged >= used.until || full || !used.full && all > used.most {
            *used = Use { full, most: all, until: self.next };
        }
    }

    fn is_used(&self) -> bool {
        self.used.full || self.window.is_slow_start() && self.window.size < 2 * self.used.most
    }

    /// The timeout, doubled for each one that passed.
    fn timeout(&self) -> Duration {
        (self.trips.timeout() * (1 << self.backoff.min(MOST_BACKOFF))).min(RTO_MAX)
    }

    /// Starts the timer of the probe or of the timeout.
    fn arm(&mut self, now: Instant) {
        let Some(first) = self.board.first() else {
            self.timer = Timer::None;
            return;
        };
        let timeout = self.timeout();
        let left = (first.sent + timeout) - now;
        let calm = self.phase == Phase::Open && self.board.delivered() + self.board.lost() == 0;
        self.timer = match self.trips.smoothed() {
            Some(trip) if calm && self.tail_probe.is_none() => {
                // A lone segment's acknowledgement may be delayed.
                let slack = if self.board.len() == 1 { RTO_MIN } else { TICKS };
                let wait = 2 * trip + slack;
                Timer::Probe(now + if left.is_zero() { wait } else { wait.min(left) })
            }
            _ => Timer::Timeout(now + timeout),
        };
    }

    /// A timer passed. Returns what leaves whatever the congestion window says.
    fn expire(&mut self, stamp: u32, now: Instant) -> Option<Transmission> {
        match std::mem::replace(&mut self.timer, Timer::None) {
            Timer::None => None,
            Timer::Reorder(_) => {
                let recovering = self.phase != Phase::Open;
                let found = self.rack.mark(&mut self.board, &self.trips, recovering, now);
                self.counts.lost += u64::from(found.lost);
                if found.lost > 0 && self.phase != Phase::Recovery {
                    self.enter_recovery();
                    self.reduce_gradually(1, 0, false);
                }
                // The timeout counts from the first segment.
                let first = self.board.first().map(|first| first.sent + self.timeout());
                self.timer = first.map_or(Timer::None, |at| Timer::Timeout(at.max(now + TICKS)));
                None
            }
            Timer::Probe(_) => self.probe_tail(stamp, now),
            Timer::Timeout(_) => {
                self.time_out(now);
                None
            }
            Timer::Persist(_) => {
                self.backoff = (self.backoff + 1).min(MOST_BACKOFF);
                self.counts.probes += 1;
                let edge = self.acknowledged + u64::from(self.room.size);
                let end = edge.min(self.end).min(self.next + u64::from(self.mss));
                if end > self.next {
                    return Some(self.send(self.next, end, now));
                }
                self.timer = Timer::Persist(now + self.timeout());
                Some(Transmission::WindowProbe)
            }
        }
    }

    /// Acknowledgements stay away: a new segment, or the last missing one again, asks for one
    /// (RFC 8985, section 7.3). An acknowledgement that told nothing of the order in which
    /// segments left does not stop this timer, so the very last one may be there already.
    fn probe_tail(&mut self, stamp: u32, now: Instant) -> Option<Transmission> {
        let (sent, repeat) = match self.fresh() {
            Some((start, end)) => (self.send(start, end, now), false),
            None => {
                let Some(last) = self.board.last_missing() else {
                    // All that is under way was acknowledged selectively, but not in order.
                    self.time_out(now);
                    return None;
                };
                let start = last.start;
                (self.repeat(start, stamp, now), true)
            }
        };
        self.counts.probes += 1;
        self.tail_probe = Some(TailProbe { end: self.next, repeat });
        self.timer = Timer::Timeout(now + self.timeout());
        Some(sent)
    }

    fn time_out(&mut self, now: Instant) {
        self.counts.timeouts += 1;
        let ended = self.acknowledged >= self.high;
        if self.phase == Phase::Open || ended || self.phase == Phase::Loss && self.silent == 0 {
            self.begin_reduction(true);
        }
        if self.board.first().is_some_and(|first| first.fate == Fate::Delivered) {
            self.board.renege();
        }
        let before = self.board.lost();
        self.rack.time_out(&mut self.board, now);
        self.counts.lost += u64::from(self.board.lost().saturating_sub(before));
        (self.window.size, self.window.count) = (self.board.in_flight() + 1, 0);
        (self.phase, self.high) = (Phase::Loss, self.next);
        (self.tail_probe, self.doubtful) = (None, true);
        self.control.time_out();
        self.silent += 1;
        self.backoff = (self.backoff + 1).min(MOST_BACKOFF);
        self.timer = Timer::Timeout(now + self.timeout());
    }

    /// Lowers the threshold, and notes the state before. `anew` where no recovery went before.
    fn begin_reduction(&mut self, anew: bool) {
        let repeated = self.board.repeated() + u32::from(self.tail_probe.is_some_and(|p| p.repeat));
        // Linux, tcp_current_ssthresh: what was reached counts, too.
        let reached = self.window.size / 2 + self.window.size / 4;
        self.undo = Some(Undo {
            repeats: (repeated > 0).then_some(repeated),
            marker: self.acknowledged,
            window: self.window.size,
            threshold: anew.then_some(self.window.threshold.max(reached)),
        });
        self.first_repeat = None;
        self.window.threshold = self.control.reduce(&self.window, &self.connection());
        self.counts.reductions += 1;
    }

    fn enter_recovery(&mut self) {
        self.begin_reduction(true);
        self.prr = Prr { window: self.window.size, ..Prr::default() };
        self.window.count = 0;
        (self.phase, self.high, self.tail_probe) = (Phase::Recovery, self.next, None);
    }

    /// The window while losses are repaired (RFC 6937).
    fn reduce_gradually(&mut self, delivered: u32, lost: u32, advanced: bool) {
        if self.control.sets_window() || delivered == 0 || self.prr.window == 0 {
            return;
        }
        let prr = &mut self.prr;
        prr.delivered += delivered;
        let (in_flight, threshold) = (self.board.in_flight(), self.window.threshold);
        let more = if in_flight > threshold {
            let share = u64::from(threshold) * u64::from(prr.delivered);
            (share.div_ceil(u64::from(prr.window)) as u32).saturating_sub(prr.sent)
        } else {
            // Slow start towards the threshold while nothing more is lost (PRR-SSRB).
            let room = prr.delivered.saturating_sub(prr.sent).max(delivered);
            (room + u32::from(advanced && lost == 0)).min(threshold - in_flight)
        };
        // The first repeat leaves at once.
        self.window.size = in_flight + more.max(u32::from(prr.sent == 0));
    }

    fn connection(&self) -> Connection {
        Connection {
            phase: self.phase,
            in_flight: self.board.in_flight(),
            delivered: self.mark.delivered,
            delivered_at: self.mark.delivered_at,
            acknowledged: self.acknowledged,
            next: self.next,
            smoothed: self.trips.smoothed(),
            release: self.pacer.release,
            mss: self.mss,
        }
    }

    /// An acknowledgement arrived.
    ///
    /// # Errors
    /// It is of data that was never sent, or older than a window.
    pub fn acknowledge(&mut self, ack: &Ack, now: Instant) -> Result<(), Refusal> {
        let oldest = self.acknowledged.saturating_sub(u64::from(self.room.most));
        if ack.offset > self.next || ack.offset < oldest {
            return Err(Refusal::Acknowledgement);
        }
        self.update_room(ack);
        let (in_flight, before) = (self.board.in_flight(), self.acknowledged);
        let mut news = self.deliver(ack, now);
        if news.advanced {
            (self.backoff, self.silent) = (0, 0);
        }
        if let Some(rate) = &news.rate {
            self.rack.adapt(rate.before, self.mark.delivered);
        }
        self.settle_probe(ack, &news);
        let found = self.repair(ack, &news, before, now);
        news.lost += found.lost;
        self.counts.lost += u64::from(found.lost);

        let sample = Sample {
            delivered: news.delivered,
            lost: news.lost,
            in_flight_before: in_flight,
            rate: news.rate,
            trip: news.trip,
        };
        let connection = self.connection();
        let grows = news.advanced || news.sacked && self.rack.reorders();
        if self.control.sets_window() || self.phase != Phase::Recovery && grows {
            let used = self.is_used();
            self.control.acknowledge(&mut self.window, &sample, &connection, used, now);
        } else if self.phase == Phase::Recovery {
            self.reduce_gradually(news.delivered, news.lost, news.advanced);
        }
        self.set_timer(found.wait, before, &news, now);
        Ok(())
    }

    /// Takes over the window where the acknowledgement is not an old one (RFC 9293, 3.10.7.4).
    fn update_room(&mut self, ack: &Ack) {
        let room = &mut self.room;
        let newer = ack.offset > self.acknowledged
            || ack.from > room.from
            || ack.from == room.from && (ack.window > room.size || ack.window == 0);
        if newer && ack.offset >= self.acknowledged {
            *room = Room { size: ack.window, most: room.most.max(ack.window), from: ack.from };
            if matches!(self.timer, Timer::Persist(_)) && self.fresh().is_some() {
                (self.timer, self.backoff) = (Timer::None, 0);
            }
        }
    }

    /// Notes what an acknowledgement delivers: on the scoreboard, and in rates and round trips.
    fn deliver(&mut self, ack: &Ack, now: Instant) -> News {
        let mut news = News::default();
        let mut all = std::mem::take(&mut self.news);
        all.clear();
        let highest = self.board.highest;
        for (at, (start, end)) in ack.ranges.iter().copied().enumerate() {
            if start >= end || end > self.next {
                continue;
            }
            let inside = || ack.ranges.get(1).is_some_and(|(a, b)| *a <= start && end <= *b);
            if at == 0 && (start < ack.offset || inside()) {
                news.duplicate = Some((start, end));
            } else if end > self.acknowledged {
                self.board.deliver(start.max(self.acknowledged), end, &mut all);
            }
        }
        let sacked = all.len();
        self.board.acknowledge(ack.offset, &mut all);
        news.sacked = sacked > 0;
        news.advanced = ack.offset > self.acknowledged;
        self.acknowledged = self.acknowledged.max(ack.offset);

        let least = self.trips.least();
        let mut newest: Option<&Sent> = None;
        // The segment sent first and once in each group; whether a repeat was acknowledged.
        let (mut oldest, mut repeated) = ([None::<Instant>; 2], false);
        let mut lowest = u64::MAX;
        for (at, one) in all.iter().enumerate() {
            let in_order = at >= sacked;
            if in_order && one.fate == Fate::Delivered {
                continue;
            }
            news.delivered += 1;
            self.board.highest = self.board.highest.max(one.end);
            self.rack.deliver(one, least, now);
            if one.repeats == 0 {
                let oldest = &mut oldest[usize::from(in_order)];
                *oldest = Some(oldest.map_or(one.sent, |sent| sent.min(one.sent)));
                lowest = lowest.min(one.start);
                news.original |= one.end <= self.high;
            } else {
                repeated |= in_order;
            }
            if newest.is_none_or(|newest| newest.order < one.order) {
                newest = Some(one);
            }
        }
        self.mark.delivered += u64::from(news.delivered);
        if self.limited_until > 0 && self.mark.delivered > self.limited_until {
            self.limited_until = 0;
        }
        if let Some(one) = newest {
            self.mark.delivered_at = now;
            if one.repeats == 0 {
                news.trip = Some(now - one.sent);
                self.trips.note_least(now - one.sent, now);
            }
            self.mark.first_sent = one.sent;
            // The sending may have taken longer than the acknowledging, or the reverse.
            let interval = (one.sent - one.mark.first_sent).max(now - one.mark.delivered_at);
            let plausible = interval >= self.trips.least() && !interval.is_zero();
            news.rate = plausible.then_some(Rate {
                segments: self.mark.delivered - one.mark.delivered,
                interval,
                before: one.mark.delivered,
                limited: one.mark.limited,
            });
        }
        self.note_overtaking(lowest, highest);
        let [by_sack, in_order] = oldest;
        if let Some(sent) = in_order.filter(|_| !repeated).or(by_sack) {
            self.trips.sample(now - sent, self.acknowledged, self.next);
        }
        if let Some(trip) = news.trip {
            let connection = self.connection();
            self.control.round_trip(&mut self.window, trip, &connection, now);
        }
        if let Some((_, end)) = news.duplicate {
            self.note_duplicate(end);
        }
        self.news = all;
        news
    }

    /// Something at `low` was only late: later data, up to `highest`, had arrived before it.
    fn note_overtaking(&mut self, low: u64, highest: u64) {
        if low < highest {
            let behind = (highest - low).div_ceil(u64::from(self.mss));
            self.rack.note_reordering(behind.min(u64::from(u32::MAX)) as u32);
        }
    }

    /// The receiver got something twice, up to `end`.
    fn note_duplicate(&mut self, end: u64) {
        let probe = self.tail_probe.is_some_and(|probe| probe.repeat && probe.end == end);
        // A duplicate that was not made here says nothing about losses.
        if self.counts.repeats > 0 && !probe {
            self.rack.note_needless();
        }
        if let Some(Undo { repeats: Some(repeats), marker, .. }) = &mut self.undo
            && end > *marker
        {
            *repeats = repeats.saturating_sub(1);
        }
    }

    /// Takes in the outcome of the tail loss probe (RFC 8985, section 7.4).
    fn settle_probe(&mut self, ack: &Ack, news: &News) {
        let Some(probe) = self.tail_probe.filter(|probe| ack.offset >= probe.end) else { return };
        let needless = news.duplicate.is_some_and(|(_, end)| end == probe.end);
        if !probe.repeat || needless {
            self.tail_probe = None;
        } else if ack.offset > probe.end {
            // The probe repaired a loss that nothing else showed.
            self.tail_probe = None;
            self.window.threshold = self.control.reduce(&self.window, &self.connection());
            self.counts.reductions += 1;
            if !self.control.sets_window() {
                (self.window.size, self.window.count) = (self.window.threshold, 0);
            }
        } else if !news.advanced && !news.sacked {
            self.tail_probe = None;
        }
    }

    /// Whether nothing was lost, as the echo of an older time stamp or duplicates of all repeats
    /// show.
    fn may_undo(&self, ack: &Ack) -> bool {
        self.undo.is_some_and(|undo| undo.repeats == Some(0)) || self.was_delayed(ack)
    }

    /// Whether an acknowledgement in order is of an original, not of its repeat.
    fn was_delayed(&self, ack: &Ack) -> bool {
        let earlier = |first| ack.echo.is_some_and(|echo| before(echo, first));
        self.undo.is_some() && self.first_repeat.is_none_or(earlier)
    }

    fn undo_reduction(&mut self, find_lost: bool) {
        let Some(undo) = self.undo.take() else { return };
        if find_lost {
            self.board.find_lost();
        }
        if !self.control.sets_window() {
            self.window.size = self.window.size.max(undo.window);
        }
        if let Some(threshold) = undo.threshold {
            self.window.threshold = self.window.threshold.max(threshold);
        }
        self.control.undo();
        self.rack.examine();
        self.counts.undone += 1;
    }

    /// The state machine of loss recovery (Linux's tcp_fastretrans_alert).
    /// `before` is the offset up to which everything was acknowledged.
    fn repair(&mut self, ack: &Ack, news: &News, before: u64, now: Instant) -> Found {
        if self.phase == Phase::Recovery && self.acknowledged >= self.high {
            self.leave_recovery(ack);
        }
        match self.phase {
            Phase::Open => {}
            Phase::Recovery => {
                if news.advanced && self.was_delayed(ack) {
                    self.note_overtaking(before, self.board.highest);
                    if self.board.repeated() == 0 {
                        self.undo_reduction(true);
                        self.phase = Phase::Open;
                    }
                    return Found::default();
                }
            }
            Phase::Loss => self.leave_loss(ack, news),
        }
        if self.phase != Phase::Loss && self.undo.is_some_and(|undo| undo.repeats == Some(0)) {
            self.rack.note_undo();
            self.undo_reduction(false);
            self.phase = Phase::Open;
        }
        let recovering = self.phase != Phase::Open;
        let found = self.rack.detect(&mut self.board, &self.trips, recovering, now);
        let enters = match self.phase {
            Phase::Open => self.board.lost() > 0,
            Phase::Recovery => false,
            // A repeat was lost, too.
            Phase::Loss => found.again,
        };
        if enters {
            self.enter_recovery();
        }
        found
    }

    fn leave_recovery(&mut self, ack: &Ack) {
        if self.may_undo(ack) {
            self.undo_reduction(false);
        } else if !self.control.sets_window() {
            self.window.size = self.window.threshold;
        }
        self.rack.leave_recovery();
        (self.phase, self.undo) = (Phase::Open, None);
    }

    /// The timeout was needless, or all that was lost is repaired.
    fn leave_loss(&mut self, ack: &Ack, news: &News) {
        let original = self.doubtful && news.original;
        if news.advanced && self.may_undo(ack) || original {
            self.undo_reduction(true);
            self.phase = Phase::Open;
        } else if self.acknowledged >= self.high {
            (self.phase, self.undo) = (Phase::Open, None);
            self.rack.leave_recovery();
        }
        self.doubtful &= !(news.advanced || news.sacked);
    }

    fn set_timer(&mut self, wait: Option<Duration>, before: u64, news: &News, now: Instant) {
        if self.board.is_empty() {
            if !matches!(self.timer, Timer::Persist(_)) {
                self.timer = Timer::None;
            }
        } else if let Some(wait) = wait {
            self.timer = Timer::Reorder(now + (wait + TICKS).min(self.timeout()));
        } else if self.acknowledged > before
            // Deliveries behind a gap do not put off its timeout for ever.
            || news.sacked && news.trip.is_some_and(|trip| {
                self.board.first().is_some_and(|first| trip > now - first.sent)
            })
        {
            self.arm(now);
        }
    }
}
