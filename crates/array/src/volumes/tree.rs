//! The shape of a volume's trees: which node covers which blocks. Arithmetic only.
//!
//! ```text
//! leaf n of a volume covers blocks n*256 .. n*256+256; its shard is (volume id + n) mod 16
//! within the shard it is leaf i = n / 16; its parent is node i >> 8 of level 1, slot i & 255; and so on
//! ```

use base::{Lba, VolumeId};
use ondisk::volume::HEIGHT_MAX;
use ondisk::{NODE_REFS, SHARDS};

/// Blocks a leaf covers.
pub const LEAF_BLOCKS: u64 = NODE_REFS as u64;

/// A node of a volume's trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeKey {
    /// Whose.
    pub volume: VolumeId,
    /// Which tree.
    pub shard: u8,
    /// 0: leaf.
    pub level: u8,
    /// Which of its level.
    pub index: u64,
}

impl NodeKey {
    /// The leaf that covers `lba`.
    pub fn leaf(volume: VolumeId, lba: Lba) -> NodeKey {
        let n = lba.0 / LEAF_BLOCKS;
        let shard = ((u64::from(volume.0) + n) % SHARDS as u64) as u8;
        NodeKey { volume, shard, level: 0, index: n / SHARDS as u64 }
    }

    /// The node above.
    pub fn parent(self) -> NodeKey {
        NodeKey { level: self.level + 1, index: self.index / NODE_REFS as u64, ..self }
    }

    /// Its slot in the node above.
    pub fn slot(self) -> usize {
        (self.index % NODE_REFS as u64) as usize
    }

    /// First block of the volume that it covers.
    pub fn first_lba(self) -> Lba {
        let first_leaf = self.index << (8 * u32::from(self.level));
        let residue =
            (u64::from(self.shard) + SHARDS as u64 - u64::from(self.volume.0) % SHARDS as u64) % SHARDS as u64;
        Lba((first_leaf * SHARDS as u64 + residue) * LEAF_BLOCKS)
    }

    /// The block behind the last that it covers, up to which all others of its shard cover theirs.
    pub fn beyond(self) -> Lba {
        let covers = if self.level == 0 { LEAF_BLOCKS } else { (LEAF_BLOCKS * SHARDS as u64) << (8 * self.level) };
        Lba(self.first_lba().0 + covers)
    }

    /// Those of its children, in their order, that cover some of the blocks `from..to`.
    pub fn children(self, from: Lba, to: Lba) -> impl Iterator<Item = NodeKey> {
        let covers = (LEAF_BLOCKS * SHARDS as u64) << (8 * (self.level - 1));
        let child = move |slot| NodeKey { level: self.level - 1, index: self.index * NODE_REFS as u64 + slot, ..self };
        let first = child(0).first_lba().0;
        // A leaf ends before the next one of its shard begins: the first may lie before `from`.
        let skipped = from.0.saturating_sub(first) / covers;
        let ends = to.0.saturating_sub(first).div_ceil(covers);
        (skipped..ends.min(NODE_REFS as u64)).map(child).filter(move |c| c.beyond() > from)
    }

    /// The node of `level` whose first block is `lba`.
    pub fn of(volume: VolumeId, level: u8, lba: Lba) -> NodeKey {
        let leaf = NodeKey::leaf(volume, lba);
        let shift = 8 * u32::from(level);
        NodeKey { level, index: leaf.index.checked_shr(shift).unwrap_or(0), ..leaf }
    }
}

/// Levels above the leaves for a volume of `blocks`.
pub fn height_for(blocks: u64) -> u8 {
    let leaves = blocks.div_ceil(LEAF_BLOCKS).div_ceil(SHARDS as u64);
    let fits = |h: &u8| (NODE_REFS as u64).checked_pow(u32::from(*h)).is_none_or(|n| n >= leaves);
    (0..=HEIGHT_MAX).find(fits).expect("volumes are below 2^48 blocks")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_addresses_go_both_ways() {
        for volume in [0u32, 1, 5, 16, 17, 1000] {
            for lba in [0u64, 255, 256, 4095, 4096, 1 << 20, (1 << 40) + 12345] {
                let mut key = NodeKey::leaf(VolumeId(volume), Lba(lba));
                let first = key.first_lba().0;
                assert!(first <= lba && lba < first + LEAF_BLOCKS, "{key:?}");
                for level in 1..4 {
                    key = key.parent();
                    assert_eq!(NodeKey::of(key.volume, level, key.first_lba()), key);
                }
            }
        }
    }

    #[test]
    fn heights() {
        for (blocks, height) in
            [(1, 0), (4096, 0), (4097, 1), (1 << 20, 1), ((1 << 20) + 1, 2), (1 << 28, 2), (1 << 48, 5)]
        {
            assert_eq!(height_for(blocks), height, "{blocks}");
        }
    }
}
