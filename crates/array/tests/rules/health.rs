//! Members that are late or err now and then.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use api::{ArrayState, SeatState};
use array::{RefusedCode, limits};
use base::MemberId;
use ondisk::Level;
use rt::IoError;
use rt::model::{Fault, Op, OpKind, Verdict};

use crate::world::{Process, World};

pub fn state(p: &Process<'_>, seat: usize) -> SeatState {
    p.array().status().members[seat].state
}

/// A write that fails is written again; the third time within ten minutes its member is out.
pub fn three_write_errors_put_a_member_out() {
    let world = World::new(4, false);
    world.create(Level::Raid5);
    let p = world.start(1);
    let left = Rc::new(Cell::new(0));
    let errors = left.clone();
    world.on_ops(move |disk, op, _| match op.kind {
        OpKind::Write if disk == 1 && errors.get() > 0 => {
            errors.set(errors.get() - 1);
            Verdict::Fail(IoError::Medium)
        }
        _ => Verdict::Proceed,
    });
    for round in 0..2 {
        left.set(1);
        p.write(round * 100, 7, 60).unwrap();
        assert_eq!((left.get(), state(&p, 1)), (0, SeatState::In), "it was written again");
    }
    assert!(p.array().status().members[1].suspect.is_some());
    assert_eq!(p.array().status().state, ArrayState::Optimal);
    left.set(1);
    p.write(200, 7, 60).unwrap();
    assert!(state(&p, 1).is_out(), "{:#?}", p.array().status().events);
    p.wait(Duration::from_secs(1));
    world.no_hooks();
    p.kill(2);
    assert!(world.check().ok());
    let p = world.start(3);
    assert!(p.is(0, 7, 60) && p.is(100, 7, 60) && p.is(200, 7, 60));
}

/// Errors long ago do not count.
pub fn errors_are_forgotten() {
    let world = World::new(4, false);
    world.create(Level::Raid5);
    let p = world.start(1);
    let left = Rc::new(Cell::new(0));
    let errors = left.clone();
    world.on_ops(move |disk, op, _| match op.kind {
        OpKind::Write if disk == 1 && errors.get() > 0 => {
            errors.set(errors.get() - 1);
            Verdict::Fail(IoError::Medium)
        }
        _ => Verdict::Proceed,
    });
    for round in 0..6 {
        left.set(1);
        p.write(round * 100, 7, 60).unwrap();
        assert_eq!(left.get(), 0);
        p.wait(limits::ERRORS_WITHIN / 2 + Duration::from_secs(1));
    }
    assert_eq!(state(&p, 1), SeatState::In);
    p.wait(limits::SUSPECT_FOR);
    assert!(p.array().status().members[1].suspect.is_none(), "long ago");
}

/// A write that never returns: suspect after a second, out after five, and hosts go on.
pub fn a_member_that_does_not_answer_goes_out() {
    let world = World::new(4, false);
    world.create(Level::Raid5);
    let p = world.start(4);
    world.on_ops(|disk, op, _| if disk == 1 && op.kind == OpKind::Write { Verdict::Hang } else { Verdict::Proceed });
    let write = p.begin_write(0, 5, 20);
    p.wait(Duration::from_millis(1_500));
    assert_eq!(state(&p, 1), SeatState::In);
    assert!(p.array().status().members[1].suspect.is_some(), "after a second");
    p.wait(Duration::from_secs(2));
    assert!(!write.is_finished(), "it is not complete on all members");
    p.wait(Duration::from_secs(4));
    assert!(state(&p, 1).is_out());
    assert!(write.is_finished(), "{:#?}", p.array().status().events);
    assert!(p.is(0, 5, 20));
    p.kill(5);
    assert!(world.start(6).is(0, 5, 20));
}

/// Nobody goes out for being late, or for errors that may pass, whom the array cannot do without.
pub fn nobody_goes_out_beyond_the_redundancy() {
    for late in [true, false] {
        let world = World::new(3, false);
        world.create(Level::Raid5);
        let p = world.start(7);
        p.write(0, 1, 30).unwrap();
        p.rt.block_on(p.array().drive_fail(MemberId(0))).unwrap();
        let left = Cell::new(if late { 0 } else { 6 });
        let hit = Rc::new(left);
        world.on_ops(move |disk, op, _| match op.kind {
            OpKind::Write if disk == 1 && late => Verdict::DelayNs(8_000_000_000),
            OpKind::Write if disk == 1 && hit.get() > 0 => {
                hit.set(hit.get() - 1);
                Verdict::Fail(IoError::Medium)
            }
            _ => Verdict::Proceed,
        });
        let write = p.begin_write(100, 2, 10);
        p.wait(Duration::from_secs(7));
        assert_ne!(p.array().status().state, ArrayState::Frozen, "{:#?}", p.array().status().events);
        if late {
            let alarms = p.array().status().alarms;
            assert!(alarms.iter().any(|a| a.code == api::AlarmCode::DriveSilent), "{alarms:?}");
        }
        world.no_hooks();
        p.wait(Duration::from_secs(20));
        assert!(write.is_finished());
        assert!(p.is(0, 1, 30) && p.is(100, 2, 10));
    }
}

/// All are late at once, as when a controller resets: they are waited for. Who is late when the others answer again may go.
pub fn when_all_are_late_it_goes_on() {
    let world = World::new(4, false);
    world.create(Level::Raid5);
    let p = world.start(8);
    world.on_ops(|_, _: &Op, _| Verdict::DelayNs(7_000_000_000));
    let write = p.begin_write(0, 3, 20);
    p.wait(Duration::from_secs(8));
    world.no_hooks();
    p.wait(Duration::from_secs(20));
    assert!(write.is_finished(), "{:#?}", p.array().status().events);
    assert!(p.is(0, 3, 20), "{:#?}", p.array().status().events);
    let out = p.array().status().members.iter().filter(|m| m.state.is_out()).count();
    assert!(out <= 1, "{:#?}", p.array().status().events);
}

/// Read errors make a member suspect, not out.
pub fn read_errors_make_suspect() {
    let world = World::new(4, false);
    world.create(Level::Raid5);
    let p = world.start(9);
    p.write(0, 3, 60).unwrap();
    world.on_ops(|disk, op, _| match op.kind {
        OpKind::Read if disk == 1 => Verdict::Fail(IoError::Medium),
        _ => Verdict::Proceed,
    });
    for lba in 0..60 {
        assert!(p.is(lba, 3, 1));
    }
    let status = p.array().status();
    assert_eq!(status.members[1].state, SeatState::In);
    assert!(status.members[1].suspect.is_some());
}

/// A member that has failed every read for a minute, of its labels too, goes out, whether hosts read or not. One whose labels
/// can be read stays; and so do all where more fail than may.
pub fn a_member_that_reads_nothing_goes_out() {
    for hosts_read in [true, false] {
        for (system_too, failing, goes) in [(true, 1..2, true), (false, 1..2, false), (true, 1..3, false)] {
            let world = World::new(4, false);
            world.create(Level::Raid5);
            let p = world.start(15);
            p.write(0, 3, 60).unwrap();
            p.checkpoint();
            let fail = failing.clone();
            world.on_ops(move |disk, op, system| match op.kind {
                OpKind::Read if fail.contains(&disk) && (system_too || !system) => Verdict::Fail(IoError::Medium),
                OpKind::Read | OpKind::Write | OpKind::Flush | OpKind::Deallocate => Verdict::Proceed,
            });
            let seconds = |seconds: u64| {
                for second in 0..seconds {
                    // (Where two fail, what is on both is lost.)
                    let read = p.read(second % 60, 1);
                    assert!(!hosts_read || failing.len() > 1 || read == Ok(vec![3; 4096]));
                    p.wait(Duration::from_secs(1));
                }
            };
            if hosts_read {
                seconds(40)
            } else {
                p.wait(Duration::from_secs(40))
            }
            assert_eq!(state(&p, 1), SeatState::In, "a reset may take that long");
            if hosts_read {
                seconds(60)
            } else {
                p.wait(Duration::from_secs(60))
            }
            let status = p.array().status();
            assert_eq!(state(&p, 1).is_out(), goes, "{failing:?}, hosts read {hosts_read}: {:#?}", status.events);
            assert_ne!(status.state, ArrayState::Frozen);
            world.no_hooks();
            assert!(p.is(0, 3, 60));
            p.kill(16);
            assert!(world.start(17).is(0, 3, 60));
        }
    }
}

/// A drive that went out comes back only once it is idle.
pub fn a_drive_comes_back_idle() {
    let world = World::new(4, false);
    world.create(Level::Raid5);
    let rt = rt::Rt::modelled(3);
    let handles = World::drives(&rt, &world.disks);
    let array = rt.block_on(array::Array::open(&rt, handles.clone(), array::OpenHow::default())).unwrap();
    world.on_ops(|disk, op, _| {
        if disk == 1 && op.kind == OpKind::Write { Verdict::DelayNs(12_000_000_000) } else { Verdict::Proceed }
    });
    let v = array.volume("v").unwrap();
    rt.block_on(v.write(0, crate::world::data(4, 8), false)).unwrap();
    assert!(array.status().members[1].state.is_out());
    assert!(handles[1].in_flight() > 0);
    world.no_hooks();
    let back = || rt.block_on(array.drive_replace(MemberId(1), handles[1].clone(), true));
    assert_eq!(back().err().map(|r| r.code), Some(RefusedCode::InUse));
    rt.block_on(rt.sleep(Duration::from_secs(20)));
    back().unwrap();
    rt.block_on(array.close()).unwrap();
}

/// One drive takes fifty times as long, at times and for good: the slowest of a thousand reads is far from waiting for it.
pub fn a_slow_drive_does_not_set_the_tail() {
    let world = World::new(5, false);
    world.create(Level::Raid5);
    let p = world.start(10);
    for lba in 0..64u64 {
        p.write(lba * 8, lba as u8, 8).unwrap();
    }
    let tail = |reads: u64, slow: &dyn Fn(u64) -> bool| {
        let mut took: Vec<Duration> = (0..reads)
            .map(|i| {
                let factor = if slow(i) { 50 } else { 1 };
                world.disks[2].set_fault(Fault::Slow { factor });
                let lba = i * 37 % 512;
                let begun = p.rt.now();
                assert!(p.is(lba, (lba / 8) as u8, 1));
                p.rt.now() - begun
            })
            .collect();
        took.sort();
        took[took.len() - 1 - took.len() / 1000]
    };
    let alone = Duration::from_nanos(world.disks[2].params().read_ns * 50);
    let quick = tail(2000, &|_| false);
    let at_times = tail(2000, &|i| i / 200 % 2 == 1);
    let always = tail(2000, &|_| true);
    assert!(at_times < alone / 2 && always < alone / 2, "p99.9: {quick:?}, {at_times:?}, {always:?}; alone {alone:?}");
    assert!(p.array().status().members[2].reads_around > 100);
    let others: u64 = (0..5).filter(|i| *i != 2).map(|i| p.array().status().members[i].reads_around).sum();
    assert!(others < 40, "{others} reads around drives that are not slow");
}

/// The same of reads that are more than one run: nothing else of them waits for the drive, whether it is known to be slow or not.
pub fn a_slow_drive_does_not_set_the_tail_of_long_reads() {
    let world = World::new(5, false);
    world.create(Level::Raid5);
    let p = world.start(15);
    for lba in 0..64u64 {
        p.write(lba * 8, lba as u8, 8).unwrap();
    }
    // Twenty blocks from the middle of a write on.
    let is_right = |first: u64, read: &[u8]| {
        let tags = (first..first + 20).map(|lba| (lba / 8) as u8);
        read.chunks(4096).zip(tags).all(|(block, tag)| block.iter().all(|b| *b == tag))
    };
    let longest = |slow: &dyn Fn(u64) -> bool| {
        let took = (0..400u64).map(|i| {
            world.disks[2].set_fault(Fault::Slow { factor: if slow(i) { 200 } else { 1 } });
            let (first, begun) = (i * 37 % 490, p.rt.now());
            assert!(is_right(first, &p.read(first, 20).unwrap()), "blocks from {first} on");
            p.rt.now() - begun
        });
        let mut took: Vec<Duration> = took.collect();
        took.sort();
        took[took.len() - 3]
    };
    let alone = Duration::from_nanos(world.disks[2].params().read_ns * 200);
    let (at_times, always) = (longest(&|i| i % 100 > 90), longest(&|_| true));
    assert!(at_times < alone / 2 && always < alone / 2, "{at_times:?}, {always:?}; alone {alone:?}");
    assert!(p.array().status().members[2].reads_around > 50);
}

/// A drive that was slow is itself again, and another is slow now: reads of the one do not wait for the other.
pub fn who_was_slow_is_asked_again() {
    let world = World::new(3, false);
    world.create(Level::Raid5);
    let p = world.start(12);
    for lba in 0..64u64 {
        p.write(lba * 8, lba as u8, 8).unwrap();
    }
    let longest = |reads: u64| {
        let took = (0..reads).map(|i| {
            let (lba, begun) = (i * 37 % 512, p.rt.now());
            assert!(p.is(lba, (lba / 8) as u8, 1));
            p.rt.now() - begun
        });
        took.max().unwrap()
    };
    let slow = |disk: usize, factor: u32| world.disks[disk].set_fault(Fault::Slow { factor });
    longest(100);
    for (was, is) in [(0, 1), (1, 2), (2, 0)] {
        slow(was, 50);
        longest(200);
        slow(was, 1);
        slow(is, 5000);
        let longest = longest(20);
        let alone = Duration::from_nanos(world.disks[is].params().read_ns * 5000);
        assert!(longest < alone / 4, "{longest:?}, alone {alone:?}");
        slow(is, 1);
        p.wait(Duration::from_secs(2));
    }
}

/// What is made from the others is believed only if it matches.
pub fn what_is_read_around_is_verified() {
    for slow in 0..3 {
        let other = (slow + 1) % 3;
        let world = World::new(3, false);
        world.create(Level::Raid5);
        let p = world.start(11);
        for lba in 0..6u64 {
            p.write(lba * 10, lba as u8 + 1, 10).unwrap();
        }
        world.disks[slow].set_fault(Fault::Slow { factor: 1000 });
        for (disk, at, mut block) in world.blocks(|b| b.iter().any(|x| *x != 0)) {
            if disk == other {
                block[5] ^= 4;
                world.disks[other].image_write(at, &block);
            }
        }
        for lba in 0..60 {
            let read = p.read(lba, 1);
            assert!(read.is_err() || read == Ok(vec![(lba / 10) as u8 + 1; 4096]), "drive {slow} is slow, block {lba}");
        }
        let long = p.read(5, 50).unwrap_or_default();
        let wrong = long.chunks(4096).zip(5u64..).find(|(block, lba)| block.iter().any(|b| *b != (lba / 10) as u8 + 1));
        assert!(wrong.is_none(), "drive {slow} is slow, blocks from 5 on");
    }
}

/// The process stands still for longer than any drive may take, with requests in flight: when it goes on, nobody is suspect,
/// and nobody out, whether the drives have answered meanwhile or need a little more. Who really does not answer is found as
/// soon as it would have been.
pub fn a_standstill_blames_nobody() {
    for (seconds, more_ms) in [(3, 0), (7, 0), (12, 300), (3600, 300)] {
        let world = World::new(4, false);
        world.create(Level::Raid5);
        let p = world.start(13);
        let still = Duration::from_secs(seconds);
        // Right behind the begin of the first request, right before the first look, and right behind it.
        for before in [1, 249_900, 250_100] {
            let takes = (still + Duration::from_millis(more_ms) + Duration::from_micros(before)).as_nanos() as u64;
            let one = Rc::new(Cell::new(false));
            let once = one.clone();
            world.on_ops(move |disk, op, _| match op.kind {
                OpKind::Write if disk == 1 && more_ms > 0 && !once.replace(true) => Verdict::DelayNs(takes),
                _ => Verdict::Proceed,
            });
            let write = p.begin_write(0, 7, 20);
            p.wait(Duration::from_micros(before));
            p.rt.stand_still(still);
            p.wait(Duration::from_secs(2));
            assert!(write.is_finished());
            let status = p.array().status();
            assert_eq!(status.state, ArrayState::Optimal, "{:#?}", status.events);
            assert!(status.members.iter().all(|m| m.suspect.is_none()), "after {seconds} s: {:#?}", status.events);
        }
        world
            .on_ops(|disk, op, _| if disk == 2 && op.kind == OpKind::Write { Verdict::Hang } else { Verdict::Proceed });
        let _hangs = p.begin_write(200, 8, 20);
        p.wait(Duration::from_secs(2));
        assert!(p.array().status().members[2].suspect.is_some());
        p.rt.stand_still(still);
        p.wait(Duration::from_secs(1));
        assert_eq!(state(&p, 2), SeatState::In, "{:#?}", p.array().status().events);
        p.wait(Duration::from_secs(4));
        assert!(state(&p, 2).is_out(), "{:#?}", p.array().status().events);
    }
}

/// Writes hang on all drives, and reads do not (a thin pool that waits for room, a controller in a reset): they are waited
/// for, as many as they are, and nobody is out.
pub fn who_is_late_beside_others_is_waited_for() {
    let world = World::new(4, false);
    world.create(Level::Raid5);
    let p = world.start(14);
    p.write(0, 1, 20).unwrap();
    world.on_ops(|_, op, _| if op.kind == OpKind::Write { Verdict::DelayNs(9_000_000_000) } else { Verdict::Proceed });
    let write = p.begin_write(100, 2, 60);
    p.wait(Duration::from_secs(8));
    let blamed = |m: &api::MemberView| m.state != SeatState::In || m.suspect.is_some();
    assert!(!p.array().status().members.iter().any(blamed), "{:#?}", p.array().status().events);
    world.no_hooks();
    p.wait(Duration::from_secs(4));
    assert!(write.is_finished() && p.is(0, 1, 20) && p.is(100, 2, 60));
    assert_eq!(p.array().status().state, ArrayState::Optimal, "{:#?}", p.array().status().events);
}
