//! Volumes over RDMA, TCP and Fibre Channel by the kernel's NVMe target (nvmet), on their block devices (ublk).
//!
//! ```text
//!   host -- RoCE, TCP, FC --> nvmet (kernel) --> /dev/ublkbN (kernel) --> server --> array
//!
//!   export:  device -> list (nvmet.toml) -> kernel           remove:  kernel -> list
//!            what is listed and how arrays stand -> plan -> a process of its own -> configfs
//! ```
//!
//! Invariants:
//! - an array is the subsystem that it is over our own NVMe/TCP, and a volume the namespace: the same name, number and identity;
//! - no host may connect but those that are named for the array;
//! - what is listed is brought whenever its array and its device are served; what waits for them is left as it is in the kernel; only a
//!   verb takes it away;
//! - from the moment a server leaves, nothing is written.
//!
//! Not here: verbs (`daemon::nvmet`); who is connected, which the kernel does not tell.

pub mod address;
pub mod plan;
pub mod process;
pub mod tree;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use api::Problem;
use futures::lock::Mutex;
use rt::Nanos;
use uuid::Uuid;

pub use address::{Address, Transport};
use plan::Plan;
pub use plan::{Export, Key};
use process::Writer;
use tree::{Applied, Brought};

use crate::listed::List;
use crate::subsystem::{AccessRules, nqn};

/// The first number of a port of ours: programs that write the kernel's tree begin at 1.
const PORTS_FROM: u16 = 41_000;

/// The list of them in `dir`.
#[must_use]
pub fn list(dir: &Path) -> List<Export> {
    List::at(dir, "nvmet", "volumes that the kernel's target exports")
}

/// All exports of a server by the kernel's target.
pub struct Targets {
    list: List<Export>,
    known: RefCell<Option<Vec<Export>>>,
    /// Where the list is.
    pub state_dir: PathBuf,
    /// Who may use what.
    pub access: Rc<RefCell<AccessRules>>,
    /// Who has it may write the kernel's tree, and the list.
    pub turn: Mutex<()>,
    /// Starts the process that does.
    pub writer: Writer,
    /// Exports that are being taken away.
    pub ending: RefCell<BTreeSet<Key>>,
    /// Volumes whose size the kernel does not know yet.
    pub resized: RefCell<BTreeSet<Uuid>>,
    /// Since when arrays with exports are served.
    pub since: RefCell<BTreeMap<Uuid, Nanos>>,
    last: RefCell<Option<Last>>,
}

/// What was written last.
struct Last {
    plan: Plan,
    when: Nanos,
    /// What hosts find since.
    brought: BTreeSet<Key>,
    problem: Option<Problem>,
}

impl Targets {
    /// Those listed in `dir`, for hosts that `access` names; none is brought yet.
    #[must_use]
    pub fn of(dir: &Path, access: Rc<RefCell<AccessRules>>) -> Targets {
        Targets {
            list: list(dir),
            known: RefCell::default(),
            state_dir: dir.to_owned(),
            access,
            turn: Mutex::new(()),
            writer: Writer::default(),
            ending: RefCell::default(),
            resized: RefCell::default(),
            since: RefCell::default(),
            last: RefCell::default(),
        }
    }

    /// What is listed.
    ///
    /// # Errors
    /// When the list cannot be read.
    pub fn listed(&self) -> Result<Vec<Export>, Problem> {
        if let Some(known) = &*self.known.borrow() {
            return Ok(known.clone());
        }
        let read = self.list.read()?;
        *self.known.borrow_mut() = Some(read.clone());
        Ok(read)
    }

    /// What is listed of a volume.
    ///
    /// # Errors
    /// When the list cannot be read.
    pub fn listed_of(&self, volume: Uuid) -> Result<Vec<Export>, Problem> {
        Ok(self.listed()?.into_iter().filter(|export| export.volume == volume).collect())
    }

    /// Lists an export.
    ///
    /// # Errors
    /// When the list cannot be written.
    pub fn put(&self, export: Export) -> Result<(), Problem> {
        self.known.take();
        let key = export.key();
        self.list.put(export, |other| other.key() == key)
    }

    /// Lists those no more.
    ///
    /// # Errors
    /// When the list cannot be written.
    pub fn take_off(&self, is_one: impl Fn(&Export) -> bool) -> Result<(), Problem> {
        self.known.take();
        self.list.take_off(is_one)
    }

    /// All at this port's address have another number from now on, above those that are known.
    ///
    /// # Errors
    /// When the list cannot be read or written.
    pub fn renumber(&self, taken: u16) -> Result<(), Problem> {
        let listed = self.listed()?;
        let next = free_port(&listed, taken.saturating_add(1));
        for export in listed.into_iter().filter(|export| export.port == taken) {
            self.put(Export { port: next, ..export })?;
        }
        Ok(())
    }

    /// A plan was carried out, but for this.
    pub fn written(&self, plan: Plan, when: Nanos, applied: &Applied, problem: Option<Problem>) {
        let listed = self.listed().unwrap_or_default();
        let finds = |export: &&Export| {
            let name = nqn(export.array);
            let wanted = plan.subsystems.iter().find(|wanted| wanted.nqn == name)?;
            let namespace = wanted.namespaces.iter().find(|namespace| namespace.uuid == export.volume)?;
            Some(applied.brought.contains(&Brought { nqn: name, nsid: namespace.nsid, port: export.port }))
        };
        let brought = listed.iter().filter(|export| finds(export) == Some(true)).map(Export::key).collect();
        if problem.is_none() {
            let all = plan.subsystems.iter().flat_map(|wanted| &wanted.namespaces);
            let told: BTreeSet<Uuid> =
                all.filter(|namespace| namespace.resized).map(|namespace| namespace.uuid).collect();
            self.resized.borrow_mut().retain(|volume| !told.contains(volume));
        }
        self.last.replace(Some(Last { plan, when, brought, problem }));
    }

    /// It is not known what became of a plan.
    pub fn failed(&self, plan: &Plan, when: Nanos, problem: &Problem) {
        let brought = self.brought();
        self.last.replace(Some(Last { plan: plan.clone(), when, brought, problem: Some(problem.clone()) }));
    }

    /// What hosts find, as of the last time.
    #[must_use]
    pub fn brought(&self) -> BTreeSet<Key> {
        self.last.borrow().as_ref().map(|last| last.brought.clone()).unwrap_or_default()
    }

    /// What could not be done the last time.
    #[must_use]
    pub fn problem(&self) -> Option<Problem> {
        self.last.borrow().as_ref().and_then(|last| last.problem.clone())
    }

    /// Whether this plan is to be carried out now: it is another one than the last, or that one failed, or is old.
    #[must_use]
    pub fn is_due(&self, plan: &Plan, now: Nanos, (after_failure, after_success): (Duration, Duration)) -> bool {
        self.last.borrow().as_ref().is_none_or(|last| {
            let pause = if last.problem.is_some() { after_failure } else { after_success };
            last.plan != *plan || now - last.when >= pause
        })
    }

    /// Hosts that are named for the array of this name.
    #[must_use]
    pub fn hosts(&self, array: &str) -> Vec<String> {
        self.access.borrow().named(array)
    }
}

/// The number of the port at `at`: that which it has, or one that no other has.
#[must_use]
pub fn port_of(listed: &[Export], at: &Address) -> u16 {
    let has = listed.iter().find(|export| export.at == *at).map(|export| export.port);
    has.unwrap_or_else(|| free_port(listed, PORTS_FROM))
}

fn free_port(listed: &[Export], from: u16) -> u16 {
    (from..=u16::MAX).find(|number| listed.iter().all(|export| export.port != *number)).unwrap_or(PORTS_FROM)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn export(volume: u128, at: &str, port: u16) -> Export {
        Export { array: Uuid::nil(), volume: Uuid::from_u128(volume), at: at.parse().unwrap(), port }
    }

    #[test]
    fn an_address_has_one_port() {
        let listed = [export(1, "tcp:10.0.0.1:4420", 41_000), export(2, "rdma:10.0.0.1:4420", 41_001)];
        let of = |at: &str| port_of(&listed, &at.parse().unwrap());
        assert_eq!((of("rdma:10.0.0.1:4420"), of("tcp:10.0.0.2:4420")), (41_001, 41_002));
    }

    #[test]
    fn what_is_listed_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let targets = Targets::of(dir.path(), Rc::default());
        let at = "tcp:10.0.0.1:4420";
        let all = [export(1, at, 41_000), export(2, at, 41_000), export(2, "tcp:10.0.0.2:4420", 41_001)];
        all.iter().for_each(|export| targets.put(export.clone()).unwrap());
        targets.put(all[0].clone()).unwrap();
        assert_eq!(targets.listed().unwrap().len(), 3);
        // Another program has the number since a boot.
        targets.renumber(41_000).unwrap();
        let ports =
            |targets: &Targets| targets.listed().unwrap().iter().map(|e| (e.volume, e.port)).collect::<BTreeSet<_>>();
        let (one, two) = (Uuid::from_u128(1), Uuid::from_u128(2));
        assert_eq!(ports(&targets), [(one, 41_002), (two, 41_002), (two, 41_001)].into());
        targets.take_off(|export| export.volume == two).unwrap();
        assert_eq!(ports(&Targets::of(dir.path(), Rc::default())), [(one, 41_002)].into());
    }
}
