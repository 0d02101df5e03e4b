//! Going back to the generation before the newest: the last resort when what the newest says is wrong.
//!
//! The newest is set aside as if no drive had it. What was written since it took effect is given up; what it freed may be
//! in use for something else by now, so some blocks of before may be lost too. Every block is still matched with its
//! checksum: it reads as it was then, as it was written since, or as an error.
//!
//! The generation that is committed next has the number of the one given up and takes its slot. So a drive that was not
//! here and still has that one is out when it comes back: the others went on without it.

use std::rc::Rc;

use api::{EventCode, Remedy};
use base::BLOCK_BYTES;
use ondisk::Generation;
use rt::Buf;

use crate::fault::{Refused, RefusedCode};
use crate::member::seat::Seat;
use crate::open::Found;
use crate::rooms::Rooms;

/// Takes `newest` from what the drives say. A drive that has it was there when the one before took effect, so it counts as
/// having that one, also where the next was being written over it.
///
/// # Errors
/// When no drive has the one before.
pub(crate) fn set_aside(found: &mut [Found], newest: &Generation) -> Result<(), Refused> {
    let is_before = |g: &&Generation| Some(&g.id) == newest.ancestors.first();
    let Some(before) = found.iter().flat_map(|f| &f.generations).find(is_before).cloned() else {
        return Err(Refused::new(
            RefusedCode::Damaged,
            format!("array \"{}\"", newest.name),
            format!("no drive holds generation {}, the one before the newest", newest.number.0.saturating_sub(1)),
            "Open the newest, or copy out what can be read",
        )
        .by(Remedy::Rescue));
    };
    for f in found.iter_mut() {
        let held = f.generations.len();
        f.generations.retain(|g| g.id != newest.id);
        if f.generations.len() < held && f.generations.is_empty() {
            f.generations.push(before.clone());
            f.lent = true;
        }
    }
    Ok(())
}

/// Refuses to go back where `trial`, the same for reading only, lacks drives.
pub fn refuse_too_few(rooms: &Rooms) -> Result<(), Refused> {
    if rooms.health().survivable() {
        return Ok(());
    }
    Err(Refused::new(
        RefusedCode::MembersMissing,
        format!("array \"{}\"", rooms.ctx().name()),
        "the generation before the newest needs drives that are missing or that joined later; nothing was changed",
        "Connect the missing drives, or open the newest",
    ))
}

/// `chosen` for the replay: records of `newest` count too, where they lie in segments that it knows.
#[must_use]
pub fn with_later(chosen: &Generation, newest: &Generation) -> Generation {
    Generation { number: newest.number, epoch: chosen.epoch.max(newest.epoch), clean: false, ..chosen.clone() }
}

/// No number that `newest` gave out is given out again.
pub fn nothing_twice(rooms: &Rooms, newest: &Generation) {
    rooms.segments().begin_at(newest.next_segment);
    rooms.volumes().begin_at(newest.next_volume);
}

/// Takes `newest` off the drives, those in reserve too: they may have been in by then.
pub async fn forget(rooms: &Rooms, newest: &Generation) -> Result<(), Refused> {
    rooms.ctx().note(
        EventCode::GenerationGivenUp,
        format!(
            "generation {} and all later writes are given up; the array is back at generation {}",
            newest.number,
            newest.number.0 - 1
        ),
    );
    let seats: Vec<Rc<Seat>> = rooms.members().all().clone();
    for seat in seats {
        let Some(drive) = &seat.drive else { continue };
        let at = seat.layout.slot((newest.number.0 % 2) as usize);
        let written = match drive.write(at, Buf::zeroed(BLOCK_BYTES).freeze()).await {
            Ok(()) => drive.flush().await,
            Err(e) => Err(e),
        };
        written.map_err(|e| Refused::io(&format!("cannot write to {}", seat.drive_name()), e))?;
    }
    Ok(())
}
