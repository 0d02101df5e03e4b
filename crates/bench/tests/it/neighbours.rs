//! What a loud volume costs a quiet one. Virtual time: the figures are the same everywhere.

use bench::{Neighbours, Pattern, neighbours};
use rt::Rt;
use rt::model::DiskParams;

/// 64 requests in flight beside one, on drives that serve 16 at once: the quiet one's p99 stays within twice what it is
/// alone, and the loud one keeps most of what it had.
#[test]
fn the_quiet_one_stays_within_twice_its_lone_p99() {
    let params = DiskParams { volatile_cache: false, ..DiskParams::default() };
    for (quiet, loud, keeps) in [
        (Pattern::RANDOM_READ, Pattern::RANDOM_READ, 0.8),
        (Pattern::RANDOM_READ, Pattern::RANDOM_WRITE, 0.8),
        (Pattern::RANDOM_WRITE, Pattern::RANDOM_READ, 0.6),
        (Pattern::RANDOM_WRITE, Pattern::RANDOM_WRITE, 0.4),
    ] {
        let rt = Rt::modelled(1);
        let how = Neighbours { requests: 10_000, ..Neighbours::usual(params, loud, quiet) };
        let r = rt.block_on(neighbours(&rt, &how)).expect("modelled drives without faults do not fail");
        rt.end();
        println!("quiet {quiet}, loud {loud}: {r:?}");
        assert!(r.beside_us_p99 <= 2.0 * r.alone_us_p99, "quiet {quiet}, loud {loud}: {r:?}");
        assert!(r.loud_beside_iops >= keeps * r.loud_alone_iops, "quiet {quiet}, loud {loud}: {r:?}");
    }
}
