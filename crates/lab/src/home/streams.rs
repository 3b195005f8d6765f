//! Streams of UDP, the same on both engines: the beat on which each is sent, and the quality of
//! what arrives.

use super::pattern::Pattern;
use super::plan::{LEAST_BYTES, Packets, Role, Scenario, Stream, Times};
use crate::measured::Series;
use crate::view::Axis;
use sheaf_stage::{Duration, Instant};
use sheaf_voice::emodel::Codec;
use sheaf_voice::meter::Meter;
use sheaf_voice::packet::Stamp;
use sheaf_voice::playout::Heard;
use sheaf_wire::flow::mix;

/// Seconds of a curve at most, which bounds the memory whatever a packet says: those of the longest
/// plan.
const MOST_SECONDS: u64 = 1_000_000;

/// A stream as it is sent.
#[derive(Clone, Debug)]
pub struct Beat {
    /// Role of the stream.
    pub role: Role,
    codec: Codec,
    pattern: Pattern,
    first: Instant,
}

impl Beat {
    /// The streams of packets of `scenario`. Each begins later than the plan says by a part of its
    /// interval that `seed` decides: which packets meet in the queue depends on it.
    pub fn all(scenario: &Scenario, times: &Times, seed: u64) -> Vec<Beat> {
        let beat = |(number, stream): (u64, &Stream)| {
            let draw = mix(mix(seed) ^ (number + 1));
            let regular = |packets: &Packets| {
                let interval = Duration::from_secs_f64(packets.interval / 1e3);
                (interval, Pattern::regular(interval, packets.bytes as u16), Codec::G711)
            };
            let (role, (interval, pattern, codec)) = match stream {
                Stream::Stream(packets) => (Role::Stream, regular(packets)),
                Stream::Game(packets) => (Role::Game, regular(packets)),
                Stream::Call(packets) => (Role::Call, regular(packets)),
                Stream::Poisson(packets) => {
                    let mean = Duration::from_secs_f64(packets.interval / 1e3);
                    let length = times.until - times.started;
                    let bytes = packets.bytes as u16;
                    let pattern = Pattern::poisson(mean, bytes, length, mix(draw));
                    (Role::Poisson, (mean, pattern, Codec::G711))
                }
                Stream::Capture(replay) => {
                    let capture = replay.call.as_deref()?;
                    let pattern = Pattern::captured(capture);
                    (Role::Capture, (capture.gap(), pattern, capture.codec))
                }
                Stream::Web(_) | Stream::Request(_) => return None,
            };
            let phase = Duration::from_nanos(draw % (interval.as_nanos() as u64).max(1));
            let first = times.at(stream.start()) + phase;
            Some(Beat { role, codec, pattern, first })
        };
        (0..).zip(&scenario.streams).filter_map(beat).collect()
    }

    /// Time at which packet `number` is sent.
    pub fn due(&self, number: u32) -> Instant {
        self.first + self.pattern.offset(number)
    }

    /// Writes the payload of packet `number` of stream `flow`, sent at `now`, to the beginning of
    /// `buffer` and returns it: at least the 32 bytes that its time stamp needs. Bytes behind the
    /// stamp stay as they are.
    pub fn payload<'a>(
        &self,
        flow: usize,
        number: u32,
        now: Instant,
        buffer: &'a mut [u8],
    ) -> &'a [u8] {
        let stamp = Stamp { flow: flow as u32, number, sent: now };
        let bytes = self.pattern.bytes(number).max(LEAST_BYTES);
        // A packet with room for it has the header of a call with G.711, whatever its codec.
        let codec = if bytes < Stamp::len(Codec::G711) { Codec::G729A } else { Codec::G711 };
        stamp.emit(codec, &mut buffer[..Stamp::len(codec)]);
        &buffer[..bytes]
    }
}

/// Packets that arrived.
#[derive(Debug)]
pub struct Received {
    beats: Vec<Beat>,
    started: Instant,
    meters: Vec<Meter>,
    /// Numbers of game packets and their times of arrival.
    game: Vec<(u32, Instant)>,
    /// By stream, and second since the start: bytes of payload that arrived in it, and packets that
    /// were due in it and arrived.
    seconds: Vec<Vec<(u64, u32)>>,
}

/// Quality of the streams.
#[derive(Debug, Default)]
pub struct Quality {
    /// Pairs of consecutive game packets: arrival of the second, and the time since the first.
    pub gaps: Vec<(Instant, Duration)>,
    /// One-way delay that 99 % of the game's packets do not exceed.
    pub delay: Option<Duration>,
    /// One-way delay that 99 % of the packets at random times do not exceed.
    pub poisson_delay: Option<Duration>,
    /// Share of packets lost, by role; NaN where there is no such stream.
    pub loss: [f64; Role::ALL.len()],
    /// Rating of the call.
    pub r: f64,
    /// Rating of the replayed call.
    pub capture_r: f64,
    /// Rate and loss of each stream over time.
    pub curves: Vec<Series>,
}

impl Received {
    /// Nothing yet of `beats`, in a run that began at `started`.
    pub fn new(beats: Vec<Beat>, started: Instant) -> Received {
        Received {
            meters: beats.iter().map(|_| Meter::default()).collect(),
            seconds: beats.iter().map(|_| Vec::new()).collect(),
            game: Vec::new(),
            beats,
            started,
        }
    }

    /// A packet with `payload` arrived at `now`; a foreign one is not counted.
    pub fn arrived(&mut self, payload: &[u8], now: Instant) {
        let Some(stamp) = Stamp::parse(payload) else { return };
        let Some(beat) = self.beats.get(stamp.flow as usize) else { return };
        let due = beat.due(stamp.number);
        self.meters[stamp.flow as usize].arrived(stamp, now);
        if beat.role == Role::Game {
            self.game.push((stamp.number, now));
        }
        if let Some(second) = self.second(stamp.flow as usize, now) {
            second.0 += payload.len() as u64;
        }
        if let Some(second) = self.second(stamp.flow as usize, due) {
            second.1 += 1;
        }
    }

    /// The counts of stream `flow` in the second of `at`.
    fn second(&mut self, flow: usize, at: Instant) -> Option<&mut (u64, u32)> {
        let number = (at - self.started).as_secs();
        let seconds = &mut self.seconds[flow];
        if number < MOST_SECONDS && seconds.len() as u64 <= number {
            seconds.resize(number as usize + 1, (0, 0));
        }
        seconds.get_mut(number as usize)
    }

    /// The quality, when so many packets of each stream were `sent`.
    pub fn quality(&self, sent: &[u32]) -> Quality {
        let follow = |pair: &[(u32, Instant)]| {
            (pair[1].0 == pair[0].0 + 1).then(|| (pair[1].1, pair[1].1 - pair[0].1))
        };
        let find = |role: Role| self.beats.iter().position(|beat| beat.role == role);
        let of = |role: Role| find(role).map(|at| (&self.meters[at], u64::from(sent[at])));
        let delay = |role| of(role).map(|(meter, _)| meter.delay_quantile(0.99));
        let rating = |role| {
            find(role).map_or(f64::NAN, |at| {
                let (codec, sent) = (self.beats[at].codec, u64::from(sent[at]));
                Heard::best(codec, &self.meters[at], sent).r
            })
        };
        Quality {
            gaps: self.game.windows(2).filter_map(follow).collect(),
            delay: delay(Role::Game),
            poisson_delay: delay(Role::Poisson),
            loss: Role::ALL.map(|role| of(role).map_or(f64::NAN, |(meter, sent)| meter.loss(sent))),
            r: rating(Role::Call),
            capture_r: rating(Role::Capture),
            curves: (0..self.beats.len()).flat_map(|at| self.curves(at, sent[at])).collect(),
        }
    }

    /// Rate and loss of stream `at`, of which `sent` packets were sent, second by second.
    fn curves(&self, at: usize, sent: u32) -> [Series; 2] {
        let beat = &self.beats[at];
        let second = |time: Instant| (time - self.started).as_secs();
        let mut due = Vec::new();
        for number in 0..sent {
            let second = second(beat.due(number)) as usize;
            due.resize(due.len().max(second + 1), 0u32);
            due[second] += 1;
        }
        let all = due.iter().enumerate().filter(|(_, due)| **due > 0);
        let counted = |second: usize| self.seconds[at].get(second).copied().unwrap_or_default();
        let (mut rates, mut losses) = (Vec::new(), Vec::new());
        for (second, due) in all {
            let ((bytes, arrived), middle) = (counted(second), second as f64 + 0.5);
            rates.push((middle, bytes as f64 * 8.0 / 1e6));
            losses.push((middle, 100.0 * f64::from(due.saturating_sub(arrived)) / f64::from(*due)));
        }
        let name = beat.role.name();
        let curve = |what: &str, y, points| Series {
            name: format!("{what} of the {name}"),
            x: Axis::new("time", "s"),
            y,
            points,
        };
        [
            curve("Rate", Axis::new("payload", "Mbit/s"), rates),
            curve("Loss", Axis::new("packets lost", "%"), losses),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::home::capture::Capture;
    use crate::home::plan::Replay;
    use crate::plan::Plan;
    use std::sync::Arc;

    fn scenario(streams: Vec<Stream>) -> Scenario {
        let Plan::Home(plan) = Plan::find("home-ap").unwrap() else { panic!("a home") };
        Scenario { streams, ..plan.scenarios[0].clone() }
    }

    const GAME: Packets = Packets { interval: 40.0, bytes: 200, start: 2.0 };

    /// Times of a run from `started` on, of which a second takes `scale` seconds.
    fn times(started: Instant, scale: f64) -> Times {
        let until = started + Duration::from_secs(60);
        Times {
            started,
            bulk: started,
            together: started,
            counted: started,
            until,
            last: until,
            scale,
        }
    }

    #[test]
    fn a_seed_moves_each_stream_within_its_interval_and_nothing_else() {
        let scenario = scenario(vec![Stream::Game(GAME), Stream::Game(GAME)]);
        let times = times(Instant::from_millis(1_000), 0.5);
        let beats = |seed| Beat::all(&scenario, &times, seed);
        for seed in 0..100 {
            for beat in beats(seed) {
                let phase = beat.due(0) - Instant::from_millis(2_000);
                assert!(beat.due(0) >= Instant::from_millis(2_000), "{seed}");
                assert!(phase < Duration::from_millis(40), "{seed}: {phase:?}");
                assert_eq!(beat.due(5) - beat.due(0), Duration::from_millis(200));
            }
            let (both, other) = (beats(seed), beats(seed + 1));
            assert_ne!(both[0].due(0), both[1].due(0), "two streams have two phases");
            assert_ne!(both[0].due(0), other[0].due(0), "two seeds have two phases");
        }
    }

    #[test]
    fn a_replayed_call_is_sent_as_captured_and_rated_like_a_call() {
        let call = Capture::parse(include_bytes!("../../tests/call.pcap")).unwrap();
        let replay = Replay {
            file: "call.pcap".into(),
            sha256: None,
            start: 0.0,
            call: Some(Arc::new(call.clone())),
        };
        let streams = vec![Stream::Capture(replay), Stream::Poisson(GAME)];
        let started = Instant::from_millis(1_000);
        let beats = Beat::all(&scenario(streams), &times(started, 1.0), 7);
        let (mut received, mut buffer) = (Received::new(beats.clone(), started), [0; 1500]);
        for number in 0..50 {
            let at = number as usize;
            let sent = beats[0].due(number);
            assert_eq!(sent - beats[0].due(0), call.offsets[at]);
            let payload = beats[0].payload(0, number, sent, &mut buffer);
            assert_eq!(payload.len(), usize::from(call.sizes[at]));
            if number % 10 != 9 {
                received.arrived(payload, sent + Duration::from_millis(30));
            }
        }
        let quality = received.quality(&[50, 0]);
        assert!((quality.loss[Role::Capture as usize] - 0.1).abs() < 1e-9);
        let clean = Codec::G711.r(30.0 + Codec::G711.delay_ms(), 0.0, 1.0);
        assert!(quality.capture_r > 20.0 && quality.capture_r < clean - 20.0, "{quality:?}");
        assert!(quality.r.is_nan(), "there was no other call");
    }

    #[test]
    fn rate_and_loss_over_time_are_those_of_the_second_in_which_packets_were_sent() {
        let started = Instant::from_millis(1_000);
        let beats = Beat::all(&scenario(vec![Stream::Game(GAME)]), &times(started, 1.0), 7);
        let mut received = Received::new(beats.clone(), started);
        let mut buffer = [0; 1500];
        // 25 packets a second from 2 s on; of the second second every fifth is lost, the last one
        // arrives late.
        for number in (0..75).filter(|number| !(25..50).contains(number) || number % 5 != 0) {
            let sent = beats[0].due(number);
            let late = Duration::from_millis(if number == 74 { 3_000 } else { 1 });
            received.arrived(beats[0].payload(0, number, sent, &mut buffer), sent + late);
        }
        received.arrived(&[0; 40], started);
        let quality = received.quality(&[75]);
        assert!((quality.loss[Role::Game as usize] - 5.0 / 75.0).abs() < 1e-9);
        let [rate, loss] = &quality.curves[..] else { panic!("{:?}", quality.curves) };
        assert_eq!((&*rate.name, &*loss.name), ("Rate of the game", "Loss of the game"));
        let of = |series: &Series| series.points.iter().map(|(_, y)| *y).collect::<Vec<_>>();
        assert_eq!(loss.points[0].0, 2.5);
        assert_eq!(of(loss), [0.0, 20.0, 0.0]);
        let mbit = |packets: f64| packets * 200.0 * 8.0 / 1e6;
        assert_eq!(of(rate), [mbit(25.0), mbit(20.0), mbit(24.0)]);
    }
}
