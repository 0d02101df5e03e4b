//! Volumes as the exports see them, the adapter between `array` and `export`; and all that is exported.
//!
//! Invariant: one table from [`array::Fault`] to [`export::Fault`], and no other translation.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use array::{ExtentKind, Volume};
use export::{Directory, Extent, ExtentState, Fault, Namespace, NamespaceInfo};
use rt::Bytes;

use crate::direct::DirectDrive;
use crate::ops::open::{Lent, Opened};

/// Longest request an export may send: as long as NBD clients expect at least to work.
pub const REQUEST_BYTES_MAX: u32 = 32 << 20;

/// A volume under its export name, ARRAY/VOLUME.
#[derive(Clone)]
pub struct VolumeNamespace {
    array_name: Rc<str>,
    lent: Lent,
    read_only: bool,
    volatile_cache: bool,
}

impl VolumeNamespace {
    /// A volume on loan from an array that is being served under this name.
    #[must_use]
    pub fn new(array_name: &str, opened: &Opened, lent: Lent) -> VolumeNamespace {
        let volatile_cache = lent.volume().is_some_and(|volume| volume.volatile_cache());
        VolumeNamespace { array_name: array_name.into(), lent, read_only: opened.read_only, volatile_cache }
    }

    fn volume(&self) -> Result<Volume, Fault> {
        self.lent.volume().ok_or(Fault::Gone)
    }
}

const fn fault(fault: array::Fault) -> Fault {
    match fault {
        array::Fault::Medium => Fault::Medium,
        array::Fault::NoSpace => Fault::NoSpace,
        array::Fault::ReadOnly => Fault::ReadOnly,
        array::Fault::OutOfRange => Fault::OutOfRange,
        array::Fault::Misaligned => Fault::Misaligned,
        array::Fault::Frozen => Fault::Unavailable,
        array::Fault::Closed => Fault::Gone,
    }
}

impl Namespace for VolumeNamespace {
    fn info(&self) -> NamespaceInfo {
        let volume = self.lent.volume();
        let (name, bytes, uuid) = volume.map_or_else(Default::default, |v| (v.name(), v.bytes(), v.uuid()));
        NamespaceInfo {
            uuid: *uuid.as_bytes(),
            description: format!("volume {name} of array {}", self.array_name),
            name: format!("{}/{name}", self.array_name),
            bytes,
            min_block: 512,
            preferred_block: base::BLOCK_BYTES as u32,
            max_request: REQUEST_BYTES_MAX,
            read_only: self.read_only,
            volatile_cache: self.volatile_cache,
        }
    }

    async fn read(&self, offset: u64, bytes: u32) -> Result<Vec<Bytes>, Fault> {
        self.volume()?.read(offset, u64::from(bytes)).await.map_err(fault)
    }

    async fn write(&self, offset: u64, data: Bytes, fua: bool) -> Result<(), Fault> {
        self.volume()?.write(offset, data, fua).await.map_err(fault)
    }

    async fn flush(&self) -> Result<(), Fault> {
        self.volume()?.flush().await.map_err(fault)
    }

    async fn write_zeroes(&self, offset: u64, bytes: u64, may_deallocate: bool, fua: bool) -> Result<(), Fault> {
        self.volume()?.write_zeroes(offset, bytes, may_deallocate, fua).await.map_err(fault)
    }

    async fn deallocate(&self, offset: u64, bytes: u64, fua: bool) -> Result<(), Fault> {
        self.volume()?.deallocate(offset, bytes, fua).await.map_err(fault)
    }

    async fn extents(&self, offset: u64, bytes: u64, at_most: usize) -> Result<Vec<Extent>, Fault> {
        let runs = self.volume()?.extents(offset, bytes, at_most).await.map_err(fault)?;
        let state = |kind| match kind {
            ExtentKind::Allocated => ExtentState::Allocated,
            ExtentKind::Hole => ExtentState::Hole,
            ExtentKind::Zero => ExtentState::Zero,
        };
        Ok(runs.into_iter().map(|(bytes, kind)| Extent { bytes, state: state(kind) }).collect())
    }
}

/// What is exported.
#[derive(Clone)]
pub enum Exported {
    /// A volume of an array.
    Volume(VolumeNamespace),
    /// A raw drive.
    Direct(DirectDrive),
}

impl Namespace for Exported {
    fn info(&self) -> NamespaceInfo {
        match self {
            Exported::Volume(volume) => volume.info(),
            Exported::Direct(drive) => drive.info(),
        }
    }

    async fn read(&self, offset: u64, bytes: u32) -> Result<Vec<Bytes>, Fault> {
        match self {
            Exported::Volume(volume) => volume.read(offset, bytes).await,
            Exported::Direct(drive) => drive.read(offset, bytes).await,
        }
    }

    async fn write(&self, offset: u64, data: Bytes, fua: bool) -> Result<(), Fault> {
        match self {
            Exported::Volume(volume) => volume.write(offset, data, fua).await,
            Exported::Direct(drive) => drive.write(offset, data, fua).await,
        }
    }

    async fn flush(&self) -> Result<(), Fault> {
        match self {
            Exported::Volume(volume) => volume.flush().await,
            Exported::Direct(drive) => drive.flush().await,
        }
    }

    async fn write_zeroes(&self, offset: u64, bytes: u64, may_deallocate: bool, fua: bool) -> Result<(), Fault> {
        match self {
            Exported::Volume(volume) => volume.write_zeroes(offset, bytes, may_deallocate, fua).await,
            Exported::Direct(drive) => drive.write_zeroes(offset, bytes, may_deallocate, fua).await,
        }
    }

    async fn deallocate(&self, offset: u64, bytes: u64, fua: bool) -> Result<(), Fault> {
        match self {
            Exported::Volume(volume) => volume.deallocate(offset, bytes, fua).await,
            Exported::Direct(drive) => drive.deallocate(offset, bytes, fua).await,
        }
    }

    async fn extents(&self, offset: u64, bytes: u64, at_most: usize) -> Result<Vec<Extent>, Fault> {
        match self {
            Exported::Volume(volume) => volume.extents(offset, bytes, at_most).await,
            Exported::Direct(drive) => drive.extents(offset, bytes, at_most).await,
        }
    }
}

/// The arrays that a server serves, by name.
pub type Served = Rc<RefCell<BTreeMap<String, Opened>>>;

/// All volumes of all served arrays, and all direct drives.
#[derive(Clone)]
pub struct All {
    /// The arrays.
    pub served: Served,
    /// The direct drives.
    pub direct: Rc<[DirectDrive]>,
}

impl All {
    fn all_names(&self) -> Vec<String> {
        let served = self.served.borrow();
        let mut names: Vec<String> = self.direct.iter().map(|drive| drive.name().to_owned()).collect();
        for (array, opened) in served.iter() {
            let live = opened.array.volumes().into_iter().filter(|v| v.state == "live");
            names.extend(live.map(|v| format!("{array}/{}", v.name)));
        }
        names.sort();
        names
    }

    fn find(&self, name: &str) -> Option<Exported> {
        if name.is_empty() {
            let names = self.all_names();
            return match &names[..] {
                [only] => self.find(only),
                _ => None,
            };
        }
        let (array, volume) = name.split_once('/')?;
        let served = self.served.borrow();
        let volume = |opened: &Opened| Some(VolumeNamespace::new(array, opened, opened.lend(volume)?));
        let direct = || self.direct.iter().find(|drive| drive.name() == name).cloned().map(Exported::Direct);
        served.get(array).and_then(volume).map(Exported::Volume).or_else(direct)
    }
}

impl Directory for All {
    type N = Exported;

    async fn names(&self) -> Vec<String> {
        self.all_names()
    }

    async fn open(&self, name: &str) -> Option<Exported> {
        self.find(name)
    }
}
