//! What drives say of their health, asked once a minute by a thread of its own: a drive that hangs hangs that thread alone.
//!
//! Invariant: what is old is not told: a drive that does not answer has no figures after [`AGE_MAX`].

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rt::probe::{Smart, smart};

/// Drives are asked so often.
const LOOK: Duration = Duration::from_secs(60);

/// What was said is told so long.
const AGE_MAX: Duration = Duration::from_secs(180);

type Said = Arc<Mutex<BTreeMap<String, (Instant, Smart)>>>;

/// What drives said last. Clones are the same.
#[derive(Clone)]
pub struct SmartLog {
    said: Said,
    paths: mpsc::Sender<Vec<String>>,
}

impl SmartLog {
    /// Begins to ask; of no drives yet. Without a thread nothing is ever said.
    #[must_use]
    pub fn start() -> SmartLog {
        let (paths, wanted) = mpsc::channel();
        let said = Said::default();
        let found = said.clone();
        if let Err(e) = thread::Builder::new().name("smart".into()).spawn(move || look(&wanted, &found)) {
            tracing::warn!("drives are not asked for their health: {e}");
        }
        SmartLog { said, paths }
    }

    /// Asks these drives from now on.
    pub fn watch(&self, paths: Vec<String>) {
        // The thread lives as long as somebody may tell it.
        let _ = self.paths.send(paths);
    }

    /// What the drives said, by path.
    #[must_use]
    pub fn said(&self) -> BTreeMap<String, Smart> {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = said.iter().filter(|(_, (when, _))| when.elapsed() < AGE_MAX);
        fresh.map(|(path, (_, said))| (path.clone(), *said)).collect()
    }
}

fn look(wanted: &mpsc::Receiver<Vec<String>>, said: &Said) {
    let mut paths: Vec<String> = vec![];
    let mut due = Instant::now();
    loop {
        match wanted.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Ok(now) => {
                // New ones at once.
                if now.iter().any(|path| !paths.contains(path)) {
                    due = Instant::now();
                }
                paths = now;
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => return,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                due = Instant::now() + LOOK;
                for path in &paths {
                    if let Ok(log) = smart(Path::new(path)) {
                        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
                        said.insert(path.clone(), (Instant::now(), log));
                    }
                }
            }
        }
    }
}
