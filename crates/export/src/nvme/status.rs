//! Status codes, and the one table from a fault to its status. NVMe Base 2.0, 3.3.3.2.1 "Status Field"; NVM Command Set
//! 1.0, 3.1 "Status values".

use std::fmt;

use crate::namespace::Fault;

/// The status of a command: bits 14:0 of the status field, without the phase tag.
///
/// ```text
///   14 DNR | 13 more | 12:11 CRD | 10:8 status code type | 7:0 status code
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(pub u16);

const GENERIC: u16 = 0 << 8;
const SPECIFIC: u16 = 1 << 8;
const MEDIA: u16 = 2 << 8;
const DNR: u16 = 1 << 14;

#[allow(missing_docs, reason = "the names of the specification")]
impl Status {
    pub const SUCCESS: Status = Status(0);
    pub const INVALID_OPCODE: Status = Status(GENERIC | 0x01 | DNR);
    pub const INVALID_FIELD: Status = Status(GENERIC | 0x02 | DNR);
    pub const INTERNAL_ERROR: Status = Status(GENERIC | 0x06);
    pub const ABORT_REQUESTED: Status = Status(GENERIC | 0x07 | DNR);
    pub const INVALID_NAMESPACE: Status = Status(GENERIC | 0x0b | DNR);
    pub const SEQUENCE_ERROR: Status = Status(GENERIC | 0x0c | DNR);
    pub const DATA_LENGTH_INVALID: Status = Status(GENERIC | 0x0f | DNR);
    pub const SGL_TYPE_INVALID: Status = Status(GENERIC | 0x11 | DNR);
    pub const SGL_OFFSET_INVALID: Status = Status(GENERIC | 0x16 | DNR);
    pub const WRITE_PROTECTED: Status = Status(GENERIC | 0x20 | DNR);
    pub const TRANSPORT_ERROR: Status = Status(GENERIC | 0x22);
    pub const LBA_OUT_OF_RANGE: Status = Status(GENERIC | 0x80 | DNR);
    pub const CAPACITY_EXCEEDED: Status = Status(GENERIC | 0x81 | DNR);
    pub const NAMESPACE_NOT_READY: Status = Status(GENERIC | 0x82);

    pub const EVENT_LIMIT_EXCEEDED: Status = Status(SPECIFIC | 0x05 | DNR);
    pub const INVALID_LOG_PAGE: Status = Status(SPECIFIC | 0x09 | DNR);
    pub const FEATURE_NOT_CHANGEABLE: Status = Status(SPECIFIC | 0x0e | DNR);
    pub const CONNECT_INCOMPATIBLE_FORMAT: Status = Status(SPECIFIC | 0x80 | DNR);
    pub const CONNECT_CONTROLLER_BUSY: Status = Status(SPECIFIC | 0x81);
    pub const CONNECT_INVALID_PARAMETERS: Status = Status(SPECIFIC | 0x82 | DNR);
    pub const CONNECT_INVALID_HOST: Status = Status(SPECIFIC | 0x84 | DNR);

    pub const WRITE_FAULT: Status = Status(MEDIA | 0x80);
    pub const UNRECOVERED_READ: Status = Status(MEDIA | 0x81);
    pub const COMPARE_FAILURE: Status = Status(MEDIA | 0x85 | DNR);

    /// Whether the command succeeded.
    #[must_use]
    pub fn is_success(self) -> bool {
        self == Status::SUCCESS
    }

    /// Without "do not retry": what is wrong may pass.
    #[must_use]
    pub fn retryable(self) -> Status {
        Status(self.0 & !DNR)
    }

    /// The table for commands that read.
    #[must_use]
    pub fn of_read(fault: Fault) -> Status {
        match fault {
            Fault::Medium => Status::UNRECOVERED_READ,
            other => Status::common(other),
        }
    }

    /// The table for commands that change something.
    #[must_use]
    pub fn of_write(fault: Fault) -> Status {
        match fault {
            Fault::Medium => Status::WRITE_FAULT,
            other => Status::common(other),
        }
    }

    fn common(fault: Fault) -> Status {
        match fault {
            Fault::Medium => Status::INTERNAL_ERROR,
            Fault::NoSpace => Status::CAPACITY_EXCEEDED,
            Fault::ReadOnly => Status::WRITE_PROTECTED,
            Fault::OutOfRange => Status::LBA_OUT_OF_RANGE,
            Fault::Misaligned => Status::INVALID_FIELD,
            // A frozen array may come back, so a host may try again.
            Fault::Unavailable => Status::NAMESPACE_NOT_READY,
            Fault::Gone => Status::INVALID_NAMESPACE,
        }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let retry = if self.0 & DNR == 0 { "" } else { " do not retry" };
        write!(f, "type {} code {:#04x}{retry}", self.0 >> 8 & 7, self.0 & 0xff)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
