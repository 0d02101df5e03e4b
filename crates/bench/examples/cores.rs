//! What a request over NBD or NVMe/TCP costs the server when its connections are on a core of their own, to what it costs when one core
//! has all: over a direct drive and over RAID 5, in memory, on loopback.
//!
//!     cargo build --release -p ashlar && cargo run --release -p bench --example cores -- target/release/ashlar
//!
//! With `nvme` behind it over NVMe/TCP, whose connections are I/O queues of one host each.
//!
//! Two servers take turns, with one connection and with four, of this depth each. The generator wants a core, too: with two in
//! the machine the rates say little.

// It runs servers: processes are its subject.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

#[path = "served/ashlar.rs"]
mod ashlar;
mod served;

use std::path::Path;

use ashlar::Server;
use bench::Target;
use rt::Rt;
use served::{Cost, Outcome, ROUNDS, cost, loads, touch_all};

fn main() -> Outcome<()> {
    let program = std::env::args().nth(1).ok_or("name the ashlar program")?;
    let rt = Rt::real()?;
    println!("                                       one core                   two cores           two : one");
    println!("subject  load                        CPU us   p50 us   kIOPS    CPU us   p50 us   kIOPS    CPU");
    for level in [None, Some("5")] {
        for connections in [1, 4] {
            table(&rt, Path::new(&program), level, connections)?;
        }
    }
    Ok(())
}

fn table(rt: &Rt, program: &Path, level: Option<&str>, connections: usize) -> Outcome<()> {
    let over_nvme = std::env::args().nth(2).as_deref() == Some("nvme");
    let servers = [
        Server::start(program, level, &["--cores", "1"])?,
        Server::start(program, level, &["--cores", "2", "--deal", "connect"])?,
    ];
    let connect = |server: &Server| -> Outcome<Vec<Target>> {
        let one = async || {
            if over_nvme { server.host(rt, true).await } else { Ok(Target::Nbd(server.connect(rt).await?)) }
        };
        (0..connections).map(|_| rt.block_on(one())).collect()
    };
    let targets = [connect(&servers[0])?, connect(&servers[1])?];
    for targets in &targets {
        touch_all(rt, &targets[0])?;
    }
    let name = level.map_or("direct".to_owned(), |level| format!("RAID {level}"));
    println!("{name}, connections: {connections}");
    for load in loads() {
        let mut measured = [vec![], vec![]];
        for round in 0..ROUNDS {
            for ((server, targets), into) in servers.iter().zip(&targets).zip(&mut measured) {
                into.push(cost(rt, server.child.id(), targets, &load, round as u64)?);
            }
        }
        let [one, two] = measured.map(Cost::median);
        let shown = |c: Cost| format!("{:>8.2} {:>8.1} {:>7.1}", c.cpu_us, c.p50_us, c.kiops);
        let (pattern, kib) = (load.pattern.to_string(), load.block_bytes >> 10);
        let ratio = two.cpu_us / one.cpu_us;
        println!("{name:<8} {pattern:<16} {kib:>4} KiB {:>4} {}  {} {ratio:>6.2}", load.depth, shown(one), shown(two));
    }
    Ok(())
}
