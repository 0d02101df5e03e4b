//! What a user does until an array in parts is whole again: replaces what `status` says is out, by the seat it says.
//!
//! Invariant: whatever lives the array has had, and however its parts differ, that is enough.

use std::time::Duration;

use api::{MemberView, SeatState};
use array::{Array, RefusedCode};
use base::MemberId;
use futures::future::select;
use rt::{Drive, Rt};

use super::life::Running;
use super::{Scene, drives};
use crate::kind::Kind;

/// More drives than this are never out.
const ROUNDS: usize = 12;

/// A rebuild of such small drives takes no longer.
const REBUILT_WITHIN: Duration = Duration::from_secs(60);

/// Brings every part to its full redundancy.
pub fn heal(scene: &mut Scene, rt: &Rt, running: &Running) -> Result<(), String> {
    for _ in 0..ROUNDS {
        let rebuilt = Box::pin(running.array.whole.rebuild_done());
        rt.block_on(select(rebuilt, Box::pin(rt.sleep(REBUILT_WITHIN))));
        rt.block_on(rt.sleep(Duration::from_secs(1)));
        if running.array.is_optimal() {
            // A part that said that it cannot let a drive go keeps it.
            return if scene.is_last && !running.refused.get() { drives::are_alike(&running.array) } else { Ok(()) };
        }
        let status = rt.block_on(running.array.whole.status()).map_err(|e| e.to_string())?;
        let out = |m: &&MemberView| m.state.is_out();
        match status.members.iter().find(out) {
            Some(member) => replace(scene, rt, running, member)?,
            None => rt.block_on(rt.sleep(REBUILT_WITHIN)),
        }
    }
    let line = |m: MemberView| format!("{} (seat {}) {:?}", m.drive_name, m.member, m.state);
    let of_part = |part: &Array| (part.state(), part.status().members.into_iter().map(line).collect::<Vec<_>>());
    let parts: Vec<_> = running.array.parts.iter().map(of_part).collect();
    Err(format!("it does not become whole again: {parts:?}"))
}

fn replace(scene: &mut Scene, rt: &Rt, running: &Running, member: &MemberView) -> Result<(), String> {
    let leaving = || running.array.count(SeatState::Leaving);
    let leaving_before = leaving();
    let fresh = scene.world.new_disk();
    scene.world.disks.push(fresh.clone());
    let whole = &running.array.whole;
    let with = || Drive::modelled(rt, &fresh);
    let replaced = match rt.block_on(whole.drive_replace(MemberId(member.member), with(), false)) {
        // Another has its place in every part, and still a segment of more columns than there are drives lacks one.
        Err(refused) if matches!(refused.code, RefusedCode::InUse | RefusedCode::NotFound) => {
            rt.block_on(whole.drive_grow(with(), false))
        }
        other => other,
    };
    let named = |what: String| {
        format!("{} (seat {}, {:?}) is replaced: {what}", member.drive_name, member.member, member.state)
    };
    replaced.map_err(|refused| named(refused.to_string()))?;
    scene.world.counts.add(Kind::DriveReplaced, 1);
    let in_somewhere = running.array.seats(&member.drive_name).contains(&Some(SeatState::Leaving));
    if leaving() > leaving_before && !in_somewhere {
        return Err(named("another drive leaves".to_owned()));
    }
    Ok(())
}
