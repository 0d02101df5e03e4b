//! Raw drives as namespaces: what arrays are measured against.
//!
//! Invariants: a drive's identity follows from its stable name, so hosts find the same thing again after a restart; a
//! member of an array is never served so.
//!
//! Not here: redundancy, checksums, parts of blocks (a block is 4096 bytes, also on drives with smaller sectors).

use std::rc::Rc;

use api::Problem;
use base::{BLOCK_BYTES, BlockCount, MemberLba};
use export::{Answer, Extent, ExtentState, Fault, Namespace, NamespaceInfo, Request};
use rt::{Buf, Bytes, Drive, IoError};
use uuid::Uuid;
use volume::REQUEST_BYTES_MAX;

use crate::drives::Source;
use crate::drives::checks::{Checks, Purpose};
use crate::ops::World;

/// Zeroes that are written at once.
const ZEROES: u64 = 1 << 20;

/// A raw drive.
#[derive(Clone)]
pub struct DirectDrive {
    drive: Drive,
    name: Rc<str>,
}

impl DirectDrive {
    /// Under the name "direct/" and the end of its own.
    fn new(drive: Drive) -> DirectDrive {
        let name = drive.info().name.rsplit('/').next().unwrap_or_default();
        DirectDrive { name: format!("direct/{name}").into(), drive }
    }

    /// The name under which it is exported.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The drive, as the user named it.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.drive.info().name
    }

    /// Its identity, which is of its subsystem too.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        Uuid::from_bytes(NamespaceInfo::uuid_of_name(&self.drive.info().stable_name))
    }

    /// The blocks of a range.
    fn blocks(&self, offset: u64, bytes: u64) -> Result<(MemberLba, BlockCount), Fault> {
        let unit = BLOCK_BYTES as u64;
        if !offset.is_multiple_of(unit) || !bytes.is_multiple_of(unit) {
            return Err(Fault::Misaligned);
        }
        match offset.checked_add(bytes) {
            Some(end) if end <= self.drive.info().blocks.bytes() => {
                Ok((MemberLba(offset / unit), BlockCount(bytes / unit)))
            }
            _ => Err(Fault::OutOfRange),
        }
    }

    /// Done; with `fua` after a flush, where the drive has a cache.
    async fn durable(&self, fua: bool) -> Result<Answer, Fault> {
        if fua && self.drive.info().volatile_cache {
            self.drive.flush().await.map_err(fault)?;
        }
        Ok(Answer::Done)
    }

    /// What was deallocated need not read as zeroes on every drive: they are written.
    async fn zero(&self, offset: u64, bytes: u64) -> Result<(), Fault> {
        let (first, _) = self.blocks(offset, bytes)?;
        let zeroes = Bytes::zeroed(bytes.min(ZEROES) as usize);
        let mut at = 0;
        while at < bytes {
            let n = ZEROES.min(bytes - at);
            let to = first + BlockCount::floor_from_bytes(at);
            self.drive.write(to, zeroes.slice(0..n as usize)).await.map_err(fault)?;
            at += n;
        }
        Ok(())
    }
}

/// Opens the drives of these names for hosts.
///
/// # Errors
/// When one is in use, is a member of an array, or has another's name.
pub async fn open(world: &World, names: &[String]) -> Result<Vec<DirectDrive>, Problem> {
    let wrong = |e| Problem::usage("a direct drive", e, "name a path, or mem:SIZE");
    let sources = names.iter().map(|name| name.parse::<Source>().map_err(wrong)).collect::<Result<Vec<_>, _>>()?;
    let checks =
        Checks { rt: &world.rt, registry: &world.registry, purpose: Purpose::Direct, force: false, take_from: &[] };
    let drives: Vec<DirectDrive> = checks.open_all(&sources).await?.into_iter().map(DirectDrive::new).collect();
    let twice = drives.iter().enumerate().find(|(n, drive)| drives[..*n].iter().any(|other| other.name == drive.name));
    match twice {
        None => Ok(drives),
        Some((_, drive)) => Err(Problem::usage(
            format!("drive {}", drive.drive.info().name),
            format!("another drive is already exported as {}", drive.name),
            "serve it with another Ashlar (--control)",
        )),
    }
}

fn fault(error: IoError) -> Fault {
    match error {
        IoError::Medium | IoError::Os(_) => Fault::Medium,
        IoError::Conflict => Fault::Unavailable,
        IoError::NoSpace => Fault::NoSpace,
        IoError::TimedOut => Fault::Unavailable,
        IoError::Gone => Fault::Gone,
    }
}

impl Namespace for DirectDrive {
    fn info(&self) -> NamespaceInfo {
        let info = self.drive.info();
        NamespaceInfo {
            name: self.name.to_string(),
            uuid: *self.uuid().as_bytes(),
            bytes: info.blocks.bytes(),
            min_block: BLOCK_BYTES as u32,
            preferred_block: BLOCK_BYTES as u32,
            max_request: REQUEST_BYTES_MAX,
            read_only: false,
            volatile_cache: info.volatile_cache,
            description: format!("raw drive {}", info.name),
        }
    }

    async fn submit(&self, request: Request) -> Result<Answer, Fault> {
        match request {
            Request::Read { offset, bytes } => {
                let (at, _) = self.blocks(offset, u64::from(bytes))?;
                let (done, buf) = self.drive.read(at, Buf::for_overwrite(bytes as usize)).await;
                done.map_err(fault)?;
                Ok(Answer::Data(vec![buf.freeze()]))
            }
            Request::Write { offset, data, fua } => {
                let (at, _) = self.blocks(offset, data.len() as u64)?;
                self.drive.write(at, data).await.map_err(fault)?;
                self.durable(fua).await
            }
            Request::Flush => self.drive.flush().await.map(|()| Answer::Done).map_err(fault),
            Request::WriteZeroes { offset, bytes, fua, .. } => {
                self.zero(offset, bytes).await?;
                self.durable(fua).await
            }
            Request::Deallocate { offset, bytes, fua } => {
                let (at, blocks) = self.blocks(offset, bytes)?;
                self.drive.deallocate(at, blocks).await.map_err(fault)?;
                self.durable(fua).await
            }
            // Drives do not tell.
            Request::Extents { offset, bytes, .. } => {
                self.blocks(offset, bytes)?;
                Ok(Answer::Extents(vec![Extent { bytes, state: ExtentState::Allocated }]))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rt::Rt;

    use super::*;
    use crate::cores::OtherCores;
    use crate::registry::Registry;

    #[test]
    fn it_keeps_its_contents_and_its_identity() {
        let rt = Rt::real().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d0");
        std::fs::File::create(&path).unwrap().set_len(16 << 20).unwrap();
        let world = World {
            rt: rt.clone(),
            registry: Registry::at(dir.path().join("state")),
            cores: OtherCores::default(),
            reserve: false,
            discard: array::Discard::Auto,
        };
        let names = [path.display().to_string()];
        rt.block_on(async {
            let first = open(&world, &names).await.unwrap().remove(0);
            assert_eq!((first.name(), first.info().bytes), ("direct/d0", 16 << 20));
            let identity = first.uuid();
            export::conformance::run(&first).await;
            assert!(open(&world, &names).await.is_err(), "it is in use");
            drop(first);
            assert_eq!(open(&world, &names).await.unwrap()[0].uuid(), identity);
            let names = ["mem:1M".to_owned(), "mem:1M".to_owned()];
            assert_eq!(open(&world, &names).await.unwrap().len(), 2);
        });
    }
}
