//! What must hold before a target is written.
//!
//! | it is | |
//! |---|---|
//! | mounted, swap, under a mounted device, part of md, dm or another holder, or has such a partition | refused |
//! | a block device with a signature, or of an array of ours | refused, as `ashlar create` does: take the signature off first |
//! | a file that a loop device uses | refused |
//! | anything that exists otherwise | its serial number is asked for |
//! | a file that is to be made | taken |
//!
//! Nothing overrides a refusal. A block device is held open exclusively while it is measured: the kernel then refuses
//! to mount it.

mod busy;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rt::probe;
use rustix::fs::{Mode, OFlags};

use crate::error::Error;
use crate::target::{Kind, Target};

/// Why a target must not be written, or not yet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The system uses it.
    #[error("{target} is in use ({by}): it is never written")]
    InUse {
        /// Which.
        target: String,
        /// By what.
        by: String,
    },
    /// It holds something.
    #[error("{target} holds data ({what}): if it is not needed, wipe it first (`wipefs -a {target}`)")]
    Signature {
        /// Which.
        target: String,
        /// What.
        what: String,
    },
    /// The user did not confirm.
    #[error("everything on {target} would be lost: confirm with its serial number, --destroy {serial}")]
    NotConfirmed {
        /// Which.
        target: String,
        /// What to say.
        serial: String,
    },
    /// The user named another.
    #[error("--destroy says {said}, but {target} is {serial}: nothing was written")]
    OtherSerial {
        /// Which.
        target: String,
        /// Its serial number.
        serial: String,
        /// What the user said.
        said: String,
    },
}

/// Leave to write a target, and the hold on it.
#[derive(Debug)]
pub struct Permit {
    _held: Option<rustix::fd::OwnedFd>,
}

/// Checks everything that can be checked before the user is asked.
///
/// # Errors
/// The first reason against writing.
pub fn check(target: &Target) -> Result<(), Error> {
    let Some(path) = target.path() else { return Ok(()) };
    let name = || target.name.clone();
    match target.kind {
        Kind::Nbd | Kind::Nvme | Kind::Model => Ok(()),
        Kind::File => match busy::loop_device_of(&path) {
            Some(by) => Err(Refusal::InUse { target: name(), by }.into()),
            None => Ok(()),
        },
        Kind::Block => {
            let rdev = fs::metadata(&path).map_err(|e| Error::file(&path, e))?.rdev();
            if let Some(by) = busy::user_of(rdev).map_err(|e| Error::file("/proc/self/mountinfo", e))? {
                return Err(Refusal::InUse { target: name(), by }.into());
            }
            match held(&path, target.bytes).map_err(|e| Error::file(&path, e))? {
                Some(what) => Err(Refusal::Signature { target: name(), what: what.to_owned() }.into()),
                None => Ok(()),
            }
        }
    }
}

/// Every drive of an array of ours begins with a label, which has these bytes here.
const LABEL: (usize, &[u8]) = (4, b"AshL");

/// What a drive holds, if anything: what others leave is known from the table that `ashlar create` goes by.
fn held(path: &Path, bytes: u64) -> io::Result<Option<&'static str>> {
    let (first, last) = probe::ends(path, bytes)?;
    let (at, label) = LABEL;
    if first.get(at..at + label.len()) == Some(label) {
        return Ok(Some("a drive of an Ashlar array"));
    }
    Ok(probe::signature(&first, &last))
}

/// Leave to write: all checks hold, and the user said the serial number of what exists.
///
/// # Errors
/// The first reason against it.
pub fn permit(target: &Target, destroy: Option<&str>) -> Result<Permit, Error> {
    check(target)?;
    let (name, serial) = (target.name.clone(), target.serial.clone());
    match destroy {
        Some(said) if said != serial => {
            return Err(Refusal::OtherSerial { target: name, serial, said: said.to_owned() }.into());
        }
        None if target.exists => return Err(Refusal::NotConfirmed { target: name, serial }.into()),
        Some(_) | None => {}
    }
    let held = match target.path().filter(|_| target.kind == Kind::Block) {
        Some(path) => {
            let open = rustix::fs::open(&path, OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC, Mode::empty());
            Some(open.map_err(|e| match e {
                rustix::io::Errno::BUSY => {
                    Refusal::InUse { target: name, by: "the kernel reports it as busy".to_owned() }.into()
                }
                e => Error::file(path, e.into()),
            })?)
        }
        None => None,
    };
    Ok(Permit { _held: held })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_exists_wants_its_serial_number() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        let look = || Target::look(&path.display().to_string(), Some(1 << 20)).unwrap();
        assert!(permit(&look(), None).is_ok(), "a file to be made is nobody's");
        fs::write(&path, "something").unwrap();
        let said = |s: Option<&str>| permit(&look(), s).unwrap_err().to_string();
        assert!(said(None).contains("--destroy data"), "{}", said(None));
        assert!(said(Some("other")).contains("nothing was written"));
        assert!(permit(&look(), Some("data")).is_ok());
    }

    #[test]
    fn what_create_refuses_is_found() {
        const BYTES: usize = 2 << 20;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d");
        let look = |at: usize, mark: &[u8]| {
            let mut bytes = vec![0; BYTES];
            bytes[at..at + mark.len()].copy_from_slice(mark);
            fs::write(&path, &bytes).unwrap();
            held(&path, bytes.len() as u64).unwrap()
        };
        assert_eq!(look(0, b""), None);
        for (at, mark, what) in [
            (3, &b"-FVE-FS-"[..], "BitLocker"),
            (0x20, b"NXSB", "APFS"),
            (BYTES - 1024, b"Intel Raid ISM Cfg Sig. ", "Intel RST RAID"),
            (BYTES - (128 << 10), b"\xfc\x4e\x2b\xa9\0\0\0\0", "mdadm"),
            (0x438, b"\x53\xef", "ext4"),
            (4, b"AshL", "a drive of an Ashlar array"),
        ] {
            assert_eq!(look(at, mark), Some(what));
        }
        fs::write(&path, "short").unwrap();
        assert_eq!(held(&path, 5).unwrap(), None);
    }

    #[test]
    fn the_device_below_the_root_is_refused() {
        // Where the root lies on no block device of this machine's there is nothing to ask.
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        let sources = table.lines().filter_map(|l| l.split(' ').next()).filter(|s| s.starts_with("/dev/"));
        for source in sources {
            let Ok(target) = Target::look(source, None) else { continue };
            let error = permit(&target, Some(&target.serial)).unwrap_err();
            assert!(matches!(error, Error::Refused(Refusal::InUse { .. })), "{source}: {error}");
        }
    }
}
