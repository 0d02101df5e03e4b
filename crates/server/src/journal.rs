//! What happened, kept over restarts: a ring in a file of the state directory, and a thread that writes it.
//!
//! Invariants:
//! - nobody waits for the file: who tells of an event goes on at once, and a file system that hangs stops the journal alone;
//! - events have numbers without a gap, which go on after a restart;
//! - a file that cannot be written is said once a minute; events are kept in memory meanwhile.
//!
//! Not here: what an event means, who is told of it elsewhere; an array's own journal (`own`).

mod own;
mod recent;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use api::{Event, EventCode, EventSeverity, EventView, Events, KeptIn, Problem, WhichEvents};
use ondisk::journal::{BLOCK_BYTES, Found, RECORD_BYTES_MAX, Ring, Unwritten};
use rustix::fs::{FlockOperation, flock};
use tokio::sync::watch;

pub use own::{ArrayJournal, ArrayWriter, events_of};
use recent::{RECENT, Recent};

/// The file's size: some 50,000 events.
const FILE_BYTES: u64 = 16 << 20;

/// Events that wait for the thread.
const WAITING_MAX: usize = 10_000;

/// Events that are written at once.
const BATCH: usize = 64;

/// Whose ring it is.
const OWNER: [u8; 16] = *b"ashlar server\0\0\0";

/// No event: the journal is to say that all before it is written.
const END_MARK: u64 = u64::MAX;

/// How long the end of the server waits for that.
const END_MAX: Duration = Duration::from_secs(3);

/// That the file cannot be written is said again after so long.
const TOLD_AGAIN: Duration = Duration::from_secs(60);

/// The way to the journal. Clones are the same.
#[derive(Clone)]
pub struct Journal {
    to: mpsc::SyncSender<Event>,
    lost: Arc<Mutex<u64>>,
    recent: Arc<Mutex<Recent>>,
    newest: watch::Receiver<u64>,
    file: Option<Arc<File>>,
    ended: Arc<Mutex<bool>>,
    /// Those of arrays, by name.
    arrays: Arc<Mutex<BTreeMap<String, ArrayJournal>>>,
}

impl Journal {
    /// The journal in the directory `dir`; what is in its way is returned as a sentence: then it is in memory alone.
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn open(dir: &Path) -> Result<(Journal, Option<String>), Problem> {
        let path = dir.join("events.journal");
        let (file, ring, found, why) = match open(&path) {
            Ok((file, ring, found)) => (Some(Arc::new(file)), ring, found, None),
            Err(e) => {
                let why = format!("{}: {e}: events are lost when this Ashlar ends", path.display());
                (None, Ring::new(OWNER, FILE_BYTES / BLOCK_BYTES as u64), vec![], Some(why))
            }
        };
        let newest_first = found.len().saturating_sub(RECENT);
        let newest = found[newest_first..].iter().map(read).collect();
        let recent = Recent::of(newest, ring.oldest(), ring.next_number());
        let (tell, newest) = watch::channel(recent.newest());
        let (to, events) = mpsc::sync_channel(WAITING_MAX);
        let (lost, ended) = (Arc::default(), Arc::default());
        let (recent, arrays) = (Arc::new(Mutex::new(recent)), Arc::default());
        let journal = Journal { to, lost, recent, newest, file, ended, arrays };
        let writer = Writer {
            ring,
            file: journal.file.clone(),
            recent: journal.recent.clone(),
            lost: journal.lost.clone(),
            ended: journal.ended.clone(),
            tell,
            told: None,
            unwritten: Unwritten::default(),
        };
        let no_thread = |e| Problem::failed("the journal of events", e, "try again");
        thread::Builder::new().name("journal".into()).spawn(move || writer.run(&events)).map_err(no_thread)?;
        Ok((journal, why))
    }

    /// Something happened.
    pub fn tell(&self, event: Event) {
        if let Some(own) = event.array.as_ref().and_then(|array| locked(&self.arrays).get(array).cloned()) {
            own.tell(event.clone());
        }
        if self.to.try_send(event).is_err() {
            *locked(&self.lost) += 1;
        }
    }

    /// Something happened to the server, or to an array, at somebody's request.
    pub fn note(&self, code: EventCode, array: Option<&str>, who: Option<&str>, text: impl Into<String>) {
        let event = Event::now(code, EventSeverity::Info, array, text);
        self.tell(Event { who: who.map(str::to_owned), ..event });
    }

    /// What an array's events go to.
    #[must_use]
    pub fn listener(&self, array: &str) -> array::Listener {
        let (journal, array) = (self.clone(), array.to_owned());
        Arc::new(move |what: &EventView| {
            journal.tell(Event { seq: 0, what: what.clone(), array: Some(array.clone()), who: None });
        })
    }

    /// Waits until what was told so far is written, but not for ever: the process is about to end.
    pub fn finish(&self) {
        let mark = Event { seq: END_MARK, ..Event::default() };
        let begun = Instant::now();
        if self.to.try_send(mark).is_ok() {
            while !*locked(&self.ended) && begun.elapsed() < END_MAX {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// The number of the newest event, as it grows.
    #[must_use]
    pub fn newest(&self) -> watch::Receiver<u64> {
        self.newest.clone()
    }

    /// Some of the events. May read the file: not for a thread that others wait for.
    #[must_use]
    pub fn read(&self, which: &WhichEvents) -> Events {
        let lacks_older = locked(&self.recent).lacks_older(which);
        let file = self.file.as_ref().filter(|_| lacks_older);
        let found = file.and_then(|file| recovered(file).ok()).map(|(_, found)| found).unwrap_or_default();
        let older: Vec<Event> = found.iter().map(read).collect();
        locked(&self.recent).page(&older, which, KeptIn::Server)
    }

    /// What happens to this array is told to `own`, too, from now on; and what has happened, as far as it is in memory, to one
    /// that `is_new`.
    pub fn begin_array(&self, array: &str, own: ArrayJournal, is_new: bool) {
        let mut arrays = locked(&self.arrays);
        if is_new {
            locked(&self.recent).of_array(array).for_each(|event| own.tell(event.clone()));
        }
        arrays.insert(array.to_owned(), own);
    }

    /// Whether the array has a journal of its own that is written.
    #[must_use]
    pub fn has_array(&self, array: &str) -> bool {
        locked(&self.arrays).contains_key(array)
    }

    /// It has another name.
    pub fn rename_array(&self, from: &str, to: &str) {
        let mut arrays = locked(&self.arrays);
        let own = arrays.remove(from);
        arrays.extend(own.map(|own| (to.to_owned(), own)));
    }

    /// And no more.
    pub fn end_array(&self, array: &str) {
        locked(&self.arrays).remove(array);
    }

    /// The journal of an array's own, if it has one and is open: for readers.
    #[must_use]
    pub fn of_array(&self, array: &str) -> Option<ArrayJournal> {
        locked(&self.arrays).get(array).map(ArrayJournal::for_readers)
    }
}

/// The thread that writes.
struct Writer {
    ring: Ring,
    file: Option<Arc<File>>,
    recent: Arc<Mutex<Recent>>,
    lost: Arc<Mutex<u64>>,
    ended: Arc<Mutex<bool>>,
    tell: watch::Sender<u64>,
    told: Option<Instant>,
    unwritten: Unwritten,
}

impl Writer {
    fn run(mut self, events: &mpsc::Receiver<Event>) {
        while let Ok(first) = events.recv() {
            let mut batch = vec![first];
            batch.extend(events.try_iter().take(BATCH - 1));
            let lost = std::mem::take(&mut *locked(&self.lost));
            if lost > 0 {
                batch.push(gap(lost));
            }
            let ends = batch.iter().any(|event| event.seq == END_MARK);
            batch.retain(|event| event.seq != END_MARK);
            if !batch.is_empty() {
                self.write(batch);
            }
            if ends {
                *locked(&self.ended) = true;
            }
        }
    }

    fn write(&mut self, mut batch: Vec<Event>) {
        let first = self.ring.next_number();
        (first..).zip(&mut batch).for_each(|(seq, event)| event.seq = seq);
        let records: Vec<Vec<u8>> = batch.iter().map(record).collect();
        self.unwritten.add(self.ring.append(records.iter().map(Vec::as_slice)));
        self.write_through();
        let mut recent = locked(&self.recent);
        batch.into_iter().for_each(|event| recent.add(event, self.ring.oldest()));
        self.tell.send_replace(recent.newest());
    }

    /// Writes what is unwritten, as far as that goes; the rest is tried again with the next event.
    fn write_through(&mut self) {
        let Some(file) = &self.file else { return self.unwritten.clear() };
        let mut failed = None;
        while let Some(write) = self.unwritten.first() {
            let at = write.block * BLOCK_BYTES as u64;
            if let Err(e) = file.write_all_at(&write.image, at).and_then(|()| file.sync_data()) {
                failed = Some(e);
                break;
            }
            self.unwritten.first_is_written();
        }
        let Some(e) = failed else { return };
        self.unwritten.keep_newest();
        if self.told.is_none_or(|told| told.elapsed() > TOLD_AGAIN) {
            self.told = Some(Instant::now());
            tracing::warn!("events cannot be written to the state directory: {e}; they are kept in memory");
        }
    }
}

fn gap(lost: u64) -> Event {
    let text = format!("{lost} events came faster than they could be written, and are not kept");
    Event::now(EventCode::EventsLost, EventSeverity::Warning, None, text)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An event as a record; a text that is too long is cut.
fn record(event: &Event) -> Vec<u8> {
    let mut event = Event { seq: 0, ..event.clone() };
    loop {
        let record = serde_json::to_vec(&event).unwrap_or_default();
        if record.len() <= RECORD_BYTES_MAX {
            return record;
        }
        let shorter = event.what.text.chars().take(event.what.text.chars().count() / 2).collect();
        event.what.text = shorter;
    }
}

fn read(found: &Found) -> Event {
    let unreadable = || Event {
        what: EventView { text: "written by another version".to_owned(), ..EventView::default() },
        ..Event::default()
    };
    let event = serde_json::from_slice(&found.record).unwrap_or_else(|_| unreadable());
    Event { seq: found.number, ..event }
}

/// The ring in the file at `path`, which is made when there is none.
fn open(path: &Path) -> io::Result<(File, Ring, Vec<Found>)> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o640).open(path)?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Err(io::Error::other("another Ashlar writes it"));
    }
    if file.metadata()?.len() != FILE_BYTES {
        file.set_len(FILE_BYTES)?;
    }
    let (ring, found) = recovered(&file)?;
    Ok((file, ring, found))
}

fn recovered(file: &File) -> io::Result<(Ring, Vec<Found>)> {
    let mut images = vec![];
    for block in 0..FILE_BYTES / BLOCK_BYTES as u64 {
        let mut image = vec![0; BLOCK_BYTES];
        file.read_exact_at(&mut image, block * BLOCK_BYTES as u64)?;
        images.push(image);
    }
    Ok(Ring::recover(OWNER, &images))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits until so many are there in all.
    fn wait(journal: &Journal, newest: u64) {
        let begun = Instant::now();
        while *journal.newest().borrow() < newest {
            assert!(begun.elapsed() < Duration::from_secs(60), "{newest}");
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn numbers(events: &Events) -> Vec<u64> {
        events.events.iter().map(|event| event.seq).collect()
    }

    #[test]
    fn events_go_on_after_a_restart_and_are_read_by_their_numbers() {
        let dir = tempfile::tempdir().unwrap();
        let (journal, why) = Journal::open(dir.path()).unwrap();
        assert_eq!(why, None);
        assert_eq!(numbers(&journal.read(&WhichEvents::default())), Vec::<u64>::new());
        for n in 1..=5 {
            let array = if n % 2 == 0 { "even" } else { "odd" };
            journal.note(EventCode::RequestDone, Some(array), Some("root"), format!("the {n}th"));
        }
        wait(&journal, 5);
        drop(journal);
        // Its thread has the file until it has seen that.
        let journal = loop {
            match Journal::open(dir.path()).unwrap() {
                (journal, None) => break journal,
                (_, Some(_)) => thread::sleep(Duration::from_millis(2)),
            }
        };
        let read = |after, limit, array: Option<&str>| {
            journal.read(&WhichEvents { after, limit: Some(limit), array: array.map(str::to_owned) })
        };
        assert_eq!(numbers(&read(None, 2, None)), [4, 5]);
        let (first, then) = (read(Some(0), 2, None), read(Some(2), 9, None));
        assert_eq!((numbers(&first), first.next, numbers(&then), then.next), (vec![1, 2], 2, vec![3, 4, 5], 5));
        assert_eq!(numbers(&read(None, 9, Some("even"))), [2, 4]);
        assert_eq!(read(Some(0), 1, None).events[0].what.text, "the 1th");
        journal.note(EventCode::RequestDone, None, None, "x".repeat(10_000));
        wait(&journal, 6);
        assert!(read(None, 1, None).events[0].what.text.len() > 1000);
    }

    #[test]
    fn older_events_come_from_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let (journal, _) = Journal::open(dir.path()).unwrap();
        let events = RECENT as u64 + 100;
        for n in 1..=events {
            journal.note(EventCode::RequestDone, None, None, n.to_string());
        }
        wait(&journal, events);
        let read = journal.read(&WhichEvents { after: Some(0), limit: Some(1000), array: None });
        assert_eq!((read.events.len(), read.events[0].what.text.as_str(), read.next), (1000, "1", 1000));
    }

    #[test]
    fn a_directory_that_cannot_be_used_is_said() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        let (journal, why) = Journal::open(&dir.path().join("file")).unwrap();
        assert!(why.unwrap().contains("events are lost when this Ashlar ends"));
        journal.note(EventCode::RequestDone, None, None, "kept in memory");
        wait(&journal, 1);
        assert_eq!(journal.read(&WhichEvents::default()).events.len(), 1);
    }
}
