//! What hosts' requests go through: the rooms that a volume asks.

use std::rc::Rc;

use crate::ctx::Context;
use crate::health::Health;
use crate::jobs::On;
use crate::jobs::checkpoint::Checkpoints;
use crate::map::Map;
use crate::member::Members;
use crate::memtable::memory::Memory;
use crate::room::Room;
use crate::row::RowReader;
use crate::space::pins::Pins;
use crate::streams::Streams;
use crate::volumes::Volumes;

/// What the volumes of an array share.
pub struct Hosts {
    pub(super) ctx: Rc<Context>,
    pub(super) members: Rc<Members>,
    pub(super) volumes: Rc<Volumes>,
    pub(super) pins: Pins,
    pub(super) memory: Rc<Memory>,
    pub(super) streams: Rc<Streams>,
    pub(super) health: Rc<Health>,
    pub(super) rows: Rc<RowReader>,
    pub(super) room: Rc<Room>,
    pub(super) map: Rc<Map>,
    pub(super) checkpoints: Rc<Checkpoints>,
}

impl Hosts {
    /// Of an array that is open.
    pub fn new(on: &On<'_>, checkpoints: &Rc<Checkpoints>) -> Rc<Hosts> {
        Rc::new(Hosts {
            ctx: on.health.ctx().clone(),
            members: on.state.members.clone(),
            volumes: on.state.volumes.clone(),
            pins: on.state.pins.clone(),
            memory: on.state.memory.clone(),
            streams: on.state.streams.clone(),
            health: on.health.clone(),
            rows: on.rows.clone(),
            room: on.room.clone(),
            map: on.map.clone(),
            checkpoints: checkpoints.clone(),
        })
    }
}
