//! Radios, and the reception among them.

use crate::ampdu::Ampdu;
use crate::phy::Phy;
use sheaf_stage::Bitrate;
use thiserror::Error;

/// The most radios of one medium.
pub const MAX_RADIOS: usize = 256;

/// A medium: one or more channels and the radios on them.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The physical layer of all radios.
    pub phy: Phy,
    /// The basic rates of the network, slowest first; the physical layer's usual ones.
    pub basic_rates: Vec<Bitrate>,
    /// Data frames larger than this (IP bytes, of an A-MPDU all together) are announced by
    /// RTS/CTS; `None` for never.
    pub rts_threshold: Option<u32>,
    /// Attempts per frame before it is given up; 7.
    pub retry_limit: u32,
    /// Largest contention window, in slots; 1023.
    pub cw_max: u32,
    /// Limits of what radios send as one A-MPDU; `None` for one frame at a time. Only HT has it.
    pub ampdu: Option<Ampdu>,
    /// A signal this many dB above all others is received despite them; `None` for no capture.
    pub capture: Option<f32>,
    /// The radios; [`RadioId`](crate::RadioId) is the index.
    pub radios: Vec<Radio>,
    /// The pairs of radios that hear each other.
    pub hearing: Hearing,
}

/// One radio.
#[derive(Clone, Debug, PartialEq)]
pub struct Radio {
    /// Radios on different channels do not hear each other.
    pub channel: u32,
    /// Data rate, one of the physical layer's.
    pub rate: Bitrate,
    /// Frames that its transmit queue holds, the one on the air included; 50.
    pub queue_limit: usize,
    /// Position in metres, for [`Hearing::Distance`].
    pub position: (f64, f64),
}

/// The reception of one radio by another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Frames can be read.
    pub receive: bool,
    /// The channel is sensed busy.
    pub sense: bool,
    /// Data rate of frames to this radio alone; where not given, that of their sender.
    pub rate: Option<Bitrate>,
    /// Bit error rate of frames that can be read, 0..1.
    pub ber: f64,
    /// The same of frames at basic rates, which are slower: those to groups, responses and requests
    /// to send. Where not given it is `ber`.
    pub basic_ber: Option<f64>,
    /// Share of frames that is lost whatever their length, 0..1: interference from elsewhere.
    pub loss: f64,
    /// Signal level in dB, any reference; only differences matter (capture).
    pub level: f32,
}

impl Link {
    /// A perfect link.
    pub const PERFECT: Link = Link {
        receive: true,
        sense: true,
        rate: None,
        ber: 0.0,
        basic_ber: None,
        loss: 0.0,
        level: 0.0,
    };
    /// Out of range.
    pub const NONE: Link = Link { receive: false, sense: false, level: f32::MIN, ..Link::PERFECT };
}

/// The reception among radios on the same channel.
#[derive(Clone, Debug, PartialEq)]
pub enum Hearing {
    /// Everyone hears everyone, without errors.
    Everyone,
    /// `links[from][to]`.
    Table(Vec<Vec<Link>>),
    /// By distance: log-distance path loss, and two ranges.
    Distance {
        /// Frames can be read up to here, in metres.
        receive_range: f64,
        /// The channel is sensed busy up to here, in metres.
        sense_range: f64,
        /// Path loss exponent: 2 in free space, 3 to 4 between houses.
        exponent: f64,
    },
}

impl Config {
    /// `radios` equal radios on one channel that all hear each other, with the standard's limits.
    pub fn new(phy: Phy, radios: usize, rate: Bitrate) -> Config {
        let radio = Radio { channel: 1, rate, queue_limit: 50, position: (0.0, 0.0) };
        Config {
            phy,
            basic_rates: phy.basic_rates().to_vec(),
            rts_threshold: None,
            retry_limit: 7,
            cw_max: 1023,
            ampdu: None,
            capture: None,
            radios: vec![radio; radios],
            hearing: Hearing::Everyone,
        }
    }

    /// The rate of an acknowledgement: the highest basic rate not above the data rate.
    pub fn response_rate(&self, rate: Bitrate) -> Bitrate {
        let basic = &self.basic_rates;
        basic.iter().copied().rfind(|basic| *basic <= rate).unwrap_or(basic[0])
    }

    /// Checks that the medium can exist.
    pub fn check(&self) -> Result<(), ConfigError> {
        let radios = self.radios.len();
        if radios == 0 || radios > MAX_RADIOS {
            return Err(ConfigError::Radios { radios });
        }
        for (radio, Radio { rate, queue_limit, .. }) in self.radios.iter().enumerate() {
            if !self.phy.rates().contains(rate) {
                return Err(ConfigError::Rate { radio, rate: *rate });
            }
            if *queue_limit == 0 {
                return Err(ConfigError::Queue { radio });
            }
        }
        let known = |rate: &Bitrate| self.phy.control_rates().contains(rate);
        if self.basic_rates.is_empty() || !self.basic_rates.iter().all(known) {
            return Err(ConfigError::BasicRates);
        }
        if self.retry_limit == 0 || self.cw_max < self.phy.cw_min() {
            return Err(ConfigError::Contention);
        }
        if let Some(Ampdu { bytes, air_time, frames }) = self.ampdu {
            let within = (1..=Ampdu::MOST_BYTES).contains(&bytes)
                && (1..=Ampdu::MOST_FRAMES).contains(&frames)
                && air_time <= Ampdu::LONGEST;
            if !within || !matches!(self.phy, Phy::Ht { .. }) {
                return Err(ConfigError::Ampdu);
            }
        }
        match &self.hearing {
            Hearing::Table(links) => {
                let square = links.len() == radios && links.iter().all(|row| row.len() == radios);
                let share = |value: f64| (0.0..=1.0).contains(&value);
                let shares = |link: &Link| {
                    share(link.ber) && link.basic_ber.is_none_or(share) && share(link.loss)
                };
                let unknown = |(radio, links): (usize, &Vec<Link>)| {
                    let mut rates = links.iter().filter_map(|link| link.rate);
                    let rate = rates.find(|rate| !self.phy.rates().contains(rate))?;
                    Some(ConfigError::Rate { radio, rate })
                };
                if !square {
                    Err(ConfigError::Table { radios })
                } else if !links.iter().flatten().all(shares) {
                    Err(ConfigError::Ber)
                } else {
                    links.iter().enumerate().find_map(unknown).map_or(Ok(()), Err)
                }
            }
            Hearing::Distance { receive_range, sense_range, exponent } => {
                let sound = *receive_range > 0.0 && sense_range >= receive_range && *exponent > 0.0;
                if sound { Ok(()) } else { Err(ConfigError::Range) }
            }
            Hearing::Everyone => Ok(()),
        }
    }

    /// The reception of radio `from` by radio `to`.
    pub(crate) fn link(&self, from: usize, to: usize) -> Link {
        let (a, b) = (&self.radios[from], &self.radios[to]);
        if from == to || a.channel != b.channel {
            return Link::NONE;
        }
        match &self.hearing {
            Hearing::Everyone => Link::PERFECT,
            Hearing::Table(links) => links[from][to],
            Hearing::Distance { receive_range, sense_range, exponent } => {
                let (dx, dy) = (a.position.0 - b.position.0, a.position.1 - b.position.1);
                let distance = libm::hypot(dx, dy).max(1.0);
                Link {
                    receive: distance <= *receive_range,
                    sense: distance <= *sense_range,
                    level: (-10.0 * exponent * libm::log10(distance)) as f32,
                    ..Link::PERFECT
                }
            }
        }
    }
}

/// A medium that cannot exist.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum ConfigError {
    /// No radio, or too many.
    #[error("{radios} radios; give 1 to {MAX_RADIOS}")]
    Radios {
        /// Number that was asked for.
        radios: usize,
    },
    /// Not a rate of the physical layer.
    #[error("radio {radio} cannot send at {rate}; give a rate of its physical layer")]
    Rate {
        /// Its index.
        radio: usize,
        /// The rate asked for.
        rate: Bitrate,
    },
    /// No basic rate, or one that the physical layer does not have.
    #[error("the basic rates must be control rates of the physical layer, at least one")]
    BasicRates,
    /// A transmit queue without room.
    #[error("radio {radio} has a queue of 0 frames; give at least 1")]
    Queue {
        /// Its index.
        radio: usize,
    },
    /// No attempt, or a largest window below the smallest.
    #[error("retry limit or largest contention window too small")]
    Contention,
    /// Limits of an A-MPDU that HT does not allow, or another physical layer.
    #[error("an A-MPDU takes HT, 1 to 65535 bytes, 1 to 64 frames and up to 5484 us")]
    Ampdu,
    /// A hearing table that is not square.
    #[error("the hearing table is not {radios} rows of {radios}")]
    Table {
        /// Number of radios.
        radios: usize,
    },
    /// A bit error rate or a share of lost frames outside 0..1.
    #[error("a bit error rate or a share of lost frames is not between 0 and 1")]
    Ber,
    /// Impossible ranges.
    #[error("the ranges must be positive, and sensing reach at least as far as receiving")]
    Range,
}
