//! A generation that lands on one drive when the process that wrote it has ended, and the next one is at work.

use api::{ArrayState, ArrayView, SeatState};
use ondisk::{Generation, Label, MemberState};
use rand::RngExt;
use rt::model::Disk;

use crate::census::{label, newest_generation};
use crate::kind::Kind;
use crate::run::DEGRADED;
use crate::world::{World, open};

/// The process at work goes on, and so does whoever opens the array when it has ended too: nobody went on from what landed.
pub fn generation(world: &mut World) -> Result<(), String> {
    if !crate::probes::is_optimal(world) {
        return Ok(());
    }
    let ended = world.forks();
    let rt = world.rt();
    // Of its first generation the next one knows nothing at all.
    let first = world.dice.random_range(0..2) == 0;
    let before: Vec<Disk> = ended.iter().map(Disk::fork).collect();
    let array = open(&rt, &ended, DEGRADED).map_err(|e| e.to_string())?;
    let disks: Vec<Disk> = if first { before } else { ended.iter().map(Disk::fork).collect() };
    disks.iter().for_each(|d| d.crash(world.dice.random()));
    let written = first || rt.block_on(array.volume_create("late", 1 << 20)).is_ok();
    drop(array);
    rt.end();
    let late = newest_generation(&ended).filter(|_| written).ok_or("no generation was written")?;

    let rt = world.rt();
    let array = open(&rt, &disks, DEGRADED).map_err(|e| e.to_string())?;
    let before = array.status();
    if late.number.0 > before.generation + 1 || before.state == ArrayState::Frozen {
        // It wrote more than one: that one took effect.
        return Ok(());
    }
    world.counts.add(Kind::LateGeneration, 1);
    let which = world.dice.random_range(0..disks.len());
    land(&disks[which], &late);
    if let Err(e) = rt.block_on(array.volume_create("next", 1 << 20))
        && array.status().state == ArrayState::Frozen
    {
        return Err(format!("{e}: {:#?}", array.status().events));
    }
    drop(array);
    rt.end();
    disks.iter().for_each(|d| d.crash(world.dice.random()));

    if disks.len() > 1 {
        // (On a drive of its own it would take the only copy of what is in effect.)
        land(&disks[which], &late);
    }
    let rt = world.rt();
    let opened = open(&rt, &disks, DEGRADED);
    let array = opened.map_err(|e| format!("open: {e}"))?;
    let status = array.status();
    let is_in =
        |status: &ArrayView, seat: u16| status.members.iter().any(|m| m.member == seat && m.state == SeatState::In);
    let lost = before.members.iter().find(|m| is_in(&before, m.member) && !is_in(&status, m.member));
    if lost.is_some() || status.state == ArrayState::Frozen || array.volume("late").is_some() {
        return Err(format!("after the next, seat {:?} lost: {:#?}", lost.map(|m| m.member), status.events));
    }
    Ok(())
}

/// Writes a generation where it lies on a drive that it marks in.
pub fn land(disk: &Disk, g: &Generation) {
    let seat = |l: &Label| g.members.get(usize::from(l.seat.0)).filter(|m| m.uuid == l.member).map(|m| m.state);
    let has_it = |l: &Label| matches!(seat(l), Some(MemberState::In | MemberState::Spare));
    if let Some(label) = label(disk).filter(has_it) {
        disk.image_write(label.layout.slot((g.number.0 % 2) as usize), &g.encode());
    }
}
