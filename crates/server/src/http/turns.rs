//! Turns: how many requests are worked on at once over one way in, and how many of one peer.
//!
//! Whoever sends requests that take long keeps others out as little as can be: each way in has turns of its own, a peer has a
//! share of them, and who has shown no token over TCP takes them from a heap for strangers.
//!
//! Invariants: a peer never has more than its share; root and the server's own user need no turn, and are never refused.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::Request;

use super::Caller;
use super::who::OPEN;
use crate::listen::{Ends, Key, key_of};
use crate::tokens::network;

/// Requests over one way in, and those of one peer: a user, or an address.
const REQUESTS: (usize, usize) = (64, 16);

/// Those that strangers may send over TCP. One may wait for the first core.
const OPEN_REQUESTS: (usize, usize) = (16, 4);

/// The turns of one way in.
pub struct Turns {
    named: Arc<Heap>,
    /// For what needs no token; none: like all others.
    open: Option<Arc<Heap>>,
}

struct Heap {
    total: usize,
    share: usize,
    taken: Mutex<BTreeMap<Key, usize>>,
}

/// One of them; it is free again when this is dropped.
pub struct Taken {
    heap: Arc<Heap>,
    key: Key,
}

impl Turns {
    /// Of a way in on which everybody is known, or is on this machine.
    pub fn here() -> Arc<Turns> {
        Arc::new(Turns { named: Heap::new(REQUESTS), open: None })
    }

    /// Of one that is open to strangers.
    pub fn over_tcp() -> Arc<Turns> {
        Arc::new(Turns { named: Heap::new(REQUESTS), open: Some(Heap::new(OPEN_REQUESTS)) })
    }

    /// So many, all of which one may have.
    #[cfg(test)]
    pub fn of(total: usize) -> Arc<Turns> {
        Arc::new(Turns { named: Heap::new((total, total)), open: None })
    }

    /// A turn for this request, if it needs one.
    ///
    /// # Errors
    /// Why there is none.
    pub fn take(&self, request: &Request) -> Result<Option<Taken>, String> {
        let key = match (request.extensions().get(), request.extensions().get::<Ends>()) {
            (Some(Caller::User(user)), _) if user.is_root_or_own() => return Ok(None),
            (Some(Caller::User(user)), _) => key_of(user),
            (Some(Caller::Token(_, from)), _) => Key::Address(network(*from)),
            (None, Some(ends)) => Key::Address(network(ends.from.ip())),
            (None, None) => Key::User(u32::MAX),
        };
        let open = self.open.as_ref().filter(|_| OPEN.contains(&request.uri().path()));
        Heap::take(open.unwrap_or(&self.named), key).map(Some)
    }
}

impl Heap {
    fn new((total, share): (usize, usize)) -> Arc<Heap> {
        Arc::new(Heap { total, share, taken: Mutex::default() })
    }

    fn take(heap: &Arc<Heap>, key: Key) -> Result<Taken, String> {
        let mut taken = heap.taken();
        if taken.values().sum::<usize>() >= heap.total {
            return Err(format!("{} requests are in flight already", heap.total));
        }
        let own = taken.entry(key).or_default();
        if *own >= heap.share {
            return Err(format!("{own} requests of one user or address are in flight already"));
        }
        *own += 1;
        drop(taken);
        Ok(Taken { heap: heap.clone(), key })
    }

    fn taken(&self) -> MutexGuard<'_, BTreeMap<Key, usize>> {
        // No step in it can panic halfway.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut taken = self.heap.taken();
        if let Some(own) = taken.get_mut(&self.key) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::super::User;
    use super::*;

    fn of_user(uid: u32) -> Request {
        let mut request = Request::new(Body::empty());
        request.extensions_mut().insert(Caller::User(User { uid: Some(uid), gid: None }));
        request
    }

    fn of_address(address: &str, path: &str) -> Request {
        let mut request = Request::get(path).body(Body::empty()).unwrap();
        let from = format!("{address}:1").parse().unwrap();
        request.extensions_mut().insert(Ends { from, to: "10.0.0.1:9460".parse().unwrap() });
        request
    }

    /// As many as there are; none is given back.
    fn all(turns: &Turns, request: &Request) -> Vec<Taken> {
        std::iter::from_fn(|| turns.take(request).ok().flatten()).collect()
    }

    /// Users of this number and the next ones, none of whom is the server's own.
    const STRANGERS: std::ops::Range<u32> = 3_000_000_000..3_000_000_005;

    #[test]
    fn a_peer_has_a_share_and_root_is_never_refused() {
        let turns = Turns::here();
        let mut held: Vec<Vec<Taken>> = STRANGERS.map(|uid| all(&turns, &of_user(uid))).collect();
        assert_eq!(held.iter().map(Vec::len).collect::<Vec<_>>(), [16, 16, 16, 16, 0]);
        let own = rustix::process::geteuid().as_raw();
        for uid in [0, own] {
            assert!((0..100).all(|_| turns.take(&of_user(uid)).is_ok_and(|turn| turn.is_none())), "{uid}");
        }
        held[0].pop();
        assert!(turns.take(&of_user(STRANGERS.end)).is_ok(), "one was given back");
        drop(held);
        assert!(turns.named.taken().is_empty(), "who has none is not remembered");
    }

    #[test]
    fn strangers_take_no_turn_that_a_token_needs() {
        let turns = Turns::over_tcp();
        let addresses = ["10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"];
        let held = addresses.map(|from| all(&turns, &of_address(from, "/healthz")));
        assert_eq!(held.each_ref().map(Vec::len), [4, 4, 4, 4, 0]);
        assert_eq!(all(&turns, &of_address("10.0.0.2", "/v1/arrays")).len(), 16);
    }
}
