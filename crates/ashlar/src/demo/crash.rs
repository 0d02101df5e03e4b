//! SIGKILL while writes are in flight: every write that was answered must be there afterwards.
//!
//! Each block carries its number and a version. The ledger knows, per block, the newest version that was answered and
//! the newest that was sent; after the restart the block must be whole and hold a version between the two.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use api::Problem;
use base::BLOCK_BYTES;
use export::nbd::client::Client;
use futures::future::join_all;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rt::{Buf, Bytes, Rt};

use super::process::Server;
use super::say;
use crate::text::duration;

/// Size of the volume.
pub const VOLUME_SIZE: &str = "64M";
const BLOCKS: u64 = (64 << 20) / BLOCK_BYTES as u64;

/// Writers; each has blocks of its own.
const WRITERS: u64 = 16;
const BLOCKS_PER_WRITER: u64 = BLOCKS / WRITERS;

/// Longest write: 64 KiB.
const BLOCKS_PER_WRITE_MAX: u64 = 16;

/// Times the server is killed.
const KILLS: u32 = 3;

/// How long the writers run before each kill, at most.
const WRITING_MS: std::ops::Range<u64> = 700..1500;

/// How much they write before each kill, at most: on a fast machine the log would fill the disk otherwise.
const WRITING_BYTES: std::ops::Range<u64> = 64 << 20..128 << 20;

#[derive(Clone, Copy, Default)]
struct Versions {
    answered: u64,
    sent: u64,
}

#[derive(Default)]
struct Ledger {
    blocks: Vec<Versions>,
    writes_answered: u64,
    bytes_answered: u64,
    touched: BTreeSet<u64>,
}

/// Kills and verifies, again and again.
pub async fn run(rt: &Rt, server: &mut Server, seed: u64) -> Result<(), Problem> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let ledger =
        Rc::new(RefCell::new(Ledger { blocks: vec![Versions::default(); BLOCKS as usize], ..Ledger::default() }));
    for kill in 1..=KILLS {
        let before = ledger.borrow().writes_answered;
        let client = server.connect(rt, "demo/crash").await?;
        let writers: Vec<_> = (0..WRITERS)
            .map(|w| rt.spawn(write_until_killed(client.clone(), ledger.clone(), w, rng.random())))
            .collect();
        let begun = rt.now();
        let (time, bytes) = (Duration::from_millis(rng.random_range(WRITING_MS)), rng.random_range(WRITING_BYTES));
        let enough = bytes + ledger.borrow().bytes_answered;
        while rt.now() - begun < time && ledger.borrow().bytes_answered < enough {
            rt.sleep(Duration::from_millis(1)).await;
        }
        server.kill()?;
        join_all(writers).await;
        drop(client);
        let written = ledger.borrow().writes_answered - before;
        say::line(&format!("kill -9 number {kill}, after {written} acknowledged writes, with {WRITERS} in flight"));
        server.start(rt).await?;
        let client = server.connect(rt, "demo/crash").await?;
        let begun = rt.now();
        verify(&client, &ledger).await?;
        say::line(&format!(
            "  all {} blocks written so far hold the acknowledged data (verified in {})",
            ledger.borrow().touched.len(),
            duration(rt.now() - begun)
        ));
    }
    Ok(())
}

async fn write_until_killed(client: Client, ledger: Rc<RefCell<Ledger>>, writer: u64, seed: u64) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    loop {
        let blocks = rng.random_range(1..=BLOCKS_PER_WRITE_MAX);
        let first = writer * BLOCKS_PER_WRITER + rng.random_range(0..=BLOCKS_PER_WRITER - blocks);
        let range = first as usize..(first + blocks) as usize;
        let mut data = Buf::zeroed(blocks as usize * BLOCK_BYTES);
        for (block, bytes) in range.clone().zip(data.chunks_exact_mut(BLOCK_BYTES)) {
            let mut ledger = ledger.borrow_mut();
            ledger.blocks[block].sent += 1;
            ledger.touched.insert(block as u64);
            fill(bytes, block as u64, ledger.blocks[block].sent);
        }
        let fua = rng.random_ratio(1, 16);
        if client.write(first * BLOCK_BYTES as u64, data.freeze(), fua).await.is_err() {
            return;
        }
        let mut ledger = ledger.borrow_mut();
        ledger.writes_answered += 1;
        ledger.bytes_answered += blocks * BLOCK_BYTES as u64;
        for block in range {
            let v = &mut ledger.blocks[block];
            v.answered = v.sent;
        }
    }
}

/// Block number and version, over and over: a block that is half old shows.
fn fill(bytes: &mut [u8], block: u64, version: u64) {
    for (n, pair) in bytes.chunks_exact_mut(16).enumerate() {
        pair[..8].copy_from_slice(&block.to_le_bytes());
        pair[8..].copy_from_slice(&(version ^ (n as u64) << 48).to_le_bytes());
    }
}

async fn verify(client: &Client, ledger: &Rc<RefCell<Ledger>>) -> Result<(), Problem> {
    const BLOCKS_PER_READ: u64 = 256;
    for first in (0..BLOCKS).step_by(BLOCKS_PER_READ as usize) {
        let bytes = (BLOCKS_PER_READ * BLOCK_BYTES as u64) as u32;
        let read = client.read(first * BLOCK_BYTES as u64, bytes).await;
        let data: Bytes = read.map_err(|e| Problem::failed("a read over NBD", e, "please report this"))?;
        let mut ledger = ledger.borrow_mut();
        for (block, bytes) in (first..).zip(data.chunks_exact(BLOCK_BYTES)) {
            let v = &mut ledger.blocks[block as usize];
            let found = version_in(bytes, block).filter(|found| (v.answered..=v.sent).contains(found));
            let Some(found) = found else {
                return Err(Problem::failed(
                    format!("block {block} of volume demo/crash"),
                    format!("it does not hold version {} (or up to {}, in flight)", v.answered, v.sent),
                    "this is a bug: please report it",
                ));
            };
            // What is there now must stay.
            v.answered = found;
            v.sent = found;
        }
    }
    Ok(())
}

/// The version a whole block holds; `None` when it is not whole.
fn version_in(bytes: &[u8], block: u64) -> Option<u64> {
    if bytes.iter().all(|b| *b == 0) {
        return Some(0);
    }
    let (_, version) = bytes.split_at(8);
    let version = u64::from_le_bytes(version[..8].try_into().ok()?);
    let mut whole = vec![0; bytes.len()];
    fill(&mut whole, block, version);
    (whole == bytes).then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_block_is_seen() {
        let mut a = vec![0u8; BLOCK_BYTES];
        let mut b = vec![0u8; BLOCK_BYTES];
        assert_eq!(version_in(&a, 7), Some(0));
        fill(&mut a, 7, 3);
        fill(&mut b, 7, 4);
        assert_eq!(version_in(&a, 7), Some(3));
        assert_eq!(version_in(&a, 8), None);
        b[512..].copy_from_slice(&a[512..]);
        assert_eq!(version_in(&b, 7), None);
    }
}
