//! A small packet model of TCP flows through one bottleneck, under a controller.
//!
//! Each flow keeps min(window, cwnd) in flight, in whole segments; a FIFO queue serves the
//! bottleneck's rate; acknowledgements return after the flow's own delay and carry the window that
//! the controller had set half a round-trip time earlier. cwnd grows by a segment per
//! acknowledgement and nothing is lost: so only windows hold flows back, which is what is to be
//! shown.

use sheaf_stage::{Duration, Instant};
use sheaf_window::{Connection, Controller, Direction, Key, Totals};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

/// Headers of a segment: Ethernet, IP, TCP with time stamps.
const HEADERS: u64 = 66;
/// Time for which the acknowledgement of a single segment is held back (RFC 9293 3.8.6.3; Linux: 40
/// ms).
const DELAYED: Duration = Duration::from_millis(40);
const STEP: Duration = Duration::from_millis(100);

/// Times of a segment: when it was sent, and when it passed the access point behind the bottleneck.
#[derive(Clone, Copy)]
struct Timed {
    sent: Instant,
    passed: Instant,
}

pub struct Flow {
    pub rtt: Duration,
    /// Limit of its application, bit/s on the wire; infinite for a download.
    pub demand: f64,
    /// Start of the flow.
    pub start: Instant,
    /// Whether only every second segment is acknowledged at once.
    delays: bool,
    /// A segment that is not acknowledged yet, and until when that waits.
    pending: Option<(Instant, Timed)>,
    connection: Connection,
    window: u64,
    coming: VecDeque<(Instant, u64)>,
    /// Arrival of each acknowledgement, its number of segments, and the segment that it times.
    acks: VecDeque<(Instant, u64, Timed)>,
    in_flight: u64,
    cwnd: u64,
    tokens: f64,
    mark: u64,
}

impl Flow {
    pub fn new(rtt: u64, demand: f64) -> Flow {
        Flow {
            rtt: Duration::from_millis(rtt),
            demand,
            start: Instant::ZERO,
            delays: false,
            pending: None,
            connection: Connection::default(),
            window: 14_480,
            coming: VecDeque::new(),
            acks: VecDeque::new(),
            in_flight: 0,
            cwnd: 10,
            tokens: 0.0,
            mark: 0,
        }
    }
}

impl Flow {
    /// The same, with acknowledgements for every second segment.
    pub fn delaying(self) -> Flow {
        Flow { delays: true, ..self }
    }
}

/// A packet every `interval`.
pub struct Stream {
    pub interval: Duration,
    /// On the wire.
    pub bytes: u64,
    next: Instant,
    /// Times at which its packets left the bottleneck, since the last mark.
    pub left: Vec<Instant>,
}

impl Stream {
    /// The first packet comes at `first`.
    pub fn new(interval: Duration, bytes: u64, first: Instant) -> Stream {
        Stream { interval, bytes, next: first, left: Vec::new() }
    }
}

/// Whose packet stands in the queue.
#[derive(Clone, Copy)]
enum Owner {
    Flow(usize),
    Stream(usize),
    Nobody,
}

struct Waiting {
    owner: Owner,
    bytes: u64,
    since: Instant,
}

pub struct Link {
    pub controller: Controller,
    pub now: Instant,
    /// bit/s
    pub rate: f64,
    /// UDP that passes first, bit/s.
    pub udp: f64,
    /// Acknowledgements wait for the next multiple of this and come together, as where a station
    /// aggregates.
    pub clump: Duration,
    pub flows: Vec<Flow>,
    pub streams: Vec<Stream>,
    /// Bytes of data in a segment.
    pub segment: u64,
    /// Step of the model's time.
    pub tick: Duration,
    queue: VecDeque<Waiting>,
    credit: f64,
    udp_credit: f64,
    totals: Totals,
    /// Packets that stood in the queue, tick by tick, since the last mark.
    waiting: (u64, u64, usize),
    next_step: Instant,
    marked: Instant,
}

pub fn key(number: usize) -> Key {
    let address = |first| IpAddr::V4(Ipv4Addr::new(first, 0, (number >> 8) as u8, number as u8));
    Key::new((address(192), 80), (address(10), 1000))
}

impl Link {
    pub fn new(controller: Controller, rate: f64, flows: Vec<Flow>) -> Link {
        Link {
            controller,
            now: Instant::from_millis(1),
            rate,
            udp: 0.0,
            clump: Duration::from_nanos(1),
            flows,
            streams: Vec::new(),
            segment: 1448,
            tick: Duration::from_micros(500),
            queue: VecDeque::new(),
            credit: 0.0,
            udp_credit: 0.0,
            totals: Totals::default(),
            waiting: (0, 0, 0),
            next_step: Instant::ZERO,
            marked: Instant::ZERO,
        }
    }

    /// Lets `seconds` pass.
    pub fn run(&mut self, seconds: f64) {
        let until = self.now + Duration::from_secs_f64(seconds);
        while self.now < until {
            self.tick();
            if self.now >= self.next_step {
                self.next_step = self.now + STEP;
                self.step();
            }
        }
    }

    /// Rates are counted from here on.
    pub fn mark(&mut self) {
        for flow in &mut self.flows {
            flow.mark = flow.connection.half[0].acked;
        }
        self.streams.iter_mut().for_each(|stream| stream.left.clear());
        (self.waiting, self.marked) = ((0, 0, 0), self.now);
    }

    /// bit/s on the wire of each flow since the mark.
    pub fn rates(&self) -> Vec<f64> {
        let seconds = (self.now - self.marked).as_secs_f64();
        let wire = (self.segment + HEADERS) as f64 / self.segment as f64;
        let rate = |flow: &Flow| (flow.connection.half[0].acked - flow.mark) as f64 * wire * 8.0;
        self.flows.iter().map(|flow| rate(flow) / seconds).collect()
    }

    /// Mean and largest number of packets in the queue since the mark.
    pub fn queue(&self) -> (f64, usize) {
        let (sum, ticks, most) = self.waiting;
        (sum as f64 / ticks.max(1) as f64, most)
    }

    fn tick(&mut self) {
        self.now += self.tick;
        let wire = self.segment + HEADERS;
        let (now, seconds) = (self.now, self.tick.as_secs_f64());
        self.udp_credit += self.udp * seconds;
        while self.udp_credit >= wire as f64 * 8.0 {
            self.udp_credit -= wire as f64 * 8.0;
            self.queue.push_back(Waiting { owner: Owner::Nobody, bytes: wire, since: now });
        }
        for (number, stream) in self.streams.iter_mut().enumerate() {
            while stream.next <= now {
                stream.next += stream.interval;
                let (owner, bytes) = (Owner::Stream(number), stream.bytes);
                self.queue.push_back(Waiting { owner, bytes, since: now });
            }
        }
        for number in 0..self.flows.len() {
            self.send(number);
        }
        self.credit += self.rate * seconds / 8.0;
        while let Some(bytes) = self.queue.front().map(|waiting| waiting.bytes as f64) {
            if self.credit < bytes {
                break;
            }
            self.credit -= bytes;
            let left = self.queue.pop_front().expect("there is one");
            self.leave(&left);
        }
        if self.queue.is_empty() {
            // A link that idles does not save up for later.
            self.credit = self.credit.min(self.rate * seconds / 8.0);
        }
        let waiting = self.queue.len();
        self.waiting.0 += waiting as u64;
        self.waiting.1 += 1;
        self.waiting.2 = self.waiting.2.max(waiting);
    }

    /// Flow `number` takes its acknowledgements and sends what it may.
    fn send(&mut self, number: usize) {
        let (now, segment, wire) = (self.now, self.segment, self.segment + HEADERS);
        let flow = &mut self.flows[number];
        if now < flow.start {
            return;
        }
        if flow.connection.half[0].rtt.count == 0 {
            // The handshake, which no data delayed yet.
            flow.connection.half[0].rtt.sample(1, now);
            flow.connection.half[1].rtt.sample(flow.rtt.as_nanos() as u64, now);
        }
        while let Some((_, window)) = flow.coming.front().filter(|(at, _)| *at <= now) {
            flow.window = *window;
            flow.coming.pop_front();
        }
        if let Some((_, timed)) = flow.pending.filter(|(until, _)| *until <= now) {
            flow.pending = None;
            flow.acks.push_back((now + flow.rtt, 1, timed));
        }
        let half = &mut flow.connection.half;
        while let Some((_, count, timed)) = flow.acks.front().copied().filter(|(at, ..)| *at <= now)
        {
            flow.acks.pop_front();
            flow.in_flight -= segment * count;
            flow.cwnd += count;
            half[0].acked += segment * count;
            // The queue is on the servers' side; on that of the clients acknowledgements wait.
            let inside = now - timed.passed - flow.rtt;
            half[0].rtt.sample(inside.as_nanos() as u64, now);
            half[1].rtt.sample((now - timed.sent - inside).as_nanos() as u64, now);
        }
        flow.tokens = (flow.tokens + flow.demand * self.tick.as_secs_f64() / 8.0).min(1e9);
        let limit = flow.window.min(flow.cwnd * segment);
        while flow.in_flight + segment <= limit && flow.tokens >= wire as f64 {
            flow.tokens -= wire as f64;
            flow.in_flight += segment;
            self.queue.push_back(Waiting { owner: Owner::Flow(number), bytes: wire, since: now });
        }
        // An application that waits does not save up for later.
        flow.tokens = flow.tokens.min(3.0 * wire as f64);
    }

    /// A packet is through the bottleneck.
    fn leave(&mut self, packet: &Waiting) {
        let (now, segment) = (self.now, self.segment);
        // A pushed segment is acknowledged at once.
        let pushes = self.controller.push();
        self.totals.wire += packet.bytes;
        self.totals.packets += 1;
        match packet.owner {
            Owner::Flow(number) => {
                let flow = &mut self.flows[number];
                let half = &mut flow.connection.half[0];
                (half.bytes, half.last) = (half.bytes + segment, now);
                half.wire += packet.bytes;
                let (back, clump) = (now + flow.rtt, self.clump.as_nanos() as u64);
                let at = Instant::from_nanos(back.as_nanos().div_ceil(clump) * clump);
                let timed = Timed { sent: packet.since, passed: now };
                match (flow.delays && !pushes, flow.pending.take()) {
                    (false, Some((_, first))) => flow.acks.push_back((at, 2, first)),
                    (false, None) => flow.acks.push_back((at, 1, timed)),
                    // Time stamps echo the first of two (RFC 7323 4.1).
                    (true, Some((_, first))) => flow.acks.push_back((at, 2, first)),
                    (true, None) => flow.pending = Some((now + DELAYED, timed)),
                }
            }
            Owner::Stream(number) => self.streams[number].left.push(now),
            Owner::Nobody => {}
        }
    }

    fn step(&mut self) {
        let now = self.now;
        for (number, flow) in self.flows.iter_mut().enumerate() {
            if now >= flow.start {
                flow.connection.half[0].mss = self.segment as u16 + 12;
                flow.connection.timestamps = true;
                self.controller.observe(key(number), &flow.connection);
            }
        }
        self.controller.observe_totals(self.totals);
        for decision in self.controller.step(now) {
            let at = decision.flow.key.inside;
            let flow = &mut self.flows[usize::from(at[14]) << 8 | usize::from(at[15])];
            assert_eq!(decision.flow.direction, Direction::In);
            flow.connection.half[0].window = decision.value;
            flow.coming.push_back((now + flow.rtt / 2, u64::from(decision.value)));
        }
    }
}

/// Jain's index of fairness: 1 when all are equal.
pub fn jain(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    sum * sum / (rates.len() as f64 * squares)
}
