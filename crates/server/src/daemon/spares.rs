//! Drives that come to arrays by themselves: spares of the server, which belong to no array and which the first one gets that lacks one, and
//! drives that were missing and are here again.
//!
//! Invariant: a drive is looked at like any that is added by hand, without force: one that holds something stays what it is.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::{Rc, Weak};
use std::time::Duration;

use api::{ArrayView, DriveAdd, SeatState};

use super::Data;
use crate::ops::drive;
use crate::ops::open::Opened;

/// How often arrays are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// The spares that no array has got yet, as the user named them.
#[derive(Default)]
pub struct Spares {
    left: RefCell<Vec<String>>,
    /// What was told of them, so that it is told once.
    told: RefCell<BTreeSet<String>>,
    /// Whether they are being shared out.
    shared: Cell<bool>,
}

impl Spares {
    /// These drives.
    #[must_use]
    pub fn new(drives: Vec<String>) -> Spares {
        Spares { left: RefCell::new(drives), ..Spares::default() }
    }

    /// Those that no array has got yet.
    #[must_use]
    pub fn left(&self) -> Vec<String> {
        self.left.borrow().clone()
    }

    /// The configuration has `new` instead of `old`: what is new is added, what is gone is given to no array. Whether
    /// [`share`] has to begin.
    pub fn replace(&self, old: &[String], new: &[String]) -> bool {
        let mut left = self.left.borrow_mut();
        left.retain(|drive| new.contains(drive));
        left.extend(new.iter().filter(|drive| !old.contains(drive)).cloned());
        self.told.borrow_mut().clear();
        !left.is_empty() && !self.shared.get()
    }
}

/// Gives spares to arrays that lack a drive, as long as the server lives and there are spares.
pub async fn share(data: Weak<Data>) {
    while let Some(data) = data.upgrade() {
        data.spares.shared.set(!data.spares.left().is_empty());
        if !data.spares.shared.get() {
            return;
        }
        let served: Vec<Opened> = data.served.borrow().values().cloned().collect();
        for opened in served.iter().filter(|opened| !opened.read_only && !opened.volatile) {
            if lacks_a_drive(&opened.view().await) {
                give(&data, opened).await;
            }
        }
        let rt = data.world.rt.clone();
        drop((served, data));
        rt.sleep(LOOK).await;
    }
}

/// Whether a seat has only drives that are out, and no spare of the array is there to take it.
fn lacks_a_drive(view: &ArrayView) -> bool {
    let at_work = |m: &&_| matches!(m, SeatState::In | SeatState::Leaving);
    let filled = |seat: u16| view.members.iter().filter(|m| m.seat == seat).map(|m| m.state).any(|s| at_work(&&s));
    let is_gone = |state| matches!(state, SeatState::Failed | SeatState::Missing);
    let has_spare = view.members.iter().any(|m| m.state == SeatState::Spare);
    !has_spare && view.members.iter().any(|m| is_gone(m.state) && !filled(m.seat))
}

/// Adds the first spare that the array takes.
async fn give(data: &Rc<Data>, opened: &Opened) {
    let name = opened.array.first().name();
    for with in data.spares.left() {
        let request = DriveAdd { with: with.clone(), grow: false, size_bytes: None, force: false, take_from: vec![] };
        match drive::add(&data.world, opened, &request).await {
            Ok(_) => {
                data.spares.left.borrow_mut().retain(|left| *left != with);
                tracing::warn!("array {name} lacks a drive: spare {with} of the server joins it");
                return;
            }
            Err(problem) => {
                let line = format!("array {name} lacks a drive, but refuses the spare {with}: {}", problem.line());
                if data.spares.told.borrow_mut().insert(line.clone()) {
                    tracing::warn!("{line}");
                }
            }
        }
    }
}

/// How often drives that are missing are looked for.
const LOOK_FOR_MISSING: Duration = Duration::from_secs(5);

/// Takes drives of an array back that were missing and are here again, and lets go of those that have left, for as long as it is
/// served.
pub(super) async fn bring_back(data: Weak<Data>, number: u64) {
    while let Some(data) = data.upgrade() {
        let rt = data.world.rt.clone();
        let Some(opened) = data.served_as(number) else { return };
        for done in [opened.let_go_of_former().await, opened.bring_back(&data.world).await] {
            if let Err(problem) = done {
                tracing::warn!("{}", problem.line());
            }
        }
        drop((opened, data));
        rt.sleep(LOOK_FOR_MISSING).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::MemberView;

    #[test]
    fn an_array_lacks_a_drive_where_a_seat_has_none() {
        let lacks = |members: &[(u16, SeatState)]| {
            let view =
                |(seat, state): &(u16, SeatState)| MemberView { seat: *seat, state: *state, ..MemberView::default() };
            lacks_a_drive(&ArrayView { members: members.iter().map(view).collect(), ..ArrayView::default() })
        };
        use SeatState::{Failed, In, Leaving, Missing, Spare};
        assert!(!lacks(&[(0, In), (1, In)]));
        assert!(lacks(&[(0, In), (1, Failed)]) && lacks(&[(0, In), (1, Missing)]));
        assert!(!lacks(&[(0, In), (1, Failed), (1, In)]), "another has its place");
        assert!(!lacks(&[(0, In), (1, Failed), (5, Spare)]), "its own spare comes first");
        assert!(!lacks(&[(0, In), (1, Leaving)]));
    }
}
