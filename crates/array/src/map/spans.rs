//! What long runs of a volume's blocks say, without a look at each: what is absent in the map is one step, however large.
//!
//! ```text
//!   memtables   |  range: hole     | nothing said      | block |
//!   trees       |        no node: hole             | leaf         |  of sixteen shards, leaf by leaf in turn
//!   spans       |  hole            | hole      | leaf  ...
//! ```
//!
//! Invariant: memtables and roots are taken in one step, under one pin, as in `map`.
//!
//! Not here: which blocks of a leaf say what (`map::resolve`).

use base::Lba;
use ondisk::{MapRef, SHARDS};

use super::Map;
use crate::canary::{Canary, planted};
use crate::fault::Fault;
use crate::map::{LEAF_BLOCKS, NodeKey};
use crate::memtable::table::Said;
use crate::volumes::vol::Vol;

/// What the next blocks say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// What all of them say; none where a leaf says it block by block.
    pub says: Option<MapRef>,
    /// The block behind them.
    pub until: Lba,
}

impl Map {
    /// What the blocks from `lba` on say, up to `end` at most: one step, whatever lies there.
    pub async fn span(&self, vol: &Vol, lba: Lba, end: Lba) -> Result<Span, Fault> {
        loop {
            let roots = vol.roots();
            let span = self.span_now(vol, lba, end).await;
            // A node may have gone with the trees that a checkpoint replaced meanwhile.
            let replaced = vol.roots() != roots && !planted(Canary::OldTreesBelieved);
            if !(matches!(span, Err(Fault::Medium)) && replaced) {
                return span;
            }
        }
    }

    async fn span_now(&self, vol: &Vol, lba: Lba, end: Lba) -> Result<Span, Fault> {
        let in_leaf = Lba((lba.0 / LEAF_BLOCKS + 1) * LEAF_BLOCKS).min(end);
        // One step: pin, memtables, roots.
        let _pin = self.pins.pin();
        let (said, until) = {
            let memory = self.memory.read();
            let newer = memory.active.run(vol.id, lba, end);
            match (memory.older(), newer) {
                (Some(frozen), (Said::Nothing, until)) => frozen.run(vol.id, lba, until),
                _ => newer,
            }
        };
        let (roots, height) = (vol.roots(), vol.height());
        match said {
            Said::Fill(fill) => return Ok(Span { says: Some(fill), until }),
            Said::Block => return Ok(Span { says: None, until: in_leaf }),
            Said::Nothing => {}
        }
        let first = NodeKey::leaf(vol.id, lba);
        let (says, beyond) = self.topmost(&roots, height, first).await?;
        if let MapRef::At(_) = says {
            return Ok(Span { says: None, until: in_leaf });
        }
        let mut until = until.min(beyond);
        if planted(Canary::AbsentWalked) {
            until = until.min(in_leaf);
        }
        for leaf in lba.0 / LEAF_BLOCKS + 1..lba.0 / LEAF_BLOCKS + SHARDS as u64 {
            let at = Lba(leaf * LEAF_BLOCKS);
            if at >= until {
                break;
            }
            let (other, beyond) = self.topmost(&roots, height, NodeKey::leaf(vol.id, at)).await?;
            until = until.min(if other == says { beyond } else { at });
        }
        Ok(Span { says: Some(says), until })
    }

    /// What the topmost node says that is not there, or that leaf `key` is there; and the first block of the next leaf of the
    /// shard of which it says nothing.
    async fn topmost(&self, roots: &[MapRef; SHARDS], height: u8, key: NodeKey) -> Result<(MapRef, Lba), Fault> {
        let first_of = |leaf: Option<u64>| match leaf {
            Some(index) if index < 1 << 40 => NodeKey { index, ..key }.first_lba(),
            _ => Lba(u64::MAX),
        };
        if key.index.checked_shr(8 * u32::from(height)).unwrap_or(0) > 0 {
            // Beyond what the trees cover: the volume has grown and nothing was merged there yet.
            return Ok((MapRef::Hole, Lba(u64::MAX)));
        }
        let mut says = roots[usize::from(key.shard)];
        let mut beyond = 1u64.checked_shl(8 * u32::from(height));
        for level in (0..=height).rev() {
            let MapRef::At(place) = says else { break };
            if level == 0 {
                return Ok((says, first_of(Some(key.index + 1))));
            }
            let node = self.node_of(place).await?;
            let shift = 8 * u32::from(level - 1);
            let child = key.index >> shift;
            let (now, slots_end) = node.run_at((child % LEAF_BLOCKS) as usize);
            says = now;
            beyond = Some((child / LEAF_BLOCKS * LEAF_BLOCKS + slots_end as u64) << shift);
        }
        Ok((says, first_of(beyond)))
    }
}
