//! `rescue`: copies out what can be read of a volume, also from an array beyond its redundancy. Writes nothing to its
//! drives.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};

use api::{Problem, Range, RescueRequest, RescueView, VERSION};
use export::{ExtentState, Fault, Namespace};
use futures::stream::{self, StreamExt};

use super::World;
use super::open::{self, How};
use crate::size::human;

/// Read at once; where that fails, block by block.
const CHUNK_BYTES: u64 = 1 << 20;

/// Chunks at once.
const AT_ONCE: usize = 8;

const BLOCK_BYTES: u64 = 4096;

/// Copies a volume. `progress` gets bytes done and bytes in all.
///
/// # Errors
/// When the array cannot be opened even so, there is no such volume, or the target cannot be written. What is lost is a
/// result, not an error.
pub async fn run(
    world: &World,
    array: &str,
    request: &RescueRequest,
    progress: impl Fn(u64, u64),
) -> Result<RescueView, Problem> {
    let how = How { accept_loss: request.accept_old, previous: request.previous_generation, ..How::READ_ONLY };
    let opened = open::by_name(world, array, how).await?;
    let Some(volume) = opened.lease(&request.volume) else {
        let names: Vec<String> = opened.array.first().volumes().into_iter().map(|v| v.name.to_string()).collect();
        let what = format!("volume {array}/{}", request.volume);
        return Err(Problem::refused(
            "volume_unknown",
            what,
            "there is no such volume",
            format!("its volumes: {}", names.join(", ")),
        ));
    };
    let size = volume.info().bytes;
    let to = Target::open(&request.to, size, request.force)?;
    let mut view = RescueView {
        version: VERSION,
        array: array.to_owned(),
        volume: request.volume.clone(),
        bytes: size,
        notes: opened.notes.clone(),
        ..RescueView::default()
    };
    let starts = (0..size).step_by(CHUNK_BYTES as usize);
    let chunks = starts.map(|at| read_chunk(&volume, at, CHUNK_BYTES.min(size - at)));
    let mut chunks = stream::iter(chunks).buffered(AT_ONCE);
    let mut done = 0;
    while let Some(parts) = chunks.next().await {
        for part in parts.map_err(|fault| refused(array, fault))? {
            done += part.bytes;
            match part.data {
                Data::Nothing => to.zero(part.at, part.bytes)?,
                Data::Read(data) => {
                    view.copied_bytes += part.bytes;
                    to.write(part.at, &data)?;
                }
                Data::Lost => {
                    view.lost_bytes += part.bytes;
                    to.zero(part.at, part.bytes)?;
                    match view.lost.last_mut().filter(|last| last.offset + last.bytes == part.at) {
                        Some(last) => last.bytes += part.bytes,
                        None => view.lost.push(Range { offset: part.at, bytes: part.bytes }),
                    }
                }
            }
        }
        progress(done, size);
    }
    drop(chunks);
    to.finish()?;
    opened.close(world).await?;
    Ok(view)
}

enum Data {
    /// Nothing is stored: zeros.
    Nothing,
    Read(Vec<u8>),
    Lost,
}

struct Part {
    at: u64,
    bytes: u64,
    data: Data,
}

async fn read_chunk(volume: &impl Namespace, at: u64, bytes: u64) -> Result<Vec<Part>, Fault> {
    if let Ok(extents) = volume.extents(at, bytes, 2).await
        && extents.iter().all(|extent| extent.state != ExtentState::Allocated)
        && extents.iter().map(|extent| extent.bytes).sum::<u64>() == bytes
    {
        return Ok(vec![Part { at, bytes, data: Data::Nothing }]);
    }
    match volume.read(at, bytes as u32).await {
        Ok(parts) => {
            return Ok(vec![Part { at, bytes, data: Data::Read(parts.iter().flat_map(|p| p.to_vec()).collect()) }]);
        }
        Err(Fault::Medium) => {}
        Err(other) => return Err(other),
    }
    let mut blocks = Vec::new();
    for at in (at..at + bytes).step_by(BLOCK_BYTES as usize) {
        let data = match volume.read(at, BLOCK_BYTES as u32).await {
            Ok(parts) => Data::Read(parts.iter().flat_map(|p| p.to_vec()).collect()),
            Err(Fault::Medium) => Data::Lost,
            Err(other) => return Err(other),
        };
        blocks.push(Part { at, bytes: BLOCK_BYTES, data });
    }
    Ok(blocks)
}

fn refused(array: &str, fault: Fault) -> Problem {
    let what = format!("array {array}");
    match fault {
        Fault::Unavailable => Problem::refused(
            "records_missing",
            what,
            "its newest records are on missing drives: what is read could be old",
            "connect the drives, or give --accept-old",
        ),
        other => Problem::failed(what, other, "`ashlar status` shows the state of its drives"),
    }
}

/// Where the copy goes.
struct Target {
    file: File,
    name: String,
    /// A new file reads zeros where nothing is written.
    sparse: bool,
    /// What a file is called until it is complete, so that nobody takes it for a whole copy, and from then on.
    complete: Option<(PathBuf, PathBuf)>,
}

impl Target {
    fn open(path: &Path, bytes: u64, force: bool) -> Result<Target, Problem> {
        let there = path.symlink_metadata().is_ok();
        if there && !force {
            let name = path.display().to_string();
            return Err(Problem::refused("target_exists", name, "it exists already", "name another, or give --force"));
        }
        // What a link leads to is replaced, not the link.
        let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
        match path.metadata() {
            Ok(meta) if meta.file_type().is_block_device() => Target::device(path, bytes),
            Ok(meta) if !meta.is_file() => {
                let why = "it is neither a file nor a block device";
                Err(Problem::refused("target_kind", path.display().to_string(), why, "name another"))
            }
            Ok(_) => {
                locked(path, OpenOptions::new().write(true))?;
                Target::new_file(path, bytes, force)
            }
            Err(_) => Target::new_file(path, bytes, force),
        }
    }

    fn device(path: &Path, bytes: u64) -> Result<Target, Problem> {
        let mut file = locked(path, OpenOptions::new().write(true))?;
        let name = path.display().to_string();
        let room = file.seek(SeekFrom::End(0)).map_err(|e| unwritable(&name, &e))?;
        if room < bytes {
            let why = format!("it has {}, the volume {}", human(room), human(bytes));
            return Err(Problem::refused("target_small", name, why, "name a larger one"));
        }
        Ok(Target { file, name, sparse: false, complete: None })
    }

    /// A file that is called FILE.partial until it is complete.
    fn new_file(path: &Path, bytes: u64, force: bool) -> Result<Target, Problem> {
        let mut part = path.as_os_str().to_owned();
        part.push(".partial");
        let part = PathBuf::from(part);
        let name = part.display().to_string();
        if part.symlink_metadata().is_ok() && !force {
            let why = "it exists already: a copy that was interrupted, perhaps";
            return Err(Problem::refused("target_exists", name, why, "delete it, or give --force"));
        }
        let file = locked(&part, OpenOptions::new().write(true).create(true))?;
        file.set_len(0).and_then(|()| file.set_len(bytes)).map_err(|e| unwritable(&name, &e))?;
        Ok(Target { file, name, sparse: true, complete: Some((part, path.to_owned())) })
    }

    fn write(&self, at: u64, data: &[u8]) -> Result<(), Problem> {
        self.file.write_all_at(data, at).map_err(|e| self.failed(&e))
    }

    fn zero(&self, at: u64, bytes: u64) -> Result<(), Problem> {
        if self.sparse { Ok(()) } else { self.write(at, &vec![0; bytes as usize]) }
    }

    fn finish(&self) -> Result<(), Problem> {
        self.file.sync_all().map_err(|e| self.failed(&e))?;
        match &self.complete {
            Some((part, path)) => std::fs::rename(part, path).map_err(|e| self.failed(&e)),
            None => Ok(()),
        }
    }

    fn failed(&self, e: &io::Error) -> Problem {
        Problem::failed(
            self.name.clone(),
            format!("cannot be written: {e}"),
            "the copy is incomplete; free space and repeat",
        )
    }
}

fn unwritable(name: &str, e: &io::Error) -> Problem {
    Problem::failed(name, format!("cannot be written: {e}"), "name another")
}

/// Opens it, unless it is a drive of an array: those that are open are locked, those of the array that is read too.
fn locked(path: &Path, options: &OpenOptions) -> Result<File, Problem> {
    let name = path.display().to_string();
    let file = options.open(path).map_err(|e| unwritable(&name, &e))?;
    if file.try_lock().is_err() {
        let why = "it is a drive of an array, or another program has locked it";
        return Err(Problem::refused("target_in_use", name, why, "name another"));
    }
    Ok(file)
}
