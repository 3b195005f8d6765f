//! One interface over several links.
//!
//! * [`settings`]: what is to be done;
//! * [`key`]: the file of its key;
//! * `daemon`: the turns of the one thread: TUN interface, endpoint, links, time;
//! * `member`: one link: its interface, its socket, where the other end is;
//! * [`report`]: what `sheaf show` prints.
//!
//! The machine that numbers, deals out and puts in order is the crate `sheaf_trunk`.

mod daemon;
pub mod key;
mod member;
pub mod report;
pub mod settings;

pub use daemon::run;
pub use settings::Settings;
