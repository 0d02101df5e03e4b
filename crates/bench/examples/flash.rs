//! Random writes on drives that have to clean, in virtual time: RAID 5 at 80 % of usable beside direct drives.
//!
//!     cargo run --release -p bench --example flash -- tlc qlc
//!
//! Arguments: drive files by name; "drives=8", "segments=1024", "zone_blocks=256", "depth=256", "times=3", "filled=0.8".

use std::time::Instant;

use bench::drives::DriveFile;
use bench::overwrite::{Filled, Overwrites};
use bench::steady::steady;

// A person waits for it.
#[allow(clippy::disallowed_methods)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (options, names): (Vec<String>, Vec<String>) = args.into_iter().partition(|a| a.contains('='));
    let option = |name: &str, usual: f64| {
        let given = options.iter().filter_map(|o| o.split_once('=')).find(|(n, _)| *n == name);
        given.map_or(Ok(usual), |(_, value)| value.parse::<f64>())
    };
    let names = if names.is_empty() { vec!["tlc".to_owned(), "qlc".to_owned()] } else { names };
    println!(
        "{:<12} {:>12} {:>7} | {:>12} {:>7} {:>7} {:>7} {:>8} {:>9} | {:>6} {:>5}",
        "drive", "direct IOPS", "flash", "array IOPS", "moves", "+hdrs", "flash", "p50 us", "p99.9 us", "ratio", "sec"
    );
    for name in names {
        let file = DriveFile::named(&name).ok_or_else(|| format!("no drive file \"{name}\" comes with the program"))?;
        let how = Overwrites {
            drives: option("drives", 8.0)? as usize,
            segments: option("segments", 1024.0)? as u32,
            zone_blocks: option("zone_blocks", 256.0)? as u32,
            depth: option("depth", 256.0)? as usize,
            times: option("times", 3.0)?,
            filled: Filled::OfUsable(option("filled", 0.8)?),
            // Its size is chosen by the number of segments.
            params: file.params(0),
            ..Overwrites::default()
        };
        let began = Instant::now();
        let r = steady(&how)?;
        println!(
            "{:<12} {:>12.0} {:>7.2} | {:>12.0} {:>7.2} {:>7.2} {:>7.2} {:>8.0} {:>9.0} | {:>6.2} {:>5.0}",
            file.name,
            r.direct.iops,
            r.direct.flash_amplification,
            r.array.iops,
            r.array.amplification.moves,
            r.array.amplification.with_headers,
            r.array.flash_amplification,
            r.array.latency_us_p50,
            r.array.latency_us_p999,
            r.ratio,
            began.elapsed().as_secs_f64(),
        );
    }
    Ok(())
}
