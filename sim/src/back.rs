//! Going back to the generation before the newest, on copies of the drives: the array goes on from there.

use std::rc::Rc;
use std::time::Duration;

use api::{ArrayState, ArrayView, SeatState};
use array::{OpenHow, RefusedCode};
use ondisk::{Generation, MemberState};
use rand::RngExt;
use rt::model::Disk;

use crate::census::{in_slot, label, newest_generation};
use crate::kind::Kind;
use crate::late::land;
use crate::model::Mode;
use crate::report::Report;
use crate::run::{DEGRADED, drain, set_to_work};
use crate::volumes::{Fate, Volumes};
use crate::workload::Done;
use crate::world::{World, open, open_degraded};

/// After some work the newest generation is given up. What a new volume gets from then on is there after the next end; that
/// nothing wrong is read of the others their checksums say.
pub fn one_generation(world: &mut World, volumes: &Volumes, report: &mut Report) -> Result<(), String> {
    let disks = world.forks();
    let volumes = volumes.fork();
    let rt = world.rt();
    let array = open_degraded(&rt, &disks)?;
    if array.status().state == ArrayState::Frozen {
        return Ok(());
    }
    let done = Rc::new(Done::default());
    set_to_work(world, &rt, &array, &volumes, None, 4, &done);
    rt.block_on(rt.sleep(Duration::from_micros(world.dice.random_range(1..20_000))));
    if world.dice.random_range(0..2) == 0 {
        let _may_fail = rt.block_on(array.checkpoint());
    }
    if world.dice.random_range(0..2) == 0 {
        let _may_fail = rt.block_on(array.volume_create("given-up", 1 << 20));
    }
    drop(array);
    rt.end();
    disks.iter().for_each(|d| d.crash(world.dice.random()));

    let given_up = newest_generation(&disks);
    // A drive in reserve may have been in by then.
    let reserve: Vec<Disk> = disks.iter().filter(|d| is_spare(d, given_up.as_ref())).cloned().collect();
    given_up.iter().for_each(|g| reserve.iter().for_each(|d| land(d, g)));
    let rt = world.rt();
    let how = OpenHow { previous: true, ..DEGRADED };
    let array = match open(&rt, &disks, how) {
        Ok(array) => array,
        // There is none before, or it does not know enough.
        Err(e) if matches!(e.code, RefusedCode::Damaged | RefusedCode::MembersMissing) => {
            report.refused += 1;
            return Ok(());
        }
        Err(e) => return Err(format!("going back: {e}")),
    };
    if array.status().state == ArrayState::Frozen {
        return Err(format!("frozen: {:#?}", array.status().events));
    }
    world.counts.add(Kind::WentBack, 1);
    let kept = |d: &Disk| [0, 1].iter().any(|slot| slot_id(d, *slot) == given_up.as_ref().map(|g| g.id));
    if reserve.iter().any(|d| in_reserve(&array.status(), d) && kept(d)) {
        return Err("a drive in reserve keeps what was given up".to_owned());
    }
    let mut fresh = Volumes::default();
    let bytes = 4096 * world.dice.random_range(16..128);
    let known: Vec<String> = array.volumes().into_iter().map(|v| v.name.to_string()).collect();
    let made = rt.block_on(array.volume_create("back", bytes));
    made.map_err(|e| format!("{e}: {:#?}", array.status().events))?;
    fresh.add("back", bytes, Fate::Stays);
    let done = Rc::new(Done::default());
    set_to_work(world, &rt, &array, &fresh, None, 4, &done);
    for name in known {
        let Some(volume) = array.volume(&name) else { continue };
        for at in (0..volume.bytes()).step_by(1 << 20) {
            let _read_or_lost = rt.block_on(volume.read(at, (volume.bytes() - at).min(1 << 20)));
        }
        // So that the comparison below finds what it knows, and deleting is tried where some of it is lost.
        rt.block_on(array.volume_delete(&name)).map_err(|e| format!("{e}: {:#?}", array.status().events))?;
    }
    drain(&rt, &done)?;
    drop(array);
    rt.end();
    if let Some(wrong) = done.wrong.take() {
        return Err(wrong);
    }
    nothing_twice(given_up, newest_generation(&disks))?;
    let cut = world.dice.random_range(0..2) == 0;
    disks.iter().for_each(|d| if cut { d.power_cut(world.dice.random()) } else { d.crash(world.dice.random()) });
    let rt = world.rt();
    let array = open(&rt, &disks, DEGRADED).map_err(|e| format!("open after that: {e}"))?;
    fresh.compare(&rt, &array, if cut { Mode::PowerCut } else { Mode::Killed })
}

fn is_spare(disk: &Disk, g: Option<&Generation>) -> bool {
    let seat = label(disk).and_then(|l| g?.members.get(usize::from(l.seat.0)).filter(|m| m.uuid == l.member));
    seat.is_some_and(|m| m.state == MemberState::Spare)
}

fn in_reserve(status: &ArrayView, disk: &Disk) -> bool {
    status.members.iter().any(|m| m.state == SeatState::Spare && m.drive_name == disk.name())
}

fn slot_id(disk: &Disk, slot: usize) -> Option<u128> {
    in_slot(disk, &label(disk)?, slot).map(|g| g.id)
}

/// What carried a number under the generation that was given up shares it with nothing.
fn nothing_twice(given_up: Option<Generation>, now: Option<Generation>) -> Result<(), String> {
    let (Some(given_up), Some(now)) = (given_up, now) else { return Err("no generation is left".to_owned()) };
    let anew = now.volumes.iter().find(|v| v.name == "back").map(|v| v.id);
    let twice = now.epoch <= given_up.epoch
        || now.number <= given_up.number
        || now.next_segment < given_up.next_segment
        || anew.is_some_and(|id| id.0 < given_up.next_volume);
    if twice { Err("numbers of the generation that was given up are given out again".to_owned()) } else { Ok(()) }
}
