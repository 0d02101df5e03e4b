//! What a request over the network costs the server: NVMe/TCP beside NBD on TCP, over direct drives and over arrays, all
//! in memory, on loopback; a guest's request by vhost-user beside both, over arrays; and a lone request beside a bare TCP echo of
//! the same sizes.
//!
//!     cargo build --release -p ashlar && cargo run --release -p bench --example exports -- target/release/ashlar
//!
//! Behind the program may be a subject (`direct`, or a level such as `5`), of which alone a table is then made. With
//! `no-flow-control` the NVMe host does without the queue's head, and reads are answered by data alone.
//!
//! The protocols take turns. The guest is played by this program (`served/guest.rs`); direct drives are not served to guests.

// It runs a server and an echo: processes, threads and sockets are its subject.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

#[path = "served/ashlar.rs"]
mod ashlar;
#[path = "served/guest.rs"]
mod guest;
mod served;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::slice;
use std::thread;
use std::time::{Duration, Instant};

use ashlar::Server;
use bench::{Load, Pattern, Target, Until};
use guest::Guest;
use rt::Rt;
use served::{Cost, Outcome, ROUNDS, TIME, WORKING_SET, cost, costed, touch_all};

/// Level; nothing is direct drives.
const SUBJECTS: [Option<&str>; 5] = [None, Some("0"), Some("10"), Some("5"), Some("6")];
/// Requests in flight.
const DEPTHS: [usize; 3] = [1, 32, 128];
const NO_FLOW_CONTROL: &str = "no-flow-control";

fn main() -> Outcome<()> {
    let program = std::env::args().nth(1).ok_or("name the ashlar program")?;
    let only = std::env::args().skip(2).find(|word| word != NO_FLOW_CONTROL);
    let rt = Rt::real()?;
    println!(
        "                                     NVMe/TCP                   NBD on TCP                 vhost-user                 to NBD, CPU"
    );
    println!(
        "subject  load                        CPU us   p50 us   kIOPS    CPU us   p50 us   kIOPS    CPU us   p50 us   kIOPS    NVMe  vhost"
    );
    for subject in SUBJECTS {
        if only.as_ref().is_none_or(|only| only == subject.unwrap_or("direct")) {
            table(&rt, Path::new(&program), subject)?;
        }
    }
    for (pattern, sent, answered) in [("random read", 72, 4120 + 24), ("random write", 72 + 4096, 24)] {
        println!("echo     {pattern} 4 KiB, {sent} and {answered} bytes: p50 {:.1} us", echo(sent, answered)?);
    }
    Ok(())
}

/// 4 KiB in any order and 128 KiB one after the other, at each depth.
fn loads() -> Vec<Load> {
    let mut loads = vec![];
    for (bytes, patterns) in [
        (4096, [Pattern::RANDOM_READ, Pattern::RANDOM_WRITE]),
        (128 << 10, [Pattern::SEQUENTIAL_READ, Pattern::SEQUENTIAL_WRITE]),
    ] {
        loads.extend(DEPTHS.into_iter().flat_map(|depth| patterns.map(|pattern| Load::new(pattern, bytes, depth))));
    }
    loads
}

fn table(rt: &Rt, program: &Path, level: Option<&str>) -> Outcome<()> {
    let sockets = tempfile::tempdir()?;
    let server = Server::start(program, level, &["--guests", &sockets.path().display().to_string()])?;
    let (nvme, nbd) = rt.block_on(targets(&server, rt))?;
    // After all of the volume was touched: what is mapped by one is mapped by all.
    touch_all(rt, &nvme)?;
    let guest = match level {
        Some(_) => Some(rt.block_on(async { Guest::start(rt, &socket(rt, sockets.path()).await?).await })?),
        None => None,
    };
    let name = level.map_or("direct".to_owned(), |level| format!("RAID {level}"));
    let until = Until::Elapsed { time: TIME, bytes_max: u64::MAX };
    let pid = server.child.id();
    for load in loads() {
        let mut measured = [vec![], vec![], vec![]];
        for round in 0..ROUNDS {
            // What one leaves to clean is the next one's to do: each begins in its turn.
            for n in (0..3).map(|n| (n + round) % 3) {
                let (target, seed) = ([&nvme, &nbd].get(n).copied(), round as u64);
                let of = match (target, &guest) {
                    (Some(target), _) => cost(rt, pid, slice::from_ref(target), &load, seed)?,
                    (None, Some(guest)) => costed(pid, || {
                        let ran = rt.block_on(guest.run(&load, WORKING_SET, until, seed))?;
                        Ok((ran.requests, ran.p50.as_secs_f64() * 1e6, ran.elapsed))
                    })?,
                    (None, None) => continue,
                };
                measured[n].push(of);
            }
        }
        let of = measured.map(|all| if all.is_empty() { None } else { Some(Cost::median(all)) });
        let texts = of.map(|cost| match cost {
            Some(cost) => format!("{:>8.2} {:>8.1} {:>7.1}", cost.cpu_us, cost.p50_us, cost.kiops),
            None => format!("{:>8} {:>8} {:>7}", "-", "-", "-"),
        });
        let to_nbd = |n: usize| match (of[n], of[1]) {
            (Some(cost), Some(nbd)) => format!("{:>6.2}", cost.cpu_us / nbd.cpu_us),
            _ => format!("{:>6}", "-"),
        };
        println!(
            "{name:<8} {:<16} {:>4} KiB {:>4} {}  {}",
            load.pattern.to_string(),
            load.block_bytes >> 10,
            load.depth,
            texts.join("  "),
            [to_nbd(0), to_nbd(2)].join(" ")
        );
    }
    drop((guest, nvme, nbd));
    Ok(())
}

/// The one socket for guests, once it is there.
async fn socket(rt: &Rt, directory: &Path) -> Outcome<PathBuf> {
    let begun = Instant::now();
    loop {
        let found = std::fs::read_dir(directory)?.next();
        match found {
            Some(entry) => return Ok(entry?.path()),
            None if begun.elapsed() > Duration::from_secs(20) => return Err("no socket for guests".into()),
            None => rt.sleep(Duration::from_millis(20)).await,
        }
    }
}

/// The same namespace by both ways.
async fn targets(server: &Server, rt: &Rt) -> Outcome<(Target, Target)> {
    let flow_control = std::env::args().skip(2).all(|word| word != NO_FLOW_CONTROL);
    Ok((server.host(rt, flow_control).await?, Target::Nbd(server.connect(rt).await?)))
}

/// Median time of a message and its answer between two threads, in microseconds.
fn echo(sent: usize, answered: usize) -> Outcome<f64> {
    const TIMES: usize = 20_000;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let other = thread::spawn(move || -> std::io::Result<()> {
        let (mut socket, _) = listener.accept()?;
        socket.set_nodelay(true)?;
        let (mut request, answer) = (vec![0; sent], vec![0; answered]);
        for _ in 0..TIMES {
            socket.read_exact(&mut request)?;
            socket.write_all(&answer)?;
        }
        Ok(())
    });
    let mut socket = TcpStream::connect(address)?;
    socket.set_nodelay(true)?;
    let (request, mut answer) = (vec![0; sent], vec![0; answered]);
    let mut times = Vec::with_capacity(TIMES);
    for _ in 0..TIMES {
        let begun = Instant::now();
        socket.write_all(&request)?;
        socket.read_exact(&mut answer)?;
        times.push(begun.elapsed());
    }
    other.join().map_err(|_| "the echo panicked")??;
    times.sort();
    Ok(times[TIMES / 2].as_secs_f64() * 1e6)
}
