//! The space ladder: who may take the last segments, and how many no volume may fill.
//!
//! Hosts stop first, deallocations later, the cleaner and the map go on to the last. Two measures of what is left:
//! *segments left* could be given out now; *room* counts also what the cleaner has emptied and the next generation
//! gives back.
//!
//! What the rungs must hold, for an array of S segments filled to the brim and written at random:
//! - a checkpoint that writes the whole map takes S / 300 segments (a leaf for each 256 blocks, 85 % of them stored);
//! - what lies in the log for replay is not cleaned: S / 16, so that the map costs a twentieth of what is written.
//!
//! What the cleaner has emptied comes back with a generation, which writes no map: so its batch may be small.

/// Checkpoints end once the map nodes to write are this part of all segments (and not before half a segment).
const NODES_PER_SEGMENTS: f64 = 1.0 / 256.0;

/// When to do what, in segments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ladder {
    /// Map nodes that a checkpoint may write, in segments.
    pub nodes: f64,
    /// Deallocations are admitted above this many left, and the cleaner moves above this: what is left is for two
    /// checkpoints.
    pub free_floor: u64,
    /// Writes are admitted above this many left: one is for the cleaner.
    pub stop_floor: u64,
    /// Writes are admitted above this much room: the cleaner's batch.
    pub write_floor: u64,
    /// Below this much room the cleaner works, and writes are paced by what it gains.
    pub clean_below: u64,
    /// A rebuild takes zones above this much room: about where writes and the cleaner come to rest, which is three eighths of
    /// the way from the write floor up, so that they make room for it, and hosts have a segment to write to.
    pub rebuild_above: u64,
    /// Emptied segments that make a generation worth its writing.
    pub batch: u64,
    /// Segments' worth of blocks that the log keeps for replay: then a checkpoint begins.
    pub replayed: u64,
    /// Spares kept ready.
    pub spares: usize,
    /// Segments that no volume may fill: all of the above.
    pub held: u64,
}

impl Ladder {
    /// The rungs of an array of this many segments.
    #[must_use]
    pub fn of(segments: u64) -> Ladder {
        let nodes = (segments as f64 * NODES_PER_SEGMENTS).max(0.5);
        let free_floor = 2 + 2 * nodes.ceil() as u64;
        let batch = 1 + (segments / 256).max((segments / 48).min(4));
        let write_floor = free_floor + 1 + batch;
        let band = 3 + segments / 64;
        let clean_below = write_floor + band;
        Ladder {
            nodes,
            free_floor,
            stop_floor: free_floor + 1,
            write_floor,
            clean_below,
            rebuild_above: write_floor + 1 + band / 4,
            batch,
            replayed: (segments / 16).max(4),
            spares: if segments >= 256 { 4 } else { 2 },
            held: write_floor + 3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_and_large_arrays() {
        let small = Ladder::of(64);
        assert_eq!((small.free_floor, small.write_floor, small.clean_below), (4, 7, 11));
        let large = Ladder::of(1024);
        assert_eq!((large.free_floor, large.write_floor, large.clean_below), (10, 16, 35));
    }

    #[test]
    fn every_rung_is_above_the_last() {
        for segments in 1..5000 {
            let l = Ladder::of(segments);
            assert!((l.nodes.ceil() as u64) < l.free_floor && l.free_floor < l.stop_floor);
            assert!(l.stop_floor < l.write_floor && l.write_floor < l.clean_below && l.write_floor < l.held);
            assert!(l.batch < l.write_floor, "what waits for a checkpoint leaves room above the floor");
        }
    }
}
