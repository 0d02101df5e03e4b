//! What is left of an array that was closed while a drive was out.

use std::time::Duration;

use array::owner::WATCH;
use array::{Array, OpenHow};
use base::MemberId;
use ondisk::Level;
use rt::model::DiskParams;
use rt::{Drive, Rt};

use super::world::World;

/// The drive that is out carries the owner's mark as it was. Others say that this owner is gone: nobody waits for it, and the
/// next process opens the array at once.
pub fn what_was_released_is_not_waited_for() {
    let params = DiskParams { bytes: 48 << 20, volatile_cache: false, shared: true, ..DiskParams::default() };
    let world = World::of(4, params);
    world.create(Level::Raid5);
    let rt = Rt::modelled(2);
    let drives = || -> Vec<Drive> { World::drives(&rt, &world.disks) };
    rt.block_on(async {
        let array = Array::open(&rt, drives(), OpenHow::default()).await.unwrap();
        array.drive_fail(MemberId(1)).await.unwrap();
        rt.sleep(Duration::from_secs(3)).await;
        array.close().await.unwrap();
        let begun = rt.now();
        let array = Array::open(&rt, drives(), OpenHow::default()).await.unwrap();
        let took = rt.now() - begun;
        assert!(took < WATCH / 2, "it took {took:?}");
        array.close().await.unwrap();
    });
}
