//! The demo's temporary directory: large enough, and gone afterwards.
//!
//! The guard is a global, because a panic in a release build aborts without running destructors; the panic hook and
//! the normal end both call [`clean_up`].

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use api::Problem;
use base::BLOCK_BYTES;
use ondisk::Level;
use rt::probe;
use rustix::process::{Pid, Signal, kill_process};
use server::size::human;

/// Drives of the demo's array.
pub const DRIVES: usize = 8;

/// The smallest drives it makes.
const DRIVE_BYTES_MIN: u64 = 512 << 20;

/// Space taken besides the data: the crash volume and its log, maps, and two rebuilt drives' share.
const OVERHEAD_BYTES: u64 = 1 << 30;

/// What the volumes may take together on the array, besides the data.
const VOLUMES_SLACK_BYTES: u64 = 512 << 20;

/// The volume holds the data and this much more.
const VOLUME_SLACK_BYTES: u64 = 16 << 20;

struct LeftBehind {
    dir: PathBuf,
    server: Option<Pid>,
}

static LEFT_BEHIND: Mutex<Option<LeftBehind>> = Mutex::new(None);

/// The directory.
pub struct Place {
    dir: PathBuf,
    drive_bytes: u64,
    volume_bytes: u64,
    free_bytes: u64,
}

impl Place {
    /// A new directory with room for `data_bytes` on a RAID 6 array.
    ///
    /// # Errors
    /// When it cannot be made, or has too little room.
    pub fn new(data_bytes: u64) -> Result<Place, Problem> {
        let parent = std::env::temp_dir();
        let what = || format!("temporary directory in {}", parent.display());
        let todo = "set TMPDIR to another directory";
        let free_bytes = probe::free_bytes(&parent).map_err(|e| Problem::failed(what(), e, todo))?;
        // 5+2: seven fifths of the data, and two drives of eight again for the rebuild.
        let wanted = data_bytes * 7 / 5 * 5 / 4 + OVERHEAD_BYTES;
        if free_bytes < wanted {
            let why = format!("{} are free, the demo needs {}", human(free_bytes), human(wanted));
            return Err(Problem::refused("no_space", what(), why, format!("{todo}, or use less data: --limit 100M")));
        }
        let made = tempfile::Builder::new().prefix("ashlar-demo-").tempdir();
        let dir = made.map_err(|e| Problem::failed(what(), e, todo))?.keep();
        if let Ok(mut left) = LEFT_BEHIND.lock() {
            *left = Some(LeftBehind { dir: dir.clone(), server: None });
        }
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            clean_up();
            before(info);
        }));
        let volume_bytes = (data_bytes + VOLUME_SLACK_BYTES).next_multiple_of(1 << 20);
        let place = Place { dir, drive_bytes: drive_bytes(volume_bytes)?, volume_bytes, free_bytes };
        Ok(place)
    }

    /// Where it is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Room that was free before.
    pub fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    /// Size of each drive, as a flag.
    pub fn drive_size(&self) -> String {
        format!("{}M", self.drive_bytes >> 20)
    }

    /// Size of the volume for the files, as an argument.
    pub fn volume_size(&self) -> String {
        format!("{}M", self.volume_bytes >> 20)
    }

    /// The kind of file system, for the title.
    pub fn file_system(&self) -> String {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let dir = self.dir.to_string_lossy();
        let of = mounts.lines().filter_map(|l| {
            let mut fields = l.split(' ').skip(1);
            Some((fields.next()?, fields.next()?))
        });
        let on = of.filter(|(at, _)| *at == "/" || dir.starts_with(&format!("{at}/")));
        on.max_by_key(|(at, _)| at.len()).map_or("unknown", |(_, kind)| kind).to_owned()
    }
}

/// The size of eight drives whose RAID 6 array holds a volume of `volume_bytes` and the crash volume comfortably.
fn drive_bytes(volume_bytes: u64) -> Result<u64, Problem> {
    let spec = array::CreateSpec {
        name: "demo".to_owned(),
        level: Level::Raid6,
        width: None,
        zone_blocks: None,
        force: false,
    };
    let mut bytes = DRIVE_BYTES_MIN;
    loop {
        let plan = array::plan(&spec, &[bytes / BLOCK_BYTES as u64; DRIVES])?;
        if plan.usable_bytes / 4 * 3 > volume_bytes + VOLUMES_SLACK_BYTES {
            return Ok(bytes);
        }
        bytes *= 2;
    }
}

/// The server's process, to be ended with the demo.
pub fn guard_server(server: Option<Pid>) {
    if let Ok(mut left) = LEFT_BEHIND.lock()
        && let Some(left) = &mut *left
    {
        left.server = server;
    }
}

/// Ends the server and removes the directory; the second call does nothing.
pub fn clean_up() {
    let Some(left) = LEFT_BEHIND.lock().ok().and_then(|mut l| l.take()) else { return };
    if let Some(pid) = left.server {
        // It may have ended by itself.
        let _ = kill_process(pid, Signal::KILL);
    }
    if let Err(e) = fs::remove_dir_all(&left.dir) {
        eprintln!("ashlar: {} cannot be removed: {e}", left.dir.display());
    }
}
