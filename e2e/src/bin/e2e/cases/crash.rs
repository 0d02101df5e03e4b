//! SIGKILL under our own load: what the crash loop does for hours, once, on every level.

use std::time::Duration;

use e2e::failure::require;
use e2e::{Result, tools};

use super::Case;
use crate::fixture::{ARRAY, Lab, Traffic};

/// The cases.
pub const CASES: &[Case] = &[
    Case {
        name: "sigkill-every-level",
        about: "three kills under load on RAID 0, 5, 6 and 10; all read back, check is content",
        run: every_level,
    },
    Case { name: "canary", about: "drives that forget what was answered: the readback must notice", run: canary },
];

fn every_level(lab: &Lab) -> Result<()> {
    for (raid, drives) in [("0", 3), ("5", 4), ("6", 5), ("10", 4), ("10x3", 6)] {
        one(lab, raid, drives).map_err(|f| f.within(&format!("RAID {raid}")))?;
    }
    Ok(())
}

fn one(lab: &Lab, raid: &str, drives: usize) -> Result<()> {
    let mut served = lab.served(raid, raid, drives, "32M")?;
    let mut traffic = Traffic::new(lab, 32 << 20)?;
    let rt = traffic.rt.clone();
    for _ in 0..3 {
        rt.block_on(async {
            let load = traffic.start(&served).await?;
            rt.sleep(Duration::from_millis(60)).await;
            served.server.kill()?;
            load.finish().await.map(drop)
        })?;
        served.server.start()?;
        traffic.verify(&served)?;
    }
    served.server.stop()?;
    served.ashlar.done(&["check", ARRAY]).map(drop)
}

/// All drives are set back to an earlier, sound state: a server that lost answered writes would look like this.
fn canary(lab: &Lab) -> Result<()> {
    let mut served = lab.served("a", "5", 4, "16M")?;
    let mut traffic = Traffic::new(lab, 16 << 20)?;
    traffic.run(&served, Duration::from_millis(50))?;
    served.server.stop()?;
    tools::run(served.dir(), "cp", &["-a", "--sparse=always", "d", "earlier"])?;
    served.server.start()?;
    traffic.run(&served, Duration::from_millis(50))?;
    served.server.kill()?;
    tools::run(served.dir(), "cp", &["-a", "--sparse=always", "earlier/.", "d/"])?;
    served.server.start()?;
    let verdict = traffic.verify(&served);
    let noticed = verdict.as_ref().is_err_and(|f| f.what == "readback" && f.why.contains("must not"));
    require(noticed, "the readback of drives that forgot", || format!("it says {verdict:?}"))
}
