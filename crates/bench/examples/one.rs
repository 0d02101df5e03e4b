//! One subject under one load on eight memory drives, for a profiler:
//!
//!     cargo build --release -p bench --example one
//!     perf record -e cpu-clock --call-graph dwarf target/release/examples/one 5 random-write 4096 64 3
//!
//! Arguments: level (or "direct"), pattern, bytes of a request, depth, seconds.

use std::time::Duration;

use bench::{Comparison, Load, Subject, compare, drives};
use rt::Rt;

const DRIVES: usize = 8;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [subject, pattern, block_bytes, depth, seconds] = &args[..] else {
        return Err("give: level pattern block-bytes depth seconds".into());
    };
    let subject = match subject.as_str() {
        "direct" => Subject::Direct,
        level => Subject::Level { level: level.parse()?, width: Some(DRIVES) },
    };
    let load = Load::new(pattern.parse()?, block_bytes.parse()?, depth.parse()?);
    let rt = Rt::real()?;
    let report = rt.block_on(async {
        let drives = drives::memory(&rt, DRIVES, 512 << 20).await?;
        let mut one = Comparison { loads: vec![load], subjects: vec![subject], ..Comparison::new(drives) };
        one.working_set_bytes = 192 << 20;
        one.rounds = 1;
        compare(&rt, &one.lasting(Duration::from_secs_f64(seconds.parse().unwrap_or(3.0))), |_, _, _| ()).await
    })?;
    println!("{report}");
    Ok(())
}
