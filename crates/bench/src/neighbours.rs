//! A quiet volume beside a loud one: what the loud one costs the quiet one.
//!
//! The quiet one is measured alone, then while the loud one keeps its requests in flight; the loud one alone and
//! beside the quiet one. Latencies include all waiting.

use std::cell::Cell;
use std::rc::Rc;

use array::{Array, CreateSpec};
use base::BLOCK_BYTES;
use ondisk::Level;
use rt::Rt;
use rt::model::DiskParams;
use serde::Serialize;

use crate::drives;
use crate::error::Error;
use crate::figures::Sample;
use crate::generate::{fill, generate};
use crate::load::{Load, Pattern, Until};
use crate::target::Target;

/// What to measure; on modelled drives.
#[derive(Clone, Copy, Debug)]
pub struct Neighbours {
    /// Drives of a RAID 5 array of full width.
    pub drives: usize,
    /// What a drive is like.
    pub params: DiskParams,
    /// Bytes of each of the two volumes.
    pub volume_bytes: u64,
    /// What the loud one does.
    pub loud: Load,
    /// What the quiet one does.
    pub quiet: Load,
    /// Requests of the quiet one that are measured, each time.
    pub requests: u64,
}

impl Neighbours {
    /// 64 requests of 4 KiB beside one, on RAID 5 4+1.
    #[must_use]
    pub fn usual(params: DiskParams, loud: Pattern, quiet: Pattern) -> Neighbours {
        Neighbours {
            drives: 5,
            params,
            volume_bytes: 64 << 20,
            loud: Load::new(loud, BLOCK_BYTES as u32, 64),
            quiet: Load::new(quiet, BLOCK_BYTES as u32, 1),
            requests: 20_000,
        }
    }
}

/// The result, in microseconds and requests per second of virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct NeighboursResult {
    /// The quiet one alone: 99 % took no longer.
    pub alone_us_p99: f64,
    /// Beside the loud one.
    pub beside_us_p99: f64,
    /// The quiet one's median alone.
    pub alone_us_p50: f64,
    /// Beside the loud one.
    pub beside_us_p50: f64,
    /// The loud one alone.
    pub loud_alone_iops: f64,
    /// Beside the quiet one.
    pub loud_beside_iops: f64,
}

/// Measures, in virtual time: same arguments, same figures.
///
/// # Errors
/// When the array cannot be made or fails a request.
pub async fn neighbours(rt: &Rt, how: &Neighbours) -> Result<NeighboursResult, Error> {
    let spec = CreateSpec {
        name: "neighbours".to_owned(),
        level: Level::Raid5,
        width: Some(how.drives),
        zone_blocks: None,
        force: true,
    };
    let array = Array::create(rt, drives::modelled(rt, how.drives, &how.params), &spec).await?;
    let mut targets = Vec::new();
    for name in ["quiet", "loud"] {
        array.volume_create(name, how.volume_bytes).await?;
        let volume = array.volume(name).expect("it was made just now");
        let target = Target::Volume { array: array.clone(), volume };
        fill(rt, &target, how.volume_bytes).await?;
        targets.push(target);
    }
    let (quiet, loud) = (&targets[0], &targets[1]);
    let all = 0..how.volume_bytes;
    let requests = Until::Requests(how.requests);
    let alone = generate(rt, quiet, &how.quiet, all.clone(), requests, 1).await?;
    let loud_alone = generate(rt, loud, &how.loud, all.clone(), requests, 2).await?;
    let (beside, loud_beside_iops) = beside(rt, how, quiet, loud).await?;
    let us = |ns: u64| ns as f64 / 1000.0;
    Ok(NeighboursResult {
        alone_us_p99: us(alone.latency.ns_p99),
        beside_us_p99: us(beside.latency.ns_p99),
        alone_us_p50: us(alone.latency.ns_p50),
        beside_us_p50: us(beside.latency.ns_p50),
        loud_alone_iops: loud_alone.requests as f64 / loud_alone.elapsed.as_secs_f64(),
        loud_beside_iops,
    })
}

/// The quiet one while the loud one is at work; and the loud one's rate meanwhile.
async fn beside(rt: &Rt, how: &Neighbours, quiet: &Target, loud: &Target) -> Result<(Sample, f64), Error> {
    let over = Rc::new(Cell::new(false));
    let noise = {
        let (rt, loud, load, over, all) = (rt.clone(), loud.clone(), how.loud, over.clone(), 0..how.volume_bytes);
        async move {
            let (mut requests, mut seed) = (0, 100);
            while !over.get() {
                seed += 1;
                let sample = generate(&rt, &loud, &load, all.clone(), Until::Requests(2000), seed).await?;
                requests += sample.requests;
            }
            Ok::<u64, Error>(requests)
        }
    };
    let begun = rt.now();
    let noise = rt.spawn(noise);
    let sample = generate(rt, quiet, &how.quiet, 0..how.volume_bytes, Until::Requests(how.requests), 3).await;
    over.set(true);
    let requests = noise.await?;
    Ok((sample?, requests as f64 / (rt.now() - begun).as_secs_f64()))
}
