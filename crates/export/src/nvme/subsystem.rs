//! What is exported: subsystems of namespaces, and who may use them.
//!
//! Invariant: a host that a subsystem does not allow neither connects to it nor sees it in the discovery log.
//!
//! Not here: authentication. A host is believed its name; keep the addresses on networks that you trust.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
};

use super::entry::is_nqn;
use crate::namespace::Namespace;

/// Who may use a subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// Hosts with these qualified names; nobody when there is none.
    Hosts(Vec<String>),
    /// Every host, also one that gives no name.
    Any,
}

impl Default for Access {
    fn default() -> Self {
        Access::Hosts(Vec::new())
    }
}

impl Access {
    /// Whether a host of this name may use it.
    #[must_use]
    pub fn allows(&self, host: &str) -> bool {
        match self {
            Access::Hosts(names) => names.iter().any(|name| name == host),
            Access::Any => true,
        }
    }
}

/// A subsystem as hosts see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subsystem {
    /// Its qualified name, by which hosts find it.
    pub nqn: String,
    /// Its serial number, at most 20 characters of ASCII.
    pub serial: String,
    /// Its model, at most 40 characters of ASCII.
    pub model: String,
    /// Who may use it.
    pub access: Access,
}

/// What the health log says of a subsystem.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Its redundancy is reduced.
    pub degraded: bool,
    /// It takes no writes, though it should.
    pub frozen: bool,
}

/// What tells whether anything of a subsystem has changed, without a look at its namespaces. The default is that of one
/// that is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Moves when a namespace comes, goes, or is another one under its number, and when what it tells of itself changes;
    /// and never comes back to a value that it had.
    pub namespaces: (u64, u64),
    /// Its health.
    pub health: Health,
}

/// The subsystems that a server exports.
pub trait Subsystems: Clone + 'static {
    /// Their namespaces.
    type N: Namespace;

    /// All of them, in the order to show them.
    fn all(&self) -> Vec<Subsystem>;

    /// The namespaces of one by their identifiers, from 1 to [`super::limits::NSID_MAX`]; none when it is gone. An
    /// identifier belongs to the same namespace for ever.
    fn namespaces(&self, nqn: &str) -> BTreeMap<u32, Self::N>;

    /// The mark of one: cheap to ask for, however many namespaces it has. They are looked at only when it has moved.
    fn mark(&self, nqn: &str) -> Mark;
}

/// Subsystems in a list: for a known set, for tests and demonstrations. Clones share the list.
pub struct SubsystemList<N> {
    all: Rc<RefCell<BTreeMap<String, Listed<N>>>>,
    /// Changes of any of them.
    changes: Rc<Cell<u64>>,
}

struct Listed<N> {
    subsystem: Subsystem,
    namespaces: BTreeMap<u32, N>,
    mark: Cell<Mark>,
}

impl<N> Clone for SubsystemList<N> {
    fn clone(&self) -> Self {
        SubsystemList { all: self.all.clone(), changes: self.changes.clone() }
    }
}

impl<N: Namespace> Default for SubsystemList<N> {
    fn default() -> Self {
        SubsystemList { all: Rc::default(), changes: Rc::default() }
    }
}

impl<N: Namespace> SubsystemList<N> {
    /// Adds a subsystem without namespaces.
    ///
    /// # Panics
    /// When its name is no qualified name.
    pub fn add(&self, nqn: &str, access: Access) {
        assert!(is_nqn(nqn), "{nqn:?} is not an NVMe qualified name");
        let subsystem = Subsystem { nqn: nqn.to_owned(), serial: "1".to_owned(), model: "Ashlar".to_owned(), access };
        let listed = Listed { subsystem, namespaces: BTreeMap::new(), mark: Cell::default() };
        self.change(&listed);
        self.all.borrow_mut().insert(nqn.to_owned(), listed);
    }

    /// Moves the mark of one.
    fn change(&self, listed: &Listed<N>) {
        self.changes.set(self.changes.get() + 1);
        listed.mark.set(Mark { namespaces: (self.changes.get(), 0), ..listed.mark.get() });
    }

    /// Puts a namespace into a subsystem; hosts learn of it.
    ///
    /// # Panics
    /// When there is no such subsystem.
    pub fn attach(&self, nqn: &str, nsid: u32, namespace: N) {
        let mut all = self.all.borrow_mut();
        let listed = all.get_mut(nqn).expect("a subsystem of the list");
        listed.namespaces.insert(nsid, namespace);
        self.change(listed);
    }

    /// Takes a namespace out of a subsystem; hosts learn of it.
    pub fn detach(&self, nqn: &str, nsid: u32) {
        if let Some(listed) = self.all.borrow_mut().get_mut(nqn) {
            listed.namespaces.remove(&nsid);
            self.change(listed);
        }
    }

    /// Removes a subsystem. Controllers stay, without namespaces.
    pub fn remove(&self, nqn: &str) {
        self.all.borrow_mut().remove(nqn);
    }

    /// Says how a subsystem is.
    pub fn set_health(&self, nqn: &str, health: Health) {
        if let Some(listed) = self.all.borrow().get(nqn) {
            listed.mark.set(Mark { health, ..listed.mark.get() });
        }
    }
}

impl<N: Namespace> Subsystems for SubsystemList<N> {
    type N = N;

    fn all(&self) -> Vec<Subsystem> {
        self.all.borrow().values().map(|l| l.subsystem.clone()).collect()
    }

    fn namespaces(&self, nqn: &str) -> BTreeMap<u32, N> {
        self.all.borrow().get(nqn).map(|l| l.namespaces.clone()).unwrap_or_default()
    }

    fn mark(&self, nqn: &str) -> Mark {
        self.all.borrow().get(nqn).map(|l| l.mark.get()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_allowed_by_default() {
        assert!(!Access::default().allows("nqn.host"));
        assert!(Access::Any.allows("nqn.host"));
        let some = Access::Hosts(vec!["nqn.a".to_owned(), "nqn.b".to_owned()]);
        assert!(some.allows("nqn.b") && !some.allows("nqn.B") && !some.allows("nqn.") && !some.allows(""));
    }
}
