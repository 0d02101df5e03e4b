//! What lies below the drives, and the process itself: file systems that are full for a while, and standstills. Neither is a
//! drive's fault, so nobody goes out for it, nothing is lost, and all goes on by itself.

use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use array::{Array, Fault, check};
use futures::future::{Either, select};
use rand::RngExt;
use rt::Rt;
use rt::model::{Disk, Fault as DriveFault, FullFor};

use crate::kind::Kind;
use crate::model::Mode;
use crate::probes::{BLOCK, read_block};
use crate::run::{DEGRADED, drain, set_to_work};
use crate::volumes::Volumes;
use crate::workload::Done;
use crate::world::{World, drives, labelled, open, open_degraded};

/// From room that was made to the last write that waited for it: the longest pause between two tries, and what each takes.
const GOES_ON: Duration = Duration::from_secs(20);

/// Seats that are out, and drives that are suspect.
fn blamed(array: &Array) -> Vec<String> {
    let members = array.status().members.into_iter();
    let blamed = members.filter(|m| m.state.is_out() || m.suspect.is_some());
    blamed.map(|m| format!("{} {:?} {:?}", m.drive_name, m.state, m.suspect)).collect()
}

fn nobody_more(array: &Array, before: &[String]) -> Result<(), String> {
    let now = blamed(array);
    if now.iter().all(|one| before.contains(one)) {
        Ok(())
    } else {
        Err(format!("{now:?}, it was {before:?}: {:#?}", array.status().events))
    }
}

fn fill(disks: &[Disk], which: &[usize], writes: FullFor) {
    which.iter().for_each(|i| disks[*i].set_fault(DriveFault::NoSpace { writes }));
}

/// Some drives, or all, have no room for a while: in one life that goes on, in one that is closed, and across ends.
pub fn no_room(world: &mut World, volumes: &Volumes, mode: Mode) -> Result<(), String> {
    let mut volumes = volumes.fork();
    let disks = world.forks();
    let mut mode = mode;
    for life in 0..world.dice.random_range(1..4) {
        let all = world.dice.random_range(0..2) == 0;
        let which: Vec<usize> =
            (0..disks.len()).filter(|_| all || world.dice.random_range(0..disks.len()) == 0).collect();
        let writes = [FullFor::All, FullFor::New][world.dice.random_range(0..2)];
        let rt = world.rt();
        if world.dice.random_range(0..6) == 0 {
            // Recovery may need none, or says that it does.
            fill(&disks, &which, writes);
            match open(&rt, &disks, DEGRADED) {
                Ok(array) => drop(array),
                Err(refused) if refused.why.contains("is full") => {}
                Err(refused) => return Err(format!("life {life}, open without room: {refused}")),
            }
            rt.end();
            mode = end(world, &disks, mode);
            continue;
        }
        mode = full_for_a_while(world, &rt, &disks, &mut volumes, mode, (&which, writes))
            .map_err(|e| format!("life {life}, {writes:?} on {which:?}: {e}"))?;
    }
    let rt = world.rt();
    let array = open(&rt, &disks, DEGRADED).map_err(|e| format!("last open: {e}"))?;
    volumes.compare(&rt, &array, mode)?;
    drop(array);
    rt.end();
    let copies: Vec<Disk> = disks.iter().map(Disk::fork).collect();
    let rt = world.rt();
    let report = rt.block_on(check(&rt, drives(&rt, &labelled(&rt, &copies)), |_| {})).map_err(|e| e.to_string())?;
    if report.error_count == 0 { Ok(()) } else { Err(format!("check: {:#?}", report.errors)) }
}

/// The process dies, or the power fails; there is room from then on.
fn end(world: &mut World, disks: &[Disk], before: Mode) -> Mode {
    let cut = world.dice.random_range(0..2) == 0;
    for disk in disks {
        if cut {
            disk.power_cut(world.dice.random())
        } else {
            disk.crash(world.dice.random())
        }
        disk.set_fault(DriveFault::None);
    }
    // What was not looked at since a power cut may still be what the power cut left.
    if cut || before == Mode::PowerCut { Mode::PowerCut } else { Mode::Killed }
}

fn full_for_a_while(
    world: &mut World,
    rt: &Rt,
    disks: &[Disk],
    volumes: &mut Volumes,
    mode: Mode,
    (which, writes): (&[usize], FullFor),
) -> Result<Mode, String> {
    let array = open_degraded(rt, disks)?;
    volumes.compare(rt, &array, mode)?;
    let before = blamed(&array);
    let done = Rc::new(Done::default());
    set_to_work(world, rt, &array, volumes, None, 4, &done);
    rt.block_on(rt.sleep(Duration::from_micros(world.dice.random_range(1..20_000))));
    done.unhurried.set(true);
    fill(disks, which, writes);
    let met = |disks: &[Disk]| disks.iter().map(|d| d.faults_met().no_space).sum::<u64>();
    let met_before = met(disks);
    rt.block_on(rt.sleep(Duration::from_millis([50, 3_000, 25_000, 90_000][world.dice.random_range(0..4)])));
    world.counts.add(Kind::NoRoom, u64::from(met(disks) > met_before));
    nobody_more(&array, &before)?;
    for held in volumes.sure().take(2) {
        let blocks = held.model.borrow().sectors() as u64 / 8;
        for _ in 0..5 {
            let at = world.dice.random_range(0..blocks) * BLOCK;
            read_block(rt, &array, &held.name, at).map_err(|e| format!("reading {} at {at}: {e}", held.name))?;
        }
    }
    let mode = match world.dice.random_range(0..4) {
        0 => {
            drop(array);
            rt.end();
            return done.wrong.take().map_or(Ok(end(world, disks, Mode::Killed)), Err);
        }
        1 => {
            let closed = {
                let close = pin!(array.clone().close());
                match rt.block_on(select(close, pin!(rt.sleep(Duration::from_secs(60))))) {
                    Either::Left((closed, _)) => closed,
                    Either::Right(_) => return Err(format!("the close does not end: {:#?}", array.status().events)),
                }
            };
            if let Err(fault) = closed
                && fault != Fault::NoRoom
            {
                return Err(format!("close: {fault}"));
            }
            Mode::Killed
        }
        _ => {
            fill(disks, which, FullFor::Nothing);
            rt.block_on(rt.sleep(GOES_ON));
            let alarms = array.status().alarms;
            if alarms.iter().any(|a| a.code == api::AlarmCode::NoRoomBelow) {
                return Err(format!("it does not go on: {alarms:?}"));
            }
            let refused = done.no_space.get();
            rt.block_on(rt.sleep(Duration::from_secs(1)));
            nobody_more(&array, &before)?;
            drain(rt, &done)?;
            volumes.compare(rt, &array, Mode::Killed).map_err(|e| format!("after {refused} refusals: {e}"))?;
            rt.block_on(array.clone().close()).map_err(|e| format!("close with room: {e}"))?;
            Mode::Killed
        }
    };
    drop(array);
    rt.end();
    disks.iter().for_each(|d| d.set_fault(DriveFault::None));
    disks.iter().for_each(|d| d.crash(world.dice.random()));
    done.wrong.take().map_or(Ok(mode), Err)
}

/// The process stands still, for a moment or an hour, again and again: nobody is late by that.
pub fn standstill(world: &mut World, volumes: &Volumes, mode: Mode) -> Result<(), String> {
    let mut volumes = volumes.fork();
    let disks = world.forks();
    let rt = world.rt();
    let array = open_degraded(&rt, &disks)?;
    volumes.compare(&rt, &array, mode)?;
    let before = blamed(&array);
    let done = Rc::new(Done::default());
    set_to_work(world, &rt, &array, &volumes, None, 3, &done);
    for _ in 0..world.dice.random_range(3..12) {
        rt.block_on(rt.sleep(Duration::from_micros(1 << world.dice.random_range(0..18))));
        rt.stand_still(Duration::from_micros(1 << world.dice.random_range(10..32)));
        world.counts.add(Kind::Standstill, 1);
        nobody_more(&array, &before)?;
    }
    done.unhurried.set(true);
    rt.block_on(rt.sleep(Duration::from_secs(2)));
    nobody_more(&array, &before)?;
    drain(&rt, &done)?;
    volumes.compare(&rt, &array, Mode::Killed)?;
    done.wrong.take().map_or(Ok(()), Err)
}
