//! Leases of an array's namespaces to exports.
//!
//! Invariant: a lease ends when its array is closed, also while a host stays connected.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use base::VolumeId;
use export::{Answer, Fault, Namespace, NamespaceInfo, Request};

/// Empty once the array is closed.
type Slot<N> = RefCell<Option<N>>;

/// A namespace of an array until the array is closed.
#[derive(Clone)]
pub struct Lease<N> {
    slot: Rc<Slot<N>>,
    /// What it was when the lease began.
    known: Rc<NamespaceInfo>,
    /// All of its array.
    leases: Weak<RefCell<Granted<N>>>,
}

impl<N: Namespace> Lease<N> {
    fn get(&self) -> Result<N, Fault> {
        self.slot.borrow().clone().ok_or(Fault::Gone)
    }
}

impl<N: Namespace> Namespace for Lease<N> {
    fn info(&self) -> NamespaceInfo {
        self.get().map_or_else(|_| NamespaceInfo { bytes: 0, ..(*self.known).clone() }, |leased| leased.info())
    }

    fn apart(&self) -> Self {
        match (self.get(), self.leases.upgrade()) {
            (Ok(leased), Some(leases)) => Leases(leases).lease(leased.apart()),
            (Ok(_) | Err(_), _) => self.clone(),
        }
    }

    async fn submit(&self, request: Request) -> Result<Answer, Fault> {
        self.get()?.submit(request).await
    }
}

/// The leases of one array.
#[derive(Clone)]
pub struct Leases<N>(Rc<RefCell<Granted<N>>>);

struct Granted<N> {
    leases: Vec<Weak<Slot<N>>>,
    /// At so many, those that have ended are forgotten: so a lease costs the same however many there are.
    look_at: usize,
    /// Those of volumes, by the volumes' numbers.
    kept: BTreeMap<VolumeId, Lease<N>>,
}

/// Fewer leases are not gone through.
const LEASES_MIN: usize = 64;

impl<N> Default for Leases<N> {
    fn default() -> Self {
        Leases(Rc::new(RefCell::new(Granted { leases: Vec::new(), look_at: LEASES_MIN, kept: BTreeMap::new() })))
    }
}

impl<N: Namespace> Leases<N> {
    /// A new lease.
    #[must_use]
    pub fn lease(&self, what: N) -> Lease<N> {
        let known = Rc::new(what.info());
        let slot = Rc::new(RefCell::new(Some(what)));
        let mut all = self.0.borrow_mut();
        if all.leases.len() >= all.look_at {
            all.leases.retain(|l| l.strong_count() > 0);
            all.look_at = LEASES_MIN.max(2 * all.leases.len());
        }
        all.leases.push(Rc::downgrade(&slot));
        Lease { slot, known, leases: Rc::downgrade(&self.0) }
    }

    /// Leases of all these, and of no others by their numbers. A lease of what has not changed is kept: it is not given anew.
    #[must_use]
    pub fn lease_all(&self, all: impl Iterator<Item = (VolumeId, N)>) -> BTreeMap<VolumeId, Lease<N>> {
        let mut before = std::mem::take(&mut self.0.borrow_mut().kept);
        let lease = |(id, what): (VolumeId, N)| {
            let kept = before.remove(&id).filter(|lease| *lease.known == what.info());
            (id, kept.unwrap_or_else(|| self.lease(what)))
        };
        let now: BTreeMap<_, _> = all.map(lease).collect();
        self.0.borrow_mut().kept = now.clone();
        now
    }

    /// Ends all of them.
    pub fn end(&self) {
        let (leases, kept) = {
            let mut all = self.0.borrow_mut();
            (std::mem::take(&mut all.leases), std::mem::take(&mut all.kept))
        };
        drop(kept);
        for slot in leases.iter().filter_map(Weak::upgrade) {
            let taken = slot.take();
            drop(taken);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use export::Memory;

    #[test]
    fn a_lease_is_kept_while_it_is_of_the_same_thing() {
        let leases = Leases::default();
        let (a, b) = (Memory::new("a", 1 << 20), Memory::new("b", 1 << 20));
        let lease = |all: &[(u32, &Memory)]| leases.lease_all(all.iter().map(|(id, m)| (VolumeId(*id), (*m).clone())));
        let first = lease(&[(1, &a), (2, &b)]);
        let again = lease(&[(1, &a), (2, &b)]);
        assert!(first.iter().all(|(id, lease)| Rc::ptr_eq(&lease.slot, &again[id].slot)), "none is given anew");
        assert_eq!(leases.0.borrow().leases.len(), 2);

        // One that has grown has a new lease, one that is gone is not kept.
        let grown = Memory::new("a", 2 << 20);
        let now = lease(&[(1, &grown)]);
        assert!(!Rc::ptr_eq(&now[&VolumeId(1)].slot, &first[&VolumeId(1)].slot));
        assert_eq!((now[&VolumeId(1)].info().bytes, leases.0.borrow().kept.len()), (2 << 20, 1));

        // All end together, also those of one client.
        let apart = now[&VolumeId(1)].apart();
        assert!(!Rc::ptr_eq(&apart.slot, &now[&VolumeId(1)].slot));
        leases.end();
        for lease in first.values().chain(now.values()).chain([&apart]) {
            assert_eq!((lease.info().bytes, lease.get().err()), (0, Some(Fault::Gone)));
            assert_eq!(lease.apart().get().err(), Some(Fault::Gone));
        }
    }
}
