//! A directory that is a list: for a server with a known set of namespaces, for tests and demonstrations.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use crate::namespace::{Directory, Namespace};

/// Namespaces by the name in their `info`. Clones share the list.
#[derive(Clone)]
pub struct Exports<N> {
    all: Rc<RefCell<BTreeMap<String, N>>>,
}

impl<N: Namespace> Exports<N> {
    /// A directory of these; a later one replaces an earlier one of the same name.
    pub fn new(all: impl IntoIterator<Item = N>) -> Self {
        let exports = Exports { all: Rc::default() };
        all.into_iter().for_each(|n| exports.add(n));
        exports
    }

    /// Adds a namespace; new connections see it.
    pub fn add(&self, namespace: N) {
        self.all.borrow_mut().insert(namespace.info().name, namespace);
    }

    /// Removes a namespace; connections that use it keep it.
    pub fn remove(&self, name: &str) -> Option<N> {
        self.all.borrow_mut().remove(name)
    }
}

impl<N: Namespace> Directory for Exports<N> {
    type N = N;

    async fn names(&self) -> Vec<String> {
        self.all.borrow().keys().cloned().collect()
    }

    async fn open(&self, name: &str) -> Option<N> {
        let all = self.all.borrow();
        match name {
            "" if all.len() == 1 => all.values().next().cloned(),
            _ => all.get(name).cloned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::null::Null;

    #[test]
    fn the_empty_name_means_the_only_one() {
        rt::Rt::modelled(1).block_on(async {
            let exports = Exports::new([Null::new("a", 4096)]);
            let opened = async |name| exports.open(name).await.map(|n| n.info().name);
            assert_eq!(opened("").await.as_deref(), Some("a"));
            exports.add(Null::new("b", 4096));
            assert_eq!(opened("").await, None);
            assert_eq!(exports.names().await, ["a", "b"]);
            exports.remove("a");
            assert_eq!(opened("").await.as_deref(), Some("b"));
            assert_eq!(opened("a").await, None);
        });
    }
}
