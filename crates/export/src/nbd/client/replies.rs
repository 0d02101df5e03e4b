//! Replies sorted to the requests they answer. Sections "Simple reply message", "Structured reply chunk message".
//!
//! Invariants: data is accepted only within the range that was asked for, and only once; memory is allocated for what
//! was asked for, not for what a header claims.

use futures::channel::oneshot;
use rt::{Buf, Bytes};

use super::{Connection, Error};
use crate::{
    namespace::Extent,
    nbd::{
        errno::Errno,
        reply::{self, Chunk},
        request::WireRequest,
        wire::{CHUNK_HEADER_BYTES, Fields, SIMPLE_REPLY_BYTES, SIMPLE_REPLY_MAGIC, chunk, cmd},
    },
    stream::reader::Reader,
};

/// Longest payload of an error or block status chunk: 2^20 extents ("Structured reply types").
const META_BYTES_MAX: u32 = 4 + (8 << 20);

/// What a request gets.
pub enum Answer {
    Done,
    Data(Bytes),
    Extents(Vec<Extent>),
}

/// A request in flight and what has arrived for it.
pub struct Pending {
    kind: u16,
    offset: u64,
    length: u32,
    data: Option<Buf>,
    /// Ranges of `data` that have arrived.
    arrived: Vec<(u32, u32)>,
    extents: Option<Vec<Extent>>,
    error: Option<Error>,
    sender: oneshot::Sender<Result<Answer, Error>>,
}

impl Pending {
    pub fn new(request: &WireRequest, sender: oneshot::Sender<Result<Answer, Error>>) -> Self {
        let WireRequest { kind, offset, length, .. } = *request;
        Pending { kind, offset, length, data: None, arrived: Vec::new(), extents: None, error: None, sender }
    }

    /// Reserves `bytes` at `offset` of the export; where they lie in the answer.
    fn place(&mut self, offset: u64, bytes: u32) -> Result<u32, Error> {
        let from = offset.checked_sub(self.offset).and_then(|at| u32::try_from(at).ok());
        let range = from.and_then(|from| Some((from, from.checked_add(bytes)?)));
        match range {
            Some((from, to)) if self.kind == cmd::READ && to <= self.length => {
                if bytes == 0 || self.arrived.iter().any(|r| r.0 < to && from < r.1) {
                    return Err(Error::Protocol("empty or overlapping chunks"));
                }
                self.arrived.push((from, to));
                Ok(from)
            }
            _ => Err(Error::Protocol("data that was not asked for")),
        }
    }

    /// Puts data where `place` said. Data that is everything is kept as it is.
    fn put(&mut self, at: u32, part: Buf) {
        if part.len() == self.length as usize {
            self.data = Some(part);
        } else {
            let data = self.data.get_or_insert_with(|| Buf::zeroed(self.length as usize));
            data[at as usize..at as usize + part.len()].copy_from_slice(&part);
        }
    }

    /// The final answer.
    fn finish(self) -> Result<(), Error> {
        let covered: u64 = self.arrived.iter().map(|r| u64::from(r.1 - r.0)).sum();
        let answer = match (self.error, self.kind) {
            (Some(error), _) => Err(error),
            (None, cmd::READ) if covered != u64::from(self.length) => {
                return Err(Error::Protocol("a read without all of its data"));
            }
            // A read of holes only has no data yet.
            (None, cmd::READ) => {
                let data = self.data.unwrap_or_else(|| Buf::zeroed(self.length as usize));
                Ok(Answer::Data(data.freeze()))
            }
            (None, _) => Ok(self.extents.map_or(Answer::Done, Answer::Extents)),
        };
        // Whoever asked may have lost interest.
        let _ = self.sender.send(answer);
        Ok(())
    }
}

/// Receives until the connection ends; why it did.
pub async fn receive(connection: &Connection, mut reader: Reader) -> Error {
    loop {
        if let Err(error) = receive_one(connection, &mut reader).await {
            return error;
        }
    }
}

async fn receive_one(connection: &Connection, reader: &mut Reader) -> Result<(), Error> {
    let start: [u8; SIMPLE_REPLY_BYTES] = reader.array().await?;
    if start[..4] == SIMPLE_REPLY_MAGIC.to_be_bytes() {
        return receive_simple(connection, reader, &start).await;
    }
    let rest: [u8; CHUNK_HEADER_BYTES - SIMPLE_REPLY_BYTES] = reader.array().await?;
    let mut header = [0; CHUNK_HEADER_BYTES];
    header[..SIMPLE_REPLY_BYTES].copy_from_slice(&start);
    header[SIMPLE_REPLY_BYTES..].copy_from_slice(&rest);
    match Chunk::parse(&header) {
        Some(chunk) if connection.export.structured => receive_chunk(connection, reader, chunk).await,
        _ => Err(Error::Protocol("a reply without its magic")),
    }
}

fn take(connection: &Connection, cookie: u64) -> Result<Pending, Error> {
    let pending = connection.pending.borrow_mut().remove(&cookie);
    pending.ok_or(Error::Protocol("a reply to nothing that was asked"))
}

async fn receive_simple(connection: &Connection, reader: &mut Reader, bytes: &[u8]) -> Result<(), Error> {
    let mut fields = Fields(&bytes[4..]);
    let (code, cookie) = (fields.u32().unwrap_or_default(), fields.u64().unwrap_or_default());
    let mut pending = take(connection, cookie)?;
    if code != 0 {
        pending.error = Some(Error::Failed { errno: Errno::from_code(code), message: String::new() });
    } else if pending.kind == cmd::READ {
        if connection.export.structured {
            return Err(Error::Protocol("a simple reply to a read"));
        }
        let at = pending.place(pending.offset, pending.length)?;
        let data = reader.bytes(pending.length as usize).await?;
        pending.put(at, data);
    }
    pending.finish()
}

async fn receive_chunk(connection: &Connection, reader: &mut Reader, chunk: Chunk) -> Result<(), Error> {
    let mut pending = take(connection, chunk.cookie)?;
    match chunk.kind {
        chunk::NONE if chunk.bytes == 0 && chunk.done => {}
        chunk::OFFSET_DATA if chunk.bytes > 8 => {
            let offset = u64::from_be_bytes(reader.array().await?);
            let at = pending.place(offset, chunk.bytes - 8)?;
            let data = reader.bytes(chunk.bytes as usize - 8).await?;
            pending.put(at, data);
        }
        chunk::OFFSET_HOLE if chunk.bytes == 12 => {
            let offset = u64::from_be_bytes(reader.array().await?);
            let bytes = u32::from_be_bytes(reader.array().await?);
            pending.place(offset, bytes)?;
        }
        chunk::BLOCK_STATUS if chunk.bytes <= META_BYTES_MAX && pending.kind == cmd::BLOCK_STATUS => {
            let payload = reader.bytes(chunk.bytes as usize).await?;
            let extents = reply::parse_block_status(&payload).ok_or(Error::Protocol("malformed block status"))?;
            if pending.extents.replace(extents).is_some() {
                return Err(Error::Protocol("two block status chunks for one context"));
            }
        }
        // "an unknown or unexpected type with bit 15 set": an error all the same.
        kind if kind & chunk::ERROR_BIT != 0 && chunk.bytes <= META_BYTES_MAX => {
            let payload = reader.bytes(chunk.bytes as usize).await?;
            let (errno, message) = reply::parse_error(&payload).ok_or(Error::Protocol("malformed error"))?;
            pending.error.get_or_insert(Error::Failed { errno, message });
        }
        _ => return Err(Error::Protocol("an unknown or malformed chunk")),
    }
    if chunk.done {
        return pending.finish();
    }
    connection.pending.borrow_mut().insert(chunk.cookie, pending);
    Ok(())
}
