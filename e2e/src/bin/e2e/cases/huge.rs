//! Arrays of 61 and 123 TB: sparse files as large as the largest QLC drives, in little memory.

use std::fs;

use e2e::ashlar::Ashlar;
use e2e::failure::require;
use e2e::server::Server;
use e2e::{Failure, OrFail, Result, tools};

use super::Case;
use super::libnbd::PYTHON;
use crate::fixture::Lab;

/// The cases.
pub const CASES: &[Case] = &[Case {
    name: "huge",
    about: "61 and 123 TB: writes here and there, zeros and trims of TiB, SIGKILL, read back, within 1 GiB",
    run: huge,
}];

/// A drive of 15.36 TB.
const DRIVE: &str = "14304G";

/// The arrays: of four drives and of eight.
const ARRAYS: [&str; 2] = ["small", "large"];

/// All that the server may ever have in memory, for both arrays, in KiB.
const MEMORY_MAX_KIB: u64 = 1 << 20;

/// The places are the same each time; a part of the volume gets zeros afterwards, another is given back.
const PLACES: &str = r"
import random
rand, size = random.Random(1), h.get_size()
places = list(dict.fromkeys(rand.randrange(size // 4096) for _ in range(8000)))
zeroed, trimmed = (size // 4, size // 4 + size // 64), (size // 2, size // 2 + size // 8)
def data(p):
    return (p * 0x9e3779b97f4a7c15 % (1 << 64)).to_bytes(8, 'little') * 512
def within(p, part):
    return part[0] <= p * 4096 < part[1]
";

const WRITE: &str = r"
for i in range(0, len(places), 64):
    cookies = [h.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(data(p))), p * 4096) for p in places[i:i + 64]]
    while cookies:
        h.poll(-1)
        cookies = [c for c in cookies if not h.aio_command_completed(c)]
for call, (begin, end) in ((lambda n, at: h.zero(n, at, nbd.CMD_FLAG_NO_HOLE), zeroed), (h.trim, trimmed)):
    for at in range(begin, end, 2 << 30):
        call(min(2 << 30, end - at), at)
h.flush()
";

const READ: &str = r"
for p in places:
    gone = within(p, zeroed) or within(p, trimmed)
    assert h.pread(4096, p * 4096) == (bytes(4096) if gone else data(p)), p
";

fn huge(lab: &Lab) -> Result<()> {
    let dir = lab.dir.join("huge");
    fs::create_dir_all(dir.join("d")).or_fail(dir.display().to_string())?;
    let ashlar = Ashlar::new(&lab.program, &dir);
    let mut server = Server::new(&ashlar).with_flags(&["--map-memory", "2M"]);
    server.start()?;
    for (name, (raid, drives, size)) in ARRAYS.into_iter().zip([("5", 4, "40T"), ("6", 8, "80T")]) {
        let drives: Vec<String> = (0..drives).map(|n| format!("d/{name}{n}")).collect();
        let mut create = vec!["create", name, "--raid", raid, "--size", DRIVE];
        create.extend(drives.iter().map(String::as_str));
        ashlar.done(&create)?;
        ashlar.done(&["volume", "create", &format!("{name}/v"), size])?;
    }
    let each = |server: &Server, what: &str| ARRAYS.iter().try_for_each(|name| shell(&ashlar, server, name, what));
    each(&server, WRITE)?;
    within_memory(&server)?;
    server.kill()?;
    server.start()?;
    each(&server, READ)?;
    within_memory(&server)?;
    for name in ARRAYS {
        let status = ashlar.status(name)?;
        let missed = status["map_misses"].as_u64().unwrap_or(0);
        require(missed > 1000, "status", || format!("the map of {name} fits in its memory: {missed} misses"))?;
        ashlar.done(&["volume", "delete", &format!("{name}/v"), "--yes"])?;
    }
    server.stop()?;
    ARRAYS.iter().try_for_each(|name| ashlar.done(&["check", name]).map(drop))
}

/// Runs a script beside the volume of an array.
fn shell(ashlar: &Ashlar, server: &Server, array: &str, what: &str) -> Result<()> {
    tools::path_of("nbdsh")?;
    let uri = format!("nbd+unix:///{array}/v?socket={}", server.socket().display());
    let script = format!("{PLACES}{what}");
    tools::run(ashlar.dir(), PYTHON, &["-m", "nbd", "--uri", &uri, "-c", &script]).map(drop)
}

/// What the server had in memory at most.
fn within_memory(server: &Server) -> Result<()> {
    let pid = server.pid().ok_or_else(|| server.broken("it does not run".into()))?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).or_fail("/proc")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
    let peak: u64 = peak.ok_or_else(|| Failure::new("/proc", "there is no VmHWM"))?;
    require(peak < MEMORY_MAX_KIB, "the server", || format!("it took {peak} KiB of memory"))
}
