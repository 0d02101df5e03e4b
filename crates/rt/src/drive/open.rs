//! Opening a block device or file, by named steps: look, open, look again, lock, lock the namespace's character device
//! where there is one, measure, describe.
//!
//! Invariants: every descriptor that may do I/O is locked, and the one that was measured is one of them; nobody unlocks.
//! flock, like O_EXCL, is the open file's, which duplicates of a descriptor share: it ends when the last of them is closed
//! and the last I/O on it has ended.
//!
//! Not here: whether something else lives on the drive (`probe`); which way it is used (`choose`).

use std::path::Path;

use base::{BLOCK_BYTES, BlockCount};
use rustix::fs::{FileType, FlockOperation, Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;

use super::choose::Found;
use super::file::{Blocking, File};
use super::nvme::{self, Generic};
use super::sysfs::{BlockDevice, stable_name};
use super::{DriveInfo, DriveKind, OpenDrive, OpenError, Place};

pub(super) fn open(path: &Path, how: OpenDrive) -> Result<(Found, DriveInfo), OpenError> {
    let fail = |errno| OpenError::from_errno(path, errno);
    // Looked at first, because opening a tape or a pipe can have effects or wait.
    let kind = kind_of(path, &rustix::fs::stat(path).map_err(fail)?)?;
    let exclusive = kind == DriveKind::Block && how.lock && !how.read_only;
    let access = if how.read_only { OFlags::RDONLY } else { OFlags::RDWR };
    let flags = access | OFlags::CLOEXEC | if exclusive { OFlags::EXCL } else { OFlags::empty() };
    let (fd, direct) = match rustix::fs::open(path, flags | OFlags::DIRECT, Mode::empty()) {
        // The file system has no O_DIRECT.
        Err(Errno::INVAL) => (rustix::fs::open(path, flags, Mode::empty()).map_err(fail)?, false),
        Err(Errno::BUSY) if exclusive => return Err(who_is_busy(path)),
        other => (other.map_err(fail)?, true),
    };
    let stat = rustix::fs::fstat(&fd).map_err(fail)?;
    if kind_of(path, &stat)? != kind {
        return Err(OpenError::NotADrive(path.to_owned()));
    }
    let device = (kind == DriveKind::Block).then(|| BlockDevice::find(stat.st_rdev)).flatten();
    let mut generic = Err("it is opened without a lock".to_owned());
    if how.lock {
        let lock = if how.read_only {
            FlockOperation::NonBlockingLockShared
        } else {
            FlockOperation::NonBlockingLockExclusive
        };
        rustix::fs::flock(&fd, lock).map_err(fail)?;
        if let Some(device) = &device {
            generic = Generic::open(device, how.read_only, lock).map_err(fail)?;
        }
    }
    let bytes = match kind {
        DriveKind::Block => rustix::fs::seek(&fd, SeekFrom::End(0)).map_err(fail)?,
        _ => stat.st_size as u64,
    };
    if bytes < BLOCK_BYTES as u64 {
        return Err(OpenError::TooSmall(path.to_owned()));
    }
    let private = device.as_ref().is_some_and(|d| d.is_pcie_nvme() && nvme::is_private(&fd));
    let info = DriveInfo {
        shared: !private,
        place: Some(place(&stat, kind, device.as_ref())),
        ..describe(path, kind, bytes, direct, device.as_ref())
    };
    let blocking = match kind {
        DriveKind::File => {
            let magic = rustix::fs::fstatfs(&fd).map_or(0, |fs| fs.f_type as u64);
            Blocking::of_file_system(magic)
        }
        _ => Blocking::Never,
    };
    let file = File::new(fd, device.as_ref().map(|d| d.directory.clone()), direct, blocking);
    let found = Found { name: info.name.clone(), file, device, generic, bytes, read_only: how.read_only };
    Ok((found, info))
}

/// Tells the lock of another process from a user within the kernel: both keep O_EXCL away.
fn who_is_busy(path: &Path) -> OpenError {
    let locked = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .and_then(|fd| rustix::fs::flock(&fd, FlockOperation::NonBlockingLockShared));
    match locked {
        Err(Errno::WOULDBLOCK) => OpenError::Locked(path.to_owned()),
        Ok(()) | Err(_) => OpenError::Busy(path.to_owned()),
    }
}

fn kind_of(path: &Path, stat: &Stat) -> Result<DriveKind, OpenError> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::BlockDevice => Ok(DriveKind::Block),
        FileType::RegularFile => Ok(DriveKind::File),
        _ => Err(OpenError::NotADrive(path.to_owned())),
    }
}

fn place(stat: &Stat, kind: DriveKind, device: Option<&BlockDevice>) -> Place {
    let file = device.and_then(BlockDevice::backing_file);
    if let Some((file, offset)) = file.and_then(|(file, offset)| Some((rustix::fs::stat(&file).ok()?, offset))) {
        return Place { device: file.st_dev, inode: file.st_ino, offset };
    }
    match kind {
        DriveKind::Block => Place { device: stat.st_rdev, inode: 0, offset: 0 },
        DriveKind::File | DriveKind::Memory | DriveKind::Modelled => {
            Place { device: stat.st_dev, inode: stat.st_ino, offset: 0 }
        }
    }
}

fn describe(path: &Path, kind: DriveKind, bytes: u64, direct: bool, device: Option<&BlockDevice>) -> DriveInfo {
    let canonical = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    DriveInfo {
        name: path.to_string_lossy().into_owned(),
        kind,
        blocks: BlockCount::floor_from_bytes(bytes),
        sector_bytes: device.map_or(512, BlockDevice::sector_bytes),
        // The page cache is a volatile cache too; and what sysfs does not tell is taken for one.
        volatile_cache: !direct || device.is_none_or(BlockDevice::has_volatile_cache),
        shared: true,
        serial: device.and_then(BlockDevice::serial),
        stable_name: stable_name(&canonical),
        place: None,
        optimal_write_bytes: device.map_or(BLOCK_BYTES as u32, BlockDevice::optimal_write_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_say_why() {
        let dir = tempfile::tempdir().unwrap();
        let how = OpenDrive { read_only: false, lock: true };
        let error = |path: &Path| open(path, how).err().unwrap();
        assert!(matches!(error(&dir.path().join("none")), OpenError::NotFound(_)));
        assert!(matches!(error(dir.path()), OpenError::NotADrive(_)));
        assert!(matches!(error(Path::new("/dev/null")), OpenError::NotADrive(_)));
        let small = dir.path().join("small");
        std::fs::write(&small, [0; 4095]).unwrap();
        assert!(matches!(error(&small), OpenError::TooSmall(_)));
    }

    #[test]
    fn a_file_is_described() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("drive");
        std::fs::write(&path, [0; 3 * 4096 + 5]).unwrap();
        let (_found, info) = open(&path, OpenDrive { read_only: true, lock: true }).unwrap();
        assert_eq!((info.kind, info.blocks, info.volatile_cache), (DriveKind::File, BlockCount(3), true));
        assert_eq!(info.stable_name, std::fs::canonicalize(&path).unwrap().to_string_lossy());
        assert_eq!(info.serial, None);
    }
}
