//! A drive: block device, file, memory or model, behind one set of verbs.
//!
//! Invariants: addresses are whole 4 KiB blocks within the drive; an operation that its caller has dropped still
//! runs to its end, keeps its buffer until then and counts as in flight; the verbs' futures do not borrow; a slice never
//! reads, writes or deallocates beyond its range; a drive stays locked while a handle on it, on a slice of it, or one that was
//! sent is left.
//!
//! Not here: ordering, retries, time-outs; redundancy. A flush makes durable what was answered before it began,
//! nothing more.

mod access;
mod choose;
mod error;
mod file;
mod kernel;
mod limits;
mod load;
mod memory;
pub(crate) mod nvme;
mod open;
mod polling;
mod reserve;
mod sent;
mod slice;
mod store;
mod sysfs;

use std::fmt;
use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use base::{BLOCK_BYTES, BlockCount, MemberLba};
use futures::future::{Either, select};

pub use access::{Access, Ways};
use choose::Found;
pub use error::{IoError, OpenError};
use file::File;
pub(crate) use load::Load;
use memory::Memory;
use nvme::Namespace;
pub use reserve::{Reserve, ReserveError, Reserved};
pub use sent::SentDrive;

use crate::model;
use crate::{Buf, Bytes, Rt};

/// The time that a drive is waited for is counted in so many parts.
const LOOKS: u32 = 10;

/// What kind of drive it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriveKind {
    /// A block device.
    Block,
    /// A regular file.
    File,
    /// This process's memory.
    Memory,
    /// A model in virtual time.
    Modelled,
}

/// What a drive is to the kernel, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The number of a block device, or that of a file's file system.
    pub device: u64,
    /// A file's number there; zero for a block device.
    pub inode: u64,
    /// Where a loop device begins in its file.
    pub offset: u64,
}

/// What is known of a drive.
#[derive(Clone, Debug)]
pub struct DriveInfo {
    /// As the user gave it: a path, or "mem:4G".
    pub name: String,
    /// The kind.
    pub kind: DriveKind,
    /// Whole 4 KiB blocks, rounded down; a slice's own.
    pub blocks: BlockCount,
    /// The drive's own unit: 512 or 4096.
    pub sector_bytes: u32,
    /// Whether an answered write may be lost by a power cut until a flush.
    pub volatile_cache: bool,
    /// Whether others than who opened this may write it too: another machine, or a process by another way. False only where
    /// that is known not to be: memory, and a PCIe drive whose namespace is not shared.
    pub shared: bool,
    /// Serial number, world-wide name, device-mapper uuid, or the backing file of a loop device.
    pub serial: Option<String>,
    /// The link in /dev/disk/by-id where there is one, else the canonical path.
    pub stable_name: String,
    /// What it is to the kernel; `None`: nothing that has two names.
    pub place: Option<Place>,
    /// The size of write that the drive prefers.
    pub optimal_write_bytes: u32,
}

/// How to open a drive.
#[derive(Clone, Copy, Debug)]
pub struct OpenDrive {
    /// Reads only; the lock is then shared.
    pub read_only: bool,
    /// Takes the lock on the descriptor that does the I/O.
    pub lock: bool,
}

/// What does the work. Clones are for slices: they share it.
#[derive(Clone)]
enum Backend {
    File(File),
    // Its verbs' futures are boxed: they are larger than those of files, and a drive's futures are as large as the largest.
    Namespace(Rc<Namespace>),
    Memory(Rc<Memory>),
    Modelled(model::Disk),
}

struct Shared {
    rt: Rt,
    info: DriveInfo,
    backend: Backend,
    /// Where it begins in what the backend has: zero but for a slice.
    from: MemberLba,
    /// Of what was opened: its descriptors, and what it needs on another thread.
    found: Option<Rc<Found>>,
    load: Rc<Load>,
}

/// A handle on an open drive; clones share it.
#[derive(Clone)]
pub struct Drive(Rc<Shared>);

impl Drive {
    /// Opens a block device or a regular file.
    ///
    /// With `lock` the very descriptor that does the I/O is locked with flock (exclusive, or shared for read-only).
    /// The kernel releases the lock of a dead process only when its last I/O on that descriptor has ended (Linux
    /// 6.18), so a successor that gets the lock meets no late write of its predecessor. Of an NVMe namespace the
    /// character device is locked, too. A block device is then also opened with O_EXCL, which keeps the kernel's own
    /// users (mount, swap, md, device mapper) away.
    ///
    /// The drive is used in the way that the runtime was asked to ([`Rt::real_by`]), where it offers that.
    pub async fn open(rt: &Rt, path: &Path, how: OpenDrive) -> Result<Drive, OpenError> {
        if rt.is_modelled() {
            return Err(OpenError::Modelled(path.to_owned()));
        }
        let path = path.to_owned();
        // A file system that hangs stops this open, and nothing else.
        let (found, info) = rt.apart(move || sent::opened(&path, how)).await?;
        let found = found.arrive();
        let backend = choose::choose(rt, rt.inner.ways, &found, 0).await;
        Ok(Drive::new(rt, info, backend, Some(Rc::new(found)), MemberLba(0)))
    }

    /// A drive in this process's memory: sparse, empty, as fast as copying.
    #[must_use]
    pub fn memory(rt: &Rt, name: &str, bytes: u64) -> Drive {
        let info = DriveInfo {
            name: name.to_owned(),
            kind: DriveKind::Memory,
            blocks: BlockCount::floor_from_bytes(bytes),
            sector_bytes: 4096,
            volatile_cache: false,
            shared: false,
            serial: None,
            stable_name: name.to_owned(),
            place: None,
            optimal_write_bytes: 4096,
        };
        Drive::new(rt, info, Backend::Memory(Rc::new(Memory::new())), None, MemberLba(0))
    }

    /// A drive on a model. The model outlives this handle and this world.
    #[must_use]
    pub fn modelled(rt: &Rt, disk: &model::Disk) -> Drive {
        disk.enter(rt.inner.id);
        Drive::new(rt, disk.info(), Backend::Modelled(disk.clone()), None, MemberLba(0))
    }

    fn new(rt: &Rt, info: DriveInfo, backend: Backend, found: Option<Rc<Found>>, from: MemberLba) -> Drive {
        let rt = Rt::from_inner(&rt.inner);
        Drive(Rc::new(Shared { rt, info, backend, from, found, load: Rc::default() }))
    }

    /// What is known of it.
    #[must_use]
    pub fn info(&self) -> &DriveInfo {
        &self.0.info
    }

    /// Whether both are the same drive by two names: links, or a loop device and its file.
    #[must_use]
    pub fn is_same_as(&self, other: &Drive) -> bool {
        Rc::ptr_eq(&self.0, &other.0) || (self.info().place.is_some() && self.info().place == other.info().place)
    }

    /// How reads and writes reach it now.
    #[must_use]
    pub fn access(&self) -> Access {
        match &self.0.backend {
            Backend::File(file) => file.access(),
            Backend::Namespace(_) => Access::Passthrough,
            Backend::Memory(_) | Backend::Modelled(_) => Access::Memory,
        }
    }

    /// Why it is not used in the way that its runtime was asked to.
    #[must_use]
    pub fn access_why(&self) -> Option<String> {
        match &self.0.backend {
            Backend::File(file) => file.access_why(),
            Backend::Namespace(_) | Backend::Memory(_) | Backend::Modelled(_) => None,
        }
    }

    /// When this turn of its runtime began.
    #[must_use]
    pub fn turned(&self) -> crate::Nanos {
        self.0.rt.turned()
    }

    /// The clock of its runtime, as [`crate::Rt::recent`] has it.
    #[must_use]
    pub fn recent(&self) -> crate::Nanos {
        self.0.rt.recent()
    }

    /// Fills `buf` from block `at` on. After an error its contents are unspecified.
    pub fn read(&self, at: MemberLba, buf: Buf) -> impl Future<Output = (Result<(), IoError>, Buf)> + use<> {
        let d = self.0.clone();
        async move {
            let mut buf = buf;
            let at = match d.place(at, whole_blocks(buf.len())) {
                Ok(at) => at,
                Err(e) => return (Err(e), buf),
            };
            match &d.backend {
                Backend::Memory(memory) => {
                    memory.read(at.byte_offset(), &mut buf);
                    d.answer_later().await;
                    (Ok(()), buf)
                }
                Backend::File(file) => file.read(&d.rt, &d.load, at.byte_offset(), buf).await,
                Backend::Namespace(namespace) => Box::pin(namespace.read(&d.rt, &d.load, at.byte_offset(), buf)).await,
                Backend::Modelled(disk) => disk.read(&d.rt, &d.load, at, buf).await,
            }
        }
    }

    /// Writes `data` from block `at` on.
    pub fn write(&self, at: MemberLba, data: Bytes) -> impl Future<Output = Result<(), IoError>> + use<> {
        let d = self.0.clone();
        async move {
            let at = d.place(at, whole_blocks(data.len()))?;
            match &d.backend {
                Backend::Memory(memory) => {
                    memory.write(at.byte_offset(), &data);
                    d.answer_later().await;
                    Ok(())
                }
                Backend::File(file) => file.write(&d.rt, &d.load, at.byte_offset(), vec![data]).await,
                Backend::Namespace(namespace) => {
                    Box::pin(namespace.write(&d.rt, &d.load, at.byte_offset(), vec![data])).await
                }
                Backend::Modelled(disk) => disk.write(&d.rt, &d.load, at, data).await,
            }
        }
    }

    /// Writes `parts` behind each other from block `at` on, as one operation. Each is whole blocks.
    pub fn write_vectored(
        &self,
        at: MemberLba,
        parts: Vec<Bytes>,
    ) -> impl Future<Output = Result<(), IoError>> + use<> {
        let d = self.0.clone();
        async move {
            let blocks = parts.iter().map(|part| whole_blocks(part.len()).0).sum();
            let at = d.place(at, BlockCount(blocks))?;
            match &d.backend {
                Backend::Memory(memory) => {
                    let mut to = at.byte_offset();
                    for part in &parts {
                        memory.write(to, part);
                        to += part.len() as u64;
                    }
                    drop(parts);
                    d.answer_later().await;
                    Ok(())
                }
                Backend::File(file) => file.write(&d.rt, &d.load, at.byte_offset(), parts).await,
                Backend::Namespace(namespace) => {
                    Box::pin(namespace.write(&d.rt, &d.load, at.byte_offset(), parts)).await
                }
                Backend::Modelled(disk) => disk.write(&d.rt, &d.load, at, joined(parts)).await,
            }
        }
    }

    /// Makes durable every write that was answered before this began; through a slice also those beside it.
    pub fn flush(&self) -> impl Future<Output = Result<(), IoError>> + use<> {
        let d = self.0.clone();
        async move {
            match &d.backend {
                Backend::Memory(_) => {
                    d.answer_later().await;
                    Ok(())
                }
                Backend::File(file) => file.flush(&d.rt, &d.load).await,
                Backend::Namespace(namespace) => Box::pin(namespace.flush(&d.rt, &d.load)).await,
                Backend::Modelled(disk) => disk.flush(&d.rt, &d.load).await,
            }
        }
    }

    /// Tells the drive that these blocks hold nothing of value. A hint: a drive that cannot use it answers Ok.
    pub fn deallocate(&self, at: MemberLba, n: BlockCount) -> impl Future<Output = Result<(), IoError>> + use<> {
        let d = self.0.clone();
        async move {
            let at = d.place(at, n)?;
            match &d.backend {
                Backend::Memory(memory) => {
                    memory.deallocate(at.byte_offset(), n.bytes());
                    d.answer_later().await;
                    Ok(())
                }
                Backend::File(file) => file.deallocate(&d.rt, &d.load, at.byte_offset(), n.bytes()).await,
                Backend::Namespace(namespace) => {
                    Box::pin(namespace.deallocate(&d.rt, &d.load, at.byte_offset(), n.bytes())).await
                }
                Backend::Modelled(disk) => disk.deallocate(&d.rt, &d.load, at, n).await,
            }
        }
    }

    /// What `work` on this drive comes to, or [`IoError::TimedOut`] when it takes longer than `patience`: it goes on then, and
    /// nobody hears of it. Time in which this process stood still counts little.
    pub async fn within<T>(
        &self,
        patience: Duration,
        work: impl Future<Output = Result<T, IoError>>,
    ) -> Result<T, IoError> {
        let mut work = pin!(work);
        for _ in 0..LOOKS {
            match select(work.as_mut(), pin!(self.0.rt.sleep(patience / LOOKS))).await {
                Either::Left((answer, _)) => return answer,
                Either::Right(_) => {}
            }
        }
        Err(IoError::TimedOut)
    }

    /// Operations in flight, those of dropped futures included, those of slices not: each counts its own.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.0.load.count()
    }

    /// Resolves when no operation is in flight; those of slices do not count.
    pub async fn idle(&self) {
        self.0.load.idle().await;
    }
}

impl fmt::Debug for Drive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Drive({})", self.0.info.name)
    }
}

impl Shared {
    /// Where these blocks lie in what the backend has. An address out of range is an answer, not a bug: it may come from
    /// damaged bytes on another drive.
    fn place(&self, at: MemberLba, n: BlockCount) -> Result<MemberLba, IoError> {
        match at.0.checked_add(n.0) {
            Some(end) if end <= self.info.blocks.0 => Ok(self.from + BlockCount(at.0)),
            Some(_) | None => Err(IoError::Os(libc::EINVAL)),
        }
    }

    /// The second half of a memory operation.
    async fn answer_later(&self) {
        let _in_flight = InFlight::begin(&self.load);
        self.rt.yield_now().await;
    }
}

/// Counts what is not in the ring: a memory operation, a command before it is sent again. Also when its future is dropped.
struct InFlight<'a>(&'a Load);

impl<'a> InFlight<'a> {
    fn begin(load: &'a Load) -> InFlight<'a> {
        load.begin();
        InFlight(load)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.done();
    }
}

/// The parts in one piece.
fn joined(mut parts: Vec<Bytes>) -> Bytes {
    if parts.len() == 1 {
        return parts.remove(0);
    }
    let mut whole = Buf::for_overwrite(parts.iter().map(Bytes::len).sum());
    let mut at = 0;
    for part in &parts {
        whole[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    whole.freeze()
}

/// Whether NVMe commands can be sent: this kernel answers them truly, and there is a drive for them now.
pub(crate) fn passes_through() -> bool {
    kernel::passes_through().is_ok() && nvme::Generic::any()
}

/// A length that must be whole blocks, or it is our bug.
pub(crate) fn whole_blocks(len: usize) -> BlockCount {
    assert_eq!(len % BLOCK_BYTES, 0, "I/O of {len} bytes is not whole blocks");
    BlockCount((len / BLOCK_BYTES) as u64)
}
