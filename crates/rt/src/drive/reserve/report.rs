//! Looking at reservations: NVMe's Reservation Report, SCSI's PERSISTENT RESERVE IN, sent as commands, because older kernels
//! have no call for it.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::raw::c_void;

use super::super::nvme::{IoctlCommand, namespace_id};
use super::{IoError, ReserveError, Reserved};

/// Room for the answer: 60 registered hosts and more.
const ANSWER_BYTES: usize = 4096;
/// What a command may take.
const TIMEOUT_MS: u32 = 10_000;

pub(super) fn look(fd: &OwnedFd) -> Result<Reserved, ReserveError> {
    match namespace_id(fd) {
        Ok(namespace) => of_nvme(fd, namespace),
        Err(_) => of_scsi(fd),
    }
}

/// `_IOWR('N', 0x43, struct nvme_passthru_cmd)`: an I/O command.
const NVME_IO: libc::c_ulong = 0xC048_4E43;
const RESERVATION_REPORT: u8 = 0x0e;
/// Dword 11: entries with host identifiers of 128 bits.
const EXTENDED: u32 = 1;

fn of_nvme(fd: &OwnedFd, namespace: u32) -> Result<Reserved, ReserveError> {
    let mut said = 0;
    for extended in [EXTENDED, 0] {
        let mut data = Box::new([0u8; ANSWER_BYTES]);
        let mut command = IoctlCommand {
            opcode: RESERVATION_REPORT,
            namespace,
            addr: data.as_mut_ptr() as u64,
            data_len: ANSWER_BYTES as u32,
            dwords_10_15: [ANSWER_BYTES as u32 / 4 - 1, extended, 0, 0, 0, 0],
            timeout_ms: TIMEOUT_MS,
            ..IoctlCommand::default()
        };
        // SAFETY: the kernel reads and writes the command, and fills `data_len` bytes at `addr`; both outlive the call.
        said = unsafe { libc::ioctl(fd.as_raw_fd(), NVME_IO, (&raw mut command).cast::<c_void>()) };
        if said == 0 {
            return Ok(parse_nvme(&data[..], extended == EXTENDED));
        }
    }
    Err(match said {
        1.. => ReserveError::Unable(format!("NVMe status {said:#x}")),
        _ => refused(&std::io::Error::last_os_error()),
    })
}

/// The Reservation Status data structure: NVMe Base 2.0, 7.8, figures 486 and 487.
fn parse_nvme(data: &[u8], extended: bool) -> Reserved {
    let (from, step, key_at) = if extended { (64, 64, 8) } else { (24, 24, 16) };
    let kind = data[4];
    let count = usize::from(u16::from_le_bytes([data[5], data[6]]));
    let mut reserved = Reserved::default();
    for entry in data[from..].chunks_exact(step).take(count) {
        let key = u64::from_le_bytes(entry[key_at..key_at + 8].try_into().expect("eight bytes"));
        reserved.keys.push(key);
        if kind != 0 && entry[2] & 1 == 1 {
            reserved.holder = Some(key);
        }
    }
    reserved
}

const SG_IO: libc::c_ulong = 0x2285;
const PERSISTENT_RESERVE_IN: u8 = 0x5e;
const READ_KEYS: u8 = 0;
const READ_RESERVATION: u8 = 1;
const FROM_DEVICE: i32 = -3;
/// How often a command is sent that is told of something else (a unit attention).
const TRIES: u32 = 4;
const CHECK_CONDITION: u8 = 0x02;
/// Sense key: an illegal request.
const ILLEGAL: u8 = 5;

/// `struct sg_io_hdr`.
#[repr(C)]
struct SgHeader {
    interface: i32,
    direction: i32,
    command_len: u8,
    sense_len: u8,
    vectors: u16,
    data_len: u32,
    data: *mut c_void,
    command: *const u8,
    sense: *mut u8,
    timeout_ms: u32,
    flags: u32,
    pack_id: i32,
    user: *mut c_void,
    status: u8,
    masked_status: u8,
    message_status: u8,
    sense_written: u8,
    host_status: u16,
    driver_status: u16,
    residual: i32,
    duration_ms: u32,
    info: u32,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<SgHeader>() == 88);

fn of_scsi(fd: &OwnedFd) -> Result<Reserved, ReserveError> {
    let keys = scsi(fd, READ_KEYS)?;
    let holder = scsi(fd, READ_RESERVATION)?;
    Ok(parse_scsi(&keys[..], &holder[..]))
}

/// SPC-4, 6.15.2 and 6.15.3: a generation, a length, and then keys, or one reservation that begins with its key.
fn parse_scsi(keys: &[u8], holder: &[u8]) -> Reserved {
    let listed = |data: &[u8]| {
        let len = u32::from_be_bytes(data[4..8].try_into().expect("four bytes")) as usize;
        let end = (8 + len).min(data.len());
        let key = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().expect("eight bytes"));
        data[8..end].chunks_exact(8).map(key).collect::<Vec<u64>>()
    };
    Reserved { holder: listed(holder).first().copied(), keys: listed(keys) }
}

fn scsi(fd: &OwnedFd, what: u8) -> Result<Box<[u8; ANSWER_BYTES]>, ReserveError> {
    let [high, low] = (ANSWER_BYTES as u16).to_be_bytes();
    let command = [PERSISTENT_RESERVE_IN, what, 0, 0, 0, 0, 0, high, low, 0];
    for _ in 0..TRIES {
        let (mut data, mut sense) = (Box::new([0u8; ANSWER_BYTES]), [0u8; 64]);
        let mut header = SgHeader {
            interface: i32::from(b'S'),
            direction: FROM_DEVICE,
            command_len: command.len() as u8,
            sense_len: sense.len() as u8,
            vectors: 0,
            data_len: ANSWER_BYTES as u32,
            data: data.as_mut_ptr().cast(),
            command: command.as_ptr(),
            sense: sense.as_mut_ptr(),
            timeout_ms: TIMEOUT_MS,
            flags: 0,
            pack_id: 0,
            user: std::ptr::null_mut(),
            status: 0,
            masked_status: 0,
            message_status: 0,
            sense_written: 0,
            host_status: 0,
            driver_status: 0,
            residual: 0,
            duration_ms: 0,
            info: 0,
        };
        // SAFETY: the header names buffers of the lengths that it says, which outlive the call.
        let answer = unsafe { libc::ioctl(fd.as_raw_fd(), SG_IO, &raw mut header) };
        if answer < 0 {
            return Err(refused(&std::io::Error::last_os_error()));
        }
        match (header.status, header.host_status) {
            (0, 0) => return Ok(data),
            (CHECK_CONDITION, _) if sense_key(&sense) == ILLEGAL => {
                return Err(ReserveError::Unable("it does not support persistent reservations".to_owned()));
            }
            (CHECK_CONDITION, _) => {}
            (_, 0) => return Err(ReserveError::Io(IoError::Os(libc::EIO))),
            (_, _) => return Err(ReserveError::Io(IoError::Gone)),
        }
    }
    Err(ReserveError::Io(IoError::Os(libc::EIO)))
}

/// Fixed or descriptor format, SPC-4, 4.5.
fn sense_key(sense: &[u8; 64]) -> u8 {
    match sense[0] & 0x7f {
        0x72 | 0x73 => sense[1] & 15,
        _ => sense[2] & 15,
    }
}

fn refused(error: &std::io::Error) -> ReserveError {
    match error.raw_os_error() {
        Some(errno @ (libc::ENODEV | libc::ENXIO)) => ReserveError::Io(IoError::from_errno(errno)),
        _ => ReserveError::Unable(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nvme_answers() {
        let mut data = [0u8; ANSWER_BYTES];
        (data[4], data[5]) = (1, 2);
        data[24 + 16..24 + 24].copy_from_slice(&7u64.to_le_bytes());
        data[48 + 2] = 1;
        data[48 + 16..48 + 24].copy_from_slice(&8u64.to_le_bytes());
        assert_eq!(parse_nvme(&data, false), Reserved { holder: Some(8), keys: vec![7, 8] });
        data = [0; ANSWER_BYTES];
        (data[4], data[5], data[64 + 2]) = (1, 1, 1);
        data[64 + 8..64 + 16].copy_from_slice(&9u64.to_le_bytes());
        assert_eq!(parse_nvme(&data, true), Reserved { holder: Some(9), keys: vec![9] });
        data[4] = 0;
        assert_eq!(parse_nvme(&data, true).holder, None);
        // More than there is room for.
        (data[5], data[6]) = (255, 255);
        assert_eq!(parse_nvme(&data, true).keys.len(), ANSWER_BYTES / 64 - 1);
    }

    #[test]
    fn scsi_answers() {
        let (mut keys, mut holder) = ([0u8; ANSWER_BYTES], [0u8; ANSWER_BYTES]);
        assert_eq!(parse_scsi(&keys, &holder), Reserved::default());
        keys[7] = 16;
        keys[8..16].copy_from_slice(&7u64.to_be_bytes());
        keys[16..24].copy_from_slice(&8u64.to_be_bytes());
        holder[7] = 16;
        holder[8..16].copy_from_slice(&8u64.to_be_bytes());
        assert_eq!(parse_scsi(&keys, &holder), Reserved { holder: Some(8), keys: vec![7, 8] });
        keys[4..8].fill(255);
        assert_eq!(parse_scsi(&keys, &holder).keys.len(), ANSWER_BYTES / 8 - 1);
    }
}
