//! Whether the recovery body can fail: bugs planted in the engine are noticed by the inputs that the encoders make.

use std::panic::{AssertUnwindSafe, catch_unwind};

use array::canary::{Canary, plant};
use bodies::{recovery, seeds};

#[test]
fn planted_bugs_are_noticed() {
    let seeds = seeds::recovery();
    // The scenes are made before anything is planted.
    seeds.iter().for_each(|(_, input)| recovery::body(input));
    let bugs = [Canary::ChecksumIgnored, Canary::EpochForgotten, Canary::TornAccepted];
    for bug in bugs {
        plant(Some(bug));
        let noticed = seeds.iter().filter(|(_, input)| {
            let run = AssertUnwindSafe(|| recovery::body(input));
            catch_unwind(run).is_err()
        });
        let noticed = noticed.count();
        plant(None);
        assert!(noticed > 0, "nothing was wrong with {bug:?} planted");
    }
}
