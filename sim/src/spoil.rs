//! What goes wrong on the drives that may go bad, and on the way to any.

use base::{BLOCK_BYTES, BlockCount};
use rand::RngExt;
use rt::model::{Disk, Fault};

use crate::census::{Census, Spot};
use crate::kind::Kind;
use crate::plan::Dice;
use crate::world::World;

/// Kinds of silent rot.
pub const ROT: [Kind; 7] =
    [Kind::RotData, Kind::RotDead, Kind::RotParity, Kind::RotHeader, Kind::RotMap, Kind::RotSlot, Kind::RotLabel];

/// Flips some bits of a block, at rest.
pub fn flip(world: &mut World, disks: &[Disk], (disk, at): Spot) {
    let mut block = disks[disk].image_read(at, BlockCount(1));
    for _ in 0..world.dice.random_range(1..20) {
        let bit = world.dice.random_range(0..BLOCK_BYTES * 8);
        block[bit / 8] ^= 1 << (bit % 8);
    }
    disks[disk].image_write(at, &block);
}

/// While no process runs: rot on the drives that may go bad.
pub fn rot(world: &mut World) {
    if world.rotten.is_empty() || !ROT.iter().any(|kind| world.plan.has(*kind)) {
        return;
    }
    let disks = world.disks.clone();
    let census = Census::take(&disks);
    for kind in ROT {
        // A drive that has lost both its labels is lost: not each time.
        if !world.plan.has(kind) || (kind == Kind::RotLabel && world.dice.random_range(0..4) > 0) {
            continue;
        }
        let here: Vec<Spot> = census.of(kind).iter().copied().filter(|(d, _)| world.is_rotten(&disks[*d])).collect();
        if here.is_empty() {
            continue;
        }
        if kind == Kind::RotHeader && world.dice.random_range(0..2) == 0 {
            // In every place that may rot.
            let record = &census.records[world.dice.random_range(0..census.records.len())];
            for spot in record.columns.iter().filter(|(d, _)| world.is_rotten(&disks[*d])).copied().collect::<Vec<_>>()
            {
                flip(world, &disks, spot);
                world.counts.add(kind, 1);
            }
            continue;
        }
        for _ in 0..world.dice.random_range(1..4) {
            let spot = here[world.dice.random_range(0..here.len())];
            flip(world, &disks, spot);
            world.counts.add(kind, 1);
        }
    }
}

/// Faults that last for a process's life.
pub fn begin(world: &mut World) {
    for disk in world.rotten_disks() {
        let one_in = world.dice.random_range(3..60);
        let faults = [
            (Kind::ReadError, Fault::ReadErrors { one_in }),
            (Kind::CorruptRead, Fault::CorruptReads { one_in }),
            (Kind::WriteError, Fault::WriteErrors { one_in: one_in * 4 }),
            (Kind::LostWrite, Fault::LostWrites { one_in }),
            (Kind::MisdirectedWrite, Fault::MisdirectedWrites { one_in: one_in * 2 }),
            (Kind::LyingFlush, Fault::LyingFlushes { one_in: one_in.div_ceil(8) }),
        ];
        for (kind, fault) in faults {
            if world.chance(kind, 2) {
                disk.set_fault(fault);
            }
        }
    }
    if world.chance(Kind::BadBlock, 2) && !world.rotten.is_empty() {
        let disks = world.disks.clone();
        let census = Census::take(&disks);
        for kind in [Kind::RotData, Kind::RotParity, Kind::RotHeader, Kind::RotMap] {
            let spots = census.of(kind).iter().copied().filter(|(d, _)| world.is_rotten(&disks[*d]));
            for (disk, at) in spots.take(40).collect::<Vec<_>>() {
                if world.dice.random_range(0..4) == 0 {
                    disks[disk].set_fault(Fault::BadBlocks { at, blocks: BlockCount(1) });
                }
            }
        }
    }
    // A slow drive may be put out: it is one of those that the redundancy covers.
    let may_be_slow = if world.rotten.is_empty() { world.disks.clone() } else { world.rotten_disks() };
    for disk in may_be_slow {
        if world.chance(Kind::SlowDrive, 8) {
            let factor = world.dice.random_range(10..100);
            disk.set_fault(Fault::Slow { factor });
            world.counts.add(Kind::SlowDrive, 1);
        }
        if world.chance(Kind::Stall, 4) {
            let one_in = world.dice.random_range(20..200);
            let shift = if world.plan.filled { 5..10 } else { 0..14 };
            let ns = 1_000_000_000 >> world.dice.random_range(shift);
            disk.set_fault(Fault::Stalls { one_in, ns });
        }
    }
}

/// Late writes land, some of them.
pub fn land_late(world: &mut World) {
    for late in std::mem::take(&mut world.late) {
        if world.dice.random_range(0..2) == 0 {
            world.counts.add(Kind::LateWrite, late.len() as u64);
            late.land();
        } else {
            world.late.push(late);
        }
    }
}

/// Blocks of one byte again and again, which nobody takes for a file system.
pub fn junk(dice: &mut Dice, blocks: u64) -> Vec<u8> {
    loop {
        let junk = vec![dice.random::<u8>(); blocks as usize * BLOCK_BYTES];
        if rt::probe::signature(&junk, &[]).is_none() {
            return junk;
        }
    }
}
