//! When volumes have sockets for guests of this machine, and when they are gone.

use std::rc::{Rc, Weak};
use std::time::Duration;

use api::{AlarmView, ClientView, Severity, VolumeView};
use export::Used;
use export::vhost_user_blk::GuestSocket;
use futures::future::join_all;
use uuid::Uuid;

use super::Data;
use crate::guests::Place;
use crate::namespace::VolumeNamespace;
use crate::ops::open::Opened;

/// How often volumes are looked at: new ones that nobody told of, and sockets that could not be opened.
const LOOK: Duration = Duration::from_secs(1);
/// The protocol of guests.
pub(super) const VHOST_USER: &str = "vhost_user";

impl Data {
    /// Opens sockets for the volumes of an array that have none, and closes those of volumes that are gone.
    pub fn offer_to_guests(&self, opened: &Opened) {
        let array = opened.array.first();
        if self.guests.directory().is_none() || !self.blocks.may_begin(array.uuid()) {
            return;
        }
        let live: Vec<(Uuid, String)> = array.live_volumes().iter().map(|v| (v.uuid(), v.name())).collect();
        let is_gone = |volume| !live.iter().any(|(uuid, _)| *uuid == volume);
        for socket in self.guests.take(|volume, place| place.number == opened.number() && is_gone(volume)) {
            self.world.rt.spawn(async move { socket.close().await }).detach();
        }
        for (uuid, name) in live {
            let Some(path) = self.guests.missing(uuid) else { continue };
            let Some(lease) = opened.lease(&name) else { continue };
            let namespace = VolumeNamespace::new(&array.name(), opened, lease);
            match GuestSocket::open(&self.world.rt, self.guests.guests(), namespace, &path) {
                Ok(socket) => self.guests.put(uuid, Place { array: array.uuid(), number: opened.number(), socket }),
                Err(error) => {
                    let why = format!("{}/{name}: {}: {error}", array.name(), path.display());
                    if self.guests.fails(uuid, &why) {
                        tracing::warn!("socket for guests of {why}; tried again every second");
                    }
                }
            }
        }
    }

    /// Closes these sockets. What their guests have asked for is done, for 20 s at most; their machines wait for the next server.
    pub(super) async fn withdraw_from_guests(&self, is_one: impl Fn(Uuid, &Place) -> bool) {
        join_all(self.guests.take(is_one).iter().map(GuestSocket::close)).await;
    }

    /// Closes the socket of a volume that is to be deleted.
    pub async fn end_guests_of(&self, volume: Uuid) {
        self.withdraw_from_guests(|other, _| other == volume).await;
    }

    /// A volume has grown; whether guests were told.
    pub fn tell_guests_of_size(&self, volume: Uuid) -> Option<String> {
        let socket = self.guests.of_volume(volume)?;
        socket.resized();
        let told = socket.guests().iter().filter(|guest| guest.is_in_use).count();
        (told > 0).then(|| "its guest is told of the new size".to_owned())
    }

    /// All guests that are connected, as clients.
    pub(super) fn guest_clients(&self) -> Vec<ClientView> {
        let of_volume = |(volume, socket): (Uuid, GuestSocket)| {
            let (array, name) = self.used(&Used::Namespace(*volume.as_bytes()));
            socket.guests().into_iter().map(move |guest| ClientView {
                array: array.clone(),
                volume: name.clone(),
                protocol: VHOST_USER.to_owned(),
                peer: guest.peer,
                host: None,
                since_unix_seconds: guest.since,
                connections: 1,
            })
        };
        let in_use = self.guests.all().into_iter().filter(|(_, socket)| !socket.guests().is_empty());
        in_use.flat_map(of_volume).collect()
    }

    /// Says of volumes at which sockets guests find them.
    pub(super) fn name_guest_sockets<'a>(&self, volumes: impl Iterator<Item = &'a mut VolumeView>) {
        if self.guests.directory().is_some() {
            volumes.for_each(|v| {
                v.guest_socket = self.guests.of_volume(v.uuid).map(|socket| socket.path().display().to_string());
            });
        }
    }

    /// Volumes that guests cannot find, as a standing alarm.
    pub(super) fn guests_alarm(&self) -> Option<AlarmView> {
        let (count, why) = self.guests.problem()?;
        let volumes = if count == 1 { "a volume".to_owned() } else { format!("{count} volumes") };
        Some(AlarmView {
            code: "guests_closed".to_owned(),
            severity: Severity::Warning,
            seat: None,
            what: format!("Guests do not find {volumes}: {why}"),
            todo: "Make its directory writable, and stop what listens there; it is tried again every second".to_owned(),
            acknowledged: None,
        })
    }
}

/// Keeps the sockets of an array open for as long as it is served.
pub async fn keep_guest_sockets(data: Weak<Data>, number: u64) {
    while let Some(data) = data.upgrade() {
        let rt = data.world.rt.clone();
        let Some(opened) = data.served_as(number) else {
            data.withdraw_from_guests(|_, place| place.number == number).await;
            return;
        };
        data.offer_to_guests(&opened);
        drop((opened, data));
        rt.sleep(LOOK).await;
    }
}

/// Begins to serve an array's volumes to guests, if guests are served at all.
pub(super) fn begin_guests(data: &Rc<Data>, opened: &Opened) {
    if data.guests.directory().is_some() {
        data.offer_to_guests(opened);
        data.world.rt.spawn(keep_guest_sockets(Rc::downgrade(data), opened.number())).detach();
    }
}
