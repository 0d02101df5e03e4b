//! An array in several parts: made, opened and wiped as a whole.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::OnceLock;

use api::{ArrayState, Remedy};
use array::parts::{self, Slices};
use array::{Array, CreateSpec, OpenHow, Refused, RefusedCode, identify, inspect, wipe};
use base::{BlockCount, MemberLba};
use ondisk::{Label, Layout, Level};
use rt::model::{Disk, DiskParams, OpKind, Verdict};
use rt::{Drive, Rt};

use crate::world::{BLOCK, DEGRADED, World, data, read};

const PARTS: u8 = 3;

/// Five drives of different sizes, none of them a multiple of what slices begin at.
fn world() -> World {
    let disk = |i: u64| {
        let bytes = (110 << 20) + i * (3 << 20) + i * BLOCK;
        Disk::new(&format!("d{i}"), DiskParams { bytes, volatile_cache: true, ..DiskParams::default() }, i)
    };
    World { disks: (0..5).map(disk).collect() }
}

fn spec(force: bool) -> CreateSpec {
    CreateSpec { name: "a".into(), level: Level::Raid5, width: Some(4), zone_blocks: Some(64), force }
}

/// Runs on the drives of a world until it is done; then the process is killed.
fn on<T>(world: &World, work: impl AsyncFnOnce(&Rt, Vec<Drive>) -> T) -> T {
    let rt = Rt::modelled(1);
    let drives = World::drives(&rt, &world.disks);
    let done = rt.block_on(work(&rt, drives));
    rt.end();
    world.disks.iter().for_each(|d| d.crash(3));
    done
}

/// A world with an array in parts that was killed; each part has a volume full of its number.
fn filled() -> World {
    let world = world();
    on(&world, async |rt, drives| {
        let parts = parts::create(rt, drives, &spec(false), PARTS).await.unwrap();
        assert_eq!(parts.len(), usize::from(PARTS));
        for (i, part) in parts.iter().enumerate() {
            part.volume_create("v", 4 << 20).await.unwrap();
            let v = part.volume("v").unwrap();
            v.write(0, data(i as u8 + 1, 100), false).await.unwrap();
            v.flush().await.unwrap();
        }
    });
    world
}

/// What every part says is in its volume, and the state it is in.
fn states(world: &World, how: OpenHow) -> Vec<ArrayState> {
    let rt = Rt::modelled(2);
    let parts = rt.block_on(parts::open(&rt, World::drives(&rt, &world.disks), how)).unwrap();
    assert_eq!(parts.len(), usize::from(PARTS));
    for (i, part) in parts.iter().enumerate() {
        let wanted = vec![i as u8 + 1; 100 * BLOCK as usize];
        assert_eq!(read(&rt, &part.volume("v").unwrap(), 0, 100), Ok(wanted), "part {i}");
        assert_eq!(part.uuid(), parts[0].uuid());
    }
    let states = parts.iter().map(Array::state).collect();
    parts.into_iter().for_each(|part| rt.block_on(part.close()).unwrap());
    rt.end();
    world.disks.iter().for_each(|d| d.crash(3));
    states
}

fn refused(world: &World, how: OpenHow) -> Refused {
    on(world, async |rt, drives| parts::open(rt, drives, how).await.err().expect("the open is refused"))
}

/// The labels of every slice of a drive: part and place; first, last, and the one behind its slots.
fn labels(disk: &Disk) -> Vec<(u8, MemberLba)> {
    let slices = Slices::new(BlockCount(disk.params().bytes / BLOCK), PARTS).unwrap();
    let of_part = |i: u8| {
        let (from, blocks) = slices.range(i);
        [0, blocks.0 - 1, Layout::inner_label(slot_blocks()).0].map(|at| (i, from + BlockCount(at)))
    };
    (0..PARTS).flat_map(of_part).collect()
}

/// Blocks of a slot of these worlds.
fn slot_blocks() -> u32 {
    static BLOCKS: OnceLock<u32> = OnceLock::new();
    *BLOCKS.get_or_init(|| label_at(&filled().disks[0], MemberLba(0)).unwrap().layout.slot_blocks)
}

fn label_at(disk: &Disk, at: MemberLba) -> Option<Label> {
    Label::decode(&disk.image_read(at, BlockCount(1))).ok()
}

fn zero(disk: &Disk, at: MemberLba) {
    disk.image_write(at, &[0; BLOCK as usize]);
}

/// What the parts were told is there after a kill, however the array is opened; and nothing is lost with a drive.
pub fn every_part_comes_back() {
    let world = filled();
    for (i, disk) in world.disks.iter().enumerate() {
        for (part, at) in labels(disk) {
            let label = label_at(disk, at).unwrap();
            assert_eq!((label.part.index, label.part.of, usize::from(label.seat.0)), (part, PARTS, i));
        }
    }
    let killed = world.fork();
    assert_eq!(states(&killed, OpenHow { read_only: true, ..OpenHow::default() }).len(), 3);
    assert_eq!(states(&killed, OpenHow::default()), [ArrayState::Optimal; 3]);
    assert_eq!(states(&killed, OpenHow::default()), [ArrayState::Optimal; 3], "closed in order");
    let without = World { disks: world.fork().disks.into_iter().skip(1).collect() };
    let states = states(&without, DEGRADED);
    assert!(states.iter().all(|s| *s != ArrayState::Optimal), "{states:?}");
}

/// A check counts what is in all parts, and says in which one something is wrong.
pub fn a_check_is_of_every_part() {
    let world = filled();
    states(&world, OpenHow::default());
    let report = on(&world.fork(), async |rt, drives| {
        let (mut last, mut total) = (0, 0);
        let progress = |p: array::CheckProgress| {
            assert!(p.segments_done > last && (total == 0 || total == p.segments_total));
            (last, total) = (p.segments_done, p.segments_total);
        };
        let report = parts::check(rt, drives, progress).await.unwrap();
        assert!(last == total && report.segments >= 3);
        report
    });
    assert!(report.ok(), "{:?}", report.errors);
    assert_eq!(report.blocks, 300);
    let one_less = World { disks: world.fork().disks.into_iter().skip(1).collect() };
    let report = on(&one_less, async |rt, drives| parts::check(rt, drives, |_| {}).await.unwrap());
    assert_eq!(report.members_missing, 1);
    // One data block of part 2 rots.
    let (from, blocks) = Slices::new(BlockCount(world.disks[1].params().bytes / BLOCK), PARTS).unwrap().range(1);
    let image = world.disks[1].image_read(from, blocks);
    let block = image.chunks(BLOCK as usize).position(|b| b.iter().all(|x| *x == 2)).unwrap();
    world.disks[1].image_write(from + BlockCount(block as u64), &[9; BLOCK as usize]);
    let report = on(&world, async |rt, drives| parts::check(rt, drives, |_| {}).await.unwrap());
    assert!(report.damage_count > 0 && report.errors.iter().all(|e| e.starts_with("part 2 of 3: ")), "{report:?}");
}

/// Any label may be damaged, also both at a drive's ends: the drive is known, takes part, and is wiped wholly.
pub fn damaged_labels_hide_nothing() {
    let world = filled();
    let damaged = labels(&world.disks[0]);
    let ends = [damaged[0].1, damaged[7].1];
    let all_but_last = damaged.iter().map(|d| d.1).filter(|at| *at != ends[1]).collect();
    let without_inner = [ends[0], ends[1], damaged[2].1].to_vec();
    let cases = damaged.iter().map(|(_, at)| vec![*at]).chain([ends.to_vec(), without_inner, all_but_last]);
    for (n, places) in cases.enumerate() {
        let world = world.fork();
        places.iter().for_each(|at| world.disks[0].image_write(*at, &[0x5a; BLOCK as usize]));
        let ends_gone = ends.iter().chain([&damaged[2].1]).all(|at| places.contains(at));
        let seen = on(&world, async |_, drives| identify(&drives[0]).await.unwrap());
        assert_eq!(seen.is_some(), !ends_gone, "case {n}");
        if let Some(seen) = seen {
            assert_eq!((seen.parts, seen.seat.0, seen.array_name.as_str()), (PARTS, 0, "a"), "case {n}");
            assert!(seen.generation.is_some(), "case {n}");
            let shown = on(&world, async |_, drives| inspect(&drives[0]).await);
            assert_eq!((shown.labels.len(), shown.parts.len()), (3, 3), "case {n}");
            assert!(shown.parts.iter().any(|p| p.slots.len() == 2));
        }
        let few = places.len() <= 2;
        if few {
            assert_eq!(states(&world.fork(), OpenHow::default()), [ArrayState::Optimal; 3], "case {n}");
        }
        on(&world, async |_, drives| wipe(&drives[0]).await.unwrap());
        for (part, at) in &damaged {
            assert!(label_at(&world.disks[0], *at).is_none(), "case {n}: part {part} still has its label at {at}");
        }
        let seen = on(&world, async |_, drives| identify(&drives[0]).await.unwrap());
        assert_eq!(seen, None, "case {n}");
    }
}

/// A wipe whose power fails after any of its operations leaves a drive that is known as this array's, so that a second
/// wipe does the rest; or one that has nothing.
pub fn a_wipe_is_interrupted_anywhere() {
    let world = filled();
    for whole_block in 0..2 {
        for last in 0.. {
            let world = world.fork();
            if whole_block == 1 {
                zero(&world.disks[0], MemberLba(0));
            }
            let done = interrupted_wipe(&world, last);
            let left = labels(&world.disks[0]).into_iter().filter(|(_, at)| label_at(&world.disks[0], *at).is_some());
            let left: Vec<_> = left.collect();
            let seen = on(&world, async |_, drives| identify(&drives[0]).await.unwrap());
            match &seen {
                Some(seen) => assert_eq!((seen.parts, seen.array_name.as_str()), (PARTS, "a"), "after {last}"),
                None => assert_eq!(left, [], "after {last}"),
            }
            let how = OpenHow { degraded: true, read_only: true, ..OpenHow::default() };
            let alone = World { disks: world.fork().disks.drain(..1).collect() };
            let plain = on(&alone, async |rt, drives| Array::open(rt, drives, how).await.err());
            assert!(plain.is_some(), "after {last}: it is no whole array");
            // The others do without it, or with what it has.
            if seen.is_some() {
                states(&world.fork(), DEGRADED);
            }
            on(&world, async |_, drives| wipe(&drives[0]).await.unwrap());
            assert!(labels(&world.disks[0]).iter().all(|(_, at)| label_at(&world.disks[0], *at).is_none()));
            if done {
                assert_eq!(left, []);
                break;
            }
        }
    }
}

/// Wipes the first drive, whose power fails after so many operations that change it; whether it came to its end.
fn interrupted_wipe(world: &World, operations: usize) -> bool {
    let left = Rc::new(Cell::new(operations));
    world.disks[0].on_op(Some(Box::new(move |op| match op.kind {
        OpKind::Write | OpKind::Flush if left.get() == 0 => Verdict::Hang,
        OpKind::Write | OpKind::Flush => {
            left.set(left.get() - 1);
            Verdict::Proceed
        }
        OpKind::Read | OpKind::Deallocate => Verdict::Proceed,
    })));
    let rt = Rt::modelled(4);
    let drive = Drive::modelled(&rt, &world.disks[0]);
    let done = rt.block_on(async {
        let late = rt.sleep(std::time::Duration::from_secs(10));
        let done = futures::future::select(Box::pin(wipe(&drive)), late).await;
        matches!(done, futures::future::Either::Left((Ok(()), _)))
    });
    drop(drive);
    rt.end();
    world.no_hooks();
    world.disks[0].power_cut(operations as u64);
    done
}

/// What looks for an array in one piece does not take a part for one.
pub fn a_part_is_no_whole_array() {
    let world = filled();
    let plain = world.refused(&world.disks, OpenHow::default());
    assert!(plain.why.contains("part 1 of 1") && plain.why.contains("part 1 of 3"), "{plain}");
    world.disks.iter().for_each(|disk| zero(disk, MemberLba(0)));
    let plain = world.refused(&world.disks, OpenHow::default());
    assert!(plain.why.contains("part 1 of 1") && plain.why.contains("part 3 of 3"), "{plain}");
}

/// A part that no drive has any more is named, and the others are not left open.
pub fn a_part_that_is_refused_is_named() {
    let world = filled();
    let (broken, none) = (world.fork(), world.fork());
    for disk in &none.disks {
        labels(disk).iter().filter(|(part, _)| *part == 1).for_each(|(_, at)| zero(disk, *at));
    }
    let missing = refused(&none, OpenHow::default());
    assert!(missing.what.starts_with("part 2 of 3: ") && missing.remedy == Some(Remedy::Force), "{missing}");
    for disk in &broken.disks {
        let (from, _) = Slices::new(BlockCount(disk.params().bytes / BLOCK), PARTS).unwrap().range(2);
        let layout = label_at(disk, from).unwrap().layout;
        (0..2).for_each(|i| zero(disk, from + BlockCount(layout.slot(i).0)));
    }
    let damaged = refused(&broken, OpenHow::default());
    assert!(damaged.what.starts_with("part 3 of 3: ") && damaged.code == RefusedCode::Damaged, "{damaged}");
    let part = ondisk::PartOf { index: 0, of: PARTS };
    let clean = on(&broken, async |rt, drives| {
        let slices = drives.iter().map(|drive| parts::slice_of(drive, part).unwrap()).collect();
        Array::open(rt, slices, OpenHow { part, ..OpenHow::default() }).await.unwrap().recovery().clean
    });
    assert!(clean, "the first part was closed again");
}

/// A drive that has not joined every part takes part where it has; one of another array is not taken.
pub fn a_drive_takes_part_where_it_has_joined() {
    let world = filled();
    let other = filled();
    let some = world.fork();
    for (_, at) in labels(&some.disks[2]).into_iter().filter(|(part, _)| *part == 1) {
        zero(&some.disks[2], at);
    }
    let seen = states(&some, DEGRADED);
    assert!(seen[0] == ArrayState::Optimal && seen[1] != ArrayState::Optimal, "{seen:?}");
    // A label that another array left within the drive.
    let stale = world.fork();
    for (_, at) in labels(&stale.disks[2]).into_iter().filter(|(part, _)| *part == 1) {
        let mut foreign = label_at(&other.disks[2], at).unwrap();
        foreign.array = base::ArrayUuid(uuid::Uuid::from_u128(7));
        stale.disks[2].image_write(at, &foreign.encode_at(MemberLba(1)));
    }
    let seen = states(&stale, DEGRADED);
    assert!(seen[0] == ArrayState::Optimal && seen[1] != ArrayState::Optimal, "{seen:?}");
    let mixed = World { disks: vec![world.disks[0].fork(), Disk::new("empty", world.disks[0].params(), 7)] };
    assert_eq!(refused(&mixed, DEGRADED).code, RefusedCode::NotFound);
}

/// Drives that are too small, or in use, stay as they are.
pub fn what_cannot_be_made_writes_nothing() {
    let params = DiskParams { bytes: 700 * BLOCK, ..DiskParams::default() };
    let tiny = World { disks: world().disks.into_iter().chain([Disk::new("tiny", params, 9)]).collect() };
    let small = World::new(5, false);
    for (world, parts, why) in [(&tiny, 3, "too few for 3 parts"), (&small, 3, "too small"), (&small, 17, "1 to 16")] {
        let refused = on(world, async |rt, d| parts::create(rt, d, &spec(true), parts).await.err().unwrap());
        assert!(refused.why.contains(why), "{refused}");
        assert!(world.disks.iter().all(|d| d.counters().writes == 0));
    }
    let used = filled();
    let before: Vec<u64> = used.disks.iter().map(|d| d.counters().writes).collect();
    let refused = on(&used, async |rt, d| parts::create(rt, d, &spec(false), 2).await.err().unwrap());
    assert_eq!(refused.code, RefusedCode::InUse);
    assert_eq!(before, used.disks.iter().map(|d| d.counters().writes).collect::<Vec<_>>());
}

/// A create that ends on the way leaves no array, and says what to do; whatever the drives had before.
pub fn a_create_is_interrupted_anywhere() {
    for forced in [false, true] {
        let base = if forced { filled() } else { world() };
        // Of every drive, since they are written side by side.
        for writes in 0.. {
            let world = base.fork();
            for disk in &world.disks {
                let left = Rc::new(Cell::new(writes));
                disk.on_op(Some(Box::new(move |op| match op.kind {
                    OpKind::Write if left.get() == 0 => Verdict::Fail(rt::IoError::Os(5)),
                    OpKind::Write => {
                        left.set(left.get() - 1);
                        Verdict::Proceed
                    }
                    OpKind::Read | OpKind::Flush | OpKind::Deallocate => Verdict::Proceed,
                })));
            }
            let made = on(&world, async |rt, d| parts::create(rt, d, &spec(forced), PARTS).await.map(|p| p.len()));
            world.no_hooks();
            world.disks.iter().enumerate().for_each(|(i, d)| d.power_cut(writes as u64 + i as u64));
            if made.is_ok() {
                break;
            }
            let opened = on(&world, async |rt, d| parts::open(rt, d, OpenHow::default()).await.map(|p| p.len()));
            match opened {
                Ok(_) if writes == 0 && forced => {
                    assert_eq!(states(&world, OpenHow::default()), [ArrayState::Optimal; 3])
                }
                // All there is of the first part is what its generation says.
                Ok(parts) => assert!(parts == 3 && label_at(&world.disks[0], MemberLba(0)).is_some(), "after {writes}"),
                Err(_) => {}
            }
            // On empty drives the last part's label is there before the first one's.
            let seen = label_at(&world.disks[0], MemberLba(0)).is_some();
            let last = labels(&world.disks[0])[7].1;
            assert!(forced || !seen || label_at(&world.disks[0], last).is_some(), "after {writes}");
            let again =
                on(&world.fork(), async |rt, d| parts::create(rt, d, &spec(false), PARTS).await.map(|p| p.len()));
            if let Err(refused) = again {
                assert!(refused.code == RefusedCode::InUse && refused.remedy.is_some(), "{refused}");
            }
            let again = on(&world, async |rt, d| parts::create(rt, d, &spec(true), PARTS).await.map(|p| p.len()));
            assert_eq!(again, Ok(3), "after {writes}");
        }
    }
}
