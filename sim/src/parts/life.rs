//! The life of a process that has an array in parts open: from the open to an end at any moment.

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use array::whole::Roster;
use array::{Array, Refused, ScrubKind};
use futures::future::{Either, select};
use rand::RngExt;
use rt::Rt;
use rt::model::Disk;

use super::host::Host;
use super::open::{Opened, labelled, left_in_parts, open};
use super::plan::{EndIn, Life};
use super::volumes::Held;
use super::{Scene, drives, heal, judge, volumes};
use crate::kind::Kind;
use crate::model::Mode;
use crate::plan::End;
use crate::report::Report;
use crate::run::{changed, drain, silent};
use crate::workload::Done;

/// A process at work.
pub struct Running {
    pub array: Opened,
    /// Whether the parts behind the first are asked by letters.
    pub by_letters: bool,
    /// Whether a drive is joining.
    pub drive_verb: Rc<Cell<bool>>,
    /// The drive that joined last.
    pub newcomer: RefCell<Option<String>>,
    /// Whether a part refused to finish something when it was opened.
    pub refused: Cell<bool>,
    done: Rc<Done>,
    across: Rc<Cell<u64>>,
    /// Verbs on volumes under way.
    verbs: Rc<Cell<usize>>,
    roster: Roster,
}

impl Running {
    fn new(array: Opened, by_letters: bool, done: Rc<Done>) -> Running {
        let (drive_verb, newcomer, refused, across, verbs) = Default::default();
        Running { array, by_letters, drive_verb, newcomer, refused, done, across, verbs, roster: Roster::default() }
    }

    /// Begins a verb on volumes. That it is refused is wrong, unless the array is being closed.
    pub fn begin(&self, rt: &Rt, what: &'static str, verb: impl Future<Output = Result<(), Refused>> + 'static) {
        let (verbs, done) = (self.verbs.clone(), self.done.clone());
        verbs.set(verbs.get() + 1);
        let verb = async move {
            if let Err(refused) = verb.await
                && !done.stop.get()
            {
                done.wrong.borrow_mut().get_or_insert(format!("{what}: {refused}"));
            }
            verbs.set(verbs.get() - 1);
        };
        rt.spawn(verb).detach();
    }

    /// A host begins its work on a volume.
    pub fn host(&self, rt: &Rt, held: Rc<Held>, seed: u64) {
        rt.spawn(self.host_of(held).run(rt.clone(), seed)).detach();
    }

    fn host_of(&self, held: Rc<Held>) -> Host {
        Host { array: self.array.clone(), held, done: self.done.clone(), across: self.across.clone() }
    }

    /// What went out in a part goes out in the others.
    pub fn share_losses(&mut self, rt: &Rt) -> Result<(), String> {
        rt.block_on(self.array.whole.share_losses(&mut self.roster)).map_err(|e| format!("sharing losses: {e}"))
    }
}

/// One life; what is judged next time.
pub fn live(scene: &mut Scene, life: &Life, mode: Mode, report: &mut Report) -> Result<Mode, String> {
    drives::take_before_open(scene);
    let rt = scene.world.rt();
    let opened = labelled(scene);
    let handed_over = std::mem::take(&mut scene.world.handed_over);
    scene.whole = false;
    let done = Rc::new(Done::default());
    let mode = match open_or_end(scene, &rt, life, &opened) {
        Some(parts) => {
            let parts = parts.map_err(|e| format!("open: {e}"))?;
            scene.world.counts.add(Kind::LeftInParts, left_in_parts(&parts));
            let array = rt.block_on(Opened::of(&rt, parts, life.by_letters));
            let array = array.map_err(|e| format!("put together: {e}"))?;
            if handed_over {
                nothing_to_replay(&array.parts)?;
            }
            scene.world.counts.add(Kind::ByLetters, u64::from(life.by_letters));
            let mut running = Running::new(array, life.by_letters, done.clone());
            let worked = work(scene, &rt, life, mode, &mut running, &opened, report);
            if scene.talk {
                tell(&running.array);
            }
            worked?;
            scene.world.counts.add(Kind::AcrossParts, running.across.get());
            let ended = life.end != End::Close;
            scene.world.counts.add(Kind::EndInVerb, u64::from(ended && running.verbs.get() > 0));
            scene.world.counts.add(Kind::EndInJoin, u64::from(ended && running.drive_verb.get()));
            drop(running);
            rt.end();
            end(scene, life.end)
        }
        None => {
            rt.end();
            let kind = if life.end == End::Close { End::Kill } else { life.end };
            // What was not looked at since a power cut may still be what the power cut left.
            match (mode, end(scene, kind)) {
                (Mode::PowerCut, _) | (_, Mode::PowerCut) => Mode::PowerCut,
                (_, ended) => ended,
            }
        }
    };
    report.requests += done.requests.get();
    report.bytes += done.bytes.get();
    report.no_space += done.no_space.get();
    report.mix(done.requests.get() ^ done.bytes.get() << 1);
    done.wrong.take().map_or(Ok(mode), Err)
}

fn tell(array: &Opened) {
    for (part, number) in array.parts.iter().zip(1..) {
        let status = part.status();
        println!("  part {number}: {:?}, ends at generation {}", status.state, status.generation);
        status.events.iter().for_each(|e| println!("    {} {}", e.unix_seconds, e.text));
    }
}

/// Opens all parts; `None` when the end came first.
fn open_or_end(scene: &mut Scene, rt: &Rt, life: &Life, opened: &[Disk]) -> Option<Result<Vec<Array>, Refused>> {
    if life.heals || !scene.world.chance(Kind::EndInOpen, 4) {
        return Some(rt.block_on(open(rt, opened)));
    }
    let changes = changed(opened) + scene.world.dice.random_range(0..8 * opened.len() as u64);
    let patience = Duration::from_micros(scene.world.dice.random_range(0..50));
    let end = async {
        while changed(opened) < changes {
            rt.sleep(Duration::from_micros(5)).await;
        }
        rt.sleep(patience).await;
    };
    match rt.block_on(select(pin!(open(rt, opened)), pin!(end))) {
        Either::Left((parts, _)) => Some(parts),
        Either::Right(_) => {
            scene.world.counts.add(Kind::EndInOpen, 1);
            None
        }
    }
}

/// Who opens an array that was handed over in order has nothing to replay in any part.
fn nothing_to_replay(parts: &[Array]) -> Result<(), String> {
    let replayed = parts.iter().map(Array::recovery).find(|r| !r.clean || r.replayed_entries > 0);
    replayed.map_or(Ok(()), |r| Err(format!("it was closed in order, and there was something to replay: {r:?}")))
}

/// From the moment it serves.
fn work(
    scene: &mut Scene,
    rt: &Rt,
    life: &Life,
    mode: Mode,
    running: &mut Running,
    opened: &[Disk],
    report: &mut Report,
) -> Result<(), String> {
    report.recoveries += running.array.parts.iter().filter(|part| !part.recovery().clean).count() as u64;
    judge::parts_agree(&running.array)?;
    judge::compare(rt, &running.array, &mut scene.volumes, mode)?;
    drives::finish(scene, rt, running, opened)?;
    drives::tidy(scene, running);
    judge::takes_writes(rt, &running.array, &scene.volumes, &running.done)?;
    if life.heals {
        heal::heal(scene, rt, running)?;
    }
    let sure = scene.volumes.sure();
    for _ in 0..if sure.is_empty() { 0 } else { life.hosts } {
        let held = sure[scene.world.dice.random_range(0..sure.len())].clone();
        running.host(rt, held, scene.world.dice.random());
    }
    let until = rt.now() + Duration::from_millis(life.millis);
    while rt.now() < until && running.done.wrong.borrow().is_none() {
        let slice = Duration::from_micros(scene.world.dice.random_range(1..=life.millis * 400));
        rt.block_on(rt.sleep(slice));
        if scene.plan.shares {
            running.share_losses(rt)?;
        }
        if !life.heals {
            disturb(scene, rt, running)?;
        }
    }
    for part in &running.array.parts {
        report.moved += part.moved_blocks();
        report.repairs += part.status().repaired_blocks;
        report.mix(rt.now().0 ^ part.status().generation << 40);
    }
    if running.done.wrong.borrow().is_some() {
        return Ok(());
    }
    if life.end == End::Close { close(scene, rt, running) } else { end_in_verb(scene, rt, life, running) }
}

fn disturb(scene: &mut Scene, rt: &Rt, running: &mut Running) -> Result<(), String> {
    drives::disturb(scene, rt, running)?;
    drives::tidy(scene, running);
    if scene.world.chance(Kind::VolumeChanged, 3) {
        volumes::disturb(scene, rt, running);
    }
    if scene.world.chance(Kind::Scrubbed, 8) {
        let kind = [ScrubKind::Media, ScrubKind::Parity][scene.world.dice.random_range(0..2)];
        if rt.block_on(running.array.whole.scrub_start(kind, false)).is_ok() {
            scene.world.counts.add(Kind::Scrubbed, 1);
        }
    }
    if scene.world.chance(Kind::Checkpoint, 8) {
        let part = running.array.parts[scene.world.dice.random_range(0..running.array.parts.len())].clone();
        rt.spawn(async move { part.checkpoint().await }).detach();
        scene.world.counts.add(Kind::Checkpoint, 1);
    }
    Ok(())
}

/// Lets a verb begin, and some of its writes.
fn end_in_verb(scene: &mut Scene, rt: &Rt, life: &Life, running: &Running) -> Result<(), String> {
    match life.end_in {
        EndIn::Anywhere => return Ok(()),
        EndIn::Verb => {
            // What hosts write would count: mostly they are done.
            if scene.world.dice.random_range(0..4) > 0 {
                drain(rt, &running.done)?;
                running.done.stop.set(false);
            }
            volumes::disturb(scene, rt, running);
        }
        EndIn::Join => drives::begin(scene, rt, running),
        EndIn::Flush => return end_in_flush(scene, rt, running),
    }
    let disks = scene.world.disks.clone();
    let enough =
        changed(&disks) + scene.world.dice.random_range(0..8 * disks.len() as u64 * u64::from(scene.plan.parts));
    let until = rt.now() + Duration::from_millis(50);
    let under_way = || running.verbs.get() > 0 || running.drive_verb.get();
    while under_way() && changed(&disks) < enough && rt.now() < until {
        rt.block_on(rt.sleep(Duration::from_micros(3)));
    }
    Ok(())
}

/// Flushes what one part has, or all have.
fn end_in_flush(scene: &mut Scene, rt: &Rt, running: &Running) -> Result<(), String> {
    // Others' flushes would hide a part that is left out.
    drain(rt, &running.done)?;
    let Some(held) = scene.volumes.sure().into_iter().next() else { return Ok(()) };
    let Some(volume) = running.array.volume(&held.name())? else { return Ok(()) };
    let host = running.host_of(held);
    // A drive's flush is one of all its slices: of one part only, or others would do for it.
    let parts = running.array.parts.len();
    let lone = scene.world.dice.random_range(0..parts);
    let stripes = if scene.world.dice.random_range(0..4) == 0 { 0..parts } else { lone..lone + 1 };
    let flushed = rt.block_on(async {
        host.flush(&volume).await?;
        for stripe in stripes {
            host.write_at(&volume, stripe, false).await?;
        }
        host.flush(&volume).await
    });
    match flushed {
        Ok(()) => scene.world.counts.add(Kind::EndInFlush, 1),
        Err(export::Fault::NoSpace) => {}
        Err(fault) => return Err(format!("a write or a flush failed: {fault}")),
    }
    Ok(())
}

fn close(scene: &mut Scene, rt: &Rt, running: &Running) -> Result<(), String> {
    if scene.world.dice.random_range(0..2) == 0 {
        drain(rt, &running.done)?;
    }
    running.done.stop.set(true);
    let attached = scene.world.disks.iter().all(Disk::is_attached);
    let joining = running.newcomer.borrow().clone().filter(|_| running.drive_verb.get());
    let sound = attached && !running.drive_verb.get();
    let seats = |disk: &Disk| running.array.seats(disk.name());
    let all_in = scene.world.disks.iter().flat_map(seats).all(|seat| seat == Some(array::SeatState::In));
    let optimal = running.array.is_optimal();
    let closed = rt.block_on(running.array.whole.clone().close());
    closed.map_err(|e| {
        format!("close: {e}: {:#?}", running.array.parts.iter().map(|p| p.status().events).collect::<Vec<_>>())
    })?;
    // Of a drive that is joining the array knows nothing before it has its label.
    let known = scene.world.disks.iter().filter(|disk| joining.as_deref() != Some(disk.name()));
    silent(rt, &known.cloned().collect::<Vec<_>>())?;
    scene.world.handed_over = true;
    scene.whole = sound && all_in && optimal;
    Ok(())
}

/// What becomes of the drives when the process is gone.
fn end(scene: &mut Scene, end: End) -> Mode {
    let disks = scene.world.disks.clone();
    let (kind, mode) = match end {
        End::Close => (Kind::Close, Mode::Killed),
        End::Kill => (Kind::Kill, Mode::Killed),
        End::PowerCut => (Kind::PowerCut, Mode::PowerCut),
    };
    scene.world.counts.add(kind, 1);
    for disk in &disks {
        match end {
            End::Close => {}
            End::Kill => disk.crash(scene.world.dice.random()),
            End::PowerCut => disk.power_cut(scene.world.dice.random()),
        }
        scene.world.counts.add(Kind::StaleReturn, u64::from(!disk.is_attached()));
        disk.attach();
        disk.on_op(None);
    }
    mode
}
