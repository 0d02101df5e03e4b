//! An open that was refused, or whose array is closed, keeps no drive.

use std::rc::Rc;
use std::time::Duration;

use ondisk::Level;
use rt::model::{Disk, DiskParams};
use rt::{Drive, Rt};

use super::super::Array;
use crate::space::plan::CreateSpec;

/// Closes an array that was opened while another owner may have had writes under way; whether its first drive is kept.
fn keeps_a_drive() -> bool {
    let rt = Rt::modelled(1);
    let params = DiskParams { bytes: 48 << 20, shared: true, ..DiskParams::default() };
    let disks: Vec<Disk> = (0..4).map(|i| Disk::new(&format!("d{i}"), params, i)).collect();
    let drives = || disks.iter().map(|d| Drive::modelled(&rt, d)).collect();
    let level = Level::Raid5;
    let spec = CreateSpec { name: "a".into(), level, width: None, zone_blocks: Some(128), force: false };
    rt.block_on(async {
        let array = Array::create(&rt, drives(), &spec).await.unwrap();
        // It ends without a word, and nobody knows that it has.
        array.rooms.members().give_up();
        drop(array);
        let array = Array::open(&rt, drives(), crate::OpenHow::default()).await.unwrap();
        let seat = Rc::downgrade(&array.rooms.members().all()[0]);
        array.close().await.unwrap();
        rt.sleep(Duration::from_secs(20)).await;
        seat.strong_count() > 0
    })
}

#[test]
fn what_is_set_aside_keeps_no_drive() {
    assert!(!keeps_a_drive());
}
