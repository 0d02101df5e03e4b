//! What is left of an array that was closed while a drive was out, and of one that has no drive any more.

use std::time::Duration;

use api::ArrayState;
use array::owner::WATCH;
use array::{Array, OpenHow, RefusedCode};
use base::MemberId;
use ondisk::Level;
use rt::model::{Disk, DiskParams};
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

/// An array that holds nothing loses nothing with its drives. The last one stays all the same when it is to be failed; and when
/// it is gone, the array is frozen, and nothing is promised that lies nowhere.
pub fn an_empty_array_needs_a_member() {
    let world = World::new(3, false);
    world.create(Level::Raid10 { copies: 3 });
    let p = world.start(1);
    let fail = |seat| p.rt.block_on(p.array().drive_fail(MemberId(seat)));
    fail(0).unwrap();
    fail(1).unwrap();
    assert_eq!(fail(2).unwrap_err().code, RefusedCode::Redundancy);
    world.disks.iter().for_each(Disk::detach);
    let made = p.rt.block_on(p.array().volume_create("w", 1 << 20));
    assert!(made.is_err());
    assert_eq!(p.array().status().state, ArrayState::Frozen);
    p.kill(2);
}
