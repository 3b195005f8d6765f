//! Files that packages install: the units, and `make install`. Needs make and systemd-analyze,
//! which scripts/setup --tests installs.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

const SHEAF: &str = env!("CARGO_BIN_EXE_sheaf");
/// Greatest exposure of a unit, in tenths: 3.0 of `systemd-analyze security`.
const EXPOSURE: &str = "--threshold=30";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn run(program: &str, arguments: &[&str]) -> Output {
    let output = Command::new(program).args(arguments).current_dir(root()).output();
    output.unwrap_or_else(|error| panic!("{program}: {error}; run scripts/setup --tests"))
}

fn said(output: &Output) -> String {
    let texts = [&output.stdout, &output.stderr];
    texts.map(|text| String::from_utf8_lossy(text).into_owned()).concat()
}

/// The units with the binary of this test, in a directory; a template as an instance of it.
fn units(directory: &Path) -> Vec<PathBuf> {
    let units = fs::read_dir(root().join("packaging/systemd")).unwrap();
    let copy = |unit: fs::DirEntry| {
        let name = unit.file_name().into_string().unwrap().replace("@.", "@trunk0.");
        let text = fs::read_to_string(unit.path()).unwrap();
        let path = directory.join(name);
        fs::write(&path, text.replace("/usr/bin/sheaf", SHEAF)).unwrap();
        path
    };
    let units: Vec<_> = units.map(|unit| copy(unit.unwrap())).collect();
    assert_eq!(units.len(), 2, "{units:?}");
    units
}

#[test]
fn systemd_finds_no_fault_in_the_units() {
    let directory = TempDir::new().unwrap();
    for unit in units(directory.path()) {
        // The manual pages that they name may not be installed here.
        let verify = ["verify", "--man=no", unit.to_str().unwrap()];
        let output = run("systemd-analyze", &verify);
        assert!(output.status.success() && said(&output).is_empty(), "{}", said(&output));
    }
}

#[test]
fn the_units_expose_little_by_systemds_own_measure() {
    let directory = TempDir::new().unwrap();
    for unit in units(directory.path()) {
        let security = ["security", "--no-pager", "--offline=yes", EXPOSURE];
        let output = run("systemd-analyze", &[&security[..], &[unit.to_str().unwrap()]].concat());
        assert!(output.status.success(), "{}", said(&output));
    }
}

/// Regular files below a directory, by their paths in it.
fn files(directory: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut left = vec![directory.to_owned()];
    while let Some(next) = left.pop() {
        for entry in fs::read_dir(next).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                left.push(entry.path());
            } else {
                let path = entry.path();
                found.insert(path.strip_prefix(directory).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found
}

#[test]
fn make_installs_what_runs_and_takes_away_all_but_the_configuration() {
    let directory = TempDir::new().unwrap();
    let destination = format!("DESTDIR={}", directory.path().display());
    let binary = format!("BINARY={SHEAF}");
    let make = |target: &str| {
        let output = run("make", &["--silent", target, &destination, &binary, "PREFIX=/opt"]);
        assert!(output.status.success(), "{}", said(&output));
    };
    make("install");
    let installed = files(directory.path());
    let mut expected: BTreeSet<String> = [
        "etc/sheaf/sheaf.toml",
        "opt/bin/sheaf",
        "opt/lib/systemd/system/sheaf.service",
        "opt/lib/systemd/system/sheaf-trunk@.service",
        "opt/share/bash-completion/completions/sheaf",
        "opt/share/doc/sheaf/examples/emulate-classes.toml",
        "opt/share/doc/sheaf/examples/emulator-tools.toml",
        "opt/share/doc/sheaf/examples/lab-slurm",
        "opt/share/doc/sheaf/examples/lab.smk",
        "opt/share/doc/sheaf/examples/medium-hwsim.toml",
        "opt/share/doc/sheaf/examples/medium-row.toml",
        "opt/share/doc/sheaf/examples/trunk-home",
        "opt/share/doc/sheaf/examples/trunk-server",
        "opt/share/doc/sheaf/examples/voip-mac80211.toml",
        "opt/share/fish/vendor_completions.d/sheaf.fish",
        "opt/share/zsh/vendor-completions/_sheaf",
    ]
    .map(str::to_owned)
    .into();
    for page in fs::read_dir(root().join("man")).unwrap() {
        let name = page.unwrap().file_name().into_string().unwrap();
        let section = name.rsplit('.').next().unwrap().to_owned();
        expected.insert(format!("opt/share/man/man{section}/{name}"));
    }
    assert_eq!(installed, expected);
    let program = directory.path().join("opt/bin/sheaf");
    for script in ["bin/sheaf", "share/doc/sheaf/examples/trunk-home"] {
        let found = fs::metadata(directory.path().join("opt").join(script)).unwrap();
        assert_eq!(found.permissions().mode() & 0o777, 0o755, "{script}");
    }
    let version = Command::new(&program).arg("--version").output().unwrap();
    assert!(said(&version).starts_with("sheaf "), "{}", said(&version));
    let unit = directory.path().join("opt/lib/systemd/system/sheaf.service");
    let unit = fs::read_to_string(unit).unwrap();
    assert!(unit.contains("\nExecStart=/opt/bin/sheaf run ") && !unit.contains("/usr/bin/sheaf"));

    // An installation over an older one leaves the file that the user wrote.
    let file = directory.path().join("etc/sheaf/sheaf.toml");
    fs::write(&file, "# mine\n").unwrap();
    make("install");
    assert_eq!(fs::read_to_string(&file).unwrap(), "# mine\n");
    make("uninstall");
    assert_eq!(files(directory.path()), ["etc/sheaf/sheaf.toml".to_owned()].into());
}
