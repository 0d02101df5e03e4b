//! SIGKILL under our own load: what the crash loop does for hours, once, on every level.

use std::time::Duration;

use e2e::Result;

use super::Case;
use crate::fixture::{ARRAY, Lab, Traffic};

/// The cases.
pub const CASES: &[Case] = &[Case {
    name: "sigkill-every-level",
    about: "three kills under load on RAID 0, 5, 6 and 10; all read back, check is content",
    run: every_level,
}];

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
