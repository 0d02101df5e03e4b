//! Places for connections: how many there are at once, and of one peer.
//!
//! A connection is a *stranger* until a request on it was allowed by somebody's role. Strangers keep nobody out: where there is no
//! place, the oldest of them goes.
//!
//! Invariants: never more than `total`, never more than `share` of one peer; one that is no stranger is never cut for another.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// By whom connections are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// A user of this machine.
    User(u32),
    /// A network that one subscriber has.
    Address(IpAddr),
}

/// The connection, as its requests see it.
#[derive(Default)]
pub struct Guest {
    is_known: AtomicBool,
    cut: Notify,
}

impl Guest {
    /// A request was allowed: it is no stranger any more.
    pub fn is_known_now(&self) {
        self.is_known.store(true, Ordering::Relaxed);
    }

    fn is_stranger(&self) -> bool {
        !self.is_known.load(Ordering::Relaxed)
    }

    /// Returns when it has to go.
    pub async fn must_go(&self) {
        self.cut.notified().await;
    }
}

/// All of them.
pub struct Places {
    total: usize,
    share: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    next: u64,
    /// In the order in which they came.
    guests: BTreeMap<u64, (Key, Arc<Guest>)>,
}

/// One of them; it is free again when this is dropped.
pub struct Place {
    places: Arc<Places>,
    number: u64,
    guest: Arc<Guest>,
}

impl Places {
    /// So many in all, and of one peer.
    pub fn new((total, share): (usize, usize)) -> Arc<Places> {
        Arc::new(Places { total, share, taken: Mutex::default() })
    }

    /// A place for one more connection of this peer; none when all are taken by others than strangers.
    pub fn take(self: &Arc<Places>, key: Key) -> Option<Place> {
        let mut taken = self.taken();
        if taken.of(key) >= self.share && !taken.cut_stranger(Some(key)) {
            return None;
        }
        if taken.guests.len() >= self.total && !taken.cut_stranger(None) {
            return None;
        }
        let (number, guest) = (taken.next, Arc::<Guest>::default());
        taken.next += 1;
        taken.guests.insert(number, (key, guest.clone()));
        drop(taken);
        Some(Place { places: self.clone(), number, guest })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        // No step in it can panic halfway.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    fn of(&self, key: Key) -> usize {
        self.guests.values().filter(|(k, _)| *k == key).count()
    }

    /// Cuts the oldest stranger of this peer, or of the one with most connections; whether there was one.
    fn cut_stranger(&mut self, of: Option<Key>) -> bool {
        let strangers =
            self.guests.iter().filter(|(_, (key, guest))| guest.is_stranger() && of.is_none_or(|of| of == *key));
        // Of equal ones the first, which came first.
        let oldest = strangers.map(|(number, (key, _))| (std::cmp::Reverse(self.of(*key)), *number)).min();
        let Some((_, guest)) = oldest.and_then(|(_, number)| self.guests.remove(&number)) else { return false };
        guest.cut.notify_one();
        true
    }
}

impl Place {
    /// Who has it.
    pub fn guest(&self) -> &Arc<Guest> {
        &self.guest
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.taken().guests.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Key = Key::User(1);
    const B: Key = Key::User(2);
    const C: Key = Key::User(3);

    fn is_there(places: &Arc<Places>, place: &Place) -> bool {
        places.taken().guests.contains_key(&place.number)
    }

    fn known(place: Option<Place>) -> Place {
        let place = place.unwrap();
        place.guest.is_known_now();
        place
    }

    #[test]
    fn the_oldest_stranger_of_a_peer_makes_room_for_its_next() {
        let places = Places::new((10, 3));
        let first = known(places.take(A));
        let (second, third) = (places.take(A).unwrap(), places.take(A).unwrap());
        let fourth = places.take(A).unwrap();
        assert!(is_there(&places, &first), "no stranger");
        assert!(!is_there(&places, &second) && is_there(&places, &third) && is_there(&places, &fourth));
        let _others = known(places.take(B));
        drop(second);
        assert_eq!(places.taken().guests.len(), 4, "its place was given away already");
    }

    #[test]
    fn a_peer_keeps_no_other_out() {
        let places = Places::new((6, 4));
        let many: Vec<_> = (0..9).map(|_| places.take(A).unwrap()).collect();
        assert_eq!(places.taken().guests.len(), 4, "its share");
        let own = known(places.take(B));
        let more: Vec<_> = (0..3).map(|_| places.take(C).unwrap()).collect();
        assert!(is_there(&places, &own) && more.iter().all(|place| is_there(&places, place)));
        assert_eq!(many.iter().filter(|place| is_there(&places, place)).count(), 2, "who has most gives");
    }

    #[tokio::test]
    async fn who_has_to_go_is_told() {
        let places = Places::new((1, 1));
        let (first, _second) = (places.take(A).unwrap(), places.take(B).unwrap());
        first.guest().must_go().await;
    }

    #[test]
    fn those_that_are_known_stay_and_the_next_is_refused() {
        let places = Places::new((3, 2));
        let (_a, b) = (known(places.take(A)), known(places.take(A)));
        assert!(places.take(A).is_none(), "its share");
        let _c = known(places.take(B));
        assert!(places.take(C).is_none(), "the total");
        drop(b);
        assert!(places.take(C).is_some());
    }
}
