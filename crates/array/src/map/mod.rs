//! From a volume's blocks to places: memtables first, then the trees.
//!
//! ```text
//! leaf n of a volume covers blocks n*256 .. n*256+256; its shard is (volume id + n) mod 16
//! within the shard it is leaf i = n / 16; its parent is node i >> 8 of level 1, slot i & 255; and so on
//! ```
//!
//! Invariant: memtables and roots are taken in one step, under one pin; nodes never change once written.

pub mod memory;
pub mod memtable;
pub mod merge;
pub mod node_cache;
pub mod packed;
pub mod spans;

use base::{Lba, VolumeId};
use ondisk::volume::HEIGHT_MAX;
use ondisk::{MapRef, NODE_REFS, Node, Place, SHARDS};

use crate::canary::{Canary, planted};
use crate::core::Core;
use crate::fault::Fault;
use crate::map::packed::Packed;
use crate::space::pins::Pin;
use crate::space::segment::Seg;
use crate::volume::vol::Vol;

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

/// What a tree says of a node's place.
pub enum Base {
    /// No node: everything below says the same.
    Fill(MapRef),
    /// The node, and where it is.
    Node(Packed, Place),
}

impl Base {
    /// Whether it says more of a slot than that there is nothing.
    pub fn says_anything(&self, slot: usize) -> bool {
        let says = match self {
            Base::Fill(fill) => *fill,
            Base::Node(node, _) => node.get(slot),
        };
        says != MapRef::Hole
    }

    /// The node to build on.
    pub fn to_node(&self) -> Node {
        match self {
            Base::Fill(fill) => Node::filled(*fill),
            Base::Node(node, _) => node.to_node(),
        }
    }
}

/// What a run of blocks is, pinned.
pub struct Resolved {
    /// Per block.
    pub refs: Vec<MapRef>,
    /// Keeps the places as they are.
    pub pin: Pin,
}

impl Core {
    /// What `n` blocks of a volume from `lba` on are.
    pub async fn resolve(&self, vol: &Vol, lba: Lba, n: usize) -> Result<Resolved, Fault> {
        loop {
            let roots = vol.roots();
            let resolved = self.resolve_now(vol, lba, n).await;
            // A node may have gone with the trees that a checkpoint replaced meanwhile.
            let replaced = vol.roots() != roots && !planted(Canary::OldTreesBelieved);
            if !(matches!(resolved, Err(Fault::Medium)) && replaced) {
                return resolved;
            }
        }
    }

    /// Where one block of a volume is, if that can be said at once: it is stored, and the nodes are in memory. To be
    /// asked under a pin.
    pub fn place_now(&self, vol: &Vol, lba: Lba) -> Option<Place> {
        let memory = self.memory.read();
        let frozen = memory.older();
        if let Some(known) = memory.active.get(vol.id, lba).or_else(|| frozen?.get(vol.id, lba)) {
            return match known {
                MapRef::At(place) => Some(place),
                MapRef::Hole | MapRef::Zero | MapRef::Bad => None,
            };
        }
        let (key, height) = (NodeKey::leaf(vol.id, lba), u32::from(vol.height()));
        if key.index.checked_shr(8 * height).unwrap_or(0) > 0 {
            return None;
        }
        let MapRef::At(mut place) = vol.root(usize::from(key.shard)) else { return None };
        let nodes = self.nodes.read();
        for level in (0..height).rev() {
            place = nodes.look(place.pba)?.place(((key.index >> (8 * level)) % NODE_REFS as u64) as usize)?;
        }
        let place = nodes.look(place.pba)?.place((lba.0 % LEAF_BLOCKS) as usize)?;
        nodes.found(u64::from(height) + 1);
        Some(place)
    }

    async fn resolve_now(&self, vol: &Vol, lba: Lba, n: usize) -> Result<Resolved, Fault> {
        // One step: pin, memtables, roots.
        let pin = self.pins.pin();
        let mut known: Vec<Option<MapRef>> = vec![None; n];
        {
            let memory = self.memory.read();
            memory.active.overlay(vol.id, lba, &mut known);
            if let Some(frozen) = memory.older() {
                frozen.overlay(vol.id, lba, &mut known);
            }
        }
        let (roots, height) = (vol.roots(), vol.height());
        let mut done = 0;
        while done < n {
            let at = lba.0 + done as u64;
            let first = (at % LEAF_BLOCKS) as usize;
            let in_leaf = (NODE_REFS - first).min(n - done);
            let part = &mut known[done..done + in_leaf];
            done += in_leaf;
            self.ctx.meter.looked(&self.ctx.rt, 1);
            if part.iter().all(Option::is_some) {
                continue;
            }
            let base = self.node_at(&roots, height, NodeKey::leaf(vol.id, Lba(at))).await?;
            match &base {
                Base::Fill(fill) => part.iter_mut().for_each(|block| _ = block.get_or_insert(*fill)),
                Base::Node(node, _) => part.iter_mut().zip(node.slots_from(first)).for_each(|(block, says)| {
                    block.get_or_insert(says);
                }),
            }
        }
        let refs = known.into_iter().map(|k| k.expect("every leaf was asked")).collect();
        Ok(Resolved { refs, pin })
    }

    /// The node `key` of the trees with these roots.
    pub async fn node_at(&self, roots: &[MapRef; SHARDS], height: u8, key: NodeKey) -> Result<Base, Fault> {
        let top = key.index.checked_shr(8 * (u32::from(height) - u32::from(key.level.min(height)))).unwrap_or(0);
        if key.level > height || top > 0 {
            // Beyond what the trees cover: the volume has grown and nothing was merged there yet.
            return Ok(Base::Fill(MapRef::Hole));
        }
        let mut at = roots[usize::from(key.shard)];
        let mut level = height;
        loop {
            let MapRef::At(place) = at else { return Ok(Base::Fill(at)) };
            let node = self.node_of(place).await?;
            if level == key.level {
                return Ok(Base::Node(node, place));
            }
            level -= 1;
            let shift = 8 * (u32::from(level) - u32::from(key.level));
            at = node.get(((key.index >> shift) % NODE_REFS as u64) as usize);
        }
    }

    /// The node at a place.
    pub async fn node_of(&self, place: Place) -> Result<Packed, Fault> {
        self.ctx.meter.looked(&self.ctx.rt, 1);
        let there = self.nodes.get(place.pba);
        match there {
            Some(node) => Ok(node),
            None => Box::pin(self.read_node(place)).await,
        }
    }

    /// A node that is not in memory.
    async fn read_node(&self, place: Place) -> Result<Packed, Fault> {
        let columns = self.columns(place.pba.segment).ok_or(Fault::Medium)?;
        let (column, row) = Seg::place(place.pba.block, self.ctx.shape.zone_blocks);
        if column >= columns.scheme.k() {
            return Err(Fault::Medium);
        }
        let run = self.read_run(&columns, column, row, &[place.crc]).await;
        if run.lost {
            return Err(Fault::Medium);
        }
        let node = Packed::from(&Node::decode(&run.data).map_err(|_| Fault::Medium)?);
        self.nodes.put(place.pba, node.clone());
        Ok(node)
    }
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
