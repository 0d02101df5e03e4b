//! A host that does nothing wrong: writes and reads that are checked, each with its time.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use e2e::{Failure, OrFail, Result};
use export::nvme::client::{Disk, Host, Wishes};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rt::{Addr, Bytes, Rt, Task};

const BLOCK: u64 = 4096;
/// Requests at once, each in blocks of its own.
const DEPTH: u64 = 4;

/// What it has done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Served {
    /// Writes and reads.
    pub requests: u64,
    /// The slowest of them.
    pub slowest: Duration,
}

/// The host at work.
pub struct Honest {
    stop: Rc<Cell<bool>>,
    served: Rc<Cell<Served>>,
    failure: Rc<RefCell<Option<Failure>>>,
    tasks: Vec<Task<()>>,
    _host: Host,
}

impl Honest {
    /// Begins.
    pub fn new(rt: &Rt, address: &Addr, subsystem: &str, seed: u64) -> Result<Honest> {
        let wishes = Wishes { host: "nqn.honest".to_owned(), host_id: [1; 16], ..Wishes::default() };
        let host = rt.block_on(Host::connect(rt, address, subsystem, 2, &wishes)).or_fail("the honest host")?;
        let disk = rt.block_on(host.disk(1)).or_fail("the honest host's namespace")?;
        let (stop, served) = (Rc::<Cell<bool>>::default(), Rc::<Cell<Served>>::default());
        let failure = Rc::<RefCell<Option<Failure>>>::default();
        let tasks = (0..DEPTH).map(|lane| {
            let (rt, disk, stop, served) = (rt.clone(), disk.clone(), stop.clone(), served.clone());
            let (failure, random) = (failure.clone(), Xoshiro256PlusPlus::seed_from_u64(seed ^ lane << 32));
            rt.clone().spawn(async move {
                if let Err(error) = work(&rt, &disk, lane, random, &stop, &served).await {
                    *failure.borrow_mut() = Some(error);
                }
            })
        });
        let tasks = tasks.collect();
        Ok(Honest { stop, served, failure, tasks, _host: host })
    }

    /// That nothing went wrong yet.
    pub fn is_well(&self) -> Result<()> {
        self.failure.borrow().clone().map_or(Ok(()), Err)
    }

    /// Ends, when what is in flight has been answered.
    pub async fn finish(mut self) -> Result<Served> {
        self.stop.set(true);
        for task in self.tasks.drain(..) {
            task.await;
        }
        self.is_well()?;
        Ok(self.served.get())
    }
}

async fn work(
    rt: &Rt,
    disk: &Disk,
    lane: u64,
    mut random: Xoshiro256PlusPlus,
    stop: &Cell<bool>,
    served: &Cell<Served>,
) -> Result<()> {
    let blocks = disk.bytes / BLOCK / DEPTH;
    while !stop.get() {
        let offset = (lane * blocks + random.random_range(0..blocks)) * BLOCK;
        let data = Bytes::from_slice(&[random.random(); BLOCK as usize]);
        let begun = rt.now();
        disk.write(offset, data.clone(), false).await.or_fail("an honest write")?;
        let written = rt.now();
        let read = disk.read(offset, BLOCK as u32).await.or_fail("an honest read")?;
        if read != data {
            return Err(Failure::new("an honest read", format!("offset {offset}: not what was written")));
        }
        let slowest = (written - begun).max(rt.now() - written);
        let before = served.get();
        served.set(Served { requests: before.requests + 2, slowest: before.slowest.max(slowest) });
        // Not as fast as it can: the measure is how long it is kept waiting.
        rt.sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}
