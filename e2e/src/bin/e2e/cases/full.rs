//! A full array: writes fail with "no space", reads go on, and what is given back can be used again.

use e2e::Result;

use super::Case;
use super::libnbd::nbdsh;
use crate::fixture::{ARRAY, Lab};

/// The cases.
pub const CASES: &[Case] = &[Case {
    name: "full",
    about: "a volume larger than the array: ENOSPC, reads, deallocation, writes again, delete",
    run: full,
}];

const FILL: &str = r"
import errno
MIB = 1 << 20
def piece(i):
    return bytes([i & 255, i >> 8, 1, 2]) * (MIB // 4)
count = h.get_size() // MIB
full = None
for i in range(count):
    try:
        h.pwrite(piece(i), i * MIB)
    except nbd.Error as e:
        assert e.errnum == errno.ENOSPC, (e.string, e.errnum)
        full = i
        break
assert full is not None and full > 100, full
for i in range(full):
    assert h.pread(MIB, i * MIB) == piece(i), i
for i in range(full):
    h.pwrite(piece(i + 7), i * MIB)
h.trim(32 * MIB, 0)
h.flush()
for i in range(20):
    h.pwrite(piece(i + 9), (full + i) * MIB)
for i in range(full + 20):
    want = piece(i + 7) if i < full else piece(i - full + 9)
    assert h.pread(MIB, i * MIB) == (bytes(MIB) if i < 32 else want), i
";

fn full(lab: &Lab) -> Result<()> {
    let mut served = lab.served("a", "5", 3, "2G")?;
    nbdsh(&served, &served.uri(), FILL)?;
    served.crash()?;
    served.ashlar.done(&["volume", "delete", "lab/v", "--yes"])?;
    served.ashlar.done(&["volume", "create", "lab/v", "300M"])?;
    let again = "for i in range(300): h.pwrite(bytes([i & 255]) * (1 << 20), i << 20)\n\
                 for i in range(300): assert h.pread(1 << 20, i << 20) == bytes([i & 255]) * (1 << 20), i";
    nbdsh(&served, &served.uri(), again)?;
    served.server.stop()?;
    served.ashlar.done(&["check", ARRAY]).map(drop)
}
