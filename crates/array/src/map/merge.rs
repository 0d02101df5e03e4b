//! Memtable into trees: new nodes for what changed, from the leaves up, copy on write.
//!
//! Invariant: live counts change here alone, by exactly what the new trees point to more or less than the old.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::task::Poll;

use api::EventCode;
use base::{BLOCK_BYTES, Lba, Pba, SegmentId, VolumeId};
use futures::poll;
use futures::stream::{FuturesUnordered, StreamExt};
use ondisk::{MapRef, NODE_REFS, Place, SHARDS, VolumeState};
use rt::Buf;

use super::Map;
use crate::canary::{Canary, planted};
use crate::fault::Fault;
use crate::map::packed::Packed;
use crate::map::{Base, LEAF_BLOCKS, NodeKey, height_for};
use crate::memtable::table::Memtable;
use crate::streams::{Piece, Request, What};
use crate::sync::Pieces;
use crate::volumes::vol::Vol;

/// Nodes read and written at once: they fill four records of 240 entries.
const NODES_AT_ONCE: usize = 1024;

/// Leaves whose changes are collected before others run, and nodes that are begun or done: a tenth of a millisecond.
const LEAVES_IN_A_PIECE: usize = 128;
const NODES_IN_A_PIECE: usize = 8;

/// Leaves of a deleted volume dropped in one checkpoint, per shard.
const DROPS_AT_ONCE: usize = 512;

/// What changes in one node.
#[derive(Default)]
struct Change {
    /// Slots from..to get this; first.
    fills: Vec<(usize, usize, MapRef)>,
    /// Slots get this; after the fills.
    slots: Vec<(usize, MapRef)>,
    /// Slots of a leaf below this get what the memtable says of them; after the fills.
    said_below: usize,
}

impl Change {
    /// Whether it only is to be written again.
    fn is_touch(&self) -> bool {
        self.fills.is_empty() && self.says_only_fills()
    }

    fn says_only_fills(&self) -> bool {
        self.slots.is_empty() && self.said_below == 0
    }
}

/// Blocks more or fewer that are live, by segment.
#[derive(Default)]
struct Tally(Vec<(SegmentId, i64)>);

impl Tally {
    /// Neighbours mostly lie in one segment, before and after: the last two are added to.
    fn add(&mut self, place: Place, by: i64) {
        let segment = place.pba.segment;
        match self.0.iter_mut().rev().take(2).find(|(of, _)| *of == segment) {
            Some((_, blocks)) => *blocks += by,
            None => self.0.push((segment, by)),
        }
    }
}

/// Trees that are written but not published.
#[derive(Default)]
pub struct Merged {
    roots: BTreeMap<VolumeId, [MapRef; SHARDS]>,
    heights: BTreeMap<VolumeId, u8>,
    cursors: BTreeMap<VolumeId, Lba>,
    live: BTreeMap<SegmentId, i64>,
    mapped: BTreeMap<VolumeId, i64>,
    /// Where nodes lay that the trees no longer have.
    replaced: Vec<Pba>,
}

impl Merged {
    /// Takes effect in memory, in one step; where nodes lay that the trees no longer have.
    pub fn publish(self, map: &Map) -> Vec<Pba> {
        for (id, roots) in self.roots {
            map.volumes.existing(id).publish(roots);
        }
        for (id, height) in self.heights {
            map.volumes.existing(id).publish_height(height);
        }
        for (id, cursor) in self.cursors {
            map.volumes.existing(id).drop_up_to(cursor);
        }
        for (id, by) in self.mapped {
            map.volumes.existing(id).publish_mapped(by);
        }
        map.segments.count_live(self.live, map.memory.freezes());
        self.replaced
    }
}

/// The result of one node.
struct Done {
    key: NodeKey,
    now: MapRef,
    live: Tally,
    mapped: i64,
    /// Where it lay.
    was: Option<Pba>,
}

impl Map {
    /// Writes the nodes that bring `table` into the trees, and drops a part of each deleted volume.
    pub async fn merge(&self, table: &Memtable) -> Result<Merged, Fault> {
        let mut merged = Merged::default();
        let pieces = Pieces::of(LEAVES_IN_A_PIECE, &self.ctx.rt);
        let volumes: Vec<Rc<Vol>> = self.volumes.all().values().cloned().collect();
        let mut leaves: BTreeMap<NodeKey, Change> = BTreeMap::new();
        for vol in &volumes {
            match vol.state() {
                VolumeState::Live => self.collect(vol, table, &mut leaves, &pieces).await?,
                VolumeState::Dropping { cursor } => {
                    let upto = self.collect_drops(vol, cursor, &mut leaves, &pieces).await?;
                    merged.cursors.insert(vol.id, upto);
                }
            }
        }
        let mut changes = leaves;
        // Once: a volume may grow while nodes are written.
        let targets: BTreeMap<VolumeId, u8> =
            volumes.iter().map(|v| (v.id, v.height().max(height_for(v.blocks())))).collect();
        let top = targets.values().copied().max().unwrap_or(0);
        for level in 0..=top {
            for touch in table.touched.iter().filter(|t| t.level == level) {
                changes.entry(NodeKey::of(touch.volume, level, touch.lba)).or_default();
            }
            let of_level = std::mem::take(&mut changes);
            let done = |done| {
                let Some(d): Option<Done> = done else { return };
                for (segment, by) in d.live.0 {
                    *merged.live.entry(segment).or_default() += by;
                }
                *merged.mapped.entry(d.key.volume).or_default() += d.mapped;
                merged.replaced.extend(d.was);
                let vol = volumes.iter().find(|v| v.id == d.key.volume).expect("changes are of known volumes");
                if level == targets[&vol.id] {
                    assert_eq!(d.key.index, 0, "a root covers its whole tree");
                    merged.roots.entry(vol.id).or_insert(vol.roots())[usize::from(d.key.shard)] = d.now;
                } else {
                    let parent = changes.entry(d.key.parent()).or_default();
                    parent.slots.push((d.key.slot(), d.now));
                }
            };
            self.merge_level(table, &volumes, of_level, done).await?;
            for vol in &volumes {
                self.raise(vol, targets[&vol.id], level, &mut changes, &mut merged);
            }
        }
        Ok(merged)
    }

    /// A tree that has become too low gets a new top: its old root is slot 0 of it.
    fn raise(&self, vol: &Vol, wanted: u8, level: u8, changes: &mut BTreeMap<NodeKey, Change>, merged: &mut Merged) {
        let height = vol.height();
        if wanted <= height || level != height {
            return;
        }
        merged.heights.insert(vol.id, wanted);
        let roots = vol.roots();
        merged.roots.insert(vol.id, [MapRef::Hole; SHARDS]);
        for shard in 0..SHARDS as u8 {
            let old_root = NodeKey { volume: vol.id, shard, level, index: 0 };
            let root = roots[usize::from(shard)];
            let parent = old_root.parent();
            let known = changes.get(&parent).is_some_and(|c| c.slots.iter().any(|(slot, _)| *slot == 0));
            if root != MapRef::Hole && !known {
                changes.entry(parent).or_default().slots.push((0, root));
            }
        }
    }

    /// The nodes of one level, each told to `done`; a few at once, so that hosts wait for none of this.
    async fn merge_level(
        &self,
        table: &Memtable,
        volumes: &[Rc<Vol>],
        changes: BTreeMap<NodeKey, Change>,
        mut done: impl FnMut(Option<Done>),
    ) -> Result<(), Fault> {
        let find = |id: VolumeId| volumes.iter().find(|v| v.id == id);
        let mut to_begin = changes
            .into_iter()
            .filter_map(|(key, change)| find(key.volume).map(|vol| self.merge_node(table, vol, key, change)));
        let mut more = Some(self.streams.more_nodes());
        let mut under_way = FuturesUnordered::new();
        let pieces = Pieces::of(1, &self.ctx.rt);
        loop {
            let mut finished = 0;
            while let Poll::Ready(Some(node)) = poll!(under_way.next()) {
                done(node?);
                finished += 1;
                if finished == NODES_IN_A_PIECE {
                    break;
                }
            }
            if finished < NODES_IN_A_PIECE {
                // All of them wait for a drive.
                let (before, room) = (under_way.len(), NODES_AT_ONCE - under_way.len());
                under_way.extend(to_begin.by_ref().take(room.min(NODES_IN_A_PIECE)));
                if under_way.len() == before {
                    more = more.filter(|_| room == 0);
                    match under_way.next().await {
                        Some(node) => done(node?),
                        None => return Ok(()),
                    }
                }
            }
            pieces.did(1).await;
        }
    }

    /// One node: what it becomes; `None` when it stays as it is.
    async fn merge_node(
        &self,
        table: &Memtable,
        vol: &Vol,
        key: NodeKey,
        change: Change,
    ) -> Result<Option<Done>, Fault> {
        let (roots, height) = (vol.roots(), vol.height());
        let read = self
            .rows
            .ask_for_good(|node| matches!(node, Err(Fault::Medium)), || self.node_at(&roots, height, key))
            .await;
        // Where a node that is lost lay, if its parent says so.
        let mut lost = None;
        let base = match read {
            Ok(base) => base,
            Err(Fault::Medium) => {
                self.members.writable()?;
                lost = Some(self.node_ref(&roots, height, key).await.unwrap_or(MapRef::Bad));
                self.ctx.error(
                    EventCode::DataLost,
                    format!("a map node of volume {} is lost: its blocks are bad", vol.name()),
                );
                Base::Fill(if planted(Canary::BadForgotten) { MapRef::Hole } else { MapRef::Bad })
            }
            Err(other) => return Err(other),
        };
        let touched_only = change.is_touch();
        if touched_only && matches!(base, Base::Fill(_)) && lost.is_none() {
            return Ok(None);
        }
        // Nothing lay there, and all of it says the same: no node.
        if let ([(0, NODE_REFS, fill)], true, Base::Fill(was), None) =
            (&change.fills[..], change.says_only_fills(), &base, &lost)
        {
            let now = *fill;
            return Ok((now != *was).then_some(Done { key, now, live: Tally::default(), mapped: 0, was: None }));
        }
        let before = base.to_node();
        let mut node = before.clone();
        for (from, to, fill) in change.fills {
            node.0[from..to].fill(fill);
        }
        let said = table.slots(vol.id, key.first_lba().0 / LEAF_BLOCKS, change.said_below);
        for (slot, to) in change.slots.into_iter().chain(said) {
            node.0[slot] = to;
        }
        if node == before && !touched_only && lost.is_none() {
            return Ok(None);
        }
        let mut live = Tally::default();
        let mut mapped = 0;
        if key.level == 0 {
            for (old, new) in before.0.iter().zip(node.0.iter()).filter(|(old, new)| old != new) {
                if let MapRef::At(place) = old
                    && !planted(Canary::CountsForgotten)
                {
                    live.add(*place, -1);
                    mapped -= 1;
                }
                if let MapRef::At(place) = new {
                    live.add(*place, 1);
                    mapped += 1;
                }
            }
        }
        let was = if let Base::Node(_, place) = &base { Some(place) } else { None };
        if let Some(place) = was {
            live.add(*place, -1);
        }
        if let Some(MapRef::At(place)) = lost {
            live.add(place, -1);
        }
        let now = match node.uniform() {
            Some(fill) => fill,
            None => {
                let place = self.write_node(key, &node).await?;
                if was.is_some() {
                    self.room.node_replaced();
                }
                live.add(place, 1);
                self.nodes.put(place.pba, Packed::from(&node));
                MapRef::At(place)
            }
        };
        Ok(Some(Done { key, now, live, mapped, was: was.map(|place| place.pba) }))
    }

    async fn write_node(&self, key: NodeKey, node: &ondisk::Node) -> Result<Place, Fault> {
        let mut block = Buf::zeroed(BLOCK_BYTES);
        node.encode(&mut block);
        let request = Request::new(1, None);
        self.streams.submit(Piece {
            what: What::Node(key.level),
            volume: key.volume,
            lba: key.first_lba(),
            blocks: 1,
            data: Some(block.freeze()),
            crc: None,
            request: request.clone(),
        });
        request.done().await?;
        Ok(request.place().expect("a node that is written has a place"))
    }

    /// What a table changes in the leaves of a volume.
    async fn collect(
        &self,
        vol: &Vol,
        table: &Memtable,
        leaves: &mut BTreeMap<NodeKey, Change>,
        pieces: &Pieces<'_>,
    ) -> Result<(), Fault> {
        for (lba, n, fill) in table.ranges_of(vol.id) {
            let end = (lba + n).0.min(vol.blocks().next_multiple_of(LEAF_BLOCKS));
            pieces.did(1).await;
            let keys = if fill == MapRef::Hole {
                self.leaves_there(vol, lba, Lba(end), usize::MAX, true, pieces).await?.0
            } else {
                let first = lba.0 / LEAF_BLOCKS;
                (first..end.div_ceil(LEAF_BLOCKS)).map(|leaf| NodeKey::leaf(vol.id, Lba(leaf * LEAF_BLOCKS))).collect()
            };
            for key in keys {
                let start = key.first_lba().0;
                let from = lba.0.saturating_sub(start) as usize;
                let to = (end - start).min(LEAF_BLOCKS) as usize;
                leaves.entry(key).or_default().fills.push((from, to, fill));
                self.ctx.meter.looked(&self.ctx.rt, 1);
                pieces.did(1).await;
            }
        }
        // Beyond the end lies only what nobody wrote: a record that is not ours.
        let end = vol.blocks();
        for (leaf, slots) in table.leaves(vol.id) {
            let first = leaf * LEAF_BLOCKS;
            let said_below = end.saturating_sub(first).min(LEAF_BLOCKS) as usize;
            if slots.take_while(|(slot, _)| *slot < said_below).next().is_some() {
                leaves.entry(NodeKey::leaf(vol.id, Lba(first))).or_default().said_below = said_below;
                pieces.did(1).await;
            }
        }
        Ok(())
    }

    /// Empties some leaves of a deleted volume from `cursor` on; the block from which it has to go on.
    async fn collect_drops(
        &self,
        vol: &Vol,
        cursor: Lba,
        leaves: &mut BTreeMap<NodeKey, Change>,
        pieces: &Pieces<'_>,
    ) -> Result<Lba, Fault> {
        let end = Lba(vol.blocks().next_multiple_of(LEAF_BLOCKS));
        if planted(Canary::DropForgotten) {
            return Ok(end);
        }
        let (keys, upto) = self.leaves_there(vol, cursor, end, DROPS_AT_ONCE, false, pieces).await?;
        for key in keys.into_iter().filter(|k| k.first_lba() < upto) {
            leaves.entry(key).or_default().fills.push((0, NODE_REFS, MapRef::Hole));
        }
        Ok(upto)
    }

    /// The leaves within `from..to` that say anything, at most `limit` of each shard; and the block up to which
    /// these are all. Leaves below a node that is lost say that their blocks are bad: `with_lost` counts them. What is
    /// absent is passed by as a whole.
    async fn leaves_there(
        &self,
        vol: &Vol,
        from: Lba,
        to: Lba,
        limit: usize,
        with_lost: bool,
        pieces: &Pieces<'_>,
    ) -> Result<(Vec<NodeKey>, Lba), Fault> {
        let (roots, height) = (vol.roots(), vol.height());
        let mut found = Vec::new();
        let mut complete_to = to;
        for shard in 0..SHARDS as u8 {
            let mut of_shard = 0;
            let root = NodeKey { volume: vol.id, shard, level: height, index: 0 };
            let mut stack = if roots[usize::from(shard)] == MapRef::Hole { vec![] } else { vec![(root, false)] };
            while let Some((key, below_lost)) = stack.pop() {
                let first = key.first_lba();
                if first >= complete_to || key.beyond() <= from {
                    continue;
                }
                self.ctx.meter.looked(&self.ctx.rt, 1);
                pieces.did(1).await;
                if key.level == 0 {
                    if of_shard == limit {
                        complete_to = first;
                        break;
                    }
                    of_shard += 1;
                    found.push(key);
                    continue;
                }
                let node = if below_lost { Err(Fault::Medium) } else { self.node_at(&roots, height, key).await };
                let (base, lost) = match node {
                    Ok(base) => (base, false),
                    Err(Fault::Medium) if with_lost && !planted(Canary::BelowLostForgotten) => {
                        (Base::Fill(MapRef::Bad), true)
                    }
                    Err(Fault::Medium) => continue,
                    Err(other) => return Err(other),
                };
                let begun = stack.len();
                let says = |child: &NodeKey| base.says_anything(child.slot());
                stack.extend(key.children(from, complete_to).filter(says).map(|child| (child, lost)));
                stack[begun..].reverse();
            }
        }
        Ok((found, complete_to))
    }

    /// What its parent says of node `key`: the node itself is not read.
    pub async fn node_ref(&self, roots: &[MapRef; SHARDS], height: u8, key: NodeKey) -> Result<MapRef, Fault> {
        if key.level == height {
            return Ok(if key.index == 0 { roots[usize::from(key.shard)] } else { MapRef::Hole });
        }
        Ok(match self.node_at(roots, height, key.parent()).await? {
            Base::Fill(fill) => fill,
            Base::Node(node, _) => node.get(key.slot()),
        })
    }
}
