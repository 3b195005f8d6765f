//! The contract of an experiment: list its points, measure one, describe how it is shown.
//!
//! The rest of the lab is the same for all kinds: it reads plans, runs points (in parallel
//! under the virtual clock, one at a time in real time), keeps each finished point, joins them, and
//! writes the report with the published figures beside the measured ones.

use crate::fault::Fault;
use crate::measured::{Measured, Row, SweepPoint};
use crate::reading::Numbers;
use crate::view::View;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The stacks that packets pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// Real Linux stacks in network namespaces, in real time; needs root.
    Netns,
    /// Under a virtual clock: same seed, same result to the byte.
    Virtual,
}

impl Engine {
    /// Its name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Netns => "netns",
            Engine::Virtual => "virtual",
        }
    }
}

/// A plan of one kind, ready to be run: seed, seconds and sweep are those of its
/// [`Head`](crate::plan_file::Head).
pub trait Experiment: Send + Sync {
    /// Checks that the plan can be run, before anything starts.
    fn check(&self) -> Result<(), Fault>;

    /// Checks that this machine has what `engine` needs: tools, rights, kernel support.
    fn ready(&self, _engine: Engine, _tools: &Tools) -> anyhow::Result<()> {
        Ok(())
    }

    /// The independent points of the plan on `engine`, in the order in which they are shown: the
    /// first repetition of each.
    fn points(&self, engine: Engine) -> Vec<SweepPoint>;

    /// Measures one point. On [`Engine::Virtual`] it is called from several threads at once; on
    /// [`Engine::Netns`] never twice at a time.
    fn measure(
        &self,
        sweep_point: &SweepPoint,
        engine: Engine,
        tools: &Tools,
    ) -> anyhow::Result<Measured>;

    /// The form in which the results are shown.
    fn view(&self) -> View;

    /// Draws the conclusion from all rows. `holes` are points of the plan without a row; no number
    /// may be read off across them.
    fn conclude(&self, _rows: &[Row], _holes: &[SweepPoint]) -> Conclusion {
        Conclusion::default()
    }

    /// Whether the summary of a treatment follows from its own rows; otherwise it takes the whole
    /// scenario.
    fn concludes_by_treatment(&self) -> bool {
        false
    }
}

/// Programs that an experiment may start.
#[derive(Clone, Debug)]
pub struct Tools {
    /// The program `sheaf` itself, for `sheaf emulate`, `trunk` and `window` inside a namespace.
    pub sheaf: PathBuf,
}

/// The conclusion from all rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conclusion {
    /// `scenario/treatment` → key → number, with the keys of [`Reading`](crate::reading::Reading).
    pub summary: BTreeMap<String, Numbers>,
    /// The conclusion in one sentence.
    pub answer: String,
    /// A remark under a scenario's table, by scenario.
    pub remarks: BTreeMap<String, String>,
}
