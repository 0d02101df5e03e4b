//! Small segments: short records that nothing else would fill up go over few columns.

use ondisk::{Level, SegmentState};

use crate::world::World;

/// A lone block is written as one row of three blocks where a row of the array has eight, tolerates what the array tolerates,
/// and survives power cuts; then the segment is gone on with, and no other one stays open.
pub fn a_lone_block_takes_a_small_row() {
    for level in [Level::Raid5, Level::Raid6] {
        let world = World::new(8, true);
        world.create(level);
        let mut last = None;
        for life in 0..4u8 {
            let p = world.start(u64::from(life));
            for lba in 0..40 {
                p.write(u64::from(life) * 40 + lba, life + 1, 1).unwrap();
            }
            p.flush().unwrap();
            p.power_cut(u64::from(life));
            let records = world.records_of(u32::from(life) + 2);
            let lone: Vec<_> =
                records.iter().filter(|h| matches!(h.entries[..], [ondisk::Entry::Data { .. }])).collect();
            assert!(lone.len() > 30, "life {life}: {} of 40 records have one row of three or four blocks", lone.len());
            assert!(lone.iter().all(|h| (h.k, h.rows) == (2, 1)));
            // 40 rows in each life, of 128: the segment is gone on with.
            assert!(last.is_none_or(|id| id == lone[0].segment), "life {life} begins in another one");
            last = lone.last().map(|h| h.segment);
        }
        let p = world.start(5);
        for disk in 0..level.tolerates() {
            world.disks[disk].detach();
        }
        for life in 0..4u8 {
            assert!(p.is(u64::from(life) * 40, life + 1, 40), "life {life}");
        }
        p.write(0, 9, 1).unwrap();
        p.checkpoint();
        let open = world.generation().segments.iter().filter(|s| s.state == SegmentState::Open).count();
        assert!(open <= 4, "{open} segments are open");
    }
}
