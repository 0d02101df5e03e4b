//! Drives that are rebuilt, replaced by copying, retired and added, under load, on copies of the drives: told to wait and
//! to go on, cut short by the end of the process or of the power, with other drives that go and with rot on the one that
//! leaves. At the end what was flushed is there, and where the array says that it has its redundancy, it has.

use std::rc::Rc;
use std::time::Duration;

use api::{ArrayState, SeatState};
use array::{Array, Rate, check};
use base::{BlockCount, MemberId, SegmentId};
use futures::future::select;
use ondisk::{Member, MemberState};
use rand::RngExt;
use rt::model::{Disk, Fault as DriveFault, Op, OpKind, Verdict};
use rt::{Drive, Rt};

use crate::census::{Census, newest_generation};
use crate::kind::Kind;
use crate::lives::no_mismatch;
use crate::model::Mode;
use crate::probes::is_optimal;
use crate::run::{DEGRADED, drain, set_to_work};
use crate::spoil::flip;
use crate::volumes::Volumes;
use crate::workload::Done;
use crate::world::{World, drives, labelled, open, open_degraded};

/// Virtual time in which a rebuild has ended, if it has room.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is done to the drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    /// One is failed, and a fresh one takes its place.
    Rebuild,
    /// A fresh one takes over from one that is in.
    Copy,
    /// One goes for good.
    Retire,
    /// A fresh one joins.
    Grow,
}

/// One change of drives and what is known of it.
struct Change {
    verb: Verb,
    disks: Vec<Disk>,
    /// Which of them it is about.
    which: usize,
    fresh: Disk,
}

impl Change {
    fn name(&self) -> &str {
        self.disks[self.which].name()
    }

    fn seat(&self, array: &Array) -> Option<MemberId> {
        array.status().members.iter().find(|m| m.drive_name == self.name()).map(|m| MemberId(m.member))
    }

    /// Whether the array knows of it.
    fn is_begun(&self, array: &Array) -> bool {
        let members = array.status().members;
        let of = |name: &str| members.iter().find(|m| m.drive_name == name).map(|m| m.state);
        match self.verb {
            Verb::Rebuild | Verb::Copy | Verb::Grow => of(self.fresh.name()).is_some_and(|s| s != SeatState::Spare),
            Verb::Retire => of(self.name()).is_none_or(|s| s == SeatState::Leaving),
        }
    }

    /// Begins it; false: it is refused, or the array is on its way to do without.
    fn begin(&self, rt: &Rt, array: &Array) -> rt::Task<bool> {
        let (array, seat, verb) = (array.clone(), self.seat(array), self.verb);
        let fresh = Drive::modelled(rt, &self.fresh);
        rt.spawn(async move {
            let done = match (verb, seat) {
                (Verb::Grow, _) => array.drive_grow(fresh, true).await,
                (_, None) => return false,
                (Verb::Retire, Some(seat)) => array.drive_retire(seat).await,
                (Verb::Copy, Some(seat)) => array.drive_replace(seat, fresh, true).await,
                (Verb::Rebuild, Some(seat)) => match array.drive_fail(seat).await {
                    Ok(()) => array.drive_replace(seat, fresh, true).await,
                    refused => refused,
                },
            };
            done.is_ok()
        })
    }

    /// All drives there are now.
    fn all(&self) -> Vec<Disk> {
        self.disks.iter().chain([&self.fresh]).cloned().collect()
    }
}

/// What may be done where this kind of thing happens.
fn verb_of(world: &mut World, kind: Kind) -> Verb {
    let redundant = world.plan.tolerates() > 0;
    match kind {
        Kind::RebuildPaced | Kind::LossInRebuild | Kind::EndInRebuild => Verb::Rebuild,
        Kind::DriveRetired => Verb::Retire,
        Kind::DriveGrown => Verb::Grow,
        Kind::DriveCopied if redundant && world.dice.random_range(0..4) == 0 => Verb::Rebuild,
        _ => Verb::Copy,
    }
}

/// One change, and what `kind` says happens meanwhile.
pub fn change(world: &mut World, volumes: &Volumes, mode: Mode, kind: Kind) -> Result<(), String> {
    if kind == Kind::LossInRebuild && world.dice.random_range(0..2) == 0 {
        return crate::own::most_exposed_first(world).map_err(|e| format!("the most exposed first: {e}"));
    }
    if world.disks.len() <= world.plan.tolerates() || !is_optimal(world) {
        return Ok(());
    }
    let verb = verb_of(world, kind);
    let disks = world.forks();
    let change = Change { verb, which: world.dice.random_range(0..disks.len()), disks, fresh: world.new_disk() };
    let mut volumes = volumes.fork();
    let mut mode = mode;
    if kind == Kind::RotInCopy {
        rot_on(world, &change);
    }
    let ends = matches!(kind, Kind::EndInRebuild | Kind::DriveCopied | Kind::DriveRetired | Kind::DriveGrown);
    let lives = if ends { world.dice.random_range(1..4) } else { 0 };
    for life in 0..lives {
        mode = cut_short(world, &change, &mut volumes, mode).map_err(|e| format!("{verb:?}, life {life}: {e}"))?;
        world.counts.add(kind, 1);
    }
    last_life(world, &change, &mut volumes, mode, kind).map_err(|e| format!("{verb:?}, last life: {e}"))
}

/// Some of what lies on the drive that leaves is not what was written.
fn rot_on(world: &mut World, change: &Change) {
    let census = Census::take(&change.disks);
    for kind in [Kind::RotData, Kind::RotParity, Kind::RotHeader, Kind::RotMap] {
        let spots: Vec<_> = census.of(kind).iter().copied().filter(|(d, _)| *d == change.which).collect();
        for _ in 0..if spots.is_empty() { 0 } else { world.dice.random_range(1..6) } {
            let spot = spots[world.dice.random_range(0..spots.len())];
            flip(world, &change.disks, spot);
        }
    }
    let one_in = world.dice.random_range(3..40);
    if world.dice.random_range(0..2) == 0 {
        change.disks[change.which].set_fault(DriveFault::CorruptReads { one_in });
    }
}

fn open_changed(rt: &Rt, change: &Change) -> Result<Array, String> {
    let here = labelled(rt, &change.all());
    let fresh = change.fresh.name();
    let is_in = |m: &Member| m.drive_name == fresh && m.state == MemberState::In;
    let joined = change.verb == Verb::Grow && newest_generation(&here).is_some_and(|g| g.members.iter().any(is_in));
    let array = open_degraded(rt, &here)?;
    let status = array.status();
    if joined && status.members.iter().any(|m| m.drive_name == fresh && m.state.is_out()) {
        return Err(format!("the drive that joined is out: {:#?}", status.events));
    }
    match status.state {
        ArrayState::Frozen => Err(format!("frozen after open: {:#?}", status.events)),
        _ => Ok(array),
    }
}

/// A pace under which there is time for something to happen.
fn slow(world: &mut World) -> Rate {
    [Rate::Low, Rate::Medium, Rate::High, Rate::Bytes(1 << world.dice.random_range(18..26))]
        [world.dice.random_range(0..4)]
}

/// Once it has its label, no generation is written to a new drive.
fn hold_first_generation(world: &World, fresh: &Disk) {
    let system = BlockCount::floor_from_bytes(world.plan.system_bytes()).0;
    let mut labelled = false;
    fresh.on_op(Some(Box::new(move |op: &Op| {
        let generation = labelled && op.kind == OpKind::Write && (1..system).contains(&op.at.0);
        labelled |= op.kind == OpKind::Write && op.at.0 == 0;
        if generation { Verdict::Hang } else { Verdict::Proceed }
    })));
}

/// From now on no generation is written, on any drive.
fn hold_generations(world: &World, change: &Change) {
    let system = BlockCount::floor_from_bytes(world.plan.system_bytes()).0;
    for disk in change.all() {
        disk.on_op(Some(Box::new(move |op: &Op| {
            let generation = op.kind == OpKind::Write && (1..system).contains(&op.at.0);
            if generation { Verdict::Hang } else { Verdict::Proceed }
        })));
    }
}

/// A life that ends while it is under way.
fn cut_short(world: &mut World, change: &Change, volumes: &mut Volumes, mode: Mode) -> Result<Mode, String> {
    let rt = world.rt();
    let array = open_changed(&rt, change)?;
    world.settle(&array);
    volumes.compare(&rt, &array, mode)?;
    no_mismatch(&array)?;
    let done = Rc::new(Done::default());
    let hosts = world.dice.random_range(0..4);
    set_to_work(world, &rt, &array, volumes, None, hosts, &done);
    let _refused_or_not = rt.block_on(array.rebuild_rate(slow(world)));
    let begun = change.is_begun(&array);
    let joins = !begun && change.verb == Verb::Grow && world.dice.random_range(0..2) == 0;
    if joins {
        hold_first_generation(world, &change.fresh);
    }
    let task = (!begun).then(|| change.begin(&rt, &array));
    let long = 1u64 << world.dice.random_range(4..18);
    let wait = if joins { 50_000 } else { world.dice.random_range(0..long) };
    rt.block_on(rt.sleep(Duration::from_micros(wait)));
    if world.dice.random_range(0..3) == 0 {
        let next = slow(world);
        rt.block_on(array.rebuild_rate(next)).map_err(|e| e.to_string())?;
        rt.block_on(rt.sleep(Duration::from_micros(world.dice.random_range(0..long))));
    }
    if !joins && world.dice.random_range(0..2) == 0 {
        // Columns are moved, and no generation says so before the end.
        hold_generations(world, change);
        rt.block_on(rt.sleep(Duration::from_millis(world.dice.random_range(1..1_000))));
    }
    let frozen = array.status().state == ArrayState::Frozen;
    let events = array.status().events;
    drop((array, task));
    rt.end();
    if frozen {
        return Err(format!("it froze: {events:#?}"));
    }
    let cut = world.dice.random_range(0..2) == 0;
    for disk in change.all() {
        if cut {
            disk.power_cut(world.dice.random())
        } else {
            disk.crash(world.dice.random())
        }
        disk.on_op(None);
    }
    done.wrong.take().map_or(Ok(if cut { Mode::PowerCut } else { Mode::Killed }), Err)
}

/// A life in which it comes to its end.
fn last_life(world: &mut World, change: &Change, volumes: &mut Volumes, mode: Mode, kind: Kind) -> Result<(), String> {
    let rt = world.rt();
    let array = open_changed(&rt, change)?;
    volumes.compare(&rt, &array, mode)?;
    if kind != Kind::RotInCopy {
        no_mismatch(&array)?;
    }
    let done = Rc::new(Done::default());
    let hosts = world.dice.random_range(0..4);
    let quiet = kind == Kind::LossInRebuild && world.dice.random_range(0..2) == 0;
    set_to_work(world, &rt, &array, volumes, None, if quiet { 0 } else { hosts }, &done);
    if kind != Kind::DriveGrown {
        rt.block_on(array.rebuild_rate(slow(world))).map_err(|e| e.to_string())?;
    }
    if !change.is_begun(&array) && !rt.block_on(change.begin(&rt, &array)) {
        // It may be refused for want of room, or because a power cut left the array degraded.
        return finish(&rt, &done);
    }
    world.counts.add(kind, 1);
    let next_segment = newest_generation(&change.all()).map(|g| g.next_segment);
    if change.verb == Verb::Retire {
        fits(&array)?;
    }
    during(world, change, &rt, &array, &done, kind)?;
    if let Some(next) = next_segment {
        nothing_new_there(change, SegmentId(next))?;
    }
    if array.status().state == ArrayState::Frozen {
        return Err(format!("it froze: {:#?}", array.status().events));
    }
    rt.block_on(array.rebuild_rate(Rate::High)).map_err(|e| e.to_string())?;
    rt.block_on(array.rebuild_pause(false)).map_err(|e| e.to_string())?;
    finish(&rt, &done)?;
    come_to_rest(&rt, change, &array);
    if array.status().state == ArrayState::Frozen {
        return Err(format!("it froze at last: {:#?}", array.status().events));
    }
    judge(world, change, volumes, &rt, array, kind)
}

fn finish(rt: &Rt, done: &Done) -> Result<(), String> {
    drain(rt, done)?;
    done.wrong.take().map_or(Ok(()), Err)
}

/// Where a member goes for good, the others hold what is stored.
fn fits(array: &Array) -> Result<(), String> {
    let status = array.status();
    let stored: u64 = status.volumes.iter().map(|v| v.mapped_bytes).sum();
    let leaving = status.members.iter().any(|m| m.state == SeatState::Leaving);
    if leaving && stored > status.usable_bytes {
        return Err(format!("{stored} bytes are stored, and what is left can hold {}", status.usable_bytes));
    }
    Ok(())
}

/// No segment begun since lies on a member that leaves.
fn nothing_new_there(change: &Change, since: SegmentId) -> Result<(), String> {
    let Some(g) = newest_generation(&change.all()) else { return Ok(()) };
    let leaves = |m: MemberId| g.members.get(usize::from(m.0)).is_some_and(|m| m.leaving);
    let new = |s: &&ondisk::Segment| s.id >= since && s.slots.iter().flatten().any(|(m, _)| leaves(*m));
    match g.segments.iter().find(new) {
        Some(s) => Err(format!("segment {} was begun on a member that leaves", s.id)),
        None => Ok(()),
    }
}

/// What `kind` says happens.
fn during(world: &mut World, change: &Change, rt: &Rt, array: &Array, done: &Done, kind: Kind) -> Result<(), String> {
    let mut pause = |most: u64| Duration::from_micros(world.dice.random_range(0..1 << most));
    let (first, second) = (pause(14), pause(12));
    rt.block_on(rt.sleep(first));
    match kind {
        Kind::RebuildPaced => {
            for _ in 0..world.dice.random_range(1..5) {
                let quick = slow(world);
                let rates = [quick, Rate::Bytes(1 << world.dice.random_range(17..21))];
                let rate = rates[world.dice.random_range(0..2)];
                rt.block_on(array.rebuild_rate(rate)).map_err(|e| e.to_string())?;
                rt.block_on(rt.sleep(Duration::from_micros(world.dice.random_range(0..1 << 15))));
                rt.block_on(array.rebuild_pause(true)).map_err(|e| e.to_string())?;
                done.unhurried.set(true);
                // A piece that is being written comes to its end.
                rt.block_on(rt.sleep(Duration::from_secs(2)));
                let moved = || array.status().rebuild.map(|r| r.bytes_moved);
                let before = moved();
                rt.block_on(rt.sleep(Duration::from_secs(1)));
                if before.is_some() && moved() > before {
                    return Err(format!("told to wait, it went on from {before:?} to {:?} bytes", moved()));
                }
                done.unhurried.set(false);
                rt.block_on(array.rebuild_pause(false)).map_err(|e| e.to_string())?;
            }
            Ok(())
        }
        Kind::LossInRebuild if world.plan.tolerates() > 1 => {
            rt.block_on(array.rebuild_rate(Rate::Bytes(4 << 20))).map_err(|e| e.to_string())?;
            let others: Vec<&Disk> = change.disks.iter().filter(|d| d.name() != change.name()).collect();
            others[world.dice.random_range(0..others.len())].detach();
            rt.block_on(rt.sleep(second));
            // Somebody finds out that it is gone.
            rt.block_on(array.checkpoint()).map_err(|e| e.to_string())
        }
        Kind::OldDies => {
            let one = match world.dice.random_range(0..4) {
                0 => change.fresh.clone(),
                1 => change.disks[world.dice.random_range(0..change.disks.len())].clone(),
                _ => change.disks[change.which].clone(),
            };
            one.detach();
            rt.block_on(rt.sleep(second));
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Until nothing is rebuilt any more, or it has no room.
fn come_to_rest(rt: &Rt, change: &Change, array: &Array) {
    let patience = rt.sleep(PATIENCE);
    let seat = change.seat(array);
    let over = async {
        array.rebuild_done().await;
        let leaving = |m: &api::MemberView| m.state == SeatState::Leaving;
        if let Some(seat) = seat.filter(|_| array.status().members.iter().any(leaving)) {
            array.drive_left(seat).await;
        }
        array.rebuild_done().await;
    };
    rt.block_on(select(Box::pin(over), Box::pin(patience)));
}

/// What was written is there; where redundancy is claimed, other drives may go.
fn judge(
    world: &mut World,
    change: &Change,
    volumes: &mut Volumes,
    rt: &Rt,
    array: Array,
    kind: Kind,
) -> Result<(), String> {
    let status = array.status();
    volumes.compare(rt, &array, Mode::Killed)?;
    rt.block_on(array.clone().close()).map_err(|e| format!("close: {e}: {:#?}", array.status().events))?;
    drop(array);
    // Rot that nobody has met lies on the drive as long as it stays.
    let spoilt = kind == Kind::RotInCopy && status.members.iter().any(|m| m.drive_name == change.name());
    if spoilt {
        return Ok(());
    }
    let checker = world.rt();
    let copies = labelled(&checker, &change.all().iter().map(Disk::fork).collect::<Vec<_>>());
    let report = checker.block_on(check(&checker, drives(&checker, &copies), |_| {})).map_err(|e| e.to_string())?;
    checker.end();
    if report.error_count > 0 {
        return Err(format!("{} errors: {:#?}", report.error_count, report.errors));
    }
    if status.state != ArrayState::Optimal {
        return Ok(());
    }
    let is_in = |d: &Disk| status.members.iter().any(|m| m.drive_name == d.name() && m.state == SeatState::In);
    let all = change.all();
    let may_go: Vec<&Disk> = all.iter().filter(|d| is_in(d)).collect();
    let first = world.dice.random_range(0..may_go.len());
    for i in 0..world.plan.tolerates().min(may_go.len() - 1) {
        may_go[(first + i) % may_go.len()].detach();
    }
    let rt = world.rt();
    let here = labelled(&rt, &all);
    let array = open(&rt, &here, DEGRADED).map_err(|e| format!("short: {e}"))?;
    let events = array.status().events;
    let after = volumes.compare(&rt, &array, Mode::Killed);
    drop(array);
    rt.end();
    after.map_err(|e| format!("without as many as may go: {e}: {events:#?}"))
}
