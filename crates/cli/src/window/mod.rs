//! `sheaf window`.
//!
//! * [`arguments`]: the command line;
//! * [`daemon`]: keeps time for program and controllers, and answers `sheaf show`;
//! * [`report`]: what `sheaf show` tells.

mod arguments;
mod daemon;
mod report;

#[cfg(test)]
pub use report::{Flow, Total};
pub use report::{Report, text};

/// The grammar, for `--help`.
pub const HELP: &str = "\
Usage: sheaf window dev IF capacity RATE|auto|link [upload RATE|auto|link]
                    [formula 1|2|maxmin | fixed BYTES] [direction download|upload|both]
                    [quic limit|leave] [push auto|on|off] [slack TIME] [segments N]

  dev IF       the interface towards the bottleneck: download is what comes in by it
  capacity     what the bottleneck carries, link headers included; auto: found by itself;
               link: as fast as the interface is
  upload       the same for what goes out by IF (default: as capacity)
  formula      1: the same window for all; 2: the same rate for all; maxmin: the same rate for all
               who want it (default)
  fixed        this window for every connection; capacity may be left out then
  direction    which data is governed (both)
  quic         limit: hold bulk QUIC that understands ECN to its share; leave: do not (default)
  push         whether segments are pushed (PSH), so that receivers acknowledge each at once and none
               come in pairs; auto: where a full one takes 1 ms or more (12 Mbit/s; default)
  slack        queue that may stand so that the link never runs dry (1ms; at least one packet)
  segments     no window is smaller than so many full segments (2)

Example: sheaf window dev eth0 capacity 20mbit upload 4mbit   until Ctrl-C";

/// `sheaf window`: runs until it is interrupted.
pub fn window(words: &[String]) -> anyhow::Result<()> {
    daemon::run(&arguments::Arguments::parse(words)?)
}
