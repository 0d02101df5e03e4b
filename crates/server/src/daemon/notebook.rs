//! The notebooks of the arrays that are served: what happens to an array is noted in it for as long as that lasts.

use std::pin::pin;
use std::time::Duration;

use api::{Done, Problem};
use array::Notebook;
use futures::future::{Either, select};
use uuid::Uuid;

use super::Data;
use crate::journal::ArrayJournal;
use crate::ops::open::Opened;
use crate::ops::upgrade;
use crate::problem;

/// How long the end of an array waits for what is to be noted.
const END_MAX: Duration = Duration::from_secs(3);

impl Data {
    /// Notes what happens to an array, if it has a notebook; in one that `is_new` also what has happened so far.
    pub fn begin_notebook(&self, opened: &Opened, is_new: bool) {
        let first = opened.array.first();
        let name = first.name();
        let Some(volume) = first.notebook() else { return };
        if self.served_as(opened.number()).is_none() || self.journal.has_array(&name) {
            return;
        }
        let rt = &self.world.rt;
        let (journal, writer) = ArrayJournal::new(rt, !opened.read_only);
        let writing = rt.spawn(writer.run(rt.clone(), volume, first.uuid()));
        self.journal.begin_array(&name, journal, is_new);
        self.notebooks.borrow_mut().insert(name, writing);
    }

    /// Notes what was told so far, and no more: the array is about to be closed.
    pub async fn end_notebook(&self, array: &str) {
        self.journal.end_array(array);
        let writing = self.notebooks.borrow_mut().remove(array);
        let Some(mut writing) = writing else { return };
        let late = pin!(self.world.rt.sleep(END_MAX));
        if let Either::Right(((), _)) = select(&mut writing, late).await {
            let seconds = END_MAX.as_secs();
            tracing::warn!(
                "array {array}: its last events were not noted in it within {seconds} s; the server's journal has them"
            );
            writing.cancel();
        }
    }

    /// The blocks of an array's notebook, and whose it is; none of an array without one.
    ///
    /// # Errors
    /// When the array is not served, or cannot be read.
    pub async fn notebook_images(&self, array: &str) -> Result<Option<(Uuid, Vec<Vec<u8>>)>, Problem> {
        let opened = self.array(array)?;
        let first = opened.array.first();
        let Some(volume) = first.notebook() else { return Ok(None) };
        let images = Notebook::images(&volume).await.map_err(|f| problem::fault("the notebook", f))?;
        Ok(Some((first.uuid(), images)))
    }

    /// Switches on every feature of the format that this program knows.
    ///
    /// # Errors
    /// When the array takes no writes, or has no room.
    pub async fn upgrade(&self, opened: &Opened) -> Result<Done, Problem> {
        upgrade::run(&opened.array, || self.begin_notebook(opened, true)).await
    }
}
