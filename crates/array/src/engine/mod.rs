//! One part of an array: verbs on it while it is open.

mod alarm;
mod back;
mod drives;
mod exposure;
mod features;
mod report;
mod sizes;
mod status;

use std::rc::Rc;

use api::{ArrayState, ArrayView, EventCode, IostatView, MemberView, RecoveryView, Remedy, ScrubKind, VolumeView};
use base::{ArrayUuid, BlockCount, Lba, human};
use ondisk::layout::VOLUMES_MAX;
use ondisk::{Limits, PartOf, VolumeState};
use rt::{Drive, Rt};

use crate::canary::{Canary, planted};
pub use crate::ctx::events::Listener;
use crate::ctx::{Phase, Wish};
use crate::engine::report::Report;
use crate::fault::{Fault, Refused, RefusedCode};
use crate::member::seat::Door;
use crate::memtable::table::FACT_BYTES;
use crate::open::create::{self, random_uuid};
use crate::open::previous;
use crate::open::{self, OpenHow};
use crate::owner::{self, OwnerHow};
use crate::room::Discard;
use crate::rooms::Rooms;
use crate::space::plan::{CreateSpec, USABLE_PERMILLE, check_name};
use crate::volume::Volume;
use crate::volumes::vol::Vol;

/// What a volume may save up, at most.
const BURST_MS_MAX: u32 = 3_600_000;

/// What to change of the schedule of scrubs.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScrubPlan {
    /// Hours from one media scrub to the next; 0: never by itself.
    pub media_hours: Option<u32>,
    /// Hours from one parity scrub to the next; 0: never by itself.
    pub parity_hours: Option<u32>,
    /// What a scrub reads at most; 0: as the program thinks right.
    pub bytes_per_second: Option<u64>,
}

/// An open array.
#[derive(Clone)]
pub struct Array {
    rooms: Rc<Rooms>,
    recovery: Rc<RecoveryView>,
}

impl Array {
    /// Makes an array of `drives` and opens it for reading and writing.
    ///
    /// # Errors
    /// When level, width and drives do not go together, or a drive belongs to an array.
    pub async fn create(rt: &Rt, drives: Vec<Drive>, spec: &CreateSpec) -> Result<Array, Refused> {
        Self::create_usable(rt, drives, spec, USABLE_PERMILLE).await
    }

    /// [`Array::create`], where volumes may fill `usable_permille` of the data blocks that the ladder leaves: for
    /// benches that show what filling it further costs.
    ///
    /// # Errors
    /// As [`Array::create`].
    ///
    /// # Panics
    /// Beyond 1000 there is nothing.
    pub async fn create_usable(
        rt: &Rt,
        drives: Vec<Drive>,
        spec: &CreateSpec,
        usable_permille: u16,
    ) -> Result<Array, Refused> {
        assert!(usable_permille <= 1000, "no more than all of it");
        let rooms = create::create(rt, drives, spec, usable_permille, None).await?;
        Ok(Self::start(rooms, RecoveryView::default()))
    }

    /// Makes one part of an array of slices, whatever they carried, and opens it.
    pub(crate) async fn create_part(
        rt: &Rt,
        slices: Vec<Drive>,
        spec: &CreateSpec,
        part: (ArrayUuid, PartOf),
    ) -> Result<Array, Refused> {
        let rooms = create::create(rt, slices, spec, USABLE_PERMILLE, Some(part)).await?;
        Ok(Self::start(rooms, RecoveryView::default()))
    }

    /// Refuses to go back one generation where this, opened so for reading only, lacks drives.
    pub(crate) fn refuse_previous_with_too_few(&self) -> Result<(), Refused> {
        previous::refuse_too_few(&self.rooms)
    }

    /// Opens the array of `drives`; recovers it first.
    ///
    /// # Errors
    /// When the drives are not of one array, too few, or their histories differ.
    pub async fn open(rt: &Rt, drives: Vec<Drive>, how: OpenHow) -> Result<Array, Refused> {
        let admitted = match how.owner.carried {
            None if !how.read_only => owner::admit(rt, std::slice::from_ref(&drives), &drives, how.owner).await?,
            _ => None,
        };
        let carried = admitted.as_ref().map(owner::Admitted::carried).or(how.owner.carried);
        let owner = OwnerHow { carried, ..how.owner };
        match Box::pin(open::open(rt, drives, OpenHow { owner, ..how })).await {
            Ok((rooms, report)) => Ok(Self::start(rooms, report)),
            Err(refused) => {
                if let Some(admitted) = admitted {
                    admitted.withdraw().await;
                }
                Err(refused)
            }
        }
    }

    fn report(&self) -> Report<'_> {
        Report::of(&self.rooms)
    }

    fn start(rooms: Rc<Rooms>, recovery: RecoveryView) -> Array {
        rooms.room().measure_room();
        if rooms.ctx().is_open() {
            rooms.log().start_log();
            rooms.jobs().start_background();
            rooms.ctx().wishes.ask(Wish::Rebuild);
            if !rooms.memory().read().active.is_empty() {
                rooms.ctx().want_checkpoint();
            }
            rooms.ctx().changed.wake();
        }
        Array { rooms, recovery: Rc::new(recovery) }
    }

    /// Its world.
    pub(crate) fn rt(&self) -> &Rt {
        &self.rooms.ctx().rt
    }

    /// Its identity, as labels have it.
    pub(crate) fn identity(&self) -> ArrayUuid {
        self.rooms.ctx().shape.array
    }

    /// Whether something is in flight to a member that nobody waits for any more.
    pub(crate) fn may_still_write(&self) -> bool {
        self.rooms.health().may_still_write()
    }

    /// Ends the reservation of a drive that no part writes to any more.
    pub(crate) async fn end_reservation(&self, drive: &Drive) {
        self.rooms.marks().end_reservation(drive).await;
    }

    /// What opening it did.
    #[must_use]
    pub fn recovery(&self) -> RecoveryView {
        (*self.recovery).clone()
    }

    /// Hands it over in order: nothing is left to replay. Requests that come later get [`Fault::Closed`].
    ///
    /// # Errors
    /// When it froze on the way.
    pub async fn close(self) -> Result<(), Fault> {
        let result = match self.rooms.ctx().phase() {
            Phase::Open => self.hand_over().await,
            Phase::ReadOnly | Phase::Frozen | Phase::Closed => Ok(()),
        };
        self.rooms.ctx().close();
        self.rooms.streams().fail_all(Fault::Closed);
        self.rooms.streams().poke();
        self.rooms.pins().wake();
        self.rooms.ctx().changed.wake();
        // A background task may be between a read and the write that follows from it.
        self.rooms.members().close_doors(Door::Shut);
        self.rooms.health().come_to_rest(result.is_ok()).await;
        if self.rooms.health().may_still_write() {
            // Another server that found the array released could meet what lands late.
            return result;
        }
        self.rooms.marks().release_marks().await;
        if self.rooms.ctx().shape.part.of == 1 {
            self.rooms.marks().release_drives().await;
        }
        result
    }

    async fn hand_over(&self) -> Result<(), Fault> {
        self.rooms.ctx().begin_to_close();
        self.rooms.ctx().changed.wake();
        // What waits for room, or for a drive, may wait for ever; the next open recovers what is not handed over.
        let handed_over = Box::pin(self.rooms.health().if_there_is_room(self.hand_over_all()));
        match self.rooms.health().unless_silent(handed_over).await {
            Ok(done) => done.unwrap_or(Err(Fault::NoRoom)),
            Err(silent) => {
                self.rooms
                    .health()
                    .freeze(&format!("{silent} does not answer, and the array cannot be closed without it"));
                Err(Fault::Frozen)
            }
        }
    }

    async fn hand_over_all(&self) -> Result<(), Fault> {
        // A step of the cleaner that is reading may have something to say yet.
        let moved = || self.rooms.jobs().victims().under_way().is_idle() || planted(Canary::ClosedWhileCleaning);
        let at_rest = || self.rooms.streams().idle() && moved();
        self.rooms.ctx().changed.until(|| at_rest() || !self.rooms.ctx().is_open()).await;
        self.rooms.checkpoints().checkpoint().await?;
        self.rooms.generations().commit_at_the_end().await
    }

    /// Remembers something among the events, for people.
    pub fn note(&self, code: EventCode, text: &str) {
        self.rooms.ctx().note(code, text.to_owned());
    }

    /// Tells `listener` what happens from now on, instead of another; the first one also what happened since the open.
    pub fn listen(&self, listener: Listener) {
        self.rooms.ctx().listen(listener);
    }

    /// Ends the reservations of its drives, once all parts are closed.
    pub async fn release_drives(&self) {
        self.rooms.marks().release_drives().await;
    }

    /// Reserves its drives where all of them can be: the key.
    pub(crate) async fn reserve(&self) -> Option<u64> {
        self.rooms.marks().reserve_new().await
    }

    /// Its drives are reserved by this key.
    pub(crate) async fn reserved_by(&self, key: u64) {
        self.rooms.marks().take_key(key).await;
    }

    /// The array, now.
    #[must_use]
    pub fn status(&self) -> ArrayView {
        self.report().status()
    }

    /// Looks at the map in one turn of the runtime at most, and all, since this was asked last.
    #[cfg(feature = "canary")]
    #[must_use]
    pub fn looked(&self) -> (u64, u64) {
        self.rooms.ctx().meter.take()
    }

    /// Blocks the cleaner moved since it was opened.
    #[must_use]
    pub fn moved_blocks(&self) -> u64 {
        self.rooms.ctx().figures.moved_blocks.get()
    }

    /// Lets map nodes take `bytes` in memory from now on; those that are there are read again when they are asked for.
    pub fn set_map_memory(&self, bytes: u64) {
        self.rooms.map().nodes().resize(bytes);
    }

    /// Lets what is not merged into the map take `bytes` in memory from now on: then a checkpoint begins, and while it
    /// merges, as much again may come.
    pub fn set_memtable_memory(&self, bytes: u64) {
        self.rooms.memory().set_facts_max(bytes / FACT_BYTES);
    }

    /// Which freed zones are deallocated on their drives from now on.
    pub fn set_discard(&self, which: Discard) {
        self.rooms.room().set_discard(which);
    }

    /// Counters, now.
    #[must_use]
    pub fn iostat(&self) -> IostatView {
        self.report().iostat()
    }

    /// The array, now, with how requests of its members and volumes were done.
    pub(crate) fn status_worked(&self) -> ArrayView {
        self.report().status_worked()
    }

    /// The paths of its members' drives, by seat.
    #[must_use]
    pub fn drives(&self) -> Vec<String> {
        self.report().member_lines().into_iter().map(|member| member.drive).collect()
    }

    /// What it says of its members and volumes, of which the counters of all parts are made.
    pub(crate) fn lines(&self) -> (Vec<MemberView>, Vec<VolumeView>) {
        self.report().worked()
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> String {
        self.rooms.ctx().name()
    }

    /// Gives it another name.
    ///
    /// # Errors
    /// On a name that cannot be, or when the array takes no writes.
    pub async fn rename(&self, to: &str) -> Result<(), Refused> {
        check_name(to)?;
        self.rooms.members().writable()?;
        let said = &self.rooms.ctx().said;
        let before = said.name();
        said.rename(to);
        if let Err(fault) = self.rooms.generations().commit_if_there_is_room().await {
            if said.name() == to {
                said.rename(&before);
            }
            return Err(fault.into());
        }
        // The generation decides; labels say it for those who cannot read one.
        let _whatever = self.rooms.health().if_there_is_room(self.rooms.labels().heal_labels()).await;
        Ok(())
    }

    /// Its identity.
    #[must_use]
    pub fn uuid(&self) -> uuid::Uuid {
        self.rooms.ctx().shape.array.0
    }

    /// Its state, in one word.
    #[must_use]
    pub fn state(&self) -> ArrayState {
        self.report().state_word()
    }

    /// Whether it takes writes.
    pub(crate) fn is_writable(&self) -> bool {
        self.rooms.members().writable().is_ok()
    }

    /// The volumes.
    #[must_use]
    pub fn volumes(&self) -> Vec<VolumeView> {
        self.report().volume_lines()
    }

    fn find(&self, name: &str) -> Option<Rc<Vol>> {
        self.named(name).filter(|v| v.agreed_blocks() > 0 || planted(Canary::VolumeSeenEarly))
    }

    /// [`Array::find`], also one that is only being made.
    fn named(&self, name: &str) -> Option<Rc<Vol>> {
        let live = |v: &&Rc<Vol>| v.is_hosts() && *v.name() == *name && v.state() == VolumeState::Live;
        self.rooms.volumes().all().values().find(live).cloned()
    }

    fn must_find(&self, name: &str) -> Result<Rc<Vol>, Refused> {
        let missing = || {
            let (what, todo) = (format!("volume \"{name}\""), "Name one that is listed");
            Refused::new(RefusedCode::NotFound, what, "there is no such volume", todo).by(Remedy::ListVolumes)
        };
        self.find(name).ok_or_else(missing)
    }

    /// All volumes that hosts can use.
    #[must_use]
    pub fn live_volumes(&self) -> Vec<Volume> {
        let is_live = |v: &&Rc<Vol>| v.is_hosts() && v.agreed_blocks() > 0 && v.state() == VolumeState::Live;
        let volumes = self.rooms.volumes().all();
        volumes.values().filter(is_live).map(|vol| Volume::new(self.rooms.hosts().clone(), vol.clone())).collect()
    }

    /// A number that moves when a volume comes or goes for hosts, or has another name, another size, or a write cache that is
    /// volatile where it was not: as long as it stays, they need not be looked at.
    #[must_use]
    pub fn volume_changes(&self) -> (u64, bool) {
        (self.rooms.volumes().changes(), self.rooms.members().no_volatile_cache())
    }

    /// A volume by name.
    #[must_use]
    pub fn volume(&self, name: &str) -> Option<Volume> {
        self.find(name).map(|vol| Volume::new(self.rooms.hosts().clone(), vol))
    }

    /// Makes a volume of `bytes`. It is thin: it may promise more than there is.
    ///
    /// # Errors
    /// On a name that cannot be or is taken, or an impossible size.
    pub async fn volume_create(&self, name: &str, bytes: u64) -> Result<(), Refused> {
        check_name(name)?;
        self.may_create(name, bytes)?;
        self.make_volume(name, bytes, None).await
    }

    /// The same, with an identity that was drawn before ([`Array::new_identity`]).
    pub(crate) async fn volume_create_as(&self, name: &str, bytes: u64, uuid: uuid::Uuid) -> Result<(), Refused> {
        self.may_create(name, bytes)?;
        self.make_volume(name, bytes, Some(uuid)).await
    }

    /// An identity for a volume to be.
    pub(crate) fn new_identity(&self) -> uuid::Uuid {
        random_uuid(&self.rooms.ctx().rt)
    }

    /// Whether a volume of this name, which can be one, and size can be made.
    pub(crate) fn may_create(&self, name: &str, bytes: u64) -> Result<(), Refused> {
        self.rooms.members().writable()?;
        checked_size(bytes)?;
        if self.named(name).is_some() {
            return Err(taken(name));
        }
        if self.rooms.volumes().all().len() >= VOLUMES_MAX {
            let why = format!("an array has at most {VOLUMES_MAX} volumes, its notebook among them");
            return Err(Refused::new(RefusedCode::Size, format!("volume \"{name}\""), why, "Delete one first"));
        }
        Ok(())
    }

    async fn make_volume(&self, name: &str, bytes: u64, uuid: Option<uuid::Uuid>) -> Result<(), Refused> {
        let blocks = checked_size(bytes)?;
        let id = self.rooms.volumes().give_id();
        let uuid = uuid.unwrap_or_else(|| random_uuid(&self.rooms.ctx().rt));
        self.rooms.volumes().add(Vol::new(id, name, uuid, blocks));
        Ok(self.rooms.generations().commit_if_there_is_room().await?)
    }

    /// Makes a volume larger.
    ///
    /// # Errors
    /// When the size is not larger or impossible.
    pub async fn volume_grow(&self, name: &str, bytes: u64) -> Result<(), Refused> {
        let vol = self.may_grow(name, bytes)?;
        let blocks = checked_size(bytes)?;
        vol.grow(blocks);
        Ok(self.rooms.generations().commit_if_there_is_room().await?)
    }

    /// The volume, if it can have this size.
    fn may_grow(&self, name: &str, bytes: u64) -> Result<Rc<Vol>, Refused> {
        let vol = self.must_find(name)?;
        self.rooms.members().writable()?;
        let blocks = checked_size(bytes)?;
        if blocks <= vol.blocks() {
            let now = BlockCount(vol.blocks()).bytes();
            return Err(Refused::new(
                RefusedCode::Size,
                format!("volume \"{name}\""),
                format!("its size is {} already; a volume can only grow", human(now)),
                "Give a larger size",
            ));
        }
        Ok(vol)
    }

    /// The identity of a volume that can have this size.
    pub(crate) fn may_grow_to(&self, name: &str, bytes: u64) -> Result<uuid::Uuid, Refused> {
        self.may_grow(name, bytes).map(|vol| vol.uuid)
    }

    /// Gives a volume another name.
    ///
    /// # Errors
    /// On a name that cannot be or is taken.
    pub async fn volume_rename(&self, name: &str, to: &str) -> Result<(), Refused> {
        check_name(to)?;
        let vol = self.must_find(name)?;
        self.rooms.members().writable()?;
        if self.named(to).is_some() {
            return Err(taken(to));
        }
        vol.rename(to);
        self.rooms.volumes().have_changed();
        Ok(self.rooms.generations().commit_if_there_is_room().await?)
    }

    /// Limits what the hosts of a volume may take; all zero: no limits. Those that wait go by the new ones at once.
    ///
    /// # Errors
    /// When there is no such volume, or the burst is longer than an hour.
    pub async fn volume_limit(&self, name: &str, limits: Limits) -> Result<(), Refused> {
        let vol = self.must_find(name)?;
        self.rooms.members().writable()?;
        if limits.burst_ms > BURST_MS_MAX {
            return Err(Refused::new(
                RefusedCode::Size,
                format!("a burst of {} seconds", limits.burst_ms / 1000),
                "a burst is at most one hour (3600 seconds) at the limit",
                "Give a shorter burst",
            ));
        }
        vol.limit(limits, self.rooms.ctx().rt.now().0);
        Ok(self.rooms.generations().commit_if_there_is_room().await?)
    }

    /// Deletes a volume; returns when that is durable. Its space comes back in the background.
    ///
    /// # Errors
    /// When there is no such volume.
    pub async fn volume_delete(&self, name: &str) -> Result<(), Refused> {
        let vol = self.must_find(name)?;
        self.rooms.members().writable()?;
        vol.drop_up_to(Lba(0));
        self.rooms.volumes().have_changed();
        self.rooms.generations().commit().await?;
        self.rooms.ctx().want_checkpoint();
        Ok(())
    }

    /// Starts a scrub from the beginning; `unlimited`: as fast as the drives are, for an array that nobody else uses.
    ///
    /// # Errors
    /// When one is running, or the array is not writable.
    pub fn scrub_start(&self, kind: ScrubKind, unlimited: bool) -> Result<(), Refused> {
        self.rooms.scrubs().scrub_start(kind, unlimited)
    }

    /// Ends the scrub under way; false when there is none.
    pub async fn scrub_stop(&self) -> bool {
        self.rooms.scrubs().scrub_stop().await
    }

    /// Sets how often scrubs run by themselves (hours; 0: never) and how fast (bytes a second; 0: as the program thinks
    /// right); what is `None` stays.
    ///
    /// # Errors
    /// When the array is not writable.
    pub async fn scrub_schedule(&self, change: ScrubPlan) -> Result<(), Refused> {
        self.rooms.members().writable()?;
        let now = self.rooms.ctx().rt.unix_seconds();
        self.rooms.ctx().set(|settings| {
            let lines = [(change.media_hours, ScrubKind::Media), (change.parity_hours, ScrubKind::Parity)];
            for (hours, kind) in lines {
                let line =
                    if kind == ScrubKind::Media { &mut settings.scrub_media } else { &mut settings.scrub_parity };
                if let Some(hours) = hours {
                    line.every_hours = hours;
                    if line.started_at == 0 {
                        line.started_at = now;
                    }
                }
            }
            if let Some(rate) = change.bytes_per_second {
                settings.scrub_bytes_per_second = rate;
            }
        });
        self.rooms.ctx().changed.wake();
        Ok(self.rooms.generations().commit_if_there_is_room().await?)
    }

    /// Resolves when no scrub runs or is about to.
    pub async fn scrub_done(&self) {
        self.rooms.scrubs().scrub_over().await;
    }

    /// Brings everything acknowledged into the trees; for tests and benches that want exact figures.
    ///
    /// # Errors
    /// When the array is not writable.
    pub async fn checkpoint(&self) -> Result<(), Fault> {
        self.rooms.checkpoints().checkpoint().await
    }
}

fn taken(name: &str) -> Refused {
    Refused::new(RefusedCode::Name, format!("volume \"{name}\""), "the name is taken", "Choose another name")
}

/// A volume's size in blocks.
fn checked_size(bytes: u64) -> Result<u64, Refused> {
    let blocks = BlockCount::ceil_from_bytes(bytes).0;
    if bytes == 0 || blocks > ondisk::record::LBA_LIMIT {
        return Err(Refused::new(
            RefusedCode::Size,
            format!("a volume of {}", human(bytes)),
            "a volume has 4 KiB to 1 EiB",
            "Give another size",
        ));
    }
    Ok(blocks)
}

#[cfg(test)]
mod tests;
