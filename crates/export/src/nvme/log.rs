//! Log pages. NVMe Base 2.0, 5.16.1; the discovery log page 5.16.1.23.
//!
//! Invariants: pure; a page is built whole and then cut to what was asked for. Offsets are those of the figures of the
//! clause that a function names.

use std::{
    collections::{BTreeSet, VecDeque},
    net::{IpAddr, SocketAddr},
};

use super::{
    bytes::{put, put_text, u16_at, u64_at},
    entry::{CONTROLLER_ANY, admin, io},
    limits::{ERROR_ENTRIES_MAX, QUEUE_ENTRIES_MAX},
    status::Status,
    subsystem::Health,
};
use crate::counters::Counters;

/// Log page identifiers.
#[allow(missing_docs, reason = "the names of the specification")]
mod id {
    pub const SUPPORTED: u8 = 0x00;
    pub const ERROR: u8 = 0x01;
    pub const HEALTH: u8 = 0x02;
    pub const FIRMWARE: u8 = 0x03;
    pub const CHANGED_NAMESPACES: u8 = 0x04;
    pub const EFFECTS: u8 = 0x05;
    pub const ANA: u8 = 0x0c;
    pub const DISCOVERY: u8 = 0x70;
}
pub use id::*;

/// The only ANA group.
pub const ANA_GROUP: u32 = 1;

/// Supported log pages: a dword for each, bit 0: supported. 5.16.1.1.
#[must_use]
pub fn supported(pages: &[u8]) -> Vec<u8> {
    let mut page = vec![0; 1024];
    pages.iter().for_each(|id| page[usize::from(*id) * 4] = 1);
    page
}

/// The errors that a controller answered with, newest first.
#[derive(Debug, Default)]
pub struct ErrorLog {
    count: u64,
    entries: VecDeque<ErrorEntry>,
}

/// One of them.
#[derive(Clone, Copy, Debug)]
pub struct ErrorEntry {
    /// The queue.
    pub queue: u16,
    /// The command's identifier.
    pub command: u16,
    /// What it was answered with.
    pub status: Status,
    /// Its first block, if it has one.
    pub lba: u64,
    /// Its namespace.
    pub nsid: u32,
}

impl ErrorLog {
    /// Adds an error; the oldest is forgotten.
    pub fn add(&mut self, entry: ErrorEntry) {
        self.count += 1;
        self.entries.push_front(entry);
        self.entries.truncate(usize::from(ERROR_ENTRIES_MAX));
    }

    /// Errors since the controller was made.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The page: 64 bytes for each. 5.16.1.2.
    #[must_use]
    pub fn page(&self) -> Vec<u8> {
        let mut page = vec![0; usize::from(ERROR_ENTRIES_MAX) * 64];
        for (i, (entry, slot)) in self.entries.iter().zip(page.chunks_mut(64)).enumerate() {
            put(slot, 0, &(self.count - i as u64).to_le_bytes());
            put(slot, 8, &entry.queue.to_le_bytes());
            put(slot, 10, &entry.command.to_le_bytes());
            put(slot, 12, &(entry.status.0 << 1).to_le_bytes());
            // Parameter Error Location: not told.
            put(slot, 14, &[0xff, 0xff]);
            put(slot, 16, &entry.lba.to_le_bytes());
            put(slot, 24, &entry.nsid.to_le_bytes());
            // Transport type: TCP.
            slot[29] = 3;
        }
        page
    }
}

/// Critical warnings of the health log. 5.16.1.3, byte 0: bit 2 reliability, bit 3 read-only.
#[must_use]
pub fn critical_warning(health: &Health) -> u8 {
    u8::from(health.degraded || health.frozen) << 2 | u8::from(health.frozen) << 3
}

/// Health, of the whole subsystem. 5.16.1.3.
#[must_use]
pub fn health(health: &Health, counters: &Counters, errors: u64) -> Vec<u8> {
    // "data units" of 1000 sectors, rounded up.
    let units = |bytes: u64| u128::from(bytes.div_ceil(512_000));
    let mut page = vec![0; 512];
    page[0] = critical_warning(health);
    // Temperature, spare and wear are those of drives, which this log does not know: 0, as Linux's own target says.
    put(&mut page, 32, &units(counters.bytes_read).to_le_bytes());
    put(&mut page, 48, &units(counters.bytes_written).to_le_bytes());
    put(&mut page, 64, &u128::from(counters.reads).to_le_bytes());
    put(&mut page, 80, &u128::from(counters.writes).to_le_bytes());
    put(&mut page, 160, &u128::from(counters.medium_errors).to_le_bytes());
    put(&mut page, 176, &u128::from(errors).to_le_bytes());
    page
}

/// Firmware slots: one, active. 5.16.1.4.
#[must_use]
pub fn firmware(revision: &str) -> Vec<u8> {
    let mut page = vec![0; 512];
    page[0] = 1;
    put_text(&mut page, 8, 8, revision, b' ');
    page
}

/// Identifiers in the log page of changed namespaces.
pub const CHANGED_MAX: usize = 1024;

/// Changed namespaces: 1024 identifiers, or FFFFFFFFh when there are more. 5.16.1.5.
#[must_use]
pub fn changed_namespaces(changed: &BTreeSet<u32>) -> Vec<u8> {
    let mut page = vec![0; 4096];
    if changed.len() > CHANGED_MAX {
        put(&mut page, 0, &[0xff; 4]);
        return page;
    }
    for (nsid, slot) in changed.iter().zip(page.chunks_mut(4)) {
        put(slot, 0, &nsid.to_le_bytes());
    }
    page
}

/// Commands supported and effects: bit 0 supported, bit 1 changes contents. 5.16.1.6.
#[must_use]
pub fn effects(is_discovery: bool) -> Vec<u8> {
    let mut page = vec![0; 4096];
    for opcode in [
        admin::GET_LOG_PAGE,
        admin::IDENTIFY,
        admin::ABORT,
        admin::SET_FEATURES,
        admin::GET_FEATURES,
        admin::ASYNC_EVENT_REQUEST,
        admin::KEEP_ALIVE,
    ] {
        page[usize::from(opcode) * 4] = 1;
    }
    if is_discovery {
        return page;
    }
    for (opcode, effect) in [
        (io::FLUSH, 1),
        (io::WRITE, 3),
        (io::READ, 1),
        (io::COMPARE, 1),
        (io::WRITE_ZEROES, 3),
        (io::DATASET_MANAGEMENT, 3),
    ] {
        page[1024 + usize::from(opcode) * 4] = effect;
    }
    page
}

/// Asymmetric namespace access: one group, optimized, which never changes. 5.16.1.13.
#[must_use]
pub fn ana(nsids: &[u32], groups_only: bool) -> Vec<u8> {
    let nsids = if groups_only { &[] } else { nsids };
    let mut page = vec![0; 16 + 32 + nsids.len() * 4];
    // Number of groups.
    put(&mut page, 8, &1u16.to_le_bytes());
    let group = &mut page[16..];
    put(group, 0, &ANA_GROUP.to_le_bytes());
    put(group, 4, &(nsids.len() as u32).to_le_bytes());
    // State: optimized.
    group[16] = 1;
    for (nsid, slot) in nsids.iter().zip(group[32..].chunks_mut(4)) {
        put(slot, 0, &nsid.to_le_bytes());
    }
    page
}

/// The discovery log: every subsystem at every address. 5.16.1.23; addresses and `TSAS` NVMe/TCP 1.0, "Discovery".
#[must_use]
pub fn discovery(generation: u64, subsystems: &[String], addresses: &[SocketAddr]) -> Vec<u8> {
    let mut page = vec![0; 1024];
    put(&mut page, 0, &generation.to_le_bytes());
    put(&mut page, 8, &((subsystems.len() * addresses.len()) as u64).to_le_bytes());
    for (nqn, (port, address)) in subsystems.iter().flat_map(|s| addresses.iter().enumerate().map(move |a| (s, a))) {
        let mut entry = vec![0; 1024];
        let family = if address.is_ipv4() { 1 } else { 2 };
        // Transport TCP, address family, an NVM subsystem; TREQ bit 2: SQ flow control may be disabled. "Secure channel"
        // stays "not specified": hosts take "not required" for an offer of TLS.
        put(&mut entry, 0, &[3, family, 2, 1 << 2]);
        put(&mut entry, 4, &(port as u16).to_le_bytes());
        put(&mut entry, 6, &CONTROLLER_ANY.to_le_bytes());
        // Size of the admin queue.
        put(&mut entry, 8, &QUEUE_ENTRIES_MAX.to_le_bytes());
        put_text(&mut entry, 32, 32, &address.port().to_string(), b' ');
        put_text(&mut entry, 256, 256, nqn, 0);
        put_text(&mut entry, 512, 256, &ip_text(address.ip()), b' ');
        // TSAS byte 0: no transport security.
        page.extend(entry);
    }
    page
}

fn ip_text(ip: IpAddr) -> String {
    ip.to_string()
}

/// An entry of the discovery log, as a host parses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveryEntry {
    /// The subsystem's qualified name.
    pub subsystem: String,
    /// Where it is.
    pub address: SocketAddr,
}

/// Generation and entries of a discovery log; nothing when it is not one of TCP and NVM subsystems.
#[must_use]
pub fn parse_discovery(page: &[u8]) -> Option<(u64, Vec<DiscoveryEntry>)> {
    let (header, rest) = page.split_at_checked(1024)?;
    let count = u64_at(header, 8);
    let entry = |bytes: &[u8]| {
        let text =
            |at, length| std::str::from_utf8(&bytes[at..at + length]).ok().map(|t| t.trim_end_matches([' ', '\0']));
        let address = SocketAddr::new(text(512, 256)?.parse().ok()?, text(32, 32)?.parse().ok()?);
        let known = bytes[0] == 3 && bytes[2] == 2 && u16_at(bytes, 6) == CONTROLLER_ANY;
        known.then_some(DiscoveryEntry { subsystem: text(256, 256)?.to_owned(), address })
    };
    let entries: Option<Vec<_>> = rest.chunks_exact(1024).take(count as usize).map(entry).collect();
    entries.filter(|e| e.len() as u64 == count).map(|e| (u64_at(header, 0), e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nvme::bytes::u32_at;

    #[test]
    fn errors_are_kept_newest_first() {
        let mut log = ErrorLog::default();
        for command in 0..100 {
            log.add(ErrorEntry { queue: 1, command, status: Status::INVALID_FIELD, lba: 5, nsid: 1 });
        }
        let page = log.page();
        assert_eq!(page.len(), 64 * 64);
        assert_eq!((u64_at(&page, 0), u16_at(&page, 10), u16_at(&page, 12)), (100, 99, 0x8004));
        assert_eq!((u64_at(&page, 63 * 64), u16_at(&page, 63 * 64 + 10)), (37, 36));
    }

    #[test]
    fn changed_namespaces_overflow() {
        let page = changed_namespaces(&(1..=3).collect());
        assert_eq!([0, 4, 8, 12].map(|at| u32_at(&page, at)), [1, 2, 3, 0]);
        assert_eq!(u32_at(&changed_namespaces(&(1..=1024).collect()), 4092), 1024);
        let page = changed_namespaces(&(1..=1025).collect());
        assert_eq!([0, 4].map(|at| u32_at(&page, at)), [u32::MAX, 0]);
    }

    #[test]
    fn discovery_logs_come_back() {
        let addresses: Vec<SocketAddr> = ["10.0.2.2:4420", "[fd00::1]:4421"].map(|a| a.parse().unwrap()).into();
        let subsystems = ["nqn.a".to_owned(), "nqn.b".to_owned()];
        let page = discovery(7, &subsystems, &addresses);
        let (generation, entries) = parse_discovery(&page).unwrap();
        assert_eq!((generation, entries.len()), (7, 4));
        assert_eq!(entries[1], DiscoveryEntry { subsystem: "nqn.a".to_owned(), address: addresses[1] });
        assert_eq!(parse_discovery(&page[..4000]), None);
        assert_eq!(page[1024 + 3], 4, "TREQ asks for no secure channel");
    }

    #[test]
    fn ana_tells_namespaces_or_only_the_group() {
        let page = ana(&[3, 9], false);
        assert_eq!((page.len(), u32_at(&page, 20), u32_at(&page, 52)), (56, 2, 9));
        assert_eq!((ana(&[3, 9], true).len(), page[32]), (48, 1));
    }

    #[test]
    fn health_warns() {
        let warning = |degraded, frozen| critical_warning(&Health { degraded, frozen });
        assert_eq!([warning(false, false), warning(true, false), warning(true, true)], [0, 4, 12]);
        let counters = Counters { bytes_read: 512_001, reads: 3, ..Counters::default() };
        let page = health(&Health::default(), &counters, 9);
        assert_eq!(page[1..6], [0; 5], "nothing is made up");
        assert_eq!((u64_at(&page, 32), u64_at(&page, 64), u64_at(&page, 176)), (2, 3, 9));
    }
}
