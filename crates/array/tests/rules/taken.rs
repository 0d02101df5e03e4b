//! Taking over: what becomes of what the first server had asked for.

use std::time::Duration;

use array::Fault;
use array::owner::FRESH;
use ondisk::Level;

use super::owner::{RESERVE, Server, TAKE, TAKE_RESERVED, shared};
use super::world::data;

/// Who takes reserved drives over waits for no look of the first. A write that they did before is there, also where the first
/// stood still, hears of it after that, and acknowledges it.
pub fn what_landed_before_a_preemption_is_there() {
    let world = shared(true);
    world.create(Level::Raid5);
    let a = Server::open(&world, 1, 0, RESERVE, &[]).unwrap();
    a.pass(Duration::from_millis(100));
    let v = a.v.clone();
    let write = a.rt.spawn(async move { v.write(0, data(3, 1), false).await });
    a.pass(Duration::from_micros(1));
    // It lands while the first stands still.
    world.disks.iter().for_each(|d| d.hurry(0));
    let b = Server::open(&world, 2, 1, TAKE_RESERVED, &[]).unwrap();
    assert!(b.is(0, 3));
    a.rt.stand_still(FRESH / 4);
    assert_eq!(a.rt.block_on(write), Ok(()));
    assert_eq!(a.write(1, 4), Err(Fault::TakenOver));
    assert!(b.is(0, 3) && b.is(1, 0));
    a.has_stopped();
    a.kill(&world);
}

/// A server whose hosts only read is taken over while it runs: once the next one has the array, it answers none of them.
pub fn who_is_taken_over_reads_nothing_old() {
    for (reserve, take) in [(true, TAKE_RESERVED), (false, TAKE)] {
        let world = shared(reserve);
        world.create(Level::Raid5);
        let a = Server::open(&world, 1, 0, RESERVE, &[]).unwrap();
        a.write(0, 1).unwrap();
        a.pass(Duration::from_millis(500));
        let b = Server::open(&world, 2, 1, take, &[&a]).unwrap();
        b.write(0, 2).unwrap();
        assert_eq!(a.rt.block_on(a.v.read(0, 4096)).map(drop), Err(Fault::TakenOver), "it read what is old");
        a.has_stopped();
        a.kill(&world);
    }
}
