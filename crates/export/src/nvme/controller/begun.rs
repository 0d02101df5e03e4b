//! Commands that have begun, so that what a host sends anew waits for what it sent before.
//!
//! A host that has lost a connection sends its commands again over a new one, and then others. A write of the lost
//! connection that lands only then destroys newer data. So a new queue waits for `done` of every controller of its host.
//!
//! Invariant: `done` waits for what has begun before it was called, and for nothing later: a host with several
//! controllers that never pauses is let in, too.

use std::{cell::RefCell, rc::Rc};

use crate::stream::progress::{Executing, Progress};

/// The commands of one controller that have begun and are not done.
#[derive(Default)]
pub struct Begun {
    /// Oldest first; the last one counts what begins now.
    eras: RefCell<Vec<Rc<Progress>>>,
}

impl Begun {
    /// One more command, until the guard is dropped.
    pub fn one(&self) -> Executing {
        let mut eras = self.eras.borrow_mut();
        if eras.is_empty() {
            eras.push(Rc::default());
        }
        eras.last().expect("there is one").executing()
    }

    /// Waits until everything that has begun is done.
    pub async fn done(&self) {
        let begun = {
            let mut eras = self.eras.borrow_mut();
            eras.retain(|era| era.is_executing());
            let begun = eras.clone();
            eras.push(Rc::default());
            begun
        };
        for era in begun {
            era.executed().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Poll, Waker},
    };

    use super::*;

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn done_waits_for_what_began_before_and_for_nothing_later() {
        let begun = Begun::default();
        assert!(poll(pin!(begun.done())).is_ready());
        let (first, second) = (begun.one(), begun.one());
        let mut waiting = pin!(begun.done());
        assert!(poll(waiting.as_mut()).is_pending());
        let later = begun.one();
        let mut all = pin!(begun.done());
        assert!(poll(all.as_mut()).is_pending());
        drop(first);
        assert!(poll(waiting.as_mut()).is_pending());
        drop(second);
        assert!(poll(waiting).is_ready(), "what began later is not waited for");
        assert!(poll(all.as_mut()).is_pending());
        drop(later);
        assert!(poll(all).is_ready());
    }

    /// Hosts that try again and again while a command hangs cost no memory.
    #[test]
    fn many_who_wait() {
        let begun = Begun::default();
        let hanging = begun.one();
        for _ in 0..100 {
            assert!(poll(pin!(begun.done())).is_pending());
        }
        assert!(begun.eras.borrow().len() <= 2);
        drop(hanging);
        assert!(poll(pin!(begun.done())).is_ready());
    }
}
