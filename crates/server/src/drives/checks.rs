//! What must hold before a drive is written for the first time. A drive that fails is refused with its name, the
//! reason and the way out.
//!
//! | it is | without `--force` | with |
//! |---|---|---|
//! | mounted, swap, or under a mounted device | refused | refused |
//! | locked by a running Ashlar | refused | refused |
//! | too small | refused | refused |
//! | a member of an array that is being served, unless that has given it up | refused | refused |
//! | in use in an array that this machine knows | refused | refused, unless the array is named (`take_from`) |
//! | a member of another array that nobody serves, or given up by its array | refused | taken |
//! | carrying a file system, partitions, LVM, ... | refused, but for direct drives | taken |
//!
//! Invariant: the lock is taken before the drive's contents are looked at, and kept by the [`Drive`] that comes out:
//! what was checked is what gets written.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use api::Problem;
use base::BlockCount;
use ondisk::Layout;
use rt::{Drive, DriveKind, OpenDrive, OpenError, Rt, probe};
use uuid::Uuid;

use crate::drives::Source;
use crate::drives::holds::{Look, signature};
use crate::registry::Registry;
use crate::size::human;

/// What the drive is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A seat in a new array.
    Create,
    /// A seat or a spare in this array, which is open here.
    Join(Uuid),
    /// The removal of our labels.
    Wipe,
    /// Hosts of a direct drive, who may keep on it what they like.
    Direct,
}

/// The rules of one request.
pub struct Checks<'a> {
    /// The world.
    pub rt: &'a Rt,
    /// Tells which drives belong to an array that somebody may be serving.
    pub registry: &'a Registry,
    /// What for.
    pub purpose: Purpose,
    /// Whether the user takes the blame for what may be overridden.
    pub force: bool,
    /// Known arrays of which members may be taken, by name or identity.
    pub take_from: &'a [String],
}

impl Checks<'_> {
    /// Opens all of `sources`, or says everything that is wrong with any of them.
    ///
    /// # Errors
    /// All problems of all drives as one.
    pub async fn open_all(&self, sources: &[Source]) -> Result<Vec<Drive>, Problem> {
        let mut drives = Vec::with_capacity(sources.len());
        let mut problems = vec![];
        let mine: Vec<_> = sources.iter().filter_map(Source::path).map(real).collect();
        let mut seen = BTreeSet::new();
        let mut files: Vec<((u64, u64), String)> = vec![];
        for (nth, source) in sources.iter().enumerate() {
            if let Some(path) = source.path()
                && !seen.insert(real(path))
            {
                problems.push(twice(source));
                continue;
            }
            // Opened twice it would be in the way of itself: the lock is the file's.
            if let Some(file) = source.path().and_then(file_of) {
                match files.iter().find(|(same, _)| *same == file) {
                    Some((_, first)) => {
                        problems.push(same_file(source, first));
                        continue;
                    }
                    None => files.push((file, source.name())),
                }
            }
            match self.open_one(source, nth, &mine).await {
                Ok(drive) => match drives.iter().find(|d: &&Drive| d.is_same_as(&drive)) {
                    None => drives.push(drive),
                    Some(same) => problems.push(same_drive(&drive, same)),
                },
                Err(problem) => problems.push(problem),
            }
        }
        Problem::all(problems).map_or(Ok(drives), Err)
    }

    /// Opens `source` for writing, if everything allows it.
    ///
    /// # Errors
    /// The first reason against it.
    pub async fn open(&self, source: &Source) -> Result<Drive, Problem> {
        let mine: Vec<_> = source.path().map(real).into_iter().collect();
        self.open_one(source, 0, &mine).await
    }

    /// A drive cannot be opened: what else helps, for this purpose.
    fn advised(&self, mut problem: Problem) -> Problem {
        match (self.purpose, problem.code.as_str()) {
            (Purpose::Create, "drive_too_small") => {
                let least = human(BlockCount(smallest_drive_blocks()).bytes());
                problem.why += &format!("; a drive needs at least {least}");
            }
            (Purpose::Create | Purpose::Join(_), "drive_not_found") => problem.todo += "; --size 4G creates a file",
            (Purpose::Wipe, "drive_locked") => {
                problem.todo += "; a drive that has just left an array is released within 10 s; one that is out is put \
                                 back as a new one, without wiping it, by `ashlar drive replace ARRAY SEAT DRIVE --force`";
            }
            (Purpose::Create | Purpose::Join(_) | Purpose::Wipe | Purpose::Direct, _) => {}
        }
        problem
    }

    /// `mine` are the paths of the whole request: locks on these may be our own.
    async fn open_one(&self, source: &Source, nth: usize, mine: &[PathBuf]) -> Result<Drive, Problem> {
        if let Some(path) = source.path() {
            let path = path.to_owned();
            self.rt.apart(move || not_mounted(&path)).await?;
        }
        let opened = source.open(self.rt, nth, OpenDrive { read_only: false, lock: true }).await;
        let drive = opened.map_err(|problem| self.advised(problem))?;
        if drive.info().kind == DriveKind::Memory {
            return Ok(drive);
        }
        self.size_suffices(&drive)?;
        self.belongs_to_nobody(&drive, mine).await?;
        Ok(drive)
    }

    fn size_suffices(&self, drive: &Drive) -> Result<(), Problem> {
        if self.purpose != Purpose::Create || drive.info().blocks.0 >= smallest_drive_blocks() {
            return Ok(());
        }
        Err(Problem::refused(
            "drive_too_small",
            format!("drive {}", drive.info().name),
            format!(
                "it has {}; a drive needs at least {}",
                human(drive.info().blocks.bytes()),
                human(BlockCount(smallest_drive_blocks()).bytes())
            ),
            "give a larger drive",
        ))
    }

    async fn belongs_to_nobody(&self, drive: &Drive, mine: &[PathBuf]) -> Result<(), Problem> {
        let name = &drive.info().name;
        let identity = array::identify(drive).await.map_err(|e| unreadable(name, e))?;
        if let Some(identity) = identity {
            let array = identity.array.0;
            let joins_own = self.purpose == Purpose::Join(array);
            let sources: Vec<Source> = mine.iter().cloned().map(Source::Path).collect();
            let look = Look { rt: self.rt, registry: self.registry, beside: &sources };
            let held = look.of(drive).await.map_err(|e| unreadable(name, e))?.unwrap_or_default();
            // One that its array has given up, and that its server has let go of, is nobody's.
            if !joins_own && !held.given_up && self.is_served(array, mine).await {
                return Err(Problem::refused(
                    "array_held",
                    format!("drive {name}"),
                    format!("it belongs to array {} ({array}), which is being served", identity.array_name),
                    "stop that Ashlar first; --force does not override this",
                ));
            }
            let is_named = self.take_from.iter().any(|n| Some(n) == held.array.as_ref() || *n == array.to_string());
            if is_named {
                return Ok(());
            }
            if held.known && !held.given_up && !joins_own {
                let of = held.array.unwrap_or_default();
                return Err(Problem::refused(
                    "drive_in_known_array",
                    format!("drive {name}"),
                    format!("it {}", held.what),
                    format!("`ashlar destroy {of}` frees all its drives; --take-from {of} takes this one from it"),
                ));
            }
            if self.force || self.purpose == Purpose::Wipe {
                return Ok(());
            }
            let why = if joins_own {
                format!("it belongs to this array (seat {})", identity.number())
            } else {
                format!("it {}", held.what)
            };
            return Err(Problem::refused(
                "drive_in_array",
                format!("drive {name}"),
                why,
                format!("if its data is not needed: `ashlar wipe {name}`, or --force"),
            ));
        }
        if self.force || self.purpose == Purpose::Direct {
            return Ok(());
        }
        match signature(drive).await.map_err(|e| unreadable(name, e))? {
            None => Ok(()),
            Some(kind) => Err(Problem::refused(
                "drive_has_data",
                format!("drive {name}"),
                format!("it holds data ({kind})"),
                "if its data is not needed, give --force; everything on the drive will be lost",
            )),
        }
    }

    /// Whether some drive of a known array is locked by somebody: then it is being served, without this drive.
    async fn is_served(&self, array: Uuid, mine: &[PathBuf]) -> bool {
        let Ok(known) = self.registry.find(&array.to_string()) else { return false };
        for name in known.drives.iter().filter(|name| !mine.contains(&real(name.as_ref()))) {
            let open = Drive::open(self.rt, name.as_ref(), OpenDrive { read_only: true, lock: true }).await;
            if matches!(open, Err(OpenError::Locked(_))) {
                return true;
            }
        }
        false
    }
}

fn not_mounted(path: &Path) -> Result<(), Problem> {
    let what = format!("drive {}", path.display());
    match probe::mounted_at(path) {
        Ok(None) => Ok(()),
        Ok(Some(place)) => Err(Problem::refused(
            "drive_mounted",
            what,
            format!("it is in use by the system ({place})"),
            "unmount it first, or choose another drive; --force does not override this",
        )),
        // Opening it says so better.
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(Problem::failed(what, format!("cannot tell whether it is mounted: {e}"), "mount /proc and /sys")),
    }
}

/// The path without links, as far as it exists.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// The smallest drive that holds [`ondisk::layout::ZONES_MIN`] of the smallest zones for users.
fn smallest_drive_blocks() -> u64 {
    let zones = u64::from(ondisk::layout::ZONES_MIN);
    let zone_blocks = u64::from(ondisk::layout::ZONE_BLOCKS_MIN_USER);
    let slots = 2 * u64::from(Layout::slot_blocks_for(ondisk::layout::ZONES_MIN));
    ondisk::layout::ALIGN_BLOCKS + slots + zones * zone_blocks + 1
}

fn unreadable(name: &str, e: rt::IoError) -> Problem {
    Problem::failed(format!("drive {name}"), format!("cannot be read: {e}"), "replace it, or leave it out")
}

/// Which file a path leads to, links or not: its file system and number.
fn file_of(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

fn same_file(source: &Source, first: &str) -> Problem {
    Problem::usage(
        format!("drive {}", source.name()),
        format!("it is the same file as {first}, by another name"),
        "name each drive once",
    )
}

fn same_drive(drive: &Drive, other: &Drive) -> Problem {
    Problem::usage(
        format!("drive {}", drive.info().name),
        format!("it is the same drive as {}, by another name", other.info().name),
        "name each drive once",
    )
}

fn twice(source: &Source) -> Problem {
    Problem::usage(format!("drive {}", source.name()), "it is named twice", "name each drive once")
}
