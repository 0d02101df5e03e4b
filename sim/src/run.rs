//! One seed: create, then rounds of work, loss and restart, each judged by the model and by a check from scratch.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use array::{Array, ArrayState, OpenHow, SeatState, check};
use base::MemberId;
use rand::RngExt;
use rt::model::Disk;
use rt::{Drive, Rt};

use crate::model::{Mode, Model};
use crate::workload::{Done, Host};
use crate::world::World;

/// Figures of a seed.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Restarts by kind: power cuts, kills, in order.
    pub power_cuts: u64,
    /// Process deaths.
    pub kills: u64,
    /// Closed in order.
    pub closes: u64,
    /// Drives pulled while in use.
    pub pulled: u64,
    /// Drives replaced.
    pub replaced: u64,
    /// Spares added.
    pub spares: u64,
    /// Requests answered.
    pub requests: u64,
    /// Bytes written by hosts.
    pub bytes: u64,
    /// Blocks the cleaner moved.
    pub moved: u64,
    /// Requests refused for want of space.
    pub no_space: u64,
    /// A hash over everything that was decided and found.
    pub trace: u64,
}

impl Report {
    /// Adds another seed's.
    pub fn add(&mut self, o: &Report) {
        self.power_cuts += o.power_cuts;
        self.kills += o.kills;
        self.closes += o.closes;
        self.pulled += o.pulled;
        self.replaced += o.replaced;
        self.spares += o.spares;
        self.requests += o.requests;
        self.bytes += o.bytes;
        self.moved += o.moved;
        self.no_space += o.no_space;
        self.mix(o.trace);
    }

    fn mix(&mut self, value: u64) {
        self.trace = (self.trace ^ value).wrapping_mul(0x0100_0000_01b3).rotate_left(17);
    }
}

struct Volumes {
    names: Vec<String>,
    models: Vec<Rc<RefCell<Model>>>,
}

/// Runs `seed`; the error says what was wrong.
pub fn run(seed: u64, talk: bool) -> Result<Report, String> {
    let mut world = World::new(seed);
    let mut report = Report::default();
    if talk {
        println!("seed {seed}: {}", world.describe());
    }
    let mut volumes = create(&mut world)?;
    let mut mode = Mode::Killed;
    let rounds = world.dice.random_range(2..6);
    for round in 0..rounds {
        if talk {
            println!("round {round}: after {mode:?}");
        }
        check_cold(&mut world).map_err(|e| format!("check before round {round}: {e}"))?;
        mode =
            one_round(&mut world, &mut volumes, mode, &mut report, talk).map_err(|e| format!("round {round}: {e}"))?;
    }
    check_cold(&mut world).map_err(|e| format!("last check: {e}"))?;
    one_round(&mut world, &mut volumes, mode, &mut report, talk).map_err(|e| format!("last round: {e}"))?;
    Ok(report)
}

fn drives(rt: &Rt, disks: &[Disk]) -> Vec<Drive> {
    disks.iter().map(|d| Drive::modelled(rt, d)).collect()
}

fn create(world: &mut World) -> Result<Volumes, String> {
    let rt = Rt::modelled(world.dice.random());
    let count = world.dice.random_range(1..4);
    let share = world.dice.random_range(20..130);
    let disks = world.disks.clone();
    let spec = world.spec.clone();
    let (names, sizes) = rt.block_on(async {
        let array = Array::create(&rt, drives(&rt, &disks), &spec).await.map_err(|e| e.to_string())?;
        let usable = array.status().usable_bytes;
        let bytes = (usable * share / 100 / count).clamp(1 << 16, 40 << 20) / 4096 * 4096;
        let mut names = Vec::new();
        for i in 0..count {
            let name = format!("v{i}");
            array.volume_create(&name, bytes).await.map_err(|e| e.to_string())?;
            names.push(name);
        }
        array.close().await.map_err(|e| e.to_string())?;
        Ok::<_, String>((names, bytes))
    })?;
    rt.end();
    world.volume_bytes = vec![sizes; names.len()];
    let models = names.iter().map(|_| Rc::new(RefCell::new(Model::new(sizes)))).collect();
    Ok(Volumes { names, models })
}

/// A check by a process of its own, on forks of the drives so that it cannot help.
fn check_cold(world: &mut World) -> Result<(), String> {
    let rt = Rt::modelled(world.dice.random());
    let disks: Vec<Disk> = world.disks.iter().map(Disk::fork).collect();
    let report = rt.block_on(check(&rt, drives(&rt, &disks), |_| {})).map_err(|e| e.to_string())?;
    rt.end();
    if report.ok() { Ok(()) } else { Err(format!("{} errors: {:#?}", report.error_count, report.errors)) }
}

fn one_round(
    world: &mut World,
    volumes: &mut Volumes,
    mode: Mode,
    report: &mut Report,
    talk: bool,
) -> Result<Mode, String> {
    let rt = Rt::modelled(world.dice.random());
    let opened = world.disks.clone();
    let array = rt.block_on(Array::open(&rt, drives(&rt, &opened), OpenHow { degraded: true, ..OpenHow::default() }));
    let array = array.map_err(|e| format!("open: {e}"))?;
    let status = array.status();
    if talk {
        println!("  {:?}", array.recovery());
    }
    if status.state == ArrayState::Frozen {
        return Err(format!("frozen after open: {:#?}", status.events));
    }
    for (name, model) in volumes.names.iter().zip(&volumes.models) {
        let volume = array.volume(name).ok_or(format!("volume {name} is gone"))?;
        let parts = rt.block_on(volume.read(0, volume.bytes())).map_err(|e| format!("reading {name}: {e}"))?;
        let found: Vec<u8> = parts.iter().flat_map(|p| p.iter().copied()).collect();
        model.borrow_mut().settle(&found, mode).map_err(|e| format!("volume {name}: {e}"))?;
    }
    let done = Rc::new(Done::default());
    let hosts = world.dice.random_range(1..24);
    for _ in 0..hosts {
        let which = world.dice.random_range(0..volumes.names.len());
        let volume = array.volume(&volumes.names[which]).expect("it was there");
        let write_through = !volume.volatile_cache();
        let host = Host { volume, model: volumes.models[which].clone(), write_through, done: done.clone() };
        rt.spawn(host.run(rt.clone(), world.dice.random())).detach();
    }
    let millis = 1 << world.dice.random_range(0..9);
    let until = rt.now() + Duration::from_millis(millis);
    while rt.now() < until && done.wrong.borrow().is_none() {
        let slice = Duration::from_micros(world.dice.random_range(1..=millis * 400));
        rt.block_on(rt.sleep(slice));
        disturb(world, &rt, &array, report)?;
    }
    report.moved += array.moved_blocks();
    let end = world.dice.random_range(0..4);
    let events = array.status().events;
    if talk {
        println!("  ends at generation {}", array.status().generation);
    }
    let mode = match end {
        0 => {
            rt.block_on(array.clone().close()).map_err(|e| format!("close: {e}"))?;
            report.closes += 1;
            Mode::Killed
        }
        1 => Mode::Killed,
        _ => Mode::PowerCut,
    };
    drop(array);
    rt.end();
    let joined = world.disks.iter().filter(|d| !opened.iter().any(|o| o.name() == d.name())).cloned();
    let all: Vec<Disk> = opened.iter().cloned().chain(joined).collect();
    for disk in &all {
        match (end, mode) {
            (0, _) => {}
            (_, Mode::PowerCut) => disk.power_cut(world.dice.random()),
            _ => disk.crash(world.dice.random()),
        }
    }
    match mode {
        Mode::PowerCut => report.power_cuts += 1,
        _ if end == 1 => report.kills += 1,
        _ => {}
    }
    for disk in &world.disks {
        disk.attach();
    }
    report.requests += done.requests.get();
    report.bytes += done.bytes.get();
    report.no_space += done.no_space.get();
    report.mix(done.requests.get() ^ done.bytes.get() << 1);
    if talk {
        println!(
            "  {} requests, {} MiB, {} without space",
            done.requests.get(),
            done.bytes.get() >> 20,
            done.no_space.get()
        );
        for e in &events {
            println!("    {} {}", e.unix_seconds, e.text);
        }
    }
    match done.wrong.take() {
        Some(wrong) => Err(wrong),
        None => Ok(mode),
    }
}

/// Sometimes a drive is pulled, sometimes one that is out is replaced: always within the redundancy.
fn disturb(world: &mut World, rt: &Rt, array: &Array, report: &mut Report) -> Result<(), String> {
    let status = array.status();
    let out: Vec<u16> = status.members.iter().filter(|m| m.state == SeatState::Out).map(|m| m.seat).collect();
    let lost = world.disks.iter().filter(|d| !d.is_attached()).count();
    match world.dice.random_range(0..12) {
        0 if status.state == ArrayState::Optimal && world.tolerates > 0 && lost == 0 => {
            let n = world.dice.random_range(1..=world.tolerates);
            for _ in 0..n {
                let i = world.dice.random_range(0..world.disks.len());
                world.disks[i].detach();
                report.pulled += 1;
            }
        }
        1..=3 if !out.is_empty() => {
            let fresh = world.new_disk();
            let drive = Drive::modelled(rt, &fresh);
            let seat = MemberId(out[0]);
            let old = status.members.iter().find(|m| m.seat == seat.0).map(|m| m.drive_name.clone());
            if rt.block_on(array.drive_replace(seat, drive, false)).is_ok() {
                report.replaced += 1;
                world.disks.retain(|d| Some(d.name().to_owned()) != old);
                world.disks.push(fresh);
            }
        }
        4 => rt.block_on(array.rebuild_done()),
        5 if world.tolerates > 0 && status.members.iter().all(|m| m.state != SeatState::Spare) => {
            let fresh = world.new_disk();
            if rt.block_on(array.drive_add_spare(Drive::modelled(rt, &fresh), false)).is_ok() {
                report.spares += 1;
                world.disks.push(fresh);
            }
        }
        _ => {}
    }
    Ok(())
}
