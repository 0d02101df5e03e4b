//! The kernel's tree of its NVMe target (configfs), made equal to a plan.
//!
//! ```text
//!   hosts/NQN                                     made, never removed: they are of all subsystems
//!   subsystems/NQN/ attr_serial ...               ours by its name
//!                   allowed_hosts/NQN             -> hosts/NQN
//!                   namespaces/NSID/ device_path device_uuid device_nguid enable
//!   ports/N/        addr_trtype addr_traddr ...   ours by its listed number and its address
//!                   subsystems/NQN                -> subsystems/NQN: from here on hosts come
//! ```
//!
//! Order: first hosts are refused that may not; then what shall be gone goes, ports first; then hosts, namespaces, ports come. Each
//! step is tried, whatever became of those before, unless it needs them.
//!
//! Invariants:
//! - a namespace is disabled only when its device is served, or the kernel has it no more: disabling waits in the kernel,
//!   uninterruptibly, for what the device was asked;
//! - what is others' is not touched: ports with another address, subsystems with another name;
//! - a subsystem comes to a port when its hosts and namespaces are there.
//!
//! Not here: when (`daemon::nvmet`), and by whom ([`super::process`]).

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::plan::{Namespace, Plan, Port, Wanted};

/// Controllers of ours count from 1; those of the kernel's target from here, so that one host may have both of one subsystem.
const CONTROLLERS_FROM: &str = "32768";
/// Connections are cut when a subsystem leaves a port. What they still bring in this time finds its namespace.
const CUT: Duration = Duration::from_millis(200);
/// Error numbers of Linux.
const EEXIST: i32 = 17;

/// What could not be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// The subsystem that it is about.
    pub nqn: Option<String>,
    /// The port that it is about.
    pub port: Option<u16>,
    /// Why.
    pub cause: Cause,
    /// The step, as a shell would do it.
    pub step: String,
}

impl Trouble {
    /// Whether something is still there that shall not be.
    #[must_use]
    pub fn is_left(&self) -> bool {
        ["rm ", "rmdir ", "echo 0 >"].iter().any(|begin| self.step.starts_with(begin))
    }
}

/// Why something could not be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// The kernel has no target.
    NoTarget,
    /// The number of the port is another program's.
    PortTaken,
    /// The namespace's device has no server.
    NotServed,
    /// The kernel's error.
    Kernel {
        /// Its number.
        errno: i32,
        /// Its text.
        text: String,
    },
}

/// A namespace that hosts find at a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Brought {
    /// The subsystem.
    pub nqn: String,
    /// The namespace.
    pub nsid: u32,
    /// The port.
    pub port: u16,
}

/// What became of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// What hosts find.
    pub brought: BTreeSet<Brought>,
    /// What could not be done, in order.
    pub troubles: Vec<Trouble>,
    /// What was done, in order.
    pub steps: Vec<String>,
}

/// The tree.
pub struct Tree {
    /// Its root: `/sys/kernel/config/nvmet`.
    pub root: PathBuf,
    /// Where the kernel lists block devices: `/sys/block`.
    pub block: PathBuf,
    /// Removes a directory with what the kernel has put into it.
    pub remove: fn(&Path) -> io::Result<()>,
    /// How long connections may take to be cut.
    pub cut: Duration,
}

impl Tree {
    /// The kernel's.
    #[must_use]
    pub fn of_kernel() -> Tree {
        let remove = |path: &Path| fs::remove_dir(path);
        Tree { root: "/sys/kernel/config/nvmet".into(), block: "/sys/block".into(), remove, cut: CUT }
    }

    /// Makes it equal to the plan.
    #[must_use]
    pub fn apply(&self, plan: &Plan) -> Applied {
        let mut work = Work { tree: self, done: Applied::default(), nqn: None, port: None };
        if !self.root.is_dir() {
            if !plan.subsystems.is_empty() {
                work.trouble(Cause::NoTarget, format!("cd {}", self.root.display()));
            }
            return work.done;
        }
        let refused: Vec<&Wanted> = plan.subsystems.iter().filter(|wanted| work.refuse(wanted).is_some()).collect();
        plan.gone.iter().for_each(|nqn| {
            work.take_away(nqn, &plan.served);
        });
        let ready: Vec<&Wanted> = refused.into_iter().filter(|wanted| work.subsystem(wanted).is_some()).collect();
        ready.iter().for_each(|wanted| work.namespaces(wanted, &plan.served));
        plan.ports.iter().for_each(|port| {
            work.port(port, &ready, &plan.subsystems);
        });
        plan.ports_gone.iter().for_each(|port| {
            work.port_gone(port, plan);
        });
        work.look(plan);
        work.done
    }
}

/// A plan that is being carried out. Steps that fail are noted, and are `None`.
struct Work<'a> {
    tree: &'a Tree,
    done: Applied,
    /// What is being worked at.
    nqn: Option<String>,
    port: Option<u16>,
}

impl Work<'_> {
    fn trouble(&mut self, cause: Cause, step: String) {
        self.done.troubles.push(Trouble { nqn: self.nqn.clone(), port: self.port, cause, step });
    }

    fn step(&mut self, step: String, result: io::Result<()>) -> Option<()> {
        match result {
            Ok(()) => {
                self.done.steps.push(step);
                Some(())
            }
            Err(e) => {
                let cause = Cause::Kernel { errno: e.raw_os_error().unwrap_or(0), text: e.to_string() };
                self.trouble(cause, step);
                None
            }
        }
    }

    fn write(&mut self, file: &Path, text: &str) -> Option<()> {
        self.step(format!("echo {text} >{}", self.short(file)), fs::write(file, text))
    }

    /// The same, if the file says something else.
    fn set(&mut self, file: &Path, text: &str) -> Option<()> {
        if read(file) == text { Some(()) } else { self.write(file, text) }
    }

    fn make(&mut self, dir: &Path) -> Option<()> {
        if dir.is_dir() {
            return Some(());
        }
        let made = match fs::create_dir_all(dir) {
            // Another program was faster.
            Err(e) if e.raw_os_error() == Some(EEXIST) => Ok(()),
            made => made,
        };
        self.step(format!("mkdir {}", self.short(dir)), made)
    }

    fn remove(&mut self, dir: &Path) -> Option<()> {
        self.step(format!("rmdir {}", self.short(dir)), gone((self.tree.remove)(dir)))
    }

    fn link(&mut self, to: &Path, link: &Path) -> Option<()> {
        let linked = match symlink(to, link) {
            Err(e) if e.raw_os_error() == Some(EEXIST) => Ok(()),
            linked => linked,
        };
        self.step(format!("ln -s {} {}", self.short(to), self.short(link)), linked)
    }

    fn unlink(&mut self, link: &Path) -> Option<()> {
        self.step(format!("rm {}", self.short(link)), gone(fs::remove_file(link)))
    }

    fn short(&self, path: &Path) -> String {
        path.strip_prefix(&self.tree.root).unwrap_or(path).display().to_string()
    }

    fn subsystem_dir(&self, nqn: &str) -> PathBuf {
        self.tree.root.join("subsystems").join(nqn)
    }

    fn port_dir(&self, number: u16) -> PathBuf {
        self.tree.root.join("ports").join(number.to_string())
    }

    /// Begins with a subsystem.
    fn about(&mut self, nqn: Option<&str>, port: Option<u16>) {
        self.nqn = nqn.map(str::to_owned);
        self.port = port;
    }

    /// Hosts that may not come any more, do not.
    fn refuse(&mut self, wanted: &Wanted) -> Option<()> {
        self.about(Some(&wanted.nqn), None);
        let dir = self.subsystem_dir(&wanted.nqn);
        if !dir.is_dir() {
            return Some(());
        }
        let mut all = Some(());
        if read(&dir.join("attr_allow_any_host")) == "1" {
            all = all.and(self.write(&dir.join("attr_allow_any_host"), "0"));
        }
        for host in names(&dir.join("allowed_hosts")) {
            if !wanted.hosts.contains(&host) {
                all = self.unlink(&dir.join("allowed_hosts").join(host)).and(all);
            }
        }
        all
    }

    /// Whether what is done with this device cannot wait for ever.
    fn may_touch(&self, device: &str, served: &BTreeSet<PathBuf>) -> bool {
        let is_there = Path::new(device).file_name().is_some_and(|name| self.tree.block.join(name).exists());
        !is_there || served.contains(Path::new(device))
    }

    /// A namespace that is enabled on a device that nobody serves.
    fn stuck(&self, namespace: &Path, served: &BTreeSet<PathBuf>) -> bool {
        read(&namespace.join("enable")) == "1" && !self.may_touch(&read(&namespace.join("device_path")), served)
    }

    /// A subsystem goes, with all that it has; or nothing of it, where it has a device that nobody serves.
    fn take_away(&mut self, nqn: &str, served: &BTreeSet<PathBuf>) -> Option<()> {
        self.about(Some(nqn), None);
        let dir = self.subsystem_dir(nqn);
        if !dir.is_dir() {
            return Some(());
        }
        let namespaces = dir.join("namespaces");
        let all: Vec<PathBuf> = names(&namespaces).into_iter().map(|name| namespaces.join(name)).collect();
        if let Some(stuck) = all.iter().find(|namespace| self.stuck(namespace, served)) {
            let step = format!("echo 0 >{}", self.short(&stuck.join("enable")));
            self.trouble(Cause::NotServed, step);
            return None;
        }
        let mut is_cut = false;
        let ports = self.tree.root.join("ports");
        for port in names(&ports) {
            let link = ports.join(port).join("subsystems").join(nqn);
            if is_link(&link) {
                self.unlink(&link)?;
                is_cut = true;
            }
        }
        if is_cut {
            thread::sleep(self.tree.cut);
        }
        for namespace in all {
            self.disable(&namespace)?;
            self.remove(&namespace)?;
        }
        for host in names(&dir.join("allowed_hosts")) {
            self.unlink(&dir.join("allowed_hosts").join(host))?;
        }
        self.remove(&dir)
    }

    fn disable(&mut self, namespace: &Path) -> Option<()> {
        match read(&namespace.join("enable")).as_str() {
            "1" => self.write(&namespace.join("enable"), "0"),
            _ => Some(()),
        }
    }

    /// The subsystem, and its hosts.
    fn subsystem(&mut self, wanted: &Wanted) -> Option<()> {
        self.about(Some(&wanted.nqn), None);
        let dir = self.subsystem_dir(&wanted.nqn);
        self.make(&dir)?;
        // The serial number is written last: with it all is said. A host that has seen the others holds them fast.
        if read(&dir.join("attr_serial")) != wanted.serial {
            self.write(&dir.join("attr_allow_any_host"), "0")?;
            self.write(&dir.join("attr_cntlid_min"), CONTROLLERS_FROM)?;
            self.write(&dir.join("attr_model"), &wanted.model)?;
            self.write(&dir.join("attr_serial"), &wanted.serial)?;
        }
        self.make(&dir.join("allowed_hosts"))?;
        for host in &wanted.hosts {
            let link = dir.join("allowed_hosts").join(host);
            if !is_link(&link) {
                let known = self.tree.root.join("hosts").join(host);
                // Others come, whatever becomes of this one.
                let _noted = self.make(&known).and_then(|()| self.link(&known, &link));
            }
        }
        Some(())
    }

    /// Its namespaces.
    fn namespaces(&mut self, wanted: &Wanted, served: &BTreeSet<PathBuf>) {
        self.about(Some(&wanted.nqn), None);
        let dir = self.subsystem_dir(&wanted.nqn).join("namespaces");
        for name in names(&dir) {
            if !wanted.namespaces.iter().any(|namespace| namespace.nsid.to_string() == name) {
                let _noted = self.namespace_gone(&dir.join(name), served);
            }
        }
        for namespace in &wanted.namespaces {
            if let Some(device) = &namespace.device {
                let _noted = self.namespace(&dir, namespace, device, served);
            }
        }
    }

    fn namespace_gone(&mut self, namespace: &Path, served: &BTreeSet<PathBuf>) -> Option<()> {
        if self.stuck(namespace, served) {
            let step = format!("echo 0 >{}", self.short(&namespace.join("enable")));
            self.trouble(Cause::NotServed, step);
            return None;
        }
        self.disable(namespace)?;
        self.remove(namespace)
    }

    fn namespace(&mut self, dir: &Path, wanted: &Namespace, device: &Path, served: &BTreeSet<PathBuf>) -> Option<()> {
        let dir = dir.join(wanted.nsid.to_string());
        self.make(&dir)?;
        let (device, uuid) = (device.display().to_string(), wanted.uuid.to_string());
        let at = |name: &str| dir.join(name);
        if read(&at("enable")) == "1" {
            if read(&at("device_path")) == device && read(&at("device_uuid")) == uuid {
                return if wanted.resized { self.write(&at("revalidate_size"), "1") } else { Some(()) };
            }
            if self.stuck(&dir, served) {
                self.trouble(Cause::NotServed, format!("echo 0 >{}", self.short(&at("enable"))));
                return None;
            }
            self.disable(&dir)?;
        }
        self.set(&at("device_path"), &device)?;
        self.set(&at("device_uuid"), &uuid)?;
        self.set(&at("device_nguid"), &uuid)?;
        self.write(&at("enable"), "1")
    }

    /// Whether a port is at this address.
    fn is_at(&self, port: &Port) -> bool {
        let dir = self.port_dir(port.number);
        let says = |name: &str, text: &str| read(&dir.join(name)) == text;
        says("addr_trtype", port.at.transport.word())
            && says("addr_adrfam", port.at.family())
            && says("addr_traddr", &port.at.host())
            && says("addr_trsvcid", &port.at.service())
    }

    /// A port, and the subsystems that hosts find there.
    fn port(&mut self, port: &Port, ready: &[&Wanted], all: &[Wanted]) -> Option<()> {
        self.about(None, Some(port.number));
        let dir = self.port_dir(port.number);
        if !self.is_at(port) {
            // One that was begun, and nothing more, is made anew.
            let is_new = read(&dir.join("addr_trsvcid")).is_empty() && names(&dir.join("subsystems")).is_empty();
            if dir.is_dir() && !is_new {
                self.trouble(Cause::PortTaken, format!("mkdir {}", self.short(&dir)));
                return None;
            }
            self.make(&dir)?;
            self.write(&dir.join("addr_trtype"), port.at.transport.word())?;
            self.write(&dir.join("addr_adrfam"), port.at.family())?;
            self.write(&dir.join("addr_traddr"), &port.at.host())?;
            // Last: with it all is said.
            self.write(&dir.join("addr_trsvcid"), &port.at.service())?;
        }
        self.make(&dir.join("subsystems"))?;
        for wanted in all {
            let link = dir.join("subsystems").join(&wanted.nqn);
            if is_link(&link) && !wanted.ports.contains(&port.number) {
                self.about(Some(&wanted.nqn), Some(port.number));
                let _noted = self.unlink(&link);
            }
        }
        for wanted in ready {
            let link = dir.join("subsystems").join(&wanted.nqn);
            if wanted.ports.contains(&port.number) && !is_link(&link) && !wanted.hold && self.has_namespace(wanted) {
                self.about(Some(&wanted.nqn), Some(port.number));
                let to = self.subsystem_dir(&wanted.nqn);
                let _noted = self.link(&to, &link);
            }
        }
        Some(())
    }

    fn has_namespace(&self, wanted: &Wanted) -> bool {
        let dir = self.subsystem_dir(&wanted.nqn).join("namespaces");
        wanted.namespaces.iter().any(|n| read(&dir.join(n.nsid.to_string()).join("enable")) == "1")
    }

    /// A port goes, unless others have put something there.
    fn port_gone(&mut self, port: &Port, plan: &Plan) -> Option<()> {
        self.about(None, Some(port.number));
        let dir = self.port_dir(port.number);
        if !dir.is_dir() || !self.is_at(port) {
            return Some(());
        }
        for wanted in &plan.subsystems {
            let link = dir.join("subsystems").join(&wanted.nqn);
            if is_link(&link) {
                self.unlink(&link)?;
            }
        }
        if names(&dir.join("subsystems")).is_empty() { self.remove(&dir) } else { Some(()) }
    }

    /// What hosts find now.
    fn look(&mut self, plan: &Plan) {
        let mut brought = BTreeSet::new();
        for wanted in &plan.subsystems {
            let (nqn, dir) = (&wanted.nqn, self.subsystem_dir(&wanted.nqn).join("namespaces"));
            let is_enabled = |nsid: &u32| read(&dir.join(nsid.to_string()).join("enable")) == "1";
            let is_linked =
                |port: &&Port| self.is_at(port) && is_link(&self.port_dir(port.number).join("subsystems").join(nqn));
            let ports: Vec<u16> = plan.ports.iter().filter(is_linked).map(|port| port.number).collect();
            for nsid in wanted.namespaces.iter().map(|namespace| namespace.nsid).filter(is_enabled) {
                brought.extend(ports.iter().map(|port| Brought { nqn: nqn.clone(), nsid, port: *port }));
            }
        }
        self.done.brought = brought;
    }
}

/// What a file of the tree says; nothing where it is not there.
fn read(file: &Path) -> String {
    fs::read_to_string(file).map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// The names in a directory of the tree, in order.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn is_link(path: &Path) -> bool {
    path.is_symlink()
}

/// What is not there needs no removing.
fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests;
