//! What is tried on copies of the drives, so that the world itself goes on unharmed: damage and loss beyond the
//! redundancy, drives that do not belong together, two processes at once.
//!
//! Beyond the redundancy data may be lost; it must never be wrong, nothing else may be lost with it, and nothing may
//! panic.

use std::time::Duration;

use array::{Array, ArrayState, CreateSpec, Fault, OpenHow, RefusedCode, RowPlace, SeatState};
use base::{BLOCK_BYTES, BlockCount, MemberId, MemberLba};
use ondisk::{Level, Scheme};
use rand::RngExt;
use rt::model::Disk;
use rt::{Bytes, Drive, Rt};

use crate::census::Census;
use crate::kind::Kind;
use crate::model::Mode;
use crate::report::Report;
use crate::run::{DEGRADED, Volumes, compare, set_to_work};
use crate::spoil::{ROT, flip};
use crate::world::{World, drives, labelled};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Blocks of a volume looked at.
const LOOKED_AT: u64 = 400;

/// Perhaps one of them.
pub fn try_on_copies(world: &mut World, volumes: &Volumes, mode: Mode, report: &mut Report) -> Result<(), String> {
    // What is lost is told from copies without any rot.
    if world.chance(Kind::RotBeyond, 3) && world.plan.rotten == 0 {
        rot_beyond(world, volumes, report).map_err(|e| format!("rot beyond the redundancy: {e}"))?;
    }
    // The first to go is out for good: with a rotten one beside it data would be lost for good.
    if world.chance(Kind::LossBeyond, 3) && world.plan.rotten == 0 {
        loss_beyond(world, volumes, mode).map_err(|e| format!("loss beyond the redundancy: {e}"))?;
    }
    if world.chance(Kind::ForeignDrive, 4) {
        foreign_drive(world).map_err(|e| format!("a foreign drive: {e}"))?;
    }
    if world.chance(Kind::Diverged, 4) && world.plan.tolerates() > 0 && world.plan.rotten == 0 {
        diverged(world).map_err(|e| format!("a diverged drive: {e}"))?;
    }
    if world.chance(Kind::SecondProcess, 4) {
        second_process(world).map_err(|e| format!("a second process: {e}"))?;
    }
    Ok(())
}

fn read_block(rt: &Rt, array: &Array, volume: &str, at: u64) -> Result<Vec<u8>, Fault> {
    let volume = array.volume(volume).ok_or(Fault::Closed)?;
    let parts = rt.block_on(volume.read(at, BLOCK))?;
    Ok(parts.iter().flat_map(|p| p.iter().copied()).collect())
}

fn rot_beyond(world: &mut World, volumes: &Volumes, report: &mut Report) -> Result<(), String> {
    let (sound, rotted) = (world.forks(), world.forks());
    let census = Census::take(&rotted);
    for _ in 0..world.dice.random_range(1..60) {
        let kind = ROT[world.dice.random_range(0..ROT.len())];
        let spots = census.of(kind);
        if spots.is_empty() {
            continue;
        }
        let spot = spots[world.dice.random_range(0..spots.len())];
        flip(world, &rotted, spot);
        world.counts.add(Kind::RotBeyond, 1);
    }
    let rt = world.rt();
    let how = OpenHow { read_only: true, ..DEGRADED };
    let right = rt.block_on(Array::open(&rt, drives(&rt, &labelled(&rt, &sound)), how)).map_err(|e| e.to_string())?;
    let harmed = match rt.block_on(Array::open(&rt, drives(&rt, &labelled(&rt, &rotted)), how)) {
        Ok(array) => array,
        Err(_) => {
            report.refused += 1;
            return Ok(());
        }
    };
    // Its newest generation is gone from every drive; or its last records are: behind the durable row that cannot be
    // told from what a power cut tore.
    let same = right.status().generation == harmed.status().generation;
    if !same || right.recovery().replayed_records != harmed.recovery().replayed_records {
        report.refused += 1;
        return Ok(());
    }
    let seats: Vec<(String, u16)> = right.status().members.iter().map(|m| (m.drive_name.clone(), m.seat)).collect();
    // A drive whose labels or generations are spoilt is not there at all.
    let here = harmed.status().members;
    let spoilt = |(member, at): (MemberId, MemberLba)| -> bool {
        if here.iter().any(|m| m.seat == member.0 && m.state != SeatState::In) {
            return true;
        }
        let name = seats.iter().find(|(_, seat)| *seat == member.0).map(|(name, _)| name);
        let disk = name.and_then(|name| sound.iter().position(|d| d.name() == name));
        disk.is_none_or(|d| sound[d].image_read(at, BlockCount(1)) != rotted[d].image_read(at, BlockCount(1)))
    };
    let mut lost: Vec<(String, u64)> = Vec::new();
    for name in &volumes.names {
        let volume = right.volume(name).ok_or("a volume is gone")?;
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
                    if !rows.clone().any(|row| beyond_repair(row, &spoilt)) {
                        return Err(format!("{name} at {at} reads as lost, but {located:?} is not"));
                    }
                    report.lost_blocks += 1;
                    lost.push((name.clone(), at));
                }
                Err(other) => return Err(format!("{name} at {at}: {other}")),
            }
        }
    }
    drop((right, harmed));
    rt.end();
    overwrite_lost(world, &rotted, &lost)
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

/// Opened for writing, the harmed array takes new data where it lost the old.
fn overwrite_lost(world: &mut World, disks: &[Disk], lost: &[(String, u64)]) -> Result<(), String> {
    let rt = world.rt();
    let Ok(array) = rt.block_on(Array::open(&rt, drives(&rt, &labelled(&rt, disks)), DEGRADED)) else { return Ok(()) };
    for (name, at) in lost.iter().take(20) {
        let Some(volume) = array.volume(name) else { continue };
        let data = Bytes::from_slice(&[0x77; BLOCK_BYTES]);
        let written = rt.block_on(volume.write(*at, data, false));
        match (written, read_block(&rt, &array, name, *at)) {
            (Ok(()), Ok(found)) if found == [0x77; BLOCK_BYTES] => {}
            // It froze meanwhile, or has no room.
            (Err(_), _) => {}
            (Ok(()), other) => return Err(format!("{name} at {at}: overwritten, then {:?}", other.map(|d| d[0]))),
        }
    }
    rt.block_on(rt.sleep(Duration::from_millis(50)));
    rt.end();
    Ok(())
}

/// More drives go than the redundancy covers, under load; they come back, and what was acknowledged is there.
fn loss_beyond(world: &mut World, volumes: &Volumes, mode: Mode) -> Result<(), String> {
    let disks = world.forks();
    if disks.len() <= world.plan.tolerates() {
        return Ok(());
    }
    let volumes = volumes.fork();
    let rt = world.rt();
    let opened = labelled(&rt, &disks);
    let array = rt.block_on(Array::open(&rt, drives(&rt, &opened), DEGRADED)).map_err(|e| format!("open: {e}"))?;
    compare(&rt, &array, &volumes, mode)?;
    let done = set_to_work(world, &rt, &array, &volumes, 4, true);
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
    let array = rt.block_on(Array::open(&rt, drives(&rt, &opened), DEGRADED)).map_err(|e| format!("reopen: {e}"))?;
    if array.status().state == ArrayState::Frozen {
        return Err(format!("frozen with all drives back: {:#?}", array.status().events));
    }
    compare(&rt, &array, &volumes, Mode::Killed)
}

fn foreign_drive(world: &mut World) -> Result<(), String> {
    let rt = world.rt();
    let foreign = world.new_disk();
    let spec = CreateSpec { name: "other".into(), level: Level::Raid0, width: None, ..world.plan.spec() };
    let made = rt.block_on(Array::create(&rt, drives(&rt, std::slice::from_ref(&foreign)), &spec));
    rt.block_on(made.map_err(|e| e.to_string())?.close()).map_err(|e| e.to_string())?;
    let mut disks = labelled(&rt, &world.forks());
    disks.insert(world.dice.random_range(0..=disks.len()), foreign);
    world.counts.add(Kind::ForeignDrive, 1);
    match rt.block_on(Array::open(&rt, drives(&rt, &disks), DEGRADED)) {
        Err(refused) if refused.code == RefusedCode::InUse => Ok(()),
        Err(other) => Err(other.to_string()),
        Ok(_) => Err("it was let in".to_owned()),
    }
}

/// Opens `disks` and writes something down; false when they do not carry the array.
fn use_alone(world: &mut World, disks: &[Disk], volume: &str) -> bool {
    let rt = world.rt();
    let Ok(array) = rt.block_on(Array::open(&rt, drives(&rt, disks), DEGRADED)) else { return false };
    let used = rt.block_on(array.volume_create(volume, 1 << 20)).is_ok() && rt.block_on(array.clone().close()).is_ok();
    drop(array);
    rt.end();
    used
}

fn diverged(world: &mut World) -> Result<(), String> {
    let (ours, theirs) = (world.forks(), world.forks());
    let x = world.dice.random_range(0..ours.len());
    let without: Vec<Disk> = ours.iter().enumerate().filter(|(i, _)| *i != x).map(|(_, d)| d.clone()).collect();
    let y = (x + 1) % theirs.len();
    let with: Vec<Disk> = theirs.iter().enumerate().filter(|(i, _)| *i != y).map(|(_, d)| d.clone()).collect();
    if without.is_empty() || with.is_empty() || !use_alone(world, &without, "d1") || !use_alone(world, &with, "d2") {
        return Ok(());
    }
    let mut together = without;
    together.push(theirs[x].clone());
    world.counts.add(Kind::Diverged, 1);
    let rt = world.rt();
    match rt.block_on(Array::open(&rt, drives(&rt, &together), DEGRADED)) {
        Err(refused) if refused.code == RefusedCode::Diverged => Ok(()),
        Err(other) => Err(other.to_string()),
        // It was out before they parted: nobody believes it anyway.
        Ok(array) if array.status().members.iter().any(|m| m.drive_name == theirs[x].name()) => {
            let stale = array.status().events.iter().any(|e| e.text.contains("its state is old"));
            if stale { Ok(()) } else { Err("it was let in".to_owned()) }
        }
        Ok(_) => Ok(()),
    }
}

fn second_process(world: &mut World) -> Result<(), String> {
    let disks = world.forks();
    let rt = world.rt();
    let disks = labelled(&rt, &disks);
    let open = || rt.block_on(Array::open(&rt, disks.iter().map(|d| Drive::modelled(&rt, d)).collect(), DEGRADED));
    let first = open().map_err(|e| e.to_string())?;
    world.counts.add(Kind::SecondProcess, 1);
    // It may notice the first, which is at work in the background, before that notices it.
    let Ok(_second) = open() else { return Ok(()) };
    match rt.block_on(first.volume_create("mine", 1 << 20)) {
        Err(_) if first.status().state == ArrayState::Frozen => Ok(()),
        other => Err(format!("the first went on: {other:?}")),
    }
}
