//! Small segments where room is short.

use std::time::Duration;

use ondisk::{Level, Scheme};
use rt::model::{Disk, DiskParams};
use rt::{Bytes, Drive, Rt};

use super::super::Array;
use crate::space::plan::CreateSpec;

const BLOCK: usize = 4096;

/// Small segments that hold zones and are not sealed: spares, and those that are open.
fn held(array: &Array) -> (usize, usize) {
    let table = array.rooms.segments().read();
    let small = || table.segments.values().filter(|s| matches!(s.scheme, Scheme::Parity { k: 2, .. }));
    (small().filter(|s| s.is_spare()).count(), small().filter(|s| s.is_open()).count())
}

/// Where hosts would wait for room, small segments give back what they hold; they come back with the room.
#[test]
fn small_segments_give_way() {
    let rt = Rt::modelled(1);
    let params = DiskParams { bytes: 48 << 20, ..DiskParams::default() };
    let disks: Vec<Disk> = (0..6).map(|i| Disk::new(&format!("d{i}"), params, i)).collect();
    let drives = disks.iter().map(|d| Drive::modelled(&rt, d)).collect();
    let spec = CreateSpec { name: "a".into(), level: Level::Raid5, width: None, zone_blocks: Some(128), force: false };
    rt.block_on(async {
        let array = Array::create(&rt, drives, &spec).await.unwrap();
        array.volume_create("v", 8 << 20).await.unwrap();
        let v = array.volume("v").unwrap();
        let write = async |lba: u64| {
            v.write(lba * BLOCK as u64, Bytes::zeroed(BLOCK), false).await.unwrap();
            rt.sleep(Duration::from_millis(100)).await;
        };
        write(0).await;
        let (spares, open) = held(&array);
        assert!(spares > 0 && open == 1, "{spares} spares, {open} open");
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
        assert_eq!(held(&array), (0, 0));
        taken.into_iter().for_each(|(seat, zone)| seat.give_zone(zone));
        room.room_changed();
        for lba in 1..200 {
            write(lba).await;
        }
        let (spares, open) = held(&array);
        assert!(spares > 0 && open == 1, "{spares} spares, {open} open");
        array.close().await.unwrap();
    });
}
