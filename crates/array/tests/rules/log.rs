//! The way of a write: acknowledgement, durability, members that fail on the way.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use api::ArrayState;
use ondisk::{Entry, Level, RecordHeader};
use rt::IoError;
use rt::model::{DiskParams, OpKind, Verdict};

use crate::world::{BLOCK, World, data};

/// A flush or FUA write survives a power cut on drives with a volatile cache.
pub fn flushed_and_fua_writes_survive_a_power_cut() {
    for fua in [false, true] {
        for seed in 0..20 {
            let world = World::new(4, true);
            world.create(Level::Raid5);
            let p = world.start(seed);
            p.rt.block_on(p.v().write(0, data(1, 5), fua)).unwrap();
            if !fua {
                p.flush().unwrap();
            }
            p.power_cut(seed);
            assert!(world.start(seed).is(0, 1, 5), "fua {fua}, seed {seed}");
        }
    }
}

/// Acknowledgement in row order: a record behind one that is not complete waits.
pub fn a_record_waits_for_the_one_before_it() {
    let world = World::new(3, false);
    world.create(Level::Raid5);
    let p = world.start(3);
    let hung = Rc::new(Cell::new(false));
    world.on_ops(move |disk, op, system| match op.kind {
        OpKind::Write if disk == 0 && !system && !hung.replace(true) => Verdict::Hang,
        OpKind::Read | OpKind::Write | OpKind::Flush | OpKind::Deallocate => Verdict::Proceed,
    });
    let first = p.begin_write(0, 1, 2);
    p.wait(Duration::from_millis(1));
    let second = p.begin_write(64, 2, 3);
    // Before the member is out.
    p.wait(Duration::from_secs(4));
    assert!(!first.is_finished(), "the first is not complete on all members");
    assert!(!second.is_finished(), "the second lies behind it");
}

/// A record that lacks a member is acknowledged only after a generation that marks the member out.
pub fn a_record_without_a_member_is_not_acknowledged() {
    let world = World::new(4, false);
    world.create(Level::Raid5);
    let p = world.start(4);
    world.on_ops(|disk, op, system| match op.kind {
        OpKind::Write if system => Verdict::Hang,
        OpKind::Write if disk == 1 => Verdict::Fail(IoError::Medium),
        OpKind::Read | OpKind::Write | OpKind::Flush | OpKind::Deallocate => Verdict::Proceed,
    });
    let write = p.begin_write(0, 7, 9);
    p.wait(Duration::from_secs(5));
    assert!(!write.is_finished(), "no generation says that the member is out");
}

/// A record that cannot complete is written again, whole, without the member that failed it.
pub fn what_cannot_complete_is_written_elsewhere() {
    let world = World::new(4, false);
    world.create(Level::Raid5);
    let p = world.start(4);
    world.on_ops(|disk, op, _| match op.kind {
        OpKind::Write if disk == 1 => Verdict::Fail(IoError::Medium),
        OpKind::Read | OpKind::Write | OpKind::Flush | OpKind::Deallocate => Verdict::Proceed,
    });
    p.write(0, 7, 9).unwrap();
    assert!(p.is(0, 7, 9));
    assert_eq!(p.array().status().state, ArrayState::Degraded);
    p.kill(1);
    let report = world.check();
    assert!(report.ok(), "{:#?}", report.errors);
    assert!(world.start(5).is(0, 7, 9));
}

/// A flush that a member fails is answered once a generation marks the member out.
pub fn a_failed_member_is_out_durably_before_a_flush_is_answered() {
    for failing in [OpKind::Write, OpKind::Flush] {
        let world = World::new(4, true);
        world.create(Level::Raid5);
        let p = world.start(4);
        if failing == OpKind::Flush {
            p.write(0, 7, 9).unwrap();
        }
        world.on_ops(move |disk, op, _| match op.kind {
            kind if kind == failing && disk == 1 => Verdict::Fail(IoError::Medium),
            OpKind::Read | OpKind::Write | OpKind::Flush | OpKind::Deallocate => Verdict::Proceed,
        });
        if failing == OpKind::Write {
            p.write(0, 7, 9).unwrap();
        }
        p.flush().unwrap();
        for i in [0, 2, 3] {
            let (_, members) = world.newest(i);
            assert!(members[1].starts_with("out"), "drive {i} says {members:?}");
        }
        p.power_cut(5);
        assert!(world.start(5).is(0, 7, 9));
    }
}

/// Host and map entries never share a record: replay reads the one kind only.
pub fn host_and_map_entries_never_share_a_record() {
    let world = World::new(3, false);
    world.create(Level::Raid5);
    let p = world.start(6);
    let usable = p.array().status().usable_bytes / BLOCK;
    p.rt.block_on(p.array().volume_grow("v", usable * BLOCK)).unwrap();
    // Full, then overwritten in part: the cleaner moves blocks while checkpoints write the map.
    for round in 0..3u8 {
        for lba in (0..usable - 8).step_by(if round == 0 { 8 } else { 24 }) {
            p.write(lba, round + 1, 8).unwrap();
            if lba % 64 == 0 {
                let array = p.array();
                p.rt.spawn(async move { array.checkpoint().await }).detach();
            }
        }
    }
    assert!(p.array().moved_blocks() > 0, "the cleaner had work");
    p.kill(1);
    for (_, at, header) in world.headers() {
        let said = header.entries.iter().filter(|e| !matches!(e, Entry::Pad));
        let (nodes, all) = (said.clone().filter(|e| matches!(e, Entry::MapNode { .. })).count(), said.count());
        assert!(nodes == 0 || nodes == all, "the record at {at} has {nodes} map nodes among {all} entries");
    }
}

/// Rows given out and not durable stay within the window in which recovery looks for what was durable.
pub fn rows_that_are_not_durable_stay_within_the_window() {
    const WINDOW: u32 = 2048;
    let zone_bytes = u64::from(6 * WINDOW) * BLOCK / 3 * 2;
    let params = DiskParams { bytes: (8 << 20) + 66 * zone_bytes, volatile_cache: true, ..DiskParams::default() };
    let world = World::of(2, params);
    world.create_with(Level::Raid10 { copies: 2 }, 4 * WINDOW, 64 << 20);
    let p = world.start(1);
    world.on_ops(|_, op, _| if op.kind == OpKind::Flush { Verdict::Hang } else { Verdict::Proceed });
    for i in 0..200 {
        p.begin_write(i * 32, 1, 32).detach();
    }
    p.wait(Duration::from_secs(20));
    let layout = world.label(0).layout;
    let mut farthest = 0;
    for zone in 0..3 {
        for row in 0..4 * WINDOW {
            let block = world.disks[0].image_read(layout.zone_row(zone, row), base::BlockCount(1));
            if let Ok(h) = RecordHeader::decode(&block) {
                farthest = farthest.max(h.row + h.rows - h.durable_row);
            }
        }
    }
    assert!(farthest > WINDOW / 2, "enough was written: {farthest}");
    assert!(farthest <= WINDOW, "{farthest} rows beyond the durable row");
}
