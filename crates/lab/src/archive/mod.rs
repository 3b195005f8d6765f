//! Archives of runs: one file that another machine can check.
//!
//! An archive is made from what a run kept: its plan and the records of its points. The result, the
//! rows and the report are made from these two, in the archive as in the [check](check()), and each
//! point of a virtual run can be measured again to the last bit.

mod check;
mod contents;
mod file;

pub use check::{Sample, Step, check};
pub use contents::Contents;
pub use file::{Archive, FOLDER};
