//! An array that is being served gets another name.
//!
//! Invariant: no other array is served under the new name meanwhile.

use std::rc::Rc;

use api::{Done, EventCode, Problem};

use super::Data;
use crate::ops::open::Opened;
use crate::ops::rename;
use crate::problem::name_taken;

/// A name that an array is about to get.
struct Promise(Rc<Data>, String);

impl Drop for Promise {
    fn drop(&mut self) {
        self.0.promised.borrow_mut().remove(&self.1);
    }
}

impl Data {
    /// Whether an array is called so here, or is about to be.
    pub(super) fn has_name(&self, name: &str) -> bool {
        self.served.borrow().contains_key(name) || self.promised.borrow().contains(name)
    }

    /// Calls a served array `to`: it is served, its events are told and its block devices are named so from then on.
    ///
    /// # Errors
    /// When another array is served here, or should be, under this name; and those of [`rename::run`].
    pub async fn rename(self: &Rc<Self>, opened: &Opened, to: &str) -> Result<Done, Problem> {
        let first = opened.array.first();
        if first.name() != to {
            if self.has_name(to) || self.absent.borrow().contains_key(to) {
                return Err(name_taken(to));
            }
            self.promised.borrow_mut().insert(to.to_owned());
        }
        let _promise = Promise(self.clone(), to.to_owned());
        let renamed = rename::run(&self.world, opened, to).await;
        // Also where the list of known arrays could not be written: the array itself says how it is called.
        let (Some(from), now) = (self.served_name(opened), first.name()) else { return renamed };
        if from == now {
            return renamed;
        }
        self.served.borrow_mut().remove(&from);
        self.served.borrow_mut().insert(now.clone(), opened.clone());
        let writing = self.notebooks.borrow_mut().remove(&from);
        self.notebooks.borrow_mut().extend(writing.map(|writing| (now.clone(), writing)));
        self.journal.rename_array(&from, &now);
        // A core that has ended has nothing to tell.
        let _ended = opened.array.listen(self.journal.listener(&now)).await;
        first.note(EventCode::ArrayRenamed, &format!("it was {from} before"));
        for volume in first.live_volumes() {
            self.rename_device(opened, volume.uuid()).await;
        }
        renamed
    }

    /// The name under which this open of an array is served.
    pub(super) fn served_name(&self, opened: &Opened) -> Option<String> {
        let served = self.served.borrow();
        served.iter().find(|(_, now)| now.number() == opened.number()).map(|(name, _)| name.clone())
    }
}
