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
use crate::generation::{Generations, Says};
use crate::health::Health;
use crate::label::Labels;
use crate::map::{Below, Map};
use crate::owner::Marks;
use crate::room::Room;
use checkpoint::Checkpoints;
use clean::Cleaner;
use move_reads::Moves;
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

/// The rooms that jobs work on.
pub struct On<'a> {
    /// Members' health.
    pub health: &'a Rc<Health>,
    /// Marks.
    pub marks: &'a Rc<Marks>,
    /// Labels.
    pub labels: &'a Rc<Labels>,
    /// What the map is made on.
    pub below: Below<'a>,
    /// What generations say.
    pub says: Says<'a>,
    /// The map.
    pub map: &'a Rc<Map>,
    /// Generations.
    pub generations: &'a Rc<Generations>,
}

impl Jobs {
    /// Nothing is under way.
    pub fn new(on: &On<'_>) -> Jobs {
        let (health, below, generations) = (on.health, &on.below, on.generations);
        let (ctx, members, segments) = (health.ctx(), health.members(), below.segments);
        let checkpoints = Checkpoints::new(&on.says, members, on.map, generations);
        let victims = Victims::new(ctx, segments, below.room);
        let moves = Moves::new(ctx, below.pins, below.volumes, below.rows, on.map);
        let surveyor = Surveyor::new(members, below, on.map, &moves);
        let cleaner = Cleaner::new(members, below, on.map, &checkpoints, &victims, &moves, &surveyor);
        let pacing = Pacing::new(members, below.volumes);
        let restore = Restore::new(health, below, generations, &pacing);
        let uses = Uses {
            generations,
            checkpoints: &checkpoints,
            victims: &victims,
            cleaner: &cleaner,
            restore: &restore,
            pacing: &pacing,
        };
        let rebuild = Rebuild::new(health, segments, below.room, &uses);
        let scrubs = Scrubs::new(on, &uses, &rebuild, &surveyor);
        Jobs {
            ctx: ctx.clone(),
            health: health.clone(),
            room: below.room.clone(),
            marks: on.marks.clone(),
            generations: generations.clone(),
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
