//! Cores beside the first core: threads that have parts of arrays and serve connections.
//!
//! Invariant: what a core was given is done to its end before its thread ends.
//!
//! Not here: what connections are served (`export::nbd::Worker`, `export::nvme::Worker`), how a part lives there (`parts`).

use std::future::Future;
use std::io;
use std::rc::Rc;
use std::thread::{Builder, JoinHandle};

use api::Problem;
use export::remote::WORKERS_MAX;
use rt::cross::{Submission, Submitter, submissions};
use rt::{Rt, Ways};

use crate::config::Linger;
use crate::memory::Memory;
use crate::problem;
use crate::routing::RoutingTable;

/// The first core, and as many as connections may be dealt to.
const CORES_MAX: usize = 1 + WORKERS_MAX;

/// How many cores work for a server: the first core, and others for connections and parts of arrays.
///
/// # Errors
/// When it is no number of cores.
pub fn checked(cores: usize) -> Result<usize, Problem> {
    match cores {
        1..=CORES_MAX => Ok(cores),
        _ => {
            let why = format!("{cores} cores are not possible");
            Err(Problem::usage("--cores", why, format!("give 1 to {CORES_MAX} (default 1)")))
        }
    }
}

/// A core beside the first core, as what it is given to do sees it.
#[derive(Clone)]
pub struct Core {
    /// Its runtime.
    pub rt: Rt,
    /// How it reaches the parts of arrays.
    pub routes: RoutingTable,
}

/// The threads.
pub struct Cores {
    threads: Vec<JoinHandle<io::Result<()>>>,
    to: OtherCores,
}

/// The way to cores beside the calling one. Clones lead to the same; the usual one to none.
#[derive(Clone, Default)]
pub struct OtherCores {
    all: Rc<[Submitter<Core>]>,
    memory: Memory,
}

impl Cores {
    /// So many threads, which wait for what they are given.
    ///
    /// # Errors
    /// When a thread cannot be had, or the kernel gives it no ring.
    pub async fn start(
        rt: &Rt,
        cores: usize,
        ways: Ways,
        linger: Linger,
        memory: Memory,
    ) -> Result<(Cores, String), Problem> {
        let no_cores = |e| Problem::failed("further cores", e, "serve with fewer (--cores)");
        let (mut all, mut threads) = (vec![], vec![]);
        for number in 1..=cores {
            let (submitter, submitted) = submissions(rt);
            let work = move || {
                let rt = Rt::real_by(ways)?;
                rt.set_linger(linger.time());
                memory.settle();
                rt.block_on(submitted.serve(&rt, Core { rt: rt.clone(), routes: RoutingTable::default() }));
                Ok(())
            };
            threads.push(Builder::new().name(format!("core {number}")).spawn(work).map_err(no_cores)?);
            all.push(submitter);
        }
        for (core, submitter) in all.iter().enumerate() {
            // One that got no ring has ended, and its thread says why.
            if submitter.submit(async |_| ()).await.is_none()
                && let Ok(Err(e)) = threads.swap_remove(core).join()
            {
                let mut problem = problem::no_ring(&e);
                problem.what = "further cores".to_owned();
                problem.todo += "; or serve with fewer (--cores)";
                return Err(problem);
            }
        }
        let detail = if cores == 0 { "none".to_owned() } else { cores.to_string() };
        Ok((Cores { threads, to: OtherCores { all: all.into(), memory } }, detail))
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> usize {
        self.to.count()
    }

    /// The way to them.
    #[must_use]
    pub fn to(&self) -> OtherCores {
        self.to.clone()
    }

    /// Gives each of the works to another core.
    pub fn begin<W, F>(&self, works: Vec<W>)
    where
        W: FnOnce(Core) -> F + Send + 'static,
        F: Future<Output = ()> + 'static,
    {
        assert_eq!(works.len(), self.count(), "one for each core");
        for (core, work) in works.into_iter().enumerate() {
            drop(self.to.submit(core, work));
        }
    }

    /// Waits for the threads, which have done all that they were given.
    pub fn join(self) {
        self.to.all.iter().for_each(Submitter::close);
        // One that panicked has ended the process.
        self.threads.into_iter().for_each(|thread| drop(thread.join()));
    }
}

impl OtherCores {
    /// How many.
    #[must_use]
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// The core of a part of an array; none: the calling one.
    #[must_use]
    pub fn of_part(&self, index: u8) -> Option<usize> {
        (usize::from(index) % (1 + self.count())).checked_sub(1)
    }

    /// Has a core do something, beside the rest that it does.
    pub fn submit<T, F>(&self, core: usize, work: impl FnOnce(Core) -> F + Send + 'static) -> Submission<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        self.all[core].submit(work)
    }

    /// Has one run on these CPUs from now on.
    pub fn run_on(&self, core: usize, cpus: Vec<u32>) {
        drop(self.submit(core, async move |_| {
            if let Err(e) = rt::topology::run_on(&cpus) {
                tracing::warn!("placement: core {} cannot be moved: {e}", core + 1);
            }
        }));
    }

    /// What they may take in memory.
    #[must_use]
    pub fn memory(&self) -> Memory {
        self.memory
    }
}
