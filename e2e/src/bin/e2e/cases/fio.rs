//! fio's nbd engine: every block carries a checksum of its own, and is read back against it.

use std::thread;
use std::time::Duration;

use e2e::{Result, tools};

use super::Case;
use crate::fixture::{Lab, Served};

/// The cases.
pub const CASES: &[Case] = &[
    Case { name: "fio-verify", about: "random writes of four jobs, verified, over unix and TCP", run: plain },
    Case { name: "fio-drive-fail", about: "two members of a RAID 6 fail under fio's writes", run: drive_fail },
    Case { name: "fio-sigkill", about: "SIGKILL after the last answer; fio verifies after the restart", run: sigkill },
];

/// fio with four jobs, each on a quarter of the volume.
fn args(uri: &str, more: &[&str]) -> Vec<String> {
    let mut args: Vec<String> = [
        "--name=job",
        "--ioengine=nbd",
        "--rw=randwrite",
        "--bssplit=4k/50:512/10:64k/30:1m/10",
        "--iodepth=16",
        "--numjobs=4",
        "--size=16m",
        "--offset_increment=16m",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--randseed=77",
        "--minimal",
    ]
    .map(str::to_owned)
    .to_vec();
    args.push(format!("--uri={uri}"));
    args.extend(more.iter().map(|m| (*m).to_owned()));
    args
}

fn fio(served: &Served, uri: &str, more: &[&str]) -> Result<()> {
    tools::run(served.dir(), "fio", &args(uri, more)).map(drop)
}

fn plain(lab: &Lab) -> Result<()> {
    let served = lab.served("a", "5", 5, "64M")?;
    for uri in served.uris()? {
        fio(&served, &uri, &[])?;
        fio(&served, &uri, &["--bssplit=4k", "--fsync=16"])?;
    }
    Ok(())
}

fn drive_fail(lab: &Lab) -> Result<()> {
    let served = lab.served("a", "6", 6, "64M")?;
    let child = tools::start(served.dir(), "fio", &args(&served.uri(), &["--loops=6"]))?;
    for drive in [1, 4] {
        thread::sleep(Duration::from_millis(150));
        served.fail(drive)?;
    }
    tools::finish(child, "fio while drives fail")?;
    fio(&served, &served.uri(), &["--verify_only"])
}

fn sigkill(lab: &Lab) -> Result<()> {
    let mut served = lab.served("a", "6", 6, "64M")?;
    for _ in 0..3 {
        fio(&served, &served.uri(), &["--do_verify=0"])?;
        served.crash()?;
        fio(&served, &served.uri(), &["--verify_only"])?;
    }
    Ok(())
}
