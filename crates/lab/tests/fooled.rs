//! What would fool a measurement, done to it: with fio and nbdkit, on files and exports of a few MiB. Part of the tests that
//! need foreign programs.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lab::model::{Cell, Check, Run, Verdict};
use lab::plan::{Plan, Wishes};
use lab::run::{Around, Given, Journal, begin, run};
use lab::suite::Suite;
use lab::target::Target;
use rustix::fs::{FallocateFlags, fallocate};

const BYTES: u64 = 32 << 20;

const FILL: &str = "name = \"fill\"\nkind = \"fill\"\naccess = \"sequential\"\nreads = 0\nblock = \"1M\"";
const READ: &str =
    "name = \"read\"\nkind = \"load\"\naccess = \"random\"\nreads = 100\nblock = \"4K\"\ndepth = [4]\nseconds = 5";
const AGAIN: &str =
    "name = \"again\"\nkind = \"load\"\naccess = \"random\"\nreads = 100\nblock = \"4K\"\ndepth = [4]\nseconds = 2";

fn ordered(dir: &Path, tests: &[&str], target: &str) -> Journal {
    let tests: String = tests.iter().map(|t| format!("[[test]]\n{t}\n")).collect();
    let path = dir.join("test.toml");
    fs::write(&path, format!("about = \"a test\"\nfor_publication = false\n{tests}")).unwrap();
    let suite = Suite::find(path.to_str().unwrap()).unwrap();
    let target = Target::look(target, Some(BYTES)).unwrap();
    let plan = Plan::of(&suite, &target, Wishes::default());
    begin(dir.join("out"), &suite, &target, &plan, Given::default()).unwrap()
}

/// Runs, and does something once while the test of a name is measured.
fn run_with(journal: &Journal, skip: &[String], test: &str, mut meanwhile: impl FnMut()) -> Run {
    let (mut done, mut seen) = (false, 0);
    let serial = journal.order().target.serial.clone();
    let around = Around { skip, ..Around::default() };
    run(journal, &[&serial], around, &mut |live| {
        seen += usize::from(live.iops.is_some() && live.id.contains(test));
        if seen == 2 && !done {
            done = true;
            meanwhile();
        }
    })
    .unwrap()
}

fn cell<'a>(run: &'a Run, test: &str) -> &'a Cell {
    run.cells.iter().find(|c| c.test == test).unwrap()
}

fn gate(cell: &Cell, check: Check) -> (Verdict, &str) {
    let gate = cell.gates.iter().find(|g| g.check == check).unwrap_or_else(|| panic!("{check}: {:?}", cell.gates));
    (gate.verdict, &gate.reason)
}

/// An export of nbdkit's, ended with this value.
struct Export {
    server: Child,
    address: String,
}

impl Export {
    fn start(dir: &Path, args: &[&str]) -> Export {
        let socket = dir.join("nbd");
        let mut command = Command::new("nbdkit");
        command.args(["--foreground", "--unix"]).arg(&socket).args(args).stdin(Stdio::null());
        let server = command.spawn().unwrap();
        let begun = Instant::now();
        while !socket.exists() {
            assert!(begun.elapsed() < Duration::from_secs(20), "nbdkit does not serve");
            std::thread::sleep(Duration::from_millis(20));
        }
        Export { server, address: format!("nbd+unix:///?socket={}", socket.display()) }
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// The process of fio that works in a directory.
fn fio_in(dir: &Path) -> Option<i32> {
    fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).into_owned();
        (line.contains("--name=cell") && line.contains(dir.to_str()?)).then_some(pid)
    })
}

#[test]
#[ignore = "needs fio: cargo xtask test --only lab"]
fn errors_fail_their_cell_and_the_run_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let export = Export::start(dir.path(), &["--filter=error", "memory", "32M", "error-pread-rate=2%"]);
    let result = run_with(&ordered(dir.path(), &[FILL, READ, AGAIN], &export.address), &[], "none", || {});
    assert!(result.ended.is_some());
    let read = cell(&result, "read");
    let (verdict, reason) = gate(read, Check::Errors);
    let failed: f64 = reason.split(' ').next().unwrap().parse().unwrap();
    assert_eq!(verdict, Verdict::Fail, "{reason}");
    // About 2 % of all requests, not the first one only.
    assert!(failed > 10.0 && read.figures.iops.is_some(), "{reason}");
    assert_eq!(gate(cell(&result, "again"), Check::Errors).0, Verdict::Fail);
    assert_eq!(gate(cell(&result, "fill"), Check::Errors).0, Verdict::Pass, "writes did not fail");
}

#[test]
#[ignore = "needs fio: cargo xtask test --only lab"]
fn a_generator_that_dies_fails_its_cell_only() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let journal = ordered(dir.path(), &[FILL, READ, AGAIN], path.to_str().unwrap());
    let result = run_with(&journal, &[], "read", || {
        let pid = rustix::process::Pid::from_raw(fio_in(dir.path()).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    });
    let (verdict, reason) = gate(cell(&result, "read"), Check::Errors);
    assert!(verdict == Verdict::Fail && reason.starts_with("nothing was measured"), "{reason}");
    assert_eq!(cell(&result, "read").figures.iops, None);
    assert_eq!(gate(cell(&result, "again"), Check::Errors), (Verdict::Pass, "none"));
    assert!(lab::report::page(&[result], &Default::default()).contains("nothing was measured"));
}

#[test]
#[ignore = "needs fio: cargo xtask test --only lab"]
fn a_test_can_be_left_out_and_stays_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let journal = ordered(dir.path(), &[FILL, READ, AGAIN], path.to_str().unwrap());
    let result = run_with(&journal, &["read".to_owned()], "none", || {});
    let tests: Vec<&str> = result.cells.iter().map(|c| c.test.as_str()).collect();
    assert_eq!(tests, ["fill", "again"]);
    assert!(result.not_run.iter().any(|p| p.value.contains("--skip")), "{:?}", result.not_run);
    let again = run_with(&Journal::open(journal.dir().to_owned()).unwrap(), &[], "none", || panic!("measured again"));
    assert_eq!((again.cells, again.not_run), (result.cells, result.not_run));
    let around = Around { skip: &["raed".to_owned()], ..Around::default() };
    let error = run(&journal, &["f"], around, &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("raed") && error.contains("again, fill, read"), "{error}");
}

/// A file that is filled, and read while something is done to it.
fn read_while(meanwhile: impl Fn(&PathBuf)) -> Run {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let journal = ordered(dir.path(), &[FILL, READ], path.to_str().unwrap());
    run_with(&journal, &[], "read", || meanwhile(&path))
}

#[test]
#[ignore = "needs fio: cargo xtask test --only lab"]
fn holes_punched_meanwhile_are_seen() {
    let result = read_while(|path| {
        let file = File::options().write(true).open(path).unwrap();
        fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, BYTES / 2).unwrap();
    });
    let (verdict, reason) = gate(cell(&result, "read"), Check::Written);
    assert!(verdict == Verdict::Fail && reason.contains("taken away"), "{reason}");
    assert_eq!(gate(cell(&result, "read"), Check::Identity).0, Verdict::Pass);
}

#[test]
#[ignore = "needs fio: cargo xtask test --only lab"]
fn a_file_replaced_or_cut_meanwhile_is_seen() {
    let replaced = read_while(|path| {
        let other = path.with_extension("other");
        fs::copy(path, &other).unwrap();
        fs::rename(other, path).unwrap();
    });
    let (verdict, reason) = gate(cell(&replaced, "read"), Check::Identity);
    assert!(verdict == Verdict::Fail && reason.contains("another file"), "{reason}");
    let cut = read_while(|path| File::options().write(true).open(path).unwrap().set_len(BYTES / 2).unwrap());
    let (verdict, reason) = gate(cell(&cut, "read"), Check::Identity);
    assert!(verdict == Verdict::Fail && reason.contains("it has 16777216"), "{reason}");
}

#[test]
#[ignore = "needs fio: cargo xtask test --only lab"]
fn a_file_of_zeros_is_no_data() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("zeros");
    let file = File::create(&path).unwrap();
    file.write_all_at(&vec![0; BYTES as usize], 0).unwrap();
    file.sync_all().unwrap();
    let result = run_with(&ordered(dir.path(), &[AGAIN], path.to_str().unwrap()), &[], "none", || {});
    assert_eq!(gate(cell(&result, "again"), Check::Written).0, Verdict::Pass, "zeros are written, too");
    assert_eq!(gate(cell(&result, "again"), Check::Data).0, Verdict::Fail);
}

#[test]
#[ignore = "needs fio: cargo xtask test --only lab"]
fn steady_writes_want_one_overwrite_and_servers_are_no_noise() {
    let write = |name: &str, block: &str, seconds: u32| {
        let load = "kind = \"load\"\naccess = \"random\"\nreads = 0\ndepth = [8]";
        format!("name = \"{name}\"\n{load}\nblock = \"{block}\"\nseconds = {seconds}")
    };
    let dir = tempfile::tempdir().unwrap();
    // 3 MB/s, which is as steady as can be: 21 MB of 32 in seven seconds.
    let export = Export::start(dir.path(), &["--filter=rate", "memory", "32M", "rate=24M", "burstiness=0.1"]);
    let fast = FILL.replace("\"1M\"", "\"128K\"");
    let tests = [fast, write("first", "4K", 7), write("much", "32K", 9), write("second", "4K", 7)];
    let tests: Vec<&str> = tests.iter().map(String::as_str).collect();
    let result = run_with(&ordered(dir.path(), &tests, &export.address), &[], "none", || {});
    let (verdict, reason) = gate(cell(&result, "first"), Check::Steady);
    assert!(verdict == Verdict::Warn && reason.contains("of the range were overwritten"), "{reason}");
    // 48 MB were written since the fill.
    let (_, reason) = gate(cell(&result, "second"), Check::Steady);
    assert!(!reason.contains("were overwritten"), "{reason}");
}

#[test]
#[ignore = "needs fio: cargo xtask test --only lab"]
fn what_serves_an_export_is_not_noise() {
    let dir = tempfile::tempdir().unwrap();
    let export = Export::start(dir.path(), &["memory", "32M"]);
    let result = run_with(&ordered(dir.path(), &[FILL, READ], &export.address), &[], "none", || {});
    let (_, reason) = gate(cell(&result, "read"), Check::Noise);
    let share = reason.rsplit_once("what serves the target ").map(|(_, rest)| rest.split(' ').next().unwrap());
    let share: f64 = share.unwrap_or_else(|| panic!("{reason}")).parse().unwrap();
    assert!(share >= 5.0, "nbdkit answers each request: {reason}");
}
