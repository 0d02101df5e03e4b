//! Who may come in: places for those who have shown who they are, and a room for those who have not.
//!
//! ```text
//!   accept -> room for strangers -> handshake, Connect -> a place, until the connection ends
//!                full: one goes                            none left: refused, with an answer
//! ```
//!
//! A stranger never holds a place that somebody needs: the room takes everyone, and when it is full the oldest of the
//! address that has most there gives way. Places are shared: local clients have places of their own, and one address gets
//! no more than leaves some to others.
//!
//! Invariants: a guest is counted in one place, and gives it up when it is dropped; whoever is told to go is told once.
//!
//! Not here: what is asked of a stranger (the protocols), and sockets.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::channel::oneshot;
use rt::{Rt, net::Stream};

/// How long one who has shown who it is waits for a place before it is refused: places of connections that have just ended
/// are given back meanwhile.
const WAIT: Duration = Duration::from_secs(1);
const LOOKS: u32 = 20;

/// From where somebody comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// From this machine, by a socket file.
    Local,
    /// From an address; of version 6 the half that names the network of a machine.
    Address([u8; 8]),
}

impl Origin {
    /// Of a connection.
    pub fn of(stream: &Stream) -> Origin {
        stream.peer_ip().map_or(Origin::Local, Origin::from)
    }
}

impl From<IpAddr> for Origin {
    fn from(ip: IpAddr) -> Origin {
        let v6 = match ip {
            IpAddr::V4(v4) => Some(v4),
            IpAddr::V6(v6) => v6.to_ipv4_mapped(),
        };
        match (v6, ip) {
            (Some(v4), _) => {
                let [a, b, c, d] = v4.octets();
                Origin::Address([0, 0, 0xff, 0xff, a, b, c, d])
            }
            (None, IpAddr::V6(v6)) => Origin::Address(std::array::from_fn(|i| v6.octets()[i])),
            (None, IpAddr::V4(_)) => unreachable!("it is of version 4"),
        }
    }
}

/// How many places there are.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    /// For connections of one kind.
    pub all: usize,
    /// Of them for one address.
    pub one: usize,
}

/// What a guest is there for; each kind has places of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// To show who it is.
    Stranger,
    /// To use what is exported, from this machine.
    Local,
    /// The same, over the network.
    Network,
    /// To look what is exported, which everyone may: who has been there longest gives way.
    Look,
}

/// Room of each kind.
#[derive(Clone, Copy, Debug)]
pub struct Rooms {
    /// Those who have not shown who they are: from this machine, and over the network.
    pub strangers: [usize; 2],
    /// Socket files.
    pub local: Places,
    /// Networks.
    pub network: Places,
    /// Discovery.
    pub look: usize,
}

/// The door of a server; clones, on any thread, are the same door.
#[derive(Clone)]
pub struct Door(Arc<Mutex<Book>>);

struct Book {
    rooms: Rooms,
    next: u64,
    guests: BTreeMap<u64, Entry>,
    /// How many of each kind are there, and of each origin.
    counts: BTreeMap<(Kind, bool), usize>,
    of_origin: BTreeMap<(Kind, Origin), usize>,
}

struct Entry {
    kind: Kind,
    origin: Origin,
    /// By which it is told to go, as long as it may be told so.
    leave: Option<oneshot::Sender<()>>,
}

/// A connection that has come in; gives its place back when dropped.
pub struct Guest {
    door: Door,
    id: u64,
    origin: Origin,
}

/// Why somebody gets no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// All are taken.
    #[error("all {0} places are taken")]
    All(usize),
    /// This address has its share.
    #[error("this address has its {0} places")]
    Share(usize),
}

impl Book {
    fn add(&mut self, kind: Kind, origin: Origin, by: isize) {
        let local = origin == Origin::Local;
        let count = self.counts.entry((kind, local)).or_default();
        *count = count.checked_add_signed(by).expect("guests are counted once");
        let of_origin = self.of_origin.entry((kind, origin)).or_default();
        *of_origin = of_origin.checked_add_signed(by).expect("guests are counted once");
        if *of_origin == 0 {
            self.of_origin.remove(&(kind, origin));
        }
    }

    fn count(&self, kind: Kind, local: bool) -> usize {
        self.counts.get(&(kind, local)).copied().unwrap_or_default()
    }

    /// Tells one of `kind` to go: the oldest of the origin that has most. Whether there is one who can be told.
    fn send_away(&mut self, kind: Kind, local: bool) -> bool {
        let of_kind = self.of_origin.iter().filter(|((k, o), _)| *k == kind && (*o == Origin::Local) == local);
        let mut greediest: Vec<_> = of_kind.map(|((_, origin), n)| (*n, *origin)).collect();
        greediest.sort_unstable_by_key(|(n, _)| std::cmp::Reverse(*n));
        let most = greediest.first().map_or(0, |(n, _)| *n);
        let among = |e: &Entry| greediest.iter().any(|(n, origin)| *n == most && *origin == e.origin);
        let can_go = |e: &Entry| e.kind == kind && e.leave.is_some();
        // Most often one has the most; when many have as few, whoever is oldest goes.
        let oldest = self
            .guests
            .iter()
            .find(|(_, e)| can_go(e) && (most == 1 || among(e)) && (e.origin == Origin::Local) == local);
        let Some(id) = oldest.map(|(id, _)| *id) else { return false };
        let entry = self.guests.get_mut(&id).expect("it was just found");
        let (leave, origin) = (entry.leave.take(), entry.origin);
        // Its room is free from now on, however long its end takes.
        entry.kind = kind;
        self.forget(id, kind, origin);
        leave.is_some_and(|leave| leave.send(()).is_ok())
    }

    fn forget(&mut self, id: u64, kind: Kind, origin: Origin) {
        self.guests.remove(&id);
        self.add(kind, origin, -1);
    }
}

impl Door {
    pub fn new(rooms: Rooms) -> Door {
        let (guests, counts, of_origin) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Door(Arc::new(Mutex::new(Book { rooms, next: 0, guests, counts, of_origin })))
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        // A book that was left half written would be our bug, and the process ends with it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a stranger in; it goes when the other end says so. Whether another had to go.
    pub fn enter(&self, origin: Origin) -> (Guest, oneshot::Receiver<()>, bool) {
        let (leave, told) = oneshot::channel();
        let mut book = self.book();
        let (id, local) = (book.next, origin == Origin::Local);
        book.next += 1;
        book.guests.insert(id, Entry { kind: Kind::Stranger, origin, leave: Some(leave) });
        book.add(Kind::Stranger, origin, 1);
        let over = book.count(Kind::Stranger, local) > book.rooms.strangers[usize::from(!local)];
        let sent_away = over && book.send_away(Kind::Stranger, local);
        drop(book);
        (Guest { door: self.clone(), id, origin }, told, sent_away)
    }

    /// Has a stranger go, because there is no room for more of anything; whether there is one.
    pub fn make_room(&self) -> bool {
        let mut book = self.book();
        book.send_away(Kind::Stranger, false) || book.send_away(Kind::Stranger, true)
    }
}

impl Guest {
    /// Gives a place of `kind` to one who has shown who it is; waits a little for one.
    ///
    /// # Errors
    /// There is none for it.
    pub async fn seat(&self, rt: &Rt, look: bool) -> Result<(), Full> {
        for _ in 1..LOOKS {
            if self.seat_now(look).is_ok() {
                return Ok(());
            }
            rt.sleep(WAIT / LOOKS).await;
        }
        self.seat_now(look)
    }

    fn seat_now(&self, look: bool) -> Result<(), Full> {
        let mut book = self.door.book();
        let local = self.origin == Origin::Local;
        let kind = match (look, local) {
            (true, _) => Kind::Look,
            (false, true) => Kind::Local,
            (false, false) => Kind::Network,
        };
        let places = match kind {
            Kind::Stranger => unreachable!("it has shown who it is"),
            Kind::Local => book.rooms.local,
            Kind::Network => book.rooms.network,
            Kind::Look => Places { all: book.rooms.look, one: usize::MAX },
        };
        // Told to go already.
        let Some(was) = book.guests.get(&self.id).map(|e| e.kind) else { return Err(Full::All(places.all)) };
        if was == kind {
            return Ok(());
        }
        if book.of_origin.get(&(kind, self.origin)).is_some_and(|n| *n >= places.one) {
            return Err(Full::Share(places.one));
        }
        if book.count(kind, true) + book.count(kind, false) >= places.all
            && !(kind == Kind::Look && (book.send_away(kind, false) || book.send_away(kind, true)))
        {
            return Err(Full::All(places.all));
        }
        book.add(was, self.origin, -1);
        book.add(kind, self.origin, 1);
        let entry = book.guests.get_mut(&self.id).expect("it was just there");
        entry.kind = kind;
        if kind != Kind::Look {
            entry.leave = None;
        }
        Ok(())
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut book = self.door.book();
        if let Some(kind) = book.guests.get(&self.id).map(|e| e.kind) {
            book.forget(self.id, kind, self.origin);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    const ROOMS: Rooms =
        Rooms { strangers: [2, 8], local: Places { all: 3, one: 3 }, network: Places { all: 6, one: 4 }, look: 2 };

    fn address(n: u8) -> Origin {
        Origin::from(IpAddr::from([10, 0, 0, n]))
    }

    type Told = oneshot::Receiver<()>;

    fn enter(door: &Door, origin: Origin) -> (Guest, Told) {
        let (guest, told, _) = door.enter(origin);
        (guest, told)
    }

    fn is_told(told: &mut Told) -> bool {
        told.now_or_never().is_some_and(|told| told.is_ok())
    }

    #[test]
    fn a_stranger_gives_way_to_the_next() {
        let door = Door::new(ROOMS);
        let mut local = enter(&door, Origin::Local);
        let mut quiet = enter(&door, address(2));
        let mut loud: Vec<_> = (0..50).map(|_| enter(&door, address(1))).collect();
        assert!(!is_told(&mut quiet.1) && !is_told(&mut local.1), "those of the loud address go first");
        let told: Vec<bool> = loud.iter_mut().map(|(_, told)| is_told(told)).collect();
        assert!(told[..43].iter().all(|t| *t) && told[43..].iter().all(|t| !*t), "the oldest first: {told:?}");
        // Those who were told, and have not gone yet, take nobody's place.
        assert_eq!(loud[49].0.seat_now(false), Ok(()));
        assert_eq!(quiet.0.seat_now(false), Ok(()));
        // Of many who have come once each, the oldest.
        let mut many: Vec<_> = (10..60).map(|n| enter(&door, address(n))).collect();
        assert!(!is_told(&mut quiet.1) && !is_told(&mut local.1));
        assert!(is_told(&mut many[0].1) && !is_told(&mut many[49].1));
    }

    #[test]
    fn an_address_leaves_places_to_others() {
        let door = Door::new(ROOMS);
        let seat = |origin| {
            let (guest, _) = enter(&door, origin);
            guest.seat_now(false).map(|()| guest)
        };
        let mut loud: Vec<_> = (0..4).map(|_| seat(address(1)).unwrap()).collect();
        assert_eq!(seat(address(1)).err(), Some(Full::Share(4)));
        let others = [seat(address(2)).unwrap(), seat(address(3)).unwrap()];
        assert_eq!(seat(address(4)).err(), Some(Full::All(6)));
        let local: Vec<_> = (0..3).map(|_| seat(Origin::Local).unwrap()).collect();
        assert_eq!(seat(Origin::Local).err(), Some(Full::Share(3)));
        loud.pop();
        assert!(seat(address(4)).is_ok(), "a place that was given up");
        drop((loud, others, local));
        let book = door.book();
        assert!(book.guests.is_empty() && book.of_origin.is_empty() && book.counts.values().all(|n| *n == 0));
    }

    #[test]
    fn who_only_looks_gives_way() {
        let door = Door::new(ROOMS);
        let mut looking: Vec<_> = (1..4).map(|n| enter(&door, address(n))).collect();
        assert!(looking.iter().all(|(guest, _)| guest.seat_now(true).is_ok()));
        let told: Vec<bool> = looking.iter_mut().map(|(_, told)| is_told(told)).collect();
        assert_eq!(told, [true, false, false]);
        assert_eq!(
            enter(&door, address(1)).0.seat_now(false),
            Ok(()),
            "those who come to work have places of their own"
        );
    }

    #[test]
    fn addresses_of_one_machine_are_one() {
        let of = |text: &str| Origin::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(of("10.0.0.1"), of("::ffff:10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
        assert_eq!(of("fd00:1:2:3::1"), of("fd00:1:2:3:4::9"));
        assert_ne!(of("fd00:1:2:3::1"), of("fd00:1:2:4::1"));
        assert_ne!(of("::1"), of("10.0.0.1"));
    }
}
