//! What a request over the network costs the server: NVMe/TCP beside NBD on TCP, over direct drives and over arrays, all
//! in memory, on loopback; and a lone request beside a bare TCP echo of the same sizes.
//!
//!     cargo build --release -p ashlar && cargo run --release -p bench --example exports -- target/release/ashlar
//!
//! With `no-flow-control` behind it the NVMe host does without the queue's head, and reads are answered by data alone.
//!
//! The protocols take turns.

// It runs a server and an echo: processes, threads and sockets are its subject.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

#[path = "served/ashlar.rs"]
mod ashlar;
mod served;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::slice;
use std::thread;
use std::time::Instant;

use ashlar::Server;
use bench::Target;
use rt::Rt;
use served::{Cost, Outcome, ROUNDS, cost, loads, touch_all};

/// Level; nothing is direct drives.
const SUBJECTS: [Option<&str>; 5] = [None, Some("0"), Some("10"), Some("5"), Some("6")];

fn main() -> Outcome<()> {
    let program = std::env::args().nth(1).ok_or("name the ashlar program")?;
    let rt = Rt::real()?;
    println!("                                     NVMe/TCP                   NBD on TCP          NVMe/TCP : NBD");
    println!("subject  load                        CPU us   p50 us   kIOPS    CPU us   p50 us   kIOPS    CPU");
    for subject in SUBJECTS {
        table(&rt, Path::new(&program), subject)?;
    }
    for (pattern, sent, answered) in [("random read", 72, 4120 + 24), ("random write", 72 + 4096, 24)] {
        println!("echo     {pattern} 4 KiB, {sent} and {answered} bytes: p50 {:.1} us", echo(sent, answered)?);
    }
    Ok(())
}

fn table(rt: &Rt, program: &Path, level: Option<&str>) -> Outcome<()> {
    let server = Server::start(program, level, &[])?;
    let (nvme, nbd) = rt.block_on(targets(&server, rt))?;
    touch_all(rt, &nvme)?;
    let name = level.map_or("direct".to_owned(), |level| format!("RAID {level}"));
    for load in loads() {
        let mut measured = [vec![], vec![]];
        for round in 0..ROUNDS {
            // What one leaves to clean is the other's to do: each is first as often.
            for (target, n) in if round % 2 == 0 { [(&nvme, 0), (&nbd, 1)] } else { [(&nbd, 1), (&nvme, 0)] } {
                measured[n].push(cost(rt, server.child.id(), slice::from_ref(target), &load, round as u64)?);
            }
        }
        let [ours, theirs] = measured.map(Cost::median);
        println!(
            "{name:<8} {:<16} {:>4} KiB {:>4} {:>8.2} {:>8.1} {:>7.1}  {:>8.2} {:>8.1} {:>7.1} {:>6.2}",
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
    drop((nvme, nbd));
    Ok(())
}

/// The same namespace by both ways.
async fn targets(server: &Server, rt: &Rt) -> Outcome<(Target, Target)> {
    let flow_control = std::env::args().nth(2).as_deref() != Some("no-flow-control");
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
