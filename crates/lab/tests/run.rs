//! The runner with fio itself, on files of a few MiB: part of the tests that need foreign programs.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;

use lab::Error;
use lab::model::{Cell, Check, Part, Run, Subject, Verdict};
use lab::plan::{Plan, Wishes};
use lab::run::{Around, Given, Journal, begin, run};
use lab::suite::Suite;
use lab::target::Target;
use rustix::fs::{FallocateFlags, fallocate};

const BYTES: u64 = 8 << 20;

fn suite(dir: &Path, tests: &[(&str, &str)]) -> Suite {
    let mut text = "about = \"a test\"\nfor_publication = false\n".to_owned();
    for (name, more) in tests {
        let base = "access = \"random\"\nblock = \"4K\"\nseconds = 1\n";
        let base: String =
            base.lines().filter(|l| !more.contains(l.split(' ').next().unwrap())).map(|l| format!("{l}\n")).collect();
        text.push_str(&format!("[[test]]\nname = \"{name}\"\n{base}{more}\n"));
    }
    let path = dir.join("test.toml");
    fs::write(&path, text).unwrap();
    Suite::find(path.to_str().unwrap()).unwrap()
}

const FILL: (&str, &str) = ("fill", "kind = \"fill\"\naccess = \"sequential\"\nreads = 0\nblock = \"1M\"");
const READ: (&str, &str) = ("read", "kind = \"load\"\nreads = 100\ndepth = [4]\nseconds = 3");

fn ordered(dir: &Path, tests: &[(&str, &str)], target: &Path) -> Journal {
    let target = Target::look(target.to_str().unwrap(), Some(BYTES)).unwrap();
    let suite = suite(dir, tests);
    let plan = Plan::of(&suite, &target, Wishes::default());
    begin(dir.join("out"), &suite, &target, &plan, Given::default()).unwrap()
}

fn gate(cell: &Cell, check: Check) -> Option<Verdict> {
    cell.gates.iter().find(|g| g.check == check).map(|g| g.verdict)
}

fn quiet(journal: &Journal, destroy: Option<&str>) -> Result<Run, Error> {
    run(journal, destroy.as_slice(), Around::default(), &mut |_| {})
}

#[test]
#[ignore = "needs fio: cargo xtask test --only lab"]
fn an_allocated_file_that_was_never_written_fails_every_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trap");
    fallocate(File::create(&path).unwrap(), FallocateFlags::empty(), 0, BYTES).unwrap();
    let journal = ordered(dir.path(), &[READ], &path);
    let result = quiet(&journal, None).unwrap();
    let written = result.cells[0].gates.iter().find(|g| g.check == Check::Written).unwrap();
    assert_eq!(written.verdict, Verdict::Fail);
    assert!(written.reason.starts_with("unwritten"), "{}", written.reason);
    assert!(lab::report::page(&[result], &Default::default()).contains("unwritten"));
}

#[test]
#[ignore = "needs fio: cargo xtask test --only lab"]
fn a_file_is_made_filled_and_read_with_all_figures() {
    let dir = tempfile::tempdir().unwrap();
    let curve = ("curve", "kind = \"curve\"\nreads = 100\ndepth = [4]\npercents = [20, 50]\nseconds = 2");
    let journal = ordered(dir.path(), &[FILL, READ, curve], &dir.path().join("made"));
    let result = quiet(&journal, None).unwrap();
    let [fill, read, max, low, half] = &result.cells[..] else { panic!("{} cells", result.cells.len()) };
    assert_eq!((fill.part, fill.figures.written_bytes), (Part::Fill, Some(BYTES)));
    assert_eq!((gate(read, Check::Written), gate(read, Check::Cache)), (Some(Verdict::Pass), Some(Verdict::Pass)));
    assert!(read.figures.latency.p99_us.is_some() && !read.bins.is_empty() && !read.series.is_empty());
    assert!(read.command.as_ref().unwrap().contains("--direct=1"));
    let asked = max.figures.iops.unwrap() * 0.5;
    assert!((half.asked_iops.unwrap() / asked - 1.0).abs() < 1e-9 && low.asked_iops < half.asked_iops);
    assert!(gate(low, Check::Achieved).is_some() && gate(max, Check::Little).is_some());
    assert!(result.ended.is_some());
    assert_eq!(Run::read(journal.dir()).unwrap(), result, "the file is the result");
    // What fio printed for each cell is still there: imported, it is the same.
    for cell in [read, half] {
        let raw = journal.dir().join(format!("raw/{}.json", cell.id));
        let imported = lab::import::import(&raw, &Subject::default()).unwrap();
        let [other] = &imported.cells[..] else { panic!("{} cells imported", imported.cells.len()) };
        assert_eq!((&other.figures.iops, &other.figures.latency), (&cell.figures.iops, &cell.figures.latency));
        assert_eq!((&other.load.block_bytes, &other.load.depth), (&cell.load.block_bytes, &cell.load.depth));
    }
    let table = fs::read_to_string(journal.dir().join("cells.csv")).unwrap();
    assert_eq!(table.lines().count(), 6);
}

#[test]
#[ignore = "needs fio: cargo xtask test --only lab"]
fn what_was_stopped_goes_on_and_measures_nothing_twice() {
    let dir = tempfile::tempdir().unwrap();
    let two = ("two", "kind = \"load\"\nreads = 100\ndepth = [1, 2]");
    let journal = ordered(dir.path(), &[FILL, two], &dir.path().join("f"));
    let first = quiet(&journal, None).unwrap();
    fs::remove_file(journal.dir().join("cells").join(format!("{}.json", first.cells[2].id))).unwrap();
    let again = Journal::open(journal.dir().to_owned()).unwrap();
    let mut begun = vec![];
    let second = run(&again, &[], Around::default(), &mut |live| {
        if live.ended.is_some() {
            begun.push(live.id.to_owned());
        }
    })
    .unwrap();
    assert_eq!(begun, [first.cells[2].id.clone()]);
    assert_eq!(second.cells[..2], first.cells[..2]);
    let checks = |cell: &Cell| cell.gates.iter().map(|g| g.check).collect::<Vec<_>>();
    assert_eq!(checks(&second.cells[2]), checks(&first.cells[2]));
    assert!(Journal::create(journal.dir().to_owned(), again.order().clone()).is_err(), "a run is not overwritten");
}

#[test]
#[ignore = "needs fio: cargo xtask test --only lab"]
fn reducible_data_has_the_shares_that_are_stated() {
    const BLOCK: usize = 8192;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let shares =
        "kind = \"fill\"\naccess = \"sequential\"\nreads = 0\nblock = \"8K\"\nduplicate = 50\ncompressible = 50";
    let journal = ordered(dir.path(), &[("fill", shares)], &path);
    let result = quiet(&journal, None).unwrap();
    let told = result.cells[0].gates.iter().find(|g| g.check == Check::Data).unwrap();
    assert!(told.verdict == Verdict::Pass && told.reason.contains("50 % duplicate"), "{told}");
    let bytes = fs::read(&path).unwrap();
    let unique: BTreeSet<&[u8]> = bytes.chunks_exact(BLOCK).collect();
    let blocks = bytes.len() / BLOCK;
    assert!((blocks * 4 / 10..blocks * 6 / 10).contains(&unique.len()), "{} of {blocks} are unique", unique.len());
    let zeros = bytes.iter().filter(|b| **b == 0).count();
    assert!((bytes.len() * 4 / 10..bytes.len() * 6 / 10).contains(&zeros), "{zeros} of {} are zeros", bytes.len());
}

#[test]
#[ignore = "needs fio: cargo xtask test --only lab"]
fn a_check_finds_what_is_not_as_it_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let writes = ("writes", "kind = \"load\"\nreads = 50\nblock = \"8K\"\nthreads = [2]\ndepth = [4]");
    let check = "kind = \"check\"\naccess = \"sequential\"\nreads = 100\nblock = \"1M\"";
    let journal = ordered(dir.path(), &[FILL, writes, ("check", check)], &path);
    let errors = |run: &Run| run.cells[2].gates.iter().find(|g| g.check == Check::Errors).unwrap().clone();
    let good = quiet(&journal, None).unwrap();
    assert_eq!(errors(&good).verdict, Verdict::Pass, "{}", errors(&good));
    // One block with what another one should hold, and one with a flipped bit.
    let mut bytes = fs::read(&path).unwrap();
    bytes.copy_within(8192..12_288, 1 << 20);
    bytes[(3 << 20) + 100] ^= 1;
    fs::write(&path, &bytes).unwrap();
    fs::remove_file(journal.dir().join("cells").join(format!("{}.json", good.cells[2].id))).unwrap();
    let bad = quiet(&journal, None).unwrap();
    assert_eq!(errors(&bad).verdict, Verdict::Fail, "{}", errors(&bad));
    assert!(errors(&bad).reason.starts_with("2 blocks"), "{}", errors(&bad));
}

#[test]
#[ignore = "needs fio: cargo xtask test --only lab"]
fn a_precondition_writes_its_range_as_often_as_asked_and_sizes_are_cells() {
    let dir = tempfile::tempdir().unwrap();
    let before = "kind = \"precondition\"\nreads = 0\nthreads = [2]\ntimes = 2\nseconds = 600";
    let sizes = "kind = \"load\"\nreads = 0\nblock = [\"4K\", \"64K\"]\nseconds = 6";
    let journal = ordered(dir.path(), &[FILL, ("before", before), ("sizes", sizes)], &dir.path().join("f"));
    let result = quiet(&journal, None).unwrap();
    let [_, before, small, large] = &result.cells[..] else { panic!("{} cells", result.cells.len()) };
    assert_eq!(before.figures.written_bytes, Some(2 * BYTES), "{:?}", before.command);
    assert!(before.figures.seconds.unwrap() < 100.0 && gate(before, Check::Duration).is_none());
    assert_eq!((small.load.block_bytes, large.load.block_bytes), (Some(4096), Some(65_536)));
    // What the precondition wrote counts, so the writes after it can be steady.
    let steady = small.gates.iter().find(|g| g.check == Check::Steady).unwrap();
    assert!(!steady.reason.contains("were overwritten"), "{steady}");
}

#[test]
#[ignore = "needs fio: cargo xtask test --only lab"]
fn what_exists_is_written_only_by_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mine");
    fs::write(&path, vec![7; BYTES as usize]).unwrap();
    let journal = ordered(dir.path(), &[FILL], &path);
    let error = quiet(&journal, None).unwrap_err();
    assert!(matches!(error, Error::Refused(_)), "{error}");
    assert_eq!(fs::read(&path).unwrap(), vec![7; BYTES as usize], "nothing was written");
    assert_eq!(quiet(&journal, Some("mine")).unwrap().cells.len(), 1);
    assert_ne!(fs::read(&path).unwrap()[..4096], [7; 4096]);
}

#[test]
#[ignore = "needs fio: cargo xtask test --only lab"]
fn a_target_that_became_another_is_not_gone_on_with() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let journal = ordered(dir.path(), &[FILL, READ], &path);
    fs::write(&path, "somebody else's").unwrap();
    assert!(quiet(&journal, None).is_err());
    assert_eq!(fs::read(&path).unwrap(), b"somebody else's");
}

#[test]
#[ignore = "needs fio: cargo xtask test --only lab"]
fn a_file_that_is_only_read_is_not_made_longer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("short");
    fs::write(&path, vec![7; 1 << 20]).unwrap();
    let journal = ordered(dir.path(), &[READ], &path);
    assert!(quiet(&journal, None).is_err());
    assert_eq!(fs::metadata(&path).unwrap().len(), 1 << 20);
}
