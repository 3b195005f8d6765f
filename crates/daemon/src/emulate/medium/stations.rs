//! The service that moves frames between hosts and the channel, whatever the hosts are.

use crate::emulate::{End, Status};
use crate::service::Service;
use std::convert::Infallible;

/// Stations at work. A medium cannot be changed while it runs.
pub trait Stations: Service<Change = Infallible> {
    /// The medium, for people.
    fn title(&self) -> String;

    /// Ends the capture; returns what was done, and why it ended.
    fn finish(self) -> anyhow::Result<(Status, End)>;
}
