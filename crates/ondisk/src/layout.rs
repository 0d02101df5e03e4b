//! Where things lie on one drive.
//!
//! ```text
//! block 0   256            256+s          256+2s, up to 1 MiB          last
//! | label |  | slot 0      | slot 1 label|  | zone 0 | zone 1 | ... |  | label |
//! ```
//!
//! `s` is the same on every member: any generation must fit on any of them. The last two blocks of a slot are for others: no
//! generation reaches there. In slot 0 the last block is the owner mark's.

use base::{BlockCount, MemberLba};

/// Blocks in 1 MiB: where the slots begin, and what slots and zones are aligned to.
pub const ALIGN_BLOCKS: u64 = 256;

/// The most members an array can have.
pub const MEMBERS_MAX: usize = 64;

/// The most volumes an array can have.
pub const VOLUMES_MAX: usize = 1024;

/// The smallest zone `create` makes for a user.
pub const ZONE_BLOCKS_MIN_USER: u32 = 1024;

/// The largest zone: 4 GiB. A segment's block number (column and row) stays below 2^26.
pub const ZONE_BLOCKS_MAX: u32 = 1 << 20;

/// The smallest zone the format allows (simulations of small arrays).
pub const ZONE_BLOCKS_MIN: u32 = 64;

/// Zones on the smallest member, at least.
pub const ZONES_MIN: u32 = 64;

/// Bytes of a generation besides the segment table: header, members, volumes.
const FIXED_BYTES: u64 = 1 << 20;

/// Bytes of segment table for one zone, at most: a segment of one zone with all its cuts.
const BYTES_PER_ZONE: u64 = crate::segment::SEGMENT_BYTES as u64 + crate::segment::SLOT_BYTES as u64;

/// Blocks at the end of each slot that no generation reaches.
pub const SLOT_SPARE_BLOCKS: u32 = 2;

/// The largest slot: 2 GiB. A generation tells its length in 32 bits, and the label behind the slots is looked for in steps of
/// 1 MiB.
pub const SLOT_BLOCKS_MAX: u32 = 1 << 19;

/// An array has room for drives so many times as large as the largest one when it was made, where the smallest can spare it.
pub const GROWTH: u32 = 8;

/// Of the smallest drive, what one slot takes at most for drives that may come: 1/128.
const RESERVE_SHARE: u64 = 128;

/// Of the smallest drive, what one slot takes at most for larger drives that are there: 1/8.
const LARGER_SHARE: u64 = 8;

/// The places of one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The drive's whole blocks.
    pub drive_blocks: u64,
    /// Blocks of one system-area slot.
    pub slot_blocks: u32,
    /// Blocks of one zone.
    pub zone_blocks: u32,
    /// Zones.
    pub zones: u32,
}

impl Layout {
    /// Slot size for an array whose largest member has `zones_max` zones; [`SLOT_BLOCKS_MAX`] where that were more.
    ///
    /// Room for [`MEMBERS_MAX`] such members, so that a growing array never outgrows its slots.
    #[must_use]
    pub fn slot_blocks_for(zones_max: u32) -> u32 {
        let bytes = FIXED_BYTES + MEMBERS_MAX as u64 * u64::from(zones_max) * BYTES_PER_ZONE;
        let blocks = BlockCount::ceil_from_bytes(bytes).0.next_multiple_of(ALIGN_BLOCKS);
        u32::try_from(blocks).unwrap_or(u32::MAX).min(SLOT_BLOCKS_MAX)
    }

    /// The most zones of one member that slots of this size can list, for [`MEMBERS_MAX`] members.
    #[must_use]
    pub fn zones_max(slot_blocks: u32) -> u32 {
        let bytes = BlockCount(u64::from(slot_blocks)).bytes().saturating_sub(FIXED_BYTES);
        u32::try_from(bytes / (MEMBERS_MAX as u64 * BYTES_PER_ZONE)).unwrap_or(u32::MAX)
    }

    /// Slot size of a new array whose smallest and largest drive have so many blocks.
    ///
    /// For drives [`GROWTH`] times as large as the largest, as far as two slots take 1/64 of the smallest; for the largest
    /// itself, as far as they take a quarter of it. What slots do not list of a drive is not used.
    #[must_use]
    pub fn slot_blocks_of_new(smallest: u64, largest: u64, zone_blocks: u32) -> u32 {
        let aligned = |blocks: u64| u32::try_from(blocks / ALIGN_BLOCKS * ALIGN_BLOCKS).unwrap_or(u32::MAX);
        let slot_for =
            |blocks: u64| Self::slot_blocks_for(u32::try_from(blocks / u64::from(zone_blocks)).unwrap_or(u32::MAX));
        let needed = slot_for(largest).min(aligned(smallest / LARGER_SHARE)).max(slot_for(smallest));
        let wished = slot_for(largest.saturating_mul(u64::from(GROWTH))).min(aligned(smallest / RESERVE_SHARE));
        let holds = |slot| Self::new(smallest, slot, zone_blocks).is_some_and(|l| l.zones >= ZONES_MIN);
        if wished > needed && holds(wished) { wished } else { needed }
    }

    /// Blocks of the largest drive all of which is used where slots and zones have these sizes.
    #[must_use]
    pub fn largest_drive(slot_blocks: u32, zone_blocks: u32) -> u64 {
        let zones = Self::zones_max(slot_blocks);
        Self { drive_blocks: 0, slot_blocks, zone_blocks, zones }.zones_end() + u64::from(zone_blocks)
    }

    /// The zone size for a smallest drive of `drive_blocks`: a power of two, about 1/1024 of it, and at least
    /// [`ZONES_MIN`] of them.
    #[must_use]
    pub fn zone_blocks_for(drive_blocks: u64) -> u32 {
        let zone = (drive_blocks / 1024).max(1).next_power_of_two();
        zone.clamp(u64::from(ZONE_BLOCKS_MIN_USER), u64::from(ZONE_BLOCKS_MAX)) as u32
    }

    /// The layout of a drive of `drive_blocks`, with as many zones as fit and slots can list; `None` when that is none, or
    /// zones have no blocks.
    #[must_use]
    pub fn new(drive_blocks: u64, slot_blocks: u32, zone_blocks: u32) -> Option<Layout> {
        let start = Self { drive_blocks, slot_blocks, zone_blocks, zones: 0 }.zones_start();
        let room = drive_blocks.checked_sub(start + 1)?;
        let fitting = u32::try_from(room.checked_div(u64::from(zone_blocks))?).unwrap_or(u32::MAX);
        let zones = fitting.min(Self::zones_max(slot_blocks));
        (zones > 0).then_some(Layout { drive_blocks, slot_blocks, zone_blocks, zones })
    }

    /// The label's three places: at the drive's ends, where other programs write what says that a drive is theirs; and in the
    /// last block of the slots, which no generation reaches, away from both ends.
    #[must_use]
    pub fn labels(&self) -> [MemberLba; 3] {
        [MemberLba(0), MemberLba(self.drive_blocks - 1), Self::inner_label(self.slot_blocks)]
    }

    /// The label's place away from the drive's ends, where slots have so many blocks.
    #[must_use]
    pub fn inner_label(slot_blocks: u32) -> MemberLba {
        MemberLba(ALIGN_BLOCKS + 2 * u64::from(slot_blocks) - 1)
    }

    /// The same on a drive of `blocks`, if it has become smaller: with the zones that are left. `None` when none is.
    #[must_use]
    pub fn on_smaller(self, blocks: u64) -> Option<Layout> {
        if blocks >= self.drive_blocks { Some(self) } else { Layout::new(blocks, self.slot_blocks, self.zone_blocks) }
    }

    /// First block of slot `i` (0 or 1).
    #[must_use]
    pub fn slot(&self, i: usize) -> MemberLba {
        assert!(i < 2, "two slots");
        MemberLba(ALIGN_BLOCKS + i as u64 * u64::from(self.slot_blocks))
    }

    /// Bytes of a generation, at most.
    #[must_use]
    pub fn generation_bytes_max(&self) -> usize {
        self.slot_blocks.saturating_sub(SLOT_SPARE_BLOCKS) as usize * base::BLOCK_BYTES
    }

    /// The owner mark's block: the last one of slot 0; none where slots are too small for one.
    #[must_use]
    pub fn owner_mark(&self) -> Option<MemberLba> {
        let last = u64::from(self.slot_blocks).checked_sub(1)?;
        (self.slot_blocks > SLOT_SPARE_BLOCKS).then_some(self.slot(0) + BlockCount(last))
    }

    fn zones_start(&self) -> u64 {
        (ALIGN_BLOCKS + 2 * u64::from(self.slot_blocks)).next_multiple_of(ALIGN_BLOCKS)
    }

    /// The block behind the last zone.
    fn zones_end(&self) -> u64 {
        self.zones_start() + u64::from(self.zones) * u64::from(self.zone_blocks)
    }

    /// Blocks of the drive that are used: all of them, unless another zone would fit that the slots cannot list.
    #[must_use]
    pub fn used_blocks(&self) -> u64 {
        let end = self.zones_end();
        if self.drive_blocks > end + u64::from(self.zone_blocks) { end } else { self.drive_blocks }
    }

    /// The block at `row` of `zone`.
    #[must_use]
    pub fn zone_row(&self, zone: u32, row: u32) -> MemberLba {
        assert!(zone < self.zones && row < self.zone_blocks, "row {row} of zone {zone} lies in the layout");
        MemberLba(self.zones_start() + u64::from(zone) * u64::from(self.zone_blocks) + u64::from(row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_overlaps() {
        for gib in [1u64, 4, 61_440, 122_880] {
            let blocks = gib << 18;
            let zone_blocks = Layout::zone_blocks_for(blocks);
            let slot_blocks = Layout::slot_blocks_for((blocks / u64::from(zone_blocks)) as u32);
            let l = Layout::new(blocks, slot_blocks, zone_blocks).unwrap();
            assert!(l.zones >= ZONES_MIN, "{gib} GiB: {} zones", l.zones);
            assert_eq!(l.slot(0).0 % ALIGN_BLOCKS, 0);
            assert!(l.slot(1).0 + u64::from(slot_blocks) <= l.zone_row(0, 0).0);
            assert_eq!(l.owner_mark().unwrap() + BlockCount(1), l.slot(1));
            assert!(l.slot(0).byte_offset() + l.generation_bytes_max() as u64 <= l.owner_mark().unwrap().byte_offset());
            assert_eq!(l.zone_row(0, 0).0 % ALIGN_BLOCKS, 0);
            assert!(l.zone_row(l.zones - 1, zone_blocks - 1).0 < l.labels()[1].0);
        }
    }

    /// Zones are as many as fit, and no more than the slots list; the label, which says them, agrees.
    #[test]
    fn slots_list_every_zone() {
        for (gb, slot_blocks) in [(960u64, 1536), (3840, 1536), (61_440, 1536), (960, 4864), (15_360, 4864)] {
            let zone_blocks = Layout::zone_blocks_for(960_000_000_000 / 4096);
            let l = Layout::new(gb * 1_000_000_000 / 4096, slot_blocks, zone_blocks).unwrap();
            assert!(Layout::slot_blocks_for(l.zones) <= slot_blocks, "{gb} GB: {} zones", l.zones);
            let all = l.drive_blocks <= Layout::largest_drive(slot_blocks, zone_blocks);
            assert_eq!(l.used_blocks() == l.drive_blocks, all, "{gb} GB, {l:?}");
            assert!(l.used_blocks() <= l.drive_blocks && l.used_blocks() >= l.zone_row(l.zones - 1, 0).0);
        }
        assert_eq!(Layout::slot_blocks_for(u32::MAX), SLOT_BLOCKS_MAX);
        for zones in [1, 64, 1000, 14_305, 114_441] {
            let listed = Layout::zones_max(Layout::slot_blocks_for(zones));
            assert!(listed >= zones && listed < zones + 210, "{zones}: {listed}");
        }
    }

    /// What is reserved at create, of drives of 256 MiB to 122 TB, and of very different ones.
    #[test]
    fn slots_of_new_arrays() {
        let mib = |n: u64| n << 8;
        let gb = |n: u64| n * 1_000_000_000 / 4096;
        // Smallest, largest, MiB of a slot, and how many times as large as the largest a drive may be that is used as a whole.
        for (smallest, largest, slot_mib, times) in [
            (mib(262), mib(262), 2, 3),
            (mib(1024), mib(1024), 8, 5),
            (mib(4096), mib(4096), 32, 6),
            (gb(960), gb(960), 36, 8),
            (gb(3840), gb(3840), 36, 8),
            (gb(61_440), gb(61_440), 560, 8),
            (gb(122_880), gb(122_880), 1119, 8),
            (mib(1024), mib(20_480), 26, 1),
            (mib(1024), gb(15_360), 128, 0),
        ] {
            let zone_blocks = Layout::zone_blocks_for(smallest);
            let slot_blocks = Layout::slot_blocks_of_new(smallest, largest, zone_blocks);
            let l = Layout::new(smallest, slot_blocks, zone_blocks).unwrap();
            let most = Layout::largest_drive(slot_blocks, zone_blocks);
            assert_eq!((u64::from(slot_blocks) / 256, most / largest), (slot_mib, times), "{smallest} {largest}");
            assert!(l.zones >= ZONES_MIN && 8 * u64::from(slot_blocks) <= smallest, "{l:?}");
        }
    }

    /// The largest generation there can be leaves the end of its slot alone.
    #[test]
    fn no_generation_reaches_the_end_of_its_slot() {
        use crate::generation::SEATS_MAX;
        use crate::{CUTS_MAX, MemberState, Scheme, Segment, SegmentState};
        let (zones, slot_blocks) = (ZONES_MIN, Layout::slot_blocks_for(ZONES_MIN));
        let l = Layout::new(1 << 20, slot_blocks, ZONE_BLOCKS_MIN).unwrap();
        let member = crate::Member {
            uuid: base::MemberUuid::default(),
            state: MemberState::In,
            bay: 0,
            drive_blocks: 1 << 20,
            zones,
            leaving: false,
            gone_since: base::Generation(0),
            why_out: crate::WhyOut::Unsaid,
            drive_name: String::new(),
        };
        let volume = crate::Volume {
            id: base::VolumeId(1),
            kind: crate::VolumeKind::Hosts,
            name: "v".into(),
            uuid: uuid::Uuid::from_u128(1),
            blocks: 1,
            mapped_blocks: 0,
            state: crate::VolumeState::Live,
            height: 0,
            roots: [crate::MapRef::Hole; crate::SHARDS],
            limits: crate::Limits::default(),
        };
        let line = |w: &mut crate::bytes::Writer| {
            Segment {
                id: base::SegmentId(1),
                scheme: Scheme::Parity { k: 1, m: 0 },
                state: SegmentState::Sealed,
                slots: vec![None],
                cuts: vec![crate::Cut { row: 1, epoch: base::Epoch(1) }; CUTS_MAX],
                live: 0,
                rows: 1,
                replay_row: None,
            }
            .encode(w);
        };
        let mut w = crate::bytes::Writer::new();
        member.encode(&mut w);
        let member_bytes = w.len();
        let mut w = crate::bytes::Writer::new();
        volume.encode(&mut w);
        let volume_bytes = w.len();
        let mut w = crate::bytes::Writer::new();
        line(&mut w);
        let segments = w.len() * MEMBERS_MAX * zones as usize;
        let header = base::BLOCK_BYTES;
        let largest = header + SEATS_MAX * member_bytes + VOLUMES_MAX * volume_bytes + segments;
        assert!(largest <= l.generation_bytes_max(), "{largest} bytes, room for {}", l.generation_bytes_max());
    }

    #[test]
    fn a_generation_takes_little_of_a_drive() {
        let blocks = 4u64 << 18; // 4 GiB
        let zone_blocks = Layout::zone_blocks_for(blocks);
        let slot = Layout::slot_blocks_for((blocks / u64::from(zone_blocks)) as u32);
        assert!(2 * u64::from(slot) * 100 < blocks * 2, "below 2 %: {slot}");
    }
}
