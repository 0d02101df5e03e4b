//! Files the cases copy: made from a seed, compared byte for byte.

use std::fs::{self, File};
use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};

use e2e::load::random;
use e2e::{Failure, OrFail, Result};
use rand::RngExt;

/// Bytes at once.
const PIECE: usize = 1 << 20;

/// A file of `mib` MiB: random data, runs of zeroes and runs of one byte, in pieces of 1 MiB.
pub fn make(path: &Path, mib: usize, seed: u64) -> Result<()> {
    let name = path.display().to_string();
    let mut file = File::create(path).or_fail(name.as_str())?;
    let mut random = random(seed);
    let mut piece = vec![0u8; PIECE];
    for _ in 0..mib {
        match random.random_range(0..4) {
            0 => piece.fill(0),
            1 => piece.fill(random.random()),
            _ => random.fill(&mut piece[..]),
        }
        file.write_all(&piece).or_fail(name.as_str())?;
    }
    Ok(())
}

/// That `b` begins with what `a` holds.
pub fn same_beginning(a: &Path, b: &Path) -> Result<()> {
    let open = |path: &Path| File::open(path).map(BufReader::new).or_fail(path.display().to_string());
    let (mut left, mut right) = (open(a)?, open(b)?);
    let (mut x, mut y) = (vec![0u8; PIECE], vec![0u8; PIECE]);
    let mut at = 0;
    loop {
        let n = read_piece(&mut left, &mut x).or_fail(a.display().to_string())?;
        if n == 0 {
            return Ok(());
        }
        let m = read_piece(&mut right, &mut y[..n]).or_fail(b.display().to_string())?;
        if let Some(first) = (0..n).find(|&i| i >= m || x[i] != y[i]) {
            return Err(Failure::new(
                format!("{} against {}", b.display(), a.display()),
                format!("they differ at byte {}", at + first),
            ));
        }
        at += n;
    }
}

fn read_piece(from: &mut impl Read, buf: &mut [u8]) -> std::io::Result<usize> {
    let mut n = 0;
    while n < buf.len() {
        match from.read(&mut buf[n..])? {
            0 => break,
            more => n += more,
        }
    }
    Ok(n)
}

/// A tree of files and directories of all sizes; returns how many files.
pub fn make_tree(root: &Path, seed: u64) -> Result<usize> {
    let mut random = random(seed);
    let mut files = 0;
    for dir in 0..12 {
        let dir = root.join(format!("dir{}/sub{dir}", dir % 3));
        fs::create_dir_all(&dir).or_fail(dir.display().to_string())?;
        for file in 0..20 {
            let power = random.random_range(0..20);
            let length = random.random_range(0..1usize << power);
            let mut content = vec![0u8; length];
            random.fill(&mut content[..]);
            fs::write(dir.join(format!("file{file}")), content).or_fail("a file of the tree")?;
            files += 1;
        }
    }
    Ok(files)
}

/// That the trees hold the same files.
pub fn same_tree(a: &Path, b: &Path) -> Result<()> {
    let (left, right) = (list(a)?, list(b)?);
    if left != right {
        return Err(Failure::new(b.display().to_string(), format!("{} files, expected {}", right.len(), left.len())));
    }
    for name in left {
        let (x, y) = (fs::read(a.join(&name)), fs::read(b.join(&name)));
        if x.or_fail("a file")? != y.or_fail("a file")? {
            return Err(Failure::new(b.join(name).display().to_string(), "it holds something else"));
        }
    }
    Ok(())
}

/// All files below `root`, but for what every ext4 has of its own.
fn list(root: &Path) -> Result<Vec<PathBuf>> {
    let mut files = vec![];
    let mut dirs = vec![PathBuf::new()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(root.join(&dir)).or_fail(root.display().to_string())? {
            let entry = entry.or_fail("a directory")?;
            let name = dir.join(entry.file_name());
            match entry.file_type().or_fail("a directory")?.is_dir() {
                true if entry.file_name() == "lost+found" => {}
                true => dirs.push(name),
                false => files.push(name),
            }
        }
    }
    files.sort();
    Ok(files)
}
