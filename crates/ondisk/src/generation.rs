//! A generation: all that is needed to begin, in one slot of the system area of every member.
//!
//! ```text
//! header 768   checksum, identity, features, geometry, counts of what follows, replay points of the 16 shards,
//!              what people set
//! members      256 each
//! volumes      384 each: name, size, state, the 16 roots of its trees
//! segments     72 + 8 per column each
//! ```

use base::{ArrayUuid, BLOCK_BYTES, Epoch, Generation as Number, Seq};
use uuid::Uuid;

use crate::bytes::{Reader, Writer};
use crate::crc::crc32c;
use crate::layout::{VOLUMES_MAX, ZONE_BLOCKS_MAX, ZONE_BLOCKS_MIN};
use crate::map::SEGMENT_ID_LIMIT;
use crate::member::Member;
use crate::record::SEQ_MAX;
use crate::scheme::{Level, WIDTH_MAX};
use crate::segment::Segment;
use crate::settings::Settings;
use crate::volume::{Volume, VolumeKind};
use crate::{FORMAT_VERSION, FormatError, SHARDS};

const MAGIC: [u8; 4] = *b"AshG";
const WHAT: &str = "generation";
const HEADER_BYTES: usize = 768;

/// Bytes of a name field (two of them its length).
pub const NAME_BYTES: usize = 64;

/// The longest name of an array or a volume.
pub const NAME_MAX: usize = NAME_BYTES - 2;

/// Ids of earlier generations that a generation remembers: the one before it, and the last one of each open before its own.
/// A member whose last generation is not among these, nor one that an open among these wrote before, has a history of its own.
pub const ANCESTORS: usize = 16;

/// The id of generation `number`, written by an open that drew `session` at random. One open writes one generation of a
/// number at most, and each after the one before: so the id also tells which of its generations came first.
#[must_use]
pub fn generation_id(session: u64, number: Number) -> u128 {
    u128::from(session) << 64 | u128::from(number.0)
}

/// Whether the open that wrote `later` wrote `id`, too, and not after it.
#[must_use]
pub fn is_same_or_before(id: u128, later: u128) -> bool {
    id >> 64 == later >> 64 && id as u64 <= later as u64
}

/// Seats in a table: those in use and those that wait to be vacated.
pub const SEATS_MAX: usize = 128;

/// A feature that a program has to know: the array has a volume of its own for what is to follow it, its notebook.
pub const NOTEBOOK: u64 = 1;

/// Features that this program knows, of those that a program has to know.
const KNOWN: u64 = NOTEBOOK;

/// Features, by what a program that does not know one may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Unknown: go on.
    pub compatible: u64,
    /// Unknown: read only.
    pub read_only_compatible: u64,
    /// Unknown: do not open.
    pub incompatible: u64,
}

impl Features {
    /// Whether the array has a notebook.
    #[must_use]
    pub const fn has_notebook(self) -> bool {
        self.incompatible & NOTEBOOK != 0
    }
}

/// Entries of a shard from here on may be missing from its trees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReplayFrom {
    /// First by epoch,
    pub epoch: Epoch,
    /// then by number.
    pub seq: Seq,
}

/// Everything that a slot says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generation {
    /// The array.
    pub array: ArrayUuid,
    /// Its name.
    pub name: String,
    /// This generation's number.
    pub number: Number,
    /// Its id: see [`generation_id`]; random in arrays of before.
    pub id: u128,
    /// Ids before it, newest first: see [`ANCESTORS`].
    pub ancestors: Vec<u128>,
    /// The open that wrote it.
    pub epoch: Epoch,
    /// Seconds since 1970 when it was written, for people.
    pub written_at: u64,
    /// Handed over in order: nothing to replay.
    pub clean: bool,
    /// Features in use.
    pub features: Features,
    /// As created.
    pub level: Level,
    /// Columns of a segment at full strength.
    pub width: u8,
    /// Whether `create` promised a place for a rebuild.
    pub rebuild_place: bool,
    /// Blocks of a zone.
    pub zone_blocks: u32,
    /// Per mille of the data blocks that volumes may fill.
    pub usable_permille: u16,
    /// The next segment's id.
    pub next_segment: u64,
    /// The next volume's id.
    pub next_volume: u32,
    /// Where each shard's replay begins.
    pub replay_from: [ReplayFrom; SHARDS],
    /// What people set.
    pub settings: Settings,
    /// Seats, by number.
    pub members: Vec<Member>,
    /// Volumes, by id.
    pub volumes: Vec<Volume>,
    /// Segments, by id.
    pub segments: Vec<Segment>,
}

impl Generation {
    /// Whether the generation with this id is this one, or came before it in its history.
    #[must_use]
    pub fn descends_from(&self, id: u128) -> bool {
        is_same_or_before(id, self.id) || self.ancestors.iter().any(|&later| is_same_or_before(id, later))
    }

    /// The stored form, whole blocks.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.members.len() <= SEATS_MAX && self.volumes.len() <= VOLUMES_MAX);
        let mut w = Writer::new();
        w.u32(0); // checksum
        w.raw(&MAGIC);
        w.u16(FORMAT_VERSION);
        w.u16(u16::from(self.clean) | u16::from(self.rebuild_place) << 1);
        w.u32(0); // total bytes
        w.raw(self.array.0.as_bytes());
        w.u64(self.number.0);
        w.raw(&self.id.to_le_bytes());
        w.u64(self.written_at);
        w.u32(self.epoch.0);
        w.u8(self.ancestors.len().min(ANCESTORS) as u8);
        w.u8(self.width);
        w.raw(&self.level.to_bytes());
        w.u64(self.features.compatible);
        w.u64(self.features.read_only_compatible);
        w.u64(self.features.incompatible);
        w.u32(self.zone_blocks);
        w.u16(self.usable_permille);
        w.u16(self.members.len() as u16);
        w.u32(self.volumes.len() as u32);
        w.u32(self.segments.len() as u32);
        w.u64(self.next_segment);
        w.u32(self.next_volume);
        w.u32(0);
        w.text(&self.name, NAME_BYTES);
        for i in 0..ANCESTORS {
            w.raw(&self.ancestors.get(i).map_or([0; 16], |id| id.to_le_bytes()));
        }
        assert!(w.len() + 12 * SHARDS <= HEADER_BYTES);
        for from in &self.replay_from {
            w.u32(from.epoch.0);
            w.u64(from.seq.0);
        }
        self.settings.encode(&mut w);
        w.zeros(HEADER_BYTES - w.len());
        for member in &self.members {
            member.encode(&mut w);
        }
        for volume in &self.volumes {
            volume.encode(&mut w);
        }
        for segment in &self.segments {
            segment.encode(&mut w);
        }
        let total = w.len();
        w.zeros(total.next_multiple_of(BLOCK_BYTES) - total);
        let mut image = w.finish();
        image[12..16].copy_from_slice(&(total as u32).to_le_bytes());
        let crc = crc32c(&image[4..total]);
        image[..4].copy_from_slice(&crc.to_le_bytes());
        image
    }

    /// The bytes the generation takes that begins with `first_block`, so that a reader knows how much to read.
    ///
    /// # Errors
    /// [`FormatError::Absent`] when none begins there.
    pub fn total_bytes(first_block: &[u8]) -> Result<usize, FormatError> {
        let mut r = Reader::new(WHAT, first_block);
        r.u32()?;
        if r.array()? != MAGIC {
            return Err(FormatError::Absent(WHAT));
        }
        r.u32()?;
        Ok(r.u32()? as usize)
    }

    /// Number and id of the generation that begins with `first_block`, unverified: for noticing another writer.
    ///
    /// # Errors
    /// [`FormatError::Absent`] when none begins there.
    pub fn peek(first_block: &[u8]) -> Result<(Number, u128), FormatError> {
        Self::total_bytes(first_block)?;
        let mut r = Reader::new(WHAT, first_block);
        r.raw(32)?;
        Ok((Number(r.u64()?), u128::from_le_bytes(r.array()?)))
    }

    /// The generation in `image`.
    ///
    /// # Errors
    /// [`FormatError::Absent`] when there is none, another when it is not whole, not possible or not for us.
    pub fn decode(image: &[u8]) -> Result<Generation, FormatError> {
        let total = Self::total_bytes(image)?;
        let body = image.get(..total).ok_or(FormatError::Short(WHAT))?;
        let mut r = Reader::new(WHAT, body);
        let checksum = r.u32()?;
        if body.len() < HEADER_BYTES || checksum != crc32c(&body[4..]) {
            return Err(FormatError::Checksum(WHAT));
        }
        r.raw(4)?;
        let version = r.u16()?;
        if version != FORMAT_VERSION {
            return Err(FormatError::Version { what: WHAT, found: version });
        }
        let flags = r.u16()?;
        r.u32()?;
        let array = ArrayUuid(Uuid::from_bytes(r.array()?));
        let number = Number(r.u64()?);
        let id = u128::from_le_bytes(r.array()?);
        let written_at = r.u64()?;
        let epoch = Epoch(r.u32()?);
        let ancestor_count = usize::from(r.u8()?);
        let width = r.u8()?;
        let level = Level::from_bytes(r.array()?).ok_or(r.field("level"))?;
        let features = Features { compatible: r.u64()?, read_only_compatible: r.u64()?, incompatible: r.u64()? };
        if features.incompatible & !KNOWN != 0 {
            return Err(FormatError::Feature(features.incompatible & !KNOWN));
        }
        let zone_blocks = r.u32()?;
        let usable_permille = r.u16()?;
        let member_count = usize::from(r.u16()?);
        let (volume_count, segment_count) = (r.u32()? as usize, r.u32()? as usize);
        let (next_segment, next_volume) = (r.u64()?, r.u32()?);
        r.zeros(4, "reserved")?;
        let name = r.text(NAME_BYTES, "name")?;
        if flags > 3
            || ancestor_count > ANCESTORS
            || !(1..=WIDTH_MAX).contains(&usize::from(width))
            || !zone_blocks.is_power_of_two()
            || !(ZONE_BLOCKS_MIN..=ZONE_BLOCKS_MAX).contains(&zone_blocks)
            || usable_permille > 1000
            || member_count > SEATS_MAX
            || volume_count > VOLUMES_MAX
        {
            return Err(r.field("header"));
        }
        if number.0 > u64::MAX / 2
            || epoch.0 > u32::MAX / 2
            || next_segment > SEGMENT_ID_LIMIT / 2
            || next_volume > u32::MAX / 2
        {
            return Err(r.field("counters"));
        }
        let mut ancestors = Vec::with_capacity(ANCESTORS);
        for i in 0..ANCESTORS {
            let ancestor = u128::from_le_bytes(r.array()?);
            if i < ancestor_count {
                ancestors.push(ancestor);
            }
        }
        let mut replay_from = [ReplayFrom::default(); SHARDS];
        for from in &mut replay_from {
            *from = ReplayFrom { epoch: Epoch(r.u32()?), seq: Seq(r.u64()?) };
            if from.seq.0 > SEQ_MAX {
                return Err(r.field("counters"));
            }
        }
        let settings = Settings::decode(&mut r)?;
        r.zeros(HEADER_BYTES - (total - r.remaining()), "reserved")?;
        let members = (0..member_count).map(|_| Member::decode(&mut r)).collect::<Result<Vec<_>, _>>()?;
        let volumes = (0..volume_count).map(|_| Volume::decode(&mut r)).collect::<Result<Vec<_>, _>>()?;
        let segments = (0..segment_count).map(|_| Segment::decode(&mut r)).collect::<Result<Vec<_>, _>>()?;
        if r.remaining() != 0 {
            return Err(r.field("length"));
        }
        let generation = Generation {
            array,
            name,
            number,
            id,
            ancestors,
            epoch,
            written_at,
            clean: flags & 1 != 0,
            features,
            level,
            width,
            rebuild_place: flags & 2 != 0,
            zone_blocks,
            usable_permille,
            next_segment,
            next_volume,
            replay_from,
            settings,
            members,
            volumes,
            segments,
        };
        generation.verify_tables()?;
        Ok(generation)
    }

    /// What holds between the tables: ids ascend, slots name seats and zones that exist, no zone is used twice.
    fn verify_tables(&self) -> Result<(), FormatError> {
        let field = |name| Err(FormatError::Field(WHAT, name));
        if !self.volumes.is_sorted_by(|a, b| a.id < b.id)
            || self.volumes.last().is_some_and(|v| v.id.0 >= self.next_volume)
        {
            return field("volume ids");
        }
        let notebooks = self.volumes.iter().filter(|v| v.kind == VolumeKind::Notebook);
        if notebooks.count() != usize::from(self.features.has_notebook()) {
            return field("notebook");
        }
        if !self.segments.is_sorted_by(|a, b| a.id < b.id)
            || self.segments.last().is_some_and(|s| s.id.0 >= self.next_segment)
        {
            return field("segment ids");
        }
        // What a generation claims of its drives is not worth memory: only what its segments name is looked at.
        let mut taken: Vec<(u16, u32)> = Vec::new();
        for segment in &self.segments {
            let blocks = segment.scheme.k() as u64 * u64::from(self.zone_blocks);
            if segment.rows > self.zone_blocks || u64::from(segment.live) > blocks {
                return field("segment rows");
            }
            for (member, zone) in segment.slots.iter().flatten() {
                if self.members.get(usize::from(member.0)).is_none_or(|m| *zone >= m.zones) {
                    return field("slots");
                }
                taken.push((member.0, *zone));
            }
        }
        taken.sort_unstable();
        if !taken.is_sorted_by(|a, b| a < b) {
            return field("slots");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheme::Scheme;
    use crate::segment::SegmentState;
    use crate::{Limits, MapRef, MemberState, VolumeState};
    use base::{Lba, MemberId, MemberUuid, SegmentId, VolumeId};

    fn sample() -> Generation {
        let member = |n: u128, state| Member {
            uuid: MemberUuid(Uuid::from_u128(n)),
            state,
            bay: n as u16,
            drive_blocks: 1 << 18,
            zones: 250,
            leaving: state == MemberState::In,
            gone_since: Number(if state == MemberState::Out { 5 } else { 0 }),
            why_out: crate::WhyOut::Unsaid,
            drive_name: "SN12345".into(),
        };
        Generation {
            array: ArrayUuid(Uuid::from_u128(99)),
            name: "fast".into(),
            number: Number(41),
            id: 77,
            ancestors: vec![76, 75],
            epoch: Epoch(3),
            written_at: 1_700_000_000,
            clean: false,
            features: Features { compatible: 4, ..Features::default() },
            level: Level::Raid5,
            width: 3,
            rebuild_place: true,
            zone_blocks: 1024,
            usable_permille: 850,
            next_segment: 10,
            next_volume: 2,
            replay_from: [ReplayFrom { epoch: Epoch(3), seq: Seq(5) }; SHARDS],
            settings: Settings::default(),
            members: vec![member(1, MemberState::In), member(2, MemberState::Out), member(3, MemberState::In)],
            volumes: vec![Volume {
                id: VolumeId(1),
                kind: VolumeKind::Hosts,
                name: "db".into(),
                uuid: Uuid::from_u128(5),
                blocks: 1 << 28,
                mapped_blocks: 3,
                state: VolumeState::Dropping { cursor: Lba(4) },
                height: 2,
                roots: [MapRef::Zero; SHARDS],
                limits: Limits::default(),
            }],
            segments: vec![Segment {
                id: SegmentId(9),
                scheme: Scheme::Parity { k: 2, m: 1 },
                state: SegmentState::Open,
                slots: vec![Some((MemberId(0), 1)), Some((MemberId(1), 1)), Some((MemberId(2), 1))],
                cuts: vec![],
                live: 1,
                rows: 4,
                replay_row: Some(0),
            }],
        }
    }

    #[test]
    fn round_trip() {
        let image = sample().encode();
        assert_eq!(image.len() % BLOCK_BYTES, 0);
        assert_eq!(Generation::decode(&image).unwrap(), sample());
    }

    #[test]
    fn impossible_tables_are_refused() {
        type Spoil = fn(&mut Generation);
        let cases: [(&str, Spoil); 14] = [
            ("zone used twice", |g| g.segments[0].slots[1] = g.segments[0].slots[0]),
            ("no such seat", |g| g.segments[0].slots[0] = Some((MemberId(3), 0))),
            ("no such zone", |g| g.segments[0].slots[0] = Some((MemberId(0), 250))),
            ("segment id from the future", |g| g.next_segment = 9),
            ("unknown feature", |g| g.features.incompatible = 2),
            ("a notebook that is not there", |g| g.features.incompatible = NOTEBOOK),
            ("a notebook that no feature names", |g| g.volumes[0].kind = VolumeKind::Notebook),
            ("no segment ids left", |g| g.next_segment = SEGMENT_ID_LIMIT),
            ("no volume ids left", |g| g.next_volume = u32::MAX),
            ("no epochs left", |g| g.epoch = Epoch(u32::MAX)),
            ("no generations left", |g| g.number = Number(u64::MAX)),
            ("somebody who is out leaves", |g| g.members[1].leaving = true),
            ("no rate", |g| g.settings.rebuild = crate::Rate::Bytes(0)),
            ("no sequence numbers left", |g| g.replay_from[3].seq = Seq(u64::MAX)),
        ];
        for (name, spoil) in cases {
            let mut g = sample();
            spoil(&mut g);
            assert!(Generation::decode(&g.encode()).is_err(), "{name}");
        }
    }

    #[test]
    fn torn_image_is_refused() {
        let mut image = sample().encode();
        let middle = image.len() / 4;
        image[middle] ^= 1;
        assert!(Generation::decode(&image).is_err());
        assert!(Generation::decode(&image[..512]).is_err());
    }
}
