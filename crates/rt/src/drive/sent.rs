//! A drive, or a slice of one, on its way to the runtime of another thread.
//!
//! Descriptors go as duplicates: they share the open file, and with it flock and O_EXCL, so the drive is locked until the
//! last handle on any thread is gone. What is chosen for a runtime (polling, NVMe commands) is chosen anew for the one that
//! it comes to; nothing else is known to a ring.
//!
//! Memory does not go: it has no locks on the data path, so no two threads see it. What was never written is nothing to
//! send, and begins anew on the other thread.
//!
//! Not here: modelled drives, whose world is one thread's.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;

use base::MemberLba;

use super::choose::{self, Found};
use super::file::{Blocking, File};
use super::memory::Memory;
use super::nvme::Generic;
use super::sysfs::BlockDevice;
use super::{Backend, Drive, DriveInfo, OpenDrive, OpenError, open};
use crate::Rt;

/// A drive between two threads.
pub struct SentDrive {
    info: DriveInfo,
    from: MemberLba,
    /// None for memory.
    found: Option<SentFound>,
}

/// [`Found`], with descriptors of its own.
pub(super) struct SentFound {
    name: String,
    fd: OwnedFd,
    direct: bool,
    blocking: Blocking,
    device: Option<BlockDevice>,
    generic: Result<OwnedFd, String>,
    bytes: u64,
    read_only: bool,
}

impl Drive {
    /// Makes a further handle on this drive or slice, for another thread's runtime. This one stays as it is.
    ///
    /// Of a memory drive no two threads share the contents: it begins there empty, with the length of this one. So it is
    /// sent before anything is written to it, and used on one of the two threads from then on.
    ///
    /// # Errors
    /// `InvalidInput` when something was written to this memory drive (of a slice: to a MiB that it reaches into),
    /// `Unsupported` for a modelled drive, and whatever the kernel says when it has no further descriptor.
    pub fn to_send(&self) -> io::Result<SentDrive> {
        let d = &*self.0;
        let found = match &d.backend {
            Backend::File(_) | Backend::Namespace(_) => {
                let found = d.found.as_ref().expect("what has descriptors was opened");
                Some(SentFound::of(found)?)
            }
            Backend::Memory(memory) if memory.is_empty(d.from.byte_offset(), d.info.blocks.bytes()) => None,
            Backend::Memory(_) => {
                let why = format!("{self:?} was written: memory can be sent to another thread only while it is empty");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
            }
            Backend::Modelled(_) => {
                let why = format!("{self:?} is modelled: it belongs to one thread's world");
                return Err(io::Error::new(io::ErrorKind::Unsupported, why));
            }
        };
        Ok(SentDrive { info: d.info.clone(), from: d.from, found })
    }
}

impl SentDrive {
    /// The drive in its new runtime, used in the way that this one was asked to, where the drive offers that.
    ///
    /// # Panics
    /// When a file or block device comes to a modelled world.
    pub async fn arrive(self, rt: &Rt) -> Drive {
        let SentDrive { info, from, found } = self;
        let Some(found) = found else {
            return Drive::new(rt, info, Backend::Memory(Rc::new(Memory::new())), None, MemberLba(0));
        };
        assert!(!rt.is_modelled(), "{}: the modelled world has no files", info.name);
        let found = found.arrive();
        let backend = choose::choose(rt, rt.inner.ways, &found, from.byte_offset()).await;
        Drive::new(rt, info, backend, Some(Rc::new(found)), from)
    }
}

impl fmt::Debug for SentDrive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SentDrive({})", self.info.name)
    }
}

/// Opens a drive, on whatever thread this is, for another.
pub(super) fn opened(path: &Path, how: OpenDrive) -> Result<(SentFound, DriveInfo), OpenError> {
    let (found, info) = open::open(path, how)?;
    let sent = SentFound::of(&found).map_err(|e| OpenError::Os(path.to_owned(), e))?;
    Ok((sent, info))
}

impl SentFound {
    fn of(found: &Found) -> io::Result<SentFound> {
        let generic = match &found.generic {
            Ok(generic) => Ok(generic.duplicate()?),
            Err(why) => Err(why.clone()),
        };
        Ok(SentFound {
            name: found.name.clone(),
            fd: found.file.fd.try_clone()?,
            direct: found.file.access().is_direct(),
            blocking: found.file.blocking(),
            device: found.device.clone(),
            generic,
            bytes: found.bytes,
            read_only: found.read_only,
        })
    }

    pub(super) fn arrive(self) -> Found {
        let directory = self.device.as_ref().map(|d| d.directory.clone());
        Found {
            name: self.name,
            file: File::new(self.fd, directory, self.direct, self.blocking),
            device: self.device,
            generic: self.generic.map(Generic::of_duplicate),
            bytes: self.bytes,
            read_only: self.read_only,
        }
    }
}

const _: () = {
    const fn crosses_threads<T: Send>() {}
    crosses_threads::<SentDrive>();
};
