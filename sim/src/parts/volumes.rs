//! The volumes of an array in parts, what they should hold, and the verbs on them, while hosts are at work.
//!
//! Invariants: one verb at a time on a volume; a verb that is not refused for a reason does what it was asked to.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use rand::RngExt;
use rt::Rt;

use super::Scene;
use super::life::Running;
use super::plan::VOLUME_BYTES_MAX;
use crate::kind::Kind;
use crate::model::Model;
use crate::volumes::Fate;

/// A volume.
pub struct Held {
    /// Its name, and the one that it may have instead.
    pub names: RefCell<Vec<String>>,
    /// What it should hold.
    pub model: RefCell<Model>,
    /// Whether it is there.
    pub fate: Cell<Fate>,
    /// Whether a verb is under way.
    pub busy: Cell<bool>,
}

/// All of them, in the order in which they were made.
#[derive(Default)]
pub struct Volumes {
    pub all: Vec<Rc<Held>>,
}

impl Held {
    /// Its name.
    pub fn name(&self) -> String {
        self.names.borrow()[0].clone()
    }
}

impl Volumes {
    /// One more.
    pub fn add(&mut self, name: &str, bytes: u64, fate: Fate) -> Rc<Held> {
        let held = Rc::new(Held {
            names: RefCell::new(vec![name.to_owned()]),
            model: RefCell::new(Model::new(bytes)),
            fate: Cell::new(fate),
            busy: Cell::new(false),
        });
        self.all.push(held.clone());
        held
    }

    /// Models of their own, with the same past.
    pub fn fork(&self) -> Volumes {
        let copy = |held: &Rc<Held>| {
            Rc::new(Held {
                names: held.names.clone(),
                model: held.model.clone(),
                fate: held.fate.clone(),
                busy: Cell::new(false),
            })
        };
        Volumes { all: self.all.iter().map(copy).collect() }
    }

    /// Those that are there.
    pub fn sure(&self) -> Vec<Rc<Held>> {
        self.all.iter().filter(|held| held.fate.get() == Fate::Stays).cloned().collect()
    }

    /// Forgets what is gone, and says whether nothing has or may have this name.
    fn is_free(&mut self, name: &str) -> bool {
        let has = |held: &Held| held.names.borrow().iter().any(|own| own == name);
        self.all.retain(|held| held.fate.get() != Fate::Gone || !has(held));
        !self.all.iter().any(|held| has(held))
    }
}

/// Begins a verb on some volume; nothing when there is none to do it to.
pub fn disturb(scene: &mut Scene, rt: &Rt, running: &Running) {
    let dice = &mut scene.world.dice;
    let idle: Vec<_> = scene.volumes.sure().into_iter().filter(|held| !held.busy.get()).collect();
    let picked = (!idle.is_empty()).then(|| idle[dice.random_range(0..idle.len())].clone());
    let name = format!("n{}", dice.random_range(0..12));
    let verb = dice.random_range(0..5);
    let bytes = scene.plan.volume_bytes(&mut scene.world.dice);
    let round = scene.plan.round_bytes();
    let free = scene.volumes.is_free(&name);
    match (verb, picked) {
        (0, Some(held)) if idle.len() > 1 => delete(rt, running, held),
        (1, Some(held)) => {
            let known = (held.model.borrow().sectors() * crate::model::SECTOR) as u64;
            let bytes = known + bytes / 2;
            if bytes.next_multiple_of(round) > VOLUME_BYTES_MAX {
                return;
            }
            grow(rt, running, held, bytes, bytes.next_multiple_of(round));
        }
        (2, Some(held)) if free => {
            scene.world.counts.add(Kind::VolumeRenamed, 1);
            rename(rt, running, held, name);
            return;
        }
        _ if free && scene.volumes.all.len() < 6 => {
            let held = scene.volumes.add(&name, bytes.next_multiple_of(round), Fate::Coming);
            create(rt, running, held.clone(), bytes);
            running.host(rt, held, scene.world.dice.random());
        }
        _ => return,
    }
    scene.world.counts.add(Kind::VolumeChanged, 1);
}

fn create(rt: &Rt, running: &Running, held: Rc<Held>, bytes: u64) {
    let whole = running.array.whole.clone();
    held.busy.set(true);
    running.begin(rt, "create", async move {
        let made = whole.volume_create(&held.name(), bytes).await;
        // A host may have been answered before.
        if made.is_ok() {
            held.fate.set(Fate::Stays);
        }
        held.busy.set(false);
        made
    });
}

fn grow(rt: &Rt, running: &Running, held: Rc<Held>, bytes: u64, becomes: u64) {
    let whole = running.array.whole.clone();
    held.busy.set(true);
    held.fate.set(Fate::Growing(becomes));
    running.begin(rt, "grow", async move {
        let grown = whole.volume_grow(&held.name(), bytes).await;
        if grown.is_ok() {
            held.model.borrow_mut().grow(becomes);
            held.fate.set(Fate::Stays);
        }
        held.busy.set(false);
        grown
    });
}

fn rename(rt: &Rt, running: &Running, held: Rc<Held>, to: String) {
    let whole = running.array.whole.clone();
    held.busy.set(true);
    held.names.borrow_mut().push(to.clone());
    running.begin(rt, "rename", async move {
        let renamed = whole.volume_rename(&held.name(), &to).await;
        if renamed.is_ok() {
            held.names.borrow_mut().remove(0);
        }
        held.busy.set(false);
        renamed
    });
}

fn delete(rt: &Rt, running: &Running, held: Rc<Held>) {
    let whole = running.array.whole.clone();
    held.busy.set(true);
    held.fate.set(Fate::Going);
    running.begin(rt, "delete", async move {
        let deleted = whole.volume_delete(&held.name()).await;
        if deleted.is_ok() {
            held.fate.set(Fate::Gone);
        }
        deleted
    });
}
