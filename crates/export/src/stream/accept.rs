//! Accepting on a listening socket, for ever.
//!
//! Invariant: whatever strangers do, the loop neither waits for one of them nor spins.

use std::{
    pin::pin,
    rc::{Rc, Weak},
    time::Duration,
};

use futures::{
    channel::oneshot,
    future::{Either, select},
};
use rt::{
    Rt,
    net::{Listener, Stream, is_short_of_descriptors},
};

use super::{
    door::{Door, Guest, Origin},
    rare::Rare,
};

/// Pause after a failed accept, which most often means that descriptors have run out; and where somebody was told to go, whose
/// descriptor is free in a moment.
const RETRY: Duration = Duration::from_millis(100);
const RETRY_SOON: Duration = Duration::from_millis(5);

/// Descriptors that connections leave to everything else: the control socket, drives, files that are looked at.
const DESCRIPTORS_KEPT: u64 = 12;

/// Somebody who has come in, and by what it is told to go.
pub struct Arrival {
    pub guest: Guest,
    pub told: oneshot::Receiver<()>,
}

impl Arrival {
    /// Does the work of its connection to the end, which comes soon when it is told to go.
    pub async fn until_told(told: oneshot::Receiver<()>, stream: &Stream, work: impl Future<Output = ()>) {
        // One who has a place is told nothing any more: then nobody asks.
        if let Either::Right((told, work)) = select(pin!(work), told).await {
            if told.is_ok() {
                stream.shutdown();
            }
            work.await;
        }
    }
}

/// Gives each connection to `serve`. `protocol` is for the log.
pub async fn accept(
    rt: Rt,
    listener: Listener,
    door: Door,
    rare: Rc<Rare>,
    protocol: &'static str,
    mut serve: impl FnMut(Stream, Arrival),
) {
    loop {
        match listener.accept().await {
            Ok(stream) if is_short_of_descriptors(&stream, DESCRIPTORS_KEPT) => {
                let made_room = door.make_room();
                // The next one gets its descriptor, and is not short: without another the last would be used up.
                door.make_room();
                rare.say(SHORT, || tracing::warn!("{protocol}: out of file descriptors: raise the limit (ulimit -n)"));
                if made_room {
                    let (guest, told, _) = door.enter(Origin::of(&stream));
                    serve(stream, Arrival { guest, told });
                }
            }
            Ok(stream) => {
                let (guest, told, sent_away) = door.enter(Origin::of(&stream));
                if sent_away {
                    rare.say("unidentified connections closed", || {
                        tracing::warn!(
                            "{protocol}: too many connections that do not identify themselves: the oldest are closed"
                        );
                    });
                }
                serve(stream, Arrival { guest, told });
            }
            Err(error) => {
                let made_room = door.make_room();
                rare.say(SHORT, || tracing::warn!(%error, "{protocol}: cannot accept"));
                rt.sleep(if made_room { RETRY_SOON } else { RETRY }).await;
            }
        }
    }
}

const SHORT: &str = "short of descriptors";

/// How often connections are looked at whose peers should have answered.
const LOOK: Duration = Duration::from_secs(5);

/// Ends the connections of peers that are gone, as long as the server is there.
pub async fn end_lost<S>(rt: Rt, server: Weak<S>, connections: impl Fn(&S) -> Vec<Stream>) {
    loop {
        rt.sleep(LOOK).await;
        let Some(server) = server.upgrade() else { return };
        for lost in connections(&server).iter().filter(|stream| stream.is_lost()) {
            tracing::info!(peer = lost.peer(), "a peer has vanished: its connection is closed");
            lost.shutdown();
        }
    }
}
