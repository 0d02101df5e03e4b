//! Parts of arrays on the cores that have them.
//!
//! ```text
//!   data core                               core of the part
//!   Part::There ---- verbs ---------------> PartEnd   \
//!   Reach::There --- hosts' requests -----> HostEnd   / the engine, its slices of the drives
//! ```
//!
//! Invariant: a part lives on its core until nobody can ask it any more; then it lets go of its drives, also while a host
//! stays connected.

use array::whole::{Had, Job, Part, PartEnd, way};
use array::{Array, Refused, RefusedCode};
use export::Directory;
use export::remote::{self, HostEnd};
use futures::channel::oneshot;
use futures::future::join_all;
use rt::{Drive, Rt, SentDrive};

use crate::memory::Memory;
use crate::ops::World;
use crate::volumes::{Here, Lent, Loans, Reach};

/// A part that was made or opened, and how it is reached.
pub struct Placed {
    /// For verbs.
    pub part: Part,
    /// For its volumes.
    pub reach: Reach,
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
    let index = job.part().index;
    let Some(core) = world.cores.of_part(index) else {
        let parts = job.part().of;
        let array = job.run(rt, slices).await?;
        world.cores.memory().give(&array, parts);
        return Ok(Placed { part: Part::Here(array.clone()), reach: Reach::Here(array) });
    };
    let cannot = |drive: &Drive, e: std::io::Error| {
        let what = format!("drive {}", drive.info().name);
        Refused::new(RefusedCode::Io, what, format!("it cannot be used on another core: {e}"), "Serve with one core")
    };
    let slices = slices.iter().map(|d| d.to_send().map_err(|e| cannot(d, e))).collect::<Result<Vec<_>, _>>()?;
    let (end, part) = way(rt);
    let (host, guest) = remote::way(rt);
    let (had, is_had) = oneshot::channel();
    let memory = world.cores.memory();
    world.cores.begin(core, move |rt| live(rt, Life { job, slices, end, host, memory, had }));
    match is_had.await {
        Ok(Ok(())) => Ok(Placed { part, reach: Reach::There(guest.connect(rt)) }),
        Ok(Err(refused)) => Err(refused),
        Err(_) => Err(Refused::new(RefusedCode::Io, "its core", "it has ended", "start `ashlar serve` again")),
    }
}

/// What it takes to have a part.
struct Life {
    job: Job,
    slices: Vec<SentDrive>,
    end: PartEnd,
    host: HostEnd,
    memory: Memory,
    had: oneshot::Sender<Result<(), Refused>>,
}

/// The life of a part on its core.
async fn live(rt: Rt, life: Life) {
    let Life { job, slices, end, host, memory, had } = life;
    let parts = job.part().of;
    let slices = join_all(slices.into_iter().map(|slice| slice.arrive(&rt))).await;
    let array = match job.run(&rt, slices).await {
        Ok(array) => array,
        Err(refused) => {
            // Who asked is gone with the server.
            let _ = had.send(Err(refused));
            return;
        }
    };
    memory.give(&array, parts);
    let volumes = PartVolumes { array: array.clone(), loans: Loans::default() };
    let loans = volumes.loans.clone();
    let serving = host.serve(&rt, volumes);
    if had.send(Ok(())).is_ok() {
        end.serve(&rt, array).await;
    }
    // What is under way is done to its end; nothing more is begun.
    serving.cancel();
    loans.end();
}

/// The volumes of a part, by what they are called there.
#[derive(Clone)]
struct PartVolumes {
    array: Array,
    loans: Loans<Here>,
}

impl Directory for PartVolumes {
    type N = Lent<Here>;

    async fn names(&self) -> Vec<String> {
        self.array.volumes().into_iter().map(|volume| volume.name).collect()
    }

    async fn open(&self, name: &str) -> Option<Lent<Here>> {
        self.array.volume(name).map(|volume| self.loans.lend(Here(volume)))
    }
}
