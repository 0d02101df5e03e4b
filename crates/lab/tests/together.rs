//! One target against two, with fio on two files: part of the tests that need foreign programs.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use lab::Error;
use lab::model::{Cell, Check, Part, Run, Verdict};
use lab::plan::{Plan, Wishes};
use lab::report::{Extra, page};
use lab::run::{Around, Given, Journal, begin, run};
use lab::suite::Suite;
use lab::target::Target;
use lab::together::Scaling;

const BYTES: u64 = 8 << 20;
const SUITE: &str = r#"
about = "a test"
for_publication = false
[[test]]
name = "fill"
kind = "fill"
access = "sequential"
reads = 0
block = "1M"
[[test]]
name = "read"
kind = "load"
access = "random"
reads = 100
block = "4K"
depth = [2]
seconds = 3
[[test]]
name = "curve"
kind = "curve"
access = "random"
reads = 100
block = "4K"
seconds = 3
percents = [10]
"#;

fn ordered(dir: &Path) -> Journal {
    ordered_by(dir, SUITE)
}

fn ordered_by(dir: &Path, suite: &str) -> Journal {
    let path = dir.join("test.toml");
    fs::write(&path, suite).unwrap();
    let suite = Suite::find(path.to_str().unwrap()).unwrap();
    let look = |name: &str, bytes| Target::look(dir.join(name).to_str().unwrap(), Some(bytes)).unwrap();
    // The second is larger: what both have is worked on.
    let targets = [look("a", BYTES), look("b", 2 * BYTES)];
    let wishes = Wishes { targets: 2, bytes_max: Some(BYTES), ..Wishes::default() };
    let plan = Plan::of(&suite, &targets[0], wishes);
    assert_eq!(plan.not_run, [], "a curve is of both at once");
    let given = Given { beside: vec![targets[1].clone()], ..Given::default() };
    begin(dir.join("out"), &suite, &targets[0], &plan, given).unwrap()
}

fn quiet(journal: &Journal, destroy: &[&str]) -> Result<Run, Error> {
    run(journal, destroy, Around::default(), &mut |_| {})
}

fn gate(cell: &Cell, check: Check) -> Verdict {
    cell.gates.iter().find(|g| g.check == check).unwrap().verdict
}

#[test]
#[ignore = "needs fio: cargo xtask test --only lab"]
fn each_target_alone_and_both_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let journal = ordered(dir.path());
    let result = quiet(&journal, &[]).unwrap();
    let parts: Vec<Part> = result.cells.iter().map(|c| c.part).collect();
    let [one, two] = [1, 2].map(|number| Part::OneOf { number });
    assert_eq!(parts, [Part::Fill, Part::Fill, one, two, Part::Together, Part::CurveMax, Part::Curve { percent: 10 }]);
    let all = &result.cells[4];
    let tenth = &result.cells[6];
    assert_eq!(all.load.outstanding(), Some(4.0));
    for cell in &result.cells[2..] {
        assert_eq!((gate(cell, Check::Written), gate(cell, Check::Duration)), (Verdict::Pass, Verdict::Pass));
    }
    // The rate asked for is that of both.
    assert_eq!((tenth.load.targets, gate(tenth, Check::Achieved)), (Some(2), Verdict::Pass));
    // Both files were read: fio tells each on its own, and the cell is their sum.
    let text = fs::read_to_string(journal.dir().join(format!("raw/{}.json", tenth.id))).unwrap();
    let jobs = lab::fio_json::parse(&text).unwrap().jobs;
    let sum: f64 = jobs.iter().map(|j| j.figures.iops.unwrap()).sum();
    assert!(jobs.len() == 2 && (tenth.figures.iops.unwrap() / sum - 1.0).abs() < 1e-9);
    assert_eq!(tenth.bins.iter().map(|b| b.1).sum::<u64>(), jobs.iter().map(|j| j.bins.count()).sum::<u64>());
    let command = all.command.as_ref().unwrap();
    assert!(command.contains("/a --direct=1") && command.contains("/b --direct=1"), "{command}");
    let scaling = Scaling::of(all, &result.cells).unwrap();
    assert_eq!(scaling.alone.len(), 2);
    assert!(all.gates.iter().any(|g| g.check == Check::Scaling));
    let page = page(&[result], &Extra::default());
    assert!(page.contains("One target against several"));
    assert_eq!(fs::metadata(dir.path().join("b")).unwrap().len(), 2 * BYTES);
}

#[test]
#[ignore = "needs fio: cargo xtask test --only lab"]
fn every_target_that_exists_wants_its_own_name() {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in [("a", BYTES), ("b", 2 * BYTES)] {
        fs::write(dir.path().join(name), vec![7; bytes as usize]).unwrap();
    }
    let journal = ordered(dir.path());
    for said in [&[][..], &["a"], &["b"], &["a", "c"]] {
        let error = quiet(&journal, said).unwrap_err();
        assert!(matches!(error, Error::Refused(_)), "{said:?}: {error}");
    }
    assert_eq!(fs::read(dir.path().join("a")).unwrap(), vec![7; BYTES as usize], "nothing was written");
    assert!(quiet(&journal, &["b", "a"]).is_ok());
}

#[test]
#[ignore = "needs fio: cargo xtask test --only lab"]
fn many_drives_are_filled_and_measured_at_once_only() {
    let dir = tempfile::tempdir().unwrap();
    let suite = SUITE.replace("for_publication = false", "for_publication = false\neach_alone = false");
    let result = quiet(&ordered_by(dir.path(), &suite), &[]).unwrap();
    let parts: Vec<Part> = result.cells.iter().map(|c| c.part).collect();
    assert_eq!(parts, [Part::Fill, Part::Together, Part::CurveMax, Part::Curve { percent: 10 }]);
    assert!(result.cells.iter().all(|c| c.load.targets == Some(2)));
    assert_eq!(result.cells[0].figures.written_bytes, Some(2 * BYTES));
    for cell in &result.cells[1..] {
        assert_eq!((gate(cell, Check::Written), gate(cell, Check::Identity)), (Verdict::Pass, Verdict::Pass));
        assert!(cell.gates.iter().all(|g| g.check != Check::Scaling), "none was measured alone, and none was to be");
    }
}
