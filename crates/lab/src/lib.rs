//! The lab: proves the project's claims on one machine.
//!
//! * [`plan`]: experiments as TOML files, read and checked;
//! * [`sheet`]: the form of a plan; [`measured`]: what a point hands over; [`view`]: how it is shown;
//!   [`columns`]: its numbers, as tables;
//! * [`experiment`]: what every kind of experiment can do; [`fault`]: faults of a plan;
//! * [`voip`]: calls over a wireless mesh, without and with aggregation;
//! * [`home`]: a home behind a slow link, without and with window control;
//! * [`link`]: one emulated link: its rate, its delay, and what TCP makes of its queue;
//! * [`trunk`]: trunks of radio links;
//! * [`run`]: all points of a plan on one of the two engines; [`store`]: points that are kept;
//! * [`progress`]: how far a run has come;
//! * [`result`]: what a run came to;
//! * [`tcp`]: TCP under the virtual clock;
//! * [`program`]: services of `sheaf` in a namespace; [`reports`]: their reports; [`realtime`]:
//!   threads in real time;
//! * [`report`]: JSON, CSV, HTML and the terminal.
//!
//! A new kind of experiment is a module with its scenarios and treatments, an
//! `impl Experiment for Sheet<Scenario, Treatment>`, a variant of [`plan::Plan`], and a file under
//! `plans/`.

pub mod columns;
pub mod experiment;
pub mod fault;
pub mod home;
pub mod link;
pub mod measured;
pub mod plan;
pub mod program;
pub mod progress;
pub mod realtime;
pub mod report;
pub mod reports;
pub mod result;
pub mod run;
pub mod sheet;
pub mod store;
pub mod tcp;
pub mod trunk;
pub mod view;
pub mod voip;
