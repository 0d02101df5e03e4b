//! Parts of arrays on the cores that have them.
//!
//! ```text
//!   data core                               core of the part                       another core
//!   Part::There ---- verbs ---------------> PartEnd   \
//!   Reach::There --- hosts' requests -----> HostEnd   | the engine, its slices
//!                                           HostEnd   / of the drives <------------- Board: its connections' requests
//! ```
//!
//! Invariant: a part lives on its core until nobody can ask it any more; then it lets go of its drives, also while a host
//! stays connected.

use std::collections::BTreeSet;

use array::whole::{Had, Job, Part, PartEnd, Whole, way};
use array::{Array, Limits, Refused, RefusedCode};
use export::Directory;
use export::remote::{self, GuestEnd, HostEnd};
use futures::channel::oneshot;
use futures::future::join_all;
use ondisk::PartOf;
use rt::{Drive, Rt, SentDrive, Task};

use crate::board::Reached;
use crate::cores::{Core, OtherCores};
use crate::memory::Memory;
use crate::ops::World;
use crate::volumes::{Here, Lent, Loans, Reach};

/// A part that was made or opened, and how it is reached.
pub struct Placed {
    /// For verbs.
    pub part: Part,
    /// For its volumes.
    pub reach: Reach,
    /// For its volumes on other cores than this one, which are not its own.
    pub ways: WaysToPart,
}

/// How other cores than the data core reach a part that is not theirs.
pub struct WaysToPart {
    part: PartOf,
    guests: Vec<(usize, GuestEnd)>,
    /// Of a part on the data core: who answers.
    pub answering: Answering,
}

/// Who answers other cores for parts on this one.
#[derive(Default)]
pub struct Answering {
    tasks: Vec<Task<()>>,
    loans: Vec<Loans<Here>>,
}

impl Answering {
    /// Takes over what another does.
    pub fn join(&mut self, other: Answering) {
        self.tasks.extend(other.tasks);
        self.loans.extend(other.loans);
    }

    /// Begins nothing more, and takes every volume back; what is under way is done to its end.
    pub fn end(&self) {
        self.tasks.iter().for_each(Task::cancel);
        self.loans.iter().for_each(Loans::end);
    }
}

/// Answers at each of these ends.
fn answer(rt: &Rt, volumes: &PartVolumes, hosts: Vec<HostEnd>) -> Answering {
    let tasks = hosts.into_iter().map(|host| host.serve(rt, volumes.clone())).collect();
    Answering { tasks, loans: vec![volumes.loans.clone()] }
}

impl WaysToPart {
    /// Puts the part on the boards of those cores.
    pub fn tell(self, cores: &OtherCores, array: &Whole) -> Answering {
        let (uuid, part) = (array.first().uuid(), self.part);
        for (core, guest) in self.guests {
            cores.begin(core, async move |core: Core| {
                core.board.learn(uuid, part, Reached::There(guest.connect(&core.rt)));
            });
        }
        self.answering
    }
}

/// Tells all cores which volumes have limits: requests to them are counted on the data core.
pub fn tell_limits(cores: &OtherCores, array: &Whole) {
    if array.others().is_empty() {
        return;
    }
    let limited = |limits: Limits| limits.iops > 0 || limits.bytes_per_second > 0;
    let all: BTreeSet<_> = array.first().volumes().into_iter().filter(|v| limited(v.limits)).map(|v| v.uuid).collect();
    let uuid = array.first().uuid();
    for core in 0..cores.count() {
        let all = all.clone();
        cores.begin(core, async move |core: Core| core.board.limit(uuid, all));
    }
}

/// Takes an array that is to be closed off all boards.
pub fn forget(cores: &OtherCores, array: &Whole) {
    let uuid = array.first().uuid();
    for core in 0..cores.count() {
        cores.begin(core, async move |core: Core| core.board.forget(uuid));
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
    // An array in one piece is asked by the data core, which has it.
    let others = (0..world.cores.count()).filter(|core| part.of > 1 && Some(*core) != home);
    let (hosts, guests): (Vec<_>, Vec<_>) =
        others.map(|core| (core, remote::way(rt))).map(|(core, (host, guest))| (host, (core, guest))).unzip();
    let Some(core) = home else {
        let array = job.run(rt, slices).await?;
        world.cores.memory().give(&array, part.of);
        let volumes = PartVolumes { array: array.clone(), part, loans: Loans::default() };
        let ways = WaysToPart { part, guests, answering: answer(rt, &volumes, hosts) };
        return Ok(Placed { part: Part::Here(array.clone()), reach: Reach::Here(array), ways });
    };
    let cannot = |drive: &Drive, e: std::io::Error| {
        let what = format!("drive {}", drive.info().name);
        Refused::new(
            RefusedCode::Io,
            what,
            format!("it cannot be used on another core: {e}"),
            "Serve with one core (--cores 1)",
        )
    };
    let slices = slices.iter().map(|d| d.to_send().map_err(|e| cannot(d, e))).collect::<Result<Vec<_>, _>>()?;
    let (end, verbs) = way(rt);
    let (host, guest) = remote::way(rt);
    let hosts = std::iter::once(host).chain(hosts).collect();
    let (had, is_had) = oneshot::channel();
    let memory = world.cores.memory();
    world.cores.begin(core, move |core| live(core, Life { job, slices, end, hosts, memory, had }));
    match is_had.await {
        Ok(Ok(())) => {
            let ways = WaysToPart { part, guests, answering: Answering::default() };
            Ok(Placed { part: verbs, reach: Reach::There(guest.connect(rt)), ways })
        }
        Ok(Err(refused)) => Err(refused),
        Err(_) => Err(Refused::new(RefusedCode::Io, "its core", "it has ended", "start `ashlar serve` again")),
    }
}

/// What it takes to have a part.
struct Life {
    job: Job,
    slices: Vec<SentDrive>,
    end: PartEnd,
    hosts: Vec<HostEnd>,
    memory: Memory,
    had: oneshot::Sender<Result<(), Refused>>,
}

/// The life of a part on its core.
async fn live(Core { rt, board }: Core, life: Life) {
    let Life { job, slices, end, hosts, memory, had } = life;
    let part = job.part();
    let slices = join_all(slices.into_iter().map(|slice| slice.arrive(&rt))).await;
    let array = match job.run(&rt, slices).await {
        Ok(array) => array,
        Err(refused) => {
            // Who asked is gone with the server.
            let _ = had.send(Err(refused));
            return;
        }
    };
    memory.give(&array, part.of);
    let uuid = array.uuid();
    let volumes = PartVolumes { array: array.clone(), part, loans: Loans::default() };
    let answering = answer(&rt, &volumes, hosts);
    board.learn(uuid, part, Reached::Here(volumes));
    if had.send(Ok(())).is_ok() {
        end.serve(&rt, array).await;
    }
    board.forget(uuid);
    answering.end();
}

/// The volumes of a part, by their identity in the array.
#[derive(Clone)]
pub struct PartVolumes {
    array: Array,
    part: PartOf,
    loans: Loans<Here>,
}

impl Directory for PartVolumes {
    type N = Lent<Here>;

    async fn names(&self) -> Vec<String> {
        self.array.volumes().into_iter().map(|volume| volume.name).collect()
    }

    async fn open(&self, identity: &str) -> Option<Lent<Here>> {
        // In the first part they have the names that people gave them, in the others their identity for a name.
        let volume = match self.part.index {
            0 => self.array.live_volumes().into_iter().find(|volume| volume.uuid().to_string() == identity),
            _ => self.array.volume(identity),
        };
        volume.map(|volume| self.loans.lend(Here(volume)))
    }
}
