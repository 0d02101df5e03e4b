//! Limits of the machine that are met while the server runs.

use std::fs;
use std::os::unix::net::UnixStream;
use std::process::Command;

use e2e::failure::require;
use e2e::{Failure, OrFail, Result};

use super::Case;
use crate::fixture::Lab;

/// The cases.
pub const CASES: &[Case] = &[Case {
    name: "short-of-descriptors",
    about: "few descriptors and many silent connections: commands are answered, clients come in, the log stays short",
    run: short_of_descriptors,
}];

/// Descriptors that are left to the server.
const LEFT: usize = 24;
/// Connections that say nothing.
const SILENT: usize = 150;
/// Lines of the log that this may cause.
const LINES_MAX: usize = 12;

fn short_of_descriptors(lab: &Lab) -> Result<()> {
    let served = lab.served("a", "5", 4, "64M")?;
    let pid = served.server.pid().ok_or_else(|| Failure::new("the server", "it does not run"))?;
    let open = fs::read_dir(format!("/proc/{pid}/fd")).or_fail("its descriptors")?.count();
    let limit = open + LEFT;
    let set = Command::new("prlimit").args(["-p", &pid.to_string(), &format!("--nofile={limit}:{limit}")]).status();
    require(set.or_fail("prlimit")?.success(), "prlimit", || "prlimit failed".to_owned())?;
    let lines = || Ok::<_, Failure>(fs::read_to_string(served.dir().join("log")).or_fail("the log")?.lines().count());
    let before = lines()?;
    let mut silent = vec![];
    for n in 0..SILENT {
        silent.push(UnixStream::connect(served.server.socket()).or_fail("a silent connection")?);
        if n % 10 == 0 {
            served.ashlar.done(&["status"])?;
        }
    }
    served.ashlar.done(&["status"])?;
    served.ashlar.done(&["volume", "create", "lab/more", "16M"])?;
    require(served.server.answers(), "a connection", || "a client is not greeted".to_owned())?;
    let said = lines()? - before;
    require(said <= LINES_MAX, "the log", || format!("{said} lines of the log"))?;
    drop(silent);
    served.ashlar.done(&["status"])?;
    Ok(())
}
