//! A link under a virtual clock: frames of the size that the estimate allows are sent over it, and
//! lost by bit errors and collisions.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sheaf_quality::size::{FRAME_OVERHEAD, frame_error_rate, goodput};
use sheaf_quality::{Config, Modulation, Quality, Sample, Transmitted};
use sheaf_stage::{Duration, Instant};

/// Transmissions of a frame before it is given up (IEEE 802.11's retry limit and the first one).
const ATTEMPTS: u32 = 8;
/// HELLOs that a ratio is taken over.
const HELLOS: usize = 10;

/// A link to one neighbour, and what estimates it.
pub struct Link {
    pub quality: Quality,
    pub now: Instant,
    /// Bit error rate.
    pub bit_error_rate: f64,
    /// Share of the transmissions that collide, whatever their size.
    pub collisions: f64,
    /// Signal that is reported, in dBm, and the standard deviation of its noise.
    pub signal: Option<(f64, f64)>,
    pub modulation: Option<Modulation>,
    /// Frames sent in a second.
    pub frames: u32,
    /// Whether the counters stand for frames of the other direction.
    pub is_reverse: bool,
    /// Whether there are HELLOs.
    pub hellos: bool,
    sent: Transmitted,
    heard: Vec<bool>,
    rng: Xoshiro256PlusPlus,
    /// Size after each second, and whether it was good.
    pub sizes: Vec<(u16, bool)>,
}

impl Link {
    pub fn new(seed: u64) -> Link {
        Link {
            quality: Quality::new(Config::default()),
            now: Instant::from_millis(500),
            bit_error_rate: 0.0,
            collisions: 0.0,
            signal: None,
            modulation: None,
            frames: 200,
            is_reverse: false,
            hellos: false,
            sent: Transmitted::default(),
            heard: Vec::new(),
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            sizes: Vec::new(),
        }
    }

    /// A normal deviate: the sum of twelve uniform ones.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.rng.random::<f64>()).sum::<f64>() - 6.0
    }

    fn happens(&mut self, share: f64) -> bool {
        self.rng.random::<f64>() < share
    }

    fn send(&mut self, size: u16) {
        let error = frame_error_rate(self.bit_error_rate, size);
        self.sent.frames = self.sent.frames.wrapping_add(1);
        self.sent.bytes += u64::from(size + FRAME_OVERHEAD);
        for attempt in 1..=ATTEMPTS {
            let lost = self.happens(self.collisions) || self.happens(error);
            match lost {
                false => return,
                true if attempt < ATTEMPTS => self.sent.retries = self.sent.retries.wrapping_add(1),
                true => self.sent.failed += 1,
            }
        }
    }

    fn sample(&mut self) -> Sample {
        let signal = self.signal.map(|(mean, deviation)| {
            // Drivers report whole numbers.
            (mean + deviation * self.normal()).round()
        });
        let hello_ratio = self.hellos.then(|| {
            // At the lowest rate no bit error hits a HELLO.
            let arrived = !self.happens(self.collisions);
            self.heard.push(arrived);
            let last = &self.heard[self.heard.len().saturating_sub(HELLOS)..];
            last.iter().filter(|arrived| **arrived).count() as f64 / last.len() as f64
        });
        let counters = (self.frames > 0).then_some(self.sent);
        let (transmitted, reverse) =
            if self.is_reverse { (None, counters) } else { (counters, None) };
        let modulation = self.modulation;
        let sample = Sample { signal_dbm: signal, modulation, ..Sample::default() };
        Sample { transmitted, reverse, hello_ratio, ..sample }
    }

    /// Lets so many seconds pass, with a sample at the end of each.
    pub fn run(&mut self, seconds: u32) -> &mut Link {
        for _ in 0..seconds {
            let size = self.quality.largest(self.now).unwrap_or(1500);
            (0..self.frames).for_each(|_| self.send(size));
            self.now += Duration::from_secs(1);
            let sample = self.sample();
            self.quality.sample(self.now, sample);
            let size = self.size();
            let good = self.is_good(size);
            self.sizes.push((size, good));
        }
        self
    }

    /// The size that is best for the link as it is.
    pub fn best(&self) -> u16 {
        let rate = self.bit_error_rate;
        Config::default().size(rate, rate, self.modulation)
    }

    /// Whether a size loses no more than the target after all attempts, and is not so large that it
    /// carries much less than the best; without a modulation, whether it keeps the target of frame
    /// errors.
    fn is_good(&self, size: u16) -> bool {
        let (rate, config) = (self.bit_error_rate, Config::default());
        let error = frame_error_rate(rate, size);
        let Some(modulation) = self.modulation else { return error <= config.target };
        let carries = |size| goodput(rate, modulation, size);
        libm::pow(error, f64::from(config.attempts)) <= config.loss
            && (size <= self.best() || carries(size) >= 0.7 * carries(self.best()))
    }

    pub fn size(&self) -> u16 {
        self.quality.largest(self.now).expect("a sample a second")
    }

    /// Share of the last `seconds` in which the size was small enough.
    pub fn good(&self, seconds: usize) -> f64 {
        let last = &self.sizes[self.sizes.len() - seconds..];
        last.iter().filter(|(_, good)| *good).count() as f64 / seconds as f64
    }
}
