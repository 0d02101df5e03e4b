//! Arrays as NVMe subsystems, each with its volumes as namespaces; and direct drives, each in one of its own.
//!
//! Invariants: a subsystem's name and a namespace's number follow from what never changes, the array's identity and the
//! volume's number, so that hosts find the same thing again after a restart or a new name.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use api::ArrayState;
use export::nvme::{Access, Health, Mark, Subsystem, Subsystems};
use uuid::Uuid;

use crate::namespace::{All, Exported, VolumeNamespace};
use crate::ops::open::Opened;

/// Who may use which array.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessRules {
    /// Of every array.
    pub all: Rule,
    /// Of some, beside that, by their names.
    pub arrays: BTreeMap<String, Rule>,
}

/// Hosts that may.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Their qualified names.
    pub hosts: Vec<String>,
    /// Whether every host may.
    pub any: bool,
}

impl AccessRules {
    /// Who may use the array of this name.
    #[must_use]
    pub fn of(&self, array: &str) -> Access {
        let rules: Vec<&Rule> = [&self.all].into_iter().chain(self.arrays.get(array)).collect();
        if rules.iter().any(|rule| rule.any) {
            return Access::Any;
        }
        Access::Hosts(rules.iter().flat_map(|rule| rule.hosts.clone()).collect())
    }

    /// Hosts that are named for the array of this name, whoever else may use it.
    #[must_use]
    pub fn named(&self, array: &str) -> Vec<String> {
        let rules = [&self.all].into_iter().chain(self.arrays.get(array));
        rules.flat_map(|rule| rule.hosts.clone()).collect()
    }

    /// Whether nobody may use anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        [&self.all].into_iter().chain(self.arrays.values()).all(|rule| !rule.any && rule.hosts.is_empty())
    }
}

/// An array's qualified name. NVMe Base 2.0, 4.5: the form with a UUID.
#[must_use]
pub fn nqn(array: Uuid) -> String {
    format!("nqn.2014-08.org.nvmexpress:uuid:{array}")
}

/// The serial number of an array, or of a direct drive: 20 of its 32 digits fit.
#[must_use]
pub fn serial(uuid: Uuid) -> String {
    uuid.simple().to_string()[..20].to_owned()
}

/// The name for which access to direct drives is said, as if they were an array's.
pub const DIRECT: &str = "direct";

/// All served arrays and direct drives.
#[derive(Clone)]
pub struct ExportedSubsystems {
    /// What there is.
    pub all: All,
    /// Who may use it.
    pub access: Rc<RefCell<AccessRules>>,
}

impl ExportedSubsystems {
    fn with<T>(&self, name: &str, then: impl FnOnce(&str, &Opened) -> T) -> Option<T> {
        let served = self.all.served.borrow();
        served
            .iter()
            .find(|(_, opened)| nqn(opened.array.first().uuid()) == name)
            .map(|(array, opened)| then(array, opened))
    }

    fn subsystem(&self, uuid: Uuid, model: String, rule: &str) -> Subsystem {
        Subsystem { nqn: nqn(uuid), serial: serial(uuid), model, access: self.access.borrow().of(rule) }
    }
}

impl Subsystems for ExportedSubsystems {
    type N = Exported;

    fn all(&self) -> Vec<Subsystem> {
        let served = self.all.served.borrow();
        let arrays = served
            .iter()
            .map(|(name, opened)| self.subsystem(opened.array.first().uuid(), format!("Ashlar {name}"), name));
        let drives =
            self.all.direct.iter().map(|drive| self.subsystem(drive.uuid(), "Ashlar direct".to_owned(), DIRECT));
        arrays.chain(drives).collect()
    }

    fn namespaces(&self, name: &str) -> BTreeMap<u32, Exported> {
        let volumes = self.with(name, |array, opened| {
            let leased = opened.lease_all().into_iter();
            leased.map(|(id, leased)| (id.0, Exported::Left(VolumeNamespace::new(array, opened, leased)))).collect()
        });
        let drive = || self.all.direct.iter().find(|drive| nqn(drive.uuid()) == name).cloned();
        volumes.or_else(|| Some([(1, Exported::Right(drive()?))].into())).unwrap_or_default()
    }

    fn mark(&self, nqn: &str) -> Mark {
        let of = |state| match state {
            ArrayState::Optimal | ArrayState::Rebuilt | ArrayState::ReadOnly | ArrayState::Closed => Health::default(),
            ArrayState::Degraded | ArrayState::Rebuilding => Health { degraded: true, frozen: false },
            ArrayState::Frozen => Health { degraded: true, frozen: true },
        };
        // Direct drives stay what they are.
        let mark = |opened: &Opened| Mark { namespaces: opened.volume_changes(), health: of(opened.state()) };
        self.with(nqn, |_, opened| mark(opened)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_add_up() {
        let rule = |hosts: &[&str], any| Rule { hosts: hosts.iter().map(|h| (*h).to_owned()).collect(), any };
        let arrays = [("a".to_owned(), rule(&["nqn.2"], false)), ("b".to_owned(), rule(&[], true))].into();
        let rules = AccessRules { all: rule(&["nqn.1"], false), arrays };
        assert_eq!(rules.of("a"), Access::Hosts(vec!["nqn.1".to_owned(), "nqn.2".to_owned()]));
        assert_eq!(rules.of("b"), Access::Any);
        assert_eq!((rules.named("a").len(), rules.named("b")), (2, vec!["nqn.1".to_owned()]));
        assert_eq!(rules.of("c"), Access::Hosts(vec!["nqn.1".to_owned()]));
        assert!(!rules.is_empty() && AccessRules::default().is_empty());
        assert_eq!(AccessRules::default().of("a"), Access::default(), "nobody");
    }
}
