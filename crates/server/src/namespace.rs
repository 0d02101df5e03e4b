//! Volumes as the exports see them, and all that is exported.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use export::{Answer, Directory, Either, Fault, Namespace, NamespaceInfo, Request};

use crate::direct::DirectDrive;
use crate::lease::Lease;
use crate::ops::open::Opened;
use crate::volumes::ArrayVolume;

/// A volume under its export name, ARRAY/VOLUME.
#[derive(Clone)]
pub struct VolumeNamespace {
    array_name: Rc<str>,
    leased: Lease<ArrayVolume>,
    read_only: bool,
}

impl VolumeNamespace {
    /// A leased volume of an array that is being served under this name.
    #[must_use]
    pub fn new(array_name: &str, opened: &Opened, leased: Lease<ArrayVolume>) -> VolumeNamespace {
        VolumeNamespace { array_name: array_name.into(), leased, read_only: opened.read_only }
    }
}

impl Namespace for VolumeNamespace {
    fn info(&self) -> NamespaceInfo {
        let info = self.leased.info();
        NamespaceInfo {
            description: format!("volume {} of array {}", info.name, self.array_name),
            name: format!("{}/{}", self.array_name, info.name),
            read_only: self.read_only,
            ..info
        }
    }

    fn apart(&self) -> Self {
        VolumeNamespace { array_name: self.array_name.clone(), leased: self.leased.apart(), read_only: self.read_only }
    }

    async fn submit(&self, request: Request) -> Result<Answer, Fault> {
        self.leased.submit(request).await
    }
}

/// What is exported: a volume of an array, or a raw drive.
pub type Exported = Either<VolumeNamespace, DirectDrive>;

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
            let live = opened.array.first().volumes().into_iter().filter(|v| v.state == api::VolumeState::Live);
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
        let volume = |opened: &Opened| Some(VolumeNamespace::new(array, opened, opened.lease(volume)?));
        let direct = || self.direct.iter().find(|drive| drive.name() == name).cloned().map(Either::Right);
        served.get(array).and_then(volume).map(Either::Left).or_else(direct)
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
