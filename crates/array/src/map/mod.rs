//! From a volume's blocks to places: memtables first, then the trees.
//!
//! Invariant: memtables and roots are taken in one step, under one pin; nodes never change once written.

mod merge;
pub mod node_cache;
pub mod packed;
mod spans;

use std::rc::Rc;

use base::Lba;
use ondisk::{MapRef, NODE_REFS, Node, Place, SHARDS};

use crate::canary::{Canary, planted};
use crate::ctx::Context;
use crate::fault::Fault;
use crate::map::node_cache::NodeCache;
use crate::map::packed::Packed;
use crate::member::Members;
use crate::memtable::memory::Memory;
use crate::room::Room;
use crate::row::RowReader;
use crate::space::pins::Pin;
use crate::space::pins::Pins;
use crate::space::segment::Seg;
use crate::space::segments::Segments;
use crate::state::State;
use crate::streams::Streams;
use crate::volumes::Volumes;
pub use crate::volumes::tree::{LEAF_BLOCKS, NodeKey, height_for};
use crate::volumes::vol::Vol;

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

/// The map of all volumes.
pub struct Map {
    ctx: Rc<Context>,
    members: Rc<Members>,
    segments: Rc<Segments>,
    pins: Pins,
    memory: Rc<Memory>,
    volumes: Rc<Volumes>,
    streams: Rc<Streams>,
    rows: Rc<RowReader>,
    room: Rc<Room>,
    /// Map nodes read or written.
    nodes: NodeCache,
}

impl Map {
    /// A map with no node in memory.
    pub fn new(state: &State, rows: &Rc<RowReader>, room: &Rc<Room>) -> Rc<Map> {
        Rc::new(Map {
            ctx: state.members.ctx().clone(),
            members: state.members.clone(),
            segments: state.segments.clone(),
            pins: state.pins.clone(),
            memory: state.memory.clone(),
            volumes: state.volumes.clone(),
            streams: state.streams.clone(),
            rows: rows.clone(),
            room: room.clone(),
            nodes: NodeCache::default(),
        })
    }

    /// Map nodes in memory.
    pub fn nodes(&self) -> &NodeCache {
        &self.nodes
    }

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
        match self.ref_now(vol, lba)? {
            MapRef::At(place) => Some(place),
            MapRef::Hole | MapRef::Zero | MapRef::Bad => None,
        }
    }

    /// What one block of a volume is, if that can be said at once: the nodes are in memory.
    pub fn ref_now(&self, vol: &Vol, lba: Lba) -> Option<MapRef> {
        let memory = self.memory.read();
        let frozen = memory.older();
        if let Some(known) = memory.active.get(vol.id, lba).or_else(|| frozen?.get(vol.id, lba)) {
            return Some(known);
        }
        let (key, height) = (NodeKey::leaf(vol.id, lba), u32::from(vol.height()));
        if key.index.checked_shr(8 * height).unwrap_or(0) > 0 {
            return Some(MapRef::Hole);
        }
        let mut says = vol.root(usize::from(key.shard));
        let nodes = self.nodes.read();
        for level in (0..=height).rev() {
            let MapRef::At(place) = says else { return Some(says) };
            let slot = match level.checked_sub(1) {
                Some(below) => (key.index >> (8 * below)) % NODE_REFS as u64,
                None => lba.0 % LEAF_BLOCKS,
            };
            says = nodes.look(place.pba)?.get(slot as usize);
        }
        nodes.found(u64::from(height) + 1);
        Some(says)
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
        let columns = self.rows.columns(place.pba.segment).ok_or(Fault::Medium)?;
        let (column, row) = Seg::place(place.pba.block, self.ctx.shape.zone_blocks);
        if column >= columns.scheme.k() {
            return Err(Fault::Medium);
        }
        let run = self.rows.read_run(&columns, column, row, &[place.crc]).await;
        if run.lost {
            return Err(Fault::Medium);
        }
        let node = Packed::from(&Node::decode(&run.data).map_err(|_| Fault::Medium)?);
        self.nodes.put(place.pba, node.clone());
        Ok(node)
    }
}
