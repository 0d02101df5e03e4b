//! The space ladder: who may take the last segments, and how many no volume may fill.
//!
//! Hosts stop first, deallocations later, the cleaner and the map go on to the last. What the rungs must hold, for an
//! array of S segments filled to the brim and written at random:
//! - a checkpoint that writes the whole map takes S / 300 segments (a leaf for each 256 blocks, 85 % of them stored);
//! - the cleaner frees the space of what it moves only with such a checkpoint. The emptiest segments are about three
//!   quarters full then, so that a batch of R segments of moved blocks gains R / 3: to gain more than the map costs, R
//!   must be larger than S / 100.

/// Checkpoints end once the map nodes to write are this part of all segments (and not before half a segment).
const NODES_PER_SEGMENTS: f64 = 1.0 / 256.0;

/// When to do what, in segments left (spares and those that free zones would give).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ladder {
    /// Map nodes that a checkpoint may write, in segments.
    pub nodes: f64,
    /// Deallocations are admitted above this, and the cleaner moves above this: what is left is for two checkpoints.
    pub free_floor: u64,
    /// Writes are admitted above this: between the two floors lies the cleaner's batch.
    pub write_floor: u64,
    /// The cleaner works below this.
    pub clean_below: u64,
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
        let write_floor = free_floor + 2 + segments / 40;
        Ladder {
            nodes,
            free_floor,
            write_floor,
            clean_below: write_floor + 3 + segments / 40,
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
        assert_eq!(Ladder::of(64).held, 10);
        let large = Ladder::of(1024);
        assert_eq!((large.free_floor, large.write_floor, large.clean_below, large.held), (10, 37, 65, 40));
    }
}
