//! A drive file that is learnt from a loop device which the kernel holds to a rate, and how far off the model of it is under
//! other loads. It wants root, fio, loop devices and the blkio controller, and takes four minutes:
//!
//! ```text
//! cargo test --profile tests -p lab --test learn -- --ignored --nocapture
//! ```
//!
//! Rates are far below what a busy machine makes of such a device, so the kernel's limits are what is measured.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use lab::learning::{Checked, check, learn_drive, write_drive};
use lab::model::Run;
use lab::plan::{Plan, Wishes};
use lab::run::{Around, Given, begin, run};
use lab::suite::Suite;
use lab::target::Target;
use predict::DriveFile;

const BYTES: u64 = 256 << 20;
/// Requests and bytes a second.
const READS: (u64, u64) = (600, 20_000_000);
const WRITES: (u64, u64) = (400, 16_000_000);
/// What is asked of reads.
const ERROR_MAX: f64 = 0.25;

/// What is learnt from: name, order, share of reads, block sizes, depths.
const LEARNT: &[(&str, &str, u32, &str, &str)] = &[
    ("large reads", "sequential", 100, "\"128K\"", "16"),
    ("large writes", "sequential", 0, "\"128K\"", "16"),
    ("small reads", "random", 100, "\"4K\"", "1, 32"),
    ("small writes", "random", 0, "\"4K\"", "1, 32"),
];
/// What is checked: other depths, other sizes.
const OTHERS: &[(&str, &str, u32, &str, &str)] = &[
    ("other depths", "random", 100, "\"4K\"", "2, 8, 64"),
    ("other sizes", "random", 100, "\"8K\", \"16K\", \"64K\"", "4, 16"),
    ("in order", "sequential", 100, "\"64K\"", "8"),
    ("mix", "random", 70, "\"4K\"", "16"),
];

/// A loop device that is held to rates, with this process in the group that is held; both are gone at its end.
struct Throttled {
    device: String,
    group: PathBuf,
    parent: PathBuf,
}

impl Throttled {
    fn new(dir: &Path) -> Throttled {
        let backing = dir.join("backing");
        File::create(&backing).unwrap().set_len(BYTES).unwrap();
        let out = Command::new("losetup").args(["--find", "--show", "--direct-io=on"]).arg(&backing).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let device = String::from_utf8(out.stdout).unwrap().trim().to_owned();
        let name = device.trim_start_matches("/dev/").to_owned();
        let number = fs::read_to_string(format!("/sys/class/block/{name}/dev")).unwrap().trim().to_owned();
        let old = Path::new("/sys/fs/cgroup/blkio");
        let parent = if old.exists() { old.to_owned() } else { PathBuf::from("/sys/fs/cgroup") };
        let group = parent.join(format!("ashlar-lab-{}", std::process::id()));
        if old.exists() {
            fs::create_dir(&group).unwrap();
            for (file, limit) in [
                ("read_iops_device", READS.0),
                ("read_bps_device", READS.1),
                ("write_iops_device", WRITES.0),
                ("write_bps_device", WRITES.1),
            ] {
                fs::write(group.join(format!("blkio.throttle.{file}")), format!("{number} {limit}")).unwrap();
            }
        } else {
            fs::write(parent.join("cgroup.subtree_control"), "+io").unwrap();
            fs::create_dir(&group).unwrap();
            let limits = format!("riops={} rbps={} wiops={} wbps={}", READS.0, READS.1, WRITES.0, WRITES.1);
            fs::write(group.join("io.max"), format!("{number} {limits}")).unwrap();
        }
        fs::write(group.join("cgroup.procs"), std::process::id().to_string()).unwrap();
        Throttled { device, group, parent }
    }
}

impl Drop for Throttled {
    fn drop(&mut self) {
        let _ = fs::write(self.parent.join("cgroup.procs"), std::process::id().to_string());
        let _ = Command::new("losetup").args(["-d", &self.device]).status();
        let _ = fs::remove_dir(&self.group);
    }
}

fn measured(dir: &Path, name: &str, tests: &[(&str, &str, u32, &str, &str)], device: &str) -> Run {
    let mut text = "about = \"a test\"\nfor_publication = false\n[[test]]\nname = \"fill\"\nkind = \"fill\"\naccess = \
                    \"sequential\"\nreads = 0\nblock = \"1M\"\ndepth = [8]\n"
        .to_owned();
    for (test, access, reads, block, depth) in tests {
        text.push_str(&format!(
            "[[test]]\nname = \"{test}\"\nkind = \"load\"\naccess = \"{access}\"\nreads = {reads}\nblock = [{block}]\ndepth \
             = [{depth}]\nseconds = 5\nramp = 1\n"
        ));
    }
    let path = dir.join(format!("{name}.toml"));
    fs::write(&path, text).unwrap();
    let suite = Suite::find(path.to_str().unwrap()).unwrap();
    let target = Target::look(device, None).unwrap();
    let plan = Plan::of(&suite, &target, Wishes::default());
    let journal = begin(dir.join(name), &suite, &target, &plan, Given::default()).unwrap();
    run(&journal, &[&target.serial], Around::default(), &mut |_| {}).unwrap()
}

fn print(checked: &[Checked]) {
    let percent = |share: Option<f64>| share.map_or("-".to_owned(), |s| format!("{:.0} %", s * 100.0));
    println!(
        "{:<14} {:>9} {:>9} {:>9} {:>8} {:>14} {:>11}",
        "load", "in flight", "measured", "model", "error", "within a cell", "run to run"
    );
    for c in checked {
        println!(
            "{:<14} {:>9.0} {:>9.0} {:>9.0} {:>+7.1}% {:>14} {:>11}",
            c.load,
            c.in_flight,
            c.measured_iops,
            c.modelled_iops,
            c.error * 100.0,
            percent(c.spread_within),
            percent(c.spread_runs)
        );
    }
}

#[test]
#[ignore = "needs root, fio, a loop device and four minutes"]
fn a_throttled_device_is_learnt_and_makes_other_loads() {
    let dir = tempfile::tempdir().unwrap();
    let throttled = Throttled::new(dir.path());
    let first = measured(dir.path(), "first", LEARNT, &throttled.device);
    let out = dir.path().join("mine.toml");
    write_drive(&learn_drive("mine", &first).unwrap(), Path::new("first"), &out).unwrap();
    let drive = DriveFile::parse(&fs::read_to_string(&out).unwrap()).unwrap();
    let others = ["second", "third"].map(|name| measured(dir.path(), name, OTHERS, &throttled.device));
    let checked = check(&drive, &others, 1).unwrap();
    println!("load average {}", fs::read_to_string("/proc/loadavg").unwrap().trim());
    print(&checked);
    let reads: Vec<&Checked> = checked.iter().filter(|c| c.load.ends_with("read")).collect();
    let cells =
        OTHERS.iter().filter(|t| t.2 == 100).map(|t| t.3.split(',').count() * t.4.split(',').count()).sum::<usize>();
    assert_eq!(reads.len(), 2 * cells, "no cell failed its gates");
    for c in reads {
        assert!(c.error.abs() < ERROR_MAX, "{} x {}: {:+.2}", c.load, c.in_flight, c.error);
    }
}
