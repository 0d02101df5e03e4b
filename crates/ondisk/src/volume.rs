//! One line of a generation's table of volumes: name, size, state, and where its trees begin.

use base::{Lba, VolumeId};
use uuid::Uuid;
use zerocopy::{FromBytes, IntoBytes};

use crate::bytes::{Reader, Writer};
use crate::generation::NAME_BYTES;
use crate::map::{MapRef, RawRef};
use crate::record::LBA_LIMIT;
use crate::settings::Limits;
use crate::{FormatError, SHARDS};

const VOLUME_BYTES: usize = 384;

/// The tallest tree: a volume of 2^48 blocks.
pub const HEIGHT_MAX: u8 = 6;

/// Where a volume is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeState {
    /// In use.
    Live,
    /// Being deleted: blocks below the cursor are gone.
    Dropping {
        /// First block not yet dropped.
        cursor: Lba,
    },
}

/// Whose a volume is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VolumeKind {
    /// The hosts'.
    #[default]
    Hosts,
    /// The array's own notebook: the feature [`NOTEBOOK`](crate::generation::NOTEBOOK).
    Notebook,
}

/// One volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Never reused.
    pub id: VolumeId,
    /// Whose.
    pub kind: VolumeKind,
    /// Its name.
    pub name: String,
    /// Its identity for hosts.
    pub uuid: Uuid,
    /// Size in blocks.
    pub blocks: u64,
    /// Blocks stored.
    pub mapped_blocks: u64,
    /// Where in its life.
    pub state: VolumeState,
    /// Levels of its trees above the leaves.
    pub height: u8,
    /// Tree of each shard.
    pub roots: [MapRef; SHARDS],
    /// What it may take at most.
    pub limits: Limits,
}

impl Volume {
    pub(crate) fn encode(&self, w: &mut Writer) {
        let start = w.len();
        w.u32(self.id.0);
        w.u8(self.height);
        let (state, cursor) = match self.state {
            VolumeState::Live => (1, Lba(0)),
            VolumeState::Dropping { cursor } => (2, cursor),
        };
        w.u8(state);
        w.u8(match self.kind {
            VolumeKind::Hosts => 0,
            VolumeKind::Notebook => 1,
        });
        w.zeros(1);
        w.raw(self.uuid.as_bytes());
        w.u64(self.blocks);
        w.u64(self.mapped_blocks);
        w.u64(cursor.0);
        w.text(&self.name, NAME_BYTES);
        for root in self.roots {
            w.raw(RawRef::from(root).as_bytes());
        }
        self.limits.encode(w);
        w.zeros(VOLUME_BYTES - (w.len() - start));
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Volume, FormatError> {
        let before = r.remaining();
        let id = VolumeId(r.u32()?);
        let height = r.u8()?;
        let state = r.u8()?;
        let kind = match r.u8()? {
            0 => VolumeKind::Hosts,
            1 => VolumeKind::Notebook,
            _ => return Err(r.field("volume kind")),
        };
        r.zeros(1, "volume reserved")?;
        let uuid = Uuid::from_bytes(r.array()?);
        let (blocks, mapped_blocks, cursor) = (r.u64()?, r.u64()?, Lba(r.u64()?));
        let state = match (state, cursor.0) {
            (1, 0) => VolumeState::Live,
            (2, _) => VolumeState::Dropping { cursor },
            _ => return Err(r.field("volume state")),
        };
        let name = r.text(NAME_BYTES, "volume name")?;
        let mut roots = [MapRef::Hole; SHARDS];
        for root in &mut roots {
            let raw = RawRef::read_from_bytes(r.raw(16)?).map_err(|_| FormatError::Short("volume"))?;
            *root = raw.verify()?;
        }
        let limits = Limits::decode(r)?;
        r.zeros(VOLUME_BYTES - (before - r.remaining()), "volume reserved")?;
        if height > HEIGHT_MAX || blocks > LBA_LIMIT {
            return Err(r.field("volume size"));
        }
        Ok(Volume { id, kind, name, uuid, blocks, mapped_blocks, state, height, roots, limits })
    }
}
