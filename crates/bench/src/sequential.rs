//! One number: what an array keeps of the drives' sequential write rate, per data drive.
//!
//! Direct drives and the array take turns, some ten milliseconds each, so that whatever else the machine does meets
//! both; the ratio is the median over the turns.
//!
//! On memory drives that ratio is as much the machine's as the array's: it falls where memory is copied fast and summed up
//! slowly. So checksum and parity of as many bytes have turns of their own: an array cannot do without them.

use std::hint::black_box;

use base::BLOCK_BYTES;
use ondisk::{Level, Scheme};
use rt::Rt;
use serde::Serialize;

use crate::clock::thread_cpu_ns;
use crate::drives;
use crate::error::Error;
use crate::figures::{Sample, median};
use crate::generate::generate;
use crate::limit;
use crate::load::{Load, Pattern, Until};
use crate::stripe::UNIT_BYTES_MIN;
use crate::subject::Subject;

/// What to measure; on memory drives.
#[derive(Clone, Copy, Debug)]
pub struct SequentialRatio {
    /// Drives.
    pub drives: usize,
    /// Bytes of each.
    pub drive_bytes: u64,
    /// Blocks of a zone.
    pub zone_blocks: u32,
    /// The array's level.
    pub level: Level,
    /// Columns of its segments.
    pub width: usize,
    /// Turns.
    pub turns: usize,
    /// Bytes written in a turn, by each of both.
    pub turn_bytes: u64,
    /// Bytes of a request.
    pub block_bytes: u32,
    /// Requests in flight.
    pub depth: usize,
}

impl Default for SequentialRatio {
    /// RAID 5 7+1 over eight drives; all turns together stay below what the array holds, so nothing is cleaned.
    fn default() -> Self {
        SequentialRatio {
            drives: 8,
            drive_bytes: 192 << 20,
            zone_blocks: 512,
            level: Level::Raid5,
            width: 8,
            turns: 11,
            turn_bytes: 64 << 20,
            block_bytes: 128 << 10,
            depth: 16,
        }
    }
}

/// The result.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SequentialResult {
    /// (Rate of the array / data drives) / (rate of the direct drives / drives), median over the turns; rates per
    /// second of CPU time, since nothing waits on memory drives: others on the machine do not move it much.
    pub ratio_per_data_drive: f64,
    /// The same with rates per second.
    pub ratio_per_data_drive_elapsed: f64,
    /// CPU time of what no array can do without (what the drives take of its bytes, and one pass over the data that makes
    /// checksums and parity) over the array's, median over the turns.
    pub share_of_least: f64,
    /// The theoretical limit of it.
    pub limit: f64,
    /// Median rate of the array.
    pub array_bytes_per_sec: f64,
    /// Median rate of the direct drives.
    pub direct_bytes_per_sec: f64,
    /// Bytes to drives per byte of hosts.
    pub drive_bytes_per_host_byte: f64,
}

/// Measures.
///
/// # Errors
/// When the array cannot be made or fails a request.
pub async fn sequential_ratio(rt: &Rt, how: &SequentialRatio) -> Result<SequentialResult, Error> {
    // Two sets of drives, because both are used in turns. Both write a new place in each turn: the CPU's caches help
    // neither.
    let turns = how.turns as u64 + 1;
    let volume_bytes = turns * how.turn_bytes;
    let direct_bytes = volume_bytes.div_ceil(how.drives as u64).next_multiple_of(UNIT_BYTES_MIN) + UNIT_BYTES_MIN;
    let direct_drives = drives::memory(rt, how.drives, direct_bytes).await?;
    let array_drives = drives::memory(rt, how.drives, how.drive_bytes).await?;
    let subject = Subject::Level { level: how.level, width: Some(how.width) };
    let direct = Subject::Direct.make(rt, &direct_drives, None, volume_bytes).await?;
    let array = subject.make(rt, &array_drives, Some(how.zone_blocks), volume_bytes).await?;
    let load = Load::new(Pattern::SEQUENTIAL_WRITE, how.block_bytes, how.depth);
    let until = Until::Requests(how.turn_bytes / u64::from(how.block_bytes));
    let (mut of_array, mut of_direct): (Vec<Sample>, Vec<Sample>) = (Vec::new(), Vec::new());
    let (data, mut passes) = (vec![0x5a; how.turn_bytes as usize], Vec::new());
    for turn in 0..turns {
        let place = turn * how.turn_bytes..(turn + 1) * how.turn_bytes;
        let d = generate(rt, &direct, &load, place.clone(), until, 1).await?;
        let a = generate(rt, &array, &load, place, until, 1).await?;
        let p = pass(rt, &data, how.width - 1);
        // The first turn warms up.
        if turn > 0 {
            passes.push(p);
            of_direct.push(d);
            of_array.push(a);
        }
    }
    array.close().await?;
    let scheme = how.level.scheme_of_width(how.width).unwrap_or(Scheme::Parity { k: how.width as u8, m: 0 });
    let per_data_drive = limit::drive_bytes_per_host_byte(scheme);
    let ratio = |rate: &dyn Fn(&Sample) -> f64| {
        median(of_array.iter().zip(&of_direct).map(|(a, d)| rate(a) / rate(d) * per_data_drive))
    };
    let of_least = of_array
        .iter()
        .zip(&of_direct)
        .zip(&passes)
        .map(|((a, d), pass)| (d.cpu_secs() * per_data_drive + pass) / a.cpu_secs());
    Ok(SequentialResult {
        share_of_least: median(of_least),
        ratio_per_data_drive: ratio(&Sample::bytes_per_cpu_sec),
        ratio_per_data_drive_elapsed: ratio(&Sample::bytes_per_sec),
        limit: limit::Case::new(scheme, how.drives).ratio(load.pattern) * per_data_drive,
        array_bytes_per_sec: median(of_array.iter().map(Sample::bytes_per_sec)),
        direct_bytes_per_sec: median(of_direct.iter().map(Sample::bytes_per_sec)),
        drive_bytes_per_host_byte: median(of_array.iter().filter_map(|s| s.drive_bytes_per_host_byte)),
    })
}

/// CPU seconds of checksums and one parity over `data`, row by row while it is in the cache.
fn pass(rt: &Rt, data: &[u8], columns: usize) -> f64 {
    let before = thread_cpu_ns(rt);
    let mut parity = vec![0; BLOCK_BYTES];
    let mut sum = 0;
    for row in data.chunks_exact(BLOCK_BYTES * columns.max(1)) {
        let blocks: Vec<&[u8]> = row.chunks_exact(BLOCK_BYTES).collect();
        blocks.iter().for_each(|block| sum ^= ondisk::crc32c(block));
        erasure::encode(erasure::kernel(), &blocks, &mut [&mut parity]);
        sum ^= u32::from(parity[0]);
    }
    black_box(sum);
    thread_cpu_ns(rt).zip(before).map_or(0.0, |(after, before)| (after - before) as f64 / 1e9)
}
