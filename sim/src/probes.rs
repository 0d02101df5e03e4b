//! Trials ([`crate::trials`]) of drives that do not belong together, two processes at once, too few drives, losses one after
//! the other. Damage beyond the redundancy: [`crate::beyond`].

use std::collections::BTreeSet;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use api::{ArrayState, ArrayView, SeatState};
use array::{Array, CreateSpec, Fault, OpenHow, RefusedCode};
use base::{BLOCK_BYTES, MemberId};
use futures::future::{Either, select};
use ondisk::{Level, Scheme};
use rand::RngExt;
use rt::model::{Disk, Fault as DriveFault};
use rt::{Bytes, Drive, Rt};

use crate::census::newest_generation;
use crate::kind::Kind;
use crate::model::{Mode, SECTOR};
use crate::run::{DEGRADED, changed, set_to_work, silent};
use crate::volumes::{Fate, Volumes};
use crate::workload::{Done, joined};
use crate::world::{World, drives, labelled, open};

/// Bytes of a block.
pub const BLOCK: u64 = BLOCK_BYTES as u64;

/// What copies of the drives say when they are opened.
fn look(world: &mut World) -> Option<ArrayView> {
    let rt = world.rt();
    let disks = labelled(&rt, &world.forks());
    let status = open(&rt, &disks, DEGRADED).ok().map(|array| array.status());
    rt.end();
    status
}

/// Whether the array would say that it has its full redundancy.
pub fn is_optimal(world: &mut World) -> bool {
    // Not only once an open has brought a drive up to date.
    let Some(newest) = newest_generation(&world.disks) else { return false };
    let behind = |disk: &Disk| {
        newest_generation(std::slice::from_ref(disk)).is_some_and(|own| own.number.0 + 1 < newest.number.0)
    };
    let out = newest.members.iter().any(|m| m.state == ondisk::MemberState::Out);
    if out || world.disks.iter().any(behind) {
        return false;
    }
    look(world).is_some_and(|s| s.state == ArrayState::Optimal && s.members.len() == world.disks.len())
}

/// One block.
pub fn read_block(rt: &Rt, array: &Array, volume: &str, at: u64) -> Result<Vec<u8>, Fault> {
    read(rt, array, volume, at, BLOCK)
}

fn read(rt: &Rt, array: &Array, volume: &str, at: u64, bytes: u64) -> Result<Vec<u8>, Fault> {
    let volume = array.volume(volume).ok_or(Fault::Closed)?;
    let parts = rt.block_on(volume.read(at, bytes))?;
    Ok(joined(&parts))
}

/// Reads much of every volume: each is one that may be there, or an error if `may_fail`.
pub fn read_some(
    world: &mut World,
    rt: &Rt,
    array: &Array,
    volumes: &Volumes,
    mode: Mode,
    may_fail: bool,
) -> Result<(), String> {
    for held in volumes.sure() {
        let model = held.model.borrow();
        let bytes = (model.sectors() * SECTOR) as u64;
        for at in (0..bytes).step_by(64 * BLOCK as usize) {
            // One lost block costs the whole piece: now and then only one is asked for.
            let n = if world.dice.random_range(0..2) == 0 { BLOCK } else { (64 * BLOCK).min(bytes - at) };
            match read(rt, array, &held.name, at, n) {
                Ok(found) => {
                    model.check(at as usize / SECTOR, &found, mode).map_err(|e| format!("{}: {e}", held.name))?;
                }
                Err(Fault::Frozen | Fault::Medium | Fault::Closed | Fault::OutOfRange) if may_fail => {}
                Err(other) => return Err(format!("{} at {at}: {other}", held.name)),
            }
        }
    }
    Ok(())
}

/// A drive of another array is among those given.
pub fn foreign_drive(world: &mut World) -> Result<(), String> {
    let rt = world.rt();
    let foreign = world.new_disk();
    let spec = CreateSpec { name: "other".into(), level: Level::Raid0, width: None, ..world.plan.spec() };
    let made = rt.block_on(Array::create(&rt, drives(&rt, std::slice::from_ref(&foreign)), &spec));
    rt.block_on(made.map_err(|e| e.to_string())?.close()).map_err(|e| e.to_string())?;
    let mut disks = labelled(&rt, &world.forks());
    disks.insert(world.dice.random_range(0..=disks.len()), foreign);
    world.counts.add(Kind::ForeignDrive, 1);
    match open(&rt, &disks, DEGRADED) {
        Err(refused) if refused.code == RefusedCode::InUse => Ok(()),
        Err(other) => Err(other.to_string()),
        Ok(_) => Err("it was let in".to_owned()),
    }
}

/// Opens `disks` and writes something down; false when they do not carry the array.
fn use_alone(world: &mut World, disks: &[Disk], volume: &str) -> bool {
    let rt = world.rt();
    let Ok(array) = open(&rt, disks, DEGRADED) else { return false };
    // Sometimes for longer than a generation remembers.
    for _ in 0..[0, 0, 0, 20][world.dice.random_range(0..4)] {
        let _may_freeze = rt.block_on(array.checkpoint());
    }
    let used = rt.block_on(array.volume_create(volume, 1 << 20)).is_ok() && rt.block_on(array.clone().close()).is_ok();
    drop(array);
    rt.end();
    used
}

/// Two sets of drives that both carry the array are used apart, then opened together.
pub fn diverged(world: &mut World) -> Result<(), String> {
    let parted_now = is_optimal(world);
    for _ in 0..4 {
        let (ours, theirs) = (world.forks(), world.forks());
        let mut sides: (Vec<Disk>, Vec<Disk>) = (Vec::new(), Vec::new());
        for (our, their) in ours.into_iter().zip(theirs) {
            if world.dice.random_range(0..2) == 0 {
                sides.0.push(our);
            } else {
                sides.1.push(their);
            }
        }
        if sides.0.is_empty() || sides.1.is_empty() {
            continue;
        }
        if !use_alone(world, &sides.0, "d1") || !use_alone(world, &sides.1, "d2") {
            continue;
        }
        let ours: BTreeSet<String> = sides.0.iter().map(|d| d.name().to_owned()).collect();
        let together: Vec<Disk> = sides.0.into_iter().chain(sides.1).collect();
        world.counts.add(Kind::Diverged, 1);
        let rt = world.rt();
        let opened = open(&rt, &together, DEGRADED);
        match opened {
            Err(refused) if refused.code == RefusedCode::Diverged => {}
            Err(other) => return Err(other.to_string()),
            Ok(array) => {
                // Used apart long after it was out: it is old, and not asked.
                let believed = array.status().members.into_iter().filter(|m| m.state == SeatState::In);
                let sides: BTreeSet<bool> = believed.map(|m| ours.contains(&m.drive_name)).collect();
                if parted_now || sides.len() > 1 {
                    return Err("two histories were taken for one".to_owned());
                }
            }
        }
    }
    Ok(())
}

/// A second process opens the array.
pub fn second_process(world: &mut World, volumes: &Volumes, mode: Mode) -> Result<(), String> {
    let disks = world.forks();
    let rt = world.rt();
    let first = open(&rt, &disks, DEGRADED).map_err(|e| e.to_string())?;
    world.counts.add(Kind::SecondProcess, 1);
    // It may notice the first, which is at work in the background, before that notices it.
    let Ok(second) = open(&rt, &disks, DEGRADED) else { return Ok(()) };
    // At one instant the last one to write a generation wins, whichever that is: the other stops. Both may meet what the other
    // has just written; then both stop, and the next one goes on.
    let goes_on = |array: &Array, name: &str| {
        let made = rt.block_on(array.volume_create(name, 1 << 20)).is_ok();
        made || array.status().state != ArrayState::Frozen
    };
    match (goes_on(&first, "mine"), goes_on(&second, "yours")) {
        (true, true) => return Err("both went on".to_owned()),
        (false, false) => {}
        _ => return Ok(()),
    }
    drop((first, second));
    rt.end();
    disks.iter().for_each(|d| d.crash(world.dice.random()));
    let rt = world.rt();
    let array = open(&rt, &disks, DEGRADED).map_err(|e| format!("after both: {e}"))?;
    let made = rt.block_on(array.volume_create("ours", 1 << 20));
    made.map_err(|e| format!("after both: {e}: {:#?}", array.status().events))?;
    let mut volumes = volumes.fork();
    // Who stopped may have made its volume all the same.
    for (name, fate) in [("mine", Fate::Coming), ("yours", Fate::Coming), ("ours", Fate::Stays)] {
        volumes.add(name, 1 << 20, fate);
    }
    volumes.compare(&rt, &array, mode)
}

/// More drives are missing than the redundancy covers: nothing old is told, nothing is written, and with all of them
/// everything is there again.
pub fn too_few(world: &mut World, volumes: &Volumes, mode: Mode) -> Result<(), String> {
    let most = world.disks.len().saturating_sub(world.plan.tolerates() + 1);
    if most == 0 || !is_optimal(world) {
        return Ok(());
    }
    let Some(status) = look(world) else { return Ok(()) };
    if status.members.iter().any(|m| m.state != SeatState::In) || status.members.len() != world.disks.len() {
        return Ok(());
    }
    world.counts.add(Kind::TooFew, 1);
    let keep = world.dice.random_range(1..=most);
    let mut here: Vec<usize> = (0..world.disks.len()).collect();
    while here.len() > keep {
        here.swap_remove(world.dice.random_range(0..here.len()));
    }
    let some = |forks: &[Disk]| -> Vec<Disk> { here.iter().map(|&i| forks[i].clone()).collect() };
    let rt = world.rt();
    let asked = open(&rt, &some(&world.forks()), OpenHow::default());
    if keep * 2 <= world.disks.len() && asked.is_ok() {
        return Err(format!("{keep} of {} drives were enough without a word", world.disks.len()));
    }
    drop(asked);
    rt.end();
    let all = world.forks();
    let disks = some(&all);
    let rt = world.rt();
    let Ok(array) = open(&rt, &disks, DEGRADED) else { return Ok(()) };
    let frozen = array.status().state == ArrayState::Frozen;
    read_some(world, &rt, &array, volumes, mode, frozen)?;
    if !frozen {
        // Mirrors may lose more, if it is the right ones.
        return Ok(());
    }
    let written = rt.block_on(array.volume_create("w", 1 << 20)).is_ok();
    let changed: u64 = disks.iter().map(|d| d.counters().writes + d.counters().deallocates).sum();
    drop(array);
    rt.end();
    if written || changed > 0 {
        return Err(format!("a frozen array wrote {changed} times"));
    }
    let rt = world.rt();
    let opened = labelled(&rt, &all);
    let array = open(&rt, &opened, DEGRADED).map_err(|e| format!("reopen: {e}"))?;
    volumes.fork().compare(&rt, &array, mode)
}

/// Everything is there to read, and nothing is written.
pub fn read_only(world: &mut World, volumes: &Volumes, mode: Mode) -> Result<(), String> {
    let rt = world.rt();
    let disks = labelled(&rt, &world.forks());
    let how = OpenHow { read_only: true, ..DEGRADED };
    world.counts.add(Kind::ReadOnlyOpen, 1);
    let array = open(&rt, &disks, how).map_err(|e| e.to_string())?;
    volumes.fork().compare(&rt, &array, mode)?;
    rt.block_on(array.close()).map_err(|e| e.to_string())?;
    let changed = disks.iter().map(|d| d.counters()).map(|c| c.writes + c.deallocates).sum::<u64>();
    if changed == 0 { Ok(()) } else { Err(format!("{changed} writes")) }
}

/// A drive goes while another that is whole is being replaced: the exchange stops rather than go beyond the redundancy.
pub fn loss_in_replace(world: &mut World, volumes: &Volumes, mode: Mode) -> Result<(), String> {
    if !is_optimal(world) || world.disks.len() <= world.plan.tolerates() + 1 {
        return Ok(());
    }
    let mut volumes = volumes.fork();
    let disks = world.forks();
    let rt = world.rt();
    let array = open(&rt, &disks, DEGRADED).map_err(|e| e.to_string())?;
    volumes.compare(&rt, &array, mode)?;
    let replaced = world.dice.random_range(0..disks.len());
    let of = |name: &str| array.status().members.into_iter().find(|m| m.drive_name == name);
    // Somebody else may have taken its place for good.
    let Some(seat) = of(disks[replaced].name()).map(|m| m.member) else { return Ok(()) };
    let fresh = world.new_disk();
    fresh.set_fault(DriveFault::Slow { factor: 3000 });
    let (by, drive) = (array.clone(), Drive::modelled(&rt, &fresh));
    let exchange = rt.spawn(async move { by.drive_replace(MemberId(seat), drive, false).await });
    rt.block_on(rt.sleep(Duration::from_millis(1)));
    let done = Rc::new(Done::default());
    set_to_work(world, &rt, &array, &volumes, None, 3, &done);
    // As many as may go, and the one that is being replaced would be one more.
    let others: Vec<&Disk> = disks.iter().enumerate().filter(|(i, _)| *i != replaced).map(|(_, d)| d).collect();
    let lost: Vec<&Disk> =
        others.iter().skip(world.dice.random_range(0..others.len())).take(world.plan.tolerates()).copied().collect();
    lost.iter().for_each(|d| d.detach());
    rt.block_on(rt.sleep(Duration::from_millis(20)));
    let noticed = lost.iter().all(|d| of(d.name()).is_none_or(|m| m.state != SeatState::In));
    if !noticed || exchange.is_finished() {
        return Ok(());
    }
    world.counts.add(Kind::LossInReplace, 1);
    fresh.set_fault(DriveFault::Slow { factor: 1 });
    done.stop.set(true);
    let _either = rt.block_on(exchange);
    rt.block_on(rt.sleep(Duration::from_millis(5)));
    if array.status().state == ArrayState::Frozen && lost.len() == world.plan.tolerates() {
        return Err(format!("it froze: {:#?}", array.status().events));
    }
    done.wrong.take().map_or(Ok(()), Err)
}

/// The process dies, and while the next one opens the array the power fails: it may have written down what relies on
/// writes of the first that no flush had covered.
pub fn cut_after_kill(world: &mut World, volumes: &Volumes, mode: Mode) -> Result<(), String> {
    let mut volumes = volumes.fork();
    let disks = world.forks();
    let rt = world.rt();
    let array = open(&rt, &disks, DEGRADED).map_err(|e| e.to_string())?;
    volumes.compare(&rt, &array, mode)?;
    let done = Rc::new(Done::default());
    set_to_work(world, &rt, &array, &volumes, None, 2, &done);
    rt.block_on(rt.sleep(Duration::from_micros(world.dice.random_range(1..3_000))));
    drop(array);
    rt.end();
    disks.iter().for_each(|d| d.crash(world.dice.random()));
    let rt = world.rt();
    let changes = changed(&disks) + world.dice.random_range(0..3 * disks.len() as u64);
    let begun = async {
        while changed(&disks) < changes {
            rt.sleep(Duration::from_micros(2)).await;
        }
    };
    let opening = Array::open(&rt, drives(&rt, &labelled(&rt, &disks)), DEGRADED);
    if let Either::Left((opened, _)) = rt.block_on(select(pin!(opening), pin!(begun))) {
        return opened.map(drop).map_err(|e| e.to_string());
    }
    world.counts.add(Kind::CutAfterKill, 1);
    rt.end();
    disks.iter().for_each(|d| d.power_cut(world.dice.random()));
    let rt = world.rt();
    let array = open(&rt, &disks, DEGRADED).map_err(|e| e.to_string())?;
    volumes.compare(&rt, &array, Mode::PowerCut)
}

/// Handed over or frozen in the middle of a rebuild, the array leaves the drives alone, and blames none of them.
pub fn close_in_rebuild(world: &mut World, volumes: &Volumes, mode: Mode) -> Result<(), String> {
    let mut volumes = volumes.fork();
    let disks = world.forks();
    let rt = world.rt();
    let array = open(&rt, &disks, DEGRADED).map_err(|e| e.to_string())?;
    volumes.compare(&rt, &array, mode)?;
    let fresh = world.new_disk();
    let seat = MemberId(array.status().members[world.dice.random_range(0..array.status().members.len())].member);
    if rt.block_on(array.drive_replace(seat, Drive::modelled(&rt, &fresh), false)).is_err() {
        return Ok(());
    }
    world.counts.add(Kind::CloseInRebuild, 1);
    let done = Rc::new(Done::default());
    // Without hosts it is handed over quickly, and the rebuild has not gone far.
    let hosts = if world.dice.random_range(0..3) == 0 { 3 } else { 0 };
    set_to_work(world, &rt, &array, &volumes, None, hosts, &done);
    let long = 1u64 << world.dice.random_range(0..13);
    rt.block_on(rt.sleep(Duration::from_micros(world.dice.random_range(0..long))));
    let out = || -> Vec<String> {
        let members = array.status().members.into_iter();
        members.filter(|m| m.state != SeatState::In).map(|m| m.drive_name).collect()
    };
    if world.dice.random_range(0..2) == 0 {
        // Or more drives go than it can lose, and it freezes.
        disks[..=world.plan.tolerates().min(disks.len() - 1)].iter().for_each(Disk::detach);
        for _ in 0..20_000 {
            if array.status().state == ArrayState::Frozen {
                return silent(&rt, &disks.into_iter().chain([fresh]).collect::<Vec<_>>());
            }
            rt.block_on(rt.sleep(Duration::from_micros(1)));
        }
        return Ok(());
    }
    let before = out();
    rt.block_on(array.clone().close()).map_err(|e| e.to_string())?;
    let all: Vec<Disk> = disks.iter().chain([&fresh]).cloned().collect();
    silent(&rt, &all)?;
    if let Some(blamed) = out().into_iter().find(|name| !before.contains(name)) {
        return Err(format!("{blamed} was blamed: {:#?}", array.status().events));
    }
    done.wrong.take().map_or(Ok(()), Err)
}

/// Without a rebuild, what is written after a loss survives the next one.
pub fn loss_after_loss(world: &mut World, volumes: &Volumes) -> Result<(), String> {
    // A spare would take a lost one's place, and until the rebuild is done nothing is as it was.
    let all_in = |s: &ArrayView| s.members.iter().all(|m| m.state == SeatState::In);
    let status =
        look(world).filter(|s| s.state == ArrayState::Optimal && s.members.len() == world.disks.len() && all_in(s));
    let parity = matches!(world.plan.level().scheme_of_width(world.disks.len()), Some(Scheme::Parity { .. }));
    let tolerates = world.plan.tolerates();
    // What is stored must fit into the segments that fewer drives give.
    if !status.is_some_and(|s| parity && s.used_bytes * 3 < s.usable_bytes) {
        return Ok(());
    }
    if world.disks.len() < 2 * tolerates + 1 {
        return Ok(());
    }
    let disks = world.forks();
    let rt = world.rt();
    let array = open(&rt, &disks, DEGRADED).map_err(|e| e.to_string())?;
    let Some(held) = volumes.sure().next() else { return Ok(()) };
    let Some(volume) = array.volume(&held.name) else { return Ok(()) };
    world.counts.add(Kind::LossAfterLoss, 1);
    let first = world.dice.random_range(0..disks.len());
    for i in 0..tolerates {
        disks[(first + i) % disks.len()].detach();
    }
    let blocks: Vec<u64> = (0..20).map(|_| world.dice.random_range(0..volume.bytes() / BLOCK)).collect();
    // The first write finds out that they are gone.
    for _ in 0..2 {
        for &block in &blocks {
            let data = Bytes::from_slice(&[block as u8; BLOCK_BYTES]);
            match rt.block_on(volume.write(block * BLOCK, data, true)) {
                Ok(()) => {}
                Err(Fault::NoSpace) => return Ok(()),
                Err(other) => return Err(format!("writing without {tolerates} of {} drives: {other}", disks.len())),
            }
        }
        rt.block_on(rt.sleep(Duration::from_millis(10)));
    }
    for i in 0..tolerates {
        disks[(first + tolerates + i) % disks.len()].detach();
    }
    for &block in &blocks {
        match read_block(&rt, &array, &held.name, block * BLOCK) {
            Ok(found) if found == [block as u8; BLOCK_BYTES] => {}
            Ok(_) => return Err("wrong data".to_owned()),
            // The way to it through the map was written before.
            Err(Fault::Medium | Fault::Frozen) if !still_mapped(&rt, &array, &held.name, block) => {}
            Err(other) => {
                let place = rt.block_on(array.volume(&held.name).expect("it was there").locate(block * BLOCK));
                let members = array.status().members.into_iter().map(|m| (m.member, m.state)).collect::<Vec<_>>();
                return Err(format!(
                    "block {block} does not survive: {other} ({place:?} {members:?} {:#?})",
                    array.status().events
                ));
            }
        }
    }
    Ok(())
}

/// Whether the map still leads to a block.
fn still_mapped(rt: &Rt, array: &Array, volume: &str, block: u64) -> bool {
    array.volume(volume).is_some_and(|v| rt.block_on(v.locate(block * BLOCK)).is_ok())
}
