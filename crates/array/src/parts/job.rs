//! What has to be done to have a part: it is made or opened, on the core that has it from then on.

use base::ArrayUuid;
use ondisk::PartOf;
use rt::{Drive, Rt};

use super::{Part, end_all, in_part};
use crate::engine::Array;
use crate::fault::Refused;
use crate::open::OpenHow;
use crate::space::plan::CreateSpec;

/// A part to be made or opened. It may go to another thread; the drives' slices go beside it.
#[derive(Clone, Debug)]
pub struct Job {
    part: PartOf,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    /// Whatever the slices carried.
    Create(CreateSpec, ArrayUuid),
    Open(OpenHow),
}

impl Job {
    pub(super) fn create(part: PartOf, spec: CreateSpec, array: ArrayUuid) -> Job {
        Job { part, what: What::Create(spec, array) }
    }

    pub(super) fn open(part: PartOf, how: OpenHow) -> Job {
        Job { part, what: What::Open(OpenHow { part, ..how }) }
    }

    /// Which part it is.
    #[must_use]
    pub fn part(&self) -> PartOf {
        self.part
    }

    /// Does it, on the calling thread.
    ///
    /// # Errors
    /// As [`Array::create`] and [`Array::open`].
    pub async fn run(self, rt: &Rt, slices: Vec<Drive>) -> Result<Array, Refused> {
        match self.what {
            What::Create(spec, array) => Array::create_part(rt, slices, &spec, (array, self.part)).await,
            What::Open(how) => Array::open(rt, slices, how).await,
        }
    }
}

/// Has `place` do the jobs in turn: every part, or none.
pub(super) async fn do_all<T: Had>(
    jobs: impl Iterator<Item = (Job, Vec<Drive>)>,
    place: impl AsyncFn(Job, Vec<Drive>) -> Result<T, Refused>,
) -> Result<Vec<T>, Refused> {
    let mut parts = vec![];
    for (job, slices) in jobs {
        let part = job.part();
        match place(job, slices).await {
            Ok(part) => parts.push(part),
            Err(refused) => {
                end_all(parts).await;
                return Err(in_part(part, refused));
            }
        }
    }
    Ok(parts)
}

/// What becomes of parts of which one could not be had.
pub trait Had {
    /// Closes it.
    #[allow(async_fn_in_trait, reason = "parts stay on their thread")]
    async fn end(self);
}

impl Had for Array {
    async fn end(self) {
        told(self.close().await);
    }
}

impl Had for Part {
    async fn end(self) {
        told(self.ask(Array::close).await.and_then(|closed| closed));
    }
}

fn told(closed: Result<(), crate::Fault>) {
    if let Err(fault) = closed {
        tracing::warn!("a part of the array was not closed in order: {fault}");
    }
}
