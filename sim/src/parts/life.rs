//! The life of a process that has an array in parts open: from the open to an end at any moment.

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use api::ScrubKind;
use array::parts::Roster;
use array::{Array, Refused};
use futures::future::{Either, select};
use rand::RngExt;
use rt::Rt;
use rt::model::Disk;

use super::host::Host;
use super::open::{Opened, labelled, left_in_parts, open};
use super::plan::Life;
use super::volumes::Held;
use super::{Scene, drives, end, heal, judge, volumes};
use crate::kind::Kind;
use crate::model::Mode;
use crate::plan::End;
use crate::report::Report;
use crate::run::changed;
use crate::workload::Done;

/// A process at work.
pub struct Running {
    pub array: Opened,
    /// Whether the parts behind the first are reached by submissions.
    pub submitted: bool,
    /// Whether a drive is joining.
    pub drive_verb: Rc<Cell<bool>>,
    /// The drive that joined last.
    pub newcomer: RefCell<Option<String>>,
    /// Whether a part refused to finish something when it was opened.
    pub refused: Cell<bool>,
    pub done: Rc<Done>,
    across: Rc<Cell<u64>>,
    /// Verbs on volumes under way.
    pub verbs: Rc<Cell<usize>>,
    roster: Roster,
}

impl Running {
    fn new(array: Opened, submitted: bool, done: Rc<Done>) -> Running {
        let (drive_verb, newcomer, refused, across, verbs) = Default::default();
        Running { array, submitted, drive_verb, newcomer, refused, done, across, verbs, roster: Roster::default() }
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

    /// A host of a volume.
    pub fn host_of(&self, held: Rc<Held>) -> Host {
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
            let array = rt.block_on(Opened::of(&rt, parts, life.submitted));
            let array = array.map_err(|e| format!("put together: {e}"))?;
            if handed_over {
                nothing_to_replay(&array.parts)?;
            }
            scene.world.counts.add(Kind::PartsSubmitted, u64::from(life.submitted));
            let mut running = Running::new(array, life.submitted, done.clone());
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
            end::end(scene, life.end)
        }
        None => {
            rt.end();
            let kind = if life.end == End::Close { End::Kill } else { life.end };
            // What was not looked at since a power cut may still be what the power cut left.
            match (mode, end::end(scene, kind)) {
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
    if life.end == End::Close {
        end::close(scene, rt, life, running)
    } else {
        end::come_to_it(scene, rt, life, running)
    }
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
