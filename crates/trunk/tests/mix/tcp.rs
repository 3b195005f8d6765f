//! TCP as Linux runs it, in packets of one size: selective acknowledgements, RACK (RFC 8985),
//! CUBIC with HyStart (RFC 9438) or a BBR of version 1; delayed acknowledgements.

use super::PACKET;
use sheaf_stage::{Duration, Instant};
use std::collections::{BTreeMap, VecDeque};

const MS: Duration = Duration::from_millis(1);
/// Linux: least retransmission timeout, and packets in flight at the start.
const RTO_MIN: Duration = Duration::from_millis(200);
const FIRST_WINDOW: f64 = 10.0;
/// Packets of the receiver's window: Linux's 6 MB.
const WINDOW: u32 = 4_200;

/// Congestion control of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Control {
    #[default]
    Cubic,
    Bbr,
}

/// An acknowledgement: everything before `next`, ranges beyond it, the time echoed.
#[derive(Clone, Debug, Default)]
pub struct Ack {
    pub next: u32,
    pub ranges: Vec<(u32, u32)>,
    pub echo: Instant,
    /// The packet had arrived before (RFC 2883).
    pub duplicate: bool,
}

/// The receiving side of a flow.
#[derive(Clone, Debug, Default)]
pub struct Receiver {
    next: u32,
    /// Start and end of what arrived beyond `next`.
    ranges: BTreeMap<u32, u32>,
    unacknowledged: u32,
    pub disordered: u64,
}

impl Receiver {
    /// Packets that arrived without a gap.
    pub fn next(&self) -> u32 {
        self.next
    }

    /// A packet arrived; returns an acknowledgement that is due.
    pub fn arrive(&mut self, number: u32, sent: Instant) -> Option<Ack> {
        let in_order = number == self.next;
        self.disordered += u64::from(number < self.next || !self.ranges.is_empty() && in_order);
        let held = self.ranges.range(..=number).next_back();
        let known = number < self.next || held.is_some_and(|(_, end)| *end > number);
        if !known {
            self.insert(number);
        }
        while let Some((start, end)) = self.ranges.first_key_value().map(|(a, b)| (*a, *b))
            && start <= self.next
        {
            self.next = self.next.max(end);
            self.ranges.remove(&start);
        }
        self.unacknowledged += 1;
        if in_order && !known && self.ranges.is_empty() && self.unacknowledged < 2 {
            return None;
        }
        self.unacknowledged = 0;
        // The range that just changed comes first, as RFC 2018 wants it.
        let mut ranges: Vec<_> = self.ranges.iter().map(|(a, b)| (*a, *b)).collect();
        ranges.sort_by_key(|(a, b)| (!(*a..*b).contains(&number), number.abs_diff(*b)));
        ranges.truncate(3);
        Some(Ack { next: self.next, ranges, echo: sent, duplicate: known })
    }

    fn insert(&mut self, number: u32) {
        let (mut start, mut end) = (number, number + 1);
        if let Some((a, b)) = self.ranges.range(..=number).next_back().map(|(a, b)| (*a, *b))
            && b == number
        {
            start = a;
        }
        if let Some(b) = self.ranges.remove(&end) {
            end = b;
        }
        self.ranges.insert(start, end);
    }
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    sent: Instant,
    delivered: bool,
    lost: bool,
    repeats: u32,
    /// For delivery rates: packets delivered when it was sent, and since when.
    before: u64,
    before_at: Instant,
    /// Sent while the sender held back, so that its rate says nothing of the path.
    limited: bool,
}

/// The sending side of a flow that always has data.
#[derive(Clone, Debug)]
pub struct Sender {
    control: Control,
    first: u32,
    next: u32,
    flight: VecDeque<Segment>,
    in_flight: u32,
    /// Segments in `flight` that were delivered, behind one that was not.
    ahead: u32,
    lost: u32,
    window: f64,
    threshold: f64,
    /// Everything before this was sent before the last reduction.
    recover: u32,
    recovering: bool,
    smoothed: Duration,
    variation: Duration,
    least: Duration,
    /// RACK: time at which the newest delivered packet was sent; whether packets overtake.
    newest: Instant,
    reordering: bool,
    highest: u32,
    reorder_at: Option<Instant>,
    /// Quarters of the least round trip that RACK waits; one more with each round of repeats that
    /// were not needed, for 16 recoveries.
    steps: u32,
    steps_left: u32,
    /// Repeats of this recovery that are not known to be needless; window and threshold before it.
    undo: Option<(u32, f64, f64)>,
    timeout_at: Instant,
    backoff: u32,
    cubic: Cubic,
    bbr: Bbr,
    delivered: u64,
    delivered_at: Instant,
    next_send: Instant,
    pub reductions: u64,
    pub timeouts: u64,
    pub repeats: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cubic {
    most: f64,
    epoch: Option<Instant>,
    k: f64,
    origin: f64,
    reno: f64,
    round_end: u32,
    round_least: Duration,
    samples: u32,
}

#[derive(Clone, Debug)]
struct Bbr {
    /// Rates (packets a second) by round, each lower than the one before it.
    rates: VecDeque<(u64, f64)>,
    round: u64,
    round_end: u64,
    full: f64,
    full_rounds: u32,
    state: BbrState,
    least_at: Instant,
    phase: usize,
    phase_at: Instant,
    probe_until: Instant,
    /// Packets delivered up to which rates are those of the sender; 0 if they are the path's.
    limited_until: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BbrState {
    StartUp,
    Drain,
    Bandwidth,
    RoundTrip,
}

const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
const HIGH_GAIN: f64 = 2.885;

impl Bbr {
    fn rate(&self) -> f64 {
        self.rates.front().map_or(0.0, |(_, rate)| *rate)
    }

    fn gain(&self) -> f64 {
        match self.state {
            BbrState::StartUp => HIGH_GAIN,
            BbrState::Drain => 1.0 / HIGH_GAIN,
            BbrState::Bandwidth => CYCLE[self.phase],
            BbrState::RoundTrip => 1.0,
        }
    }

    fn window(&self, least: Duration) -> f64 {
        let pipe = self.rate() * least.as_secs_f64();
        match self.state {
            _ if self.rate() == 0.0 => FIRST_WINDOW,
            BbrState::RoundTrip => 4.0,
            BbrState::StartUp | BbrState::Drain => (HIGH_GAIN * pipe).max(FIRST_WINDOW),
            // Three quanta for aggregated acknowledgements, as Linux has it.
            BbrState::Bandwidth => (2.0 * pipe + 3.0).max(4.0),
        }
    }

    fn sample(&mut self, rate: f64, limited: bool, before: u64, delivered: u64) {
        if before >= self.round_end {
            self.round += 1;
            self.round_end = delivered;
            if self.state == BbrState::StartUp {
                if self.rate() > 1.25 * self.full {
                    (self.full, self.full_rounds) = (self.rate(), 0);
                } else {
                    self.full_rounds += 1;
                }
            }
        }
        // Linux, `bbr_update_bw`: a rate at which the sender held back is no news unless it is
        // higher.
        if limited && rate < self.rate() {
            return;
        }
        // What is lower and older is never the highest any more.
        while self.rates.back().is_some_and(|(_, older)| *older <= rate) {
            self.rates.pop_back();
        }
        self.rates.push_back((self.round, rate));
        while self.rates.front().is_some_and(|(round, _)| self.round - round >= 10) {
            self.rates.pop_front();
        }
    }

    fn step(&mut self, in_flight: f64, least: Duration, now: Instant) {
        let pipe = self.rate() * least.as_secs_f64();
        if self.state == BbrState::StartUp && self.full_rounds >= 3 {
            self.state = BbrState::Drain;
        }
        if self.state == BbrState::Drain && in_flight <= pipe {
            (self.state, self.phase, self.phase_at) = (BbrState::Bandwidth, 2, now);
        }
        if self.state == BbrState::Bandwidth && now - self.phase_at > least {
            (self.phase, self.phase_at) = ((self.phase + 1) % CYCLE.len(), now);
        }
        if self.state == BbrState::Bandwidth && now - self.least_at > 10_000 * MS {
            (self.state, self.probe_until) = (BbrState::RoundTrip, now + 200 * MS + least);
        }
        if self.state == BbrState::RoundTrip && now > self.probe_until {
            (self.state, self.least_at) = (BbrState::Bandwidth, now);
            (self.phase, self.phase_at) = (2, now);
        }
    }
}

impl Sender {
    pub fn new(control: Control) -> Sender {
        Sender {
            control,
            first: 0,
            next: 0,
            flight: VecDeque::new(),
            in_flight: 0,
            ahead: 0,
            lost: 0,
            window: FIRST_WINDOW,
            threshold: f64::MAX,
            recover: 0,
            recovering: false,
            smoothed: Duration::ZERO,
            variation: Duration::ZERO,
            least: Duration::MAX,
            newest: Instant::ZERO,
            reordering: false,
            highest: 0,
            reorder_at: None,
            steps: 1,
            steps_left: 0,
            undo: None,
            timeout_at: Instant::MAX,
            backoff: 0,
            cubic: Cubic::default(),
            bbr: Bbr {
                rates: VecDeque::new(),
                round: 0,
                round_end: 0,
                full: 0.0,
                full_rounds: 0,
                state: BbrState::StartUp,
                least_at: Instant::ZERO,
                phase: 2,
                phase_at: Instant::ZERO,
                probe_until: Instant::ZERO,
                limited_until: 0,
            },
            delivered: 0,
            delivered_at: Instant::ZERO,
            next_send: Instant::ZERO,
            reductions: 0,
            timeouts: 0,
            repeats: 0,
        }
    }

    /// Window, round trip and counters, for people.
    pub fn state(&self) -> String {
        format!(
            "cwnd {:5.0} rtt {:4.0} cuts {} rto {} again {}",
            self.limit(),
            self.smoothed.as_secs_f64() * 1e3,
            self.reductions,
            self.timeouts,
            self.repeats
        )
    }

    fn limit(&self) -> f64 {
        match self.control {
            Control::Cubic => self.window,
            Control::Bbr => self.bbr.window(self.least).min(self.window.max(4.0)),
        }
    }

    /// The next packet to send now.
    pub fn transmit(&mut self, now: Instant) -> Option<u32> {
        if self.reorder_at.is_some_and(|at| at <= now) {
            self.detect(now);
        }
        if now >= self.timeout_at && !self.flight.is_empty() {
            self.time_out(now);
        }
        let paced = self.control == Control::Bbr && self.bbr.rate() > 0.0;
        if paced && self.next_send > now || f64::from(self.in_flight) >= self.limit() {
            return None;
        }
        let number = match self.lost {
            0 if self.next - self.first >= WINDOW => return None,
            0 => {
                self.flight.push_back(Segment {
                    sent: now,
                    delivered: false,
                    lost: false,
                    repeats: 0,
                    before: 0,
                    before_at: now,
                    limited: false,
                });
                self.next += 1;
                self.next - 1
            }
            _ => {
                let at = self.flight.iter().position(|one| one.lost && !one.delivered)?;
                self.lost -= 1;
                self.repeats += 1;
                if let Some((repeats, ..)) = &mut self.undo {
                    *repeats += 1;
                }
                self.flight[at].repeats += 1;
                self.first + at as u32
            }
        };
        if self.in_flight == 0 {
            self.delivered_at = now;
        }
        let (before, before_at) = (self.delivered, self.delivered_at);
        if self.bbr.state == BbrState::RoundTrip {
            // Linux, `bbr_update_min_rtt`: "ignore low rate samples during this mode".
            self.bbr.limited_until = (self.delivered + u64::from(self.in_flight)).max(1);
        }
        let limited = self.bbr.limited_until > 0;
        let segment = &mut self.flight[(number - self.first) as usize];
        (segment.sent, segment.lost) = (now, false);
        (segment.before, segment.before_at, segment.limited) = (before, before_at, limited);
        self.in_flight += 1;
        if paced {
            let gap = Duration::from_secs_f64(1.0 / (self.bbr.gain() * self.bbr.rate()));
            self.next_send = self.next_send.max(now - MS) + gap;
        }
        if self.timeout_at == Instant::MAX {
            self.arm(now);
        }
        Some(number)
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        let timeout = (!self.flight.is_empty()).then_some(self.timeout_at);
        let room = f64::from(self.in_flight) < self.limit();
        let paced = self.control == Control::Bbr && room && self.bbr.rate() > 0.0;
        let waits = self.lost > 0 || self.next - self.first < WINDOW;
        let first = (self.next == 0).then_some(Instant::ZERO);
        let pace = (paced && waits).then_some(self.next_send);
        [timeout, self.reorder_at, pace, first].into_iter().flatten().min()
    }

    fn arm(&mut self, now: Instant) {
        let rto = (self.smoothed + (4 * self.variation).max(RTO_MIN)).max(RTO_MIN);
        let rto = if self.smoothed.is_zero() { 1_000 * MS } else { rto };
        self.timeout_at = now + rto * (1 << self.backoff.min(6));
    }

    fn time_out(&mut self, now: Instant) {
        self.timeouts += 1;
        self.backoff += 1;
        for one in self.flight.iter_mut().filter(|one| !one.delivered && !one.lost) {
            one.lost = true;
            self.lost += 1;
        }
        self.in_flight = 0;
        if self.control == Control::Cubic {
            self.reduce();
            self.window = 1.0;
        }
        self.recovering = true;
        self.recover = self.next;
        self.reorder_at = None;
        self.arm(now);
    }

    /// A repeat was not needed: RACK becomes more patient, and a reduction for nothing is undone.
    fn note_duplicate(&mut self) {
        self.reordering = true;
        if self.steps_left < 16 || self.recovering {
            let most = (4.0 * self.smoothed.as_secs_f64() / self.least.as_secs_f64()) as u32;
            self.steps = (self.steps + 1).min(most.max(1));
            self.steps_left = 16;
        }
        if let Some((repeats, window, threshold)) = &mut self.undo {
            *repeats = repeats.saturating_sub(1);
            if *repeats == 0 {
                self.window = self.window.max(*window);
                self.threshold = *threshold;
                self.undo = None;
            }
        }
    }

    pub fn acknowledge(&mut self, ack: &Ack, now: Instant) {
        if ack.duplicate {
            self.note_duplicate();
        }
        let mut news = 0;
        let mut sample = None;
        let mut newly = |sender: &mut Sender, number: u32| {
            let Some(at) = number.checked_sub(sender.first) else { return };
            let Some(segment) = sender.flight.get_mut(at as usize) else { return };
            if std::mem::replace(&mut segment.delivered, true) {
                return;
            }
            let segment = *segment;
            news += 1;
            sender.ahead += 1;
            if segment.lost {
                sender.lost -= 1;
            } else {
                sender.in_flight -= 1;
            }
            if number < sender.highest && segment.repeats == 0 {
                sender.reordering = true;
            }
            sender.highest = sender.highest.max(number);
            sender.delivered += 1;
            sender.delivered_at = now;
            // A repeat that is acknowledged too soon was not needed (RFC 8985, section 6.2).
            if segment.repeats == 0 || now - segment.sent >= sender.least {
                sender.newest = sender.newest.max(segment.sent);
            }
            sample = Some((segment.before, segment.before_at, segment.limited));
        };
        for number in self.first..ack.next.max(self.first) {
            newly(self, number);
        }
        for (start, end) in &ack.ranges {
            for number in *start..*end {
                newly(self, number);
            }
        }
        while self.flight.front().is_some_and(|one| one.delivered) {
            self.flight.pop_front();
            self.ahead -= 1;
            self.first += 1;
        }
        if news == 0 {
            return;
        }
        self.note_round_trip(now - ack.echo, now);
        (self.backoff, self.timeout_at) = (0, Instant::MAX);
        self.arm(now);
        if self.recovering && self.first >= self.recover {
            self.recovering = false;
        }
        self.detect(now);
        match self.control {
            Control::Cubic => self.grow(news, ack.next, now),
            Control::Bbr => self.learn(sample, news, now),
        }
    }

    fn learn(&mut self, sample: Option<(u64, Instant, bool)>, news: u32, now: Instant) {
        if self.delivered > self.bbr.limited_until {
            self.bbr.limited_until = 0;
        }
        if let Some((before, at, limited)) = sample {
            let elapsed = (now - at).max(self.least);
            let rate = (self.delivered - before) as f64 / elapsed.as_secs_f64();
            self.bbr.sample(rate, limited, before, self.delivered);
        }
        // After losses one packet for each delivered, for a round (RFC draft, "packet
        // conservation").
        self.window = if self.recovering && self.window < f64::from(self.next - self.first) {
            (f64::from(self.in_flight) + f64::from(news)).max(self.window)
        } else {
            self.window + f64::from(news)
        };
        self.window = self.window.clamp(4.0, 1e6);
        let in_flight = f64::from(self.in_flight);
        self.bbr.step(in_flight, self.least, now);
    }

    fn note_round_trip(&mut self, sample: Duration, now: Instant) {
        if sample < self.least || now - self.bbr.least_at > 12_000 * MS {
            (self.least, self.bbr.least_at) = (sample, now);
        }
        if self.smoothed.is_zero() {
            (self.smoothed, self.variation) = (sample, sample / 2);
        } else {
            self.variation = (3 * self.variation + self.smoothed.abs_diff(sample)) / 4;
            self.smoothed = (7 * self.smoothed + sample) / 8;
        }
        let cubic = &mut self.cubic;
        cubic.samples += 1;
        if cubic.samples <= 8 {
            cubic.round_least = cubic.round_least.min(sample);
        }
    }

    /// RACK: what was sent well before something delivered is lost.
    fn detect(&mut self, now: Instant) {
        self.reorder_at = None;
        let window = if self.reordering {
            (self.steps * self.least / 4).min(self.smoothed)
        } else {
            Duration::ZERO
        };
        if !self.reordering && self.ahead < 3 && !self.recovering {
            return;
        }
        let (mut losses, mut wait) = (0, None::<Instant>);
        let (newest, trip) = (self.newest, self.smoothed);
        for one in self.flight.iter_mut().filter(|one| !one.delivered && !one.lost) {
            if one.sent >= newest {
                // Packets that were not repeated stand in the order of their sending.
                if one.repeats == 0 {
                    break;
                }
                continue;
            }
            if newest - one.sent > window || now - one.sent > trip + window {
                one.lost = true;
                losses += 1;
            } else {
                let at = one.sent + trip + window + MS;
                wait = Some(wait.map_or(at, |wait| wait.min(at)));
            }
        }
        self.reorder_at = wait.map(|at| at.max(now + MS));
        self.lost += losses;
        self.in_flight -= losses;
        if losses > 0 && !self.recovering {
            (self.recovering, self.recover) = (true, self.next);
            self.reductions += 1;
            self.undo = Some((0, self.window, self.threshold));
            self.steps_left = self.steps_left.saturating_sub(1);
            if self.steps_left == 0 {
                self.steps = 1;
            }
            if self.control == Control::Cubic {
                self.reduce();
            }
        }
    }

    fn reduce(&mut self) {
        let cubic = &mut self.cubic;
        // Fast convergence (RFC 9438, section 4.7).
        cubic.most = if self.window < cubic.most { 0.85 * self.window } else { self.window };
        self.window = (0.7 * self.window).max(2.0);
        self.threshold = self.window;
        cubic.epoch = None;
    }

    fn grow(&mut self, news: u32, next: u32, now: Instant) {
        if self.recovering {
            return;
        }
        // A window that is not used does not grow.
        if f64::from(self.in_flight + news) < 0.5 * self.window {
            return;
        }
        let cubic = &mut self.cubic;
        if self.window < self.threshold {
            self.window += f64::from(news);
            if next >= cubic.round_end {
                let limit = self.least + (self.least / 8).clamp(4 * MS, 16 * MS);
                if cubic.samples >= 8 && cubic.round_least >= limit && self.window >= 16.0 {
                    self.threshold = self.window;
                }
                (cubic.round_end, cubic.samples) = (self.next, 0);
                cubic.round_least = Duration::MAX;
            }
            return;
        }
        let start = *cubic.epoch.get_or_insert_with(|| {
            cubic.origin = cubic.most.max(self.window);
            cubic.k = libm::cbrt((cubic.origin - self.window) / 0.4);
            cubic.reno = self.window;
            now
        });
        let t = (now - start + self.least).as_secs_f64();
        let target = cubic.origin + 0.4 * libm::pow(t - cubic.k, 3.0);
        cubic.reno += 3.0 * 0.3 / 1.7 * f64::from(news) / self.window;
        let target = target.max(cubic.reno).clamp(self.window, 1.5 * self.window);
        self.window += f64::from(news) * (target - self.window) / self.window;
    }
}

/// A packet of UDP: an IPv4 header and ports, by which a trunk knows its flow.
pub fn packet(flow: u16, len: usize, class: u8) -> Vec<u8> {
    let mut packet = vec![0u8; len];
    (packet[0], packet[1], packet[8], packet[9]) = (0x45, class, 64, 17);
    packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    packet[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    packet[20..22].copy_from_slice(&(5_000 + flow).to_be_bytes());
    packet[22..24].copy_from_slice(&5_000u16.to_be_bytes());
    packet[24..26].copy_from_slice(&(len as u16 - 20).to_be_bytes());
    packet
}

/// Words of TCP's header with all the options that there can be.
const TCP_WORDS: u8 = 15;
/// Bytes of the headers of a segment, IPv4 and TCP.
const HEADERS: usize = 20 + 4 * TCP_WORDS as usize;

/// A segment of TCP. Its number is where TCP has its own; the rest is where a trunk does not look.
fn segment(flow: usize, len: usize, number: u32, at: Instant) -> Vec<u8> {
    let mut packet = packet(flow as u16, len, 0);
    packet[9] = 6;
    packet[24..28].copy_from_slice(&number.to_be_bytes());
    // The length of the header, and the flag ACK.
    (packet[32], packet[33]) = (TCP_WORDS << 4, 0x10);
    packet[34..42].copy_from_slice(&at.as_nanos().to_be_bytes());
    packet
}

/// Flow, whether its data goes from host 1 to host 0, and whether this is an acknowledgement.
pub fn kind(packet: &[u8]) -> (u16, bool, bool) {
    let flow = u16::from_be_bytes([packet[20], packet[21]]) - 5_000;
    (flow, packet[28] & 1 != 0, packet[28] & 2 != 0)
}

pub fn data(from: usize, flow: usize, number: u32, now: Instant) -> Vec<u8> {
    let mut packet = segment(flow, PACKET, number, now);
    packet[28] = from as u8;
    packet
}

pub fn read_data(packet: &[u8]) -> (u32, Instant) {
    (word(packet, 24), time(packet))
}

pub fn ack(direction: usize, flow: usize, ack: &Ack) -> Vec<u8> {
    let mut packet = segment(flow, HEADERS, ack.next, ack.echo);
    packet[28] = direction as u8 | 2;
    packet[29] = ack.ranges.len() as u8;
    packet[30] = u8::from(ack.duplicate);
    for (at, (start, end)) in ack.ranges.iter().enumerate() {
        packet[44 + 8 * at..48 + 8 * at].copy_from_slice(&start.to_be_bytes());
        packet[48 + 8 * at..52 + 8 * at].copy_from_slice(&end.to_be_bytes());
    }
    packet
}

pub fn read_ack(packet: &[u8]) -> Ack {
    let range = |at: usize| (word(packet, 44 + 8 * at), word(packet, 48 + 8 * at));
    let ranges = (0..usize::from(packet[29])).map(range).collect();
    Ack { next: word(packet, 24), ranges, echo: time(packet), duplicate: packet[30] != 0 }
}

fn time(packet: &[u8]) -> Instant {
    Instant::from_nanos(u64::from_be_bytes(packet[34..42].try_into().unwrap()))
}

fn word(packet: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(packet[at..at + 4].try_into().unwrap())
}
