//! The arrays this machine knows: `arrays.toml`, from an array's name to its drives' stable names.
//!
//! The file is a convenience, never a truth: an array describes itself on its drives. What is listed here lets
//! `ashlar status fast` and `ashlar serve` find it without a search; when the file is lost, `ashlar import --all` writes
//! it again.
//!
//! Invariants: the file is replaced whole (written beside, then renamed); two writers take turns (a lock file); what root
//! writes belongs to the directory's owner, who may be a server that is not root.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};

use api::Problem;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::scrubs::LastScrub;

/// One known array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uuid: Uuid,
    /// Its drives, by names that survive a restart.
    pub drives: Vec<String>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    version: u32,
    #[serde(default, rename = "array")]
    arrays: Vec<Known>,
}

const VERSION: u32 = 1;
const HEADING: &str = "# The arrays this machine knows. Written by ashlar; `ashlar import --all` writes it anew.\n";

/// The state file.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    dir: PathBuf,
}

impl Registry {
    /// The registry in `dir`; nothing is touched yet.
    #[must_use]
    pub fn at(dir: PathBuf) -> Registry {
        Registry { dir }
    }

    /// Where it lies.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn path(&self) -> PathBuf {
        self.dir.join("arrays.toml")
    }

    /// All known arrays, by name.
    ///
    /// # Errors
    /// When the file is there and cannot be read.
    pub fn list(&self) -> Result<Vec<Known>, Problem> {
        let path = self.path();
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
            Err(e) => return Err(unreadable(&path, &e)),
        };
        let mut contents: Contents = toml::from_str(&text).map_err(|e| unreadable(&path, e.message()))?;
        if contents.version != VERSION {
            let why = format!("its version is {}, this program reads version {VERSION}", contents.version);
            return Err(unreadable(&path, why));
        }
        contents.arrays.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(contents.arrays)
    }

    /// The array called `name`, or whose identity it is.
    ///
    /// # Errors
    /// When there is none, or more than one.
    pub fn find(&self, name: &str) -> Result<Known, Problem> {
        let all = self.list()?;
        let mut found = all.iter().filter(|k| k.name == name || k.uuid.to_string() == name);
        let what = format!("array \"{name}\"");
        match (found.next(), found.next()) {
            (Some(known), None) => Ok(known.clone()),
            (Some(a), Some(b)) => Err(Problem::refused(
                "array_ambiguous",
                what,
                "more than one array has this name",
                format!("use an identity instead: {} or {}", a.uuid, b.uuid),
            )),
            (None, _) => {
                let names: Vec<_> = all.iter().map(|k| k.name.as_str()).collect();
                let known = if names.is_empty() { "none".into() } else { format!("known: {}", names.join(", ")) };
                Err(Problem::new(
                    api::Kind::NotFound,
                    "array_unknown",
                    what,
                    format!("no such array is known here ({known})"),
                    "if its drives are here, `ashlar import DIR|DRIVES...` lists it",
                ))
            }
        }
    }

    /// Makes sure that [`Registry::remember`] will be able to write, before a verb changes anything.
    ///
    /// # Errors
    /// When the directory cannot be made or written.
    pub fn prepare(&self) -> Result<(), Problem> {
        self.lock().map(drop).map_err(|e| self.unwritable(&e))
    }

    /// Adds an array or brings it up to date.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn remember(&self, known: Known) -> Result<(), Problem> {
        self.change(|arrays| {
            arrays.retain(|k| k.uuid != known.uuid);
            arrays.push(known);
        })
    }

    /// Removes an array, if it is known.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn forget(&self, uuid: Uuid) -> Result<(), Problem> {
        if self.list()?.iter().all(|k| k.uuid != uuid) {
            return Ok(());
        }
        LastScrub::forget(&self.dir, uuid);
        self.change(|arrays| arrays.retain(|k| k.uuid != uuid))
    }

    fn change(&self, edit: impl FnOnce(&mut Vec<Known>)) -> Result<(), Problem> {
        let _lock = self.lock().map_err(|e| self.unwritable(&e))?;
        let mut arrays = self.list()?;
        edit(&mut arrays);
        arrays.sort_by(|a, b| a.name.cmp(&b.name));
        let text = toml::to_string(&Contents { version: VERSION, arrays })
            .map_err(|e| Problem::failed("the list of arrays", e, "this is a bug: please report it"))?;
        replace(&self.path(), &format!("{HEADING}{text}")).map_err(|e| self.unwritable(&e))
    }

    fn lock(&self) -> io::Result<File> {
        fs::create_dir_all(&self.dir)?;
        let file = File::options().create(true).append(true).open(self.dir.join("arrays.lock"))?;
        give_to_owner(&file, &self.dir)?;
        file.lock()?;
        Ok(file)
    }

    fn unwritable(&self, e: &io::Error) -> Problem {
        Problem::failed(
            format!("the list of arrays in {}", self.dir.display()),
            format!("cannot be written: {e}"),
            "run as root, or set ASHLAR_STATE_DIR (or --state-dir) to a directory you may write",
        )
    }
}

fn unreadable(path: &Path, e: impl std::fmt::Display) -> Problem {
    Problem::failed(
        path.display().to_string(),
        format!("cannot be read: {e}"),
        "fix it, or move it away and run `ashlar import --all`, which rewrites it",
    )
}

/// Writes a file whole: beside, then renamed.
pub(crate) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("toml.new");
    let mut file = File::create(&new)?;
    path.parent().map_or(Ok(()), |dir| give_to_owner(&file, dir))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)
}

/// A file that root makes in a directory of another user is that user's.
pub(crate) fn give_to_owner(file: &File, dir: &Path) -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let owner = fs::metadata(dir)?;
    if owner.uid() == 0 {
        return Ok(());
    }
    fchown(file, Some(owner.uid()), Some(owner.gid()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(name: &str, n: u128) -> Known {
        Known { name: name.into(), uuid: Uuid::from_u128(n), drives: vec!["/x/0".into(), "/x/1".into()] }
    }

    #[test]
    fn remembers_finds_forgets() {
        let dir = tempfile::tempdir().unwrap();
        let r = Registry::at(dir.path().join("deep/state"));
        assert_eq!(r.list().unwrap(), []);
        assert_eq!(r.find("fast").unwrap_err().code, "array_unknown");
        r.remember(known("fast", 1)).unwrap();
        r.remember(known("archive", 2)).unwrap();
        r.remember(Known { drives: vec!["/y".into()], ..known("fast", 1) }).unwrap();
        assert_eq!(r.find("fast").unwrap().drives, ["/y"]);
        assert_eq!(r.find(&Uuid::from_u128(2).to_string()).unwrap().name, "archive");
        r.remember(known("fast", 3)).unwrap();
        assert_eq!(r.find("fast").unwrap_err().code, "array_ambiguous");
        r.forget(Uuid::from_u128(1)).unwrap();
        assert_eq!(r.find("fast").unwrap().uuid, Uuid::from_u128(3));
    }

    #[test]
    fn what_root_writes_is_the_servers() {
        let dir = tempfile::tempdir().unwrap();
        if !rustix::process::geteuid().is_root() {
            return;
        }
        std::os::unix::fs::chown(dir.path(), Some(4711), Some(4712)).unwrap();
        Registry::at(dir.path().to_owned()).remember(known("fast", 1)).unwrap();
        for name in ["arrays.toml", "arrays.lock"] {
            let file = fs::metadata(dir.path().join(name)).unwrap();
            assert_eq!((file.uid(), file.gid()), (4711, 4712), "{name}");
        }
    }

    #[test]
    fn a_damaged_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let r = Registry::at(dir.path().to_owned());
        fs::write(r.path(), "version = 9\n").unwrap();
        assert!(r.list().unwrap_err().why.contains("version is 9"));
        fs::write(r.path(), "version = 1\nsurprise = 1\n").unwrap();
        assert!(r.list().unwrap_err().why.contains("surprise"));
    }
}
