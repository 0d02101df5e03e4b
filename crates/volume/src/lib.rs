//! A volume of the engine as what exports serve: the one place where engine and exports meet.
//!
//! Invariant: one table from [`array::Fault`] to [`export::Fault`], and no other translation.
//!
//! Not here: volumes over several parts or cores ([`export::Striped`], [`export::remote`]), leases and counters (the server).

use array::{ExtentKind, Op, Volume};
use export::{Answer, Extent, ExtentState, Fault, Namespace, NamespaceInfo, Request};

/// Longest request an export may send: as long as NBD clients expect at least to work.
pub const REQUEST_BYTES_MAX: u32 = 32 << 20;

/// What exports say of a fault of the engine.
pub const fn fault(fault: array::Fault) -> Fault {
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

/// A volume of an engine on this core, as a namespace.
#[derive(Clone)]
pub struct LocalVolume(pub Volume);

impl Namespace for LocalVolume {
    fn info(&self) -> NamespaceInfo {
        let LocalVolume(volume) = self;
        NamespaceInfo {
            uuid: *volume.uuid().as_bytes(),
            description: String::new(),
            name: volume.name(),
            bytes: volume.bytes(),
            min_block: 512,
            preferred_block: base::BLOCK_BYTES as u32,
            max_request: REQUEST_BYTES_MAX,
            read_only: volume.read_only(),
            volatile_cache: volume.volatile_cache(),
        }
    }

    fn apart(&self) -> Self {
        LocalVolume(self.0.apart())
    }

    #[inline]
    async fn submit(&self, request: Request) -> Result<Answer, Fault> {
        let LocalVolume(volume) = self;
        let op = op(&request);
        let timed = volume.begin();
        let done = match request {
            Request::Read { offset, bytes } => volume.read(offset, u64::from(bytes)).await.map(Answer::Data),
            Request::Write { offset, data, fua } => volume.write(offset, data, fua).await.map(|()| Answer::Done),
            Request::Flush => volume.flush().await.map(|()| Answer::Done),
            Request::WriteZeroes { offset, bytes, may_deallocate, fua } => {
                volume.write_zeroes(offset, bytes, may_deallocate, fua).await.map(|()| Answer::Done)
            }
            Request::Deallocate { offset, bytes, fua } => {
                volume.deallocate(offset, bytes, fua).await.map(|()| Answer::Done)
            }
            Request::Extents { offset, bytes, at_most } => {
                volume.extents(offset, bytes, at_most).await.map(|runs| Answer::Extents(extents(runs)))
            }
        };
        timed.end(op, done.as_ref().err().copied());
        done.map_err(fault)
    }
}

/// What of the four a request counts as.
const fn op(request: &Request) -> Op {
    match request {
        Request::Read { .. } | Request::Extents { .. } => Op::Read,
        Request::Write { .. } | Request::WriteZeroes { .. } => Op::Write,
        Request::Flush => Op::Flush,
        Request::Deallocate { .. } => Op::Deallocate,
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
