//! What happens to the drives of an array in parts: lost in all parts or in one, failed, replaced, added; always within the
//! redundancy of every part.
//!
//! Invariant: one drive joins or leaves at a time, and is brought to its end by the same command when its process has ended.

use std::time::Duration;

use array::{Refused, RefusedCode, SeatState, Whole};
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

/// A drive that joins.
#[derive(Clone)]
pub struct Joining {
    how: How,
    disk: Disk,
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
    members.min_by_key(|m| m.state == SeatState::Out).map(|m| MemberId(m.seat))
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
    let is_out = |array: &Opened| array.seats(disk.name())[usize::from(index)] == Some(SeatState::Out);
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
    let is_out = |name: &&String| array.seats(name).contains(&Some(SeatState::Out));
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
    if running.drive_verb.get() || running.by_letters || scene.joining.is_some() {
        return;
    }
    let Some((kind, how)) = choose(scene, &running.array) else { return };
    let whole = running.array.whole.clone();
    scene.world.counts.add(kind, 1);
    let (under_way, joined) = (running.drive_verb.clone(), running.joined.clone());
    under_way.set(true);
    joined.set(false);
    if let How::Leaves(seat) = how {
        // It may be refused: the others are too few, or lack room.
        let verb = async move {
            drop(whole.drive_retire(seat).await);
            under_way.set(false);
        };
        return rt.spawn(verb).detach();
    }
    let disk = scene.world.new_disk();
    scene.world.disks.push(disk.clone());
    let joining = Joining { how, disk };
    scene.joining = Some(joining.clone());
    let joins = join(rt, whole, &joining);
    let verb = async move {
        joined.set(joins.await.is_ok());
        under_way.set(false);
    };
    rt.spawn(verb).detach();
}

fn join(rt: &Rt, whole: Whole, joining: &Joining) -> impl Future<Output = Result<(), Refused>> + use<> {
    let (drive, how) = (Drive::modelled(rt, &joining.disk), joining.how);
    async move {
        match how {
            How::InPlaceOf(seat) => whole.drive_replace(seat, drive, true).await,
            How::AsSpare => whole.drive_add_spare(drive, true).await,
            How::ToGrow => whole.drive_grow(drive, true).await,
            How::Leaves(_) => Ok(()),
        }
    }
}

/// After a drive verb ended, or at the beginning of a life: what came of it, and drives that nobody has any more.
pub fn tidy(scene: &mut Scene, rt: &Rt, running: &Running) -> Result<(), String> {
    if running.drive_verb.get() {
        return Ok(());
    }
    if let Some(joining) = scene.joining.clone() {
        let name = joining.disk.name().to_owned();
        let has = |seat: &Option<SeatState>| seat.is_some_and(|seat| seat != SeatState::Out);
        let within: Vec<bool> = running.array.seats(&name).iter().map(has).collect();
        let (any, all) = (within.contains(&true), !within.contains(&false));
        if running.joined.replace(false) || all || !any {
            scene.joining = None;
        } else if !running.by_letters {
            let whole = running.array.whole.clone();
            let again = match rt.block_on(join(rt, whole.clone(), &joining)) {
                // A spare has taken the place meanwhile where it was missing.
                Err(refused) if refused.code == RefusedCode::InUse => {
                    rt.block_on(join(rt, whole, &Joining { how: How::AsSpare, disk: joining.disk.clone() }))
                }
                other => other,
            };
            again.map_err(|refused| format!("{:?} of {name} again, which is in {within:?}: {refused}", joining.how))?;
            scene.world.counts.add(Kind::JoinFinished, 1);
            scene.joining = None;
        }
    }
    let joining = scene.joining.as_ref().map(|joining| joining.disk.name().to_owned());
    let array = &running.array;
    // One that is out everywhere stays, until another has its place: it may be back, with what it has.
    let place_taken = |name: &str| array.seats(name).iter().all(Option::is_none);
    scene.world.disks.retain(|disk| Some(disk.name()) == joining.as_deref() || !place_taken(disk.name()));
    Ok(())
}

/// Takes away a drive or more while no process runs, when the last one left it whole.
pub fn take_before_open(scene: &mut Scene) {
    let may_lose = scene.plan.array.tolerates();
    if may_lose == 0 || !scene.whole || scene.joining.is_some() || !scene.world.chance(Kind::MissingAtOpen, 2) {
        return;
    }
    for _ in 0..scene.world.dice.random_range(1..=may_lose) {
        one_of(scene).detach();
        scene.world.counts.add(Kind::MissingAtOpen, 1);
    }
}
