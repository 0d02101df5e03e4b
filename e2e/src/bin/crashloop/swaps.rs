//! Between two lives of the server members are swapped for older copies of themselves, or the copies are put beside them.
//!
//! ```text
//! cycle   t            t + 1 ...         s                                 s, or s + 1
//!         copies of    loads, kills,     they take the members' places     optimal? kill; as many others as may go are taken
//!         members      deeds             or lie beside them for a cycle    away; all is read back; then all are there again
//! ```
//!
//! Invariants: copies are taken and swapped where the array was optimal under the load that the kill ended, so that all of its
//! redundancy covers what is set back; a copy is behind by two generations at least. A member that is set back comes back by
//! itself; a copy beside it is left out. Only two kinds of copies may be refused: one that was taken when some members held a
//! generation that others did not, for that may never have taken effect, and then it is a history of its own; and one from before
//! more opens than a generation knows of.

use e2e::load::Random;
use e2e::{Failure, Result, readback};
use rand::RngExt;
use rand::seq::SliceRandom;
use rt::Rt;
use serde_json::Value;

use crate::args::Args;
use crate::copies::{self, Kept};
use crate::cycle::Done;
use crate::members::{is_in, is_listed, short};
use crate::scene::Scene;

/// From one swap to the next, in cycles of the array: one of ten, with those that wait until the array is whole.
const CYCLES_BETWEEN: std::ops::RangeInclusive<u32> = 5..=9;
/// A swap that waits so many cycles is made possible.
const CYCLES_LATE: u32 = 4;
/// Copies beside the drives at once.
const BESIDE_MAX: usize = 2;

/// What is done with copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Swap {
    SetBack,
    Beside,
}

/// What swaps did.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Members set back.
    pub set_back: u32,
    /// Copies put beside their members.
    pub beside: u32,
    /// Members that came back by themselves.
    pub came_back: u32,
    /// Copies that were refused, as they may be.
    pub refused: u32,
    /// Drives taken away when the array had said that it is optimal; these came back, too.
    pub away: u32,
}

impl Counts {
    /// Adds another's figures.
    pub fn add(&mut self, other: &Counts) {
        self.set_back += other.set_back;
        self.beside += other.beside;
        self.came_back += other.came_back;
        self.refused += other.refused;
        self.away += other.away;
    }
}

/// The copies of one array.
pub struct Swaps {
    tolerates: usize,
    is_on: bool,
    /// What comes next.
    next: Swap,
    take_from: u32,
    swap_from: u32,
    /// Copies, and the cycle whose end they are of.
    kept: Vec<Kept>,
    taken_in: u32,
    /// Copies that lie beside the drives now.
    beside: Vec<String>,
    /// Members that were set back and are not seen to be whole yet, and whether they have until the end of the next cycle.
    returning: Vec<Kept>,
    later: bool,
}

impl Swaps {
    /// None yet.
    pub fn new(args: &Args) -> Swaps {
        let tolerates = args.tolerates();
        Swaps {
            tolerates,
            is_on: !args.no_drive_faults,
            next: if tolerates == 0 { Swap::Beside } else { Swap::SetBack },
            take_from: 0,
            swap_from: *CYCLES_BETWEEN.start(),
            kept: vec![],
            taken_in: 0,
            beside: vec![],
            returning: vec![],
            later: false,
        }
    }

    /// Whether something is to be copied or swapped at the end of the array's cycle `nth`, if it is whole.
    pub fn want(&self, nth: u32) -> bool {
        let wants_copies = self.kept.is_empty() && self.take_from <= nth;
        self.is_on && self.returning.is_empty() && (wants_copies || self.swap_from <= nth)
    }

    /// Whether the array is to be made whole for a swap: kills may cut off the replacement of a member again and again.
    pub fn are_late(&self, nth: u32) -> bool {
        self.is_on && self.returning.is_empty() && nth >= self.swap_from + CYCLES_LATE
    }

    /// Whether members are coming back: then nothing else is done to members.
    pub fn are_returning(&self) -> bool {
        !self.returning.is_empty()
    }
}

/// Whether the next start may be refused.
pub fn may_be_refused(scene: &Scene) -> bool {
    !scene.swaps.beside.is_empty() && scene.swaps.kept.iter().any(|kept| !kept.is_certain(scene.server.starts()))
}

/// The server is dead: what lay beside the drives is taken away.
pub fn clear(scene: &mut Scene) -> Result<()> {
    scene.server.pass(&[]);
    for copy in scene.swaps.beside.drain(..) {
        copies::remove_file(&scene.ashlar, &copy)?;
    }
    Ok(())
}

/// The server is dead, and the array was whole: copies are taken, or swapped.
pub fn turn(scene: &mut Scene, random: &mut Random, counts: &mut Counts) -> Result<()> {
    let nth = scene.cycles;
    let files = scene.members.files().to_vec();
    if scene.swaps.swap_from <= nth && scene.swaps.taken_in < nth {
        let (kept, gone): (Vec<Kept>, Vec<Kept>) = scene.swaps.kept.drain(..).partition(|k| files.contains(&k.file));
        gone.iter().try_for_each(|kept| kept.remove(&scene.ashlar))?;
        scene.swaps.kept = kept;
        if swap(scene, &files, random, counts)? {
            scene.swaps.take_from = nth + random.random_range(1..*CYCLES_BETWEEN.start());
            scene.swaps.swap_from = nth + random.random_range(CYCLES_BETWEEN);
            return Ok(());
        }
    }
    if scene.swaps.take_from <= nth && scene.swaps.kept.is_empty() {
        take(scene, files, random)?;
    }
    Ok(())
}

fn take(scene: &mut Scene, files: Vec<String>, random: &mut Random) -> Result<()> {
    let most = if scene.swaps.next == Swap::SetBack { scene.swaps.tolerates } else { BESIDE_MAX };
    let n = random.random_range(1..=most);
    let mut which = files.clone();
    which.shuffle(random);
    for file in which.iter().take(n) {
        scene.swaps.kept.push(Kept::take(&scene.ashlar, scene.server.starts(), file, &files)?);
    }
    scene.swaps.taken_in = scene.cycles;
    Ok(())
}

/// False: there is no copy, or none is old enough.
fn swap(scene: &mut Scene, files: &[String], random: &mut Random, counts: &mut Counts) -> Result<bool> {
    let is_kept = |file: &&String| scene.swaps.kept.iter().any(|kept| kept.file == **file);
    let Some(stays) = files.iter().find(|file| !is_kept(file)).cloned() else { return Ok(false) };
    let mut behind = !scene.swaps.kept.is_empty();
    for kept in &scene.swaps.kept {
        behind &= kept.is_behind(&scene.ashlar, &stays)?;
    }
    if !behind {
        return Ok(false);
    }
    let n = scene.swaps.kept.len();
    match scene.swaps.next {
        Swap::SetBack => {
            scene.swaps.kept.iter().try_for_each(|kept| kept.set_back(&scene.ashlar))?;
            scene.swaps.returning = std::mem::take(&mut scene.swaps.kept);
            scene.swaps.later = random.random();
            counts.set_back += n as u32;
            pass_degraded(scene, n);
            scene.swaps.next = Swap::Beside;
        }
        Swap::Beside => {
            let first = random.random();
            let beside: Result<Vec<String>> =
                scene.swaps.kept.iter().map(|kept| kept.put_beside(&scene.ashlar, first)).collect();
            scene.swaps.beside = beside?;
            counts.beside += n as u32;
            scene.server.pass(&["d"]);
            scene.swaps.next = if scene.swaps.tolerates == 0 { Swap::Beside } else { Swap::SetBack };
        }
    }
    Ok(true)
}

/// Half of the members and fewer are accepted where that is asked for only.
fn pass_degraded(scene: &mut Scene, lacking: usize) {
    let few = (scene.members.files().len() - lacking) * 2 <= scene.members.files().len();
    scene.server.pass(if few { &["--degraded"] } else { &[] });
}

/// The server refused to start: where it may, the copies are taken away.
pub fn refused(scene: &mut Scene, failure: Failure, counts: &mut Counts) -> Result<()> {
    let log = scene.server.log_end();
    let names = |file: &str| log.contains(&format!("/{file}"));
    let starts = scene.server.starts() - 1;
    let named = |kept: &Kept| !kept.is_certain(starts) && names(&kept.file);
    let both = scene.swaps.kept.iter().any(named) && scene.swaps.beside.iter().any(|copy| names(copy));
    if !both {
        return Err(failure.within("an older copy beside the drive"));
    }
    counts.refused += scene.swaps.kept.iter().filter(|kept| named(kept)).count() as u32;
    forget(scene)?;
    clear(scene)
}

fn forget(scene: &mut Scene) -> Result<()> {
    scene.swaps.kept.drain(..).try_for_each(|kept| kept.remove(&scene.ashlar))
}

/// The server is up again.
pub fn started(scene: &mut Scene, counts: &mut Counts) -> Result<()> {
    if scene.swaps.beside.is_empty() && scene.swaps.returning.is_empty() {
        return Ok(());
    }
    let (status, starts) = (scene.ashlar.status(scene.name)?, scene.server.starts());
    if let Some(copy) = scene.swaps.beside.iter().find(|copy| is_listed(&status, copy)) {
        return Err(wrong(scene, &format!("{copy} is an older copy, and taken for a member"), &status));
    }
    if !scene.swaps.beside.is_empty() {
        // They stay for a cycle; what is known of them is needed no more.
        let out = scene.members.files().iter().find(|file| !is_in(&status, file));
        if let Some(out) = out {
            return Err(wrong(scene, &format!("{out} is not in, with an older copy beside a drive"), &status));
        }
        forget(scene)?;
    }
    let (back, out): (Vec<Kept>, Vec<Kept>) =
        scene.swaps.returning.drain(..).partition(|kept| is_in(&status, &kept.file));
    scene.swaps.returning = back;
    for kept in out {
        if kept.is_certain(starts) {
            return Err(wrong(scene, &format!("{} was set back, and does not come back", kept.file), &status));
        }
        counts.refused += 1;
        scene.members.replace_at_once(&scene.ashlar, &kept.file)?;
    }
    Ok(())
}

/// Once it says that it is optimal, as many drives as may go are taken away: that is seen only where the time has come.
pub async fn prove(rt: &Rt, scene: &mut Scene, random: &mut Random, done: &mut Done) -> Result<()> {
    if scene.swaps.returning.is_empty() || std::mem::take(&mut scene.swaps.later) {
        return Ok(());
    }
    scene.members.wait_whole(&scene.ashlar, &scene.server)?;
    let returned: Vec<String> = scene.swaps.returning.drain(..).map(|kept| kept.file).collect();
    done.swaps.came_back += returned.len() as u32;
    let mut others: Vec<String> =
        scene.members.files().iter().filter(|file| !returned.contains(file)).cloned().collect();
    others.shuffle(random);
    others.truncate(scene.swaps.tolerates);
    end_idle(scene, done)?;
    let away: Result<Vec<String>> = others.iter().map(|file| copies::take_away(&scene.ashlar, file)).collect();
    let away = away?;
    pass_degraded(scene, others.len());
    let lacking = format!("it said optimal after {returned:?} had been set back; then without {others:?}");
    start(scene, done).map_err(|failure| failure.within(&lacking))?;
    let clients = scene.connect(rt).await?;
    let read = readback::verify(&clients, &scene.model).await;
    done.bytes_verified += read.map_err(|failure| failure.within(&lacking))?;
    drop(clients);
    end_idle(scene, done)?;
    for (file, from) in others.iter().zip(&away) {
        copies::move_file(&scene.ashlar, from, file)?;
    }
    start(scene, done)?;
    scene.server.pass(&[]);
    let status = scene.ashlar.status(scene.name)?;
    if let Some(out) = others.iter().find(|file| !is_in(&status, file)) {
        return Err(wrong(scene, &format!("{out} was away, and does not come back"), &status));
    }
    done.swaps.away += others.len() as u32;
    scene.members.rebuild_is_under_way();
    Ok(())
}

fn end_idle(scene: &mut Scene, done: &mut Done) -> Result<()> {
    scene.server.kill()?;
    done.kills += 1;
    done.kills_idle += 1;
    Ok(())
}

fn start(scene: &mut Scene, done: &mut Done) -> Result<()> {
    done.starts += 1;
    done.start += scene.server.start()?;
    Ok(())
}

fn wrong(scene: &Scene, what: &str, status: &Value) -> Failure {
    scene.server.broken(format!("{what}: {}", short(status)))
}
