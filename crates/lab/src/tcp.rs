//! The plan key of TCP's congestion control, on both engines.

use anyhow::Context;
use nix::sys::socket::{setsockopt, sockopt};
use serde::{Deserialize, Serialize};
use sheaf_tcp::Algorithm;
use std::ffi::OsString;
use std::os::fd::AsFd;

/// Congestion control of a plan's TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Congestion {
    /// CUBIC, Linux's default.
    #[default]
    Cubic,
    /// BBR of version 1.
    Bbr,
}

impl Congestion {
    /// Its name in Linux.
    pub fn name(self) -> &'static str {
        match self {
            Congestion::Cubic => "cubic",
            Congestion::Bbr => "bbr",
        }
    }

    /// The algorithm under the virtual clock.
    pub fn algorithm(self) -> Algorithm {
        match self {
            Congestion::Cubic => Algorithm::Cubic,
            Congestion::Bbr => Algorithm::Bbr,
        }
    }

    /// Sets it on a socket of Linux.
    ///
    /// # Errors
    /// The kernel does not have it.
    pub fn set(self, socket: &impl AsFd) -> anyhow::Result<()> {
        let name = match self {
            Congestion::Cubic => "cubic",
            Congestion::Bbr => "bbr",
        };
        setsockopt(socket, sockopt::TcpCongestion, &OsString::from(name))
            .with_context(|| format!("no congestion control {name}; `modprobe tcp_{name}`"))
    }

    /// Whether it is what plans have that do not name one.
    pub fn is_default(&self) -> bool {
        *self == Congestion::default()
    }
}
