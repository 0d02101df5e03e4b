//! An NVMe command as Linux takes it for a namespace's character device (`struct nvme_uring_cmd`), and its memory.
//!
//! Invariant: `addr` of the entry is memory that this command owns or shares, on the heap, until the kernel's answer.
//!
//! Not here: which commands there are, and what their statuses mean (`drive::nvme`).

use std::os::fd::OwnedFd;
use std::rc::Rc;

use io_uring::{opcode, squeue};

use super::request::{named, raw};
use crate::{Buf, Bytes};

/// `_IOWR('N', 0x80, struct nvme_uring_cmd)`: one piece of memory.
const URING_CMD_IO: u32 = 0xC048_4E80;
/// The same with 0x81: a vector.
const URING_CMD_IO_VEC: u32 = 0xC048_4E81;

/// What a command says to the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fields {
    pub(crate) opcode: u8,
    pub(crate) namespace: u32,
    /// Dwords 10 to 12; no command here uses later ones.
    pub(crate) dwords: [u32; 3],
}

/// What it moves.
pub(crate) enum Payload {
    None,
    /// The drive fills `len` bytes from `from` on; other commands may fill the rest.
    Into {
        buf: Rc<Buf>,
        from: usize,
        len: usize,
    },
    /// The drive takes the parts in their order.
    From(Vec<Bytes>),
}

/// A command on its way.
pub(crate) struct Command {
    pub(crate) fd: Rc<OwnedFd>,
    pub(crate) fields: Fields,
    pub(crate) payload: Payload,
    vector: Vec<libc::iovec>,
}

impl Command {
    pub(crate) fn new(fd: Rc<OwnedFd>, fields: Fields, payload: Payload) -> Box<Command> {
        Box::new(Command { fd, fields, payload, vector: Vec::new() })
    }

    pub(super) fn entry(&mut self) -> squeue::Entry128 {
        let (operation, addr, len) = match &self.payload {
            Payload::None => (URING_CMD_IO, 0, 0),
            Payload::Into { buf, from, len } => {
                assert!(from + len <= buf.len(), "the drive fills what is there");
                (URING_CMD_IO, buf.memory() as usize + from, *len)
            }
            Payload::From(parts) if parts.len() == 1 => (URING_CMD_IO, parts[0].as_ptr() as usize, parts[0].len()),
            Payload::From(parts) => {
                self.vector.clear();
                self.vector.extend(parts.iter().map(named));
                (URING_CMD_IO_VEC, self.vector.as_ptr() as usize, self.vector.len())
            }
        };
        let len = u32::try_from(len).expect("a drive's largest transfer fits in 32 bits");
        opcode::UringCmd80::new(raw(&self.fd), operation).cmd(encoded(&self.fields, addr as u64, len)).build()
    }
}

/// `struct nvme_uring_cmd`, 72 bytes, and 8 that are not used. The time-out is the kernel's own.
fn encoded(fields: &Fields, addr: u64, len: u32) -> [u8; 80] {
    let mut bytes = [0; 80];
    bytes[0] = fields.opcode;
    bytes[4..8].copy_from_slice(&fields.namespace.to_ne_bytes());
    bytes[24..32].copy_from_slice(&addr.to_ne_bytes());
    bytes[36..40].copy_from_slice(&len.to_ne_bytes());
    for (place, dword) in bytes[40..].chunks_exact_mut(4).zip(fields.dwords) {
        place.copy_from_slice(&dword.to_ne_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_structure() {
        let fields = Fields { opcode: 2, namespace: 7, dwords: [0x1111_1111, 0x2222_2222, 0x3333_3333] };
        let bytes = encoded(&fields, 0x0102_0304_0506_0708, 4096);
        assert_eq!(bytes[0], 2);
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        // nsid, addr, data_len, cdw10, cdw11, cdw12, as linux/nvme_ioctl.h places them.
        assert_eq!((word(4), word(36), word(40), word(44), word(48)), (7, 4096, 0x1111_1111, 0x2222_2222, 0x3333_3333));
        assert_eq!(u64::from_ne_bytes(bytes[24..32].try_into().unwrap()), 0x0102_0304_0506_0708);
        let used = [0..1, 4..8, 24..32, 36..52];
        assert!((0..80).all(|at| used.iter().any(|r| r.contains(&at)) || bytes[at] == 0));
    }
}
