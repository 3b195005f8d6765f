//! Stations on an emulated 802.11 channel, in real time: each a TAP interface, or each a radio of
//! mac80211_hwsim.
//!
//! * [`settings`]: the channel and the stations;
//! * `signal`: links among stations: signals, losses and rates;
//! * `air`: the channel with all that is on its way, a stage without I/O;
//! * `stations`: the service of either kind, and `records`: what it measures, captures and reports;
//! * `interface`: the interface of a station, and `interfaces`: moves frames between interfaces and
//!   channel, in time;
//! * `wifi`: what waits in radios, and which are meant by their frames, a stage without I/O;
//!   `radios`: finds radios, and moves frames between them and the channel.

mod air;
mod interface;
mod interfaces;
mod radios;
mod records;
pub mod settings;
mod signal;
mod stations;
mod wifi;

pub use settings::Settings;

use super::settings::Run;
use super::{End, Status, become_timely};
use crate::control::{Kind, ServiceName};
use crate::reactor::Reactor;
use crate::{already, descriptors, say};
use interfaces::Interfaces;
use radios::Radios;
use settings::{Host, Station};
use sheaf_netio::capability::{self, Capability};
use stations::Stations;
use std::sync::Arc;

/// Emulates until it is asked to end, or an interface has gone.
///
/// # Errors
/// Fails where rights are missing, where an interface cannot be made, or where a medium of this
/// name is at work.
pub fn run(settings: &Settings, run: &Run) -> anyhow::Result<(Status, End)> {
    descriptors::require()?;
    let mut rights = vec![Capability::CAP_NET_ADMIN];
    if settings.stations.iter().filter_map(Station::interface).any(|one| one.namespace.is_some()) {
        rights.push(Capability::CAP_SYS_ADMIN);
    }
    capability::require(&rights)?;
    let name = ServiceName::new(Kind::Emulate, &settings.name)?;
    // Before the stations: the second of two that are started alike is to name the first.
    let reactor = Reactor::new(name, &[]).map_err(|error| {
        let advice = "is emulated already; stop the other `sheaf emulate` first";
        already(error, format!("{} {advice}", settings.name))
    })?;
    match settings.stations.iter().any(|station| matches!(station.host, Host::Radio(_))) {
        true => run_with(reactor, Radios::new(settings, run)?, settings.seed, run),
        false => run_with(reactor, Interfaces::new(settings, run)?, settings.seed, run),
    }
}

fn run_with(
    mut reactor: Reactor,
    mut stations: impl Stations,
    seed: u64,
    run: &Run,
) -> anyhow::Result<(Status, End)> {
    let _awake = become_timely(run)?;
    // What was set up is not set up again.
    capability::keep_only(&[])?;
    say(&format!("{}; seed {seed}", stations.title()));
    let refuse = "a medium cannot be changed; stop it, and start it with the other file";
    reactor.run(&mut stations, Arc::new(move |_, _| anyhow::bail!(refuse)))?;
    stations.finish()
}
