//! What the loss of a drive costs, on an array small enough for every run of the tests; the large one is
//! `examples/rebuild.rs`. Virtual time: the figures are the same everywhere.

use array::Rate;
use bench::Pattern;
use bench::State;
use bench::rebuild::{Place, Rebuilds};
use ondisk::Level;

/// RAID 6 4+2 over 12 drives.
fn small() -> Rebuilds {
    Rebuilds {
        drives: 12,
        drive_bytes: 48 << 20,
        level: Level::Raid6,
        width: 6,
        zone_blocks: 128,
        depth: 64,
        requests: 12_000,
        ..Rebuilds::default()
    }
}

/// Dead blocks lie between live ones in a row, headers and generations come on top: but what is free is not touched.
#[test]
fn a_rebuild_moves_what_live_data_needs() {
    let filled = small().fill().expect("modelled drives without faults do not fail");
    for place in [Place::SpareCapacity, Place::NewDrive] {
        let work = filled.rebuild(place).expect("it has room");
        println!("{place:?}: {work:?}");
        assert!(work.bytes_read < 2 * work.least_read, "{work:?}");
        assert!(work.bytes_written < 3 * work.least_written, "{work:?}");
    }
}

#[test]
fn hosts_keep_their_share_beside_a_rebuild() {
    let filled = small().fill().expect("modelled drives without faults do not fail");
    let hosts = |state| filled.hosts(Pattern::RANDOM_WRITE, state).expect("it has room");
    let optimal = hosts(State::Optimal);
    let mut rebuilt = Vec::new();
    for (rate, least, most_p99) in [(Rate::Low, 0.9, 1.5), (Rate::Medium, 0.7, 2.0), (Rate::High, 0.4, 4.0)] {
        let beside = hosts(State::Rebuilding(rate));
        println!("{rate:?}: {beside:?} of {optimal:?}");
        assert!(beside.iops > least * optimal.iops, "{rate:?}: {beside:?} of {optimal:?}");
        assert!(beside.us_p99 < most_p99 * optimal.us_p99, "{rate:?}: {beside:?} of {optimal:?}");
        rebuilt.push(beside.rebuilt_per_second);
    }
    assert!(rebuilt[0] > 0.0 && rebuilt.is_sorted(), "{rebuilt:?}");
}

/// A write that comes alone finds a piece of the rebuild at one of its drives now and then: it waits behind a part of it, which
/// takes no longer than such a write.
#[test]
fn a_lone_write_does_not_wait_behind_a_piece() {
    let filled = Rebuilds { depth: 1, ..small() }.fill().expect("modelled drives without faults do not fail");
    let p99 = |state| filled.hosts(Pattern::RANDOM_WRITE, state).expect("it has room").us_p99;
    let (optimal, beside) = (p99(State::Optimal), p99(State::Rebuilding(Rate::Medium)));
    println!("{beside} us, {optimal} us optimal");
    // Both as they are, since a ratio alone would forgive both becoming slower: 12.3 and 24.3.
    assert!(optimal < 13.0 && beside < 25.0, "{beside} us, {optimal} us optimal");
}
