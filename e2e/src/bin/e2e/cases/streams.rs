//! Where output and logs go is full, gone, or is not read.

use std::fs::File;
use std::io::{self, Read, Write};
use std::process::{Child, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use e2e::failure::require;
use e2e::server::Server;
use e2e::{Failure, OrFail, Result};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::Case;
use super::libnbd::nbdsh;
use crate::fixture::Lab;

/// The cases.
pub const CASES: &[Case] = &[
    Case {
        name: "output-lost",
        about: "output that cannot be written is an error, a reader that left is none",
        run: output,
    },
    Case { name: "log-lost", about: "the server goes on, wherever its log goes", run: log },
];

/// What waits for nothing ends within this.
const ENDS_WITHIN: Duration = Duration::from_secs(30);

/// Waits for a child; one that goes on is killed.
fn end(mut child: Child, what: &str) -> Result<ExitStatus> {
    let begun = Instant::now();
    while begun.elapsed() < ENDS_WITHIN {
        if let Some(status) = child.try_wait().or_fail(what)? {
            return Ok(status);
        }
        thread::sleep(Duration::from_millis(2));
    }
    child.kill().or_fail(what)?;
    child.wait().or_fail(what)?;
    Err(Failure::new(what, format!("it goes on after {ENDS_WITHIN:?}")))
}

fn full() -> Result<File> {
    File::options().write(true).open("/dev/full").or_fail("/dev/full")
}

/// The writing end of a pipe that nobody reads.
fn unread() -> Result<io::PipeWriter> {
    io::pipe().or_fail("a pipe").map(|(_, writer)| writer)
}

fn output(lab: &Lab) -> Result<()> {
    let mut served = lab.served("a", "5", 4, "16M")?;
    let verbs: [&[&str]; 14] = [
        &["status"],
        &["status", "lab"],
        &["status", "--json"],
        &["status", "--placement"],
        &["status", "--watch"],
        &["iostat", "--json"],
        &["iostat", "--every", "1"],
        &["volume", "list", "lab"],
        &["volume", "list", "lab", "--json"],
        &["lab", "list"],
        &["--help"],
        &["create", "--help"],
        &["--version"],
        &["completion", "bash"],
    ];
    let offline: [&[&str]; 4] = [&["inspect", "d/0"], &["check", "lab"], &["check", "lab", "--json"], &["status"]];
    for online in [true, false] {
        if !online {
            served.server.stop()?;
        }
        for &verb in if online { &verbs[..] } else { &offline[..] } {
            let what = format!("ashlar {}", verb.join(" "));
            let run = |stdout: Stdio| -> Result<(ExitStatus, String)> {
                let mut command = served.ashlar.command(verb);
                let mut child = command.stdout(stdout).stderr(Stdio::piped()).spawn().or_fail(what.as_str())?;
                let mut stderr = child.stderr.take().ok_or("none").or_fail("its standard error")?;
                let status = end(child, &what)?;
                let mut said = String::new();
                stderr.read_to_string(&mut said).or_fail(what.as_str())?;
                Ok((status, said))
            };
            let (status, said) = run(full()?.into())?;
            let told =
                said.contains("cannot be written") && said.contains("No space left") && said.lines().count() == 1;
            require(status.code() == Some(1) && told, &format!("{what} >/dev/full"), || format!("{status}: {said}"))?;
            let (status, said) = run(unread()?.into())?;
            let quiet = status.code() == Some(0) && said.is_empty();
            require(quiet, &format!("{what} | true"), || format!("{status}: {said}"))?;
        }
    }
    served.server.start()?;
    // It ends when its reader does, long before it would write again.
    let mut command = served.ashlar.command(&["status", "--watch", "3600"]);
    let mut watch = command.stdout(Stdio::piped()).spawn().or_fail("status --watch")?;
    let mut reader = watch.stdout.take().ok_or("none").or_fail("its output")?;
    reader.read_exact(&mut [0; 8]).or_fail("status --watch")?;
    drop(reader);
    let status = end(watch, "ashlar status --watch 3600 | head -1")?;
    require(status.success(), "ashlar status --watch 3600 | head -1", || status.to_string())
}

/// A pipe that takes nothing more, and whose reader stays.
fn stuffed() -> Result<(io::PipeReader, io::PipeWriter)> {
    let (reader, mut writer) = io::pipe().or_fail("a pipe")?;
    let flags = fcntl_getfl(&writer).or_fail("a pipe")?;
    fcntl_setfl(&writer, flags | OFlags::NONBLOCK).or_fail("a pipe")?;
    while writer.write(&[b'.'; 512]).is_ok() {}
    fcntl_setfl(&writer, flags).or_fail("a pipe")?;
    Ok((reader, writer))
}

fn log(lab: &Lab) -> Result<()> {
    let served = lab.array("a", "5", 4, "16M")?;
    let (_reader, stuffed) = stuffed()?;
    let wheres: [(&str, Stdio); 4] = [
        ("/dev/full", full()?.into()),
        ("a pipe without a reader", unread()?.into()),
        ("a pipe that is not read", stuffed.into()),
        ("a file that cannot be written", File::open("/dev/null").or_fail("/dev/null")?.into()),
    ];
    for (place, stderr) in wheres {
        let what = format!("ashlar serve, its log to {place}");
        let mut server = Server::new(&served.ashlar);
        server.spawn_logging_to(stderr)?;
        server.wait_ready()?;
        for _ in 0..20 {
            for verb in [&["volume", "create", "lab/w", "1M"][..], &["volume", "delete", "lab/w", "--yes"]] {
                let child = served.ashlar.command(verb).stdout(Stdio::null()).spawn().or_fail("ashlar volume")?;
                let status = end(child, &format!("{what}: ashlar {}", verb.join(" ")))?;
                require(status.success(), &what, || format!("ashlar {}: {status}", verb.join(" ")))?;
            }
        }
        nbdsh(&served, &served.uri(), "h.pwrite(b'here' * 1024, 0)\nassert h.pread(4096, 0) == b'here' * 1024")?;
        server.stop()?;
    }
    Ok(())
}
