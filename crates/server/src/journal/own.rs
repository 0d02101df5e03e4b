//! What happened to one array, in its own notebook: it is there wherever the array is opened.
//!
//! Invariants:
//! - a reader gets what is durable, and nothing else;
//! - nobody waits for the array: who tells of an event goes on at once;
//! - an array that takes no writes notes nothing. What happened meanwhile is noted when it takes them again, and is in the
//!   server's journal in any case.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::{Event, Events, KeptIn, WhichEvents};
use array::{Fault, Notebook, Volume};
use futures::future::{Either, select};
use rt::{MailReceiver, MailSender, Rt};
use uuid::Uuid;

use super::recent::Recent;
use super::{BATCH, WAITING_MAX, gap, locked, read, record};

/// What could not be noted is tried again after so long.
const RETRY: Duration = Duration::from_secs(5);

/// How many wait, and how many were too many.
#[derive(Default)]
struct Counts {
    waiting: AtomicUsize,
    lost: AtomicU64,
}

/// The way to the journal of one array. When the last one is gone, its writer ends.
#[derive(Clone)]
pub struct ArrayJournal {
    to: Option<MailSender<Event>>,
    counts: Arc<Counts>,
    recent: Arc<Mutex<Option<Recent>>>,
}

/// Who writes it, on the thread of the array.
pub struct ArrayWriter {
    from: MailReceiver<Event>,
    counts: Arc<Counts>,
    recent: Arc<Mutex<Option<Recent>>>,
}

impl ArrayJournal {
    /// That of an array which `takes_writes`, on the thread of `rt`.
    pub fn new(rt: &Rt, takes_writes: bool) -> (ArrayJournal, ArrayWriter) {
        let (to, from) = rt.mailbox();
        let journal = ArrayJournal { to: takes_writes.then_some(to), counts: Arc::default(), recent: Arc::default() };
        let writer = ArrayWriter { from, counts: journal.counts.clone(), recent: journal.recent.clone() };
        (journal, writer)
    }

    /// The same, of whom the writer's end does not wait.
    #[must_use]
    pub fn for_readers(&self) -> ArrayJournal {
        ArrayJournal { to: None, ..self.clone() }
    }

    /// Something happened.
    pub fn tell(&self, event: Event) {
        let Some(to) = &self.to else { return };
        if self.counts.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING_MAX {
            self.counts.waiting.fetch_sub(1, Ordering::Relaxed);
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        to.send(event);
    }

    /// Whether older events have to be read from the notebook for this page: those below a number.
    pub fn lacks(&self, which: &WhichEvents) -> Option<u64> {
        locked(&self.recent).as_ref().and_then(|recent| recent.lacks(which))
    }

    /// A page; None as long as the notebook was not read.
    pub fn page(&self, older: Vec<Event>, which: &WhichEvents) -> Option<Events> {
        let recent = locked(&self.recent).clone()?;
        Some(recent.page(older, which, KeptIn::Array))
    }
}

/// The events of a notebook below a number.
///
/// # Errors
/// When the array cannot be read.
pub async fn older(volume: Volume, array: Uuid, below: u64) -> Result<Vec<Event>, Fault> {
    let (_, found) = Notebook::open(volume, *array.as_bytes()).await?;
    Ok(found.iter().take_while(|f| f.number < below).map(read).collect())
}

impl ArrayWriter {
    /// Notes what it is told in the notebook of an array, until nobody can tell it any more.
    pub async fn run(mut self, rt: Rt, volume: Volume, array: Uuid) {
        let (mut notebook, found) = match Notebook::open(volume, *array.as_bytes()).await {
            Ok(opened) => opened,
            Err(fault) => return tracing::warn!("the notebook of array {array} cannot be read: {fault}"),
        };
        let known = found.iter().map(read).collect();
        *locked(&self.recent) = Some(Recent::of(known, notebook.oldest(), notebook.next_number()));
        drop(found);
        // Numbered, and not durable yet.
        let mut unnoted: Vec<Event> = vec![];
        loop {
            match self.next(&rt, !unnoted.is_empty()).await {
                Some(batch) => self.note(&mut notebook, batch, &mut unnoted).await,
                None if unnoted.is_empty() => return,
                // The array takes nothing any more: the server's journal has it.
                None => return tracing::warn!("{} events are not in the notebook of array {array}", unnoted.len()),
            }
        }
    }

    /// What happened next, none of it when it is time to try again; None at the end.
    async fn next(&mut self, rt: &Rt, try_again: bool) -> Option<Vec<Event>> {
        let first = if try_again {
            match select(pin!(self.from.recv()), pin!(rt.sleep(RETRY))).await {
                Either::Left((first, _)) => first?,
                Either::Right(((), _)) => return Some(vec![]),
            }
        } else {
            self.from.recv().await?
        };
        let mut batch = vec![first];
        while batch.len() < BATCH
            && let Some(event) = self.from.try_recv()
        {
            batch.push(event);
        }
        self.counts.waiting.fetch_sub(batch.len(), Ordering::Relaxed);
        match self.counts.lost.swap(0, Ordering::Relaxed) {
            0 => {}
            lost => batch.push(gap(lost)),
        }
        Some(batch)
    }

    async fn note(&self, notebook: &mut Notebook, mut batch: Vec<Event>, unnoted: &mut Vec<Event>) {
        (notebook.next_number()..).zip(&mut batch).for_each(|(seq, event)| event.seq = seq);
        let records: Vec<Vec<u8>> = batch.iter().map(record).collect();
        unnoted.extend(batch);
        if notebook.append(&records).await.is_ok()
            && let Some(recent) = &mut *locked(&self.recent)
        {
            unnoted.drain(..).for_each(|event| recent.add(event, notebook.oldest()));
        }
        // What readers would find in no journal of memory is not kept for them.
        let too_many = unnoted.len().saturating_sub(WAITING_MAX);
        unnoted.drain(..too_many);
    }
}
