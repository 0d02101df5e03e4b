//! What a core sees of a volume's part: it is on this core, or on another.
//!
//! Not here: what the bench does not ask for (zeroing, deallocating, extents).

use array::Volume;
use export::remote::RemoteNamespace;
use export::{Extent, Fault, Namespace, NamespaceInfo};
use rt::Bytes;

/// One part of a volume.
#[derive(Clone)]
pub enum Place {
    /// On this core.
    Here(Volume),
    /// On another: requests go by letters.
    There(RemoteNamespace),
}

const NOT_ASKED: &str = "the bench reads, writes and flushes";

const fn fault(fault: array::Fault) -> Fault {
    match fault {
        array::Fault::Medium => Fault::Medium,
        array::Fault::NoSpace | array::Fault::NoRoom => Fault::NoSpace,
        array::Fault::ReadOnly => Fault::ReadOnly,
        array::Fault::OutOfRange => Fault::OutOfRange,
        array::Fault::Misaligned => Fault::Misaligned,
        array::Fault::Frozen | array::Fault::TakenOver => Fault::Unavailable,
        array::Fault::Closed => Fault::Gone,
    }
}

impl Namespace for Place {
    fn info(&self) -> NamespaceInfo {
        match self {
            Place::Here(volume) => NamespaceInfo {
                name: volume.name(),
                uuid: *volume.uuid().as_bytes(),
                bytes: volume.bytes(),
                min_block: array::volume::SECTOR_BYTES as u32,
                preferred_block: base::BLOCK_BYTES as u32,
                // Nobody but the bench is told, which does not ask.
                max_request: u32::MAX,
                read_only: volume.read_only(),
                volatile_cache: volume.volatile_cache(),
                description: String::new(),
            },
            Place::There(part) => part.info(),
        }
    }

    async fn read(&self, offset: u64, bytes: u32) -> Result<Vec<Bytes>, Fault> {
        match self {
            Place::Here(volume) => volume.read(offset, u64::from(bytes)).await.map_err(fault),
            Place::There(part) => part.read(offset, bytes).await,
        }
    }

    async fn write(&self, offset: u64, data: Bytes, fua: bool) -> Result<(), Fault> {
        match self {
            Place::Here(volume) => volume.write(offset, data, fua).await.map_err(fault),
            Place::There(part) => part.write(offset, data, fua).await,
        }
    }

    async fn flush(&self) -> Result<(), Fault> {
        match self {
            Place::Here(volume) => volume.flush().await.map_err(fault),
            Place::There(part) => part.flush().await,
        }
    }

    async fn write_zeroes(&self, _: u64, _: u64, _: bool, _: bool) -> Result<(), Fault> {
        unreachable!("{NOT_ASKED}")
    }

    async fn deallocate(&self, _: u64, _: u64, _: bool) -> Result<(), Fault> {
        unreachable!("{NOT_ASKED}")
    }

    async fn extents(&self, _: u64, _: u64, _: usize) -> Result<Vec<Extent>, Fault> {
        unreachable!("{NOT_ASKED}")
    }
}
