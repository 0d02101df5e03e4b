//! What the last scrub of an array found, kept over restarts: `scrub-UUID.toml` beside the list of arrays.
//!
//! The drives keep the position and the schedule of a scrub, and all that it mended; what is here is for people. So a file that is
//! lost, or cannot be written, is no reason to stop anything.

use std::cell::RefCell;
use std::fs;
use std::io;
use std::path::PathBuf;

use api::{ScrubRunView, ScrubView};
use uuid::Uuid;

use crate::registry::replace;

const HEADING: &str = "# What the last scrub of this array found. Written by ashlar.\n";

/// What one array's last scrub found; by default of none, and written nowhere.
#[derive(Debug, Default)]
pub struct LastScrub {
    file: PathBuf,
    written: RefCell<Option<ScrubRunView>>,
}

impl LastScrub {
    /// As it is written in `dir`.
    #[must_use]
    pub fn read(dir: &std::path::Path, array: Uuid) -> LastScrub {
        let file = dir.join(format!("scrub-{array}.toml"));
        let written = match fs::read_to_string(&file).map(|text| toml::from_str(&text)) {
            Ok(Ok(run)) => Some(run),
            Ok(Err(e)) => {
                tracing::warn!("{}: cannot be read: {}", file.display(), e.message());
                None
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => {
                tracing::warn!("{}: cannot be read: {e}", file.display());
                None
            }
        };
        LastScrub { file, written: RefCell::new(written) }
    }

    /// Adds what is remembered, where the array knows of no scrub since it was opened.
    pub fn fill_in(&self, scrub: &mut ScrubView) {
        if scrub.last.is_none() {
            scrub.last.clone_from(&self.written.borrow());
        }
    }

    /// Writes down what an array says, if that is new: a scrub that has ended, or what the one under way has found so far.
    pub fn keep(&self, scrub: &ScrubView) {
        if self.file.as_os_str().is_empty() {
            return;
        }
        let found = scrub.running.as_ref().filter(|run| !run.found.is_empty());
        let Some(now) = found.or(scrub.last.as_ref()) else { return };
        // One that runs goes on and on: what it has found is what matters.
        let same = |before: &ScrubRunView| match found {
            Some(now) => before.found == now.found && before.kind == now.kind && !before.finished,
            None => before == now,
        };
        if self.written.borrow().as_ref().is_some_and(same) {
            return;
        }
        let written = toml::to_string(now).map_err(|e| e.to_string()).and_then(|text| {
            self.file.parent().map_or(Ok(()), fs::create_dir_all).map_err(|e| e.to_string())?;
            replace(&self.file, &format!("{HEADING}{text}")).map_err(|e| e.to_string())
        });
        if let Err(why) = written {
            tracing::warn!(
                "{}: cannot be written, so a restart forgets what the scrub found: {why}",
                self.file.display()
            );
        }
        *self.written.borrow_mut() = Some(now.clone());
    }

    /// Nothing is to be remembered of this array any more.
    pub fn forget(dir: &std::path::Path, array: Uuid) {
        let _may_not_be_there = fs::remove_file(LastScrub::read(dir, array).file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::ScrubFoundView;
    use api::ScrubKind;

    #[test]
    fn what_was_found_outlives_the_process() {
        let dir = tempfile::tempdir().unwrap();
        let array = Uuid::from_u128(7);
        let read = || LastScrub::read(dir.path(), array);
        let mut view = ScrubView::default();
        read().fill_in(&mut view);
        assert_eq!(view.last, None);
        let bad = ScrubFoundView { drive_name: "d1".into(), seat: 1, found: 3, repaired: 2, lost: 1, not_held: 0 };
        let run = ScrubRunView { kind: ScrubKind::Media, found: vec![bad], ..ScrubRunView::default() };
        read().keep(&ScrubView { running: Some(run.clone()), ..ScrubView::default() });
        read().fill_in(&mut view);
        assert_eq!(view.last, Some(run.clone()), "of one that a restart interrupts");
        let ended = ScrubRunView { finished: true, segments_done: 9, eta_seconds: Some(0), ..run };
        read().keep(&ScrubView { last: Some(ended.clone()), ..ScrubView::default() });
        let mut view = ScrubView::default();
        read().fill_in(&mut view);
        assert_eq!(view.last, Some(ended.clone()));
        // The next one finds the same, and has not ended.
        let again = ScrubRunView { finished: false, ..ended };
        read().keep(&ScrubView { running: Some(again.clone()), ..ScrubView::default() });
        let mut view = ScrubView::default();
        read().fill_in(&mut view);
        assert_eq!(view.last, Some(again));
        let newer = ScrubRunView { kind: ScrubKind::Parity, ..ScrubRunView::default() };
        let mut view = ScrubView { last: Some(newer.clone()), ..ScrubView::default() };
        read().fill_in(&mut view);
        assert_eq!(view.last, Some(newer), "what the array says counts");
        LastScrub::forget(dir.path(), array);
        let mut view = ScrubView::default();
        read().fill_in(&mut view);
        assert_eq!(view.last, None);
    }
}
