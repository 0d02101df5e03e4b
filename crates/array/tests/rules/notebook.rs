//! The array's notebook: its records are durable, hosts do not see it, and only an upgrade makes it.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use array::{Array, Notebook, OpenHow, RefusedCode};
use base::BlockCount;
use ondisk::{Generation, Level};
use rt::IoError;
use rt::model::{DiskParams, OpKind, Verdict};

use crate::world::{BLOCK, DEGRADED, World, data};

/// Records that the ring promises to keep: 4096 blocks but two, of at least so many.
const PROMISED: u64 = 4094 * 25;

fn record(number: u64) -> Vec<u8> {
    let mut record = number.to_le_bytes().to_vec();
    record.resize(150, number as u8);
    record
}

async fn notebook(array: &Array) -> (Notebook, Vec<u64>) {
    let volume = array.notebook().expect("it has one");
    let (notebook, found) = Notebook::open(volume, *array.uuid().as_bytes()).await.unwrap();
    for f in &found {
        assert_eq!(f.record, record(f.number), "record {} is another", f.number);
    }
    (notebook, found.iter().map(|f| f.number).collect())
}

/// Lives that note one record after the other beside a host, each of which ends at a write of its own: at `cut` of the writes that a
/// life may make, and `records` in all. Whatever was noted is there in the next one.
fn lives(world: &World, records: u64, writes_of_a_life: u64, cut: impl Fn(super::world::Process<'_>, u64)) -> u64 {
    let (mut noted, mut life) = (0, 0);
    while noted < records {
        life += 1;
        let p = world.start_how(life, DEGRADED);
        let (mut book, found) = p.rt.block_on(notebook(&p.array()));
        let last = found.last().copied().unwrap_or(0);
        assert!(last >= noted, "life {life}: {noted} were noted, {last} are there");
        let first = found.first().copied().unwrap_or(1);
        assert!(first <= noted.saturating_sub(PROMISED) + 1, "life {life}: the oldest is {first}, of {noted}");
        // Records that were not acknowledged may be there: the next ones follow them.
        let so_far = Rc::new(Cell::new(last));
        let left = Rc::new(Cell::new(1 + life * 7919 % writes_of_a_life));
        let ends = left.clone();
        world.on_ops(move |_, op, _| match op.kind {
            OpKind::Write | OpKind::Flush if ends.get() == 0 => Verdict::Hang,
            OpKind::Write => {
                ends.set(ends.get() - 1);
                Verdict::Proceed
            }
            OpKind::Read | OpKind::Flush | OpKind::Deallocate => Verdict::Proceed,
        });
        let told = so_far.clone();
        p.rt.spawn(async move {
            loop {
                let number = told.get() + 1;
                let batch: Vec<Vec<u8>> = (number..number + 1 + number % 24).map(record).collect();
                book.append(&batch).await.unwrap();
                told.set(number + batch.len() as u64 - 1);
            }
        })
        .detach();
        let (v, rt) = (p.v(), p.rt.clone());
        p.rt.spawn(async move {
            for n in 0.. {
                let written = v.write(n * 37 % 2000 * BLOCK, data(n as u8, 1), n % 5 == 0).await;
                written.unwrap();
                rt.sleep(Duration::from_micros(300)).await;
            }
        })
        .detach();
        while left.get() > 0 {
            p.wait(Duration::from_micros(200));
        }
        noted = so_far.get();
        cut(p, life);
    }
    life
}

fn upgraded(world: &World) {
    let p = world.start(1);
    p.rt.block_on(p.array().upgrade()).unwrap();
    p.close();
}

/// A power cut at any write takes nothing that was noted.
pub fn what_is_noted_survives_a_power_cut() {
    let world = World::of(4, DiskParams { bytes: 96 << 20, ..DiskParams::default() });
    world.create(Level::Raid5);
    upgraded(&world);
    lives(&world, 2_000, 400, |p, life| p.power_cut(life));
    assert!(world.check().ok(), "{:?}", world.check().errors);
}

/// The same for 100,000 records, with kills among the power cuts, and with a drive less in the end.
pub fn a_hundred_thousand_records_are_kept() {
    let world = World::of(4, DiskParams { bytes: 160 << 20, ..DiskParams::default() });
    world.create(Level::Raid5);
    upgraded(&world);
    let lives = lives(&world, 100_000, 3_000, |p, life| if life % 3 == 0 { p.kill(life) } else { p.power_cut(life) });
    assert!(lives > 20, "{lives} lives");
    world.disks[1].detach();
    let p = world.start_how(1, DEGRADED);
    let (_, found) = p.rt.block_on(notebook(&p.array()));
    assert!(found.len() as u64 >= 100_000 - 64, "{} records", found.len());
    p.close();
}

/// An upgrade is there or not, whichever write is the last one; nothing else changes.
pub fn an_upgrade_is_all_or_nothing() {
    let world = World::new(4, true);
    world.create(Level::Raid5);
    let p = world.start(1);
    p.write(0, 3, 5).unwrap();
    assert_eq!(p.array().features(), (vec![], vec!["notebook".to_owned()]));
    p.close();
    let mut seen = [0, 0];
    for last in 0..24 {
        let world = world.fork();
        let p = world.start(last);
        let left = Cell::new(last);
        let left = Rc::new(left);
        world.on_ops(move |_, op, _| match op.kind {
            OpKind::Write if left.get() == 0 => Verdict::Hang,
            OpKind::Write => {
                left.set(left.get() - 1);
                Verdict::Proceed
            }
            OpKind::Read | OpKind::Flush | OpKind::Deallocate => Verdict::Proceed,
        });
        let (array, done) = (p.array(), Rc::new(Cell::new(false)));
        let is_done = done.clone();
        p.rt.spawn(async move { is_done.set(array.upgrade().await.is_ok()) }).detach();
        p.wait(Duration::from_millis(500));
        p.power_cut(last);
        let p = world.start(last + 100);
        let has = p.array().notebook().is_some();
        assert!(has || !done.get(), "{last}: it was done, and is not there");
        assert_eq!(p.array().features().0.len(), usize::from(has), "{last}");
        assert!(p.is(0, 3, 5), "{last}");
        seen[usize::from(has)] += 1;
        p.rt.block_on(p.array().upgrade()).unwrap();
        p.close();
        assert!(world.check().ok(), "{last}: {:?}", world.check().errors);
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
}

/// Hosts cannot see, use, or delete it; what it stores counts as used, and a second upgrade changes nothing.
pub fn a_notebook_is_no_volume_of_hosts() {
    let world = World::new(4, false);
    world.create(Level::Raid6);
    upgraded(&world);
    let p = world.start(2);
    let array = p.array();
    let generation = array.status().generation;
    p.rt.block_on(array.upgrade()).unwrap();
    assert_eq!(array.status().generation, generation);
    assert_eq!(array.features(), (vec!["notebook".to_owned()], vec![]));
    let volume = array.notebook().unwrap();
    let name = volume.name();
    assert!(array.volume(&name).is_none());
    assert!(p.rt.block_on(array.volume_delete(&name)).is_err());
    assert!(p.rt.block_on(array.volume_create(&name, 1 << 20)).is_err());
    let shown: Vec<String> = array.status().volumes.into_iter().map(|v| v.name.to_string()).collect();
    let live: Vec<String> = array.live_volumes().iter().map(|v| v.name()).collect();
    let counted: Vec<String> = array.iostat().volumes.into_iter().map(|v| v.name).collect();
    assert_eq!([shown, live, counted], [vec!["v".to_owned()], vec!["v".to_owned()], vec!["v".to_owned()]]);
    assert_eq!(array.status().provisioned_bytes, 8 << 20);
    let used = array.status().used_bytes;
    p.rt.block_on(async {
        let (mut book, _) = notebook(&array).await;
        book.append(&(1..=60).map(record).collect::<Vec<_>>()).await.unwrap();
    });
    assert!(array.status().used_bytes > used);
    drop((volume, array));
    p.close();
    let p = world.start_how(3, OpenHow { read_only: true, ..OpenHow::default() });
    let (mut book, found) = p.rt.block_on(notebook(&p.array()));
    assert_eq!(found, (1..=60).collect::<Vec<u64>>());
    assert!(p.rt.block_on(book.append(&[record(61)])).is_err());
    drop(book);
    p.kill(1);
}

/// A record that cannot be written waits, and is written before newer ones.
pub fn what_could_not_be_noted_comes_first() {
    let world = World::new(3, false);
    world.create(Level::Raid0);
    upgraded(&world);
    let p = world.start(4);
    let (mut book, _) = p.rt.block_on(notebook(&p.array()));
    p.rt.block_on(book.append(&[record(1)])).unwrap();
    world.on_ops(|_, op, _| match op.kind {
        OpKind::Write => Verdict::Fail(IoError::NoSpace),
        OpKind::Read | OpKind::Flush | OpKind::Deallocate => Verdict::Proceed,
    });
    let second = [record(2)];
    let refused = p.rt.block_on(async {
        let late = Box::pin(p.rt.sleep(Duration::from_secs(120)));
        let appended = futures::future::select(Box::pin(book.append(&second)), late).await;
        !matches!(appended, futures::future::Either::Left((Ok(()), _)))
    });
    assert!(refused);
    world.no_hooks();
    p.wait(Duration::from_secs(60));
    p.rt.block_on(book.append(&[record(3)])).unwrap();
    drop(book);
    p.kill(5);
    let p = world.start(6);
    let (_, found) = p.rt.block_on(notebook(&p.array()));
    assert_eq!(found, [1, 2, 3]);
    p.kill(7);
}

/// An array with a feature that this program does not know is refused. No older generation of it is used, and the refusal does not
/// propose to create it again.
pub fn an_array_of_a_newer_program_is_refused_as_such() {
    for (drives, slots) in [(0..1, 0..1), (0..1, 0..2), (0..4, 1..2), (0..4, 0..2)] {
        let world = World::new(4, false);
        world.create(Level::Raid5);
        let p = world.start(1);
        p.write(0, 3, 5).unwrap();
        p.close();
        for drive in drives {
            let layout = world.label(drive).layout;
            for slot in slots.clone() {
                let at = layout.slot(slot);
                let image = world.disks[drive].image_read(at, BlockCount(u64::from(layout.slot_blocks)));
                let mut newer = Generation::decode(&image).unwrap();
                newer.features.incompatible = 1 << 7;
                world.disks[drive].image_write(at, &newer.encode());
            }
        }
        let refused = world.refused(&world.disks, DEGRADED);
        assert_eq!((refused.code, refused.remedy), (RefusedCode::Format, None), "{refused:?}");
        assert!(refused.why.contains("0x80"), "{refused:?}");
    }
}

/// Nor is it overwritten: a program that knows more wrote it while this one had the array open.
pub fn a_generation_of_a_newer_program_is_not_overwritten() {
    let world = World::new(4, false);
    world.create(Level::Raid5);
    let p = world.start(1);
    p.write(0, 3, 5).unwrap();
    p.checkpoint();
    let mut newer = world.generation();
    let slot = (newer.number.0 as usize + 1) % 2;
    newer.number = base::Generation(newer.number.0 + 1);
    newer.id ^= 1 << 100;
    newer.features.incompatible = 1 << 7;
    let image = newer.encode();
    for (i, disk) in world.disks.iter().enumerate() {
        disk.image_write(world.label(i).layout.slot(slot), &image);
    }
    let _frozen = p.write(10, 4, 1);
    let committed = p.rt.block_on(p.array().checkpoint());
    assert!(committed.is_err(), "it went on");
    let there =
        world.disks[0].image_read(world.label(0).layout.slot(slot), BlockCount((image.len() / BLOCK as usize) as u64));
    assert_eq!(there, image);
    p.kill(1);
}
