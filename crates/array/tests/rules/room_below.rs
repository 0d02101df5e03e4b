//! Drives that have no room where they lie: nobody is blamed, nothing is lost, and all goes on when there is room.

use std::time::Duration;

use api::{ArrayState, SeatState};
use array::no_room::WRITES_WAIT;
use array::{Array, CreateSpec, Fault, OpenHow, RefusedCode};
use ondisk::Level;
use rt::model::{Fault as DriveFault, FullFor, OpKind, Verdict};
use rt::{IoError, Rt};

use crate::world::{Process, World, read};

/// As long as hosts wait, and a little more than the longest time between two tries.
const TOO_LONG: Duration = Duration::from_secs(WRITES_WAIT.as_secs() + 2);

fn fill(world: &World, which: &[usize], writes: FullFor) {
    which.iter().for_each(|&i| world.disks[i].set_fault(DriveFault::NoSpace { writes }));
}

fn nobody_is_blamed(p: &Process<'_>) {
    let status = p.array().status();
    assert_eq!(status.state, ArrayState::Optimal, "{:#?}", status.events);
    for member in &status.members {
        assert!(member.state == SeatState::In && member.suspect.is_none(), "{member:?}: {:#?}", status.events);
    }
}

fn alarm(p: &Process<'_>) -> Option<String> {
    let alarms = p.array().status().alarms.into_iter();
    alarms.filter(|a| a.code == api::AlarmCode::NoRoomBelow).map(|a| a.what).next()
}

/// All drives, or one, have no room: writes wait, reads go on, and an alarm names the drives. Hosts that waited long enough
/// get an error of their own, later ones at once. When there is room all goes on, and what was refused is there or not.
pub fn writes_wait_for_room() {
    for (which, writes) in [(&[0, 1, 2, 3][..], FullFor::All), (&[0, 1, 2, 3], FullFor::New), (&[2], FullFor::All)] {
        let world = World::new(4, true);
        world.create(Level::Raid5);
        let p = world.start(1);
        p.write(0, 1, 60).unwrap();
        p.flush().unwrap();
        fill(&world, which, writes);
        let short = p.begin_write(100, 2, 60);
        p.wait(Duration::from_secs(10));
        assert!(!short.is_finished(), "it waits");
        nobody_is_blamed(&p);
        let told = alarm(&p).expect("an alarm");
        assert!((0..4).all(|i| told.contains(&format!("d{i}")) == which.contains(&i)), "{told}");
        assert!(p.is(0, 1, 60), "reads go on");
        fill(&world, which, FullFor::Nothing);
        p.wait(Duration::from_secs(2));
        assert!(short.is_finished(), "it went on by itself: {:#?}", p.array().status().events);
        assert!(p.is(100, 2, 60) && alarm(&p).is_none());

        fill(&world, which, writes);
        let long = p.begin_write(270, 3, 60);
        p.wait(Duration::from_millis(100));
        let behind = p.begin_write(280, 4, 1);
        p.wait(TOO_LONG);
        assert!(long.is_finished() && behind.is_finished(), "hosts do not wait for ever");
        assert_eq!(p.write(400, 5, 1), Err(Fault::NoRoom));
        let v = p.v();
        assert_eq!(p.run(async move { v.deallocate(0, 4096, false).await }), Err(Fault::NoRoom));
        assert!(p.is(0, 1, 60) && p.is(270, 0, 60), "what was refused is not there yet");
        nobody_is_blamed(&p);
        fill(&world, which, FullFor::Nothing);
        p.wait(Duration::from_secs(2));
        assert!(alarm(&p).is_none());
        p.write(275, 6, 1).unwrap();
        p.wait(Duration::from_secs(2));
        assert!(p.is(275, 6, 1), "a later write comes behind what was refused");
        nobody_is_blamed(&p);
        p.close();
        assert!(world.check().ok());
        let p = world.start(2);
        assert!(p.is(0, 1, 60) && p.is(100, 2, 60) && p.is(275, 6, 1));
    }
}

/// What is given back behind a write that was refused, and waits yet, stays given back.
pub fn what_is_refused_comes_before_what_is_given_back() {
    let world = World::new(4, false);
    world.create(Level::Raid5);
    let p = world.start(8);
    p.write(0, 1, 60).unwrap();
    let all = [0, 1, 2, 3];
    fill(&world, &all, FullFor::All);
    let refused = p.begin_write(300, 2, 40);
    p.wait(TOO_LONG);
    assert!(refused.is_finished());
    // Nothing lies there as yet.
    let v = p.v();
    let given_back = p.rt.spawn(async move { v.deallocate(256 * 4096, 256 * 4096, false).await });
    p.wait(Duration::from_millis(100));
    fill(&world, &all, FullFor::Nothing);
    p.wait(Duration::from_secs(5));
    assert!(given_back.is_finished());
    if p.run(given_back).is_err() {
        let v = p.v();
        p.run(async move { v.deallocate(256 * 4096, 256 * 4096, false).await }).unwrap();
    }
    p.wait(Duration::from_secs(5));
    assert!(p.is(256, 0, 256), "the write landed behind it");
    assert!(p.is(0, 1, 60));
    p.close();
}

/// Nothing is acknowledged that a drive has no room for: killed while they wait, all that was acknowledged is there, and no
/// drive is out.
pub fn what_waits_for_room_is_not_acknowledged() {
    let world = World::new(4, false);
    world.create(Level::Raid5);
    let p = world.start(3);
    p.write(0, 1, 60).unwrap();
    fill(&world, &[1, 2], FullFor::All);
    let writes: Vec<_> = (0..8u8).map(|i| p.begin_write(100 + u64::from(i) * 10, i + 2, 10)).collect();
    p.wait(Duration::from_secs(3));
    let acked: Vec<bool> = writes.iter().map(rt::Task::is_finished).collect();
    p.kill(4);
    fill(&world, &[1, 2], FullFor::Nothing);
    assert!(world.check().ok());
    let p = world.start(5);
    nobody_is_blamed(&p);
    assert!(p.is(0, 1, 60));
    for (i, acked) in acked.into_iter().enumerate() {
        assert!(!acked || p.is(100 + i as u64 * 10, i as u8 + 2, 10), "write {i} was acknowledged");
    }
}

/// A close, a checkpoint and an open that meet no room end all the same, and nothing is lost.
pub fn no_room_holds_up_no_end() {
    let world = World::new(4, true);
    world.create(Level::Raid5);
    let p = world.start(6);
    p.write(0, 1, 60).unwrap();
    p.flush().unwrap();
    let all = [0, 1, 2, 3];
    fill(&world, &all, FullFor::All);
    let _waits = p.begin_write(100, 2, 60);
    let array = p.array();
    let checkpoint = p.rt.spawn(async move { array.checkpoint().await });
    p.wait(Duration::from_secs(1));
    let array = p.array();
    assert_eq!(p.run(async move { array.close().await }), Err(Fault::NoRoom));
    p.wait(Duration::from_secs(2));
    assert!(checkpoint.is_finished(), "nothing goes on behind a close");
    p.kill(7);
    // Recovery writes: it says why it cannot, and what to do.
    fill(&world, &all, FullFor::All);
    let refused = world.refused(&world.disks, OpenHow::default());
    assert!(refused.why.contains("is full") && refused.why.contains("d0"), "{refused}");
    let read_only = world.start_how(8, OpenHow { read_only: true, ..OpenHow::default() });
    assert!(read_only.is(0, 1, 60));
    read_only.close();
    fill(&world, &all, FullFor::Nothing);
    let p = world.start(9);
    assert!(p.is(0, 1, 60));
    nobody_is_blamed(&p);
    p.close();
    assert!(world.check().ok());
}

/// Verbs that need a generation are answered: a volume that finds no room may come all the same, and comes once there is some;
/// an array is not made.
pub fn verbs_are_answered_without_room() {
    let world = World::new(4, false);
    world.create(Level::Raid5);
    let p = world.start(11);
    let all = [0, 1, 2, 3];
    fill(&world, &all, FullFor::All);
    let array = p.array();
    let made = p.run(async move { array.volume_create("w", 1 << 20).await });
    assert_eq!(made.unwrap_err().code, RefusedCode::NotWritable);
    assert!(p.array().volume("w").is_none(), "no generation says so");
    fill(&world, &all, FullFor::Nothing);
    p.wait(Duration::from_secs(3));
    assert!(p.array().volume("w").is_some());
    p.close();
    assert!(world.check().ok());

    // The labels fit in, the first generation does not.
    let world = World::new(3, false);
    let rt = Rt::modelled(12);
    let drives = World::drives(&rt, &world.disks);
    let like = World::new(3, false);
    like.create(Level::Raid5);
    let slots = [0, 1].map(|i| like.label(0).layout.slot(i));
    for disk in &world.disks {
        let labelled = std::cell::Cell::new(false);
        disk.on_op(Some(Box::new(move |op| {
            labelled.set(labelled.get() || (op.kind == OpKind::Write && op.at.0 == 0));
            if op.kind == OpKind::Write && labelled.get() && slots.contains(&op.at) {
                Verdict::Fail(IoError::NoSpace)
            } else {
                Verdict::Proceed
            }
        })));
    }
    let spec = CreateSpec { name: "a".into(), level: Level::Raid5, width: Some(3), zone_blocks: None, force: false };
    let made =
        async { Array::create(&rt, drives, &CreateSpec { zone_blocks: Some(crate::world::ZONE), ..spec }).await };
    let refused = rt.block_on(made).err().expect("there is no room");
    assert!(refused.why.contains("is full"), "{refused}");
}

/// One that has no room for long can be failed by command, and the others go on; one that comes in its place and has none
/// holds up no host.
pub fn who_has_no_room_can_be_failed() {
    let world = World::new(4, false);
    world.create_of_width(Level::Raid5, 3, crate::world::ZONE, 8 << 20);
    let rt = Rt::modelled(10);
    let array = rt.block_on(Array::open(&rt, World::drives(&rt, &world.disks), OpenHow::default())).unwrap();
    let v = array.volume("v").unwrap();
    let write = |lba: u64, tag: u8| rt.block_on(v.write(lba * 4096, crate::world::data(tag, 60), false));
    write(0, 1).unwrap();
    fill(&world, &[1], FullFor::All);
    let waiting = {
        let v = v.clone();
        rt.spawn(async move { v.write(100 * 4096, crate::world::data(2, 60), false).await })
    };
    rt.block_on(rt.sleep(Duration::from_secs(5)));
    let failed = {
        let array = array.clone();
        rt.spawn(async move { array.drive_fail(base::MemberId(1)).await })
    };
    rt.block_on(rt.sleep(Duration::from_secs(2)));
    assert!(failed.is_finished() && waiting.is_finished(), "{:#?}", array.status().events);
    assert!(write(200, 3).is_ok());
    for (lba, tag) in [(0, 1), (100, 2), (200, 3)] {
        assert_eq!(read(&rt, &v, lba, 60), Ok(vec![tag; 60 * 4096]));
    }
}

/// So, too, when room comes and the write lands while the map is asked what is there.
pub fn what_lands_while_the_map_is_asked_comes_before() {
    let world = World::new(4, false);
    world.create_with(Level::Raid5, 128, 64 << 20);
    let p = world.start(8);
    // The shard of leaf 1 has a node: leaf 17 is there.
    p.write(17 * 256, 1, 60).unwrap();
    p.checkpoint();
    p.array().set_map_memory(0);
    fill(&world, &[0, 1, 2, 3], FullFor::All);
    let refused = p.begin_write(300, 2, 40);
    p.wait(Duration::from_secs(22));
    assert_eq!(p.run(refused), Err(Fault::NoRoom));
    world.on_ops(|_, op, _| match op.kind {
        OpKind::Read => Verdict::DelayNs(3_000_000_000),
        OpKind::Write | OpKind::Flush | OpKind::Deallocate => Verdict::Proceed,
    });
    let v = p.v();
    let given_back = p.rt.spawn(async move { v.write_zeroes(256 * 4096, 256 * 4096, true, false).await });
    p.wait(Duration::from_millis(100));
    fill(&world, &[0, 1, 2, 3], FullFor::Nothing);
    p.wait(Duration::from_secs(2));
    assert_eq!(p.run(given_back), Ok(()));
    world.no_hooks();
    assert!(p.is(256, 0, 256), "a write that was refused before the zeroes lies over them");
}
