//! What the loss of a drive costs: hosts' requests while the array is degraded and while it is rebuilt, and what the
//! rebuild itself reads and writes.
//!
//! ```text
//! create -> fill -> overwrite a part (so that some of it is dead) -> hand over; each case begins with copies of the drives
//! ```

use api::ArrayState;
use array::{Array, CreateSpec, OpenHow};
use base::{BLOCK_BYTES, MemberId};
use ondisk::Level;
use rt::model::{Disk, DiskParams};
use rt::{Drive, Rt};
use serde::Serialize;

use crate::condition::State;
use crate::drives::equal_cost;
use crate::error::Error;
use crate::generate::{fill, generate};
use crate::load::{Load, Pattern, Until};
use crate::target::Target;

/// What to measure; on modelled drives of equal cost per byte.
#[derive(Clone, Copy, Debug)]
pub struct Rebuilds {
    /// Drives.
    pub drives: usize,
    /// Bytes of each.
    pub drive_bytes: u64,
    /// The array's level.
    pub level: Level,
    /// Columns.
    pub width: usize,
    /// Blocks of a zone.
    pub zone_blocks: u32,
    /// What the volume takes of usable.
    pub filled: f64,
    /// What part of the volume is written once more, at random: the old blocks are dead.
    pub overwritten: f64,
    /// Requests of 4 KiB in flight.
    pub depth: usize,
    /// Requests of a measurement.
    pub requests: u64,
}

impl Default for Rebuilds {
    /// RAID 6 8+2 over 24 drives, half full.
    fn default() -> Self {
        Rebuilds {
            drives: 24,
            drive_bytes: 128 << 20,
            level: Level::Raid6,
            width: 10,
            zone_blocks: 256,
            filled: 0.5,
            overwritten: 0.2,
            depth: 256,
            requests: 50_000,
        }
    }
}

/// Slices of a measurement.
const SLICES: u64 = 10;

/// Where what was lost goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Place {
    /// To the room that is free on the other drives.
    SpareCapacity,
    /// To a new drive.
    NewDrive,
}

/// What a rebuild without hosts took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Work {
    /// From the loss to full redundancy.
    pub seconds: f64,
    /// What all drives read.
    pub bytes_read: u64,
    /// What all drives were given.
    pub bytes_written: u64,
    /// What had to be read at least: `k` columns of the rows that live blocks fill.
    pub least_read: u64,
    /// What had to be written at least: the lost drive's share of live blocks and their redundancy.
    pub least_written: u64,
}

/// Hosts' requests beside something.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Hosts {
    /// A second.
    pub iops: f64,
    /// 99 % took no longer, in microseconds.
    pub us_p99: f64,
    /// Bytes a second that a rebuild wrote meanwhile.
    pub rebuilt_per_second: f64,
}

/// A filled array at rest.
pub struct Filled {
    how: Rebuilds,
    disks: Vec<Disk>,
}

impl Rebuilds {
    fn params(&self) -> DiskParams {
        equal_cost(self.drive_bytes)
    }

    /// Makes the array and fills it.
    ///
    /// # Errors
    /// When it cannot be made or fails a request.
    pub fn fill(&self) -> Result<Filled, Error> {
        let rt = Rt::modelled(1);
        let disks: Vec<Disk> =
            (0..self.drives).map(|i| Disk::new(&format!("model{i}"), self.params(), i as u64)).collect();
        let spec = CreateSpec {
            name: "rebuilds".to_owned(),
            level: self.level,
            width: Some(self.width),
            zone_blocks: Some(self.zone_blocks),
            force: true,
        };
        rt.block_on(async {
            let array = Array::create(&rt, handles(&rt, &disks), &spec).await?;
            let bytes = (array.status().usable_bytes as f64 * self.filled) as u64 >> 20 << 20;
            array.volume_create("v", bytes).await?;
            let target = target(&array);
            fill(&rt, &target, bytes).await?;
            let again = Until::Requests((bytes as f64 * self.overwritten) as u64 / BLOCK_BYTES as u64);
            let load = Load::new(Pattern::RANDOM_WRITE, BLOCK_BYTES as u32, self.depth);
            generate(&rt, &target, &load, 0..bytes, again, 7).await?;
            array.close().await?;
            Ok::<(), Error>(())
        })?;
        rt.end();
        Ok(Filled { how: *self, disks })
    }
}

fn handles(rt: &Rt, disks: &[Disk]) -> Vec<Drive> {
    disks.iter().map(|d| Drive::modelled(rt, d)).collect()
}

fn target(array: &Array) -> Target {
    let volume = array.volume("v").expect("it was made");
    Target::Volume { array: array.clone(), volume }
}

impl Filled {
    /// Pulls a drive and has the array rebuilt, with nobody else at work.
    ///
    /// # Errors
    /// When it cannot be.
    pub fn rebuild(&self, place: Place) -> Result<Work, Error> {
        let rt = Rt::modelled(2);
        let disks: Vec<Disk> = self.disks.iter().map(Disk::fork).collect();
        let fresh = Disk::new("fresh", self.how.params(), 99);
        let all: Vec<Disk> = disks.iter().chain([&fresh]).cloned().collect();
        let moved = || {
            let counters = all.iter().map(Disk::counters);
            counters.fold((0, 0), |(r, w), c| (r + c.bytes_read, w + c.bytes_written))
        };
        let work = rt.block_on(async {
            let array = Array::open(&rt, handles(&rt, &disks), OpenHow::default()).await?;
            array.checkpoint().await?;
            let status = array.status();
            let used: u64 = status.volumes.iter().map(|v| v.mapped_bytes).sum();
            let (k, width) = (self.k() as u64, self.how.width as u64);
            let least_written = used * width / k / self.how.drives as u64;
            let (begun, before) = (rt.now(), moved());
            array.rebuild_pause(place == Place::NewDrive).await?;
            array.drive_fail(MemberId(0)).await?;
            if place == Place::NewDrive {
                array.drive_replace(MemberId(0), Drive::modelled(&rt, &fresh), true).await?;
                array.rebuild_pause(false).await?;
            }
            array.rebuild_done().await;
            let after = moved();
            let state = array.status().state;
            assert!(place == Place::SpareCapacity || state == ArrayState::Optimal, "{:#?}", array.status().events);
            let work = Work {
                seconds: (rt.now() - begun).as_secs_f64(),
                bytes_read: after.0 - before.0,
                bytes_written: after.1 - before.1,
                least_read: least_written * k,
                least_written,
            };
            array.close().await?;
            Ok::<Work, Error>(work)
        })?;
        rt.end();
        Ok(work)
    }

    fn k(&self) -> usize {
        self.how.width - self.how.level.tolerates()
    }

    /// Hosts' requests while the array is in some state; rebuilt into spare capacity.
    ///
    /// # Errors
    /// When the array cannot be opened or fails a request.
    pub fn hosts(&self, pattern: Pattern, state: State) -> Result<Hosts, Error> {
        let rt = Rt::modelled(3);
        let disks: Vec<Disk> = self.disks.iter().map(Disk::fork).collect();
        let measured = rt.block_on(async {
            let array = Array::open(&rt, handles(&rt, &disks), OpenHow::default()).await?;
            let target = target(&array);
            let load = Load::new(pattern, BLOCK_BYTES as u32, self.how.depth);
            let all = 0..target.bytes();
            array.rebuild_pause(true).await?;
            if state != State::Optimal {
                array.drive_fail(MemberId(0)).await?;
            }
            if let State::Rebuilding(rate) = state {
                array.rebuild_rate(rate).await?;
            }
            // Nodes of the map come to memory, and hosts are at work when the rebuild begins.
            let warm = Until::Requests(self.how.requests / 10);
            generate(&rt, &target, &load, all.clone(), warm, 1).await?;
            if matches!(state, State::Rebuilding(_)) {
                array.rebuild_pause(false).await?;
            }
            let rebuilding = || array.status().rebuild.map(|r| r.bytes_moved);
            let before = rebuilding().unwrap_or(0);
            let mut hosts = Hosts { iops: 0.0, us_p99: 0.0, rebuilt_per_second: 0.0 };
            let (mut requests, mut seconds, mut slices) = (0, 0.0, 0.0);
            // In slices: one in which the rebuild ended does not count.
            while requests < self.how.requests {
                let slice = Until::Requests(self.how.requests / SLICES);
                let sample = generate(&rt, &target, &load, all.clone(), slice, 2 + requests).await?;
                let Some(now) = rebuilding().or((state == State::Optimal).then_some(0)) else { break };
                requests += sample.requests;
                seconds += sample.elapsed.as_secs_f64();
                slices += 1.0;
                hosts.us_p99 += (sample.latency.ns_p99 as f64 / 1000.0 - hosts.us_p99) / slices;
                hosts.rebuilt_per_second = (now - before) as f64 / seconds;
            }
            assert!(requests > 0, "the rebuild ended before the load had started");
            hosts.iops = requests as f64 / seconds;
            Ok::<Hosts, Error>(hosts)
        })?;
        rt.end();
        Ok(measured)
    }
}
