//! An array in parts: several lives of one, with hosts whose requests reach several parts, and verbs on all of them.
//!
//! ```text
//! seed -> plan -> world (drives) -> create -> lives: check, try on copies, open, put together, compare, work and disturb, end
//! ```
//!
//! Invariants: all parts are on the one modelled runtime; drives are lost within the redundancy of every part; the same
//! seed gives the same trace.
//!
//! Not here: what rots or lies (a part is an engine like any other: [`crate::run`]); threads (`tests/rules`, e2e).

mod drives;
mod end;
mod heal;
mod host;
mod judge;
mod life;
mod namespace;
mod older;
mod open;
mod plan;
mod volumes;

pub use namespace::{PART_NOT_FLUSHED, plant_part_not_flushed};

use array::canary::Canary;
use array::{Whole, parts};

use crate::model::Mode;
use crate::plan::End;
use crate::report::Report;
use crate::world::{World, drives as handles};
use open::Opened;
use plan::{Life, Plan};
use volumes::Volumes;

/// Planted bugs that these seeds notice, and those of arrays in one piece do not.
pub const CANARIES: &[Canary] = &[
    Canary::FirstPartFirst,
    Canary::LeftInParts,
    Canary::TakenBackUnasked,
    Canary::LossKeptToPart,
    Canary::PartsUnfinished,
];

/// What one seed is made of, beside the drives.
pub(crate) struct Scene {
    pub(crate) plan: Plan,
    pub(crate) world: World,
    pub(crate) volumes: Volumes,
    /// Whether the last life ended with an array that had all its redundancy, handed over in order.
    pub(crate) whole: bool,
    /// Whether this is the last life.
    pub(crate) is_last: bool,
    /// Whether it tells what happens.
    pub(crate) talk: bool,
}

/// Runs a seed; the error says what was wrong.
///
/// # Errors
/// When the array lost, lied or refused.
pub fn run(seed: u64, talk: bool) -> Result<Report, String> {
    let plan = Plan::of(seed);
    let mut report = Report { seeds: 1, ..Report::default() };
    if talk {
        println!("seed {seed}: {}", plan.describe());
    }
    let world = World::new(plan.array.clone());
    let mut scene = Scene { plan, world, volumes: Volumes::default(), whole: true, is_last: false, talk };
    create(&mut scene)?;
    let mut mode = Mode::Killed;
    let end_in = plan::EndIn::Anywhere;
    let last = Life { hosts: 1, millis: 2, end: End::Close, end_in, submitted: false, heals: true };
    // What one open cannot finish, since redundancy is lacking still, the next one does.
    let last = [last.clone(), last];
    let lives: Vec<Life> = scene.plan.lives.iter().cloned().chain(last).collect();
    for (i, life) in lives.iter().enumerate() {
        if talk {
            println!("life {i}: {life:?}");
        }
        judge::check_cold(&mut scene).map_err(|e| format!("check before life {i}: {e}"))?;
        older::try_on_copies(&mut scene, i, mode).map_err(|e| format!("before life {i}: {e}"))?;
        scene.is_last = i + 1 == lives.len();
        mode = life::live(&mut scene, life, mode, &mut report).map_err(|e| format!("life {i}: {e}"))?;
    }
    judge::check_cold(&mut scene).map_err(|e| format!("last check: {e}"))?;
    report.faults.add_all(&scene.world.counts);
    Ok(report)
}

fn create(scene: &mut Scene) -> Result<(), String> {
    let rt = scene.world.rt();
    let (spec, parts, disks) = (scene.plan.array.spec(), scene.plan.parts, scene.world.disks.clone());
    let sizes: Vec<u64> =
        (0..scene.plan.array.volumes).map(|_| scene.plan.volume_bytes(&mut scene.world.dice)).collect();
    let (volumes, round) = (&mut scene.volumes, scene.plan.round_bytes());
    rt.block_on(async {
        let made = parts::create(&rt, handles(&rt, &disks), &spec, parts).await.map_err(|e| e.to_string())?;
        let array = Opened::of(&rt, made, false).await.map_err(|e| e.to_string())?;
        for (i, bytes) in sizes.into_iter().enumerate() {
            let name = format!("v{i}");
            array.whole.volume_create(&name, bytes).await.map_err(|e| e.to_string())?;
            volumes.add(&name, bytes.next_multiple_of(round), crate::volumes::Fate::Stays);
        }
        Whole::close(array.whole).await.map_err(|e| e.to_string())
    })?;
    rt.end();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_repeated_to_the_letter() {
        for seed in 0..2 {
            let traces = [run(seed, false), run(seed, false)].map(|r| r.map(|r| (r.trace, r.requests)));
            assert!(traces[0].is_ok() && traces[0] == traces[1], "seed {seed}: {traces:?}");
        }
    }
}
