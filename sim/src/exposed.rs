//! Exposure: as many drives as `status` says may fail do, whichever they are, at any moment. On copies.
//!
//! Law: then everything is read that was acknowledged; also when the process dies with them.

use std::rc::Rc;
use std::time::Duration;

use api::{ArrayState, ArrayView, SeatState};
use array::Array;
use base::MemberId;
use rand::RngExt;
use rand::seq::SliceRandom;
use rt::Rt;
use rt::model::Disk;

use crate::kind::Kind;
use crate::model::Mode;
use crate::run::{DEGRADED, set_to_work};
use crate::volumes::Volumes;
use crate::workload::Done;
use crate::world::{World, open};

/// Moments that are looked at.
const LOOKS: usize = 4;

/// Drives fail one after the other under load; at moments between, others are taken away from copies.
pub fn any_may_fail(world: &mut World, volumes: &Volumes, mode: Mode) -> Result<(), String> {
    let disks = world.forks();
    let rt = world.rt();
    let array = open(&rt, &disks, DEGRADED);
    let array = array.map_err(|e| format!("open: {e}"))?;
    let mut volumes = volumes.fork();
    volumes.compare(&rt, &array, mode)?;
    let done = Rc::new(Done::default());
    let hosts = world.dice.random_range(0..3);
    set_to_work(world, &rt, &array, &volumes, None, hosts, &done);
    world.counts.add(Kind::AnyMayFail, 1);
    for _ in 0..LOOKS {
        rt.block_on(rt.sleep(Duration::from_micros(1 << world.dice.random_range(0..23))));
        if may_lose_one(&array, &disks) && world.dice.random_range(0..2) == 0 {
            lose_one(world, &rt, &array, &disks);
            rt.block_on(rt.sleep(Duration::from_micros(1 << world.dice.random_range(0..23))));
        }
        if let Some(wrong) = done.wrong.take() {
            return Err(wrong);
        }
        what_may_fail_does(world, &array, &disks, &volumes)?;
    }
    done.stop.set(true);
    Ok(())
}

/// Whether one more drive may fail by what `status` says. A drive that was pulled, and of which nothing was asked since, counts as
/// one that is there: it is one of those that may fail. More than that at once is a loss beyond what was said, of which
/// nothing is promised here. (An array that holds nothing goes on all the same; but until a generation says so, it alone knows
/// that it holds nothing, and who opens it is right to freeze.)
fn may_lose_one(array: &Array, disks: &[Disk]) -> bool {
    let status = array.status();
    let unnoticed = |d: &&Disk| !d.is_attached() && takes_part(&status, d);
    status.exposure.may_fail > disks.iter().filter(unnoticed).count()
}

fn takes_part(status: &ArrayView, disk: &Disk) -> bool {
    let is_in = |state: SeatState| matches!(state, SeatState::In | SeatState::Leaving);
    status.members.iter().any(|m| m.drive_name == disk.name() && is_in(m.state))
}

/// A drive that is in is pulled, or failed by command.
fn lose_one(world: &mut World, rt: &Rt, array: &Array, disks: &[Disk]) {
    let members = array.status().members;
    let mut there: Vec<_> = members.iter().filter(|m| m.state == SeatState::In).collect();
    there.shuffle(&mut world.dice);
    let Some(member) = there.first() else { return };
    if world.dice.random_range(0..2) == 0 {
        disks.iter().filter(|d| d.name() == member.drive_name).for_each(Disk::detach);
    } else {
        // It may be refused: a drive that is about to be found missing counts too.
        let _refused = rt.block_on(array.drive_fail(MemberId(member.member)));
    }
}

/// At this moment the process dies, and as many drives with it as may fail.
fn what_may_fail_does(world: &mut World, array: &Array, disks: &[Disk], volumes: &Volumes) -> Result<(), String> {
    let status = array.status();
    if status.state == ArrayState::Frozen {
        return Ok(());
    }
    let mut left: Vec<Disk> = disks.iter().filter(|d| takes_part(&status, d)).map(Disk::fork).collect();
    left.shuffle(&mut world.dice);
    left.truncate(left.len() - status.exposure.may_fail.min(left.len()));
    let lost: Vec<&str> = disks.iter().map(Disk::name).filter(|name| !left.iter().any(|d| d.name() == *name)).collect();
    let said = format!("{:?} of {:?}, without {lost:?}", status.exposure, status.state);
    let rt = world.rt();
    let opened = open(&rt, &left, DEGRADED);
    let opened = opened.map_err(|e| format!("{said}: {e}: {:#?}", status.events))?;
    if opened.state() == ArrayState::Frozen {
        return Err(format!("{said}: it is frozen: {:#?}; {:#?}", status.events, opened.status().events));
    }
    let compared = volumes.fork().compare(&rt, &opened, Mode::Killed);
    compared.map_err(|e| format!("{said}: {e}: {:#?}; {:#?}", status.events, opened.status().events))?;
    drop(opened);
    rt.end();
    Ok(())
}
