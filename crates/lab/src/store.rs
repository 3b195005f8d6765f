//! Points that are kept: one file for each, named by the hash of everything that decides it.
//!
//! A sweep that was interrupted goes on where it stood; points that were run on many machines are
//! joined. `FOLDER/points/HASH.json` holds one [`Record`], `FOLDER/plan.toml` the plan. The hash is
//! over the point's own part of the plan, its repetition's seed, engine, and this very program:
//! another build measures anew.

use crate::experiment::Engine;
use crate::measured::{Measured, SweepPoint};
use crate::plan::Plan;
use crate::plan_file::Head;
use anyhow::Context;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// One measured point, and the program that measured it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Record {
    /// Name of the plan.
    pub plan: String,
    /// Stacks that packets passed.
    pub engine: Engine,
    /// Seed of all randomness: that of the point's repetition.
    pub seed: u64,
    /// Seconds measured.
    pub duration: f64,
    /// Versions of this program and of the kernel.
    pub versions: BTreeMap<String, String>,
    /// Processor and number of cores.
    pub machine: String,
    /// The point.
    pub sweep_point: SweepPoint,
    /// The measurement.
    pub measured: Measured,
}

impl Record {
    /// Whether it is of a run on `engine` of the plan with this head.
    pub fn is_of(&self, head: &Head, engine: Engine) -> bool {
        let seed = head.seed_of(self.sweep_point.repetition);
        (&self.plan, self.engine, self.seed, self.duration)
            == (&head.name, engine, seed, head.duration)
    }
}

/// A folder of records.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
}

impl Store {
    /// The store in `folder`, which is made where needed, for points of `plan`.
    ///
    /// # Errors
    /// Fails when the folder cannot be written.
    pub fn open(folder: &Path, plan: &Plan) -> anyhow::Result<Store> {
        let refused = || format!("cannot write to {}; give another --out", folder.display());
        std::fs::create_dir_all(folder.join("points")).with_context(refused)?;
        write(&folder.join("plan.toml"), plan.to_toml()?.as_bytes()).with_context(refused)?;
        Ok(Store::of(folder))
    }

    /// The store that is in `folder`, to read from it.
    pub fn of(folder: &Path) -> Store {
        Store { folder: folder.to_owned() }
    }

    /// The file of a point.
    pub fn file(&self, hash: &str) -> PathBuf {
        self.folder.join("points").join(format!("{hash}.json"))
    }

    /// A point that was kept. A file that cannot be read or is not whole counts as missing.
    pub fn get(&self, hash: &str) -> Option<Record> {
        serde_json::from_slice(&std::fs::read(self.file(hash)).ok()?).ok()
    }

    /// Keeps a point.
    ///
    /// # Errors
    /// Fails when the folder cannot be written.
    pub fn put(&self, hash: &str, record: &Record) -> anyhow::Result<()> {
        let file = self.file(hash);
        let refused = || format!("cannot write {}; make room or give --out", file.display());
        write(&file, &serde_json::to_vec_pretty(record)?).with_context(refused)
    }

    /// The plan and all points of a folder.
    ///
    /// # Errors
    /// Fails when there are no points, or a point is of another version.
    pub fn read(folder: &Path) -> anyhow::Result<(Plan, Vec<Record>)> {
        let none = || {
            format!("no points in {}; run `sheaf lab run … --out` there first", folder.display())
        };
        let file = folder.join("plan.toml");
        let plan = std::fs::read_to_string(&file).with_context(none)?;
        let plan = Plan::parse(&plan, &file.display().to_string())?;
        let mut records = Vec::new();
        for entry in std::fs::read_dir(folder.join("points")).with_context(none)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                let other =
                    || format!("{} is not a point of this version; remove it", path.display());
                let record = std::fs::read(&path).with_context(other)?;
                records.push(serde_json::from_slice(&record).with_context(other)?);
            }
        }
        Ok((plan, records))
    }
}

/// The name of a point's file.
pub fn hash(plan: &Plan, sweep_point: &SweepPoint, engine: Engine) -> String {
    let text = serde_json::json!([plan.recipe(sweep_point), engine, program()]).to_string();
    hex(&Sha256::digest(text))
}

/// Versions of this program and of the kernel.
pub fn versions() -> BTreeMap<String, String> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
    let mut versions = BTreeMap::from([
        ("sheaf".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ("build".to_owned(), program()[..12].to_owned()),
    ]);
    versions.extend(release.ok().map(|text| ("Linux".to_owned(), text.trim().to_owned())));
    versions
}

/// Processor and number of cores.
pub fn machine() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{cores} cores, {}", model.unwrap_or("unknown processor"))
}

/// The hash of the running program's file.
fn program() -> &'static str {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let mut hash = Sha256::new();
        let read = std::fs::File::open("/proc/self/exe")
            .and_then(|mut file| io::copy(&mut file, &mut HashWriter(&mut hash)));
        // Without its file, the version identifies the program.
        if read.is_err() {
            hash.update(env!("CARGO_PKG_VERSION"));
        }
        hex(&hash.finalize())
    })
}

struct HashWriter<'a>(&'a mut Sha256);

impl io::Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes a file whole or not at all: an interrupted run leaves no half record.
pub(crate) fn write(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = file.with_extension(format!("new{}", std::process::id()));
    std::fs::write(&new, bytes)?;
    std::fs::rename(&new, file)
}
