//! Submission and completion queue entries. NVMe Base 2.0, 3.3.3.1 and 3.3.3.2; for Fabrics commands section 6.
//!
//! Invariant: every 64 bytes are an entry; what its fields mean is checked where they are used.

use super::{
    bytes::{array_at, put, u16_at, u32_at, u64_at},
    status::Status,
};

/// Opcodes of admin commands. 5, "Opcodes for Admin Commands".
pub mod admin {
    #![allow(missing_docs, reason = "the names of the specification")]
    pub const GET_LOG_PAGE: u8 = 0x02;
    pub const IDENTIFY: u8 = 0x06;
    pub const ABORT: u8 = 0x08;
    pub const SET_FEATURES: u8 = 0x09;
    pub const GET_FEATURES: u8 = 0x0a;
    pub const ASYNC_EVENT_REQUEST: u8 = 0x0c;
    pub const KEEP_ALIVE: u8 = 0x18;
}

/// Opcodes of I/O commands. NVM Command Set 1.0, 3.2.
pub mod io {
    #![allow(missing_docs, reason = "the names of the specification")]
    pub const FLUSH: u8 = 0x00;
    pub const WRITE: u8 = 0x01;
    pub const READ: u8 = 0x02;
    pub const COMPARE: u8 = 0x05;
    pub const WRITE_ZEROES: u8 = 0x08;
    pub const DATASET_MANAGEMENT: u8 = 0x09;
}

/// Fabrics commands. 6, "Fabrics Command Types".
pub mod fabrics {
    #![allow(missing_docs, reason = "the names of the specification")]
    pub const OPCODE: u8 = 0x7f;
    pub const PROPERTY_SET: u8 = 0x00;
    pub const CONNECT: u8 = 0x01;
    pub const PROPERTY_GET: u8 = 0x04;
    pub const DISCONNECT: u8 = 0x08;
}

/// A namespace identifier that means all.
pub const NSID_ALL: u32 = u32::MAX;

/// A submission queue entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sqe(pub [u8; 64]);

/// Where a command's data is: SGL descriptor 1, bytes 39:24. 4.1.2, "SGL Descriptor"; the types that the transport
/// allows: NVMe/TCP 1.0, "SGL Support".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sgl {
    /// In the capsule, at this offset of its data.
    Capsule {
        /// Offset.
        offset: u64,
        /// Length.
        bytes: u32,
    },
    /// By R2T and H2CData, or by C2HData.
    Transport {
        /// Length.
        bytes: u32,
    },
}

impl Sgl {
    /// Length of the data.
    #[must_use]
    pub fn bytes(&self) -> u32 {
        match *self {
            Sgl::Capsule { bytes, .. } | Sgl::Transport { bytes } => bytes,
        }
    }
}

/// Data block at an offset.
const SGL_CAPSULE: u8 = 0x01;
/// Transport data block.
const SGL_TRANSPORT: u8 = 0x5a;

impl Sqe {
    /// An entry of zeroes but for opcode, flags and identifier; an SGL is used (PSDT 01b).
    #[must_use]
    pub fn new(opcode: u8, command: u16) -> Sqe {
        let mut bytes = [0; 64];
        bytes[0] = opcode;
        bytes[1] = 0x40;
        put(&mut bytes, 2, &command.to_le_bytes());
        Sqe(bytes)
    }

    /// Byte 0.
    #[must_use]
    pub fn opcode(&self) -> u8 {
        self.0[0]
    }

    /// Bits 9:8: whether it is half of a fused operation.
    #[must_use]
    pub fn is_fused(&self) -> bool {
        self.0[1] & 3 != 0
    }

    /// Bits 15:14 (PSDT): whether SGLs are used, which they must in Fabrics.
    #[must_use]
    pub fn uses_sgl(&self) -> bool {
        matches!(self.0[1] >> 6, 1 | 2)
    }

    /// Bytes 3:2.
    #[must_use]
    pub fn command(&self) -> u16 {
        u16_at(&self.0, 2)
    }

    /// Byte 4: the type of a Fabrics command.
    #[must_use]
    pub fn fabrics_type(&self) -> u8 {
        self.0[4]
    }

    /// Bytes 7:4.
    #[must_use]
    pub fn nsid(&self) -> u32 {
        u32_at(&self.0, 4)
    }

    /// Command dword `n`, as the specification counts them.
    #[must_use]
    pub fn dword(&self, n: usize) -> u32 {
        u32_at(&self.0, n * 4)
    }

    /// Command dwords `n` and `n + 1`.
    #[must_use]
    pub fn qword(&self, n: usize) -> u64 {
        u64_at(&self.0, n * 4)
    }

    /// Puts a field at a byte.
    #[must_use]
    pub fn with(mut self, at: usize, field: &[u8]) -> Sqe {
        put(&mut self.0, at, field);
        self
    }

    /// Puts a command dword.
    #[must_use]
    pub fn with_dword(self, n: usize, value: u32) -> Sqe {
        self.with(n * 4, &value.to_le_bytes())
    }

    /// Where the data is.
    ///
    /// # Errors
    /// PRPs, and descriptor types that are not the transport's.
    pub fn sgl(&self) -> Result<Sgl, Status> {
        if !self.uses_sgl() {
            return Err(Status::INVALID_FIELD);
        }
        let bytes = u32_at(&self.0, 32);
        match self.0[39] {
            SGL_CAPSULE => Ok(Sgl::Capsule { offset: u64_at(&self.0, 24), bytes }),
            SGL_TRANSPORT => Ok(Sgl::Transport { bytes }),
            _ => Err(Status::SGL_TYPE_INVALID),
        }
    }

    /// Puts the descriptor.
    #[must_use]
    pub fn with_sgl(self, sgl: Sgl) -> Sqe {
        let (kind, offset, bytes) = match sgl {
            Sgl::Capsule { offset, bytes } => (SGL_CAPSULE, offset, bytes),
            Sgl::Transport { bytes } => (SGL_TRANSPORT, 0, bytes),
        };
        self.with(24, &offset.to_le_bytes()).with(32, &bytes.to_le_bytes()).with(36, &[0, 0, 0, kind])
    }
}

/// A completion queue entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cqe {
    /// Bytes 7:0: what the command returns.
    pub result: u64,
    /// Bytes 9:8: how far the submission queue has been taken; reserved without flow control.
    pub head: u16,
    /// Bytes 13:12.
    pub command: u16,
    /// Bits 15:1 of bytes 15:14; the phase tag is not used in Fabrics.
    pub status: Status,
}

impl Cqe {
    /// Parses any 16 bytes.
    #[must_use]
    pub fn parse(bytes: &[u8; 16]) -> Cqe {
        Cqe {
            result: u64_at(bytes, 0),
            head: u16_at(bytes, 8),
            command: u16_at(bytes, 12),
            status: Status(u16_at(bytes, 14) >> 1),
        }
    }

    /// The entry as sent. Bytes 11:10 (SQID) are reserved in Fabrics.
    #[must_use]
    pub fn encode(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        put(&mut bytes, 0, &self.result.to_le_bytes());
        put(&mut bytes, 8, &self.head.to_le_bytes());
        put(&mut bytes, 12, &self.command.to_le_bytes());
        put(&mut bytes, 14, &(self.status.0 << 1).to_le_bytes());
        bytes
    }
}

/// The data of a Connect command. 6.3, "Connect Command - Data".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectData {
    /// Bytes 15:0.
    pub host_id: [u8; 16],
    /// Bytes 17:16: which controller; FFFFh for a new one.
    pub controller: u16,
    /// Bytes 511:256.
    pub subsystem: String,
    /// Bytes 767:512.
    pub host: String,
}

/// Length of the data of a Connect command.
pub const CONNECT_DATA_BYTES: usize = 1024;

/// A new controller is asked for: the dynamic controller model.
pub const CONTROLLER_ANY: u16 = 0xffff;

/// Where in the data of a Connect command fields stand, for the errors that name them.
pub mod connect_at {
    #![allow(missing_docs, reason = "the names of the specification")]
    pub const CONTROLLER: u32 = 16;
    pub const SUBSYSTEM: u32 = 256;
    pub const HOST: u32 = 512;
}

impl ConnectData {
    /// Parses the data. A host may have no name: whether it may then use anything is its subsystem's to say.
    ///
    /// # Errors
    /// The place of a name that is none.
    pub fn parse(bytes: &[u8; CONNECT_DATA_BYTES]) -> Result<ConnectData, u32> {
        let name = |at: u32| nqn_at(bytes, at as usize).map(str::to_owned).ok_or(at);
        Ok(ConnectData {
            host_id: array_at(bytes, 0),
            controller: u16_at(bytes, connect_at::CONTROLLER as usize),
            subsystem: name(connect_at::SUBSYSTEM)?,
            host: if bytes[connect_at::HOST as usize] == 0 { String::new() } else { name(connect_at::HOST)? },
        })
    }

    /// The data as sent.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; CONNECT_DATA_BYTES];
        put(&mut bytes, 0, &self.host_id);
        put(&mut bytes, connect_at::CONTROLLER as usize, &self.controller.to_le_bytes());
        super::bytes::put_text(&mut bytes, connect_at::SUBSYSTEM as usize, 256, &self.subsystem, 0);
        super::bytes::put_text(&mut bytes, connect_at::HOST as usize, 256, &self.host, 0);
        bytes
    }
}

/// A qualified name in a field of 256 bytes: at most 223 bytes and a NUL. 4.5, "NVMe Qualified Names".
fn nqn_at(bytes: &[u8], at: usize) -> Option<&str> {
    super::bytes::text_at(bytes, at, 224).filter(|name| is_nqn(name))
}

/// Whether a name has the form of a qualified name: "nqn.", and at most 223 bytes that can be printed.
#[must_use]
pub fn is_nqn(name: &str) -> bool {
    name.starts_with("nqn.") && name.len() > 4 && name.len() <= 223 && name.chars().all(|c| !c.is_control())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn fields_are_where_the_specification_puts_them() {
        let sqe = Sqe::new(io::READ, 0x1234)
            .with_dword(1, 7)
            .with_sgl(Sgl::Transport { bytes: 4096 })
            .with_dword(10, 0xaabb_ccdd)
            .with_dword(11, 1);
        assert_eq!(sqe.0[..8], [2, 0x40, 0x34, 0x12, 7, 0, 0, 0]);
        assert_eq!(sqe.0[32..40], [0, 0x10, 0, 0, 0, 0, 0, 0x5a]);
        assert_eq!((sqe.qword(10), sqe.nsid(), sqe.command()), (0x1_aabb_ccdd, 7, 0x1234));
        let cqe = Cqe { result: 5, head: 3, command: 0x1234, status: Status::INVALID_FIELD };
        assert_eq!(cqe.encode(), [5, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0x34, 0x12, 4, 0x80]);
        assert_eq!(Cqe::parse(&cqe.encode()), cqe);
    }

    #[test]
    fn descriptors_of_other_transports_are_refused() {
        let sqe = Sqe::new(io::READ, 1);
        for sgl in [Sgl::Capsule { offset: 8, bytes: 512 }, Sgl::Transport { bytes: 512 }] {
            assert_eq!(sqe.with_sgl(sgl).sgl(), Ok(sgl));
        }
        for kind in [0x00, 0x10, 0x40, 0x4f, 0x5b, 0xff] {
            assert_eq!(sqe.with(39, &[kind]).sgl(), Err(Status::SGL_TYPE_INVALID), "{kind:#x}");
        }
        assert_eq!(sqe.with_sgl(Sgl::Transport { bytes: 512 }).with(1, &[0]).sgl(), Err(Status::INVALID_FIELD));
    }

    #[test]
    fn names_are_checked() {
        let data = ConnectData {
            host_id: [3; 16],
            controller: CONTROLLER_ANY,
            subsystem: "nqn.2014-08.org.nvmexpress.discovery".to_owned(),
            host: format!("nqn.{}", "h".repeat(219)),
        };
        let bytes = data.encode();
        let parse = |bytes: &[u8]| ConnectData::parse(bytes.try_into().unwrap());
        assert_eq!(parse(&bytes), Ok(data.clone()));
        let nameless = ConnectData { host: String::new(), ..data };
        assert_eq!(parse(&nameless.encode()), Ok(nameless));
        for (at, value, expected) in
            [(256, b'x', 256), (256, 0, 256), (512, b'x', 512), (519, 0xff, 512), (735, b'x', 512)]
        {
            let mut wrong = bytes.clone();
            wrong[at] = value;
            assert_eq!(parse(&wrong), Err(expected), "byte {at}");
        }
        for (name, good) in [("nqn.a", true), ("nqn.", false), ("iqn.a", false), ("", false), ("nqn.a\n", false)] {
            assert_eq!(is_nqn(name), good, "{name:?}");
        }
    }

    proptest! {
        #[test]
        fn any_entry_is_taken(bytes: [u8; 32], more: [u8; 32], cqe: [u8; 16]) {
            let mut all = [0; 64];
            all[..32].copy_from_slice(&bytes);
            all[32..].copy_from_slice(&more);
            let _ = Sqe(all).sgl();
            let _ = Cqe::parse(&cqe);
        }
    }
}
