//! Every combination of drives that a level promises to survive: gone from the box, and failing under load.

use std::time::Duration;

use e2e::Result;
use e2e::failure::require;

use super::Case;
use crate::fixture::{ARRAY, Lab, Served, Traffic, words};

/// The cases.
pub const CASES: &[Case] = &[
    Case { name: "loss-raid5-removed", about: "each one of 6 drives gone after a stop", run: |l| removed(l, "5") },
    Case { name: "loss-raid5-failed", about: "each one of 6 drives fails under load", run: |l| failed(l, "5") },
    Case { name: "loss-raid6-removed", about: "each two of 6 drives gone after a stop", run: |l| removed(l, "6") },
    Case { name: "loss-raid6-failed", about: "each two of 6 drives fail under load", run: |l| failed(l, "6") },
    Case { name: "loss-raid10-removed", about: "one of each pair gone after a stop", run: |l| removed(l, "10") },
    Case { name: "loss-raid10-failed", about: "one of each pair fails under load", run: |l| failed(l, "10") },
];

const DRIVES: usize = 6;
const VOLUME_SIZE: &str = "24M";
const VOLUME_BYTES: u64 = 24 << 20;
const LOAD: Duration = Duration::from_millis(80);

/// All the losses a level promises to survive, at their largest.
pub fn combinations(raid: &str) -> Vec<Vec<usize>> {
    match raid {
        "5" => (0..DRIVES).map(|a| vec![a]).collect(),
        "6" => (0..DRIVES).flat_map(|a| (a + 1..DRIVES).map(move |b| vec![a, b])).collect(),
        "10" => (0..8).map(|bits| (0..3).map(|pair| 2 * pair + (bits >> pair & 1)).collect()).collect(),
        _ => vec![],
    }
}

fn each(lab: &Lab, raid: &str, one: impl Fn(&Lab, &str, &str, &[usize]) -> Result<()>) -> Result<()> {
    for lost in combinations(raid) {
        let name = format!("lost{lost:?}").replace([' ', ','], "-");
        one(lab, &name, raid, &lost).map_err(|f| f.within(&format!("RAID {raid} without drives {lost:?}")))?;
        // Room for the next one.
        let _ = std::fs::remove_dir_all(lab.dir.join(&name));
    }
    Ok(())
}

fn removed(lab: &Lab, raid: &str) -> Result<()> {
    each(lab, raid, |lab, name, raid, lost| {
        let mut served = lab.served(name, raid, DRIVES, VOLUME_SIZE)?;
        let mut traffic = Traffic::new(lab, VOLUME_BYTES)?;
        traffic.run(&served, LOAD)?;
        served.ashlar.done(&["rebuild", ARRAY, "pause"])?;
        served.server.stop()?;
        served.remove(lost)?;
        if 2 * lost.len() >= DRIVES {
            half_is_asked_for(&mut served)?;
        }
        served.server.start()?;
        let state = served.state()?;
        require(state == "degraded", "status", || format!("the array is {state}, not degraded"))?;
        traffic.verify(&served)?;
        served.ashlar.done(&["rebuild", ARRAY, "resume"])?;
        served.becomes_degraded()?;
        traffic.verify(&served)?;
        traffic.run(&served, LOAD)?;
        traffic.verify(&served)?;
        served.crash()?;
        traffic.verify(&served)?;
        // The drives return with their old state: never believed, by whatever name.
        served.server.stop()?;
        served.put_back(lost)?;
        served.server.start()?;
        traffic.verify(&served)
    })
}

/// With half of the drives gone, `serve` wants to be told that this is meant.
fn half_is_asked_for(served: &mut Served) -> Result<()> {
    served.server.spawn()?;
    let status = served.server.wait_end()?;
    require(status.code() == Some(3), "serve with half of the drives", || format!("it ended with {status}"))?;
    let log = served.server.log_end();
    require(log.contains("--degraded"), "serve with half of the drives", || format!("no way out is named:\n{log}"))?;
    served.server = std::mem::replace(&mut served.server, e2e::server::Server::new(&served.ashlar)).with_flags(&[
        "--nbd",
        "tcp:127.0.0.1:0",
        "--degraded",
    ]);
    Ok(())
}

fn failed(lab: &Lab, raid: &str) -> Result<()> {
    each(lab, raid, |lab, name, raid, lost| {
        let mut served = lab.served(name, raid, DRIVES, VOLUME_SIZE)?;
        let mut traffic = Traffic::new(lab, VOLUME_BYTES)?;
        traffic.run(&served, LOAD)?;
        let verbs: Vec<_> =
            lost.iter().map(|d| words(&["drive", "fail", "--force", ARRAY, &served.drives[*d]])).collect();
        traffic.run_with_verbs(&served, &verbs)?;
        traffic.verify(&served)?;
        // One more is refused, and nothing has happened.
        let more = (0..DRIVES).find(|d| !lost.contains(d)).unwrap_or(0);
        let ended = served.ashlar.run(&["drive", "fail", ARRAY, &served.drives[more]])?.expect(3)?;
        require(ended.err.contains("redundancy"), "drive fail past the redundancy", || ended.err.clone())?;
        traffic.run(&served, LOAD)?;
        served.crash()?;
        traffic.verify(&served)
    })
}
