//! Stations of a radio, and the noise of its channel, by nl80211 (linux/nl80211.h).
//!
//! A station is a neighbour that the driver keeps a state for: an access point, its clients,
//! members of an IBSS, peers of an 802.11s mesh. Which figures there are depends on the driver.

use crate::attribute::{Attributes, Value, put};
use crate::generic::Generic;
use sheaf_stage::{Bitrate, Duration};
use std::io;

const FAMILY: &str = "nl80211";
const NL80211_CMD_GET_WIPHY: u8 = 1;
const NL80211_CMD_GET_STATION: u8 = 17;
const NL80211_CMD_GET_SURVEY: u8 = 50;
const NL80211_ATTR_IFINDEX: u16 = 3;
const NL80211_ATTR_MAC: u16 = 6;
const NL80211_ATTR_STA_INFO: u16 = 21;
const NL80211_ATTR_WIPHY_RETRY_SHORT: u16 = 61;
const NL80211_ATTR_SURVEY_INFO: u16 = 84;
const NL80211_ATTR_MAC_ADDRS: u16 = 166;
const NL80211_ATTR_SPLIT_WIPHY_DUMP: u16 = 174;
/// Stations that are read at most: mac80211 has numbers for 2007 at an access point.
const MOST_STATIONS: usize = 2048;

/// Attributes of a station (`enum nl80211_sta_info`).
mod sta_info {
    pub const INACTIVE_TIME: u16 = 1;
    pub const TX_BYTES: u16 = 3;
    pub const SIGNAL: u16 = 7;
    pub const TX_BITRATE: u16 = 8;
    pub const RX_PACKETS: u16 = 9;
    pub const TX_PACKETS: u16 = 10;
    pub const TX_RETRIES: u16 = 11;
    pub const TX_FAILED: u16 = 12;
    pub const SIGNAL_AVG: u16 = 13;
    pub const RX_BITRATE: u16 = 14;
    pub const CONNECTED_TIME: u16 = 16;
    pub const TX_BYTES64: u16 = 24;
    pub const EXPECTED_THROUGHPUT: u16 = 27;
}

/// Attributes of a rate (`enum nl80211_rate_info`).
mod rate_info {
    pub const BITRATE: u16 = 1;
    pub const MCS: u16 = 2;
    pub const BITRATE32: u16 = 5;
    pub const VHT_MCS: u16 = 6;
    pub const HE_MCS: u16 = 13;
    pub const EHT_MCS: u16 = 19;
}

/// Attributes of a survey (`enum nl80211_survey_info`).
mod survey_info {
    pub const FREQUENCY: u16 = 1;
    pub const NOISE: u16 = 2;
    pub const IN_USE: u16 = 3;
}

/// Figures that a driver keeps of a station. Counters begin when the station joins, and wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Station {
    /// Link address.
    pub mac: [u8; 6],
    /// Signal of the last frame received, in dBm.
    pub signal_dbm: Option<i8>,
    /// Mean signal of frames received, as the driver smooths it, in dBm.
    pub signal_average_dbm: Option<i8>,
    /// Rate of frames to the station.
    pub transmit_rate: Option<Rate>,
    /// Rate of the last unicast data frame from the station.
    pub receive_rate: Option<Rate>,
    /// Frames received.
    pub received_frames: Option<u32>,
    /// Frames sent, each counted once.
    pub transmitted_frames: Option<u32>,
    /// Bytes of frames sent.
    pub transmitted_bytes: Option<u64>,
    /// Transmissions after the first of a frame.
    pub retries: Option<u32>,
    /// Frames that were given up.
    pub failed: Option<u32>,
    /// Throughput that rate control expects, 802.11's headers included.
    pub expected_throughput: Option<Bitrate>,
    /// Time since the station joined, in whole seconds.
    pub connected: Option<Duration>,
    /// Time since the last frame from the station.
    pub inactive: Option<Duration>,
}

/// A rate of the physical layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Bits per second on the air.
    pub bitrate: Bitrate,
    /// Name of modulation and code.
    pub scheme: Scheme,
}

/// Name of a rate's modulation and code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// By the bit rate: 802.11a, b and g.
    Legacy,
    /// By an index of 802.11n, eight for each number of streams.
    Ht(u8),
    /// By an index of 802.11ac, whatever the number of streams.
    Vht(u8),
    /// By an index of 802.11ax.
    He(u8),
    /// By an index of 802.11be.
    Eht(u8),
}

/// Survey of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Frequency of the channel's centre, in MHz.
    pub frequency_mhz: Option<u32>,
    /// Noise, in dBm.
    pub noise_dbm: Option<i8>,
    /// Whether the radio is on this channel.
    pub in_use: bool,
}

/// The stations of interface `ifindex`.
///
/// # Errors
/// `NotFound` where the kernel does not have wireless LAN; ENODEV or EOPNOTSUPP where the interface
/// is not a radio.
pub fn stations(generic: &mut Generic, ifindex: u32) -> io::Result<Vec<Station>> {
    let mut stations = Vec::new();
    generic.dump(FAMILY, NL80211_CMD_GET_STATION, of_interface(ifindex), |reply| {
        if stations.len() < MOST_STATIONS {
            stations.extend(Station::parse(reply));
        }
    })?;
    Ok(stations)
}

/// Noise in the channel that interface `ifindex` is on, in dBm; `None` where the driver does not
/// measure it.
///
/// # Errors
/// As of [`stations`].
pub fn noise_dbm(generic: &mut Generic, ifindex: u32) -> io::Result<Option<i8>> {
    let mut noise = None;
    generic.dump(FAMILY, NL80211_CMD_GET_SURVEY, of_interface(ifindex), |reply| {
        // One message for each channel that the radio knows.
        if let Some(survey) = Survey::parse(reply).filter(|survey| survey.in_use) {
            noise = survey.noise_dbm;
        }
    })?;
    Ok(noise)
}

/// Attempts that the radio of interface `ifindex` makes of a frame that is not announced by RTS
/// (`iw phy PHY set retry short`); `None` where the driver does not say.
///
/// # Errors
/// As of [`stations`].
pub fn attempts(generic: &mut Generic, ifindex: u32) -> io::Result<Option<u8>> {
    let mut attributes = of_interface(ifindex);
    let mut attempts = None;
    // A dump of this interface's radio alone, in parts as below; the first part has it.
    put(&mut attributes, NL80211_ATTR_SPLIT_WIPHY_DUMP, &[]);
    generic.dump(FAMILY, NL80211_CMD_GET_WIPHY, attributes, |reply| {
        attempts = attempts.or(retry_short(reply));
    })?;
    Ok(attempts)
}

/// The short retry limit in a part of the reply to NL80211_CMD_GET_WIPHY; `None` where there is
/// none, or 0.
fn retry_short(reply: &[u8]) -> Option<u8> {
    let is_limit = |(kind, _): &(u16, &[u8])| *kind == NL80211_ATTR_WIPHY_RETRY_SHORT;
    let (_, value) = Attributes::of(reply).find(is_limit)?;
    u8::of(value).filter(|limit| *limit > 0)
}

/// The addresses of each radio in the network namespace of `generic`, in the order of its driver.
/// Of a radio with a single address nothing is returned.
///
/// # Errors
/// `NotFound` where the kernel does not have wireless LAN.
pub fn radios(generic: &mut Generic) -> io::Result<Vec<Vec<[u8; 6]>>> {
    let (mut attributes, mut radios) = (Vec::new(), Vec::new());
    // In one message a radio with many features does not fit.
    put(&mut attributes, NL80211_ATTR_SPLIT_WIPHY_DUMP, &[]);
    generic.dump(FAMILY, NL80211_CMD_GET_WIPHY, attributes, |reply| {
        if radios.len() < MOST_STATIONS {
            radios.extend(addresses(reply));
        }
    })?;
    Ok(radios)
}

/// The addresses in a part of the reply to NL80211_CMD_GET_WIPHY; `None` where there are none.
fn addresses(reply: &[u8]) -> Option<Vec<[u8; 6]>> {
    let (_, list) = Attributes::of(reply).find(|(kind, _)| *kind == NL80211_ATTR_MAC_ADDRS)?;
    Some(Attributes::of(list).filter_map(|(_, address)| Value::of(address)).collect())
}

fn of_interface(ifindex: u32) -> Vec<u8> {
    let mut attributes = Vec::new();
    put(&mut attributes, NL80211_ATTR_IFINDEX, &ifindex.to_ne_bytes());
    attributes
}

impl Station {
    /// A station from the attributes of a reply to NL80211_CMD_GET_STATION; `None` where there is
    /// no address.
    pub fn parse(reply: &[u8]) -> Option<Station> {
        let (mut station, mut mac) = (Station::default(), None);
        for (kind, value) in Attributes::of(reply) {
            match kind {
                NL80211_ATTR_MAC => mac = Value::of(value),
                NL80211_ATTR_STA_INFO => station.read(value),
                _ => {}
            }
        }
        Some(Station { mac: mac?, ..station })
    }

    fn read(&mut self, info: &[u8]) {
        for (kind, value) in Attributes::of(info) {
            let number = || u32::of(value);
            match kind {
                sta_info::INACTIVE_TIME => {
                    self.inactive = number().map(|ms| Duration::from_millis(ms.into()));
                }
                // The longer counter may stand before or behind the shorter one.
                sta_info::TX_BYTES if self.transmitted_bytes.is_none() => {
                    self.transmitted_bytes = number().map(u64::from);
                }
                sta_info::TX_BYTES64 => self.transmitted_bytes = u64::of(value),
                sta_info::SIGNAL => self.signal_dbm = i8::of(value),
                sta_info::SIGNAL_AVG => self.signal_average_dbm = i8::of(value),
                sta_info::TX_BITRATE => self.transmit_rate = Rate::parse(value),
                sta_info::RX_BITRATE => self.receive_rate = Rate::parse(value),
                sta_info::RX_PACKETS => self.received_frames = number(),
                sta_info::TX_PACKETS => self.transmitted_frames = number(),
                sta_info::TX_RETRIES => self.retries = number(),
                sta_info::TX_FAILED => self.failed = number(),
                sta_info::CONNECTED_TIME => {
                    self.connected = number().map(|seconds| Duration::from_secs(seconds.into()));
                }
                sta_info::EXPECTED_THROUGHPUT => {
                    self.expected_throughput = number().map(|kbps| Bitrate::from_kbps(kbps.into()));
                }
                _ => {}
            }
        }
    }
}

impl Rate {
    /// A rate from the attributes of one; `None` without a bit rate.
    fn parse(info: &[u8]) -> Option<Rate> {
        let (mut short, mut long, mut scheme) = (None, None, Scheme::Legacy);
        for (kind, value) in Attributes::of(info) {
            let named = |scheme: fn(u8) -> Scheme| u8::of(value).map_or(Scheme::Legacy, scheme);
            match kind {
                rate_info::BITRATE => short = u16::of(value).map(u64::from),
                rate_info::BITRATE32 => long = u32::of(value).map(u64::from),
                rate_info::MCS => scheme = named(Scheme::Ht),
                rate_info::VHT_MCS => scheme = named(Scheme::Vht),
                rate_info::HE_MCS => scheme = named(Scheme::He),
                rate_info::EHT_MCS => scheme = named(Scheme::Eht),
                _ => {}
            }
        }
        // The short one ends at 6.5 Gbit/s. Both count in steps of 100 kbit/s.
        let bitrate = Bitrate::from_kbps(long.or(short)? * 100);
        Some(Rate { bitrate, scheme })
    }
}

impl Survey {
    /// A channel from the attributes of a reply to NL80211_CMD_GET_SURVEY; `None` where there is
    /// none.
    pub fn parse(reply: &[u8]) -> Option<Survey> {
        let is_info = |(kind, _): &(u16, &[u8])| *kind == NL80211_ATTR_SURVEY_INFO;
        let (_, info) = Attributes::of(reply).find(is_info)?;
        let mut survey = Survey::default();
        for (kind, value) in Attributes::of(info) {
            match kind {
                survey_info::FREQUENCY => survey.frequency_mhz = u32::of(value),
                survey_info::NOISE => survey.noise_dbm = i8::of(value),
                survey_info::IN_USE => survey.in_use = true,
                _ => {}
            }
        }
        Some(survey)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_retry_limit_of_a_radio_is_the_number_of_its_attempts() {
        let mut reply = Vec::new();
        put(&mut reply, NL80211_ATTR_MAC, &[2, 0, 0, 0, 0, 1]);
        assert_eq!(retry_short(&reply), None);
        put(&mut reply, NL80211_ATTR_WIPHY_RETRY_SHORT, &[4]);
        assert_eq!(retry_short(&reply), Some(4));
        let mut none = Vec::new();
        put(&mut none, NL80211_ATTR_WIPHY_RETRY_SHORT, &[0]);
        assert_eq!(retry_short(&none), None);
    }

    #[test]
    fn addresses_of_a_radio_are_in_the_order_of_its_driver_and_other_parts_have_none() {
        let all = [[2, 0, 0, 0, 1, 0], [0x42, 0, 0, 0, 1, 0], [0x52, 0, 0, 0, 1, 0]];
        let (mut list, mut reply) = (Vec::new(), Vec::new());
        for (number, address) in (1..).zip(&all) {
            put(&mut list, number, address);
        }
        put(&mut reply, NL80211_ATTR_MAC, &all[0]);
        assert_eq!(addresses(&reply), None);
        put(&mut reply, NL80211_ATTR_MAC_ADDRS, &list);
        assert_eq!(addresses(&reply), Some(all.to_vec()));
        // The last one is cut off.
        assert_eq!(addresses(&reply[..reply.len() - 4]), None, "so is the list");
    }
}
