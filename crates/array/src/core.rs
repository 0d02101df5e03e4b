//! What the parts of one open array share.
//!
//! Invariant: no borrow of a cell here lives across an `.await`.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use base::{MemberId, Seq};
use ondisk::ReplayFrom;
use rt::Rt;

use crate::ctx::{Context, Phase, Shape};
use crate::fault::Fault;
use crate::log::Log;
use crate::map::memory::Memory;
use crate::map::node_cache::NodeCache;
use crate::member::Members;
use crate::member::seat::Door;
use crate::space::pins::Pins;
use crate::space::segment::Seg;
use crate::space::segments::Segments;
use crate::sync::Gate;
use crate::volume::volumes::Volumes;

/// The last generation that took effect.
pub struct System {
    /// Its number.
    pub number: Cell<u64>,
    /// Drawn at random by this open: in the ids of all generations that it writes.
    pub session: u64,
    /// Its id.
    pub id: Cell<u128>,
    /// Ids before it, newest first.
    pub ancestors: RefCell<VecDeque<u128>>,
    /// One commit at a time.
    pub gate: Gate,
    /// Where replay begins once the published trees are used.
    pub replay_from: Cell<ReplayFrom>,
}

/// An open array.
pub struct Core {
    /// What every room has.
    pub ctx: Rc<Context>,
    /// The next entry's number.
    pub next_seq: Cell<Seq>,
    /// Members.
    pub members: Members,
    /// Segments.
    pub segments: Segments,
    /// Volumes by id.
    pub volumes: Volumes,
    /// Entries not merged.
    pub memory: Memory,
    /// Map nodes read or written.
    pub nodes: NodeCache,
    /// The log.
    pub log: Log,
    /// The system area.
    pub system: System,
    /// Who still looks at places that may be freed.
    pub pins: Pins,
    /// One checkpoint at a time.
    pub checkpoint_gate: Gate,
    /// One step of moves at a time takes locks.
    pub move_gate: Gate,
    /// Checkpoints that were tried.
    pub checkpoints_tried: Cell<u64>,
    /// Segments that the cleaner is emptying, and what their blocks take elsewhere, in thousandths of a segment.
    pub being_emptied: RefCell<BTreeMap<base::SegmentId, i64>>,
    /// Segments that the cleaner could not empty lately.
    pub hard_to_clean: RefCell<std::collections::BTreeSet<base::SegmentId>>,
    /// How a rebuild goes.
    pub rebuild: crate::jobs::rebuild::Progress,
    /// Reads around slow members that may still be made.
    pub detours: crate::row::detour::Budget,
    /// How a scrub goes.
    pub scrub: crate::jobs::scrub::Progress,
    /// What hosts may still take.
    pub room: crate::space::room::Room,
}

impl Core {
    /// An array at rest, to be filled by create or recovery.
    pub fn new(rt: &Rt, name: String, shape: Shape, phase: Phase) -> Rc<Core> {
        Rc::new_cyclic(|core| Core {
            ctx: Rc::new(Context::new(rt, name, shape, phase)),
            next_seq: Cell::new(Seq(1)),
            members: Members::new(crate::owner::Guard::new(core.clone())),
            segments: Segments::default(),
            volumes: Volumes::default(),
            memory: Memory::default(),
            nodes: NodeCache::default(),
            log: Log::default(),
            system: System {
                number: Cell::new(0),
                session: rt.random(),
                id: Cell::new(0),
                ancestors: RefCell::default(),
                gate: Gate::default(),
                replay_from: Cell::default(),
            },
            pins: Pins::default(),
            checkpoint_gate: Gate::default(),
            move_gate: Gate::default(),
            checkpoints_tried: Cell::new(0),
            being_emptied: RefCell::default(),
            hard_to_clean: RefCell::default(),
            rebuild: crate::jobs::rebuild::Progress::default(),
            detours: crate::row::detour::Budget::default(),
            scrub: crate::jobs::scrub::Progress::default(),
            room: crate::space::room::Room::default(),
        })
    }

    /// What a request that writes gets when the array does not take it.
    pub fn writable(&self) -> Result<(), Fault> {
        match self.ctx.phase() {
            Phase::Open => Ok(()),
            Phase::ReadOnly => Err(Fault::ReadOnly),
            Phase::Frozen => Err(self.frozen_by()),
            Phase::Closed => Err(Fault::Closed),
        }
    }

    /// Why it is frozen.
    pub fn frozen_by(&self) -> Fault {
        if self.members.guard.is_lost() { Fault::TakenOver } else { Fault::Frozen }
    }

    /// What a read gets when what it would find may be old.
    pub fn readable(&self) -> Result<(), Fault> {
        if self.ctx.is_uncertain() { Err(self.frozen_by()) } else { Ok(()) }
    }

    /// Whether every segment that matters would survive without the members that are not in.
    pub fn survivable(&self) -> bool {
        self.survivable_without(&[])
    }

    /// The same without `members`, too.
    pub fn survivable_without(&self, members: &[MemberId]) -> bool {
        self.survive(Seg::matters, members)
    }

    /// The same of every segment that is listed, whatever it holds.
    pub fn all_survive_without(&self, members: &[MemberId]) -> bool {
        self.survive(|_| true, members)
    }

    fn survive(&self, which: impl Fn(&Seg) -> bool, without: &[MemberId]) -> bool {
        let seats = self.members.all();
        let gone = |m: MemberId| !seats[usize::from(m.0)].is_in() || without.contains(&m);
        let table = self.segments.read();
        let fine = |s: &Seg| s.scheme.survives(|c| s.slots[c].is_none_or(|(m, _)| gone(m)));
        table.segments.values().filter(|s| which(s)).all(fine)
    }

    /// An open that was refused: nothing is asked of the drives any more, and nobody looks after them.
    pub fn give_up(&self) {
        self.ctx.close();
        self.members.close_doors(Door::Shut);
        self.ctx.changed.wake();
    }
}
