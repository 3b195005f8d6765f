//! The file of a medium: an 802.11 channel and its stations. Keys that the lab's plans have, too,
//! mean the same there; `path` has places here, not distances.
//!
//! ```toml
//! name = "row"                                # sheaf emulate show row; else that of the file
//! phy = "dsss-long"                           # or dsss-short, erp-dsss, erp-ofdm, ofdm, ht, …
//! rate = 11                                   # Mbit/s; "auto": the fastest that the signal allows
//! power = 15                                  # dBm of all transmitters
//! queue = 50                                  # frames in the queue of a device
//! txqueuelen = 1000                           # frames above it, in the host
//! mtu = 1500
//! exponent = 3.5                              # of the path loss: 2 in free space
//! first_metre = 40.2                          # dB
//! noise = -95                                 # dBm
//! sense = -90                                 # weaker signals are neither read nor sensed
//! loss = 0                                    # per cent of transmissions lost besides
//! attempts = 7                                # of a frame
//! rts = 500                                   # larger frames are announced
//! capture = 10                                # dB above another signal is read despite it
//! seed = 7
//!
//! [[station]]
//! name = "left"
//! interface = "radio0"                        # else as the station
//! namespace = "left"                          # of ip-netns(8); else that of the program
//! mac = "02:00:00:00:00:01"
//! address = "10.9.0.1/24"                     # or a list
//! position = [0, 0]                           # metres
//!
//! [[station]]
//! name = "walker"
//! namespace = "walker"
//! rate = "auto"                               # rate, power, queue, txqueuelen, mtu: its own
//! path = [[0, 50, 0], [40, 100, 0]]           # seconds since the start, and metres
//! channel = 1                                 # the number of its channel
//! ```
//!
//! In place of an interface a station may be a radio of mac80211_hwsim, if all of them are:
//!
//! ```toml
//! [[station]]
//! name = "left"
//! radio = "02:00:00:00:00:00"                 # as modprobe makes them: 02:00:00:00:01:00, …
//! position = [0, 0]
//! ```

use super::files;
use super::words::drawn;
use anyhow::{Context, anyhow, ensure};
use serde::Deserialize;
use sheaf_daemon::control::{Kind, ServiceName};
use sheaf_daemon::emulate::medium::settings::{
    Channel, Corner, Host, Interface, MOST_MTU, MOST_OF_RADIO, MOST_STATIONS, Rate, Settings,
    Station,
};
use sheaf_medium::Phy;
use sheaf_netio::ip;
use sheaf_stage::Bitrate;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::Path;

/// Default of `power`, in dBm: of most cards of 2.4 GHz.
const POWER: f64 = 15.0;
/// Default of `exponent`: between houses.
const EXPONENT: f64 = 3.5;
/// Default of `first_metre`, in dB: free space at 2.44 GHz.
const FIRST_METRE: f64 = 40.2;
/// Default of `noise`, in dBm: thermal noise in 20 MHz and a noise figure of 6 dB.
const NOISE: f64 = -95.0;
/// Default of `sense` above the noise, in dB: where a receiver finds the beginning of a frame. With
/// the 11 chips of DSSS one in six full frames is lost there at the slowest rate, with OFDM one in
/// ten.
const SENSE_DSSS: f64 = -3.5;
const SENSE_OFDM: f64 = 4.0;
/// Default of `queue`, and its bounds.
const QUEUE: u64 = 50;
const QUEUES: RangeInclusive<u64> = 1..=10_000;
/// Default of `queue` of a radio, and its bounds: nothing else holds frames there.
const RADIO_QUEUE: u64 = 100;
const RADIO_QUEUES: RangeInclusive<u64> = 1..=MOST_OF_RADIO as u64;
/// Default of `txqueuelen`, and its bounds: the kernel keeps a place for each.
const TXQUEUELEN: u64 = 1000;
const TXQUEUELENS: RangeInclusive<u64> = 1..=100_000;
/// Default of `mtu`, and its bounds: no host of IPv4 goes without 68 bytes (RFC 791).
const MTU: u64 = 1500;
const MTUS: RangeInclusive<u64> = 68..=MOST_MTU as u64;
/// Default of `attempts`, and its bounds.
const ATTEMPTS: u64 = 7;
const MOST_ATTEMPTS: RangeInclusive<u64> = 1..=255;
/// Bounds of decibels, of metres from the origin and of seconds: beyond anything on Earth.
const DECIBELS: RangeInclusive<f64> = -300.0..=300.0;
const METRES: RangeInclusive<f64> = -1e7..=1e7;
const SECONDS: RangeInclusive<f64> = 0.0..=1e8;
/// Bounds of the path loss exponent: a wave guide, and tunnels full of people.
const EXPONENTS: RangeInclusive<f64> = 0.1..=10.0;
/// Most corners of a path.
const CORNERS: usize = 1000;
/// Longest name of an interface in bytes (IFNAMSIZ without its final zero).
const INTERFACE: usize = 15;
/// Longest name of a station in bytes: one in each of 64 places fits into the comment of a capture
/// and into a line that people read.
const NAME: usize = 32;
/// Smallest MTU of an interface with an address of IPv6 (RFC 8200, section 5).
const IPV6_MTU: u32 = 1280;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: Option<String>,
    seed: Option<u64>,
    phy: String,
    attempts: Option<u64>,
    #[serde(default)]
    ampdu: bool,
    rts: Option<u32>,
    capture: Option<f64>,
    exponent: Option<f64>,
    first_metre: Option<f64>,
    noise: Option<f64>,
    sense: Option<f64>,
    loss: Option<f64>,
    rate: Option<RateWord>,
    power: Option<f64>,
    queue: Option<u64>,
    txqueuelen: Option<u64>,
    mtu: Option<u64>,
    #[serde(default)]
    station: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    radio: Option<String>,
    interface: Option<String>,
    namespace: Option<String>,
    mac: Option<String>,
    address: Option<Addresses>,
    position: Option<(f64, f64)>,
    path: Option<Vec<(f64, f64, f64)>>,
    channel: Option<u32>,
    rate: Option<RateWord>,
    power: Option<f64>,
    queue: Option<u64>,
    txqueuelen: Option<u64>,
    mtu: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "rate needs Mbit/s, or \"auto\"")]
enum RateWord {
    Mbps(f64),
    Word(String),
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "address needs one like \"10.9.0.1/24\", or a list of them")]
enum Addresses {
    One(String),
    Many(Vec<String>),
}

/// Reads `file`.
pub fn read(file: &str) -> anyhow::Result<Settings> {
    let text = files::read(file)?;
    let stem = Path::new(file).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    parse(&text, &stem.unwrap_or_default()).with_context(|| file.to_owned())
}

/// The medium of `text`, which is called `stem` where it has no name.
fn parse(text: &str, stem: &str) -> anyhow::Result<Settings> {
    let file: File = files::toml(text)?;
    let name = file.name.clone().unwrap_or_else(|| stem.to_owned());
    ServiceName::new(Kind::Emulate, &name).map_err(|_| {
        anyhow!(
            "{name:?} is not a name to show it by; add name = \"air\", of at most 15 characters"
        )
    })?;
    let channel = channel(&file)?;
    let count = file.station.len();
    ensure!(count > 0, "there is no station; add a table [[station]]");
    ensure!(count <= MOST_STATIONS, "{count} stations; give at most {MOST_STATIONS}");
    let mut stations = Vec::new();
    for (number, entry) in (1..).zip(&file.station) {
        let station = station(number, entry, &file, &channel);
        stations.push(station.with_context(|| format!("station {}", shown(&entry.name)))?);
    }
    differ(&stations)?;
    Ok(Settings { name, seed: file.seed.unwrap_or_else(drawn), channel, stations })
}

/// A name as errors show it: in one line, whatever is in it.
fn shown(name: &str) -> String {
    let escaped = name.escape_debug().to_string();
    escaped.chars().take(NAME).collect()
}

fn channel(file: &File) -> anyhow::Result<Channel> {
    let phy: Phy = file.phy.parse()?;
    let is_ht = matches!(phy, Phy::Ht { .. });
    ensure!(is_ht || !file.ampdu, "ampdu takes phy = \"ht\"; change phy, or remove it");
    let noise = within("noise", file.noise.unwrap_or(NOISE), &DECIBELS)?;
    let ratio = match phy {
        Phy::Dsss { .. } | Phy::ErpDsss => SENSE_DSSS,
        Phy::ErpOfdm | Phy::Ofdm | Phy::Ht { .. } => SENSE_OFDM,
    };
    let loss = file.loss.unwrap_or(0.0);
    ensure!((0.0..100.0).contains(&loss), "loss = {loss}; give per cent, 0 to below 100");
    let capture = file.capture.map(|margin| within("capture", margin, &(0.0..=*DECIBELS.end())));
    Ok(Channel {
        phy,
        attempts: within("attempts", file.attempts.unwrap_or(ATTEMPTS), &MOST_ATTEMPTS)? as u32,
        ampdu: file.ampdu,
        rts: file.rts,
        capture: capture.transpose()?.map(|margin| margin as f32),
        exponent: within("exponent", file.exponent.unwrap_or(EXPONENT), &EXPONENTS)?,
        first_metre: within("first_metre", file.first_metre.unwrap_or(FIRST_METRE), &DECIBELS)?,
        noise,
        sense: within("sense", file.sense.unwrap_or(noise + ratio), &DECIBELS)?,
        loss: loss / 100.0,
    })
}

fn station(number: u8, entry: &Entry, file: &File, channel: &Channel) -> anyhow::Result<Station> {
    ensure!(!entry.name.trim().is_empty(), "a name is missing; add name = \"left\"");
    ensure!(
        entry.name.len() <= NAME && !entry.name.contains(char::is_control),
        "{:?} is not a name of a station; give one line of at most {NAME} bytes",
        entry.name
    );
    let host = match &entry.radio {
        None => Host::Interface(interface(number, entry, file)?),
        Some(address) => Host::Radio(radio(address, entry, file)?),
    };
    let queue = entry.queue.or(file.queue);
    let queue = match host {
        Host::Interface(_) => within("queue", queue.unwrap_or(QUEUE), &QUEUES)?,
        Host::Radio(_) => within("queue", queue.unwrap_or(RADIO_QUEUE), &RADIO_QUEUES)?,
    };
    // Of a radio it is where mac80211 tunes it to, which is not known so far.
    let channel_number = if entry.radio.is_some() { 0 } else { entry.channel.unwrap_or(1) };
    Ok(Station {
        name: entry.name.clone(),
        host,
        path: path(entry)?,
        power: within("power", entry.power.or(file.power).unwrap_or(POWER), &DECIBELS)?,
        rate: rate(entry.rate.as_ref().or(file.rate.as_ref()), channel.phy)?,
        queue: queue as usize,
        channel: channel_number,
    })
}

/// The address of a radio. What the interfaces of a radio are is said to `iw` and `ip`.
fn radio(address: &str, entry: &Entry, file: &File) -> anyhow::Result<[u8; 6]> {
    let keys = [
        ("interface", entry.interface.is_some()),
        ("namespace", entry.namespace.is_some()),
        ("mac", entry.mac.is_some()),
        ("address", entry.address.is_some()),
        ("channel", entry.channel.is_some()),
        ("txqueuelen", entry.txqueuelen.or(file.txqueuelen).is_some()),
        ("mtu", entry.mtu.or(file.mtu).is_some()),
    ];
    if let Some((key, _)) = keys.iter().find(|(_, is_given)| *is_given) {
        anyhow::bail!(
            "{key} is for stations without a radio; remove it, and set up the radio by iw"
        );
    }
    link_address("radio", address, "02:00:00:00:00:00")
}

fn link_address(key: &str, text: &str, example: &str) -> anyhow::Result<[u8; 6]> {
    let mac = ip::parse_mac(text).filter(|mac| mac[0] & 1 == 0 && *mac != [0; 6]);
    mac.with_context(|| {
        format!("{key} = {text:?} is not the address of one station; give one like {example}")
    })
}

fn interface(number: u8, entry: &Entry, file: &File) -> anyhow::Result<Interface> {
    let name = entry.interface.as_ref().unwrap_or(&entry.name);
    // The kernel puts a number in place of %d.
    let is_name = |c: char| !("/:%".contains(c) || c.is_control() || c.is_whitespace());
    let sound = (1..=INTERFACE).contains(&name.len())
        && !name.starts_with('.')
        && name.chars().all(is_name);
    ensure!(
        sound,
        "{name:?} is not a name of an interface; add interface = \"radio0\", of at most \
         {INTERFACE} characters"
    );
    if let Some(namespace) = &entry.namespace {
        let is_no_name = |c: char| c == '/' || c.is_control();
        let sound =
            !namespace.is_empty() && !namespace.starts_with('.') && !namespace.contains(is_no_name);
        ensure!(sound, "namespace = {namespace:?}; give a name that `ip netns` lists");
    }
    let mac = match &entry.mac {
        // Of no maker (IEEE 802, section 8.4), and different for each station.
        None => [2, 0, 0, 0, 0, number],
        Some(text) => link_address("mac", text, "02:00:00:00:00:01")?,
    };
    let addresses = match &entry.address {
        None => Vec::new(),
        Some(Addresses::One(address)) => vec![address.clone()],
        Some(Addresses::Many(addresses)) => addresses.clone(),
    };
    for address in &addresses {
        ensure!(is_address(address), "address = {address:?}; write it like 10.9.0.1/24");
    }
    let (txqueuelen, mtu) = (entry.txqueuelen.or(file.txqueuelen), entry.mtu.or(file.mtu));
    let mtu = within("mtu", mtu.unwrap_or(MTU), &MTUS)? as u32;
    let small = addresses.iter().find(|address| address.contains(':') && mtu < IPV6_MTU);
    if let Some(address) = small {
        anyhow::bail!("mtu = {mtu} is too small for {address}; give {IPV6_MTU} to {MOST_MTU}");
    }
    Ok(Interface {
        name: name.clone(),
        namespace: entry.namespace.clone(),
        mac,
        addresses,
        txqueuelen: within("txqueuelen", txqueuelen.unwrap_or(TXQUEUELEN), &TXQUEUELENS)? as u32,
        mtu,
    })
}

/// A number that is in its range, and none that is not a number.
fn within<T: PartialOrd + Display>(
    key: &str,
    value: T,
    range: &RangeInclusive<T>,
) -> anyhow::Result<T> {
    let (least, most) = (range.start(), range.end());
    ensure!(range.contains(&value), "{key} = {value}; give {least} to {most}");
    Ok(value)
}

fn rate(word: Option<&RateWord>, phy: Phy) -> anyhow::Result<Rate> {
    let known = || {
        let mbps = phy.rates().iter().map(|rate| (rate.as_bps() as f64 / 1e6).to_string());
        format!(
            "give \"auto\" or Mbit/s of {}: {}",
            phy.name(),
            mbps.collect::<Vec<_>>().join(", ")
        )
    };
    match word {
        None => Ok(Rate::Auto),
        Some(RateWord::Word(word)) if word == "auto" => Ok(Rate::Auto),
        Some(RateWord::Word(word)) => Err(anyhow!("rate = {word:?}; {}", known())),
        Some(RateWord::Mbps(mbps)) => {
            // Rates of HT have decimals that binary numbers miss.
            let rate = Bitrate::from_bps((mbps * 1e6).round() as u64);
            ensure!(phy.rates().contains(&rate), "rate = {mbps}; {}", known());
            Ok(Rate::Fixed(rate))
        }
    }
}

fn path(entry: &Entry) -> anyhow::Result<Vec<Corner>> {
    let corners = match (entry.position, &entry.path) {
        (Some((x, y)), None) => vec![(0.0, x, y)],
        (None, Some(path)) => path.clone(),
        (Some(_), Some(_)) => anyhow::bail!("it has position and path; give one of them"),
        (None, None) => anyhow::bail!("it is nowhere; add position = [0, 0], in metres"),
    };
    let sound = |(at, x, y): &(f64, f64, f64)| {
        SECONDS.contains(at) && METRES.contains(x) && METRES.contains(y)
    };
    ensure!(
        (1..=CORNERS).contains(&corners.len()) && corners.iter().all(sound),
        "a place is [metres, metres], up to 10000 km away; a path has 1 to {CORNERS} corners \
         [seconds, metres, metres], from 0 s up"
    );
    ensure!(
        corners.windows(2).all(|pair| pair[0].0 < pair[1].0),
        "the corners of path are not in the order of their times; sort them"
    );
    Ok(corners.into_iter().map(|(at, x, y)| Corner { at, position: (x, y) }).collect())
}

/// Whether `text` is an address with the length of its prefix.
fn is_address(text: &str) -> bool {
    let Some((address, len)) = text.split_once('/') else { return false };
    let most = match address.parse() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    len.parse::<u8>().is_ok_and(|len| len <= most)
}

/// Checks that no two stations have the same name, interface or link address, and that all have
/// the same kind of host.
fn differ(stations: &[Station]) -> anyhow::Result<()> {
    let (mut names, mut interfaces, mut macs) =
        <(BTreeSet<_>, BTreeSet<_>, BTreeSet<_>)>::default();
    let first = stations.first().map(|station| station.interface().is_some());
    for station in stations {
        let name = &station.name;
        ensure!(names.insert(name), "two stations are called {name}; rename one");
        ensure!(
            first == Some(station.interface().is_some()),
            "station {name}: the one before is of another kind; give all of them a radio, or none"
        );
        let (key, mac) = match &station.host {
            Host::Interface(Interface { name: interface, namespace, mac, .. }) => {
                ensure!(
                    interfaces.insert((namespace, interface)),
                    "station {name}: another one has interface {interface} in the same namespace; \
                     give it another"
                );
                ("mac", mac)
            }
            Host::Radio(address) => ("radio", address),
        };
        let text = ip::mac_text(*mac);
        ensure!(macs.insert(mac), "station {name}: another one has {key} {text}; give it another");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_fuzz::Fuzzer;

    /// A medium of one radio, with further lines about it.
    fn of_radio(lines: &str) -> String {
        format!("{ONE}radio = \"02:00:00:00:01:00\"\n{lines}\n")
    }

    const ONE: &str = "phy = \"dsss-long\"\n[[station]]\nname = \"a\"\nposition = [0, 0]\n";

    #[test]
    fn the_example_of_the_documentation_is_read() {
        let example = files::example(include_str!("medium.rs"));
        let Settings { name, seed, channel, stations } = parse(&example, "file").unwrap();
        assert_eq!((name.as_str(), seed, channel.phy.name()), ("row", 7, "dsss-long"));
        assert_eq!((channel.sense, channel.rts, channel.capture), (-90.0, Some(500), Some(10.0)));
        let [left, walker] = &stations[..] else { panic!("there are two") };
        assert_eq!(left.rate, Rate::Fixed(Bitrate::from_mbps(11)));
        let of = |station: &Station| station.interface().cloned().expect("it has one");
        assert_eq!((of(left).name.as_str(), of(left).mac[5]), ("radio0", 1));
        assert_eq!((walker.rate, of(walker).mac[5]), (Rate::Auto, 2));
        assert_eq!(of(walker).name, "walker");
        assert_eq!(walker.position(20.0), (75.0, 0.0));
        assert!(walker.moves_after(39.0) && !walker.moves_after(40.0));
    }

    #[test]
    fn what_is_not_said_has_a_default_and_the_name_is_that_of_the_file() {
        let settings = parse(ONE, "air").unwrap();
        let (channel, station) = (&settings.channel, &settings.stations[0]);
        assert_eq!((settings.name.as_str(), channel.attempts, channel.ampdu), ("air", 7, false));
        assert_eq!((channel.noise, channel.sense), (-95.0, -98.5));
        assert_eq!((station.rate, station.queue), (Rate::Auto, 50));
        assert_eq!(station.interface().map(|interface| interface.mtu), Some(1500));
    }

    #[test]
    fn a_station_may_be_a_radio_by_the_address_that_the_driver_gave_it() {
        let settings = parse(&of_radio(""), "air").unwrap();
        let station = &settings.stations[0];
        assert_eq!(station.host, Host::Radio([2, 0, 0, 0, 1, 0]));
        assert_eq!((station.queue, station.channel), (100, 0));
        let settings = parse(&of_radio("queue = 7\npower = 20"), "air").unwrap();
        assert_eq!((settings.stations[0].queue, settings.stations[0].power), (7, 20.0));
    }

    #[test]
    fn what_a_radio_has_by_itself_and_what_does_not_fit_is_refused_in_one_line() {
        let two = |lines: &str| {
            format!("{}[[station]]\nname = \"b\"\nposition = [1, 0]\n{lines}", of_radio(""))
        };
        let cases = [
            (of_radio("mac = \"02:00:00:00:00:01\""), "station a: mac is for stations without a"),
            (of_radio("namespace = \"n\""), "namespace is for stations without a radio; remove it"),
            (of_radio("mtu = 1500"), "mtu is for stations without a radio"),
            (of_radio("channel = 6"), "channel is for stations without a radio"),
            (format!("txqueuelen = 9\n{}", of_radio("")), "txqueuelen is for stations without a"),
            (of_radio("queue = 151"), "queue = 151; give 1 to 150"),
            (
                of_radio("").replace("02:", "phy:"),
                "radio = \"phy:00:00:00:01:00\" is not the address of one station; give one like \
                 02:00:00:00:00:00",
            ),
            (two(""), "station b: the one before is of another kind; give all of them a radio"),
            (
                two("radio = \"02:00:00:00:01:00\""),
                "station b: another one has radio 02:00:00:00:01:00; give it another",
            ),
        ];
        for (text, told) in cases {
            let error = format!("{:#}", parse(&text, "file").unwrap_err());
            assert!(error.contains(told), "{text}: {error}");
            assert!(!error.contains('\n'), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place_in_one_line() {
        let with = |line: &str| format!("{line}\n{ONE}");
        let its = |line: &str| format!("{ONE}{line}\n");
        let two = |lines: &str| format!("{ONE}[[station]]\nposition = [1, 0]\n{lines}\n");
        let cases = [
            (String::new(), "line 1: missing field `phy`"),
            ("phy = \"wifi\"".to_owned(), "phy \"wifi\" is unknown; give dsss-long, dsss-short"),
            ("phy = \"ofdm\"".to_owned(), "there is no station; add a table [[station]]"),
            (with("range = 3"), "line 1: unknown field `range`"),
            (with("noise = \"loud\""), "line 1: invalid type: string"),
            (with("noise = nan"), "noise = NaN; give -300 to 300"),
            (with("exponent = 0"), "exponent = 0; give 0.1 to 10"),
            (with("loss = 100"), "loss = 100; give per cent, 0 to below 100"),
            (with("ampdu = true"), "ampdu takes phy = \"ht\""),
            (with("attempts = 0"), "attempts = 0; give 1 to 255"),
            (
                with("rate = 6"),
                "station a: rate = 6; give \"auto\" or Mbit/s of dsss-long: 1, 2, 5.5",
            ),
            (with("rate = \"fast\""), "rate = \"fast\"; give \"auto\""),
            (with("name = \"a b\""), "\"a b\" is not a name to show it by; add name = "),
            (its("queue = 0"), "station a: queue = 0; give 1 to 10000"),
            (its("mtu = 9000"), "mtu = 9000; give 68 to 2296"),
            (its("txqueuelen = 0"), "txqueuelen = 0; give 1 to 100000"),
            (its("power = inf"), "power = inf; give -300 to 300"),
            (its("mac = \"ff:ff:ff:ff:ff:ff\""), "give one like 02:00:00:00:00:01"),
            (its("address = \"10.9.0.1\""), "write it like 10.9.0.1/24"),
            (its("address = 3"), "address needs one like"),
            (its("interface = \"a/b\""), "\"a/b\" is not a name of an interface"),
            (its("interface = \"wlan%d\""), "\"wlan%d\" is not a name of an interface"),
            (ONE.replace("\"a\"", "\"a\\nb\""), "\"a\\nb\" is not a name of a station"),
            (ONE.replace("\"a\"", &format!("{:?}", "a".repeat(33))), "at most 32 bytes"),
            (its("namespace = \"a\\nb\""), "give a name that `ip netns` lists"),
            (
                its("mtu = 1279\naddress = \"fd00::1/64\""),
                "mtu = 1279 is too small for fd00::1/64; give 1280 to 2296",
            ),
            (its("namespace = \"../x\""), "give a name that `ip netns` lists"),
            (its("path = [[0, 0, 0]]"), "it has position and path; give one of them"),
            (ONE.replace("position = [0, 0]", ""), "it is nowhere; add position = [0, 0]"),
            (ONE.replace("position = [0, 0]", "path = []"), "1 to 1000 corners"),
            (
                ONE.replace("position = [0, 0]", "path = [[1, 0, 0], [1, 9, 0]]"),
                "not in the order of their times; sort them",
            ),
            (two("name = \"a\""), "two stations are called a; rename one"),
            (
                two("name = \"b\"\ninterface = \"a\""),
                "another one has interface a in the same namespace",
            ),
            (
                two("name = \"b\"\nmac = \"02:00:00:00:00:01\""),
                "station b: another one has mac 02:00:00:00:00:01; give it another",
            ),
        ];
        for (text, told) in cases {
            let error = format!("{:#}", parse(&text, "file").unwrap_err());
            assert!(error.contains(told), "{text}: {error}");
            assert!(!error.contains('\n'), "{text}: {error}");
        }
        let many: String = (0..65)
            .map(|number| format!("[[station]]\nname = \"s{number}\"\nposition = [0, 0]\n"))
            .collect();
        let error = parse(&format!("phy = \"ofdm\"\n{many}"), "file").unwrap_err().to_string();
        assert_eq!(error, "65 stations; give at most 64");
    }

    #[test]
    fn damaged_files_are_read_or_refused_in_one_line() {
        let example = files::example(include_str!("medium.rs")).into_bytes();
        let mut fuzzer = Fuzzer::over(vec![example, ONE.as_bytes().to_vec()], 3_000);
        fuzzer.try_texts(|text, _| match parse(text, "file") {
            Ok(settings) => {
                assert!((1..=MOST_STATIONS).contains(&settings.stations.len()));
                true
            }
            Err(error) => {
                assert!(!format!("{error:#}").contains('\n'), "{error:#}");
                false
            }
        });
    }

    #[test]
    fn a_station_of_the_same_name_in_another_namespace_is_another_interface() {
        let text = format!(
            "{ONE}[[station]]\nname = \"b\"\ninterface = \"a\"\nnamespace = \"b\"\n\
             position = [1, 0]\n"
        );
        assert_eq!(parse(&text, "air").unwrap().stations.len(), 2);
    }
}
