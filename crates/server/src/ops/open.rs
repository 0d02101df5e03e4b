//! Opening a known array: its drives by name, each checked to be what the registry says.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api::{ArrayState, ArrayView, EventCode, MemberView, Problem, RecoveryView};
use array::owner::{self, OwnerHow};
use array::parts::{Part, Roster, end_all, open_by, without_copies, worse};
use array::{OpenHow, Volume, Whole};
use base::{ArrayUuid, VolumeId};
use futures::future::{Either, select};
use rt::{Drive, DriveInfo, DriveKind, OpenDrive, OpenError};
use uuid::Uuid;

use super::World;
use crate::drives::source::open_problem;
use crate::lease::{Lease, Leases};
use crate::parts::{self, Answering, Placed, place};
use crate::problem;
use crate::registry::Known;
use crate::scrubs::LastScrub;
use crate::volumes::{ArrayVolume, PartAccess};

/// How to open an array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct How {
    /// Writes nothing: recovers in memory.
    pub read_only: bool,
    /// Accepts half or fewer of the members.
    pub degraded: bool,
    /// Leaves out members with a history of their own.
    pub force_diverged: bool,
    /// Goes on over writes that are lost beyond repair.
    pub accept_loss: bool,
    /// Gives up the newest generation.
    pub previous: bool,
    /// Takes it from another server that has it.
    pub take_over: bool,
    /// Waits for locks that a killed server still holds.
    pub patience: Patience,
}

impl How {
    /// For reading only.
    pub const READ_ONLY: How = How {
        read_only: true,
        degraded: true,
        force_diverged: false,
        accept_loss: false,
        previous: false,
        take_over: false,
        patience: Patience::Short,
    };
}

/// How long to wait for a drive's lock. The kernel gives up the lock of a killed process only when the process's
/// last writes have ended: at once on a fast drive, after seconds on a slow one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Patience {
    /// For a command: whoever holds the lock is most likely alive.
    #[default]
    Short,
    /// For a server that is started again after it was killed.
    Long,
}

impl Patience {
    const fn tries(self) -> u32 {
        match self {
            Patience::Short => 25,
            Patience::Long => 1000,
        }
    }

    /// Between two tries.
    const PAUSE: Duration = Duration::from_millis(20);
}

/// Tries after which the log says what is waited for: a second. A command gives up before.
const TRIES_IN_SILENCE: u32 = 50;

async fn open_patiently(world: &World, name: &str, how: OpenDrive, patience: Patience) -> Result<Drive, OpenError> {
    let mut tries = patience.tries();
    loop {
        match Drive::open(&world.rt, name.as_ref(), how).await {
            Err(OpenError::Locked(_)) if tries > 0 => {
                tries -= 1;
                if patience.tries() - tries == TRIES_IN_SILENCE {
                    let left = Patience::PAUSE * tries;
                    tracing::warn!("drive {name} is locked by another process: waiting up to {} s", left.as_secs());
                }
                world.rt.sleep(Patience::PAUSE).await;
            }
            result => return result,
        }
    }
}

/// How many arrays were opened in this process, so that one that is opened anew is known from what it was before; from 1.
static OPENS: AtomicU64 = AtomicU64::new(1);

/// An open array and its drives. Clones share them.
#[derive(Clone)]
pub struct Opened {
    /// The array.
    pub array: Whole,
    /// Its drives; the locks are theirs.
    drives: Rc<RefCell<Vec<Drive>>>,
    /// Drives that left an array in parts: a slice keeps its drive locked until its part lets go of it.
    former: Rc<RefCell<Vec<Drive>>>,
    /// Drives that no part has open any more: those of the last look, and all that were let go of.
    unused: Rc<RefCell<Vec<String>>>,
    let_go: Rc<RefCell<Vec<DriveInfo>>>,
    /// How volumes of the parts behind the first are reached.
    others: Rc<[PartAccess]>,
    leases: Leases<ArrayVolume>,
    /// Which open of this process it is.
    number: u64,
    /// Who answers other cores for its parts on this one.
    answering: Rc<Answering>,
    /// The worst state of any part, as last seen.
    seen: Rc<Cell<Option<ArrayState>>>,
    returns: Rc<Returns>,
    /// What its last scrub found, also before it was opened.
    scrubbed: Rc<LastScrub>,
    /// Whether it was opened for reading only.
    pub read_only: bool,
    /// Whether it lives in memory and is gone with the process.
    pub volatile: bool,
    /// What a person wants to know.
    pub notes: Vec<String>,
}

impl Opened {
    /// An array that is open on `drives`.
    #[must_use]
    pub fn new(array: Whole, drives: Vec<Drive>) -> Opened {
        Opened {
            array,
            drives: Rc::new(RefCell::new(drives)),
            former: Rc::default(),
            unused: Rc::default(),
            let_go: Rc::default(),
            others: Rc::new([]),
            leases: Leases::default(),
            number: OPENS.fetch_add(1, Ordering::Relaxed),
            answering: Rc::default(),
            seen: Rc::default(),
            returns: Rc::default(),
            scrubbed: Rc::default(),
            read_only: false,
            volatile: false,
            notes: vec![],
        }
    }

    /// The array of these parts.
    ///
    /// # Errors
    /// When a part lacks what the first has; then none is open.
    pub async fn of(world: &World, parts: Vec<Placed>, drives: Vec<Drive>) -> Result<Opened, Problem> {
        let (mut all, mut reach, mut ways) = (vec![], vec![], vec![]);
        for placed in parts {
            all.push(placed.part);
            reach.push(placed.reach);
            ways.push(placed.ways);
        }
        let Part::Here(first) = all[0].clone() else { unreachable!("the first part is on the calling core") };
        let others = all[1..].to_vec();
        reach.remove(0);
        let opened = match Whole::of(first, others).await {
            Ok(array) => array.finish(&drives).await.map(|refusals| (array, refusals)),
            Err(refused) => Err(refused),
        };
        match opened {
            Ok((array, notes)) => {
                let mut answering = Answering::default();
                ways.into_iter().for_each(|ways| answering.join(ways.tell(&world.cores, &array)));
                parts::tell_limits(&world.cores, &array);
                let (others, answering) = (reach.into(), Rc::new(answering));
                Ok(Opened { others, notes, answering, ..Opened::new(array, drives) })
            }
            Err(refused) => {
                end_all(all).await;
                Err(refused.into())
            }
        }
    }

    /// Its drives.
    #[must_use]
    pub fn drives(&self) -> Vec<Drive> {
        self.drives.borrow().clone()
    }

    /// Drives that left it, and are open here still because it is in parts.
    #[must_use]
    pub fn former(&self) -> Vec<Drive> {
        self.former.borrow().clone()
    }

    /// Takes `drive` in, and lets go of the drive that was `instead_of`; returns that one's stable name.
    pub fn take_in(&self, drive: Drive, instead_of: Option<&MemberView>) -> Option<String> {
        let name = drive.info().name.clone();
        self.former.borrow_mut().retain(|d| d.info().name != name);
        let old = self.take_out(|d| instead_of.is_some_and(|m| is_drive_of(d, m) && d.name != name));
        let mut drives = self.drives.borrow_mut();
        if drives.iter().all(|d| d.info().name != name) {
            drives.push(drive);
        }
        old
    }

    /// Lets go of a member's drive; returns its stable name.
    pub fn let_go(&self, member: &MemberView) -> Option<String> {
        self.take_out(|d| is_drive_of(d, member))
    }

    fn take_out(&self, which: impl Fn(&DriveInfo) -> bool) -> Option<String> {
        let mut drives = self.drives.borrow_mut();
        let (gone, stay): (Vec<Drive>, Vec<Drive>) = drives.drain(..).partition(|d| which(d.info()));
        *drives = stay;
        let let_go = self.let_go.borrow();
        let info = gone.first().map(Drive::info).or_else(|| let_go.iter().find(|info| which(info)));
        let name = info.map(|info| info.stable_name.clone());
        if !self.others.is_empty() {
            self.former.borrow_mut().extend(gone);
        }
        name
    }

    /// The array as scripts see it.
    pub async fn view(&self) -> ArrayView {
        // A core ends with the server: then what the first part says is as much as can be known.
        let status = self.array.status().await;
        let mut view: ArrayView = status.unwrap_or_else(|_| self.array.first().status());
        self.scrubbed.fill_in(&mut view.scrub);
        view
    }

    /// The array, with how requests of its members and volumes were done.
    pub async fn view_worked(&self) -> ArrayView {
        let status = self.array.status_worked().await;
        let mut view = status.unwrap_or_else(|_| self.array.first().status());
        self.scrubbed.fill_in(&mut view.scrub);
        view
    }

    /// The same array, which remembers what its scrubs find.
    #[must_use]
    pub fn remembering(self, world: &World) -> Opened {
        let scrubbed = LastScrub::read(world.registry.dir(), self.array.first().uuid());
        Opened { scrubbed: Rc::new(scrubbed), ..self }
    }

    /// Writes down what a scrub found, if that is new.
    pub fn keep_scrub(&self, view: &ArrayView) {
        if !self.read_only && !self.volatile {
            self.scrubbed.keep(&view.scrub);
        }
    }

    /// Its state: of several parts the worst, as it was when that was last asked for.
    #[must_use]
    pub fn state(&self) -> ArrayState {
        let first = self.array.first().state();
        self.seen.get().map_or(first, |seen| worse(seen, first))
    }

    /// Asks all parts for their state, and tells them of drives that have gone out in one of them since the last time.
    ///
    /// # Errors
    /// When the core of a part has ended.
    pub async fn look_after(&self, before: &mut Roster) -> Result<(), Problem> {
        self.array.share_losses(before).await?;
        self.seen.set(Some(self.array.state().await.map_err(|f| problem::fault("the array", f))?));
        Ok(())
    }

    /// Lets go of drives that have left the array, or failed, when no part has asked them for anything since the last look: then
    /// they can be wiped, or used for something else.
    ///
    /// # Errors
    /// When the core of a part has ended.
    pub async fn let_go_of_former(&self) -> Result<(), Problem> {
        let used = self.array.let_go_of_former().await.map_err(|f| problem::fault("the array", f))?;
        let unused = |d: &Drive| !used.contains(&d.info().name);
        let now: Vec<String> =
            self.drives().iter().chain(&self.former()).filter(|d| unused(d)).map(|d| d.info().name.clone()).collect();
        let before = self.unused.replace(now);
        let goes = |d: &Drive| unused(d) && before.contains(&d.info().name);
        for drives in [&self.drives, &self.former] {
            let gone: Vec<Drive> = drives.borrow_mut().extract_if(.., |d| goes(d)).collect();
            for drive in gone {
                self.array.end_reservation(&drive).await;
                tracing::info!(
                    "drive {} is released: {} does not use it",
                    drive.info().name,
                    self.array.first().name()
                );
                self.let_go.borrow_mut().retain(|info| info.name != drive.info().name);
                self.let_go.borrow_mut().push(drive.info().clone());
            }
        }
        Ok(())
    }

    /// Looks whether drives that were missing are here again, and takes them back: each three times in ten minutes at most.
    ///
    /// # Errors
    /// When the core of a part has ended.
    pub async fn bring_back(&self, world: &World) -> Result<(), Problem> {
        let gone_core = |f| problem::fault("the array", f);
        if self.read_only || !self.array.lacks_drives().await.map_err(gone_core)? {
            return Ok(());
        }
        let gone = self.array.let_go_of_missing().await.map_err(gone_core)?;
        self.drives.borrow_mut().retain(|d| !gone.contains(&d.info().name));
        let first = self.array.first();
        let known = world.registry.find(&first.uuid().to_string()).map(|known| known.drives).unwrap_or_default();
        let here: Vec<String> = self.drives().iter().map(|d| d.info().stable_name.clone()).collect();
        for name in known.iter().filter(|name| !here.contains(name)) {
            if !self.returns.may(name, world.rt.now()) {
                continue;
            }
            let how = OpenDrive { read_only: false, lock: true };
            let Ok(drive) = Drive::open(&world.rt, name.as_ref(), how).await else { continue };
            match self.array.drive_back(&drive).await {
                Ok(true) => {
                    self.returns.count(name, world.rt.now());
                    tracing::warn!("drive {name} of {} is back and takes its seat", first.name());
                    self.take_in(drive, None);
                }
                Ok(false) => {}
                Err(refused) => {
                    self.returns.count(name, world.rt.now());
                    tracing::warn!("drive {name} of {} is back, but stays out: {refused}", first.name());
                }
            }
        }
        Ok(())
    }

    /// What opening it took, part by part.
    pub async fn recovery(&self) -> RecoveryView {
        self.array.recovery().await.unwrap_or_else(|_| self.array.first().recovery())
    }

    /// A handle on one of its volumes for an export: it lets go of the array when that is closed, also while a
    /// client stays connected.
    #[must_use]
    pub fn lease(&self, volume: &str) -> Option<Lease<ArrayVolume>> {
        Some(self.leases.lease(ArrayVolume::of(self.array.first().volume(volume)?, &self.others)?))
    }

    /// The same for all its volumes, with their numbers.
    #[must_use]
    pub fn lease_all(&self) -> BTreeMap<VolumeId, Lease<ArrayVolume>> {
        let handle = |volume: Volume| Some((volume.id(), ArrayVolume::of(volume, &self.others)?));
        self.leases.lease_all(self.array.first().live_volumes().into_iter().filter_map(handle))
    }

    /// Which open of this process it is.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// What moves when `lease_all` would lease others, or they would tell something else of themselves; of no other open array.
    #[must_use]
    pub fn volume_changes(&self) -> (u64, u64) {
        // The other parts have a volume before the first does, and on the same drives.
        let (changes, no_volatile_cache) = self.array.first().volume_changes();
        (self.number, changes << 1 | u64::from(no_volatile_cache))
    }

    /// Closes it cleanly and releases its drives.
    ///
    /// # Errors
    /// When the last checkpoint cannot be written; nothing is lost, the next open recovers.
    pub async fn close(self, world: &World) -> Result<(), Problem> {
        let (closed, drives) = self.end(world).await;
        let names: Vec<_> = drives.iter().map(|d| d.info().stable_name.clone()).collect();
        drop(drives);
        released(world, &names).await;
        closed
    }

    /// Closes it and hands out its drives, which stay locked.
    pub async fn end(self, world: &World) -> (Result<(), Problem>, Vec<Drive>) {
        let view = self.view().await;
        self.keep_scrub(&view);
        let name = self.array.first().name();
        let what = format!("closing array {name}");
        parts::forget(&world.cores, &self.array);
        let close = pin!(self.array.close());
        let closed = match select(close, pin!(world.rt.sleep(CLOSE_MAX))).await {
            Either::Left((closed, _)) => closed.map_err(|f| problem::fault(what, f)),
            Either::Right(((), _)) => Err(Problem::failed(
                what,
                format!("its last checkpoint did not end within {} s", CLOSE_MAX.as_secs()),
                "nothing acknowledged is lost: the next start recovers; the drives are released when the server ends",
            )),
        };
        self.leases.end();
        self.answering.end();
        (closed, self.drives.take())
    }
}

/// When drives came back lately.
#[derive(Default)]
struct Returns(RefCell<Vec<(String, rt::Nanos)>>);

/// A drive that comes and goes is not taken back more often, within so long.
const RETURNS_MAX: usize = 3;
const RETURNS_WITHIN: Duration = Duration::from_secs(600);

impl Returns {
    fn may(&self, name: &str, now: rt::Nanos) -> bool {
        let mut all = self.0.borrow_mut();
        all.retain(|(_, at)| now - *at < RETURNS_WITHIN);
        all.iter().filter(|(n, _)| n == name).count() < RETURNS_MAX
    }

    fn count(&self, name: &str, now: rt::Nanos) {
        self.0.borrow_mut().push((name.to_owned(), now));
    }
}

/// A last checkpoint writes what the memtable holds: 10 s of replay at most, by design, and drives may be slow.
const CLOSE_MAX: Duration = Duration::from_secs(60);

/// Whether this drive is the one that `member` was last seen on.
#[must_use]
pub fn is_drive_of(info: &DriveInfo, member: &MemberView) -> bool {
    info.name == member.drive
        || info.stable_name == member.drive_name
        || info.serial.as_ref().is_some_and(|serial| *serial == member.drive_name)
}

/// Waits until the array's tasks have ended and let go of the drives, so that the next one can lock them.
async fn released(world: &World, drives: &[String]) {
    for name in drives {
        let how = OpenDrive { read_only: true, lock: true };
        let open = open_patiently(world, name, how, Patience::Short).await;
        if matches!(open, Err(OpenError::Locked(_))) {
            tracing::warn!("drive {name}: still locked");
        }
    }
}

/// A refusal with the array's name in it.
#[must_use]
pub fn named(array: &Whole, refused: array::Refused) -> Problem {
    let mut problem = Problem::from(refused);
    if problem.what == "the array" {
        problem.what = format!("array {}", array.first().name());
    }
    problem
}

/// Drives of one array that are here.
pub struct Members {
    /// Open and checked.
    pub drives: Vec<Drive>,
    /// About those that are not.
    pub notes: Vec<String>,
}

/// Opens the drives of `known`. One that is not there or carries another array is left out and noted.
///
/// # Errors
/// When a drive is held by somebody else, or none is here.
pub async fn members(world: &World, known: &Known, read_only: bool, patience: Patience) -> Result<Members, Problem> {
    let mut found = Members { drives: vec![], notes: vec![] };
    for name in &known.drives {
        match open_patiently(world, name, OpenDrive { read_only, lock: true }, patience).await {
            Err(e @ (OpenError::Locked(_) | OpenError::Permission(_) | OpenError::ReadOnly(_))) => {
                return Err(of_array(&known.name, open_problem(name.as_ref(), &e)));
            }
            Err(e) => {
                let problem = open_problem(name.as_ref(), &e);
                found.notes.push(format!("{}: {}", problem.what, problem.why));
            }
            Ok(drive) => match array::identify(&drive).await {
                Ok(Some(identity)) if identity.array.0 == known.uuid => found.drives.push(drive),
                Ok(Some(other)) => {
                    found.notes.push(format!("drive {name}: it belongs to array {} now", other.array_name));
                }
                Ok(None) if array::has_slice_of(&drive, ArrayUuid(known.uuid)).await => found.drives.push(drive),
                Ok(None) => found.notes.push(match array::made_of(&drive).await {
                    Some(what) => format!("drive {name}: it holds something else now ({what})"),
                    None => format!("drive {name}: its Ashlar label is gone (overwritten or wiped)"),
                }),
                Err(e) => found.notes.push(format!("drive {name}: cannot be read ({e})")),
            },
        }
    }
    let (drives, copies) = without_copies(&world.rt, found.drives).await?;
    found.drives = drives;
    found.notes.extend(copies);
    if found.drives.is_empty() {
        return Err(Problem::refused(
            "array_gone",
            format!("array {}", known.name),
            format!("none of its {} drives is here", known.drives.len()),
            format!(
                "`ashlar import DIR|DRIVES...` finds drives that moved; if they are gone for good: `ashlar forget {}`",
                known.name
            ),
        ));
    }
    Ok(found)
}

/// Opens a known array.
///
/// # Errors
/// When its drives are held, or do not suffice.
pub async fn known(world: &World, known: &Known, how: How) -> Result<Opened, Problem> {
    let Members { drives, notes } = members(world, known, how.read_only, how.patience).await?;
    open(world, drives, how, notes).await.map_err(|p| of_array(&known.name, p))
}

/// Opens the array called `name`.
///
/// # Errors
/// When it is not known, or cannot be opened.
pub async fn by_name(world: &World, name: &str, how: How) -> Result<Opened, Problem> {
    known(world, &world.registry.find(name)?, how).await
}

/// Opens the array that `drives` make.
///
/// # Errors
/// When they do not suffice.
pub async fn open(world: &World, drives: Vec<Drive>, how: How, notes: Vec<String>) -> Result<Opened, Problem> {
    let open_how = OpenHow {
        read_only: how.read_only,
        degraded: how.degraded,
        force_diverged: how.force_diverged,
        accept_loss: how.accept_loss,
        previous: how.previous,
        owner: OwnerHow { take_over: how.take_over, reserve: world.reserve, carried: None },
        ..OpenHow::default()
    };
    let mut notes = notes;
    if how.read_only
        && let Some(user) = owner::in_use(&world.rt, &drives).await
    {
        notes
            .push(format!("another server has the array ({}): what is read here may be a change in progress", user.by));
    }
    let parts = open_by(&world.rt, drives.clone(), open_how, |job, slices| place(world, job, slices)).await?;
    let opened = Opened::of(world, parts, drives).await?;
    let notes = [notes, opened.notes.clone()].concat();
    notes.iter().for_each(|note| opened.array.first().note(EventCode::ArrayOpened, note));
    Ok(Opened { read_only: how.read_only, notes, ..opened.remembering(world) })
}

/// Brings the registry up to date with an array's drives: adds `more`, takes `gone` away, and keeps those that are
/// missing just now, so that they are found when they return.
///
/// # Errors
/// When it cannot be written.
pub fn remember(world: &World, name: &str, uuid: Uuid, more: &[Drive], gone: Option<&str>) -> Result<(), Problem> {
    let mut names: Vec<String> = world.registry.find(&uuid.to_string()).map(|known| known.drives).unwrap_or_default();
    names.retain(|n| Some(n.as_str()) != gone);
    // What memory holds is not there after a restart.
    for drive in more.iter().filter(|d| d.info().kind != DriveKind::Memory) {
        let stable = &drive.info().stable_name;
        if !names.contains(stable) {
            names.push(stable.clone());
        }
    }
    if names.is_empty() {
        return Ok(());
    }
    world.registry.remember(Known { name: name.to_owned(), uuid, drives: names })
}

fn of_array(name: &str, mut problem: Problem) -> Problem {
    if !problem.what.contains(name) {
        problem.what = format!("array {name}: {}", problem.what);
    }
    problem
}
