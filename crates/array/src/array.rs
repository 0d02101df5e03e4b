//! The array as others use it: verbs on an open array.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::{BlockCount, Lba, MemberId, MemberUuid, VolumeId};
use ondisk::layout::{MEMBERS_MAX, VOLUMES_MAX};
use ondisk::{Label, Layout, MapRef, MemberState, SHARDS, VolumeState};
use rt::{Drive, Rt};

use crate::canary::{Canary, planted};
use crate::core::{Core, Phase, Vol};
use crate::fault::{Fault, Refused, RefusedCode};
use crate::lifecycle::create::{self, random_uuid, seat_for, write_label};
use crate::lifecycle::open::{self, OpenHow, RecoveryReport};
use crate::lifecycle::scrub::ScrubKind;
use crate::map::height_for;
use crate::plan::{CreateSpec, USABLE_PERMILLE, check_name};
use crate::seat::Door;
use crate::status::{Iostat, Status, VolumeStatus};
use crate::volume::Volume;

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
    pub(crate) core: Rc<Core>,
    recovery: Rc<RecoveryReport>,
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
        let core = create::create(rt, drives, spec, usable_permille).await?;
        Ok(Self::start(core, RecoveryReport::default()))
    }

    /// Opens the array of `drives`; recovers it first.
    ///
    /// # Errors
    /// When the drives are not of one array, too few, or their histories differ.
    pub async fn open(rt: &Rt, drives: Vec<Drive>, how: OpenHow) -> Result<Array, Refused> {
        let (core, report) = open::open(rt, drives, how).await?;
        Ok(Self::start(core, report))
    }

    fn start(core: Rc<Core>, recovery: RecoveryReport) -> Array {
        core.measure_room();
        if core.phase.get() == Phase::Open {
            core.start_log();
            core.start_keeper();
            core.wanted.rebuild.set(true);
            if !core.memory.borrow().active.is_empty() {
                core.want_checkpoint();
            }
            core.changed.wake();
        }
        Array { core, recovery: Rc::new(recovery) }
    }

    /// What opening it did.
    #[must_use]
    pub fn recovery(&self) -> RecoveryReport {
        (*self.recovery).clone()
    }

    /// Hands it over in order: nothing is left to replay. Requests that come later get [`Fault::Closed`].
    ///
    /// # Errors
    /// When it froze on the way.
    pub async fn close(self) -> Result<(), Fault> {
        let result = match self.core.phase.get() {
            Phase::Open => self.hand_over().await,
            Phase::ReadOnly | Phase::Frozen | Phase::Closed => Ok(()),
        };
        self.core.phase.set(Phase::Closed);
        self.core.fail_all(Fault::Closed);
        self.core.log.poke();
        self.core.pins.wake();
        self.core.changed.wake();
        // A background task may be between a read and the write that follows from it.
        self.core.close_doors(Door::Shut);
        let seats: Vec<_> = self.core.seats.borrow().iter().cloned().collect();
        for seat in &seats {
            let Some(drive) = &seat.drive else { continue };
            if seat.is_in() {
                drive.idle().await;
            } else {
                // One that went out because it does not answer may never do.
                let patience = self.core.rt.sleep(crate::health::LATE_OUT);
                futures::future::select(std::pin::pin!(drive.idle()), patience).await;
            }
        }
        result
    }

    async fn hand_over(&self) -> Result<(), Fault> {
        self.core.closing.set(true);
        self.core.changed.wake();
        self.core.changed.until(|| self.core.log.idle() || self.core.phase.get() != Phase::Open).await;
        self.core.checkpoint().await?;
        let clean = self.core.memory.borrow().active.is_empty() && self.core.log.idle();
        self.core.commit_as(clean).await
    }

    /// The array, now.
    #[must_use]
    pub fn status(&self) -> Status {
        self.core.status()
    }

    /// Blocks the cleaner moved since it was opened.
    #[must_use]
    pub fn moved_blocks(&self) -> u64 {
        self.core.tally.moved_blocks.get()
    }

    /// Counters, now.
    #[must_use]
    pub fn iostat(&self) -> Iostat {
        self.core.iostat()
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> String {
        self.core.name.borrow().clone()
    }

    /// The volumes.
    #[must_use]
    pub fn volumes(&self) -> Vec<VolumeStatus> {
        self.core.volume_lines()
    }

    fn find(&self, name: &str) -> Option<Rc<Vol>> {
        self.named(name).filter(|v| v.agreed_blocks.get() > 0 || planted(Canary::VolumeSeenEarly))
    }

    /// [`Array::find`], also one that is only being made.
    fn named(&self, name: &str) -> Option<Rc<Vol>> {
        let live = |v: &&Rc<Vol>| *v.name.borrow() == name && v.state.get() == VolumeState::Live;
        self.core.volumes.borrow().values().find(live).cloned()
    }

    fn must_find(&self, name: &str) -> Result<Rc<Vol>, Refused> {
        let missing = || {
            let todo = "List the volumes with `ashlar volume list`";
            Refused::new(RefusedCode::NotFound, format!("volume \"{name}\""), "there is no such volume", todo)
        };
        self.find(name).ok_or_else(missing)
    }

    /// A volume by name.
    #[must_use]
    pub fn volume(&self, name: &str) -> Option<Volume> {
        self.find(name).map(|vol| Volume::new(self.core.clone(), vol))
    }

    /// Makes a volume of `bytes`. It is thin: it may promise more than there is.
    ///
    /// # Errors
    /// On a name that cannot be or is taken, or an impossible size.
    pub async fn volume_create(&self, name: &str, bytes: u64) -> Result<(), Refused> {
        check_name(name)?;
        self.core.writable()?;
        let blocks = checked_size(bytes)?;
        if self.named(name).is_some() {
            return Err(taken(name));
        }
        if self.core.volumes.borrow().len() >= VOLUMES_MAX {
            let why = format!("an array has at most {VOLUMES_MAX} volumes");
            return Err(Refused::new(RefusedCode::Size, format!("volume \"{name}\""), why, "Delete one first"));
        }
        let reused = planted(Canary::VolumeIdReused) && self.core.volumes.borrow().is_empty();
        let id = VolumeId(if reused { 1 } else { self.core.next_volume.get() });
        self.core.next_volume.set(id.0 + 1);
        let vol = Vol {
            id,
            name: RefCell::new(name.to_owned()),
            uuid: random_uuid(&self.core.rt),
            blocks: Cell::new(blocks),
            agreed_blocks: Cell::new(0),
            mapped: Cell::new(0),
            state: Cell::new(VolumeState::Live),
            height: Cell::new(height_for(blocks)),
            roots: Cell::new([MapRef::Hole; SHARDS]),
            limits: Cell::default(),
            locks: Rc::default(),
            counters: crate::status::VolumeCounters::default(),
        };
        self.core.volumes.borrow_mut().insert(id, Rc::new(vol));
        Ok(self.core.commit().await?)
    }

    /// Makes a volume larger.
    ///
    /// # Errors
    /// When the size is not larger or impossible.
    pub async fn volume_grow(&self, name: &str, bytes: u64) -> Result<(), Refused> {
        let vol = self.must_find(name)?;
        self.core.writable()?;
        let blocks = checked_size(bytes)?;
        if blocks <= vol.blocks.get() {
            let now = BlockCount(vol.blocks.get()).bytes();
            return Err(Refused::new(
                RefusedCode::Size,
                format!("volume \"{name}\""),
                format!("it has {now} bytes already; a volume only grows"),
                "Give a larger size",
            ));
        }
        vol.blocks.set(blocks);
        Ok(self.core.commit().await?)
    }

    /// Gives a volume another name.
    ///
    /// # Errors
    /// On a name that cannot be or is taken.
    pub async fn volume_rename(&self, name: &str, to: &str) -> Result<(), Refused> {
        check_name(to)?;
        let vol = self.must_find(name)?;
        self.core.writable()?;
        if self.named(to).is_some() {
            return Err(taken(to));
        }
        *vol.name.borrow_mut() = to.to_owned();
        Ok(self.core.commit().await?)
    }

    /// Deletes a volume; returns when that is durable. Its space comes back in the background.
    ///
    /// # Errors
    /// When there is no such volume.
    pub async fn volume_delete(&self, name: &str) -> Result<(), Refused> {
        let vol = self.must_find(name)?;
        self.core.writable()?;
        vol.state.set(VolumeState::Dropping { cursor: Lba(0) });
        self.core.commit().await?;
        self.core.want_checkpoint();
        Ok(())
    }

    fn member(&self, seat: MemberId) -> Result<Rc<crate::seat::Seat>, Refused> {
        let known = self.core.seat(seat).filter(|s| s.state.get() != MemberState::Vacant);
        known.ok_or_else(|| {
            let todo = "See the seats with `ashlar status`";
            Refused::new(RefusedCode::NotFound, format!("seat {}", seat.0), "there is no such seat", todo)
        })
    }

    /// Whether the array would go on without `seat`.
    fn may_lose(&self, seat: &crate::seat::Seat) -> Result<(), Refused> {
        let before = seat.state.replace(MemberState::Out);
        let fine = self.core.survivable();
        seat.state.set(before);
        if fine {
            return Ok(());
        }
        Err(Refused::new(
            RefusedCode::Redundancy,
            format!("drive {}", seat.drive_name),
            "the array cannot lose it now: its redundancy is used up",
            "Wait for the rebuild, or bring back a drive that is out",
        ))
    }

    /// Takes a member out.
    ///
    /// # Errors
    /// When the redundancy does not cover it.
    pub async fn drive_fail(&self, seat: MemberId) -> Result<(), Refused> {
        let member = self.member(seat)?;
        self.core.writable()?;
        if member.state.get() == MemberState::In {
            self.may_lose(&member)?;
            self.core.member_failed(seat, "was failed by command");
        }
        Ok(self.core.degraded_durably().await?)
    }

    /// A new drive takes the place of a seat's; the rebuild starts by itself.
    ///
    /// # Errors
    /// When the drive is too small or belongs to an array, or the redundancy does not cover the exchange.
    pub async fn drive_replace(&self, seat: MemberId, with: Drive, force: bool) -> Result<(), Refused> {
        let old = self.member(seat)?;
        self.core.writable()?;
        if old.state.get() == MemberState::In {
            self.may_lose(&old)?;
        } else if self.core.bay_filled(old.bay.get()) {
            return Err(Refused::new(
                RefusedCode::InUse,
                format!("seat {}", seat.0),
                "another drive has taken its place already",
                "See the seats with `ashlar status`",
            ));
        }
        let newcomer = self.seat_drive(with, old.bay.get(), force).await?;
        if old.state.get() == MemberState::In {
            // Another member may have gone out while the drive was labelled.
            if !planted(Canary::ReplaceUnasked)
                && let Err(refused) = self.may_lose(&old)
            {
                newcomer.state.set(MemberState::Vacant);
                return Err(refused);
            }
            self.core.member_failed(seat, "is being replaced");
        }
        self.core.degraded_durably().await?;
        newcomer.state.set(MemberState::In);
        self.core.commit().await?;
        self.core.note(format!("drive {} takes the place of {}", newcomer.drive_name, old.drive_name));
        self.core.wanted.rebuild.set(true);
        self.core.room_changed();
        Ok(())
    }

    /// Adds a drive that takes the place of the next one to fail.
    ///
    /// # Errors
    /// When the drive is too small or belongs to an array.
    pub async fn drive_add_spare(&self, drive: Drive, force: bool) -> Result<(), Refused> {
        self.core.writable()?;
        let bays = self.core.seats.borrow().iter().map(|s| s.bay.get()).max().unwrap_or(0);
        let newcomer = self.seat_drive(drive, bays + 1, force).await?;
        self.core.commit().await?;
        self.core.note(format!("drive {} is a spare", newcomer.drive_name));
        self.core.wanted.rebuild.set(true);
        self.core.changed.wake();
        Ok(())
    }

    /// Labels a drive and gives it a seat, not yet in.
    async fn seat_drive(&self, drive: Drive, bay: u16, force: bool) -> Result<Rc<crate::seat::Seat>, Refused> {
        let core = &self.core;
        if drive.in_flight() > 0 && !planted(Canary::BusyReturns) {
            return Err(Refused::new(
                RefusedCode::InUse,
                format!("drive {}", drive.info().name),
                "requests of its former life have not been answered yet: they could land in the new one",
                "Wait until it answers, or take it out and put it back",
            ));
        }
        if !force {
            create::refuse_labelled(&drive).await?;
        }
        let layout = Layout::new(drive.info().blocks.0, core.shape.slot_blocks, core.shape.zone_blocks);
        let Some(layout) = layout.filter(|l| l.zones >= ondisk::layout::ZONES_MIN) else {
            return Err(Refused::new(
                RefusedCode::Drives,
                format!("drive {}", drive.info().name),
                "it is too small for this array's zones",
                "Use a larger drive",
            ));
        };
        let zones_max = core.shape.slot_blocks;
        if Layout::slot_blocks_for(layout.zones) > zones_max {
            return Err(Refused::new(
                RefusedCode::Drives,
                format!("drive {}", drive.info().name),
                "it is much larger than the drives the array was created with",
                "Use a smaller drive, or a partition of this one",
            ));
        }
        let number = {
            let seats = core.seats.borrow();
            let vacant = seats.iter().position(|s| s.state.get() == MemberState::Vacant).unwrap_or(seats.len());
            if seats.iter().filter(|s| s.is_in()).count() >= MEMBERS_MAX || vacant >= ondisk::generation::SEATS_MAX {
                let why = format!("an array has at most {MEMBERS_MAX} drives");
                return Err(Refused::new(RefusedCode::Drives, "no seat is left", why, "Remove a drive first"));
            }
            MemberId(vacant as u16)
        };
        let label = Label {
            array: core.shape.array,
            member: MemberUuid(random_uuid(&core.rt)),
            seat: number,
            layout,
            array_name: core.name.borrow().clone(),
        };
        let name = drive.info().name.clone();
        write_label(&drive, &label).await.map_err(|e| Refused::io(&format!("cannot write to {name}"), e))?;
        // In reserve until the caller knows better: its number is taken.
        let seat = seat_for(&label, drive, bay, MemberState::Spare);
        let mut seats = core.seats.borrow_mut();
        match seats.get_mut(usize::from(number.0)) {
            Some(place) if place.state.get() == MemberState::Vacant => *place = seat.clone(),
            Some(_) => {
                return Err(Refused::new(RefusedCode::Drives, name, "its seat was taken meanwhile", "Try again"));
            }
            None => seats.push(seat.clone()),
        }
        Ok(seat)
    }

    /// Resolves when no rebuild is running or about to.
    pub async fn rebuild_done(&self) {
        self.core.rebuild_over().await;
    }

    /// Starts a scrub from the beginning; `unlimited`: as fast as the drives are, for an array that nobody else uses.
    ///
    /// # Errors
    /// When one is running, or the array is not writable.
    pub fn scrub_start(&self, kind: ScrubKind, unlimited: bool) -> Result<(), Refused> {
        self.core.scrub_start(kind, unlimited)
    }

    /// Ends the scrub under way; false when there is none.
    pub async fn scrub_stop(&self) -> bool {
        self.core.scrub_stop().await
    }

    /// Sets how often scrubs run by themselves (hours; 0: never) and how fast (bytes a second; 0: as the program thinks
    /// right); what is `None` stays.
    ///
    /// # Errors
    /// When the array is not writable.
    pub async fn scrub_schedule(&self, change: ScrubPlan) -> Result<(), Refused> {
        self.core.writable()?;
        {
            let mut settings = self.core.settings.borrow_mut();
            let now = self.core.rt.unix_seconds();
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
        }
        self.core.changed.wake();
        Ok(self.core.commit().await?)
    }

    /// Resolves when no scrub runs or is about to.
    pub async fn scrub_done(&self) {
        self.core.scrub_over().await;
    }

    /// Brings everything acknowledged into the trees; for tests and benches that want exact figures.
    ///
    /// # Errors
    /// When the array is not writable.
    pub async fn checkpoint(&self) -> Result<(), Fault> {
        self.core.checkpoint().await
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
            format!("a volume of {bytes} bytes"),
            "a volume has at least one block of 4 KiB and at most 2^60 bytes",
            "Give another size",
        ));
    }
    Ok(blocks)
}
