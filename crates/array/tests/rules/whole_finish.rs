//! Arrays in parts: what a crash stops between two of them is finished by the next open.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use api::SeatState;
use array::{OpenHow, Refused, Whole, parts};
use base::MemberId;
use rt::model::{Disk, OpKind, Verdict};
use rt::{Drive, Rt};

use super::whole::{fresh, is, joined, open, places, put, world};
use super::world::World;

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
pub(super) async fn settled(rt: &Rt, array: &Whole) -> Vec<Vec<(String, SeatState)>> {
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
                    parts::open(&rt, labelled(&rt, &disks).await, OpenHow::default()).await.unwrap(),
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
                let parts = parts::open(&rt, drives.clone(), OpenHow { degraded: true, ..OpenHow::default() });
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
