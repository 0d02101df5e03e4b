//! A member at work: its drive, its free zones, and what became of its requests.
//!
//! Invariant: `flushed <= written`; what was written before a flush began is durable when it returns.

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use base::{BlockCount, MemberId, MemberLba, MemberUuid};
use futures::future::{Either, select};
use ondisk::{Layout, MemberState, WhyOut};
use rt::{Buf, Bytes, Drive, IoError, Nanos, Reserve};

use crate::canary::{Canary, planted};
use crate::member::counters::Counters;
use crate::member::guard::Guard;
use crate::member::health::{NEVER_LATE, SeatHealth};
use crate::member::speed::Speed;
use crate::member::standing::Standing;
use crate::member::zones::FreeZones;
use crate::sync::Gate;

/// Reads of blocks being moved that a drive has at once, while no host waits for the cleaner: so few that a host's request
/// is hardly behind them.
pub const MOVES_AT_ONCE: usize = 8;

/// Conflicts of one request, while the own reservation still holds, before the drives count as another's.
pub const CONFLICTS_MAX: usize = 4;

/// The drive of a seat, as it is known.
struct Known {
    /// Its identity in the array.
    uuid: MemberUuid,
    /// For people.
    name: String,
    /// The path it was opened by, also of one that was let go of.
    path: String,
}

/// What the drive is still asked for.
struct Access {
    /// What it still may do.
    door: Cell<Door>,
    /// The array is closed, and what is in flight to it is waited for no longer.
    abandoned: Cell<bool>,
    /// It was seen to hold the generation in effect: it cannot hold an older one in its place any more.
    holds_newest: Cell<bool>,
    /// Who is asked whether the drive is still this server's.
    guard: Rc<Guard>,
}

/// Writes, by the drive's cache.
struct Cache {
    written: Cell<u64>,
    flushed: Cell<u64>,
}

/// One seat and who sits there.
pub struct Seat {
    /// Its number.
    pub id: MemberId,
    /// Where its parts lie.
    pub layout: Layout,
    /// The drive; `None` when it is missing, or was let go of.
    pub drive: Option<Drive>,
    known: Known,
    pub(super) standing: Standing,
    /// Zones that no segment of the last generations has.
    free: RefCell<FreeZones>,
    /// Requests and errors.
    pub counters: Counters,
    /// Requests in flight, and how it behaves.
    pub health: SeatHealth,
    /// How long its reads take.
    pub speed: Speed,
    /// For reads of blocks that are being moved.
    pub moves: Gate,
    access: Access,
    cache: Cache,
}

/// What may still go to a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// Everything.
    Open,
    /// Reads: somebody else may be writing it (the array froze).
    ReadOnly,
    /// Nothing: the array was handed over.
    Shut,
}

impl Seat {
    /// A seat as a generation describes it, all zones free.
    pub fn new(
        id: MemberId,
        member: &ondisk::Member,
        layout: Layout,
        drive: Option<Drive>,
        guard: &Rc<Guard>,
    ) -> Rc<Seat> {
        Rc::new(Seat {
            id,
            layout,
            known: Known {
                uuid: member.uuid,
                name: member.drive_name.clone(),
                path: drive.as_ref().map(|d| d.info().name.clone()).unwrap_or_default(),
            },
            drive,
            standing: Standing::of(member),
            free: RefCell::new(FreeZones::all(layout.zones)),
            counters: Counters::default(),
            health: SeatHealth::default(),
            speed: Speed::default(),
            moves: Gate::new(MOVES_AT_ONCE),
            access: Access {
                door: Cell::new(Door::Open),
                abandoned: Cell::default(),
                holds_newest: Cell::default(),
                guard: guard.clone(),
            },
            cache: Cache {
                // A process before this one may have left writes in the drive's cache.
                written: Cell::new(u64::from(!planted(Canary::OldWritesForgotten))),
                flushed: Cell::new(0),
            },
        })
    }

    /// The drive's identity.
    pub fn uuid(&self) -> MemberUuid {
        self.known.uuid
    }

    /// The drive's serial number or stable name, for people.
    pub fn drive_name(&self) -> &str {
        &self.known.name
    }

    /// The path that the drive was opened by, also of one that was let go of.
    pub fn path(&self) -> &str {
        &self.known.path
    }

    /// Zones that are free.
    pub fn zones_free(&self) -> usize {
        self.free.borrow().len()
    }

    /// Whether no zone is in use.
    pub fn is_bare(&self) -> bool {
        self.zones_free() == self.layout.zones as usize
    }

    /// Takes a free zone.
    pub fn take_zone(&self) -> Option<u32> {
        self.free.borrow_mut().take()
    }

    /// A zone is in use already.
    pub fn occupy_zone(&self, zone: u32) {
        self.free.borrow_mut().occupy(zone);
    }

    /// A zone is free, and is not to be deallocated: it has been, or the drive may keep what is there.
    pub fn give_zone(&self, zone: u32) {
        self.free.borrow_mut().give(zone);
    }

    /// A zone is free that the drive keeps yet.
    pub fn free_zone(&self, zone: u32, now: Nanos) {
        self.free.borrow_mut().free(zone, now);
    }

    /// When the next free zone is to be deallocated, where zones wait for `unused`.
    pub fn zone_is_due(&self, unused: Duration) -> Option<Nanos> {
        self.free.borrow().due(unused)
    }

    /// Takes that zone, if it is time.
    pub fn take_due_zone(&self, now: Nanos, unused: Duration) -> Option<u32> {
        self.free.borrow_mut().take_due(now, unused)
    }

    /// Deallocates a zone that was taken; then it is free.
    pub async fn deallocate_zone(&self, zone: u32) {
        self.deallocate(self.layout.zone_row(zone, 0), BlockCount(u64::from(self.layout.zone_blocks))).await;
        self.give_zone(zone);
    }

    /// What `of` says if one free zone less were there; `None` if none is.
    pub fn with_a_zone_less<T>(&self, of: impl FnOnce() -> T) -> Option<T> {
        let taken = self.free.borrow_mut().take_away()?;
        let said = of();
        self.free.borrow_mut().put_back(taken);
        Some(said)
    }

    /// What it still may be asked for.
    #[inline]
    pub fn door(&self) -> Door {
        self.access.door.get()
    }

    /// From here on it is asked for no more than `door` lets through.
    pub fn close_door(&self, door: Door) {
        self.access.door.set(door);
    }

    /// Whether it was seen to hold the generation in effect.
    pub fn holds_newest(&self) -> bool {
        self.access.holds_newest.get()
    }

    /// Whether it holds the generation in effect.
    pub fn is_newest(&self, holds: bool) {
        self.access.holds_newest.set(holds);
    }

    /// The same seat, whose drive is not here.
    pub fn without_drive(&self) -> Rc<Seat> {
        let seat = Seat::new(self.id, &self.line_as(self.state(), self.layout), self.layout, None, self.guard());
        *seat.free.borrow_mut() = self.free.borrow().clone();
        seat
    }

    /// The same seat, whose drive is let go of: another may use it from now on. People know it by its path still.
    pub fn let_go(&self) -> Rc<Seat> {
        let mut seat = Rc::into_inner(self.without_drive()).expect("nobody else has it yet");
        seat.known.path.clone_from(&self.known.path);
        Rc::new(seat)
    }

    /// The same seat, which this drive has left.
    pub fn left_by(&self, drive: Drive, layout: Layout) -> Rc<Seat> {
        Seat::new(self.id, &self.line_as(MemberState::Vacant, layout), layout, Some(drive), self.guard())
    }

    /// The same seat with its drive back, all zones free.
    pub fn again(&self, drive: Drive, layout: Layout) -> Rc<Seat> {
        Seat::new(self.id, &self.line_as(MemberState::In, layout), layout, Some(drive), self.guard())
    }

    fn line_as(&self, state: MemberState, layout: Layout) -> ondisk::Member {
        let is_gone = state == MemberState::Out || state == MemberState::Vacant;
        ondisk::Member {
            state,
            drive_blocks: layout.drive_blocks,
            zones: layout.zones,
            leaving: false,
            gone_since: if is_gone { self.gone_since() } else { base::Generation(0) },
            why_out: if state == MemberState::Out { self.why_out() } else { WhyOut::Unsaid },
            ..self.line()
        }
    }

    /// Who is asked whether its drive is this server's.
    pub fn guard(&self) -> &Rc<Guard> {
        &self.access.guard
    }

    /// How people know it: by its path, its seat, and its serial number or stable name.
    pub fn title(&self) -> String {
        let name = &self.known.name;
        match Some(self.path()).filter(|path| !path.is_empty()) {
            Some(path) if !path.ends_with(name.as_str()) && !name.ends_with(path) => {
                format!("drive {path} (seat {}, {name})", self.bay())
            }
            Some(path) => format!("drive {path} (seat {})", self.bay()),
            None => format!("drive {name} (seat {})", self.bay()),
        }
    }

    /// Whether what it completed can be lost in a power cut until a flush.
    pub fn volatile(&self) -> bool {
        self.drive.as_ref().is_some_and(|d| d.info().volatile_cache)
    }

    /// Takes part, or stands by, and its drive is here: it has labels.
    pub fn has_labels(&self) -> bool {
        !self.left() && self.drive.is_some()
    }

    /// Waits until nothing is in flight to its drive, or `patience` is over: then nobody waits for that any more.
    pub async fn come_to_rest(&self, patience: impl Future<Output = ()>) {
        let Some(drive) = &self.drive else { return };
        if let Either::Right(_) = select(pin!(drive.idle()), pin!(patience)).await {
            self.access.abandoned.set(true);
            self.health.wake();
        }
    }

    /// It is out: nobody waits for it any more.
    fn left(&self) -> bool {
        self.access.abandoned.get() || !matches!(self.state(), MemberState::In | MemberState::Spare)
    }

    fn readable_drive(&self) -> Result<&Drive, IoError> {
        match &self.drive {
            Some(drive) if !self.left() && self.door() != Door::Shut => Ok(drive),
            _ => Err(IoError::Gone),
        }
    }

    fn writable_drive(&self) -> Result<&Drive, IoError> {
        let closed = self.door() != Door::Open && !planted(Canary::DoorsForgotten);
        if closed { Err(IoError::Gone) } else { self.readable_drive() }
    }

    /// Reads `buf.len()` bytes.
    pub async fn read(&self, at: MemberLba, buf: Buf) -> (Result<(), IoError>, Buf) {
        let drive = match self.readable_drive() {
            Ok(drive) => drive,
            Err(gone) => return (Err(gone), buf),
        };
        self.counters.reads.add(1);
        self.counters.bytes_read.add(buf.len() as u64);
        let bytes = buf.len();
        let timed = self.counters.begin(drive);
        let answer = self.health.watch(drive.turned(), || self.left(), pin!(drive.read(at, buf))).await;
        let (mut result, mut buf) = answer.unwrap_or_else(|| (Err(IoError::Gone), Buf::zeroed(bytes)));
        if result == Err(IoError::Conflict) && Box::pin(self.access.guard.conflict(drive)).await {
            let read = drive.read(at, buf);
            let answer = self.health.watch(drive.turned(), || self.left(), Box::pin(read).as_mut()).await;
            (result, buf) = answer.unwrap_or_else(|| (Err(IoError::Gone), Buf::zeroed(bytes)));
        }
        timed.end(&self.counters.reads_took, result);
        self.count(result.err());
        if !matches!(result, Err(IoError::Gone | IoError::Conflict)) {
            self.health.heard_of_read(result.is_err(), drive.turned());
        }
        (result, buf)
    }

    /// Writes `data`.
    pub async fn write(&self, at: MemberLba, data: Bytes) -> Result<(), IoError> {
        self.write_vectored(at, vec![data]).await
    }

    /// Writes `parts` behind each other, as one request.
    pub async fn write_vectored(&self, at: MemberLba, parts: Vec<Bytes>) -> Result<(), IoError> {
        let mut drive = self.writable_drive()?;
        if !self.access.guard.is_fresh(drive.recent()) {
            Box::pin(self.access.guard.freshen()).await;
            drive = self.writable_drive()?;
        }
        self.counters.writes.add(1);
        self.counters.bytes_written.add(parts.iter().map(|part| part.len() as u64).sum());
        let timed = self.counters.begin(drive);
        let answer = self.health.watch(drive.turned(), || self.left(), pin!(drive.write_vectored(at, parts))).await;
        let result = answer.unwrap_or(Err(IoError::Gone));
        timed.end(&self.counters.writes_took, result);
        self.cache.written.set(self.cache.written.get() + 1);
        if result == Err(IoError::Conflict) {
            Box::pin(self.access.guard.conflict(drive)).await;
        }
        self.count(result.err());
        if self.is_doubtful(drive, result) { Box::pin(self.still_ours()).await } else { result }
    }

    /// Whether a success is to be looked into: what was asked before this process stood still may be answered after it, and another
    /// server have the drives by then.
    fn is_doubtful(&self, drive: &Drive, result: Result<(), IoError>) -> bool {
        result.is_ok() && !self.access.guard.is_fresh(drive.recent()) && !planted(Canary::StaleAcked)
    }

    /// A success counts once the drives are known to be this server's.
    async fn still_ours(&self) -> Result<(), IoError> {
        self.access.guard.freshen().await;
        self.writable_drive().map(drop)
    }

    /// A conflict is no error of the drive.
    fn count(&self, error: Option<IoError>) {
        if error.is_some_and(|e| e != IoError::Conflict || planted(Canary::ConflictCounted)) {
            self.counters.errors.add(1);
        }
    }

    /// Gives blocks back to the drive: a hint, one that cannot do it is as good without.
    async fn deallocate(&self, at: MemberLba, blocks: BlockCount) {
        if self.writable_drive().is_ok_and(|drive| !self.access.guard.is_fresh(drive.recent())) {
            Box::pin(self.access.guard.freshen()).await;
        }
        if let Ok(drive) = self.writable_drive() {
            let given = self.health.watch(NEVER_LATE, || self.left(), pin!(drive.deallocate(at, blocks))).await;
            if given == Some(Err(IoError::Conflict)) {
                Box::pin(self.access.guard.conflict(drive)).await;
            }
        }
    }

    /// Reads for the owner mark. It is not counted; a drive that does not answer is late, as with any request, since writes wait
    /// for these reads and would not find out.
    pub async fn read_aside(&self, at: MemberLba, buf: Buf) -> Result<Buf, IoError> {
        let drive = self.readable_drive()?;
        let answer = self.health.watch(drive.turned(), || self.left(), pin!(drive.read(at, buf))).await;
        let (done, buf) = answer.unwrap_or_else(|| (Err(IoError::Gone), Buf::zeroed(0)));
        done.map(|()| buf)
    }

    /// Writes the owner mark: it is neither counted nor watched.
    pub async fn write_aside(&self, at: MemberLba, block: Bytes) -> Result<(), IoError> {
        let drive = self.writable_drive()?;
        let written = drive.write(at, block).await;
        if written == Err(IoError::Conflict) {
            Box::pin(self.access.guard.conflict(drive)).await;
        }
        written
    }

    /// Takes the array's labels and generations off a drive that has left.
    pub async fn wipe(&self) -> Result<(), IoError> {
        let Some(drive) = &self.drive else { return Err(IoError::Gone) };
        let zeros = Buf::zeroed(base::BLOCK_BYTES).freeze();
        let [first, last, inner] = self.layout.labels();
        let open = || if self.door() == Door::Open { Ok(()) } else { Err(IoError::Gone) };
        let mark = self.layout.owner_mark();
        // The first label goes last, and durably so: of a slice that has nothing but its last one it would seem that something
        // was put over the drive, and the other parts would not believe what they have there.
        let ends = if planted(Canary::FirstLabelWipedFirst) { [first, last] } else { [last, first] };
        for at in [inner, self.layout.slot(0), self.layout.slot(1)].into_iter().chain(mark).chain(ends) {
            if at == ends[1] {
                open()?;
                drive.flush().await?;
            }
            open()?;
            drive.write(at, zeros.clone()).await?;
        }
        open()?;
        drive.flush().await?;
        if let Some(key) = self.access.guard.key_to_end() {
            // Whether it had a reservation or not: nobody of ours writes there any more.
            let _left = drive.reserve(Reserve::Leave(key)).await;
        }
        Ok(())
    }

    /// Makes durable what was completed before.
    pub async fn flush(&self) -> Result<(), IoError> {
        let drive = self.writable_drive()?;
        let upto = self.cache.written.get();
        if !self.volatile() || upto == self.cache.flushed.get() {
            return Ok(());
        }
        self.counters.flushes.add(1);
        let timed = self.counters.begin(drive);
        let mut conflicts = 0;
        let result = loop {
            let answer = self.health.watch(drive.turned(), || self.left(), pin!(drive.flush())).await;
            conflicts += 1;
            match answer.unwrap_or(Err(IoError::Gone)) {
                Err(IoError::Conflict)
                    if Box::pin(self.access.guard.conflict(drive)).await && conflicts < CONFLICTS_MAX => {}
                result => break result,
            }
        };
        timed.end(&self.counters.flushes_took, result);
        if result.is_ok() {
            self.cache.flushed.set(self.cache.flushed.get().max(upto));
        }
        self.count(result.err());
        if self.is_doubtful(drive, result) { Box::pin(self.still_ours()).await } else { result }
    }
}
