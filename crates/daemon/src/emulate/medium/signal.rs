//! Links among stations, by distance, power and noise.
//!
//! Principle: log-distance path loss (Rappaport, "Wireless Communications", section 4.9) gives the
//! signal, signal and noise give the bit error rate of each modulation (`sheaf_quality`). There is
//! no fading: a link that stands is the same all the time.

use super::settings::{Channel, Rate, Settings, Station};
use sheaf_medium::phy::GROUP_OVERHEAD;
use sheaf_medium::{Link, Phy};
use sheaf_quality::Modulation;
use sheaf_stage::Bitrate;

/// Frame that decides which rate a link can have, in bytes: a full packet.
const FULL: u32 = 1500 + GROUP_OVERHEAD;
/// Share of full frames that may be lost at a rate. The next slower rate is at least a tenth
/// slower, so that up to here the faster one carries more.
const LOSSES: f64 = 0.1;
/// Bounds of the signal-to-noise ratios that any rate needs, in dB, and halvings of the interval
/// between them: down to 10⁻⁶ dB.
const RATIOS: (f64, f64) = (-30.0, 60.0);
const HALVINGS: u32 = 26;

/// Links among the stations of a medium.
pub struct Links {
    channel: Channel,
    /// Rates, slowest first, each with its modulation and the ratio that it needs, in dB.
    rates: Vec<(Bitrate, Modulation, f64)>,
    /// Modulation of group-addressed frames.
    basic: Modulation,
    positions: Vec<(f64, f64)>,
    /// Signal in dBm, whatever the channels, and link, from one station to another:
    /// `signals[from][to]`.
    pub signals: Vec<Vec<f64>>,
    /// One row and column more than stations: nobody, to whom frames for unknown addresses go.
    pub table: Vec<Vec<Link>>,
}

/// Modulation of a data rate of `phy`.
fn modulation(phy: Phy, rate: Bitrate) -> Modulation {
    let place = phy.rates().iter().position(|known| *known == rate);
    let known = match (phy, place) {
        (Phy::Ht { .. }, Some(mcs)) => Modulation::of_mcs(mcs as u8),
        _ => Modulation::of_rate(rate),
    };
    known.expect("every rate of 802.11 has a modulation")
}

/// Share of frames of `bytes` bytes that are lost to bit errors.
fn frame_errors(ber: f64, bytes: u32) -> f64 {
    1.0 - libm::pow(1.0 - ber, f64::from(bytes) * 8.0)
}

/// The smallest ratio in dB at which few enough full frames are lost.
fn needed(modulation: Modulation) -> f64 {
    let (mut low, mut high) = RATIOS;
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        match frame_errors(modulation.bit_error_rate(middle), FULL) <= LOSSES {
            true => high = middle,
            false => low = middle,
        }
    }
    high
}

impl Links {
    /// The links at the start.
    pub fn new(settings: &Settings) -> Links {
        let (phy, count) = (settings.channel.phy, settings.stations.len());
        let rate = |rate: &Bitrate| {
            let modulation = modulation(phy, *rate);
            (*rate, modulation, needed(modulation))
        };
        let basic = Modulation::of_rate(phy.basic_rates()[0]);
        let mut links = Links {
            channel: settings.channel.clone(),
            rates: phy.rates().iter().map(rate).collect(),
            basic: basic.expect("every basic rate has a modulation"),
            // Nowhere, so that all stations have moved.
            positions: vec![(f64::NAN, f64::NAN); count],
            signals: vec![vec![f64::NEG_INFINITY; count]; count],
            table: vec![vec![Link::NONE; count + 1]; count + 1],
        };
        links.update(&settings.stations, 0.0);
        links
    }

    /// Works out the links of stations that have moved, `seconds` after the start.
    pub fn update(&mut self, stations: &[Station], seconds: f64) {
        let positions: Vec<_> = stations.iter().map(|one| one.position(seconds)).collect();
        for (from, sender) in stations.iter().enumerate() {
            for (to, receiver) in stations.iter().enumerate() {
                let stand = [from, to].iter().all(|one| self.positions[*one] == positions[*one]);
                if from == to || stand {
                    continue;
                }
                let signal = self.signal(sender.power, positions[from], positions[to]);
                self.signals[from][to] = signal;
                self.table[from][to] = match sender.is_apart_from(receiver) {
                    true => Link::NONE,
                    false => self.link(sender.rate, signal),
                };
            }
        }
        self.positions = positions;
    }

    /// Works out the links of a station that is on another channel than before.
    pub fn retune(&mut self, station: usize, stations: &[Station], seconds: f64) {
        self.positions[station] = (f64::NAN, f64::NAN);
        self.update(stations, seconds);
    }

    /// Stations that would hear another one if they were on its channel.
    pub fn elsewhere(&self, from: usize) -> impl Iterator<Item = usize> {
        let reaches =
            move |to: &usize| *to != from && self.signals[from][*to] >= self.channel.sense;
        let is_apart = move |to: &usize| !self.table[from][*to].receive;
        (0..self.positions.len()).filter(reaches).filter(is_apart)
    }

    /// Position of a station at the last update, in metres.
    pub fn position(&self, station: usize) -> (f64, f64) {
        self.positions[station]
    }

    /// Share of full frames over the link that are lost to bit errors and besides, at its rate.
    pub fn losses(&self, from: usize, to: usize) -> f64 {
        let Link { ber, loss, .. } = self.table[from][to];
        1.0 - (1.0 - loss) * (1.0 - frame_errors(ber, FULL))
    }

    /// Signal over a distance, in dBm.
    fn signal(&self, power: f64, from: (f64, f64), to: (f64, f64)) -> f64 {
        let Channel { exponent, first_metre, .. } = self.channel;
        let distance = libm::hypot(from.0 - to.0, from.1 - to.1).max(1.0);
        power - first_metre - 10.0 * exponent * libm::log10(distance)
    }

    /// The link with a signal, for a sender with this rule.
    fn link(&self, rule: Rate, signal: f64) -> Link {
        let Channel { noise, sense, loss, .. } = self.channel;
        if signal < sense {
            return Link::NONE;
        }
        let ratio = signal - noise;
        let (rate, modulation, _) = match rule {
            Rate::Fixed(rate) => self.rates.iter().find(|(known, ..)| *known == rate),
            Rate::Auto => self.rates.iter().rfind(|(.., needed)| *needed <= ratio),
        }
        .unwrap_or(&self.rates[0]);
        Link {
            rate: Some(*rate),
            ber: modulation.bit_error_rate(ratio),
            basic_ber: Some(self.basic.bit_error_rate(ratio)),
            loss,
            level: signal as f32,
            ..Link::PERFECT
        }
    }
}
