//! Finds radios of mac80211_hwsim, and moves frames between them and the channel, by the machine's
//! clock.
//!
//! The driver hands over the frames of all radios that were made in the network namespace of this
//! process, wherever they are now, by one socket. While this process is stopped they wait there.

use super::records::Records;
use super::settings::{Host, Settings};
use super::stations::Stations;
use super::wifi::{REMAINDER, Received, Wifi};
use crate::emulate::End;
use crate::emulate::pcapng::LinkType;
use crate::emulate::settings::Run;
use crate::emulate::status::Status;
use crate::service::{Next, Service};
use anyhow::{Context, ensure};
use serde_json::Value;
use sheaf_netio::capability::{self, Capability};
use sheaf_netio::clock;
use sheaf_netio::generic::Generic;
use sheaf_netio::hwsim::{Hwsim, Notice, Reports, TransmitStatus, encode_delivery, encode_status};
use sheaf_netio::netns::Namespace;
use sheaf_netio::poller::Poller;
use sheaf_netio::timer::Alarm;
use sheaf_netio::{ip, nl80211};
use sheaf_stage::{Duration, Instant};
use std::convert::Infallible;
use std::io;

/// Messages that are read before the channel has its turn.
const TURN: usize = 64;
/// Radios that are up send beacons, or scan; after this time without a frame something is wrong.
const SILENCE: Duration = Duration::from_secs(10);
/// Which of the addresses of a radio the driver knows it by.
const KNOWN_BY: usize = 1;

/// The radios at work.
pub struct Radios {
    wifi: Wifi,
    hwsim: Hwsim,
    /// Number of its descriptor.
    number: usize,
    alarm: Alarm,
    records: Records,
    message: Vec<u8>,
    /// Whether the socket may have more.
    ready: bool,
    /// Time until which silence of all radios is nothing strange; then it is reported, once.
    silent_until: Instant,
}

impl Radios {
    /// Becomes the medium of the radios; the stations begin their paths now.
    pub fn new(settings: &Settings, run: &Run) -> anyhow::Result<Radios> {
        let mut hwsim = Hwsim::open()?;
        let addresses = find(settings)?;
        hwsim.register()?;
        let records = Records::new(settings, run, LinkType::Ieee80211)?;
        let wifi = Wifi::new(settings, &addresses, records.started);
        Ok(Radios {
            wifi: wifi.context("the channel cannot exist")?,
            hwsim,
            number: 0,
            alarm: Alarm::new(run.spin),
            silent_until: records.started + SILENCE,
            records,
            message: Vec::new(),
            ready: true,
        })
    }

    /// Hands over what the channel has done with by `now`; `on_time` unless that is ahead of the
    /// clock. A message for which the kernel has no memory is lost as one on a full device.
    fn deliver(&mut self, now: Instant, on_time: bool) {
        while let Some(done) = self.wifi.next(now) {
            let mut lost = Vec::new();
            for (station, is_meant) in self.wifi.receivers(&done) {
                let sequence = if is_meant { station as u32 + 1 } else { 0 };
                let delivery = self.wifi.delivery(&done, station);
                encode_delivery(&mut self.message, self.hwsim.family(), sequence, &delivery);
                if self.hwsim.send(&self.message).is_err() {
                    lost.push(station);
                }
            }
            lost.iter().for_each(|station| self.wifi.refused(*station));
            // Behind the frame, as its acknowledgement.
            let status = self.wifi.status(&done);
            self.tell(&status);
            while let Some(status) = self.wifi.turned_away(&done) {
                self.tell(&status);
            }
            match on_time {
                true => self.records.take_note(&done),
                false => self.records.write(&done),
            }
            self.wifi.recycle(done);
        }
    }

    fn tell(&mut self, status: &TransmitStatus) {
        encode_status(&mut self.message, self.hwsim.family(), 0, status);
        // The driver drops a frame of whose end it was not told when too many wait.
        let _ = self.hwsim.send(&self.message);
    }

    /// Reads what radios send.
    fn fill(&mut self, now: Instant) -> io::Result<()> {
        let family = self.hwsim.family();
        for _ in 0..TURN {
            let Some(datagram) = self.hwsim.receive()? else {
                self.ready = false;
                return Ok(());
            };
            let mut refused = Vec::new();
            for notice in Reports::of(family, datagram) {
                match notice {
                    Notice::Frame(frame) => {
                        refused.extend(self.wifi.leftovers(&frame));
                        match self.wifi.receive(&frame, now) {
                            Received::Taken | Received::TurnedAway => {}
                            Received::Refused(status) => refused.push(status),
                            Received::Stranger(status) => {
                                tracing::warn!(
                                    "radio {} is not a station of this medium, so nobody hears \
                                     it; add it to the file",
                                    ip::mac_text(status.radio)
                                );
                                refused.push(status);
                            }
                        }
                    }
                    Notice::AddressAdded { radio, address } => self.wifi.announce(radio, address),
                    Notice::AddressRemoved { radio, address } => {
                        self.wifi.withdraw(radio, address);
                    }
                    Notice::Refused { sequence } => {
                        if let Some(station) = sequence.checked_sub(1) {
                            self.wifi.refused(station as usize);
                        }
                    }
                }
            }
            for status in refused {
                self.tell(&status);
            }
        }
        Ok(())
    }

    fn status(&mut self) -> Status {
        let now = clock::now();
        self.deliver(now, true);
        self.records.status(self.wifi.report(now), self.wifi.busy(), now)
    }
}

/// The addresses by which the driver knows the radios of the stations, in their order.
fn find(settings: &Settings) -> anyhow::Result<Vec<[u8; 6]>> {
    let list = || nl80211::radios(&mut Generic::open()?);
    let mut known = list().unwrap_or_default();
    let place = |known: &[Vec<[u8; 6]>], wanted| {
        known
            .iter()
            .find(|addresses| addresses.contains(&wanted))
            .map(|addresses| addresses.get(KNOWN_BY).copied().unwrap_or(wanted))
    };
    let wanted = |host: &Host| match host {
        Host::Radio(address) => Some(*address),
        Host::Interface(_) => None,
    };
    let all: Vec<_> = settings.stations.iter().filter_map(|one| wanted(&one.host)).collect();
    if all.iter().any(|address| place(&known, *address).is_none()) {
        // `iw phy … set netns` moves radios.
        capability::require(&[Capability::CAP_SYS_ADMIN])?;
        for namespace in Namespace::all() {
            known.extend(namespace.run(list).unwrap_or_default());
        }
    }
    let mut addresses = Vec::new();
    for (address, station) in all.iter().zip(&settings.stations) {
        let text = ip::mac_text(*address);
        let found = place(&known, *address).with_context(|| {
            format!(
                "station {}: there is no radio {text}; `iw phy` lists what there is, `modprobe \
                 mac80211_hwsim radios=N` makes 02:00:00:00:00:00, 02:00:00:00:01:00, …",
                station.name
            )
        })?;
        ensure!(
            !addresses.contains(&found),
            "station {}: another one has radio {text}, too; give it another",
            station.name
        );
        addresses.push(found);
    }
    Ok(addresses)
}

impl Stations for Radios {
    fn title(&self) -> String {
        self.records.title()
    }

    fn finish(mut self) -> anyhow::Result<(Status, End)> {
        let status = self.status();
        // The driver keeps a frame, and its sender's memory, until it is told what became of it.
        self.deliver(clock::now() + REMAINDER, false);
        self.records.end()?;
        Ok((status, End::Asked))
    }
}

impl Service for Radios {
    type Change = Infallible;

    fn interest(&mut self, poller: &mut Poller) {
        self.number = poller.add(&self.hwsim);
    }

    fn turn(&mut self, now: Instant, _poller: &mut Poller) -> anyhow::Result<Next> {
        self.deliver(now, true);
        if self.ready {
            let now = clock::now();
            self.deliver(now, true);
            self.fill(now).context("cannot hear mac80211_hwsim; start again")?;
            self.deliver(now, true);
        }
        if self.wifi.has_heard() {
            self.silent_until = Instant::MAX;
        } else if self.silent_until <= now {
            self.silent_until = Instant::MAX;
            tracing::warn!(
                "no radio has sent a frame so far; set one up, and run this in the network \
                 namespace in which the radios were made"
            );
        }
        let next = if self.ready { now } else { self.wifi.next_deadline() };
        Ok(Next::Wait(next.min(self.silent_until)))
    }

    fn wait(&mut self, poller: &mut Poller, until: Instant) -> io::Result<()> {
        self.alarm.wait(poller, self.number + 1, until)?;
        self.ready |= poller.readable(self.number);
        Ok(())
    }

    fn report(&mut self, _now: Instant) -> anyhow::Result<Value> {
        Ok(serde_json::to_value(self.status())?)
    }

    fn change(&mut self, change: Infallible, _now: Instant) -> anyhow::Result<()> {
        match change {}
    }
}
