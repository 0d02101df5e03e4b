//! The run queue and the wakers that feed it.
//!
//! A waker may be called from any thread. On the thread that owns the runtime it pushes to a plain queue; on any
//! other it pushes to a locked one, and when the owner sleeps it rings the eventfd, which ends the sleep in the ring.
//!
//! Invariants: a task is in a queue at most once; `Local` is touched only by the owning thread and never while
//! foreign code runs; the owner sleeps only when it has said so and then found the locked queue empty.
//!
//! Not here: the tasks themselves (`executor`).
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Wake;

use crate::share::Class;

/// The key of the future given to `block_on`, which does not live in the slab.
pub(crate) const ROOT: usize = usize::MAX;

/// The identity of a task, and its waker.
pub(crate) struct Tag {
    pub(crate) key: usize,
    class: Class,
    queued: AtomicBool,
    queue: Arc<Queue>,
}

impl Tag {
    pub(crate) fn new(key: usize, class: Class, queue: &Arc<Queue>) -> Arc<Tag> {
        Arc::new(Tag { key, class, queued: AtomicBool::new(false), queue: queue.clone() })
    }

    /// From here on a wake queues the task again. Called before the poll, so that a wake during it is not lost. For one from
    /// another thread that takes more than this store: all of them go through an `AtomicWaker`, whose `register` the
    /// task calls before it looks for what it was woken for.
    pub(crate) fn taken(&self) {
        self.queued.store(false, Ordering::Release);
    }

    pub(crate) fn is_background(&self) -> bool {
        self.class == Class::Background
    }

    /// Puts the task in the queue unless it is there.
    pub(crate) fn enqueue(self: &Arc<Tag>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.queue.push(self.clone());
        }
    }
}

impl Wake for Tag {
    fn wake(self: Arc<Self>) {
        self.enqueue();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.enqueue();
    }
}

struct Local {
    ready: VecDeque<Arc<Tag>>,
    /// Of the class of the background.
    background: VecDeque<Arc<Tag>>,
    closed: bool,
}

/// The ready tasks of one runtime.
pub(crate) struct Queue {
    owner: u64,
    local: UnsafeCell<Local>,
    /// Woken by other threads; None once the runtime has ended.
    remote: Mutex<Option<Vec<Arc<Tag>>>>,
    /// The owner sleeps, or is about to: who pushes then rings. One who pushed before `fall_asleep` took the lock was
    /// found there; one who takes it later sees this flag, by the order of the lock.
    asleep: AtomicBool,
    bell: Option<OwnedFd>,
}

// SAFETY: `local` is reached only through `local()`, which asserts that the caller is on the owning thread;
// everything else is Sync by itself.
unsafe impl Sync for Queue {}
// SAFETY: the parts are Send; `local` is then dropped by whichever thread holds the last Arc, alone.
unsafe impl Send for Queue {}

impl Queue {
    /// A queue owned by this thread; `bell` is the eventfd that the ring listens to.
    pub(crate) fn new(bell: Option<OwnedFd>) -> Arc<Queue> {
        Arc::new(Queue {
            owner: thread_mark(),
            local: UnsafeCell::new(Local { ready: VecDeque::new(), background: VecDeque::new(), closed: false }),
            remote: Mutex::new(Some(Vec::new())),
            asleep: AtomicBool::new(false),
            bell,
        })
    }

    fn with_local<R>(&self, f: impl FnOnce(&mut Local) -> R) -> R {
        assert_eq!(self.owner, thread_mark(), "the run queue belongs to another thread");
        // SAFETY: we are on the owning thread, and every closure given here (all in this file) only moves Arcs in
        // and out, calls no foreign code and does not re-enter; so this is the only reference.
        f(unsafe { &mut *self.local.get() })
    }

    fn push(&self, tag: Arc<Tag>) {
        if self.owner == thread_mark() {
            // A refused tag is dropped outside of the closure.
            drop(self.with_local(|l| {
                if l.closed {
                    return Some(tag);
                }
                match tag.class {
                    Class::Usual => l.ready.push_back(tag),
                    Class::Background => l.background.push_back(tag),
                }
                None
            }));
            return;
        }
        match &mut *self.remote.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(woken) => woken.push(tag),
            None => return,
        }
        if self.asleep.swap(false, Ordering::AcqRel)
            && let Some(bell) = &self.bell
        {
            // Fails only when the counter would overflow, and then the bell rings already.
            let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
        }
    }

    /// Moves what other threads woke to the local queue.
    pub(crate) fn take_remote(&self) {
        let mut remote = self.remote.lock().unwrap_or_else(PoisonError::into_inner);
        let woken = remote.as_mut().map(std::mem::take).unwrap_or_default();
        drop(remote);
        for tag in woken {
            self.push(tag);
        }
    }

    /// Whether the owner may sleep: from now on other threads ring, and none has woken a task before.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.asleep.store(true, Ordering::Release);
        let woken = self.remote.lock().unwrap_or_else(PoisonError::into_inner);
        let may = woken.as_ref().is_none_or(Vec::is_empty);
        drop(woken);
        if !may {
            self.wake_up();
        }
        may
    }

    /// Whether other threads have woken something.
    pub(crate) fn has_remote(&self) -> bool {
        let woken = self.remote.lock().unwrap_or_else(PoisonError::into_inner);
        woken.as_ref().is_some_and(|woken| !woken.is_empty())
    }

    /// The owner is awake, whoever woke it.
    pub(crate) fn wake_up(&self) {
        self.asleep.store(false, Ordering::Release);
    }

    pub(crate) fn len(&self) -> usize {
        self.with_local(|l| l.ready.len() + l.background.len())
    }

    /// Takes the task that has waited longest: of the background, if it is the background's turn, or nothing else is ready.
    pub(crate) fn pop_first(&self, background_first: bool) -> Option<Arc<Tag>> {
        self.with_local(|l| {
            let (first, second) = match background_first {
                true => (&mut l.background, &mut l.ready),
                false => (&mut l.ready, &mut l.background),
            };
            first.pop_front().or_else(|| second.pop_front())
        })
    }

    /// Takes the `i`th ready task, where none is of the background; the order of the others may change.
    pub(crate) fn pop_at(&self, i: usize) -> Option<Arc<Tag>> {
        self.with_local(|l| l.ready.swap_remove_back(i))
    }

    /// The end of the runtime: forgets the ready tasks and takes no more.
    pub(crate) fn close(&self) {
        let ready = self.with_local(|l| {
            l.closed = true;
            (std::mem::take(&mut l.ready), std::mem::take(&mut l.background))
        });
        drop(ready);
        let woken = self.remote.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(woken);
    }
}

/// A number that no other thread of this process has or had.
fn thread_mark() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static MARK: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    MARK.with(|m| *m)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    #[test]
    fn a_task_is_queued_once() {
        let queue = Queue::new(None);
        let tag = Tag::new(3, Class::Usual, &queue);
        let waker = Waker::from(tag.clone());
        waker.wake_by_ref();
        waker.wake_by_ref();
        assert_eq!(queue.len(), 1);
        assert_eq!(queue.pop_first(false).unwrap().key, 3);
        tag.taken();
        waker.wake();
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn the_background_is_taken_in_its_turn_and_when_nothing_else_is_ready() {
        let queue = Queue::new(None);
        for (key, class) in [(1, Class::Background), (2, Class::Usual), (3, Class::Background), (4, Class::Usual)] {
            Tag::new(key, class, &queue).enqueue();
        }
        let taken = [false, true, false, false].map(|its_turn| queue.pop_first(its_turn).unwrap().key);
        assert_eq!((taken, queue.len()), ([2, 1, 4, 3], 0));
    }

    #[test]
    fn a_wake_from_another_thread_waits_in_the_remote_queue() {
        let queue = Queue::new(None);
        let waker = Waker::from(Tag::new(0, Class::Usual, &queue));
        std::thread::spawn(move || waker.wake()).join().unwrap();
        assert_eq!(queue.len(), 0);
        queue.take_remote();
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn only_a_sleeping_owner_is_rung() {
        let bell = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap();
        let queue = Queue::new(Some(bell.try_clone().unwrap()));
        let rung = || rustix::io::read(&bell, &mut [0; 8]).is_ok();
        let wake = |key| {
            let waker = Waker::from(Tag::new(key, Class::Usual, &queue));
            std::thread::spawn(move || waker.wake()).join().unwrap();
        };
        wake(0);
        assert!(!rung(), "an owner that is awake looks before it sleeps");
        assert!(!queue.fall_asleep(), "somebody was woken");
        queue.take_remote();
        assert!(queue.fall_asleep());
        wake(1);
        assert!(rung());
        wake(2);
        assert!(!rung(), "once is enough");
        queue.wake_up();
        queue.take_remote();
        assert_eq!(queue.len(), 3);
    }

    #[test]
    fn closed_takes_no_more() {
        let queue = Queue::new(None);
        let tag = Tag::new(0, Class::Usual, &queue);
        tag.enqueue();
        queue.close();
        tag.taken();
        tag.enqueue();
        assert_eq!(queue.len(), 0);
        assert_eq!(Arc::strong_count(&tag), 1);
    }
}
