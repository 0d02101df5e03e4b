//! Volumes on loan to exports, in one piece or in parts.
//!
//! Invariants: one table from [`array::Fault`] to [`export::Fault`], and no other translation; a loan ends when its array is
//! closed, also while a host stays connected.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use array::whole::STRIPE_BYTES;
use array::{Array, ExtentKind, Volume};
use base::VolumeId;
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
pub struct Here(pub Volume);

impl Namespace for Here {
    fn info(&self) -> NamespaceInfo {
        let Here(volume) = self;
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
        Here(self.0.apart())
    }

    async fn submit(&self, request: Request) -> Result<Answer, Fault> {
        let Here(volume) = self;
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

/// How the volumes of a part are reached from this core.
#[derive(Clone)]
pub enum Reach {
    /// The part is on this core, too.
    Here(Array),
    /// By letters.
    There(Remote),
}

/// What a part has of a volume.
type PartVolume = Either<Here, Distant>;

/// The volume of a part on another core. It is opened there by the first request: a loan does not wait.
#[derive(Clone)]
struct Distant(Rc<Known>);

struct Known {
    remote: Remote,
    tag: String,
    info: NamespaceInfo,
    open: RefCell<Option<RemoteNamespace>>,
}

impl Distant {
    fn new(remote: Remote, tag: String, info: NamespaceInfo) -> Distant {
        Distant(Rc::new(Known { remote, tag, info, open: RefCell::default() }))
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

impl Namespace for Distant {
    fn info(&self) -> NamespaceInfo {
        self.0.info.clone()
    }

    fn apart(&self) -> Self {
        Distant::new(self.0.remote.clone(), self.0.tag.clone(), self.0.info.clone())
    }

    async fn submit(&self, request: Request) -> Result<Answer, Fault> {
        self.namespace().await?.submit(request).await
    }
}

/// A volume of an array, wherever its parts are.
#[derive(Clone)]
pub struct Handle(Kind);

#[derive(Clone)]
enum Kind {
    /// Of an array in one piece.
    One(Here),
    /// In stripes. The first part's volume keeps the limits, which are those of all parts together.
    Striped(Striped<PartVolume>, Volume),
}

impl Handle {
    /// The volume that is `first` in the first part, and is reached so in the others; none when one of them lacks it.
    #[must_use]
    pub fn of(first: Volume, others: &[Reach]) -> Option<Handle> {
        if others.is_empty() {
            return Some(Handle(Kind::One(Here(first))));
        }
        let (here, tag) = (Here(first.clone()), first.uuid().to_string());
        let info = here.info();
        let other = |reach: &Reach| match reach {
            Reach::Here(array) => Some(Either::Left(Here(array.volume(&tag)?))),
            Reach::There(remote) => Some(Either::Right(Distant::new(remote.clone(), tag.clone(), info.clone()))),
        };
        let others = others.iter().map(other).collect::<Option<Vec<_>>>()?;
        let parts = [Either::Left(here)].into_iter().chain(others).collect();
        Some(Handle(Kind::Striped(Striped::new(parts, STRIPE_BYTES), first)))
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

impl Namespace for Handle {
    fn info(&self) -> NamespaceInfo {
        match &self.0 {
            Kind::One(volume) => volume.info(),
            Kind::Striped(volume, _) => volume.info(),
        }
    }

    fn apart(&self) -> Self {
        Handle(match &self.0 {
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

/// Empty once the array is closed.
type Slot<N> = RefCell<Option<N>>;

/// A namespace of an array, on loan.
#[derive(Clone)]
pub struct Lent<N> {
    slot: Rc<Slot<N>>,
    /// What it was when it was lent.
    known: Rc<NamespaceInfo>,
    /// Of which it is one.
    loans: Weak<RefCell<Lending<N>>>,
}

impl<N: Namespace> Lent<N> {
    fn get(&self) -> Result<N, Fault> {
        self.slot.borrow().clone().ok_or(Fault::Gone)
    }
}

impl<N: Namespace> Namespace for Lent<N> {
    fn info(&self) -> NamespaceInfo {
        self.get().map_or_else(|_| NamespaceInfo { bytes: 0, ..(*self.known).clone() }, |lent| lent.info())
    }

    fn apart(&self) -> Self {
        match (self.get(), self.loans.upgrade()) {
            (Ok(lent), Some(loans)) => Loans(loans).lend(lent.apart()),
            (Ok(_) | Err(_), _) => self.clone(),
        }
    }

    async fn submit(&self, request: Request) -> Result<Answer, Fault> {
        self.get()?.submit(request).await
    }
}

/// What is on loan of one array.
#[derive(Clone)]
pub struct Loans<N>(Rc<RefCell<Lending<N>>>);

struct Lending<N> {
    loans: Vec<Weak<Slot<N>>>,
    /// At so many, those that have ended are forgotten: so a loan costs the same however many there are.
    look_at: usize,
    /// Those of volumes, by the volumes' numbers.
    kept: BTreeMap<VolumeId, Lent<N>>,
}

/// Fewer loans are not gone through.
const LOANS_MIN: usize = 64;

impl<N> Default for Loans<N> {
    fn default() -> Self {
        Loans(Rc::new(RefCell::new(Lending { loans: Vec::new(), look_at: LOANS_MIN, kept: BTreeMap::new() })))
    }
}

impl<N: Namespace> Loans<N> {
    /// Lends it.
    #[must_use]
    pub fn lend(&self, what: N) -> Lent<N> {
        let known = Rc::new(what.info());
        let slot = Rc::new(RefCell::new(Some(what)));
        let mut all = self.0.borrow_mut();
        if all.loans.len() >= all.look_at {
            all.loans.retain(|l| l.strong_count() > 0);
            all.look_at = LOANS_MIN.max(2 * all.loans.len());
        }
        all.loans.push(Rc::downgrade(&slot));
        Lent { slot, known, loans: Rc::downgrade(&self.0) }
    }

    /// Lends all these, and no others by their numbers. One that is on loan as what it still is stays so: it is not lent anew.
    #[must_use]
    pub fn lend_all(&self, all: impl Iterator<Item = (VolumeId, N)>) -> BTreeMap<VolumeId, Lent<N>> {
        let mut before = std::mem::take(&mut self.0.borrow_mut().kept);
        let lend = |(id, what): (VolumeId, N)| {
            let kept = before.remove(&id).filter(|lent| *lent.known == what.info());
            (id, kept.unwrap_or_else(|| self.lend(what)))
        };
        let now: BTreeMap<_, _> = all.map(lend).collect();
        self.0.borrow_mut().kept = now.clone();
        now
    }

    /// Takes everything back.
    pub fn end(&self) {
        let (loans, kept) = {
            let mut all = self.0.borrow_mut();
            (std::mem::take(&mut all.loans), std::mem::take(&mut all.kept))
        };
        drop(kept);
        for lent in loans.iter().filter_map(Weak::upgrade) {
            let taken = lent.take();
            drop(taken);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use export::Memory;

    #[test]
    fn a_loan_is_kept_while_it_is_of_the_same_thing() {
        let loans = Loans::default();
        let (a, b) = (Memory::new("a", 1 << 20), Memory::new("b", 1 << 20));
        let lend = |all: &[(u32, &Memory)]| loans.lend_all(all.iter().map(|(id, m)| (VolumeId(*id), (*m).clone())));
        let first = lend(&[(1, &a), (2, &b)]);
        let again = lend(&[(1, &a), (2, &b)]);
        assert!(first.iter().all(|(id, lent)| Rc::ptr_eq(&lent.slot, &again[id].slot)), "none is lent anew");
        assert_eq!(loans.0.borrow().loans.len(), 2);

        // One that has grown is lent anew, one that is gone is not kept.
        let grown = Memory::new("a", 2 << 20);
        let now = lend(&[(1, &grown)]);
        assert!(!Rc::ptr_eq(&now[&VolumeId(1)].slot, &first[&VolumeId(1)].slot));
        assert_eq!((now[&VolumeId(1)].info().bytes, loans.0.borrow().kept.len()), (2 << 20, 1));

        // All end together, also those of one client.
        let apart = now[&VolumeId(1)].apart();
        assert!(!Rc::ptr_eq(&apart.slot, &now[&VolumeId(1)].slot));
        loans.end();
        for lent in first.values().chain(now.values()).chain([&apart]) {
            assert_eq!((lent.info().bytes, lent.get().err()), (0, Some(Fault::Gone)));
            assert_eq!(lent.apart().get().err(), Some(Fault::Gone));
        }
    }
}
