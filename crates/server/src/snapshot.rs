//! What reads are answered from: one look at everything, taken when somebody asks, and kept for half a second.
//!
//! Invariants:
//! - the first core is asked at most twice a second, whoever and however many ask; once more after each change that was
//!   made by this API, so that who has changed something sees it;
//! - a look that is older is given only by [`Snapshots::latest`], with its age;
//! - a first core that does not answer makes no reader wait for ever.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use api::{Arrays, Buffers, ClientView, HistogramView, IostatView, Iostats, Kind, Placement, Problem, VERSION};
use rt::probe::Smart;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use crate::acknowledged::Acknowledged;
use crate::daemon::DataHandle;
use crate::registry::{Known, Registry};
use crate::smart::SmartLog;

/// A snapshot is as good as new for so long.
pub const AGE_MAX: Duration = Duration::from_millis(500);

/// How long a reader waits for the first core.
const PATIENCE: Duration = Duration::from_secs(5);

/// Everything.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// The program's version.
    pub program: String,
    /// When the server began, in seconds since 1970.
    pub began_at: u64,
    /// The server and its arrays.
    pub status: Arrays,
    /// When, in milliseconds since some fixed moment of the server's life.
    pub at_millis: u64,
    /// The arrays that this machine knows.
    pub registry: Registry,
    /// Who is connected.
    pub clients: Vec<ClientView>,
    /// Where everything runs.
    pub placement: Placement,
    /// Each core, the first core first; none of one that has ended.
    pub cores: Vec<Option<CoreLook>>,
}

/// One core.
#[derive(Clone, Debug, Default)]
pub struct CoreLook {
    /// CPU time of its thread.
    pub busy: Duration,
    /// Freed buffers that it keeps.
    pub buffers: Buffers,
    /// How long turns of its event loop took.
    pub turns: HistogramView,
}

/// A look, and when it was taken.
#[derive(Clone, Debug)]
pub struct Snapshot {
    look: Look,
    /// Counters.
    pub iostat: Iostats,
    /// What drives say of their health, by path.
    pub smart: BTreeMap<String, Smart>,
    taken: Instant,
}

impl Deref for Snapshot {
    type Target = Look;

    fn deref(&self) -> &Look {
        &self.look
    }
}

impl Snapshot {
    /// What follows from a look that was taken now: on the thread that asks, not on the first core.
    fn of(mut look: Look, known: &[Known], smart: BTreeMap<String, Smart>) -> Snapshot {
        let arrays = look.status.arrays.iter().map(IostatView::from).collect();
        let iostat = Iostats { version: VERSION, at_millis: look.at_millis, arrays };
        // Known arrays that are neither served nor missed.
        let (served, absent) = (&look.status.arrays, &look.status.absent);
        let is_idle = |k: &Known| !served.iter().any(|a| a.uuid == k.uuid) && !absent.iter().any(|a| a.name == k.name);
        look.status.not_served = known.iter().filter(|k| is_idle(k)).map(|k| k.name.clone()).collect();
        Snapshot { look, iostat, smart, taken: Instant::now() }
    }

    /// How old it is.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.taken.elapsed()
    }
}

/// The newest snapshot, and of which change.
#[derive(Clone)]
struct Kept {
    snapshot: Result<Arc<Snapshot>, Problem>,
    edition: u64,
}

/// The snapshots of a server. Clones are the same.
#[derive(Clone)]
pub struct Snapshots {
    kept: watch::Receiver<Option<Kept>>,
    wanted: Arc<Notify>,
    edition: Arc<AtomicU64>,
}

impl Snapshots {
    /// Takes them from now on, on the calling runtime of tokio.
    #[must_use]
    pub fn start(data: DataHandle, acknowledged: Acknowledged) -> Snapshots {
        let (keep, kept) = watch::channel(None);
        let snapshots = Snapshots { kept, wanted: Arc::default(), edition: Arc::default() };
        let (wanted, edition) = (snapshots.wanted.clone(), snapshots.edition.clone());
        let drives = SmartLog::start();
        tokio::spawn(async move {
            loop {
                wanted.notified().await;
                let edition = edition.load(Ordering::SeqCst);
                let look = data.ask(|data| async move { Ok(data.look().await) }).await;
                let known = match &look {
                    Ok(look) => known_arrays(look.registry.clone()).await,
                    Err(_) => vec![],
                };
                let snapshot = look.map(|mut look| {
                    let gone = acknowledged.fill_in(&mut look.status);
                    if !gone.is_empty() {
                        let acknowledged = acknowledged.clone();
                        tokio::task::spawn_blocking(move || acknowledged.forget(&gone));
                    }
                    let members = look.status.arrays.iter().flat_map(|a| &a.members);
                    drives.watch(members.map(|m| m.drive.clone()).filter(|path| path.starts_with("/dev/")).collect());
                    Arc::new(Snapshot::of(look, &known, drives.said()))
                });
                if keep.send(Some(Kept { snapshot, edition })).is_err() {
                    return;
                }
            }
        });
        snapshots
    }

    /// One that is at most [`AGE_MAX`] old, and knows of every change that was made before.
    ///
    /// # Errors
    /// When the server stops, or its first core does not answer.
    pub async fn fresh(&self) -> Result<Arc<Snapshot>, Problem> {
        let mut kept = self.kept.clone();
        let edition = self.edition.load(Ordering::SeqCst);
        let good = |kept: &Option<Kept>| {
            let found = kept.as_ref().filter(|k| k.edition >= edition);
            found.filter(|k| k.snapshot.as_ref().is_ok_and(|s| s.age() < AGE_MAX)).map(|k| k.snapshot.clone())
        };
        let waited = timeout(PATIENCE, async {
            loop {
                if let Some(snapshot) = good(&kept.borrow_and_update()) {
                    return snapshot;
                }
                self.wanted.notify_one();
                if kept.changed().await.is_err() {
                    return Err(silent());
                }
                // What is said now is the answer, also when it is that the server stops.
                if let Some(Kept { snapshot: Err(problem), .. }) = &*kept.borrow() {
                    return Err(problem.clone());
                }
            }
        });
        waited.await.unwrap_or_else(|_| Err(silent()))
    }

    /// The newest one, however old; none before the first.
    pub async fn latest(&self) -> Option<Arc<Snapshot>> {
        if let Ok(Ok(snapshot)) = timeout(AGE_MAX * 2, self.fresh()).await {
            return Some(snapshot);
        }
        self.kept.borrow().as_ref().and_then(|kept| kept.snapshot.clone().ok())
    }

    /// Something was changed: what was seen before is old.
    pub fn changed(&self) {
        self.edition.fetch_add(1, Ordering::SeqCst);
    }
}

/// The arrays that this machine knows; none when the state directory does not answer.
async fn known_arrays(registry: Registry) -> Vec<Known> {
    let read = tokio::task::spawn_blocking(move || registry.list().unwrap_or_default());
    timeout(AGE_MAX, read).await.ok().and_then(Result::ok).unwrap_or_default()
}

fn silent() -> Problem {
    let why = format!("its first core has not answered for {} s", PATIENCE.as_secs());
    let todo = "look at its log; `systemctl status ashlar` says whether the process lives";
    Problem::new(Kind::Failed, "core_silent", "this Ashlar", why, todo)
}

#[cfg(test)]
mod tests {
    use api::{ArrayView, MemberView, VolumeView, WorkView};

    use super::*;
    use crate::metrics;

    /// The page of a snapshot that was taken so long ago.
    fn page(look: Look, ago: Duration) -> String {
        let taken = Instant::now().checked_sub(ago).unwrap();
        metrics::text(Arc::new(Snapshot { taken, ..Snapshot::of(look, &[], BTreeMap::new()) }))
    }

    #[test]
    fn an_old_snapshot_says_how_old_it_is() {
        let said = page(Look::default(), Duration::from_secs(9));
        assert!(said.contains("\nashlar_snapshot_age_seconds 9."), "{said}");
    }

    /// Errors of hosts and of drives, what rots, and what takes room: none is shown as another.
    #[test]
    fn each_figure_is_its_own() {
        let member = MemberView { errors: 2, mismatches: 3, reads_around: 4, ..MemberView::default() };
        let faults = [("medium".to_owned(), 6), ("no_room".to_owned(), 7)].into();
        let work = Some(Box::new(WorkView { faults, limited_nanos: 8_000_000_000, ..WorkView::default() }));
        let volume = VolumeView { errors: 13, mapped_bytes: 9, work, ..VolumeView::default() };
        let array = ArrayView {
            map_room_bytes: 5,
            used_bytes: 10,
            repaired_blocks: 11,
            unmerged_entries: 12,
            memtable_share: 0.25,
            checkpoint_at: Some(14),
            members: vec![member],
            volumes: vec![volume],
            ..ArrayView::default()
        };
        let core = |n: u64| {
            let buffers = Buffers { bytes: n, hits: n + 1, misses: n + 2, ..Buffers::default() };
            CoreLook { busy: Duration::from_secs(n + 3), buffers, ..CoreLook::default() }
        };
        let cores = vec![Some(core(20)), None, Some(core(30))];
        let status = Arrays { arrays: vec![array], ..Arrays::default() };
        let said = page(Look { status, cores, ..Look::default() }, Duration::ZERO);
        for (name, label, value) in [
            ("ashlar_drive_errors_total", "", "2.0"),
            ("ashlar_drive_mismatches_total", "", "3.0"),
            ("ashlar_drive_reads_around_total", "", "4.0"),
            ("ashlar_array_map_room_bytes", "", "5.0"),
            ("ashlar_volume_errors_total", "fault=\"medium\"", "6.0"),
            ("ashlar_volume_errors_total", "fault=\"no_room\"", "7.0"),
            ("ashlar_volume_limited_seconds_total", "", "8.0"),
            ("ashlar_volume_mapped_bytes", "", "9.0"),
            ("ashlar_array_used_bytes", "", "10.0"),
            ("ashlar_array_repaired_blocks_total", "", "11.0"),
            ("ashlar_array_replay_entries", "", "12.0"),
            ("ashlar_array_memtable_ratio", "", "0.25"),
            ("ashlar_array_checkpoint_timestamp_seconds", "", "14.0"),
            ("ashlar_buffers_bytes", "core=\"0\"", "20.0"),
            ("ashlar_buffers_requests_total", "core=\"0\",result=\"hit\"", "21.0"),
            ("ashlar_core_busy_seconds_total", "core=\"0\"", "23.0"),
            ("ashlar_buffers_bytes", "core=\"2\"", "30.0"),
            ("ashlar_buffers_requests_total", "core=\"2\",result=\"miss\"", "32.0"),
        ] {
            let mut lines = said.lines().filter(|line| line.starts_with(&format!("{name}{{")) && line.contains(label));
            let is_so = |line: &str| line.ends_with(&format!(" {value}"));
            assert!(lines.next().is_some_and(is_so) && lines.next().is_none(), "{name} {label} {value}: {said}");
        }
        assert!(!said.contains("core=\"1\""), "a core that has ended says nothing: {said}");
    }

    fn kept_by_hand() -> (watch::Sender<Option<Kept>>, Snapshots) {
        let (keep, kept) = watch::channel(None);
        (keep, Snapshots { kept, wanted: Arc::default(), edition: Arc::default() })
    }

    fn of(edition: u64) -> Option<Kept> {
        let look = Look { began_at: edition, ..Look::default() };
        let snapshot = Snapshot::of(look, &[], BTreeMap::new());
        Some(Kept { snapshot: Ok(Arc::new(snapshot)), edition })
    }

    #[tokio::test]
    async fn readers_share_one_and_a_change_makes_it_old() {
        let (keep, snapshots) = kept_by_hand();
        keep.send_replace(of(0));
        for _ in 0..3 {
            assert_eq!(snapshots.fresh().await.unwrap().began_at, 0);
        }
        snapshots.changed();
        let waiting = tokio::spawn({
            let snapshots = snapshots.clone();
            async move { snapshots.fresh().await.unwrap().began_at }
        });
        snapshots.wanted.notified().await;
        // One that was begun before the change does not do.
        keep.send_replace(of(0));
        snapshots.wanted.notified().await;
        keep.send_replace(of(1));
        assert_eq!(waiting.await.unwrap(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_core_makes_nobody_wait_for_ever() {
        let (keep, snapshots) = kept_by_hand();
        assert!(snapshots.latest().await.is_none());
        assert_eq!(snapshots.fresh().await.unwrap_err().code, "core_silent");
        keep.send_replace(of(0));
        snapshots.changed();
        assert_eq!(snapshots.fresh().await.unwrap_err().code, "core_silent");
        assert_eq!(snapshots.latest().await.unwrap().began_at, 0, "an old one, by its age");
    }
}
