//! Replacing drives under load: redundancy comes back, and is real.

use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use e2e::failure::require;
use e2e::{Failure, OrFail, Result};
use serde_json::Value;

use super::Case;
use crate::fixture::{ARRAY, DRIVE, Lab, Served, Traffic, words};

/// The cases.
pub const CASES: &[Case] = &[
    Case {
        name: "replace-raid5",
        about: "fail, replace under load, rebuild; then another drive may fail",
        run: |l| replace(l, "5", 1),
    },
    Case { name: "replace-raid6", about: "the same with two", run: |l| replace(l, "6", 2) },
    Case {
        name: "replace-raid10",
        about: "the same with one of a pair, then its partner",
        run: |l| replace(l, "10", 1),
    },
    Case { name: "jobs-killed", about: "SIGKILL while a rebuild is paused: its job is the same one", run: jobs_killed },
    Case { name: "replace-killed", about: "SIGKILL during the rebuild, three times", run: killed },
    Case {
        name: "wiped-while-served",
        about: "the server lets go of a drive that failed: it is wiped, and comes back as new",
        run: wiped,
    },
    Case { name: "scrub-remembered", about: "what a scrub found is told after a restart", run: scrubbed },
];

const DRIVES: usize = 6;
const BYTES: u64 = 48 << 20;
const REBUILD_MAX: Duration = Duration::from_secs(60);

/// Waits for the end of rebuilds.
pub(super) fn wait_whole(served: &Served) -> Result<()> {
    let begun = Instant::now();
    while served.state()? != "optimal" {
        if begun.elapsed() > REBUILD_MAX {
            let status = served.ashlar.status(ARRAY)?;
            return Err(served.server.broken(format!("not whole after {REBUILD_MAX:?}: {status}")));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn replace(lab: &Lab, raid: &str, lost: usize) -> Result<()> {
    let mut served = lab.served("a", raid, DRIVES, "48M")?;
    let mut traffic = Traffic::new(lab, BYTES)?;
    traffic.run(&served, Duration::from_millis(300))?;
    for drive in 0..lost {
        served.fail(drive)?;
    }
    traffic.run(&served, Duration::from_millis(100))?;
    for drive in 0..lost {
        let (old, new) = (served.drives[drive].clone(), format!("d/new{drive}"));
        let verb = words(&["drive", "replace", ARRAY, &old, &new, "--size", DRIVE]);
        traffic.run_with_verbs(&served, &[verb])?;
        served.drives[drive] = new;
    }
    wait_whole(&served)?;
    traffic.verify(&served)?;
    // The redundancy counts: others may go now. Of a RAID 10 it is the partner.
    for drive in lost..2 * lost {
        served.fail(drive)?;
    }
    traffic.verify(&served)?;
    served.crash()?;
    traffic.verify(&served)?;
    served.server.stop()?;
    served.ashlar.run(&["check", ARRAY])?.expect(0).map(drop)
}

fn killed(lab: &Lab) -> Result<()> {
    let mut served = lab.served("a", "6", DRIVES, "96M")?;
    let mut traffic = Traffic::new(lab, 96 << 20)?;
    traffic.run(&served, Duration::from_millis(600))?;
    served.fail(2)?;
    let verb = words(&["drive", "replace", ARRAY, &served.drives[2], "d/new", "--size", DRIVE]);
    traffic.run_with_verbs(&served, &[verb])?;
    for millis in [1, 20, 60] {
        std::thread::sleep(Duration::from_millis(millis));
        served.crash()?;
    }
    wait_whole(&served)?;
    traffic.verify(&served)?;
    served.drives[2] = "d/new".into();
    served.fail(0)?;
    served.fail(5)?;
    traffic.verify(&served).map_err(|f| Failure::new("with two other drives out", f))
}

/// A job is a view of what the engine does: a new server tells of the same one.
fn jobs_killed(lab: &Lab) -> Result<()> {
    let mut served = lab.served("a", "5", DRIVES, "48M")?;
    let mut traffic = Traffic::new(lab, BYTES)?;
    traffic.run(&served, Duration::from_millis(300))?;
    served.ashlar.done(&["rebuild", ARRAY, "pause"])?;
    served.fail(1)?;
    let verb = words(&["drive", "replace", ARRAY, &served.drives[1], "d/new", "--size", DRIVE]);
    traffic.run_with_verbs(&served, &[verb])?;
    let before = jobs(&served)?;
    let paused = before.iter().any(|job| job.starts_with("rebuild-") && job.ends_with(" paused"));
    require(paused, "ashlar jobs", || format!("{before:?}"))?;
    served.ashlar.run(&["wait", ARRAY, "--timeout", "5"])?.expect(3)?;
    served.crash()?;
    let after = jobs(&served)?;
    require(after == before, "the jobs after SIGKILL", || format!("{before:?}, then {after:?}"))?;
    served.ashlar.done(&["rebuild", ARRAY, "resume"])?;
    served.ashlar.done(&["wait", ARRAY, "--timeout", "60"])?;
    wait_whole(&served)?;
    traffic.verify(&served)
}

/// The id of each job, and how it is.
fn jobs(served: &Served) -> Result<Vec<String>> {
    let all = served.ashlar.json(&["jobs"])?;
    let jobs = all["jobs"].as_array().cloned().unwrap_or_default();
    let word = |job: &Value, field: &str| job[field].as_str().unwrap_or_default().to_owned();
    let mut shown: Vec<String> = jobs.iter().map(|job| format!("{} {}", word(job, "id"), word(job, "state"))).collect();
    shown.sort();
    Ok(shown)
}

fn wiped(lab: &Lab) -> Result<()> {
    let mut served = lab.served("a", "5", 4, "48M")?;
    let mut traffic = Traffic::new(lab, BYTES)?;
    traffic.run(&served, Duration::from_millis(200))?;
    let (failed, used) = (served.drives[1].clone(), served.drives[2].clone());
    served.fail(1)?;
    let begun = Instant::now();
    while served.ashlar.run(&["wipe", "--yes", &failed])?.expect(0).is_err() {
        if begun.elapsed() > REBUILD_MAX {
            return Err(Failure::new("ashlar wipe", format!("{failed} is in use after {REBUILD_MAX:?}")));
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    served.ashlar.run(&["wipe", "--yes", &used])?.expect(3)?;
    let status = served.ashlar.status(ARRAY)?;
    let member = |seat: usize| status["members"].as_array().and_then(|m| m.iter().find(|m| m["seat"] == seat).cloned());
    let seat = member(1).unwrap_or_default();
    let told = seat["state"] == "failed" && seat["drive"].as_str().is_some_and(|d| d.ends_with("1"));
    require(told, "the seat of a drive that was let go of", || seat.to_string())?;
    // Nothing is on it any more: no --force.
    served.ashlar.done(&["drive", "replace", ARRAY, &failed, &failed])?;
    wait_whole(&served)?;
    traffic.verify(&served)?;
    served.server.stop()?;
    served.ashlar.run(&["check", ARRAY])?.expect(0).map(drop)
}

fn scrubbed(lab: &Lab) -> Result<()> {
    let mut served = lab.served("a", "5", 4, "48M")?;
    let mut traffic = Traffic::new(lab, BYTES)?;
    traffic.run(&served, Duration::from_millis(300))?;
    served.server.stop()?;
    let drive = std::fs::OpenOptions::new().write(true).open(served.file(0)).or_fail("the drive")?;
    let bytes = drive.metadata().or_fail("the drive")?.len();
    for at in (16 << 20..bytes - (2 << 20)).step_by(1 << 20) {
        drive.write_all_at(&vec![0x5a; 1 << 20], at).or_fail("rot")?;
    }
    drop(drive);
    served.server.start()?;
    served.ashlar.done(&["scrub", "start", ARRAY])?;
    let begun = Instant::now();
    let found = |served: &Served| Ok::<_, Failure>(served.ashlar.status(ARRAY)?["scrub"]["last"]["found"].clone());
    while served.ashlar.status(ARRAY)?["scrub"]["last"]["finished"] != true {
        if begun.elapsed() > REBUILD_MAX {
            return Err(Failure::new("a scrub", format!("it does not end: {}", served.ashlar.status(ARRAY)?)));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let before = found(&served)?;
    let counted = before[0]["found"].as_u64().is_some_and(|n| n > 0) && before[0]["lost"] == 0;
    require(counted, "a scrub of rot", || before.to_string())?;
    served.server.stop()?;
    served.server.start()?;
    let after = found(&served)?;
    require(before == after, "what a scrub found, after a restart", || after.to_string())?;
    traffic.verify(&served)?;
    served.server.stop()
}
