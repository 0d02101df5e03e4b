//! Open: a list of named steps from drives to an array that serves.

pub mod create;
pub mod labels;
pub mod newer;
pub mod previous;
pub mod replay;
pub mod returning;
pub mod scan;
pub mod settle;
pub mod survey;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use base::{BLOCK_BYTES, Epoch, MemberId};
use futures::future::join_all;

use ondisk::{FormatError, Generation, Label, Layout, MemberState, PartOf, SegmentState, WhyOut};
use rt::{Buf, Drive, IoError, Rt};
use serde::Serialize;

use crate::canary::{Canary, planted};
use crate::core::Core;
use crate::ctx::{Phase, Shape};
use crate::fault::{Fault, Refused, RefusedCode, Remedy};
use crate::member::seat::Seat;
use crate::offline::inspect::{self, bears_label, read_label, read_slot};
use crate::open::newer::refuse_newer;
use crate::open::replay::ReplayHow;
use crate::open::returning::{Standing, seat_of, standing};
use crate::owner::OwnerHow;
use crate::space::segment::Seg;
use crate::volume::vol::Vol;

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

/// What an open did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RecoveryReport {
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// Valid records read in the frontier.
    pub replayed_records: u64,
    /// Entries put back into the memtable.
    pub replayed_entries: u64,
    /// Segments with void records behind their cut.
    pub cut_segments: u64,
    /// Blocks written back.
    pub repaired_blocks: u64,
    /// Records lost below the durable row.
    pub damaged_records: u64,
    /// The array had been handed over in order.
    pub clean: bool,
}

/// One step.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// What.
    pub name: &'static str,
    /// How long.
    pub millis: u64,
    /// Figures.
    pub detail: String,
}

/// A drive whose history left ours no more than this many generations ago is a rival, not merely old.
const ANCESTORS_NEAR: u64 = ondisk::generation::ANCESTORS as u64;

/// A drive and what it says.
pub(crate) struct Found {
    pub(crate) drive: Drive,
    pub(crate) label: Label,
    /// Newest first.
    pub(crate) generations: Vec<Generation>,
    /// Whether it holds a generation, or the label in its first block: else something else may have been put on it since.
    pub(crate) own: bool,
    /// Whether it does not hold the generation, and is known to have been there when that took effect.
    pub(crate) lent: bool,
}

struct Recovery<'a> {
    rt: &'a Rt,
    report: RecoveryReport,
    since: rt::Nanos,
}

impl Recovery<'_> {
    fn step(&mut self, name: &'static str, detail: String) {
        let now = self.rt.now();
        let millis = (now - self.since).as_millis() as u64;
        tracing::debug!("{name}: {detail} ({millis} ms)");
        self.report.steps.push(Step { name, millis, detail });
        self.since = now;
    }
}

/// Opens the array of `drives`; background work is not started.
pub async fn open(rt: &Rt, drives: Vec<Drive>, how: OpenHow) -> Result<(Rc<Core>, RecoveryReport), Refused> {
    if how.previous && !how.read_only {
        // Nothing is given up before the other is known to open.
        let (trial, _) = Box::pin(open(rt, drives.clone(), OpenHow { read_only: true, ..how })).await?;
        previous::refuse_too_few(&trial)?;
    }
    let mut recovery = Recovery { rt, report: RecoveryReport::default(), since: rt.now() };
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
    let core = load(rt, &generation, &found, &standings, how)?;
    let chosen = Chosen { generation, seen, given_up, found, standings, believed };
    core.watch_recovery();
    let steps = Box::pin(recover(&core, &chosen, how, &mut recovery));
    let recovered = core.unless_silent(steps).await.unwrap_or_else(|silent| {
        Err(Refused::new(
            RefusedCode::Io,
            format!("array \"{}\"", core.ctx.name),
            format!("{silent} does not answer, and the array cannot be opened without it"),
            "Check the drive and its cabling, then open the array again",
        ))
    });
    core.ctx.set_recovering(false);
    if let Err(refused) = recovered {
        core.give_up();
        return Err(refused);
    }
    core.ctx.changed.wake();
    recovery.report.repaired_blocks = core.ctx.figures.repaired_blocks.get();
    Ok((core, recovery.report))
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
async fn recover(core: &Rc<Core>, chosen: &Chosen, how: OpenHow, recovery: &mut Recovery<'_>) -> Result<(), Refused> {
    let Chosen { generation, seen, given_up, found, standings, believed } = chosen;
    let writable = core.ctx.is_open();
    core.carry_marks(how.owner.carried);
    if let Some(newest) = given_up.as_ref().filter(|_| !planted(Canary::NumbersTwice)) {
        previous::nothing_twice(core, newest);
    }
    if writable {
        core.open_with_room(heal_slots(core, generation, found, believed)).await?;
        if let Some(newest) = given_up.as_ref().filter(|_| !planted(Canary::GivenUpStays)) {
            previous::forget(core, newest).await?;
        }
    }
    recovery
        .step("load tables", format!("{} segments, {} volumes", generation.segments.len(), generation.volumes.len()));
    let epoch = epoch_after(seen.epoch, core.ctx.rt.unix_seconds());
    let replay = ReplayHow {
        mend: writable || planted(Canary::ReadOnlyWrites),
        accept_loss: how.accept_loss || !writable,
        epoch,
    };
    let done = core.open_with_room(Box::pin(core.replay(seen, replay))).await?;
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
        core.ctx.doubt();
        core.ctx.error(
            "the newest records are on missing drives: reads are refused, because they could return old data"
                .to_owned(),
        );
    }
    recovery
        .step("replay", format!("{} records, {} entries of {} segments", done.records, done.entries, done.segments));
    if core.members.guard.is_lost() {
        return Err(Fault::TakenOver.into());
    }
    if writable {
        core.ctx.set_epoch(epoch);
        let aside = core.settle_segments(how.owner.carried.is_some_and(|c| c.is_unsure()));
        if !aside.is_empty() {
            core.zones_on_their_way(aside.len() as i64);
            // Not an owner of drives: the array may be closed, and they be let go of, long before.
            let kept = planted(Canary::DrivesSetAside).then(|| aside.clone());
            let aside: Vec<_> = aside.into_iter().map(|(seat, zone)| (Rc::downgrade(&seat), zone)).collect();
            let (later, rt) = (Rc::downgrade(core), core.ctx.rt.clone());
            let free = async move {
                rt.sleep(LATE_WRITES).await;
                drop(kept);
                if let Some(core) = later.upgrade() {
                    let there = aside.into_iter().filter_map(|(seat, zone)| Some((seat.upgrade()?, zone)));
                    core.pins.free_later(there.collect());
                }
            };
            core.ctx.rt.spawn(free).detach();
        }
        if !core.survivable() {
            core.freeze("drives failed during recovery");
        } else if !planted(Canary::ServesUncommitted) {
            for (f, standing) in found.iter().zip(standings) {
                if let Standing::Behind(base) = standing {
                    core.take_back(f.label.seat, f.drive.clone(), base.as_deref());
                }
            }
            core.open_with_room(async { Ok(core.commit().await?) }).await?;
            if !planted(Canary::OneGenerationAtOpen) {
                // What hosts are told from here on is not on copies from before this open, which so are two generations behind.
                core.open_with_room(async { Ok(core.commit().await?) }).await?;
            }
            // It can wait for room until the next open.
            let _mended = core.if_there_is_room(core.heal_labels()).await;
            core.wipe_left(found, generation).await;
            recovery.step("commit", format!("generation {}, epoch {epoch}", core.system.number()));
        }
    } else {
        core.ctx.set_epoch(generation.epoch);
    }
    Ok(())
}

/// Times a label or a generation is read before it counts as unreadable: an error may pass.
const READ_TRIES: usize = 3;

/// Writes of another server that was stopped have landed, or never will.
const LATE_WRITES: Duration = Duration::from_secs(60);

/// Between the tries.
const READ_PAUSE: Duration = Duration::from_millis(20);

/// What is said of a drive of which the last label alone is left.
pub(crate) const NOT_OWN: &str =
    "holds only the array's label in its last block, so its other content may have been overwritten";

/// A drive's label, or why there is none once it was tried several times.
pub async fn read_label_patiently(rt: &Rt, drive: &Drive) -> Result<Result<Label, FormatError>, IoError> {
    let begun = rt.now();
    let mut label = read_label(drive).await;
    let tries = if planted(Canary::LabelReadOnce) { 1 } else { READ_TRIES };
    for _ in 1..tries {
        let silent = matches!(label, Err(IoError::TimedOut)) && rt.now() - begun >= inspect::PATIENCE;
        if silent || matches!(label, Ok(Ok(_))) {
            break;
        }
        rt.sleep(READ_PAUSE).await;
        label = read_label(drive).await;
    }
    label
}

/// A drive's label and generations. A drive that has a label of ours which cannot be read is as good as missing: the
/// others go on without it.
pub(crate) async fn read_member(rt: &Rt, drive: Drive) -> Result<Option<Found>, Refused> {
    let name = drive.info().name.clone();
    let label = match read_label_patiently(rt, &drive).await {
        Ok(Ok(label)) => label,
        Ok(Err(e @ (FormatError::Checksum(_) | FormatError::Short(_)))) if !planted(Canary::LabelReadOnce) => {
            tracing::warn!("drive {name} is left out: {e}");
            return Ok(None);
        }
        Ok(Err(e)) => {
            let todo = "Leave it out, or name the right drive";
            return Err(Refused::new(RefusedCode::NotFound, format!("drive {name}"), e.to_string(), todo));
        }
        Err(e @ IoError::Conflict) => return Err(Refused::io(&format!("drive {name}"), e)),
        Err(e) => {
            tracing::warn!("drive {name} is left out: {e}");
            return Ok(None);
        }
    };
    let mut generations = Vec::new();
    for i in 0..2 {
        for attempt in 0..READ_TRIES {
            let begun = rt.now();
            match read_slot(&drive, &label.layout, i).await {
                Ok(g) => {
                    generations.extend(Some(g).filter(|g| g.array == label.array));
                    break;
                }
                Err(_) if rt.now() - begun >= inspect::PATIENCE => {
                    tracing::warn!("drive {name} is left out: it does not answer");
                    return Ok(None);
                }
                Err(_) if attempt + 1 < READ_TRIES => rt.sleep(READ_PAUSE).await,
                Err(_) => {}
            }
        }
    }
    generations.sort_by_key(|g| std::cmp::Reverse(g.number));
    // Numbers and epochs rise together. One that is ahead of a later epoch's landed when its process had ended.
    if let [ahead, other] = &generations[..]
        && ahead.epoch < other.epoch
        && !planted(Canary::LateSlotForeign)
    {
        generations.remove(0);
    }
    let own = !generations.is_empty() || bears_label(&drive, &label).await;
    Ok(Some(Found { drive, label, generations, own, lent: false }))
}

/// Epochs are seconds from here on: 2026-01-01 00:00:00 UTC.
const EPOCHS_FROM_UNIX_SECONDS: u64 = 1_767_225_600;

/// A clock that is further ahead (34 years) is not believed.
const EPOCH_BY_CLOCK_MAX: u64 = 1 << 30;

/// The epoch of an open. It is later than any that left something behind; and than that of an open that ended before its
/// first generation took effect, and left nothing to see, but for a write that is still in flight to a drive. Only the
/// clock knows of that one.
fn epoch_after(seen: Epoch, unix_seconds: u64) -> Epoch {
    let next = seen.0 + u32::from(!planted(Canary::EpochForgotten));
    let by_clock = unix_seconds.saturating_sub(EPOCHS_FROM_UNIX_SECONDS);
    let unbelieved = by_clock > EPOCH_BY_CLOCK_MAX || planted(Canary::EpochsMeet) || planted(Canary::EpochForgotten);
    Epoch(if unbelieved { next } else { next.max(by_clock as u32) })
}

async fn find_members(rt: &Rt, drives: Vec<Drive>, part: PartOf) -> Result<Vec<Found>, Refused> {
    let read = join_all(drives.into_iter().map(|drive| read_member(rt, drive))).await;
    let found: Vec<Found> = read.into_iter().filter_map(Result::transpose).collect::<Result<_, Refused>>()?;
    let Some(first) = found.first() else {
        return Err(Refused::new(
            RefusedCode::Drives,
            "cannot open the array",
            "no drive has a readable label",
            "Name its drives",
        ));
    };
    if let Some(other) = found.iter().find(|f| f.label.array != first.label.array) {
        return Err(Refused::new(
            RefusedCode::InUse,
            format!("drive {}", other.drive.info().name),
            format!("it belongs to array \"{}\", the others to \"{}\"", other.label.array_name, first.label.array_name),
            "Open one array at a time",
        ));
    }
    if let Some(other) = found.iter().find(|f| f.label.part != part) {
        let PartOf { index, of } = other.label.part;
        return Err(Refused::new(
            RefusedCode::Damaged,
            format!("drive {}", other.drive.info().name),
            format!("part {} of {} was expected where it holds part {} of {of}", part.index + 1, part.of, index + 1),
            "Leave it out",
        ));
    }
    for (i, f) in found.iter().enumerate() {
        if let Some(twin) = found[..i].iter().find(|t| t.label.member == f.label.member) {
            return Err(Refused::new(
                RefusedCode::Diverged,
                format!("drives {} and {}", twin.drive.info().name, f.drive.info().name),
                "both are labelled as the same member: one is a copy of the other",
                "Leave the copy out",
            ));
        }
    }
    Ok(found)
}

/// Whether a generation never took effect: a drive that it marks in went on without it. (A process ended while it wrote
/// the generation, and the drive that has it was missing the next time.)
fn is_overtaken(g: &Generation, found: &[Found]) -> bool {
    found.iter().any(|f| {
        let seat = seat_of(f, g).filter(|_| !planted(Canary::OvertakenBelieved));
        let went_on = |own: &Generation| own.id != g.id && when(own) >= when(g) && !own.descends_from(g.id);
        seat.is_some_and(|m| m.state == MemberState::In) && f.generations.first().is_some_and(went_on)
    })
}

/// Which of two generations is the later one. A drive that hung may land one of a process that has died over that of the
/// next, which has the same number and a later epoch.
fn when(g: &Generation) -> (base::Generation, Epoch) {
    (g.number, g.epoch)
}

/// The last word of a drive that `newest` marks in: not one of an earlier epoch that landed over it when its process had ended.
pub(crate) fn last_word<'a>(f: &'a Found, newest: &Generation) -> Option<&'a Generation> {
    let known = |g: &Generation| newest.descends_from(g.id);
    let [last, before] = &f.generations[..] else { return f.generations.first() };
    let marked_in = seat_of(f, newest).is_some_and(|m| m.state == MemberState::In);
    let landed_late = last.epoch < newest.epoch && last.number == newest.number && !known(last) && known(before);
    let late = marked_in && landed_late && !planted(Canary::LateSlotForeign);
    Some(if late { before } else { last })
}

/// Whether `newest` is the first to mark a drive in, and the drive has none yet: the writing of it was cut short, so it never
/// took effect, but what it lists lies on that drive too.
pub(crate) fn is_newcomer(f: &Found, newest: &Generation, found: &[Found]) -> bool {
    let was_in = |g: &Generation| seat_of(f, g).is_some_and(|m| m.state == MemberState::In);
    let mut all = found.iter().flat_map(|f| &f.generations);
    let before = all.find(|g| Some(&g.id) == newest.ancestors.first());
    let joins = was_in(newest) && before.is_some_and(|g| !was_in(g));
    f.generations.is_empty() && joins && !planted(Canary::NewcomerNotBelieved)
}

/// The newest generation, and what each drive is to it.
pub(crate) fn choose(found: &[Found], how: OpenHow) -> Result<(Generation, Vec<Standing>), Refused> {
    let last_words = || found.iter().filter_map(|f| f.generations.first());
    let in_effect = last_words().filter(|g| !is_overtaken(g, found)).max_by_key(|g| when(g));
    let newest = in_effect.or_else(|| last_words().max_by_key(|g| when(g)));
    let Some(newest) = newest.cloned() else {
        return Err(Refused::new(
            RefusedCode::Damaged,
            format!("array \"{}\"", found[0].label.array_name),
            "no drive holds a readable generation",
            "Name all its drives; if its creation was interrupted, create it again over what was written",
        )
        .by(Remedy::Force));
    };
    let mut standings = Vec::with_capacity(found.len());
    for f in found {
        let seat = seat_of(f, &newest);
        let last = last_word(f, &newest);
        let ours = planted(Canary::DivergedBelieved) || last.is_none_or(|g| newest.descends_from(g.id));
        let marked_in = seat.is_some_and(|m| matches!(m.state, MemberState::In | MemberState::Spare));
        let same_time = last.is_some_and(|g| {
            let near = g.number.0 + ANCESTORS_NEAR >= newest.number.0;
            // What only is old was written before it was out.
            let since = seat.map_or(0, |m| m.gone_since.0);
            near || (since > 0 && g.number.0 >= since && !planted(Canary::OldRivalBelieved))
        });
        let overtaken = last.is_some_and(|g| is_overtaken(g, found));
        if !ours && (marked_in || same_time) && !overtaken && !how.force_diverged {
            return Err(Refused::new(
                RefusedCode::Diverged,
                format!("drive {}", f.drive.info().name),
                "it was used without the other drives, and they without it: there are two histories of this array",
                "Leave it out to use the others, or name it alone to use its own",
            ));
        }
        standings.push(standing(f, &newest, found));
    }
    let marked_in = newest.members.iter().filter(|m| m.state == MemberState::In).count();
    let is_in = |f: &Found| newest.members[usize::from(f.label.seat.0)].state == MemberState::In;
    let here = found.iter().zip(&standings).filter(|(f, s)| s.is_current() && is_in(f)).count();
    let too_few = here * 2 <= marked_in && !planted(Canary::HalfBelieved);
    if too_few && here < marked_in && !how.degraded && !how.read_only {
        return Err(Refused::new(
            RefusedCode::MembersMissing,
            format!("array \"{}\"", newest.name),
            format!(
                "only {here} of its {marked_in} drives are here{}: the others may hold a newer state",
                old_ones(found, &standings)
            ),
            "Connect the others, or go on without them",
        )
        .by(Remedy::OpenDegraded));
    }
    Ok((newest, standings))
}

/// Drives that are here and do not count, as the end of a sentence.
fn old_ones(found: &[Found], standings: &[Standing]) -> String {
    let behind = found.iter().zip(standings).filter(|(_, s)| matches!(s, Standing::Behind(_)));
    let names: Vec<&str> = behind.map(|(f, _)| f.drive.info().name.as_str()).collect();
    match names.len() {
        0 => String::new(),
        1 => format!(" as they were last (drive {} is in an older state)", names[0]),
        _ => format!(" as they were last (drives {} are in an older state)", names.join(", ")),
    }
}

/// Seats, segments and volumes as the generation says.
fn load(rt: &Rt, g: &Generation, found: &[Found], standings: &[Standing], how: OpenHow) -> Result<Rc<Core>, Refused> {
    let Some(scheme) = g.level.scheme_of_width(usize::from(g.width)) else {
        return Err(Refused::new(
            RefusedCode::Damaged,
            format!("array \"{}\"", g.name),
            "impossible width",
            "Inspect its drives",
        ));
    };
    let label = &found[0].label;
    let shape = Shape {
        array: g.array,
        part: how.part,
        level: g.level,
        scheme,
        zone_blocks: g.zone_blocks,
        slot_blocks: label.layout.slot_blocks,
        rebuild_place: g.rebuild_place,
        usable_permille: g.usable_permille,
        features: g.features,
    };
    let read_only = how.read_only || g.features.read_only_compatible != 0;
    let core = Core::new(rt, g.name.clone(), shape, if read_only { Phase::ReadOnly } else { Phase::Open });
    core.ctx.set(|settings| *settings = g.settings);
    let mut drives: BTreeMap<MemberId, Drive> = BTreeMap::new();
    for (f, standing) in found.iter().zip(standings) {
        let name = &f.drive.info().name;
        match standing {
            Standing::Current => _ = drives.insert(f.label.seat, f.drive.clone()),
            Standing::Behind(Some(own)) => core.ctx.warn(format!(
                "drive {name} is in an older state: its newest generation is {}, the array's is {}",
                own.number, g.number
            )),
            Standing::Behind(None) => core.ctx.warn(format!("drive {name} holds no valid generation")),
            Standing::Out if !f.own => core.ctx.warn(format!("drive {name} {NOT_OWN}: it is left out")),
            Standing::Out => {
                core.ctx.warn(format!("drive {name} was taken out before: its data is old and is not used"))
            }
        }
    }
    for (i, member) in g.members.iter().enumerate() {
        let id = MemberId(i as u16);
        let layout = Layout {
            drive_blocks: member.drive_blocks,
            slot_blocks: label.layout.slot_blocks,
            zone_blocks: g.zone_blocks,
            zones: member.zones,
        };
        let here = found.iter().find(|f| f.label.seat == id && f.label.member == member.uuid);
        let layout = here.map_or(layout, |f| core.layout_now(&f.drive, member.bay, layout));
        let drive = drives.remove(&id);
        let missing = drive.is_none();
        let seat = Seat::new(id, member, layout, drive, &core.members.guard);
        if !missing && planted(Canary::StaleBelieved) {
            seat.joins();
        }
        if missing && member.state == MemberState::In {
            if here.is_none() {
                core.ctx.warn(format!("drive {} (seat {}) is missing", member.drive_name, member.bay));
            }
            seat.goes_out(WhyOut::Missing);
        }
        core.members.add(seat);
    }
    core.keep_leavers();
    {
        core.segments.begin_at(g.next_segment);
        // A segment listed as empty and merged is free once its generation is in effect: its zones may be
        // deallocated already.
        let kept = |s: &&ondisk::Segment| s.state != SegmentState::Sealed || s.live > 0 || s.replay_row.is_some();
        for s in g.segments.iter().filter(kept) {
            // What lay behind the end of a drive that has become smaller is lost.
            let seats = core.members.all();
            let is_there = |(m, zone): &(MemberId, u32)| *zone < seats[usize::from(m.0)].layout.zones;
            let slots = s.slots.iter().map(|slot| slot.filter(is_there)).collect();
            drop(seats);
            let seg = Seg::from_line(s, slots);
            for (member, zone) in seg.slots.iter().flatten() {
                core.members.all()[usize::from(member.0)].occupy_zone(*zone);
            }
            core.segments.take_up(seg);
        }
    }
    for v in &g.volumes {
        core.volumes.add(Vol::from_line(v));
    }
    core.volumes.begin_at(g.next_volume);
    core.system.found(g);
    let gone = |m: MemberId| core.members.seat(m).is_none_or(|s| !s.is_in());
    if !core.survivable() || !frontier_survives(g, gone) {
        core.freeze("more drives are missing than redundancy covers");
    }
    Ok(core)
}

/// Whether what was acknowledged last survives without the members that are gone. It may lie in any frontier segment, also in one
/// that the generation knows as empty, unless a close wrote it. (Not behind the rows of one that the generation knows to have lost
/// a member.)
pub(crate) fn frontier_survives(g: &Generation, gone: impl Fn(MemberId) -> bool) -> bool {
    let out = |m: MemberId| g.members.get(usize::from(m.0)).is_none_or(|m| m.state != MemberState::In);
    let written = |s: &&ondisk::Segment| s.replay_row.is_some() && !s.slots.iter().flatten().any(|(m, _)| out(*m));
    let mut frontier = g.segments.iter().filter(|_| !g.clean).filter(written);
    frontier.all(|s| s.scheme.survives(|c| s.slots[c].is_none_or(|(m, _)| gone(m))))
}

/// Members that missed the newest generation (its writing was cut short) get it before the next is written over
/// what they have.
async fn heal_slots(core: &Core, g: &Generation, found: &[Found], believed: &[bool]) -> Result<(), Refused> {
    let image = Buf::from_slice(&g.encode()).freeze();
    assert!(image.len() <= core.ctx.shape.slot_blocks as usize * BLOCK_BYTES);
    for (f, _) in found.iter().zip(believed).filter(|(_, b)| **b) {
        let Some(seat) = core.members.seat(f.label.seat).filter(|s| s.is_in()) else { continue };
        if !f.lent && f.generations.iter().any(|own| own.id == g.id) {
            seat.is_newest(true);
            continue;
        }
        let at = seat.layout.slot((g.number.0 % 2) as usize);
        let written = match core.write_to(&seat, at, vec![image.clone()]).await {
            Ok(()) => seat.flush().await,
            Err(e) => Err(e),
        };
        seat.is_newest(written.is_ok());
        if let Err(error) = written {
            core.member_erred(seat.id, "its system area could not be written", error);
        }
    }
    Ok(())
}
