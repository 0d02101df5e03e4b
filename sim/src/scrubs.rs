//! Scrubs: what rots on copies of the drives is found, each block of it, and right again byte for byte.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use api::{ArrayState, ScrubKind, ScrubRunView};
use array::{Array, Fault, ScrubPlan};
use base::{BLOCK_BYTES, BlockCount, MemberLba};
use ondisk::{Label, MemberState, Scheme, SegmentState};
use rand::RngExt;
use rt::Rt;
use rt::model::{Disk, Op, OpKind, Verdict};

use crate::census::{Census, Spot, in_slot, newest_generation};
use crate::kind::Kind;
use crate::lives::delay;
use crate::model::Mode;
use crate::probes::read_block;
use crate::run::set_to_work;
use crate::spoil::flip;
use crate::volumes::Volumes;
use crate::workload::Done;
use crate::world::{World, labelled, open_degraded};

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

/// Runs a scrub to its end.
fn scrub(rt: &Rt, array: &Array, kind: ScrubKind) -> Result<ScrubRunView, String> {
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
    let array = open_degraded(&rt, &disks)?;
    volumes.fork().compare(&rt, &array, mode)?;
    rt.block_on(rt.sleep(Duration::from_secs(1)));
    rt.block_on(array.checkpoint()).map_err(|e| e.to_string())?;
    // On drives that may go bad something may be wrong already.
    let clean = scrub(&rt, &array, ScrubKind::Parity)?;
    let names = world.rotten.clone();
    let strange = clean.found.iter().find(|f| f.lost > 0 || f.not_held > 0 || !names.contains(&f.drive_name));
    if let Some(found) = strange {
        return Err(format!("within the redundancy, and it found {found:?}: {:#?}", array.status().events));
    }
    let kind = if world.dice.random_range(0..2) == 0 { ScrubKind::Media } else { ScrubKind::Parity };
    let first = world.dice.random_range(0..disks.len());
    let members = newest_generation(&disks).map_or_else(Vec::new, |g| g.members);
    let seated = |i: usize| {
        let label = label_of(&disks[i]);
        let seat = label.and_then(|l| members.get(usize::from(l.seat.0)).map(|m| m.state));
        seat == Some(MemberState::In)
    };
    let rotting: BTreeSet<usize> =
        (0..world.plan.tolerates()).map(|n| (first + n) % disks.len()).filter(|i| seated(*i)).collect();
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
    a_place_fails(world, &rt, &array, &disks, &blocks)
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
    let Some(newest) = newest_generation(disks) else { return Err("no generation is left".to_owned()) };
    for disk in disks {
        let Some(label) = label_of(disk) else { return Err(format!("{} has no label", disk.name())) };
        if newest.members.get(usize::from(label.seat.0)).is_none_or(|m| m.state != MemberState::In) {
            continue;
        }
        for slot in 0..2 {
            match in_slot(disk, &label, slot) {
                Some(g) => _ = seen.insert((g.number.0, g.id)),
                None => return Err(format!("slot {slot} of {} holds no generation", disk.name())),
            }
        }
    }
    if seen.len() == 2 { Ok(()) } else { Err(format!("{} different generations", seen.len())) }
}

/// While hosts are at work a scrub finds nothing where nothing rots, and nobody waits for ever.
pub fn under_load(world: &mut World, volumes: &Volumes, mode: Mode) -> Result<(), String> {
    let mut volumes = volumes.fork();
    let rt = world.rt();
    let disks = labelled(&rt, &world.forks());
    let array = open_degraded(&rt, &disks)?;
    volumes.compare(&rt, &array, mode)?;
    let done = Rc::new(Done::default());
    set_to_work(world, &rt, &array, &volumes, None, 6, &done);
    world.counts.add(Kind::ScrubUnderLoad, 1);
    // Records are complete on some members long before they are on others.
    delay(world, &disks, OpKind::Write, 20_000_000);
    for _ in 0..4 {
        let kind = if world.dice.random_range(0..2) == 0 { ScrubKind::Media } else { ScrubKind::Parity };
        rt.block_on(array.scrub_stop());
        array.scrub_start(kind, world.dice.random_range(0..2) == 0).map_err(|e| e.to_string())?;
        let long = 1u64 << world.dice.random_range(12..21);
        rt.block_on(rt.sleep(Duration::from_micros(world.dice.random_range(1..long))));
        nothing_found(&array)?;
    }
    // Once to the end: the segments being written come last.
    scrub(&rt, &array, ScrubKind::Parity)?;
    nothing_found(&array)?;
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

/// A place does not hold what is written there: the scrub says so.
fn a_place_fails(world: &mut World, rt: &Rt, array: &Array, disks: &[Disk], blocks: &[Spot]) -> Result<(), String> {
    let spot = blocks[world.dice.random_range(0..blocks.len())];
    let (disk, at) = spot;
    flip(world, disks, spot);
    let lose = move |op: &Op| {
        let there = op.kind == OpKind::Write && (op.at.0..op.at.0 + op.blocks.0).contains(&at.0);
        if there { Verdict::LoseWrite } else { Verdict::Proceed }
    };
    disks[disk].on_op(Some(Box::new(lose)));
    let moved = array.moved_blocks();
    let run = scrub(rt, array, ScrubKind::Parity)?;
    disks[disk].on_op(None);
    let not_held: u64 = run.found.iter().map(|f| f.not_held).sum();
    if not_held == 1 || array.moved_blocks() != moved {
        return Ok(());
    }
    Err(format!("block {at} of {} cannot be written, and it found {:?}", disks[disk].name(), run.found))
}

/// Blocks of volumes that cannot be read.
fn unreadable(rt: &Rt, array: &Array, volumes: &Volumes) -> BTreeSet<(String, u64)> {
    let mut found = BTreeSet::new();
    for held in volumes.sure() {
        let bytes = array.volume(&held.name).map_or(0, |v| v.bytes());
        for at in (0..bytes).step_by(BLOCK_BYTES) {
            if read_block(rt, array, &held.name, at) == Err(Fault::Medium) {
                found.insert((held.name.clone(), at));
            }
        }
    }
    found
}

/// A row rots beyond the redundancy: what a scrub could not repair is an error for good, whatever the drives say later.
pub fn loses(world: &mut World, volumes: &Volumes) -> Result<(), String> {
    if !crate::probes::is_optimal(world) {
        return Ok(());
    }
    let disks = world.forks();
    let rt = world.rt();
    let array = open_degraded(&rt, &disks)?;
    rt.block_on(rt.sleep(Duration::from_secs(1)));
    rt.block_on(array.checkpoint()).map_err(|e| e.to_string())?;
    let census = Census::take(&disks);
    let counted: BTreeSet<Spot> = written(&disks).into_iter().map(|w| w.spot).collect();
    let live: BTreeSet<Spot> = census.of(Kind::RotData).iter().copied().filter(|s| counted.contains(s)).collect();
    // Rows behind the header's, in which a live block lies.
    let rows = census.records.iter().flat_map(|r| (1..r.rows).map(move |n| (r, u64::from(n))));
    let rows: Vec<Vec<Spot>> = rows
        .map(|(r, n)| r.columns.iter().map(|(d, at)| (*d, MemberLba(at.0 + n))).collect::<Vec<Spot>>())
        .filter(|row| row.iter().any(|spot| live.contains(spot)))
        .collect();
    if rows.is_empty() {
        return Ok(());
    }
    let row = &rows[world.dice.random_range(0..rows.len())];
    let before: Vec<Vec<u8>> = row.iter().map(|(d, at)| disks[*d].image_read(*at, BlockCount(1))).collect();
    row.iter().for_each(|spot| flip(world, &disks, *spot));
    world.counts.add(Kind::ScrubLoses, 1);
    let run = scrub(&rt, &array, ScrubKind::Media)?;
    let lost: u64 = run.found.iter().map(|f| f.lost).sum();
    let failing = unreadable(&rt, &array, volumes);
    if array.moved_blocks() > 0 {
        return Ok(());
    }
    if lost == 0 {
        return Err(format!("a row is lost, and it found {:?}", run.found));
    }
    if failing.is_empty() {
        // Deallocated since, or of a volume that is gone.
        return Ok(());
    }
    rt.block_on(array.checkpoint()).map_err(|e| e.to_string())?;
    drop(array);
    rt.end();
    for (disk, _) in disks.iter().zip(0..) {
        disk.crash(world.dice.random());
    }
    for ((disk, at), old) in row.iter().zip(before) {
        disks[*disk].image_write(*at, &old);
    }
    let rt = world.rt();
    let array = open_degraded(&rt, &disks)?;
    let later = unreadable(&rt, &array, volumes);
    if later == failing {
        return Ok(());
    }
    Err(format!("{} blocks were lost, and after a restart {}", failing.len(), later.len()))
}

/// The process dies in the middle of a slow scrub: the next one goes on with it.
pub fn resumes(world: &mut World) -> Result<(), String> {
    let rt = world.rt();
    let disks = labelled(&rt, &world.forks());
    let array = open_degraded(&rt, &disks)?;
    rt.block_on(array.scrub_stop());
    let slow = ScrubPlan { bytes_per_second: Some(256 << 10), ..ScrubPlan::default() };
    rt.block_on(array.scrub_schedule(slow)).map_err(|e| e.to_string())?;
    let kind = if world.dice.random_range(0..2) == 0 { ScrubKind::Media } else { ScrubKind::Parity };
    // One that is due by itself may have begun since.
    if array.status().scrub.running.is_none() {
        array.scrub_start(kind, false).map_err(|e| e.to_string())?;
    }
    // The system areas come first.
    let mut run = None;
    for _ in 0..600 {
        rt.block_on(rt.sleep(Duration::from_secs(1)));
        run = array.status().scrub.running;
        if run.as_ref().is_none_or(|run| run.segments_done > 0) {
            break;
        }
    }
    let Some(run) = run.filter(|run| run.segments_done > 0 && run.segments_done < run.segments_total) else {
        return Ok(());
    };
    rt.block_on(array.checkpoint()).map_err(|e| e.to_string())?;
    drop(array);
    rt.end();
    world.counts.add(Kind::ScrubResumes, 1);
    let cut = world.dice.random_range(0..2) == 0;
    let end = |d: &Disk, seed| if cut { d.power_cut(seed) } else { d.crash(seed) };
    disks.iter().for_each(|d| end(d, world.dice.random()));
    let rt = world.rt();
    let array = open_degraded(&rt, &disks)?;
    rt.block_on(rt.sleep(Duration::from_millis(100)));
    let status = array.status();
    if status.state == ArrayState::Frozen || status.events.iter().any(|e| e.text.contains("resumes at segment")) {
        return Ok(());
    }
    Err(format!("it began anew after {run:?}: {:#?}", status.events))
}
