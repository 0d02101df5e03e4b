//! The map: what reads see, what is counted, what the cleaner and deletions make of it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use base::MemberId;
use ondisk::{Entry, Level};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rt::model::{DiskParams, OpKind, Verdict};

use crate::world::{BLOCK, DEGRADED, Process, World, data, read};

/// What was acknowledged is seen while the table that has it is being merged.
pub fn reads_see_the_table_that_is_being_merged() {
    let world = World::new(3, false);
    world.create(Level::Raid5);
    let p = world.start(1);
    p.write(0, 4, 9).unwrap();
    world.on_ops(|_, op, system| match op.kind {
        OpKind::Write if !system => Verdict::DelayNs(2_000_000_000),
        OpKind::Read | OpKind::Write | OpKind::Flush | OpKind::Deallocate => Verdict::Proceed,
    });
    let array = p.array();
    let checkpoint = p.rt.spawn(async move { array.checkpoint().await });
    p.wait(Duration::from_secs(1));
    assert!(!checkpoint.is_finished());
    assert!(p.is(0, 4, 9));
    p.rt.block_on(checkpoint).unwrap();
    assert!(p.is(0, 4, 9));
}

/// The counts that decide what is freed are exactly what the trees point to.
pub fn counts_are_exact() {
    let world = World::new(3, false);
    world.create(Level::Raid5);
    let p = world.start(1);
    for i in 0..60u64 {
        p.write(i * 37 % 1500, i as u8, 20).unwrap();
        if i % 7 == 0 {
            p.rt.block_on(p.v().deallocate(i * 11 * BLOCK, 30 * BLOCK, false)).unwrap();
        }
        if i % 20 == 0 {
            p.checkpoint();
        }
    }
    p.close();
    let report = world.check();
    assert!(report.ok() && report.blocks > 0, "{:#?}", report.errors);
}

/// A volume that grows while a checkpoint merges keeps its map.
pub fn growing_during_a_checkpoint_keeps_it() {
    let world = World::new(4, false);
    world.create(Level::Raid5);
    let p = world.start(21);
    p.write(0, 5, 4).unwrap();
    let array = p.array();
    p.rt.block_on(async {
        let (checkpoint, grown) = futures::join!(array.checkpoint(), array.volume_grow("v", 64 << 20));
        checkpoint.unwrap();
        grown.unwrap();
    });
    assert!(p.is(0, 5, 4));
    p.write((32 << 20) / BLOCK, 6, 4).unwrap();
    p.checkpoint();
    assert!(p.is(0, 5, 4) && p.is((32 << 20) / BLOCK, 6, 4));
}

/// An array that is 80 % full is overwritten by many at once, keeps what was written last, and gives everything back when deleted.
pub fn a_full_array_is_overwritten_and_emptied() {
    let zones = DiskParams { bytes: (8 << 20) + (66 << 18), volatile_cache: false, ..DiskParams::default() };
    let world = World::of(3, zones);
    world.create_with(Level::Raid5, 64, 1 << 30);
    let p = world.start(3);
    let blocks = p.array().status().usable_bytes / BLOCK * 4 / 5;
    let held = overwritten_by_hosts(&p, blocks, false);
    assert!(p.array().moved_blocks() > 0, "the cleaner had work");
    held_is_there(&p, &held);
    p.rt.block_on(p.array().volume_delete("v")).unwrap();
    p.wait(Duration::from_secs(30));
    let status = p.array().status();
    assert_eq!((status.used_bytes, status.volumes.len()), (0, 0));
    p.rt.block_on(p.array().volume_create("w", 8 << 20)).unwrap();
    p.rt.block_on(p.array().volume("w").unwrap().write(0, data(1, 256), false)).unwrap();
}

/// Sixteen hosts write blocks of their own, one after the other, four times over; with `zeroes` one of eight of the later
/// writes is zeroes or a hole. What each block holds.
pub fn overwritten_by_hosts(p: &Process<'_>, blocks: u64, zeroes: bool) -> Vec<Vec<u8>> {
    let hosts: Vec<_> = (0..16u64)
        .map(|host| {
            let v = p.v();
            p.rt.spawn(async move {
                let mut dice = Xoshiro256PlusPlus::seed_from_u64(host);
                // Each has its own blocks and knows what they hold.
                let mut mine: Vec<u8> = vec![0; (blocks / 16) as usize];
                for i in 0..mine.len() * 4 {
                    let which = if i < mine.len() { i } else { dice.random_range(0..mine.len()) };
                    let at = (which as u64 * 16 + host) * BLOCK;
                    if zeroes && i >= mine.len() && i % 8 == 0 {
                        mine[which] = 0;
                        v.write_zeroes(at, BLOCK, i % 16 == 0, false).await.unwrap();
                    } else {
                        mine[which] = mine[which] % 250 + 1;
                        v.write(at, data(mine[which], 1), false).await.unwrap();
                    }
                }
                mine
            })
        })
        .collect();
    p.run(futures::future::join_all(hosts))
}

/// What hosts hold reads as that.
pub fn held_is_there(p: &Process<'_>, held: &[Vec<u8>]) {
    for (host, mine) in held.iter().enumerate() {
        for (which, &tag) in mine.iter().enumerate() {
            assert!(p.is(which as u64 * 16 + host as u64, tag, 1), "block {which} of host {host}");
        }
    }
}

/// Hosts write what is just being moved, and are acknowledged first: that counts, also after a restart.
pub fn what_is_being_moved_is_overwritten() {
    let zones = DiskParams { bytes: (8 << 20) + (66 << 18), volatile_cache: false, ..DiskParams::default() };
    let world = World::of(3, zones);
    world.create_with(Level::Raid5, 64, 1 << 30);
    let p = world.start(8);
    let blocks = p.array().status().usable_bytes / BLOCK * 4 / 5;
    moves_take_long(&world);
    let held = overwritten_by_hosts(&p, blocks, true);
    assert!(p.array().moved_blocks() > 0, "the cleaner had work");
    world.no_hooks();
    held_is_there(&p, &held);
    p.kill(8);
    held_is_there(&world.start(9), &held);
    assert_eq!(world.check().errors, Vec::<String>::new());
}

/// Records of moves, which are the longer ones, take a few milliseconds; those of hosts what they take.
fn moves_take_long(world: &World) {
    world.on_ops(|_, op, system| match op.kind {
        OpKind::Write if !system && op.blocks.0 >= 10 => Verdict::DelayNs(3_000_000),
        OpKind::Read | OpKind::Write | OpKind::Flush | OpKind::Deallocate => Verdict::Proceed,
    });
}

/// A drive goes while moves are on their way, whose blocks hosts write again.
pub fn a_move_that_is_given_up_overtakes_nothing() {
    let zones = DiskParams { bytes: (8 << 20) + (66 << 18), volatile_cache: false, ..DiskParams::default() };
    // One order of requests in four or so comes to that.
    for seed in 1..=10 {
        let world = World::of(4, zones);
        world.create_with(Level::Raid6, 64, 1 << 30);
        let p = world.start(seed);
        let blocks = p.array().status().usable_bytes / BLOCK * 4 / 5;
        moves_take_long(&world);
        let (array, clock) = (p.array(), p.rt.clone());
        let loss = p.rt.spawn(async move {
            // Late (an eighth of three rounds brings no data): what is written once more then shows nothing.
            while array.status().written.host_bytes < blocks / 16 * 16 * BLOCK * 355 / 100 {
                clock.sleep(Duration::from_micros(100)).await;
            }
            array.drive_fail(MemberId(1)).await.unwrap();
        });
        let held = overwritten_by_hosts(&p, blocks, true);
        p.run(loss);
        world.no_hooks();
        held_is_there(&p, &held);
        p.kill(seed);
        held_is_there(&world.start_how(seed + 10, DEGRADED), &held);
    }
}

/// A full array that lost two drives, and has a place for one of them, is overwritten as long as anybody likes.
pub fn a_full_array_short_of_drives_is_overwritten() {
    let zones = DiskParams { bytes: (8 << 20) + (70 << 18), volatile_cache: false, ..DiskParams::default() };
    let world = World::of(4, zones);
    world.create_of_width(Level::Raid10 { copies: 3 }, 3, 64, 1 << 30);
    let p = world.start(5);
    let v = p.v();
    let blocks = p.array().status().usable_bytes / BLOCK;
    let host = |n: u64, requests: u64| {
        let v = v.clone();
        async move {
            let mut dice = Xoshiro256PlusPlus::seed_from_u64(5 << 8 | n);
            for _ in 0..requests {
                let longest = [8, 8, 16, 128][dice.random_range(0..4)];
                let many = dice.random_range(1..=longest);
                let lba = dice.random_range(0..blocks - many) / [1, 4][dice.random_range(0..2)];
                match dice.random_range(0..8) {
                    0 => v.deallocate(lba * BLOCK, many * BLOCK, false).await.unwrap(),
                    _ => _ = v.write(lba * BLOCK, data(2, many), false).await,
                }
            }
        }
    };
    let overwrite = async {
        for lba in (0..blocks - 64).step_by(64) {
            let _no_space = v.write(lba * BLOCK, data(1, 64), false).await;
        }
        let lose = async {
            for member in [2, 3] {
                p.rt.sleep(Duration::from_millis(30)).await;
                p.array().drive_fail(base::MemberId(member)).await.unwrap();
            }
        };
        futures::future::join(lose, futures::future::join_all((0..12).map(|n| host(n, 400)))).await;
    };
    let patience = p.rt.sleep(Duration::from_secs(600));
    let done = p.rt.block_on(futures::future::select(Box::pin(overwrite), Box::pin(patience)));
    assert!(matches!(done, futures::future::Either::Left(_)), "a request was never answered");
}

/// A thin volume fills an array, so that its map is large, its drives read slowly, and one goes: where too little room is left to
/// clean with two checkpoints in hand, the cleaner takes what there is.
pub fn a_full_thin_array_short_of_a_drive_is_overwritten() {
    const STRIDE: u64 = 50;
    let zones = DiskParams { bytes: (8 << 20) + (70 << 18), volatile_cache: false, ..DiskParams::default() };
    for seed in 1..=12 {
        let world = World::of(4, zones);
        world.create_of_width(Level::Raid5, 3, 64, 64 << 30);
        let p = world.start(seed);
        let v = p.v();
        let blocks = p.array().status().usable_bytes / BLOCK;
        world.on_ops(|_, op, system| match op.kind {
            OpKind::Read if !system => Verdict::DelayNs(2_000_000),
            OpKind::Read | OpKind::Write | OpKind::Flush | OpKind::Deallocate => Verdict::Proceed,
        });
        let host = |n: u64| {
            let v = v.clone();
            async move {
                let mut dice = Xoshiro256PlusPlus::seed_from_u64(seed << 8 | n);
                for _ in 0..1500 {
                    let lba = dice.random_range(0..blocks) * STRIDE;
                    let _no_space = match dice.random_range(0..8) {
                        0 => v.deallocate(lba * BLOCK, BLOCK, false).await,
                        _ => v.write(lba * BLOCK, data(2, 1), false).await,
                    };
                }
            }
        };
        let overwrite = async {
            let mut lba = 0;
            while v.write(lba * STRIDE * BLOCK, data(1, 1), false).await.is_ok() {
                lba += 1;
            }
            let lose = async {
                p.rt.sleep(Duration::from_millis(30)).await;
                p.array().drive_fail(MemberId(3)).await.unwrap();
            };
            futures::future::join3(lose, host(0), host(1)).await;
        };
        let patience = p.rt.sleep(Duration::from_secs(600));
        let done = p.rt.block_on(futures::future::select(Box::pin(overwrite), Box::pin(patience)));
        assert!(matches!(done, futures::future::Either::Left(_)), "a request was never answered");
    }
}

/// A full array is overwritten, by writes that may take long, and its process killed again and again: what the cleaner gave back
/// meanwhile nobody needs, and no generation speaks of it.
pub fn emptied_segments_come_back_with_a_generation() {
    const HOSTS: u64 = 24;
    let zones = DiskParams { bytes: (8 << 20) + (66 << 18), volatile_cache: false, ..DiskParams::default() };
    let world = World::of(3, zones);
    world.create_with(Level::Raid5, 64, 1 << 30);
    let p = world.start(5);
    let blocks = p.array().status().usable_bytes / BLOCK * 9 / 10;
    for lba in (0..blocks).step_by(8) {
        p.write(lba, 1, 8).unwrap();
    }
    p.close();
    // What each block holds; and what it is being overwritten with.
    let nothing_else: (u8, Option<u8>) = (1, None);
    let known = Rc::new(RefCell::new(vec![nothing_else; blocks as usize + 8]));
    for life in 0..12 {
        let p = world.start(life);
        let writes = Rc::new(Cell::new(0u64));
        world.on_ops(move |_, op, system| {
            writes.set(writes.get() + u64::from(op.kind == OpKind::Write));
            let slow = op.kind == OpKind::Write && !system && writes.get().is_multiple_of(97);
            if slow { Verdict::DelayNs(20_000_000) } else { Verdict::Proceed }
        });
        for host in 0..HOSTS {
            let (v, known) = (p.v(), known.clone());
            let work = async move {
                let mut dice = Xoshiro256PlusPlus::seed_from_u64(life << 8 | host);
                loop {
                    let lba = dice.random_range(0..blocks / HOSTS) * HOSTS + host;
                    let tag = dice.random_range(2..=255);
                    known.borrow_mut()[lba as usize].1 = Some(tag);
                    v.write(lba * BLOCK, data(tag, 1), false).await.unwrap();
                    known.borrow_mut()[lba as usize] = (tag, None);
                }
            };
            p.rt.spawn(work).detach();
        }
        p.wait(Duration::from_millis(60 + 4 * life));
        assert!(p.array().moved_blocks() > 0, "it was cleaned");
        p.kill(life);
        let report = world.check();
        assert!(report.ok(), "life {life}: {:#?}", report.errors);
        let p = world.start(life);
        for (lba, known) in known.borrow_mut().iter_mut().enumerate().take(blocks as usize) {
            let found = p.read(lba as u64, 1).unwrap()[0];
            assert!(found == known.0 || Some(found) == known.1, "life {life}, block {lba}: {found}, not {known:?}");
            *known = (found, None);
        }
        p.close();
    }
}

/// What was deallocated or overwritten before the cleaner came is not copied by it.
pub fn nothing_dead_is_moved() {
    let zones = DiskParams { bytes: (8 << 20) + (66 << 18), volatile_cache: false, ..DiskParams::default() };
    let world = World::of(3, zones);
    world.create_with(Level::Raid5, 64, 1 << 30);
    let p = world.start(3);
    let blocks = p.array().status().usable_bytes / BLOCK * 9 / 10;
    for lba in (0..blocks).step_by(8) {
        p.write(lba, 1, 8).unwrap();
    }
    // Of each 24 blocks 8 stay, 8 are deallocated, 8 overwritten again and again.
    for lba in (8..blocks).step_by(24) {
        p.rt.block_on(p.v().deallocate(lba * BLOCK, 8 * BLOCK, false)).unwrap();
    }
    p.checkpoint();
    // Until the cleaner has been through some segments.
    let moved = || p.array().status().written.moved_bytes / BLOCK;
    let again = (0..8).flat_map(|round| (16..blocks - 8).step_by(24).map(move |lba| (lba, round + 2)));
    let tags: BTreeMap<u64, u8> =
        again.take_while(|_| moved() < 300).inspect(|&(lba, tag)| p.write(lba, tag, 8).unwrap()).collect();
    assert!(moved() >= 300, "the cleaner had work");
    let lba_of = |entry: &Entry| match entry {
        Entry::Move { lba, .. } => Some(lba.0),
        _ => None,
    };
    let headers = world.headers();
    let dead = headers.iter().flat_map(|(_, _, h)| h.entries.iter().filter_map(lba_of)).filter(|lba| lba % 24 / 8 == 1);
    assert_eq!(dead.count(), 0, "deallocated blocks were moved");
    for (&lba, &tag) in &tags {
        assert!(p.is(lba - 16, 1, 8) && p.is(lba - 8, 0, 8) && p.is(lba, tag, 8), "block {lba}");
    }
}

/// A mirror that has lost a drive is overwritten as long as anybody likes.
pub fn a_mirror_with_one_drive_left_is_cleaned() {
    let zones = DiskParams { bytes: (8 << 20) + (66 << 18), volatile_cache: false, ..DiskParams::default() };
    let world = World::of(2, zones);
    world.create_with(Level::Raid10 { copies: 2 }, 64, 1 << 30);
    let p = world.start(3);
    let blocks = p.array().status().usable_bytes / BLOCK * 9 / 10;
    let v = p.v();
    let overwrite = async {
        for i in 0..blocks / 8 {
            v.write(i * 8 * BLOCK, data(1, 8), false).await.unwrap();
        }
        p.array().drive_fail(base::MemberId(1)).await.unwrap();
        let mut dice = Xoshiro256PlusPlus::seed_from_u64(1);
        for _ in 0..blocks * 2 {
            v.write(dice.random_range(0..blocks) * BLOCK, data(2, 1), false).await.unwrap();
        }
    };
    let patience = p.rt.sleep(Duration::from_secs(600));
    let done = p.rt.block_on(futures::future::select(Box::pin(overwrite), Box::pin(patience)));
    assert!(matches!(done, futures::future::Either::Left(_)), "a write was never answered");
    assert!(p.array().moved_blocks() > 0, "the cleaner had work");
}

/// A volume that was being deleted when its process died is deleted by the next one, and all it held is free.
pub fn deleting_survives_kills() {
    let params = DiskParams { bytes: 512 << 20, volatile_cache: false, ..DiskParams::default() };
    let world = World::of(3, params);
    // More leaves than one checkpoint drops.
    let leaves = 10_000u64;
    world.create_with(Level::Raid5, 1024, (leaves + 1) << 20);
    let p = world.start(1);
    let v = p.v();
    p.rt.block_on(async {
        for i in 0..leaves / 100 {
            let writes = (0..100).map(|j| v.write((i * 100 + j) << 20, data(1, 1), false));
            futures::future::join_all(writes).await.into_iter().for_each(Result::unwrap);
        }
    });
    drop(v);
    p.close();
    for step in 0..6u64 {
        let world = world.fork();
        let p = world.start(step);
        p.rt.block_on(p.array().volume_delete("v")).unwrap();
        p.wait(Duration::from_millis(step * step * 4));
        p.kill(step);
        let report = world.check();
        assert!(report.ok(), "step {step}: {:#?}", report.errors);
        let p = world.start(step);
        p.wait(Duration::from_secs(20));
        assert!(p.array().volumes().is_empty() && p.array().status().used_bytes == 0, "step {step}");
        p.close();
        let report = world.check();
        assert!(report.ok() && report.blocks == 0, "step {step}: {:#?}", report.errors);
    }
}

/// The map of an array without redundancy survives the loss of one copy of every node.
pub fn that_of_raid_0_is_mirrored() {
    let world = World::new(3, false);
    world.create(Level::Raid0);
    let p = world.start(1);
    for i in 0..8 {
        p.write(i * 256, i as u8 + 1, 3).unwrap();
    }
    p.close();
    let mut spoilt = std::collections::BTreeSet::new();
    for (disk, at, h) in world.headers() {
        let of_map = h.entries.iter().any(|e| matches!(e, Entry::MapNode { .. }));
        if of_map && spoilt.insert((h.segment, h.row)) {
            for r in 0..u64::from(h.rows) {
                world.disks[disk].image_write(at + base::BlockCount(r), &[0xaa; BLOCK as usize]);
            }
        }
    }
    assert!(!spoilt.is_empty());
    let p = world.start(2);
    for i in 0..8 {
        let found = read(&p.rt, &p.v(), i * 256, 3);
        assert_eq!(found, Ok(vec![i as u8 + 1; 3 * BLOCK as usize]), "block {}", i * 256);
    }
}

/// A write of a part of a block, in flight when its volume is deleted, takes nothing from the rest of the block: the power
/// may fail before the deletion counts.
pub fn a_deletion_that_comes_to_nothing_takes_nothing() {
    // Who comes first is left to chance.
    (91..97).for_each(deletion_that_comes_to_nothing);
}

fn deletion_that_comes_to_nothing(seed: u64) {
    let world = World::new(3, false);
    world.create(Level::Raid5);
    let p = world.start(90);
    p.write(0, 7, 3).unwrap();
    p.close();
    let p = world.start(seed);
    // The map is known; the way to the first block takes long, by whatever drive, and then the second is asked for.
    assert!(p.is(2, 7, 1));
    world.on_ops(move |_, op, system| match op.kind {
        OpKind::Write if system => Verdict::Hang,
        OpKind::Read if !system => Verdict::DelayNs(20_000_000),
        OpKind::Read | OpKind::Write | OpKind::Flush | OpKind::Deallocate => Verdict::Proceed,
    });
    let (v, array, other) = (p.v(), p.array(), p.array());
    p.rt.spawn(async move { v.write(BLOCK - 512, rt::Bytes::from_slice(&[8; 1024]), false).await }).detach();
    p.wait(Duration::from_millis(1));
    p.rt.spawn(async move { array.volume_delete("v").await }).detach();
    // A checkpoint lets the leaves go long before a generation says so.
    p.rt.spawn(async move { other.checkpoint().await }).detach();
    p.wait(Duration::from_millis(60));
    let cut = world.fork();
    p.kill(seed);
    let p = cut.start(92);
    let blocks = p.read(0, 2).unwrap();
    let (before, rest) = blocks.split_at(BLOCK as usize - 512);
    assert!(before.iter().chain(&rest[1024..]).all(|&b| b == 7), "that was not written");
    assert!(rest[..1024].iter().all(|&b| b == 7 || b == 8));
}

/// Volumes of more than 16 leaves have nodes above them.
const TALL: u64 = 64 << 20;

/// What is overwritten is good again, also by being deallocated: below a lost map node too.
pub fn what_is_deallocated_below_a_lost_node_is_a_hole() {
    let world = World::new(1, false);
    world.create_of_width(Level::Raid0, 1, 64, TALL);
    let p = world.start(30);
    (0..32).for_each(|leaf| p.write(leaf * 256, 7, 8).unwrap());
    p.close();
    let q = world.fork();
    let q = q.start(31);
    let nodes = q.rt.block_on(q.v().locate(0)).unwrap().map;
    q.kill(31);
    assert_eq!(nodes.len(), 2, "a leaf, and one above it");
    let leaf_of_16 = 16 * 256;
    let (_, upper) = nodes[0].columns[nodes[0].column].unwrap();
    world.disks[0].image_write(upper, &[0xee; BLOCK as usize]);
    let p = world.start(33);
    p.rt.block_on(p.v().deallocate(0, 256 * BLOCK, false)).unwrap();
    assert!(p.is(0, 0, 256), "deallocated");
    p.checkpoint();
    assert!(p.is(0, 0, 256), "and merged");
    assert!(p.read(leaf_of_16, 1).is_err(), "the others are lost");
}

/// A look-up takes long; meanwhile everything that it knew of the map is written anew, and the old places are given back.
pub fn a_look_up_outlives_its_trees() {
    // Two levels above the leaves: below the first node that is read lies another.
    const TALLER: u64 = 8 << 30;
    let world = World::new(1, false);
    world.create_of_width(Level::Raid0, 1, 64, TALLER);
    let p = world.start(34);
    let overwrite = |p: &super::world::Process<'_>, tag| {
        (0..32).for_each(|leaf| p.write(leaf * 256, tag, 1).unwrap());
        p.checkpoint();
    };
    overwrite(&p, 1);
    p.close();
    let p = world.start(35);
    // No node stays in memory.
    p.array().set_map_memory(1);
    let waits = Rc::new(Cell::new(true));
    let first = waits.clone();
    world.on_ops(move |_, op, system| match op.kind {
        OpKind::Read if !system && first.replace(false) => Verdict::DelayNs(900_000_000),
        _ => Verdict::Proceed,
    });
    let v = p.v();
    let looked = p.rt.spawn(async move { v.extents(0, TALLER, 1000).await });
    p.wait(Duration::from_millis(1));
    assert!(!waits.get(), "it reads the map");
    (2..14).for_each(|tag| overwrite(&p, tag));
    assert!(!looked.is_finished(), "it still reads");
    assert_eq!(p.rt.block_on(looked).unwrap().len(), 64);
}

/// Nodes that were asked for often and are in no tree any more would keep out those that came in their place.
pub fn memory_holds_what_the_trees_have() {
    let world = World::new(1, false);
    world.create_of_width(Level::Raid0, 1, 64, TALL);
    let p = world.start(36);
    let memory = || p.array().status();
    let overwrite_and_read = |tag| {
        (0..32).for_each(|leaf| p.write(leaf * 256, tag, 1).unwrap());
        p.checkpoint();
        (0..32).for_each(|leaf| assert_eq!(p.read(leaf * 256, 1).unwrap()[0], tag));
    };
    overwrite_and_read(1);
    p.array().set_map_memory(memory().map_memory_bytes * 2);
    overwrite_and_read(2);
    let (bytes, misses) = (memory().map_memory_bytes, memory().map_misses);
    (3..40).for_each(overwrite_and_read);
    assert_eq!(memory().map_misses, misses, "all in memory");
    // A node takes a few bytes more or less as its numbers grow.
    assert!(
        memory().map_memory_bytes.abs_diff(bytes) < bytes / 100,
        "as many nodes: {} bytes, {bytes} before",
        memory().map_memory_bytes
    );
}

/// What is not merged takes what the user gives it.
pub fn a_small_memtable_is_merged_sooner() {
    let world = World::new(4, false);
    world.create(Level::Raid5);
    let written = |bytes: Option<u64>| {
        let p = world.start(37);
        bytes.into_iter().for_each(|bytes| p.array().set_memtable_memory(bytes));
        let generation = p.array().status().generation;
        // Three facts at a time, and time for a checkpoint.
        for lba in 0..40 {
            p.write(lba * 3, 1, 3).unwrap();
            p.wait(Duration::from_millis(20));
        }
        let (memtable, generations) = (p.array().status(), p.array().status().generation - generation);
        p.close();
        (memtable, generations)
    };
    let (usual, few) = written(None);
    assert_eq!((usual.memtable_bytes, usual.memtable_bytes_max), (120 * 240, 60 << 20));
    let (small, many) = written(Some(12 * 240));
    assert!(small.memtable_bytes <= 2 * small.memtable_bytes_max && small.memtable_bytes_max == 12 * 240, "{small:?}");
    assert!(many >= few + 5, "{few} and {many} generations");
}

/// What a volume stores is shown at once: not less before a checkpoint than after, no block twice that was written twice since,
/// and never more than the volume has.
pub fn what_is_stored_is_shown_at_once() {
    let world = World::new(4, false);
    world.create(Level::Raid5);
    let p = world.start(1);
    let stored = |p: &crate::world::Process<'_>| p.array().status().volumes[0].mapped_bytes / BLOCK;
    p.write(0, 1, 300).unwrap();
    p.write(0, 2, 100).unwrap();
    assert_eq!(stored(&p), 300);
    p.kill(2);
    let p = world.start(3);
    assert_eq!(stored(&p), 300, "after a recovery, too");
    p.checkpoint();
    assert_eq!(stored(&p), 300);
    p.rt.block_on(p.v().deallocate(0, 100 * BLOCK, false)).unwrap();
    p.checkpoint();
    assert_eq!(stored(&p), 200);
    let all = 8 << 20;
    (0..all / BLOCK / 64).for_each(|i| p.write(i * 64, 3, 64).unwrap());
    assert_eq!(stored(&p), all / BLOCK);
    p.checkpoint();
    assert_eq!(stored(&p), all / BLOCK);
}

/// When the last checkpoint was done is told, and how much waits for the next one.
pub fn checkpoints_are_told() {
    let world = World::new(4, false);
    world.create(Level::Raid5);
    let p = world.start(1);
    assert_eq!(p.array().status().checkpoint_at, None, "none since the open");
    p.write(0, 1, 60).unwrap();
    let before = p.array().status().memtable_share;
    assert!(before > 0.0);
    let written_at = p.rt.unix_seconds();
    p.wait(Duration::from_secs(5));
    p.checkpoint();
    let told = p.array().status();
    assert!(told.checkpoint_at.is_some_and(|at| (written_at + 5..=p.rt.unix_seconds()).contains(&at)), "{told:?}");
    assert!(told.memtable_share < before, "{} {before}", told.memtable_share);
}
