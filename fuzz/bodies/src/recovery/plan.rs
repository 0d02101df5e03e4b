//! The input: which scene, how it is opened, and what is done to its drives before that, step by step.
//!
//! ```text
//! 0  scene 1 | how 1 | seed 1 | reserved 1
//! 4  steps of 16 bytes, at most 32: op 1 | drive 1 | area 1 | width 1 | index 2 | length 2 | offset 4 | value 4
//! ```
//!
//! Invariant: any bytes are a plan; a plan does the same to the same scene every time.

use std::collections::BTreeSet;

use array::OpenHow;
use base::{BLOCK_BYTES, BlockCount, MemberLba};
use ondisk::Label;
use rt::model::{Disk, Fault};
use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::scene::Scene;
use crate::stored::{seal, seal_generation};

/// Steps of a plan; what follows is ignored.
pub const STEPS_MAX: usize = 32;

/// Blocks that one step changes, at most: a zone.
const BLOCKS_MAX: u64 = 64;

/// What a step does to the blocks it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Op {
    /// The bytes of the value are added to those at the offset, bit by bit.
    Xor,
    /// The bytes of the value stand at the offset.
    Set,
    /// Blocks of zeros.
    Zero,
    /// Blocks as they were before: writes that were lost.
    Lose,
    /// A block of which the sectors that the value names are as they were before: a torn write.
    Tear,
    /// The block of another place of the same drive: a misdirected write.
    Misdirect,
    /// The block of the same place on another drive.
    Swap,
    /// Blocks that cannot be read.
    Unreadable,
    /// As Set, and then the checksum of what it is in is made right: what no accident does.
    Forge,
}

/// The ops, by their number.
const OPS: [Op; 9] =
    [Op::Xor, Op::Set, Op::Zero, Op::Lose, Op::Tear, Op::Misdirect, Op::Swap, Op::Unreadable, Op::Forge];

/// Where a step begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Area {
    /// The first label.
    FirstLabel,
    /// The last label.
    LastLabel,
    /// A block of the first slot.
    Slot0,
    /// A block of the second slot.
    Slot1,
    /// A record header.
    Header,
    /// A block of a zone that was written.
    Written,
    /// Any block.
    Any,
}

/// The areas, by their number.
const AREAS: [Area; 7] =
    [Area::FirstLabel, Area::LastLabel, Area::Slot0, Area::Slot1, Area::Header, Area::Written, Area::Any];

/// One step.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Step {
    /// An [`Op`], modulo their number.
    pub op: u8,
    /// A drive, modulo their number; 255: all.
    pub drive: u8,
    /// An [`Area`], modulo their number.
    pub area: u8,
    /// Bytes of the value, modulo 8: 1, 2, 4, 8 (its bytes twice), and again.
    pub width: u8,
    /// Which block of the area, modulo their number.
    pub index: U16,
    /// Blocks, modulo 64, and one.
    pub length: U16,
    /// Byte within the block; or the other place.
    pub offset: U32,
    /// The value.
    pub value: U32,
}

/// An input, parsed.
pub struct Plan {
    head: [u8; 4],
    steps: Vec<Step>,
}

/// What the steps did.
#[derive(Default)]
pub struct Damage {
    drives: BTreeSet<usize>,
    /// A checksum was made to fit.
    pub forged: bool,
}

impl Damage {
    /// Drives that are not as they were.
    #[must_use]
    pub fn drives(&self) -> Vec<usize> {
        self.drives.iter().copied().collect()
    }
}

impl Plan {
    /// The plan in any bytes.
    #[must_use]
    pub fn parse(data: &[u8]) -> Plan {
        let mut head = [0; 4];
        let n = data.len().min(4);
        head[..n].copy_from_slice(&data[..n]);
        let chunks = data[n..].as_chunks::<16>().0.iter().take(STEPS_MAX);
        Plan { head, steps: chunks.filter_map(|c| Step::read_from_bytes(c).ok()).collect() }
    }

    /// The bytes of a plan: for seeds.
    #[must_use]
    pub fn encode(scene: u8, how: u8, steps: &[Step]) -> Vec<u8> {
        let mut bytes = vec![scene, how, 1, 0];
        steps.iter().for_each(|s| bytes.extend_from_slice(s.as_bytes()));
        bytes
    }

    /// The scene's number.
    #[must_use]
    pub fn scene(&self) -> usize {
        usize::from(self.head[0])
    }

    /// How it is opened.
    #[must_use]
    pub fn how(&self) -> OpenHow {
        let flag = |bit| self.head[1] & bit != 0;
        OpenHow {
            read_only: flag(1),
            degraded: flag(2),
            force_diverged: flag(4),
            accept_loss: flag(8),
            previous: false,
            owner: array::owner::OwnerHow::PLAIN,
            part: ondisk::PartOf::ALL,
        }
    }

    /// The seed of the worlds in which it is opened.
    #[must_use]
    pub fn seed(&self) -> u64 {
        u64::from(self.head[2])
    }

    /// Does it.
    pub fn apply(&self, scene: &Scene, disks: &[Disk]) -> Damage {
        let mut damage = Damage::default();
        for step in &self.steps {
            for drive in 0..disks.len() {
                if step.drive == 255 || usize::from(step.drive) % disks.len() == drive {
                    step.apply(scene, disks, drive, &mut damage);
                }
            }
        }
        damage
    }
}

impl Step {
    /// A step.
    #[must_use]
    pub fn new(op: Op, drive: u8, area: Area, index: u16) -> Step {
        Step {
            op: op as u8,
            drive,
            area: area as u8,
            width: 0,
            index: U16::new(index),
            length: U16::new(0),
            offset: U32::ZERO,
            value: U32::ZERO,
        }
    }

    /// The same with a value of `width` bytes (1, 2, 4 or 8) for `offset`.
    #[must_use]
    pub fn value(self, width: u32, offset: u32, value: u32) -> Step {
        Step { width: width.ilog2() as u8, offset: U32::new(offset), value: U32::new(value), ..self }
    }

    /// The same for `blocks`.
    #[must_use]
    pub fn blocks(self, blocks: u16) -> Step {
        Step { length: U16::new(blocks - 1), ..self }
    }

    fn apply(&self, scene: &Scene, disks: &[Disk], drive: usize, damage: &mut Damage) {
        let op = OPS[usize::from(self.op) % OPS.len()];
        let area = AREAS[usize::from(self.area) % AREAS.len()];
        let places = &scene.places[drive];
        let disk = &disks[drive];
        let at = places.find(area, usize::from(self.index.get()));
        let room = places.drive_blocks - at.0;
        let blocks = BlockCount((u64::from(self.length.get()) % BLOCKS_MAX + 1).min(room));
        let one = BlockCount(1);
        let before = disk.image_read(at, blocks);
        let now = match op {
            Op::Xor | Op::Set | Op::Forge => {
                let mut block = before[..BLOCK_BYTES].to_vec();
                self.put(&mut block, op == Op::Xor);
                block
            }
            Op::Zero => vec![0; blocks.len()],
            Op::Lose => scene.before[drive].image_read(at, blocks),
            Op::Tear => {
                let old = scene.before[drive].image_read(at, one);
                let mut block = before[..BLOCK_BYTES].to_vec();
                for sector in (0..8).filter(|s| self.value.get() >> s & 1 != 0) {
                    block[sector * 512..][..512].copy_from_slice(&old[sector * 512..][..512]);
                }
                block
            }
            Op::Misdirect => disk.image_read(places.find(area, self.offset.get() as usize), one),
            Op::Swap => {
                let other = self.value.get() as usize % disks.len();
                let there = scene.places[other].find(area, usize::from(self.index.get()));
                disks[other].image_read(there, one)
            }
            Op::Unreadable => {
                disk.set_fault(Fault::BadBlocks { at, blocks });
                damage.drives.insert(drive);
                return;
            }
        };
        if now == before[..now.len()] {
            return;
        }
        disk.image_write(at, &now);
        damage.drives.insert(drive);
        if op == Op::Forge {
            reseal(disk, places.label(), area, at);
            damage.forged = true;
        }
    }

    /// The value at its offset.
    fn put(&self, block: &mut [u8], add: bool) {
        let value = u64::from(self.value.get()) * 0x1_0000_0001;
        let width = 1 << (self.width % 4);
        let at = self.offset.get() as usize % (block.len() - 7);
        for (to, from) in block[at..at + width].iter_mut().zip(value.to_le_bytes()) {
            *to = if add { *to ^ from } else { from };
        }
    }
}

/// Makes the checksum right of the structure that the block at `at` belongs to.
fn reseal(disk: &Disk, label: &Label, area: Area, at: MemberLba) {
    let slot = match area {
        Area::Slot0 => 0,
        Area::Slot1 => 1,
        Area::FirstLabel | Area::LastLabel | Area::Header | Area::Written | Area::Any => {
            let mut block = disk.image_read(at, BlockCount(1));
            seal(&mut block);
            disk.image_write(at, &block);
            return;
        }
    };
    let layout = label.layout;
    let from = layout.slot(slot);
    // The generations of a scene are small: a part of the slot is enough.
    let blocks = BlockCount(u64::from(layout.slot_blocks).min(16));
    let mut image = disk.image_read(from, blocks);
    seal_generation(&mut image);
    disk.image_write(from, &image);
}
