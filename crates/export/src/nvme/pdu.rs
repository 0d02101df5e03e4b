//! PDUs: their headers parsed, checked and written. NVMe/TCP 1.0, section "NVMe/TCP PDU Definitions".
//!
//! ```text
//!   0 type | 1 flags | 2 HLEN | 3 PDO | 4..8 PLEN | specific header | header digest | padding | data | data digest
//!   |---------------------- HLEN bytes ----------------------------|
//!   |---------------------- PDO bytes (when there is data) ---------------------------|
//!   |---------------------- PLEN bytes -----------------------------------------------------------------|
//! ```
//!
//! Invariants: pure functions; a [`Frame`] has passed every check of lengths, offsets, alignment and flags, so that what
//! follows its header is known before it is received; what fails a check says where ([`Fatal`]).
//!
//! Not here: what PDUs mean, and in which order they come (`transfer`, `session`).

use rt::Bytes;

use super::{
    bytes::{put, u16_at, u32_at},
    digest::{DIGEST_BYTES, digest, digest_parts},
    limits::{H2C_DATA_MAX, IO_CAPSULE_DATA_MAX},
};
use crate::stream::outbox::Message;

/// Length of the common header.
pub const COMMON_BYTES: usize = 8;
/// Length of an ICReq and of an ICResp.
pub const INITIALIZE_BYTES: usize = 128;
/// Length of a header of H2CData, C2HData, R2T and of both TermReqs.
pub const DATA_HEADER_BYTES: usize = 24;
/// HLEN of a command capsule: common header and submission queue entry.
pub const COMMAND_BYTES: usize = COMMON_BYTES + 64;
/// HLEN of a response capsule: common header and completion queue entry.
pub const RESPONSE_BYTES: usize = COMMON_BYTES + 16;
/// Longest TermReq: 128 bytes of the PDU in error behind its header.
pub const TERM_BYTES_MAX: usize = DATA_HEADER_BYTES + 128;
/// What a receive between large data takes: the header of the next data, and a dozen commands or answers before it.
pub const HEADERS_BYTES: usize = 1024;
/// What data in a PDU to the controller is aligned to (CPDA 0): 4 bytes.
const CONTROLLER_ALIGNMENT: u32 = 4;

/// PDU types.
pub mod kind {
    #![allow(missing_docs, reason = "the names of the specification")]
    pub const IC_REQ: u8 = 0x00;
    pub const IC_RESP: u8 = 0x01;
    pub const H2C_TERM_REQ: u8 = 0x02;
    pub const C2H_TERM_REQ: u8 = 0x03;
    pub const CAPSULE_CMD: u8 = 0x04;
    pub const CAPSULE_RESP: u8 = 0x05;
    pub const H2C_DATA: u8 = 0x06;
    pub const C2H_DATA: u8 = 0x07;
    pub const R2T: u8 = 0x09;
}

/// PDU flags.
pub mod flag {
    #![allow(missing_docs, reason = "the names of the specification")]
    pub const HEADER_DIGEST: u8 = 1 << 0;
    pub const DATA_DIGEST: u8 = 1 << 1;
    pub const LAST: u8 = 1 << 2;
    pub const SUCCESS: u8 = 1 << 3;
}

/// Why a connection is terminated: the Fatal Error Status of a TermReq.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fes {
    /// A field of a header has a value that it may not have; the information is its offset.
    InvalidHeaderField = 1,
    /// A PDU that may not come now.
    SequenceError = 2,
    /// A header that does not match its digest; the information is the digest received.
    HeaderDigest = 3,
    /// Data outside of what was asked for; the information is the offset of the field.
    OutOfRange = 4,
    /// More data than was agreed on.
    LimitExceeded = 5,
    /// A parameter of the ICReq that is not supported; the information is its offset.
    Unsupported = 6,
}

/// An error after which the connection has no meaning any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fatal {
    /// What is wrong.
    pub fes: Fes,
    /// Where: the Fatal Error Information.
    pub information: u32,
}

impl Fatal {
    /// A wrong field at this offset.
    #[must_use]
    pub fn field(offset: u32) -> Fatal {
        Fatal { fes: Fes::InvalidHeaderField, information: offset }
    }

    /// A PDU that may not come now.
    #[must_use]
    pub fn sequence() -> Fatal {
        Fatal { fes: Fes::SequenceError, information: 0 }
    }
}

/// What host and controller have agreed on by ICReq and ICResp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Every header is followed by its digest, but for ICReq, ICResp and TermReqs.
    pub header_digest: bool,
    /// Data is followed by its digest.
    pub data_digest: bool,
    /// What data in a PDU to the host is aligned to, in bytes (HPDA).
    pub alignment: u32,
    /// R2Ts of one command that the host takes at once.
    pub r2ts_max: u32,
}

impl Terms {
    fn header_digest_bytes(&self) -> u32 {
        if self.header_digest { DIGEST_BYTES as u32 } else { 0 }
    }
}

/// A common header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Common {
    /// PDU type.
    pub kind: u8,
    /// Flags.
    pub flags: u8,
    /// HLEN: length of the header without its digest.
    pub header_bytes: u8,
    /// PDO: where the data begins.
    pub data_offset: u8,
    /// PLEN: length of the PDU.
    pub bytes: u32,
}

impl Common {
    /// Parses any eight bytes.
    #[must_use]
    pub fn parse(bytes: &[u8; COMMON_BYTES]) -> Common {
        let [kind, flags, header_bytes, data_offset, ..] = *bytes;
        Common { kind, flags, header_bytes, data_offset, bytes: u32_at(bytes, 4) }
    }

    /// The header as sent.
    #[must_use]
    pub fn encode(&self) -> [u8; COMMON_BYTES] {
        let mut bytes = [self.kind, self.flags, self.header_bytes, self.data_offset, 0, 0, 0, 0];
        put(&mut bytes, 4, &self.bytes.to_le_bytes());
        bytes
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// What follows the header of a PDU that may carry data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Bytes between header (with its digest) and data.
    pub padding: u32,
    /// Bytes of data; 0 when there is none, and then no digest of it.
    pub data: u32,
    /// Whether the data is followed by its digest.
    pub data_digest: bool,
}

/// Which way a PDU goes: who checks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// To the controller.
    Controller,
    /// To the host.
    Host,
}

/// Checks the common header of a PDU that may carry data: CapsuleCmd and H2CData, or CapsuleResp, C2HData and R2T.
///
/// # Errors
/// [`Fes::SequenceError`] for a type that does not go this way, [`Fes::LimitExceeded`] for too much data, else
/// [`Fes::InvalidHeaderField`] with the offset of the field.
pub fn check(common: &Common, to: To, terms: &Terms) -> Result<Frame, Fatal> {
    let (header_bytes, data_max) = match (common.kind, to) {
        (kind::CAPSULE_CMD, To::Controller) => (COMMAND_BYTES, IO_CAPSULE_DATA_MAX),
        (kind::H2C_DATA, To::Controller) => (DATA_HEADER_BYTES, H2C_DATA_MAX),
        (kind::CAPSULE_RESP, To::Host) => (RESPONSE_BYTES, 0),
        (kind::R2T, To::Host) => (DATA_HEADER_BYTES, 0),
        (kind::C2H_DATA, To::Host) => (DATA_HEADER_BYTES, u32::MAX),
        (kind::IC_REQ | kind::IC_RESP | kind::CAPSULE_CMD..=kind::C2H_DATA | kind::R2T, _) => {
            return Err(Fatal::sequence());
        }
        _ => return Err(Fatal::field(0)),
    };
    if usize::from(common.header_bytes) != header_bytes {
        return Err(Fatal::field(2));
    }
    if common.has(flag::HEADER_DIGEST) != terms.header_digest {
        return Err(Fatal::field(1));
    }
    let header = header_bytes as u32 + terms.header_digest_bytes();
    if common.bytes < header {
        return Err(Fatal::field(4));
    }
    if common.bytes == header {
        return Ok(Frame { padding: 0, data: 0, data_digest: false });
    }
    if common.has(flag::DATA_DIGEST) != terms.data_digest {
        return Err(Fatal::field(1));
    }
    let alignment = if to == To::Controller { CONTROLLER_ALIGNMENT } else { terms.alignment };
    let offset = u32::from(common.data_offset);
    if offset < header || !offset.is_multiple_of(alignment) {
        return Err(Fatal::field(3));
    }
    let digest = if terms.data_digest { DIGEST_BYTES as u32 } else { 0 };
    match common.bytes.checked_sub(offset + digest) {
        None | Some(0) => Err(Fatal::field(4)),
        Some(data) if data > data_max => Err(Fatal { fes: Fes::LimitExceeded, information: 4 }),
        Some(data) => Ok(Frame { padding: offset - header, data, data_digest: terms.data_digest }),
    }
}

/// Checks the common header of a TermReq; the bytes that follow its header.
///
/// # Errors
/// [`Fes::InvalidHeaderField`] with the offset of the field.
pub fn check_term(common: &Common) -> Result<u32, Fatal> {
    if usize::from(common.header_bytes) != DATA_HEADER_BYTES {
        return Err(Fatal::field(2));
    }
    match common.bytes.checked_sub(DATA_HEADER_BYTES as u32) {
        Some(rest) if common.bytes <= TERM_BYTES_MAX as u32 => Ok(rest),
        _ => Err(Fatal::field(4)),
    }
}

/// A PDU as sent: what comes before its data, and what comes after it.
pub struct Encoded {
    /// Header, its digest, padding.
    pub head: Vec<u8>,
    /// The data's digest.
    pub tail: Vec<u8>,
}

/// A PDU of one of the kinds of [`check`] around `data`.
#[must_use]
pub fn encode(kind: u8, flags: u8, specific: &[u8], data: &[Bytes], to: To, terms: &Terms) -> Encoded {
    let mut head = Vec::new();
    write_head(&mut head, kind, flags, specific, data.iter().map(Bytes::len).sum(), to, terms);
    let tail = data_digest(data, terms).map_or_else(Vec::new, |digest| digest.to_vec());
    Encoded { head, tail }
}

/// The same into a message, with its data. Inlined, so that the header's length is known where it is written.
#[inline]
pub(super) fn append(
    message: &mut Message,
    kind: u8,
    flags: u8,
    specific: &[u8],
    data: Vec<Bytes>,
    to: To,
    terms: &Terms,
) {
    write_head(message.pieces(), kind, flags, specific, data.iter().map(Bytes::len).sum(), to, terms);
    let tail = data_digest(&data, terms);
    message.parts(data);
    if let Some(tail) = tail {
        message.pieces().extend_from_slice(&tail);
    }
}

/// What follows data.
fn data_digest(data: &[Bytes], terms: &Terms) -> Option<[u8; DIGEST_BYTES]> {
    (terms.data_digest && data.iter().any(|part| !part.is_empty())).then(|| digest_parts(data).to_le_bytes())
}

/// Appends what comes before `data_bytes` of data.
#[inline]
fn write_head(out: &mut Vec<u8>, kind: u8, flags: u8, specific: &[u8], data_bytes: usize, to: To, terms: &Terms) {
    let begin = out.len();
    let header_bytes = COMMON_BYTES + specific.len();
    let with_digest = header_bytes + terms.header_digest_bytes() as usize;
    let alignment = if to == To::Controller { CONTROLLER_ALIGNMENT } else { terms.alignment } as usize;
    let has_data_digest = terms.data_digest && data_bytes > 0;
    let offset = if data_bytes > 0 { with_digest.next_multiple_of(alignment) } else { 0 };
    let tail_bytes = if has_data_digest { DIGEST_BYTES } else { 0 };
    let mut flags = flags;
    flags |= if terms.header_digest { flag::HEADER_DIGEST } else { 0 };
    flags |= if has_data_digest { flag::DATA_DIGEST } else { 0 };
    let bytes = with_digest.max(offset) + data_bytes + tail_bytes;
    let common =
        Common { kind, flags, header_bytes: header_bytes as u8, data_offset: offset as u8, bytes: bytes as u32 };
    out.extend_from_slice(&common.encode());
    out.extend_from_slice(specific);
    if terms.header_digest {
        let header_digest = digest(&out[begin..]);
        out.extend_from_slice(&header_digest.to_le_bytes());
    }
    if offset > with_digest {
        out.resize(begin + offset, 0);
    }
}

/// An ICReq or an ICResp behind its common header: the same layout with other names.
///
/// ```text
///   8..10 PFV | 10 HPDA or CPDA | 11 digests | 12..16 MAXR2T or MAXH2CDATA | reserved to 128
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Initialize {
    /// PFV: version of the format, 0.
    pub version: u16,
    /// HPDA or CPDA: alignment in units of 4 bytes, from 0 for one.
    pub alignment: u8,
    /// Bit 0: header digests; bit 1: data digests.
    pub digests: u8,
    /// MAXR2T: R2Ts at once, from 0 for one; or MAXH2CDATA: bytes.
    pub limit: u32,
}

/// Where `version` stands.
const VERSION_AT: u32 = 8;
/// Where `alignment` stands.
const ALIGNMENT_AT: u32 = 10;

impl Initialize {
    /// Parses what follows the common header, and checks both.
    ///
    /// # Errors
    /// [`Fes::SequenceError`] for another kind, [`Fes::InvalidHeaderField`] or [`Fes::Unsupported`] with the offset.
    pub fn parse(kind: u8, common: &Common, rest: &[u8; INITIALIZE_BYTES - COMMON_BYTES]) -> Result<Initialize, Fatal> {
        Initialize::check_common(kind, common)?;
        let initialize =
            Initialize { version: u16_at(rest, 0), alignment: rest[2], digests: rest[3], limit: u32_at(rest, 4) };
        if initialize.version != 0 {
            return Err(Fatal { fes: Fes::Unsupported, information: VERSION_AT });
        }
        if initialize.alignment > 31 {
            return Err(Fatal::field(ALIGNMENT_AT));
        }
        Ok(initialize)
    }

    /// The part of `parse` that needs the common header only.
    ///
    /// # Errors
    /// As [`Initialize::parse`].
    pub fn check_common(kind: u8, common: &Common) -> Result<(), Fatal> {
        if common.kind != kind {
            return Err(Fatal::sequence());
        }
        if usize::from(common.header_bytes) != INITIALIZE_BYTES {
            return Err(Fatal::field(2));
        }
        if common.bytes as usize != INITIALIZE_BYTES {
            return Err(Fatal::field(4));
        }
        Ok(())
    }

    /// The whole PDU.
    #[must_use]
    pub fn encode(&self, kind: u8) -> Vec<u8> {
        let common = Common {
            kind,
            flags: 0,
            header_bytes: INITIALIZE_BYTES as u8,
            data_offset: 0,
            bytes: INITIALIZE_BYTES as u32,
        };
        let mut bytes = vec![0; INITIALIZE_BYTES];
        put(&mut bytes, 0, &common.encode());
        put(&mut bytes, 8, &self.version.to_le_bytes());
        put(&mut bytes, 10, &[self.alignment, self.digests]);
        put(&mut bytes, 12, &self.limit.to_le_bytes());
        bytes
    }
}

/// What follows the common header of H2CData, C2HData and R2T.
///
/// ```text
///   8..10 CCCID | 10..12 TTAG | 12..16 DATAO or R2TO | 16..20 DATAL or R2TL | 20..24 reserved
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataHeader {
    /// CCCID: the command's identifier.
    pub command: u16,
    /// TTAG: which R2T.
    pub tag: u16,
    /// Offset in the command's data.
    pub offset: u32,
    /// Length.
    pub length: u32,
}

/// Where `tag` stands in the PDU.
pub const TAG_AT: u32 = 10;
/// Where `offset` stands in the PDU.
pub const OFFSET_AT: u32 = 12;
/// Where `length` stands in the PDU.
pub const LENGTH_AT: u32 = 16;

impl DataHeader {
    /// Parses any bytes.
    #[must_use]
    pub fn parse(rest: &[u8; DATA_HEADER_BYTES - COMMON_BYTES]) -> DataHeader {
        DataHeader { command: u16_at(rest, 0), tag: u16_at(rest, 2), offset: u32_at(rest, 4), length: u32_at(rest, 8) }
    }

    /// The same bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; DATA_HEADER_BYTES - COMMON_BYTES] {
        let mut rest = [0; DATA_HEADER_BYTES - COMMON_BYTES];
        put(&mut rest, 0, &self.command.to_le_bytes());
        put(&mut rest, 2, &self.tag.to_le_bytes());
        put(&mut rest, 4, &self.offset.to_le_bytes());
        put(&mut rest, 8, &self.length.to_le_bytes());
        rest
    }
}

/// A TermReq: `8..10` FES, `10..14` FEI, and from 24 on the header in error.
#[must_use]
pub fn encode_term(kind: u8, fatal: Fatal, header: &[u8]) -> Vec<u8> {
    let header = &header[..header.len().min(TERM_BYTES_MAX - DATA_HEADER_BYTES)];
    let mut bytes = vec![0; DATA_HEADER_BYTES];
    bytes.extend_from_slice(header);
    let common =
        Common { kind, flags: 0, header_bytes: DATA_HEADER_BYTES as u8, data_offset: 0, bytes: bytes.len() as u32 };
    put(&mut bytes, 0, &common.encode());
    put(&mut bytes, 8, &(fatal.fes as u16).to_le_bytes());
    put(&mut bytes, 10, &fatal.information.to_le_bytes());
    bytes
}

/// FES and FEI of what follows the common header of a TermReq.
#[must_use]
pub fn parse_term(rest: &[u8; DATA_HEADER_BYTES - COMMON_BYTES]) -> (u16, u32) {
    (u16_at(rest, 0), u32_at(rest, 2))
}

#[cfg(test)]
#[path = "pdu_tests.rs"]
mod tests;
