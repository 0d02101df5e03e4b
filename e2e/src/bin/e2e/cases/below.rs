//! What lies below files that are drives: a file system that is full, and one that hangs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use e2e::failure::require;
use e2e::{Failure, OrFail, Result, tools};
use serde_json::Value;

use super::Case;
use super::libnbd::nbdsh;
use crate::fixture::{ARRAY, Lab, Served};

/// The cases.
pub const CASES: &[Case] = &[
    Case { name: "no-room", about: "the file system below is full, and has room again", run: no_room },
    Case { name: "fuse-hangs", about: "a slow FUSE file of one array stops no other", run: fuse_hangs },
];

/// What must come comes within this.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is mounted, until this is dropped.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        // Whatever became of the case, nothing stays mounted.
        let _gone = tools::run(Path::new("/"), "umount", &["-l".into(), self.0.display().to_string()]);
    }
}

/// A file system in memory: what is measured there does not wait for the disk of a busy machine.
fn in_memory(at: &Path, size: &str) -> Result<Mounted> {
    let (size, place) = (format!("size={size}"), at.display().to_string());
    tools::run(Path::new("/"), "mount", &["-t", "tmpfs", "-o", &size, "none", &place])?;
    Ok(Mounted(at.to_owned()))
}

/// Asks again and again.
fn until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if holds()? {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(50));
    }
    Err(Failure::new(what, format!("it is not so after {PATIENCE:?}")))
}

fn alarms(served: &Served, array: &str) -> Result<Vec<String>> {
    let status = served.ashlar.status(array)?;
    let all = status["alarms"].as_array().cloned().unwrap_or_default();
    Ok(all.iter().map(|a| format!("{}: {}", a["code"].as_str().unwrap_or_default(), a["what"])).collect())
}

/// Writes `$mib` mebibytes from `$from` on; prints the error number of the first that fails.
fn writes(from: usize, mib: usize) -> String {
    format!(
        "try:\n for i in range({from}, {from} + {mib}): h.pwrite(bytes([i % 250 + 1]) * (1 << 20), i << 20)\n \
         print('all')\nexcept nbd.Error as e: print(e.errnum)"
    )
}

fn reads(from: usize, mib: usize) -> String {
    format!(
        "for i in range({from}, {from} + {mib}): assert h.pread(1 << 20, i << 20) == bytes([i % 250 + 1]) * (1 << 20), i"
    )
}

fn no_room(lab: &Lab) -> Result<()> {
    let below = lab.dir.join("a").join("d");
    fs::create_dir_all(&below).or_fail("the drives' directory")?;
    let at = below.display().to_string();
    let _mounted = in_memory(&below, "160M")?;
    let mut served = lab.served("a", "5", 4, "128M")?;
    nbdsh(&served, &served.uri(), &writes(0, 8))?;
    let filler = below.join("filler");
    let fill = |mib: usize| fs::write(&filler, vec![1; mib << 20]).or_fail("the filler");
    fill(100)?;
    // It waits, and goes on when there is room.
    let uri = served.uri();
    let before = served.ashlar.status(ARRAY)?;
    let waited = thread::scope(|s| -> Result<String> {
        let writer = s.spawn(|| nbdsh(&served, &uri, &writes(8, 60)));
        until("an alarm that there is no room", || {
            Ok(alarms(&served, ARRAY)?.iter().any(|a| a.starts_with("no_room_below")))
        })?;
        nbdsh(&served, &uri, &reads(0, 8))?;
        fs::remove_file(&filler).or_fail("the filler")?;
        writer.join().map_err(|_| Failure::new("the writer", "it panicked"))?
    })?;
    require(waited.trim() == "all", "writes that waited for room", || waited.clone())?;
    until("no alarm", || Ok(alarms(&served, ARRAY)?.is_empty()))?;
    // It waits for too long.
    let used =
        160 - 8 - tools::run(&lab.dir, "du", &["-sm", &at])?.split('\t').next().map_or(0, |n| n.parse().unwrap_or(0));
    fill(used)?;
    let refused = nbdsh(&served, &uri, &writes(68, 60))?;
    require(refused.trim() == "28", "a write without room", || format!("not ENOSPC: {refused}"))?;
    nbdsh(&served, &uri, &reads(0, 68))?;
    fs::remove_file(&filler).or_fail("the filler")?;
    until("no alarm", || Ok(alarms(&served, ARRAY)?.is_empty()))?;
    nbdsh(&served, &uri, &format!("{}\nh.flush()", writes(68, 4)))?;
    let after = served.ashlar.status(ARRAY)?;
    let states = |status: &Value| {
        status["members"].as_array().map_or(vec![], |d| d.iter().map(|d| d["state"].clone()).collect())
    };
    let same = after["state"] == "optimal" && states(&before) == states(&after) && !states(&after).is_empty();
    require(same, "status", || format!("{after}"))?;
    nbdsh(&served, &uri, &reads(0, 72))?;
    served.server.stop()?;
    served.ashlar.done(&["check", ARRAY]).map(drop)
}

/// A FUSE file whose flushes take [`SLOW`] while the file `slow` is there.
struct Fuse {
    child: Child,
    _mounted: Mounted,
}

impl Drop for Fuse {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}

const SLOW: Duration = Duration::from_secs(2);

fn fuse(dir: &Path) -> Result<Fuse> {
    tools::path_of("nbdkit")?;
    let image = fs::File::create(dir.join("image")).or_fail("the image")?;
    image.set_len(288 << 20).or_fail("the image")?;
    let file = dir.join("fuse");
    fs::write(&file, "").or_fail("the place of the FUSE file")?;
    let img = dir.join("image").display().to_string();
    let sleep = format!("[ -e {} ] && sleep {}", dir.join("slow").display(), SLOW.as_secs());
    let args = [
        file.display().to_string(),
        "--command".into(),
        "nbdkit".into(),
        "-s".into(),
        "--exit-with-parent".into(),
        "eval".into(),
        "get_size=echo 301989888".into(),
        format!("pread=dd if={img} skip=$4 count=$3 iflag=count_bytes,skip_bytes status=none"),
        format!("pwrite=dd of={img} conv=notrunc seek=$4 oflag=seek_bytes status=none"),
        format!("flush={sleep}; exit 0"),
        "can_write=exit 0".into(),
        "can_flush=exit 0".into(),
    ];
    let child = tools::start(dir, "nbdfuse", &args)?;
    let fuse = Fuse { child, _mounted: Mounted(file.clone()) };
    until("the FUSE file", || Ok(fs::metadata(&file).is_ok_and(|m| m.len() > 0)))?;
    Ok(fuse)
}

fn fuse_hangs(lab: &Lab) -> Result<()> {
    let dir = lab.dir.join("a");
    fs::create_dir_all(dir.join("d")).or_fail("the drives' directory")?;
    let _mounted = in_memory(&dir.join("d"), "1G")?;
    let _fuse = fuse(&dir)?;
    std::os::unix::fs::symlink(dir.join("fuse"), dir.join("d/3")).or_fail("the FUSE file among the drives")?;
    let mut served = lab.array("a", "5", 4, "32M")?;
    served.server.start()?;
    served.ashlar.done(&["create", "other", "--raid", "5", "mem:288M", "mem:288M", "mem:288M"])?;
    served.ashlar.done(&["volume", "create", "other/v", "32M"])?;
    let longest = |seconds: u64| {
        format!(
            "import time\nlongest, end = 0, time.time() + {seconds}\nwhile time.time() < end:\n \
             t = time.time(); h.pwrite(b'p' * 4096, 0); h.pread(4096, 4096); longest = max(longest, time.time() - t)\n \
             time.sleep(.01)\nprint(longest)"
        )
    };
    let other = served.uri().replace("lab/v", "other/v");
    fs::write(dir.join("slow"), "").or_fail("the wish to be slow")?;
    let took = thread::scope(|s| -> Result<String> {
        let flushes = s.spawn(|| {
            let script = "for i in range(3):\n h.pwrite(b'f' * 4096, i << 12); h.flush()";
            nbdsh(&served, &served.uri(), script)
        });
        let writes = s.spawn(|| nbdsh(&served, &served.uri(), &longest(9)));
        let took = nbdsh(&served, &other, &longest(9))?;
        for thread in [flushes, writes] {
            thread.join().map_err(|_| Failure::new("a client", "it panicked"))??;
        }
        Ok(took)
    })?;
    fs::remove_file(dir.join("slow")).or_fail("no wish to be slow")?;
    let longest: f64 = took.trim().parse().or_fail("the longest wait")?;
    let half = SLOW.as_secs_f64() / 2.0;
    require(longest < half, "the array beside it", || format!("a request took {longest} s, the slow file {SLOW:?}"))?;
    // The slow file may be blamed, and be out when a write waits behind several flushes; nothing else is.
    let of_others = |a: &String| a.contains("/d/");
    let blamed: Vec<String> = alarms(&served, ARRAY)?.into_iter().filter(of_others).collect();
    let beside = alarms(&served, "other")?;
    require(blamed.is_empty() && beside.is_empty(), "alarms", || format!("{blamed:?}, {beside:?}"))?;
    served.server.stop()
}
