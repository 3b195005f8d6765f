//! Points that are kept: an interrupted sweep goes on, and folders are joined.

use sheaf_lab::experiment::{Engine, Tools};
use sheaf_lab::plan::{Changes, Plan};
use sheaf_lab::report;
use sheaf_lab::result::RunResult;
use sheaf_lab::run::{self, Options};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A folder that goes with the test.
struct Folder(TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(TempDir::new().unwrap())
    }

    fn files(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.0.path().join("points")).unwrap();
        let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }
}

fn run(folder: &Path, only: Option<&str>, again: bool) -> RunResult {
    let changes =
        Changes { points: Some(vec![1.0, 2.0]), duration: Some(2.0), ..Changes::default() };
    let options = Options {
        changes,
        folder: Some(folder.to_owned()),
        only: only.map(str::to_owned),
        again,
        ..Options::default()
    };
    let tools = Tools { sheaf: "sheaf".into() };
    run::run(&Plan::find("voip-two-hop").unwrap(), Engine::Virtual, &options, &tools).unwrap()
}

fn json(result: &RunResult) -> String {
    serde_json::to_string(result).unwrap()
}

#[test]
fn a_kept_point_is_not_measured_again_and_reads_back_to_the_last_bit() {
    let folder = Folder::new();
    let first = run(folder.0.path(), None, false);
    assert_eq!(json(&run(folder.0.path(), None, false)), json(&first));
    // A record that was changed shows whether it is used.
    let file = &folder.files()[0];
    let text = std::fs::read_to_string(file).unwrap();
    let mut record: serde_json::Value = serde_json::from_str(&text).unwrap();
    record["measured"]["metrics"][0][1] = 4321.into();
    std::fs::write(file, record.to_string()).unwrap();
    assert!(json(&run(folder.0.path(), None, false)).contains("4321"));
    assert_eq!(json(&run(folder.0.path(), None, true)), json(&first), "measured again");
    std::fs::write(file, "{ half a rec").unwrap();
    assert_eq!(
        json(&run(folder.0.path(), None, false)),
        json(&first),
        "what is not whole is no record"
    );
}

#[test]
fn points_of_two_folders_are_joined_to_what_one_run_gives() {
    let (one, two, whole) = (Folder::new(), Folder::new(), Folder::new());
    let all = run(whole.0.path(), None, false);
    for (at, row) in all.rows.iter().enumerate() {
        let folder = if at % 2 == 0 { &one } else { &two };
        let name = format!("{}/{}/{}", row.scenario, row.treatment, row.x);
        assert_eq!(run(folder.0.path(), Some(&name), false).rows, std::slice::from_ref(row));
    }
    let joined = run::gather(&[two.0.path().to_owned(), one.0.path().to_owned()]).unwrap();
    assert_eq!(json(&joined), json(&all));
}

#[test]
fn a_report_is_written_and_read_and_needs_nothing_but_its_result() {
    let folder = Folder::new();
    let result = run(folder.0.path(), None, false);
    report::write(&result, folder.0.path()).unwrap();
    let again = report::read(folder.0.path()).unwrap();
    assert_eq!(json(&again), json(&result));
    let page = std::fs::read_to_string(folder.0.path().join("report.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("KAU without (published)"));
    assert!(page.contains("mean one-way delay (ms)"), "axes have units");
    let tables = page.matches("<table").count();
    let framed = page.matches("<div class=\"scroll\"><table").count();
    assert_eq!((tables, framed), (2, 2), "a wide table must not widen the page");
    assert!(!page.contains("http://www.w3.org/1999/xlink") && !page.contains("<script"));
    let rows = std::fs::read_to_string(folder.0.path().join("rows.csv")).unwrap();
    assert!(rows.starts_with("scenario,treatment,x,flows,kau,"), "{rows}");
    assert_eq!(rows.lines().count(), 1 + result.rows.len());
    assert!(report::table(&result).contains("published"));
}
