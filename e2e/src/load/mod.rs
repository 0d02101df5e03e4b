//! Random requests, many in flight and overlapping, each told to the model before it is sent and after its answer.
//!
//! Invariants: an error in an answer ends the load and is reported: nothing here asks for what cannot be done; a
//! connection that ends is the caller's to judge (it killed the server, or did not).

mod mix;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use export::nbd::client::{Client, Error, Zeroes};
use futures::future::join_all;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rt::{Buf, Rt, Task};

pub use mix::{Mix, Request};

use crate::model::{Kind, Model, Oddities, SECTOR, content};
use crate::{Failure, Result};

/// The randomness of everything here: a seed decides it.
pub type Random = Xoshiro256PlusPlus;

/// A generator that starts from `seed`.
#[must_use]
pub fn random(seed: u64) -> Random {
    Random::seed_from_u64(seed)
}

/// What a load did.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Requests answered.
    pub requests: u64,
    /// Bytes written, answered.
    pub bytes_written: u64,
    /// Requests in flight when the connection ended.
    pub unanswered: u64,
    /// Reads compared.
    pub reads: u64,
}

struct Shared {
    clients: Vec<Client>,
    model: Rc<RefCell<Model>>,
    mix: Mix,
    stop: Cell<bool>,
    tally: RefCell<Tally>,
    failure: RefCell<Option<Failure>>,
    disconnected: Cell<bool>,
}

/// A load under way.
pub struct Load {
    shared: Rc<Shared>,
    workers: Vec<Task<()>>,
}

/// How a load ended.
pub struct Ended {
    /// What it did.
    pub tally: Tally,
    /// Whether the connection ended under it.
    pub disconnected: bool,
}

impl Load {
    /// Starts as many workers as the mix has requests in flight.
    #[must_use]
    pub fn start(rt: &Rt, clients: &[Client], model: &Rc<RefCell<Model>>, mix: Mix, seed: u64) -> Load {
        let in_flight = mix.in_flight;
        let shared = Rc::new(Shared {
            clients: clients.to_vec(),
            model: model.clone(),
            mix,
            stop: Cell::new(false),
            tally: RefCell::default(),
            failure: RefCell::default(),
            disconnected: Cell::new(false),
        });
        let mut seeds = random(seed);
        let workers = (0..in_flight).map(|_| rt.spawn(worker(shared.clone(), random(seeds.random())))).collect();
        Load { shared, workers }
    }

    /// Requests answered so far.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.shared.tally.borrow().requests
    }

    /// Bytes written so far.
    #[must_use]
    pub fn bytes_written(&self) -> u64 {
        self.shared.tally.borrow().bytes_written
    }

    /// Whether it is over already: a failure, or the connection ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.shared.disconnected.get() || self.shared.failure.borrow().is_some()
    }

    /// Sends no more requests, and waits for the answers of those in flight or the end of the connection.
    ///
    /// # Errors
    /// When an answer was an error, or a read returned what it must not.
    pub async fn finish(self) -> Result<Ended> {
        self.shared.stop.set(true);
        join_all(self.workers).await;
        if let Some(failure) = self.shared.failure.take() {
            return Err(failure);
        }
        Ok(Ended { tally: self.shared.tally.take(), disconnected: self.shared.disconnected.get() })
    }
}

async fn worker(shared: Rc<Shared>, mut random: Random) {
    while !shared.stop.get() && shared.failure.borrow().is_none() {
        let request = shared.mix.draw(&mut random);
        let client = &shared.clients[random.random_range(0..shared.clients.len())];
        match send(&shared, client, &request).await {
            Ok(()) => shared.tally.borrow_mut().requests += 1,
            Err(Stop::Answer(why)) => {
                let failure = Failure::new(format!("{request:?}"), why);
                shared.failure.borrow_mut().get_or_insert(failure);
                return;
            }
            Err(Stop::Connection) => {
                shared.disconnected.set(true);
                shared.tally.borrow_mut().unanswered += 1;
                return;
            }
        }
    }
}

/// Why a worker stops.
enum Stop {
    Connection,
    Answer(String),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        match error {
            Error::Disconnected | Error::Io(_) => Stop::Connection,
            Error::Failed { .. } | Error::Refused { .. } | Error::Protocol(_) => Stop::Answer(error.to_string()),
        }
    }
}

async fn send(shared: &Shared, client: &Client, request: &Request) -> std::result::Result<(), Stop> {
    match request {
        Request::Flush => client.flush().await?,
        Request::Read { sectors } => {
            let before = shared.model.borrow_mut().stamp();
            let bytes = length(sectors);
            let data = client.read(sectors.start * SECTOR as u64, bytes).await?;
            if data.len() != bytes as usize {
                return Err(Stop::Answer(format!("{} bytes came back", data.len())));
            }
            if let Some(odd) = compare(&shared.model.borrow(), sectors.start, &data, before) {
                return Err(Stop::Answer(odd.to_string()));
            }
            shared.tally.borrow_mut().reads += 1;
        }
        Request::Change { kind, fua, keep, sectors } => {
            let (tag, salt) = {
                let mut model = shared.model.borrow_mut();
                // A deallocation leaves parts of blocks at its edges alone.
                let touched = if *kind == Kind::Deallocate { whole_blocks(sectors) } else { sectors.clone() };
                (model.send(*kind, *fua, touched), model.salt())
            };
            let (offset, bytes) = (sectors.start * SECTOR as u64, length(sectors));
            match kind {
                Kind::Write => {
                    let mut data = Buf::zeroed(bytes as usize);
                    content::fill(&mut data, salt, sectors.start, tag);
                    client.write(offset, data.freeze(), *fua).await?;
                    shared.tally.borrow_mut().bytes_written += u64::from(bytes);
                }
                Kind::Zeroes => {
                    let how = Zeroes { no_hole: *keep, fast: false, fua: *fua };
                    client.write_zeroes(offset, bytes, how).await?;
                }
                Kind::Deallocate => client.trim(offset, bytes, *fua).await?,
            }
            shared.model.borrow_mut().answer(tag);
        }
    }
    Ok(())
}

fn compare(model: &Model, first: u64, data: &[u8], before: u64) -> Option<Oddities> {
    model.check(first, data, before, |_, _| {})
}

fn length(sectors: &std::ops::Range<u64>) -> u32 {
    ((sectors.end - sectors.start) * SECTOR as u64) as u32
}

/// Sectors of a block of the array.
const BLOCK_SECTORS: u64 = 8;

fn whole_blocks(sectors: &std::ops::Range<u64>) -> std::ops::Range<u64> {
    let start = sectors.start.next_multiple_of(BLOCK_SECTORS);
    start..(sectors.end / BLOCK_SECTORS * BLOCK_SECTORS).max(start)
}

/// Writes the whole volume once, in order.
///
/// # Errors
/// When a write fails.
pub async fn fill(client: &Client, model: &Rc<RefCell<Model>>, bytes: u64) -> Result<()> {
    use futures::StreamExt;
    const PIECE: u64 = 1 << 20;
    let writes = (0..bytes).step_by(PIECE as usize).map(|at| {
        let sectors = at / SECTOR as u64..(at + PIECE).min(bytes) / SECTOR as u64;
        write_one(client, model, sectors)
    });
    let mut writes = futures::stream::iter(writes).buffer_unordered(8);
    while let Some(written) = writes.next().await {
        written?;
    }
    Ok(())
}

/// Writes these sectors, and waits for the answer.
///
/// # Errors
/// When it is an error.
pub async fn write_one(client: &Client, model: &Rc<RefCell<Model>>, sectors: std::ops::Range<u64>) -> Result<()> {
    let (tag, salt) = {
        let mut model = model.borrow_mut();
        (model.send(Kind::Write, false, sectors.clone()), model.salt())
    };
    let mut data = Buf::zeroed(length(&sectors) as usize);
    content::fill(&mut data, salt, sectors.start, tag);
    let written = client.write(sectors.start * SECTOR as u64, data.freeze(), false).await;
    written.map_err(|e| Failure::new(format!("a write of sectors {sectors:?}"), e))?;
    model.borrow_mut().answer(tag);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_of_blocks() {
        assert_eq!(whole_blocks(&(0..16)), 0..16);
        assert_eq!(whole_blocks(&(1..17)), 8..16);
        assert!(whole_blocks(&(1..8)).is_empty());
        assert!(whole_blocks(&(9..15)).is_empty());
    }
}
