//! What overwriting a filled array costs, on an array small enough for every run of the tests; the large one is
//! `examples/overwrite.rs`. Virtual time: the figures are the same everywhere.

use bench::overwrite::{Filled, OverwriteResult, Overwrites, overwrites};
use bench::{Error, Pattern};
use rt::Rt;

/// 256 segments of 192 KiB.
fn run(filled: Filled, pattern: Pattern, depth: usize) -> OverwriteResult {
    let how = Overwrites { drives: 4, segments: 256, filled, pattern, depth, times: 3.0, ..Overwrites::default() };
    let rt = Rt::modelled(1);
    let result: Result<OverwriteResult, Error> = rt.block_on(overwrites(&rt, &how));
    rt.end();
    let result = result.expect("modelled drives without faults do not fail");
    println!("{filled:?} {pattern} {depth}: {result:?}");
    result
}

#[test]
fn amplification_stays_near_theory() {
    for (share, over_theory) in [(0.5, 1.15), (0.7, 1.25)] {
        let uniform = run(Filled::OfAllZones(share), Pattern::RANDOM_WRITE, 64);
        let limit = uniform.theory_of_segments * over_theory;
        assert!(uniform.amplification.moves <= limit, "{limit}: {uniform:?}");
        let skewed = run(Filled::OfAllZones(share), Pattern::SKEWED_WRITE, 64);
        let better = share < 0.7 || skewed.amplification.moves < uniform.amplification.moves;
        assert!(better, "an 80/20 load costs less where cleaning costs much: {skewed:?}");
    }
}

/// It cost thousands of times the idle median while hosts waited for the checkpoint that frees what is cleaned.
#[test]
fn no_write_waits_for_a_checkpoint() {
    for (share, over_idle) in [(0.8, 30.0), (0.95, 100.0)] {
        let r = run(Filled::OfUsable(share), Pattern::RANDOM_WRITE, 16);
        assert!(r.latency_us_max < over_idle * r.idle_us_p50, "{r:?}");
    }
}
