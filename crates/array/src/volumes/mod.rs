//! All volumes of an array: what each is, its limits, and its share of what is in flight.

pub mod counters;
pub mod quota;
pub mod share;
pub mod tree;
pub mod vol;

use std::cell::{Cell, Ref, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use base::VolumeId;

use crate::canary::{Canary, planted};
use crate::ctx::Context;
use crate::member::Members;
use share::Shares;
use vol::Vol;

/// All volumes of an array.
pub struct Volumes {
    by_id: RefCell<BTreeMap<VolumeId, Rc<Vol>>>,
    /// The next volume's id.
    next: Cell<u32>,
    /// Handles on volumes that were given out: each is a client.
    clients: Cell<u64>,
    /// How often what hosts see of the volumes has changed since the open.
    changes: Cell<u64>,
    shares: Shares,
    ctx: Rc<Context>,
    members: Rc<Members>,
}

impl Volumes {
    /// None yet.
    pub fn new(members: &Rc<Members>) -> Rc<Volumes> {
        Rc::new(Volumes {
            by_id: RefCell::default(),
            next: Cell::new(1),
            clients: Cell::default(),
            changes: Cell::default(),
            shares: Shares::default(),
            ctx: members.ctx().clone(),
            members: members.clone(),
        })
    }

    /// All by id; not across an `.await`.
    #[inline]
    pub fn all(&self) -> Ref<'_, BTreeMap<VolumeId, Rc<Vol>>> {
        self.by_id.borrow()
    }

    /// One of them.
    #[inline]
    pub fn get(&self, id: VolumeId) -> Option<Rc<Vol>> {
        self.all().get(&id).cloned()
    }

    /// One that exists.
    pub fn existing(&self, id: VolumeId) -> Rc<Vol> {
        self.get(id).expect("a volume with blocks is known")
    }

    /// The next id to be given out.
    pub fn next(&self) -> u32 {
        self.next.get()
    }

    /// Ids from `next` on are given out; never fewer than before.
    pub fn begin_at(&self, next: u32) {
        self.next.set(self.next().max(next));
    }

    /// Gives out an id.
    pub fn give_id(&self) -> VolumeId {
        let reused = planted(Canary::VolumeIdReused) && self.all().is_empty();
        let id = VolumeId(if reused { 1 } else { self.next() });
        self.next.set(id.0 + 1);
        id
    }

    /// Another volume.
    pub fn add(&self, vol: Vol) {
        self.by_id.borrow_mut().insert(vol.id, Rc::new(vol));
    }

    /// Forgets those that are deleted and of which nothing is left.
    pub fn forget_gone(&self) {
        self.by_id.borrow_mut().retain(|_, v| !v.is_gone());
    }

    /// The number of another client.
    pub fn next_client(&self) -> u64 {
        let client = self.clients.get();
        self.clients.set(client + 1);
        client
    }

    /// How often what hosts see has changed since the open.
    pub fn changes(&self) -> u64 {
        self.changes.get()
    }

    /// Hosts see other volumes than before, or the same with another name or size.
    pub fn have_changed(&self) {
        self.changes.set(self.changes() + 1);
    }
}
