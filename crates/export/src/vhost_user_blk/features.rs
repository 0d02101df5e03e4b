//! What is offered: features of the device and of the protocol, and the device's configuration space.
//!
//! Virtio 1.2: 5.2.3 (feature bits), 5.2.4 (configuration layout), 6 (reserved feature bits). Vhost-user: "Protocol features".
//!
//! | offered | not |
//! |---|---|
//! | SIZE_MAX, SEG_MAX, BLK_SIZE, FLUSH, TOPOLOGY, MQ, DISCARD, WRITE_ZEROES, RO | CONFIG_WCE, LIFETIME, SECURE_ERASE, ZONED |
//! | VERSION_1, INDIRECT_DESC, EVENT_IDX, LOG_ALL | RING_PACKED, IOMMU_PLATFORM, IN_ORDER |
//! | MQ, LOG_SHMFD, REPLY_ACK, BACKEND_REQ, CONFIG, INFLIGHT_SHMFD, RESET_DEVICE, CONFIGURE_MEM_SLOTS | PAGEFAULT, STATUS |

use super::message::CONFIG_MAX;
use super::request::{REQUEST_BYTES_MAX, SEGMENT_BYTES_MAX, SEGMENTS_MAX, ZERO_BYTES_MAX};
use crate::namespace::NamespaceInfo;

const SIZE_MAX: u64 = 1 << 1;
const SEG_MAX: u64 = 1 << 2;
const RO: u64 = 1 << 5;
const BLK_SIZE: u64 = 1 << 6;
pub(super) const FLUSH: u64 = 1 << 9;
const TOPOLOGY: u64 = 1 << 10;
const MQ: u64 = 1 << 12;
const DISCARD: u64 = 1 << 13;
const WRITE_ZEROES: u64 = 1 << 14;
/// `VHOST_F_LOG_ALL`, of the front end alone: pages that are written are noted.
pub(super) const LOG_ALL: u64 = 1 << 26;
pub(super) const INDIRECT_DESC: u64 = 1 << 28;
pub(super) const EVENT_IDX: u64 = 1 << 29;
/// `VHOST_USER_F_PROTOCOL_FEATURES`.
pub(super) const PROTOCOL: u64 = 1 << 30;
pub(super) const VERSION_1: u64 = 1 << 32;

const ALL: u64 = SIZE_MAX
    | SEG_MAX
    | BLK_SIZE
    | FLUSH
    | TOPOLOGY
    | MQ
    | DISCARD
    | WRITE_ZEROES
    | LOG_ALL
    | INDIRECT_DESC
    | EVENT_IDX
    | PROTOCOL
    | VERSION_1;

/// Of the protocol.
pub(super) const P_REPLY_ACK: u64 = 1 << 3;
const P_MQ: u64 = 1 << 0;
const P_LOG_SHMFD: u64 = 1 << 1;
const P_BACKEND_REQ: u64 = 1 << 5;
const P_CONFIG: u64 = 1 << 9;
const P_INFLIGHT_SHMFD: u64 = 1 << 12;
const P_RESET_DEVICE: u64 = 1 << 13;
const P_CONFIGURE_MEM_SLOTS: u64 = 1 << 15;
pub(super) const PROTOCOL_ALL: u64 = P_MQ
    | P_LOG_SHMFD
    | P_REPLY_ACK
    | P_BACKEND_REQ
    | P_CONFIG
    | P_INFLIGHT_SHMFD
    | P_RESET_DEVICE
    | P_CONFIGURE_MEM_SLOTS;

/// Queues of a device: one a processor of a large guest.
pub(super) const QUEUES_MAX: u16 = 16;
/// Descriptors of a ring: QEMU's limit.
pub(super) const RING_MAX: u16 = 1024;

/// The features of a device over this namespace. They stay the same for as long as it is served: a front end that connects again
/// wants those it had.
pub(super) fn of(info: &NamespaceInfo) -> u64 {
    if info.read_only { ALL | RO } else { ALL }
}

/// A part of the configuration space (`struct virtio_blk_config`); what lies behind it is zero.
pub(super) fn config(info: &NamespaceInfo, offset: u32, bytes: u32) -> Vec<u8> {
    let mut space = Space(vec![0; CONFIG_MAX as usize]);
    let preferred = info.preferred_block.max(info.min_block);
    // Kernels know physical blocks of a page; a larger one misleads who makes file systems.
    let physical = preferred.min(4096).max(info.min_block);
    let sectors_max = (ZERO_BYTES_MAX / 512) as u32;
    space.put(0, &(info.bytes / 512).to_le_bytes());
    space.put(8, &SEGMENT_BYTES_MAX.to_le_bytes());
    space.put(12, &SEGMENTS_MAX.to_le_bytes());
    space.put(20, &info.min_block.to_le_bytes());
    space.put(24, &[(physical / info.min_block).trailing_zeros() as u8]);
    let in_blocks = (preferred / info.min_block).min(REQUEST_BYTES_MAX / info.min_block);
    space.put(26, &(in_blocks.min(u32::from(u16::MAX)) as u16).to_le_bytes());
    space.put(28, &in_blocks.to_le_bytes());
    space.put(34, &QUEUES_MAX.to_le_bytes());
    space.put(36, &sectors_max.to_le_bytes());
    space.put(40, &1_u32.to_le_bytes());
    space.put(44, &(preferred / 512).to_le_bytes());
    space.put(48, &sectors_max.to_le_bytes());
    space.put(52, &1_u32.to_le_bytes());
    space.put(56, &[1]);
    let end = (offset + bytes) as usize;
    space.0[offset as usize..end].to_vec()
}

struct Space(Vec<u8>);

impl Space {
    fn put(&mut self, at: usize, field: &[u8]) {
        self.0[at..at + field.len()].copy_from_slice(field);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_space() {
        let info = NamespaceInfo {
            name: "a/v".to_owned(),
            uuid: [1; 16],
            bytes: 1 << 40,
            min_block: 512,
            preferred_block: 16384,
            max_request: 32 << 20,
            read_only: false,
            volatile_cache: true,
            description: String::new(),
        };
        let space = config(&info, 0, 60);
        assert_eq!(space.len(), 60);
        assert_eq!(space[..8], (1_u64 << 31).to_le_bytes());
        assert_eq!(space[20..24], 512_u32.to_le_bytes());
        assert_eq!((space[24], space[26], space[28]), (3, 32, 32));
        assert_eq!(config(&info, 4, 8), space[4..12]);
        assert_eq!(config(&info, 250, 6), [0; 6]);
        assert_eq!(of(&info) & RO, 0);
        assert_eq!(of(&NamespaceInfo { read_only: true, ..info }) & RO, RO);
    }
}
