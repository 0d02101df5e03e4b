//! Lives of a few moments on copies of the drives, one after the other: what one leaves half done the next finds.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use api::ArrayState;
use array::{Array, RefusedCode};
use base::{BLOCK_BYTES, BlockCount};
use ondisk::MemberState;
use rand::{RngExt, SeedableRng};
use rt::model::{Disk, LateWrites, Op, OpKind, Verdict};
use rt::{Drive, IoError, Rt};

use crate::census::{Census, label, newest_generation};
use crate::kind::Kind;
use crate::model::Mode;
use crate::plan::Dice;
use crate::run::{DEGRADED, drain, host, set_to_work};
use crate::spoil::flip;
use crate::volumes::{Fate, Volumes};
use crate::workload::{Done, joined};
use crate::world::{World, drives, labelled, open, open_degraded};

/// Opens, compares, lets hosts work for a moment; `during` happens in its middle.
fn live(
    world: &mut World,
    disks: &[Disk],
    volumes: &mut Volumes,
    mode: Mode,
    mut during: impl FnMut(&mut World, &Rt),
) -> Result<(), String> {
    let rt = world.rt();
    let array = open_degraded(&rt, disks)?;
    if array.status().state == ArrayState::Frozen {
        return Err(format!("frozen after open: {:#?}", array.status().events));
    }
    volumes.compare(&rt, &array, mode)?;
    let done = Rc::new(Done::default());
    let hosts = world.dice.random_range(1..4);
    set_to_work(world, &rt, &array, volumes, None, hosts, &done);
    let mut pause = || Duration::from_micros(1 << world.dice.random_range(0..12));
    let (before, after) = (pause(), pause() / 2);
    rt.block_on(rt.sleep(before));
    during(world, &rt);
    rt.block_on(rt.sleep(after));
    drop(array);
    rt.end();
    done.wrong.take().map_or(Ok(()), Err)
}

/// Several of them. One drive, of those that may go, may hang and land its writes under the next process.
pub fn many(world: &mut World, volumes: &Volumes, mode: Mode) -> Result<(), String> {
    let mut volumes = volumes.fork();
    let disks = world.forks();
    let mut mode = mode;
    let rotten = disks.iter().position(|d| world.is_rotten(d));
    let spare_one = world.plan.tolerates() > 0 && rotten.is_none() && crate::probes::is_optimal(world);
    let hung = rotten.or_else(|| spare_one.then(|| world.dice.random_range(0..disks.len())));
    let mut late = Vec::new();
    world.counts.add(Kind::ManyLives, 1);
    for i in 0..world.dice.random_range(3..8) {
        let mut landing: Vec<LateWrites> = std::mem::take(&mut late);
        let land = |_: &mut World, _: &Rt| landing.drain(..).for_each(LateWrites::land);
        live(world, &disks, &mut volumes, mode, land).map_err(|e| format!("life {i}: {e}"))?;
        if world.dice.random_range(0..2) == 0 {
            disks.iter().for_each(|d| d.power_cut(world.dice.random()));
            mode = Mode::PowerCut;
            continue;
        }
        for (i, disk) in disks.iter().enumerate() {
            if Some(i) == hung && world.dice.random_range(0..2) == 0 {
                late.push(disk.crash_hanging());
            } else {
                disk.crash(world.dice.random());
            }
        }
        mode = Mode::Killed;
    }
    live(world, &disks, &mut volumes, mode, |_, _| {}).map_err(|e| format!("last life: {e}"))
}

/// As many drives go as may, the power fails, and then others are missing: what was flushed is there, unless the array
/// says that it is degraded.
pub fn cut_after_loss(world: &mut World, volumes: &Volumes, mode: Mode) -> Result<(), String> {
    (0..4).try_for_each(|_| cut_after_loss_once(world, volumes, mode))
}

fn cut_after_loss_once(world: &mut World, volumes: &Volumes, mode: Mode) -> Result<(), String> {
    let tolerates = world.plan.tolerates();
    if world.disks.len() < 2 * tolerates || !crate::probes::is_optimal(world) {
        return Ok(());
    }
    let mut volumes = volumes.fork();
    let disks = world.forks();
    let first = world.dice.random_range(0..disks.len());
    let pulled = |i: usize| (0..tolerates).any(|n| (first + n) % disks.len() == i);
    let rt = world.rt();
    let array = open_degraded(&rt, &disks)?;
    volumes.compare(&rt, &array, mode)?;
    let done = Rc::new(Done { may_fail: true, ..Done::default() });
    let sure: Vec<usize> = (0..volumes.all.len()).filter(|&i| volumes.all[i].fate.get() == Fate::Stays).collect();
    if sure.is_empty() {
        return Ok(());
    }
    let by_flush = world.plan.volatile_cache && world.dice.random_range(0..2) == 0;
    for (_, disk) in disks.iter().enumerate().filter(|(i, _)| pulled(*i)) {
        if by_flush {
            // What was written before lies in its cache.
            disk.on_op(Some(Box::new(|op: &Op| match op.kind {
                OpKind::Flush => Verdict::Fail(IoError::Gone),
                _ => Verdict::Proceed,
            })));
        } else {
            disk.detach();
        }
    }
    let system = BlockCount::floor_from_bytes(world.plan.system_bytes()).0;
    for (_, disk) in disks.iter().enumerate().filter(|(i, _)| !pulled(*i)) {
        // Generations take their time.
        let slow = move |op: &Op| {
            let generation = op.kind == OpKind::Write && op.at.0 < system;
            if generation { Verdict::DelayNs(5_000_000) } else { Verdict::Proceed }
        };
        disk.on_op(Some(Box::new(slow)));
    }
    for _ in 0..12 {
        let host = host(&array, &volumes, sure[world.dice.random_range(0..sure.len())], &done);
        let seed = world.dice.random();
        rt.spawn(async move { host.write_durably(seed).await }).detach();
    }
    // At the moment of the first answer.
    for _ in 0..10_000 {
        if done.requests.get() > 0 {
            break;
        }
        rt.block_on(rt.sleep(Duration::from_micros(2)));
    }
    drop(array);
    rt.end();
    world.counts.add(Kind::CutAfterLoss, 1);
    for disk in &disks {
        disk.on_op(None);
        disk.power_cut(world.dice.random());
        disk.attach();
    }
    let count = disks.len();
    let others = |n: usize| (first + tolerates + n) % count;
    // A spare holds no generation. When only a spare is left beside the pulled drives, no drive says that they were pulled.
    let is_other = |i: usize| (0..tolerates).any(|n| others(n) == i);
    let knows = |(i, disk): (usize, &Disk)| {
        !pulled(i) && !is_other(i) && newest_generation(std::slice::from_ref(disk)).is_some()
    };
    let are_many = disks.len() > 2 * tolerates && world.dice.random_range(0..2) == 0;
    if are_many && disks.iter().enumerate().any(knows) {
        // Beyond what may be lost at once: it may be refused or frozen, and does not serve without what was flushed.
        (0..tolerates).for_each(|n| disks[others(n)].detach());
        let rt = world.rt();
        return match open(&rt, &disks, DEGRADED) {
            // Too few, or a header of a record is on none of those that are left.
            Err(refused) if matches!(refused.code, RefusedCode::MembersMissing | RefusedCode::Damaged) => Ok(()),
            Err(refused) => Err(refused.to_string()),
            Ok(array) if array.status().state == ArrayState::Frozen => {
                crate::probes::read_some(world, &rt, &array, &volumes, Mode::PowerCut, true)
            }
            Ok(array) => volumes.compare(&rt, &array, Mode::PowerCut),
        }
        .map_err(|e| format!("without others: {e}"));
    }
    let copies: Vec<Disk> = disks.iter().map(Disk::fork).collect();
    let rt = world.rt();
    let array = open_degraded(&rt, &copies)?;
    let optimal = array.status().state == ArrayState::Optimal;
    drop(array);
    rt.end();
    // It may be optimal since the open has brought a drive up to date.
    let disks = if optimal { copies } else { disks };
    if optimal {
        disks.iter().for_each(|disk| disk.crash(world.dice.random()));
        (0..tolerates).for_each(|n| disks[others(n)].detach());
    }
    live(world, &disks, &mut volumes, Mode::PowerCut, |_, _| {}).map_err(|e| format!("optimal {optimal}: {e}"))
}

/// Rot on one drive: what is read is right, and right again on the drive.
pub fn rot_heals(world: &mut World, volumes: &Volumes, mode: Mode) -> Result<(), String> {
    if !crate::probes::is_optimal(world) {
        return Ok(());
    }
    let disks = world.forks();
    let census = Census::take(&disks);
    let which = world.dice.random_range(0..disks.len());
    let spots: Vec<_> = census.of(Kind::RotData).iter().copied().filter(|(d, _)| *d == which).collect();
    if spots.is_empty() {
        return Ok(());
    }
    let spot = spots[world.dice.random_range(0..spots.len())];
    flip(world, &disks, spot);
    let read = || disks[which].image_read(spot.1, BlockCount(1));
    let rotted = read();
    world.counts.add(Kind::RotHeals, 1);
    let rt = world.rt();
    let array = open(&rt, &disks, DEGRADED).map_err(|e| e.to_string())?;
    volumes.fork().compare(&rt, &array, mode)?;
    rt.block_on(rt.sleep(Duration::from_secs(1)));
    // Nobody reads a block that was overwritten meanwhile, or moved.
    let met = array.status().members.iter().map(|m| m.mismatches).sum::<u64>() > 0;
    assert_eq!(rotted.len(), BLOCK_BYTES);
    if met && array.moved_blocks() == 0 && read() == rotted {
        return Err("it was met and is still there".to_owned());
    }
    Ok(())
}

/// Some operations take so much longer; not those on generations.
pub fn delay(world: &mut World, disks: &[Disk], kind: OpKind, ns: u64) {
    let system = BlockCount::floor_from_bytes(world.plan.system_bytes());
    for disk in disks {
        let mut dice = Dice::seed_from_u64(world.dice.random());
        let slow = move |op: &Op| {
            let hit = op.kind == kind && op.at.0 >= system.0 && dice.random_range(0..8) == 0;
            if hit { Verdict::DelayNs(ns) } else { Verdict::Proceed }
        };
        disk.on_op(Some(Box::new(slow)));
    }
}

/// Where nothing rots no block is ever found wrong.
pub fn no_mismatch(array: &Array) -> Result<(), String> {
    let status = array.status();
    match status.members.iter().map(|m| m.mismatches).sum::<u64>() {
        0 => Ok(()),
        n => Err(format!("{n} blocks did not match their checksums: {:#?}", status.events)),
    }
}

/// Readers take long while segments are freed and their zones used again.
pub fn slow_readers(world: &mut World, volumes: &Volumes, mode: Mode) -> Result<(), String> {
    let mut volumes = volumes.fork();
    let disks = world.forks();
    let rt = world.rt();
    let array = open(&rt, &disks, DEGRADED).map_err(|e| e.to_string())?;
    volumes.compare(&rt, &array, mode)?;
    let overwrites = world.dice.random_range(0..3) == 0;
    delay(world, &disks, OpKind::Read, if overwrites { 300_000_000 } else { 10_000_000 });
    world.counts.add(Kind::SlowReaders, 1);
    let done = Rc::new(Done::default());
    if overwrites {
        // What is being read is written anew, all of it.
        for held in volumes.sure() {
            let Some(volume) = array.volume(&held.name) else { continue };
            let reads = (0..volume.bytes()).step_by(16 * BLOCK_BYTES).map(|at| {
                let (volume, n) = (volume.clone(), (volume.bytes() - at).min(16 * BLOCK_BYTES as u64));
                async move { volume.read(at, n).await.is_ok() }
            });
            reads.for_each(|read| rt.spawn(read).detach());
        }
        let hosts = (0..volumes.all.len()).filter(|&i| volumes.all[i].fate.get() == Fate::Stays);
        let hosts: Vec<_> = hosts.map(|which| host(&array, &volumes, which, &done)).collect();
        for host in hosts {
            let _no_space = rt.block_on(host.fill());
        }
        rt.block_on(array.checkpoint()).map_err(|e| e.to_string())?;
    }
    set_to_work(world, &rt, &array, &volumes, None, 8, &done);
    for _ in 0..6 {
        rt.block_on(rt.sleep(Duration::from_micros(world.dice.random_range(1..4_000))));
        rt.block_on(array.checkpoint()).map_err(|e| e.to_string())?;
    }
    no_mismatch(&array)?;
    drop(array);
    rt.end();
    disks.iter().for_each(|d| {
        d.crash(1);
        d.on_op(None);
    });
    if let Some(wrong) = done.wrong.take() {
        return Err(wrong);
    }
    live(world, &disks, &mut volumes, Mode::Killed, |_, _| {})
}

/// Parts of blocks are written to a volume that is being deleted, what they are laid over takes long to read, and the end comes
/// before a generation says that the volume is gone: then it is there, and nothing of it is missing.
pub fn deletion_cut(world: &mut World, volumes: &Volumes, mode: Mode) -> Result<(), String> {
    let mut volumes = volumes.fork();
    let disks = world.forks();
    let rt = world.rt();
    let opened = labelled(&rt, &disks);
    let array = open_degraded(&rt, &opened)?;
    volumes.compare(&rt, &array, mode)?;
    let system = BlockCount::floor_from_bytes(world.plan.system_bytes()).0;
    for disk in &opened {
        disk.on_op(Some(Box::new(move |op: &Op| match op.kind {
            OpKind::Write if op.at.0 < system => Verdict::Hang,
            OpKind::Read if op.at.0 >= system => Verdict::DelayNs(20_000_000),
            _ => Verdict::Proceed,
        })));
    }
    world.counts.add(Kind::DeletionCut, 1);
    let done = Rc::new(Done::default());
    for which in 0..volumes.all.len() {
        let blocks = volumes.all[which].model.borrow().sectors() / 8;
        for _ in 0..if volumes.all[which].fate.get() == Fate::Stays && blocks > 1 { 4 } else { 0 } {
            let (host, block) = (host(&array, &volumes, which, &done), world.dice.random_range(0..blocks - 1));
            rt.spawn(async move { host.write_across(block).await }).detach();
        }
    }
    rt.block_on(rt.sleep(Duration::from_millis(1)));
    for held in volumes.sure() {
        held.fate.set(Fate::Going);
        let (array, name) = (array.clone(), held.name.clone());
        rt.spawn(async move { array.volume_delete(&name).await }).detach();
    }
    // A checkpoint lets the leaves go long before a generation says so.
    let other = array.clone();
    rt.spawn(async move { other.checkpoint().await }).detach();
    rt.block_on(rt.sleep(Duration::from_millis(world.dice.random_range(20..100))));
    drop(array);
    rt.end();
    for disk in &disks {
        disk.on_op(None);
        disk.crash(world.dice.random());
    }
    live(world, &disks, &mut volumes, Mode::Killed, |_, _| {})
}

/// Every volume is deleted under load and a new one made: nothing of the old ones shows there, however late it lands.
pub fn volumes_anew(world: &mut World, volumes: &Volumes, mode: Mode) -> Result<(), String> {
    let mut volumes = volumes.fork();
    let disks = world.forks();
    let rt = world.rt();
    let array = open(&rt, &disks, DEGRADED).map_err(|e| e.to_string())?;
    volumes.compare(&rt, &array, mode)?;
    if array.status().state != ArrayState::Optimal {
        return Ok(());
    }
    delay(world, &disks, OpKind::Write, 50_000_000);
    world.counts.add(Kind::VolumesAnew, 1);
    let done = Rc::new(Done::default());
    set_to_work(world, &rt, &array, &volumes, None, 6, &done);
    rt.block_on(rt.sleep(Duration::from_micros(world.dice.random_range(1..3_000))));
    for held in volumes.sure() {
        held.fate.set(Fate::Going);
        rt.block_on(array.volume_delete(&held.name)).map_err(|e| e.to_string())?;
    }
    rt.block_on(array.volume_create("anew", 1 << 20)).map_err(|e| e.to_string())?;
    rt.block_on(rt.sleep(Duration::from_millis(200)));
    let v = array.volume("anew").ok_or("it is not there")?;
    let found = joined(&rt.block_on(v.read(0, v.bytes())).map_err(|e| e.to_string())?);
    if found.iter().any(|&b| b != 0) {
        return Err("a new volume holds something".to_owned());
    }
    done.wrong.take().map_or(Ok(()), Err)
}

/// A process dies while it writes a generation, which one drive has and the others have not. That drive is missing the next
/// time, and comes back: it is out, and the array goes on.
pub fn half_a_generation(world: &mut World, volumes: &Volumes, mode: Mode) -> Result<(), String> {
    if world.disks.len() < 2 || world.plan.tolerates() == 0 || !crate::probes::is_optimal(world) {
        return Ok(());
    }
    let mut volumes = volumes.fork();
    let disks = world.forks();
    let which = world.dice.random_range(0..disks.len());
    let number = |disk: &Disk| newest_generation(std::slice::from_ref(disk)).map(|g| g.number);
    let Some(before) = number(&disks[which]) else { return Ok(()) };
    if disks.iter().any(|d| number(d) != Some(before)) {
        return Ok(());
    }
    for (_, disk) in disks.iter().enumerate().filter(|(i, _)| *i != which) {
        let Some(label) = label(disk) else { return Ok(()) };
        let slots = [0, 1].map(|slot| label.layout.slot(slot));
        disk.on_op(Some(Box::new(move |op: &Op| match op.kind {
            OpKind::Write if slots.contains(&op.at) => Verdict::Hang,
            _ => Verdict::Proceed,
        })));
    }
    let rt = world.rt();
    let own = drives(&rt, &labelled(&rt, &disks));
    rt.spawn({
        let rt = rt.clone();
        async move { drop(Array::open(&rt, own, DEGRADED).await) }
    })
    .detach();
    for _ in 0..10_000 {
        if number(&disks[which]) > Some(before) {
            break;
        }
        rt.block_on(rt.sleep(Duration::from_micros(100)));
    }
    rt.end();
    for disk in &disks {
        disk.on_op(None);
        disk.crash(world.dice.random());
    }
    if disks.iter().filter(|d| number(d) > Some(before)).count() != 1 {
        return Ok(());
    }
    disks[which].detach();
    world.counts.add(Kind::HalfAGeneration, 1);
    live(world, &disks, &mut volumes, mode, |_, _| {})?;
    disks.iter().for_each(|d| d.crash(world.dice.random()));
    disks[which].attach();
    live(world, &disks, &mut volumes, Mode::Killed, |_, _| {}).map_err(|e| format!("it is back: {e}"))
}

/// A drive joins, and the process dies while it writes the first generation with it, which the others have: it is in, and all
/// that the generation lists of it counts. Of an array without redundancy: with some, the drive would be brought up to date.
pub fn newcomer(world: &mut World, volumes: &Volumes, mode: Mode) -> Result<(), String> {
    if world.plan.tolerates() > 0 || !crate::probes::is_optimal(world) {
        return Ok(());
    }
    let mut disks = world.forks();
    let Some(layout) = label(&disks[0]).map(|l| l.layout) else { return Ok(()) };
    let fresh = world.new_disk();
    let slots = [0, 1].map(|slot| layout.slot(slot));
    let labelled = Cell::new(false);
    fresh.on_op(Some(Box::new(move |op: &Op| {
        labelled.set(labelled.get() || (op.kind == OpKind::Write && op.at.0 == 0));
        let generation = op.kind == OpKind::Write && slots.contains(&op.at) && labelled.get();
        if generation { Verdict::Hang } else { Verdict::Proceed }
    })));
    let rt = world.rt();
    let array = open_degraded(&rt, &disks)?;
    let joins = rt.spawn({
        let drive = Drive::modelled(&rt, &fresh);
        async move { drop(array.drive_grow(drive, false).await) }
    });
    rt.block_on(rt.sleep(Duration::from_millis(100)));
    let cut = !joins.is_finished();
    drop(joins);
    rt.end();
    fresh.on_op(None);
    disks.push(fresh);
    disks.iter().for_each(|d| d.crash(world.dice.random()));
    let (newest, last) = (newest_generation(&disks), &disks[disks.len() - 1]);
    let own = label(last).map(|l| l.member);
    let listed = newest.is_some_and(|g| g.members.iter().any(|m| Some(m.uuid) == own && m.state == MemberState::In));
    if !cut || !listed || newest_generation(std::slice::from_ref(last)).is_some() {
        return Ok(());
    }
    world.counts.add(Kind::HalfAGeneration, 1);
    let rt = world.rt();
    let array = open_degraded(&rt, &disks)?;
    let status = array.status();
    if status.state != ArrayState::Optimal {
        return Err(format!("the newcomer does not count: {:#?}", status.events));
    }
    volumes.fork().compare(&rt, &array, mode)
}

/// Short of drives, hosts have their answers: the cleaner finds room for what they write.
pub fn work_after_loss(world: &mut World, volumes: &Volumes, mode: Mode) -> Result<(), String> {
    if !crate::probes::is_optimal(world) {
        return Ok(());
    }
    let mut volumes = volumes.fork();
    let disks = world.forks();
    let rt = world.rt();
    let array = open(&rt, &disks, DEGRADED).map_err(|e| e.to_string())?;
    volumes.compare(&rt, &array, mode)?;
    disks[..world.plan.tolerates()].iter().for_each(Disk::detach);
    world.counts.add(Kind::WorkAfterLoss, 1);
    let done = Rc::new(Done::default());
    set_to_work(world, &rt, &array, &volumes, None, 12, &done);
    rt.block_on(rt.sleep(Duration::from_millis(1 << world.dice.random_range(3..8))));
    drain(&rt, &done)?;
    done.wrong.take().map_or(Ok(()), Err)
}
