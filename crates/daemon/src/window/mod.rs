//! Window control on one interface.
//!
//! * [`settings`]: what is to be done;
//! * `air`: radios on the way;
//! * `back`: the way back of acknowledgements' copies;
//! * `daemon`: keeps time for program and controllers;
//! * [`report`]: what `sheaf show` prints.

mod air;
mod back;
mod daemon;
pub mod report;
pub mod settings;

pub use daemon::run;
pub use settings::Settings;
