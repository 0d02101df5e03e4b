//! Background jobs: what happens to an open array beyond single requests.

mod background;
pub mod checkpoint;
pub mod clean;
mod move_reads;
pub mod rebuild;
pub mod rebuild_pace;
pub mod restore;
pub mod scrub;
mod survey;
pub mod victims;

use std::rc::Rc;

use crate::ctx::Context;
use crate::generation::Generations;
use crate::health::Health;
use crate::label::Labels;
use crate::map::Map;
use crate::owner::Marks;
use crate::room::Room;
use crate::row::RowReader;
use crate::state::State;
use checkpoint::Checkpoints;
use clean::Cleaner;
use move_reads::Relocation;
use rebuild::{Rebuild, Uses};
use rebuild_pace::Pacing;
use restore::Restore;
use scrub::Scrubs;
use survey::Surveyor;
use victims::Victims;

/// The background jobs of an array.
pub struct Jobs {
    ctx: Rc<Context>,
    health: Rc<Health>,
    room: Rc<Room>,
    marks: Rc<Marks>,
    generations: Rc<Generations>,
    checkpoints: Rc<Checkpoints>,
    victims: Rc<Victims>,
    cleaner: Rc<Cleaner>,
    rebuild: Rc<Rebuild>,
    scrubs: Rc<Scrubs>,
}

/// The rooms that jobs, and requests of hosts, work on.
pub struct On<'a> {
    /// What is known.
    pub state: &'a State,
    /// Members' health.
    pub health: &'a Rc<Health>,
    /// Marks.
    pub marks: &'a Rc<Marks>,
    /// Labels.
    pub labels: &'a Rc<Labels>,
    /// Where rows are read.
    pub rows: &'a Rc<RowReader>,
    /// Room.
    pub room: &'a Rc<Room>,
    /// The map.
    pub map: &'a Rc<Map>,
    /// Generations.
    pub generations: &'a Rc<Generations>,
}

impl Jobs {
    /// Nothing is under way.
    pub fn new(on: &On<'_>) -> Jobs {
        let State { members, segments, pins, volumes, .. } = on.state;
        let ctx = members.ctx();
        let checkpoints = Checkpoints::new(on);
        let victims = Victims::new(ctx, segments, on.room);
        let relocation = Relocation::new(ctx, pins, volumes, on.rows, on.map);
        let surveyor = Surveyor::new(on, &relocation);
        let cleaner = Cleaner::new(on, &checkpoints, &victims, &relocation, &surveyor);
        let pacing = Pacing::new(members, volumes);
        let restore = Restore::new(on, &pacing);
        let uses = Uses {
            generations: on.generations,
            checkpoints: &checkpoints,
            victims: &victims,
            cleaner: &cleaner,
            restore: &restore,
            pacing: &pacing,
        };
        let rebuild = Rebuild::new(on.health, segments, on.room, &uses);
        let scrubs = Scrubs::new(on, &uses, &rebuild, &surveyor);
        Jobs {
            ctx: ctx.clone(),
            health: on.health.clone(),
            room: on.room.clone(),
            marks: on.marks.clone(),
            generations: on.generations.clone(),
            checkpoints,
            victims,
            cleaner,
            rebuild,
            scrubs,
        }
    }

    /// Checkpoints.
    pub fn checkpoints(&self) -> &Rc<Checkpoints> {
        &self.checkpoints
    }

    /// What is emptied.
    pub fn victims(&self) -> &Victims {
        &self.victims
    }

    /// Rebuilds.
    pub fn rebuild(&self) -> &Rc<Rebuild> {
        &self.rebuild
    }

    /// Scrubs.
    pub fn scrubs(&self) -> &Rc<Scrubs> {
        &self.scrubs
    }
}
