//! One plan: create, then rounds of work, loss and restart, each judged by the model and by a check from scratch.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use array::{Array, ArrayState, OpenHow, SeatState, check};
use base::MemberId;
use rand::RngExt;
use rt::model::Disk;
use rt::{Drive, Rt};

use crate::kind::Kind;
use crate::model::{Mode, Model};
use crate::plan::{End, Plan, Round};
use crate::report::Report;
use crate::workload::{Done, Host};
use crate::world::{World, drives, labelled};
use crate::{beyond, spoil};

/// Opens with whatever is there.
pub const DEGRADED: OpenHow = OpenHow { read_only: false, degraded: true, force_diverged: false, accept_loss: false };

/// The volumes and what they should hold.
#[derive(Clone)]
pub struct Volumes {
    /// Their names.
    pub names: Vec<String>,
    /// Their models.
    pub models: Vec<Rc<RefCell<Model>>>,
}

impl Volumes {
    /// Models of their own, with the same past.
    pub fn fork(&self) -> Volumes {
        let models = self.models.iter().map(|m| Rc::new(RefCell::new(m.borrow().clone()))).collect();
        Volumes { names: self.names.clone(), models }
    }
}

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
    let mut mode = Mode::Killed;
    for (i, round) in plan.rounds.iter().enumerate() {
        if talk {
            println!("round {i}: {round:?}");
        }
        check_cold(&mut world).map_err(|e| format!("check before round {i}: {e}"))?;
        beyond::try_on_copies(&mut world, &volumes, mode, &mut report).map_err(|e| format!("before round {i}: {e}"))?;
        spoil::rot(&mut world);
        mode = one_round(&mut world, &mut volumes, round, mode, &mut report, talk)
            .map_err(|e| format!("round {i}: {e}"))?;
    }
    check_cold(&mut world).map_err(|e| format!("last check: {e}"))?;
    let last = Round { hosts: 1, millis: 1, end: End::Close };
    one_round(&mut world, &mut volumes, &last, mode, &mut report, talk).map_err(|e| format!("last round: {e}"))?;
    report.faults.add_all(&world.counts);
    Ok(report)
}

fn create(world: &mut World) -> Result<Volumes, String> {
    let rt = world.rt();
    let (count, promised, spec) = (world.plan.volumes, world.plan.promised, world.plan.spec());
    let disks = world.disks.clone();
    let (names, bytes) = rt.block_on(async {
        let array = Array::create(&rt, drives(&rt, &disks), &spec).await.map_err(|e| e.to_string())?;
        let usable = array.status().usable_bytes;
        let bytes = (usable * promised / 100 / count).clamp(1 << 16, 16 << 20) / 4096 * 4096;
        let names: Vec<String> = (0..count).map(|i| format!("v{i}")).collect();
        for name in &names {
            array.volume_create(name, bytes).await.map_err(|e| e.to_string())?;
        }
        array.close().await.map_err(|e| e.to_string())?;
        Ok::<_, String>((names, bytes))
    })?;
    rt.end();
    let models = names.iter().map(|_| Rc::new(RefCell::new(Model::new(bytes)))).collect();
    Ok(Volumes { names, models })
}

/// A check by a process of its own, on copies of the drives so that it cannot help. What the drives themselves spoilt
/// is not its fault; log, map and counts are.
pub fn check_cold(world: &mut World) -> Result<(), String> {
    let rt = world.rt();
    let copies = labelled(&rt, &world.forks());
    let report = rt.block_on(check(&rt, drives(&rt, &copies), |_| {})).map_err(|e| e.to_string())?;
    rt.end();
    let forgiven = if world.plan.rotten > 0 { report.damage_count } else { 0 };
    if report.error_count == forgiven {
        return Ok(());
    }
    Err(format!("{} errors, {} of the media: {:#?}", report.error_count, report.damage_count, report.errors))
}

/// Compares every volume with its model; what was found is what it holds from here on.
pub fn compare(rt: &Rt, array: &Array, volumes: &Volumes, mode: Mode) -> Result<(), String> {
    for (name, model) in volumes.names.iter().zip(&volumes.models) {
        let volume = array.volume(name).ok_or(format!("volume {name} is gone"))?;
        let parts = rt.block_on(volume.read(0, volume.bytes())).map_err(|e| format!("reading {name}: {e}"))?;
        let found: Vec<u8> = parts.iter().flat_map(|p| p.iter().copied()).collect();
        model.borrow_mut().settle(&found, mode).map_err(|e| format!("volume {name}: {e}"))?;
    }
    Ok(())
}

/// Hosts begin their work.
pub fn set_to_work(
    world: &mut World,
    rt: &Rt,
    array: &Array,
    volumes: &Volumes,
    hosts: usize,
    may_fail: bool,
) -> Rc<Done> {
    let done = Rc::new(Done::default());
    for _ in 0..hosts {
        let which = world.dice.random_range(0..volumes.names.len());
        let volume = array.volume(&volumes.names[which]).expect("it was there");
        let write_through = !volume.volatile_cache();
        let host = Host { volume, model: volumes.models[which].clone(), write_through, may_fail, done: done.clone() };
        rt.spawn(host.run(rt.clone(), world.dice.random())).detach();
    }
    done
}

fn one_round(
    world: &mut World,
    volumes: &mut Volumes,
    round: &Round,
    mode: Mode,
    report: &mut Report,
    talk: bool,
) -> Result<Mode, String> {
    let rt = world.rt();
    spoil::land_late(world);
    let opened = labelled(&rt, &world.disks);
    let met: Vec<_> = opened.iter().map(Disk::faults_met).collect();
    spoil::begin(world);
    let array = rt.block_on(Array::open(&rt, drives(&rt, &opened), DEGRADED)).map_err(|e| format!("open: {e}"))?;
    report.recoveries += u64::from(!array.recovery().clean);
    if talk {
        println!("  {:?}", array.recovery());
    }
    if array.status().state == ArrayState::Frozen {
        return Err(format!("frozen after open: {:#?}", array.status().events));
    }
    compare(&rt, &array, volumes, mode)?;
    let done = set_to_work(world, &rt, &array, volumes, round.hosts, false);
    let until = rt.now() + Duration::from_millis(round.millis);
    while rt.now() < until && done.wrong.borrow().is_none() {
        let slice = Duration::from_micros(world.dice.random_range(1..=round.millis * 400));
        rt.block_on(rt.sleep(slice));
        spoil::land_late(world);
        disturb(world, &rt, &array);
    }
    report.moved += array.moved_blocks();
    let status = array.status();
    report.repairs += status.repaired_blocks;
    report.mix(rt.now().0 ^ status.generation << 40);
    if talk {
        println!("  ends at generation {}", status.generation);
        status.events.iter().for_each(|e| println!("    {} {}", e.unix_seconds, e.text));
    }
    if round.end == End::Close {
        let closed = rt.block_on(array.clone().close());
        closed.map_err(|e| format!("close: {e}: {:#?}", array.status().events))?;
    }
    drop(array);
    rt.end();
    let joined = world.disks.iter().filter(|d| !opened.iter().any(|o| o.name() == d.name())).cloned();
    let all: Vec<Disk> = opened.iter().cloned().chain(joined).collect();
    for (disk, before) in opened.iter().zip(met) {
        world.count_met(before, disk.faults_met());
    }
    let mode = end_round(world, round, &all);
    report.requests += done.requests.get();
    report.bytes += done.bytes.get();
    report.no_space += done.no_space.get();
    report.mix(done.requests.get() ^ done.bytes.get() << 1);
    match done.wrong.take() {
        Some(wrong) => Err(wrong),
        None => Ok(mode),
    }
}

/// What becomes of the drives when the process is gone.
fn end_round(world: &mut World, round: &Round, all: &[Disk]) -> Mode {
    let mode = match round.end {
        End::Close => {
            world.counts.add(Kind::Close, 1);
            Mode::Killed
        }
        End::Kill => {
            world.counts.add(Kind::Kill, 1);
            for disk in all {
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

/// Sometimes a drive is pulled, sometimes one that is out is replaced: always within the redundancy.
fn disturb(world: &mut World, rt: &Rt, array: &Array) {
    let status = array.status();
    let out: Vec<u16> = status.members.iter().filter(|m| m.state == SeatState::Out).map(|m| m.seat).collect();
    let lost = world.disks.iter().filter(|d| !d.is_attached()).count();
    let sound: Vec<Disk> = world.disks.iter().filter(|d| !world.is_rotten(d)).cloned().collect();
    let may_lose = world.plan.tolerates() - world.rotten_disks().len().min(world.plan.tolerates());
    match world.dice.random_range(0..12) {
        0 if world.plan.has(Kind::DrivePulled) && status.state == ArrayState::Optimal && lost == 0 && may_lose > 0 => {
            for _ in 0..world.dice.random_range(1..=may_lose) {
                sound[world.dice.random_range(0..sound.len())].detach();
                world.counts.add(Kind::DrivePulled, 1);
            }
        }
        1 if world.chance(Kind::DrivePulled, 2) && lost == 0 => {
            if let Some(rotten) = world.rotten_disks().first() {
                rotten.detach();
                world.counts.add(Kind::DrivePulled, 1);
            }
        }
        2..=3 if world.plan.has(Kind::DriveReplaced) && !out.is_empty() => {
            let fresh = world.new_disk();
            let seat = MemberId(out[0]);
            let old = status.members.iter().find(|m| m.seat == seat.0).map(|m| m.drive_name.clone());
            if rt.block_on(array.drive_replace(seat, Drive::modelled(rt, &fresh), false)).is_ok() {
                world.counts.add(Kind::DriveReplaced, 1);
                world.disks.retain(|d| Some(d.name().to_owned()) != old);
                world.disks.push(fresh);
            }
        }
        4 => {
            // A rebuild may have to wait for the cleaner, and that for the hosts.
            let patience = rt.sleep(Duration::from_millis(200));
            rt.block_on(futures::future::select(Box::pin(array.rebuild_done()), Box::pin(patience)));
        }
        5 if world.plan.has(Kind::SpareAdded)
            && world.plan.tolerates() > 0
            && status.members.iter().all(|m| m.state != SeatState::Spare) =>
        {
            let fresh = world.new_disk();
            if rt.block_on(array.drive_add_spare(Drive::modelled(rt, &fresh), false)).is_ok() {
                world.counts.add(Kind::SpareAdded, 1);
                world.disks.push(fresh);
            }
        }
        _ => {}
    }
}
