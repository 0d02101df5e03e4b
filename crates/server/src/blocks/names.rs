//! Names of a volume's block device that do not depend on its number: /dev/ashlar/ARRAY/VOLUME and
//! /dev/disk/by-id/ashlar-ARRAY-VOLUME.
//!
//! Invariant: a name that is not a symbolic link to a device of ublk is somebody else's, and stays.
//!
//! Not here: names by udev. A rule sees the kernel's device, not the volume.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The names of a volume's device below `dev`.
pub fn of(dev: &Path, array: &str, volume: &str) -> [PathBuf; 2] {
    [dev.join("ashlar").join(array).join(volume), dev.join("disk/by-id").join(format!("ashlar-{array}-{volume}"))]
}

/// The kernel's device of this number.
pub fn device(dev: &Path, number: u32) -> PathBuf {
    dev.join(format!("ublkb{number}"))
}

/// Makes the names lead to the device, and no others; those that could not be made, and why.
pub fn make(dev: &Path, names: &[PathBuf], device: &Path) -> Vec<String> {
    take_away(dev, device, names);
    let made = names.iter().map(|name| (name, make_one(name, device)));
    made.filter_map(|(name, made)| Some(format!("{} is not there: {}", name.display(), made.err()?))).collect()
}

fn make_one(name: &Path, device: &Path) -> io::Result<()> {
    const TAKEN: &str = "something else has this name";
    match fs::read_link(name) {
        Ok(now) if now == device => return Ok(()),
        // ARRAY-VOLUME may be another volume of another array.
        Ok(now) if !is_ours(&now) || now.exists() => return Err(io::Error::other(TAKEN)),
        Err(_) if fs::symlink_metadata(name).is_ok() => return Err(io::Error::other(TAKEN)),
        Ok(_) | Err(_) => {}
    }
    let directory = name.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(directory)?;
    let new = directory.join(format!(".{}.new", name.file_name().unwrap_or_default().to_string_lossy()));
    let _old = fs::remove_file(&new);
    symlink(device, &new)?;
    fs::rename(&new, name)
}

/// Takes away all names below `dev` that lead to this device, but for some.
pub fn take_away(dev: &Path, device: &Path, but: &[PathBuf]) {
    let arrays = entries(&dev.join("ashlar"));
    let by_array = arrays.iter().flat_map(|array| entries(array));
    let by_id = entries(&dev.join("disk/by-id"))
        .into_iter()
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ashlar-")));
    for name in by_array.chain(by_id).filter(|name| !but.contains(name)) {
        if fs::read_link(&name).is_ok_and(|now| now == device)
            && let Err(e) = fs::remove_file(&name)
        {
            tracing::warn!("{}: cannot be removed: {e}", name.display());
        }
    }
    // An array's directory goes with its last volume.
    for array in arrays {
        let _kept = fs::remove_dir(array);
    }
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// Whether a link leads to a device of ublk.
fn is_ours(target: &Path) -> bool {
    target.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ublkb"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_device_and_leave_what_is_not_theirs() {
        let dev = tempfile::tempdir().unwrap();
        let at = dev.path();
        let (db, log) = (of(at, "fast", "db"), of(at, "fast", "log"));
        let (first, second) = (device(at, 3), device(at, 4));
        assert!(make(at, &db, &first).is_empty() && make(at, &db, &first).is_empty());
        assert_eq!(fs::read_link(&db[0]).unwrap(), first);
        // Its number is another's by now, and the name is old.
        assert!(make(at, &db, &second).is_empty());
        assert_eq!(fs::read_link(&db[1]).unwrap(), second);
        // The volume has another name, or the number another volume: no name leads to what it is not.
        assert!(make(at, &log, &second).is_empty());
        assert!(!db[0].is_symlink() && !db[1].is_symlink() && log[0].is_symlink());
        take_away(at, &second, &[]);
        assert!(!log[0].is_symlink() && !at.join("ashlar/fast").exists() && at.join("ashlar").exists());

        fs::write(&db[1], "a file").unwrap();
        let not_made = make(at, &db, &first);
        assert!(not_made.len() == 1 && not_made[0].contains("something else has this name"), "{not_made:?}");
        assert_eq!(fs::read_to_string(&db[1]).unwrap(), "a file");
        // a-b/c and a/b-c: the one that is there has the name.
        let (one, other) = (of(at, "a-b", "c"), of(at, "a", "b-c"));
        fs::write(&second, "").unwrap();
        assert!(make(at, &one, &second).is_empty());
        assert_eq!(make(at, &other, &first).len(), 1);
        assert_eq!(fs::read_link(&one[1]).unwrap(), second);
    }
}
