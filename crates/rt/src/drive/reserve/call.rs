//! The kernel's calls that change reservations (Linux, include/uapi/linux/pr.h).
//!
//! Their answers are odd: zero; an error number; or, positive, what the drive said, and then no error number is set. In a
//! preempt the first key is one's own, and the second the victim's, whatever the kernel's page says of old and new. The first
//! command of a connection may only be told that something has happened: it is sent again.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, OwnedFd};

use super::{IoError, Reserve, ReserveError};

/// Write Exclusive.
const WRITE_EXCLUSIVE: u32 = 1;
/// Whatever key is registered for this host is replaced.
const IGNORE_KEY: u32 = 1;
/// How often a command is sent that is told of something else.
const TRIES: u32 = 4;

/// What the drive says: SCSI status check condition, and reservation conflict; the latter as NVMe has it.
const CHECK_CONDITION: i32 = 0x02;
const SCSI_CONFLICT: i32 = 0x18;
const NVME_CONFLICT: i32 = 0x83;

/// `struct pr_registration` and `struct pr_preempt`.
#[repr(C)]
struct TwoKeys {
    old: u64,
    new: u64,
    kind_or_flags: u32,
    flags: u32,
}

/// `struct pr_reservation`.
#[repr(C)]
struct OneKey {
    key: u64,
    kind: u32,
    flags: u32,
}

const _: () = assert!(size_of::<TwoKeys>() == 24 && size_of::<OneKey>() == 16);

/// `_IOW('p', number, bytes)`.
const fn iow(number: u32, bytes: usize) -> libc::c_ulong {
    (1 << 30 | (bytes as u32) << 16 | (b'p' as u32) << 8 | number) as libc::c_ulong
}

const REGISTER: libc::c_ulong = iow(200, size_of::<TwoKeys>());
const RESERVE: libc::c_ulong = iow(201, size_of::<OneKey>());
const RELEASE: libc::c_ulong = iow(202, size_of::<OneKey>());
const PREEMPT: libc::c_ulong = iow(203, size_of::<TwoKeys>());

pub(super) fn step(fd: &OwnedFd, step: Reserve) -> Result<(), ReserveError> {
    let reservation = |key| OneKey { key, kind: WRITE_EXCLUSIVE, flags: 0 };
    match step {
        Reserve::Register(key) => {
            call(fd, REGISTER, &TwoKeys { old: 0, new: key, kind_or_flags: IGNORE_KEY, flags: 0 })
        }
        Reserve::Acquire(key) => call(fd, RESERVE, &reservation(key)),
        Reserve::Preempt { own, victim } => {
            call(fd, PREEMPT, &TwoKeys { old: own, new: victim, kind_or_flags: WRITE_EXCLUSIVE, flags: 0 })
        }
        Reserve::Leave(key) => {
            // Who holds nothing may release it.
            let _held = call(fd, RELEASE, &reservation(key));
            call(fd, REGISTER, &TwoKeys { old: key, new: 0, kind_or_flags: 0, flags: 0 })
        }
    }
}

fn call<T>(fd: &OwnedFd, request: libc::c_ulong, argument: &T) -> Result<(), ReserveError> {
    let mut tries = 0;
    loop {
        // SAFETY: the kernel reads the structure of this request, whose size is in its number; it outlives the call.
        let answer = unsafe { libc::ioctl(fd.as_raw_fd(), request, std::ptr::from_ref(argument)) };
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        tries += 1;
        match judge(answer, errno) {
            Judged::Again if tries < TRIES => {}
            Judged::Again => return Err(ReserveError::Io(IoError::Os(libc::EIO))),
            Judged::Done(result) => return result,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Judged {
    Done(Result<(), ReserveError>),
    Again,
}

fn judge(answer: i32, errno: i32) -> Judged {
    Judged::Done(match answer {
        0 => Ok(()),
        CHECK_CONDITION => return Judged::Again,
        1.. if answer & 0xff == SCSI_CONFLICT || answer & 0x7ff == NVME_CONFLICT => {
            Err(ReserveError::Io(IoError::Conflict))
        }
        1.. => Err(ReserveError::Io(IoError::Os(libc::EIO))),
        _ => match errno {
            libc::EINTR | libc::EAGAIN => return Judged::Again,
            libc::EBADE => Err(ReserveError::Io(IoError::Conflict)),
            libc::EOPNOTSUPP | libc::ENOTTY | libc::EINVAL | libc::EPERM | libc::EACCES | libc::ENOSYS => {
                Err(ReserveError::Unable(std::io::Error::from_raw_os_error(errno).to_string()))
            }
            errno => Err(ReserveError::Io(IoError::from_errno(errno))),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers() {
        let conflict = Judged::Done(Err(ReserveError::Io(IoError::Conflict)));
        for (answer, errno, want) in [
            (0, libc::EIO, Judged::Done(Ok(()))),
            (0x18, 0, conflict),
            (0x118, 0, Judged::Done(Err(ReserveError::Io(IoError::Conflict)))),
            (0x83, 0, Judged::Done(Err(ReserveError::Io(IoError::Conflict)))),
            (0x4083, 0, Judged::Done(Err(ReserveError::Io(IoError::Conflict)))),
            (0x02, 0, Judged::Again),
            (0x4002, 0, Judged::Done(Err(ReserveError::Io(IoError::Os(libc::EIO))))),
            (-1, libc::EINTR, Judged::Again),
            (-1, libc::ENODEV, Judged::Done(Err(ReserveError::Io(IoError::Gone)))),
        ] {
            assert_eq!(judge(answer, errno), want, "{answer:#x} {errno}");
        }
        assert!(matches!(judge(-1, libc::EOPNOTSUPP), Judged::Done(Err(ReserveError::Unable(_)))));
    }

    #[test]
    fn numbers() {
        assert_eq!((REGISTER, RESERVE, RELEASE, PREEMPT), (0x4018_70c8, 0x4010_70c9, 0x4010_70ca, 0x4018_70cb));
    }
}
