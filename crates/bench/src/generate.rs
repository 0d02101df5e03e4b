//! The load generator: a closed loop of `depth` requests on one target.
//!
//! Each of `depth` tasks asks for one request after the other; the clock is read once per request, the end of one
//! being the beginning of the next. So latency is what a host with that many outstanding requests sees, its own work
//! between two requests (some ten nanoseconds) included. Several cores each run a loop of their share of the depth.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use futures::future::{join_all, select};
use hdrhistogram::Histogram;
use rt::{Buf, Nanos, Rt};
use serde::Serialize;

use crate::address::Addresses;
use crate::clock::thread_cpu_ns;
use crate::error::Error;
use crate::figures::{Latency, Sample};
use crate::load::{Load, Pattern, Until};
use crate::payload::Payload;
use crate::share::Share;
use crate::target::Target;

/// The longest latency told apart: 100 s.
const LATENCY_NS_MAX: u64 = 100_000_000_000;

/// Significant digits of a latency.
const LATENCY_DIGITS: u8 = 3;

/// What the tasks of one run share.
struct Run {
    rt: Rt,
    target: Target,
    addresses: RefCell<Addresses>,
    payload: Option<Payload>,
    block_bytes: usize,
    begun: Nanos,
    deadline: Nanos,
    /// Requests a second at most, and how many had their turn.
    iops_max: Option<u64>,
    turns: Cell<u64>,
    requests_left: Cell<u64>,
    /// Of reads and of writes.
    latency: RefCell<[Histogram<u64>; 2]>,
    /// All latencies added up.
    waited_ns: Cell<u64>,
    failed: RefCell<Option<Error>>,
}

impl Run {
    fn take(&self, now: Nanos) -> bool {
        let left = self.requests_left.get();
        // One at least: a machine that gives no time to us all the while has a rate too.
        if left == 0 || now >= self.deadline && self.answered() > 0 {
            return false;
        }
        self.requests_left.set(left - 1);
        true
    }

    fn answered(&self) -> u64 {
        self.latency.borrow().iter().map(Histogram::len).sum()
    }

    /// Waits for the turn of the next request, where there is a limit: turns are spread evenly, and who comes late waits
    /// no longer. Of a turn after the end the time is returned at once.
    async fn turn(&self, now: Nanos) -> Nanos {
        let Some(iops_max) = self.iops_max else { return now };
        let turn = self.turns.replace(self.turns.get() + 1);
        let at = self.begun + Duration::from_secs_f64(turn as f64 / iops_max.max(1) as f64);
        if at >= self.deadline {
            return at;
        }
        if at > now {
            self.rt.sleep(at - now).await;
        }
        self.rt.now()
    }

    async fn ask(self: Rc<Self>) {
        let mut buf = if self.payload.is_none() { Buf::zeroed(self.block_bytes) } else { Buf::default() };
        let mut begun = self.turn(self.rt.now()).await;
        while self.take(begun) {
            let op = self.addresses.borrow_mut().next();
            let result = match &self.payload {
                Some(payload) if !op.reads => self.target.write(op.offset, payload.next()).await,
                Some(_) | None => {
                    if buf.is_empty() {
                        buf = Buf::zeroed(self.block_bytes);
                    }
                    let (result, back) = self.target.read(op.offset, buf).await;
                    buf = back;
                    result
                }
            };
            if let Err(error) = result {
                self.failed.borrow_mut().get_or_insert(error);
                self.requests_left.set(0);
                return;
            }
            let ended = self.rt.now();
            let ns = u64::try_from((ended - begun).as_nanos()).unwrap_or(u64::MAX);
            self.latency.borrow_mut()[usize::from(!op.reads)].saturating_record(ns);
            self.waited_ns.set(self.waited_ns.get() + ns);
            begun = self.turn(ended).await;
        }
    }
}

/// Tells of a run second by second.
struct Watch<'a> {
    run: &'a Run,
    each: &'a mut dyn FnMut(Second),
    /// What was told of already.
    at: Nanos,
    answered: u64,
    waited_ns: u64,
}

impl Watch<'_> {
    /// What has passed since the last time.
    fn tell(&mut self) {
        let (now, answered, waited_ns) = (self.run.rt.now(), self.run.answered(), self.run.waited_ns.get());
        let requests = (answered - self.answered) as f64;
        (self.each)(Second {
            at: (now - self.run.begun).as_secs_f64(),
            iops: requests / (now - self.at).as_secs_f64(),
            mean_us: (requests > 0.0).then(|| (waited_ns - self.waited_ns) as f64 / 1000.0 / requests),
        });
        (self.at, self.answered, self.waited_ns) = (now, answered, waited_ns);
    }

    /// For ever.
    async fn tell_every_second(&mut self) {
        loop {
            self.run.rt.sleep(Duration::from_secs(1)).await;
            self.tell();
        }
    }
}

/// What remains of a last second is told when it is so much of one.
const PART_TOLD: Duration = Duration::from_millis(500);

/// One second of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Second {
    /// Its end, in seconds since the beginning.
    pub at: f64,
    /// Requests answered in it.
    pub iops: f64,
    /// Their mean latency; nothing when there were none.
    pub mean_us: Option<f64>,
}

/// Runs `load` on the bytes `working_set` of `target`.
///
/// # Errors
/// When the load does not suit the target, or a request fails.
pub async fn generate(
    rt: &Rt,
    target: &Target,
    load: &Load,
    working_set: Range<u64>,
    until: Until,
    seed: u64,
) -> Result<Sample, Error> {
    let (sample, _) = generate_watched(rt, target, load, working_set, until, seed, None).await?;
    Ok(sample)
}

/// The same, with the latencies of reads and of writes; `each` is told of every whole second, but not by several cores.
///
/// # Errors
/// As [`generate`].
pub async fn generate_watched(
    rt: &Rt,
    target: &Target,
    load: &Load,
    working_set: Range<u64>,
    until: Until,
    seed: u64,
    each: Option<&mut dyn FnMut(Second)>,
) -> Result<(Sample, [Histogram<u64>; 2]), Error> {
    let target = target.for_load(load, &working_set)?;
    let share = Share { load: *load, working_set, until, seed };
    let written_before = target.written().await?;
    let (ran, cpu_ns) = match &target {
        Target::Team(team) => Box::pin(team.generate(&share)).await?,
        alone => {
            let ran = run(rt, alone, &share, Start::AtOnce, each).await?;
            let cpu_ns = thread_cpu_ns(rt).zip(ran.cpu_before).map(|(after, before)| after - before);
            (vec![ran], cpu_ns)
        }
    };
    let written = target.written().await?.zip(written_before);
    let cores = ran.len();
    let all = Ran::merged(ran);
    let [reads, writes] = &all.latency;
    let mut latency = reads.clone();
    latency.add(writes).expect("both have the same bounds");
    let sample = Sample {
        requests: latency.len(),
        bytes: latency.len() * u64::from(load.block_bytes),
        elapsed: all.elapsed,
        cores,
        cpu_ns,
        latency: Latency::of(&latency),
        drive_bytes_per_host_byte: written.and_then(|(after, before)| after.since(before)),
    };
    Ok((sample, all.latency))
}

/// When a core begins.
pub(crate) enum Start {
    /// When it is ready.
    AtOnce,
    /// When all of its team are ready: each waits here, and does nothing else meanwhile.
    Together(Arc<Barrier>),
}

/// What one core measured, or several together.
pub(crate) struct Ran {
    /// Of reads and of writes.
    pub(crate) latency: [Histogram<u64>; 2],
    /// From the first request to the last answer.
    pub(crate) elapsed: Duration,
    /// The CPU time of the thread when it began.
    pub(crate) cpu_before: Option<u64>,
}

impl Ran {
    /// Of cores that began at the same time: all requests, the longest time; the CPU time is the first one's.
    fn merged(all: Vec<Ran>) -> Ran {
        let mut all = all.into_iter();
        let mut merged = all.next().expect("a load runs on one core at least");
        for ran in all {
            for (side, more) in merged.latency.iter_mut().zip(&ran.latency) {
                side.add(more).expect("all have the same bounds");
            }
            merged.elapsed = merged.elapsed.max(ran.elapsed);
        }
        merged
    }
}

fn no_latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, LATENCY_DIGITS).expect("the bounds are in order")
}

/// Runs a load, or the calling core's share of one.
pub(crate) async fn run(
    rt: &Rt,
    target: &Target,
    share: &Share,
    start: Start,
    each: Option<&mut dyn FnMut(Second)>,
) -> Result<Ran, Error> {
    let Share { load, working_set, until, seed } = share;
    let target = target.for_load(load, working_set);
    let (time, requests) = match *until {
        Until::Elapsed { time, bytes_max } => (time, bytes_max / u64::from(load.block_bytes)),
        Until::Requests(n) => (Duration::MAX, n),
    };
    let payload = (!load.pattern.only_reads()).then(|| Payload::new(load.block_bytes));
    let addresses = Addresses::new(load, working_set, *seed);
    let latency = [no_latencies(), no_latencies()];
    if let Start::Together(line) = start {
        line.wait();
    }
    // Not before: the others wait for this one.
    let target = target?;
    let begun = rt.now();
    let cpu_before = thread_cpu_ns(rt);
    let run = Rc::new(Run {
        rt: rt.clone(),
        target,
        addresses: RefCell::new(addresses),
        payload,
        block_bytes: load.block_bytes as usize,
        begun,
        deadline: begun + time,
        iops_max: load.iops_max,
        turns: Cell::new(0),
        requests_left: Cell::new(requests),
        latency: RefCell::new(latency),
        waited_ns: Cell::new(0),
        failed: RefCell::default(),
    });
    let all = join_all((0..load.depth).map(|_| rt.spawn(run.clone().ask())));
    match each {
        Some(each) => {
            let mut watch = Watch { run: &run, each, at: begun, answered: 0, waited_ns: 0 };
            select(all, pin!(watch.tell_every_second())).await;
            if rt.now() - watch.at >= PART_TOLD {
                watch.tell();
            }
        }
        None => drop(all.await),
    }
    let elapsed = rt.now() - begun;
    match run.failed.take() {
        Some(error) => Err(error),
        None => Ok(Ran { latency: run.latency.borrow().clone(), elapsed, cpu_before }),
    }
}

/// Writes the working set once, so that reads find data, and lets the target settle.
///
/// # Errors
/// As [`generate`].
pub async fn fill(rt: &Rt, target: &Target, working_set_bytes: u64) -> Result<Sample, Error> {
    let load = Load::new(Pattern::SEQUENTIAL_WRITE, FILL_BLOCK_BYTES, FILL_DEPTH);
    let requests = working_set_bytes.div_ceil(u64::from(FILL_BLOCK_BYTES));
    let whole = requests * u64::from(FILL_BLOCK_BYTES);
    let sample = generate(rt, target, &load, 0..whole, Until::Requests(requests), 0).await?;
    target.settle().await?;
    Ok(sample)
}

/// Requests that fill; a working set is rounded up to whole ones.
pub const FILL_BLOCK_BYTES: u32 = 1 << 20;

const FILL_DEPTH: usize = 8;
