//! Replies, written to and parsed from bytes. Sections "Simple reply message", "Structured reply chunk message",
//! "Structured reply types", "Option reply types".
//!
//! Invariants: the writing functions append one whole message (without the data that follows a read); the parsing
//! functions are pure and take any bytes.

use super::{
    errno::Errno,
    wire::{
        CHUNK_HEADER_BYTES, Fields, OPTION_REPLY_HEADER_BYTES, OPTION_REPLY_MAGIC, SIMPLE_REPLY_MAGIC,
        STRUCTURED_REPLY_MAGIC, chunk, state,
    },
};
use crate::namespace::{Extent, ExtentState};

/// Context id of `base:allocation`: any number, the same in negotiation and in replies.
pub const ALLOCATION_CONTEXT: u32 = 1;

/// Appends an option reply.
pub fn option(out: &mut Vec<u8>, option: u32, reply: u32, data: &[&[u8]]) {
    let bytes: usize = data.iter().map(|part| part.len()).sum();
    out.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&reply.to_be_bytes());
    out.extend_from_slice(&(bytes as u32).to_be_bytes());
    data.iter().for_each(|part| out.extend_from_slice(part));
}

/// Appends a simple reply, with an error or without.
pub fn simple(out: &mut Vec<u8>, cookie: u64, errno: Option<Errno>) {
    out.extend_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    out.extend_from_slice(&errno.map_or(0, Errno::code).to_be_bytes());
    out.extend_from_slice(&cookie.to_be_bytes());
}

fn chunk_header(out: &mut Vec<u8>, kind: u16, cookie: u64, length: u32) {
    out.extend_from_slice(&STRUCTURED_REPLY_MAGIC.to_be_bytes());
    out.extend_from_slice(&chunk::FLAG_DONE.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&cookie.to_be_bytes());
    out.extend_from_slice(&length.to_be_bytes());
}

/// Appends the header of the only chunk of a read, which `bytes` of data follow.
pub fn offset_data(out: &mut Vec<u8>, cookie: u64, offset: u64, bytes: u32) {
    chunk_header(out, chunk::OFFSET_DATA, cookie, bytes + 8);
    out.extend_from_slice(&offset.to_be_bytes());
}

/// Appends an error chunk with a message for people.
pub fn error(out: &mut Vec<u8>, cookie: u64, errno: Errno, why: &str) {
    chunk_header(out, chunk::ERROR, cookie, 6 + why.len() as u32);
    out.extend_from_slice(&errno.code().to_be_bytes());
    out.extend_from_slice(&(why.len() as u16).to_be_bytes());
    out.extend_from_slice(why.as_bytes());
}

/// Appends the answer to a block status request for `bytes`: the extents, cut at the request's end ("REQ_ONE ... MUST
/// NOT exceed the length of the original request"), neighbours of one state as one.
pub fn block_status(out: &mut Vec<u8>, cookie: u64, bytes: u32, extents: &[Extent]) {
    let mut left = u64::from(bytes);
    let mut descriptors: Vec<(u32, u32)> = Vec::with_capacity(extents.len());
    for extent in extents {
        let length = extent.bytes.min(left) as u32;
        left -= u64::from(length);
        let flags = flags_of(extent.state);
        match descriptors.last_mut() {
            _ if length == 0 => {}
            Some(last) if last.1 == flags => last.0 += length,
            _ => descriptors.push((length, flags)),
        }
    }
    if descriptors.is_empty() {
        // "the server MUST return at least one status descriptor", and "MAY always safely report a status of 0".
        descriptors.push((bytes, 0));
    }
    chunk_header(out, chunk::BLOCK_STATUS, cookie, 4 + 8 * descriptors.len() as u32);
    out.extend_from_slice(&ALLOCATION_CONTEXT.to_be_bytes());
    for (length, flags) in descriptors {
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&flags.to_be_bytes());
    }
}

fn flags_of(state: ExtentState) -> u32 {
    match state {
        ExtentState::Allocated => 0,
        ExtentState::Hole => state::HOLE | state::ZERO,
        ExtentState::Zero => state::ZERO,
    }
}

/// The header of an option reply, as a client parses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionReply {
    /// The option that it answers.
    pub option: u32,
    /// The reply type.
    pub reply: u32,
    /// Length of its data.
    pub bytes: u32,
}

impl OptionReply {
    /// Parses a header; nothing when it is not one.
    #[must_use]
    pub fn parse(bytes: &[u8; OPTION_REPLY_HEADER_BYTES]) -> Option<OptionReply> {
        let mut fields = Fields(bytes);
        if fields.u64()? != OPTION_REPLY_MAGIC {
            return None;
        }
        Some(OptionReply { option: fields.u32()?, reply: fields.u32()?, bytes: fields.u32()? })
    }
}

/// The header of a structured reply chunk, as a client parses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Whether it is the last one.
    pub done: bool,
    /// Its type.
    pub kind: u16,
    /// The request that it answers.
    pub cookie: u64,
    /// Length of its payload.
    pub bytes: u32,
}

impl Chunk {
    /// Parses a header; nothing when it is not one.
    #[must_use]
    pub fn parse(bytes: &[u8; CHUNK_HEADER_BYTES]) -> Option<Chunk> {
        let mut fields = Fields(bytes);
        if fields.u32()? != STRUCTURED_REPLY_MAGIC {
            return None;
        }
        let done = fields.u16()? & chunk::FLAG_DONE != 0;
        Some(Chunk { done, kind: fields.u16()?, cookie: fields.u64()?, bytes: fields.u32()? })
    }
}

/// Error and message of an error chunk's payload.
#[must_use]
pub fn parse_error(payload: &[u8]) -> Option<(Errno, String)> {
    let mut fields = Fields(payload);
    let code = fields.u32()?;
    let length = fields.u16()?;
    let message = fields.bytes(usize::from(length))?;
    (code != 0).then(|| (Errno::from_code(code), String::from_utf8_lossy(message).into_owned()))
}

/// Extents of a block status chunk's payload, whatever its context.
#[must_use]
pub fn parse_block_status(payload: &[u8]) -> Option<Vec<Extent>> {
    let mut fields = Fields(payload);
    fields.u32()?;
    let mut extents = Vec::with_capacity(payload.len() / 8);
    while !fields.is_empty() {
        let bytes = u64::from(fields.u32()?);
        let flags = fields.u32()?;
        let state = match (flags & state::HOLE != 0, flags & state::ZERO != 0) {
            (true, true) => ExtentState::Hole,
            (false, true) => ExtentState::Zero,
            (_, false) => ExtentState::Allocated,
        };
        if bytes == 0 {
            return None;
        }
        extents.push(Extent { bytes, state });
    }
    (!extents.is_empty()).then_some(extents)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split(message: &[u8]) -> (Chunk, &[u8]) {
        let (header, payload) = message.split_first_chunk().unwrap();
        (Chunk::parse(header).unwrap(), payload)
    }

    #[test]
    fn errors_come_back() {
        let mut out = Vec::new();
        error(&mut out, 9, Errno::NoSpace, "full");
        let (chunk, payload) = split(&out);
        assert_eq!(chunk, Chunk { done: true, kind: chunk::ERROR, cookie: 9, bytes: 10 });
        assert_eq!(parse_error(payload), Some((Errno::NoSpace, "full".to_owned())));
        assert_eq!(parse_error(&payload[..8]), None);
    }

    #[test]
    fn extents_are_cut_and_joined() {
        use ExtentState::{Allocated, Hole, Zero};
        let given = [(10, Hole), (20, Hole), (5, Allocated), (7, Zero), (1 << 40, Hole), (3, Zero)];
        let given = given.map(|(bytes, state)| Extent { bytes, state });
        let expected =
            [(30, Hole), (5, Allocated), (7, Zero), (58, Hole)].map(|(bytes, state)| Extent { bytes, state });
        let mut out = Vec::new();
        block_status(&mut out, 1, 100, &given);
        let (chunk, payload) = split(&out);
        assert_eq!(chunk.bytes as usize, payload.len());
        assert_eq!(parse_block_status(payload).unwrap(), expected);

        out.clear();
        block_status(&mut out, 1, 100, &[]);
        let expected = [Extent { bytes: 100, state: Allocated }];
        assert_eq!(parse_block_status(split(&out).1).unwrap(), expected);
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(payload: Vec<u8>, header: [u8; CHUNK_HEADER_BYTES]) {
            let _ = parse_error(&payload);
            let _ = parse_block_status(&payload);
            let _ = Chunk::parse(&header);
            let _ = OptionReply::parse(&header);
        }
    }
}
