//! Emulated links on real interfaces.
//!
//! * [`settings`]: what is to be done;
//! * [`place`]: where the link is put: between two interfaces, on one, around a shell;
//! * [`datapath`]: carries the packets, in time; [`machine`]: the links themselves;
//! * [`control`]: questions and changes while it runs; [`status`]: the report;
//! * [`capture`]: packets with what happened to them, as pcapng.

mod capture;
pub mod control;
mod datapath;
mod machine;
mod place;
pub mod settings;
mod status;

pub use machine::Change;
pub use settings::Settings;
pub use status::{Lateness, LinkStatus, Status};

use anyhow::{Context, bail};
use control::ParseChange;
use datapath::Datapath;
use machine::Machine;
use place::Place;
use settings::Mode;
use sheaf_netio::{child, scheduling};
use std::fs::File;

/// Why an emulation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It was asked to.
    Asked,
    /// The command inside has ended with this status.
    Command(u8),
    /// This interface went away.
    Gone(String),
}

/// Emulates until it is asked to end, or the command inside has ended.
pub fn run(settings: &Settings, parse: ParseChange) -> anyhow::Result<(Status, End)> {
    if !nix::unistd::geteuid().is_root() {
        bail!("emulation needs root; start it with sudo");
    }
    let place = Place::open(&settings.mode)?;
    let machine = Machine::new(&settings.plan, place.ethernet, settings.seed)?;
    // In this order: the command would inherit blocked signals, and threads that did not would die
    // of them.
    let child = place.start_command(settings)?;
    let signals = crate::signals::signals()?;
    let inbox = control::listen(&place, parse)?;
    let mut datapath = Datapath::new(place, machine, settings, inbox)?;
    let _awake = become_timely(settings)?;
    let title = format!("{}; seed {}", datapath.title(), settings.seed);
    match settings.mode {
        // The standard output is the command's.
        Mode::Shell { .. } => eprintln!("{title}"),
        Mode::Link(_) | Mode::Dev { .. } => println!("{title}"),
    }
    let end = datapath.run(&signals, child.as_ref())?;
    let status = datapath.finish()?;
    let end = match (end, child) {
        (datapath::End::Gone(dev), _) => End::Gone(dev),
        (_, Some(child)) => {
            let status = child.wait().context("the command is lost")?;
            End::Command(child::shell_status(status))
        }
        (datapath::End::Asked, None) => End::Asked,
    };
    Ok((status, end))
}

/// Makes this thread, which is to carry packets, as timely as `settings` ask. `--awake` lasts
/// while the returned file is open.
fn become_timely(settings: &Settings) -> anyhow::Result<Option<File>> {
    scheduling::precise_sleeps()?;
    if let Some(priority) = settings.fifo {
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
    settings.awake.then(awake).transpose()
}
