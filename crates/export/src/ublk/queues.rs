//! The queues of one device, each with a task on the core that serves it.
//!
//! ```text
//!   core of the device                          core of a queue
//!   Queues -- QueueFor, once ---------------->  serve: Service
//!          -- leave ------------------------->
//!          <-- begun, ended, Facts ----------
//! ```
//!
//! Invariants: a queue is served by one thread from its first fetch on; a queue whose device handle is gone is served no more; where a
//! queue was left or has ended, nothing of it keeps the device open.

use std::cell::RefCell;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use futures::channel::oneshot;
use futures::future::{Either, FutureExt, LocalBoxFuture, Shared, join_all, select};
use rt::Rt;
use rt::ublk::{DeviceFile, SentQueue};

use super::UblkError;
use super::request::Limits;
use super::service::{Facts, Service, State};
use crate::namespace::Namespace;

/// Has another core serve a queue, by [`QueueFor::serve`], with the same namespace as that core reaches it. The queue is served also
/// when nobody awaits its end.
pub type Elsewhere = Rc<dyn Fn(QueueFor) -> LocalBoxFuture<'static, ()>>;

/// A queue on its way to the core that serves it. Dropped, it says that it is not served.
pub struct QueueFor {
    queue: SentQueue,
    limits: Limits,
    durable: bool,
    facts: Arc<Facts>,
    leave: oneshot::Receiver<()>,
    begun: oneshot::Sender<()>,
}

impl QueueFor {
    /// Serves it on this core, until it is left, or the kernel ends it.
    pub async fn serve<N: Namespace>(self, rt: &Rt, namespace: &N) {
        let QueueFor { queue, limits, durable, facts, leave, begun } = self;
        let service = Service::begin(rt, queue.arrive(rt), namespace, (limits, durable), facts);
        // Who made it may be gone.
        let _gone = begun.send(());
        match select(leave, pin!(service.ended())).await {
            Either::Left((Err(oneshot::Canceled), _)) => service.abandon(),
            Either::Right(_) if service.facts().state() == State::Ended => service.closed().await,
            // Asked to, or its namespace is gone.
            Either::Left((Ok(()), _)) | Either::Right(_) => service.leave().await,
        }
    }
}

/// The queues of a device, as its handle has them. Dropped, they are served no more.
pub(super) struct Queues(Vec<Served>);

struct Served {
    facts: Arc<Facts>,
    leave: RefCell<Option<oneshot::Sender<()>>>,
    ended: Shared<LocalBoxFuture<'static, ()>>,
}

impl Queues {
    /// Begins to serve so many queues of a device, here and elsewhere in turn. An error says that one is not served; the others are.
    pub(super) async fn begin<N: Namespace>(
        rt: &Rt,
        file: DeviceFile,
        count: u16,
        (namespace, elsewhere): (&N, &[Elsewhere]),
        (limits, durable): (Limits, bool),
    ) -> (Queues, Result<(), UblkError>) {
        let (mut all, mut beginnings) = (vec![], vec![]);
        for index in 0..count {
            let queue = match file.queue(index) {
                Ok(queue) => queue,
                Err(error) => return (Queues(all), Err(error.into())),
            };
            let (begun, is_begun) = oneshot::channel();
            let (leave, left) = oneshot::channel();
            let facts = Arc::new(Facts::new(limits.bytes));
            let queue = QueueFor { queue, limits, durable, facts: facts.clone(), leave: left, begun };
            let ended = match (usize::from(index) % (1 + elsewhere.len())).checked_sub(1) {
                Some(place) => elsewhere[place](queue),
                None => {
                    let (world, namespace) = (rt.clone(), namespace.clone());
                    rt.spawn(async move { queue.serve(&world, &namespace).await }).boxed_local()
                }
            };
            all.push(Served { facts, leave: RefCell::new(Some(leave)), ended: ended.shared() });
            beginnings.push(is_begun);
        }
        let are_begun = join_all(beginnings).await.iter().all(Result::is_ok);
        (Queues(all), if are_begun { Ok(()) } else { Err(UblkError::NoNamespace) })
    }

    /// How many.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Whether all are served.
    pub(super) fn are_served(&self) -> bool {
        self.0.iter().all(|queue| queue.facts.state() == State::Serving)
    }

    /// Whether one was left, or is being left.
    pub(super) fn is_one_left(&self) -> bool {
        self.0.iter().any(|queue| matches!(queue.facts.state(), State::Leaving | State::Left))
    }

    /// Requests that were begun.
    pub(super) fn requests(&self) -> u64 {
        self.0.iter().map(|queue| queue.facts.requests()).sum()
    }

    /// From now on requests may reach so far.
    pub(super) fn reach(&self, bytes: u64) {
        self.0.iter().for_each(|queue| queue.facts.reach(bytes));
    }

    /// Leaves all of them.
    pub(super) async fn leave(&self) {
        for leave in self.0.iter().filter_map(|queue| queue.leave.take()) {
            // One that has ended is left.
            let _ended = leave.send(());
        }
        self.ended().await;
    }

    /// Waits until none is served any more, and those that the kernel has ended are closed.
    pub(super) async fn ended(&self) {
        join_all(self.0.iter().map(|queue| queue.ended.clone())).await;
    }
}
