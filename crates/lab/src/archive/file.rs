//! The form of an archive: a `.tar.gz` of six files in one folder.
//!
//! `SHA256SUMS` has the hash of each of the others, as `sha256sum` writes it. The files are in the
//! order of their names and have no times, owners or rights of their own, so that the same results
//! give the same bytes.
//!
//! An archive may come from a stranger. Reading one writes no file, and takes only plain files with
//! these six names, each once, up to a bound of all their bytes.

use crate::store;
use anyhow::{Context, bail, ensure};
use flate2::read::GzDecoder;
use flate2::{Compression, GzBuilder};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Read};
use std::path::Path;
use tar::{EntryType, Header};

/// Folder of the files inside the archive.
pub const FOLDER: &str = "sheaf-run";

/// Hashes of the other files.
pub(super) const SUMS: &str = "SHA256SUMS";

/// The plan as it was run.
pub(super) const PLAN: &str = "plan.toml";

/// The record of a point in each line, in the order of the plan.
pub(super) const POINTS: &str = "points.jsonl";

/// All files, in the order of their bytes.
const NAMES: [&str; 6] = [SUMS, PLAN, POINTS, "report.html", "result.json", "rows.csv"];

/// Most bytes of all files. The largest built-in plan, with 1460 points and their curves, has a
/// fifth of it.
const MOST_BYTES: u64 = 512 << 20;

/// Most bytes of a tar file around them: a header and a last block for each, and the end.
const MOST_AROUND: u64 = 64 << 10;

/// Rights of the files: all may read.
const MODE: u32 = 0o644;

/// An archive of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Archive {
    /// All of [`NAMES`].
    files: BTreeMap<&'static str, Vec<u8>>,
}

impl Archive {
    /// The archive of these files, which are all but the hashes.
    pub(super) fn new(mut files: BTreeMap<&'static str, Vec<u8>>) -> Archive {
        let sums = sums(&files);
        files.insert(SUMS, sums.into_bytes());
        Archive { files }
    }

    /// A file by its name.
    pub(super) fn file(&self, name: &str) -> &[u8] {
        self.files.get(name).map_or(&[], Vec::as_slice)
    }

    /// The right text of `SHA256SUMS`.
    pub(super) fn true_sums(&self) -> String {
        sums(&self.files)
    }

    /// The archive as bytes, compressed.
    ///
    /// # Errors
    /// Fails when the files are larger than an archive may be.
    pub fn to_bytes(&self) -> anyhow::Result<Vec<u8>> {
        let bytes: usize = self.files.values().map(Vec::len).sum();
        ensure!(
            bytes as u64 <= MOST_BYTES,
            "{bytes} bytes are more than an archive holds ({MOST_BYTES}); run fewer points"
        );
        // Without a time and a name in the header.
        let zipped = GzBuilder::new().write(Vec::new(), Compression::default());
        let mut tar = tar::Builder::new(zipped);
        for (name, bytes) in &self.files {
            let mut header = Header::new_ustar();
            header.set_entry_type(EntryType::Regular);
            header.set_path(format!("{FOLDER}/{name}"))?;
            header.set_size(bytes.len() as u64);
            header.set_mode(MODE);
            header.set_mtime(0);
            header.set_uid(0);
            header.set_gid(0);
            header.set_cksum();
            tar.append(&header, bytes.as_slice())?;
        }
        Ok(tar.into_inner()?.finish()?)
    }

    /// Writes the archive to `file`, whole or not at all, and returns the SHA-256 of its bytes.
    ///
    /// # Errors
    /// Fails when the archive would be too large, or the file cannot be written.
    pub fn write(&self, file: &Path) -> anyhow::Result<String> {
        let bytes = self.to_bytes()?;
        let refused = || format!("cannot write {}; make room or give --out", file.display());
        store::write(file, &bytes).with_context(refused)?;
        Ok(store::hex(&Sha256::digest(&bytes)))
    }

    /// Reads the archive in `file`.
    ///
    /// # Errors
    /// Fails when there is no such file, or it is not an archive of a run.
    pub fn read(file: &Path) -> anyhow::Result<Archive> {
        let input = std::fs::File::open(file)
            .with_context(|| format!("cannot read {}; give an archive", file.display()))?;
        Archive::from_reader(io::BufReader::new(input))
            .with_context(|| format!("{} is refused", file.display()))
    }

    /// Reads an archive.
    ///
    /// # Errors
    /// Fails when `input` is not an archive of a run.
    pub fn from_reader(input: impl Read) -> anyhow::Result<Archive> {
        let mut unzipped = GzDecoder::new(input).take(MOST_BYTES + MOST_AROUND);
        let mut files = BTreeMap::new();
        let (mut left, mut tar) = (MOST_BYTES, tar::Archive::new(&mut unzipped));
        // Raw, so that no header changes the name or the size of what follows it.
        for entry in tar.entries().map_err(damaged)?.raw(true) {
            let mut entry = entry.map_err(damaged)?;
            let name = known(&entry.header().path_bytes())?;
            ensure!(
                entry.header().entry_type() == EntryType::Regular,
                "its {name} is not a plain file; pack the run again"
            );
            let size = entry.size();
            ensure!(size <= left, "it holds more than {MOST_BYTES} bytes; pack fewer points");
            left -= size;
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).map_err(damaged)?;
            ensure!(bytes.len() as u64 == size, "its {name} is cut short; fetch it again");
            let is_first = files.insert(name, bytes).is_none();
            ensure!(is_first, "it holds {name} twice; pack the run again");
        }
        // The checksum of all comes last.
        io::copy(&mut unzipped, &mut io::sink()).map_err(damaged)?;
        ensure!(
            unzipped.limit() > 0,
            "it goes on for too long after its files; pack the run again"
        );
        match NAMES.into_iter().find(|name| !files.contains_key(name)) {
            Some(name) => bail!("it has no {name}; pack the run again"),
            None => Ok(Archive { files }),
        }
    }
}

/// The error of a reader, in which names of a stranger may stand.
fn damaged(error: io::Error) -> anyhow::Error {
    let error = error.to_string();
    anyhow::anyhow!("it is not whole ({}); fetch or pack it again", error.escape_debug())
}

/// The name of a file by its path inside an archive.
fn known(path: &[u8]) -> anyhow::Result<&'static str> {
    let is_known = |name: &&str| path == format!("{FOLDER}/{name}").as_bytes();
    let known = NAMES.into_iter().find(is_known);
    known.with_context(|| {
        let path = String::from_utf8_lossy(path);
        format!("it holds {path:?}, which is not part of a run; pack the run again")
    })
}

/// The hashes of all files but [`SUMS`], as `sha256sum` writes them.
fn sums(files: &BTreeMap<&'static str, Vec<u8>>) -> String {
    let mut sums = String::new();
    for (name, bytes) in files.iter().filter(|(name, _)| **name != SUMS) {
        let _ = writeln!(sums, "{}  {name}", store::hex(&Sha256::digest(bytes)));
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive() -> Archive {
        let file = |name| (name, format!("the bytes of {name}\n").into_bytes());
        Archive::new(NAMES.into_iter().filter(|name| *name != SUMS).map(file).collect())
    }

    /// A compressed tar of these entries: path, type, size in the header, bytes.
    fn tarred(entries: &[(&str, EntryType, u64, &[u8])]) -> Vec<u8> {
        let mut tar = tar::Builder::new(GzBuilder::new().write(Vec::new(), Compression::fast()));
        for (path, kind, size, bytes) in entries {
            let mut header = Header::new_ustar();
            // Not through the library, which refuses what a stranger would write.
            header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
            header.set_entry_type(*kind);
            header.set_size(*size);
            header.set_cksum();
            tar.append(&header, *bytes).unwrap();
        }
        tar.into_inner().unwrap().finish().unwrap()
    }

    fn refused(bytes: &[u8]) -> String {
        let said = format!("{:#}", Archive::from_reader(bytes).unwrap_err());
        assert!(!said.contains('\n') && said.contains("; "), "cause and remedy: {said}");
        said
    }

    #[test]
    fn an_archive_reads_back_and_the_same_files_give_the_same_bytes() {
        let bytes = archive().to_bytes().unwrap();
        assert_eq!(Archive::from_reader(bytes.as_slice()).unwrap(), archive());
        assert_eq!(archive().to_bytes().unwrap(), bytes);
        assert_eq!(archive().true_sums().as_bytes(), archive().file(SUMS));
        assert_eq!(archive().true_sums().lines().count(), NAMES.len() - 1);
    }

    #[test]
    fn names_that_no_run_has_are_refused() {
        for path in ["/etc/passwd", "sheaf-run/../plan.toml", "sheaf-run/plan.toml/", "plan.toml"] {
            let said = refused(&tarred(&[(path, EntryType::Regular, 1, b"x")]));
            assert!(said.contains(&format!("it holds {path:?}")), "{said}");
        }
        let named = |size: &[u8]| {
            let mut header = Header::new_ustar();
            header.as_old_mut().name[..6].copy_from_slice(b"a\n\x1b[2J");
            header.as_old_mut().size[..size.len()].copy_from_slice(size);
            header.set_cksum();
            let mut zipped = flate2::write::GzEncoder::new(Vec::new(), Compression::fast());
            io::Write::write_all(&mut zipped, header.as_bytes()).unwrap();
            zipped.finish().unwrap()
        };
        for size in [b"1", b"x"] {
            let said = refused(&named(size));
            assert!(!said.contains('\x1b') && said.contains("a\\n\\u{1b}[2J"), "{said}");
        }
    }

    #[test]
    fn links_and_headers_that_rename_what_follows_are_refused() {
        for kind in [EntryType::Symlink, EntryType::Link, EntryType::Directory, EntryType::Fifo] {
            let said = refused(&tarred(&[("sheaf-run/plan.toml", kind, 0, b"")]));
            assert!(said.contains("its plan.toml is not a plain file"), "{said}");
        }
        for kind in [EntryType::XHeader, EntryType::GNULongName, EntryType::GNUSparse] {
            refused(&tarred(&[("sheaf-run/plan.toml", kind, 4, b"path")]));
        }
    }

    #[test]
    fn more_bytes_than_an_archive_holds_are_refused_before_they_are_read() {
        let claimed = tarred(&[("sheaf-run/plan.toml", EntryType::Regular, MOST_BYTES + 1, b"x")]);
        assert!(refused(&claimed).contains("it holds more than"));
        // Two that are too large only together.
        let half = MOST_BYTES / 2 + 1;
        let (plan, rows) = ("sheaf-run/plan.toml", "sheaf-run/rows.csv");
        let mut tar = tar::Builder::new(GzBuilder::new().write(Vec::new(), Compression::fast()));
        for path in [plan, rows] {
            let mut header = Header::new_ustar();
            header.set_path(path).unwrap();
            header.set_size(half);
            header.set_cksum();
            tar.append(&header, io::repeat(0).take(half)).unwrap();
        }
        let bomb = tar.into_inner().unwrap().finish().unwrap();
        assert!(refused(&bomb).contains("it holds more than"));
    }

    #[test]
    fn what_is_cut_short_damaged_or_doubled_is_refused() {
        let whole = archive().to_bytes().unwrap();
        for len in [0, 1, 10, whole.len() / 2, whole.len() - 1] {
            refused(&whole[..len]);
        }
        let last = whole.len() - 5;
        let mut flipped = whole.clone();
        flipped[last] ^= 1;
        assert!(refused(&flipped).contains("not whole"));
        refused(b"not an archive at all");
        let plan = ("sheaf-run/plan.toml", EntryType::Regular, 1, b"x".as_slice());
        assert!(refused(&tarred(&[plan, plan])).contains("plan.toml twice"));
        assert!(refused(&tarred(&[plan])).contains("it has no SHA256SUMS"));
    }
}
