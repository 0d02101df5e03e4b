//! Arrays in parts: what is asked of all of them.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use array::whole::{self, Part, way};
use array::{Array, ArrayState, CreateSpec, OpenHow, Refused, RefusedCode, ScrubKind, SeatState, Whole};
use base::MemberId;
use ondisk::Level;
use rt::model::{Disk, DiskParams, OpKind, Verdict};
use rt::{Drive, Rt};

use super::world::{World, ZONE, data};

const PARTS: u8 = 3;
const MIB: u64 = 1 << 20;

/// An array in three parts over four drives, with volumes "old" and "last".
fn world() -> World {
    let world = World::of(4, DiskParams { bytes: 144 << 20, ..DiskParams::default() });
    let rt = Rt::modelled(1);
    let spec =
        CreateSpec { name: "a".into(), level: Level::Raid5, width: Some(4), zone_blocks: Some(ZONE), force: false };
    rt.block_on(async {
        let parts = whole::create(&rt, World::drives(&rt, &world.disks), &spec, PARTS).await.unwrap();
        let array = joined(&rt, parts, false).await.unwrap();
        array.volume_create("old", 6 * MIB).await.unwrap();
        array.volume_create("last", MIB).await.unwrap();
        array.close().await.unwrap();
    });
    rt.end();
    world
}

/// All parts here, or all but the first behind letters.
async fn joined(rt: &Rt, parts: Vec<Array>, by_letters: bool) -> Result<Whole, Refused> {
    let mut parts = parts.into_iter();
    let first = parts.next().unwrap();
    let other = |array: Array| {
        if !by_letters {
            return Part::Here(array);
        }
        let (end, part) = way(rt);
        let of = rt.clone();
        rt.spawn(async move { end.serve(&of, array).await }).detach();
        part
    };
    Whole::of(first, parts.map(other).collect()).await
}

async fn open(rt: &Rt, world: &World, by_letters: bool) -> Result<Whole, Refused> {
    let parts = whole::open(rt, World::drives(rt, &world.disks), OpenHow::default()).await?;
    joined(rt, parts, by_letters).await
}

/// Volumes of part 0 by identity, and of each of the others by name: their sizes.
async fn volumes(array: &Whole) -> Vec<BTreeMap<String, u64>> {
    let live = |array: Array| array.volumes().into_iter().filter(|v| v.state == "live");
    let mut all = vec![live(array.first().clone()).map(|v| (v.uuid.to_string(), v.bytes)).collect()];
    for part in array.others() {
        all.push(part.ask(move |array| async move { live(array).map(|v| (v.name, v.bytes)).collect() }).await.unwrap());
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
    for by_letters in [false, true] {
        for writes in (0..).step_by(if by_letters { 3 } else { 1 }) {
            let world = before.fork();
            let done = Rc::new(Cell::new(0));
            let rt = Rt::modelled(20 + writes);
            let array = rt.block_on(open(&rt, &world, by_letters)).unwrap();
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
                let array = open(&rt, &world, by_letters).await.unwrap();
                let all = volumes(&array).await;
                let names = |v: &BTreeMap<String, u64>| v.keys().cloned().collect::<Vec<_>>();
                for other in &all[1..] {
                    assert_eq!(names(other), names(&all[0]), "after {writes} writes");
                    let small = all[0].iter().find(|(name, bytes)| other[*name] < **bytes);
                    assert_eq!(small, None, "after {writes} writes");
                }
                let status = array.status().await.unwrap();
                let size =
                    |name: &str| status.volumes.iter().find(|v| v.name == name && v.state == "live").map(|v| v.bytes);
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
        let old = status.volumes.iter().find(|v| v.name == "old").unwrap();
        assert_eq!((old.bytes, old.writes, old.bytes_written), (6 * MIB, 2, 5 * 4096));
        assert_eq!((status.volumes.len(), status.members.len()), (2, 4));
        assert_eq!(status.raw_bytes, 4 * (144 << 20));
        assert_eq!(status.members[0].bytes, 144 << 20);
        assert_eq!(status.written.host_bytes, 5 * 4096);
        assert_eq!(status.provisioned_bytes, 9 * MIB);
        assert_eq!(array.iostat().await.unwrap().members.len(), 4);

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
        assert_eq!(array.status().await.unwrap().state, array::ArrayState::Closed);
    });
    rt.end();
}

/// A part that lacks what the first has is no part of this history: nothing is opened for writing, and nothing deleted.
pub fn a_part_that_lacks_a_volume_is_refused() {
    let world = world();
    let rt = Rt::modelled(3);
    rt.block_on(async {
        let parts = whole::open(&rt, World::drives(&rt, &world.disks), OpenHow::default()).await.unwrap();
        let tag = parts[0].volume("old").unwrap().uuid().to_string();
        parts[2].volume_delete(&tag).await.unwrap();
        let refused = joined(&rt, parts, false).await.err().unwrap();
        assert_eq!(refused.code, RefusedCode::Damaged);
        assert!(refused.what.contains("part 3") && refused.why.contains("\"old\""), "{refused}");
    });
    rt.end();
}

/// Bytes of tag `tag` in a volume of a part.
async fn put(part: &Part, volume: String, tag: u8) {
    let write = move |array: Array| async move { array.volume(&volume).unwrap().write(0, data(tag, 100), true).await };
    part.ask(write).await.unwrap().unwrap();
}

async fn is(part: &Part, volume: String, tag: u8) -> bool {
    let read = move |array: Array| async move {
        let read = array.volume(&volume).unwrap().read(0, 100 * 4096).await.unwrap();
        read.iter().all(|bytes| bytes.iter().all(|byte| *byte == tag))
    };
    part.ask(read).await.unwrap()
}

/// The parts of "old", and what it is called there.
fn places(array: &Whole) -> Vec<(Part, String)> {
    let tag = array.first().volume("old").unwrap().uuid().to_string();
    let others = array.others().iter().map(|part| (part.clone(), tag.clone()));
    std::iter::once((Part::Here(array.first().clone()), "old".to_owned())).chain(others).collect()
}

/// The members of each part: the names of those that are in.
async fn members(array: &Whole) -> Vec<Vec<String>> {
    let mut all = vec![];
    for (part, _) in places(array) {
        let here = part.ask(|array| async move { array.status().members }).await.unwrap();
        let mut names: Vec<_> = here.into_iter().filter(|m| m.state == SeatState::In).map(|m| m.drive_name).collect();
        names.sort();
        all.push(names);
    }
    all
}

fn fresh(world: &World, name: &str) -> Disk {
    Disk::new(name, world.disks[0].params(), 99)
}

/// A drive fails, is replaced, joins and leaves in all parts; then any other may go.
pub fn drives_are_the_same_in_all_parts() {
    let world = world();
    let rt = Rt::modelled(4);
    let disks: Vec<Disk> = ["e0", "e1"].map(|name| fresh(&world, name)).into();
    let (first, second) = (disks[0].clone(), disks[1].clone());
    rt.block_on(async {
        let array = open(&rt, &world, false).await.unwrap();
        for (part, volume) in places(&array) {
            put(&part, volume, 7).await;
        }
        array.drive_fail(MemberId(1)).await.unwrap();
        assert_eq!(members(&array).await, vec![vec!["d0", "d2", "d3"]; 3]);
        assert_eq!(array.status().await.unwrap().state, ArrayState::Degraded);
        // One part is short of a drive more: nothing is done in any.
        let refused = array.drive_fail(MemberId(2)).await.unwrap_err();
        assert_eq!((refused.code, members(&array).await[2].len()), (RefusedCode::Redundancy, 3));
        array.drive_replace(MemberId(1), Drive::modelled(&rt, &first), false).await.unwrap();
        array.rebuild_done().await.unwrap();
        assert_eq!(members(&array).await, vec![vec!["d0", "d2", "d3", "e0"]; 3]);
        let status = array.status().await.unwrap();
        assert_eq!(status.state, ArrayState::Optimal, "{:?}", status.events);
        let again = array.drive_grow(Drive::modelled(&rt, &first), true).await.unwrap_err();
        assert_eq!(again.code, RefusedCode::InUse);

        array.drive_grow(Drive::modelled(&rt, &second), false).await.unwrap();
        let seat = |status: &array::Status, name: &str| {
            MemberId(status.members.iter().find(|m| m.drive_name == name && m.state == SeatState::In).unwrap().seat)
        };
        let leaves = seat(&array.status().await.unwrap(), "d0");
        array.drive_retire(leaves).await.unwrap();
        assert!(array.drive_left(leaves).await.unwrap());
        assert_eq!(members(&array).await, vec![vec!["d2", "d3", "e0", "e1"]; 3]);
        world.disks[2].detach();
        for (part, volume) in places(&array) {
            assert!(is(&part, volume, 7).await);
        }
        assert_eq!(array.status().await.unwrap().members.iter().filter(|m| m.bytes != 144 << 20).count(), 0);
    });
    rt.end();
}

/// A drive that could join some parts only takes part there; the same command again lets it join the others.
pub fn a_join_that_stopped_half_way_is_finished_by_the_same_command() {
    let before = world();
    let mut stopped = 0;
    for writes in 0.. {
        let world = before.fork();
        let new = fresh(&world, "e0");
        let rt = Rt::modelled(30 + writes);
        rt.block_on(async {
            let array = open(&rt, &world, false).await.unwrap();
            for (part, volume) in places(&array) {
                put(&part, volume, 7).await;
            }
            let left = Rc::new(Cell::new(writes));
            new.on_op(Some(Box::new(move |op| match (op.kind, left.get()) {
                (OpKind::Write, 0) => Verdict::Fail(rt::IoError::Medium),
                (OpKind::Write, some) => {
                    left.set(some - 1);
                    Verdict::Proceed
                }
                (OpKind::Read | OpKind::Flush | OpKind::Deallocate, _) => Verdict::Proceed,
            })));
            array.rebuild_pause(true).await.unwrap();
            let drive = Drive::modelled(&rt, &new);
            let joined = array.drive_replace(MemberId(3), drive.clone(), false).await;
            new.on_op(None);
            let within: Vec<_> = members(&array).await.iter().map(|m| m.contains(&"e0".to_owned())).collect();
            if joined.is_err() && within.contains(&true) && within.contains(&false) {
                stopped += 1;
                array.drive_replace(MemberId(3), drive, false).await.unwrap();
                array.rebuild_pause(false).await.unwrap();
                array.rebuild_done().await.unwrap();
                assert!(array.drive_left(MemberId(3)).await.unwrap());
                assert_eq!(members(&array).await, vec![vec!["d0", "d1", "d2", "e0"]; 3], "after {writes} writes");
            }
            for (part, volume) in places(&array) {
                assert!(is(&part, volume, 7).await);
            }
        });
        rt.end();
        if stopped > 0 && writes > 60 {
            break;
        }
        assert!(writes < 200, "no join stopped half way");
    }
}

/// Parts that lost drives at different times have spares in different places. A new drive takes the place where it is
/// free, and stands by in the others.
pub fn a_replacement_stands_by_where_its_place_is_taken() {
    let world = world();
    let rt = Rt::modelled(9);
    let [spare, new, other] = ["e0", "e1", "e2"].map(|name| fresh(&world, name));
    rt.block_on(async {
        let array = open(&rt, &world, false).await.unwrap();
        for (part, volume) in places(&array) {
            put(&part, volume, 7).await;
        }
        array.drive_add_spare(Drive::modelled(&rt, &spare), false).await.unwrap();
        let parts: Vec<Part> = places(&array).into_iter().map(|(part, _)| part).collect();
        for (part, seat) in [(2, 1), (0, 2)] {
            let fails = move |array: Array| async move { array.drive_fail(MemberId(seat)).await };
            parts[part].ask(fails).await.unwrap().unwrap();
            array.rebuild_done().await.unwrap();
        }
        array.drive_fail(MemberId(1)).await.unwrap();
        array.rebuild_done().await.unwrap();
        assert_eq!(array.status().await.unwrap().state, ArrayState::Degraded);
        let rest = vec!["d0", "d2", "d3", "e0"];
        assert_eq!(members(&array).await, [vec!["d0", "d3", "e0"], rest.clone(), rest.clone()]);

        array.drive_replace(MemberId(1), Drive::modelled(&rt, &new), false).await.unwrap();
        array.rebuild_done().await.unwrap();
        assert_eq!(members(&array).await, [vec!["d0", "d3", "e0", "e1"], rest.clone(), rest]);
        assert_eq!(array.status().await.unwrap().state, ArrayState::Optimal);
        let again = array.drive_replace(MemberId(1), Drive::modelled(&rt, &new), true).await.unwrap_err();
        assert_eq!(again.code, RefusedCode::InUse);
        // Nobody lacks it: nothing is done in any part.
        array.drive_replace(MemberId(1), Drive::modelled(&rt, &other), false).await.unwrap_err();
        assert!(
            places(&array).len() == 3 && array.status().await.unwrap().members.iter().all(|m| m.drive_name != "e2")
        );

        world.disks[3].detach();
        for (part, volume) in places(&array) {
            assert!(is(&part, volume, 7).await);
        }
        put(&parts[1], places(&array)[1].1.clone(), 8).await;
        array.rebuild_done().await.unwrap();
        assert!(members(&array).await[1].contains(&"e1".to_owned()), "it stood by");
    });
    rt.end();
}

/// A spare that has taken a place in one part, and went out there, is replaced there.
pub fn a_spare_that_went_out_in_a_part_is_replaced() {
    let world = world();
    let rt = Rt::modelled(13);
    let [spare, new] = ["e0", "e1"].map(|name| Drive::modelled(&rt, &fresh(&world, name)));
    rt.block_on(async {
        let array = open(&rt, &world, false).await.unwrap();
        array.drive_add_spare(spare, false).await.unwrap();
        for seat in [1, 4] {
            let fails = move |array: Array| async move { array.drive_fail(MemberId(seat)).await };
            array.others()[1].ask(fails).await.unwrap().unwrap();
            array.rebuild_done().await.unwrap();
        }
        assert_eq!(array.status().await.unwrap().state, ArrayState::Degraded);
        array.drive_replace(MemberId(4), new, false).await.unwrap();
        array.rebuild_done().await.unwrap();
        let all = vec!["d0", "d1", "d2", "d3"];
        assert_eq!(members(&array).await, [all.clone(), all, vec!["d0", "d2", "d3", "e1"]]);
    });
    rt.end();
}

/// The number that a user knows a drive by is never another drive's, also when the parts have different drives.
pub fn a_seat_is_one_drive() {
    let world = world();
    let rt = Rt::modelled(10);
    let [copy, more] = ["e0", "e1"].map(|name| Drive::modelled(&rt, &fresh(&world, name)));
    rt.block_on(async {
        let array = open(&rt, &world, false).await.unwrap();
        // In the first part d1 leaves, and another drive gets its seat.
        let first = array.first();
        let part = ondisk::PartOf { index: 0, of: PARTS };
        first.drive_replace(MemberId(1), whole::slice_of(&copy, part).unwrap(), false).await.unwrap();
        first.rebuild_done().await;
        assert!(first.drive_left(MemberId(1)).await);
        first.drive_grow(whole::slice_of(&more, part).unwrap(), false).await.unwrap();
        let own = first.status().members.into_iter().find(|m| m.drive_name == "e1").unwrap();
        assert_eq!(own.seat, 1);
        let status = array.status().await.unwrap();
        let mut seats: Vec<u16> = status.members.iter().map(|m| m.seat).collect();
        seats.sort_unstable();
        seats.dedup();
        assert_eq!((seats.len(), status.members.len()), (6, 6));
        let line = status.members.iter().find(|m| m.drive_name == "d1").unwrap();
        array.drive_fail(MemberId(line.seat)).await.unwrap();
        let rest = vec!["d0", "d2", "d3"];
        assert_eq!(members(&array).await, [vec!["d0", "d2", "d3", "e0", "e1"], rest.clone(), rest]);
        let nobody = array.drive_fail(MemberId(4000)).await.unwrap_err();
        assert_eq!(nobody.code, RefusedCode::NotFound);
    });
    rt.end();
}

/// A drive that has left the first part leaves the others after a crash, also when its label there was not wiped.
pub fn who_has_left_the_first_part_leaves() {
    let world = world();
    let more = fresh(&world, "d4");
    let disks = [world.disks.clone(), vec![more.clone()]].concat();
    let rt = Rt::modelled(11);
    rt.block_on(async {
        let array = open(&rt, &world, false).await.unwrap();
        array.drive_grow(Drive::modelled(&rt, &more), false).await.unwrap();
        let slot = MemberId(4);
        let label = more.image_read(base::MemberLba(0), base::BlockCount(1));
        array.first().drive_retire(slot).await.unwrap();
        assert!(array.first().drive_left(slot).await);
        array.close().await.unwrap();
        more.image_write(base::MemberLba(0), &label);
    });
    rt.end();
    let rt = Rt::modelled(12);
    rt.block_on(async {
        let drives = World::drives(&rt, &disks);
        let parts = whole::open(&rt, drives.clone(), OpenHow::default()).await.unwrap();
        let array = joined(&rt, parts, false).await.unwrap();
        assert_eq!(array.finish(&drives).await.unwrap(), Vec::<String>::new());
        for lines in settled(&rt, &array).await {
            assert!(lines.iter().all(|(name, _)| name != "d4"), "{lines:?}");
        }
    });
    rt.end();
}

/// What is done to a drive while the power fails.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Deed {
    Fail,
    /// In the place of one that is out.
    Replace,
    /// In the place of one that is in: a copy.
    TakeOver,
    Grow,
    Spare,
    Retire,
}

async fn done(deed: Deed, array: Whole, new: Drive) -> Result<(), Refused> {
    match deed {
        Deed::Fail => array.drive_fail(MemberId(1)).await,
        Deed::Replace | Deed::TakeOver => array.drive_replace(MemberId(1), new, false).await,
        Deed::Grow => array.drive_grow(new, false).await,
        Deed::Spare => array.drive_add_spare(new, false).await,
        Deed::Retire => array.drive_retire(MemberId(1)).await,
    }
}

/// Those of the disks that carry a slice of the array.
async fn labelled(rt: &Rt, disks: &[Disk]) -> Vec<Drive> {
    let mut drives = vec![];
    for drive in World::drives(rt, disks) {
        let own = match array::identify(&drive).await.unwrap() {
            Some(_) => true,
            None => array::has_slice_of(&drive, base::ArrayUuid(ARRAY.get().unwrap())).await,
        };
        drives.extend(own.then_some(drive));
    }
    drives
}

thread_local! {
    static ARRAY: Cell<Option<uuid::Uuid>> = const { Cell::new(None) };
}

/// What each part says of every drive: its name and how it is.
async fn lines(array: &Whole) -> Vec<Vec<(String, SeatState)>> {
    let mut all = vec![];
    for (part, _) in places(array) {
        let members = part.ask(|array| async move { array.status().members }).await.unwrap();
        let mut lines: Vec<_> = members.into_iter().map(|m| (m.drive_name, m.state)).collect();
        lines.sort_by(|a, b| a.0.cmp(&b.0));
        all.push(lines);
    }
    all
}

/// Those that take part, or may.
fn here(lines: &[(String, SeatState)]) -> Vec<(String, SeatState)> {
    lines.iter().filter(|(_, s)| matches!(s, SeatState::In | SeatState::Spare)).cloned().collect()
}

/// [`lines`], once nobody is leaving any more.
async fn settled(rt: &Rt, array: &Whole) -> Vec<Vec<(String, SeatState)>> {
    for _ in 0..600 {
        array.rebuild_done().await.unwrap();
        let all = lines(array).await;
        if all.iter().flatten().all(|(_, state)| *state != SeatState::Leaving) {
            return all;
        }
        rt.sleep(Duration::from_millis(100)).await;
    }
    panic!("a drive is leaving for a minute");
}

/// Whatever write the power fails at while a drive fails, is replaced, joins or leaves: after the next open it is the same
/// in all parts, and what was answered is so.
pub fn what_a_crash_stopped_between_parts_is_finished() {
    let before = world();
    let prepared = |deed| {
        let world = before.fork();
        let rt = Rt::modelled(6);
        rt.block_on(async {
            let array = open(&rt, &world, false).await.unwrap();
            ARRAY.set(Some(array.first().uuid()));
            for (part, volume) in places(&array) {
                put(&part, volume, 7).await;
            }
            match deed {
                Deed::Replace => array.drive_fail(MemberId(1)).await.unwrap(),
                Deed::Retire => {
                    let more = fresh(&world, "d4");
                    array.drive_grow(Drive::modelled(&rt, &more), false).await.unwrap();
                    array.close().await.unwrap();
                    return Some(more);
                }
                Deed::Fail | Deed::TakeOver | Deed::Grow | Deed::Spare => {}
            }
            array.close().await.unwrap();
            None
        })
        .map_or(world.fork(), |more| World { disks: [world.disks.clone(), vec![more]].concat() })
    };
    for deed in [Deed::Fail, Deed::Replace, Deed::TakeOver, Deed::Grow, Deed::Spare, Deed::Retire] {
        let before = prepared(deed);
        let mut unlike = 0;
        for writes in 0.. {
            let world = before.fork();
            let new = fresh(&world, "e0");
            let disks = [world.disks.clone(), vec![new.clone()]].concat();
            let rt = Rt::modelled(40 + writes);
            let answered = rt.block_on(async {
                let array = joined(
                    &rt,
                    whole::open(&rt, labelled(&rt, &disks).await, OpenHow::default()).await.unwrap(),
                    false,
                );
                let array = array.await.unwrap();
                let left = Rc::new(Cell::new(writes));
                for disk in &disks {
                    let left = left.clone();
                    disk.on_op(Some(Box::new(move |op| match (op.kind, left.get()) {
                        (OpKind::Write | OpKind::Flush, 0) => Verdict::Hang,
                        (OpKind::Write, some) => {
                            left.set(some - 1);
                            Verdict::Proceed
                        }
                        (OpKind::Read | OpKind::Flush | OpKind::Deallocate, _) => Verdict::Proceed,
                    })));
                }
                let answered = Rc::new(Cell::new(false));
                let told = answered.clone();
                let work = done(deed, array, Drive::modelled(&rt, &new));
                rt.spawn(async move { told.set(work.await.is_ok()) }).detach();
                rt.sleep(Duration::from_millis(300)).await;
                answered.get().then(|| left.get() > 0)
            });
            rt.end();
            disks.iter().for_each(|disk| {
                disk.on_op(None);
                disk.power_cut(writes);
            });

            let rt = Rt::modelled(7000 + writes);
            rt.block_on(async {
                let drives = labelled(&rt, &disks).await;
                let parts = whole::open(&rt, drives.clone(), OpenHow { degraded: true, ..OpenHow::default() });
                let array = joined(&rt, parts.await.unwrap(), false).await.unwrap();
                let known = lines(&array).await;
                unlike += u32::from(known.iter().any(|lines| here(lines) != here(&known[0])));
                assert_eq!(
                    array.finish(&drives).await.unwrap(),
                    Vec::<String>::new(),
                    "{deed:?} after {writes} writes"
                );
                let all = settled(&rt, &array).await;
                for lines in &all {
                    assert_eq!(here(lines), here(&all[0]), "{deed:?} after {writes} writes: {all:?}");
                }
                if answered.is_some() {
                    let has = |name: &str| here(&all[0]).iter().any(|(n, _)| n == name);
                    let gone = matches!(deed, Deed::Fail | Deed::Replace | Deed::TakeOver | Deed::Retire);
                    let came = !matches!(deed, Deed::Fail | Deed::Retire);
                    assert_eq!((has("d1"), has("e0")), (!gone, came), "{deed:?} after {writes} writes: {all:?}");
                }
                for (part, volume) in places(&array) {
                    assert!(is(&part, volume, 7).await, "{deed:?} after {writes} writes");
                }
                array.close().await.unwrap();
            });
            rt.end();
            if answered == Some(true) {
                break;
            }
            assert!(writes < 2000, "{deed:?} never ends");
        }
        assert!(unlike > 0, "{deed:?}: the parts were never unlike");
    }
}

/// A drive that goes out in one part goes out in the others, but not beyond their redundancy; what was out before is
/// left alone.
pub fn a_loss_is_shared_by_all_parts() {
    let world = world();
    let rt = Rt::modelled(8);
    rt.block_on(async {
        let array = open(&rt, &world, true).await.unwrap();
        for (part, volume) in places(&array) {
            put(&part, volume, 7).await;
        }
        let parts: Vec<Part> = places(&array).into_iter().map(|(part, _)| part).collect();
        let fail = async |part: usize, seat: u16| {
            let fails = move |array: Array| async move { array.drive_fail(MemberId(seat)).await };
            parts[part].ask(fails).await.unwrap().unwrap();
        };
        fail(0, 3).await;
        let mut roster = whole::Roster::default();
        array.share_losses(&mut roster).await.unwrap();
        let all = ["d0", "d1", "d2", "d3"];
        assert_eq!(members(&array).await, [&all[..3], &all[..], &all[..]], "it was out before");
        fail(1, 1).await;
        array.share_losses(&mut roster).await.unwrap();
        let less = vec!["d0", "d2", "d3"];
        assert_eq!(members(&array).await, [all[..3].to_vec(), less.clone(), less.clone()]);
        array.share_losses(&mut roster).await.unwrap();
        assert_eq!(members(&array).await, [all[..3].to_vec(), less.clone(), less]);
        assert_eq!(array.status().await.unwrap().state, ArrayState::Degraded);
    });
    rt.end();
}

/// Files, and parts on threads: a drive joins a part where that is.
pub fn drives_join_parts_on_other_threads() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| {
        let path = dir.path().join(name);
        std::fs::File::create(&path).unwrap().set_len(128 << 20).unwrap();
        path
    };
    let rt = Rt::real().unwrap();
    rt.block_on(async {
        let how = rt::OpenDrive { read_only: false, lock: true };
        let mut drives = vec![];
        for name in ["f0", "f1", "f2"] {
            drives.push(Drive::open(&rt, &file(name), how).await.unwrap());
        }
        let spec =
            CreateSpec { name: "a".into(), level: Level::Raid5, width: Some(3), zone_blocks: Some(ZONE), force: false };
        for array in whole::create(&rt, drives.clone(), &spec, 2).await.unwrap() {
            array.close().await.unwrap();
        }
        let part = |index| ondisk::PartOf { index, of: 2 };
        let slices =
            |index| drives.iter().map(move |drive| whole::slice_of(drive, part(index)).unwrap()).collect::<Vec<_>>();
        let first = Array::open(&rt, slices(0), OpenHow { part: part(0), ..OpenHow::default() }).await.unwrap();
        let sent: Vec<_> = slices(1).iter().map(|slice| slice.to_send().unwrap()).collect();
        let (end, other) = way(&rt);
        #[allow(clippy::disallowed_methods, reason = "a thread is the subject")]
        let thread = std::thread::spawn(move || {
            let rt = Rt::real().unwrap();
            rt.block_on(async {
                let mut slices = vec![];
                for drive in sent {
                    slices.push(drive.arrive(&rt).await);
                }
                let how = OpenHow { part: part(1), ..OpenHow::default() };
                let array = Array::open(&rt, slices, how).await.unwrap();
                end.serve(&rt, array).await;
            });
        });
        let array = Whole::of(first, vec![other]).await.unwrap();
        array.volume_create("old", 4 * MIB).await.unwrap();
        for (part, volume) in places(&array) {
            put(&part, volume, 9).await;
        }
        array.drive_fail(MemberId(0)).await.unwrap();
        let new = Drive::open(&rt, &file("f3"), how).await.unwrap();
        array.drive_replace(MemberId(0), new, false).await.unwrap();
        array.rebuild_done().await.unwrap();
        let status = array.status().await.unwrap();
        assert_eq!(status.state, ArrayState::Optimal, "{:?}", status.events);
        array.drive_fail(MemberId(1)).await.unwrap();
        for (part, volume) in places(&array) {
            assert!(is(&part, volume, 9).await);
        }
        array.close().await.unwrap();
        thread.join().unwrap();
    });
}
