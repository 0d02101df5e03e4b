//! Volumes as the exports see them: the adapter between `array` and `export`.
//!
//! Invariant: one table from [`array::Fault`] to [`export::Fault`], and no other translation.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use array::{ExtentKind, Volume};
use export::{Directory, Extent, ExtentState, Fault, Namespace, NamespaceInfo};
use rt::Bytes;

use crate::ops::open::{Lent, Opened};

/// Longest request an export may send: as long as NBD clients expect at least to work.
const REQUEST_BYTES_MAX: u32 = 32 << 20;

/// A volume under its export name, ARRAY/VOLUME.
#[derive(Clone)]
pub struct VolumeNamespace {
    array_name: Rc<str>,
    lent: Lent,
    read_only: bool,
    volatile_cache: bool,
}

impl VolumeNamespace {
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
        let (name, bytes) = self.lent.volume().map_or_else(Default::default, |v| (v.name(), v.bytes()));
        NamespaceInfo {
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

/// The arrays that a server serves, by name.
pub type Served = Rc<RefCell<BTreeMap<String, Opened>>>;

/// All volumes of all served arrays.
#[derive(Clone)]
pub struct Volumes(pub Served);

impl Directory for Volumes {
    type N = VolumeNamespace;

    fn names(&self) -> Vec<String> {
        let served = self.0.borrow();
        let mut names = vec![];
        for (array, opened) in served.iter() {
            let live = opened.array.volumes().into_iter().filter(|v| v.state == "live");
            names.extend(live.map(|v| format!("{array}/{}", v.name)));
        }
        names.sort();
        names
    }

    fn open(&self, name: &str) -> Option<VolumeNamespace> {
        if name.is_empty() {
            let names = self.names();
            return match &names[..] {
                [only] => self.open(only),
                _ => None,
            };
        }
        let (array, volume) = name.split_once('/')?;
        let served = self.0.borrow();
        let opened = served.get(array)?;
        Some(VolumeNamespace {
            array_name: array.into(),
            lent: opened.lend(volume)?,
            read_only: opened.read_only,
            volatile_cache: opened.array.status().volatile_cache,
        })
    }
}
