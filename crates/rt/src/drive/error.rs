//! What can go wrong with a drive: [`IoError`] in use, [`OpenError`] before it.
//!
//! Not here: what an array makes of it.

use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// Why an operation on a drive failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum IoError {
    /// The drive could not read or write these blocks.
    #[error("medium error")]
    Medium,
    /// The drive is not there any more.
    #[error("the drive is gone")]
    Gone,
    /// The drive did not answer in time.
    #[error("timed out")]
    TimedOut,
    /// A file drive's file system is full, or a thin drive's pool.
    #[error("no space left on the drive")]
    NoSpace,
    /// Another host has reserved the drive. That says nothing of the drive.
    #[error("another host has reserved the drive")]
    Conflict,
    /// Anything else, with the kernel's error number.
    #[error("{}", std::io::Error::from_raw_os_error(*.0))]
    Os(i32),
}

impl IoError {
    /// The table from the kernel's error numbers. EIO is `Medium` here; the caller who can tell that the drive
    /// was removed makes it `Gone`.
    #[must_use]
    pub fn from_errno(errno: i32) -> IoError {
        match Errno::from_raw_os_error(errno) {
            Errno::IO | Errno::BADMSG | Errno::NODATA | Errno::ILSEQ => IoError::Medium,
            Errno::NODEV | Errno::NXIO | Errno::NOMEDIUM | Errno::SHUTDOWN => IoError::Gone,
            Errno::TIMEDOUT | Errno::TIME => IoError::TimedOut,
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => IoError::NoSpace,
            // What the block layer makes of a reservation conflict of SCSI and of NVMe.
            Errno::BADE => IoError::Conflict,
            _ => IoError::Os(errno),
        }
    }
}

/// Why a drive could not be opened. The message says what, why, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Nothing has this path.
    #[error("{0}: no such drive; check the path (ls -l /dev/disk/by-id shows the block devices)")]
    NotFound(PathBuf),
    /// The kernel refuses this user.
    #[error("{0}: permission denied; run as root or give this user access to the device")]
    Permission(PathBuf),
    /// It cannot be written: the drive, or the file system that it lies on, is read-only.
    #[error("{0}: read-only, or on a file system that is mounted read-only; choose another drive")]
    ReadOnly(PathBuf),
    /// Another process holds it.
    #[error("{0}: in use by another process that holds its lock; stop that one, or wait for its last I/O to end")]
    Locked(PathBuf),
    /// The kernel itself uses it: a mount, swap, md, device mapper.
    #[error("{0}: in use by the kernel (mounted, swap, md or device mapper); release it there first")]
    Busy(PathBuf),
    /// Neither a block device nor a regular file.
    #[error("{0}: not a drive; give a block device or a regular file")]
    NotADrive(PathBuf),
    /// Too small to hold one block.
    #[error("{0}: smaller than 4096 bytes; give a larger drive")]
    TooSmall(PathBuf),
    /// Asked of the modelled world, which has no files.
    #[error("{0}: files cannot be opened in the modelled world; use a modelled or a memory drive")]
    Modelled(PathBuf),
    /// Anything else.
    #[error("{0}: {1}; see the kernel log (dmesg) for the drive's state")]
    Os(PathBuf, std::io::Error),
}

impl OpenError {
    pub(crate) fn from_errno(path: &Path, errno: Errno) -> OpenError {
        let path = path.to_owned();
        match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::NXIO | Errno::NODEV => OpenError::NotFound(path),
            Errno::ACCESS | Errno::PERM => OpenError::Permission(path),
            Errno::ROFS => OpenError::ReadOnly(path),
            Errno::BUSY | Errno::TXTBSY => OpenError::Busy(path),
            Errno::WOULDBLOCK => OpenError::Locked(path),
            Errno::ISDIR => OpenError::NotADrive(path),
            other => OpenError::Os(path, other.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table() {
        for (errno, want) in [
            (libc::EIO, IoError::Medium),
            (libc::EBADMSG, IoError::Medium),
            (libc::ENODATA, IoError::Medium),
            (libc::ENODEV, IoError::Gone),
            (libc::ENXIO, IoError::Gone),
            (libc::ETIMEDOUT, IoError::TimedOut),
            (libc::ENOSPC, IoError::NoSpace),
            (libc::EBADE, IoError::Conflict),
            (libc::EINVAL, IoError::Os(libc::EINVAL)),
        ] {
            assert_eq!(IoError::from_errno(errno), want);
        }
        assert!(matches!(OpenError::from_errno(Path::new("/x"), Errno::ROFS), OpenError::ReadOnly(_)));
        assert!(matches!(OpenError::from_errno(Path::new("/x"), Errno::PERM), OpenError::Permission(_)));
        assert!(OpenError::from_errno(Path::new("/x"), Errno::WOULDBLOCK).to_string().contains("lock"));
    }
}
