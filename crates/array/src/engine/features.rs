//! Features of the format: what an array uses, and how it comes to use more.

use std::rc::Rc;

use ondisk::generation::NOTEBOOK;
use ondisk::layout::VOLUMES_MAX;

use super::report::Report;
use crate::engine::Array;
use crate::fault::{Refused, RefusedCode};
use crate::notebook::NOTEBOOK_BLOCKS;
use crate::open::create::random_uuid;
use crate::rooms::Rooms;
use crate::volume::Volume;
use crate::volumes::vol::Vol;

/// Features by name, in the order in which an array gets them.
const FEATURES: [(&str, u64); 1] = [("notebook", NOTEBOOK)];

impl Report<'_> {
    /// Features by name: those in use, as the generation in effect says, or the others.
    pub fn features(&self, in_use: bool) -> Vec<String> {
        let notebook = if notebook_of(self.rooms).is_some() { NOTEBOOK } else { 0 };
        let are_meant = FEATURES.iter().filter(|(_, bit)| (notebook & bit != 0) == in_use);
        are_meant.map(|(name, _)| (*name).to_owned()).collect()
    }
}

/// The volume of a notebook that a generation in effect knows.
fn notebook_of(rooms: &Rooms) -> Option<Rc<Vol>> {
    rooms.volumes().all().values().find(|v| !v.is_hosts() && v.agreed_blocks() > 0).cloned()
}

impl Array {
    /// Features that the array uses, and those that an upgrade would switch on.
    #[must_use]
    pub fn features(&self) -> (Vec<String>, Vec<String>) {
        (self.report().features(true), self.report().features(false))
    }

    /// Switches on every feature that this program knows; what is on already stays. Returns when that is durable: from then on
    /// programs that lack one of them refuse the array. There is no way back, also not when it fails: a commit that was begun may
    /// end later.
    ///
    /// # Errors
    /// When the array takes no writes, has no room for it, or has as many volumes as there may be.
    pub async fn upgrade(&self) -> Result<(), Refused> {
        self.rooms.members().writable()?;
        if self.notebook().is_some() {
            return Ok(());
        }
        let mut features = self.rooms.ctx().said.features();
        if !features.has_notebook() {
            let volumes = self.rooms.volumes();
            if volumes.all().len() >= VOLUMES_MAX {
                let (what, why) = (format!("array \"{}\"", self.name()), "its notebook takes the place of a volume");
                let todo = format!("Delete a volume first: there may be {VOLUMES_MAX} with the notebook");
                return Err(Refused::new(RefusedCode::Size, what, why, todo));
            }
            volumes.add(Vol::notebook(volumes.give_id(), random_uuid(&self.rooms.ctx().rt), NOTEBOOK_BLOCKS));
            features.incompatible |= NOTEBOOK;
            self.rooms.ctx().said.use_features(features);
        }
        // Twice: no generation of before is left, which a program of before would go on from.
        self.rooms.generations().commit_if_there_is_room().await?;
        Ok(self.rooms.generations().commit_if_there_is_room().await?)
    }

    /// The volume of its notebook, if it has one.
    #[must_use]
    pub fn notebook(&self) -> Option<Volume> {
        notebook_of(&self.rooms).map(|vol| Volume::new(self.rooms.hosts().clone(), vol))
    }
}
