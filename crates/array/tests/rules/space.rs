//! Space: what volumes may fill, and what their maps take of it.

use std::cell::Cell;
use std::rc::Rc;

use array::{Fault, Volume};
use ondisk::Level;
use rt::model::DiskParams;

use crate::world::{BLOCK, World, data};

/// Blocks of a leaf.
const LEAF: u64 = 256;

/// Writes one block of each leaf; how many fitted.
async fn fill_thinly(v: Volume, leaves: u64, written: Rc<Cell<u64>>, zeros: bool) -> Fault {
    for leaf in 0..leaves {
        let at = (leaf * LEAF + leaf % LEAF) * BLOCK;
        let done =
            if zeros { v.write_zeroes(at, BLOCK, false, false).await } else { v.write(at, data(7, 1), false).await };
        match done {
            Ok(()) => written.set(written.get() + 1),
            Err(fault) => return fault,
        }
    }
    panic!("all of them fitted");
}

/// A thin volume that is written here and there takes a map node for each block: it is refused when both together fill
/// what there is, long before its blocks alone would. What is there can be overwritten, and given back.
pub fn thin_volumes_are_refused_when_their_map_fills_the_drives() {
    let drives = DiskParams { bytes: 24 << 20, volatile_cache: false, ..DiskParams::default() };
    for (level, zeros) in [(Level::Raid5, false), (Level::Raid0, false), (Level::Raid5, true)] {
        let world = World::of(3, drives);
        let leaves = 1 << 15;
        world.create_with(level, 64, leaves * LEAF * BLOCK);
        let p = world.start(5);
        let usable = p.array().status().usable_bytes / BLOCK;
        let written = Rc::new(Cell::new(0));
        let refused = p.run(fill_thinly(p.v(), leaves, written.clone(), zeros));
        assert_eq!(refused, Fault::NoSpace);
        let n = written.get();
        let share = if zeros { 1 } else { 2 };
        assert!(n * share < usable + usable / 8 && n * 10 > usable, "{n} blocks, {usable} usable");
        let v = p.v();
        p.run(async move {
            for leaf in 0..n {
                v.write((leaf * LEAF + leaf % LEAF) * BLOCK, data(8, 1), false).await.unwrap_or_else(|e| {
                    assert!(zeros && e == Fault::NoSpace, "overwriting block {leaf}: {e}");
                });
            }
            v.deallocate(0, leaves * LEAF * BLOCK, false).await.unwrap();
        });
        p.rt.block_on(p.v().write(0, data(9, 256), false)).unwrap();
        assert!(p.is(0, 9, 256));
    }
}
