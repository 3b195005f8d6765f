//! The settings of `sheaf emulate` as far as words have set them.

use super::link_draft::LinkDraft;
use sheaf_daemon::emulate::ClassChange;
use sheaf_emulator::LinkConfig;
use std::path::Path;
use std::time::Duration;

/// The settings as far as words have set them.
#[derive(Default)]
pub struct Draft {
    pub interfaces: Vec<String>,
    /// Whether packets that leave and packets that arrive are emulated, where a word says so.
    pub ways: Option<(bool, bool)>,
    pub command: Vec<String>,
    pub links: [LinkDraft; 2],
    pub reverse: bool,
    pub seed: Option<u64>,
    pub pipe: Option<String>,
    /// The class that changes, and how.
    pub class: Option<(String, ClassChange)>,
    pub rules: Option<String>,
    /// The file of many links, or of a medium.
    pub file: String,
    /// With a change: the interface that the link has, as the command named it.
    pub of: Option<String>,
    pub run: RunDraft,
}

/// Settings of the program, not of the link.
#[derive(Default)]
pub struct RunDraft {
    pub audit: bool,
    pub budget: Option<Duration>,
    pub spin: Option<Duration>,
    pub awake: bool,
    pub fifo: Option<u8>,
    pub gro: Option<Duration>,
    pub pcap: Option<String>,
}

impl Draft {
    /// The direction that words set now.
    pub fn link(&mut self) -> &mut LinkDraft {
        &mut self.links[usize::from(self.reverse)]
    }

    /// New terms of the class that changes.
    pub fn class(&mut self) -> &mut ClassChange {
        &mut self.class.get_or_insert_default().1
    }

    /// Both directions, for packets whose IP header begins at byte `header`; files are looked for
    /// in `directory`.
    pub fn both(self, header: usize, directory: &Path) -> anyhow::Result<[LinkConfig; 2]> {
        let [forward, back] = self.links;
        let forward = forward.finish(header, directory)?;
        let back = if self.reverse { back.finish(header, directory)? } else { forward.clone() };
        Ok([forward, back])
    }
}
