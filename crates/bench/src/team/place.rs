//! What a core sees of a volume's part: it is on this core, or on another.
//!
//! Not here: what the bench does not ask for (zeroing, deallocating, extents).

use array::Volume;
use export::remote::RemoteNamespace;
use export::{Answer, Fault, Namespace, NamespaceInfo, Request};

/// One part of a volume.
#[derive(Clone)]
pub enum Place {
    /// On this core.
    Here(Volume),
    /// On another: requests go by messages.
    There(RemoteNamespace),
}

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

    async fn submit(&self, request: Request) -> Result<Answer, Fault> {
        let volume = match self {
            Place::Here(volume) => volume,
            Place::There(part) => return part.submit(request).await,
        };
        let done = match request {
            Request::Read { offset, bytes } => volume.read(offset, u64::from(bytes)).await.map(Answer::Data),
            Request::Write { offset, data, fua } => volume.write(offset, data, fua).await.map(|()| Answer::Done),
            Request::Flush => volume.flush().await.map(|()| Answer::Done),
            Request::WriteZeroes { .. } | Request::Deallocate { .. } | Request::Extents { .. } => {
                unreachable!("the bench reads, writes and flushes")
            }
        };
        done.map_err(fault)
    }
}
