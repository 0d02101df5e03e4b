//! What people set for an array and its volumes, and how far its scrubs are.

use crate::FormatError;
use crate::bytes::{Reader, Writer};

/// How fast background work goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rate {
    /// Behind hosts' requests.
    Low,
    /// Beside them.
    #[default]
    Medium,
    /// Before them.
    High,
    /// So many bytes a second, at least 1.
    Bytes(u64),
}

/// A scrub: its schedule and how far it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubLine {
    /// From one beginning to the next; 0: not by itself.
    pub every_hours: u32,
    /// The id of the next segment to look at; 0: none is under way.
    pub position: u64,
    /// When the one under way, or the last one, began: seconds since 1970.
    pub started_at: u64,
    /// When the last one ended: seconds since 1970; 0: never.
    pub finished_at: u64,
}

/// What people set for an array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// How fast a rebuild goes.
    pub rebuild: Rate,
    /// Whether it waits.
    pub rebuild_paused: bool,
    /// Patrol reads.
    pub scrub_media: ScrubLine,
    /// Consistency checks.
    pub scrub_parity: ScrubLine,
    /// What a scrub reads at most; 0: what the program thinks right.
    pub scrub_bytes_per_second: u64,
}

/// What the hosts of a volume may take; 0: as much as there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes read and written a second.
    pub bytes_per_second: u64,
    /// Requests a second.
    pub iops: u32,
    /// What may be saved up while little is asked for, in milliseconds at the limit.
    pub burst_ms: u32,
}

impl Settings {
    pub(crate) fn encode(&self, w: &mut Writer) {
        let (kind, rate) = match self.rebuild {
            Rate::Low => (1, 0),
            Rate::Medium => (2, 0),
            Rate::High => (3, 0),
            Rate::Bytes(n) => (4, n),
        };
        w.u64(rate);
        w.u64(self.scrub_bytes_per_second);
        self.scrub_media.encode(w);
        self.scrub_parity.encode(w);
        w.u8(kind);
        w.u8(u8::from(self.rebuild_paused));
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Settings, FormatError> {
        let (rate, scrub_bytes_per_second) = (r.u64()?, r.u64()?);
        let (scrub_media, scrub_parity) = (ScrubLine::decode(r)?, ScrubLine::decode(r)?);
        let rebuild = match (r.u8()?, rate) {
            (1, 0) => Rate::Low,
            (2, 0) => Rate::Medium,
            (3, 0) => Rate::High,
            (4, 1..) => Rate::Bytes(rate),
            _ => return Err(r.field("rebuild rate")),
        };
        let rebuild_paused = match r.u8()? {
            0 => false,
            1 => true,
            _ => return Err(r.field("rebuild paused")),
        };
        Ok(Settings { rebuild, rebuild_paused, scrub_media, scrub_parity, scrub_bytes_per_second })
    }
}

impl ScrubLine {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.position);
        w.u64(self.started_at);
        w.u64(self.finished_at);
        w.u32(self.every_hours);
    }

    fn decode(r: &mut Reader<'_>) -> Result<ScrubLine, FormatError> {
        let (position, started_at, finished_at) = (r.u64()?, r.u64()?, r.u64()?);
        Ok(ScrubLine { every_hours: r.u32()?, position, started_at, finished_at })
    }
}

impl Limits {
    pub(crate) fn encode(&self, w: &mut Writer) {
        w.u64(self.bytes_per_second);
        w.u32(self.iops);
        w.u32(self.burst_ms);
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Limits, FormatError> {
        Ok(Limits { bytes_per_second: r.u64()?, iops: r.u32()?, burst_ms: r.u32()? })
    }
}
