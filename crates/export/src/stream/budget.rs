//! Admission: what a request may hold, taken before it is allocated and given back by dropping its [`Permit`].
//!
//! Invariant: a connection never holds more than its [`Allowance`]; small requests go on in its own memory when the
//! shared memory is taken.

use std::{cell::Cell, future::Future, pin::pin, rc::Rc, task::Poll, time::Duration};

use futures::{
    future::{Either, select},
    poll,
};
use rt::{Buf, Nanos, Rt};

use super::pool::{Loan, Pool};

/// How much one connection may hold.
pub struct Allowance {
    /// Requests.
    pub requests: u64,
    /// Bytes of payload.
    pub bytes: u64,
    /// The part of them that belongs to the connection alone.
    pub own_bytes: u64,
    /// Beside them, what belongs to requests of the connection that wait for nothing more of its peer.
    pub reserve_bytes: u64,
}

/// What one connection may hold.
pub struct Budget {
    requests: Rc<Pool>,
    bytes: Rc<Pool>,
    own: Rc<Pool>,
    reserve: Rc<Pool>,
    shared: Rc<Pool>,
    borrowed: Rc<Cell<u64>>,
    rt: Rt,
    not_receiving: NotReceiving,
}

/// For how long nothing was received because of ourselves: a peer cannot be blamed for that.
#[derive(Default)]
struct NotReceiving {
    before: Cell<Duration>,
    since: Cell<Option<Nanos>>,
}

/// What one request holds.
pub struct Permit {
    _request: Loan,
    _payload: Option<PayloadPermit>,
}

struct PayloadPermit {
    /// None for what comes from the reserve.
    _within_connection: Option<Loan>,
    _memory: Loan,
    _borrowed: Option<Borrowed>,
}

/// Counts what a budget has taken of the shared memory.
struct Borrowed {
    total: Rc<Cell<u64>>,
    bytes: u64,
}

impl Borrowed {
    fn new(total: &Rc<Cell<u64>>, bytes: u64) -> Self {
        total.set(total.get() + bytes);
        Borrowed { total: total.clone(), bytes }
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        self.total.set(self.total.get() - self.bytes);
    }
}

/// What a payload of `bytes` takes.
fn memory_of(bytes: u64) -> u64 {
    Buf::memory_of(bytes as usize) as u64
}

impl Budget {
    /// A budget beside others that use `shared`.
    pub fn new(rt: &Rt, allowance: &Allowance, shared: &Rc<Pool>) -> Self {
        Budget {
            requests: Pool::new(allowance.requests),
            bytes: Pool::new(allowance.bytes),
            own: Pool::new(allowance.own_bytes),
            reserve: Pool::new(allowance.reserve_bytes),
            shared: shared.clone(),
            borrowed: Rc::default(),
            rt: rt.clone(),
            not_receiving: NotReceiving::default(),
        }
    }

    /// Room for one more request, without payload yet.
    pub async fn request(&self) -> Permit {
        Permit { _request: self.requests.take(1).await, _payload: None }
    }

    /// Room for one more request, if there is some.
    pub fn try_request(&self) -> Option<Permit> {
        self.requests.try_take(1).map(|request| Permit { _request: request, _payload: None })
    }

    /// Room for its payload, unless it has that already: from the connection's own memory, else from what all share.
    pub async fn payload(&self, permit: &mut Permit, bytes: u64) {
        if permit._payload.is_some() {
            return;
        }
        let bytes = memory_of(bytes);
        let within_connection = Some(self.bytes.take(bytes).await);
        let (memory, borrowed) = match self.own.try_take(bytes) {
            Some(own) => (own, None),
            None => (self.shared.take(bytes).await, Some(Borrowed::new(&self.borrowed, bytes))),
        };
        permit._payload =
            Some(PayloadPermit { _within_connection: within_connection, _memory: memory, _borrowed: borrowed });
    }

    /// Room for all the payload of a request that waits for nothing more of its peer once its data is received: what is
    /// free, else the reserve. Such requests end by themselves, so receiving may wait for them; for others it may not,
    /// which wait for what is received next. Meanwhile nobody's patience with the peer ends.
    pub async fn payload_of_last(&self, permit: &mut Permit, bytes: u64) {
        debug_assert!(permit._payload.is_none(), "a request has its payload once");
        let bytes = memory_of(bytes);
        let payload = match self.try_payload(bytes) {
            Some(payload) => payload,
            None => {
                self.not_receiving.since.set(Some(self.rt.now()));
                let reserve = self.reserve.take(bytes).await;
                self.not_receiving.before.set(self.not_receiving());
                self.not_receiving.since.set(None);
                PayloadPermit { _within_connection: None, _memory: reserve, _borrowed: None }
            }
        };
        permit._payload = Some(payload);
    }

    /// For how long nothing was received because of ourselves.
    fn not_receiving(&self) -> Duration {
        let now = self.not_receiving.since.get().map_or(Duration::ZERO, |since| self.rt.now() - since);
        self.not_receiving.before.get() + now
    }

    fn try_payload(&self, bytes: u64) -> Option<PayloadPermit> {
        let within_connection = Some(self.bytes.try_take(bytes)?);
        let (memory, borrowed) = match self.own.try_take(bytes) {
            Some(own) => (own, None),
            None => (self.shared.try_take(bytes)?, Some(Borrowed::new(&self.borrowed, bytes))),
        };
        Some(PayloadPermit { _within_connection: within_connection, _memory: memory, _borrowed: borrowed })
    }

    /// Whether another connection waits for memory that this one holds.
    pub fn is_in_the_way(&self) -> bool {
        self.borrowed.get() > 0 && self.shared.is_contended()
    }

    /// Waits for the peer, but not longer than `patience` when others wait for the memory that it holds. What the peer
    /// could not do anything about does not count.
    pub async fn unless_in_the_way<T>(&self, patience: Duration, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        // Most often there is nothing to wait for: then nobody looks at the clock.
        if let Poll::Ready(done) = poll!(work.as_mut()) {
            return Some(done);
        }
        let mut left = patience;
        loop {
            let not_receiving = self.not_receiving();
            if let Either::Left((done, _)) = select(work.as_mut(), pin!(self.rt.sleep(left))).await {
                return Some(done);
            }
            left = self.not_receiving() - not_receiving;
            if left.is_zero() {
                if self.is_in_the_way() {
                    return None;
                }
                left = patience;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use futures::future::pending;

    use super::*;

    const ALLOWANCE: Allowance =
        Allowance { requests: 128, bytes: 64 << 20, own_bytes: 1 << 20, reserve_bytes: 1 << 20 };
    const SHARED: u64 = 512 << 20;
    const PATIENCE: Duration = Duration::from_secs(30);

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_connection_is_in_the_way_only_with_shared_memory() {
        let (rt, shared) = (Rt::modelled(1), Pool::new(SHARED));
        let [a, b, c] = std::array::from_fn(|_| Budget::new(&rt, &ALLOWANCE, &shared));
        let take = |budget: &Budget, bytes| {
            let Poll::Ready(mut permit) = poll(pin!(budget.request())) else { panic!("a free slot") };
            let done = poll(pin!(budget.payload(&mut permit, bytes))).is_ready();
            (permit, done)
        };
        let (small, done) = take(&a, 4096);
        assert!(done);
        let all = shared.try_take(SHARED - (32 << 20)).unwrap();
        let (large, done) = take(&b, 32 << 20);
        assert!(done);
        let Poll::Ready(mut permit) = poll(pin!(c.request())) else { panic!("a free slot") };
        {
            let mut waiting = pin!(c.payload(&mut permit, 2 << 20));
            assert!(poll(waiting.as_mut()).is_pending());
            assert!(b.is_in_the_way() && !a.is_in_the_way() && !c.is_in_the_way());
            drop(large);
            assert!(poll(waiting).is_ready());
        }
        drop((small, all, permit));
        assert!(shared.try_take(SHARED).is_some());
    }

    #[test]
    fn requests_that_wait_for_nothing_more_have_a_reserve() {
        let shared = Pool::new(SHARED);
        let budget = Budget::new(&Rt::modelled(1), &ALLOWANCE, &shared);
        let take = || {
            let Poll::Ready(mut permit) = poll(pin!(budget.request())) else { panic!("a free slot") };
            let done = poll(pin!(budget.payload_of_last(&mut permit, 1 << 20))).is_ready();
            done.then_some(permit)
        };
        let all = shared.try_take(SHARED).unwrap();
        let (own, reserved) = (take().unwrap(), take().unwrap());
        assert!(take().is_none(), "then such requests wait for each other");
        drop(reserved);
        let mut reserved = take().unwrap();
        assert!(poll(pin!(budget.payload(&mut reserved, 64 << 20))).is_ready(), "it has all it needs");
        drop((own, reserved, all));
        assert!(shared.try_take(SHARED).is_some());
    }

    /// In virtual time: a stalled peer is left alone for as long as nobody needs what it holds.
    #[test]
    fn a_stalled_peer_ends_when_it_is_in_the_way() {
        let rt = Rt::modelled(1);
        rt.block_on(async {
            let shared = Pool::new(SHARED);
            let stalled = Rc::new(Budget::new(&rt, &ALLOWANCE, &shared));
            let mut held = stalled.request().await;
            stalled.payload(&mut held, 32 << 20).await;
            let budget = stalled.clone();
            let waiting = rt.spawn(async move { budget.unless_in_the_way(PATIENCE, pending::<()>()).await });
            rt.sleep(Duration::from_secs(3600)).await;
            assert!(!waiting.is_finished(), "nobody waits for its memory");

            let others = shared.take(SHARED);
            let ended = async {
                assert_eq!(waiting.await, None);
                drop(held);
            };
            let since = rt.now();
            futures::join!(others, ended);
            assert!(rt.now() - since <= PATIENCE, "others wait no longer than this");
        });
    }

    /// While a request waits for the reserve nothing is received, so a peer that has sent what was asked of it, behind
    /// that request, is not to blame.
    #[test]
    fn nobody_is_blamed_for_what_was_not_received() {
        let rt = Rt::modelled(1);
        rt.block_on(async {
            let shared = Pool::new(SHARED);
            let budget = Rc::new(Budget::new(&rt, &ALLOWANCE, &shared));
            let mut asking = budget.request().await;
            budget.payload(&mut asking, 32 << 20).await;
            let _others = shared.try_take(SHARED - (32 << 20)).unwrap();
            let contended = shared.clone();
            rt.spawn(async move { drop(contended.take(1).await) }).detach();
            let (mut own, mut reserved) = (budget.request().await, budget.request().await);
            budget.payload_of_last(&mut own, 1 << 20).await;
            budget.payload_of_last(&mut reserved, 1 << 20).await;

            let waiting = budget.clone();
            let asked = rt.spawn(async move { waiting.unless_in_the_way(PATIENCE, pending::<()>()).await });
            rt.sleep(PATIENCE / 2).await;
            let not_receiving = async {
                let mut last = budget.request().await;
                budget.payload_of_last(&mut last, 1 << 20).await;
            };
            let slow = async {
                rt.sleep(10 * PATIENCE).await;
                drop(reserved);
            };
            let since = rt.now();
            futures::join!(not_receiving, slow);
            assert!(!asked.is_finished(), "nothing was received");
            assert_eq!(asked.await, None);
            let blamed = rt.now() - since - 10 * PATIENCE;
            assert!(blamed >= PATIENCE / 2 && blamed <= PATIENCE, "{blamed:?}: its own part is the peer's");
        });
    }

    #[test]
    fn memory_is_counted_as_it_is_taken() {
        let shared = Pool::new(SHARED);
        let budget = Budget::new(&Rt::modelled(1), &ALLOWANCE, &shared);
        let Poll::Ready(mut permit) = poll(pin!(budget.request())) else { panic!("a free slot") };
        assert!(poll(pin!(budget.payload(&mut permit, (1 << 20) + 512))).is_ready());
        assert!(shared.try_take(SHARED - (2 << 20) + 1).is_none());
        assert!(shared.try_take(SHARED - (2 << 20)).is_some());
    }

    #[test]
    fn work_that_ends_is_not_disturbed() {
        let rt = Rt::modelled(1);
        rt.block_on(async {
            let budget = Budget::new(&rt, &ALLOWANCE, &Pool::new(SHARED));
            let slow = async {
                rt.sleep(Duration::from_secs(1000)).await;
                7
            };
            assert_eq!(budget.unless_in_the_way(PATIENCE, slow).await, Some(7));
        });
    }
}
