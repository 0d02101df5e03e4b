//! One plan: create, then rounds of work, loss and restart, each judged by the model and by a check from scratch.

use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use api::ArrayState;
use array::{Array, OpenHow, Refused, check};
use futures::future::{Either, join_all, select};
use rand::RngExt;
use rt::Rt;
use rt::model::Disk;

use crate::census::{is_whole, spares_ready};
use crate::kind::Kind;
use crate::model::Mode;
use crate::plan::{End, Plan, Round};
use crate::report::Report;
use crate::volumes::{Fate, Volumes};
use crate::workload::{Done, Host};
use crate::world::{World, drives, labelled};
use crate::{disturb, lives, scrubs, spoil, trials};

/// Opens with whatever is there.
pub const DEGRADED: OpenHow = OpenHow {
    read_only: false,
    degraded: true,
    force_diverged: false,
    accept_loss: false,
    previous: false,
    owner: array::owner::OwnerHow::PLAIN,
    part: ondisk::PartOf::ALL,
};

/// Virtual time in which every request has its answer, however slow the drives.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs a plan; the error says what was wrong.
///
/// # Errors
/// When the array lost, lied or refused.
pub fn run(plan: &Plan, talk: bool) -> Result<Report, String> {
    let mut world = World::new(plan.clone());
    let mut report = Report { seeds: 1, ..Report::default() };
    if talk {
        println!("seed {}: {}", plan.seed, plan.describe());
    }
    let mut volumes = create(&mut world)?;
    rounds(&mut world, &mut volumes, &mut report, talk)?;
    report.faults.add_all(&world.counts);
    Ok(report)
}

/// Round after round, and a close; ends before that when the media have lost what nothing can restore.
fn rounds(world: &mut World, volumes: &mut Volumes, report: &mut Report, talk: bool) -> Result<(), String> {
    let mut mode = Mode::Killed;
    for (i, round) in world.plan.rounds.clone().iter().enumerate() {
        if talk {
            println!("round {i}: {round:?}");
        }
        if !check_cold(world).map_err(|e| format!("check before round {i}: {e}"))? {
            report.refused += 1;
            return Ok(());
        }
        trials::try_some(world, volumes, mode, report).map_err(|e| format!("before round {i}: {e}"))?;
        spoil::rot(world);
        mode = one_round(world, volumes, round, mode, report, talk).map_err(|e| format!("round {i}: {e}"))?;
    }
    if !check_cold(world).map_err(|e| format!("last check: {e}"))? {
        report.refused += 1;
        return Ok(());
    }
    let last = Round { hosts: 1, millis: 1, end: End::Close };
    world.plan.faults.remove(&Kind::EndInOpen);
    one_round(world, volumes, &last, mode, report, talk).map_err(|e| format!("last round: {e}"))?;
    Ok(())
}

fn create(world: &mut World) -> Result<Volumes, String> {
    let rt = world.rt();
    let (count, promised, spec) = (world.plan.volumes, world.plan.promised, world.plan.spec());
    let (disks, filled) = (world.disks.clone(), world.plan.filled);
    let mut volumes = Volumes::default();
    rt.block_on(async {
        let array = Array::create(&rt, drives(&rt, &disks), &spec).await.map_err(|e| e.to_string())?;
        let usable = array.status().usable_bytes;
        let bytes =
            (usable * promised / 100 / count).clamp(1 << 16, if filled { 48 << 20 } else { 4 << 20 }) / 4096 * 4096;
        for i in 0..count {
            let name = format!("v{i}");
            array.volume_create(&name, bytes).await.map_err(|e| e.to_string())?;
            volumes.add(&name, bytes, Fate::Stays);
        }
        let done = Rc::new(Done::default());
        let hosts: Vec<Host> = (0..volumes.all.len()).map(|i| host(&array, &volumes, i, &done)).collect();
        if filled {
            // Those that promise too much find no space.
            join_all(hosts.iter().map(Host::fill)).await;
        }
        array.close().await.map_err(|e| e.to_string())
    })?;
    rt.end();
    Ok(volumes)
}

/// A host of one volume.
pub fn host(array: &Array, volumes: &Volumes, which: usize, done: &Rc<Done>) -> Host {
    let held = &volumes.all[which];
    Host {
        array: array.clone(),
        name: held.name.clone(),
        model: held.model.clone(),
        fate: held.fate.clone(),
        done: done.clone(),
    }
}

/// A check by a process of its own, on copies of the drives so that it cannot help. What the drives themselves spoilt
/// is not its fault; log, map and counts are. Whether the array goes on: a drive that is rotten may hold the only copy of a
/// record, when the others are out or have no room.
pub fn check_cold(world: &mut World) -> Result<bool, String> {
    let rt = world.rt();
    let copies = labelled(&rt, &world.forks());
    let report = rt.block_on(check(&rt, drives(&rt, &copies), |_| {})).map_err(|e| e.to_string())?;
    rt.end();
    let forgiven = if world.plan.rotten > 0 { report.damage_count } else { 0 };
    if report.error_count == forgiven {
        return Ok(report.records_lost == 0);
    }
    Err(format!("{} errors, {} of the media: {:#?}", report.error_count, report.damage_count, report.errors))
}

/// Hosts begin their work on `which` volume, or on any that are there.
pub fn set_to_work(
    world: &mut World,
    rt: &Rt,
    array: &Array,
    volumes: &Volumes,
    which: Option<usize>,
    hosts: usize,
    done: &Rc<Done>,
) {
    let sure: Vec<usize> = (0..volumes.all.len()).filter(|&i| volumes.all[i].fate.get() == Fate::Stays).collect();
    for _ in 0..if sure.is_empty() && which.is_none() { 0 } else { hosts } {
        let which = which.unwrap_or_else(|| sure[world.dice.random_range(0..sure.len())]);
        let host = host(array, volumes, which, done);
        rt.spawn(host.run(rt.clone(), world.dice.random())).detach();
    }
}

/// Hosts that have no more to do end, and what they began is answered.
pub fn drain(rt: &Rt, done: &Done) -> Result<(), String> {
    drain_within(rt, done, PATIENCE)
}

/// [`drain`], in a time of its own.
pub fn drain_within(rt: &Rt, done: &Done, patience: Duration) -> Result<(), String> {
    done.stop.set(true);
    let until = rt.now() + patience;
    while done.at_work.get() > 0 {
        if rt.now() > until {
            return Err(format!("{} requests were never answered", done.at_work.get()));
        }
        rt.block_on(rt.sleep(Duration::from_millis(20)));
    }
    Ok(())
}

/// What must hold when nothing is under way: a spare is ready for the next record.
fn at_rest(rt: &Rt, array: &Array, disks: &[Disk]) -> Result<(), String> {
    rt.block_on(rt.sleep(Duration::from_secs(10)));
    let status = array.status();
    let roomy = status.segments_free > status.segments_total / 4;
    if status.state == ArrayState::Optimal && roomy && spares_ready(disks) == 0 {
        return Err(format!("no spare is ready, and {} segments are free", status.segments_free));
    }
    Ok(())
}

/// Whoever opens the array next needs no column that is lost, while the one that runs says optimal.
fn optimal_is_true(world: &World, array: &Array, disks: &[Disk]) -> Result<(), String> {
    let says = world.plan.rotten == 0 && array.status().state == ArrayState::Optimal;
    if !says || is_whole(disks) {
        return Ok(());
    }
    Err("it says optimal, and the generation on the drives lists a segment that lacks a column".to_owned())
}

/// Opens the array; `None` when the end came first.
fn open(world: &mut World, rt: &Rt, opened: &[Disk]) -> Option<Result<Array, Refused>> {
    let opening = Array::open(rt, drives(rt, opened), DEGRADED);
    if !world.chance(Kind::EndInOpen, 3) {
        return Some(rt.block_on(opening));
    }
    let longest = 20_000_000u64 >> world.dice.random_range(0..10);
    let patience = Duration::from_nanos(world.dice.random_range(0..longest));
    // After some time, or when it has begun to change the drives.
    let changes = changed(opened) + world.dice.random_range(0..6 * opened.len() as u64);
    let at_once = world.dice.random_range(0..2) == 0;
    let end = async {
        while !at_once && changed(opened) < changes {
            rt.sleep(Duration::from_micros(5)).await;
        }
        rt.sleep(if at_once { patience } else { patience / 100 }).await;
    };
    match rt.block_on(select(pin!(opening), pin!(end))) {
        Either::Left((array, _)) => Some(array),
        Either::Right(_) => {
            world.counts.add(Kind::EndInOpen, 1);
            None
        }
    }
}

/// Operations that change something or make it durable.
pub fn changed(disks: &[Disk]) -> u64 {
    disks.iter().map(|d| d.counters()).map(|c| c.writes + c.deallocates + c.flushes).sum()
}

fn one_round(
    world: &mut World,
    volumes: &mut Volumes,
    round: &Round,
    mode: Mode,
    report: &mut Report,
    talk: bool,
) -> Result<Mode, String> {
    disturb::take_before_open(world);
    let rt = world.rt();
    spoil::land_late(world);
    let opened = labelled(&rt, &world.disks);
    let met: Vec<_> = opened.iter().map(Disk::faults_met).collect();
    spoil::begin(world);
    let done = Rc::new(Done::default());
    let handed_over = std::mem::take(&mut world.handed_over);
    let mode = match open(world, &rt, &opened) {
        Some(Ok(array)) => {
            world.settle(&array);
            if handed_over {
                nothing_to_replay(&array)?;
            }
            work(world, volumes, round, mode, (&rt, &array, &opened, &done), report, talk)?;
            optimal_is_true(world, &array, &opened)?;
            drop(array);
            rt.end();
            end_round(world, round.end, &opened)
        }
        Some(Err(refused)) => return Err(format!("open: {refused}")),
        None => {
            rt.end();
            let end = if round.end == End::Close { End::Kill } else { round.end };
            // What was not looked at since a power cut may still be what the power cut left.
            match (mode, end_round(world, end, &opened)) {
                (Mode::PowerCut, _) | (_, Mode::PowerCut) => Mode::PowerCut,
                (_, ended) => ended,
            }
        }
    };
    for (disk, before) in opened.iter().zip(met) {
        world.count_met(before, disk.faults_met());
    }
    report.requests += done.requests.get();
    report.bytes += done.bytes.get();
    report.no_space += done.no_space.get();
    report.mix(done.requests.get() ^ done.bytes.get() << 1);
    done.wrong.take().map_or(Ok(mode), Err)
}

/// The life of a process, from the moment it serves.
fn work(
    world: &mut World,
    volumes: &mut Volumes,
    round: &Round,
    mode: Mode,
    (rt, array, opened, done): (&Rt, &Array, &[Disk], &Rc<Done>),
    report: &mut Report,
    talk: bool,
) -> Result<(), String> {
    report.recoveries += u64::from(!array.recovery().clean);
    if talk {
        println!("  {:?}", array.recovery());
    }
    if array.status().state == ArrayState::Frozen {
        return Err(format!("frozen after open: {:#?}", array.status().events));
    }
    volumes.compare(rt, array, mode)?;
    set_to_work(world, rt, array, volumes, None, round.hosts, done);
    let until = rt.now() + Duration::from_millis(round.millis);
    while rt.now() < until && done.wrong.borrow().is_none() {
        let slice = Duration::from_micros(world.dice.random_range(1..=round.millis * 400));
        rt.block_on(rt.sleep(slice));
        spoil::land_late(world);
        if world.chance(Kind::Standstill, 10) {
            rt.stand_still(Duration::from_micros(1 << world.dice.random_range(8..32)));
            world.counts.add(Kind::Standstill, 1);
        }
        disturb::drives(world, rt, array);
        disturb::volumes(world, rt, array, volumes, done);
        scrubs::disturb(world, rt, array);
    }
    if world.plan.rotten == 0 {
        lives::no_mismatch(array)?;
        scrubs::nothing_found(array)?;
    }
    let status = array.status();
    report.moved += array.moved_blocks();
    report.repairs += status.repaired_blocks;
    report.mix(rt.now().0 ^ status.generation << 40);
    if talk {
        println!("  ends at generation {}", status.generation);
        status.events.iter().for_each(|e| println!("    {} {}", e.unix_seconds, e.text));
    }
    if round.end == End::Close && done.wrong.borrow().is_none() {
        if world.dice.random_range(0..2) == 0 {
            drain(rt, done)?;
            at_rest(rt, array, opened)?;
        }
        let closed = rt.block_on(array.clone().close());
        closed.map_err(|e| format!("close: {e}: {:#?}", array.status().events))?;
        silent(rt, opened)?;
        world.handed_over = array.status().state != ArrayState::Frozen;
    }
    Ok(())
}

/// Who opens an array that was handed over in order has nothing to replay.
fn nothing_to_replay(array: &Array) -> Result<(), String> {
    let recovery = array.recovery();
    if recovery.clean && recovery.replayed_entries == 0 {
        return Ok(());
    }
    Err(format!("it was closed in order, and there was something to replay: {recovery:?}"))
}

/// Nothing is written any more.
pub fn silent(rt: &Rt, disks: &[Disk]) -> Result<(), String> {
    let before = changed(disks);
    rt.block_on(rt.sleep(Duration::from_secs(2)));
    match changed(disks) - before {
        0 => Ok(()),
        n => Err(format!("{n} writes and flushes after it was closed or froze")),
    }
}

/// What becomes of the drives when the process is gone.
fn end_round(world: &mut World, end: End, opened: &[Disk]) -> Mode {
    let joined = world.disks.iter().filter(|d| !opened.iter().any(|o| o.name() == d.name())).cloned();
    let all: Vec<Disk> = opened.iter().cloned().chain(joined).collect();
    let mode = match end {
        End::Close => {
            world.counts.add(Kind::Close, 1);
            Mode::Killed
        }
        End::Kill => {
            world.counts.add(Kind::Kill, 1);
            for disk in &all {
                if world.is_rotten(disk) && world.chance(Kind::LateWrite, 2) {
                    world.late.push(disk.crash_hanging());
                } else {
                    disk.crash(world.dice.random());
                }
            }
            Mode::Killed
        }
        End::PowerCut => {
            world.counts.add(Kind::PowerCut, 1);
            world.late.clear();
            all.iter().for_each(|disk| disk.power_cut(world.dice.random()));
            Mode::PowerCut
        }
    };
    for disk in world.disks.clone() {
        if !disk.is_attached() {
            world.counts.add(Kind::StaleReturn, 1);
        }
        disk.attach();
        disk.set_fault(rt::model::Fault::None);
    }
    mode
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_trace_whatever_runs_beside_it() {
        let of = |seed: u64| {
            let r = run(&Plan::of(seed), false).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            (r.trace, r.requests, r.bytes, r.moved, r.repairs)
        };
        for seed in 1..3 {
            let alone = of(seed);
            let beside = std::thread::scope(|threads| {
                let (same, other) = (threads.spawn(move || of(seed)), threads.spawn(move || of(seed + 2)));
                other.join().unwrap();
                same.join().unwrap()
            });
            assert_eq!(alone, beside, "seed {seed}");
        }
    }
}
