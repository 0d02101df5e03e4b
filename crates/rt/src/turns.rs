//! What long work may take of a turn of the runtime.
//!
//! A turn is what runs between two looks at the ring. Work that is long in all is cut into steps, and each says beforehand
//! what it costs. While the turn has something left a step begins at once; else it waits for a later turn. So whoever else
//! works on this thread waits for one turn's allowance, however many steps are asked for at the same time.
//!
//! ```text
//!   turn:  look at the ring -> give the allowance to those who wait, group after group -> run what is ready
//! ```
//!
//! Invariants: nobody overtakes those who wait; groups take turns, members of a group take turns within it, the steps of a
//! member keep their order; the runtime does not sleep while a step waits, and time of the modelled world does not move.
//!
//! Not here: what a step does, and who counts as one (who calls knows).

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use crate::Rt;

/// What all long work together may take of one turn, in costs of about a microsecond: others hardly notice it, and a look at
/// the ring costs little beside it.
pub const TURN_COST: u32 = 100;

/// For whom a step is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Party {
    /// What shares come first: an array.
    pub group: u64,
    /// Who shares within: a client of it.
    pub member: u64,
}

/// The allowance, and who waits for it.
#[derive(Default)]
pub(crate) struct Turns {
    left: Cell<u32>,
    number: Cell<u64>,
    line: RefCell<Line>,
    /// Woken by the next turn, at no cost.
    yielded: RefCell<Vec<Waker>>,
}

/// Those who wait. No map is gone through, so that their order is that in which they came.
#[derive(Default)]
struct Line {
    order: VecDeque<u64>,
    groups: BTreeMap<u64, Group>,
}

#[derive(Default)]
struct Group {
    order: VecDeque<u64>,
    members: BTreeMap<u64, VecDeque<Rc<Step>>>,
}

struct Step {
    cost: u32,
    state: Cell<State>,
    waker: RefCell<Option<Waker>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    Begun,
    /// Whoever waited for it has gone.
    Left,
}

impl Line {
    fn push(&mut self, party: Party, step: Rc<Step>) {
        let group = self.groups.entry(party.group).or_default();
        if group.members.is_empty() {
            self.order.push_back(party.group);
        }
        let steps = group.members.entry(party.member).or_default();
        if steps.is_empty() {
            group.order.push_back(party.member);
        }
        steps.push_back(step);
    }

    fn pop(&mut self) -> Option<Rc<Step>> {
        let group_id = self.order.pop_front()?;
        let group = self.groups.get_mut(&group_id).expect("a group in the order is there");
        let member = group.order.pop_front().expect("a group that waits has members");
        let steps = group.members.get_mut(&member).expect("a member in the order is there");
        let step = steps.pop_front();
        if steps.is_empty() {
            group.members.remove(&member);
        } else {
            group.order.push_back(member);
        }
        if group.members.is_empty() {
            self.groups.remove(&group_id);
        } else {
            self.order.push_back(group_id);
        }
        step
    }
}

impl Turns {
    /// Whether somebody waits for the next turn.
    pub(crate) fn is_waited_for(&self) -> bool {
        !self.line.borrow().order.is_empty() || !self.yielded.borrow().is_empty()
    }

    /// A turn begins: whoever may go on is woken, behind what is ready already.
    pub(crate) fn begin(&self) {
        self.number.set(self.number.get() + 1);
        self.left.set(TURN_COST);
        let yielded = self.yielded.take();
        yielded.into_iter().for_each(Waker::wake);
        while self.left.get() > 0 {
            let next = self.line.borrow_mut().pop();
            let Some(step) = next else { return };
            if step.state.get() == State::Left {
                continue;
            }
            step.state.set(State::Begun);
            self.take(step.cost);
            let waker = step.waker.take();
            waker.into_iter().for_each(Waker::wake);
        }
    }

    fn take(&self, cost: u32) {
        self.left.set(self.left.get().saturating_sub(cost));
    }
}

/// A place in the line; left when dropped.
struct Place(Rc<Step>);

impl Drop for Place {
    fn drop(&mut self) {
        if self.0.state.get() == State::Waiting {
            self.0.state.set(State::Left);
        }
    }
}

impl Rt {
    /// Waits until a step of long work that costs so much may begin. One that costs more than a turn has takes what is left of
    /// one.
    pub async fn step(&self, party: Party, cost: u32) {
        let turns = &self.inner.turns;
        if turns.left.get() > 0 && turns.line.borrow().order.is_empty() {
            return turns.take(cost);
        }
        let step = Rc::new(Step { cost, state: Cell::new(State::Waiting), waker: RefCell::default() });
        turns.line.borrow_mut().push(party, step.clone());
        let place = Place(step);
        poll_fn(|cx| {
            if place.0.state.get() == State::Begun {
                return Poll::Ready(());
            }
            *place.0.waker.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Lets the others run, those too whom the ring has news for: [`Rt::yield_now`] does not look at it.
    pub async fn yield_turn(&self) {
        let turns = &self.inner.turns;
        let now = turns.number.get();
        poll_fn(|cx| {
            if turns.number.get() != now {
                return Poll::Ready(());
            }
            turns.yielded.borrow_mut().push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// The number of this turn: what is done under one number is done without a look at the ring.
    #[must_use]
    pub fn turn(&self) -> u64 {
        self.inner.turns.number.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who began a step in which turn, in their order.
    type Begun = Rc<RefCell<Vec<(u64, u64)>>>;

    fn steps(rt: &Rt, begun: &Begun, party: Party, count: usize, cost: u32) {
        for _ in 0..count {
            let (rt, begun) = (rt.clone(), begun.clone());
            let inner = rt.clone();
            rt.spawn(async move {
                inner.step(party, cost).await;
                begun.borrow_mut().push((inner.turn(), party.group * 10 + party.member));
            })
            .detach();
        }
    }

    #[test]
    fn a_turn_has_room_for_so_much() {
        let rt = Rt::modelled(1);
        rt.block_on(async {
            let begun = Begun::default();
            let before = rt.now();
            steps(&rt, &begun, Party::default(), 100, TURN_COST / 4);
            while begun.borrow().len() < 100 {
                rt.yield_turn().await;
            }
            assert_eq!(rt.now(), before, "nobody slept");
            let begun = begun.borrow();
            let (first, last) = (begun[0].0, begun[99].0);
            let most = (first..=last).map(|turn| begun.iter().filter(|(t, _)| *t == turn).count()).max();
            assert_eq!(most, Some(4));
        });
    }

    #[test]
    fn groups_and_their_members_take_turns() {
        let rt = Rt::modelled(2);
        rt.block_on(async {
            let begun = Begun::default();
            // Two members of one group, loud; one of another, quiet.
            for (group, member, count) in [(1, 0, 50), (1, 1, 50), (2, 0, 10)] {
                steps(&rt, &begun, Party { group, member }, count, TURN_COST);
            }
            while begun.borrow().len() < 110 {
                rt.yield_turn().await;
            }
            let begun = begun.borrow();
            let at = |who| begun.iter().rposition(|(_, w)| *w == who).unwrap();
            assert!(at(20) < 26, "the quiet group has every second turn: {}", at(20));
            let of = |who| begun[..60].iter().filter(|(_, w)| *w == who).count();
            assert!(of(10).abs_diff(of(11)) <= 2, "{} and {}", of(10), of(11));
        });
    }

    #[test]
    fn who_leaves_costs_nothing() {
        let rt = Rt::modelled(3);
        rt.block_on(async {
            let begun = Begun::default();
            let gone: Vec<_> = (0..1000)
                .map(|_| {
                    let inner = rt.clone();
                    rt.spawn(async move { inner.step(Party::default(), TURN_COST).await })
                })
                .collect();
            rt.yield_turn().await;
            gone.into_iter().for_each(|task| task.cancel());
            let turn = rt.turn();
            steps(&rt, &begun, Party::default(), 1, 1);
            while begun.borrow().is_empty() {
                rt.yield_turn().await;
            }
            assert!(begun.borrow()[0].0 <= turn + 3);
        });
    }
}
