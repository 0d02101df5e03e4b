//! Lists beside the list of arrays, one file each: what shall be there again after a crash, a restart and a boot.
//!
//! Invariants: what is listed is listed before it is made, and until it is gone; a file is replaced whole, and writers take turns
//! (a lock file); a list that cannot be read is not written over.

use std::fs::{self, File};
use std::io;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use api::Problem;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::registry::{give_to_owner, replace};

const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents<T> {
    version: u32,
    #[serde(default = "Vec::new", rename = "entry")]
    entries: Vec<T>,
}

/// A list of `T`.
#[derive(Clone, Debug)]
pub struct List<T> {
    path: PathBuf,
    /// What it lists, in words.
    what: &'static str,
    of: PhantomData<T>,
}

impl<T: Serialize + DeserializeOwned> List<T> {
    /// The list `name` in `dir`, of `what`; nothing is touched yet.
    #[must_use]
    pub fn at(dir: &Path, name: &str, what: &'static str) -> List<T> {
        List { path: dir.join(format!("{name}.toml")), what, of: PhantomData }
    }

    /// All that is listed.
    ///
    /// # Errors
    /// When the file is there and cannot be read.
    pub fn read(&self) -> Result<Vec<T>, Problem> {
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
            Err(e) => return Err(self.unreadable(&e.to_string())),
        };
        let contents: Contents<T> = toml::from_str(&text).map_err(|e| self.unreadable(e.message()))?;
        if contents.version != VERSION {
            let why = format!("its version is {}, this program reads version {VERSION}", contents.version);
            return Err(self.unreadable(&why));
        }
        Ok(contents.entries)
    }

    /// Takes entries off.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn take_off(&self, is_one: impl Fn(&T) -> bool) -> Result<(), Problem> {
        if !self.read()?.iter().any(&is_one) {
            return Ok(());
        }
        self.change(|all| all.retain(|listed| !is_one(listed)))
    }

    /// Puts an entry on, instead of those that `is_former`.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn put(&self, entry: T, is_former: impl Fn(&T) -> bool) -> Result<(), Problem> {
        self.change(|all| {
            all.retain(|listed| !is_former(listed));
            all.push(entry);
        })
    }

    fn change(&self, edit: impl FnOnce(&mut Vec<T>)) -> Result<(), Problem> {
        let _lock = self.lock().map_err(|e| self.unwritable(&e))?;
        let mut entries = self.read()?;
        edit(&mut entries);
        let text = toml::to_string(&Contents { version: VERSION, entries })
            .map_err(|e| Problem::failed(format!("the list of {}", self.what), e, "this is a bug: please report it"))?;
        let heading = format!("# The list of {}. Written by ashlar.\n", self.what);
        replace(&self.path, &(heading + &text)).map_err(|e| self.unwritable(&e))
    }

    fn lock(&self) -> io::Result<File> {
        let dir = self.path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(dir)?;
        let file = File::options().create(true).append(true).open(self.path.with_extension("lock"))?;
        give_to_owner(&file, dir)?;
        file.lock()?;
        Ok(file)
    }

    fn unwritable(&self, e: &io::Error) -> Problem {
        Problem::failed(
            format!("the list of {}, {}", self.what, self.path.display()),
            format!("cannot be written: {e}"),
            "make room there, or choose another directory (--state-dir)",
        )
    }

    fn unreadable(&self, why: &str) -> Problem {
        Problem::failed(
            format!("the list of {}, {}", self.what, self.path.display()),
            format!("cannot be read: {why}"),
            "correct the file, or move it away: then what it lists must be taken from the kernel by hand",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_on_stays_until_it_is_taken_off() {
        let dir = tempfile::tempdir().unwrap();
        let list: List<(u32, String)> = List::at(&dir.path().join("state"), "blocks", "block devices");
        let entry = |key: u32, text: &str| (key, text.to_owned());
        assert_eq!(list.read().unwrap(), []);
        list.take_off(|_| true).unwrap();
        for put in [entry(1, "a"), entry(2, "b"), entry(1, "c")] {
            list.put(put.clone(), |e| e.0 == put.0).unwrap();
        }
        assert_eq!(list.read().unwrap(), [entry(2, "b"), entry(1, "c")]);
        list.take_off(|e| e.0 == 2).unwrap();
        assert_eq!(list.read().unwrap(), [entry(1, "c")]);
        fs::write(&list.path, "version = 2\n").unwrap();
        assert!(list.read().unwrap_err().why.contains("its version is 2"));
        assert!(list.put(entry(3, "d"), |_| false).is_err(), "what cannot be read is not written over");
    }
}
