//! How a core reaches the parts of arrays, so that its connections ask each part themselves.
//!
//! ```text
//!   connection -> RoutedVolume -+-> a part on this core: its engine
//!                               +-> a part on another core: messages to that core
//!                               +-> by the first core: volumes with limits, arrays of one part, drives
//! ```
//!
//! Invariants: a volume is near when this core reaches each of its parts, else all of it goes by the first core; one with
//! limits goes by the first core, which counts for all; an array that is closed is in no routing table, so that nothing here
//! keeps its drives.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use array::parts::STRIPE_BYTES;
use export::remote::{Remote, RemoteNamespace};
use export::{Answer, Directory, Either, Fault, Namespace, NamespaceInfo, Request, Striped};
use ondisk::PartOf;
use uuid::Uuid;
use volume::LocalVolume;

use crate::lease::Lease;
use crate::parts::PartVolumes;

/// The routing table of one core. Clones are the same.
#[derive(Clone, Default)]
pub struct RoutingTable(Rc<RefCell<BTreeMap<Uuid, Routes>>>);

/// Those to one array.
#[derive(Default)]
struct Routes {
    /// In their order; none where nothing is known yet.
    parts: Vec<Option<Route>>,
    limited: BTreeSet<Uuid>,
}

/// How this core reaches a part.
#[derive(Clone)]
pub enum Route {
    /// It is on this core.
    Local(PartVolumes),
    /// By messages.
    Remote(Remote),
}

/// What a part has of a volume.
type Piece = Either<Lease<LocalVolume>, RemoteNamespace>;

impl Route {
    /// The volume of this identity.
    async fn open(&self, volume: &str) -> Option<Piece> {
        match self {
            Route::Local(volumes) => volumes.open(volume).await.map(Either::Left),
            Route::Remote(remote) => remote.open(volume).await.map(Either::Right),
        }
    }
}

impl RoutingTable {
    /// Has a route to a part from now on.
    pub fn learn(&self, array: Uuid, part: PartOf, route: Route) {
        let mut all = self.0.borrow_mut();
        let known = all.entry(array).or_default();
        known.parts.resize(usize::from(part.of), None);
        let before = known.parts[usize::from(part.index)].replace(route);
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
    fn arrays(&self) -> Vec<(Uuid, Vec<Route>)> {
        let all = self.0.borrow();
        let whole =
            all.iter().filter_map(|(array, known)| Some((*array, known.parts.iter().cloned().collect::<Option<_>>()?)));
        whole.filter(|(_, parts): &(_, Vec<_>)| !parts.is_empty()).collect()
    }

    /// The volume of this identity, when it is near.
    async fn find(&self, volume: Uuid) -> Option<Near> {
        let tag = volume.to_string();
        for (array, parts) in self.arrays() {
            let mut pieces = vec![];
            for part in &parts {
                let Some(piece) = part.open(&tag).await else { break };
                pieces.push(piece);
            }
            if pieces.len() == parts.len() {
                return Some(Near { routes: self.clone(), array, volume, pieces: Striped::new(pieces, STRIPE_BYTES) });
            }
        }
        None
    }

    fn is_limited(&self, array: Uuid, volume: Uuid) -> bool {
        self.0.borrow().get(&array).is_some_and(|known| known.limited.contains(&volume))
    }
}

/// A volume whose parts this core asks.
struct Near {
    routes: RoutingTable,
    array: Uuid,
    volume: Uuid,
    pieces: Striped<Piece>,
}

/// What the connections of a core are served: what the first core has, by the nearest way.
#[derive(Clone)]
pub struct RoutedDirectory {
    /// All of it.
    pub data_core: Remote,
    /// What is near.
    pub routes: RoutingTable,
}

impl Directory for RoutedDirectory {
    type N = RoutedVolume;

    async fn names(&self) -> Vec<String> {
        self.data_core.names().await
    }

    async fn open(&self, name: &str) -> Option<RoutedVolume> {
        let by_data_core = self.data_core.open(name).await?;
        let near = self.routes.find(Uuid::from_bytes(by_data_core.info().uuid)).await.map(Rc::new);
        Some(RoutedVolume { by_data_core, near })
    }
}

/// A namespace, by the nearest way.
#[derive(Clone)]
pub struct RoutedVolume {
    by_data_core: RemoteNamespace,
    near: Option<Rc<Near>>,
}

impl RoutedVolume {
    /// Whether requests go to its parts from here.
    #[must_use]
    pub fn is_near(&self) -> bool {
        self.pieces().is_some()
    }

    /// Its pieces, when requests may go to them.
    fn pieces(&self) -> Option<&Striped<Piece>> {
        let near = self.near.as_deref()?;
        (!near.routes.is_limited(near.array, near.volume)).then_some(&near.pieces)
    }
}

impl Namespace for RoutedVolume {
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
