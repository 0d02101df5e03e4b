//! Mutated NVMe/TCP PDUs against a server that also has an honest host: nothing panics, hangs or grows, and the honest host
//! is served all the time.
//!
//! ```text
//!   this process                                   ashlar serve --direct mem: --direct mem:
//!   a thread that takes half a core at most   -->   one drive: connections of mutated PDUs
//!   honest reads and writes, all checked      -->   the other
//! ```
//!
//! The same with guests of vhost-user: `guests.rs`.

mod flood;
mod guests;
mod half_core;
mod honest;

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use e2e::ashlar::Ashlar;
use e2e::failure::require;
use e2e::server::Server;
use e2e::{Failure, OrFail, Result};
use export::nvme::client::{Host, Wishes};
use rt::{Addr, Bytes, Rt};

use crate::flood::Flood;

/// Sends mutated NVMe/TCP PDUs to a server, beside an honest host; or is a hostile guest of it, beside an honest guest.
#[derive(Debug, Parser)]
#[command(name = "storm", after_help = "Exit codes: 0 all is well, 1 it is not.")]
struct Args {
    /// Mutated PDUs that the server must have taken
    #[arg(long, default_value_t = 1_000_000)]
    pdus: u64,
    /// Instead of PDUs: steps of a hostile guest of vhost-user that the server must have seen
    #[arg(long, value_name = "STEPS", conflicts_with = "pdus")]
    guests: Option<u64>,
    /// Decides the mutations
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Cores of the server
    #[arg(long, default_value_t = 1)]
    cores: u32,
    /// The `ashlar` program [default: the one beside this one]
    #[arg(long, value_name = "PROGRAM")]
    ashlar: Option<PathBuf>,
}

/// Size of each drive, in memory.
const DRIVE: &str = "mem:16M";
/// What the server may grow by after the first tenth: pages that its allocator keeps, and the flooded drive, of which
/// mutated commands deallocate more or less.
const GROWTH_MAX: u64 = 8 << 20;
/// The slowest honest request.
const SLOWEST_MAX: Duration = Duration::from_secs(1);
/// When nothing was taken for so long, the server hangs.
const STANDSTILL_MAX: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            println!("FAILED  {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    match args.guests {
        Some(steps) => guests::run(args, steps),
        None => pdus(args),
    }
}

fn pdus(args: &Args) -> Result<()> {
    let program = e2e::ashlar::find(args.ashlar.clone())?;
    let dir = tempfile::Builder::new().prefix("storm-").tempdir().or_fail("a temporary directory")?;
    let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).or_fail("a free port")?.port();
    let address = format!("tcp:127.0.0.1:{port}");
    let drives = ["--direct", DRIVE, "--direct", DRIVE];
    let mut server = Server::new(&Ashlar::new(&program, dir.path())).with_flags(
        &[&drives[..], &["--nvme", &address, "--allow-any", "--cores", &args.cores.to_string(), "--deal", "connect"]]
            .concat(),
    );
    server.start()?;
    let address: Addr = address.parse().or_fail("the address")?;
    let rt = Rt::real().or_fail("the runtime (io_uring)")?;
    let seen = rt.block_on(Host::discover(&rt, &address, &Wishes::default())).or_fail("discovery")?.1;
    let [ours, theirs] = &seen[..] else {
        return Err(Failure::new("discovery", format!("two drives were expected: {seen:?}")));
    };
    for entry in &seen {
        fill(&rt, &address, &entry.subsystem)?;
    }
    let flood = Flood::start(address.clone(), theirs.subsystem.clone(), args.seed);
    let honest = honest::Honest::new(&rt, &address, &ours.subsystem, args.seed)?;
    let taken = || flood.taken();
    let watched = rt.block_on(watch(args.pdus, &rt, &mut server, taken, || honest.is_well()));
    flood.stop();
    let memory = watched?;
    let served = rt.block_on(honest.finish())?;
    println!(
        "{} PDUs taken on {} connections, {} of them terminated",
        flood.taken(),
        flood.connections(),
        flood.terminated()
    );
    is_well_served(&memory, &served)?;
    server.stop()
}

/// The server's memory after a tenth, and at the end.
struct Memory {
    first: u64,
    last: u64,
}

/// That the server has not grown, and who was honest has not waited.
fn is_well_served(memory: &Memory, served: &honest::Served) -> Result<()> {
    let Memory { first, last } = *memory;
    println!("memory: {} MiB after a tenth, {} MiB at the end", first >> 20, last >> 20);
    println!("honest: {} requests, the slowest {:.1} ms", served.requests, served.slowest.as_secs_f64() * 1e3);
    require(last <= first + GROWTH_MAX, "memory of the server", || format!("it grew from {first} to {last} bytes"))?;
    require(served.slowest < SLOWEST_MAX, "who is honest", || format!("a request took {:?}", served.slowest))?;
    require(served.requests > 0, "who is honest", || "nothing was done".to_owned())
}

/// Writes all of a drive, so that its memory is there before anything is measured.
fn fill(rt: &Rt, address: &Addr, subsystem: &str) -> Result<()> {
    const PIECE: u64 = 128 << 10;
    let host =
        rt.block_on(Host::connect(rt, address, subsystem, 1, &Wishes::default())).or_fail("a host that fills")?;
    let disk = rt.block_on(host.disk(1)).or_fail("the namespace to fill")?;
    let data = Bytes::from_slice(&[0x5a; PIECE as usize]);
    for offset in (0..disk.bytes).step_by(PIECE as usize) {
        rt.block_on(disk.write(offset, data.clone(), false)).or_fail("a write")?;
    }
    Ok(())
}

/// Waits until enough was taken.
async fn watch(
    wanted: u64,
    rt: &Rt,
    server: &mut Server,
    taken: impl Fn() -> u64,
    is_well: impl Fn() -> Result<()>,
) -> Result<Memory> {
    let (mut first, mut last_taken, mut moved) = (None, 0, Instant::now());
    loop {
        rt.sleep(Duration::from_millis(200)).await;
        if let Some(status) = server.ended()? {
            return Err(server.broken(format!("it ended with {status}")));
        }
        is_well()?;
        let taken = taken();
        if taken != last_taken {
            (last_taken, moved) = (taken, Instant::now());
        }
        require(moved.elapsed() < STANDSTILL_MAX, "a standstill", || server.log_end())?;
        if taken >= wanted / 10 && first.is_none() {
            first = Some(resident(server)?);
        }
        if taken >= wanted {
            return Ok(Memory { first: first.unwrap_or_default(), last: resident(server)? });
        }
    }
}

/// Memory of the server in bytes, without that of its guests.
fn resident(server: &Server) -> Result<u64> {
    let pid = server.pid().ok_or_else(|| Failure::new("the server", "it has no process"))?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).or_fail("the server's status")?;
    let kib = |name: &str| {
        let of = |line: &str| line.strip_prefix(name)?.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok();
        status.lines().find_map(of).ok_or_else(|| Failure::new("the server's status", format!("no {name}")))
    };
    Ok((kib("VmRSS:")? - kib("RssShmem:")?) << 10)
}
