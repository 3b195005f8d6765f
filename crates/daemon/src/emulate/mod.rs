//! Emulated links on real interfaces, and an emulated 802.11 channel ([`medium`]).
//!
//! * [`settings`]: what is to be done;
//! * `place`: where the link is put: between two interfaces, on one, around a shell;
//! * `carrier`: carries the packets of a place; `spare`: their buffers; `machine`: the links
//!   themselves; `datapath`: the service around one place; [`many`]: around many, on threads;
//! * `status`: the report; `describe`: what a link is set to, in words;
//! * `capture`: packets with what happened to them; `pcapng`: its file.

mod capture;
mod carrier;
mod datapath;
mod describe;
mod machine;
pub mod many;
#[cfg(feature = "medium")]
pub mod medium;
mod pcapng;
mod place;
pub mod settings;
mod spare;
mod status;

pub use datapath::End;
pub use describe::{ClassSettings, LinkSettings};
pub use machine::{Change, ClassChange};
pub use settings::Settings;
pub use status::{ClassStatus, Heard, Lateness, LinkStatus, StationStatus, Status};

use crate::control::{Kind, ServiceName};
use crate::reactor::{Parse, Reactor};
use crate::{already, descriptors, say};
use anyhow::Context;
use datapath::Datapath;
use machine::Machine;
use place::Place;
use settings::{Mode, Run};
use sheaf_netio::capability::{self, Capability};
use sheaf_netio::{clock, scheduling};
use std::fs::File;

/// Capabilities that emulation in this place takes.
fn rights(mode: &Mode) -> &'static [Capability] {
    use Capability::{CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW, CAP_PERFMON, CAP_SYS_ADMIN};
    match mode {
        Mode::Link(_) => &[CAP_NET_ADMIN, CAP_NET_RAW],
        // A program leads the packets aside.
        Mode::Dev { .. } => &[CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF, CAP_PERFMON],
        // The command has a network namespace of its own.
        Mode::Shell { .. } => &[CAP_NET_ADMIN, CAP_SYS_ADMIN],
    }
}

/// Those, and what setting up takes besides.
fn rights_to_begin(rights: &[Capability], run: &Run) -> Vec<Capability> {
    let mut rights = rights.to_vec();
    if run.gro.is_some() && !rights.contains(&Capability::CAP_SYS_ADMIN) {
        // To mount a sysfs of its own.
        rights.push(Capability::CAP_SYS_ADMIN);
    }
    rights
}

/// Emulates until it is asked to end, or the command inside has ended.
pub fn run(settings: &Settings, parse: Parse<Change>) -> anyhow::Result<(Status, End)> {
    descriptors::require()?;
    let rights = rights(&settings.mode);
    capability::require(&rights_to_begin(rights, &settings.run))?;
    let place = Place::open(&settings.mode, settings.run.gro)?;
    let machine = Machine::new(&settings.plan, place.ethernet, settings.seed, clock::now())?;
    // In this order: the command would inherit blocked signals, and threads that did not would die
    // of them.
    let child = place.start_command(settings)?;
    let mut reactor = reactor(&place)?;
    let mut datapath = Datapath::new(place, machine, child, settings)?;
    let _awake = become_timely(&settings.run)?;
    // The command inside runs by now, with what it was started with.
    capability::keep_only(rights)?;
    let title = format!("{}; seed {}", datapath.summary(), settings.seed);
    match settings.mode {
        // The standard output is the command's.
        Mode::Shell { .. } => tracing::info!("{title}"),
        Mode::Link(_) | Mode::Dev { .. } => say(&title),
    }
    reactor.run(&mut datapath, parse)?;
    datapath.finish()
}

/// Takes the names by which the emulation is asked: those of its interfaces.
fn reactor(place: &Place) -> anyhow::Result<Reactor> {
    let name = |dev: &String| ServiceName::new(Kind::Emulate, dev);
    let names: Vec<_> = place.answers_to.iter().map(name).collect::<Result<_, _>>()?;
    let (first, others) = names.split_first().context("an emulation has a name")?;
    Reactor::new(first.clone(), others).map_err(|error| {
        let names = place.answers_to.join(" or ");
        already(error, format!("{names} is emulated already; stop the other `sheaf emulate` first"))
    })
}

/// Makes this thread, which is to carry packets, as timely as `run` asks. `--awake` lasts while the
/// returned file is open.
fn become_timely(run: &Run) -> anyhow::Result<Option<File>> {
    scheduling::precise_sleeps()?;
    if let Some(priority) = run.fifo {
        scheduling::fifo(priority).map_err(|error| {
            anyhow::anyhow!(
                "--fifo {priority} is refused ({error}); give this process CAP_SYS_NICE, or leave \
                 it out"
            )
        })?;
    }
    let awake = || {
        let device = scheduling::LATENCY_DEVICE;
        scheduling::keep_awake().with_context(|| {
            format!("cannot set {device}; leave out --awake where the kernel has no idle states")
        })
    };
    run.awake.then(awake).transpose()
}
