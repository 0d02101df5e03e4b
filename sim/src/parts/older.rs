//! Drives of an array in parts that are not as they were left, between two lives: set back in time, beside older copies of
//! themselves, with their ends overwritten. All of it on copies, by dice of its own: the world's course stays what it is.
//!
//! Laws: those of [`crate::older`], for every part. A drive is one of several parts, and may be behind in one and not in another.

use std::time::Duration;

use api::{ArrayState, SeatState};
use array::parts::without_copies;
use array::{Array, RefusedCode, parts};
use base::{BlockCount, MemberLba};
use ondisk::{Generation, Label};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rt::Rt;
use rt::model::Disk;

use super::open::{Opened, open, slices};
use super::volumes::Volumes;
use super::{Scene, judge};
use crate::kind::Kind;
use crate::model::Mode;
use crate::plan::Dice;
use crate::probes::BLOCK;
use crate::run::DEGRADED;
use crate::world::drives;

/// Times that are remembered.
const TIMES: usize = 3;

/// One of so many, when the plan has it.
const ONE_OF: u32 = 2;

/// Virtual time for a rebuild.
const PATIENCE: Duration = Duration::from_secs(60);

/// Tries what the plan has, and remembers the drives as they are.
pub fn try_on_copies(scene: &mut Scene, life: usize, mode: Mode) -> Result<(), String> {
    let seed = scene.plan.array.seed ^ (life as u64) << 32 ^ 0x6f6c_6465;
    let aside = scene.world.set_aside(Dice::seed_from_u64(seed));
    let tried = try_all(scene, mode);
    let now = scene.world.forks();
    scene.world.older.push_back(now);
    if scene.world.older.len() > TIMES {
        scene.world.older.pop_front();
    }
    scene.world.take_up(aside);
    tried
}

fn try_all(scene: &mut Scene, mode: Mode) -> Result<(), String> {
    let chosen: Vec<Kind> =
        Kind::TRIED_IN_PARTS.iter().copied().filter(|kind| scene.world.chance(*kind, ONE_OF)).collect();
    if chosen.is_empty() || !is_optimal(scene) {
        return Ok(());
    }
    for kind in chosen {
        let tried = match kind {
            Kind::SetBack => set_back(scene, mode),
            Kind::OlderCopies => copies(scene, mode),
            _ => ends(scene, mode),
        };
        tried.map_err(|e| format!("{kind:?}: {e}"))?;
    }
    Ok(())
}

/// Copies of the drives at two times.
struct Times {
    /// Now: whole, and all in.
    disks: Vec<Disk>,
    /// Some of them before, and which.
    old: Vec<(usize, Disk)>,
    /// Whether these are behind in every part by more than a crash leaves them.
    behind: bool,
    /// Whether each was in every part the member that it is now (it may have joined a part anew since), and holds last what came
    /// into effect there.
    ours: bool,
}

/// The label of a drive's slice.
fn label_of(disk: &Disk, parts: u8, index: u8) -> Option<Label> {
    let (from, blocks) = slices(disk, parts).range(index);
    let ends = [from, MemberLba(from.0 + blocks.0 - 1)];
    ends.iter().find_map(|at| Label::decode(&disk.image_read(*at, BlockCount(1))).ok())
}

/// The newest generation of a drive's slice.
fn newest_of(disk: &Disk, parts: u8, index: u8) -> Option<Generation> {
    let (from, _) = slices(disk, parts).range(index);
    let read = |at: MemberLba, n: BlockCount| disk.image_read(MemberLba(from.0 + at.0), n);
    let layout = label_of(disk, parts, index)?.layout;
    let in_slot = |slot: usize| {
        let bytes = Generation::total_bytes(&read(layout.slot(slot), BlockCount(1))).ok()?;
        let blocks = BlockCount::ceil_from_bytes(bytes as u64).min(BlockCount(u64::from(layout.slot_blocks)));
        Generation::decode(&read(layout.slot(slot), blocks)).ok()
    };
    [0, 1].into_iter().filter_map(in_slot).max_by_key(|g| (g.number, g.epoch))
}

/// The newest generation of a part on any of `disks`.
fn newest<'a>(disks: impl Iterator<Item = &'a Disk>, parts: u8, index: u8) -> Option<Generation> {
    disks.filter_map(|disk| newest_of(disk, parts, index)).max_by_key(|g| (g.number, g.epoch))
}

/// The drives now, and as many of them before.
fn before(scene: &mut Scene, n: usize) -> Option<Times> {
    let world = &mut scene.world;
    if world.older.is_empty() {
        return None;
    }
    let disks = world.forks();
    let time = world.dice.random_range(0..world.older.len());
    let mut which: Vec<usize> = (0..disks.len()).collect();
    which.shuffle(&mut world.dice);
    let was = |i: usize| world.older[time].iter().find(|d| d.name() == disks[i].name());
    let old: Vec<(usize, Disk)> = which.into_iter().filter_map(|i| was(i).map(|was| (i, was.fork()))).take(n).collect();
    if old.len() < n {
        return None;
    }
    let (mut behind, mut ours) = (true, true);
    for index in 0..scene.plan.parts {
        let stays = |(i, _): &(usize, &Disk)| old.len() == disks.len() || old.iter().all(|(o, _)| o != i);
        let others = disks.iter().enumerate().filter(stays).map(|(_, disk)| disk);
        let all = newest(disks.iter(), scene.plan.parts, index)?;
        let others = newest(others, scene.plan.parts, index)?;
        let member = |disk: &Disk| label_of(disk, scene.plan.parts, index).map(|l| l.member);
        for (i, was) in &old {
            let last = newest_of(was, scene.plan.parts, index)?;
            ours &= member(was) == member(&disks[*i]);
            behind &= last.number.0 + 2 <= others.number.0;
            ours &= all.descends_from(last.id);
        }
    }
    Some(Times { disks, old, behind, ours })
}

/// Whether every part is whole, with all drives, and was before this look.
fn is_optimal(scene: &mut Scene) -> bool {
    let (parts, disks) = (scene.plan.parts, scene.world.forks());
    for index in 0..parts {
        let Some(newest) = newest(disks.iter(), parts, index) else { return false };
        let behind = |disk: &Disk| newest_of(disk, parts, index).is_some_and(|g| g.number.0 + 1 < newest.number.0);
        if newest.members.iter().any(|m| m.state == ondisk::MemberState::Out) || disks.iter().any(behind) {
            return false;
        }
    }
    let rt = scene.world.rt();
    let Ok(array) = put_together(&rt, rt.block_on(open(&rt, &disks)), &disks) else { return false };
    let all_known = disks.iter().flat_map(|disk| array.seats(disk.name())).all(|seat| seat.is_some());
    let optimal = array.is_optimal() && all_known && array.count(SeatState::Leaving) == 0;
    drop(array);
    rt.end();
    optimal
}

/// What a server does after an open.
fn put_together(rt: &Rt, opened: Result<Vec<Array>, array::Refused>, disks: &[Disk]) -> Result<Opened, String> {
    let parts = opened.map_err(|e| format!("open: {e}"))?;
    let array = rt.block_on(Opened::of(rt, parts, false)).map_err(|e| format!("put together: {e}"))?;
    judge::parts_agree(&array)?;
    rt.block_on(array.whole.finish(&drives(rt, disks))).map_err(|e| format!("finish: {e}"))?;
    Ok(array)
}

fn told(array: &Opened) -> String {
    format!("{:#?}", array.parts.iter().map(|part| part.status().events).collect::<Vec<_>>())
}

fn compare(rt: &Rt, array: &Opened, volumes: &Volumes, mode: Mode) -> Result<Volumes, String> {
    let mut found = volumes.fork();
    judge::compare(rt, array, &mut found, mode).map_err(|e| format!("{e}: {}", told(array)))?;
    Ok(found)
}

/// Where it says optimal, what it is read from may lose as many drives as it promises.
fn optimal_is_true(scene: &mut Scene, disks: &[Disk], volumes: &Volumes) -> Result<(), String> {
    let mut left: Vec<Disk> = disks.iter().map(Disk::fork).collect();
    left.shuffle(&mut scene.world.dice);
    left.truncate(disks.len().saturating_sub(scene.plan.array.tolerates()).max(1));
    let rt = scene.world.rt();
    let lacking = |e: String| format!("it said optimal; without {} of its drives: {e}", disks.len() - left.len());
    let array = put_together(&rt, rt.block_on(open(&rt, &left)), &left).map_err(lacking)?;
    compare(&rt, &array, volumes, Mode::Killed).map_err(lacking)?;
    drop(array);
    rt.end();
    Ok(())
}

/// Drives that the redundancy covers are set back: nothing is lost, and they come back by themselves.
fn set_back(scene: &mut Scene, mode: Mode) -> Result<(), String> {
    let may_lose = scene.plan.array.tolerates();
    if may_lose == 0 {
        return Ok(());
    }
    let n = scene.world.dice.random_range(1..=may_lose);
    let Some(Times { mut disks, old, behind, ours }) = before(scene, n) else { return Ok(()) };
    let names: Vec<String> = old.iter().map(|(_, disk)| disk.name().to_owned()).collect();
    old.into_iter().for_each(|(i, disk)| disks[i] = disk);
    scene.world.counts.add(Kind::SetBack, 1);
    let rt = scene.world.rt();
    let array = put_together(&rt, rt.block_on(open(&rt, &disks)), &disks)?;
    let volumes = compare(&rt, &array, &scene.volumes, mode)?;
    if ours && behind {
        let until = rt.now() + PATIENCE;
        while !array.is_optimal() {
            if rt.now() > until {
                return Err(format!("{names:?} did not come back: {}", told(&array)));
            }
            rt.block_on(rt.sleep(Duration::from_millis(100)));
        }
        optimal_is_true(scene, &disks, &volumes)?;
    }
    let out = array.count_out();
    if out > 0 && ours {
        return Err(format!("{names:?} did not come back: {}", told(&array)));
    }
    compare(&rt, &array, &volumes, Mode::Killed).map_err(|e| format!("later: {e}"))?;
    drop(array);
    rt.end();
    Ok(())
}

/// Older copies beside the drives, in any order: the drives count, or the open is refused.
fn copies(scene: &mut Scene, mode: Mode) -> Result<(), String> {
    let n = scene.world.dice.random_range(1..=scene.world.disks.len());
    let Some(Times { disks, old, behind, ours }) = before(scene, n) else { return Ok(()) };
    let mut all: Vec<Disk> = disks.iter().cloned().chain(old.into_iter().map(|(_, disk)| disk)).collect();
    all.shuffle(&mut scene.world.dice);
    scene.world.counts.add(Kind::OlderCopies, 1);
    let rt = scene.world.rt();
    let handles = drives(&rt, &all);
    let opened = rt.block_on(async {
        let (drives, notes) = without_copies(&rt, handles).await?;
        Ok((parts::open(&rt, drives, DEGRADED).await?, notes))
    });
    match opened {
        Ok((parts, notes)) if notes.len() == n => {
            let array = put_together(&rt, Ok(parts), &disks)?;
            compare(&rt, &array, &scene.volumes, mode)?;
            drop(array);
            rt.end();
            Ok(())
        }
        Ok((_, notes)) => Err(format!("of {n} copies it says {notes:?}")),
        Err(array::Refused { code: RefusedCode::Diverged, .. }) if !behind || !ours => Ok(()),
        Err(refused) => Err(refused.to_string()),
    }
}

/// The ends of any drives are overwritten: nothing is lost, and labels are mended.
fn ends(scene: &mut Scene, mode: Mode) -> Result<(), String> {
    let disks = scene.world.forks();
    let places = |disk: &Disk| [MemberLba(0), MemberLba(disk.params().bytes / BLOCK - 1)];
    for disk in &disks {
        if scene.world.dice.random_range(0..3) == 0 {
            continue;
        }
        let first: u64 = [1, 5, 256][scene.world.dice.random_range(0..3)];
        let junk = crate::spoil::junk(&mut scene.world.dice, first);
        let [begin, end] = places(disk);
        disk.image_write(begin, &junk);
        disk.image_write(end, &junk[..BLOCK as usize]);
    }
    scene.world.counts.add(Kind::EndsOverwritten, 1);
    let rt = scene.world.rt();
    let array = put_together(&rt, rt.block_on(open(&rt, &disks)), &disks)?;
    compare(&rt, &array, &scene.volumes, mode)?;
    if array.parts.iter().any(|part| part.state() != ArrayState::Optimal) {
        return Err(format!("it is not whole: {}", told(&array)));
    }
    let has_label = |disk: &Disk, at: MemberLba| Label::decode(&disk.image_read(at, BlockCount(1))).is_ok();
    let bare = disks.iter().find(|disk| places(disk).iter().any(|at| !has_label(disk, *at)));
    if let Some(disk) = bare {
        let (name, seats) = (disk.name(), array.seats(disk.name()));
        return Err(format!("a label of {name}, which is {seats:?}, was not mended: {}", told(&array)));
    }
    drop(array);
    rt.end();
    Ok(())
}
