//! The data thread's state, and how other threads reach it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use api::{Absent, EventCode, Placement, Problem};
use array::parts::Roster;
use export::nbd::Dealer;
use export::nvme::Server;
use futures::future::LocalBoxFuture;
use rt::Task;
use rt::cross::Submitter;
use uuid::Uuid;

use super::alarms::watch;
use super::blocks::keep_devices;
use super::closed::Closed;
use super::guests::begin_guests;
use super::spares::{Spares, bring_back};
use crate::blocks::Blocks;
use crate::direct::DirectDrive;
use crate::front::Front;
use crate::guests::GuestSockets;
use crate::hooks::Hooks;
use crate::journal::Journal;
use crate::memory::Memory;
use crate::namespace::{All, Served};
use crate::nvmet::Targets;
use crate::ops::World;
use crate::ops::open::Opened;
use crate::placement::Machine;
use crate::problem::{array_not_served, name_taken};
use crate::registry::Known;
use crate::subsystem::ExportedSubsystems;

/// Lists clients.
pub type ListClients = Box<dyn Fn() -> Vec<export::Client>>;

/// What the data thread holds.
pub struct Data {
    /// Runtime and registry.
    pub world: World,
    /// The arrays being served.
    pub served: Served,
    /// The drives being served with nothing between.
    pub direct: Rc<[DirectDrive]>,
    /// Arrays that should be served and could not be opened.
    pub absent: RefCell<BTreeMap<String, Problem>>,
    /// Names that arrays are about to get.
    pub promised: RefCell<BTreeSet<String>>,
    /// Addresses of the NBD export.
    pub nbd: RefCell<Vec<String>>,
    /// Lists the clients of the NBD export.
    pub nbd_clients: RefCell<Option<ListClients>>,
    /// Who deals NBD connections to other cores, when there are others.
    pub dealer: RefCell<Option<Rc<Dealer>>>,
    /// The NVMe/TCP export, when there is one; it deals I/O queues to other cores, when there are others.
    pub queues: RefCell<Option<Rc<Server<ExportedSubsystems>>>>,
    /// Addresses of the NVMe/TCP export.
    pub nvme: RefCell<Vec<String>>,
    /// What is shown over TCP, if the API is to be there.
    pub front: Option<Arc<Front>>,
    /// Addresses for people that could not be had yet.
    pub closed: Closed,
    /// Drives for arrays that lack one.
    pub spares: Spares,
    /// Whether every array is opened for reading only.
    pub read_only: bool,
    /// Where the data thread may run.
    pub machine: Machine,
    /// What it may take in memory.
    pub memory: Memory,
    /// Volumes that are block devices of this machine.
    pub blocks: Blocks,
    /// Sockets at which guests of this machine find volumes.
    pub guests: GuestSockets,
    /// Volumes that the kernel's target exports.
    pub targets: Targets,
    /// What happened.
    pub journal: Journal,
    /// Who writes the notebooks of arrays, by name.
    pub notebooks: RefCell<BTreeMap<String, Task<()>>>,
    /// Who else is told of it.
    pub hooks: Hooks,
    /// The program's version.
    pub program: String,
    /// When the server began, in seconds since 1970.
    pub began_at: u64,
}

impl Data {
    /// The served array called `name`, or whose identity it is.
    ///
    /// # Errors
    /// When it is not being served here.
    pub fn array(&self, name: &str) -> Result<Opened, Problem> {
        let served = self.served.borrow();
        let by_uuid = || served.values().find(|o| o.array.first().uuid().to_string() == name);
        served.get(name).or_else(by_uuid).cloned().ok_or_else(|| {
            let names: Vec<_> = served.keys().map(String::as_str).collect();
            array_not_served(name, &names)
        })
    }

    /// Everything that is exported.
    #[must_use]
    pub fn exported(&self) -> All {
        All { served: self.served.clone(), direct: self.direct.clone() }
    }

    /// Serves `opened` from now on.
    ///
    /// # Errors
    /// When another array of this name is being served.
    pub async fn serve(self: &Rc<Self>, opened: Opened) -> Result<(), Problem> {
        let name = opened.array.first().name();
        if self.has_name(&name) {
            return Err(name_taken(&name));
        }
        self.absent.borrow_mut().remove(&name);
        self.served.borrow_mut().insert(name.clone(), opened.clone());
        self.know_by_name(&opened);
        self.begin_notebook(&opened, false);
        let text = format!("opened by {} on {}", self.program, self.world.rt.host().name);
        self.journal.note(EventCode::ArrayOpened, Some(&name), None, text);
        // A core that has ended has nothing to tell.
        let _ended = opened.array.listen(self.journal.listener(&name)).await;
        self.settle();
        self.world.rt.spawn(watch(Rc::downgrade(self), opened.number())).detach();
        if !opened.array.others().is_empty() {
            self.world.rt.spawn(look_after(Rc::downgrade(self), opened.number())).detach();
        }
        if !opened.read_only && !opened.volatile {
            self.world.rt.spawn(bring_back(Rc::downgrade(self), opened.number())).detach();
        }
        self.blocks.go_on([opened.array.first().uuid()]);
        self.world.rt.spawn(keep_devices(Rc::downgrade(self), opened.number())).detach();
        begin_guests(self, &opened);
        // Members that were leaving when it was last served.
        crate::ops::drive::see_off_all(&self.world, &opened).await;
        Ok(())
    }

    /// Corrects the list of known arrays, where this one has another name since it was here last.
    fn know_by_name(&self, opened: &Opened) {
        let (registry, first) = (&self.world.registry, opened.array.first());
        let listed = registry.find(&first.uuid().to_string()).ok().filter(|known| known.name != first.name());
        let Some(known) = listed else { return };
        tracing::info!("array {} was known here as {}", first.name(), known.name);
        if let Err(problem) = registry.remember(Known { name: first.name(), ..known }) {
            tracing::warn!("{}", problem.line());
        }
    }

    /// Serves an array no more, which is to be closed: the one that was opened, not another one that has its name by now.
    ///
    /// # Errors
    /// When it is not served any more.
    pub async fn take_out(&self, opened: &Opened) -> Result<Opened, Problem> {
        let taken = self.served_name(opened).and_then(|name| self.served.borrow_mut().remove_entry(&name));
        let (name, taken) = taken.ok_or_else(|| {
            let (what, why) = (format!("array {}", opened.array.first().name()), "it was closed meanwhile");
            Problem::refused("array_changed", what, why, "look at it again (`ashlar status`)")
        })?;
        self.end_notebook(&name).await;
        Ok(taken)
    }

    /// Brings the data thread and the other cores to where most of its drives are.
    pub fn settle(&self) {
        let drives = self.drives();
        let placement = self.machine.settle(&drives);
        for core in 0..self.world.cores.count() {
            if let Some(cpus) = self.machine.cpus(&drives, core + 1) {
                self.world.cores.run_on(core, cpus);
            }
        }
        if let Some(node) = placement.data_node {
            tracing::info!("placement: first core on node {node}, CPUs {}: {}", placement.data_cpus, placement.why);
        }
    }

    /// Where it is, and where its drives are.
    #[must_use]
    pub fn placement(&self) -> Placement {
        let nbd = self.dealer.borrow().as_ref().map(|dealer| dealer.connections()).unwrap_or_default();
        let nvme = self.queues.borrow().as_ref().map(|server| server.dealt()).unwrap_or_default();
        let of = |all: &[usize], core| all.get(core).copied().unwrap_or(0);
        let connections = (0..nbd.len().max(nvme.len())).map(|core| of(&nbd, core) + of(&nvme, core)).collect();
        let mut parts = vec![0; self.world.cores.count() + 1];
        for opened in self.served.borrow().values() {
            for index in 0..=opened.array.others().len() as u8 {
                parts[self.world.cores.of_part(index).map_or(0, |other| other + 1)] += 1;
            }
        }
        Placement { connections, parts, ..self.machine.plan(&self.drives()) }
    }

    /// Every drive that is used, as the user named it.
    fn drives(&self) -> Vec<String> {
        let served = self.served.borrow();
        let members = served.values().flat_map(|opened| opened.array.first().drives());
        members.chain(self.direct.iter().map(|drive| drive.path().to_owned())).filter(|d| !d.is_empty()).collect()
    }

    /// The array of one open, if it is still being served: not what became of it after a stop and an import.
    #[must_use]
    pub fn served_as(&self, number: u64) -> Option<Opened> {
        self.served.borrow().values().find(|opened| opened.number() == number).cloned()
    }

    /// The identities of all arrays being served.
    #[must_use]
    pub fn served_uuids(&self) -> Vec<Uuid> {
        self.served.borrow().values().map(|opened| opened.array.first().uuid()).collect()
    }

    /// All names being served.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.served.borrow().keys().cloned().collect()
    }

    /// The arrays that could not be opened.
    #[must_use]
    pub fn absent(&self) -> Vec<Absent> {
        let absent = self.absent.borrow();
        absent.iter().map(|(name, problem)| Absent { name: name.clone(), problem: problem.clone() }).collect()
    }
}

/// How often the parts of an array are asked how they are.
const LOOK: Duration = Duration::from_secs(1);

/// Looks after an array in parts for as long as it is served: a drive that goes out in one part goes out in all.
async fn look_after(data: Weak<Data>, number: u64) {
    let mut roster = Roster::default();
    while let Some(data) = data.upgrade() {
        let Some(opened) = data.served_as(number) else { return };
        if let Err(problem) = opened.look_after(&mut roster).await {
            tracing::warn!("{}", problem.line());
        }
        let rt = data.world.rt.clone();
        drop((opened, data));
        rt.sleep(LOOK).await;
    }
}

/// The way to the data thread from any other.
#[derive(Clone)]
pub struct DataHandle(pub Submitter<Rc<Data>>);

impl DataHandle {
    /// Runs `verb` on the data thread and waits for its answer. The verb runs to its end also when nobody waits any
    /// more.
    ///
    /// # Errors
    /// The verb's, or that the server is stopping.
    pub async fn ask<T, F, Fut>(&self, verb: F) -> Result<T, Problem>
    where
        T: Send + 'static,
        F: FnOnce(Rc<Data>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T, Problem>> + 'static,
    {
        let stopping = || Problem::failed("the request", "this Ashlar is stopping", "send it again once it runs");
        // In a box: what carries it to the data thread is compiled once for each type of answer, not for each verb.
        let boxed = |data| -> LocalBoxFuture<'static, Result<T, Problem>> { Box::pin(verb(data)) };
        self.0.submit(boxed).await.unwrap_or_else(|| Err(stopping()))
    }
}
