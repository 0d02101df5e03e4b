//! What serves a target on this machine: its CPU time is the target's, not that of others who disturb.
//!
//! Threads of the kernel count (md, loop, dm), and programs that listen at the socket an export has, as Ashlar, nbdkit or
//! SPDK do. Programs of other users are only seen by root; what is not seen counts as others'.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::Path;
use std::time::Instant;

use crate::target::{Kind, Target};

/// Ticks of a second that the kernel tells times in (USER_HZ).
const TICKS_PER_SEC: f64 = 100.0;
/// The process whose children are the kernel's threads.
const KERNEL: u32 = 2;

/// CPU time of what serves some targets, so far.
#[derive(Clone, Debug)]
pub struct Served {
    at: Instant,
    ticks: BTreeMap<u32, u64>,
}

impl Served {
    /// Looks now; `sockets` are control sockets of servers that are known otherwise.
    pub fn look<'a>(targets: impl Iterator<Item = &'a Target>, sockets: &[&str]) -> Served {
        let mut inodes: Vec<u64> = sockets.iter().flat_map(|path| unix_inodes(path)).collect();
        for target in targets {
            inodes.extend(listeners(target));
        }
        let mut ticks = BTreeMap::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
            let Some((parent, used)) = fs::read_to_string(entry.path().join("stat")).ok().and_then(|t| stat(&t)) else {
                continue;
            };
            let serves = || !inodes.is_empty() && holds(&entry.path(), &inodes);
            if parent == KERNEL || pid == KERNEL || serves() {
                ticks.insert(pid, used);
            }
        }
        Served { at: Instant::now(), ticks }
    }

    /// Hundredths of all CPUs that they used since `before`.
    pub fn percent_since(&self, before: &Served, cpus: usize) -> f64 {
        let used: u64 =
            self.ticks.iter().map(|(pid, now)| now.saturating_sub(*before.ticks.get(pid).unwrap_or(now))).sum();
        let seconds = self.at.duration_since(before.at).as_secs_f64();
        used as f64 / (seconds * TICKS_PER_SEC * cpus.max(1) as f64).max(1.0) * 100.0
    }
}

/// Parent and ticks (user and system) of a line of /proc/PID/stat. The name may have spaces and brackets.
fn stat(text: &str) -> Option<(u32, u64)> {
    let words: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    Some((words.get(1)?.parse().ok()?, words.get(11)?.parse::<u64>().ok()? + words.get(12)?.parse::<u64>().ok()?))
}

/// Whether a process has one of these sockets open.
fn holds(process: &Path, inodes: &[u64]) -> bool {
    fs::read_dir(process.join("fd")).into_iter().flatten().flatten().any(|fd| {
        let link = fs::read_link(fd.path()).unwrap_or_default();
        let number = link.to_string_lossy().strip_prefix("socket:[").and_then(|t| t.strip_suffix(']')?.parse().ok());
        number.is_some_and(|n: u64| inodes.contains(&n))
    })
}

/// Sockets of this machine that listen where an export is.
fn listeners(target: &Target) -> Vec<u64> {
    let name = target.name.as_str();
    if let Some(path) = name.strip_prefix("nbd+unix:").and_then(|rest| rest.split_once("socket=")).map(|(_, p)| p) {
        return unix_inodes(path.split('&').next().unwrap_or_default());
    }
    let usual = match target.kind {
        Kind::Nbd => 10_809,
        Kind::Nvme => 4420,
        Kind::File | Kind::Block | Kind::Model => return vec![],
    };
    let host = name.split_once("://").map_or("", |(_, rest)| rest).split('/').next().unwrap_or_default();
    let (host, port) = match host.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() => (host, port.parse().unwrap_or(usual)),
        _ => (host, usual),
    };
    let here = addresses(host.trim_matches(['[', ']'])).iter().any(|a| is_here(*a));
    if here { tcp_inodes(port) } else { vec![] }
}

/// The addresses of a host.
pub fn addresses(host: &str) -> Vec<IpAddr> {
    (host, 0).to_socket_addrs().into_iter().flatten().map(|a| a.ip()).collect()
}

/// Whether an address is this machine's.
pub fn is_here(address: IpAddr) -> bool {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    match address.to_canonical() {
        a if a.is_loopback() => true,
        IpAddr::V4(v4) => is_own_v4(&read("/proc/net/fib_trie"), &v4.to_string()),
        // Lines of /proc/net/if_inet6 begin with the address, 32 digits.
        IpAddr::V6(v6) => {
            read("/proc/net/if_inet6").lines().any(|l| l.starts_with(&format!("{:032x}", u128::from(v6))))
        }
    }
}

/// Whether the kernel's table of routes has an address as its own: "|-- ADDRESS", and "/32 host LOCAL" below it.
fn is_own_v4(table: &str, address: &str) -> bool {
    let lines: Vec<&str> = table.lines().collect();
    lines
        .windows(2)
        .any(|pair| pair[0].trim().strip_prefix("|-- ") == Some(address) && pair[1].contains("/32 host LOCAL"))
}

/// Listening sockets of a path (/proc/net/unix: the seventh column is the inode, the eighth the path).
fn unix_inodes(path: &str) -> Vec<u64> {
    let text = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let own = text.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words.get(7) == Some(&path)).then(|| words.get(6)?.parse().ok()).flatten()
    });
    own.collect()
}

/// Listening sockets of a port (/proc/net/tcp: the second column is the address, the fourth the state, the tenth the inode).
fn tcp_inodes(port: u16) -> Vec<u64> {
    const LISTENS: &str = "0A";
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    let lines = tables.iter().flat_map(|table| table.lines().skip(1));
    let own = lines.filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = u16::from_str_radix(words.get(1)?.rsplit_once(':')?.1, 16).ok()?;
        (at == port && words.get(3) == Some(&LISTENS)).then(|| words.get(9)?.parse().ok()).flatten()
    });
    own.collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn ticks_are_read_past_any_name() {
        let line = "12 (a ) b) S 2 0 0 0 -1 69238880 0 0 0 0 30 12 0 0 20 0 1 0 58 0 0";
        assert_eq!(stat(line), Some((2, 42)));
        assert_eq!(stat("nonsense"), None);
    }

    #[test]
    fn who_listens_at_the_address_of_an_export_serves_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let _unix = UnixListener::bind(&path).unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = tcp.local_addr().unwrap().port();
        let me = std::process::id();
        let serves = |name: &str| {
            let target = Target::look(name, Some(1 << 20)).unwrap();
            Served::look(std::iter::once(&target), &[]).ticks.contains_key(&me)
        };
        assert!(serves(&format!("nbd+unix:///v?socket={}", path.display())));
        assert!(serves(&format!("nbd://127.0.0.1:{port}/v")));
        assert!(!serves("nbd+unix:///v?socket=/not/there"));
        assert!(!serves("/no-such-place/drive"), "a file has no server");
        assert!(Served::look(std::iter::empty(), &[path.to_str().unwrap()]).ticks.contains_key(&me));
    }

    #[test]
    fn own_addresses_are_told_from_routes() {
        let table = "  |-- 10.0.0.0\n     /24 link UNICAST\n  |-- 10.0.0.5\n     /32 host LOCAL\n  |-- 10.0.0.9\n     /32 link UNICAST\n";
        assert!(is_own_v4(table, "10.0.0.5"));
        assert!(!is_own_v4(table, "10.0.0.9") && !is_own_v4(table, "10.0.0.0") && !is_own_v4(table, "10.0.0.50"));
        assert!(is_here([127, 1, 2, 3].into()) && !is_here([203, 0, 113, 1].into()));
    }

    #[test]
    fn time_is_counted_between_two_looks() {
        let at = Instant::now();
        let look = |seconds, used| Served {
            at: at + std::time::Duration::from_secs(seconds),
            ticks: BTreeMap::from([(7, used)]),
        };
        assert!((look(2, 150).percent_since(&look(0, 50), 2) - 25.0).abs() < 1e-9);
        let new = Served { at: at + std::time::Duration::from_secs(2), ticks: BTreeMap::from([(9, 150)]) };
        assert!(new.percent_since(&look(0, 50), 2).abs() < 1e-9, "what began meanwhile is not known");
    }
}
