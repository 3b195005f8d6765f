//! Two ends of a trunk and links between them, in virtual time: each link direction is a queue
//! with a limit, a rate, a delay and a loss.

#![allow(dead_code)] // each test file uses its part

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sheaf_stage::{Bitrate, Duration, Instant};
use sheaf_trunk::{DeliveryMode, Endpoint, EndpointConfig, Fill, LinkConfig, LinkId, Transmit};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

pub const MS: Duration = Duration::from_millis(1);
/// Bytes that the links count on top of the frame: Ethernet, IPv4 and UDP headers.
pub const CARRIER: usize = 42;
/// Bytes of these that the trunk counts: the latter two headers.
pub const KNOWN: u16 = 28;
/// An inner packet that fills an outer one of 1500 bytes.
pub const PACKET: usize = 1464;

#[derive(Clone, Copy, Debug)]
pub struct Pipe {
    pub rate: Bitrate,
    pub delay: Duration,
    /// Bytes that wait.
    pub limit: usize,
    pub loss: f64,
    pub up: bool,
    /// The delay varies by up to this, without changing the order.
    pub jitter: Duration,
    last_arrival: Instant,
    free_at: Instant,
    epoch: u32,
    pub dropped: u64,
    /// The highest share of its limit that was filled.
    pub fullest: f64,
    /// Data frames lost because the link was cut under them.
    pub cut: u64,
}

pub fn pipe(mbps: u64, delay_ms: u64) -> Pipe {
    Pipe {
        rate: Bitrate::from_mbps(mbps),
        delay: Duration::from_millis(delay_ms),
        limit: 200_000,
        loss: 0.0,
        up: true,
        jitter: Duration::ZERO,
        last_arrival: Instant::ZERO,
        free_at: Instant::ZERO,
        epoch: 0,
        dropped: 0,
        fullest: 0.0,
        cut: 0,
    }
}

impl Pipe {
    fn waiting(&self, now: Instant) -> usize {
        let time = self.free_at - now;
        (time.as_secs_f64() * self.rate.as_bps() as f64 / 8.0) as usize
    }
}

type Event = (Instant, u64, usize, usize, u32, Vec<u8>);

/// A flow, as its receiver saw it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    pub packets: u64,
    pub bytes: u64,
    pub disordered: u64,
    pub next: u32,
    pub last_at: Instant,
    pub longest_gap: Duration,
    pub longest_delay: Duration,
}

pub struct World {
    pub ends: [Endpoint; 2],
    /// By direction (from end 0, from end 1) and link.
    pub pipes: [Vec<Pipe>; 2],
    pub now: Instant,
    pub seen: Vec<Seen>,
    events: BinaryHeap<Reverse<Event>>,
    count: u64,
    random: Xoshiro256PlusPlus,
    /// Source at end 0: time between packets, size, flows.
    pub source: Option<(Duration, usize, u16)>,
    next_packet: Instant,
    numbers: Vec<u32>,
    turn: u16,
    sessions: u64,
    pub config: EndpointConfig,
    /// Marks of the baselines are lost.
    pub lose_marks: bool,
    /// The way in which the source's packets are delivered.
    pub mode: DeliveryMode,
    /// The carriers of both ends report their queues, once a millisecond and with every event.
    pub tells: bool,
    /// Reports and hellos that left: when and on which link, by direction.
    pub controls: [Vec<(Instant, usize)>; 2],
    next_tell: Instant,
    /// An end and a time until which it reads nothing: another process has its processor.
    pub stalled: Option<(usize, Instant)>,
    /// The frames that came to it in this time.
    unread: Vec<(Instant, LinkId, Vec<u8>)>,
    /// Departure times of what the TCP-like source has under way; empty for the plain one.
    pub window: Option<Window>,
}

/// A source that halves its window on a loss or on three packets out of order, like TCP.
#[derive(Clone, Debug, Default)]
pub struct Window {
    pub size: f64,
    pub sent: u32,
    pub acked: u32,
    pub recover: u32,
    /// Acknowledgements on their way back: when, what, and whether it says loss.
    pub acks: VecDeque<(Instant, u32, bool)>,
    pub received: std::collections::BTreeSet<u32>,
    pub last_progress: Instant,
}

impl World {
    pub fn new(config: EndpointConfig, pipes: &[Pipe]) -> World {
        World::with_terms(config, pipes, &vec![LinkConfig::default(); pipes.len()])
    }

    /// The same with terms for each link; what its carrier adds is known.
    pub fn with_terms(config: EndpointConfig, pipes: &[Pipe], terms: &[LinkConfig]) -> World {
        let end = |session| {
            let mut end = Endpoint::new(config.clone(), session).unwrap();
            for link in terms {
                end.add_link(LinkConfig { overhead: KNOWN, ..*link }).unwrap();
            }
            end
        };
        // The first numbers are just before the wrap.
        let ends = [end(0xffff_ff00), end(0x1_0000_0002)];
        World {
            ends,
            pipes: [pipes.to_vec(), pipes.to_vec()],
            now: Instant::ZERO,
            seen: vec![Seen::default(); 64],
            events: BinaryHeap::new(),
            count: 0,
            random: Xoshiro256PlusPlus::seed_from_u64(7),
            source: None,
            next_packet: Instant::ZERO,
            numbers: vec![0; 64],
            turn: 0,
            sessions: 100,
            config,
            lose_marks: false,
            mode: DeliveryMode::Order,
            tells: false,
            controls: [vec![], vec![]],
            next_tell: Instant::ZERO,
            stalled: None,
            unread: vec![],
            window: None,
        }
    }

    /// A source that offers `mbps` of inner packets, in `flows` flows.
    pub fn offer(&mut self, mbps: f64, size: usize, flows: u16) {
        let gap = Duration::from_secs_f64(size as f64 * 8.0 / (mbps * 1e6));
        self.source = Some((gap, size, flows));
        self.next_packet = self.now;
    }

    /// Everything that happens in the next `time`.
    pub fn run(&mut self, time: Duration) {
        let end = self.now + time;
        self.drain();
        loop {
            let awake = self.ends.iter().enumerate().filter(|(end, _)| !self.is_stalled(*end));
            let deadlines = awake.filter_map(|(_, end)| end.next_deadline()).min();
            let event = self.events.peek().map(|Reverse((at, ..))| *at);
            let source = self.source.map(|_| self.next_packet);
            let ack = self.window.as_ref().and_then(|w| w.acks.front()).map(|(at, ..)| *at);
            let tell = self.tells.then_some(self.next_tell);
            let wakes = self.stalled.map(|(_, until)| until);
            let at = [deadlines, event, source, ack, tell, wakes].into_iter().flatten().min();
            let Some(at) = at.filter(|at| *at <= end) else { break };
            assert!(at >= self.now || deadlines != Some(at), "a deadline in the past");
            self.now = at.max(self.now);
            self.step();
        }
        self.now = end;
    }

    fn step(&mut self) {
        while let Some(Reverse((at, ..))) = self.events.peek()
            && *at <= self.now
        {
            let Some(Reverse((_, _, from, link, epoch, frame))) = self.events.pop() else { break };
            let stalled = self.is_stalled(1 - from);
            let pipe = &mut self.pipes[from][link];
            let id = LinkId(link as u8);
            if !pipe.up || pipe.epoch != epoch {
                pipe.cut += u64::from(frame[0] >> 4 < 11);
            } else if stalled {
                self.unread.push((self.now, id, frame));
            } else {
                self.ends[1 - from].handle_frame(id, None, &frame, self.now);
            }
        }
        if let Some((end, until)) = self.stalled
            && until <= self.now
        {
            self.stalled = None;
            for (at, id, frame) in self.unread.drain(..) {
                self.ends[end].handle_frame_at(id, None, &frame, at, self.now);
            }
        }
        if let Some((gap, size, flows)) = self.source
            && self.next_packet <= self.now
        {
            let flow = self.turn % flows;
            self.turn = self.turn.wrapping_add(1);
            self.send(flow, size);
            self.next_packet += gap;
        }
        self.take_acks();
        self.tell();
        self.drain();
    }

    fn is_stalled(&self, end: usize) -> bool {
        self.stalled.is_some_and(|(stalled, _)| stalled == end)
    }

    fn tell(&mut self) {
        if !self.tells {
            return;
        }
        for (end, pipes) in self.ends.iter_mut().zip(&self.pipes) {
            for (link, pipe) in pipes.iter().enumerate() {
                let waiting = pipe.waiting(self.now) as u64;
                let fill = Fill { waiting, limit: pipe.limit as u64 };
                end.set_link_queue(LinkId(link as u8), Some(fill));
            }
        }
        self.next_tell = self.now + MS;
    }

    /// Offers a packet of a flow at end 0; its number and time are inside.
    pub fn send(&mut self, flow: u16, size: usize) -> bool {
        let number = self.numbers[usize::from(flow)];
        let packet = packet(flow, number, size, self.now);
        let accepted = self.ends[0].handle_packet(&packet, self.mode, self.now).is_ok();
        self.numbers[usize::from(flow)] += u32::from(accepted);
        accepted
    }

    /// Offers a packet of a call at end 0: class EF, a copy on every link.
    pub fn say(&mut self, flow: u16, size: usize) -> bool {
        let number = self.numbers[usize::from(flow)];
        let mut packet = packet(flow, number, size, self.now);
        packet[1] = 46 << 2;
        let accepted = self.ends[0].handle_packet(&packet, DeliveryMode::Copies, self.now).is_ok();
        self.numbers[usize::from(flow)] += u32::from(accepted);
        accepted
    }

    fn drain(&mut self) {
        let mut frame = Vec::new();
        for from in 0..2 {
            if self.is_stalled(from) {
                continue;
            }
            while let Some(Transmit { link, .. }) =
                self.ends[from].poll_transmit(self.now, &mut frame)
            {
                self.carry(from, usize::from(link.0), &frame);
            }
        }
        let now = self.now;
        while let Some(packet) = self.ends[1].poll_deliver(now) {
            let (flow, number, sent) = read(packet);
            let seen = &mut self.seen[usize::from(flow)];
            seen.packets += 1;
            seen.bytes += packet.len() as u64;
            seen.disordered += u64::from(number < seen.next);
            seen.next = seen.next.max(number + 1);
            if seen.packets > 1 {
                seen.longest_gap = seen.longest_gap.max(now - seen.last_at);
            }
            seen.longest_delay = seen.longest_delay.max(now - sent);
            seen.last_at = now;
            if let Some(window) = &mut self.window {
                window.arrive(number, now);
            }
        }
        while self.ends[0].poll_deliver(now).is_some() {}
        for (index, end) in self.ends.iter().enumerate() {
            let stalled = self.is_stalled(index);
            assert!(
                stalled || end.next_deadline().is_none_or(|at| at > now),
                "a deadline that has come"
            );
        }
    }

    fn carry(&mut self, from: usize, link: usize, frame: &[u8]) {
        let lost = self.random.random::<f64>() < self.pipes[from][link].loss
            || self.lose_marks && frame[0] >> 4 == 13;
        if matches!(frame[0] >> 4, 11 | 12) {
            self.controls[from].push((self.now, link));
        }
        let varied = self.random.random::<f64>();
        let pipe = &mut self.pipes[from][link];
        let bytes = pipe.waiting(self.now);
        pipe.fullest = pipe.fullest.max(bytes as f64 / pipe.limit as f64);
        if bytes + frame.len() > pipe.limit {
            pipe.dropped += 1;
            return;
        }
        let len = frame.len() + CARRIER;
        pipe.free_at = self.now.max(pipe.free_at) + pipe.rate.time_for(len as u64);
        if !lost {
            let at = pipe.free_at + pipe.delay + pipe.jitter.mul_f64(varied);
            let at = at.max(pipe.last_arrival);
            pipe.last_arrival = at;
            self.count += 1;
            let event = (at, self.count, from, link, pipe.epoch, frame.to_vec());
            self.events.push(Reverse(event));
        }
    }

    /// Cuts a link, both directions; what is on it is lost.
    pub fn cut(&mut self, link: usize) {
        for pipes in &mut self.pipes {
            pipes[link].up = false;
            pipes[link].epoch += 1;
        }
    }

    /// Mends a link.
    pub fn mend(&mut self, link: usize) {
        for pipes in &mut self.pipes {
            pipes[link].up = true;
            pipes[link].free_at = self.now;
        }
    }

    pub fn set_rate(&mut self, link: usize, mbps: u64) {
        self.pipes.iter_mut().for_each(|pipes| pipes[link].rate = Bitrate::from_mbps(mbps));
    }

    /// Starts an end anew, as after a crash.
    pub fn restart(&mut self, end: usize) {
        self.sessions += 1;
        let mut fresh = Endpoint::new(self.config.clone(), self.sessions).unwrap();
        for _ in &self.pipes[0] {
            fresh.add_link(LinkConfig { overhead: KNOWN, ..LinkConfig::default() }).unwrap();
        }
        self.ends[end] = fresh;
    }

    /// The longest time that any flow heard nothing.
    pub fn longest_gap(&self) -> Duration {
        self.seen.iter().map(|seen| seen.longest_gap).max().unwrap()
    }

    pub fn bytes(&self) -> u64 {
        self.seen.iter().map(|seen| seen.bytes).sum()
    }

    pub fn disordered(&self) -> u64 {
        self.seen.iter().map(|seen| seen.disordered).sum()
    }

    /// Forgets the disorder and the gaps of before.
    pub fn forget(&mut self) {
        for seen in &mut self.seen {
            (seen.disordered, seen.longest_gap, seen.longest_delay) = Default::default();
        }
    }

    /// Mbit/s of inner packets delivered over the next `time`.
    pub fn measure(&mut self, time: Duration) -> f64 {
        let before = self.bytes();
        self.run(time);
        (self.bytes() - before) as f64 * 8.0 / time.as_secs_f64() / 1e6
    }

    /// The share of the link rates that inner packets of full size can have.
    pub fn ideal(&self) -> f64 {
        let sum: u64 = self.pipes[0].iter().map(|pipe| pipe.rate.as_bps()).sum();
        sum as f64 / 1e6 * PACKET as f64 / (PACKET + 8 + CARRIER) as f64
    }

    /// A source of flow 0 that behaves like TCP.
    pub fn start_window(&mut self) {
        self.window = Some(Window { size: 10.0, ..Window::default() });
        self.fill_window();
    }

    fn fill_window(&mut self) {
        let Some(mut window) = self.window.take() else { return };
        while f64::from(window.sent - window.acked) < window.size {
            if !self.send(0, PACKET) {
                window.shrink();
                break;
            }
            window.sent += 1;
        }
        window.last_progress = self.now;
        self.window = Some(window);
    }

    fn take_acks(&mut self) {
        let now = self.now;
        let Some(window) = &mut self.window else { return };
        let mut came = false;
        while let Some((at, acked, lost)) = window.acks.front().copied()
            && at <= now
        {
            window.acks.pop_front();
            came = true;
            if lost {
                window.shrink();
            } else {
                window.size += 1.0 / window.size;
            }
            window.acked = window.acked.max(acked);
        }
        if came {
            self.fill_window();
        }
    }
}

impl Window {
    /// The receiver's part: a packet that is three ahead of a missing one says loss, and the
    /// missing ones are taken as repaired.
    fn arrive(&mut self, number: u32, now: Instant) {
        let mut next = self.acks.back().map_or(self.acked, |(_, acked, _)| *acked);
        self.received.insert(number);
        while self.received.remove(&next) {
            next += 1;
        }
        self.received.retain(|number| *number >= next);
        let lost = self.received.len() > 3;
        if lost {
            next = self.received.last().map_or(next, |last| last + 1);
            self.received.clear();
        }
        self.acks.push_back((now + 10 * MS, next, lost));
    }

    fn shrink(&mut self) {
        if self.acked >= self.recover {
            self.size = (self.size / 2.0).max(4.0);
            self.recover = self.sent;
        }
    }
}

fn packet(flow: u16, number: u32, size: usize, now: Instant) -> Vec<u8> {
    let mut packet = vec![0u8; size.max(40)];
    let len = packet.len() as u16;
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&len.to_be_bytes());
    packet[8] = 64;
    packet[9] = 17;
    packet[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    packet[20..22].copy_from_slice(&(5_000 + flow).to_be_bytes());
    packet[22..24].copy_from_slice(&5_000u16.to_be_bytes());
    packet[24..26].copy_from_slice(&(len - 20).to_be_bytes());
    packet[28..32].copy_from_slice(&number.to_be_bytes());
    packet[32..40].copy_from_slice(&now.as_nanos().to_be_bytes());
    packet
}

fn read(packet: &[u8]) -> (u16, u32, Instant) {
    let flow = u16::from_be_bytes([packet[20], packet[21]]) - 5_000;
    let number = u32::from_be_bytes(packet[28..32].try_into().unwrap());
    let sent = u64::from_be_bytes(packet[32..40].try_into().unwrap());
    (flow, number, Instant::from_nanos(sent))
}
