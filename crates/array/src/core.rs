//! What the parts of one open array share.
//!
//! Invariant: no borrow of a cell here lives across an `.await`.

use std::rc::Rc;

use base::MemberId;
use rt::Rt;

use crate::canary::{Canary, planted};
use crate::ctx::{Context, Phase, Shape};
use crate::fault::Fault;
use crate::generation::in_effect::InEffect;
use crate::jobs::Jobs;
use crate::log::Log;
use crate::map::memory::Memory;
use crate::map::node_cache::NodeCache;
use crate::member::Members;
use crate::member::seat::Door;
use crate::space::pins::Pins;
use crate::space::segment::Seg;
use crate::space::segments::Segments;
use crate::volume::volumes::Volumes;

/// An open array.
pub struct Core {
    /// What every room has.
    pub ctx: Rc<Context>,
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
    /// The generation in effect.
    pub system: InEffect,
    /// Who still looks at places that may be freed.
    pub pins: Pins,
    /// Background jobs.
    pub jobs: Jobs,
    /// Reads around slow members that may still be made.
    pub hedges: crate::row::hedge::Budget,
    /// What hosts may still take.
    pub room: crate::space::room::Room,
}

impl Core {
    /// An array at rest, to be filled by create or recovery.
    pub fn new(rt: &Rt, name: String, shape: Shape, phase: Phase) -> Rc<Core> {
        Rc::new_cyclic(|core| Core {
            ctx: Rc::new(Context::new(rt, name, shape, phase)),
            members: Members::new(crate::owner::Guard::new(core.clone())),
            segments: Segments::default(),
            volumes: Volumes::default(),
            memory: Memory::default(),
            nodes: NodeCache::default(),
            log: Log::default(),
            system: InEffect::none(rt.random()),
            pins: Pins::default(),
            jobs: Jobs::default(),
            hedges: crate::row::hedge::Budget::default(),
            room: crate::space::room::Room::default(),
        })
    }

    /// What a request that writes gets when the array does not take it.
    #[inline]
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
    #[inline]
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
        // Of an array that holds nothing no segment is lost, but a generation has to lie somewhere.
        let some_stay = seats.iter().any(|s| !gone(s.id)) || planted(Canary::NoneLeftSurvives);
        let table = self.segments.read();
        let fine = |s: &Seg| s.scheme.survives(|c| s.slots[c].is_none_or(|(m, _)| gone(m)));
        some_stay && table.segments.values().filter(|s| which(s)).all(fine)
    }

    /// An open that was refused: nothing is asked of the drives any more, and nobody looks after them.
    pub fn give_up(&self) {
        self.ctx.close();
        self.members.close_doors(Door::Shut);
        self.ctx.changed.wake();
    }
}
