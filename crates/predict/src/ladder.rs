//! What limits a system: the same load with each part made infinite in turn.

use serde::{Deserialize, Serialize};

use crate::answer::{Answer, Limits, answer};
use crate::error::Error;
use crate::load::{Load, Pressure};
use crate::sim::Part;
use crate::system::System;

/// One part made infinite.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rung {
    /// Which part takes no time.
    pub without: Part,
    /// Requests a second then.
    pub iops: f64,
    /// To those of the whole system.
    pub gain: f64,
    /// Requests simulated for it.
    pub requests: u64,
}

/// Rungs, the largest gain first: the first is the limit. At a fixed rate there are none, since the rate stays.
///
/// # Errors
/// When the system cannot be.
pub fn ladder(system: &System, load: &Load, whole: &Answer, seed: u64) -> Result<Vec<Rung>, Error> {
    let mut rungs = vec![];
    if matches!(load.pressure, Pressure::Rate(_)) {
        return Ok(rungs);
    }
    // A part of the system's own limits is enough here: what matters is which is the largest.
    let limits = Limits { known_within: 0.02, requests_max: 1_500_000, ..Limits::default() };
    for part in Part::ALL {
        let there = match part {
            Part::Card => system.card.is_some(),
            Part::Network => system.network.is_some(),
            Part::DriveLinks => system.drive()?.flash.is_some(),
            Part::Flash | Part::Cpu | Part::InFlight => true,
        };
        if there {
            let found = answer(system, load, &limits, seed, Some(part))?;
            let gain = found.iops / whole.iops.max(1e-9);
            rungs.push(Rung { without: part, iops: found.iops, gain, requests: found.requests });
        }
    }
    rungs.sort_by(|a, b| b.gain.total_cmp(&a.gain));
    Ok(rungs)
}
