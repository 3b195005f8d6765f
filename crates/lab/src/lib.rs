//! The lab: proves the project's claims on one machine.
//!
//! * [`plan`]: experiments as TOML files, read and checked;
//! * [`point`]: one point of a sweep, worked out;
//! * [`virtual_time`]: the engine under a virtual clock;
//! * [`netns`]: the engine on real Linux stacks;
//! * [`outcome`]: what a point came to;
//! * [`run`]: all points of a plan;
//! * [`trunk`]: the experiments with trunks of radio links;
//! * [`report`]: JSON, CSV, HTML and the terminal.

pub mod netns;
pub mod outcome;
pub mod plan;
pub mod point;
pub mod report;
pub mod run;
pub mod trunk;
pub mod virtual_time;
