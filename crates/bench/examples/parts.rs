//! What several cores cost an array when nothing crosses between them: each asks for what lies in its own part only.
//! `ashlar bench --cores 1,2` says what they cost when everything is asked for.
//!
//!     cargo run --release -p bench --example parts              read and write, several depths
//!     cargo run --release -p bench --example parts write 64     one load, for a profiler
//!
//! RAID 5 7+1 on memory drives, filled and overwritten until the rate is steady. Memory drives give memory back, and what
//! faults it in anew costs more than a write; so that glibc keeps it:
//! `GLIBC_TUNABLES=glibc.malloc.mmap_threshold=2147483648:glibc.malloc.trim_threshold=17179869184`.

use std::time::Duration;

use bench::condition::Condition;
use bench::{Asks, Comparison, Fill, Load, Pattern, State, Subject, compare, drives};
use ondisk::Level;
use rt::Rt;

const DRIVES: usize = 8;
const DRIVE_BYTES: u64 = 512 << 20;
const FILL: Fill = Fill::Usable(55);
const SECONDS_EACH: u64 = 1;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let loads = match &args[..] {
        [] => [Pattern::RANDOM_READ, Pattern::RANDOM_WRITE]
            .into_iter()
            .flat_map(|pattern| [2, 64, 256, 1024].map(|depth| Load::new(pattern, 4096, depth)))
            .collect(),
        [pattern, depth] => vec![Load::new(format!("random-{pattern}").parse()?, 4096, depth.parse()?)],
        _ => return Err("give nothing, or: read|write DEPTH".into()),
    };
    let rt = Rt::real()?;
    let report = rt.block_on(async {
        let what = Comparison {
            subjects: vec![Subject::Level { level: Level::Raid5, width: Some(DRIVES) }],
            conditions: [1, 2].map(|cores| Condition { fill: FILL, state: State::Optimal, cores }).to_vec(),
            asks: Asks::Own,
            loads,
            zone_blocks: Some(256),
            ..Comparison::new(drives::memory(&rt, DRIVES, DRIVE_BYTES).await?)
        };
        let measurements = (what.rounds * what.conditions.len() * what.loads.len()) as u64;
        compare(&rt, &what.lasting(Duration::from_secs(SECONDS_EACH * measurements)), |_, _, _| ()).await
    })?;
    print!("{report}");
    Ok(())
}
