//! The character device of an NVMe namespace: found beside its block device, opened, locked, measured.
//!
//! Only a whole namespace counts whose blocks are plain: no partition, no metadata, no zones. Of a namespace with several
//! paths Linux has one character device beside the block device; it is locked like others, and not used (`choose`).
//!
//! Invariant: it is the same namespace as the block device: its neighbour in sysfs, with the same number and length.
//!
//! Not here: whether the kernel takes commands (`choose` tries it).
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::raw::c_void;
use std::path::Path;
use std::rc::Rc;

use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::super::sysfs::BlockDevice;
use super::Namespace;

/// All character devices of namespaces, in sysfs.
const CLASS: &str = "/sys/class/nvme-generic";
/// `_IO('N', 0x40)`: the namespace's number.
const IOCTL_ID: libc::c_ulong = 0x4E40;
/// `_IOWR('N', 0x41, struct nvme_passthru_cmd)`: an admin command.
const IOCTL_ADMIN: libc::c_ulong = 0xC048_4E41;
/// Identify, NVMe Base 2.0, 5.17; CNS 0: a namespace.
const IDENTIFY: u8 = 0x06;
/// Get Log Page, 5.16.
const GET_LOG_PAGE: u8 = 0x02;
/// The log of the drive's health, 5.16.1.3, and its length.
const HEALTH_LOG: u32 = 0x02;
const HEALTH_BYTES: usize = 512;
/// The whole drive.
const EVERY_NAMESPACE: u32 = 0xffff_ffff;
/// Length of what Identify answers.
const IDENTIFY_BYTES: usize = 4096;
/// LBA sizes that a block is whole LBAs of.
const LBA_SHIFTS: std::ops::RangeInclusive<u32> = 9..=12;

/// An open character device of a namespace.
pub(in crate::drive) struct Generic {
    fd: Rc<OwnedFd>,
}

impl Generic {
    /// Whether this machine has any.
    pub(in crate::drive) fn any() -> bool {
        std::fs::read_dir(CLASS).is_ok_and(|mut all| all.next().is_some())
    }

    /// Opens the one that belongs to `device`, and locks it with `lock`; or says why there is none to be had.
    ///
    /// It is locked also when nobody means to use it: a process that died may have commands in flight there, and the
    /// kernel releases its lock when they have ended.
    ///
    /// # Errors
    /// WOULDBLOCK when another process holds the lock: then the drive must not be used in another way either.
    pub(in crate::drive) fn open(
        device: &BlockDevice,
        read_only: bool,
        lock: FlockOperation,
    ) -> Result<Result<Generic, String>, Errno> {
        let Some(name) = device.generic_name() else { return Ok(Err("not a whole NVMe namespace".into())) };
        let Some(number) = device_number(device, &name) else {
            return Ok(Err(format!("the kernel has no character device {name}")));
        };
        let path = Path::new("/dev").join(&name);
        match open_and_lock(&path, number, read_only, lock) {
            Ok(fd) => Ok(Ok(Generic { fd: Rc::new(fd) })),
            Err(Errno::WOULDBLOCK) => Err(Errno::WOULDBLOCK),
            Err(error) => {
                tracing::warn!("{} cannot be opened and locked: {error}", path.display());
                Ok(Err(format!("its character device cannot be opened and locked: {error}")))
            }
        }
    }

    /// A further descriptor, for another thread: one open file and one lock with this one.
    pub(in crate::drive) fn duplicate(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }

    /// What [`Generic::duplicate`] gave.
    pub(in crate::drive) fn of_duplicate(fd: OwnedFd) -> Generic {
        Generic { fd: Rc::new(fd) }
    }

    /// The namespace that it is a way to; or why not.
    pub(in crate::drive) fn namespace(
        &self,
        block: &OwnedFd,
        device: &BlockDevice,
        bytes: u64,
    ) -> Result<Namespace, &'static str> {
        let id = namespace_id(&self.fd)?;
        if namespace_id(block)? != id {
            return Err("the character device is of another namespace");
        }
        let sector_bytes = u64::from(device.sector_bytes());
        let format = match device.metadata_bytes() {
            // The drive need not be asked.
            Some(0) if sector_bytes.is_power_of_two() => {
                Format::new(bytes / sector_bytes, sector_bytes.trailing_zeros())?
            }
            Some(0) => return Err(UNKNOWN_FORMAT),
            Some(_) => return Err(METADATA),
            None => Format::parse(&*identify(&self.fd, id)?)?,
        };
        if format.lbas << format.lba_shift != bytes || sector_bytes != 1 << format.lba_shift {
            return Err("the drive and the kernel do not agree on its size");
        }
        if device.zoned().is_some_and(|model| model != "none") {
            return Err("it is a zoned namespace");
        }
        // A range counts its LBAs in 32 bits.
        let range_bytes_max = u64::from(u32::MAX) << format.lba_shift;
        let deallocate = device.discard_bytes_max().min(range_bytes_max);
        Ok(Namespace {
            fd: self.fd.clone(),
            sysfs: device.directory.clone(),
            id,
            lba_shift: format.lba_shift,
            limits: device.command_limits().ok_or("its limits are not known, or too narrow")?,
            deallocate_bytes_max: deallocate - deallocate % base::BLOCK_BYTES as u64,
        })
    }
}

fn open_and_lock(path: &Path, number: u64, read_only: bool, lock: FlockOperation) -> Result<OwnedFd, Errno> {
    let access = if read_only { OFlags::RDONLY } else { OFlags::RDWR };
    let fd = rustix::fs::open(path, access | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())?;
    let stat = rustix::fs::fstat(&fd)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::CharacterDevice || stat.st_rdev != number {
        return Err(Errno::NXIO);
    }
    rustix::fs::flock(&fd, lock)?;
    Ok(fd)
}

/// The device number of the character device, if it lies beside the block device in sysfs.
fn device_number(device: &BlockDevice, name: &str) -> Option<u64> {
    let directory = std::fs::canonicalize(Path::new(CLASS).join(name)).ok()?;
    if directory.parent() != device.directory.parent() {
        return None;
    }
    let text = std::fs::read_to_string(directory.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

const METADATA: &str = "its blocks have metadata";
const UNKNOWN_FORMAT: &str = "its format is not known here";

/// How a namespace is formatted.
#[derive(Debug, PartialEq, Eq)]
struct Format {
    lbas: u64,
    lba_shift: u32,
}

impl Format {
    /// From the Identify Namespace data structure, NVM Command Set 1.0, 4.1.5.1; or why it is of no use here.
    fn parse(data: &[u8; IDENTIFY_BYTES]) -> Result<Format, &'static str> {
        let lbas = u64::from_le_bytes(data[..8].try_into().expect("eight bytes"));
        let (formats, chosen) = (data[25], data[26]);
        // Bits 6 and 5 of FLBAS go on where bits 3 to 0 end, when there are more than 16 formats.
        let high = if formats >= 16 { usize::from(chosen >> 5 & 3) << 4 } else { 0 };
        let at = 128 + 4 * (high + usize::from(chosen & 15));
        let metadata_bytes = u16::from_le_bytes([data[at], data[at + 1]]);
        let lba_shift = u32::from(data[at + 2]);
        if metadata_bytes == 0 { Format::new(lbas, lba_shift) } else { Err(METADATA) }
    }

    fn new(lbas: u64, lba_shift: u32) -> Result<Format, &'static str> {
        if !LBA_SHIFTS.contains(&lba_shift) || lbas.leading_zeros() < lba_shift {
            return Err(UNKNOWN_FORMAT);
        }
        Ok(Format { lbas, lba_shift })
    }
}

/// Whether the namespace of this block device is known to be seen by one controller alone: bit 0 of NMIC, NVM Command Set 1.0,
/// 4.1.5.1.
pub(in crate::drive) fn is_private(fd: &OwnedFd) -> bool {
    const NMIC: usize = 30;
    namespace_id(fd).and_then(|id| identify(fd, id)).is_ok_and(|data| data[NMIC] & 1 == 0)
}

/// The number of the namespace that a descriptor is of.
pub(in crate::drive) fn namespace_id(fd: &OwnedFd) -> Result<u32, &'static str> {
    // SAFETY: this ioctl has no argument; on a descriptor that has no such ioctl it fails.
    let id = unsafe { libc::ioctl(fd.as_raw_fd(), IOCTL_ID) };
    u32::try_from(id).ok().filter(|id| *id != 0).ok_or("it reports no namespace number")
}

/// `struct nvme_passthru_cmd`.
#[repr(C)]
#[derive(Default)]
pub(in crate::drive) struct IoctlCommand {
    pub(in crate::drive) opcode: u8,
    pub(in crate::drive) flags: u8,
    pub(in crate::drive) reserved: u16,
    pub(in crate::drive) namespace: u32,
    pub(in crate::drive) dwords_2_3: [u32; 2],
    pub(in crate::drive) metadata: u64,
    pub(in crate::drive) addr: u64,
    pub(in crate::drive) metadata_len: u32,
    pub(in crate::drive) data_len: u32,
    pub(in crate::drive) dwords_10_15: [u32; 6],
    pub(in crate::drive) timeout_ms: u32,
    pub(in crate::drive) result: u32,
}

const _: () = assert!(size_of::<IoctlCommand>() == 72);

fn identify(fd: &OwnedFd, namespace: u32) -> Result<Box<[u8; IDENTIFY_BYTES]>, &'static str> {
    let mut data = Box::new([0; IDENTIFY_BYTES]);
    let asked = ask(fd, (IDENTIFY, namespace, 0), &mut *data);
    asked.map(|()| data).map_err(|_| "it does not identify its namespace to this user")
}

/// The health log of the drive at `path`, a block device of one of its namespaces.
///
/// # Errors
/// When it is none, or does not answer this user.
pub(crate) fn health_log(path: &Path) -> io::Result<[u8; HEALTH_BYTES]> {
    let fd = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())?;
    if FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode) != FileType::BlockDevice {
        return Err(io::Error::other("it is not a block device"));
    }
    let mut page = [0; HEALTH_BYTES];
    // Its length in words, less one, and which log.
    let words = (HEALTH_BYTES as u32 / 4 - 1) << 16 | HEALTH_LOG;
    ask(&fd, (GET_LOG_PAGE, EVERY_NAMESPACE, words), &mut page)?;
    Ok(page)
}

/// An admin command that returns data: its opcode, its namespace, and the first of its own words.
fn ask(fd: &OwnedFd, (opcode, namespace, word): (u8, u32, u32), data: &mut [u8]) -> io::Result<()> {
    let mut command = IoctlCommand {
        opcode,
        namespace,
        addr: data.as_mut_ptr() as u64,
        data_len: data.len() as u32,
        dwords_10_15: [word, 0, 0, 0, 0, 0],
        ..IoctlCommand::default()
    };
    // SAFETY: the kernel reads and writes the command, and fills `data_len` bytes at `addr`; both outlive the call.
    let answer = unsafe { libc::ioctl(fd.as_raw_fd(), IOCTL_ADMIN, (&raw mut command).cast::<c_void>()) };
    match answer {
        0 => Ok(()),
        // Below zero the kernel's error, above it the status of the drive.
        n if n < 0 => Err(io::Error::last_os_error()),
        status => Err(io::Error::other(format!("NVMe status {status:x}h"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Identify data with LBA format `index`.
    fn data(formats: u8, chosen: u8, index: usize, format: [u8; 4]) -> [u8; IDENTIFY_BYTES] {
        let mut data = [0; IDENTIFY_BYTES];
        data[..8].copy_from_slice(&1000u64.to_le_bytes());
        (data[25], data[26]) = (formats, chosen);
        data[128 + 4 * index..][..4].copy_from_slice(&format);
        data
    }

    #[test]
    fn formats() {
        let format = |data: [u8; IDENTIFY_BYTES]| Format::parse(&data).map(|f| (f.lbas, f.lba_shift)).ok();
        assert_eq!(format(data(0, 0, 0, [0, 0, 9, 0])), Some((1000, 9)));
        assert_eq!(format(data(7, 0x14, 4, [0, 0, 12, 2])), Some((1000, 12)));
        assert_eq!(format(data(32, 0x21, 17, [0, 0, 12, 0])), Some((1000, 12)));
        assert_eq!(format(data(15, 0x21, 1, [0, 0, 9, 0])), Some((1000, 9)));
        // Metadata; LBAs that are too large, too small, or nothing.
        assert_eq!(format(data(0, 0, 0, [8, 0, 9, 0])), None);
        for shift in [0, 8, 13, 255] {
            assert_eq!(format(data(0, 0, 0, [0, 0, shift, 0])), None, "{shift}");
        }
    }
}
