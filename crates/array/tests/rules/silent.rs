//! Drives that never answer, and who waits for them: an open, a close, and requests while an array is being closed.

use std::cell::Cell;
use std::time::Duration;

use api::{ArrayState, SeatState};
use array::{Array, Fault, OpenHow, Refused, RefusedCode};
use base::MemberId;
use futures::future::{Either, select};
use ondisk::{Level, OwnerState};
use rt::model::{Disk, DiskParams, Fault as DriveFault, OpKind, Verdict};
use rt::{Drive, Rt};

use crate::health::state;
use crate::world::{BLOCK, World, data};

/// What `work` comes to, if that is soon.
fn within<T>(rt: &Rt, seconds: u64, work: impl Future<Output = T>) -> Option<T> {
    let late = Box::pin(rt.sleep(Duration::from_secs(seconds)));
    match rt.block_on(select(Box::pin(work), late)) {
        Either::Left((done, _)) => Some(done),
        Either::Right(_) => None,
    }
}

fn open_within(rt: &Rt, world: &World, seconds: u64) -> Option<Result<Array, Refused>> {
    within(rt, seconds, Array::open(rt, World::drives(rt, &world.disks), OpenHow::default()))
}

fn reads(rt: &Rt, array: &Array, lba: u64, tag: u8, blocks: u64) -> bool {
    let v = array.volume("v").unwrap();
    crate::world::read(rt, &v, lba, blocks) == Ok(vec![tag; (blocks * BLOCK) as usize])
}

/// A drive that answers nothing from the beginning counts as missing.
pub fn a_drive_that_hangs_holds_up_no_open() {
    let world = World::new(4, false);
    world.create(Level::Raid5);
    let p = world.start(1);
    p.write(0, 3, 60).unwrap();
    p.kill(2);
    world.disks[1].set_fault(DriveFault::Hang);
    let rt = Rt::modelled(3);
    let array = open_within(&rt, &world, 60).expect("it waits for no label").unwrap();
    assert_eq!(array.status().members[1].state, SeatState::Missing);
    assert!(reads(&rt, &array, 0, 3, 60));
    drop(array);
    rt.end();
}

/// One that stops answering in the middle of a recovery goes out, whichever it is.
pub fn a_drive_that_hangs_in_recovery_goes_out() {
    for hung in 0..4 {
        let world = World::new(4, false);
        world.create(Level::Raid5);
        let p = world.start(1);
        p.write(0, 3, 60).unwrap();
        p.kill(2);
        world.on_ops(move |disk, _, system| if disk == hung && !system { Verdict::Hang } else { Verdict::Proceed });
        let rt = Rt::modelled(3);
        let array = open_within(&rt, &world, 60).expect("it waits for no record").unwrap();
        assert!(reads(&rt, &array, 0, 3, 60));
        let v = array.volume("v").unwrap();
        rt.block_on(v.write(100 * BLOCK, data(4, 20), true)).unwrap();
        assert!(array.status().members[hung].state.is_out(), "{:#?}", array.status().events);
        drop((array, v));
        rt.end();
        world.no_hooks();
        world.disks.iter().for_each(|d| d.crash(4));
        let p = world.start(5);
        assert!(p.is(0, 3, 60) && p.is(100, 4, 20));
        assert!(p.array().status().members[hung].state.is_out());
    }
}

/// A spare is no member whose lateness is looked at: its labels are checked with a limit, and the array opens, whenever the spare
/// stops to answer.
pub fn a_spare_that_hangs_holds_up_no_open() {
    let mut told = 0;
    for requests in 0..24 {
        let world = World::new(4, false);
        world.create(Level::Raid5);
        let params = DiskParams { bytes: 48 << 20, ..DiskParams::default() };
        let spare = Disk::new("spare", params, 9);
        let p = world.start(1);
        p.write(0, 3, 60).unwrap();
        p.rt.block_on(p.array().drive_add_spare(Drive::modelled(&p.rt, &spare), false)).unwrap();
        p.close();
        let answered = Cell::new(requests);
        spare.on_op(Some(Box::new(move |_| match answered.get() {
            0 => Verdict::Hang,
            n => {
                answered.set(n - 1);
                Verdict::Proceed
            }
        })));
        let rt = Rt::modelled(3);
        let mut drives = World::drives(&rt, &world.disks);
        drives.push(Drive::modelled(&rt, &spare));
        let opened = within(&rt, 60, Array::open(&rt, drives, OpenHow::default()));
        let array = opened.expect("it waits for no spare").unwrap();
        assert!(reads(&rt, &array, 0, 3, 60));
        let of_spare = "it is a spare, and its labels were not checked";
        told += usize::from(array.status().events.iter().any(|e| e.text.contains(of_spare)));
        drop(array);
        rt.end();
    }
    assert!(told > 0, "it came to the labels");
}

/// The same of an open for reading only.
pub fn it_goes_out_where_nothing_is_written_too() {
    let world = World::new(4, false);
    world.create(Level::Raid5);
    let p = world.start(1);
    p.write(0, 3, 60).unwrap();
    p.kill(2);
    for hung in 0..4 {
        world.on_ops(move |disk, _, system| if disk == hung && !system { Verdict::Hang } else { Verdict::Proceed });
        let rt = Rt::modelled(3);
        let how = OpenHow { read_only: true, ..OpenHow::default() };
        let opening = Array::open(&rt, World::drives(&rt, &world.disks), how);
        let array = within(&rt, 60, opening).expect("it waits for no record").unwrap();
        assert!(reads(&rt, &array, 0, 3, 60));
        drop(array);
        rt.end();
        world.no_hooks();
        world.disks.iter().for_each(|d| d.crash(4));
    }
}

/// More of them than may go: the open is refused, in time, and the next one finds everything.
pub fn an_open_that_cannot_do_without_them_is_refused() {
    let world = World::new(4, false);
    world.create(Level::Raid5);
    let p = world.start(1);
    p.write(0, 3, 60).unwrap();
    p.kill(2);
    world.on_ops(|disk, _, system| if disk < 3 && !system { Verdict::Hang } else { Verdict::Proceed });
    let rt = Rt::modelled(3);
    let refused = open_within(&rt, &world, 90).expect("it does not wait for ever").err().expect("it is refused");
    assert_eq!(refused.code, RefusedCode::Io, "{refused}");
    rt.end();
    world.no_hooks();
    world.disks.iter().for_each(|d| d.crash(4));
    let p = world.start(5);
    assert!(p.is(0, 3, 60));
    assert_eq!(p.array().status().state, ArrayState::Optimal);
}

/// An array that cannot do without a drive that never answers is closed all the same, frozen; what was acknowledged is
/// there when the drive answers again, and who waited has an answer.
pub fn a_close_does_not_wait_for_ever() {
    let world = World::new(3, false);
    world.create(Level::Raid5);
    let p = world.start(7);
    p.write(0, 1, 30).unwrap();
    p.rt.block_on(p.array().drive_fail(MemberId(0))).unwrap();
    world.on_ops(|disk, op, _| if disk == 1 && op.kind == OpKind::Write { Verdict::Hang } else { Verdict::Proceed });
    let write = p.begin_write(100, 2, 10);
    p.wait(Duration::from_secs(7));
    assert!(!write.is_finished());
    let closed = within(&p.rt, 60, p.array().close()).expect("it does not wait for ever");
    assert_eq!(closed, Err(Fault::Frozen));
    p.wait(Duration::from_secs(1));
    assert!(write.is_finished());
    world.no_hooks();
    p.kill(8);
    let p = world.start_how(9, crate::world::DEGRADED);
    assert!(p.is(0, 1, 30));
    assert_ne!(p.array().status().state, ArrayState::Frozen);
    assert_eq!(state(&p, 1), SeatState::In);
}

/// A close that gave up waiting for a write does not say that nobody has the array: the write may land under the next server.
pub fn a_close_that_gave_up_releases_nothing() {
    let world = World::of(3, DiskParams { shared: true, volatile_cache: false, ..DiskParams::default() });
    world.create(Level::Raid5);
    let p = world.start(7);
    p.write(0, 1, 30).unwrap();
    p.rt.block_on(p.array().drive_fail(MemberId(0))).unwrap();
    world.on_ops(|disk, op, system| match op.kind {
        OpKind::Write if disk == 1 && !system => Verdict::Hang,
        OpKind::Read | OpKind::Write | OpKind::Flush | OpKind::Deallocate => Verdict::Proceed,
    });
    let write = p.begin_write(100, 2, 10);
    p.wait(Duration::from_secs(7));
    assert_eq!(within(&p.rt, 120, p.array().close()), Some(Err(Fault::Frozen)));
    drop(write);
    let left = super::owner::marks(&world);
    assert!(!left.is_empty() && left.iter().all(|mark| mark.state != OwnerState::Released), "{left:?}");
    world.no_hooks();
    p.kill(8);
}

/// Nor does an open that was refused for a drive that does not answer.
pub fn an_open_that_gave_up_releases_nothing() {
    let world = World::of(3, DiskParams { shared: true, volatile_cache: false, ..DiskParams::default() });
    world.create(Level::Raid0);
    world.start(7).close();
    let layout = world.label(1).layout;
    let slots = [layout.slot(0), layout.slot(1)];
    world.on_ops(move |disk, op, _| match op.kind {
        OpKind::Write if disk == 1 && slots.contains(&op.at) => Verdict::Hang,
        OpKind::Read | OpKind::Write | OpKind::Flush | OpKind::Deallocate => Verdict::Proceed,
    });
    let rt = Rt::modelled(8);
    let opened = within(&rt, 200, array::parts::open(&rt, World::drives(&rt, &world.disks), OpenHow::default()));
    let refused = opened.expect("it does not wait for ever").map(drop).unwrap_err();
    assert_eq!(refused.code, RefusedCode::Io, "{refused}");
    let left = super::owner::marks(&world);
    assert!(left.iter().any(|mark| mark.state != OwnerState::Released), "{left:?}");
    world.no_hooks();
    rt.end();
}

/// Two writes wait for a read while the array is being closed, one behind the other: nothing of them is acknowledged that
/// the next open does not know.
pub fn what_waits_while_it_closes_is_refused() {
    let world = World::new(4, false);
    world.create(Level::Raid5);
    let p = world.start(10);
    p.write(0, 1, 1).unwrap();
    p.checkpoint();
    // The read of the rest of the block ends in the middle of the last generation.
    world.on_ops(|_, op, system| match op.kind {
        OpKind::Read if !system => Verdict::DelayNs(6_000_000_000),
        OpKind::Write if system => Verdict::DelayNs(4_000_000_000),
        OpKind::Read | OpKind::Write | OpKind::Flush | OpKind::Deallocate => Verdict::Proceed,
    });
    let v = p.v();
    let part = rt::Bytes::from_slice(&[9; 512]);
    let first = p.rt.spawn(async move { v.write(512, part, false).await });
    p.wait(Duration::from_millis(1));
    let second = p.begin_write(0, 7, 1);
    p.wait(Duration::from_millis(1));
    p.rt.block_on(p.array().close()).unwrap();
    assert!(first.is_finished() && second.is_finished());
    let (first, second) = (p.rt.block_on(first), p.rt.block_on(second));
    assert_eq!(first, Err(Fault::Closed));
    world.no_hooks();
    p.kill(11);
    let expected = if second.is_ok() { 7 } else { 1 };
    assert!(world.fork().start(12).is(0, expected, 1), "{second:?}");
    // With too few drives what was handed over is all there is: nothing older is said than what was acknowledged.
    for gone in [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]] {
        let mut left = world.fork().disks;
        gone.iter().rev().for_each(|disk| drop(left.remove(*disk)));
        let rt = Rt::modelled(13);
        let array = rt.block_on(Array::open(&rt, World::drives(&rt, &left), crate::world::DEGRADED)).unwrap();
        let read = crate::world::read(&rt, &array.volume("v").unwrap(), 0, 1);
        assert!(read.as_ref().is_err() || read == Ok(vec![expected; BLOCK as usize]), "{second:?} without {gone:?}");
        drop(array);
        rt.end();
    }
}
