//! Requests of the transmission phase, parsed and judged without doing anything. Sections "WireRequest message", "WireRequest
//! types", "Size constraints", "Error values".
//!
//! Invariants: pure functions; any bytes give a request or nothing, any request a [`Command`] or a [`Refusal`]; a
//! command's range is aligned, not empty, within the export and permitted.

use super::{
    errno::Errno,
    limits::{EXTENTS_MAX, REQUEST_BYTES_MAX},
    wire::{Fields, REQUEST_BYTES, REQUEST_MAGIC, cmd, cmd_flag},
};
use crate::namespace::Request;

/// A request as received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireRequest {
    /// Command flags.
    pub flags: u16,
    /// WireRequest type.
    pub kind: u16,
    /// The client's mark, returned in the reply.
    pub cookie: u64,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u32,
}

impl WireRequest {
    /// Parses a request; nothing when the magic is wrong, after which the stream has no meaning any more.
    #[must_use]
    pub fn parse(bytes: &[u8; REQUEST_BYTES]) -> Option<WireRequest> {
        let mut fields = Fields(bytes);
        if fields.u32()? != REQUEST_MAGIC {
            return None;
        }
        Some(WireRequest {
            flags: fields.u16()?,
            kind: fields.u16()?,
            cookie: fields.u64()?,
            offset: fields.u64()?,
            length: fields.u32()?,
        })
    }

    /// The request as sent.
    #[must_use]
    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        bytes[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.kind.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }

    /// Bytes that follow the request: `CMD_WRITE` alone has a payload.
    #[must_use]
    pub fn payload_bytes(&self) -> u32 {
        if self.kind == cmd::WRITE { self.length } else { 0 }
    }
}

/// What the handshake has agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Length of the export.
    pub bytes: u64,
    /// Unit of addressing.
    pub min_block: u32,
    /// Longest read or write.
    pub max_request: u32,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether structured replies were negotiated.
    pub structured: bool,
    /// Whether `base:allocation` was negotiated.
    pub allocation: bool,
}

/// A good request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// One to the namespace. What a write carries follows: its length is known.
    Io(Request<u32>),
    /// To be answered at once.
    Cache,
    /// The end of the connection.
    Disconnect,
}

impl Command {
    /// Memory that the command needs while it runs.
    #[must_use]
    pub fn payload_bytes(&self) -> u32 {
        match self {
            Command::Io(request) => request.bytes_read() + request.bytes_sent(),
            Command::Cache | Command::Disconnect => 0,
        }
    }
}

/// A request that gets an error and has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The error.
    pub errno: Errno,
    /// What is wrong, for people.
    pub why: &'static str,
}

const fn refuse<T>(errno: Errno, why: &'static str) -> Result<T, Refusal> {
    Err(Refusal { errno, why })
}

/// Judges a request.
///
/// # Errors
/// The error that the reply carries.
pub fn check(request: &WireRequest, terms: &Terms) -> Result<Command, Refusal> {
    check_flags(request, terms)?;
    let WireRequest { offset, length: bytes, .. } = *request;
    let long = u64::from(bytes);
    let fua = request.flags & cmd_flag::FUA != 0;
    match request.kind {
        cmd::DISC => Ok(Command::Disconnect),
        cmd::FLUSH if offset != 0 || bytes != 0 => refuse(Errno::Invalid, "offset and length of a flush are zero"),
        cmd::FLUSH => Ok(Command::Io(Request::Flush)),
        cmd::READ => {
            check_range(request, terms, Errno::Invalid)?;
            check_read_length(bytes, terms)?;
            Ok(Command::Io(Request::Read { offset, bytes }))
        }
        cmd::WRITE => {
            check_writable(terms)?;
            if bytes > max_request(terms) {
                return refuse(Errno::Invalid, "the write is longer than the maximum payload");
            }
            check_range(request, terms, Errno::NoSpace)?;
            Ok(Command::Io(Request::Write { offset, data: bytes, fua }))
        }
        cmd::TRIM => {
            check_writable(terms)?;
            check_range(request, terms, Errno::Invalid)?;
            Ok(Command::Io(Request::Deallocate { offset, bytes: long, fua }))
        }
        cmd::CACHE => check_range(request, terms, Errno::Invalid).map(|()| Command::Cache),
        cmd::WRITE_ZEROES => {
            check_writable(terms)?;
            check_range(request, terms, Errno::NoSpace)?;
            let may_deallocate = request.flags & cmd_flag::NO_HOLE == 0;
            if request.flags & cmd_flag::FAST_ZERO != 0 && !may_deallocate {
                // Without NO_HOLE zeroes are an entry in a map; with it they may be written out.
                return refuse(Errno::NotSup, "zeroes that stay allocated are not faster than a write");
            }
            Ok(Command::Io(Request::WriteZeroes { offset, bytes: long, may_deallocate, fua }))
        }
        cmd::BLOCK_STATUS if !terms.allocation => refuse(Errno::Invalid, "no metadata context was negotiated"),
        cmd::BLOCK_STATUS => {
            check_range(request, terms, Errno::Invalid)?;
            let at_most = if request.flags & cmd_flag::REQ_ONE != 0 { 1 } else { EXTENTS_MAX };
            Ok(Command::Io(Request::Extents { offset, bytes: long, at_most }))
        }
        _ => refuse(Errno::Invalid, "unknown command"),
    }
}

/// "Command flags": FUA on any command; others where they are documented, and negotiated.
fn check_flags(request: &WireRequest, terms: &Terms) -> Result<(), Refusal> {
    let allowed = match request.kind {
        cmd::READ if terms.structured => cmd_flag::DF,
        cmd::WRITE_ZEROES => cmd_flag::NO_HOLE | cmd_flag::FAST_ZERO,
        cmd::BLOCK_STATUS => cmd_flag::REQ_ONE,
        _ => 0,
    };
    if request.flags & !(allowed | cmd_flag::FUA) != 0 {
        return refuse(Errno::Invalid, "the command does not take this flag");
    }
    Ok(())
}

/// "Size constraints", last paragraph; which error a range beyond the end gets differs by command ("Error values").
fn check_range(request: &WireRequest, terms: &Terms, beyond: Errno) -> Result<(), Refusal> {
    let WireRequest { offset, length, .. } = *request;
    let block = u64::from(terms.min_block);
    if length == 0 {
        return refuse(Errno::Invalid, "the length is zero");
    }
    if !offset.is_multiple_of(block) || !u64::from(length).is_multiple_of(block) {
        return refuse(Errno::Invalid, "offset and length are not multiples of the minimum block size");
    }
    match offset.checked_add(u64::from(length)) {
        Some(end) if end <= terms.bytes => Ok(()),
        _ => refuse(beyond, "the range lies beyond the end of the export"),
    }
}

fn check_writable(terms: &Terms) -> Result<(), Refusal> {
    if terms.read_only { refuse(Errno::Perm, "the export is read-only") } else { Ok(()) }
}

/// `CMD_READ`: with structured replies a server is "permitted to reject large read requests up front with EOVERFLOW".
fn check_read_length(bytes: u32, terms: &Terms) -> Result<(), Refusal> {
    if bytes <= max_request(terms) {
        return Ok(());
    }
    let errno = if terms.structured { Errno::Overflow } else { Errno::Invalid };
    refuse(errno, "the read is longer than the maximum payload")
}

fn max_request(terms: &Terms) -> u32 {
    terms.max_request.min(REQUEST_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u32 = 1 << 20;

    fn terms() -> Terms {
        Terms {
            bytes: 64 << 20,
            min_block: 512,
            max_request: 32 << 20,
            read_only: false,
            structured: true,
            allocation: true,
        }
    }

    fn request(kind: u16, flags: u16, offset: u64, length: u32) -> WireRequest {
        WireRequest { flags, kind, cookie: 7, offset, length }
    }

    fn errno(kind: u16, flags: u16, offset: u64, length: u32, terms: &Terms) -> Option<Errno> {
        check(&request(kind, flags, offset, length), terms).err().map(|r| r.errno)
    }

    #[test]
    fn a_request_comes_back() {
        let sent = request(cmd::WRITE, cmd_flag::FUA, u64::MAX, 512);
        assert_eq!(WireRequest::parse(&sent.encode()), Some(sent));
        assert_eq!(WireRequest::parse(&[0; REQUEST_BYTES]), None);
    }

    #[test]
    fn beyond_the_end() {
        let size = terms().bytes;
        for (kind, expected) in [
            (cmd::READ, Errno::Invalid),
            (cmd::WRITE, Errno::NoSpace),
            (cmd::TRIM, Errno::Invalid),
            (cmd::CACHE, Errno::Invalid),
            (cmd::WRITE_ZEROES, Errno::NoSpace),
            (cmd::BLOCK_STATUS, Errno::Invalid),
        ] {
            for (offset, length) in [(size, 512), (size - 512, 1024), (u64::MAX - 511, 512), (u64::MAX - 511, 1024)] {
                assert_eq!(errno(kind, 0, offset, length, &terms()), Some(expected), "{kind} {offset}+{length}");
            }
            assert_eq!(errno(kind, 0, size - 512, 512, &terms()), None, "{kind} of the last block");
        }
    }

    #[test]
    fn misaligned_and_empty() {
        for kind in [cmd::READ, cmd::WRITE, cmd::TRIM, cmd::CACHE, cmd::WRITE_ZEROES, cmd::BLOCK_STATUS] {
            for (offset, length) in [(1, 512), (512, 511), (256, 256), (0, 0)] {
                assert_eq!(errno(kind, 0, offset, length, &terms()), Some(Errno::Invalid), "{kind} {offset}+{length}");
            }
        }
    }

    #[test]
    fn flags_belong_to_commands() {
        let all = [cmd::READ, cmd::WRITE, cmd::TRIM, cmd::CACHE, cmd::WRITE_ZEROES, cmd::BLOCK_STATUS];
        for kind in all {
            assert_eq!(errno(kind, cmd_flag::FUA, 0, 4096, &terms()), None, "FUA is taken by {kind}");
            for bit in 1..16 {
                let good = match kind {
                    cmd::READ => bit == 2,
                    cmd::WRITE_ZEROES => bit == 1 || bit == 4,
                    cmd::BLOCK_STATUS => bit == 3,
                    _ => false,
                };
                let found = errno(kind, 1 << bit, 0, 4096, &terms());
                assert_eq!(found, (!good).then_some(Errno::Invalid), "{kind} with flag bit {bit}");
            }
        }
        let simple = Terms { structured: false, allocation: false, ..terms() };
        assert_eq!(errno(cmd::READ, cmd_flag::DF, 0, 4096, &simple), Some(Errno::Invalid));
        assert_eq!(errno(cmd::BLOCK_STATUS, 0, 0, 4096, &simple), Some(Errno::Invalid));
        assert_eq!(
            errno(cmd::WRITE_ZEROES, cmd_flag::NO_HOLE | cmd_flag::FAST_ZERO, 0, 4096, &terms()),
            Some(Errno::NotSup)
        );
    }

    #[test]
    fn too_long() {
        let large = Terms { bytes: 1 << 40, ..terms() };
        assert_eq!(errno(cmd::READ, 0, 0, 32 * MIB, &large), None);
        assert_eq!(errno(cmd::READ, 0, 0, 33 * MIB, &large), Some(Errno::Overflow));
        assert_eq!(errno(cmd::READ, 0, 0, 33 * MIB, &Terms { structured: false, ..large }), Some(Errno::Invalid));
        assert_eq!(errno(cmd::WRITE, 0, 0, 33 * MIB, &large), Some(Errno::Invalid));
        for kind in [cmd::TRIM, cmd::WRITE_ZEROES, cmd::BLOCK_STATUS, cmd::CACHE] {
            assert_eq!(errno(kind, 0, 0, u32::MAX - 511, &large), None, "{kind} of 4 GiB");
        }
    }

    #[test]
    fn read_only() {
        let terms = Terms { read_only: true, ..terms() };
        for kind in [cmd::WRITE, cmd::TRIM, cmd::WRITE_ZEROES] {
            assert_eq!(errno(kind, 0, 0, 4096, &terms), Some(Errno::Perm));
            assert_eq!(errno(kind, 0, 1 << 50, 4096, &terms), Some(Errno::Perm), "before any other reason");
        }
        for kind in [cmd::READ, cmd::CACHE, cmd::BLOCK_STATUS] {
            assert_eq!(errno(kind, 0, 0, 4096, &terms), None);
        }
        assert_eq!(errno(cmd::FLUSH, 0, 0, 0, &terms), None);
    }

    #[test]
    fn flush_disconnect_and_unknown() {
        assert_eq!(check(&request(cmd::FLUSH, 0, 0, 0), &terms()), Ok(Command::Io(Request::Flush)));
        assert_eq!(errno(cmd::FLUSH, 0, 512, 0, &terms()), Some(Errno::Invalid));
        assert_eq!(check(&request(cmd::DISC, 0, 0, 0), &terms()), Ok(Command::Disconnect));
        for kind in [8, 9, 0x100, u16::MAX] {
            assert_eq!(errno(kind, 0, 0, 4096, &terms()), Some(Errno::Invalid));
        }
    }

    proptest! {
        #[test]
        fn any_request_is_good_or_refused(
            bytes: [u8; REQUEST_BYTES],
            kind in 0..9u16,
            flags: u16,
            offset: u64,
            length: u32,
            size: u64,
            read_only: bool,
            structured: bool,
        ) {
            let _ = WireRequest::parse(&bytes);
            let terms = Terms { bytes: size / 512 * 512, read_only, structured, ..terms() };
            let near = [offset, offset % (size | 1) / 512 * 512, size.wrapping_sub(u64::from(length))];
            for offset in near {
                for (flags, length) in [(flags, length), (flags & 1, length / 512 * 512)] {
                    let Ok(command) = check(&request(kind, flags, offset, length), &terms) else { continue };
                    prop_assert!(command.payload_bytes() <= REQUEST_BYTES_MAX);
                    let Command::Io(request) = command else { continue };
                    let (offset, bytes, writes) = match request {
                        Request::Read { offset, bytes } => (offset, u64::from(bytes), false),
                        Request::Extents { offset, bytes, .. } => (offset, bytes, false),
                        Request::Write { offset, data, .. } => (offset, u64::from(data), true),
                        Request::Deallocate { offset, bytes, .. } => (offset, bytes, true),
                        Request::WriteZeroes { offset, bytes, .. } => (offset, bytes, true),
                        Request::Flush => continue,
                    };
                    prop_assert!(bytes > 0 && offset % 512 == 0 && bytes % 512 == 0);
                    prop_assert!(offset.checked_add(bytes).is_some_and(|end| end <= terms.bytes));
                    prop_assert!(!(writes && read_only));
                }
            }
        }
    }
}
