//! Scrubs: what rots on copies of the drives is found, each block of it, and right again byte for byte.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use array::{Array, ArrayState, ScrubKind, ScrubRun};
use base::{BLOCK_BYTES, BlockCount, MemberLba};
use ondisk::{Generation, Label, Scheme, SegmentState};
use rand::RngExt;
use rt::Rt;
use rt::model::Disk;

use crate::census::{Spot, newest_generation};
use crate::kind::Kind;
use crate::model::Mode;
use crate::run::{DEGRADED, set_to_work};
use crate::spoil::flip;
use crate::volumes::Volumes;
use crate::workload::Done;
use crate::world::{World, drives};

/// Virtual time in which a scrub has come to its end.
const PATIENCE: Duration = Duration::from_secs(600);

/// A block of a segment in use, below its cut.
#[derive(Clone, Copy)]
struct Written {
    spot: Spot,
    /// Only a look at the redundancy tells whether it is right.
    parity: bool,
}

fn label_of(disk: &Disk) -> Option<Label> {
    Label::decode(&disk.image_read(MemberLba(0), BlockCount(1))).ok()
}

/// Every block that somebody wrote and that the newest generation counts.
fn written(disks: &[Disk]) -> Vec<Written> {
    let Some(g) = newest_generation(disks) else { return Vec::new() };
    let labels: Vec<Option<Label>> = disks.iter().map(label_of).collect();
    let mut found = Vec::new();
    for s in g.segments.iter().filter(|s| s.state != SegmentState::Spare) {
        for (c, slot) in s.slots.iter().enumerate() {
            let Some((member, zone)) = *slot else { continue };
            let uuid = g.members[usize::from(member.0)].uuid;
            let here = |l: &Option<Label>| l.as_ref().is_some_and(|l| l.member == uuid);
            let Some(disk) = labels.iter().position(here) else { continue };
            let layout = labels[disk].as_ref().expect("just looked at").layout;
            let parity = c >= s.scheme.k() && matches!(s.scheme, Scheme::Parity { .. });
            let rows = (0..s.rows).map(|row| Written { spot: (disk, layout.zone_row(zone, row)), parity });
            found.extend(rows);
        }
    }
    found
}

fn open(world: &mut World, rt: &Rt, disks: &[Disk]) -> Result<Array, String> {
    let opened = rt.block_on(Array::open(rt, drives(rt, disks), DEGRADED)).map_err(|e| format!("open: {e}"))?;
    let _ = world;
    Ok(opened)
}

/// Runs a scrub to its end.
fn scrub(rt: &Rt, array: &Array, kind: ScrubKind) -> Result<ScrubRun, String> {
    rt.block_on(array.scrub_stop());
    array.scrub_start(kind, true).map_err(|e| e.to_string())?;
    let by = array.clone();
    let done = rt.spawn(async move { by.scrub_done().await });
    let until = rt.now() + PATIENCE;
    while !done.is_finished() {
        if rt.now() > until {
            return Err(format!("the scrub did not end: {:?}", array.status().scrub));
        }
        rt.block_on(rt.sleep(Duration::from_millis(20)));
    }
    array.status().scrub.last.filter(|run| run.finished).ok_or_else(|| "the scrub did not come to its end".to_owned())
}

/// As many drives rot as the redundancy covers, in many places of every kind: a scrub finds each, and afterwards the
/// drives hold what they held.
pub fn finds(world: &mut World, volumes: &Volumes, mode: Mode) -> Result<(), String> {
    if !crate::probes::is_optimal(world) {
        return Ok(());
    }
    let disks = world.forks();
    let rt = world.rt();
    let array = open(world, &rt, &disks)?;
    volumes.fork().compare(&rt, &array, mode)?;
    rt.block_on(rt.sleep(Duration::from_secs(1)));
    rt.block_on(array.checkpoint()).map_err(|e| e.to_string())?;
    let clean = scrub(&rt, &array, ScrubKind::Parity)?;
    if !clean.found.is_empty() {
        return Err(format!("nothing rots, and it found {:?}", clean.found));
    }
    let kind = if world.dice.random_range(0..2) == 0 { ScrubKind::Media } else { ScrubKind::Parity };
    let first = world.dice.random_range(0..disks.len());
    let rotting: BTreeSet<usize> = (0..world.plan.tolerates()).map(|n| (first + n) % disks.len()).collect();
    let blocks: Vec<Spot> = written(&disks)
        .into_iter()
        .filter(|w| rotting.contains(&w.spot.0) && (kind == ScrubKind::Parity || !w.parity))
        .map(|w| w.spot)
        .collect();
    if blocks.is_empty() {
        return Ok(());
    }
    let before: Vec<Disk> = disks.iter().map(Disk::fork).collect();
    let mut planted = plant(world, &disks, &before, &blocks);
    planted.extend(plant_labels(world, &disks, &rotting));
    let slot = plant_slot(world, &disks, &rotting);
    let moved = array.moved_blocks();
    world.counts.add(Kind::ScrubFinds, planted.len() as u64);
    let run = scrub(&rt, &array, kind)?;
    let found: u64 = run.found.iter().map(|f| f.found).sum();
    let repaired: u64 = run.found.iter().map(|f| f.repaired).sum();
    if array.moved_blocks() != moved {
        // The cleaner was there first.
        return Ok(());
    }
    for &(disk, at) in &planted {
        if disks[disk].image_read(at, BlockCount(1)) != before[disk].image_read(at, BlockCount(1)) {
            let events = array.status().events;
            return Err(format!(
                "block {at} of {} is still wrong after a {kind:?} scrub: {events:#?}",
                disks[disk].name()
            ));
        }
    }
    let wanted = planted.len() as u64 + u64::from(slot.is_some());
    if found != wanted || repaired != wanted {
        return Err(format!("{wanted} blocks were wrong, {found} were found, {repaired} repaired: {:?}", run.found));
    }
    generations_are_whole(&disks)?;
    let again = scrub(&rt, &array, ScrubKind::Parity)?;
    if !again.found.is_empty() {
        return Err(format!("the next scrub found {:?}", again.found));
    }
    Ok(())
}

/// Flipped bits, writes that did not land, writes that landed elsewhere.
fn plant(world: &mut World, disks: &[Disk], before: &[Disk], blocks: &[Spot]) -> BTreeSet<Spot> {
    let mut planted = BTreeSet::new();
    for _ in 0..world.dice.random_range(1..40) {
        let spot = blocks[world.dice.random_range(0..blocks.len())];
        if !planted.insert(spot) {
            continue;
        }
        let (disk, at) = spot;
        let old = before[disk].image_read(at, BlockCount(1));
        match world.dice.random_range(0..3) {
            0 => flip(world, disks, spot),
            1 => disks[disk].image_write(at, &vec![0; BLOCK_BYTES]),
            _ => {
                let elsewhere = blocks[world.dice.random_range(0..blocks.len())];
                let theirs = before[elsewhere.0].image_read(elsewhere.1, BlockCount(1));
                disks[disk].image_write(at, &theirs);
            }
        }
        if disks[disk].image_read(at, BlockCount(1)) == old {
            planted.remove(&spot);
        }
    }
    planted
}

/// One of a drive's labels.
fn plant_labels(world: &mut World, disks: &[Disk], rotting: &BTreeSet<usize>) -> Vec<Spot> {
    let mut planted = Vec::new();
    for &disk in rotting {
        let Some(label) = label_of(&disks[disk]) else { continue };
        if world.dice.random_range(0..2) == 0 {
            let spot = (disk, label.layout.labels()[world.dice.random_range(0..2)]);
            flip(world, disks, spot);
            planted.push(spot);
        }
    }
    planted
}

/// The newest generation of one drive: what the scrub's own commits do not write over.
fn plant_slot(world: &mut World, disks: &[Disk], rotting: &BTreeSet<usize>) -> Option<Spot> {
    let disk = *rotting.first()?;
    let newest = newest_generation(disks)?.number.0;
    // The scrub begins with a commit: it writes over the older one.
    let spot = (disk, label_of(&disks[disk])?.layout.slot((newest % 2) as usize));
    flip(world, disks, spot);
    Some(spot)
}

/// Both generations of every drive can be read, and are everybody's.
fn generations_are_whole(disks: &[Disk]) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for disk in disks {
        let Some(label) = label_of(disk) else { return Err(format!("{} has no label", disk.name())) };
        for slot in 0..2 {
            let at = label.layout.slot(slot);
            let image = disk.image_read(at, BlockCount(u64::from(label.layout.slot_blocks)));
            match Generation::decode(&image) {
                Ok(g) => _ = seen.insert((g.number.0, g.id)),
                Err(e) => return Err(format!("slot {slot} of {}: {e}", disk.name())),
            }
        }
    }
    if seen.len() == 2 { Ok(()) } else { Err(format!("{} different generations", seen.len())) }
}

/// While hosts are at work a scrub finds nothing where nothing rots, and nobody waits for ever.
pub fn under_load(world: &mut World, volumes: &Volumes, mode: Mode) -> Result<(), String> {
    let mut volumes = volumes.fork();
    let disks = world.forks();
    let rt = world.rt();
    let array = open(world, &rt, &disks)?;
    volumes.compare(&rt, &array, mode)?;
    let done = Rc::new(Done::default());
    set_to_work(world, &rt, &array, &volumes, None, 6, &done);
    world.counts.add(Kind::ScrubUnderLoad, 1);
    for _ in 0..4 {
        let kind = if world.dice.random_range(0..2) == 0 { ScrubKind::Media } else { ScrubKind::Parity };
        rt.block_on(array.scrub_stop());
        array.scrub_start(kind, world.dice.random_range(0..2) == 0).map_err(|e| e.to_string())?;
        let long = 1u64 << world.dice.random_range(5..17);
        rt.block_on(rt.sleep(Duration::from_micros(world.dice.random_range(1..long))));
        nothing_found(&array)?;
    }
    crate::run::drain(&rt, &done)?;
    let status = array.status();
    if status.state == ArrayState::Optimal {
        let run = scrub(&rt, &array, ScrubKind::Parity)?;
        if !run.found.is_empty() {
            return Err(format!("nothing rots, and it found {:?}: {:#?}", run.found, array.status().events));
        }
    }
    done.wrong.take().map_or(Ok(()), Err)
}

/// Where nothing rots, no scrub of this open found anything.
pub fn nothing_found(array: &Array) -> Result<(), String> {
    let status = array.status();
    let runs = status.scrub.running.iter().chain(&status.scrub.last);
    match runs.flat_map(|run| &run.found).next() {
        None => Ok(()),
        Some(found) => Err(format!("nothing rots, and a scrub found {found:?}: {:#?}", status.events)),
    }
}

/// Sometimes a scrub is started or stopped.
pub fn disturb(world: &mut World, rt: &Rt, array: &Array) {
    if !world.chance(Kind::Scrubbed, 4) {
        return;
    }
    match world.dice.random_range(0..6) {
        0 => _ = rt.block_on(array.scrub_stop()),
        n => {
            let kind = if n < 3 { ScrubKind::Media } else { ScrubKind::Parity };
            if array.scrub_start(kind, n != 5).is_ok() {
                world.counts.add(Kind::Scrubbed, 1);
            }
        }
    }
}
