//! Quality of service, on copies of the drives: limits hold and outlive the process, nobody is forgotten in a queue.

use std::rc::Rc;
use std::time::Duration;

use api::LimitsView;
use array::{Array, Limits};
use rand::RngExt;
use rt::Rt;
use rt::model::Disk;

use crate::kind::Kind;
use crate::model::Mode;
use crate::run::{drain, set_to_work};
use crate::volumes::{Fate, Volumes};
use crate::workload::Done;
use crate::world::{World, open_degraded};

fn open_in(world: &mut World, disks: &[Disk]) -> Result<(Rt, Array), String> {
    let rt = world.rt();
    let array = open_degraded(&rt, disks)?;
    Ok((rt, array))
}

fn one_of(world: &mut World, volumes: &Volumes) -> Option<usize> {
    let sure: Vec<usize> = (0..volumes.all.len()).filter(|&i| volumes.all[i].fate.get() == Fate::Stays).collect();
    (!sure.is_empty()).then(|| sure[world.dice.random_range(0..sure.len())])
}

/// A limit is set, the process dies at once or the power fails: it is still there, and is kept.
pub fn limits(world: &mut World, volumes: &Volumes, mode: Mode) -> Result<(), String> {
    const HOSTS: u64 = 12;
    let mut volumes = volumes.fork();
    let disks = world.forks();
    let (rt, array) = open_in(world, &disks)?;
    volumes.compare(&rt, &array, mode)?;
    let Some(which) = one_of(world, &volumes) else { return Ok(()) };
    let name = volumes.all[which].name.clone();
    let limits = Limits {
        iops: world.dice.random_range(100..2000),
        bytes_per_second: [0, 64 << 20][world.dice.random_range(0..2)],
        burst_ms: world.dice.random_range(0..10),
    };
    rt.block_on(array.volume_limit(&name, limits)).map_err(|e| e.to_string())?;
    drop(array);
    rt.end();
    let cut = world.dice.random_range(0..2) == 0;
    disks.iter().for_each(|d| if cut { d.power_cut(world.dice.random()) } else { d.crash(world.dice.random()) });
    world.counts.add(Kind::VolumeLimited, 1);
    let (rt, array) = open_in(world, &disks)?;
    volumes.compare(&rt, &array, if cut { Mode::PowerCut } else { Mode::Killed })?;
    let line = || array.volumes().into_iter().find(|v| *v.name == *name).ok_or("the volume is gone");
    let (before, set) = (line()?, line()?);
    let (iops, bytes_per_second, burst_ms) = (limits.iops, limits.bytes_per_second, limits.burst_ms);
    if set.limits != (LimitsView { iops, bytes_per_second, burst_ms }) {
        return Err(format!("{limits:?} were set, found {set:?}"));
    }
    let done = Rc::new(Done::default());
    set_to_work(world, &rt, &array, &volumes, Some(which), HOSTS as usize, &done);
    let ms = world.dice.random_range(10..50);
    rt.block_on(rt.sleep(Duration::from_millis(ms)));
    let after = line()?;
    let asked = after.reads + after.writes + after.deallocates - before.reads - before.writes - before.deallocates;
    // Each host has asked for one more than it got.
    let most = u64::from(limits.iops) * (ms + u64::from(limits.burst_ms)) / 1000 + 2 + HOSTS;
    if asked > most {
        return Err(format!("{asked} requests in {ms} ms, and {limits:?} let {most} through"));
    }
    drain(&rt, &done).map_err(|e| format!("{e}: {:#?}", array.status()))?;
    done.wrong.take().map_or(Ok(()), Err)
}

/// Many hosts on one volume, one on each of the others: all have their answers.
pub fn neighbours(world: &mut World, volumes: &Volumes, mode: Mode) -> Result<(), String> {
    let mut volumes = volumes.fork();
    let disks = world.forks();
    let (rt, array) = open_in(world, &disks)?;
    volumes.compare(&rt, &array, mode)?;
    let Some(loud) = one_of(world, &volumes) else { return Ok(()) };
    if volumes.sure().count() < 2 {
        return Ok(());
    }
    world.counts.add(Kind::LoudNeighbour, 1);
    let done = Rc::new(Done::default());
    let hosts = 33 * disks.len();
    set_to_work(world, &rt, &array, &volumes, Some(loud), hosts, &done);
    for quiet in 0..volumes.all.len() {
        if quiet != loud && volumes.all[quiet].fate.get() == Fate::Stays {
            set_to_work(world, &rt, &array, &volumes, Some(quiet), 1, &done);
        }
    }
    rt.block_on(rt.sleep(Duration::from_millis(1 << world.dice.random_range(2..6))));
    drain(&rt, &done)?;
    done.wrong.take().map_or(Ok(()), Err)
}
