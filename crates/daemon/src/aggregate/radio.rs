//! Quality of the links to the neighbours of a radio: what the driver measures, and the sizes that
//! follow.
//!
//! Frames of a neighbour are judged by their signal, and a HELLO asks it for packets of the size
//! that follows. Frames of this router are judged by the driver's counters and by the size that the
//! neighbour asks for.

use sheaf_neighbour::{LinkAddress, Neighbourhood};
use sheaf_netio::generic::Generic;
use sheaf_netio::nl80211::{self, Rate, Scheme, Station};
use sheaf_netio::sysfs::Interfaces;
use sheaf_quality::sample::of_mean;
use sheaf_quality::{Config, Modulation, Origin, Quality, Sample, Source, Transmitted};
use sheaf_stage::{Duration, Instant};
use sheaf_wire::hello::UNLIMITED;
use std::collections::BTreeMap;

/// Time between two questions to the driver: as often as HELLOs leave at work.
const PERIOD: Duration = Duration::from_secs(1);

/// The radio behind an interface.
#[derive(Debug)]
pub struct Radio {
    ifindex: u32,
    /// `None` where the interface is not a radio's.
    driver: Option<Generic>,
    config: Config,
    links: BTreeMap<LinkAddress, Link>,
    due: Instant,
}

/// Both directions of a link.
#[derive(Debug)]
struct Link {
    received: Quality,
    sent: Quality,
}

/// The figures of one link for reports.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Signal-to-noise ratio of what is received, smoothed, in dB.
    pub snr_db: Option<f64>,
    /// Largest packet that the neighbour should send, in bytes.
    pub asks: Option<u16>,
    /// Largest packet that it should be sent, in bytes.
    pub size: Option<u16>,
}

/// The driver's figures of one moment.
struct Stations(Vec<Station>);

impl Stations {
    /// Modulation of frames to this neighbour.
    fn transmitted(&self, neighbour: LinkAddress) -> Option<Modulation> {
        let station = self.0.iter().find(|station| station.mac == neighbour)?;
        station.transmit_rate.and_then(modulation)
    }
}

impl Source for Stations {
    fn origin(&self) -> Origin {
        Origin::Station
    }

    fn sample(&mut self, neighbour: LinkAddress, _now: Instant) -> Option<Sample> {
        let station = self.0.iter().find(|station| station.mac == neighbour)?;
        let counters = || {
            Some(Transmitted {
                frames: station.transmitted_frames?,
                bytes: station.transmitted_bytes?,
                retries: station.retries?,
                failed: station.failed?,
            })
        };
        let mean = station.signal_average_dbm.map(|mean| of_mean(f64::from(mean)));
        let signal = mean.or(station.signal_dbm.map(f64::from));
        Some(Sample {
            age: station.inactive,
            signal_dbm: signal,
            modulation: station.receive_rate.and_then(modulation),
            transmitted: counters(),
            expected_throughput: station.expected_throughput,
            ..Sample::default()
        })
    }
}

fn modulation(rate: Rate) -> Option<Modulation> {
    /// Indices of one spatial stream of 802.11n; the others repeat them.
    const STREAM: u8 = 8;
    match rate.scheme {
        Scheme::Legacy => Modulation::of_rate(rate.bitrate),
        Scheme::Ht(index) => Modulation::of_mcs(index % STREAM),
        Scheme::Vht(index) | Scheme::He(index) | Scheme::Eht(index) => Modulation::of_mcs(index),
    }
}

impl Radio {
    /// The radio behind interface `dev` with number `ifindex`, whose packets have at most `mtu`
    /// bytes.
    pub fn open(dev: &str, ifindex: u32, mtu: u32, now: Instant) -> Radio {
        // The first question to a family may load its module, which a host without radios does not
        // need. In another network namespace than that of /sys the interface is not there.
        let interfaces = Interfaces::default();
        let may_be = !interfaces.contains(dev) || interfaces.is_radio(dev);
        let mut driver = if may_be { Generic::open().ok() } else { None };
        let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
        let usual = Config::default();
        // The radio at the other end is taken for one that is set as this one is.
        let attempts = driver.as_mut().and_then(|driver| nl80211::attempts(driver, ifindex).ok());
        let attempts = attempts.flatten().map_or(usual.attempts, u32::from);
        let config = Config { mtu, attempts, ..usual };
        Radio { ifindex, driver, config, links: BTreeMap::new(), due: now }
    }

    /// Measures the links to all neighbours, once a second, and asks them for their sizes.
    pub fn measure(&mut self, neighbourhood: &mut Neighbourhood, now: Instant) {
        let Some(driver) = self.driver.as_mut().filter(|_| now >= self.due) else { return };
        self.due = now + PERIOD;
        let Ok(stations) = nl80211::stations(driver, self.ifindex) else {
            // Not a radio, or its driver keeps no figures.
            self.driver = None;
            return;
        };
        let noise = nl80211::noise_dbm(driver, self.ifindex).ok().flatten().map(f64::from);
        let mut stations = Stations(stations);
        self.links.retain(|address, _| neighbourhood.get(*address).is_some());
        let known: Vec<_> = neighbourhood
            .iter()
            .map(|(address, one)| (address, one.heard, one.hears, one.largest))
            .collect();
        for (address, heard, hears, asked) in known {
            let Some(sample) = stations.sample(address, now) else { continue };
            let config = self.config;
            let link = self.links.entry(address).or_insert_with(|| Link {
                received: Quality::new(config),
                sent: Quality::new(config),
            });
            let received = Sample {
                noise_dbm: noise,
                hello_ratio: Some(heard),
                // These are of the other direction, which is much the same.
                transmitted: None,
                reverse: sample.transmitted,
                expected_throughput: None,
                ..sample
            };
            link.received.sample(now, received);
            let sent = Sample {
                modulation: stations.transmitted(address),
                transmitted: sample.transmitted,
                expected_throughput: sample.expected_throughput,
                hello_ratio: hears,
                largest: Some(asked),
                age: sample.age,
                ..Sample::default()
            };
            link.sent.sample(now, sent);
            let asks = link.received.largest(now).filter(|size| *size < config.mtu);
            neighbourhood.set_limit(address, asks.unwrap_or(UNLIMITED), now);
        }
    }

    /// Largest packet that this neighbour should be sent, in bytes of IP, where it was measured.
    pub fn size(&self, address: LinkAddress, now: Instant) -> Option<u16> {
        self.links.get(&address)?.sent.largest(now)
    }

    /// The figures of the link to a neighbour.
    pub fn figures(&self, address: LinkAddress, now: Instant) -> Figures {
        let Some(link) = self.links.get(&address) else { return Figures::default() };
        Figures {
            snr_db: link.received.estimate(now).and_then(|estimate| estimate.snr_db),
            asks: link.received.largest(now),
            size: link.sent.largest(now),
        }
    }
}
