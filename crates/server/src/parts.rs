//! Parts of arrays on the cores that have them.
//!
//! ```text
//!   first core                               core of the part                  another core
//!   Part::There --------- verbs ----------> Submitted \
//!   PartAccess::Remote -- requests -------> FarEnd    | the engine, its slices
//!                                           FarEnd    / of the drives <-------- RoutingTable: requests of its connections
//! ```
//!
//! Invariant: a part lives on its core until nobody can ask it any more; then it lets go of its drives, also while a host
//! stays connected.

use std::collections::BTreeSet;

use api::LimitsView;
use array::parts::{Had, Job, Part, Whole, to_send};
use array::{Array, Discard, Refused, RefusedCode};
use export::Directory;
use export::remote::{self, FarEnd, NearEnd};
use futures::channel::oneshot;
use futures::future::join_all;
use ondisk::PartOf;
use rt::cross::{Submitted, submissions};
use rt::{Drive, Rt, SentDrive, Task};
use volume::LocalVolume;

use crate::cores::{Core, OtherCores};
use crate::lease::{Lease, Leases};
use crate::memory::Memory;
use crate::ops::World;
use crate::routing::Route;
use crate::volumes::PartAccess;

/// A part that was made or opened, and how it is reached.
pub struct Placed {
    /// For verbs.
    pub part: Part,
    /// For its volumes.
    pub reach: PartAccess,
    /// For its volumes on other cores than this one, which are not its own.
    pub ways: WaysToPart,
}

/// How other cores than the first core reach a part that is not theirs.
pub struct WaysToPart {
    part: PartOf,
    near: Vec<(usize, NearEnd)>,
    /// Of a part on the first core: who answers.
    pub answering: Answering,
}

/// Who answers other cores for parts on this one.
#[derive(Default)]
pub struct Answering {
    tasks: Vec<Task<()>>,
    leases: Vec<Leases<LocalVolume>>,
}

impl Answering {
    /// Takes over what another does.
    pub fn join(&mut self, other: Answering) {
        self.tasks.extend(other.tasks);
        self.leases.extend(other.leases);
    }

    /// Begins nothing more, and ends every lease; what is under way is done to its end.
    pub fn end(&self) {
        self.tasks.iter().for_each(Task::cancel);
        self.leases.iter().for_each(Leases::end);
    }
}

/// Answers at each of these ends.
fn answer(rt: &Rt, volumes: &PartVolumes, ends: Vec<FarEnd>) -> Answering {
    let tasks = ends.into_iter().map(|end| end.serve(rt, volumes.clone())).collect();
    Answering { tasks, leases: vec![volumes.leases.clone()] }
}

impl WaysToPart {
    /// Puts the part into the routing tables of those cores.
    pub fn tell(self, cores: &OtherCores, array: &Whole) -> Answering {
        let (uuid, part) = (array.first().uuid(), self.part);
        for (core, near) in self.near {
            drop(cores.submit(core, async move |core: Core| {
                core.routes.learn(uuid, part, Route::Remote(near.connect(&core.rt)));
            }));
        }
        self.answering
    }
}

/// Tells all cores which volumes have limits: requests to them are counted on the first core.
pub fn tell_limits(cores: &OtherCores, array: &Whole) {
    if array.others().is_empty() {
        return;
    }
    let limited = |limits: LimitsView| limits.iops > 0 || limits.bytes_per_second > 0;
    let all: BTreeSet<_> = array.first().volumes().into_iter().filter(|v| limited(v.limits)).map(|v| v.uuid).collect();
    let uuid = array.first().uuid();
    for core in 0..cores.count() {
        let all = all.clone();
        drop(cores.submit(core, async move |core: Core| core.routes.limit(uuid, all)));
    }
}

/// Takes an array that is to be closed out of all routing tables.
pub fn forget(cores: &OtherCores, array: &Whole) {
    let uuid = array.first().uuid();
    for core in 0..cores.count() {
        drop(cores.submit(core, async move |core: Core| core.routes.forget(uuid)));
    }
}

impl Had for Placed {
    async fn end(self) {
        self.part.end().await;
    }
}

/// Does a job on the core that is to have the part.
///
/// # Errors
/// The job's, or that a drive cannot be used on another core.
pub async fn place(world: &World, job: Job, slices: Vec<Drive>) -> Result<Placed, Refused> {
    let rt = &world.rt;
    let part = job.part();
    let home = world.cores.of_part(part.index);
    // An array in one piece is asked by the first core, which has it.
    let others = (0..world.cores.count()).filter(|core| part.of > 1 && Some(*core) != home);
    let (far, near): (Vec<_>, Vec<_>) =
        others.map(|core| (core, remote::way(rt))).map(|(core, (far, near))| (far, (core, near))).unzip();
    let Some(core) = home else {
        let array = job.run(rt, slices).await?;
        world.cores.memory().give(&array, part.of);
        array.set_discard(world.discard);
        let volumes = PartVolumes { array: array.clone(), part, leases: Leases::default() };
        let ways = WaysToPart { part, near, answering: answer(rt, &volumes, far) };
        return Ok(Placed { part: Part::Here(array.clone()), reach: PartAccess::Local(array), ways });
    };
    let slices = slices.iter().map(to_send).collect::<Result<Vec<_>, _>>()?;
    let (verbs, end) = submissions(rt);
    let (answers, asks) = remote::way(rt);
    let far = std::iter::once(answers).chain(far).collect();
    let (made, is_made) = oneshot::channel();
    let (memory, discard) = (world.cores.memory(), world.discard);
    drop(world.cores.submit(core, move |core| live(core, Life { job, slices, end, far, memory, discard, made })));
    match is_made.await {
        Ok(Ok(())) => {
            let ways = WaysToPart { part, near, answering: Answering::default() };
            Ok(Placed { part: Part::There(verbs), reach: PartAccess::Remote(asks.connect(rt)), ways })
        }
        Ok(Err(refused)) => Err(refused),
        Err(_) => Err(Refused::new(RefusedCode::Io, "its core", "it has ended", "start `ashlar serve` again")),
    }
}

/// What it takes to have a part.
struct Life {
    job: Job,
    slices: Vec<SentDrive>,
    end: Submitted<Array>,
    far: Vec<FarEnd>,
    memory: Memory,
    discard: Discard,
    made: oneshot::Sender<Result<(), Refused>>,
}

/// The life of a part on its core, which awaits its end before its own.
async fn live(Core { rt, routes }: Core, life: Life) {
    let Life { job, slices, end, far, memory, discard, made } = life;
    let part = job.part();
    let slices = join_all(slices.into_iter().map(|slice| slice.arrive(&rt))).await;
    let array = match job.run(&rt, slices).await {
        Ok(array) => array,
        Err(refused) => {
            // Who asked is gone with the server.
            let _ = made.send(Err(refused));
            return;
        }
    };
    memory.give(&array, part.of);
    array.set_discard(discard);
    let uuid = array.uuid();
    let volumes = PartVolumes { array: array.clone(), part, leases: Leases::default() };
    let answering = answer(&rt, &volumes, far);
    routes.learn(uuid, part, Route::Local(volumes));
    if made.send(Ok(())).is_ok() {
        end.serve(&rt, array).await;
    }
    routes.forget(uuid);
    answering.end();
}

/// The volumes of a part, by their identity in the array.
#[derive(Clone)]
pub struct PartVolumes {
    array: Array,
    part: PartOf,
    leases: Leases<LocalVolume>,
}

impl Directory for PartVolumes {
    type N = Lease<LocalVolume>;

    async fn names(&self) -> Vec<String> {
        self.array.volumes().into_iter().map(|volume| volume.name.to_string()).collect()
    }

    async fn open(&self, identity: &str) -> Option<Lease<LocalVolume>> {
        // In the first part they have the names that people gave them, in the others their identity for a name.
        let volume = match self.part.index {
            0 => self.array.live_volumes().into_iter().find(|volume| volume.uuid().to_string() == identity),
            _ => self.array.volume(identity),
        };
        volume.map(|volume| self.leases.lease(LocalVolume(volume)))
    }
}
