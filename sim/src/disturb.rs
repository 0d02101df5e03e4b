//! What happens to an array at work: drives pulled, failed, replaced and added, volumes made, grown and deleted. Always
//! within the redundancy.

use std::rc::Rc;
use std::time::Duration;

use api::{ArrayState, SeatState};
use array::Array;
use base::MemberId;
use rand::RngExt;
use rt::{Drive, Rt};

use crate::census;
use crate::kind::Kind;
use crate::run::set_to_work;
use crate::volumes::{Fate, Volumes};
use crate::workload::Done;
use crate::world::World;

/// Sometimes a drive is disturbed.
pub fn drives(world: &mut World, rt: &Rt, array: &Array) {
    let status = array.status();
    let out: Vec<u16> = status.members.iter().filter(|m| m.state.is_out()).map(|m| m.member).collect();
    let lost = world.disks.iter().filter(|d| !d.is_attached()).count();
    let optimal = status.state == ArrayState::Optimal && lost == 0;
    let may_lose = world.may_lose();
    match world.dice.random_range(0..13) {
        0 if world.plan.has(Kind::DrivePulled) && optimal && may_lose > 0 => {
            let sound = world.sound_disks();
            for _ in 0..world.dice.random_range(1..=may_lose) {
                sound[world.dice.random_range(0..sound.len())].detach();
                world.counts.add(Kind::DrivePulled, 1);
            }
        }
        1 if world.chance(Kind::DrivePulled, 2) && lost == 0 => {
            if let Some(rotten) = world.rotten_disks().first() {
                rotten.detach();
                world.counts.add(Kind::DrivePulled, 1);
            }
        }
        2..=3 if world.plan.has(Kind::DriveReplaced) && !out.is_empty() => {
            let fresh = world.new_disk();
            let seat = MemberId(out[0]);
            let old = status.members.iter().find(|m| m.member == seat.0).map(|m| m.drive_name.clone());
            if rt.block_on(array.drive_replace(seat, Drive::modelled(rt, &fresh), false)).is_ok() {
                world.counts.add(Kind::DriveReplaced, 1);
                world.disks.retain(|d| Some(d.name().to_owned()) != old);
                world.disks.push(fresh);
            }
        }
        4 => {
            // A rebuild may have to wait for the cleaner, and that for the hosts.
            let patience = rt.sleep(Duration::from_millis(200));
            rt.block_on(futures::future::select(Box::pin(array.rebuild_done()), Box::pin(patience)));
        }
        5 if world.plan.has(Kind::SpareAdded)
            && world.plan.tolerates() > 0
            && status.members.iter().all(|m| m.state != SeatState::Spare) =>
        {
            let fresh = world.new_disk();
            if rt.block_on(array.drive_add_spare(Drive::modelled(rt, &fresh), false)).is_ok() {
                world.counts.add(Kind::SpareAdded, 1);
                world.disks.push(fresh);
            }
        }
        6 if world.plan.has(Kind::DriveFailed) && optimal && may_lose > 0 => {
            let sound = world.sound_disks();
            let disk = &sound[world.dice.random_range(0..sound.len())];
            let seat = status.members.iter().find(|m| m.drive_name == disk.name() && m.state == SeatState::In);
            if let Some(member) = seat
                && rt.block_on(array.drive_fail(MemberId(member.member))).is_ok()
            {
                world.counts.add(Kind::DriveFailed, 1);
            }
        }
        _ => {}
    }
}

/// Takes away a drive or more while no process runs, if the array says that it could do without them.
pub fn take_before_open(world: &mut World) {
    let may_lose = world.may_lose();
    if may_lose == 0 || !world.chance(Kind::MissingAtOpen, 3) || !crate::probes::is_optimal(world) {
        return;
    }
    // An open would have sealed what lacks a column and holds nothing; here it still is open.
    if !census::is_whole(&world.disks) {
        return;
    }
    let sound = world.sound_disks();
    for _ in 0..world.dice.random_range(1..=may_lose) {
        sound[world.dice.random_range(0..sound.len())].detach();
        world.counts.add(Kind::MissingAtOpen, 1);
    }
}

/// Sometimes a volume is made, grown or deleted.
pub fn volumes(world: &mut World, rt: &Rt, array: &Array, volumes: &mut Volumes, done: &Rc<Done>) {
    if !world.chance(Kind::VolumeChanged, 6) {
        return;
    }
    let sure: Vec<usize> = (0..volumes.all.len()).filter(|&i| volumes.all[i].fate.get() == Fate::Stays).collect();
    let picked = (!sure.is_empty()).then(|| &volumes.all[sure[world.dice.random_range(0..sure.len())]]);
    let array = array.clone();
    match (world.dice.random_range(0..4), picked) {
        (0, Some(held)) if sure.len() > 1 || world.dice.random_range(0..4) == 0 => {
            let (name, fate) = (held.name.clone(), held.fate.clone());
            fate.set(Fate::Going);
            let deleted = async move {
                if array.volume_delete(&name).await.is_ok() {
                    fate.set(Fate::Gone);
                }
            };
            rt.spawn(deleted).detach();
        }
        (1, Some(held)) => {
            let (name, fate, model) = (held.name.clone(), held.fate.clone(), held.model.clone());
            let known = array.volume(&name).map_or(0, |v| v.bytes());
            let bytes = known + 4096 * world.dice.random_range(1..200);
            fate.set(Fate::Growing(bytes));
            let grown = async move {
                if array.volume_grow(&name, bytes).await.is_ok() {
                    model.borrow_mut().grow(bytes);
                    fate.set(Fate::Stays);
                }
            };
            rt.spawn(grown).detach();
        }
        _ if volumes.all.len() < 8 => {
            let name = format!("n{}", world.dice.random_range(0..100));
            if volumes.all.iter().any(|held| held.name == name && held.fate.get() != Fate::Gone) {
                return;
            }
            volumes.all.retain(|held| held.name != name);
            let bytes = 4096 * world.dice.random_range(1..500);
            volumes.add(&name, bytes, Fate::Coming);
            let made = volumes.all.len() - 1;
            let fate = volumes.all[made].fate.clone();
            let (maker, wanted) = (array.clone(), name.clone());
            let create = async move {
                // A host may have been answered before, and more may have happened to it since.
                if maker.volume_create(&wanted, bytes).await.is_ok() && fate.get() == Fate::Coming {
                    fate.set(Fate::Stays);
                }
            };
            rt.spawn(create).detach();
            set_to_work(world, rt, &array, volumes, Some(made), 1, done);
        }
        _ => return,
    }
    world.counts.add(Kind::VolumeChanged, 1);
}
