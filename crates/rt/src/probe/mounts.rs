//! Who uses a drive now: mounts, swap, the holders above it, for itself, its partitions and its loop devices.
//!
//! ```text
//!   drive -> partitions -> holders (md, dm, bcache) -> their partitions ...   each: mounted? swap? held?
//!   file  -> loop devices whose backing file it is -> as above
//! ```
//!
//! Invariant: a list that exists and cannot be read is an error, never a "free".
//!
//! Not here: users in other mount namespaces and file systems that sysfs does not show; opening with O_EXCL finds
//! those.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Block devices stacked on each other that are followed; a deeper stack is a loop in sysfs.
const DEPTH_MAX: usize = 16;

/// The mount point where this drive (or a partition, a holder, or a loop device of it) is mounted, "swap", or the
/// holder that has it ("held by md0"); None when nobody uses it.
///
/// # Errors
/// When the path, /proc or sysfs cannot be read.
pub fn mounted_at(path: &Path) -> io::Result<Option<String>> {
    let meta = fs::metadata(path)?;
    let mut stack = Stack::default();
    if meta.file_type().is_block_device() {
        stack.add(&sysfs_of(meta.rdev()), 0)?;
    } else {
        for directory in loops_of((meta.dev(), meta.ino()))? {
            stack.add(&directory, 0)?;
        }
    }
    if let Some(place) = mount_of(&stack.devices, &fs::read("/proc/self/mountinfo")?) {
        return Ok(Some(place));
    }
    if is_swap(&stack.devices, (meta.dev(), meta.ino()))? {
        return Ok(Some("swap".to_owned()));
    }
    if let Some(user) = btrfs_of(&stack.names)? {
        return Ok(Some(user));
    }
    Ok(stack.holder.map(|name| format!("held by {name}")))
}

/// A drive and everything built on it.
#[derive(Default)]
struct Stack {
    /// Device numbers.
    devices: BTreeSet<(u32, u32)>,
    /// Kernel names.
    names: BTreeSet<String>,
    /// One of the holders.
    holder: Option<String>,
}

impl Stack {
    fn add(&mut self, directory: &Path, depth: usize) -> io::Result<()> {
        if depth > DEPTH_MAX {
            return Err(io::Error::other(format!("{}: block devices stacked too deep", directory.display())));
        }
        let directory = fs::canonicalize(directory)?;
        let number = fs::read_to_string(directory.join("dev"))?;
        let number = parse_device(number.trim())
            .ok_or_else(|| io::Error::other(format!("{}: no device number", directory.display())))?;
        if !self.devices.insert(number) {
            return Ok(());
        }
        self.names.extend(directory.file_name().map(|n| n.to_string_lossy().into_owned()));
        for entry in fs::read_dir(&directory)? {
            let child = entry?.path();
            if child.join("partition").exists() {
                self.add(&child, depth + 1)?;
            }
        }
        let holders = directory.join("holders");
        if holders.exists() {
            for entry in fs::read_dir(holders)? {
                let entry = entry?;
                self.holder = Some(entry.file_name().to_string_lossy().into_owned());
                self.add(&entry.path(), depth + 1)?;
            }
        }
        Ok(())
    }
}

fn sysfs_of(device: u64) -> PathBuf {
    let (major, minor) = numbers(device);
    PathBuf::from(format!("/sys/dev/block/{major}:{minor}"))
}

fn numbers(device: u64) -> (u32, u32) {
    (rustix::fs::major(device), rustix::fs::minor(device))
}

fn parse_device(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The loop devices whose backing file is this one, by device and inode.
fn loops_of(file: (u64, u64)) -> io::Result<Vec<PathBuf>> {
    let mut loops = Vec::new();
    for entry in fs::read_dir("/sys/block")? {
        let directory = entry?.path();
        let Ok(backing) = fs::read(directory.join("loop/backing_file")) else {
            continue;
        };
        let backing = PathBuf::from(std::ffi::OsString::from_vec(backing.trim_ascii_end().to_vec()));
        if fs::metadata(backing).is_ok_and(|m| (m.dev(), m.ino()) == file) {
            loops.push(directory);
        }
    }
    Ok(loops)
}

/// Looks for the devices in the text of /proc/self/mountinfo: by the number, and by the source's number, because
/// btrfs gives its mounts numbers of their own.
fn mount_of(devices: &BTreeSet<(u32, u32)>, mountinfo: &[u8]) -> Option<String> {
    mountinfo.split(|&b| b == b'\n').find_map(|line| {
        let line = String::from_utf8_lossy(line);
        let fields: Vec<&str> = line.split(' ').collect();
        let (number, place) = (parse_device(fields.get(2)?)?, fields.get(4)?);
        let dash = fields.iter().position(|f| *f == "-")?;
        let source = PathBuf::from(unescape(fields.get(dash + 2)?));
        let by_source = || {
            source.is_absolute()
                && fs::metadata(&source)
                    .is_ok_and(|m| m.file_type().is_block_device() && devices.contains(&numbers(m.rdev())))
        };
        (devices.contains(&number) || by_source()).then(|| unescape(place))
    })
}

/// Undoes the kernel's octal escapes of blanks and the like.
fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        let code = (bytes[i] == b'\\')
            .then(|| text.get(i + 1..i + 4).and_then(|code| u8::from_str_radix(code, 8).ok()))
            .flatten();
        plain.push(code.unwrap_or(bytes[i]));
        i += if code.is_some() { 4 } else { 1 };
    }
    String::from_utf8_lossy(&plain).into_owned()
}

fn is_swap(devices: &BTreeSet<(u32, u32)>, file: (u64, u64)) -> io::Result<bool> {
    let swaps = match fs::read_to_string("/proc/swaps") {
        // A kernel without swap.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        other => other?,
    };
    Ok(swaps.lines().skip(1).filter_map(|line| line.split_whitespace().next()).any(|area| {
        fs::metadata(unescape(area)).is_ok_and(|m| {
            (m.dev(), m.ino()) == file || (m.file_type().is_block_device() && devices.contains(&numbers(m.rdev())))
        })
    }))
}

/// A mounted btrfs names only one of its drives in mountinfo; sysfs has them all.
fn btrfs_of(names: &BTreeSet<String>) -> io::Result<Option<String>> {
    let file_systems = match fs::read_dir("/sys/fs/btrfs") {
        // A kernel without btrfs.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    for file_system in file_systems {
        let file_system = file_system?;
        // Beside the file systems there is a directory of the kernel's features.
        let Ok(drives) = fs::read_dir(file_system.path().join("devices")) else {
            continue;
        };
        for drive in drives {
            if names.contains(&*drive?.file_name().to_string_lossy()) {
                let name = file_system.file_name();
                return Ok(Some(format!("btrfs {}", name.to_string_lossy())));
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_by_number() {
        let text = b"22 28 0:20 / /sys rw,nosuid - sysfs sysfs rw\n\
            28 1 254:1 / / rw,relatime shared:1 - ext4 /dev/none/vda1 rw\n\
            40 28 254:7 /sub /mnt/a\\040b rw - xfs /dev/none/x rw\nbroken line\n";
        for (device, want) in [((254, 1), Some("/")), ((254, 7), Some("/mnt/a b")), ((8, 0), None)] {
            assert_eq!(mount_of(&BTreeSet::from([device]), text).as_deref(), want);
        }
        assert_eq!(unescape("\\134\\0x\\04"), "\\\\0x\\04");
    }

    #[test]
    fn a_fresh_file_is_free_and_the_root_drive_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("drive");
        fs::write(&path, [0; 4096]).unwrap();
        assert_eq!(mounted_at(&path).unwrap(), None);
        assert!(mounted_at(&dir.path().join("none")).is_err());
        // Where the root file system's drive has a node, it must be found in use, by itself or through a partition.
        let (major, minor) = numbers(fs::metadata("/").unwrap().dev());
        if let Ok(uevent) = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/uevent"))
            && let Some(name) = uevent.lines().find_map(|l| l.strip_prefix("DEVNAME="))
            && let node = Path::new("/dev").join(name)
            && node.exists()
        {
            assert!(mounted_at(&node).unwrap().is_some());
        }
    }
}
