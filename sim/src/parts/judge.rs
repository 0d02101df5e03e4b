//! What must hold: a check from scratch, volumes the same in all parts, and their contents.

use std::collections::BTreeMap;
use std::rc::Rc;

use api::ArrayState;
use array::{Array, parts};
use export::{ExtentState, Fault, Namespace};
use rt::Rt;

use super::Scene;
use super::host::Host;
use super::open::{Opened, labelled};
use super::volumes::{Held, Volumes};
use crate::model::{Mode, SECTOR};
use crate::volumes::Fate;
use crate::workload::{Done, joined};

/// A check by a process of its own, on copies of the drives so that it cannot help.
pub fn check_cold(scene: &mut Scene) -> Result<(), String> {
    let rt = scene.world.rt();
    let copies: Vec<_> = labelled(scene).iter().map(rt::model::Disk::fork).collect();
    let checked = rt.block_on(parts::check(&rt, crate::world::drives(&rt, &copies), |_| {}));
    let report = checked.map_err(|e| e.to_string())?;
    rt.end();
    if report.ok() {
        return Ok(());
    }
    Err(format!("{} errors: {:#?}", report.error_count, report.errors))
}

/// No part is frozen or without volumes that the first has; after it was put together, none has more.
pub fn parts_agree(array: &Opened) -> Result<(), String> {
    for (part, number) in array.parts.iter().zip(1..) {
        if matches!(part.state(), ArrayState::Frozen | ArrayState::ReadOnly | ArrayState::Closed) {
            return Err(format!("part {number} is {:?} after open: {:#?}", part.state(), part.status().events));
        }
    }
    let live =
        |part: &Array| part.volumes().into_iter().filter(|v| v.state == api::VolumeState::Live).collect::<Vec<_>>();
    let first: BTreeMap<String, u64> =
        live(&array.parts[0]).into_iter().map(|v| (v.uuid.to_string(), v.bytes)).collect();
    for (part, number) in array.parts[1..].iter().zip(2..) {
        let there: BTreeMap<String, u64> = live(part).into_iter().map(|v| (v.name.to_string(), v.bytes)).collect();
        let same = there.len() == first.len();
        let large = |(tag, bytes): (&String, &u64)| there.get(tag).is_some_and(|own| own >= bytes);
        if !same || !first.iter().all(large) {
            return Err(format!("part {number} has volumes {there:?}, the first {first:?}"));
        }
    }
    Ok(())
}

/// Compares every volume with its model; what was found is what it holds from here on.
pub fn compare(rt: &Rt, array: &Opened, volumes: &mut Volumes, mode: Mode) -> Result<(), String> {
    let mut left = vec![];
    for held in std::mem::take(&mut volumes.all) {
        held.busy.set(false);
        let names = held.names.borrow().clone();
        let mut there = vec![];
        for name in names {
            there.extend(array.volume(&name)?.map(|volume| (name, volume)));
        }
        let fate = held.fate.get();
        let Some((name, volume)) = there.pop() else {
            match fate {
                Fate::Coming | Fate::Going | Fate::Gone => continue,
                Fate::Stays | Fate::Growing(_) => {
                    return Err(format!("volume {} is gone ({fate:?})", held.name()));
                }
            }
        };
        if fate == Fate::Gone || !there.is_empty() {
            return Err(format!("volume {name} was deleted and is back, or has two names"));
        }
        *held.names.borrow_mut() = vec![name.clone()];
        let bytes = volume.info().bytes;
        size(&held, bytes)?;
        let found = rt.block_on(volume.read(0, bytes as u32)).map_err(|e| format!("reading {name}: {e}"))?;
        let settled = held.model.borrow_mut().settle(&found, mode);
        settled.map_err(|e| format!("volume {name} ({fate:?}): {e}"))?;
        holes_are_zero(rt, &volume, bytes, &joined(&found)).map_err(|e| format!("volume {name}: {e}"))?;
        held.fate.set(Fate::Stays);
        left.push(held);
    }
    volumes.all = left;
    let mut live = array.parts[0].volumes().into_iter().filter(|v| v.state == api::VolumeState::Live);
    let unknown = live.find(|v| volumes.all.iter().all(|held| *held.name() != *v.name));
    unknown.map_or(Ok(()), |v| Err(format!("nobody made volume {}", v.name)))
}

/// Within the redundancy every part takes writes: one block of each, durably, which the model is told of.
pub fn takes_writes(rt: &Rt, array: &Opened, volumes: &Volumes, done: &Rc<Done>) -> Result<(), String> {
    let Some(held) = volumes.sure().into_iter().next() else { return Ok(()) };
    let Some(volume) = array.volume(&held.name())? else { return Ok(()) };
    let host = Host { array: array.clone(), held, done: done.clone(), across: Rc::default() };
    for stripe in 0..array.parts.len() {
        match rt.block_on(host.write_at(&volume, stripe, true)) {
            Ok(()) | Err(Fault::NoSpace) => {}
            Err(fault) => return Err(format!("part {} takes no write: {fault}", stripe + 1)),
        }
    }
    Ok(())
}

fn size(held: &Held, bytes: u64) -> Result<(), String> {
    let known = (held.model.borrow().sectors() * SECTOR) as u64;
    match held.fate.get() {
        Fate::Growing(becomes) if becomes == bytes => {
            held.model.borrow_mut().grow(bytes);
            Ok(())
        }
        _ if known == bytes => Ok(()),
        fate => Err(format!("volume {} has {bytes} bytes, not {known} ({fate:?})", held.name())),
    }
}

/// Extents cover the volume, and where nothing is stored it reads zeros.
fn holes_are_zero(rt: &Rt, volume: &impl Namespace, bytes: u64, found: &[u8]) -> Result<(), String> {
    let extents = rt.block_on(volume.extents(0, bytes, usize::MAX)).map_err(|e| format!("extents: {e}"))?;
    let mut at = 0;
    for extent in extents {
        let run = &found[at as usize..(at + extent.bytes) as usize];
        if extent.state != ExtentState::Allocated && run.iter().any(|byte| *byte != 0) {
            return Err(format!("{:?} from {at} on, {} bytes, holds something", extent.state, extent.bytes));
        }
        at += extent.bytes;
    }
    if at == bytes { Ok(()) } else { Err(format!("extents end at {at} of {bytes}")) }
}
