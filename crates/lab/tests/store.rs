//! Points that are kept: an interrupted sweep goes on, and folders are joined.

use sheaf_lab::experiment::{Engine, Tools};
use sheaf_lab::measured::{Row, SweepPoint};
use sheaf_lab::plan::{Changes, Plan};
use sheaf_lab::report;
use sheaf_lab::result::RunResult;
use sheaf_lab::run::{self, Holes, Options};
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

/// Two short points of each treatment, twice.
fn short() -> Changes {
    Changes {
        points: Some(vec![1.0, 2.0]),
        duration: Some(2.0),
        repetitions: Some(2),
        ..Changes::default()
    }
}

fn run_with(changes: Changes, folder: &Path, only: Option<&str>, again: bool) -> RunResult {
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

fn run(folder: &Path, only: Option<&str>, again: bool) -> RunResult {
    run_with(short(), folder, only, again)
}

/// The names of all points.
fn names() -> Vec<String> {
    let plan = Plan::find("voip-two-hop").unwrap().changed(Engine::Virtual, &short()).unwrap();
    plan.points(Engine::Virtual).iter().map(SweepPoint::to_string).collect()
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
    assert_eq!(names().len(), 4 * 2 * 2);
    for (at, name) in names().iter().enumerate() {
        let folder = if at % 3 == 0 { &one } else { &two };
        assert_eq!(run(folder.0.path(), Some(name), false).rows.len(), 1);
    }
    let folders = [two.0.path().to_owned(), one.0.path().to_owned()];
    let joined = run::gather(&folders, Holes::Refused).unwrap();
    assert_eq!(json(&joined), json(&all));
}

#[test]
fn repetitions_begin_with_the_single_run_and_each_has_a_seed_and_a_record_of_its_own() {
    let (single, twice) = (Folder::new(), Folder::new());
    let once = run_with(Changes { repetitions: Some(1), ..short() }, single.0.path(), None, false);
    let result = run(twice.0.path(), None, false);
    assert_eq!((once.seeds(), result.seeds()), ((1, 1), (2, 2)));
    let kept = |folder: &Folder| {
        let name = |file: &PathBuf| file.file_name().unwrap().to_owned();
        folder.files().iter().map(name).collect::<Vec<_>>()
    };
    let (first, both) = (kept(&single), kept(&twice));
    assert_eq!((first.len(), both.len()), (8, 16));
    for name in &first {
        assert!(both.contains(name), "the first repetition is the single run");
        let read = |folder: &Folder| std::fs::read(folder.0.path().join("points").join(name));
        assert_eq!(read(&single).unwrap(), read(&twice).unwrap(), "to the byte");
    }
    // Other talkers send other numbers of packets.
    let sent = |row: &Row| row.reading("sent").unwrap().interval.unwrap();
    assert!(result.rows.iter().all(|row| sent(row).0 < sent(row).1), "{:?}", result.rows);
    let point = |only: &str| run(twice.0.path(), Some(only), true).rows[0].get("sent").unwrap();
    let (first, second) = (point("two-hop/busy/8"), point("two-hop/busy/8#2"));
    let row = result.rows.iter().find(|row| (&*row.treatment, row.x) == ("busy", 8.0)).unwrap();
    assert_eq!(sent(row), (first.min(second), first.max(second)));
    assert_eq!(row.get("sent"), Some((first + second) / 2.0));
}

#[test]
fn points_that_are_missing_are_named_and_only_joined_around_when_that_is_accepted() {
    let folder = Folder::new();
    let names = names();
    // Nothing at 8 flows without aggregation, and one of two seeds under busy.
    let missing = ["two-hop/baseline/8", "two-hop/baseline/8#2", "two-hop/busy/8#2"];
    for name in names.iter().filter(|name| !missing.contains(&&***name)) {
        run(folder.0.path(), Some(name), false);
    }
    let gather = |holes| run::gather(&[folder.0.path().to_owned()], holes);
    let error = gather(Holes::Refused).unwrap_err().to_string();
    let start = "3 of 16 points are missing: two-hop/baseline/8, two-hop/baseline/8#2, ";
    assert!(error.starts_with(start) && error.contains("--allow-missing"), "{error}");
    assert!(!error.contains('\n') && error.contains("two-hop/busy/8#2;"), "{error}");
    let result = gather(Holes::Accepted).unwrap();
    assert_eq!((result.missing, result.rows.len(), result.seeds()), (3, 7, (1, 2)));
    assert!(report::table(&result).contains("3 points of the plan are missing."));
    // The sweep of the baseline ends at 4 flows now.
    let baseline = result.summary("two-hop", "baseline", "kau").unwrap();
    let rows = result.sweep("two-hop", "baseline");
    assert_eq!(rows.len(), 1);
    assert_eq!((Some(baseline.value), baseline.to), (rows[0].get("kau"), f64::INFINITY));
}

#[test]
fn a_folder_keeps_the_sweep_and_the_repetitions_that_were_asked_for() {
    let folder = Folder::new();
    let short = Changes { points: Some(vec![1.0]), repetitions: Some(3), ..short() };
    run_with(short.clone(), folder.0.path(), Some("two-hop/busy/4#3"), false);
    let folders = [folder.0.path().to_owned()];
    let error = run::gather(&folders, Holes::Refused).unwrap_err().to_string();
    assert!(error.starts_with("11 of 12 points are missing"), "{error}");
    assert!(error.contains("two-hop/forced/4 and 8 more; run them"), "{error}");
    let all = run_with(short, folder.0.path(), None, false);
    assert_eq!(json(&run::gather(&folders, Holes::Refused).unwrap()), json(&all));
}

#[test]
fn two_measurements_of_one_point_or_of_other_runs_are_not_mixed() {
    let (one, two) = (Folder::new(), Folder::new());
    let seeded = |folder: &Folder, seed| {
        let changes = Changes { seed: Some(seed), ..short() };
        run_with(changes, folder.0.path(), None, false);
    };
    seeded(&one, 1);
    seeded(&two, 2);
    let folders = [one.0.path().to_owned(), two.0.path().to_owned()];
    let error = run::gather(&folders, Holes::Accepted).unwrap_err().to_string();
    assert!(error.contains("of different plans, seeds or durations"), "{error}");
    // The same folder as two runs left it.
    seeded(&one, 2);
    let error = run::gather(&folders[..1], Holes::Accepted).unwrap_err().to_string();
    assert!(error.contains("of another plan, engine, seed or duration"), "{error}");
    let file = &two.files()[0];
    let text = std::fs::read_to_string(file).unwrap();
    let mut record: serde_json::Value = serde_json::from_str(&text).unwrap();
    record["measured"]["metrics"][0][1] = 4321.into();
    std::fs::write(file.with_file_name("other.json"), record.to_string()).unwrap();
    let error = run::gather(&folders[1..], Holes::Accepted).unwrap_err().to_string();
    assert!(error.contains("was measured twice with different results"), "{error}");
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
    assert_eq!((tables, framed), (3, 3), "a wide table must not widen the page");
    assert!(!page.contains("http://www.w3.org/1999/xlink") && !page.contains("<script"));
    let rows = std::fs::read_to_string(folder.0.path().join("rows.csv")).unwrap();
    assert!(
        rows.starts_with("scenario,treatment,x,seeds,flows,flows_low,flows_high,kau,"),
        "{rows}"
    );
    assert_eq!(rows.lines().count(), 1 + result.rows.len());
    let table = report::table(&result);
    assert!(table.contains("published") && table.contains("medians of 2 seeds"), "{table}");
    assert!(page.contains("medians of 2 seeds; in parentheses the whole range"), "{page}");
}
