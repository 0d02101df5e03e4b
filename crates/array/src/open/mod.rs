//! Open: a list of named steps from drives to an array that serves.

pub mod create;
pub mod find;
pub mod load;
pub mod newer;
pub mod previous;
pub mod recovering;
pub mod replay;
pub mod returning;
pub mod settle;

use std::rc::Rc;
use std::time::Duration;

use api::{EventCode, RecoveryStepView, RecoveryView, Remedy};
use base::BLOCK_BYTES;

use ondisk::{Generation, Label, PartOf};
use rt::{Buf, Drive, Rt};

pub(crate) use find::{NOT_OWN, choose, is_newcomer, last_word, read_member};
use find::{epoch_after, find_members};
pub(crate) use load::frontier_survives;
use load::load;

use crate::canary::{Canary, planted};
use crate::fault::{Fault, Refused, RefusedCode};
use crate::open::newer::refuse_newer;
use crate::open::replay::ReplayHow;
use crate::open::returning::Standing;
use crate::owner::OwnerHow;
use crate::rooms::Rooms;
use recovering::Recovering;

/// How to open.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenHow {
    /// Write nothing to any drive.
    pub read_only: bool,
    /// Accept half or fewer of the members.
    pub degraded: bool,
    /// Leave out drives with a history of their own instead of refusing.
    pub force_diverged: bool,
    /// Go on over records that are lost beyond repair.
    pub accept_loss: bool,
    /// Give up the newest generation, and what was written since the one before; see [`crate::open::previous`].
    pub previous: bool,
    /// What to do about other servers.
    pub owner: OwnerHow,
    /// Which part of the array: what is opened are slices of its drives, unless it is in one piece.
    pub part: PartOf,
}

/// A drive whose history left ours no more than this many generations ago is a rival, not merely old.
const ANCESTORS_NEAR: u64 = ondisk::generation::ANCESTORS as u64;

/// A drive and what it says.
pub(crate) struct Found {
    pub drive: Drive,
    pub label: Label,
    /// Newest first.
    pub generations: Vec<Generation>,
    /// Whether it holds a generation, or the label in its first block: else something else may have been put on it since.
    pub own: bool,
    /// Whether it does not hold the generation, and is known to have been there when that took effect.
    pub lent: bool,
}

struct Recovery<'a> {
    rt: &'a Rt,
    report: RecoveryView,
    since: rt::Nanos,
}

impl Recovery<'_> {
    fn step(&mut self, name: &'static str, detail: String) {
        let now = self.rt.now();
        let millis = (now - self.since).as_millis() as u64;
        tracing::debug!("{name}: {detail} ({millis} ms)");
        self.report.steps.push(RecoveryStepView { name: name.to_owned(), millis, detail });
        self.since = now;
    }
}

/// Opens the array of `drives`; background work is not started.
pub async fn open(rt: &Rt, drives: Vec<Drive>, how: OpenHow) -> Result<(Rc<Rooms>, RecoveryView), Refused> {
    if how.previous && !how.read_only {
        // Nothing is given up before the other is known to open.
        let (trial, _) = Box::pin(open(rt, drives.clone(), OpenHow { read_only: true, ..how })).await?;
        previous::refuse_too_few(&trial)?;
    }
    let mut recovery = Recovery { rt, report: RecoveryView::default(), since: rt.now() };
    let mut found = find_members(rt, drives, how.part).await?;
    recovery.step("find members", format!("{} drives", found.len()));
    let (mut generation, mut standings) = choose(&found, how)?;
    let given_up = how.previous.then(|| generation.clone());
    if let Some(newest) = &given_up {
        previous::set_aside(&mut found, newest)?;
        (generation, standings) = choose(&found, how)?;
    }
    let seen = given_up.as_ref().map_or_else(|| generation.clone(), |newest| previous::with_later(&generation, newest));
    let how = OpenHow { accept_loss: how.accept_loss || how.previous, ..how };
    recovery.step("choose generation", format!("generation {}, epoch {}", generation.number, generation.epoch));
    let believed: Vec<bool> = standings.iter().map(Standing::is_current).collect();
    if !how.accept_loss {
        refuse_newer(&found, &believed, &generation).await?;
    }
    recovery.report.clean = generation.clean;
    let rooms = load(rt, &generation, &found, &standings, how)?;
    let chosen = Chosen { generation, seen, given_up, found, standings, believed };
    rooms.health().watch_recovery();
    let steps = Box::pin(recover(&rooms, &chosen, how, &mut recovery));
    let recovered = rooms.health().unless_silent(steps).await.unwrap_or_else(|silent| {
        Err(Refused::new(
            RefusedCode::Io,
            format!("array \"{}\"", rooms.ctx().name()),
            format!("{silent} does not answer, and the array cannot be opened without it"),
            "Check the drive and its cabling, then open the array again",
        ))
    });
    rooms.ctx().set_recovering(false);
    if let Err(refused) = recovered {
        rooms.members().give_up();
        return Err(refused);
    }
    rooms.ctx().changed.wake();
    recovery.report.repaired_blocks = rooms.ctx().figures.repaired_blocks.get();
    Ok((rooms, recovery.report))
}

/// What an open goes on from: the generation, and what each drive is to it.
struct Chosen {
    generation: Generation,
    /// As far as records may be of: a later one that is given up, too.
    seen: Generation,
    given_up: Option<Generation>,
    found: Vec<Found>,
    standings: Vec<Standing>,
    believed: Vec<bool>,
}

/// From tables to an array that may serve.
async fn recover(rooms: &Rc<Rooms>, chosen: &Chosen, how: OpenHow, recovery: &mut Recovery<'_>) -> Result<(), Refused> {
    let Chosen { generation, seen, given_up, found, standings, believed } = chosen;
    let writable = rooms.ctx().is_open();
    rooms.marks().carry_marks(how.owner.carried);
    if let Some(newest) = given_up.as_ref().filter(|_| !planted(Canary::NumbersTwice)) {
        previous::nothing_twice(rooms, newest);
    }
    if writable {
        rooms.health().open_with_room(heal_slots(rooms, generation, found, believed)).await?;
        if let Some(newest) = given_up.as_ref().filter(|_| !planted(Canary::GivenUpStays)) {
            previous::forget(rooms, newest).await?;
        }
    }
    recovery
        .step("load tables", format!("{} segments, {} volumes", generation.segments.len(), generation.volumes.len()));
    let epoch = epoch_after(seen.epoch, rooms.ctx().rt.unix_seconds());
    let replay = ReplayHow {
        mend: writable || planted(Canary::ReadOnlyWrites),
        accept_loss: how.accept_loss || !writable,
        epoch,
    };
    let done = rooms.health().open_with_room(Box::pin(Recovering::of(rooms).replay(seen, replay))).await?;
    recovery.report.replayed_records = done.records;
    recovery.report.replayed_entries = done.entries;
    recovery.report.cut_segments = done.cut_segments;
    recovery.report.damaged_records = done.damaged;
    if done.uncertain && writable && !how.accept_loss {
        return Err(Refused::new(
            RefusedCode::Damaged,
            "recovery stops",
            "the end of the log cannot be read, so the last acknowledged writes are not known",
            "Check the drives and try again, or open it for reading only",
        )
        .by(Remedy::OpenReadOnly));
    }
    if done.uncertain && !how.accept_loss && !planted(Canary::OldReadsAllowed) {
        rooms.ctx().doubt();
        rooms.ctx().error(
            EventCode::ReadsRefused,
            "the newest records are on missing drives: reads are refused, because they could return old data"
                .to_owned(),
        );
    }
    recovery
        .step("replay", format!("{} records, {} entries of {} segments", done.records, done.entries, done.segments));
    if rooms.members().guard().is_lost() {
        return Err(Fault::TakenOver.into());
    }
    if writable {
        rooms.ctx().set_epoch(epoch);
        let aside = Recovering::of(rooms).settle_segments(how.owner.carried.is_some_and(|c| c.is_unsure()));
        if !aside.is_empty() {
            rooms.room().zones_on_their_way(aside.len() as i64);
            // Not an owner of drives: the array may be closed, and they be let go of, long before.
            let aside: Vec<_> = aside.into_iter().map(|(seat, zone)| (Rc::downgrade(&seat), zone)).collect();
            let (later, rt) = (Rc::downgrade(rooms), rooms.ctx().rt.clone());
            let free = async move {
                rt.sleep(LATE_WRITES).await;
                if let Some(rooms) = later.upgrade() {
                    let there = aside.into_iter().filter_map(|(seat, zone)| Some((seat.upgrade()?, zone)));
                    rooms.pins().free_later(there.collect());
                }
            };
            rooms.ctx().rt.spawn(free).detach();
        }
        if !rooms.health().survivable() {
            rooms.health().freeze("drives failed during recovery");
        } else if !planted(Canary::ServesUncommitted) {
            for (f, standing) in found.iter().zip(standings) {
                if let Standing::Behind(base) = standing {
                    Recovering::of(rooms).take_back(f.label.seat, f.drive.clone(), base.as_deref());
                }
            }
            rooms.health().open_with_room(async { Ok(rooms.generations().commit().await?) }).await?;
            if !planted(Canary::OneGenerationAtOpen) {
                // What hosts are told from here on is not on copies from before this open, which so are two generations behind.
                rooms.health().open_with_room(async { Ok(rooms.generations().commit().await?) }).await?;
            }
            // It can wait for room until the next open.
            let _mended = rooms.health().if_there_is_room(rooms.labels().heal_labels()).await;
            Recovering::of(rooms).wipe_left(found, generation).await;
            recovery.step("commit", format!("generation {}, epoch {epoch}", rooms.system().number()));
        }
    } else {
        rooms.ctx().set_epoch(generation.epoch);
    }
    Ok(())
}

/// Writes of another server that was stopped have landed, or never will.
const LATE_WRITES: Duration = Duration::from_secs(60);

/// Members that missed the newest generation (its writing was cut short) get it before the next is written over
/// what they have.
async fn heal_slots(rooms: &Rooms, g: &Generation, found: &[Found], believed: &[bool]) -> Result<(), Refused> {
    let image = Buf::from_slice(&g.encode()).freeze();
    assert!(image.len() <= rooms.ctx().shape.slot_blocks as usize * BLOCK_BYTES);
    for (f, _) in found.iter().zip(believed).filter(|(_, b)| **b) {
        let Some(seat) = rooms.members().seat(f.label.seat).filter(|s| s.is_in()) else { continue };
        if !f.lent && f.generations.iter().any(|own| own.id == g.id) {
            seat.is_newest(true);
            continue;
        }
        let at = seat.layout.slot((g.number.0 % 2) as usize);
        let written = match rooms.health().write_to(&seat, at, vec![image.clone()]).await {
            Ok(()) => seat.flush().await,
            Err(e) => Err(e),
        };
        seat.is_newest(written.is_ok());
        if let Err(error) = written {
            rooms.health().member_erred(seat.id, "its system area could not be written", error);
        }
    }
    Ok(())
}
