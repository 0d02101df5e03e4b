//! Arrays that go to another host, go back one generation, or are beyond help.

use std::fs;

use e2e::ashlar::Ashlar;
use e2e::failure::require;
use e2e::server::Server;
use e2e::{OrFail, Result};

use super::Case;
use super::libnbd::nbdsh;
use crate::fixture::{ARRAY, Lab, Served};

/// The cases.
pub const CASES: &[Case] = &[
    Case { name: "export", about: "an array is handed over and imported under other names", run: export },
    Case { name: "previous-generation", about: "back one generation, first only to look", run: previous },
    Case { name: "rescue", about: "what is left of an array beyond its redundancy is copied out", run: rescue },
];

fn export(lab: &Lab) -> Result<()> {
    let mut served = lab.served("a", "5", 4, "16M")?;
    nbdsh(&served, &served.uri(), "h.pwrite(b'over' * 4096, 8192)")?;
    served.ashlar.done(&["export", ARRAY])?;
    served.ashlar.run(&["status", ARRAY])?.expect(3)?;
    served.server.stop()?;
    let dir = lab.dir.join("b");
    fs::create_dir_all(dir.join("box")).or_fail("another box")?;
    for n in 0..4 {
        fs::rename(served.file(n), dir.join("box").join(format!("bay{}", 3 - n))).or_fail("moving a drive")?;
    }
    let ashlar = Ashlar::new(&lab.program, &dir);
    let imported = ashlar.json(&["import", ARRAY, "./box"])?;
    let replayed = &imported["arrays"][0]["recovery"]["replayed_records"];
    require(replayed == 0, "import", || format!("{replayed} records were left to replay"))?;
    let mut moved = Served { server: Server::new(&ashlar), ashlar, drives: vec![] };
    moved.server.start()?;
    nbdsh(&moved, &moved.uri(), "assert h.pread(16384, 8192) == b'over' * 4096").map(drop)
}

fn previous(lab: &Lab) -> Result<()> {
    let mut served = lab.served("a", "5", 4, "16M")?;
    nbdsh(&served, &served.uri(), "h.pwrite(b'then' * 1024, 0)")?;
    served.server.stop()?;
    served.server.start()?;
    nbdsh(&served, &served.uri(), "h.pwrite(b'late' * 1024, 1 << 20)")?;
    served.server.kill()?;
    let before: Vec<_> = (0..4).map(|n| fs::read(served.file(n)).or_fail("a drive")).collect::<Result<_>>()?;
    let back = ["import", ARRAY, "--previous-generation"];
    served.ashlar.run(&back)?.expect(3)?;
    served.ashlar.done(&[&back[..], &["--read-only"]].concat())?;
    for (n, before) in before.iter().enumerate() {
        let same = *before == fs::read(served.file(n)).or_fail("a drive")?;
        require(same, "a look at the previous generation", || format!("drive {n} was written"))?;
    }
    served.ashlar.done(&[&back[..], &["--yes"]].concat())?;
    served.server.start()?;
    let check = "assert h.pread(4096, 0) == b'then' * 1024
assert h.pread(4096, 1 << 20) in (b'late' * 1024, bytes(4096))
h.pwrite(b'anew' * 1024, 0)";
    nbdsh(&served, &served.uri(), check)?;
    served.server.kill()?;
    served.server.start()?;
    nbdsh(&served, &served.uri(), "assert h.pread(4096, 0) == b'anew' * 1024").map(drop)
}

fn rescue(lab: &Lab) -> Result<()> {
    const MIB: usize = 1 << 20;
    let mut served = lab.served("a", "5", 4, "16M")?;
    nbdsh(&served, &served.uri(), "for n in range(8): h.pwrite(bytes([n + 1]) * (1 << 20), n << 20)")?;
    served.ashlar.run(&["rescue", "lab/v", "whole.img"])?.expect(3)?;
    served.server.stop()?;
    served.ashlar.done(&["rescue", "lab/v", "whole.img"])?;
    served.ashlar.run(&["rescue", "lab/v", "whole.img"])?.expect(3)?;
    let drive = fs::read(served.file(1)).or_fail("a drive")?;
    let onto = served.file(1).display().to_string();
    served.ashlar.run(&["rescue", "lab/v", &onto, "--force"])?.expect(3)?;
    let same = drive == fs::read(served.file(1)).or_fail("a drive")?;
    require(same, "rescue", || "it wrote over a drive of the array".to_owned())?;
    let whole = fs::read(served.dir().join("whole.img")).or_fail("the copy")?;
    let expected = |at: usize| if at < 8 * MIB { (at / MIB + 1) as u8 } else { 0 };
    let same = whole.len() == 16 * MIB && whole.iter().enumerate().all(|(at, &b)| b == expected(at));
    require(same, "rescue", || "the copy of a whole array is not what was written".to_owned())?;
    served.remove(&[1, 2])?;
    let ended = served.ashlar.run(&["rescue", "lab/v", "left.img", "--json"])?.expect(4)?;
    let view: serde_json::Value = serde_json::from_str(&ended.out).or_fail("the answer")?;
    let left = fs::read(served.dir().join("left.img")).or_fail("the copy")?;
    let mut lost = vec![false; left.len()];
    for range in view["lost"].as_array().into_iter().flatten() {
        let (at, n) = (range["offset"].as_u64().unwrap_or(0) as usize, range["bytes"].as_u64().unwrap_or(0) as usize);
        lost[at..at + n].fill(true);
    }
    let some = lost.iter().any(|l| *l) && !lost[..8 * MIB].iter().all(|l| *l);
    require(some, "rescue", || format!("all or nothing is lost: {view}"))?;
    let right = |at: usize| left[at] == if lost[at] { 0 } else { expected(at) };
    require((0..left.len()).all(right), "rescue", || "a block is neither lost nor right".to_owned())
}
