//! The drives of an array: rebuilt in the right order, replaced by copying, let go, added.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use api::{ArrayState, ArrayView, JobKind, JobState, JobView, SeatState};
use array::{Rate, RefusedCode};
use base::{BlockCount, MemberId};
use ondisk::{Generation, Level};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rt::model::{Disk, OpKind, Verdict};
use rt::{Drive, Rt};

use crate::world::{BLOCK, Process, World, ZONE, data};

/// One more drive like the others.
fn fresh(world: &World, name: &str) -> Disk {
    Disk::new(name, world.disks[0].params(), 99)
}

fn replace(p: &Process<'_>, seat: u16, disk: &Disk) {
    p.rt.block_on(p.array().drive_replace(MemberId(seat), Drive::modelled(&p.rt, disk), false)).unwrap();
}

/// The newest generation on a drive.
fn newest(world: &World, disk: usize) -> Generation {
    let layout = world.label(disk).layout;
    let image = |slot| world.disks[disk].image_read(layout.slot(slot), BlockCount(u64::from(layout.slot_blocks)));
    (0..2).flat_map(|slot| Generation::decode(&image(slot))).max_by_key(|g| g.number).unwrap()
}

/// Segments of a generation by how many of their columns lie on the drives that were failed: of none, one, two.
fn lacking(g: &Generation, failed: &[u16]) -> [usize; 3] {
    let mut counts = [0; 3];
    for s in g.segments.iter().filter(|s| s.live > 0) {
        counts[s.slots.iter().flatten().filter(|(m, _)| failed.contains(&m.0)).count()] += 1;
    }
    counts
}

/// What has the least redundancy left is restored before the rest, also when a second drive goes out.
pub fn the_most_exposed_come_first() {
    let world = World::new(6, false);
    world.create_with(Level::Raid6, 64, 16 << 20);
    let p = world.start(1);
    p.rt.block_on(p.array().rebuild_pause(true)).unwrap();
    (0..40u64).for_each(|i| p.write(i * 32, 1, 32).unwrap());
    p.rt.block_on(p.array().drive_fail(MemberId(0))).unwrap();
    (40..80u64).for_each(|i| p.write(i * 32, 2, 32).unwrap());
    p.rt.block_on(p.array().drive_fail(MemberId(1))).unwrap();
    p.checkpoint();
    let new = [fresh(&world, "new0"), fresh(&world, "new1")];
    replace(&p, 0, &new[0]);
    replace(&p, 1, &new[1]);
    let before = lacking(&newest(&world, 2), &[0, 1]);
    assert!(before[1] > 2 && before[2] > 3, "{before:?}");
    p.rt.block_on(p.array().rebuild_rate(Rate::Bytes(1 << 20))).unwrap();
    p.rt.block_on(p.array().rebuild_pause(false)).unwrap();
    while p.array().status().rebuild.is_none_or(|r| r.segments_done < 2) {
        p.wait(Duration::from_millis(10));
    }
    p.rt.block_on(p.array().rebuild_pause(true)).unwrap();
    p.wait(Duration::from_secs(1));
    p.checkpoint();
    let now = lacking(&newest(&world, 2), &[0, 1]);
    assert!(now[2] < before[2] && now[2] > 0, "{before:?} {now:?}");
    assert_eq!(now[1], before[1], "what can lose another drive waits: {before:?} {now:?}");
    p.rt.block_on(p.array().rebuild_rate(Rate::High)).unwrap();
    p.rt.block_on(p.array().rebuild_pause(false)).unwrap();
    p.rt.block_on(p.array().rebuild_done());
    assert_eq!(p.array().status().state, ArrayState::Optimal, "{:#?}", p.array().status().events);
    world.disks[2].detach();
    world.disks[3].detach();
    assert!(p.is(0, 1, 40 * 32) && p.is(40 * 32, 2, 40 * 32));
}

/// A drive that is put in while the generation that marks the old one out is being written takes its place, whoever looks first
/// when that is done: the verb, or the rebuild, which seats spares.
pub fn a_drive_put_in_while_the_old_one_goes_out_takes_its_place() {
    for seed in 0..16 {
        let world = World::new(2, false);
        world.create(Level::Raid5);
        let p = world.start(seed);
        p.write(0, 7, 100).unwrap();
        world.on_ops(|_, op, system| match op.kind {
            OpKind::Write if system => Verdict::DelayNs(50_000_000),
            OpKind::Read | OpKind::Write | OpKind::Flush | OpKind::Deallocate => Verdict::Proceed,
        });
        let array = p.array();
        let failed = p.rt.spawn(async move { array.drive_fail(MemberId(0)).await });
        p.wait(Duration::from_millis(10));
        assert!(!failed.is_finished() && p.array().status().members[0].state.is_out());
        let new = fresh(&world, "new");
        replace(&p, 0, &new);
        assert!(p.rt.block_on(failed).is_ok());
        world.no_hooks();
        let array = p.array();
        p.run(async move { array.rebuild_done().await });
        let status = p.array().status();
        assert_eq!(status.state, ArrayState::Optimal, "seed {seed}: {:#?}", status.events);
        // More than one segment: the next ones lie on it, too.
        let v = p.v();
        p.run(async move { v.write(100 * BLOCK, data(8, 1000), false).await }).unwrap();
        world.disks[1].detach();
        assert!(p.is(0, 7, 100) && p.is(100, 8, 1000), "seed {seed}");
    }
}

/// A rebuild that was told to wait does so, also in the next process, until it is told to go on.
pub fn a_rebuild_that_waits_waits_over_restarts() {
    let mut world = World::new(4, false);
    world.create(Level::Raid5);
    let p = world.start(1);
    (0..20u64).for_each(|i| p.write(i * 20, 7, 20).unwrap());
    p.rt.block_on(p.array().rebuild_pause(true)).unwrap();
    p.rt.block_on(p.array().rebuild_rate(Rate::Bytes(5 << 20))).unwrap();
    p.rt.block_on(p.array().drive_fail(MemberId(0))).unwrap();
    let new = fresh(&world, "new");
    replace(&p, 0, &new);
    p.wait(Duration::from_secs(5));
    p.kill(1);
    new.crash(1);
    world.disks[0] = new;
    let p = world.start(2);
    p.wait(Duration::from_secs(20));
    let status = p.array().status();
    assert!(status.rebuild_paused && status.rebuild_rate == (5 << 20).to_string());
    assert_eq!(status.state, ArrayState::Degraded);
    assert!(status.rebuild.is_some_and(|r| r.paused && r.bytes_moved == 0 && r.bytes_total > 0));
    p.rt.block_on(p.array().rebuild_pause(false)).unwrap();
    p.rt.block_on(p.array().rebuild_done());
    assert_eq!(p.array().status().state, ArrayState::Optimal);
    world.disks[1].detach();
    assert!(p.is(0, 7, 400));
}

/// What was overwritten or given back since is not carried to a new drive.
pub fn what_holds_nothing_is_not_rebuilt() {
    let world = World::new(4, false);
    world.create(Level::Raid5);
    let p = world.start(1);
    (0..100u64).for_each(|i| p.write(i * 20, 7, 20).unwrap());
    p.rt.block_on(p.array().drive_fail(MemberId(0))).unwrap();
    p.rt.block_on(p.v().deallocate(400 * BLOCK, 1600 * BLOCK, false)).unwrap();
    let new = fresh(&world, "new");
    replace(&p, 0, &new);
    p.rt.block_on(p.array().rebuild_done());
    assert_eq!(p.array().status().state, ArrayState::Optimal);
    let written = new.counters().bytes_written;
    assert!(written < 600 * BLOCK, "{} blocks for a quarter of 400", written / BLOCK);
    world.disks[1].detach();
    assert!(p.is(0, 7, 400));
}

/// While what a drive has is copied to another, it gives its redundancy: another may go.
pub fn a_member_leaves_when_nothing_lies_on_it() {
    let world = World::new(3, false);
    world.create(Level::Raid5);
    let p = world.start(1);
    (0..40u64).for_each(|i| p.write(i * 20, 5, 20).unwrap());
    p.rt.block_on(p.array().rebuild_rate(Rate::Bytes(1 << 20))).unwrap();
    let new = fresh(&world, "new");
    replace(&p, 0, &new);
    p.wait(Duration::from_millis(500));
    assert_eq!(p.array().status().members[0].state, SeatState::Leaving);
    assert_eq!(p.array().status().state, ArrayState::Optimal);
    world.disks[1].detach();
    assert!(p.is(0, 5, 800), "{:#?}", p.array().status().events);
    p.write(900, 6, 20).unwrap();
    p.rt.block_on(p.array().rebuild_rate(Rate::High)).unwrap();
    assert!(p.run({
        let array = p.array();
        async move { array.drive_left(MemberId(0)).await }
    }));
    assert!(p.is(0, 5, 800) && p.is(900, 6, 20));
    let rt = Rt::modelled(3);
    let label = rt.block_on(array::identify(&Drive::modelled(&rt, &world.disks[0]))).unwrap();
    assert_eq!(label, None, "it is nobody's");
}

/// A drive that has failed, and one that has left, are not kept: others may use them. The array tells them apart still.
pub fn who_has_left_is_let_go_of() {
    let world = World::new(4, false);
    world.create_of_width(Level::Raid5, 3, 64, 16 << 20);
    let p = world.start(1);
    (0..40u64).for_each(|i| p.write(i * 20, 5, 20).unwrap());
    p.rt.block_on(p.array().drive_fail(MemberId(1))).unwrap();
    let path = p.array().status().members[1].drive.clone();
    let open = p.array().let_go_of_former();
    assert_eq!(open.len(), 3, "{open:?}");
    assert!(p.array().former_drives().is_empty() && !open.contains(&path));
    let failed = p.array().status().members.into_iter().find(|m| m.member == 1).unwrap();
    assert_eq!((failed.state, failed.drive), (SeatState::Failed, path));
    let new = fresh(&world, "new");
    replace(&p, 1, &new);
    let array = p.array();
    p.run(async move { array.rebuild_done().await });
    p.rt.block_on(p.array().drive_retire(MemberId(0))).unwrap();
    let array = p.array();
    assert!(p.run(async move { array.drive_left(MemberId(0)).await }));
    assert_eq!(p.array().let_go_of_former().len(), 3);
    p.checkpoint();
    assert!(p.is(0, 5, 800));
}

/// A drive whose place another has taken is no member any more when its columns lie elsewhere: also when nothing else asks for a
/// generation that says so.
pub fn a_drive_that_was_replaced_is_forgotten() {
    let world = World::new(4, false);
    world.create(Level::Raid5);
    let p = world.start(1);
    // So little that it is moved, and the segment emptied.
    (0..20u64).for_each(|i| p.write(i * 40, 5, 1).unwrap());
    p.rt.block_on(p.array().drive_fail(MemberId(1))).unwrap();
    p.wait(Duration::from_secs(1));
    let new = fresh(&world, "new");
    replace(&p, 1, &new);
    let array = p.array();
    p.run(async move { array.rebuild_done().await });
    p.wait(Duration::from_secs(2));
    let status = p.array().status();
    assert_eq!(status.state, ArrayState::Optimal);
    assert!(status.members.iter().all(|m| m.state == SeatState::In), "{:#?}", status.members);
    let listed = newest(&world, 0).members.iter().filter(|m| m.state != ondisk::MemberState::Vacant).count();
    assert_eq!(listed, 4);
    assert!((0..20).all(|i| p.is(i * 40, 5, 1)));
}

/// The power fails between the generation without a drive and the wiping of its label: the next open wipes it. One that failed
/// keeps its label.
pub fn a_label_that_was_left_is_wiped_at_the_next_open() {
    let label = |disk: &Disk| {
        let rt = Rt::modelled(3);
        rt.block_on(array::identify(&Drive::modelled(&rt, disk))).unwrap()
    };
    let world = World::new(4, false);
    world.create_of_width(Level::Raid5, 3, 64, 16 << 20);
    let p = world.start(1);
    (0..40u64).for_each(|i| p.write(i * 20, 5, 20).unwrap());
    p.rt.block_on(p.array().drive_fail(MemberId(1))).unwrap();
    let new = fresh(&world, "new");
    replace(&p, 1, &new);
    let array = p.array();
    p.run(async move { array.rebuild_done().await });
    p.checkpoint();
    // Its label is written when it is wiped, and then only.
    let labels = world.label(0).layout.labels();
    world.on_ops(move |disk, op, _| match op.kind {
        OpKind::Write if disk == 0 && labels.contains(&op.at) => Verdict::Hang,
        OpKind::Read | OpKind::Write | OpKind::Flush | OpKind::Deallocate => Verdict::Proceed,
    });
    p.rt.block_on(p.array().drive_retire(MemberId(0))).unwrap();
    p.wait(Duration::from_secs(20));
    assert!(p.array().status().members.iter().all(|m| m.member != 0), "{:#?}", p.array().status().members);
    p.power_cut(1);
    new.power_cut(1);
    assert!(label(&world.disks[0]).is_some() && label(&world.disks[1]).is_some());
    let all: Vec<Disk> = world.disks.iter().chain([&new]).cloned().collect();
    let rt = Rt::modelled(2);
    let array = rt.block_on(array::Array::open(&rt, World::drives(&rt, &all), crate::world::DEGRADED)).unwrap();
    assert_eq!(label(&world.disks[0]), None, "{:#?}", array.status().events);
    assert!(label(&world.disks[1]).is_some(), "one that failed keeps its label");
    let v = array.volume("v").unwrap();
    assert_eq!(crate::world::read(&rt, &v, 0, 800), Ok(vec![5; 800 * BLOCK as usize]));
}

/// The old place of a column is not given back to the drive before a generation names the new one.
pub fn the_old_place_stays_until_a_generation_names_the_new_one() {
    let world = World::new(2, false);
    world.create(Level::Raid0);
    let p = world.start(1);
    (0..20u64).for_each(|i| p.write(i * 20, 5, 20).unwrap());
    p.checkpoint();
    let new = fresh(&world, "new");
    p.rt.block_on(p.array().rebuild_pause(true)).unwrap();
    replace(&p, 0, &new);
    world.hang_slots();
    let array = p.array();
    // Its own generation hangs.
    p.rt.spawn(async move { array.rebuild_pause(false).await }).detach();
    p.wait(Duration::from_secs(5));
    p.kill(1);
    new.crash(1);
    let rt = Rt::modelled(2);
    let all: Vec<Disk> = world.disks.iter().chain([&new]).cloned().collect();
    let array = rt.block_on(array::Array::open(&rt, World::drives(&rt, &all), crate::world::DEGRADED)).unwrap();
    let v = array.volume("v").unwrap();
    let found = crate::world::read(&rt, &v, 0, 400);
    assert_eq!(found, Ok(vec![5; 400 * BLOCK as usize]));
}

/// Rot on the drive that leaves is not carried to the new one.
pub fn what_is_copied_is_verified() {
    let world = World::new(3, false);
    world.create(Level::Raid5);
    let p = world.start(1);
    (0..20u64).for_each(|i| p.write(i * 20, 5, 20).unwrap());
    p.checkpoint();
    let mine = world.blocks(|b| b.iter().all(|&x| x == 5)).into_iter().filter(|(i, ..)| *i == 0);
    for (_, at, mut block) in mine.step_by(3) {
        block[9] ^= 0x40;
        world.disks[0].image_write(at, &block);
    }
    replace(&p, 0, &fresh(&world, "new"));
    p.rt.block_on(p.array().rebuild_done());
    assert!(p.rt.block_on(p.array().drive_left(MemberId(0))));
    world.disks[1].detach();
    assert!(p.is(0, 5, 400), "{:#?}", p.array().status().events);
}

/// When the new drive fails while it is written, the old one stays, with all it has.
pub fn a_member_whose_replacement_fails_stays() {
    let world = World::new(3, false);
    world.create(Level::Raid5);
    let p = world.start(1);
    (0..40u64).for_each(|i| p.write(i * 20, 5, 20).unwrap());
    p.rt.block_on(p.array().rebuild_rate(Rate::Bytes(1 << 20))).unwrap();
    let new = fresh(&world, "new");
    replace(&p, 0, &new);
    p.wait(Duration::from_millis(500));
    new.on_op(Some(Box::new(|op| match op.kind {
        OpKind::Write => Verdict::Fail(rt::IoError::Medium),
        OpKind::Read | OpKind::Flush | OpKind::Deallocate => Verdict::Proceed,
    })));
    p.write(900, 6, 20).unwrap();
    p.rt.block_on(p.array().rebuild_rate(Rate::High)).unwrap();
    p.wait(Duration::from_secs(5));
    p.rt.block_on(p.array().rebuild_done());
    let status = p.array().status();
    assert_eq!(status.members[0].state, SeatState::In, "{:#?}", status.events);
    assert_eq!(status.state, ArrayState::Optimal, "{:#?}", status.events);
    world.disks[1].detach();
    assert!(p.is(0, 5, 800) && p.is(900, 6, 20));
}

/// Segments begun after a member was told to leave have no column there.
pub fn nothing_new_lies_on_a_member_that_leaves() {
    let world = World::new(4, false);
    world.create_with(Level::Raid5, 64, 16 << 20);
    let p = world.start(1);
    p.write(0, 4, 20).unwrap();
    p.rt.block_on(p.array().rebuild_pause(true)).unwrap();
    p.rt.block_on(p.array().drive_retire(MemberId(0))).unwrap();
    p.wait(Duration::from_millis(100));
    let free = p.array().status().members[0].zones_free;
    (0..60u64).for_each(|i| p.write(i * 32, 5, 32).unwrap());
    assert!(p.array().status().members[0].zones_free >= free);
    // What was open goes on where it is; the others are full of it.
    let elsewhere: u64 = p.array().status().members[1..].iter().map(|m| m.zones - m.zones_free).sum();
    assert!(elsewhere > 3 * 8, "{elsewhere}");
}

/// A member leaves for good when the others have room for what is stored, and not otherwise.
pub fn a_member_retires_when_the_others_have_room() {
    let world = World::new(4, false);
    world.create_with(Level::Raid5, 64, 256 << 20);
    let p = world.start(1);
    // Four fifths of what four drives can hold; three can hold two thirds of that.
    let stored = p.array().status().usable_bytes / BLOCK * 80 / 100 / 128 * 128;
    (0..stored / 32).for_each(|i| p.write(i * 32, (i % 200) as u8, 32).unwrap());
    let refused = p.rt.block_on(p.array().drive_retire(MemberId(0))).expect_err("it does not fit");
    assert_eq!(refused.code, RefusedCode::Size, "{refused}");
    p.rt.block_on(p.v().deallocate(stored / 4 * BLOCK, stored / 4 * 3 * BLOCK, false)).unwrap();
    p.checkpoint();
    p.rt.block_on(p.array().drive_retire(MemberId(0))).unwrap();
    let array = p.array();
    assert!(p.run(async move { array.drive_left(MemberId(0)).await }), "{:#?}", p.array().status().events);
    let status = p.array().status();
    assert_eq!(status.state, ArrayState::Optimal);
    assert!(status.members.iter().all(|m| m.member != 0));
    assert_eq!((status.exposure.failed, status.exposure.missing), (vec![], vec![]), "it was asked to leave");
    p.checkpoint();
    // Its label is gone: it is no drive of the array any more.
    let checked = World { disks: world.fork().disks.into_iter().skip(1).collect() }.check();
    assert!(checked.ok() && checked.members_missing == 0, "{:?}", checked.errors);
    world.disks[0].detach();
    world.disks[2].detach();
    for i in 0..stored / 4 / 32 {
        assert!(p.is(i * 32, (i % 200) as u8, 32), "{i}");
    }
}

/// A drive that joins gives room at once, and new segments lie on it.
pub fn a_member_that_joins_is_used() {
    let world = World::new(3, false);
    world.create_with(Level::Raid5, 64, 16 << 20);
    let p = world.start(1);
    let before = p.array().status();
    let new = fresh(&world, "new");
    p.rt.block_on(p.array().drive_grow(Drive::modelled(&p.rt, &new), false)).unwrap();
    (0..60u64).for_each(|i| p.write(i * 32, 5, 32).unwrap());
    let after = p.array().status();
    assert!(after.usable_bytes > before.usable_bytes && after.state == ArrayState::Optimal);
    assert!(after.members[3].zones_free < after.members[3].zones - 4);
    world.disks[1].detach();
    assert!(p.is(0, 5, 60 * 32));
}

/// A map node is being read while its column is rebuilt elsewhere, and then the place goes that it was asked of: it is read from
/// the new one, and nothing counts as lost.
pub fn a_map_node_is_read_where_its_column_went() {
    let world = World::new(3, false);
    world.create_of_width(Level::Raid10 { copies: 2 }, 2, ZONE, 8 << 20);
    let p = world.start(20);
    // Several leaves: a rebuild reads them at once.
    (0..8).for_each(|leaf| p.write(leaf * 256, 7, 64).unwrap());
    p.close();
    let looked = world.fork();
    let q = looked.start(21);
    let node = q.rt.block_on(q.v().locate(0)).unwrap().map.remove(0);
    q.kill(21);
    let p = world.start(22);
    let places: Vec<_> = node.columns.into_iter().flatten().collect();
    let of_node = places.clone();
    world.on_ops(move |disk, op, _| {
        let asked = of_node.iter().any(|(m, at)| usize::from(m.0) == disk && *at == op.at && op.blocks.0 == 1);
        if asked && op.kind == OpKind::Read { Verdict::DelayNs(800_000_000) } else { Verdict::Proceed }
    });
    let v = p.v();
    let read = p.rt.spawn(async move { v.read(0, 64 * BLOCK).await });
    p.wait(Duration::from_millis(100));
    for (member, _) in places {
        let array = p.array();
        p.run(async move {
            array.drive_fail(member).await.unwrap();
            array.rebuild_done().await;
        });
    }
    p.rt.block_on(read).unwrap();
    assert!(p.is(0, 7, 64));
}

/// What is overwritten everywhere leaves little room that is free and much that is not: the place that a rebuild was promised
/// has to be made. It is, whether hosts go on writing or not, and they can go on.
pub fn an_array_that_was_overwritten_makes_room_for_its_rebuild() {
    for hosts in [false, true] {
        let world = World::new(8, false);
        world.create_of_width(Level::Raid5, 7, 64, 8 << 20);
        let p = world.start(1);
        let blocks = p.array().status().usable_bytes * 9 / 10 / BLOCK / 8 * 8;
        p.rt.block_on(p.array().volume_create("full", blocks * BLOCK)).unwrap();
        let v = p.array().volume("full").unwrap();
        let mut dice = Xoshiro256PlusPlus::seed_from_u64(3);
        let tags: Rc<RefCell<Vec<u8>>> = Rc::new(RefCell::new(vec![0; (blocks / 8) as usize]));
        for i in 0..blocks / 8 * 4 {
            // All of it once, then here and there.
            let at = if i < blocks / 8 { i } else { dice.random_range(0..blocks / 8) };
            p.rt.block_on(v.write(at * 8 * BLOCK, data(i as u8, 8), false)).unwrap();
            tags.borrow_mut()[at as usize] = i as u8;
        }
        p.rt.block_on(p.array().rebuild_rate(Rate::High)).unwrap();
        p.rt.block_on(p.array().drive_fail(MemberId(0))).unwrap();
        let over = Rc::new(Cell::new(false));
        let writers: Vec<_> = (0..if hosts { 16 } else { 0 })
            .map(|i| {
                let (v, tags, over) = (v.clone(), tags.clone(), over.clone());
                let mut dice = Xoshiro256PlusPlus::seed_from_u64(i);
                p.rt.spawn(async move {
                    let mut written = 0;
                    while !over.get() {
                        // A tenth of it, each its own.
                        let at = dice.random_range(0..blocks / 80 / 16) * 16 + i;
                        v.write(at * 8 * BLOCK, data(written as u8, 8), false).await.unwrap();
                        tags.borrow_mut()[at as usize] = written as u8;
                        written += 1;
                    }
                    written
                })
            })
            .collect();
        let mut waited = 0;
        let is_whole =
            |status: &ArrayView| status.events.iter().any(|e| e.text == "the rebuild is done: redundancy is full");
        while !is_whole(&p.array().status()) {
            let status = p.array().status();
            assert!(waited < 300, "hosts {hosts}: {:#?} {:#?} {}", status.rebuild, status.events, status.segments_free);
            p.wait(Duration::from_millis(100));
            waited += 1;
        }
        over.set(true);
        let written: u64 = writers.into_iter().map(|w| p.rt.block_on(w)).sum();
        println!("hosts {hosts}: whole after {waited}00 ms, {written} written");
        assert!(!hosts || written > waited * 10, "hosts wrote {written}");
        world.disks[3].detach();
        for (at, tag) in tags.borrow().iter().enumerate() {
            let parts = p.rt.block_on(v.read(at as u64 * 8 * BLOCK, 8 * BLOCK)).unwrap();
            assert!(parts.iter().flat_map(|part| part.iter()).all(|b| b == tag), "{at}");
        }
    }
}

/// A rebuild that has no free space goes on by itself when there is some: until then it is told that it waits, and for what.
pub fn a_rebuild_without_room_is_told() {
    let world = World::new(6, false);
    world.create_of_width(Level::Raid5, 4, 64, 8 << 20);
    let p = world.start(1);
    let blocks = p.array().status().usable_bytes * 95 / 100 / BLOCK / 8 * 8;
    p.rt.block_on(p.array().volume_create("full", blocks * BLOCK)).unwrap();
    let v = p.array().volume("full").unwrap();
    for at in 0..blocks / 8 {
        p.rt.block_on(v.write(at * 8 * BLOCK, data(at as u8, 8), false)).unwrap();
    }
    p.rt.block_on(p.array().rebuild_rate(Rate::High)).unwrap();
    let mut jobs = vec![];
    for lost in 0..3 {
        p.rt.block_on(p.array().drive_fail(MemberId(lost))).unwrap();
        p.wait(Duration::from_secs(30));
        let status = p.array().status();
        jobs = JobView::of(&status).into_iter().filter(|job| job.kind == JobKind::Rebuild).collect();
        if !jobs.is_empty() {
            let waits = status.rebuild.as_ref().and_then(|rebuild| rebuild.waits.as_ref());
            assert!(waits.is_some_and(|why| why.contains("no free space")), "{:#?}", status.rebuild);
            break;
        }
        assert_eq!(status.state, ArrayState::Rebuilt, "{:#?}", status.events);
    }
    let [job] = &jobs[..] else { panic!("no loss was too much: {:#?}", p.array().status().events) };
    assert_eq!((job.state, job.rate, job.eta_seconds), (JobState::Waiting, None, None), "{job:?}");
    p.wait(Duration::from_secs(10));
    assert_eq!(JobView::of(&p.array().status()).first().map(|job| job.id.clone()), Some(job.id.clone()), "it stays");
    // Room comes: it goes on, and ends.
    p.rt.block_on(v.deallocate(0, blocks / 2 * BLOCK, false)).unwrap();
    p.wait(Duration::from_secs(60));
    let status = p.array().status();
    assert!(status.rebuild.is_none() && status.state == ArrayState::Rebuilt, "{:#?}", status.events);
}

/// What the cleaner went through on its own, while a rebuild was under way, is given back or rebuilt like the rest, also when
/// nobody writes any more.
pub fn what_the_cleaner_emptied_beside_a_rebuild_is_not_forgotten() {
    const ROUNDS: u64 = 12;
    for seed in 0..6 {
        let world = World::new(4, false);
        world.create_of_width(Level::Raid6, 4, 64, 1 << 20);
        let p = world.start(seed);
        let pieces = p.array().status().usable_bytes * 9 / 10 / BLOCK / 8;
        p.rt.block_on(p.array().volume_create("full", pieces * 8 * BLOCK)).unwrap();
        let v = p.array().volume("full").unwrap();
        for at in 0..pieces {
            p.rt.block_on(v.write(at * 8 * BLOCK, data(1, 8), false)).unwrap();
        }
        for round in 0..ROUNDS {
            let over = Rc::new(Cell::new(false));
            let writers = (0..16).map(|i| {
                let (v, over) = (v.clone(), over.clone());
                let mut dice = Xoshiro256PlusPlus::seed_from_u64((seed * ROUNDS + round) * 16 + i);
                p.rt.spawn(async move {
                    while !over.get() {
                        let at = dice.random_range(0..pieces);
                        v.write(at * 8 * BLOCK, data(2, 8), false).await.unwrap();
                    }
                })
            });
            let writers: Vec<_> = writers.collect();
            // The first time until the cleaner is at work.
            p.wait(Duration::from_millis(if round == 0 { 300 } else { 50 }));
            let failed = p.array().status().members.iter().find(|m| m.state == SeatState::In).unwrap().member;
            p.rt.block_on(p.array().drive_fail(MemberId(failed))).unwrap();
            replace(&p, failed, &fresh(&world, &format!("new{round}")));
            p.wait(Duration::from_millis(1 + round % 4));
            over.set(true);
            writers.into_iter().for_each(|w| p.rt.block_on(w));
            let optimal = (0..20).any(|_| {
                p.wait(Duration::from_secs(1));
                p.array().state() == ArrayState::Optimal
            });
            assert!(optimal, "seed {seed}, round {round}: {:#?}", p.array().status().events);
        }
    }
}
