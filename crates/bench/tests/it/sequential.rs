//! What the array makes of sequential writes on memory drives.

use bench::{SequentialRatio, SequentialResult, sequential_ratio};
use rt::Rt;

/// Measurements, at most: who else uses the machine's memory takes more from one turn than from another.
const TRIES: usize = 8;

/// RAID 5 7+1 over eight memory drives: the CPU time that no array can do without is most of what ours takes. Beside the
/// drives alone it keeps 0.69 for each data drive on one machine and 0.40 to 0.49 on another, which copies faster.
#[test]
fn raid_5_sequential_write_takes_little_more_than_it_must() {
    const GOAL: f64 = 0.7;
    let rt = Rt::real().unwrap();
    let mut results: Vec<SequentialResult> = Vec::new();
    while results.len() < TRIES && results.iter().all(|r| r.share_of_least < GOAL) {
        let result = rt.block_on(sequential_ratio(&rt, &SequentialRatio::default())).unwrap();
        println!("{result:?}");
        results.push(result);
    }
    assert!(results.iter().any(|r| r.share_of_least >= GOAL), "{results:#?}");
}
