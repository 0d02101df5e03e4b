//! Damage and loss beyond the redundancy, on copies of the drives. Data may be lost then; it must never be wrong, nothing
//! else may be lost with it, and nothing may panic.

use std::collections::BTreeSet;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use api::{ArrayState, SeatState};
use array::{Array, Fault, OpenHow, RowPlace};
use base::{BLOCK_BYTES, BlockCount, MemberId, MemberLba};
use futures::future::{Either, select};
use ondisk::{Generation, Scheme, Segment};
use rand::RngExt;
use rt::model::{Disk, Fault as DriveFault};
use rt::{Bytes, Drive, Rt};

use crate::census::{Census, RecordSpots, Spot, generations, in_slot, label};
use crate::kind::Kind;
use crate::model::Mode;
use crate::probes::{BLOCK, read_block, read_some};
use crate::report::Report;
use crate::run::{DEGRADED, set_to_work};
use crate::spoil::{ROT, flip};
use crate::volumes::Volumes;
use crate::workload::Done;
use crate::world::{World, labelled, open, open_degraded};

/// Blocks of a volume looked at.
const LOOKED_AT: u64 = 400;

/// Rot anywhere; after a rebuild that had no redundancy left, if `rebuild`.
pub fn rot(world: &mut World, volumes: &Volumes, report: &mut Report, rebuild: bool) -> Result<(), String> {
    let (sound, rotted) = (world.forks(), world.forks());
    let census = Census::take(&rotted);
    // A rebuild spreads what is wrong over more rows: a little is enough.
    let most = if rebuild { 8 } else { 60 };
    let mut unreadable: BTreeSet<Spot> = BTreeSet::new();
    for _ in 0..world.dice.random_range(1..most) {
        let kind = ROT[world.dice.random_range(0..ROT.len())];
        let spots = census.of(kind);
        if spots.is_empty() || (rebuild && matches!(kind, Kind::RotSlot | Kind::RotLabel)) {
            continue;
        }
        let spot = spots[world.dice.random_range(0..spots.len())];
        if rebuild && world.dice.random_range(0..4) > 0 {
            rotted[spot.0].set_fault(DriveFault::BadBlocks { at: spot.1, blocks: BlockCount(1) });
            unreadable.insert(spot);
        } else {
            flip(world, &rotted, spot);
        }
        world.counts.add(if rebuild { Kind::RotInRebuild } else { Kind::RotBeyond }, 1);
    }
    let was: Vec<Disk> = rotted.iter().map(Disk::fork).collect();
    let rt = world.rt();
    let how = OpenHow { read_only: true, ..DEGRADED };
    let right = open(&rt, &sound, how).map_err(|e| e.to_string())?;
    let how = if rebuild { DEGRADED } else { how };
    let harmed = match open(&rt, &rotted, how) {
        Ok(array) => array,
        Err(_) => {
            report.refused += 1;
            return Ok(());
        }
    };
    // Its newest generation is gone from every drive; or its last records are: behind the durable row that cannot be
    // told from what a power cut tore.
    let same = rebuild || right.status().generation == harmed.status().generation;
    // One that was torn before is taken for lost where a drive of it is gone.
    let replayed = |array: &Array| (array.recovery().replayed_records, array.recovery().replayed_entries);
    if !same || replayed(&right) != replayed(&harmed) {
        report.refused += 1;
        return Ok(());
    }
    let seats: Vec<(String, u16)> = right.status().members.iter().map(|m| (m.drive_name.clone(), m.member)).collect();
    // A drive whose labels or generations are spoilt is not there at all.
    let here = harmed.status().members;
    let mut gone: BTreeSet<u16> = here.iter().filter(|m| m.state != SeatState::In).map(|m| m.member).collect();
    let mut whole_again = false;
    if rebuild {
        let replaced = exchange(world, &rt, &harmed);
        whole_again = harmed.status().state == ArrayState::Optimal && !replaced.is_empty();
        if whole_again {
            // What could be made whole survives another one.
            let other = rotted.iter().find(|d| seat_of(&seats, d.name()).is_some_and(|seat| !replaced.contains(&seat)));
            other.iter().for_each(|d| d.detach());
        }
        gone.extend(replaced);
    }
    let rotten = |(member, at): (MemberId, MemberLba)| -> bool {
        let name = seats.iter().find(|(_, seat)| *seat == member.0).map(|(name, _)| name);
        let disk = name.and_then(|name| sound.iter().position(|d| d.name() == name));
        disk.is_none_or(|d| {
            let block = |disks: &[Disk]| disks[d].image_read(at, BlockCount(1));
            unreadable.contains(&(d, at)) || block(&sound) != block(&was)
        })
    };
    let spoilt = |place: (MemberId, MemberLba)| gone.contains(&place.0.0) || rotten(place);
    let mut lost: BTreeSet<(String, u64)> = BTreeSet::new();
    for held in volumes.all.iter() {
        let name = &held.name;
        let Some(volume) = right.volume(name) else { continue };
        let blocks = volume.bytes() / BLOCK;
        for i in 0..LOOKED_AT.min(blocks) {
            let at = if blocks <= LOOKED_AT { i } else { world.dice.random_range(0..blocks) } * BLOCK;
            let expected = read_block(&rt, &right, name, at).map_err(|e| format!("{name} at {at}, unharmed: {e}"))?;
            match read_block(&rt, &harmed, name, at) {
                Ok(found) if found == expected => {}
                Ok(_) => return Err(format!("{name} at {at}: wrong data")),
                // The newest records are unreadable: everything is refused, old data could show.
                Err(Fault::Frozen) => return Ok(()),
                Err(Fault::Medium) => {
                    let located = rt.block_on(volume.locate(at)).map_err(|e| format!("{name} at {at}: {e}"))?;
                    let rows = located.map.iter().chain(&located.data);
                    let was_rotten = |row: &RowPlace| row.columns.iter().flatten().any(|&place| rotten(place));
                    let fair = |row| if whole_again { was_rotten(row) } else { beyond_repair(row, &spoilt) };
                    if !rows.clone().any(fair) {
                        return Err(format!("{name} at {at} reads as lost, but {located:?} is not"));
                    }
                    report.lost_blocks += 1;
                    lost.insert((name.clone(), at));
                }
                Err(other) => return Err(format!("{name} at {at}: {other}")),
            }
        }
    }
    drop(harmed);
    if !rebuild {
        live_on(world, &rt, &right, &rotted, &lost)?;
    }
    rt.end();
    Ok(())
}

fn seat_of(seats: &[(String, u16)], name: &str) -> Option<u16> {
    seats.iter().find(|(n, _)| n == name).map(|(_, seat)| *seat)
}

/// Replaces as many members as the redundancy covers and waits for the rebuild; their seats.
fn exchange(world: &mut World, rt: &Rt, array: &Array) -> Vec<u16> {
    let members = array.status().members;
    let mut gone = Vec::new();
    while gone.len() < world.plan.tolerates() {
        let seat = members[world.dice.random_range(0..members.len())].member;
        let fresh = world.new_disk();
        if rt.block_on(array.drive_replace(MemberId(seat), Drive::modelled(rt, &fresh), false)).is_err() {
            break;
        }
        gone.push(seat);
    }
    rt.block_on(select(pin!(array.rebuild_done()), pin!(rt.sleep(Duration::from_secs(2)))));
    gone
}

/// Whether the block that was asked for cannot be made from the rest of its row.
fn beyond_repair(row: &RowPlace, spoilt: &impl Fn((MemberId, MemberLba)) -> bool) -> bool {
    let gone = |c: usize| row.columns[c].is_none_or(spoilt);
    match row.scheme {
        Scheme::Parity { m, .. } => {
            gone(row.column) && (0..row.columns.len()).filter(|&c| gone(c)).count() > usize::from(m)
        }
        Scheme::Copies { k, .. } => {
            let k = usize::from(k);
            (row.column % k..row.columns.len()).step_by(k).all(gone)
        }
    }
}

/// Opened for writing, the harmed array goes on: what is lost stays lost, wherever the cleaner takes its neighbours, until
/// it is overwritten.
fn live_on(
    world: &mut World,
    rt: &Rt,
    right: &Array,
    disks: &[Disk],
    lost: &BTreeSet<(String, u64)>,
) -> Result<(), String> {
    let Ok(array) = open(rt, disks, DEGRADED) else { return Ok(()) };
    // Short of drives and room, a write may have to wait for ever.
    let until = rt.now() + Duration::from_millis(200);
    for volume in array.volumes() {
        let Some(v) = array.volume(&volume.name) else { continue };
        for _ in 0..if lost.is_empty() { 0 } else { 400 } {
            if rt.now() > until {
                return Ok(());
            }
            let at = world.dice.random_range(0..v.bytes() / BLOCK) * BLOCK;
            let neighbours = at..at + 4 * BLOCK;
            if neighbours.end > v.bytes() || lost.iter().any(|(n, l)| **n == *volume.name && neighbours.contains(l)) {
                continue;
            }
            let write = v.write(at, Bytes::from_slice(&[0x66; 4 * BLOCK_BYTES]), false);
            rt.block_on(select(pin!(write), pin!(rt.sleep(Duration::from_millis(50)))));
        }
    }
    rt.block_on(select(pin!(array.checkpoint()), pin!(rt.sleep(Duration::from_millis(50)))));
    for (i, (name, at)) in lost.iter().take(40).enumerate() {
        let Some(volume) = array.volume(name) else { continue };
        let expected = read_block(rt, right, name, *at).map_err(|e| e.to_string())?;
        match read_block(rt, &array, name, *at) {
            Ok(found) if found != expected => return Err(format!("{name} at {at}: was lost, now it has wrong data")),
            Ok(_) | Err(_) => {}
        }
        if i % 2 == 1 {
            continue;
        }
        let data = Bytes::from_slice(&[0x77; BLOCK_BYTES]);
        let write = pin!(volume.write(*at, data, false));
        let Either::Left((written, _)) = rt.block_on(select(write, pin!(rt.sleep(Duration::from_millis(200))))) else {
            return Ok(());
        };
        match (written, read_block(rt, &array, name, *at)) {
            (Ok(()), Ok(found)) if found == [0x77; BLOCK_BYTES] => {}
            // It froze meanwhile, or has no room.
            (Err(_), _) => {}
            (Ok(()), other) => return Err(format!("{name} at {at}: overwritten, then {:?}", other.map(|d| d[0]))),
        }
    }
    Ok(())
}

/// More drives go than the redundancy covers, under load; they come back, and what was acknowledged is there.
pub fn loss(world: &mut World, volumes: &Volumes, mode: Mode) -> Result<(), String> {
    let disks = world.forks();
    if disks.len() <= world.plan.tolerates() {
        return Ok(());
    }
    let mut volumes = volumes.fork();
    let rt = world.rt();
    let opened = labelled(&rt, &disks);
    let array = open_degraded(&rt, &opened)?;
    volumes.compare(&rt, &array, mode)?;
    let done = Rc::new(Done { may_fail: true, ..Done::default() });
    set_to_work(world, &rt, &array, &volumes, None, 4, &done);
    rt.block_on(rt.sleep(Duration::from_micros(world.dice.random_range(1..20_000))));
    for _ in 0..=world.plan.tolerates() + world.dice.random_range(0..2) {
        opened[world.dice.random_range(0..opened.len())].detach();
        world.counts.add(Kind::LossBeyond, 1);
        rt.block_on(rt.sleep(Duration::from_micros(world.dice.random_range(1..3_000))));
    }
    rt.block_on(rt.sleep(Duration::from_millis(5)));
    if let Some(wrong) = done.wrong.take() {
        return Err(wrong);
    }
    drop(array);
    rt.end();
    for disk in &disks {
        disk.crash(world.dice.random());
        disk.attach();
    }
    let rt = world.rt();
    let opened = labelled(&rt, &disks);
    let array = open(&rt, &opened, DEGRADED).map_err(|e| format!("reopen: {e}"))?;
    if array.status().state == ArrayState::Frozen {
        return Err(format!("frozen with all drives back: {:#?}", array.status().events));
    }
    volumes.compare(&rt, &array, Mode::Killed)
}

/// Every copy of the header of a record rots that later ones say was durable: what it held is never taken for what was
/// there before.
pub fn durable_header(world: &mut World, volumes: &Volumes) -> Result<(), String> {
    let disks = world.forks();
    let rt = world.rt();
    let array = open(&rt, &disks, DEGRADED).map_err(|e| e.to_string())?;
    let Some(held) = volumes.sure().next() else { return Ok(()) };
    let volume = array.volume(&held.name).ok_or("it is gone")?;
    let blocks = volume.bytes() / BLOCK;
    let (a, b) = (world.dice.random_range(0..blocks), world.dice.random_range(0..blocks));
    let write =
        |block: u64, tag: u8| rt.block_on(volume.write(block * BLOCK, Bytes::from_slice(&[tag; BLOCK_BYTES]), true));
    if a == b || write(a, 0xaa).is_err() || write(b, 0xbb).is_err() {
        return Ok(());
    }
    let place = |block: u64| rt.block_on(volume.locate(block * BLOCK)).ok().and_then(|l| l.data);
    let (Some(first), Some(second)) = (place(a), place(b)) else { return Ok(()) };
    let disk_of = |member: MemberId| {
        let name = array.status().members.into_iter().find(|m| m.member == member.0)?.drive_name;
        disks.iter().position(|d| d.name() == name)
    };
    let spot = |row: &RowPlace| row.columns[row.column].and_then(|(m, at)| Some((disk_of(m)?, at)));
    let (Some(first), Some(second)) = (spot(&first), spot(&second)) else { return Ok(()) };
    drop((volume, array));
    rt.end();
    disks.iter().for_each(|d| d.crash(1));
    let census = Census::take(&disks);
    let record = |spot| census.records.iter().find(|r| r.holds(spot));
    let (Some(first), Some(second)) = (record(first), record(second)) else { return Ok(()) };
    if first.segment != second.segment || first.row >= second.row {
        return Ok(());
    }
    world.counts.add(Kind::DurableHeaderLost, 1);
    first.columns.iter().for_each(|&(d, at)| disks[d].image_write(at, &[0xee; BLOCK_BYTES]));
    let rt = world.rt();
    let Ok(array) = open(&rt, &disks, DEGRADED) else { return Ok(()) };
    match read_block(&rt, &array, &held.name, a * BLOCK) {
        Ok(found) if found != [0xaa; BLOCK_BYTES] => Err("what was there before shows".to_owned()),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Whether the first row of a record says what its header is, also without the header's own column.
fn row_makes_header(disks: &[Disk], s: &Segment, r: &RecordSpots) -> bool {
    let (k, width) = (s.scheme.k(), s.scheme.width());
    if r.columns.len() < width || width == k {
        return false;
    }
    let block = |c: usize| disks[r.columns[c].0].image_read(r.columns[c].1, BlockCount(1));
    let columns = if let Scheme::Copies { .. } = s.scheme { vec![0, k] } else { (0..=k).collect::<Vec<_>>() };
    let sum = columns.into_iter().map(block).reduce(|a, b| a.iter().zip(b.iter()).map(|(a, b)| a ^ b).collect());
    sum.is_some_and(|sum| sum.iter().all(|&b| b == 0))
}

/// After some work every copy of the newest generation rots: the one before tells the same, or nothing.
pub fn generation(world: &mut World, volumes: &Volumes, mode: Mode, report: &mut Report) -> Result<(), String> {
    let disks = world.forks();
    let mut volumes = volumes.fork();
    let rt = world.rt();
    let array = open(&rt, &disks, DEGRADED).map_err(|e| e.to_string())?;
    volumes.compare(&rt, &array, mode)?;
    let done = Rc::new(Done::default());
    set_to_work(world, &rt, &array, &volumes, None, 8, &done);
    rt.block_on(rt.sleep(Duration::from_micros(world.dice.random_range(1..30_000))));
    if world.dice.random_range(0..2) == 0 {
        let _may_fail = rt.block_on(array.checkpoint());
        rt.block_on(rt.sleep(Duration::from_micros(world.dice.random_range(1..3_000))));
    }
    drop(array);
    rt.end();
    disks.iter().for_each(|d| d.crash(world.dice.random()));
    if let Some(wrong) = done.wrong.take() {
        return Err(wrong);
    }
    world.counts.add(Kind::GenerationLost, 1);
    let census = Census::take(&disks);
    let before = generations(&disks).into_iter().nth(1);
    // A flipped bit may lie behind what the checksum covers.
    census.newest.iter().for_each(|&(d, at)| disks[d].image_write(at, &[0xee; BLOCK_BYTES]));
    // Where the one before looks for records it meets some that it cannot know. A header on a drive without any generation is
    // met if the rest of its row makes it: a torn one was never acknowledged.
    let meets = |g: &Generation| {
        let knows = |d: usize| label(&disks[d]).is_some_and(|l| (0..2).any(|i| in_slot(&disks[d], &l, i).is_some()));
        g.segments.iter().any(|s| {
            let replayed = |r: &&RecordSpots| r.segment == s.id && s.replay_row.is_some_and(|row| r.row >= row);
            let met = |r: &RecordSpots| r.columns.first().is_some_and(|c| knows(c.0)) || row_makes_header(&disks, s, r);
            census.records.iter().filter(replayed).any(|r| r.generation > g.number && met(r))
        })
    };
    let must_refuse = before.is_some_and(|g| !g.clean && meets(&g));
    // Who asks for --degraded takes what a drive that was out knows, when no other knows more.
    let rt = world.rt();
    match open(&rt, &disks, OpenHow::default()) {
        // Frozen it says nothing old, and writes nothing.
        Ok(array) if must_refuse && array.status().state != ArrayState::Frozen => {
            Err("records of a newer generation did not stop it".to_owned())
        }
        // What it says of volumes made or deleted since may be old.
        Ok(array) => read_some(world, &rt, &array, &volumes, Mode::Killed, true),
        Err(_) => {
            report.refused += 1;
            Ok(())
        }
    }
}
