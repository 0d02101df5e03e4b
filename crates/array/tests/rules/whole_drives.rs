//! Arrays in parts: a drive is one drive in all of them.

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use api::{ArrayState, SeatState};
use array::parts::{self, Part};
use array::{Array, CreateSpec, OpenHow, RefusedCode, Whole};
use base::{BlockCount, MemberId, MemberLba};
use futures::future::select;
use ondisk::{Label, Level};
use rt::cross::submissions;
use rt::model::{Disk, DiskParams, OpKind, Verdict};
use rt::{Drive, Rt};

use super::whole::{MIB, PARTS, fresh, is, joined, members, open, places, put, world};
use super::whole_finish::settled;
use super::world::{World, ZONE};

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
        let seat = |status: &api::ArrayView, name: &str| {
            MemberId(status.members.iter().find(|m| m.drive_name == name && m.state == SeatState::In).unwrap().member)
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
        assert_eq!(array.status().await.unwrap().state, ArrayState::Rebuilt);
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
        first.drive_replace(MemberId(1), parts::slice_of(&copy, part).unwrap(), false).await.unwrap();
        first.rebuild_done().await;
        assert!(first.drive_left(MemberId(1)).await);
        first.drive_grow(parts::slice_of(&more, part).unwrap(), false).await.unwrap();
        let own = first.status().members.into_iter().find(|m| m.drive_name == "e1").unwrap();
        assert_eq!(own.member, 1);
        let status = array.status().await.unwrap();
        let mut seats: Vec<u16> = status.members.iter().map(|m| m.member).collect();
        seats.sort_unstable();
        seats.dedup();
        assert_eq!((seats.len(), status.members.len()), (6, 6));
        let line = status.members.iter().find(|m| m.drive_name == "d1").unwrap();
        array.drive_fail(MemberId(line.member)).await.unwrap();
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
        let parts = parts::open(&rt, drives.clone(), OpenHow::default()).await.unwrap();
        let array = joined(&rt, parts, false).await.unwrap();
        assert_eq!(array.finish(&drives).await.unwrap(), Vec::<String>::new());
        for lines in settled(&rt, &array).await {
            assert!(lines.iter().all(|(name, _)| name != "d4"), "{lines:?}");
        }
    });
    rt.end();
}

/// A drive leaves the first part, and the process or the power ends while its label there is wiped: the other parts still
/// have it.
pub fn a_wipe_that_ends_half_way_costs_no_other_part() {
    for writes in 0..8 {
        for cut in [None, Some(1), Some(2), Some(3)] {
            let world = world();
            let params = DiskParams { volatile_cache: true, ..world.disks[0].params() };
            let more = Disk::new("d4", params, 99);
            let disks = [world.disks.clone(), vec![more.clone()]].concat();
            let rt = Rt::modelled(11);
            let array = rt.block_on(async {
                let array = open(&rt, &world, false).await.unwrap();
                array.drive_grow(Drive::modelled(&rt, &more), false).await.unwrap();
                array
            });
            let label = Label::decode(&more.image_read(MemberLba(0), BlockCount(1))).unwrap();
            let [first, last, inner] = label.layout.labels();
            let wiped = [first, last, inner, label.layout.slot(0), label.layout.slot(1)];
            let (done, begun) = (Cell::new(0), Rc::new(Cell::new(false)));
            let begins = begun.clone();
            more.on_op(Some(Box::new(move |op| {
                let wipes = op.kind == OpKind::Write && wiped.contains(&op.at);
                // The first is the label away from the ends; generations are written before.
                begins.set(begins.get() || (wipes && op.at == inner));
                done.set(done.get() + u32::from(wipes && begins.get()));
                if done.get() > writes { Verdict::Hang } else { Verdict::Proceed }
            })));
            let first_part = array.first().clone();
            rt.block_on(first_part.drive_retire(MemberId(4))).unwrap();
            rt.block_on(select(pin!(first_part.drive_left(MemberId(4))), pin!(rt.sleep(Duration::from_secs(2)))));
            assert!(begun.get(), "the wipe has not begun");
            drop((first_part, array));
            rt.end();
            more.on_op(None);
            disks.iter().for_each(|d| match cut {
                Some(seed) => d.power_cut(seed),
                None => d.crash(1),
            });
            let rt = Rt::modelled(12);
            rt.block_on(async {
                let parts = parts::open(&rt, World::drives(&rt, &disks), OpenHow::default()).await.unwrap();
                for (part, number) in parts[1..].iter().zip(2..) {
                    let there = part.status().members.iter().any(|m| m.drive_name == "d4" && m.state == SeatState::In);
                    assert!(there, "{writes} writes, cut {cut:?}: part {number}: {:#?}", part.status().members);
                }
            });
            rt.end();
        }
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
        let mut roster = parts::Roster::default();
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
        for array in parts::create(&rt, drives.clone(), &spec, 2).await.unwrap() {
            array.close().await.unwrap();
        }
        let part = |index| ondisk::PartOf { index, of: 2 };
        let slices =
            |index| drives.iter().map(move |drive| parts::slice_of(drive, part(index)).unwrap()).collect::<Vec<_>>();
        let first = Array::open(&rt, slices(0), OpenHow { part: part(0), ..OpenHow::default() }).await.unwrap();
        let sent: Vec<_> = slices(1).iter().map(|slice| slice.to_send().unwrap()).collect();
        let (other, end) = submissions(&rt);
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
        let array = Whole::of(first, vec![Part::There(other)]).await.unwrap();
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
