//! How a life ends: handed over in order, or at any moment, also in the middle of a verb or at once after a flush.

use std::time::Duration;

use rand::RngExt;
use rt::Rt;
use rt::model::Disk;

use super::life::Running;
use super::plan::{EndIn, Life};
use super::{Scene, drives, volumes};
use crate::kind::Kind;
use crate::model::Mode;
use crate::plan::End;
use crate::run::{changed, drain, silent};

/// Lets a verb begin, and some of its writes.
pub fn come_to_it(scene: &mut Scene, rt: &Rt, life: &Life, running: &Running) -> Result<(), String> {
    match life.end_in {
        EndIn::Anywhere => return Ok(()),
        EndIn::Verb => {
            // What hosts write would count: mostly they are done.
            if scene.world.dice.random_range(0..4) > 0 {
                drain(rt, &running.done)?;
                running.done.stop.set(false);
            }
            volumes::disturb(scene, rt, running);
        }
        EndIn::Join => drives::begin(scene, rt, running),
        EndIn::Flush => return end_in_flush(scene, rt, running),
    }
    let disks = scene.world.disks.clone();
    let enough =
        changed(&disks) + scene.world.dice.random_range(0..8 * disks.len() as u64 * u64::from(scene.plan.parts));
    let until = rt.now() + Duration::from_millis(50);
    let under_way = || running.verbs.get() > 0 || running.drive_verb.get();
    while under_way() && changed(&disks) < enough && rt.now() < until {
        rt.block_on(rt.sleep(Duration::from_micros(3)));
    }
    Ok(())
}

/// Flushes what one part has, or all have.
fn end_in_flush(scene: &mut Scene, rt: &Rt, running: &Running) -> Result<(), String> {
    // Others' flushes would hide a part that is left out.
    drain(rt, &running.done)?;
    let Some(held) = scene.volumes.sure().into_iter().next() else { return Ok(()) };
    let Some(volume) = running.array.volume(&held.name())? else { return Ok(()) };
    let host = running.host_of(held);
    // A drive's flush is one of all its slices: of one part only, or others would do for it.
    let parts = running.array.parts.len();
    let lone = scene.world.dice.random_range(0..parts);
    let stripes = if scene.world.dice.random_range(0..4) == 0 { 0..parts } else { lone..lone + 1 };
    let flushed = rt.block_on(async {
        host.flush(&volume).await?;
        for stripe in stripes {
            host.write_at(&volume, stripe, false).await?;
        }
        host.flush(&volume).await
    });
    match flushed {
        Ok(()) => scene.world.counts.add(Kind::EndInFlush, 1),
        Err(export::Fault::NoSpace) => {}
        Err(fault) => return Err(format!("a write or a flush failed: {fault}")),
    }
    Ok(())
}

/// Hands the array over in order: nothing is written after that.
pub fn close(scene: &mut Scene, rt: &Rt, life: &Life, running: &Running) -> Result<(), String> {
    if scene.world.dice.random_range(0..2) == 0 {
        drain(rt, &running.done)?;
    }
    running.done.stop.set(true);
    if life.end_in == EndIn::Verb {
        // In the middle of a verb, too: it may be refused.
        volumes::disturb(scene, rt, running);
        let moment = Duration::from_micros(scene.world.dice.random_range(0..2000));
        rt.block_on(rt.sleep(moment));
        scene.world.counts.add(Kind::CloseInVerb, u64::from(running.verbs.get() > 0));
    }
    let attached = scene.world.disks.iter().all(Disk::is_attached);
    let joining = running.newcomer.borrow().clone().filter(|_| running.drive_verb.get());
    let sound = attached && !running.drive_verb.get();
    let optimal = running.array.is_optimal();
    let closed = rt.block_on(running.array.whole.clone().close());
    closed.map_err(|e| {
        format!("close: {e}: {:#?}", running.array.parts.iter().map(|p| p.status().events).collect::<Vec<_>>())
    })?;
    // Of a drive that is joining the array knows nothing before it has its label.
    let known = scene.world.disks.iter().filter(|disk| joining.as_deref() != Some(disk.name()));
    silent(rt, &known.cloned().collect::<Vec<_>>())?;
    scene.world.handed_over = true;
    // A drive may have gone out on the way.
    let seats = |disk: &Disk| running.array.seats(disk.name());
    let all_in = scene.world.disks.iter().flat_map(seats).all(|seat| seat == Some(api::SeatState::In));
    scene.whole = sound && all_in && optimal;
    Ok(())
}

/// What becomes of the drives when the process is gone.
pub fn end(scene: &mut Scene, end: End) -> Mode {
    let disks = scene.world.disks.clone();
    let (kind, mode) = match end {
        End::Close => (Kind::Close, Mode::Killed),
        End::Kill => (Kind::Kill, Mode::Killed),
        End::PowerCut => (Kind::PowerCut, Mode::PowerCut),
    };
    scene.world.counts.add(kind, 1);
    for disk in &disks {
        match end {
            End::Close => {}
            End::Kill => disk.crash(scene.world.dice.random()),
            End::PowerCut => disk.power_cut(scene.world.dice.random()),
        }
        scene.world.counts.add(Kind::StaleReturn, u64::from(!disk.is_attached()));
        disk.attach();
        disk.on_op(None);
    }
    mode
}
