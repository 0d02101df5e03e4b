//! Segments that lack a column and that no rebuild makes whole.

use std::time::Duration;

use api::ArrayState;
use base::SegmentId;
use ondisk::Level;
use rt::model::{Disk, DiskParams};
use rt::{Drive, Rt};

use super::super::Array;
use crate::ctx::Wish;
use crate::jobs::rebuild::LOOK_WHILE_PAUSED;
use crate::space::plan::CreateSpec;
use crate::space::segment::Seg;

/// Does `test` with a RAID 5 over four drives, and a spare segment of it that is listed.
fn with_spare(test: impl AsyncFnOnce(&Rt, &Array, SegmentId)) {
    let rt = Rt::modelled(1);
    let params = DiskParams { bytes: 48 << 20, ..DiskParams::default() };
    let disks: Vec<Disk> = (0..4).map(|i| Disk::new(&format!("d{i}"), params, i)).collect();
    let drives = disks.iter().map(|d| Drive::modelled(&rt, d)).collect();
    let spec = CreateSpec { name: "a".into(), level: Level::Raid5, width: None, zone_blocks: Some(128), force: false };
    rt.block_on(async {
        let array = Array::create(&rt, drives, &spec).await.unwrap();
        let rooms = &array.rooms;
        let unused = |s: &&Seg| s.listed && s.is_spare() && !rooms.room().in_use_by_log(s.id);
        let id = rooms.segments().read().segments.values().find(unused).map(|s| s.id).unwrap();
        test(&rt, &array, id).await;
        array.close().await.unwrap();
    });
}

#[test]
fn what_is_empty_is_left_out_while_rebuilds_wait() {
    with_spare(async |rt, array, id| {
        array.rebuild_pause(true).await.unwrap();
        // As one that the cleaner has emptied, and that lost a column before.
        array.rooms.segments().break_for_test(id, true);
        assert_eq!(array.state(), ArrayState::Rebuilding);
        rt.sleep(LOOK_WHILE_PAUSED + Duration::from_secs(1)).await;
        assert_eq!(array.state(), ArrayState::Optimal);
    });
}

#[test]
fn what_the_cleaner_emptied_is_counted_where_a_column_is_lost() {
    with_spare(async |rt, array, _| {
        array.volume_create("v", 1 << 20).await.unwrap();
        let v = array.volume("v").unwrap();
        v.write(0, rt::Bytes::from_slice(&vec![7; 1 << 19]), false).await.unwrap();
        array.checkpoint().await.unwrap();
        let rooms = &array.rooms;
        let holds = |s: &&Seg| s.live > 8 && s.unmerged.is_empty();
        let id = rooms.segments().read().segments.values().find(holds).map(|s| s.id).unwrap();
        rooms.segments().break_for_test(id, true);
        rooms.segments().mark_cleaned(id, rooms.memory().freezes(), false);
        rooms.ctx().wishes.ask(Wish::Rebuild);
        rooms.ctx().changed.wake();
        assert_ne!(array.state(), ArrayState::Optimal);
        rt.sleep(Duration::from_secs(2)).await;
        assert_eq!(array.state(), ArrayState::Optimal, "{:#?}", array.status().events);
    });
}

#[test]
fn a_spare_that_was_dropped_counts_until_a_generation_leaves_it_out() {
    with_spare(async |rt, array, id| {
        array.rooms.segments().break_for_test(id, false);
        array.rooms.room().drop_broken_spares();
        let exposed = || (array.state(), array.status().exposure.may_fail);
        assert_eq!(exposed(), (ArrayState::Rebuilding, 0));
        rt.sleep(Duration::from_secs(2)).await;
        assert_eq!(exposed(), (ArrayState::Optimal, 1));
    });
}

#[test]
fn a_segment_whose_header_is_lost_is_left_out_when_nothing_is_live_in_it() {
    with_spare(async |rt, array, id| {
        let segments = array.rooms.segments();
        segments.break_for_test(id, true);
        segments.mark_header_lost(id);
        array.rooms.ctx().wishes.ask(Wish::Rebuild);
        array.rooms.ctx().changed.wake();
        rt.sleep(Duration::from_secs(2)).await;
        assert_eq!(array.state(), ArrayState::Optimal);
        assert!(!segments.read().segments.contains_key(&id));
    });
}
