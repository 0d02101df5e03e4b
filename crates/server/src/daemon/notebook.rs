//! The notebooks of the arrays that are served: what happens to an array is noted in it for as long as that lasts.

use std::pin::pin;
use std::time::Duration;

use api::{Done, Events, Problem, WhichEvents};
use futures::future::{Either, select};

use super::Data;
use crate::journal::{ArrayJournal, older};
use crate::ops::open::Opened;
use crate::ops::upgrade;
use crate::problem;

/// How long the end of an array waits for what is to be noted.
const END_MAX: Duration = Duration::from_secs(3);

impl Data {
    /// Notes what happens to an array, if it has a notebook.
    pub fn begin_notebook(&self, opened: &Opened) {
        let first = opened.array.first();
        let Some(volume) = first.notebook() else { return };
        let rt = &self.world.rt;
        let (journal, writer) = ArrayJournal::new(rt, !opened.read_only);
        let writing = rt.spawn(writer.run(rt.clone(), volume, first.uuid()));
        self.journal.begin_array(&first.name(), journal);
        self.notebooks.borrow_mut().insert(first.name(), writing);
    }

    /// Notes what was told so far, and no more: the array is about to be closed.
    pub async fn end_notebook(&self, array: &str) {
        self.journal.end_array(array);
        let writing = self.notebooks.borrow_mut().remove(array);
        let Some(mut writing) = writing else { return };
        let late = pin!(self.world.rt.sleep(END_MAX));
        if let Either::Right(((), _)) = select(&mut writing, late).await {
            tracing::warn!("array {array}: its last events are not in its notebook, which cannot be written");
            writing.cancel();
        }
    }

    /// A page of what is noted in an array, with events that are not in memory any more.
    ///
    /// # Errors
    /// When the array is not served, or cannot be read.
    pub async fn older_events(&self, array: &str, which: &WhichEvents, below: u64) -> Result<Option<Events>, Problem> {
        let opened = self.array(array)?;
        let first = opened.array.first();
        let (Some(volume), Some(journal)) = (first.notebook(), self.journal.of_array(&first.name())) else {
            return Ok(None);
        };
        let older = older(volume, first.uuid(), below).await.map_err(|f| problem::fault("the notebook", f))?;
        Ok(journal.page(older, which))
    }

    /// Switches on every feature of the format that this program knows.
    ///
    /// # Errors
    /// When the array takes no writes, or has no room.
    pub async fn upgrade(&self, opened: &Opened) -> Result<Done, Problem> {
        upgrade::run(&opened.array, || self.begin_notebook(opened)).await
    }
}
