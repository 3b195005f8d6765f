//! The engine `netns`: two hosts as anonymous network namespaces, real sockets, real time; between
//! them a box in which `sheaf emulate` runs, or a bridge with a token bucket filter.
//!
//! Everything goes with this process, however it ends: namespaces and interfaces with their
//! descriptors, the emulator because the kernel is asked to kill it.

mod path;
mod traffic;

use super::outcome;
use super::plan::{Point, Test};
use crate::experiment::Tools;
use crate::measured::Measured;
use crate::tool;
use path::{FAR, Path};

/// Runs one point in real time. Needs root.
pub fn run(point: &Point, tools: &Tools) -> anyhow::Result<Measured> {
    let path = Path::new(point, tools)?;
    let mut measured = match (point.tool, point.test) {
        (Some(tool), _) => {
            let figures = tool::run(tool, point, [&path.near, &path.far], FAR)?;
            Ok(outcome::figures(&figures))
        }
        (None, Test::Udp) => traffic::udp(point, &path),
        (None, Test::Ping) => traffic::ping(point, &path),
        (None, Test::Tcp) => traffic::tcp(point, &path),
        (None, Test::Stream) => traffic::stream(point, &path),
    }?;
    measured.metrics.extend(path.lateness(tools)?);
    Ok(measured)
}
