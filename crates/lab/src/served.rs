//! What serves a target on this machine: its CPU time is the target's, not that of others who disturb.
//!
//! | target | its server |
//! |---|---|
//! | an export | who listens at its socket, as Ashlar, nbdkit or SPDK do |
//! | a device of ublk | who has its other side open |
//! | a namespace over TCP from this machine | who listens at its address |
//! | a namespace of this machine's kernel (nvmet) | the server of the device behind it |
//!
//! Threads of the kernel count, too (md, loop, dm, nvmet). Programs of other users are only seen by root; what is not seen counts as
//! others', and so does the server of a kernel's NBD device, whose socket only the kernel has.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::target::{Kind, Target, controllers, disk_dir, told};

/// Ticks of a second that the kernel tells times in (USER_HZ).
const TICKS_PER_SEC: f64 = 100.0;
/// The process whose children are the kernel's threads.
const KERNEL: u32 = 2;

/// Where the kernel's target is told what it serves.
const NVMET: &str = "/sys/kernel/config/nvmet";
/// Devices behind namespaces that are behind others, at most.
const BEHIND_MAX: usize = 4;

/// What a server has open, by which it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Doors {
    /// Sockets by their inodes.
    sockets: Vec<u64>,
    /// The servers' sides of devices.
    devices: Vec<PathBuf>,
}

impl Doors {
    fn is_empty(&self) -> bool {
        self.sockets.is_empty() && self.devices.is_empty()
    }

    fn extend(&mut self, other: Doors) {
        self.sockets.extend(other.sockets);
        self.devices.extend(other.devices);
    }
}

/// CPU time of what serves some targets, so far.
#[derive(Clone, Debug)]
pub struct Served {
    at: Instant,
    ticks: BTreeMap<u32, u64>,
}

impl Served {
    /// Looks now; `sockets` are control sockets of servers that are known otherwise.
    pub fn look<'a>(targets: impl Iterator<Item = &'a Target>, sockets: &[&str]) -> Served {
        let sockets = sockets.iter().flat_map(|path| unix_inodes(path)).collect();
        let mut doors = Doors { sockets, devices: vec![] };
        for target in targets {
            doors.extend(doors_of(target));
        }
        let mut ticks = BTreeMap::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
            let Some((parent, used)) = fs::read_to_string(entry.path().join("stat")).ok().and_then(|t| stat(&t)) else {
                continue;
            };
            let serves = || !doors.is_empty() && holds(&entry.path(), &doors);
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

/// Whether a process has one of these open.
fn holds(process: &Path, doors: &Doors) -> bool {
    fs::read_dir(process.join("fd")).into_iter().flatten().flatten().any(|fd| {
        let link = fs::read_link(fd.path()).unwrap_or_default();
        let number = link.to_string_lossy().strip_prefix("socket:[").and_then(|t| t.strip_suffix(']')?.parse().ok());
        number.is_some_and(|n: u64| doors.sockets.contains(&n)) || doors.devices.contains(&link)
    })
}

/// What the servers of a target on this machine have open.
fn doors_of(target: &Target) -> Doors {
    match target.path().filter(|_| target.kind == Kind::Block).and_then(|path| fs::metadata(path).ok()) {
        Some(meta) => doors_of_disk(&disk_dir(meta.rdev()), Path::new(NVMET), BEHIND_MAX),
        None => Doors { sockets: listeners(target), devices: vec![] },
    }
}

/// The same of a disk, by its directory below /sys; `left` devices may be behind it.
fn doors_of_disk(disk: &Path, nvmet: &Path, left: usize) -> Doors {
    let mut doors = Doors::default();
    let name = disk.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if let Some(number) = name.strip_prefix("ublkb").filter(|number| number.parse::<u32>().is_ok()) {
        doors.devices.push(PathBuf::from(format!("/dev/ublkc{number}")));
    }
    let ways = controllers(disk);
    let addresses = ways.iter().filter_map(|way| told(&way.join("address")).as_deref().and_then(fabric_address));
    let here: Vec<u16> = addresses.filter(|(address, _)| is_here(*address)).map(|(_, port)| port).collect();
    doors.sockets.extend(here.iter().flat_map(|port| tcp_inodes(*port)));
    let subsystem = told(&disk.join("device/subsysnqn")).filter(|_| !here.is_empty() && left > 0);
    let namespaces = subsystem.map(|nqn| nvmet.join("subsystems").join(nqn).join("namespaces"));
    for namespace in namespaces.and_then(|all| fs::read_dir(all).ok()).into_iter().flatten().flatten() {
        let behind = told(&namespace.path().join("device_path")).and_then(|path| fs::metadata(path).ok());
        doors.extend(behind.map_or_else(Doors::default, |m| doors_of_disk(&disk_dir(m.rdev()), nvmet, left - 1)));
    }
    doors
}

/// Address and port of a controller: "traddr=10.0.0.5,trsvcid=4420,src_addr=...".
fn fabric_address(text: &str) -> Option<(IpAddr, u16)> {
    let of = |name: &str| text.split(',').find_map(|pair| pair.trim().strip_prefix(name));
    Some((of("traddr=")?.parse().ok()?, of("trsvcid=")?.parse().ok()?))
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
    fn who_has_the_other_side_of_a_disk_serves_it() {
        let dir = tempfile::tempdir().unwrap();
        let put = |place: &str, name: &str, value: &str| {
            fs::create_dir_all(dir.path().join(place)).unwrap();
            fs::write(dir.path().join(place).join(name), format!("{value}\n")).unwrap();
        };
        let doors = |disk: &str| doors_of_disk(&dir.path().join(disk), &dir.path().join("nvmet"), BEHIND_MAX);
        assert_eq!(doors("ublkb3").devices, [PathBuf::from("/dev/ublkc3")]);
        assert!(doors("ublkbx").is_empty() && doors("sda").is_empty());
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = tcp.local_addr().unwrap().port();
        let me = Path::new("/proc/self");
        // One controller, or a subsystem that has them.
        for (disk, place) in [("nvme0n1", "nvme0n1/device"), ("nvme1n1", "nvme1n1/device/nvme1")] {
            put(place, "transport", "tcp");
            put(place, "address", &format!("traddr=127.0.0.1,trsvcid={port},src_addr=127.0.0.1"));
            assert!(holds(me, &doors(disk)), "{disk}");
            put(place, "address", &format!("traddr=203.0.113.1,trsvcid={port}"));
            assert!(doors(disk).is_empty(), "{disk} of another machine");
        }
        let other_side = dir.path().join("ublkc9");
        let _open = fs::File::create(&other_side).unwrap();
        assert!(holds(me, &Doors { sockets: vec![], devices: vec![other_side] }));
        assert!(!holds(me, &Doors { sockets: vec![], devices: vec![dir.path().join("ublkc8")] }));
    }

    #[test]
    fn addresses_of_fabrics() {
        let of = |text: &str| fabric_address(text).map(|(address, port)| (address.to_string(), port));
        assert_eq!(of("traddr=10.0.0.5,trsvcid=4420,host_traddr=10.0.0.1"), Some(("10.0.0.5".to_owned(), 4420)));
        assert_eq!(of("traddr=fd00::1,trsvcid=4421"), Some(("fd00::1".to_owned(), 4421)));
        assert_eq!((of("0000:01:00.0"), of("traddr=nn-0x1:pn-0x2"), of("")), (None, None, None));
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
