//! Replacing drives under load: redundancy comes back, and is real.

use std::time::{Duration, Instant};

use e2e::{Failure, Result};

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
    Case { name: "replace-killed", about: "SIGKILL during the rebuild, three times", run: killed },
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
