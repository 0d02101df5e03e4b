//! The verbs of volumes and arrays, online and offline, as scripts use them.

use std::fs;

use e2e::ashlar::Ashlar;
use e2e::failure::require;
use e2e::server::Server;
use e2e::{OrFail, Result, tools};

use super::Case;
use super::libnbd::nbdsh;
use crate::fixture::{ARRAY, Lab, Served};

/// The cases.
pub const CASES: &[Case] = &[
    Case {
        name: "rename",
        about: "an array gets another name: served, beside another of its name, offline",
        run: rename,
    },
    Case { name: "volumes", about: "create, grow, rename, list, delete; online, then offline", run: volumes },
    Case { name: "import", about: "the drives move to another box, in another order", run: import },
    Case { name: "placement", about: "where the first core and the drives are", run: placement },
    Case { name: "read-only", about: "serve --read-only writes nothing", run: read_only },
];

/// Volumes that are there: one that was deleted is listed as dropping until its blocks are given back.
fn names(served: &Served) -> Result<Vec<String>> {
    let list = served.ashlar.json(&["volume", "list", ARRAY])?;
    let volumes = list["volumes"].as_array().cloned().unwrap_or_default();
    let live = volumes.iter().filter(|v| v["state"] == "live");
    Ok(live.filter_map(|v| Some(format!("{} {}", v["name"].as_str()?, v["bytes"].as_u64()? >> 20))).collect())
}

fn volumes(lab: &Lab) -> Result<()> {
    let mut served = lab.served("a", "5", 4, "16M")?;
    for online in [true, false] {
        if !online {
            served.server.stop()?;
        }
        served.ashlar.done(&["volume", "create", "lab/w", "8M"])?;
        served.ashlar.run(&["volume", "create", "lab/w", "8M"])?.expect(0)?;
        served.ashlar.run(&["volume", "create", "lab/w", "9M"])?.expect(3)?;
        served.ashlar.done(&["volume", "grow", "lab/w", "32M"])?;
        served.ashlar.run(&["volume", "grow", "lab/w", "8M"])?.expect(3)?;
        served.ashlar.done(&["volume", "rename", "lab/w", "x"])?;
        let found = names(&served)?;
        require(found == ["v 16", "x 32"], "volume list", || format!("{found:?}"))?;
        served.ashlar.run(&["volume", "delete", "lab/x"])?.expect(3)?;
        served.ashlar.done(&["volume", "delete", "lab/x", "--yes"])?;
        let found = names(&served)?;
        require(found == ["v 16"], "volume list", || format!("{found:?}"))?;
    }
    served.ashlar.done(&["volume", "create", "lab/late", "8M"])?;
    served.server.start()?;
    let uri = served.uri().replace("lab/v", "lab/late");
    nbdsh(&served, &uri, "assert h.get_size() == 8 << 20\nassert h.pread(8 << 20, 0) == bytes(8 << 20)").map(drop)
}

fn rename(lab: &Lab) -> Result<()> {
    let mut served = lab.served("a", "5", 4, "16M")?;
    nbdsh(&served, &served.uri(), "h.pwrite(b'here' * 4096, 8192)")?;
    let here = "assert h.pread(16384, 8192) == b'here' * 4096";
    let read = |served: &Served, name: &str| nbdsh(served, &served.uri().replace("lab/v", name), here);
    served.ashlar.done(&["rename", ARRAY, "gold"])?;
    read(&served, "gold/v")?;
    require(read(&served, "lab/v").is_err(), "the old name", || "is served".to_owned())?;
    served.ashlar.run(&["rename", ARRAY, "x"])?.expect(3)?;
    served.ashlar.run(&["rename", "gold", "a/b"])?.expect(3)?;
    // Killed with the new name: it has it.
    served.server.kill()?;
    served.server.start()?;
    read(&served, "gold/v")?;
    served.server.stop()?;
    served.ashlar.done(&["rename", "gold", ARRAY])?;
    served.ashlar.done(&["check", ARRAY])?;
    served.server.start()?;
    read(&served, "lab/v").map(drop)
}

fn import(lab: &Lab) -> Result<()> {
    let mut served = lab.served("a", "6", 6, "16M")?;
    nbdsh(&served, &served.uri(), "h.pwrite(b'here' * 4096, 8192)")?;
    served.server.kill()?;
    let dir = lab.dir.join("b");
    fs::create_dir_all(dir.join("box")).or_fail("another box")?;
    for n in 0..6 {
        fs::rename(served.file(n), dir.join("box").join(format!("bay{}", 5 - n))).or_fail("moving a drive")?;
    }
    let ashlar = Ashlar::new(&lab.program, &dir);
    ashlar.done(&["import", ARRAY, "./box"])?;
    let mut moved = Served { server: Server::new(&ashlar), ashlar, drives: vec![] };
    moved.server.start()?;
    nbdsh(&moved, &moved.uri(), "assert h.pread(16384, 8192) == b'here' * 4096").map(drop)
}

fn placement(lab: &Lab) -> Result<()> {
    let mut served = lab.served("a", "5", 4, "16M")?;
    let told = served.ashlar.json(&["status", "--placement"])?;
    let nodes = told["nodes"].as_array().cloned().unwrap_or_default();
    let listed = |drives: &serde_json::Value| drives.as_array().map_or(0, Vec::len);
    let drives = nodes.iter().map(|node| listed(&node["drives"])).sum::<usize>() + listed(&told["elsewhere"]);
    let cpus = told["data_cpus"].as_str().unwrap_or_default();
    require(drives == 4 && !cpus.is_empty(), "status --placement", || format!("{told}"))?;
    let said = served.ashlar.run(&["status", "--placement"])?.expect(0)?;
    require(said.out.contains("first core on"), "status --placement", || said.out.clone())?;
    served.server.stop()?;
    served.ashlar.run(&["status", "--placement"])?.expect(3).map(drop)
}

fn read_only(lab: &Lab) -> Result<()> {
    let mut served = lab.served("a", "5", 4, "16M")?;
    nbdsh(&served, &served.uri(), "h.pwrite(b'kept' * 1024, 0)")?;
    served.server.kill()?;
    let before: Vec<_> = (0..4).map(|n| fs::read(served.file(n)).or_fail("a drive")).collect::<Result<_>>()?;
    let mut server = Server::new(&served.ashlar).with_flags(&["--read-only"]);
    server.start()?;
    let check = "assert h.is_read_only()\nassert h.pread(4096, 0) == b'kept' * 1024";
    nbdsh(&served, &served.uri(), check)?;
    let refused = ["-f", "raw", "-c", "write 0 4k", &served.uri()].map(str::to_owned);
    tools::run_failing(served.dir(), "qemu-io", &refused)?;
    server.stop()?;
    for (n, before) in before.iter().enumerate() {
        let same = *before == fs::read(served.file(n)).or_fail("a drive")?;
        require(same, "serve --read-only", || format!("drive {n} was written"))?;
    }
    Ok(())
}
