//! Operations of a modelled drive from their begin to their answer.
//!
//! ```text
//!   submit: hook, faults, service time -> Flight + event on the agenda -> served: lands, answers, wakes
//! ```
//!
//! Invariants: a write lands when it is answered, neither before nor (unless lost) not at all; a flight leaves the
//! slab when its future has the answer, or at its answer when its future was dropped; a key never names a second
//! flight.
//!
//! Not here: flights that never get an answer (`cut`).

use std::cmp::Reverse;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use base::{BLOCK_BYTES, BlockCount, MemberLba};

use super::cache::Write;
use super::fault::Draw;
use super::{Disk, DiskParams, FullFor, Op, OpKind, State, Verdict};
use crate::drive::{Load, whole_blocks};
use crate::random::Random;
use crate::time::Event;
use crate::{Buf, Bytes, IoError, Rt};

/// How long a drive that is not there takes to say so.
const GONE_NS: u64 = 1000;

/// What an operation needs to land.
pub(super) enum What {
    Read {
        at: MemberLba,
        buf: Buf,
        corrupt: bool,
    },
    Write {
        write: Write,
        lost: bool,
    },
    /// Makes durable the cached writes with a number below `end`.
    Flush {
        end: u64,
        lost: bool,
    },
}

/// An operation in flight, or answered and not yet collected.
pub(super) struct Flight {
    pub(super) number: u64,
    what: What,
    fails: Option<IoError>,
    /// Fails, and its data lands all the same: wholly, partly or not.
    strays: bool,
    pub(super) answer: Option<Result<(), IoError>>,
    waker: Option<Waker>,
    /// Its future was dropped.
    orphan: bool,
    load: Rc<Load>,
    /// The machine that asked.
    machine: u64,
    /// It is never answered.
    hangs: bool,
}

/// What hook and faults decided about an operation at its begin.
struct Plan {
    fails: Option<IoError>,
    strays: bool,
    hangs: bool,
    lost: bool,
    corrupt: bool,
    misdirect_to: Option<MemberLba>,
    service_ns: u64,
}

/// Names a flight for ever.
#[derive(Clone, Copy)]
pub(crate) struct FlightKey {
    slot: usize,
    number: u64,
}

/// How the flights end when the drive does not answer them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// No answer ever comes.
    Vanish,
    /// They are answered with `Gone` now.
    Gone,
}

impl Disk {
    pub(crate) async fn read(&self, rt: &Rt, load: &Rc<Load>, at: MemberLba, buf: Buf) -> (Result<(), IoError>, Buf) {
        let op = Op { kind: OpKind::Read, at, blocks: whole_blocks(buf.len()) };
        self.submit(rt, load, op, What::Read { at, buf, corrupt: false }).await
    }

    pub(crate) async fn write(&self, rt: &Rt, load: &Rc<Load>, at: MemberLba, data: Bytes) -> Result<(), IoError> {
        let blocks = whole_blocks(data.len());
        let op = Op { kind: OpKind::Write, at, blocks };
        let write = Write { at, blocks, data: Some(data) };
        self.submit(rt, load, op, What::Write { write, lost: false }).await.0
    }

    pub(crate) async fn deallocate(
        &self,
        rt: &Rt,
        load: &Rc<Load>,
        at: MemberLba,
        blocks: BlockCount,
    ) -> Result<(), IoError> {
        let op = Op { kind: OpKind::Deallocate, at, blocks };
        let write = Write { at, blocks, data: None };
        self.submit(rt, load, op, What::Write { write, lost: false }).await.0
    }

    pub(crate) async fn flush(&self, rt: &Rt, load: &Rc<Load>) -> Result<(), IoError> {
        let op = Op { kind: OpKind::Flush, at: MemberLba(0), blocks: BlockCount::ZERO };
        self.submit(rt, load, op, What::Flush { end: 0, lost: false }).await.0
    }

    fn submit(&self, rt: &Rt, load: &Rc<Load>, op: Op, mut what: What) -> Serving {
        let verdict = self.judge(&op);
        // Of several worlds on it each has a clock of its own, by which nobody else's operations can be waited for.
        self.enter(rt.inner.id);
        let state = &mut *self.0.state.borrow_mut();
        state.count(&op);
        let plan = state.plan(&self.0.params, &op, verdict);
        what.adjust(&plan, state.cache.next());

        load.begin();
        state.flights_begun += 1;
        let number = state.flights_begun;
        let flight = Flight {
            number,
            what,
            fails: plan.fails,
            strays: plan.strays,
            answer: None,
            waker: None,
            orphan: false,
            load: load.clone(),
            machine: rt.inner.machine(),
            hangs: plan.hangs,
        };
        let key = FlightKey { slot: state.flights.insert(flight), number };
        if !plan.hangs {
            let now = rt.now();
            let end = match state.flash.as_mut().filter(|_| state.attached) {
                Some(flash) => flash.serve(now.0, &op) + plan.service_ns,
                None => {
                    let Reverse(free) = state.channels.pop().expect("a drive has at least one channel");
                    let end = now.0.max(free) + plan.service_ns;
                    state.channels.push(Reverse(end));
                    end
                }
            };
            let at = now + Duration::from_nanos(end - now.0);
            rt.inner.agenda.borrow_mut().add(at, Event::Served(self.clone(), key));
        }
        Serving { disk: self.clone(), key, collected: false }
    }

    /// Does now what is in flight for a runtime of this machine: a drive does not wait for a process that stands still.
    /// What hangs goes on hanging.
    pub fn hurry(&self, machine: u64) {
        let keys = |state: &State| {
            let waiting = state.flights.iter().filter(|(_, f)| f.machine == machine && f.answer.is_none() && !f.hangs);
            let mut keys: Vec<FlightKey> = waiting.map(|(slot, f)| FlightKey { slot, number: f.number }).collect();
            keys.sort_unstable_by_key(|key| key.number);
            keys
        };
        let keys = keys(&self.0.state.borrow());
        keys.into_iter().for_each(|key| self.served(key));
    }

    /// The time has come for a flight's answer.
    pub(crate) fn served(&self, key: FlightKey) {
        let state = &mut *self.0.state.borrow_mut();
        let Some(flight) = state.flights.get_mut(key.slot) else {
            return;
        };
        if flight.number != key.number || flight.answer.is_some() {
            return;
        }
        let refused = flight.what.changes() && state.reservations.refuse(flight.machine);
        let answer = match flight.fails {
            _ if refused => Err(IoError::Conflict),
            Some(error) => {
                if flight.strays
                    && let Some(write) = flight.what.take_write()
                {
                    let mut random = Random::from_seed(state.random.next());
                    state.land_some(vec![write], &mut random);
                }
                Err(error)
            }
            None => {
                // The operation leaves the slab while it lands, so that the rest of the state can be used.
                let mut what = std::mem::replace(&mut flight.what, What::Flush { end: 0, lost: true });
                let landed = state.perform(&mut what);
                state.flights[key.slot].what = what;
                landed
            }
        };
        state.answer(key.slot, answer);
    }
}

impl What {
    /// Takes in what hook and faults decided, and what was answered before now.
    fn adjust(&mut self, plan: &Plan, answered: u64) {
        match self {
            What::Read { at, corrupt, .. } => {
                *at = plan.misdirect_to.unwrap_or(*at);
                *corrupt = plan.corrupt;
            }
            What::Write { write, lost } => {
                write.at = plan.misdirect_to.unwrap_or(write.at);
                *lost = plan.lost;
            }
            What::Flush { end, lost } => {
                *end = answered;
                *lost = plan.lost;
            }
        }
    }

    /// Whether it is one that a reservation keeps others from.
    fn changes(&self) -> bool {
        matches!(self, What::Write { .. } | What::Flush { .. })
    }

    /// The write that is to land, if it is one.
    fn take_write(&mut self) -> Option<Write> {
        match self {
            What::Write { write, lost: false } => {
                Some(Write { at: write.at, blocks: write.blocks, data: write.data.take() })
            }
            What::Write { lost: true, .. } | What::Read { .. } | What::Flush { .. } => None,
        }
    }
}

impl State {
    fn count(&mut self, op: &Op) {
        let c = &mut self.counters;
        match op.kind {
            OpKind::Read => {
                c.reads += 1;
                c.bytes_read += op.blocks.bytes();
            }
            OpKind::Write => {
                c.writes += 1;
                c.bytes_written += op.blocks.bytes();
            }
            OpKind::Flush => c.flushes += 1,
            OpKind::Deallocate => c.deallocates += 1,
        }
    }

    fn plan(&mut self, params: &DiskParams, op: &Op, verdict: Verdict) -> Plan {
        let drive_blocks = BlockCount::floor_from_bytes(params.bytes);
        let draw = self.faults.draw(op, drive_blocks, &mut self.random);
        self.meet(op, &draw, params.parallelism);
        let mut plan = Plan {
            fails: draw.error.then_some(IoError::Medium),
            strays: draw.error,
            hangs: draw.hang,
            lost: draw.lost,
            corrupt: draw.corrupt,
            misdirect_to: draw.misdirect_to,
            service_ns: self.service_ns(params, op) + draw.extra_ns,
        };
        let finds_room = op.kind != OpKind::Write
            || match self.faults.full_for() {
                FullFor::Nothing => true,
                FullFor::New => self.is_there(op.at, op.blocks),
                FullFor::All => false,
            };
        if !finds_room {
            // The kernel may have written a part of it, where that takes no room.
            let strays = self.is_there(op.at, op.blocks);
            (plan.fails, plan.strays) = (Some(IoError::NoSpace), strays);
            self.met.no_space += 1;
        }
        match verdict {
            Verdict::Proceed => {}
            Verdict::Fail(error) => (plan.fails, plan.strays) = (Some(error), false),
            Verdict::Hang => plan.hangs = true,
            Verdict::DelayNs(ns) => plan.service_ns += ns,
            Verdict::LoseWrite => plan.lost = true,
            Verdict::MisdirectTo(to) => plan.misdirect_to = Some(to),
        }
        if !self.attached {
            plan.fails = Some(IoError::Gone);
            (plan.strays, plan.hangs, plan.service_ns) = (false, false, GONE_NS);
        }
        plan
    }

    /// Counts what an operation meets.
    fn meet(&mut self, op: &Op, draw: &Draw, parallelism: usize) {
        let waiting = self.flights.iter().filter(|(_, f)| f.answer.is_none()).count();
        let met = &mut self.met;
        met.queued += u64::from(waiting >= parallelism);
        met.stalls += u64::from(draw.extra_ns > 0);
        match op.kind {
            OpKind::Read => {
                met.read_errors += u64::from(draw.error);
                met.corrupt_reads += u64::from(draw.corrupt && !draw.error);
            }
            OpKind::Write => {
                met.write_errors += u64::from(draw.error);
                met.lost_writes += u64::from(draw.lost && !draw.error);
                met.misdirected_writes += u64::from(draw.misdirect_to.is_some() && !draw.error && !draw.lost);
            }
            OpKind::Flush => met.lying_flushes += u64::from(draw.lost),
            OpKind::Deallocate => {}
        }
    }

    /// What an operation takes; with flash nothing besides.
    fn service_ns(&mut self, p: &DiskParams, op: &Op) -> u64 {
        if p.flash.is_some() {
            return 0;
        }
        let bytes = op.blocks.bytes() as f64;
        let ns = match op.kind {
            OpKind::Read => p.read_ns as f64 + bytes * p.ns_per_byte_read,
            OpKind::Write => p.write_ns as f64 + bytes * p.ns_per_byte_write,
            OpKind::Flush => p.flush_ns as f64,
            OpKind::Deallocate => p.write_ns as f64,
        };
        (ns * (1.0 + p.jitter * self.random.unit())) as u64 * self.faults.slow_factor()
    }

    /// Does what the operation asks for.
    fn perform(&mut self, what: &mut What) -> Result<(), IoError> {
        match what {
            What::Read { at, buf, corrupt } => {
                let blocks = (buf.len() / BLOCK_BYTES) as u64;
                if !self.bad_blocks.is_empty() && self.bad_blocks.range(at.0..at.0 + blocks).next().is_some() {
                    self.met.bad_blocks += 1;
                    return Err(IoError::Medium);
                }
                self.look(*at, buf);
                if *corrupt && !buf.is_empty() {
                    let bit = self.random.below(buf.len() as u64 * 8) as usize;
                    buf[bit / 8] ^= 1 << (bit % 8);
                }
            }
            What::Write { write, lost } => {
                if !*lost {
                    let data = write.data.take();
                    self.land(Write { at: write.at, blocks: write.blocks, data });
                }
            }
            What::Flush { end, lost } => {
                if !*lost {
                    self.cache.settle(*end, &mut self.image);
                }
            }
        }
        Ok(())
    }

    fn answer(&mut self, slot: usize, answer: Result<(), IoError>) {
        let flight = &mut self.flights[slot];
        flight.answer = Some(answer);
        flight.load.done();
        if let Some(waker) = flight.waker.take() {
            waker.wake();
        }
        if flight.orphan {
            self.flights.remove(slot);
        }
    }

    /// Ends every flight that has no answer; gives the writes among them that could have landed, in the order in
    /// which they began.
    pub(super) fn end_flights(&mut self, ending: Ending) -> Vec<Write> {
        let mut slots: Vec<(u64, usize)> =
            self.flights.iter().filter(|(_, f)| f.answer.is_none()).map(|(slot, f)| (f.number, slot)).collect();
        slots.sort_unstable();
        let mut writes = Vec::new();
        for (_, slot) in slots {
            let flight = &mut self.flights[slot];
            if flight.fails.is_none() || flight.strays {
                writes.extend(flight.what.take_write());
            }
            match ending {
                Ending::Gone => self.answer(slot, Err(IoError::Gone)),
                Ending::Vanish => {
                    flight.load.done();
                    self.flights.remove(slot);
                }
            }
        }
        writes
    }
}

/// The future of an operation.
struct Serving {
    disk: Disk,
    key: FlightKey,
    collected: bool,
}

impl Future for Serving {
    type Output = (Result<(), IoError>, Buf);
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let mut state = this.disk.0.state.borrow_mut();
        let flight = match state.flights.get_mut(this.key.slot) {
            Some(flight) if flight.number == this.key.number => flight,
            // A power cut or a crash took it: no answer ever comes.
            Some(_) | None => return Poll::Pending,
        };
        let Some(answer) = flight.answer else {
            match &mut flight.waker {
                Some(waker) => waker.clone_from(cx.waker()),
                None => flight.waker = Some(cx.waker().clone()),
            }
            return Poll::Pending;
        };
        let flight = state.flights.remove(this.key.slot);
        this.collected = true;
        let buf = match flight.what {
            What::Read { buf, .. } => buf,
            What::Write { .. } | What::Flush { .. } => Buf::zeroed(0),
        };
        Poll::Ready((answer, buf))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if self.collected {
            return;
        }
        let mut state = self.disk.0.state.borrow_mut();
        match state.flights.get_mut(self.key.slot) {
            Some(flight) if flight.number == self.key.number => {
                if flight.answer.is_some() {
                    state.flights.remove(self.key.slot);
                } else {
                    flight.orphan = true;
                    flight.waker = None;
                }
            }
            Some(_) | None => {}
        }
    }
}
