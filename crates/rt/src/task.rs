//! A spawned future seen from outside: [`Task`] gives its output, or ends it.
//!
//! Not here: running it (`executor`).

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::executor::Inner;
use crate::queue::Tag;

/// Where a task leaves its output.
pub(crate) enum Outcome<T> {
    /// Still running; the waker of who awaits it.
    Running(Option<Waker>),
    /// Done, not yet asked for.
    Done(T),
    /// The output was taken.
    Taken,
    /// Cancelled before its end.
    Cancelled,
}

/// A handle on a spawned future: await it for its output. Dropping it lets the future run on.
pub struct Task<T> {
    rt: Weak<Inner>,
    tag: Arc<Tag>,
    outcome: Rc<RefCell<Outcome<T>>>,
}

impl<T> Task<T> {
    pub(crate) fn new(rt: Weak<Inner>, tag: Arc<Tag>, outcome: Rc<RefCell<Outcome<T>>>) -> Task<T> {
        Task { rt, tag, outcome }
    }

    /// Drops the future where it stands; the I/O it began runs to its end in the background. A finished task
    /// keeps its output. Awaiting a cancelled task panics.
    pub fn cancel(&self) {
        let running = matches!(*self.outcome.borrow(), Outcome::Running(_));
        if !running {
            return;
        }
        let old = self.outcome.replace(Outcome::Cancelled);
        if let Some(rt) = self.rt.upgrade() {
            rt.remove(&self.tag);
        }
        // Whoever awaits it from another task hears that it is gone.
        if let Outcome::Running(Some(waker)) = old {
            waker.wake();
        }
    }

    /// Lets the future run on by itself; the same as dropping the handle, said aloud.
    pub fn detach(self) {}

    /// Whether the output is there or the task was cancelled.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        !matches!(*self.outcome.borrow(), Outcome::Running(_))
    }
}

impl<T> Future for Task<T> {
    type Output = T;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let mut outcome = self.outcome.borrow_mut();
        match &mut *outcome {
            Outcome::Running(waker) => {
                *waker = Some(cx.waker().clone());
                Poll::Pending
            }
            Outcome::Done(_) => match std::mem::replace(&mut *outcome, Outcome::Taken) {
                Outcome::Done(output) => Poll::Ready(output),
                Outcome::Running(_) | Outcome::Taken | Outcome::Cancelled => {
                    unreachable!("matched above")
                }
            },
            Outcome::Taken => panic!("a task was awaited after it gave its output"),
            Outcome::Cancelled => panic!("a cancelled task was awaited"),
        }
    }
}

impl<T> fmt::Debug for Task<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Task({})", if self.is_finished() { "finished" } else { "running" })
    }
}

/// Leaves the output of a finished task and wakes who awaits it.
pub(crate) fn finish<T>(outcome: &RefCell<Outcome<T>>, output: T) {
    let before = outcome.replace(Outcome::Done(output));
    match before {
        Outcome::Running(Some(waker)) => waker.wake(),
        Outcome::Running(None) => {}
        Outcome::Cancelled => {
            // Cancelled by itself, in its last poll.
            let output = outcome.replace(Outcome::Cancelled);
            drop(output);
        }
        Outcome::Done(_) | Outcome::Taken => unreachable!("a task finishes once"),
    }
}

#[cfg(test)]
mod tests {
    use crate::Rt;
    use std::time::Duration;

    #[test]
    fn output_detach_and_cancel() {
        let rt = Rt::modelled(1);
        let out = rt.block_on(async {
            let a = rt.spawn(async { 5 });
            let marker = std::rc::Rc::new(());
            let kept = marker.clone();
            let sleeper = rt.clone();
            let b = rt.spawn(async move {
                sleeper.sleep(Duration::from_secs(1)).await;
                drop(kept);
            });
            rt.yield_now().await;
            b.cancel();
            assert!(b.is_finished());
            assert_eq!(std::rc::Rc::strong_count(&marker), 1);
            let detached = marker.clone();
            let sleeper = rt.clone();
            drop(rt.spawn(async move {
                sleeper.sleep(Duration::from_secs(1)).await;
                drop(detached);
            }));
            rt.sleep(Duration::from_secs(2)).await;
            assert_eq!(std::rc::Rc::strong_count(&marker), 1);
            a.await
        });
        assert_eq!(out, 5);
    }

    #[test]
    #[should_panic(expected = "cancelled task was awaited")]
    fn awaiting_a_cancelled_task() {
        let rt = Rt::modelled(1);
        rt.block_on(async {
            let task = rt.spawn(std::future::pending::<()>());
            task.cancel();
            task.await;
        });
    }
}
