//! Which cores and which drives are near each other, as sysfs tells it; and keeping a thread near some.
//!
//! Not here: which of them to choose (`server::placement`).

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Where sysfs is mounted.
pub const SYSFS: &str = "/sys";

/// A NUMA node: cores and memory that are near each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its number.
    pub id: u32,
    /// Its CPUs, in order; none for a node of memory alone.
    pub cpus: Vec<u32>,
}

/// The nodes of the machine whose sysfs this is, in order; none where the kernel knows no nodes.
#[must_use]
pub fn nodes(sysfs: &Path) -> Vec<Node> {
    let Ok(entries) = fs::read_dir(sysfs.join("devices/system/node")) else { return Vec::new() };
    let node = |entry: fs::DirEntry| {
        let id = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
        let cpus = fs::read_to_string(entry.path().join("cpulist")).ok()?;
        Some(Node { id, cpus: parse_list(&cpus)? })
    };
    let mut nodes: Vec<Node> = entries.flatten().filter_map(node).collect();
    nodes.sort_by_key(|n| n.id);
    nodes
}

/// The number of a block device, or of the device that a file lies on.
#[must_use]
pub fn device_of(path: &Path) -> Option<u64> {
    let meta = fs::metadata(path).ok()?;
    Some(if meta.file_type().is_block_device() { meta.rdev() } else { meta.dev() })
}

/// The node that a block device is attached to; `None` where sysfs does not say, or the paths to it are on several.
#[must_use]
pub fn node_of(sysfs: &Path, device: u64) -> Option<u32> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let directory = fs::canonicalize(sysfs.join(format!("dev/block/{major}:{minor}"))).ok()?;
    nearest(&directory).or_else(|| of_paths(directory.parent()?))
}

/// What the device says that this one is attached to, the nearest that says anything: -1 is nothing.
fn nearest(directory: &Path) -> Option<u32> {
    let said = |d: &Path| fs::read_to_string(d.join("numa_node")).ok()?.trim().parse().ok();
    directory.ancestors().find_map(said)
}

/// The node of all controllers of an NVMe subsystem, if it is one.
fn of_paths(subsystem: &Path) -> Option<u32> {
    let mut nodes = fs::read_dir(subsystem).ok()?.flatten().filter_map(|e| nearest(&fs::canonicalize(e.path()).ok()?));
    let first = nodes.next()?;
    nodes.all(|n| n == first).then_some(first)
}

/// The same CPUs, one of each physical core first, then their siblings; in order each.
#[must_use]
pub fn siblings_last(sysfs: &Path, cpus: &[u32]) -> Vec<u32> {
    let is_first = |cpu: &u32| {
        let of = sysfs.join(format!("devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"));
        let siblings = fs::read_to_string(of).ok().and_then(|list| parse_list(&list)).unwrap_or_default();
        siblings.iter().find(|s| cpus.contains(s)).is_none_or(|first| first == cpu)
    };
    let (mut first, others): (Vec<u32>, Vec<u32>) = cpus.iter().partition(|cpu| is_first(cpu));
    first.extend(others);
    first
}

/// CPUs that this thread may run on.
#[must_use]
pub fn allowed_cpus() -> Vec<u32> {
    let Ok(set) = sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).map(|cpu| cpu as u32).collect()
}

/// From now on this thread runs on `cpus` alone, and what it touches first lies near them.
///
/// # Errors
/// When none of them may be used.
pub fn run_on(cpus: &[u32]) -> io::Result<()> {
    let mut set = CpuSet::new();
    cpus.iter().map(|&cpu| cpu as usize).filter(|&cpu| cpu < CpuSet::MAX_CPU).for_each(|cpu| set.set(cpu));
    Ok(sched_setaffinity(None, &set)?)
}

/// "0-3,8" as the kernel writes it.
fn parse_list(text: &str) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for part in text.trim().split(',').filter(|p| !p.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        all.extend(first.parse().ok()?..=last.parse::<u32>().ok()?);
    }
    Some(all)
}

/// The same, to be read.
#[must_use]
pub fn list(cpus: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &cpu in cpus {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => runs.push((cpu, cpu)),
        }
    }
    let run = |&(first, last): &(u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    runs.iter().map(run).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_go_both_ways() {
        for text in ["", "0", "0-3", "0-3,8", "0,2,4,6", "0-15,32-47"] {
            assert_eq!(list(&parse_list(&format!("{text}\n")).unwrap()), text);
        }
        for wrong in ["a", "0-", "3-x", "-1"] {
            assert_eq!(parse_list(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_thread_stays_where_it_is_put() {
        let allowed = allowed_cpus();
        let put = allowed.last().copied().unwrap();
        std::thread::spawn(move || {
            run_on(&[put]).unwrap();
            assert_eq!(allowed_cpus(), [put]);
            assert!(run_on(&[]).is_err(), "a thread runs somewhere");
        })
        .join()
        .unwrap();
        assert_eq!(allowed_cpus(), allowed, "the others are left alone");
    }
}
