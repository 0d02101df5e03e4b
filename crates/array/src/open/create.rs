//! Create: labels on every drive, then the first generation.

use std::rc::Rc;

use api::Remedy;
use base::{ArrayUuid, BLOCK_BYTES, Epoch, MemberId, MemberUuid};
use futures::future::join_all;
use ondisk::{Label, Layout, Member, MemberState, PartOf, ScrubLine, Settings};
use rt::{Buf, Drive, IoError, Rt};

use crate::ctx::{Phase, Shape};
use crate::fault::{Refused, RefusedCode};
use crate::jobs::scrub::{MEDIA_EVERY_HOURS, PARITY_EVERY_HOURS};
use crate::member::guard::Guard;
use crate::member::seat::Seat;
use crate::rooms::Rooms;
use crate::space::plan::{CreateSpec, lay_out};

/// A random identity.
pub fn random_uuid(rt: &Rt) -> uuid::Uuid {
    let bytes = u128::from(rt.random()) << 64 | u128::from(rt.random());
    uuid::Builder::from_random_bytes(bytes.to_le_bytes()).into_uuid()
}

/// The name a person knows a drive by: its serial number, else its stable name.
pub fn drive_name(drive: &Drive) -> String {
    let info = drive.info();
    Member::drive_name_from(info.serial.as_deref().unwrap_or(&info.stable_name))
}

/// Writes a drive's label and empties its slots.
pub async fn write_label(drive: &Drive, label: &Label) -> Result<(), IoError> {
    let zeros = Buf::zeroed(BLOCK_BYTES).freeze();
    for i in 0..2 {
        drive.write(label.layout.slot(i), zeros.clone()).await?;
    }
    // Whoever had it before has it no more.
    if let Some(at) = label.layout.owner_mark().filter(|_| drive.info().shared) {
        drive.write(at, zeros.clone()).await?;
    }
    drive.flush().await?;
    for at in label.layout.labels() {
        drive.write(at, Buf::from_slice(&label.encode_at(at)).freeze()).await?;
    }
    drive.flush().await
}

/// Makes an array of `drives`; it is open for reading and writing, background work not started.
/// Volumes may fill `usable_permille` of what the ladder leaves. A `part` of an array has that one's identity.
pub async fn create(
    rt: &Rt,
    drives: Vec<Drive>,
    spec: &CreateSpec,
    usable_permille: u16,
    part: Option<(ArrayUuid, PartOf)>,
) -> Result<Rc<Rooms>, Refused> {
    let sizes: Vec<u64> = drives.iter().map(|d| d.info().blocks.0).collect();
    let plan = lay_out(spec, &sizes)?;
    if spec.force {
        crate::owner::refuse_in_use(rt, &drives).await?;
    } else {
        for drive in &drives {
            refuse_labelled(drive).await?;
        }
    }
    let (array, part) = part.unwrap_or_else(|| (ArrayUuid(random_uuid(rt)), PartOf::ALL));
    let shape = Shape {
        array,
        part,
        level: spec.level,
        scheme: spec.level.scheme_of_width(plan.view.width).expect("the plan has checked it"),
        zone_blocks: plan.zone_blocks,
        slot_blocks: plan.slot_blocks,
        rebuild_place: plan.view.rebuild_place,
        usable_permille,
    };
    let rooms = Rooms::new(rt, spec.name.clone(), shape, Phase::Open);
    rooms.ctx().set_epoch(Epoch(1));
    rooms.segments().begin_at(1);
    rooms.ctx().set(|settings| *settings = settings_of_new(rt));
    let mut written = Vec::with_capacity(drives.len());
    for (i, drive) in drives.into_iter().enumerate() {
        let layout =
            Layout::new(drive.info().blocks.0, plan.slot_blocks, plan.zone_blocks).expect("the plan has checked it");
        let label = Label {
            array: rooms.ctx().shape.array,
            member: MemberUuid(random_uuid(rt)),
            seat: MemberId(i as u16),
            part,
            layout,
            array_name: spec.name.clone(),
        };
        rooms.members().add(seat_for(&label, drive.clone(), i as u16, MemberState::In, rooms.members().guard()));
        written.push(async move { (write_label(&drive, &label).await, drive) });
    }
    for (result, drive) in join_all(written).await {
        result.map_err(|e| Refused::io(&format!("cannot write to {}", drive.info().name), e))?;
    }
    rooms.marks().mark_new().await;
    rooms.health().open_with_room(async { Ok(rooms.generations().commit().await?) }).await?;
    if rooms.members().seats_in().len() != rooms.members().all().len() {
        return Err(Refused::new(
            RefusedCode::Io,
            "cannot create the array",
            "a drive failed while it was being written",
            "Check the drives, then create the array again over what was written",
        )
        .by(Remedy::Force));
    }
    Ok(rooms)
}

/// Scrubs by themselves, the first ones counted from now.
fn settings_of_new(rt: &Rt) -> Settings {
    let every = |every_hours| ScrubLine { every_hours, started_at: rt.unix_seconds(), ..ScrubLine::default() };
    Settings { scrub_media: every(MEDIA_EVERY_HOURS), scrub_parity: every(PARITY_EVERY_HOURS), ..Settings::default() }
}

/// The seat of a freshly labelled drive.
pub fn seat_for(label: &Label, drive: Drive, bay: u16, state: MemberState, guard: &Rc<Guard>) -> Rc<Seat> {
    let member = Member {
        uuid: label.member,
        state,
        bay,
        drive_blocks: label.layout.drive_blocks,
        zones: label.layout.zones,
        leaving: false,
        gone_since: base::Generation(0),
        why_out: ondisk::WhyOut::Unsaid,
        drive_name: drive_name(&drive),
    };
    Seat::new(label.seat, &member, label.layout, Some(drive), guard)
}

/// Refuses a drive that carries an array's label.
pub async fn refuse_labelled(drive: &Drive) -> Result<(), Refused> {
    let found = crate::label::identify::identify(drive).await.map_err(|e| Refused::io(&drive.info().name, e))?;
    let Some(found) = found else { return Ok(()) };
    Err(Refused::new(
        RefusedCode::InUse,
        format!("drive {}", drive.info().name),
        format!("it belongs to array \"{}\" (seat {})", found.array_name, found.seat.0),
        "Use another drive, or wipe this one if that array is no longer needed",
    )
    .by(Remedy::WipeDrive))
}
