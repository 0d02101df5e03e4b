//! What is noted in the notebook of an array is there in its next life, whatever ends this one.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use api::ArrayState;
use array::{Array, Fault, Notebook};
use rand::RngExt;
use rt::Rt;
use rt::model::Disk;

use crate::kind::Kind;
use crate::model::Mode;
use crate::run::set_to_work;
use crate::volumes::Volumes;
use crate::workload::Done;
use crate::world::{World, open_degraded};

/// Blocks of the ring but two, of records of so many to a block: what is promised to be kept.
const PROMISED: u64 = 4094 * 20;

fn record(number: u64) -> Vec<u8> {
    let mut record = number.to_le_bytes().to_vec();
    record.resize(100 + number as usize % 90, number as u8);
    record
}

/// The notebook, in which everything up to `noted` is as it was noted.
fn opened(rt: &Rt, array: &Array, noted: u64) -> Result<Notebook, String> {
    let volume = array.notebook().ok_or("the notebook is gone")?;
    let opened = rt.block_on(Notebook::open(volume, *array.uuid().as_bytes()));
    let (notebook, found) = opened.map_err(|e| format!("the notebook: {e}"))?;
    let (first, last) = (found.first().map_or(1, |f| f.number), found.last().map_or(0, |f| f.number));
    if last < noted || first > noted.saturating_sub(PROMISED) + 1 {
        return Err(format!("{noted} records were noted, {first} to {last} are there"));
    }
    match found.iter().zip(first..).find(|(f, number)| f.number != *number || f.record != record(f.number)) {
        Some((wrong, number)) => Err(format!("record {number} is not as it was noted: {wrong:?}")),
        None => Ok(notebook),
    }
}

/// Notes one record after the other.
async fn note(mut notebook: Notebook, noted: Rc<Cell<u64>>, most: u64) {
    loop {
        let next = notebook.next_number();
        let batch: Vec<Vec<u8>> = (next..next + 1 + next % most).map(record).collect();
        match notebook.append(&batch).await {
            Ok(()) => noted.set(next + batch.len() as u64 - 1),
            // They are noted with the next ones, if there are any.
            Err(Fault::NoRoom) => {}
            Err(_) => return,
        }
    }
}

/// Some lives that note, beside hosts; drives that may go do so in some of them.
pub fn lives(world: &mut World, volumes: &Volumes, mode: Mode) -> Result<(), String> {
    let (disks, mut volumes, mut mode) = (world.forks(), volumes.fork(), mode);
    let mut noted = 0;
    let may_lose = if crate::probes::is_optimal(world) { world.may_lose() } else { 0 };
    let mut gone: Vec<usize> = vec![];
    for life in 0..world.dice.random_range(2..6) {
        let rt = world.rt();
        let array = open_degraded(&rt, &disks)?;
        if array.status().state == ArrayState::Frozen {
            return Err(format!("life {life}: frozen after open: {:#?}", array.status().events));
        }
        volumes.compare(&rt, &array, mode)?;
        if life == 0 {
            if rt.block_on(array.upgrade()).is_err() {
                // There is no room for a generation, or none that it could be written to.
                return Ok(());
            }
            world.counts.add(Kind::Noted, 1);
        }
        let notebook = opened(&rt, &array, noted).map_err(|e| format!("life {life}: {e}"))?;
        let (told, most) = (Rc::new(Cell::new(noted)), world.dice.random_range(1..30));
        rt.spawn(note(notebook, told.clone(), most)).detach();
        let (done, hosts) = (Rc::new(Done::default()), world.dice.random_range(0..4));
        set_to_work(world, &rt, &array, &volumes, None, hosts, &done);
        rt.block_on(rt.sleep(Duration::from_micros(1 << world.dice.random_range(4..16))));
        if gone.len() < may_lose && world.dice.random_range(0..3) == 0 {
            let drive = world.dice.random_range(0..disks.len());
            disks[drive].detach();
            gone.push(drive);
            rt.block_on(rt.sleep(Duration::from_micros(1 << world.dice.random_range(4..16))));
        }
        drop(array);
        rt.end();
        noted = told.get();
        if let Some(wrong) = done.wrong.take() {
            return Err(format!("life {life}: {wrong}"));
        }
        mode = end(world, &disks);
    }
    let rt = world.rt();
    let array = open_degraded(&rt, &disks)?;
    opened(&rt, &array, noted).map_err(|e| format!("in the end: {e}"))?;
    volumes.compare(&rt, &array, mode)
}

fn end(world: &mut World, disks: &[Disk]) -> Mode {
    if world.dice.random_range(0..2) == 0 {
        disks.iter().for_each(|d| d.power_cut(world.dice.random()));
        return Mode::PowerCut;
    }
    disks.iter().for_each(|d| d.crash(world.dice.random()));
    Mode::Killed
}
