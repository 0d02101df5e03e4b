//! Reservations of a drive: Write Exclusive, by a key. Who does not hold it reads, and does not write, from whatever machine.
//!
//! ```text
//!   NVMe namespace   IOC_PR_* to change; Reservation Report to look (NVMe Base 2.0, 7.8)
//!   SCSI device      IOC_PR_* to change; PERSISTENT RESERVE IN to look (SPC-4, 6.15)
//! ```
//!
//! Invariants: the kernel's calls wait for the drive, so each runs on a thread of its own; a partition is never reserved, since
//! that would reserve its neighbours too.
//!
//! Not here: which keys there are, and what follows from a conflict.

mod call;
mod report;

use std::future::Future;
use std::os::fd::OwnedFd;

use super::{Backend, Drive, IoError};
use crate::Rt;

/// What a drive says of its reservations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reserved {
    /// The key of the host that holds it.
    pub holder: Option<u64>,
    /// The keys that are registered.
    pub keys: Vec<u64>,
}

/// One step with reservations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// Makes this the own key, whatever it was before.
    Register(u64),
    /// Reserves it with the own key, which is registered; nothing when it is the holder's.
    Acquire(u64),
    /// Takes it from the holder of a key, and that key's registrations.
    Preempt {
        /// The own key, registered.
        own: u64,
        /// The key of who loses it.
        victim: u64,
    },
    /// Gives up the reservation of the own key, where it has one, and the key.
    Leave(u64),
}

/// Why a step was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReserveError {
    /// This drive cannot be reserved, or not by this user.
    #[error("it cannot be reserved: {0}")]
    Unable(String),
    /// The drive answered so; `Conflict` when another one holds it.
    #[error("{0}")]
    Io(IoError),
}

impl Drive {
    /// Who has reserved it.
    ///
    /// # Errors
    /// [`ReserveError::Unable`] when it knows no reservations.
    pub fn reserved(&self) -> impl Future<Output = Result<Reserved, ReserveError>> + use<> {
        let d = self.clone();
        async move {
            match &d.0.backend {
                Backend::Modelled(disk) => disk.reserved(&d.0.rt).await,
                Backend::Memory(_) => Err(ReserveError::Unable("it is memory".to_owned())),
                Backend::File(_) | Backend::Namespace(_) => d.aside(report::look).await,
            }
        }
    }

    /// Does one step. Of a slice: to the whole drive.
    ///
    /// # Errors
    /// When the drive refuses it.
    pub fn reserve(&self, step: Reserve) -> impl Future<Output = Result<(), ReserveError>> + use<> {
        let d = self.clone();
        async move {
            match &d.0.backend {
                Backend::Modelled(disk) => disk.reserve(&d.0.rt, step).await,
                Backend::Memory(_) => Err(ReserveError::Unable("it is memory".to_owned())),
                Backend::File(_) | Backend::Namespace(_) => d.aside(move |fd| call::step(fd, step)).await,
            }
        }
    }

    /// Does `work` with a descriptor of its own on a thread of its own.
    async fn aside<T: Send + 'static>(
        &self,
        work: impl FnOnce(&OwnedFd) -> Result<T, ReserveError> + Send + 'static,
    ) -> Result<T, ReserveError> {
        let found = self.0.found.as_ref().expect("what has descriptors was opened");
        match &found.device {
            None => return Err(ReserveError::Unable("it is not a block device".to_owned())),
            Some(device) if device.is_partition() => {
                return Err(ReserveError::Unable("it is a partition".to_owned()));
            }
            Some(_) => {}
        }
        let fd = found.file.fd.try_clone().map_err(|e| ReserveError::Unable(e.to_string()))?;
        answer_of(&self.0.rt, move || work(&fd)).await
    }
}

/// What `work` says, done on a thread of its own.
async fn answer_of<T: Send + 'static>(
    rt: &Rt,
    work: impl FnOnce() -> Result<T, ReserveError> + Send + 'static,
) -> Result<T, ReserveError> {
    let (sender, mut answers) = rt.mailbox();
    let thread = std::thread::Builder::new().name("reserve".to_owned());
    let begun = thread.spawn(move || {
        sender.send(work());
    });
    begun.map_err(|e| ReserveError::Unable(format!("no thread for it: {e}")))?;
    answers.recv().await.unwrap_or_else(|| Err(ReserveError::Unable("its thread has ended".to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OpenDrive;

    #[test]
    fn files_and_memory_cannot_be_reserved() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("drive");
        std::fs::write(&path, [0; 8192]).unwrap();
        let rt = Rt::real().unwrap();
        rt.block_on(async {
            let file = Drive::open(&rt, &path, OpenDrive { read_only: false, lock: true }).await.unwrap();
            for drive in [file, Drive::memory(&rt, "m", 8192)] {
                assert!(matches!(drive.reserved().await, Err(ReserveError::Unable(_))));
                assert!(matches!(drive.reserve(Reserve::Register(1)).await, Err(ReserveError::Unable(_))));
            }
        });
    }
}
