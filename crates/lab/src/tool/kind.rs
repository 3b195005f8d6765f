//! The programs that a plan can name.

use serde::{Deserialize, Serialize};

/// A program that makes the traffic of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tool {
    /// Echo requests by ping of iputils or busybox.
    Ping,
    /// TCP or a UDP stream by iperf3.
    Iperf3,
    /// A UDP stream by MGEN of the Naval Research Laboratory.
    Mgen,
    /// A UDP stream by D-ITG of the University of Naples.
    Ditg,
}

impl Tool {
    /// Its name in plans.
    pub fn name(self) -> &'static str {
        match self {
            Tool::Ping => "ping",
            Tool::Iperf3 => "iperf3",
            Tool::Mgen => "mgen",
            Tool::Ditg => "ditg",
        }
    }

    /// Names of its programs.
    pub fn programs(self) -> &'static [&'static str] {
        match self {
            Tool::Ping => &["ping"],
            Tool::Iperf3 => &["iperf3"],
            Tool::Mgen => &["mgen"],
            Tool::Ditg => &["ITGRecv", "ITGSend", "ITGDec"],
        }
    }

    /// The package of Debian that has them.
    pub fn package(self) -> &'static str {
        match self {
            Tool::Ping => "iputils-ping",
            Tool::Iperf3 => "iperf3",
            Tool::Mgen => "mgen",
            Tool::Ditg => "d-itg",
        }
    }

    /// Name of the first of its programs that is not in `path`, folders as in `$PATH`.
    pub fn absent(self, path: &std::ffi::OsStr) -> Option<&'static str> {
        let is_there =
            |program: &&str| std::env::split_paths(path).any(|dir| dir.join(program).is_file());
        self.programs().iter().copied().find(|program| !is_there(program))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_is_named() {
        assert_eq!(Tool::Ditg.absent("".as_ref()), Some("ITGRecv"));
        assert_eq!(Tool::Mgen.absent("/nonexistent:/neither".as_ref()), Some("mgen"));
    }
}
