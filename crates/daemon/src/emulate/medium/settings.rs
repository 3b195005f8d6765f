//! Settings of `sheaf emulate medium`. The reader of the file has checked them.

use sheaf_medium::Phy;
use sheaf_stage::Bitrate;

/// A channel and its stations.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The name by which it is shown and stopped.
    pub name: String,
    /// The seed of all chances.
    pub seed: u64,
    /// The channel.
    pub channel: Channel,
    /// The stations, 1 to [`MOST_STATIONS`], of different names, interfaces and link addresses.
    pub stations: Vec<Station>,
}

/// The most stations of one medium: links of stations that move are worked out ten times a second,
/// 10 µs for each, which is 40 ms of those 100 where all of 64 move.
pub const MOST_STATIONS: usize = 64;

/// The largest packet of a station in bytes: the largest body of a frame (IEEE 802.11-2020,
/// 9.2.4.7) less the LLC/SNAP header.
pub const MOST_MTU: u32 = 2304 - 8;

/// The most frames that a radio of mac80211_hwsim has in its queue. From 200 on that are not
/// reported as sent the driver drops half of them; some may not have been read yet.
pub const MOST_OF_RADIO: usize = 150;

/// Properties that all stations share.
#[derive(Clone, Debug, PartialEq)]
pub struct Channel {
    /// Physical layer.
    pub phy: Phy,
    /// Attempts of a frame before it is given up, from 1.
    pub attempts: u32,
    /// Whether frames to one station share transmissions (A-MPDU); with HT only.
    pub ampdu: bool,
    /// Frames of more bytes are announced by RTS/CTS.
    pub rts: Option<u32>,
    /// A signal that is so many dB above another is read despite it; `None` for no capture.
    pub capture: Option<f32>,
    /// Path loss exponent, above 0.
    pub exponent: f64,
    /// Loss over the first metre, in dB.
    pub first_metre: f64,
    /// Noise in the channel, in dBm.
    pub noise: f64,
    /// Weakest signal that is read or sensed, in dBm.
    pub sense: f64,
    /// Share of transmissions that is lost on each link besides, 0 to below 1.
    pub loss: f64,
}

#[cfg(test)]
impl Channel {
    /// 802.11b on which -90 dBm are heard, and nothing is lost for other reasons.
    pub fn of_tests() -> Channel {
        Channel {
            phy: Phy::Dsss { short_preamble: false },
            attempts: 7,
            ampdu: false,
            rts: None,
            capture: None,
            exponent: 3.5,
            first_metre: 40.2,
            noise: -95.0,
            sense: -90.0,
            loss: 0.0,
        }
    }
}

/// One station.
#[derive(Clone, Debug, PartialEq)]
pub struct Station {
    /// Its name.
    pub name: String,
    /// Its connection to a host.
    pub host: Host,
    /// Corners of its path in the order of their times; one, where it stands.
    pub path: Vec<Corner>,
    /// Power of its transmitter, in dBm.
    pub power: f64,
    /// Rate of frames to one station.
    pub rate: Rate,
    /// Frames in its device queue, the one on the air included; from 1, and up to
    /// [`MOST_OF_RADIO`] for a radio.
    pub queue: usize,
    /// Number of its channel; stations on others do not hear it. That of a radio is the frequency
    /// of its last frame in MHz, 0 until it has sent one, where it hears all.
    pub channel: u32,
}

/// A connection of a station to a host. All stations of a medium have the same kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Host {
    /// A TAP interface, of Ethernet frames.
    Interface(Interface),
    /// The radio of mac80211_hwsim with this address, of 802.11 frames.
    Radio([u8; 6]),
}

/// The interface of a station.
#[derive(Clone, Debug, PartialEq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its network namespace, by the name that ip-netns(8) has for it; `None` for the one of the
    /// process.
    pub namespace: Option<String>,
    /// Link address, of one station.
    pub mac: [u8; 6],
    /// Addresses with their prefix lengths, as ip-address(8) takes them.
    pub addresses: Vec<String>,
    /// Frames that wait in the host while the device queue is full; from 1.
    pub txqueuelen: u32,
    /// Largest packet in bytes.
    pub mtu: u32,
}

/// A place on a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Corner {
    /// Seconds since the start.
    pub at: f64,
    /// Metres east and north of any point.
    pub position: (f64, f64),
}

/// A rule for the data rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// This one, to all stations.
    Fixed(Bitrate),
    /// To each station the fastest that its signal allows.
    Auto,
}

impl Station {
    /// Its interface, where it has one.
    pub fn interface(&self) -> Option<&Interface> {
        match &self.host {
            Host::Interface(interface) => Some(interface),
            Host::Radio(_) => None,
        }
    }

    /// Whether it is on another channel.
    pub fn is_apart_from(&self, other: &Station) -> bool {
        // A radio that has sent nothing listens on a channel that nobody knows.
        let is_unknown = |one: &Station| one.channel == 0 && one.interface().is_none();
        self.channel != other.channel && !is_unknown(self) && !is_unknown(other)
    }

    /// Its position `seconds` after the start. Between two corners the pace is steady.
    pub fn position(&self, seconds: f64) -> (f64, f64) {
        let next = self.path.partition_point(|corner| corner.at <= seconds);
        let Some(before) = next.checked_sub(1) else { return self.path[0].position };
        let (from, Some(to)) = (self.path[before], self.path.get(next)) else {
            return self.path[before].position;
        };
        let share = (seconds - from.at) / (to.at - from.at);
        let between = |from: f64, to: f64| from + (to - from) * share;
        let ((x, y), (far_x, far_y)) = (from.position, to.position);
        (between(x, far_x), between(y, far_y))
    }

    /// Whether it still moves, or will, `seconds` after the start.
    pub fn moves_after(&self, seconds: f64) -> bool {
        self.path.len() > 1 && self.path.last().is_some_and(|corner| corner.at > seconds)
    }
}
