//! Drives that are not as they were left: set back in time, beside older copies of themselves, with their ends overwritten. All
//! of it on copies.
//!
//! Laws: what is read was acknowledged last, or the read is refused; where the array says optimal, any loss within the redundancy
//! is survived at that moment. All drives set back to one instant are an older array, and outside of this; so is a drive that is
//! set back by one generation, which a crash leaves so, too: then only the first law holds.

use std::rc::Rc;
use std::time::Duration;

use api::{ArrayState, SeatState};
use array::parts::without_copies;
use array::{Array, RefusedCode};
use base::{BlockCount, MemberId, MemberLba};
use rand::RngExt;
use rand::seq::SliceRandom;
use rt::model::Disk;
use rt::{Drive, Rt};

use crate::census::newest_generation;
use crate::kind::Kind;
use crate::model::Mode;
use crate::probes::{BLOCK, is_optimal, read_some};
use crate::run::{DEGRADED, drain, set_to_work};
use crate::volumes::Volumes;
use crate::workload::Done;
use crate::world::{World, drives, labelled, open};

/// Times that are remembered.
const TIMES: usize = 3;

/// Virtual time for a rebuild.
const PATIENCE: Duration = Duration::from_secs(60);

/// Remembers the drives as they are.
pub fn remember(world: &mut World) {
    let now = world.forks();
    world.older.push_back(now);
    if world.older.len() > TIMES {
        world.older.pop_front();
    }
}

/// Copies of the drives at two times.
struct Times {
    /// Now: whole, and all in.
    disks: Vec<Disk>,
    /// Some of them before, and which.
    old: Vec<(usize, Disk)>,
    /// Whether these are behind by more than a crash leaves them.
    behind: bool,
    /// Whether each holds last what came into effect. A kill leaves half a generation on some drives, and the next open goes on
    /// from the one before it: then it cannot be told whether the copy was used without the others.
    ours: bool,
}

/// The drives now, and as many of them before.
fn before(world: &mut World, n: usize) -> Option<Times> {
    if world.older.is_empty() || !is_optimal(world) {
        return None;
    }
    let disks = world.forks();
    let newest = newest_generation(&disks)?;
    let time = world.dice.random_range(0..world.older.len());
    let mut which: Vec<usize> = (0..disks.len()).collect();
    which.shuffle(&mut world.dice);
    let mut old = Vec::new();
    let (mut behind, mut ours) = (true, true);
    for i in which {
        let Some(was) = world.older[time].iter().find(|d| d.name() == disks[i].name()) else { continue };
        let Some(last) = newest_generation(std::slice::from_ref(was)) else { continue };
        behind &= last.number.0 + 2 <= newest.number.0;
        ours &= newest.descends_from(last.id);
        old.push((i, was.fork()));
        if old.len() == n {
            return Some(Times { disks, old, behind, ours });
        }
    }
    None
}

/// Where it says optimal, what it is read from may lose as many drives as it promises.
fn optimal_is_true(world: &mut World, array: &Array, disks: &[Disk], volumes: &Volumes) -> Result<bool, String> {
    if array.status().state != ArrayState::Optimal {
        return Ok(false);
    }
    let mut left: Vec<Disk> = disks.iter().map(Disk::fork).collect();
    left.shuffle(&mut world.dice);
    left.truncate(disks.len().saturating_sub(world.plan.tolerates()).max(1));
    let rt = world.rt();
    let array = open(&rt, &left, DEGRADED);
    let array = array.map_err(|e| format!("it said optimal: {e}"))?;
    volumes.fork().compare(&rt, &array, Mode::Killed).map_err(|e| {
        format!(
            "it said optimal, and without {} of its drives: {e}: {:#?}",
            disks.len() - left.len(),
            array.status().events
        )
    })?;
    drop(array);
    rt.end();
    Ok(true)
}

/// Waits for full redundancy; true where it came, and is true.
fn until_optimal(world: &mut World, rt: &Rt, array: &Array, disks: &[Disk], volumes: &Volumes) -> Result<bool, String> {
    let until = rt.now() + PATIENCE;
    while rt.now() < until {
        if optimal_is_true(world, array, disks, volumes)? {
            return Ok(true);
        }
        rt.block_on(rt.sleep(Duration::from_secs(2)));
    }
    Ok(false)
}

/// Drives that the redundancy covers are set back: nothing is lost, and they come back by themselves.
pub fn set_back(world: &mut World, volumes: &Volumes, mode: Mode) -> Result<(), String> {
    let n = world.dice.random_range(1..=world.plan.tolerates());
    let Some(Times { mut disks, old, behind, ours }) = before(world, n) else { return Ok(()) };
    old.into_iter().for_each(|(i, disk)| disks[i] = disk);
    world.counts.add(Kind::SetBack, 1);
    let rt = world.rt();
    let array = open(&rt, &disks, DEGRADED);
    let array = array.map_err(|e| format!("open: {e}"))?;
    let mut volumes = volumes.fork();
    let events = |array: &Array| format!("{:#?}", array.status().events);
    volumes.compare(&rt, &array, mode).map_err(|e| format!("{e}: {}", events(&array)))?;
    let back = ours && behind;
    let whole = !back || until_optimal(world, &rt, &array, &disks, &volumes)?;
    let out = array.status().members.iter().any(|m| m.state.is_out());
    if (out && ours) || (!whole && !world.plan.filled) {
        return Err(format!("it did not come back: {}", events(&array)));
    }
    volumes.compare(&rt, &array, Mode::Killed).map_err(|e| format!("later: {e}: {}", events(&array)))
}

/// More than the redundancy covers, but not all: what is read is right, or refused.
pub fn beyond(world: &mut World, volumes: &Volumes, mode: Mode) -> Result<(), String> {
    let all = world.disks.len();
    if world.plan.tolerates() + 1 >= all {
        return Ok(());
    }
    let n = world.dice.random_range(world.plan.tolerates() + 1..all);
    let Some(Times { mut disks, old, .. }) = before(world, n) else { return Ok(()) };
    let newest = newest_generation(&disks).map(|g| g.id);
    old.into_iter().for_each(|(i, disk)| disks[i] = disk);
    if newest_generation(&disks).map(|g| g.id) != newest {
        // Only a spare is as it was: the others are an older array.
        return Ok(());
    }
    world.counts.add(Kind::SetBackBeyond, 1);
    let rt = world.rt();
    let opened = open(&rt, &disks, DEGRADED);
    match opened {
        Ok(array) => read_some(world, &rt, &array, &volumes.fork(), mode, true),
        Err(refused) if refused.code != RefusedCode::InUse => Ok(()),
        Err(refused) => Err(refused.to_string()),
    }
}

/// Older copies beside the drives, in any order: the drives count, or the open is refused.
pub fn copies(world: &mut World, volumes: &Volumes, mode: Mode) -> Result<(), String> {
    let n = world.dice.random_range(1..=world.disks.len());
    let Some(Times { disks, old, behind, ours }) = before(world, n) else { return Ok(()) };
    let mut all: Vec<Disk> = disks.into_iter().chain(old.into_iter().map(|(_, disk)| disk)).collect();
    all.shuffle(&mut world.dice);
    world.counts.add(Kind::OlderCopies, 1);
    let rt = world.rt();
    let handles = drives(&rt, &labelled(&rt, &all));
    let opened = rt.block_on(async {
        let (drives, notes) = without_copies(&rt, handles).await?;
        Ok((Array::open(&rt, drives, DEGRADED).await?, notes))
    });
    match opened {
        Ok((array, notes)) if notes.len() == n => volumes.fork().compare(&rt, &array, mode),
        Ok((_, notes)) => Err(format!("of {n} copies it says {notes:?}")),
        Err(array::Refused { code: RefusedCode::Diverged, .. }) if !behind || !ours => Ok(()),
        Err(refused) => Err(refused.to_string()),
    }
}

/// A drive is set back under a running array: hosts read right, it goes out, and comes back.
pub fn in_use(world: &mut World, volumes: &Volumes, mode: Mode) -> Result<(), String> {
    if !is_optimal(world) {
        return Ok(());
    }
    let disks = world.forks();
    let rt = world.rt();
    let array = open(&rt, &disks, DEGRADED);
    let array = array.map_err(|e| format!("open: {e}"))?;
    let mut volumes = volumes.fork();
    volumes.compare(&rt, &array, mode)?;
    let done = Rc::new(Done::default());
    let hosts = world.dice.random_range(1..4);
    set_to_work(world, &rt, &array, &volumes, None, hosts, &done);
    let which = world.dice.random_range(0..disks.len());
    let (old, then) = (disks[which].fork(), array.status().generation);
    for _ in 0..world.dice.random_range(1..4) {
        rt.block_on(rt.sleep(Duration::from_micros(1 << world.dice.random_range(0..14))));
        let _may_be_full = rt.block_on(array.checkpoint());
    }
    let in_effect = array.status().generation;
    world.counts.add(Kind::SetBackInUse, 1);
    let blocks = old.params().bytes / BLOCK;
    for at in (0..blocks).step_by(1024) {
        let n = BlockCount(1024.min(blocks - at));
        disks[which].image_write(MemberLba(at), &old.image_read(MemberLba(at), n));
    }
    rt.block_on(rt.sleep(Duration::from_micros(1 << world.dice.random_range(0..14))));
    drain(&rt, &done)?;
    if let Some(wrong) = done.wrong.take() {
        return Err(wrong);
    }
    let events = |array: &Array| format!("{:#?}", array.status().events);
    volumes.compare(&rt, &array, Mode::Killed).map_err(|e| format!("{e}: {}", events(&array)))?;
    if then == in_effect {
        return Ok(());
    }
    rt.block_on(rt.sleep(Duration::from_secs(15)));
    let name = disks[which].name();
    let seat = array.status().members.iter().find(|m| m.drive_name == name).map(|m| (m.member, m.state));
    if matches!(seat, None | Some((_, SeatState::Spare))) {
        // A spare holds no generation; or another has its place by now.
        return optimal_is_true(world, &array, &disks, &volumes).map(drop);
    }
    let Some((seat, true)) = seat.map(|(seat, state)| (seat, state.is_out())) else {
        return Err(format!("{name} was set back, and is {seat:?}: {}", events(&array)));
    };
    let drive = Drive::modelled(&rt, &disks[which]);
    let back = rt.block_on(array.drive_back(MemberId(seat), drive));
    match back {
        Ok(()) => {}
        // A spare was quicker.
        Err(refused) if refused.code == RefusedCode::InUse => {
            return optimal_is_true(world, &array, &disks, &volumes).map(drop);
        }
        Err(refused) => return Err(format!("{refused}: {}", events(&array))),
    }
    if !until_optimal(world, &rt, &array, &disks, &volumes)? && !world.plan.filled {
        return Err(format!("it did not come back: {}", events(&array)));
    }
    volumes.compare(&rt, &array, Mode::Killed)
}

/// The ends of any drives are overwritten: nothing is lost.
pub fn ends(world: &mut World, volumes: &Volumes, mode: Mode) -> Result<(), String> {
    if !is_optimal(world) {
        return Ok(());
    }
    let disks = world.forks();
    for disk in &disks {
        if world.dice.random_range(0..3) == 0 {
            continue;
        }
        let first: u64 = [1, 5, 256][world.dice.random_range(0..3)];
        let junk = crate::spoil::junk(&mut world.dice, first);
        disk.image_write(MemberLba(0), &junk);
        disk.image_write(MemberLba(disk.params().bytes / BLOCK - 1), &junk[..BLOCK as usize]);
    }
    world.counts.add(Kind::EndsOverwritten, 1);
    let rt = world.rt();
    // One whose generations are not both whole is not known without its labels.
    let here = labelled(&rt, &disks);
    if here.len() + world.plan.tolerates() < disks.len() {
        return Ok(());
    }
    let array = open(&rt, &here, DEGRADED);
    let array = array.map_err(|e| format!("open: {e}"))?;
    let mut volumes = volumes.fork();
    volumes.compare(&rt, &array, mode)?;
    drop(array);
    rt.end();
    let rt = world.rt();
    if here.iter().any(|disk| {
        !matches!(rt.block_on(array::inspect(&Drive::modelled(&rt, disk))).labels[0], array::inspect::Found::Valid(_))
    }) {
        return Err("a label was not mended".to_owned());
    }
    Ok(())
}
