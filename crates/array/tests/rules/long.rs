//! Requests that are long in all: what they look at in one turn, what they pass by, what they are charged, what they say.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use array::{ExtentKind, Volume};
use ondisk::{Level, Limits};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::world::{BLOCK, Process, World};

const TIB: u64 = 1 << 40;
const GIB: u64 = 1 << 30;

/// Looks at nodes, leaves and ranges of the map that fit into one turn: what all steps together may take, and the piece of a
/// checkpoint.
const LOOKS_IN_A_TURN: u64 = 3000;

/// Requests in flight at once.
const AT_ONCE: u64 = 127;

/// What a host may ask for in one request, by its number among those in flight.
type Verb = fn(&Process<'_>, Volume, u64) -> rt::Task<()>;

/// The longest requests of every kind.
const VERBS: [(&str, Verb); 7] = [
    // Half of the volume, as the ranges of a Dataset Management command name it, one after the other.
    ("deallocate", |p, v, n| {
        p.rt.spawn(async move {
            for _ in 0..4 {
                v.deallocate(n % 2 * 2 * TIB, 2 * TIB, false).await.unwrap();
            }
        })
    }),
    ("256 small ranges", |p, v, n| {
        p.rt.spawn(async move {
            for i in 0..256 {
                let at = (i * 977 + n * 31) * 16 % (4 * TIB / BLOCK) * BLOCK;
                v.deallocate(at, BLOCK, false).await.unwrap();
            }
        })
    }),
    ("zeroes that may be holes", |p, v, n| {
        p.rt.spawn(async move { v.write_zeroes(n * 32 * GIB % (4 * TIB), 32 * GIB, true, false).await.unwrap() })
    }),
    ("zeroes", |p, v, n| {
        p.rt.spawn(async move { v.write_zeroes(n * 4 * GIB % (4 * TIB), 4 * GIB, false, false).await.unwrap() })
    }),
    ("extents of 4 GiB", |p, v, n| {
        p.rt.spawn(async move { drop(v.extents(n * 4 * GIB % (4 * TIB), 4 * GIB, 4096).await.unwrap()) })
    }),
    ("all extents", |p, v, _| p.rt.spawn(async move { drop(v.extents(0, 4 * TIB, 1 << 20).await.unwrap()) })),
    ("read", |p, v, n| p.rt.spawn(async move { drop(v.read(n * GIB, 32 << 20).await.unwrap()) })),
];

/// An array with a volume of 4 TiB, in which so many blocks are written here and there.
fn thin(scattered: u64) -> World {
    let world = World::new(4, false);
    world.create_with(Level::Raid5, crate::world::ZONE, 4 * TIB);
    let p = world.start(90);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(scattered);
    for i in 0..scattered {
        p.write(random.random_range(0..4 * TIB / BLOCK), i as u8, 1).unwrap();
    }
    p.checkpoint();
    p.close();
    world
}

/// Whatever is asked for, however often at once, and whoever else asks for nothing: no turn of the runtime looks at more of
/// the map than others can wait for.
pub fn a_long_request_takes_no_turn_whole() {
    for scattered in [0, 500] {
        for (name, verb) in VERBS {
            for in_flight in [1, AT_ONCE] {
                let world = thin(scattered);
                let p = world.start(91);
                let _ = p.array().looked();
                let asked: Vec<_> = (0..in_flight).map(|n| verb(&p, p.v(), n)).collect();
                p.rt.block_on(futures::future::join_all(asked));
                p.checkpoint();
                let (most, all) = p.array().looked();
                assert!(most <= LOOKS_IN_A_TURN, "{name}, {in_flight}, {scattered}: {most} of {all} looks in a turn");
            }
        }
        let world = thin(scattered);
        let p = world.start(92);
        let _ = p.array().looked();
        p.rt.block_on(p.array().volume_delete("v")).unwrap();
        p.checkpoint();
        let (most, all) = p.array().looked();
        assert!(most <= LOOKS_IN_A_TURN, "delete, {scattered}: {most} of {all} looks in a turn");
    }
}

/// Nothing is one step, however large; and a few blocks in it are a few steps.
pub fn what_is_absent_is_one_step() {
    for (scattered, looks) in [(0, 100), (20, 20_000)] {
        let world = thin(scattered);
        let p = world.start(93);
        let looked = |work: &dyn Fn(Volume)| {
            let _ = p.array().looked();
            work(p.v());
            p.array().looked().1
        };
        let of_extents = looked(&|v| {
            let extents = p.rt.block_on(v.extents(0, 4 * TIB, 1 << 20)).unwrap();
            let stored: u64 = extents.iter().filter(|(_, kind)| *kind == ExtentKind::Allocated).map(|(n, _)| n).sum();
            assert_eq!((extents.iter().map(|(n, _)| n).sum::<u64>(), stored), (4 * TIB, scattered * BLOCK));
        });
        assert!(of_extents <= looks, "extents, {scattered}: {of_extents} looks");
        let of_deallocate = looked(&|v| p.rt.block_on(v.deallocate(0, 4 * TIB, false)).unwrap());
        assert!(of_deallocate <= looks, "deallocate, {scattered}: {of_deallocate} looks");
        let again = looked(&|v| p.rt.block_on(v.write_zeroes(0, 4 * TIB, true, false)).unwrap());
        assert!(again <= looks, "zeroes, {scattered}: {again} looks");
        p.checkpoint();
        assert_eq!(p.array().status().volumes[0].mapped_bytes, 0);
        p.close();
        assert_eq!(world.check().errors, Vec::<String>::new());
    }
}

/// Each part of a long request counts as a request in the limits of its volume; what there is nothing to do for does not.
pub fn parts_of_a_long_request_count_in_limits() {
    let world = thin(100);
    let p = world.start(94);
    let limits = Limits { iops: 100, ..Limits::default() };
    p.rt.block_on(p.array().volume_limit("v", limits)).unwrap();
    let took = |work: &dyn Fn(Volume)| {
        let begun = p.rt.now();
        work(p.v());
        p.rt.now() - begun
    };
    let deallocated = took(&|v| p.rt.block_on(v.deallocate(0, 4 * TIB, false)).unwrap());
    assert!(deallocated > Duration::from_millis(700), "some 95 entries at 100 a second: {deallocated:?}");
    let again = took(&|v| p.rt.block_on(v.deallocate(0, 4 * TIB, false)).unwrap());
    assert!(again < Duration::from_millis(300), "there is nothing left: {again:?}");
}

/// Who asks for little is not kept waiting by who asks for much, of whatever array and volume.
pub fn a_short_request_is_not_behind_long_ones() {
    let world = thin(500);
    let p = world.start(95);
    p.rt.block_on(p.array().volume_create("w", 8 << 20)).unwrap();
    let long: Vec<_> = (0..AT_ONCE).map(|n| (VERBS[0].1)(&p, p.v(), n)).collect();
    let (turns, done) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let w = p.array().volume("w").unwrap();
    let (rt, most, count) = (p.rt.clone(), turns.clone(), done.clone());
    p.rt.block_on(async move {
        for i in 0..50 {
            let begun = rt.turn();
            // Parts of it are steps, too: nothing is written there.
            w.extents(0, 8 << 20, 1).await.unwrap();
            most.set(most.get().max(rt.turn() - begun));
            count.set(i + 1);
        }
    });
    assert!(long.iter().any(|task| !task.is_finished()), "the long ones are still at work");
    // Two clients share: each has every second turn.
    assert!(turns.get() <= 8, "one of {} took {} turns", done.get(), turns.get());
}

/// Extents are what the blocks are, wherever that is said: in trees, in tables, in ranges over both.
pub fn extents_say_what_is_there() {
    const BLOCKS: u64 = 24 * 256;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
    for seed in 0..12 {
        let world = World::new(4, false);
        world.create_with(Level::Raid5, crate::world::ZONE, BLOCKS * BLOCK);
        let p = world.start(96 + seed);
        let mut plain = vec![ExtentKind::Hole; BLOCKS as usize];
        for turn in 0..60 {
            let long = random.random_range(0..3) == 0;
            let n = random.random_range(1..if long { 6 * 256 } else { 40 });
            let at = random.random_range(0..BLOCKS - n);
            let of = at as usize..(at + n) as usize;
            match random.random_range(0..4) {
                0 => {
                    p.write(at, 1, n.min(40)).unwrap();
                    plain[at as usize..(at + n.min(40)) as usize].fill(ExtentKind::Allocated);
                }
                1 => {
                    p.rt.block_on(p.v().deallocate(at * BLOCK, n * BLOCK, false)).unwrap();
                    plain[of].fill(ExtentKind::Hole);
                }
                2 => {
                    p.rt.block_on(p.v().write_zeroes(at * BLOCK, n * BLOCK, false, false)).unwrap();
                    plain[of].fill(ExtentKind::Zero);
                }
                _ => {
                    p.rt.block_on(p.v().write_zeroes(at * BLOCK, n * BLOCK, true, false)).unwrap();
                    plain[of].fill(ExtentKind::Hole);
                }
            }
            if turn % 9 == 8 {
                // Now and then questions come while a table is being merged.
                let array = p.array();
                p.rt.spawn(async move { array.checkpoint().await }).detach();
                (0..random.random_range(0..30)).for_each(|_| p.rt.block_on(p.rt.yield_now()));
            }
            let from = random.random_range(0..BLOCKS);
            let to = random.random_range(from + 1..=BLOCKS);
            let extents = p.rt.block_on(p.v().extents(from * BLOCK, (to - from) * BLOCK, 1 << 20)).unwrap();
            let said: Vec<ExtentKind> =
                extents.iter().flat_map(|(n, kind)| vec![*kind; (*n / BLOCK) as usize]).collect();
            assert!(said == plain[from as usize..to as usize], "seed {seed}, turn {turn}, {from}..{to}");
            assert!(extents.windows(2).all(|two| two[0].1 != two[1].1), "neighbours of one state are one");
        }
        for (lba, kind) in plain.iter().enumerate().step_by(37) {
            let expected = u8::from(*kind == ExtentKind::Allocated);
            assert!(p.is(lba as u64, expected, 1), "block {lba} is {kind:?}");
        }
        p.close();
        assert_eq!(world.check().errors, Vec::<String>::new());
    }
}
