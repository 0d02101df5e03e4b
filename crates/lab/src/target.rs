//! What is measured: a file, a block device, an export by NBD or NVMe/TCP, or modelled drives; and how it is recognised again.

use std::fs;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::model::Pair;
use crate::simulated;

/// Kinds of targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A regular file.
    File,
    /// A block device.
    Block,
    /// An NBD export, by its address.
    Nbd,
    /// A namespace by NVMe/TCP, by its address.
    Nvme,
    /// Drives of a model, by their name.
    Model,
}

/// Modelled drives: "model:NAME[:COUNTxSIZE][,raid=LEVEL][,width=N][,fill=PERCENT]"; or a system of `predict`:
/// "model:SYSTEM[,engine=ENGINE][,raid=LEVEL][,width=N][,fill=PERCENT][,age=TIMES]".
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// equal-cost, tlc, qlc, or a file.
    pub name: String,
    /// "8x512M".
    pub drives: String,
    /// What is made of them; the drives alone where there is none.
    pub level: Option<String>,
    /// Drives that one row goes over.
    pub width: Option<usize>,
    /// Hundredths of usable that are filled and overwritten until the rate is steady.
    pub fill: Option<u8>,
    /// Of a system: what is over its drives, when that is not its own.
    pub engine: Option<String>,
    /// Of a system: how often a slice was overwritten; until it was steady, when it is not said.
    pub age: Option<f64>,
}

impl Model {
    /// Drives, when nobody says.
    const DRIVES: &str = "8x512M";

    fn parse(target: &str) -> Result<Model, Error> {
        let wrong = |why: &str| Error::usage(target, why);
        let text = target.strip_prefix("model:").unwrap_or(target);
        let mut parts = text.split(',');
        let drives = parts.next().unwrap_or_default();
        // A path may hold colons; what follows the last one is a number of drives, or part of the path.
        let (name, drives) = match drives.rsplit_once(':') {
            Some((name, drives)) if count_of(drives).is_some() => (name, drives),
            _ => (drives, Model::DRIVES),
        };
        if name.is_empty() {
            return Err(wrong(
                "it names no model; write for instance model:equal-cost or model:tlc:5x2G,raid=5,fill=80",
            ));
        }
        let mut model = Model {
            name: name.to_owned(),
            drives: drives.to_owned(),
            level: None,
            width: None,
            fill: None,
            engine: None,
            age: None,
        };
        for part in parts {
            match part.split_once('=') {
                Some(("raid", level)) => model.level = Some(level.to_owned()),
                Some(("width", n)) => model.width = Some(n.parse().map_err(|_| wrong("width needs a number"))?),
                Some(("fill", n)) => {
                    let percent = n.parse().ok().filter(|n| (1..=100).contains(n));
                    model.fill =
                        Some(percent.ok_or_else(|| wrong("fill is the percentage of usable space, from 1 to 100"))?);
                }
                Some(("engine", name)) => model.engine = Some(name.to_owned()),
                Some(("age", n)) => {
                    let times = n.parse().ok().filter(|n: &f64| *n >= 0.0);
                    model.age =
                        Some(times.ok_or_else(|| wrong("age is how often a slice was overwritten, 0 or more"))?);
                }
                _ => {
                    let why = "valid after a comma: raid=LEVEL, width=N, fill=PERCENT; of a system engine=, age=, too";
                    return Err(wrong(why));
                }
            }
        }
        Ok(model)
    }

    /// How many drives.
    pub fn count(&self) -> usize {
        count_of(&self.drives).map_or(0, |(count, _)| count)
    }
}

/// COUNTxSIZE.
fn count_of(text: &str) -> Option<(usize, u64)> {
    let (count, size) = text.split_once('x')?;
    Some((count.parse().ok()?, crate::units::bytes(size).ok()?))
}

/// A target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// As the user named it; a path is absolute.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
    /// Its bytes; of an export those that it told or the user gave.
    pub bytes: u64,
    /// What the user types before anything on it is lost: a serial number, the name of a file or of an export.
    pub serial: String,
    /// What it says of itself.
    pub facts: Vec<Pair>,
    /// Whether it existed when it was looked at.
    pub exists: bool,
}

impl Target {
    /// Looks at a target; nothing is written. `size` is wanted for what does not tell its own: a file to be made, an
    /// NBD export.
    ///
    /// # Errors
    /// When there is none, or its size is not to be known.
    pub fn look(name: &str, size: Option<u64>) -> Result<Target, Error> {
        if name.starts_with("nbd://") || name.starts_with("nbd+unix://") {
            return Target::nbd(name, size);
        }
        if name.starts_with("nvme+tcp://") {
            return Target::nvme(name, size);
        }
        if name.starts_with("model:") {
            return Target::of_model(name);
        }
        let path = std::path::absolute(name).map_err(|e| Error::file(name, e))?;
        let path = path.canonicalize().unwrap_or(path);
        match fs::metadata(&path) {
            Ok(meta) if meta.file_type().is_block_device() => Target::block(&path, meta.rdev()),
            Ok(meta) if meta.is_file() => Ok(Target::file(&path, meta.len(), size, true)),
            Ok(_) => Err(Error::usage(name, "it is not a file, a block device or an export")),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && !path.starts_with("/dev") => match size {
                Some(size) => Ok(Target::file(&path, 0, Some(size), false)),
                None => Err(Error::usage(name, "no such file; with --size the lab creates it")),
            },
            Err(e) => Err(Error::file(path, e)),
        }
    }

    fn nbd(name: &str, size: Option<u64>) -> Result<Target, Error> {
        let why = "the size of an NBD export is not known here: give --size, at most that of the export";
        let bytes = size.ok_or_else(|| Error::usage(name, why))?;
        // nbd://host/export and nbd+unix:///export?socket=PATH; without a name the default export.
        let after = name.split_once("://").map_or("", |(_, rest)| rest);
        let export = after.split_once('/').map_or("", |(_, rest)| rest).split('?').next().unwrap_or_default();
        let serial = if export.is_empty() { "default".to_owned() } else { export.to_owned() };
        let facts = vec![Pair::new("NBD address", name), Pair::new("export", &serial)];
        Ok(Target { name: name.to_owned(), kind: Kind::Nbd, bytes, serial, facts, exists: true })
    }

    /// nvme+tcp://HOST:PORT/SUBSYSTEM?nsid=N, nothing of it left open: its serial is that of a namespace of one
    /// subsystem.
    fn nvme(name: &str, size: Option<u64>) -> Result<Target, Error> {
        let bytes = size.ok_or_else(|| Error::usage(name, "the size of a namespace is not known here: give --size"))?;
        let after = name.split_once("://").and_then(|(_, rest)| rest.split_once('/')).map_or("", |(_, rest)| rest);
        let (subsystem, query) = after.split_once('?').unwrap_or((after, ""));
        let nsid = query.split('&').find_map(|pair| pair.strip_prefix("nsid="));
        let Some(nsid) = nsid.filter(|_| !subsystem.is_empty()) else {
            return Err(Error::usage(name, "it names no namespace: nvme+tcp://HOST:PORT/SUBSYSTEM?nsid=N"));
        };
        let serial = format!("{subsystem}/{nsid}");
        let facts = vec![Pair::new("NVMe/TCP address", name)];
        Ok(Target { name: name.to_owned(), kind: Kind::Nvme, bytes, serial, facts, exists: true })
    }

    fn of_model(name: &str) -> Result<Target, Error> {
        let model = Model::parse(name)?;
        if let Some(system) = simulated::system(&model)? {
            let bytes = predict::usable_bytes(&system).map_err(|e| Error::usage(name, e))? as u64;
            let facts = vec![
                Pair::new("simulated system", format!("{}: {}", system.name, system.title())),
                Pair::new("time", "virtual: that of the model"),
            ];
            return Ok(Target {
                name: name.to_owned(),
                kind: Kind::Model,
                bytes,
                serial: name.to_owned(),
                facts,
                exists: false,
            });
        }
        if model.engine.is_some() || model.age.is_some() {
            let systems = predict::SYSTEMS.map(|(name, _)| name).join(", ");
            return Err(Error::usage(name, format!("engine= and age= are of systems; valid: {systems}")));
        }
        let bytes = count_of(&model.drives).map_or(0, |(count, each)| count as u64 * each);
        let facts = vec![
            Pair::new("modelled drives", format!("{} {}", model.drives, model.name)),
            Pair::new("time", "virtual: that of the model"),
        ];
        Ok(Target { name: name.to_owned(), kind: Kind::Model, bytes, serial: name.to_owned(), facts, exists: false })
    }

    /// What its name says of modelled drives.
    ///
    /// # Errors
    /// When it is none of these.
    pub fn model(&self) -> Result<Model, Error> {
        Model::parse(&self.name)
    }

    fn file(path: &Path, len: u64, size: Option<u64>, exists: bool) -> Target {
        let serial = path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
        let mut facts = vec![Pair::new("file", path.display().to_string())];
        if let Some((kind, source)) = mount_of(path) {
            let below = match kind.as_str() {
                "tmpfs" | "ramfs" => Some(format!("a file system in memory ({kind})")),
                _ => fs::metadata(&source).ok().and_then(|m| memory_below(&disk_dir(m.rdev()))),
            };
            facts.push(Pair::new("file system", format!("{kind} on {source}")));
            facts.extend(below.map(|memory| Pair::new(MEMORY_BELOW, memory)));
        }
        Target {
            name: path.display().to_string(),
            kind: Kind::File,
            bytes: size.unwrap_or(len),
            serial,
            facts,
            exists: exists && len > 0,
        }
    }

    fn block(path: &Path, rdev: u64) -> Result<Target, Error> {
        let mut file = fs::File::open(path).map_err(|e| Error::file(path, e))?;
        let bytes = file.seek(SeekFrom::End(0)).map_err(|e| Error::file(path, e))?;
        let disk = disk_dir(rdev);
        let facts = facts_of(&disk);
        let read = |dir: &Path, name: &str| told(&dir.join(name));
        let name = path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
        // A disk of virtio has its own beside its queue.
        let serial = ["device/serial", "serial", "wwid", "dm/uuid", "md/uuid"].iter().find_map(|at| read(&disk, at));
        let serial = serial.unwrap_or(name);
        let name = path.display().to_string();
        Ok(Target { name, kind: Kind::Block, bytes, serial, facts, exists: true })
    }

    /// Its path, if it has one.
    pub fn path(&self) -> Option<PathBuf> {
        matches!(self.kind, Kind::File | Kind::Block).then(|| PathBuf::from(&self.name))
    }

    /// What the link of an NVMe drive carries in one direction, in bytes a second, after its protocol's share.
    pub fn link_bytes_per_sec(&self) -> Option<f64> {
        let fact = |name: &str| self.facts.iter().find(|p| p.name == name).map(|p| p.value.as_str());
        let lanes: f64 = fact("link width")?.parse().ok()?;
        // What is left of a lane's gigabytes a second after encoding and packets.
        let lane = match fact("link speed")?.split(' ').next()? {
            "2.5" => 0.2e9,
            "5.0" => 0.4e9,
            "8.0" => 0.9e9,
            "16.0" => 1.75e9,
            "32.0" => 3.5e9,
            "64.0" => 7.0e9,
            _ => return None,
        };
        Some(lanes * lane)
    }

    /// The memory of this machine at which O_DIRECT ends, when that is what answers instead of a drive.
    pub fn memory_below(&self) -> Option<&str> {
        self.facts.iter().find(|p| p.name == MEMORY_BELOW).map(|p| p.value.as_str())
    }
}

/// The fact that O_DIRECT does not reach a drive.
const MEMORY_BELOW: &str = "O_DIRECT ends at";
/// Devices that are stacked on each other, at most.
const STACK_MAX: usize = 16;

/// What a file or a device is, to see whether it stays so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    serial: String,
    bytes: u64,
    /// Of a file: its file system and its number there.
    inode: Option<(u64, u64)>,
}

impl Identity {
    /// Of a target now; nothing where nobody can look: an export, modelled drives.
    pub fn of(target: &Target) -> Option<Identity> {
        let path = target.path()?;
        let serial = target.serial.clone();
        if target.kind == Kind::File {
            let meta = fs::metadata(path).ok();
            let inode = meta.as_ref().map(|m| (m.dev(), m.ino()));
            return Some(Identity { serial, bytes: meta.map_or(0, |m| m.len()), inode });
        }
        match Target::look(&target.name, Some(target.bytes)) {
            Ok(now) => Some(Identity { serial: now.serial, bytes: now.bytes, inode: None }),
            Err(_) => Some(Identity { serial: "gone".to_owned(), bytes: 0, inode: None }),
        }
    }

    /// How `now` differs.
    pub fn changes(&self, now: &Identity) -> Vec<String> {
        let mut changes = vec![];
        match (self.inode, now.inode) {
            (Some(_), None) => changes.push("the file is gone".to_owned()),
            (a, b) if a != b => changes.push("another file has its name".to_owned()),
            (_, _) if self.serial != now.serial => {
                changes.push(format!("its serial number was {}, it is {}", self.serial, now.serial));
            }
            (_, _) => {}
        }
        if self.bytes != now.bytes {
            changes.push(format!("it had {} bytes, it has {}", self.bytes, now.bytes));
        }
        changes
    }
}

/// The directory of the disk of a block device below /sys.
pub(crate) fn disk_dir(rdev: u64) -> PathBuf {
    let sys = sys_dir(rdev);
    if sys.join("partition").exists() { sys.join("..").canonicalize().unwrap_or(sys) } else { sys }
}

/// The memory that answers instead of a drive, of a disk's directory below /sys or of what it is stacked on.
fn memory_below(disk: &Path) -> Option<String> {
    fn look(disk: &Path, left: usize) -> Option<String> {
        let name = disk.file_name()?.to_string_lossy().into_owned();
        let numbered = |prefix: &str| {
            let number = name.strip_prefix(prefix)?;
            (!number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())).then_some(())
        };
        if fs::read_to_string(disk.join("loop/dio")).is_ok_and(|dio| dio.trim() == "0") {
            return Some(format!("the page cache of the file behind {name} (loop/dio is 0)"));
        }
        if numbered("ram").is_some() {
            return Some(format!("a RAM disk ({name})"));
        }
        if numbered("zram").is_some() {
            return Some(format!("compressed memory ({name})"));
        }
        let slaves = fs::read_dir(disk.join("slaves")).ok()?;
        let left = left.checked_sub(1)?;
        slaves.flatten().find_map(|slave| {
            let path = slave.path().canonicalize().ok()?;
            let whole = if path.join("partition").exists() { path.parent()?.to_owned() } else { path };
            look(&whole, left)
        })
    }
    look(disk, STACK_MAX)
}

/// What a disk's directory below /sys tells of it.
fn facts_of(disk: &Path) -> Vec<Pair> {
    let mut facts = vec![];
    for (what, name) in [
        ("model", "device/model"),
        ("serial number", "device/serial"),
        ("serial number", "serial"),
        ("firmware", "device/firmware_rev"),
        ("wwid", "wwid"),
        ("link speed", "device/device/current_link_speed"),
        ("link width", "device/device/current_link_width"),
        ("NUMA node", "device/device/numa_node"),
        ("scheduler", "queue/scheduler"),
        ("logical block", "queue/logical_block_size"),
        ("md level", "md/level"),
        ("md drives", "md/raid_disks"),
        ("physical block", "queue/physical_block_size"),
        ("write cache", "queue/write_cache"),
        ("FUA", "queue/fua"),
        ("requests queued", "queue/nr_requests"),
        ("backing file", "loop/backing_file"),
    ] {
        facts.extend(told(&disk.join(name)).map(|value| Pair::new(what, value)));
    }
    let driver = fs::read_link(disk.join("device/driver")).ok();
    let driver = driver.as_deref().and_then(Path::file_name);
    facts.extend(driver.map(|name| Pair::new("driver", name.to_string_lossy())));
    // A namespace is told apart from a drive only by how it is reached; it may be in more than one way.
    for controller in controllers(disk) {
        if let Some(transport) = told(&controller.join("transport")) {
            let address = told(&controller.join("address")).unwrap_or_default();
            facts.push(Pair::new("transport", format!("{transport} {address}").trim()));
        }
    }
    facts.extend(memory_below(disk).map(|memory| Pair::new(MEMORY_BELOW, memory)));
    facts
}

/// The controllers of an NVMe namespace, by its directory below /sys: its device is the only one, or the subsystem that has all.
pub(crate) fn controllers(disk: &Path) -> Vec<PathBuf> {
    let device = disk.join("device");
    if device.join("transport").exists() {
        return vec![device];
    }
    let within = fs::read_dir(&device).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut all: Vec<PathBuf> = within.filter(|path| path.join("transport").exists()).collect();
    all.sort();
    all
}

/// The text of a file of /sys, when it has any.
pub(crate) fn told(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|t| !t.is_empty())
}

/// The directory of a block device below /sys.
pub(crate) fn sys_dir(rdev: u64) -> PathBuf {
    let dir = format!("/sys/dev/block/{}:{}", rustix::fs::major(rdev), rustix::fs::minor(rdev));
    fs::canonicalize(&dir).unwrap_or(PathBuf::from(dir))
}

/// Kind and source of the file system that a path lies on.
fn mount_of(path: &Path) -> Option<(String, String)> {
    let table = fs::read_to_string("/proc/self/mounts").ok()?;
    let mut best: Option<(usize, String, String)> = None;
    for line in table.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [source, place, kind, ..] = words[..] else { continue };
        let longer = best.as_ref().is_none_or(|(len, ..)| place.len() >= *len);
        if path.starts_with(place) && longer {
            best = Some((place.len(), kind.to_owned(), source.to_owned()));
        }
    }
    best.map(|(_, kind, source)| (kind, source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_is_named_by_its_address() {
        for (name, serial) in [
            ("nbd://127.0.0.1:10809/lab/db", "lab/db"),
            ("nbd://127.0.0.1/", "default"),
            ("nbd+unix:///vol?socket=/tmp/s", "vol"),
        ] {
            assert_eq!(Target::look(name, Some(1 << 20)).unwrap().serial, serial, "{name}");
            assert!(Target::look(name, None).is_err());
        }
    }

    #[test]
    fn a_namespace_is_named_by_its_subsystem_and_number() {
        let look = |name| Target::look(name, Some(1 << 20));
        let target = look("nvme+tcp://[::1]:4420/nqn.2014-08.a:b?hostnqn=nqn.h&nsid=3").unwrap();
        assert_eq!((target.kind, target.serial.as_str()), (Kind::Nvme, "nqn.2014-08.a:b/3"));
        assert!(target.exists && target.path().is_none());
        for open in ["nvme+tcp://h", "nvme+tcp://h:1/nqn.a", "nvme+tcp://h:1/?nsid=1"] {
            assert!(look(open).is_err(), "{open}");
        }
        assert!(Target::look("nvme+tcp://h/nqn.a?nsid=1", None).is_err());
    }

    #[test]
    fn modelled_drives_are_named_by_what_they_are() {
        let target = Target::look("model:tlc:5x2G,raid=5,width=4,fill=80", None).unwrap();
        assert_eq!((target.bytes, target.path()), (10 << 30, None));
        let model = target.model().unwrap();
        assert_eq!((model.name.as_str(), model.count(), model.level.as_deref()), ("tlc", 5, Some("5")));
        assert_eq!((model.width, model.fill), (Some(4), Some(80)));
        let model = Target::look("model:a:b.toml", None).unwrap().model().unwrap();
        assert_eq!((model.name.as_str(), model.drives.as_str()), ("a:b.toml", Model::DRIVES));
        for wrong in ["model:", "model:tlc,raid", "model:tlc,fill=0", "model:tlc,fill=101", "model:tlc,depth=3"] {
            assert!(Target::look(wrong, None).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_file_that_is_not_there_wants_a_size() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let name = path.display().to_string();
        assert!(Target::look(&name, None).is_err());
        let target = Target::look(&name, Some(1 << 20)).unwrap();
        assert_eq!((target.exists, target.bytes, target.serial.as_str()), (false, 1 << 20, "f"));
        assert!(Target::look("/dev/none", Some(1)).is_err());
        assert!(Target::look("/proc", Some(1)).is_err());
    }

    #[test]
    fn memory_below_is_found_through_a_stack() {
        let dir = tempfile::tempdir().unwrap();
        let disk = |name: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.join("slaves")).unwrap();
            path
        };
        let loops = |name: &str, dio: &str| {
            fs::create_dir_all(disk(name).join("loop")).unwrap();
            fs::write(disk(name).join("loop/dio"), dio).unwrap();
            disk(name)
        };
        assert!(memory_below(&loops("loop0", "0\n")).unwrap().contains("loop0"));
        assert_eq!(memory_below(&loops("loop1", "1\n")), None);
        assert!(memory_below(&disk("ram3")).is_some() && memory_below(&disk("zram0")).is_some());
        assert_eq!(memory_below(&disk("nvme0n1")), None);
        assert_eq!(memory_below(&disk("ramdrive")), None, "a name that only begins so");
        let stacked = disk("md0");
        std::os::unix::fs::symlink(disk("nvme0n1"), stacked.join("slaves/nvme0n1")).unwrap();
        assert_eq!(memory_below(&stacked), None);
        std::os::unix::fs::symlink(disk("ram3"), stacked.join("slaves/ram3")).unwrap();
        assert!(memory_below(&stacked).unwrap().contains("ram3"));
    }

    #[test]
    fn a_disk_tells_its_write_cache_and_its_queue() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("queue")).unwrap();
        for (name, value) in
            [("write_cache", "write back"), ("fua", "1"), ("nr_requests", "1023"), ("physical_block_size", "4096")]
        {
            fs::write(dir.path().join("queue").join(name), format!("{value}\n")).unwrap();
        }
        let facts = facts_of(dir.path());
        let told = |name: &str| facts.iter().find(|f| f.name == name).map(|f| f.value.as_str());
        assert_eq!((told("write cache"), told("FUA")), (Some("write back"), Some("1")));
        assert_eq!((told("requests queued"), told("physical block")), (Some("1023"), Some("4096")));
        assert_eq!(told("firmware"), None, "what is not there is not told");
    }

    #[test]
    fn a_disk_tells_how_it_is_reached() {
        let dir = tempfile::tempdir().unwrap();
        let put = |place: &str, name: &str, value: &str| {
            fs::create_dir_all(dir.path().join(place)).unwrap();
            fs::write(dir.path().join(place).join(name), format!("{value}\n")).unwrap();
        };
        let told = |disk: &str, name: &str| {
            let facts = facts_of(&dir.path().join(disk)).into_iter();
            facts.filter(|f| f.name == name).map(|f| f.value).collect::<Vec<_>>()
        };
        put("one/device", "transport", "pcie");
        assert_eq!(told("one", "transport"), ["pcie"]);
        put("ways/device/nvme1", "transport", "tcp");
        put("ways/device/nvme1", "address", "traddr=10.0.0.5,trsvcid=4420");
        put("ways/device/nvme0", "transport", "rdma");
        put("ways/device/power", "control", "auto");
        assert_eq!(told("ways", "transport"), ["rdma", "tcp traddr=10.0.0.5,trsvcid=4420"]);
        put("vda", "serial", "0123456789abcdef0123");
        fs::create_dir_all(dir.path().join("vda/device")).unwrap();
        std::os::unix::fs::symlink("/sys/bus/virtio/drivers/virtio_blk", dir.path().join("vda/device/driver")).unwrap();
        assert_eq!((told("vda", "serial number").len(), told("vda", "driver")), (1, vec!["virtio_blk".to_owned()]));
    }

    #[test]
    fn a_file_that_was_replaced_or_cut_is_another() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, vec![1; 8192]).unwrap();
        let target = Target::look(path.to_str().unwrap(), None).unwrap();
        let first = Identity::of(&target).unwrap();
        let changes = || first.changes(&Identity::of(&target).unwrap());
        assert_eq!(changes(), Vec::<String>::new());
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(4096).unwrap();
        assert_eq!(changes(), ["it had 8192 bytes, it has 4096"]);
        fs::write(dir.path().join("other"), vec![1; 8192]).unwrap();
        fs::rename(dir.path().join("other"), &path).unwrap();
        assert_eq!(changes(), ["another file has its name"]);
        fs::remove_file(&path).unwrap();
        assert!(changes().contains(&"the file is gone".to_owned()), "{:?}", changes());
    }

    #[test]
    fn every_generation_of_a_link_has_a_rate() {
        let mut last = 0.0;
        for speed in
            ["2.5 GT/s PCIe", "5.0 GT/s PCIe", "8.0 GT/s PCIe", "16.0 GT/s PCIe", "32.0 GT/s PCIe", "64.0 GT/s PCIe"]
        {
            let mut target = Target::look("/no-such-place/drive", Some(1)).unwrap();
            target.facts = vec![Pair::new("link speed", speed), Pair::new("link width", "4")];
            let rate = target.link_bytes_per_sec().unwrap();
            assert!(rate > 1.7 * last, "{speed}: {rate}");
            last = rate;
        }
    }
}
