//! Identify pages. NVMe Base 2.0, 5.17.2; for namespaces NVM Command Set 1.0, 4.1.5.
//!
//! Invariants: pure; a page has 4096 bytes; the number at each line is the field's first byte in the figure of the
//! clause that the function names. What is not written is 0: not supported, or not reported.

use std::collections::BTreeMap;

use super::property::VERSION;
use crate::{
    namespace::NamespaceInfo,
    nvme::{
        bytes::{put, put_text},
        limits::{
            ERROR_ENTRIES_MAX, EVENT_REQUESTS_MAX, IO_CAPSULE_DATA_MAX, KEEP_ALIVE_UNIT_MILLIS, MDTS, NAMESPACES_MAX,
            NSID_MAX, QUEUE_ENTRIES_MAX,
        },
        log::ANA_GROUP,
        subsystem::Subsystem,
    },
};

/// Length of every page.
pub const PAGE_BYTES: usize = 4096;

/// Which page: Controller or Namespace Structure. 5.17.1.
pub mod cns {
    #![allow(missing_docs, reason = "the names of the specification")]
    pub const NAMESPACE: u8 = 0x00;
    pub const CONTROLLER: u8 = 0x01;
    pub const ACTIVE: u8 = 0x02;
    pub const DESCRIPTORS: u8 = 0x03;
    pub const NAMESPACE_OF_SET: u8 = 0x05;
    pub const CONTROLLER_OF_SET: u8 = 0x06;
    pub const NAMESPACE_COMMON: u8 = 0x08;
}

/// The firmware revision: the program's version.
pub const FIRMWARE: &str = env!("CARGO_PKG_VERSION");

/// Optional asynchronous events: namespaces, ANA; or the discovery log.
const OAES: u32 = 1 << 8 | 1 << 11;
const OAES_DISCOVERY: u32 = 1 << 31;

/// What a controller says of itself.
pub struct Me<'a> {
    /// Its identifier.
    pub id: u16,
    /// Whether it is of the discovery subsystem.
    pub is_discovery: bool,
    /// Its subsystem.
    pub subsystem: &'a Subsystem,
    /// Whether a namespace has a volatile write cache.
    pub volatile_cache: bool,
}

/// The controller. 5.17.2.1.
#[must_use]
pub fn controller(me: &Me<'_>) -> Vec<u8> {
    let mut page = vec![0; PAGE_BYTES];
    common(&mut page, me);
    if me.is_discovery {
        put(&mut page, 92, &OAES_DISCOVERY.to_le_bytes());
        // CNTRLTYPE: discovery.
        page[111] = 2;
    } else {
        of_io(&mut page, me);
    }
    page
}

fn common(page: &mut [u8], me: &Me<'_>) {
    // SN, MN, FR.
    put_text(page, 4, 20, &me.subsystem.serial, b' ');
    put_text(page, 24, 40, &me.subsystem.model, b' ');
    put_text(page, 64, 8, FIRMWARE, b' ');
    // MDTS, CNTLID, VER.
    page[77] = MDTS;
    put(page, 78, &me.id.to_le_bytes());
    put(page, 80, &VERSION.to_le_bytes());
    // CTRATT: 128-bit host identifiers, keep alive by traffic.
    put(page, 96, &(1u32 | 1 << 6).to_le_bytes());
    // ACL: four aborts at once. AERL, from 0 for one.
    page[258] = 3;
    page[259] = EVENT_REQUESTS_MAX - 1;
    // LPA: commands supported and effects; offsets in log pages.
    page[261] = 1 << 1 | 1 << 2;
    // ELPE, from 0 for one.
    page[262] = ERROR_ENTRIES_MAX - 1;
    // KAS, in units of 100 ms.
    put(page, 320, &((KEEP_ALIVE_UNIT_MILLIS / 100) as u16).to_le_bytes());
    // MAXCMD.
    put(page, 514, &QUEUE_ENTRIES_MAX.to_le_bytes());
    // SGLS: supported; offsets in capsules.
    put(page, 536, &(1u32 | 1 << 20).to_le_bytes());
    // SUBNQN.
    put_text(page, 768, 256, &me.subsystem.nqn, 0);
    // IOCCSZ and IORCSZ in units of 16 bytes; ICDOFF 0; MSDBD: one descriptor.
    put(page, 1792, &((64 + IO_CAPSULE_DATA_MAX) / 16).to_le_bytes());
    put(page, 1796, &1u32.to_le_bytes());
    page[1803] = 1;
}

fn of_io(page: &mut [u8], me: &Me<'_>) {
    // CMIC: several controllers, ANA.
    page[76] = 1 << 1 | 1 << 3;
    // OAES; CNTRLTYPE: I/O.
    put(page, 92, &OAES.to_le_bytes());
    page[111] = 1;
    // ANATT in seconds; ANACAP: optimized state, groups do not change; ANAGRPMAX; NANAGRPID.
    page[342] = 10;
    page[343] = 1 | 1 << 6;
    put(page, 344, &1u32.to_le_bytes());
    put(page, 348, &1u32.to_le_bytes());
    // SQES and CQES: 2^6 and 2^4 bytes, required and longest.
    put(page, 512, &[0x66, 0x44]);
    // NN and MNAN.
    put(page, 516, &NSID_MAX.to_le_bytes());
    put(page, 540, &NAMESPACES_MAX.to_le_bytes());
    // ONCS: compare, dataset management, write zeroes.
    put(page, 520, &(1u16 | 1 << 2 | 1 << 3).to_le_bytes());
    // VWC: whether there is one; a flush may be for all namespaces.
    page[525] = u8::from(me.volatile_cache) | 3 << 1;
}

/// A namespace. NVM Command Set 1.0, 4.1.5.1.
#[must_use]
pub fn namespace(info: &NamespaceInfo) -> Vec<u8> {
    let mut page = vec![0; PAGE_BYTES];
    let blocks = info.bytes / u64::from(info.min_block);
    let preferred = (info.preferred_block / info.min_block) as u16;
    // NSZE, NCAP, NUSE.
    [0, 8, 16].into_iter().for_each(|at| put(&mut page, at, &blocks.to_le_bytes()));
    // NSFEAT: thin, atomic units of its own, preferred sizes.
    page[24] = 1 | 1 << 1 | 1 << 4;
    // NMIC: may be used through several controllers.
    page[30] = 1;
    // DLFEAT: deallocated blocks read as zero; write zeroes can deallocate.
    page[33] = 1 | 1 << 3;
    // NAWUN, NAWUPF: a preferred block is written wholly or not at all; NACWU: one block.
    put(&mut page, 34, &(preferred - 1).to_le_bytes());
    put(&mut page, 36, &(preferred - 1).to_le_bytes());
    // NABSN, NABO, NABSPF: where such blocks begin and end.
    put(&mut page, 40, &(preferred - 1).to_le_bytes());
    put(&mut page, 44, &(preferred - 1).to_le_bytes());
    // NPWG, NPWA, NPDG, NPDA, NOWS, from 0 for one.
    [64, 66, 68, 70, 72].into_iter().for_each(|at| put(&mut page, at, &(preferred - 1).to_le_bytes()));
    put(&mut page, 92, &ANA_GROUP.to_le_bytes());
    // NSATTR: write protected.
    page[99] = u8::from(info.read_only);
    // NGUID.
    put(&mut page, 104, &info.uuid);
    // LBAF0: LBADS, a power of two; no metadata.
    page[130] = info.min_block.trailing_zeros() as u8;
    page
}

/// What all command sets know of a namespace. 5.17.2.8.
#[must_use]
pub fn namespace_common(info: &NamespaceInfo) -> Vec<u8> {
    let mut page = vec![0; PAGE_BYTES];
    // NMIC; ANAGRPID; NSATTR; NSTAT: ready.
    page[1] = 1;
    put(&mut page, 4, &ANA_GROUP.to_le_bytes());
    page[8] = u8::from(info.read_only);
    page[14] = 1;
    page
}

/// Active namespaces with identifiers above `after`. 5.17.2.2.
#[must_use]
pub fn active<T>(namespaces: &BTreeMap<u32, T>, after: u32) -> Vec<u8> {
    let mut page = vec![0; PAGE_BYTES];
    let above = namespaces.keys().filter(|nsid| **nsid > after);
    for (nsid, slot) in above.zip(page.chunks_mut(4)) {
        put(slot, 0, &nsid.to_le_bytes());
    }
    page
}

/// Identification descriptors: NGUID, UUID, command set. 5.17.2.3.
#[must_use]
pub fn descriptors(info: &NamespaceInfo) -> Vec<u8> {
    let mut page = vec![0; PAGE_BYTES];
    // Each: type, length, two reserved bytes, value.
    put(&mut page, 0, &[2, 16, 0, 0]);
    put(&mut page, 4, &info.uuid);
    put(&mut page, 20, &[3, 16, 0, 0]);
    put(&mut page, 24, &info.uuid);
    put(&mut page, 40, &[4, 1, 0, 0, 0]);
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Memory, Namespace,
        nvme::{
            bytes::{u16_at, u32_at, u64_at},
            subsystem::Access,
        },
    };

    fn subsystem() -> Subsystem {
        let nqn = "nqn.2014-08.org.nvmexpress:uuid:x".to_owned();
        Subsystem { nqn, serial: "S".to_owned(), model: "M".to_owned(), access: Access::Any }
    }

    #[test]
    fn what_linux_insists_on() {
        let subsystem = subsystem();
        let page = controller(&Me { id: 3, is_discovery: false, subsystem: &subsystem, volatile_cache: true });
        assert_eq!(page.len(), PAGE_BYTES);
        assert_eq!(&page[4..25], b"S                   M");
        assert_eq!((u16_at(&page, 78), page[525]), (3, 7));
        assert_ne!(u16_at(&page, 320), 0, "keep alive");
        assert_ne!(u32_at(&page, 536) & 3, 0, "SGLs");
        assert_eq!(u32_at(&page, 1792) * 16, 64 + IO_CAPSULE_DATA_MAX);
        assert!(u32_at(&page, 540) <= u32_at(&page, 516), "MNAN is at most NN");
        let ana_log = 16 + 32 + u32_at(&page, 540) * 4;
        assert!(ana_log <= 4096 << MDTS, "the ANA log fits into a transfer");
        let discovery = controller(&Me { id: 3, is_discovery: true, subsystem: &subsystem, volatile_cache: false });
        assert_eq!((discovery[111], page[111], u32_at(&discovery, 516)), (2, 1, 0));
    }

    #[test]
    fn namespaces() {
        let info = NamespaceInfo { uuid: [9; 16], ..Memory::new("vol", 1 << 20).info() };
        let page = namespace(&info);
        assert_eq!((u64_at(&page, 0), u64_at(&page, 8), page[130], page[99]), (2048, 2048, 9, 0));
        assert_eq!((u16_at(&page, 36), u16_at(&page, 64), &page[104..120]), (7, 7, &[9; 16][..]));
        let read_only = NamespaceInfo { read_only: true, ..info.clone() };
        assert_eq!((namespace(&read_only)[99], namespace_common(&read_only)[8]), (1, 1));
        let list = descriptors(&info);
        assert_eq!((list[0], &list[4..20], list[20], &list[24..40], list[40]), (2, &[9; 16][..], 3, &[9; 16][..], 4));
    }

    #[test]
    fn the_list_of_active_namespaces_goes_on() {
        let all: BTreeMap<u32, ()> = (1..=2000).map(|i| (i * 2, ())).collect();
        let page = active(&all, 0);
        assert_eq!((u32_at(&page, 0), u32_at(&page, 4092)), (2, 2048));
        let page = active(&all, 2048);
        assert_eq!((u32_at(&page, 0), u32_at(&page, 4 * 975), u32_at(&page, 4 * 976)), (2050, 4000, 0));
        assert_eq!(u32_at(&active(&all, 4000), 0), 0);
    }
}
