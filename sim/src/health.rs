//! Members that are late or err now and then: hosts wait no longer than the rules say, and nobody goes out whom the array
//! cannot do without.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use api::{ArrayState, SeatState};
use array::{Array, limits};
use rand::RngExt;
use rt::IoError;
use rt::model::{Disk, Fault as DriveFault, Op, OpKind, Verdict};

use crate::census::{Census, Spot};
use crate::kind::Kind;
use crate::model::Mode;
use crate::probes::BLOCK;
use crate::run::{DEGRADED, drain, drain_within, set_to_work};
use crate::spoil::flip;
use crate::volumes::Volumes;
use crate::workload::Done;
use crate::world::{World, drives, open, open_degraded};

/// From the moment a drive hangs until the array goes on: late, asked after, written elsewhere.
const GOES_ON: Duration = limits::LATE_OUT.saturating_add(Duration::from_secs(4));

/// Whether a drive is in.
pub fn is_in(array: &Array, disk: &Disk) -> bool {
    array.status().members.iter().any(|m| m.drive_name == disk.name() && m.state == SeatState::In)
}

/// An open beside drives that hang takes no longer: each step waits for a label, or until a member is out.
const OPENS: Duration = Duration::from_secs(120);

/// As many drives hang as may go: hosts go on, and what lands later harms nothing, not under the next process either.
pub fn hung(world: &mut World, volumes: &Volumes, mode: Mode) -> Result<(), String> {
    if !crate::probes::is_optimal(world) {
        return Ok(());
    }
    let untouched = volumes;
    let mut volumes = volumes.fork();
    let disks = world.forks();
    let rt = world.rt();
    let array = open_degraded(&rt, &disks)?;
    volumes.compare(&rt, &array, mode)?;
    let done = Rc::new(Done::default());
    set_to_work(world, &rt, &array, &volumes, None, 8, &done);
    rt.block_on(rt.sleep(Duration::from_micros(world.dice.random_range(1..5_000))));
    let first = world.dice.random_range(0..disks.len());
    let hangs = |i: usize| (0..world.plan.tolerates()).any(|n| (first + n) % disks.len() == i);
    let hung: Vec<usize> = (0..disks.len()).filter(|i| hangs(*i)).collect();
    hung.iter().for_each(|i| disks[*i].set_fault(DriveFault::Hang));
    world.counts.add(Kind::Hung, hung.len() as u64);
    done.unhurried.set(true);
    // One may be met only when another has gone out.
    rt.block_on(rt.sleep(GOES_ON * hung.len() as u32));
    let before = done.requests.get();
    rt.block_on(rt.sleep(Duration::from_secs(1)));
    let status = array.status();
    if status.state == ArrayState::Frozen {
        return Err(format!("it froze: {:#?}", status.events));
    }
    if done.requests.get() == before && done.at_work.get() > 0 {
        let free = (status.segments_free, status.segments_total);
        return Err(format!("hosts still wait: {:?} {free:?} {:#?}", status.state, status.events));
    }
    drain(&rt, &done)?;
    drop(array);
    rt.end();
    if let Some(wrong) = done.wrong.take() {
        return Err(wrong);
    }
    let mut late = Vec::new();
    for (i, disk) in disks.iter().enumerate() {
        if hung.contains(&i) {
            late.push(disk.crash_hanging());
            disk.set_fault(DriveFault::None);
        } else {
            disk.crash(world.dice.random());
        }
    }
    let rt = world.rt();
    let array = open_degraded(&rt, &disks)?;
    volumes.compare(&rt, &array, Mode::Killed)?;
    late.into_iter().for_each(rt::model::LateWrites::land);
    volumes.compare(&rt, &array, Mode::Killed)?;
    drop(array);
    rt.end();
    hung_at_open(world, untouched, mode)
}

/// As many drives as may go hang while a process opens the array, from the beginning or in the middle of it: it opens without
/// them.
fn hung_at_open(world: &mut World, volumes: &Volumes, mode: Mode) -> Result<(), String> {
    let mut volumes = volumes.fork();
    let disks = world.forks();
    let first = world.dice.random_range(0..disks.len());
    for n in 0..world.plan.tolerates() {
        let before = Cell::new(world.dice.random_range(0..3) * world.dice.random_range(0..60u32));
        let hang = move |_: &Op| match before.get() {
            0 => Verdict::Hang,
            n => {
                before.set(n - 1);
                Verdict::Proceed
            }
        };
        disks[(first + n) % disks.len()].on_op(Some(Box::new(hang)));
    }
    let rt = world.rt();
    let begun = rt.now();
    let opened = open(&rt, &disks, DEGRADED);
    let took = rt.now() - begun;
    let opened = opened.map_err(|e| format!("open beside drives that hang: {e} (after {took:?})"))?;
    if took > OPENS {
        return Err(format!("an open beside drives that hang takes {took:?}: {:#?}", opened.status().events));
    }
    volumes.compare(&rt, &opened, mode).map_err(|e| format!("{e}: {:#?}", opened.status().events))
}

/// More drives are late than may go: they are waited for.
pub fn all_late(world: &mut World, volumes: &Volumes, mode: Mode) -> Result<(), String> {
    let mut volumes = volumes.fork();
    let disks = world.forks();
    let rt = world.rt();
    let array = open_degraded(&rt, &disks)?;
    volumes.compare(&rt, &array, mode)?;
    if array.status().state != ArrayState::Optimal {
        return Ok(());
    }
    let done = Rc::new(Done::default());
    set_to_work(world, &rt, &array, &volumes, None, 4, &done);
    rt.block_on(rt.sleep(Duration::from_micros(world.dice.random_range(1..5_000))));
    // A controller resets: everything that begins now takes seconds.
    let seconds = world.dice.random_range(6..12);
    disks.iter().for_each(|d| d.set_fault(DriveFault::Stalls { one_in: 1, ns: seconds * 1_000_000_000 }));
    world.counts.add(Kind::AllLate, 1);
    done.unhurried.set(true);
    rt.block_on(rt.sleep(Duration::from_secs(seconds)));
    disks.iter().for_each(|d| d.set_fault(DriveFault::None));
    rt.block_on(rt.sleep(Duration::from_secs(seconds)));
    let status = array.status();
    // Who is late when the others answer again may go, within the redundancy.
    if status.state == ArrayState::Frozen {
        return Err(format!("it froze: {:#?}", status.events));
    }
    // A drive that serves one operation at a time takes minutes for what it was asked at once.
    drain_within(&rt, &done, Duration::from_secs(1800))?;
    done.wrong.take().map_or(Ok(()), Err)
}

/// Writes fail once or twice on every drive: nobody goes out, nothing is lost. More of them, on more drives than may go: it
/// does not freeze.
pub fn errors(world: &mut World, volumes: &Volumes, mode: Mode) -> Result<(), String> {
    if !crate::probes::is_optimal(world) {
        return Ok(());
    }
    let mut volumes = volumes.fork();
    let disks = world.forks();
    let rt = world.rt();
    let array = open_degraded(&rt, &disks)?;
    volumes.compare(&rt, &array, mode)?;
    let done = Rc::new(Done::default());
    let seated: Vec<bool> = disks.iter().map(|d| is_in(&array, d)).collect();
    let first = world.dice.random_range(0..disks.len());
    // One more than may go: who is left is written to until it works.
    let worse = (0..=world.plan.tolerates()).map(|n| (first + n) % disks.len()).collect::<Vec<_>>();
    let bad = world.dice.random_range(0..2) == 0;
    for (i, disk) in disks.iter().enumerate() {
        let after = Cell::new(world.dice.random_range(0..40u32));
        let left = Cell::new(if bad && worse.contains(&i) {
            2 * limits::WRITE_ERRORS_OUT
        } else {
            limits::WRITE_ERRORS_OUT - 1
        });
        let fail = move |op: &Op| {
            if op.kind != OpKind::Write || left.get() == 0 || after.get() > 0 {
                after.set(after.get().saturating_sub(u32::from(op.kind == OpKind::Write)));
                return Verdict::Proceed;
            }
            left.set(left.get() - 1);
            Verdict::Fail(IoError::Medium)
        };
        disk.on_op(Some(Box::new(fail)));
    }
    world.counts.add(Kind::WriteErrorsPass, 1);
    set_to_work(world, &rt, &array, &volumes, None, 6, &done);
    rt.block_on(rt.sleep(Duration::from_millis(50)));
    done.unhurried.set(true);
    rt.block_on(rt.sleep(Duration::from_secs(if bad { 8 } else { 1 })));
    let status = array.status();
    if status.state == ArrayState::Frozen {
        return Err(format!("it froze: {:#?}", status.events));
    }
    let blamed = disks.iter().enumerate().find(|(i, d)| seated[*i] && !(bad && worse.contains(i)) && !is_in(&array, d));
    if let Some((_, disk)) = blamed {
        return Err(format!("{} went out for two errors: {:#?}", disk.name(), status.events));
    }
    drain(&rt, &done)?;
    drop(array);
    rt.end();
    if let Some(wrong) = done.wrong.take() {
        return Err(wrong);
    }
    for disk in &disks {
        disk.on_op(None);
        disk.crash(world.dice.random());
    }
    let rt = world.rt();
    let array = open_degraded(&rt, &disks)?;
    volumes.compare(&rt, &array, Mode::Killed)
}

/// A drive that went out with requests in flight is not taken back as new before they are answered.
pub fn comes_back_idle(world: &mut World, volumes: &Volumes, mode: Mode) -> Result<(), String> {
    if !crate::probes::is_optimal(world) {
        return Ok(());
    }
    let mut volumes = volumes.fork();
    let disks = world.forks();
    let rt = world.rt();
    let handles = drives(&rt, &disks);
    let array = rt.block_on(Array::open(&rt, handles.clone(), DEGRADED)).map_err(|e| format!("open: {e}"))?;
    volumes.compare(&rt, &array, mode)?;
    let which = world.dice.random_range(0..disks.len());
    let done = Rc::new(Done::default());
    set_to_work(world, &rt, &array, &volumes, None, 6, &done);
    disks[which].on_op(Some(Box::new(|op: &Op| match op.kind {
        OpKind::Write => Verdict::DelayNs(9_000_000_000),
        _ => Verdict::Proceed,
    })));
    done.unhurried.set(true);
    rt.block_on(rt.sleep(GOES_ON - Duration::from_secs(2)));
    let seat = array.status().members.into_iter().find(|m| m.drive_name == disks[which].name());
    let Some(seat) = seat.filter(|m| m.state.is_out() && handles[which].in_flight() > 0) else {
        return Ok(());
    };
    world.counts.add(Kind::ComesBackBusy, 1);
    disks[which].on_op(None);
    let with = handles[which].clone();
    match rt.block_on(array.drive_replace(base::MemberId(seat.member), with, true)) {
        Err(_) => {}
        Ok(()) => return Err("it came back with requests in flight".to_owned()),
    }
    drain(&rt, &done)?;
    done.wrong.take().map_or(Ok(()), Err)
}

/// One drive serves everything a thousand times as slowly, and blocks rot on another that may go: reads do not wait for the
/// one, and do not believe the other.
pub fn read_around(world: &mut World, volumes: &Volumes, mode: Mode) -> Result<(), String> {
    if !crate::probes::is_optimal(world) {
        return Ok(());
    }
    let mut volumes = volumes.fork();
    let disks = world.forks();
    let rt = world.rt();
    let array = open_degraded(&rt, &disks)?;
    volumes.compare(&rt, &array, mode)?;
    rt.block_on(rt.sleep(Duration::from_secs(1)));
    let which = world.dice.random_range(0..disks.len());
    let mut places: Vec<(String, u64)> = Vec::new();
    for held in volumes.sure() {
        let blocks = held.model.borrow().sectors() as u64 / 8;
        places.extend((0..blocks).map(|block| (held.name.clone(), block * BLOCK)));
    }
    if places.is_empty() {
        return Ok(());
    }
    if world.dice.random_range(0..2) == 0 {
        // Another one was slow before, and is itself again.
        let was = &disks[(which + 1) % disks.len()];
        was.set_fault(DriveFault::Slow { factor: 50 });
        for _ in 0..200 {
            let (name, at) = &places[world.dice.random_range(0..places.len())];
            crate::probes::read_block(&rt, &array, name, *at).map_err(|e| format!("{name} at {at}: {e}"))?;
        }
        was.set_fault(DriveFault::None);
    }
    let factor = 1000;
    disks[which].set_fault(DriveFault::Slow { factor });
    let at_least = Duration::from_nanos(disks[which].params().read_ns * u64::from(factor));
    world.counts.add(Kind::ReadAround, 1);
    let mut slow = 0;
    for n in 0..300 {
        let (name, at) = &places[world.dice.random_range(0..places.len())];
        let begun = rt.now();
        crate::probes::read_block(&rt, &array, name, *at).map_err(|e| format!("{name} at {at}: {e}"))?;
        // One in sixteen asks whether the drive is itself again, and is answered in time all the same.
        slow += u32::from(n >= 100 && rt.now() - begun >= at_least);
    }
    // A drive with one channel and much jitter may keep others waiting, too.
    if slow > 10 {
        return Err(format!("{slow} of 200 reads waited for a slow drive: {:#?}", array.status().members));
    }
    // Late by seconds it goes out, and then there is no redundancy left.
    if array.status().members.iter().any(|m| m.state != SeatState::In) {
        return Ok(());
    }
    // The drive is slow and another is wrong: too much for one redundancy, so it is waited for.
    let census = Census::take(&disks);
    let other = (which + 1) % disks.len();
    let spots: Vec<Spot> = census.of(Kind::RotData).iter().copied().filter(|(d, _)| *d == other).collect();
    for spot in spots.into_iter().take(200) {
        flip(world, &disks, spot);
    }
    let spots: Vec<Spot> = census.of(Kind::RotParity).iter().copied().filter(|(d, _)| *d == other).collect();
    for spot in spots.into_iter().take(200) {
        flip(world, &disks, spot);
    }
    for held in volumes.sure() {
        let model = held.model.borrow();
        let blocks = model.sectors() as u64 / 8;
        for block in (0..blocks).take(400) {
            let found = crate::probes::read_block(&rt, &array, &held.name, block * BLOCK)
                .map_err(|e| format!("{} at block {block}: {e}", held.name));
            if found.is_err() && array.status().members.iter().any(|m| m.state != SeatState::In) {
                return Ok(());
            }
            let found = found?;
            model.check(block as usize * 8, &found, Mode::Killed).map_err(|e| format!("{}: {e}", held.name))?;
        }
    }
    Ok(())
}
