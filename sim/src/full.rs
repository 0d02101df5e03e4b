//! Trials on full arrays: cleaned while processes die, drives go and moves are given up, and filled with a leaf a block.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use array::{Array, CreateSpec, Fault, OpenHow, Volume};
use base::{BLOCK_BYTES, MemberId};
use futures::future::{Either, select};
use ondisk::Level;
use rand::{RngExt, SeedableRng};
use rt::model::{Disk, DiskParams, Op, OpKind, Verdict};
use rt::{Bytes, Rt};

use crate::census::zones_begin;
use crate::kind::Kind;
use crate::model::Mode;
use crate::own::{Own, PATIENCE};
use crate::plan::Dice;
use crate::run::{drain, host, set_to_work};
use crate::volumes::Volumes;
use crate::workload::{Done, joined};
use crate::world::{World, drives, open};

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
        array = open(&rt, &disks, OpenHow::default()).map_err(|e| e.to_string())?;
        volumes.compare(&rt, &array, Mode::Killed)?;
        done = Rc::new(Done::default());
    }
    lose_while_moving(world, &rt, &disks, &array, &mut volumes)
}

/// Records of moves, which are the longer ones, take long; meanwhile half of the volume is given back, then a drive goes: what was
/// moved in vain stays gone.
fn lose_while_moving(
    world: &mut World,
    rt: &Rt,
    disks: &[Disk],
    array: &Array,
    volumes: &mut Volumes,
) -> Result<(), String> {
    let done = Rc::new(Done::default());
    set_to_work(world, rt, array, volumes, None, 24, &done);
    rt.block_on(rt.sleep(Duration::from_millis(world.dice.random_range(30..90))));
    drain(rt, &done)?;
    // The cleaner is still at work.
    for disk in disks {
        let zones = zones_begin(disk);
        disk.on_op(Some(Box::new(move |op: &Op| {
            let long = op.kind == OpKind::Write && op.at >= zones && op.blocks.0 >= 10;
            if long { Verdict::DelayNs(100_000_000) } else { Verdict::Proceed }
        })));
    }
    rt.block_on(rt.sleep(Duration::from_micros(world.dice.random_range(100..3000))));
    let half = world.dice.random_range(0..2);
    rt.block_on(host(array, volumes, 0, &done).deallocate_half(half)).map_err(|e| e.to_string())?;
    let seat = MemberId(world.dice.random_range(0..disks.len()) as u16);
    rt.block_on(array.drive_fail(seat)).map_err(|e| e.to_string())?;
    rt.block_on(rt.sleep(PATIENCE));
    disks.iter().for_each(|d| d.on_op(None));
    if let Some(wrong) = done.wrong.take() {
        return Err(wrong);
    }
    volumes.compare(rt, array, Mode::Killed)
}

/// A full array loses drives and has no place for what they held; its hosts overwrite and give back at random. Everybody is
/// answered.
pub fn full_and_short(world: &mut World) -> Result<(), String> {
    world.counts.add(Kind::FullAndShort, 1);
    match world.dice.random_range(0..2) {
        0 => full_of_copies(world),
        _ => full_of_leaves(world),
    }
}

/// Copies on four drives, of which two go.
fn full_of_copies(world: &mut World) -> Result<(), String> {
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
                overwrite_or_give_back(&v, lba, many, &mut dice).await;
            }
        }
    });
    let hosts: Vec<_> = hosts.collect();
    answered_while_short(&rt, &array, hosts, &[2, 3], world.dice.random())
}

/// A thin volume, so that the map is large, on drives that read slowly; one goes.
fn full_of_leaves(world: &mut World) -> Result<(), String> {
    const STRIDE: u64 = 50;
    let block = BLOCK_BYTES as u64;
    let (level, width, count) = [(Level::Raid5, 3, 4), (Level::Raid5, 3, 3), (Level::Raid10 { copies: 2 }, 2, 3)]
        [world.dice.random_range(0..3)];
    let disks: Vec<Disk> = (0..count).map(|i| Own::disk(world, &format!("own-{i}"))).collect();
    let spec = CreateSpec { level, width: Some(width), zone_blocks: Some(64), ..world.plan.spec() };
    let rt = world.rt();
    let made = rt.block_on(Array::create(&rt, drives(&rt, &disks), &spec));
    let array = made.map_err(|e| format!("an array of its own: {e}"))?;
    let blocks = array.status().usable_bytes / block;
    rt.block_on(array.volume_create("v", blocks * STRIDE * block)).map_err(|e| e.to_string())?;
    let volume = array.volume("v").ok_or("it is gone")?;
    for disk in &disks {
        let (zones, ns) = (zones_begin(disk), world.dice.random_range(300_000..5_000_000));
        disk.on_op(Some(Box::new(move |op: &Op| {
            let slow = op.kind == OpKind::Read && op.at >= zones;
            if slow { Verdict::DelayNs(ns) } else { Verdict::Proceed }
        })));
    }
    let data = Bytes::from_slice(&[1; BLOCK_BYTES]);
    for lba in (0..blocks * STRIDE).step_by(STRIDE as usize) {
        if rt.block_on(volume.write(lba * block, data.clone(), false)).is_err() {
            break;
        }
    }
    let hosts = (0..world.dice.random_range(1..4)).map(|_| {
        let (v, mut dice) = (volume.clone(), Dice::seed_from_u64(world.dice.random()));
        async move {
            for _ in 0..1000 {
                let lba = dice.random_range(0..blocks) * STRIDE;
                overwrite_or_give_back(&v, lba, 1, &mut dice).await;
            }
        }
    });
    let hosts: Vec<_> = hosts.collect();
    answered_while_short(&rt, &array, hosts, &[count as u16 - 1], world.dice.random())
}

/// Some find no space.
async fn overwrite_or_give_back(v: &Volume, lba: u64, many: u64, dice: &mut Dice) {
    let (offset, bytes) = (lba * BLOCK_BYTES as u64, many * BLOCK_BYTES as u64);
    let _answered = match dice.random_range(0..8) {
        0 => v.deallocate(offset, bytes, false).await,
        _ => v.write(offset, Bytes::from_slice(&vec![2; bytes as usize]), false).await,
    };
}

/// Members go and hosts are answered, while somebody asks for one checkpoint after the other, if `asked`.
fn answered_while_short(
    rt: &Rt,
    array: &Array,
    hosts: Vec<impl Future<Output = ()>>,
    seats: &[u16],
    asked: bool,
) -> Result<(), String> {
    let lose = async {
        for &seat in seats {
            rt.sleep(Duration::from_millis(30)).await;
            let _refused = array.drive_fail(MemberId(seat)).await;
        }
    };
    let disturb = async {
        if !asked {
            std::future::pending::<()>().await;
        }
        loop {
            let _refused = array.checkpoint().await;
            rt.sleep(Duration::from_millis(2)).await;
        }
    };
    let answered = futures::future::join(lose, futures::future::join_all(hosts));
    let all = Box::pin(select(Box::pin(disturb), Box::pin(answered)));
    match rt.block_on(select(all, Box::pin(rt.sleep(10 * PATIENCE)))) {
        Either::Left(_) => Ok(()),
        Either::Right(_) => Err(format!("requests were never answered: {:#?}", array.status())),
    }
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
