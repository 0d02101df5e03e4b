//! Sockets at which guests of this machine find volumes (vhost-user-blk): one for each volume of each served array, in one directory,
//! called by the volume's identity.
//!
//! ```text
//!   array served, volume made -> socket -> guests        array closed, volume deleted, server ends: guests -> socket
//! ```
//!
//! Invariants:
//! - a volume has one socket at most, whose path stays the same whatever the volume and its array are called;
//! - an array is closed after its sockets: what guests have asked for is done then, or waits for the next server.
//!
//! Not here: the protocol (`export::vhost_user_blk`); when sockets come and go (`daemon::guests`).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use api::Problem;
use export::vhost_user_blk::{GuestSocket, Guests};
use uuid::Uuid;

/// The longest path of a socket (`sun_path` without its end).
const PATH_MAX: usize = 107;

/// All sockets for guests of a server.
pub struct GuestSockets {
    directory: Option<PathBuf>,
    guests: Guests,
    open: RefCell<BTreeMap<Uuid, Place>>,
    failed: RefCell<BTreeMap<Uuid, String>>,
}

/// A volume's socket.
#[derive(Clone)]
pub struct Place {
    /// The array.
    pub array: Uuid,
    /// Which open of it.
    pub number: u64,
    /// It.
    pub socket: GuestSocket,
}

/// Sees to it that there can be sockets in `directory`.
///
/// # Errors
/// When it cannot be made, is something else, or has too long a name.
pub fn prepare(directory: &Path) -> Result<(), Problem> {
    let what = || format!("directory {} of the sockets for guests", directory.display());
    let bytes = path(directory, Uuid::nil()).as_os_str().len();
    if bytes > PATH_MAX {
        let why = format!("paths of sockets in it have {bytes} bytes; {PATH_MAX} are possible");
        return Err(Problem::usage(what(), why, "choose a shorter path (--guests)"));
    }
    if directory.is_dir() {
        return Ok(());
    }
    // Those who may come to the sockets are its owner and its group.
    let made = fs::DirBuilder::new().recursive(true).mode(0o750).create(directory);
    made.map_err(|e| Problem::failed(what(), e, "create it, or choose another one (--guests)"))
}

fn path(directory: &Path, volume: Uuid) -> PathBuf {
    directory.join(format!("{volume}.sock"))
}

impl GuestSockets {
    /// In this directory; without one there are none.
    #[must_use]
    pub fn of(directory: Option<PathBuf>) -> GuestSockets {
        GuestSockets { directory, guests: Guests::default(), open: RefCell::default(), failed: RefCell::default() }
    }

    /// Where they are.
    #[must_use]
    pub fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    /// What all guests share.
    #[must_use]
    pub fn guests(&self) -> &Guests {
        &self.guests
    }

    /// Where a volume's socket is to be, if it has none and there are to be any.
    #[must_use]
    pub fn missing(&self, volume: Uuid) -> Option<PathBuf> {
        let directory = self.directory.as_deref()?;
        (!self.open.borrow().contains_key(&volume)).then(|| path(directory, volume))
    }

    /// From now on this is the volume's.
    pub fn put(&self, volume: Uuid, place: Place) {
        self.failed.borrow_mut().remove(&volume);
        self.open.borrow_mut().insert(volume, place);
    }

    /// A volume's socket could not be opened; whether that is not known yet.
    pub fn fails(&self, volume: Uuid, why: &str) -> bool {
        self.failed.borrow_mut().insert(volume, why.to_owned()).as_deref() != Some(why)
    }

    /// Why sockets could not be opened: of how many volumes, and one of the reasons.
    #[must_use]
    pub fn problem(&self) -> Option<(usize, String)> {
        let failed = self.failed.borrow();
        failed.values().next().map(|why| (failed.len(), why.clone()))
    }

    /// Takes those out: they are to be closed.
    #[must_use]
    pub fn take(&self, is_one: impl Fn(Uuid, &Place) -> bool) -> Vec<GuestSocket> {
        self.failed.borrow_mut().clear();
        self.open.borrow_mut().extract_if(.., |volume, place| is_one(*volume, place)).map(|(_, p)| p.socket).collect()
    }

    /// The one of a volume.
    #[must_use]
    pub fn of_volume(&self, volume: Uuid) -> Option<GuestSocket> {
        self.open.borrow().get(&volume).map(|place| place.socket.clone())
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> Vec<(Uuid, GuestSocket)> {
        self.open.borrow().iter().map(|(volume, place)| (*volume, place.socket.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_made_and_closed_to_others() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("a/b");
        prepare(&directory).unwrap();
        assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o007, 0);
        prepare(&directory).unwrap();
        fs::write(place.path().join("file"), "").unwrap();
        assert!(prepare(&place.path().join("file")).is_err());
    }

    #[test]
    fn a_path_that_is_too_long_for_a_socket_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let long = place.path().join("x".repeat(PATH_MAX));
        let problem = prepare(&long).unwrap_err();
        assert!(problem.why.contains("107 are possible") && !long.exists(), "{problem}");
    }
}
