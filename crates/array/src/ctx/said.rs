//! What the next generation says of the array as such, and people may change.

use std::cell::{Cell, Ref, RefCell};

use ondisk::{Features, Settings};

/// What is said.
pub struct Said {
    name: RefCell<String>,
    features: Cell<Features>,
    settings: RefCell<Settings>,
}

impl Said {
    /// What is said of an array that is called so.
    pub fn of(name: String) -> Said {
        Said { name: RefCell::new(name), features: Cell::default(), settings: RefCell::default() }
    }

    /// The array's name.
    pub fn name(&self) -> String {
        self.name.borrow().clone()
    }

    /// Gives it another one.
    pub fn rename(&self, to: &str) {
        to.clone_into(&mut self.name.borrow_mut());
    }

    /// Features in use.
    pub fn features(&self) -> Features {
        self.features.get()
    }

    /// These features are in use from the next generation on.
    pub fn use_features(&self, features: Features) {
        self.features.set(features);
    }

    /// What people set; not across an `.await`.
    #[inline]
    pub fn settings(&self) -> Ref<'_, Settings> {
        self.settings.borrow()
    }

    /// Sets something.
    pub fn set(&self, set: impl FnOnce(&mut Settings)) {
        set(&mut self.settings.borrow_mut());
    }
}
