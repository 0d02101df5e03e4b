//! A socket at which one volume waits for guests.
//!
//! Invariants: it is open for its owner and its group only; a socket that is closed finishes what it has taken, for a while; one that
//! is dropped, or whose process dies, leaves requests to the next: the front end keeps the notes of them.
//!
//! Not here: which volume has which path (`server`).

use std::cell::{Cell, RefCell};
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures::future::{join_all, select};
use rt::{Addr, Listener, Rt, Task};

use super::features;
use super::guests::{Guests, Turns};
use super::request::Limits;
use super::session::Session;
use crate::counters::{Counters, Live};
use crate::namespace::{Namespace, NamespaceInfo};
use crate::stream::signal::Signal;

/// Connections of one socket at a time. Two are there while a guest moves to another process.
const CONNECTIONS_MAX: usize = 4;
/// How long a close waits for requests under way. What is not finished then is done by the next server again.
const CLOSE_PATIENCE: Duration = Duration::from_secs(20);
/// How long the connections may take to end after that.
const END_PATIENCE: Duration = Duration::from_secs(2);
/// Pause after a failed accept, which most often means that descriptors have run out.
const RETRY: Duration = Duration::from_millis(100);

/// What the connections of a socket share.
pub(super) struct Shared {
    pub(super) name: String,
    pub(super) uuid: [u8; 16],
    /// Those that are offered, as long as the socket is there.
    pub(super) features: u64,
    pub(super) limits: Cell<Limits>,
    pub(super) live: Live,
    pub(super) guests: Guests,
    pub(super) turns: Rc<Turns>,
    pub(super) is_closing: Cell<bool>,
    pub(super) changed: Signal,
    said: RefCell<String>,
}

impl Shared {
    /// Says something, unless it was the last that was said: a front end comes again every second.
    pub(super) fn say(&self, text: &str, say: impl FnOnce()) {
        if *self.said.borrow() != text {
            text.clone_into(&mut self.said.borrow_mut());
            say();
        }
    }
}

/// Who is connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guest {
    /// Its front end: "unix:pid 7 uid 0".
    pub peer: String,
    /// Whether it has set up a queue.
    pub is_in_use: bool,
    /// Since when it is connected, in seconds since 1970.
    pub since: u64,
}

/// A connection, whatever namespace it has.
trait Connection {
    fn stop(&self) -> futures::future::LocalBoxFuture<'_, ()>;
    fn hang_up(&self);
    fn guest(&self) -> Guest;
    fn resized(&self);
}

impl<N: Namespace> Connection for Session<N> {
    fn stop(&self) -> futures::future::LocalBoxFuture<'_, ()> {
        Box::pin(Session::stop(self))
    }

    fn hang_up(&self) {
        Session::hang_up(self);
    }

    fn guest(&self) -> Guest {
        Guest { peer: self.peer(), is_in_use: self.is_in_use(), since: self.since() }
    }

    fn resized(&self) {
        Session::resized(self);
    }
}

type Connections = Rc<RefCell<Vec<Rc<dyn Connection>>>>;

/// A socket for guests. Clones are the same one; when the last is dropped it is served no more.
#[derive(Clone)]
pub struct GuestSocket(Rc<Handle>);

struct Handle {
    rt: Rt,
    path: PathBuf,
    shared: Rc<Shared>,
    connections: Connections,
    info_now: RefCell<Option<Rc<dyn Fn() -> NamespaceInfo>>>,
    accepts: RefCell<Option<Task<()>>>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.connections.borrow().iter().for_each(|connection| connection.hang_up());
        if let Some(task) = self.accepts.take() {
            task.cancel();
        }
    }
}

impl GuestSocket {
    /// Waits for guests of `namespace` at `path`; `guests` are those of all sockets.
    ///
    /// # Errors
    /// When the socket cannot be made: another server listens there, or something else has the name.
    pub fn open<N: Namespace>(rt: &Rt, guests: &Guests, namespace: N, path: &Path) -> io::Result<GuestSocket> {
        let listener = Listener::bind(rt, &Addr::Unix(path.to_owned()))?;
        let info = namespace.info();
        let shared = Rc::new(Shared {
            name: info.name.clone(),
            uuid: info.uuid,
            features: features::of(&info),
            limits: Cell::new(limits_of(&info)),
            live: Live::default(),
            guests: guests.clone(),
            turns: guests.turns(info.uuid),
            is_closing: Cell::new(false),
            changed: Signal::default(),
            said: RefCell::default(),
        });
        let connections = Connections::default();
        let accepts = rt.spawn(accept(rt.clone(), listener, shared.clone(), connections.clone(), namespace.clone()));
        let info_now: Rc<dyn Fn() -> NamespaceInfo> = Rc::new(move || namespace.info());
        Ok(GuestSocket(Rc::new(Handle {
            rt: rt.clone(),
            path: path.to_owned(),
            shared,
            connections,
            info_now: RefCell::new(Some(info_now)),
            accepts: RefCell::new(Some(accepts)),
        })))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Who is connected.
    #[must_use]
    pub fn guests(&self) -> Vec<Guest> {
        self.0.connections.borrow().iter().map(|connection| connection.guest()).collect()
    }

    /// What it has done.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.0.shared.live.read()
    }

    /// Whether guests can connect.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        !self.0.shared.is_closing.get()
    }

    /// The namespace is longer now: guests that are connected are told.
    pub fn resized(&self) {
        let info = self.0.info_now.borrow().as_ref().map(|info| info());
        if let Some(info) = info {
            self.0.shared.limits.set(limits_of(&info));
            self.0.connections.borrow().iter().for_each(|connection| connection.resized());
        }
    }

    /// Ends it: no more requests are taken, those under way are finished, for 20 s at most, and the connections end. A front end that
    /// connects again, to this path, goes on.
    pub async fn close(&self) {
        let Handle { rt, shared, connections, info_now, accepts, .. } = &*self.0;
        if shared.is_closing.replace(true) {
            return;
        }
        if let Some(task) = accepts.take() {
            task.cancel();
        }
        let all = connections.borrow().clone();
        let stops = join_all(all.iter().map(|connection| connection.stop()));
        select(pin!(stops), pin!(rt.sleep(CLOSE_PATIENCE))).await;
        all.iter().for_each(|connection| connection.hang_up());
        drop(all);
        let ended = shared.changed.until(|| connections.borrow().is_empty());
        select(pin!(ended), pin!(rt.sleep(END_PATIENCE))).await;
        info_now.take();
    }
}

pub(super) fn limits_of(info: &NamespaceInfo) -> Limits {
    Limits { bytes: info.bytes, block: info.min_block, read_only: info.read_only, durable: false }
}

async fn accept<N: Namespace>(rt: Rt, listener: Listener, shared: Rc<Shared>, connections: Connections, namespace: N) {
    loop {
        let stream = match listener.accept().await {
            Ok(stream) => stream,
            Err(error) => {
                shared.say("accept", || tracing::warn!(%error, "vhost-user: {}: cannot accept", shared.name));
                rt.sleep(RETRY).await;
                continue;
            }
        };
        if connections.borrow().len() >= CONNECTIONS_MAX {
            shared.say("full", || {
                tracing::warn!("vhost-user: {}: more than {CONNECTIONS_MAX} connections are refused", shared.name);
            });
            continue;
        }
        let session = Session::new(&rt, &shared, stream, &namespace);
        connections.borrow_mut().push(session.clone());
        shared.live.update(|counters| {
            counters.connections += 1;
            counters.connections_total += 1;
        });
        let (shared, connections) = (shared.clone(), connections.clone());
        rt.spawn(async move {
            session.serve().await;
            let this: Rc<dyn Connection> = session;
            connections.borrow_mut().retain(|other| !Rc::ptr_eq(other, &this));
            shared.live.update(|counters| counters.connections -= 1);
            shared.changed.notify();
        })
        .detach();
    }
}
