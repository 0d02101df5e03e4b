//! What a core knows of the parts of arrays, so that its connections ask each part themselves.
//!
//! ```text
//!   connection -> NearVolume -+-> a part on this core: its engine
//!                             +-> a part on another core: letters to that core
//!                             +-> by the data core: volumes with limits, arrays in one piece, drives
//! ```
//!
//! Invariants: a volume is near when each of its parts is, else all of it goes by the data core; one with limits goes by
//! the data core, which counts for all; an array that is closed is on no board, so that nothing here keeps its drives.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use array::whole::STRIPE_BYTES;
use export::remote::{Remote, RemoteNamespace};
use export::{Answer, Directory, Either, Fault, Namespace, NamespaceInfo, Request, Striped};
use ondisk::PartOf;
use uuid::Uuid;

use crate::parts::PartVolumes;
use crate::volumes::{Here, Lent};

/// The board of one core. Clones are the same.
#[derive(Clone, Default)]
pub struct Board(Rc<RefCell<BTreeMap<Uuid, Known>>>);

/// What is known of an array.
#[derive(Default)]
struct Known {
    /// In their order; none where nothing is known yet.
    parts: Vec<Option<Reached>>,
    limited: BTreeSet<Uuid>,
}

/// How a part is reached from this core.
#[derive(Clone)]
pub enum Reached {
    /// It is here.
    Here(PartVolumes),
    /// By letters.
    There(Remote),
}

/// What a part has of a volume.
type Piece = Either<Lent<Here>, RemoteNamespace>;

impl Reached {
    /// The volume of this identity.
    async fn open(&self, volume: &str) -> Option<Piece> {
        match self {
            Reached::Here(volumes) => volumes.open(volume).await.map(Either::Left),
            Reached::There(remote) => remote.open(volume).await.map(Either::Right),
        }
    }
}

impl Board {
    /// Knows how a part is reached, from now on.
    pub fn learn(&self, array: Uuid, part: PartOf, reached: Reached) {
        let mut all = self.0.borrow_mut();
        let known = all.entry(array).or_default();
        known.parts.resize(usize::from(part.of), None);
        let before = known.parts[usize::from(part.index)].replace(reached);
        drop(all);
        drop(before);
    }

    /// Knows which volumes of an array have limits, from now on.
    pub fn limit(&self, array: Uuid, limited: BTreeSet<Uuid>) {
        self.0.borrow_mut().entry(array).or_default().limited = limited;
    }

    /// Knows nothing of it any more.
    pub fn forget(&self, array: Uuid) {
        let known = self.0.borrow_mut().remove(&array);
        drop(known);
    }

    /// The arrays whose parts are all known, with them.
    fn arrays(&self) -> Vec<(Uuid, Vec<Reached>)> {
        let all = self.0.borrow();
        let whole =
            all.iter().filter_map(|(array, known)| Some((*array, known.parts.iter().cloned().collect::<Option<_>>()?)));
        whole.filter(|(_, parts): &(_, Vec<_>)| !parts.is_empty()).collect()
    }

    /// The volume of this identity, when all of it is near.
    async fn find(&self, volume: Uuid) -> Option<Near> {
        let tag = volume.to_string();
        for (array, parts) in self.arrays() {
            let mut pieces = vec![];
            for part in &parts {
                let Some(piece) = part.open(&tag).await else { break };
                pieces.push(piece);
            }
            if pieces.len() == parts.len() {
                return Some(Near { board: self.clone(), array, volume, pieces: Striped::new(pieces, STRIPE_BYTES) });
            }
        }
        None
    }

    fn is_limited(&self, array: Uuid, volume: Uuid) -> bool {
        self.0.borrow().get(&array).is_some_and(|known| known.limited.contains(&volume))
    }
}

/// A volume whose parts are asked from here.
struct Near {
    board: Board,
    array: Uuid,
    volume: Uuid,
    pieces: Striped<Piece>,
}

/// What the connections of a core are served: what the data core has, by the nearest way.
#[derive(Clone)]
pub struct NearDirectory {
    /// All of it.
    pub data_core: Remote,
    /// What is near.
    pub board: Board,
}

impl Directory for NearDirectory {
    type N = NearVolume;

    async fn names(&self) -> Vec<String> {
        self.data_core.names().await
    }

    async fn open(&self, name: &str) -> Option<NearVolume> {
        let by_data_core = self.data_core.open(name).await?;
        let near = self.board.find(Uuid::from_bytes(by_data_core.info().uuid)).await.map(Rc::new);
        Some(NearVolume { by_data_core, near })
    }
}

/// A namespace, by the nearest way.
#[derive(Clone)]
pub struct NearVolume {
    by_data_core: RemoteNamespace,
    near: Option<Rc<Near>>,
}

impl NearVolume {
    /// Whether requests go to its parts from here.
    #[must_use]
    pub fn is_near(&self) -> bool {
        self.pieces().is_some()
    }

    /// Its pieces, when requests may go to them.
    fn pieces(&self) -> Option<&Striped<Piece>> {
        let near = self.near.as_deref()?;
        (!near.board.is_limited(near.array, near.volume)).then_some(&near.pieces)
    }
}

impl Namespace for NearVolume {
    fn info(&self) -> NamespaceInfo {
        self.by_data_core.info()
    }

    async fn submit(&self, request: Request) -> Result<Answer, Fault> {
        match self.pieces() {
            Some(pieces) => pieces.submit(request).await,
            None => self.by_data_core.submit(request).await,
        }
    }
}
