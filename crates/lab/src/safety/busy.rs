//! Who uses a block device: mounts, swap, and what is stacked on it, over its partitions and its disk.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{major, makedev, minor};

use crate::target::sys_dir;

/// Who uses `rdev`, in words; nobody when nothing is found.
///
/// # Errors
/// When the kernel's tables cannot be read: then nobody can say.
pub fn user_of(rdev: u64) -> io::Result<Option<String>> {
    let dir = sys_dir(rdev);
    // The device and its partitions; of a partition only itself.
    let mut family = vec![dir.clone()];
    for entry in fs::read_dir(&dir)?.flatten() {
        if entry.path().join("partition").exists() {
            family.push(entry.path());
        }
    }
    for member in &family {
        if let Some(holder) = fs::read_dir(member.join("holders")).ok().and_then(|mut d| d.next()).and_then(Result::ok)
        {
            return Ok(Some(format!("held by {}", holder.file_name().to_string_lossy())));
        }
    }
    let used = used()?;
    for member in &family {
        if let Some(own) = number(member)
            && let Some((_, by)) = used.iter().find(|(used, _)| *used == own)
        {
            return Ok(Some(by.clone()));
        }
    }
    Ok(None)
}

/// Every device below something that is mounted or swapped to, and what that is.
fn used() -> io::Result<Vec<(u64, String)>> {
    let mut used = vec![];
    for line in fs::read_to_string("/proc/self/mountinfo")?.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let Some(place) = words.get(4) else { continue };
        let by = format!("mounted at {place}");
        if let Some(dev) = words.get(2).and_then(|w| parse(w)) {
            used.push((dev, by.clone()));
        }
        // Some file systems (btrfs) have a number of their own: their source is a path.
        let source = words.iter().position(|w| *w == "-").and_then(|at| words.get(at + 2));
        used.extend(source.and_then(|s| rdev_of(Path::new(s))).map(|dev| (dev, by)));
    }
    for line in fs::read_to_string("/proc/swaps").unwrap_or_default().lines().skip(1) {
        let path = line.split_whitespace().next().unwrap_or_default();
        used.extend(rdev_of(Path::new(path)).map(|dev| (dev, "swap".to_owned())));
    }
    let mut all = vec![];
    for (dev, by) in used {
        below(dev, &mut BTreeSet::new(), &mut |d| all.push((d, by.clone())));
    }
    Ok(all)
}

/// `dev`, what it is stacked on, and the disk that it is a partition of.
fn below(dev: u64, seen: &mut BTreeSet<u64>, found: &mut impl FnMut(u64)) {
    if !seen.insert(dev) {
        return;
    }
    found(dev);
    let dir = sys_dir(dev);
    if dir.join("partition").exists()
        && let Some(disk) = dir.parent().and_then(number)
    {
        below(disk, seen, found);
    }
    for slave in fs::read_dir(dir.join("slaves")).into_iter().flatten().flatten() {
        if let Some(dev) = number(&slave.path()) {
            below(dev, seen, found);
        }
    }
}

/// The loop device that uses a file.
pub fn loop_device_of(path: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    for entry in fs::read_dir("/sys/block").ok()?.flatten() {
        let backing = fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default();
        if path == Path::new(backing.trim_end_matches('\n')) {
            return Some(format!("it is behind /dev/{}", entry.file_name().to_string_lossy()));
        }
    }
    None
}

fn number(sys: &Path) -> Option<u64> {
    parse(fs::read_to_string(sys.join("dev")).ok()?.trim())
}

fn parse(text: &str) -> Option<u64> {
    let (major, minor) = text.split_once(':')?;
    let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
    (major > 0).then(|| makedev(major, minor))
}

fn rdev_of(path: &Path) -> Option<u64> {
    let meta = path.starts_with("/").then(|| fs::metadata(path).ok()).flatten()?;
    let rdev = meta.rdev();
    (major(rdev) > 0 || minor(rdev) > 0).then_some(rdev)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read() {
        assert_eq!(parse("8:1"), Some(makedev(8, 1)));
        assert_eq!(parse("0:25"), None, "no block device");
        assert_eq!(parse("8"), None);
    }
}
