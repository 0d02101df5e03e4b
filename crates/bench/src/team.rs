//! Several cores that generate one load together: each is a thread with a runtime of its own.
//!
//! ```text
//!   core 0                        core 1
//!   generator -- own requests     generator -- own requests
//!       |    \----- messages ------/   |
//!   part 0 of the array           part 1 of the array           (of direct drives: handles of its own)
//!   slice 0 of each drive         slice 1 of each drive
//! ```
//!
//! An array is one in parts, as `create --parts` makes it, and a part is on each core; a core asks for any address, so that
//! requests cross as they do in a server. What a write carries lies in the generator's own memory, so one that crosses is
//! copied once more than in a server.
//!
//! Direct drives are used by every core, with handles of its own. Memory drives cannot be: there each core has memory
//! drives of its own, a slice of each as large as one part's, and works on its part of the working set.
//!
//! Invariants: a load begins on all cores at the same time; the CPU time counts from then until the last core has its last
//! answer, on all of them.
//!
//! Not here: virtual time, which is one thread's.

mod core;
mod make;

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;

use array::Whole;
use export::Either;
use export::remote::RemoteNamespace;
use futures::future::{join_all, try_join_all};
use rt::{Buf, Bytes, Rt};
use volume::LocalVolume;

use self::core::{Core, Own};
use crate::clock::thread_cpu_ns;
use crate::error::Error;
use crate::generate::{Ran, Start, run};
use crate::share::Share;
use crate::target::{Target, Written};

/// One part of a volume: of an engine on this core, or on another, asked by messages.
pub type PartVolume = Either<LocalVolume, RemoteNamespace>;

/// Cores, at most: as many as a server's.
pub const CORES_MAX: usize = 1 + export::remote::WORKERS_MAX;

/// What a core of a team asks an array for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Asks {
    /// Any address: what lies in another core's part crosses.
    #[default]
    All,
    /// What lies in its own part: what several cores cost when nothing crosses.
    Own,
}

/// The cores and what they have. Clones are handles on the same.
#[derive(Clone)]
pub struct Team(Rc<Inner>);

struct Inner {
    /// The calling one is the first.
    cores: Vec<Core>,
    own: Rc<Own>,
    threads: RefCell<Vec<JoinHandle<io::Result<()>>>>,
    /// The array; none: direct drives.
    whole: Option<Whole>,
    /// Each core has a target of its own, and they make up this one.
    apart: bool,
}

impl Team {
    /// The array, if that is what they have.
    #[must_use]
    pub fn whole(&self) -> Option<&Whole> {
        self.0.whole.as_ref()
    }

    /// Bytes of what the cores ask for.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let own = self.0.own.target.borrow().as_ref().map_or(0, Target::bytes);
        if self.0.apart { own * self.0.cores.len() as u64 } else { own }
    }

    /// Reads one request of the calling core.
    ///
    /// # Errors
    /// The target's.
    pub async fn read(&self, offset: u64, buf: Buf) -> (Result<(), Error>, Buf) {
        match self.0.own.target() {
            Ok(own) => own.read(offset, buf).await,
            Err(ended) => (Err(ended), buf),
        }
    }

    /// Writes one request of the calling core.
    ///
    /// # Errors
    /// The target's.
    pub async fn write(&self, offset: u64, data: Bytes) -> Result<(), Error> {
        self.0.own.target()?.write(offset, data).await
    }

    /// Each core generates its share of a load. What they measured, and the CPU time of all.
    pub(crate) async fn generate(&self, share: &Share) -> Result<(Vec<Ran>, Option<u64>), Error> {
        let cores = &self.0.cores;
        let line = Arc::new(Barrier::new(cores.len()));
        let one = |(core, share): (&Core, Share)| {
            let start = Start::Together(line.clone());
            core.ask(move |own| async move { run(&own.rt, &own.target()?, &share, start, None).await })
        };
        let begun: Vec<_> = cores.iter().zip(share.split(cores.len(), self.0.apart)).map(one).collect();
        // All of them: also one that fails has to be through before anything else is asked.
        let ran: Vec<Ran> = join_all(begun).await.into_iter().flatten().collect::<Result<_, _>>()?;
        let cpu = self.each(|own| async move { thread_cpu_ns(&own.rt) }).await?;
        let since = |(after, ran): (&Option<u64>, &Ran)| Some((*after)? - ran.cpu_before?);
        let cpu_ns = cpu.iter().zip(&ran).map(since).sum();
        Ok((ran, cpu_ns))
    }

    /// Makes durable what was answered, and has an array end what is left of it to do.
    ///
    /// # Errors
    /// The target's.
    pub async fn settle(&self) -> Result<(), Error> {
        self.each(|own| async move { Box::pin(own.target()?.settle()).await })
            .await?
            .into_iter()
            .collect::<Result<(), _>>()?;
        match &self.0.whole {
            Some(whole) => Ok(whole.checkpoint().await?),
            None => Ok(()),
        }
    }

    /// What was written so far; `None` for direct drives.
    ///
    /// # Errors
    /// When a core has ended.
    pub async fn written(&self) -> Result<Option<Written>, Error> {
        let Some(whole) = &self.0.whole else { return Ok(None) };
        Ok(Some(Written::of(&whole.iostat().await?)))
    }

    /// Ends it in good order, and its threads.
    ///
    /// # Errors
    /// When the array froze on the way.
    pub async fn close(&self) -> Result<(), Error> {
        self.each(|own| async move { own.leave().await }).await?;
        let closed = match &self.0.whole {
            Some(whole) => whole.clone().close().await,
            None => Ok(()),
        };
        drop(self.0.own.part.take());
        self.0.cores.iter().for_each(Core::end);
        // One that panicked has answered nothing, which was said.
        self.0.threads.take().into_iter().for_each(|thread| drop(thread.join()));
        Ok(closed?)
    }

    /// What `verb` says on each core, all at once.
    async fn each<T, F>(&self, verb: impl FnOnce(Rc<Own>) -> F + Clone + Send + 'static) -> Result<Vec<T>, Error>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        let asked: Vec<_> = self.0.cores.iter().map(|core| core.ask(verb.clone())).collect();
        try_join_all(asked).await
    }
}

impl Inner {
    /// Threads, and nothing that they have.
    async fn start(rt: &Rt, cores: usize) -> Result<Inner, Error> {
        let (first, own) = Core::here(rt);
        let mut all = vec![first];
        let mut threads = vec![];
        for number in 1..cores {
            let (core, thread) = Core::start(rt, number).await?;
            all.push(core);
            threads.push(thread);
        }
        Ok(Inner { own, cores: all, threads: RefCell::new(threads), whole: None, apart: false })
    }
}
