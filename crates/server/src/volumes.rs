//! Volumes as namespaces, of one engine or in stripes over the parts of an array.

use std::cell::RefCell;
use std::rc::Rc;

use array::parts::STRIPE_BYTES;
use array::{Array, Volume};
use export::remote::{Remote, RemoteNamespace};
use export::{Answer, Directory, Either, Fault, Namespace, NamespaceInfo, Request, Striped};
use volume::{LocalVolume, fault};

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
