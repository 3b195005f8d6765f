//! One interface over several links.
//!
//! * [`settings`]: the settings of a trunk;
//! * [`key`]: the file with its key;
//! * `daemon`: the turns of the one thread: TUN interface, endpoint, links, time;
//! * `member`: one link: the address of its other end, frames on their way there, its quota;
//! * `socket`: the socket of a link, or of several: its interface;
//! * `share`: a port that several trunks have;
//! * `quota`: the file that keeps the counters of quotas over restarts;
//! * [`report`]: the report that `sheaf show` prints.
//!
//! The state machine that numbers frames, chooses links and restores the order is the crate
//! `sheaf_trunk`.

mod daemon;
pub mod key;
pub mod lookup;
mod member;
mod quota;
pub mod report;
pub mod settings;
mod share;
mod socket;

pub use daemon::run;
pub use settings::Settings;
