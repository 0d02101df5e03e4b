//! The owner mark: which server has the array open, so that another one can see it living. Written every two seconds, beside
//! the slots, in a block that no generation reaches.
//!
//! ```text
//! 0    checksum 4 | magic 4 | version 2 | state 1 | reserved 1 | process 4
//! 16   array 16 | session 16 | taken from 16
//! 64   machine 16 | boot 16
//! 96   started 8 | process namespace 8 | clock namespace 8
//! 120  beat 8 | since 8 | reservation key 8
//! 144  host name 72
//! 216  reserved to 4096
//! ```

use base::{ArrayUuid, BLOCK_BYTES};
use uuid::Uuid;

use crate::FormatError;
use crate::bytes::{Reader, Writer};
use crate::crc::crc32c;

const MAGIC: [u8; 4] = *b"AshO";
const WHAT: &str = "owner mark";

/// The version of owner marks: they may change while everything else on the drives stays as it is.
pub const OWNER_VERSION: u16 = 1;

/// Bytes of the host name's field.
pub const HOST_NAME_BYTES: usize = 72;

/// What the server that wrote it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerState {
    /// It has handed the array over in order.
    Released,
    /// It is about to have the array, and waits whether another one is seen.
    Claimed,
    /// It has the array.
    Held,
}

/// A server's sign of life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerMark {
    /// The array.
    pub array: ArrayUuid,
    /// What the server does.
    pub state: OwnerState,
    /// This open of the array, drawn at random.
    pub session: u128,
    /// The session from which it took the array over by force; 0: from none.
    pub taken_from: u128,
    /// The machine's name.
    pub host: String,
    /// The machine's identity; 0 when it has none.
    pub machine: u128,
    /// The identity of this run of the machine's kernel; 0 when it is not known.
    pub boot: u128,
    /// The server's process.
    pub pid: u32,
    /// When that was started, in the kernel's ticks since its boot.
    pub started: u64,
    /// What its number and its start mean there: the namespaces of processes and of clocks.
    pub namespaces: [u64; 2],
    /// Rises each time the mark is written.
    pub beat: u64,
    /// When the array was opened, in seconds since 1970.
    pub since: u64,
    /// The key by which the drives are reserved; 0: they are not.
    pub key: u64,
}

impl OwnerMark {
    /// The longest beginning of a host name that has room.
    #[must_use]
    pub fn host_from(name: &str) -> String {
        let end = (0..=name.len().min(HOST_NAME_BYTES - 2)).rev().find(|at| name.is_char_boundary(*at)).unwrap_or(0);
        name[..end].to_owned()
    }

    /// The stored form: one block.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.u32(0);
        w.raw(&MAGIC);
        w.u16(OWNER_VERSION);
        w.u8(match self.state {
            OwnerState::Released => 0,
            OwnerState::Claimed => 1,
            OwnerState::Held => 2,
        });
        w.zeros(1);
        w.u32(self.pid);
        w.raw(self.array.0.as_bytes());
        for identity in [self.session, self.taken_from, self.machine, self.boot] {
            w.raw(&identity.to_le_bytes());
        }
        for number in [self.started, self.namespaces[0], self.namespaces[1], self.beat, self.since, self.key] {
            w.u64(number);
        }
        w.text(&self.host, HOST_NAME_BYTES);
        w.zeros(BLOCK_BYTES - w.len());
        let mut block = w.finish();
        let crc = crc32c(&block[4..]);
        block[..4].copy_from_slice(&crc.to_le_bytes());
        block
    }

    /// The mark in `block`.
    ///
    /// # Errors
    /// [`FormatError::Absent`] when there is none, another when it is not whole or not possible.
    pub fn decode(block: &[u8]) -> Result<OwnerMark, FormatError> {
        let block: &[u8; BLOCK_BYTES] = block.try_into().map_err(|_| FormatError::Short(WHAT))?;
        let mut r = Reader::new(WHAT, block);
        let checksum = r.u32()?;
        if r.array()? != MAGIC {
            return Err(FormatError::Absent(WHAT));
        }
        if checksum != crc32c(&block[4..]) {
            return Err(FormatError::Checksum(WHAT));
        }
        let version = r.u16()?;
        if version != OWNER_VERSION {
            return Err(FormatError::Version { what: WHAT, found: version });
        }
        let state = match r.u8()? {
            0 => OwnerState::Released,
            1 => OwnerState::Claimed,
            2 => OwnerState::Held,
            _ => return Err(r.field("state")),
        };
        r.zeros(1, "reserved")?;
        let pid = r.u32()?;
        let array = ArrayUuid(Uuid::from_bytes(r.array()?));
        let mut identity = || r.array().map(u128::from_le_bytes);
        let (session, taken_from, machine, boot) = (identity()?, identity()?, identity()?, identity()?);
        let (started, namespaces) = (r.u64()?, [r.u64()?, r.u64()?]);
        let (beat, since, key) = (r.u64()?, r.u64()?, r.u64()?);
        let host = r.text(HOST_NAME_BYTES, "host name")?;
        r.zeros(r.remaining(), "reserved")?;
        Ok(OwnerMark {
            array,
            state,
            session,
            taken_from,
            host,
            machine,
            boot,
            pid,
            started,
            namespaces,
            beat,
            since,
            key,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_host_names_are_cut() {
        assert_eq!(OwnerMark::host_from("short"), "short");
        assert_eq!(OwnerMark::host_from(&"a".repeat(100)).len(), HOST_NAME_BYTES - 2);
        assert_eq!(OwnerMark::host_from(&"ü".repeat(100)), "ü".repeat(35));
        assert_eq!(OwnerMark::host_from(&format!("a{}", "ü".repeat(100))).len(), 69);
    }
}
