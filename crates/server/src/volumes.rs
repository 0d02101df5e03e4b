//! Volumes as namespaces, of one engine or in stripes over the parts of an array.
//!
//! Invariant: one table from [`array::Fault`] to [`export::Fault`], and no other translation.

use std::cell::RefCell;
use std::rc::Rc;

use array::whole::STRIPE_BYTES;
use array::{Array, ExtentKind, Volume};
use export::remote::{Remote, RemoteNamespace};
use export::{Answer, Directory, Either, Extent, ExtentState, Fault, Namespace, NamespaceInfo, Request, Striped};

/// Longest request an export may send: as long as NBD clients expect at least to work.
pub const REQUEST_BYTES_MAX: u32 = 32 << 20;

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

    async fn submit(&self, request: Request) -> Result<Answer, Fault> {
        let LocalVolume(volume) = self;
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

/// How this core reaches the volumes of a part.
#[derive(Clone)]
pub enum PartAccess {
    /// The part is on this core.
    Local(Array),
    /// It is on another: by messages.
    Remote(Remote),
}

/// What a part has of a volume.
type PartVolume = Either<LocalVolume, RemoteVolume>;

/// The volume of a part on another core. The first request opens it there: a lease is given at once.
#[derive(Clone)]
struct RemoteVolume(Rc<Remotely>);

struct Remotely {
    remote: Remote,
    tag: String,
    info: NamespaceInfo,
    open: RefCell<Option<RemoteNamespace>>,
}

impl RemoteVolume {
    fn new(remote: Remote, tag: String, info: NamespaceInfo) -> RemoteVolume {
        RemoteVolume(Rc::new(Remotely { remote, tag, info, open: RefCell::default() }))
    }

    async fn namespace(&self) -> Result<RemoteNamespace, Fault> {
        let known = &*self.0;
        if let Some(open) = &*known.open.borrow() {
            return Ok(open.clone());
        }
        let opened = known.remote.open(&known.tag).await.ok_or(Fault::Gone)?;
        *known.open.borrow_mut() = Some(opened.clone());
        Ok(opened)
    }
}

impl Namespace for RemoteVolume {
    fn info(&self) -> NamespaceInfo {
        self.0.info.clone()
    }

    fn apart(&self) -> Self {
        RemoteVolume::new(self.0.remote.clone(), self.0.tag.clone(), self.0.info.clone())
    }

    async fn submit(&self, request: Request) -> Result<Answer, Fault> {
        self.namespace().await?.submit(request).await
    }
}

/// A volume of an array, wherever its parts are.
#[derive(Clone)]
pub struct ArrayVolume(Kind);

#[derive(Clone)]
enum Kind {
    /// Of an array in one piece.
    One(LocalVolume),
    /// In stripes. The first part's volume keeps the limits, which are those of all parts together.
    Striped(Striped<PartVolume>, Volume),
}

impl ArrayVolume {
    /// The volume that is `first` in the first part, and that `others` have; none when one of them lacks it.
    #[must_use]
    pub fn of(first: Volume, others: &[PartAccess]) -> Option<ArrayVolume> {
        if others.is_empty() {
            return Some(ArrayVolume(Kind::One(LocalVolume(first))));
        }
        let (local, tag) = (LocalVolume(first.clone()), first.uuid().to_string());
        let info = local.info();
        let other = |reach: &PartAccess| match reach {
            PartAccess::Local(array) => Some(Either::Left(LocalVolume(array.volume(&tag)?))),
            PartAccess::Remote(remote) => {
                Some(Either::Right(RemoteVolume::new(remote.clone(), tag.clone(), info.clone())))
            }
        };
        let others = others.iter().map(other).collect::<Option<Vec<_>>>()?;
        let parts = [Either::Left(local)].into_iter().chain(others).collect();
        Some(ArrayVolume(Kind::Striped(Striped::new(parts, STRIPE_BYTES), first)))
    }
}

/// Bytes that a request counts for in the limits; none: it is not counted.
fn counted(request: &Request) -> Option<u64> {
    match request {
        Request::Read { bytes, .. } => Some(u64::from(*bytes)),
        Request::Write { data, .. } => Some(data.len() as u64),
        Request::WriteZeroes { .. } | Request::Deallocate { .. } => Some(0),
        Request::Flush | Request::Extents { .. } => None,
    }
}

impl Namespace for ArrayVolume {
    fn info(&self) -> NamespaceInfo {
        match &self.0 {
            Kind::One(volume) => volume.info(),
            Kind::Striped(volume, _) => volume.info(),
        }
    }

    fn apart(&self) -> Self {
        ArrayVolume(match &self.0 {
            Kind::One(volume) => Kind::One(volume.apart()),
            Kind::Striped(volume, first) => Kind::Striped(volume.apart(), first.clone()),
        })
    }

    async fn submit(&self, request: Request) -> Result<Answer, Fault> {
        match &self.0 {
            Kind::One(volume) => volume.submit(request).await,
            Kind::Striped(volume, first) => {
                // Parts do not ask for themselves.
                if let Some(bytes) = counted(&request) {
                    first.within_limits(bytes).await.map_err(fault)?;
                }
                volume.submit(request).await
            }
        }
    }
}
