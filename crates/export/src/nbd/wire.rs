//! The protocol's numbers, and big-endian fields taken from the front of a slice.
//!
//! Names are the protocol's without `NBD_`. Sections "Handshake", "Transmission" and "Values" of proto.md.

/// "NBDMAGIC", the first word of a server. "Newstyle negotiation".
pub const INIT_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// "IHAVEOPT", the second word of a server and the first of each option.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// First word of an option reply. "Fixed newstyle negotiation".
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// First word of a request. "Request message".
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// First word of a simple reply. "Simple reply message".
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// First word of a structured reply chunk. "Structured reply chunk message".
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Length of an option's header: magic, option, length.
pub const OPTION_HEADER_BYTES: usize = 16;
/// Length of an option reply's header: magic, option, reply, length.
pub const OPTION_REPLY_HEADER_BYTES: usize = 20;
/// Length of a request: magic, flags, type, cookie, offset, length.
pub const REQUEST_BYTES: usize = 28;
/// Length of a simple reply: magic, error, cookie.
pub const SIMPLE_REPLY_BYTES: usize = 16;
/// Length of a structured reply chunk's header: magic, flags, type, cookie, length.
pub const CHUNK_HEADER_BYTES: usize = 20;
/// Zeroes after the answer to `OPT_EXPORT_NAME`. "Newstyle negotiation".
pub const EXPORT_NAME_ZEROES: usize = 124;
/// Longest string. "Conventions".
pub const STRING_BYTES_MAX: usize = 4096;

/// "Handshake flags" and "Client flags": the same bits both ways.
pub const FLAG_FIXED_NEWSTYLE: u16 = 1 << 0;
/// No zeroes after `OPT_EXPORT_NAME`.
pub const FLAG_NO_ZEROES: u16 = 1 << 1;

/// "Option types".
pub mod opt {
    #![allow(missing_docs, reason = "the protocol's names")]
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const STARTTLS: u32 = 5;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
    pub const LIST_META_CONTEXT: u32 = 9;
    pub const SET_META_CONTEXT: u32 = 10;
    pub const EXTENDED_HEADERS: u32 = 11;
}

/// "Option reply types".
pub mod rep {
    #![allow(missing_docs, reason = "the protocol's names")]
    pub const ACK: u32 = 1;
    pub const SERVER: u32 = 2;
    pub const INFO: u32 = 3;
    pub const META_CONTEXT: u32 = 4;
    pub const ERR_BIT: u32 = 1 << 31;
    pub const ERR_UNSUP: u32 = ERR_BIT | 1;
    pub const ERR_POLICY: u32 = ERR_BIT | 2;
    pub const ERR_INVALID: u32 = ERR_BIT | 3;
    pub const ERR_UNKNOWN: u32 = ERR_BIT | 6;
    pub const ERR_SHUTDOWN: u32 = ERR_BIT | 7;
    pub const ERR_TOO_BIG: u32 = ERR_BIT | 9;
}

/// Information types of `REP_INFO`. "Option reply types".
pub mod info {
    #![allow(missing_docs, reason = "the protocol's names")]
    pub const EXPORT: u16 = 0;
    pub const NAME: u16 = 1;
    pub const DESCRIPTION: u16 = 2;
    pub const BLOCK_SIZE: u16 = 3;
}

/// "Transmission flags".
pub mod transmission {
    #![allow(missing_docs, reason = "the protocol's names")]
    pub const HAS_FLAGS: u16 = 1 << 0;
    pub const READ_ONLY: u16 = 1 << 1;
    pub const SEND_FLUSH: u16 = 1 << 2;
    pub const SEND_FUA: u16 = 1 << 3;
    pub const SEND_TRIM: u16 = 1 << 5;
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub const SEND_DF: u16 = 1 << 7;
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    pub const SEND_CACHE: u16 = 1 << 10;
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// "Request types".
pub mod cmd {
    #![allow(missing_docs, reason = "the protocol's names")]
    pub const READ: u16 = 0;
    pub const WRITE: u16 = 1;
    pub const DISC: u16 = 2;
    pub const FLUSH: u16 = 3;
    pub const TRIM: u16 = 4;
    pub const CACHE: u16 = 5;
    pub const WRITE_ZEROES: u16 = 6;
    pub const BLOCK_STATUS: u16 = 7;
}

/// "Command flags".
pub mod cmd_flag {
    #![allow(missing_docs, reason = "the protocol's names")]
    pub const FUA: u16 = 1 << 0;
    pub const NO_HOLE: u16 = 1 << 1;
    pub const DF: u16 = 1 << 2;
    pub const REQ_ONE: u16 = 1 << 3;
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// "Structured reply flags" and "Structured reply types".
pub mod chunk {
    #![allow(missing_docs, reason = "the protocol's names")]
    pub const FLAG_DONE: u16 = 1 << 0;
    pub const NONE: u16 = 0;
    pub const OFFSET_DATA: u16 = 1;
    pub const OFFSET_HOLE: u16 = 2;
    pub const BLOCK_STATUS: u16 = 5;
    pub const ERROR_BIT: u16 = 1 << 15;
    pub const ERROR: u16 = ERROR_BIT | 1;
    pub const ERROR_OFFSET: u16 = ERROR_BIT | 2;
}

/// Flags of `base:allocation`. "`base:allocation` metadata context".
pub mod state {
    #![allow(missing_docs, reason = "the protocol's names")]
    pub const HOLE: u32 = 1 << 0;
    pub const ZERO: u32 = 1 << 1;
}

/// The metadata context that we know.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// All of its namespace, in `OPT_LIST_META_CONTEXT`.
pub const BASE_WILDCARD: &str = "base:";

/// What is left of a message; each method takes a field from its front, or nothing when it is too short.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    /// The next `n` bytes.
    pub fn bytes(&mut self, n: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(front)
    }

    /// The next two bytes.
    pub fn u16(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.bytes(2)?.try_into().ok()?))
    }

    /// The next four bytes.
    pub fn u32(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.bytes(4)?.try_into().ok()?))
    }

    /// The next eight bytes.
    pub fn u64(&mut self) -> Option<u64> {
        Some(u64::from_be_bytes(self.bytes(8)?.try_into().ok()?))
    }

    /// A 32-bit length and a string of that length. "Conventions": UTF-8 without NUL, at most 4096 bytes.
    pub fn string(&mut self) -> Option<&'a str> {
        let n = self.u32()? as usize;
        string(self.bytes(n)?)
    }

    /// Whether nothing is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The bytes as a string of the protocol. "Conventions".
#[must_use]
pub fn string(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    (text.len() <= STRING_BYTES_MAX && !text.contains('\0')).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_end_where_the_message_ends() {
        let mut fields = Fields(&[0, 1, 0, 0, 0, 2, b'o', b'k', 9]);
        assert_eq!(fields.u16(), Some(1));
        assert_eq!(fields.string(), Some("ok"));
        assert_eq!(fields.u16(), None);
        assert_eq!(fields.bytes(1), Some(&[9][..]));
        assert!(fields.is_empty());
    }

    #[test]
    fn strings_are_utf8_without_nul_and_short() {
        assert_eq!(string("wüste".as_bytes()), Some("wüste"));
        assert_eq!(string(b"a\0b"), None);
        assert_eq!(string(&[0xff]), None);
        assert_eq!(string(&[b'a'; STRING_BYTES_MAX + 1]), None);
    }
}
