//! Space: what volumes may fill, and what their maps take of it.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use array::{Discard, Fault, Volume};
use ondisk::Level;
use rt::model::{DiskParams, Op, OpKind, Verdict};

use crate::world::{BLOCK, Process, World, data};

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

/// Zones that hosts write again soon are not deallocated; those that nobody needs are, and are not used meanwhile.
pub fn freed_zones_are_deallocated_when_nobody_needs_them() {
    const BLOCKS: u64 = 2048;
    let write_all = |p: &Process<'_>, times: u8, from: u8| {
        for tag in from..from + times {
            for lba in (0..BLOCKS).step_by(64) {
                p.write(lba, tag, 64).unwrap();
            }
        }
    };
    for which in [Discard::Auto, Discard::All, Discard::None] {
        let world = World::of(4, DiskParams { bytes: 24 << 20, volatile_cache: false, ..DiskParams::default() });
        world.create_with(Level::Raid5, 64, BLOCKS * BLOCK);
        let p = world.start(5);
        p.array().set_discard(which);
        let deallocated = || world.disks.iter().map(|d| d.counters().deallocates).sum::<u64>();
        write_all(&p, 12, 1);
        p.wait(Duration::from_secs(2));
        match which {
            Discard::All => assert!(deallocated() > 50, "{}", deallocated()),
            Discard::Auto | Discard::None => assert_eq!(deallocated(), 0, "{which:?}"),
        }
        let so_far = deallocated();
        // Slow ones: hosts write everything anew while they are under way.
        let slow = |_, op: &Op, _| match op.kind {
            OpKind::Deallocate => Verdict::DelayNs(3_000_000_000),
            OpKind::Read | OpKind::Write | OpKind::Flush => Verdict::Proceed,
        };
        world.on_ops(slow);
        p.wait(Duration::from_secs(9));
        write_all(&p, 6, 20);
        p.wait(Duration::from_secs(600));
        match which {
            Discard::Auto => assert!(deallocated() >= so_far + 8, "{} after {so_far}", deallocated()),
            Discard::All => assert!(deallocated() > so_far),
            Discard::None => assert_eq!(deallocated(), 0),
        }
        for lba in (0..BLOCKS).step_by(64) {
            assert!(p.is(lba, 25, 64), "block {lba}, {which:?}");
        }
        p.close();
        assert_eq!(world.check().errors, [""; 0]);
    }
}
