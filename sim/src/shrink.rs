//! A failing plan made smaller: faults, rounds, hosts, time and volumes are taken away as long as it still fails.

use crate::kind::Kind;
use crate::plan::{Plan, Round};

/// Plans a little smaller than `plan`, the largest cuts first.
fn smaller(plan: &Plan) -> Vec<Plan> {
    let mut found: Vec<Plan> = Vec::new();
    let mut with = |change: &dyn Fn(&mut Plan)| {
        let mut next = plan.clone();
        change(&mut next);
        if next != *plan && !next.rounds.is_empty() {
            found.push(next);
        }
    };
    let half = plan.rounds.len() / 2;
    with(&|p| p.rounds.truncate(half));
    with(&|p| _ = p.rounds.drain(..half));
    for i in 0..plan.rounds.len() {
        with(&|p| _ = p.rounds.remove(i));
    }
    for &kind in Kind::ALL {
        with(&|p| _ = p.faults.remove(&kind));
    }
    with(&|p| p.rotten = 0);
    with(&|p| p.volumes = 1);
    with(&|p| p.volatile_cache = false);
    with(&|p| p.jitter = 0.0);
    for i in 0..plan.rounds.len() {
        with(&|p| p.rounds[i] = Round { hosts: p.rounds[i].hosts.div_ceil(2), ..p.rounds[i].clone() });
        with(&|p| p.rounds[i] = Round { millis: p.rounds[i].millis.div_ceil(2), ..p.rounds[i].clone() });
    }
    found
}

/// The smallest plan found that still fails, in at most `tries` tries.
pub fn shrink(plan: &Plan, mut tries: usize, fails: impl Fn(&Plan) -> bool) -> Plan {
    let mut best = plan.clone();
    'again: loop {
        for next in smaller(&best) {
            if tries == 0 {
                return best;
            }
            tries -= 1;
            if fails(&next) {
                best = next;
                continue 'again;
            }
        }
        return best;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_matter_goes() {
        let plan =
            (0..).map(Plan::of).find(|p| p.has(Kind::SlowDrive) && p.rounds.len() > 3).expect("one in two has it");
        let least = shrink(&plan, 1000, |p| p.has(Kind::SlowDrive));
        assert_eq!((least.faults.len(), least.rounds.len(), least.volumes), (1, 1, 1));
        assert_eq!((least.rounds[0].hosts, least.rounds[0].millis), (1, 1));
    }
}
