//! What is exported of a subsystem, as all its controllers see it.
//!
//! Invariant: the namespaces are looked at when the subsystem's mark has moved, once for all controllers; so those that
//! are idle cost nothing, however many they are and however many namespaces there are.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use super::Common;
use crate::{
    counters::Live,
    namespace::{Namespace, NamespaceInfo},
    nvme::{
        limits::NSID_MAX,
        subsystem::{Mark, Subsystems},
    },
};

/// A namespace as hosts know it.
pub struct Attached<N> {
    /// The namespace.
    pub namespace: N,
    /// What hosts were told.
    pub info: NamespaceInfo,
    /// Its counters.
    pub live: Rc<Live>,
}

impl<N: Namespace> Attached<N> {
    /// The same for one host.
    pub fn apart(&self) -> Attached<N> {
        Attached { namespace: self.namespace.apart(), info: self.info.clone(), live: self.live.clone() }
    }
}

/// The namespaces by their identifiers.
type Namespaces<N> = BTreeMap<u32, Rc<Attached<N>>>;

/// A subsystem at one moment.
pub struct View<N> {
    /// Its mark then.
    pub mark: Mark,
    /// Its namespaces.
    pub namespaces: Rc<Namespaces<N>>,
}

impl<N> Default for View<N> {
    fn default() -> Self {
        View { mark: Mark::default(), namespaces: Rc::default() }
    }
}

impl<N> View<N> {
    /// The namespaces that hosts have to look at again, who know this and see the other from now on.
    pub fn differences(&self, now: &View<N>) -> BTreeSet<u32> {
        let (before, now) = (&self.namespaces, &now.namespaces);
        if Rc::ptr_eq(before, now) {
            return BTreeSet::new();
        }
        let is_same = |nsid: &u32| match (before.get(nsid), now.get(nsid)) {
            (Some(a), Some(b)) => {
                a.info.uuid == b.info.uuid && a.info.bytes == b.info.bytes && a.info.read_only == b.info.read_only
            }
            (None | Some(_), None) | (None, Some(_)) => false,
        };
        before.keys().chain(now.keys()).filter(|nsid| !is_same(nsid)).copied().collect()
    }
}

/// The last view of each subsystem that has controllers.
pub struct Views<N>(RefCell<BTreeMap<String, Rc<View<N>>>>);

impl<N> Default for Views<N> {
    fn default() -> Self {
        Views(RefCell::default())
    }
}

impl<N> Views<N> {
    /// That of one, as it was looked at last.
    pub fn last(&self, nqn: &str) -> Option<Rc<View<N>>> {
        self.0.borrow().get(nqn).cloned()
    }

    /// Those of subsystems that have controllers; the others are forgotten.
    pub fn keep(&self, used: &BTreeSet<String>) {
        self.0.borrow_mut().retain(|nqn, _| used.contains(nqn));
    }
}

impl<S: Subsystems> Common<S> {
    /// A subsystem as it is now: what was seen last while that holds.
    pub fn view(&self, nqn: &str) -> Rc<View<S::N>> {
        let last = self.views.last(nqn);
        let mark = self.subsystems.mark(nqn);
        if let Some(last) = last.as_ref().filter(|last| last.mark == mark) {
            return last.clone();
        }
        let namespaces = match last.filter(|last| last.mark.namespaces == mark.namespaces) {
            Some(last) => last.namespaces.clone(),
            None => Rc::new(self.look(nqn)),
        };
        let view = Rc::new(View { mark, namespaces });
        self.views.0.borrow_mut().insert(nqn.to_owned(), view.clone());
        view
    }

    fn look(&self, nqn: &str) -> Namespaces<S::N> {
        let attached = |(nsid, namespace): (u32, S::N)| {
            let info = namespace.info();
            let live = self.counters.borrow_mut().entry(info.name.clone()).or_default().clone();
            (nsid, Rc::new(Attached { namespace, info, live }))
        };
        let all = self.subsystems.namespaces(nqn);
        all.into_iter().filter(|(nsid, _)| (1..=NSID_MAX).contains(nsid)).map(attached).collect()
    }
}
