//! What a namespace's answer means. NVMe Base 2.0, 4.6.1: the status field.
//!
//! ```text
//!   bit 14: do not retry | 13: more | 12-11: retry delay | 10-8: type | 7-0: code
//! ```
//!
//! Linux answers with the status (positive), or with an error number (negative) when it has no status: a command that it
//! cancelled, because its time was over or the controller went away, has EINTR. It never sends a passthrough command
//! again by itself.
//!
//! Not here: sending again, and whether the drive was removed (`mod`).

use crate::IoError;

/// The drive says that sending again is of no use.
const DO_NOT_RETRY: u16 = 1 << 14;

/// Where the drive says when to try again; zero: at once.
const RETRY_DELAY_SHIFT: u16 = 11;

/// What follows from an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Done,
    Failed(IoError),
    /// Worth another try at once; the error when it was the last.
    Again(IoError),
    /// Worth another try when the controller has had time to come back.
    Later(IoError),
}

/// The verdict on the kernel's answer to a command.
pub(super) fn verdict(answer: i32) -> Verdict {
    match answer {
        0 => Verdict::Done,
        1.. => of_status((answer & 0x7fff) as u16),
        _ => match -answer {
            libc::EINTR => Verdict::Later(IoError::TimedOut),
            libc::EAGAIN | libc::EBUSY | libc::ENOMEM => Verdict::Later(IoError::Os(-answer)),
            errno => Verdict::Failed(IoError::from_errno(errno)),
        },
    }
}

fn of_status(status: u16) -> Verdict {
    let error = error_of(status);
    let wants_time = status >> RETRY_DELAY_SHIFT & 3 != 0;
    match (status >> 8 & 7, status & 0xff) {
        _ if status & DO_NOT_RETRY != 0 => Verdict::Failed(error),
        // Who has reserved it does not let go by being asked.
        (GENERIC, RESERVED) => Verdict::Failed(error),
        (PATH, _) | (GENERIC, INTERRUPTED | NOT_READY) => Verdict::Later(error),
        _ if wants_time => Verdict::Later(error),
        _ => Verdict::Again(error),
    }
}

/// Status types.
const GENERIC: u16 = 0;
const MEDIA: u16 = 2;
const PATH: u16 = 3;
/// Generic codes: the command was interrupted, the namespace is not ready.
const INTERRUPTED: u16 = 0x21;
const NOT_READY: u16 = 0x82;
/// Generic code: reservation conflict.
const RESERVED: u16 = 0x83;

/// The table from statuses to errors. What is not in it is what Linux makes EIO of.
fn error_of(status: u16) -> IoError {
    match (status >> 8 & 7, status & 0xff) {
        // Invalid command, invalid field.
        (GENERIC, 0x01 | 0x02) => IoError::Os(libc::EOPNOTSUPP),
        // The namespace is not there any more.
        (GENERIC, 0x0b) => IoError::Gone,
        // A sanitize operation is at work, or has failed.
        (GENERIC, 0x1c | 0x1d) => IoError::Os(libc::EBUSY),
        (GENERIC, 0x20) => IoError::Os(libc::EROFS),
        (GENERIC, 0x80 | INTERRUPTED | NOT_READY) => IoError::Os(libc::EREMOTEIO),
        // A thin namespace is full.
        (GENERIC, 0x81) => IoError::NoSpace,
        (GENERIC, RESERVED) => IoError::Conflict,
        (MEDIA, 0x86) => IoError::Os(libc::EACCES),
        // The controller does not answer, or was reset.
        (PATH, _) => IoError::TimedOut,
        _ => IoError::Medium,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table() {
        for (answer, want) in [
            (0, Verdict::Done),
            (0x281, Verdict::Again(IoError::Medium)),
            (0x4281, Verdict::Failed(IoError::Medium)),
            (0x4280, Verdict::Failed(IoError::Medium)),
            (0x4006, Verdict::Failed(IoError::Medium)),
            (0x4080, Verdict::Failed(IoError::Os(libc::EREMOTEIO))),
            (0x4081, Verdict::Failed(IoError::NoSpace)),
            (0x083, Verdict::Failed(IoError::Conflict)),
            (0x4083, Verdict::Failed(IoError::Conflict)),
            (-libc::EBADE, Verdict::Failed(IoError::Conflict)),
            (0x400b, Verdict::Failed(IoError::Gone)),
            (0x4001, Verdict::Failed(IoError::Os(libc::EOPNOTSUPP))),
            (0x6002, Verdict::Failed(IoError::Os(libc::EOPNOTSUPP))),
            (0x021, Verdict::Later(IoError::Os(libc::EREMOTEIO))),
            (0x082, Verdict::Later(IoError::Os(libc::EREMOTEIO))),
            (0x4082, Verdict::Failed(IoError::Os(libc::EREMOTEIO))),
            (0x0a81, Verdict::Later(IoError::Medium)),
            (0x1281, Verdict::Later(IoError::Medium)),
            (0x5a81, Verdict::Failed(IoError::Medium)),
            (0x371, Verdict::Later(IoError::TimedOut)),
            (0x4370, Verdict::Failed(IoError::TimedOut)),
            (-libc::EINTR, Verdict::Later(IoError::TimedOut)),
            (-libc::EAGAIN, Verdict::Later(IoError::Os(libc::EAGAIN))),
            (-libc::ENODEV, Verdict::Failed(IoError::Gone)),
            (-libc::EIO, Verdict::Failed(IoError::Medium)),
            (-libc::EOPNOTSUPP, Verdict::Failed(IoError::Os(libc::EOPNOTSUPP))),
        ] {
            assert_eq!(verdict(answer), want, "{answer:#x}");
        }
    }

    #[test]
    fn no_answer_panics() {
        for answer in -libc::EHWPOISON..=i32::from(i16::MAX) {
            let done = verdict(answer) == Verdict::Done;
            assert_eq!(done, answer == 0, "{answer:#x}");
        }
    }
}
