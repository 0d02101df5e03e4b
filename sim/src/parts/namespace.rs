//! What a volume is in one part, as the namespace that requests are dealt to; and the bug that can be planted in it.
//!
//! Not here: the dealing, which is what the server does it with ([`export::Striped`]).

use std::cell::Cell;

use array::{ExtentKind, Volume};
use export::{Answer, Extent, ExtentState, Fault, Namespace, NamespaceInfo, Request};

/// The name of the planted bug: a flush leaves out the last part.
pub const PART_NOT_FLUSHED: &str = "PartNotFlushed";

thread_local! {
    static PART_NOT_FLUSHED_IS_PLANTED: Cell<bool> = const { Cell::new(false) };
}

/// Plants it in this thread, or not.
pub fn plant_part_not_flushed(planted: bool) {
    PART_NOT_FLUSHED_IS_PLANTED.set(planted);
}

/// A volume's share of one part.
#[derive(Clone)]
pub struct Share {
    /// There.
    pub volume: Volume,
    /// Whether this is the last part.
    pub last: bool,
}

fn fault(fault: array::Fault) -> Fault {
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

impl Namespace for Share {
    fn info(&self) -> NamespaceInfo {
        NamespaceInfo {
            name: self.volume.name(),
            uuid: *self.volume.uuid().as_bytes(),
            bytes: self.volume.bytes(),
            min_block: 512,
            preferred_block: 4096,
            max_request: 1 << 24,
            read_only: self.volume.read_only(),
            volatile_cache: self.volume.volatile_cache(),
            description: String::new(),
        }
    }

    async fn submit(&self, request: Request) -> Result<Answer, Fault> {
        let done = match request {
            Request::Read { offset, bytes } => self.volume.read(offset, u64::from(bytes)).await.map(Answer::Data),
            Request::Write { offset, data, fua } => self.volume.write(offset, data, fua).await.map(|()| Answer::Done),
            Request::Flush if self.last && PART_NOT_FLUSHED_IS_PLANTED.get() => Ok(Answer::Done),
            Request::Flush => self.volume.flush().await.map(|()| Answer::Done),
            Request::WriteZeroes { offset, bytes, may_deallocate, fua } => {
                self.volume.write_zeroes(offset, bytes, may_deallocate, fua).await.map(|()| Answer::Done)
            }
            Request::Deallocate { offset, bytes, fua } => {
                self.volume.deallocate(offset, bytes, fua).await.map(|()| Answer::Done)
            }
            Request::Extents { offset, bytes, at_most } => {
                self.volume.extents(offset, bytes, at_most).await.map(|runs| Answer::Extents(extents(runs)))
            }
        };
        done.map_err(fault)
    }
}

fn extents(runs: Vec<(u64, ExtentKind)>) -> Vec<Extent> {
    let state = |kind| match kind {
        ExtentKind::Allocated => ExtentState::Allocated,
        ExtentKind::Hole => ExtentState::Hole,
        ExtentKind::Zero => ExtentState::Zero,
    };
    runs.into_iter().map(|(bytes, kind)| Extent { bytes, state: state(kind) }).collect()
}
