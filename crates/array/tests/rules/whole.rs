//! Arrays in parts: what is asked of all of them.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use api::{ScrubKind, SeatState};
use array::parts::{self, Part};
use array::{Array, CreateSpec, OpenHow, Refused, RefusedCode, Whole};
use futures::future::{Either, select};
use ondisk::Level;
use rt::Rt;
use rt::cross::submissions;
use rt::model::{Disk, DiskParams, Op, OpKind, Verdict};

use super::world::{BLOCK, World, ZONE, data};

pub(super) const PARTS: u8 = 3;
pub(super) const MIB: u64 = 1 << 20;

/// An array in three parts over four drives, with volumes "old" and "last".
pub(super) fn world() -> World {
    let world = World::of(4, DiskParams { bytes: 144 << 20, ..DiskParams::default() });
    let rt = Rt::modelled(1);
    let spec =
        CreateSpec { name: "a".into(), level: Level::Raid5, width: Some(4), zone_blocks: Some(ZONE), force: false };
    rt.block_on(async {
        let parts = parts::create(&rt, World::drives(&rt, &world.disks), &spec, PARTS).await.unwrap();
        let array = joined(&rt, parts, false).await.unwrap();
        array.volume_create("old", 6 * MIB).await.unwrap();
        array.volume_create("last", MIB).await.unwrap();
        array.close().await.unwrap();
    });
    rt.end();
    world
}

/// All parts here, or all but the first reached by submissions.
pub(super) async fn joined(rt: &Rt, parts: Vec<Array>, submitted: bool) -> Result<Whole, Refused> {
    let mut parts = parts.into_iter();
    let first = parts.next().unwrap();
    let other = |array: Array| {
        if !submitted {
            return Part::Here(array);
        }
        let (part, end) = submissions(rt);
        let of = rt.clone();
        rt.spawn(async move { end.serve(&of, array).await }).detach();
        Part::There(part)
    };
    Whole::of(first, parts.map(other).collect()).await
}

pub(super) async fn open(rt: &Rt, world: &World, submitted: bool) -> Result<Whole, Refused> {
    let parts = parts::open(rt, World::drives(rt, &world.disks), OpenHow::default()).await?;
    joined(rt, parts, submitted).await
}

/// Volumes of part 0 by identity, and of each of the others by name: their sizes.
async fn volumes(array: &Whole) -> Vec<BTreeMap<String, u64>> {
    let live = |array: Array| array.volumes().into_iter().filter(|v| v.state == api::VolumeState::Live);
    let mut all = vec![live(array.first().clone()).map(|v| (v.uuid.to_string(), v.bytes)).collect()];
    for part in array.others() {
        all.push(
            part.ask(move |array| async move { live(array).map(|v| (v.name.to_string(), v.bytes)).collect() })
                .await
                .unwrap(),
        );
    }
    all
}

/// What a user does, one after the other; how far it came.
async fn verbs(array: Whole, done: Rc<Cell<usize>>) {
    let count = || done.set(done.get() + 1);
    array.volume_create("new", 7 * MIB).await.unwrap();
    count();
    array.volume_grow("old", 10 * MIB).await.unwrap();
    count();
    array.volume_rename("new", "newer").await.unwrap();
    count();
    array.volume_delete("last").await.unwrap();
    count();
}

/// Whatever write the power fails at: what was answered is there, what was not is there wholly or not at all, and after
/// the next open all parts have the same volumes.
pub fn volumes_are_in_all_parts_or_none() {
    let before = world();
    for submitted in [false, true] {
        for writes in (0..).step_by(if submitted { 3 } else { 1 }) {
            let world = before.fork();
            let done = Rc::new(Cell::new(0));
            let rt = Rt::modelled(20 + writes);
            let array = rt.block_on(open(&rt, &world, submitted)).unwrap();
            let left = Rc::new(Cell::new(writes));
            let hang = left.clone();
            world.on_ops(move |_, op, _| match (op.kind, hang.get()) {
                (OpKind::Write, 0) => Verdict::Hang,
                (OpKind::Write, some) => {
                    hang.set(some - 1);
                    Verdict::Proceed
                }
                (OpKind::Flush, 0) => Verdict::Hang,
                (OpKind::Read | OpKind::Flush | OpKind::Deallocate, _) => Verdict::Proceed,
            });
            drop(rt.spawn(verbs(array, done.clone())));
            rt.block_on(rt.sleep(Duration::from_millis(200)));
            let all_done = left.get() > 0;
            assert!(!all_done || done.get() == 4, "of all writes {} were answered", done.get());
            rt.end();
            world.no_hooks();
            world.disks.iter().for_each(|d| d.power_cut(writes));

            let rt = Rt::modelled(5000 + writes);
            rt.block_on(async {
                let array = open(&rt, &world, submitted).await.unwrap();
                let all = volumes(&array).await;
                let names = |v: &BTreeMap<String, u64>| v.keys().cloned().collect::<Vec<_>>();
                for other in &all[1..] {
                    assert_eq!(names(other), names(&all[0]), "after {writes} writes");
                    let small = all[0].iter().find(|(name, bytes)| other[*name] < **bytes);
                    assert_eq!(small, None, "after {writes} writes");
                }
                let status = array.status().await.unwrap();
                let size = |name: &str| {
                    status
                        .volumes
                        .iter()
                        .find(|v| *v.name == *name && v.state == api::VolumeState::Live)
                        .map(|v| v.bytes)
                };
                let (new, old) = (size("new").or(size("newer")), size("old"));
                assert!(new.is_none_or(|bytes| bytes == 9 * MIB), "whole stripes in three parts: {new:?}");
                assert!([Some(6 * MIB), Some(12 * MIB)].contains(&old), "{old:?}");
                let kept = [
                    done.get() < 1 || new.is_some(),
                    done.get() < 2 || old == Some(12 * MIB),
                    done.get() < 3 || size("newer").is_some(),
                    done.get() < 4 || size("last").is_none(),
                ];
                assert_eq!(kept, [true; 4], "{} were answered", done.get());
                array.close().await.unwrap();
            });
            rt.end();
            if all_done {
                break;
            }
        }
    }
}

/// Whenever an array is closed while a volume is made in it: the next open has it in all parts, or in none.
pub fn a_volume_that_a_close_overtakes_is_in_all_parts_or_none() {
    let before = world();
    let mut made = (0, 0);
    for step in 0..120 {
        let world = before.fork();
        let rt = Rt::modelled(100 + step);
        rt.block_on(async {
            let array = open(&rt, &world, false).await.unwrap();
            // The others take longer than the first part's close, or not.
            let behind_first = world.disks[0].params().bytes / BLOCK / u64::from(PARTS);
            let ns = step % 2 * 3_000_000;
            let slow = move |op: &Op| op.kind == OpKind::Write && op.at.0 >= behind_first;
            let verdict = move |op: &Op| if slow(op) { Verdict::DelayNs(ns) } else { Verdict::Proceed };
            world.disks.iter().for_each(|disk| disk.on_op(Some(Box::new(verdict))));
            // Generation after generation: the last one waits for its turn, and so does the one with the new volume.
            let first = array.first().clone();
            let busy = async move {
                let names = ["older", "old"];
                for turn in 0.. {
                    if first.volume_rename(names[(turn + 1) % 2], names[turn % 2]).await.is_err() {
                        return;
                    }
                }
            };
            rt.spawn(busy).detach();
            let whole = array.clone();
            let create = rt.spawn(async move { whole.volume_create("new", 7 * MIB).await });
            rt.sleep(Duration::from_micros(25 * step)).await;
            // The first part has a moment more to wait for than the others, or less.
            let later = array.others()[1].clone();
            array.first().clone().close().await.unwrap();
            drop(create.await);
            later.ask(Array::close).await.unwrap().unwrap();
            array.close().await.unwrap();
        });
        rt.end();
        let rt = Rt::modelled(200 + step);
        rt.block_on(async {
            let array = open(&rt, &world, false).await.unwrap();
            let is_there = array.first().volume("new").is_some();
            made = (made.0 + u32::from(is_there), made.1 + u32::from(!is_there));
            let all = volumes(&array).await;
            assert!(all.iter().all(|part| part.keys().eq(all[0].keys())), "step {step}: {all:?}");
            array.close().await.unwrap();
        });
        rt.end();
    }
    assert!(made.0 > 0 && made.1 > 0, "{made:?}");
}

/// What cannot be is refused before any part has changed; sums are sums.
pub fn parts_are_one_array() {
    let world = world();
    let rt = Rt::modelled(2);
    rt.block_on(async {
        let array = open(&rt, &world, true).await.unwrap();
        let before = volumes(&array).await;
        for (refused, code) in [
            (array.volume_create("old", MIB).await, RefusedCode::Name),
            (array.volume_create("-", MIB).await, RefusedCode::Name),
            (array.volume_create("none", u64::MAX).await, RefusedCode::Size),
            (array.volume_grow("old", 6 * MIB).await, RefusedCode::Size),
            (array.volume_grow("gone", 6 * MIB).await, RefusedCode::NotFound),
            (array.volume_delete("gone").await, RefusedCode::NotFound),
        ] {
            assert_eq!(refused.unwrap_err().code, code);
        }
        assert_eq!(volumes(&array).await, before);
        let second = array.others()[0].clone();
        let tag = array.first().volume("old").unwrap().uuid().to_string();
        let write = |array: Array| async move { array.volume(&tag).unwrap().write(0, data(7, 4), false).await };
        second.ask(write).await.unwrap().unwrap();
        array.first().volume("old").unwrap().write(4096, data(7, 1), true).await.unwrap();
        let status = array.status().await.unwrap();
        let old = status.volumes.iter().find(|v| *v.name == *"old").unwrap();
        assert_eq!((old.bytes, old.writes, old.bytes_written), (6 * MIB, 2, 5 * 4096));
        assert_eq!((status.volumes.len(), status.members.len()), (2, 4));
        assert_eq!(status.raw_bytes, 4 * (144 << 20));
        assert_eq!(status.members[0].bytes, 144 << 20);
        assert_eq!(status.written.host_bytes, 5 * 4096);
        assert_eq!(status.provisioned_bytes, 9 * MIB);
        assert_eq!(array.iostat().await.unwrap().drives.len(), 4);

        // A scrub of all parts is one: it reads them all, ends when the last ends, and is refused while it runs in any.
        second.ask(|array| async move { array.scrub_start(ScrubKind::Media, false) }).await.unwrap().unwrap();
        assert!(array.scrub_start(ScrubKind::Media, true).await.is_err());
        assert!(array.scrub_stop().await.unwrap());
        assert!(!array.scrub_stop().await.unwrap(), "those that had been started were stopped");
        array.scrub_start(ScrubKind::Media, true).await.unwrap();
        array.scrub_done().await.unwrap();
        let last = array.status().await.unwrap().scrub.last.unwrap();
        assert!(last.finished && last.segments_done == last.segments_total && last.segments_total >= 2, "{last:?}");
        array.clone().close().await.unwrap();
        assert_eq!(array.status().await.unwrap().state, api::ArrayState::Closed);
    });
    rt.end();
}

/// A part that lacks what the first has is no part of this history: nothing is opened for writing, and nothing deleted.
pub fn a_part_that_lacks_a_volume_is_refused() {
    let world = world();
    let rt = Rt::modelled(3);
    rt.block_on(async {
        let parts = parts::open(&rt, World::drives(&rt, &world.disks), OpenHow::default()).await.unwrap();
        let tag = parts[0].volume("old").unwrap().uuid().to_string();
        parts[2].volume_delete(&tag).await.unwrap();
        let refused = joined(&rt, parts, false).await.err().unwrap();
        assert_eq!(refused.code, RefusedCode::Damaged);
        assert!(refused.what.contains("part 3") && refused.why.contains("\"old\""), "{refused}");
    });
    rt.end();
}

/// Bytes of tag `tag` in a volume of a part.
pub(super) async fn put(part: &Part, volume: String, tag: u8) {
    let write = move |array: Array| async move { array.volume(&volume).unwrap().write(0, data(tag, 100), true).await };
    part.ask(write).await.unwrap().unwrap();
}

pub(super) async fn is(part: &Part, volume: String, tag: u8) -> bool {
    let read = move |array: Array| async move {
        let read = array.volume(&volume).unwrap().read(0, 100 * 4096).await.unwrap();
        read.iter().all(|bytes| bytes.iter().all(|byte| *byte == tag))
    };
    part.ask(read).await.unwrap()
}

/// The parts of "old", and what it is called there.
pub(super) fn places(array: &Whole) -> Vec<(Part, String)> {
    let tag = array.first().volume("old").unwrap().uuid().to_string();
    let others = array.others().iter().map(|part| (part.clone(), tag.clone()));
    std::iter::once((Part::Here(array.first().clone()), "old".to_owned())).chain(others).collect()
}

/// The members of each part: the names of those that are in.
pub(super) async fn members(array: &Whole) -> Vec<Vec<String>> {
    let mut all = vec![];
    for (part, _) in places(array) {
        let here = part.ask(|array| async move { array.status().members }).await.unwrap();
        let mut names: Vec<_> = here.into_iter().filter(|m| m.state == SeatState::In).map(|m| m.drive_name).collect();
        names.sort();
        all.push(names);
    }
    all
}

pub(super) fn fresh(world: &World, name: &str) -> Disk {
    Disk::new(name, world.disks[0].params(), 99)
}

/// A drive that is gone, and was noticed by one part, is missing in all of them: it comes back in all.
pub fn what_is_missing_in_a_part_is_missing_in_all() {
    let world = world();
    let rt = Rt::modelled(8);
    rt.block_on(async {
        let array = open(&rt, &world, false).await.unwrap();
        for (part, volume) in places(&array) {
            put(&part, volume, 7).await;
        }
        let mut roster = array::parts::Roster::default();
        array.share_losses(&mut roster).await.unwrap();
        world.disks[1].detach();
        // Only the first part has something to do.
        let (part, volume) = places(&array).into_iter().next().unwrap();
        put(&part, volume, 8).await;
        for _ in 0..2 {
            array.share_losses(&mut roster).await.unwrap();
        }
        let out = array.states().await.unwrap();
        assert!(out.iter().all(|s| *s == api::ArrayState::Degraded), "{out:?}");
        world.disks[1].attach();
        for _ in 0..3 {
            let _other_parts_may_be_first = array.drive_back(&rt::Drive::modelled(&rt, &world.disks[1])).await;
            rt.sleep(std::time::Duration::from_secs(20)).await;
        }
        let states = array.states().await.unwrap();
        assert!(states.iter().all(|s| *s == api::ArrayState::Optimal), "{states:?}");
    });
    rt.end();
}

/// All parts have an array's name, also when the power failed between two of them: that of the first counts.
pub fn the_first_part_names_an_array() {
    let before = world();
    let names = async |array: &Whole| {
        let mut names = vec![];
        for (part, _) in places(array) {
            names.push(part.ask(|array| async move { array.name() }).await.unwrap());
        }
        names
    };
    let mut both = BTreeSet::new();
    for writes in (0..).step_by(3) {
        let world = before.fork();
        let rt = Rt::modelled(writes);
        let done = rt.block_on(async {
            let array = open(&rt, &world, false).await.unwrap();
            let left = Rc::new(Cell::new(writes));
            for disk in &world.disks {
                let left = left.clone();
                disk.on_op(Some(Box::new(move |op| match op.kind {
                    OpKind::Write if left.get() == 0 => Verdict::Hang,
                    OpKind::Write => {
                        left.set(left.get() - 1);
                        Verdict::Proceed
                    }
                    OpKind::Read | OpKind::Flush | OpKind::Deallocate => Verdict::Proceed,
                })));
            }
            let rename = pin!(array.rename("b"));
            matches!(select(rename, pin!(rt.sleep(Duration::from_secs(2)))).await, Either::Left((Ok(()), _)))
        });
        rt.end();
        world.disks.iter().for_each(|disk| {
            disk.on_op(None);
            disk.power_cut(writes);
        });
        let rt = Rt::modelled(7);
        rt.block_on(async {
            let array = open(&rt, &world, false).await.unwrap();
            let names = names(&array).await;
            assert!(names.iter().all(|name| *name == names[0]), "{writes} writes: {names:?}");
            assert!(names[0] == "b" || !done);
            both.insert(names[0].clone());
            array.close().await.unwrap();
        });
        rt.end();
        if done {
            break;
        }
    }
    assert_eq!(both.len(), 2);
}
