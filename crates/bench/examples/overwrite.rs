//! What overwriting a filled array costs, in virtual time: the table of ADR 0009.
//!
//!     cargo run --release -p bench --example overwrite -- 0.8
//!
//! Arguments: live shares of all zones ("0.8", or "0.8-skewed" for one load); or "usable", for latencies at 80 % and
//! 95 % of what volumes may fill, of which "usable-0.95-16" is one at depth 16; by default everything. Besides:
//! "segments=2048", "zone_blocks=256", "depth=256" (of live shares), "times=4". A case takes one to five minutes, with
//! larger zones as many times more.

use std::time::Instant;

use bench::overwrite::{Filled, OverwriteResult, Overwrites, overwrites};
use bench::{Error, Pattern};
use rt::Rt;

const PATTERNS: [Pattern; 2] = [Pattern::RANDOM_WRITE, Pattern::SKEWED_WRITE];

fn run(how: &Overwrites) -> Result<OverwriteResult, Error> {
    let rt = Rt::modelled(1);
    let result = rt.block_on(overwrites(&rt, how));
    rt.end();
    result
}

// A person waits for it.
#[allow(clippy::disallowed_methods)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (options, args): (Vec<String>, Vec<String>) = args.into_iter().partition(|a| a.contains('='));
    let option = |name: &str| {
        let given = options.iter().filter_map(|o| o.split_once('=')).find(|(n, _)| *n == name);
        given.map(|(_, value)| value.parse::<f64>()).transpose()
    };
    let usual = Overwrites::default();
    let usual = Overwrites {
        segments: option("segments")?.map_or(usual.segments, |n| n as u32),
        zone_blocks: option("zone_blocks")?.map_or(usual.zone_blocks, |n| n as u32),
        depth: option("depth")?.map_or(64, |n| n as usize),
        ..usual
    };
    let times = option("times")?;
    let asked = |what: &str| args.is_empty() || args.iter().any(|a| a == what);
    println!(
        "{:<7} {:<8} {:>5} {:>6} {:>7} {:>6} {:>7} {:>7} {:>6} | {:>7} {:>7} {:>7} {:>8} {:>8} {:>5} {:>5}",
        "share",
        "load",
        "depth",
        "theory",
        "in use",
        "theory",
        "moves",
        "+map",
        "+hdrs",
        "idle",
        "p50",
        "p99.9",
        "max us",
        "max/idle",
        "kIOPS",
        "sec"
    );
    let mut cases = Vec::new();
    for share in [0.5, 0.7, 0.8, 0.9] {
        for pattern in PATTERNS {
            let name = if pattern == Pattern::SKEWED_WRITE { "skewed" } else { "uniform" };
            if asked(&share.to_string()) || asked(&format!("{share}-{name}")) {
                let filled = Filled::OfAllZones(share);
                cases.push(Overwrites { filled, pattern, times: times.unwrap_or(20.0), ..usual });
            }
        }
    }
    for share in [0.8, 0.95] {
        for depth in [1, 16, 64] {
            if asked("usable") || asked(&format!("usable-{share}-{depth}")) {
                let filled = Filled::OfUsable(share);
                cases.push(Overwrites { filled, depth, times: times.unwrap_or(4.0), ..usual });
            }
        }
    }
    for how in cases {
        let began = Instant::now();
        let r = run(&how)?;
        println!(
            "{:<7.3} {:<8} {:>5} {:>6.2} {:>7.3} {:>6.2} {:>7.2} {:>7.2} {:>6.2} | {:>7.0} {:>7.0} {:>7.0} {:>8.0} {:>8.1} {:>5.0} {:>5.0}",
            r.live_share_of_zones,
            if how.pattern == Pattern::SKEWED_WRITE { "80/20" } else { "uniform" },
            how.depth,
            r.theory_of_zones,
            r.live_share_of_segments,
            r.theory_of_segments,
            r.amplification.moves,
            r.amplification.with_map,
            r.amplification.with_headers,
            r.idle_us_p50,
            r.latency_us_p50,
            r.latency_us_p999,
            r.latency_us_max,
            r.latency_us_max / r.idle_us_p50,
            r.iops / 1000.0,
            began.elapsed().as_secs_f64(),
        );
    }
    Ok(())
}
