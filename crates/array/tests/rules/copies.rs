//! Two drives that say they are the same member; drives whose ends were overwritten; drives of another size than they had.

use api::ArrayState;
use array::parts::{self, Slices, without_copies};
use array::{Array, CreateSpec, OpenHow, Refused, RefusedCode, identify, wipe};
use base::{BlockCount, MemberLba};
use ondisk::Level;
use rt::model::{Disk, DiskParams};
use rt::{Drive, Rt};

use crate::world::{BLOCK, DEGRADED, World, data, read};

const BLOCKS: u64 = 256;

const SHAPES: [(Level, usize, u8); 5] = [
    (Level::Raid5, 4, 1),
    (Level::Raid6, 5, 1),
    (Level::Raid10 { copies: 2 }, 4, 1),
    (Level::Raid5, 4, 3),
    (Level::Raid0, 3, 1),
];

fn made(level: Level, drives: usize, parts: u8) -> World {
    let params = DiskParams { bytes: (48 << 20) * u64::from(parts), ..DiskParams::default() };
    let world = World::of(drives, params);
    let spec = CreateSpec { name: "a".into(), level, width: Some(drives), zone_blocks: Some(128), force: false };
    let rt = Rt::modelled(1);
    rt.block_on(async {
        let made = parts::create(&rt, World::drives(&rt, &world.disks), &spec, parts).await.unwrap();
        for part in made {
            part.volume_create("v", 8 << 20).await.unwrap();
            part.close().await.unwrap();
        }
    });
    rt.end();
    world
}

/// Opens what `disks` are, in this order; the notes on copies.
async fn open(rt: &Rt, disks: &[Disk], how: OpenHow) -> Result<(Vec<Array>, Vec<String>), Refused> {
    let (drives, notes) = without_copies(rt, World::drives(rt, disks)).await?;
    Ok((parts::open(rt, drives, how).await?, notes))
}

/// Writes `tag` everywhere and closes.
fn write(disks: &[Disk], tag: u8) {
    let rt = Rt::modelled(u64::from(tag));
    rt.block_on(async {
        for part in open(&rt, disks, DEGRADED).await.unwrap().0 {
            let v = part.volume("v").unwrap();
            for lba in (0..BLOCKS).step_by(32) {
                v.write(lba * BLOCK, data(tag, 32), false).await.unwrap();
            }
            part.close().await.unwrap();
        }
    });
    rt.end();
}

/// Opens, expects `tag` everywhere, and closes; the states of the parts once they were rebuilt, and the notes.
fn holds(disks: &[Disk], tag: u8) -> (Vec<ArrayState>, Vec<String>) {
    let rt = Rt::modelled(77);
    let (parts, notes) = rt.block_on(open(&rt, disks, DEGRADED)).unwrap_or_else(|e| panic!("{e}"));
    let mut states = Vec::new();
    for part in parts {
        rt.block_on(part.rebuild_done());
        let v = part.volume("v").unwrap();
        let wanted = vec![tag; (BLOCKS * BLOCK) as usize];
        assert!(read(&rt, &v, 0, BLOCKS) == Ok(wanted), "not {tag}: {:#?}", part.status().events);
        rt.block_on(rt.sleep(std::time::Duration::from_secs(3)));
        states.push(part.state());
        drop(v);
        rt.block_on(part.close()).unwrap();
    }
    rt.end();
    (states, notes)
}

fn refused(disks: &[Disk]) -> Refused {
    let rt = Rt::modelled(78);
    let opened = rt.block_on(open(&rt, disks, DEGRADED));
    opened.err().expect("the open is refused")
}

fn forks(disks: &[Disk]) -> Vec<Disk> {
    disks.iter().map(Disk::fork).collect()
}

/// Of a drive and an older copy of it the drive counts, in whatever order they are found, and it is said.
pub fn an_older_copy_is_left_out() {
    for (level, drives, parts) in SHAPES {
        let world = made(level, drives, parts);
        write(&world.disks, 1);
        let old = forks(&world.disks);
        write(&world.disks, 2);
        for copies in 1..=drives {
            let (old, new) = (forks(&old[..copies]), forks(&world.disks));
            for all in [[&old[..], &new[..]].concat(), [&new[..], &old[..]].concat()] {
                let (states, notes) = holds(&forks(&all), 2);
                assert!(states.iter().all(|s| *s == ArrayState::Optimal), "{level}: {states:?}");
                assert_eq!(notes.len(), copies, "{level}: {notes:?}");
            }
        }
    }
}

/// Of a drive and several older copies of it the drive counts, in whatever order they are found, also where two of the copies are
/// the same.
pub fn several_older_copies_are_left_out() {
    for (level, drives, parts) in SHAPES {
        let world = made(level, drives, parts);
        write(&world.disks, 1);
        let older = world.disks[1].fork();
        write(&world.disks, 2);
        let old = world.disks[1].fork();
        write(&world.disks, 3);
        let copies = [old.fork(), old.fork(), older];
        // Where the drive itself is among them.
        for at in 0..=copies.len() {
            let mut same: Vec<Disk> = copies.iter().map(Disk::fork).collect();
            same.insert(at, world.disks[1].fork());
            let others = [0].into_iter().chain(2..drives).map(|i| world.disks[i].fork());
            let (states, notes) = holds(&same.into_iter().chain(others).collect::<Vec<_>>(), 3);
            assert!(states.iter().all(|s| *s == ArrayState::Optimal), "{level}: {states:?}");
            assert_eq!(notes.len(), copies.len(), "{level}: {notes:?}");
        }
    }
}

/// Where it is not certain which of two is the member, the open is refused and names both.
pub fn copies_that_may_be_either_are_refused() {
    for (level, drives, parts) in SHAPES {
        let world = made(level, drives, parts);
        write(&world.disks, 1);
        // In the same state.
        let copy = world.disks[1].fork();
        let refused_same = refused(&[&forks(&world.disks)[..], &[copy.fork()]].concat());
        assert_eq!(refused_same.code, RefusedCode::Diverged);
        assert!(refused_same.what.contains("d1"), "{refused_same}");
        // Each used without the other.
        let mut others = forks(&world.disks);
        write(&world.disks, 2);
        write(&others, 3);
        let both = [&forks(&world.disks)[..], &[others.remove(1)]].concat();
        assert_eq!(refused(&both).code, RefusedCode::Diverged);
    }
}

/// Runs of blocks, first and length, of a drive of so many.
type Places = fn(u64) -> Vec<(u64, u64)>;

/// A world whose drives lost these blocks.
fn overwritten(world: &World, which: &[usize], blocks: impl Fn(u64) -> Vec<(u64, u64)>) -> World {
    let world = world.fork();
    for &i in which {
        let all = world.disks[i].params().bytes / BLOCK;
        for (from, n) in blocks(all) {
            world.disks[i].image_write(MemberLba(from), &vec![0xa5; (n * BLOCK) as usize]);
        }
    }
    world
}

/// What overwrites the ends of drives costs nothing: not one of them, nor all.
pub fn ends_that_were_overwritten_are_mended() {
    for (level, drives, parts) in SHAPES {
        let world = made(level, drives, parts);
        write(&world.disks, 1);
        // A partition table at both ends; the first and the last MiB; the first block; the last.
        let ends: [Places; 4] = [
            |all| vec![(0, 5), (all - 9, 9)],
            |all| vec![(0, 256), (all - 256, 256)],
            |_| vec![(0, 1)],
            |all| vec![(all - 1, 1)],
        ];
        for blocks in ends {
            for n in 1..=drives {
                let which: Vec<usize> = (0..n).collect();
                let hit = overwritten(&world, &which, blocks);
                let rt = Rt::modelled(3);
                for disk in &hit.disks {
                    let known = rt.block_on(identify(&Drive::modelled(&rt, disk))).unwrap();
                    assert!(known.is_some(), "{level}, {n} of {drives}: it is not known any more");
                }
                rt.end();
                let (states, _) = holds(&hit.disks, 1);
                assert!(states.iter().all(|s| *s == ArrayState::Optimal), "{level}, {n}: {states:?}");
                for (disk, was) in hit.disks.iter().zip(&world.disks) {
                    let all = was.params().bytes / BLOCK;
                    for at in [0, all - 1] {
                        let block = |d: &Disk| d.image_read(MemberLba(at), BlockCount(1));
                        assert!(block(disk) == block(was), "{level}: the label at block {at} is not mended");
                    }
                }
            }
        }
    }
}

/// A spare that has lost one of its labels gets it back: once it has none, nothing tells whose it is.
pub fn a_label_of_a_spare_is_mended() {
    for (level, drives, parts) in SHAPES.into_iter().filter(|(level, ..)| *level != Level::Raid0) {
        let mut world = made(level, drives, parts);
        let spare = Disk::new("spare", world.disks[0].params(), 9);
        let rt = Rt::modelled(2);
        rt.block_on(async {
            let drive = Drive::modelled(&rt, &spare);
            let slices = Slices::new(drive.info().blocks, parts).unwrap();
            for (index, part) in open(&rt, &world.disks, DEGRADED).await.unwrap().0.into_iter().enumerate() {
                part.drive_add_spare(slices.slice(&drive, index as u8), false).await.unwrap();
                part.close().await.unwrap();
            }
        });
        rt.end();
        let last = spare.params().bytes / BLOCK - 1;
        world.disks.push(spare);
        for at in [0, last] {
            let hit = overwritten(&world, &[drives], |_| vec![(at, 1)]);
            let rt = Rt::modelled(3);
            let all = rt.block_on(open(&rt, &hit.disks, DEGRADED)).unwrap().0;
            drop(all);
            rt.end();
            let block = |world: &World| world.disks[drives].image_read(MemberLba(at), BlockCount(1));
            assert!(block(&hit) == block(&world), "{level}: the label at block {at} is not mended");
        }
    }
}

/// Another program's data behind a forgotten label is not taken for an array, nor touched.
pub fn a_forgotten_label_says_nothing() {
    let world = made(Level::Raid5, 4, 1);
    write(&world.disks, 1);
    // A partition from the first MiB on, with something in it.
    let hit = overwritten(&world, &[0, 1, 2, 3], |all| vec![(0, 5), (256, 40), (all - 9, 9)]);
    let rt = Rt::modelled(3);
    for disk in &hit.disks {
        assert_eq!(rt.block_on(identify(&Drive::modelled(&rt, disk))).unwrap(), None);
    }
    let before: Vec<u64> = hit.disks.iter().map(|d| d.counters().writes).collect();
    assert!(rt.block_on(open(&rt, &hit.disks, DEGRADED)).is_err());
    assert!(hit.disks.iter().zip(before).all(|(d, writes)| d.counters().writes == writes));
    rt.end();
}

/// A wiped drive has no label left anywhere.
pub fn a_wiped_drive_is_not_known() {
    for (level, drives, parts) in SHAPES {
        let world = made(level, drives, parts);
        let rt = Rt::modelled(3);
        let drive = Drive::modelled(&rt, &world.disks[0]);
        rt.block_on(wipe(&drive)).unwrap();
        let disk = overwritten(&world, &[0], |all| vec![(0, 1), (all - 1, 1)]).disks.remove(0);
        assert_eq!(rt.block_on(identify(&Drive::modelled(&rt, &disk))).unwrap(), None);
        rt.end();
    }
}

/// The same contents on a drive of another size.
fn resized(disk: &Disk, blocks: u64) -> Disk {
    let params = DiskParams { bytes: blocks * BLOCK, ..disk.params() };
    let new = Disk::new(disk.name(), params, 5);
    let both = blocks.min(disk.params().bytes / BLOCK);
    for at in (0..both).step_by(256) {
        let n = 256.min(both - at);
        new.image_write(MemberLba(at), &disk.image_read(MemberLba(at), BlockCount(n)));
    }
    new
}

/// A drive that came back a little smaller, or larger, is used as far as it goes.
pub fn a_drive_of_another_size_is_used() {
    for (level, drives, parts) in SHAPES {
        let world = made(level, drives, parts);
        write(&world.disks, 1);
        let all = world.disks[0].params().bytes / BLOCK;
        for blocks in [all - 1, all + 1, all + 1000] {
            for n in 1..=drives {
                let mut disks = forks(&world.disks);
                disks[..n].iter_mut().for_each(|disk| *disk = resized(disk, blocks));
                let (states, _) = holds(&disks, 1);
                assert!(
                    states.iter().all(|s| *s == ArrayState::Optimal),
                    "{level}, {n} of {blocks} blocks: {states:?}"
                );
                // And again, as it is now.
                holds(&disks, 1);
            }
        }
        // Zones are lost, on one drive: no more than its redundancy.
        if level != Level::Raid0 {
            let mut disks = forks(&world.disks);
            disks[1] = resized(&disks[1], all - all / 4);
            let (states, _) = holds(&disks, 1);
            assert!(states.iter().all(|s| *s == ArrayState::Optimal), "{level}: {states:?}");
            for lost in [0, 2] {
                let mut left = forks(&disks);
                left.remove(lost);
                holds(&left, 1);
            }
        }
    }
}

/// Drives that were members once, and of which something else has left nothing but the last label.
fn reused(disk: &Disk) -> Vec<u8> {
    let last = disk.params().bytes / BLOCK - 1;
    let theirs = vec![0xEE; (last * BLOCK) as usize];
    disk.image_write(MemberLba(0), &theirs);
    theirs
}

fn is_untouched(disk: &Disk, theirs: &[u8]) -> bool {
    disk.image_read(MemberLba(0), BlockCount(theirs.len() as u64 / BLOCK)) == theirs
}

/// Nothing is written to such a drive, whether it is in, missing, or was failed and is out.
pub fn what_was_reused_is_left_alone() {
    for failed in [false, true] {
        for back_in_use in [false, true] {
            let params = DiskParams { bytes: 48 << 20, volatile_cache: false, shared: true, ..DiskParams::default() };
            let world = World::of(4, params);
            world.create_of_width(Level::Raid5, 3, 128, 8 << 20);
            let p = world.start(1);
            p.write(0, 1, 16).unwrap();
            if failed {
                let array = p.array();
                p.run(async move { array.drive_fail(base::MemberId(2)).await }).unwrap();
            }
            p.close();
            let theirs = reused(&world.disks[2]);
            let left = |disks: &[Disk]| World { disks: [0, 1, 3].map(|i| disks[i].clone()).to_vec() };
            let seen = if back_in_use { left(&world.disks) } else { World { disks: world.disks.clone() } };
            let p = seen.start_how(2, DEGRADED);
            if back_in_use {
                let (array, drive) = (p.array(), Drive::modelled(&p.rt, &world.disks[2]));
                p.run(async move { array.drive_back(base::MemberId(2), drive).await }).unwrap_err();
            }
            p.write(0, 2, 16).unwrap();
            p.wait(std::time::Duration::from_secs(20));
            assert!(is_untouched(&world.disks[2], &theirs), "failed: {failed}, back in use: {back_in_use}");
            assert!(p.is(0, 2, 16));
            p.close();
            assert!(is_untouched(&world.disks[2], &theirs));
        }
    }
}

/// A drive that has a file system now is no member any more, although the label away from its ends, and the slots, are whole.
pub fn a_file_system_is_no_member() {
    let world = made(Level::Raid5, 4, 1);
    write(&world.disks, 1);
    let hit = overwritten(&world, &[1], |all| vec![(0, 5), (all - 9, 9)]);
    let rt = Rt::modelled(3);
    assert!(rt.block_on(identify(&Drive::modelled(&rt, &hit.disks[1]))).unwrap().is_some());
    let mut first = vec![0; BLOCK as usize];
    first[..4].copy_from_slice(b"XFSB");
    hit.disks[1].image_write(MemberLba(0), &first);
    assert!(rt.block_on(identify(&Drive::modelled(&rt, &hit.disks[1]))).unwrap().is_none());
    rt.end();
}

/// The same where only the front was overwritten, of an array in one piece and in parts: nothing is written to it, and nothing of it
/// is believed, neither at the open nor when it is asked for in use. What lies there is told.
pub fn a_file_system_in_front_is_left_alone() {
    for parts in [1, 3] {
        let disks = World::of(4, DiskParams { bytes: 144 << 20, ..DiskParams::default() });
        let rt = Rt::modelled(1);
        let spec =
            CreateSpec { name: "a".into(), level: Level::Raid5, width: Some(4), zone_blocks: Some(128), force: false };
        rt.block_on(async {
            let made = parts::create(&rt, World::drives(&rt, &disks.disks), &spec, parts).await.unwrap();
            let array = super::whole::joined(&rt, made, false).await.unwrap();
            array.volume_create("v", 1 << 20).await.unwrap();
            array.close().await.unwrap();
        });
        rt.end();
        let mut front = vec![0xEE; 4 * BLOCK as usize];
        front[..4].copy_from_slice(b"XFSB");
        disks.disks[1].image_write(MemberLba(0), &front);
        let all = BlockCount(disks.disks[1].params().bytes / BLOCK);
        let theirs = disks.disks[1].image_read(MemberLba(0), all);

        let rt = Rt::modelled(2);
        rt.block_on(async {
            let mine = Drive::modelled(&rt, &disks.disks[1]);
            assert_eq!(array::made_of(&mine).await, Some("xfs"));
            assert!(identify(&mine).await.unwrap().is_none());
            let others = [0, 2, 3].map(|i| disks.disks[i].clone());
            let seen = if parts == 1 { &others[..] } else { &disks.disks[..] };
            let opened = parts::open(&rt, World::drives(&rt, seen), DEGRADED).await.unwrap();
            let array = super::whole::joined(&rt, opened, false).await.unwrap();
            assert_eq!(array.drive_back(&mine).await.unwrap_err().code, RefusedCode::Diverged);
            rt.sleep(std::time::Duration::from_secs(20)).await;
            array.close().await.unwrap();
        });
        rt.end();
        assert!(disks.disks[1].image_read(MemberLba(0), all) == theirs, "of {parts} parts");
    }
}

/// Where something reaches over all that the first part has on a drive but its last label, the other parts leave the drive alone, too.
pub fn what_covers_one_part_is_left_alone_by_all() {
    let world = super::whole::world();
    let part = world.disks[1].params().bytes / BLOCK / u64::from(super::whole::PARTS);
    world.disks[1].image_write(MemberLba(0), &vec![0xEE; ((part - 300) * BLOCK) as usize]);
    let all = BlockCount(world.disks[1].params().bytes / BLOCK);
    let theirs = world.disks[1].image_read(MemberLba(0), all);
    let rt = Rt::modelled(2);
    rt.block_on(async {
        let opened = parts::open(&rt, World::drives(&rt, &world.disks), DEGRADED).await.unwrap();
        let array = super::whole::joined(&rt, opened, false).await.unwrap();
        rt.sleep(std::time::Duration::from_secs(20)).await;
        assert_ne!(array.status().await.unwrap().state, ArrayState::Optimal);
        array.close().await.unwrap();
    });
    rt.end();
    assert!(world.disks[1].image_read(MemberLba(0), all) == theirs);
}

/// A block that cannot be written any more under one label is no reason to do without its drive.
pub fn a_label_that_cannot_be_written_is_done_without() {
    for (level, drives, parts) in SHAPES {
        let world = made(level, drives, parts);
        write(&world.disks, 1);
        let hit = overwritten(&world, &[1], |_| vec![(0, 1)]);
        hit.disks[1].on_op(Some(Box::new(|op| match op.kind {
            rt::model::OpKind::Write if op.at.0 == 0 => rt::model::Verdict::Fail(rt::IoError::Medium),
            _ => rt::model::Verdict::Proceed,
        })));
        let rt = Rt::modelled(4);
        let (parts, _) = rt.block_on(open(&rt, &hit.disks, DEGRADED)).unwrap();
        let states: Vec<_> = parts.iter().map(array::Array::state).collect();
        assert!(states.iter().all(|s| *s == ArrayState::Optimal), "{level}: {states:?}");
        drop(parts);
        rt.end();
    }
}

/// The label of another member in a drive's first block is outvoted by the drive's other two.
pub fn a_strange_first_label_is_outvoted() {
    for (level, drives, parts) in SHAPES {
        let world = made(level, drives, parts);
        write(&world.disks, 1);
        let disks = forks(&world.disks);
        disks[1].image_write(MemberLba(0), &disks[0].image_read(MemberLba(0), BlockCount(1)));
        let (states, _) = holds(&disks, 1);
        assert!(states.iter().all(|s| *s == ArrayState::Optimal), "{level}: {states:?}");
    }
}
