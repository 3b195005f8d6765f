//! The lab: proves the project's claims on one machine.
//!
//! * [`plan`]: experiments as TOML files, read and checked;
//! * [`plan_file`]: the form of a plan; [`measured`]: the measurement of a point; [`view`]: how it
//!   is shown; [`columns`]: its numbers, as tables;
//! * [`median`]: the median of repetitions; [`reading`]: a number read off a sweep;
//! * [`experiment`]: the contract of every kind of experiment; [`fault`]: faults of a plan;
//! * [`voip`]: calls over a wireless mesh, without and with aggregation;
//! * [`home`]: a home behind a slow link, without and with window control;
//! * [`link`]: one emulated link: its rate, its delay, and the effect of its queue on TCP;
//! * [`trunk`]: trunks of radio links;
//! * [`run`]: all points of a plan on one of the two engines; [`store`]: points that are kept;
//! * [`progress`]: progress of a run;
//! * [`result`]: the result of a run; [`archive`]: a run in one file, to check elsewhere;
//! * [`tcp`]: the plan key of TCP's congestion control;
//! * [`tool`]: ping, iperf3, MGEN and D-ITG as sources of traffic;
//! * [`program`]: services of `sheaf` in a namespace; [`realtime`]: threads in real time;
//! * [`reproduced`]: published values beside ours; [`claims`]: what README and docs say;
//! * [`report`]: JSON, CSV, HTML and the terminal.
//!
//! A new kind of experiment is a module with its scenarios and treatments, an `impl Experiment for
//! PlanFile<Scenario, Treatment>`, a variant of [`plan::Plan`], and a file under `plans/`.

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod archive;
pub mod claims;
pub mod columns;
pub mod experiment;
pub mod fault;
pub mod home;
pub mod link;
pub mod measured;
pub mod median;
pub mod plan;
pub mod plan_file;
pub mod program;
pub mod progress;
pub mod reading;
pub mod realtime;
pub mod report;
pub mod reproduced;
pub mod result;
pub mod run;
pub mod store;
pub mod tcp;
pub mod tool;
pub mod trunk;
pub mod view;
pub mod voip;
