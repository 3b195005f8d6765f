//! Archives of runs: packed from a folder, and checked as on another machine.

use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};
use sheaf_lab::archive::{Archive, Contents, FOLDER, Sample, Step, check};
use sheaf_lab::experiment::{Engine, Tools};
use sheaf_lab::plan::{Changes, Plan};
use sheaf_lab::progress::Progress;
use sheaf_lab::report;
use sheaf_lab::run::{self, Options};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use tempfile::TempDir;

/// Repetitions of each point.
const REPETITIONS: u32 = 2;

/// Runs a short sweep of calls in `folder`.
fn run_in(folder: &Path, duration: f64) {
    let changes = Changes {
        points: Some(vec![1.0, 2.0]),
        duration: Some(duration),
        repetitions: Some(REPETITIONS),
        ..Changes::default()
    };
    let options = Options { changes, folder: Some(folder.to_owned()), ..Options::default() };
    let plan = Plan::find("voip-two-hop").unwrap();
    let result = run::run(&plan, Engine::Virtual, &options, &tools()).unwrap();
    report::write(&result, folder).unwrap();
}

fn tools() -> Tools {
    Tools { sheaf: "sheaf".into() }
}

/// The contents of a short run.
fn contents() -> Contents {
    let folder = TempDir::new().unwrap();
    run_in(folder.path(), 1.0);
    Contents::of_folder(folder.path()).unwrap()
}

fn packed() -> Archive {
    contents().to_archive().unwrap()
}

/// The steps of a check, and whether all hold.
fn checked(archive: &Archive, sample: &Sample) -> (Vec<Step>, bool) {
    let mut steps = Vec::new();
    let say = |step: &Step| {
        steps.push(step.clone());
        Ok(())
    };
    let holds = check(archive, sample, &tools(), &Progress::default(), say).unwrap();
    (steps, holds)
}

/// The step at which a check of `archive` ends with a difference.
fn fallen(archive: &Archive) -> Step {
    let (steps, holds) = checked(archive, &Sample::default());
    assert!(!holds);
    let (last, before) = steps.split_last().unwrap();
    assert!(before.iter().all(Step::holds) && !last.holds(), "{steps:?}");
    last.clone()
}

/// The files of an archive, as any tar reads them.
fn files(archive: &Archive) -> BTreeMap<String, Vec<u8>> {
    let bytes = archive.to_bytes().unwrap();
    let mut tar = tar::Archive::new(GzDecoder::new(bytes.as_slice()));
    let read = |entry: std::io::Result<tar::Entry<'_, _>>| {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().display().to_string();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        (path.strip_prefix(&format!("{FOLDER}/")).unwrap().to_owned(), bytes)
    };
    tar.entries().unwrap().map(read).collect()
}

/// An archive of these files, as any tar writes it.
fn archive_of(files: &BTreeMap<String, Vec<u8>>) -> Archive {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    for (name, bytes) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o600);
        tar.append_data(&mut header, format!("{FOLDER}/{name}"), bytes.as_slice()).unwrap();
    }
    let bytes = tar.into_inner().unwrap().finish().unwrap();
    Archive::from_reader(bytes.as_slice()).unwrap()
}

/// Replaces the text of a file, and corrects the hashes.
fn with(files: &BTreeMap<String, Vec<u8>>, name: &str, text: String) -> Archive {
    let mut files = files.clone();
    files.insert(name.to_owned(), text.into_bytes());
    let sum = |bytes: &[u8]| -> String {
        Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
    };
    let others = files.iter().filter(|(name, _)| *name != "SHA256SUMS");
    let sums: String = others.map(|(name, bytes)| format!("{}  {name}\n", sum(bytes))).collect();
    files.insert("SHA256SUMS".to_owned(), sums.into_bytes());
    archive_of(&files)
}

#[test]
fn the_same_results_are_the_same_bytes_and_every_number_of_them_is_found_again() {
    let archive = packed();
    // Another folder, another moment, points in another order of their files.
    assert_eq!(archive.to_bytes().unwrap(), packed().to_bytes().unwrap());
    let (steps, holds) = checked(&archive, &Sample::default());
    assert!(holds, "{steps:?}");
    let plan = contents().plan;
    let all = plan.points(Engine::Virtual).len();
    let said: Vec<_> = steps.iter().map(Step::to_string).collect();
    assert_eq!(
        said,
        [
            "5 hashes in SHA256SUMS: ok".to_owned(),
            "result.json made from the points of the plan: ok".to_owned(),
            "rows.csv made from the result: ok".to_owned(),
            "report.html made from the result: ok".to_owned(),
            format!("{all} of {all} points measured again: ok"),
        ]
    );
}

#[test]
fn a_changed_byte_in_any_file_is_found() {
    let files = files(&packed());
    assert_eq!(files.len(), 6);
    for name in files.keys() {
        let mut changed = files.clone();
        let bytes = changed.get_mut(name).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        let step = fallen(&archive_of(&changed)).to_string();
        // A changed hash belongs to one of the other files.
        let named = if name == "SHA256SUMS" { "its SHA-256 is" } else { &**name };
        assert!(step.contains(named), "{name}: {step}");
    }
}

#[test]
fn a_file_that_does_not_belong_to_the_points_is_found_although_the_hashes_are_right() {
    let files = files(&packed());
    let text = |name: &str| String::from_utf8(files[name].clone()).unwrap();
    let mut result: serde_json::Value = serde_json::from_str(&text("result.json")).unwrap();
    let row = result["rows"][0].as_object_mut().unwrap();
    let (key, kept) = row.iter().find(|(_, value)| value.is_f64()).unwrap();
    let (key, kept) = (key.clone(), kept.clone());
    row.insert(key.clone(), 4321.5.into());
    let step = fallen(&with(&files, "result.json", result.to_string()));
    let difference = format!("rows two-hop/baseline/4 {key}: 4321.5 in the archive, {kept} here");
    assert_eq!(step.differences, [difference]);
    for name in ["rows.csv", "report.html"] {
        let step = fallen(&with(&files, name, text(name) + " "));
        let place = files[name].len() + 1;
        assert_eq!(step.differences, [format!("{name}: from byte {place} on")]);
    }
    // Another plan: its points are not those that were measured.
    let other = text("plan.toml").replacen("seed = ", "seed = 1", 1);
    let step = fallen(&with(&files, "plan.toml", other));
    assert!(step.differences[0].contains("is not a point of the plan"), "{step}");
    // The same points, but another title.
    let other = text("plan.toml").replacen("title = \"", "title = \"No ", 1);
    let step = fallen(&with(&files, "plan.toml", other));
    assert!(step.differences[0].starts_with("title: "), "{step}");
}

#[test]
fn a_forged_measurement_is_found_although_all_else_was_made_to_fit() {
    let mut contents = contents();
    let record = &mut contents.records[5];
    let point = record.sweep_point.to_string();
    let (key, value) = &mut record.measured.metrics[0];
    let (key, kept) = (key.clone(), *value);
    *value += 1e-9;
    let forged = serde_json::json!(*value);
    let kept = serde_json::json!(kept);
    let step = fallen(&contents.to_archive().unwrap());
    let difference = format!("{point} metrics {key}: {forged} in the archive, {kept} here");
    assert_eq!(step.differences, [difference]);
    assert!(step.subject.ends_with("points measured again"), "{step}");
}

#[test]
fn a_sample_is_chosen_by_the_hash_of_the_archive_or_by_the_place_in_the_sweep() {
    let archive = packed();
    let all = contents().records.len();
    let said = |sample: &Sample| checked(&archive, sample).0.last().unwrap().to_string();
    let three = Sample { count: Some(3), ..Sample::default() };
    assert_eq!(said(&three), format!("3 of {all} points measured again: ok"));
    let half = Sample { points: Some(vec![2.0]), ..Sample::default() };
    assert_eq!(said(&half), format!("{} of {all} points measured again: ok", all / 2));
    let nowhere = Sample { points: Some(vec![3.0]), ..Sample::default() };
    let error = check(&archive, &nowhere, &tools(), &Progress::default(), |_| Ok(()));
    assert!(error.unwrap_err().to_string().contains("give some of its sweep"));
}

#[test]
fn results_in_real_time_are_not_measured_again() {
    let mut contents = contents();
    let points = contents.plan.points(Engine::Netns);
    contents.records.retain(|record| points.contains(&record.sweep_point));
    contents.records.iter_mut().for_each(|record| record.engine = Engine::Netns);
    let (steps, holds) = checked(&contents.to_archive().unwrap(), &Sample::default());
    assert!(holds, "{steps:?}");
    assert!(steps.last().unwrap().subject.starts_with("0 of "), "{steps:?}");
}

#[test]
fn a_folder_is_packed_without_the_points_of_other_runs_and_not_with_a_result_of_another() {
    let folder = TempDir::new().unwrap();
    run_in(folder.path(), 1.0);
    let first = std::fs::read(folder.path().join("result.json")).unwrap();
    run_in(folder.path(), 2.0);
    let archive = Contents::of_folder(folder.path()).unwrap();
    assert!(archive.records.iter().all(|record| record.duration == 2.0));
    std::fs::write(folder.path().join("result.json"), first).unwrap();
    let refused = Contents::of_folder(folder.path()).unwrap_err().to_string();
    assert!(refused.ends_with("run the plan again"), "{refused}");
}

#[test]
fn numbers_at_every_bound_are_joined_and_drawn_without_a_panic() {
    for number in [1e15, -1e15, 1e-300, -0.0] {
        let mut contents = contents();
        for record in &mut contents.records {
            record.measured.metrics.iter_mut().for_each(|(_, value)| *value = number);
            let curves = record.measured.series.iter_mut();
            curves.flat_map(|series| &mut series.points).for_each(|point| *point = (0.0, number));
        }
        let step = fallen(&contents.to_archive().unwrap());
        assert!(step.subject.ends_with("points measured again"), "{step}");
        assert!(step.to_string().ends_with(" more"), "most of the differences are counted: {step}");
    }
}

#[test]
fn what_no_run_can_have_measured_is_refused() {
    let files = files(&packed());
    let points = String::from_utf8(files["points.jsonl"].clone()).unwrap();
    let refused = |points: String| {
        let archive = with(&files, "points.jsonl", points);
        let said = check(&archive, &Sample::default(), &tools(), &Progress::default(), |_| Ok(()));
        format!("{:#}", said.unwrap_err())
    };
    let mut record: serde_json::Value =
        serde_json::from_str(points.lines().next().unwrap()).unwrap();
    record["measured"]["metrics"][0][1] = 1e300.into();
    assert!(refused(record.to_string()).starts_with("points.jsonl:1: a number is beyond"));
    let said = refused("{ \"\\u001b\": 1 }".to_owned());
    assert!(said.starts_with("points.jsonl:1: ") && !said.contains('\x1b'), "{said}");
    let twice = points.lines().next().unwrap().to_owned() + "\n" + &points;
    let step = fallen(&with(&files, "points.jsonl", twice));
    assert!(step.differences[0].contains("not in its place"), "{step}");
}
