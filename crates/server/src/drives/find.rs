//! Which drives here carry our labels, and which array each belongs to.
//!
//! Nothing is locked and nothing is written: a drive that a running Ashlar holds is found too; opening its array
//! then says who holds it.
//!
//! Limits: the search looks at whole block devices and partitions below /sys/class/block, and at the files directly
//! in a directory that is named; it does not descend.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use api::Problem;
use rt::{Drive, OpenDrive, Rt};
use uuid::Uuid;

/// One drive with a label of ours.
#[derive(Clone, Debug)]
pub struct FoundDrive {
    /// A name that survives a restart.
    pub stable_name: String,
    /// Its seat.
    pub seat: u16,
    /// Its identity in the array. Copies of a drive have the same.
    pub member: Uuid,
    /// What it is to the kernel.
    pub place: Option<rt::Place>,
}

/// The drives of one array.
#[derive(Clone, Debug)]
pub struct FoundArray {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uuid: Uuid,
    /// By seat.
    pub drives: Vec<FoundDrive>,
}

/// What a search found.
#[derive(Default)]
pub struct Found {
    /// By name.
    pub arrays: Vec<FoundArray>,
    /// Drives that were named one by one and cannot be used.
    pub problems: Vec<Problem>,
    /// Places looked at.
    pub looked_at: usize,
}

/// Looks at `places` (directories and drives), or at all block devices and the drives `known` when there are none.
///
/// # Errors
/// When a place cannot be listed.
pub async fn search(rt: &Rt, places: &[PathBuf], known: &[PathBuf]) -> Result<Found, Problem> {
    let mut candidates = vec![];
    if places.is_empty() {
        candidates.extend(block_devices().map_err(|e| unlistable(Path::new("/sys/class/block"), &e))?);
    }
    if places.is_empty() {
        candidates.extend(known.iter().map(|path| Candidate { path: path.clone(), named: false }));
    }
    for place in places {
        if place == Path::new("/dev") {
            candidates.extend(block_devices().map_err(|e| unlistable(place, &e))?);
        } else if place.is_dir() {
            candidates.extend(files_in(place).map_err(|e| unlistable(place, &e))?);
        } else {
            candidates.push(Candidate { path: place.clone(), named: true });
        }
    }
    let mut found = Found { looked_at: candidates.len(), ..Found::default() };
    let mut arrays: BTreeMap<Uuid, FoundArray> = BTreeMap::new();
    for candidate in candidates {
        match look_at(rt, &candidate.path).await {
            Ok(Some((uuid, name, drive))) => {
                let array = arrays.entry(uuid).or_insert_with(|| FoundArray { name, uuid, drives: vec![] });
                // One drive by two names (links, a loop device on a file) counts once; which of two copies counts, the open says.
                if array.drives.iter().all(|d| d.place.is_none() || d.place != drive.place) {
                    array.drives.push(drive);
                }
            }
            Ok(None) if candidate.named => found.problems.push(foreign(&candidate.path)),
            Err(problem) if candidate.named => found.problems.push(problem),
            Ok(None) | Err(_) => {}
        }
    }
    for array in arrays.values_mut() {
        array.drives.sort_by_key(|d| d.seat);
    }
    found.arrays = arrays.into_values().collect();
    found.arrays.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

struct Candidate {
    path: PathBuf,
    /// By the user, not by the search: what is wrong with it is worth saying.
    named: bool,
}

async fn look_at(rt: &Rt, path: &Path) -> Result<Option<(Uuid, String, FoundDrive)>, Problem> {
    let drive = Drive::open(rt, path, OpenDrive { read_only: true, lock: false })
        .await
        .map_err(|e| super::source::open_problem(path, &e))?;
    let identity = array::identify(&drive)
        .await
        .map_err(|e| Problem::failed(format!("drive {}", path.display()), e, "replace it, or leave it out"))?;
    Ok(identity.map(|i| {
        let info = drive.info();
        let (stable_name, place) = (info.stable_name.clone(), info.place);
        let drive = FoundDrive { stable_name, seat: i.number(), member: i.member.0, place };
        (i.array.0, i.array_name, drive)
    }))
}

/// Block devices that nothing sits on: a path of a multipath device or a part of an md array is not looked at.
fn block_devices() -> io::Result<Vec<Candidate>> {
    let mut found = vec![];
    for entry in fs::read_dir("/sys/class/block")? {
        let entry = entry?;
        let holders = fs::read_dir(entry.path().join("holders")).map_or(0, Iterator::count);
        let sectors = fs::read_to_string(entry.path().join("size")).unwrap_or_default();
        let name = entry.file_name();
        let optical = name.to_string_lossy().starts_with("sr");
        if holders == 0 && !optical && sectors.trim().parse().is_ok_and(|n: u64| n > 0) {
            found.push(Candidate { path: Path::new("/dev").join(name), named: false });
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

fn files_in(dir: &Path) -> io::Result<Vec<Candidate>> {
    let mut found = vec![];
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        // Through links: /dev/disk/by-id is full of them.
        let Ok(meta) = fs::metadata(&path) else { continue };
        if meta.is_file() || meta.file_type().is_block_device() {
            found.push(Candidate { path, named: false });
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

fn foreign(path: &Path) -> Problem {
    Problem::refused(
        "drive_without_label",
        format!("drive {}", path.display()),
        "it carries no label of an Ashlar array",
        "`ashlar inspect` shows what it holds; `ashlar create` makes a new array of empty drives",
    )
}

fn unlistable(place: &Path, e: &io::Error) -> Problem {
    Problem::failed(place.display().to_string(), format!("cannot be listed: {e}"), "name the drives one by one")
}
