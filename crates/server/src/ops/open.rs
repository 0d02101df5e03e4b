//! Opening a known array: its drives by name, each checked to be what the registry says.

use std::cell::RefCell;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::time::Duration;

use array::{Array, OpenHow, Volume};
use base::VolumeId;
use futures::future::{Either, select};
use rt::{Drive, DriveKind, OpenDrive, OpenError};
use uuid::Uuid;

use super::World;
use crate::Problem;
use crate::drives::source::open_problem;
use crate::registry::Known;
use crate::view::{ArrayView, MemberView};

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

async fn open_patiently(world: &World, name: &str, how: OpenDrive, patience: Patience) -> Result<Drive, OpenError> {
    let mut tries = patience.tries();
    loop {
        match Drive::open(&world.rt, name.as_ref(), how).await {
            Err(OpenError::Locked(_)) if tries > 0 => {
                tries -= 1;
                world.rt.sleep(Patience::PAUSE).await;
            }
            result => return result,
        }
    }
}

/// An open array and its drives. Clones share them.
#[derive(Clone)]
pub struct Opened {
    /// The array.
    pub array: Array,
    /// Its drives; the locks are theirs.
    drives: Rc<RefCell<Vec<Drive>>>,
    lent: Rc<RefCell<Vec<Weak<Slot>>>>,
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
    pub fn new(array: Array, drives: Vec<Drive>) -> Opened {
        let drives = Rc::new(RefCell::new(drives));
        Opened { array, drives, lent: Rc::default(), read_only: false, volatile: false, notes: vec![] }
    }

    /// Its drives.
    #[must_use]
    pub fn drives(&self) -> Vec<Drive> {
        self.drives.borrow().clone()
    }

    /// Takes `drive` in, and lets go of the drive that was `instead_of`; returns that one's stable name.
    pub fn take_in(&self, drive: Drive, instead_of: Option<&MemberView>) -> Option<String> {
        let mut drives = self.drives.borrow_mut();
        let is_old = |d: &Drive| instead_of.is_some_and(|m| is_drive_of(d, m) && d.info().name != drive.info().name);
        let old = drives.iter().find(|d| is_old(d)).map(|d| d.info().stable_name.clone());
        drives.retain(|d| !is_old(d));
        if drives.iter().all(|d| d.info().name != drive.info().name) {
            drives.push(drive);
        }
        old
    }

    /// Lets go of a member's drive; returns its stable name.
    pub fn let_go(&self, member: &MemberView) -> Option<String> {
        let mut drives = self.drives.borrow_mut();
        let name = drives.iter().find(|d| is_drive_of(d, member)).map(|d| d.info().stable_name.clone());
        drives.retain(|d| !is_drive_of(d, member));
        name
    }

    /// The array as scripts see it.
    #[must_use]
    pub fn view(&self) -> ArrayView {
        self.array.status().into()
    }

    /// A handle on one of its volumes for an export: it lets go of the array when that is closed, also while a
    /// client stays connected.
    #[must_use]
    pub fn lend(&self, volume: &str) -> Option<Lent> {
        let lent = Rc::new(RefCell::new(Some(self.array.volume(volume)?)));
        let mut all = self.lent.borrow_mut();
        all.retain(|l| l.strong_count() > 0);
        all.push(Rc::downgrade(&lent));
        Some(Lent(lent))
    }

    /// The same for all its volumes, with their numbers.
    #[must_use]
    pub fn lend_all(&self) -> Vec<(VolumeId, Lent)> {
        let mut all = self.lent.borrow_mut();
        all.retain(|l| l.strong_count() > 0);
        let lend = |volume: Volume| {
            let id = volume.id();
            let lent = Rc::new(RefCell::new(Some(volume)));
            all.push(Rc::downgrade(&lent));
            (id, Lent(lent))
        };
        self.array.live_volumes().into_iter().map(lend).collect()
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
        let name = self.array.name();
        let what = format!("closing array {name}");
        let close = pin!(self.array.close());
        let closed = match select(close, pin!(world.rt.sleep(CLOSE_MAX))).await {
            Either::Left((closed, _)) => closed.map_err(|f| Problem::fault(what, f)),
            Either::Right(((), _)) => Err(Problem::failed(
                what,
                format!("its last checkpoint does not end within {} s", CLOSE_MAX.as_secs()),
                "nothing acknowledged is lost: the next start recovers; the server's end frees the drives",
            )),
        };
        for lent in self.lent.take().iter().filter_map(Weak::upgrade) {
            lent.take();
        }
        (closed, self.drives.take())
    }
}

/// A last checkpoint writes what the memtable holds: 10 s of replay at most, by design, and drives may be slow.
const CLOSE_MAX: Duration = Duration::from_secs(60);

/// Empty once the array is closed.
type Slot = RefCell<Option<Volume>>;

/// Whether `drive` is the one that `member` was last seen on.
#[must_use]
pub fn is_drive_of(drive: &Drive, member: &MemberView) -> bool {
    let info = drive.info();
    info.name == member.drive
        || info.stable_name == member.drive_name
        || info.serial.as_ref().is_some_and(|serial| *serial == member.drive_name)
}

/// A volume on loan to an export.
#[derive(Clone)]
pub struct Lent(Rc<Slot>);

impl Lent {
    /// The volume, as long as its array is open.
    #[must_use]
    pub fn volume(&self) -> Option<Volume> {
        self.0.borrow().clone()
    }
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
pub fn named(array: &Array, refused: array::Refused) -> Problem {
    let mut problem = Problem::from(refused);
    if problem.what == "the array" {
        problem.what = format!("array {}", array.name());
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
            Err(e @ (OpenError::Locked(_) | OpenError::Permission(_))) => {
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
                Ok(None) => found.notes.push(format!("drive {name}: it carries no label of ours any more")),
                Err(e) => found.notes.push(format!("drive {name}: cannot be read ({e})")),
            },
        }
    }
    if found.drives.is_empty() {
        return Err(Problem::refused(
            "array_gone",
            format!("array {}", known.name),
            format!("none of its {} drives is here", known.drives.len()),
            "`ashlar import [DIR|DRIVES...]` finds drives that moved",
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
        ..OpenHow::default()
    };
    let array = Array::open(&world.rt, drives.clone(), open_how).await?;
    Ok(Opened { read_only: how.read_only, notes, ..Opened::new(array, drives) })
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
