//! Who this process is, so that another process, perhaps on another machine, can tell whether it is dead.
//!
//! A process is named by its boot (an identity the kernel draws when it starts), its number, and when it was started: numbers
//! are used again, those three together are not. Containers have numbers and clocks of their own, so the namespaces count too.
//!
//! Invariant: what is called dead is dead. Where this cannot be known, it is not.
//!
//! Not here: machines that are dead. Machine identities are copied with virtual machines, so none is a proof.
#![allow(unsafe_code)]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::Rt;

/// A process, as others know it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// The machine's name, for people.
    pub name: String,
    /// The machine; zero when it has no identity. Copies of a virtual machine share it.
    pub machine: u128,
    /// This run of the machine's kernel; zero when it is not known.
    pub boot: u128,
    /// The process's number.
    pub pid: u32,
    /// When it was started, in the kernel's clock ticks since the boot.
    pub started: u64,
    /// What its number and its start mean: the namespaces of processes and of clocks; zero when they are not known.
    pub namespaces: [u64; 2],
}

impl Host {
    /// This process.
    pub(crate) fn this() -> Host {
        let namespace = |name: &str| fs::metadata(Path::new("/proc/self/ns").join(name)).map_or(0, |m| m.ino());
        Host {
            name: text("/proc/sys/kernel/hostname").unwrap_or_else(|| "unknown".to_owned()),
            machine: text("/etc/machine-id").and_then(|id| number(&id)).unwrap_or(0),
            boot: text("/proc/sys/kernel/random/boot_id").and_then(|id| number(&id)).unwrap_or(0),
            pid: std::process::id(),
            started: started(std::process::id()).unwrap_or(0),
            namespaces: [namespace("pid"), namespace("time")],
        }
    }

    /// A process of the modelled world: `machine` is one of several, `world` the runtime.
    pub(crate) fn modelled(machine: u64, world: u64) -> Host {
        let name = format!("host-{machine}");
        let id = u128::from(machine) + 1;
        Host { name, machine: id, boot: id, pid: world as u32, started: world, namespaces: [1, 1] }
    }

    /// Whether the two are of one boot and mean the same by a process's number and start.
    fn compares(&self, other: &Host) -> bool {
        let known = self.boot != 0 && self.started != 0 && !self.namespaces.contains(&0);
        known && other.started != 0 && self.boot == other.boot && self.namespaces == other.namespaces
    }
}

impl Rt {
    /// Who this process is.
    #[must_use]
    pub fn host(&self) -> Host {
        self.inner.host()
    }

    /// Whether another process is known to be dead. False does not mean that it lives.
    #[must_use]
    pub fn is_dead(&self, other: &Host) -> bool {
        let own = self.host();
        if !own.compares(other) {
            return false;
        }
        if self.is_modelled() {
            return !LIVING.lock().unwrap_or_else(PoisonError::into_inner).contains(&other.started);
        }
        !exists(other.pid)
            || started(other.pid).is_some_and(|since| since != other.started)
            || is_empty_shell(other.pid)
    }
}

impl Rt {
    /// Whether another process is known to live, if only stopped. False does not mean that it is dead.
    #[must_use]
    pub fn is_living(&self, other: &Host) -> bool {
        let own = self.host();
        if !own.compares(other) {
            return false;
        }
        if self.is_modelled() {
            return LIVING.lock().unwrap_or_else(PoisonError::into_inner).contains(&other.started);
        }
        started(other.pid) == Some(other.started) && !is_empty_shell(other.pid)
    }
}

/// The runtimes of the modelled world that have not ended.
static LIVING: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

/// A runtime of the modelled world begins or ends.
pub(crate) fn lives(world: u64, lives: bool) {
    let mut living = LIVING.lock().unwrap_or_else(PoisonError::into_inner);
    if lives {
        living.insert(world);
    } else {
        living.remove(&world);
    }
}

/// Whether a process of this number exists, whoever may look at it.
fn exists(pid: u32) -> bool {
    let Ok(pid) = i32::try_from(pid) else { return true };
    // SAFETY: signal 0 is not sent; the call only looks whether it could be.
    let answer = unsafe { libc::kill(pid, 0) };
    answer == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

/// Whether a process has ended and only waits to be asked for its status: none of its threads runs.
fn is_empty_shell(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    let mut states = threads.map(|thread| {
        let stat = fs::read_to_string(thread.ok()?.path().join("stat")).ok()?;
        fields(&stat)?.next().map(str::to_owned)
    });
    let ended = |state: Option<String>| state.is_some_and(|s| s == "Z" || s == "X");
    let first = states.next();
    first.is_some_and(ended) && states.all(ended)
}

/// When a process was started: field 22 of its line in /proc.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    fields(&stat)?.nth(19)?.parse().ok()
}

/// The fields behind the program's name, which may contain anything: the state is the first.
fn fields(stat: &str) -> Option<impl Iterator<Item = &str>> {
    Some(stat.rsplit_once(')')?.1.split_whitespace())
}

fn text(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|t| !t.is_empty())
}

/// An identity in hexadecimal, with or without hyphens.
fn number(id: &str) -> Option<u128> {
    u128::from_str_radix(&id.replace('-', ""), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn sleeper() -> (std::process::Child, Host) {
        let child = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap();
        let host = Host { pid: child.id(), started: started(child.id()).unwrap(), ..Host::this() };
        (child, host)
    }

    #[test]
    fn this_process_is_known_and_lives() {
        let rt = Rt::real().unwrap();
        let own = rt.host();
        assert!(own.boot != 0 && own.started != 0 && !own.namespaces.contains(&0), "{own:?}");
        assert!(!rt.is_dead(&own));
    }

    #[test]
    fn the_dead_are_told_from_the_living() {
        let rt = Rt::real().unwrap();
        let (mut child, host) = sleeper();
        assert!(!rt.is_dead(&host) && rt.is_living(&host));
        // Another process has its number by now.
        assert!(rt.is_dead(&Host { started: host.started - 1, ..host.clone() }));
        child.kill().unwrap();
        // It may take a moment to end, and nobody has asked for its status yet.
        while !rt.is_dead(&host) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(rt.is_dead(&host));
        // Elsewhere its number, its start and its boot mean nothing.
        for elsewhere in [
            Host { boot: host.boot ^ 1, ..host.clone() },
            Host { namespaces: [host.namespaces[0] ^ 1, host.namespaces[1]], ..host.clone() },
            Host { namespaces: [host.namespaces[0], host.namespaces[1] ^ 1], ..host.clone() },
            Host { started: 0, ..host.clone() },
        ] {
            assert!(!rt.is_dead(&elsewhere), "{elsewhere:?}");
        }
    }

    #[test]
    fn modelled_processes_die_with_their_runtime() {
        let (one, two, far) = (Rt::modelled(1), Rt::modelled(2), Rt::modelled_on(3, std::time::Duration::ZERO, 7));
        let host = one.host();
        assert!(!two.is_dead(&host));
        one.end();
        assert!(two.is_dead(&host) && !far.is_dead(&host));
    }
}
