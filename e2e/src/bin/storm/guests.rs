//! A hostile guest of vhost-user against a server that also has an honest guest.
//!
//! ```text
//!   this process                                       ashlar serve --guests g
//!   a thread: a guest and its front end that do   -->  volume "hostile" of a RAID 5
//!   anything; then one that begins anew, served
//!   a guest whose writes are all read back        -->  volume "honest"
//! ```
//!
//! When the hostile one has gone, the server keeps nothing of its memory.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use e2e::ashlar::Ashlar;
use e2e::failure::require;
use e2e::server::Server;
use e2e::{Failure, OrFail, Result};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rt::{Rt, Task};

use crate::half_core::HalfCore;
use crate::honest::Served;
use crate::{Args, is_well_served, watch};
use front_end::{FrontEnd, GUEST, MEMORY, Machine};
use hostile_guest::{Input, step};

#[allow(dead_code, clippy::unwrap_used, reason = "the tests of the export use the rest")]
#[path = "../../../../crates/export/tests/it/support/front_end.rs"]
mod front_end;

#[path = "../../../../crates/export/tests/it/support/hostile_guest.rs"]
mod hostile_guest;

/// Bytes of each volume, and of a request of the honest guest.
const VOLUME: u64 = 16 << 20;
const BLOCK: u64 = 4096;
/// Queues of the honest guest; each has a request under way.
const QUEUES: u64 = 2;
/// Bytes that say what a hostile guest does before it goes.
const INPUT: usize = 2048;
/// How long the server may keep a guest's memory that has gone.
const GONE_MAX: Duration = Duration::from_secs(20);
/// A guest's read, and its write.
const READ: u32 = 0;
const WRITE: u32 = 1;
/// Where the honest guest has what nobody may touch.
const KEPT: u64 = GUEST + MEMORY - BLOCK;

/// Serves an array to both guests.
pub fn run(args: &Args, steps: u64) -> Result<()> {
    let program = e2e::ashlar::find(args.ashlar.clone())?;
    let dir = tempfile::Builder::new().prefix("storm-").tempdir().or_fail("a temporary directory")?;
    let ashlar = Ashlar::new(&program, dir.path());
    fs::create_dir(dir.path().join("d")).or_fail("the drives' directory")?;
    ashlar.done(&["create", "a", "--raid", "5", "--size", "512M", "d/0", "d/1", "d/2", "d/3"])?;
    for volume in ["a/hostile", "a/honest"] {
        ashlar.done(&["volume", "create", volume, &format!("{}M", VOLUME >> 20)])?;
    }
    let mut server = Server::new(&ashlar).with_flags(&["--guests", "g", "--cores", &args.cores.to_string()]);
    server.start()?;
    let rt = Rt::real().or_fail("the runtime (io_uring)")?;
    let honest = Honest::new(&rt, &socket(&ashlar, "a/honest")?, args.seed);
    let before = foreign_mappings(&server)?;
    let hostile = Hostile::start(socket(&ashlar, "a/hostile")?, args.seed);
    let watched = rt.block_on(watch(steps, &rt, &mut server, || hostile.steps(), || hostile.is_well()));
    let stopped = hostile.stop();
    // Said first: a server that has ended serves no guest.
    let memory = watched?;
    stopped?;
    is_let_go_of(&rt, &server, before)?;
    let served = rt.block_on(honest.finish())?;
    println!("{} steps on {} connections", hostile.steps(), hostile.connections());
    is_well_served(&memory, &served)?;
    server.stop()
}

/// Where a volume waits for guests.
fn socket(ashlar: &Ashlar, volume: &str) -> Result<PathBuf> {
    let told = ashlar.json(&["attach", "--by", "vhost-user", volume])?;
    let socket = told[0]["socket"].as_str().map(PathBuf::from);
    socket.ok_or_else(|| Failure::new("ashlar attach", format!("no socket: {told}")))
}

/// Mappings of others' memory that the server has.
fn foreign_mappings(server: &Server) -> Result<usize> {
    let pid = server.pid().ok_or_else(|| Failure::new("the server", "it has no process"))?;
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).or_fail("the server's mappings")?;
    Ok(maps.lines().filter(|line| line.contains("/memfd:")).count())
}

/// That no more of it is mapped than before.
fn is_let_go_of(rt: &Rt, server: &Server, before: usize) -> Result<()> {
    let begun = Instant::now();
    loop {
        let now = foreign_mappings(server)?;
        if now <= before {
            return Ok(());
        }
        require(begun.elapsed() < GONE_MAX, "memory of a guest that has gone", || {
            format!("the server had {before} mappings of guests' memory and has {now}")
        })?;
        rt.block_on(rt.sleep(Duration::from_millis(100)));
    }
}

/// What the hostile guest has done so far.
#[derive(Default)]
struct Counts {
    steps: AtomicU64,
    connections: AtomicU64,
    stop: AtomicBool,
    failed: AtomicBool,
}

/// The hostile guest's thread.
struct Hostile {
    counts: Arc<Counts>,
    thread: Cell<Option<JoinHandle<()>>>,
}

impl Hostile {
    fn start(path: PathBuf, seed: u64) -> Hostile {
        let counts = Arc::<Counts>::default();
        let shared = counts.clone();
        let thread = thread::spawn(move || {
            let whole = FailedUnless(&shared);
            let rt = Rt::real().expect("there was one already");
            rt.block_on(be_hostile(&rt, &path, seed, &shared));
            std::mem::forget(whole);
        });
        Hostile { counts, thread: Cell::new(Some(thread)) }
    }

    fn steps(&self) -> u64 {
        self.counts.steps.load(Ordering::Relaxed)
    }

    fn connections(&self) -> u64 {
        self.counts.connections.load(Ordering::Relaxed)
    }

    /// That the server has done what it promises to those who begin anew.
    fn is_well(&self) -> Result<()> {
        let failed = self.counts.failed.load(Ordering::Relaxed);
        require(!failed, "a guest that begins anew", || "it was not served: see above".to_owned())
    }

    fn stop(&self) -> Result<()> {
        self.counts.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _failed = thread.join();
        }
        self.is_well()
    }
}

/// Says so when its thread panics.
struct FailedUnless<'a>(&'a Counts);

impl Drop for FailedUnless<'_> {
    fn drop(&mut self) {
        self.0.failed.store(true, Ordering::Relaxed);
    }
}

/// One hostile guest after the other, and after each one that is served.
async fn be_hostile(rt: &Rt, path: &Path, seed: u64, counts: &Counts) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut half = HalfCore::new(rt);
    while !counts.stop.load(Ordering::Relaxed) {
        let bytes: Vec<u8> = (0..INPUT).map(|_| random.random()).collect();
        let mut input = Input(&bytes);
        let machine = Machine::new(rt, QUEUES);
        let mut front = FrontEnd::run(&machine, path).await;
        while !input.0.is_empty() {
            // Another front end may come before the server has seen that the last one went.
            front = step(&machine, front, &mut input, path, async || rt.yield_now().await).await;
            counts.steps.fetch_add(1, Ordering::Relaxed);
            half.rest(rt).await;
        }
        drop(front);
        let machine = Machine::new(rt, 1);
        let front = FrontEnd::run(&machine, path).await;
        let data = vec![random.random(); BLOCK as usize];
        assert_eq!(machine.ask(0, WRITE, 0, &data, 0).await.0, 0, "a guest that begins anew writes");
        assert_eq!(machine.ask(0, READ, 0, &[], BLOCK as u32).await, (0, data), "and reads");
        drop(front);
        counts.connections.fetch_add(1, Ordering::Relaxed);
    }
}

/// The honest guest at work.
struct Honest {
    machine: &'static Machine,
    stop: Rc<Cell<bool>>,
    served: Rc<Cell<Served>>,
    lanes: Vec<Task<()>>,
    _front: FrontEnd<'static>,
}

impl Honest {
    /// Begins: one request after the other in each queue.
    fn new(rt: &Rt, path: &Path, seed: u64) -> Honest {
        // For as long as this process lives.
        let machine: &'static Machine = Box::leak(Box::new(Machine::new(rt, QUEUES)));
        machine.memory.write(KEPT, &[0x5a; BLOCK as usize]).expect("it is memory");
        let front = rt.block_on(FrontEnd::run(machine, path));
        let (stop, served) = (Rc::<Cell<bool>>::default(), Rc::<Cell<Served>>::default());
        let lane = |queue: u64| {
            let (stop, served) = (stop.clone(), served.clone());
            let random = Xoshiro256PlusPlus::seed_from_u64(seed ^ queue << 32);
            rt.spawn(async move { write_and_read(machine, queue, random, &stop, &served).await })
        };
        Honest { machine, lanes: (0..QUEUES).map(lane).collect(), stop, served, _front: front }
    }

    /// Ends, when what is in flight has been answered.
    async fn finish(mut self) -> Result<Served> {
        self.stop.set(true);
        for lane in self.lanes.drain(..) {
            lane.await;
        }
        let mut kept = [0; BLOCK as usize];
        self.machine.memory.read(KEPT, &mut kept).or_fail("the honest guest's memory")?;
        require(kept.iter().all(|byte| *byte == 0x5a), "the honest guest's memory", || "it was written".to_owned())?;
        Ok(self.served.get())
    }
}

/// Writes and reads; it ends the process where something is wrong.
async fn write_and_read(
    machine: &Machine,
    queue: u64,
    mut random: Xoshiro256PlusPlus,
    stop: &Cell<bool>,
    served: &Cell<Served>,
) {
    let blocks = VOLUME / BLOCK / QUEUES;
    let lane = queue as usize;
    while !stop.get() {
        let sector = (queue * blocks + random.random_range(0..blocks)) * (BLOCK / 512);
        let data = vec![random.random(); BLOCK as usize];
        let begun = machine.rt.now();
        assert_eq!(machine.ask(lane, WRITE, sector, &data, 0).await.0, 0, "an honest write");
        let written = machine.rt.now();
        assert_eq!(machine.ask(lane, READ, sector, &[], BLOCK as u32).await, (0, data), "an honest read");
        let slowest = (written - begun).max(machine.rt.now() - written);
        let before = served.get();
        served.set(Served { requests: before.requests + 2, slowest: before.slowest.max(slowest) });
        machine.rt.sleep(Duration::from_millis(1)).await;
    }
}
