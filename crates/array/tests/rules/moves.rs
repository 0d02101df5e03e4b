//! How the cleaner reads what it moves, and that it is waited for.

use std::time::Duration;

use ondisk::Level;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rt::model::{DiskParams, OpKind, Verdict};

use crate::health::state;
use crate::map::{held_is_there, overwritten_by_hosts};
use crate::world::{BLOCK, Process, World};

/// Three drives of 66 zones of 64 blocks.
fn small_world() -> World {
    let zones = DiskParams { bytes: (8 << 20) + (66 << 18), volatile_cache: false, ..DiskParams::default() };
    let world = World::of(3, zones);
    world.create_with(Level::Raid5, 64, 1 << 30);
    world
}

/// Four fifths of what volumes may fill.
fn most_blocks(p: &Process<'_>) -> u64 {
    p.array().status().usable_bytes / BLOCK * 4 / 5
}

/// A drive never answers long reads of data: it stays in, since nobody waits for them, and hosts go on.
pub fn a_run_that_does_not_come_is_read_around() {
    let world = small_world();
    let p = world.start(3);
    // Not the headers of a whole segment.
    world.on_ops(|disk, op, system| match op.kind {
        OpKind::Read if disk == 1 && !system && (2..=16).contains(&op.blocks.0) => Verdict::Hang,
        _ => Verdict::Proceed,
    });
    let held = overwritten_by_hosts(&p, most_blocks(&p), false);
    assert!(p.array().moved_blocks() > 0, "the cleaner had work");
    p.wait(Duration::from_secs(10));
    assert_eq!(state(&p, 1), api::SeatState::In);
    world.no_hooks();
    held_is_there(&p, &held);
    p.kill(4);
    held_is_there(&world.start(5), &held);
}

/// One block of nine rots on a drive, then everything is moved: what is read for that is matched with its checksum.
pub fn what_is_moved_is_verified() {
    let world = small_world();
    let p = world.start(3);
    let blocks = most_blocks(&p) / 16 * 16;
    for lba in (0..blocks).step_by(16) {
        p.write(lba, 1, 16).unwrap();
    }
    let whole = world.blocks(|b| b[0] == 1 && b.iter().all(|x| *x == 1));
    for (disk, at, mut block) in whole.into_iter().filter(|(disk, ..)| *disk == 1).step_by(9) {
        block[5] ^= 4;
        world.disks[disk].image_write(at, &block);
    }
    let mut held = vec![1; blocks as usize];
    let mut dice = Xoshiro256PlusPlus::seed_from_u64(3);
    for _ in 0..2 * blocks {
        let lba = dice.random_range(0..blocks);
        held[lba as usize] = held[lba as usize] % 250 + 1;
        p.write(lba, held[lba as usize], 1).unwrap();
    }
    assert!(p.array().moved_blocks() > 0, "the cleaner had work");
    for (lba, &tag) in held.iter().enumerate() {
        assert!(p.is(lba as u64, tag, 1), "block {lba}");
    }
}

/// An array is closed while the cleaner is reading, and what is written takes long: nothing is left to replay.
pub fn a_close_waits_for_the_cleaner() {
    for seed in 0..8 {
        let world = small_world();
        let p = world.start(seed);
        let mut held = overwritten_by_hosts(&p, most_blocks(&p), false);
        world.on_ops(move |_, op, system| match op.kind {
            OpKind::Read if !system => Verdict::DelayNs((1 + seed) * 4_000_000),
            _ => Verdict::Proceed,
        });
        let mut dice = Xoshiro256PlusPlus::seed_from_u64(seed);
        for _ in 0..40 {
            let which = dice.random_range(0..held[0].len());
            held[0][which] = held[0][which] % 250 + 1;
            p.write(which as u64 * 16, held[0][which], 1).unwrap();
        }
        world.on_ops(move |_, op, system| match op.kind {
            OpKind::Read if !system => Verdict::DelayNs((1 + seed) * 4_000_000),
            OpKind::Write if !system => Verdict::DelayNs(20_000_000),
            _ => Verdict::Proceed,
        });
        p.close();
        let p = world.start(seed + 100);
        assert!(p.array().recovery().clean, "something was written behind the end");
        held_is_there(&p, &held);
    }
}
