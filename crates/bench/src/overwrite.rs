//! What overwriting a filled array costs: write amplification and latency while the cleaner works.
//!
//! ```text
//! create -> fill the volume in order -> overwrite it at random, `times` times over; the later half is measured
//! ```
//!
//! Beside the figures stands what theory says of a greedy cleaner under uniform writes. It knows neither map nor
//! headers, nor room that is kept free: so it is given for two live shares, that of all zones and that of the segments
//! in use.

use std::time::Duration;

use api::{PlanView, WrittenView};
use array::{Array, CreateSpec};
use base::{BLOCK_BYTES, BlockCount};
use ondisk::Level;
use rt::model::{Disk, DiskParams};
use rt::{Drive, Rt};
use serde::Serialize;

use crate::drives::{self, flash_amplification, flash_counters};
use crate::error::Error;
use crate::generate::{fill, generate};
use crate::load::{Load, Pattern, Until};
use crate::target::Target;

/// How much of the array the volume takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Filled {
    /// This part of the data blocks of all zones; volumes may fill all that the ladder leaves.
    OfAllZones(f64),
    /// This part of what volumes may fill by default.
    OfUsable(f64),
}

/// What to measure; on modelled drives.
#[derive(Clone, Copy, Debug)]
pub struct Overwrites {
    /// Drives, as many as a segment has columns.
    pub drives: usize,
    /// The array's level.
    pub level: Level,
    /// Segments.
    pub segments: u32,
    /// Blocks of a zone.
    pub zone_blocks: u32,
    /// What a drive is like, besides its size.
    pub params: DiskParams,
    /// Size of the volume.
    pub filled: Filled,
    /// Uniform or skewed.
    pub pattern: Pattern,
    /// Requests of 4 KiB in flight.
    pub depth: usize,
    /// How often the volume is written over.
    pub times: f64,
}

impl Default for Overwrites {
    /// RAID 5 4+1, 1024 segments of 1 MiB.
    fn default() -> Self {
        Overwrites {
            drives: 5,
            level: Level::Raid5,
            segments: 1024,
            zone_blocks: 64,
            params: DiskParams { volatile_cache: false, ..DiskParams::default() },
            filled: Filled::OfUsable(0.8),
            pattern: Pattern::RANDOM_WRITE,
            depth: 16,
            times: 20.0,
        }
    }
}

/// Blocks of data columns by what they are, per block of hosts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Amplification {
    /// Hosts' blocks and moved ones: what theory speaks of.
    pub moves: f64,
    /// With map nodes.
    pub with_map: f64,
    /// With record headers and padding: all blocks of data columns.
    pub with_headers: f64,
    /// With redundancy: all that the drives get, the system area left out.
    pub with_redundancy: f64,
}

/// The result.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OverwriteResult {
    /// Blocks of the volume per data block of all zones.
    pub live_share_of_zones: f64,
    /// As the array says at the end: live blocks, map included, per data block of segments in use.
    pub live_share_of_segments: f64,
    /// Measured over the later half.
    pub amplification: Amplification,
    /// Bytes that the drives' flash programs for one that they get; 1 where they have none.
    pub flash_amplification: f64,
    /// What theory says of moves at [`OverwriteResult::live_share_of_zones`].
    pub theory_of_zones: f64,
    /// And at [`OverwriteResult::live_share_of_segments`].
    pub theory_of_segments: f64,
    /// Median latency of the same load on the same array with nothing to clean.
    pub idle_us_p50: f64,
    /// Median latency of the later half.
    pub latency_us_p50: f64,
    /// 99.9 % of the later half took no longer.
    pub latency_us_p999: f64,
    /// The longest of all overwrites.
    pub latency_us_max: f64,
    /// Overwrites per second in the later half, in virtual time.
    pub iops: f64,
}

/// Write amplification by moves of a greedy cleaner under uniform random writes at live share `u`, segments being large:
/// a victim's share x solves x = exp((x - 1) / u), and each block gained costs x / (1 - x) moves.
#[must_use]
pub fn theory(u: f64) -> f64 {
    // From below: the other solution is 1.
    let mut x = 0.0;
    for _ in 0..10_000 {
        x = f64::exp((x - 1.0) / u);
    }
    1.0 / (1.0 - x)
}

impl Overwrites {
    fn spec(&self) -> CreateSpec {
        CreateSpec {
            name: "overwrites".to_owned(),
            level: self.level,
            width: Some(self.drives),
            zone_blocks: Some(self.zone_blocks),
            force: true,
        }
    }

    /// The smallest drives with one zone for each segment, and what they become.
    fn plan(&self) -> Result<(u64, PlanView), Error> {
        let mut blocks = (u64::from(self.segments) + 1) * u64::from(self.zone_blocks);
        loop {
            let plan = array::plan(&self.spec(), &vec![blocks; self.drives]);
            if let Some(plan) = plan.as_ref().ok().filter(|p| p.segments >= u64::from(self.segments)) {
                return Ok((BlockCount(blocks).bytes(), plan.clone()));
            }
            if blocks > 4 * u64::from(self.segments) * u64::from(self.zone_blocks) + (1 << 20) {
                plan?;
            }
            blocks += u64::from(self.zone_blocks);
        }
    }

    /// Size of each drive.
    ///
    /// # Errors
    /// When no array of this shape can be made.
    pub fn drive_bytes(&self) -> Result<u64, Error> {
        Ok(self.plan()?.0)
    }

    /// The array, the drives behind it, and its live share of all zones once it is filled.
    async fn make(&self, rt: &Rt) -> Result<(Target, Vec<Disk>, f64), Error> {
        let (bytes, plan) = self.plan()?;
        let disks = drives::disks(self.drives, &DiskParams { bytes, ..self.params });
        let drives: Vec<Drive> = disks.iter().map(|disk| Drive::modelled(rt, disk)).collect();
        let (permille, share) = match self.filled {
            Filled::OfAllZones(share) => (1000, share),
            Filled::OfUsable(share) => {
                (array::plan::USABLE_PERMILLE, plan.usable_bytes as f64 * share / plan.data_bytes as f64)
            }
        };
        let array = Array::create_usable(rt, drives, &self.spec(), permille).await?;
        let blocks = (plan.data_bytes as f64 * share / BLOCK_BYTES as f64) as u64;
        array.volume_create("v", BlockCount(blocks).bytes()).await?;
        let volume = array.volume("v").expect("it was made just now");
        let live_share = BlockCount(blocks).bytes() as f64 / plan.data_bytes as f64;
        Ok((Target::Volume { array, volume }, disks, live_share))
    }
}

/// Measures, in virtual time: same arguments, same figures.
///
/// # Errors
/// When the array cannot be made or fails a request.
pub async fn overwrites(rt: &Rt, how: &Overwrites) -> Result<OverwriteResult, Error> {
    let (target, disks, live_share_of_zones) = how.make(rt).await?;
    let Target::Volume { array, .. } = &target else { unreachable!("it was made just now") };
    let blocks = target.bytes() / BLOCK_BYTES as u64;
    let load = Load::new(how.pattern, BLOCK_BYTES as u32, how.depth);
    let all = 0..target.bytes();
    // A twentieth of the array, at most: nothing is to be cleaned.
    let idle = Until::Requests((u64::from(how.segments) * u64::from(how.zone_blocks) / 20).min(10_000));
    let idle = generate(rt, &target, &load, all.clone(), idle, 3).await?;
    fill_in_order(rt, &target).await?;
    let half = Until::Requests((blocks as f64 * how.times / 2.0) as u64);
    let first = generate(rt, &target, &load, all.clone(), half, 1).await?;
    let (before, flash_before) = (array.status().written, flash_counters(&disks));
    let second = generate(rt, &target, &load, all, half, 2).await?;
    let amplification = Amplification::between(before, array.status().written);
    let flash_amplification = flash_amplification(flash_before, flash_counters(&disks));
    array.checkpoint().await?;
    let live_share_of_segments = array.status().live_share;
    let us = |ns: u64| ns as f64 / 1000.0;
    let result = OverwriteResult {
        live_share_of_zones,
        live_share_of_segments,
        amplification,
        flash_amplification,
        theory_of_zones: theory(live_share_of_zones),
        theory_of_segments: theory(live_share_of_segments),
        idle_us_p50: us(idle.latency.ns_p50),
        latency_us_p50: us(second.latency.ns_p50),
        latency_us_p999: us(second.latency.ns_p999),
        latency_us_max: us(first.latency.ns_max.max(second.latency.ns_max)),
        iops: second.requests as f64 / second.elapsed.as_secs_f64(),
    };
    target.close().await?;
    Ok(result)
}

/// [`fill`], also where the volume is not a whole number of its requests.
async fn fill_in_order(rt: &Rt, target: &Target) -> Result<Duration, Error> {
    let whole = target.bytes() / u64::from(crate::generate::FILL_BLOCK_BYTES);
    let filled = fill(rt, target, whole * u64::from(crate::generate::FILL_BLOCK_BYTES)).await?;
    let rest = whole * u64::from(crate::generate::FILL_BLOCK_BYTES)..target.bytes();
    if !rest.is_empty() {
        let load = Load::new(Pattern::SEQUENTIAL_WRITE, BLOCK_BYTES as u32, 16);
        let requests = (rest.end - rest.start) / BLOCK_BYTES as u64;
        generate(rt, target, &load, rest, Until::Requests(requests), 0).await?;
    }
    Ok(filled.elapsed)
}

impl Amplification {
    fn between(before: WrittenView, after: WrittenView) -> Amplification {
        let per_host = |of: &dyn Fn(&WrittenView) -> u64| {
            (of(&after) - of(&before)) as f64 / (after.host_bytes - before.host_bytes).max(1) as f64
        };
        let moves = 1.0 + per_host(&|w| w.moved_bytes);
        let with_map = moves + per_host(&|w| w.map_bytes);
        let with_headers = with_map + per_host(&|w| w.header_bytes);
        Amplification {
            moves,
            with_map,
            with_headers,
            with_redundancy: with_headers + per_host(&|w| w.redundancy_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn theory_is_what_is_known() {
        for (u, amplification) in [(0.5, 1.255), (0.7, 1.876), (0.8, 2.692), (0.9, 5.180)] {
            assert!((theory(u) - amplification).abs() < 0.005, "{u}: {}", theory(u));
        }
    }
}
