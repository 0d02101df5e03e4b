//! What the kernel's ublk driver is told, and tells, byte for byte: `include/uapi/linux/ublk_cmd.h` of Linux 6.6 and later.
//!
//! Invariants: every structure has the kernel's size, which is asserted; commands are encoded as ioctls
//! (`UBLK_F_CMD_IOCTL_ENCODE`).
//!
//! Not here: zoned devices, zero copy, integrity, batches.

use zerocopy::{FromBytes, IntoBytes};

/// Where the kernel's commands are sent, and where its module makes it appear.
pub(super) const CONTROL: &str = "/dev/ublk-control";

/// `UBLK_F_USER_RECOVERY`: the device outlives its server, and what is asked of it meanwhile waits.
pub(super) const USER_RECOVERY: u64 = 1 << 3;
/// `UBLK_F_USER_RECOVERY_REISSUE`: what a server had not answered is asked of the next one again.
pub(super) const USER_RECOVERY_REISSUE: u64 = 1 << 4;
/// `UBLK_F_CMD_IOCTL_ENCODE`.
pub(super) const CMD_IOCTL_ENCODE: u64 = 1 << 6;
/// `UBLK_F_USER_COPY`: data moves by pread and pwrite on the character device.
pub(super) const USER_COPY: u64 = 1 << 7;
/// `UBLK_F_UPDATE_SIZE`, Linux 6.16: a device may change its size.
pub(super) const UPDATE_SIZE: u64 = 1 << 10;
/// `UBLK_F_SAFE_STOP_DEV`: the kernel refuses to stop a device that is open, if it is asked to.
pub(super) const SAFE_STOP_DEV: u64 = 1 << 17;

/// What there is no serving without, and what to call it.
pub(super) const NEEDED: [(u64, &str); 4] = [
    (USER_RECOVERY, "UBLK_F_USER_RECOVERY"),
    (USER_RECOVERY_REISSUE, "UBLK_F_USER_RECOVERY_REISSUE"),
    (CMD_IOCTL_ENCODE, "UBLK_F_CMD_IOCTL_ENCODE"),
    (USER_COPY, "UBLK_F_USER_COPY"),
];

/// `_IOC` of the driver's letter: 2 reads, 3 reads and writes.
const fn ioctl(direction: u32, number: u32, bytes: usize) -> u32 {
    direction << 30 | (bytes as u32) << 16 | (b'u' as u32) << 8 | number
}

const fn control(direction: u32, number: u32) -> u32 {
    ioctl(direction, number, size_of::<ControlCommand>())
}

pub(super) const GET_DEV_INFO: u32 = control(2, 0x02);
pub(super) const ADD_DEV: u32 = control(3, 0x04);
pub(super) const DEL_DEV: u32 = control(3, 0x05);
pub(super) const START_DEV: u32 = control(3, 0x06);
pub(super) const STOP_DEV: u32 = control(3, 0x07);
pub(super) const SET_PARAMS: u32 = control(3, 0x08);
pub(super) const GET_PARAMS: u32 = control(2, 0x09);
pub(super) const START_USER_RECOVERY: u32 = control(3, 0x10);
pub(super) const END_USER_RECOVERY: u32 = control(3, 0x11);
pub(super) const GET_FEATURES: u32 = control(2, 0x13);
/// Linux 6.9: DEL_DEV that does not wait until nobody has the device open.
pub(super) const DEL_DEV_ASYNC: u32 = control(2, 0x14);
pub(super) const SET_SIZE: u32 = control(3, 0x15);
pub(super) const TRY_STOP_DEV: u32 = control(3, 0x17);

/// `UBLK_U_IO_FETCH_REQ`: waits for a request.
pub(super) const FETCH_REQ: u32 = ioctl(3, 0x20, FETCH_BYTES);
/// `UBLK_U_IO_COMMIT_AND_FETCH_REQ`: answers one, and waits for the next one of its tag.
pub(super) const COMMIT_AND_FETCH_REQ: u32 = ioctl(3, 0x21, FETCH_BYTES);

/// Length of `struct ublksrv_io_cmd`.
const FETCH_BYTES: usize = 16;

/// `struct ublksrv_io_cmd`: queue 0, the tag, the result of a commit, and no buffer.
pub(super) fn fetch(tag: u16, result: i32) -> [u8; FETCH_BYTES] {
    let mut bytes = [0; FETCH_BYTES];
    bytes[2..4].copy_from_slice(&tag.to_ne_bytes());
    bytes[4..8].copy_from_slice(&result.to_ne_bytes());
    bytes
}

/// Where the data of a request lies in the character device: `UBLKSRV_IO_BUF_OFFSET`, 25 bits for the place in a buffer, 16 for
/// the tag, then the queue.
pub(super) fn data_at(queue: u16, tag: u16) -> u64 {
    0x8000_0000 + (u64::from(queue) << 41) + (u64::from(tag) << 25)
}

/// `struct ublksrv_ctrl_cmd`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ControlCommand {
    pub(super) device: u32,
    pub(super) queue: u16,
    pub(super) bytes: u16,
    pub(super) addr: u64,
    pub(super) data: u64,
    pub(super) path_bytes: u16,
    pub(super) padding: u16,
    pub(super) reserved: u32,
}

const _: () = assert!(size_of::<ControlCommand>() == 32);

impl ControlCommand {
    /// As it stands in a wide entry.
    pub(super) fn bytes(&self) -> [u8; 80] {
        let mut bytes = [0; 80];
        bytes[..4].copy_from_slice(&self.device.to_ne_bytes());
        bytes[4..6].copy_from_slice(&self.queue.to_ne_bytes());
        bytes[6..8].copy_from_slice(&self.bytes.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.addr.to_ne_bytes());
        bytes[16..24].copy_from_slice(&self.data.to_ne_bytes());
        bytes[24..26].copy_from_slice(&self.path_bytes.to_ne_bytes());
        bytes
    }
}

/// `struct ublksrv_ctrl_dev_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes)]
pub(super) struct DeviceInfo {
    pub(super) queues: u16,
    pub(super) depth: u16,
    pub(super) state: u16,
    pub(super) padding: u16,
    pub(super) request_bytes_max: u32,
    pub(super) number: u32,
    pub(super) pid: i32,
    pub(super) padding2: u32,
    pub(super) flags: u64,
    /// `ublksrv_flags`: the server's own.
    pub(super) mark: u64,
    pub(super) owner_uid: u32,
    pub(super) owner_gid: u32,
    pub(super) reserved: [u64; 2],
}

const _: () = assert!(size_of::<DeviceInfo>() == 64);

/// `UBLK_S_DEV_DEAD`, `UBLK_S_DEV_LIVE`, `UBLK_S_DEV_QUIESCED`.
pub(super) const DEAD: u16 = 0;
pub(super) const LIVE: u16 = 1;
pub(super) const QUIESCED: u16 = 2;

/// `UBLK_PARAM_TYPE_BASIC`, `UBLK_PARAM_TYPE_DISCARD`.
pub(super) const BASIC: u32 = 1;
pub(super) const DISCARD: u32 = 2;

/// `UBLK_ATTR_READ_ONLY`, `UBLK_ATTR_VOLATILE_CACHE`, `UBLK_ATTR_FUA`.
pub(super) const READ_ONLY: u32 = 1;
pub(super) const VOLATILE_CACHE: u32 = 4;
pub(super) const FUA: u32 = 8;

/// The beginning of `struct ublk_params`: basic ones and those of discard. The kernel takes a shorter one than its own.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes)]
pub(super) struct Params {
    pub(super) bytes: u32,
    pub(super) types: u32,
    pub(super) attributes: u32,
    pub(super) logical_shift: u8,
    pub(super) physical_shift: u8,
    pub(super) io_opt_shift: u8,
    pub(super) io_min_shift: u8,
    pub(super) sectors_max: u32,
    pub(super) chunk_sectors: u32,
    pub(super) device_sectors: u64,
    pub(super) virt_boundary_mask: u64,
    pub(super) discard_alignment: u32,
    pub(super) discard_granularity: u32,
    pub(super) discard_sectors_max: u32,
    pub(super) write_zeroes_sectors_max: u32,
    pub(super) discard_segments_max: u16,
    pub(super) reserved: [u16; 3],
}

/// What of [`Params`] the kernel reads and writes: up to the end of `struct ublk_param_discard`.
pub(super) const PARAMS_BYTES: u32 = 60;

const _: () = assert!(size_of::<Params>() == 64);

/// `struct ublksrv_io_desc`: a request, in memory that the kernel shares.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// The operation in the lowest eight bits, then flags.
    pub operation: u32,
    /// Its length in sectors of 512 bytes.
    pub sectors: u32,
    /// Its first sector.
    pub sector: u64,
    /// Of no meaning here: where the buffer is.
    pub addr: u64,
}

const _: () = assert!(size_of::<Descriptor>() == 24);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_numbers() {
        // As a C program prints them.
        assert_eq!((FETCH_REQ, COMMIT_AND_FETCH_REQ), (0xC010_7520, 0xC010_7521));
        assert_eq!((GET_DEV_INFO, ADD_DEV, DEL_DEV), (0x8020_7502, 0xC020_7504, 0xC020_7505));
        assert_eq!((GET_FEATURES, DEL_DEV_ASYNC, SET_SIZE), (0x8020_7513, 0x8020_7514, 0xC020_7515));
    }

    #[test]
    fn a_fetch() {
        assert_eq!(fetch(0x0102, -5), [0, 0, 2, 1, 0xfb, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_control_command() {
        let command =
            ControlCommand { device: 7, queue: !0, bytes: 64, addr: 0x1122_3344_5566_7788, data: 9, ..<_>::default() };
        let bytes = command.bytes();
        assert_eq!(bytes[..8], [7, 0, 0, 0, 0xff, 0xff, 64, 0]);
        assert_eq!(bytes[8..16], 0x1122_3344_5566_7788u64.to_ne_bytes());
        assert_eq!(bytes[16..24], 9u64.to_ne_bytes());
        assert!(bytes[24..].iter().all(|b| *b == 0));
    }

    #[test]
    fn places_of_data() {
        assert_eq!(data_at(0, 0), 0x8000_0000);
        assert_eq!(data_at(0, 127), 0x8000_0000 + 127 * (32 << 20));
        assert_eq!(data_at(3, 1), 0x8000_0000 + (3 << 41) + (1 << 25));
    }

    #[test]
    fn places_of_fields() {
        use std::mem::offset_of;
        assert_eq!(
            (offset_of!(DeviceInfo, number), offset_of!(DeviceInfo, pid), offset_of!(DeviceInfo, flags)),
            (12, 16, 24)
        );
        assert_eq!((offset_of!(DeviceInfo, mark), offset_of!(DeviceInfo, reserved)), (32, 48));
        assert_eq!((offset_of!(Params, logical_shift), offset_of!(Params, sectors_max)), (12, 16));
        assert_eq!((offset_of!(Params, device_sectors), offset_of!(Params, discard_alignment)), (24, 40));
        assert_eq!(offset_of!(Params, reserved), 58);
    }
}
