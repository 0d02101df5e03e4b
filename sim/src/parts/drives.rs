//! What happens to the drives of an array in parts: lost in all parts or in one, failed, replaced, added; always within the
//! redundancy of every part.
//!
//! Invariant: one drive joins or leaves at a time; what its process did not bring to its end the next open finishes.

use std::collections::BTreeSet;
use std::time::Duration;

use api::{MemberView, SeatState};
use array::{Array, Refused, Whole};
use base::MemberId;
use rand::RngExt;
use rt::model::{Disk, OpKind, Verdict};
use rt::{Drive, IoError, Rt};

use super::Scene;
use super::life::Running;
use super::open::{Opened, slices};
use crate::kind::Kind;

/// How a drive joins, or goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// In the place of the drive that has, or had, this seat in the first part.
    InPlaceOf(MemberId),
    AsSpare,
    ToGrow,
    /// That with this seat goes for good.
    Leaves(MemberId),
}

/// More drives than this have no part in it.
const DRIVES_MAX: usize = 8;

/// Longest that is waited for a member to go out.
const OUT_WITHIN: Duration = Duration::from_secs(3);

/// Sometimes a drive is disturbed.
pub fn disturb(scene: &mut Scene, rt: &Rt, running: &mut Running) -> Result<(), String> {
    let attached = scene.world.disks.iter().all(Disk::is_attached);
    let sound = attached && running.array.is_optimal() && !running.drive_verb.get();
    let may_lose = scene.plan.array.tolerates();
    match scene.world.dice.random_range(0..14) {
        0 if scene.world.plan.has(Kind::DrivePulled) && sound => {
            for _ in 0..scene.world.dice.random_range(0..=may_lose) {
                one_of(scene).detach();
                scene.world.counts.add(Kind::DrivePulled, 1);
            }
        }
        1 if scene.world.plan.has(Kind::SliceErrs) && sound && may_lose > 0 => err_in_one_part(scene, rt, running)?,
        2 if scene.world.plan.has(Kind::DriveFailed) && sound && may_lose > 0 => fail(scene, rt, running)?,
        3..=7 => begin(scene, rt, running),
        _ => {}
    }
    Ok(())
}

fn one_of(scene: &mut Scene) -> Disk {
    let disks = &scene.world.disks;
    disks[scene.world.dice.random_range(0..disks.len())].clone()
}

/// The seat of a drive in the first part.
fn seat(array: &Opened, drive: &str) -> Option<MemberId> {
    let members = array.parts[0].status().members.into_iter().filter(|m| m.drive_name == drive);
    members.min_by_key(|m| m.state.is_out()).map(|m| MemberId(m.member))
}

fn fail(scene: &mut Scene, rt: &Rt, running: &Running) -> Result<(), String> {
    let disk = one_of(scene);
    let Some(seat) = seat(&running.array, disk.name()) else { return Ok(()) };
    if rt.block_on(running.array.whole.drive_fail(seat)).is_ok() {
        scene.world.counts.add(Kind::DriveFailed, 1);
        out_everywhere(&running.array, disk.name())?;
    }
    Ok(())
}

fn out_everywhere(array: &Opened, drive: &str) -> Result<(), String> {
    let seats = array.seats(drive);
    if seats.iter().any(|seat| matches!(seat, Some(SeatState::In | SeatState::Leaving))) {
        return Err(format!("drive {drive} should be out in all parts, and is {seats:?}"));
    }
    Ok(())
}

/// A drive fails what is written to one part. It goes out there; then, when that is shared, everywhere.
fn err_in_one_part(scene: &mut Scene, rt: &Rt, running: &mut Running) -> Result<(), String> {
    let disk = one_of(scene);
    if seat(&running.array, disk.name()).is_none() {
        return Ok(());
    }
    let index = scene.world.dice.random_range(0..scene.plan.parts);
    let (from, blocks) = slices(&disk, scene.plan.parts).range(index);
    disk.on_op(Some(Box::new(move |op| match op.kind {
        OpKind::Write if op.at >= from && op.at < from + blocks => Verdict::Fail(IoError::Os(5)),
        OpKind::Read | OpKind::Write | OpKind::Flush | OpKind::Deallocate => Verdict::Proceed,
    })));
    running.share_losses(rt)?;
    let (part, until) = (running.array.parts[usize::from(index)].clone(), rt.now() + OUT_WITHIN);
    let is_out = |array: &Opened| array.seats(disk.name())[usize::from(index)].is_some_and(SeatState::is_out);
    while !is_out(&running.array) && rt.now() < until {
        rt.spawn({
            let part = part.clone();
            async move { part.checkpoint().await }
        })
        .detach();
        rt.block_on(rt.sleep(Duration::from_millis(20)));
    }
    if !is_out(&running.array) {
        return Ok(());
    }
    scene.world.counts.add(Kind::SliceErrs, 1);
    let elsewhere = running.array.seats(disk.name()).iter().filter(|s| **s == Some(SeatState::In)).count();
    if !scene.world.chance(Kind::LossShared, 2) || running.drive_verb.get() {
        return Ok(());
    }
    running.share_losses(rt)?;
    scene.world.counts.add(Kind::LossShared, u64::from(elsewhere > 0));
    out_everywhere(&running.array, disk.name())
}

/// What is to be done with a drive.
fn choose(scene: &mut Scene, array: &Opened) -> Option<(Kind, How)> {
    let attached = scene.world.disks.iter().all(Disk::is_attached);
    let names: Vec<String> = scene.world.disks.iter().map(|d| d.name().to_owned()).collect();
    let is_out = |name: &&String| array.seats(name).iter().flatten().any(|state| state.is_out());
    let out = names.iter().filter(is_out).find_map(|name| seat(array, name));
    let few = names.len() < DRIVES_MAX;
    let optimal = attached && array.is_optimal();
    let spares = names.iter().any(|name| array.seats(name).contains(&Some(SeatState::Spare)));
    let some = one_of(scene);
    let has = |kind| scene.plan.array.has(kind);
    match scene.world.dice.random_range(0..8) {
        0..=3 if has(Kind::DriveReplaced) => Some((Kind::DriveReplaced, How::InPlaceOf(out?))),
        4 if has(Kind::DriveCopied) && optimal => Some((Kind::DriveCopied, How::InPlaceOf(seat(array, some.name())?))),
        5 if has(Kind::SpareAdded) && scene.plan.array.tolerates() > 0 && few && !spares => {
            Some((Kind::SpareAdded, How::AsSpare))
        }
        6 if has(Kind::DriveGrown) && few && optimal => Some((Kind::DriveGrown, How::ToGrow)),
        7 if has(Kind::DriveRetired) && optimal => Some((Kind::DriveRetired, How::Leaves(seat(array, some.name())?))),
        _ => None,
    }
}

/// A drive begins to join or to leave, unless one is at it already.
pub fn begin(scene: &mut Scene, rt: &Rt, running: &Running) {
    // A modelled drive cannot go to another core.
    if running.drive_verb.get() || running.submitted {
        return;
    }
    let Some((kind, how)) = choose(scene, &running.array) else { return };
    let whole = running.array.whole.clone();
    scene.world.counts.add(kind, 1);
    let under_way = running.drive_verb.clone();
    under_way.set(true);
    let newcomer = (!matches!(how, How::Leaves(_))).then(|| scene.world.new_disk());
    scene.world.disks.extend(newcomer.clone());
    *running.newcomer.borrow_mut() = newcomer.as_ref().map(|disk| disk.name().to_owned());
    let drive = newcomer.map(|disk| Drive::modelled(rt, &disk));
    // It may be refused: the others are too few, or it, or they, are pulled meanwhile.
    let verb = async move {
        drop(do_to(&whole, how, drive).await);
        under_way.set(false);
    };
    rt.spawn(verb).detach();
}

async fn do_to(whole: &Whole, how: How, drive: Option<Drive>) -> Result<(), Refused> {
    match (how, drive) {
        (How::InPlaceOf(seat), Some(drive)) => whole.drive_replace(seat, drive, false).await,
        (How::AsSpare, Some(drive)) => whole.drive_add_spare(drive, false).await,
        (How::ToGrow, Some(drive)) => whole.drive_grow(drive, false).await,
        (How::Leaves(seat), _) => whole.drive_retire(seat).await,
        (How::InPlaceOf(_) | How::AsSpare | How::ToGrow, None) => Ok(()),
    }
}

/// What each part has: the drives that are in, or may be.
fn here(array: &Opened) -> Vec<BTreeSet<String>> {
    let is_here = |m: &MemberView| matches!(m.state, SeatState::In | SeatState::Spare | SeatState::Leaving);
    let of_part = |part: &Array| part.status().members.into_iter().filter(is_here).map(|m| m.drive_name).collect();
    array.parts.iter().map(of_part).collect()
}

/// All parts have the same drives.
pub fn are_alike(array: &Opened) -> Result<(), String> {
    let here = here(array);
    if here.iter().all(|part| *part == here[0]) {
        return Ok(());
    }
    Err(format!("the parts have different drives: {here:?}"))
}

/// After an open: what was half done to a drive is finished.
pub fn finish(scene: &mut Scene, rt: &Rt, running: &Running, opened: &[Disk]) -> Result<(), String> {
    let before = here(&running.array);
    let drives = crate::world::drives(rt, opened);
    let refusals = rt.block_on(running.array.whole.finish(&drives)).map_err(|e| format!("finish: {e}"))?;
    if scene.talk {
        refusals.iter().for_each(|refusal| println!("  {refusal}"));
    }
    running.refused.set(!refusals.is_empty());
    let finished = before != here(&running.array);
    scene.world.counts.add(Kind::JoinFinished, u64::from(finished && refusals.is_empty()));
    Ok(())
}

/// Takes drives away that no part knows any more.
pub fn tidy(scene: &mut Scene, running: &Running) {
    if !running.drive_verb.get() {
        let array = &running.array;
        scene.world.disks.retain(|disk| array.seats(disk.name()).iter().any(Option::is_some));
    }
}

/// Takes away a drive or more while no process runs, when the last one left it whole.
pub fn take_before_open(scene: &mut Scene) {
    let may_lose = scene.plan.array.tolerates();
    if may_lose == 0 || !scene.whole || !scene.world.chance(Kind::MissingAtOpen, 2) {
        return;
    }
    for _ in 0..scene.world.dice.random_range(1..=may_lose) {
        one_of(scene).detach();
        scene.world.counts.add(Kind::MissingAtOpen, 1);
    }
}
