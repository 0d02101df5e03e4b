//! An array of one part or several, as others use it. A part is a complete engine ([`Array`]) on a slice of every drive;
//! parts may be on cores of their own, and know nothing of each other.
//!
//! ```text
//!   Whole ---- part 0, on this core: what counts
//!         ---- part 1 ... : here, or asked by messages (part.rs)
//!
//!           part 0        part 1        part 2
//! drive 0   |L ..... L|   |L ..... L|   |L ....... L|      L: label; the drive's first and last block are labels
//! drive 1   |L ..... L|   |L ..... L|   |L ......... L|
//! ```
//!
//! Invariants: a verb is done in all parts or refused; where a crash comes between, the next open puts it right by what
//! part 0 says. What hosts write is in one part or another, and each recovers by itself: nothing is promised across
//! parts but what a flush promises, which is one of all. An array that was made to its end has a label of its part 0 in
//! the first block of every drive, written last and wiped last. What is done with an array in one piece is what
//! [`Array`] does.
//!
//! Not here: hosts' requests (`export::Striped`), threads.

mod back;
mod check;
mod create;
mod drives;
pub(crate) mod find;
mod finish;
mod job;
mod losses;
mod open;
mod part;
mod plan;
mod status;
mod survey;
mod twins;
mod volumes;
mod wipe;

use api::{ArrayState, ArrayView, IostatView, RecoveryView, ScrubKind};

pub use crate::label::slices::{Slices, slice_of, slices_of};
pub use check::check;
pub use create::{create, create_by};
pub use job::{Had, Job};
pub use losses::Roster;
pub use open::{open, open_by};
pub use part::{Part, to_send};
pub use plan::plan;
pub use status::worse;
pub use survey::{Survey, Surveyed, survey};
pub use twins::without_copies;
pub use volumes::STRIPE_BYTES;
pub use wipe::wipe;

use std::rc::Rc;

use futures::future::{join_all, try_join_all};
use ondisk::PartOf;

use crate::canary::{Canary, planted};
use crate::engine::{Array, Listener, ScrubPlan};
use crate::fault::{Fault, Refused};

/// An open array, all its parts. Clones share it.
#[derive(Clone)]
pub struct Whole {
    first: Array,
    others: Rc<[Part]>,
}

impl From<Array> for Whole {
    fn from(only: Array) -> Whole {
        Whole { first: only, others: Rc::new([]) }
    }
}

impl Whole {
    /// The array of these parts, in their order; when it is open for writing, the others are brought in line with the
    /// first.
    ///
    /// # Errors
    /// When a part lacks what the first has.
    pub async fn of(first: Array, others: Vec<Part>) -> Result<Whole, Refused> {
        let whole = Whole { first, others: others.into() };
        if whole.first.is_writable() {
            whole.line_up().await?;
            if !planted(Canary::PartKeepsName) {
                whole.name_parts().await?;
            }
        }
        Ok(whole)
    }

    /// How many parts.
    fn count(&self) -> u64 {
        1 + self.others.len() as u64
    }

    /// The first part, on this core.
    #[must_use]
    pub fn first(&self) -> &Array {
        &self.first
    }

    /// The other parts.
    #[must_use]
    pub fn others(&self) -> &[Part] {
        &self.others
    }

    /// What `verb` says of every part, the first one's first.
    async fn all<T, F>(&self, verb: impl FnOnce(Array) -> F + Clone + Send + 'static) -> Result<Vec<T>, Fault>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        let here = verb.clone()(self.first.clone());
        let there = try_join_all(self.others.iter().map(|part| part.ask(verb.clone())));
        let (here, there) = futures::join!(here, there);
        Ok(std::iter::once(here).chain(there?).collect())
    }

    /// The array, now.
    ///
    /// # Errors
    /// When the core of a part has ended.
    pub async fn status(&self) -> Result<ArrayView, Fault> {
        Ok(self.of_all(self.all(|array| async move { array.status() }).await?))
    }

    /// Its state: the worst of its parts.
    ///
    /// # Errors
    /// When the core of a part has ended.
    pub async fn state(&self) -> Result<ArrayState, Fault> {
        Ok(self.states().await?.into_iter().reduce(worse).expect("an array has a part"))
    }

    /// Counters, now.
    ///
    /// # Errors
    /// When the core of a part has ended.
    pub async fn iostat(&self) -> Result<IostatView, Fault> {
        let name = self.first.name();
        Ok(status::counted(&name, self.all(|array| async move { array.lines() }).await?))
    }

    /// The array, now, with how requests of its members and volumes were done.
    ///
    /// # Errors
    /// When the core of a part has ended.
    pub async fn status_worked(&self) -> Result<ArrayView, Fault> {
        Ok(self.of_all(self.all(|array| async move { array.status_worked() }).await?))
    }

    fn of_all(&self, parts: Vec<ArrayView>) -> ArrayView {
        let mut status = status::merged(parts);
        status.volumes.iter_mut().for_each(|volume| volume.bytes *= self.count());
        status
    }

    /// Switches on every feature of the format: those of an array in parts are said by its first part, which has the notebook.
    ///
    /// # Errors
    /// As [`Array::upgrade`].
    pub async fn upgrade(&self) -> Result<(), Refused> {
        self.first.upgrade().await
    }

    /// Gives the array another name: that of the first part counts.
    ///
    /// # Errors
    /// As [`Array::rename`], and when the core of a part has ended.
    pub async fn rename(&self, to: &str) -> Result<(), Refused> {
        self.first.rename(to).await?;
        self.name_parts().await
    }

    /// Calls every part as the first one.
    async fn name_parts(&self) -> Result<(), Refused> {
        for part in &*self.others {
            let name = self.first.name();
            let call = async move |array: Array| match array.name() == name {
                true => Ok(()),
                false => array.rename(&name).await,
            };
            part.ask(call).await??;
        }
        Ok(())
    }

    /// Tells `listener` what happens in each part.
    ///
    /// # Errors
    /// When the core of a part has ended.
    pub async fn listen(&self, listener: Listener) -> Result<(), Fault> {
        self.all(move |array| async move { array.listen(listener) }).await.map(drop)
    }

    /// The state of each part, the first one's first.
    ///
    /// # Errors
    /// When the core of a part has ended.
    pub async fn states(&self) -> Result<Vec<ArrayState>, Fault> {
        self.all(|array| async move { array.state() }).await
    }

    /// Brings everything acknowledged into the trees of every part; see [`Array::checkpoint`].
    ///
    /// # Errors
    /// When the array is not writable.
    pub async fn checkpoint(&self) -> Result<(), Fault> {
        self.all(|array| async move { array.checkpoint().await }).await?.into_iter().collect()
    }

    /// What the open had to do: the sums of all parts, and the steps of each.
    ///
    /// # Errors
    /// When the core of a part has ended.
    pub async fn recovery(&self) -> Result<RecoveryView, Fault> {
        Ok(status::recovered(self.all(|array| async move { array.recovery() }).await?))
    }

    /// Hands it over in order, all parts at once: nothing is left to replay.
    ///
    /// # Errors
    /// When a part froze on the way; the others are closed all the same.
    pub async fn close(self) -> Result<(), Fault> {
        let others = join_all(self.others.iter().map(|part| part.ask(|array| array.close())));
        let (first, others) = futures::join!(self.first.clone().close(), others);
        let may_still_write = self.all(|array| async move { array.may_still_write() }).await;
        if self.count() > 1 && may_still_write.is_ok_and(|all| !all.contains(&true)) {
            self.first.release_drives().await;
        }
        others.into_iter().fold(first, |so_far, closed| so_far.and(closed.and_then(|closed| closed)))
    }

    /// Reserves the drives of a new array where all of them can be, so that no other host writes them; an opened one has done so
    /// as [`crate::owner::OwnerHow`] says. Whether they are.
    ///
    /// # Errors
    /// When the core of a part has ended.
    pub async fn reserve(&self) -> Result<bool, Fault> {
        let Some(key) = self.first.reserve().await else { return Ok(false) };
        self.all(move |array| async move { array.reserved_by(key).await }).await?;
        Ok(true)
    }

    /// Starts a scrub of all parts; see [`Array::scrub_start`].
    ///
    /// # Errors
    /// When one is running in some part, or the array is not writable: then none has been started.
    pub async fn scrub_start(&self, kind: ScrubKind, unlimited: bool) -> Result<(), Refused> {
        let started = self.all(move |array| async move { array.scrub_start(kind, unlimited) }).await?;
        let Some(refused) = started.iter().find_map(|started| started.clone().err()) else { return Ok(()) };
        for (part, started) in started.iter().enumerate() {
            if started.is_ok() {
                self.part(part).ask(|array| async move { array.scrub_stop().await }).await?;
            }
        }
        Err(refused)
    }

    /// Ends the scrub under way; false when there is none.
    ///
    /// # Errors
    /// When the core of a part has ended.
    pub async fn scrub_stop(&self) -> Result<bool, Fault> {
        Ok(self.all(|array| async move { array.scrub_stop().await }).await?.contains(&true))
    }

    /// Sets how often scrubs run and how fast, of all parts together; see [`Array::scrub_schedule`].
    ///
    /// # Errors
    /// When the array is not writable.
    pub async fn scrub_schedule(&self, change: ScrubPlan) -> Result<(), Refused> {
        let rate = change.bytes_per_second.map(|rate| rate.div_ceil(self.count()));
        let change = ScrubPlan { bytes_per_second: rate, ..change };
        self.all(move |array| async move { array.scrub_schedule(change).await }).await?.into_iter().collect()
    }

    /// Resolves when no scrub runs or is about to in any part.
    ///
    /// # Errors
    /// When the core of a part has ended.
    pub async fn scrub_done(&self) -> Result<(), Fault> {
        self.all(|array| async move { array.scrub_done().await }).await.map(drop)
    }
}

/// What one part was refused, as said of the array; of one in one piece it stays as it is.
fn in_part(part: PartOf, refused: Refused) -> Refused {
    match part {
        PartOf::ALL => refused,
        PartOf { index, of } => Refused { what: format!("part {} of {of}: {}", index + 1, refused.what), ..refused },
    }
}

/// Closes parts, because another one failed: that is what the caller reports.
pub async fn end_all(parts: Vec<impl Had>) {
    for part in parts {
        part.end().await;
    }
}
