//! The rooms of an open array, put together: who knows which others is said here and nowhere else.
//!
//! A room has its own state, the context, and the rooms below it. Invariant: no borrow of a cell lives across an `.await`.

use std::rc::Rc;

use rt::Rt;

use crate::ctx::{Context, Phase, Shape};
use crate::generation::Generations;
use crate::health::Health;
use crate::in_effect::InEffect;
use crate::jobs::checkpoint::Checkpoints;
use crate::jobs::rebuild::Rebuild;
use crate::jobs::scrub::Scrubs;
use crate::jobs::{Jobs, On};
use crate::label::Labels;
use crate::log::Log;
use crate::map::Map;
use crate::member::Members;
use crate::memtable::memory::Memory;
use crate::owner::Marks;
use crate::room::Room;
use crate::row::RowReader;
use crate::space::pins::Pins;
use crate::space::segments::Segments;
use crate::state::State;
use crate::streams::Streams;
use crate::volume::Hosts;
use crate::volumes::Volumes;

/// The rooms of an open array.
pub struct Rooms {
    ctx: Rc<Context>,
    state: State,
    health: Rc<Health>,
    marks: Rc<Marks>,
    labels: Rc<Labels>,
    rows: Rc<RowReader>,
    room: Rc<Room>,
    log: Rc<Log>,
    map: Rc<Map>,
    generations: Rc<Generations>,
    jobs: Jobs,
    hosts: Rc<Hosts>,
}

impl Rooms {
    /// Those of an array at rest, to be filled by create or recovery.
    pub fn new(rt: &Rt, name: String, shape: Shape, phase: Phase) -> Rc<Rooms> {
        let ctx = Rc::new(Context::new(rt, name, shape, phase));
        let members = Members::new(&ctx);
        let state = State {
            segments: Rc::new(Segments::default()),
            pins: Pins::default(),
            memory: Rc::new(Memory::default()),
            volumes: Volumes::new(&members),
            system: Rc::new(InEffect::none(rt.random())),
            streams: Streams::new(&members),
            members,
        };
        let State { segments, pins, memory, volumes, system, streams, members } = &state;
        let health = Health::new(members, segments, streams);
        let marks = Marks::new(&health);
        let labels = Labels::new(&health);
        let rows = RowReader::new(segments, pins, &health);
        let room = Room::new(segments, pins, memory, volumes, streams, &health);
        let log = Log::new(segments, memory, system, streams, &health, &room);
        let map = Map::new(&state, &rows, &room);
        let generations = Generations::new(&state, &health, &room);
        let on = On {
            state: &state,
            health: &health,
            marks: &marks,
            labels: &labels,
            rows: &rows,
            room: &room,
            map: &map,
            generations: &generations,
        };
        let jobs = Jobs::new(&on);
        let hosts = Hosts::new(&on, jobs.checkpoints());
        Rc::new(Rooms { ctx, state, health, marks, labels, rows, room, log, map, generations, jobs, hosts })
    }

    /// The context.
    #[inline]
    pub fn ctx(&self) -> &Rc<Context> {
        &self.ctx
    }

    /// Members.
    #[inline]
    pub fn members(&self) -> &Rc<Members> {
        &self.state.members
    }

    /// Segments.
    #[inline]
    pub fn segments(&self) -> &Rc<Segments> {
        &self.state.segments
    }

    /// Who looks at places that may be freed.
    #[inline]
    pub fn pins(&self) -> &Pins {
        &self.state.pins
    }

    /// Memtables.
    #[inline]
    pub fn memory(&self) -> &Rc<Memory> {
        &self.state.memory
    }

    /// Volumes.
    #[inline]
    pub fn volumes(&self) -> &Rc<Volumes> {
        &self.state.volumes
    }

    /// The generation in effect.
    #[inline]
    pub fn system(&self) -> &Rc<InEffect> {
        &self.state.system
    }

    /// What waits for the log.
    #[inline]
    pub fn streams(&self) -> &Rc<Streams> {
        &self.state.streams
    }

    /// Members' health.
    #[inline]
    pub fn health(&self) -> &Rc<Health> {
        &self.health
    }

    /// Owner marks and reservations.
    #[inline]
    pub fn marks(&self) -> &Rc<Marks> {
        &self.marks
    }

    /// Labels.
    #[inline]
    pub fn labels(&self) -> &Rc<Labels> {
        &self.labels
    }

    /// Reads rows.
    #[inline]
    pub fn rows(&self) -> &Rc<RowReader> {
        &self.rows
    }

    /// What hosts may still take.
    #[inline]
    pub fn room(&self) -> &Rc<Room> {
        &self.room
    }

    /// The log.
    #[inline]
    pub fn log(&self) -> &Rc<Log> {
        &self.log
    }

    /// The map.
    #[inline]
    pub fn map(&self) -> &Rc<Map> {
        &self.map
    }

    /// Generations.
    #[inline]
    pub fn generations(&self) -> &Rc<Generations> {
        &self.generations
    }

    /// Background jobs.
    #[inline]
    pub fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    /// Checkpoints.
    #[inline]
    pub fn checkpoints(&self) -> &Rc<Checkpoints> {
        self.jobs.checkpoints()
    }

    /// Rebuilds.
    #[inline]
    pub fn rebuild(&self) -> &Rc<Rebuild> {
        self.jobs.rebuild()
    }

    /// Scrubs.
    #[inline]
    pub fn scrubs(&self) -> &Rc<Scrubs> {
        self.jobs.scrubs()
    }

    /// What hosts' requests go through.
    #[inline]
    pub fn hosts(&self) -> &Rc<Hosts> {
        &self.hosts
    }
}
