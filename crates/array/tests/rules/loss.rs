//! Loss: of blocks, of members, within the redundancy and beyond it.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use api::{ArrayState, ScrubKind, SeatState};
use array::Fault;
use base::{BlockCount, MemberId};
use ondisk::Level;
use rt::model::{Disk, Fault as DriveFault, OpKind, Verdict};
use rt::{Drive, IoError};

use crate::world::{BLOCK, World};

/// Spoils every block full of `tag` on some drives; how many there were.
fn spoil(world: &World, disks: &[usize], tag: u8) -> usize {
    let found = world.blocks(|b| b.iter().all(|&x| x == tag));
    let mine: Vec<_> = found.into_iter().filter(|(i, ..)| disks.contains(i)).collect();
    for (i, at, mut block) in mine.iter().cloned() {
        block[9] ^= 0x40;
        world.disks[i].image_write(at, &block);
    }
    mine.len()
}

/// Nothing unverified leaves: rot is repaired from the row, on the drive too; beyond the redundancy it is an error for
/// exactly those blocks.
pub fn rot_is_repaired_or_reported_never_returned() {
    let world = World::new(3, false);
    world.create(Level::Raid5);
    let p = world.start(50);
    p.write(0, 5, 8).unwrap();
    let some = (0..3).find(|&i| spoil(&world, &[i], 5) > 0).expect("a drive holds data blocks");
    assert!(p.is(0, 5, 8));
    assert!(spoil(&world, &[some], 5) > 0, "what was wrong is right again on the drive");
    assert!(p.is(0, 5, 8));
    spoil(&world, &[0, 1, 2], 5);
    assert!((0..8).any(|lba| p.read(lba, 1) == Err(Fault::Medium)));
    for lba in 0..8 {
        assert!(p.read(lba, 1).is_err() || p.is(lba, 5, 1));
    }
}

/// A block lost beyond the redundancy is an error until it is overwritten, wherever the cleaner has taken its
/// neighbours, and nothing else is.
pub fn a_lost_block_is_bad_for_good() {
    const LOST: u64 = 77;
    let world = World::new(1, false);
    world.create(Level::Raid0);
    let p = world.start(1);
    let blocks = p.array().status().usable_bytes / BLOCK;
    p.rt.block_on(p.array().volume_grow("v", blocks * BLOCK)).unwrap();
    for lba in (0..blocks - 8).step_by(8) {
        p.write(lba, 1, 8).unwrap();
    }
    p.write(LOST, 0xb5, 1).unwrap();
    assert_eq!(spoil(&world, &[0], 0xb5), 1);
    let mut rounds = 0;
    while !p.array().status().events.iter().any(|e| e.text.contains("is lost")) {
        for lba in (LOST + 1..blocks - 8).step_by(24) {
            p.write(lba + rounds % 16, 2, 8).unwrap();
        }
        rounds += 1;
        assert!(rounds < 60, "the cleaner never came to it");
    }
    p.wait(Duration::from_secs(1));
    assert_eq!(p.read(LOST, 1), Err(Fault::Medium));
    p.checkpoint();
    p.kill(1);
    let p = world.start(2);
    assert_eq!(p.read(LOST, 1), Err(Fault::Medium));
    assert!(p.is(LOST - 1, 1, 1) && p.read(LOST + 1, 1).is_ok());
    p.write(LOST, 3, 1).unwrap();
    assert!(p.is(LOST, 3, 1));
}

/// Without redundancy a drive reads nothing for three seconds, while a checkpoint wants a leaf and a scrub wants blocks: both
/// wait for it, and nothing is given up.
pub fn what_cannot_be_read_for_a_while_is_not_lost() {
    for scrub in [false, true] {
        let world = World::new(1, false);
        world.create(Level::Raid0);
        let p = world.start(1);
        (0..4u8).for_each(|i| p.write(u64::from(i) * 300, i + 1, 20).unwrap());
        p.close();
        let p = world.start(2);
        let until = p.rt.now() + Duration::from_secs(3);
        let clock = p.rt.clone();
        world.on_ops(move |_, op, system| match op.kind {
            OpKind::Read if !system && clock.now() < until => Verdict::Fail(IoError::Medium),
            _ => Verdict::Proceed,
        });
        if scrub {
            p.array().scrub_start(ScrubKind::Media, true).unwrap();
            let array = p.array();
            p.run(async move { array.scrub_done().await });
        } else {
            p.write(30, 9, 1).unwrap();
            p.checkpoint();
            assert!(p.is(30, 9, 1));
        }
        (0..4u8).for_each(|i| assert!(p.is(u64::from(i) * 300, i + 1, 20), "scrub: {scrub}, part {i}"));
    }
}

/// A leaf is lost beyond the redundancy; the segments that hold its blocks are emptied like others, once nothing names them.
pub fn a_lost_leaf_keeps_no_segment() {
    let world = World::new(1, false);
    world.create_with(Level::Raid0, 64, 64 << 20);
    let p = world.start(1);
    let blocks = p.array().status().usable_bytes / BLOCK;
    // Of four blocks one is of the leaf that will be lost.
    let lost_leaf = blocks.next_multiple_of(256);
    for i in 0..256 {
        p.write(lost_leaf + i, 1, 1).unwrap();
        p.write(i * 3, 2, 3).unwrap();
    }
    p.close();
    let q = world.fork();
    let q = q.start(2);
    let leaf = q.rt.block_on(q.v().locate(lost_leaf * BLOCK)).unwrap().map.pop().unwrap();
    q.kill(1);
    let (_, at) = leaf.columns[leaf.column].unwrap();
    world.disks[0].image_write(at, &[0xee; BLOCK as usize]);
    let p = world.start(3);
    let oldest = || world.generation().segments.iter().map(|s| s.id).min().unwrap();
    let (first, mut rounds) = (oldest(), 0u64);
    while oldest().0 < first.0 + 8 {
        let n = blocks * 3 / 4;
        (0..n).step_by(8).for_each(|i| p.write((i * 7 + rounds) % n, 3, 1).unwrap());
        rounds += 1;
        assert!(rounds < 400, "segment {} stays", oldest());
    }
    assert_eq!(p.read(lost_leaf, 1), Err(Fault::Medium));
    p.write(lost_leaf, 4, 256).unwrap();
    p.checkpoint();
    assert!(p.is(lost_leaf, 4, 256));
}

/// A generation that would exceed the redundancy is never written; the array freezes and is whole again when the
/// drives return.
pub fn beyond_the_redundancy_it_freezes_and_comes_back_whole() {
    let world = World::new(4, false);
    world.create(Level::Raid5);
    let p = world.start(6);
    p.write(0, 3, 30).unwrap();
    world.disks[0].detach();
    world.disks[2].detach();
    assert_eq!(p.write(100, 4, 30), Err(Fault::Frozen));
    assert_eq!(p.array().status().state, ArrayState::Frozen);
    let (_, members) = world.newest(1);
    assert!(members.iter().filter(|m| m.starts_with("out")).count() <= 1, "{members:?}");
    world.disks.iter().for_each(Disk::attach);
    p.kill(1);
    let p = world.start(7);
    assert!(p.is(0, 3, 30));
    assert_ne!(p.array().status().state, ArrayState::Frozen);
}

/// Short of a member, what is written from then on survives another.
pub fn new_writes_keep_full_redundancy() {
    let world = World::new(4, false);
    world.create(Level::Raid5);
    let p = world.start(1);
    p.rt.block_on(p.array().drive_fail(MemberId(0))).unwrap();
    p.write(0, 6, 40).unwrap();
    world.disks[1].detach();
    assert!(p.is(0, 6, 40));
}

/// A rebuild restores full redundancy: afterwards other members may go.
pub fn after_a_rebuild_another_member_may_go() {
    let world = World::new(4, false);
    world.create(Level::Raid6);
    let p = world.start(60);
    for i in 0..20u64 {
        p.write(i * 37, i as u8 + 1, 20).unwrap();
    }
    p.rt.block_on(p.array().drive_fail(MemberId(0))).unwrap();
    p.rt.block_on(p.array().drive_fail(MemberId(1))).unwrap();
    for seat in [0, 1] {
        let disk = Disk::new(&format!("new{seat}"), world.disks[0].params(), 99 + u64::from(seat));
        p.rt.block_on(p.array().drive_replace(MemberId(seat), Drive::modelled(&p.rt, &disk), false)).unwrap();
    }
    p.rt.block_on(p.array().rebuild_done());
    assert_eq!(p.array().status().state, ArrayState::Optimal, "{:#?}", p.array().status().events);
    world.disks[2].detach();
    world.disks[3].detach();
    for i in 0..20u64 {
        assert!(p.is(i * 37, i as u8 + 1, 20), "write {i}");
    }
}

/// A rebuild between a read and the write that follows from it writes nothing once the array was handed over, or froze
/// because another Ashlar wrote to the drives: the zone may be somebody else's by then.
pub fn nothing_is_written_once_it_is_closed_or_frozen() {
    for frozen in [false, true] {
        let world = World::new(3, false);
        world.create(Level::Raid5);
        let p = world.start(1);
        (0..40u64).for_each(|i| p.write(i * 4, 0x11, 4).unwrap());
        p.rt.block_on(p.array().drive_fail(MemberId(0))).unwrap();
        let disk = Disk::new("new", world.disks[0].params(), 9);
        p.rt.block_on(p.array().drive_replace(MemberId(0), Drive::modelled(&p.rt, &disk), false)).unwrap();
        world.on_ops(|_, op, system| match op.kind {
            OpKind::Read if !system => Verdict::DelayNs(1_000_000_000),
            OpKind::Read | OpKind::Write | OpKind::Flush | OpKind::Deallocate => Verdict::Proceed,
        });
        p.wait(Duration::from_millis(1500));
        if frozen {
            // Another Ashlar's generations appear on the drives.
            let other = world.fork();
            other.start_how(5, crate::world::DEGRADED).kill(5);
            let layout = world.label(1).layout;
            let begin = layout.slot(0);
            let area = BlockCount(layout.zone_row(0, 0).0 - begin.0);
            for (ours, theirs) in world.disks.iter().zip(&other.disks) {
                ours.image_write(begin, &theirs.image_read(begin, area));
            }
            let created = p.rt.block_on(p.array().volume_create("w", 1 << 20));
            assert!(created.is_err() && p.array().status().state == ArrayState::Frozen);
        } else {
            p.rt.block_on(p.array().close()).unwrap();
        }
        let writes = Rc::new(Cell::new(0));
        let count = writes.clone();
        let counting = move || {
            let count = count.clone();
            move |op: &rt::model::Op| {
                count.set(count.get() + u64::from(op.kind != OpKind::Read));
                Verdict::Proceed
            }
        };
        for d in world.disks.iter().chain([&disk]) {
            d.on_op(Some(Box::new(counting())));
        }
        p.wait(Duration::from_secs(10));
        assert_eq!(writes.get(), 0, "frozen {frozen}");
    }
}

/// A read that the end of its array overtakes is refused; no drive is blamed for it.
pub fn a_shut_door_says_nothing_of_a_drive() {
    let world = World::new(3, false);
    world.create(Level::Raid5);
    let p = world.start(1);
    (0..40u64).for_each(|i| p.write(i * 4, 0x11, 4).unwrap());
    p.close();
    let p = world.start(2);
    world.on_ops(|_, op, system| match op.kind {
        OpKind::Read if !system => Verdict::DelayNs(1_000_000_000),
        OpKind::Read | OpKind::Write | OpKind::Flush | OpKind::Deallocate => Verdict::Proceed,
    });
    let v = p.v();
    // A node of the map first, then the block.
    let read = p.rt.spawn(async move { v.read(0, BLOCK).await });
    p.wait(Duration::from_millis(500));
    p.rt.block_on(p.array().close()).unwrap();
    assert_eq!(p.rt.block_on(read).map(drop), Err(Fault::Closed));
    let status = p.array().status();
    assert!(status.members.iter().all(|m| m.state == SeatState::In), "{:#?}", status.events);
    assert_eq!(status.events.len(), 0, "{:#?}", status.events);
}

/// A bad block on a survivor costs a rebuild its own row and no other, and the rebuild says so.
pub fn one_bad_block_costs_a_rebuild_one_row() {
    let world = World::new(3, false);
    world.create(Level::Raid5);
    let p = world.start(1);
    for i in 0..40u64 {
        p.write(i * 4, 0x11, 4).unwrap();
    }
    p.rt.block_on(p.array().drive_fail(MemberId(0))).unwrap();
    let (_, at, _) = world.blocks(|b| b.iter().all(|&x| x == 0x11)).into_iter().find(|(i, ..)| *i == 1).unwrap();
    world.disks[1].set_fault(DriveFault::BadBlocks { at, blocks: BlockCount(1) });
    let disk = Disk::new("new", world.disks[0].params(), 9);
    p.rt.block_on(p.array().drive_replace(MemberId(0), Drive::modelled(&p.rt, &disk), false)).unwrap();
    p.rt.block_on(p.array().rebuild_done());
    let events = p.array().status().events;
    assert!(events.iter().any(|e| e.text.contains("could not be restored")), "{events:#?}");
    world.disks[1].set_fault(DriveFault::None);
    world.disks[2].detach();
    let lost = (0..160).filter(|&lba| !p.is(lba, 0x11, 1)).count();
    assert!(lost <= 2, "{lost} blocks are lost to one bad one");
}
