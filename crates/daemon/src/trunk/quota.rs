//! The file that keeps the counters of quotas over restarts: `NAME.quota` in `/var/lib/sheaf`, or
//! in the directory that systemd or a person gives in the environment.
//!
//! A line for each link with a quota: the period and its number, the bytes that are used, and this
//! end of the link, as `month 24328 31415926535 path 0.0.0.0:7431@wwan0`. Flash memory wears out,
//! so the file is written for a percent of a quota, else every ten minutes, and at the end. A
//! thread writes it: a disk may take long, and packets do not wait for it.

use super::member::Member;
use super::settings::{Settings, Spec};
use anyhow::Context;
use sheaf_netio::clock;
use sheaf_stage::{Duration, Instant};
use sheaf_trunk::Quota;
use sheaf_trunk::quota::{Meter, Period, Record};
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::thread::{Builder, JoinHandle};

/// Where the file is unless the environment names another place.
const DEFAULT: &str = "/var/lib/sheaf";
/// Permissions of a directory that is made: as those of the units' StateDirectory.
const MODE: u32 = 0o750;
/// Time after which what is used is written even if it is less than a percent.
const WRITE_PERIOD: Duration = Duration::from_secs(600);
/// Bytes of the largest file: [`sheaf_wire::trunk::MAX_LINKS`] lines of about a hundred.
const LARGEST: u64 = 1 << 13;

/// A line of the file.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    period: Period,
    record: Record,
    link: String,
}

/// The counters of a trunk as they are kept.
pub struct Ledger {
    path: PathBuf,
    /// Lines of an earlier run that no link has taken yet.
    earlier: Vec<Line>,
    /// Text of the file, as far as it is known.
    text: String,
    written_at: Instant,
    /// The write that is under way, with the text.
    writing: Option<JoinHandle<io::Result<()>>>,
    /// The last write failed.
    failed: bool,
}

impl Ledger {
    /// Reads what an earlier run kept; `None` where no link has a quota.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub fn open(settings: &Settings) -> anyhow::Result<Option<Ledger>> {
        if settings.members.iter().all(|link| link.quota.is_none()) {
            return Ok(None);
        }
        // systemd separates several directories by colons (systemd.exec(5)).
        let given = std::env::var("STATE_DIRECTORY").ok();
        let first = given.as_deref().and_then(|list| list.split(':').next());
        let directory = Path::new(first.filter(|path| path.starts_with('/')).unwrap_or(DEFAULT));
        let path = directory.join(format!("{}.quota", settings.name));
        let made = DirBuilder::new().recursive(true).mode(MODE).create(directory);
        made.with_context(|| cannot_keep(&path))?;
        let (text, earlier) = load(&path).unwrap_or_else(|reason| {
            let (name, path) = (&settings.name, path.display());
            tracing::warn!("trunk {name}: {path}: {reason}; quotas are counted anew");
            Default::default()
        });
        let (written_at, writing, failed) = (clock::now(), None, false);
        Ok(Some(Ledger { path, earlier, text, written_at, writing, failed }))
    }

    /// The counter of a link, which goes on where the earlier run ended.
    pub fn meter(&mut self, link: &Spec, quota: Quota) -> Meter {
        let own_end = link.own_end();
        let same = |line: &Line| line.link == own_end && line.period == quota.period;
        // Links of one interface to several neighbours have the same words: each takes one line.
        let at = self.earlier.iter().position(same);
        let record = at.map(|at| self.earlier.remove(at).record);
        Meter::new(quota, record, clock::utc())
    }

    /// Writes the file, if another text is to be in it, so that an error is known at the start.
    pub fn begin(&mut self, members: &mut [Member], now: Instant) -> anyhow::Result<()> {
        self.written_at = now;
        self.write(members).with_context(|| cannot_keep(&self.path))
    }

    /// Writes the file if it is time to. Returns the first of errors in a row.
    pub fn keep(&mut self, members: &mut [Member], now: Instant) -> anyhow::Result<()> {
        let mut result = Ok(());
        if let Some(written) = self.writing.take_if(|writing| writing.is_finished()) {
            let first = !self.failed;
            result = written.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
            self.failed = result.is_err();
            if self.failed {
                self.text.clear();
                result = if first { result } else { Ok(()) };
            }
        }
        let mut meters = members.iter().filter_map(|member| member.meter.as_ref());
        let due = match now - self.written_at >= WRITE_PERIOD {
            true => meters.any(Meter::has_changed),
            // A disk that fails is asked every ten minutes.
            false => !self.failed && meters.any(Meter::has_changed_much),
        };
        if due && self.writing.is_none() {
            self.written_at = now;
            self.text = text(members);
            let (path, text) = (self.path.clone(), self.text.clone());
            let thread = Builder::new().name("quota".to_owned());
            // Without a thread the next percent is written.
            self.writing = thread.spawn(move || replace(&path, &text)).ok();
        }
        result.with_context(|| cannot_keep(&self.path))
    }

    /// Writes the file at the end of the run.
    pub fn finish(&mut self, members: &mut [Member]) {
        if let Some(Ok(Err(_)) | Err(_)) = self.writing.take().map(JoinHandle::join) {
            self.text.clear();
        }
        if let Err(error) = self.write(members) {
            tracing::warn!("{}: {error}", cannot_keep(&self.path));
        }
    }

    fn write(&mut self, members: &mut [Member]) -> io::Result<()> {
        let text = text(members);
        if text != self.text {
            replace(&self.path, &text)?;
            self.text = text;
        }
        Ok(())
    }
}

fn cannot_keep(path: &Path) -> String {
    format!(
        "cannot keep quotas in {}; name a directory that this user can write in the environment, \
         STATE_DIRECTORY=/DIRECTORY",
        path.display()
    )
}

/// The text of the file; what is in it counts as kept.
fn text(members: &mut [Member]) -> String {
    let mut text = String::new();
    for Member { spec, meter, .. } in members {
        let Some(meter) = meter else { continue };
        meter.keep();
        let (period, Record { number, used }) = (meter.quota().period.name(), meter.record());
        let _ = writeln!(text, "{period} {number} {used} {}", spec.own_end());
    }
    text
}

/// Puts `text` in the place of the file at `path`, whole or not at all.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("quota.new");
    // What is there may be no file of ours.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = File::create_new(&new)?;
    file.write_all(text.as_bytes())?;
    // A loss of power may otherwise leave an empty file under the name.
    file.sync_all()?;
    fs::rename(&new, path)
}

/// The text of the file at `path` and its lines, or why it is refused; nothing where none is.
fn load(path: &Path) -> Result<(String, Vec<Line>), String> {
    let mut text = String::new();
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Default::default()),
        // To open a FIFO would wait for a writer.
        Ok(found) if !found.is_file() => return Err("it is not a file".to_owned()),
        _ => {}
    }
    let file = File::open(path).map_err(|error| error.to_string())?;
    let read = file.take(LARGEST + 1).read_to_string(&mut text);
    let length = read.map_err(|error| error.to_string())?;
    if length as u64 > LARGEST {
        return Err("it is too large".to_owned());
    }
    let lines = text.lines().map(Line::parse).collect::<Option<_>>();
    let lines = lines.filter(|_| text.is_empty() || text.ends_with('\n'));
    lines.map(|lines| (text, lines)).ok_or_else(|| "it is damaged".to_owned())
}

impl Line {
    fn parse(line: &str) -> Option<Line> {
        let mut words = line.splitn(4, ' ');
        let period = Period::named(words.next()?)?;
        let record =
            Record { number: words.next()?.parse().ok()?, used: words.next()?.parse().ok()? };
        Some(Line { period, record, link: words.next()?.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use tempfile::TempDir;

    #[test]
    fn what_was_written_is_read_and_a_damaged_file_is_refused_with_a_reason() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("t0.quota");
        assert_eq!(load(&path), Ok(Default::default()), "none is there yet");
        let good = "month 24328 31415926535 path 0.0.0.0:7431@wwan0\nday 20780 0 dev eth0\n";
        for _ in 0..2 {
            replace(&path, good).unwrap();
        }
        let (text, lines) = load(&path).unwrap();
        assert_eq!(text, good);
        let record = Record { number: 24328, used: 31_415_926_535 };
        let link = "path 0.0.0.0:7431@wwan0".to_owned();
        assert_eq!(lines[0], Line { period: Period::Month, record, link });
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "and nothing beside it");
        for damaged in [
            &good.as_bytes()[..40],
            &good.as_bytes()[..good.len() - 1],
            b"month 24328 -1 dev eth0\n",
            b"month 24328 99999999999999999999 dev eth0\n",
            b"year 24328 1 dev eth0\n",
            b"month 24328\n",
            b"\n",
            b"\0\0\0\0\0\0\0\0",
            b"month 1 1 \xff\n",
            &[b'x'; 100_000],
        ] {
            fs::write(&path, damaged).unwrap();
            assert!(load(&path).is_err(), "{}", String::from_utf8_lossy(damaged));
        }
        fs::remove_file(&path).unwrap();
        symlink("/dev/zero", &path).unwrap();
        assert_eq!(load(&path), Err("it is not a file".to_owned()));
    }
}
