//! The choice of the way to a drive: the one that was asked for where the drive offers it and a first read has proven it,
//! else O_DIRECT.
//!
//! Invariants: a way that is chosen has read the first block as O_DIRECT reads it, of a slice that was sent the slice's first
//! (the drive's may be written meanwhile by another thread); why one that was asked for is not used is kept, and logged.
//!
//! Not here: what each way takes (`open`, `nvme`).

use std::rc::Rc;

use rustix::fs::Advice;

use super::file::File;
use super::nvme::{Generic, Namespace};
use super::sysfs::BlockDevice;
use super::{Access, Backend, Load, Ways, kernel};
use crate::{Buf, Rt};

/// What opening found. A drive and its slices keep it, and with it every descriptor open and locked, whichever way is used.
pub(super) struct Found {
    /// As the user gave it.
    pub(super) name: String,
    /// The block device or file, used by O_DIRECT.
    pub(super) file: File,
    pub(super) device: Option<BlockDevice>,
    /// Also when it is not used; or why there is none.
    pub(super) generic: Result<Generic, String>,
    /// Length in bytes.
    pub(super) bytes: u64,
    pub(super) read_only: bool,
}

/// Chooses. The first read is of the block at byte `first`.
pub(super) async fn choose(rt: &Rt, ways: Ways, found: &Found, first: u64) -> Backend {
    let mut file = found.file.clone();
    let refused = match ways {
        Ways::Plain => None,
        Ways::Poll => poll(rt, found, &mut file, first).await.err().map(|why| format!("not polled: {why}")),
        Ways::Passthrough => match pass_through(rt, found, first).await {
            Ok(namespace) => return Backend::Namespace(Rc::new(namespace)),
            Err(why) => Some(format!("no passthrough: {why}")),
        },
    };
    if let Some(why) = &refused {
        tracing::warn!("{}: {}, {why}", found.name, file.access());
    }
    file.set_access_why(refused);
    Backend::File(file)
}

/// The block device, if what it passes on is what it was given.
fn namespace_device(found: &Found) -> Result<&BlockDevice, String> {
    // What splits requests at places that it does not tell (device mapper, a partition's offset, paths that differ) is
    // not polled. A command to a namespace whose paths are all away fails at once, where its block device would wait.
    let is_namespace = |device: &&BlockDevice| device.generic_name().is_some() && found.file.access() == Access::Direct;
    let device = found.device.as_ref().filter(is_namespace).ok_or("not a whole NVMe namespace")?;
    if device.has_paths() { Err("its namespace may have several paths".into()) } else { Ok(device) }
}

/// Makes the file a polled one, if it reads the same then.
async fn poll(rt: &Rt, found: &Found, file: &mut File, first: u64) -> Result<(), String> {
    let which = namespace_device(found)?.polls()?;
    if !rt.inner.ring().can_poll() {
        return Err("the kernel does not support a ring for it".into());
    }
    let plain = read(rt, file, first).await?;
    file.poll(which);
    if read(rt, file, first).await.is_ok_and(|again| again[..] == plain[..]) && file.access() == Access::DirectPolled {
        return Ok(());
    }
    file.poll_no_more();
    Err("a polled read failed".into())
}

/// The namespace behind the drive, if it reads the same.
async fn pass_through(rt: &Rt, found: &Found, first: u64) -> Result<Namespace, String> {
    let device = namespace_device(found)?;
    kernel::passes_through()?;
    if found.read_only || device.is_read_only() {
        return Err("it is read-only".into());
    }
    if !rt.inner.ring().is_wide() {
        return Err(
            "no NVMe drive was present when the server started, or the kernel does not support a ring for it".into()
        );
    }
    let generic = found.generic.as_ref().map_err(String::clone)?;
    let namespace = generic.namespace(&found.file.fd, device, found.bytes)?;
    forget_pages(rt, &found.file).await?;
    let plain = read(rt, &found.file, first).await?;
    // What is not read must not look like what was.
    let mut buf = Buf::zeroed(plain.len());
    buf.iter_mut().zip(plain.iter()).for_each(|(to, from)| *to = !from);
    let (done, buf) = namespace.read(rt, &Rc::default(), first, buf).await;
    if done.is_ok() && buf[..] == plain[..] { Ok(namespace) } else { Err("a first command failed".into()) }
}

/// Writes back what others have left in the page cache of the block device, and drops it: commands pass it by, so it would
/// be written over what they write, later.
async fn forget_pages(rt: &Rt, file: &File) -> Result<(), String> {
    file.flush(rt, &Rc::default()).await.map_err(|e| format!("its page cache cannot be written back: {e}"))?;
    rustix::fs::fadvise(&file.fd, 0, None, Advice::DontNeed)
        .map_err(|e| format!("its page cache cannot be dropped: {e}"))
}

/// The block at byte `at`.
async fn read(rt: &Rt, file: &File, at: u64) -> Result<Buf, String> {
    let load: Rc<Load> = Rc::default();
    let (done, buf) = file.read(rt, &load, at, Buf::zeroed(base::BLOCK_BYTES)).await;
    done.map(|()| buf).map_err(|e| format!("its first block cannot be read: {e}"))
}
