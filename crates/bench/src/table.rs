//! The demo's table: direct drives beside RAID 0, 10, 5 and 6 on memory drives, in seconds.

use std::time::Duration;

use rt::Rt;

use crate::compare::{Comparison, compare};
use crate::condition::Condition;
use crate::drives;
use crate::error::Error;
use crate::load::{Load, Pattern};
use crate::report::Report;
use crate::subject::Subject;

/// How large and how long.
#[derive(Clone, Copy, Debug)]
pub struct Quick {
    /// Memory drives.
    pub drives: usize,
    /// Bytes of each; this much memory is taken.
    pub drive_bytes: u64,
    /// Time of all measurements; filling and making the arrays comes on top, about half as much again.
    pub time: Duration,
}

impl Default for Quick {
    /// Eight drives, 2.3 GiB in all, about 12 seconds.
    fn default() -> Self {
        Quick { drives: 8, drive_bytes: 288 << 20, time: Duration::from_secs(9) }
    }
}

/// The table's loads.
pub const LOADS: [Load; 3] =
    [Load::usual(Pattern::RANDOM_READ), Load::usual(Pattern::RANDOM_WRITE), Load::usual(Pattern::SEQUENTIAL_WRITE)];

/// Measures; `progress` is told what comes next: the round (from 1), the subject.
///
/// # Errors
/// When an array cannot be made or fails a request.
pub async fn quick(rt: &Rt, how: Quick, progress: impl FnMut(usize, Condition, Subject)) -> Result<Report, Error> {
    let drives = drives::memory(rt, how.drives, how.drive_bytes).await?;
    let mut comparison = Comparison { loads: LOADS.to_vec(), ..Comparison::new(drives) };
    comparison.working_set_bytes = comparison.working_set_bytes.min(192 << 20);
    // Two copies hold 1 GiB of these drives before they clean: the working set, two write loads and their warm-up.
    comparison.bytes_max = comparison.working_set_bytes * 3 / 2;
    compare(rt, &comparison.lasting(how.time), progress).await
}
