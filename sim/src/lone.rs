//! Trials on arrays of one drive: nothing can be made from anything else, so what the drive cannot give for a moment, or has
//! lost for good, shows at once.

use std::cell::Cell;
use std::time::Duration;

use api::ScrubKind;
use array::{Array, CreateSpec, Fault, OpenHow, Volume};
use base::{BLOCK_BYTES, MemberLba};
use ondisk::Level;
use rand::{RngExt, SeedableRng};
use rt::model::{Disk, DiskParams, Op, OpKind, Verdict};
use rt::{Bytes, IoError, Rt};

use crate::census::{Census, newest_generation, zones_begin};
use crate::kind::Kind;
use crate::plan::Dice;
use crate::probes::BLOCK;
use crate::workload::joined;
use crate::world::{World, drives};

/// Blocks that a leaf covers.
const LEAF: u64 = 256;

/// Leaves of the volume: more than one for each shard, so that there are nodes above them.
const LEAVES: u64 = 32;

/// Leaves that are written: two thirds of what the array holds.
const WRITTEN: u64 = 8;

/// Rounds of overwriting in which the cleaner has come to every segment.
const ROUNDS: usize = 400;

/// A drive, and what the blocks of its volume hold.
struct Lone {
    disk: Disk,
    tags: Vec<u8>,
    /// May be an error.
    lost: Vec<bool>,
}

impl Lone {
    fn new(world: &mut World) -> Result<Lone, String> {
        let bytes = world.plan.system_bytes() + (66 << 18);
        let params = DiskParams { bytes, volatile_cache: false, ..world.plan.disk() };
        let disk = Disk::new("lone", params, world.dice.random());
        let spec = CreateSpec { level: Level::Raid0, width: Some(1), zone_blocks: Some(64), ..world.plan.spec() };
        let rt = world.rt();
        let array = rt.block_on(Array::create(&rt, drives(&rt, std::slice::from_ref(&disk)), &spec));
        let array = array.map_err(|e| e.to_string())?;
        rt.block_on(array.volume_create("v", LEAVES * LEAF * BLOCK)).map_err(|e| e.to_string())?;
        rt.block_on(array.close()).map_err(|e| e.to_string())?;
        rt.end();
        let blocks = (LEAVES * LEAF) as usize;
        Ok(Lone { disk, tags: vec![0; blocks], lost: vec![false; blocks] })
    }

    fn open(&self, world: &mut World) -> Result<(Rt, Array, Volume), String> {
        let rt = world.rt();
        let opened = rt.block_on(Array::open(&rt, drives(&rt, std::slice::from_ref(&self.disk)), OpenHow::default()));
        let array = opened.map_err(|e| e.to_string())?;
        let volume = array.volume("v").ok_or("its volume is gone")?;
        Ok((rt, array, volume))
    }

    fn close(&self, (rt, array, volume): (Rt, Array, Volume)) -> Result<(), String> {
        drop(volume);
        rt.block_on(array.close()).map_err(|e| e.to_string())?;
        rt.end();
        Ok(())
    }

    fn write(&mut self, world: &mut World, rt: &Rt, volume: &Volume, lba: u64, n: u64) -> Result<(), String> {
        let tag = world.dice.random_range(1..=255);
        let data = Bytes::from_slice(&vec![tag; (n * BLOCK) as usize]);
        rt.block_on(volume.write(lba * BLOCK, data, true)).map_err(|e| format!("writing block {lba}: {e}"))?;
        self.now_is(lba, n, tag);
        Ok(())
    }

    fn now_is(&mut self, lba: u64, n: u64, tag: u8) {
        let blocks = lba as usize..(lba + n) as usize;
        self.tags[blocks.clone()].fill(tag);
        self.lost[blocks].fill(false);
    }

    /// Writes the first leaves in pieces of any order, so that each segment has blocks of each of them.
    fn fill(&mut self, world: &mut World, rt: &Rt, volume: &Volume) -> Result<(), String> {
        let mut pieces: Vec<u64> = (0..WRITTEN * LEAF / 4).collect();
        while !pieces.is_empty() {
            let piece = pieces.swap_remove(world.dice.random_range(0..pieces.len()));
            self.write(world, rt, volume, piece * 4, 4)?;
        }
        Ok(())
    }

    /// Every block is what it must be; lost ones may be errors.
    fn check(&self, rt: &Rt, volume: &Volume, when: &str) -> Result<(), String> {
        let read = |lba: usize, n: usize| {
            let read = rt.block_on(volume.read(lba as u64 * BLOCK, n as u64 * BLOCK));
            read.map(|parts| joined(&parts))
        };
        for leaf in 0..LEAVES as usize {
            let first = leaf * LEAF as usize;
            let whole = read(first, LEAF as usize);
            for lba in first..first + LEAF as usize {
                let at = (lba - first) * BLOCK_BYTES;
                let found = match &whole {
                    Ok(whole) => Ok(whole[at..at + BLOCK_BYTES].to_vec()),
                    Err(_) => read(lba, 1),
                };
                match found {
                    Ok(found) if found.iter().all(|&b| b == self.tags[lba]) => {}
                    Ok(found) => return Err(format!("{when}: block {lba} is {}, not {}", found[0], self.tags[lba])),
                    Err(Fault::Medium) if self.lost[lba] => {}
                    Err(fault) => return Err(format!("{when}: block {lba}: {fault}")),
                }
            }
        }
        Ok(())
    }

    /// Overwrites what is written and not lost, until every segment there is now is given back.
    fn overwrite(&mut self, world: &mut World, rt: &Rt, volume: &Volume) -> Result<(), String> {
        let disk = self.disk.clone();
        let oldest =
            || newest_generation(std::slice::from_ref(&disk)).and_then(|g| g.segments.iter().map(|s| s.id.0).min());
        let first = oldest().ok_or("no generation is left")?;
        for _ in 0..ROUNDS {
            if oldest().is_some_and(|now| now >= first + 8) {
                return Ok(());
            }
            for _ in 0..64 {
                let lba = world.dice.random_range(0..WRITTEN * LEAF / 4) * 4;
                if !self.lost[lba as usize..lba as usize + 4].contains(&true) {
                    self.write(world, rt, volume, lba, 4)?;
                }
            }
        }
        Err(format!("segment {first} is never given back"))
    }
}

/// A node of the map is lost. What it spoke of may be lost with it, until it is written or deallocated; nothing else is, and
/// no segment stays for it.
pub fn lost_node(world: &mut World) -> Result<(), String> {
    let mut lone = Lone::new(world)?;
    let (rt, array, volume) = lone.open(world)?;
    lone.fill(world, &rt, &volume)?;
    // So that its shard has another leaf, below the same node.
    let beside = 16 + world.dice.random_range(0..WRITTEN);
    lone.write(world, &rt, &volume, beside * LEAF, 8)?;
    lone.close((rt, array, volume))?;
    let leaf = world.dice.random_range(0..WRITTEN);
    let look = Lone { disk: lone.disk.fork(), tags: Vec::new(), lost: Vec::new() };
    let (rt, array, volume) = look.open(world)?;
    let nodes = rt.block_on(volume.locate(leaf * LEAF * BLOCK)).map_err(|e| e.to_string())?.map;
    drop((volume, array));
    rt.end();
    let which = world.dice.random_range(0..nodes.len());
    let Some((_, at)) = nodes[which].columns[nodes[which].column] else { return Err("it lies nowhere".to_owned()) };
    lone.disk.image_write(at, &[0xee; BLOCK_BYTES]);
    world.counts.add(Kind::NodeLost, 1);
    for other in 0..LEAVES {
        // The last one is the leaf itself; the one above it speaks of all of its shard.
        let of_it = if which + 1 == nodes.len() { other == leaf } else { other % 16 == leaf % 16 };
        if of_it {
            lone.lost[(other * LEAF) as usize..((other + 1) * LEAF) as usize].fill(true);
        }
    }
    let (rt, array, volume) = lone.open(world)?;
    // Half the time nothing is done to it: then it is the cleaner that meets it first.
    for _ in 0..[0, world.dice.random_range(0..24)][world.dice.random_range(0..2)] {
        let leaf = [leaf, leaf + 16, world.dice.random_range(0..LEAVES)][world.dice.random_range(0..3)];
        let first = [0, 0, world.dice.random_range(0..LEAF)][world.dice.random_range(0..3)];
        let n = [LEAF - first, world.dice.random_range(1..=LEAF - first)][world.dice.random_range(0..2)];
        let lba = leaf * LEAF + first;
        match world.dice.random_range(0..4) {
            0 => lone.write(world, &rt, &volume, lba, n.min(8))?,
            1 => rt.block_on(array.checkpoint()).map_err(|e| e.to_string())?,
            _ => {
                let given_back = rt.block_on(volume.deallocate(lba * BLOCK, n * BLOCK, true));
                given_back.map_err(|e| format!("deallocating: {e}"))?;
                lone.now_is(lba, n, 0);
            }
        }
    }
    lone.check(&rt, &volume, "when it was lost")?;
    if world.dice.random_range(0..2) == 0 {
        rt.block_on(array.checkpoint()).map_err(|e| e.to_string())?;
        lone.check(&rt, &volume, "after a checkpoint")?;
    }
    lone.overwrite(world, &rt, &volume)?;
    lone.check(&rt, &volume, "after the cleaner")?;
    lone.close((rt, array, volume))?;
    let (rt, _array, volume) = lone.open(world)?;
    lone.check(&rt, &volume, "after a restart")
}

/// The drive reads nothing for some seconds, while the map is merged, segments are cleaned and blocks are looked at.
pub fn reads_fail(world: &mut World) -> Result<(), String> {
    let mut lone = Lone::new(world)?;
    let (rt, array, volume) = lone.open(world)?;
    lone.fill(world, &rt, &volume)?;
    lone.close((rt, array, volume))?;
    let (rt, array, volume) = lone.open(world)?;
    let until = rt.now() + Duration::from_millis(world.dice.random_range(100..4_000));
    let zones = zones_begin(&lone.disk);
    let clock = rt.clone();
    lone.disk.on_op(Some(Box::new(move |op: &Op| {
        let fails = op.kind == OpKind::Read && op.at >= zones && clock.now() < until;
        if fails { Verdict::Fail(IoError::Medium) } else { Verdict::Proceed }
    })));
    world.counts.add(Kind::ReadsPause, 1);
    if world.dice.random_range(0..2) == 0 {
        array.scrub_start(ScrubKind::Media, true).map_err(|e| e.to_string())?;
    }
    while rt.now() < until {
        let lba = world.dice.random_range(0..WRITTEN * LEAF);
        lone.write(world, &rt, &volume, lba, 1)?;
        rt.block_on(rt.sleep(Duration::from_millis(world.dice.random_range(1..200))));
        if world.dice.random_range(0..4) == 0 {
            rt.block_on(array.checkpoint()).map_err(|e| e.to_string())?;
        }
    }
    rt.block_on(array.scrub_done());
    let checked = lone.check(&rt, &volume, "after it could not read");
    lone.disk.on_op(None);
    checked
}

/// Look-ups take long, while everything that they knew of the map is written anew and the old places are given back.
pub fn slow_look_ups(world: &mut World) -> Result<(), String> {
    let mut lone = Lone::new(world)?;
    let leaves = world.dice.random_range(24..LEAVES / 2 + 16);
    let (rt, array, volume) = lone.open(world)?;
    (0..leaves).try_for_each(|leaf| lone.write(world, &rt, &volume, leaf * LEAF, 1))?;
    lone.close((rt, array, volume))?;
    let (rt, array, volume) = lone.open(world)?;
    // Either the first reads are late; or many are, while no map node stays in memory, so that each look-up reads all that it
    // goes through.
    let many = world.dice.random_range(0..2) == 0;
    if many {
        array.set_map_memory(1);
    }
    let zones = zones_begin(&lone.disk);
    let mut dice = Dice::seed_from_u64(world.dice.random());
    let first = Cell::new(world.dice.random_range(1..3));
    lone.disk.on_op(Some(Box::new(move |op: &Op| {
        if op.kind != OpKind::Read || op.at < zones {
            return Verdict::Proceed;
        }
        let is_first = first.get() > 0;
        first.set(first.get() - i32::from(is_first));
        let late = if many { dice.random_range(0..4) == 0 } else { is_first };
        if late { Verdict::DelayNs(900_000_000) } else { Verdict::Proceed }
    })));
    let looking = volume.clone();
    let look_up = rt.spawn(async move { looking.extents(0, LEAVES * LEAF * BLOCK, 10_000).await });
    rt.block_on(rt.sleep(Duration::from_millis(1)));
    for _ in 0..world.dice.random_range(8..16) {
        (0..leaves).try_for_each(|leaf| lone.write(world, &rt, &volume, leaf * LEAF, 1))?;
        rt.block_on(array.checkpoint()).map_err(|e| e.to_string())?;
    }
    let extents = rt.block_on(look_up).map_err(|e| format!("a look-up that took long: {e}"))?;
    lone.disk.on_op(None);
    world.counts.add(Kind::SlowLookUps, 1);
    let allocated = extents.iter().filter(|(_, kind)| *kind == array::ExtentKind::Allocated).count() as u64;
    if allocated != leaves {
        return Err(format!("a look-up that took long found {allocated} of {leaves} blocks"));
    }
    lone.check(&rt, &volume, "after look-ups that took long")
}

/// A durable record header is lost, and a block behind it cannot be read: what was acknowledged is never taken for what was
/// there before.
pub fn bad_block_behind_a_gap(world: &mut World) -> Result<(), String> {
    let mut lone = Lone::new(world)?;
    let (rt, array, volume) = lone.open(world)?;
    let n = world.dice.random_range(6..16);
    (0..n).try_for_each(|lba| lone.write(world, &rt, &volume, lba, 1))?;
    drop((volume, array));
    rt.end();
    lone.disk.crash(world.dice.random());
    let mut records = Census::take(std::slice::from_ref(&lone.disk)).records;
    records.sort_by_key(|r| (r.generation, r.segment, r.row));
    let Some(of_hosts) = records.len().checked_sub(n as usize).map(|at| &records[at..]) else { return Ok(()) };
    let lost = world.dice.random_range(0..of_hosts.len() - 3);
    let bad: MemberLba = of_hosts[world.dice.random_range(lost + 1..of_hosts.len() - 1)].columns[0].1;
    lone.disk.image_write(of_hosts[lost].columns[0].1, &[0xee; BLOCK_BYTES]);
    lone.disk.on_op(Some(Box::new(move |op: &Op| {
        let covers = op.kind == OpKind::Read && (op.at.0..op.at.0 + op.blocks.0).contains(&bad.0);
        if covers { Verdict::Fail(IoError::Medium) } else { Verdict::Proceed }
    })));
    world.counts.add(Kind::GapAndBadBlock, 1);
    let opened = lone.open(world);
    lone.disk.on_op(None);
    match opened {
        Ok((rt, _array, volume)) => {
            lone.lost[..n as usize].fill(true);
            lone.check(&rt, &volume, "after a header was lost")
        }
        Err(_) => Ok(()),
    }
}
