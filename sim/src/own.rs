//! Trials on arrays of their own, of a shape that a plan seldom has.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use api::{ArrayState, ScrubKind};
use array::{Array, CreateSpec, OpenHow, Rate};
use base::{BLOCK_BYTES, MemberId};
use futures::future::select;
use ondisk::{Generation, Level, MemberState};
use rand::{RngExt, SeedableRng};
use rt::model::{Disk, DiskParams, Op, OpKind, Verdict};
use rt::{Bytes, Drive, Rt};

use crate::census::{Census, newest_generation, zones_begin};
use crate::kind::Kind;
use crate::model::Mode;
use crate::plan::Dice;
use crate::report::Report;
use crate::run::{drain, host, set_to_work};
use crate::volumes::{Fate, Volumes};
use crate::workload::Done;
use crate::world::{World, drives, open};

/// Virtual time in which a rebuild has ended.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Segments that a rebuild has under way, at most.
const UNDER_WAY: usize = 8;

/// A new array with one volume, written once.
pub struct Own {
    /// Its process.
    pub rt: Rt,
    /// Its drives.
    pub disks: Vec<Disk>,
    /// The array.
    pub array: Array,
    /// What it should hold.
    pub volumes: Volumes,
    /// Figures of its hosts.
    pub done: Rc<Done>,
}

impl Own {
    /// A drive for it.
    pub fn disk(world: &mut World, name: &str) -> Disk {
        let bytes = world.plan.system_bytes() + (66 << 18);
        Disk::new(name, DiskParams { bytes, ..world.plan.disk() }, world.dice.random())
    }

    /// One over `count` new drives.
    pub fn new(world: &mut World, level: Level, width: usize, count: usize, bytes: u64) -> Result<Own, String> {
        let disks: Vec<Disk> = (0..count).map(|i| Own::disk(world, &format!("own-{i}"))).collect();
        let spec = CreateSpec { level, width: Some(width), zone_blocks: Some(64), ..world.plan.spec() };
        let rt = world.rt();
        let made = rt.block_on(Array::create(&rt, drives(&rt, &disks), &spec));
        let array = made.map_err(|e| format!("an array of its own: {e}"))?;
        let bytes = bytes.min(array.status().usable_bytes);
        rt.block_on(array.volume_create("v", bytes)).map_err(|e| e.to_string())?;
        let mut volumes = Volumes::default();
        volumes.add("v", bytes, Fate::Stays);
        let done = Rc::new(Done::default());
        rt.block_on(host(&array, &volumes, 0, &done).fill()).map_err(|e| e.to_string())?;
        Ok(Own { rt, disks, array, volumes, done })
    }
}

/// Map nodes are being read, which takes long. Meanwhile one drive after the other goes and what it held is rebuilt elsewhere:
/// all who read are answered all the same.
pub fn places_go(world: &mut World) -> Result<(), String> {
    let count = world.dice.random_range(3..5);
    let Own { rt, disks, array, mut volumes, done } = Own::new(world, Level::Raid10 { copies: 2 }, 2, count, 8 << 20)?;
    rt.block_on(array.close()).map_err(|e| e.to_string())?;
    rt.end();
    // The map is not in memory.
    let rt = world.rt();
    let array = open(&rt, &disks, OpenHow::default()).map_err(|e| e.to_string())?;
    rt.block_on(array.rebuild_rate(Rate::High)).map_err(|e| e.to_string())?;
    let slow_until = rt.now() + Duration::from_millis(world.dice.random_range(20..200));
    for disk in &disks {
        let (clock, zones) = (rt.clone(), zones_begin(disk));
        disk.on_op(Some(Box::new(move |op: &Op| match op.kind {
            OpKind::Read if clock.now() < slow_until && op.at >= zones => Verdict::DelayNs(900_000_000),
            _ => Verdict::Proceed,
        })));
    }
    set_to_work(world, &rt, &array, &volumes, None, 12, &done);
    let until = slow_until - rt.now();
    rt.block_on(rt.sleep(until + Duration::from_millis(1)));
    done.unhurried.set(true);
    world.counts.add(Kind::PlacesGo, 1);
    let first = world.dice.random_range(0..count);
    for n in 0..count - 1 {
        let seat = MemberId(((first + n) % count) as u16);
        // The last one that has something stays.
        let _refused = rt.block_on(array.drive_fail(seat));
        rt.block_on(select(Box::pin(array.rebuild_done()), Box::pin(rt.sleep(Duration::from_millis(200)))));
    }
    drain(&rt, &done)?;
    disks.iter().for_each(|d| d.on_op(None));
    if let Some(wrong) = done.wrong.take() {
        return Err(wrong);
    }
    let read = volumes.compare(&rt, &array, Mode::Killed);
    read.map_err(|e| format!("{e}: {:?} {:#?}", array.status().state, array.status().events))
}

/// Blocks rot, and a scrub looks closer at them, which takes long; meanwhile all is overwritten and their segments are given
/// back. It has nothing to say of them.
pub fn given_back(world: &mut World) -> Result<(), String> {
    let Own { rt, disks, array, .. } = Own::new(world, Level::Raid5, 3, 3, 4 << 20)?;
    rt.block_on(array.checkpoint()).map_err(|e| e.to_string())?;
    let census = Census::take(&disks);
    let data = census.of(Kind::RotData);
    let (disk, at) = data[world.dice.random_range(0..data.len() / 2)];
    disks[disk].image_write(at, &[0xee; BLOCK_BYTES]);
    let looks_closer = Rc::new(Cell::new(false));
    let closer = looks_closer.clone();
    disks[disk].on_op(Some(Box::new(move |op: &Op| {
        let there = op.kind == OpKind::Read && op.at == at && op.blocks.0 == 1;
        closer.set(closer.get() || there);
        if there { Verdict::DelayNs(900_000_000) } else { Verdict::Proceed }
    })));
    let kind = [ScrubKind::Media, ScrubKind::Parity][world.dice.random_range(0..2)];
    array.scrub_start(kind, true).map_err(|e| e.to_string())?;
    for _ in 0..300 {
        if looks_closer.get() {
            break;
        }
        rt.block_on(rt.sleep(Duration::from_millis(10)));
    }
    let volume = array.volume("v").ok_or("it is gone")?;
    for piece in 0..16 {
        let data = Bytes::from_slice(&vec![3; 64 * BLOCK_BYTES]);
        rt.block_on(volume.write(piece * data.len() as u64, data, false)).map_err(|e| e.to_string())?;
    }
    rt.block_on(array.checkpoint()).map_err(|e| e.to_string())?;
    world.counts.add(Kind::GivenBack, u64::from(looks_closer.get()));
    rt.block_on(array.scrub_done());
    disks[disk].on_op(None);
    let status = array.status();
    let wrong = |run: &api::ScrubRunView| run.found.iter().any(|f| f.not_held > 0 || f.lost > 0);
    if status.scrub.last.as_ref().is_some_and(wrong) {
        return Err(format!("what was given back counts as a place that does not hold: {:#?}", status.events));
    }
    Ok(())
}

/// One drive is the last that is in, and goes on alone; then all are back, but nobody can read a generation of it any more. An
/// array that opens all the same has what was acknowledged.
pub fn last_one_silent(world: &mut World, report: &mut Report) -> Result<(), String> {
    let (level, count) =
        [(Level::Raid6, 3), (Level::Raid10 { copies: 2 }, 2), (Level::Raid5, 2)][world.dice.random_range(0..3)];
    let own = Own::new(world, level, count, count, 1 << 20)?;
    let Own { rt, disks, array, mut volumes, done } = own;
    set_to_work(world, &rt, &array, &volumes, None, 4, &done);
    let last = world.dice.random_range(0..count);
    let mut dice = Dice::seed_from_u64(world.dice.random());
    let mut pause = || rt.block_on(rt.sleep(Duration::from_micros(dice.random_range(1..5_000))));
    for (_, disk) in disks.iter().enumerate().filter(|(i, _)| *i != last) {
        pause();
        disk.detach();
    }
    pause();
    // The others know nothing newer than the generation under which they were in.
    let _may_fail = rt.block_on(array.checkpoint());
    pause();
    drop(array);
    rt.end();
    if let Some(wrong) = done.wrong.take() {
        return Err(wrong);
    }
    disks.iter().for_each(|d| d.crash(world.dice.random()));
    disks.iter().for_each(Disk::attach);
    world.counts.add(Kind::LastSilent, 1);
    for &(disk, at) in Census::take(&disks).of(Kind::RotSlot).iter().filter(|(disk, _)| *disk == last) {
        disks[disk].image_write(at, &[0xee; BLOCK_BYTES]);
    }
    let rt = world.rt();
    match open(&rt, &disks, OpenHow::default()) {
        Ok(array) if array.status().state != ArrayState::Frozen => volumes.compare(&rt, &array, Mode::Killed),
        Ok(_) => Ok(()),
        Err(_) => {
            report.refused += 1;
            Ok(())
        }
    }
}

/// An array of its own, with more drives than a segment has columns, so that of two that go some segments lack one and
/// some lack both: while more of these wait than are under way, none is restored that lacks one.
pub fn most_exposed_first(world: &mut World) -> Result<(), String> {
    let width = world.dice.random_range(4..6);
    // About 60 segments.
    let count = width + world.dice.random_range(2..4);
    let own = Own::new(world, Level::Raid6, width, count, (width as u64 - 2) * (15 << 20))?;
    let Own { rt, mut disks, array, mut volumes, done } = own;
    let fresh: Vec<Disk> = (0..2).map(|i| Own::disk(world, &format!("fresh-{i}"))).collect();
    rt.block_on(array.rebuild_pause(true)).map_err(|e| e.to_string())?;
    let first = world.dice.random_range(0..count);
    for (n, fresh) in fresh.iter().enumerate() {
        let seat = MemberId(((first + n) % count) as u16);
        rt.block_on(array.drive_fail(seat)).map_err(|e| e.to_string())?;
        let takes_over = array.drive_replace(seat, Drive::modelled(&rt, fresh), true);
        rt.block_on(takes_over).map_err(|e| e.to_string())?;
    }
    rt.block_on(array.checkpoint()).map_err(|e| e.to_string())?;
    disks.extend(fresh);
    let Some(before) = newest_generation(&disks) else { return Err("no generation is left".to_owned()) };
    done.unhurried.set(true);
    let hosts = world.dice.random_range(0..3);
    set_to_work(world, &rt, &array, &volumes, None, hosts, &done);
    let rate = Rate::Bytes(1 << world.dice.random_range(20..24));
    rt.block_on(array.rebuild_rate(rate)).map_err(|e| e.to_string())?;
    world.counts.add(Kind::LossInRebuild, 1);
    for _ in 0..4 {
        rt.block_on(array.rebuild_pause(false)).map_err(|e| e.to_string())?;
        rt.block_on(rt.sleep(Duration::from_millis(world.dice.random_range(1..1000))));
        // What is under way is given up, and what is restored is in the next generation.
        rt.block_on(array.rebuild_pause(true)).map_err(|e| e.to_string())?;
        rt.block_on(rt.sleep(Duration::from_millis(500)));
        rt.block_on(array.checkpoint()).map_err(|e| e.to_string())?;
        let Some(now) = newest_generation(&disks) else { return Err("no generation is left".to_owned()) };
        could_wait(&before, &now)?;
    }
    rt.block_on(array.rebuild_rate(Rate::High)).map_err(|e| e.to_string())?;
    rt.block_on(array.rebuild_pause(false)).map_err(|e| e.to_string())?;
    drain(&rt, &done)?;
    if let Some(wrong) = done.wrong.take() {
        return Err(wrong);
    }
    rt.block_on(select(Box::pin(array.rebuild_done()), Box::pin(rt.sleep(PATIENCE))));
    if array.status().state != ArrayState::Optimal {
        return Err(format!("it has room for a rebuild, and is not whole: {:#?}", array.status().events));
    }
    (2..4).for_each(|n| disks[(first + n) % count].detach());
    volumes.compare(&rt, &array, Mode::Killed).map_err(|e| format!("two more are gone: {e}"))
}

/// Whether segments that lacked one column were restored while more than are under way lack two.
fn could_wait(before: &Generation, now: &Generation) -> Result<(), String> {
    let lacked = |n: usize, left: usize| {
        let was = |s: &ondisk::Segment| before.segments.iter().find(|b| b.id == s.id).map(|b| lacks(before, b));
        let so = |s: &&ondisk::Segment| s.live > 0 && lacks(now, s) == left && was(s) == Some(n);
        now.segments.iter().filter(so).count()
    };
    let (restored, exposed) = (lacked(1, 0), lacked(2, 2));
    if exposed > UNDER_WAY && restored > 0 {
        return Err(format!("{restored} segments are restored that could wait, {exposed} cannot lose another drive"));
    }
    Ok(())
}

/// Columns of a segment with live blocks that lie on nobody who is in.
fn lacks(g: &Generation, s: &ondisk::Segment) -> usize {
    let out = |m: MemberId| g.members.get(usize::from(m.0)).is_none_or(|m| m.state != MemberState::In);
    if s.live == 0 { 0 } else { s.slots.iter().filter(|slot| slot.is_none_or(|(m, _)| out(m))).count() }
}
