//! I/O commands, judged without doing anything. NVM Command Set 1.0, 3.2.
//!
//! Invariants: pure functions; a [`Command`] is aligned, within the namespace, permitted, and its data as long as its
//! descriptor says and no longer than MDTS.

use super::{
    bytes::{u32_at, u64_at},
    entry::{Sgl, Sqe, io},
    limits::{RANGES_MAX, TRANSFER_BYTES_MAX},
    status::Status,
};
use crate::namespace::{NamespaceInfo, Request};

/// Bits of command dword 12 of Read, Write, Compare and Write Zeroes.
pub mod bit {
    #![allow(missing_docs, reason = "the names of the specification")]
    pub const DEALLOCATE: u32 = 1 << 25;
    pub const PROTECTION: u32 = 0xf << 26;
    pub const FUA: u32 = 1 << 30;
}

/// Bit of command dword 11 of Dataset Management: deallocate.
pub const DATASET_DEALLOCATE: u32 = 1 << 2;

/// Length of one range of Dataset Management.
pub const RANGE_BYTES: u32 = 16;

/// A good command; offsets and lengths in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the command")]
pub enum Command {
    /// A request to the namespace; of a write the length is known.
    Io(Request<u32>),
    Compare {
        offset: u64,
        bytes: u32,
    },
    /// Its ranges are at the beginning of its data, which may be longer.
    Deallocate {
        ranges: u32,
        bytes: u32,
    },
    /// Dataset Management without "deallocate": hints that have no effect.
    Hint {
        ranges: u32,
        bytes: u32,
    },
}

impl Command {
    /// Data that the host sends.
    #[must_use]
    pub fn data_from_host(&self) -> u32 {
        match self {
            Command::Io(request) => request.bytes_sent(),
            Command::Compare { bytes, .. } | Command::Deallocate { bytes, .. } | Command::Hint { bytes, .. } => *bytes,
        }
    }

    /// Whether it may change what the namespace holds.
    #[must_use]
    pub fn changes(&self) -> bool {
        match self {
            Command::Io(Request::Write { .. } | Request::WriteZeroes { .. } | Request::Deallocate { .. })
            | Command::Deallocate { .. } => true,
            Command::Io(Request::Flush | Request::Read { .. } | Request::Extents { .. })
            | Command::Compare { .. }
            | Command::Hint { .. } => false,
        }
    }

    /// Memory for what is read from the namespace.
    #[must_use]
    pub fn data_read(&self) -> u32 {
        match self {
            Command::Io(request) => request.bytes_read(),
            Command::Compare { bytes, .. } => *bytes,
            Command::Deallocate { .. } | Command::Hint { .. } => 0,
        }
    }
}

/// Judges an I/O command for its namespace; `capsule` is the length of the data in its capsule.
///
/// # Errors
/// The status to answer with.
pub fn check(sqe: &Sqe, info: &NamespaceInfo, capsule: u32) -> Result<Command, Status> {
    if sqe.is_fused() {
        return Err(Status::INVALID_FIELD);
    }
    let writes = matches!(sqe.opcode(), io::WRITE | io::WRITE_ZEROES | io::DATASET_MANAGEMENT);
    let command = match sqe.opcode() {
        io::FLUSH => Command::Io(Request::Flush),
        io::READ | io::WRITE | io::COMPARE => transfer(sqe, info)?,
        io::WRITE_ZEROES => write_zeroes(sqe, info)?,
        io::DATASET_MANAGEMENT => {
            let ranges = (sqe.dword(10) & 0xff) + 1;
            // Linux sends room for 256 ranges however many there are.
            let bytes = sqe.sgl()?.bytes().clamp(ranges * RANGE_BYTES, RANGES_MAX * RANGE_BYTES);
            let deallocate = sqe.dword(11) & DATASET_DEALLOCATE != 0;
            if deallocate { Command::Deallocate { ranges, bytes } } else { Command::Hint { ranges, bytes } }
        }
        _ => return Err(Status::INVALID_OPCODE),
    };
    if writes && info.read_only {
        return Err(Status::WRITE_PROTECTED);
    }
    match command.data_from_host() {
        0 if capsule != 0 => return Err(Status::DATA_LENGTH_INVALID),
        0 => {}
        bytes => check_from_host(sqe, bytes, capsule)?,
    }
    if let Command::Io(Request::Read { bytes, .. }) = command {
        check_to_host(sqe, bytes)?;
    }
    Ok(command)
}

/// What a command announces, for whoever does not know its namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announced {
    /// Data that the host will send when it is asked for it.
    pub to_fetch: u32,
    /// Memory for what is read from the namespace.
    pub data_read: u32,
}

/// What a command announces by its descriptor; nothing when it is not like one that [`check`] lets pass.
#[must_use]
pub fn announced(sqe: &Sqe, capsule: u32) -> Announced {
    let (bytes, by_transport) = match sqe.sgl() {
        Ok(Sgl::Transport { bytes }) if bytes <= TRANSFER_BYTES_MAX => (bytes, capsule == 0),
        Ok(Sgl::Capsule { bytes, .. }) if bytes <= TRANSFER_BYTES_MAX => (bytes, false),
        _ => (0, false),
    };
    let from_host = matches!(sqe.opcode(), io::WRITE | io::COMPARE | io::DATASET_MANAGEMENT);
    let reads = matches!(sqe.opcode(), io::READ | io::COMPARE);
    let when = |is: bool| if is { bytes } else { 0 };
    Announced { to_fetch: when(from_host && by_transport), data_read: when(reads) }
}

/// Whether `bytes` of data can come from the host as the descriptor says.
///
/// # Errors
/// The status to answer with.
pub fn check_from_host(sqe: &Sqe, bytes: u32, capsule: u32) -> Result<(), Status> {
    match sqe.sgl()? {
        // ICDOFF is 0.
        Sgl::Capsule { offset, .. } if offset != 0 => Err(Status::SGL_OFFSET_INVALID),
        Sgl::Capsule { bytes: said, .. } if said != bytes || capsule != bytes => Err(Status::DATA_LENGTH_INVALID),
        Sgl::Transport { bytes: said } if said != bytes || capsule != 0 => Err(Status::DATA_LENGTH_INVALID),
        Sgl::Capsule { .. } | Sgl::Transport { .. } => Ok(()),
    }
}

/// Whether `bytes` of data can go to the host as the descriptor says.
///
/// # Errors
/// The status to answer with.
pub fn check_to_host(sqe: &Sqe, bytes: u32) -> Result<(), Status> {
    match sqe.sgl()? {
        Sgl::Capsule { .. } => Err(Status::SGL_TYPE_INVALID),
        Sgl::Transport { bytes: said } if said != bytes => Err(Status::DATA_LENGTH_INVALID),
        Sgl::Transport { .. } => Ok(()),
    }
}

fn transfer(sqe: &Sqe, info: &NamespaceInfo) -> Result<Command, Status> {
    let (offset, bytes) = range(sqe, info)?;
    let fua = sqe.dword(12) & bit::FUA != 0;
    let bytes = u32::try_from(bytes).map_err(|_| Status::INVALID_FIELD)?;
    if bytes > TRANSFER_BYTES_MAX.min(info.max_request) {
        return Err(Status::INVALID_FIELD);
    }
    Ok(match sqe.opcode() {
        io::WRITE => Command::Io(Request::Write { offset, data: bytes, fua }),
        io::COMPARE => Command::Compare { offset, bytes },
        // What is read comes from durable data or from a cache of the same contents: FUA asks for no more.
        _ => Command::Io(Request::Read { offset, bytes }),
    })
}

fn write_zeroes(sqe: &Sqe, info: &NamespaceInfo) -> Result<Command, Status> {
    let (offset, bytes) = range(sqe, info)?;
    let may_deallocate = sqe.dword(12) & bit::DEALLOCATE != 0;
    let fua = sqe.dword(12) & bit::FUA != 0;
    Ok(Command::Io(Request::WriteZeroes { offset, bytes, may_deallocate, fua }))
}

/// Starting LBA and number of blocks (dwords 10 to 12) in bytes.
fn range(sqe: &Sqe, info: &NamespaceInfo) -> Result<(u64, u64), Status> {
    if sqe.dword(12) & bit::PROTECTION != 0 {
        return Err(Status::INVALID_FIELD);
    }
    let blocks = u64::from(sqe.dword(12) & 0xffff) + 1;
    within(info, sqe.qword(10), blocks)
}

fn within(info: &NamespaceInfo, lba: u64, blocks: u64) -> Result<(u64, u64), Status> {
    let block = u64::from(info.min_block);
    match lba.checked_add(blocks) {
        Some(end) if end <= info.bytes / block => Ok((lba * block, blocks * block)),
        _ => Err(Status::LBA_OUT_OF_RANGE),
    }
}

/// The first `count` ranges of the data of a deallocation, in bytes. All are good, or none.
///
/// # Errors
/// The status to answer with.
pub fn ranges(data: &[u8], count: u32, info: &NamespaceInfo) -> Result<Vec<(u64, u64)>, Status> {
    assert!(data.len() <= (RANGES_MAX * RANGE_BYTES) as usize, "checked with the command");
    let one = |range: &[u8]| match u32_at(range, 4) {
        0 => None,
        blocks => Some(within(info, u64_at(range, 8), u64::from(blocks))),
    };
    data.chunks_exact(RANGE_BYTES as usize).take(count as usize).filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Memory, Namespace};

    fn info() -> NamespaceInfo {
        Memory::new("vol", 8 << 20).info()
    }

    fn command(opcode: u8, lba: u64, blocks: u32, sgl: Sgl) -> Sqe {
        Sqe::new(opcode, 1).with_sgl(sgl).with(40, &lba.to_le_bytes()).with_dword(12, blocks - 1)
    }

    fn by_transport(opcode: u8, lba: u64, blocks: u32) -> Sqe {
        command(opcode, lba, blocks, Sgl::Transport { bytes: blocks * 512 })
    }

    #[test]
    fn good_commands() {
        let info = info();
        let fua = |sqe: Sqe| sqe.with_dword(12, sqe.dword(12) | bit::FUA);
        let capsule = Sgl::Capsule { offset: 0, bytes: 1024 };
        for (sqe, in_capsule, expected) in [
            (Sqe::new(io::FLUSH, 1), 0, Command::Io(Request::Flush)),
            (by_transport(io::READ, 2, 3), 0, Command::Io(Request::Read { offset: 1024, bytes: 1536 })),
            (by_transport(io::READ, 0, 2048), 0, Command::Io(Request::Read { offset: 0, bytes: 1 << 20 })),
            (by_transport(io::WRITE, 2, 3), 0, Command::Io(Request::Write { offset: 1024, data: 1536, fua: false })),
            (fua(by_transport(io::WRITE, 0, 1)), 0, Command::Io(Request::Write { offset: 0, data: 512, fua: true })),
            (
                command(io::WRITE, 0, 2, capsule),
                1024,
                Command::Io(Request::Write { offset: 0, data: 1024, fua: false }),
            ),
            (command(io::COMPARE, 0, 2, capsule), 1024, Command::Compare { offset: 0, bytes: 1024 }),
            (
                fua(by_transport(io::WRITE_ZEROES, 0, 16_384)),
                0,
                Command::Io(Request::WriteZeroes { offset: 0, bytes: 8 << 20, may_deallocate: false, fua: true }),
            ),
        ] {
            assert_eq!(check(&sqe, &info, in_capsule), Ok(expected));
        }
        let hint =
            Sqe::new(io::DATASET_MANAGEMENT, 1).with_sgl(Sgl::Capsule { offset: 0, bytes: 32 }).with_dword(10, 1);
        assert_eq!(check(&hint, &info, 32), Ok(Command::Hint { ranges: 2, bytes: 32 }));
        let deallocate = hint.with_dword(11, DATASET_DEALLOCATE);
        assert_eq!(check(&deallocate, &info, 32), Ok(Command::Deallocate { ranges: 2, bytes: 32 }));
        let as_linux = |bytes| deallocate.with_sgl(Sgl::Capsule { offset: 0, bytes });
        assert_eq!(check(&as_linux(4096), &info, 4096), Ok(Command::Deallocate { ranges: 2, bytes: 4096 }));
        for wrong in [16, 4112] {
            assert_eq!(check(&as_linux(wrong), &info, wrong), Err(Status::DATA_LENGTH_INVALID), "{wrong}");
        }
    }

    #[test]
    fn bad_commands() {
        let info = info();
        let capsule = |offset, bytes| Sgl::Capsule { offset, bytes };
        let read = by_transport(io::READ, 0, 1);
        for (name, sqe, in_capsule, expected) in [
            ("an opcode that does not exist", Sqe::new(0x7e, 1), 0, Status::INVALID_OPCODE),
            ("verify", Sqe::new(0x0c, 1), 0, Status::INVALID_OPCODE),
            ("a fused half", read.with(1, &[0x41]), 0, Status::INVALID_FIELD),
            ("protection information", read.with_dword(12, 1 << 29), 0, Status::INVALID_FIELD),
            ("PRPs", read.with(1, &[0]), 0, Status::INVALID_FIELD),
            ("over MDTS", by_transport(io::READ, 0, 2049), 0, Status::INVALID_FIELD),
            ("past the end", by_transport(io::READ, 16_383, 2), 0, Status::LBA_OUT_OF_RANGE),
            ("far past the end", by_transport(io::WRITE, u64::MAX, 1), 0, Status::LBA_OUT_OF_RANGE),
            ("where bytes overflow", by_transport(io::WRITE, 1 << 55, 1), 0, Status::LBA_OUT_OF_RANGE),
            ("zeroes past the end", by_transport(io::WRITE_ZEROES, 1, 16_384), 0, Status::LBA_OUT_OF_RANGE),
            ("too short a descriptor", by_transport(io::READ, 0, 1).with(32, &[0, 1]), 0, Status::DATA_LENGTH_INVALID),
            ("a read into the capsule", command(io::READ, 0, 1, capsule(0, 512)), 0, Status::SGL_TYPE_INVALID),
            ("an offset in the capsule", command(io::WRITE, 0, 1, capsule(512, 512)), 512, Status::SGL_OFFSET_INVALID),
            ("less in the capsule", command(io::WRITE, 0, 2, capsule(0, 1024)), 512, Status::DATA_LENGTH_INVALID),
            ("more in the capsule", command(io::WRITE, 0, 1, capsule(0, 512)), 1024, Status::DATA_LENGTH_INVALID),
            ("nothing in the capsule", command(io::WRITE, 0, 1, capsule(0, 512)), 0, Status::DATA_LENGTH_INVALID),
            ("both", by_transport(io::WRITE, 0, 1), 512, Status::DATA_LENGTH_INVALID),
            ("data of a flush", Sqe::new(io::FLUSH, 1), 512, Status::DATA_LENGTH_INVALID),
            ("data of a read", by_transport(io::READ, 0, 1), 512, Status::DATA_LENGTH_INVALID),
            ("data of zeroes", by_transport(io::WRITE_ZEROES, 0, 1), 512, Status::DATA_LENGTH_INVALID),
        ] {
            assert_eq!(check(&sqe, &info, in_capsule), Err(expected), "{name}");
        }
        let read_only = NamespaceInfo { read_only: true, ..info };
        assert_eq!(check(&by_transport(io::WRITE, 0, 1), &read_only, 0), Err(Status::WRITE_PROTECTED));
        assert!(check(&by_transport(io::READ, 0, 1), &read_only, 0).is_ok());
    }

    #[test]
    fn ranges_are_all_good_or_none() {
        let range = |lba: u64, blocks: u32| [&[0; 4][..], &blocks.to_le_bytes(), &lba.to_le_bytes()].concat();
        let good = [range(8, 8), range(0, 0), range(0, 16_384)].concat();
        assert_eq!(ranges(&good, 3, &info()), Ok(vec![(4096, 4096), (0, 8 << 20)]));
        assert_eq!(ranges(&good, 2, &info()), Ok(vec![(4096, 4096)]), "the rest is none");
        let bad = [range(8, 8), range(1, 16_384)].concat();
        assert_eq!(ranges(&bad, 2, &info()), Err(Status::LBA_OUT_OF_RANGE));
    }

    proptest! {
        #[test]
        fn any_command_is_good_or_refused(bytes: [u8; 32], more: [u8; 32], opcode in 0u8..12, capsule in 0u32..9000) {
            let mut all = [0; 64];
            all[..32].copy_from_slice(&bytes);
            all[32..].copy_from_slice(&more);
            all[0] = opcode;
            let info = info();
            if let Ok(request) = check(&Sqe(all), &info, capsule) {
                prop_assert!(request.data_from_host() <= TRANSFER_BYTES_MAX);
                prop_assert!(capsule == 0 || capsule == request.data_from_host());
                let announced = announced(&Sqe(all), capsule);
                prop_assert_eq!(announced.data_read, request.data_read());
                prop_assert_eq!(announced.to_fetch, if capsule == 0 { request.data_from_host() } else { 0 });
                if let Command::Io(Request::Write { offset, data: bytes, .. } | Request::Read { offset, bytes }) = request {
                    prop_assert!(offset + u64::from(bytes) <= info.bytes && bytes % 512 == 0 && offset % 512 == 0);
                }
            }
        }
    }
}
