//! Verbs on volumes' block devices, and what keeps them served.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Weak;
use std::time::Duration;

use api::{BlockDeviceView, ClientView, Done, Kind, Problem, VERSION, VolumeView};
use array::Volume;
use export::Used;
use export::ublk::{self, BlockDevice, ControlError, Left, UblkError};
use futures::future::{join, join_all};
use uuid::Uuid;

use super::Data;
use super::clients::UBLK;
use crate::blocks::{DEV, Listed, Place, Served, free_number, mark, names, problem};
use crate::namespace::VolumeNamespace;
use crate::ops::open::Opened;

/// How often what is listed and not served is tried again.
const AGAIN: Duration = Duration::from_secs(5);
/// What became of a device whose server died in a command that Linux before 6.19 does not end then.
const HANGS: &str =
    "it hangs in the kernel until the machine boots, since its server was killed while it was made or removed";
/// Numbers that are tried for a new device: other programs have some.
const NUMBERS_MAX: usize = 64;

impl Data {
    /// Sees to it that a volume is a block device; whether it was made now.
    ///
    /// # Errors
    /// When the kernel cannot, or this process may not.
    pub async fn attach(&self, opened: &Opened, volume: &VolumeView) -> Result<(BlockDeviceView, bool), Problem> {
        let place = self.blocks.place(opened.array.first().uuid(), volume.uuid);
        let _turn = place.turn.lock().await;
        if let Some(served) = place.served() {
            return Ok((device_view(opened, volume, &served, vec![]), false));
        }
        ublk::supported(&self.world.rt).await.map_err(|e| problem("block devices by ublk", &e))?;
        let (served, notes) = self.begin(opened, &place).await?;
        Ok((device_view(opened, volume, &served, notes), true))
    }

    /// Makes a volume's device, or takes over the one that a server left. The caller has the place's turn.
    async fn begin(&self, opened: &Opened, place: &Place) -> Result<(Served, Vec<String>), Problem> {
        let array = opened.array.first();
        let volume = live(opened, place.volume)?;
        let what = format!("volume {}/{}", array.name(), volume.name());
        let gone = || Problem::refused("array_changed", &what, "its array is being closed", "try again");
        let is_served = || self.served_as(opened.number()).is_some() && self.blocks.may_begin(place.array);
        let lease = opened.lease(&volume.name()).filter(|_| is_served()).ok_or_else(gone)?;
        let namespace = VolumeNamespace::new(&array.name(), opened, lease);
        let device = self.device_of(&what, place, (namespace, opened.read_only)).await?;
        self.blocks.put(place.listed(device.number(), true))?;
        // Much may have happened while the kernel worked.
        let live = live(opened, place.volume);
        if !is_served() || live.is_err() {
            if self.blocks.leaves() {
                device.leave().await;
            } else {
                device.remove(true).await.map_err(|e| problem(&what, &e))?;
            }
            return Err(live.err().unwrap_or_else(gone));
        }
        let path = names::device(Path::new(DEV), device.number());
        let names = names::of(Path::new(DEV), &array.name(), &volume.name()).to_vec();
        let notes = names::make(Path::new(DEV), &names, &path);
        let since = self.world.rt.unix_seconds();
        let served = Served { device, names, since, volatile: opened.volatile };
        place.set(Some(served.clone()));
        tracing::info!("{what} is {}", path.display());
        Ok((served, notes))
    }

    async fn device_of(
        &self,
        what: &str,
        place: &Place,
        (namespace, read_only): (VolumeNamespace, bool),
    ) -> Result<BlockDevice, Problem> {
        let (rt, mark) = (&self.world.rt, mark(place.volume));
        let failed = |e: UblkError| problem(what, &e);
        let former = self.blocks.listed_of(place.volume)?;
        let started = former.is_some_and(|listed| listed.started);
        if let Some(number) = self.former_number(what, former).await {
            let (found, left) = (ublk::look(rt, number).await.map_err(failed)?, Left { number, mark, started });
            match found {
                // Of a server that only read; who writes now has one that can be written, unless somebody has it open.
                Some(found) if found.mark == mark && found.is_recoverable && found.is_read_only && !read_only => {
                    if ublk::delete_left(rt, number, mark, false).await.is_err() {
                        return BlockDevice::recover(rt, namespace, left).await.map_err(failed);
                    }
                }
                Some(found) if found.mark == mark && found.is_recoverable => {
                    match BlockDevice::recover(rt, namespace.clone(), left).await {
                        // No program has it open, and it is not exported: then no request is lost. The kernel's target has no claim.
                        Err(UblkError::Unnoticed { .. })
                            if self.targets.listed_of(place.volume).is_ok_and(|exports| exports.is_empty())
                                && ublk::delete_left(rt, number, mark, false).await.is_ok() => {}
                        done => return done.map_err(failed),
                    }
                }
                // It was stopped, or never begun.
                Some(found) if found.mark == mark => {
                    ublk::delete_left(rt, number, mark, false).await.map_err(failed)?;
                }
                Some(_) | None => {}
            }
            // Somebody else may have the number by now, since a boot.
            if found.is_none_or(|found| found.mark == mark) {
                self.blocks.put(place.listed(number, false))?;
                match BlockDevice::create(rt, namespace.clone(), Some(number), mark).await {
                    Err(UblkError::Kernel(ControlError::Taken { .. })) => {}
                    made => return made.map_err(failed),
                }
            }
        }
        let made = self.make(place, namespace).await;
        if made.is_err() {
            match former {
                Some(former) => self.blocks.put(former)?,
                None => self.blocks.take_off(|listed| listed.volume == place.volume)?,
            }
        }
        made.map_err(failed_or(what))
    }

    /// The number of the device that a server left; none where the device hangs in the kernel and was never started.
    async fn former_number(&self, what: &str, former: Option<Listed>) -> Option<u32> {
        let Listed { number, started, .. } = former?;
        if started || ublk::look(&self.world.rt, number).await.err().is_none_or(|error| !error.is_slow()) {
            return Some(number);
        }
        tracing::warn!("{what}: {}; {HANGS}; another number is taken", names::device(Path::new(DEV), number).display());
        None
    }

    /// Makes a device of a number that nobody has.
    async fn make(&self, place: &Place, namespace: VolumeNamespace) -> Result<BlockDevice, Failure> {
        let taken: Vec<u32> = self.blocks.listed()?.iter().map(|listed| listed.number).collect();
        let mut from = 0;
        for _ in 0..NUMBERS_MAX {
            let number = free_number(&taken, from);
            self.blocks.put(place.listed(number, false))?;
            let made = BlockDevice::create(&self.world.rt, namespace.clone(), Some(number), mark(place.volume)).await;
            match made {
                Err(UblkError::Kernel(ControlError::Taken { .. })) => from = number + 1,
                made => return made.map_err(Failure::Device),
            }
        }
        Err(Failure::Device(UblkError::Kernel(ControlError::Taken { number: from })))
    }

    /// Takes a volume's block device away, for good; false when it had none.
    ///
    /// # Errors
    /// When somebody has it open, unless it is forced.
    pub async fn detach(&self, opened: &Opened, volume: &VolumeView, force: bool) -> Result<bool, Problem> {
        let array = opened.array.first();
        let _no_export =
            self.end_exports(&format!("volume {}/{}", array.name(), volume.name), volume.uuid, force).await?;
        let place = self.blocks.place(array.uuid(), volume.uuid);
        let _turn = place.turn.lock().await;
        let there = self.remove(&format!("volume {}/{}", array.name(), volume.name), &place, force).await?;
        self.blocks.take_off(|listed| listed.volume == volume.uuid)?;
        Ok(there)
    }

    /// Takes it from the kernel. The caller has the place's turn.
    async fn remove(&self, what: &str, place: &Place, force: bool) -> Result<bool, Problem> {
        let failed = |e: UblkError| problem(what, &e);
        if let Some(served) = place.served() {
            served.device.remove(force).await.map_err(failed)?;
            names::take_away(Path::new(DEV), &served.path(), &[]);
            place.set(None);
            return Ok(true);
        }
        // One that a server left, and nobody serves.
        let Some(Listed { number, started, .. }) = self.blocks.listed_of(place.volume)? else { return Ok(false) };
        let (rt, mark, path) = (&self.world.rt, mark(place.volume), names::device(Path::new(DEV), number));
        match ublk::look(rt, number).await {
            Ok(Some(found)) if found.mark == mark => {
                ublk::delete_left(rt, number, mark, force).await.map_err(failed)?;
                names::take_away(Path::new(DEV), &path, &[]);
            }
            Ok(_) => {}
            Err(error) if error.is_slow() && (force || !started) => {
                tracing::warn!("{what}: {}; {HANGS}; it is forgotten", path.display());
                names::take_away(Path::new(DEV), &path, &[]);
            }
            Err(error) => return Err(failed(error)),
        }
        place.set(None);
        Ok(true)
    }

    /// Before arrays are closed by a verb: takes their block devices from the kernel and closes their sockets for guests, and lets none
    /// be made. They are made again when the array is served again.
    ///
    /// # Errors
    /// When somebody has one open, unless it is forced. Then all go on.
    pub async fn end_devices(&self, arrays: &[Uuid], force: bool) -> Result<(), Problem> {
        self.blocks.end(arrays.iter().copied());
        // The kernel's target has devices open.
        if let Err(problem) = self.end_targets(arrays, force).await {
            self.blocks.go_on(arrays.iter().copied());
            return Err(problem);
        }
        let places = arrays.iter().flat_map(|array| self.blocks.places(Some(*array)));
        let ended = join_all(places.map(|place| async move {
            let _turn = place.turn.lock().await;
            match place.served() {
                Some(served) => {
                    let what = format!("block device {}", served.path().display());
                    self.remove(&what, &place, force).await.map(drop)
                }
                None => Ok(()),
            }
        }))
        .await;
        let problems = ended.into_iter().filter_map(Result::err).collect();
        if let Some(problem) = Problem::all(problems) {
            self.blocks.go_on(arrays.iter().copied());
            return Err(problem);
        }
        self.withdraw_from_guests(|_, place| arrays.contains(&place.array)).await;
        Ok(())
    }

    /// The array does not come back here: its devices are on no list any more.
    pub fn forget_devices(&self, array: Uuid) {
        self.forget_targets(array);
        if let Err(problem) = self.blocks.take_off(|listed| listed.array == array) {
            tracing::warn!("{}", problem.line());
        }
    }

    /// The server ends: all block devices are left to the next one, and requests wait in the kernel. Those of arrays in memory go.
    /// Guests wait for the next one, too.
    pub async fn leave_devices(&self) {
        self.blocks.leave();
        let guests = self.withdraw_from_guests(|_, _| true);
        let devices = async {
            self.leave_targets().await;
            join_all(self.blocks.places(None).iter().map(|place| self.leave_device(place))).await;
        };
        join(guests, devices).await;
    }

    async fn leave_device(&self, place: &Place) {
        let _turn = place.turn.lock().await;
        let Some(served) = place.served() else { return };
        let path = served.path();
        if served.volatile {
            let gone = self.remove(&format!("block device {}", path.display()), place, true).await;
            gone.err().iter().for_each(|problem| tracing::warn!("{}", problem.line()));
            return;
        }
        served.device.leave().await;
        place.set(None);
        tracing::info!("{} waits for the next server", path.display());
    }

    /// A volume has another name.
    pub async fn rename_device(&self, opened: &Opened, volume: Uuid) {
        let array = opened.array.first();
        let place = self.blocks.place(array.uuid(), volume);
        let _turn = place.turn.lock().await;
        let (Some(served), Ok(live)) = (place.served(), live(opened, volume)) else { return };
        let names: Vec<PathBuf> = names::of(Path::new(DEV), &array.name(), &live.name()).to_vec();
        for note in names::make(Path::new(DEV), &names, &served.path()) {
            tracing::warn!("{note}");
        }
        place.set(Some(Served { names, ..served }));
    }

    /// A volume has grown; what to say of its device.
    pub async fn grow_device(&self, opened: &Opened, volume: Uuid) -> Option<String> {
        let place = self.blocks.place(opened.array.first().uuid(), volume);
        let _turn = place.turn.lock().await;
        let served = place.served()?;
        let path = served.path();
        let done = served.device.resize().await;
        self.targets.resized.borrow_mut().insert(volume);
        Some(match done {
            Ok(()) => format!("{} has the new size", path.display()),
            Err(e) => format!("{} keeps its size until it is detached and attached again ({e})", path.display()),
        })
    }

    /// All that are served, as clients.
    #[must_use]
    pub fn device_clients(&self) -> Vec<ClientView> {
        let view = |(volume, served): (Uuid, Served)| {
            let (array, name) = self.used(&Used::Namespace(*volume.as_bytes()));
            ClientView {
                array,
                volume: name,
                protocol: UBLK.to_owned(),
                peer: served.path().display().to_string(),
                host: None,
                since_unix_seconds: served.since,
                connections: 1,
            }
        };
        self.devices().map(view).collect()
    }

    fn devices(&self) -> impl Iterator<Item = (Uuid, Served)> {
        self.blocks.places(None).into_iter().filter_map(|place| Some((place.volume, place.served()?)))
    }

    /// Says of volumes which block devices they are, and at which sockets guests find them.
    pub fn name_local_ways(&self, volumes: &mut [VolumeView]) {
        let all: BTreeMap<Uuid, Served> = self.devices().collect();
        if !all.is_empty() {
            volumes.iter_mut().for_each(|v| {
                v.block_device = all.get(&v.uuid).map(|s| s.path().display().to_string());
                v.exported_at = self.exported_at(v.uuid);
            });
        }
        self.name_guest_sockets(volumes.iter_mut());
    }

    /// Tries to serve the listed devices of an array that are not served.
    async fn bring_devices_back(&self, opened: &Opened) -> Result<(), Problem> {
        let array = opened.array.first().uuid();
        for Listed { volume, number, .. } in self.blocks.listed()?.into_iter().filter(|l| l.array == array) {
            let place = self.blocks.place(array, volume);
            let _turn = place.turn.lock().await;
            if self.blocks.listed_of(volume)?.is_none() || !self.blocks.may_begin(array) {
                continue;
            }
            let what = format!("block device /dev/ublkb{number}");
            let tried = if live(opened, volume).is_err() {
                // The kernel's target has it open, and nobody will ever answer what waits in it.
                let is_exported = !self.targets.listed_of(volume)?.is_empty();
                let gone = self.remove(&what, &place, is_exported).await;
                gone.and_then(|_| self.blocks.take_off(|listed| listed.volume == volume)).map(|()| vec![])
            } else if place.served().is_some() {
                continue;
            } else {
                self.begin(opened, &place).await.map(|(_, notes)| notes)
            };
            match tried {
                Ok(notes) => notes.iter().for_each(|note| tracing::warn!("{note}")),
                Err(problem) if place.is_news(&problem.line()) => {
                    tracing::error!("{what}: {}; tried again every {} s", problem.line(), AGAIN.as_secs());
                }
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Deletes what dead servers left of arrays that nobody knows any more: arrays in memory, or destroyed ones.
    pub async fn clear_devices(&self) {
        let (Ok(known), Ok(listed)) = (self.world.registry.list(), self.blocks.listed()) else { return };
        let served = self.served_uuids();
        for Listed { array, volume, number, .. } in listed {
            if served.contains(&array) || known.iter().any(|k| k.uuid == array) {
                continue;
            }
            let place = self.blocks.place(array, volume);
            let _turn = place.turn.lock().await;
            let gone = self.remove(&format!("/dev/ublkb{number}, of an array that is gone"), &place, true).await;
            match gone.and_then(|_| self.blocks.take_off(|listed| listed.volume == volume)) {
                Ok(()) => tracing::info!("/dev/ublkb{number}: its array is gone, and so is the device"),
                Err(problem) => tracing::warn!("{}", problem.line()),
            }
        }
    }
}

/// Why a device was not made: the kernel, or the list.
enum Failure {
    Device(UblkError),
    List(Problem),
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Failure {
        Failure::List(problem)
    }
}

fn failed_or(what: &str) -> impl Fn(Failure) -> Problem {
    move |failure| match failure {
        Failure::Device(error) => problem(what, &error),
        Failure::List(problem) => problem,
    }
}

fn device_view(opened: &Opened, volume: &VolumeView, served: &Served, notes: Vec<String>) -> BlockDeviceView {
    BlockDeviceView {
        version: VERSION,
        array: opened.array.first().name(),
        volume: volume.name.to_string(),
        uuid: volume.uuid,
        device: served.path().display().to_string(),
        names: served.names.iter().filter(|n| n.is_symlink()).map(|n| n.display().to_string()).collect(),
        notes,
    }
}

/// The volume, if it is not being deleted.
fn live(opened: &Opened, volume: Uuid) -> Result<Volume, Problem> {
    let found = opened.array.first().live_volumes().into_iter().find(|v| v.uuid() == volume);
    found.ok_or_else(|| {
        let what = format!("volume {volume} of {}", opened.array.first().name());
        Problem::refused("volume_gone", what, "it is not there any more", "`ashlar volume list` shows what is there")
    })
}

/// Keeps the block devices of an array served for as long as it is.
pub async fn keep_devices(data: Weak<Data>, number: u64) {
    let mut said = None;
    while let Some(data) = data.upgrade() {
        let rt = data.world.rt.clone();
        let Some(opened) = data.served_as(number) else { return };
        if let Err(problem) = data.bring_devices_back(&opened).await
            && said.replace(problem.line()) != Some(problem.line())
        {
            tracing::warn!("{}", problem.line());
        }
        drop((opened, data));
        rt.sleep(AGAIN).await;
    }
}

/// The answer to a volume's detaching.
///
/// # Errors
/// When it was no block device.
pub fn detached(what: &str, there: bool) -> Result<Done, Problem> {
    let none = || Problem::new(Kind::NotFound, "not_attached", what, "it is not a block device of ublk", "nothing");
    there.then(|| Done::new(format!("{what} is not a block device any more"))).ok_or_else(none)
}
