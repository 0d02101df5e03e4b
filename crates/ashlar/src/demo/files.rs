//! The files that go in, as one stream: for each a header block of 512 bytes with its length and name, its contents,
//! and zeroes up to the next 512 bytes.
//!
//! The stream can be read again and again; it is the same each time unless somebody changes the files, and a change
//! is told from damage ([`super::copy`]).
//!
//! Not here: links, directories, owners: the demo moves bytes.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use api::Problem;

/// Unit of headers and padding.
const UNIT: u64 = 512;

/// Larger files are left out of the default collection, so that it holds many.
const FILE_BYTES_MAX: u64 = 64 << 20;

struct Entry {
    path: PathBuf,
    bytes: u64,
}

/// Files, in order.
pub struct Collection {
    root: PathBuf,
    entries: Vec<Entry>,
    stream_bytes: u64,
}

impl Collection {
    /// The readable files below `root`, in order of their names, up to `limit` bytes.
    ///
    /// # Errors
    /// When there are none.
    pub fn of(root: &Path, limit: u64) -> Result<Collection, Problem> {
        let mut collection = Collection { root: root.to_owned(), entries: vec![], stream_bytes: 0 };
        collection.walk(root, limit);
        if collection.entries.is_empty() {
            let why = "it has no readable files";
            return Err(Problem::usage(
                format!("data in {}", root.display()),
                why,
                "name another directory: --data DIR",
            ));
        }
        Ok(collection)
    }

    fn walk(&mut self, dir: &Path, limit: u64) {
        let Ok(list) = fs::read_dir(dir) else { return };
        let mut paths: Vec<_> = list.flatten().map(|e| e.path()).collect();
        paths.sort();
        for path in paths {
            let Ok(meta) = fs::symlink_metadata(&path) else { continue };
            if meta.is_dir() {
                self.walk(&path, limit);
            } else if meta.is_file() && meta.len() <= FILE_BYTES_MAX.min(limit - self.stream_bytes.min(limit)) {
                let bytes = meta.len();
                if File::open(&path).is_ok() {
                    self.stream_bytes += UNIT + bytes.next_multiple_of(UNIT);
                    self.entries.push(Entry { path, bytes });
                }
            }
        }
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    /// Where they are.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Length of the stream.
    pub fn stream_bytes(&self) -> u64 {
        self.stream_bytes
    }

    /// The stream, from its start.
    pub fn stream(&self) -> Stream<'_> {
        Stream { entries: self.entries.iter(), part: vec![], taken: 0, file: None }
    }
}

/// The stream being read.
pub struct Stream<'a> {
    entries: std::slice::Iter<'a, Entry>,
    /// A header or padding, and how much of it is taken.
    part: Vec<u8>,
    taken: usize,
    /// The file being read and what is left of it.
    file: Option<(Option<File>, u64, u64)>,
}

impl Read for Stream<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.taken < self.part.len() {
                let n = buf.len().min(self.part.len() - self.taken);
                buf[..n].copy_from_slice(&self.part[self.taken..self.taken + n]);
                self.taken += n;
                return Ok(n);
            }
            match &mut self.file {
                Some((file, left, _)) if *left > 0 => {
                    let n = buf.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    let got = file.as_mut().map_or(0, |f| f.read(&mut buf[..n]).unwrap_or(0));
                    if got == 0 {
                        // The file became shorter, or went away: its length stays, with zeroes.
                        *file = None;
                        buf[..n].fill(0);
                    }
                    let n = if got == 0 { n } else { got };
                    *left -= n as u64;
                    return Ok(n);
                }
                Some((_, _, bytes)) => {
                    self.part = vec![0; (bytes.next_multiple_of(UNIT) - *bytes) as usize];
                    self.taken = 0;
                    self.file = None;
                }
                None => {
                    let Some(entry) = self.entries.next() else { return Ok(0) };
                    self.part = header(entry);
                    self.taken = 0;
                    self.file = Some((File::open(&entry.path).ok(), entry.bytes, entry.bytes));
                }
            }
        }
    }
}

fn header(entry: &Entry) -> Vec<u8> {
    let mut header = format!("ashlar demo file\n{}\n{}\n", entry.bytes, entry.path.display()).into_bytes();
    header.resize(UNIT as usize, 0);
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_has_the_length_it_says() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        for (name, bytes) in [("a", 0), ("b", 1), ("sub/c", 512), ("d", 5000)] {
            fs::write(dir.path().join(name), vec![7u8; bytes]).unwrap();
        }
        let c = Collection::of(dir.path(), u64::MAX).unwrap();
        let mut all = vec![];
        c.stream().read_to_end(&mut all).unwrap();
        assert_eq!((c.count(), all.len() as u64), (4, c.stream_bytes()));
        assert_eq!(all.iter().filter(|b| **b == 7).count(), 5513);
        // A file that shrinks keeps its place.
        fs::write(dir.path().join("d"), [7u8; 10]).unwrap();
        all.clear();
        c.stream().read_to_end(&mut all).unwrap();
        assert_eq!(all.len() as u64, c.stream_bytes());
        assert!(Collection::of(&dir.path().join("nowhere"), u64::MAX).is_err());
        assert_eq!(Collection::of(dir.path(), 600).unwrap().count(), 2);
    }
}
