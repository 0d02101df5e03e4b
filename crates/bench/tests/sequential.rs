//! What the array keeps of the drives' sequential write rate.

use bench::{SequentialRatio, sequential_ratio};
use rt::Rt;

/// RAID 5 7+1 over eight memory drives: at least half of what the same generator gets from the drives, per data drive.
#[test]
fn raid_5_keeps_half_of_the_sequential_write_rate() {
    const AT_LEAST: f64 = 0.5;
    let rt = Rt::real().unwrap();
    let result = rt.block_on(sequential_ratio(&rt, &SequentialRatio::default())).unwrap();
    println!("{result:?}");
    assert!(result.ratio_per_data_drive >= AT_LEAST, "{result:?}");
}
