//! The stream of files onto a volume, and the comparison with what comes back.

use std::io::Read;
use std::pin::pin;
use std::time::Instant;

use api::Problem;
use export::nbd::client::{Client, Error};
use futures::stream::{FuturesUnordered, StreamExt};
use ondisk::crc32c;
use rt::{Buf, Bytes};

use super::files::{Collection, Stream};
use super::say::Moved;
use crate::progress::Progress;

/// Bytes of one request.
const REQUEST_BYTES: usize = 1 << 20;

/// Requests in flight.
const DEPTH: usize = 16;

/// What went in: a checksum of each request, to tell a changed file from damage.
pub struct Copied {
    checksums: Vec<u32>,
}

/// Writes the whole stream. `at` is told the share that is written, 0 to 1, after each request.
///
/// # Errors
/// When the server fails a write.
pub async fn write(
    client: &Client,
    collection: &Collection,
    mut at: impl FnMut(f64),
) -> Result<(Moved, Copied), Problem> {
    let begun = Instant::now();
    let progress = Progress::new(true);
    let total = collection.stream_bytes();
    let mut stream = collection.stream();
    let mut copied = Copied { checksums: vec![] };
    let mut in_flight = FuturesUnordered::new();
    let (mut offset, mut done) = (0u64, 0u64);
    while done < total {
        while in_flight.len() < DEPTH && offset < total {
            let chunk = next_chunk(&mut stream);
            copied.checksums.push(crc32c(&chunk));
            let (bytes, at) = (chunk.len() as u64, offset);
            in_flight.push(async move { client.write(at, chunk, false).await.map(|()| bytes) });
            offset += bytes;
        }
        let Some(written) = in_flight.next().await else { break };
        done += written.map_err(|e| broken("a write", &e))?;
        progress.at("writing", done, total);
        at(done as f64 / total as f64);
    }
    client.flush().await.map_err(|e| broken("a flush", &e))?;
    Ok((Moved { bytes: total, time: begun.elapsed() }, copied))
}

/// Reads everything back and compares it with the files, byte for byte.
///
/// # Errors
/// When the server fails a read, or returns other bytes.
pub async fn compare(client: &Client, collection: &Collection, copied: &Copied) -> Result<Moved, Problem> {
    let begun = Instant::now();
    let progress = Progress::new(true);
    let total = collection.stream_bytes();
    let mut stream = collection.stream();
    let read = |at: u64| client.read(at, (total - at).min(REQUEST_BYTES as u64) as u32);
    let offsets = (0..copied.checksums.len() as u64).map(|n| n * REQUEST_BYTES as u64);
    let mut reads = pin!(futures::stream::iter(offsets.map(read)).buffered(DEPTH));
    let mut compared = 0u64;
    for checksum in &copied.checksums {
        let Some(read) = reads.next().await else { break };
        let got = read.map_err(|e| broken("a read", &e))?;
        let want = next_chunk(&mut stream);
        // Other bytes than the file has now, but those that were written: then the file is another.
        if *got != *want && crc32c(&got) != *checksum {
            let first = got.iter().zip(want.iter()).position(|(a, b)| a != b).unwrap_or(0) as u64;
            return Err(Problem::failed(
                "the data",
                format!("byte {} came back wrong", compared + first),
                "this is a bug: please report it",
            ));
        }
        compared += got.len() as u64;
        progress.at("comparing", compared, total);
    }
    Ok(Moved { bytes: compared, time: begun.elapsed() })
}

/// The next bytes of the stream: a whole request, but for the last.
fn next_chunk(stream: &mut Stream<'_>) -> Bytes {
    let mut buf = Buf::zeroed(REQUEST_BYTES);
    let mut filled = 0;
    while filled < buf.len() {
        match stream.read(&mut buf[filled..]) {
            Ok(n) if n > 0 => filled += n,
            Ok(_) | Err(_) => break,
        }
    }
    buf.freeze().slice(0..filled)
}

fn broken(what: &str, e: &Error) -> Problem {
    Problem::failed(format!("{what} over NBD"), e, "please report this")
}
