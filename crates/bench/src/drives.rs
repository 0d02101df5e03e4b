//! Drives to measure on that cost nothing: in memory, or modelled.

use base::{BLOCK_BYTES, MemberLba};
use rt::model::{Disk, DiskParams};
use rt::{Buf, Drive, Rt};

use crate::error::Error;
use crate::stripe::failed;

/// What touches a memory drive at once.
const TOUCH_BYTES: usize = 1 << 20;

/// `count` memory drives of `bytes` each, with the memory behind them taken from the kernel already: else the first
/// write to each place would pay for its pages, and arrays write to new places more often than direct drives do.
///
/// # Errors
/// None in practice; a memory drive does not fail.
pub async fn memory(rt: &Rt, count: usize, bytes: u64) -> Result<Vec<Drive>, Error> {
    let drives: Vec<Drive> = (0..count).map(|i| Drive::memory(rt, &format!("memory{i}"), bytes)).collect();
    let zeros = Buf::zeroed(TOUCH_BYTES).freeze();
    for drive in &drives {
        for at in (0..drive.info().blocks.bytes()).step_by(TOUCH_BYTES) {
            let bytes = (drive.info().blocks.bytes() - at).min(TOUCH_BYTES as u64);
            let at = MemberLba(at / BLOCK_BYTES as u64);
            drive.write(at, zeros.slice(0..bytes as usize)).await.map_err(|e| failed(drive, e))?;
        }
    }
    Ok(drives)
}

/// A modelled drive with equal cost per byte for random and sequential access, a read a third of a write (design,
/// section 8), so that only our own work shows: 2.1 GB/s of writes or 6.3 GB/s of reads, and no volatile cache.
#[must_use]
pub fn equal_cost(bytes: u64) -> DiskParams {
    DiskParams {
        bytes,
        volatile_cache: false,
        read_ns: 0,
        write_ns: 0,
        ns_per_byte_read: 0.16,
        ns_per_byte_write: 0.48,
        flush_ns: 0,
        // One at a time: the rate does not depend on how requests are cut, so a ratio cannot exceed its limit.
        parallelism: 1,
        jitter: 0.0,
    }
}

/// `count` modelled drives, for a runtime in virtual time.
#[must_use]
pub fn modelled(rt: &Rt, count: usize, params: &DiskParams) -> Vec<Drive> {
    (0..count).map(|i| Drive::modelled(rt, &Disk::new(&format!("model{i}"), *params, i as u64))).collect()
}
