//! What the array keeps of the drives' sequential write rate.

use bench::{SequentialRatio, sequential_ratio};
use rt::Rt;

/// RAID 5 7+1 over eight memory drives, per data drive, beside the same generator on the drives.
#[test]
fn raid_5_sequential_write_keeps_half_of_the_drives_rate() {
    const GOAL: f64 = 0.5;
    let rt = Rt::real().unwrap();
    let result = rt.block_on(sequential_ratio(&rt, &SequentialRatio::default())).unwrap();
    println!("{result:?}");
    assert!(result.ratio_per_data_drive >= GOAL, "{result:?}");
}
