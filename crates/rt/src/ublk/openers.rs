//! Who has a block device of ours open: stopping it would fail what they do, and its deletion would wait for them.
//!
//! A mount, a RAID or a volume manager claims a device, and a second claim is refused: that is asked of the kernel. Others only open
//! it, which no file of sysfs tells; processes that do are found in /proc.
//!
//! Not here: drivers that use an open descriptor and claim nothing (a loop device over it).

use std::fs::{self, File};
use std::path::Path;
use std::process;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::error::{ControlError, Opener};

/// udev opens a device for moments.
const PATIENCE: Duration = Duration::from_secs(2);
const AGAIN: Duration = Duration::from_millis(50);

/// Tries again while the device is busy, for two seconds at most.
pub(super) fn retried(number: u32, attempt: impl Fn() -> Result<(), ControlError>) -> Result<(), ControlError> {
    let begun = Instant::now();
    loop {
        match attempt() {
            Err(ControlError::Busy { .. }) if begun.elapsed() < PATIENCE => thread::sleep(AGAIN),
            Err(ControlError::Busy { by: Opener::Unknown, .. }) => {
                return Err(ControlError::Busy { number, by: find(number) });
            }
            other => return other,
        }
    }
}

/// Claims the block device of this number; nothing where it has none.
pub(super) fn claim(number: u32) -> Result<Option<File>, ControlError> {
    if let Some(pid) = opener(number) {
        return Err(ControlError::Busy { number, by: Opener::Process(pid) });
    }
    let path = format!("/dev/ublkb{number}");
    // Read-only: closing what was open for writing makes udev look at it again.
    match rustix::fs::open(&path, OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC, Mode::empty()) {
        Ok(fd) => Ok(Some(File::from(fd))),
        Err(Errno::BUSY) => Err(ControlError::Busy { number, by: Opener::Exclusive }),
        Err(Errno::NOENT | Errno::NXIO | Errno::NODEV) => Ok(None),
        Err(errno) => Err(ControlError::of("open of a block device", errno.raw_os_error())),
    }
}

/// Who has it open, as far as it can be found.
pub(super) fn find(number: u32) -> Opener {
    match opener(number) {
        Some(pid) => Opener::Process(pid),
        None if claim(number).is_err() => Opener::Exclusive,
        None => Opener::Unknown,
    }
}

/// A process that has the device or a partition of it open.
fn opener(number: u32) -> Option<u32> {
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| *pid != process::id()).find(|pid| {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        descriptors.filter_map(|entry| fs::read_link(entry.path()).ok()).any(|target| is_of(number, &target))
    })
}

/// Whether a path is that of the device or of a partition of it.
fn is_of(number: u32, path: &Path) -> bool {
    let rest = path.to_str().and_then(|path| path.strip_prefix(&format!("/dev/ublkb{number}")));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('p'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_part_of_it() {
        for (path, is) in [
            ("/dev/ublkb1", true),
            ("/dev/ublkb1p3", true),
            ("/dev/ublkb12", false),
            ("/dev/ublkb12p1", false),
            ("/dev/ublkc1", false),
            ("socket:[1]", false),
        ] {
            assert_eq!(is_of(1, Path::new(path)), is, "{path}");
        }
    }
}
