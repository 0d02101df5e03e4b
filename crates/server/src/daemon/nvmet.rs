//! Verbs on exports by the kernel's NVMe target, and what keeps the kernel's tree as it shall be.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::rc::Weak;
use std::time::Duration;

use api::{AlarmView, Done, Kind, Problem, Severity, TargetView, VERSION, VolumeView};
use futures::lock::MutexGuard;
use uuid::Uuid;

use super::Data;
use crate::nvmet::plan::{ArrayNow, Plan, plan};
use crate::nvmet::process::{PATIENCE, Silence};
use crate::nvmet::tree::{Applied, Cause, Trouble};
use crate::nvmet::{Address, Export, Key, port_of};
use crate::ops::open::Opened;
use crate::subsystem::nqn;

/// How often it is looked whether something has changed.
const LOOK: Duration = Duration::from_secs(2);
/// What could not be done is tried again so late; what was done is looked at again.
const AGAIN: Duration = Duration::from_secs(15);
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// How long hosts that come back are kept waiting for devices that are not there yet.
const DEVICES_PATIENCE: Duration = Duration::from_secs(60);
/// Numbers that are tried for a port: other programs have some.
const PORTS_MAX: usize = 64;
/// What problems are about.
const WHAT: &str = "export by the kernel's target";
/// Error numbers of Linux.
const EPERM: i32 = 1;
const EACCES: i32 = 13;
const ENODEV: i32 = 19;
const EINVAL: i32 = 22;
const EROFS: i32 = 30;
const EADDRINUSE: i32 = 98;
const EADDRNOTAVAIL: i32 = 99;

impl Data {
    /// Sees to it that hosts find a volume at an address of the kernel's target; whether that is new.
    ///
    /// # Errors
    /// When the kernel cannot, or no host may connect. Then it is as it was before.
    pub async fn export_at(
        &self,
        opened: &Opened,
        volume: &VolumeView,
        at: Address,
    ) -> Result<(TargetView, bool), Problem> {
        let array = opened.array.first();
        let what = format!("volume {}/{} at {at}", array.name(), volume.name);
        self.may_be_exported(&what, opened)?;
        let (device, is_new_device) = self.attach(opened, volume).await?;
        let turn = self.targets.turn.lock().await;
        let listed = self.targets.listed()?;
        let (key, port) = ((volume.uuid, at.clone()), port_of(&listed, &at));
        let was_listed = listed.iter().any(|export| export.key() == key);
        if !was_listed {
            self.targets.put(Export { array: array.uuid(), volume: volume.uuid, at: at.clone(), port })?;
        }
        let written = self.write_targets().await;
        if self.targets.brought().contains(&key) {
            let view = TargetView {
                version: VERSION,
                array: array.name(),
                volume: volume.name.to_string(),
                uuid: volume.uuid,
                at: at.to_string(),
                subsystem: nqn(array.uuid()),
                namespace: self.number_of(opened, volume.uuid).unwrap_or_default(),
                device: device.device,
                notes: device.notes,
            };
            return Ok((view, !was_listed));
        }
        let why = written.map_or_else(|problem| problem, |applied| why_not(&what, &applied, array.uuid(), &at));
        // One that is late may yet have brought it: it stays listed.
        if !was_listed && why.code != "nvmet_late" {
            // Out of the kernel first, then off the list. Where nothing was begun, there is nothing in the kernel.
            let gone = match why.code == "nvmet_busy" {
                true => self.targets.take_off(|export| export.key() == key),
                false => self.end(BTreeSet::from([key.clone()])).await,
            };
            drop(turn);
            gone.err().iter().for_each(|problem| tracing::warn!("{}", problem.line()));
            if is_new_device && self.targets.listed_of(volume.uuid)?.is_empty() {
                let detached = self.detach(opened, volume, false).await;
                detached.err().iter().for_each(|problem| tracing::warn!("{}", problem.line()));
            }
        }
        Err(why)
    }

    fn may_be_exported(&self, what: &str, opened: &Opened) -> Result<(), Problem> {
        let name = opened.array.first().name();
        if opened.volatile {
            let why = "its array is in memory, and gone with this process: requests of hosts could not wait";
            return Err(Problem::refused("array_in_memory", what, why, "make an array on drives"));
        }
        if opened.read_only {
            let why = "its array is opened for reading only, and the kernel's target needs to write";
            return Err(Problem::refused("read_only", what, why, "serve it for writing"));
        }
        if self.targets.hosts(&name).is_empty() {
            let why = "no host is allowed by name, and the kernel's target admits only named hosts (--allow-any does not count)";
            let todo = "name the host: allow_hosts in the configuration, or `ashlar serve --allow-host NQN`; the name is in its /etc/nvme/hostnqn";
            return Err(Problem::refused("no_allowed_host", what, why, todo));
        }
        Ok(())
    }

    /// Takes a volume from an address of the kernel's target.
    ///
    /// # Errors
    /// When it is not there, or the kernel does not let go. Then it stays listed.
    pub async fn unexport(&self, opened: &Opened, volume: &VolumeView, at: &Address) -> Result<Done, Problem> {
        let what = format!("volume {}/{}", opened.array.first().name(), volume.name);
        let turn = self.targets.turn.lock().await;
        let listed = self.targets.listed_of(volume.uuid)?;
        if !listed.iter().any(|export| export.at == *at) {
            let at: Vec<String> = listed.iter().map(|export| export.at.to_string()).collect();
            let has = if at.is_empty() { "it has no such export".to_owned() } else { at.join(", ") };
            let todo = if at.is_empty() { "nothing".to_owned() } else { format!("it is exported at {has}") };
            return Err(Problem::new(Kind::NotFound, "not_exported", what, "it is not exported there", todo));
        }
        self.end(BTreeSet::from([(volume.uuid, at.clone())])).await?;
        drop(turn);
        let mut done = Done::new(format!("{what} is not exported at {at} any more"));
        if let Some(device) = self.blocks.place(opened.array.first().uuid(), volume.uuid).served() {
            done.notes.push(format!("it stays {} (`ashlar detach` takes that away)", device.path().display()));
        }
        Ok(done)
    }

    /// Before a volume's device goes for good: its exports go, or it is refused. None is made while the turn is held: the kernel's
    /// target opens devices without a claim, so that their removal does not notice it.
    ///
    /// # Errors
    /// When it has some and that is not forced, or the kernel does not let go of them.
    pub async fn end_exports(&self, what: &str, volume: Uuid, force: bool) -> Result<MutexGuard<'_, ()>, Problem> {
        let turn = self.targets.turn.lock().await;
        let listed = self.targets.listed_of(volume)?;
        if listed.is_empty() {
            return Ok(turn);
        }
        if !force {
            return Err(exported(what, &listed));
        }
        self.end(listed.iter().map(Export::key).collect()).await?;
        Ok(turn)
    }

    /// Refuses what hands an array over, or destroys it, while volumes of it are exported, unless it is forced.
    ///
    /// # Errors
    /// When some are.
    pub fn refuse_if_exported(&self, opened: &Opened, force: bool) -> Result<(), Problem> {
        let array = opened.array.first();
        let listed = self.targets.listed()?;
        let listed: Vec<Export> = listed.into_iter().filter(|export| export.array == array.uuid()).collect();
        match listed.is_empty() || force {
            true => Ok(()),
            false => Err(exported(&format!("array {}", array.name()), &listed)),
        }
    }

    /// Takes exports from the kernel, then off the list. The caller has the turn.
    async fn end(&self, keys: BTreeSet<Key>) -> Result<(), Problem> {
        self.targets.ending.borrow_mut().extend(keys.iter().cloned());
        let listed = self.targets.listed();
        let written = self.write_targets().await;
        self.targets.ending.borrow_mut().retain(|key| !keys.contains(key));
        let (applied, listed) = (written?, listed?);
        let is_meant = |export: &&Export| keys.contains(&export.key());
        let names: BTreeSet<String> = listed.iter().filter(is_meant).map(|export| nqn(export.array)).collect();
        // That another export of the array cannot be made is nothing to this one.
        let is_of = |trouble: &&Trouble| trouble.nqn.as_ref().is_some_and(|name| names.contains(name));
        let left = applied.troubles.iter().find(|trouble| trouble.is_left() && is_of(trouble));
        match left {
            Some(trouble) => Err(of_trouble(WHAT, trouble, None)),
            None => self.targets.take_off(|export| keys.contains(&export.key())),
        }
    }

    /// Before arrays are closed by a verb, and before their devices go: takes their subsystems from the kernel. `Blocks::end` was said
    /// before. They are brought again when the array is served again.
    ///
    /// # Errors
    /// When the kernel does not let go of them, unless it is forced.
    pub async fn end_targets(&self, arrays: &[Uuid], force: bool) -> Result<(), Problem> {
        let listed = match self.targets.listed() {
            Err(problem) if !force => return Err(problem),
            listed => listed.unwrap_or_default(),
        };
        if !listed.iter().any(|export| arrays.contains(&export.array)) {
            return Ok(());
        }
        let _turn = self.targets.turn.lock().await;
        let has_device = |array: Uuid| self.blocks.places(Some(array)).iter().any(|place| place.served().is_some());
        let left = |applied: &Applied| {
            let of = |trouble: &Trouble| arrays.iter().copied().find(|array| trouble.nqn == Some(nqn(*array)));
            // What nobody serves waits in the kernel as before, for the next server.
            let is_left = |t: &&Trouble| of(t).is_some_and(|array| t.cause != Cause::NotServed || has_device(array));
            applied.troubles.iter().find(is_left).map(|trouble| of_trouble(WHAT, trouble, None))
        };
        let ended = self.write_targets().await.map_or_else(Some, |applied| left(&applied));
        match ended {
            Some(problem) if !force => Err(problem),
            Some(problem) => {
                tracing::warn!("{}", problem.line());
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// The array does not come back here: no export of it is listed any more, unless something of it may be in the kernel. That is
    /// taken away once the array is known no more.
    pub(super) fn forget_targets(&self, array: Uuid) {
        if self.targets.problem().is_some() {
            return;
        }
        if let Err(problem) = self.targets.take_off(|export| export.array == array) {
            tracing::warn!("{}", problem.line());
        }
    }

    /// The server leaves (`Blocks::leave` was said): waits until nothing is being written, for what is written may wait for a device.
    pub(super) async fn leave_targets(&self) {
        drop(self.targets.turn.lock().await);
    }

    /// Where the kernel's target brings a volume.
    pub(super) fn exported_at(&self, volume: Uuid) -> Vec<String> {
        let brought = self.targets.brought();
        brought.iter().filter(|(of, _)| *of == volume).map(|(_, at)| at.to_string()).collect()
    }

    /// What the kernel's target could not do last.
    pub(super) fn target_alarm(&self) -> Option<AlarmView> {
        let problem = self.targets.problem()?;
        Some(AlarmView {
            code: "nvmet".to_owned(),
            severity: Severity::Warning,
            seat: None,
            what: format!("Exports by the kernel's target: {}: {}", problem.what, problem.why),
            todo: problem.todo.clone(),
            acknowledged: None,
        })
    }

    /// Makes the kernel's tree equal to what is listed, and to how arrays stand now. The caller has the turn.
    async fn write_targets(&self) -> Result<Applied, Problem> {
        let rt = &self.world.rt;
        for _ in 0..PORTS_MAX {
            if self.blocks.leaves() {
                let todo = "send it again once the next server runs";
                return Err(Problem::failed("the kernel's target", "this Ashlar is stopping", todo));
            }
            let plan = self.target_plan()?;
            let written = self.targets.writer.write(rt, &self.targets.state_dir, &plan).await;
            let applied = match written {
                Ok(applied) => applied,
                Err(silence) => {
                    let problem = of_silence(&silence);
                    self.targets.failed(&plan, rt.now(), &problem);
                    return Err(problem);
                }
            };
            applied.steps.iter().for_each(|step| tracing::debug!("nvmet: {step}"));
            let taken = applied.troubles.iter().find(|trouble| trouble.cause == Cause::PortTaken);
            if let Some(number) = taken.and_then(|trouble| trouble.port) {
                self.targets.renumber(number)?;
                continue;
            }
            let first = applied.troubles.first();
            let problem = first.map(|trouble| of_trouble(WHAT, trouble, self.at_of(trouble)));
            self.targets.written(plan, rt.now(), &applied, problem);
            return Ok(applied);
        }
        Err(Problem::failed("the kernel's target", "other programs have the numbers of its ports", "remove some ports"))
    }

    fn at_of(&self, trouble: &Trouble) -> Option<Address> {
        let listed = self.targets.listed().unwrap_or_default();
        listed.into_iter().find(|export| Some(export.port) == trouble.port).map(|export| export.at)
    }

    fn target_plan(&self) -> Result<Plan, Problem> {
        let listed = self.targets.listed()?;
        let now = |array| self.array_now(array);
        Ok(plan(&listed, &self.targets.ending.borrow(), &self.targets.resized.borrow(), now))
    }

    fn array_now(&self, array: Uuid) -> ArrayNow {
        let places = self.blocks.places(Some(array)).into_iter();
        let devices: BTreeMap<Uuid, PathBuf> =
            places.filter_map(|place| Some((place.volume, place.served()?.path()))).collect();
        if !self.blocks.may_begin(array) {
            self.targets.since.borrow_mut().remove(&array);
            return ArrayNow::Ending(devices.into_values().collect());
        }
        let served = self.served.borrow();
        let opened = served.values().find(|opened| opened.array.first().uuid() == array);
        match opened {
            Some(opened) if !opened.read_only => {
                let (name, now) = (opened.array.first().name(), self.world.rt.now());
                let since = *self.targets.since.borrow_mut().entry(array).or_insert(now);
                let number = |v: array::Volume| (v.uuid(), (v.id().0, devices.get(&v.uuid()).cloned()));
                ArrayNow::Served {
                    hosts: self.targets.hosts(&name),
                    name,
                    volumes: opened.array.first().live_volumes().into_iter().map(number).collect(),
                    patient: now - since < DEVICES_PATIENCE,
                }
            }
            Some(_) => ArrayNow::Waiting,
            None => {
                self.targets.since.borrow_mut().remove(&array);
                let known = self.world.registry.list();
                let is_unknown = known.is_ok_and(|known| known.iter().all(|known| known.uuid != array));
                if is_unknown { ArrayNow::Ending(BTreeSet::new()) } else { ArrayNow::Waiting }
            }
        }
    }

    fn number_of(&self, opened: &Opened, volume: Uuid) -> Option<u32> {
        opened.array.first().live_volumes().into_iter().find(|v| v.uuid() == volume).map(|v| v.id().0)
    }

    /// Writes the tree where something has changed, or could not be done, or was not looked at for long.
    async fn keep_targets_once(&self) -> Result<(), Problem> {
        if self.blocks.leaves() || self.targets.listed()?.is_empty() {
            return Ok(());
        }
        let plan = self.target_plan()?;
        if !self.targets.is_due(&plan, self.world.rt.now(), (AGAIN, LOOK_AGAIN)) {
            return Ok(());
        }
        let _turn = self.targets.turn.lock().await;
        self.write_targets().await?;
        if self.targets.problem().is_some() {
            return Ok(());
        }
        // What is of arrays that nobody knows any more, and of volumes that were deleted while no server ran, is out of the kernel.
        let is_gone = |export: &Export| match self.array_now(export.array) {
            ArrayNow::Served { volumes, .. } => !volumes.contains_key(&export.volume),
            ArrayNow::Ending(_) => self.blocks.may_begin(export.array),
            ArrayNow::Waiting => false,
        };
        self.targets.take_off(is_gone)
    }
}

/// Keeps the kernel's tree as it shall be for as long as the server lives.
pub async fn keep_targets(data: Weak<Data>) {
    let mut said = None;
    while let Some(data) = data.upgrade() {
        let rt = data.world.rt.clone();
        let failed = data.keep_targets_once().await.err();
        let problem = failed.or_else(|| data.targets.problem()).map(|problem| problem.line());
        if problem != said {
            match &problem {
                Some(line) => tracing::error!("{line}; tried again every {} s", AGAIN.as_secs()),
                None => tracing::info!("exports by the kernel's target are in order"),
            }
            said = problem;
        }
        drop(data);
        rt.sleep(LOOK).await;
    }
}

/// The refusal of what exports stand in the way of.
fn exported(what: &str, listed: &[Export]) -> Problem {
    let at: BTreeSet<String> = listed.iter().map(|export| export.at.to_string()).collect();
    let why = format!("the kernel's target exports it at {}", at.into_iter().collect::<Vec<_>>().join(", "));
    let todo = "`ashlar export --nvmet ADDRESS --remove ARRAY/VOLUME` first; --force does that, whoever is connected";
    Problem::refused("volume_exported", what, why, todo)
}

/// Why hosts do not find an export.
fn why_not(what: &str, applied: &Applied, array: Uuid, at: &Address) -> Problem {
    let name = nqn(array);
    let is_of = |trouble: &&Trouble| trouble.nqn.as_ref().is_none_or(|of| *of == name);
    match applied.troubles.iter().find(is_of) {
        Some(trouble) => of_trouble(what, trouble, Some(at.clone())),
        None => {
            let why = "a block device of its array's exports is not served yet";
            Problem::failed(what, why, "look at the server's log, and try again")
        }
    }
}

fn of_silence(silence: &Silence) -> Problem {
    let what = "the kernel's target";
    match silence {
        Silence::Busy => {
            let why = "a process that writes its tree has not ended yet";
            let todo = "wait until it has (`pgrep -af nvmet-apply`); what its device was asked must be answered first";
            Problem::refused("nvmet_busy", what, why, todo)
        }
        Silence::Late => {
            let seconds = PATIENCE.as_secs();
            let why = format!("the process that writes its tree has not ended within {seconds} s; it is left alone");
            let todo = "`dmesg` may say more; what is listed is tried again once it has ended";
            Problem::refused("nvmet_late", what, why, todo)
        }
        Silence::Broken(why) => Problem::failed(what, why, "this is a bug: please report it"),
    }
}

/// A trouble, in words; `at` is the address that its port has.
fn of_trouble(what: &str, trouble: &Trouble, at: Option<Address>) -> Problem {
    let refused = |code: &str, why: String, todo: &str| Problem::refused(code, what, why, todo);
    let at = at.map_or_else(|| "the address".to_owned(), |at| at.to_string());
    match &trouble.cause {
        Cause::NoTarget => {
            let todo = "load it: `modprobe nvmet` as root; the server needs root, and a kernel with CONFIG_NVME_TARGET";
            refused("nvmet_missing", "this kernel has no NVMe target, or it is not loaded".to_owned(), todo)
        }
        Cause::PortTaken => {
            refused("nvmet_port_taken", "another program has the port's number".to_owned(), "try again")
        }
        Cause::NotServed => {
            let why = format!(
                "one of its devices is not served: the kernel would wait for it without a limit (`{}`)",
                trouble.step
            );
            refused("nvmet_not_served", why, "serve the array again first")
        }
        Cause::Kernel { errno: EPERM | EACCES | EROFS, .. } => {
            let why = format!("this process may not write the kernel's tree (`{}`)", trouble.step);
            refused(
                "nvmet_permission",
                why,
                "run the server as root; the packaged unit runs as the user ashlar and may not",
            )
        }
        Cause::Kernel { errno: EADDRINUSE, .. } => {
            let todo = "choose another port, or stop the program that has it (our own NVMe/TCP export, or `ls /sys/kernel/config/nvmet/ports`)";
            refused("nvmet_address", format!("{at} is in use"), todo)
        }
        Cause::Kernel { errno: EADDRNOTAVAIL, .. } => refused(
            "nvmet_address",
            format!("this machine does not have the address {at}"),
            "`ip address` shows those that it has",
        ),
        Cause::Kernel { errno: ENODEV, .. } if trouble.port.is_some() => {
            let todo = "`rdma link` shows the devices; the address must be that of such a device's network interface";
            refused("nvmet_address", format!("no RDMA device has {at}"), todo)
        }
        Cause::Kernel { errno: EINVAL, .. } if trouble.port.is_some() && trouble.step.starts_with("ln") => {
            let todo = "`dmesg` says more; its module may be missing: `modprobe nvmet-rdma`, nvmet-tcp or nvmet-fc, and a driver of the adapter";
            refused("nvmet_transport", format!("the kernel's target cannot serve at {at}"), todo)
        }
        Cause::Kernel { text, .. } => {
            let why = format!("{text} (`{}` in /sys/kernel/config/nvmet)", trouble.step);
            Problem::refused(
                "nvmet_failed",
                what,
                why,
                "`dmesg` may say more; it is tried again every 15 s once it is listed",
            )
        }
    }
}
