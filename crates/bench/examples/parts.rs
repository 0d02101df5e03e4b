//! What a request to an array costs when the array consists of parts, each on a core of its own: RAID 5 7+1 on memory
//! drives, in this process, with the generator on the same cores.
//!
//!     cargo run --release -p bench --example parts
//!
//! - *one*: an array in one piece on one core.
//! - *parts*: as many parts as cores. A core asks for any address: what lies in another's part crosses as a letter.
//! - *apart*: the same, but a core asks for what lies in its own part only: what more cores cost when nothing crosses.
//!
//! All have the same size together, the same depth together, and all of their memory was touched before. Turn by turn,
//! medians of three. Memory drives give memory back, and what faults it in anew is most of a write in the first runs; so
//! that glibc keeps it: `GLIBC_TUNABLES=glibc.malloc.mmap_threshold=2147483648:glibc.malloc.trim_threshold=17179869184`.
//!
//! For a profiler, one of them three times: `parts read|write DEPTH one|parts|apart`.

// Threads are its subject.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::cell::Cell;
use std::error::Error;
use std::fmt;
use std::rc::Rc;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use array::whole::STRIPE_BYTES;
use array::{Array, CreateSpec};
use export::remote::{GuestEnd, HostEnd, RemoteNamespace, way};
use export::{Directory, Exports, Extent, Fault, Namespace, NamespaceInfo, Striped};
use ondisk::Level;
use rt::{Buf, Bytes, Drive, Rt};
use rustix::time::{ClockId, clock_gettime};
use server::namespace::VolumeNamespace;
use server::ops::open::Opened;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const CORES: usize = 2;
const DRIVES: usize = 8;
const USAGE: &str = "give nothing, or: read|write DEPTH one|parts|apart";
/// Of all parts together.
const DRIVE_BYTES: u64 = 256 << 20;
/// Of all parts together: a little more than half of what there is.
const VOLUME_BYTES: u64 = 768 << 20;
/// Times that the volume is written before anything counts: the log has been everywhere then.
const TOUCHES: usize = 4;
const BLOCK_BYTES: u64 = 4096;
const WARM_UP: Duration = Duration::from_millis(400);
const TIME: Duration = Duration::from_millis(900);
const ROUNDS: usize = 3;

/// CPU time of the process for each request, and thousands of requests a second.
#[derive(Clone, Copy)]
struct Cost {
    cpu_us: f64,
    kiops: f64,
}

#[derive(Clone, Copy)]
struct Load {
    writes: bool,
    /// Of all cores together.
    depth: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum Asks {
    /// A core asks for any address.
    All,
    /// For those of its own part.
    Own,
}

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match &args[..] {
        [] => table(),
        [pattern, depth, which] => {
            let writes = match &pattern[..] {
                "read" => false,
                "write" => true,
                _ => return Err(USAGE.into()),
            };
            let (cores, asks) = match &which[..] {
                "one" => (1, Asks::All),
                "parts" => (CORES, Asks::All),
                "apart" => (CORES, Asks::Own),
                _ => return Err(USAGE.into()),
            };
            let load = Load { writes, depth: depth.parse()? };
            for _ in 0..ROUNDS {
                println!("{}", run(cores, load, asks)?);
            }
            Ok(())
        }
        _ => Err(USAGE.into()),
    }
}

fn table() -> Outcome<()> {
    println!(
        "                          one               {CORES} parts, {CORES} cores        apart, {CORES} cores      parts  apart"
    );
    println!("4 KiB      depth    CPU us  kIOPS        CPU us  kIOPS        CPU us  kIOPS      : one  : one");
    for writes in [false, true] {
        for depth in [2, 64, 256, 1024] {
            let load = Load { writes, depth };
            let mut measured = [vec![], vec![], vec![]];
            for _ in 0..ROUNDS {
                measured[0].push(run(1, load, Asks::All)?);
                measured[1].push(run(CORES, load, Asks::All)?);
                measured[2].push(run(CORES, load, Asks::Own)?);
            }
            let [one, parts, apart] = measured.map(median);
            let name = if writes { "random write" } else { "random read" };
            let ratio = |c: Cost| c.cpu_us / one.cpu_us;
            println!(
                "{name:<12} {depth:>4} {one}      {parts}      {apart} {:>10.2} {:>6.2}",
                ratio(parts),
                ratio(apart),
            );
        }
    }
    Ok(())
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>8.2} {:>6.0}", self.cpu_us, self.kiops)
    }
}

fn median(mut all: Vec<Cost>) -> Cost {
    all.sort_by(|a, b| a.cpu_us.total_cmp(&b.cpu_us));
    all[all.len() / 2]
}

fn process_cpu_us() -> f64 {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    t.tv_sec as f64 * 1e6 + t.tv_nsec as f64 / 1e3
}

/// A part that is on this core, or on another.
#[derive(Clone)]
enum Part {
    Here(VolumeNamespace),
    There(RemoteNamespace),
}

impl Namespace for Part {
    fn info(&self) -> NamespaceInfo {
        match self {
            Part::Here(part) => part.info(),
            Part::There(part) => part.info(),
        }
    }

    async fn read(&self, offset: u64, bytes: u32) -> Result<Vec<Bytes>, Fault> {
        match self {
            Part::Here(part) => part.read(offset, bytes).await,
            Part::There(part) => part.read(offset, bytes).await,
        }
    }

    async fn write(&self, offset: u64, data: Bytes, fua: bool) -> Result<(), Fault> {
        match self {
            Part::Here(part) => part.write(offset, data, fua).await,
            Part::There(part) => part.write(offset, data, fua).await,
        }
    }

    async fn flush(&self) -> Result<(), Fault> {
        match self {
            Part::Here(part) => part.flush().await,
            Part::There(part) => part.flush().await,
        }
    }

    async fn write_zeroes(&self, _: u64, _: u64, _: bool, _: bool) -> Result<(), Fault> {
        unreachable!("it is not measured")
    }

    async fn deallocate(&self, _: u64, _: u64, _: bool) -> Result<(), Fault> {
        unreachable!("it is not measured")
    }

    async fn extents(&self, _: u64, _: u64, _: usize) -> Result<Vec<Extent>, Fault> {
        unreachable!("it is not measured")
    }
}

/// The ways from one core to the others, and from the others to it.
struct Ways {
    guests: Vec<Option<GuestEnd>>,
    hosts: Vec<HostEnd>,
}

fn ways(rt: &Rt, cores: usize) -> Vec<Ways> {
    let mut all: Vec<Ways> = (0..cores).map(|_| Ways { guests: vec![], hosts: vec![] }).collect();
    for from in 0..cores {
        for to in 0..cores {
            let guest = (from != to).then(|| {
                let (host, guest) = way(rt);
                all[to].hosts.push(host);
                guest
            });
            all[from].guests.push(guest);
        }
    }
    all
}

fn run(cores: usize, load: Load, asks: Asks) -> Outcome<Cost> {
    let barrier = Arc::new(Barrier::new(cores));
    let begin = move |ways: Ways, barrier: &Barrier| {
        let rt = Rt::real()?;
        rt.block_on(core(&rt, cores, ways, load, asks, barrier))
    };
    let mut all_ways = ways(&Rt::real()?, cores);
    let others: Vec<_> = all_ways
        .drain(1..)
        .map(|ways| {
            let barrier = barrier.clone();
            thread::spawn(move || begin(ways, &barrier))
        })
        .collect();
    let mut all = vec![begin(all_ways.remove(0), &barrier)?];
    for thread in others {
        all.push(thread.join().map_err(|_| "a core panicked")??);
    }
    let requests: u64 = all.iter().map(|(requests, _)| requests).sum();
    // Each has seen the CPU time of all, over nearly the same time.
    let cpu_us = all.iter().map(|(_, cpu_us)| cpu_us).sum::<f64>() / cores as f64;
    Ok(Cost { cpu_us: cpu_us / requests as f64, kiops: requests as f64 / TIME.as_secs_f64() / 1000.0 })
}

/// The life of one core: its part, then the load. Requests, and CPU time of the process meanwhile.
async fn core(rt: &Rt, cores: usize, ways: Ways, load: Load, asks: Asks, barrier: &Barrier) -> Outcome<(u64, f64)> {
    let (array, mine) = part(rt, cores as u64).await?;
    let exports = Exports::new([mine.clone()]);
    let hosts: Vec<_> = ways.hosts.into_iter().map(|host| host.serve(rt, exports.clone())).collect();
    barrier.wait();
    let mut parts = vec![];
    for guest in ways.guests {
        match guest {
            Some(guest) if asks == Asks::All => {
                let there = guest.connect(rt).open(&mine.info().name).await;
                parts.push(Part::There(there.ok_or("a part is not there")?));
            }
            Some(_) => {}
            None => parts.push(Part::Here(mine.clone())),
        }
    }
    let namespace = Striped::new(parts, STRIPE_BYTES);
    let depth = load.depth / cores;
    generate(rt, &namespace, depth, load.writes, WARM_UP).await?;
    let before = process_cpu_us();
    let requests = generate(rt, &namespace, depth, load.writes, TIME).await?;
    let cpu_us = process_cpu_us() - before;
    drop(namespace);
    for host in hosts {
        host.await;
    }
    array.close().await?;
    Ok((requests, cpu_us))
}

/// A part of an array, its volume written all over.
async fn part(rt: &Rt, parts: u64) -> Outcome<(Array, VolumeNamespace)> {
    let drives: Vec<_> = (0..DRIVES).map(|n| Drive::memory(rt, &format!("mem{n}"), DRIVE_BYTES / parts)).collect();
    let level = Level::Raid5;
    let spec = CreateSpec { name: "a".into(), level, width: Some(DRIVES), zone_blocks: Some(256), force: false };
    let array = Array::create(rt, drives.clone(), &spec).await?;
    array.volume_create("v", VOLUME_BYTES / parts).await?;
    let opened = Opened::new(array.clone().into(), drives);
    let volume = VolumeNamespace::new("a", &opened, opened.lend("v").ok_or("the volume is not there")?);
    let data = content(STRIPE_BYTES);
    for _ in 0..TOUCHES {
        for at in (0..VOLUME_BYTES / parts).step_by(STRIPE_BYTES as usize) {
            volume.write(at, data.clone(), false).await?;
        }
    }
    array.checkpoint().await?;
    Ok((array, volume))
}

fn content(bytes: u64) -> Bytes {
    let mut data = Buf::zeroed(bytes as usize);
    data.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at ^ at >> 8) as u8);
    data.freeze()
}

/// A closed loop of `depth` requests at random addresses; how many were answered in `time`.
async fn generate<N: Namespace>(rt: &Rt, namespace: &N, depth: usize, writes: bool, time: Duration) -> Outcome<u64> {
    let (end, blocks) = (rt.now() + time, namespace.info().bytes / BLOCK_BYTES);
    let (answered, data) = (Rc::new(Cell::new(0)), content(BLOCK_BYTES));
    let asked: Vec<_> = (0..depth)
        .map(|_| {
            let (of, namespace, answered, data) = (rt.clone(), namespace.clone(), answered.clone(), data.clone());
            rt.spawn(async move {
                let rt = of;
                while rt.now() < end {
                    let at = rt.random() % blocks * BLOCK_BYTES;
                    if writes {
                        // In a buffer of its own, as from a socket: what is shared is copied when it crosses.
                        namespace.write(at, Buf::from_slice(&data).freeze(), false).await?;
                    } else {
                        drop(namespace.read(at, BLOCK_BYTES as u32).await?);
                    }
                    answered.set(answered.get() + 1);
                }
                Ok::<(), Fault>(())
            })
        })
        .collect();
    for one in asked {
        one.await?;
    }
    Ok(answered.get())
}
