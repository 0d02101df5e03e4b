//! Generations: what they rely on, when they count, what waits for them.

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use api::{ArrayState, ScrubKind};
use array::{OpenHow, RefusedCode};
use base::BlockCount;
use futures::future::{Either, select};
use ondisk::{Label, Level, SegmentState};
use rt::model::{OpKind, Verdict};
use rt::{IoError, Rt};

use crate::world::{BLOCK, DEGRADED, World, data, read};

/// Lets slots be written and holds the flush behind them.
fn hold_slot_flushes(world: &World) {
    let seen = Rc::new(RefCell::new(vec![false; world.disks.len()]));
    world.on_ops(move |disk, op, system| {
        let written = &mut seen.borrow_mut()[disk];
        match op.kind {
            OpKind::Write if system => *written = true,
            OpKind::Flush if *written => return Verdict::Hang,
            OpKind::Read | OpKind::Write | OpKind::Flush | OpKind::Deallocate => {}
        }
        Verdict::Proceed
    });
}

/// What a generation relies on is durable before its slot is written, also what another process wrote.
pub fn what_a_generation_relies_on_is_flushed_first() {
    for seed in 0..60 {
        for killed_before in [false, true] {
            let world = World::new(3, true);
            world.create(Level::Raid5);
            let p = world.start(seed);
            for i in 0..8 {
                p.write(i * 40, i as u8 + 1, 5).unwrap();
            }
            if killed_before {
                p.kill(seed);
                hold_slot_flushes(&world);
                let rt = Rt::modelled(seed);
                let drives = World::drives(&rt, &world.disks);
                let inner = rt.clone();
                rt.spawn(async move { drop(array::Array::open(&inner, drives, DEGRADED).await) }).detach();
                rt.block_on(rt.sleep(Duration::from_secs(1)));
                rt.end();
                world.no_hooks();
                world.disks.iter().for_each(|d| d.power_cut(seed));
            } else {
                hold_slot_flushes(&world);
                let array = p.array();
                p.rt.spawn(async move { _ = array.checkpoint().await }).detach();
                p.wait(Duration::from_secs(1));
                p.power_cut(seed);
            }
            let report = world.check();
            assert!(report.ok(), "seed {seed}: {:#?}", report.errors);
            let p = world.start(seed);
            for i in 0..8 {
                assert!(p.is(i * 40, i as u8 + 1, 5), "seed {seed}, block {}", i * 40);
            }
        }
    }
}

/// What a verb wrote down is there after a power cut.
pub fn a_generation_is_durable_when_it_counts() {
    for seed in 0..20 {
        let world = World::new(3, true);
        world.create(Level::Raid5);
        let p = world.start(seed);
        p.rt.block_on(p.array().volume_create("w", 1 << 20)).unwrap();
        p.power_cut(seed);
        assert!(world.start(seed).array().volume("w").is_some(), "seed {seed}");
    }
}

/// A power cut while a generation is being written costs no more than that generation.
pub fn a_torn_generation_leaves_the_one_before() {
    for seed in 0..20 {
        let world = World::new(1, false);
        world.create(Level::Raid0);
        let p = world.start(seed);
        world.hang_slots();
        let array = p.array();
        p.rt.spawn(async move { drop(array.volume_create("w", 1 << 20).await) }).detach();
        p.wait(Duration::from_secs(1));
        p.power_cut(seed);
        world.start(seed);
    }
}

/// A flush that fails in a commit leaves the slot of the generation in effect alone.
pub fn a_failed_flush_in_a_commit_costs_no_generation() {
    for seed in 0..100 {
        let world = World::new(4, true);
        world.create(Level::Raid5);
        let p = world.start(seed);
        p.rt.block_on(p.v().write(0, data(1, 4), true)).unwrap();
        world.on_ops(|disk, op, _| match op.kind {
            OpKind::Flush if disk == 1 => Verdict::Fail(IoError::Medium),
            OpKind::Read | OpKind::Write | OpKind::Flush | OpKind::Deallocate => Verdict::Proceed,
        });
        let (creator, writer) = (p.array(), p.v());
        p.rt.spawn(async move { drop(creator.volume_create("w", 1 << 20).await) }).detach();
        let writes = async move {
            for i in 0..50 {
                let _ = writer.write(i * BLOCK, data(2, 1), false).await;
            }
        };
        p.rt.spawn(writes).detach();
        p.wait(Duration::from_micros(30 * seed));
        p.power_cut(seed);
        let first = world.start(seed).read(0, 1).unwrap()[0];
        assert!(matches!(first, 1 | 2), "seed {seed}");
    }
}

/// A segment is written only when a generation on the drives lists it.
pub fn only_listed_segments_are_written() {
    let world = World::new(3, false);
    world.create(Level::Raid5);
    let p = world.start(2);
    world.hang_slots();
    for i in 0..60 {
        p.begin_write(i * 32, 3, 32).detach();
    }
    p.wait(Duration::from_secs(5));
    let listed = world.generation();
    for (_, at, header) in world.headers() {
        let known = listed.segments.iter().any(|s| s.id == header.segment);
        assert!(known, "the record at {at} is of segment {}, which no generation lists", header.segment);
    }
}

/// Taking the last but one spare starts a generation: a stream never has to wait for one.
pub fn the_last_but_one_spare_starts_a_generation() {
    let world = World::new(3, false);
    world.create(Level::Raid5);
    let p = world.start(2);
    for i in 0..40 {
        p.write(i * 32, 3, 32).unwrap();
        p.wait(Duration::from_secs(1));
        let begun: Vec<_> = world.headers().into_iter().map(|(_, _, h)| h.segment).collect();
        let listed = world.generation();
        let ready = listed.segments.iter().filter(|s| s.state == SegmentState::Spare && !begun.contains(&s.id));
        assert!(ready.count() > 0, "no spare is ready after write {i}");
    }
}

/// A running array that sees a newer generation on a member stops writing.
pub fn a_second_writer_stops_the_first() {
    let world = World::new(3, false);
    world.create(Level::Raid5);
    let p = world.start(40);
    let drives = World::drives(&p.rt, &world.disks);
    // Its open alone commits a generation.
    let _second = p.rt.block_on(array::Array::open(&p.rt, drives, DEGRADED)).unwrap();
    assert!(p.rt.block_on(p.array().volume_create("x", 1 << 20)).is_err());
    assert_eq!(p.array().status().state, ArrayState::Frozen);
}

/// A generation that was in flight to a drive when its process ended lands there under the next one: that goes on, and so does
/// whoever opens the array then. It is no further than one commit ahead.
pub fn a_generation_that_lands_late_is_nobodys() {
    for ahead in [0, 1] {
        let ended = World::new(3, false);
        ended.create(Level::Raid5);
        let p = ended.start(41);
        p.write(0, 1, 32).unwrap();
        let world = ended.fork();
        let next = world.start(42);
        next.write(64, 2, 32).unwrap();
        // What the open asked for is done.
        next.wait(Duration::from_secs(1));
        let number = next.array().status().generation;
        for i in p.array().status().generation..number + ahead {
            p.rt.block_on(p.array().volume_create(&format!("v{i}"), 1 << 20)).unwrap();
        }
        let late = ended.generation();
        assert!(late.number.0 == number + ahead && late.epoch < world.generation().epoch);
        let slot = world.label(1).layout.slot((late.number.0 % 2) as usize);
        world.disks[1].image_write(slot, &late.encode());

        // The next to open it finds the same, if the one that runs ends before it has written there.
        let later = world.fork();
        let p = later.start_how(43, OpenHow::default());
        assert_eq!(p.array().status().state, ArrayState::Optimal, "{:#?}", p.array().status().events);
        assert!(p.is(0, 1, 32) && p.is(64, 2, 32));
        p.close();
        assert_eq!(later.check().errors, Vec::<String>::new());

        // A scrub begins with a generation, and writes back the one before.
        next.array().scrub_start(ScrubKind::Media, true).unwrap();
        let array = next.array();
        next.run(async move { array.scrub_done().await });
        let run = next.array().status().scrub.last.unwrap();
        assert_eq!(run.found.iter().map(|f| f.repaired).sum::<u64>(), u64::from(ahead == 0));
        next.rt.block_on(next.array().volume_create("w", 1 << 20)).unwrap();
        assert_eq!(next.array().status().state, ArrayState::Optimal);
        next.close();
        assert!(world.start(44).is(0, 1, 32));
    }
}

/// The same with the first generation of a process: it began where the next one begins too.
pub fn a_first_generation_that_lands_late_is_nobodys() {
    let world = World::new(3, false);
    world.create(Level::Raid5);
    let ended = world.fork();
    let p = ended.start(48);
    let late = ended.generation();
    p.kill(48);
    let next = world.start_later(49, Duration::from_secs(10), OpenHow::default());
    assert!(late.number == world.generation().number && late.id != world.generation().id);
    world.disks[1].image_write(world.label(1).layout.slot((late.number.0 % 2) as usize), &late.encode());
    for name in ["w", "x"] {
        next.rt.block_on(next.array().volume_create(name, 1 << 20)).unwrap();
        assert_eq!(next.array().status().state, ArrayState::Optimal, "{:#?}", next.array().status().events);
    }
    next.close();
    assert_eq!(world.check().errors, Vec::<String>::new());
}

/// It lands over the only copy of the one in effect: nobody goes on from it all the same.
pub fn a_generation_that_lands_late_is_no_history() {
    let ended = World::new(1, false);
    ended.create(Level::Raid0);
    let p = ended.start(45);
    p.wait(Duration::from_secs(1));
    let world = ended.fork();
    let next = world.start(46);
    let mut number = p.array().status().generation;
    while number <= next.array().status().generation {
        p.rt.block_on(p.array().volume_create(&format!("late{number}"), 1 << 20)).unwrap();
        number += 1;
    }
    let late = ended.generation();
    next.rt.block_on(next.array().volume_create("next", 1 << 20)).unwrap();
    assert_eq!(next.array().status().generation, late.number.0);
    next.kill(46);
    world.disks[0].image_write(world.label(0).layout.slot((late.number.0 % 2) as usize), &late.encode());
    let names: Vec<String> = world.start(47).array().volumes().into_iter().map(|v| v.name.to_string()).collect();
    assert_eq!(names, ["v"], "what is left is the one before");
}

/// Fills some segments and overwrites them, so that they hold nothing once that is merged.
fn overwrite(p: &crate::world::Process<'_>) {
    for tag in [1, 2] {
        for i in 0..24 {
            p.write(i * 32, tag, 32).unwrap();
        }
    }
}

/// A zone is deallocated only after a generation that does not need it is in effect.
pub fn a_freed_zone_waits_for_its_generation() {
    let world = World::new(3, false);
    world.create(Level::Raid5);
    let p = world.start(2);
    overwrite(&p);
    p.wait(Duration::from_secs(1));
    let freed = Rc::new(Cell::new(0));
    let held = Rc::new(Cell::new(true));
    let (count, hold) = (freed.clone(), held.clone());
    world.on_ops(move |_, op, system| match op.kind {
        OpKind::Write if system && hold.get() => Verdict::DelayNs(5_000_000_000),
        OpKind::Deallocate => {
            count.set(count.get() + 1);
            Verdict::Proceed
        }
        OpKind::Read | OpKind::Write | OpKind::Flush => Verdict::Proceed,
    });
    let array = p.array();
    let checkpoint = p.rt.spawn(async move { array.checkpoint().await });
    p.wait(Duration::from_secs(4));
    assert_eq!(freed.get(), 0, "zones of the generation in effect were freed");
    held.set(false);
    p.rt.block_on(checkpoint).unwrap();
    p.checkpoint();
    p.wait(Duration::from_secs(1));
    assert!(freed.get() > 0, "they are freed afterwards");
}

/// A zone that is being read is not freed under its reader.
pub fn a_zone_being_read_is_not_freed() {
    let world = World::new(3, false);
    world.create(Level::Raid0);
    let p = world.start(2);
    for i in 0..24 {
        p.write(i * 32, 1, 32).unwrap();
    }
    p.checkpoint();
    // Without redundancy there is no way around the slow drive.
    let reading = Rc::new(RefCell::new(None));
    let freed = Rc::new(Cell::new(false));
    let (slow, noticed) = (reading.clone(), freed.clone());
    world.on_ops(move |disk, op, system| {
        let mut slow = slow.borrow_mut();
        match op.kind {
            // The first read is slow.
            OpKind::Read if !system && slow.is_none() => {
                *slow = Some((disk, op.at));
                Verdict::DelayNs(4_000_000_000)
            }
            OpKind::Deallocate => {
                let hit = slow.is_some_and(|(d, at)| d == disk && (op.at..op.at + op.blocks).contains(&at));
                noticed.set(noticed.get() || hit);
                Verdict::Proceed
            }
            OpKind::Read | OpKind::Write | OpKind::Flush => Verdict::Proceed,
        }
    });
    let v = p.v();
    let slow_read = p.rt.spawn(async move { v.read(0, BLOCK).await });
    p.wait(Duration::from_millis(1));
    overwrite(&p);
    p.checkpoint();
    p.checkpoint();
    p.wait(Duration::from_secs(2));
    assert!(reading.borrow().is_some() && !slow_read.is_finished());
    assert!(!freed.get(), "the zone was freed under its reader");
    p.rt.block_on(slow_read).unwrap();
    p.wait(Duration::from_secs(1));
    assert!(freed.get(), "and afterwards it was");
}

/// A volume can be written once the generation that has it is in effect.
pub fn a_new_volume_is_seen_once_it_is_durable() {
    let world = World::new(3, false);
    world.create(Level::Raid5);
    let p = world.start(2);
    world.on_ops(|_, op, system| match op.kind {
        OpKind::Write if system => Verdict::DelayNs(2_000_000_000),
        OpKind::Read | OpKind::Write | OpKind::Flush | OpKind::Deallocate => Verdict::Proceed,
    });
    let array = p.array();
    let created = p.rt.spawn(async move { array.volume_create("w", 1 << 20).await });
    p.wait(Duration::from_secs(1));
    assert!(p.array().volume("w").is_none());
    p.rt.block_on(created).unwrap();
    assert!(p.array().volume("w").is_some());
}

/// Exports look at the volumes only when their number has moved: it moves with all that hosts see of them, when they do.
pub fn what_hosts_see_of_volumes_is_numbered() {
    let world = World::new(3, false);
    world.create(Level::Raid5);
    let p = world.start(2);
    let array = p.array();
    let seen = || -> Vec<_> { array.live_volumes().iter().map(|v| (v.id(), v.name(), v.bytes())).collect() };
    let mut before = (array.volume_changes(), seen());
    let mut moved = |what: &str, moves: bool| {
        let now = (array.volume_changes(), seen());
        assert_eq!((now.0 != before.0, now.1 != before.1), (moves, moves), "{what}");
        before = now;
    };
    p.write(0, 1, 8).unwrap();
    p.checkpoint();
    moved("written and checkpointed", false);
    p.rt.block_on(array.volume_create("w", 1 << 20)).unwrap();
    moved("created", true);
    p.rt.block_on(array.volume_grow("w", 2 << 20)).unwrap();
    moved("grown", true);
    p.rt.block_on(array.volume_rename("w", "x")).unwrap();
    moved("renamed", true);
    p.rt.block_on(array.volume_limit("x", ondisk::Limits { iops: 5, ..ondisk::Limits::default() })).unwrap();
    moved("limited", false);
    p.rt.block_on(array.volume_delete("x")).unwrap();
    moved("deleted", true);
    p.wait(Duration::from_secs(5));
    moved("its space is free again", false);
}

/// What was still in flight to a deleted volume never shows in a new one.
pub fn volume_numbers_are_never_given_out_again() {
    let world = World::new(3, false);
    world.create(Level::Raid5);
    let p = world.start(2);
    world.delay_a_write(3_000_000_000);
    let late = p.begin_write(0, 9, 1);
    p.wait(Duration::from_millis(1));
    p.rt.block_on(p.array().volume_delete("v")).unwrap();
    p.wait(Duration::from_secs(1));
    assert!(p.array().volumes().is_empty() && !late.is_finished());
    p.rt.block_on(p.array().volume_create("w", 1 << 20)).unwrap();
    p.wait(Duration::from_secs(5));
    let w = p.array().volume("w").unwrap();
    assert_eq!(read(&p.rt, &w, 0, 1), Ok(vec![0; BLOCK as usize]));
}

/// An array gets another name: it has the old one or the new one after a power cut at any write, all labels say it after
/// the next open, and no two labels of a drive are ever in doubt at once.
pub fn an_array_gets_another_name() {
    let before = World::new(3, true);
    before.create(Level::Raid5);
    let mut renamed = 0;
    for writes in 0.. {
        let world = before.fork();
        let p = world.start(2 + writes);
        p.write(0, 1, 8).unwrap();
        p.flush().unwrap();
        let left = Rc::new(Cell::new(writes));
        let doubt = Rc::new(Cell::new([0; 3]));
        let (labels, doubts) = (world.label(0).layout.labels(), doubt.clone());
        world.on_ops(move |disk, op, _| {
            let mut now = doubts.get();
            match op.kind {
                OpKind::Write if left.get() == 0 => return Verdict::Hang,
                OpKind::Write => {
                    left.set(left.get() - 1);
                    now[disk] += u32::from(labels.contains(&op.at));
                }
                OpKind::Flush => now[disk] = 0,
                OpKind::Read | OpKind::Deallocate => {}
            }
            doubts.set(now);
            assert!(now[disk] < 2, "two labels of drive {disk} are in doubt");
            Verdict::Proceed
        });
        let array = p.array();
        let done = p.rt.block_on(async {
            let rename = pin!(array.rename("b"));
            matches!(select(rename, pin!(p.rt.sleep(Duration::from_secs(2)))).await, Either::Left((Ok(()), _)))
        });
        drop(array);
        p.power_cut(writes);
        let p = world.start(3);
        let name = p.array().name();
        assert!(name == "b" || (name == "a" && !done), "{writes} writes: {name}");
        assert!(p.is(0, 1, 8), "{writes} writes");
        p.close();
        for (i, disk) in world.disks.iter().enumerate() {
            let said = world
                .label(i)
                .layout
                .labels()
                .map(|at| Label::decode(&disk.image_read(at, BlockCount(1))).unwrap().array_name);
            assert!(said.iter().all(|said| *said == name), "{writes} writes, drive {i}: {said:?}");
        }
        assert_eq!(world.generation().name, name);
        renamed += u32::from(name == "b");
        if done {
            break;
        }
    }
    assert!(renamed > 3, "the name was seen to change {renamed} times only");
    let p = before.start(9);
    for wrong in ["", "-b", "a b", &"x".repeat(63)] {
        assert_eq!(p.rt.block_on(p.array().rename(wrong)).unwrap_err().code, RefusedCode::Name, "{wrong}");
    }
    assert_eq!(p.array().name(), "a");
}
