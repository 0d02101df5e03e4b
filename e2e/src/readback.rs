//! Reading a whole volume and comparing every sector with the model.

use std::cell::RefCell;
use std::rc::Rc;

use export::nbd::client::Client;
use futures::StreamExt;
use futures::stream;

use crate::model::{Model, Oddities, SECTOR, ZEROES};
use crate::{Failure, Result};

/// Bytes of one read.
const READ_BYTES: u64 = 1 << 20;
/// Reads in flight.
const READS_AT_ONCE: usize = 8;

/// Reads everything, touched or not. What was found is what the model goes on with.
///
/// # Errors
/// When a sector holds what it must not, or cannot be read.
pub async fn verify(clients: &[Client], model: &Rc<RefCell<Model>>) -> Result<u64> {
    let bytes = model.borrow().sectors() * SECTOR as u64;
    let mut found = vec![ZEROES; model.borrow().sectors() as usize];
    let mut odd = Oddities::default();
    let starts = (0..bytes).step_by(READ_BYTES as usize).enumerate();
    let mut reads = stream::iter(starts)
        .map(|(n, at)| {
            let length = READ_BYTES.min(bytes - at) as u32;
            let client = &clients[n % clients.len()];
            async move { (at, client.read(at, length).await) }
        })
        .buffer_unordered(READS_AT_ONCE);
    while let Some((at, data)) = reads.next().await {
        let data = data.map_err(|e| Failure::new(format!("reading back 1 MiB at byte {at}"), e))?;
        let model = model.borrow();
        let seen = |sector: u64, value| found[sector as usize] = value;
        if let Some(more) = model.check(at / SECTOR as u64, &data, u64::MAX, seen) {
            odd.merge(more);
        }
    }
    drop(reads);
    if odd.count > 0 {
        return Err(Failure::new("readback", odd));
    }
    model.borrow_mut().settle(found);
    Ok(bytes)
}
