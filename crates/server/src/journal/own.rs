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
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::{Event, Events, KeptIn, WhichEvents};
use array::{Fault, Notebook, Volume};
use futures::future::{Either, select};
use ondisk::journal::Ring;
use rt::{MailReceiver, MailSender, Rt};
use uuid::Uuid;

use super::recent::{RECENT, Recent};
use super::{BATCH, WAITING_MAX, gap, locked, read, record};

/// What could not be noted is tried again after so long.
const RETRY: Duration = Duration::from_secs(5);

/// What is written for more seconds than these is stuck.
const BEHIND_MAX: u64 = 1;

/// How many wait, and how many were too many.
#[derive(Default)]
struct Counts {
    waiting: AtomicUsize,
    /// Since when something is numbered and not durable, in seconds since 1970; 0: nothing is.
    behind_since: AtomicU64,
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
    /// What it was told before the notebook could be read.
    early: Vec<Event>,
    counts: Arc<Counts>,
    recent: Arc<Mutex<Option<Recent>>>,
}

impl ArrayJournal {
    /// That of an array which `takes_writes`, on the thread of `rt`.
    pub fn new(rt: &Rt, takes_writes: bool) -> (ArrayJournal, ArrayWriter) {
        let (to, from) = rt.mailbox();
        let journal = ArrayJournal { to: takes_writes.then_some(to), counts: Arc::default(), recent: Arc::default() };
        let writer =
            ArrayWriter { from, early: vec![], counts: journal.counts.clone(), recent: journal.recent.clone() };
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

    /// Whether older events have to be read from the notebook for this page.
    pub fn lacks_older(&self, which: &WhichEvents) -> bool {
        locked(&self.recent).as_ref().is_some_and(|recent| recent.lacks_older(which))
    }

    /// Whether something cannot be noted now: the array takes no writes, or has no room.
    pub fn is_stuck(&self) -> bool {
        let since = self.counts.behind_since.load(Ordering::Relaxed);
        since > 0 && unix_seconds() > since + BEHIND_MAX
    }

    /// A page; None as long as the notebook was not read.
    pub fn page(&self, older: &[Event], which: &WhichEvents) -> Option<Events> {
        locked(&self.recent).as_ref().map(|recent| recent.page(older, which, KeptIn::Array))
    }
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The events in the blocks of an array's notebook. Takes long for a full one: not on a thread that others wait for.
pub fn events_of(images: &[Vec<u8>], array: Uuid) -> Vec<Event> {
    let (_, found) = Ring::recover(*array.as_bytes(), images);
    found.iter().map(read).collect()
}

/// The notebook of a volume, and its newest events, which another thread makes of its blocks.
async fn open(rt: &Rt, volume: &Volume, array: Uuid) -> Result<(Notebook, Recent), Fault> {
    let images = Notebook::images(volume).await?;
    let (done, mut result) = rt.mailbox();
    let read_all = move || {
        let (ring, found) = Ring::recover(*array.as_bytes(), &images);
        let newest = found[found.len().saturating_sub(RECENT)..].iter().map(read).collect();
        let recent = Recent::of(newest, ring.oldest(), ring.next_number());
        done.send((ring, recent));
    };
    // Without a thread it is not read.
    let thread = thread::Builder::new().name("notebook".into()).spawn(read_all);
    let read = if thread.is_ok() { result.recv().await } else { None };
    let (ring, recent) = read.ok_or(Fault::Closed)?;
    Ok((Notebook::of(volume.clone(), ring), recent))
}

impl ArrayWriter {
    /// Notes what it is told in the notebook of an array, until nobody can tell it any more.
    pub async fn run(mut self, rt: Rt, volume: Volume, array: Uuid) {
        let mut told = false;
        let mut notebook = loop {
            match open(&rt, &volume, array).await {
                Ok((notebook, recent)) => {
                    *locked(&self.recent) = Some(recent);
                    break notebook;
                }
                Err(Fault::Closed) => return,
                // The array may be read again later.
                Err(fault) if !told => {
                    told = true;
                    tracing::warn!("the notebook of array {array} cannot be read: {fault}; it is tried again");
                }
                Err(_) => {}
            }
            if self.ends_within(&rt, RETRY).await {
                return;
            }
        };
        drop(volume);
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

    /// Whether nobody can tell it anything any more, now or within that time. What it is told meanwhile waits.
    async fn ends_within(&mut self, rt: &Rt, time: Duration) -> bool {
        let until = rt.now() + time;
        while rt.now() < until {
            match select(pin!(self.from.recv()), pin!(rt.sleep(time))).await {
                Either::Left((None, _)) => return true,
                Either::Left((Some(event), _)) => self.early.push(event),
                Either::Right(((), _)) => return false,
            }
        }
        false
    }

    /// What happened next, none of it when it is time to try again; None at the end.
    async fn next(&mut self, rt: &Rt, try_again: bool) -> Option<Vec<Event>> {
        let early = std::mem::take(&mut self.early);
        if !early.is_empty() {
            self.counts.waiting.fetch_sub(early.len(), Ordering::Relaxed);
            return Some(early);
        }
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
        let _known = self.counts.behind_since.compare_exchange(0, unix_seconds(), Ordering::Relaxed, Ordering::Relaxed);
        if notebook.append(&records).await.is_ok()
            && let Some(recent) = &mut *locked(&self.recent)
        {
            unnoted.drain(..).for_each(|event| recent.add(event, notebook.oldest()));
        }
        // What readers would find in no journal of memory is not kept for them.
        let too_many = unnoted.len().saturating_sub(WAITING_MAX);
        unnoted.drain(..too_many);
        if unnoted.is_empty() {
            self.counts.behind_since.store(0, Ordering::Relaxed);
        }
    }
}
