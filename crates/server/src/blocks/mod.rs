//! Volumes as block devices of this machine's kernel (ublk): which volume has which number, and what is served.
//!
//! ```text
//!   attach: list (blocks.toml) -> kernel -> names        detach: kernel -> names -> list
//! ```
//!
//! Invariants:
//! - a volume has one device at most; a verb on it has the volume's turn until it is done;
//! - a listed device is made, or taken over, whenever its array is served: after a crash, a restart, and a boot;
//! - a server that ends by a signal leaves its devices in the kernel, where requests wait for the next server; the stop of a
//!   server or an array by a verb removes them from the kernel, and `detach` also from the list;
//! - while an array is being stopped by a verb no device of it is made.
//!
//! Not here: the kernel's side (`export::ublk`); verbs (`daemon::blocks`).

pub mod names;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use api::Problem;
use export::ublk::{BlockDevice, ControlError, UblkError};
use futures::lock::Mutex;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::listed::List;

/// Where the kernel's devices are.
pub const DEV: &str = "/dev";

/// A volume and the number N of its /dev/ublkbN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listed {
    /// The array.
    pub array: Uuid,
    /// The volume.
    pub volume: Uuid,
    /// The number.
    pub number: u32,
    /// Whether it was ever begun with; lists of before do not say.
    #[serde(default = "yes")]
    pub started: bool,
}

fn yes() -> bool {
    true
}

/// The list of them in `dir`.
#[must_use]
pub fn list(dir: &Path) -> List<Listed> {
    List::at(dir, "blocks", "volumes that are block devices")
}

/// All block devices of a server.
pub struct Blocks {
    list: List<Listed>,
    /// What the list says, once it was read.
    known: RefCell<Option<Vec<Listed>>>,
    places: RefCell<BTreeMap<Uuid, Rc<Place>>>,
    ending: RefCell<BTreeSet<Uuid>>,
    left: Cell<bool>,
}

/// The place of one volume's device.
pub struct Place {
    /// Its array.
    pub array: Uuid,
    /// The volume.
    pub volume: Uuid,
    /// Who has it may change what is served.
    pub turn: Mutex<()>,
    served: RefCell<Option<Served>>,
    /// What was last said of it in the log.
    said: RefCell<Option<String>>,
}

/// A device that is served.
#[derive(Clone)]
pub struct Served {
    /// It.
    pub device: BlockDevice,
    /// Its names.
    pub names: Vec<PathBuf>,
    /// Since when, in seconds since 1970.
    pub since: u64,
    /// Whether it is gone with this process: of an array in memory.
    pub volatile: bool,
}

impl Served {
    /// Where it is.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        names::device(Path::new(DEV), self.device.number())
    }
}

impl Place {
    /// What is listed of it: the number of its device, and whether that was ever begun with.
    #[must_use]
    pub fn listed(&self, number: u32, started: bool) -> Listed {
        Listed { array: self.array, volume: self.volume, number, started }
    }

    /// What is served here; nothing where the kernel has ended it.
    #[must_use]
    pub fn served(&self) -> Option<Served> {
        self.served.borrow().clone().filter(|served| served.device.is_serving())
    }

    /// From now on this is served here, or nothing.
    pub fn set(&self, served: Option<Served>) {
        let before = self.served.replace(served);
        drop(before);
        self.said.take();
    }

    /// Whether this is something else than what was said last.
    #[must_use]
    pub fn is_news(&self, text: &str) -> bool {
        self.said.replace(Some(text.to_owned())).as_deref() != Some(text)
    }
}

impl Blocks {
    /// Those listed in `dir`; none is served yet.
    #[must_use]
    pub fn of(dir: &Path) -> Blocks {
        Blocks {
            list: list(dir),
            known: RefCell::default(),
            places: RefCell::default(),
            ending: RefCell::default(),
            left: Cell::default(),
        }
    }

    /// What is listed.
    ///
    /// # Errors
    /// When the list cannot be read.
    pub fn listed(&self) -> Result<Vec<Listed>, Problem> {
        if let Some(known) = &*self.known.borrow() {
            return Ok(known.clone());
        }
        let read = self.list.read()?;
        *self.known.borrow_mut() = Some(read.clone());
        Ok(read)
    }

    /// What is listed of a volume.
    ///
    /// # Errors
    /// When the list cannot be read.
    pub fn listed_of(&self, volume: Uuid) -> Result<Option<Listed>, Problem> {
        Ok(self.listed()?.into_iter().find(|listed| listed.volume == volume))
    }

    /// Lists a volume's device.
    ///
    /// # Errors
    /// When the list cannot be written.
    pub fn put(&self, listed: Listed) -> Result<(), Problem> {
        self.known.take();
        self.list.put(listed, |other| other.volume == listed.volume)
    }

    /// Lists those no more.
    ///
    /// # Errors
    /// When the list cannot be written.
    pub fn take_off(&self, is_one: impl Fn(&Listed) -> bool) -> Result<(), Problem> {
        self.known.take();
        self.list.take_off(is_one)
    }

    /// The place of a volume of an array.
    #[must_use]
    pub fn place(&self, array: Uuid, volume: Uuid) -> Rc<Place> {
        let new = || {
            Rc::new(Place { array, volume, turn: Mutex::new(()), served: RefCell::default(), said: RefCell::default() })
        };
        self.places.borrow_mut().entry(volume).or_insert_with(new).clone()
    }

    /// The places of an array, or all.
    #[must_use]
    pub fn places(&self, array: Option<Uuid>) -> Vec<Rc<Place>> {
        let places = self.places.borrow();
        places.values().filter(|place| array.is_none_or(|array| place.array == array)).cloned().collect()
    }

    /// From now on no device of this array is made; of no array, if none is said.
    pub fn end(&self, arrays: impl IntoIterator<Item = Uuid>) {
        self.ending.borrow_mut().extend(arrays);
    }

    /// It is served, or goes on: its devices may be made.
    pub fn go_on(&self, arrays: impl IntoIterator<Item = Uuid>) {
        arrays.into_iter().for_each(|array| {
            self.ending.borrow_mut().remove(&array);
        });
    }

    /// From now on no device is made: those that are there are left to the next server.
    pub fn leave(&self) {
        self.left.set(true);
    }

    /// Whether devices are being left to the next server.
    #[must_use]
    pub fn leaves(&self) -> bool {
        self.left.get()
    }

    /// Whether devices of this array may be made.
    #[must_use]
    pub fn may_begin(&self, array: Uuid) -> bool {
        !self.left.get() && !self.ending.borrow().contains(&array)
    }
}

/// By what a device is known as a volume's: any 64 bits of the volume's identity do.
#[must_use]
pub fn mark(volume: Uuid) -> u64 {
    let (high, low) = volume.as_u64_pair();
    high.rotate_left(1) ^ low
}

/// The lowest number from `from` on that `taken` has not.
#[must_use]
pub fn free_number(taken: &[u32], from: u32) -> u32 {
    (from..).find(|number| !taken.contains(number)).unwrap_or(from)
}

/// A problem of the kernel's block devices.
pub fn problem(what: impl Into<String>, error: &UblkError) -> Problem {
    const OTHERWISE: &str = "or use the kernel's NVMe/TCP initiator (`ashlar attach --by nvme`)";
    let (code, todo) = match error {
        UblkError::Kernel(ControlError::NoModule) => ("ublk_missing", "load it, "),
        UblkError::Kernel(ControlError::NotPermitted) => ("ublk_permission", "run the server as root, "),
        UblkError::Kernel(ControlError::Missing { .. }) => ("ublk_missing", "use a newer kernel, "),
        UblkError::Block { .. } => ("ublk_missing", ""),
        UblkError::Kernel(ControlError::Busy { .. }) => {
            let todo = "unmount it and close what has it open; --force takes it away nevertheless, with what is not written yet";
            return Problem::refused("volume_in_use", what, error.to_string(), todo);
        }
        UblkError::Kernel(ControlError::Taken { .. }) | UblkError::NotOurs { .. } | UblkError::Alive { .. } => {
            let todo = "stop the program that has it, or try again once it is gone";
            return Problem::refused("block_device_taken", what, error.to_string(), todo);
        }
        UblkError::ReadOnly { .. } => {
            let todo = "serve the array for writing: what waits is written then";
            return Problem::refused("read_only", what, error.to_string(), todo);
        }
        UblkError::Kernel(ControlError::Slow { .. }) => {
            let todo = "try again; where it hangs (`dmesg`), `ashlar detach --force` forgets it: it goes when the machine boots";
            return Problem::refused("block_device_slow", what, error.to_string(), todo);
        }
        UblkError::Unnoticed { .. } => {
            let todo = "close what has it open, and it is made again; `ashlar detach --force` takes it away nevertheless, with what is not written yet";
            return Problem::refused("block_device_slow", what, error.to_string(), todo);
        }
        UblkError::Kernel(ControlError::Kernel { .. })
        | UblkError::Absent { .. }
        | UblkError::Stopped { .. }
        | UblkError::Size { .. }
        | UblkError::Unsupported
        | UblkError::NotServed { .. } => {
            return Problem::refused("block_device_failed", what, error.to_string(), "try again; `dmesg` may say more");
        }
    };
    Problem::refused(code, what, error.to_string(), format!("{todo}{OTHERWISE}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_begin_at_the_lowest_that_is_free() {
        assert_eq!([free_number(&[0, 2], 0), free_number(&[0, 2], 2), free_number(&[], 0)], [1, 3, 0]);
    }

    #[test]
    fn what_an_older_list_names_was_started() {
        let (array, volume) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let older = format!("array = \"{array}\"\nvolume = \"{volume}\"\nnumber = 3\n");
        let listed: Listed = toml::from_str(&older).unwrap();
        assert_eq!(listed, Listed { array, volume, number: 3, started: true });
        let never = Listed { started: false, ..listed };
        assert_eq!(toml::from_str::<Listed>(&toml::to_string(&never).unwrap()).unwrap(), never);
    }

    #[test]
    fn marks_tell_volumes_apart() {
        let (a, b) = (Uuid::from_u128(1 << 64 | 1), Uuid::from_u128(2 << 64 | 2));
        assert_ne!(mark(a), mark(b));
    }

    #[test]
    fn while_an_array_is_stopped_none_of_its_devices_is_made() {
        let blocks = Blocks::of(Path::new("/no/such/place"));
        let (one, two) = (Uuid::from_u128(1), Uuid::from_u128(2));
        blocks.end([one]);
        assert!(!blocks.may_begin(one) && blocks.may_begin(two) && !blocks.leaves());
        blocks.go_on([one]);
        assert!(blocks.may_begin(one));
        blocks.leave();
        assert!(!blocks.may_begin(two) && blocks.leaves());
    }
}
