//! What a request costs an NBD server on a unix socket, memory behind it: Ashlar's direct drive beside nbdkit's memory plugin.
//!
//!     cargo build --release -p ashlar && cargo run --release -p bench --example peers -- target/release/ashlar
//!
//! One connection, the same client for both, in turn. nbdkit 1.32 and later, as the distribution has it.

// It runs two servers: processes are its subject.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod served;

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::slice;
use std::time::{Duration, Instant};

use bench::Target;
use export::nbd::client::Client;
use rt::{Addr, Rt};
use served::{Cost, Outcome, ROUNDS, cost, loads, touch_all};

fn main() -> Outcome<()> {
    let program = std::env::args().nth(1).ok_or("name the ashlar program")?;
    let rt = Rt::real()?;
    let dir = tempfile::tempdir()?;
    let socket = |name: &str| dir.path().join(name);
    let ours = Server::start(
        Command::new(program)
            .args(["serve", "--stop-at-eof", "--direct", "mem:512M", "--nbd"])
            .arg(prefixed("unix:", &socket("ours")))
            .env("ASHLAR_CONTROL", socket("control"))
            .env("ASHLAR_STATE_DIR", socket("state")),
        socket("ours"),
    )?;
    let theirs = Server::start(
        Command::new("nbdkit").args(["--foreground", "--unix"]).arg(socket("theirs")).args(["memory", "512M"]),
        socket("theirs"),
    )?;
    let targets = [rt.block_on(ours.connect(&rt))?, rt.block_on(theirs.connect(&rt))?];
    for target in &targets {
        touch_all(&rt, target)?;
    }
    println!("                                 Ashlar                     nbdkit memory         Ashlar : nbdkit");
    println!("load                         CPU us   p50 us   kIOPS    CPU us   p50 us   kIOPS    CPU");
    for load in loads() {
        let mut measured = [vec![], vec![]];
        for round in 0..ROUNDS {
            for ((server, target), into) in [&ours, &theirs].into_iter().zip(&targets).zip(&mut measured) {
                into.push(cost(&rt, server.child.id(), slice::from_ref(target), &load, round as u64)?);
            }
        }
        let [ours, theirs] = measured.map(Cost::median);
        println!(
            "{:<16} {:>4} KiB {:>4} {:>6.2} {:>8.1} {:>7.1}  {:>8.2} {:>8.1} {:>7.1} {:>6.2}",
            load.pattern.to_string(),
            load.block_bytes >> 10,
            load.depth,
            ours.cpu_us,
            ours.p50_us,
            ours.kiops,
            theirs.cpu_us,
            theirs.p50_us,
            theirs.kiops,
            ours.cpu_us / theirs.cpu_us
        );
    }
    Ok(())
}

fn prefixed(prefix: &str, path: &Path) -> std::ffi::OsString {
    let mut all = OsStr::new(prefix).to_owned();
    all.push(path);
    all
}

/// A server of one export.
struct Server {
    child: Child,
    socket: PathBuf,
}

impl Server {
    fn start(command: &mut Command, socket: PathBuf) -> Outcome<Server> {
        let log = File::create(socket.with_extension("log"))?;
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log).spawn()?;
        Ok(Server { child, socket })
    }

    async fn connect(&self, rt: &Rt) -> Outcome<Target> {
        let (begun, address) = (Instant::now(), Addr::Unix(self.socket.clone()));
        loop {
            match Client::connect(rt, &address, "").await {
                Ok(client) => return Ok(Target::Nbd(client)),
                Err(error) if begun.elapsed() > Duration::from_secs(20) => return Err(error.into()),
                Err(_) => rt.sleep(Duration::from_millis(20)).await,
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}
