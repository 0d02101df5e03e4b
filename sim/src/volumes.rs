//! The volumes of an array and what they should hold: made, grown and deleted while hosts are at work, so that after a
//! restart some may be there or not.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use array::{Array, Volume};
use rt::Rt;

use crate::model::{Mode, Model, SECTOR};

/// What is known of a volume's being.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is there.
    Stays,
    /// It is being made: there or not.
    Coming,
    /// It is being made larger: this many bytes, or as many as its model has.
    Growing(u64),
    /// It is being deleted: there or not.
    Going,
    /// It was deleted.
    Gone,
}

/// A volume.
pub struct Held {
    /// Its name.
    pub name: String,
    /// What it should hold.
    pub model: Rc<RefCell<Model>>,
    /// Whether it is there.
    pub fate: Rc<Cell<Fate>>,
}

/// All of them.
#[derive(Default)]
pub struct Volumes {
    /// In the order in which they were made.
    pub all: Vec<Held>,
}

impl Volumes {
    /// One more.
    pub fn add(&mut self, name: &str, bytes: u64, fate: Fate) {
        let model = Rc::new(RefCell::new(Model::new(bytes)));
        self.all.push(Held { name: name.to_owned(), model, fate: Rc::new(Cell::new(fate)) });
    }

    /// Models of their own, with the same past.
    pub fn fork(&self) -> Volumes {
        let copy = |held: &Held| Held {
            name: held.name.clone(),
            model: Rc::new(RefCell::new(held.model.borrow().clone())),
            fate: Rc::new(Cell::new(held.fate.get())),
        };
        Volumes { all: self.all.iter().map(copy).collect() }
    }

    /// Those that are there.
    pub fn sure(&self) -> impl Iterator<Item = &Held> {
        self.all.iter().filter(|held| held.fate.get() == Fate::Stays)
    }

    /// Compares every volume with its model; what was found is what it holds from here on.
    pub fn compare(&mut self, rt: &Rt, array: &Array, mode: Mode) -> Result<(), String> {
        let mut left = Vec::new();
        for held in self.all.drain(..) {
            match (array.volume(&held.name), held.fate.get()) {
                (None, Fate::Coming | Fate::Going | Fate::Gone) => {}
                (None, fate) => return Err(format!("volume {} is gone ({fate:?})", held.name)),
                (Some(_), Fate::Gone) => return Err(format!("volume {} was deleted and is back", held.name)),
                (Some(volume), fate) => {
                    size(&volume, &held, fate)?;
                    let read = rt.block_on(volume.read(0, volume.bytes()));
                    let found = read.map_err(|e| format!("reading {}: {e}", held.name))?;
                    let settled = held.model.borrow_mut().settle(&found, mode);
                    settled.map_err(|e| format!("volume {} ({fate:?}): {e}", held.name))?;
                    held.fate.set(Fate::Stays);
                    left.push(held);
                }
            }
        }
        self.all = left;
        let mut live = array.volumes().into_iter().filter(|v| v.state == api::VolumeState::Live);
        let unknown = live.find(|v| self.all.iter().all(|held| *held.name != *v.name));
        unknown.map_or(Ok(()), |v| Err(format!("nobody made volume {}", v.name)))
    }

    /// Whether volumes that were just compared with an array had all that counts by now.
    pub fn were_in(&self, found: &Volumes, mode: Mode) -> Result<(), String> {
        for (held, found) in self.all.iter().zip(&found.all) {
            let had = held.model.borrow().had(&found.model.borrow(), mode);
            had.map_err(|e| format!("volume {}: {e}", held.name))?;
        }
        Ok(())
    }
}

fn size(volume: &Volume, held: &Held, fate: Fate) -> Result<(), String> {
    let known = (held.model.borrow().sectors() * SECTOR) as u64;
    match fate {
        Fate::Growing(bytes) if bytes == volume.bytes() => {
            held.model.borrow_mut().grow(bytes);
            Ok(())
        }
        _ if known == volume.bytes() => Ok(()),
        fate => Err(format!("volume {} has {} bytes, not {known} ({fate:?})", held.name, volume.bytes())),
    }
}
