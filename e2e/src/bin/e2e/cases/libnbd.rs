//! libnbd's tools: nbdinfo, nbdcopy, nbdsh.

use e2e::failure::require;
use e2e::{OrFail, Result, tools};
use serde_json::Value;

use super::{Case, files};
use crate::fixture::{Lab, Served};

/// The cases.
pub const CASES: &[Case] = &[
    Case { name: "nbdinfo", about: "size, flags, list and map: allocated, hole, zero", run: info },
    Case { name: "nbdcopy", about: "in and out over unix and TCP, several connections", run: copy },
    Case { name: "nbdsh", about: "requests of all sizes, flags, and the errors of bad ones", run: shell },
];

/// Debian's Python, which has the nbd module, whatever else comes first in PATH.
pub const PYTHON: &str = "/usr/bin/python3";

/// Runs a script in nbdsh, connected to `uri` as `h`.
pub fn nbdsh(served: &Served, uri: &str, script: &str) -> Result<String> {
    tools::path_of("nbdsh")?;
    tools::run(served.dir(), PYTHON, &["-m", "nbd", "--base-allocation", "--uri", uri, "-c", script])
}

fn info(lab: &Lab) -> Result<()> {
    let served = lab.served("a", "5", 4, "96M")?;
    let script = "h.pwrite(b'x' * (2 << 20), 1 << 20)\n\
                  h.zero(1 << 20, 4 << 20, nbd.CMD_FLAG_NO_HOLE)\n\
                  h.pwrite(b'y' * (1 << 20), 6 << 20)\n\
                  h.trim(1 << 20, 6 << 20)\n\
                  h.flush()";
    nbdsh(&served, &served.uri(), script)?;
    for uri in served.uris()? {
        let out = tools::run(served.dir(), "nbdinfo", &["--json", &uri])?;
        let info: Value = serde_json::from_str(&out).or_fail("nbdinfo --json")?;
        let export = &info["exports"][0];
        require(export["export-size"] == 96 << 20, "nbdinfo", || format!("another size: {info}"))?;
        for flag in ["can_flush", "can_fua", "can_multi_conn", "can_trim", "can_zero"] {
            require(export[flag] == true, "nbdinfo", || format!("{flag} is not set: {info}"))?;
        }
        require(export["is_read_only"] == false, "nbdinfo", || format!("read-only: {info}"))?;
        let out = tools::run(served.dir(), "nbdinfo", &["--map", "--json", &uri])?;
        let map: Value = serde_json::from_str(&out).or_fail("nbdinfo --map")?;
        let expected = [(0, 1, 3), (1, 2, 0), (3, 1, 3), (4, 1, 2), (5, 91, 3)];
        let found: Vec<_> = map.as_array().into_iter().flatten().map(extent).collect();
        require(found == expected, "nbdinfo --map", || format!("expected {expected:?} (MiB, MiB, type), found {map}"))?;
    }
    let base = served.uri().replace("/lab/v", "/");
    let list = tools::run(served.dir(), "nbdinfo", &["--list", &base])?;
    require(list.contains("lab/v"), "nbdinfo --list", || list.clone())
}

fn extent(e: &Value) -> (u64, u64, u64) {
    let mib = |key: &str| e[key].as_u64().unwrap_or(u64::MAX) >> 20;
    (mib("offset"), mib("length"), e["type"].as_u64().unwrap_or(u64::MAX))
}

fn copy(lab: &Lab) -> Result<()> {
    let served = lab.served("a", "6", 6, "128M")?;
    let (before, after) = (served.dir().join("in"), served.dir().join("out"));
    for (n, uri) in served.uris()?.iter().enumerate() {
        files::make(&before, 80, lab.seed + n as u64)?;
        let (from, to) = (before.display().to_string(), after.display().to_string());
        tools::run(served.dir(), "nbdcopy", &["--connections=4", "--requests=32", "--flush", &from, uri])?;
        tools::run(served.dir(), "nbdcopy", &["--connections=4", "--requests=32", uri, &to])?;
        files::same_beginning(&before, &after)?;
    }
    let uri = served.uri();
    tools::run(served.dir(), "nbdcopy", &["--request-size=33554432", &uri, "null:"]).map(drop)
}

const REQUESTS: &str = r"
import errno
MIB = 1 << 20
assert h.get_structured_replies_negotiated() and h.can_meta_context('base:allocation')
assert h.get_block_size(nbd.SIZE_MINIMUM) == 512 and h.get_block_size(nbd.SIZE_MAXIMUM) == 32 * MIB
for length in (512, 4096, 5 * 512, MIB, 32 * MIB):
    for offset in (0, 512, 4096, 7 * 512, MIB - 512):
        data = bytes((offset // 512 + i * 7) & 255 for i in range(256)) * (length // 256)
        h.pwrite(data, offset, nbd.CMD_FLAG_FUA if length == 4096 else 0)
        assert h.pread(length, offset) == data, (length, offset)
h.pwrite(b'a' * 8192, 0)
h.zero(512, 1024)
assert h.pread(8192, 0) == b'a' * 1024 + bytes(512) + b'a' * (8192 - 1536)
h.trim(8192, 4096)
assert h.pread(8192, 4096) == bytes(8192)
h.cache(MIB, 0)
h.flush()
";

const BAD_REQUESTS: &str = r"
h.set_strict_mode(0)
size = h.get_size()
def refused(name, call, *errors):
    try:
        call()
    except nbd.Error as e:
        assert e.errnum in errors, (name, e.string, e.errnum)
    else:
        raise AssertionError(name + ': it was done')
refused('read beyond the end', lambda: h.pread(4096, size), errno.EINVAL)
refused('read over the end', lambda: h.pread(8192, size - 4096), errno.EINVAL)
refused('write over the end', lambda: h.pwrite(bytes(8192), size - 4096), errno.ENOSPC, errno.EINVAL)
refused('trim over the end', lambda: h.trim(8192, size - 4096), errno.EINVAL, errno.ENOSPC)
refused('zero over the end', lambda: h.zero(8192, size - 4096), errno.EINVAL, errno.ENOSPC)
refused('length of no sectors', lambda: h.pread(100, 0), errno.EINVAL)
refused('offset of no sector', lambda: h.pwrite(bytes(512), 77), errno.EINVAL)
refused('an offset that wraps', lambda: h.pread(4096, (1 << 63) - 4096), errno.EINVAL)
h.pwrite(b'b' * 512, size - 512)
assert h.pread(512, size - 512) == b'b' * 512
";

const IN_FLIGHT: &str = r"
buffers = [nbd.Buffer.from_bytearray(bytearray([i]) * 65536) for i in range(64)]
cookies = [h.aio_pwrite(b, i * 65536) for i, b in enumerate(buffers)]
while h.aio_in_flight() > 0:
    h.poll(-1)
assert all(h.aio_command_completed(c) for c in cookies)
for i in range(64):
    assert h.pread(65536, i * 65536) == bytes([i]) * 65536, i
";

fn shell(lab: &Lab) -> Result<()> {
    let served = lab.served("a", "6", 6, "64M")?;
    for uri in served.uris()? {
        nbdsh(&served, &uri, REQUESTS)?;
        nbdsh(&served, &uri, &format!("import errno\n{BAD_REQUESTS}"))?;
        nbdsh(&served, &uri, IN_FLIGHT)?;
    }
    Ok(())
}
