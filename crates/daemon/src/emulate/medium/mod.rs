//! Stations on an emulated 802.11 channel, each a TAP interface, in real time.
//!
//! * [`settings`]: the channel and the stations;
//! * `signal`: links among stations: signals, losses and rates;
//! * `air`: the channel with all that is on its way, a stage without I/O;
//! * `radio`: the interface of a station;
//! * `service`: moves frames between interfaces and channel, in time.

mod air;
mod radio;
mod service;
pub mod settings;
mod signal;

pub use settings::Settings;

use super::settings::Run;
use super::{End, Status, become_timely};
use crate::control::{Kind, ServiceName};
use crate::reactor::Reactor;
use crate::{already, descriptors, say};
use service::Radios;
use sheaf_netio::capability::{self, Capability};
use std::sync::Arc;

/// Emulates until it is asked to end, or an interface has gone.
///
/// # Errors
/// Fails where rights are missing, where an interface cannot be made, or where a medium of this
/// name is at work.
pub fn run(settings: &Settings, run: &Run) -> anyhow::Result<(Status, End)> {
    descriptors::require()?;
    let mut rights = vec![Capability::CAP_NET_ADMIN];
    if settings.stations.iter().any(|station| station.namespace.is_some()) {
        rights.push(Capability::CAP_SYS_ADMIN);
    }
    capability::require(&rights)?;
    let name = ServiceName::new(Kind::Emulate, &settings.name)?;
    // Before the interfaces: the second of two that are started alike is to name the first.
    let mut reactor = Reactor::new(name, &[]).map_err(|error| {
        let advice = "is emulated already; stop the other `sheaf emulate` first";
        already(error, format!("{} {advice}", settings.name))
    })?;
    let mut radios = Radios::new(settings, run)?;
    let _awake = become_timely(run)?;
    // Interfaces of ours are not made again.
    capability::keep_only(&[])?;
    say(&format!("{}; seed {}", radios.title(), settings.seed));
    let refuse = "a medium cannot be changed; stop it, and start it with the other file";
    reactor.run(&mut radios, Arc::new(move |_, _| anyhow::bail!(refuse)))?;
    radios.finish()
}
