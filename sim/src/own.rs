//! Trials on arrays of their own, of a shape that a plan seldom has.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use array::{Array, ArrayState, CreateSpec, Fault, OpenHow, Rate, ScrubKind};
use base::{BLOCK_BYTES, MemberId};
use futures::future::{Either, select};
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
use crate::workload::{Done, joined};
use crate::world::{World, drives};

/// Virtual time in which a rebuild has ended.
const PATIENCE: Duration = Duration::from_secs(60);

/// Segments that a rebuild has under way, at most.
const UNDER_WAY: usize = 8;

/// A new array with one volume, written once.
struct Own {
    rt: Rt,
    disks: Vec<Disk>,
    array: Array,
    volumes: Volumes,
    done: Rc<Done>,
}

impl Own {
    fn disk(world: &mut World, name: &str) -> Disk {
        let bytes = world.plan.system_bytes() + (66 << 18);
        Disk::new(name, DiskParams { bytes, ..world.plan.disk() }, world.dice.random())
    }

    fn new(world: &mut World, level: Level, width: usize, count: usize, bytes: u64) -> Result<Own, String> {
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
    let array = rt.block_on(Array::open(&rt, drives(&rt, &disks), OpenHow::default())).map_err(|e| e.to_string())?;
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

/// A full array is overwritten by many, whose writes may take long, and its process dies again and again: nobody needs what the
/// cleaner gave back meanwhile.
pub fn cleaned_lives(world: &mut World) -> Result<(), String> {
    let Own { mut rt, disks, mut array, mut volumes, mut done } = {
        // Two thirds of it, or all.
        let bytes = [22 << 20, u64::MAX][world.dice.random_range(0..2)];
        Own::new(world, Level::Raid5, 3, 3, bytes)?
    };
    for _ in 0..world.dice.random_range(2..6) {
        let (writes, one_in) = (Rc::new(Cell::new(0u64)), world.dice.random_range(50..200));
        for disk in &disks {
            let (writes, zones) = (writes.clone(), zones_begin(disk));
            disk.on_op(Some(Box::new(move |op: &Op| {
                writes.set(writes.get() + u64::from(op.kind == OpKind::Write));
                let slow = op.kind == OpKind::Write && op.at >= zones && writes.get().is_multiple_of(one_in);
                if slow { Verdict::DelayNs(20_000_000) } else { Verdict::Proceed }
            })));
        }
        set_to_work(world, &rt, &array, &volumes, None, 24, &done);
        rt.block_on(rt.sleep(Duration::from_millis(world.dice.random_range(30..90))));
        drop(array);
        rt.end();
        if let Some(wrong) = done.wrong.take() {
            return Err(wrong);
        }
        world.counts.add(Kind::CleanedLives, 1);
        disks.iter().for_each(|d| d.on_op(None));
        disks.iter().for_each(|d| d.crash(world.dice.random()));
        rt = world.rt();
        array = rt.block_on(Array::open(&rt, drives(&rt, &disks), OpenHow::default())).map_err(|e| e.to_string())?;
        volumes.compare(&rt, &array, Mode::Killed)?;
        done = Rc::new(Done::default());
    }
    lose_while_moving(world, &rt, &disks, &array, &mut volumes)
}

/// A drive goes while records of moves, which are the longer ones, take long: what hosts wrote meanwhile counts.
fn lose_while_moving(
    world: &mut World,
    rt: &Rt,
    disks: &[Disk],
    array: &Array,
    volumes: &mut Volumes,
) -> Result<(), String> {
    for disk in disks {
        let zones = zones_begin(disk);
        disk.on_op(Some(Box::new(move |op: &Op| {
            let long = op.kind == OpKind::Write && op.at >= zones && op.blocks.0 >= 10;
            if long { Verdict::DelayNs(3_000_000) } else { Verdict::Proceed }
        })));
    }
    let done = Rc::new(Done::default());
    set_to_work(world, rt, array, volumes, None, 24, &done);
    rt.block_on(rt.sleep(Duration::from_millis(world.dice.random_range(30..90))));
    let seat = MemberId(world.dice.random_range(0..disks.len()) as u16);
    rt.block_on(array.drive_fail(seat)).map_err(|e| e.to_string())?;
    rt.block_on(rt.sleep(Duration::from_millis(world.dice.random_range(0..20))));
    drain(rt, &done)?;
    disks.iter().for_each(|d| d.on_op(None));
    if let Some(wrong) = done.wrong.take() {
        return Err(wrong);
    }
    volumes.compare(rt, array, Mode::Killed)
}

/// A full array loses two drives and has a place for one of them; its hosts overwrite and give back at random. Everybody is
/// answered.
pub fn full_and_short(world: &mut World) -> Result<(), String> {
    let Own { rt, array, .. } = Own::new(world, Level::Raid10 { copies: 3 }, 3, 4, 12000 << 10)?;
    let volume = array.volume("v").ok_or("it is gone")?;
    let block = BLOCK_BYTES as u64;
    let blocks = array.status().usable_bytes.min(volume.bytes()) / block;
    let hosts = (0..12).map(|_| {
        let (v, mut dice) = (volume.clone(), Dice::seed_from_u64(world.dice.random()));
        async move {
            for _ in 0..120 {
                let longest = [8, 8, 16, 128][dice.random_range(0..4)];
                let many = dice.random_range(1..=longest);
                let lba = dice.random_range(0..blocks - many) / [1, 4][dice.random_range(0..2)];
                let data = Bytes::from_slice(&vec![2; (many * block) as usize]);
                // Some find no space.
                let _answered = match dice.random_range(0..8) {
                    0 => v.deallocate(lba * block, many * block, false).await,
                    _ => v.write(lba * block, data, false).await,
                };
            }
        }
    });
    let hosts: Vec<_> = hosts.collect();
    let lose = async {
        for seat in [2, 3] {
            rt.sleep(Duration::from_millis(30)).await;
            let _refused = array.drive_fail(MemberId(seat)).await;
        }
    };
    world.counts.add(Kind::FullAndShort, 1);
    let all = Box::pin(futures::future::join(lose, futures::future::join_all(hosts)));
    match rt.block_on(select(all, Box::pin(rt.sleep(10 * PATIENCE)))) {
        Either::Left(_) => Ok(()),
        Either::Right(_) => Err(format!("requests were never answered: {:#?}", array.status())),
    }
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
    let wrong = |run: &array::ScrubRun| run.found.iter().any(|f| f.not_held > 0 || f.lost > 0);
    if status.scrub.last.as_ref().is_some_and(wrong) {
        return Err(format!("what was given back counts as a place that does not hold: {:#?}", status.events));
    }
    Ok(())
}

/// A thin volume is written at a block of each leaf, or zeroed there, until there is no space: then it is refused and does not
/// wait for ever; what is there can be overwritten and given back.
pub fn thin_filled(world: &mut World) -> Result<(), String> {
    const LEAF: u64 = 256;
    let shapes = [(Level::Raid0, 1), (Level::Raid0, 3), (Level::Raid5, 3), (Level::Raid10 { copies: 2 }, 4)];
    let (level, count) = shapes[world.dice.random_range(0..shapes.len())];
    let params = DiskParams { bytes: world.plan.system_bytes() + (66 << 20), ..world.plan.disk() };
    let disks: Vec<Disk> = (0..count).map(|i| Disk::new(&format!("thin-{i}"), params, world.dice.random())).collect();
    let spec = CreateSpec { level, width: Some(count), zone_blocks: Some(256), ..world.plan.spec() };
    let rt = world.rt();
    let made = rt.block_on(Array::create(&rt, drives(&rt, &disks), &spec));
    let array = made.map_err(|e| format!("an array of its own: {e}"))?;
    let leaves = 1 << world.dice.random_range(14..17);
    let block = BLOCK_BYTES as u64;
    rt.block_on(array.volume_create("v", leaves * LEAF * block)).map_err(|e| e.to_string())?;
    let volume = array.volume("v").ok_or("it is gone")?;
    let zeros = world.dice.random_range(0..8) == 0;
    let step = 2 * world.dice.random_range(0..leaves / 2) + 1;
    let at = |i: u64| (i * step % leaves * LEAF + i % LEAF) * block;
    let tagged = |tag: u8| Bytes::from_slice(&[tag; BLOCK_BYTES]);
    let in_time = |what: &str, request: Pin<Box<dyn Future<Output = Result<(), Fault>>>>| match rt
        .block_on(select(request, Box::pin(rt.sleep(PATIENCE))))
    {
        Either::Left((done, _)) => Ok(done),
        Either::Right(_) => Err(format!("{what} waits for ever: {:#?}", array.status())),
    };
    let put = |i: u64, tag: u8, zeros: bool| {
        let v = volume.clone();
        let what = format!("a write to leaf {i}");
        in_time(
            &what,
            match zeros {
                true => Box::pin(async move { v.write_zeroes(at(i), block, false, false).await }),
                false => {
                    let data = tagged(tag);
                    Box::pin(async move { v.write(at(i), data, false).await })
                }
            },
        )
    };
    let mut n = 0;
    while n < leaves {
        match put(n, 1, zeros)? {
            Ok(()) => n += 1,
            Err(Fault::NoSpace) => break,
            Err(other) => return Err(format!("leaf {n}: {other}")),
        }
    }
    if n == leaves {
        return Err(format!("{n} leaves fitted into {} bytes", array.status().usable_bytes));
    }
    world.counts.add(Kind::ThinFilled, 1);
    let overwritten = if zeros { 0 } else { n.min(300) };
    for i in 0..overwritten {
        put(i, 2, false)?.map_err(|e| format!("overwriting leaf {i} of {n}: {e}"))?;
    }
    for i in (0..n).step_by(7) {
        let read = rt.block_on(volume.read(at(i), block)).map_err(|e| format!("leaf {i}: {e}"))?;
        let wanted = if zeros { 0 } else { 1 + u8::from(i < overwritten) };
        if joined(&read) != [wanted; BLOCK_BYTES] {
            return Err(format!("leaf {i} is not {wanted}"));
        }
    }
    let v = volume.clone();
    let all = leaves * LEAF * block;
    let emptied = in_time("giving everything back", Box::pin(async move { v.deallocate(0, all, false).await }))?;
    emptied.map_err(|e| format!("giving everything back: {e}"))?;
    put(0, 3, false)?.map_err(|e| format!("a write to an empty array: {e}"))
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
    match rt.block_on(Array::open(&rt, drives(&rt, &disks), OpenHow::default())) {
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
