//! A small packet model of TCP flows through one bottleneck, under a controller.
//!
//! Each flow keeps min(window, cwnd) in flight, in whole segments; a FIFO queue serves the
//! bottleneck's rate; acknowledgements return after the flow's own delay and tell the window that the
//! controller had set half a round-trip time earlier. cwnd grows by a segment per acknowledgement and
//! nothing is lost: so only windows hold flows back, which is what is to be shown.

use sheaf_stage::{Duration, Instant};
use sheaf_window::{Connection, Controller, Direction, Key, Totals};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

pub const SEGMENT: u64 = 1448;
pub const WIRE: u64 = 1514;
const TICK: Duration = Duration::from_micros(500);
const STEP: Duration = Duration::from_millis(100);

pub struct Flow {
    pub rtt: Duration,
    /// What its application sends at most, bit/s on the wire; infinite for a download.
    pub demand: f64,
    /// When it begins.
    pub start: Instant,
    connection: Connection,
    window: u64,
    coming: VecDeque<(Instant, u64)>,
    acks: VecDeque<(Instant, Instant)>,
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
            connection: Connection::default(),
            window: 10 * SEGMENT,
            coming: VecDeque::new(),
            acks: VecDeque::new(),
            in_flight: 0,
            cwnd: 10,
            tokens: 0.0,
            mark: 0,
        }
    }
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
    queue: VecDeque<(Option<usize>, Instant)>,
    credit: f64,
    udp_credit: f64,
    totals: Totals,
    /// Packets that stood in the queue, tick by tick, since the last mark.
    waiting: (u64, u64, usize),
    next_step: Instant,
    marked: Instant,
}

fn key(number: usize) -> Key {
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
        (self.waiting, self.marked) = ((0, 0, 0), self.now);
    }

    /// bit/s on the wire of each flow since the mark.
    pub fn rates(&self) -> Vec<f64> {
        let seconds = (self.now - self.marked).as_secs_f64();
        let rate = |flow: &Flow| {
            let segments = (flow.connection.half[0].acked - flow.mark) as f64 / SEGMENT as f64;
            segments * WIRE as f64 * 8.0 / seconds
        };
        self.flows.iter().map(rate).collect()
    }

    /// Mean and largest number of packets in the queue since the mark.
    pub fn queue(&self) -> (f64, usize) {
        let (sum, ticks, most) = self.waiting;
        (sum as f64 / ticks.max(1) as f64, most)
    }

    fn tick(&mut self) {
        self.now += TICK;
        let (now, seconds) = (self.now, TICK.as_secs_f64());
        self.udp_credit += self.udp * seconds;
        while self.udp_credit >= WIRE as f64 * 8.0 {
            self.udp_credit -= WIRE as f64 * 8.0;
            self.queue.push_back((None, now));
        }
        for (number, flow) in self.flows.iter_mut().enumerate() {
            if now < flow.start {
                continue;
            }
            while let Some((_, window)) = flow.coming.front().filter(|(at, _)| *at <= now) {
                flow.window = *window;
                flow.coming.pop_front();
            }
            let half = &mut flow.connection.half;
            while let Some((_, sent)) = flow.acks.front().copied().filter(|(at, _)| *at <= now) {
                flow.acks.pop_front();
                flow.in_flight -= SEGMENT;
                flow.cwnd += 1;
                half[0].acked += SEGMENT;
                half[0].rtt.sample((now - sent).as_nanos() as u64, now);
                half[1].rtt.sample(1, now);
            }
            flow.tokens = (flow.tokens + flow.demand * seconds / 8.0).min(1e9);
            let limit = flow.window.min(flow.cwnd * SEGMENT);
            while flow.in_flight + SEGMENT <= limit && flow.tokens >= WIRE as f64 {
                flow.tokens -= WIRE as f64;
                flow.in_flight += SEGMENT;
                self.queue.push_back((Some(number), now));
            }
            // An application that waits does not save up for later.
            flow.tokens = flow.tokens.min(3.0 * WIRE as f64);
        }
        self.credit += self.rate * seconds / 8.0;
        while self.credit >= WIRE as f64 {
            let Some((flow, sent)) = self.queue.pop_front() else {
                self.credit = self.credit.min(WIRE as f64);
                break;
            };
            self.credit -= WIRE as f64;
            self.totals.wire += WIRE;
            self.totals.packets += 1;
            if let Some(flow) = flow {
                let flow = &mut self.flows[flow];
                let half = &mut flow.connection.half[0];
                (half.bytes, half.wire, half.last) = (half.bytes + SEGMENT, half.wire + WIRE, now);
                let (back, clump) = (now + flow.rtt, self.clump.as_nanos() as u64);
                let at = Instant::from_nanos(back.as_nanos().div_ceil(clump) * clump);
                flow.acks.push_back((at, sent));
            }
        }
        let waiting = self.queue.len();
        self.waiting.0 += waiting as u64;
        self.waiting.1 += 1;
        self.waiting.2 = self.waiting.2.max(waiting);
    }

    fn step(&mut self) {
        let now = self.now;
        for (number, flow) in self.flows.iter_mut().enumerate() {
            if now >= flow.start {
                flow.connection.half[0].mss = 1460;
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
