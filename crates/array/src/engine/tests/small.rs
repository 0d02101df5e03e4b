//! Small segments where room is short.

use std::rc::Rc;
use std::time::Duration;

use ondisk::{Level, Scheme};
use rt::model::{Disk, DiskParams};
use rt::{Bytes, Drive, Rt};

use super::super::Array;
use crate::member::seat::Seat;
use crate::space::plan::CreateSpec;
use crate::streams::StreamId;

const BLOCK: usize = 4096;

/// Small segments that hold zones and are not sealed: spares, and those that are open.
fn held(array: &Array) -> (usize, usize) {
    let table = array.rooms.segments().read();
    let small = || table.segments.values().filter(|s| matches!(s.scheme, Scheme::Parity { k: 2, .. }));
    (small().filter(|s| s.is_spare()).count(), small().filter(|s| s.is_open()).count())
}

/// Does `test` with a RAID 5 over six drives that has an open small segment.
fn with_small(test: impl AsyncFnOnce(&Rt, &Array)) {
    let rt = Rt::modelled(1);
    let params = DiskParams { bytes: 48 << 20, ..DiskParams::default() };
    let disks: Vec<Disk> = (0..6).map(|i| Disk::new(&format!("d{i}"), params, i)).collect();
    let drives = disks.iter().map(|d| Drive::modelled(&rt, d)).collect();
    let spec = CreateSpec { name: "a".into(), level: Level::Raid5, width: None, zone_blocks: Some(128), force: false };
    rt.block_on(async {
        let array = Array::create(&rt, drives, &spec).await.unwrap();
        array.volume_create("v", 8 << 20).await.unwrap();
        write(&rt, &array, 0).await;
        let (spares, open) = held(&array);
        assert!(spares > 0 && open == 1, "{spares} spares, {open} open");
        test(&rt, &array).await;
        array.close().await.unwrap();
    });
}

async fn write(rt: &Rt, array: &Array, lba: u64) {
    let v = array.volume("v").unwrap();
    v.write(lba * BLOCK as u64, Bytes::zeroed(BLOCK), false).await.unwrap();
    rt.sleep(Duration::from_millis(100)).await;
}

/// Takes free zones until hosts would wait for room, and waits until a generation says what came of it.
async fn fill(rt: &Rt, array: &Array) -> Vec<(Rc<Seat>, u32)> {
    let room = array.rooms.room();
    let floor = room.rungs().write_floor as i64 * 1000;
    let seats = array.rooms.members().all().to_vec();
    let mut taken = Vec::new();
    while room.room_now() > floor {
        taken.extend(seats.iter().map(|s| (s.clone(), s.take_zone().unwrap())));
        room.measure_room();
    }
    room.room_changed();
    rt.sleep(Duration::from_secs(1)).await;
    taken
}

/// Where hosts would wait for room, small segments give back what they hold; they come back with the room.
#[test]
fn small_segments_give_way() {
    with_small(async |rt, array| {
        let taken = fill(rt, array).await;
        assert_eq!(held(array), (0, 0));
        taken.into_iter().for_each(|(seat, zone)| seat.give_zone(zone));
        array.rooms.room().room_changed();
        for lba in 1..200 {
            write(rt, array, lba).await;
        }
        let (spares, open) = held(array);
        assert!(spares > 0 && open == 1, "{spares} spares, {open} open");
    });
}

/// The last zones make a segment as narrow as a small one: it is for everything, and no generation follows the other.
#[test]
fn the_last_segment_is_not_a_small_one() {
    with_small(async |rt, array| {
        let mut taken = fill(rt, array).await;
        let seats = array.rooms.members().all().to_vec();
        for seat in &seats {
            taken.extend(std::iter::from_fn(|| seat.take_zone()).map(|zone| (seat.clone(), zone)));
        }
        for member in &seats[..3] {
            let at = taken.iter().position(|(seat, _)| Rc::ptr_eq(seat, member)).unwrap();
            let (seat, zone) = taken.swap_remove(at);
            seat.give_zone(zone);
        }
        let room = array.rooms.room();
        let before = array.rooms.segments().read().next;
        while room.take_spare(StreamId::Inner).is_some() {}
        room.room_changed();
        rt.sleep(Duration::from_secs(1)).await;
        let last = room.take_spare(StreamId::Inner);
        assert!(last.is_some_and(|id| array.rooms.segments().read().get(id).scheme.k() == 2), "{last:?}");
        rt.sleep(Duration::from_secs(1)).await;
        let number = array.rooms.system().number();
        rt.sleep(Duration::from_secs(5)).await;
        assert_eq!(array.rooms.system().number(), number, "generations go on and on");
        assert!(array.rooms.segments().read().next <= before + 1, "segments are made and dropped");
        taken.into_iter().for_each(|(seat, zone)| seat.give_zone(zone));
        room.room_changed();
    });
}
