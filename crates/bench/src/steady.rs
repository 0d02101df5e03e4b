//! Random writes on drives that have to clean: direct drives beside an array on the same drives, both in steady state.
//!
//! Direct drives pay in their own translation layer, the array in its cleaner. How much each moves is printed beside:
//! what the array writes in order costs the drives nothing more, if all goes well.

use base::BLOCK_BYTES;
use rt::model::DiskParams;
use rt::{Drive, Rt};
use serde::Serialize;

use crate::drives::{self, flash_amplification, flash_counters};
use crate::error::Error;
use crate::generate::{fill, generate};
use crate::load::{Load, Until};
use crate::overwrite::{OverwriteResult, Overwrites, overwrites};
use crate::stripe::Stripe;
use crate::target::Target;

/// Direct drives in steady state.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DirectResult {
    /// Part of the drives that is written.
    pub filled: f64,
    /// Requests per second, in virtual time.
    pub iops: f64,
    /// Median latency.
    pub latency_us_p50: f64,
    /// 99.9 % took no longer.
    pub latency_us_p999: f64,
    /// Bytes that the flash programs for one that is written to the drive, whole units.
    pub flash_amplification: f64,
}

/// Both.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SteadyResult {
    /// Direct drives, wholly written.
    pub direct: DirectResult,
    /// The array.
    pub array: OverwriteResult,
    /// Requests per second of the array to those of the direct drives.
    pub ratio: f64,
}

/// Measures `how`, and direct drives of the same kind and number under the same load.
///
/// # Errors
/// As [`overwrites`].
pub fn steady(how: &Overwrites) -> Result<SteadyResult, Error> {
    let rt = Rt::modelled(1);
    let direct = rt.block_on(direct(&rt, how, 1.0));
    rt.end();
    let rt = Rt::modelled(1);
    let array = rt.block_on(overwrites(&rt, how));
    rt.end();
    let (direct, array) = (direct?, array?);
    Ok(SteadyResult { direct, array, ratio: array.iops / direct.iops })
}

/// Direct drives, of which the part `filled` is written and then overwritten, as often as the array's volume.
///
/// # Errors
/// When a drive fails a request.
pub async fn direct(rt: &Rt, how: &Overwrites, filled: f64) -> Result<DirectResult, Error> {
    let params = DiskParams { bytes: how.drive_bytes()?, ..how.params };
    let disks = drives::disks(how.drives, &params);
    let drives: Vec<Drive> = disks.iter().map(|disk| Drive::modelled(rt, disk)).collect();
    let target = Target::Direct(Stripe::new(drives)?);
    let bytes = (target.bytes() as f64 * filled) as u64 / crate::generate::FILL_BLOCK_BYTES as u64
        * u64::from(crate::generate::FILL_BLOCK_BYTES);
    fill(rt, &target, bytes).await?;
    let load = Load::new(how.pattern, BLOCK_BYTES as u32, how.depth);
    let half = Until::Requests((bytes as f64 / BLOCK_BYTES as f64 * how.times / 2.0) as u64);
    generate(rt, &target, &load, 0..bytes, half, 1).await?;
    let before = flash_counters(&disks);
    let second = generate(rt, &target, &load, 0..bytes, half, 2).await?;
    let after = flash_counters(&disks);
    Ok(DirectResult {
        filled,
        iops: second.requests as f64 / second.elapsed.as_secs_f64(),
        latency_us_p50: second.latency.ns_p50 as f64 / 1000.0,
        latency_us_p999: second.latency.ns_p999 as f64 / 1000.0,
        flash_amplification: flash_amplification(before, after),
    })
}
