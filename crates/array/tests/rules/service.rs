//! Quality of service: limits of a volume, and shares among volumes.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use array::Volume;
use ondisk::{Level, Limits};

use crate::world::{BLOCK, Process, World, data};

/// Hosts that write and read blocks one after the other; how many requests were answered.
fn hosts(p: &Process<'_>, v: &Volume, depth: u64) -> Rc<Cell<u64>> {
    let answered = Rc::new(Cell::new(0));
    for host in 0..depth {
        let (v, answered) = (v.clone(), answered.clone());
        let work = async move {
            for turn in 0u64.. {
                let at = (host * 16 + turn % 16) * BLOCK;
                let done = if turn % 2 == 0 {
                    v.write(at, data(7, 1), false).await
                } else {
                    v.read(at, BLOCK).await.map(drop)
                };
                if done.is_err() {
                    return;
                }
                answered.set(answered.get() + 1);
            }
        };
        p.rt.spawn(work).detach();
    }
    answered
}

/// A limited volume gets what its limit and its burst say, no more and hardly less, also after a restart; a new limit
/// counts at once.
pub fn a_volume_gets_what_its_limits_say() {
    const MS: Duration = Duration::from_millis(1);
    let world = World::new(3, false);
    world.create(Level::Raid5);
    let p = world.start(80);
    let limits = Limits { iops: 2000, bytes_per_second: 1000 * BLOCK, burst_ms: 10 };
    p.rt.block_on(p.array().volume_limit("v", limits)).unwrap();
    p.kill(80);
    let p = world.start(81);
    p.wait(1000 * MS);
    let answered = hosts(&p, &p.v(), 8);
    p.wait(500 * MS);
    let got = answered.get();
    assert!((450..=520).contains(&got), "{got} requests in half a second at 1000 a second");
    p.rt.block_on(p.array().volume_limit("v", Limits { iops: 100, ..Limits::default() })).unwrap();
    answered.set(0);
    p.wait(500 * MS);
    assert!((45..=60).contains(&answered.get()), "{} requests in half a second at 100 a second", answered.get());
    p.rt.block_on(p.array().volume_limit("v", Limits::default())).unwrap();
    answered.set(0);
    p.wait(500 * MS);
    assert!(answered.get() > 2000, "{} requests without a limit", answered.get());
    assert!(p.array().status().volumes[0].limited > 0);
}

/// Beside a loud volume a quiet one waits little longer than alone, and the loud one goes on.
pub fn a_quiet_volume_is_served_beside_a_loud_one() {
    let world = World::new(5, false);
    world.create(Level::Raid5);
    let p = world.start(82);
    p.rt.block_on(p.array().volume_create("w", 8 << 20)).unwrap();
    let w = p.array().volume("w").unwrap();
    let late = |write: bool| {
        let mut took: Vec<u64> = (0..2000)
            .map(|i| {
                let begun = p.rt.now();
                if write {
                    p.rt.block_on(w.write(i % 100 * BLOCK, data(3, 1), false)).unwrap();
                } else {
                    p.rt.block_on(w.read(i % 100 * BLOCK, BLOCK)).unwrap();
                }
                (p.rt.now() - begun).as_nanos() as u64
            })
            .collect();
        took.sort_unstable();
        took[took.len() * 99 / 100]
    };
    let alone = (late(true), late(false));
    let answered = hosts(&p, &p.v(), 96);
    // It takes some requests to find the bound.
    late(true);
    answered.set(0);
    let beside = (late(true), late(false));
    assert!(beside.0 < 3 * alone.0, "writes: {} ns beside, {} alone", beside.0, alone.0);
    assert!(beside.1 < 2 * alone.1, "reads: {} ns beside, {} alone", beside.1, alone.1);
    assert!(answered.get() > 8000, "the loud one had {} answers beside 4000", answered.get());
}
