//! Cores beside the data core: threads that serve connections and nothing else.
//!
//! Not here: what they serve (`export::nbd::Hand`, `export::nvme::Hand`). They may run where the data core may when they
//! begin.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::thread::{Builder, JoinHandle};

use export::remote::HANDS_MAX;
use rt::{MailReceiver, MailSender, Rt};

use crate::Problem;
use crate::memory::Memory;

/// One with the arrays, and as many as connections may be dealt to.
const CORES_MAX: usize = 1 + HANDS_MAX;

/// How many cores work for a server: one with the arrays, the others with connections.
///
/// # Errors
/// When it is no number of cores.
pub fn checked(cores: usize) -> Result<usize, Problem> {
    match cores {
        1..=CORES_MAX => Ok(cores),
        _ => {
            let todo = format!("give 1 to {CORES_MAX}; what is not said is 1");
            Err(Problem::usage("--cores", format!("{cores} is no number of cores to work on"), todo))
        }
    }
}

/// What a core is given to do.
type Work = Box<dyn FnOnce(Rt) -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// Cores for connections.
pub struct Cores(Vec<Core>);

struct Core {
    works: MailSender<Work>,
    thread: JoinHandle<()>,
}

impl Cores {
    /// So many threads, which wait for what they are given.
    ///
    /// # Errors
    /// When a thread cannot be had, or the kernel gives it no ring.
    pub async fn start(rt: &Rt, cores: usize, memory: Memory) -> Result<(Cores, String), Problem> {
        let no_cores = |e| Problem::failed("cores for connections", e, "serve with fewer (--cores)");
        let (begun, mut beginnings) = rt.mailbox();
        let one = |number| {
            let (works, inbox) = rt.mailbox();
            let begun: MailSender<io::Result<()>> = begun.clone();
            let work = move || {
                let rt = match Rt::real() {
                    Ok(rt) => rt,
                    Err(error) => {
                        begun.send(Err(error));
                        return;
                    }
                };
                memory.settle();
                begun.send(Ok(()));
                drop(begun);
                rt.block_on(follow(&rt, inbox));
            };
            let thread = Builder::new().name(format!("connections {}", number + 1)).spawn(work)?;
            Ok(Core { works, thread })
        };
        let all = (0..cores).map(one).collect::<io::Result<Vec<_>>>().map_err(no_cores)?;
        drop(begun);
        while let Some(beginning) = beginnings.recv().await {
            beginning.map_err(no_cores)?;
        }
        let detail = if cores == 0 { "none of their own".to_owned() } else { cores.to_string() };
        Ok((Cores(all), detail))
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Gives each of the works to another core.
    pub fn begin<W, F>(&self, works: Vec<W>)
    where
        W: FnOnce(Rt) -> F + Send + 'static,
        F: Future<Output = ()> + 'static,
    {
        assert_eq!(works.len(), self.0.len(), "one for each core");
        for (core, work) in self.0.iter().zip(works) {
            core.works.send(Box::new(move |rt| Box::pin(work(rt))));
        }
    }

    /// Waits for the threads, which have done all that they were given.
    pub fn join(self) {
        for Core { works, thread } in self.0 {
            drop(works);
            // One that panicked has ended the process.
            drop(thread.join());
        }
    }
}

/// Does what a core is given, until nothing more will come and all of it is done.
async fn follow(rt: &Rt, mut inbox: MailReceiver<Work>) {
    let mut tasks = vec![];
    while let Some(work) = inbox.recv().await {
        tasks.push(rt.spawn(work(rt.clone())));
    }
    for task in tasks {
        task.await;
    }
}
