//! The rules of the log and of recovery, one by one: each test fails when its rule is taken out.
//!
//! Drives are modelled; time is virtual.

#![allow(clippy::unwrap_used)]

use array::inspect::Found;
use array::{Array, ArrayState, CreateSpec, Fault, OpenHow, RefusedCode, Volume, inspect};
use base::{BlockCount, MemberId, MemberLba};
use ondisk::{Label, Level, RecordHeader};
use rt::model::{Disk, DiskParams, OpKind, Verdict};
use rt::{Bytes, Drive, IoError, Rt};

const BLOCK: u64 = 4096;

struct World {
    disks: Vec<Disk>,
}

impl World {
    fn new(n: usize, volatile_cache: bool) -> World {
        let params = DiskParams { bytes: 48 << 20, volatile_cache, ..DiskParams::default() };
        World { disks: (0..n).map(|i| Disk::new(&format!("d{i}"), params, i as u64)).collect() }
    }

    fn drives(rt: &Rt, disks: &[Disk]) -> Vec<Drive> {
        disks.iter().map(|d| Drive::modelled(rt, d)).collect()
    }

    /// Makes an array with a volume "v" of 8 MiB.
    fn create(&self, level: Level) {
        let rt = Rt::modelled(1);
        let spec =
            CreateSpec { name: "a".into(), level, width: Some(self.disks.len()), zone_blocks: Some(128), force: false };
        rt.block_on(async {
            let array = Array::create(&rt, Self::drives(&rt, &self.disks), &spec).await.unwrap();
            array.volume_create("v", 8 << 20).await.unwrap();
            array.close().await.unwrap();
        });
        rt.end();
    }

    fn open(&self, rt: &Rt) -> (Array, Volume) {
        let array = rt.block_on(Array::open(rt, Self::drives(rt, &self.disks), OpenHow::default())).unwrap();
        let volume = array.volume("v").unwrap();
        (array, volume)
    }

    fn refused(&self, disks: &[Disk]) -> array::Refused {
        let rt = Rt::modelled(9);
        let opened =
            rt.block_on(Array::open(&rt, Self::drives(&rt, disks), OpenHow { degraded: true, ..OpenHow::default() }));
        opened.err().expect("the open is refused")
    }

    /// Newest generation on a drive: number and its words about the members.
    fn newest(&self, i: usize) -> (u64, Vec<String>) {
        let rt = Rt::modelled(7);
        let seen = rt.block_on(inspect(&Drive::modelled(&rt, &self.disks[i])));
        let slots = seen.slots.into_iter().filter_map(|s| match s {
            Found::Valid(line) => Some((line.number, line.members)),
            Found::Invalid(_) => None,
        });
        slots.max().unwrap()
    }

    fn label(&self, i: usize) -> Label {
        Label::decode(&self.disks[i].image_read(MemberLba(0), BlockCount(1))).unwrap()
    }

    /// Blocks that hold a record header: drive, place, header.
    fn headers(&self) -> Vec<(usize, MemberLba, RecordHeader)> {
        let mut found = Vec::new();
        for i in 0..self.disks.len() {
            let layout = self.label(i).layout;
            for zone in 0..layout.zones {
                for row in 0..layout.zone_blocks {
                    let at = layout.zone_row(zone, row);
                    if let Ok(h) = RecordHeader::decode(&self.disks[i].image_read(at, BlockCount(1))) {
                        found.push((i, at, h));
                    }
                }
            }
        }
        found
    }
}

fn data(tag: u8, blocks: u64) -> Bytes {
    Bytes::from_slice(&vec![tag; (blocks * BLOCK) as usize])
}

fn read(rt: &Rt, v: &Volume, lba: u64, blocks: u64) -> Result<Vec<u8>, Fault> {
    let parts = rt.block_on(v.read(lba * BLOCK, blocks * BLOCK))?;
    Ok(parts.iter().flat_map(|p| p.iter().copied()).collect())
}

/// Rule: acknowledgement. A flush or FUA write survives a power cut on drives with a volatile cache.
#[test]
fn flushed_and_fua_writes_survive_a_power_cut() {
    for fua in [false, true] {
        for seed in 0..20 {
            let world = World::new(4, true);
            world.create(Level::Raid5);
            let rt = Rt::modelled(seed);
            let (array, v) = world.open(&rt);
            rt.block_on(async {
                v.write(0, data(1, 5), fua).await.unwrap();
                if !fua {
                    v.flush().await.unwrap();
                }
            });
            drop((array, v));
            rt.end();
            world.disks.iter().for_each(|d| d.power_cut(seed));
            let rt = Rt::modelled(seed);
            let (_array, v) = world.open(&rt);
            assert_eq!(read(&rt, &v, 0, 5).unwrap(), vec![1; 5 * 4096], "fua {fua}, seed {seed}");
        }
    }
}

/// Rule: acknowledgement in row order; a record behind one that is not complete waits.
#[test]
fn a_record_waits_for_the_one_before_it() {
    let world = World::new(3, false);
    world.create(Level::Raid5);
    let rt = Rt::modelled(3);
    let (_array, v) = world.open(&rt);
    // The first write to a zone of drive 0 hangs; what is written later completes.
    let start = world.label(0).layout.zone_row(0, 0);
    let mut hung = false;
    world.disks[0].on_op(Some(Box::new(move |op| {
        if op.kind == OpKind::Write && op.at >= start && !hung {
            hung = true;
            return Verdict::Hang;
        }
        Verdict::Proceed
    })));
    let first = {
        let v = v.clone();
        rt.spawn(async move { v.write(0, data(1, 2), false).await })
    };
    let second = {
        let v = v.clone();
        rt.spawn(async move { v.write(64 * BLOCK, data(2, 2), false).await })
    };
    rt.block_on(rt.sleep(std::time::Duration::from_secs(5)));
    assert!(!first.is_finished(), "the first is not complete on all members");
    assert!(!second.is_finished(), "the second lies behind it");
}

/// Rule: member out before acknowledgement, and a record that cannot complete is written again elsewhere.
#[test]
fn a_failed_member_is_out_durably_before_a_flush_is_answered() {
    let world = World::new(4, true);
    world.create(Level::Raid5);
    let rt = Rt::modelled(4);
    let (array, v) = world.open(&rt);
    world.disks[1].on_op(Some(Box::new(|op| match op.kind {
        OpKind::Write => Verdict::Fail(IoError::Medium),
        OpKind::Read | OpKind::Flush | OpKind::Deallocate => Verdict::Proceed,
    })));
    rt.block_on(async {
        v.write(0, data(7, 9), false).await.unwrap();
        v.flush().await.unwrap();
    });
    for i in [0, 2, 3] {
        let (_, members) = world.newest(i);
        assert!(members[1].starts_with("out"), "drive {i} says {members:?}");
    }
    assert_eq!(array.status().state, ArrayState::Degraded);
    drop((array, v));
    rt.end();
    // The member comes back with what it has: it is not believed.
    world.disks.iter().for_each(|d| d.on_op(None));
    world.disks.iter().for_each(|d| d.power_cut(5));
    let rt = Rt::modelled(5);
    let (array, v) = world.open(&rt);
    assert_eq!(array.status().state, ArrayState::Degraded);
    assert_eq!(read(&rt, &v, 0, 9).unwrap(), vec![7; 9 * 4096]);
}

/// Rule: a generation that would exceed the redundancy is never written; the array freezes and is whole again when
/// the drives return.
#[test]
fn beyond_the_redundancy_it_freezes_and_comes_back_whole() {
    let world = World::new(4, false);
    world.create(Level::Raid5);
    let rt = Rt::modelled(6);
    let (array, v) = world.open(&rt);
    rt.block_on(v.write(0, data(3, 30), false)).unwrap();
    world.disks[0].detach();
    world.disks[2].detach();
    let written = rt.block_on(v.write(100 * BLOCK, data(4, 30), false));
    assert_eq!(written, Err(Fault::Frozen));
    assert_eq!(array.status().state, ArrayState::Frozen);
    let (_, members) = world.newest(1);
    assert!(members.iter().filter(|m| m.starts_with("out")).count() <= 1, "{members:?}");
    drop((array, v));
    rt.end();
    world.disks.iter().for_each(Disk::attach);
    world.disks.iter().for_each(|d| d.crash(1));
    let rt = Rt::modelled(7);
    let (array, v) = world.open(&rt);
    assert_eq!(read(&rt, &v, 0, 30).unwrap(), vec![3; 30 * 4096]);
    assert_ne!(array.status().state, ArrayState::Frozen);
}

/// Rule: record headers carry the generation; a recovery that meets a newer one than it chose stops.
#[test]
fn a_record_of_a_newer_generation_stops_recovery() {
    let world = World::new(3, false);
    world.create(Level::Raid5);
    let rt = Rt::modelled(8);
    let (array, v) = world.open(&rt);
    rt.block_on(v.write(0, data(1, 3), true)).unwrap();
    rt.block_on(array.volume_create("w", 1 << 20)).unwrap();
    let number = array.status().generation;
    // Goes to the segment that the generation before listed too.
    rt.block_on(v.write(9 * BLOCK, data(2, 3), true)).unwrap();
    assert_eq!(array.status().generation, number);
    drop((array, v));
    rt.end();
    world.disks.iter().for_each(|d| d.crash(1));
    for i in 0..3 {
        let slot = world.label(i).layout.slot((number % 2) as usize);
        world.disks[i].image_write(slot, &[0; 4096]);
    }
    let refused = world.refused(&world.disks);
    assert_eq!(refused.code, RefusedCode::MembersMissing, "{refused}");
}

/// Rule: torn tail or damage. A header lost below a durable row is damage and stops recovery; at the tail it is a cut.
#[test]
fn a_lost_durable_header_stops_recovery_and_a_torn_tail_does_not() {
    for (lose_last, code) in [(false, Some(RefusedCode::Damaged)), (true, None)] {
        let world = World::new(1, false);
        world.create(Level::Raid0);
        let rt = Rt::modelled(10);
        let (array, v) = world.open(&rt);
        for i in 0..6u8 {
            rt.block_on(v.write(u64::from(i) * BLOCK, data(i + 1, 1), false)).unwrap();
        }
        let epoch = array.status().epoch;
        drop((array, v));
        rt.end();
        world.disks[0].crash(1);
        let of_epoch = world.headers().into_iter().filter(|(_, _, h)| h.epoch.0 == epoch);
        let mut headers: Vec<_> = of_epoch.collect();
        headers.sort_by_key(|(_, _, h)| (h.segment, h.row));
        assert_eq!(headers.len(), 6);
        let (_, at, _) = if lose_last { &headers[5] } else { &headers[2] };
        world.disks[0].image_write(*at, &[0xee; 4096]);
        match code {
            Some(code) => assert_eq!(world.refused(&world.disks).code, code),
            None => {
                let rt = Rt::modelled(11);
                let (_array, v) = world.open(&rt);
                assert_eq!(read(&rt, &v, 4, 1).unwrap(), vec![5; 4096]);
            }
        }
    }
}

/// Rule: diverged members are never used. Two halves that went separate ways are refused together.
#[test]
fn two_histories_are_refused_together() {
    let world = World::new(2, false);
    world.create(Level::Raid10 { copies: 2 });
    for i in 0..2usize {
        let rt = Rt::modelled(20 + i as u64);
        let drives = World::drives(&rt, &world.disks[i..=i]);
        let array = rt.block_on(Array::open(&rt, drives, OpenHow { degraded: true, ..OpenHow::default() })).unwrap();
        rt.block_on(array.volume("v").unwrap().write(0, data(i as u8 + 1, 1), false)).unwrap();
        rt.block_on(array.close()).unwrap();
        rt.end();
    }
    let refused = world.refused(&world.disks);
    assert_eq!(refused.code, RefusedCode::Diverged, "{refused}");
}

/// No majority rule, but half or fewer of the members asks for a word.
#[test]
fn half_of_the_members_asks_for_degraded() {
    let world = World::new(2, false);
    world.create(Level::Raid10 { copies: 2 });
    let rt = Rt::modelled(30);
    let drives = World::drives(&rt, &world.disks[..1]);
    let refused = rt.block_on(Array::open(&rt, drives, OpenHow::default())).err().unwrap();
    assert_eq!(refused.code, RefusedCode::MembersMissing);
}

/// Rule: a running array that sees a newer generation on a member stops writing.
#[test]
fn a_second_writer_stops_the_first() {
    let world = World::new(3, false);
    world.create(Level::Raid5);
    let rt = Rt::modelled(40);
    let (array, _) = world.open(&rt);
    let (second, _) = world.open(&rt);
    rt.block_on(second.volume_create("w", 1 << 20)).unwrap();
    assert!(rt.block_on(array.volume_create("x", 1 << 20)).is_err());
    assert_eq!(array.status().state, ArrayState::Frozen);
}

/// Nothing unverified leaves: rot is repaired from the row, on the drive too; beyond the redundancy it is an error for
/// exactly those blocks.
#[test]
fn rot_is_repaired_or_reported_never_returned() {
    let world = World::new(3, false);
    world.create(Level::Raid5);
    let rt = Rt::modelled(50);
    let (_array, v) = world.open(&rt);
    rt.block_on(v.write(0, data(5, 8), false)).unwrap();
    let spoil = |disks: &[usize]| {
        let mut spoilt = 0;
        for &i in disks {
            let layout = world.label(i).layout;
            for zone in 0..layout.zones {
                let at = layout.zone_row(zone, 0);
                let blocks = world.disks[i].image_read(at, BlockCount(128));
                for (n, block) in blocks.chunks(4096).enumerate().filter(|(_, b)| b.iter().all(|&x| x == 5)) {
                    let mut wrong = block.to_vec();
                    wrong[9] ^= 0x40;
                    world.disks[i].image_write(at + BlockCount(n as u64), &wrong);
                    spoilt += 1;
                }
            }
        }
        spoilt
    };
    let some = (0..3).find(|&i| spoil(&[i]) > 0).expect("a drive holds data blocks");
    assert_eq!(read(&rt, &v, 0, 8).unwrap(), vec![5; 8 * 4096]);
    assert!(spoil(&[some]) > 0, "what was wrong is right again on the drive");
    assert_eq!(read(&rt, &v, 0, 8).unwrap(), vec![5; 8 * 4096]);
    spoil(&[0, 1, 2]);
    assert!((0..8).any(|lba| read(&rt, &v, lba, 1) == Err(Fault::Medium)));
    for lba in 0..8 {
        assert!(read(&rt, &v, lba, 1).is_err() || read(&rt, &v, lba, 1).unwrap() == vec![5; 4096]);
    }
}

/// A rebuild restores full redundancy: afterwards another member may go.
#[test]
fn after_a_rebuild_another_member_may_go() {
    let mut world = World::new(4, false);
    world.create(Level::Raid6);
    let rt = Rt::modelled(60);
    let (array, v) = world.open(&rt);
    for i in 0..20u64 {
        rt.block_on(v.write(i * 37 * BLOCK, data(i as u8 + 1, 20), false)).unwrap();
    }
    rt.block_on(array.drive_fail(MemberId(0))).unwrap();
    rt.block_on(array.drive_fail(MemberId(1))).unwrap();
    for seat in [0, 1] {
        let disk = Disk::new(&format!("new{seat}"), world.disks[0].params(), 99 + u64::from(seat));
        rt.block_on(array.drive_replace(MemberId(seat), Drive::modelled(&rt, &disk), false)).unwrap();
        world.disks.push(disk);
    }
    rt.block_on(array.rebuild_done());
    assert_eq!(array.status().state, ArrayState::Optimal, "{:#?}", array.status().events);
    world.disks[2].detach();
    world.disks[3].detach();
    for i in 0..20u64 {
        let expected = if i == 0 { vec![1; 4096] } else { vec![i as u8 + 1; 4096] };
        assert_eq!(read(&rt, &v, i * 37, 1).unwrap(), expected);
    }
}

/// A volume that grows while a checkpoint merges keeps its map.
#[test]
fn growing_during_a_checkpoint_keeps_the_map() {
    let world = World::new(4, false);
    world.create(Level::Raid5);
    let rt = Rt::modelled(21);
    let (array, v) = world.open(&rt);
    rt.block_on(v.write(0, data(5, 4), false)).unwrap();
    rt.block_on(async {
        let (checkpoint, grown) = futures::join!(array.checkpoint(), array.volume_grow("v", 64 << 20));
        checkpoint.unwrap();
        grown.unwrap();
    });
    assert_eq!(read(&rt, &v, 0, 4).unwrap(), vec![5; 4 * 4096]);
    rt.block_on(v.write((32 << 20) / BLOCK * BLOCK, data(6, 4), false)).unwrap();
    rt.block_on(array.checkpoint()).unwrap();
    assert_eq!(read(&rt, &v, 0, 4).unwrap(), vec![5; 4 * 4096]);
    assert_eq!(read(&rt, &v, (32 << 20) / BLOCK, 4).unwrap(), vec![6; 4 * 4096]);
}

/// A flush that fails in a commit leaves the slot of the generation in effect alone.
#[test]
fn a_failed_flush_in_a_commit_costs_no_generation() {
    for seed in 0..100 {
        let world = World::new(4, true);
        world.create(Level::Raid5);
        let rt = Rt::modelled(seed);
        let (array, v) = world.open(&rt);
        rt.block_on(v.write(0, data(1, 4), true)).unwrap();
        world.disks[1].on_op(Some(Box::new(|op| match op.kind {
            OpKind::Flush => Verdict::Fail(IoError::Medium),
            OpKind::Read | OpKind::Write | OpKind::Deallocate => Verdict::Proceed,
        })));
        let (creator, writer) = (array.clone(), v.clone());
        rt.spawn(async move {
            let _ = creator.volume_create("w", 1 << 20).await;
        })
        .detach();
        let writes = async move {
            for i in 0..50 {
                let _ = writer.write(i * BLOCK, data(2, 1), false).await;
            }
        };
        rt.spawn(writes).detach();
        rt.block_on(rt.sleep(std::time::Duration::from_micros(30 * seed)));
        drop((array, v));
        rt.end();
        world.disks.iter().for_each(|d| d.on_op(None));
        world.disks.iter().for_each(|d| d.power_cut(seed));
        let rt = Rt::modelled(seed);
        let (_array, v) = world.open(&rt);
        assert!(matches!(read(&rt, &v, 0, 1).unwrap()[0], 1 | 2), "seed {seed}");
    }
}
